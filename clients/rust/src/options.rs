//! With what a job is pushed.

#[cfg(feature = "tokio")]
use std::borrow::Cow;
use std::time::Duration;

use crate::error::Error;
use crate::fields::Fields;
use crate::raw::Payload;
use crate::wire::encode::Encoder;
use crate::wire::request::millis;

/// How a job is to be handled. Whatever is not set is decided by the server; its defaults stand with each.
///
/// ```
/// use std::time::Duration;
/// use corq_client::{Backoff, JobOptions};
///
/// let options = JobOptions::new()
///     .job_id("invoice-4711") // pushing it twice makes one job
///     .priority(10)
///     .delay(Duration::from_secs(60))
///     .max_attempts(5)
///     .backoff(Backoff::exponential(Duration::from_secs(2)).max(Duration::from_secs(300)));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct JobOptions {
    job_id: Option<String>,
    name: Option<String>,
    priority: Option<i64>,
    delay: Option<Duration>,
    max_attempts: Option<u32>,
    backoff: Option<Backoff>,
    ttl: Option<Duration>,
    timeout: Option<Duration>,
    stall_timeout: Option<Duration>,
    unique_key: Option<String>,
    dedup: Option<Dedup>,
    debounce: Option<(String, Option<Duration>)>,
    tags: Vec<String>,
    group_id: Option<String>,
    group_max_size: Option<u64>,
    lifo: bool,
    remove_on_complete: bool,
    remove_on_fail: bool,
    durable: bool,
    depends_on: Vec<String>,
    children: Vec<String>,
    parent_id: Option<String>,
    on_failure: Option<OnChildFailure>,
    repeat: Option<Repeat>,
    stack_trace_limit: Option<u32>,
    keep_logs: Option<u32>,
    size_limit: Option<u64>,
    timestamp_ms: Option<u64>,
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl JobOptions {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// An id of one's own, 1 to 256 characters. Pushing the same id again gives back the first job, which makes a
    /// push safe to repeat: the client does so by itself when a connection breaks.
    pub fn job_id(mut self, id: impl Into<String>) -> Self {
        self.job_id = Some(id.into());
        self
    }

    /// The name of the job, beside its data.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// From -1,000,000 to 1,000,000; higher is delivered sooner. 0 unless set. In a [group](Self::group_id) lower is
    /// delivered sooner, and it goes up to 2,097,151.
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = Some(priority);
        self
    }

    /// How long it is held back before it may be delivered, at most a year.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Attempts before it goes to the dead-letter queue, 1 to 1000. 3 unless set.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// The wait between attempts. Exponential from one second unless set.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// How long it lives while no worker has it, at most a year; it is removed then.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long one attempt may take, at most a day; it fails then.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// After how long without a sign of life it counts as stalled, at most a day.
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall_timeout = Some(timeout);
        self
    }

    /// A key within the queue: as long as a job holds it, a second push brings nothing and gives back the first
    /// job's id.
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// Effect of a second push under the same [unique key](Self::unique_key).
    pub fn dedup(mut self, dedup: Dedup) -> Self {
        self.dedup = Some(dedup);
        self
    }

    /// A unique key that is held for `ttl` at most; counts where there is no unique key.
    pub fn debounce(mut self, id: impl Into<String>, ttl: Option<Duration>) -> Self {
        self.debounce = Some((id.into(), ttl));
        self
    }

    /// A label; at most 100 of them.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// The [group](crate::Queue::group) that it belongs to. Groups of a queue take turns, behind its jobs without one.
    pub fn group_id(mut self, group: impl Into<String>) -> Self {
        self.group_id = Some(group.into());
        self
    }

    /// How many jobs of its group may wait or be delayed; if it were one more, it is refused.
    pub fn group_max_size(mut self, jobs: u64) -> Self {
        self.group_max_size = Some(jobs);
        self
    }

    /// Newest first within its priority.
    pub fn lifo(mut self) -> Self {
        self.lifo = true;
        self
    }

    /// Job and result are forgotten on completion.
    pub fn remove_on_complete(mut self) -> Self {
        self.remove_on_complete = true;
        self
    }

    /// Removes the job when it fails for good, instead of moving it to the dead-letter queue.
    pub fn remove_on_fail(mut self) -> Self {
        self.remove_on_fail = true;
        self
    }

    /// The push is answered when the disk has the job, also where the server as a whole does not wait for it.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// The id of a job that must be completed first, in whatever queue; at most 1000 of them.
    pub fn depends_on(mut self, id: impl Into<String>) -> Self {
        self.depends_on.push(id.into());
        self
    }

    /// The id of a child: a job that must be completed first, and whose result it
    /// [can see](crate::JobHandle::children_values); at most 1000 of them.
    pub fn child_id(mut self, id: impl Into<String>) -> Self {
        self.children.push(id.into());
        self
    }

    /// The id of the job that it is a child of.
    pub fn parent_id(mut self, id: impl Into<String>) -> Self {
        self.parent_id = Some(id.into());
        self
    }

    /// Effect on the parent of this job's failure for good. The parent waits on unless this is set.
    pub fn on_failure(mut self, then: OnChildFailure) -> Self {
        self.on_failure = Some(then);
        self
    }

    /// The job is pushed again whenever a run completes.
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = Some(repeat);
        self
    }

    /// How many lines of a failure's stack are kept.
    pub fn stack_trace_limit(mut self, lines: u32) -> Self {
        self.stack_trace_limit = Some(lines);
        self
    }

    /// How many lines of its log are kept, the newest; 100 at most.
    pub fn keep_logs(mut self, lines: u32) -> Self {
        self.keep_logs = Some(lines);
        self
    }

    /// How many bytes its data may have as `MessagePack`, now and after each update.
    pub fn size_limit(mut self, bytes: u64) -> Self {
        self.size_limit = Some(bytes);
        self
    }

    /// When it was made, in milliseconds since the Unix epoch; delay and time to live count from there.
    pub fn timestamp_ms(mut self, timestamp_ms: u64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// The trace that it belongs to: the `traceparent` and the `tracestate` of W3C Trace Context. Workers get them with
    /// the job.
    pub fn trace(mut self, traceparent: impl Into<String>, tracestate: Option<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self.tracestate = tracestate.filter(|state| !state.is_empty());
        self
    }

    /// Adds the trace, unless the options name one already.
    #[cfg(feature = "tokio")]
    pub(crate) fn in_trace(&self, context: Option<(String, Option<String>)>) -> Cow<'_, Self> {
        match context {
            Some((parent, state)) if self.traceparent.is_none() => {
                Cow::Owned(self.clone().trace(parent, state))
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// As a part of a flow: its id stands elsewhere, its family is that of the flow.
    pub(crate) fn in_flow<'f>(
        mut self,
        parent: Option<&str>,
        children: impl Iterator<Item = &'f str>,
    ) -> Self {
        self.job_id = None;
        self.parent_id = parent.map(str::to_owned);
        self.children = children.map(str::to_owned).collect();
        self
    }

    /// Whether a push may be repeated without making a second job.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.job_id.is_some()
    }

    /// Writes data and options as the fields of a map; answers how many there are.
    pub(crate) fn encode<P: Payload + ?Sized>(
        &self,
        data: &P,
        id_key: &str,
        encoder: &mut Encoder,
    ) -> Result<u16, Error> {
        encoder.str("data");
        data.encode(encoder)?;
        let mut fields = Fields::after(1, encoder);
        fields.text(id_key, self.job_id.as_deref());
        fields.text("name", self.name.as_deref());
        if let Some(priority) = self.priority {
            fields.key("priority").int(priority);
        }
        fields.time("delay", self.delay);
        fields.uint("maxAttempts", self.max_attempts.map(u64::from));
        if let Some(backoff) = &self.backoff {
            backoff.encode(fields.key("backoff"));
        }
        fields.time("ttl", self.ttl);
        fields.time("timeout", self.timeout);
        fields.time("stallTimeout", self.stall_timeout);
        fields.text("uniqueKey", self.unique_key.as_deref());
        if let Some(dedup) = &self.dedup {
            dedup.encode(fields.key("dedup"));
        }
        if let Some((id, ttl)) = &self.debounce {
            fields.text("debounceId", Some(id));
            fields.time("debounceTtl", *ttl);
        }
        fields.texts("tags", self.tags.iter());
        fields.text("groupId", self.group_id.as_deref());
        fields.uint("groupMaxSize", self.group_max_size);
        fields.flag("lifo", self.lifo);
        fields.flag("removeOnComplete", self.remove_on_complete);
        fields.flag("removeOnFail", self.remove_on_fail);
        fields.flag("durable", self.durable);
        // A child is a dependency, too.
        fields.texts("dependsOn", self.depends_on.iter().chain(&self.children));
        fields.texts("childrenIds", self.children.iter());
        fields.text("parentId", self.parent_id.as_deref());
        if let Some(then) = self.on_failure {
            fields.flag(then.field(), true);
        }
        if let Some(repeat) = &self.repeat {
            repeat.encode(fields.key("repeat"));
        }
        fields.uint("stackTraceLimit", self.stack_trace_limit.map(u64::from));
        fields.uint("keepLogs", self.keep_logs.map(u64::from));
        fields.uint("sizeLimit", self.size_limit);
        fields.uint("timestamp", self.timestamp_ms);
        fields.text("traceparent", self.traceparent.as_deref());
        fields.text("tracestate", self.tracestate.as_deref());
        Ok(fields.count)
    }
}

