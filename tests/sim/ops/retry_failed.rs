//! `RetryDlq`: one job, some, or all.

use super::{Answer, Call};
use crate::bulk_operations::Work;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::job::State as Found;
use corq_shards::job::id::JobId;

/// `RetryDlq` on a queue.
#[derive(Clone, Debug)]
pub struct RetryFailed {
    queue: String,
    job: Option<JobId>,
    count: u64,
}

impl Call for RetryFailed {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::RetryFailed { queue: &self.queue, job: self.job, count: self.count });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let ended = Found::Failed;
        match self.job {
            Some(id) => model.revive_one(at, &self.queue, id, ended, answer),
            None => {
                let work = Work::Revive { ended, until_ms: u64::MAX };
                model.begin_bulk(at, &self.queue, work, self.count);
            }
        }
    }
}

/// A client has jobs tried anew.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let shard = world.shard_of_queue(queue);
    let jobs = world.nodes[shard].model.of_queue(queue).map(|job| job.id);
    let jobs: Vec<JobId> = jobs.collect();
    let one = world.dice.one_in(3) && !jobs.is_empty();
    let job = one.then(|| world.dice.pick(&jobs));
    let count = world.dice.pick(&[1, 3, u64::MAX]);
    world.send(client, shard, RetryFailed { queue: queue.into(), job, count });
}
