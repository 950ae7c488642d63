//! Effects of commands and of time: replies, deliveries and news, as ids and numbers.
//!
//! No job is named by its bare index: one command may make a job, and remove it, and make another at its
//! place, before what it brought about is rendered. Where rendering needs the job itself, [`JobAt`] says
//! whether it is still there.

use crate::caller::{RequestId, Token};
use crate::dead_letter::scan::FailedStats;
use crate::dependency::Notice;
use crate::event::Event;
use crate::family::Report;
use crate::job::id::JobId;
use crate::log_record::location::LogRef;
use crate::traced::Traced;
use std::ops::Range;
use std::sync::Arc;

/// Why a command was not carried out. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No job has this id.
    NotFound,
    /// No job has this id, or it is not active.
    NotActive,
    /// No job has this id, or it is active or has ended.
    NotCancellable,
    /// No job has this id, or it is neither waiting nor delayed.
    NotPending,
    /// No job has this id, or it is not delayed.
    NotDelayed,
    /// No job has this id, or it has ended.
    Ended,
    /// The job is locked and no token was shown.
    TokenRequired,
    /// The token fits no living lock of the job.
    TokenInvalid,
    /// The job is in no state from which it could wait.
    NotMovable,
    /// No job has this id, or it neither waits, nor is delayed or active.
    NotDelayable,
    /// The attempt took too long and was ended before its worker said how it went.
    TooLate,
    /// Too many long commands wait already.
    Busy,
    /// The log has no room for it.
    Full,
    /// The group of the job has as many jobs as it says that it may have.
    GroupFull,
    /// As many groups have settings as may have.
    GroupSettings,
    /// As many queues have settings as may have.
    QueueSettings,
}

/// The id by which clients know a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KnownAs {
    /// The id made for it.
    Id(JobId),
    /// The id that the client chose.
    Custom(Box<str>),
}

/// How a job came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The job was completed; the payload of this record is its result.
    Completed(LogRef),
    /// The job went to the dead-letter queue; the payload of this record says why. No record: it went with its failure.
    Failed(LogRef),
    /// The job was removed.
    Removed,
}

/// The answer to one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Done; nothing more to say.
    Done,
    /// Refused because of the job at this place in the command.
    Refused {
        /// Place of the job in the command, from 0.
        place: usize,
        /// Why it is refused.
        refusal: Refusal,
    },
    /// Done, but for the jobs at these places: see [`Refusal::TooLate`].
    Late(Box<[usize]>),
    /// Held on for so many jobs; those at these places are not held any more.
    Gone {
        /// How many were renewed.
        renewed: u64,
        /// Places of the others in the command, from 0.
        places: Box<[usize]>,
    },
    /// The jobs pushed, or those that stood in their way, as a range of [`Effects::pushed`].
    Pushed(Range<usize>),
    /// The jobs pulled, as a range of [`Effects::deliveries`]; empty when there were none.
    Pulled(Range<usize>),
    /// How many jobs were meant.
    Count(u64),
    /// The job that was waited for has ended.
    Ended(Ending),
    /// The job that was waited for has not ended in time.
    Unended,
    /// The ids of the jobs removed, as clients know them, in the slices in which they went: what holds a million of them
    /// neither grows nor goes in one piece.
    Cleaned(Arc<Vec<Box<[KnownAs]>>>),
    /// Jobs of a dead-letter queue.
    Found(Box<[JobId]>),
    /// Counts of a dead-letter queue.
    FailedStats(Box<FailedStats>),
    /// The schedule that was meant, by an index that holds until the next call; none if there is no such
    /// schedule, or if it would never run.
    Cron(Option<u32>),
    /// The schedule that was to be set has run as often as it is to.
    CronSpent {
        /// Runs so far.
        executions: u64,
        /// The schedule has ended so: this is the registration of one that is over.
        has_ended: bool,
    },
    /// The command waits no longer: its connection is gone.
    Dropped,
}

/// A job by its place in memory and by its id, which tells whether the place is still its own. Looked up
/// with [`crate::Shard::look`]: as cheap as an index, and never another job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobAt {
    pub(crate) index: u32,
    /// Id of the job.
    pub id: JobId,
}

/// The job at one place of a push: the one that was made for it, or the one that stood in its way. It may
/// be gone already, if a later job of the same push has replaced it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushedJob {
    /// Id of the job.
    pub id: JobId,
    /// The id that its client chose, by which clients know it.
    pub custom_id: Option<Box<str>>,
    /// Whether it was made for this place.
    pub is_new: bool,
}

/// A job on its way to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The job, which is active and stays so until the call has returned.
    pub job: JobAt,
    /// The token of its lock, if it is locked.
    pub token: Option<Token>,
}

/// A custom id that came or went, for the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameChange {
    /// The custom id.
    pub name: Box<str>,
    /// The job it names.
    pub id: JobId,
    /// Whether the job is known from now on, or forgotten.
    pub known: bool,
}

/// All that one call brought about.
#[derive(Default, Debug)]
pub struct Effects {
    /// Answers, to this request and to others that were waiting.
    pub replies: Vec<(RequestId, Reply)>,
    /// Jobs that [`Reply::Pushed`] points to.
    pub pushed: Vec<PushedJob>,
    /// Jobs that [`Reply::Pulled`] points to.
    pub deliveries: Vec<Delivery>,
    /// Custom ids that came or went.
    pub names: Vec<NameChange>,
    /// Schedules that have ended by themselves.
    pub cron_ends: Vec<Box<str>>,
    /// Schedules that are due and wait for room from now on.
    pub crons_without_room: Vec<Box<str>>,
    /// News for the shards of other jobs, each as a [`crate::command::Command::Notice`].
    pub notices: Vec<Notice>,
    /// Ends of children for the shards of parents, each as a [`crate::command::Command::Report`]. The payloads have to
    /// be fetched before the next command.
    pub reports: Vec<Report>,
    /// Steps of jobs and queues for listeners, in order; none while there are no listeners. As many as the jobs that
    /// one call may touch, times the few steps it may take with each.
    pub events: Vec<Event>,
    /// Steps of sampled jobs, in order; nothing while none is sampled. As many as there are events, at most.
    pub traced: Vec<Traced>,
}

impl Effects {
    /// Forgets everything, keeping the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.replies.clear();
        self.pushed.clear();
        self.deliveries.clear();
        if self.has_news() {
            self.clear_news();
        }
    }

    /// Whether there is something for others than those who have asked: most commands bring about nothing of the kind.
    #[inline]
    pub fn has_news(&self) -> bool {
        let names = self.names.len() | self.cron_ends.len() | self.crons_without_room.len();
        let jobs = self.notices.len() | self.reports.len();
        names | jobs | self.events.len() | self.traced.len() > 0
    }

    #[cold]
    fn clear_news(&mut self) {
        self.names.clear();
        self.cron_ends.clear();
        self.crons_without_room.clear();
        self.notices.clear();
        self.reports.clear();
        self.events.clear();
        self.traced.clear();
    }
}
