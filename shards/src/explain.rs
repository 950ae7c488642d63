//! Why a job does not run now: all that is in its way, and when it may start. Changes nothing, and its work is bounded,
//! whatever there is of jobs, groups and priorities: what is counted is counted up to [`LOOKS_MAX`], and says so.
//!
//! Which words clients see stands in `docs/protocol.md`, "Why a job does not run".

use crate::dead_letter::reason::Cause;
pub use crate::group::blocks::Block;
use crate::job::id::JobId;
use crate::job::recurrence::{KeptRecurrence, Recurrence};
use crate::job::{State, flags};
use crate::lease::backoff::backoff_ms;
use crate::queue::Queue;
use crate::shard::Shard;

/// Neighbours that are looked at on each side to count jobs, and leases to find the active ones of a queue.
pub const LOOKS_MAX: usize = 1024;

/// Parts of the order of all jobs that are counted to estimate a place: of some hundred jobs each.
const CHUNKS_MAX: usize = 8192;

/// Jobs that are named.
pub const NAMED_MAX: usize = 20;

/// Minutes whose ended jobs tell how fast a queue goes.
const RATE_MINUTES: u64 = 5;

/// Why a job is delayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay<'a> {
    /// The job was pushed, or put off, with a delay.
    Asked,
    /// The job waits between two attempts.
    Backoff {
        /// How many have failed.
        attempt: u16,
    },
    /// The job is the next run of one that repeats.
    Repeat {
        /// How often.
        every_ms: u64,
    },
    /// The job is a run of one that repeats by an expression, and the first run waits for its time as well.
    Pattern {
        /// The expression.
        pattern: &'a str,
        /// The zone in which it is read.
        timezone: Option<&'a str>,
    },
}

/// How many jobs go before a waiting one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// How many, or at least how many.
    pub count: u64,
    /// Whether it is all of them.
    pub exact: bool,
    /// About how many, where that is not known.
    pub about: u64,
    /// The groups that take turns, if its job is in one: those before it are of its own group then.
    pub groups: Option<u64>,
}

/// A cause that keeps a job from running, or that will end its life.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason<'a> {
    /// The job's queue is paused.
    QueuePaused,
    /// The job's group gives no job.
    Group {
        /// The group.
        name: &'a str,
        /// Why that is.
        block: Block,
        /// How many of its jobs workers have.
        active: u64,
    },
    /// The job's queue has given as many jobs as its rate lets it.
    Rate {
        /// How many.
        jobs: u32,
        /// In which time.
        span_ms: u32,
        /// When the next may leave.
        next_ms: u64,
    },
    /// As many jobs of its queue are active as may be.
    Concurrency {
        /// How many.
        max: u32,
        /// How many there are.
        active: u64,
        /// Some of these.
        jobs: Vec<JobId>,
    },
    /// The job's time has not come.
    Delayed {
        /// When it comes.
        until_ms: u64,
        /// Why that is.
        why: Delay<'a>,
    },
    /// The job waits for other jobs.
    Dependencies {
        /// For how many.
        count: usize,
        /// Some of them, and whether each is its child.
        jobs: Vec<(JobId, bool)>,
    },
    /// Other jobs go first.
    JobsBefore(Before),
    /// No worker takes jobs of its queue.
    NoWorker,
    /// A worker has it.
    Leased {
        /// The name under which it was pulled, if that is known.
        owner: Option<&'a str>,
        /// Whether the worker has a token.
        locked: bool,
        /// When it was pulled.
        since_ms: u64,
        /// When it stalls without a sign of life; `None` for never.
        until_ms: Option<u64>,
        /// When the attempt has lasted too long.
        timeout_at_ms: Option<u64>,
    },
    /// The job is removed at this time if it has not started by then.
    Expires {
        /// When that is.
        at_ms: u64,
    },
    /// The job was completed.
    Completed {
        /// When that is.
        at_ms: u64,
    },
    /// The job is in the dead-letter queue.
    Failed {
        /// Since when.
        at_ms: u64,
        /// Why that is.
        cause: Cause,
        /// When it is tried anew by itself.
        retries_at_ms: Option<u64>,
        /// When it is removed by itself.
        expires_at_ms: Option<u64>,
    },
    /// The job's queue was obliterated, and the job is yet to be removed.
    Obliterated,
    /// Nothing is in its way: the next pull gets it.
    Next,
}

