//! Repeated jobs: when a run completes, the next one comes in the same record, so that no crash loses
//! or doubles it.
//!
//! The next run has an id of its own and no payload of its own: it points to the same record of the
//! log as the run before. So a record that any job points to is live, whoever wrote it first.

use crate::event::Step;
use crate::id::JobId;
use crate::job::{Job, Options, State, Stored, flags};
use crate::record::{Ended, Journal, Pushed, Record};
use crate::shard::{Out, Shard};
use crate::slab::{Links, NONE};
use crate::wire::{Malformed, Reader, Writer};

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

    fn has_next(&self) -> bool {
        !self.continued && self.limit.is_none_or(|limit| self.count.saturating_add(1) < limit)
    }

    /// When the next run is due: a whole number of intervals later, and not before `now_ms`.
    fn next_due_ms(&self, now_ms: u64) -> u64 {
        let missed = now_ms.saturating_sub(self.due_ms).div_ceil(self.every_ms);
        self.due_ms.saturating_add(missed.max(1).saturating_mul(self.every_ms))
    }
}

/// See [`Record::Repeated`].
#[derive(Clone, Copy, Debug)]
pub struct Repeated<'a> {
    /// The run that was done.
    pub ended: Ended<'a>,
    /// The next run.
    pub next: JobId,
    /// When that is due.
    pub run_at_ms: u64,
}

impl<'a> Repeated<'a> {
    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.ended.id);
        out.u64(self.ended.at_ms);
        out.u64(self.ended.started_at_ms);
        out.id(self.next);
        out.u64(self.run_at_ms);
        out.bytes(self.ended.result);
    }

    pub(crate) fn decode(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, at_ms, started_at_ms) = (from.id()?, from.u64()?, from.u64()?);
        let (next, run_at_ms) = (from.id()?, from.u64()?);
        let ended = Ended { id, at_ms, started_at_ms, result: from.rest() };
        Ok(Self { ended, next, run_at_ms })
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
        let queue = self.jobs.slab[job].queue;
        let slot = self.queues[queue].slot;
        let next = self.ids.make(now_ms, slot);
        let repeated = Repeated { ended, next, run_at_ms: series.next_due_ms(now_ms) };
        let stored = out.journal.append(&Record::Repeated(repeated));
        if series.durable {
            out.journal.require_sync();
        }
        self.emit(now_ms, job, Step::Completed { result: stored }, out.effects);
        self.repeat(job, &repeated, stored);
        self.emit_run(now_ms, next, out.effects);
        self.totals.pushed += 1;
        self.serve(now_ms, queue, out);
    }

    /// [`Record::Repeated`].
    pub(crate) fn repeat(&mut self, job: u32, repeated: &Repeated<'_>, stored: Stored) {
        let options = self.jobs.slab[job].options;
        let next = (options != NONE).then(|| self.next_run(job, repeated)).flatten();
        if let Some(series) = self.jobs.options_of_mut(job).and_then(|has| has.series.as_mut()) {
            series.continued = true;
        }
        self.complete(job, &repeated.ended, stored);
        let Some((mut next, options)) = next else { return };
        next.options = self.jobs.options.insert(options);
        let queue = next.queue;
        let index = self.jobs.insert(next);
        self.queues[queue].roll.insert(&self.jobs.slab, index);
        self.unique.take(&self.jobs, index);
        let later = repeated.run_at_ms > repeated.ended.at_ms;
        self.enter(index, if later { State::Delayed } else { State::Waiting });
    }

    /// The next run, like `job` in everything that its client asked for but the custom id, which
    /// names one job only.
    fn next_run(&self, job: u32, repeated: &Repeated<'_>) -> Option<(Job, Options)> {
        let run_at_ms = repeated.run_at_ms;
        let about = &self.jobs.slab[job];
        let given = self.jobs.options_of(job)?;
        let series = given.series.as_deref()?;
        let kept = flags::LIFO | flags::REMOVE_ON_COMPLETE | flags::REMOVE_ON_FAIL;
        let next = Job {
            id: repeated.next,
            run_at_ms,
            links: Links::default(),
            timer: NONE,
            detail: NONE,
            options: NONE,
            attempts: 0,
            stalls: 0,
            flags: about.flags & kept,
            ..about.clone()
        };
        let expires_at_ms = match series.ttl_ms {
            0 => 0,
            ttl_ms => repeated.ended.at_ms.saturating_add(ttl_ms),
        };
        let count = series.count.saturating_add(1);
        let series = Series { count, due_ms: run_at_ms, ..*series };
        let options = Options {
            unique_key: given.unique_key.clone(),
            expires_at_ms,
            timeout_ms: given.timeout_ms,
            series: Some(Box::new(series)),
            ..Options::default()
        };
        Some((next, options))
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
            assert_eq!(series.next_due_ms(now_ms), due_ms, "done at {now_ms}");
        }
        let endless = Series { every_ms: u64::MAX, ..series };
        assert_eq!(endless.next_due_ms(5000), u64::MAX);
        assert!(Series { limit: Some(2), ..series }.has_next());
        assert!(!Series { limit: Some(2), count: 1, ..series }.has_next());
    }
}
