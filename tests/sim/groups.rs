//! Groups of jobs in the model: what is set for each, and which jobs a pull may get. Whose turn it is among
//! groups is not checked here; that no group gives more than it may, and none is forgotten, is.

use super::check::Check;
use super::job_rules::Moment;
use super::model::{Job, Model, Old, State, Waiter};
use corq_shards::Shard;
use corq_shards::group::{GroupRate, GroupSettings};
use corq_shards::job::id::JobId;
use corq_shards::log_record::settings::Grouped;
use std::collections::BTreeMap;

/// Names of groups that jobs belong to.
pub const GROUPS: &[&str] = &["g", "h", "i"];

/// Which jobs a pull wants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Wanted {
    #[default]
    Any,
    Ungrouped,
    Group(String),
}

/// Wishes of a pull about groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfGroups {
    pub active_max: Option<u64>,
    pub rate: Option<GroupRate>,
    pub wanted: Wanted,
}

impl OfGroups {
    /// The limits that a pull says for all groups of its queue, if it says any.
    fn said(&self) -> Option<Said> {
        let said = (self.active_max, self.rate);
        (self.wanted != Wanted::Ungrouped && said != (None, None)).then_some(said)
    }
}

/// Spans of time in which jobs of groups are counted. No start remembers them.
#[derive(Default)]
pub struct Spans {
    /// By queue and group: when the span began, and how many have left in it.
    own: BTreeMap<Key, Span>,
    /// The spans of the rates that pulls said last, as they may be: what a shard does not need by the rate of the moment, it
    /// may have forgotten or not, and a longer rate shows which. Each has one future.
    of_pulls: BTreeMap<Key, Vec<Span>>,
}

/// A queue, and a group.
type Key = (String, String);

/// When a span began, and how many have left in it, at least.
type Span = (u64, u64);

/// The limits that pulls of a queue said last.
pub type Said = (Option<u64>, Option<GroupRate>);

/// A span in which nothing has left.
const EMPTY: Span = (0, 0);

/// The spans of a group of which nothing was counted.
const UNCOUNTED: &[Span] = &[EMPTY];

impl Spans {
    fn note(&mut self, now_ms: u64, key: (String, String), rate: GroupRate) {
        let (began_ms, jobs) = self.own.entry(key).or_insert((now_ms, 0));
        if *jobs == 0 || *began_ms + rate.span_ms <= now_ms {
            (*began_ms, *jobs) = (now_ms, 0);
        }
        *jobs += 1;
    }

    /// `at`: the time, and whether it is known to have come.
    fn has_room(&self, at: (u64, bool), queue: &str, group: &str, rate: GroupRate) -> bool {
        let (now_ms, by_clock) = at;
        let (began_ms, jobs) =
            self.own.get(&(queue.into(), group.into())).copied().unwrap_or_default();
        jobs < rate.jobs || by_clock && began_ms + rate.span_ms <= now_ms
    }

    fn of_pulls(&self, queue: &str, group: &str) -> &[Span] {
        self.of_pulls.get(&(queue.into(), group.into())).map_or(UNCOUNTED, Vec::as_slice)
    }

    /// A job leaves while pulls say this rate. `bound`: its group is bound by that.
    fn note_left(&mut self, now_ms: u64, key: Key, rate: GroupRate, bound: bool) {
        let spans = self.of_pulls.entry(key).or_insert_with(|| vec![EMPTY]);
        if bound && spans.iter().any(|&span| has_room(now_ms, span, rate)) {
            spans.retain(|&span| has_room(now_ms, span, rate));
        }
        for (began_ms, jobs) in spans.iter_mut() {
            if *jobs == 0 || *began_ms + rate.span_ms <= now_ms {
                (*began_ms, *jobs) = (now_ms, 0);
            }
            *jobs += 1;
        }
        spans.sort_unstable();
        spans.dedup();
    }

