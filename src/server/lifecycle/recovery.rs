//! The beginning of a shard: its log is opened, and replayed into it.

use crate::config::{Config, Durability};
use crate::secret;
use corq_io::chronicle::{Calls, Mirror, Scribe};
use corq_io::log::{
    FileDisk, Log, LogConfig, MemoryDisk, Mode, OpenError, Position, Recovery, repair_of,
    shard_path,
};
use corq_io::log_ring::Store;
use corq_shards::Shard;
use corq_shards::log_record::codec::Malformed;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the first log file of a shard that has none yet: an empty server takes no whole segment of disk per shard.
const FIRST_BYTES: u64 = 1 << 20;

/// Records between two looks of a shard at [`RecoveryProgress`].
const RECORDS_PER_LOOK: u64 = 1024;

/// How far the recovery of each shard has come, for the start that waits for it; and whether it shall go on.
#[derive(Debug)]
pub struct RecoveryProgress {
    shards: Box<[OfShard]>,
    /// Bytes of all files.
    bytes_all: u64,
    given_up: AtomicBool,
}

#[derive(Debug, Default)]
struct OfShard {
    bytes: AtomicU64,
    jobs: AtomicU64,
}

impl RecoveryProgress {
    /// Of so many shards, with their logs in `data` if they have any.
    pub fn new(data: Option<&Path>, shards: usize) -> Self {
        let paths = data
            .into_iter()
            .flat_map(|path| (0..shards).map(move |shard| shard_path(path, shard as u16)));
        let files = paths.filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
        let segments = files.filter(|file| file.file_name().to_string_lossy().ends_with(".seg"));
        let bytes = segments.filter_map(|file| file.metadata().ok()).map(|about| about.len());
        Self {
            shards: (0..shards).map(|_| OfShard::default()).collect(),
            bytes_all: bytes.sum(),
            given_up: AtomicBool::new(false),
        }
    }

    /// The shards need not go on.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether they need not.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}

impl fmt::Display for RecoveryProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&OfShard) -> &AtomicU64| -> u64 {
            self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
        };
        let (bytes, jobs) = (sum(|shard| &shard.bytes), sum(|shard| &shard.jobs));
        write!(f, "{} of {} MB read, {jobs} jobs", bytes >> 20, self.bytes_all >> 20)
    }
}

/// Completed jobs per queue that releases kept whose logs do not say so, unless they were told to keep
/// another number.
const COMPLETED_MAX_BEFORE: u32 = 50_000;

/// How often a start that waits for the database looks whether it is given up.
const COMMIT_LOOK: Duration = Duration::from_millis(100);

/// The settings of the state machine of one of so many shards.
pub fn shard_config(config: &Config, shards: usize, seed: u64) -> corq_shards::Config {
    corq_shards::Config {
        completed_max: config.completed_max,
        unsaid_completed_max: config.completed_max.max(COMPLETED_MAX_BEFORE),
        completed_retention_ms: config.completed_retention_ms,
        span_bits: segment_bytes(config).trailing_zeros(),
        bulk_slice: corq_shards::SLICE,
        interval_min_ms: config.cron_min_interval_ms,
        scheduled_per_second: config.scheduled_pushes_per_second,
        expired_kept_ms: config.dlq_expired_kept_ms,
        remembered_bytes_max: config.remembered_bytes_max(shards),
        seed,
        hash_key: secret::hash_key(),
        token_key: secret::token_key(),
    }
}

/// Bytes per segment of every log.
pub fn segment_bytes(config: &Config) -> u64 {
    config.segment_mb << 20
}

