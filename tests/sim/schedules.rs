//! Schedules in the model.

use super::check::Check;
use super::job_rules::{LAST, Moment};
use super::model::{Job, Model, Old};
use corq_shards::Shard;
use corq_shards::cron::LATE_MS_MAX;
use corq_shards::log_record::cron::CronRan;

/// When a schedule is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rhythm {
    /// Each run is so many milliseconds after the last.
    Every(u64),
    /// Whenever the time is a multiple of so many milliseconds, by an expression that says so.
    Round(u64, &'static str),
}

/// A schedule in the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    pub queue: String,
    pub data: Vec<u8>,
    pub rhythm: Rhythm,
    pub priority: i32,
    pub runs_max: Option<u64>,
    pub executions: u64,
    pub version: u64,
    pub next_run_ms: u64,
    pub enabled: bool,
}

impl Rhythm {
    /// The first time on the cadence that `next_run_ms` is part of.
    pub fn resume(self, next_run_ms: u64, now_ms: u64) -> u64 {
        match self {
            Self::Round(..) => self.next(now_ms, now_ms),
            Self::Every(step_ms) if next_run_ms > now_ms => {
                next_run_ms - (next_run_ms - now_ms - 1) / step_ms * step_ms
            }
            Self::Every(_) => self.next(next_run_ms, now_ms),
        }
    }

    /// The first time after both.
    pub fn next(self, last_ms: u64, now_ms: u64) -> u64 {
        let after_ms = last_ms.max(now_ms);
        match self {
            Self::Round(step_ms, _) => (after_ms / step_ms + 1) * step_ms,
            Self::Every(step_ms) => last_ms + ((after_ms - last_ms) / step_ms + 1) * step_ms,
        }
    }
}

impl Schedule {
    /// Whether it has run as often as it may: then it is only remembered.
    pub fn has_ended(&self) -> bool {
        self.runs_max.is_some_and(|most| self.executions >= most)
    }

    /// Whether its next run is further away than its rhythm can put it: a clock that was ahead has.
    pub fn is_too_far(&self, now_ms: u64) -> bool {
        let soon_ms = now_ms + LATE_MS_MAX;
        let furthest_ms = match self.rhythm {
            Rhythm::Every(step_ms) => soon_ms + step_ms,
            Rhythm::Round(..) => self.rhythm.next(soon_ms, soon_ms),
        };
        self.next_run_ms > furthest_ms
    }
}

impl Model {
    fn keep_schedule(&mut self, name: &str) {
        let old = self.schedules.get(name).cloned().map(Box::new);
        self.keep(Old::Schedule(name.into(), old));
    }

    pub fn set_schedule(&mut self, name: &str, schedule: Schedule) {
        self.keep_schedule(name);
        self.schedules.insert(name.into(), schedule);
    }

    /// True if there was one.
    pub fn end_schedule(&mut self, name: &str) -> bool {
        self.keep_schedule(name);
        self.schedules.remove(name).is_some()
    }