    /// The spans of a queue that are over by a rate, or all of them, may be forgotten from now on.
    fn may_forget(&mut self, now_ms: u64, queue: &str, rate: Option<GroupRate>) {
        for (_, spans) in self.of_pulls.iter_mut().filter(|((name, _), _)| name == queue) {
            if spans.iter().any(|&span| rate.is_none_or(|rate| !goes_on(now_ms, span, rate))) {
                spans.push(EMPTY);
                spans.sort_unstable();
                spans.dedup();
            }
        }
    }

    /// Whether some group of a queue must be known for what has left it.
    fn must_linger(&self, now_ms: u64, queue: &str, rate: GroupRate) -> bool {
        let mut of_queue = self.of_pulls.iter().filter(|((name, _), _)| name == queue);
        of_queue.any(|(_, spans)| spans.iter().all(|&span| goes_on(now_ms, span, rate)))
    }
}

fn goes_on(now_ms: u64, (began_ms, jobs): Span, rate: GroupRate) -> bool {
    jobs > 0 && began_ms + rate.span_ms > now_ms
}

/// Whether one more job may leave in a span, or after it.
fn has_room(now_ms: u64, span: Span, rate: GroupRate) -> bool {
    span.1 < rate.jobs || !goes_on(now_ms, span, rate)
}

impl Waiter {
    fn wants(&self, job: &Job) -> bool {
        match &self.of_groups.wanted {
            Wanted::Any => true,
            Wanted::Ungrouped => job.group.is_none(),
            Wanted::Group(group) => job.group.as_ref() == Some(group),
        }
    }

    /// Whether it waits for the jobs of one group: such pulls go first, since they can get no others.
    fn is_choosy(&self) -> bool {
        matches!(self.of_groups.wanted, Wanted::Group(_))
    }
}

impl Model {
    pub fn settings_of(&self, queue: &str, group: &str) -> GroupSettings {
        let key = (queue.to_string(), group.to_string());
        self.groups.get(&key).copied().unwrap_or_default()
    }

    pub fn set_group(&mut self, queue: &str, group: &str, settings: GroupSettings) {
        let key = (queue.to_string(), group.to_string());
        let old = self.settings_of(queue, group);
        self.keep(Old::Group(key.clone(), old));
        // A rate that is said again is no new span of time.
        if settings.rate != old.rate {
            self.spans.own.remove(&key);
        }
        if settings == GroupSettings::default() {
            self.groups.remove(&key);
        } else {
            self.groups.insert(key, settings);
        }
    }

    /// A change of what is set for a group is lost. `cut`: only perhaps, as `shard` shows.
    pub fn undo_group(
        &mut self,
        key: &(String, String),
        old: GroupSettings,
        cut: bool,
        shard: &mut Shard,
    ) {
        let found =
            shard.group(&key.0, &key.1).map_or_else(GroupSettings::default, |it| it.settings);
        if !cut || found == old {
            self.set_group(&key.0, &key.1, old);
        }
    }

    /// All that was set for groups of a queue is taken back.
    pub fn clear_groups(&mut self, queue: &str) {
        self.spans.may_forget(0, queue, None);
        let of_queue = self.groups.keys().filter(|(name, _)| name == queue);
        let groups: Vec<String> = of_queue.map(|(_, group)| group.clone()).collect();
        for group in groups {
            self.set_group(queue, &group, GroupSettings::default());
        }
    }

    /// The shard says what is set for a group: as it was told, or because a time is over.
    pub fn follow_group(&mut self, at: &Moment<'_>, grouped: &Grouped<'_>) {
        let before = self.settings_of(grouped.queue, grouped.group);
        if before == grouped.settings {
            return;
        }
        let over = before.held_until_ms > 0 && before.held_until_ms <= at.now_ms;
        let expected = GroupSettings { held_until_ms: 0, ..before };
        self.must(Check::Group, over && grouped.settings == expected, || {
            format!("{grouped:?} at {}, after {before:?}", at.now_ms)
        });
        self.set_group(grouped.queue, grouped.group, grouped.settings);
    }

