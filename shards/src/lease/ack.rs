//! Commands of a worker for a job that it holds: complete it, fail it, stay alive.

use crate::caller::{ClientId, Token};
use crate::command::{Ack, Beat, Fail, Stack};
use crate::compaction::space_forecast::TEXT_KEPT_BYTES;
use crate::dead_letter::reason::Cause;
use crate::effect::{Refusal, Reply};
use crate::event::{Extra, Step};
use crate::job::failures::{REASON_BYTES_MAX, STACK_BYTES_MAX};
use crate::job::id::JobId;
use crate::job::{State, flags};
use crate::lease::Lease;
use crate::lease::backoff::backoff_ms;
use crate::log_record::job_change::{Changed, Flags};
use crate::log_record::{Attempt, Buried, Ended, Journal, Record, Retried};
use crate::shard::{Caller, END_BYTES, FULL, Out, Shard};
use crate::stats::queue_times::Alike;
use crate::traced::Settled;

/// Why an attempt failed.
#[derive(Clone, Copy)]
pub(crate) struct Reason<'a> {
    /// The cause that a dead letter has if this was the last attempt.
    cause: Cause,
    error: &'a str,
    stack: Stack<'a>,
}

/// Jobs of a batch that are checked or renewed in about the time of a step.
const LOOKS_PER_STEP: u64 = 4;

/// Bytes of the completion of a job that is run once besides its result, at most.
const COMPLETED_BYTES: u64 = 56;

impl<'a> Reason<'a> {
    pub(crate) fn new(cause: Cause, error: &'a str) -> Self {
        Self { cause, error, stack: Stack::default() }
    }

    fn bytes(&self) -> u64 {
        (self.error.len() + self.stack.texts.len()) as u64
    }

    /// Cuts the reason to the length that is kept where there is no room for more.
    fn cut(self) -> Self {
        let end = self.error.floor_char_boundary(TEXT_KEPT_BYTES);
        Self { error: &self.error[..end], stack: Stack::default(), ..self }
    }
}

impl Shard {
    /// The active job that `token` entitles to speak for, or why it does not.
    fn held(&self, now_ms: u64, id: JobId, token: Option<Token>) -> Result<u32, Refusal> {
        self.judge_hold(now_ms, id, token).map_err(|refusal| {
            // A worker whose attempt took too long learns that, whatever has become of the job since.
            if self.expired_tokens.has(id, token) { Refusal::TooLate } else { refusal }
        })
    }

    fn judge_hold(&self, now_ms: u64, id: JobId, token: Option<Token>) -> Result<u32, Refusal> {
        let job = self.jobs.find(id).ok_or(Refusal::NotActive)?;
        let about = &self.jobs.slab[job];
        // The jobs of an obliterated queue are gone for workers, although their removal is under way.
        if about.state != State::Active || self.queues[about.queue].detached {
            return Err(Refusal::NotActive);
        }
        let lease = &self.leases[self.jobs.slab[job].detail];
        match (lease.token, token) {
            (None, None) => Ok(job),
            (Some(_), None) => Err(Refusal::TokenRequired),
            (_, Some(Token::ANY)) if now_ms < self.hold_ends_ms(about.detail) => Ok(job),
            (_, Some(Token::ANY)) => Err(Refusal::NotActive),
            (Some(_), Some(shown)) if self.fits_hold(now_ms, job, shown) => Ok(job),
            (_, Some(_)) => Err(Refusal::TokenInvalid),
        }
    }

    /// Whether a token is that of the living lock of an active job.
    pub(crate) fn fits_hold(&self, now_ms: u64, job: u32, token: Token) -> bool {
        let lease = self.jobs.slab[job].detail;
        self.leases[lease].token == Some(token) && now_ms < self.lock_ends_ms(lease)
    }

