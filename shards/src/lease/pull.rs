//! Delivery: who gets which job next, and who waits.

use crate::caller::{ClientId, RequestId, Token};
use crate::collections::slab::NONE;
use crate::command::{GroupPull, Only, Pull};
use crate::effect::{Delivery, Reply};
use crate::event::Step;
use crate::group::PullLimits;
use crate::group::membership::waiters_at;
use crate::group::scheduler::Rotation;
use crate::job::State;
use crate::lease::UNLOCKED_TTL_MS;
use crate::lease::owners::OwnerRef;
use crate::lease::waiting_pulls::{Place, Waiter};
use crate::log_record::lease::{Entries, Leased};
use crate::log_record::{Journal, Record};
use crate::shard::{Caller, Out, SLICE, Shard};
use crate::stats::queue_times::Alike;

/// Payload bytes one pull may carry: a reply must fit the frame its client can read. A single larger
/// job is delivered alone.
pub const PULL_BYTES_MAX: u64 = 32 << 20;

/// Who has pulled or ended a job of a queue so lately may come again, though none waits now.
const WORKER_SILENCE_MS_MAX: u64 = 90_000;

/// On what terms jobs are handed out.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) client: ClientId,
    pub(crate) request: RequestId,
    pub(crate) count: u32,
    pub(crate) locked: bool,
    pub(crate) detach: bool,
    pub(crate) lock_ttl_ms: u32,
    pub(crate) owner: OwnerRef,
    pub(crate) at: Place,
}

impl Terms {
    fn of(waiter: &Waiter) -> Self {
        Self {
            client: waiter.client,
            request: waiter.request,
            count: waiter.count,
            locked: waiter.locked,
            detach: waiter.detach,
            lock_ttl_ms: waiter.lock_ttl_ms,
            owner: waiter.owner,
            at: waiter.at,
        }
    }
}

/// Limits that a pull says. If it wants no jobs of groups, there are none.
fn limits_of(pull: &GroupPull<'_>) -> PullLimits {
    match pull.only {
        Only::Ungrouped => PullLimits::default(),
        Only::Any | Only::Group(_) => PullLimits { active_max: pull.active_max, rate: pull.rate },
    }
}

