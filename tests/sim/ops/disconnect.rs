//! The end of a connection: what it held goes back, and a new one takes its place.

use super::{Answer, Call};
use crate::job_rules::Moment;
use crate::model::{Model, State};
use crate::world::World;
use corq_shards::command::Command;
use corq_shards::job::id::JobId;

/// A client disconnects.
#[derive(Clone, Debug)]
pub struct Disconnect;

impl Call for Disconnect {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Disconnect);
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, _answer: Option<&Answer>) {
        model.waiters.retain(|waiter| waiter.client != at.client);
        model.awaits.retain(|wait| wait.client != at.client);
        let its = |state: &State| matches!(state, State::Active(lease) if lease.client == Some(at.client));
        let held: Vec<JobId> =
            model.jobs.values().filter(|job| its(&job.state)).map(|job| job.id).collect();
        for id in held {
            model.change(id).state = State::Waiting;
            model.fresh.insert(id, None);
        }
    }

    fn is_answered(&self) -> bool {
        false
    }

    fn is_stepwise(&self) -> bool {
        true
    }
}

/// A client's connection breaks. Its worker may still answer for its jobs, over the next one.
pub fn act(world: &mut World, client: usize) {
    for shard in 0..world.nodes.len() {
        world.send(client, shard, Disconnect);
    }
    world.reconnect(client);
}