    pub(crate) fn check_acks(
        &mut self,
        now_ms: u64,
        acks: &[Ack<'_>],
    ) -> Result<Vec<usize>, Reply> {
        self.steps += acks.len() as u64 / LOOKS_PER_STEP;
        let mut verdict = Ok(());
        let mut late = Vec::new();
        let mut checked = 0;
        for (place, ack) in acks.iter().enumerate() {
            match self.held(now_ms, ack.job, ack.token) {
                // The mark finds an id that stands twice in one command.
                Ok(job) if !self.lease_of(job).marked => self.lease_of(job).marked = true,
                Ok(_) => verdict = Err(Reply::Refused { place, refusal: Refusal::NotActive }),
                // Nothing is left to do for it, and the others are not held up by that.
                Err(Refusal::TooLate) => late.push(place),
                Err(refusal) => verdict = Err(Reply::Refused { place, refusal }),
            }
            if verdict.is_err() {
                break;
            }
            checked += 1;
        }
        for ack in &acks[..checked] {
            if let Some(job) = self.jobs.find(ack.job)
                && self.jobs.slab[job].state == State::Active
            {
                self.lease_of(job).marked = false;
            }
        }
        verdict.map(|()| late)
    }

    fn lease_of(&mut self, job: u32) -> &mut Lease {
        &mut self.leases[self.jobs.slab[job].detail]
    }

    pub(crate) fn ack<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        acks: &[Ack<'_>],
        out: &mut Out<'_, J>,
    ) {
        let checked = match acks {
            // The place of the only one is handed on.
            [one] => match self.held(now_ms, one.job, one.token) {
                Ok(job) => Ok(Some((job, one))),
                Err(refusal) => Err(Reply::Refused { place: 0, refusal }),
            },
            many => self.check_acks(now_ms, many).map(|_| None),
        };
        let fits = |checked| if self.takes_acks(acks, out) { Ok(checked) } else { Err(FULL) };
        match checked.and_then(fits) {
            Err(refused) => out.effects.replies.push((caller.request, refused)),
            Ok(Some((job, ack))) => {
                let mut runs = Alike::default();
                self.complete_one(now_ms, job, ack, &mut runs, out);
                self.queues.count_runs(runs);
                out.effects.replies.push((caller.request, Reply::Done));
            }
            Ok(None) => self.complete_held(now_ms, caller, acks, out),
        }
    }

    /// Completes jobs that have been checked.
    fn complete_held<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        acks: &[Ack<'_>],
        out: &mut Out<'_, J>,
    ) {
        let (mut late, mut runs) = (Vec::new(), Alike::default());
        for (place, ack) in acks.iter().enumerate() {
            if !self.expired_tokens.is_empty() && self.held(now_ms, ack.job, ack.token).is_err() {
                late.push(place);
                continue;
            }
            let Some(job) = self.jobs.find(ack.job) else { continue };
            self.complete_one(now_ms, job, ack, &mut runs, out);
        }
        if runs.jobs > 0 {
            self.queues.count_runs(runs);
        }
        let reply = if late.is_empty() { Reply::Done } else { Reply::Late(late.into()) };
        out.effects.replies.push((caller.request, reply));
    }

    /// Completes a job that is held. The caller counts how long those in `runs` ran.
    fn complete_one<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        ack: &Ack<'_>,
        runs: &mut Alike,
        out: &mut Out<'_, J>,
    ) {
        if ack.remove {
            self.flag(job, flags::REMOVE_ON_COMPLETE, out);
        }
        let lease = self.lease_of(job);
        let (started_at_ms, puller) = (lease.started_at_ms, lease.puller);
        if let Some(held) = puller.and_then(|puller| self.clients.get_mut(puller)) {
            held.activity.processed += 1;
        }
        let taken_ms = now_ms.saturating_sub(started_at_ms);
        let (id, result, evicts) = (ack.job, ack.result, self.evicts(job));
        let ended = Ended { id, at_ms: now_ms, started_at_ms, evicts, result };
        self.totals.completed += 1;
        let queue = self.jobs.slab[job].queue;
        self.queues.count_done(queue, now_ms, false);
        if let Some(others) = runs.add(queue, taken_ms) {
            self.queues.count_runs(others);
        }
        if self.has_run_due(now_ms, job) {
            self.complete_run(now_ms, job, ended, out);
            self.write_unreported(ack.job, ack.result, out);
            return;
        }
        let stored = out.journal.append(&Record::Completed(ended));
        self.emit(now_ms, job, Step::Completed { result: stored }, out.effects);
        self.trace_settled(now_ms, job, || Settled::Completed, out.effects);
        self.complete(job, &ended, stored);
        self.write_unreported(ack.job, ack.result, out);
    }

    /// Sets a flag of a job that it does not have yet.
    fn flag<J: Journal>(&mut self, job: u32, flag: u8, out: &mut Out<'_, J>) {
        let about = &self.jobs.slab[job];
        if !about.has(flag) {
            let changed = Changed::Flagged { id: about.id, flag: Flags(flag) };
            self.record_change(job, &Record::Changed(changed), out);
        }
    }

