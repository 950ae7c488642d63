//! Giving up the beginning of the log: what of it is still needed is written again at its end.
//!
//! The owner of the log hands over its oldest records one after the other ([`Shard::keep`]), then asks
//! for the end of it ([`Shard::end_keeping`]); after that those records are needed no more. The rules
//! that make it safe to replay the log from any later record on:
//!
//! 1. Nothing before [`crate::job::Job::stored`] is about the job, so records of a job that is not
//!    known (yet) are passed over. When that record has to go, the job is written as it stands.
//! 2. What jobs point to besides (results, texts, shared payloads) goes on byte by byte, and the
//!    pointers follow it by its old address.
//! 3. What only other records say, because it followed from them (which completed jobs were forgotten
//!    for later ones; the ids of all that were completed), is said once before those records go.

use crate::collections::count::Count;
use crate::command::Limit;
use crate::dependency::Unmet;
use crate::effect::KnownAs;
use crate::family::unreported::KeptUnreported;
use crate::family::{Ends, NewFamily};
use crate::job::failures::Remembered;
use crate::job::id::JobId;
use crate::job::new_job::NewJob;
use crate::job::series::Series;
use crate::job::{State, flags};
use crate::log_record::codec::Malformed;
use crate::log_record::cron::CronSet;
use crate::log_record::location::LogRef;
use crate::log_record::remembered::{CompletedIdBytes, CompletedNameBytes};
use crate::log_record::settings::Grouped;
use crate::log_record::snapshot::{
    FailedAttempts, Kept, KeptJob, KeptNotes, Lines, Moved, Place, Rare,
};
use crate::log_record::{Journal, Limited, Pushed, Record, Ruled};
use crate::shard::{SLICE, Shard};

/// Records of forgotten jobs written at a time.
const COMPLETED_ID_BATCHES: u32 = 4;

/// Everything that still needs an old record.
#[derive(Default)]
pub(crate) struct Needs {
    /// The job that begins there.
    pub(crate) job: Option<u32>,
    /// A job that has its result or one of its texts there.
    text: Option<u32>,
    /// Jobs that share a payload there.
    share: bool,
    /// A setting of a queue, a schedule, or a webhook.
    setting: bool,
    /// A child that is forgotten.
    unreported: Option<JobId>,
    /// A flow under way.
    flow: bool,
}

impl Needs {
    pub(crate) fn any(&self) -> bool {
        self.job.is_some()
            || self.text.is_some()
            || self.share
            || self.setting
            || self.unreported.is_some()
            || self.flow
    }
}

/// Room for what a [`KeptJob`] borrows.
#[derive(Default)]
struct Lent {
    unmet: Vec<u8>,
    open: Vec<u8>,
    lines: Vec<u8>,
    ends: Vec<u8>,
    children: Vec<u8>,
    failures: Vec<u8>,
}

/// Bytes of the record that tells of a queue's evictions.
pub(crate) fn evicted_bytes(queue: &str) -> u64 {
    8 + 2 + 8 + queue.len() as u64
}

impl Shard {
    /// Whether anything of the record at `position` is still needed.
    pub fn needs(&mut self, position: u64, bytes: &[u8]) -> Result<bool, Malformed> {
        let record = Record::decode(bytes)?;
        Ok(self.needs_of(position, &record).any())
    }

    /// Bytes of records that are needed, in the span of the log that holds `position`.
    pub fn needed_in_span_of(&self, position: u64) -> u64 {
        self.live.in_span_of(position)
    }

    /// Bytes of all records that are needed.
    pub fn needed_bytes(&self) -> u64 {
        self.live.total()
    }

    /// The failed attempts that are remembered, which are part of them.
    pub fn remembered_attempts(&self) -> Remembered {
        self.jobs.failures.remembered()
    }

