//! A clock that was ahead and is right again. A start that finds later times in the log than its clock shows comes after a
//! process whose clock was ahead: what that process was to do in a second would be done once the clock has come as far, in
//! years perhaps. So such a start counts those times from its own clock on.
//!
//! That is one record, and what it does follows from the record and the jobs alone, for a replay as at the start. No time
//! says which clock it was set by, so it is judged by what is known of it:
//!
//! - nothing that has happened happened later than now, and nothing waits longer for its turn than what comes now;
//! - a rate that ends and a group that is held are moved by as much as the clock is;
//! - a key, the life of a job and the next run of a series are no further away than the job itself asks for: a run by a
//!   pattern is due at the first time of that from now on;
//! - a delay is counted anew if the clock that was ahead pushed its job, as the id tells, or if no command asks for one so long.
//!
//! Any other delay stays: one that the clock that was ahead has set for a job that was there before is as much too long as the
//! clock was ahead, a year at most.

use crate::apply::log_clock::{CORRECTED_MS, FAR_MS, SetBack};
use crate::command::Limit;
use crate::job::State;
use crate::job::id::JobId;
use crate::job::series::Series;
use crate::log_record::settings::Grouped;
use crate::log_record::snapshot::Kept;
use crate::log_record::{Journal, Record};
use crate::shard::Shard;

impl Shard {
    /// How the clock is to be set back, if the log tells of later times than `now_ms`, beyond what clocks are corrected by all
    /// the time.
    pub fn judge_clock(&self, now_ms: u64) -> Option<SetBack> {
        self.log_clock.judge(now_ms)
    }

    /// To be called after the log is replayed and before [`Shard::restart`], with a clock that is right. If the one before was
    /// ahead, all that is to happen later is counted from this one on.
    pub fn set_clock_back<J: Journal>(&mut self, now_ms: u64, journal: &mut J) -> Option<SetBack> {
        let back = self.judge_clock(now_ms)?;
        let SetBack { from_ms, to_ms, stuck_ms } = back;
        journal.append(&Record::ClockSetBack { from_ms, to_ms, stuck_ms });
        self.follow_clock_back(back);
        Some(back)
    }

    /// To be called before a record that sets a time ahead and does not say when: writes down how late it is, now and then.
    pub(crate) fn tell_clock<J: Journal>(&mut self, now_ms: u64, journal: &mut J) {
        if self.log_clock.is_untold(now_ms) {
            self.write_clock(now_ms, journal);
        }
    }

    /// Writes down the time, now and then, before a record that tells it by the id of a new job: ids say nothing while
    /// they stay where a clock was set back from.
    pub(crate) fn tell_silent_clock<J: Journal>(&mut self, now_ms: u64, journal: &mut J) {
        if self.log_clock.is_silent(now_ms) {
            self.tell_clock(now_ms, journal);
        }
    }

    /// To be called before records of jobs whose ids another shard has made. Where those stay at a time that a clock was set back
    /// from, they tell no time here either, although this shard may have seen nothing of that clock.
    pub(crate) fn tell_foreign_ids<J: Journal>(&mut self, latest: JobId, journal: &mut J) {
        let (now_ms, stuck_ms) = self.log_clock.told();
        let made_at_ms = latest.made_at_ms();
        if made_at_ms > now_ms.max(stuck_ms).saturating_add(CORRECTED_MS) {
            self.log_clock.learn(now_ms, made_at_ms);
            self.write_clock(now_ms, journal);
        }
    }

    /// To be called when the clock of a start is believed: writes it down where the jobs that come will not tell it.
    pub fn note_clock_of_start<J: Journal>(&mut self, now_ms: u64, journal: &mut J) {
        if self.log_clock.is_silent(now_ms) {
            self.write_clock(now_ms, journal);
        }
    }

    fn write_clock<J: Journal>(&mut self, now_ms: u64, journal: &mut J) {
        let (_, stuck_ms) = self.log_clock.told();
        journal.append(&Record::Kept(Kept::Clock { at_ms: now_ms, stuck_ms }));
        self.log_clock.learn(now_ms, stuck_ms);
    }

