//! Limits of a queue: how many jobs may leave it per second, and how many of them may be active at a
//! time. Only queues that have a limit hold any of this; the others pay for one look at a pointer.
//!
//! The rate is a token bucket that holds the tokens of one span, a second if nothing else is said, and is full
//! at first and after a restart. Whole numbers only: in a millisecond, a rate of n per span brings n parts of a
//! token, of which there are as many as the span has milliseconds.

use crate::collections::deadline_heap::Timed;
use crate::collections::slab::NONE;
use crate::effect::Reply;
use crate::event::Extra;
use crate::log_record::location::LogRef;
use crate::log_record::{Journal, Limited, Record};
use crate::queue::Queues;
use crate::queue::limit::{Limit, PerSpan};
use crate::shard::{Caller, FULL, Out, SETTING_BYTES, SLICE, Shard, TOO_MANY_SETTINGS};

/// The limits of one queue.
#[derive(Clone, Debug)]
pub struct Limits {
    rate: Option<Rate>,
    active_max: Option<u32>,
    /// The records that set them.
    rate_in: Option<LogRef>,
    active_in: Option<LogRef>,
    /// Place of the deadline at which a waiting pull gets the next token, or the rate ends; or `NONE`.
    timer: u32,
    /// When that is.
    timer_at_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: None,
            active_max: None,
            rate_in: None,
            active_in: None,
            timer: NONE,
            timer_at_ms: 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    set: PerSpan,
    /// Parts of tokens in the bucket at `at_ms`.
    level: u64,
    at_ms: u64,
}

impl Rate {
    fn full(set: PerSpan) -> Self {
        Self { set, level: u64::from(set.jobs) * u64::from(set.span_ms), at_ms: 0 }
    }

    /// Parts that make a token.
    fn token(&self) -> u64 {
        u64::from(self.set.span_ms)
    }

    fn refill(&mut self, now_ms: u64) {
        let jobs = u64::from(self.set.jobs);
        let brought = now_ms.saturating_sub(self.at_ms).saturating_mul(jobs);
        self.level = self.level.saturating_add(brought).min(jobs * self.token());
        self.at_ms = now_ms;
    }

    /// When there will be so many tokens.
    fn tokens_ms(&self, tokens: u64) -> u64 {
        let missing = (tokens * self.token()).saturating_sub(self.level);
        self.at_ms + missing.div_ceil(u64::from(self.set.jobs))
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.set.until_ms > 0 && self.set.until_ms <= now_ms
    }
}

impl Limits {
    /// How fast jobs may leave; `None` for any speed.
    pub fn rate(&self) -> Option<PerSpan> {
        self.rate.map(|rate| rate.set)
    }

    /// For how long from now on nothing leaves until there are so many tokens, at most a full bucket of them.
    pub fn wait_ms(&self, now_ms: u64, tokens: u64) -> u64 {
        let Some(mut rate) = self.rate else { return 0 };
        rate.refill(now_ms);
        rate.tokens_ms(tokens.clamp(1, u64::from(rate.set.jobs))).saturating_sub(now_ms)
    }

    /// When the queue has given so many jobs from now on, as far as the rate decides; `now_ms` if there is no rate.
    pub(crate) fn given_ms(&self, now_ms: u64, jobs: u64) -> u64 {
        let Some(mut rate) = self.rate.filter(|rate| !rate.is_over(now_ms)) else { return now_ms };
        rate.refill(now_ms);
        let parts = u128::from(jobs) * u128::from(rate.token());
        let missing = parts.saturating_sub(u128::from(rate.level));
        let wait_ms = missing.div_ceil(u128::from(rate.set.jobs));
        now_ms.saturating_add(u64::try_from(wait_ms).unwrap_or(u64::MAX))
    }

    /// Jobs that may be active at a time; `None` for any number.
    pub fn active_max(&self) -> Option<u32> {
        self.active_max
    }

    /// Whether a deadline is set.
    pub fn is_timed(&self) -> bool {
        self.timer != NONE
    }

