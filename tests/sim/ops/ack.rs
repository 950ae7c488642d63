//! ACK and ACKB: one job; many jobs of one shard; many of several, checked everywhere first.

use super::{Answer, Call, Learned};
use crate::check::Check;
use crate::client::Held;
use crate::family::result_of;
use crate::job_rules::Moment;
use crate::ledger::Promise;
use crate::model::Model;
use crate::world::World;
use corq_shards::command::{self, Command, Token};
use corq_shards::effect::Refusal;
use corq_shards::job::id::JobId;

/// A completion of one job.
#[derive(Clone, Copy, Debug)]
pub struct One {
    pub job: JobId,
    pub token: Option<Token>,
    pub shard: usize,
    /// Nothing is to be left of it, whatever it was pushed with.
    pub remove: bool,
}

/// Completions on one shard.
#[derive(Clone, Debug)]
pub struct Ack {
    pub acks: Vec<One>,
    /// Only asks whether they could be carried out, for this task.
    pub check_for: Option<u64>,
}

/// A command on several shards, while they are asked whether it can be carried out.
#[derive(Debug)]
pub struct Checking {
    pub client: u64,
    pub acks: Vec<One>,
    pub left: usize,
    pub refused: bool,
}

impl Ack {
    fn verdict(&self, model: &Model, now_ms: u64) -> Answer {
        let mut late = Vec::new();
        for (place, ack) in self.acks.iter().enumerate() {
            // A completion that comes too late takes nothing away from a later attempt in the same command.
            let twice = self.acks[..place].iter().any(|earlier| {
                earlier.job == ack.job && model.held(now_ms, earlier.job, earlier.token).is_ok()
            });
            let held = model.held(now_ms, ack.job, ack.token);
            let verdict = held.and(if twice { Err(Refusal::NotActive) } else { Ok(()) });
            match verdict {
                Err(Refusal::TooLate) if self.acks.len() > 1 || self.check_for.is_some() => {
                    late.push(place);
                }
                Err(refusal) => return Answer::Refused { place, refusal },
                Ok(()) => {}
            }
        }
        if late.is_empty() { Answer::Done } else { Answer::Late(late) }
    }
}

impl Ack {
    /// Completions that were carried out.
    fn applied(&self, answer: Option<&Answer>) -> impl Iterator<Item = &One> {
        let late = match answer {
            Some(Answer::Done) => Some(&[][..]),
            Some(Answer::Late(places)) => Some(&places[..]),
            _ => None,
        };
        let acks = self.acks.iter().enumerate();
        acks.filter(move |(place, _)| late.is_some_and(|late| !late.contains(place))).map(|it| it.1)
    }
}

impl Call for Ack {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let results: Vec<[u8; 18]> = self.acks.iter().map(|one| result_of(one.job)).collect();
        let acks: Vec<command::Ack<'_>> = (self.acks.iter().zip(&results))
            .map(|(&One { job, token, remove, .. }, result)| command::Ack {
                job,
                token,
                result,
                remove,
            })
            .collect();
        match self.check_for {
            Some(_) => to(&Command::CheckAcks { acks: &acks }),
            None => to(&Command::Ack { acks: &acks }),
        }
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let expected = self.verdict(model, at.now_ms);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("an ack was answered {answer:?}, not {expected:?}")
        });
        if self.check_for.is_some() {
            return;
        }
        for ack in self.applied(answer) {
            if model.jobs.contains_key(&ack.job) {
                if ack.remove {
                    model.change(ack.job).remove_on_complete = true;
                }
                model.complete(at, ack.job);
            }
        }
    }

    /// The next run of a repeated job is delivered before the next ack is looked at.
    fn is_stepwise(&self) -> bool {
        self.check_for.is_none()
    }

    fn learn(&self, world: &mut World, learned: &Learned<'_>) {
        if let Some(task) = self.check_for {
            world.checked(task, matches!(learned.answer, Answer::Done | Answer::Late(_)));
        } else {
            for ack in self.applied(Some(learned.answer)) {
                let promise = Promise { shard: learned.shard, durable: false };
                world.ledger.done.insert(ack.job, promise);
            }
        }
    }
}

fn one(world: &mut World, held: Held) -> One {
    let remove = world.dice.one_in(10);
    One { job: held.job, token: held.token, shard: held.shard, remove }
}

/// A client completes one job it holds, or held.
pub fn act(world: &mut World, client: usize) {
    let Some(held) = world.take_held(client) else { return };
    let one = one(world, held);
    world.send(client, held.shard, Ack { acks: vec![one], check_for: None });
}

/// A client completes several jobs at once.
pub fn act_on_many(world: &mut World, client: usize) {
    let count = 2 + world.dice.below(4);
    let mut acks: Vec<One> = (0..count)
        .filter_map(|_| world.take_held(client))
        .collect::<Vec<Held>>()
        .into_iter()
        .map(|held| one(world, held))
        .collect();
    let Some(&first) = acks.first() else { return };
    if world.dice.one_in(10) {
        acks.push(first);
    }
    if acks.iter().all(|ack| ack.shard == first.shard) {
        world.send(client, first.shard, Ack { acks, check_for: None });
    } else {
        world.check_everywhere(client, acks);
    }
}
