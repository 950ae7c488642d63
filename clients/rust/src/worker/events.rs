//! Events about a worker, for its owner.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

pub(crate) type OnEvent = Arc<dyn Fn(&WorkerEvent) + Send + Sync>;

/// Something about a worker that its owner may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WorkerEvent {
    /// The worker is connected and registered.
    Connected,
    /// The connection broke, or could not be opened. The worker tries again.
    Disconnected {
        /// The reason.
        error: Error,
    },
    /// The server gave out no jobs. The worker asks again.
    PullRefused {
        /// The reason.
        error: Error,
    },
    /// A handler answered with an error; the attempt counts as failed.
    HandlerFailed {
        /// Of which job.
        id: String,
        /// The error.
        error: String,
    },
    /// A handler panicked; the attempt counts as failed.
    HandlerPanicked {
        /// Of which job.
        id: String,
        /// The message of the panic.
        message: String,
    },
    /// Locks could not be renewed now. The worker tries again while they last.
    RenewalFailed {
        /// How many jobs are concerned.
        jobs: usize,
        /// The reason.
        error: Error,
    },
    /// A job is not held here any more: its lock has ended, or a command moved it. It may run elsewhere.
    LockLost {
        /// Which job.
        id: String,
    },
    /// Outcomes could not be told now. They are told again.
    OutcomesDelayed {
        /// How many.
        jobs: usize,
        /// The reason.
        error: Error,
    },
    /// An outcome came after the server had ended the attempt for its timeout, and does not count.
    OutcomeLate {
        /// Of which job.
        id: String,
    },
    /// The server did not take an outcome: the job was not held here any more.
    OutcomeRefused {
        /// Of which job.
        id: String,
        /// The reason.
        error: Error,
    },
    /// The fate of an outcome is unknown: its answer was lost, and the server does not know the job any more, as after
    /// an accepted outcome of a job that is not kept.
    OutcomeUnknown {
        /// Of which job.
        id: String,
        /// The answer to the second time.
        error: Error,
    },
    /// The worker ended before an outcome could be told. The job will run again.
    OutcomeUnsent {
        /// Of which job.
        id: String,
        /// The reason.
        error: Error,
    },
    /// A job could not be given back; it runs again when its lock ends.
    GiveBackFailed {
        /// Which job.
        id: String,
        /// The reason.
        error: Error,
    },
}

impl fmt::Display for WorkerEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => write!(formatter, "connected"),
            Self::Disconnected { error } => write!(formatter, "disconnected: {error}"),
            Self::PullRefused { error } => write!(formatter, "no jobs were given out: {error}"),
            Self::HandlerFailed { id, error } => write!(formatter, "job {id} failed: {error}"),
            Self::HandlerPanicked { id, message } => {
                write!(formatter, "the handler of job {id} panicked: {message}")
            }
            Self::RenewalFailed { jobs, error } => {
                write!(formatter, "the locks of {jobs} jobs were not renewed: {error}")
            }
            Self::LockLost { id } => write!(formatter, "job {id} is not held here any more"),
            Self::OutcomesDelayed { jobs, error } => {
                write!(formatter, "the outcomes of {jobs} jobs are told again: {error}")
            }
            Self::OutcomeLate { id } => {
                write!(formatter, "the outcome of job {id} came after its timeout")
            }
            Self::OutcomeRefused { id, error } => {
                write!(formatter, "the outcome of job {id} was not taken: {error}")
            }
            Self::OutcomeUnknown { id, error } => {
                write!(formatter, "what became of the outcome of job {id} is not known: {error}")
            }
            Self::OutcomeUnsent { id, error } => {
                write!(formatter, "the outcome of job {id} could not be told: {error}")
            }
            Self::GiveBackFailed { id, error } => {
                write!(formatter, "job {id} could not be given back: {error}")
            }
        }
    }
}

/// Counts of what a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Jobs that were pulled.
    pub pulled: u64,
    /// Jobs that the server knows to be completed here.
    pub completed: u64,
    /// Attempts that the server knows to have failed here.
    pub failed: u64,
    /// Jobs that were given back.
    pub given_back: u64,
    /// Jobs that were lost before or while they were worked on.
    pub lost: u64,
    /// Outcomes that did not count: they came too late, were refused or could not be told.
    pub untold: u64,
    /// Outcomes whose answer was lost, and of which the server could not say any more whether it had taken them.
    pub unknown: u64,
    /// How often [`on_event`](crate::WorkerBuilder::on_event) has panicked.
    pub listener_panics: u64,
}

/// The counts behind a summary.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pulled: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) given_back: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) untold: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) listener_panics: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn summary(&self) -> Summary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            pulled: read(&self.pulled),
            completed: read(&self.completed),
            failed: read(&self.failed),
            given_back: read(&self.given_back),
            lost: read(&self.lost),
            untold: read(&self.untold),
            unknown: read(&self.unknown),
            listener_panics: read(&self.listener_panics),
        }
    }
}
