//! Tells the server what became of jobs: many with one command, again if the answer was lost, until each was taken
//! or refused.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::events::{WorkerEvent, count};
use super::shared::{Held, Shared};
use crate::error::Error;
use crate::net::dial::Backoff;
use crate::pulled::{Applied, Failure, ack_request};
use crate::raw::Raw;
use crate::records::JobState;
use crate::wire::reply::Reply;
use crate::wire::request::Request;

/// Outcomes that may wait; handlers beyond them wait for room.
pub(crate) const WAITING_MAX: usize = 1024;

/// Commands that may be under way at a time.
const IN_FLIGHT_MAX: usize = 4;

/// Bytes of results from which on a batch leaves.
const BYTES_MAX: usize = 1 << 20;

/// How an attempt went.
#[derive(Debug)]
pub(crate) enum What {
    Completed(Raw),
    Failed(Failure),
}

/// How the attempt on a job went.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) held: Arc<Held>,
    pub(crate) what: What,
    /// Whether it was told before, and what came of that is not known.
    pub(crate) resent: bool,
}

impl Outcome {
    fn result(&self) -> Option<&Raw> {
        match &self.what {
            What::Completed(result) => Some(result),
            What::Failed(_) => None,
        }
    }

    fn request(&self) -> Request {
        let (id, token) = (&self.held.job.id, &self.held.token);
        match &self.what {
            What::Completed(result) => ack_request(id, token, result),
            What::Failed(failure) => failure.request(id, Some(token)),
        }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, mut outcomes: mpsc::Receiver<Outcome>) {
    let lanes = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    let mut under_way = JoinSet::new();
    loop {
        // Outcomes that come while all lanes are taken gather in the channel, and leave as one batch.
        let lane = lanes.clone().acquire_owned().await;
        let Some(first) = outcomes.recv().await else { break };
        let batch = gather(first, &mut outcomes, &shared).await;
        while under_way.try_join_next().is_some() {}
        let shared = shared.clone();
        under_way.spawn(async move {
            let _lane = lane;
            tell(shared, batch).await;
        });
    }
    while under_way.join_next().await.is_some() {}
}

async fn gather(
    first: Outcome,
    outcomes: &mut mpsc::Receiver<Outcome>,
    shared: &Shared,
) -> Vec<Outcome> {
    let size = |outcome: &Outcome| outcome.result().map_or(0, |result| result.as_bytes().len());
    let deadline = Instant::now() + shared.options.ack_linger;
    let mut bytes = size(&first);
    let mut batch = vec![first];
    while batch.len() < shared.options.ack_batch && bytes < BYTES_MAX {
        match timeout_at(deadline, outcomes.recv()).await {
            Ok(Some(outcome)) => {
                bytes += size(&outcome);
                batch.push(outcome);
            }
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

/// Completed jobs go together; failures go one by one, and so does what would be refused for the whole batch.
async fn tell(shared: Arc<Shared>, batch: Vec<Outcome>) {
    let together = |outcome: &Outcome| outcome.result().is_some() && !outcome.held.is_lost();
    let (together, alone): (Vec<_>, Vec<_>) = batch.into_iter().partition(together);
    let mut tasks = JoinSet::new();
    for outcome in alone {
        tasks.spawn(tell_one(shared.clone(), outcome));
    }
    for outcome in tell_many(&shared, together).await {
        tasks.spawn(tell_one(shared.clone(), outcome));
    }
    while tasks.join_next().await.is_some() {}
}

fn many(batch: &[Outcome]) -> Result<Request, Error> {
    let mut request = Request::new("ACKB")
        .strs("ids", batch.iter().map(|outcome| outcome.held.job.id.as_str()))
        .strs("tokens", batch.iter().map(|outcome| outcome.held.token.as_str()));
    let results = || batch.iter().filter_map(Outcome::result);
    if results().any(|result| !result.is_nil()) {
        let encoder = request.field("results");
        encoder.array(batch.len());
        results().for_each(|result| encoder.raw(result));
    }
    request.seal()
}

/// Tells all of them with one command; answers those that have to be told one by one.
async fn tell_many(shared: &Shared, mut batch: Vec<Outcome>) -> Vec<Outcome> {
    if batch.len() < 2 {
        return batch;
    }
    let Ok(request) = many(&batch) else { return batch };
    let mut backoff = Backoff::default();
    loop {
        match shared.client.pool.ask(&request).await {
            Ok(reply) => {
                let ignored = ignored(&reply);
                for (place, outcome) in batch.iter().enumerate() {
                    let late = ignored.contains(&(place as u64));
                    applied(shared, outcome, if late { Applied::Late } else { Applied::Yes });
                }
                return Vec::new();
            }
            Err(error) if error.is_transient() && !shared.gives_up() => {
                let unknown = error.is_outcome_unknown();
                for outcome in &mut batch {
                    outcome.resent |= unknown;
                }
                wait(shared, batch.len(), error, &mut backoff).await;
            }
            // The server refuses the whole batch for one bad outcome: tell each by itself.
            Err(_) => return batch,
        }
    }
}

/// Places of outcomes that came too late. An answer that does not say counts as one that has none.
fn ignored(reply: &Reply) -> Vec<u64> {
    let places = reply.within::<Option<Vec<u64>>>("data", "ignoredIndices");
    places.ok().flatten().unwrap_or_default()
}

async fn wait(shared: &Shared, jobs: usize, error: Error, backoff: &mut Backoff) {
    shared.tell(&WorkerEvent::OutcomesDelayed { jobs, error });
    tokio::time::sleep(backoff.next(shared.settings())).await;
}

async fn tell_one(shared: Arc<Shared>, mut outcome: Outcome) {
    let mut backoff = Backoff::default();
    loop {
        let told = match outcome.request().seal() {
            Ok(request) => shared.client.pool.ask(&request).await,
            Err(error) => Err(error),
        };
        match told.and_then(|reply| Applied::read(&reply)) {
            Ok(told) => return applied(&shared, &outcome, told),
            Err(error) if error.is_transient() && !shared.gives_up() => {
                outcome.resent |= error.is_outcome_unknown();
                wait(&shared, 1, error, &mut backoff).await;
            }
            Err(error) if outcome.result().is_some() && blames_result(&error) => {
                outcome.what = What::Failed(Failure::new(error));
            }
            Err(error) => return refused(&shared, &outcome, error).await,
        }
    }
}

/// Whether the job is held and only its result cannot be taken. Then the attempt has failed: told again, the same
/// would happen, and without a word the job would run again and again.
fn blames_result(error: &Error) -> bool {
    match error {
        // A frame that is longer than an acknowledgement can be is refused before the server has read it.
        Error::Refused(words) => {
            words.starts_with("result") || words.starts_with("ACK") && words.contains(", result ")
        }
        Error::Payload(_) => true,
        _ => false,
    }
}

fn applied(shared: &Shared, outcome: &Outcome, applied: Applied) {
    let id = || outcome.held.job.id.clone();
    match (applied, &outcome.what) {
        (Applied::Late, _) => {
            count(&shared.tally.untold);
            shared.tell(&WorkerEvent::OutcomeLate { id: id() });
        }
        (Applied::Yes, What::Completed(_)) => count(&shared.tally.completed),
        (Applied::Yes, What::Failed(_)) => count(&shared.tally.failed),
    }
    shared.release(&outcome.held);
}

/// An outcome was not taken. If it had been told before, that may be because it was taken then.
async fn refused(shared: &Shared, outcome: &Outcome, error: Error) {
    if error.is_refused() && outcome.resent {
        match was_taken(shared, outcome).await {
            Some(true) => return applied(shared, outcome, Applied::Yes),
            Some(false) => {}
            None => {
                count(&shared.tally.unknown);
                let id = outcome.held.job.id.clone();
                shared.tell(&WorkerEvent::OutcomeUnknown { id, error });
                return shared.release(&outcome.held);
            }
        }
    }
    count(&shared.tally.untold);
    let id = outcome.held.job.id.clone();
    shared.tell(&if error.is_refused() {
        WorkerEvent::OutcomeRefused { id, error }
    } else {
        WorkerEvent::OutcomeUnsent { id, error }
    });
    shared.release(&outcome.held);
}

/// Whether the job is as the outcome would have left it; `None` if nobody can say. A job that is gone may have been
/// forgotten with its outcome, or have been removed by others.
async fn was_taken(shared: &Shared, outcome: &Outcome) -> Option<bool> {
    let mut backoff = Backoff::default();
    let state = loop {
        match shared.client.job(&outcome.held.job.id).state().await {
            Ok(state) => break state,
            Err(error) if error.is_transient() && !shared.gives_up() => {
                tokio::time::sleep(backoff.next(shared.settings())).await;
            }
            Err(_) => return None,
        }
    };
    match (&outcome.what, state) {
        (_, JobState::Unknown) => None,
        (What::Completed(_), state) => Some(state == JobState::Completed),
        (What::Failed(_), state) => {
            Some(matches!(state, JobState::Failed | JobState::Delayed | JobState::Waiting))
        }
    }
}
