//! Who waits for a job to end: told whatever the end is, or that it has not come in time.
//!
//! Any number of clients may wait for one job, so its end only puts them in line; they are answered a slice at a time, in
//! the order in which they came.

use crate::apply::allowance;
use crate::caller::{ClientId, RequestId};
use crate::collections::deadline_heap::{Timed, Timers};
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{Linked, Links, List, NONE, Slab};
use crate::collections::table::Map;
use crate::dependency::Standing;
use crate::dependency::completed_ids::CompletedIds;
use crate::effect::{Ending, Refusal, Reply};
use crate::job::id::JobId;
use crate::job::{State, flags};
use crate::lease::clients::OfClient;
use crate::log_record::Journal;
use crate::log_record::location::LogRef;
use crate::shard::{Caller, Out, SLICE, Shard};
use std::collections::VecDeque;

/// A client's wait for the end of a job.
#[derive(Clone, Debug)]
pub struct EndWaiter {
    request: RequestId,
    client: ClientId,
    /// Index of the [`Group`] of waits for the same job.
    group: u32,
    at_job: Links,
    of_client: Links,
    timer: u32,
}

impl Default for EndWaiter {
    fn default() -> Self {
        Self {
            request: RequestId::default(),
            client: ClientId::default(),
            group: NONE,
            at_job: Links::default(),
            of_client: Links::default(),
            timer: NONE,
        }
    }
}

/// The list of those who wait for one job.
pub struct AtJob;

impl Linked<AtJob> for EndWaiter {
    fn links(&self) -> Links {
        self.at_job
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.at_job
    }
}

impl Linked<OfClient> for EndWaiter {
    fn links(&self) -> Links {
        self.of_client
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.of_client
    }
}

impl Timed for Slab<EndWaiter> {
    fn place(&mut self, key: u32, place: u32) {
        self[key].timer = place;
    }
}

/// All waits for one job.
#[derive(Clone, Default)]
struct Group {
    waits: List<AtJob>,
    job: u32,
    /// How the job has ended, if it has: then it may be gone, and its place another's.
    ending: Option<Ending>,
}

/// All waits of a shard. Each is an unanswered command, so the connections bound their number.
pub(crate) struct EndWaiters {
    slab: Slab<EndWaiter>,
    groups: Slab<Group>,
    /// By job, for those jobs that have [`flags::AWAITED`].
    by_job: Map<u32, u32>,
    /// Groups whose jobs have ended, in that order.
    ended: VecDeque<u32>,
    pub(crate) timers: Timers,
    /// Jobs that went with their failure, for those who ask late. Known until the end of the server.
    failed_ids: CompletedIds,
}

impl EndWaiters {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            slab: Slab::new(),
            groups: Slab::new(),
            by_job: Map::new(key),
            ended: VecDeque::new(),
            timers: Timers::default(),
            failed_ids: CompletedIds::new(key),
        }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Whether some have yet to learn of an end.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}

