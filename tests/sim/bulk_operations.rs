//! Long commands in the model. Which job one takes next is the shard's choice and told by its records;
//! here stands which it may take, and which it must have taken once it answers.

use super::check::Check;
use super::compare::found;
use super::events::EventStep;
use super::job_rules::Moment;
use super::model::{DETACHED, Job, Model, State};
use super::ops::Answer;
use super::scan::DlqScan;
use corq_shards::effect::KnownAs;
use corq_shards::job::State as Found;
use corq_shards::job::id::JobId;
use corq_shards::log_record::job_change::Changed;
use corq_shards::log_record::{Buried, Record, Revived};
use std::collections::BTreeSet;

/// The work of a long command.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// Removes jobs in these states; `named`, it answers which.
    /// `drains`, it is an event of the queue.
    /// `prioritized`, those that wait with a priority above 0 as well.
    Remove { states: Vec<Found>, prioritized: bool, grace_ms: u64, named: bool, drains: bool },
    /// Removes what is left of a queue.
    Empty,
    /// Has jobs run anew that have ended, and had so by then.
    Revive { ended: Found, until_ms: u64 },
    /// Ends delays.
    Promote,
    /// Looks through a dead-letter queue.
    DlqScan(DlqScan),
    /// Takes a key from all that have it; `held`: a job held it when the command came.
    FreeKey { key: String, held: bool },
    /// Gives jobs the deadlines of a new rule.
    Rearm,
}

/// A long command as the model follows it.
#[derive(Clone, Debug)]
pub struct BulkOperation {
    pub request: u64,
    pub queue: String,
    pub work: Work,
    pub began_ms: u64,
    /// No job that was made later is meant, unless it has ended.
    newest: JobId,
    /// Jobs that it may still take.
    pub left: u64,
    /// Jobs that were meant when it came, and have not been touched since.
    pub must: BTreeSet<JobId>,
    pub done: Vec<JobId>,
    /// Jobs that went while it was at work, and may have gone for another reason.
    perhaps: Vec<JobId>,
}

/// The moment from which the age of a job counts.
pub fn since_ms(job: &Job) -> u64 {
    match &job.state {
        State::Active(lease) => lease.started_at_ms,
        State::Completed { at_ms, .. } | State::Failed { at_ms, .. } => *at_ms,
        _ => made_at_ms(job),
    }
}

/// When a job was made, as its client says if he says so.
fn made_at_ms(job: &Job) -> u64 {
    job.extras.made_at_ms.unwrap_or_else(|| job.id.made_at_ms())
}

/// The change of a job that a long command has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    Removed,
    Revived,
    Promoted,
    Freed,
}

impl Work {
    /// The change of the jobs that the work takes.
    fn takes(&self) -> Option<Taken> {
        match self {
            Self::Remove { .. } | Self::Empty => Some(Taken::Removed),
            Self::Revive { .. } => Some(Taken::Revived),
            Self::Promote => Some(Taken::Promoted),
            Self::FreeKey { .. } => Some(Taken::Freed),
            Self::DlqScan(scan) => scan.retries().then_some(Taken::Revived),
            Self::Rearm => None,
        }
    }
}

impl BulkOperation {
    pub fn means(&self, model: &Model, now_ms: u64, job: &Job) -> bool {
        let Some(state) = found(&job.state) else { return false };
        let ended = matches!(state, Found::Completed | Found::Failed);
        job.queue == self.queue
            && (ended || job.id <= self.newest || job.family.of_flow)
            && match &self.work {
                Work::Empty => true,
                Work::Rearm => false,
                Work::Revive { ended, until_ms } => state == *ended && since_ms(job) <= *until_ms,
                Work::Promote => state == Found::Delayed,
                Work::FreeKey { key, .. } => job.is_live() && job.unique_key.as_ref() == Some(key),
                Work::DlqScan(scan) => scan.means(model, now_ms, job),
                Work::Remove { states, prioritized, grace_ms, .. } => {
                    let is_urgent = *prioritized && state == Found::Waiting && job.priority > 0;
                    (is_urgent || states.contains(&state))
                        && (*grace_ms == 0 || since_ms(job) + grace_ms <= self.began_ms)
                }
            }
    }

