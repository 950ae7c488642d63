//! The fear: something is released before it is safe, or never, or the log goes on after it lied.

use super::*;
use corq_io::log::ReadError;

#[test]
fn records_appended_while_a_write_is_in_flight_share_the_next_one() {
    let mut log = new_log(Mode::Synced, late(false));
    let (first, _) = append(&mut log, 100, 1);
    log.flush(0).unwrap();
    let first_head = log.head();
    let before = log.counters().writes;
    for byte in 2..20 {
        append(&mut log, 100, byte);
        log.flush(0).unwrap();
    }
    assert_eq!(log.counters().writes, before);
    assert!(log.released() <= first, "nothing is released while its write is in flight");
    assert!(finish_one(&mut log));
    assert!(log.released() >= first_head && log.released() < log.head());
    log.flush(0).unwrap();
    assert_eq!((log.counters().writes, log.disk_mut().in_flight()), (before + 1, 1));
    assert!(finish_one(&mut log));
    log.flush(0).unwrap();
    assert_eq!((log.released(), log.synced()), (log.head(), log.head()));
    assert_eq!(log.counters().blocks, 2);
}

#[test]
fn in_written_mode_a_flush_releases_at_once() {
    let mut log = new_log(Mode::Written, late(true));
    for turn in 0..10 {
        append(&mut log, 100, turn);
        log.flush(0).unwrap();
        assert_eq!(log.released(), log.head());
    }
    assert_eq!((log.counters().syncs, log.disk_mut().in_flight()), (0, 0));
}

#[test]
fn a_block_that_must_be_synced_holds_back_all_that_follows() {
    let mut log = new_log(Mode::Written, late(true));
    append(&mut log, 10, 1);
    log.flush(0).unwrap();
    let before = log.head();
    append(&mut log, 10, 2);
    log.require_sync();
    log.flush(0).unwrap();
    let durable = log.head();
    append(&mut log, 10, 3);
    log.flush(0).unwrap();
    assert_eq!(log.released(), before);
    assert!(finish_one(&mut log));
    assert_eq!(log.released(), log.head(), "what follows needs no sync of its own");
    assert_eq!(log.synced(), durable, "a sync covers what was written when it started");
}

/// Guards against an answer about a record that was written before, and that a power loss may take.
#[test]
fn what_was_written_before_can_be_required_to_be_synced() {
    for mode in [Mode::Written, Mode::Synced] {
        let mut log = new_log(mode, late(true));
        append(&mut log, 10, 1);
        settle(&mut log, 0);
        let record = log.head();
        log.require_sync();
        let answer = log.head();
        log.flush(0).unwrap();
        assert_eq!(log.released() < answer, mode == Mode::Written, "{mode:?}");
        settle(&mut log, 0);
        assert!(log.released() >= answer && log.synced() >= record, "{mode:?}");
        let syncs = log.counters().syncs;
        log.require_sync();
        assert_eq!(log.head(), log.released(), "all of it is on the disk");
        settle(&mut log, 0);
        assert_eq!(log.counters().syncs, syncs);
    }
}

#[test]
fn a_sync_in_flight_does_not_cover_a_later_block() {
    let mut log = new_log(Mode::Written, late(true));
    append(&mut log, 10, 1);
    log.require_sync();
    log.flush(0).unwrap();
    let first = log.head();
    append(&mut log, 10, 2);
    log.require_sync();
    log.flush(0).unwrap();
    assert!(finish_one(&mut log));
    assert_eq!(log.released(), first);
    log.flush(0).unwrap();
    assert_eq!(log.counters().syncs, 2);
    assert!(finish_one(&mut log));
    assert_eq!(log.released(), log.head());
}

#[test]
fn written_data_is_synced_after_the_interval_and_an_idle_log_sleeps() {
    let mut log = new_log(Mode::Written, late(true));
    assert_eq!(log.next_deadline(), None);
    append(&mut log, 10, 1);
    log.flush(100).unwrap();
    assert_eq!(log.next_deadline(), Some(110));
    log.flush(109).unwrap();
    assert_eq!(log.counters().syncs, 0);
    log.flush(110).unwrap();
    assert_eq!((log.counters().syncs, log.next_deadline()), (1, None));
    settle(&mut log, 111);
    assert_eq!(log.synced(), log.head());
    // The note that says so, once, and nothing after it.
    assert_eq!(log.next_deadline(), Some(1100));
    settle(&mut log, 1099);
    assert_eq!(log.counters().notes, 0);
    settle(&mut log, 1100);
    // And what is said in the header page, with a sync of its own, since no other comes.
    assert_eq!((log.counters().notes, log.next_deadline()), (1, Some(1111)));
    settle(&mut log, 1111);
    assert_eq!(log.next_deadline(), None);
    for now_ms in (2000..100_000).step_by(1000) {
        settle(&mut log, now_ms);
    }
    assert_eq!((log.counters().notes, log.counters().syncs), (1, 2));
    assert_eq!(log.released(), log.head());
}

