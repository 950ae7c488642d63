//! A job by its id: reading and changing it.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::raw::{Payload, Raw};
use crate::records::{Job, JobState, LogLine, Progress};
use crate::wire::request::Request;

/// The server keeps one question for an end waiting this long at most.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// How a job came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The job was completed; its result, nil if it has none.
    Completed(Raw),
    /// The job failed for good and is in the dead-letter queue; the reason.
    Failed(String),
    /// The job was removed.
    Removed,
}

/// How important a line of a log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Worth knowing.
    #[default]
    Info,
    /// Worth a look.
    Warn,
    /// Something is wrong.
    Error,
}

impl LogLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// A job that the server knows, or may know: from [`Client::job`].
///
/// ```no_run
/// use std::time::Duration;
/// use corq_client::Ending;
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let id = client.queue("sums").push(&(1, 2)).await?;
/// match client.job(id).wait(Duration::from_secs(30)).await? {
///     Some(Ending::Completed(sum)) => println!("it is {}", sum.decode::<i64>()?),
///     Some(Ending::Failed(reason)) => println!("it failed: {reason}"),
///     Some(_) => println!("it was removed"),
///     None => println!("it is not done yet"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct JobHandle {
    client: Client,
    id: String,
}

impl JobHandle {
    pub(crate) fn new(client: Client, id: String) -> Self {
        Self { client, id }
    }

    /// The id of the job.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn reading(&self, cmd: &str) -> Request {
        Request::repeatable(cmd).str("id", &self.id)
    }

    pub(crate) fn changing(&self, cmd: &str) -> Request {
        Request::new(cmd).str("id", &self.id)
    }

    /// All that the server knows of it, or `None` if it knows no such job.
    pub async fn get(&self) -> Result<Option<Job>, Error> {
        match self.client.ask(self.reading("GetJob")).await {
            Ok(reply) => reply.read("job").map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where it is in its life; [`JobState::Unknown`] if the server knows no such job.
    pub async fn state(&self) -> Result<JobState, Error> {
        self.client.ask(self.reading("GetState")).await?.read("state")
    }

    /// The result of the job; `None` if it has none.
    pub async fn result(&self) -> Result<Option<Raw>, Error> {
        self.client.ask(self.reading("GetResult")).await?.read("result")
    }

    /// Waits until it is completed, fails for good or is removed; `None` if that takes longer than `patience`.
    pub async fn wait(&self, patience: Duration) -> Result<Option<Ending>, Error> {
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let turn = left.min(WAIT_MAX);
            let request = self.reading("WaitJob").millis("timeout", turn).waits(turn);
            let reply = self.client.ask(request).await?;
            if reply.read("completed")? {
                return Ok(Some(Ending::Completed(reply.raw("result")?.unwrap_or_default())));
            }
            match reply.read::<Option<String>>("state")?.as_deref() {
                Some("removed") => return Ok(Some(Ending::Removed)),
                Some(_) => {
                    let why = reply.read::<Option<String>>("error")?;
                    return Ok(Some(Ending::Failed(why.unwrap_or_default())));
                }
                None if begun.elapsed() >= patience => return Ok(None),
                None => {}
            }
        }
    }

    /// How far its worker is.
    pub async fn progress(&self) -> Result<Progress, Error> {
        self.client.ask(self.reading("GetProgress")).await?.record()
    }

    /// Says how far it is, from 0 to 100, of an active job. A message that is not given clears the last one.
    pub async fn set_progress(&self, progress: f64, message: Option<&str>) -> Result<(), Error> {
        let request = self.reading("Progress").float("progress", progress);
        self.client.done(request.opt_str("message", message)).await
    }

    /// The log of the job, oldest line first.
    pub async fn logs(&self) -> Result<Vec<LogLine>, Error> {
        self.client.ask(self.reading("GetLogs")).await?.within("data", "logs")
    }

    /// Writes a line into its log.
    pub async fn log(&self, level: LogLevel, message: &str) -> Result<(), Error> {
        let request = self.changing("AddLog").str("message", message).str("level", level.as_str());
        self.client.done(request).await
    }

    /// Removes all lines of its log but the newest `keep`.
    pub async fn clear_logs(&self, keep: u32) -> Result<(), Error> {
        self.client.done(self.reading("ClearLogs").uint("keepLogs", keep.into())).await
    }

    /// Removes it, if no worker has it and it has not ended.
    pub async fn cancel(&self) -> Result<(), Error> {
        self.client.done(self.changing("Cancel")).await
    }

    /// Puts another payload in the place of its own.
    pub async fn update<P: Payload + ?Sized>(&self, data: &P) -> Result<(), Error> {
        self.client.done(self.reading("Update").payload("data", data)?).await
    }

    /// Changes its priority while it is waiting or delayed.
    pub async fn change_priority(&self, priority: i64) -> Result<(), Error> {
        self.client.done(self.reading("ChangePriority").int("priority", priority)).await
    }

    /// Lets a delayed job wait no longer.
    pub async fn promote(&self) -> Result<(), Error> {
        self.client.done(self.changing("Promote")).await
    }

    /// Lets a waiting, delayed or active job wait for so long from now.
    pub async fn change_delay(&self, delay: Duration) -> Result<(), Error> {
        self.client.done(self.changing("ChangeDelay").millis("delay", delay)).await
    }

    /// Takes an active job from its worker and lets it wait for so long; its attempts stay as they are.
    pub async fn move_to_delayed(&self, delay: Duration) -> Result<(), Error> {
        self.client.done(self.changing("MoveToDelayed").millis("delay", delay)).await
    }

    /// Lets it wait again: gives an active job back, promotes a delayed one, retries one from the dead-letter queue.
    pub async fn move_to_wait(&self) -> Result<(), Error> {
        self.client.done(self.changing("MoveToWait")).await
    }

    /// Sends it to the dead-letter queue, whatever state it is in.
    pub async fn discard(&self) -> Result<(), Error> {
        self.client.done(self.reading("Discard")).await
    }

    /// Lets go of its deduplication key; says whether it held it.
    pub async fn remove_deduplication_key(&self) -> Result<bool, Error> {
        self.client.ask(self.changing("RemoveJobDeduplicationKey")).await?.within("data", "removed")
    }
}