    /// Takes over the work done, as far as the answer can tell.
    fn settle(&mut self, model: &Model, answer: &Answer) {
        let said = match answer {
            Answer::Count(count) => *count as usize,
            Answer::Cleaned(names) => names.len(),
            _ => return,
        };
        let wanting = said.saturating_sub(self.done.len()).min(self.perhaps.len());
        self.left -= self.left.min(wanting as u64);
        if let Answer::Cleaned(names) = answer {
            self.done.append(&mut self.perhaps);
            let named = |id: &JobId| names.iter().position(|name| *name == known_as(model, *id));
            self.done.retain(|id| named(id).is_some());
            self.done.sort_by_key(named);
        } else {
            self.done.extend(self.perhaps.drain(..wanting));
        }
    }

    pub fn answer(&self, model: &Model) -> Answer {
        match &self.work {
            Work::Empty | Work::Rearm => Answer::Done,
            Work::FreeKey { held, .. } => Answer::Count(u64::from(*held)),
            Work::Remove { named: true, .. } => {
                Answer::Cleaned(self.done.iter().map(|&id| known_as(model, id)).collect())
            }
            Work::Remove { .. } | Work::Revive { .. } | Work::Promote | Work::DlqScan(_) => {
                Answer::Count(self.done.len() as u64)
            }
        }
    }
}

fn known_as(model: &Model, id: JobId) -> KnownAs {
    match &model.jobs[&id].custom_id {
        Some(name) => KnownAs::Custom(name.as_str().into()),
        None => KnownAs::Id(id),
    }
}

impl Model {
    /// A long command has come.
    pub fn begin_bulk(&mut self, at: &Moment<'_>, queue: &str, work: Work, limit: u64) {
        let newest = self.jobs.keys().next_back().copied().unwrap_or_default();
        let mut bulk_operation = BulkOperation {
            request: at.request,
            queue: queue.into(),
            work,
            began_ms: at.now_ms,
            newest,
            left: limit,
            must: BTreeSet::new(),
            done: Vec::new(),
            perhaps: Vec::new(),
        };
        let meant = self.jobs.values().filter(|job| bulk_operation.means(self, at.now_ms, job));
        bulk_operation.must = meant.map(|job| job.id).collect();
        if let Work::Revive { .. } = bulk_operation.work {
            bulk_operation.left = limit.min(bulk_operation.must.len() as u64);
        }
        self.bulk_operations.push(bulk_operation);
    }

    /// A queue's name is taken from what is in it.
    pub fn detach(&mut self, queue: &str, request: u64) -> String {
        let detached = format!("{queue}{DETACHED}{request}");
        for job in self.jobs.values_mut().filter(|job| job.queue == queue) {
            job.queue.clone_from(&detached);
        }
        for bulk_operation in
            self.bulk_operations.iter_mut().filter(|bulk_operation| bulk_operation.queue == queue)
        {
            bulk_operation.queue.clone_from(&detached);
        }
        detached
    }

    /// Whether a long command is at work on a queue or waits to be.
    pub fn has_bulk(&self, queue: &str) -> bool {
        self.bulk_operations.iter().any(|bulk_operation| bulk_operation.queue == queue)
    }

    /// Follows the work of a long command in a call, which is done before anything falls due. A job that goes may be
    /// one that it took, or one whose time was over all the same.
    pub fn follow_bulk(&mut self, at: &Moment<'_>) {
        // Once a job falls into a dead-letter queue, the rule of that queue lets others go.
        let mut fell = BTreeSet::new();
        for (place, record) in at.records() {
            let (id, taken) = match record {
                Record::Buried(Buried { id, .. }) => {
                    fell.extend(self.jobs.get(&id).map(|job| job.queue.clone()));
                    continue;
                }
                Record::Removed { id } => (id, Taken::Removed),
                Record::Revived(Revived { id, by_itself: false, .. }) => (id, Taken::Revived),
                Record::Changed(Changed::Promoted { id, .. }) => (id, Taken::Promoted),
                Record::Changed(Changed::KeyFreed { id }) => (id, Taken::Freed),
                _ => continue,
            };
            let Some(job) = self.jobs.get(&id) else { continue };
            let bulk_operation = self
                .bulk_operations
                .iter()
                .position(|bulk_operation| bulk_operation.queue == job.queue);
            let is_meant = |&bulk_operation: &usize| {
                self.bulk_operations[bulk_operation].means(self, at.now_ms, job)
            };
            let Some(bulk_operation) = bulk_operation.filter(is_meant) else {
                continue;
            };
            self.record = Some(place);
            let is_due = match &job.state {
                // The job was tried anew, though a rule could have let it go just then.
                _ if taken != Taken::Removed => false,
                State::Active(lease) => {
                    job.remove_on_fail && self.is_to_fail(at.now_ms, job, lease)
                }
                _ => job.is_over(at.now_ms) || self.may_drop_letter(job, at.now_ms),
            };
            if is_due {
                self.bulk_operations[bulk_operation].perhaps.push(id);
                self.retire_token(at.now_ms, id);
                self.leaving.insert(id);
                self.remove(id);
            } else if self.bulk_operations[bulk_operation].work.takes() == Some(taken)
                && !(taken == Taken::Removed && fell.contains(&job.queue))
            {
                self.take_in_bulk(at, id, taken);
                if matches!(taken, Taken::Revived | Taken::Promoted) {
                    self.claimed.insert(id);
                }
            }
        }
        self.record = None;
    }

