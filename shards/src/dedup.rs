//! What a push does that finds its key held: it brings nothing, or it takes the place of the job that holds
//! the key, as the push asks. And who holds a key may be asked, and the key be taken from its job.

use crate::bulk::LOOKS_MAX;
use crate::effect::{PushedJob, Reply};
use crate::event::Step;
use crate::job::id::JobId;
use crate::job::new_job::NewJob;
use crate::job::overrides::Dedup;
use crate::job::{State, flags};
use crate::log_record::job_change::Changed;
use crate::log_record::{Journal, Record};
use crate::shard::{Caller, Out, Shard};

/// What a push finds under its key.
pub(crate) enum Met {
    /// Nobody: it can be pushed.
    Nobody,
    /// A job that stays: nothing is pushed.
    Stays(PushedJob),
    /// A job that is to go once the new one is there. In this order, so that no crash takes both.
    Goes(JobId),
}

/// Holders that one push takes their key from, at most: those whose time is over and, if it replaces, those
/// that workers have. Mostly there is one.
const YIELDING_MAX: usize = 64;

impl Shard {
    /// Whether a job still holds its key, as far as time goes.
    fn holds_at(&self, now_ms: u64, job: u32) -> bool {
        let dedup = self.jobs.extras_of(job).and_then(|extras| extras.dedup);
        dedup.is_none_or(|dedup| dedup.until_ms == 0 || dedup.until_ms > now_ms)
    }

    /// What stands in the way of a push to `queue`. Costs no step per holder, however many there are.
    pub(crate) fn meet_holder<J: Journal>(
        &mut self,
        now_ms: u64,
        queue: u32,
        job: &NewJob<'_>,
        out: &mut Out<'_, J>,
    ) -> Met {
        let Some(key) = job.unique_key else { return Met::Nobody };
        let dedup = job.extras.as_ref().and_then(|extras| extras.dedup).unwrap_or_default();
        for _ in 0..YIELDING_MAX {
            let Some(holder) = self.unique.holder(&self.jobs, queue, key) else {
                return Met::Nobody;
            };
            let about = &self.jobs.slab[holder];
            let (id, state, is_needed) = (about.id, about.state, about.has(flags::WATCHED));
            // The time is over, or the worker that has the job finishes it without the key.
            if !self.holds_at(now_ms, holder) || dedup.replace && state == State::Active {
                self.record_change(holder, &Record::Changed(Changed::KeyFreed { id }), out);
                continue;
            }
            // Others wait for this very job: they would never run.
            if dedup.replace && !is_needed {
                return Met::Goes(id);
            }
            self.extend_key(now_ms, holder, dedup, out);
            self.emit(now_ms, holder, Step::Duplicated, out.effects);
            let custom_id = self.jobs.options_of(holder).and_then(|has| has.custom_id.clone());
            return Met::Stays(PushedJob { id, custom_id });
        }
        // A crowd. If time has freed the key, it has from all that are left. Those that workers have give way
        // to the next pushes; what an earlier one has brought stands at the end, and is replaced.
        let newest = self.unique.holders(&self.jobs, queue, key).next_back();
        let goes = newest.filter(|&holder| {
            let about = &self.jobs.slab[holder];
            let waits = about.state != State::Active && !about.has(flags::WATCHED);
            dedup.replace && waits && self.holds_at(now_ms, holder)
        });
        goes.map_or(Met::Nobody, |holder| Met::Goes(self.jobs.slab[holder].id))
    }

    /// The holder of a key goes, in whose place a job was pushed.
    pub(crate) fn remove_replaced<J: Journal>(
        &mut self,
        now_ms: u64,
        replaced: Option<JobId>,
        out: &mut Out<'_, J>,
    ) {
        if let Some(job) = replaced.and_then(|id| self.jobs.find(id)) {
            self.remove_one(now_ms, job, out);
        }
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

    /// Takes a key from all jobs that hold it: a long command if there are many.
    pub(crate) fn free_key<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        (queue, key): (&str, &str),
        out: &mut Out<'_, J>,
    ) {
        let held = u64::from(self.holder_of(now_ms, queue, key).is_some());
        let known = self.queues.find(queue);
        let holders = known.map_or(0, |queue| self.unique.count(&self.jobs, queue, key));
        if let Some(queue) = known
            && holders as u64 > self.config.chore_slice
        {
            self.free_crowded_key(now_ms, caller, (queue, key), held, out);
            return;
        }
        if let Some(queue) = known {
            self.free_some(queue, key, self.ids.highest(), out);
        }
        out.effects.replies.push((caller.request, Reply::Count(held)));
    }

    /// Takes a key from some of the jobs that hold it and were made by then; true if there are no more.
    pub(crate) fn free_some<J: Journal>(
        &mut self,
        queue: u32,
        key: &str,
        newest: JobId,
        out: &mut Out<'_, J>,
    ) -> bool {
        let most = self.config.chore_slice as usize;
        let holders = self.unique.holders(&self.jobs, queue, key).take(LOOKS_MAX);
        let holders = holders.filter(|&job| self.jobs.slab[job].id <= newest);
        let holders: Vec<u32> = holders.take(most).collect();
        for &job in &holders {
            let freed = Changed::KeyFreed { id: self.jobs.slab[job].id };
            self.record_change(job, &Record::Changed(freed), out);
        }
        holders.len() < most
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
        let holds = self.unique.has(&self.jobs, job);
        self.unique.release(&self.jobs, job);
        let options = self.jobs.options_of_mut(job);
        let extras = options.and_then(|has| has.extras.as_deref_mut());
        if let Some(dedup) = extras.and_then(|extras| extras.dedup.as_mut()) {
            dedup.until_ms = until_ms;
        }
        if holds {
            self.unique.take(&self.jobs, job);
        }
    }
}
