//! Which jobs of a queue a bulk operation is about, and the search for them slice by slice.

use super::{End, LOOKS_MAX, Removal};
use crate::job::State;
use crate::job::id::JobId;
use crate::shard::Shard;

impl Shard {
    pub(super) fn removal(&mut self, now_ms: u64, name: &str, states: &[State]) -> Removal {
        let queue = self.queues.find(name);
        let is_end = |state: &State| matches!(state, State::Completed | State::Failed);
        let below = |state| queue.map_or(0, |queue| self.end_of(queue, state));
        let ended = states.iter().copied().filter(is_end);
        Removal {
            ended: ended.map(|state| (state, below(state))).collect(),
            pending: states.iter().copied().filter(|state| !is_end(state)).collect(),
            prioritized: false,
            after: JobId::default(),
            newest: self.ids.highest(),
            began_ms: now_ms,
            grace_ms: 0,
            left: u64::MAX,
            ids: None,
            id_bytes: 0,
            end: End::Untold,
        }
    }

    /// Some of the jobs that have to go, and whether there are no more.
    pub(super) fn find_victims(&self, queue: u32, removal: &mut Removal) -> (Vec<u32>, bool) {
        let most = self.config.bulk_slice.min(removal.left) as usize;
        let mut victims = Vec::new();
        let (grace_ms, began_ms) = (removal.grace_ms, removal.began_ms);
        // Ids can run ahead of the clock by a little, and no grace means no question of age.
        let is_old = |since_ms: u64| grace_ms == 0 || since_ms.saturating_add(grace_ms) <= began_ms;
        while let Some((state, below)) = removal.ended.last() {
            let about = &self.queues[queue];
            let ended = if *state == State::Completed { &about.completed } else { &about.failed };
            // The ends of a clock that was ahead stand before younger ones: as many as that are passed over.
            let meant = |&job: &u32| {
                let since_ms = self.since_ms(job);
                self.jobs.end_order(job) < *below && (is_old(since_ms) || since_ms > began_ms)
            };
            let reached = ended.iter(&self.jobs).take(LOOKS_MAX).take_while(meant);
            for job in reached.filter(|&job| is_old(self.since_ms(job))) {
                if victims.len() == most {
                    return (victims, false);
                }
                victims.push(job);
            }
            removal.ended.pop();
        }
        let jobs = &self.jobs.slab;
        let push_order = self.queues[queue].push_order.behind(&self.jobs, Some(removal.after));
        for (looks, job) in push_order.enumerate() {
            let about = &jobs[job];
            if looks == LOOKS_MAX || victims.len() == most {
                return (victims, false);
            }
            removal.after = self.jobs.order_of(job);
            // Pushed since, and mostly behind all others; but jobs that are meant to be made later are behind them.
            if about.id > removal.newest {
                continue;
            }
            let is_urgent =
                removal.prioritized && about.state == State::Waiting && about.priority > 0;
            let is_meant = is_urgent || removal.pending.has(about.state);
            if is_meant && is_old(self.since_ms(job)) {
                victims.push(job);
            }
        }
        (victims, true)
    }
}
