//! Commands of a shard: the mutations that it understands, already decoded, bounded and routed.
//!
//! Everything is borrowed from the bytes the command came in; a shard keeps what it needs. Texts of
//! the protocol, reply shapes and routing are not known here.

use crate::cron::expression::Plan;
use crate::dead_letter::policy::RulePatch;
use crate::dead_letter::scan::{DlqScanFor, FailedFilter};
use crate::dependency::Notice;
use crate::family::Reported;
use crate::flow::Fate;
use crate::group::GroupRate;
use crate::job::State;
use crate::job::change::Change;
use crate::job::id::JobId;
use crate::job::new_job::NewJob;
use crate::log_record::cron::CronRules;
use crate::queue::listing::Views;
use crate::webhook::Triggers;
use std::fmt;

pub use crate::caller::{ClientId, RequestId, Token};
pub use crate::job::stack::Stack;
pub use crate::queue::limit::{Limit, PerSpan};

/// Takes jobs from a queue.
#[derive(Clone, Copy, Debug)]
pub struct Pull<'a> {
    /// The queue to take from.
    pub queue: &'a str,
    /// At most this many, 1 to 1000.
    pub count: u32,
    /// How long to wait for the first job; 0 answers at once.
    pub timeout_ms: u64,
    /// Whether jobs are locked and come with tokens.
    pub locked: bool,
    /// Life of each lock, 1 to 86,400,000.
    pub lock_ttl_ms: u32,
    /// Whether the jobs stay with the token's holder when the connection goes.
    pub detach: bool,
    /// The name of the worker, for those who ask who has a job.
    pub owner: Option<&'a str>,
    /// Wishes about groups.
    pub group: Option<&'a GroupPull<'a>>,
}

/// Wishes of a pull about groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupPull<'a> {
    /// Most active jobs of a group for which nothing else is set, at least 1.
    pub active_max: Option<u64>,
    /// The rate of a group for which nothing else is set.
    pub rate: Option<GroupRate>,
    /// Which jobs are wanted.
    pub only: Only<'a>,
}

/// Which jobs of a queue with groups a pull wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Only<'a> {
    /// Any jobs, in their turn.
    #[default]
    Any,
    /// Jobs without a group.
    Ungrouped,
    /// Jobs of this group.
    Group(&'a str),
}

/// A limit or setting of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupLimit {
    /// Jobs that may leave in a span of time.
    Rate(Option<GroupRate>),
    /// Jobs that may be active at a time, at least 1.
    Active(Option<u64>),
    /// Jobs given in a row, 1 to [`crate::WEIGHT_MAX`].
    Weight(u32),
    /// Whether it gives none.
    Paused(bool),
    /// The group gives none for so many milliseconds, at least 1.
    Hold(u64),
}

/// Completes one job.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// The active job.
    pub job: JobId,
    /// The token that came with it, if any.
    pub token: Option<Token>,
    /// The result as a MessagePack value, or empty for none.
    pub result: &'a [u8],
    /// Forget job and result, whatever the job was pushed with.
    pub remove: bool,
}

/// Fails one attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fail<'a> {
    /// The active job.
    pub job: JobId,
    /// The token that came with it, if any.
    pub token: Option<Token>,
    /// The error in words, empty if not said.
    pub error: &'a str,
    /// Where it went wrong.
    pub stack: Stack<'a>,
    /// Whether no other attempt can succeed.
    pub unrecoverable: bool,
    /// Forget the job instead of moving it to the dead-letter queue, whatever it was pushed with.
    pub remove: bool,
}

/// A sign of life of a worker for one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The active job.
    pub job: JobId,
    /// The token that came with it, if any.
    pub token: Option<Token>,
    /// For how long it is held from now on, this time; for its usual time if not given.
    pub ttl_ms: Option<u32>,
}

/// Removes old jobs of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Clean<'a> {
    /// The queue.
    pub queue: &'a str,
    /// How long ago a job must have come (waiting, delayed), been pulled (active) or ended.
    pub grace_ms: u64,
    /// Only jobs in these states.
    pub states: &'a [State],
    /// At most this many.
    pub limit: u64,
}

