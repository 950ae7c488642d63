//! The table of the clients of this shard that subscribe to events, over SSE, WebSocket or TCP.
//!
//! Those that listen to the same topic in the same form share a buffer, which holds what they have not all got yet. A
//! client that is too slow loses its oldest events; the others do not wait for it. An idle subscriber is a place in two
//! tables. A long event is sent from where the buffer has it, so however many listen, it is in memory once.

use super::shared_buffer::{BUFFER_BYTES_MAX, BUFFERS_BYTES_MAX, Form, Place, SharedBuffer};
use crate::server::connection::websocket::Incoming;
use crate::server::numbered::Entries;
use corq_io::net::{ConnId, Connections, Shared, Tally};
use std::collections::{BTreeMap, VecDeque};

/// Into how many parts the time between two signs of life is cut. At the end of each a part of the
/// streams has its turn.
pub(super) const BEATS: usize = 15;

/// In how many forms events go out.
pub(super) const FORMS: usize = 3;

/// Clients that listen to the same.
#[derive(Debug)]
pub(super) struct Topic {
    /// To which queue; none means all.
    pub(super) queue: Option<Box<str>>,
    pub(super) sides: [Side; FORMS],
    /// Tells it from an earlier one at the same place.
    pub(super) serial: u64,
    /// Whether there is news that not all have been offered, and whether some are being offered news.
    pub(super) dirty: bool,
    pub(super) fed: bool,
}

/// Those of one form.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) buffer: SharedBuffer,
    pub(super) clients: Vec<u32>,
    /// How many of them have not got all there is.
    pub(super) behind: usize,
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

/// One side of a topic whose clients are being fed, from the last to the first: a client that leaves gives its place to the
/// last one, which has been fed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) topic: u32,
    pub(super) serial: u64,
    pub(super) side: usize,
    pub(super) left: usize,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(super) conn: ConnId,
    pub(super) form: Form,
    pub(super) topic: u32,
    /// Its index among the listeners of its side.
    pub(super) index: u32,
    pub(super) place: Place,
    /// Whether it is one of those behind, to be fed when its output has been taken.
    pub(super) behind: bool,
    /// Until other shards know of it: how many do not, and what it is sent then.
    pub(super) opening: Option<Box<Opening>>,
    /// Pings that were not answered.
    pub(super) missed: u8,
    pub(super) pinged_at_ms: u64,
    /// A message that comes in pieces.
    pub(crate) incoming: Option<Box<Incoming>>,
}

#[derive(Debug)]
pub(super) struct Opening {
    pub(super) unheard: usize,
    /// The number of this subscription on this shard.
    pub(super) time: u64,
    pub(super) hello: Vec<u8>,
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

/// Subscribers, their topics, and which of them have something to get.
#[derive(Debug)]
pub struct Subscribers {
    pub(super) clients: Entries<Subscriber>,
    pub(super) topics: Entries<Box<Topic>>,
    pub(super) all: Option<u32>,
    /// A tree: what clients listen to comes and goes, and none of it moves at once.
    pub(super) queues: BTreeMap<Box<str>, u32>,
    /// Scopes with new events, with their serials.
    pub(super) dirty: Vec<(u32, u64)>,
    /// What is being fed.
    pub(super) rounds: VecDeque<Round>,
    pub(super) next_feed_ms: u64,
    /// Lanes with events, by the stamp of their oldest.
    pub(super) oldest: BTreeMap<u64, (u32, usize)>,
    /// Events and scopes so far.
    pub(super) stamps: u64,
    /// The bytes of all events, in shared buffers and on their way out, each once.
    pub(super) tally: Option<Tally>,
    /// Subscriptions so far.
    pub(super) times: u64,
    /// Bytes of all shared buffers.
    pub(super) buffered_bytes: usize,
    /// Connections by the beat at which they are looked at. Those that are gone stay until then.
    pub(super) beats: [Vec<ConnId>; BEATS],
    pub(super) beat: usize,
    pub(super) next_beat_ms: u64,
    pub(super) keep_alive_ms: u64,
    pub(super) counts: SubscriberCounts,
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
            buffered_bytes: 0,
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

    pub(super) fn topic_of(&self, queue: Option<&str>) -> Option<u32> {
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
        while self.buffered_bytes > BUFFERS_BYTES_MAX
            && let Some((_, &(topic, side))) = self.oldest.first_key_value()
        {
            self.with_buffer(topic, side, SharedBuffer::drop_oldest);
        }
    }

    fn push(&mut self, topic: u32, side: usize, event: Shared) {
        self.stamps += 1;
        let stamp = self.stamps;
        self.with_buffer(topic, side, |buffer| {
            buffer.push(stamp, event);
            while buffer.bytes() > BUFFER_BYTES_MAX {
                buffer.drop_oldest();
            }
        });
    }

    /// Changes a shared buffer, and what is known of all of them.
    fn with_buffer(&mut self, topic: u32, side: usize, change: impl FnOnce(&mut SharedBuffer)) {
        let buffer = &mut self.topics[topic].sides[side].buffer;
        let (oldest, bytes) = (buffer.oldest(), buffer.bytes());
        change(buffer);
        self.buffered_bytes = self.buffered_bytes - bytes + buffer.bytes();
        if buffer.oldest() != oldest {
            if let Some(stamp) = oldest {
                self.oldest.remove(&stamp);
            }
            if let Some(stamp) = buffer.oldest() {
                self.oldest.insert(stamp, (topic, side));
            }
        }
    }

    /// Forgets the events of a shared buffer that all its clients have.
    pub(super) fn clear_if_done(&mut self, topic: u32, side: usize) {
        if self.topics[topic].is_done(side) {
            self.with_buffer(topic, side, SharedBuffer::clear);
        }
    }

    /// The scope that is meant, if it is still that one.
    pub(super) fn topic(&mut self, key: u32, serial: u64) -> Option<&mut Topic> {
        self.topics.get_mut(key).map(|topic| &mut **topic).filter(|topic| topic.serial == serial)
    }

    /// All clients whose scopes have news are offered it.
    pub(super) fn begin_rounds(&mut self) {
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
    pub(super) fn end_round(&mut self) {
        let Some(Round { topic: key, serial, side, .. }) = self.rounds.pop_front() else { return };
        let Some(topic) = self.topic(key, serial) else { return };
        if side + 1 == FORMS {
            topic.fed = false;
            for side in 0..FORMS {
                self.clear_if_done(key, side);
            }
        }
    }

    pub(super) fn insert(
        &mut self,
        conn: ConnId,
        form: Form,
        queue: Option<&str>,
        opening: Opening,
    ) -> u32 {
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
    pub(super) fn remove(&mut self, key: u32) -> Option<Topic> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The fear: a list that remembers each subscription.
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
