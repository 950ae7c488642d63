//! Topics: clients that have made the same choice, in the same form.
//!
//! They share a buffer, which holds what they have not all got yet, and one look at each event. A long event is sent from
//! where the buffer has it, so however many listen, it is in memory once.
//!
//! What an event costs is bounded by the topics that it finds: [`NAME_TOPICS_MAX`] of its queue and of its job,
//! [`PATTERN_TOPICS_MAX`] of patterns, with [`PATTERNS_MAX`] patterns together. It is framed once for each form. Topics of
//! those who have chosen nothing do not count, and are never refused.

use super::choice::{Choice, Verdict};
use super::kinds::Kinds;
use super::position::Position;
use super::shared_buffer::{BUFFER_BYTES_MAX, EVENT_BYTES, Form, Place, SharedBuffer};
use super::targets::{ByTarget, Target, Wanted};
use super::text::EventText;
use crate::api::error::ErrorKind;
use crate::server::numbered::Entries;
use corq_io::net::{Shared, Tally};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Most choices of a shard that differ and concern the same queue, or the same job.
pub(super) const NAME_TOPICS_MAX: usize = 100;

/// Most choices of a shard that differ and concern queues by patterns, or all.
pub(super) const PATTERN_TOPICS_MAX: usize = 1000;

/// Most patterns of all choices of a shard together: one event may have to be compared with each.
pub(super) const PATTERNS_MAX: usize = 5000;

/// Most bytes of all choices of a shard.
const CHOICES_BYTES_MAX: usize = 16 << 20;

/// The choice of a topic's clients, and the form of their events.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TopicKey {
    pub(super) form: Form,
    pub(super) choice: Arc<Choice>,
}

impl TopicKey {
    pub(super) fn new(form: Form, choice: Choice) -> Self {
        Self { form, choice: Arc::new(choice) }
    }

    pub(super) fn wanted(&self) -> Wanted {
        let Self { form, choice } = self;
        let kinds_if = |it| if it { choice.kinds } else { Kinds::NONE };
        Wanted { kinds: choice.kinds, full: kinds_if(form.data), kept: kinds_if(form.ids) }
    }
}

/// Clients that listen to the same.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) key: TopicKey,
    pub(super) targets: Arc<[Target]>,
    pub(super) buffer: SharedBuffer,
    pub(super) clients: Vec<u32>,
    /// How many of them have not got all there is.
    pub(super) behind: usize,
    /// Tells it from an earlier one at the same place.
    pub(super) serial: u64,
    /// Whether there is news that not all have been offered, and whether some are being offered news.
    pub(super) dirty: bool,
    pub(super) fed: bool,
    /// The last event that it was looked at for.
    seen: u64,
    /// Events that were passed over since the last one that was not.
    pub(super) passed_over: u64,
}

impl Topic {
    fn new(key: TopicKey, serial: u64) -> Self {
        Self {
            targets: key.choice.targets().into(),
            key,
            buffer: SharedBuffer::default(),
            clients: Vec::new(),
            behind: 0,
            serial,
            dirty: false,
            fed: false,
            seen: 0,
            passed_over: 0,
        }
    }

    /// Whether those who are not behind have all there is.
    fn is_done(&self) -> bool {
        self.clients.is_empty() || self.behind == 0 && !self.dirty && !self.fed
    }

    fn has_patterns(&self) -> bool {
        self.key.form.chosen && self.targets.iter().any(|one| matches!(one, Target::Under(_)))
    }
}

/// Topics of one target.
#[derive(Debug, Default)]
pub(super) struct Listening {
    topics: Vec<u32>,
    /// The last `Wanted` that the shards were sent.
    told: Wanted,
}

/// Cost of handing out an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Taken {
    /// Topics that were looked at, and comparisons with their patterns.
    pub(super) looks: usize,
    /// Bytes that were put into the form that goes out.
    pub(super) bytes: usize,
}

/// Targets with the new `Wanted` that the shards have to learn.
pub(super) type Changes = Vec<(Target, Wanted)>;