/// Effect of a child's failure for good on its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnChildFailure {
    /// The parent fails, unless a worker has it.
    FailParent,
    /// The parent goes on at once, and can [ask for the error](crate::JobHandle::failed_children).
    ContinueParent,
    /// The failure counts as the end of the child, and the parent can [ask for the
    /// error](crate::JobHandle::ignored_children).
    Ignore,
    /// The failure counts as the end of the child.
    RemoveDependency,
}

impl OnChildFailure {
    fn field(self) -> &'static str {
        match self {
            Self::FailParent => "failParentOnFailure",
            Self::ContinueParent => "continueParentOnFailure",
            Self::Ignore => "ignoreDependencyOnFailure",
            Self::RemoveDependency => "removeDependencyOnFailure",
        }
    }
}

/// How long a failed job waits before its next attempt.
///
/// ```
/// use std::time::Duration;
/// use corq_client::Backoff;
///
/// let always_five_seconds = Backoff::fixed(Duration::from_secs(5));
/// let doubling = Backoff::exponential(Duration::from_secs(1)).max(Duration::from_secs(60));
/// # let _ = (always_five_seconds, doubling);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Backoff {
    kind: &'static str,
    delay: Duration,
    max: Option<Duration>,
}

impl Backoff {
    /// A constant wait before each attempt.
    pub fn fixed(delay: Duration) -> Self {
        Self { kind: "fixed", delay, max: None }
    }

