//! Runs handlers: in the order the jobs came, as many at a time as is wanted, and their panics are failures.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::acks::{Outcome, What};
use super::context::ActiveJob;
use super::events::{WorkerEvent, count};
use super::shared::{Held, Shared};
use crate::error::Error;
use crate::pulled::{Failure, give_back_request};
use crate::raw::{Payload, Raw};
use crate::telemetry::{Consuming, Worked};

type Answer = Pin<Box<dyn Future<Output = Result<Raw, Failure>> + Send>>;

/// A user's handler, without its types.
pub(crate) type Handler = Arc<dyn Fn(ActiveJob) -> Answer + Send + Sync>;

/// Any handler in the one form that is kept.
pub(crate) fn handler_of<F, Fut, P, E>(handler: F) -> Handler
where
    F: Fn(ActiveJob) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<P, E>> + Send + 'static,
    P: Payload,
    E: Into<Failure>,
{
    Arc::new(move |job| {
        let answer = handler(job);
        Box::pin(async move {
            let result = answer.await.map_err(Into::into)?;
            Raw::encode(&result).map_err(Failure::from)
        })
    })
}

pub(crate) async fn run(
    shared: Arc<Shared>,
    mut jobs: mpsc::Receiver<Arc<Held>>,
    outcomes: mpsc::Sender<Outcome>,
    handler: Handler,
) {
    let mut tasks = JoinSet::new();
    let mut unbegun = Vec::new();
    while let Some(held) = jobs.recv().await {
        while tasks.try_join_next().is_some() {}
        let Ok(permit) = shared.running.acquire().await else {
            unbegun.push(held);
            continue;
        };
        if !held.is_safe() {
            shared.lose(&held);
            shared.release(&held);
            shared.room.add_permits(1);
            continue;
        }
        permit.forget();
        tasks.spawn(work(shared.clone(), held, outcomes.clone(), handler.clone()));
    }
    give_back(&shared, unbegun).await;
    let deadline = shared.deadline().unwrap_or_else(Instant::now);
    let mut finished = Box::pin(async move { while tasks.join_next().await.is_some() {} });
    if tokio::time::timeout_at(deadline.into(), &mut finished).await.is_err() {
        // Break off running handlers only: finished ones that wait for room still send their outcomes.
        shared.break_off.set();
        finished.await;
    }
}

/// Runs a job, from its handler's first step to its outcome.
async fn work(
    shared: Arc<Shared>,
    held: Arc<Held>,
    outcomes: mpsc::Sender<Outcome>,
    handler: Handler,
) {
    let job = ActiveJob::new(shared.clone(), held.clone());
    let span = Consuming::begin(&shared.queue, &held.job);
    let work = span.of(caught(async move { handler(job).await }));
    let worked = shared.break_off.unless(work).await;
    // A job that was broken off is given back later, with what else is left.
    let Some(worked) = worked else { return };
    held.worked();
    span.end(&match &worked {
        Ok(Ok(_)) => Worked::Completed,
        Ok(Err(failure)) => Worked::Failed(&failure.error),
        Err(message) => Worked::Panicked(message),
    });
    let what = match worked {
        Ok(Ok(result)) => What::Completed(result),
        Ok(Err(failure)) => {
            let (id, error) = (held.job.id.clone(), failure.error.clone());
            shared.tell(&WorkerEvent::HandlerFailed { id, error });
            What::Failed(failure)
        }
        Err(message) => {
            let id = held.job.id.clone();
            shared.tell(&WorkerEvent::HandlerPanicked { id, message: message.clone() });
            What::Failed(Failure::new(format!("the handler panicked: {message}")))
        }
    };
    // The task that sends outcomes lives until its last sender is gone.
    let _ = outcomes.send(Outcome { held, what, resent: false }).await;
    shared.running.add_permits(1);
    shared.room.add_permits(1);
}

/// Runs a future to its output, or to the message of its panic, also of a panic while it is dropped.
async fn caught<F: Future + Send>(future: F) -> Result<F::Output, String> {
    let mut caught = Caught(Some(Box::pin(future)));
    std::future::poll_fn(move |context| {
        let polled = catch_unwind(AssertUnwindSafe(|| match &mut caught.0 {
            Some(future) => future.as_mut().poll(context),
            None => Poll::Pending,
        }));
        let output = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(words_of(&*panic)),
        };
        Poll::Ready(caught.clear().and(output))
    })
    .await
}

/// A future whose end may panic like its steps.
struct Caught<F>(Option<Pin<Box<F>>>);

impl<F> Caught<F> {
    fn clear(&mut self) -> Result<(), String> {
        let future = self.0.take();
        catch_unwind(AssertUnwindSafe(|| drop(future))).map_err(|panic| words_of(&*panic))
    }
}

impl<F> Drop for Caught<F> {
    fn drop(&mut self) {
        // Broken off: there is nobody to tell.
        let _ = self.clear();
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it did not say why".to_owned())
}

/// Gives jobs back, all at the same time.
pub(crate) async fn give_back(shared: &Arc<Shared>, jobs: Vec<Arc<Held>>) {
    let mut tasks = JoinSet::new();
    for held in jobs {
        let shared = shared.clone();
        tasks.spawn(async move {
            shared.release(&held);
            if held.is_lost() {
                return;
            }
            let id = &held.job.id;
            match shared.client.done(give_back_request(id, &held.token)).await {
                Ok(()) => count(&shared.tally.given_back),
                // Too late: its lock or its timeout has ended.
                Err(Error::Refused(_)) => shared.lose(&held),
                Err(error) => shared.tell(&WorkerEvent::GiveBackFailed { id: id.clone(), error }),
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}
