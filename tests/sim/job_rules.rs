//! The rules of the model: what a job goes through, said once, for commands and for time alike.

use super::awaits::End;
use super::bulk_operations::Taken;
use super::check::Check;
use super::events::EventStep;
use super::family::result_of;
use super::groups::Wanted;
use super::model::{Job, Lease, Model, State, Waiter};
use super::ops::Answer;
use corq_io::log::Position;
use corq_shards::Shard;
use corq_shards::command::Token;
use corq_shards::dead_letter::reason::Cause;
use corq_shards::effect::Refusal;
use corq_shards::job::State as Found;
use corq_shards::job::id::JobId;
use corq_shards::log_record::job_change::Changed;
use corq_shards::log_record::{Record, Revived};

/// An unlocked job is left for dead after this long.
const UNLOCKED_TTL_MS: u64 = 30_000;

/// For [`Model::fresh`]: after all that fell due in a call by its own time.
pub const LAST: Option<u64> = Some(u64::MAX);

/// When and for whom a call was made, the shard after it, and the records it made.
pub struct Moment<'a> {
    pub now_ms: u64,
    pub client: u64,
    pub request: u64,
    pub shard: &'a Shard,
    /// The call was a tick, not a command.
    pub by_clock: bool,
    pub written: &'a [(Position, Vec<u8>)],
    /// Records that were there before the call.
    pub before: usize,
}

impl<'a> Moment<'a> {
    /// The call's records, each with its place in the log.
    pub fn records(&self) -> impl Iterator<Item = (usize, Record<'a>)> + use<'a> {
        let written = self.written[self.before..].iter().zip(self.before..);
        written.filter_map(|((_, bytes), place)| Some((place, Record::decode(bytes).ok()?)))
    }

    /// Whether one of them tells that a worker of this job has gone silent. Those of a queue whose rule
    /// is just being changed may be looked at a little late.
    fn tells_of_stall(&self, job: JobId) -> bool {
        let of_job = |record: &Record<'_>| match record {
            Record::Stalled { id } | Record::Removed { id } => *id == job,
            Record::Buried(buried) => buried.id == job,
            Record::Retried(retried) => {
                retried.id == job && retried.attempt.is_some_and(|attempt| attempt.stalled)
            }
            _ => false,
        };
        self.place_of(of_job).is_some()
    }

    /// The place in the log of the first of them that is meant.
    pub fn place_of(&self, is_meant: impl Fn(&Record<'_>) -> bool) -> Option<usize> {
        self.records().find(|(_, record)| is_meant(record)).map(|(place, _)| place)
    }
}

impl Model {
    /// Whether `token` entitles to speak for a job.
    pub fn held(&self, now_ms: u64, id: JobId, token: Option<Token>) -> Result<(), Refusal> {
        self.check_hold(now_ms, id, token).map_err(|refusal| {
            let late = token.is_some() && self.retired.get(&id) == token.as_ref();
            if late { Refusal::TooLate } else { refusal }
        })
    }

    fn check_hold(&self, now_ms: u64, id: JobId, token: Option<Token>) -> Result<(), Refusal> {
        let known = self.jobs.get(&id).filter(|job| !job.is_detached());
        let Some(State::Active(lease)) = known.map(|job| &job.state) else {
            return Err(Refusal::NotActive);
        };
        match (lease.token, token) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(Refusal::TokenRequired),
            (Some(lock), Some(shown)) if lock == shown && now_ms < lease.expires_at_ms => Ok(()),
            _ => Err(Refusal::TokenInvalid),
        }
    }

    /// The token of an attempt that took too long tells its worker so from now on.
    pub fn retire_token(&mut self, now_ms: u64, id: JobId) {
        let State::Active(lease) = &self.jobs[&id].state else { return };
        if let Some(token) = lease.token
            && lease.timeout_at_ms.is_some_and(|end| end <= now_ms)
        {
            self.retired.insert(id, token);
        }
    }

    /// An active job is done.
    pub fn complete(&mut self, at: &Moment<'_>, id: JobId) {
        let now_ms = at.now_ms;
        self.note_event(id, EventStep::Completed(result_of(id).to_vec()));
        self.repeat(at, id);
        self.ends.insert(id, End::Completed);
        self.ever_completed.insert(id);
        let place = self.next_completion();
        let keep = self.completed_max;
        let job = self.change(id);
        job.met = true;
        if job.remove_on_complete || keep == 0 {
            job.state = State::Gone;
            job.family.completed_and_gone = true;
            self.record = None;
            return;
        }
        job.state = State::Completed { at_ms: now_ms, place };
        job.keep_children();
        if job.series.is_some_and(|series| series.continued) {
            // The next run has it.
            job.custom_id = None;
        }
        let queue = job.queue.clone();
        self.record = None;
        self.displace(&queue);
    }