#[test]
fn in_synced_mode_one_note_follows_the_last_block() {
    let mut log = new_log(Mode::Synced, late(false));
    append(&mut log, 10, 1);
    for now_ms in (0..100_000).step_by(500) {
        settle(&mut log, now_ms);
    }
    assert_eq!((log.counters().notes, log.next_deadline()), (1, None));
}

#[test]
fn a_failed_write_stops_the_log_for_good() {
    // These errors are for good; the log waits until others are over, see `held`.
    for errno in [libc::EIO, libc::EROFS] {
        for mode in [Mode::Written, Mode::Synced] {
            let mut log = new_log(mode, Faults::default());
            append(&mut log, 10, 1);
            log.flush(0).unwrap();
            let released = log.released();
            log.disk_mut().faults = Faults { fail_write: 1, errno, ..Faults::default() };
            append(&mut log, 10, 2);
            let error = log.flush(1).unwrap_err();
            assert_eq!((error.operation, error.errno), ("write", errno));
            for now_ms in 2..100 {
                append(&mut log, 10, 3);
                assert_eq!(log.flush(now_ms), Err(error.clone()));
                assert_eq!(log.close(now_ms), Err(error.clone()));
            }
            assert_eq!((log.released(), log.next_deadline()), (released, None));
        }
    }
}

#[test]
fn a_failed_sync_stops_the_log_and_is_never_retried() {
    let faults = Faults { fail_sync: 1, errno: libc::EIO, ..late(true) };
    let mut log = new_log(Mode::Written, faults);
    append(&mut log, 10, 1);
    log.require_sync();
    log.flush(0).unwrap();
    let released = log.released();
    let (tag, result) = log.disk_mut().finish_one().unwrap();
    let error = log.complete(tag, result).unwrap_err();
    assert_eq!((error.operation, error.errno), ("fsync", libc::EIO));
    for now_ms in 1..100 {
        assert!(log.flush(now_ms).is_err());
    }
    assert_eq!((log.released(), log.counters().syncs), (released, 1));
    assert_eq!(log.disk_mut().in_flight(), 0);
}

#[test]
fn a_full_disk_is_told_before_it_is_needed_and_holds_back_only_what_has_no_room() {
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        let mut log = new_log(Mode::Written, Faults::default());
        log.disk_mut().faults = Faults { fail_create: true, errno, ..Faults::default() };
        let mut written = Records::new();
        for turn in 0..40 {
            written.push(append(&mut log, 2000, turn));
            log.flush(u64::from(turn)).unwrap();
            let (told, room) = (log.lack().is_some(), log.released() == log.head());
            assert!(told || room, "what is held back is told of");
        }
        let released = log.released();
        assert!(released.0 > 60_000 && released < log.head());
        assert_eq!(log.counters().segment_failures, 1, "tried again too soon");
        assert!(log.next_deadline().is_some_and(|at_ms| at_ms <= 1040), "nobody would try again");
        for now_ms in [1040, 2050, 3060] {
            log.flush(now_ms).unwrap();
            assert_eq!(log.released(), released);
        }
        assert_eq!(log.counters().segment_failures, 4);
        log.disk_mut().faults.fail_create = false;
        log.flush(4070).unwrap();
        assert!(log.released() == log.head() && log.lack().is_none());
        let (_, _, found) = open(&config(Mode::Written), log.into_disk());
        assert!(found == written);
    }
}

#[test]
fn short_and_interrupted_writes_are_completed() {
    for mode in [Mode::Written, Mode::Synced] {
        let faults = Faults { short_writes: 2, interrupts: 3, ..late(true) };
        let mut log = new_log(mode, faults);
        let mut written = Records::new();
        for turn in 0..50 {
            written.push(append(&mut log, 10_000, turn));
            settle(&mut log, u64::from(turn));
        }
        assert_eq!(log.released(), log.head());
        assert!(log.counters().writes > log.counters().blocks);
        let (_, recovery, found) = open(&config(mode), log.into_disk());
        assert!(found == written);
        assert_eq!(recovery.dropped, None);
    }
}

#[test]
fn the_kernel_doing_nothing_for_ever_is_a_failure() {
    let mut log = new_log(Mode::Written, Faults { interrupts: 1, ..Faults::default() });
    append(&mut log, 10, 1);
    assert_eq!(log.flush(0).unwrap_err().errno, libc::EINTR);
}

#[test]
fn records_that_left_memory_are_read_back_checked() {
    let mut log = new_log(Mode::Written, Faults { short_reads: 2, interrupts: 3, ..late(true) });
    let mut written = Records::new();
    for turn in 0..40 {
        written.push(append(&mut log, 3000, turn));
        settle(&mut log, 0);
    }
    assert!(log.memory_bytes() <= config(Mode::Written).cache_bytes);
    assert_eq!(log.read(written[0].0, 3000), None);
    assert_eq!(log.read(written[39].0, 3000), Some(&written[39].1[..]));
    for (token, (position, body)) in written.iter().enumerate() {
        log.read_cold(*position, body.len(), token as u64);
        assert!(log.disk_mut().in_flight() <= 2, "the number in flight is bounded");
    }
    let mut seen = vec![false; written.len()];
    while log.cold_reads_pending() > 0 {
        finish_one(&mut log);
        while let Some(done) = log.take_read() {
            let token = done.token as usize;
            assert!(!std::mem::replace(&mut seen[token], true));
            assert_eq!(done.body, Ok(&written[token].1[..]));
        }
        log.flush(0).unwrap();
    }
    assert!(seen.iter().all(|&seen| seen));
}

