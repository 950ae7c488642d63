//! Which queues the registered workers of a shard work on, and what the owners of these queues know of it: an owner
//! learns when a queue gets its first worker here and when it loses its last.
//!
//! A registration can name many queues, and a connection that closes can end many registrations. So both halves are
//! sliced: registrations are counted in and out a slice per turn, in their order, and messages to owner shards go out a slice per
//! turn, of which no more than [`IN_FLIGHT_MAX`] names wait to be read by them. What has yet to be sent is kept by
//! name: a queue whose workers come and go in between makes one message or none.

use crate::protocol::msgpack::writer::Writer;
use crate::protocol::msgpack::{Reader, Texts};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Names that a turn counts, and names that it tells.
pub const SLICE: usize = 500;

/// Names that owners may have yet to read.
const IN_FLIGHT_MAX: usize = 2000;

/// Names that may wait to be counted. A command that brings more of them counts as many as it brings.
const UNCOUNTED_MAX: usize = 20_000;

/// A registration to be counted in, or out.
#[derive(Debug)]
struct Move {
    /// Its queues: a MessagePack array of strings.
    queues: Arc<[u8]>,
    /// Where the next name begins, and how many there are from there on.
    at: usize,
    left: usize,
    came: bool,
}

/// A queue that has workers here, or of which its owner believes so.
#[derive(Debug, Default)]
struct Worked {
    workers: u32,
    /// What the owner shard knows: whether there is a worker.
    announced: bool,
    /// Its place among the queues whose change has yet to be sent.
    change: Option<u64>,
}

/// The workers of each queue, and what has yet to be said of them.
#[derive(Debug, Default)]
pub struct WorkerPresence {
    moves: VecDeque<Move>,
    /// Names in `moves`.
    uncounted: usize,
    queues: BTreeMap<Arc<str>, Worked>,
    /// Queues whose change has yet to be sent, oldest change first.
    changes: BTreeMap<u64, Arc<str>>,
    next_change: u64,
    /// Names that owners have been sent and have not read.
    in_flight: usize,
}

impl WorkerPresence {
    /// A worker of these queues is there from now on, or no longer.
    pub fn note(&mut self, queues: &Arc<[u8]>, came: bool) {
        let mut reader = Reader::new(queues);
        let left = reader.array().ok().flatten().unwrap_or(0);
        if left > 0 {
            let at = queues.len() - reader.rest().len();
            self.uncounted += left;
            self.moves.push_back(Move { queues: queues.clone(), at, left, came });
        }
    }

    /// Names that have yet to be counted, and queues whose change has yet to be sent.
    pub fn waiting(&self) -> usize {
        self.uncounted + self.changes.len()
    }

    /// Names that have yet to be counted.
    pub fn uncounted(&self) -> usize {
        self.uncounted
    }

    /// After a command before which so many names were uncounted: if too many are, counts as many as it has brought.
    /// Returns how many.
    pub fn count_excess(&mut self, uncounted_before: usize) -> usize {
        self.count(self.uncounted.saturating_sub(uncounted_before.max(UNCOUNTED_MAX)))
    }

    /// Counts so many names, or all. Returns how many.
    pub fn count(&mut self, names: usize) -> usize {
        let mut counted = 0;
        while counted < names
            && let Some(front) = self.moves.front_mut()
        {
            let (queues, came) = (front.queues.clone(), front.came);
            let mut reader = Reader::new(&queues[front.at..]);
            // The names were checked when the command was decoded.
            let name = reader.text().ok().flatten();
            front.at = queues.len() - reader.rest().len();
            front.left -= 1;
            if front.left == 0 {
                self.moves.pop_front();
            }
            self.uncounted -= 1;
            counted += 1;
            if let Some(name) = name {
                self.count_one(name, came);
            }
        }
        counted
    }

    fn count_one(&mut self, name: &str, came: bool) {
        if !self.queues.contains_key(name) {
            self.queues.insert(name.into(), Worked::default());
        }
        let Some(queue) = self.queues.get_mut(name) else { return };
        queue.workers = if came { queue.workers + 1 } else { queue.workers.saturating_sub(1) };
        let is_there = queue.workers > 0;
        if is_there == queue.announced {
            if let Some(place) = queue.change.take() {
                self.changes.remove(&place);
            }
            if !is_there {
                self.queues.remove(name);
            }
        } else if queue.change.is_none() {
            queue.change = Some(self.next_change);
            if let Some((name, _)) = self.queues.get_key_value(name) {
                self.changes.insert(self.next_change, name.clone());
            }
            self.next_change += 1;
        }
    }