    /// A rule lets a job go out of the dead-letter queue, unless it was a long command that took it.
    pub fn drop_letter(&mut self, now_ms: u64, id: JobId) {
        let job = &self.jobs[&id];
        let bulk_operation = self
            .bulk_operations
            .iter()
            .position(|bulk_operation| bulk_operation.queue == job.queue);
        if let Some(bulk_operation) = bulk_operation
            .filter(|&bulk_operation| self.bulk_operations[bulk_operation].means(self, now_ms, job))
        {
            self.bulk_operations[bulk_operation].perhaps.push(id);
        }
        // Who waited for its end learnt of that, if it came in this call.
        let end = self.ends.get(&id).copied();
        self.remove(id);
        self.ends.extend(end.map(|end| (id, end)));
    }

    /// The chore that is at work on a queue takes a job, as the shard's record says.
    pub fn take_in_bulk(&mut self, at: &Moment<'_>, id: JobId, taken: Taken) {
        let Some(job) = self.jobs.get(&id) else {
            self.checks
                .fail(Check::BulkOperation, || format!("{id:?} is taken and was never pushed"));
            return;
        };
        let Some(place) = self
            .bulk_operations
            .iter()
            .position(|bulk_operation| bulk_operation.queue == job.queue)
        else {
            self.checks.fail(Check::BulkOperation, || format!("nobody wanted this: {job:?}"));
            return;
        };
        let bulk_operation = &self.bulk_operations[place];
        let fits = bulk_operation.means(self, at.now_ms, job)
            && bulk_operation.left > 0
            && bulk_operation.work.takes() == Some(taken);
        self.must(Check::BulkOperation, fits, || format!("{bulk_operation:?}\n  takes {job:?}"));
        match taken {
            Taken::Revived => self.check_order_of_revival(at, bulk_operation, job),
            // Oldest first, by the time when each was made; of those that were made at one time, the shard chooses.
            Taken::Promoted => {
                let left = bulk_operation.must.iter().filter_map(|id| self.jobs.get(id));
                let older = left.map(made_at_ms).min().filter(|&older| older < made_at_ms(job));
                self.must(Check::Order, older.is_none(), || {
                    format!("{bulk_operation:?}\n  takes {job:?} before {older:?}")
                });
            }
            Taken::Removed | Taken::Freed => {}
        }
        self.bulk_operations[place].left -= 1;
        self.bulk_operations[place].done.push(id);
        match taken {
            Taken::Revived => self.revive(at.now_ms, id),
            Taken::Promoted => self.promote(at.now_ms, id),
            Taken::Freed => self.change(id).unique_key = None,
            Taken::Removed => {
                // A worker that gets it in this call got it before.
                self.leaving.insert(id);
                self.remove(id);
            }
        }
    }

    /// Oldest first; of those that ended at the same time, the shard chooses.
    fn check_order_of_revival(&self, at: &Moment<'_>, bulk_operation: &BulkOperation, job: &Job) {
        let older = self.of_queue(&job.queue).find(|other| {
            found(&other.state) == found(&job.state)
                && bulk_operation.must.contains(&other.id)
                && bulk_operation.means(self, at.now_ms, other)
                && since_ms(other) + self.clock_slack_ms < since_ms(job)
                && !(self.is_spent(other, at.now_ms) && at.shard.find(other.id).is_none())
        });
        if let Some(older) = older {
            self.checks.fail(Check::Order, || format!("{job:?}\n  runs anew before {older:?}"));
        }
    }

