//! Recovery: applies records in the order they were written, through [`crate::apply::transitions`].

use crate::apply::log_clock::SetBack;
use crate::flow::Slice;
use crate::job::State;
use crate::job::id::JobId;
use crate::log_record::codec::Malformed;
use crate::log_record::job_change::Changed;
use crate::log_record::location::LogRef;
use crate::log_record::snapshot::Kept;
use crate::log_record::{Limited, Pushed, Record, Revived, Ruled};
use crate::shard::Shard;

impl Shard {
    /// Applies one record. `stored` is where it lies; its payload length is found here.
    ///
    /// A record that names a job which is not known is passed over, and counted unless what brought the
    /// job has been reclaimed: see `unknown.rs`.
    pub fn replay(&mut self, position: u64, bytes: &[u8]) -> Result<(), Malformed> {
        let record = Record::decode(bytes)?;
        let stored = LogRef {
            position,
            record_bytes: bytes.len() as u32,
            payload_bytes: record.payload_len() as u32,
        };
        self.unknown.note_record(position, self.config.span_bits);
        self.note_clock(&record);
        match &record {
            Record::Pushed(pushed) => self.replay_push(pushed, stored)?,
            Record::Leased(leased) => {
                for (id, token) in leased.entries.iter() {
                    if let Some(job) = self.pending(id) {
                        self.lease(job, leased.at_ms, leased.ttl_ms, Some(token), None);
                    }
                }
            }
            Record::Completed(ended) => {
                if let Some(job) = self.find_recorded(ended.id) {
                    self.complete(job, ended, stored);
                }
            }
            Record::Retried(retried) => {
                if let Some(job) = self.find_recorded(retried.id) {
                    self.retry(job, retried, stored);
                }
            }
            Record::Buried(buried) => {
                if let Some(job) = self.find_recorded(buried.id) {
                    self.inter(job, buried, stored);
                }
            }
            Record::Stalled { id } => {
                if let Some(job) = self.find_recorded(*id) {
                    self.stall(job);
                }
            }
            Record::Released { id } => {
                if let Some(job) = self.find_recorded(*id) {
                    self.release(job);
                }
            }
            Record::Revived(Revived { id, run_at_ms, by_itself }) => {
                if let Some(job) = self.find_recorded(*id) {
                    self.revive(job, *run_at_ms, *by_itself);
                }
            }
            Record::Removed { id } => {
                if let Some(job) = self.find_recorded(*id) {
                    self.remove(job);
                }
            }
            Record::Changed(changed) => {
                if let Some(job) = self.find_recorded(changed.id()) {
                    self.apply_change(job, changed, stored);
                }
            }
            Record::Limited(Limited { queue, limit }) => {
                self.set_limit(queue, *limit, stored);
            }
            Record::Grouped(grouped) => self.set_group(grouped, stored),
            Record::GroupsCleared { queue } => self.clear_groups(queue),
            Record::Ruled(Ruled { queue, rule }) => {
                self.set_rule(queue, *rule, stored);
            }
            Record::Paused { queue, paused } => {
                self.set_paused(queue, *paused, stored);
            }
            Record::CronSet(_)
            | Record::CronRan(_)
            | Record::CronMissed { .. }
            | Record::CronRemoved { .. } => self.replay_cron(&record, stored)?,
            Record::Met { id, dependency, at_ms } => {
                if let Some(job) = self.find_recorded(*id) {
                    self.meet(job, *dependency, *at_ms);
                }
            }
            Record::ChildEnded(ended) => {
                if let Some(job) = self.find_recorded(ended.parent) {
                    self.end_child(job, ended, stored);
                }
            }
            Record::Settled { child } => self.drop_unreported(*child),
            Record::Adopted(adopted) => {
                if let Some(job) = self.find_recorded(adopted.parent) {
                    self.adopt(job, adopted);
                }
            }
            Record::Staged(staged) => {
                if self.jobs.find(staged.pushed.id).is_some() {
                    return Err(Malformed("a job was pushed twice"));
                }
                // Whether it has to be durable is not written, and seldom asked this late.
                self.note_staged(staged, bytes, stored, true);
            }
            Record::Flow { flow, fate } => {
                self.meet_fate(*flow, *fate, stored);
            }
            Record::FlowSlice { flow, first, last, come } => {
                self.meet_slice(Slice { flow: *flow, first: *first, last: *last, come: *come });
            }
            Record::Blocked { id } => {
                if let Some(job) = self.find_recorded(*id) {
                    self.block(job);
                }
            }
            Record::Repeated(repeated) => {
                repeated.next.points_before(position)?;
                let next = repeated.next.pushed.id;
                if self.jobs.find(next).is_some() {
                    return Err(Malformed("a job was pushed twice"));
                }
                self.ids.rise_above(next);
                self.unknown.note_new(next);
                let job = self.find_recorded(repeated.ended.id);
                self.repeat(job, repeated, stored);
            }
            Record::Kept(kept) => {
                if let Kept::Job(job) = kept {
                    job.points_before(position)?;
                }
                self.replay_kept(kept, stored);
            }
            Record::WebhookAdded(added) => self.add_webhook(added, stored),
            Record::WebhookRemoved { id } => self.remove_webhook(*id),
            &Record::ClockSetBack { from_ms, to_ms, stuck_ms } => {
                self.follow_clock_back(SetBack { from_ms, to_ms, stuck_ms });
            }
        }
        self.queues.sweep(0);
        Ok(())
    }

