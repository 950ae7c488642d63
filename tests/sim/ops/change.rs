//! What is done to one job by its id, whoever has it: Cancel, Promote, `ChangePriority`,
//! `MoveToDelayed`, Discard.

use super::{Answer, Call};
use crate::check::Check;
use crate::judge::Moment;
use crate::model::{Job, Model, State};
use crate::world::{QUEUES, World};
use corq_shards::change;
use corq_shards::command::Command;
use corq_shards::effect::Refusal;
use corq_shards::id::JobId;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
enum What {
    Cancel,
    Promote,
    Prioritize(i32, Option<bool>),
    PutOff(u64),
    Discard,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Change {
    job: JobId,
    what: What,
}

impl What {
    /// Whether it can be done to a job, or why not.
    fn verdict(self, model: &Model, now_ms: u64, job: Option<&Job>) -> Result<(), Refusal> {
        let state = job.map_or(&State::Gone, |job| &job.state);
        let is_held = |job: &Job| match &job.state {
            State::Active(lease) => now_ms < model.hold_ends_ms(job, lease),
            _ => false,
        };
        let (fits, refusal) = match (self, state) {
            (Self::Cancel, state) => {
                let pending =
                    matches!(state, State::Waiting | State::Delayed | State::WaitingChildren);
                (pending, Refusal::NotCancellable)
            }
            (Self::Promote, state) => (*state == State::Delayed, Refusal::NotDelayed),
            (Self::Prioritize(..), state) => {
                (matches!(state, State::Waiting | State::Delayed), Refusal::NotPending)
            }
            // A worker whose hold has run out has the job no longer.
            (Self::PutOff(_), _) => (job.is_some_and(is_held), Refusal::NotActive),
            (Self::Discard, state) => (*state != State::Gone, Refusal::NotFound),
        };
        if fits { Ok(()) } else { Err(refusal) }
    }
}

impl Call for Change {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let change = match self.what {
            What::Cancel => change::Change::Cancel,
            What::Promote => change::Change::Promote,
            What::Prioritize(priority, lifo) => change::Change::Prioritize { priority, lifo },
            What::PutOff(delay_ms) => change::Change::PutOff { delay_ms, token: None },
            What::Discard => change::Change::Discard { token: None },
        };
        to(&Command::Change { job: self.job, change });
    }

    fn judge(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let verdict = self.what.verdict(model, at.now_ms, model.jobs.get(&self.job));
        let expected =
            verdict.map_or_else(|refusal| Answer::Refused { place: 0, refusal }, |()| Answer::Done);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if verdict.is_err() {
            return;
        }
        match self.what {
            What::Discard => model.discard(at.now_ms, self.job),
            What::Cancel => model.remove(self.job),
            What::Prioritize(priority, lifo) => {
                let job = model.change(self.job);
                (job.priority, job.lifo) = (priority, lifo.unwrap_or(job.lifo));
            }
            What::Promote => {
                let job = model.change(self.job);
                (job.state, job.run_at_ms) = (State::Waiting, at.now_ms);
            }
            What::PutOff(delay_ms) => {
                let job = model.change(self.job);
                job.run_at_ms = at.now_ms + delay_ms;
                job.state = if delay_ms > 0 { State::Delayed } else { State::Waiting };
            }
        }
    }
}

impl Change {
    /// Sends a job to the dead-letter queue.
    pub fn discard_one(job: JobId) -> Self {
        Self { job, what: What::Discard }
    }
}

/// A job to do something to: mostly one that `fits`, now and then any, even one that is gone.
pub fn pick(world: &mut World, fits: fn(&State) -> bool) -> Option<(usize, JobId)> {
    let queue = world.dice.pick(QUEUES);
    let shard = world.shard_of_queue(queue);
    let any = world.dice.one_in(5);
    let jobs = world.nodes[shard].model.of_queue(queue);
    let jobs: Vec<JobId> = jobs.filter(|job| any || fits(&job.state)).map(|job| job.id).collect();
    (!jobs.is_empty()).then(|| (shard, world.dice.pick(&jobs)))
}

fn send(world: &mut World, client: usize, what: What, fits: fn(&State) -> bool) {
    if let Some((shard, job)) = pick(world, fits) {
        world.send(client, shard, Change { job, what });
    }
}

/// A client cancels a job.
pub fn cancel(world: &mut World, client: usize) {
    let pending =
        |state: &State| matches!(state, State::Waiting | State::Delayed | State::WaitingChildren);
    send(world, client, What::Cancel, pending);
}

/// A client ends a delay.
pub fn promote(world: &mut World, client: usize) {
    send(world, client, What::Promote, |state| *state == State::Delayed);
}

/// A client gives a job another priority.
pub fn prioritize(world: &mut World, client: usize) {
    let lifo = world.dice.pick(&[None, None, Some(true), Some(false)]);
    let what = What::Prioritize(world.dice.pick(&[-5, 0, 2, 7]), lifo);
    send(world, client, what, |state| matches!(state, State::Waiting | State::Delayed));
}

/// A client puts a job off that some worker has.
pub fn put_off(world: &mut World, client: usize) {
    let what = What::PutOff(world.dice.pick(&[0, 1, 300, 6000]));
    send(world, client, what, |state| matches!(state, State::Active(_)));
}

/// A client sends a job to the dead-letter queue.
pub fn discard(world: &mut World, client: usize) {
    send(world, client, What::Discard, |state| *state != State::Gone);
}
