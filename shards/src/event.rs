//! Events: one [`Event`] for each step of a job, in the order of the steps, while they have a subscriber.
//! They have none until [`Shard::listen`] says so; until then a step costs a branch.
//!
//! Events tell of what clients and time do to jobs. A job that goes because it was pushed with
//! removeOnComplete or removeOnFail, or because too many completed jobs are kept or it is too old, has
//! had its last event with its end. Live commands emit; recovery does not. Who listens, to what, and
//! how an event looks on the wire is not known here.

use crate::effect::{Effects, KnownAs};
use crate::job::State;
use crate::job::id::JobId;
use crate::job::trace::Trace;
use crate::log_record::location::LogRef;
use crate::shard::Shard;
use std::sync::Arc;

/// A step of a job, or of a queue. Payloads in the log have to be fetched before the next command: the job may be gone
/// already, and then nothing keeps its records.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The name of the queue.
    pub queue: Arc<str>,
    /// The job; none if the step is that of a queue.
    pub job: Option<KnownAs>,
    /// The name that the client gave to the job.
    pub name: Option<Box<str>>,
    /// The trace that it belongs to.
    pub trace: Option<Box<Trace>>,
    /// The record whose payload is the job's data. Empty without a job.
    pub data: LogRef,
    /// The step of the job or of the queue.
    pub step: Step,
}

/// A step, with the fields that events have of it. The names on the wire are in [`Step::name`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// The job came: from a client, from a schedule, or as the next run of a repeated one.
    Pushed,
    /// A worker has it.
    Pulled,
    /// The job is done.
    Completed {
        /// The record whose payload is the result, if there is one.
        result: LogRef,
    },
    /// An attempt failed, or the job went to the dead-letter queue without one.
    Failed {
        /// The record whose payload is the error.
        error: LogRef,
        /// No other attempt follows by itself.
        terminal: bool,
    },
    /// The job will be tried again: after a failed attempt, or because a client asked for it.
    Retried {
        /// Where it stood; [`State::Failed`] after a failed attempt.
        prev: State,
    },
    /// The job's worker told how far it is, from 0 to 100.
    Progress(f64),
    /// The job's worker went silent. If that was once too often, [`Step::Failed`] follows; if not, the job waits again.
    Stalled,
    /// A client removed it, or its ttl has ended.
    Removed {
        /// Where it stood.
        prev: State,
    },
    /// The job is not to be delivered before its time: pushed so, put off, or done waiting for others with a part of
    /// its delay left. The wait before another attempt is no such thing.
    Delayed {
        /// How long from now on.
        delay_ms: u64,
    },
    /// A push brought nothing new because of this job, which has the same unique key.
    Duplicated,
    /// The job waits for other jobs.
    WaitingChildren,
    /// A command to remove the waiting jobs of the queue was carried out, whatever it found.
    Drained,
    /// The queue gives no jobs to workers from now on.
    Paused,
    /// The queue gives jobs to workers again.
    Resumed,
    /// Something else, for subscribers that ask for it by its name.
    Extra(Extra),
}

/// Events beside the steps of jobs, for subscribers that ask for them: [`Shard::listen_to_extras`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Extra {
    /// A command ended the delay of the job.
    Promoted,
    /// A command sends the job to the dead-letter queue.
    Discarded,
    /// The job has this priority now.
    Prioritized {
        /// The priority.
        priority: i32,
    },
    /// The job has other data.
    Updated,
    /// The job has this delay now.
    DelayChanged {
        /// How long from now on.
        delay_ms: u64,
    },
    /// A command removed so many jobs of the queue by their age.
    Cleaned {
        /// How many.
        jobs: u64,
    },
    /// All of the queue was removed.
    Obliterated,
    /// The job came to the dead-letter queue.
    Buried,
    /// A command took the job out of the dead-letter queue to run again.
    DlqRetried,
    /// A command took so many jobs out of the dead-letter queue to run again.
    DlqRetriedAll {
        /// How many.
        jobs: u64,
    },
    /// A command emptied the dead-letter queue.
    DlqPurged {
        /// How many jobs it had.
        jobs: u64,
    },
    /// The queue has this rate.
    RateLimited {
        /// Jobs in each span.
        jobs: u32,
    },
    /// The queue has no rate any more.
    RateCleared,
    /// At most so many jobs of the queue may be active.
    ConcurrencyLimited {
        /// How many.
        jobs: u32,
    },
    /// Any number of them may.
    ConcurrencyCleared,
    /// There is a schedule of the queue with this name.
    CronCreated,
    /// The schedule of this name was replaced.
    CronUpdated,
    /// The schedule of this name is gone.
    CronDeleted,
}

