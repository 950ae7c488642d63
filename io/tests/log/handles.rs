//! The fear: a log with more files than may be open; a descriptor that is closed while the ring still names it; a
//! file that is used again before its retirement is on the disk; a system that opens no more files for a while.
#![allow(unsafe_code)] // Asks the system whether a descriptor is open.

use super::*;
use corq_io::log::{BlockingDisk, Disk, DiskOp, DiskOpKind, FileDisk, Lack, Scan, Started};

/// A log that has left many segments, on real files; and what is in it.
fn many_segments(dir: &std::path::Path, mode: Mode) -> Records {
    let config = config(mode);
    let disk = BlockingDisk::open(dir, config.shard).unwrap();
    let config = LogConfig { mode: Mode::Written, ..config };
    let (mut log, _) = Log::open(&config, disk, |_, _| Ok::<_, Infallible>(())).unwrap();
    let mut written = Records::new();
    for turn in 0..200_u8 {
        let (position, body) = log.append(9000);
        body.fill(turn);
        written.push((position, vec![turn; 9000]));
        log.flush(u64::from(turn) * 20).unwrap();
    }
    while !log.close(9000).unwrap() {}
    written
}

/// Does what a ring would.
pub(super) fn run(log: &mut Log<FileDisk>, ops: &mut Vec<DiskOp>) {
    for op in ops.drain(..) {
        // SAFETY: the log keeps memory and files of each operation until `complete` below.
        let result = unsafe {
            match op.kind {
                DiskOpKind::Write { fd, offset, ptr, len, .. } => {
                    libc::pwrite(fd, ptr.cast(), len as usize, offset as libc::off_t)
                }
                DiskOpKind::Sync { fd, .. } => libc::fsync(fd) as isize,
                DiskOpKind::Read { fd, offset, ptr, len } => {
                    libc::pread(fd, ptr.cast(), len as usize, offset as libc::off_t)
                }
                DiskOpKind::Allocate { fd, bytes } => {
                    libc::fallocate(fd, 0, 0, bytes as libc::off_t) as isize
                }
                DiskOpKind::Unlink { fd, name } => libc::unlinkat(fd, name, 0) as isize,
            }
        };
        let error = std::io::Error::last_os_error();
        // A file that is to go may be gone.
        let gone = matches!(op.kind, DiskOpKind::Unlink { .. })
            && error.kind() == std::io::ErrorKind::NotFound;
        assert!(result >= 0 || gone, "{op:?}: {error}");
        let result = if result < 0 { -libc::ENOENT } else { result as i32 };
        log.complete(op.tag, result).unwrap();
    }
}

/// However many segments there are, a few files are open: at the start, for reads and for giving segments up.
#[test]
fn a_log_of_many_segments_keeps_few_files_open() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let written = many_segments(dir.path(), mode);
        let config = LogConfig { reserve_bytes: 1 << 17, ..config(mode) };
        let disk = FileDisk::open(dir.path(), config.shard, mode).unwrap().with_files_open(4);
        let mut found = Records::new();
        let (mut log, recovery) = Log::open(&config, disk, |position, body| {
            found.push((position, body.to_vec()));
            Ok::<_, Infallible>(())
        })
        .unwrap();
        assert!(found == written && recovery.segments > 25, "{recovery:?}");
        assert!(log.disk_mut().files_open() <= 5, "{} files", log.disk_mut().files_open());
        let mut ops = Vec::new();
        for (token, (position, body)) in written.iter().enumerate().rev().step_by(7) {
            log.read_cold(*position, body.len(), token as u64);
            log.disk_mut().take_ops(&mut ops);
            run(&mut log, &mut ops);
            let read = log.take_read().unwrap();
            assert_eq!(read.body, Ok(&body[..]));
            assert!(log.disk_mut().files_open() <= 5, "{} files", log.disk_mut().files_open());
        }
        let mut now_ms = 10_000;
        while log.counters().dropped < 20 {
            now_ms += 20;
            log.flush(now_ms).unwrap();
            log.disk_mut().take_ops(&mut ops);
            run(&mut log, &mut ops);
            if log.oldest().is_some() {
                match log.scan() {
                    Scan::Record(..) | Scan::Reading => {}
                    Scan::End => {
                        log.append(20_000).1.fill(1);
                        log.drop_oldest();
                    }
                    Scan::Failed(error) => panic!("{error}"),
                }
            }
            assert!(log.disk_mut().files_open() <= 7, "{} files", log.disk_mut().files_open());
        }
    }
}

