//! A request with its meaning: every field checked, bounded and defaulted, borrowed from the bytes
//! it came in.
//!
//! How it travelled is not known here, nor what the server does about it.

use super::flow::FlowJob;
use super::spec::Op;
use corq_shards::command::{GroupLimit, GroupPull, Stack, Token};
use corq_shards::dead_letter::policy::RulePatch;
use corq_shards::dead_letter::scan::FailedFilter;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::job_change::Level;

use crate::protocol::msgpack::Texts;
use crate::protocol::uuid_text;

/// A request as it reaches the server.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Which command.
    pub op: Op,
    /// The client's `reqId`, one `MessagePack` value to be sent back byte for byte.
    pub req_id: Option<&'a [u8]>,
    /// The command.
    pub body: Body<'a>,
}

/// A request that is refused before it reaches the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused<'a> {
    /// The client's `reqId`, if it could be found, so that the client can match the error.
    pub req_id: Option<&'a [u8]>,
    /// The text for the client.
    pub error: Box<str>,
}

/// The name of a job, as clients give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobRef<'a> {
    /// A text of the form the server gives out: a version 7 UUID in lower case. A client may have
    /// chosen such a text as its custom id, so a shard that does not know the id may look the
    /// text up (`uuid_text::format` gives back exactly what the client sent).
    Id(JobId),
    /// Any other text: the id that the client chose.
    Custom(&'a str),
}

impl<'a> JobRef<'a> {
    /// Tells the two apart.
    #[inline]
    pub fn of(text: &'a str) -> Self {
        match uuid_text::parse_exact(text).map(JobId) {
            Some(id) if id.is_v7() => Self::Id(id),
            _ => Self::Custom(text),
        }
    }
}

/// The token in a text: none if it is empty, [`Token::UNREADABLE`] if it is no UUID. Nobody can show
/// [`Token::ANY`].
#[inline]
pub fn token_of(text: &str) -> Option<Token> {
    if text.is_empty() {
        return None;
    }
    let token = uuid_text::parse(text).map(Token).filter(|token| *token != Token::ANY);
    Some(token.unwrap_or(Token::UNREADABLE))
}

/// Which states a listing or a clean-up is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateFilter(pub u32);

impl StateFilter {
    /// Jobs that can be pulled.
    pub const WAITING: u32 = 1;
    /// Jobs whose time has not come.
    pub const DELAYED: u32 = 1 << 1;
    /// Jobs that a worker has.
    pub const ACTIVE: u32 = 1 << 2;
    /// Jobs that are done.
    pub const COMPLETED: u32 = 1 << 3;
    /// Jobs in the dead-letter queue.
    pub const FAILED: u32 = 1 << 4;
    /// Jobs whose dependencies are unmet.
    pub const WAITING_CHILDREN: u32 = 1 << 5;
    /// Jobs that can be pulled, of a priority above 0.
    pub const PRIORITIZED: u32 = 1 << 6;
    /// Jobs that could be pulled if their queue were not paused.
    pub const PAUSED: u32 = 1 << 7;

    /// Whether the filter names any of these states.
    pub fn has(self, states: u32) -> bool {
        self.0 & states != 0
    }
}

/// Which jobs of a dead-letter queue are meant, and which of those.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DlqFilter {
    /// Which jobs.
    pub filter: FailedFilter,
    /// But not so many of them, the oldest.
    pub offset: u64,
    /// And at most so many.
    pub limit: u64,
}

impl Default for DlqFilter {
    fn default() -> Self {
        Self { filter: FailedFilter::default(), offset: 0, limit: u64::MAX }
    }
}

/// PULL and PULLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pull<'a> {
    /// The queue to take from.
    pub queue: &'a str,
    /// At most this many, 1 to 1000; 1 for PULL.
    pub count: u32,
    /// How long to wait for the first job, in milliseconds.
    pub timeout_ms: u64,
    /// Who takes them. With an owner the jobs are locked and come with tokens.
    pub owner: Option<&'a str>,
    /// Life of each lock, in milliseconds.
    pub lock_ttl_ms: u32,
    /// Whether the jobs stay with the token's holder when the connection goes.
    pub detach: bool,
    /// What it says of groups.
    pub group: Option<GroupPull<'a>>,
}