    /// Applies [`Record::ClockSetBack`]. A step per job, per queue and per group.
    pub fn follow_clock_back(&mut self, back: SetBack) {
        for job in 0..self.jobs.slab.end() {
            if self.jobs.slab.peek(job).state != State::Vacant {
                self.move_times(job, back);
            }
        }
        self.move_rates(back);
        self.move_holds(back);
        self.log_clock.follow(back);
    }

    fn move_times(&mut self, job: u32, back: SetBack) {
        let about = &self.jobs.slab[job];
        let (id, state, run_at_ms, detail) = (about.id, about.state, about.run_at_ms, about.detail);
        let to_ms = back.to_ms;
        match state {
            State::Waiting | State::Delayed | State::WaitingChildren => {
                let run_at_ms = match state {
                    State::Waiting => run_at_ms.min(to_ms),
                    _ => self.due_after(job, back),
                };
                self.move_pending(job, run_at_ms, self.life_until(job, back, run_at_ms));
            }
            State::Active => {
                self.jobs.slab[job].run_at_ms = run_at_ms.min(to_ms);
                self.end_life_at(job, self.life_until(job, back, to_ms));
                let lease = &mut self.leases[detail];
                let early_ms = lease.started_at_ms.saturating_sub(to_ms);
                lease.started_at_ms -= early_ms;
                lease.seen_at_ms = lease.seen_at_ms.min(to_ms);
                if lease.timeout_at_ms < u64::MAX {
                    lease.timeout_at_ms -= early_ms;
                }
            }
            State::Completed | State::Failed => {
                self.end_life_at(job, self.life_until(job, back, to_ms));
                let outcome = &mut self.jobs.outcomes[detail];
                let early_ms = outcome.finished_at_ms.saturating_sub(to_ms);
                outcome.finished_at_ms -= early_ms;
                outcome.started_at_ms = outcome.started_at_ms.saturating_sub(early_ms);
            }
            State::Vacant => {}
        }
        self.move_key(job, back);
        let Some(options) = self.jobs.options_of_mut(job) else { return };
        if let Some(before) = &mut options.redelivered {
            before.last_at_ms = before.last_at_ms.min(to_ms);
        }
        if let Some(series) = options.series.as_deref_mut() {
            series.due_ms = series.due_after(id, back);
        }
        if let Some(family) = options.family.as_deref_mut() {
            family.retried_at_ms = family.retried_at_ms.min(to_ms);
        }
    }

    /// When a job is due that waits for its time. That may be one that a client has asked for, however far: by a pattern, an
    /// interval or a first day, or by a `timestamp`. What it was put off for since, or waits after a failure, is bounded as
    /// for any job.
    fn due_after(&self, job: u32, back: SetBack) -> u64 {
        let about = &self.jobs.slab[job];
        let (id, run_at_ms) = (about.id, about.run_at_ms);
        let Some(options) = self.jobs.options_of(job).filter(|_| about.attempts == 0) else {
            return back.judged(id, run_at_ms);
        };
        if let Some(series) = &options.series {
            let is_due = series.due_ms == run_at_ms;
            return if is_due { series.due_after(id, back) } else { back.judged(id, run_at_ms) };
        }
        let made_at_ms = options.extras.as_deref().and_then(|extras| extras.made_at_ms);
        // A delay counts from the job's timestamp.
        let is_asked_for = made_at_ms.is_some_and(|made_at_ms| {
            (made_at_ms..=made_at_ms.saturating_add(FAR_MS)).contains(&run_at_ms)
        });
        if is_asked_for { back.judged_by_id(id, run_at_ms) } else { back.judged(id, run_at_ms) }
    }

    fn move_pending(&mut self, job: u32, run_at_ms: u64, expires_at_ms: u64) {
        let about = &self.jobs.slab[job];
        let state = about.state;
        let lives_until_ms = self.jobs.options_of(job).map_or(0, |options| options.expires_at_ms);
        if (about.run_at_ms, lives_until_ms) == (run_at_ms, expires_at_ms) {
            return;
        }
        let turn = self.turn_of_group(job).filter(|_| state == State::Waiting);
        self.leave(job);
        self.jobs.slab[job].run_at_ms = run_at_ms;
        self.end_life_at(job, expires_at_ms);
        self.enter(job, state);
        self.give_turn(job, turn);
    }