/// All that is in the way of a job, and when it may start.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation<'a> {
    /// Where it stands.
    pub state: State,
    /// All that is in its way.
    pub reasons: Vec<Reason<'a>>,
    /// Jobs that left its queue in a second, of the last minutes.
    pub per_second: Option<f64>,
    /// When it starts, if nothing changes, as far as that can be known.
    pub starts_at_ms: Option<u64>,
}

impl Shard {
    /// Explains a job, by the index that [`Shard::find`] gave.
    pub fn explain(&self, now_ms: u64, index: u32) -> Explanation<'_> {
        let job = &self.jobs.slab[index];
        let queue = &self.queues[job.queue];
        let mut reasons = Vec::new();
        if queue.detached {
            reasons.push(Reason::Obliterated);
        }
        match job.state {
            State::Completed | State::Failed => reasons.extend(self.how_it_ended(now_ms, index)),
            State::Active => reasons.push(self.hold_on(index)),
            State::WaitingChildren => reasons.extend(self.unmet_of(index)),
            State::Delayed => {
                let why = self.delay_of(now_ms, index);
                reasons.push(Reason::Delayed { until_ms: job.run_at_ms, why });
            }
            State::Waiting | State::Vacant => {}
        }
        if matches!(job.state, State::Waiting | State::Delayed | State::WaitingChildren) {
            self.add_reasons_of_queue(now_ms, index, &mut reasons);
            let expires_at_ms = self.jobs.options_of(index).map_or(0, |has| has.expires_at_ms);
            if expires_at_ms > 0 {
                reasons.push(Reason::Expires { at_ms: expires_at_ms });
            }
        }
        let in_the_way = |reason: &Reason<'_>| !matches!(reason, Reason::Expires { .. });
        if job.state == State::Waiting && !reasons.iter().any(in_the_way) {
            reasons.insert(0, Reason::Next);
        }
        let rate = rate_of(queue, now_ms);
        let starts_at_ms = self.start_of(now_ms, index, &reasons, rate);
        let per_second = rate.map(|(jobs, ms)| jobs as f64 * 1000.0 / ms as f64);
        Explanation { state: job.state, reasons, per_second, starts_at_ms }
    }

    fn how_it_ended(&self, now_ms: u64, index: u32) -> Option<Reason<'_>> {
        let outcome = self.jobs.outcome_of(index)?;
        let at_ms = outcome.finished_at_ms;
        Some(match self.jobs.slab[index].state {
            State::Completed => Reason::Completed { at_ms },
            _ => Reason::Failed {
                at_ms,
                cause: outcome.cause,
                retries_at_ms: self.redelivers_at_ms(now_ms, index),
                expires_at_ms: self.burial_expires_at_ms(index),
            },
        })
    }

    fn hold_on(&self, index: u32) -> Reason<'_> {
        let place = self.jobs.slab[index].detail;
        let lease = &self.leases[place];
        let known = |at_ms: u64| (at_ms < u64::MAX).then_some(at_ms);
        Reason::Leased {
            owner: self.owners.name(lease.owner),
            locked: lease.token.is_some(),
            since_ms: lease.started_at_ms,
            until_ms: known(self.hold_ends_ms(place)),
            timeout_at_ms: known(self.times_out_ms(place)),
        }
    }

    fn unmet_of(&self, index: u32) -> Option<Reason<'_>> {
        let unmet = &self.jobs.options_of(index)?.unmet;
        // Dependencies that are met stay in the row, so few are looked at beyond those that are named.
        let mut jobs = Vec::new();
        let mut place = 0;
        while jobs.len() < NAMED_MAX
            && let Some((at, one)) = unmet.behind(place)
        {
            jobs.push((one.id, one.child));
            place = at + 1;
        }
        Some(Reason::Dependencies { count: unmet.len(), jobs })
    }

    fn delay_of(&self, now_ms: u64, index: u32) -> Delay<'_> {
        let job = &self.jobs.slab[index];
        let options = self.jobs.options_of(index);
        if job.attempts > 0 {
            let extras = options.and_then(|options| options.extras.as_deref());
            let wait_ms = match extras {
                Some(extras) => extras.backoff_ms(job.backoff_ms, job.attempts, job.id),
                None => backoff_ms(job.backoff_ms, job.attempts, job.id),
            };
            // A longer wait was asked for after the attempt.
            if job.run_at_ms.saturating_sub(now_ms) <= wait_ms {
                return Delay::Backoff { attempt: job.attempts };
            }
        }
        // A run that was put off since is late because of that.
        let series = options.and_then(|options| options.series.as_deref());
        let series = series.filter(|it| job.attempts == 0 && it.due_ms == job.run_at_ms);
        let Some(series) = series else { return Delay::Asked };
        match series.recurrence.as_deref().map(KeptRecurrence::given) {
            Some(Recurrence { pattern: Some(pattern), timezone, .. }) => {
                Delay::Pattern { pattern, timezone }
            }
            _ if series.count > 0 => Delay::Repeat { every_ms: series.every_ms },
            _ => Delay::Asked,
        }
    }

    fn add_reasons_of_queue<'a>(&'a self, now_ms: u64, index: u32, reasons: &mut Vec<Reason<'a>>) {
        let job = &self.jobs.slab[index];
        let queue = &self.queues[job.queue];
        if queue.is_paused() {
            reasons.push(Reason::QueuePaused);
        }
        if let (Some(group), Some(rotation)) = (self.group_of(index), queue.groups.as_deref()) {
            let about = &self.groups.slab[group];
            let blocks = self.groups.blocks(rotation, now_ms, group).into_iter();
            reasons.extend(blocks.map(|block| Reason::Group {
                name: &about.name,
                block,
                active: u64::from(about.active),
            }));
        }
        if let Some(limits) = queue.limits.as_deref() {
            let next_ms = limits.given_ms(now_ms, 1);
            if let Some(rate) = limits.rate().filter(|_| next_ms > now_ms) {
                let (jobs, span_ms) = (rate.jobs, rate.span_ms);
                reasons.push(Reason::Rate { jobs, span_ms, next_ms });
            }
            let active = queue.count(State::Active);
            if let Some(max) = limits.active_max().filter(|&max| active >= u64::from(max)) {
                let jobs = self.active_of(job.queue);
                reasons.push(Reason::Concurrency { max, active, jobs });
            }
        }
        if job.state == State::Waiting {
            let before = self.before(index);
            if before.count > 0 || before.about > 0 {
                reasons.push(Reason::JobsBefore(before));
            }
        }
        if !self.has_worker(now_ms, job.queue) {
            reasons.push(Reason::NoWorker);
        }
    }

    /// Some active jobs of a queue: those among the first leases.
    fn active_of(&self, queue: u32) -> Vec<JobId> {
        let leases =
            (0..self.leases.end().min(4 * LOOKS_MAX as u32)).map(|at| self.leases.peek(at));
        let held = leases.filter(|lease| lease.job != crate::collections::slab::NONE);
        let own = held.map(|lease| &self.jobs.slab[lease.job]).filter(|job| job.queue == queue);
        own.take(NAMED_MAX).map(|job| job.id).collect()
    }

    /// How many jobs go before a waiting one.
    fn before(&self, index: u32) -> Before {
        let job = &self.jobs.slab[index];
        let queue = &self.queues[job.queue];
        let rotation = queue.groups.as_deref();
        if let (Some(group), Some(rotation)) = (self.group_of(index), rotation) {
            let lane = &self.groups.slab[group].lane;
            let (count, exact) = lane.ahead(&self.jobs.slab, index, LOOKS_MAX);
            // Jobs without a group go first, then each group gives one in its turn.
            let groups = rotation.runnable.len() as u64;
            let plain = queue.count(State::Waiting).saturating_sub(rotation.waiting);
            let about = plain.saturating_add(count.saturating_mul(groups.max(1)));
            return Before { count, exact, about, groups: Some(groups) };
        }
        let ahead = queue.ready.ahead(&self.jobs.slab, index, LOOKS_MAX);
        if ahead.exact {
            let (count, exact, about) = (ahead.count, true, ahead.count);
            return Before { count, exact, about, groups: None };
        }
        // Jobs that wait are mostly the newest ones of a queue, so those behind it nearly all wait as well.
        let behind =
            queue.push_order.count_behind(&self.jobs, self.jobs.order_of(index), CHUNKS_MAX);
        let waiting = queue.count(State::Waiting).saturating_sub(1);
        let about =
            if job.has(flags::LIFO) { behind.min(waiting) } else { waiting.saturating_sub(behind) };
        let about = about.max(ahead.count);
        Before { count: ahead.count, exact: false, about, groups: None }
    }

    /// When a job starts, if nothing changes.
    fn start_of(
        &self,
        now_ms: u64,
        index: u32,
        reasons: &[Reason<'_>],
        rate: Option<(u64, u64)>,
    ) -> Option<u64> {
        let job = &self.jobs.slab[index];
        if !matches!(job.state, State::Waiting | State::Delayed) {
            return None;
        }
        let mut at_ms = now_ms.max(job.run_at_ms);
        let mut before = 0;
        for reason in reasons {
            match reason {
                // Only an event ends these, and no one knows when.
                Reason::QueuePaused
                | Reason::NoWorker
                | Reason::Obliterated
                | Reason::Group { block: Block::Paused, .. } => return None,
                Reason::Group {
                    block: Block::Held { until_ms } | Block::Rate { until_ms, .. },
                    ..
                } => at_ms = at_ms.max(*until_ms),
                Reason::JobsBefore(ahead) => before = ahead.about,
                _ => {}
            }
        }
        let queue = &self.queues[job.queue];
        if job.state == State::Delayed {
            // Jobs that wait now go first, but for those of lower priorities: few queues have any.
            before = queue.count(State::Waiting);
        }
        let held_up = reasons.iter().any(|reason| {
            let of_group = matches!(reason, Reason::Group { block: Block::Active { .. }, .. });
            of_group || matches!(reason, Reason::Concurrency { .. })
        });
        if before > 0 || held_up {
            let (jobs, ms) = rate?;
            let turns = u128::from(before + u64::from(held_up)) * u128::from(ms);
            let wait_ms = u64::try_from(turns / u128::from(jobs.max(1))).unwrap_or(u64::MAX);
            at_ms = at_ms.max(now_ms.saturating_add(wait_ms));
        }
        if let Some(limits) = queue.limits.as_deref() {
            at_ms = at_ms.max(limits.given_ms(now_ms, before.saturating_add(1)));
        }
        let expires_at_ms = self.jobs.options_of(index).map_or(0, |has| has.expires_at_ms);
        (expires_at_ms == 0 || at_ms < expires_at_ms).then_some(at_ms)
    }
}

/// How many jobs left the workers of a queue lately, and in which time.
fn rate_of(queue: &Queue, now_ms: u64) -> Option<(u64, u64)> {
    let kinds = queue.done.iter().filter_map(|done| done.lately(now_ms, RATE_MINUTES));
    kinds.reduce(|one, other| (one.0 + other.0, one.1.max(other.1)))
}
