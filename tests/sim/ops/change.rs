//! Changes of one job by its id, by any client: Cancel, Remove, Promote, `ChangePriority`, `MoveToDelayed`,
//! `MoveToWait`, `ChangeDelay`, Discard, `RemoveDlqJob`.

use super::{Answer, Call};
use crate::check::Check;
use crate::events::EventStep;
use crate::job_rules::Moment;
use crate::model::{Job, Model, State};
use crate::world::{QUEUES, World};
use corq_shards::command::{Command, Token};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::effect::Refusal;
use corq_shards::job::State as Found;
use corq_shards::job::change;
use corq_shards::job::id::JobId;

/// Why a job failed that is said to have failed elsewhere.
const ELSEWHERE: &str = "failed elsewhere";

/// A change of a job.
#[derive(Clone, Copy, Debug)]
enum What {
    Cancel,
    Remove,
    Promote,
    Prioritize(i32, Option<bool>),
    PutOff(u64, Option<Token>),
    ToWait(Option<Token>),
    Delay(u64, Option<Token>),
    Discard(Option<Token>),
    Bury(Option<Token>, Cause, Option<u16>),
}

/// A command on one job.
#[derive(Clone, Debug)]
pub struct Change {
    job: JobId,
    what: What,
}

impl What {
    fn token(self) -> Option<Token> {
        match self {
            Self::PutOff(_, token)
            | Self::ToWait(token)
            | Self::Delay(_, token)
            | Self::Discard(token)
            | Self::Bury(token, ..) => token,
            Self::Cancel | Self::Remove | Self::Promote | Self::Prioritize(..) => None,
        }
    }

    /// Whether it can be done to a job, or why not.
    fn verdict(self, model: &Model, now_ms: u64, job: Option<&Job>) -> Result<(), Refusal> {
        let state = job.map_or(&State::Gone, |job| &job.state);
        // Needed by none, but one that is shown must be that of a living lock.
        if let (State::Active(lease), Some(shown)) = (state, self.token())
            && (lease.token != Some(shown) || now_ms >= lease.expires_at_ms)
        {
            return Err(Refusal::TokenInvalid);
        }
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
            (Self::Remove, state) => {
                (!matches!(state, State::Gone | State::Active(_)), Refusal::NotCancellable)
            }
            (Self::Promote, state) => (*state == State::Delayed, Refusal::NotDelayed),
            (Self::Prioritize(..), state) => {
                (matches!(state, State::Waiting | State::Delayed), Refusal::NotPending)
            }
            // A worker whose hold has run out has the job no longer.
            (Self::PutOff(..), state) => {
                let queued = matches!(state, State::Waiting | State::Delayed);
                (queued || job.is_some_and(is_held), Refusal::NotActive)
            }
            (Self::ToWait(_), state) => {
                let movable = !matches!(
                    state,
                    State::Gone | State::Completed { .. } | State::WaitingChildren
                );
                (movable, Refusal::NotMovable)
            }
            (Self::Delay(..), state) => {
                let fits = matches!(state, State::Waiting | State::Delayed | State::Active(_));
                (fits, Refusal::NotDelayable)
            }
            (Self::Discard(_) | Self::Bury(..), state) => {
                (*state != State::Gone, Refusal::NotFound)
            }
        };
        if fits { Ok(()) } else { Err(refusal) }
    }
}

impl Call for Change {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let change = match self.what {
            What::Cancel => change::Change::Cancel,
            What::Remove => change::Change::Remove,
            What::Promote => change::Change::Promote,
            What::Prioritize(priority, lifo) => change::Change::Prioritize { priority, lifo },
            What::PutOff(delay_ms, token) => change::Change::PutOff { delay_ms, token },
            What::ToWait(token) => change::Change::ToWait { token },
            What::Delay(delay_ms, token) => change::Change::Delay { delay_ms, token },
            What::Discard(token) => change::Change::Discard { token },
            What::Bury(token, cause, attempts) => {
                change::Change::Bury { token, cause, error: ELSEWHERE, attempts }
            }
        };
        to(&Command::Change { job: self.job, change });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
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
            What::Discard(_) => model.discard(at.now_ms, self.job, "Job discarded"),
            What::Bury(_, cause, attempts) => {
                let before = model.jobs[&self.job].clone();
                if matches!(before.state, State::Failed { .. }) {
                    return;
                }
                model.discard(at.now_ms, self.job, ELSEWHERE);
                let job = model.change(self.job);
                job.attempts = attempts.unwrap_or_default().max(before.attempts);
                if let State::Failed { cause: listed, .. } = &mut job.state {
                    *listed = cause;
                }
            }
            What::Cancel | What::Remove => model.remove(self.job),
            What::Prioritize(priority, lifo) => {
                let job = model.change(self.job);
                (job.priority, job.lifo) = (priority, lifo.unwrap_or(job.lifo));
            }
            What::Promote => {
                model.claimed.insert(self.job);
                model.promote(at.now_ms, self.job);
            }
            What::ToWait(_) => self.let_wait(model, at),
            What::PutOff(delay_ms, _) | What::Delay(delay_ms, _) => {
                if matches!(model.jobs[&self.job].state, State::Active(_)) {
                    model.renew_life(at.now_ms, self.job);
                }
                let job = model.change(self.job);
                job.run_at_ms = at.now_ms + delay_ms;
                job.state = if delay_ms > 0 { State::Delayed } else { State::Waiting };
                model.tell_delay(at.now_ms, self.job);
            }
        }
    }
}

