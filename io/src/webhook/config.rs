//! How to deliver, and what operators should know about deliveries.

use super::event::{Hook, Notice};
use super::resolve::Lookup;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How to deliver.
#[derive(Clone)]
pub struct Config {
    /// Attempts for one event in all, at least 1.
    pub attempts_max: u32,
    /// Attempt n waits n - 1 times this long after the one before.
    pub retry_delay: Duration,
    /// Longest time one attempt may take, from the first byte to the last.
    pub timeout: Duration,
    /// Threads that post. Started as they are needed.
    pub threads_max: usize,
    /// Posts to one webhook at a time, at least 1. Events of one job come one after the other.
    pub posts_max: usize,
    /// Events that may wait for one webhook.
    pub backlog_max: usize,
    /// Memory of all events that wait and of the bodies that are on their way. The webhook that has most of it loses
    /// its oldest events. Bodies have at most three quarters of it, or one its own size.
    pub backlog_bytes_max: usize,
    /// Whether webhooks may point into private networks.
    pub allow_private: bool,
    /// Where names are looked up, if not with the system.
    pub lookup: Option<Lookup>,
    /// Receives reports for people. Called by the dispatcher's thread.
    pub report: Arc<dyn Fn(&Report<'_>) + Send + Sync>,
}

/// A report for people.
#[derive(Debug)]
pub enum Report<'a> {
    /// An event was given up.
    Abandoned {
        /// The webhook that does not get it.
        hook: &'a Hook,
        /// The event.
        notice: &'a Notice,
        /// After how many attempts.
        attempts: u32,
        /// How the last one failed.
        reason: &'a str,
    },
    /// A webhook has no room for more events and begins to lose its oldest.
    Overflow {
        /// The webhook.
        hook: &'a Hook,
    },
    /// Events were refused at the way in since this was last reported.
    Refused {
        /// How many.
        events: u64,
    },
    /// The system has no certificates: posts by HTTPS fail.
    NoCertificates {
        /// Why there are none.
        errors: &'a [String],
    },
    /// The system gives no thread.
    NoThread {
        /// Why there is none.
        error: &'a io::Error,
    },
}
