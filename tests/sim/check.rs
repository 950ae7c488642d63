//! Checks of the simulator, by name. A canary turns off all but the check it is to trip.

/// A promise that a run can break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Replaying the log gives the live state.
    Replay,
    /// An acknowledged command still holds after a crash.
    Lost,
    /// A job whose completion was acknowledged is not delivered again.
    Again,
    /// A job has one living lease at most.
    Lease,
    /// A delay does not end early.
    EarlyDelay,
    /// The wait between two attempts does not end early.
    EarlyBackoff,
    /// A lock does not end early.
    EarlyLock,
    /// The life of a job that waits does not end early.
    EarlyLife,
    /// The time of an attempt does not end early.
    EarlyTimeout,
    /// Priority, then LIFO, then FIFO; pulls first come, first served.
    Order,
    /// No job is tried more often than its maximum.
    Attempts,
    /// Counts equal a recount.
    Counters,
    /// A deduplication key has one holder.
    Unique,
    /// Rules of its own that a job was pushed with are what it has.
    Rarity,
    /// The directory equals a rebuild.
    Directory,
    /// In the end everything can be drained.
    Quiet,
    /// A pull does not wait while there is a job for it.
    Starved,
    /// Work that is due is done.
    Overdue,
    /// A start whose clock is behind the log counts from its own time.
    Clock,
    /// A command is answered as the model says.
    Answer,
    /// A job stands where the model says.
    State,
    /// The log gives back what was written, in order.
    Log,
    /// Every count and index agrees with a recount.
    Audit,
    /// A job that depends on others runs when they are completed, and learns when one never will be.
    Dependency,
    /// A repeated job is followed by its next run, once, in time.
    Repeat,
    /// A schedule runs once for each of its times, and not early.
    Schedule,
    EarlySchedule,
    /// A job leaves the dead-letter queue by itself when the rule of its queue says so.
    Rule,
    /// A group gives no more jobs than it may, and a pull gets those of the groups that it wants.
    Group,
    /// A flow comes as a whole or not at all.
    Flow,
    /// A parent learns how its children ended, and goes on as they say.
    Family,
    /// Listeners are told of each step of each job, in order, and of nothing else.
    Events,
    /// Webhooks are as they were set, and told what they asked for.
    Hook,
    /// A long command does what it was given, in whatever slices.
    BulkOperation,
}

/// The checks that are on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checks {
    pub only: Option<Check>,
}

impl Checks {
    /// Ends the run, if the check is on.
    #[track_caller]
    pub fn fail(self, check: Check, what: impl FnOnce() -> String) {
        let on = self.only.is_none_or(|only| only == check);
        assert!(!on, "[{check:?}] {}", what());
    }

    #[track_caller]
    pub fn must(self, check: Check, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(check, what);
        }
    }
}
