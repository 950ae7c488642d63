//! The fear: a start reads something that was never released as if it were, loses something that
//! was, takes damage for a torn tail, or panics.

use super::*;
use OpenError::Damaged;

/// Three synced blocks, a note that says so, and three blocks more. Small enough to try every byte.
fn small(mode: Mode) -> LogConfig {
    let segment_bytes = if mode == Mode::Written { 1 << 13 } else { 1 << 16 };
    LogConfig { segment_bytes, record_bytes_max: 1000, ..config(mode) }
}

struct Sample {
    disk: FaultyDisk,
    records: Records,
    /// Ends of the blocks with records.
    ends: Vec<u64>,
}

fn sample(mode: Mode) -> Sample {
    let (mut log, ..) = open(&small(mode), FaultyDisk::new(1, Faults::default()));
    let mut records = Records::new();
    let mut ends = Vec::new();
    for turn in 0..6 {
        if turn == 3 {
            settle(&mut log, 100);
            settle(&mut log, 5000);
            assert_eq!(log.counters().notes, 1);
        }
        records.push(append(&mut log, 20 + usize::from(turn), turn + 1));
        records.push(append(&mut log, usize::from(turn % 2) * 30, turn + 101));
        log.flush(if turn < 3 { 0 } else { 5000 }).unwrap();
        ends.push(log.head().0);
    }
    Sample { disk: log.into_disk(), records, ends }
}

#[test]
fn a_log_comes_back_as_it_was_written() {
    for mode in [Mode::Written, Mode::Synced] {
        let mut log = new_log(mode, Faults::default());
        let mut written = Records::new();
        for turn in 0..100 {
            for _ in 0..turn % 5 {
                written.push(append(&mut log, 37 * usize::from(turn), turn));
            }
            log.flush(u64::from(turn)).unwrap();
        }
        assert!(log.counters().segments > 4);
        let mut disk = log.into_disk();
        for _ in 0..3 {
            let (again, recovery, found) = open(&config(mode), disk);
            assert!(found == written);
            assert_eq!((recovery.dropped, recovery.clean), (None, false));
            disk = again.into_disk();
        }
    }
}

#[test]
fn every_cut_of_the_last_block_leaves_exactly_the_earlier_ones() {
    for mode in [Mode::Written, Mode::Synced] {
        let sample = sample(mode);
        let (start, end) = (sample.ends[4] as usize, sample.ends[5] as usize);
        let body_end = sample.records[11].0.0 as usize + RECORD_HEADER_BYTES + 30;
        let bytes = (start..end).filter(|&at| at < body_end + 9 || at % 61 == 0);
        for cut in bytes {
            let mut short = sample.disk.copy();
            short.tamper(0, |bytes| bytes.truncate(cut));
            let error = try_open(&small(mode), short).unwrap_err();
            let Damaged { offset, .. } = &error else { panic!("cut at {cut}: {error}") };
            assert_eq!(*offset, cut as u64, "only a start makes a file shorter: {error}");
            for fill in 0..2 {
                let mut disk = sample.disk.copy();
                disk.tamper(0, |bytes| match fill {
                    0 => bytes[cut..].fill(0),
                    _ => bytes[cut..end].fill(0xa5),
                });
                let (_, recovery, found) = open(&small(mode), disk);
                let whole = cut >= body_end;
                let expected = if whole { &sample.records[..] } else { &sample.records[..10] };
                assert!(found == expected, "{mode:?}: cut at {cut}, fill {fill}");
                let torn = !whole && (cut > start || fill == 1);
                assert_eq!(recovery.dropped.is_some(), torn, "cut at {cut}, fill {fill}");
                assert!(recovery.dropped.is_none_or(|d| d.offset == start as u64));
            }
        }
    }
}

#[test]
fn every_changed_byte_is_a_torn_tail_or_damage_and_never_wrong_data() {
    for mode in [Mode::Written, Mode::Synced] {
        let sample = sample(mode);
        // In `synced` mode every header says that the blocks before it are synced, and most bytes
        // are padding.
        let synced = if mode == Mode::Written { sample.ends[2] } else { sample.ends[4] };
        let padding = |at: usize| mode == Mode::Synced && at % 4096 > 200;
        let mut refused = 0;
        for at in (0..64).chain(4096..sample.ends[5] as usize) {
            if padding(at) && at % 97 != 0 {
                continue;
            }
            for flip in [1, 0x80, 0xff] {
                let mut disk = sample.disk.copy();
                disk.tamper(0, |bytes| bytes[at] ^= flip);
                match try_open(&small(mode), disk) {
                    Ok((_, _, found)) => {
                        assert!(sample.records.starts_with(&found), "byte {at}: wrong data");
                        assert!(found.len() >= 6, "byte {at}: synced records are gone");
                    }
                    Err(OpenError::Damaged { file, offset, .. }) => {
                        refused += 1;
                        assert_eq!(file, "0000000000000000.seg");
                        assert!(offset <= at as u64 && (at as u64) < synced, "byte {at}");
                    }
                    Err(error) => panic!("byte {at}: {error}"),
                }
            }
        }
        assert!(refused > 100, "damage before the synced position must be refused");
    }
}