#[test]
fn a_damaged_record_is_reported_by_the_cold_read() {
    let mut log = new_log(Mode::Written, Faults::default());
    let (first, _) = append(&mut log, 100, 1);
    let (second, _) = append(&mut log, 100, 2);
    log.flush(0).unwrap();
    log.disk_mut().tamper(0, |bytes| bytes[first.0 as usize + RECORD_HEADER_BYTES + 50] ^= 1);
    let mut read = |position: Position, bytes| {
        log.read_cold(position, bytes, 7);
        log.take_read().unwrap().body.map(<[u8]>::to_vec)
    };
    assert_eq!(read(first, 100), Err(ReadError::Damaged(first)));
    assert_eq!(read(second, 100), Ok(vec![2; 100]));
    assert_eq!(read(second, 99), Err(ReadError::Damaged(second)), "a wrong length");
    let wrong = second.plus(1);
    assert_eq!(read(wrong, 100), Err(ReadError::Damaged(wrong)), "a wrong place");
    let behind = Position((1 << 16) - 8);
    assert_eq!(read(behind, 100), Err(ReadError::Damaged(behind)), "over the end of the file");
    let nowhere = Position(1 << 40);
    assert_eq!(read(nowhere, 0), Err(ReadError::Io { position: nowhere, errno: libc::EIO }));
}

#[test]
fn large_records_survive_beside_small_ones() {
    let mut large = config(Mode::Synced);
    large.segment_bytes = 1 << 24;
    large.record_bytes_max = 12 << 20;
    large.block_bytes = 1 << 20;
    let (mut log, ..) = open(&large, FaultyDisk::new(1, late(false)));
    let mut written = Records::new();
    for turn in 0..3 {
        written.push(append(&mut log, 100, turn));
        written.push(append(&mut log, 10 << 20, turn));
        written.push(append(&mut log, 100, turn));
        let newest = &written[written.len() - 2];
        assert_eq!(log.read(newest.0, 10 << 20), Some(&newest.1[..]));
        settle(&mut log, 0);
        assert_eq!(log.released(), log.head());
    }
    let (_, recovery, found) = open(&large, log.into_disk());
    assert!(found == written);
    assert_eq!(recovery.segments, 3);
}

#[test]
#[should_panic(expected = "over the limit")]
fn a_record_over_the_limit_is_a_bug_of_the_caller() {
    new_log(Mode::Written, Faults::default()).append(40_000);
}

#[test]
fn the_next_segment_is_ready_before_it_is_needed() {
    for mode in [Mode::Written, Mode::Synced] {
        let mut log = new_log(mode, late(true));
        let mut turns_waiting = 0;
        for turn in 0..200 {
            append(&mut log, 1000, 1);
            log.flush(turn).unwrap();
            // In any order: completions of the block and of the preparation.
            for _ in 0..3 {
                finish_one(&mut log);
                log.flush(turn).unwrap();
            }
            turns_waiting += u64::from(log.released() < log.head());
        }
        assert!(log.counters().segments > 3);
        assert!(turns_waiting <= 12, "{mode:?}: {turns_waiting} turns waited");
        settle(&mut log, 300);
        assert_eq!(log.released(), log.head());
    }
}

#[test]
fn nothing_in_a_segment_is_synced_before_its_name_is() {
    let mut log = new_log(Mode::Written, late(true));
    while log.counters().segments < 2 {
        append(&mut log, 3000, 1);
        log.flush(0).unwrap();
    }
    // The sync of the directory is in flight, and stays so.
    assert_eq!(log.disk_mut().in_flight(), 1);
    while log.head().0 < (1 << 16) + 5000 {
        append(&mut log, 3000, 1);
        log.flush(0).unwrap();
    }
    append(&mut log, 10, 2);
    log.require_sync();
    log.flush(1).unwrap();
    assert_eq!((log.disk_mut().in_flight(), log.counters().syncs), (2, 1));
    // The segment left behind has been synced; the next one has to wait for its name.
    let (tag, result) = log.disk_mut().finish(1);
    log.complete(tag, result).unwrap();
    log.flush(1).unwrap();
    assert_eq!((log.disk_mut().in_flight(), log.counters().syncs), (1, 1));
    assert!(log.released() < log.head());
    assert_eq!(log.next_deadline(), None, "only the completion can help");
    settle(&mut log, 1);
    assert_eq!((log.released(), log.counters().syncs), (log.head(), 2));
}
