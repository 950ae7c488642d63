//! The machine's clock beside that of the process, and what a start makes of a log whose clock was ahead.
//!
//! Time passes at its pace, and the machine's clock shows it with an error. That jumps: ahead, back, and right again. A process
//! follows it ahead, at once; set back, it goes on from where it is. The next process begins with what the machine shows.
//!
//! If that is more than 10 s less than the times in a log, the one before was ahead. What it has put off for a
//! second is a second away, however far ahead it was, and what has happened has not happened later than now.

use super::check::Check;
use super::dice::Dice;
use super::model::{Job, Model, State};
use super::world::START_MS;
use corq_io::log::Position;
use corq_shards::Shard;
use corq_shards::group::GroupSettings;
use corq_shards::job::State as Found;
use corq_shards::job::id::JobId;
use corq_shards::log_record::Record;

const DAY_MS: u64 = 24 * 3_600_000;

/// Clocks are corrected by as much all the time, and nothing is made of it.
const CORRECTED_MS: u64 = 10_000;

/// Clients put nothing off for longer, but for series and jobs that say when they were made.
const FAR_MS: u64 = 365 * DAY_MS;

/// How wrong the machine's clock may be: so much ahead.
const AHEAD_MS: &[u64] = &[3000, 12_000, 90_000, 3_600_000, 5 * DAY_MS, 500 * DAY_MS, 65 * FAR_MS];

/// And so much behind. More than that no server believes.
const BEHIND_MS: &[u64] = &[3000, 20_000, 3_600_000];

/// The machine's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineClock {
    right_ms: u64,
    shown_ms: u64,
}

impl Default for MachineClock {
    fn default() -> Self {
        Self { right_ms: START_MS, shown_ms: START_MS }
    }
}

impl MachineClock {
    /// How much time has passed since the beginning.
    pub fn lived_ms(self) -> u64 {
        self.right_ms - START_MS
    }

    pub fn shown_ms(self) -> u64 {
        self.shown_ms
    }

    /// Time passes. Returns what a process shows then that has shown `process_ms`.
    pub fn pass(&mut self, process_ms: u64, ms: u64) -> u64 {
        self.right_ms += ms;
        self.shown_ms += ms;
        (process_ms + ms).max(self.shown_ms)
    }

    /// The clock jumps, as often as not to where it is right.
    pub fn jump(&mut self, dice: &mut Dice) {
        self.shown_ms = match dice.below(6) {
            0..=2 => self.right_ms + dice.pick(AHEAD_MS),
            3 => self.right_ms.saturating_sub(dice.pick(BEHIND_MS)),
            _ => self.right_ms,
        };
    }
}

/// A clock that was ahead and has been set back.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names, reason = "a unit comes last")]
struct SetBack {
    from_ms: u64,
    to_ms: u64,
    /// Ids up to this time do not tell by which clock they were made.
    stuck_ms: u64,
}

impl SetBack {
    /// As far away as it was.
    fn moved(self, at_ms: u64) -> u64 {
        let by_ms = self.from_ms - self.to_ms;
        if at_ms <= self.to_ms { at_ms } else { at_ms.saturating_sub(by_ms).max(self.to_ms) }
    }

    /// Whether the clock that was ahead has set a time of a job, for sure.
    fn has_set(self, id: JobId, at_ms: u64) -> bool {
        let made_at_ms = id.made_at_ms();
        if made_at_ms <= self.to_ms {
            return false;
        }
        // Ids do not go back with the clock, so those since an earlier time it was set back tell nothing.
        let tells = self.stuck_ms == 0 || made_at_ms > self.stuck_ms + CORRECTED_MS;
        if tells {
            at_ms >= made_at_ms
        } else {
            at_ms > self.to_ms + FAR_MS && at_ms + FAR_MS >= self.from_ms
        }
    }

    /// A time for which a client may have asked, however far it is.
    fn judged_if_set(self, id: JobId, at_ms: u64) -> u64 {
        if self.has_set(id, at_ms) { self.moved(at_ms) } else { at_ms }
    }

    /// Any other time.
    fn judged(self, id: JobId, at_ms: u64) -> u64 {
        let is_far = at_ms > self.to_ms + FAR_MS;
        if is_far { self.moved(at_ms) } else { self.judged_if_set(id, at_ms) }
    }
}

impl Job {
    /// Moves the job's times back: see [`SetBack`].
    fn set_back(&mut self, back: SetBack) {
        let to_ms = back.to_ms;
        let until_ms = match &mut self.state {
            State::Gone => return,
            State::Waiting => {
                self.run_at_ms = self.run_at_ms.min(to_ms);
                self.run_at_ms
            }
            State::Delayed | State::WaitingChildren => {
                self.run_at_ms = self.due_after(back);
                self.run_at_ms
            }
            State::Active(lease) => {
                self.run_at_ms = self.run_at_ms.min(to_ms);
                lease.started_at_ms = lease.started_at_ms.min(to_ms);
                to_ms
            }
            State::Completed { at_ms, .. } | State::Failed { at_ms, .. } => {
                *at_ms = to_ms.min(*at_ms);
                to_ms
            }
        };
        self.expires_at_ms = self.life_after(back, until_ms);
        self.family.retried_at_ms = self.family.retried_at_ms.min(to_ms);
        if let Some(dedup) = &mut self.extras.dedup {
            let until_ms = back.judged(self.id, dedup.until_ms);
            dedup.until_ms = until_ms.min(to_ms + dedup.ttl_ms).min(dedup.until_ms);
        }
        let id = self.id;
        if let Some(series) = &mut self.series {
            series.due_ms =
                series_due_after(id, series.count, series.every_ms, series.due_ms, back);
        }
    }

