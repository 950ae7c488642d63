//! Rules of a queue: what becomes of jobs in its dead-letter queue by themselves, and when its workers
//! count as silent. Only queues that have a rule hold any of this; the others pay for one look at a pointer.
//!
//! Rules hold for all jobs of the queue as soon as they are set. A deadline that follows from one (of a job in
//! the dead-letter queue, of a lease) is never written: it is computed from the rule and from what the records
//! of the job say, and computed again when the rule changes or the server starts.

use crate::collections::slab::NONE;
use crate::effect::Reply;
use crate::job::{Redelivered, State};
use crate::log_record::location::LogRef;
use crate::log_record::{Journal, Record, Ruled};
use crate::shard::{Caller, FULL, JOB_BYTES, Out, SETTING_BYTES, SLICE, Shard, TOO_MANY_SETTINGS};

/// Stalls after which a job goes to the dead-letter queue, if its queue does not say.
pub const STALLS_MAX_DEFAULT: u8 = 3;

/// Wait before a job is taken out of the dead-letter queue, if its queue does not say.
pub const RETRY_INTERVAL_MS_DEFAULT: u64 = 3_600_000;

/// How often a job is taken out of it, if its queue does not say.
pub const RETRIES_MAX_DEFAULT: u32 = 3;

/// Time after a pull in which no silence counts, if its queue does not say.
pub const GRACE_MS_DEFAULT: u32 = 5_000;

/// Until the next look whether there is room for a retry again.
const NO_ROOM_PAUSE_MS: u64 = 1000;

/// The longest wait between two of these retries.
const RETRY_WAIT_MS_MAX: u64 = 365 * 86_400_000;

/// Automatic retries and removals of a queue's dead letters. By default, there are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DlqRule {
    /// Whether they are taken out to be tried anew.
    pub auto_retry: bool,
    /// How long after their failure; doubled each time from the third on.
    pub retry_interval_ms: u64,
    /// How often each.
    pub retries_max: u32,
    /// How long after their failure they have expired: they are tried anew no more, and removed a while later; never, if
    /// `None`.
    pub age_max_ms: Option<u64>,
    /// How many there may be: beyond that the oldest are removed. At least 1, or any number.
    pub entries_max: Option<u32>,
}

impl Default for DlqRule {
    fn default() -> Self {
        Self {
            auto_retry: false,
            retry_interval_ms: RETRY_INTERVAL_MS_DEFAULT,
            retries_max: RETRIES_MAX_DEFAULT,
            age_max_ms: None,
            entries_max: None,
        }
    }
}

/// When workers of a queue count as silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StallRule {
    /// Whether they do but for the end of a lock.
    pub enabled: bool,
    /// After what time without a sign of life. If not said, after that of the lock, or after 30 seconds where
    /// there is none.
    pub interval_ms: Option<u32>,
    /// Stalls after which a job goes to the dead-letter queue; 0 for any number.
    pub stalls_max: u8,
    /// Time after the pull in which silence does not count.
    pub grace_ms: u32,
}

impl Default for StallRule {
    fn default() -> Self {
        Self {
            enabled: true,
            interval_ms: None,
            stalls_max: STALLS_MAX_DEFAULT,
            grace_ms: GRACE_MS_DEFAULT,
        }
    }
}

/// A rule of a queue, with its new content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// For the dead-letter queue.
    Dlq(DlqRule),
    /// For silent workers.
    Stall(StallRule),
}

impl Rule {
    /// Whether it is that of a queue that says nothing.
    pub fn is_default(&self) -> bool {
        match self {
            Self::Dlq(rule) => *rule == DlqRule::default(),
            Self::Stall(rule) => *rule == StallRule::default(),
        }
    }
}

/// Parts of a rule that are to change. What is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RulePatch {
    /// Of the one for the dead-letter queue.
    Dlq(DlqPatch),
    /// Of the one for silent workers.
    Stall(StallPatch),
}

