//! A request with its meaning: every field checked, bounded and defaulted, borrowed from the bytes
//! it came in.
//!
//! How it travelled is not known here, nor what the server does about it.

use super::bulk::{Bulk, shard_of_task};
use super::commands::{COMMANDS, CommandSpec, Op, command_table};
use super::error::Error;
use super::field_type::{FieldType, Held, field_types};
use super::flow::FlowJob;
use super::listing::{JobPage, QueuePage, ScanCursor, Search};
use super::parent_link::linked_parent;
use super::version::Version;
use corq_shards::command::{GroupPull, Stack, Token};
use corq_shards::dead_letter::policy::{DlqPatch, StallPatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::FailedFilter;
use corq_shards::job::id::JobId;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::cron::CronRules;
use corq_shards::log_record::job_change::Level;
use corq_shards::queue::listing::Views;

use crate::protocol::msgpack::Texts;
use crate::protocol::uuid_text;

/// A request as it reaches the server.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Which command.
    pub op: Op,
    /// The client's `reqId`, one `MessagePack` value to be sent back byte for byte.
    pub req_id: Option<&'a [u8]>,
    pub body: Body<'a>,
    /// The first version of the protocol that has this command with these fields.
    pub needs: Version,
    /// Cron expressions of its jobs; a long one counts as several.
    pub patterns: usize,
}

/// Steps of a turn that a cron expression takes: it is read when it is judged and when it comes, and searched both times.
const PATTERN_STEPS: usize = 8;

impl Request<'_> {
    /// Steps of a turn beside those of its jobs.
    pub fn steps(&self) -> usize {
        self.patterns * PATTERN_STEPS
    }
}

/// A request that is refused before it reaches the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused<'a> {
    /// The client's `reqId`, if it could be found, so that the client can match the error.
    pub req_id: Option<&'a [u8]>,
    pub error: Error,
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

/// The token in a text: none if it is empty, [`Token::UNREADABLE`] if it is no UUID. No text stands for
/// [`Token::ANY`] or [`Token::LACKING`].
#[inline]
pub fn token_of(text: &str) -> Option<Token> {
    if text.is_empty() {
        return None;
    }
    let is_shown = |token: &Token| ![Token::ANY, Token::LACKING].contains(token);
    let token = uuid_text::parse(text).map(Token).filter(is_shown);
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
    /// Another word for [`StateFilter::WAITING`].
    const WAIT: u32 = 1 << 8;

    /// Whether the filter names any of these states.
    pub fn has(self, states: u32) -> bool {
        let named = if self.0 & Self::WAIT == 0 { self.0 } else { self.0 | Self::WAITING };
        named & states != 0
    }

    /// The names among these that are no states: prioritized and paused jobs.
    pub fn views(self) -> Views {
        Views { prioritized: self.has(Self::PRIORITIZED), paused: self.has(Self::PAUSED) }
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

/// How many jobs a command may act on: without a number, or with 0, any number.
pub fn unlimited(count: Option<u64>) -> u64 {
    count.filter(|&count| count > 0).unwrap_or(u64::MAX)
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
    /// Choice of groups, and limits for each.
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
            owner: self.owner,
            group: self.group.as_ref(),
        }
    }
}

/// A job of `ACKB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// The active job.
    pub job: JobRef<'a>,
    /// The lock token, if one was shown.
    pub token: Option<Token>,
    /// A `MessagePack` value, or empty for none.
    pub result: &'a [u8],
    /// Whether job and result are to be forgotten.
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
    /// Further options of the jobs, if there are any.
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

/// A question about a group.
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
}

/// How a command is answered that changed something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// With no more than that it did.
    Ok,
    /// With `data.ok`, as heartbeats are.
    Alive,
    /// With `data.moved`; in version 3 of the protocol, that nothing was moved is an error.
    Moved,
    /// With a field of `data` that says whether it changed something.
    Flag(&'static str),
    /// With a field of `data` that says how much it changed.
    Count(&'static str),
}

/// How jobs have ended that a queue counts by the minute, in the order of [`super::commands::METRICS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// Their workers completed them.
    Completed,
    /// They have no attempts left.
    Failed,
}

/// By what dead letters are grouped, in the order of [`super::objects::GROUPED_BY`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grouping {
    /// By the text of their error.
    Error,
}

