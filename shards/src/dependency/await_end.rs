//! Who waits for a job to end: told whatever the end is, or that it has not come in time.
//!
//! Any number of clients may wait for one job, so its end only puts them in line; they are answered a slice at a time, in
//! the order in which they came.

use crate::apply::allowance;
use crate::collections::deadline_heap::{Timed, Timers};
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{Linked, Links, List, NONE, Slab};
use crate::collections::table::Map;
use crate::command::{ClientId, RequestId};
use crate::effect::{Ending, Refusal, Reply};
use crate::job::id::JobId;
use crate::job::{State, flags};
use crate::lease::OfClient;
use crate::log_record::Journal;
use crate::shard::{Caller, Client, Out, SLICE, Shard};
use std::collections::VecDeque;

/// One wait for the end of a job.
#[derive(Clone, Debug)]
pub struct Awaiting {
    request: RequestId,
    client: ClientId,
    /// Those who wait for the same job.
    group: u32,
    at_job: Links,
    of_client: Links,
    timer: u32,
}

impl Default for Awaiting {
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

impl Linked<AtJob> for Awaiting {
    fn links(&self) -> Links {
        self.at_job
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.at_job
    }
}

impl Linked<OfClient> for Awaiting {
    fn links(&self) -> Links {
        self.of_client
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.of_client
    }
}

impl Timed for Slab<Awaiting> {
    fn place(&mut self, key: u32, place: u32) {
        self[key].timer = place;
    }
}

/// Those who wait for one job.
#[derive(Clone, Default)]
struct Group {
    waits: List<AtJob>,
    job: u32,
    /// How the job has ended, if it has: then it may be gone, and its place another's.
    ending: Option<Ending>,
}

/// All waits of a shard. Each is an unanswered command, so the connections bound their number.
pub(crate) struct Awaitings {
    slab: Slab<Awaiting>,
    groups: Slab<Group>,
    /// By job, for those jobs that have [`flags::AWAITED`].
    by_job: Map<u32, u32>,
    /// Groups whose jobs have ended, in that order.
    ended: VecDeque<u32>,
    pub(crate) timers: Timers,
}

impl Awaitings {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            slab: Slab::new(),
            groups: Slab::new(),
            by_job: Map::new(key),
            ended: VecDeque::new(),
            timers: Timers::default(),
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
            let refused = Reply::Refused { place: 0, refusal: Refusal::NotFound };
            out.effects.replies.push((caller.request, refused));
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
                self.begin_awaiting(now_ms + timeout_ms, caller, job);
                return;
            }
        };
        out.effects.replies.push((caller.request, reply));
    }

    fn begin_awaiting(&mut self, until_ms: u64, caller: Caller, job: u32) {
        let Caller { client, request } = caller;
        let Awaitings { slab, groups, by_job, timers, .. } = &mut self.awaitings;
        let new = || groups.insert(Group { job, ..Group::default() });
        let group = *by_job.get_or_insert_with(job, new);
        let index = slab.insert(Awaiting { request, client, group, ..Awaiting::default() });
        groups[group].waits.push_back(slab, index);
        timers.insert(until_ms, index, slab);
        self.jobs.slab[job].flags |= flags::AWAITED;
        let held = self.clients.get_or_insert_with(client, Client::default);
        held.awaitings.push_back(slab, index);
    }

    /// Ends a wait and says whose it was.
    pub(crate) fn stop_awaiting(&mut self, index: u32) -> RequestId {
        let Awaitings { slab, groups, by_job, timers, .. } = &mut self.awaitings;
        let Awaiting { client, group, timer, .. } = slab[index];
        timers.remove(timer, slab);
        groups[group].waits.remove(slab, index);
        // One whose job has ended goes when its turn comes.
        if groups[group].waits.is_empty() && groups[group].ending.is_none() {
            let job = groups.remove(group).job;
            by_job.remove(job);
            self.jobs.slab[job].flags &= !flags::AWAITED;
        }
        if let Some(held) = self.clients.get_mut(client) {
            held.awaitings.remove(slab, index);
            if held.is_idle() {
                self.clients.remove(client);
            }
        }
        self.awaitings.slab.remove(index).request
    }

    /// A job has ended: whoever waits for that learns it, see [`Self::answer_ended`].
    pub(crate) fn tell_end(&mut self, job: u32, ending: Ending) {
        if !self.jobs.slab[job].has(flags::AWAITED) {
            return;
        }
        self.jobs.slab[job].flags &= !flags::AWAITED;
        let Awaitings { groups, by_job, ended, .. } = &mut self.awaitings;
        if let Some(group) = by_job.remove(job) {
            groups[group].ending = Some(ending);
            ended.push_back(group);
        }
    }

    /// Answers those whose jobs have ended, as many as may be until the next step of time.
    pub(crate) fn answer_ended(&mut self, replies: &mut Vec<(RequestId, Reply)>) {
        while let Some(&group) = self.awaitings.ended.front()
            && allowance::take(&mut self.allowance.ends)
        {
            self.steps += 1;
            let Group { waits, ending, .. } = &self.awaitings.groups[group];
            if let (Some(first), Some(ending)) = (waits.front(), *ending) {
                replies.push((self.stop_awaiting(first), Reply::Ended(ending)));
            } else {
                self.awaitings.groups.remove(group);
                self.awaitings.ended.pop_front();
            }
        }
    }

    /// Answers waits whose time is over, at most a slice.
    pub(crate) fn end_awaitings<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(index) = self.awaitings.timers.due(now_ms) else { return };
            self.steps += 1;
            // The end may have come just before, and this one's turn to learn of it not yet.
            let ending = self.awaitings.groups[self.awaitings.slab[index].group].ending;
            let request = self.stop_awaiting(index);
            out.effects.replies.push((request, ending.map_or(Reply::Unended, Reply::Ended)));
        }
    }

    /// Says what does not agree among the waits.
    pub(crate) fn audit_awaitings(&self) -> Result<(), String> {
        let flagged = self.jobs.indices().filter(|&job| self.jobs.slab[job].has(flags::AWAITED));
        let Awaitings { slab, groups, by_job, ended, .. } = &self.awaitings;
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
        let kept = (self.awaitings.by_job.len(), self.awaitings.slab.len());
        if kept != (jobs, waits) || self.awaitings.timers.len() != waits {
            return Err(format!("{jobs} jobs are waited for by {waits}, kept as {kept:?}"));
        }
        Ok(())
    }
}
