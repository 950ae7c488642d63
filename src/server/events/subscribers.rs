//! The clients of this shard that listen to events, over SSE, WebSocket or TCP: what each of them gets, and
//! that it stays connected.
//!
//! Those that listen to the same in the same form share a lane, which holds what they have not all got
//! yet. A client whose connection has enough to send is passed over until it has taken that; if it takes
//! too long, its oldest events are gone. Nobody waits for it. An idle stream is a place in two tables.
//!
//! A long event is sent from where the lane has it, so however many listen, it is in memory once. A turn feeds some
//! clients, the next one others.

use super::EventMessage;
use super::shared_buffer::{Form, LANE_BYTES_MAX, LANES_BYTES_MAX, Place, SharedBuffer};
use crate::protocol::{sse, websocket};
use crate::server::connection::session::Protocol;
use crate::server::connection::websocket::Incoming;
use crate::server::numbered::Entries;
use crate::server::overload::send_memory::is_tight;
use crate::server::overload::shared_values::SHARED_BYTES_MIN;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections, Shared, Tally};
use std::collections::{BTreeMap, VecDeque};

/// Unsent output of a connection beyond which it gets no more events for now.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// About how much of a lane a connection gets at a time.
const FEED_BYTES_MAX: usize = 64 << 10;

/// Clients that are fed in a turn, and about how many bytes are copied for them.
const TURN_CLIENTS_MAX: usize = 500;
const TURN_BYTES_MAX: usize = 2 << 20;

/// Events that follow each other within this time go out together: with many listeners a send for each
/// event costs more than the event.
const PACE_MS: u64 = 5;

/// Into how many parts the time between two signs of life is cut. At the end of each a part of the
/// streams has its turn.
const BEATS: usize = 15;

/// How often in a row a WebSocket client may leave a ping unanswered.
const MISSED_MAX: u8 = 2;

/// In how many forms events go out.
const FORMS: usize = 3;

/// Clients that listen to the same.
#[derive(Debug)]
struct Topic {
    /// To which queue; none means all.
    queue: Option<Box<str>>,
    sides: [Side; FORMS],
    /// Tells it from an earlier one at the same place.
    serial: u64,
    /// Whether there is news that not all have been offered, and whether some are being offered news.
    dirty: bool,
    fed: bool,
}

/// Those of one form.
#[derive(Debug, Default)]
struct Side {
    buffer: SharedBuffer,
    clients: Vec<u32>,
    /// How many of them have not got all there is.
    behind: usize,
}

impl Topic {
    fn new(queue: Option<&str>, serial: u64) -> Self {
        let sides = [Side::default(), Side::default(), Side::default()];
        Self { queue: queue.map(Into::into), sides, serial, dirty: false, fed: false }
    }

    /// Whether those who are not behind have all there is on this side.
    fn is_done(&self, side: usize) -> bool {
        let side = &self.sides[side];
        side.clients.is_empty() || side.behind == 0 && !self.dirty && !self.fed
    }
}

