//! Pulls jobs, on a connection of its own: a question that waits at the server holds up nobody else there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::events::WorkerEvent;
use super::shared::{Held, Shared};
use crate::error::Error;
use crate::events::ask;
use crate::net::dial::{Backoff, dial};
use crate::net::pipe::Pipe;
use crate::pulled::{PullOptions, jobs_and_tokens};
use crate::wire::request::Request;

/// Most jobs of one pull.
const COUNT_MAX: u32 = 1000;

/// The wait after an answer without jobs that came sooner than it should.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn run(shared: Arc<Shared>, jobs: mpsc::Sender<Arc<Held>>) {
    let mut backoff = Backoff::default();
    let mut worker_id = None;
    while !shared.stop.is_set() {
        let Some(opened) = shared.stop.unless(open(&shared, &mut worker_id)).await else { break };
        let error = match opened {
            Ok(pipe) => {
                shared.pulls_on(Some(pipe.clone()));
                shared.tell(&WorkerEvent::Connected);
                // A stop before the line above did not find the connection.
                if shared.stop.is_set() {
                    pipe.close();
                }
                let pulled = pull(&shared, &pipe, &jobs, &mut backoff).await;
                // At the end it is left open: what it holds may have to be renewed before it goes.
                let Err(error) = pulled else { break };
                shared.pulls_on(None);
                pipe.close();
                error
            }
            Err(error) => error,
        };
        if !shared.stop.is_set() {
            shared.tell(&WorkerEvent::Disconnected { error });
            shared.stop.sleep(backoff.next(shared.settings())).await;
        }
    }
}

/// Waits until the puller has ended, which a dead connection must not hold up for ever.
pub(crate) async fn ended(shared: &Shared, mut puller: JoinHandle<()>) -> Result<(), JoinError> {
    let deadline = shared.deadline().unwrap_or_else(Instant::now);
    match tokio::time::timeout_at(deadline.into(), &mut puller).await {
        Ok(ended) => ended,
        Err(_) => {
            puller.abort();
            puller.await
        }
    }
}

async fn open(shared: &Shared, worker_id: &mut Option<String>) -> Result<Arc<Pipe>, Error> {
    let (pipe, _) = {
        let returner = shared.client.pool.returner();
        dial(shared.settings(), None, Some(returner)).await?
    };
    let request = Request::new("RegisterWorker")
        .str("name", &shared.options.name)
        .strs("queues", [shared.queue.as_str()].into_iter())
        .opt_str("workerId", worker_id.as_deref());
    match ask(&pipe, shared.settings(), request).await {
        Ok(reply) => {
            *worker_id = Some(reply.within("data", "workerId")?);
            Ok(pipe)
        }
        Err(error) => {
            pipe.close();
            Err(error)
        }
    }
}

/// Pulls as much as there is room for, until the connection breaks or the word comes.
async fn pull(
    shared: &Shared,
    pipe: &Arc<Pipe>,
    jobs: &mpsc::Sender<Arc<Held>>,
    backoff: &mut Backoff,
) -> Result<(), Error> {
    // A lock may be as old as the question that it was the answer to.
    let wait = shared.options.poll.min(shared.options.lock_ttl / 3);
    let options = PullOptions {
        wait,
        lock_ttl: shared.options.lock_ttl,
        hold: shared.options.hold,
        owner: shared.options.name.clone(),
        groups: shared.options.groups.clone(),
    };
    loop {
        let Some(count) = take_room(shared).await else { return Ok(()) };
        let asked_at = Instant::now();
        let request = options.request(&shared.queue, count);
        let pulled = ask(pipe, shared.settings(), request).await;
        let pulled = pulled.and_then(|reply| {
            let read = jobs_and_tokens(&reply);
            if read.is_err() {
                pipe.give_back(&reply, shared.options.lock_ttl);
            }
            read
        });
        let came = pulled.as_ref().map_or(0, Vec::len);
        shared.room.add_permits((count as usize).saturating_sub(came));
        match pulled {
            Ok(pulled) => {
                let until = asked_at + shared.options.lock_ttl;
                let hold = |(job, token)| shared.hold(job, token, until);
                // All are noted before anything is waited for, or some could be forgotten.
                let pulled: Vec<_> = pulled.into_iter().map(hold).collect();
                for held in pulled {
                    // The other end lives as long as this one.
                    let _ = jobs.send(held).await;
                }
                backoff.reset();
                // A server that is about to stop has no patience.
                if came == 0 && asked_at.elapsed() < wait / 2 {
                    shared.stop.sleep(PAUSE).await;
                }
            }
            Err(_) if shared.stop.is_set() => return Ok(()),
            Err(error @ Error::Refused(_)) => {
                shared.tell(&WorkerEvent::PullRefused { error });
                shared.stop.sleep(backoff.next(shared.settings())).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits for room, and takes all there is, as much as one pull may bring. `None` once the word was given.
async fn take_room(shared: &Shared) -> Option<u32> {
    shared.room.acquire().await.ok()?.forget();
    let more =
        u32::try_from(shared.room.available_permits()).unwrap_or(u32::MAX).min(COUNT_MAX - 1);
    let taken = shared.room.try_acquire_many(more).map(tokio::sync::SemaphorePermit::forget);
    Some(1 + taken.map_or(0, |()| more))
}
