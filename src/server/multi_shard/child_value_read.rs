//! Answers about what became of the children of a job, on their way: data only.

use crate::server::shard_mail::envelope::Origin;
use crate::server::turn_queue::TurnQueue;
use corq_shards::family::How;
use corq_shards::job::id::JobId;
use std::collections::BTreeSet;

/// An answer that is being written.
#[derive(Debug)]
pub struct ChildValueRead {
    pub(super) origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    pub(super) job: JobId,
    pub(super) how: How,
    /// Whether it is the one of the answers that has its values in `data`.
    pub(super) in_data: bool,
    /// The place of the last end that was looked at. Ends that are written again meanwhile come once more.
    pub(super) after: Option<u64>,
    pub(super) shown: BTreeSet<JobId>,
    /// Values written so far; `pieces` holds their text.
    pub(super) count: usize,
    pub(super) pieces: Vec<Vec<u8>>,
    pub(crate) bytes: usize,
}

/// Answers that a shard is writing, each in its turn. A command has one, so the connections bound their number.
pub type ChildValueReads = TurnQueue<ChildValueRead>;
