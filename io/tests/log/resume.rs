//! Starts where no room is to be had. The fear: each of them uses up some of what is set aside for the records that end
//! jobs, so that a few leave nothing; or one that goes on where the last one ended takes for the log what is not.

use super::*;

const SPARES: u64 = 3;

/// At most `segments` files, of which three are set aside.
fn bounded(mode: Mode, segments: u64) -> LogConfig {
    // The records of these tests fill less than half of a segment, in pages, too.
    let config = LogConfig { segment_bytes: 1 << 19, ..config(mode) };
    let (bytes_max, reserve_bytes) =
        (segments * config.segment_bytes, SPARES * config.segment_bytes);
    LogConfig { bytes_max, reserve_bytes, ..config }
}

/// A log of some segments that has all the room it may have.
fn full(mode: Mode) -> (FaultyDisk, Records) {
    let (mut log, ..) = open(&bounded(mode, 8), FaultyDisk::new(1, Faults::default()));
    let mut written = Records::new();
    while log.segments().0 + SPARES < 8 {
        written.push(append(&mut log, 3000, 7));
        log.flush(0).unwrap();
    }
    settle(&mut log, 5000);
    assert_eq!(log.segments(), (8 - SPARES, SPARES));
    (log.into_disk(), written)
}

#[test]
fn starts_without_room_leave_as_much_as_they_found() {
    for (mode, bounded_only) in
        [(Mode::Written, true), (Mode::Written, false), (Mode::Synced, true), (Mode::Synced, false)]
    {
        let (mut disk, mut written) = full(mode);
        let settings = bounded(mode, if bounded_only { 7 } else { u64::from(u32::MAX) });
        for start in 0..12 {
            // Others take each byte that comes free.
            disk.faults.fail_create = !bounded_only;
            disk.faults.errno = libc::ENOSPC;
            let (mut log, recovery, found) = open(&settings, disk);
            assert!(found == written && recovery.dropped.is_none(), "{mode:?}: start {start}");
            assert_eq!(log.segments(), (8 - SPARES, SPARES), "{mode:?}: start {start}");
            if start % 3 != 1 {
                written.push(append(&mut log, 100, start));
                settle(&mut log, 10_000);
                settle(&mut log, 11_000);
            }
            match start % 4 {
                // The power fails.
                0 => {
                    disk = log.into_disk();
                    disk.power_loss();
                }
                1 => {
                    close(&mut log, 20_000);
                    disk = log.into_disk();
                }
                _ => disk = log.into_disk(),
            }
        }
        // All of it can be used.
        let (mut log, ..) = open(&settings, disk);
        let (used, spares) = log.segments();
        while log.segments().0 < used + spares {
            written.push(append(&mut log, 3000, 8));
            settle(&mut log, 20_000);
        }
        let disk = log.into_disk();
        let (_, _, found) = open(&settings, disk);
        assert!(found == written, "{mode:?}");
    }
}

#[test]
fn a_segment_that_the_last_start_has_made_is_used_by_the_next_one() {
    for mode in [Mode::Written, Mode::Synced] {
        let (disk, mut written) = full(mode);
        let (mut log, ..) = open(&bounded(mode, 20), disk);
        assert_eq!(log.segments(), (9 - SPARES, SPARES), "there was room");
        // Nothing is written for a while, which gives back what is too much for that.
        settle(&mut log, 10_000);
        let left = log.segments();
        // Notes lie in it, and say that they are the end.
        close(&mut log, 20_000);
        let mut disk = log.into_disk();
        for start in 0..4 {
            let (mut log, recovery, found) = open(&bounded(mode, 8), disk);
            assert!(found == written && recovery.dropped.is_none(), "{mode:?}");
            assert_eq!(log.segments(), left, "{mode:?}: start {start}");
            if start > 1 {
                written.push(append(&mut log, 10, start));
            }
            close(&mut log, 20_000);
            disk = log.into_disk();
        }
    }
}

/// Guards against a block behind a torn one that comes to life when the log has grown up to it.
#[test]
fn nothing_that_lay_behind_the_end_comes_back_after_a_start_without_room() {
    for mode in [Mode::Written, Mode::Synced] {
        let (disk, mut written) = full(mode);
        let (mut log, ..) = open(&bounded(mode, 8), disk);
        let torn = append(&mut log, 500, 1);
        log.flush(0).unwrap();
        let behind = (0..3).map(|byte| {
            let behind = append(&mut log, 500, byte);
            log.flush(0).unwrap();
            behind
        });
        assert_eq!(behind.count(), 3);
        let bytes = bounded(mode, 8).segment_bytes;
        let (segment, at) = (torn.0.0 / bytes, (torn.0.0 % bytes) as usize);
        let mut disk = log.into_disk();
        disk.tamper(segment, |content| content[at + 100] ^= 1);
        let opened = try_open(&bounded(mode, 8), disk);
        if mode == Mode::Synced {
            // Each block says that those before it are on the disk.
            assert!(matches!(opened, Err(OpenError::Damaged { .. })));
            continue;
        }
        let (mut log, recovery, found) = opened.unwrap();
        assert!(found == written && recovery.dropped.is_some());
        // Of the same length and with the same bytes as what is gone: all that follows could continue it.
        for bytes in [500, 500] {
            written.push(append(&mut log, bytes, 1));
            log.flush(0).unwrap();
            let disk = log.into_disk();
            let (again, recovery, found) = open(&bounded(mode, 8), disk);
            assert!(found == written && recovery.dropped.is_none());
            log = again;
        }
    }
}
