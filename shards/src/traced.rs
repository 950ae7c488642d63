//! The steps of sampled jobs that spans are made of: one [`Traced`] for each, in their order, while `Shard::trace` says
//! which jobs are sampled. Until then a step costs a branch, and a job that is not sampled costs a hash.
//!
//! Whether a job is sampled follows from its id and its trace alone, so that all of its steps come or none, on whatever
//! attempt and after whatever restart. What a span is, is not known here.

use crate::dead_letter::reason::Cause;
use crate::job::id::JobId;
use crate::job::trace::{Trace, TraceParent};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Of an error, so much goes along.
pub const ERROR_BYTES_MAX: usize = 512;

/// Which jobs are sampled: those whose client records its trace, and a part of those whose client says nothing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    below: u64,
}

/// Bits of a job's hash that are compared: as many as a ratio has.
const HASH_BITS: u32 = f64::MANTISSA_DIGITS;

impl Sampling {
    /// Of the jobs whose client says nothing, this part, from 0 to 1.
    pub fn of(ratio: f64) -> Self {
        Self { below: (ratio.clamp(0.0, 1.0) * (1_u64 << HASH_BITS) as f64) as u64 }
    }

    /// Whether a job is sampled.
    pub fn takes(self, id: JobId, parent: Option<&TraceParent>) -> bool {
        match parent {
            Some(parent) => parent.is_sampled(),
            None => mixed(id) >> (u64::BITS - HASH_BITS) < self.below,
        }
    }
}

/// Ids made one after the other are neighbours; this scatters them (the last step of `SplitMix64`).
fn mixed(id: JobId) -> u64 {
    let mut bits = (id.0 >> 64) as u64 ^ id.0 as u64;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A step of a sampled job.
#[derive(Clone, PartialEq, Debug)]
pub struct Traced {
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The name of the queue.
    pub queue: Arc<str>,
    /// The job's own id.
    pub id: JobId,
    /// The id that its client chose.
    pub custom_id: Option<Box<str>>,
    /// The name that the client gave to the job.
    pub name: Option<Box<str>>,
    /// The trace that it belongs to, if its client said so.
    pub trace: Option<Box<Trace>>,
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// Earlier deliveries of the job in the millisecond in which this one began, which tells them apart.
    pub again: u32,
    /// The worker that has it, as it calls itself.
    pub worker: Option<Box<str>>,
    /// The step of the job.
    pub what: What,
}

/// A step of a job, as traces show it.
#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// The job came: from a client, from a schedule, or as the next run of a repeated one.
    Enqueued {
        /// The size of its data.
        payload_bytes: u32,
    },
    /// A worker has it.
    Pulled {
        /// Since when it could have had it, in milliseconds since the epoch.
        since_ms: u64,
    },
    /// An attempt ended, or the job did without one.
    Settled {
        /// When the attempt began, in milliseconds since the epoch; none without one.
        started_at_ms: Option<u64>,
        /// How it ended.
        how: Settled,
    },
}

/// How an attempt, or a job without one, ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Settled {
    /// The job is done.
    Completed,
    /// The attempt failed.
    Failed {
        /// Why, in a word.
        cause: Cause,
        /// Why, cut to [`ERROR_BYTES_MAX`].
        error: Box<str>,
        /// No other attempt follows by itself.
        terminal: bool,
    },
    /// The job went back without having failed: its worker gave it back or left, or it waits for something else.
    GivenBack,
    /// The job was removed, by a client or because its ttl has ended.
    Removed,
}

impl Settled {
    pub(crate) fn failed(cause: Cause, error: &str, terminal: bool) -> Self {
        let error = error[..error.floor_char_boundary(ERROR_BYTES_MAX)].into();
        Self::Failed { cause, error, terminal }
    }
}

/// Which jobs are sampled, and what has to be remembered of them.
#[derive(Default)]
pub(crate) struct Tracer {
    pub(crate) sampling: Option<Sampling>,
    /// The queue of the last step: most follow one of the same queue, and share its name.
    pub(crate) queue: Option<Arc<str>>,
    /// Jobs that wait since another time than that at which they were due, or whose attempts began and ended in this
    /// millisecond.
    pub(crate) back: BTreeMap<JobId, Back>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Back {
    /// Since when it waits; 0 for since it was due.
    pub(crate) since_ms: u64,
    /// Deliveries that began and ended in the millisecond in which the next one may begin.
    pub(crate) again: u32,
}

impl Tracer {
    pub(crate) fn share(&mut self, name: &str) -> Arc<str> {
        match &self.queue {
            Some(last) if **last == *name => Arc::clone(last),
            _ => Arc::clone(self.queue.insert(name.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_jobs_is_sampled_however_their_ids_follow_each_other() {
        let sampled = |ratio: f64| {
            let id = |number: u128| JobId(0x0190_0000_0000_7000_8000_0000_0000_0000 | number << 42);
            let sampling = Sampling::of(ratio);
            (0..10_000).filter(|&number| sampling.takes(id(number), None)).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        assert!((900..1100).contains(&sampled(0.1)), "{}", sampled(0.1));
        assert!((4800..5200).contains(&sampled(0.5)), "{}", sampled(0.5));
    }

    #[test]
    fn a_job_with_a_trace_is_sampled_if_its_client_records_it() {
        let parent = |flags| TraceParent { trace_id: [1; 16], span_id: [2; 8], flags };
        for ratio in [0.0, 1.0] {
            let sampling = Sampling::of(ratio);
            assert!(sampling.takes(JobId(1), Some(&parent(1))));
            assert!(!sampling.takes(JobId(1), Some(&parent(0))));
        }
    }
}
