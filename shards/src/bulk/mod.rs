//! Long commands: those that touch many jobs of a queue. Each is a bulk operation that does a slice at a time
//! and answers at the end; other commands run between the slices.
//!
//! A bulk operation is about the jobs that were there when it came, so that producers cannot make it run for
//! ever. Chores of one queue follow each other, those of several queues take turns. A bulk operation goes on
//! when its client has left. After a crash, what was done is done and the rest is as it was: no answer
//! had been given.
//!
//! | file | responsibility |
//! |---|---|
//! | `obliterate` | a queue that is to have nothing any more, and its jobs and groups on their way out |
//! | `selection` | which jobs an operation is about, and the search for them |

mod obliterate;
mod selection;

use crate::caller::RequestId;
use crate::collections::count::Count;
use crate::command::{Clean, DlqScanRequest};
use crate::dead_letter::policy::Rule;
use crate::dead_letter::scan::{DlqScan, Yields};
use crate::dedup::Rank;
use crate::effect::{KnownAs, Refusal, Reply};
use crate::event::{Extra, Step};
use crate::job::State;
use crate::job::id::JobId;
use crate::log_record::{Journal, Record, Revived};
use crate::queue::listing::{States, Views};
use crate::shard::{Caller, Out, Shard};
use crate::traced::Settled;

/// Chores a shard takes at a time. A connection cannot have more than fifty, but its bulk operations outlive it.
pub const BULK_OPERATIONS_MAX: usize = 10_000;

/// Text of ids that one answer may hold; a clean-up that has collected as much ends there.
const ID_BYTES_MAX: usize = 32 << 20;

/// A long command, done in slices.
pub(crate) struct BulkOperation {
    request: RequestId,
    queue: u32,
    begun: bool,
    done: u64,
    work: Work,
}

enum Work {
    /// Jobs that have ended are to run anew, oldest first.
    Revive { ended: State, below: u64, left: u64, until_ms: u64 },
    /// Some jobs go.
    Remove(Box<Removal>),
    /// The delays of some jobs end.
    Promote(Box<Removal>),
    /// All jobs of a detached queue go.
    Empty,
    /// Jobs of the dead-letter queue are looked at.
    DlqScan(Box<DlqScan>),
    /// A dead-letter queue has become too long.
    Trim(Box<DlqScan>),
    /// A deduplication key is taken from all jobs that hold it and are not newer.
    FreeKey { key: Box<str>, newest: JobId, behind: Option<Rank>, held: u64 },
    /// The leases of active jobs are to have other deadlines.
    RearmLeases(Box<Removal>),
}

/// Which jobs go, and how far the search for them has come.
struct Removal {
    /// States of ended jobs, each with the place among the ends before which they go; taken in order of their age.
    ended: Vec<(State, u64)>,
    /// States of jobs that have not ended, taken in the order they were made.
    pending: States,
    /// Of those that wait, also the ones of a priority above 0.
    prioritized: bool,
    /// The last one looked at of these.
    after: JobId,
    /// No job with a higher id is meant.
    newest: JobId,
    began_ms: u64,
    /// Only jobs this old, counted back from `began_ms`.
    grace_ms: u64,
    left: u64,
    /// The ids of those that went, if the command asks for them.
    ids: Option<Vec<Box<[KnownAs]>>>,
    id_bytes: usize,
    /// The event for listeners of the queue at the end of the removal.
    end: End,
}

/// The event for listeners of a queue at the end of a removal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Untold,
    Drained,
    Cleaned,
    Purged,
}

/// Jobs looked at by one slice. Most looks are at neighbours and cost a few nanoseconds.
pub(crate) const LOOKS_MAX: usize = 8192;

fn refused(caller: Caller) -> (RequestId, Reply) {
    (caller.request, Reply::Refused { place: 0, refusal: Refusal::Busy })
}

/// Jobs that have ended, to run anew.
pub(crate) struct Retry<'a> {
    pub(crate) queue: &'a str,
    /// The state they are in now.
    pub(crate) ended: State,
    /// This one only.
    pub(crate) job: Option<JobId>,
    /// At most so many.
    pub(crate) count: u64,
    /// Only those that ended by then.
    pub(crate) until_ms: u64,
}