impl Step {
    /// The name clients see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pushed => "pushed",
            Self::Pulled => "pulled",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Retried { .. } => "retried",
            Self::Progress(_) => "progress",
            Self::Stalled => "stalled",
            Self::Removed { .. } => "removed",
            Self::Delayed { .. } => "delayed",
            Self::Duplicated => "duplicated",
            Self::WaitingChildren => "waiting-children",
            Self::Drained => "drained",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Extra(extra) => extra.name(),
        }
    }
}

impl Extra {
    /// The name clients see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Promoted => "promoted",
            Self::Discarded => "discarded",
            Self::Prioritized { .. } => "priority-changed",
            Self::Updated => "data-updated",
            Self::DelayChanged { .. } => "delay-changed",
            Self::Cleaned { .. } => "cleaned",
            Self::Obliterated => "obliterated",
            Self::Buried => "dlq-added",
            Self::DlqRetried => "dlq-retried",
            Self::DlqRetriedAll { .. } => "dlq-retry-all",
            Self::DlqPurged { .. } => "dlq-purged",
            Self::RateLimited { .. } => "rate-limit-set",
            Self::RateCleared => "rate-limit-cleared",
            Self::ConcurrencyLimited { .. } => "concurrency-set",
            Self::ConcurrencyCleared => "concurrency-cleared",
            Self::CronCreated => "cron-created",
            Self::CronUpdated => "cron-updated",
            Self::CronDeleted => "cron-deleted",
        }
    }
}

/// Whether events have a subscriber.
#[derive(Default)]
pub(crate) struct Listeners {
    listening: bool,
    /// Also to [`Extra`].
    to_extras: bool,
    /// The queue of the last event: most follow one of the same queue, and share its name.
    queue: Option<Arc<str>>,
}

impl Listeners {
    fn share(&mut self, name: &str) -> Arc<str> {
        match &self.queue {
            Some(last) if **last == *name => Arc::clone(last),
            _ => Arc::clone(self.queue.insert(name.into())),
        }
    }
}

impl Shard {
    /// The id by which clients know a job.
    pub(crate) fn known_as(&self, job: u32) -> KnownAs {
        match self.jobs.options_of(job).and_then(|has| has.custom_id.clone()) {
            Some(name) => KnownAs::Custom(name),
            None => KnownAs::Id(self.jobs.slab[job].id),
        }
    }

    /// Begins or ends to put [`Effects::events`] together. Begun in the middle of a job's life, the
    /// events of what is left of it come.
    pub fn listen(&mut self, listening: bool) {
        let to_extras = self.listeners.to_extras;
        self.listeners = Listeners { listening, to_extras, queue: None };
    }

    /// Whether [`Step::Extra`] is among the events.
    pub fn listen_to_extras(&mut self, listening: bool) {
        self.listeners.to_extras = listening;
    }

    fn tells_extras(&self) -> bool {
        self.listeners.listening && self.listeners.to_extras
    }

    /// Something happened to a job that is no step of it.
    #[inline]
    pub(crate) fn emit_extra(
        &mut self,
        now_ms: u64,
        job: u32,
        extra: Extra,
        effects: &mut Effects,
    ) {
        if self.tells_extras() {
            self.emit_aloud(now_ms, job, Step::Extra(extra), effects);
        }
    }