    /// An attempt has failed. How long until the next one is the shard's choice, within bounds.
    pub fn fail_attempt(&mut self, at: &Moment<'_>, id: JobId, cause: Cause) {
        let now_ms = at.now_ms;
        let error = if cause == Cause::Timeout { "Job timeout exceeded" } else { "no" };
        let job = &self.jobs[&id];
        if job.attempts + 1 >= job.max_attempts {
            self.note_event(id, EventStep::Failed(error.into(), true));
            self.bury(now_ms, id, false, cause);
            return;
        }
        let (least_ms, most_ms) = job.backoff();
        self.note_event(id, EventStep::Failed(error.into(), false));
        self.note_event(id, EventStep::Retried(Found::Failed));
        // The job's record says so even if its life has ended in the same call.
        let recorded = at.records().find_map(|(_, record)| match record {
            Record::Retried(retried) if retried.id == id => Some(retried.run_at_ms),
            _ => None,
        });
        let seen = || at.shard.find(id).map(|index| at.shard.view(index).job.run_at_ms);
        let run_at_ms = recorded.or_else(seen).unwrap_or(now_ms + least_ms);
        self.must(Check::EarlyBackoff, run_at_ms >= now_ms + least_ms, || {
            format!("{id:?} is tried again after {} ms", run_at_ms.saturating_sub(now_ms))
        });
        self.must(Check::Overdue, run_at_ms <= now_ms + most_ms, || {
            format!("{id:?} waits {} ms of at most {most_ms}", run_at_ms - now_ms)
        });
        let job = self.change(id);
        job.attempts += 1;
        job.run_at_ms = run_at_ms;
        job.state = if run_at_ms > now_ms { State::Delayed } else { State::Waiting };
        self.fresh.insert(id, None);
    }

    /// A worker has gone silent.
    pub fn stall(&mut self, now_ms: u64, id: JobId) {
        self.note_event(id, EventStep::Stalled);
        let job = &self.jobs[&id];
        let too_often = self.stalls_too_often(job);
        let spent = job.attempts + 1 >= job.max_attempts;
        if too_often || spent {
            let cause = if spent { Cause::Attempts } else { Cause::Stalled };
            let error = format!("Job stalled {} times", job.stalls + 1);
            self.note_event(id, EventStep::Failed(error, true));
            self.bury(now_ms, id, true, cause);
            return;
        }
        let job = self.change(id);
        job.attempts += 1;
        job.stalls += 1;
        job.state = State::Waiting;
        self.fresh.insert(id, None);
    }

    /// Whether an attempt is over by now, and no other one follows.
    pub fn is_to_fail(&self, now_ms: u64, job: &Job, lease: &Lease) -> bool {
        let times_out = lease.timeout_at_ms.is_some_and(|end| end <= now_ms);
        let stalls = self.hold_ends_ms(job, lease) <= now_ms;
        let spent = job.attempts + 1 >= job.max_attempts;
        (times_out || stalls) && (spent || !times_out && self.stalls_too_often(job))
    }

    fn stalls_too_often(&self, job: &Job) -> bool {
        // A queue that was obliterated has no rules any more.
        let most = self.rules(&job.queue).stall.stalls_max;
        most > 0 && job.stalls + 1 >= most
    }

    /// No other attempt follows.
    pub fn bury(&mut self, now_ms: u64, id: JobId, stalled: bool, cause: Cause) {
        self.ends.insert(id, End::Failed);
        self.ever_failed.insert(id);
        let job = self.change(id);
        job.attempts += 1;
        job.stalls += u8::from(stalled);
        job.keep_children();
        let listed = State::Failed { at_ms: now_ms, cause };
        job.state = if job.remove_on_fail { State::Gone } else { listed };
        job.family.failed_and_gone = job.remove_on_fail;
    }