/// Opens the log of shard `index`, in the data directory with this id, whose logs may be known to have
/// been begun. So many files of it may be open besides those that are written.
pub fn open_log(
    config: &Config,
    (log_id, is_begun): (u64, bool),
    files_open: usize,
    index: usize,
    scribe: Option<(Scribe, Calls)>,
    progress: &RecoveryProgress,
    shard: &mut Shard,
) -> Result<Log<Store>, String> {
    let shards = progress.shards.len();
    let mode = match config.durability {
        Durability::Written => Mode::Written,
        Durability::Synced => Mode::Synced,
        Durability::Replicated => Mode::Replicated,
    };
    let cannot = |error: std::io::Error| format!("cannot open its directory: {error}");
    let store = match config.data_path() {
        None => Store::Memory(MemoryDisk::new()),
        Some(path) => {
            let files = FileDisk::open(&path, index as u16, mode).map_err(cannot)?;
            let files = files.with_files_open(files_open);
            let mirror = scribe.map(|(scribe, calls)| Mirror::new(scribe, calls).map(Box::new));
            Store::Files(files, mirror.transpose().map_err(cannot)?)
        }
    };
    let settings = LogConfig {
        log_id,
        is_begun,
        segment_bytes: segment_bytes(config),
        cache_bytes: config.cache_bytes(shards),
        fsync_interval_ms: config.fsync_interval_ms,
        bytes_max: config.data_bytes_max(shards),
        // The bytes that jobs need are known only after recovery, and are reserved then.
        reserve_bytes: 2 * segment_bytes(config),
        first_bytes: FIRST_BYTES,
        ..LogConfig::new(index as u16, mode)
    };
    let began = Instant::now();
    let own = &progress.shards[index];
    let (mut records, mut bytes) = (0_u64, 0_u64);
    let replay = |position: Position, record: &[u8]| {
        records += 1;
        bytes += record.len() as u64;
        if records.is_multiple_of(RECORDS_PER_LOOK) {
            own.bytes.store(bytes, Ordering::Relaxed);
            own.jobs.store(shard.holdings().jobs as u64, Ordering::Relaxed);
            if progress.is_given_up() {
                return Err(Malformed("the start was given up"));
            }
        }
        shard.replay(position.0, record)
    };
    let (mut log, recovery) = Log::open(&settings, store, replay)
        .map_err(|error| explain(&error, config.data_path().as_deref()))?;
    let ends: Vec<(u64, u64)> = log.segment_ends().collect();
    if let Some(mirror) = log.disk_mut().mirror() {
        mirror.give_existing(ends.into_iter());
        // The log takes what it has for acknowledged: replies may tell of it.
        while !mirror.is_committed(COMMIT_LOOK) {
            if progress.is_given_up() {
                return Err("the start was given up".into());
            }
        }
    }
    if recovery.records > 0 {
        // Here files may take their time. On a full disk it is asked for again. What never had a job takes none.
        log.make_room(settings.reserve_bytes);
        let duration_ms = began.elapsed().as_millis() as u64;
        tracing::info!(
            shard = index,
            duration_ms,
            "shard {index} recovered {} jobs from {} records in {} segments ({} MB) in {duration_ms} ms",
            shard.holdings().jobs,
            recovery.records,
            recovery.segments,
            recovery.bytes >> 20,
        );
    }
    let unknown = shard.unknown_job_records();
    if unknown > 0 {
        tracing::error!(
            shard = index,
            "shard {index} found {unknown} records about jobs that its log does not have: something of it \
             is lost, or this is a bug; please report it with the output of 'corq log verify'"
        );
    }
    warn_of_dropped(index, &recovery);
    Ok(log)
}

/// Why a log cannot be opened, and what shows more of it.
pub fn explain(error: &OpenError, data: Option<&Path>) -> String {
    let is_damage = matches!(
        error,
        OpenError::Damaged { .. } | OpenError::MissingSegment { .. } | OpenError::Nothing
    );
    let is_refused = matches!(error, OpenError::Refused { .. });
    let Some(data) = data.filter(|_| is_damage || is_refused) else { return error.to_string() };
    let verify = format!("'corq log verify {}' shows all that is wrong", data.display());
    let repair = if is_damage {
        format!("; without a backup, '{}' copies what is whole", repair_of(data))
    } else {
        String::new()
    };
    format!("{error}. {verify}{repair}")
}

/// Says what was cut off, if anything was.
pub fn warn_of_dropped(index: usize, recovery: &Recovery) {
    if let Some(dropped) = &recovery.dropped {
        tracing::warn!(
            shard = index,
            "shard {index} dropped {} bytes from byte {} of {} on: {}; the torn tail of a crash, \
             never acknowledged as synced",
            dropped.bytes,
            dropped.offset,
            dropped.file,
            dropped.reason,
        );
    }
}
