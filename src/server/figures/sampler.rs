//! State of the shard that gathers samples: what the viewers of each shard want, and how far the sample under way is.
//!
//! A ground type: of the server it imports what is said about figures only.

use super::messages::{BusyRow, Seen, Wanted};
use super::sample::{QUEUES, Rows, SNAPSHOT, STATS, Sample};
use corq_shards::stats::Census;

/// Time between two samples at least, however many viewers come.
const PAUSE_MS: u64 = 250;

/// Lists of queues of tokens that one sample is about. If viewers have tokens with more of them, they take turns.
pub const SCOPES_MAX: usize = 32;

/// Queues in a snapshot for dashboards.
pub const SNAPSHOT_QUEUES_MAX: usize = 1000;

/// Gathers samples.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Wishes of the viewers of each shard.
    of_shards: Vec<Wanted>,
    /// Wishes of all viewers together.
    wanted: Wanted,
    /// Wishes that the sample under way serves, which may be fewer than there are by now.
    asked: Wanted,
    /// Where the lists of queues of the next one begin.
    next_scope: usize,
    /// The number of the last sample, and the answers to it, by shard.
    round: u32,
    parts: Vec<Option<Box<Seen>>>,
    /// Answers that are still to come.
    left: usize,
    next_ms: u64,
    last_ms: u64,
}

impl Sampler {
    /// The viewers of a shard want this from now on, and one of them may have just come: it does not wait for long.
    pub fn note(&mut self, shard: u16, wanted: Wanted, is_new: bool) {
        let place = usize::from(shard);
        if self.of_shards.len() <= place {
            self.of_shards.resize(place + 1, Wanted::default());
        }
        self.of_shards[place] = wanted;
        self.wanted = Wanted::default();
        for wanted in &self.of_shards {
            self.wanted.add(wanted);
        }
        if is_new {
            self.next_ms = self.next_ms.min(self.last_ms + PAUSE_MS);
        }
    }

    /// When the next sample is due.
    pub fn next_ms(&self) -> u64 {
        if self.wanted.every_ms == 0 || self.left > 0 { u64::MAX } else { self.next_ms }
    }

    /// Begins a sample of so many shards. Says its number, and what it has to have.
    pub fn begin(&mut self, now_ms: u64, shards: usize) -> (u32, Wanted) {
        self.round = self.round.wrapping_add(1);
        self.last_ms = now_ms;
        self.next_ms = now_ms + self.wanted.every_ms;
        self.parts = (0..shards).map(|_| None).collect();
        self.left = shards;
        let (all, most) = (self.wanted.scopes.len(), self.wanted.scopes.len().min(SCOPES_MAX));
        let turn = (self.next_scope..).take(most).map(|at| self.wanted.scopes[at % all]);
        let scopes = turn.collect();
        let Wanted { every_ms, what, top, .. } = self.wanted;
        self.next_scope = (self.next_scope + most).checked_rem(all).unwrap_or(0);
        self.asked = Wanted { every_ms, what, top, scopes };
        (self.round, self.asked.clone())
    }

    /// A part has come. True if it was the last.
    pub fn take(&mut self, shard: u16, round: u32, seen: Box<Seen>) -> bool {
        if round != self.round || self.left == 0 {
            return false;
        }
        let Some(part) = self.parts.get_mut(usize::from(shard)) else { return false };
        self.left -= usize::from(part.is_none());
        *part = Some(seen);
        self.left == 0
    }

    /// Puts a sample together. `write_stats` writes the row of the server.
    pub fn end(&mut self, now_ms: u64, write_stats: impl FnOnce(&Census, &mut Vec<u8>)) -> Sample {
        let Wanted { what, top, scopes, .. } = std::mem::take(&mut self.asked);
        let mut sample = Sample { at_ms: now_ms, what, top, ..Sample::default() };
        let mut census = Census::default();
        let (mut queues, mut listed) = (Vec::new(), Vec::new());
        let mut scoped = vec![Vec::new(); scopes.len()];
        for seen in std::mem::take(&mut self.parts).into_iter().flatten() {
            let Seen { census: share, row, queues: busiest, scoped: own, snapshot } = *seen;
            census += share;
            queues.extend(busiest);
            for (all, some) in scoped.iter_mut().zip(own) {
                all.extend(some);
            }
            listed.extend(snapshot.queues);
            sample.snapshot.workers += snapshot.workers;
            sample.snapshot.attending += snapshot.attending;
            sample.snapshot.crons += snapshot.crons;
            if !row.is_empty() {
                sample.shards.push(&row);
            }
        }
        if what & STATS > 0 {
            let mut row = Vec::new();
            write_stats(&census, &mut row);
            sample.stats.push(&row);
        }
        let top = top as usize;
        if what & QUEUES > 0 {
            sample.queues = busiest_of(queues, top);
        }
        let scoped = scopes.into_iter().zip(scoped);
        sample.scoped = scoped.map(|(own, rows)| (own, busiest_of(rows, top))).collect();
        if what & SNAPSHOT > 0 {
            listed.sort_by(busier);
            for (_, entry) in listed.into_iter().take(SNAPSHOT_QUEUES_MAX) {
                sample.snapshot.push_queue(&entry);
            }
        }
        sample
    }

