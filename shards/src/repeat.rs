//! Repeated jobs: when a run completes, the next one comes in the same record, so that no crash loses
//! or doubles it.
//!
//! The next run has an id of its own and no payload of its own: it points to the same record of the
//! log as the run before, see [`crate::job::shared_payload`]. All else about it stands in the record.

use crate::collections::slab::NONE;
use crate::event::Step;
use crate::job::id::JobId;
use crate::job::new_job::{NewJob, Repeat};
use crate::job::overrides::Extras;
use crate::job::{State, flags};
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::kind;
use crate::log_record::location::LogRef;
use crate::log_record::row::Body;
use crate::log_record::show::Show;
use crate::log_record::snapshot::{KeptJob, Place, Rare};
use crate::log_record::{Ended, Journal, Pushed, Record};
use crate::queue::retention::Evicts;
use crate::shard::{Out, Shard};

/// What a run knows of the series it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Series {
    /// Distance between due times, at least 1.
    pub every_ms: u64,
    /// Total number of runs, or `None` for no end.
    pub limit: Option<u64>,
    /// Runs before this one.
    pub count: u64,
    /// When this run was due, whatever delayed it since.
    pub due_ms: u64,
    /// Life of each run while not active; 0 for none.
    pub ttl_ms: u64,
    /// Whether the next run has come, so that this one, if it is run again, brings no other.
    pub continued: bool,
    /// The reply waits for the disk.
    pub durable: bool,
}

impl Series {
    /// The series that a job begins.
    pub(crate) fn of(pushed: &Pushed<'_>) -> Option<Self> {
        let repeat = pushed.job.repeat?;
        Some(Self {
            every_ms: repeat.every_ms.max(1),
            limit: repeat.limit,
            count: repeat.count,
            due_ms: pushed.run_at_ms,
            ttl_ms: pushed.job.ttl_ms.unwrap_or(0),
            continued: false,
            durable: pushed.job.durable,
        })
    }

    /// As it would be asked for.
    pub(crate) fn repeat(&self) -> Repeat {
        Repeat { every_ms: self.every_ms, limit: self.limit, count: self.count }
    }

    fn has_next(&self) -> bool {
        !self.continued && self.limit.is_none_or(|limit| self.count.saturating_add(1) < limit)
    }

    /// When the next run is due: a whole number of intervals later, not before `now_ms`, and not sooner than runs may
    /// follow each other.
    fn next_due_ms(&self, now_ms: u64, interval_min_ms: u64) -> u64 {
        let soonest_ms = now_ms.max(self.due_ms.saturating_add(interval_min_ms));
        let missed = soonest_ms.saturating_sub(self.due_ms).div_ceil(self.every_ms);
        self.due_ms.saturating_add(missed.max(1).saturating_mul(self.every_ms))
    }
}

/// See [`Record::Repeated`].
#[derive(Clone, Debug)]
pub struct Repeated<'a> {
    /// The run that was done.
    pub ended: Ended<'a>,
    /// The next run.
    pub next: Box<KeptJob<'a>>,
}

/// The queue of a run, its name, its key and its group.
type Texts<'a> = (&'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

impl Repeated<'_> {
    pub(crate) fn kind(&self) -> u8 {
        match self.ended.evicts {
            Evicts::Unsaid => kind::REPEATED,
            _ => kind::RUN_DONE,
        }
    }
}

