//! The fear: real files behave differently from the disk of the other tests. The operations that a
//! ring would do are done here one by one.
#![allow(unsafe_code)] // Stands in for the ring: system calls on the log's memory.

use super::*;
use corq_io::log::{Disk, DiskOpKind, FileDisk, MemoryDisk, Staged};
use std::io;

pub(super) fn run_ops(log: &mut Log<FileDisk>) -> usize {
    let mut ops = Vec::new();
    log.disk_mut().take_ops(&mut ops);
    for op in &ops {
        // SAFETY: the log keeps the memory of each operation until `complete` below, and its files
        // open (the contract of `DiskOp`).
        let result = unsafe {
            match op.kind {
                DiskOpKind::Write { fd, offset, ptr, len, dsync, .. } => {
                    let part =
                        libc::iovec { iov_base: ptr.cast_mut().cast(), iov_len: len as usize };
                    let flags = if dsync { libc::RWF_DSYNC } else { 0 };
                    libc::pwritev2(fd, &raw const part, 1, offset as libc::off_t, flags)
                }
                DiskOpKind::Sync { fd, data_only: true } => libc::fdatasync(fd) as isize,
                DiskOpKind::Sync { fd, data_only: false } => libc::fsync(fd) as isize,
                DiskOpKind::Read { fd, offset, ptr, len } => {
                    libc::pread(fd, ptr.cast(), len as usize, offset as libc::off_t)
                }
                DiskOpKind::Allocate { fd, bytes } => {
                    libc::fallocate(fd, 0, 0, bytes as libc::off_t) as isize
                }
                DiskOpKind::Unlink { fd, name } => libc::unlinkat(fd, name, 0) as isize,
            }
        };
        let errno = || io::Error::last_os_error().raw_os_error().unwrap();
        let result = if result < 0 { -errno() } else { result as i32 };
        log.complete(op.tag, result).unwrap();
    }
    ops.len()
}

pub(super) fn open_files(
    config: &LogConfig,
    path: &std::path::Path,
) -> (Log<FileDisk>, Recovery, Records) {
    let disk = FileDisk::open(path, config.shard, config.mode).unwrap();
    let mut records = Records::new();
    let (log, recovery) = Log::open(config, disk, |position, body| {
        records.push((position, body.to_vec()));
        Ok::<_, Infallible>(())
    })
    .unwrap();
    (log, recovery, records)
}

fn fill<D: Disk>(log: &mut Log<D>, records: u8, mut turn: impl FnMut(&mut Log<D>)) -> Records {
    (0..records)
        .map(|byte| {
            let bytes = 100 * usize::from(byte);
            let (position, body) = log.append(bytes);
            body.fill(byte);
            if byte % 7 == 0 {
                log.require_sync();
            }
            turn(log);
            (position, vec![byte; bytes])
        })
        .collect()
}

#[test]
fn real_files_keep_a_log() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let config = config(mode);
        let (mut log, ..) = open_files(&config, dir.path());
        let mut now_ms = 0;
        let written = fill(&mut log, 60, |log| {
            now_ms += 1;
            log.flush(now_ms).unwrap();
            run_ops(log);
        });
        loop {
            log.flush(now_ms + 20).unwrap();
            if run_ops(&mut log) == 0 {
                break;
            }
        }
        assert_eq!((log.released(), log.synced()), (log.head(), log.head()));
        // Records that left memory come back from the files.
        assert_eq!(log.read(written[3].0, 300), None);
        log.read_cold(written[3].0, 300, 3);
        run_ops(&mut log);
        assert_eq!(log.take_read().unwrap().body, Ok(&written[3].1[..]));
        while !log.close(now_ms).unwrap() {
            run_ops(&mut log);
        }
        drop(log);
        let (mut log, recovery, found) = open_files(&config, dir.path());
        assert!(found == written);
        assert_eq!((recovery.clean, recovery.dropped), (true, None));
        assert!(recovery.segments >= 3);
        // Names that are none of the log's business do not disturb it; those that pretend do.
        let shard = dir.path().join("shard-0003");
        std::fs::write(shard.join("notes.txt"), "x").unwrap();
        while !log.close(0).unwrap() {
            run_ops(&mut log);
        }
        drop(log);
        let (log, _, found) = open_files(&config, dir.path());
        assert!(found == written);
        drop(log);
        std::fs::write(shard.join("backup.seg"), "x").unwrap();
        let disk = FileDisk::open(dir.path(), 3, mode).unwrap();
        let error = Log::open(&config, disk, |_, _| Ok::<_, Infallible>(())).unwrap_err();
        assert!(
            matches!(error, OpenError::ForeignFile(ref name) if name == "backup.seg"),
            "{error}"
        );
    }
}