    /// How many jobs may leave now, if `active` are active.
    pub fn allowance(&mut self, now_ms: u64, active: u64) -> u64 {
        let room = self.active_max.map_or(u64::MAX, |max| u64::from(max).saturating_sub(active));
        let Some(rate) = self.rate.as_mut().filter(|rate| !rate.is_over(now_ms)) else {
            return room;
        };
        rate.refill(now_ms);
        room.min(rate.level / rate.token())
    }

    /// Takes the tokens of jobs that leave, which `allowance` let.
    pub fn spend(&mut self, jobs: u64) {
        if let Some(rate) = &mut self.rate {
            // A rate that is over bounds nothing, and may be overdrawn.
            rate.level = rate.level.saturating_sub(jobs.saturating_mul(rate.token()));
        }
    }

    fn set(&mut self, limit: Limit) {
        match limit {
            Limit::Rate(None) => self.rate = None,
            Limit::Rate(Some(set)) => {
                // A new rate is no new bucket: saying it again and again brings no tokens.
                let spent = self.rate.map(|old| {
                    let tokens = u128::from(old.level) * u128::from(set.span_ms);
                    let level = (tokens / u128::from(old.token())) as u64;
                    let level = level.min(Rate::full(set).level);
                    Rate { set, level, at_ms: old.at_ms }
                });
                self.rate = Some(spent.unwrap_or(Rate::full(set)));
            }
            Limit::Active(max) => self.active_max = max,
        }
    }

    /// The record that set a limit of this kind, if there is one.
    pub(crate) fn set_in(&self, limit: Limit) -> Option<LogRef> {
        match limit {
            Limit::Rate(_) => self.rate_in,
            Limit::Active(_) => self.active_in,
        }
    }

    /// The records that set the limits there are.
    pub(crate) fn all_set_in(&self) -> impl Iterator<Item = LogRef> + use<> {
        self.rate_in.into_iter().chain(self.active_in)
    }

    /// A limit of this kind was set by `stored`, or there is none any more. Returns what set it before.
    pub(crate) fn note_set(&mut self, limit: Limit, stored: Option<LogRef>) -> Option<LogRef> {
        let place = match limit {
            Limit::Rate(_) => &mut self.rate_in,
            Limit::Active(_) => &mut self.active_in,
        };
        std::mem::replace(place, stored)
    }

    fn has(&self, limit: Limit) -> bool {
        match limit {
            Limit::Rate(rate) => self.rate() == rate,
            Limit::Active(max) => self.active_max == max,
        }
    }

    fn is_none(&self) -> bool {
        self.rate.is_none() && self.active_max.is_none()
    }
}

impl Timed for Queues {
    fn place(&mut self, key: u32, place: u32) {
        if let Some(limits) = &mut self[key].limits {
            limits.timer = place;
        }
    }
}

