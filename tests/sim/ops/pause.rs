//! Pause and Resume.

use super::{Answer, Call};
use crate::check::Check;
use crate::events::EventStep;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::{QUEUES, World};
use corq_shards::command::Command;

/// Pause or Resume of a queue.
#[derive(Clone, Debug)]
pub struct Pause {
    pub queue: String,
    pub paused: bool,
}

impl Call for Pause {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Pause { queue: &self.queue, paused: self.paused });
    }

    fn check(&self, model: &mut Model, _at: &Moment<'_>, answer: Option<&Answer>) {
        model.must(Check::Answer, answer == Some(&Answer::Done), || format!("{answer:?}"));
        if model.paused.contains(&self.queue) != self.paused {
            let step = if self.paused { EventStep::Paused } else { EventStep::Resumed };
            model.note_queue_event(&self.queue, step);
        }
        model.pause(&self.queue, self.paused);
    }
}

/// A client stops or resumes a queue.
pub fn act(world: &mut World, client: usize) {
    let paused = world.dice.one_in(3);
    let pause = Pause { queue: world.dice.pick(QUEUES).into(), paused };
    let shard = world.shard_of_queue(&pause.queue);
    world.send(client, shard, pause);
}
