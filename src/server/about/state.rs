//! What is known of a server and its machine from the start on, the same for all shards.
//!
//! A ground type: it imports nothing of the server.

use crate::checks::Finding;
use std::path::PathBuf;
use std::sync::Arc;

/// What a shard knows of the server as a whole.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// What was found of the machine at the start: what does not change while the server runs.
    pub machine: Arc<[Finding]>,
    /// Where the log is; nothing in memory.
    pub data: Option<Arc<PathBuf>>,
}
