//! Who waits for a job to end: told at once, whatever the end is, or that it has not come in time.

use crate::command::{ClientId, RequestId};
use crate::effect::{Ending, Refusal, Reply};
use crate::hash_key::HashKey;
use crate::id::JobId;
use crate::job::{State, flags};
use crate::lease::OfClient;
use crate::record::Journal;
use crate::shard::{Caller, Client, Out, SLICE, Shard};
use crate::slab::{Linked, Links, List, NONE, Slab};
use crate::table::Map;
use crate::timers::{Timed, Timers};

/// One wait for the end of a job.
#[derive(Clone, Debug)]
pub struct Awaiting {
    request: RequestId,
    client: ClientId,
    job: u32,
    at_job: Links,
    of_client: Links,
    timer: u32,
}

impl Default for Awaiting {
    fn default() -> Self {
        Self {
            request: RequestId::default(),
            client: ClientId::default(),
            job: NONE,
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

/// All waits of a shard. Each is an unanswered command, so the connections bound their number.
pub(crate) struct Awaitings {
    pub(crate) slab: Slab<Awaiting>,
    /// By job, for those jobs that have [`flags::AWAITED`].
    by_job: Map<u32, List<AtJob>>,
    pub(crate) timers: Timers,
    /// Answers that are due since effects were last handed out.
    pub(crate) due: Vec<(RequestId, Reply)>,
}

impl Awaitings {
    pub(crate) fn new(key: HashKey) -> Self {
        let (slab, timers, due) = (Slab::new(), Timers::default(), Vec::new());
        Self { slab, by_job: Map::new(key), timers, due }
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
        let Awaitings { slab, by_job, timers, .. } = &mut self.awaitings;
        let index = slab.insert(Awaiting { request, client, job, ..Awaiting::default() });
        by_job.get_or_insert_with(job, List::default).push_back(slab, index);
        timers.insert(until_ms, index, slab);
        self.jobs.slab[job].flags |= flags::AWAITED;
        let held = self.clients.get_or_insert_with(client, Client::default);
        held.awaitings.push_back(slab, index);
    }

    /// Ends a wait and says whose it was.
    pub(crate) fn stop_awaiting(&mut self, index: u32) -> RequestId {
        let Awaitings { slab, by_job, timers, .. } = &mut self.awaitings;
        let Awaiting { client, job, timer, .. } = slab[index];
        timers.remove(timer, slab);
        if let Some(list) = by_job.get_mut(job) {
            list.remove(slab, index);
            if list.is_empty() {
                by_job.remove(job);
                self.jobs.slab[job].flags &= !flags::AWAITED;
            }
        }
        if let Some(held) = self.clients.get_mut(client) {
            held.awaitings.remove(slab, index);
            if held.is_idle() {
                self.clients.remove(client);
            }
        }
        self.awaitings.slab.remove(index).request
    }

    /// A job has ended: whoever waits for that learns it.
    pub(crate) fn tell_end(&mut self, job: u32, ending: Ending) {
        if !self.jobs.slab[job].has(flags::AWAITED) {
            return;
        }
        while let Some(first) = self.awaitings.by_job.get(job).and_then(|list| list.front()) {
            let request = self.stop_awaiting(first);
            self.awaitings.due.push((request, Reply::Ended(ending)));
        }
    }

    /// Answers waits whose time is over, at most a slice.
    pub(crate) fn end_awaitings<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(index) = self.awaitings.timers.due(now_ms) else { return };
            let request = self.stop_awaiting(index);
            out.effects.replies.push((request, Reply::Unended));
        }
    }

    /// Says what does not agree among the waits.
    pub(crate) fn audit_awaitings(&self) -> Result<(), String> {
        let flagged = self.jobs.indices().filter(|&job| self.jobs.slab[job].has(flags::AWAITED));
        let mut waits = 0;
        let mut jobs = 0;
        for job in flagged {
            jobs += 1;
            let slab = &self.awaitings.slab;
            let list = self.awaitings.by_job.get(job).copied().unwrap_or_default();
            waits +=
                std::iter::successors(list.front(), |&at| List::<AtJob>::after(slab, at)).count();
            if self.jobs.slab[job].state.is_end() {
                return Err(format!("job {job} has ended and is still waited for"));
            }
        }
        let kept = (self.awaitings.by_job.len(), self.awaitings.slab.len());
        if kept != (jobs, waits) || self.awaitings.timers.len() != waits {
            return Err(format!("{jobs} jobs are waited for by {waits}, kept as {kept:?}"));
        }
        Ok(())
    }
}
