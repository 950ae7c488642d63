//! Which queues have registered workers, as far as this shard has been told: schedules may ask for one. Lost
//! with the process, as registrations are.

use std::collections::BTreeMap;

/// Queues that are known to have workers. Clients may register for more: then nobody knows, and every queue
/// counts as one with workers until those that are known have gone.
pub const PRESENT_QUEUES_MAX: usize = 100_000;

/// How many workers attend to each queue.
#[derive(Default)]
pub(crate) struct WorkerPresence {
    workers: BTreeMap<Box<str>, u32>,
    /// There was no room for a queue.
    crowded: bool,
}

impl WorkerPresence {
    /// A shard keeps workers of a queue from now on, or none any more.
    pub(crate) fn note(&mut self, queue: &str, came: bool) {
        if let Some(workers) = self.workers.get_mut(queue) {
            *workers = if came { workers.saturating_add(1) } else { *workers - 1 };
            if *workers == 0 {
                self.workers.remove(queue);
            }
        } else if came && self.workers.len() < PRESENT_QUEUES_MAX {
            self.workers.insert(queue.into(), 1);
        } else if came {
            self.crowded = true;
        }
        self.crowded &= !self.workers.is_empty();
    }

    /// Whether a queue has a worker.
    pub(crate) fn has(&self, queue: &str) -> bool {
        self.crowded || self.workers.contains_key(queue)
    }

    /// How many queues are known to have one.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_workers_until_the_last_has_gone() {
        let mut worker_presence = WorkerPresence::default();
        for came in [true, true, false] {
            worker_presence.note("q", came);
        }
        assert!(worker_presence.has("q") && !worker_presence.has("r"));
        worker_presence.note("q", false);
        worker_presence.note("q", false);
        assert!(!worker_presence.has("q"));
    }

    #[test]
    fn where_nobody_can_tell_every_queue_has_workers() {
        let mut worker_presence = WorkerPresence::default();
        let names: Vec<String> = (0..=PRESENT_QUEUES_MAX).map(|n| n.to_string()).collect();
        for name in &names {
            worker_presence.note(name, true);
        }
        assert!(worker_presence.len() == PRESENT_QUEUES_MAX && worker_presence.has("any"));
        for name in &names {
            worker_presence.note(name, false);
        }
        assert!(worker_presence.len() == 0 && !worker_presence.has("any"));
    }
}
