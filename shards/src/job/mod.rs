//! A job as a shard remembers it: small, fixed, with its payload left in the log.
//!
//! What only few jobs have (keys, limits of life) stands in [`Options`]; what only an active job has
//! stands in its lease; what only an ended job has stands in its [`Outcome`].
//!
//! | file | responsibility |
//! |---|---|
//! | `change` | commands on one job in any state |
//! | `discard` | jobs that are sent to the dead-letter queue by hand, and taken out of it |
//! | `failures` | where the log tells of failed attempts |
//! | `id` | UUIDv7 with the slot of the queue |
//! | `index` | ids to places |
//! | `name_table` | names of jobs, each held once per queue |
//! | `new_job` | a job as it is pushed |
//! | `overrides` | rules that a job brings: retries, stalls, logs |
//! | `progress` | progress and log lines |
//! | `recurrence` | when the runs of a repeated job are due, beyond a plain interval |
//! | `series` | what a run knows of the runs before and after it |
//! | `shared_payload` | the payload of repeated jobs |
//! | `stack` | the stack trace of a failure |
//! | `trace` | the trace that a job belongs to |

pub mod change;
mod discard;
pub mod failures;
pub mod id;
pub(crate) mod index;
pub mod name_table;
pub mod new_job;
pub mod overrides;
pub mod progress;
pub mod recurrence;
pub mod series;
pub mod shared_payload;
pub mod stack;
pub mod trace;

use crate::collections::deadline_heap::Timed;
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{Linked, Links, NONE, Slab};
use crate::dead_letter::reason::Cause;
use crate::dependency::unmet::UnmetDependencies;
use crate::effect::JobAt;
use crate::family::Family;
use crate::group::group_ref::GroupRef;
use crate::job::failures::Failures;
use crate::job::id::JobId;
use crate::job::index::JobIndex;
use crate::job::name_table::NameRef;
use crate::job::overrides::Extras;
use crate::job::progress::Notes;
use crate::job::series::Series;
use crate::job::shared_payload::ShareRef;
use crate::job::trace::Trace;
use crate::log_record::Pushed;
use crate::log_record::location::LogRef;

/// Where a job stands. The names on the wire are in [`State::name`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// No job: a free entry.
    #[default]
    Vacant,
    /// Ready to be delivered.
    Waiting,
    /// Not before its time.
    Delayed,
    /// With a worker.
    Active,
    /// Done, kept for a while.
    Completed,
    /// In the dead-letter queue.
    Failed,
    /// Not before the jobs it depends on are completed.
    WaitingChildren,
}

impl State {
    /// The states a job can be in, in the order of the counts.
    pub const ALL: [Self; 6] = [
        Self::Waiting,
        Self::Delayed,
        Self::Active,
        Self::Completed,
        Self::Failed,
        Self::WaitingChildren,
    ];

    /// Whether a job in it has come to its end.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Whether a shard may decide that a job goes from it to `next`. Only an active job is completed, only a waiting one
    /// is delivered; one that has ended comes back as a waiting one, or is forgotten as one that failed.
    #[inline]
    pub(crate) fn may_become(self, next: Self) -> bool {
        const fn set(states: &[State]) -> u8 {
            let (mut bits, mut at) = (0, 0);
            while at < states.len() {
                bits |= 1 << states[at] as u8;
                at += 1;
            }
            bits
        }
        const PENDING: u8 = set(&[State::Waiting, State::Delayed, State::WaitingChildren]);
        const FAILED: u8 = set(&[State::Failed]);
        let allowed = match self {
            Self::Vacant => PENDING,
            Self::Waiting => PENDING | FAILED | set(&[Self::Active]),
            Self::Delayed | Self::WaitingChildren => PENDING | FAILED,
            Self::Active => PENDING | FAILED | set(&[Self::Completed]),
            Self::Completed => FAILED | set(&[Self::Waiting, Self::WaitingChildren]),
            Self::Failed => set(&[Self::Waiting, Self::WaitingChildren]),
        };
        allowed & 1 << next as u8 != 0
    }

    /// The name clients see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vacant => "unknown",
            Self::Waiting => "waiting",
            Self::Delayed => "delayed",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::WaitingChildren => "waiting-children",
        }
    }
}

/// A job in memory; its payload and most texts are in the log.
#[derive(Clone, Debug)]
pub struct Job {
    /// Id of the job; also its place in push order.
    pub id: JobId,
    /// The record that holds all of it: nothing before it in the log is about this job. Its options and
    /// payload are there, too, unless it has [`flags::SHARED`].
    pub stored: LogRef,
    /// When it may be delivered, in milliseconds since the epoch.
    pub run_at_ms: u64,
    /// Higher is delivered sooner.
    pub priority: i32,
    /// Index of its queue.
    pub queue: u32,
    /// Neighbours in the list its state keeps it in; in the heap of jobs out of order, `next` is its place.
    pub links: Links,
    /// Place of its deadline, or `NONE`.
    pub timer: u32,
    /// Index of the job's lease while active, of its outcome once ended, else `NONE`.
    pub detail: u32,
    /// Index of the job's [`Options`], or `NONE`.
    pub options: u32,
    /// Base of the wait between attempts.
    pub backoff_ms: u32,
    /// Attempts that have failed.
    pub attempts: u16,
    /// Attempts before it goes to the dead-letter queue.
    pub max_attempts: u16,
    /// Where it stands.
    pub state: State,
    /// Times its worker went silent.
    pub stalls: u8,
    /// Some of [`flags`].
    pub flags: u8,
    /// The name that the client gave to the job.
    pub name: NameRef,
}