    /// A job goes to the dead-letter queue by hand, unless it is there.
    pub fn discard(&mut self, now_ms: u64, id: JobId, error: &str) {
        if matches!(self.jobs[&id].state, State::Failed { .. }) {
            return;
        }
        if matches!(self.jobs[&id].state, State::Completed { .. }) {
            self.reopened.insert(id);
        }
        self.note_event(id, EventStep::Failed(error.into(), true));
        self.ends.insert(id, End::Failed);
        self.ever_failed.insert(id);
        let job = self.change(id);
        job.keep_children();
        let listed = State::Failed { at_ms: now_ms, cause: Cause::Unknown };
        job.state = if job.remove_on_fail { State::Gone } else { listed };
        job.family.failed_and_gone = job.remove_on_fail;
        job.met = false;
    }

    /// An answer, if it is one to a pull.
    pub fn check_delivery(&mut self, at: &Moment<'_>, request: u64, answer: &Answer) {
        match answer {
            Answer::Pulled(jobs) if jobs.is_empty() => self.deliver_nothing(at, request),
            Answer::Pulled(jobs) => self.deliver(at, request, jobs),
            _ => {}
        }
    }

    /// A pull was answered with jobs.
    fn deliver(&mut self, at: &Moment<'_>, request: u64, jobs: &[(JobId, Option<Token>)]) {
        let Some(place) = self.waiters.iter().position(|one| one.request == request) else {
            self.checks.fail(Check::Answer, || format!("nobody waits for the answer {request}"));
            return;
        };
        let waiter = self.waiters.remove(place);
        let got = jobs.first().and_then(|(id, _)| self.jobs.get(id));
        let overtaken = got.and_then(|job| {
            let mut earlier = self.waiters[..place].iter();
            let when = (at.now_ms, at.by_clock);
            earlier.find(|earlier| self.is_overtaken(when, earlier, &waiter, job))
        });
        self.must(Check::Order, overtaken.is_none(), || {
            format!("pull {request} was served before {overtaken:?}")
        });
        self.must(Check::Answer, jobs.len() <= waiter.count, || {
            format!("{} jobs for a pull of {}", jobs.len(), waiter.count)
        });
        self.must(Check::State, !self.paused.contains(&waiter.queue), || {
            format!("the paused queue {} delivers", waiter.queue)
        });
        let allowed = self.allowance(at.now_ms, &waiter.queue);
        self.must(Check::State, jobs.len() as u64 <= allowed, || {
            format!("{} leaves {} jobs, may leave {allowed}", waiter.queue, jobs.len())
        });
        for &(id, token) in jobs {
            self.spend(at.now_ms, &waiter.queue);
            if !self.is_there_to_deliver(at, id) {
                self.note_left(at.now_ms, id);
                continue;
            }
            self.may_deliver(at.now_ms, id, &waiter);
            let fits = token.is_some() == waiter.locked
                && token.is_none_or(|token| self.tokens.insert(token.0));
            self.must(Check::Answer, fits, || format!("the token of {id:?} is {token:?}"));
            let Some(job) = self.jobs.get(&id) else { continue };
            let (timeout_ms, stall_ms) = (job.timeout_ms, job.extras.stall_timeout_ms);
            let ttl_ms = match stall_ms.map(u64::from) {
                // A lock may be shorter than the job asks for, never longer.
                Some(stall_ms) if waiter.locked => stall_ms.min(waiter.ttl_ms),
                Some(stall_ms) => stall_ms,
                None if waiter.locked => waiter.ttl_ms,
                None => UNLOCKED_TTL_MS,
            };
            self.note_left(at.now_ms, id);
            self.note_event(id, EventStep::Pulled);
            self.change(id).state = State::Active(Lease {
                client: (!waiter.detach).then_some(waiter.client),
                token,
                ttl_ms,
                started_at_ms: at.now_ms,
                seen_at_ms: at.now_ms,
                expires_at_ms: at.now_ms + ttl_ms,
                timeout_at_ms: timeout_ms.map(|timeout_ms| at.now_ms + timeout_ms),
            });
            self.fresh.remove(&id);
        }
        // Room may have come while the call went on, and too late for this pull.
        let open = !self.in_steps && self.allowance(at.now_ms, &waiter.queue) > 0
            || !self.limits.contains_key(&waiter.queue);
        let left = |job: &Job| {
            let sure = !self.in_steps || !self.is_counted(job);
            let when = (at.now_ms, at.by_clock);
            !self.fresh.contains_key(&job.id) && sure && self.may_get(when, &waiter, job)
        };
        let more = self.ready(&waiter.queue).any(left) && open;
        self.must(Check::Starved, jobs.len() == waiter.count || !more, || {
            format!("pull {request} got {} jobs of {} and left some", jobs.len(), waiter.count)
        });
    }

