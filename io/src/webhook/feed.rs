//! The way in for events, bounded by number and by bytes, and the counters that say how deliveries stand.

use super::event::{Hook, Notice};
use super::trials::{Asked, Trial};
use crossbeam_channel::{Sender, TrySendError};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Events on their way from the shards to the dispatcher.
pub(super) const FED_MAX: usize = 65_536;
/// And their memory. One event is always taken.
const FED_BYTES_MAX: usize = 64 << 20;

/// How deliveries stand, and what has become of them since the start.
#[derive(Debug, Default)]
pub struct Load {
    /// Events taken by their webhooks.
    pub delivered: AtomicU64,
    /// Attempts that failed.
    pub failed_attempts: AtomicU64,
    /// Events given up after the last attempt.
    pub abandoned: AtomicU64,
    /// Events that went because the backlog was full.
    pub dropped: AtomicU64,
    /// Events that were not taken in.
    pub refused: AtomicU64,
    /// Events that wait or are on their way.
    pub backlog: AtomicU64,
    /// Their memory, and that of the bodies that are on their way.
    pub backlog_bytes: AtomicU64,
    /// Threads that post.
    pub threads: AtomicU64,
    /// Events that a stop has given up.
    pub(super) undone: AtomicU64,
    pub(super) fed_bytes: AtomicUsize,
}

/// The webhooks that an event may be for: those of all queues and those of its own. Put together when
/// webhooks come and go, so that an event costs a shard the same however many there are.
pub type Hooks = [Arc<[Arc<Hook>]>; 2];

/// To the dispatcher.
pub(super) enum Input {
    /// An event for those of `hooks` that want its kind.
    Event { hooks: Hooks, notice: Notice },
    /// A post that was asked for.
    Try(Asked),
    /// No more events come.
    Stop,
}

/// The way in. Never waits.
#[derive(Clone)]
pub struct Feed {
    pub(super) inputs: Sender<Input>,
    pub(super) load: Arc<Load>,
}

impl Feed {
    /// Gives an event to those of `hooks` that want it. If there is no room it is lost to all of them,
    /// which is counted.
    pub fn offer(&self, hooks: Hooks, notice: Notice) {
        let bytes = notice.bytes();
        let fed = self.load.fed_bytes.fetch_add(bytes, Relaxed);
        if fed > 0 && fed + bytes > FED_BYTES_MAX {
            self.load.fed_bytes.fetch_sub(bytes, Relaxed);
            self.refuse(&hooks, notice.kind());
            return;
        }
        let sent = self.inputs.try_send(Input::Event { hooks, notice });
        if let Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) = sent {
            self.load.fed_bytes.fetch_sub(bytes, Relaxed);
            if let Input::Event { hooks, notice } = back {
                self.refuse(&hooks, notice.kind());
            }
        }
    }

    /// Posts to a webhook at once and only once, whether it is enabled or not. None if there is no room.
    pub fn try_out(&self, hook: &Arc<Hook>, notice: Notice) -> Option<Trial> {
        let trial = Trial::default();
        let (hook, notice) = (Arc::clone(hook), Arc::new(notice));
        let asked = Asked { hook, notice, trial: trial.clone() };
        self.inputs.try_send(Input::Try(asked)).is_ok().then_some(trial)
    }

    /// Counts an event that is lost to those of `hooks` that want its kind.
    pub fn refuse(&self, hooks: &Hooks, kind: u32) {
        for hook in
            hooks.iter().flat_map(|some| some.iter()).filter(|hook| hook.wants() & kind != 0)
        {
            hook.note_failed(1);
            self.load.refused.fetch_add(1, Relaxed);
        }
    }

    /// How deliveries stand.
    pub fn load(&self) -> &Load {
        &self.load
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::target::Target;
    use super::*;
    use crossbeam_channel::bounded;

    fn event(bytes: usize) -> Notice {
        Notice::new(1, "e", 1, "j".into(), bytes, 0, Vec::new)
    }

    /// The fear: a shard that waits, or memory without end, when events come faster than they go.
    #[test]
    fn an_event_that_finds_the_way_in_full_is_counted_as_lost_to_those_who_want_it() {
        let (inputs, taken) = bounded(3);
        let feed = Feed { inputs, load: Arc::default() };
        let target = Target::parse("https://example.com", false).unwrap();
        let hook = |wants| Arc::new(Hook::new(1, target.clone(), None, wants));
        let (wants, other) = (hook(1), hook(2));
        let hooks: Hooks = [Arc::from([Arc::clone(&wants)]), Arc::from([Arc::clone(&other)])];
        let lost = || (wants.counts().failed, other.counts().failed);
        // An event that is larger than all that may wait is taken all the same, and no other beside it.
        feed.offer(hooks.clone(), event(FED_BYTES_MAX + 1));
        feed.offer(hooks.clone(), event(1));
        assert_eq!((taken.len(), lost()), (1, (1, 0)));
        feed.load.fed_bytes.store(0, Relaxed);
        (0..3).for_each(|_| feed.offer(hooks.clone(), event(1)));
        assert_eq!((taken.len(), lost()), (3, (2, 0)));
        assert_eq!(feed.load.fed_bytes.load(Relaxed), 2);
        assert_eq!(feed.load.refused.load(Relaxed), 2);
    }
}
