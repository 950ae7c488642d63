//! Questions that all shards answer. A ground type.

use crate::api::access::Scope;
use crate::server::multi_shard::messages::LIST_RESERVE_BYTES;

/// A question to all shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScatterQuery {
    /// The command `Stats`.
    Stats,
    /// The command `Metrics`.
    Metrics,
    /// The command `Prometheus`.
    Prometheus,
    /// The command `Doctor`.
    Doctor,
    /// The command `BackupPoint`.
    BackupPoint,
    /// The command `DashboardOverview`: its figures.
    Overview,
    /// The command `ListTasks`: those about these queues.
    Tasks { scope: Scope },
    /// The command `StorageStatus`.
    Storage,
    /// `GET /health`.
    Health,
    /// `GET /ready`.
    Ready,
    /// `GET /stats`.
    ServerStats,
    /// `GET /heapstats`.
    Heap,
}

impl ScatterQuery {
    /// Bytes that are reserved for the answer at the beginning, before its rows are known.
    pub fn reserve_bytes(self) -> usize {
        match self {
            // The metrics of each shard are some ten KB, however short the answer is.
            Self::Metrics
            | Self::Doctor
            | Self::Prometheus
            | Self::Overview
            | Self::Tasks { .. } => LIST_RESERVE_BYTES,
            _ => 0,
        }
    }
}