    /// The shards that have viewers.
    pub fn watching(&self) -> impl Iterator<Item = usize> {
        let shards = self.of_shards.iter().enumerate();
        shards.filter(|(_, wanted)| wanted.every_ms > 0).map(|(shard, _)| shard)
    }
}

fn busier(one: &BusyRow, other: &BusyRow) -> std::cmp::Ordering {
    other.0.total_cmp(&one.0)
}

fn busiest_of(mut queues: Vec<BusyRow>, most: usize) -> Rows {
    queues.sort_by(busier);
    let mut rows = Rows::default();
    for (_, row) in queues.into_iter().take(most) {
        rows.push(&row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::access::QueuePatterns;

    fn wanted(every_ms: u64) -> Wanted {
        Wanted { every_ms, what: QUEUES, top: 2, scopes: Vec::new() }
    }

    /// The fear: with more lists of queues than a sample is about, some viewers never get one.
    #[test]
    fn lists_of_queues_of_tokens_take_turns_once_there_are_too_many() {
        let mut sampler = Sampler::default();
        let mut all = wanted(1000);
        for number in 0..SCOPES_MAX + 5 {
            let one = QueuePatterns::new([format!("{number}.*")].into_iter());
            all.add_scope(Box::leak(Box::new(one)));
        }
        sampler.note(0, all.clone(), true);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            let (round, asked) = sampler.begin(0, 1);
            assert_eq!(asked.scopes.len(), SCOPES_MAX);
            seen.extend(asked.scopes.iter().map(ToString::to_string));
            sampler.take(0, round, Box::default());
            assert_eq!(sampler.end(0, |_, _| {}).scoped.len(), SCOPES_MAX);
        }
        assert_eq!(seen.len(), SCOPES_MAX + 5);
        sampler.note(0, Wanted { scopes: all.scopes[..1].to_vec(), ..wanted(1000) }, false);
        assert_eq!(sampler.begin(0, 1).1.scopes.len(), 1);
    }

    #[test]
    fn while_no_one_watches_nothing_is_due() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.next_ms(), u64::MAX);
        sampler.note(1, wanted(5000), true);
        assert!(sampler.next_ms() <= 10_000);
        sampler.begin(10_000, 2);
        assert_eq!(sampler.next_ms(), u64::MAX, "one at a time");
        sampler.note(1, Wanted::default(), false);
        assert!(!sampler.take(0, 1, Box::default()));
        assert!(sampler.take(1, 1, Box::default()));
        assert_eq!(sampler.next_ms(), u64::MAX);
        assert_eq!(sampler.watching().count(), 0);
    }

    #[test]
    fn viewers_that_come_all_the_time_make_no_more_samples_than_there_may_be() {
        let mut sampler = Sampler::default();
        let mut samples = 0;
        for now_ms in 100_000..110_000 {
            sampler.note(0, wanted(60_000), true);
            if sampler.next_ms() <= now_ms {
                let (round, _) = sampler.begin(now_ms, 1);
                sampler.take(0, round, Box::default());
                samples += 1;
            }
        }
        assert!(samples <= 10_000 / PAUSE_MS, "{samples}");
    }

    #[test]
    fn the_busiest_queues_of_all_shards_come_first_and_as_many_as_are_wanted() {
        let mut sampler = Sampler::default();
        sampler.note(0, wanted(1000), true);
        let (round, _) = sampler.begin(0, 2);
        let seen = |queues: &[(f64, &str)]| {
            let queues = queues.iter().map(|(busy, row)| (*busy, row.as_bytes().into()));
            Box::new(Seen { queues: queues.collect(), ..Seen::default() })
        };
        assert!(!sampler.take(1, round.wrapping_sub(1), seen(&[(99.0, "x")])), "of another one");
        assert!(!sampler.take(1, round, seen(&[(5.0, "b"), (1.0, "d")])));
        assert!(sampler.take(0, round, seen(&[(7.0, "a"), (2.0, "c")])));
        let sample = sampler.end(0, |_, _| unreachable!("the server's figures are not wanted"));
        let mut expected = Rows::default();
        for row in ["a", "b"] {
            expected.push(row.as_bytes());
        }
        assert_eq!(format!("{:?}", sample.queues), format!("{expected:?}"));
    }
}