/// A topic whose clients are being fed, from the last to the first: a client that leaves gives its place to the
/// last one, which has been fed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) topic: u32,
    pub(super) serial: u64,
    pub(super) left: usize,
}

/// The topics of a shard, what was chosen, and their buffers.
#[derive(Debug, Default)]
pub(super) struct Topics {
    /// Bytes of all shared buffers beyond which the oldest events of all go.
    buffers_bytes_max: usize,
    entries: Entries<Box<Topic>>,
    /// A tree: what clients listen to comes and goes, and none of it moves at once.
    pub(super) by_key: BTreeMap<TopicKey, u32>,
    pub(super) targets: ByTarget<Listening>,
    /// Topics with patterns that clients have chosen.
    with_patterns: usize,
    /// Patterns of all choices.
    patterns: usize,
    /// Bytes of all choices.
    pub(super) choices_bytes: usize,
    /// Events that were looked at.
    looked_at: u64,
    /// Topics that the event under way finds.
    found: Vec<u32>,
    /// Topics with new events, with their serials.
    pub(super) dirty: Vec<(u32, u64)>,
    /// Topics whose clients are being fed.
    pub(super) rounds: VecDeque<Round>,
    /// Buffers with events, by the stamp of their oldest.
    oldest: BTreeMap<u64, u32>,
    /// Events and topics so far.
    stamps: u64,
    /// The bytes of all events, in shared buffers and on their way out, each once.
    pub(super) tally: Option<Tally>,
    /// Bytes of all shared buffers, those of an event counted in each of them.
    pub(super) buffered_bytes: usize,
    /// Places that they take there.
    pub(super) buffered_events: usize,
    /// Events that have found a topic.
    pub(super) events: u64,
    /// Events that were put into the form that goes out.
    pub(super) framed: u64,
}

impl Topics {
    /// None, whose buffers together may have so many bytes.
    pub(super) fn new(buffers_bytes_max: usize) -> Self {
        Self { buffers_bytes_max, ..Self::default() }
    }

    pub(super) fn get(&self, topic: u32) -> Option<&Topic> {
        self.entries.get(topic).map(|topic| &**topic)
    }

    /// How many choices differ, their patterns, and their bytes.
    pub(super) fn choices(&self) -> (usize, usize, usize) {
        (self.entries.len(), self.patterns, self.choices_bytes)
    }

    /// An event of a queue, for the topics that it finds. `position` is where this shard is with it.
    pub(super) fn take_in(
        &mut self,
        tally: &Tally,
        position: &Position,
        queue: &str,
        event: &EventText<'_>,
    ) -> Taken {
        let about = event.about(queue);
        let mut found = std::mem::take(&mut self.found);
        self.targets.find(&about, |listening| found.extend_from_slice(&listening.topics));
        let mut taken = Taken { looks: found.len(), bytes: 0 };
        self.looked_at += 1;
        self.events += u64::from(!found.is_empty());
        let (mut id, mut framed) = (None, Vec::<(Form, Shared)>::new());
        for key in found.drain(..) {
            let topic = &mut self.entries[key];
            if std::mem::replace(&mut topic.seen, self.looked_at) == self.looked_at {
                continue;
            }
            taken.looks += topic.key.choice.comparisons();
            match topic.key.choice.judge(&about, position.epoch) {
                Verdict::Other => continue,
                Verdict::PassedOver => {
                    topic.passed_over += 1;
                    continue;
                }
                Verdict::Wanted => {}
            }
            let (form, passed_over) = (topic.key.form, std::mem::take(&mut topic.passed_over));
            let bytes = match framed.iter().find(|known| known.0 == form) {
                Some((_, bytes)) => bytes.clone(),
                None => {
                    let id = form.ids.then(|| &**id.get_or_insert_with(|| position.text()));
                    let bytes = form.share(event, id.unwrap_or_default(), tally);
                    self.framed += 1;
                    taken.bytes += bytes.bytes().len();
                    framed.push((form, bytes.clone()));
                    bytes
                }
            };
            self.push(key, passed_over, bytes);
            self.keep_bound(tally);
        }
        self.found = found;
        taken
    }

