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
use crate::job::recurrence::Recurrence;
use crate::job::series::Series;
use crate::job::trace::{NewTrace, Trace};
use crate::job::{State, flags};
use crate::log_record::location::LogRef;
use crate::log_record::repeated::Repeated;
use crate::log_record::snapshot::{FailedAttempts, KeptJob, Place, Rare};
use crate::log_record::{Ended, Journal, Pushed, Record};
use crate::shard::{Out, Shard};
use crate::traced::Settled;

/// Parts that a run takes over from the one before it, in borrowed form.
struct Lent<'a> {
    queue: &'a str,
    name: Option<&'a str>,
    unique_key: Option<&'a str>,
    custom_id: Option<&'a str>,
    group_id: Option<&'a str>,
    recurrence: Option<Box<Recurrence<'a>>>,
    trace: Option<NewTrace<'a>>,
}

impl Shard {
    /// Whether the completion of this job brings another run.
    pub(crate) fn has_next_run(&self, job: u32) -> bool {
        self.series_of(job).is_some_and(Series::has_next)
    }

    /// Whether it brings one if it comes now.
    pub(crate) fn has_run_due(&self, now_ms: u64, job: u32) -> bool {
        let series = self.series_of(job).filter(|series| series.has_next());
        series
            .is_some_and(|series| series.next_due_ms(now_ms, self.config.interval_min_ms).is_some())
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
        let Some(series) = self.series_of(job).cloned() else { return };
        let about = &self.jobs.slab[job];
        let queue = about.queue;
        let id = self.ids.make(now_ms, self.queues[queue].slot);
        // Out of their places while they lend their texts to the record.
        let (queue_name, key) = (self.queues[queue].name.clone(), self.unique_key_of(job));
        let custom_id = self.jobs.options_of(job).and_then(|has| has.custom_id.clone());
        let name: Option<Box<str>> = self.name_of(job).map(Into::into);
        let group: Option<Box<str>> = self.group_name_of(job).map(Into::into);
        let trace = self.jobs.trace_of(job).cloned();
        let lent = Lent {
            queue: &queue_name,
            name: name.as_deref(),
            unique_key: key.as_deref(),
            custom_id: custom_id.as_deref(),
            group_id: group.as_deref(),
            recurrence: series.given_recurrence(),
            trace: trace.as_ref().map(Trace::given),
        };
        let Some(next) = self.next_run(now_ms, id, job, lent) else { return };
        let record = Record::Repeated(Repeated { ended, next: Box::new(next) });
        let stored = out.journal.append(&record);
        if series.durable {
            out.journal.require_sync();
        }
        self.emit(now_ms, job, Step::Completed { result: stored }, out.effects);
        self.trace_settled(now_ms, job, || Settled::Completed, out.effects);
        if let Record::Repeated(repeated) = &record {
            self.repeat(Some(job), repeated, stored);
        }
        self.emit_run(now_ms, id, out.effects);
        self.totals.pushed += 1;
        self.queues.count_push(queue, now_ms);
        self.serve(now_ms, queue, out);
    }

    fn unique_key_of(&self, job: u32) -> Option<Box<str>> {
        self.jobs.options_of(job)?.unique_key.clone()
    }

    /// [`Record::Repeated`]. `job` is the run that was done, if it is still known.
    pub(crate) fn repeat(&mut self, job: Option<u32>, repeated: &Repeated<'_>, stored: LogRef) {
        let told = self.names.len();
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
        let next = self.place_kept(&repeated.next, stored);
        let is_named = repeated.next.pushed.job.custom_id.is_some();
        if is_named && let Some(done) = self.jobs.find(repeated.ended.id) {
            let options = self.jobs.options_of_mut(done);
            if let Some(has) = options {
                has.custom_id = None;
            }
        }
        self.note_name(next, true);
        // Announce the new bearer before the end of the old one: else another push could claim the name in between.
        self.names[told..].rotate_right(usize::from(is_named && !self.recovering));
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

    /// The next run, like `job` in everything that its client asked for. The custom id is its own from now on: it names the
    /// run that is to be done.
    fn next_run<'a>(
        &mut self,
        now_ms: u64,
        id: JobId,
        job: u32,
        lent: Lent<'a>,
    ) -> Option<KeptJob<'a>> {
        let Lent { queue, name, unique_key, custom_id, group_id, recurrence, trace } = lent;
        let free_ms = self.scheduled.take(now_ms);
        let about = &self.jobs.slab[job];
        let given = self.jobs.options_of(job)?;
        let series = given.series.as_deref()?;
        // Where too many come it is only late: the next one is due on the cadence all the same.
        let due_ms = series.next_due_ms(now_ms, self.config.interval_min_ms)?;
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
            custom_id,
            group_id,
            repeat: Some(Repeat { every_ms, limit, count }),
            lifo: about.has(flags::LIFO),
            remove_on_complete: about.has(flags::REMOVE_ON_COMPLETE),
            remove_on_fail: about.has(flags::REMOVE_ON_FAIL),
            durable,
            recurrence,
            trace: trace.map(Box::new),
            ..NewJob::default()
        };
        let expires_at_ms = if ttl_ms > 0 { now_ms.saturating_add(ttl_ms) } else { 0 };
        let state = if run_at_ms > now_ms { State::Delayed } else { State::Waiting };
        Some(KeptJob {
            pushed: Pushed { id, queue, run_at_ms, job: job_now.into() },
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
            failures: FailedAttempts::default(),
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
            recurrence: None,
        };
        for (now_ms, due_ms) in
            [(900, 1100), (1000, 1100), (1100, 1100), (1101, 1200), (1950, 2000)]
        {
            assert_eq!(series.next_due_ms(now_ms, 1), Some(due_ms), "done at {now_ms}");
        }
        assert_eq!(series.next_due_ms(1000, 250), Some(1300), "spaced out, on cadence");
        let endless = Series { every_ms: u64::MAX, ..series.clone() };
        assert_eq!(endless.next_due_ms(5000, 1), Some(u64::MAX));
        assert!(Series { limit: Some(2), ..series.clone() }.has_next());
        assert!(!Series { limit: Some(2), count: 1, ..series }.has_next());
    }

    #[test]
    fn runs_of_an_expression_are_due_at_its_times_and_none_after_the_end() {
        let series = |until_ms| {
            let given =
                Recurrence { pattern: Some("*/10 * * * * *"), until_ms, ..Recurrence::default() };
            let job = NewJob {
                repeat: Some(Repeat { every_ms: 1, limit: None, count: 0 }),
                recurrence: Some(Box::new(given)),
                ..NewJob::default()
            };
            let pushed =
                Pushed { id: JobId::default(), queue: "q", run_at_ms: 20_000, job: job.into() };
            Series::of(&pushed).expect("it is repeated")
        };
        for (now_ms, due_ms) in
            [(20_001, 30_000), (29_999, 30_000), (30_000, 30_000), (30_001, 40_000), (5, 30_000)]
        {
            assert_eq!(series(None).next_due_ms(now_ms, 1), Some(due_ms), "done at {now_ms}");
        }
        assert_eq!(series(None).next_due_ms(20_001, 15_000), Some(40_000), "spaced out");
        assert_eq!(series(Some(40_000)).next_due_ms(30_001, 1), Some(40_000));
        assert_eq!(series(Some(39_999)).next_due_ms(30_001, 1), None);
    }
}
