//! Giving up the beginning of the log: what of it is still needed is written again at its end.
//!
//! Whoever keeps the log hands over its oldest records one after the other ([`Shard::keep`]), then asks
//! for the end of it ([`Shard::end_keeping`]); after that those records are needed no more. The rules
//! that make it safe to replay the log from any later record on:
//!
//! 1. Nothing before [`crate::job::Job::stored`] is about the job, so records of a job that is not
//!    known (yet) are passed over. When that record has to go, the job is written as it stands.
//! 2. What jobs point to besides (results, texts, shared payloads) goes on byte by byte, and the
//!    pointers follow it by its old address.
//! 3. What no record says, because others give it (completed jobs that were forgotten for their number
//!    or age; the ids of all that were completed), is said once before records that gave it go.

use crate::changed::Changed;
use crate::command::{Limit, NewJob};
use crate::cron_record::CronSet;
use crate::dependency::Unmet;
use crate::id::JobId;
use crate::job::{Job, Options, State, Stored, flags};
use crate::job_names::NameRef;
use crate::kept_record::{Kept, KeptJob, KeptNotes, Lines, Moved, PastIds, Place, Rare};
use crate::mutate::RETENTION_CHECK_MS;
use crate::record::{Journal, Pushed, Record};
use crate::repeat::Series;
use crate::shard::{SLICE, Shard};
use crate::slab::NONE;
use crate::wire::Malformed;

/// Records of forgotten jobs written at a time.
const PAST_BATCHES: u32 = 4;

/// What still needs an old record.
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
}

impl Needs {
    pub(crate) fn any(&self) -> bool {
        self.job.is_some() || self.text.is_some() || self.share || self.setting
    }
}

/// Room for what a [`KeptJob`] borrows.
#[derive(Default)]
struct Lent {
    unmet: Vec<u8>,
    lines: Vec<u8>,
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

    pub(crate) fn needs_of(&mut self, position: u64, record: &Record<'_>) -> Needs {
        let share = self.shares.at(position).is_some();
        let mut needs = Needs { share, ..Needs::default() };
        let begins = |id: JobId| {
            self.jobs.find(id).filter(|&job| self.jobs.slab[job].stored.position == position)
        };
        let text = |id: JobId| self.jobs.find(id).filter(|&job| self.has_text_at(job, position));
        match record {
            Record::Pushed(pushed) => needs.job = begins(pushed.id),
            Record::CronRan(ran) => needs.job = begins(ran.pushed.id),
            Record::Kept(Kept::Job(kept)) => needs.job = begins(kept.pushed.id),
            Record::Repeated(repeated) => {
                needs.job = begins(repeated.next.pushed.id);
                needs.text = text(repeated.ended.id);
            }
            Record::Completed(ended) => needs.text = text(ended.id),
            Record::Buried(buried) => needs.text = text(buried.id),
            Record::Changed(changed @ (Changed::Progressed { .. } | Changed::Logged { .. })) => {
                needs.text = text(changed.id());
            }
            Record::Kept(Kept::Moved(moved)) => needs.text = text(moved.id),
            Record::Paused { queue, .. } => {
                let set = self.queues.find(queue).and_then(|queue| self.queues[queue].paused);
                needs.setting = set.is_some_and(|stored| stored.position == position);
            }
            Record::Limited { queue, limit } => {
                let queue = self.queues.find(queue);
                let limits = queue.and_then(|queue| self.queues[queue].limits.as_deref());
                let set = limits.and_then(|limits| limits.set_in(*limit));
                needs.setting = set.is_some_and(|stored| stored.position == position);
            }
            Record::Grouped(grouped) => {
                let set = self.group_set_in(grouped.queue, grouped.group);
                needs.setting = set.is_some_and(|stored| stored.position == position);
            }
            Record::CronSet(set) => {
                let cron = self.crons.find(set.name).map(|index| self.cron_at(index));
                needs.setting = cron.is_some_and(|cron| cron.set_in.position == position);
            }
            Record::WebhookAdded(added) => {
                let webhook = self.webhook(added.id);
                needs.setting = webhook.is_some_and(|it| it.set_in.position == position);
            }
            // What these say stands in the job that they are about, or is over.
            Record::Leased(_)
            | Record::Retried(_)
            | Record::Stalled { .. }
            | Record::Released { .. }
            | Record::Revived { .. }
            | Record::Removed { .. }
            | Record::Changed(
                Changed::Prioritized { .. }
                | Changed::Promoted { .. }
                | Changed::PutOff { .. }
                | Changed::Flagged { .. }
                | Changed::LogCut { .. }
                | Changed::KeyFreed { .. }
                | Changed::KeyExtended { .. },
            )
            | Record::GroupsCleared { .. }
            | Record::CronMissed { .. }
            | Record::CronRemoved { .. }
            | Record::Met { .. }
            | Record::WebhookRemoved { .. }
            | Record::Kept(Kept::Evicted { .. } | Kept::Past(_) | Kept::Ids { .. }) => {}
        }
        needs
    }