/// One side of a scope whose clients are being fed, from the last to the first: whoever goes leaves its place to the
/// last one, which has been fed.
#[derive(Clone, Copy, Debug)]
struct Round {
    topic: u32,
    serial: u64,
    side: usize,
    left: usize,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Subscriber {
    conn: ConnId,
    form: Form,
    topic: u32,
    /// Its index among the listeners of its side.
    index: u32,
    place: Place,
    /// Whether it is one of those behind, to be fed when its output has been taken.
    behind: bool,
    /// Until other shards know of it: how many do not, and what it is sent then.
    opening: Option<Box<Opening>>,
    /// Pings that were not answered.
    missed: u8,
    pinged_at_ms: u64,
    /// A message that comes in pieces.
    pub(crate) incoming: Option<Box<Incoming>>,
}

#[derive(Debug)]
struct Opening {
    unheard: usize,
    /// Number of the time that somebody here has begun to listen.
    time: u64,
    hello: Vec<u8>,
}

/// How many there are, and what they missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubscriberCounts {
    /// SSE streams.
    pub sse: u64,
    /// WebSocket connections.
    pub websocket: u64,
    /// Events that were taken to a shard's listeners.
    pub events: u64,
    /// Events that a client was too slow for.
    pub lost: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Subscribers {
    clients: Entries<Subscriber>,
    topics: Entries<Box<Topic>>,
    all: Option<u32>,
    /// A tree: what clients listen to comes and goes, and none of it moves at once.
    queues: BTreeMap<Box<str>, u32>,
    /// Scopes with new events, with their serials.
    dirty: Vec<(u32, u64)>,
    /// What is being fed.
    rounds: VecDeque<Round>,
    next_feed_ms: u64,
    /// Lanes with events, by the stamp of their oldest.
    oldest: BTreeMap<u64, (u32, usize)>,
    /// Events and scopes so far.
    stamps: u64,
    /// The bytes of all events, in lanes and on their way out, each once.
    tally: Option<Tally>,
    /// How often somebody has begun to listen.
    times: u64,
    /// Bytes of all lanes.
    lane_bytes: usize,
    /// Connections by the beat at which they are looked at. Those that are gone stay until then.
    beats: [Vec<ConnId>; BEATS],
    beat: usize,
    next_beat_ms: u64,
    keep_alive_ms: u64,
    counts: SubscriberCounts,
}

impl Default for Subscribers {
    fn default() -> Self {
        Self {
            clients: Entries::default(),
            topics: Entries::default(),
            all: None,
            queues: BTreeMap::new(),
            dirty: Vec::new(),
            rounds: VecDeque::new(),
            next_feed_ms: 0,
            oldest: BTreeMap::new(),
            stamps: 0,
            tally: None,
            times: 0,
            lane_bytes: 0,
            beats: std::array::from_fn(|_| Vec::new()),
            beat: 0,
            next_beat_ms: 0,
            keep_alive_ms: 15_000,
            counts: SubscriberCounts::default(),
        }
    }
}

impl Subscribers {
    /// Sets how long an SSE stream is silent at most. A WebSocket is pinged half as often.
    pub fn keep_alive(&mut self, every_ms: u64) {
        self.keep_alive_ms = every_ms;
    }

    /// How many there are, and what they missed.
    pub fn counts(&self) -> SubscriberCounts {
        self.counts
    }

    /// Memory of events that clients have not taken yet, with all else that is to be sent to those.
    pub fn waiting_bytes(&self, conns: &Connections) -> usize {
        let own = self.clients.iter().map(|one| conns.own_output_bytes(one.conn));
        self.tally.as_ref().map_or(0, Tally::bytes) + own.sum::<usize>()
    }

    pub(crate) fn subscriber(&mut self, key: u32) -> Option<&mut Subscriber> {
        self.clients.get_mut(key)
    }

    /// What has come of a message whose last part is missing.
    pub(crate) fn incoming_bytes(&self, key: u32) -> usize {
        let subscriber = self.clients.get(key);
        let incoming = subscriber.and_then(|subscriber| subscriber.incoming.as_ref());
        incoming.map_or(0, |incoming| incoming.bytes.capacity())
    }

    /// When such a message was begun, if there is one.
    pub(crate) fn incoming_since_ms(&self, key: u32) -> Option<u64> {
        let incoming = self.clients.get(key)?.incoming.as_ref()?;
        Some(incoming.since_ms)
    }

    /// Whether a client is still to be told that it is connected.
    pub(crate) fn is_opening(&self, key: u32) -> bool {
        self.clients.get(key).is_some_and(|subscriber| subscriber.opening.is_some())
    }

    /// Does not wait for the shards any more: what was to be said once they had all heard, if they had not.
    pub(crate) fn end_opening(&mut self, key: u32) -> Option<Vec<u8>> {
        self.subscriber(key)?.opening.take().map(|opening| opening.hello)
    }

    fn topic_of(&self, queue: Option<&str>) -> Option<u32> {
        match queue {
            None => self.all,
            Some(queue) => self.queues.get(queue).copied(),
        }
    }

    /// An event of a queue, for all who listen to it.
    pub(crate) fn take_news(&mut self, conns: &Connections, queue: &str, text: &[u8]) {
        let topics = [self.all, self.queues.get(queue).copied()];
        self.counts.events += u64::from(topics.iter().any(Option::is_some));
        let tally = self.tally.get_or_insert_with(|| conns.tally().part()).clone();
        let mut framed: [Option<Shared>; FORMS] = [const { None }; FORMS];
        for key in topics.into_iter().flatten() {
            for (side, form) in Form::ALL.into_iter().enumerate() {
                if !self.topics[key].sides[side].clients.is_empty() {
                    let event = framed[side].get_or_insert_with(|| form.frame(text, &tally));
                    let event = event.clone();
                    self.push(key, side, event);
                }
            }
            let topic = &mut self.topics[key];
            if !std::mem::replace(&mut topic.dirty, true) {
                self.dirty.push((key, topic.serial));
            }
        }
        while self.lane_bytes > LANES_BYTES_MAX
            && let Some((_, &(topic, side))) = self.oldest.first_key_value()
        {
            self.with_lane(topic, side, SharedBuffer::drop_oldest);
        }
    }

