//! Forecast of the log space that the present jobs may still take, besides their present records: how much longer they
//! get when they are written again, and how long they may become before they are gone. Known at any time with a few
//! multiplications, so that every push can be judged by it.
//!
//! Counted per job by its worst: a job that fails with a text of [`TEXT_KEPT_BYTES`] and is written
//! again. Longer texts, results and lines of logs are judged when they come.

use crate::compaction::live_bytes::LARGE_BYTES;
use crate::shard::Shard;

/// Bytes of a failure's reason that are always kept: enough for the reasons that the server gives itself.
pub const TEXT_KEPT_BYTES: usize = 24;

/// How much a job that waits gets longer when it is written again.
const KEPT: u64 = 6;
/// Bytes by which a rewritten job is longer if it has a lock.
const KEPT_LOCK: u64 = 28;
/// Bytes by which a rewritten job is longer if it has ended.
const KEPT_END: u64 = 40 + 1;
/// How much a text gets longer when it is written again.
const MOVED: u64 = 26;
/// The record of a failure, without its text.
const BURIED: u64 = 8 + 2 + 36;
/// The record of a completion, without a result.
const COMPLETED: u64 = 8 + 2 + 32;
/// Bytes by which a job may grow: its failure, both records written again, and the growth of a job that has been
/// rewritten.
const GROWTH: u64 = KEPT + BURIED + KEPT_END + MOVED + TEXT_KEPT_BYTES as u64 + KEPT;
/// Bytes by which an ended job may grow: it may be taken back and fail anew.
const GROWTH_ENDED: u64 = GROWTH - COMPLETED;
/// Bytes of parts that few jobs have: those of a kept job that say so, a message and a payload that move.
const OPTIONS: u64 = 8 + 18 + 16 + 8 + 16 + 12 + MOVED + MOVED;
/// A line of a job's log: that it moves, and its entry in a kept job.
const LINE: u64 = MOVED + 25;
/// The end of a child: that it moves, and its entry in the kept job of its parent.
const CHILD_END: u64 = MOVED + 33;
/// Bytes that a new job may take besides its record, at most.
pub const JOB_FORECAST_BYTES: u64 = KEPT + GROWTH + 3 * OPTIONS;

/// Log bytes that the present jobs may still take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceForecast {
    /// Of records that are needed.
    pub live: u64,
    /// By which they get longer if all of them are written again.
    pub rewriting: u64,
    /// By which they may grow, rewriting included, without anything new.
    pub growth: u64,
    /// No record that is needed is larger.
    pub largest: u64,
    /// Of the needed records that are large.
    pub large: u64,
}

impl Shard {
    /// The forecast for the present jobs of this shard.
    pub fn space_forecast(&self) -> SpaceForecast {
        let jobs = self.jobs.slab.len() as u64;
        let (active, ended) = (self.leases.len() as u64, self.jobs.outcomes.len() as u64);
        let (options, lines) = (self.jobs.options.len() as u64, self.live.lines());
        let more = options * OPTIONS + lines * LINE + self.child_ends * CHILD_END;
        let rewriting = jobs * KEPT
            + active * KEPT_LOCK
            + self.ends_unkept * KEPT_END
            + self.ends_unmoved * MOVED
            + more
            + self.unrecorded_evictions
            + self.completed_ids.names.bytes();
        let growth = (jobs - ended) * GROWTH + ended * GROWTH_ENDED + 2 * more;
        SpaceForecast {
            live: self.live.total(),
            rewriting,
            growth: growth + self.unrecorded_evictions + self.completed_ids.names.bytes(),
            // All that is not large is no larger than that; what is, no larger than all of it.
            largest: self.live.largest().min(self.live.large().max(LARGE_BYTES)),
            large: self.live.large(),
        }
    }
}
