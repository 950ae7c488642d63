//! Replays records of [`crate::compaction::rewrite`]. They replace the records before them, wherever those were.

use crate::collections::count::Count;
use crate::collections::slab::NONE;
use crate::compaction::rewrite::evicted_bytes;
use crate::family::{Ends, Family, NewFamily};
use crate::job::id::JobId;
use crate::job::name_table::NameRef;
use crate::job::series::Series;
use crate::job::trace::Trace;
use crate::job::{Job, Options, State};
use crate::log_record::location::LogRef;
use crate::log_record::snapshot::{Kept, KeptJob, Place, Rare};
use crate::shard::Shard;

impl Shard {
    /// [`crate::log_record::Record::Kept`]: recovery's way to it.
    pub(crate) fn replay_kept(&mut self, kept: &Kept<'_>, stored: LogRef) {
        match kept {
            Kept::Job(kept) => {
                if let Some(known) = self.jobs.find(kept.pushed.id) {
                    self.leave(known);
                    self.unique.release(&self.jobs, known);
                    self.erase(known);
                }
                self.ids.rise_above(kept.pushed.id);
                self.log_clock.note_ids(kept.pushed.id);
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
                let told = !about.has_unrecorded_evictions();
                about.evicted_below = about.evicted_below.max(*below);
                about.evicted_noted = about.evicted_noted.max(*below);
                if !told && !about.has_unrecorded_evictions() {
                    self.unrecorded_evictions.take_out(evicted_bytes(&about.name));
                }
            }
            Kept::CompletedIds(ids) => {
                for id in ids.iter() {
                    if !self.completed_ids.has(id) {
                        self.completed_ids.note(id, stored.position);
                    }
                }
            }
            Kept::CompletedNames(names) => {
                for (name, id) in names.iter() {
                    self.completed_ids.names.note(name.into(), id, stored.position);
                }
            }
            Kept::Unreported(left) => self.take_unreported(left.child, left.unreported(stored)),
            Kept::Ids { highest } => {
                self.ids.rise_above(*highest);
                self.log_clock.note_ids(*highest);
            }
            Kept::Clock { at_ms, stuck_ms } => self.log_clock.learn(*at_ms, *stuck_ms),
            Kept::GivenUp { until } => self.unknown.note_given_up(*until),
        }
    }

    /// Points the job, or all that share its payload, to the new place of a payload or text that was moved.
    pub(crate) fn relocate(&mut self, id: JobId, from: u64, to: LogRef) {
        let live = &mut self.live;
        let mut follow = |stored: &mut LogRef| {
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
        let about_attempts = about.attempts;
        if about.state.is_end() {
            let outcome = &mut self.jobs.outcomes[about.detail];
            self.ends_unmoved.take_out(u64::from(outcome.is_unmoved()));
            follow(&mut outcome.stored);
            self.ends_unmoved += u64::from(outcome.is_unmoved());
        }
        if about_attempts > 0
            && let Some(mut failure) = self.jobs.failures.relocate(job, from, to)
        {
            follow(&mut failure);
        }
        let Some(options) = self.jobs.options_of_mut(job) else { return };
        if let Some(family) = options.family.as_deref_mut()
            && let Some(mut end) = family.ends.remove(from)
        {
            follow(&mut end.stored);
            family.ends.insert(end);
        }
        let Some(notes) = options.notes.as_deref_mut() else { return };
        notes.message.iter_mut().for_each(&mut follow);
        notes.logs.iter_mut().for_each(|line| follow(&mut line.stored));
    }

    /// Puts a job that is not known where its record says.
    pub(crate) fn place_kept(&mut self, kept: &KeptJob<'_>, stored: LogRef) -> u32 {
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
        let family = self.jobs.options_of(index).and_then(|has| has.family.as_deref());
        family
            .iter()
            .flat_map(|family| family.ends.values())
            .for_each(|end| self.live.add(&end.stored));
        self.child_ends += family.map_or(0, |family| family.ends.len() as u64);
        self.live.add_lines(notes.map_or(0, |notes| notes.logs.len()));
        let failures: Box<[LogRef]> = kept.failures.iter().collect();
        failures.iter().for_each(|stored| self.live.add(stored));
        self.live.add_lines(failures.len());
        self.jobs.failures.set(index, failures);
        self.queues[queue].push_order.insert(&self.jobs, index);
        if let Some(data) = kept.shared {
            self.share(index, data);
        }
        match kept.place {
            Place::Ended(state, outcome) => {
                self.end(index, state, outcome);
                self.note_kept(index);
                if state == State::Completed {
                    self.retention.note_end(outcome.finished_at_ms);
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
        debug_assert!(!given.waits() || self.jobs.slab[index].options != NONE);
        index
    }

    fn options_of_kept(&mut self, queue: u32, kept: &KeptJob<'_>, name: NameRef) -> u32 {
        let given = &kept.pushed.job;
        let apart = given.name.filter(|_| name == NameRef::APART).map(Into::into);
        let group = self.join_group(queue, given.group_id);
        let Some(rare) = &kept.rare else {
            // The name had a place among the names of its queue when the record was written, and has none now; or the
            // record is from a release without groups.
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
            ttl_ms: given.ttl_ms.unwrap_or(0),
            timeout_ms: given.timeout_ms.unwrap_or(0),
            notes: rare.notes.as_ref().map(|notes| Box::new(notes.notes())),
            unmet: given.dependencies(),
            series,
            name: apart,
            extras: given.extras.clone(),
            trace: given.trace.as_deref().map(|trace| Box::new(Trace::of(trace))),
            group,
            redelivered: rare.redelivered,
            family: given
                .family
                .as_deref()
                .map(|family| Box::new(Self::family_of_kept(family, rare))),
            ..Options::default()
        })
    }

    fn family_of_kept(given: &NewFamily<'_>, rare: &Rare<'_>) -> Family {
        let ends = rare.family.unwrap_or_default();
        let Ends { freed, retried_at_ms, .. } = ends;
        let ends = ends.iter().collect();
        Family { freed, retried_at_ms, ends, ..Family::of(given) }
    }
}
