//! Who waits for the end of a job, in the model, and what ended in this call.

use super::check::Check;
use super::compare::found;
use super::events::EventStep;
use super::model::{Model, State};
use super::ops::Answer;
use corq_shards::effect::Ending;
use corq_shards::job::id::JobId;

/// How a job came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Completed,
    Failed,
    Removed,
}

/// A client's wait for the end of a job.
#[derive(Clone, Debug)]
pub struct Await {
    pub request: u64,
    pub client: u64,
    pub job: JobId,
    pub until_ms: u64,
}

impl End {
    /// The end that an answer tells of.
    pub fn of_answer(answer: &Answer) -> Option<Self> {
        Some(match answer {
            Answer::Ended(Ending::Completed(_)) => Self::Completed,
            Answer::Ended(Ending::Failed(_)) => Self::Failed,
            Answer::Ended(Ending::Removed) => Self::Removed,
            _ => return None,
        })
    }

    /// The end that a job has come to, if it has and is still known.
    pub fn of(state: &State) -> Option<Self> {
        match state {
            State::Completed { .. } => Some(Self::Completed),
            State::Failed { .. } => Some(Self::Failed),
            _ => None,
        }
    }
}

impl Model {
    /// A job goes before it was completed or has failed for good.
    pub fn remove(&mut self, id: JobId) {
        if let Some(prev) = found(&self.jobs[&id].state) {
            self.note_event(id, EventStep::Removed(prev));
        }
        self.change(id).state = State::Gone;
        self.ends.insert(id, End::Removed);
    }

    /// The waits that end with a call: each gets the outcome of its job, and only when there is one.
    pub fn check_awaits(&mut self, now_ms: u64, by_clock: bool, answers: &[(u64, Answer)]) {
        for (request, answer) in answers {
            let Some(place) = self.awaits.iter().position(|one| one.request == *request) else {
                continue;
            };
            let wait = self.awaits.remove(place);
            let end = self.ends.get(&wait.job).copied();
            let fits = match answer {
                // A lock can end late and the life of its job with it, right after the wait.
                Answer::Unended if by_clock && end == Some(End::Removed) => wait.until_ms <= now_ms,
                Answer::Unended => end.is_none() && wait.until_ms <= now_ms,
                answer => end.is_some() && End::of_answer(answer) == end,
            };
            self.must(Check::Answer, fits, || format!("{wait:?} of {end:?} learns {answer:?}"));
        }
        for wait in &self.awaits {
            self.must(Check::Answer, !self.ends.contains_key(&wait.job), || {
                format!("{wait:?} does not hear of the end")
            });
            self.must(Check::Overdue, !by_clock || wait.until_ms > now_ms, || {
                format!("{wait:?} waits too long")
            });
        }
    }
}
