//! Long commands in the model. Which job one takes next is the shard's choice and told by its records;
//! here stands which it may take, and which it must have taken once it answers.

use super::check::Check;
use super::compare::found;
use super::judge::Moment;
use super::model::{DETACHED, Job, Model, State};
use super::ops::Answer;
use corq_shards::effect::KnownAs;
use corq_shards::id::JobId;
use corq_shards::job::State as Found;
use corq_shards::record::Record;
use std::collections::BTreeSet;

/// What a long command does.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// Removes jobs in these states; `named`, it answers which.
    Remove { states: Vec<Found>, grace_ms: u64, named: bool },
    /// Removes what is left of a queue.
    Empty,
    /// Has jobs that have ended run anew.
    Revive { ended: Found },
    /// Gives jobs the deadlines of a new rule.
    Rearm,
}

/// One long command.
#[derive(Clone, Debug)]
pub struct Chore {
    request: u64,
    queue: String,
    work: Work,
    began_ms: u64,
    /// No job that was made later is meant, unless it has ended.
    newest: JobId,
    /// Jobs that it may still take.
    left: u64,
    /// Jobs that were meant when it came, and have not been touched since.
    pub must: BTreeSet<JobId>,
    done: Vec<JobId>,
    /// Jobs that went while it was at work, and may have gone for another reason.
    perhaps: Vec<JobId>,
}

/// The moment from which the age of a job counts.
fn since_ms(job: &Job) -> u64 {
    match &job.state {
        State::Active(lease) => lease.started_at_ms,
        State::Completed { at_ms, .. } | State::Failed { at_ms } => *at_ms,
        _ => job.id.made_at_ms(),
    }
}

impl Chore {
    fn means(&self, job: &Job) -> bool {
        let Some(state) = found(&job.state) else { return false };
        let ended = matches!(state, Found::Completed | Found::Failed);
        job.queue == self.queue
            && (ended || job.id <= self.newest || job.family.of_flow)
            && match &self.work {
                Work::Empty => true,
                Work::Rearm => false,
                Work::Revive { ended } => state == *ended,
                Work::Remove { states, grace_ms, .. } => {
                    states.contains(&state)
                        && (*grace_ms == 0 || since_ms(job) + grace_ms <= self.began_ms)
                }
            }
    }

    /// What it has done, as far as its answer can tell.
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

