//! Commands that remove many jobs of a queue: Drain, `PurgeDlq`, Obliterate, Clean.

use super::{Answer, Call};
use crate::check::Check;
use crate::judge::Moment;
use crate::model::{Job, Model, State};
use crate::world::{QUEUES, World};
use corq_shards::command::{self, Command};
use corq_shards::effect::KnownAs;
use corq_shards::id::JobId;
use corq_shards::job::State as Found;

/// Which jobs of a queue go.
#[derive(Clone, Debug)]
enum Which {
    Waiting,
    Failed,
    All,
    Old { states: Vec<Found>, grace_ms: u64, limit: u64 },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Remove {
    queue: String,
    which: Which,
}

/// The moment from which the age of a job counts, if it is in one of these states.
fn since_ms(job: &Job, states: &[Found]) -> Option<u64> {
    let (state, since_ms) = match &job.state {
        State::Waiting => (Found::Waiting, job.id.made_at_ms()),
        State::Delayed => (Found::Delayed, job.id.made_at_ms()),
        State::Active(lease) => (Found::Active, lease.started_at_ms),
        State::Completed { at_ms, .. } => (Found::Completed, *at_ms),
        State::Failed { at_ms } => (Found::Failed, *at_ms),
        State::Gone => return None,
    };
    states.contains(&state).then_some(since_ms)
}

impl Remove {
    /// The jobs it is about.
    fn meant(&self, model: &Model, now_ms: u64) -> Vec<JobId> {
        let is_meant = |job: &Job| match &self.which {
            Which::Waiting => job.state == State::Waiting,
            Which::Failed => matches!(job.state, State::Failed { .. }),
            Which::All => job.state != State::Gone,
            Which::Old { states, grace_ms, .. } => since_ms(job, states)
                .is_some_and(|since_ms| *grace_ms == 0 || since_ms + grace_ms <= now_ms),
        };
        model.of_queue(&self.queue).filter(|job| is_meant(job)).map(|job| job.id).collect()
    }

    fn expected(&self, model: &Model, gone: &[JobId], answer: Option<&Answer>) -> Answer {
        match &self.which {
            Which::Waiting | Which::Failed => Answer::Count(gone.len() as u64),
            Which::All => Answer::Done,
            Which::Old { .. } => {
                let named = |id: &JobId| match &model.jobs[id].custom_id {
                    Some(name) => KnownAs::Custom(name.as_str().into()),
                    None => KnownAs::Id(*id),
                };
                let mut names: Vec<KnownAs> = gone.iter().map(named).collect();
                // In which order they are named is the shard's choice.
                if let Some(Answer::Cleaned(said)) = answer {
                    let place = |name: &KnownAs| said.iter().position(|one| one == name);
                    names.sort_by_key(place);
                }
                Answer::Cleaned(names)
            }
        }
    }
}

impl Call for Remove {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let queue = self.queue.as_str();
        match &self.which {
            Which::Waiting => to(&Command::Drain { queue }),
            Which::Failed => to(&Command::PurgeFailed { queue }),
            Which::All => to(&Command::Obliterate { queue }),
            Which::Old { states, grace_ms, limit } => to(&Command::Clean(command::Clean {
                queue,
                grace_ms: *grace_ms,
                states,
                limit: *limit,
            })),
        }
    }

    fn judge(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let meant = self.meant(model, at.now_ms);
        let mut gone = meant.clone();
        if let Which::Old { limit, .. } = self.which {
            // Which ones go when not all may is the shard's choice.
            gone.retain(|&id| at.shard.find(id).is_none());
            let count = limit.min(meant.len() as u64);
            model.must(Check::State, gone.len() as u64 == count, || {
                format!("{self:?} removes {gone:?} of {meant:?}")
            });
        }
        let expected = self.expected(model, &gone, answer);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if matches!(self.which, Which::All) {
            model.pause(&self.queue, false);
            model.limit(at.now_ms, &self.queue, command::Limit::PerSecond(None));
            model.limit(at.now_ms, &self.queue, command::Limit::Active(None));
        }
        for id in gone {
            model.remove(id);
        }
    }
}

fn send(world: &mut World, client: usize, which: Which) {
    let queue = world.dice.pick(QUEUES);
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, Remove { queue: queue.into(), which });
}

/// A client removes what waits.
pub fn drain(world: &mut World, client: usize) {
    send(world, client, Which::Waiting);
}

/// A client empties a dead-letter queue.
pub fn purge(world: &mut World, client: usize) {
    send(world, client, Which::Failed);
}

/// A client removes a queue with all that belongs to it; not often, or little else would be seen.
pub fn obliterate(world: &mut World, client: usize) {
    if world.dice.one_in(3) {
        send(world, client, Which::All);
    }
}

/// A client removes some old jobs.
pub fn clean(world: &mut World, client: usize) {
    let dice = &mut world.dice;
    let all = [Found::Waiting, Found::Delayed, Found::Active, Found::Completed, Found::Failed];
    let states = if dice.one_in(3) {
        all.into_iter().filter(|&state| state != Found::Active).collect()
    } else {
        vec![dice.pick(&all)]
    };
    let grace_ms = dice.pick(&[0, 1, 500, 20_000]);
    let limit = dice.pick(&[1, 3, 1000]);
    send(world, client, Which::Old { states, grace_ms, limit });
}