    /// Drops the oldest events of all while there are too many bytes of them. What the buffers have in common is in memory
    /// once: neither what each of them counts nor what is on its way out as well shows alone that it is too much.
    fn keep_bound(&mut self, tally: &Tally) {
        while self.buffered_bytes > self.buffers_bytes_max
            && tally.bytes() + self.buffered_events * EVENT_BYTES > self.buffers_bytes_max
            && let Some((_, &topic)) = self.oldest.first_key_value()
        {
            self.with_buffer(topic, SharedBuffer::drop_oldest);
        }
    }

    fn push(&mut self, topic: u32, passed_over: u64, event: Shared) {
        self.stamps += 1;
        let stamp = self.stamps;
        self.with_buffer(topic, |buffer| {
            buffer.push(stamp, passed_over, event);
            while buffer.bytes() > BUFFER_BYTES_MAX {
                buffer.drop_oldest();
            }
        });
        self.mark_dirty(topic);
    }

    /// Has all clients of a topic be fed.
    fn mark_dirty(&mut self, key: u32) {
        let topic = &mut self.entries[key];
        if !std::mem::replace(&mut topic.dirty, true) {
            self.dirty.push((key, topic.serial));
        }
    }

    /// Changes a shared buffer, and what is known of all of them.
    pub(super) fn with_buffer(&mut self, topic: u32, change: impl FnOnce(&mut SharedBuffer)) {
        let buffer = &mut self.entries[topic].buffer;
        let (oldest, bytes, events) = (buffer.oldest(), buffer.bytes(), buffer.len());
        change(buffer);
        self.buffered_events = self.buffered_events - events + buffer.len();
        self.buffered_bytes = self.buffered_bytes - bytes + buffer.bytes();
        if buffer.oldest() != oldest {
            if let Some(stamp) = oldest {
                self.oldest.remove(&stamp);
            }
            if let Some(stamp) = buffer.oldest() {
                self.oldest.insert(stamp, topic);
            }
        }
    }

    /// Forgets the events of a shared buffer that all its clients have.
    pub(super) fn clear_if_done(&mut self, topic: u32) {
        if self.entries[topic].is_done() {
            self.with_buffer(topic, SharedBuffer::clear);
        }
    }

    /// The topic that is meant, if it is still that one.
    pub(super) fn known(&mut self, key: u32, serial: u64) -> Option<&mut Topic> {
        self.entries.get_mut(key).map(|topic| &mut **topic).filter(|topic| topic.serial == serial)
    }

    /// All clients whose topics have news are offered it.
    pub(super) fn begin_rounds(&mut self) {
        for (key, serial) in std::mem::take(&mut self.dirty) {
            let Some(topic) = self.known(key, serial) else { continue };
            topic.dirty = false;
            topic.fed = true;
            let left = topic.clients.len();
            self.rounds.push_back(Round { topic: key, serial, left });
        }
    }

    /// The first of those rounds is over.
    pub(super) fn end_round(&mut self) {
        let Some(Round { topic: key, serial, .. }) = self.rounds.pop_front() else { return };
        let Some(topic) = self.known(key, serial) else { return };
        topic.fed = false;
        self.clear_if_done(key);
    }

    /// Whether there is room for a choice.
    pub(super) fn room_for(&self, key: &TopicKey) -> Result<(), ErrorKind> {
        if self.by_key.contains_key(key) {
            return Ok(());
        }
        let targets = key.choice.targets();
        let is_full = |target: &Target| match target {
            Target::Under(_) => self.with_patterns >= PATTERN_TOPICS_MAX,
            Target::Queue(_) | Target::Job(_) => {
                let listening = self.targets.get(target);
                listening.is_some_and(|listening| listening.topics.len() >= NAME_TOPICS_MAX)
            }
        };
        let patterns = key.choice.patterns();
        if patterns > 0 && self.patterns + patterns > PATTERNS_MAX {
            return Err(ErrorKind::EventPatternsFull);
        }
        let bytes = self.choices_bytes + key.choice.bytes();
        if targets.iter().any(is_full) || bytes > CHOICES_BYTES_MAX {
            return Err(ErrorKind::EventChoicesFull);
        }
        Ok(())
    }