/// See [`DlqRule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "one per field of the rule, which describes them")]
#[allow(
    clippy::option_option,
    reason = "a bound that stays and one that goes are different things"
)]
pub struct DlqPatch {
    pub auto_retry: Option<bool>,
    pub retry_interval_ms: Option<u64>,
    pub retries_max: Option<u32>,
    pub age_max_ms: Option<Option<u64>>,
    pub entries_max: Option<Option<u32>>,
}

/// See [`StallRule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "one per field of the rule, which describes them")]
pub struct StallPatch {
    pub enabled: Option<bool>,
    pub interval_ms: Option<u32>,
    pub stalls_max: Option<u8>,
    pub grace_ms: Option<u32>,
}

impl RulePatch {
    /// The rule that it makes of those of a queue.
    fn of(self, rules: &Rules) -> Rule {
        let Rules { dlq, stall, .. } = rules;
        match self {
            Self::Dlq(patch) => Rule::Dlq(DlqRule {
                auto_retry: patch.auto_retry.unwrap_or(dlq.auto_retry),
                retry_interval_ms: patch.retry_interval_ms.unwrap_or(dlq.retry_interval_ms),
                retries_max: patch.retries_max.unwrap_or(dlq.retries_max),
                age_max_ms: patch.age_max_ms.unwrap_or(dlq.age_max_ms),
                entries_max: patch.entries_max.unwrap_or(dlq.entries_max),
            }),
            Self::Stall(patch) => Rule::Stall(StallRule {
                enabled: patch.enabled.unwrap_or(stall.enabled),
                interval_ms: patch.interval_ms.or(stall.interval_ms),
                stalls_max: patch.stalls_max.unwrap_or(stall.stalls_max),
                grace_ms: patch.grace_ms.unwrap_or(stall.grace_ms),
            }),
        }
    }
}

/// The rules of a queue that has any.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// For its dead-letter queue.
    pub dlq: DlqRule,
    /// For silent workers.
    pub stall: StallRule,
    /// The records that set them.
    dlq_in: Option<LogRef>,
    stall_in: Option<LogRef>,
}

impl Rules {
    fn set(&mut self, rule: Rule) {
        match rule {
            Rule::Dlq(rule) => self.dlq = rule,
            Rule::Stall(rule) => self.stall = rule,
        }
    }

    /// The rule of the same kind as `rule` that holds now.
    fn like(&self, rule: Rule) -> Rule {
        match rule {
            Rule::Dlq(_) => Rule::Dlq(self.dlq),
            Rule::Stall(_) => Rule::Stall(self.stall),
        }
    }

    /// The record that set a rule of this kind, if there is one.
    pub(crate) fn set_in(&self, rule: Rule) -> Option<LogRef> {
        match rule {
            Rule::Dlq(_) => self.dlq_in,
            Rule::Stall(_) => self.stall_in,
        }
    }

    /// The records that set the rules there are.
    pub(crate) fn all_set_in(&self) -> impl Iterator<Item = LogRef> + use<> {
        self.dlq_in.into_iter().chain(self.stall_in)
    }

    /// A rule of this kind was set by `stored`, or there is none any more. Returns what set it before.
    fn note_set(&mut self, rule: Rule, stored: Option<LogRef>) -> Option<LogRef> {
        let place = match rule {
            Rule::Dlq(_) => &mut self.dlq_in,
            Rule::Stall(_) => &mut self.stall_in,
        };
        std::mem::replace(place, stored)
    }

    fn is_none(&self) -> bool {
        self.dlq == DlqRule::default() && self.stall == StallRule::default()
    }
}