impl Shard {
    pub(crate) fn retry_ended<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        retry: &Retry<'_>,
        out: &mut Out<'_, J>,
    ) {
        let ended = retry.ended;
        let queue = self.queues.find(retry.queue);
        let Some(id) = retry.job else {
            let below = queue.map_or(0, |queue| self.end_of(queue, ended));
            let (left, until_ms) = (retry.count, retry.until_ms);
            let work = Work::Revive { ended, below, left, until_ms };
            self.take_up(now_ms, caller, retry.queue, work, out);
            return;
        };
        let job = self.jobs.find(id).filter(|&job| {
            self.jobs.slab[job].state == ended && Some(self.jobs.slab[job].queue) == queue
        });
        if let (Some(job), Some(queue)) = (job, queue) {
            self.revive_one(now_ms, job, false, out);
            if ended == State::Failed {
                self.emit_extra(now_ms, job, Extra::DlqRetried, out.effects);
            }
            self.serve(now_ms, queue, out);
        }
        let reply = Reply::Count(u64::from(job.is_some()));
        out.effects.replies.push((caller.request, reply));
    }

    pub(crate) fn revive_one<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        by_itself: bool,
        out: &mut Out<'_, J>,
    ) {
        let about = &self.jobs.slab[job];
        let (id, prev) = (about.id, about.state);
        if self.jobs.options_of(job).is_some_and(|has| !has.unmet.is_empty()) {
            // Before the other record: if a crash comes between the two, the job has not left its place.
            out.journal.append(&Record::Blocked { id });
            self.block(job);
        }
        out.journal.append(&Record::Revived(Revived { id, run_at_ms: now_ms, by_itself }));
        self.revive(job, now_ms, by_itself);
        self.emit(now_ms, job, Step::Retried { prev }, out.effects);
        if self.jobs.slab[job].state == State::WaitingChildren {
            self.emit(now_ms, job, Step::WaitingChildren, out.effects);
            // Asked anew, whatever was on its way when the job ended.
            self.watch_dependencies(job);
        }
    }

    pub(crate) fn promote_all<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue: &str,
        count: u64,
        out: &mut Out<'_, J>,
    ) {
        let search = Removal { left: count, ..self.removal(now_ms, queue, &[State::Delayed]) };
        self.take_up(now_ms, caller, queue, Work::Promote(Box::new(search)), out);
    }

    pub(crate) fn drain<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue: &str,
        states: &[State],
        out: &mut Out<'_, J>,
    ) {
        let work = Removal { end: End::Drained, ..self.removal(now_ms, queue, states) };
        self.take_up(now_ms, caller, queue, Work::Remove(Box::new(work)), out);
    }

    pub(crate) fn purge_failed<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue: &str,
        out: &mut Out<'_, J>,
    ) {
        let work = Removal { end: End::Purged, ..self.removal(now_ms, queue, &[State::Failed]) };
        self.take_up(now_ms, caller, queue, Work::Remove(Box::new(work)), out);
    }

    pub(crate) fn clean<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        clean: &Clean<'_>,
        views: Views,
        out: &mut Out<'_, J>,
    ) {
        let mut work = Removal {
            grace_ms: clean.grace_ms,
            left: clean.limit,
            ids: Some(Vec::new()),
            end: End::Cleaned,
            prioritized: views.prioritized,
            ..self.removal(now_ms, clean.queue, clean.states)
        };
        let queue = self.queues.find(clean.queue);
        if views.paused && queue.is_some_and(|queue| self.queues[queue].is_paused()) {
            work.pending = work.pending.and(State::Waiting);
        }
        self.take_up(now_ms, caller, clean.queue, Work::Remove(Box::new(work)), out);
    }

    /// The place behind all jobs that have come to an end: those that are there may leave and come back.
    pub(crate) fn end_of(&self, queue: u32, state: State) -> u64 {
        let about = &self.queues[queue];
        let ended = if state == State::Completed { &about.completed } else { &about.failed };
        ended.end(&self.jobs)
    }

    /// Whether there are too many long commands already for another one, which is answered so.
    pub(crate) fn refuses_bulk<J: Journal>(&self, caller: Caller, out: &mut Out<'_, J>) -> bool {
        let full = self.bulk_operations.len() >= BULK_OPERATIONS_MAX;
        if full {
            out.effects.replies.push(refused(caller));
        }
        full
    }

    pub(crate) fn scan_failed<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        scan_request: &DlqScanRequest<'_>,
        out: &mut Out<'_, J>,
    ) {
        let scan = self.scan(scan_request);
        self.take_up(now_ms, caller, scan_request.queue, Work::DlqScan(Box::new(scan)), out);
    }

    /// Many jobs hold a key that is to be taken from all of them.
    pub(crate) fn free_crowded_key<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        (queue, key): (u32, &str),
        held: u64,
        out: &mut Out<'_, J>,
    ) {
        if !self.refuses_bulk(caller, out) {
            let (newest, behind) = (self.ids.highest(), None);
            let work = Work::FreeKey { key: key.into(), newest, behind, held };
            self.begin_bulk(now_ms, caller, queue, work, out);
        }
    }

    /// A rule of a queue is another: what follows from it is to be so for all of its jobs.
    pub(crate) fn begin_rearming<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue: u32,
        rule: Rule,
        out: &mut Out<'_, J>,
    ) {
        let work = match rule {
            Rule::Dlq(_) => Work::Trim(Box::new(self.rearming(queue))),
            Rule::Stall(_) => {
                let name = self.queues[queue].name.clone();
                Work::RearmLeases(Box::new(self.removal(now_ms, &name, &[State::Active])))
            }
        };
        self.begin_bulk(now_ms, caller, queue, work, out);
    }

    fn take_up<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        name: &str,
        work: Work,
        out: &mut Out<'_, J>,
    ) {
        if self.refuses_bulk(caller, out) {
            return;
        }
        if let Some(queue) = self.queues.find(name) {
            self.begin_bulk(now_ms, caller, queue, work, out);
        } else {
            if let Some(step @ Step::Drained) = work.told(0) {
                self.emit_of_queue(now_ms, name, step, out.effects);
            }
            out.effects.replies.push((caller.request, work.answer(0)));
        }
    }

    fn begin_bulk<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue: u32,
        work: Work,
        out: &mut Out<'_, J>,
    ) {
        self.queues[queue].bulk_operations += 1;
        let first = self.bulk_operations.is_empty();
        let request = caller.request;
        self.bulk_operations.push_back(BulkOperation {
            request,
            queue,
            begun: false,
            done: 0,
            work,
        });
        // A single short one is done before anything else happens.
        if first {
            self.work_on_bulk(now_ms, out);
        }
    }

    /// Does one slice of the next bulk operation.
    pub(crate) fn work_on_bulk<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        // Operations that have not begun wait while another one of their queue is under way, so that those of a queue
        // keep their order.
        let can_go_on = |bulk: &BulkOperation| bulk.begun || !self.queues[bulk.queue].busy;
        let Some(next) = self.bulk_operations.iter().position(can_go_on) else { return };
        let Some(mut bulk) = self.bulk_operations.remove(next) else { return };
        if !bulk.begun {
            bulk.begun = true;
            self.queues[bulk.queue].busy = true;
            // At most one bulk operation of a queue is under way, so there is one walk at a time.
            self.queues[bulk.queue].failed.begin_walk();
        }
        let before = self.steps;
        let done = self.work_on(now_ms, &mut bulk, out);
        self.bulk_steps = Some((bulk.request, self.steps - before));
        if done {
            self.end_bulk(now_ms, bulk, out);
        } else {
            // To the back: the bulk operations of several queues share the time.
            self.bulk_operations.push_back(bulk);
        }
    }

    /// The long command that the last step of time has worked on, and in how many steps.
    pub fn take_bulk_steps(&mut self) -> Option<(RequestId, u64)> {
        self.bulk_steps.take()
    }

    fn end_bulk<J: Journal>(&mut self, now_ms: u64, bulk: BulkOperation, out: &mut Out<'_, J>) {
        if self.is_listened_to()
            && let Some(step) = bulk.work.told(bulk.done)
        {
            let name = self.queues[bulk.queue].name.clone();
            match step {
                Step::Extra(extra) => {
                    self.emit_extra_of_queue(now_ms, &name, extra, out.effects);
                }
                step => self.emit_of_queue(now_ms, &name, step, out.effects),
            }
        }
        let about = &mut self.queues[bulk.queue];
        about.busy = false;
        about.bulk_operations.take_out(1);
        if about.detached && about.bulk_operations == 0 && about.total() == 0 {
            self.remove_detached(bulk.queue);
            // Completed jobs that had to stay until then may be forgotten now.
            self.retention.due_ms = self.retention.due_ms.min(now_ms);
        }
        out.effects.replies.push((bulk.request, bulk.work.answer(bulk.done)));
    }

    /// Does one slice; true if it was the last.
    fn work_on<J: Journal>(
        &mut self,
        now_ms: u64,
        bulk: &mut BulkOperation,
        out: &mut Out<'_, J>,
    ) -> bool {
        let queue = bulk.queue;
        // Pulls go first, also before bulk operations that came before the queue was obliterated: new jobs come for them.
        if self.queues[queue].detached
            && (!self.move_waiters(queue) || !self.clear_detached_groups())
        {
            return false;
        }
        match &mut bulk.work {
            Work::Revive { ended, below, left, until_ms } => {
                for _ in 0..self.config.bulk_slice.min(*left) {
                    let oldest = self.queues[queue].oldest(*ended, &self.jobs);
                    let meant = |&job: &u32| {
                        self.jobs.end_order(job) < *below && self.since_ms(job) <= *until_ms
                    };
                    let Some(job) = oldest.filter(meant) else {
                        *left = 0;
                        break;
                    };
                    self.revive_one(now_ms, job, false, out);
                    *left -= 1;
                    bulk.done += 1;
                }
                let last = *left == 0;
                self.serve(now_ms, queue, out);
                last
            }
            Work::Remove(removal) => {
                let (victims, last) = self.find_victims(queue, removal);
                if let Some(ids) = &mut removal.ids
                    && !victims.is_empty()
                {
                    let slice = victims.iter().map(|&job| self.known_as(job));
                    let slice: Box<[KnownAs]> = slice.collect();
                    removal.id_bytes += slice.iter().map(KnownAs::text_bytes).sum::<usize>();
                    ids.push(slice);
                }
                for &job in &victims {
                    self.remove_one(now_ms, job, out);
                }
                bulk.done += victims.len() as u64;
                removal.left -= victims.len() as u64;
                last || removal.left == 0 || removal.id_bytes >= ID_BYTES_MAX
            }
            Work::Promote(search) => {
                let (found, last) = self.find_victims(queue, search);
                for &job in &found {
                    self.promote_one(now_ms, job, out);
                }
                self.serve(now_ms, queue, out);
                bulk.done += found.len() as u64;
                search.left -= found.len() as u64;
                last || search.left == 0
            }
            Work::DlqScan(scan) => {
                let (found, last) = self.continue_scan(now_ms, queue, scan, out);
                bulk.done += found;
                last
            }
            Work::Trim(scan) => {
                for _ in 0..self.config.bulk_slice {
                    if !self.trim_failed(now_ms, queue, out) {
                        return self.continue_scan(now_ms, queue, scan, out).1;
                    }
                }
                false
            }
            Work::FreeKey { key, newest, behind, held } => {
                bulk.done = *held;
                self.free_some((queue, key), *newest, behind, out)
            }
            Work::RearmLeases(search) => {
                let (found, last) = self.find_victims(queue, search);
                for &job in &found {
                    self.rearm_lease(self.jobs.slab[job].detail);
                }
                last
            }
            Work::Empty => {
                for _ in 0..self.config.bulk_slice {
                    let Some(job) = self.queues[queue].push_order.from(0).next() else {
                        return self.drop_groups(queue, self.config.bulk_slice);
                    };
                    self.remove_one(now_ms, job, out);
                    bulk.done += 1;
                }
                false
            }
        }
    }

    /// Removes a job because a client asks for it or its ttl has ended.
    pub(crate) fn remove_one<J: Journal>(&mut self, now_ms: u64, job: u32, out: &mut Out<'_, J>) {
        let about = &self.jobs.slab[job];
        let (id, prev) = (about.id, about.state);
        out.journal.append(&Record::Removed { id });
        self.emit(now_ms, job, Step::Removed { prev }, out.effects);
        if !prev.is_end() {
            self.trace_settled(now_ms, job, || Settled::Removed, out.effects);
        }
        self.remove(job);
    }

    /// The moment from which the age of a job is counted.
    fn since_ms(&self, job: u32) -> u64 {
        let about = &self.jobs.slab[job];
        match (about.state, self.jobs.outcome_of(job)) {
            (State::Active, _) => self.leases[about.detail].started_at_ms,
            (_, Some(outcome)) => outcome.finished_at_ms,
            (_, None) => self.view(job).created_at_ms(),
        }
    }
}