    /// Whether there is room for these ends. The record of a run that another follows is needed for
    /// the next one as well, so that a large result must find room that lasts.
    fn takes_acks<J: Journal>(&self, acks: &[Ack<'_>], out: &mut Out<'_, J>) -> bool {
        let space_forecast = || self.space_forecast();
        let results: u64 = acks.iter().map(|ack| ack.result.len() as u64).sum();
        let count = acks.len() as u64;
        if out.journal.can_append_completion(results + count * END_BYTES, space_forecast)
            && out.journal.can_append_text(results, space_forecast)
        {
            return true;
        }
        // Only now is it worth while to look at each.
        let next =
            |ack: &Ack<'_>| self.jobs.find(ack.job).is_some_and(|job| self.has_next_run(job));
        let runs = || acks.iter().filter(|ack| next(ack));
        let lasting = runs().map(|ack| ack.result.len() as u64);
        let lasting: u64 = lasting.filter(|&bytes| bytes > TEXT_KEPT_BYTES as u64).sum();
        let ends = count * COMPLETED_BYTES + runs().count() as u64 * END_BYTES;
        out.journal.can_append_completion(results + ends, space_forecast)
            && (lasting == 0 || out.journal.can_append_text(lasting, space_forecast))
    }

    pub(crate) fn fail<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        fail: &Fail<'_>,
        out: &mut Out<'_, J>,
    ) {
        match self.held(now_ms, fail.job, fail.token) {
            Err(refusal) => {
                let refused = Reply::Refused { place: 0, refusal };
                out.effects.replies.push((caller.request, refused));
            }
            Ok(_) if !out.journal.can_append_completion(END_BYTES, || self.space_forecast()) => {
                out.effects.replies.push((caller.request, FULL));
            }
            Ok(job) => {
                let queue = self.jobs.slab[job].queue;
                if fail.remove {
                    self.flag(job, flags::REMOVE_ON_FAIL, out);
                }
                let lines_max = self.jobs.extras_of(job).and_then(|extras| extras.stack_lines_max);
                let stack = fail.stack.first(lines_max.unwrap_or(u32::MAX));
                let cause = if fail.unrecoverable { Cause::Explicit } else { Cause::Attempts };
                let reason = Reason { cause, error: fail.error, stack };
                let fits = out
                    .journal
                    .can_append_completion(END_BYTES + reason.bytes(), || self.space_forecast());
                let reason = if fits { reason } else { reason.cut() };
                self.fail_attempt(now_ms, job, reason, fail.unrecoverable, out);
                out.effects.replies.push((caller.request, Reply::Done));
                self.serve(now_ms, queue, out);
            }
        }
    }