impl Pull<'_> {
    /// The shard's view.
    pub fn command(&self) -> corq_shards::command::Pull<'_> {
        corq_shards::command::Pull {
            queue: self.queue,
            count: self.count,
            timeout_ms: self.timeout_ms,
            locked: self.owner.is_some(),
            lock_ttl_ms: self.lock_ttl_ms,
            detach: self.detach,
            group: self.group.as_ref(),
        }
    }
}

/// The fields of ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// The active job.
    pub job: JobRef<'a>,
    /// Its token, if one was shown.
    pub token: Option<Token>,
    /// One `MessagePack` value, or empty for none.
    pub result: &'a [u8],
    /// Whether job and result are to be forgotten.
    pub remove: bool,
}

/// The fields of FAIL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fail<'a> {
    /// The active job.
    pub job: JobRef<'a>,
    /// Its token, if one was shown.
    pub token: Option<Token>,
    /// What went wrong, empty if not said, cut at 64 KB.
    pub error: &'a str,
    /// Whether no other attempt can succeed.
    pub unrecoverable: bool,
    /// Where it went wrong: as many lines as fit 64 KB.
    pub stack: Stack<'a>,
    /// Whether the job is to be forgotten if it fails for good.
    pub remove: bool,
}

/// ACKB, `JobHeartbeatB` and `ExtendLocks`: ids with what belongs to each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch<'a> {
    /// The jobs, in the client's order.
    pub ids: Vec<JobRef<'a>>,
    tokens: Vec<Option<Token>>,
    results: Vec<&'a [u8]>,
    removes: Vec<bool>,
    durations: Vec<i64>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        ids: Vec<JobRef<'a>>,
        tokens: Vec<Option<Token>>,
        results: Vec<&'a [u8]>,
    ) -> Self {
        Self { ids, tokens, results, removes: Vec::new(), durations: Vec::new() }
    }

    pub(crate) fn with(self, removes: Vec<bool>, durations: Vec<i64>) -> Self {
        Self { removes, durations, ..self }
    }

    /// Whether the job at `index` is to be forgotten.
    #[inline]
    pub fn remove(&self, index: usize) -> bool {
        self.removes.get(index).copied().unwrap_or(false)
    }

    /// For how long the job at `index` is to be held, if that was said.
    #[inline]
    pub fn ttl_ms(&self, index: usize) -> Option<u32> {
        self.durations.get(index).map(|&duration| duration as u32)
    }

    /// The token shown for the job at `index`.
    #[inline]
    pub fn token(&self, index: usize) -> Option<Token> {
        self.tokens.get(index).copied().flatten()
    }

    /// The result of the job at `index`; empty for none.
    #[inline]
    pub fn result(&self, index: usize) -> &'a [u8] {
        self.results.get(index).copied().unwrap_or_default()
    }

    /// Every job as an ACK of its own.
    pub fn acks(&self) -> impl ExactSizeIterator<Item = Ack<'a>> {
        self.ids.iter().enumerate().map(|(index, job)| Ack {
            job: *job,
            token: self.token(index),
            result: self.result(index),
            remove: self.remove(index),
        })
    }
}

/// The fields of Cron.
#[derive(Clone, Debug)]
pub struct Cron<'a> {
    /// The schedule's unique name.
    pub name: &'a str,
    /// Where its jobs go.
    pub queue: &'a str,
    /// Their payload.
    pub data: &'a [u8],
    /// When they are due. Whether an expression or a zone means anything is not checked here.
    pub every: Cadence<'a>,
    /// Their priority.
    pub priority: i32,
    /// Runs after which the schedule goes.
    pub runs_max: Option<u64>,
    /// IANA name of the zone that the expression is in.
    pub timezone: Option<&'a str>,
    /// What else they are pushed with, if anything.
    pub job: Option<Box<NewJob<'a>>>,
    /// By which rules it runs.
    pub rules: CronRules,
}

