//! The naive model of one shard: what its jobs, queues and waiting pulls should be, in plain maps and
//! vectors, written from the rules and not from the engine. Nothing here is fast.
//!
//! Every change keeps the version before it, with the number of records the log had then, so that a
//! crash can take back what the log lost.

use super::awaits::{Await, End};
use super::book::Book;
use super::bulk_operations::BulkOperation;
use super::check::{Check, Checks};
use super::events::ModelEvent;
use super::family::FamilyModel;
use super::groups::{OfGroups, Said, Spans};
use super::hooks::Hook;
use super::limits::Limits;
use super::played::Played;
use super::repeat::Series;
use super::rules::{Rules, redelivered};
use super::schedules::Schedule;
use super::staged::{OldStaged, Staged};
use corq_shards::Shard;
use corq_shards::command::{self, Token};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::group::GroupSettings;
use corq_shards::job::State as Found;
use corq_shards::job::flags;
use corq_shards::job::id::JobId;
use corq_shards::job::overrides::Extras;
use corq_shards::log_record::job_change::Level;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Within this time the age of each completed job is looked at: once a minute, unless the clock leaps while that
/// is under way.
const RETENTION_CHECK_MS: u64 = 3 * 60_000;

/// Stands in the name of a queue that was obliterated and is not empty yet.
pub const DETACHED: char = '#';

/// A hold on a job.
#[derive(Clone, PartialEq, Debug)]
pub struct Lease {
    /// The connection whose end gives the job back.
    pub client: Option<u64>,
    pub token: Option<Token>,
    pub ttl_ms: u64,
    pub started_at_ms: u64,
    /// The last sign of life.
    pub seen_at_ms: u64,
    pub expires_at_ms: u64,
    pub timeout_at_ms: Option<u64>,
}

/// Where a job stands.
#[derive(Clone, PartialEq, Debug)]
pub enum State {
    Waiting,
    Delayed,
    /// Until all of [`Job::unmet`] are completed.
    WaitingChildren,
    Active(Lease),
    /// With its place in the order of completions.
    Completed {
        at_ms: u64,
        place: u64,
    },
    Failed {
        at_ms: u64,
        cause: Cause,
    },
    /// The job ended, and is not listed any more.
    Gone,
}

/// A job.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub id: JobId,
    pub queue: String,
    pub group: Option<String>,
    /// The name that the client gave to the job.
    pub name: Option<String>,
    pub data: Vec<u8>,
    pub priority: i32,
    pub lifo: bool,
    pub run_at_ms: u64,
    pub backoff_ms: u32,
    /// Rules of its own.
    pub extras: Extras,
    pub ttl_ms: Option<u64>,
    pub expires_at_ms: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub unique_key: Option<String>,
    pub custom_id: Option<String>,
    pub remove_on_complete: bool,
    pub remove_on_fail: bool,
    pub max_attempts: u16,
    pub attempts: u16,
    pub stalls: u8,
    /// How often it left the dead-letter queue by itself.
    pub redelivered: u32,
    pub state: State,
    /// Jobs that this one still waits for, while it lives.
    pub unmet: BTreeSet<JobId>,
    /// Jobs that depend on this one may run: it was completed last, whatever became of it then.
    pub met: bool,
    pub series: Option<Series>,
    pub notes: Notes,
    pub family: FamilyModel,
}

/// Progress and log of a job while it lives.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Notes {
    pub progress: f64,
    pub message: Option<String>,
    pub logs: VecDeque<(u64, Level, String)>,
}

impl Job {
    /// A job as new as can be.
    pub fn new(id: JobId, queue: &str, data: &[u8]) -> Self {
        Self {
            id,
            queue: queue.into(),
            group: None,
            name: None,
            data: data.into(),
            priority: 0,
            lifo: false,
            run_at_ms: 0,
            backoff_ms: 1000,
            extras: Extras::default(),
            ttl_ms: None,
            expires_at_ms: None,
            timeout_ms: None,
            unique_key: None,
            custom_id: None,
            remove_on_complete: false,
            remove_on_fail: false,
            max_attempts: 3,
            attempts: 0,
            stalls: 0,
            redelivered: 0,
            state: State::Waiting,
            unmet: BTreeSet::new(),
            met: false,
            series: None,
            notes: Notes::default(),
            family: FamilyModel::default(),
        }
    }