    fn active_of(&self, queue: &str, group: &str) -> u64 {
        let active = |job: &&Job| {
            job.group.as_deref() == Some(group) && matches!(job.state, State::Active(_))
        };
        self.of_queue(queue).filter(active).count() as u64
    }

    /// A pull says limits for the groups of its queue: the last word counts.
    pub fn hear_limits(&mut self, queue: &str, of_groups: &OfGroups) {
        if let Some(said) = of_groups.said() {
            self.said.insert(queue.into(), said);
        }
    }

    /// Follows the shard where it forgets what pulls have said: with the last group of a queue, unless a pull waits.
    pub fn follow_limits(&mut self, at: &Moment<'_>) {
        for (queue, said) in self.said.clone() {
            let found = at.shard.limits_of_pulls(&queue);
            if found == said {
                self.spans.may_forget(at.now_ms, &queue, said.1);
                continue;
            }
            // Pulls that wait at an obliterated queue come to the new one by and by.
            let moves = !self.bulk_operations.is_empty();
            let awaited = !moves && self.waiters.iter().any(|waiter| waiter.queue == queue);
            let set = self.groups.keys().any(|(name, _)| *name == queue);
            let lingers =
                said.1.is_some_and(|rate| self.spans.must_linger(at.now_ms, &queue, rate));
            let goes = found == (None, None) && !awaited && !set && !lingers;
            self.must(Check::Group, goes, || {
                format!("pulls of {queue} said {said:?}, and the shard knows {found:?}")
            });
            self.said.remove(&queue);
            self.spans.of_pulls.retain(|(name, _), _| *name != queue);
        }
    }

    fn said_of(&self, queue: &str) -> Said {
        self.said.get(queue).copied().unwrap_or_default()
    }

    /// How many of a job's group may be active.
    pub fn active_max(&self, job: &Job) -> Option<u64> {
        let group = job.group.as_deref()?;
        self.settings_of(&job.queue, group).active_max.or(self.said_of(&job.queue).0)
    }

    /// Whether a pull may get a job for sure, as far as groups are concerned. That a span of time is over is noticed by the
    /// clock.
    pub fn may_get(&self, at: (u64, bool), waiter: &Waiter, job: &Job) -> bool {
        let Some(group) = job.group.as_deref() else { return waiter.wants(job) };
        let set = self.settings_of(&job.queue, group);
        let full = || {
            let max = self.active_max(job);
            max.is_some_and(|max| self.active_of(&job.queue, group) >= max)
        };
        let counted = match (set.rate, self.said_of(&job.queue).1) {
            (Some(rate), _) => !self.spans.has_room(at, &job.queue, group, rate),
            (None, Some(rate)) => {
                let known_ms = if at.1 { at.0 } else { 0 };
                let mut spans = self.spans.of_pulls(&job.queue, group).iter();
                !spans.all(|&span| has_room(known_ms, span, rate))
            }
            (None, None) => false,
        };
        waiter.wants(job) && !set.paused && set.held_until_ms == 0 && !counted && !full()
    }

    /// Whether a pull that came earlier should have got a job that another one got.
    pub fn is_overtaken(&self, at: (u64, bool), earlier: &Waiter, by: &Waiter, job: &Job) -> bool {
        // In a call of several steps the group may have had no room for the earlier one when the job went out.
        let sure = !self.in_steps || !self.is_counted(job);
        earlier.queue == by.queue
            && (earlier.is_choosy() || !by.is_choosy())
            && sure
            && self.may_get(at, earlier, job)
    }

    /// Whether what leaves a job's group is counted.
    pub fn is_counted(&self, job: &Job) -> bool {
        let rate = |group| self.settings_of(&job.queue, group).rate.or(self.said_of(&job.queue).1);
        self.active_max(job).is_some()
            || job.group.as_deref().is_some_and(|group| rate(group).is_some())
    }