/// When a schedule is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cadence<'a> {
    /// At the times of a cron expression.
    Expression(&'a str),
    /// Once per so many milliseconds, at least 1.
    Interval(u64),
}

/// The fields of `RegisterWorker`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterWorker<'a> {
    /// The worker's name.
    pub name: &'a str,
    /// The queues it works on.
    pub queues: Texts<'a>,
    /// The id it wants to be known by.
    pub worker_id: Option<&'a str>,
}

/// The fields of `AddWebhook`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddWebhook<'a> {
    /// Where to post. What may be posted to is not checked here.
    pub url: &'a str,
    /// The events it asks for, each of [`crate::api::spec::WEBHOOK_EVENTS`]; none means all.
    pub events: Texts<'a>,
    /// Only events of this queue.
    pub queue: Option<&'a str>,
    /// Signs the posts.
    pub secret: Option<&'a str>,
}

/// What a command on one group wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupAsk {
    /// How many of its jobs wait or are delayed.
    JobsCount,
    /// How many of its jobs workers have.
    ActiveCount,
    /// The rate that is set for it.
    RateLimit,
    /// How long it gives no jobs.
    RateLimitTtl {
        /// Unless fewer than so many have left.
        jobs: Option<u64>,
    },
    /// How many of its jobs may be active.
    Concurrency,
    /// Jobs it may give in a row.
    Weight,
    /// Whether it is paused.
    IsPaused,
    /// To set something.
    Set {
        /// The new limit.
        limit: GroupLimit,
        /// What is answered.
        answer: Answer,
    },
}

/// What a command that sets something for a group answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing more.
    Ok,
    /// How much was taken back.
    Removed,
    /// Whether it was otherwise before.
    Changed,
}

