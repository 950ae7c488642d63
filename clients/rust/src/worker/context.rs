//! A job as its handler sees it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::{Held, Shared};
use crate::client::Client;
use crate::error::Error;
use crate::handle::LogLevel;
use crate::pulled::extend_request;
use crate::records::Job;

/// A job that a [`Worker`](crate::Worker) has given to its handler. The job itself is what it dereferences to.
///
/// Its lock is renewed while the handler runs.
///
/// ```no_run
/// use corq_client::{ActiveJob, Failure, LogLevel};
///
/// async fn resize(job: ActiveJob) -> Result<(), Failure> {
///     let files: Vec<String> = job.data()?;
///     for (done, file) in files.iter().enumerate() {
///         if job.is_lost() {
///             return Err(Failure::new("another worker has it now"));
///         }
///         job.log(LogLevel::Info, file).await?;
///         job.set_progress(100.0 * done as f64 / files.len() as f64, None).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct ActiveJob {
    shared: Arc<Shared>,
    held: Arc<Held>,
}

impl ActiveJob {
    pub(crate) fn new(shared: Arc<Shared>, held: Arc<Held>) -> Self {
        Self { shared, held }
    }

    /// Lock token of the job: the server takes an outcome only together with this token.
    pub fn token(&self) -> &str {
        &self.held.token
    }

    /// The client of the worker, for pushing what comes next.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Whether the job is not held here any more, because its lock was not renewed in time or a command moved it: it
    /// may run elsewhere already.
    pub fn is_lost(&self) -> bool {
        !self.held.is_safe()
    }

    /// Waits until the job is not held here any more, for a `select!` beside the work: what is done after that, another
    /// worker may do, too.
    pub async fn lost(&self) {
        self.held.lost().await;
    }

    /// Whether the worker is to end: the handler has until the drain's timeout.
    pub fn is_stopping(&self) -> bool {
        self.shared.stop.is_set()
    }

    /// Says how far it is, from 0 to 100. A message that is not given clears the last one.
    pub async fn set_progress(&self, progress: f64, message: Option<&str>) -> Result<(), Error> {
        self.client().job(&self.held.job.id).set_progress(progress, message).await
    }

    /// Writes a line into its log.
    pub async fn log(&self, level: LogLevel, message: &str) -> Result<(), Error> {
        self.client().job(&self.held.job.id).log(level, message).await
    }

    /// Holds it for so long from now, this once, whether its lock can be renewed or not.
    pub async fn extend_lock(&self, duration: Duration) -> Result<(), Error> {
        let asked_at = Instant::now();
        let request = extend_request(&self.held.job.id, &self.held.token, duration);
        self.client().done(request).await?;
        self.held.renewed(asked_at + duration);
        Ok(())
    }
}

impl Deref for ActiveJob {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.held.job
    }
}

impl fmt::Debug for ActiveJob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.job.fmt(formatter)
    }
}
