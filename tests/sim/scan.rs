//! Looks through a dead-letter queue in the model: which jobs a filter selects, and what the reply says of them.

use super::bulk_operations::{BulkOperation, since_ms};
use super::check::Check;
use super::job_rules::Moment;
use super::model::{Job, Model, State};
use super::ops::Answer;
use corq_shards::dead_letter::reason::Cause;
use corq_shards::dead_letter::scan::{DlqScanFor, FailedFilter, FailedStats};
use corq_shards::job::id::JobId;

/// A filter of a dead-letter queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DlqScan {
    pub filter: FailedFilter,
    pub offset: u64,
    pub limit: u64,
    pub purpose: DlqScanFor,
}

impl DlqScan {
    pub fn retries(&self) -> bool {
        self.purpose == DlqScanFor::Retry
    }

    /// Whether what it means can change though the jobs do not.
    fn is_of_its_time(&self) -> bool {
        self.filter.retriable || self.filter.expired
    }

    pub fn means(&self, model: &Model, now_ms: u64, job: &Job) -> bool {
        let State::Failed { at_ms, cause } = job.state else { return false };
        let filter = &self.filter;
        let (retriable, expired) = model.prospects(now_ms, job);
        filter.cause.is_none_or(|meant| meant == cause)
            && filter.until_ms.is_none_or(|until_ms| at_ms <= until_ms)
            && filter.since_ms.is_none_or(|since_ms| at_ms >= since_ms)
            && (retriable || !filter.retriable)
            && (expired || !filter.expired)
    }
}

impl Model {
    /// Whether a job in the dead-letter queue will be tried anew by itself, and whether it should be gone.
    fn prospects(&self, now_ms: u64, job: &Job) -> (bool, bool) {
        let lives =
            |due_ms: u64| job.expires_at_ms.is_none_or(|life_ms| due_ms.max(now_ms) < life_ms);
        let in_time = |due_ms: u64| lives(due_ms) && !self.is_outdated(job, due_ms.max(now_ms));
        (self.returns_ms(job).is_some_and(in_time), self.is_outdated(job, now_ms))
    }

    /// A look through a dead-letter queue is over. `at_once`: in the call that asked for it. False if what
    /// holds for other long commands is still to be checked.
    pub fn check_scan(
        &self,
        at: &Moment<'_>,
        bulk_operation: &BulkOperation,
        scan: &DlqScan,
        answer: &Answer,
        at_once: bool,
    ) -> bool {
        let meant: Vec<&Job> = bulk_operation.must.iter().map(|id| &self.jobs[id]).collect();
        match scan.purpose {
            DlqScanFor::Retry => {
                // Jobs that the scan left may fit its filter no longer.
                return scan.is_of_its_time() && !at_once && *answer == bulk_operation.answer(self);
            }
            DlqScanFor::Listing => {
                let Answer::Found(ids) = answer else {
                    self.checks.fail(Check::Answer, || {
                        format!("{bulk_operation:?} gets the answer {answer:?}")
                    });
                    return true;
                };
                self.check_listing(at, bulk_operation, scan, ids, at_once);
            }
            DlqScanFor::Stats if at_once => {
                let expected = Answer::Stats(Box::new(self.count_letters(
                    at.now_ms,
                    &bulk_operation.queue,
                    &meant,
                )));
                self.must(Check::Answer, *answer == expected, || {
                    format!(
                        "the letters in {} are {answer:?}, not {expected:?}",
                        bulk_operation.queue
                    )
                });
            }
            DlqScanFor::Stats => {
                let is_answered =
                    matches!(answer, Answer::Stats(stats) if stats.total >= meant.len() as u64);
                self.must(Check::Answer, is_answered, || {
                    format!("{bulk_operation:?} gets the answer {answer:?}")
                });
            }
        }
        true
    }

    fn check_listing(
        &self,
        at: &Moment<'_>,
        bulk_operation: &BulkOperation,
        scan: &DlqScan,
        ids: &[JobId],
        at_once: bool,
    ) {
        let mut times: Vec<u64> =
            bulk_operation.must.iter().map(|id| since_ms(&self.jobs[id])).collect();
        times.sort_unstable();
        let wrong = || format!("at {}, {bulk_operation:?}\n  is answered {ids:?}", at.now_ms);
        let mut distinct = ids.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        self.must(Check::Answer, distinct.len() == ids.len(), wrong);
        self.must(Check::Answer, ids.len() as u64 <= scan.limit, wrong);
        if at_once {
            // Oldest first; of those that failed at the same time, as far as the clock tells, the shard chooses.
            let from = times.len().min(scan.offset as usize);
            let expected = times[from..].iter().take(scan.limit as usize);
            let fits = |(id, expected_ms): (&JobId, &u64)| {
                bulk_operation.must.contains(id)
                    && since_ms(&self.jobs[id]).abs_diff(*expected_ms) <= self.clock_slack_ms
            };
            let same = ids.len() == expected.len() && ids.iter().zip(expected).all(fits);
            self.must(Check::Answer, same, || format!("{}, not as of {times:?}", wrong()));
        } else if scan.offset == 0 && (ids.len() as u64) < scan.limit && !scan.is_of_its_time() {
            let left = bulk_operation.must.iter().find(|id| !ids.contains(id));
            self.must(Check::Answer, left.is_none(), || format!("{}, not {left:?}", wrong()));
        }
    }

    fn count_letters(&self, now_ms: u64, queue: &str, meant: &[&Job]) -> FailedStats {
        let mut stats = FailedStats { queue: queue.into(), ..FailedStats::default() };
        for job in meant {
            let State::Failed { cause, .. } = job.state else { continue };
            let (retriable, expired) = self.prospects(now_ms, job);
            stats.by_cause[Cause::ALL.iter().position(|one| *one == cause).unwrap_or(0)] += 1;
            stats.retriable += u64::from(retriable);
            stats.expired += u64::from(expired);
        }
        stats.total = meant.len() as u64;
        stats.oldest_ms = meant.iter().map(|job| since_ms(job)).min();
        stats.newest_ms = meant.iter().map(|job| since_ms(job)).max();
        stats
    }
}