/// One command with its fields. Those that take only a queue or a job carry just that.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "one variant per row of the command table, which describes them")]
#[allow(
    clippy::large_enum_variant,
    reason = "it lives on the stack for one call; a box would cost a push an allocation"
)]
pub enum Body<'a> {
    Hello {
        protocol_version: u64,
        capabilities: Texts<'a>,
    },
    Auth {
        token: &'a str,
    },
    Ping,
    SubscribeEvents(&'a str),
    UnsubscribeEvents,
    Push {
        queue: &'a str,
        job: NewJob<'a>,
    },
    PushBatch {
        queue: &'a str,
        jobs: Vec<NewJob<'a>>,
    },
    PushFlow(Vec<FlowJob<'a>>),
    Pull(Pull<'a>),
    PullBatch(Pull<'a>),
    Ack(Ack<'a>),
    AckBatch(Batch<'a>),
    Fail(Fail<'a>),
    JobHeartbeat {
        job: JobRef<'a>,
        token: Option<Token>,
    },
    JobHeartbeatBatch(Batch<'a>),
    Progress {
        job: JobRef<'a>,
        progress: f64,
        message: Option<&'a str>,
    },
    AddLog {
        job: JobRef<'a>,
        message: &'a str,
        level: Level,
    },
    Heartbeat {
        worker_id: &'a str,
    },
    WaitJob {
        job: JobRef<'a>,
        timeout_ms: u64,
    },
    GetJob(JobRef<'a>),
    GetState(JobRef<'a>),
    GetResult(JobRef<'a>),
    GetProgress(JobRef<'a>),
    GetLogs {
        job: JobRef<'a>,
        start: u64,
        end: Option<u64>,
    },
    GetJobByCustomId(&'a str),
    GetJobs {
        queue: &'a str,
        states: Option<StateFilter>,
        limit: u32,
        offset: u64,
        newest_first: bool,
    },
    GetJobCounts(&'a str),
    GetCountsPerPriority(&'a str),
    Count(&'a str),
    Cancel(JobRef<'a>),
    Update {
        job: JobRef<'a>,
        data: &'a [u8],
    },
    ChangePriority {
        job: JobRef<'a>,
        priority: i32,
        lifo: Option<bool>,
    },
    Promote(JobRef<'a>),
    MoveToDelayed {
        job: JobRef<'a>,
        delay_ms: u64,
        token: Option<Token>,
    },
    Discard {
        job: JobRef<'a>,
        token: Option<Token>,
    },
    ExtendLock {
        job: JobRef<'a>,
        token: Option<Token>,
        ttl_ms: u32,
    },
    ExtendLocks(Batch<'a>),
    MoveToWait {
        job: JobRef<'a>,
        token: Option<Token>,
    },
    ChangeDelay {
        job: JobRef<'a>,
        delay_ms: u64,
        token: Option<Token>,
    },
    ClearLogs {
        job: JobRef<'a>,
        keep: u32,
    },
    GetChildrenValues(JobRef<'a>),
    GetFailedChildrenValues(JobRef<'a>),
    GetIgnoredChildrenFailures(JobRef<'a>),
    RemoveChildDependency(JobRef<'a>),
    RemoveUnprocessedChildren(JobRef<'a>),
    MoveToWaitingChildren {
        job: JobRef<'a>,
        token: Option<Token>,
    },
    UpdateParent {
        child: JobRef<'a>,
        parent: JobRef<'a>,
    },
    RemoveJobDeduplicationKey(JobRef<'a>),
    GetDeduplicationJobId {
        queue: &'a str,
        key: &'a str,
    },
    RemoveDeduplicationKey {
        queue: &'a str,
        key: &'a str,
    },
    PromoteJobs {
        queue: &'a str,
        count: Option<u64>,
    },
    Pause(&'a str),
    Resume(&'a str),
    IsPaused(&'a str),
    Drain(&'a str),
    Obliterate(&'a str),
    Clean {
        queue: &'a str,
        grace_ms: u64,
        states: Option<StateFilter>,
        limit: u32,
    },
    ListQueues,
    Dlq {
        queue: &'a str,
        count: u32,
        filter: Option<DlqFilter>,
    },
    RetryDlq {
        queue: &'a str,
        job: Option<JobRef<'a>>,
        count: Option<u64>,
        filter: Option<DlqFilter>,
    },
    PurgeDlq(&'a str),
    GetDlqStats(&'a str),
    SetRule {
        queue: &'a str,
        patch: RulePatch,
    },
    GetDlqConfig(&'a str),
    GetStallConfig(&'a str),
    RetryCompleted {
        queue: &'a str,
        job: Option<JobRef<'a>>,
        count: Option<u64>,
        until_ms: Option<u64>,
    },
    RemoveDlqJob {
        queue: &'a str,
        job: JobRef<'a>,
    },
    Cron(Cron<'a>),
    CronDelete(&'a str),
    CronGet(&'a str),
    CronList,
    Stats,
    Metrics,
    QueueMetrics {
        queue: &'a str,
        failed: bool,
        start: u64,
        end: Option<u64>,
    },
    Prometheus,
    BackupPoint,
    RegisterWorker(RegisterWorker<'a>),
    UnregisterWorker(&'a str),
    ListWorkers,
    AddWebhook(AddWebhook<'a>),
    RemoveWebhook(&'a str),
    SetWebhookEnabled {
        id: &'a str,
        enabled: bool,
    },
    ListWebhooks,
    RateLimit {
        queue: &'a str,
        limit: u32,
        span_ms: u32,
        ttl_ms: Option<u64>,
    },
    GetQueueLimits {
        queue: &'a str,
        jobs: u64,
    },
    Group {
        queue: &'a str,
        group: &'a str,
        ask: GroupAsk,
    },
    GetGroups {
        queue: &'a str,
        limit: u32,
        after: Option<&'a str>,
    },
    GetGroupsJobsCount(&'a str),
    TrimEvents(&'a str),
    RateLimitClear(&'a str),
    SetConcurrency {
        queue: &'a str,
        limit: u32,
    },
    ClearConcurrency(&'a str),
}
