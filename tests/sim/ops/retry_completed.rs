//! `RetryCompleted`: one job, some, or all.

use super::{Answer, Call};
use crate::bulk_operations::Work;
use crate::job_rules::Moment;
use crate::model::{Model, State};
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::job::State as Found;
use corq_shards::job::id::JobId;

/// `RetryCompleted` on a queue.
#[derive(Clone, Debug)]
pub struct RetryCompleted {
    queue: String,
    job: Option<JobId>,
    count: u64,
    until_ms: u64,
}

impl Call for RetryCompleted {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::RetryCompleted {
            queue: &self.queue,
            job: self.job,
            count: self.count,
            until_ms: self.until_ms,
        });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let ended = Found::Completed;
        match self.job {
            Some(id) => model.revive_one(at, &self.queue, id, ended, answer),
            None => {
                let work = Work::Revive { ended, until_ms: self.until_ms };
                model.begin_bulk(at, &self.queue, work, self.count);
            }
        }
    }
}

/// A client has completed jobs done anew.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let shard = world.shard_of_queue(queue);
    let any = world.dice.one_in(5);
    let jobs = world.nodes[shard].model.of_queue(queue);
    let jobs = jobs.filter(|job| any || matches!(job.state, State::Completed { .. }));
    let jobs: Vec<JobId> = jobs.map(|job| job.id).collect();
    let one = world.dice.one_in(2) && !jobs.is_empty();
    let job = one.then(|| world.dice.pick(&jobs));
    let count = world.dice.pick(&[u64::MAX, u64::MAX, 1, 3]);
    let ago_ms = world.dice.pick(&[None, Some(0), Some(700), Some(20_000)]);
    let until_ms = ago_ms.map_or(u64::MAX, |ago_ms| world.now_ms - ago_ms);
    world.send(client, shard, RetryCompleted { queue: queue.into(), job, count, until_ms });
}
