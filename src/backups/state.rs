//! State of the scheduled backups for shards and metrics: the thread that makes them writes, shards read; a cut goes
//! the other way.

use corq_io::log::Position;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counters of scheduled backups since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Backups that are complete.
    pub made: AtomicU64,
    /// Attempts that failed.
    pub failures: AtomicU64,
    /// Attempts that failed since the last complete backup.
    pub failures_in_a_row: AtomicU64,
    /// Backups after which old ones could not all be removed.
    pub tidying_failures: AtomicU64,
    /// When the last one was begun that is complete, in seconds since the epoch; 0 if none is known.
    pub last_success_s: AtomicU64,
    /// How long it took.
    pub last_duration_ms: AtomicU64,
    /// Bytes of its files.
    pub last_bytes: AtomicU64,
    /// When the next one is due, in seconds since the epoch; in the past while it is late, 0 without a schedule.
    pub due_s: AtomicU64,
}

/// A cut that was asked for.
#[derive(Debug, Default)]
struct Cut {
    number: u64,
    ends: Vec<Position>,
}

/// State shared by the thread that makes backups and by shards.
#[derive(Debug, Default)]
pub struct BackupState {
    /// The number of the last cut that was asked for.
    wanted: AtomicU64,
    cut: Mutex<Cut>,
    came: Condvar,
    pub counters: Counters,
}

impl BackupState {
    /// Asks for a cut. Returns its number. The shard that asks the others has to be woken then.
    pub fn ask(&self) -> u64 {
        self.wanted.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits for a cut. Nothing, if it does not come in time.
    pub fn wait(&self, number: u64, limit: Duration) -> Option<Vec<Position>> {
        let cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(cut, limit, |cut| cut.number != number);
        let (cut, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (cut.number == number).then(|| cut.ends.clone())
    }

    /// The number of the last cut that was asked for.
    #[inline]
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// The cut of this number has come.
    pub fn answer(&self, number: u64, ends: Vec<Position>) {
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        *cut = Cut { number, ends };
        self.came.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cut_that_was_asked_for_is_taken() {
        let state = BackupState::default();
        let first = state.ask();
        assert_eq!(state.wait(first, Duration::ZERO), None);
        let second = state.ask();
        assert_eq!(state.wanted(), second);
        state.answer(first, vec![Position(1)]);
        assert_eq!(state.wait(second, Duration::ZERO), None);
        state.answer(second, vec![Position(2)]);
        assert_eq!(state.wait(second, Duration::ZERO), Some(vec![Position(2)]));
    }
}