    /// Twice as long after each attempt.
    pub fn exponential(delay: Duration) -> Self {
        Self { kind: "exponential", delay, max: None }
    }

    /// No wait is longer than this. An hour unless set.
    pub fn max(mut self, max: Duration) -> Self {
        self.max = Some(max);
        self
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.map(2 + u32::from(self.max.is_some()));
        encoder.str("type");
        encoder.str(self.kind);
        encoder.str("delay");
        encoder.uint(millis(self.delay));
        if let Some(max) = self.max {
            encoder.str("maxDelay");
            encoder.uint(millis(max));
        }
    }
}

/// Effect of a second push under the same unique key.
///
/// ```
/// use std::time::Duration;
/// use corq_client::{Dedup, JobOptions};
///
/// // One mail a minute, however often it is asked for.
/// let options = JobOptions::new()
///     .unique_key("welcome-ada")
///     .dedup(Dedup::new().ttl(Duration::from_secs(60)));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Dedup {
    ttl: Option<Duration>,
    extend: bool,
    replace: bool,
}

impl Dedup {
    /// The key is held as long as the job needs it, and a second push brings nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// For how long the key is held at most, from the push.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// A second push makes that time begin anew.
    pub fn extend(mut self) -> Self {
        self.extend = true;
        self
    }

    /// A second push takes the place of a job that no worker has.
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.map(2 + u32::from(self.ttl.is_some()));
        encoder.str("extend");
        encoder.bool(self.extend);
        encoder.str("replace");
        encoder.bool(self.replace);
        if let Some(ttl) = self.ttl {
            encoder.str("ttl");
            encoder.uint(millis(ttl));
        }
    }
}

/// A job that is pushed again whenever a run completes.
#[derive(Clone, Debug)]
#[must_use]
pub struct Repeat {
    every: Duration,
    limit: Option<u64>,
    count: u64,
}