/// A log with room for records of megabytes.
fn large_config(mode: Mode) -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 23,
        record_bytes_max: 4 << 20,
        cache_bytes: 16 << 20,
        ..config(mode)
    }
}

/// Bytes of which no two places look alike.
fn uneven(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|n| (n * 31 + n / 251) as u8 ^ seed).collect()
}

#[test]
fn long_blocks_are_written_by_the_ring_and_short_ones_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = large_config(Mode::Written);
    let (mut log, ..) = open_files(&config, dir.path());
    log.append(1 << 20).1.fill(1);
    log.flush(1).unwrap();
    assert!(log.released() < log.head(), "the kernel has not copied it within the turn");
    let (short, bytes) = log.append(100);
    bytes.fill(2);
    log.flush(1).unwrap();
    assert!(log.released() < short, "nothing overtakes it");
    while log.released() < log.head() {
        run_ops(&mut log);
        log.flush(1).unwrap();
    }
    log.append(100).1.fill(3);
    log.flush(1).unwrap();
    assert_eq!(log.released(), log.head());
    run_ops(&mut log);
    drop(log);
    let (_, recovery, found) = open_files(&config, dir.path());
    let lengths: Vec<usize> = found.iter().map(|(_, body)| body.len()).collect();
    assert_eq!((lengths, recovery.dropped), (vec![1 << 20, 100, 100], None));
}

#[test]
fn a_long_block_that_was_not_written_before_a_kill_is_as_if_it_had_not_been() {
    let dir = tempfile::tempdir().unwrap();
    let config = large_config(Mode::Written);
    let (mut log, ..) = open_files(&config, dir.path());
    log.append(100).1.fill(1);
    log.flush(1).unwrap();
    log.append(2 << 20).1.fill(2);
    log.flush(1).unwrap();
    // The ring never ran.
    log.disk_mut().take_ops(&mut Vec::new());
    drop(log);
    let (_, recovery, found) = open_files(&config, dir.path());
    assert_eq!((found.len(), recovery.dropped), (1, None));
}

#[test]
fn a_record_whose_end_was_staged_is_one_like_any_other() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let config = large_config(mode);
        let (mut log, ..) = open_files(&config, dir.path());
        let mut written = Records::new();
        for (nth, (head, tail)) in
            [(10, 300_000), (0, 1), (2000, 3 << 20), (7, 3 << 20), (9000, 2_999_999)]
                .into_iter()
                .enumerate()
        {
            let short = uneven(50 * nth, 1);
            let (position, body) = log.append(short.len());
            body.copy_from_slice(&short);
            written.push((position, short));
            let whole = uneven(head + tail, nth as u8);
            let mut staged = Staged::new(tail);
            whole[head..].chunks(100_000).for_each(|some| staged.extend(some));
            assert!(staged.takes(head) && !staged.takes(1 << 20));
            let (position, bytes) = log.append_staged(head, staged);
            bytes.copy_from_slice(&whole[..head]);
            written.push((position, whole));
            // Into the room that is left behind it, and beyond.
            for _ in 0..100 {
                let (position, body) = log.append(69);
                body.fill(9);
                written.push((position, vec![9; 69]));
            }
            for (position, body) in written.iter().rev().take(103) {
                assert_eq!(log.read(*position, body.len()), Some(&body[..]));
            }
            log.flush(nth as u64).unwrap();
            if nth % 2 == 0 {
                run_ops(&mut log);
            }
        }
        while !log.close(100).unwrap() {
            run_ops(&mut log);
        }
        drop(log);
        let (_, recovery, found) = open_files(&config, dir.path());
        assert!(found == written);
        assert!(recovery.clean && recovery.segments >= 2);
    }
}

#[test]
fn a_killed_process_loses_nothing_written() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Mode::Written);
    let (mut log, ..) = open_files(&config, dir.path());
    let written = fill(&mut log, 60, |log| {
        log.flush(0).unwrap();
        let mut lost = Vec::new();
        log.disk_mut().take_ops(&mut lost); // no ring ever ran: only the inline writes count
    });
    drop(log);
    let (_, recovery, found) = open_files(&config, dir.path());
    assert!(found.len() >= 28 && written.starts_with(&found));
    assert_eq!(recovery.dropped, None);
}

