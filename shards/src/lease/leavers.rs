//! Connections that have gone: what they waited for ends at once, what they held goes back in slices.

use crate::apply::allowance;
use crate::command::ClientId;
use crate::effect::Reply;
use crate::log_record::{Journal, Record};
use crate::shard::{Out, Shard};
use crate::traced::Settled;

impl Shard {
    /// Gives back what a closed connection held, and ends its waits.
    pub(crate) fn disconnect<J: Journal>(
        &mut self,
        now_ms: u64,
        client: ClientId,
        out: &mut Out<'_, J>,
    ) {
        while let Some(waiter) = self.clients.get(client).and_then(|held| held.waiters.front()) {
            self.steps += 1;
            let waiter = self.stop_waiting(waiter);
            out.effects.replies.push((waiter.request, Reply::Dropped));
        }
        while let Some(wait) = self.clients.get(client).and_then(|held| held.end_waiters.front()) {
            self.steps += 1;
            let request = self.remove_end_waiter(wait);
            out.effects.replies.push((request, Reply::Dropped));
        }
        self.leavers.push_back(client);
        self.release_of_leavers(now_ms, out);
        if let Some(held) = self.clients.get_mut(client) {
            held.gone = true;
            if held.is_idle() {
                self.clients.forget(client);
            }
        }
    }

    /// Gives back a slice of the jobs that gone connections hold, those that went first, first.
    pub(crate) fn release_of_leavers<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        while self.allowance.releases > 0
            && let Some(&client) = self.leavers.front()
        {
            let Some(lease) = self.clients.get(client).and_then(|held| held.leases.front()) else {
                self.leavers.pop_front();
                continue;
            };
            allowance::take(&mut self.allowance.releases);
            self.release_from_leaver(now_ms, lease, out);
        }
    }

    /// Gives back a job that a gone connection holds.
    pub(crate) fn release_from_leaver<J: Journal>(
        &mut self,
        now_ms: u64,
        lease: u32,
        out: &mut Out<'_, J>,
    ) {
        let job = self.leases[lease].job;
        let queue = self.jobs.slab[job].queue;
        if self.leases[lease].token.is_some() {
            out.journal.append(&Record::Released { id: self.jobs.slab[job].id });
        }
        self.trace_settled(now_ms, job, || Settled::GivenBack, out.effects);
        self.release(job);
        self.serve(now_ms, queue, out);
    }
}
