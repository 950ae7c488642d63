//! Messages between the dispatcher and the threads that post.

use super::client::{Client, now_ms};
use super::deliveries::Outcome;
use super::event::{Hook, Notice};
use super::queue::QueueId;
use crossbeam_channel::Sender;
use std::sync::Arc;

/// A post for a thread.
pub(super) struct Work {
    pub(super) hook: Arc<Hook>,
    /// Where its event waits, unless it was asked for.
    pub(super) queue: QueueId,
    pub(super) notice: Arc<Notice>,
    pub(super) client: Client,
    /// The number of the trial, if the post is one.
    pub(super) trial: Option<u64>,
}

impl Work {
    /// Posts, and tells how that went.
    pub(super) fn run(self, outcomes: &Sender<Message>) {
        let Self { hook, queue, notice, client, trial } = self;
        let mut post = Post { outcomes, queue, trial, outcome: None };
        let body = notice.body();
        if trial.is_none() {
            let rendered = Message::Rendered { queue, bytes: body.capacity() };
            // The dispatcher may have ended.
            let _ = outcomes.send(rendered);
        }
        post.outcome = Some(client.post(&hook, &notice, &body));
        drop((body, client));
    }
}

/// A thread's message about its post.
pub(super) enum Message {
    /// The body is rendered and takes so much memory.
    Rendered { queue: QueueId, bytes: usize },
    /// The post is over.
    Done(Done),
}

/// How a post went.
pub(super) struct Done {
    pub(super) queue: QueueId,
    pub(super) trial: Option<u64>,
    pub(super) outcome: Outcome,
    /// Whether its thread has ended with it.
    pub(super) thread_ends: bool,
}

/// A post under way. However it ends, the dispatcher gets its outcome, so that its queue goes on.
struct Post<'t> {
    outcomes: &'t Sender<Message>,
    queue: QueueId,
    trial: Option<u64>,
    outcome: Option<Outcome>,
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
        let (queue, trial) = (self.queue, self.trial);
        let outcome = outcome.unwrap_or_else(failed);
        // The dispatcher may have ended.
        let _ = self.outcomes.send(Message::Done(Done { queue, trial, outcome, thread_ends }));
    }
}