    fn answer(&self, model: &Model) -> Answer {
        match &self.work {
            Work::Empty | Work::Rearm => Answer::Done,
            Work::Remove { named: true, .. } => {
                Answer::Cleaned(self.done.iter().map(|&id| known_as(model, id)).collect())
            }
            Work::Remove { .. } | Work::Revive { .. } => Answer::Count(self.done.len() as u64),
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
    pub fn begin_chore(&mut self, at: &Moment<'_>, queue: &str, work: Work, limit: u64) {
        let newest = self.jobs.keys().next_back().copied().unwrap_or_default();
        let mut chore = Chore {
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
        let meant = self.jobs.values().filter(|job| chore.means(job)).map(|job| job.id);
        chore.must = meant.collect();
        if let Work::Revive { .. } = chore.work {
            chore.left = limit.min(chore.must.len() as u64);
        }
        self.chores.push(chore);
    }

    /// A queue's name is taken from what is in it.
    pub fn detach(&mut self, queue: &str, request: u64) -> String {
        let detached = format!("{queue}{DETACHED}{request}");
        for job in self.jobs.values_mut().filter(|job| job.queue == queue) {
            job.queue.clone_from(&detached);
        }
        for chore in self.chores.iter_mut().filter(|chore| chore.queue == queue) {
            chore.queue.clone_from(&detached);
        }
        detached
    }

    /// Whether a long command is at work on a queue or waits to be.
    pub fn has_chore(&self, queue: &str) -> bool {
        self.chores.iter().any(|chore| chore.queue == queue)
    }

    /// What the chore at work did, which is done before anything falls due. A job that goes may be one
    /// that it took, or one whose time was over all the same.
    pub fn follow_chores(&mut self, at: &Moment<'_>) {
        for (place, record) in at.records() {
            let (id, revived) = match record {
                Record::Removed { id } => (id, false),
                Record::Revived { id, by_itself: false, .. } => (id, true),
                _ => continue,
            };
            let Some(job) = self.jobs.get(&id) else { continue };
            let chore = self.chores.iter().position(|chore| chore.queue == job.queue);
            let Some(chore) = chore.filter(|&chore| self.chores[chore].means(job)) else {
                continue;
            };
            self.record = Some(place);
            let is_due = match &job.state {
                // It was tried anew, though a rule could have let it go just then.
                _ if revived => false,
                State::Active(lease) => {
                    let hold_ends_ms = self.hold_ends_ms(job, lease);
                    let ends = lease.timeout_at_ms.into_iter().chain([hold_ends_ms]);
                    job.remove_on_fail && ends.min() <= Some(at.now_ms)
                }
                _ => job.is_over(at.now_ms) || self.may_drop_letter(job, at.now_ms),
            };
            if is_due {
                self.chores[chore].perhaps.push(id);
                self.leaving.insert(id);
                self.remove(id);
            } else {
                self.take_in_chore(at, id, revived);
                if revived {
                    self.claimed.insert(id);
                }
            }
        }
        self.record = None;
    }

    /// A rule lets a job go out of the dead-letter queue, unless it was a long command that took it.
    pub fn drop_letter(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        let chore = self.chores.iter().position(|chore| chore.queue == job.queue);
        if let Some(chore) = chore.filter(|&chore| self.chores[chore].means(job)) {
            self.chores[chore].perhaps.push(id);
        }
        // Who waited for its end learnt of that, if it came in this call.
        let end = self.ends.get(&id).copied();
        self.remove(id);
        self.ends.extend(end.map(|end| (id, end)));
    }

    /// The chore that is at work on a queue takes a job, as the shard's record says.
    pub fn take_in_chore(&mut self, at: &Moment<'_>, id: JobId, revived: bool) {
        let Some(job) = self.jobs.get(&id) else {
            self.checks.fail(Check::Chore, || format!("{id:?} is taken and was never pushed"));
            return;
        };
        let Some(place) = self.chores.iter().position(|chore| chore.queue == job.queue) else {
            self.checks.fail(Check::Chore, || format!("nobody wanted this: {job:?}"));
            return;
        };
        let chore = &self.chores[place];
        let fits = chore.means(job)
            && chore.left > 0
            && revived == matches!(chore.work, Work::Revive { .. });
        self.must(Check::Chore, fits, || format!("{chore:?}\n  takes {job:?}"));
        if revived {
            self.judge_order_of_revival(at, job);
        }
        self.chores[place].left -= 1;
        self.chores[place].done.push(id);
        if revived {
            self.revive(at.now_ms, id);
        } else {
            // A worker that gets it in this call got it before.
            self.leaving.insert(id);
            self.remove(id);
        }
    }

    /// Oldest first; of those that ended at the same time, the shard chooses.
    fn judge_order_of_revival(&self, at: &Moment<'_>, job: &Job) {
        let older = self.of_queue(&job.queue).find(|other| {
            found(&other.state) == found(&job.state)
                && since_ms(other) < since_ms(job)
                && !(self.is_aged(other, at.now_ms) && at.shard.find(other.id).is_none())
        });
        if let Some(older) = older {
            self.checks.fail(Check::Order, || format!("{job:?}\n  runs anew before {older:?}"));
        }
    }

    /// One job is to run anew, if it has ended so.
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

    /// A job that has ended is to run anew.
    pub fn revive(&mut self, now_ms: u64, id: JobId) {
        self.reopened.insert(id);
        let job = self.change(id);
        (job.attempts, job.stalls, job.run_at_ms) = (0, 0, now_ms);
        job.redelivered = 0;
        job.unmet.clear();
        (job.state, job.met) = (State::Waiting, false);
        (job.notes.progress, job.notes.message) = (0.0, None);
        let queue = job.queue_name().to_owned();
        self.revived.insert(queue);
        self.fresh.insert(id, Some(0));
    }

    /// Long commands that are answered have done all they were given.
    pub fn judge_chores(&mut self, at: &Moment<'_>, answers: &[(u64, Answer)]) {
        for (request, answer) in answers {
            let Some(place) = self.chores.iter().position(|chore| chore.request == *request) else {
                continue;
            };
            let mut chore = self.chores.remove(place);
            chore.settle(self, answer);
            let first = self.chores[..place].iter().all(|other| other.queue != chore.queue);
            self.must(Check::Chore, first, || format!("{chore:?} overtakes another"));
            let expected = chore.answer(self);
            self.must(Check::Answer, *answer == expected, || {
                format!("{chore:?}\n  was answered {answer:?}, not {expected:?}")
            });
            let aged = |id: &JobId| {
                self.is_aged(&self.jobs[id], at.now_ms) && at.shard.find(*id).is_none()
            };
            let rest = chore.must.iter().find(|id| !aged(id));
            self.must(Check::Chore, chore.left == 0 || rest.is_none(), || {
                format!("{chore:?}\n  has left {:?}", rest.map(|id| &self.jobs[id]))
            });
        }
    }
}
