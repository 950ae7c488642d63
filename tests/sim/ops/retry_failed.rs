//! `RetryDlq`: one job, some, or all.

use super::{Answer, Call};
use crate::check::Check;
use crate::judge::Moment;
use crate::model::{Model, State};
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::id::JobId;
use corq_shards::job::State as Found;

/// See the module.
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

    fn judge(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let failed = model.of_queue(&self.queue).filter_map(|job| match job.state {
            State::Failed { at_ms } => Some((at_ms, job.id)),
            _ => None,
        });
        let meant = |id: JobId| self.job.is_none_or(|one| one == id);
        let failed: Vec<(u64, JobId)> = failed.filter(|&(_, id)| meant(id)).collect();
        // Oldest first; of those that failed at the same time, the shard chooses.
        let stays = |id: JobId| {
            let found = at.shard.find(id).map(|index| at.shard.view(index).job.state);
            found == Some(Found::Failed)
        };
        let (left, revived): (Vec<_>, Vec<_>) = failed.iter().partition(|&&(_, id)| stays(id));
        let newest = revived.iter().map(|(at_ms, _)| at_ms).max();
        let oldest = left.iter().map(|(at_ms, _)| at_ms).min();
        model.must(Check::Order, left.is_empty() || newest <= oldest, || {
            format!("{revived:?} are retried before {left:?}")
        });
        let count = self.count.min(failed.len() as u64);
        model.must(Check::State, revived.len() as u64 == count, || {
            format!("{revived:?} are retried of {failed:?}")
        });
        let expected = Answer::Count(count);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("a retry was answered {answer:?}, not {expected:?}")
        });
        for (_, id) in revived {
            let job = model.change(id);
            (job.attempts, job.stalls, job.run_at_ms) = (0, 0, at.now_ms);
            job.state = State::Waiting;
            model.revived.insert(self.queue.clone());
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
