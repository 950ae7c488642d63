//! The table of the clients of this shard that subscribe to events, over SSE, WebSocket or TCP.
//!
//! Those that have made the same choice, in the same form, are a [topic](super::topics). A client that is too slow loses its
//! oldest events; the others do not wait for it. An idle subscriber is a place in two tables.

use super::choice::Choice;
use super::greeting::Opening;
use super::position::Position;
use super::replaying::{Found, OwedBytes, Replaying};
use super::returns::{Heard, Returns};
use super::shared_buffer::{Carrier, Form, Place};
use super::text::EventText;
use super::topics::{Changes, Taken, TopicKey, Topics};
use crate::server::connection::incoming::Incoming;
use crate::server::numbered::Entries;
use corq_io::net::{ConnId, Connections, Tally};
use std::collections::VecDeque;
use std::sync::Arc;

/// Into how many parts the time between two signs of life is cut. At the end of each a part of the
/// streams has its turn.
pub(super) const BEATS: usize = 15;

/// An empty line of clients to be fed gives memory for more than these back.
const HUNGRY_KEPT_MAX: usize = 1024;

/// A client that listens to events.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(super) conn: ConnId,
    pub(super) topic: u32,
    /// Index among the listeners of its topic.
    pub(super) index: u32,
    pub(super) place: Place,
    /// Whether it is one of those behind, to be fed when its output has been taken.
    pub(super) behind: bool,
    /// Whether it stands in [`Subscribers::hungry`].
    pub(super) hungry: bool,
    /// Until other shards know of it: how many do not, and what it is sent then.
    pub(super) opening: Option<Box<Opening>>,
    /// The choice that the client asked for, whatever it may hear.
    pub(super) asked: Arc<Choice>,
    /// The names of dashboards that it asked for.
    pub(super) names: Vec<Box<str>>,
    /// The queue in the address of its WebSocket.
    pub(super) address: Option<Box<str>>,
    pub(super) replaying: Option<Box<Replaying>>,
    /// Pings that were not answered.
    pub(super) missed: u8,
    pub(super) pinged_at_ms: u64,
    /// A message that comes in pieces.
    pub(crate) incoming: Option<Box<Incoming>>,
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
    /// Events that were put into the form that goes out, each once for all choices that share it.
    pub framed: u64,
    /// Clients that came back.
    pub resumed: u64,
    /// Clients that came back and may have missed something.
    pub gaps: u64,
}

/// Subscribers, their topics, and which of them have something to get.
#[derive(Debug)]
pub struct Subscribers {
    pub(super) clients: Entries<Subscriber>,
    pub(super) topics: Topics,
    /// Clients that came back and have not begun.
    pub(super) returns: Returns,
    /// Where this shard is in the events of all shards.
    pub(super) position: Position,
    /// Clients that are behind and whose connections have taken what they had, and some that have gone.
    hungry: VecDeque<u32>,
    /// Kept events that may be written in this turn.
    pub(super) kept_left: usize,
    pub(super) next_feed_ms: u64,
    /// When the last client began to listen.
    pub(super) now_ms: u64,
    /// Subscriptions so far.
    pub(super) times: u64,
    /// Bytes of the kept events that clients have yet to get that came back.
    pub(super) owed_bytes: OwedBytes,
    /// Connections by the beat at which they are looked at. Those that are gone stay until then.
    pub(super) beats: [Vec<ConnId>; BEATS],
    pub(super) beat: usize,
    pub(super) next_beat_ms: u64,
    pub(super) keep_alive_ms: u64,
    pub(super) counts: SubscriberCounts,
}

impl Subscribers {
    /// None, whose events that wait may have so many bytes together.
    pub fn new(waiting_bytes_max: usize) -> Self {
        Self {
            clients: Entries::default(),
            topics: Topics::new(waiting_bytes_max),
            returns: Returns::default(),
            position: Position::new(0, 0),
            hungry: VecDeque::new(),
            kept_left: 0,
            next_feed_ms: 0,
            now_ms: 0,
            times: 0,
            owed_bytes: OwedBytes::default(),
            beats: std::array::from_fn(|_| Vec::new()),
            beat: 0,
            next_beat_ms: 0,
            keep_alive_ms: 15_000,
            counts: SubscriberCounts::default(),
        }
    }

    /// Sets how long an SSE stream is silent at most. A WebSocket is pinged half as often.
    pub fn keep_alive(&mut self, every_ms: u64) {
        self.keep_alive_ms = every_ms;
    }

