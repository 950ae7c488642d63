//! The fear: a sync fails, and what it was for counts as synced later. The kernel says so once, counts the pages as
//! clean, and shows them to every reader until the power goes: the next process finds all of them, and its
//! syncs bring none of them to the disk.

use super::*;

fn begun(mode: Mode) -> LogConfig {
    LogConfig { is_begun: true, ..config(mode) }
}

/// A log whose sync has failed, and all that was written to it.
fn failed(seed: u64, records: u8) -> (FaultyDisk, Records) {
    let (mut log, ..) = open(&config(Mode::Written), FaultyDisk::new(seed, Faults::default()));
    let mut written = Records::new();
    for byte in 0..records {
        written.push(append(&mut log, 700, byte));
        log.flush(u64::from(byte)).unwrap();
    }
    let faults = log.disk_mut().faults;
    log.disk_mut().faults = Faults { fail_sync: 1, errno: libc::EIO, ..faults };
    log.append(10).1.fill(1);
    log.require_sync();
    assert!(log.flush(1000).is_err() || log.flush(2000).is_err());
    let released = log.released();
    assert!(written.iter().all(|(at, _)| *at < released));
    let mut disk = log.into_disk();
    disk.kill();
    (disk, written)
}

#[test]
fn after_a_sync_that_failed_the_next_start_brings_to_the_disk_what_counts_as_synced() {
    for seed in 0..60 {
        let (disk, _) = failed(seed, 1 + (seed % 200) as u8);
        // On the same kernel.
        let (mut log, _, mut all) = open(&begun(Mode::Written), disk);
        for byte in 0..5 {
            all.push(append(&mut log, 300, byte));
            log.require_sync();
            settle(&mut log, u64::from(byte));
        }
        assert_eq!(log.released(), log.head());
        let mut disk = log.into_disk();
        disk.power_loss();
        match try_open(&begun(Mode::Written), disk) {
            Err(error) => panic!("seed {seed}: {error}"),
            Ok((.., found)) => {
                assert!(found == all, "seed {seed}: {} of {} are there", found.len(), all.len());
            }
        }
    }
}

#[test]
fn what_the_next_start_has_written_again_stays_for_all_starts_after_it() {
    for seed in 0..20 {
        let (disk, _) = failed(seed, 100);
        let (log, _, all) = open(&begun(Mode::Written), disk);
        drop(all);
        let (mut log, _, all) = open(&begun(Mode::Written), log.into_disk());
        append(&mut log, 10, 1);
        log.require_sync();
        settle(&mut log, 0);
        let mut disk = log.into_disk();
        disk.power_loss();
        let (.., found) = open(&begun(Mode::Written), disk);
        assert_eq!(found.len(), all.len() + 1, "seed {seed}");
    }
}

/// Of two syncs of a file only one reports that a page of it could not be written.
#[test]
fn no_two_syncs_of_one_file_are_under_way_at_once() {
    let mut tried = 0;
    for seed in 0..30 {
        let (mut log, ..) = open(&config(Mode::Written), FaultyDisk::new(seed, late(true)));
        for turn in 0..200_u64 {
            append(&mut log, 3000, turn as u8);
            if turn % 2 == 0 {
                log.require_sync();
            }
            log.flush(turn * 20).unwrap();
            let most = log.disk_mut().syncs_at_once();
            assert!(most <= 1, "seed {seed}, turn {turn}: {most} syncs of one file");
            for _ in 0..(turn + seed) % 3 {
                finish_one(&mut log);
                log.flush(turn * 20).unwrap();
            }
        }
        tried += log.counters().segments;
    }
    assert!(tried > 100, "{tried}");
}
