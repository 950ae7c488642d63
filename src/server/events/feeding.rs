//! Hands events out to subscribers, and keeps their connections alive. A turn feeds some clients, the next one others; a
//! client whose connection has enough to send is passed over until it has taken that.

use super::EventMessage;
use super::shared_buffer::Form;
use super::subscribers::{BEATS, Opening, Round, Subscriber, Subscribers, Topic};
use crate::protocol::{sse, websocket};
use crate::server::connection::protocol::Protocol;
use crate::server::overload::send_memory::is_tight;
use crate::server::overload::shared_values::SHARED_BYTES_MIN;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

/// Unsent output of a connection beyond which it gets no more events for now.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// About how much of a shared buffer a connection gets at a time.
const FEED_BYTES_MAX: usize = 64 << 10;

/// Clients that are fed in a turn, and about how many bytes are copied for them.
const TURN_CLIENTS_MAX: usize = 500;

const TURN_BYTES_MAX: usize = 2 << 20;

/// Events that follow each other within this time go out together: with many listeners a send for each
/// event costs more than the event.
const PACE_MS: u64 = 5;

/// How often in a row a WebSocket client may leave a ping unanswered.
const MISSED_MAX: u8 = 2;

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

    /// Announces the subscription to the shards where the events happen, and answers the client once all of them know: it
    /// gets every event from its answer on.
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
            conns.notify_when_drained(conn);
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

    /// Ends the streams: nothing happens any more. WebSocket clients get the end once their commands are
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
