//! Facts about the server and its machine that hold from the start on, the same for all shards.
//!
//! A ground type: it imports nothing of the server.

use crate::checks::Finding;
use corq_io::chronicle::Replication;
use std::path::PathBuf;
use std::sync::Arc;

/// Facts about the server as a whole, for one of its shards.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Findings on the machine at the start that do not change while the server runs.
    pub machine: Arc<[Finding]>,
    /// Where the log is; nothing in memory.
    pub data: Option<Arc<PathBuf>>,
    /// How far the logs of a fleet are in other hands; none without one.
    pub fleet: Option<Arc<Replication>>,
}
