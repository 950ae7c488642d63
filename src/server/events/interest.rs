//! Which shards want to hear of what happens on this one, and which events it keeps for clients that come back.
//!
//! A target whose clients can come back is remembered for [`LINGERING_MS`] after the last of them has gone: what happens
//! meanwhile is kept. A client that comes back misses nothing if its targets were remembered without a gap, for each
//! type since a number of an event that is known, and if no event behind its own has left.

use super::dashboard_names::KINDS;
use super::kept::{Kept, KeptEvents};
use super::kinds::Kinds;
use super::targets::{ByTarget, Target, Wanted};
use super::text::About;
use std::collections::VecDeque;
use std::sync::Arc;

/// How long events are kept for clients that have gone.
pub const LINGERING_MS: u64 = 60_000;

/// Targets that are remembered without a client; beyond that the first are forgotten.
const LINGERING_MAX: usize = 10_000;

/// Targets forgotten with one event.
const FORGOTTEN_AT_ONCE: usize = 32;

/// Kept events of a target.
#[derive(Debug)]
struct Keep {
    kinds: Kinds,
    full: Kinds,
    /// For each type: the number of the last event before it was kept.
    since: [u64; KINDS],
    /// Until when, if there is no client of it.
    lingers_until_ms: Option<u64>,
}

/// Shards that hear a target, and what is kept of it.
#[derive(Debug, Default)]
struct Hearing {
    /// Shards with clients, each once.
    shards: Vec<(u16, Wanted)>,
    keep: Option<Box<Keep>>,
}

/// Who hears an event.
#[derive(Debug, Default)]
pub struct Hearers {
    /// Shards, each once.
    pub shards: Vec<u16>,
    /// Whether its data is wanted.
    pub full: bool,
    /// Whether it is kept.
    pub kept: bool,
}

impl Hearers {
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty() && !self.kept
    }
}

/// Request for the events that a client has missed.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The last event of the shard that it knows of.
    pub number: u64,
    /// The last that it is to get from what is kept: it hears those behind it.
    pub upto: u64,
    /// Targets whose events happen on the shard.
    pub targets: Arc<[Target]>,
    pub wanted: Wanted,
}

/// Events that a client has missed.
#[derive(Debug)]
pub struct Replay {
    /// Whether nothing is missing between.
    pub complete: bool,
    pub events: Vec<Arc<Kept>>,
}

/// Who wants what of this shard. Bounded by the clients that listen, and by [`LINGERING_MAX`].
#[derive(Debug)]
pub struct Interest {
    targets: ByTarget<Hearing>,
    /// Targets that linger, in the order in which they are forgotten, and some that do not any more.
    lingering: VecDeque<(u64, Target)>,
    pub kept: KeptEvents,
    /// Most events that are kept; none, if it is 0.
    pub kept_max: usize,
    /// Whether anything has been wanted that has a name of dashboards only, since the last time that nothing was
    /// wanted.
    extras: bool,
}

impl Default for Interest {
    fn default() -> Self {
        let (targets, lingering) = (ByTarget::default(), VecDeque::new());
        Self { targets, lingering, kept: KeptEvents::default(), kept_max: 0, extras: false }
    }
}

impl Interest {
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Whether anything may be wanted that has a name of dashboards only.
    pub fn has_extras(&self) -> bool {
        self.extras && !self.is_empty()
    }

    /// Whether jobs are listened to by their ids.
    pub fn has_jobs(&self) -> bool {
        self.targets.has_jobs()
    }

    /// A shard wants this of a target from now on.
    pub fn set(&mut self, now_ms: u64, shard: u16, target: &Target, wanted: Wanted) {
        let mut wanted = wanted;
        if self.kept_max == 0 {
            wanted.kept = Kinds::NONE;
        }
        self.extras = self.has_extras() || !Kinds::ALL.covers(wanted.kinds);
        let hearing = self.targets.entry(target);
        hearing.shards.retain(|(other, _)| *other != shard);
        if wanted.kinds != Kinds::NONE {
            hearing.shards.push((shard, wanted));
        }
        let all = hearing.shards.iter().fold(Wanted::default(), |all, (_, one)| all.with(*one));
        let keep = &mut hearing.keep;
        if all.kept != Kinds::NONE {
            let keep = keep.get_or_insert_with(|| {
                let since = [0; KINDS];
                let (kinds, full) = (Kinds::NONE, Kinds::NONE);
                Box::new(Keep { kinds, full, since, lingers_until_ms: None })
            });
            let begun = all.kept.without(keep.kinds);
            if begun != Kinds::NONE {
                // Events of before had no number, so one from before must not be the last.
                self.kept.skip();
            }
            for kind in begun.each() {
                keep.since[kind] = self.kept.last();
            }
            keep.kinds = keep.kinds.with(all.kept);
            keep.full = keep.full.with(all.full);
            keep.lingers_until_ms = None;
        } else if let Some(keep) = keep
            && keep.lingers_until_ms.is_none()
        {
            let until_ms = now_ms + LINGERING_MS;
            keep.lingers_until_ms = Some(until_ms);
            self.lingering.push_back((until_ms, target.clone()));
        }
        self.tidy(target);
        while self.lingering.len() > LINGERING_MAX {
            self.forget_first();
        }
    }

