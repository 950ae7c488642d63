//! A schedule: what it is made of, when it runs next, and what its jobs are pushed with.

use crate::collections::slab::NONE;
use crate::command::CronStanding;
use crate::cron::expression::Plan;
use crate::job::new_job::NewJob;
use crate::log_record::Record;
use crate::log_record::cron::{CronRules, CronSet, job_of_template};
use crate::log_record::location::LogRef;

/// A run that is later than this, because the machine was stopped or the shard could not keep up, is passed over like those
/// that fell due while the server was down, unless the schedule makes up for them.
pub const LATE_MS_MAX: u64 = 10_000;

/// Bytes that the record of the end of a schedule takes beside what it says.
const END_BYTES: u64 = 16;

/// A schedule of jobs that are pushed by the clock.
#[derive(Debug)]
pub struct Cron {
    /// Name of the schedule, unique on the server. Empty: a free entry.
    pub name: Box<str>,
    /// Where its jobs go.
    pub queue: Box<str>,
    /// The payload of its jobs, kept in memory: a run must not wait for the disk.
    pub data: Box<[u8]>,
    /// The expression, if it has one.
    pub schedule: Option<Box<str>>,
    /// The interval, if it has one.
    pub repeat_every_ms: Option<u64>,
    /// The zone, as given.
    pub timezone: Option<Box<str>>,
    /// Priority of its jobs.
    pub priority: i32,
    /// Runs after which it ends.
    pub runs_max: Option<u64>,
    /// Runs so far.
    pub executions: u64,
    /// Times it has been set; the higher of two schedules of one name is the true one.
    pub version: u64,
    /// Time of the next run, in milliseconds since the epoch.
    pub next_run_ms: u64,
    /// Further fields that jobs are pushed with, encoded as in [`CronSet::template`].
    pub(crate) template: Box<[u8]>,
    /// By which rules it runs.
    pub rules: CronRules,
    /// The record that set it, or told all of it since.
    pub(crate) set_in: LogRef,
    pub(super) plan: Plan,
    /// On its way to another shard: it runs no more here.
    pub(super) held: bool,
    /// A run was due when too many were or when there was no room for its job, and its time has been put off: that is
    /// kept for it.
    pub(super) put_off: bool,
    /// A run is due and waits for room.
    pub(super) lacks_room: bool,
    pub(super) timer: u32,
}

impl Default for Cron {
    fn default() -> Self {
        Self {
            name: Box::default(),
            queue: Box::default(),
            data: Box::default(),
            schedule: None,
            repeat_every_ms: None,
            timezone: None,
            priority: 0,
            runs_max: None,
            executions: 0,
            version: 0,
            next_run_ms: 0,
            template: Box::default(),
            rules: CronRules::default(),
            set_in: LogRef::default(),
            plan: Plan::default(),
            held: false,
            put_off: false,
            lacks_room: false,
            timer: NONE,
        }
    }
}

/// Decodes [`Cron::template`]: what jobs are pushed with.
pub fn job_of(template: &[u8]) -> NewJob<'_> {
    // No template is malformed: each was read when it was set.
    job_of_template(template).unwrap_or_default()
}

impl Cron {
    /// As a record sets it.
    pub(super) fn of(set: &CronSet<'_>, plan: Plan, stored: LogRef) -> Self {
        Self {
            name: set.name.into(),
            queue: set.queue.into(),
            data: set.data.into(),
            schedule: set.schedule.map(Into::into),
            repeat_every_ms: set.repeat_every_ms,
            timezone: set.timezone.map(Into::into),
            priority: set.priority,
            runs_max: set.runs_max,
            executions: set.executions,
            version: set.version,
            next_run_ms: set.next_run_ms,
            template: set.template.into(),
            rules: set.rules,
            set_in: stored,
            plan,
            ..Self::default()
        }
    }

    /// The run after the one at `due_ms`: on its cadence, after `after_ms`, and not sooner than runs may follow each
    /// other. One that was set when they might follow sooner leaves some out.
    pub(super) fn next_after(
        &self,
        due_ms: u64,
        after_ms: u64,
        interval_min_ms: u64,
    ) -> Option<u64> {
        let soonest_ms = match self.plan {
            Plan::Every(_) => due_ms.saturating_add(interval_min_ms.saturating_sub(1)),
            Plan::At(..) => due_ms,
        };
        self.plan.next(due_ms, after_ms.max(soonest_ms))
    }

    /// When the next run is to be instead, if it is further away than any rule of this schedule puts it, or at a time
    /// that its expression does not name by the rules of its zone, which may have been others when it was set.
    pub(super) fn replanned_ms(&self, now_ms: u64) -> Option<u64> {
        // Clocks are set back by this much all the time: a run that has been is not to come again.
        let soon_ms = now_ms.saturating_add(LATE_MS_MAX);
        let next_run_ms = match self.repeat_every_ms {
            Some(every_ms) => {
                // On its cadence.
                let every_ms = every_ms.max(1);
                let further_ms = self.next_run_ms.checked_sub(soon_ms.saturating_add(every_ms));
                let further_ms = further_ms.filter(|&ms| ms > 0)?;
                self.next_run_ms - (further_ms + LATE_MS_MAX).div_ceil(every_ms) * every_ms
            }
            None => {
                let furthest_ms = self.plan.next(soon_ms, soon_ms)?;
                let is_ahead = self.next_run_ms > now_ms && !self.is_promised();
                let is_named = || {
                    let before_ms = self.next_run_ms.saturating_sub(1000);
                    self.plan.next(before_ms, before_ms) == Some(self.next_run_ms)
                };
                if self.next_run_ms <= furthest_ms && (!is_ahead || is_named()) {
                    return None;
                }
                self.plan.next(now_ms, now_ms)?
            }
        };
        Some(next_run_ms.max(now_ms)).filter(|&next_run_ms| next_run_ms != self.next_run_ms)
    }