    pub(crate) fn needs_of(&mut self, position: u64, record: &Record<'_>) -> Needs {
        let share = self.shares.at(position).is_some();
        let mut needs = Needs { share, ..Needs::default() };
        let begins = |id: JobId| {
            self.jobs.find(id).filter(|&job| self.jobs.slab[job].stored.position == position)
        };
        let text = |id: JobId| self.jobs.find(id).filter(|&job| self.has_text_at(job, position));
        let unreported = |id: JobId| {
            let left = self.unreported.get(id).filter(|left| left.stored.position == position);
            left.map(|_| id)
        };
        match record {
            Record::Pushed(pushed) => needs.job = begins(pushed.id),
            Record::CronRan(ran) => needs.job = begins(ran.pushed.id),
            Record::Kept(Kept::Job(kept)) => needs.job = begins(kept.pushed.id),
            Record::Repeated(repeated) => {
                needs.job = begins(repeated.next.pushed.id);
                needs.text = text(repeated.ended.id);
                needs.unreported = unreported(repeated.ended.id);
            }
            Record::Completed(ended) => {
                needs.text = text(ended.id);
                needs.unreported = unreported(ended.id);
            }
            Record::Buried(buried) => {
                needs.text = text(buried.id);
                needs.unreported = unreported(buried.id);
            }
            Record::Staged(staged) => {
                let (flow, id) = (staged.flow, staged.pushed.id);
                needs.job = begins(id);
                let staged = self.flows.staged_at(flow, id);
                needs.flow = staged.is_some_and(|at| at.position == position);
            }
            Record::Flow { flow, .. } => {
                let word = self.flows.open_at(*flow);
                needs.flow = word.is_some_and(|at| at.position == position);
            }
            Record::Retried(retried) => needs.text = text(retried.id),
            Record::ChildEnded(ended) => needs.text = text(ended.parent),
            Record::Kept(Kept::Unreported(left)) => needs.unreported = unreported(left.child),
            // Where it brought no text, the job has none there: what it says stands in the job.
            Record::Changed(changed) => needs.text = text(changed.id()),
            Record::Kept(Kept::Moved(moved)) => needs.text = text(moved.id),
            Record::Paused { queue, .. } => {
                let set = self.queues.find(queue).and_then(|queue| self.queues[queue].paused);
                needs.setting = set.is_some_and(|stored| stored.position == position);
            }
            Record::Limited(Limited { queue, limit }) => {
                let queue = self.queues.find(queue);
                let limits = queue.and_then(|queue| self.queues[queue].limits.as_deref());
                let set = limits.and_then(|limits| limits.set_in(*limit));
                needs.setting = set.is_some_and(|stored| stored.position == position);
            }
            Record::Grouped(grouped) => {
                let set = self.group_set_in(grouped.queue, grouped.group);
                needs.setting = set.is_some_and(|stored| stored.position == position);
            }
            Record::Ruled(Ruled { queue, rule }) => {
                let queue = self.queues.find(queue);
                let rules = queue.and_then(|queue| self.queues[queue].rules.as_deref());
                let set = rules.and_then(|rules| rules.set_in(*rule));
                needs.setting = set.is_some_and(|stored| stored.position == position);
            }
            Record::CronSet(set) => {
                let set_in = self.crons.set_in(set.name);
                needs.setting = set_in.is_some_and(|stored| stored.position == position);
            }
            Record::WebhookAdded(added) => {
                let webhook = self.webhook(added.id);
                needs.setting = webhook.is_some_and(|it| it.set_in.position == position);
            }
            // The state that these records lead to is in the job that they are about, or is over.
            Record::Leased(_)
            | Record::Stalled { .. }
            | Record::Released { .. }
            | Record::Revived(_)
            | Record::Removed { .. }
            | Record::GroupsCleared { .. }
            | Record::CronMissed { .. }
            | Record::CronRemoved { .. }
            | Record::Met { .. }
            | Record::Settled { .. }
            | Record::Adopted(_)
            | Record::Blocked { .. }
            | Record::FlowSlice { .. }
            | Record::WebhookRemoved { .. }
            | Record::ClockSetBack { .. }
            | Record::Kept(
                Kept::Evicted { .. }
                | Kept::CompletedIds(_)
                | Kept::CompletedNames(_)
                | Kept::Ids { .. }
                | Kept::Clock { .. }
                | Kept::GivenUp { .. },
            ) => {}
        }
        needs
    }

    fn has_text_at(&self, job: u32, position: u64) -> bool {
        let at = |stored: &LogRef| stored.position == position;
        let notes = self.jobs.options_of(job).and_then(|has| has.notes.as_deref());
        let family = self.jobs.options_of(job).and_then(|has| has.family.as_deref());
        self.jobs.outcome_of(job).is_some_and(|outcome| at(&outcome.stored))
            || self.jobs.failures_of(job).iter().any(at)
            || family.is_some_and(|family| family.ends.contains_key(&position))
            || notes.is_some_and(|notes| {
                notes.message.as_ref().is_some_and(at)
                    || notes.logs.iter().any(|line| at(&line.stored))
            })
    }