    /// Whether a job is with its worker after the call. In a late call it may leave before its life is
    /// found to be over; and it may leave before a long command removes it.
    fn is_there_to_deliver(&mut self, at: &Moment<'_>, id: JobId) -> bool {
        if !self.leaving.remove(&id) {
            return true;
        }
        let there = at.shard.find(id).is_some();
        if there {
            self.ends.remove(&id);
            self.untell_removal(id);
            self.change(id).state = State::Waiting;
        } else {
            self.tell_pull_before_removal(id);
        }
        there
    }

    /// Whether this job may go out now, and before all others.
    fn may_deliver(&mut self, now_ms: u64, id: JobId, waiter: &Waiter) {
        let queue = waiter.queue.as_str();
        let Some(job) = self.jobs.get(&id) else {
            self.checks.fail(Check::State, || format!("{id:?} is delivered and was never pushed"));
            return;
        };
        self.must(Check::State, job.queue == queue, || format!("{id:?} is of another queue"));
        match &job.state {
            State::Waiting => {}
            State::Delayed => self.too_early(now_ms, job, "is delivered"),
            State::Active(lease) => self
                .checks
                .fail(Check::Lease, || format!("{id:?} is delivered while it is held: {lease:?}")),
            _ => self.checks.fail(Check::Again, || {
                format!("at {now_ms}, after its end, is delivered {job:#?}")
            }),
        }
        self.must(Check::Attempts, job.attempts < job.max_attempts, || {
            format!("{id:?} is delivered for attempt {} of {}", job.attempts + 1, job.max_attempts)
        });
        self.check_group(now_ms, waiter, job);
        let mine = self.fresh.get(&id);
        let overtaken = self.ready(queue).find(|other| {
            let considered = match (self.fresh.get(&other.id), mine) {
                (None, _) => true,
                // Jobs that fall due in one call come in the order of their times.
                (Some(Some(theirs)), Some(Some(mine))) => theirs < mine,
                (Some(_), _) => false,
            };
            let first = match (&other.group, &job.group) {
                // Jobs without a group come before those of groups, where the pull wants both.
                (None, Some(_)) => waiter.of_groups.wanted == Wanted::Any,
                (theirs, mine) => theirs == mine && other.rank() < job.rank(),
            };
            considered && other.id != id && first
        });
        if let Some(other) = overtaken {
            self.checks.fail(Check::Order, || format!("{job:?}\n  is delivered before {other:?}"));
        }
    }

    /// A pending job is somewhere else although its time has not come.
    pub fn too_early(&self, now_ms: u64, job: &Job, what: &str) {
        let check = match job.attempts {
            _ if job.run_at_ms <= now_ms => Check::State,
            0 => Check::EarlyDelay,
            _ => Check::EarlyBackoff,
        };
        self.checks.fail(check, || {
            format!("{:?} {what} {} ms early", job.id, job.run_at_ms.saturating_sub(now_ms))
        });
    }

    /// A pull was answered empty.
    fn deliver_nothing(&mut self, at: &Moment<'_>, request: u64) {
        let Some(place) = self.waiters.iter().position(|one| one.request == request) else {
            self.checks.fail(Check::Answer, || format!("nobody waits for the answer {request}"));
            return;
        };
        let waiter = self.waiters.remove(place);
        self.must(Check::Answer, waiter.until_ms <= at.now_ms, || {
            format!("pull {request} gives up {} ms early", waiter.until_ms - at.now_ms)
        });
        let before = self.waiters[..place].iter().any(|earlier| earlier.queue == waiter.queue);
        // Jobs that schedules and long commands bring come after waits have ended.
        let in_time = |job: &Job| self.fresh.get(&job.id) != Some(&LAST);
        let none = before
            || self.waits_for_token(&waiter.queue, at.by_clock)
            || !self.is_servable((at.now_ms, at.by_clock), &waiter, in_time);
        self.must(Check::Starved, none, || format!("pull {request} finds nothing: {waiter:?}"));
    }

    fn is_servable(
        &self,
        when: (u64, bool),
        waiter: &Waiter,
        counts: impl Fn(&Job) -> bool,
    ) -> bool {
        let queue = waiter.queue.as_str();
        !self.paused.contains(queue)
            && self.ready(queue).any(|job| counts(job) && self.may_get(when, waiter, job))
            && self.allowance(when.0, queue) > 0
    }

