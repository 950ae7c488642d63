//! Ends locks that expire and attempts that take too long: the job waits again, is tried again, or goes to the
//! dead-letter queue.
//!
//! A lease ends at its own time, or where the rule of its queue says so ([`crate::dead_letter::policy::StallRule`]). That time is
//! never written: it is computed from the rule and the lease, and computed again when the rule changes.

use crate::dead_letter::policy::STALLS_MAX_DEFAULT;
use crate::dead_letter::reason::Cause;
use crate::event::Step;
use crate::lease::ack::Reason;
use crate::log_record::Journal;
use crate::shard::{Out, SLICE, Shard};

impl Shard {
    /// Ends the leases that are due, at most a slice of them.
    pub(crate) fn end_leases<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(lease) = self.lease_timers.due(now_ms) else { return };
            if self.lease_ends_ms(lease) > now_ms {
                // The rule of its queue has changed since.
                self.rearm_lease(lease);
                continue;
            }
            let client = self.leases[lease].client.and_then(|client| self.clients.get(client));
            if client.is_some_and(|held| held.gone) {
                // The job goes back in any case, and only its turn has not come yet: it has not stalled.
                self.release_from_leaver(now_ms, lease, out);
                continue;
            }
            self.totals.leases_expired += 1;
            let timed_out = self.times_out_ms(lease) <= now_ms;
            let lease = &self.leases[lease];
            let job = lease.job;
            let queue = self.jobs.slab[job].queue;
            if timed_out {
                if let Some(token) = lease.token {
                    self.expired_tokens.note(self.jobs.slab[job].id, token);
                }
                let reason = Reason::new(Cause::Timeout, "Job timeout exceeded");
                self.fail_attempt(now_ms, job, reason, false, out);
            } else {
                self.stall_one(now_ms, job, out);
            }
            self.serve(now_ms, queue, out);
        }
    }

    fn stall_one<J: Journal>(&mut self, now_ms: u64, job: u32, out: &mut Out<'_, J>) {
        self.totals.stalled += 1;
        self.emit(now_ms, job, Step::Stalled, out.effects);
        let about = &self.jobs.slab[job];
        let (attempts, stalls) = (about.attempts + 1, about.stalls.saturating_add(1));
        let spent = attempts >= about.max_attempts;
        if spent || self.stalls_too_often(job, stalls) {
            self.totals.failed += 1;
            let text = format!("Job stalled {stalls} times");
            let cause = if spent { Cause::Attempts } else { Cause::Stalled };
            self.bury(now_ms, job, attempts, stalls, Reason::new(cause, &text), out);
        } else {
            let run_at_ms = about.run_at_ms;
            let reason = Reason::new(Cause::Stalled, "Worker went silent");
            self.end_attempt(now_ms, job, run_at_ms, (reason, true), out);
        }
    }

    /// The clock has leapt by so much: everything that lasts as long as time passes ends so much later by it, which are locks,
    /// timeouts and waits. Takes the same time whatever their number. A replay knows nothing of it: a restart gives all
    /// locks their whole life again.
    pub fn put_off(&mut self, by_ms: u64) {
        self.lease_timers.put_off(by_ms);
        self.waiter_timers.put_off(by_ms);
        self.end_waiters.timers.put_off(by_ms);
    }

    /// By how much a lease has been put off since it began.
    pub(crate) fn lease_put_off_ms(&self, lease: u32) -> u64 {
        self.lease_timers.put_off_ms() - self.leases[lease].put_off_before_ms
    }

    /// When a lock ends unless it is renewed.
    pub(crate) fn lock_ends_ms(&self, lease: u32) -> u64 {
        self.leases[lease].expires_at_ms.saturating_add(self.lease_put_off_ms(lease))
    }

    /// When the attempt has lasted too long; `u64::MAX` for never.
    pub(crate) fn times_out_ms(&self, lease: u32) -> u64 {
        self.leases[lease].timeout_at_ms.saturating_add(self.lease_put_off_ms(lease))
    }

    /// When the hold of a lease ends unless there is a sign of life.
    pub(crate) fn hold_ends_ms(&self, lease: u32) -> u64 {
        self.hold_was_to_end_ms(lease).saturating_add(self.lease_put_off_ms(lease))
    }

    /// When the hold would have ended without being put off.
    fn hold_was_to_end_ms(&self, lease: u32) -> u64 {
        let about = &self.leases[lease];
        let queue = self.jobs.slab[about.job].queue;
        let Some(rules) = self.queues[queue].rules.as_deref() else { return about.expires_at_ms };
        // A time that the job itself asked for is part of its lease.
        if self.jobs.extras_of(about.job).is_some_and(|extras| extras.stall_timeout_ms.is_some()) {
            return about.expires_at_ms;
        }
        let rule = &rules.stall;
        let silent_at_ms = match rule.interval_ms {
            _ if !rule.enabled => None,
            None => return about.expires_at_ms,
            Some(interval_ms) => {
                let graced_ms = about.started_at_ms + u64::from(rule.grace_ms);
                Some((about.seen_at_ms + u64::from(interval_ms)).max(graced_ms))
            }
        };
        // The end of a lock is one whatever the rule says.
        let lock_ends_ms = about.token.map_or(u64::MAX, |_| about.expires_at_ms);
        silent_at_ms.unwrap_or(u64::MAX).min(lock_ends_ms)
    }

    /// When the shard must look at a lease next.
    fn lease_ends_ms(&self, lease: u32) -> u64 {
        self.hold_ends_ms(lease).min(self.times_out_ms(lease))
    }

    /// Sets the deadline of a lease, which has none.
    pub(crate) fn arm_lease(&mut self, lease: u32) {
        let at_ms = self.lease_ends_ms(lease);
        self.lease_timers.insert(at_ms, lease, &mut self.leases);
    }

    /// Sets the deadline of a lease anew.
    pub(crate) fn rearm_lease(&mut self, lease: u32) {
        self.lease_timers.remove(self.leases[lease].timer, &mut self.leases);
        self.arm_lease(lease);
    }

    /// Whether so many stalls, and so many failed attempts, are too many for a job.
    pub(crate) fn stalls_too_often(&self, job: u32, stalls: u8) -> bool {
        let rules = self.queues[self.jobs.slab[job].queue].rules.as_deref();
        let most = rules.map_or(STALLS_MAX_DEFAULT, |rules| rules.stall.stalls_max);
        most > 0 && stalls >= most
    }
}
