//! Works on the jobs of a queue: pulls ahead of the handlers, renews locks, tells outcomes many at a time, and gives
//! back what it does not get to.

mod acks;
mod context;
mod events;
mod locks;
mod pull;
mod run;
mod shared;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};

pub use context::ActiveJob;
use events::OnEvent;
pub use events::{Summary, WorkerEvent};
use run::{Handler, handler_of};
pub(crate) use shared::Shared;

use crate::client::Client;
use crate::error::Error;
use crate::pulled::{Failure, GroupOptions, Hold};
use crate::raw::Payload;

/// How a worker works.
#[derive(Clone)]
pub(crate) struct Options {
    concurrency: usize,
    prefetch: usize,
    poll: Duration,
    lock_ttl: Duration,
    hold: Hold,
    groups: GroupOptions,
    ack_batch: usize,
    ack_linger: Duration,
    drain_timeout: Duration,
    name: String,
    on_event: Option<OnEvent>,
}

/// How a worker is made: from [`Worker::builder`].
#[derive(Clone)]
#[must_use]
pub struct WorkerBuilder {
    client: Client,
    queue: String,
    options: Options,
    prefetch: Option<usize>,
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WorkerBuilder").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl WorkerBuilder {
    /// How many jobs are worked on at a time. 10 unless set.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.options.concurrency = jobs;
        self
    }

    /// How many more are pulled ahead, so that no handler waits for the network. As many as are worked on at a time
    /// unless set; 0 for jobs that take long and should go to the first free worker.
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.prefetch = Some(jobs);
        self
    }

    /// How long one question for jobs may wait at the server, at most a minute. 5 seconds unless set; never longer than a
    /// third of [`lock_ttl`](Self::lock_ttl). Jobs come at once, however long this is.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.options.poll = poll;
        self
    }

    /// How long a job is held unless its lock is renewed, which it is three times in that time. 30 seconds unless set.
    pub fn lock_ttl(mut self, ttl: Duration) -> Self {
        self.options.lock_ttl = ttl;
        self
    }

    /// Fate of the jobs when the connection breaks.
    pub fn hold(mut self, hold: Hold) -> Self {
        self.options.hold = hold;
        self
    }

    /// Groups that jobs are taken from, and limits that count for them.
    pub fn groups(mut self, groups: GroupOptions) -> Self {
        self.options.groups = groups;
        self
    }

    /// How many outcomes are told with one command at most, 1 to 1000. 100 unless set.
    pub fn ack_batch(mut self, outcomes: usize) -> Self {
        self.options.ack_batch = outcomes;
        self
    }

    /// How long an outcome waits for others to be told with it. A millisecond unless set.
    pub fn ack_linger(mut self, linger: Duration) -> Self {
        self.options.ack_linger = linger;
        self
    }

    /// How long jobs that are being worked on may take when the worker is to end; what is left then is broken off
    /// and given back. 30 seconds unless set.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.options.drain_timeout = timeout;
        self
    }

    /// Under which name it is listed. That of the queue unless set.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Reports errors, and connections that open and close.
    ///
    /// It is called by the worker itself and should not take long. If it panics, the worker goes on, and
    /// [counts it](Summary::listener_panics).
    pub fn on_event(mut self, told: impl Fn(&WorkerEvent) + Send + Sync + 'static) -> Self {
        self.options.on_event = Some(Arc::new(told));
        self
    }

    fn checked(mut self) -> Result<(Client, String, Options), Error> {
        let options = &mut self.options;
        options.prefetch = self.prefetch.unwrap_or(options.concurrency);
        let seconds = |duration: Duration| duration.as_secs_f64();
        for (name, value, least, most) in [
            ("concurrency", options.concurrency as f64, 1.0, 100_000.0),
            ("prefetch", options.prefetch as f64, 0.0, 100_000.0),
            ("ack_batch", options.ack_batch as f64, 1.0, 1000.0),
            ("poll, in seconds,", seconds(options.poll), 0.001, 60.0),
            ("lock_ttl, in seconds,", seconds(options.lock_ttl), 0.1, 86_400.0),
        ] {
            if !(least..=most).contains(&value) {
                let text = format!("{name} must be between {least} and {most}");
                return Err(Error::Invalid(text.into()));
            }
        }
        if options.name.is_empty() {
            options.name.clone_from(&self.queue);
        }
        Ok((self.client, self.queue, self.options))
    }

    /// Starts to work, in tasks of the runtime in which this is called.
    ///
    /// What the handler answers is the result of the job; any error is a failed attempt, and so is a panic, unless
    /// the program is built to abort on panics.
    pub fn start<F, Fut, P, E>(self, handler: F) -> Result<Worker, Error>
    where
        F: Fn(ActiveJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<P, E>> + Send + 'static,
        P: Payload,
        E: Into<Failure>,
    {
        let (shared, work) = self.prepare(handler)?;
        let work = tokio::spawn(work);
        Ok(Worker { shared, work })
    }

    /// A worker, and what has to run for it.
    pub(crate) fn prepare<F, Fut, P, E>(self, handler: F) -> Result<(Arc<Shared>, Work), Error>
    where
        F: Fn(ActiveJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<P, E>> + Send + 'static,
        P: Payload,
        E: Into<Failure>,
    {
        let (client, queue, options) = self.checked()?;
        let shared = Arc::new(Shared::new(client, queue, options));
        Ok((shared.clone(), Box::pin(supervise(shared, handler_of(handler)))))
    }
}

/// The whole life of a worker.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Works on the jobs of a queue until it is drained.
///
/// - It pulls ahead of the handlers and waits at the server when there is nothing to do.
/// - Locks are renewed for as long as a job is here, so jobs may take any time.
/// - Outcomes are sent in batches. One whose reply was lost is sent again, with the token of its job, until the
///   server has accepted or refused it; [`on_event`](WorkerBuilder::on_event) reports those that it did not accept.
/// - When the connection breaks, it connects, registers and goes on by itself.
/// - [`drain`](Worker::drain) stops pulling, lets handlers finish, tells their outcomes and gives back the rest.
///
/// A job is delivered at least once: if a lock is lost because its renewal did not reach the server in time, another
/// worker gets it. [`ActiveJob::is_lost`] and [`ActiveJob::lost`] tell the handler.
///
/// ```no_run
/// use corq_client::{ActiveJob, Client, Failure, Worker};
///
/// #[derive(serde::Deserialize)]
/// struct Email {
///     to: String,
/// }
///
/// async fn send(job: ActiveJob) -> Result<String, Failure> {
///     let email: Email = job.data()?;
///     if !email.to.contains('@') {
///         return Err(Failure::new("that is no address").unrecoverable());
///     }
///     job.set_progress(50.0, Some("connecting")).await?;
///     Ok(format!("sent to {}", email.to))
/// }
///
/// # async fn example(client: Client) -> Result<(), corq_client::Error> {
/// let worker = Worker::builder(&client, "emails")
///     .concurrency(50)
///     .on_event(|event| eprintln!("{event}"))
///     .start(send)?;
/// // ... until the process is to end:
/// let summary = worker.drain().await;
/// println!("{} done, {} given back", summary.completed, summary.given_back);
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker that is dropped drains"]
pub struct Worker {
    shared: Arc<Shared>,
    work: JoinHandle<()>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Worker").field("queue", &self.shared.queue).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker on one queue of a server.
    pub fn builder(client: &Client, queue: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            client: client.clone(),
            queue: queue.into(),
            options: Options {
                concurrency: 10,
                prefetch: 0,
                poll: Duration::from_secs(5),
                lock_ttl: Duration::from_secs(30),
                hold: Hold::Lock,
                groups: GroupOptions::default(),
                ack_batch: 100,
                ack_linger: Duration::from_millis(1),
                drain_timeout: Duration::from_secs(30),
                name: String::new(),
                on_event: None,
            },
            prefetch: None,
        }
    }

    /// Begins to drain, and does not wait for it.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Counts of what the worker has done so far.
    pub fn summary(&self) -> Summary {
        self.shared.summary()
    }

    /// How many jobs are here: being worked on, waiting for a handler, or waiting for their outcome to be told.
    pub fn held(&self) -> usize {
        self.shared.held_count()
    }

    /// Pulls no more, lets handlers finish, tells their outcomes and gives back the rest; then says what it did.
    pub async fn drain(mut self) -> Summary {
        self.stop();
        // Any other error says that its runtime is going down, and the work with it.
        panicked_on((&mut self.work).await);
        self.summary()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn supervise(shared: Arc<Shared>, handler: Handler) {
    let (jobs, pulled) = tokio::sync::mpsc::channel(shared.capacity());
    let (outcomes, told) = tokio::sync::mpsc::channel(acks::WAITING_MAX);
    let puller = part(&shared, pull::run(shared.clone(), jobs));
    let runner = part(&shared, run::run(shared.clone(), pulled, outcomes, handler));
    let teller = part(&shared, acks::run(shared.clone(), told));
    let renewer = part(&shared, locks::run(shared.clone()));
    shared.stop.wait().await;
    shared.begin_to_drain();
    if shared.options.hold == Hold::Connection {
        // Renew over another connection: such locks outlive the one that the jobs were pulled on.
        locks::renew_all(&shared).await;
    }
    shared.stop_pulling();
    let pulled = pull::ended(&shared, puller).await;
    let ends = [pulled, runner.await, teller.await];
    run::give_back(&shared, shared.all_held()).await;
    renewer.abort();
    for end in ends.into_iter().chain([renewer.await]) {
        panicked_on(end);
    }
}

/// A panic goes on where the end is waited for.
fn panicked_on(end: Result<(), JoinError>) {
    if let Err(error) = end
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Starts a part of a worker. None of them ends before the word; one that panics gives it, so that the worker does not
/// stand still in silence.
fn part(shared: &Arc<Shared>, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    struct Watched(Arc<Shared>);
    impl Drop for Watched {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.stop();
            }
        }
    }
    let watched = Watched(shared.clone());
    tokio::spawn(async move {
        let _watched = watched;
        work.await;
    })
}
