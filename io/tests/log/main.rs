//! Tests of the log's promises, on a disk that fails on purpose and on real files.
#![allow(clippy::unwrap_used, missing_docs)]

mod adversary;
mod aside;
mod away;
mod failing;
mod files;
mod first_file;
mod forget;
mod giving_up;
mod handles;
mod held;
mod inspect;
mod missing;
mod model;
mod named;
mod newest;
mod pipes;
mod recovery;
mod resume;
mod writing;

use corq_io::log::{
    Faults, FaultyDisk, Log, LogConfig, Mode, OpenError, Position, RECORD_HEADER_BYTES, Recovery,
};
use std::convert::Infallible;

type Records = Vec<(Position, Vec<u8>)>;

/// A log small enough that segments, chunks and budgets are reached with a few records.
fn config(mode: Mode) -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 16,
        record_bytes_max: 40_000,
        block_bytes: 8192,
        cache_bytes: 4 * 8192,
        cold_reads_max: 2,
        ..LogConfig::new(3, mode)
    }
}

fn try_open(
    config: &LogConfig,
    disk: FaultyDisk,
) -> Result<(Log<FaultyDisk>, Recovery, Records), OpenError> {
    let mut records = Records::new();
    let (log, recovery) = Log::open(config, disk, |position, body| {
        records.push((position, body.to_vec()));
        Ok::<_, Infallible>(())
    })?;
    assert_eq!(recovery.records, records.len() as u64);
    assert_eq!(
        (log.head(), log.released(), log.synced()),
        (recovery.end, recovery.end, recovery.end)
    );
    Ok((log, recovery, records))
}

fn open(config: &LogConfig, disk: FaultyDisk) -> (Log<FaultyDisk>, Recovery, Records) {
    match try_open(config, disk) {
        Ok(opened) => opened,
        Err(error) => panic!("{error}"),
    }
}

fn new_log(mode: Mode, faults: Faults) -> Log<FaultyDisk> {
    open(&config(mode), FaultyDisk::new(1, faults)).0
}

fn late(inline_writes: bool) -> Faults {
    Faults { late: true, inline_writes, ..Faults::default() }
}

fn append(log: &mut Log<FaultyDisk>, bytes: usize, byte: u8) -> (Position, Vec<u8>) {
    let (position, body) = log.append(bytes);
    body.fill(byte);
    (position, vec![byte; bytes])
}

/// Ends one operation in flight; false if there is none.
fn finish_one(log: &mut Log<FaultyDisk>) -> bool {
    let Some((tag, result)) = log.disk_mut().finish_one() else { return false };
    log.complete(tag, result).unwrap();
    true
}

/// Turns without new records until nothing is in flight.
fn settle(log: &mut Log<FaultyDisk>, now_ms: u64) {
    log.flush(now_ms).unwrap();
    while finish_one(log) {
        log.flush(now_ms).unwrap();
    }
}

fn close(log: &mut Log<FaultyDisk>, now_ms: u64) {
    while !log.close(now_ms).unwrap() {
        assert!(finish_one(log), "closing waits for nothing");
    }
}
