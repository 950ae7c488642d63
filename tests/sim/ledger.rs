//! Answers that clients had, which no crash may take back. Knows nothing of the log's positions beyond a count of
//! records, and nothing of the engine.

use super::check::{Check, Checks};
use super::node::Node;
use corq_shards::job::id::JobId;
use std::collections::BTreeMap;

/// A promise by an answer that a client had.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    pub shard: usize,
    /// The promise holds even if the power goes and the server is not in `synced` mode.
    pub durable: bool,
}

/// Answers that clients had about their jobs.
#[derive(Default)]
pub struct Ledger {
    pub pushed: BTreeMap<JobId, Promise>,
    pub done: BTreeMap<JobId, Promise>,
    /// Per shard, how many records the log had when the newest answer was held for it.
    pub floors: BTreeMap<usize, usize>,
}

impl Ledger {
    /// After a restart: everything promised is so. `all`: every promise counts, not only the durable
    /// ones; those that do not count and do not hold are forgotten.
    pub fn check(&mut self, checks: Checks, nodes: &[Node], all: bool) {
        for node in nodes {
            let (kept, floor) = (node.book.written.len(), self.floors.get(&node.index));
            let floor = floor.copied().unwrap_or(0);
            checks.must(Check::Lost, !all || kept >= floor, || {
                format!("shard {} kept {kept} of {floor} records it had acknowledged", node.index)
            });
        }
        self.floors.clear();
        self.pushed.retain(|id, promise| {
            let known = nodes[promise.shard].model.jobs.contains_key(id);
            checks.must(Check::Lost, known || !(all || promise.durable), || {
                format!("{id:?} was acknowledged ({promise:?}) and is gone")
            });
            known
        });
        self.done.retain(|id, promise| {
            let model = &nodes[promise.shard].model;
            let job = model.jobs.get(id);
            let over = job.is_some_and(|job| !job.is_live());
            checks.must(Check::Lost, over || !all || model.reopened.contains(id), || {
                format!("the completion of {id:?} was acknowledged and is lost: {job:?}")
            });
            over
        });
    }
}
