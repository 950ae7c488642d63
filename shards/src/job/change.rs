//! Changes of a single job by its id, by a client or its worker: cancel it, change it, move it, note something about
//! it.

use crate::caller::Token;
use crate::collections::slab::NONE;
use crate::dead_letter::reason::Cause;
use crate::effect::{Refusal, Reply};
use crate::event::{Extra, Step};
use crate::job::id::JobId;
use crate::job::new_job::NewJob;
use crate::job::progress::{LOGS_MAX, LogEntry, Notes};
use crate::job::{State, flags};
use crate::lease::ack::Reason;
use crate::log_record::job_change::{Changed, Level, Prioritized};
use crate::log_record::location::LogRef;
use crate::log_record::{Given, Journal, Pushed, Record};
use crate::shard::{Caller, FULL, JOB_BYTES, Out, Shard};
use crate::traced::Settled;

/// Why a job is in the dead-letter queue that was sent there by hand.
const DISCARDED: &str = "Job discarded";

/// A change of one job.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Forgets it, unless a worker has it or it has ended.
    Cancel,
    /// Forgets it, ended or not, unless a worker has it.
    Remove,
    /// Gives it another payload, unless it has ended.
    Update {
        /// The job as its record holds it, with the new payload.
        job: &'a NewJob<'a>,
    },
    /// Gives it another priority while it waits or is delayed.
    Prioritize {
        /// The priority.
        priority: i32,
        /// Whether it is the first among its equals to go, or the last; as it was, if not said.
        lifo: Option<bool>,
    },
    /// Ends its delay.
    Promote,
    /// Takes it from its worker, or from where it waits, to be delivered after so many milliseconds.
    PutOff {
        /// The time.
        delay_ms: u64,
        /// The token of the worker's lock, if the client shows one; checked only if it does.
        token: Option<Token>,
    },
    /// Lets it wait for its turn: one that a worker has goes back as it came, one that is delayed is
    /// promoted, one in the dead-letter queue begins anew.
    ToWait {
        /// The token of the worker's lock, if the client shows one; checked only if it does.
        token: Option<Token>,
    },
    /// Keeps the job from delivery until so many milliseconds have passed, whether it waits or a worker has it.
    Delay {
        /// The time.
        delay_ms: u64,
        /// The token of the worker's lock, if the client shows one; checked only if it does.
        token: Option<Token>,
    },
    /// Sends it to the dead-letter queue, wherever it is.
    Discard {
        /// The token of the worker's lock, if the client shows one; checked only if it does.
        token: Option<Token>,
    },
    /// Sends the job to the dead-letter queue for a given reason: a dead letter that comes from elsewhere.
    Bury {
        /// The token of the worker's lock, if the client shows one; checked only if it does.
        token: Option<Token>,
        /// Why, in a word.
        cause: Cause,
        /// Why, at length.
        error: &'a str,
        /// How many attempts failed, if more than here.
        attempts: Option<u16>,
    },
    /// Forgets it if it lies in the dead-letter queue of this queue; answered with how many did.
    Bin {
        /// The queue.
        queue: &'a str,
    },
    /// Takes its deduplication key from it; answered with how many there were.
    FreeKey,
    /// Gives it a child that is there already.
    Adopt {
        /// The child.
        child: JobId,
        /// As its client calls it.
        name: &'a str,
    },
    /// Lets it wait for a child no longer; answered with how many it waited for.
    LetGo {
        /// The child.
        child: JobId,
        /// As its client calls it.
        name: &'a str,
    },
    /// Gives it a parent, or takes that away.
    Link {
        /// The job as its record holds it, with the new payload.
        job: &'a NewJob<'a>,
        /// The parent, as its client calls it.
        parent: Option<&'a str>,
    },
    /// Forgets it as its parent wishes, if it has not begun; answered with how many.
    Abandon,
    /// Takes it from its worker until its children have ended; answered with how many jobs wait now: none
    /// if all have.
    Block {
        /// The token of the worker's lock, if the client shows one; checked only if it does.
        token: Option<Token>,
    },
    /// Forgets its log but for so many lines, the newest.
    CutLog(u32),
    /// Notes the progress that the worker reports, and that the worker is alive.
    Progress {
        /// 0 to 100.
        progress: f64,
        /// The worker's message: the bytes of a text, which was checked where it came in.
        message: Option<&'a [u8]>,
    },
    /// Adds a line to its log.
    Log {
        /// How serious.
        level: Level,
        /// The line.
        message: &'a str,
    },
}

