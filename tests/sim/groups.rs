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
    /// The rate by which jobs are counted, if the pull brings one.
    fn said(&self) -> Option<Said> {
        Some((self.active_max, self.rate.map(|rate| (rate.jobs, rate.span_ms))?))
    }
}

/// Spans of time in which jobs of groups are counted. No start remembers them.
#[derive(Default)]
pub struct Spans {
    /// By queue and group: when the span began, and how many have left in it.
    own: BTreeMap<Key, Span>,
    /// When jobs have left lately, to whatever pull.
    left: BTreeMap<Key, Vec<u64>>,
    /// The spans of rates that pulls brought, as they may be. A shard counts what leaves a group to whatever pull,
    /// from when it first looks at the group for such a rate; when that was is not known here, and so there may
    /// be several. Each has one future.
    of_pulls: BTreeMap<Key, BTreeMap<Said, Vec<Span>>>,
}

/// A queue, and a group.
type Key = (String, String);

/// When a span began, and how many have left in it, at least.
type Span = (u64, u64);

/// The limits that a pull brought, its rate as jobs and milliseconds. Which jobs it wants makes no difference.
type Said = (Option<u64>, (u64, u64));

/// A shard knows for so long what pulls say that do not come any more.
const SAID_MS: u64 = 10_000;

/// No pull brings a longer one.
const SPAN_MS_MAX: u64 = 60_000;

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

    /// Whether a job may leave to a pull that says this, by some of the spans that there may be.
    fn has_room_for_pull(&self, now_ms: u64, queue: &str, group: &str, said: &Said) -> bool {
        let of_group = self.of_pulls.get(&(queue.into(), group.into()));
        let spans = of_group.and_then(|of_group| of_group.get(said));
        spans.is_none_or(|spans| spans.iter().any(|&span| has_room(now_ms, span, said)))
    }

    /// A job leaves, `to` a pull that is bound by what it says, if it is.
    fn note_left(&mut self, now_ms: u64, key: Key, to: Option<Said>) {
        let of_group = self.of_pulls.entry(key.clone()).or_default();
        if let Some(said) = to
            && let Some(spans) = of_group.get_mut(&said)
        {
            spans.retain(|&span| has_room(now_ms, span, &said));
        }
        // A shard may have forgotten spans that it does not need, to count anew from the next pull with the same rate.
        of_group.retain(|(_, (_, span_ms)), spans| {
            let needed_ms = SAID_MS.max(*span_ms);
            !spans.is_empty() && spans.iter().all(|(began_ms, _)| began_ms + needed_ms > now_ms)
        });
        for ((_, (_, span_ms)), spans) in of_group.iter_mut() {
            for (began_ms, jobs) in spans.iter_mut() {
                if *began_ms + span_ms <= now_ms {
                    (*began_ms, *jobs) = (now_ms, 0);
                }
                *jobs += 1;
            }
            // Of two that began at once, the one with more room allows all that the other does.
            spans.sort_unstable();
            spans.dedup_by_key(|(began_ms, _)| *began_ms);
        }
        let left = self.left.entry(key).or_default();
        left.push(now_ms);
        left.retain(|at_ms| at_ms + SPAN_MS_MAX > now_ms);
        if let Some(said) = to {
            let (_, (_, span_ms)) = said;
            of_group.entry(said).or_insert_with(|| {
                let began = left.iter().filter(|&&began_ms| began_ms + span_ms > now_ms);
                let behind = |began_ms| left.iter().filter(|&&at_ms| at_ms > began_ms).count();
                began.map(|&began_ms| (began_ms, behind(began_ms) as u64 + 1)).collect()
            });
        }
    }

    /// The groups of a queue may have gone, and what was counted of them.
    fn forget_pulls(&mut self, queue: &str) {
        self.of_pulls.retain(|(name, _), _| name != queue);
    }
}

/// Whether one more job may leave in a span, or after it.
fn has_room(now_ms: u64, (began_ms, jobs): Span, (_, (most, span_ms)): &Said) -> bool {
    jobs < *most || began_ms + span_ms <= now_ms
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
        self.spans.forget_pulls(queue);
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

    /// How many of a job's group may be active for a pull.
    pub fn active_max(&self, job: &Job, waiter: &Waiter) -> Option<u64> {
        let group = job.group.as_deref()?;
        self.settings_of(&job.queue, group).active_max.or(waiter.of_groups.active_max)
    }

    /// Whether a pull may get a job for sure, as far as groups are concerned. What a rate that it brings
    /// leaves, only the shard knows; and that a span of time is over is noticed by the clock.
    pub fn may_get(&self, at: (u64, bool), waiter: &Waiter, job: &Job) -> bool {
        let Some(group) = job.group.as_deref() else { return waiter.wants(job) };
        let set = self.settings_of(&job.queue, group);
        let full = || {
            let max = self.active_max(job, waiter);
            max.is_some_and(|max| self.active_of(&job.queue, group) >= max)
        };
        let counted = match (set.rate, waiter.of_groups.rate) {
            (Some(rate), _) => !self.spans.has_room(at, &job.queue, group, rate),
            (None, of_pull) => of_pull.is_some(),
        };
        waiter.wants(job) && !set.paused && set.held_until_ms == 0 && !counted && !full()
    }

    /// Whether a pull that came earlier should have got a job that another one got.
    pub fn is_overtaken(&self, at: (u64, bool), earlier: &Waiter, by: &Waiter, job: &Job) -> bool {
        // In a call of several steps the group may have had no room for the earlier one when the job went out.
        let sure = !self.in_steps || !self.is_counted(job, earlier);
        earlier.queue == by.queue
            && (earlier.is_choosy() || !by.is_choosy())
            && sure
            && self.may_get(at, earlier, job)
    }

    /// Whether what leaves a job's group is counted for a pull.
    pub fn is_counted(&self, job: &Job, waiter: &Waiter) -> bool {
        let rate = |group| self.settings_of(&job.queue, group).rate.or(waiter.of_groups.rate);
        self.active_max(job, waiter).is_some()
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
        let max = self.active_max(job, waiter);
        self.must(Check::Group, max.is_none_or(|max| active < max), || {
            format!("{active} of the group of {job:?} are active, {max:?} may be")
        });
        let spans = &self.spans;
        let (fits, rate) = match (set.rate, waiter.of_groups.rate) {
            (Some(rate), _) => {
                (spans.has_room((now_ms, true), &job.queue, group, rate), Some(rate))
            }
            (None, rate) => {
                let said = waiter.of_groups.said();
                let fits = |said| spans.has_room_for_pull(now_ms, &job.queue, group, &said);
                (said.is_none_or(fits), rate)
            }
        };
        self.must(Check::Group, fits, || {
            format!("at {now_ms}, too fast for {rate:?} is delivered {job:?}\n  to {waiter:?}")
        });
    }

    /// A job of a group leaves.
    pub fn note_left(&mut self, now_ms: u64, waiter: &Waiter, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(group) = job.group.clone() else { return };
        let queue = job.queue.clone();
        let own = self.settings_of(&queue, &group).rate;
        let key = (queue, group);
        let to = waiter.of_groups.said().filter(|_| own.is_none());
        self.spans.note_left(now_ms, key.clone(), to);
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
