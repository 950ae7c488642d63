//! `RetryCompleted`: one job or all.

use super::{Answer, Call};
use crate::check::Check;
use crate::judge::Moment;
use crate::model::{Model, State};
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::id::JobId;

/// See the module.
#[derive(Clone, Debug)]
pub struct RetryCompleted {
    queue: String,
    job: Option<JobId>,
}

impl Call for RetryCompleted {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::RetryCompleted { queue: &self.queue, job: self.job });
    }

    fn judge(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let completed =
            model.of_queue(&self.queue).filter(|job| matches!(job.state, State::Completed { .. }));
        let meant = |id: &JobId| self.job.is_none_or(|one| one == *id);
        let completed: Vec<JobId> = completed.map(|job| job.id).filter(meant).collect();
        let expected = Answer::Count(completed.len() as u64);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        for id in completed {
            model.reopened.insert(id);
            let job = model.change(id);
            (job.attempts, job.stalls, job.run_at_ms) = (0, 0, at.now_ms);
            job.state = State::Waiting;
            model.revived.insert(self.queue.clone());
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
    let one = !world.dice.one_in(4) && !jobs.is_empty();
    let job = one.then(|| world.dice.pick(&jobs));
    world.send(client, shard, RetryCompleted { queue: queue.into(), job });
}