impl Shard {
    pub(crate) fn pull<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        pull: &Pull<'_>,
        out: &mut Out<'_, J>,
    ) {
        let owner = self.owners.take(pull.owner);
        let terms = Terms {
            client: caller.client,
            request: caller.request,
            count: pull.count,
            locked: pull.locked,
            detach: pull.detach,
            lock_ttl_ms: pull.lock_ttl_ms,
            owner,
            at: Place::default(),
        };
        let looks = self.allowance.looks;
        self.pull_as(now_ms, pull, terms, out);
        self.steps += looks - self.allowance.looks;
        self.owners.give_back(owner);
        // Of a queue that is not known, nobody asks for its pulls.
        if let Some(queue) = self.queues.find(pull.queue) {
            self.note_pull(now_ms, queue);
        }
    }

    #[inline]
    fn pull_as<J: Journal>(
        &mut self,
        now_ms: u64,
        pull: &Pull<'_>,
        mut terms: Terms,
        out: &mut Out<'_, J>,
    ) {
        let group = pull.group.copied().unwrap_or_default();
        let limits = limits_of(&group);
        let known = self.queues.find(pull.queue);
        if let Some(queue) = known {
            self.say_limits(queue, limits);
        }
        self.serve_earlier(now_ms, known, out);
        if let Some(queue) = known
            && let Some(at) = self.place_of(queue, group.only)
        {
            terms.at = at;
            if self.is_next(queue, at, pull) && self.deliver(now_ms, queue, &terms, out) {
                return;
            }
            if self.lacks_looks(queue, at) {
                // Whether there is a job for it is known once all groups have been looked at: that long it waits in any
                // case.
                self.seeing.push(queue);
                self.wait(now_ms + pull.timeout_ms, queue, &terms);
                return;
            }
        }
        if pull.timeout_ms == 0 {
            Self::pulled_nothing(terms.request, out);
            return;
        }
        let queue = self.queues.find_or_insert(pull.queue);
        terms.at = self.place_to_wait(queue, group.only, limits);
        self.wait(now_ms + pull.timeout_ms, queue, &terms);
        // A pull that came behind sleeping ones may still find a job left over for it.
        self.serve(now_ms, queue, out);
    }

    /// A pull has come to a queue, or has waited there until now.
    #[inline]
    pub(crate) fn note_pull(&mut self, now_ms: u64, queue: u32) {
        self.queues[queue].pulled_ms = now_ms.saturating_sub(self.waiter_timers.put_off_ms());
    }

    /// Whether workers take jobs of a queue, as far as that shows: one has a job or waits for one, or has pulled or ended one
    /// lately. A leap of the clock is no silence of those who pull.
    pub(crate) fn has_worker(&self, now_ms: u64, queue: u32) -> bool {
        let about = &self.queues[queue];
        let steady_ms = now_ms.saturating_sub(self.waiter_timers.put_off_ms());
        let lately = |at_ms: u64, now_ms: u64| {
            at_ms > 0 && at_ms.saturating_add(WORKER_SILENCE_MS_MAX) > now_ms
        };
        about.count(State::Active) > 0
            || self.any_waiter(queue).is_some()
            || lately(about.pulled_ms, steady_ms)
            || about.done.iter().any(|done| lately(done.last_ms, now_ms))
    }

    /// Whether it is a new pull's turn. Where others are put off, one that can wait does so behind them, whatever it
    /// wants, and one that cannot gets a job beside them: there are more than they can be given at once.
    fn is_next(&mut self, queue: u32, at: Place, pull: &Pull<'_>) -> bool {
        if self.unserved.contains(&queue) {
            return pull.timeout_ms == 0;
        }
        waiters_at(&mut self.queues, &mut self.groups, queue, at).is_empty()
    }

    /// Serves those for whom there was no room in the last step of time, one queue after the other from where it ended then.
    pub(crate) fn serve_unserved<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..self.unserved.len().min(SLICE as usize) {
            if self.allowance.deliveries == 0 {
                return;
            }
            let next = self.unserved.range(self.unserved_from..).next();
            let Some(queue) = next.or_else(|| self.unserved.first()).copied() else { return };
            self.unserved.remove(&queue);
            self.unserved_from = queue + 1;
            self.steps += 1;
            self.serve(now_ms, queue, out);
        }
    }

    /// Whether there is no room to serve more of those who wait; then it goes on with the next step of time.
    fn puts_off_serving(&mut self, queue: u32) -> bool {
        let spent = self.allowance.deliveries == 0;
        if spent {
            self.unserved.insert(queue);
        }
        spent
    }

    /// Whether a pull found nothing because no more groups could be looked at in this step of time, any of which could
    /// serve it.
    fn lacks_looks(&self, queue: u32, at: Place) -> bool {
        self.allowance.looks == 0 && at == Place::default() && self.is_unseen(queue)
    }

    /// Whether limits that pulls bring have changed, and not all groups of a queue have been looked at since.
    pub(crate) fn is_unseen(&self, queue: u32) -> bool {
        self.queues[queue].groups.as_deref().is_some_and(Rotation::is_unseen)
    }

    /// Whether a pull that is to be answered at once may have to wait until all groups have been looked at.
    pub fn is_seeing(&mut self, queue: &str) -> bool {
        self.queues.find(queue).is_some_and(|queue| self.is_unseen(queue))
    }

    /// Looks at more groups for the pulls that wait until all are seen.
    pub(crate) fn see_groups<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..self.seeing.len().min(SLICE as usize) {
            let before = self.allowance.looks;
            if before == 0 {
                return;
            }
            let Some(queue) = self.seeing.pop() else { return };
            // If there are looks left after that, something else is in the way, such as a pause.
            self.serve(now_ms, queue, out);
            self.steps += 1 + before - self.allowance.looks;
        }
    }

    /// Whether a pull whose time is over still waits for all groups to be seen.
    pub(crate) fn must_wait_on(&self, waiter: u32) -> bool {
        let Waiter { queue, at, .. } = self.waiters[waiter];
        at == Place::default()
            && self.is_unseen(queue)
            && (self.seeing.contains(queue) || self.unserved.contains(&queue))
    }

    /// Gives jobs that time has brought to a queue with groups to the pulls that wait there already, at whatever place.
    #[inline]
    fn serve_earlier<J: Journal>(&mut self, now_ms: u64, queue: Option<u32>, out: &mut Out<'_, J>) {
        let Some(queue) = queue.filter(|&queue| self.queues[queue].groups.is_some()) else {
            return;
        };
        self.wake_groups(now_ms, out);
        if self.any_waiter(queue).is_some() {
            self.serve(now_ms, queue, out);
        }
    }

    fn pulled_nothing<J: Journal>(request: RequestId, out: &mut Out<'_, J>) {
        let none = out.effects.deliveries.len();
        out.effects.replies.push((request, Reply::Pulled(none..none)));
    }

    fn wait(&mut self, until_ms: u64, queue: u32, terms: &Terms) {
        let owner = self.owners.again(terms.owner);
        let waiter = self.waiters.insert(Waiter {
            request: terms.request,
            client: terms.client,
            queue,
            count: terms.count,
            locked: terms.locked,
            detach: terms.detach,
            lock_ttl_ms: terms.lock_ttl_ms,
            owner,
            at: terms.at,
            since: self.waits,
            ..Waiter::default()
        });
        self.waits += 1;
        self.hang(waiter);
        let client = self.clients.remember(terms.client);
        client.waiters.push_back(&mut self.waiters, waiter);
        self.waiter_timers.insert(until_ms, waiter, &mut self.waiters);
    }

    /// Ends a wait, without an answer.
    pub(crate) fn stop_waiting(&mut self, waiter: u32) -> Waiter {
        let (client, timer) = (self.waiters[waiter].client, self.waiters[waiter].timer);
        self.unhang(waiter);
        if let Some(owner) = self.clients.get_mut(client) {
            owner.waiters.remove(&mut self.waiters, waiter);
            if owner.is_idle() {
                self.clients.forget(client);
            }
        }
        self.waiter_timers.remove(timer, &mut self.waiters);
        let waiter = self.waiters.remove(waiter);
        self.owners.give_back(waiter.owner);
        waiter
    }

    /// Gives ready jobs to the pulls that wait for them.
    pub(crate) fn serve<J: Journal>(&mut self, now_ms: u64, queue: u32, out: &mut Out<'_, J>) {
        if self.queues[queue].detached {
            return;
        }
        if self.queues[queue].groups.is_some() {
            self.serve_by_place(now_ms, queue, out);
            return;
        }
        while let Some(front) = self.queues[queue].waiters.front() {
            if self.puts_off_serving(queue) {
                return;
            }
            let terms = Terms::of(&self.waiters[front]);
            if !self.deliver(now_ms, queue, &terms, out) {
                self.await_token(queue);
                return;
            }
            self.stop_waiting(front);
        }
    }

    /// Serves a queue that has groups, where a pull that finds nothing does not speak for others.
    fn serve_by_place<J: Journal>(&mut self, now_ms: u64, queue: u32, out: &mut Out<'_, J>) {
        self.wake_groups(now_ms, out);
        while let Some(waiter) = self.next_choosy_waiter(now_ms, queue) {
            if self.puts_off_serving(queue) {
                return;
            }
            let terms = Terms::of(&self.waiters[waiter]);
            if !self.deliver(now_ms, queue, &terms, out) {
                // The group of this pull has a job to give, so it is the queue that gives nothing.
                self.await_token(queue);
                return;
            }
            self.stop_waiting(waiter);
        }
        // Whether there may be a job for pulls that want none of groups.
        let mut plain = true;
        while let Some(waiter) = self.next_waiter(queue, plain) {
            if self.puts_off_serving(queue) {
                return;
            }
            let terms = Terms::of(&self.waiters[waiter]);
            if self.deliver(now_ms, queue, &terms, out) {
                self.stop_waiting(waiter);
                continue;
            }
            plain = false;
            if !terms.at.plain {
                if self.lacks_looks(queue, terms.at) {
                    self.seeing.push(queue);
                }
                break;
            }
        }
        if !plain {
            self.await_token(queue);
        }
    }

    /// The job to be handed out next.
    #[inline]
    fn next_job(&mut self, now_ms: u64, queue: u32, at: Place) -> Option<u32> {
        let about = &self.queues[queue];
        if about.groups.is_some() {
            return self.next_of_groups(now_ms, queue, at);
        }
        about.ready.first(&self.jobs.slab).filter(|_| at.group == NONE)
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
        let grouped = self.queues[queue].groups.is_some();
        let count = self.allowance(now_ms, queue).min(u64::from(terms.count)) as usize;
        let first = out.effects.deliveries.len();
        let ttl_ms = if terms.locked { terms.lock_ttl_ms } else { UNLOCKED_TTL_MS };
        let (mut bytes, mut waits) = (0, Alike::default());
        self.entries.clear();
        while out.effects.deliveries.len() - first < count {
            let Some(job) = self.next_job(now_ms, queue, terms.at) else { break };
            bytes += u64::from(self.data_of(job).payload_bytes);
            if bytes > PULL_BYTES_MAX && out.effects.deliveries.len() > first {
                break;
            }
            let waited_ms = now_ms.saturating_sub(self.jobs.slab[job].run_at_ms);
            if let Some(others) = waits.add(queue, waited_ms) {
                self.queues.count_waits(others);
            }
            let token = terms.locked.then(|| self.make_token());
            self.lease(job, now_ms, ttl_ms, token, (!terms.detach).then_some(terms.client));
            let lease = self.jobs.slab[job].detail;
            self.leases[lease].owner = self.owners.again(terms.owner);
            if grouped {
                self.note_served(now_ms, queue, job);
            }
            if let Some(token) = token {
                Entries::push(&mut self.entries, self.jobs.slab[job].id, token);
            }
            out.effects.deliveries.push(Delivery { job: self.jobs.at(job), token });
            self.emit(now_ms, job, Step::Pulled, out.effects);
            self.trace_pulled(now_ms, job, out.effects);
        }
        let last = out.effects.deliveries.len();
        if first == last {
            return false;
        }
        self.queues.count_waits(waits);
        if let Some(limits) = &mut self.queues[queue].limits {
            limits.spend((last - first) as u64);
        }
        if terms.locked {
            let entries = Entries::new(&self.entries);
            out.journal.append(&Record::Leased(Leased { at_ms: now_ms, ttl_ms, entries }));
        }
        self.totals.pulled += (last - first) as u64;
        self.allowance.deliveries = self.allowance.deliveries.saturating_sub((last - first) as u64);
        out.effects.replies.push((terms.request, Reply::Pulled(first..last)));
        true
    }

    fn make_token(&mut self) -> Token {
        let bits = self.tokens.draw();
        // A version 4 UUID; the version bits also keep it from ever being zero.
        Token(bits & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62))
    }
}