impl DlqRule {
    /// When a job is taken out to be tried anew that failed then and was taken out before as told; never, if
    /// `None`.
    pub fn retry_at_ms(&self, failed_at_ms: u64, before: Option<&Redelivered>) -> Option<u64> {
        let times = before.map_or(0, |before| before.times);
        if !self.auto_retry || times >= self.retries_max {
            return None;
        }
        let doublings = times.saturating_sub(1).min(40);
        let wait_ms = self.retry_interval_ms.saturating_mul(1 << doublings);
        // An interval as the client gave it may be longer than what doubling may make of it.
        let most_ms = RETRY_WAIT_MS_MAX.max(self.retry_interval_ms);
        Some(failed_at_ms.saturating_add(wait_ms.min(most_ms)))
    }

    /// When a job has expired that failed then; never, if `None`.
    pub fn expires_at_ms(&self, failed_at_ms: u64) -> Option<u64> {
        self.age_max_ms.map(|age_ms| failed_at_ms.saturating_add(age_ms))
    }
}

/// Setting them.
impl Shard {
    /// Changes a rule. Answered when all deadlines are those of the new one.
    pub(crate) fn rule<J: Journal>(
        &mut self,
        now_ms: u64,
        caller: Caller,
        name: &str,
        patch: RulePatch,
        out: &mut Out<'_, J>,
    ) {
        if self.refuses_bulk(caller, out) {
            return;
        }
        let known = self.queues.find(name);
        let rules = known.and_then(|queue| self.queues[queue].rules.as_deref());
        let rules = rules.cloned().unwrap_or_default();
        let rule = patch.of(&rules);
        if rule == rules.like(rule) {
            out.effects.replies.push((caller.request, Reply::Done));
            return;
        }
        let bytes = SETTING_BYTES + name.len() as u64;
        if !rule.is_default() && self.queues.refuses_settings(known) {
            out.effects.replies.push((caller.request, TOO_MANY_SETTINGS));
            return;
        }
        if !rule.is_default() && !out.journal.can_append_text(bytes, || self.space_forecast()) {
            out.effects.replies.push((caller.request, FULL));
            return;
        }
        let stored = out.journal.append(&Record::Ruled(Ruled { queue: name, rule }));
        let queue = self.set_rule(name, rule, stored);
        self.begin_rearming(now_ms, caller, queue, rule, out);
    }

    /// Applies [`Record::Ruled`].
    pub(crate) fn set_rule(&mut self, name: &str, rule: Rule, stored: LogRef) -> u32 {
        let queue = self.queues.find_or_insert(name);
        let mut rules =
            self.queues.change_settings(queue, |about| about.rules.take()).unwrap_or_default();
        rules.set(rule);
        let set = (!rule.is_default()).then_some(stored);
        let before = rules.note_set(rule, set);
        self.live.replace(before, set);
        let rules = Some(rules).filter(|rules| !rules.is_none());
        self.queues.change_settings(queue, |about| about.rules = rules);
        queue
    }

    /// A rule was told again.
    pub(crate) fn note_rule(&mut self, queue: u32, rule: Rule, stored: LogRef) {
        let Some(rules) = self.queues[queue].rules.as_deref_mut() else { return };
        let before = rules.note_set(rule, Some(stored));
        self.live.replace(before, Some(stored));
    }

    /// Takes back the rules of a queue.
    pub(crate) fn clear_rules<J: Journal>(&mut self, name: &str, out: &mut Out<'_, J>) {
        let known = self.queues.find(name);
        let Some(rules) = known.and_then(|queue| self.queues[queue].rules.as_deref()) else {
            return;
        };
        let (dlq, stall) = (rules.dlq_in.is_some(), rules.stall_in.is_some());
        let dlq = dlq.then(|| Rule::Dlq(DlqRule::default()));
        let stall = stall.then(|| Rule::Stall(StallRule::default()));
        for rule in [dlq, stall].into_iter().flatten() {
            let stored = out.journal.append(&Record::Ruled(Ruled { queue: name, rule }));
            self.set_rule(name, rule, stored);
        }
    }
}