impl Shard {
    pub(crate) fn await_end<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        id: JobId,
        timeout_ms: u64,
        out: &mut Out<'_, J>,
    ) {
        let Some(job) = self.jobs.find(id) else {
            let ending = self.remembered_end(id).map(Reply::Ended);
            let reply = ending.unwrap_or(Reply::Refused { place: 0, refusal: Refusal::NotFound });
            out.effects.replies.push((caller.request, reply));
            return;
        };
        let ended = self.jobs.outcome_of(job).map(|how| match self.jobs.slab[job].state {
            State::Completed => Ending::Completed(how.stored),
            _ => Ending::Failed(how.stored),
        });
        let reply = match ended {
            Some(ending) => Reply::Ended(ending),
            None if timeout_ms == 0 => Reply::Unended,
            None => {
                self.add_end_waiter(now_ms + timeout_ms, caller, job);
                return;
            }
        };
        out.effects.replies.push((caller.request, reply));
    }

    /// How a job ended that went with its end, without its result or its error, if that is remembered.
    pub fn remembered_end(&mut self, id: JobId) -> Option<Ending> {
        if self.jobs.find(id).is_some() {
            return None;
        }
        if self.standing(id) == Standing::Completed {
            return Some(Ending::Completed(LogRef::default()));
        }
        self.end_waiters.failed_ids.has(id).then_some(Ending::Failed(LogRef::default()))
    }

    /// A job goes with its failure.
    pub(crate) fn remember_failed(&mut self, id: JobId) {
        // No record tells of it again, so none has to be kept for it.
        self.end_waiters.failed_ids.note(id, u64::MAX);
    }

    fn add_end_waiter(&mut self, until_ms: u64, caller: Caller, job: u32) {
        let Caller { client, request } = caller;
        let EndWaiters { slab, groups, by_job, timers, .. } = &mut self.end_waiters;
        let new = || groups.insert(Group { job, ..Group::default() });
        let group = *by_job.get_or_insert_with(job, new);
        let index = slab.insert(EndWaiter { request, client, group, ..EndWaiter::default() });
        groups[group].waits.push_back(slab, index);
        timers.insert(until_ms, index, slab);
        self.jobs.slab[job].flags |= flags::AWAITED;
        let held = self.clients.remember(client);
        held.end_waiters.push_back(slab, index);
    }

    /// Ends a wait and says whose it was.
    pub(crate) fn remove_end_waiter(&mut self, index: u32) -> RequestId {
        let EndWaiters { slab, groups, by_job, timers, .. } = &mut self.end_waiters;
        let EndWaiter { client, group, timer, .. } = slab[index];
        timers.remove(timer, slab);
        groups[group].waits.remove(slab, index);
        // The group of a job that has ended goes in its turn, with `ended`.
        if groups[group].waits.is_empty() && groups[group].ending.is_none() {
            let job = groups.remove(group).job;
            by_job.remove(job);
            self.jobs.slab[job].flags &= !flags::AWAITED;
        }
        if let Some(held) = self.clients.get_mut(client) {
            held.end_waiters.remove(slab, index);
            if held.is_idle() {
                self.clients.forget(client);
            }
        }
        self.end_waiters.slab.remove(index).request
    }

    /// A job has ended: those that wait for that learn it, see [`Self::answer_ended`].
    pub(crate) fn answer_end_waiters(&mut self, job: u32, ending: Ending) {
        if !self.jobs.slab[job].has(flags::AWAITED) {
            return;
        }
        self.jobs.slab[job].flags &= !flags::AWAITED;
        let EndWaiters { groups, by_job, ended, .. } = &mut self.end_waiters;
        if let Some(group) = by_job.remove(job) {
            groups[group].ending = Some(ending);
            ended.push_back(group);
        }
    }

    /// Answers those whose jobs have ended, as many as may be until the next step of time.
    pub(crate) fn answer_ended(&mut self, replies: &mut Vec<(RequestId, Reply)>) {
        while let Some(&group) = self.end_waiters.ended.front()
            && allowance::take(&mut self.allowance.ends)
        {
            self.steps += 1;
            let Group { waits, ending, .. } = &self.end_waiters.groups[group];
            if let (Some(first), Some(ending)) = (waits.front(), *ending) {
                replies.push((self.remove_end_waiter(first), Reply::Ended(ending)));
            } else {
                self.end_waiters.groups.remove(group);
                self.end_waiters.ended.pop_front();
            }
        }
    }

    /// Answers waits whose time is over, at most a slice.
    pub(crate) fn expire_end_waiters<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(index) = self.end_waiters.timers.due(now_ms) else { return };
            self.steps += 1;
            // The end may have come just before, and this one's turn to learn of it not yet.
            let ending = self.end_waiters.groups[self.end_waiters.slab[index].group].ending;
            let request = self.remove_end_waiter(index);
            out.effects.replies.push((request, ending.map_or(Reply::Unended, Reply::Ended)));
        }
    }

    /// Says what does not agree among the waits.
    pub(crate) fn audit_end_waiters(&self) -> Result<(), String> {
        let flagged = self.jobs.indices().filter(|&job| self.jobs.slab[job].has(flags::AWAITED));
        let EndWaiters { slab, groups, by_job, ended, .. } = &self.end_waiters;
        let waits_of = |group: u32| {
            std::iter::successors(groups[group].waits.front(), |&at| List::<AtJob>::after(slab, at))
                .count()
        };
        let mut waits: usize = ended.iter().map(|&group| waits_of(group)).sum();
        let mut jobs = 0;
        for job in flagged {
            jobs += 1;
            waits += by_job.get(job).map_or(0, |&group| waits_of(group));
            if self.jobs.slab[job].state.is_end() {
                return Err(format!("job {job} has ended and is still waited for"));
            }
        }
        if groups.len() != jobs + ended.len() {
            return Err(format!("{} groups wait for {jobs} jobs", groups.len()));
        }
        let kept = (self.end_waiters.by_job.len(), self.end_waiters.slab.len());
        if kept != (jobs, waits) || self.end_waiters.timers.len() != waits {
            return Err(format!("{jobs} jobs are waited for by {waits}, kept as {kept:?}"));
        }
        Ok(())
    }
}
