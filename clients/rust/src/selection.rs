//! Choices for lists, searches, spans of the last day, and samples. Every setting has a default.

use std::time::Duration;

use crate::error::Error;
use crate::raw::{Payload, Raw};
use crate::records::JobState;
use crate::wire::request::Request;

/// Column that a list of queues is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueSort {
    /// By their names, from a to z.
    #[default]
    Name,
    /// By the jobs that may be delivered.
    Waiting,
    /// By the jobs that wait for their time.
    Delayed,
    /// By the jobs that workers have.
    Active,
    /// By the jobs that are done.
    Completed,
    /// By the jobs in the dead-letter queue.
    Failed,
    /// By all jobs.
    Total,
    /// By the jobs completed in a minute.
    Rate,
    /// By the job that has waited for longest.
    Oldest,
}

impl QueueSort {
    fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Total => "total",
            Self::Rate => "rate",
            Self::Oldest => "oldest",
        }
    }
}

/// Which queues are listed, from [`Client::queue_page`](crate::Client::queue_page).
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct QueueListing {
    prefix: Option<String>,
    sort: QueueSort,
    reversed: bool,
    limit: Option<u32>,
    after: Option<String>,
    fields: Vec<String>,
}

impl QueueListing {
    /// The first hundred by name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those whose names begin so.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// In this order: names from a to z, figures from the largest.
    pub fn sort(mut self, sort: QueueSort) -> Self {
        self.sort = sort;
        self
    }

    /// The other way round.
    pub fn reversed(mut self) -> Self {
        self.reversed = true;
        self
    }

    /// Limits a page to this many queues, at most 1000.
    pub fn limit(mut self, queues: u32) -> Self {
        self.limit = Some(queues);
        self
    }

    /// Goes on where a page ended: its `next`.
    pub fn after(mut self, next: impl Into<String>) -> Self {
        self.after = Some(next.into());
        self
    }

    /// With this column, by its name in the protocol, beside others named before. All of them unless one is named.
    pub fn column(mut self, name: impl Into<String>) -> Self {
        self.fields.push(name.into());
        self
    }

    pub(crate) fn request(&self) -> Request {
        // Without a field the answer would be the short list of all queues.
        let mut request = Request::repeatable("ListQueues")
            .str("sort", self.sort.as_str())
            .opt_str("prefix", self.prefix.as_deref())
            .opt_uint("limit", self.limit.map(u64::from))
            .opt_str("after", self.after.as_deref());
        if self.reversed {
            let is_by_name = self.sort == QueueSort::Name;
            request = request.str("order", if is_by_name { "desc" } else { "asc" });
        }
        if self.fields.is_empty() {
            return request;
        }
        request.strs("fields", self.fields.iter().map(String::as_str))
    }
}

/// How much of their payloads jobs of a list show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shown {
    /// Nothing: then nothing is read from the disk.
    #[default]
    Nothing,
    /// The first 200 characters.
    Preview,
    /// All of it.
    Full,
}

/// Which jobs are listed or searched, page by page: from [`Queue::page`](crate::Queue::page) and
/// [`Queue::search`](crate::Queue::search).
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct JobFilter {
    states: Vec<JobState>,
    limit: Option<u32>,
    newest_first: bool,
    after: Option<String>,
    fields: Vec<String>,
    data: Shown,
    name: Option<String>,
    tag: Option<String>,
    group: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
}

impl JobFilter {
    /// All jobs, a hundred on a page, the oldest first.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those in this state, beside others named before.
    pub fn state(mut self, state: JobState) -> Self {
        self.states.push(state);
        self
    }

    /// Limits a page to this many jobs, at most 1000.
    pub fn limit(mut self, jobs: u32) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Begins with the newest.
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// Goes on where a page ended: its `next`.
    pub fn after(mut self, next: impl Into<String>) -> Self {
        self.after = Some(next.into());
        self
    }

    /// With this field, by its name in the protocol, beside others named before. All unless one is named.
    pub fn field(mut self, name: impl Into<String>) -> Self {
        self.fields.push(name.into());
        self
    }

    /// With so much of the payloads.
    pub fn data(mut self, shown: Shown) -> Self {
        self.data = shown;
        self
    }

    /// Only those of this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only those with this label.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Only those of this group.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Only those made at this time or later, in milliseconds since the Unix epoch.
    pub fn from_ms(mut self, at_ms: u64) -> Self {
        self.from_ms = Some(at_ms);
        self
    }

    /// Only those made at this time or earlier, in milliseconds since the Unix epoch.
    pub fn to_ms(mut self, at_ms: u64) -> Self {
        self.to_ms = Some(at_ms);
        self
    }

