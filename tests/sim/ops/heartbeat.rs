//! `JobHeartbeat`, `JobHeartbeatB`, `ExtendLock` and `ExtendLocks`, also from other connections than the one that pulled.

use super::{Answer, Call};
use crate::check::Check;
use crate::client::Held;
use crate::job_rules::Moment;
use crate::model::{Model, State};
use crate::settings::Flaw;
use crate::world::World;
use corq_shards::command::{Beat, Command};

/// A sign of life for jobs of one shard, by a command for one or for many.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    jobs: Vec<(Held, Option<u32>)>,
    many: bool,
    /// Canary: the shard never hears it.
    deaf: bool,
}

fn beat((held, ttl_ms): &(Held, Option<u32>)) -> Beat {
    Beat { job: held.job, token: held.token, ttl_ms: *ttl_ms }
}

impl Call for Heartbeat {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let first = &self.jobs[0];
        if self.many {
            let beats = self.jobs.iter().filter(|_| !self.deaf);
            let beats: Vec<_> = beats.map(beat).collect();
            to(&Command::Heartbeats { beats: &beats });
        } else {
            to(&Command::Heartbeat(beat(first)));
        }
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let mut alive = 0;
        let mut gone = Vec::new();
        let mut expected = Answer::Done;
        for (place, (held, ttl_ms)) in self.jobs.iter().enumerate() {
            match model.held(at.now_ms, held.job, held.token) {
                Err(refusal) => {
                    gone.push(place);
                    expected = Answer::Refused { place: 0, refusal };
                }
                Ok(()) => {
                    alive += 1;
                    let State::Active(lease) = &mut model.change(held.job).state else { continue };
                    lease.seen_at_ms = at.now_ms;
                    lease.expires_at_ms = at.now_ms + ttl_ms.map_or(lease.ttl_ms, u64::from);
                    if held.token.is_some() && lease.client != Some(at.client) {
                        lease.client = None;
                    }
                }
            }
        }
        if self.many {
            expected =
                if gone.is_empty() { Answer::Count(alive) } else { Answer::Gone(alive, gone) };
        }
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("a heartbeat was answered {answer:?}, not {expected:?}")
        });
    }
}

/// For how long a job is held this once, if not for its usual time.
fn ttl(world: &mut World) -> Option<u32> {
    world.dice.pick(&[None, None, Some(1), Some(600), Some(45_000)])
}

/// A client shows life for a job, its own or another's.
pub fn act(world: &mut World, client: usize) {
    let Some(held) = world.see_held(client) else { return };
    let jobs = vec![(held, ttl(world))];
    world.send(client, held.shard, Heartbeat { jobs, many: false, deaf: false });
}

/// A client shows life for many jobs of one shard.
pub fn act_on_many(world: &mut World, client: usize) {
    let Some(first) = world.see_held(client) else { return };
    let more = (0..world.dice.below(4)).filter_map(|_| world.see_held(client));
    let more: Vec<Held> = more.filter(|held| held.shard == first.shard).collect();
    let held: Vec<Held> = std::iter::once(first).chain(more).collect();
    let jobs = held.into_iter().map(|held| (held, ttl(world))).collect();
    let deaf = world.settings.has(Flaw::DeafHeartbeat);
    world.send(client, first.shard, Heartbeat { jobs, many: true, deaf });
}