    /// Waiting in the widest sense: no worker has it, and it has not ended.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Waiting | State::Delayed | State::WaitingChildren)
    }

    /// Whether its life has ended.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.is_pending() && self.expires_at_ms.is_some_and(|at| at <= now_ms)
    }

    /// Whether its queue was taken from under it by an Obliterate that is still at work.
    pub fn is_detached(&self) -> bool {
        self.queue.contains(DETACHED)
    }

    /// The name clients know its queue by.
    pub fn queue_name(&self) -> &str {
        self.queue.split(DETACHED).next().unwrap_or_default()
    }

    pub fn is_live(&self) -> bool {
        self.is_pending() || matches!(self.state, State::Active(_))
    }

    /// Sorts in order of delivery.
    pub fn rank(&self) -> (i32, bool, u64, i128) {
        // The top bits of an id are a time, far from the sign.
        let id = self.id.0 as i128;
        if self.group.is_some() {
            // Among those of its group.
            (self.priority, false, 0, id)
        } else if self.lifo {
            (-self.priority, false, 0, -id)
        } else {
            (-self.priority, true, self.run_at_ms, id)
        }
    }
}

/// A pull that has not been answered.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub request: u64,
    pub client: u64,
    pub queue: String,
    pub count: usize,
    pub until_ms: u64,
    pub locked: bool,
    pub detach: bool,
    pub ttl_ms: u64,
    pub of_groups: OfGroups,
}

/// The state before a change, to undo it by.
pub enum Old {
    Job(JobId, Option<Box<Job>>),
    Paused(String, bool),
    Limit(String, command::Limit),
    Rules(String, Rules),
    Group((String, String), GroupSettings),
    Schedule(String, Option<Box<Schedule>>),
    Hook(u128, Option<Hook>),
    Staged(OldStaged),
}

struct Change {
    /// Records in the log before and after the call that made it.
    before: usize,
    after: usize,
    /// The one record that tells of it, if that is known.
    record: Option<usize>,
    old: Old,
}

/// The model of one shard.
pub struct Model {
    pub checks: Checks,
    pub completed_max: usize,
    /// How long jobs stay in a dead-letter queue that have expired.
    pub expired_kept_ms: u64,
    pub retention_ms: u64,
    /// By how much times may be out of order: a start may find the clock a little behind.
    pub clock_slack_ms: u64,
    /// When time last came by, and when it last came by after a long while: nothing was looked at meanwhile.
    seen_ms: u64,
    leapt_at_ms: u64,
    pub jobs: BTreeMap<JobId, Job>,
    pub paused: BTreeSet<String>,
    pub limits: BTreeMap<String, Limits>,
    pub rules: BTreeMap<String, Rules>,
    /// Settings of groups, by queue and name; none that are only the default.
    pub groups: BTreeMap<(String, String), GroupSettings>,
    pub spans: Spans,
    /// Limits that pulls said last, by queue.
    pub said: BTreeMap<String, Said>,
    pub schedules: BTreeMap<String, Schedule>,
    pub staged: Staged,
    pub hooks: BTreeMap<u128, Hook>,
    /// Time has not come by since a start: delays that ended before are not known to have ended.
    pub is_new: bool,
    /// Commands and options that were given to the shard so far.
    pub played: Played,
    /// Events that listeners are to get of this call.
    pub events: Vec<ModelEvent>,
    /// From when on they run.
    pub schedules_since_ms: Option<u64>,
    /// Long commands at work or in line.
    pub bulk_operations: Vec<BulkOperation>,
    /// In the order they came.
    pub waiters: Vec<Waiter>,
    /// Who waits for which job here, as the shard was told, and whether as its parent.
    pub watches: BTreeMap<(JobId, JobId), bool>,
    pub awaits: Vec<Await>,
    /// Jobs that ended in this call.
    pub ends: BTreeMap<JobId, End>,
    /// Jobs that ended in this call, and that a worker may have got before in the same call.
    pub leaving: BTreeSet<JobId>,
    /// Jobs whose revival in this call is accounted for.
    pub claimed: BTreeSet<JobId>,
    /// Jobs that were ever completed; no crash takes that back.
    pub ever_completed: BTreeSet<JobId>,
    /// Jobs that ever failed for good; no crash takes that back.
    pub ever_failed: BTreeSet<JobId>,
    /// Children whose remains were heard, or not asked for; no crash takes that back.
    pub ever_settled: BTreeSet<JobId>,
    /// Jobs that became ready in this call, and since when if it was by their time.
    pub fresh: BTreeMap<JobId, Option<u64>>,
    pub tokens: BTreeSet<u128>,
    /// The last token of each job whose attempt took too long.
    pub retired: BTreeMap<JobId, Token>,
    /// Jobs are delivered in this call before all of it is done, as room for them comes.
    pub in_steps: bool,
    /// Queues whose dead-letter queue was tried anew: a key may have two holders there.
    pub revived: BTreeSet<String>,
    /// Keys, with their queues, that a loss of power has left to a job and to the one that it replaced.
    pub torn_keys: BTreeSet<(String, String)>,
    /// Completed jobs that were sent elsewhere, so that they may be done again.
    pub reopened: BTreeSet<JobId>,
    history: Vec<Change>,
    open: Vec<(Old, Option<usize>)>,
    /// The record that the changes being made stand in, by its place in the log.
    pub record: Option<usize>,
    completions: u64,
}