    /// The first run that is left when it runs again: on its cadence.
    pub(super) fn first_from_now_ms(&self, now_ms: u64) -> Option<u64> {
        match self.plan {
            Plan::Every(every_ms) if self.next_run_ms > now_ms => {
                Some(self.next_run_ms - (self.next_run_ms - now_ms - 1) / every_ms * every_ms)
            }
            Plan::Every(_) => self.plan.next(self.next_run_ms, now_ms),
            Plan::At(..) => self.plan.next(now_ms, now_ms),
        }
    }

    /// The next runs after `after_ms`, if all goes well: as many as are left. What would be the next ones, if it is
    /// disabled.
    pub fn next_runs(
        &self,
        now_ms: u64,
        after_ms: Option<u64>,
        interval_min_ms: u64,
    ) -> impl Iterator<Item = u64> + '_ {
        let left = self.runs_max.map_or(u64::MAX, |most| most.saturating_sub(self.executions));
        let next =
            if self.is_enabled() { Some(self.next_run_ms) } else { self.first_from_now_ms(now_ms) };
        let first = match after_ms {
            Some(after_ms) if next.is_some_and(|next_ms| next_ms <= after_ms) => {
                next.and_then(|next_ms| self.next_after(next_ms, after_ms, interval_min_ms))
            }
            _ => next,
        };
        let runs = std::iter::successors(first, move |&due_ms| {
            self.next_after(due_ms, due_ms, interval_min_ms)
        });
        runs.take(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Whether it runs when it is due.
    pub(super) fn runs(&self) -> bool {
        !self.held && self.is_enabled()
    }

    /// Whether it is enabled.
    pub fn is_enabled(&self) -> bool {
        !self.rules.disabled
    }

    /// State that survives when the schedule is set anew, with this plan.
    pub fn standing(&self, plan: &Plan) -> CronStanding {
        CronStanding {
            executions: self.executions,
            version: self.version,
            disabled: self.rules.disabled,
            next_run_ms: self.next_run_ms,
            same_times: self.plan == *plan,
            is_promised: self.is_promised(),
            has_ended: self.has_ended(),
        }
    }

    /// Whether it has run as often as it may.
    pub fn has_ended(&self) -> bool {
        self.runs_max.is_some_and(|most| self.executions >= most)
    }

    /// All of it, as its record says it.
    pub(super) fn told(&self) -> CronSet<'_> {
        CronSet {
            name: &self.name,
            queue: &self.queue,
            data: &self.data,
            schedule: self.schedule.as_deref(),
            repeat_every_ms: self.repeat_every_ms,
            timezone: self.timezone.as_deref(),
            priority: self.priority,
            runs_max: self.runs_max,
            executions: self.executions,
            version: self.version,
            next_run_ms: self.next_run_ms,
            template: &self.template,
            rules: self.rules,
        }
    }

    /// Whether its next run is its last.
    pub(super) fn is_last_run(&self) -> bool {
        self.runs_max.is_some_and(|most| self.executions + 1 >= most)
    }

    /// Bytes that its end takes of the log beside its last run.
    pub(super) fn end_bytes(&self) -> u64 {
        let told = || Record::CronSet(CronSet { data: &[], template: &[], ..self.told() });
        if self.is_last_run() { told().encoded_len() as u64 + END_BYTES } else { 0 }
    }

    /// Whether it makes up for runs that are late, whatever made them so: a server that was down or stopped, or had too much
    /// to do. That which was promised at once comes in any case.
    pub(super) fn makes_up(&self) -> bool {
        self.rules.catch_up || self.is_promised()
    }

    /// Whether its first run was promised at once, and has not come.
    fn is_promised(&self) -> bool {
        self.rules.immediately && self.executions == 0
    }

    /// Fields that jobs are pushed with, beside payload and priority.
    pub fn job(&self) -> NewJob<'_> {
        job_of(&self.template)
    }

    /// Fields that jobs are pushed with, encoded: for [`job_of`].
    pub fn template(&self) -> &[u8] {
        &self.template
    }

    /// All that is durable of it, as text.
    pub(crate) fn facts(&self) -> String {
        format!(
            "cron {} to {} {:?} {:?} {:?} priority {} ran {} of {:?} next {} version {} data {:x?} with {:x?} by {:?}",
            self.name,
            self.queue,
            self.schedule,
            self.repeat_every_ms,
            self.timezone,
            self.priority,
            self.executions,
            self.runs_max,
            self.next_run_ms,
            self.version,
            self.data,
            self.template,
            self.rules,
        )
    }
}