    /// Ends an attempt as failed: another follows, or the job is buried.
    pub(crate) fn fail_attempt<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        reason: Reason<'_>,
        unrecoverable: bool,
        out: &mut Out<'_, J>,
    ) {
        self.totals.failed += 1;
        let queue = self.jobs.slab[job].queue;
        self.queues.count_done(queue, now_ms, true);
        let puller = self.lease_of(job).puller;
        if let Some(held) = puller.and_then(|puller| self.clients.get_mut(puller)) {
            held.activity.failed += 1;
        }
        let about = &self.jobs.slab[job];
        let attempts = about.attempts + 1;
        if attempts < about.max_attempts && !unrecoverable {
            let wait_ms = match self.jobs.extras_of(job) {
                Some(extras) => extras.backoff_ms(about.backoff_ms, attempts, about.id),
                None => backoff_ms(about.backoff_ms, attempts, about.id),
            };
            let run_at_ms = now_ms + wait_ms;
            self.totals.retried += 1;
            self.end_attempt(now_ms, job, run_at_ms, (reason, false), out);
            self.emit(now_ms, job, Step::Retried { prev: State::Failed }, out.effects);
        } else {
            let stalls = about.stalls;
            self.bury(now_ms, job, attempts, stalls, reason, out);
        }
    }

    /// Ends an attempt that another follows: it failed, or its worker went silent. How is remembered if the log has room
    /// to spare, and while all that is remembered takes no more than it may; that it did is written in any case.
    pub(crate) fn end_attempt<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        run_at_ms: u64,
        (reason, stalled): (Reason<'_>, bool),
        out: &mut Out<'_, J>,
    ) {
        let about = &self.jobs.slab[job];
        let lease = &self.leases[about.detail];
        let error = &reason.error[..reason.error.floor_char_boundary(REASON_BYTES_MAX)];
        // Applied to the state that it would borrow from.
        let worker: Option<Box<str>> = self.owner_of(lease).map(Into::into);
        let attempt = Attempt {
            number: about.attempts + 1,
            started_at_ms: lease.started_at_ms,
            stalled,
            // That it was the last one is not said of it.
            cause: match reason.cause {
                Cause::Attempts => Cause::Explicit,
                cause => cause,
            },
            worker: worker.as_deref(),
            stack: reason.stack.within(STACK_BYTES_MAX),
        };
        let retried =
            Retried { id: about.id, at_ms: now_ms, run_at_ms, attempt: Some(attempt), error };
        let bytes = Record::Retried(retried).encoded_len() as u64;
        let settled = || Settled::failed(reason.cause, reason.error, false);
        self.trace_settled(now_ms, job, settled, out.effects);
        let remembered = self.jobs.failures.remembered().bytes;
        let lasts = remembered + bytes <= self.config.remembered_bytes_max
            && out.journal.can_append_spare(bytes, || self.space_forecast());
        if stalled && !lasts {
            out.journal.append(&Record::Stalled { id: retried.id });
            self.stall(job);
            return;
        }
        let retried =
            if lasts { retried } else { Retried { attempt: None, error: reason.error, ..retried } };
        let stored = out.journal.append(&Record::Retried(retried));
        if !stalled {
            let step = Step::Failed { error: stored, terminal: false };
            self.emit(now_ms, job, step, out.effects);
        }
        self.retry(job, &retried, stored);
    }

    /// Moves a job to the dead-letter queue, or forgets it if it was pushed so.
    pub(crate) fn bury<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        attempts: u16,
        stalls: u8,
        reason: Reason<'_>,
        out: &mut Out<'_, J>,
    ) {
        let stalled = stalls > self.jobs.slab[job].stalls;
        let cause = if stalled { Cause::Stalled } else { reason.cause };
        let settled = || Settled::failed(cause, reason.error, true);
        self.trace_settled(now_ms, job, settled, out.effects);
        let about = &self.jobs.slab[job];
        let (id, queue) = (about.id, about.queue);
        let removed = about.has(flags::REMOVE_ON_FAIL);
        // Clients that wait for the end, and a parent with a rule for failures, still learn why the job failed, and a
        // record has to hold that. A job that was completed is to be forgotten as one that failed.
        let was_completed = about.state == State::Completed;
        let is_reported = about.has(flags::AWAITED) || self.policy_of(job).is_some();
        if !removed || was_completed || is_reported || self.is_listened_to() {
            let started_at_ms = match about.state {
                State::Active => self.leases[about.detail].started_at_ms,
                _ => self.jobs.outcome_of(job).map_or(0, |how| how.started_at_ms),
            };
            let mut reason = reason;
            let short = reason.bytes() <= TEXT_KEPT_BYTES as u64;
            if !short && !out.journal.can_append_text(reason.bytes(), || self.space_forecast()) {
                reason = reason.cut();
            }
            let Reason { cause, error, stack } = reason;
            let at_ms = now_ms;
            let buried = Buried { id, at_ms, started_at_ms, attempts, stalls, cause, stack, error };
            let stored = out.journal.append(&Record::Buried(buried));
            self.emit(now_ms, job, Step::Failed { error: stored, terminal: true }, out.effects);
            if !removed {
                self.emit_extra(now_ms, job, Extra::Buried, out.effects);
            }
            self.inter(job, &buried, stored);
            self.write_unreported(id, error.as_bytes(), out);
            self.trim_failed(now_ms, queue, out);
        } else {
            out.journal.append(&Record::Removed { id });
            self.remove(job);
        }
        if removed {
            self.remember_failed(id);
        }
    }

    pub(crate) fn renew(
        &mut self,
        now_ms: u64,
        client: ClientId,
        beat: Beat,
    ) -> Result<(), Refusal> {
        self.steps += 1;
        let Beat { job: id, token, ttl_ms } = beat;
        let job = self.held(now_ms, id, token)?;
        let index = self.jobs.slab[job].detail;
        // Renewed from another connection: its worker lives there, so the puller's end is no end.
        if token.is_some() && self.leases[index].client.is_some_and(|puller| puller != client) {
            self.leave_client(index);
        }
        self.extend_lease(now_ms, index, ttl_ms);
        Ok(())
    }

    /// Renews all that are still held, and says which are not.
    pub(crate) fn renew_many(&mut self, now_ms: u64, client: ClientId, beats: &[Beat]) -> Reply {
        self.steps += beats.len() as u64 / LOOKS_PER_STEP;
        let beats_by_place = beats.iter().enumerate();
        let gone = beats_by_place.filter(|(_, beat)| self.renew(now_ms, client, **beat).is_err());
        let places: Box<[usize]> = gone.map(|(place, _)| place).collect();
        let renewed = (beats.len() - places.len()) as u64;
        if places.is_empty() { Reply::Count(renewed) } else { Reply::Gone { renewed, places } }
    }
}
