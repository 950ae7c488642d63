//! Totals since the start and rates over the last seconds. Kept in memory only.
//!
//! | file | responsibility |
//! |---|---|
//! | `history` | what happened in the last day, by steps of ten seconds |
//! | `latency` | histograms of waiting and running times |
//! | `sampling` | when the steps of the history end, and what is asked of it |
//! | `queue_times` | a histogram of times of the jobs of one queue |

pub mod history;
pub mod latency;
pub mod queue_times;
pub mod sampling;

/// Counts of a shard since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Jobs pushed.
    pub pushed: u64,
    /// Jobs delivered.
    pub pulled: u64,
    /// Jobs completed.
    pub completed: u64,
    /// Attempts failed.
    pub failed: u64,
    /// Jobs taken out of dead-letter queues by their rules, to be tried anew.
    pub dlq_retried: u64,
    /// Jobs removed from dead-letter queues by their rules, for their age or their number.
    pub dlq_dropped: u64,
    /// Attempts that failed and are followed by another.
    pub retried: u64,
    /// Leases that ended by time: those of stalled jobs, and of attempts that took too long.
    pub leases_expired: u64,
    /// The former of these.
    pub stalled: u64,
    /// Runs of schedules that were due and did not take place.
    pub crons_missed: u64,
    /// Runs of schedules that were due when there was no room for their jobs, and came later.
    pub crons_without_room: u64,
}

impl std::ops::Sub for Totals {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            pushed: self.pushed - earlier.pushed,
            pulled: self.pulled - earlier.pulled,
            completed: self.completed - earlier.completed,
            failed: self.failed - earlier.failed,
            dlq_retried: self.dlq_retried - earlier.dlq_retried,
            dlq_dropped: self.dlq_dropped - earlier.dlq_dropped,
            retried: self.retried - earlier.retried,
            leases_expired: self.leases_expired - earlier.leases_expired,
            stalled: self.stalled - earlier.stalled,
            crons_missed: self.crons_missed - earlier.crons_missed,
            crons_without_room: self.crons_without_room - earlier.crons_without_room,
        }
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.pushed += other.pushed;
        self.pulled += other.pulled;
        self.completed += other.completed;
        self.failed += other.failed;
        self.dlq_retried += other.dlq_retried;
        self.dlq_dropped += other.dlq_dropped;
        self.retried += other.retried;
        self.leases_expired += other.leases_expired;
        self.stalled += other.stalled;
        self.crons_missed += other.crons_missed;
        self.crons_without_room += other.crons_without_room;
    }
}

/// Jobs by state, and totals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Census {
    /// Ready jobs.
    pub waiting: u64,
    /// Jobs with workers.
    pub active: u64,
    /// Jobs whose time has not come.
    pub delayed: u64,
    /// Completed jobs that are kept.
    pub completed: u64,
    /// Jobs in dead-letter queues.
    pub failed: u64,
    /// Jobs that wait for others to complete.
    pub waiting_children: u64,
    /// Since the start.
    pub totals: Totals,
    /// How much has been done per second lately.
    pub per_second: PerSecond,
}

/// Rates of a shard, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerSecond {
    /// Jobs pushed.
    pub pushed: f64,
    /// Jobs delivered.
    pub pulled: f64,
    /// Jobs completed.
    pub completed: f64,
    /// Attempts failed.
    pub failed: f64,
}

impl std::ops::AddAssign for PerSecond {
    fn add_assign(&mut self, other: Self) {
        self.pushed += other.pushed;
        self.pulled += other.pulled;
        self.completed += other.completed;
        self.failed += other.failed;
    }
}

impl std::ops::AddAssign for Census {
    fn add_assign(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.active += other.active;
        self.delayed += other.delayed;
        self.completed += other.completed;
        self.failed += other.failed;
        self.waiting_children += other.waiting_children;
        self.totals += other.totals;
        self.per_second += other.per_second;
    }
}

/// Span over which rates are taken.
const RATE_SPAN_MS: u64 = 5_000;

/// Totals as they stood at the beginning of recent seconds.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    samples: std::collections::VecDeque<(u64, Totals)>,
}

impl Rates {
    /// Notes the totals before anything of this moment is added. Cheap if the second is the same.
    pub fn note(&mut self, now_ms: u64, totals: Totals) {
        if self.samples.back().is_some_and(|(at_ms, _)| now_ms < at_ms + 1000) {
            return;
        }
        self.samples.push_back((now_ms, totals));
        while self.samples.front().is_some_and(|(at_ms, _)| at_ms + RATE_SPAN_MS < now_ms) {
            self.samples.pop_front();
        }
    }

    /// Rates over the last seconds.
    pub fn per_second(&self, now_ms: u64, totals: Totals) -> PerSecond {
        let recent = self.samples.iter().find(|(at_ms, _)| at_ms + RATE_SPAN_MS >= now_ms);
        let Some((at_ms, then)) = recent else { return PerSecond::default() };
        let seconds = now_ms.saturating_sub(*at_ms).max(1000) as f64 / 1000.0;
        let rate = |now: u64, then: u64| (now - then) as f64 / seconds;
        PerSecond {
            pushed: rate(totals.pushed, then.pushed),
            pulled: rate(totals.pulled, then.pulled),
            completed: rate(totals.completed, then.completed),
            failed: rate(totals.failed, then.failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_seconds_and_fall_to_zero() {
        let mut rates = Rates::default();
        let at = |pushed| Totals { pushed, ..Totals::default() };
        for second in 0..20 {
            rates.note(second * 1000, at(second * 100));
        }
        let pushed = rates.per_second(19_500, at(1950)).pushed;
        assert!((pushed - 100.0).abs() < 1.0, "{pushed}");
        assert!(rates.per_second(60_000, at(1950)).pushed < f64::EPSILON);
    }
}