    /// Revives a job if it has ended so.
    pub fn revive_one(
        &mut self,
        at: &Moment<'_>,
        queue: &str,
        id: JobId,
        ended: Found,
        answer: Option<&Answer>,
    ) {
        let job = self.jobs.get(&id).filter(|job| job.queue == queue);
        let fits = job.is_some_and(|job| found(&job.state) == Some(ended));
        let expected = Answer::Count(u64::from(fits));
        self.must(Check::Answer, answer == Some(&expected), || {
            format!("a retry of {job:?} was answered {answer:?}, not {expected:?}")
        });
        if fits {
            self.claimed.insert(id);
            self.revive(at.now_ms, id);
        }
    }

    /// A delay ends before its time.
    pub fn promote(&mut self, now_ms: u64, id: JobId) {
        let job = self.change(id);
        (job.state, job.run_at_ms) = (State::Waiting, now_ms);
        // In a long command, others are delivered before.
        self.fresh.insert(id, Some(0));
    }

    /// The life of a job begins anew.
    pub fn renew_life(&mut self, now_ms: u64, id: JobId) {
        if let Some(ttl_ms) = self.jobs[&id].ttl_ms {
            self.change(id).expires_at_ms = Some(now_ms + ttl_ms);
        }
    }

    /// A job that has ended is to run anew, and to live as long as a new one.
    pub fn revive(&mut self, now_ms: u64, id: JobId) {
        self.revive_as_it_is(now_ms, id);
        self.renew_life(now_ms, id);
    }

    /// Lets a job wait again without another life.
    pub fn revive_as_it_is(&mut self, now_ms: u64, id: JobId) {
        self.reopened.insert(id);
        if let Some(prev) = found(&self.jobs[&id].state) {
            self.note_event(id, EventStep::Retried(prev));
        }
        let job = self.change(id);
        (job.attempts, job.stalls, job.run_at_ms) = (0, 0, now_ms);
        job.redelivered = 0;
        job.met = false;
        let waits = job.wait_again(now_ms);
        (job.notes.progress, job.notes.message) = (0.0, None);
        let queue = job.queue_name().to_owned();
        self.revived.insert(queue);
        if waits {
            self.note_event(id, EventStep::WaitingChildren);
        } else {
            self.fresh.insert(id, Some(0));
        }
    }

    /// Long commands that are answered have done all they were given.
    pub fn check_bulk(&mut self, at: &Moment<'_>, answers: &[(u64, Answer)]) {
        for (request, answer) in answers {
            let Some(place) = self
                .bulk_operations
                .iter()
                .position(|bulk_operation| bulk_operation.request == *request)
            else {
                continue;
            };
            let mut bulk_operation = self.bulk_operations.remove(place);
            bulk_operation.settle(self, answer);
            let first = self.bulk_operations[..place]
                .iter()
                .all(|other| other.queue != bulk_operation.queue);
            self.must(Check::BulkOperation, first, || {
                format!("{bulk_operation:?} overtakes another")
            });
            if let Work::Remove { drains: true, .. } = bulk_operation.work {
                self.note_queue_event(&bulk_operation.queue, EventStep::Drained);
            }
            let at_once = !at.by_clock && *request == at.request;
            if let Work::DlqScan(scan) = &bulk_operation.work
                && self.check_scan(at, &bulk_operation, scan, answer, at_once)
            {
                continue;
            }
            let expected = bulk_operation.answer(self);
            self.must(Check::Answer, *answer == expected, || {
                format!("{bulk_operation:?}\n  was answered {answer:?}, not {expected:?}")
            });
            let aged = |id: &JobId| {
                self.is_spent(&self.jobs[id], at.now_ms) && at.shard.find(*id).is_none()
            };
            let rest = bulk_operation.must.iter().find(|id| !aged(id));
            self.must(Check::BulkOperation, bulk_operation.left == 0 || rest.is_none(), || {
                format!("{bulk_operation:?}\n  has left {:?}", rest.map(|id| &self.jobs[id]))
            });
        }
    }
}
