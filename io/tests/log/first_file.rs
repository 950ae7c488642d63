//! A log without records. The fear: one that takes the disk for jobs that never come, or that finds out after it has
//! acknowledged one that there is no room.

use super::*;
use corq_io::log::{BlockingDisk, FileDisk, Lack};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FIRST: u64 = 1 << 19;
const SEGMENT: u64 = 1 << 22;

/// Files of four megabytes, of which the first takes half a megabyte until more is asked for.
fn lean(mode: Mode) -> LogConfig {
    LogConfig {
        segment_bytes: SEGMENT,
        first_bytes: FIRST,
        reserve_bytes: 2 * SEGMENT,
        ..config(mode)
    }
}

/// Bytes of the disk that the files of the shard take.
fn taken(path: &Path) -> u64 {
    let files = fs::read_dir(path.join("shard-0003")).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// Such a log on files, and how many records it had.
fn on_files(path: &Path, mode: Mode) -> (Log<FileDisk>, u64) {
    let disk = FileDisk::open(path, 3, mode).unwrap();
    let (log, recovery) =
        Log::open(&lean(mode), disk, |_, _: &[u8]| Ok::<_, Infallible>(())).unwrap();
    (log, recovery.records)
}

#[test]
fn a_log_without_records_takes_little_of_the_disk_until_room_is_asked_for() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        for start in 0..3 {
            let (mut log, records) = on_files(dir.path(), mode);
            (0..5).for_each(|turn| log.flush(turn).unwrap());
            assert_eq!((records, log.segments()), (0, (1, 0)), "start {start}");
            assert!(taken(dir.path()) < 2 * FIRST, "{}", taken(dir.path()));
            assert!(log.room_bytes() < FIRST && log.lack().is_none());
            assert!(log.filled_bytes() < FIRST, "what is not taken is not filled");
        }
        let (mut log, _) = on_files(dir.path(), mode);
        assert!(log.make_room(2 * SEGMENT));
        assert!(log.room_bytes() >= 2 * SEGMENT && taken(dir.path()) >= 3 * SEGMENT);
    }
}

#[test]
fn a_log_with_a_record_keeps_its_reserve_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = on_files(dir.path(), Mode::Written);
    assert!(log.make_room(2 * SEGMENT));
    log.append(100).1.fill(7);
    log.flush(10).unwrap();
    drop(log);
    let (mut log, records) = on_files(dir.path(), Mode::Written);
    log.flush(0).unwrap();
    assert!(records == 1 && log.room_bytes() >= 2 * SEGMENT);
}

#[test]
fn a_log_that_was_given_all_and_has_no_records_gives_it_back_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = on_files(dir.path(), Mode::Written);
    assert!(log.make_room(2 * SEGMENT));
    drop(log);
    assert!(taken(dir.path()) >= 3 * SEGMENT);
    let (log, _) = on_files(dir.path(), Mode::Written);
    assert!(taken(dir.path()) < 2 * FIRST && log.segments() == (1, 0));
}

#[test]
fn what_does_not_ask_for_room_has_some_and_brings_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    // Files that others make beside the turns are there at once.
    let disk = BlockingDisk::open(dir.path(), 3).unwrap();
    let replay = |_, _: &[u8]| Ok::<_, Infallible>(());
    let (mut log, _) = Log::open(&lean(Mode::Written), disk, replay).unwrap();
    for turn in 0..10 {
        log.append(30_000).1.fill(1);
        log.flush(turn).unwrap();
    }
    assert!(log.room_bytes() >= 2 * SEGMENT && taken(dir.path()) >= 3 * SEGMENT);
}

#[test]
fn a_disk_without_room_says_so_before_anything_is_appended_and_is_asked_again() {
    let mut log = open(&lean(Mode::Written), FaultyDisk::new(1, Faults::default())).0;
    log.disk_mut().faults.fail_create = true;
    log.disk_mut().faults.errno = libc::ENOSPC;
    log.flush(0).unwrap();
    assert_eq!(log.lack(), None, "nothing has asked");
    assert!(!log.make_room(SEGMENT / 2));
    assert_eq!(log.lack(), Some(Lack::Space));
    assert!(log.has_room(FIRST / 2) && !log.has_room(FIRST), "what was taken is there");
    log.flush(2000).unwrap();
    assert_eq!(log.lack(), Some(Lack::Space));
    log.disk_mut().faults.fail_create = false;
    log.flush(4000).unwrap();
    assert_eq!(log.lack(), None);
    assert!(log.has_room(2 * SEGMENT));
    append(&mut log, 100, 1);
    settle(&mut log, 5000);
}

#[test]
fn a_start_on_a_full_disk_goes_on_in_the_file_that_it_has_and_knows_how_little_that_is() {
    let mut log = open(&lean(Mode::Written), FaultyDisk::new(1, Faults::default())).0;
    settle(&mut log, 0);
    let mut disk = log.into_disk();
    disk.faults.fail_create = true;
    disk.faults.errno = libc::ENOSPC;
    let (mut log, recovery, _) = open(&lean(Mode::Written), disk);
    assert_eq!((recovery.records, log.room_bytes()), (0, 0));
    assert!(!log.make_room(1000));
    log.disk_mut().faults.fail_create = false;
    log.flush(2000).unwrap();
    assert!(log.has_room(2 * SEGMENT) && log.lack().is_none());
    let (_, written) = append(&mut log, 100, 9);
    settle(&mut log, 3000);
    let (_, _, found) = open(&lean(Mode::Written), log.into_disk());
    assert_eq!(found.into_iter().map(|(_, body)| body).collect::<Vec<_>>(), [written]);
}

#[test]
fn files_that_bound_the_log_bound_its_first_one_as_well() {
    let config = LogConfig { bytes_max: SEGMENT / 2, ..lean(Mode::Written) };
    let mut log = open(&config, FaultyDisk::new(1, Faults::default())).0;
    assert!(!log.make_room(FIRST) && log.lack() == Some(Lack::Space));
}
