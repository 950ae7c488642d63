//! Webhooks as a shard knows them: which there are, and which of the shard's queues they watch.

use super::outbox::WebhookOutbox;
use super::trials::Trials;
use corq_io::webhook::{Feed, Hook, Hooks};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Webhooks that watch the same: one queue, or all.
#[derive(Default)]
pub(super) struct Watchers {
    /// Bits of the events that any of the webhooks asks for.
    pub(super) wants: u32,
    pub(super) hooks: Arc<[Arc<Hook>]>,
}

/// Webhooks as a shard knows them.
pub struct Webhooks {
    /// The way to those who deliver.
    pub feed: Feed,
    /// Events on their way there.
    pub outbox: WebhookOutbox,
    /// Samples under way.
    pub(super) trials: Trials,
    pub(super) allow_private: bool,
    pub(super) known: BTreeMap<u128, Known>,
    /// Webhooks that watch one queue of this shard.
    pub(super) by_queue: BTreeMap<Box<str>, Watchers>,
    /// Webhooks that watch all queues.
    pub(super) of_all: Watchers,
}

impl Webhooks {
    /// None yet.
    pub fn new(feed: Feed, allow_private: bool) -> Self {
        Self {
            feed,
            outbox: WebhookOutbox::default(),
            trials: Trials::default(),
            allow_private,
            known: BTreeMap::new(),
            by_queue: BTreeMap::new(),
            of_all: Watchers::default(),
        }
    }

    /// Puts those together anew that watch `queue`, a queue of this shard, or all.
    pub(super) fn renew(&mut self, queue: Option<&str>) {
        let same = |known: &&Known| known.enabled && known.queue.as_deref() == queue;
        let same = self.known.values().filter(same);
        let hooks: Arc<[Arc<Hook>]> = same.map(|known| Arc::clone(&known.hook)).collect();
        let wants = hooks.iter().fold(0, |all, hook| all | hook.wants());
        let watchers = Watchers { wants, hooks };
        match queue {
            None => self.of_all = watchers,
            Some(queue) if watchers.hooks.is_empty() => drop(self.by_queue.remove(queue)),
            Some(queue) => drop(self.by_queue.insert(queue.into(), watchers)),
        }
    }

    /// Whether an event of any queue of this shard may be wanted.
    pub fn are_watching(&self) -> bool {
        self.of_all.wants != 0 || !self.by_queue.is_empty()
    }

    /// Webhooks that may want an event of `queue`; `None` if none does. `kind` is the bit of the event.
    pub fn watching(&self, queue: &str, kind: u32) -> Option<Hooks> {
        let of_queue = self.by_queue.get(queue);
        let wants = self.of_all.wants | of_queue.map_or(0, |watchers| watchers.wants);
        if wants & kind == 0 {
            return None;
        }
        let of_queue = of_queue.map(|watchers| Arc::clone(&watchers.hooks));
        Some([Arc::clone(&self.of_all.hooks), of_queue.unwrap_or_default()])
    }
}

/// A webhook as all shards know it.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) hook: Arc<Hook>,
    /// The queue that it watches, if it is one.
    pub(super) queue: Option<Box<str>>,
    /// Whether it gets events.
    pub(super) enabled: bool,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use corq_io::webhook::{Config, Pool, Target};
    use corq_shards::webhook::Triggers;
    use std::time::Duration;

    fn webhooks() -> Webhooks {
        let pool = Pool::start(Config {
            attempts_max: 1,
            retry_delay: Duration::ZERO,
            timeout: Duration::from_secs(1),
            threads_max: 1,
            posts_max: 1,
            backlog_max: 1,
            backlog_bytes_max: 1,
            allow_private: false,
            lookup: None,
            report: Arc::new(|_| {}),
        });
        Webhooks::new(pool.unwrap().feed(), false)
    }

    fn know(webhooks: &mut Webhooks, id: u128, events: u32, queue: Option<&str>) {
        let target = Target::parse("https://example.com", false).unwrap();
        let hook = Arc::new(Hook::new(id, target, None, Triggers::of_bits(events).wanted_bits()));
        let known = Known { hook, queue: queue.map(Into::into), enabled: true };
        webhooks.known.insert(id, known);
        webhooks.renew(queue);
    }

    fn ids(hooks: &Hooks) -> Vec<u128> {
        hooks.iter().flat_map(|some| some.iter()).map(|hook| hook.id()).collect()
    }

    /// The fear: every queue of a server pays for one that is watched.
    #[test]
    fn only_what_is_watched_costs_anything() {
        let mut webhooks = webhooks();
        assert!(!webhooks.are_watching());
        know(&mut webhooks, 1, 0b01, Some("a"));
        know(&mut webhooks, 2, 0b10, Some("a"));
        assert!(webhooks.are_watching());
        assert!(webhooks.watching("b", 0b01).is_none());
        assert!(webhooks.watching("a", 0b100).is_none());
        assert_eq!(ids(&webhooks.watching("a", 0b10).unwrap()), [1, 2]);
        // A webhook that names no event asks for all.
        know(&mut webhooks, 3, 0, None);
        assert_eq!(ids(&webhooks.watching("a", 0b100).unwrap()), [3, 1, 2]);
        assert_eq!(ids(&webhooks.watching("b", 0b1000).unwrap()), [3]);
        for (id, queue) in [(1, Some("a")), (2, Some("a")), (3, None)] {
            assert!(webhooks.are_watching());
            webhooks.known.remove(&id);
            webhooks.renew(queue);
        }
        assert!(!webhooks.are_watching());
    }
}