/// Acting by them: the dead-letter queue.
impl Shard {
    /// The rule for the dead-letter queue that a job would come to, or has.
    pub fn dlq_rule_of(&self, job: u32) -> DlqRule {
        let rules = self.queues[self.jobs.slab[job].queue].rules.as_deref();
        rules.map(|rules| rules.dlq).unwrap_or_default()
    }

    /// When a job in the dead-letter queue is tried anew by itself, as things stand at `now_ms`. One whose life
    /// is over by then is not: it would only be removed. Nor is one that has expired.
    pub fn redelivers_at_ms(&self, now_ms: u64, job: u32) -> Option<u64> {
        let failed_at_ms = self.jobs.outcome_of(job)?.finished_at_ms;
        let rule = self.dlq_rule_of(job);
        let life_ms = self.jobs.options_of(job).map_or(0, |options| options.expires_at_ms);
        let at_ms = rule.retry_at_ms(failed_at_ms, self.jobs.redelivered(job))?;
        let within = |end_ms: u64| at_ms.max(now_ms) < end_ms;
        let lives = life_ms == 0 || within(life_ms);
        (lives && rule.expires_at_ms(failed_at_ms).is_none_or(within)).then_some(at_ms)
    }

    /// When a job in the dead-letter queue is removed since it has expired.
    fn burial_is_removed_at_ms(&self, job: u32) -> Option<u64> {
        let expires_at_ms = self.burial_expires_at_ms(job)?;
        Some(expires_at_ms.saturating_add(self.config.expired_kept_ms))
    }

    /// When a job in the dead-letter queue has expired.
    pub fn burial_expires_at_ms(&self, job: u32) -> Option<u64> {
        let failed_at_ms = self.jobs.outcome_of(job)?.finished_at_ms;
        self.dlq_rule_of(job).expires_at_ms(failed_at_ms)
    }

    /// When a job in the dead-letter queue leaves it by itself; `u64::MAX` for never.
    pub(crate) fn burial_ends_ms(&self, now_ms: u64, job: u32) -> u64 {
        if self.queues[self.jobs.slab[job].queue].rules.is_none() {
            return u64::MAX;
        }
        let (retry, end) = (self.redelivers_at_ms(now_ms, job), self.burial_is_removed_at_ms(job));
        retry.unwrap_or(u64::MAX).min(end.unwrap_or(u64::MAX))
    }

    /// Sets the deadline of a job in the dead-letter queue anew.
    pub(crate) fn rearm_burial(&mut self, now_ms: u64, job: u32) {
        let timer = self.jobs.slab[job].timer;
        if timer != NONE {
            self.job_timers.remove(timer, &mut self.jobs.slab);
        }
        let at_ms = self.burial_ends_ms(now_ms, job);
        if at_ms < u64::MAX {
            self.job_timers.insert(at_ms, job, &mut self.jobs.slab);
        }
    }

    /// Sets the deadlines of all jobs in dead-letter queues with a rule, after recovery. A step per job of
    /// those.
    pub(crate) fn arm_burials(&mut self, now_ms: u64) {
        for queue in 0..self.queues.end() {
            if self.queues[queue].rules.is_none() {
                continue;
            }
            let failed: Vec<u32> = self.queues[queue].failed.iter(&self.jobs).collect();
            for job in failed {
                self.rearm_burial(now_ms, job);
            }
            if self.has_too_many_failed(queue) {
                self.overfull.push(queue);
            }
        }
    }

