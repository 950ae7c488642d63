//! Looking through a dead-letter queue, oldest failure first, in slices: to list some of its jobs, to try
//! some of them anew, to count them, or to give all of them the deadlines of a new rule.
//!
//! It is a bulk operation (as clearing a queue is), so at most one of a queue is under way, and what comes and goes between
//! its slices makes it miss nothing else: the queue of the failed remembers how far it has come.

use crate::command::DlqScanRequest;
use crate::dead_letter::reason::Cause;
use crate::job::State;
use crate::job::id::JobId;
use crate::log_record::Journal;
use crate::shard::{Out, Shard};

/// Jobs looked at by one slice. A look costs a few nanoseconds; a slice, well under a millisecond.
const LOOKS_MAX: u64 = 8192;

/// Which jobs of a dead-letter queue are meant: those of which all holds that is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FailedFilter {
    /// Why they are there.
    pub cause: Option<Cause>,
    /// They failed by then.
    pub until_ms: Option<u64>,
    /// They did not fail before then.
    pub since_ms: Option<u64>,
    /// They will be tried anew by themselves.
    pub retriable: bool,
    /// They have expired.
    pub expired: bool,
}

/// Counts and times of the jobs in a dead-letter queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailedStats {
    /// The queue.
    pub queue: Box<str>,
    /// Jobs in the queue.
    pub total: u64,
    /// Jobs by cause, in the order of [`Cause::ALL`].
    pub by_cause: [u64; Cause::ALL.len()],
    /// Jobs that will be retried automatically.
    pub retriable: u64,
    /// Jobs that are too old to be retried automatically.
    pub expired: u64,
    /// When the first of them failed.
    pub oldest_ms: Option<u64>,
    /// When the last of them did.
    pub newest_ms: Option<u64>,
}

/// The action on the jobs that are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DlqScanFor {
    /// They are listed.
    Listing,
    /// They are tried anew.
    Retry,
    /// They are counted.
    Stats,
}

/// A look through a dead-letter queue that is under way.
pub(crate) struct DlqScan {
    filter: FailedFilter,
    /// The place among the ends before which jobs are looked at: those that were there.
    below: u64,
    skip: u64,
    limit: u64,
    pub(crate) yields: Yields,
}

/// The results of a scan so far.
pub(crate) enum Yields {
    Ids(Vec<JobId>),
    Retried,
    Stats(Box<FailedStats>),
    Rearmed,
}

impl Shard {
    /// A look through all that is in a dead-letter queue now.
    pub(crate) fn scan(&mut self, scan_request: &DlqScanRequest<'_>) -> DlqScan {
        let queue = self.queues.find(scan_request.queue);
        let below = queue.map_or(0, |queue| self.end_of(queue, State::Failed));
        DlqScan {
            filter: scan_request.filter,
            below,
            skip: scan_request.offset,
            limit: scan_request.limit,
            yields: match scan_request.purpose {
                DlqScanFor::Listing => Yields::Ids(Vec::new()),
                DlqScanFor::Retry => Yields::Retried,
                DlqScanFor::Stats => {
                    let queue = scan_request.queue.into();
                    Yields::Stats(Box::new(FailedStats { queue, ..FailedStats::default() }))
                }
            },
        }
    }

    /// Begins a scan of all jobs of a dead-letter queue that sets their deadlines anew.
    pub(crate) fn rearming(&self, queue: u32) -> DlqScan {
        let below = self.end_of(queue, State::Failed);
        let filter = FailedFilter::default();
        DlqScan { filter, below, skip: 0, limit: u64::MAX, yields: Yields::Rearmed }
    }

    /// Does one slice; returns how many jobs were found, and whether it was the last.
    pub(crate) fn continue_scan<J: Journal>(
        &mut self,
        now_ms: u64,
        queue: u32,
        scan: &mut DlqScan,
        out: &mut Out<'_, J>,
    ) -> (u64, bool) {
        let mut found = 0;
        for _ in 0..LOOKS_MAX {
            // Found jobs may be changed, so a slice finds at most as many as slices of other bulk operations change.
            if scan.limit == 0 || found == self.config.bulk_slice {
                break;
            }
            let next = self.queues[queue].failed.walk_on(&self.jobs);
            let Some(job) = next.filter(|&job| self.jobs.end_order(job) < scan.below) else {
                scan.limit = 0;
                break;
            };
            if !self.is_meant(now_ms, job, &scan.filter) {
                continue;
            }
            if scan.skip > 0 {
                scan.skip -= 1;
                continue;
            }
            scan.limit -= 1;
            found += 1;
            match &mut scan.yields {
                Yields::Ids(ids) => ids.push(self.jobs.slab[job].id),
                Yields::Retried => self.revive_one(now_ms, job, false, out),
                Yields::Rearmed => self.rearm_burial(now_ms, job),
                Yields::Stats(stats) => self.count_failed(now_ms, job, stats),
            }
        }
        let last = scan.limit == 0;
        if matches!(scan.yields, Yields::Retried) {
            self.serve(now_ms, queue, out);
        }
        (found, last)
    }

    /// Whether a job in the dead-letter queue will be tried anew by itself, and whether it has expired.
    fn prospects(&self, now_ms: u64, job: u32) -> (bool, bool) {
        if self.queues[self.jobs.slab[job].queue].rules.is_none() {
            return (false, false);
        }
        let (retry, end) = (self.redelivers_at_ms(now_ms, job), self.burial_expires_at_ms(job));
        (retry.is_some(), end.is_some_and(|end_ms| end_ms <= now_ms))
    }

    fn is_meant(&self, now_ms: u64, job: u32, filter: &FailedFilter) -> bool {
        let outcome = &self.jobs.outcomes[self.jobs.slab[job].detail];
        let at_ms = outcome.finished_at_ms;
        if filter.cause.is_some_and(|cause| cause != outcome.cause)
            || filter.until_ms.is_some_and(|until_ms| at_ms > until_ms)
            || filter.since_ms.is_some_and(|since_ms| at_ms < since_ms)
        {
            return false;
        }
        if !filter.retriable && !filter.expired {
            return true;
        }
        let (retriable, expired) = self.prospects(now_ms, job);
        (retriable || !filter.retriable) && (expired || !filter.expired)
    }

    fn count_failed(&self, now_ms: u64, job: u32, stats: &mut FailedStats) {
        let outcome = &self.jobs.outcomes[self.jobs.slab[job].detail];
        let (retriable, expired) = self.prospects(now_ms, job);
        let at_ms = outcome.finished_at_ms;
        stats.total += 1;
        stats.by_cause[outcome.cause as usize] += 1;
        stats.retriable += u64::from(retriable);
        stats.expired += u64::from(expired);
        stats.oldest_ms = Some(stats.oldest_ms.map_or(at_ms, |oldest_ms| oldest_ms.min(at_ms)));
        stats.newest_ms = stats.newest_ms.max(Some(at_ms));
    }
}