fn is_open(fd: i32) -> bool {
    // SAFETY: a question about a number.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

/// Reads that the ring has not begun yet keep their files open, whatever else is asked for meanwhile; and for
/// ever, if the log goes before they end.
#[test]
fn no_file_is_closed_that_the_ring_still_names() {
    let dir = tempfile::tempdir().unwrap();
    let written = many_segments(dir.path(), Mode::Written);
    let config = LogConfig { cold_reads_max: 64, ..config(Mode::Written) };
    let disk = FileDisk::open(dir.path(), config.shard, config.mode).unwrap().with_files_open(2);
    let (mut log, _) = Log::open(&config, disk, |_, _| Ok::<_, Infallible>(())).unwrap();
    let mut ops = Vec::new();
    for (token, (position, body)) in written.iter().enumerate().step_by(8) {
        log.read_cold(*position, body.len(), token as u64);
        log.disk_mut().take_ops(&mut ops);
    }
    let fds: Vec<i32> = ops.iter().map(|op| fd_of(op.kind)).collect();
    assert!(fds.len() > 20 && fds.iter().all(|&fd| is_open(fd)));
    let few = fds.len() / 2;
    run(&mut log, &mut ops.drain(..few).collect());
    let mut read = 0;
    while let Some(done) = log.take_read() {
        assert_eq!(done.body.map(<[u8]>::len), Ok(9000));
        read += 1;
    }
    assert_eq!(read, few);
    drop(log);
    // Their numbers are nobody else's as long as the ring may use them.
    let under_way: Vec<i32> = ops.iter().map(|op| fd_of(op.kind)).collect();
    assert!(under_way.iter().all(|&fd| is_open(fd)), "closed under the ring");
}

/// The call that gives a segment up does not remove its file, which would hold the turn: the ring does, and only then is
/// the directory synced.
#[test]
fn a_segment_that_goes_is_removed_by_the_ring() {
    let dir = tempfile::tempdir().unwrap();
    many_segments(dir.path(), Mode::Written);
    let config = config(Mode::Written);
    let disk = FileDisk::open(dir.path(), config.shard, config.mode).unwrap();
    let (mut log, _) = Log::open(&config, disk, |_, _| Ok::<_, Infallible>(())).unwrap();
    let (mut ops, mut now_ms, mut removed) = (Vec::new(), 10_000, 0);
    let files = || std::fs::read_dir(dir.path().join("shard-0003")).unwrap().count();
    while removed < 3 {
        now_ms += 20;
        log.flush(now_ms).unwrap();
        log.disk_mut().take_ops(&mut ops);
        let unlinks = ops.iter().any(|op| matches!(op.kind, DiskOpKind::Unlink { .. }));
        if unlinks {
            let before = files();
            let is_sync =
                |op: &DiskOp| matches!(op.kind, DiskOpKind::Sync { data_only: false, .. });
            assert!(!ops.iter().any(is_sync), "{ops:?}");
            run(&mut log, &mut ops);
            assert_eq!(files(), before - 1);
            removed += 1;
        }
        run(&mut log, &mut ops);
        if log.oldest().is_some() {
            match log.scan() {
                Scan::Record(..) | Scan::Reading => {}
                Scan::End => log.drop_oldest(),
                Scan::Failed(error) => panic!("{error}"),
            }
        }
    }
}

fn fd_of(kind: DiskOpKind) -> i32 {
    match kind {
        DiskOpKind::Write { fd, .. }
        | DiskOpKind::Sync { fd, .. }
        | DiskOpKind::Read { fd, .. }
        | DiskOpKind::Allocate { fd, .. }
        | DiskOpKind::Unlink { fd, .. } => fd,
    }
}

/// Guards, as above, files that are written and synced, and the directory.
#[test]
fn a_log_that_goes_first_leaves_the_ring_what_it_names() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let config = config(mode);
        let disk = FileDisk::open(dir.path(), config.shard, mode).unwrap();
        let (mut log, _) = Log::open(&config, disk, |_, _| Ok::<_, Infallible>(())).unwrap();
        let mut ops = Vec::new();
        for turn in 0..40 {
            log.append(9000).1.fill(turn);
            log.require_sync();
            log.flush(u64::from(turn)).unwrap();
            log.disk_mut().take_ops(&mut ops);
            let ends =
                ops.iter().any(|op| matches!(op.kind, DiskOpKind::Sync { data_only: false, .. }));
            if ends {
                break;
            }
            run(&mut log, &mut ops);
        }
        assert!(!ops.is_empty(), "nothing is under way");
        let fds: Vec<i32> = ops.iter().map(|op| fd_of(op.kind)).collect();
        drop(log);
        assert!(fds.iter().all(|&fd| is_open(fd)), "{ops:?}");
    }
}