    fn push(&mut self, topic: u32, side: usize, event: Shared) {
        self.stamps += 1;
        let stamp = self.stamps;
        self.with_lane(topic, side, |buffer| {
            buffer.push(stamp, event);
            while buffer.bytes() > LANE_BYTES_MAX {
                buffer.drop_oldest();
            }
        });
    }

    /// Changes a lane, and what is known of all of them.
    fn with_lane(&mut self, topic: u32, side: usize, change: impl FnOnce(&mut SharedBuffer)) {
        let buffer = &mut self.topics[topic].sides[side].buffer;
        let (oldest, bytes) = (buffer.oldest(), buffer.bytes());
        change(buffer);
        self.lane_bytes = self.lane_bytes - bytes + buffer.bytes();
        if buffer.oldest() != oldest {
            if let Some(stamp) = oldest {
                self.oldest.remove(&stamp);
            }
            if let Some(stamp) = buffer.oldest() {
                self.oldest.insert(stamp, (topic, side));
            }
        }
    }

    /// Forgets the events of a lane that everybody has.
    fn clear_if_done(&mut self, topic: u32, side: usize) {
        if self.topics[topic].is_done(side) {
            self.with_lane(topic, side, SharedBuffer::clear);
        }
    }

    /// The scope that is meant, if it is still that one.
    fn topic(&mut self, key: u32, serial: u64) -> Option<&mut Topic> {
        self.topics.get_mut(key).map(|topic| &mut **topic).filter(|topic| topic.serial == serial)
    }

    /// All clients whose scopes have news are offered it.
    fn begin_rounds(&mut self) {
        for (key, serial) in std::mem::take(&mut self.dirty) {
            let Some(topic) = self.topic(key, serial) else { continue };
            topic.dirty = false;
            topic.fed = true;
            let sides = std::array::from_fn::<_, FORMS, _>(|side| topic.sides[side].clients.len());
            let rounds =
                (0..FORMS).map(|side| Round { topic: key, serial, side, left: sides[side] });
            self.rounds.extend(rounds);
        }
    }

    /// The first of those rounds is over.
    fn end_round(&mut self) {
        let Some(Round { topic: key, serial, side, .. }) = self.rounds.pop_front() else { return };
        let Some(topic) = self.topic(key, serial) else { return };
        if side + 1 == FORMS {
            topic.fed = false;
            for side in 0..FORMS {
                self.clear_if_done(key, side);
            }
        }
    }

    fn insert(&mut self, conn: ConnId, form: Form, queue: Option<&str>, opening: Opening) -> u32 {
        let topic = self.topic_of(queue).unwrap_or_else(|| {
            self.stamps += 1;
            let topic = self.topics.insert(Box::new(Topic::new(queue, self.stamps)));
            match queue {
                None => self.all = Some(topic),
                Some(queue) => drop(self.queues.insert(queue.into(), topic)),
            }
            topic
        });
        let side = &mut self.topics[topic].sides[form as usize];
        let subscriber = Subscriber {
            conn,
            form,
            topic,
            index: side.clients.len() as u32,
            place: side.buffer.end(),
            behind: false,
            opening: Some(Box::new(opening)),
            missed: 0,
            pinged_at_ms: 0,
            incoming: None,
        };
        let key = self.clients.insert(subscriber);
        side.clients.push(key);
        match form {
            Form::Sse => self.counts.sse += 1,
            Form::WebSocket => self.counts.websocket += 1,
            Form::Frames => {}
        }
        // A connection of frames gets no sign of life, and may begin to listen as often as it likes.
        if form != Form::Frames {
            let beat = (self.beat + BEATS - 1) % BEATS;
            self.beats[beat].push(conn);
        }
        key
    }