    /// When a job is due that waits for its time.
    fn due_after(&self, back: SetBack) -> u64 {
        let (id, at_ms) = (self.id, self.run_at_ms);
        if self.attempts > 0 {
            return back.judged(id, at_ms);
        }
        if let Some(series) = self.series.filter(|series| series.due_ms == at_ms) {
            return series_due_after(id, series.count, series.every_ms, at_ms, back);
        }
        let told = self.extras.made_at_ms.filter(|_| self.series.is_none());
        match told {
            Some(made_at_ms) if (made_at_ms..=made_at_ms + FAR_MS).contains(&at_ms) => {
                back.judged_if_set(id, at_ms)
            }
            _ => back.judged(id, at_ms),
        }
    }

    /// When its life is over, whose time has begun by `until_ms`.
    fn life_after(&self, back: SetBack, until_ms: u64) -> Option<u64> {
        let (expires_at_ms, ttl_ms) = (self.expires_at_ms?, self.ttl_ms?);
        let told = self.extras.made_at_ms;
        let begun_ms = told.filter(|&made_at_ms| !back.has_set(self.id, made_at_ms)).unwrap_or(0);
        let judged = match told {
            Some(_) => back.judged_if_set(self.id, expires_at_ms),
            None => back.judged(self.id, expires_at_ms),
        };
        Some(judged.min(back.to_ms.max(until_ms).max(begun_ms) + ttl_ms))
    }
}

/// A first run may be due when its client wishes, every other one within an interval.
fn series_due_after(id: JobId, count: u64, every_ms: u64, due_ms: u64, back: SetBack) -> u64 {
    if count > 0 { due_ms.min(back.to_ms + every_ms) } else { back.judged_if_set(id, due_ms) }
}

impl Model {
    /// Learns from a log which jobs were ready. The end of a delay is not recorded, so a delay that has ended by a
    /// clock that was ahead may not have ended yet. Returns the jobs whose delays are not known to have ended.
    pub fn recall_delays(&mut self, shard: &Shard) -> Vec<JobId> {
        let mut delayed = Vec::new();
        for job in self.jobs.values_mut() {
            let is_ready = match &job.state {
                State::Waiting => true,
                // Nor is a pull without a lock written down.
                State::Active(lease) => lease.token.is_none(),
                _ => false,
            };
            if !is_ready {
                continue;
            }
            job.state = State::Waiting;
            let found = shard.find(job.id).map(|index| shard.view(index).job.state);
            if found == Some(Found::Delayed) {
                job.state = State::Delayed;
                delayed.push(job.id);
            }
        }
        delayed
    }

    /// A process starts at `now_ms`. If the one before was ahead, the first record from `before` on says so; `latest_ms` is the
    /// latest that any process has shown.
    pub fn follow_clock(
        &mut self,
        (now_ms, latest_ms): (u64, u64),
        written: &[(Position, Vec<u8>)],
        before: usize,
    ) {
        let record = written.first().and_then(|(_, bytes)| Record::decode(bytes).ok());
        let Some(Record::ClockSetBack { from_ms, to_ms, stuck_ms }) = record else {
            let known_ms = self.latest_known_ms();
            if known_ms > now_ms {
                self.clock_slack_ms = 2 * CORRECTED_MS;
            }
            self.must(Check::Clock, known_ms <= now_ms + 2 * CORRECTED_MS, || {
                format!("at {now_ms}, a start takes {known_ms} for a time that has been")
            });
            return;
        };
        // Ids that are made at one time rise, a little beyond it.
        let is_known = from_ms <= latest_ms + CORRECTED_MS;
        let fits = to_ms == now_ms && from_ms > to_ms + CORRECTED_MS && is_known;
        self.must(Check::Clock, fits, || {
            format!("at {now_ms}, the clock is set back from {from_ms} to {to_ms}; {latest_ms} was the latest")
        });
        let back = SetBack { from_ms, to_ms, stuck_ms };
        self.record = Some(before);
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            let mut job = self.jobs[&id].clone();
            job.set_back(back);
            if job != self.jobs[&id] {
                *self.change(id) = job;
            }
        }
        let held = self.groups.iter().filter(|(_, set)| set.held_until_ms > to_ms);
        let held: Vec<_> = held.map(|(key, set)| (key.clone(), *set)).collect();
        for ((queue, group), set) in held {
            let held_until_ms = back.moved(set.held_until_ms);
            self.set_group(&queue, &group, GroupSettings { held_until_ms, ..set });
        }
        self.end_call(before, before + 1);
    }

    /// The latest time at which something has happened for sure.
    fn latest_known_ms(&self) -> u64 {
        let times = self.jobs.values().filter_map(|job| match &job.state {
            State::Completed { at_ms, .. } | State::Failed { at_ms, .. } => Some(*at_ms),
            // Without a token nothing is written down.
            State::Active(lease) if lease.token.is_some() => Some(lease.started_at_ms),
            _ => None,
        });
        times.max().unwrap_or(0)
    }
}