/// Looks through a dead-letter queue, oldest failure first.
#[derive(Clone, Copy, Debug)]
pub struct DlqScanRequest<'a> {
    /// The queue.
    pub queue: &'a str,
    /// Which of its jobs are meant.
    pub filter: FailedFilter,
    /// But not so many of them, the first.
    pub offset: u64,
    /// And at most so many.
    pub limit: u64,
    /// The action on the jobs found.
    pub purpose: DlqScanFor,
}

/// State of a schedule that stays when it is set anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CronStanding {
    /// Runs so far.
    pub executions: u64,
    /// Times it has been set.
    pub version: u64,
    /// Whether it does not run for now.
    pub disabled: bool,
    /// Time of the next run.
    pub next_run_ms: u64,
    /// Whether it runs at the times that are set now.
    pub same_times: bool,
    /// Whether its first run was promised at once, and has not come.
    pub is_promised: bool,
    /// Whether it has run as often as it may.
    pub has_ended: bool,
}

/// Sets a schedule. The registry shard of schedules keeps the name unique on the server.
#[derive(Clone, Copy, Debug)]
pub struct SetCron<'a> {
    /// Name of the schedule.
    pub name: &'a str,
    /// Where its jobs go.
    pub queue: &'a str,
    /// Their payload: exactly one well-formed MessagePack value.
    pub data: &'a [u8],
    /// The expression, if it has one.
    pub schedule: Option<&'a str>,
    /// The interval, if it has one.
    pub repeat_every_ms: Option<u64>,
    /// The zone, as given.
    pub timezone: Option<&'a str>,
    /// Priority of its jobs.
    pub priority: i32,
    /// Runs after which it ends.
    pub runs_max: Option<u64>,
    /// Fields that its jobs are pushed with beside payload and priority.
    pub job: Option<&'a NewJob<'a>>,
    /// By which rules it runs.
    pub rules: CronRules,
    /// The times by expression, interval and zone.
    pub plan: Plan,
    /// State of the schedule that this one replaces, if that is on another shard.
    pub moved: Option<CronStanding>,
}

/// Registers a webhook. The caller has checked the URL and bounds the number of webhooks.
#[derive(Clone, Copy)]
pub struct AddWebhook<'a> {
    /// A new id: a random UUID.
    pub id: u128,
    /// Where to post.
    pub url: &'a str,
    /// Events that the webhook asks for; none means all.
    pub events: Triggers,
    /// Only events of this queue.
    pub queue: Option<&'a str>,
    /// Signs the posts. Not empty.
    pub secret: Option<&'a str>,
}

impl fmt::Debug for AddWebhook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret, which no log line may show.
        write!(f, "AddWebhook({:032x} to {})", self.id, self.url)
    }
}

