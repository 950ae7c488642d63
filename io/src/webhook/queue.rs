//! Events that wait for one webhook, in their order, one of them on its way at a time. A webhook has several such queues,
//! and each job's events are in one of them. Knows no threads and no clock.

use super::client::Client;
use super::event::{Health, Hook, Notice};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// A queue by its webhook, and its number among those of the webhook.
pub(super) type QueueId = (u128, u64);

/// The queue in which an event waits, of so many. Events of one job wait in the same, so that they come in order.
pub(super) fn queue_of(hook: &Hook, notice: &Notice, queues: usize) -> QueueId {
    let mut hasher = DefaultHasher::new();
    notice.job().hash(&mut hasher);
    (hook.id(), hasher.finish() % queues as u64)
}

/// Events of one webhook that wait or are on their way, in all its queues.
#[derive(Debug, Default)]
pub(super) struct HookLoad {
    pub(super) events: usize,
    pub(super) bytes: usize,
    /// Posts on their way.
    pub(super) running: usize,
    /// Whether events have gone for want of room since there was some.
    pub(super) overflowing: bool,
}

/// State of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The queue is empty.
    Idle,
    /// To be served by the next thread.
    Ready,
    /// A thread posts its first event.
    Running,
    /// The first event is tried again later.
    Pausing,
}

/// The events that wait for one webhook, and its retries.
#[derive(Debug)]
pub(super) struct EventQueue {
    pub(super) hook: Arc<Hook>,
    pub(super) state: State,
    /// Attempts for the first event that have failed.
    pub(super) attempts: u32,
    /// Whether its receiver has yet to show that it answers: such queues may not take all threads.
    pub(super) shaky: bool,
    /// When [`State`] calls for something.
    pub(super) timer: Option<Instant>,
    pub(super) client: Option<Client>,
    /// Memory of the body that is on its way.
    pub(super) body_bytes: usize,
    /// Whether its first event is not tried again: its webhook was disabled while it was on its way.
    doomed: bool,
    /// How often its webhook had been disabled when its events came.
    pauses: u64,
    backlog: VecDeque<Arc<Notice>>,
    bytes: usize,
}

impl EventQueue {
    pub(super) fn new(hook: Arc<Hook>) -> Self {
        Self {
            state: State::Idle,
            attempts: 0,
            shaky: hook.health() != Health::Well,
            pauses: hook.pauses(),
            hook,
            timer: None,
            client: None,
            body_bytes: 0,
            doomed: false,
            backlog: VecDeque::new(),
            bytes: 0,
        }
    }

    /// A post has ended.
    pub(super) fn note_outcome(&mut self, taken: bool) {
        let health = if taken { Health::Well } else { Health::Failing };
        self.hook.note_health(health);
        self.state = State::Idle;
        self.attempts += 1;
    }

    /// Takes over what other queues of the webhook know of its receiver. To be called while no event is on its way.
    pub(super) fn note_health(&mut self) {
        self.shaky = self.hook.health() != Health::Well;
    }

    /// Whether the last post to its receiver failed.
    pub(super) fn is_failing(&self) -> bool {
        self.hook.health() == Health::Failing
    }

    pub(super) fn len(&self) -> usize {
        self.backlog.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The time of its oldest event that can go for want of room: not the one that is on its way.
    pub(super) fn oldest_spare_at_ms(&self) -> Option<u64> {
        let oldest = self.backlog.get(usize::from(self.state == State::Running));
        oldest.map(|notice| notice.at_ms())
    }

    pub(super) fn push(&mut self, notice: Arc<Notice>) {
        self.bytes += notice.bytes();
        self.backlog.push_back(notice);
    }

    pub(super) fn first(&self) -> Option<&Arc<Notice>> {
        self.backlog.front()
    }

    /// Ends with the first event, however it went.
    pub(super) fn pop(&mut self) -> Option<Arc<Notice>> {
        let notice = self.backlog.pop_front()?;
        self.bytes -= notice.bytes();
        self.attempts = 0;
        self.doomed = false;
        Some(notice)
    }

    /// Gives up what came before its webhook was disabled the last time, but for the one on its way, which is not tried
    /// again. Returns how many events that were.
    pub(super) fn give_up_stale(&mut self) -> usize {
        let pauses = self.hook.pauses();
        if std::mem::replace(&mut self.pauses, pauses) == pauses {
            return 0;
        }
        let before = self.len();
        self.doomed = self.state == State::Running;
        self.backlog.truncate(usize::from(self.doomed));
        self.bytes = self.backlog.iter().map(|notice| notice.bytes()).sum();
        if !self.doomed {
            self.attempts = 0;
        }
        before - self.len()
    }

    /// Whether its first event is not tried again.
    pub(super) fn is_doomed(&self) -> bool {
        self.doomed
    }

    /// Drops the oldest event that is not on its way.
    pub(super) fn drop_oldest(&mut self) -> bool {
        if self.state == State::Running {
            let Some(notice) = self.backlog.remove(1) else { return false };
            self.bytes -= notice.bytes();
            return true;
        }
        self.pop().is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::webhook::target::Target;

    fn queue(events: u64) -> EventQueue {
        let target = Target::parse("https://example.com", false).unwrap();
        let mut queue = EventQueue::new(Arc::new(Hook::new(1, target, None, 1)));
        for at_ms in 0..events {
            queue.push(Arc::new(Notice::new(1, "e", at_ms, "j".into(), 10, 0, Vec::new)));
        }
        queue
    }

    fn left(queue: &EventQueue) -> Vec<u64> {
        queue.backlog.iter().map(|notice| notice.at_ms()).collect()
    }

    #[test]
    fn the_oldest_event_goes_but_not_the_one_on_its_way() {
        let mut queue = queue(4);
        queue.attempts = 2;
        assert!(queue.drop_oldest());
        assert_eq!((left(&queue), queue.attempts, queue.bytes()), (vec![1, 2, 3], 0, 30));
        queue.state = State::Running;
        queue.attempts = 1;
        assert!(queue.drop_oldest());
        assert_eq!(
            (left(&queue), queue.attempts, queue.oldest_spare_at_ms()),
            (vec![1, 3], 1, Some(3))
        );
        assert!(queue.drop_oldest() && !queue.drop_oldest());
        assert_eq!((left(&queue), queue.bytes()), (vec![1], 10));
    }

    #[test]
    fn what_waited_when_its_webhook_was_disabled_is_given_up_once() {
        let mut queue = queue(3);
        assert_eq!(queue.give_up_stale(), 0);
        queue.hook.set_enabled(false);
        queue.hook.set_enabled(true);
        assert_eq!((queue.give_up_stale(), queue.len(), queue.bytes()), (3, 0, 0));
        queue.push(Arc::new(Notice::new(1, "e", 9, "j".into(), 10, 0, Vec::new)));
        queue.push(Arc::new(Notice::new(1, "e", 10, "j".into(), 10, 0, Vec::new)));
        assert_eq!((queue.give_up_stale(), queue.len()), (0, 2), "these came later");
        queue.state = State::Running;
        queue.hook.set_enabled(false);
        assert_eq!((queue.give_up_stale(), queue.bytes(), queue.is_doomed()), (1, 10, true));
        queue.pop();
        assert!(!queue.is_doomed());
    }
}
