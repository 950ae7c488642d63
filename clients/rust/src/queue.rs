//! A queue by its name: pushing, pulling, looking, and operating.

use std::time::Duration;

use crate::batcher::{Batcher, BatcherOptions};
use crate::client::Client;
use crate::error::Error;
use crate::group::Group;
use crate::options::JobOptions;
use crate::pulled::{PullOptions, Pulled};
use crate::raw::Payload;
use crate::records::{CountsPerPriority, GroupInfo, Job, JobCounts, JobState, QueueLimits};
use crate::telemetry::Producing;
use crate::wire::encode::Encoder;
use crate::wire::request::Request;

/// A queue of a server: from [`Client::queue`]. It comes to be with its first job or setting.
///
/// ```no_run
/// use std::time::Duration;
/// use corq_client::JobOptions;
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let emails = client.queue("emails");
/// emails.push("hello").await?;
/// let later = JobOptions::new().delay(Duration::from_secs(60));
/// emails.push_with(&("hello", "again"), &later).await?;
/// println!("{} wait, {} are delayed", emails.counts().await?.waiting, emails.counts().await?.delayed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    name: String,
}

/// Jobs to be pushed together: their data and options, encoded as they are added.
///
/// ```no_run
/// use corq_client::{JobBatch, JobOptions};
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let mut batch = JobBatch::new();
/// for number in 0..100 {
///     batch.add_with(&number, &JobOptions::new().priority(number))?;
/// }
/// let ids = client.queue("numbers").push_many(&batch).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct JobBatch {
    parts: Vec<Part>,
}

/// Jobs that go with one command, as many as the server takes of one.
#[derive(Clone, Debug, Default)]
struct Part {
    jobs: Encoder,
    count: usize,
    /// Whether one of them has no id of its own.
    unnamed: bool,
}

/// Most jobs of a part, and its most bytes: of a batch the server takes 16 MB.
const PART_JOBS_MAX: usize = 10_000;
const PART_BYTES_MAX: usize = 15 << 20;

impl Part {
    fn takes(&self, other: &Self) -> bool {
        self.count + other.count <= PART_JOBS_MAX
            && self.jobs.len() + other.jobs.len() <= PART_BYTES_MAX
    }

    fn request(&self, queue: &str) -> Request {
        let mut request = Request::new("PUSHB").queue(queue).repeats(!self.unnamed);
        let encoder = request.field("jobs");
        encoder.array(self.count);
        encoder.append(&self.jobs);
        request
    }
}

impl JobBatch {
    /// No jobs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job.
    pub fn add<P: Payload + ?Sized>(&mut self, data: &P) -> Result<(), Error> {
        self.add_with(data, &JobOptions::new())
    }

    /// Adds a job with options. One whose data cannot be written is not added.
    pub fn add_with<P: Payload + ?Sized>(
        &mut self,
        data: &P,
        options: &JobOptions,
    ) -> Result<(), Error> {
        let mut job = Encoder::default();
        let at = job.open_map();
        let count = options.encode(data, "customId", &mut job)?;
        job.close_map(at, count);
        self.add_part(&Part { jobs: job, count: 1, unnamed: !options.is_repeatable() });
        Ok(())
    }

    /// Adds all jobs of another batch.
    pub fn append(&mut self, other: &Self) {
        other.parts.iter().for_each(|part| self.add_part(part));
    }

    /// Bytes of its jobs on the wire.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.jobs.len()).sum()
    }

    fn add_part(&mut self, part: &Part) {
        match self.parts.last_mut().filter(|last| last.takes(part)) {
            Some(last) => {
                last.jobs.append(&part.jobs);
                last.count += part.count;
                last.unnamed |= part.unnamed;
            }
            None => self.parts.push(part.clone()),
        }
    }

    /// How many jobs there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Which jobs of a queue are listed, from [`Queue::jobs`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Listing {
    states: Vec<JobState>,
    offset: u64,
    limit: u32,
    newest_first: bool,
}

