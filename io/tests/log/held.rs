//! The fear: a file system that sets no room aside has none for what is written to its place, and the log fails for good,
//! or acknowledges what it has not written.

use super::*;

fn settings(mode: Mode) -> LogConfig {
    LogConfig { is_begun: true, reserve_bytes: 1 << 16, ..config(mode) }
}

fn begun(mode: Mode) -> FaultyDisk {
    let config = LogConfig { is_begun: false, ..settings(mode) };
    open(&config, FaultyDisk::new(1, Faults::default())).0.into_disk()
}

/// Ends what is in flight, without a turn.
fn finish_all(log: &mut Log<FaultyDisk>) {
    while finish_one(log) {}
}

const TURNS: u64 = 160;
const TURN_MS: u64 = 20;

/// Appends in every turn, of which some find no room; answers whether any write waited for it.
fn live(mode: Mode, faults: Faults, without: std::ops::Range<u64>, told: &str) -> bool {
    let (mut log, ..) = open(&settings(mode), begun(mode));
    let mut written = Records::new();
    let mut waited = false;
    for turn in 0..TURNS {
        let fail_writes = without.contains(&turn);
        log.disk_mut().faults = Faults { fail_writes, ..faults };
        written.push(append(&mut log, 1500, turn as u8));
        if turn % 16 == 0 {
            log.require_sync();
        }
        let before = log.released();
        log.flush(turn * TURN_MS).unwrap_or_else(|error| panic!("{told}: {error}"));
        finish_all(&mut log);
        let held = log.lack().is_some();
        waited |= held;
        // The first turn without room may still release a block that was being written.
        if fail_writes && turn > without.start + 1 {
            assert_eq!(log.released(), before, "{told}, turn {turn}: acknowledged unwritten");
        }
        if held && log.counters().held_writes > 0 && fail_writes {
            assert!(log.room_bytes() == 0 && !log.has_room(1), "{told}: room that is not there");
            assert!(!log.make_room(1), "{told}: room for more behind what waits");
            assert!(log.next_deadline().is_some(), "{told}: nothing brings it on");
        }
    }
    // The log goes on by itself, at the time that it says.
    log.disk_mut().faults = faults;
    let mut now_ms = TURNS * TURN_MS;
    for _ in 0..50 {
        now_ms = log.next_deadline().unwrap_or(now_ms).max(now_ms);
        settle(&mut log, now_ms);
    }
    assert_eq!((log.lack(), log.released()), (None, log.head()), "{told}: it does not go on");
    // Behind the last record there may be a note.
    assert!(written.last().unwrap().0 < log.synced(), "{told}: it does not sync");
    let mut disk = log.into_disk();
    disk.power_loss();
    let (.., found) = open(&settings(mode), disk);
    assert!(found == written, "{told}: {} of {}", found.len(), written.len());
    waited
}

#[test]
fn whatever_finds_no_room_in_its_place_waits_and_goes_on_by_itself() {
    for mode in [Mode::Written, Mode::Synced] {
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::ENOMEM] {
            let once = Faults { errno, ..Faults::default() };
            for faults in [once, Faults { late: true, ..once }, Faults { short_writes: 3, ..once }]
            {
                let mut waited = 0;
                // Blocks, zeros, marks and slots all come at some turn.
                for first in (1..TURNS).step_by(3) {
                    let told = format!("{mode:?}, {faults:?}, from turn {first}");
                    waited += u32::from(live(mode, faults, first..first + 10, &told));
                }
                assert!(waited > 40, "{mode:?}, {faults:?}: only {waited} lives had to wait");
            }
        }
    }
}

/// Canary: a write that is said to be done, and is not, would be seen.
#[test]
#[should_panic(expected = "acknowledged unwritten")]
fn canary_what_is_acknowledged_without_room_is_seen() {
    let faults = Faults { errno: libc::EINTR, ..Faults::default() };
    let (mut log, ..) = open(&settings(Mode::Written), begun(Mode::Written));
    log.disk_mut().faults = faults;
    append(&mut log, 1500, 1);
    let before = log.released();
    log.flush(0).unwrap();
    assert_eq!(log.released(), before, "acknowledged unwritten");
}