    /// Begins a life of the server with so many shards.
    pub fn begin(&mut self, epoch: u64, shards: usize) {
        self.position = Position::new(epoch, shards);
    }

    /// How many choices differ, their patterns, and their bytes.
    pub fn choices(&self) -> (usize, usize, usize) {
        self.topics.choices()
    }

    /// Clients that came back and wait until it is their turn.
    pub fn returns_waiting(&self) -> usize {
        self.returns.waiting()
    }

    /// How many there are, and what they missed.
    pub fn counts(&self) -> SubscriberCounts {
        let Topics { events, framed, .. } = self.topics;
        SubscriberCounts { events, framed, ..self.counts }
    }

    /// Memory of events that clients have not taken yet, with all else that is to be sent to those.
    pub fn waiting_bytes(&self, conns: &Connections) -> usize {
        let own = self.clients.iter().map(|one| conns.own_output_bytes(one.conn));
        self.topics.tally.as_ref().map_or(0, Tally::bytes) + own.sum::<usize>()
    }

    pub(crate) fn subscriber(&mut self, key: u32) -> Option<&mut Subscriber> {
        self.clients.get_mut(key)
    }

    /// In which form a client gets events.
    pub(super) fn form_of(&self, key: u32) -> Form {
        let topic = self.clients.get(key).and_then(|one| self.topics.get(one.topic));
        topic.map_or(Form::plain(Carrier::Frames), |topic| topic.key.form)
    }

    /// The choice that a client hears.
    pub(super) fn choice_of(&self, key: u32) -> Option<&Choice> {
        let topic = self.topics.get(self.clients.get(key)?.topic)?;
        Some(&topic.key.choice)
    }

    /// Where a client is that gets ids and has all events, which is where it can go on from.
    pub(super) fn place_of(&self, key: u32) -> Option<String> {
        let one = self.clients.get(key)?;
        let topic = self.topics.get(one.topic)?;
        let has_all = one.replaying.is_none() && one.place == topic.buffer.end();
        (topic.key.form.ids && has_all).then(|| self.position.text())
    }

    /// Memory of a message whose last part is missing.
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

    /// An event of a queue, for all who want it. `from` is its shard, and the last event that this has kept.
    pub(crate) fn take_news(
        &mut self,
        conns: &Connections,
        from: (u16, u64),
        queue: &str,
        event: &EventText<'_>,
    ) -> Taken {
        let tally = self.topics.tally.get_or_insert_with(|| conns.tally().part()).clone();
        self.take_in(&tally, from, queue, event)
    }

    fn take_in(
        &mut self,
        tally: &Tally,
        (shard, number): (u16, u64),
        queue: &str,
        event: &EventText<'_>,
    ) -> Taken {
        self.position.note(shard, number);
        self.topics.take_in(tally, &self.position, queue, event)
    }

    pub(super) fn insert(
        &mut self,
        conn: ConnId,
        key: TopicKey,
        asked: Arc<Choice>,
        opening: Opening,
    ) -> (u32, Changes) {
        let carrier = key.form.carrier;
        let topic = self.topics.topic_of(key);
        let subscriber = Subscriber {
            conn,
            topic,
            index: 0,
            place: Place::default(),
            behind: false,
            hungry: false,
            opening: Some(Box::new(opening)),
            asked,
            names: Vec::new(),
            address: None,
            replaying: None,
            missed: 0,
            pinged_at_ms: 0,
            incoming: None,
        };
        let key = self.clients.insert(subscriber);
        self.join(key, topic);
        match carrier {
            Carrier::Sse => self.counts.sse += 1,
            Carrier::WebSocket => self.counts.websocket += 1,
            Carrier::Frames => {}
        }
        // A connection of frames gets no sign of life, and may begin to listen as often as it likes.
        if carrier != Carrier::Frames {
            let beat = (self.beat + BEATS - 1) % BEATS;
            self.beats[beat].push(conn);
        }
        let targets = self.topics[topic].targets.clone();
        (key, self.topics.changes(&targets))
    }

    /// Makes a client one of those of a topic.
    fn join(&mut self, key: u32, topic: u32) {
        let (index, place) = self.topics.join(topic, key, self.now_ms);
        let subscriber = &mut self.clients[key];
        (subscriber.topic, subscriber.index, subscriber.place) = (topic, index, place);
    }

    /// Takes a client out of its topic.
    fn part(&mut self, index: u32, topic: u32, was_behind: bool) -> Changes {
        let (moved, changes) = self.topics.part(index, topic, was_behind);
        if let Some(moved) = moved {
            self.clients[moved].index = index;
        }
        changes
    }

