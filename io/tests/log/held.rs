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
        // What was being written when the room went was written before.
        if fail_writes && turn > without.start + 1 {
            assert_eq!(log.released(), before, "{told}, turn {turn}: acknowledged unwritten");
        }
        if held && log.counters().held_writes > 0 && fail_writes {
            assert!(log.room_bytes() == 0 && !log.has_room(1), "{told}: room that is not there");
            assert!(log.next_deadline().is_some(), "{told}: nothing brings it on");
        }
    }
    // It goes on by itself, at the time that it says.
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