    /// The job that a pull gets is one that its group may give.
    pub fn check_group(&self, now_ms: u64, waiter: &Waiter, job: &Job) {
        self.must(Check::Group, waiter.wants(job), || format!("{waiter:?} gets {job:?}"));
        let Some(group) = job.group.as_deref() else { return };
        let set = self.settings_of(&job.queue, group);
        self.must(Check::Group, !set.paused && set.held_until_ms <= now_ms, || {
            format!("{job:?} is delivered at {now_ms} although {set:?}")
        });
        let active = self.active_of(&job.queue, group);
        let max = self.active_max(job);
        self.must(Check::Group, max.is_none_or(|max| active < max), || {
            format!("{active} of the group of {job:?} are active, {max:?} may be")
        });
        let spans = &self.spans;
        let (fits, rate) = match (set.rate, self.said_of(&job.queue).1) {
            (Some(rate), _) => {
                (spans.has_room((now_ms, true), &job.queue, group, rate), Some(rate))
            }
            (None, Some(rate)) => {
                let mut spans = spans.of_pulls(&job.queue, group).iter();
                (spans.any(|&span| has_room(now_ms, span, rate)), Some(rate))
            }
            (None, None) => (true, None),
        };
        self.must(Check::Group, fits, || {
            format!("at {now_ms}, too fast for {rate:?} is delivered {job:?}\n  to {waiter:?}")
        });
    }

    /// A job of a group leaves.
    pub fn note_left(&mut self, now_ms: u64, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(group) = job.group.clone() else { return };
        let queue = job.queue.clone();
        let own = self.settings_of(&queue, &group).rate;
        let of_pulls = self.said_of(&queue).1;
        let key = (queue, group);
        if let Some(rate) = of_pulls {
            self.spans.note_left(now_ms, key.clone(), rate, own.is_none());
        }
        if let Some(rate) = own {
            self.spans.note(now_ms, key, rate);
        }
    }

    /// Checks the groups of a shard against the model.
    pub fn compare_groups(&self, shard: &mut Shard) {
        // Settings of groups of an obliterated queue are gone for clients at once, and go in slices.
        let of_named = shard.queues().filter(|queue| !queue.detached);
        let of_named: u64 = of_named.map(corq_shards::queue::Queue::groups_with_settings).sum();
        let all = shard.holdings().group_settings;
        let set = if self.bulk_operations.is_empty() { all } else { of_named };
        self.must(Check::Group, set == self.groups.len() as u64, || {
            format!("{set} groups have settings, not {:?}", self.groups)
        });
        for ((queue, group), settings) in &self.groups {
            let found = shard.group(queue, group).map(|it| it.settings);
            self.must(Check::Group, found == Some(*settings), || {
                format!("{group} of {queue}: {found:?}, not {settings:?}")
            });
        }
        let queues: Vec<String> = shard.queues().map(|queue| queue.name.to_string()).collect();
        for (queue, group) in
            queues.iter().flat_map(|queue| GROUPS.iter().map(move |group| (queue.as_str(), *group)))
        {
            let of_group = |job: &&Job| job.group.as_deref() == Some(group);
            let is_pending = |job: &&Job| matches!(job.state, State::Waiting | State::Delayed);
            let pending = self.of_queue(queue).filter(of_group).filter(is_pending).count() as u64;
            let expected = (pending, self.active_of(queue, group));
            let found = shard.group(queue, group).map_or((0, 0), |it| (it.pending, it.active));
            self.must(Check::Counters, found == expected, || {
                format!("{group} of {queue} counts {found:?}, not {expected:?}")
            });
        }
    }

    /// When the first hold of a group ends.
    pub fn next_end_of_hold(&self) -> Option<u64> {
        let ends = self.groups.values().map(|set| set.held_until_ms);
        ends.filter(|&until_ms| until_ms > 0).min()
    }
}