impl Work {
    /// The event for listeners of the queue at the end of the work, if there is one.
    fn told(&self, jobs: u64) -> Option<Step> {
        let extra = match self {
            Self::Revive { ended: State::Failed, .. } => Extra::DlqRetriedAll { jobs },
            Self::Remove(removal) => match removal.end {
                End::Drained => return Some(Step::Drained),
                End::Cleaned => Extra::Cleaned { jobs },
                End::Purged => Extra::DlqPurged { jobs },
                End::Untold => return None,
            },
            _ => return None,
        };
        Some(Step::Extra(extra)).filter(|_| jobs > 0)
    }

    fn answer(self, done: u64) -> Reply {
        match self {
            Self::Empty | Self::Trim(_) | Self::RearmLeases(_) => Reply::Done,
            Self::DlqScan(scan) => match scan.yields {
                Yields::Ids(ids) => Reply::Found(ids.into()),
                Yields::Stats(stats) => Reply::FailedStats(stats),
                Yields::Retried | Yields::Rearmed => Reply::Count(done),
            },
            Self::Remove(removal) => match removal.ids {
                Some(ids) => Reply::Cleaned(ids.into()),
                None => Reply::Count(done),
            },
            Self::Revive { .. } | Self::Promote(_) | Self::FreeKey { .. } => Reply::Count(done),
        }
    }
}

impl KnownAs {
    fn text_bytes(&self) -> usize {
        match self {
            Self::Id(_) => 36,
            Self::Custom(name) => name.len(),
        }
    }
}