    /// Forgets a client. If it was the last of its scope, returns that.
    fn remove(&mut self, key: u32) -> Option<Topic> {
        let gone = self.clients.remove(key)?;
        let topic = &mut self.topics[gone.topic];
        let side = &mut topic.sides[gone.form as usize];
        side.clients.swap_remove(gone.index as usize);
        if let Some(&moved) = side.clients.get(gone.index as usize) {
            self.clients[moved].index = gone.index;
        }
        match gone.form {
            Form::Sse => self.counts.sse -= 1,
            Form::WebSocket => self.counts.websocket -= 1,
            Form::Frames => {}
        }
        side.behind -= usize::from(gone.behind);
        self.clear_if_done(gone.topic, gone.form as usize);
        let topic = &self.topics[gone.topic];
        if topic.sides.iter().any(|side| !side.clients.is_empty()) {
            return None;
        }
        let topic = *self.topics.remove(gone.topic)?;
        match &topic.queue {
            None => self.all = None,
            Some(queue) => drop(self.queues.remove(queue)),
        }
        Some(topic)
    }
}

impl ShardServer {
    /// Makes a connection a stream of events, of one queue or of all. Who asked has shown that he may,
    /// and that the queue's name is one. `headers` are the header lines that every answer carries, each
    /// with its CRLF.
    pub(crate) fn begin_events(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        queue: Option<&str>,
        headers: &str,
    ) {
        let mut hello = Vec::new();
        sse::begin(&mut hello, headers);
        let id = uuid::Uuid::new_v4();
        let connected = format!("{{\"connected\":true,\"clientId\":\"{id}\"}}");
        sse::message(&mut hello, connected.as_bytes());
        self.open_stream(conns, conn, Form::Sse, queue, hello);
    }

    /// Makes a connection a WebSocket that gets the events of one queue or of all. Who asked has shown
    /// that he may, and that the queue's name is one; `accept` is what [`websocket::accept_key`] gave.
    pub(crate) fn begin_websocket(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        queue: Option<&str>,
        accept: &str,
        headers: &str,
    ) {
        let mut hello = Vec::new();
        websocket::switch(&mut hello, accept, headers);
        self.open_stream(conns, conn, Form::WebSocket, queue, hello);
    }

    /// Tells the shards where the events happen, and the client once all of them know: what happens
    /// after it is told, it gets.
    pub(crate) fn open_stream(
        &mut self,
        conns: &mut Connections,
        conn: ConnId,
        form: Form,
        queue: Option<&str>,
        hello: Vec<u8>,
    ) {
        let others = self.shards_of(queue).filter(|&shard| shard != self.me);
        let others: Vec<usize> = others.collect();
        self.subscribers.times += 1;
        let time = self.subscribers.times;
        let opening = Opening { unheard: others.len(), hello, time };
        let key = self.subscribers.insert(conn, form, queue, opening);
        if self.subscribers.clients.len() == 1 {
            self.subscribers.next_beat_ms = self.now_ms + self.beat_ms();
        }
        let Some(session) = self.sessions.get(conn) else { return };
        session.stream = Some(key);
        // Who asked has shown that he may.
        session.trusted = true;
        match form {
            Form::Sse => self.sessions.change_protocol(conn, Protocol::Events),
            Form::WebSocket => self.sessions.change_protocol(conn, Protocol::WebSocket),
            // It goes on giving commands.
            Form::Frames => {}
        }
        let shard = self.me as u16;
        if self.shards_of(queue).any(|shard| shard == self.me) {
            self.listen(shard, queue);
        }
        for dest in others {
            let batch = self.outbox.immediate(dest);
            let queue = queue.map(|queue| batch.keep(queue.as_bytes()));
            batch.messages.push(Message::Events(EventMessage::Listen { shard, queue, conn, time }));
        }
        self.open_if_heard(conns, key);
    }

    /// The shards where events of a queue happen, or of all.
    fn shards_of(&self, queue: Option<&str>) -> std::ops::Range<usize> {
        match queue {
            None => 0..self.slots.shards(),
            Some(queue) => {
                let owner = self.slots.of_queue(queue);
                owner..owner + 1
            }
        }
    }

    /// Another shard knows of a client.
    pub(crate) fn heard(&mut self, conns: &mut Connections, conn: ConnId, time: u64) {
        let Some(key) = self.sessions.get(conn).and_then(|session| session.stream) else { return };
        if let Some(Subscriber { opening: Some(opening), .. }) = self.subscribers.subscriber(key)
            && opening.time == time
        {
            opening.unheard -= 1;
            self.open_if_heard(conns, key);
        }
    }