    /// Learns the time of a record, from the id of the job that it brings or from a time in it.
    fn note_clock(&mut self, record: &Record<'_>) {
        let made = match record {
            Record::Pushed(pushed) => Some(pushed.id),
            Record::CronRan(ran) => Some(ran.pushed.id),
            Record::Repeated(repeated) => Some(repeated.next.pushed.id),
            Record::Staged(staged) => Some(staged.pushed.id),
            _ => None,
        };
        if let Some(id) = made {
            self.log_clock.note_made(id);
        }
        if let Some(at_ms) = time_of(record) {
            self.log_clock.show(at_ms);
        }
    }

    pub(crate) fn replay_push(
        &mut self,
        pushed: &Pushed<'_>,
        stored: LogRef,
    ) -> Result<(), Malformed> {
        if self.jobs.find(pushed.id).is_some() {
            return Err(Malformed("a job was pushed twice"));
        }
        self.ids.rise_above(pushed.id);
        self.unknown.note_new(pushed.id);
        let queue = self.queues.find_or_insert(pushed.queue);
        self.add(queue, pushed, stored);
        Ok(())
    }

    /// The job that a record is about.
    #[inline]
    fn find_recorded(&mut self, id: JobId) -> Option<u32> {
        let job = self.jobs.find(id);
        if job.is_none() {
            self.unknown.note_unknown(id);
        }
        job
    }

    /// Records that a replay has met about jobs that it should have known. Any at all means that
    /// something was lost: see `unknown.rs`.
    pub fn unknown_job_records(&self) -> u64 {
        self.unknown.records()
    }

    fn pending(&mut self, id: JobId) -> Option<u32> {
        let job = self.find_recorded(id)?;
        matches!(self.jobs.slab[job].state, State::Waiting | State::Delayed | State::Active)
            .then_some(job)
    }
}

/// When a record was written, if it tells.
fn time_of(record: &Record<'_>) -> Option<u64> {
    Some(match record {
        Record::Leased(leased) => leased.at_ms,
        Record::Completed(ended) => ended.at_ms,
        Record::Repeated(repeated) => repeated.ended.at_ms,
        Record::Retried(retried) => retried.at_ms,
        Record::Buried(buried) => buried.at_ms,
        Record::Revived(revived) => revived.run_at_ms,
        Record::ChildEnded(ended) => ended.at_ms,
        Record::Met { at_ms, .. }
        | Record::Changed(
            Changed::Promoted { at_ms, .. }
            | Changed::PutOff { at_ms, .. }
            | Changed::Logged { at_ms, .. },
        ) => *at_ms,
        _ => return None,
    })
}