/// Bits of [`Job::flags`]. The first three are persisted with the job.
pub mod flags {
    /// Newest first within its priority.
    pub const LIFO: u8 = 1;
    /// Forget on completion.
    pub const REMOVE_ON_COMPLETE: u8 = 2;
    /// Forget instead of moving to the dead-letter queue.
    pub const REMOVE_ON_FAIL: u8 = 4;
    /// The job has ended, and its record says so. Derived, not persisted.
    pub const KEPT_ENDED: u8 = 8;
    /// Flags that a job is pushed with.
    pub const PUSHED: u8 = LIFO | REMOVE_ON_COMPLETE | REMOVE_ON_FAIL;
    /// A client waits for its end. Not persisted.
    pub const AWAITED: u8 = 0x20;
    /// Other jobs depend on it: its end is news to them. Derived, not persisted.
    pub const WATCHED: u8 = 0x40;
    /// The payload is that of other jobs, too: see [`crate::job::shared_payload`]. Not persisted as such.
    pub const SHARED: u8 = 0x10;
    /// Waiting in the heap of jobs out of order, not in a lane's list; or ended and told of late.
    pub const OUT_OF_ORDER: u8 = 0x80;
}

impl Default for Job {
    fn default() -> Self {
        Self {
            id: JobId::default(),
            stored: LogRef::default(),
            run_at_ms: 0,
            priority: 0,
            queue: NONE,
            links: Links::default(),
            timer: NONE,
            detail: NONE,
            options: NONE,
            backoff_ms: 0,
            attempts: 0,
            max_attempts: 0,
            state: State::Vacant,
            stalls: 0,
            flags: 0,
            name: NameRef::default(),
        }
    }
}

// Ten million waiting jobs are ten million of these.
const _: () = assert!(std::mem::size_of::<Job>() <= 80);