    /// A token that has come is only noticed by the clock.
    fn waits_for_token(&self, queue: &str, by_clock: bool) -> bool {
        let limits = self.limits.get(queue);
        !by_clock && limits.is_some_and(|has| has.per_second.is_some())
    }

    /// The end of every call: nobody waits while there is a job for him.
    pub fn settled(&self, now_ms: u64, by_clock: bool) {
        for waiter in &self.waiters {
            if self.waits_for_token(&waiter.queue, by_clock) {
                continue;
            }
            self.must(
                Check::Starved,
                !self.is_servable((now_ms, by_clock), waiter, |_| true),
                || format!("pull {} waits beside a ready job", waiter.request),
            );
        }
    }

    /// Time has passed: what falls due before anything is delivered.
    pub fn fall_due(&mut self, at: &Moment<'_>) {
        self.end_lives(at.now_ms);
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let job = &self.jobs[&id];
            match &job.state {
                State::Delayed if job.run_at_ms <= at.now_ms => {
                    let since_ms = job.run_at_ms;
                    self.change(id).state = State::Waiting;
                    self.fresh.insert(id, Some(since_ms));
                }
                State::Active(lease) => {
                    let timed_out = lease.timeout_at_ms.is_some_and(|end| end <= at.now_ms);
                    if timed_out {
                        self.retire_token(at.now_ms, id);
                        self.fail_attempt(at, id, Cause::Timeout);
                    } else if self.hold_ends_ms(job, lease) <= at.now_ms
                        && (!self.has_bulk(&job.queue) || at.tells_of_stall(id))
                    {
                        self.stall(at.now_ms, id);
                    }
                }
                _ => {}
            }
        }
        // Jobs that were buried just now may be due to come back.
        self.return_letters(at);
    }

    /// Follows the decisions of the shard, by its records.
    pub fn follow(&mut self, at: &Moment<'_>) {
        for (place, record) in at.records() {
            self.record = Some(place);
            match record {
                Record::Removed { id } => match self.jobs.get(&id) {
                    Some(job) if job.state == State::Gone => {}
                    Some(job) if job.is_over(at.now_ms) && !self.has_bulk(&job.queue) => {
                        self.remove(id);
                    }
                    Some(job) if self.may_drop_letter(job, at.now_ms) => {
                        self.drop_letter(at.now_ms, id);
                    }
                    _ => self.take_in_bulk(at, id, Taken::Removed),
                },
                Record::Revived(Revived { id, by_itself: false, .. })
                    if !self.claimed.remove(&id) =>
                {
                    self.take_in_bulk(at, id, Taken::Revived);
                }
                Record::Changed(Changed::Promoted { id, .. }) if !self.claimed.remove(&id) => {
                    self.take_in_bulk(at, id, Taken::Promoted);
                }
                Record::Changed(Changed::KeyFreed { id }) if self.has_key(id) => {
                    self.take_in_bulk(at, id, Taken::Freed);
                }
                Record::Grouped(grouped) => self.follow_group(at, &grouped),
                Record::CronRan(ran) => self.run_schedule(at, &ran),
                Record::CronMissed { name, next_run_ms } => {
                    self.miss_schedule(at, name, next_run_ms);
                }
                _ => {}
            }
        }
        self.record = None;
    }

    /// The rest, after what was delivered.
    pub fn after_time(&mut self, at: &Moment<'_>) {
        self.note_time(at.now_ms);
        self.check_schedules(at.now_ms);
        self.check_letters(at.now_ms);
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let job = &self.jobs[&id];
            let listed = matches!(job.state, State::Completed { .. });
            if listed && at.shard.find(id).is_none() && self.is_spent(job, at.now_ms) {
                self.change(id).state = State::Gone;
            }
        }
        self.check_retention(at.now_ms);
        let late = self.waiters.iter().find(|waiter| waiter.until_ms <= at.now_ms);
        if let Some(waiter) = late {
            self.checks.fail(Check::Overdue, || format!("{waiter:?} waits too long"));
        }
    }

    fn end_lives(&mut self, now_ms: u64) {
        let over = self.jobs.values().filter(|job| job.is_over(now_ms));
        let over: Vec<JobId> = over.map(|job| job.id).collect();
        for id in over {
            self.remove(id);
            self.fresh.remove(&id);
            self.leaving.insert(id);
        }
    }
}