#[test]
fn random_files_never_panic() {
    let mut state = 7_u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let sample = sample(Mode::Written);
    for _ in 0..3000 {
        let mut disk = sample.disk.copy();
        for _ in 0..=random() % 4 {
            let (at, length) = (random() as usize % 8192, random() as usize % 300);
            let kind = random() % 3;
            disk.tamper(0, |bytes| {
                let end = (at + length).min(bytes.len());
                match kind {
                    0 if end > at => bytes.copy_within(at..end, (end - at).min(at)),
                    0 => {}
                    1 => bytes[at.min(end)..end].fill_with(|| random() as u8),
                    _ => bytes.truncate(at),
                }
            });
        }
        if let Ok((_, _, found)) = try_open(&small(Mode::Written), disk) {
            assert!(sample.records.starts_with(&found));
        }
    }
}

#[test]
fn blocks_that_were_dropped_never_come_back() {
    // Block 4 is torn; 5 and 6 behind it are intact, and dropped with it.
    let sample = sample(Mode::Written);
    let torn = sample.ends[2] as usize + 64;
    let mut disk = sample.disk.copy();
    let good = disk.content(0).to_vec();
    disk.tamper(0, |bytes| bytes[torn + 70] ^= 1);
    let (mut log, recovery, found) = open(&small(Mode::Written), disk);
    assert!(found == sample.records[..6]);
    let dropped = recovery.dropped.unwrap();
    assert_eq!((dropped.offset, dropped.bytes > 128), (torn as u64, true));
    // Not after more was written, ...
    let after = append(&mut log, 10, 200);
    log.flush(0).unwrap();
    let mut expected = sample.records[..6].to_vec();
    expected.push(after);
    let (mut log, _, found) = open(&small(Mode::Written), log.into_disk());
    assert!(found == expected);
    // ... nor if the file system brings the old bytes back behind the end.
    log.disk_mut().tamper(0, |bytes| *bytes = good);
    match try_open(&small(Mode::Written), log.into_disk()) {
        Ok((_, _, found)) => assert!(found == expected),
        Err(Damaged { .. } | OpenError::MissingSegment { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_a_recycled_segment_held_before_is_never_read() {
    let faults = Faults { stale_segments: true, ..Faults::default() };
    let mut log = new_log(Mode::Written, faults);
    let mut written = Records::new();
    // Equal blocks in every segment: the stale ones lie exactly where new ones would.
    while log.counters().segments < 5 {
        written.push(append(&mut log, 1000, 9));
        log.flush(0).unwrap();
    }
    written.push(append(&mut log, 1000, 9));
    log.flush(0).unwrap();
    let (_, recovery, found) = open(&config(Mode::Written), log.into_disk());
    assert!(found == written);
    assert_eq!(recovery.records, written.len() as u64);
}

#[test]
fn a_missing_segment_is_refused() {
    let mut log = new_log(Mode::Written, Faults::default());
    while log.counters().segments < 5 {
        append(&mut log, 1000, 9);
        log.flush(0).unwrap();
    }
    let mut disk = log.into_disk();
    let segments = disk.segments();
    assert_eq!(segments, [0, 1, 2, 3, 4]);
    for missing in 0..3 {
        let mut disk = disk.copy();
        corq_io::log::Disk::remove(&mut disk, missing).unwrap();
        match try_open(&config(Mode::Written), disk) {
            Err(OpenError::MissingSegment { file }) => {
                assert_eq!(file, format!("{missing:016x}.seg"));
            }
            other => panic!("{missing}: {other:?}"),
        }
    }
    disk.tamper(0, Vec::clear);
    let error = try_open(&config(Mode::Written), disk).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

#[test]
fn a_segment_of_another_shard_size_version_or_directory_is_refused() {
    let sample = sample(Mode::Written);
    let other = LogConfig { shard: 4, ..small(Mode::Written) };
    let error = try_open(&other, sample.disk.copy()).unwrap_err();
    assert!(matches!(error, OpenError::WrongShard { found: 3, expected: 4, .. }), "{error}");
    let other = LogConfig { segment_bytes: 1 << 14, ..small(Mode::Written) };
    let error = try_open(&other, sample.disk.copy()).unwrap_err();
    assert!(matches!(error, OpenError::SegmentBytes { found: 8192, .. }), "{error}");
    let other = LogConfig { log_id: 7, ..small(Mode::Written) };
    let error = try_open(&other, sample.disk.copy()).unwrap_err();
    assert!(error.to_string().contains("another data directory"), "{error}");
    for header in [0, 4096] {
        let mut disk = sample.disk.copy();
        disk.tamper(0, |bytes| {
            bytes[header + 4] = 3;
            let crc = crc32c::crc32c(&bytes[header..header + 60]);
            bytes[header + 60..header + 64].copy_from_slice(&crc.to_le_bytes());
        });
        let error = try_open(&small(Mode::Written), disk).unwrap_err();
        if header == 0 {
            assert!(matches!(error, OpenError::Version { found: 3, .. }), "{error}");
        } else {
            // The segment says its version: another one in a block is no block of it.
            assert!(matches!(error, Damaged { offset: 4096, .. }), "{error}");
        }
    }
}

#[test]
fn a_record_that_its_reader_refuses_stops_the_start() {
    let sample = sample(Mode::Written);
    let result = Log::open(&small(Mode::Written), sample.disk.copy(), |position, _| {
        if position == sample.records[4].0 { Err("kind 9 is unknown") } else { Ok(()) }
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("kind 9 is unknown"), "{error}");
}

#[test]
fn a_clean_end_needs_no_recovery_and_survives_the_power() {
    for mode in [Mode::Written, Mode::Synced] {
        let mut log = new_log(mode, late(true));
        let mut written = Records::new();
        for turn in 0..30 {
            written.push(append(&mut log, 3000, turn));
            log.flush(u64::from(turn)).unwrap();
        }
        close(&mut log, 40);
        assert_eq!((log.synced() <= log.head(), log.disk_mut().in_flight()), (true, 0));
        let mut disk = log.into_disk();
        let (_, recovery, found) = open(&config(mode), disk.copy());
        assert!(found == written);
        assert_eq!((recovery.clean, recovery.dropped), (true, None));
        disk.power_loss();
        let (_, _, found) = open(&config(mode), disk);
        assert!(found == written);
    }
}

#[test]
fn after_a_note_damage_of_the_last_record_is_no_torn_tail() {
    let mut log = new_log(Mode::Written, Faults::default());
    let (position, _) = append(&mut log, 100, 1);
    settle(&mut log, 0);
    settle(&mut log, 50);
    let mut early = log.disk_mut().copy();
    settle(&mut log, 2000);
    let mut disk = log.into_disk();
    disk.tamper(0, |bytes| bytes[position.0 as usize + 20] ^= 1);
    let error = try_open(&config(Mode::Written), disk).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { offset: 4096, .. }), "{error}");
    early.tamper(0, |bytes| bytes[position.0 as usize + 20] ^= 1);
    let (_, recovery, _) = open(&config(Mode::Written), early);
    assert!(recovery.dropped.is_some());
}

#[test]
fn idle_restarts_do_not_pile_up_segments() {
    let mut log = new_log(Mode::Written, Faults::default());
    let written = vec![append(&mut log, 100, 1)];
    close(&mut log, 0);
    for _ in 0..20 {
        let (again, recovery, found) = open(&config(Mode::Written), log.into_disk());
        assert!(found == written);
        assert_eq!(recovery.segments, 1);
        log = again;
        assert_eq!(log.disk_mut().segments().len(), 2);
        let kept = log.disk_mut().content(0).len();
        assert!(kept < 8192, "the rest of a left segment goes back: {kept}");
        let disk_bytes = log.counters().disk_bytes;
        assert!(disk_bytes < 2 << 16, "{disk_bytes}");
        close(&mut log, 0);
    }
}

#[test]
fn the_mode_may_change_between_starts() {
    let mut disk = FaultyDisk::new(1, late(true));
    let mut written = Records::new();
    for turn in 0..8 {
        let mode = if turn % 2 == 0 { Mode::Written } else { Mode::Synced };
        let (mut log, _, found) = open(&config(mode), disk);
        assert!(found == written);
        for byte in 0..turn {
            written.push(append(&mut log, 300, byte));
            settle(&mut log, 0);
        }
        disk = log.into_disk();
    }
}

#[test]
fn power_loss_leaves_what_was_synced_and_nothing_torn() {
    for mode in [Mode::Written, Mode::Synced] {
        for seed in 0..200 {
            let (mut log, ..) = open(&config(mode), FaultyDisk::new(seed, late(true)));
            let mut written = Records::new();
            for turn in 0..20 {
                written.push(append(&mut log, 700, turn));
                log.flush(u64::from(turn)).unwrap();
                if turn % 3 == 0 {
                    finish_one(&mut log);
                }
            }
            let synced = log.synced();
            let mut disk = log.into_disk();
            disk.power_loss();
            let (_, _, found) = open(&config(mode), disk);
            let safe = written.iter().filter(|(position, _)| *position < synced).count();
            assert!(written.starts_with(&found) && found.len() >= safe, "seed {seed}");
        }
    }
}

#[test]
fn a_block_of_another_history_is_no_continuation() {
    // Two logs of the same shape: every block of one has its twin at the same place in the other.
    let mut logs = [1, 2].map(|byte| {
        let mut log = new_log(Mode::Written, Faults::default());
        let first = append(&mut log, 100, byte);
        log.flush(0).unwrap();
        let second = log.head().0 as usize;
        append(&mut log, 100, 3);
        log.flush(0).unwrap();
        (log, first, second)
    });
    let (ref mut other, _, second) = logs[1];
    let twin = other.disk_mut().content(0)[second..].to_vec();
    let [(mut log, first, _), _] = logs;
    log.disk_mut().tamper(0, |bytes| bytes[second..].copy_from_slice(&twin));
    let (_, recovery, found) = open(&config(Mode::Written), log.into_disk());
    assert!(found == [first]);
    assert!(recovery.dropped.unwrap().reason.contains("does not continue"));
}
