//! The one mutation path: what a record does to the state. Live commands and recovery call the same
//! functions, so a replayed log is the live state.
//!
//! Nothing here refuses, reads a clock or answers anybody.

use crate::caller::{ClientId, Token};
use crate::collections::count::Count;
use crate::collections::slab::NONE;
use crate::dead_letter::reason::Cause;
use crate::effect::{Ending, NameChange};
use crate::family::{End, Family};
use crate::job::name_table::NameRef;
use crate::job::series::Series;
use crate::job::trace::Trace;
use crate::job::{Job, Options, Outcome, Redelivered, State, flags};
use crate::lease::Lease;
use crate::log_record::completed::Evicts;
use crate::log_record::location::LogRef;
use crate::log_record::{Buried, Ended, Pushed, Retried};
use crate::shard::Shard;

/// Steps that a job takes whose cron expression is read and searched.
const PLAN_STEPS: u64 = 8;

impl Shard {
    /// Applies [`crate::log_record::Record::Pushed`].
    pub(crate) fn add(&mut self, queue: u32, pushed: &Pushed<'_>, stored: LogRef) -> u32 {
        let given = &pushed.job;
        let name = self.take_name(queue, given.name);
        let options = self.store_options(queue, pushed, name);
        self.steps += u64::from(given.recurrence.is_some()) * PLAN_STEPS;
        let index = self.jobs.insert(Job { options, name, ..Job::of(pushed, queue, stored) });
        self.live.add(&stored);
        self.queues[queue].push_order.insert(&self.jobs, index);
        if options != NONE {
            self.unique.take(&self.jobs, index);
            self.note_name(index, true);
        }
        let state = match given.delay_ms {
            _ if given.waits() => State::WaitingChildren,
            0 => State::Waiting,
            _ => State::Delayed,
        };
        self.enter(index, state);
        self.watch_dependencies(index);
        index
    }

    /// Notes that a job of this name comes to a queue.
    #[inline]
    pub(crate) fn take_name(&mut self, queue: u32, name: Option<&str>) -> NameRef {
        match name {
            None => NameRef::default(),
            Some(name) => self.queues.names_of(queue).take(name),
        }
    }

    /// The name that the client gave to the job; several jobs may have it.
    #[inline]
    pub(crate) fn name_of(&self, job: u32) -> Option<&str> {
        let about = &self.jobs.slab[job];
        if about.name == NameRef::default() {
            return None;
        }
        if about.name == NameRef::APART {
            return self.jobs.options_of(job)?.name.as_deref();
        }
        self.queues[about.queue].names.as_deref()?.get(about.name)
    }

    fn store_options(&mut self, queue: u32, pushed: &Pushed<'_>, name: NameRef) -> u32 {
        let given = &pushed.job;
        let plain = given.unique_key.is_none()
            && given.custom_id.is_none()
            && given.ttl_ms.is_none()
            && given.timeout_ms.is_none()
            && given.unmet.is_empty()
            && given.repeat.is_none()
            && given.extras.is_none()
            && given.trace.is_none()
            && given.group_id.is_none()
            && given.family.is_none()
            && name != NameRef::APART;
        if plain {
            return NONE;
        }
        let made_at_ms = given.extras.as_ref().and_then(|extras| extras.made_at_ms);
        let pushed_at_ms = pushed.run_at_ms.saturating_sub(given.delay_ms);
        let created_at_ms = made_at_ms.unwrap_or(pushed_at_ms);
        let group = self.join_group(queue, given.group_id);
        self.jobs.options.insert(Options {
            unique_key: given.unique_key.map(Into::into),
            custom_id: given.custom_id.map(Into::into),
            expires_at_ms: given.ttl_ms.map_or(0, |ttl_ms| created_at_ms.saturating_add(ttl_ms)),
            ttl_ms: given.ttl_ms.unwrap_or(0),
            timeout_ms: given.timeout_ms.unwrap_or(0),
            notes: None,
            unmet: given.dependencies(),
            series: Series::of(pushed).map(Box::new),
            name: given.name.filter(|_| name == NameRef::APART).map(Into::into),
            extras: given.extras.clone(),
            trace: given.trace.as_deref().map(|trace| Box::new(Trace::of(trace))),
            group,
            family: given.family.as_deref().map(|family| Box::new(Family::of(family))),
            ..Options::default()
        })
    }