    /// Goes on where the process ended before all dead-letter queues were as short as their rules want, at
    /// most a slice.
    pub(crate) fn trim_overfull<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        for _ in 0..SLICE {
            let Some(&queue) = self.overfull.last() else { return };
            if !self.trim_failed(now_ms, queue, out) {
                self.overfull.pop();
            }
        }
    }

    fn has_too_many_failed(&self, queue: u32) -> bool {
        let about = &self.queues[queue];
        let most = about.rules.as_deref().and_then(|rules| rules.dlq.entries_max);
        most.is_some_and(|most| about.count(State::Failed) > u64::from(most))
    }

    /// The deadline of a job in the dead-letter queue has come.
    pub(crate) fn end_burial<J: Journal>(&mut self, now_ms: u64, job: u32, out: &mut Out<'_, J>) {
        let queue = self.jobs.slab[job].queue;
        if self.burial_is_removed_at_ms(job).is_some_and(|at_ms| at_ms <= now_ms) {
            self.totals.dlq_dropped += 1;
            self.remove_one(now_ms, job, out);
        } else if self.redelivers_at_ms(now_ms, job).is_none_or(|at_ms| at_ms > now_ms) {
            // The rule has changed since, or the life of the job has ended, or it has expired.
            self.rearm_burial(now_ms, job);
        } else if self.has_room_to_redeliver(job, out) {
            self.totals.dlq_retried += 1;
            self.revive_one(now_ms, job, true, out);
            self.note_ready(queue);
        } else {
            self.job_timers.remove(self.jobs.slab[job].timer, &mut self.jobs.slab);
            self.job_timers.insert(now_ms + NO_ROOM_PAUSE_MS, job, &mut self.jobs.slab);
        }
    }

    /// Whether there is room for how often a job was tried anew, which it keeps.
    fn has_room_to_redeliver<J: Journal>(&self, job: u32, out: &mut Out<'_, J>) -> bool {
        self.jobs.slab[job].options != NONE
            || out.journal.can_append_text(JOB_BYTES, || self.space_forecast())
    }

    /// Removes the oldest job of a dead-letter queue if there are more than there may be. True if there
    /// were.
    pub(crate) fn trim_failed<J: Journal>(
        &mut self,
        now_ms: u64,
        queue: u32,
        out: &mut Out<'_, J>,
    ) -> bool {
        let over = self.has_too_many_failed(queue);
        match self.queues[queue].failed.front(&self.jobs).filter(|_| over) {
            Some(oldest) => {
                self.totals.dlq_dropped += 1;
                self.remove_one(now_ms, oldest, out);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_between_retries_double_from_the_third_on_and_end() {
        let rule = DlqRule { auto_retry: true, retry_interval_ms: 10, ..DlqRule::default() };
        let after = |times| {
            let before = (times > 0).then_some(Redelivered { times, last_at_ms: 0 });
            rule.retry_at_ms(100, before.as_ref())
        };
        assert_eq!(
            [after(0), after(1), after(2), after(3)],
            [Some(110), Some(110), Some(120), None]
        );
        let ever = DlqRule { retries_max: u32::MAX, ..rule };
        let often = Redelivered { times: 90, last_at_ms: 0 };
        assert_eq!(ever.retry_at_ms(5, Some(&often)), Some(5 + RETRY_WAIT_MS_MAX));
        assert_eq!(DlqRule::default().retry_at_ms(5, None), None);
    }

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let first =
            DlqPatch { auto_retry: Some(true), age_max_ms: Some(Some(7)), ..DlqPatch::default() };
        let mut rules = Rules::default();
        rules.set(RulePatch::Dlq(first).of(&Rules::default()));
        let expected = DlqRule { auto_retry: true, age_max_ms: Some(7), ..DlqRule::default() };
        assert_eq!((rules.dlq, rules.stall), (expected, StallRule::default()));
        let second =
            DlqPatch { age_max_ms: Some(None), entries_max: Some(Some(2)), ..DlqPatch::default() };
        rules.set(RulePatch::Dlq(second).of(&rules));
        let expected = DlqRule { age_max_ms: None, entries_max: Some(2), ..expected };
        assert_eq!(rules.dlq, expected);
        let third = StallPatch { stalls_max: Some(9), ..StallPatch::default() };
        rules.set(RulePatch::Stall(third).of(&rules));
        assert_eq!(
            (rules.dlq, rules.stall.stalls_max, rules.stall.interval_ms),
            (expected, 9, None)
        );
    }
}