/// A log whose oldest segment has been retired, and of whose directory the sync is under way.
fn retiring(config: &LogConfig) -> Log<FaultyDisk> {
    let (mut log, ..) = open(config, FaultyDisk::new(7, Faults::default()));
    for turn in 0..60 {
        append(&mut log, 2500, turn);
        settle(&mut log, u64::from(turn) * 20);
    }
    // Short of the middle of a segment: the next one is not made yet, and nothing is set aside.
    for now_ms in 1500.. {
        if log.room_bytes() < 1 << 16 && log.segments().1 == 0 {
            break;
        }
        append(&mut log, 2500, 1);
        settle(&mut log, now_ms);
    }
    log.disk_mut().faults = late(true);
    while !matches!(log.scan(), Scan::End) {
        finish_one(&mut log);
    }
    log.drop_oldest();
    let before = log.counters();
    for now_ms in 2000.. {
        log.flush(now_ms).unwrap();
        if log.counters().dropped > before.dropped {
            break;
        }
        finish_one(&mut log);
    }
    assert!(log.disk_mut().in_flight() > 0, "the directory is synced already");
    assert!(log.counters().disk_bytes >= before.disk_bytes, "its file is not kept");
    log
}

/// A file is retired, another is set aside before the directory has been synced, and the next segment needs one.
/// The disk looks that it is not the one that may come back.
#[test]
fn a_retired_file_is_not_used_before_its_retirement_is_on_the_disk() {
    for mode in [Mode::Written, Mode::Synced] {
        let config = LogConfig { reserve_bytes: 1, ..config(mode) };
        let mut log = retiring(&config);
        let spares = log.segments().1;
        assert!(spares == 0 && log.make_room(2 << 16) && log.segments().1 > 0);
        // All but the sync of the directory goes on.
        for turn in 0..60 {
            append(&mut log, 2500, turn);
            log.flush(4000 + u64::from(turn)).unwrap();
            let others = log.disk_mut().in_flight();
            if others > 1 {
                let (tag, result) = log.disk_mut().finish(others - 1);
                log.complete(tag, result).unwrap();
            }
        }
        settle(&mut log, 9000);
        assert!(log.counters().recycled > 0);
    }
}

/// The process is killed at that moment, and the next one needs a file at once.
#[test]
fn a_start_after_a_kill_uses_no_file_before_its_retirement_is_on_the_disk() {
    for mode in [Mode::Written, Mode::Synced] {
        let config = LogConfig { reserve_bytes: 1, ..config(mode) };
        let mut log = retiring(&config);
        let mut disk = log.disk_mut().copy();
        disk.kill();
        disk.faults = Faults::default();
        let (log, _, found) = open(&config, disk);
        assert_eq!(log.counters().recycled, 1, "the start had no file to use");
        // The power goes right after that start.
        let mut disk = log.into_disk();
        disk.power_loss();
        let (.., again) = open(&config, disk);
        assert!(again == found);
    }
}

/// Errors that mean that the system has too little of something now.
const LACKS: [(i32, Lack); 4] = [
    (libc::EMFILE, Lack::Descriptors),
    (libc::ENFILE, Lack::Descriptors),
    (libc::ENOMEM, Lack::Memory),
    (libc::ENOSPC, Lack::Space),
];

/// Writing waits, with what is open used up first, and goes on by itself; nothing is lost.
#[test]
fn a_log_that_gets_no_file_waits_for_it() {
    for mode in [Mode::Written, Mode::Synced] {
        for (errno, lack) in LACKS {
            for reserve_bytes in [0, 1 << 18] {
                let config = LogConfig { reserve_bytes, ..config(mode) };
                let (mut log, ..) = open(&config, FaultyDisk::new(3, late(true)));
                settle(&mut log, 1);
                let fails = |fails| Faults { fail_open: fails, errno, ..late(true) };
                log.disk_mut().faults = fails(true);
                let mut written = Records::new();
                for turn in 0..200 {
                    written.push(append(&mut log, 2500, turn));
                    settle(&mut log, 20 + u64::from(turn) * 20);
                }
                assert_eq!(log.lack(), Some(lack));
                assert!(log.released() < log.head() && log.failure().is_none());
                assert_eq!(log.room_bytes(), 0, "{mode:?} {errno} {reserve_bytes}");
                assert!(!log.has_room(1));
                let again = log.next_deadline().expect("it says when it tries again");
                settle(&mut log, again);
                assert_eq!((log.lack(), log.released() < log.head()), (Some(lack), true));
                log.disk_mut().faults = fails(false);
                for round in 1..9 {
                    settle(&mut log, again + round * 1000);
                }
                assert_eq!((log.lack(), log.released()), (None, log.head()));
                let disk = log.into_disk();
                assert!(open(&config, disk).2 == written);
            }
        }
    }
}