/// At the end nothing waits for room: what was acknowledged is safe, and the rest is said to be lost.
#[test]
fn a_clean_stop_without_room_ends_and_loses_nothing_that_was_acknowledged() {
    for mode in [Mode::Written, Mode::Synced] {
        for pending in [false, true] {
            let (mut log, ..) = open(&settings(mode), begun(mode));
            let kept = append(&mut log, 1500, 1);
            settle(&mut log, 0);
            settle(&mut log, 100);
            log.disk_mut().faults =
                Faults { errno: libc::ENOSPC, fail_writes: true, ..Faults::default() };
            if pending {
                append(&mut log, 1500, 2);
            }
            let mut ended = None;
            for turn in 0..10 {
                match log.close(200 + turn) {
                    Ok(false) => {}
                    end => {
                        ended = Some(end.is_ok());
                        break;
                    }
                }
            }
            assert_eq!(ended, Some(!pending), "{mode:?}: a stop that is to lose something says so");
            let mut disk = log.into_disk();
            disk.faults = Faults::default();
            let (.., found) = open(&settings(mode), disk);
            assert!(found.contains(&kept), "{mode:?}");
        }
    }
}

/// A log without a segment to go on to, which gets one whose mark in the one before finds no room.
fn without_mark(late: bool) -> (Log<FaultyDisk>, Records, u64) {
    let config = LogConfig { reserve_bytes: 0, ..settings(Mode::Written) };
    let (mut log, ..) = open(&config, begun(Mode::Written));
    let full = Faults { errno: libc::ENOSPC, ..Faults::default() };
    log.disk_mut().faults = Faults { fail_create: true, ..full };
    let (mut written, mut now_ms) = (Records::new(), 0);
    while log.unwritten_bytes() == 0 {
        assert!(now_ms < 100_000, "a log without an end");
        written.push(append(&mut log, 1500, 1));
        settle(&mut log, now_ms);
        now_ms += TURN_MS;
    }
    log.disk_mut().faults = Faults { fail_older: true, late, ..full };
    // The first turn makes the segment, and may write to it before the mark is known to have no room.
    for _ in 0..3 {
        now_ms = log.next_deadline().unwrap_or(now_ms).max(now_ms) + TURN_MS;
        settle(&mut log, now_ms);
    }
    assert!(log.lack().is_some() && log.disk_mut().segments().len() > 1, "late: {late}");
    (log, written, now_ms)
}

/// Nothing in a segment is synced before the mark that tells of it: what was acknowledged meanwhile would go with the power.
#[test]
fn what_comes_behind_a_mark_that_finds_no_room_is_not_acknowledged() {
    for late in [false, true] {
        let (mut log, mut written, mut now_ms) = without_mark(late);
        let before = log.released();
        for turn in 0..200 {
            written.push(append(&mut log, 100, turn));
            now_ms += TURN_MS;
            settle(&mut log, now_ms);
            assert_eq!(log.released(), before, "late: {late}, turn {turn}: acknowledged unsynced");
        }
        log.disk_mut().faults = Faults::default();
        for _ in 0..50 {
            now_ms = log.next_deadline().unwrap_or(now_ms).max(now_ms);
            settle(&mut log, now_ms);
        }
        assert_eq!((log.lack(), log.released()), (None, log.head()), "late: {late}");
        let mut disk = log.into_disk();
        disk.power_loss();
        let (.., found) = open(&settings(Mode::Written), disk);
        assert!(found == written, "late: {late}: {} of {}", found.len(), written.len());
    }
}

#[test]
fn a_stop_behind_a_mark_that_finds_no_room_says_that_it_loses_something() {
    let (mut log, _, now_ms) = without_mark(false);
    append(&mut log, 100, 1);
    assert!((0..10).any(|turn| log.close(now_ms + turn).is_err()));
}

/// Waiting for room is no failed attempt: what passes afterwards passes.
#[test]
fn a_write_that_has_waited_for_long_may_be_interrupted_like_any_other() {
    for mode in [Mode::Written, Mode::Synced] {
        let (mut log, ..) = open(&settings(mode), begun(mode));
        let full = Faults { errno: libc::ENOSPC, fail_writes: true, ..Faults::default() };
        log.disk_mut().faults = full;
        append(&mut log, 1500, 1);
        let mut now_ms = 0;
        for _ in 0..300 {
            settle(&mut log, now_ms);
            now_ms = log.next_deadline().unwrap();
        }
        assert!(log.counters().held_writes > 200, "{:?}", log.counters());
        log.disk_mut().faults = Faults { errno: libc::EINTR, fail_write: 1, ..Faults::default() };
        settle(&mut log, now_ms);
        assert_eq!(log.released(), log.head(), "{mode:?}");
    }
}
