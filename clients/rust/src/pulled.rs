//! Jobs pulled by hand, and how an attempt ends.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::client::Client;
use crate::error::Error;
use crate::handle::LogLevel;
use crate::raw::{Payload, Raw};
use crate::records::Job;
use crate::wire::reply::Reply;
use crate::wire::request::{Request, millis};

/// Fate of a pulled job when the connection that it was pulled on breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// The job stays with its worker until the lock ends, so that a broken connection makes no job run twice. The jobs
    /// of a worker that was killed run again when their locks end, and count as stalled: a job that kills its workers
    /// ends in the dead-letter queue.
    #[default]
    Lock,
    /// The job goes back at once, its attempts unchanged. The jobs of a worker that was killed run again at once; after
    /// a broken connection a job may run twice.
    Connection,
}

/// How jobs are pulled.
///
/// ```no_run
/// use std::time::Duration;
/// use corq_client::PullOptions;
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let options = PullOptions::new().wait(Duration::from_secs(5));
/// for job in client.queue("sums").pull(10, &options).await? {
///     let (a, b): (i64, i64) = job.data()?;
///     job.complete(&(a + b)).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PullOptions {
    pub(crate) wait: Duration,
    pub(crate) lock_ttl: Duration,
    pub(crate) hold: Hold,
    pub(crate) owner: String,
    pub(crate) groups: GroupOptions,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            wait: Duration::ZERO,
            lock_ttl: Duration::from_secs(30),
            hold: Hold::Lock,
            owner: "corq-client".to_owned(),
            groups: GroupOptions::default(),
        }
    }
}

impl PullOptions {
    /// No waiting, and locks of 30 seconds.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long to wait for jobs if there are none, at most a minute.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long the jobs are held unless their locks are renewed, at most a day.
    pub fn lock_ttl(mut self, ttl: Duration) -> Self {
        self.lock_ttl = ttl;
        self
    }

    /// Fate of the jobs when the connection breaks.
    pub fn hold(mut self, hold: Hold) -> Self {
        self.hold = hold;
        self
    }

    /// Name of the owner of the locks.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Groups that jobs are taken from, and limits that count for them.
    pub fn groups(mut self, groups: GroupOptions) -> Self {
        self.groups = groups;
        self
    }

    pub(crate) fn request(&self, queue: &str, count: u32) -> Request {
        let request = Request::new("PULLB")
            .queue(queue)
            .uint("count", count.into())
            .millis("timeout", self.wait)
            .str("owner", &self.owner)
            .millis("lockTtl", self.lock_ttl)
            .flag("detach", self.hold == Hold::Lock)
            .waits(self.wait)
            .brings(self.lock_ttl);
        self.groups.say(request)
    }
}

/// Which jobs of a queue with [groups](crate::Group) a pull or a worker wants, and how much of a group for which nothing
/// else is set. Workers of one queue should say the same: limits that were said last count for all pulls of the queue.
///
/// ```
/// use std::time::Duration;
/// use corq_client::GroupOptions;
///
/// let gently = GroupOptions::new().concurrency(2).rate_limit(100, Duration::from_secs(60));
/// let one_tenant = GroupOptions::new().only("tenant-7");
/// # let _ = (gently, one_tenant);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct GroupOptions {
    concurrency: Option<u64>,
    rate: Option<(u64, Duration)>,
    only: Option<Only>,
}

#[derive(Clone, Debug)]
enum Only {
    Ungrouped,
    Group(String),
}

impl GroupOptions {
    /// Jobs of any group and of none, without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many active jobs of a group.
    pub fn concurrency(mut self, jobs: u64) -> Self {
        self.concurrency = Some(jobs);
        self
    }

    /// At most `jobs` of a group in a time of `per`, which begins with the first of them.
    pub fn rate_limit(mut self, jobs: u64, per: Duration) -> Self {
        self.rate = Some((jobs, per));
        self
    }

    /// Jobs of this group only.
    pub fn only(mut self, group: impl Into<String>) -> Self {
        self.only = Some(Only::Group(group.into()));
        self
    }

    /// Jobs without a group only.
    pub fn ungrouped(mut self) -> Self {
        self.only = Some(Only::Ungrouped);
        self
    }

    fn say(&self, mut request: Request) -> Request {
        if self.concurrency.is_none() && self.rate.is_none() && self.only.is_none() {
            return request;
        }
        let mut fields = request.field("group").count_fields();
        fields.uint("concurrency", self.concurrency);
        if let Some((jobs, per)) = self.rate {
            let encoder = fields.key("limit");
            encoder.map(2);
            encoder.str("max");
            encoder.uint(jobs);
            encoder.str("duration");
            encoder.uint(millis(per));
        }
        match &self.only {
            Some(Only::Group(group)) => fields.key("affinity").str(group),
            Some(Only::Ungrouped) => fields.key("affinity").nil(),
            None => {}
        }
        fields.close();
        request
    }
}

/// Why an attempt failed.
///
/// Every error becomes one with `?`; its sources become the stack.
///
/// ```
/// use corq_client::Failure;
///
/// fn parse(text: &str) -> Result<u32, Failure> {
///     if text.is_empty() {
///         return Err(Failure::new("there is nothing to read").unrecoverable());
///     }
///     Ok(text.parse()?)
/// }
/// assert!(parse("").unwrap_err().is_unrecoverable());
/// assert!(parse("x").unwrap_err().to_string().contains("invalid digit"));
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) error: String,
    pub(crate) stack: Vec<String>,
    pub(crate) unrecoverable: bool,
}

