//! Commands that remove many jobs of a queue: Drain, `PurgeDlq`, Obliterate, Clean.

use super::{Answer, Call};
use crate::bulk_operations::Work;
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::rules::Rules;
use crate::world::{QUEUES, World};
use corq_shards::command::{self, Command};
use corq_shards::job::State as Found;
use corq_shards::queue::listing::Views;

/// Which jobs of a queue go.
#[derive(Clone, Debug)]
enum Which {
    Waiting,
    Pending,
    Failed,
    All,
    Old { states: Vec<Found>, views: Views, grace_ms: u64, limit: u64 },
}

/// A command that removes jobs.
#[derive(Clone, Debug)]
pub struct Remove {
    queue: String,
    which: Which,
}

impl Remove {
    /// Empties the dead-letter queue of `queue`.
    pub fn purge_of(queue: &str) -> Self {
        Self { queue: queue.into(), which: Which::Failed }
    }

    fn obliterate(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        model.pause(&self.queue, false);
        let groups = model.groups.keys().filter(|(queue, _)| *queue == self.queue).count();
        model.clear_groups(&self.queue);
        model.limit(at.now_ms, &self.queue, command::Limit::Rate(None));
        model.limit(at.now_ms, &self.queue, command::Limit::Active(None));
        model.rule(&self.queue, Rules::default());
        // A queue without jobs needs no long command, unless more groups have settings than a slice takes.
        let empty = model.of_queue(&self.queue).all(|job| job.state == crate::model::State::Gone);
        let in_slices = groups > 1 && answer.is_none();
        if empty && !in_slices {
            model.must(Check::Answer, answer == Some(&Answer::Done), || format!("{answer:?}"));
            return;
        }
        let detached = model.detach(&self.queue, at.request);
        model.begin_bulk(at, &detached, Work::Empty, u64::MAX);
    }
}

impl Call for Remove {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let queue = self.queue.as_str();
        match &self.which {
            Which::Waiting => to(&Command::Drain { queue }),
            Which::Failed => to(&Command::PurgeFailed { queue }),
            Which::All => to(&Command::Obliterate { queue }),
            Which::Pending => to(&Command::DrainAll { queue }),
            Which::Old { states, views, grace_ms, limit } => {
                let (grace_ms, limit) = (*grace_ms, *limit);
                let clean = command::Clean { queue, grace_ms, states, limit };
                if *views == Views::default() {
                    to(&Command::Clean(clean));
                } else {
                    to(&Command::CleanViews { clean, views: *views });
                }
            }
        }
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let drains = matches!(self.which, Which::Waiting | Which::Pending);
        let prioritized = matches!(&self.which, Which::Old { views, .. } if views.prioritized);
        let remove = |states: &[Found], grace_ms, named| Work::Remove {
            states: states.to_vec(),
            prioritized,
            grace_ms,
            named,
            drains,
        };
        let (work, limit) = match &self.which {
            Which::All => {
                self.obliterate(model, at, answer);
                return;
            }
            Which::Waiting => (remove(&[Found::Waiting], 0, false), u64::MAX),
            Which::Pending => (remove(&[Found::Waiting, Found::Delayed], 0, false), u64::MAX),
            Which::Failed => (remove(&[Found::Failed], 0, false), u64::MAX),
            Which::Old { states, views, grace_ms, limit } => {
                let mut states = states.clone();
                if views.paused && model.paused.contains(&*self.queue) {
                    states.push(Found::Waiting);
                }
                (remove(&states, *grace_ms, true), *limit)
            }
        };
        model.begin_bulk(at, &self.queue, work, limit);
    }
}

fn send(world: &mut World, client: usize, which: Which) {
    let queue = world.dice.pick(QUEUES);
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, Remove { queue: queue.into(), which });
}

/// A client removes what waits.
pub fn drain(world: &mut World, client: usize) {
    let which = if world.dice.one_in(2) { Which::Waiting } else { Which::Pending };
    send(world, client, which);
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
    let all = Found::ALL;
    let states = if dice.one_in(3) {
        all.into_iter().filter(|&state| state != Found::Active).collect()
    } else {
        vec![dice.pick(&all)]
    };
    let grace_ms = dice.pick(&[0, 1, 500, 20_000]);
    let limit = dice.pick(&[1, 3, 1000]);
    let views = Views { prioritized: dice.one_in(4), paused: dice.one_in(4) };
    send(world, client, Which::Old { states, views, grace_ms, limit });
}