    /// A schedule has pushed a job, as the shard's record says.
    pub fn run_schedule(&mut self, at: &Moment<'_>, ran: &CronRan<'_>) {
        let Some(schedule) = self.schedules.get(ran.name).cloned() else {
            self.checks.fail(Check::Schedule, || format!("{ran:?} is of no schedule"));
            return;
        };
        let (due_ms, pushed) = (schedule.next_run_ms, &ran.pushed);
        self.must(Check::EarlySchedule, due_ms <= at.now_ms, || {
            format!("{schedule:?} runs {} ms early", due_ms - at.now_ms)
        });
        let in_time = self.schedules_since_ms.is_some_and(|since_ms| since_ms <= due_ms)
            && due_ms + LATE_MS_MAX >= at.now_ms
            && schedule.enabled;
        self.must(Check::Schedule, in_time, || format!("at {}, too late: {ran:?}", at.now_ms));
        let same = pushed.queue == schedule.queue
            && pushed.job.data == &schedule.data[..]
            && (pushed.run_at_ms, pushed.job.priority) == (due_ms, schedule.priority);
        self.must(Check::Schedule, same, || format!("{schedule:?}\n  pushes {pushed:?}"));
        let executions = schedule.executions + 1;
        let next =
            (schedule.runs_max != Some(executions)).then(|| schedule.rhythm.next(due_ms, due_ms));
        self.must(Check::Schedule, ran.next_run_ms == next, || {
            format!("{schedule:?}\n  runs again at {:?}, not {next:?}", ran.next_run_ms)
        });
        let next_run_ms = next.unwrap_or(due_ms);
        self.set_schedule(ran.name, Schedule { executions, next_run_ms, ..schedule });
        let new = Job::new(pushed.id, pushed.queue, pushed.job.data);
        self.come(at.now_ms, Job { run_at_ms: due_ms, priority: pushed.job.priority, ..new });
        self.fresh.insert(pushed.id, LAST);
    }

    /// A schedule passes over what it could not do in time.
    pub fn miss_schedule(&mut self, at: &Moment<'_>, name: &str, next_run_ms: u64) {
        let Some(schedule) = self.schedules.get(name).cloned() else {
            self.checks.fail(Check::Schedule, || format!("{name} is no schedule"));
            return;
        };
        let due_ms = schedule.next_run_ms;
        if schedule.is_too_far(at.now_ms) {
            let next = schedule.rhythm.resume(due_ms, at.now_ms);
            self.must(Check::Schedule, schedule.enabled && next == next_run_ms, || {
                format!("{schedule:?}\n  comes back at {} to {next_run_ms}, not {next}", at.now_ms)
            });
            self.set_schedule(name, Schedule { next_run_ms, ..schedule });
            return;
        }
        let late = self.schedules_since_ms.is_some_and(|since_ms| since_ms > due_ms)
            || due_ms + LATE_MS_MAX < at.now_ms;
        let next = schedule.rhythm.next(due_ms, at.now_ms);
        let misses = late && schedule.enabled;
        self.must(Check::Schedule, misses && next == next_run_ms, || {
            format!("{schedule:?}\n  waits at {} until {next_run_ms}, not {next}", at.now_ms)
        });
        self.set_schedule(name, Schedule { next_run_ms, ..schedule });
    }

    /// Nothing that is due is left.
    pub fn check_schedules(&self, now_ms: u64) {
        if self.schedules_since_ms.is_none() {
            return;
        }
        for (name, schedule) in self.schedules.iter().filter(|(_, has)| !has.has_ended()) {
            self.must(Check::Overdue, !schedule.enabled || schedule.next_run_ms > now_ms, || {
                format!("at {now_ms}, {name} has not run: {schedule:?}")
            });
            self.must(Check::Overdue, !schedule.enabled || !schedule.is_too_far(now_ms), || {
                format!("at {now_ms}, {name} waits for a time of another clock: {schedule:?}")
            });
        }
    }

    /// The schedules of the shard are those of the model.
    pub fn compare_schedules(&self, shard: &Shard) {
        let count = shard.crons().chain(shard.ended_crons()).count();
        self.must(Check::Schedule, count == self.schedules.len(), || {
            format!("{count} schedules, not {}", self.schedules.len())
        });
        for (name, model) in &self.schedules {
            let found = shard.cron(name).or_else(|| shard.ended_cron(name)).map(|cron| {
                let queue = cron.queue.to_string();
                let runs = (cron.executions, cron.next_run_ms, cron.runs_max);
                (queue, cron.version, cron.is_enabled(), runs)
            });
            let queue = model.queue.clone();
            let runs = (model.executions, model.next_run_ms, model.runs_max);
            let expected = (queue, model.version, model.enabled, runs);
            self.must(Check::Schedule, found.as_ref() == Some(&expected), || {
                format!("{name} is {found:?}, not {expected:?}")
            });
        }
    }
}