    /// Writes again what is still needed of the record at `position`. Nothing else changes.
    pub fn keep<J: Journal>(
        &mut self,
        position: u64,
        bytes: &[u8],
        journal: &mut J,
    ) -> Result<(), Malformed> {
        let record = Record::decode(bytes)?;
        let needs = self.needs_of(position, &record);
        if needs.setting {
            self.keep_setting(&record, journal);
        }
        if needs.flow {
            self.keep_flow(&record, journal);
        }
        if let Some(child) = needs.unreported {
            self.keep_unreported(child, bytes, journal);
        }
        let text = needs.text.map(|job| self.jobs.slab[job].id);
        if text.is_some() || needs.share {
            let record = match &record {
                Record::Kept(Kept::Moved(moved)) => moved.record,
                _ => bytes,
            };
            let payload_bytes = Record::decode(record)?.payload_len() as u32;
            let id = text.unwrap_or_default();
            let moved = Moved { id, from: position, record, payload_bytes };
            let stored = journal.append(&Record::Kept(Kept::Moved(moved)));
            self.relocate(id, position, stored);
        }
        if let (Some(job), Some(pushed)) = (needs.job, record.into_pushed()) {
            let about = &self.jobs.slab[job];
            assert!(about.state != State::Vacant, "only a job that lives is written again");
            assert!(
                about.stored.position == position,
                "a job is written again from its own record"
            );
            let queue = self.queues[about.queue].name.clone();
            let stored = self.write_job(job, Pushed { queue: &queue, ..pushed }, journal);
            self.restore_at(job, stored);
        }
        Ok(())
    }

    /// Writes a job as it stands. `pushed` is what its record says of it; its texts are taken from
    /// there, all that can have changed from memory.
    pub(crate) fn write_job<J: Journal>(
        &self,
        job: u32,
        pushed: Pushed<'_>,
        journal: &mut J,
    ) -> LogRef {
        let mut lent = Lent::default();
        let kept = Box::new(self.kept_job(job, pushed, &mut lent));
        journal.append(&Record::Kept(Kept::Job(kept)))
    }

    /// A job was written again, at `stored`.
    pub(crate) fn restore_at(&mut self, job: u32, stored: LogRef) {
        let before = std::mem::replace(&mut self.jobs.slab[job].stored, stored);
        self.live.replace(Some(before), Some(stored));
        self.note_kept(job);
    }