impl<'a> Change<'a> {
    /// Sends a job to the dead-letter queue, for `reason` if its text says anything.
    pub fn discard(
        token: Option<Token>,
        (cause, error): (Cause, &'a str),
        attempts: Option<u64>,
    ) -> Self {
        let attempts = attempts.map(|attempts| attempts.min(u64::from(u16::MAX)) as u16);
        if error.is_empty() && cause == Cause::Unknown && attempts.is_none() {
            return Self::Discard { token };
        }
        let error = if error.is_empty() { DISCARDED } else { error };
        Self::Bury { token, cause, error, attempts }
    }
}

impl Change<'_> {
    /// Why a job that is not known is refused.
    fn refusal(&self) -> Refusal {
        match self {
            Self::Cancel | Self::Remove => Refusal::NotCancellable,
            Self::Update { .. } => Refusal::Ended,
            Self::Prioritize { .. } => Refusal::NotPending,
            Self::Promote => Refusal::NotDelayed,
            Self::PutOff { .. } | Self::Progress { .. } | Self::Block { .. } => Refusal::NotActive,
            Self::ToWait { .. } => Refusal::NotMovable,
            Self::Delay { .. } => Refusal::NotDelayable,
            Self::Discard { .. }
            | Self::Bury { .. }
            | Self::Log { .. }
            | Self::CutLog(_)
            | Self::FreeKey
            | Self::Adopt { .. }
            | Self::LetGo { .. }
            | Self::Link { .. }
            | Self::Abandon
            | Self::Bin { .. } => Refusal::NotFound,
        }
    }

    /// Whether it is about parents and children, and answered with a count.
    fn is_of_family(&self) -> bool {
        matches!(
            self,
            Self::Adopt { .. }
                | Self::LetGo { .. }
                | Self::Link { .. }
                | Self::Abandon
                | Self::Block { .. }
        )
    }

    /// Whether it is only for a job that a worker holds.
    fn is_for_worker(&self) -> bool {
        matches!(self, Self::PutOff { .. } | Self::Progress { .. } | Self::Block { .. })
    }

    /// The token that was shown, if one may be.
    fn token(&self) -> Option<Token> {
        match self {
            Self::PutOff { token, .. }
            | Self::Discard { token }
            | Self::Bury { token, .. }
            | Self::ToWait { token }
            | Self::Delay { token, .. }
            | Self::Block { token } => *token,
            _ => None,
        }
    }

    /// The change from a client that must show the token if the job is locked: without a token it is refused then.
    #[must_use]
    pub fn with_token_if_locked(self) -> Self {
        let shown = |token: Option<Token>| token.or(Some(Token::LACKING));
        match self {
            Self::PutOff { delay_ms, token } => Self::PutOff { delay_ms, token: shown(token) },
            Self::Delay { delay_ms, token } => Self::Delay { delay_ms, token: shown(token) },
            Self::Discard { token } => Self::Discard { token: shown(token) },
            Self::Bury { token, cause, error, attempts } => {
                Self::Bury { token: shown(token), cause, error, attempts }
            }
            Self::ToWait { token } => Self::ToWait { token: shown(token) },
            other => other,
        }
    }

    /// Length of the text that it adds; 0 for what must be possible with a full disk, too.
    fn text_bytes(&self) -> u64 {
        match self {
            Self::Adopt { name, .. } => name.len() as u64 + JOB_BYTES,
            Self::Update { job } | Self::Link { job, .. } => job.bytes() + JOB_BYTES,
            Self::Progress { message: Some(message), .. } => message.len() as u64 + JOB_BYTES,
            Self::Log { message, .. } => message.len() as u64 + JOB_BYTES,
            Self::Bury { error, .. } => error.len() as u64 + JOB_BYTES,
            _ => 0,
        }
    }

    /// Whether it can be done to a job in `state`.
    pub fn fits(&self, state: State) -> bool {
        match self {
            Self::Cancel => {
                matches!(state, State::Waiting | State::Delayed | State::WaitingChildren)
            }
            Self::Remove => !matches!(state, State::Active | State::Vacant),
            Self::Prioritize { .. } => matches!(state, State::Waiting | State::Delayed),
            Self::Update { .. } | Self::Adopt { .. } => !state.is_end(),
            Self::Promote => state == State::Delayed,
            Self::Progress { .. } | Self::Block { .. } => state == State::Active,
            Self::ToWait { .. } => {
                !matches!(state, State::Completed | State::WaitingChildren | State::Vacant)
            }
            Self::PutOff { .. } | Self::Delay { .. } => {
                matches!(state, State::Waiting | State::Delayed | State::Active)
            }
            Self::Discard { .. }
            | Self::Bury { .. }
            | Self::Log { .. }
            | Self::CutLog(_)
            | Self::FreeKey
            | Self::LetGo { .. }
            | Self::Link { .. }
            | Self::Abandon
            | Self::Bin { .. } => true,
        }
    }
}

