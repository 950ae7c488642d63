//! A group of jobs of a queue: counting, pausing, and its limits.

use std::time::Duration;

use crate::client::Client;
use crate::error::Error;
use crate::records::Rate;
use crate::wire::request::Request;

/// A group of jobs of a queue: from [`Queue::group`](crate::Queue::group). It is made of the jobs that were
/// [pushed into it](crate::JobOptions::group_id), and takes turns with the other groups of its queue.
///
/// What is set for it binds every worker, and stays until it is taken back.
///
/// ```no_run
/// use std::time::Duration;
/// use corq_client::JobOptions;
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let emails = client.queue("emails");
/// emails.push_with("hello", &JobOptions::new().group_id("tenant-7")).await?;
///
/// let tenant = emails.group("tenant-7");
/// tenant.set_concurrency(2).await?;
/// tenant.set_rate_limit(100, Duration::from_secs(60)).await?;
/// println!("{} wait, {} run", tenant.count().await?, tenant.active_count().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    queue: String,
    id: String,
}

impl Group {
    pub(crate) fn new(client: Client, queue: String, id: String) -> Self {
        Self { client, queue, id }
    }

    /// The id of the group within its queue.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The queue that the group belongs to.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// A command that changes nothing, or nothing more when it comes twice.
    fn reading(&self, cmd: &str) -> Request {
        Request::repeatable(cmd).queue(&self.queue).str("groupId", &self.id)
    }

    /// A command whose answer tells what it changed, so that it is not sent twice.
    fn changing(&self, cmd: &str) -> Request {
        Request::new(cmd).queue(&self.queue).str("groupId", &self.id)
    }

    /// How many of its jobs wait or are delayed.
    pub async fn count(&self) -> Result<u64, Error> {
        self.client.ask(self.reading("GetGroupJobsCount")).await?.within("data", "count")
    }

    /// How many of its jobs workers have.
    pub async fn active_count(&self) -> Result<u64, Error> {
        self.client.ask(self.reading("GetGroupActiveCount")).await?.within("data", "count")
    }

    /// Gives out no more of its jobs until it is resumed; says whether it was not paused before.
    pub async fn pause(&self) -> Result<bool, Error> {
        self.client.ask(self.changing("PauseGroup")).await?.within("data", "changed")
    }

    /// Gives out its jobs again; says whether it was paused.
    pub async fn resume(&self) -> Result<bool, Error> {
        self.client.ask(self.changing("ResumeGroup")).await?.within("data", "changed")
    }

    /// Whether it is paused.
    pub async fn is_paused(&self) -> Result<bool, Error> {
        self.client.ask(self.reading("IsGroupPaused")).await?.within("data", "paused")
    }

    /// Gives out none of its jobs for so long from now.
    pub async fn hold(&self, duration: Duration) -> Result<(), Error> {
        self.client.done(self.changing("RateLimitGroup").millis("duration", duration)).await
    }

    /// Has at most so many of its jobs active at a time.
    pub async fn set_concurrency(&self, jobs: u64) -> Result<(), Error> {
        self.client.done(self.reading("SetGroupConcurrency").uint("concurrency", jobs)).await
    }

    /// How many of its jobs may be active at a time; `None` for any number.
    pub async fn concurrency(&self) -> Result<Option<u64>, Error> {
        self.client.ask(self.reading("GetGroupConcurrency")).await?.within("data", "concurrency")
    }

    /// Has any number of its jobs active at a time; says whether there was a limit.
    pub async fn clear_concurrency(&self) -> Result<bool, Error> {
        self.removed(self.changing("RemoveGroupConcurrency")).await
    }

    /// Gives out at most `jobs` of its jobs in a time of `per`, which begins with the first of them.
    pub async fn set_rate_limit(&self, jobs: u64, per: Duration) -> Result<(), Error> {
        let request = self.reading("SetGroupRateLimit").uint("max", jobs);
        self.client.done(request.millis("duration", per)).await
    }

    /// The group's own rate limit; `None` if it has none.
    pub async fn rate_limit(&self) -> Result<Option<Rate>, Error> {
        self.client.ask(self.reading("GetGroupRateLimit")).await?.within("data", "limit")
    }

    /// Gives out its jobs at any rate; says whether there was a limit.
    pub async fn clear_rate_limit(&self) -> Result<bool, Error> {
        self.removed(self.changing("RemoveGroupRateLimit")).await
    }

    /// Time left of a [hold](Self::hold), or of the window in which the rate counts the group's jobs. Zero if fewer
    /// than `jobs` were delivered in the window, `None` if no window is open.
    pub async fn rate_limit_ttl(&self, jobs: Option<u64>) -> Result<Option<Duration>, Error> {
        let request = self.reading("GetGroupRateLimitTtl").opt_uint("maxJobs", jobs);
        let left_ms: i64 = self.client.ask(request).await?.within("data", "ttl")?;
        Ok(u64::try_from(left_ms).ok().map(Duration::from_millis))
    }

    /// Gives out so many of its jobs in a row when its turn comes, 1 to 1000. 1 unless set.
    pub async fn set_weight(&self, jobs: u32) -> Result<(), Error> {
        self.client.done(self.reading("SetGroupWeight").uint("weight", jobs.into())).await
    }

    /// How many of its jobs it gives out in a row when its turn comes.
    pub async fn weight(&self) -> Result<u64, Error> {
        self.client.ask(self.reading("GetGroupWeight")).await?.within("data", "weight")
    }

    async fn removed(&self, request: Request) -> Result<bool, Error> {
        Ok(self.client.ask(request).await?.within::<u64>("data", "removed")? > 0)
    }
}
