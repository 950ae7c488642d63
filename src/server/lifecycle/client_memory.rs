//! The memory of clients at a start: each shard has an equal part, and the log says how much and why.

use crate::config::Config;
use crate::server::overload::client_memory::ClientMemory;
use corq_io::cgroup;
use std::cmp::Ordering;

/// The part of each of so many shards.
pub fn share_out(config: &Config, shards: usize) -> ClientMemory {
    let limit = cgroup::memory_limit();
    let memory_mb = limit.map_or(0, |limit| limit.bytes >> 20);
    let size = config.client_memory_mb(shards, memory_mb);
    let memory = ClientMemory::new(size, shards);
    let reason = match config.client_memory_mb {
        Some(_) => "CLIENT_MEMORY_MB".to_owned(),
        None => {
            let owner = match limit {
                Some(limit) if limit.is_of_group => "control group",
                _ => "machine",
            };
            let part = match size.cmp(&(memory_mb / 8)) {
                Ordering::Less => "less than an eighth",
                Ordering::Equal => "an eighth",
                Ordering::Greater => "more than an eighth",
            };
            format!("{part} of the {owner}'s {memory_mb} MB")
        }
    };
    let of_shard = memory.shard_bytes() >> 20;
    tracing::info!("client memory: at most {size} MB ({reason}), {of_shard} MB a shard");
    memory
}