impl Default for Listing {
    fn default() -> Self {
        Self { states: Vec::new(), offset: 0, limit: 100, newest_first: false }
    }
}

impl Listing {
    /// The hundred oldest in whatever state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a state: jobs in any of the named states are listed.
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Skips this many jobs.
    pub fn offset(mut self, jobs: u64) -> Self {
        self.offset = jobs;
        self
    }

    /// Limits the answer to this many jobs, at most 1000.
    pub fn limit(mut self, jobs: u32) -> Self {
        self.limit = jobs;
        self
    }

    /// Lists the newest jobs first.
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }
}

impl Queue {
    pub(crate) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// The name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn reading(&self, cmd: &str) -> Request {
        Request::repeatable(cmd).queue(&self.name)
    }

    fn changing(&self, cmd: &str) -> Request {
        Request::new(cmd).queue(&self.name)
    }

    async fn count_of(&self, request: Request) -> Result<u64, Error> {
        self.client.ask(request).await?.read("count")
    }

    /// Pushes a job; answers its id.
    pub async fn push<P: Payload + ?Sized>(&self, data: &P) -> Result<String, Error> {
        self.push_with(data, &JobOptions::new()).await
    }

    /// Pushes a job with options; answers its id.
    ///
    /// With a [job id](JobOptions::job_id) it is safe to repeat, and is repeated by itself when the connection breaks.
    pub async fn push_with<P: Payload + ?Sized>(
        &self,
        data: &P,
        options: &JobOptions,
    ) -> Result<String, Error> {
        let span = Producing::begin("send", &self.name, None);
        let options = options.in_trace(span.context());
        let pushed = async {
            let request = self.changing("PUSH").repeats(options.is_repeatable());
            let request = request.fields(|encoder| options.encode(data, "jobId", encoder))?;
            self.client.ask(request).await?.read::<String>("id")
        };
        let pushed = pushed.await;
        span.end(pushed.as_deref().map(Some));
        pushed
    }

    /// Pushes many jobs with one command, all or none; answers their ids in order. More than 10,000 jobs or 15 MB go with
    /// several commands, one after the other, each of which pushes all of its jobs or none: a refusal ends those behind it.
    /// For jobs that come one by one there is the [`Batcher`].
    pub async fn push_many(&self, jobs: &JobBatch) -> Result<Vec<String>, Error> {
        let mut ids = Vec::with_capacity(jobs.len());
        for part in &jobs.parts {
            let span = Producing::begin("send", &self.name, Some(part.count));
            let request = part.request(&self.name).trace(span.context());
            let pushed = async { self.client.ask(request).await?.read("ids") }.await;
            span.end(pushed.as_ref().map(|_: &Vec<String>| None));
            ids.append(&mut pushed?);
        }
        Ok(ids)
    }

    /// Gathers jobs that come one by one, and pushes many at a time. It works in a task of the runtime in which this is
    /// called.
    pub fn batcher(&self, options: BatcherOptions) -> Batcher {
        let (batcher, work) = Batcher::new(self.clone(), options);
        tokio::spawn(work);
        batcher
    }

    /// Pulls up to `count` jobs, 1 to 1000, to be worked on and [completed](Pulled::complete) by hand. A
    /// [`Worker`](crate::Worker) does all that by itself.
    ///
    /// It may be broken off, as `select!` and timeouts do: jobs that come all the same are given back, their attempts as
    /// they were.
    pub async fn pull(&self, count: u32, options: &PullOptions) -> Result<Vec<Pulled>, Error> {
        let request = options.request(&self.name, count);
        let reply = self.client.ask(request).await?;
        Pulled::read(&self.client, &reply, options.lock_ttl)
    }

    /// Jobs of the queue, in the order of their creation.
    pub async fn jobs(&self, which: &Listing) -> Result<Vec<Job>, Error> {
        let mut request = self
            .reading("GetJobs")
            .uint("limit", which.limit.into())
            .uint("offset", which.offset)
            .bool("asc", !which.newest_first);
        if !which.states.is_empty() {
            let states: Vec<&str> = which.states.iter().map(|state| state.as_str()).collect();
            request = request.strs("state", states.into_iter());
        }
        self.client.ask(request).await?.read("jobs")
    }

    /// How many of its jobs are in which state.
    pub async fn counts(&self) -> Result<JobCounts, Error> {
        self.client.ask(self.reading("GetJobCounts")).await?.read("counts")
    }

    /// How many of its waiting jobs have which priority.
    pub async fn counts_per_priority(&self) -> Result<CountsPerPriority, Error> {
        self.client.ask(self.reading("GetCountsPerPriority")).await?.read("counts")
    }

    /// How many jobs it has, in whatever state.
    pub async fn count(&self) -> Result<u64, Error> {
        self.count_of(self.reading("Count")).await
    }

    /// Gives out no jobs until it is resumed.
    pub async fn pause(&self) -> Result<(), Error> {
        self.client.done(self.reading("Pause")).await
    }

    /// Gives out jobs again.
    pub async fn resume(&self) -> Result<(), Error> {
        self.client.done(self.reading("Resume")).await
    }

    /// Whether it gives out no jobs.
    pub async fn is_paused(&self) -> Result<bool, Error> {
        self.client.ask(self.reading("IsPaused")).await?.read("paused")
    }

    /// Removes its waiting jobs; answers how many.
    pub async fn drain(&self) -> Result<u64, Error> {
        self.count_of(self.changing("Drain")).await
    }

    /// Removes all of its jobs, active ones included, and its settings.
    pub async fn obliterate(&self) -> Result<(), Error> {
        self.client.done(self.changing("Obliterate")).await
    }

    /// Removes up to `limit` jobs that came, or ended, `grace` ago or earlier, in this state or in all but active; answers
    /// their ids.
    pub async fn clean(
        &self,
        grace: Duration,
        state: Option<JobState>,
        limit: u32,
    ) -> Result<Vec<String>, Error> {
        let request = self.changing("Clean").millis("grace", grace).uint("limit", limit.into());
        let request = request.opt_str("state", state.map(JobState::as_str));
        self.client.ask(request).await?.read("ids")
    }

    /// Lets delayed jobs wait no longer, all or the oldest `count`; answers how many.
    pub async fn promote(&self, count: Option<u64>) -> Result<u64, Error> {
        self.count_of(self.changing("PromoteJobs").opt_uint("count", count)).await
    }

    /// Up to `count` jobs of its dead-letter queue, at most 1000, oldest first.
    pub async fn dead_letters(&self, count: u32) -> Result<Vec<Job>, Error> {
        self.client.ask(self.reading("Dlq").uint("count", count.into())).await?.read("jobs")
    }

    /// Lets a job of its dead-letter queue run again; says whether it was there.
    pub async fn retry_dead_letter(&self, id: &str) -> Result<bool, Error> {
        Ok(self.count_of(self.changing("RetryDlq").str("jobId", id)).await? > 0)
    }

    /// Lets jobs of its dead-letter queue run again, all or the oldest `count`; answers how many.
    pub async fn retry_dead_letters(&self, count: Option<u64>) -> Result<u64, Error> {
        self.count_of(self.changing("RetryDlq").opt_uint("count", count)).await
    }

    /// Removes a job from its dead-letter queue; says whether it was there.
    pub async fn remove_dead_letter(&self, id: &str) -> Result<bool, Error> {
        let request = self.changing("RemoveDlqJob").str("jobId", id);
        self.client.ask(request).await?.within("data", "removed")
    }

    /// Empties its dead-letter queue; answers how many jobs went.
    pub async fn purge_dead_letters(&self) -> Result<u64, Error> {
        self.count_of(self.changing("PurgeDlq")).await
    }

    /// Lets completed jobs run again, all or the oldest `count`; answers how many.
    pub async fn retry_completed(&self, count: Option<u64>) -> Result<u64, Error> {
        self.count_of(self.changing("RetryCompleted").opt_uint("count", count)).await
    }

    /// Gives out at most `jobs` in each `per`, for `ttl` or for good.
    pub async fn set_rate_limit(
        &self,
        jobs: u32,
        per: Duration,
        ttl: Option<Duration>,
    ) -> Result<(), Error> {
        let request = self.reading("RateLimit").uint("limit", jobs.into()).millis("duration", per);
        self.client.done(request.opt_millis("ttl", ttl)).await
    }

    /// Gives out jobs at any rate.
    pub async fn clear_rate_limit(&self) -> Result<(), Error> {
        self.client.done(self.reading("RateLimitClear")).await
    }

    /// Has at most so many jobs active at a time.
    pub async fn set_concurrency(&self, jobs: u32) -> Result<(), Error> {
        self.client.done(self.reading("SetConcurrency").uint("limit", jobs.into())).await
    }

    /// Has any number of jobs active at a time.
    pub async fn clear_concurrency(&self) -> Result<(), Error> {
        self.client.done(self.reading("ClearConcurrency")).await
    }

    /// The rate and concurrency limits of the queue.
    pub async fn limits(&self) -> Result<QueueLimits, Error> {
        self.client.ask(self.reading("GetQueueLimits")).await?.within("data", "limits")
    }

    /// A group of this queue, by the group's id. Nothing is sent.
    pub fn group(&self, id: impl Into<String>) -> Group {
        Group::new(self.client.clone(), self.name.clone(), id.into())
    }

    /// Up to `limit` of its groups, at most 1000, in the order in which they became known, from behind the one called
    /// `after` on.
    pub async fn groups(&self, limit: u32, after: Option<&str>) -> Result<Vec<GroupInfo>, Error> {
        let request = self.reading("GetGroups").uint("limit", limit.into());
        self.client.ask(request.opt_str("after", after)).await?.read("groups")
    }

    /// How many jobs of all its groups wait or are delayed.
    pub async fn count_in_groups(&self) -> Result<u64, Error> {
        self.client.ask(self.reading("GetGroupsJobsCount")).await?.within("data", "count")
    }

    /// The job that holds a unique key, or `None`.
    pub async fn deduplication_job_id(&self, key: &str) -> Result<Option<String>, Error> {
        let request = self.reading("GetDeduplicationJobId").str("deduplicationId", key);
        self.client.ask(request).await?.within("data", "jobId")
    }

    /// Lets go of a unique key; says whether it was held.
    pub async fn remove_deduplication_key(&self, key: &str) -> Result<bool, Error> {
        let request = self.changing("RemoveDeduplicationKey").str("deduplicationId", key);
        Ok(self.client.ask(request).await?.within::<u64>("data", "count")? > 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn counts(batch: &JobBatch) -> Vec<usize> {
        batch.parts.iter().map(|part| part.count).collect()
    }

    #[test]
    fn a_batch_goes_in_as_many_commands_as_the_server_takes_it_in() {
        let mut batch = JobBatch::new();
        assert!(batch.is_empty() && counts(&batch).is_empty());
        for number in 0..25_000 {
            batch.add(&number).unwrap();
        }
        assert_eq!((counts(&batch), batch.len()), (vec![10_000, 10_000, 5000], 25_000));
        let (mut large, text) = (JobBatch::new(), "x".repeat(4 << 20));
        for _ in 0..7 {
            large.add(&text).unwrap();
        }
        assert_eq!(counts(&large), [3, 3, 1], "by their bytes");
        let bytes = batch.bytes() + large.bytes();
        batch.append(&large);
        assert_eq!((counts(&batch), batch.bytes()), (vec![10_000, 10_000, 5003, 3, 1], bytes));
    }
}
