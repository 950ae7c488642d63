//! Reports of a worker about a job while it lives: how far it is, and the lines of its log. The texts stay in the log
//! of the shard; here is only where they lie.

use crate::log_record::job_change::Level;
use crate::log_record::location::LogRef;
use std::collections::VecDeque;

/// Lines kept of one job's log: the newest.
pub const LOGS_MAX: usize = 100;

/// Progress and log lines of one job.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// 0 to 100.
    pub progress: f64,
    /// The record whose payload is the worker's message, if it sent one.
    pub message: Option<LogRef>,
    /// Oldest first.
    pub logs: VecDeque<LogEntry>,
}

/// A line of a job's log.
#[derive(Clone, Copy, Debug)]
pub struct LogEntry {
    /// When it was written.
    pub at_ms: u64,
    /// How serious it is.
    pub level: Level,
    /// The record whose payload it is.
    pub stored: LogRef,
}

impl Notes {
    /// Adds a line.
    pub fn log(&mut self, entry: LogEntry) {
        self.logs.push_back(entry);
    }

    /// Takes the oldest line out, if there are more than `most`.
    pub fn shorten(&mut self, most: usize) -> Option<LogEntry> {
        if self.logs.len() > most { self.logs.pop_front() } else { None }
    }

    /// The records that hold the texts.
    pub fn texts(&self) -> impl Iterator<Item = &LogRef> {
        self.message.iter().chain(self.logs.iter().map(|line| &line.stored))
    }
}