    /// Forgets a target that none wants anything of.
    fn tidy(&mut self, target: &Target) {
        let is_done = |one: &Hearing| one.shards.is_empty() && one.keep.is_none();
        if self.targets.get(target).is_some_and(is_done) {
            self.targets.remove(target);
        }
    }

    fn forget_first(&mut self) {
        let Some((until_ms, target)) = self.lingering.pop_front() else { return };
        if let Some(hearing) = self.targets.get_mut(&target)
            && hearing.keep.as_ref().is_some_and(|keep| keep.lingers_until_ms == Some(until_ms))
        {
            hearing.keep = None;
            self.tidy(&target);
        }
    }

    /// Forgets some of those whose time has come.
    pub fn forget_due(&mut self, now_ms: u64) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            match self.lingering.front() {
                Some((until_ms, _)) if *until_ms <= now_ms => self.forget_first(),
                _ => break,
            }
        }
        if self.is_empty() && self.kept.len() > 0 {
            self.kept.clear();
        }
    }

    /// Finds who hears an event. Returns the steps that took.
    pub fn find(&self, about: &About<'_>, hearers: &mut Hearers) -> usize {
        hearers.shards.clear();
        (hearers.full, hearers.kept) = (false, false);
        let mut steps = self.targets.lookups();
        self.targets.find(about, |hearing| {
            steps += 1 + hearing.shards.len();
            for (shard, wanted) in &hearing.shards {
                if wanted.kinds.has(about.kind) {
                    hearers.full |= wanted.full.has(about.kind);
                    if !hearers.shards.contains(shard) {
                        hearers.shards.push(*shard);
                    }
                }
            }
            if let Some(keep) = hearing.keep.as_ref().filter(|keep| keep.kinds.has(about.kind)) {
                hearers.kept = true;
                hearers.full |= keep.full.has(about.kind);
            }
        });
        steps
    }

    /// The kept events that a client has missed. Its shard may have announced its targets just before: a target that is
    /// kept only since then does not count as remembered.
    pub fn replay(&self, resume: &Resume) -> Replay {
        let Resume { number, upto, targets, wanted } = resume;
        let is_remembered = |target: &Target| {
            let keep = self.targets.get(target).and_then(|hearing| hearing.keep.as_deref());
            keep.is_some_and(|keep| {
                keep.kinds.covers(wanted.kinds)
                    && keep.full.covers(wanted.full)
                    && wanted.kinds.each().all(|kind| keep.since[kind] <= *number)
            })
        };
        let complete = self.kept.has_all_behind(*number) && targets.iter().all(is_remembered);
        Replay { complete, events: self.kept.between(*number, *upto) }
    }

    /// How many targets are remembered.
    pub fn len(&self) -> usize {
        self.targets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::{EventText, Layout};
    use super::*;

    const ALL: Wanted = Wanted { kinds: Kinds::ALL, full: Kinds::ALL, kept: Kinds::ALL };

    fn queue(name: &str) -> Target {
        Target::Queue(name.into())
    }

    fn find(interest: &Interest, queue: &str, kind: u8) -> (Vec<u16>, bool, bool) {
        let mut hearers = Hearers::default();
        interest.find(&About { queue, kind, job: b"\"\"" }, &mut hearers);
        (hearers.shards, hearers.full, hearers.kept)
    }

    fn happens(interest: &mut Interest, name: &str) {
        if find(interest, name, 0).2 {
            let event = EventText { text: b"{}", layout: Layout::default() };
            interest.kept.push(name, &event, interest.kept_max);
        }
    }

    fn resume(interest: &Interest, name: &str, number: u64) -> (bool, usize) {
        let targets = vec![queue(name)].into();
        let replay = interest.replay(&Resume { number, upto: u64::MAX, targets, wanted: ALL });
        (replay.complete, replay.events.len())
    }

    fn interest() -> Interest {
        Interest { kept_max: 100, ..Interest::default() }
    }

    #[test]
    fn a_shard_hears_what_it_wants_and_nothing_once_it_wants_nothing() {
        let mut interest = interest();
        let lean = Wanted { kinds: Kinds(1), ..Wanted::default() };
        interest.set(0, 1, &queue("q"), lean);
        interest.set(
            0,
            2,
            &Target::Under("".into()),
            Wanted { full: Kinds(2), kinds: Kinds(3), ..lean },
        );
        assert_eq!(find(&interest, "q", 0), (vec![2, 1], false, false));
        assert_eq!(find(&interest, "q", 1), (vec![2], true, false));
        assert_eq!(find(&interest, "q", 2), (vec![], false, false));
        interest.set(0, 2, &Target::Under("".into()), Wanted::default());
        interest.set(0, 1, &queue("q"), Wanted::default());
        assert!(interest.is_empty() && find(&interest, "q", 0).0.is_empty());
    }

    #[test]
    fn patterns_that_an_event_does_not_fit_are_steps_too() {
        let mut interest = interest();
        for length in 1..=100 {
            interest.set(0, 1, &Target::Under("b".repeat(length).into()), ALL);
        }
        let steps =
            |queue| interest.find(&About { queue, kind: 0, job: b"x" }, &mut Hearers::default());
        assert_eq!(steps(&"a".repeat(256)), 100);
    }

    #[test]
    fn who_comes_back_in_time_misses_nothing_and_who_comes_late_is_not_told_otherwise() {
        let mut interest = interest();
        interest.set(0, 1, &queue("q"), ALL);
        happens(&mut interest, "q");
        interest.set(10, 1, &queue("q"), Wanted::default());
        happens(&mut interest, "q");
        happens(&mut interest, "other");
        assert_eq!(resume(&interest, "q", 2), (true, 1));
        assert_eq!(resume(&interest, "other", 2), (false, 1), "it was not listened to");
        interest.forget_due(10 + LINGERING_MS - 1);
        assert_eq!(resume(&interest, "q", 2), (true, 1));
        // A target that is wanted again is not forgotten.
        interest.set(20, 2, &queue("q"), ALL);
        interest.forget_due(10 + LINGERING_MS);
        assert_eq!(resume(&interest, "q", 2), (true, 1));
        interest.set(30, 2, &queue("q"), Wanted::default());
        interest.forget_due(30 + LINGERING_MS);
        assert_eq!((resume(&interest, "q", 2), interest.is_empty()), ((false, 0), true));
    }

    #[test]
    fn a_type_that_was_not_kept_then_is_no_part_of_a_whole_replay() {
        let mut interest = interest();
        let first = Wanted { kinds: Kinds(1), full: Kinds::NONE, kept: Kinds(1) };
        interest.set(0, 1, &queue("q"), first);
        happens(&mut interest, "q");
        interest.set(0, 1, &queue("q"), ALL);
        happens(&mut interest, "q");
        assert_eq!(resume(&interest, "q", 1), (false, 2));
        assert_eq!(resume(&interest, "q", 3), (true, 1));
        assert_eq!(resume(&interest, "q", 5), (false, 0), "a number that never was");
    }

    /// The fear: a client that was away while none listened has the number of the last event that was kept.
    #[test]
    fn what_is_kept_only_since_then_is_not_taken_for_remembered() {
        let mut interest = interest();
        interest.set(0, 1, &queue("q"), ALL);
        happens(&mut interest, "q");
        let before = interest.kept.last();
        assert_eq!(resume(&interest, "q", before), (true, 0));
        interest.set(0, 1, &queue("q"), Wanted::default());
        interest.forget_due(LINGERING_MS);
        happens(&mut interest, "q");
        interest.set(LINGERING_MS, 1, &queue("q"), ALL);
        assert_eq!(resume(&interest, "q", before), (false, 0));
        assert_eq!(resume(&interest, "q", interest.kept.last()), (true, 0));
    }

    #[test]
    fn targets_without_clients_are_bounded_and_without_the_setting_nothing_is_kept() {
        let mut interest = interest();
        for number in 0..LINGERING_MAX + 5 {
            let target = Target::Job(number.to_string().into_bytes().into());
            interest.set(0, 1, &target, ALL);
            interest.set(0, 1, &target, Wanted::default());
        }
        assert_eq!(interest.len(), LINGERING_MAX);
        let mut none = Interest::default();
        none.set(0, 1, &queue("q"), ALL);
        assert_eq!(find(&none, "q", 0), (vec![1], true, false));
    }
}
