//! `RemoveDeduplicationKey`: from the holders of a key, or from one job.

use super::change::pick;
use super::{Answer, Call};
use crate::bulk_operations::Work;
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::{Model, State};
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::effect::Refusal;
use corq_shards::job::change::Change;
use corq_shards::job::id::JobId;

/// From all holders.
#[derive(Clone, Debug)]
struct Free {
    queue: String,
    key: String,
}

/// From one job.
#[derive(Clone, Debug)]
struct FreeOfJob {
    job: JobId,
}

impl Call for Free {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::FreeKey { queue: &self.queue, key: &self.key });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let held = model.is_key_held(at.now_ms, &self.queue, &self.key);
        if answer.is_none() {
            // Many have it: it goes in slices.
            let work = Work::FreeKey { key: self.key.clone(), held };
            model.begin_bulk(at, &self.queue, work, u64::MAX);
            return;
        }
        model.free_key(&self.queue, &self.key);
        let expected = Answer::Count(u64::from(held));
        model.must(Check::Unique, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
    }
}

impl Call for FreeOfJob {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Change { job: self.job, change: Change::FreeKey });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let job = model.jobs.get(&self.job).filter(|job| job.state != State::Gone);
        let has_key = job.is_some_and(|job| job.is_live() && job.unique_key.is_some());
        let not_found = Answer::Refused { place: 0, refusal: Refusal::NotFound };
        let expected =
            job.map_or(not_found, |job| Answer::Count(u64::from(job.holds_key(at.now_ms))));
        model.must(Check::Unique, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if has_key {
            model.change(self.job).unique_key = None;
        }
    }
}

/// A client takes a key from its holders.
pub fn free(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let key = format!("key{}", world.dice.below(3));
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, Free { queue: queue.into(), key });
}

/// A client takes its key from a job.
pub fn free_of_job(world: &mut World, client: usize) {
    let live = |state: &State| {
        !matches!(state, State::Gone | State::Completed { .. } | State::Failed { .. })
    };
    if let Some((shard, job)) = pick(world, live) {
        world.send(client, shard, FreeOfJob { job });
    }
}
