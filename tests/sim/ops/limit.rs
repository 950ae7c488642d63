//! `RateLimit`, `SetConcurrency`, and the end of both.

use super::{Answer, Call};
use crate::check::Check;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::{QUEUES, World};
use corq_shards::command::{self, Command, PerSpan};

/// A limit of a queue.
#[derive(Clone, Debug)]
pub struct Limit {
    pub queue: String,
    pub limit: command::Limit,
}

impl Call for Limit {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Limit { queue: &self.queue, limit: self.limit });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        model.must(Check::Answer, answer == Some(&Answer::Done), || format!("{answer:?}"));
        model.limit(at.now_ms, &self.queue, self.limit);
    }
}

/// A client limits a queue, or ends a limit.
pub fn act(world: &mut World, client: usize) {
    let dice = &mut world.dice;
    let queue = dice.pick(QUEUES);
    let limit = if dice.one_in(2) {
        command::Limit::Rate(
            dice.pick(&[None, Some(1), Some(2), Some(5), Some(30)]).map(PerSpan::per_second),
        )
    } else {
        command::Limit::Active(dice.pick(&[None, None, Some(1), Some(2), Some(6)]))
    };
    let shard = world.shard_of_queue(queue);
    world.send(client, shard, Limit { queue: queue.into(), limit });
}