    /// When the life of a job is over, whose ttl counts from now or from `run_at_ms` on, or from before; 0 for never.
    fn life_until(&self, job: u32, back: SetBack, run_at_ms: u64) -> u64 {
        let Some(options) = self.jobs.options_of(job) else { return 0 };
        if options.ttl_ms == 0 {
            return options.expires_at_ms;
        }
        let made_at_ms = options.extras.as_deref().and_then(|extras| extras.made_at_ms);
        let id = self.jobs.slab[job].id;
        let told_ms = made_at_ms.filter(|&made_at_ms| !back.has_set(id, made_at_ms)).unwrap_or(0);
        let from_ms = back.to_ms.max(run_at_ms).max(told_ms);
        let expires_at_ms = match made_at_ms {
            Some(_) => back.judged_by_id(id, options.expires_at_ms),
            None => back.judged(id, options.expires_at_ms),
        };
        expires_at_ms.min(from_ms.saturating_add(options.ttl_ms))
    }

    fn end_life_at(&mut self, job: u32, expires_at_ms: u64) {
        if let Some(options) = self.jobs.options_of_mut(job) {
            options.expires_at_ms = expires_at_ms;
        }
    }

    fn move_key(&mut self, job: u32, back: SetBack) {
        let Some(dedup) = self.jobs.extras_of(job).and_then(|extras| extras.dedup) else { return };
        let until_ms = back.judged(self.jobs.slab[job].id, dedup.until_ms);
        let until_ms = until_ms.min(back.to_ms.saturating_add(dedup.ttl_ms));
        if until_ms < dedup.until_ms {
            self.hold_key_until(job, until_ms);
        }
    }

    /// Rates of queues that end some day.
    fn move_rates(&mut self, back: SetBack) {
        for queue in 0..self.queues.end() {
            let Some(limits) = self.queues[queue].limits.as_deref() else { continue };
            let Some(mut rate) = limits.rate().filter(|rate| rate.until_ms > back.to_ms) else {
                continue;
            };
            rate.until_ms = back.moved(rate.until_ms);
            let limit = Limit::Rate(Some(rate));
            if let Some(set_in) = limits.set_in(limit) {
                let name = self.queues[queue].name.clone();
                self.set_limit(&name, limit, set_in);
            }
        }
    }

    /// Groups that are held. And those that were: they stand in line for a time that is not to come.
    fn move_holds(&mut self, back: SetBack) {
        for group in 0..self.groups.slab.end() {
            if self.groups.end_timer_after(group, back.to_ms) {
                self.refresh_group(group);
            }
            let about = self.groups.slab.peek(group);
            let Some(own) = about.own.as_deref() else { continue };
            let (mut settings, set_in) = (own.settings, own.set_in);
            if settings.held_until_ms > back.to_ms {
                settings.held_until_ms = back.moved(settings.held_until_ms);
                let (queue, group) = (self.queues[about.queue].name.clone(), about.name.clone());
                self.set_group(&Grouped { queue: &queue, group: &group, settings }, set_in);
            }
        }
    }
}

impl Series {
    /// When a run is due. A run that follows another is due no later than an interval from now on, or at the next time of its
    /// pattern. The first one may be due when its client wishes.
    fn due_after(&self, id: JobId, back: SetBack) -> u64 {
        let next_ms = |soonest_ms| {
            let by_interval = || Some(back.to_ms.saturating_add(self.every_ms));
            let next_ms = match &self.recurrence {
                Some(recurrence) => recurrence.next_ms(soonest_ms, by_interval),
                None => by_interval(),
            };
            next_ms.unwrap_or(self.due_ms).min(self.due_ms)
        };
        if self.count > 0 {
            return next_ms(back.to_ms);
        }
        if !back.has_set(id, self.due_ms) {
            return self.due_ms;
        }
        let by_pattern = self.recurrence.as_deref().is_some_and(|recurrence| {
            recurrence.next_ms(self.due_ms, || None) == Some(self.due_ms)
        });
        // A first run that is not due by its pattern has a delay.
        if by_pattern { next_ms(back.to_ms) } else { back.moved(self.due_ms) }
    }
}
