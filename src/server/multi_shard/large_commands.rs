//! The large commands of a shard: which connections have one, and which go on next. How one is checked is in
//! `large_command`.

use crate::protocol::large::LargeFrame;
use crate::server::shard_mail::envelope::Step;
use corq_io::net::ConnId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The one of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) step: Step,
    /// Memory held.
    pub(super) bytes: usize,
    /// The command may complete jobs that its connection holds.
    pub(super) completes: bool,
}

/// Large commands of a shard.
#[derive(Debug, Default)]
pub struct LargeCommands {
    /// Commands that have something to do, each once, in their turn.
    pub(super) active: VecDeque<Step>,
    /// A connection whose next frame is one.
    pub(super) wanted: Option<(ConnId, usize)>,
    pub(super) running: BTreeMap<ConnId, Running>,
    /// Payloads that other shards have asked to be staged here, in their turn. Each belongs to a command, of which a
    /// connection has one.
    pub(super) staged_for_others: VecDeque<(Step, Arc<LargeFrame>)>,
}

impl LargeCommands {
    /// Whether one can go on.
    pub fn has_left(&self) -> bool {
        !self.active.is_empty() || !self.staged_for_others.is_empty()
    }

    /// Whether a connection has one.
    pub fn has(&self, conn: ConnId) -> bool {
        self.running.contains_key(&conn)
    }

    /// Memory that a connection holds by one.
    pub fn held_by(&self, conn: ConnId) -> usize {
        self.running.get(&conn).map_or(0, |running| running.bytes)
    }

    /// Whether a connection has one that completes what it holds.
    pub fn completes(&self, conn: ConnId) -> bool {
        self.running.get(&conn).is_some_and(|running| running.completes)
    }
}