    /// The next change to send: the queue, and whether it has a worker; none while owner shards have too many unread.
    pub fn next_change(&mut self) -> Option<(Arc<str>, bool)> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        let (_, name) = self.changes.pop_first()?;
        let queue = self.queues.get_mut(&name)?;
        queue.change = None;
        queue.announced = queue.workers > 0;
        let came = queue.announced;
        if !came {
            self.queues.remove(&name);
        }
        self.in_flight += 1;
        Some((name, came))
    }

    /// Owners have read so many names.
    pub fn note_read(&mut self, names: usize) {
        self.in_flight -= names;
    }

    /// Whether a turn has something to do for it.
    pub fn has_left(&self) -> bool {
        !self.moves.is_empty() || !self.changes.is_empty() && self.in_flight < IN_FLIGHT_MAX
    }
}

#[cfg(test)]
impl WorkerPresence {
    /// All changes that are sent until none is left, to owner shards that read each at once.
    pub fn announce_all(&mut self) -> Vec<(String, bool)> {
        let mut announced = Vec::new();
        while self.has_left() {
            self.count(SLICE);
            while let Some((name, came)) = self.next_change() {
                announced.push((name.to_string(), came));
            }
            self.note_read(self.in_flight);
        }
        announced
    }
}

/// The names of an array of strings in their order, each once.
pub fn each_once(names: Texts<'_>) -> Arc<[u8]> {
    let mut seen = BTreeSet::new();
    let kept: Vec<&str> = names.iter().filter(|name| seen.insert(*name)).collect();
    if kept.len() == names.len() {
        return names.raw().into();
    }
    let mut bytes = Vec::with_capacity(names.raw().len());
    let mut writer = Writer::new(&mut bytes);
    writer.array(kept.len());
    for name in kept {
        writer.str(name);
    }
    bytes.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn array(names: &[String]) -> Arc<[u8]> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.array(names.len());
        for name in names {
            writer.str(name);
        }
        bytes.into()
    }

    fn names(count: usize, first: usize) -> Vec<String> {
        (first..first + count).map(|n| format!("queue-{n}")).collect()
    }

    #[test]
    fn owners_hear_of_the_first_worker_of_a_queue_and_of_the_last() {
        let mut presence = WorkerPresence::default();
        let (one, both) = (array(&["a".into()]), array(&["b".into(), "a".into()]));
        presence.note(&one, true);
        assert_eq!(presence.announce_all(), [("a".into(), true)]);
        presence.note(&both, true);
        assert_eq!(presence.announce_all(), [("b".into(), true)]);
        presence.note(&one, false);
        assert_eq!(presence.announce_all(), []);
        presence.note(&both, false);
        assert_eq!(presence.announce_all(), [("b".into(), false), ("a".into(), false)]);
        assert!(presence.queues.is_empty() && presence.changes.is_empty());
    }

    #[test]
    fn a_worker_that_registers_again_and_again_is_no_news_to_owners() {
        let mut presence = WorkerPresence::default();
        let queues = array(&names(1000, 0));
        presence.note(&queues, true);
        assert_eq!(presence.announce_all().len(), 1000);
        for _ in 0..100 {
            presence.note(&queues, false);
            presence.note(&queues, true);
            presence.count(usize::MAX);
        }
        assert_eq!((presence.waiting(), presence.queues.len()), (0, 1000));
        assert!(!presence.has_left());
    }

    /// The fear: workers that come and go faster than owners read make the shard remember all that ever were.
    #[test]
    fn queues_that_come_and_go_unseen_are_not_remembered() {
        let mut presence = WorkerPresence::default();
        for round in 0..100 {
            let queues = array(&names(1000, round * 1000));
            presence.note(&queues, true);
            presence.count(usize::MAX);
            (0..SLICE).for_each(|_| _ = presence.next_change());
            presence.note(&queues, false);
            presence.count(usize::MAX);
            assert!(presence.in_flight <= IN_FLIGHT_MAX, "{}", presence.in_flight);
            let most = IN_FLIGHT_MAX + SLICE;
            assert!(presence.waiting() <= most, "{}", presence.waiting());
            assert!(presence.queues.len() <= most, "{}", presence.queues.len());
        }
        presence.note_read(presence.in_flight);
        assert!(presence.announce_all().iter().all(|(_, came)| !came), "all have gone");
        assert!(presence.queues.is_empty() && presence.changes.is_empty());
    }

    #[test]
    fn names_are_kept_once_and_in_their_order() {
        let given = array(&["b".into(), "a".into(), "b".into(), "c".into(), "a".into()]);
        let kept = each_once(Texts::new(&given));
        assert_eq!(Texts::new(&kept).iter().collect::<Vec<_>>(), ["b", "a", "c"]);
        assert_eq!(each_once(Texts::new(&kept)), kept);
    }
}