    /// Applies an entry of [`crate::log_record::Record::Leased`], and a pull without an owner: that one is not
    /// recorded, since its job goes back to waiting at a restart.
    pub(crate) fn lease(
        &mut self,
        job: u32,
        at_ms: u64,
        ttl_ms: u32,
        token: Option<Token>,
        client: Option<ClientId>,
    ) {
        let options = self.jobs.options_of(job);
        let timeout_at_ms = match options {
            Some(options) if options.timeout_ms > 0 => at_ms + u64::from(options.timeout_ms),
            _ => u64::MAX,
        };
        let extras = options.and_then(|options| options.extras.as_deref());
        let ttl_ms = match extras.and_then(|extras| extras.stall_timeout_ms) {
            // A lock may be shorter than the job asks for, never longer.
            Some(stall_ms) if token.is_some() => stall_ms.min(ttl_ms),
            Some(stall_ms) => stall_ms,
            None => ttl_ms,
        };
        self.leave(job);
        let lease = self.leases.insert(Lease {
            job,
            token,
            ttl_ms,
            expires_at_ms: at_ms + u64::from(ttl_ms),
            seen_at_ms: at_ms,
            timeout_at_ms,
            started_at_ms: at_ms,
            put_off_before_ms: self.lease_timers.put_off_ms(),
            ..Lease::default()
        });
        if let Some(client) = client {
            self.leases[lease].client = Some(client);
            self.leases[lease].puller = Some(client);
            let held = self.clients.remember(client);
            held.activity.active += 1;
            held.leases.push_back(&mut self.leases, lease);
        }
        self.arm_lease(lease);
        self.jobs.slab[job].detail = lease;
        self.enter(job, State::Active);
    }

    /// Applies [`crate::log_record::Record::Completed`].
    pub(crate) fn complete(&mut self, job: u32, ended: &Ended<'_>, stored: LogRef) {
        self.leave(job);
        self.unique.release(&self.jobs, job);
        self.answer_end_waiters(job, Ending::Completed(stored));
        let goes = match ended.evicts {
            Evicts::Itself => true,
            Evicts::Unsaid => self.config.unsaid_completed_max == 0,
            Evicts::Nothing | Evicts::Below(_) => false,
        };
        let goes = goes || self.jobs.slab[job].has(flags::REMOVE_ON_COMPLETE);
        self.report_end(job, End::Completed, goes, stored);
        self.notify_watchers(job, true);
        if goes {
            self.unwatch_dependencies(job);
            self.forget(job, true);
            return;
        }
        self.keep_open_children(job);
        let (finished_at_ms, started_at_ms) = (ended.at_ms, ended.started_at_ms);
        let order = stored.position;
        let cause = Cause::default();
        let outcome = Outcome { finished_at_ms, started_at_ms, order, stored, cause };
        self.end(job, State::Completed, outcome);
        let queue = self.jobs.slab[job].queue;
        self.evict_for(queue, ended.evicts);
        self.retention.note_end(finished_at_ms);
    }

    /// Applies [`crate::log_record::Record::Retried`].
    pub(crate) fn retry(&mut self, job: u32, retried: &Retried<'_>, stored: LogRef) {
        if retried.attempt.is_some() {
            self.note_failure(job, stored);
        }
        if retried.is_stall() {
            self.stall(job);
            return;
        }
        self.leave(job);
        let about = &mut self.jobs.slab[job];
        about.attempts += 1;
        about.run_at_ms = retried.run_at_ms;
        let later = retried.run_at_ms > retried.at_ms;
        self.enter(job, if later { State::Delayed } else { State::Waiting });
    }

