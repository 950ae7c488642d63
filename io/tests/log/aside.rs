//! The fear: a turn waits for the file system to make the next file; or a file that is made beside the turns is lost,
//! counted twice, or missed by those who cannot wait for it.

use super::files::{open_files, run_ops};
use super::*;
use corq_io::log::{DiskOpKind, FileDisk, Lack};

const SEGMENT: u64 = 1 << 16;

fn settings(mode: Mode) -> LogConfig {
    LogConfig { reserve_bytes: 2 * SEGMENT, ..config(mode) }
}

/// Only making files is late.
fn beside() -> Faults {
    Faults { late: true, inline_writes: true, ..Faults::default() }
}

#[test]
fn a_turn_makes_no_file_but_has_the_ring_make_it() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, ..) = open_files(&settings(mode), dir.path());
        for now_ms in 1..9 {
            let (before, files) = (log.segments().1, log.counters().disk_bytes);
            log.flush(now_ms).unwrap();
            assert_eq!((log.segments().1, log.counters().disk_bytes), (before, files), "{mode:?}");
            run_ops(&mut log);
        }
        assert!(log.has_room(2 * SEGMENT + SEGMENT / 2), "more than is wanted, so that none waits");
        assert!(!log.has_room(4 * SEGMENT));
        let spares = std::fs::read_dir(dir.path().join("shard-0003")).unwrap();
        let spares = spares.map(|entry| entry.unwrap()).filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().ends_with(".spare") && entry.metadata().unwrap().len() == SEGMENT
        });
        assert_eq!(spares.count() as u64, log.segments().1);
    }
}

#[test]
fn what_cannot_wait_for_a_file_takes_the_one_that_is_being_made() {
    let dir = tempfile::tempdir().unwrap();
    // Room for one file more than the one that is written.
    let config =
        LogConfig { bytes_max: 2 * SEGMENT, reserve_bytes: SEGMENT, ..config(Mode::Written) };
    let check = |log: &Log<FileDisk>, files: u64| {
        assert_eq!((log.segments().1, log.counters().disk_bytes), (files - 1, files * SEGMENT));
    };
    let (mut log, ..) = open_files(&config, dir.path());
    log.flush(1).unwrap();
    check(&log, 1);
    assert!(log.make_room(SEGMENT), "it is made, and the bound has room for it");
    check(&log, 2);
    assert!(!log.make_room(3 * SEGMENT), "but for no other");
    while run_ops(&mut log) > 0 {
        log.flush(1).unwrap();
    }
    check(&log, 2);
    assert_eq!(log.lack(), Some(Lack::Space));
}

#[test]
fn a_file_that_is_being_made_counts_towards_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        LogConfig { bytes_max: 2 * SEGMENT, reserve_bytes: SEGMENT, ..config(Mode::Written) };
    let (mut log, ..) = open_files(&config, dir.path());
    log.flush(1).unwrap();
    // The next segment is wanted, while its file is not there yet.
    log.append(36_000).1.fill(1);
    log.flush(2).unwrap();
    while run_ops(&mut log) > 0 {
        log.flush(3).unwrap();
    }
    let shard = std::fs::read_dir(dir.path().join("shard-0003")).unwrap();
    let bytes: u64 = shard.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!((bytes, log.counters().disk_bytes), (2 * SEGMENT, 2 * SEGMENT));
}

#[test]
fn a_file_that_found_no_room_is_lacking_only_where_it_is_wanted() {
    for (reserve_bytes, lack) in [(SEGMENT / 2, None), (2 * SEGMENT, Some(Lack::Space))] {
        let config = LogConfig { reserve_bytes, ..config(Mode::Written) };
        let faults = Faults { fail_create: true, errno: libc::ENOSPC, ..beside() };
        let mut log = open(&config, FaultyDisk::new(1, Faults::default())).0;
        log.disk_mut().faults = faults;
        log.flush(1).unwrap();
        assert_eq!((log.lack(), log.disk_mut().in_flight()), (None, 1), "it is not known yet");
        settle(&mut log, 1);
        assert_eq!(log.lack(), lack, "{reserve_bytes}");
        let files = log.disk_mut().files();
        settle(&mut log, 900);
        assert_eq!(log.disk_mut().in_flight(), 0, "not tried again at once");
        log.disk_mut().faults = beside();
        settle(&mut log, 2001);
        assert_eq!(log.lack(), None);
        assert!(log.disk_mut().files() > files && log.has_room(reserve_bytes + SEGMENT / 2));
    }
}

#[test]
fn an_end_waits_for_the_file_that_is_being_made() {
    let mut log = open(&settings(Mode::Written), FaultyDisk::new(1, beside())).0;
    log.flush(1).unwrap();
    assert_eq!(log.disk_mut().in_flight(), 1);
    let mut ends = 0;
    while !log.close(2).unwrap() {
        // The file, which was begun first, comes last.
        let newest = log.disk_mut().in_flight().checked_sub(1).expect("closing waits for nothing");
        let (tag, result) = log.disk_mut().finish(newest);
        log.complete(tag, result).unwrap();
        ends += 1;
    }
    assert!(ends > 1 && log.disk_mut().in_flight() == 0);
    assert_eq!(log.segments().1, 1, "and asks for no other");
}

#[test]
fn what_was_being_made_when_the_process_ended_is_no_room() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let (mut log, ..) = open_files(&settings(mode), dir.path());
        log.flush(1).unwrap();
        let mut ops = Vec::new();
        log.disk_mut().take_ops(&mut ops);
        let begun = ops.iter().find(|op| matches!(op.kind, DiskOpKind::Allocate { .. }));
        let DiskOpKind::Allocate { fd, .. } = begun.unwrap().kind else { panic!("it is one") };
        drop(log);
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
        assert!(link.to_string_lossy().ends_with(".spare"), "the ring still names {link:?}");
        let (log, ..) = open_files(&settings(mode), dir.path());
        assert_eq!(log.segments().1, 0);
        assert!(!link.exists());
    }
}
