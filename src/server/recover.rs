//! The beginning of a shard: its log is opened, and replayed into it.

use super::reclaim::reserve_bytes;
use crate::config::{Config, Durability};
use corq_io::log::{FileDisk, Log, LogConfig, MemoryDisk, Mode, OpenError, Position, Recovery};
use corq_io::store::Store;
use corq_shards::Shard;
use std::time::Instant;

/// What a shard is told.
pub fn shard_config(config: &Config, seed: u64) -> corq_shards::Config {
    corq_shards::Config {
        completed_max: config.completed_max,
        completed_retention_ms: config.completed_retention_ms,
        span_bits: segment_bytes(config).trailing_zeros(),
        chore_slice: corq_shards::SLICE,
        seed,
    }
}

/// Bytes per segment of every log.
pub fn segment_bytes(config: &Config) -> u64 {
    config.segment_mb << 20
}

/// Opens the log of shard `index` of `shards`, in the data directory with this id.
pub fn open_log(
    config: &Config,
    log_id: u64,
    index: usize,
    shards: usize,
    shard: &mut Shard,
) -> Result<Log<Store>, String> {
    let mode = match config.durability {
        Durability::Written => Mode::Written,
        Durability::Synced => Mode::Synced,
    };
    let store = match config.data_path() {
        None => Store::Memory(MemoryDisk::new()),
        Some(path) => Store::Files(
            FileDisk::open(&path, index as u16, mode)
                .map_err(|error| format!("cannot open its directory: {error}"))?,
        ),
    };
    let settings = LogConfig {
        log_id,
        segment_bytes: segment_bytes(config),
        cache_bytes: config.cache_bytes(shards),
        fsync_interval_ms: config.fsync_interval_ms,
        bytes_max: config.data_bytes_max(shards),
        reserve_bytes: reserve_bytes(segment_bytes(config), 0),
        ..LogConfig::new(index as u16, mode)
    };
    let began = Instant::now();
    let replay = |position: Position, record: &[u8]| shard.replay(position.0, record);
    let (log, recovery) =
        Log::open(&settings, store, replay).map_err(|error: OpenError| error.to_string())?;
    if recovery.records > 0 {
        tracing::info!(
            "shard {index} recovered {} jobs from {} records in {} segments ({} MB) in {} ms",
            shard.holdings().jobs,
            recovery.records,
            recovery.segments,
            recovery.bytes >> 20,
            began.elapsed().as_millis(),
        );
    }
    warn_of_dropped(index, &recovery);
    Ok(log)
}

/// Says what was cut off, if anything was.
pub fn warn_of_dropped(index: usize, recovery: &Recovery) {
    if let Some(dropped) = &recovery.dropped {
        tracing::warn!(
            "shard {index} dropped {} bytes from byte {} of {} on: {}; the torn tail of a crash, \
             never acknowledged as synced",
            dropped.bytes,
            dropped.offset,
            dropped.file,
            dropped.reason,
        );
    }
}