    /// An attempt has failed, and a record tells how.
    fn note_failure(&mut self, job: u32, stored: LogRef) {
        self.live.add(&stored);
        self.live.add_lines(1);
        let forgotten = self.jobs.failures.note(job, stored);
        self.drop_failures(&forgotten);
    }

    /// Forgets the errors of earlier attempts of a job.
    fn forget_failures(&mut self, job: u32) {
        if self.jobs.slab[job].attempts > 0 {
            let forgotten = self.jobs.failures.take(job);
            self.drop_failures(&forgotten);
        }
    }

    fn drop_failures(&mut self, forgotten: &[LogRef]) {
        for stored in forgotten {
            self.live.sub(stored);
        }
        self.live.sub_lines(forgotten.len());
    }

    /// Applies [`crate::log_record::Record::Buried`].
    pub(crate) fn inter(&mut self, job: u32, buried: &Buried<'_>, stored: LogRef) {
        self.leave(job);
        self.unique.release(&self.jobs, job);
        self.keep_open_children(job);
        self.answer_end_waiters(job, Ending::Failed(stored));
        if let Some(policy) = self.policy_of(job) {
            let goes = self.jobs.slab[job].has(flags::REMOVE_ON_FAIL);
            self.report_end(job, End::Failed(policy), goes, stored);
        }
        let about = &mut self.jobs.slab[job];
        about.attempts = buried.attempts;
        about.stalls = buried.stalls;
        let (finished_at_ms, started_at_ms) = (buried.at_ms, buried.started_at_ms);
        let (order, cause) = (stored.position, buried.cause);
        let outcome = Outcome { finished_at_ms, started_at_ms, order, stored, cause };
        self.end(job, State::Failed, outcome);
        if self.jobs.slab[job].has(flags::REMOVE_ON_FAIL) {
            // By the same record: a crash may come between any two.
            self.remove(job);
        }
    }

    /// Applies [`crate::log_record::Record::Stalled`].
    pub(crate) fn stall(&mut self, job: u32) {
        self.leave(job);
        let about = &mut self.jobs.slab[job];
        about.attempts += 1;
        about.stalls = about.stalls.saturating_add(1);
        self.enter(job, State::Waiting);
    }

    /// [`crate::log_record::Record::Released`], and the same for a job pulled without an owner.
    pub(crate) fn release(&mut self, job: u32) {
        self.leave(job);
        self.enter(job, State::Waiting);
    }

    /// Applies [`crate::log_record::Record::Revived`].
    pub(crate) fn revive(&mut self, job: u32, run_at_ms: u64, by_itself: bool) {
        self.forget_failures(job);
        self.leave(job);
        let about = &mut self.jobs.slab[job];
        about.attempts = 0;
        about.stalls = 0;
        about.run_at_ms = run_at_ms;
        if by_itself {
            let before = &mut self.jobs.options_or_new(job).redelivered;
            let times = before.map_or(0, |before| before.times).saturating_add(1);
            *before = Some(Redelivered { times, last_at_ms: run_at_ms });
        } else if let Some(options) = self.jobs.options_of_mut(job) {
            options.redelivered = None;
        }
        if let Some(options) = self.jobs.options_of_mut(job)
            && options.ttl_ms > 0
            && !by_itself
        {
            // Who wants it to begin anew does not want it to go at once: the old life may be over.
            options.expires_at_ms = run_at_ms.saturating_add(options.ttl_ms);
        }
        self.forget_progress(job);
        self.unique.take(&self.jobs, job);
        let waits = self.wait_for_open_children(job, run_at_ms);
        self.enter(job, if waits { State::WaitingChildren } else { State::Waiting });
    }

    /// [`crate::log_record::Record::Removed`], and the end of a completed job's time.
    pub(crate) fn remove(&mut self, job: u32) {
        let completed = self.jobs.slab[job].state == State::Completed;
        self.leave(job);
        self.unique.release(&self.jobs, job);
        self.unwatch_dependencies(job);
        self.answer_end_waiters(job, Ending::Removed);
        self.notify_watchers(job, false);
        self.forget(job, completed);
    }

