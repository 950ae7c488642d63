//! `PromoteJobs`.

use super::{Answer, Call};
use crate::bulk_operations::Work;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::{QUEUES, World};
use corq_shards::command::Command;

/// `PromoteJobs` on a queue.
#[derive(Clone, Debug)]
struct PromoteAll {
    queue: String,
    count: u64,
}

impl Call for PromoteAll {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::PromoteAll { queue: &self.queue, count: self.count });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        model.begin_bulk(at, &self.queue, Work::Promote, self.count);
    }
}

/// A client ends the delays of jobs.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let count = world.dice.pick(&[0, 1, 2, u64::MAX]);
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, PromoteAll { queue: queue.into(), count });
}
