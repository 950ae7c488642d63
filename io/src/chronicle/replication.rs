//! How far what a node acknowledges is in other hands, for metrics and people: the threads of the fleet write, shards read.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// Counters and states since the start.
#[derive(Debug, Default)]
pub struct Replication {
    /// Logs that this node owns.
    pub logs: AtomicU64,
    /// Whether the database has a standby that commits wait for.
    pub is_synchronous: AtomicBool,
    /// Logs whose commits wait for a database that is not to be reached.
    pub logs_waiting: AtomicU64,
    /// Rows that were committed.
    pub rows: AtomicU64,
    /// Bytes of logs in these rows.
    pub row_bytes: AtomicU64,
    /// Bytes that the database had lost by going back, and has again.
    pub put_back_bytes: AtomicU64,
}
