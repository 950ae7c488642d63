//! The fear: the newest blocks of a log are lost on the disk, zeroed or overwritten, and a start goes on without them and
//! without a word, though they had been synced.

use super::*;
use OpenError::Damaged;

fn begun(mode: Mode) -> LogConfig {
    LogConfig { is_begun: true, ..config(mode) }
}

/// Ten records that were synced, each in a block of its own, and where each block ends.
fn ten(mode: Mode) -> (Log<FaultyDisk>, Records, Vec<u64>) {
    let mut log = new_log(mode, Faults::default());
    let (mut written, mut ends) = (Records::new(), Vec::new());
    for byte in 0..10 {
        written.push(append(&mut log, 100, byte));
        log.require_sync();
        settle(&mut log, u64::from(byte));
        ends.push(log.head().0);
    }
    assert_eq!(log.synced(), log.head());
    (log, written, ends)
}

/// Without what lies behind the first `kept` blocks.
fn without(disk: &FaultyDisk, kept: u64, fill: u8) -> FaultyDisk {
    let mut disk = disk.copy();
    let at = (kept & 0xffff) as usize;
    disk.tamper(kept >> 16, |bytes| {
        let end = bytes.len() - 64;
        bytes[at..end].fill(fill);
    });
    disk
}

fn every_loss_is_refused(mode: Mode, disk: &FaultyDisk, ends: &[u64], what: &str) {
    for (kept, &end) in ends.iter().enumerate().take(9) {
        for fill in [0, 0x5a] {
            match try_open(&begun(mode), without(disk, end, fill)) {
                Err(Damaged { file, offset, .. }) => {
                    let here = file == "0000000000000000.seg" && offset == end;
                    // Where nothing was written, the next block may be looked for in the next file.
                    let next = file == "0000000000000001.seg" && offset == 4096;
                    assert!(here || next, "{file} at {offset}");
                }
                Err(error) => panic!("{what}: {error}"),
                Ok((.., found)) => panic!(
                    "{mode:?}, {what}: {} of 10 synced records are found, {} were kept",
                    found.len(),
                    kept + 1
                ),
            }
        }
    }
}

#[test]
fn newest_blocks_that_are_lost_after_a_clean_stop_are_missed() {
    for mode in [Mode::Written, Mode::Synced] {
        let (mut log, written, mut ends) = ten(mode);
        close(&mut log, 10);
        let mut disk = log.into_disk();
        // The closing block is one of them.
        ends.push(0);
        for power in [false, true] {
            if power {
                disk.power_loss();
            }
            let (_, recovery, found) = open(&begun(mode), disk.copy());
            assert!(found == written && recovery.clean, "{recovery:?}");
            every_loss_is_refused(mode, &disk, &ends, "clean");
            let last = without(&disk, ends[9], 0);
            let error = try_open(&begun(mode), last).unwrap_err();
            assert!(matches!(error, Damaged { .. }), "without the closing block: {error}");
        }
    }
}

#[test]
fn newest_blocks_that_were_synced_a_second_ago_are_missed() {
    for mode in [Mode::Written, Mode::Synced] {
        let (mut log, written, ends) = ten(mode);
        let synced_ms = 9;
        // The loop comes back when the log asks for it, and not before.
        let mut now_ms = synced_ms;
        while let Some(due) = log.next_deadline() {
            assert!(due > now_ms, "{mode:?}: due at {due}, again");
            now_ms = due;
            settle(&mut log, now_ms);
        }
        assert!(now_ms <= synced_ms + 2100, "{mode:?}: {now_ms}");
        let mut disk = log.into_disk();
        disk.power_loss();
        let (.., found) = open(&begun(mode), disk.copy());
        assert!(found == written);
        every_loss_is_refused(mode, &disk, &ends, "quiet");
    }
}

#[test]
fn a_busy_log_is_behind_by_a_second_at_most() {
    for mode in [Mode::Written, Mode::Synced] {
        let mut log = new_log(mode, Faults::default());
        let mut synced = std::collections::VecDeque::new();
        let mut tried = 0;
        for now_ms in (0..40_000_u64).step_by(200) {
            append(&mut log, 100, 1);
            log.require_sync();
            settle(&mut log, now_ms);
            synced.push_back((now_ms, log.synced()));
            while synced.get(1).is_some_and(|(at, _)| at + 1100 <= now_ms) {
                synced.pop_front();
            }
            let &(at, end) = synced.front().unwrap();
            if at + 1100 > now_ms || end.0 >> 16 != log.head().0 >> 16 {
                continue;
            }
            // The block that ends there, and all behind it.
            let disk = log.disk_mut().copy();
            let lost = without(&disk, end.0 - 64, 0);
            let error = try_open(&begun(mode), lost);
            assert!(matches!(error, Err(Damaged { .. })), "{mode:?} at {now_ms}");
            tried += 1;
        }
        assert!(tried > 30, "{tried}");
    }
}