/// Where a command has to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route<'a> {
    /// Any shard can carry it out, or asks those that have to.
    Here,
    /// The owner of a queue.
    Queue(&'a str),
    /// The owner of a job.
    Job(JobRef<'a>),
    /// The owner of a queue, once the job's name is known.
    JobInQueue(&'a str, JobRef<'a>),
    /// The owner of a queue, once the dependencies are found and the custom ids claimed.
    Prepared,
    /// The owner of a name: the worker of this id is registered there.
    Name(&'a str),
    /// The shard of this number, or any if there is none.
    Shard(usize),
    /// The registry shard, which has the names of schedules, and webhooks.
    Registry,
    /// Every shard, each of which answers its part.
    All,
}

/// Where a push has to go.
fn push_route<'a>(queue: &'a str, jobs: &[NewJob<'_>]) -> Route<'a> {
    let has_children =
        |job: &NewJob<'_>| job.family.as_deref().is_some_and(|family| !family.children.is_empty());
    let names_jobs = |job: &NewJob<'_>| {
        job.custom_id.is_some()
            || !job.depends_on.is_empty()
            || has_children(job)
            || linked_parent(job).is_some()
    };
    if jobs.iter().any(names_jobs) { Route::Prepared } else { Route::Queue(queue) }
}

/// Where a search has to go: to its queue, or to the shard that its cursor names.
fn search_route<'a>(search: &Search<'a>) -> Route<'a> {
    match (search.queue, search.page.after) {
        (Some(queue), _) => Route::Queue(queue),
        (None, after) => {
            Route::Shard(after.and_then(ScanCursor::parse).map_or(0, ScanCursor::shard))
        }
    }
}

/// Where an action on many jobs has to go: to their queue, or anywhere.
fn bulk_route<'a>(bulk: &Bulk<'a>) -> Route<'a> {
    match (bulk.queue, bulk.filter) {
        (Some(queue), Some(_)) => Route::Queue(queue),
        _ => Route::Here,
    }
}

/// Where a command has to go that may be about one job of a queue.
fn job_in_queue<'a>(queue: &'a str, job: Option<JobRef<'a>>) -> Route<'a> {
    job.map_or(Route::Queue(queue), |job| Route::JobInQueue(queue, job))
}

field_types! {
    JobRef<'_> => Held::Job;
    Option<JobRef<'_>> => Held::MaybeJob;
    Finished => Held::Choice(2);
    Grouping => Held::Choice(1);
    Box<Bulk<'_>> => Held::Several;
    Option<StateFilter> => Held::Choices;
    Pull<'_> => Held::Several;
    Cron<'_> => Held::Several;
    Option<DlqFilter> => Held::Several;
    Option<Box<JobPage<'_>>> => Held::Several;
    Option<Box<QueuePage<'_>>> => Held::Several;
    Box<Search<'_>> => Held::Several;
}

impl FieldType for Batch<'_> {
    const HELD: Held = Held::Several;

    fn items(&self) -> usize {
        self.ids.len()
    }
}

/// The values that the type of a field can hold, where the specification of the field stands beside the type.
macro_rules! held_by {
    ($type:ty, $spec:expr) => {
        <$type as FieldType>::HELD
    };
}

/// Each type holds what its field lets through. A row with a function of its own has no types to look at.
const fn check(held: &[Held], command: &CommandSpec) {
    assert!(held.is_empty() || held.len() == command.fields.len(), "a field has no type");
    let mut place = 0;
    while place < held.len() {
        assert!(
            held[place].holds(&command.fields[place]),
            "a type cannot hold what its field lets through"
        );
        place += 1;
    }
}

macro_rules! requests {
    ($($op:ident $name:literal $([$take:ident, $specs:expr])? {
        $($field:ident: $type:ty $(= $spec:expr)?),* $(,)?
    } => $class:expr, $reply:expr, $route:expr, $run:ident($($argument:expr),* $(,)?);)*) => {
        /// A command with its fields, as the table has them.
        #[derive(Clone, Debug)]
        #[allow(
            clippy::large_enum_variant,
            reason = "it lives on the stack for one call; a box would cost a push an allocation"
        )]
        pub enum Body<'a> { $($op { $($field: $type),* }),* }

        impl Body<'_> {
            /// Which command it is.
            #[inline]
            pub fn op(&self) -> Op {
                match self { $(Self::$op { .. } => Op::$op),* }
            }

            /// Where it has to go.
            #[inline]
            #[allow(unused_variables, reason = "few fields decide it")]
            pub fn route(&self) -> Route<'_> {
                use Route::{All, Here, Job, JobInQueue, Name, Queue, Registry};
                match self { $(Self::$op { $($field),* } => $route),* }
            }

            /// Of how many items its lists are: of its jobs, if it is a batch.
            #[inline]
            pub fn items(&self) -> usize {
                match self { $(Self::$op { $($field),* } => 0 $(+ $field.items())*),* }
            }
        }

        impl<'a> Body<'a> {
            /// The types of the fields hold what their specifications let through. Rows with a function of their own
            /// have none.
            const TYPES_FIT: () = {
                $({
                    let held = [$($(held_by!($type, $spec),)?)*];
                    check(&held, &COMMANDS[Op::$op as usize]);
                })*
            };
        }
    };
}

command_table!(requests);

const _: () = Body::TYPES_FIT;

impl Body<'_> {
    #[inline]
    pub fn spec(&self) -> &'static CommandSpec {
        self.op().spec()
    }
}