impl Failure {
    /// A failure for this reason; the job is tried again if it has attempts left.
    pub fn new(error: impl fmt::Display) -> Self {
        Self { error: error.to_string(), stack: Vec::new(), unrecoverable: false }
    }

    /// The job is not tried again: it goes to the dead-letter queue.
    #[must_use]
    pub fn unrecoverable(mut self) -> Self {
        self.unrecoverable = true;
        self
    }

    /// Adds a line to the stack that is kept with the job.
    #[must_use]
    pub fn stack_line(mut self, line: impl Into<String>) -> Self {
        self.stack.push(line.into());
        self
    }

    /// Whether the job is not tried again.
    pub fn is_unrecoverable(&self) -> bool {
        self.unrecoverable
    }

    pub(crate) fn request(&self, id: &str, token: Option<&str>) -> Request {
        let request = Request::new("FAIL")
            .str("id", id)
            .opt_str("token", token)
            .str("error", &self.error)
            .flag("unrecoverable", self.unrecoverable);
        if self.stack.is_empty() {
            return request;
        }
        request.strs("stack", self.stack.iter().map(String::as_str))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.error)
    }
}

impl<E: StdError> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut stack = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            stack.push(format!("caused by: {cause}"));
            source = cause.source();
        }
        let error = error.to_string();
        if !stack.is_empty() {
            stack.insert(0, error.clone());
        }
        Self { error, stack, unrecoverable: false }
    }
}

/// Answer of the server to an outcome that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Applied {
    /// The outcome counts.
    Yes,
    /// The outcome came too late: the server had ended the attempt for its timeout. Nothing was changed.
    Late,
}

impl Applied {
    pub(crate) fn read(reply: &Reply) -> Result<Self, Error> {
        let applied = reply.within::<Option<bool>>("data", "applied")?;
        Ok(if applied == Some(false) { Self::Late } else { Self::Yes })
    }
}

/// A job pulled by hand, from [`Queue::pull`](crate::Queue::pull). The job itself is what it dereferences to.
///
/// Dropping it does nothing: its lock ends by itself, and the job runs again.
#[derive(Clone)]
pub struct Pulled {
    client: Client,
    job: Job,
    token: String,
}

impl fmt::Debug for Pulled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(formatter)
    }
}

impl std::ops::Deref for Pulled {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

/// The jobs and tokens of a pull.
pub(crate) fn jobs_and_tokens(reply: &Reply) -> Result<Vec<(Job, String)>, Error> {
    let jobs: Vec<Job> = reply.read("jobs")?;
    let tokens: Vec<String> = reply.read::<Option<_>>("tokens")?.unwrap_or_default();
    if jobs.len() != tokens.len() {
        let (jobs, tokens) = (jobs.len(), tokens.len());
        return Err(Error::Protocol(
            format!("{jobs} jobs were pulled with {tokens} tokens").into(),
        ));
    }
    Ok(jobs.into_iter().zip(tokens).collect())
}

impl Pulled {
    pub(crate) fn read(
        client: &Client,
        reply: &Reply,
        lock_ttl: Duration,
    ) -> Result<Vec<Self>, Error> {
        let pulled = jobs_and_tokens(reply);
        if pulled.is_err() {
            client.pool.returner().take(reply, lock_ttl);
        }
        let pulled = pulled?.into_iter();
        Ok(pulled.map(|(job, token)| Self { client: client.clone(), job, token }).collect())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Lock token of the job: the server takes an outcome only together with this token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Completes the job with this result; `&()` for none.
    pub async fn complete<P: Payload + ?Sized>(&self, result: &P) -> Result<Applied, Error> {
        let result = Raw::encode(result)?;
        let request = ack_request(&self.job.id, &self.token, &result);
        Applied::read(&self.client.ask(request).await?)
    }

    /// Ends the attempt as failed.
    pub async fn fail(&self, failure: impl Into<Failure>) -> Result<Applied, Error> {
        let request = failure.into().request(&self.job.id, Some(&self.token));
        Applied::read(&self.client.ask(request).await?)
    }

    /// Gives it back, its attempts as they were.
    pub async fn give_back(&self) -> Result<(), Error> {
        self.client.done(give_back_request(&self.job.id, &self.token)).await
    }

    /// Holds it for another full time of its lock.
    pub async fn renew(&self) -> Result<(), Error> {
        let request = Request::repeatable("JobHeartbeat").str("id", &self.job.id);
        self.client.done(request.str("token", &self.token)).await
    }

    /// Holds it for so long from now, this once.
    pub async fn extend_lock(&self, duration: Duration) -> Result<(), Error> {
        self.client.done(extend_request(&self.job.id, &self.token, duration)).await
    }

    /// Says how far it is, from 0 to 100.
    pub async fn set_progress(&self, progress: f64, message: Option<&str>) -> Result<(), Error> {
        self.client.job(&self.job.id).set_progress(progress, message).await
    }

    /// Writes a line into its log.
    pub async fn log(&self, level: LogLevel, message: &str) -> Result<(), Error> {
        self.client.job(&self.job.id).log(level, message).await
    }
}

pub(crate) fn ack_request(id: &str, token: &str, result: &Raw) -> Request {
    let mut request = Request::new("ACK").str("id", id).str("token", token);
    if !result.is_nil() {
        request.field("result").raw(result);
    }
    request
}

pub(crate) fn give_back_request(id: &str, token: &str) -> Request {
    Request::new("MoveToWait").str("id", id).str("token", token)
}

pub(crate) fn extend_request(id: &str, token: &str, duration: Duration) -> Request {
    let request = Request::repeatable("ExtendLock").str("id", id).str("token", token);
    request.millis("duration", duration)
}
