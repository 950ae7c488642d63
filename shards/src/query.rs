//! Questions to a shard that change nothing.

pub use crate::caller::Activity;
use crate::caller::ClientId;
use crate::collections::hash_key::HashKey;
use crate::collections::slab::List;
use crate::effect::JobAt;
use crate::job::id::JobId;
use crate::job::{Job, Jobs, Options, Outcome, State};
use crate::lease::Lease;
use crate::lease::clients::OfClient;
use crate::log_record::location::LogRef;
use crate::queue::Queue;
use crate::shard::Shard;
use crate::stats::latency::Timings;
use crate::stats::{Census, Totals};

/// Looks at neighbours that take about as long as a step.
pub const LOOKS_PER_STEP: u64 = 16;

/// Groups that are looked at for the job that waits for longest.
const OLDEST_GROUPS_MAX: usize = 16;

/// A job with all that memory has of it.
#[derive(Clone, Copy)]
pub struct JobView<'a> {
    /// The job.
    pub job: &'a Job,
    /// The record that holds its payload and the options that only records hold.
    pub data: LogRef,
    /// Rare options of the job, if it has any.
    pub options: Option<&'a Options>,
    /// The hold on it, while active.
    pub lease: Option<&'a Lease>,
    /// How it ended, once ended.
    pub outcome: Option<&'a Outcome>,
    /// The name of its queue.
    pub queue: &'a str,
    /// The name that the client gave to the job.
    pub name: Option<&'a str>,
    jobs: &'a Jobs,
    index: u32,
}

impl<'a> JobView<'a> {
    /// The records of its failed attempts that are remembered, oldest first; the one that buried it is its outcome.
    pub fn failures(&self) -> &'a [LogRef] {
        self.jobs.failures_of(self.index)
    }

    /// When it was made, in milliseconds since the epoch; as its client says, if he says so.
    pub fn created_at_ms(&self) -> u64 {
        let extras = self.options.and_then(|options| options.extras.as_deref());
        extras.and_then(|extras| extras.made_at_ms).unwrap_or_else(|| self.job.id.made_at_ms())
    }

    /// When it may be delivered. A job that was due when it came, though its client says that it was made long before, was
    /// not delayed for so long.
    pub fn run_at_ms(&self) -> u64 {
        let run_at_ms = self.job.run_at_ms;
        if run_at_ms <= self.job.id.made_at_ms() {
            return run_at_ms.min(self.created_at_ms());
        }
        run_at_ms
    }
}

/// A job as the parent of one more child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AboutParent {
    /// Queue of the job.
    pub queue: Box<str>,
    /// Id of the job, as its clients know it.
    pub known_as: Box<str>,
    /// The job names that child already.
    pub declared: bool,
    /// The job can have one more child.
    pub linkable: bool,
    /// Parent of the job, as its client calls it.
    pub parent: Option<Box<str>>,
}

/// How many of each thing a shard holds, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holdings {
    /// Jobs in any state.
    pub jobs: usize,
    /// Queues, idle ones included.
    pub queues: usize,
    /// Active jobs' leases.
    pub leases: usize,
    /// Pulls that wait.
    pub waiters: usize,
    /// Deadlines that are set.
    pub timers: usize,
    /// Deduplication keys held.
    pub unique_keys: usize,
    /// Schedules that are known.
    pub crons: usize,
    /// Schedules that their limit has ended and that are remembered.
    pub crons_ended: usize,
    /// Pushes of schedules and repeats that came later than they were due since too many were.
    pub scheduled_put_off: u64,
    /// Pairs of a job here and a job that depends on it.
    pub watches: usize,
    /// Completed jobs that are forgotten but for their id.
    pub completed_ids: usize,
    /// Custom ids of such jobs.
    pub completed_names: usize,
    /// Groups that have jobs, settings or pulls that wait for them.
    pub groups: usize,
    /// Groups that are remembered only for a rate that pulls brought: at most
    /// [`crate::GROUPS_LINGERING_MAX`].
    pub groups_lingering: u64,
    /// Groups that were forgotten with their last job, although a rate counted it, since too many lingered.
    pub groups_forgotten: u64,
    /// Minutes that queues remember: at most [`crate::queue::throughput::MINUTES_IN_ALL_MAX`].
    pub minutes: usize,
    /// Queues that have settings: at most [`crate::QUEUE_SETTINGS_MAX`], and those that a log brings beyond.
    pub queue_settings: u64,
    /// Groups that have settings: at most [`crate::GROUP_SETTINGS_MAX`].
    pub group_settings: u64,
    /// Children that are forgotten but for how they ended, which their parents have yet to hear.
    pub unreported: usize,
    /// Ends of such children that were given up because there were too many.
    pub unreported_dropped: u64,
}

impl Shard {
    /// Jobs that a connection holds, and counts of what it has done.
    pub fn activity_of(&self, client: ClientId) -> Activity {
        self.clients.get(client).map_or(Activity::default(), |held| held.activity)
    }

    /// The jobs that a connection has and that go back when it ends.
    pub fn jobs_of(&self, client: ClientId) -> impl Iterator<Item = u32> {
        let first = self.clients.get(client).and_then(|held| held.leases.front());
        let leases =
            std::iter::successors(first, |&lease| List::<OfClient>::after(&self.leases, lease));
        leases.map(|lease| self.leases[lease].job)
    }

    /// The index of a job.
    pub fn find(&self, id: JobId) -> Option<u32> {
        self.jobs.find(id)
    }