impl Repeat {
    /// A run is due so long after the one before was due.
    pub fn every(every: Duration) -> Self {
        Self { every, limit: None, count: 0 }
    }

    /// The total number of runs.
    pub fn limit(mut self, runs: u64) -> Self {
        self.limit = Some(runs);
        self
    }

    /// How many of them there have been.
    pub fn count(mut self, runs: u64) -> Self {
        self.count = runs;
        self
    }

    fn encode(&self, encoder: &mut Encoder) {
        encoder.map(2 + u32::from(self.limit.is_some()));
        encoder.str("every");
        encoder.uint(millis(self.every));
        encoder.str("count");
        encoder.uint(self.count);
        if let Some(limit) = self.limit {
            encoder.str("limit");
            encoder.uint(limit);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rmpv::Value;

    fn encoded(options: &JobOptions) -> Value {
        let mut encoder = Encoder::default();
        let at = encoder.open_map();
        let count = options.encode(&7, "jobId", &mut encoder).unwrap();
        encoder.close_map(at, count);
        let bytes = encoder.into_bytes();
        let mut rest = &bytes[..];
        let value = rmpv::decode::read_value(&mut rest).unwrap();
        assert!(rest.is_empty());
        value
    }

    #[test]
    fn only_what_is_set_is_sent() {
        let value = encoded(&JobOptions::new());
        assert_eq!(value, Value::Map(vec![("data".into(), 7.into())]));
    }

    #[test]
    fn every_option_of_a_job_can_be_set() {
        let seconds = Duration::from_secs;
        let options = JobOptions::new()
            .job_id("a")
            .name("b")
            .priority(-5)
            .delay(seconds(1))
            .max_attempts(4)
            .backoff(Backoff::fixed(seconds(2)).max(seconds(3)))
            .ttl(seconds(4))
            .timeout(seconds(5))
            .stall_timeout(seconds(6))
            .unique_key("c")
            .dedup(Dedup::new().ttl(seconds(7)).extend().replace())
            .debounce("d", Some(seconds(8)))
            .tag("e")
            .tag("f")
            .group_id("g")
            .group_max_size(14)
            .lifo()
            .remove_on_complete()
            .remove_on_fail()
            .durable()
            .depends_on("h")
            .child_id("i")
            .parent_id("j")
            .on_failure(OnChildFailure::Ignore)
            .repeat(Repeat::every(seconds(9)).limit(10).count(1))
            .stack_trace_limit(11)
            .keep_logs(12)
            .size_limit(13)
            .timestamp_ms(1 << 41)
            .trace("00-1-2-01", Some("a=1".to_owned()));
        let value = encoded(&options);
        let json = serde_json::json!({
            "data": 7, "jobId": "a", "name": "b", "priority": -5, "delay": 1000, "maxAttempts": 4,
            "backoff": {"type": "fixed", "delay": 2000, "maxDelay": 3000},
            "ttl": 4000, "timeout": 5000, "stallTimeout": 6000, "uniqueKey": "c",
            "dedup": {"extend": true, "replace": true, "ttl": 7000},
            "debounceId": "d", "debounceTtl": 8000, "tags": ["e", "f"], "groupId": "g", "groupMaxSize": 14,
            "lifo": true, "removeOnComplete": true, "removeOnFail": true, "durable": true,
            "dependsOn": ["h", "i"], "childrenIds": ["i"], "parentId": "j",
            "ignoreDependencyOnFailure": true, "repeat": {"every": 9000, "count": 1, "limit": 10},
            "stackTraceLimit": 11, "keepLogs": 12, "sizeLimit": 13, "timestamp": 1_u64 << 41, "traceparent": "00-1-2-01",
            "tracestate": "a=1",
        });
        assert_eq!(value_as_json(&value), json);
    }

    fn value_as_json(value: &Value) -> serde_json::Value {
        match value {
            Value::Map(entries) => serde_json::Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.as_str().unwrap().to_owned(), value_as_json(value)))
                    .collect(),
            ),
            Value::Array(items) => items.iter().map(value_as_json).collect(),
            Value::String(text) => text.as_str().unwrap().into(),
            Value::Boolean(flag) => (*flag).into(),
            Value::Integer(number) => number.as_i64().unwrap().into(),
            other => panic!("{other}"),
        }
    }
}
