//! `WaitJob`.

use super::{Answer, Call};
use crate::awaits::{Await, End};
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::{Model, State};
use crate::world::{QUEUES, World};
use corq_shards::command::Command;
use corq_shards::effect::Refusal;
use corq_shards::job::id::JobId;

/// A client waits for the end of a job.
#[derive(Clone, Debug)]
pub struct AwaitEnd {
    job: JobId,
    timeout_ms: u64,
}

impl Call for AwaitEnd {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::AwaitEnd { job: self.job, timeout_ms: self.timeout_ms });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let state = model.jobs.get(&self.job).map_or(&State::Gone, |job| &job.state);
        let not_found = Answer::Refused { place: 0, refusal: Refusal::NotFound };
        let fits = match (End::of(state), state) {
            (Some(end), _) => answer.and_then(End::of_answer) == Some(end),
            // How a job ended that went with its end is remembered for a while.
            (None, State::Gone) => {
                let end = answer.and_then(End::of_answer);
                answer == Some(&not_found)
                    || end == Some(End::Completed)
                    || end == Some(End::Failed) && model.ever_failed.contains(&self.job)
            }
            (None, _) if self.timeout_ms == 0 => answer == Some(&Answer::Unended),
            (None, _) => answer.is_none(),
        };
        model.must(Check::Answer, fits, || {
            format!("a wait for {:?}, which is {state:?}, was answered {answer:?}", self.job)
        });
        if answer.is_none() {
            let until_ms = at.now_ms + self.timeout_ms;
            let (request, client) = (at.request, at.client);
            model.awaits.push(Await { request, client, job: self.job, until_ms });
        }
    }
}

/// A client waits for a job, mostly one that has not ended.
pub fn act(world: &mut World, client: usize) {
    let queue = world.dice.pick(QUEUES);
    let shard = world.shard_of_queue(queue);
    let any = world.dice.one_in(5);
    let jobs = world.nodes[shard].model.of_queue(queue);
    let jobs: Vec<JobId> = jobs.filter(|job| any || job.is_live()).map(|job| job.id).collect();
    if jobs.is_empty() {
        return;
    }
    let job = world.dice.pick(&jobs);
    let timeout_ms = world.dice.pick(&[0, 5, 2000, 60_000, 600_000]);
    world.send(client, shard, AwaitEnd { job, timeout_ms });
}
