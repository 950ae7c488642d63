//! Work that is due by time: delays that end, lives that end, locks that end, waits that end, long commands that go on.
//! Called with the time; says when it wants to be called again.

use crate::apply::allowance::Allowance;
use crate::effect::Reply;
use crate::job::State;
use crate::log_record::Journal;
use crate::shard::{Out, SLICE, Shard};

/// Log bytes of a job that ends or is delivered in a slice, with a short reason.
const SLICE_END_BYTES: u64 = 128;

/// Queues that are looked at in each step of time, so that those without use go also while none is made.
const SWEEP_LOOKS: u32 = 8;

/// Until the next look whether there is room again for what ends jobs.
const NO_ROOM_PAUSE_MS: u64 = 2;

impl Shard {
    /// Does what is due at `now_ms`, at most a slice of each kind, and returns when to come again,
    /// in milliseconds since the epoch: `now_ms` if there is more to do, `u64::MAX` for never.
    pub fn tick<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) -> u64 {
        self.log_clock.show(now_ms);
        self.allowance = Allowance::default();
        self.bulk_steps = None;
        if self.next_deadline_ms() > now_ms {
            return self.next_deadline_ms();
        }
        let delivered = out.effects.deliveries.len();
        // Half of it for those who were put off: what comes before them could use up all each time.
        let kept = self.allowance.deliveries / 2;
        self.allowance.deliveries -= kept;
        self.go_on_with_flows(now_ms, out);
        // Before anything is delivered: a job that leaves must still be there when its delivery is written.
        // What ends jobs waits while there is no room for a slice of it.
        let bytes = (self.config.bulk_slice + 2 * SLICE) * SLICE_END_BYTES;
        let can_append_completion =
            out.journal.can_append_completion(bytes, || self.space_forecast());
        if can_append_completion {
            self.trim_overfull(now_ms, out);
            self.work_on_bulk(now_ms, out);
            self.end_delays_and_lives(now_ms, out);
            self.release_of_leavers(now_ms, out);
            self.end_leases(now_ms, out);
        }
        self.allowance.deliveries += kept;
        self.serve_unserved(now_ms, out);
        // Before waits end: a pull whose token came while nobody looked is not sent away empty.
        self.bring_tokens(now_ms, out);
        self.wake_groups(now_ms, out);
        self.fill_room(now_ms, out);
        self.see_groups(now_ms, out);
        self.end_waits(now_ms, out);
        self.expire_end_waiters(now_ms, out);
        self.run_crons(now_ms, out);
        self.fill_room(now_ms, out);
        self.end_retention(now_ms, out.journal);
        self.forget_orphaned();
        self.queues.sweep(SWEEP_LOOKS);
        self.answer_ended(&mut out.effects.replies);
        out.effects.names.append(&mut self.names);
        self.give_notices(out.effects);
        debug_assert!(self.holds_delivered(&out.effects.deliveries[delivered..]));
        let next_ms = self.next_deadline_ms().max(now_ms);
        // Room comes with time.
        if can_append_completion { next_ms } else { next_ms.max(now_ms + NO_ROOM_PAUSE_MS) }
    }

    fn next_deadline_ms(&self) -> u64 {
        let busy = !self.bulk_operations.is_empty()
            || !self.seeing.is_empty()
            || !self.unserved.is_empty()
            || !self.leavers.is_empty()
            || !self.overfull.is_empty()
            || self.flows.has_slices()
            || !self.orphaned.is_empty();
        if busy || self.has_news() || self.end_waiters.has_ended() {
            return 0;
        }
        let next = |at: Option<u64>| at.unwrap_or(u64::MAX);
        next(self.job_timers.next_ms())
            .min(next(self.lease_timers.next_ms()))
            .min(next(self.waiter_timers.next_ms()))
            .min(next(self.end_waiters.timers.next_ms()))
            .min(next(self.limit_timers.next_ms()))
            .min(next(self.groups.timers.next_ms()))
            .min(next(self.crons.next_ms()))
            .min(self.retention.due_ms)
    }

    fn end_delays_and_lives<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(job) = self.job_timers.due(now_ms) else { break };
            let queue = self.jobs.slab[job].queue;
            if self.jobs.slab[job].state == State::Failed {
                self.end_burial(now_ms, job, out);
                continue;
            }
            let expired = self
                .jobs
                .options_of(job)
                .is_some_and(|has| has.expires_at_ms > 0 && has.expires_at_ms <= now_ms);
            if expired {
                self.remove_one(now_ms, job, out);
            } else {
                // No record: the due time itself is one, and recovery reads it the same way.
                self.release(job);
                self.note_ready(queue);
            }
        }
        // Only now: a job whose life ends a little later than another's delay, and yet is over, is not
        // delivered in its last moment.
        self.fill_room(now_ms, out);
    }

    /// Notes that a queue has a job that waits from now on.
    pub(crate) fn note_ready(&mut self, queue: u32) {
        if self.with_room.last() != Some(&queue) {
            self.with_room.push(queue);
        }
    }

    pub(crate) fn end_waits<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(waiter) = self.waiter_timers.due(now_ms) else { return };
            self.steps += 1;
            if now_ms < u64::MAX && self.must_wait_on(waiter) {
                self.waiter_timers.remove(self.waiters[waiter].timer, &mut self.waiters);
                self.waiter_timers.insert(now_ms + 1, waiter, &mut self.waiters);
                continue;
            }
            let waiter = self.stop_waiting(waiter);
            // Not where all waits end at once, whatever the time is.
            if now_ms < u64::MAX {
                self.note_pull(now_ms, waiter.queue);
            }
            let none = out.effects.deliveries.len();
            out.effects.replies.push((waiter.request, Reply::Pulled(none..none)));
        }
    }

    /// Ends recovery: from now on the shard is live. Locks that were alive get their whole life again,
    /// so that a worker which comes back can still answer for its job.
    pub fn restart(&mut self, now_ms: u64) {
        // Completed jobs that are too old by now, or too many by the settings of today, go first of all.
        if self.has_history() {
            self.retention.due_ms = now_ms;
        }
        self.recovering = false;
        self.begin_history(now_ms);
        self.line_up_groups();
        self.resume_slices();
        let leases: Vec<u32> = self
            .jobs
            .indices()
            .filter(|&job| self.jobs.slab[job].state == State::Active)
            .map(|job| self.jobs.slab[job].detail)
            .collect();
        for lease in leases {
            self.lease_timers.remove(self.leases[lease].timer, &mut self.leases);
            let about = &mut self.leases[lease];
            about.expires_at_ms = now_ms + u64::from(about.ttl_ms);
            about.seen_at_ms = now_ms;
            if about.timeout_at_ms < u64::MAX {
                let timeout_ms = about.timeout_at_ms - about.started_at_ms;
                about.timeout_at_ms = now_ms + timeout_ms;
            }
            self.arm_lease(lease);
        }
        self.arm_burials(now_ms);
    }
}