impl Model {
    pub fn new(checks: Checks, completed_max: usize, retention_ms: u64) -> Self {
        Self {
            checks,
            completed_max,
            expired_kept_ms: 0,
            retention_ms,
            clock_slack_ms: 0,
            seen_ms: 0,
            leapt_at_ms: 0,
            jobs: BTreeMap::new(),
            paused: BTreeSet::new(),
            limits: BTreeMap::new(),
            rules: BTreeMap::new(),
            groups: BTreeMap::new(),
            spans: Spans::default(),
            said: BTreeMap::new(),
            schedules: BTreeMap::new(),
            staged: Staged::default(),
            hooks: BTreeMap::new(),
            events: Vec::new(),
            played: Played::default(),
            is_new: false,
            schedules_since_ms: None,
            bulk_operations: Vec::new(),
            in_steps: false,
            waiters: Vec::new(),
            watches: BTreeMap::new(),
            awaits: Vec::new(),
            ends: BTreeMap::new(),
            leaving: BTreeSet::new(),
            claimed: BTreeSet::new(),
            ever_completed: BTreeSet::new(),
            ever_failed: BTreeSet::new(),
            ever_settled: BTreeSet::new(),
            fresh: BTreeMap::new(),
            tokens: BTreeSet::new(),
            retired: BTreeMap::new(),
            revived: BTreeSet::new(),
            torn_keys: BTreeSet::new(),
            reopened: BTreeSet::new(),
            history: Vec::new(),
            open: Vec::new(),
            record: None,
            completions: 0,
        }
    }

    /// A job, to be changed. One transition, one call: the version before it is kept.
    pub fn change(&mut self, id: JobId) -> &mut Job {
        for bulk_operation in &mut self.bulk_operations {
            bulk_operation.must.remove(&id);
        }
        let job = self.jobs.get_mut(&id).expect("only known jobs change");
        self.open.push((Old::Job(id, Some(Box::new(job.clone()))), self.record));
        job
    }

    /// Keeps what was before a change.
    pub fn keep(&mut self, old: Old) {
        self.open.push((old, self.record));
    }

    pub fn add(&mut self, job: Job) {
        self.keep(Old::Job(job.id, self.jobs.get(&job.id).cloned().map(Box::new)));
        self.fresh.insert(job.id, None);
        self.jobs.insert(job.id, job);
    }

    pub fn pause(&mut self, queue: &str, paused: bool) {
        self.keep(Old::Paused(queue.into(), self.paused.contains(queue)));
        if paused {
            self.paused.insert(queue.into());
        } else {
            self.paused.remove(queue);
        }
    }

    /// Ends a call that took the log from `before` records to `after`.
    pub fn end_call(&mut self, before: usize, after: usize) {
        let changes = self.open.drain(..);
        self.history.extend(changes.map(|(old, record)| Change { before, after, record, old }));
        self.record = None;
        self.fresh.clear();
        self.events.clear();
        self.forget_watches();
        self.ends.clear();
        self.leaving.clear();
        self.claimed.clear();
    }