    fn open_if_heard(&mut self, conns: &mut Connections, key: u32) {
        let Some(subscriber) = self.subscribers.clients.get_mut(key) else { return };
        let Some(opening) = subscriber.opening.take_if(|opening| opening.unheard == 0) else {
            return;
        };
        let (conn, form) = (subscriber.conn, subscriber.form);
        let topic = &self.subscribers.topics[subscriber.topic];
        subscriber.place = topic.sides[subscriber.form as usize].buffer.end();
        if let Some(out) = conns.output(conn) {
            out.extend_from_slice(&opening.hello);
            self.touch(conn);
        }
        if form == Form::Frames {
            // The hello was the answer to its command.
            let origin = self.origin(conn);
            self.answered(origin);
            return;
        }
        // What it has sent meanwhile.
        self.unblocked.push(conn);
    }

    /// A connection that was a stream is gone, or is to be closed.
    pub(crate) fn close_stream(&mut self, key: u32) {
        let Some(Topic { queue, .. }) = self.subscribers.remove(key) else { return };
        let (me, shard) = (self.me, self.me as u16);
        for dest in self.shards_of(queue.as_deref()) {
            if dest == me {
                self.unlisten(shard, queue.as_deref());
                continue;
            }
            let batch = self.outbox.immediate(dest);
            let queue = queue.as_ref().map(|queue| batch.keep(queue.as_bytes()));
            batch.messages.push(Message::Events(EventMessage::Unlisten { shard, queue }));
        }
    }

    /// Hands out new events, to some in a turn. Returns when to come again, in milliseconds since the epoch.
    pub(crate) fn feed_streams(&mut self, conns: &mut Connections) -> u64 {
        let subscribers = &mut self.subscribers;
        if subscribers.rounds.is_empty() {
            if subscribers.dirty.is_empty() {
                return u64::MAX;
            }
            if self.now_ms < subscribers.next_feed_ms {
                return subscribers.next_feed_ms;
            }
            subscribers.next_feed_ms = self.now_ms + PACE_MS;
            subscribers.begin_rounds();
        }
        let (mut clients_left, mut bytes) = (TURN_CLIENTS_MAX, TURN_BYTES_MAX);
        while let Some(&Round { topic, serial, side, left }) = self.subscribers.rounds.front() {
            let known = self.subscribers.topic(topic, serial);
            let clients = known.map_or(&[][..], |known| &known.sides[side].clients);
            let Some(next) = left.min(clients.len()).checked_sub(1) else {
                self.subscribers.end_round();
                continue;
            };
            if clients_left == 0 || bytes == 0 {
                return self.now_ms;
            }
            let key = clients[next];
            self.subscribers.rounds[0].left = next;
            if !self.subscribers.clients[key].behind {
                bytes = bytes.saturating_sub(self.feed(conns, key));
                clients_left -= 1;
            }
        }
        if self.subscribers.dirty.is_empty() { u64::MAX } else { self.subscribers.next_feed_ms }
    }

    /// Gives one client what its connection has room for. Returns how many bytes were copied.
    fn feed(&mut self, conns: &mut Connections, key: u32) -> usize {
        let Subscribers { clients, topics, counts, .. } = &mut self.subscribers;
        let subscriber = &mut clients[key];
        let side = &mut topics[subscriber.topic].sides[subscriber.form as usize];
        let conn = subscriber.conn;
        side.behind -= usize::from(std::mem::take(&mut subscriber.behind));
        let trusted = self.sessions.get(conn).is_some_and(|session| session.trusted);
        if subscriber.opening.is_some() || !trusted {
            subscriber.place = side.buffer.end();
            return 0;
        }
        let (mut copied, before) = (0, subscriber.place);
        let tight = is_tight(conns);
        if conns.unsent(conn) <= if tight { 0 } else { UNSENT_BYTES_MAX } {
            let most = if tight { 1 } else { FEED_BYTES_MAX };
            counts.lost += side.buffer.read(&mut subscriber.place, most, |event| {
                if event.bytes().len() >= SHARED_BYTES_MIN {
                    conns.append_shared(conn, event);
                } else if let Some(out) = conns.output(conn) {
                    copied += event.bytes().len();
                    out.extend_from_slice(event.bytes());
                }
            });
            if subscriber.place != before {
                self.touched.push(conn);
            }
        }
        if subscriber.place != side.buffer.end() {
            subscriber.behind = true;
            side.behind += 1;
            conns.tell_when_drained(conn);
        }
        copied
    }

    /// A connection has taken all its output.
    pub(crate) fn feed_drained(&mut self, conns: &mut Connections, key: u32) {
        let Some(subscriber) = self.subscribers.subscriber(key) else { return };
        if !subscriber.behind {
            return;
        }
        let (topic, form) = (subscriber.topic, subscriber.form);
        self.feed(conns, key);
        self.subscribers.clear_if_done(topic, form as usize);
    }

