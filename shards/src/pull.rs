//! Delivery: who gets which job next, and who waits.

use crate::command::{ClientId, Pull, RequestId, Token};
use crate::effect::{Delivery, Reply};
use crate::event::Step;
use crate::lease::UNLOCKED_TTL_MS;
use crate::lease_record::{Entries, Leased};
use crate::record::{Journal, Record};
use crate::shard::{Caller, Out, Shard};
use crate::waiter::Waiter;

/// Payload bytes one pull may carry: a reply must fit the frame its client can read. A single larger
/// job is delivered alone.
pub const PULL_BYTES_MAX: u64 = 32 << 20;

/// On what terms jobs are handed out.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) client: ClientId,
    pub(crate) request: RequestId,
    pub(crate) count: u32,
    pub(crate) locked: bool,
    pub(crate) detach: bool,
    pub(crate) lock_ttl_ms: u32,
}

impl Shard {
    pub(crate) fn pull<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        pull: &Pull<'_>,
        out: &mut Out<'_, J>,
    ) {
        let terms = Terms {
            client: caller.client,
            request: caller.request,
            count: pull.count,
            locked: pull.locked,
            detach: pull.detach,
            lock_ttl_ms: pull.lock_ttl_ms,
        };
        let known = self.queues.find(pull.queue);
        if let Some(queue) = known
            && self.queues[queue].waiters.is_empty()
            && self.deliver(now_ms, queue, &terms, out)
        {
            return;
        }
        if pull.timeout_ms == 0 {
            let none = out.effects.deliveries.len();
            out.effects.replies.push((caller.request, Reply::Pulled(none..none)));
            return;
        }
        let queue = self.queues.find_or_insert(pull.queue);
        self.wait(now_ms + pull.timeout_ms, queue, &terms);
        // A pull that came behind sleeping ones may still find a job left over for it.
        self.serve(now_ms, queue, out);
    }

    fn wait(&mut self, until_ms: u64, queue: u32, terms: &Terms) {
        let waiter = self.waiters.insert(Waiter {
            request: terms.request,
            client: terms.client,
            queue,
            count: terms.count,
            locked: terms.locked,
            detach: terms.detach,
            lock_ttl_ms: terms.lock_ttl_ms,
            ..Waiter::default()
        });
        self.queues[queue].waiters.push_back(&mut self.waiters, waiter);
        let client = self.clients.entry(terms.client).or_default();
        client.waiters.push_back(&mut self.waiters, waiter);
        self.waiter_timers.insert(until_ms, waiter, &mut self.waiters);
    }

    /// Ends a wait, without an answer.
    pub(crate) fn stop_waiting(&mut self, waiter: u32) -> Waiter {
        let (queue, client, timer) = {
            let waiter = &self.waiters[waiter];
            (waiter.queue, waiter.client, waiter.timer)
        };
        self.queues[queue].waiters.remove(&mut self.waiters, waiter);
        if let Some(owner) = self.clients.get_mut(&client) {
            owner.waiters.remove(&mut self.waiters, waiter);
            if owner.is_idle() {
                self.clients.remove(&client);
            }
        }
        self.waiter_timers.remove(timer, &mut self.waiters);
        self.waiters.remove(waiter)
    }

    /// Gives ready jobs to the pulls that wait for them.
    pub(crate) fn serve<J: Journal>(&mut self, now_ms: u64, queue: u32, out: &mut Out<'_, J>) {
        while let Some(front) = self.queues[queue].waiters.front() {
            let waiter = &self.waiters[front];
            let terms = Terms {
                client: waiter.client,
                request: waiter.request,
                count: waiter.count,
                locked: waiter.locked,
                detach: waiter.detach,
                lock_ttl_ms: waiter.lock_ttl_ms,
            };
            if !self.deliver(now_ms, queue, &terms, out) {
                self.await_token(queue);
                return;
            }
            self.stop_waiting(front);
        }
    }

    /// Hands out what is ready, with its reply; false if nothing is.
    fn deliver<J: Journal>(
        &mut self,
        now_ms: u64,
        queue: u32,
        terms: &Terms,
        out: &mut Out<'_, J>,
    ) -> bool {
        if self.queues[queue].is_paused() {
            return false;
        }
        let count = self.allowance(now_ms, queue).min(u64::from(terms.count)) as usize;
        let first = out.effects.deliveries.len();
        let ttl_ms = if terms.locked { terms.lock_ttl_ms } else { UNLOCKED_TTL_MS };
        let mut bytes = 0;
        self.entries.clear();
        while out.effects.deliveries.len() - first < count {
            let Some(job) = self.queues[queue].ready.first(&self.jobs.slab) else { break };
            bytes += u64::from(self.data_of(job).payload_bytes);
            if bytes > PULL_BYTES_MAX && out.effects.deliveries.len() > first {
                break;
            }
            let waited_ms = now_ms.saturating_sub(self.jobs.slab[job].run_at_ms);
            self.timings.waiting.record(waited_ms.saturating_mul(1000), 1);
            let token = terms.locked.then(|| self.make_token());
            self.lease(job, now_ms, ttl_ms, token, (!terms.detach).then_some(terms.client));
            if let Some(token) = token {
                Entries::push(&mut self.entries, self.jobs.slab[job].id, token);
            }
            out.effects.deliveries.push(Delivery { job, token });
            self.emit(now_ms, job, Step::Pulled, out.effects);
        }
        let last = out.effects.deliveries.len();
        if first == last {
            return false;
        }
        if let Some(limits) = &mut self.queues[queue].limits {
            limits.spend((last - first) as u64);
        }
        if terms.locked {
            let entries = Entries::new(&self.entries);
            out.journal.append(&Record::Leased(Leased { at_ms: now_ms, ttl_ms, entries }));
        }
        self.totals.pulled += (last - first) as u64;
        out.effects.replies.push((terms.request, Reply::Pulled(first..last)));
        true
    }

    fn make_token(&mut self) -> Token {
        let bits = u128::from(self.tokens.draw()) << 64 | u128::from(self.tokens.draw());
        // A version 4 UUID; the version bits also keep it from ever being zero.
        Token(bits & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62))
    }
}