/// Reads wait as well, those of clients and those of the segment that is given up.
#[test]
fn reads_that_lack_a_descriptor_are_tried_again() {
    for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
        for faults in [Faults::default(), late(true)] {
            let mut log = new_log(Mode::Written, Faults::default());
            let mut written = Records::new();
            for turn in 0..100 {
                written.push(append(&mut log, 2500, turn));
                settle(&mut log, u64::from(turn) * 20);
            }
            log.disk_mut().faults = Faults { fail_open: true, errno, ..faults };
            let (first, body) = &written[0];
            log.read_cold(*first, body.len(), 7);
            assert!(matches!(log.scan(), Scan::Reading));
            for now_ms in [3000, 3050, 3100] {
                settle(&mut log, now_ms);
                assert!(log.take_read().is_none() && matches!(log.scan(), Scan::Reading));
                assert!(log.next_deadline() <= Some(now_ms + 50), "nothing would wake it");
            }
            assert_eq!(log.cold_reads_pending(), 1);
            log.disk_mut().faults = faults;
            settle(&mut log, 3150);
            assert_eq!(log.take_read().unwrap().body, Ok(&body[..]));
            assert!(matches!(log.scan(), Scan::Record(..) | Scan::Reading));
            settle(&mut log, 3200);
            assert!(matches!(log.scan(), Scan::Record(at, _) if at >= *first));
        }
    }
}

/// Guards a log whose records have been synced: only its closing block finds no room.
#[test]
fn a_log_whose_closing_block_finds_no_room_closes_all_the_same() {
    for mode in [Mode::Written, Mode::Synced] {
        for errno in [libc::ENOSPC, libc::EMFILE] {
            let mut log = new_log(mode, late(true));
            settle(&mut log, 1);
            log.disk_mut().faults = Faults { fail_open: true, errno, ..late(true) };
            let mut written = Records::new();
            // To the last byte: records of ever smaller size, as long as they are written.
            let mut bytes = 40_000 - 16;
            let mut now_ms = 10;
            while bytes > 0 {
                if log.has_room(bytes as u64 + log.block_overhead_bytes() + 64) {
                    written.push(append(&mut log, bytes, 1));
                    now_ms += 20;
                    settle(&mut log, now_ms);
                    assert_eq!(log.released(), log.head());
                } else {
                    bytes /= 2;
                }
            }
            // Appends until the room left is too little for a block.
            while log.room_bytes() >= log.block_overhead_bytes() {
                now_ms += 2000;
                let before = log.head();
                written.push(append(&mut log, 1, 1));
                settle(&mut log, now_ms);
                if log.released() < log.head() {
                    written.pop();
                    assert_eq!(log.released(), before);
                    break;
                }
            }
            if log.released() < log.head() {
                // Something was not acknowledged: that is said.
                continue;
            }
            close(&mut log, now_ms + 2000);
            let mut disk = log.into_disk();
            disk.faults = Faults::default();
            let (_, recovery, found) = open(&config(mode), disk);
            assert!(found == written && recovery.dropped.is_none(), "{recovery:?}");
        }
    }
}

#[test]
fn a_disk_tells_what_it_may_take() {
    assert!(FileDisk::descriptors_max(8) > 8 && FileDisk::descriptors_max(8) < 24);
    let dir = tempfile::tempdir().unwrap();
    let mut disk = FileDisk::open(dir.path(), 0, Mode::Written).unwrap().with_files_open(1);
    for segment in 0..5 {
        disk.create(segment, 1 << 16, b"header", false).unwrap();
    }
    assert_eq!(disk.files_open(), 5, "they take blocks");
    (0..4).for_each(|segment| disk.seal(segment));
    assert!(matches!(disk.read(0, 0, &mut [0; 6], 4), Started::Pending));
    assert_eq!(disk.files_open(), 2, "one that takes blocks, and one more");
    assert_eq!(Disk::len(&mut disk, 3).unwrap(), 1 << 16);
}