impl Shard {
    pub(crate) fn limit<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        name: &str,
        limit: Limit,
        out: &mut Out<'_, J>,
    ) {
        let known = self.queues.find(name);
        if let Some(limits) = known.and_then(|queue| self.queues[queue].limits.as_mut())
            && let Some(rate) = &mut limits.rate
        {
            // Time until now counts at the old rate.
            rate.refill(now_ms);
        }
        let limits = known.and_then(|queue| self.queues[queue].limits.as_deref());
        if !limits.map_or_else(|| Limits::default().has(limit), |limits| limits.has(limit)) {
            let set = !matches!(limit, Limit::Rate(None) | Limit::Active(None));
            let bytes = SETTING_BYTES + name.len() as u64;
            if set && self.queues.refuses_settings(known) {
                out.effects.replies.push((caller.request, TOO_MANY_SETTINGS));
                return;
            }
            if set && !out.journal.can_append_text(bytes, || self.space_forecast()) {
                out.effects.replies.push((caller.request, FULL));
                return;
            }
            if matches!(limit, Limit::Rate(Some(rate)) if rate.until_ms > 0) {
                self.tell_clock(now_ms, out.journal);
            }
            let stored = out.journal.append(&Record::Limited(Limited { queue: name, limit }));
            let queue = self.set_limit(name, limit, stored);
            let extra = match limit {
                Limit::Rate(Some(rate)) => Extra::RateLimited { jobs: rate.jobs },
                Limit::Rate(None) => Extra::RateCleared,
                Limit::Active(Some(jobs)) => Extra::ConcurrencyLimited { jobs },
                Limit::Active(None) => Extra::ConcurrencyCleared,
            };
            self.emit_extra_of_queue(now_ms, name, extra, out.effects);
            self.serve(now_ms, queue, out);
        }
        out.effects.replies.push((caller.request, Reply::Done));
    }

    /// Applies [`Record::Limited`].
    pub(crate) fn set_limit(&mut self, name: &str, limit: Limit, stored: LogRef) -> u32 {
        let queue = self.queues.find_or_insert(name);
        let mut limits =
            self.queues.change_settings(queue, |about| about.limits.take()).unwrap_or_default();
        limits.set(limit);
        let set = !matches!(limit, Limit::Rate(None) | Limit::Active(None));
        let before = limits.note_set(limit, set.then_some(stored));
        self.live.replace(before, set.then_some(stored));
        let timer = limits.timer;
        self.queues.change_settings(queue, |about| about.limits = Some(limits));
        // Pulls that wait are served, and the deadline set again, by the rules as they are now.
        if timer != NONE {
            self.limit_timers.remove(timer, &mut self.queues);
        }
        if self.queues[queue].limits.as_deref().is_some_and(Limits::is_none) {
            self.queues.change_settings(queue, |about| about.limits = None);
        }
        self.await_limits(queue, u64::MAX);
        queue
    }

    /// Takes back both limits of a queue.
    pub(crate) fn clear_limits<J: Journal>(&mut self, name: &str, out: &mut Out<'_, J>) {
        let limits = self.queues.find(name).and_then(|queue| self.queues[queue].limits.as_deref());
        let Some(limits) = limits.cloned() else { return };
        let rate = limits.rate().map(|_| Limit::Rate(None));
        let active = limits.active_max().map(|_| Limit::Active(None));
        for limit in [rate, active].into_iter().flatten() {
            let stored = out.journal.append(&Record::Limited(Limited { queue: name, limit }));
            self.set_limit(name, limit, stored);
        }
    }

    /// How many jobs may leave a queue now.
    pub(crate) fn allowance(&mut self, now_ms: u64, queue: u32) -> u64 {
        let active = self.queues[queue].count(crate::job::State::Active);
        match &mut self.queues[queue].limits {
            None => u64::MAX,
            Some(limits) => limits.allowance(now_ms, active),
        }
    }

    /// Pulls wait at this queue and got nothing: if it is for want of a token, they are served when
    /// the next one comes.
    pub(crate) fn await_token(&mut self, queue: u32) {
        let about = &self.queues[queue];
        let Some(limits) = about.limits.as_deref() else { return };
        let Some(rate) = limits.rate.filter(|rate| rate.level < rate.token()) else { return };
        if !about.is_paused() && (self.is_unseen(queue) || about.has_deliverable(&self.jobs)) {
            self.await_limits(queue, rate.tokens_ms(1));
        }
    }

    /// Sets the deadline of a queue's limits: at `token_ms`, or earlier if the rate ends or a deadline
    /// stands before that.
    fn await_limits(&mut self, queue: u32, token_ms: u64) {
        let Some(limits) = self.queues[queue].limits.as_deref() else { return };
        let until_ms = limits.rate.map_or(0, |rate| rate.set.until_ms);
        let at_ms = if until_ms > 0 { token_ms.min(until_ms) } else { token_ms };
        let (timer, stands_ms) = (limits.timer, limits.timer_at_ms);
        if at_ms == u64::MAX || timer != NONE && stands_ms <= at_ms {
            return;
        }
        if timer != NONE {
            self.limit_timers.remove(timer, &mut self.queues);
        }
        if let Some(limits) = self.queues[queue].limits.as_deref_mut() {
            limits.timer_at_ms = at_ms;
            self.limit_timers.insert(at_ms, queue, &mut self.queues);
        }
    }

    /// Tokens that have come.
    pub(crate) fn bring_tokens<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(queue) = self.limit_timers.due(now_ms) else { return };
            let place = self.queues[queue].limits.as_deref().map_or(0, |limits| limits.timer);
            self.limit_timers.remove(place, &mut self.queues);
            let rate = self.queues[queue].limits.as_deref().and_then(|limits| limits.rate);
            if rate.is_some_and(|rate| rate.is_over(now_ms)) {
                let name = self.queues[queue].name.clone();
                let limit = Limit::Rate(None);
                let stored = out.journal.append(&Record::Limited(Limited { queue: &name, limit }));
                self.set_limit(&name, limit, stored);
            }
            self.await_limits(queue, u64::MAX);
            self.serve(now_ms, queue, out);
        }
    }

    /// Notes that a job of `queue` is no longer active: there may be room for another.
    pub(crate) fn note_room(&mut self, queue: u32) {
        let limited = self.queues[queue].limits.as_deref();
        if limited.is_some_and(|limits| limits.active_max.is_some())
            && !self.recovering
            && self.with_room.last() != Some(&queue)
        {
            self.with_room.push(queue);
        }
    }

    /// Serves the pulls that wait where room has been made.
    pub(crate) fn fill_room<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        while let Some(queue) = self.with_room.pop() {
            self.serve(now_ms, queue, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a rate that drifts by rounding.
    #[test]
    fn in_any_span_a_bucket_gives_its_size_and_its_rate_and_never_more() {
        for per_second in [1, 3, 7, 999, 1000, 1001, u32::MAX] {
            let mut limits = Limits::default();
            limits.set(Limit::Rate(Some(PerSpan::per_second(per_second))));
            let start_ms = 1_700_000_000_000;
            let mut given = 0;
            for step in 0..=30_000 {
                let now_ms = start_ms + step;
                let allowed = limits.allowance(now_ms, 0);
                limits.spend(allowed);
                given += allowed;
                let due = u64::from(per_second) + step * u64::from(per_second) / 1000;
                assert_eq!(given, due, "{per_second} a second, after {step} ms");
            }
        }
    }

    #[test]
    fn the_next_token_comes_when_it_was_said_to_and_not_before() {
        for per_second in [1, 3, 7, 999, 5000] {
            let mut limits = Limits::default();
            limits.set(Limit::Rate(Some(PerSpan::per_second(per_second))));
            let mut now_ms = 1_700_000_000_000;
            for _ in 0..50 {
                let allowed = limits.allowance(now_ms, 0);
                limits.spend(allowed);
                let next_ms = limits.rate.map(|rate| rate.tokens_ms(1));
                assert!(next_ms > Some(now_ms));
                assert_eq!(limits.allowance(next_ms.unwrap_or(0) - 1, 0), 0);
                now_ms = next_ms.unwrap_or(0);
                assert!(limits.allowance(now_ms, 0) > 0);
            }
        }
    }

    #[test]
    fn a_rate_of_any_span_gives_what_it_says_and_a_changed_one_brings_no_burst() {
        for (jobs, span_ms) in [(1, 1), (3, 7000), (5, 2000), (1000, 60_000), (1, 86_400_000)] {
            let set = PerSpan { jobs, span_ms, until_ms: 0 };
            let mut limits = Limits::default();
            limits.set(Limit::Rate(Some(set)));
            let start_ms = 1_700_000_000_000;
            let mut given = 0;
            for step in 0..=20_000 {
                let allowed = limits.allowance(start_ms + step, 0);
                limits.spend(allowed);
                given += allowed;
                let due = u64::from(jobs) + step * u64::from(jobs) / u64::from(span_ms);
                assert_eq!(given, due, "{jobs} in {span_ms} ms, after {step} ms");
            }
            let longer = PerSpan { jobs, span_ms: span_ms.saturating_mul(3), until_ms: 0 };
            limits.set(Limit::Rate(Some(longer)));
            assert_eq!(limits.allowance(start_ms + 20_000, 0), 0);
        }
    }
}