    /// Applies [`crate::log_record::Record::Paused`].
    pub(crate) fn set_paused(&mut self, name: &str, paused: bool, stored: LogRef) -> u32 {
        let queue = self.queues.find_or_insert(name);
        let set = paused.then_some(stored);
        let before =
            self.queues.change_settings(queue, |about| std::mem::replace(&mut about.paused, set));
        self.live.replace(before, set);
        queue
    }

    fn forget(&mut self, job: u32, completed: bool) {
        if completed {
            let about = &self.jobs.slab[job];
            let (id, told_from) = (about.id, about.stored.position);
            self.completed_ids.note(id, told_from);
            if let Some(name) = self.jobs.options_of(job).and_then(|has| has.custom_id.clone()) {
                self.completed_ids.names.note(name, id, told_from);
            }
        }
        self.note_name(job, false);
        self.erase(job);
    }

    /// Forgets a job that is in no state any more, and what it points to in the log.
    pub(crate) fn erase(&mut self, job: u32) {
        self.steps += 1;
        self.unshare(job);
        self.quit_group(job);
        self.forget_failures(job);
        let options = self.jobs.options_of_mut(job);
        let (notes, family) =
            options.map_or((None, None), |has| (has.notes.take(), has.family.take()));
        if let Some(notes) = notes {
            notes.texts().for_each(|text| self.live.sub(text));
            self.live.sub_lines(notes.logs.len());
        }
        if let Some(family) = family {
            self.forget_ends(family.ends);
        }
        self.live.sub(&self.jobs.slab[job].stored);
        let about = &self.jobs.slab[job];
        let (queue, name) = (about.queue, about.name);
        if name != NameRef::default()
            && let Some(names) = &mut self.queues[queue].names
        {
            names.release(name);
        }
        self.queues[queue].push_order.remove(&self.jobs, job);
        self.jobs.remove(job);
    }

    /// Reports custom ids to their directory as they come and go; at recovery it asks for all at once.
    pub(crate) fn note_name(&mut self, job: u32, known: bool) {
        if self.recovering {
            return;
        }
        let id = self.jobs.slab[job].id;
        if let Some(name) = self.jobs.options_of(job).and_then(|has| has.custom_id.clone()) {
            self.names.push(NameChange { name, id, known });
        }
    }

    /// Puts a job, which is nowhere, where its state keeps it, and sets its deadline.
    pub(crate) fn enter(&mut self, job: u32, state: State) {
        self.steps += 1;
        let about = &mut self.jobs.slab[job];
        // Records of a log may come in any order, and are applied as they come; transitions that a shard decides on
        // must be legal.
        let legal = about.state.may_become(state) || self.recovering;
        assert!(legal, "a job goes from {:?} to {state:?}", about.state);
        assert!(about.timer == NONE, "a job that enters a state has no deadline of another one");
        let has_detail = matches!(state, State::Active | State::Completed | State::Failed);
        assert!(
            has_detail == (about.detail != NONE),
            "a job has a lease or an outcome, or neither"
        );
        let queue = about.queue;
        about.state = state;
        self.queues.enter(queue, state, about.priority);
        if self.queues[queue].groups.is_some()
            && let Some(group) = self.group_of(job)
        {
            self.enter_group(job, group, state);
        } else if state == State::Waiting {
            self.queues[queue].ready.insert(&mut self.jobs.slab, job);
        }
        if matches!(state, State::Waiting | State::Delayed | State::WaitingChildren) {
            let due_ms = match state {
                State::Delayed => self.jobs.slab[job].run_at_ms,
                _ => u64::MAX,
            };
            let expires_at_ms = match self.jobs.options_of(job) {
                Some(options) if options.expires_at_ms > 0 => options.expires_at_ms,
                _ => u64::MAX,
            };
            let deadline_ms = due_ms.min(expires_at_ms);
            if deadline_ms < u64::MAX {
                self.job_timers.insert(deadline_ms, job, &mut self.jobs.slab);
            }
        } else if state == State::Failed && self.queues[queue].rules.is_some() && !self.recovering {
            // As far as is known here: what comes of it is judged when it is due.
            self.rearm_burial(0, job);
        }
    }

