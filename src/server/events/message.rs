//! Messages between shards about events.

use super::interest::{Replay, Resume};
use super::targets::{Target, Wanted};
use super::text::Layout;
use crate::server::shard_mail::envelope::Span;
use corq_io::net::ConnId;

/// A connection that never exists: for work that has no client.
pub(crate) const NOBODY: ConnId = ConnId { index: u32::MAX, generation: u32::MAX };

/// Messages between shards about events.
#[derive(Debug)]
pub enum EventMessage {
    /// Announces what the clients of the sender want from now on.
    Wants(Box<Wants>),
    /// The sender knows what a client of the receiver wants.
    Heard(Box<Heard>),
    /// Something has happened.
    News {
        shard: u16,
        /// The last event that the sender has kept: this one, if it is kept.
        number: u64,
        /// In which queue.
        queue: Span,
        /// The event as clients see it.
        text: Span,
        layout: Layout,
    },
}

/// Events that the clients of a shard want from now on, of some targets.
#[derive(Debug)]
pub struct Wants {
    pub(super) shard: u16,
    pub(super) of_targets: Vec<(Target, Wanted)>,
    /// The client who is kept waiting until this is known.
    pub(super) asker: Option<Asker>,
}

/// A client who is kept waiting.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) conn: ConnId,
    /// Which of the times that it has begun to listen.
    pub(super) time: u64,
    /// Whether it is to know what the last event was.
    pub(super) counts: bool,
    pub(super) resume: Option<Resume>,
}

/// The answer to an [`Asker`].
#[derive(Debug)]
pub struct Heard {
    pub(super) conn: ConnId,
    pub(super) time: u64,
    pub(super) shard: u16,
    /// The last event that was kept.
    pub(super) number: u64,
    pub(super) replay: Option<Replay>,
}