    /// Moves a client to another topic. Returns what the shards have to learn.
    pub(super) fn move_to(&mut self, key: u32, topic: TopicKey, opening: Opening) -> Changes {
        let topic = self.topics.topic_of(topic);
        let Some(subscriber) = self.clients.get_mut(key) else { return Vec::new() };
        let (index, from, behind) = (subscriber.index, subscriber.topic, subscriber.behind);
        (subscriber.behind, subscriber.opening) = (false, Some(Box::new(opening)));
        self.end_replay(key);
        let mut before = Vec::new();
        if from != topic {
            self.join(key, topic);
            before = self.part(index, from, behind);
        } else if behind {
            self.topics[from].behind -= 1;
        }
        let targets = self.topics[topic].targets.clone();
        let mut changes = self.topics.changes(&targets);
        changes.append(&mut before);
        changes
    }

    /// Forgets a client. Returns what the shards have to learn.
    pub(super) fn remove(&mut self, key: u32) -> Changes {
        self.end_replay(key);
        let Some(gone) = self.clients.remove(key) else { return Vec::new() };
        if let Some(opening) = &gone.opening {
            self.returns.end(opening.time);
        }
        match self.topics[gone.topic].key.form.carrier {
            Carrier::Sse => self.counts.sse -= 1,
            Carrier::WebSocket => self.counts.websocket -= 1,
            Carrier::Frames => {}
        }
        self.part(gone.index, gone.topic, gone.behind)
    }

    /// A client is to be fed in its turn.
    pub(super) fn feed_in_turn(&mut self, key: u32) {
        let Some(subscriber) = self.clients.get_mut(key).filter(|one| one.behind) else { return };
        if !std::mem::replace(&mut subscriber.hungry, true) {
            self.hungry.push_back(key);
        }
    }

    /// Until when a client that came back waits for others to take what they are owed.
    pub(super) fn waits_until_ms(&self, heard: Heard) -> u64 {
        self.owed_bytes.wait_until_ms(heard.since_ms, !self.hungry.is_empty())
    }

    /// The next client that is to be fed.
    pub(super) fn next_hungry(&mut self) -> Option<u32> {
        while let Some(key) = self.hungry.pop_front() {
            let subscriber = self.clients.get_mut(key);
            if subscriber.is_some_and(|one| std::mem::take(&mut one.hungry)) {
                return Some(key);
            }
        }
        self.hungry.shrink_to(HUNGRY_KEPT_MAX);
        None
    }

    /// Whether any are left.
    pub(super) fn are_hungry(&self) -> bool {
        !self.hungry.is_empty()
    }

    /// Gives a client that came back, and whose turn it is, a place in the events of its topic.
    pub(super) fn hold_place(&mut self, key: u32) {
        let Some(subscriber) = self.clients.get_mut(key) else { return };
        let topic = &mut self.topics[subscriber.topic];
        subscriber.place = topic.buffer.end();
        // The topic keeps what happens for it.
        if !std::mem::replace(&mut subscriber.behind, true) {
            topic.behind += 1;
        }
        if let Some(back) = subscriber.opening.as_mut().and_then(|it| it.back.as_mut()) {
            back.hears_from = Some(self.position.clone());
        }
    }

    /// Looks for what a client has missed that came back, while there are looks left. True if that is known, or if it
    /// does not wait for it any more.
    pub(super) fn look_for_missed(&mut self, heard: Heard, looks_left: &mut usize) -> bool {
        let Some(subscriber) = self.clients.get_mut(heard.key) else { return true };
        let opening = subscriber.opening.as_mut().filter(|opening| opening.time == heard.time);
        let Some(back) = opening.and_then(|opening| opening.back.as_mut()) else { return true };
        let choice = &self.topics[subscriber.topic].key.choice;
        back.owed.look(choice, self.position.epoch, looks_left);
        back.owed.is_done()
    }

    /// Gives a client that came back what it has missed. Returns how many events it does not get for want of room.
    pub(super) fn begin_replay(
        &mut self,
        key: u32,
        position: Position,
        (events, bytes): (Found, usize),
    ) -> u64 {
        let Some(subscriber) = self.clients.get_mut(key) else { return 0 };
        if !self.owed_bytes.owe(bytes) {
            return events.len() as u64;
        }
        if !events.is_empty() {
            subscriber.replaying = Some(Box::new(Replaying { events, position, bytes }));
        }
        0
    }