    fn beat_ms(&self) -> u64 {
        (self.subscribers.keep_alive_ms / BEATS as u64).max(1)
    }

    /// Sends the signs of life that are due. Returns when to come again, in milliseconds since the
    /// epoch.
    pub(crate) fn beat_streams(&mut self, conns: &mut Connections) -> u64 {
        if self.subscribers.clients.is_empty() {
            self.subscribers.beats.iter_mut().for_each(Vec::clear);
            return u64::MAX;
        }
        if self.now_ms >= self.subscribers.next_beat_ms {
            self.subscribers.next_beat_ms = self.now_ms + self.beat_ms();
            let beat = self.subscribers.beat;
            self.subscribers.beat = (beat + 1) % BEATS;
            let mut due = std::mem::take(&mut self.subscribers.beats[beat]);
            due.retain(|&conn| self.show_life(conns, conn));
            self.subscribers.beats[beat] = due;
        }
        self.subscribers.next_beat_ms
    }

    /// Sends one connection a sign of life. False if there is no such stream any more.
    fn show_life(&mut self, conns: &mut Connections, conn: ConnId) -> bool {
        let Some(session) = self.sessions.get(conn) else { return false };
        let Some(key) = session.stream else { return false };
        let last_seen_ms = session.last_seen_ms;
        let (now_ms, ping_ms) = (self.now_ms, 2 * self.subscribers.keep_alive_ms);
        let Some(subscriber) = self.subscribers.subscriber(key) else { return false };
        if subscriber.opening.is_some() {
            return true;
        }
        match subscriber.form {
            Form::Sse => {
                // One that has something to send needs no other sign.
                if conns.unsent(conn) == 0
                    && let Some(out) = conns.output(conn)
                {
                    out.extend_from_slice(sse::KEEP_ALIVE);
                    self.touch(conn);
                }
            }
            // Its own pings tell it that it is connected.
            Form::Frames => {}
            // The time is a beat's: a little less is meant as a ping's.
            Form::WebSocket if now_ms + ping_ms / 4 < subscriber.pinged_at_ms + ping_ms => {}
            Form::WebSocket => {
                let silent = subscriber.pinged_at_ms > 0 && last_seen_ms < subscriber.pinged_at_ms;
                subscriber.missed = if silent { subscriber.missed + 1 } else { 0 };
                subscriber.pinged_at_ms = now_ms;
                if subscriber.missed >= MISSED_MAX {
                    self.close_websocket(conns, conn, Some(websocket::Closing::SILENT));
                    return false;
                }
                if conns.unsent(conn) <= UNSENT_BYTES_MAX
                    && let Some(out) = conns.output(conn)
                {
                    websocket::ping(out);
                    self.touch(conn);
                }
            }
        }
        true
    }

    /// Ends the streams: nothing happens any more. WebSocket clients are told once their commands are
    /// answered.
    pub(crate) fn end_streams(&mut self, conns: &mut Connections) {
        let keys: Vec<(ConnId, Form, bool)> = self
            .subscribers
            .clients
            .iter()
            .map(|subscriber| (subscriber.conn, subscriber.form, subscriber.behind))
            .collect();
        for (conn, form, behind) in keys {
            match form {
                Form::Sse => self.finish_connection(conns, conn),
                // It does not read: the end must not wait for it.
                Form::WebSocket | Form::Frames if behind => self.ended(conns, conn),
                // Its commands are answered, as those of any other.
                Form::Frames => {}
                Form::WebSocket => self.say_goodbye_if_answered(conns, conn),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fear: a list that remembers each time that somebody has begun to listen.
    #[test]
    fn a_connection_that_subscribes_again_and_again_leaves_nothing_behind() {
        let mut subscribers = Subscribers::default();
        let conn = ConnId { index: 7, generation: 0 };
        for time in 0..10_000 {
            let opening = Opening { unheard: 0, hello: Vec::new(), time };
            let key = subscribers.insert(conn, Form::Frames, Some("q"), opening);
            assert!(subscribers.remove(key).is_some());
        }
        let noted: usize = subscribers.beats.iter().map(Vec::len).sum();
        assert_eq!((noted, subscribers.clients.len(), subscribers.topics.len()), (0, 0, 0));
        assert!(subscribers.queues.is_empty() && subscribers.dirty.is_empty());
    }
}