    /// Something happened to a queue that is no step of it.
    pub(crate) fn emit_extra_of_queue(
        &mut self,
        now_ms: u64,
        queue: &str,
        extra: Extra,
        effects: &mut Effects,
    ) {
        if self.tells_extras() {
            self.emit_of_queue(now_ms, queue, Step::Extra(extra), effects);
        }
    }

    /// Something happened to a schedule.
    pub(crate) fn emit_of_cron(
        &mut self,
        now_ms: u64,
        (queue, name): (&str, &str),
        extra: Extra,
        effects: &mut Effects,
    ) {
        if self.tells_extras() {
            self.emit_of_queue(now_ms, queue, Step::Extra(extra), effects);
            if let Some(event) = effects.events.last_mut() {
                event.name = Some(name.into());
            }
        }
    }

    /// Whether anybody would learn of an event.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.listeners.listening
    }

    /// A job takes a step. To be called while the job is still known, in the order of the steps.
    #[inline]
    pub(crate) fn emit(&mut self, now_ms: u64, job: u32, step: Step, effects: &mut Effects) {
        if self.listeners.listening {
            self.emit_aloud(now_ms, job, step, effects);
        }
    }

    #[cold]
    fn emit_aloud(&mut self, at_ms: u64, job: u32, step: Step, effects: &mut Effects) {
        let (queue, data) = (self.jobs.slab[job].queue, self.data_of(job));
        let trace = self.jobs.options_of(job).and_then(|has| has.trace.clone());
        let (job, name) = (Some(self.known_as(job)), self.name_of(job).map(Into::into));
        let queue = self.listeners.share(&self.queues[queue].name);
        effects.events.push(Event { at_ms, queue, job, name, trace, data, step });
    }

    /// A job came, and stands where it was put.
    #[inline]
    pub(crate) fn emit_push(&mut self, now_ms: u64, job: u32, effects: &mut Effects) {
        self.trace_enqueued(now_ms, job, effects);
        if self.listeners.listening {
            self.emit_aloud(now_ms, job, Step::Pushed, effects);
            if self.jobs.slab[job].state == State::WaitingChildren {
                self.emit_aloud(now_ms, job, Step::WaitingChildren, effects);
            }
            self.emit_delay(now_ms, job, effects);
        }
    }

    /// The next run of a repeated job came.
    #[inline]
    pub(crate) fn emit_run(&mut self, now_ms: u64, id: JobId, effects: &mut Effects) {
        if let Some(job) = self.jobs.find(id) {
            self.emit_push(now_ms, job, effects);
        }
    }

    /// A job went somewhere else. If it is delayed there, the event says so.
    #[inline]
    pub(crate) fn emit_delay(&mut self, now_ms: u64, job: u32, effects: &mut Effects) {
        if self.listeners.listening && self.jobs.slab[job].state == State::Delayed {
            let delay_ms = self.jobs.slab[job].run_at_ms.saturating_sub(now_ms);
            self.emit_aloud(now_ms, job, Step::Delayed { delay_ms }, effects);
        }
    }

    /// A job that stood at `before` waits for one other job less. If that was the last one and a part of its
    /// delay is left, the event says so; a wait that began otherwise goes on.
    #[inline]
    pub(crate) fn emit_rest_of_delay(
        &mut self,
        now_ms: u64,
        job: u32,
        before: State,
        effects: &mut Effects,
    ) {
        if before == State::WaitingChildren {
            if self.jobs.slab[job].state == State::Waiting {
                self.trace_back(now_ms, job);
            }
            self.emit_delay(now_ms, job, effects);
        }
    }

    /// A queue takes a step. By name: it need not be known.
    pub(crate) fn emit_of_queue(
        &mut self,
        at_ms: u64,
        queue: &str,
        step: Step,
        effects: &mut Effects,
    ) {
        if self.listeners.listening {
            let queue = self.listeners.share(queue);
            let (job, name, trace, data) = (None, None, None, LogRef::default());
            effects.events.push(Event { at_ms, queue, job, name, trace, data, step });
        }
    }
}