impl<'a> Body<'a> for Repeated<'a> {
    fn encoded_len(&self) -> usize {
        let said = if self.kind() == kind::RUN_DONE { 8 } else { 0 };
        32 + said + 4 + self.next.encoded_len() + self.ended.result.len()
    }

    fn payload_len(&self) -> usize {
        self.ended.result.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.ended.id);
        out.u64(self.ended.at_ms);
        out.u64(self.ended.started_at_ms);
        if self.kind() == kind::RUN_DONE {
            out.u64(self.ended.evicts.below());
        }
        out.u32(self.next.encoded_len() as u32);
        self.next.encode(out);
        out.bytes(self.ended.result);
    }

    fn decode(kind: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, at_ms, started_at_ms) = (from.id()?, from.u64()?, from.u64()?);
        let evicts = match kind {
            kind::REPEATED => Evicts::Unsaid,
            _ => Evicts::of(from.u64()?),
        };
        let bytes = from.u32()?;
        let next = Box::new(KeptJob::decode(kind, Reader::new(from.bytes(bytes as usize)?))?);
        if next.shared.is_none() || !matches!(next.place, Place::Pending(_)) {
            return Err(Malformed("a run must wait for its turn and share its payload"));
        }
        let ended = Ended { id, at_ms, started_at_ms, evicts, result: from.rest() };
        Ok(Self { ended, next })
    }

    fn show(&self, to: &mut impl Show) {
        self.ended.show(to);
        to.map("next", |to| self.next.show(to));
    }
}

impl Shard {
    /// Whether the completion of this job brings another run.
    pub(crate) fn has_next_run(&self, job: u32) -> bool {
        self.series_of(job).is_some_and(Series::has_next)
    }

    fn series_of(&self, job: u32) -> Option<&Series> {
        self.jobs.options_of(job)?.series.as_deref()
    }

    /// Completes a run whose series goes on.
    pub(crate) fn complete_run<J: Journal>(
        &mut self,
        now_ms: u64,
        job: u32,
        ended: Ended<'_>,
        out: &mut Out<'_, J>,
    ) {
        let Some(series) = self.series_of(job).copied() else { return };
        let about = &self.jobs.slab[job];
        let queue = about.queue;
        let id = self.ids.make(now_ms, self.queues[queue].slot);
        // Out of their places while they lend their texts to the record.
        let (queue_name, key) = (self.queues[queue].name.clone(), self.unique_key_of(job));
        let name: Option<Box<str>> = self.name_of(job).map(Into::into);
        let group: Option<Box<str>> = self.group_name_of(job).map(Into::into);
        let texts = (&*queue_name, name.as_deref(), key.as_deref(), group.as_deref());
        let Some(next) = self.next_run(now_ms, id, job, texts) else { return };
        let record = Record::Repeated(Repeated { ended, next: Box::new(next) });
        let stored = out.journal.append(&record);
        if series.durable {
            out.journal.require_sync();
        }
        self.emit(now_ms, job, Step::Completed { result: stored }, out.effects);
        if let Record::Repeated(repeated) = &record {
            self.repeat(Some(job), repeated, stored);
        }
        self.emit_run(now_ms, id, out.effects);
        self.totals.pushed += 1;
        self.serve(now_ms, queue, out);
    }

    fn unique_key_of(&self, job: u32) -> Option<Box<str>> {
        self.jobs.options_of(job)?.unique_key.clone()
    }

    /// [`Record::Repeated`]. `job` is the run that was done, if it is still known.
    pub(crate) fn repeat(&mut self, job: Option<u32>, repeated: &Repeated<'_>, stored: LogRef) {
        if let Some(job) = job {
            if let Some(data) = repeated.next.shared {
                self.share(job, data);
            }
            if let Some(series) = self.jobs.options_of_mut(job).and_then(|has| has.series.as_mut())
            {
                series.continued = true;
            }
            self.complete(job, &repeated.ended, stored);
        }
        self.place_kept(&repeated.next, stored);
    }

    /// Makes the payload of a run one that other runs share.
    pub(crate) fn share(&mut self, job: u32, data: LogRef) {
        let about = &mut self.jobs.slab[job];
        if about.has(flags::SHARED) || about.options == NONE {
            return;
        }
        about.flags |= flags::SHARED;
        let (share, first) = self.shares.join(data);
        if first {
            self.live.add(&data);
        }
        self.jobs.options[about.options].share = share;
    }

