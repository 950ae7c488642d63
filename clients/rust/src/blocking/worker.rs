//! A worker whose handlers block.

use std::fmt;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use super::runtime::Runtime;
use super::{Client, waits_for};
use crate::error::Error;
use crate::pulled::{Failure, GroupOptions, Hold};
use crate::raw::{Payload, Raw};
use crate::records::Job;
use crate::telemetry::carried;
use crate::worker::{Shared, Work};
use crate::{LogLevel, Summary, WorkerEvent};

/// How a worker is made: from [`Worker::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct WorkerBuilder {
    inner: crate::WorkerBuilder,
    runtime: Runtime,
}

/// Settings that are those of the async worker.
macro_rules! settings {
    ($(fn $name:ident($argument:ident: $kind:ty);)*) => {
        $(
            #[doc = concat!("As [`crate::WorkerBuilder::", stringify!($name), "`].")]
            pub fn $name(mut self, $argument: $kind) -> Self {
                self.inner = self.inner.$name($argument);
                self
            }
        )*
    };
}

impl WorkerBuilder {
    settings! {
        fn concurrency(jobs: usize);
        fn prefetch(jobs: usize);
        fn poll(poll: Duration);
        fn lock_ttl(ttl: Duration);
        fn hold(hold: Hold);
        fn groups(groups: GroupOptions);
        fn ack_batch(outcomes: usize);
        fn ack_linger(linger: Duration);
        fn drain_timeout(timeout: Duration);
        fn name(name: impl Into<String>);
        fn on_event(told: impl Fn(&WorkerEvent) + Send + Sync + 'static);
    }

    /// A worker that begins when [`Worker::run`] is called. Each job is worked on in a thread of a pool.
    ///
    /// A handler that is still running when the drain's time is over cannot be broken off: its job is given back, and
    /// its outcome does not count.
    pub fn build<F, P, E>(self, handler: F) -> Result<Worker, Error>
    where
        F: Fn(ActiveJob) -> Result<P, E> + Send + Sync + 'static,
        P: Payload,
        E: Into<Failure>,
    {
        let runtime = self.runtime.clone();
        let handler = Arc::new(handler);
        let on_thread = move |job: crate::ActiveJob| {
            let handler = handler.clone();
            let job = ActiveJob { inner: job, runtime: runtime.clone() };
            async move {
                let work = tokio::task::spawn_blocking(carried(move || {
                    let result = handler(job).map_err(Into::into)?;
                    Raw::encode(&result).map_err(Failure::from)
                }));
                match work.await {
                    Ok(outcome) => outcome,
                    // Pass a panic of the handler's thread on, so that the worker counts and reports a panic as of an
                    // async handler.
                    Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                    Err(error) => Err(Failure::from(error)),
                }
            }
        };
        let (shared, work) = self.inner.prepare(on_thread)?;
        Ok(Worker { shared, work, runtime: self.runtime })
    }
}

/// Works on the jobs of a queue, as [`crate::Worker`], with handlers that block.
///
/// ```no_run
/// use corq_client::blocking::{ActiveJob, Client, Worker};
/// use corq_client::Failure;
///
/// fn add(job: ActiveJob) -> Result<i64, Failure> {
///     let (a, b): (i64, i64) = job.data()?;
///     Ok(a + b)
/// }
///
/// let client = Client::connect("tcp://127.0.0.1:6789")?;
/// let worker = Worker::builder(&client, "sums").concurrency(8).build(add)?;
/// let stopper = worker.stopper(); // for another thread, or a signal handler
/// let summary = worker.run();
/// println!("{} done", summary.completed);
/// # drop(stopper);
/// # Ok::<(), corq_client::Error>(())
/// ```
#[must_use = "a worker works while it is run"]
pub struct Worker {
    shared: Arc<Shared>,
    work: Work,
    runtime: Runtime,
}

impl fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker on one queue of a server.
    pub fn builder(client: &Client, queue: impl Into<String>) -> WorkerBuilder {
        let inner = crate::Worker::builder(&client.inner, queue);
        WorkerBuilder { inner, runtime: client.runtime.clone() }
    }

    /// A handle that stops the worker from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Works until it is [stopped](Stopper::stop) and drained; then says what it did.
    pub fn run(self) -> Summary {
        self.runtime.wait(self.work);
        self.shared.summary()
    }
}

/// Makes a [`Worker`] end, from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl fmt::Debug for Stopper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Stopper").finish_non_exhaustive()
    }
}

impl Stopper {
    /// Has the worker drain. [`Worker::run`] answers when it has.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Counts of the jobs that the worker has handled so far.
    pub fn summary(&self) -> Summary {
        self.0.summary()
    }
}

/// A job that a [`Worker`] has given to its handler, as [`crate::ActiveJob`]. The job itself is what it
/// dereferences to.
#[derive(Clone, Debug)]
pub struct ActiveJob {
    inner: crate::ActiveJob,
    runtime: Runtime,
}

impl Deref for ActiveJob {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.inner
    }
}

impl ActiveJob {
    /// Lock token of the job: the server takes an outcome only together with this token.
    pub fn token(&self) -> &str {
        self.inner.token()
    }

    /// The client of the worker, for pushing what comes next.
    pub fn client(&self) -> Client {
        Client { inner: self.inner.client().clone(), runtime: self.runtime.clone() }
    }

    /// Whether the job is not held here any more, as [`crate::ActiveJob::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Whether the worker is to end.
    pub fn is_stopping(&self) -> bool {
        self.inner.is_stopping()
    }

    waits_for! { crate::ActiveJob;
        fn set_progress(&self, progress: f64, message: Option<&str>) -> ();
        fn log(&self, level: LogLevel, message: &str) -> ();
        fn extend_lock(&self, duration: Duration) -> ();
    }
}
