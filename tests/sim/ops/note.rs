//! Progress, `AddLog` and `ClearLogs`.

use super::{Answer, Call};
use crate::check::Check;
use crate::events::EventStep;
use crate::job_rules::Moment;
use crate::model::{Job, Model, State};
use crate::ops::change::pick;
use crate::world::World;
use corq_shards::command::Command;
use corq_shards::effect::Refusal;
use corq_shards::job::change;
use corq_shards::job::id::JobId;
use corq_shards::job::progress::LOGS_MAX;
use corq_shards::log_record::job_change::Level;

/// Which kind of note.
#[derive(Clone, Debug)]
enum What {
    Progress(f64, Option<String>),
    Log(Level, String),
    Cut(u32),
}

/// Progress or a log line of a job.
#[derive(Clone, Debug)]
pub struct Note {
    job: JobId,
    what: What,
}

impl Note {
    fn verdict(&self, model: &Model, now_ms: u64) -> Result<(), Refusal> {
        let job = model.jobs.get(&self.job);
        let state = job.map_or(&State::Gone, |job| &job.state);
        let is_held = |job: &Job| match &job.state {
            State::Active(lease) => now_ms < model.hold_ends_ms(job, lease),
            _ => false,
        };
        match (&self.what, state) {
            (What::Progress(..), _) if job.is_some_and(is_held) => Ok(()),
            (What::Progress(..), _) => Err(Refusal::NotActive),
            (What::Log(..) | What::Cut(_), State::Gone) => Err(Refusal::NotFound),
            (What::Log(..) | What::Cut(_), _) => Ok(()),
        }
    }
}

impl Call for Note {
    fn give(&self, to: &mut dyn FnMut(&Command<'_>)) {
        let change = match &self.what {
            What::Progress(progress, message) => change::Change::Progress {
                progress: *progress,
                message: message.as_deref().map(str::as_bytes),
            },
            What::Log(level, message) => change::Change::Log { level: *level, message },
            What::Cut(keep) => change::Change::CutLog(*keep),
        };
        to(&Command::Change { job: self.job, change });
    }

    fn check(&self, model: &mut Model, at: &Moment<'_>, answer: Option<&Answer>) {
        let verdict = self.verdict(model, at.now_ms);
        let expected =
            verdict.map_or_else(|refusal| Answer::Refused { place: 0, refusal }, |()| Answer::Done);
        model.must(Check::Answer, answer == Some(&expected), || {
            format!("{self:?} was answered {answer:?}, not {expected:?}")
        });
        if verdict.is_err() {
            return;
        }
        if let What::Progress(progress, _) = self.what {
            model.note_event(self.job, EventStep::Progress(progress));
        }
        let job = model.change(self.job);
        match &self.what {
            What::Progress(progress, message) => {
                (job.notes.progress, job.notes.message) = (*progress, message.clone());
                if let State::Active(lease) = &mut job.state {
                    lease.seen_at_ms = at.now_ms;
                    lease.expires_at_ms = at.now_ms + lease.ttl_ms;
                }
            }
            What::Log(level, message) => {
                job.notes.logs.push_back((at.now_ms, *level, message.clone()));
                let most =
                    job.extras.keep_logs.map_or(LOGS_MAX, |most| LOGS_MAX.min(most as usize));
                if job.notes.logs.len() > most {
                    job.notes.logs.pop_front();
                }
            }
            What::Cut(keep) => {
                let surplus = job.notes.logs.len().saturating_sub(*keep as usize);
                job.notes.logs.drain(..surplus);
            }
        }
    }
}

/// A client tells how far a job is.
pub fn progress(world: &mut World, client: usize) {
    let Some((shard, job)) = pick(world, |state| matches!(state, State::Active(_))) else { return };
    let progress = world.dice.pick(&[0.0, 0.1, 50.0, 100.0]);
    let message = world.dice.one_in(2).then(|| format!("at {}", world.now_ms));
    world.send(client, shard, Note { job, what: What::Progress(progress, message) });
}

/// A client forgets what is in the log of a job, but for the newest lines.
pub fn cut(world: &mut World, client: usize) {
    let Some((shard, job)) = pick(world, |state| *state != State::Gone) else { return };
    let what = What::Cut(world.dice.pick(&[0, 0, 1, 2, 1000]));
    world.send(client, shard, Note { job, what });
}

/// A client adds to the log of a job, now and then more than is kept.
pub fn log(world: &mut World, client: usize) {
    let Some((shard, job)) = pick(world, |state| *state != State::Gone) else { return };
    let lines = if world.dice.one_in(30) { LOGS_MAX as u64 + 3 } else { 1 };
    for line in 0..lines {
        let level = world.dice.pick(&[Level::Info, Level::Warn, Level::Error]);
        let what = What::Log(level, format!("line {line}"));
        world.send(client, shard, Note { job, what });
    }
}
