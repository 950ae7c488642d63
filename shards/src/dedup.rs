//! What a push does that finds its key held: it brings nothing, or it takes the place of the job that holds
//! the key, as the push asks. And who holds a key may be asked, and the key be taken from its job.

use crate::changed::Changed;
use crate::effect::Reply;
use crate::event::Step;
use crate::extras::Dedup;
use crate::job::{State, flags};
use crate::new_job::NewJob;
use crate::record::{Journal, Record};
use crate::shard::{Caller, Out, Shard};

/// What a push finds under its key.
pub(crate) enum Met {
    /// Nobody: it can be pushed.
    Nobody,
    /// A job that stays: nothing is pushed.
    Stays(u32),
    /// A job that is to go once the new one is there. In this order, so that no crash takes both.
    Goes(u32),
}

impl Shard {
    /// Whether a job still holds its key, as far as time goes.
    fn holds_at(&self, now_ms: u64, job: u32) -> bool {
        let dedup = self.jobs.extras_of(job).and_then(|extras| extras.dedup);
        dedup.is_none_or(|dedup| dedup.until_ms == 0 || dedup.until_ms > now_ms)
    }

    /// What stands in the way of a push to `queue`.
    pub(crate) fn meet_holder<J: Journal>(
        &mut self,
        now_ms: u64,
        queue: u32,
        job: &NewJob<'_>,
        out: &mut Out<'_, J>,
    ) -> Met {
        let Some(key) = job.unique_key else { return Met::Nobody };
        let Some(holder) = self.unique.holder(&self.jobs, queue, key) else { return Met::Nobody };
        let dedup = job.extras.as_ref().and_then(|extras| extras.dedup).unwrap_or_default();
        let about = &self.jobs.slab[holder];
        let (id, state, is_needed) = (about.id, about.state, about.has(flags::WATCHED));
        // The time is over, or the worker that has the job finishes it without the key.
        if !self.holds_at(now_ms, holder) || dedup.replace && state == State::Active {
            self.record_change(holder, &Record::Changed(Changed::KeyFreed { id }), out);
            return self.meet_holder(now_ms, queue, job, out);
        }
        // Others wait for this very job: they would never run.
        if dedup.replace && !is_needed {
            return Met::Goes(holder);
        }
        self.extend_key(now_ms, holder, dedup, out);
        self.emit(now_ms, holder, Step::Duplicated, out.effects);
        Met::Stays(holder)
    }

    fn extend_key<J: Journal>(
        &mut self,
        now_ms: u64,
        holder: u32,
        dedup: Dedup,
        out: &mut Out<'_, J>,
    ) {
        let held = self.jobs.extras_of(holder).and_then(|extras| extras.dedup);
        if dedup.extend && dedup.ttl_ms > 0 && held.is_some_and(|held| held.until_ms > 0) {
            let (id, until_ms) = (self.jobs.slab[holder].id, now_ms.saturating_add(dedup.ttl_ms));
            let changed = Changed::KeyExtended { id, until_ms };
            self.record_change(holder, &Record::Changed(changed), out);
        }
    }

    /// The job that holds a key.
    pub fn holder_of(&mut self, now_ms: u64, queue: &str, key: &str) -> Option<u32> {
        let queue = self.queues.find(queue)?;
        let holder = self.unique.holder(&self.jobs, queue, key)?;
        self.holds_at(now_ms, holder).then_some(holder)
    }

    /// Takes a key from whoever holds it.
    pub(crate) fn free_key<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        (queue, key): (&str, &str),
        out: &mut Out<'_, J>,
    ) {
        let held = self.holder_of(now_ms, queue, key).is_some();
        if let Some(queue) = self.queues.find(queue) {
            while let Some(holder) = self.unique.holder(&self.jobs, queue, key) {
                let freed = Changed::KeyFreed { id: self.jobs.slab[holder].id };
                self.record_change(holder, &Record::Changed(freed), out);
            }
        }
        out.effects.replies.push((caller.request, Reply::Count(u64::from(held))));
    }

    /// Takes its key from a job, if it still holds it.
    pub(crate) fn free_key_of<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        out: &mut Out<'_, J>,
    ) -> bool {
        let about = &self.jobs.slab[job];
        let (id, ended) = (about.id, about.state.is_end());
        let options = self.jobs.options_of(job);
        if ended || options.is_none_or(|has| has.unique_key.is_none()) {
            return false;
        }
        let held = self.holds_at(now_ms, job);
        self.record_change(job, &Record::Changed(Changed::KeyFreed { id }), out);
        held
    }

    /// [`Changed::KeyFreed`].
    pub(crate) fn forget_key(&mut self, job: u32) {
        self.unique.release(&self.jobs, job);
        if let Some(options) = self.jobs.options_of_mut(job) {
            options.unique_key = None;
        }
    }

    /// [`Changed::KeyExtended`].
    pub(crate) fn hold_key_until(&mut self, job: u32, until_ms: u64) {
        let options = self.jobs.options_of_mut(job);
        let extras = options.and_then(|has| has.extras.as_deref_mut());
        if let Some(dedup) = extras.and_then(|extras| extras.dedup.as_mut()) {
            dedup.until_ms = until_ms;
        }
    }
}
