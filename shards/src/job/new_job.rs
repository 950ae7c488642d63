//! A job as it is pushed, decoded and bounded, borrowed from the bytes that it came in. What becomes of it is not
//! known here.

use crate::dependency::Unmet;
use crate::dependency::unmet::{Dependency, UnmetDependencies};
use crate::family::NewFamily;
use crate::job::id::JobId;
use crate::job::overrides::Extras;
use crate::job::recurrence::Recurrence;
use crate::job::trace::NewTrace;

/// A job as pushed. Bounds were checked by the caller (`docs/protocol.md`, "Jobs").
#[derive(Clone, Debug)]
pub struct NewJob<'a> {
    /// The payload: exactly one well-formed MessagePack value.
    pub data: &'a [u8],
    /// The client's name for the job, 1 to 256 characters.
    pub name: Option<&'a str>,
    /// Higher is delivered sooner. -1,000,000 to 1,000,000.
    pub priority: i32,
    /// Time before the job may be delivered. At most a year.
    pub delay_ms: u64,
    /// 1 to 1000.
    pub max_attempts: u16,
    /// Base of the exponential backoff between attempts. At most a day.
    pub backoff_ms: u32,
    /// Life from creation while the job is not active.
    pub ttl_ms: Option<u64>,
    /// Longest time one attempt may take.
    pub timeout_ms: Option<u32>,
    /// Deduplication key within the queue.
    pub unique_key: Option<&'a str>,
    /// The id chosen by the client; one name space for the server.
    pub custom_id: Option<&'a str>,
    /// Group the job belongs to.
    pub group_id: Option<&'a str>,
    /// Jobs of its group that may wait or be delayed, this one included, or it is refused; 0 for any
    /// number. Not a part of the job.
    pub group_max: u32,
    /// A MessagePack array of strings, or empty for none.
    pub tags: &'a [u8],
    /// A MessagePack array of job ids that must complete first, or empty for none.
    pub depends_on: &'a [u8],
    /// Which of them are not completed yet, as the pushing shard has found out.
    pub unmet: Unmet<'a>,
    /// Repetition, if any.
    pub repeat: Option<Repeat>,
    /// Newest first within its priority.
    pub lifo: bool,
    /// Forget job and result on completion.
    pub remove_on_complete: bool,
    /// Forget the job instead of moving it to the dead-letter queue.
    pub remove_on_fail: bool,
    /// The reply waits for the disk.
    pub durable: bool,
    /// Rules of its own, if it has any.
    pub extras: Option<Box<Extras>>,
    /// Parent and children of the job, if it has any.
    pub family: Option<Box<NewFamily<'a>>>,
    /// When its runs are due, if it is repeated and that is more than an interval.
    pub recurrence: Option<Box<Recurrence<'a>>>,
    /// The trace that it belongs to, if any.
    pub trace: Option<Box<NewTrace<'a>>>,
}

impl NewJob<'_> {
    /// Bytes of all that has no fixed length.
    pub fn bytes(&self) -> u64 {
        let text = |text: Option<&str>| text.unwrap_or_default().len();
        let names = text(self.name) + text(self.custom_id);
        let texts = names + text(self.unique_key) + text(self.group_id);
        let lists = self.tags.len() + self.depends_on.len() + self.unmet.bytes().len();
        let family = self.family.as_deref().map_or(0, NewFamily::encoded_len);
        let recurrence = self.recurrence.as_deref().map_or(0, Recurrence::encoded_len);
        let trace = self.trace.as_deref().map_or(0, NewTrace::encoded_len);
        (self.data.len() + texts + lists + family + recurrence + trace) as u64
    }
}

impl Default for NewJob<'_> {
    fn default() -> Self {
        Self {
            data: &[],
            name: None,
            priority: 0,
            delay_ms: 0,
            max_attempts: 3,
            backoff_ms: 1000,
            ttl_ms: None,
            timeout_ms: None,
            unique_key: None,
            custom_id: None,
            group_id: None,
            group_max: 0,
            tags: &[],
            depends_on: &[],
            unmet: Unmet::default(),
            repeat: None,
            lifo: false,
            remove_on_complete: false,
            remove_on_fail: false,
            durable: false,
            extras: None,
            family: None,
            recurrence: None,
            trace: None,
        }
    }
}

impl NewJob<'_> {
    /// The job as its rules and its recurrence have it now: what they say of time counts from here.
    pub(crate) fn begun(&self, now_ms: u64) -> Self {
        let mut job = self.clone();
        if let Some(extras) = &mut job.extras {
            **extras = extras.anew(now_ms);
            job.delay_ms = extras.delay_left_ms(job.delay_ms, now_ms);
        }
        if let Some(recurrence) = &job.recurrence
            && job.delay_ms == 0
        {
            job.delay_ms = recurrence.first_delay_ms(now_ms);
        }
        job
    }

    /// Whether there is anything that it waits for.
    pub fn waits(&self) -> bool {
        !self.unmet.is_empty()
            || self.family.as_deref().is_some_and(|family| !family.open.is_empty())
    }

    /// All that it waits for, children and others.
    pub fn dependencies(&self) -> UnmetDependencies {
        let open = self.family.as_deref().map(|family| family.open).unwrap_or_default();
        if self.unmet.is_empty() && open.is_empty() {
            return UnmetDependencies::default();
        }
        let one = |child: bool| {
            move |(id, name): (JobId, &str)| Dependency {
                id,
                name: (!name.is_empty()).then(|| name.into()),
                child,
            }
        };
        // Of a job that is given as both, the child counts.
        UnmetDependencies::new(open.iter().map(one(true)).chain(self.unmet.iter().map(one(false))))
    }
}

/// Repetition of a job: a successor is pushed when a run completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repeat {
    /// Distance between due times, at least 1.
    pub every_ms: u64,
    /// Total number of runs, or `None` for no end.
    pub limit: Option<u64>,
    /// Runs so far.
    pub count: u64,
}