    pub(crate) fn end(&mut self, job: u32, state: State, outcome: Outcome) {
        let queue = self.jobs.slab[job].queue;
        self.live.add(&outcome.stored);
        self.completed_jobs += u64::from(state == State::Completed);
        self.ends_unkept += 1;
        self.ends_unmoved += u64::from(outcome.is_unmoved());
        self.jobs.slab[job].detail = self.jobs.outcomes.insert(outcome);
        self.queues[queue].ended(state).insert(&mut self.jobs, job);
        self.enter(job, state);
    }

    /// Takes a job out of wherever its state keeps it, with its deadline, lease or outcome.
    pub(crate) fn leave(&mut self, job: u32) {
        let about = &self.jobs.slab[job];
        let (state, queue, timer, detail) = (about.state, about.queue, about.timer, about.detail);
        if state == State::Vacant {
            return;
        }
        self.queues.leave(queue, state, about.priority);
        if timer != NONE {
            self.job_timers.remove(timer, &mut self.jobs.slab);
            assert!(self.jobs.slab[job].timer == NONE, "the deadline that goes is the job's own");
        }
        let group = match self.queues[queue].groups {
            Some(_) => self.group_of(job),
            None => None,
        };
        if let Some(group) = group {
            self.leave_group(job, group, state);
        }
        match state {
            State::Vacant | State::Delayed | State::WaitingChildren => {}
            State::Waiting if group.is_some() => {}
            State::Waiting => self.queues[queue].ready.remove(&mut self.jobs.slab, job),
            State::Active => {
                assert!(self.leases[detail].job == job, "an active job's lease is its own");
                self.leave_puller(detail);
                self.lease_timers.remove(self.leases[detail].timer, &mut self.leases);
                assert!(
                    self.leases[detail].timer == NONE,
                    "the deadline that goes is the lease's own"
                );
                let lease = self.leases.remove(detail);
                self.owners.give_back(lease.owner);
                self.note_room(queue);
            }
            State::Completed | State::Failed => {
                self.completed_jobs.take_out(u64::from(state == State::Completed));
                self.queues[queue].ended(state).remove(&mut self.jobs, job);
                let outcome = self.jobs.outcomes.remove(detail);
                self.live.sub(&outcome.stored);
                self.ends_unmoved.take_out(u64::from(outcome.is_unmoved()));
                self.note_unkept(job);
            }
        }
        self.jobs.slab[job].detail = NONE;
    }

    /// The record of an ended job says that it has ended.
    pub(crate) fn note_kept(&mut self, job: u32) {
        let about = &mut self.jobs.slab[job];
        if about.state.is_end() && !about.has(flags::KEPT_ENDED) {
            about.flags |= flags::KEPT_ENDED;
            self.ends_unkept.take_out(1);
        }
    }

    /// A job is ended no longer.
    fn note_unkept(&mut self, job: u32) {
        let about = &mut self.jobs.slab[job];
        self.ends_unkept.take_out(u64::from(!about.has(flags::KEPT_ENDED)));
        about.flags &= !flags::KEPT_ENDED;
    }

    /// Makes a lease outlive the connection that pulled it.
    pub(crate) fn leave_client(&mut self, lease: u32) {
        let Some(client) = self.leases[lease].client.take() else { return };
        if let Some(held) = self.clients.get_mut(client) {
            held.leases.remove(&mut self.leases, lease);
        }
    }

    /// Ends what a lease means to the connection that pulled its job.
    fn leave_puller(&mut self, lease: u32) {
        let Some(puller) = self.leases[lease].puller.take() else { return };
        let Some(held) = self.clients.get_mut(puller) else { return };
        held.activity.active.take_out(1);
        if self.leases[lease].client.take().is_some() {
            held.leases.remove(&mut self.leases, lease);
        }
        if held.is_idle() {
            self.clients.forget(puller);
        }
    }
}