impl Change {
    fn let_wait(&self, model: &mut Model, at: &Moment<'_>) {
        // Else it might go at once.
        if matches!(model.jobs[&self.job].state, State::Delayed | State::Active(_)) {
            model.renew_life(at.now_ms, self.job);
        }
        match model.jobs[&self.job].state {
            State::Delayed => {
                model.claimed.insert(self.job);
                model.promote(at.now_ms, self.job);
            }
            State::Failed { .. } => {
                model.claimed.insert(self.job);
                model.revive(at.now_ms, self.job);
            }
            // Where it stood before, with its attempts as they are.
            State::Active(_) => {
                model.note_event(self.job, EventStep::Retried(Found::Active));
                model.change(self.job).state = State::Waiting;
            }
            _ => {}
        }
    }

    /// Sends a job to the dead-letter queue.
    pub fn discard_one(job: JobId) -> Self {
        Self { job, what: What::Discard(None) }
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

/// A client removes a job, ended or not.
pub fn remove(world: &mut World, client: usize) {
    let idle = |state: &State| !matches!(state, State::Gone | State::Active(_));
    send(world, client, What::Remove, idle);
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
    if let Some((shard, job)) = pick(world, |state| matches!(state, State::Active(_))) {
        let delay_ms = world.dice.pick(&[0, 1, 300, 6000]);
        let what = What::PutOff(delay_ms, token_for(world, shard, job));
        world.send(client, shard, Change { job, what });
    }
}

/// The token that a client shows for a job: mostly none, or that of its worker, or an earlier one, or one that never
/// was.
fn token_for(world: &mut World, shard: usize, job: JobId) -> Option<Token> {
    let model = &world.nodes[shard].model;
    let right = model.jobs.get(&job).and_then(|job| match &job.state {
        State::Active(lease) => lease.token,
        _ => None,
    });
    let earlier = world.stale.iter().rev().find(|held| held.job == job).and_then(|held| held.token);
    world.dice.pick(&[None, None, right, right, earlier, Some(Token(7))])
}

/// A client lets a job wait, wherever it is.
pub fn to_wait(world: &mut World, client: usize) {
    let movable =
        |state: &State| matches!(state, State::Active(_) | State::Delayed | State::Failed { .. });
    if let Some((shard, job)) = pick(world, movable) {
        let what = What::ToWait(token_for(world, shard, job));
        world.send(client, shard, Change { job, what });
    }
}

/// A client gives a job another delay, or one.
pub fn delay(world: &mut World, client: usize) {
    let fits = |state: &State| matches!(state, State::Active(_) | State::Delayed | State::Waiting);
    if let Some((shard, job)) = pick(world, fits) {
        let delay_ms = world.dice.pick(&[0, 1, 250, 7000]);
        let what = What::Delay(delay_ms, token_for(world, shard, job));
        world.send(client, shard, Change { job, what });
    }
}

/// A `RemoveDlqJob` of one job.
#[derive(Clone, Debug)]
struct Bin {
    job: JobId,
    queue: String,
}

impl Call for Bin {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        to(&Command::Change { job: self.job, change: change::Change::Bin { queue: &self.queue } });
    }

    fn check(&self, model: &mut Model, _at: &Moment<'_>, answer: Option<&Answer>) {
        let job = model.jobs.get(&self.job).filter(|job| job.queue_name() == self.queue);
        let dead = job.is_some_and(|job| matches!(job.state, State::Failed { .. }));
        let expected = Answer::Count(u64::from(dead));
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if dead {
            model.remove(self.job);
        }
    }
}

/// A client removes one job of a dead-letter queue; now and then of one that it does not lie in.
pub fn bin(world: &mut World, client: usize) {
    if let Some((shard, job)) = pick(world, |state| matches!(state, State::Failed { .. })) {
        let other = world.dice.one_in(6).then(|| world.dice.pick(QUEUES));
        let own = world.nodes[shard].model.jobs[&job].queue_name();
        let queue = other.unwrap_or(own).to_owned();
        world.send(client, shard, Bin { job, queue });
    }
}

/// A client sends a job to the dead-letter queue.
pub fn discard(world: &mut World, client: usize) {
    if let Some((shard, job)) = pick(world, |state| *state != State::Gone) {
        let token = token_for(world, shard, job);
        let max_attempts = world.nodes[shard].model.jobs[&job].max_attempts;
        let attempts = world.dice.one_in(2).then(|| world.dice.below(u64::from(max_attempts) + 1));
        let what = if world.dice.one_in(2) {
            What::Discard(token)
        } else {
            let cause = world.dice.pick(&[Cause::Unknown, Cause::Explicit, Cause::Attempts]);
            What::Bury(token, cause, attempts.map(|attempts| attempts as u16))
        };
        world.send(client, shard, Change { job, what });
    }
}