impl Shard {
    pub(crate) fn change<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        id: JobId,
        change: &Change<'_>,
        out: &mut Out<'_, J>,
    ) {
        let found = self.jobs.find(id).filter(|&job| change.fits(self.jobs.slab[job].state));
        if let (Some(job), Some(token)) = (found, change.token())
            && let Err(refusal) = self.check_shown(now_ms, job, token)
        {
            let refused = Reply::Refused { place: 0, refusal };
            out.effects.replies.push((caller.request, refused));
            return;
        }
        if let Some(job) = found
            && !self.takes_change(job, change, out)
        {
            out.effects.replies.push((caller.request, FULL));
            return;
        }
        let found = found.filter(|&job| !change.is_for_worker() || !self.is_overdue(job, now_ms));
        let reply = match (found, change) {
            (Some(job), Change::Bin { queue }) => {
                Reply::Count(u64::from(self.bin(now_ms, job, queue, out)))
            }
            (Some(job), Change::FreeKey) => {
                Reply::Count(u64::from(self.free_key_of(now_ms, job, out)))
            }
            (Some(job), _) if change.is_of_family() => {
                let queue = self.jobs.slab[job].queue;
                let count = self.change_family(now_ms, job, change, out);
                self.serve(now_ms, queue, out);
                Reply::Count(count)
            }
            // The job is not there, which is the outcome that these changes ask for.
            (None, Change::Bin { .. } | Change::LetGo { .. } | Change::Abandon) => Reply::Count(0),
            (Some(job), _) => {
                let queue = self.jobs.slab[job].queue;
                self.change_one(now_ms, job, change, out);
                self.serve(now_ms, queue, out);
                Reply::Done
            }
            (None, _) => Reply::Refused { place: 0, refusal: change.refusal() },
        };
        out.effects.replies.push((caller.request, reply));
    }

    /// Whether a token that was shown is that of the delivery which holds the job, if one does.
    fn check_shown(&self, now_ms: u64, job: u32, token: Token) -> Result<(), Refusal> {
        let about = &self.jobs.slab[job];
        if about.state != State::Active {
            return Ok(());
        }
        let is_locked = self.leases[about.detail].token.is_some();
        match token {
            Token::LACKING if is_locked => Err(Refusal::TokenRequired),
            Token::LACKING => Ok(()),
            shown if self.fits_hold(now_ms, job, shown) => Ok(()),
            _ => Err(Refusal::TokenInvalid),
        }
    }

    fn takes_change<J: Journal>(
        &self,
        job: u32,
        change: &Change<'_>,
        out: &mut Out<'_, J>,
    ) -> bool {
        let space_forecast = || self.space_forecast();
        match change {
            Change::Progress { message: None, .. } if self.jobs.slab[job].options == NONE => {
                out.journal.can_append_text(JOB_BYTES, space_forecast)
            }
            _ => match change.text_bytes() {
                0 => true,
                // The caller has checked the room for its whole command; other jobs may have come meanwhile.
                bytes if matches!(change, Change::Adopt { .. }) => {
                    out.journal.can_append_text(bytes, space_forecast)
                }
                bytes => out.journal.can_append_new(bytes, space_forecast),
            },
        }
    }

    fn change_one<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        change: &Change<'_>,
        out: &mut Out<'_, J>,
    ) {
        let about = &self.jobs.slab[job];
        let id = about.id;
        let changed = match *change {
            Change::Cancel | Change::Remove => {
                self.remove_one(now_ms, job, out);
                return;
            }
            Change::Discard { .. } => {
                self.discard(now_ms, job, None, Reason::new(Cause::Unknown, DISCARDED), out);
                return;
            }
            Change::Bury { cause, error, attempts, .. } => {
                self.discard(now_ms, job, attempts, Reason::new(cause, error), out);
                return;
            }
            Change::Update { job: new } => {
                let (queue, run_at_ms) = (self.queues[about.queue].name.clone(), about.run_at_ms);
                let updated = Pushed { id, queue: &queue, run_at_ms, job: Given::Lent(new) };
                // All of it is written, not only the payload: one record still tells all of a job.
                self.unshare(job);
                let stored = self.write_job(job, updated, out.journal);
                self.restore_at(job, stored);
                if new.durable {
                    out.journal.require_sync();
                }
                self.emit_extra(now_ms, job, Extra::Updated, out.effects);
                return;
            }
            Change::ToWait { .. } => {
                self.let_wait(now_ms, job, out);
                return;
            }
            Change::CutLog(keep) => Changed::LogCut { id, keep },
            Change::FreeKey => Changed::KeyFreed { id },
            // These have ways of their own.
            Change::Bin { .. }
            | Change::Adopt { .. }
            | Change::LetGo { .. }
            | Change::Link { .. }
            | Change::Abandon
            | Change::Block { .. } => return,
            Change::Prioritize { priority, lifo } => {
                Changed::Prioritized(Prioritized { id, priority, lifo })
            }
            Change::Promote => Changed::Promoted { id, at_ms: now_ms },
            Change::PutOff { delay_ms, .. } | Change::Delay { delay_ms, .. } => {
                if about.state == State::Active {
                    self.renew_ttl(now_ms, job, out);
                    self.trace_settled(now_ms, job, || Settled::GivenBack, out.effects);
                }
                Changed::PutOff { id, at_ms: now_ms, run_at_ms: now_ms + delay_ms }
            }
            Change::Progress { progress, message } => {
                self.extend_lease(now_ms, about.detail, None);
                Changed::Progressed { id, progress, message }
            }
            Change::Log { level, message } => Changed::Logged { id, at_ms: now_ms, level, message },
        };
        self.record_change(job, &Record::Changed(changed), out);
        match *change {
            Change::PutOff { .. } => self.emit_delay(now_ms, job, out.effects),
            Change::Delay { delay_ms, .. } => {
                self.emit_extra(now_ms, job, Extra::DelayChanged { delay_ms }, out.effects);
                self.emit_delay(now_ms, job, out.effects);
            }
            Change::Promote => self.emit_extra(now_ms, job, Extra::Promoted, out.effects),
            Change::Prioritize { .. } => {
                let priority = self.jobs.slab[job].priority;
                self.emit_extra(now_ms, job, Extra::Prioritized { priority }, out.effects);
            }
            Change::Progress { progress, .. } => {
                self.emit(now_ms, job, Step::Progress(progress), out.effects);
            }
            _ => {}
        }
    }

    /// Carries out [`Change::ToWait`].
    fn let_wait<J: Journal>(&mut self, now_ms: u64, job: u32, out: &mut Out<'_, J>) {
        let about = &self.jobs.slab[job];
        let (id, prev) = (about.id, about.state);
        if matches!(prev, State::Delayed | State::Active) {
            // Of one that is revived, the record of that says it.
            self.renew_ttl(now_ms, job, out);
        }
        let about = &self.jobs.slab[job];
        match prev {
            State::Delayed => self.promote_one(now_ms, job, out),
            State::Failed => self.revive_one(now_ms, job, false, out),
            State::Active => {
                if self.leases[about.detail].token.is_some() {
                    out.journal.append(&Record::Released { id });
                }
                self.trace_settled(now_ms, job, || Settled::GivenBack, out.effects);
                self.release(job);
                self.emit(now_ms, job, Step::Retried { prev }, out.effects);
            }
            _ => {}
        }
    }

    /// A job goes on where its ttl counts, by a command: it lives for its ttl from now on. Else it might go at once, although
    /// the answer says that it waits.
    pub(crate) fn renew_ttl<J: Journal>(&mut self, now_ms: u64, job: u32, out: &mut Out<'_, J>) {
        let ttl_ms = self.jobs.options_of(job).map_or(0, |has| has.ttl_ms);
        if ttl_ms > 0 {
            self.tell_clock(now_ms, out.journal);
            let id = self.jobs.slab[job].id;
            let renewed = Changed::Renewed { id, until_ms: now_ms.saturating_add(ttl_ms) };
            self.record_change(job, &Record::Changed(renewed), out);
        }
    }

    /// Ends the delay of a job.
    pub(crate) fn promote_one<J: Journal>(&mut self, at_ms: u64, job: u32, out: &mut Out<'_, J>) {
        let id = self.jobs.slab[job].id;
        self.record_change(job, &Record::Changed(Changed::Promoted { id, at_ms }), out);
        self.emit_extra(at_ms, job, Extra::Promoted, out.effects);
    }

    pub(crate) fn record_change<J: Journal>(
        &mut self,
        job: u32,
        record: &Record<'_>,
        out: &mut Out<'_, J>,
    ) {
        let stored = out.journal.append(record);
        if let Record::Changed(changed) = record {
            self.apply_change(job, changed, stored);
        }
    }

    /// [`Record::Changed`]: the mutation, for live commands and recovery alike.
    pub(crate) fn apply_change(&mut self, job: u32, changed: &Changed<'_>, stored: LogRef) {
        match *changed {
            Changed::Prioritized(Prioritized { priority, lifo, .. }) => {
                let state = self.jobs.slab[job].state;
                let turn = self.turn_of_group(job);
                self.leave(job);
                self.jobs.slab[job].priority = priority;
                match lifo {
                    Some(true) => self.jobs.slab[job].flags |= flags::LIFO,
                    Some(false) => self.jobs.slab[job].flags &= !flags::LIFO,
                    None => {}
                }
                self.enter(job, state);
                // The job has a new place within its group. The place of the group among others stays.
                self.give_turn(job, turn);
            }
            Changed::Promoted { at_ms, .. } => {
                self.leave(job);
                self.jobs.slab[job].run_at_ms = at_ms;
                self.enter(job, State::Waiting);
            }
            Changed::PutOff { at_ms, run_at_ms, .. } => {
                let waits = self.jobs.slab[job].state == State::Waiting && run_at_ms <= at_ms;
                let turn = self.turn_of_group(job).filter(|_| waits);
                self.leave(job);
                self.jobs.slab[job].run_at_ms = run_at_ms;
                self.enter(job, if run_at_ms > at_ms { State::Delayed } else { State::Waiting });
                self.give_turn(job, turn);
            }
            Changed::Progressed { progress, message, .. } => {
                let message = message.map(|_| stored);
                let notes = self.notes_of(job);
                notes.progress = progress;
                let before = std::mem::replace(&mut notes.message, message);
                self.live.replace(before, message);
            }
            Changed::Logged { at_ms, level, .. } => {
                self.notes_of(job).log(LogEntry { at_ms, level, stored });
                self.live.add(&stored);
                self.live.add_lines(1);
                let most = self.jobs.extras_of(job).and_then(|extras| extras.keep_logs);
                self.shorten_log(job, most.map_or(LOGS_MAX, |most| (most as usize).min(LOGS_MAX)));
            }
            Changed::KeyFreed { .. } => self.forget_key(job),
            Changed::KeyExtended { until_ms, .. } => self.hold_key_until(job, until_ms),
            Changed::Renewed { until_ms, .. } => {
                let state = self.jobs.slab[job].state;
                if let Some(options) = self.jobs.options_of_mut(job) {
                    options.expires_at_ms = until_ms;
                }
                // Where it waits, its deadline is another one now.
                if state == State::Delayed {
                    self.leave(job);
                    self.enter(job, state);
                }
            }
            Changed::LogCut { keep, .. } => self.shorten_log(job, keep as usize),
            Changed::Flagged { flag, .. } => self.jobs.slab[job].flags |= flag.0 & flags::PUSHED,
        }
    }

    fn shorten_log(&mut self, job: u32, most: usize) {
        let options = self.jobs.options_of_mut(job);
        let Some(notes) = options.and_then(|has| has.notes.as_deref_mut()) else { return };
        while let Some(line) = notes.shorten(most) {
            self.live.sub(&line.stored);
            self.live.sub_lines(1);
        }
    }

    /// The notes about a job, made if it had none.
    fn notes_of(&mut self, job: u32) -> &mut Notes {
        self.jobs.options_or_new(job).notes.get_or_insert_default()
    }

    /// A job that is to be run anew has come nowhere yet. Its log stays.
    pub(crate) fn forget_progress(&mut self, job: u32) {
        if self.jobs.options_of(job).is_some_and(|has| has.notes.is_some()) {
            let notes = self.notes_of(job);
            notes.progress = 0.0;
            let before = notes.message.take();
            self.live.replace(before, None);
        }
    }

    /// Whether the hold on an active job has run out, though its timer has not been served yet: then
    /// it is as good as stalled.
    fn is_overdue(&self, job: u32, now_ms: u64) -> bool {
        let about = &self.jobs.slab[job];
        about.state == State::Active && self.hold_ends_ms(about.detail) <= now_ms
    }

    /// Gives a lease its whole life again, or another one for this time.
    pub(crate) fn extend_lease(&mut self, now_ms: u64, lease: u32, ttl_ms: Option<u32>) {
        let seen_at_ms = now_ms.saturating_sub(self.lease_put_off_ms(lease));
        let about = &mut self.leases[lease];
        about.seen_at_ms = seen_at_ms;
        about.expires_at_ms = seen_at_ms + u64::from(ttl_ms.unwrap_or(about.ttl_ms));
        self.rearm_lease(lease);
    }
}