    /// A job that an effect named, if it is still there.
    #[inline]
    pub fn look(&self, at: JobAt) -> Option<JobView<'_>> {
        self.jobs.is_at(at).then(|| self.view(at.index))
    }

    /// A job by the index that [`Shard::find`] gave, before anything else is done.
    pub fn view(&self, index: u32) -> JobView<'_> {
        let job = &self.jobs.slab[index];
        JobView {
            job,
            data: self.data_of(index),
            options: self.jobs.options_of(index),
            lease: (job.state == State::Active).then(|| &self.leases[job.detail]),
            outcome: self.jobs.outcome_of(index),
            queue: &self.queues[job.queue].name,
            name: self.name_of(index),
            jobs: &self.jobs,
            index,
        }
    }

    /// The name under which an active job was pulled, if that is known.
    pub fn owner_of(&self, lease: &Lease) -> Option<&str> {
        self.owners.name(lease.owner)
    }

    /// The indices of all jobs, in no order that may decide anything.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        self.jobs.indices()
    }

    /// A queue, if it is known.
    pub fn queue(&mut self, name: &str) -> Option<&Queue> {
        let index = self.queues.find(name)?;
        Some(&self.queues[index])
    }

    /// The queues that have a job or a setting.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.existing()
    }

    /// The places of queues from an index on, with those that have a job or a setting: there may be very many.
    pub fn queues_from(&self, index: u32) -> impl Iterator<Item = (u32, Option<&Queue>)> {
        (index..self.queues.end()).map(|index| {
            let queue = &self.queues[index];
            (index, Some(queue).filter(|queue| queue.exists()))
        })
    }

    /// Since when the jobs of a queue are due that wait for longest, as far as a look at a few priorities and groups shows.
    pub fn oldest_due_ms(&self, queue: &Queue) -> Option<u64> {
        let groups = self.first_groups_of(queue, OLDEST_GROUPS_MAX);
        let fronts = groups.filter_map(|lane| lane.first(&self.jobs.slab));
        let of_groups = fronts.map(|index| self.jobs.slab[index].run_at_ms).min();
        queue.oldest_due_ms(&self.jobs).into_iter().chain(of_groups).min()
    }

    /// Indices of the dead-letter queue of `name`, oldest first.
    pub fn failed(&mut self, name: &str) -> impl Iterator<Item = u32> + use<'_> {
        let queue = self.queues.find(name).map(|queue| &self.queues[queue]);
        queue.into_iter().flat_map(|queue| queue.failed.iter(&self.jobs))
    }

    /// Jobs by state and totals.
    pub fn census(&self) -> Census {
        let count = |state| self.queues.count(state);
        Census {
            waiting: count(State::Waiting),
            active: count(State::Active),
            delayed: count(State::Delayed),
            completed: count(State::Completed),
            failed: count(State::Failed),
            waiting_children: count(State::WaitingChildren),
            totals: self.totals,
            ..Census::default()
        }
    }

    /// How long jobs have waited and been worked on since the start.
    pub fn timings(&self) -> &Timings {
        &self.queues.timings
    }

    /// How much work has been done since the start: a step for each job that came, went or changed its state,
    /// each notice, renewed lock and schedule, and for each [`LOOKS_PER_STEP`] looks that only pass by. What a
    /// call may do at most is stated in these, and tests count them.
    #[inline]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Counts since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The secret of its hash tables, for those that belong to it elsewhere.
    pub fn hash_key(&self) -> HashKey {
        self.config.hash_key
    }

    /// Every custom id and its job: what the directory is rebuilt from.
    pub fn custom_ids(&self) -> impl Iterator<Item = (&str, JobId)> {
        self.jobs.indices().filter_map(|index| {
            let name = self.jobs.options_of(index)?.custom_id.as_deref()?;
            Some((name, self.jobs.slab[index].id))
        })
    }

    /// Custom ids of completed jobs that were forgotten, and of children that are remembered for their parents, oldest first.
    /// After recovery they go to the directory.
    pub fn completed_names(&self) -> impl Iterator<Item = (&str, JobId)> {
        self.completed_ids.names.iter()
    }

    /// Jobs that workers have.
    pub fn active_jobs(&self) -> u64 {
        self.leases.len() as u64
    }

    /// How much is held of what.
    pub fn holdings(&self) -> Holdings {
        Holdings {
            jobs: self.jobs.slab.len(),
            queues: self.queues.len(),
            leases: self.leases.len(),
            waiters: self.waiters.len(),
            timers: self.job_timers.len()
                + self.lease_timers.len()
                + self.waiter_timers.len()
                + self.limit_timers.len()
                + self.groups.timers.len()
                + self.crons.deadlines(),
            unique_keys: self.unique.len(),
            crons: self.crons.len(),
            crons_ended: self.crons.ended_len(),
            scheduled_put_off: self.scheduled.put_off(),
            watches: self.watchers.len(),
            completed_ids: self.completed_ids.len(),
            completed_names: self.completed_ids.names.len(),
            groups: self.groups.slab.len(),
            queue_settings: self.queues.with_settings(),
            group_settings: self.groups.with_settings,
            groups_lingering: self.groups.lingering,
            groups_forgotten: self.groups.forgotten_early,
            minutes: self.queues.minutes(),
            unreported: self.unreported.len(),
            unreported_dropped: self.unreported.dropped(),
        }
    }
}