    pub fn of_queue(&self, queue: &str) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(move |job| job.queue == queue)
    }

    pub fn ready(&self, queue: &str) -> impl Iterator<Item = &Job> {
        self.of_queue(queue).filter(|job| job.state == State::Waiting)
    }

    /// A place in the order of completions.
    pub fn next_completion(&mut self) -> u64 {
        self.completions += 1;
        self.completions
    }

    /// The process has ended and `kept` records are left: takes back what they do not tell of. Of a call
    /// that was cut in the middle, each job stands at one of the versions it had in it.
    pub fn rewind(&mut self, kept: usize, shard: &mut Shard, book: &Book) {
        self.waiters.clear();
        self.watches.clear();
        self.awaits.clear();
        self.bulk_operations.clear();
        self.staged.sliced.clear();
        self.schedules_since_ms = None;
        let mut cut: BTreeSet<JobId> = BTreeSet::new();
        while let Some(change) = self.history.pop_if(|change| change.after > kept) {
            if change.record.is_some_and(|record| record < kept) {
                continue;
            }
            let known_lost = change.record.is_some();
            match change.old {
                Old::Schedule(name, old) => match old {
                    Some(schedule) => {
                        self.schedules.insert(name, *schedule);
                    }
                    None => {
                        self.schedules.remove(&name);
                    }
                },
                Old::Paused(queue, paused) => {
                    let found = shard.queues().any(|q| *q.name == *queue && q.is_paused());
                    if change.before >= kept || found == paused {
                        self.pause(&queue, paused);
                    }
                }
                Old::Limit(queue, old) => {
                    self.undo_limit(&queue, old, change.before < kept, shard);
                }
                Old::Rules(queue, old) => {
                    self.undo_rules(&queue, old, change.before < kept, shard);
                }
                Old::Group(key, old) => self.undo_group(&key, old, change.before < kept, shard),
                Old::Staged(old) => self.staged.undo(old),
                Old::Hook(id, old) => self.put_hook(id, old),
                Old::Job(id, old) => {
                    let perhaps = change.before < kept && !known_lost;
                    if perhaps && (cut.contains(&id) || self.matches(id, shard, book)) {
                        cut.insert(id);
                        continue;
                    }
                    match old {
                        Some(job) => self.jobs.insert(id, *job),
                        None => self.jobs.remove(&id),
                    };
                }
            }
        }
        self.open.clear();
    }

    /// Whether a job of the model, as a restart would find it, is what `shard` has.
    fn matches(&self, id: JobId, shard: &Shard, book: &Book) -> bool {
        let found = shard.find(id).map(|index| shard.view(index));
        let (Some(job), Some(view)) = (self.jobs.get(&id), found) else {
            let gone = self.jobs.get(&id).is_none_or(|job| job.state == State::Gone);
            return gone == found.is_none();
        };
        let same = match (&job.state, view.job.state) {
            (State::Active(lease), found) if lease.token.is_none() => {
                matches!(found, Found::Waiting | Found::Delayed)
            }
            (State::Waiting | State::Delayed, Found::Waiting | Found::Delayed)
            | (State::WaitingChildren, Found::WaitingChildren)
            | (State::Completed { .. }, Found::Completed)
            | (State::Failed { .. }, Found::Failed) => true,
            (State::Active(lease), Found::Active) => {
                view.lease.is_some_and(|found| found.token == lease.token)
            }
            _ => false,
        };
        let options = view.options;
        let key = options.and_then(|has| has.unique_key.as_deref());
        let extras = options.and_then(|has| has.extras.as_deref()).copied().unwrap_or_default();
        let expires_at_ms = options.map(|has| has.expires_at_ms).filter(|&at_ms| at_ms > 0);
        let pushed = book.pushed_at(view.data.position);
        same && redelivered(&view) == job.redelivered
            && pushed.is_some_and(|pushed| pushed.job.data == &job.data[..])
            && (key, extras) == (job.unique_key.as_deref(), job.extras)
            && view.job.flags & flags::PUSHED == job.flags()
            && expires_at_ms == job.expires_at_ms
            && (view.job.attempts, view.job.stalls) == (job.attempts, job.stalls)
            && (view.job.run_at_ms, view.job.priority) == (job.run_at_ms, job.priority)
    }

    /// The process has started again: locks live once more. `delayed`: what [`Model::recall_delays`] found.
    pub fn restart(&mut self, now_ms: u64, delayed: &[JobId]) {
        self.fill_buckets(now_ms);
        self.spans = Spans::default();
        self.said.clear();
        self.is_new = true;
        self.retired.clear();
        self.resume_slices();
        for job in self.jobs.values_mut() {
            if job.is_detached() {
                // The jobs of an obliterated queue are back, and its keys may have other holders by now.
                job.queue = job.queue_name().into();
                self.revived.insert(job.queue.clone());
            }
            let State::Active(lease) = &mut job.state else { continue };
            lease.client = None;
            lease.seen_at_ms = now_ms;
            lease.expires_at_ms = now_ms + lease.ttl_ms;
            lease.timeout_at_ms = job.timeout_ms.map(|timeout_ms| now_ms + timeout_ms);
        }
        for id in delayed {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            job.state = if job.run_at_ms > now_ms { State::Delayed } else { State::Waiting };
        }
    }

    /// The completed jobs of a queue, in the order of their completion.
    fn completed(&self, queue: &str) -> Vec<JobId> {
        let mut completed: Vec<(u64, JobId)> = self
            .of_queue(queue)
            .filter_map(|job| match job.state {
                State::Completed { place, .. } => Some((place, job.id)),
                _ => None,
            })
            .collect();
        completed.sort_unstable();
        completed.into_iter().map(|(_, id)| id).collect()
    }

    /// A job was completed: if there are as many of its queue as may be, the oldest of the others goes. But
    /// not where the log could not tell them from those of a queue of the same name.
    pub fn displace(&mut self, queue: &str) {
        let completed = self.completed(queue);
        if completed.len() > self.completed_max && !self.has_elder(queue) {
            self.change(completed[0]).state = State::Gone;
        }
    }

    /// Whether a queue is one that was obliterated, or has the name of one, and that is not empty yet.
    fn has_elder(&self, queue: &str) -> bool {
        let name = queue.split(DETACHED).next().unwrap_or_default();
        let names = self
            .bulk_operations
            .iter()
            .filter_map(|bulk_operation| bulk_operation.queue.split_once(DETACHED));
        names.into_iter().any(|(elder, _)| elder == name)
    }

    /// Completed jobs past their time, and more than there may be by the settings of today, may be kept a
    /// while longer.
    pub fn is_spent(&self, job: &Job, now_ms: u64) -> bool {
        let State::Completed { at_ms, .. } = job.state else { return false };
        let aged = at_ms + self.retention_ms <= now_ms;
        aged || {
            let completed = self.completed(&job.queue);
            let surplus = completed.len().saturating_sub(self.completed_max);
            completed[..surplus].contains(&job.id)
        }
    }

    /// Time comes by.
    pub fn note_time(&mut self, now_ms: u64) {
        if now_ms > self.seen_ms + RETENTION_CHECK_MS || now_ms < self.leapt_at_ms {
            self.leapt_at_ms = now_ms;
        }
        self.seen_ms = now_ms;
    }

    /// Checks that completed jobs which are too old go in time, and first of all after a start. One that was completed
    /// by a clock that was a little behind goes no sooner than those completed before it.
    pub fn check_retention(&self, now_ms: u64) {
        let sure_ms = now_ms.saturating_sub(self.clock_slack_ms);
        for job in self.jobs.values() {
            let State::Completed { at_ms, .. } = job.state else { continue };
            let spent_ms = at_ms.saturating_add(self.retention_ms).max(self.leapt_at_ms);
            let late = spent_ms + RETENTION_CHECK_MS <= now_ms
                || self.is_new && self.is_spent(job, sure_ms);
            self.must(Check::Overdue, !late || self.has_elder(&job.queue), || {
                format!("at {now_ms}, kept for more than {} ms: {job:?}", self.retention_ms)
            });
        }
    }

    pub fn must(&self, check: Check, holds: bool, what: impl FnOnce() -> String) {
        self.checks.must(check, holds, what);
    }
}