impl Job {
    /// A job of `queue` as it is pushed by the record at `stored`.
    pub fn of(pushed: &Pushed<'_>, queue: u32, stored: LogRef) -> Self {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let given = &pushed.job;
        Self {
            id: pushed.id,
            stored,
            run_at_ms: pushed.run_at_ms,
            priority: given.priority,
            queue,
            backoff_ms: given.backoff_ms,
            max_attempts: given.max_attempts,
            flags: flag(given.lifo, flags::LIFO)
                | flag(given.remove_on_complete, flags::REMOVE_ON_COMPLETE)
                | flag(given.remove_on_fail, flags::REMOVE_ON_FAIL),
            ..Self::default()
        }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The list a job is in: its lane while waiting, its queue's ended jobs afterwards.
pub struct InQueue;

impl Linked<InQueue> for Job {
    fn links(&self) -> Links {
        self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// Parts of a job that few jobs have.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Deduplication key within the queue.
    pub unique_key: Option<Box<str>>,
    /// The id chosen by the client.
    pub custom_id: Option<Box<str>>,
    /// End of its life while not active, in milliseconds since the epoch; 0 for none.
    pub expires_at_ms: u64,
    /// How long that life is, each time it begins; 0 for none.
    pub ttl_ms: u64,
    /// Longest time one attempt may take; 0 for none.
    pub timeout_ms: u32,
    /// Progress and log of the job.
    pub notes: Option<Box<Notes>>,
    /// Jobs that this one waits for in [`State::WaitingChildren`], and children that are still to end elsewhere.
    pub unmet: UnmetDependencies,
    /// Repetition of the job.
    pub series: Option<Box<Series>>,
    /// Where the payload lies, if it is shared.
    pub share: ShareRef,
    /// The name that the client gave to the job, where that is [`NameRef::APART`].
    pub name: Option<Box<str>>,
    /// Rules of its own.
    pub extras: Option<Box<Extras>>,
    /// The group it belongs to.
    pub group: GroupRef,
    /// Parent and children of the job.
    pub family: Option<Box<Family>>,
    /// How often it left the dead-letter queue by itself.
    pub redelivered: Option<Redelivered>,
    /// The trace that it belongs to.
    pub trace: Option<Box<Trace>>,
}

/// How often a job was taken out of the dead-letter queue by the rule of its queue, since it was pushed or
/// a client took it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redelivered {
    /// How often, at least once.
    pub times: u32,
    /// When last.
    pub last_at_ms: u64,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// When it ended.
    pub finished_at_ms: u64,
    /// When its last attempt began; 0 if it never did.
    pub started_at_ms: u64,
    /// Place among the ends of the queue: the address that the end's record had at first.
    pub order: u64,
    /// The record whose payload is the result, or the text of the failure.
    pub stored: LogRef,
    /// Why it failed, if it did.
    pub cause: Cause,
}

impl Outcome {
    /// Whether its record lies where it was written first.
    pub fn is_unmoved(&self) -> bool {
        self.stored.position == self.order
    }
}

/// All jobs of a shard, by index and by id.
pub struct Jobs {
    /// The jobs.
    pub slab: Slab<Job>,
    /// Parts of jobs that few jobs have.
    pub options: Slab<Options>,
    /// How the ended ones ended.
    pub outcomes: Slab<Outcome>,
    /// How earlier attempts of some of them failed.
    pub(crate) failures: Failures,
    by_id: JobIndex,
}

impl Jobs {
    /// No jobs.
    pub fn new(key: HashKey) -> Self {
        let (slab, options, outcomes) = (Slab::new(), Slab::new(), Slab::new());
        let failures = Failures::default();
        Self { slab, options, outcomes, failures, by_id: JobIndex::new(key) }
    }

    /// The index of a job.
    pub fn find(&self, id: JobId) -> Option<u32> {
        self.by_id.find(id, &self.slab)
    }

    /// A job, for who may look at it later.
    pub fn at(&self, index: u32) -> JobAt {
        JobAt { index, id: self.slab[index].id }
    }

    /// Whether a job is where it was.
    pub fn is_at(&self, at: JobAt) -> bool {
        let job = self.slab.peek(at.index);
        job.id == at.id && job.state != State::Vacant
    }

    /// Stores a new job.
    pub fn insert(&mut self, job: Job) -> u32 {
        let id = job.id;
        let index = self.slab.insert(job);
        self.by_id.insert(id, index);
        index
    }

    /// Forgets a job, which must be in no list, queue or heap any more.
    pub fn remove(&mut self, index: u32) {
        self.by_id.remove(self.slab[index].id, index);
        let job = self.slab.remove(index);
        assert!(job.timer == NONE && job.detail == NONE, "a removed job leaves nothing behind");
        if job.options != NONE {
            self.options.remove(job.options);
        }
    }

    /// The rare options of a job.
    pub fn options_of(&self, index: u32) -> Option<&Options> {
        let options = self.slab[index].options;
        (options != NONE).then(|| &self.options[options])
    }

    /// The rules that only this job has, if there are any.
    pub fn extras_of(&self, index: u32) -> Option<&Extras> {
        self.options_of(index)?.extras.as_deref()
    }

    /// Sort key of the jobs of a queue: the time when each was made, as its client says if the client does, and then
    /// its id.
    #[inline]
    pub fn order_of(&self, index: u32) -> JobId {
        let id = self.slab[index].id;
        match self.extras_of(index).and_then(|extras| extras.made_at_ms) {
            Some(made_at_ms) => id.made_at(made_at_ms),
            None => id,
        }
    }

    /// The trace that a job belongs to, if its client said so.
    pub fn trace_of(&self, index: u32) -> Option<&Trace> {
        self.options_of(index)?.trace.as_deref()
    }

    /// How often a job left the dead-letter queue by itself, if it did.
    pub fn redelivered(&self, index: u32) -> Option<&Redelivered> {
        self.options_of(index)?.redelivered.as_ref()
    }

    /// The rare options of a job, to change.
    pub fn options_of_mut(&mut self, index: u32) -> Option<&mut Options> {
        let options = self.slab[index].options;
        (options != NONE).then(|| &mut self.options[options])
    }

    /// How a job ended, if it has.
    pub fn outcome_of(&self, index: u32) -> Option<&Outcome> {
        let job = &self.slab[index];
        job.state.is_end().then(|| &self.outcomes[job.detail])
    }

    /// The records of the failed attempts of a job that are remembered, oldest first.
    pub fn failures_of(&self, index: u32) -> &[LogRef] {
        // Most jobs are done at their first attempt, and need not be looked for.
        if self.slab[index].attempts == 0 { &[] } else { self.failures.of(index) }
    }

    /// The place of an ended job among the ends of its queue.
    pub fn end_order(&self, index: u32) -> u64 {
        self.outcomes[self.slab[index].detail].order
    }

    /// The rare options of a job, made if it had none.
    pub fn options_or_new(&mut self, index: u32) -> &mut Options {
        if self.slab[index].options == NONE {
            self.slab[index].options = self.options.insert(Options::default());
        }
        let options = self.slab[index].options;
        &mut self.options[options]
    }

    /// The indices of all jobs, in no order that may decide anything.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        (0..self.slab.end()).filter(|&index| self.slab.peek(index).state != State::Vacant)
    }
}

impl Timed for Slab<Job> {
    fn place(&mut self, key: u32, place: u32) {
        self[key].timer = place;
    }
}