    fn has_text_at(&self, job: u32, position: u64) -> bool {
        let at = |stored: &Stored| stored.position == position;
        let notes = self.jobs.options_of(job).and_then(|has| has.notes.as_deref());
        self.jobs.outcome_of(job).is_some_and(|outcome| at(&outcome.stored))
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
            let queue = self.queues[self.jobs.slab[job].queue].name.clone();
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
    ) -> Stored {
        let mut lent = Lent::default();
        let kept = Box::new(self.kept_job(job, pushed, &mut lent));
        journal.append(&Record::Kept(Kept::Job(kept)))
    }

    /// A job was written again, at `stored`.
    pub(crate) fn restore_at(&mut self, job: u32, stored: Stored) {
        let before = std::mem::replace(&mut self.jobs.slab[job].stored, stored);
        self.live.replace(Some(before), Some(stored));
    }

    fn kept_job<'a>(&'a self, job: u32, mut pushed: Pushed<'a>, lent: &'a mut Lent) -> KeptJob<'a> {
        let about = &self.jobs.slab[job];
        let options = self.jobs.options_of(job);
        let shared = about.has(flags::SHARED).then(|| self.data_of(job));
        if shared.is_some() {
            pushed.job.data = &[];
        }
        for one in options.map_or(&[][..], |has| &has.unmet[..]) {
            Unmet::push(&mut lent.unmet, one.id, one.name.as_deref().unwrap_or_default());
        }
        let notes = options.and_then(|has| has.notes.as_deref());
        for line in notes.iter().flat_map(|notes| &notes.logs) {
            Lines::push(&mut lent.lines, line);
        }
        let Lent { unmet, lines } = lent;
        pushed.job.unmet = Unmet::new(unmet);
        pushed.run_at_ms = about.run_at_ms;
        let series = options.and_then(|has| has.series.as_deref());
        // Of a run, the record that it shares tells the options of the first one.
        pushed.job = NewJob {
            name: self.name_of(job),
            group_id: self.group_name_of(job).or(pushed.job.group_id),
            extras: options.and_then(|has| has.extras.clone()),
            priority: about.priority,
            max_attempts: about.max_attempts,
            backoff_ms: about.backoff_ms,
            lifo: about.has(flags::LIFO),
            remove_on_complete: about.has(flags::REMOVE_ON_COMPLETE),
            remove_on_fail: about.has(flags::REMOVE_ON_FAIL),
            timeout_ms: options.map(|has| has.timeout_ms).filter(|&timeout_ms| timeout_ms > 0),
            unique_key: options.and_then(|has| has.unique_key.as_deref()),
            custom_id: options.and_then(|has| has.custom_id.as_deref()),
            repeat: series.map(Series::repeat),
            ..pushed.job
        };
        if let Some(series) = series {
            pushed.job.ttl_ms = (series.ttl_ms > 0).then_some(series.ttl_ms);
            pushed.job.durable = series.durable;
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
        });
        KeptJob { pushed, attempts: about.attempts, stalls: about.stalls, place, rare, shared }
    }

    fn keep_setting<J: Journal>(&mut self, record: &Record<'_>, journal: &mut J) {
        match record {
            Record::Paused { queue, paused } => {
                let stored = journal.append(record);
                self.set_paused(queue, *paused, stored);
            }
            Record::Limited { queue, limit } => {
                let stored = journal.append(record);
                if let Some(queue) = self.queues.find(queue) {
                    self.note_limit(queue, *limit, stored);
                }
            }
            Record::Grouped(grouped) => {
                let stored = journal.append(record);
                self.set_group(grouped, stored);
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
        let Some(index) = self.crons.find(set.name) else { return };
        let cron = self.cron_at(index);
        let (executions, next_run_ms) = (cron.executions, cron.next_run_ms);
        let now = CronSet { executions, next_run_ms, ..*set };
        let stored = journal.append(&Record::CronSet(now));
        self.note_cron(index, stored);
    }

    /// To be called when all records before `until` have been handed to [`Shard::keep`], until it says
    /// true: then they may go.
    pub fn end_keeping<J: Journal>(&mut self, until: u64, journal: &mut J) -> bool {
        if !self.keep_past(until, journal) {
            return false;
        }
        for _ in 0..SLICE {
            if self.keep_cursor >= self.queues.end() {
                self.keep_cursor = 0;
                journal.append(&Record::Kept(Kept::Ids { highest: self.ids.highest() }));
                return true;
            }
            self.note_evicted(self.keep_cursor, journal);
            self.keep_cursor += 1;
        }
        false
    }

    /// Says which jobs were completed and forgotten, as far as only records before `until` do. True
    /// when that is done.
    fn keep_past<J: Journal>(&mut self, until: u64, journal: &mut J) -> bool {
        let mut bytes = Vec::new();
        for _ in 0..PAST_BATCHES {
            let ids = self.past.told_before(until);
            if ids.is_empty() {
                return true;
            }
            let ids = PastIds::new(&ids, &mut bytes);
            let stored = journal.append(&Record::Kept(Kept::Past(ids)));
            self.past.told_at(stored.position);
        }
        false
    }

    /// Says which completed jobs of a queue were forgotten without a record, if any were since that
    /// was said last.
    pub(crate) fn note_evicted<J: Journal>(&mut self, queue: u32, journal: &mut J) {
        let about = &mut self.queues[queue];
        if about.evicted_below > about.evicted_noted {
            about.evicted_noted = about.evicted_below;
            let (queue, below) = (&*about.name, about.evicted_below);
            journal.append(&Record::Kept(Kept::Evicted { queue, below }));
        }
    }

    /// Forgets a completed job for its age or because there are too many.
    pub(crate) fn evict(&mut self, job: u32) {
        let (queue, order) = (self.jobs.slab[job].queue, self.jobs.end_order(job));
        let about = &mut self.queues[queue];
        about.evicted_below = about.evicted_below.max(order + 1);
        self.remove(job);
    }

    /// [`Record::Kept`]: recovery's way to it.
    pub(crate) fn replay_kept(&mut self, kept: &Kept<'_>, stored: Stored) {
        match kept {
            Kept::Job(kept) => {
                if let Some(known) = self.jobs.find(kept.pushed.id) {
                    self.leave(known);
                    self.unique.release(&self.jobs, known);
                    self.erase(known);
                }
                self.ids.rise_above(kept.pushed.id);
                self.place_kept(kept, stored);
            }
            Kept::Moved(moved) => self.relocate(moved.id, moved.from, stored),
            Kept::Evicted { queue, below } => {
                let Some(queue) = self.queues.find(queue) else { return };
                while let Some(oldest) = self.queues[queue].completed.front(&self.jobs)
                    && self.jobs.end_order(oldest) < *below
                {
                    self.remove(oldest);
                }
                let about = &mut self.queues[queue];
                about.evicted_below = about.evicted_below.max(*below);
                about.evicted_noted = about.evicted_noted.max(*below);
            }
            Kept::Past(ids) => {
                for id in ids.iter() {
                    if !self.past.has(id) {
                        self.past.note(id, stored.position);
                    }
                }
            }
            Kept::Ids { highest } => self.ids.rise_above(*highest),
        }
    }

    /// What lay at `from` lies at `to` from now on.
    fn relocate(&mut self, id: JobId, from: u64, to: Stored) {
        let live = &mut self.live;
        let mut follow = |stored: &mut Stored| {
            if stored.position == from {
                live.sub(stored);
                live.add(&to);
                *stored = to;
            }
        };
        if let Some(mut shared) = self.shares.relocate(from, to) {
            follow(&mut shared);
        }
        let Some(job) = self.jobs.find(id) else { return };
        let about = &self.jobs.slab[job];
        if about.state.is_end() {
            follow(&mut self.jobs.outcomes[about.detail].stored);
        }
        let notes = self.jobs.options_of_mut(job).and_then(|has| has.notes.as_deref_mut());
        let Some(notes) = notes else { return };
        notes.message.iter_mut().for_each(&mut follow);
        notes.logs.iter_mut().for_each(|line| follow(&mut line.stored));
    }

    /// Puts a job that is not known where its record says.
    pub(crate) fn place_kept(&mut self, kept: &KeptJob<'_>, stored: Stored) -> u32 {
        let pushed = &kept.pushed;
        let given = &pushed.job;
        let queue = self.queues.find_or_insert(pushed.queue);
        let name = self.take_name(queue, given.name);
        let options = self.options_of_kept(queue, kept, name);
        let index = self.jobs.insert(Job {
            attempts: kept.attempts,
            stalls: kept.stalls,
            options,
            name,
            ..Job::of(pushed, queue, stored)
        });
        self.live.add(&stored);
        let notes = self.jobs.options_of(index).and_then(|has| has.notes.as_deref());
        notes.iter().flat_map(|notes| notes.texts()).for_each(|text| self.live.add(text));
        self.queues[queue].roll.insert(&self.jobs.slab, index);
        if let Some(data) = kept.shared {
            self.share(index, data);
        }
        match kept.place {
            Place::Ended(state, outcome) => {
                self.end(index, state, outcome);
                if state == State::Completed {
                    let due_ms = outcome.finished_at_ms.saturating_add(RETENTION_CHECK_MS);
                    self.retention_due_ms = self.retention_due_ms.min(due_ms);
                }
            }
            Place::Pending(state) => {
                self.unique.take(&self.jobs, index);
                self.enter(index, state);
            }
            Place::Active { token, ttl_ms, at_ms } => {
                self.unique.take(&self.jobs, index);
                // From where a pull would have taken it.
                self.enter(index, State::Waiting);
                self.lease(index, at_ms, ttl_ms, Some(token), None);
            }
        }
        debug_assert!(given.unmet.is_empty() || self.jobs.slab[index].options != NONE);
        index
    }

    fn options_of_kept(&mut self, queue: u32, kept: &KeptJob<'_>, name: NameRef) -> u32 {
        let given = &kept.pushed.job;
        let apart = given.name.filter(|_| name == NameRef::APART).map(Into::into);
        let group = self.join_group(queue, given.group_id);
        let Some(rare) = &kept.rare else {
            // It found a place among the names of its queue when it was written, and finds none now; or
            // it was written when groups meant nothing.
            if apart.is_none() && given.group_id.is_none() {
                return NONE;
            }
            return self.jobs.options.insert(Options { name: apart, group, ..Options::default() });
        };
        let series = Series::of(&kept.pushed).map(|series| {
            let (due_ms, continued) = rare.run.unwrap_or((series.due_ms, false));
            Box::new(Series { due_ms, continued, ..series })
        });
        self.jobs.options.insert(Options {
            unique_key: given.unique_key.map(Into::into),
            custom_id: given.custom_id.map(Into::into),
            expires_at_ms: rare.expires_at_ms,
            timeout_ms: given.timeout_ms.unwrap_or(0),
            notes: rare.notes.as_ref().map(|notes| Box::new(notes.notes())),
            unmet: given.unmet.dependencies(),
            series,
            name: apart,
            extras: given.extras.clone(),
            group,
            ..Options::default()
        })
    }

    /// Limits of a queue that are set, for whoever counts what is needed.
    pub(crate) fn note_limit(&mut self, queue: u32, limit: Limit, stored: Stored) {
        let Some(limits) = self.queues[queue].limits.as_deref_mut() else { return };
        let before = limits.note_set(limit, Some(stored));
        self.live.replace(before, Some(stored));
    }

    /// Recounts what is needed, and says what does not agree.
    pub(crate) fn audit_needed(&self) -> Result<(), String> {
        let mut counted = crate::live::Live::new(self.config.span_bits);
        let mut sharing = 0;
        for job in self.jobs.indices() {
            counted.add(&self.jobs.slab[job].stored);
            sharing += u64::from(self.jobs.slab[job].has(flags::SHARED));
            if let Some(outcome) = self.jobs.outcome_of(job) {
                counted.add(&outcome.stored);
            }
            let notes = self.jobs.options_of(job).and_then(|has| has.notes.as_deref());
            notes.iter().flat_map(|notes| notes.texts()).for_each(|text| counted.add(text));
        }
        self.shares.records().for_each(|shared| counted.add(&shared));
        self.crons.iter().for_each(|cron| counted.add(&cron.set_in));
        self.webhooks().for_each(|webhook| counted.add(&webhook.set_in));
        let groups = self.groups.indices().filter_map(|at| self.groups.slab[at].own.as_deref());
        groups.for_each(|own| counted.add(&own.set_in));
        for queue in 0..self.queues.end() {
            let about = &self.queues[queue];
            let limits = about.limits.as_deref();
            let limits = limits.into_iter().flat_map(crate::limits::Limits::all_set_in);
            about.paused.into_iter().chain(limits).for_each(|stored| counted.add(&stored));
        }
        let (found, kept) =
            (counted.spans().collect::<Vec<_>>(), self.live.spans().collect::<Vec<_>>());
        if found != kept {
            return Err(format!("needed of the log, by span: {found:?}, counted as {kept:?}"));
        }
        if sharing != self.shares.jobs() {
            return Err(format!("{sharing} jobs share a payload, not {}", self.shares.jobs()));
        }
        Ok(())
    }
}