    pub(super) fn end_replay(&mut self, key: u32) {
        let replaying = self.clients.get_mut(key).and_then(|one| one.replaying.take());
        self.owed_bytes.forgive(replaying.map_or(0, |replaying| replaying.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::super::greeting::Hello;
    use super::super::shared_buffer::SharedBuffer;
    use super::super::targets::{Target, Wanted};
    use super::super::text::Layout;
    use super::super::topics::{NAME_TOPICS_MAX, PATTERN_TOPICS_MAX, PATTERNS_MAX};
    use super::*;
    use crate::api::error::ErrorKind;

    const BUFFERS_BYTES_MAX: usize = 64 << 20;

    fn opening(time: u64) -> Opening {
        Opening::new(time, Hello::Changed)
    }

    fn key(queue: Option<&str>) -> TopicKey {
        TopicKey::new(Form::plain(Carrier::Frames), Choice::of_queue(queue))
    }

    fn insert(subscribers: &mut Subscribers, index: u32, time: u64) -> (u32, Changes) {
        let conn = ConnId { index, generation: 0 };
        subscribers.insert(conn, key(Some("q")), Arc::new(Choice::all()), opening(time))
    }

    fn is_end(changes: &Changes) -> bool {
        changes.len() == 1 && changes[0].1 == Wanted::default()
    }

    /// The fear: a list that remembers each subscription.
    #[test]
    fn a_connection_that_subscribes_again_and_again_leaves_nothing_behind() {
        let mut subscribers = Subscribers::new(BUFFERS_BYTES_MAX);
        for time in 0..10_000 {
            let (key, changes) = insert(&mut subscribers, 7, time);
            assert_eq!(changes.len(), 1);
            assert!(is_end(&subscribers.remove(key)));
        }
        let noted: usize = subscribers.beats.iter().map(Vec::len).sum();
        assert_eq!((noted, subscribers.clients.len(), subscribers.topics.choices().0), (0, 0, 0));
        assert!(subscribers.topics.targets.is_empty() && subscribers.topics.dirty.is_empty());
        assert!(subscribers.topics.by_key.is_empty() && subscribers.topics.choices_bytes == 0);
    }

    #[test]
    fn a_client_that_moves_leaves_its_topic_to_the_others_in_it() {
        let mut subscribers = Subscribers::new(BUFFERS_BYTES_MAX);
        let keys = [1, 2, 3].map(|index| insert(&mut subscribers, index, 0).0);
        let changes = subscribers.move_to(keys[0], key(None), opening(1));
        assert_eq!(changes, [(Target::Under("".into()), key(None).wanted())]);
        assert!(subscribers.remove(keys[2]).is_empty());
        let changes = subscribers.move_to(keys[1], key(None), opening(1));
        assert!(is_end(&changes) && changes[0].0 == Target::Queue("q".into()));
        assert!(subscribers.remove(keys[0]).is_empty());
        assert!(is_end(&subscribers.remove(keys[1])));
        assert_eq!((subscribers.topics.choices().0, subscribers.clients.len()), (0, 0));
    }

    /// A subscriber with a choice of its own.
    fn choose(subscribers: &mut Subscribers, choice: Choice) -> u32 {
        let form = Form { chosen: true, ..Form::plain(Carrier::Sse) };
        let conn = ConnId { index: 1, generation: 0 };
        let key = TopicKey::new(form, choice);
        let (key, _) = subscribers.insert(conn, key, Arc::new(Choice::all()), opening(0));
        subscribers.clients[key].topic
    }

    fn news(subscribers: &mut Subscribers, tally: &Tally, queue: &str, text: &[u8]) -> Taken {
        let event = EventText { text, layout: Layout::default() };
        subscribers.take_in(tally, (0, 0), queue, &event)
    }

    #[test]
    fn an_event_is_framed_once_whatever_its_topics_have_passed_over_before() {
        let (mut subscribers, tally) = (Subscribers::new(BUFFERS_BYTES_MAX), Tally::default());
        let text = vec![b' '; 900_000];
        let topics: Vec<u32> = (1..=90)
            .map(|sample| {
                let mut choice = Choice::all();
                choice.sample = sample;
                choose(&mut subscribers, choice)
            })
            .collect();
        for (number, topic) in topics.iter().enumerate() {
            subscribers.topics[*topic].passed_over = number as u64;
        }
        let taken = news(&mut subscribers, &tally, "q", &text);
        assert_eq!((subscribers.topics.framed, taken.looks), (1, 90));
        assert!((900_000..1_000_000).contains(&taken.bytes) && tally.bytes() < 1_000_000);
        // Each has it: it is in memory once, and is not too much.
        for (number, topic) in topics.iter().enumerate() {
            let mut passed = Vec::new();
            let buffer = &subscribers.topics[*topic].buffer;
            buffer.read(&mut Place::default(), 1, |passed_over, _| passed.push(passed_over));
            assert_eq!(passed, [number as u64]);
        }
    }

    #[test]
    fn what_waits_is_bounded_by_what_it_takes_and_the_oldest_go_first() {
        let (mut subscribers, tally) = (Subscribers::new(BUFFERS_BYTES_MAX), Tally::default());
        let text = vec![b' '; 1 << 20];
        let queues: Vec<String> = (0..8).map(|number| format!("q{number}")).collect();
        let topics: Vec<u32> = queues
            .iter()
            .map(|queue| choose(&mut subscribers, Choice::of_queue(Some(queue))))
            .collect();
        for _ in 0..12 {
            for queue in &queues {
                news(&mut subscribers, &tally, queue, &text);
                assert!(tally.bytes() <= BUFFERS_BYTES_MAX);
            }
        }
        assert!(tally.bytes() > BUFFERS_BYTES_MAX - (4 << 20));
        for topic in topics {
            assert!(subscribers.topics[topic].buffer.lost_at(Place::default()) >= 4);
            subscribers.topics.with_buffer(topic, SharedBuffer::clear);
        }
        assert_eq!((subscribers.topics.buffered_bytes, subscribers.topics.buffered_events), (0, 0));
        assert_eq!(tally.bytes(), 0);
    }

    #[test]
    fn patterns_are_bounded_together_and_an_event_counts_those_it_is_compared_with() {
        let (mut subscribers, tally) = (Subscribers::new(BUFFERS_BYTES_MAX), Tally::default());
        let nth = |nth: usize, count: usize| {
            let patterns: Vec<String> = (0..count).map(|n| format!("*{nth}x{n}")).collect();
            Choice::all().of_queues(patterns.iter().map(|pattern| &**pattern))
        };
        let key = |choice| TopicKey::new(Form::plain(Carrier::Frames), choice);
        let mut topics = Vec::new();
        for number in 0..PATTERNS_MAX / 100 {
            assert_eq!(subscribers.topics.room_for(&key(nth(number, 100))), Ok(()));
            topics.push(choose(&mut subscribers, nth(number, 100)));
        }
        let full = Err(ErrorKind::EventPatternsFull);
        assert_eq!(subscribers.topics.room_for(&key(nth(1000, 1))), full);
        assert_eq!(subscribers.topics.room_for(&key(Choice::of_queue(Some("q")))), Ok(()));
        let text = ErrorKind::EventPatternsFull.text();
        assert!(text.contains(&PATTERNS_MAX.to_string()), "{text}");
        let looks = news(&mut subscribers, &tally, "q", b"{}").looks;
        assert_eq!(looks, PATTERNS_MAX + PATTERNS_MAX / 100);
        let client = subscribers.topics[topics[0]].clients[0];
        subscribers.remove(client);
        assert_eq!(subscribers.topics.room_for(&key(nth(1000, 100))), Ok(()));
    }

    #[test]
    fn choices_are_bounded_where_they_meet_and_those_who_chose_nothing_are_not() {
        let mut subscribers = Subscribers::new(BUFFERS_BYTES_MAX);
        let conn = ConnId { index: 1, generation: 0 };
        let form = Form { chosen: true, ..Form::plain(Carrier::Frames) };
        let nth = |nth: usize, queue| {
            let mut choice = Choice::of_queue(queue);
            choice.sample = nth as u32 + 1;
            TopicKey::new(form, choice)
        };
        for (queue, most) in [(Some("q"), NAME_TOPICS_MAX), (None, PATTERN_TOPICS_MAX)] {
            for number in 0..most {
                let key = nth(number, queue);
                assert_eq!(subscribers.topics.room_for(&key), Ok(()));
                subscribers.insert(conn, key, Arc::new(Choice::all()), opening(0));
            }
            assert_eq!(
                subscribers.topics.room_for(&nth(most, queue)),
                Err(ErrorKind::EventChoicesFull)
            );
            assert_eq!(subscribers.topics.room_for(&nth(0, queue)), Ok(()), "it is there already");
        }
        assert_eq!(subscribers.topics.room_for(&nth(0, Some("other"))), Ok(()));
    }
}