    /// The topic of those who listen to this, which begins with the first of them.
    pub(super) fn topic_of(&mut self, key: TopicKey) -> u32 {
        if let Some(&topic) = self.by_key.get(&key) {
            return topic;
        }
        self.stamps += 1;
        let topic = Topic::new(key.clone(), self.stamps);
        self.with_patterns += usize::from(topic.has_patterns());
        self.patterns += key.choice.patterns();
        self.choices_bytes += key.choice.bytes();
        let targets = topic.targets.clone();
        let topic = self.entries.insert(Box::new(topic));
        for target in &*targets {
            self.targets.entry(target).topics.push(topic);
        }
        self.by_key.insert(key, topic);
        topic
    }

    /// The changes of these targets that the shards have to learn; forgets targets without topics.
    pub(super) fn changes(&mut self, targets: &[Target]) -> Changes {
        let mut changes = Vec::new();
        for target in targets {
            let Some(listening) = self.targets.get_mut(target) else { continue };
            let topics = listening.topics.iter().filter_map(|topic| self.entries.get(*topic));
            let wanted = topics.fold(Wanted::default(), |all, one| all.with(one.key.wanted()));
            let is_over = listening.topics.is_empty();
            if std::mem::replace(&mut listening.told, wanted) != wanted {
                changes.push((target.clone(), wanted));
            }
            if is_over {
                self.targets.remove(target);
            }
        }
        changes
    }

    /// Takes a client in. Those who have been there hear now what was passed over so far. Returns its index among them,
    /// and where it begins in the buffer.
    pub(super) fn join(&mut self, topic: u32, client: u32, now_ms: u64) -> (u32, Place) {
        let one = &mut self.entries[topic];
        let index = one.clients.len() as u32;
        let passed_over = std::mem::take(&mut one.passed_over);
        let form = one.key.form;
        if passed_over > 0
            && let Some(tally) = self.tally.clone()
        {
            let mut notice = Vec::new();
            form.write_passed_over(&mut notice, passed_over, now_ms);
            self.push(topic, 0, tally.share(notice));
        }
        let one = &mut self.entries[topic];
        one.clients.push(client);
        (index, one.buffer.end())
    }

    /// Takes a client out, whose place the last one gets: returns that one, and what the shards have to learn.
    pub(super) fn part(
        &mut self,
        index: u32,
        topic: u32,
        was_behind: bool,
    ) -> (Option<u32>, Changes) {
        let one = &mut self.entries[topic];
        one.clients.swap_remove(index as usize);
        one.behind -= usize::from(was_behind);
        let moved = one.clients.get(index as usize).copied();
        self.clear_if_done(topic);
        if !self.entries[topic].clients.is_empty() {
            return (moved, Vec::new());
        }
        let Some(gone) = self.entries.remove(topic) else { return (moved, Vec::new()) };
        self.with_patterns -= usize::from(gone.has_patterns());
        self.patterns -= gone.key.choice.patterns();
        self.choices_bytes -= gone.key.choice.bytes();
        self.by_key.remove(&gone.key);
        for target in &*gone.targets {
            if let Some(listening) = self.targets.get_mut(target) {
                listening.topics.retain(|other| *other != topic);
            }
        }
        (moved, self.changes(&gone.targets))
    }
}

impl Index<u32> for Topics {
    type Output = Topic;
    fn index(&self, topic: u32) -> &Topic {
        &self.entries[topic]
    }
}

impl IndexMut<u32> for Topics {
    fn index_mut(&mut self, topic: u32) -> &mut Topic {
        &mut self.entries[topic]
    }
}
