//! FAIL, with and without the word that no other attempt can succeed.

use super::{Answer, Call};
use crate::check::Check;
use crate::client::Held;
use crate::events::EventStep;
use crate::job_rules::Moment;
use crate::model::Model;
use crate::world::World;
use corq_shards::command::{self, Command};
use corq_shards::dead_letter::reason::Cause;

/// FAIL of a held job.
#[derive(Clone, Debug)]
pub struct Fail {
    held: Held,
    unrecoverable: bool,
    remove: bool,
}

impl Call for Fail {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Fail(command::Fail {
            job: self.held.job,
            token: self.held.token,
            error: "no",
            unrecoverable: self.unrecoverable,
            remove: self.remove,
            ..command::Fail::default()
        }));
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let held = model.held(at.now_ms, self.held.job, self.held.token);
        let expected =
            held.map_or_else(|refusal| Answer::Refused { place: 0, refusal }, |()| Answer::Done);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("a fail was answered {answer:?}, not {expected:?}")
        });
        if answer == Some(&Answer::Done) && model.jobs.contains_key(&self.held.job) {
            if self.remove {
                model.change(self.held.job).remove_on_fail = true;
            }
            if self.unrecoverable {
                model.note_event(self.held.job, EventStep::Failed("no".into(), true));
                model.bury(at.now_ms, self.held.job, false, Cause::Explicit);
            } else {
                model.fail_attempt(at, self.held.job, Cause::Attempts);
            }
        }
    }
}

/// A client fails a job it holds, or held.
pub fn act(world: &mut World, client: usize) {
    let Some(held) = world.take_held(client) else { return };
    let unrecoverable = world.dice.one_in(8);
    let remove = world.dice.one_in(10);
    world.send(client, held.shard, Fail { held, unrecoverable, remove });
}