#[test]
fn the_memory_disk_runs_the_same_log() {
    let config = config(Mode::Written);
    let (mut log, _) =
        Log::open(&config, MemoryDisk::new(), |_, _| Ok::<_, Infallible>(())).unwrap();
    let written = fill(&mut log, 100, |log| {
        log.flush(0).unwrap();
        assert_eq!(log.released(), log.head());
    });
    assert!(log.memory_bytes() <= config.cache_bytes);
    for (token, (position, body)) in written.iter().enumerate() {
        if log.read(*position, body.len()).is_none() {
            log.read_cold(*position, body.len(), token as u64);
            let done = log.take_read().unwrap();
            assert_eq!((done.token, done.body), (token as u64, Ok(&body[..])));
        }
    }
    let mut found = Records::new();
    let disk = log.into_disk();
    Log::open(&config, disk, |position, body| {
        found.push((position, body.to_vec()));
        Ok::<_, Infallible>(())
    })
    .unwrap();
    assert!(found == written);
}

/// Counts the files of the log whose names end so.
fn names(path: &std::path::Path, end: &str) -> usize {
    let entries = std::fs::read_dir(path.join("shard-0003")).unwrap();
    entries
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(end))
        .count()
}

#[test]
fn files_set_aside_for_needs_that_have_gone_are_removed() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let config = LogConfig { reserve_bytes: 10 << 16, ..config(mode) };
        let (mut log, ..) = open_files(&config, dir.path());
        log.flush(1).unwrap();
        while run_ops(&mut log) > 0 {
            log.flush(1).unwrap();
        }
        let (before, made) = (log.counters().disk_bytes, log.segments().1);
        assert!(made >= 9 && log.has_room(10 << 16));
        for now_ms in 2..20 {
            log.reserve(1 << 16);
            log.flush(now_ms).unwrap();
        }
        let spares = log.segments().1;
        assert!(log.has_room(2 << 16), "a little more than is wanted stays");
        assert!(!log.has_room(3 << 16), "{spares} files are still set aside");
        assert_eq!(names(dir.path(), ".spare") as u64, spares);
        assert_eq!(before - log.counters().disk_bytes, (made - spares) << 16);
        log.reserve(4 << 16);
        log.flush(20).unwrap();
        while run_ops(&mut log) > 0 {
            log.flush(20).unwrap();
        }
        assert!(log.has_room(4 << 16));
    }
}

#[test]
fn real_files_are_recycled_and_closed() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let config = LogConfig { reserve_bytes: 1 << 17, ..config(mode) };
        let (mut log, ..) = open_files(&config, dir.path());
        let mut now_ms = 0;
        let mut turn = |log: &mut Log<FileDisk>| {
            now_ms += 20;
            log.flush(now_ms).unwrap();
            while run_ops(log) > 0 {
                log.flush(now_ms).unwrap();
            }
        };
        for _ in 0..8 {
            fill(&mut log, 40, &mut turn);
            while log.oldest().is_some() {
                while matches!(log.scan(), corq_io::log::Scan::Record(..)) {}
                while run_ops(&mut log) > 0 {}
                log.drop_oldest();
                turn(&mut log);
                turn(&mut log);
            }
        }
        let counters = log.counters();
        assert!(counters.dropped > 5 && counters.recycled > 5, "{counters:?}");
        let (segments, spares) = log.segments();
        assert!(spares > 0 && names(dir.path(), ".spare") as u64 == spares);
        assert!(names(dir.path(), ".seg") as u64 <= segments + 1);
        let fds = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let own = links.filter(|link| link.starts_with(dir.path()));
        let (gone, open): (Vec<_>, Vec<_>) =
            own.partition(|link| link.to_string_lossy().ends_with("(deleted)"));
        assert_eq!(gone.len(), 0, "{gone:?}");
        assert!(open.len() <= FileDisk::descriptors_max(0), "{open:?}");
        let kept = fill(&mut log, 20, &mut turn);
        drop(log);
        let (log, recovery, found) = open_files(&config, dir.path());
        assert_eq!(recovery.dropped, None);
        assert!(found.ends_with(&kept));
        assert_eq!(log.counters().recycled, 1);
    }
}