    fn kept_job<'a>(&'a self, job: u32, pushed: Pushed<'a>, lent: &'a mut Lent) -> KeptJob<'a> {
        let given = pushed.job.into_own();
        let about = &self.jobs.slab[job];
        let options = self.jobs.options_of(job);
        let shared = about.has(flags::SHARED).then(|| self.data_of(job));
        for one in options.into_iter().flat_map(|has| has.unmet.iter()) {
            let list = if one.child { &mut lent.open } else { &mut lent.unmet };
            Unmet::push(list, one.id, one.name.as_deref().unwrap_or_default());
        }
        let notes = options.and_then(|has| has.notes.as_deref());
        for line in notes.iter().flat_map(|notes| &notes.logs) {
            Lines::push(&mut lent.lines, line);
        }
        let family = options.and_then(|has| has.family.as_deref());
        lent.children = family.map_or_else(Vec::new, |family| family.children.array());
        for stored in self.jobs.failures_of(job) {
            FailedAttempts::push(&mut lent.failures, stored);
        }
        let Lent { unmet, open, lines, ends, children, failures } = lent;
        let depends_on_children =
            given.family.as_deref().is_some_and(|family| family.is_same(given.depends_on));
        let children: &[u8] = children;
        let depends_on = if depends_on_children { children } else { given.depends_on };
        let new_family = family.map(|family| {
            let (parent, policy) = (family.parent.as_deref(), family.policy);
            Box::new(NewFamily { parent, policy, children, open: Unmet::new(open) })
        });
        let ends = family.map(|family| Ends::of(family, ends));
        let series = options.and_then(|has| has.series.as_deref());
        let trace = options.and_then(|has| has.trace.as_deref());
        // Of a run, the record that it shares tells the options of the first one.
        let mut job_now = NewJob {
            data: if shared.is_some() { &[] } else { given.data },
            unmet: Unmet::new(unmet),
            depends_on,
            family: new_family,
            name: self.name_of(job),
            group_id: self.group_name_of(job).or(given.group_id),
            extras: options.and_then(|has| has.extras.clone()),
            trace: trace.map(|trace| Box::new(trace.given())),
            priority: about.priority,
            max_attempts: about.max_attempts,
            backoff_ms: about.backoff_ms,
            lifo: about.has(flags::LIFO),
            remove_on_complete: about.has(flags::REMOVE_ON_COMPLETE),
            remove_on_fail: about.has(flags::REMOVE_ON_FAIL),
            timeout_ms: options.map(|has| has.timeout_ms).filter(|&timeout_ms| timeout_ms > 0),
            ttl_ms: options.map(|has| has.ttl_ms).filter(|&ttl_ms| ttl_ms > 0),
            unique_key: options.and_then(|has| has.unique_key.as_deref()),
            custom_id: options.and_then(|has| has.custom_id.as_deref()),
            repeat: series.map(Series::repeat),
            recurrence: series.and_then(Series::given_recurrence),
            ..given
        };
        if let Some(series) = series {
            job_now.ttl_ms = (series.ttl_ms > 0).then_some(series.ttl_ms);
            job_now.durable = series.durable;
        }
        let place = match (about.state, self.jobs.outcome_of(job)) {
            (state, Some(outcome)) => Place::Ended(state, *outcome),
            (State::Active, None) => {
                let lease = &self.leases[about.detail];
                match lease.token {
                    Some(token) => {
                        let (ttl_ms, at_ms) = (lease.ttl_ms, lease.started_at_ms);
                        Place::Active { token, ttl_ms, at_ms }
                    }
                    // A pull without an owner is forgotten by a restart.
                    None => Place::Pending(State::Waiting),
                }
            }
            (state, None) => Place::Pending(state),
        };
        let rare = options.map(|has| Rare {
            expires_at_ms: has.expires_at_ms,
            notes: notes.map(|notes| KeptNotes {
                progress: notes.progress,
                message: notes.message,
                logs: Lines::new(lines),
            }),
            run: series.map(|series| (series.due_ms, series.continued)),
            redelivered: has.redelivered,
            family: ends,
        });
        let (attempts, stalls, failures) =
            (about.attempts, about.stalls, FailedAttempts::new(failures));
        let pushed = Pushed { run_at_ms: about.run_at_ms, job: job_now.into(), ..pushed };
        KeptJob { pushed, attempts, stalls, place, rare, shared, failures }
    }

    fn keep_setting<J: Journal>(&mut self, record: &Record<'_>, journal: &mut J) {
        match record {
            Record::Paused { queue, paused } => {
                let stored = journal.append(record);
                self.set_paused(queue, *paused, stored);
            }
            Record::Limited(Limited { queue: name, limit }) => {
                let Some(queue) = self.queues.find(name) else { return };
                let Some(limits) = self.queues[queue].limits.as_deref() else { return };
                // As it stands: when it ends may have been moved since.
                let limit = match limit {
                    Limit::Rate(_) => Limit::Rate(limits.rate()),
                    Limit::Active(_) => Limit::Active(limits.active_max()),
                };
                let stored = journal.append(&Record::Limited(Limited { queue: name, limit }));
                self.note_limit(queue, limit, stored);
            }
            Record::Grouped(grouped) => {
                let Some(settings) = self.group_settings(grouped.queue, grouped.group) else {
                    return;
                };
                let grouped = Grouped { settings, ..*grouped };
                let stored = journal.append(&Record::Grouped(grouped));
                self.set_group(&grouped, stored);
            }
            Record::Ruled(Ruled { queue, rule }) => {
                let stored = journal.append(record);
                if let Some(queue) = self.queues.find(queue) {
                    self.note_rule(queue, *rule, stored);
                }
            }
            Record::CronSet(set) => self.keep_cron(set, journal),
            Record::WebhookAdded(added) => {
                let stored = journal.append(record);
                self.add_webhook(added, stored);
            }
            _ => {}
        }
    }

    fn keep_cron<J: Journal>(&mut self, set: &CronSet<'_>, journal: &mut J) {
        let Some(index) = self.crons.find(set.name) else {
            self.tell_ended(set.name, journal);
            return;
        };
        let cron = self.cron_at(index);
        let (executions, next_run_ms) = (cron.executions, cron.next_run_ms);
        let now = CronSet { executions, next_run_ms, ..*set };
        let stored = journal.append(&Record::CronSet(now));
        self.note_cron(index, stored);
    }

    /// To be called when all records before `until` have been handed to [`Shard::keep`], until it says
    /// true: then they may go.
    pub fn end_keeping<J: Journal>(&mut self, until: u64, journal: &mut J) -> bool {
        if !self.clear_detached_groups() || !self.keep_completed_ids(until, journal) {
            return false;
        }
        for _ in 0..SLICE {
            if self.keep_cursor >= self.queues.end() {
                if !self.orphaned.is_empty() {
                    // Their records are not written again, and may not go before they do.
                    self.forget_orphaned();
                    return false;
                }
                self.keep_cursor = 0;
                journal.append(&Record::Kept(Kept::Ids { highest: self.ids.highest() }));
                let (at_ms, stuck_ms) = self.log_clock.told();
                journal.append(&Record::Kept(Kept::Clock { at_ms, stuck_ms }));
                journal.append(&Record::Kept(Kept::GivenUp { until }));
                return true;
            }
            self.note_evicted(self.keep_cursor, journal);
            self.keep_cursor += 1;
        }
        false
    }

    /// Says which jobs were completed and forgotten, as far as only records before `until` do. True
    /// when that is done.
    fn keep_completed_ids<J: Journal>(&mut self, until: u64, journal: &mut J) -> bool {
        let mut bytes = Vec::new();
        for _ in 0..COMPLETED_ID_BATCHES {
            let ids = self.completed_ids.recorded_before(until);
            if ids.is_empty() {
                return self.keep_completed_names(until, journal);
            }
            let ids = CompletedIdBytes::new(&ids, &mut bytes);
            let stored = journal.append(&Record::Kept(Kept::CompletedIds(ids)));
            self.completed_ids.recorded_at(stored.position);
        }
        false
    }

    /// Writes the custom ids of completed and forgotten jobs as `keep_completed_ids` does ids, some at a time. True
    /// when that is done.
    fn keep_completed_names<J: Journal>(&mut self, until: u64, journal: &mut J) -> bool {
        let mut bytes = Vec::new();
        let (names, last) = self.completed_ids.names.told_before(until);
        if !names.is_empty() {
            let names = CompletedNameBytes::new(&names, &mut bytes);
            let stored = journal.append(&Record::Kept(Kept::CompletedNames(names)));
            self.completed_ids.names.told_at(stored.position);
        }
        last
    }

    /// Says which completed jobs of a queue were forgotten without a record, if any were since that
    /// was said last.
    pub(crate) fn note_evicted<J: Journal>(&mut self, queue: u32, journal: &mut J) {
        // There may be no queue of that number.
        if !self.queues[queue].has_unrecorded_evictions() {
            return;
        }
        let about = &mut self.queues[queue];
        about.evicted_noted = about.evicted_below;
        self.unrecorded_evictions.take_out(evicted_bytes(&about.name));
        let (queue, below) = (&*about.name, about.evicted_below);
        journal.append(&Record::Kept(Kept::Evicted { queue, below }));
    }

    /// A detached queue is empty and goes.
    pub(crate) fn remove_detached(&mut self, queue: u32) {
        if self.queues[queue].has_unrecorded_evictions() {
            self.unrecorded_evictions.take_out(evicted_bytes(&self.queues[queue].name));
        }
        self.queues.remove_detached(queue);
    }

    /// Forgets a completed job for its age or because there are too many.
    pub(crate) fn evict(&mut self, job: u32) {
        let (queue, order) = (self.jobs.slab[job].queue, self.jobs.end_order(job));
        let about = &mut self.queues[queue];
        let told = !about.has_unrecorded_evictions();
        about.evicted_below = about.evicted_below.max(order + 1);
        if told && about.has_unrecorded_evictions() {
            self.unrecorded_evictions += evicted_bytes(&about.name);
        }
        self.remove(job);
    }

    /// Writes again how a child ended that is forgotten.
    /// `bytes` end with what was told of it.
    pub(crate) fn keep_unreported<J: Journal>(
        &mut self,
        child: JobId,
        bytes: &[u8],
        journal: &mut J,
    ) {
        let Some(left) = self.unreported.get(child) else { return };
        let Some((_, value)) = left.stored.parted(bytes) else { return };
        let custom_id = match &left.known_as {
            KnownAs::Custom(name) => Some(&**name),
            KnownAs::Id(_) => None,
        };
        let (queue, end) = (&*left.queue, left.end);
        let kept = KeptUnreported { child, queue, custom_id, end, value };
        let stored = journal.append(&Record::Kept(Kept::Unreported(kept)));
        if let KnownAs::Custom(name) = &left.known_as {
            self.completed_ids.names.note(name.clone(), child, stored.position);
        }
        if let Some(before) = self.unreported.relocate(child, stored) {
            self.live.replace(Some(before), Some(stored));
        }
    }

    /// Limits of a queue that are set: their records are needed.
    pub(crate) fn note_limit(&mut self, queue: u32, limit: Limit, stored: LogRef) {
        let Some(limits) = self.queues[queue].limits.as_deref_mut() else { return };
        let before = limits.note_set(limit, Some(stored));
        self.live.replace(before, Some(stored));
    }
}
