//! Long answers about one queue on their way: data only, which imports nothing of the server but where an answer goes. One
//! per command, so the connections bound their number.

use crate::protocol::reply::Frame;
use crate::server::shard_mail::envelope::Origin;
use crate::server::turn_queue::TurnQueue;
use corq_shards::effect::KnownAs;
use corq_shards::queue::listing::DelayedCount;
use std::sync::Arc;

/// To `GetCountsPerPriority`.
#[derive(Debug)]
pub struct PriorityCount {
    pub(super) origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    pub(super) queue: Box<str>,
    /// In version 3 of the protocol delayed jobs count as well. They are counted first.
    pub(super) delayed: Option<DelayedCount>,
    pub(super) are_delayed_counted: bool,
    /// The last priority that was written; they come from the highest on.
    pub(super) after: Option<i32>,
    pub(super) framing: Frame,
    pub(super) reply: Vec<u8>,
    /// How many there are, and where that is to be said.
    pub(super) rows: u32,
    pub(super) rows_at: usize,
    /// Bytes that the whole answer is expected to have.
    pub(super) expected_bytes: usize,
}

/// To `Clean`.
#[derive(Debug)]
pub struct CleanedIds {
    pub(super) origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    /// In slices, which go as they are written.
    pub(super) ids: Arc<Vec<Box<[KnownAs]>>>,
    /// How many slices have been written, and how many of these are gone.
    pub(super) written: usize,
    pub(super) gone: usize,
    pub(super) framing: Frame,
    pub(super) reply: Vec<u8>,
    /// Bytes that the whole answer is expected to have.
    pub(super) expected_bytes: usize,
}

/// An answer that is being written.
#[derive(Debug)]
pub enum SlicedReply {
    /// To `GetCountsPerPriority`.
    Priorities(Box<PriorityCount>),
    /// To `Clean`.
    Cleaned(Box<CleanedIds>),
}

impl SlicedReply {
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Priorities(counting) => counting.origin,
            Self::Cleaned(cleaned) => cleaned.origin,
        }
    }

    pub(super) fn expected_bytes(&self) -> usize {
        match self {
            Self::Priorities(counting) => counting.expected_bytes,
            Self::Cleaned(cleaned) => cleaned.expected_bytes,
        }
    }
}

/// Answers that a shard is writing, each in its turn.
pub type SlicedReplies = TurnQueue<SlicedReply>;
