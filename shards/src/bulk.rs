//! Long commands: those that touch many jobs of a queue. Each is a bulk operation that does a slice at a time
//! and answers at the end; other commands run between the slices.
//!
//! A bulk operation is about the jobs that were there when it came, so that producers cannot make it run for
//! ever. Chores of one queue follow each other, those of several queues take turns. A bulk operation goes on
//! when its client has left. After a crash, what was done is done and the rest is as it was: no answer
//! had been given.

use crate::collections::count::Count;
use crate::command::{Clean, DlqScanRequest, RequestId};
use crate::dead_letter::policy::Rule;
use crate::dead_letter::scan::{DlqScan, Yields};
use crate::effect::{KnownAs, Refusal, Reply};
use crate::event::Step;
use crate::job::State;
use crate::job::id::JobId;
use crate::log_record::{Journal, Record, Revived};
use crate::queue::listing::States;
use crate::shard::{Caller, Out, Shard};

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
    FreeKey { key: Box<str>, newest: JobId, held: u64 },
    /// The leases of active jobs are to have other deadlines.
    RearmLeases(Box<Removal>),
}

/// Which jobs go, and how far the search for them has come.
struct Removal {
    /// Those that ended, to be taken in order of their age; of each, before which place among the ends.
    ended: Vec<(State, u64)>,
    /// Those that have not, to be taken in the order they were made.
    pending: States,
    /// The last one looked at of these.
    after: JobId,
    /// No job with a higher id is meant.
    newest: JobId,
    began_ms: u64,
    /// Only jobs this old, counted back from `began_ms`.
    grace_ms: u64,
    left: u64,
    /// The ids of those that went, if the command asks for them.
    ids: Option<Vec<KnownAs>>,
    id_bytes: usize,
    /// Whether the end of it is an event of the queue.
    drains: bool,
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
        out.journal.append(&Record::Revived(Revived { id, run_at_ms: now_ms, by_itself }));
        self.revive(job, now_ms, by_itself);
        self.emit(now_ms, job, Step::Retried { prev }, out.effects);
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
        out: &mut Out<'_, J>,
    ) {
        let work = Removal { drains: true, ..self.removal(now_ms, queue, &[State::Waiting]) };
        self.take_up(now_ms, caller, queue, Work::Remove(Box::new(work)), out);
    }

    pub(crate) fn purge_failed<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        queue: &str,
        out: &mut Out<'_, J>,
    ) {
        let work = self.removal(now_ms, queue, &[State::Failed]);
        self.take_up(now_ms, caller, queue, Work::Remove(Box::new(work)), out);
    }

    pub(crate) fn clean<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        clean: &Clean<'_>,
        out: &mut Out<'_, J>,
    ) {
        let work = Removal {
            grace_ms: clean.grace_ms,
            left: clean.limit,
            ids: Some(Vec::new()),
            ..self.removal(now_ms, clean.queue, clean.states)
        };
        self.take_up(now_ms, caller, clean.queue, Work::Remove(Box::new(work)), out);
    }

    fn removal(&mut self, now_ms: u64, name: &str, states: &[State]) -> Removal {
        let queue = self.queues.find(name);
        let is_end = |state: &State| matches!(state, State::Completed | State::Failed);
        let below = |state| queue.map_or(0, |queue| self.end_of(queue, state));
        let ended = states.iter().copied().filter(is_end);
        Removal {
            ended: ended.map(|state| (state, below(state))).collect(),
            pending: states.iter().copied().filter(|state| !is_end(state)).collect(),
            after: JobId::default(),
            newest: self.ids.highest(),
            began_ms: now_ms,
            grace_ms: 0,
            left: u64::MAX,
            ids: None,
            id_bytes: 0,
            drains: false,
        }
    }

    /// The place behind all jobs that have come to an end: those that are there may leave and come back.
    pub(crate) fn end_of(&self, queue: u32, state: State) -> u64 {
        let about = &self.queues[queue];
        let ended = if state == State::Completed { &about.completed } else { &about.failed };
        ended.end(&self.jobs)
    }

    /// The name changes hands at once: what was in the queue stays behind in a detached one, which
    /// nobody can pull from or push to, and goes in slices.
    pub(crate) fn obliterate<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        name: &str,
        out: &mut Out<'_, J>,
    ) {
        if self.refuses_bulk(caller, out) {
            return;
        }
        let known = self.queues.find(name);
        if let Some(queue) = known {
            self.note_evicted(queue, out.journal);
            self.clear_settings(queue, out);
        }
        let Some(old) = known.filter(|&queue| self.queues[queue].total() > 0) else {
            out.effects.replies.push((caller.request, Reply::Done));
            return;
        };
        self.queues.detach(old);
        self.move_waiters(now_ms, old, name);
        self.begin_bulk(now_ms, caller, old, Work::Empty, out);
    }

    /// Removes those of some jobs that an obliterate has yet to reach, since their names are wanted: to
    /// clients their queue has been empty for a while.
    pub(crate) fn give_back_names<J: Journal>(
        &mut self,
        now_ms: u64,
        jobs: &[JobId],
        out: &mut Out<'_, J>,
    ) {
        for &id in jobs {
            if self.is_obliterated(id)
                && let Some(job) = self.jobs.find(id)
            {
                self.remove_one(now_ms, job, out);
            }
        }
    }

    /// Whether a job is there only because an obliterate has yet to reach it.
    pub fn is_obliterated(&self, id: JobId) -> bool {
        let job = self.jobs.find(id);
        job.is_some_and(|job| self.queues[self.jobs.slab[job].queue].detached)
    }

    fn clear_settings<J: Journal>(&mut self, queue: u32, out: &mut Out<'_, J>) {
        let name = self.queues[queue].name.clone();
        if self.queues[queue].is_paused() {
            let stored = out.journal.append(&Record::Paused { queue: &name, paused: false });
            self.set_paused(&name, false, stored);
        }
        self.clear_limits(&name, out);
        if self.queues[queue].groups_with_settings() > 0 {
            out.journal.append(&Record::GroupsCleared { queue: &name });
            self.clear_groups(&name);
        }
        self.clear_rules(&name, out);
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
            let work = Work::FreeKey { key: key.into(), newest: self.ids.highest(), held };
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
            if work.drains() {
                self.emit_drained(now_ms, name, out.effects);
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

    /// One slice of the bulk operation whose turn it is.
    pub(crate) fn work_on_bulk<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        // Those that have not begun stay where they are, so that the bulk operations of one queue keep their order.
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
        if bulk.work.drains() && self.is_listened_to() {
            let name = self.queues[bulk.queue].name.clone();
            self.emit_drained(now_ms, &name, out.effects);
        }
        let about = &mut self.queues[bulk.queue];
        about.busy = false;
        about.bulk_operations.take_out(1);
        if about.detached && about.bulk_operations == 0 && about.total() == 0 {
            self.remove_detached(bulk.queue);
            // What waited for that may be forgotten now.
            self.retention.due_ms = self.retention.due_ms.min(now_ms);
        }
        out.effects.replies.push((bulk.request, bulk.work.answer(bulk.done)));
    }

    /// One slice; true if it was the last.
    fn work_on<J: Journal>(
        &mut self,
        now_ms: u64,
        bulk: &mut BulkOperation,
        out: &mut Out<'_, J>,
    ) -> bool {
        let queue = bulk.queue;
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
                for &job in &victims {
                    if let Some(ids) = &mut removal.ids {
                        let known_as = self.known_as(job);
                        removal.id_bytes += known_as.text_bytes();
                        ids.push(known_as);
                    }
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
            Work::FreeKey { key, newest, held } => {
                bulk.done = *held;
                self.free_some(queue, key, *newest, out)
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
        self.remove(job);
    }

    /// The id by which clients know a job.
    pub(crate) fn known_as(&self, job: u32) -> KnownAs {
        match self.jobs.options_of(job).and_then(|has| has.custom_id.clone()) {
            Some(name) => KnownAs::Custom(name),
            None => KnownAs::Id(self.jobs.slab[job].id),
        }
    }

    /// Some of the jobs that have to go, and whether there are no more.
    fn find_victims(&self, queue: u32, removal: &mut Removal) -> (Vec<u32>, bool) {
        let most = self.config.bulk_slice.min(removal.left) as usize;
        let mut victims = Vec::new();
        let (grace_ms, began_ms) = (removal.grace_ms, removal.began_ms);
        // Ids can run ahead of the clock by a little, and no grace means no question of age.
        let is_old = |since_ms: u64| grace_ms == 0 || since_ms.saturating_add(grace_ms) <= began_ms;
        while let Some((state, below)) = removal.ended.last() {
            let about = &self.queues[queue];
            let ended = if *state == State::Completed { &about.completed } else { &about.failed };
            let meant =
                |&job: &u32| self.jobs.end_order(job) < *below && is_old(self.since_ms(job));
            for job in ended.iter(&self.jobs).take_while(meant) {
                if victims.len() == most {
                    return (victims, false);
                }
                victims.push(job);
            }
            removal.ended.pop();
        }
        let jobs = &self.jobs.slab;
        let push_order = self.queues[queue].push_order.behind(jobs, Some(removal.after));
        for (looks, job) in push_order.enumerate() {
            let about = &jobs[job];
            if about.id > removal.newest {
                break;
            }
            if looks == LOOKS_MAX || victims.len() == most {
                return (victims, false);
            }
            removal.after = about.id;
            if removal.pending.has(about.state) && is_old(self.since_ms(job)) {
                victims.push(job);
            }
        }
        (victims, true)
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
    fn drains(&self) -> bool {
        matches!(self, Self::Remove(removal) if removal.drains)
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