    /// A job goes, or has a payload of its own again.
    pub(crate) fn unshare(&mut self, job: u32) {
        let about = &mut self.jobs.slab[job];
        if !about.has(flags::SHARED) {
            return;
        }
        about.flags &= !flags::SHARED;
        let share = std::mem::take(&mut self.jobs.options[about.options].share);
        if let Some(data) = self.shares.leave(share) {
            self.live.sub(&data);
        }
    }

    /// The record that holds the payload of a job, as its last bytes, and the options that only
    /// records hold.
    #[inline]
    pub(crate) fn data_of(&self, job: u32) -> LogRef {
        let about = &self.jobs.slab[job];
        if about.has(flags::SHARED) {
            return self.shares.stored(self.jobs.options[about.options].share);
        }
        about.stored
    }

    /// The next run, like `job` in everything that its client asked for but the custom id, which
    /// names one job only.
    fn next_run<'a>(
        &mut self,
        now_ms: u64,
        id: JobId,
        job: u32,
        (queue, name, unique_key, group_id): Texts<'a>,
    ) -> Option<KeptJob<'a>> {
        let free_ms = self.scheduled.take(now_ms);
        let about = &self.jobs.slab[job];
        let given = self.jobs.options_of(job)?;
        let series = given.series.as_deref()?;
        // Where too many come it is only late: the next one is due on the cadence all the same.
        let due_ms = series.next_due_ms(now_ms, self.config.interval_min_ms);
        let run_at_ms = due_ms.max(free_ms);
        let Series { every_ms, limit, ttl_ms, durable, .. } = *series;
        let count = series.count.saturating_add(1);
        let extras = given.extras.as_deref();
        let extras = extras.map(|extras| Extras { made_at_ms: None, ..extras.anew(now_ms) });
        let job_now = NewJob {
            name,
            extras: extras.map(Box::new),
            priority: about.priority,
            max_attempts: about.max_attempts,
            backoff_ms: about.backoff_ms,
            ttl_ms: (ttl_ms > 0).then_some(ttl_ms),
            timeout_ms: (given.timeout_ms > 0).then_some(given.timeout_ms),
            unique_key,
            group_id,
            repeat: Some(Repeat { every_ms, limit, count }),
            lifo: about.has(flags::LIFO),
            remove_on_complete: about.has(flags::REMOVE_ON_COMPLETE),
            remove_on_fail: about.has(flags::REMOVE_ON_FAIL),
            durable,
            ..NewJob::default()
        };
        let expires_at_ms = if ttl_ms > 0 { now_ms.saturating_add(ttl_ms) } else { 0 };
        let state = if run_at_ms > now_ms { State::Delayed } else { State::Waiting };
        Some(KeptJob {
            pushed: Pushed { id, queue, run_at_ms, job: job_now },
            attempts: 0,
            stalls: 0,
            place: Place::Pending(state),
            rare: Some(Rare {
                expires_at_ms,
                notes: None,
                run: Some((due_ms, false)),
                redelivered: None,
                family: None,
            }),
            shared: Some(self.data_of(job)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_run_is_on_cadence_and_never_in_the_past() {
        let series = Series {
            every_ms: 100,
            limit: None,
            count: 0,
            due_ms: 1000,
            ttl_ms: 0,
            continued: false,
            durable: false,
        };
        for (now_ms, due_ms) in
            [(900, 1100), (1000, 1100), (1100, 1100), (1101, 1200), (1950, 2000)]
        {
            assert_eq!(series.next_due_ms(now_ms, 1), due_ms, "done at {now_ms}");
        }
        assert_eq!(series.next_due_ms(1000, 250), 1300, "spaced out, on cadence");
        let endless = Series { every_ms: u64::MAX, ..series };
        assert_eq!(endless.next_due_ms(5000, 1), u64::MAX);
        assert!(Series { limit: Some(2), ..series }.has_next());
        assert!(!Series { limit: Some(2), count: 1, ..series }.has_next());
    }
}
