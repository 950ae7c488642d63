//! What the dispatcher and the threads that post tell each other.

use super::client::{Client, now_ms};
use super::deliveries::Outcome;
use super::event::{Hook, Notice};
use crossbeam_channel::Sender;
use std::sync::Arc;

/// A post for a thread.
pub(super) struct Work {
    pub(super) hook: Arc<Hook>,
    pub(super) notice: Arc<Notice>,
    pub(super) client: Client,
    /// Its number, if it was asked for.
    pub(super) trial: Option<u64>,
}

/// What a thread tells of its post.
pub(super) enum Message {
    /// Its body is rendered and takes so much memory.
    Rendered { hook: u128, bytes: usize },
    /// It is over.
    Done(Done),
}

/// How a post went.
pub(super) struct Done {
    pub(super) hook: u128,
    pub(super) trial: Option<u64>,
    pub(super) outcome: Outcome,
    /// Whether its thread has ended with it.
    pub(super) thread_ends: bool,
}

/// A post under way. However it ends, the dispatcher gets its outcome, so that its queue goes on.
pub(super) struct Post<'t> {
    pub(super) outcomes: &'t Sender<Message>,
    pub(super) hook: u128,
    pub(super) trial: Option<u64>,
    pub(super) outcome: Option<Outcome>,
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let thread_ends = outcome.is_none();
        let failed = || Outcome {
            at_ms: now_ms(),
            took_ms: 0,
            status: None,
            failure: Some("the thread that posted it has failed".into()),
        };
        let (hook, trial) = (self.hook, self.trial);
        let outcome = outcome.unwrap_or_else(failed);
        // The dispatcher may have ended.
        let _ = self.outcomes.send(Message::Done(Done { hook, trial, outcome, thread_ends }));
    }
}
