//! The limits of a queue in the model. A bucket holds one second's tokens, is full when a limit is new
//! and after a restart, and is no fuller for another limit in the place of one.

use super::model::{Job, Model, Old, State};
use corq_shards::Shard;
use corq_shards::command::{Limit, PerSpan};

/// Units of one token: a millisecond brings as many of them as tokens come in a second.
const TOKEN: u64 = 1000;

/// The limits of a queue.
#[derive(Clone, Default, Debug)]
pub struct Limits {
    pub per_second: Option<u32>,
    pub active_max: Option<u32>,
    /// Units in the bucket at `at_ms`.
    level: u64,
    at_ms: u64,
}

impl Limits {
    fn level(&self, now_ms: u64) -> u64 {
        let rate = u64::from(self.per_second.unwrap_or(0));
        (self.level + (now_ms - self.at_ms) * rate).min(rate * TOKEN)
    }

    fn set(&mut self, now_ms: u64, limit: Limit) {
        match limit {
            Limit::Active(max) => self.active_max = max,
            Limit::Rate(rate) => {
                let rate = rate.map(|rate| rate.jobs);
                let most = u64::from(rate.unwrap_or(0)) * TOKEN;
                let old = self.per_second.map_or(u64::MAX, |_| self.level(now_ms));
                (self.per_second, self.level, self.at_ms) = (rate, old.min(most), now_ms);
            }
        }
    }

    /// The limit that undoes a change to this one.
    fn undoing(&self, limit: Limit) -> Limit {
        match limit {
            Limit::Rate(_) => Limit::Rate(self.per_second.map(PerSpan::per_second)),
            Limit::Active(_) => Limit::Active(self.active_max),
        }
    }
}

impl Model {
    pub fn limit(&mut self, now_ms: u64, queue: &str, limit: Limit) {
        let limits = self.limits.entry(queue.into()).or_default();
        let undoing = limits.undoing(limit);
        limits.set(now_ms, limit);
        self.keep(Old::Limit(queue.into(), undoing));
    }

    /// A change of a limit is lost. `cut`: only perhaps, as `shard` shows.
    pub fn undo_limit(&mut self, queue: &str, old: Limit, cut: bool, shard: &Shard) {
        let found = shard.queues().find(|q| *q.name == *queue).and_then(|q| q.limits.as_deref());
        let found = match old {
            Limit::Rate(_) => Limit::Rate(found.and_then(corq_shards::Limits::rate)),
            Limit::Active(_) => Limit::Active(found.and_then(corq_shards::Limits::active_max)),
        };
        if !cut || found == old {
            let limits = self.limits.entry(queue.into()).or_default();
            // How full the bucket is, the restart decides.
            match old {
                Limit::Rate(rate) => limits.per_second = rate.map(|rate| rate.jobs),
                Limit::Active(max) => limits.active_max = max,
            }
        }
    }

    /// Every bucket is full.
    pub fn fill_buckets(&mut self, now_ms: u64) {
        for limits in self.limits.values_mut() {
            limits.level = u64::from(limits.per_second.unwrap_or(0)) * TOKEN;
            limits.at_ms = now_ms;
        }
    }

    /// Jobs that may leave a queue now.
    pub fn allowance(&self, now_ms: u64, queue: &str) -> u64 {
        let Some(limits) = self.limits.get(queue) else { return u64::MAX };
        let is_active = |job: &&Job| matches!(job.state, State::Active(_));
        let active = self.of_queue(queue).filter(is_active).count() as u64;
        let room = limits.active_max.map_or(u64::MAX, |max| u64::from(max).saturating_sub(active));
        room.min(limits.per_second.map_or(u64::MAX, |_| limits.level(now_ms) / TOKEN))
    }

    /// A job leaves a queue that lets it.
    pub fn spend(&mut self, now_ms: u64, queue: &str) {
        if let Some(limits) = self.limits.get_mut(queue)
            && limits.per_second.is_some()
        {
            (limits.level, limits.at_ms) = (limits.level(now_ms).saturating_sub(TOKEN), now_ms);
        }
    }
}