    pub(crate) fn add_to(&self, request: Request) -> Request {
        let mut request = request
            .str("order", if self.newest_first { "desc" } else { "asc" })
            .opt_uint("limit", self.limit.map(u64::from))
            .opt_str("after", self.after.as_deref())
            .opt_str("name", self.name.as_deref())
            .opt_str("tag", self.tag.as_deref())
            .opt_str("group", self.group.as_deref())
            .opt_uint("from", self.from_ms)
            .opt_uint("to", self.to_ms);
        if !self.states.is_empty() {
            request = request.strs("state", self.states.iter().map(|state| state.as_str()));
        }
        if !self.fields.is_empty() {
            request = request.strs("fields", self.fields.iter().map(String::as_str));
        }
        match self.data {
            Shown::Nothing => request,
            Shown::Preview => request.str("data", "preview"),
            Shown::Full => request.str("data", "full"),
        }
    }
}

/// Conditions on the payloads of jobs, and on the jobs themselves. A job must meet all of them.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Search {
    text: Option<String>,
    path: Option<String>,
    value: Option<Raw>,
    budget: Option<Duration>,
    filter: JobFilter,
}

impl Search {
    /// Payloads that have this in a text, keys included.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Payloads that have a value at this path, as in `order.lines.0.sku`.
    pub fn at(path: impl Into<String>) -> Self {
        Self { path: Some(path.into()), ..Self::default() }
    }

    /// Payloads that have this value at this path.
    pub fn value<P: Payload + ?Sized>(path: impl Into<String>, value: &P) -> Result<Self, Error> {
        Ok(Self { value: Some(Raw::encode(value)?), ..Self::at(path) })
    }

    /// Only among these jobs. The page goes on with [`JobFilter::after`].
    pub fn among(mut self, filter: JobFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Goes on where a page ended: its `next`.
    pub fn after(mut self, next: impl Into<String>) -> Self {
        self.filter = self.filter.after(next);
        self
    }

    /// Ends a page after so long, found or not, up to a minute. A second unless set.
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }

    pub(crate) fn add_to(&self, request: Request) -> Result<Request, Error> {
        let request = request
            .opt_str("text", self.text.as_deref())
            .opt_str("path", self.path.as_deref())
            .opt_millis("budgetMs", self.budget)
            .waits(self.budget.unwrap_or(Duration::from_secs(1)));
        let request = match &self.value {
            Some(value) => request.payload("value", value)?,
            None => request,
        };
        Ok(self.filter.add_to(request))
    }
}

/// A span of the last day, and how many points it has.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Span {
    step: Option<Duration>,
    points: Option<u32>,
    until_ms: Option<u64>,
}

impl Span {
    /// The last hour, in points of ten seconds.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a point is: ten seconds or a multiple of it, up to a day.
    pub fn step(mut self, step: Duration) -> Self {
        self.step = Some(step);
        self
    }

    /// How many points, up to 1440.
    pub fn points(mut self, points: u32) -> Self {
        self.points = Some(points);
        self
    }

    /// Ends with the point that has this time, in milliseconds since the Unix epoch, instead of now.
    pub fn until_ms(mut self, at_ms: u64) -> Self {
        self.until_ms = Some(at_ms);
        self
    }

    pub(crate) fn add_to(self, request: Request) -> Request {
        request
            .opt_millis("step", self.step)
            .opt_uint("points", self.points.map(u64::from))
            .opt_uint("until", self.until_ms)
    }
}

/// Content and interval of samples, for [`Client::watch`](crate::Client::watch).
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Watching {
    queues: Option<u32>,
    shards: bool,
    without_stats: bool,
    every: Option<Duration>,
}

impl Watching {
    /// The jobs of the server, every second.
    pub fn new() -> Self {
        Self::default()
    }

    /// The busiest queues as well, so many, up to 100.
    pub fn queues(mut self, top: u32) -> Self {
        self.queues = Some(top);
        self
    }

    /// The shards as well.
    pub fn shards(mut self) -> Self {
        self.shards = true;
        self
    }

    /// Without the jobs of the server.
    pub fn without_stats(mut self) -> Self {
        self.without_stats = true;
        self
    }

    /// Every so often, a second to a minute.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    pub(crate) fn request(&self) -> Request {
        let parts = [
            (!self.without_stats, "stats"),
            (self.queues.is_some(), "queues"),
            (self.shards, "shards"),
        ];
        let what: Vec<&str> =
            parts.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name).collect();
        Request::new("Watch")
            .strs("what", what.into_iter())
            .opt_uint("top", self.queues.map(u64::from))
            .opt_millis("every", self.every)
    }
}