/// A mutation of one shard.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// Adds jobs to a queue. Custom ids were claimed in the directory before.
    Push {
        /// The queue.
        queue: &'a str,
        /// The jobs, in order.
        jobs: &'a [NewJob<'a>],
    },
    /// Takes jobs, now or when they come.
    Pull(Pull<'a>),
    /// Says whether [`Command::Ack`] would be carried out, and changes nothing.
    CheckAcks {
        /// The completions.
        acks: &'a [Ack<'a>],
    },
    /// Completes jobs: all of them or, if one is refused, none.
    Ack {
        /// The completions.
        acks: &'a [Ack<'a>],
    },
    /// Fails an attempt.
    Fail(Fail<'a>),
    /// Renews the hold on a job.
    Heartbeat(Beat),
    /// Renews what can be renewed and counts it.
    Heartbeats {
        /// The jobs.
        beats: &'a [Beat],
    },
    /// Does something to one job.
    Change {
        /// The job.
        job: JobId,
        /// The change of the job.
        change: Change<'a>,
    },
    /// Waits for the end of a job.
    AwaitEnd {
        /// The job.
        job: JobId,
        /// For how long; 0 answers at once.
        timeout_ms: u64,
    },
    /// Stops or resumes delivery from a queue.
    Pause {
        /// The queue.
        queue: &'a str,
        /// Whether it stops.
        paused: bool,
    },
    /// Sets or takes back a limit of a queue.
    Limit {
        /// The queue.
        queue: &'a str,
        /// Which, and how much.
        limit: Limit,
    },
    /// Sets something for a group. Answered with how much was changed by it: 0 or 1.
    LimitGroup {
        /// The queue.
        queue: &'a str,
        /// The group, 1 to 256 characters.
        group: &'a str,
        /// The limit or setting, and its value.
        limit: GroupLimit,
    },
    /// Changes a rule of a queue.
    Rule {
        /// The queue.
        queue: &'a str,
        /// The rule, and the fields that change.
        patch: RulePatch,
    },
    /// Looks through a dead-letter queue.
    DlqScan(&'a DlqScanRequest<'a>),
    /// Takes jobs out of the dead-letter queue, to be tried anew.
    RetryFailed {
        /// The queue.
        queue: &'a str,
        /// This job only.
        job: Option<JobId>,
        /// At most this many, oldest first.
        count: u64,
    },
    /// Takes completed jobs, to be done anew.
    RetryCompleted {
        /// The queue.
        queue: &'a str,
        /// This job only.
        job: Option<JobId>,
        /// At most this many, oldest first.
        count: u64,
        /// Only those that were completed by then, in milliseconds since the epoch.
        until_ms: u64,
    },
    /// Takes a deduplication key from the job that holds it.
    FreeKey {
        /// The queue.
        queue: &'a str,
        /// The key.
        key: &'a str,
    },
    /// Ends the delays of jobs, oldest job first.
    PromoteAll {
        /// The queue.
        queue: &'a str,
        /// At most this many.
        count: u64,
    },
    /// Removes the waiting jobs of a queue.
    Drain {
        /// The queue.
        queue: &'a str,
    },
    /// Removes the waiting and the delayed jobs of a queue.
    DrainAll {
        /// The queue.
        queue: &'a str,
    },
    /// Removes the jobs of the dead-letter queue.
    PurgeFailed {
        /// The queue.
        queue: &'a str,
    },
    /// Removes old jobs.
    Clean(Clean<'a>),
    /// Removes old jobs, those of some views among them.
    CleanViews {
        /// Which others.
        clean: Clean<'a>,
        /// The views.
        views: Views,
    },
    /// Removes all jobs and settings of a queue.
    Obliterate {
        /// The queue.
        queue: &'a str,
    },
    /// Sets a schedule; one of the same name is replaced and keeps its count of runs.
    SetCron(&'a SetCron<'a>),
    /// Stops a schedule for as long as it is on its way to another shard, or lets it go on.
    HoldCron {
        /// Name of the schedule.
        name: &'a str,
        /// Whether it stops.
        held: bool,
    },
    /// Lets a schedule run no more for now, or again.
    EnableCron {
        /// Name of the schedule.
        name: &'a str,
        /// Whether it runs.
        enabled: bool,
    },
    /// Ends a schedule.
    RemoveCron {
        /// Name of the schedule.
        name: &'a str,
    },
    /// The server is open: schedules run from now on, and what fell due before is passed over.
    StartCrons,
    /// Registers a webhook.
    AddWebhook(&'a AddWebhook<'a>),
    /// Lets a webhook be told of nothing for now, or of its events again.
    EnableWebhook {
        /// The webhook.
        id: u128,
        /// Whether it is enabled: posts are made.
        enabled: bool,
    },
    /// Ends a webhook.
    RemoveWebhook {
        /// The webhook.
        id: u128,
    },
    /// News of another shard about jobs that depend on each other. Has no reply.
    Notice(Notice),
    /// The custom ids of jobs are wanted for others: those whose queues are being obliterated go at once.
    GiveBackNames {
        /// The jobs.
        jobs: &'a [JobId],
    },
    /// Takes a part of a flow, which nobody sees before [`Command::Decide`].
    Stage {
        /// Records of kind [`crate::log_record::Record::Staged`].
        records: &'a [&'a [u8]],
        /// Of each, in the same order, what [`NewJob::group_max`] says; zeros at the end may be left out.
        group_max: &'a [u32],
        /// Whether the reply waits for the disk, and so does the part when it comes.
        durable: bool,
    },
    /// Says what becomes of a flow.
    Decide {
        /// The flow.
        flow: JobId,
        /// The fate of the flow.
        fate: Fate,
        /// Whether that waits for the disk. It does wherever a part is durable.
        durable: bool,
    },
    /// Report of another shard on the end of a child. Has no reply.
    Report(&'a Reported<'a>),
    /// The caller's connection is gone.
    Disconnect,
    /// The server stops: pulls that wait get their empty answer now.
    EndWaits,
}
