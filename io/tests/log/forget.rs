//! The fear: a segment goes while something in it is still needed, or comes back when it is not, or
//! takes room for ever.

use super::*;
use corq_io::log::{ReadError, Scan};

/// Every third record is live for ever; its first byte says so.
fn is_needed(body: &[u8]) -> bool {
    body.first().is_some_and(|byte| byte.is_multiple_of(3))
}

/// Writes about four segments; returns what was written.
fn four_segments(log: &mut Log<FaultyDisk>) -> Records {
    let mut written = Records::new();
    for turn in 0..100 {
        written.push(append(log, 2500 + usize::from(turn), turn));
        settle(log, u64::from(turn));
    }
    settle(log, 1000);
    written
}

/// Does one step of giving up the oldest segment; false if there is nothing to do now.
fn step(log: &mut Log<FaultyDisk>) -> bool {
    if log.oldest().is_none() {
        return false;
    }
    match log.scan() {
        Scan::Record(_, body) => {
            if is_needed(body) {
                let body = body.to_vec();
                log.append(body.len()).1.copy_from_slice(&body);
            }
            true
        }
        Scan::Reading => false,
        Scan::End => {
            log.drop_oldest();
            true
        }
        Scan::Failed(error) => panic!("{error}"),
    }
}

#[test]
fn a_segment_is_read_once_more_from_its_first_record_to_its_last() {
    for mode in [Mode::Written, Mode::Synced] {
        for faults in [Faults::default(), Faults { short_reads: 2, interrupts: 4, ..late(true) }] {
            let mut log = new_log(mode, faults);
            let written = four_segments(&mut log);
            let oldest = log.oldest().unwrap();
            let mut found = Records::new();
            loop {
                match log.scan() {
                    Scan::Record(position, body) => found.push((position, body.to_vec())),
                    Scan::Reading => assert!(finish_one(&mut log), "waits for nothing"),
                    Scan::End => break,
                    Scan::Failed(error) => panic!("{error}"),
                }
            }
            let expected = written.iter().filter(|(at, _)| *at < oldest.end).cloned();
            assert!(found == expected.collect::<Records>());
        }
    }
}

/// The end of the process and the loss of power, after every single step and disk operation.
#[test]
fn whenever_the_process_or_the_power_ends_what_is_needed_is_there() {
    for (mode, reserve_bytes) in
        [(Mode::Written, 0), (Mode::Written, 1 << 17), (Mode::Synced, 1 << 17)]
    {
        let config = LogConfig { reserve_bytes, ..config(mode) };
        let (mut log, ..) = open(&config, FaultyDisk::new(7, late(mode == Mode::Written)));
        let written = four_segments(&mut log);
        let needed: Vec<Vec<u8>> =
            written.iter().map(|(_, body)| body.clone()).filter(|body| is_needed(body)).collect();
        let (mut ends, mut now_ms) = (0, 2000);
        let mut look = |log: &mut Log<FaultyDisk>| {
            for power in [false, true] {
                let mut disk = log.disk_mut().copy();
                if power {
                    disk.power_loss();
                }
                let (_, _, found) = open(&config, disk);
                let has = |body: &Vec<u8>| found.iter().any(|(_, other)| other == body);
                assert!(needed.iter().all(has), "end {ends}, power lost: {power}");
                ends += 1;
            }
        };
        while log.counters().dropped < 3 {
            let went_on = step(&mut log);
            if !went_on {
                now_ms += 5;
                log.flush(now_ms).unwrap();
                look(&mut log);
                while finish_one(&mut log) {
                    look(&mut log);
                    log.flush(now_ms).unwrap();
                }
            }
            look(&mut log);
        }
        assert!(ends > 140, "only {ends}");
    }
}

/// Goes on until nothing old is left.
fn forget_all_but_the_newest(log: &mut Log<FaultyDisk>, now_ms: u64) {
    loop {
        while step(log) {}
        settle(log, now_ms);
        if log.oldest().is_none() {
            return;
        }
    }
}

#[test]
fn files_are_recycled_and_their_number_stays() {
    for mode in [Mode::Written, Mode::Synced] {
        let config = LogConfig { reserve_bytes: 1 << 16, ..config(mode) };
        let (mut log, ..) = open(&config, FaultyDisk::new(7, late(true)));
        let mut files = Vec::new();
        for turn in 0..400_u64 {
            append(&mut log, 3000, 1);
            settle(&mut log, turn * 20);
            forget_all_but_the_newest(&mut log, turn * 20);
            files.push(log.disk_mut().files());
        }
        let most = files.iter().max().copied().unwrap();
        assert!(most <= 4, "{most} files");
        let made = log.counters();
        assert!(made.segments > 15 && made.recycled + 4 >= made.segments, "{made:?}");
        assert_eq!(made.disk_bytes, (log.disk_mut().files() as u64) << 16);
        assert!(log.used_bytes() <= 2 << 16);
        // Old data behind the end of a recycled file is no torn tail.
        let disk = log.into_disk();
        let (log, recovery, _) = open(&config, disk);
        assert_eq!(recovery.dropped, None);
        assert!(log.counters().recycled == 1, "the start has taken one that was set aside");
    }
}

#[test]
fn more_room_than_is_wanted_goes_back_to_the_file_system() {
    let config = LogConfig { reserve_bytes: 1 << 16, ..config(Mode::Written) };
    let (mut log, ..) = open(&config, FaultyDisk::new(7, Faults::default()));
    for turn in 0..300 {
        append(&mut log, 3000, 1);
        settle(&mut log, turn);
    }
    assert!(log.disk_mut().files() > 14);
    forget_all_but_the_newest(&mut log, 1000);
    let files = log.disk_mut().files();
    assert!(files <= 4, "{files} files");
    assert_eq!(log.counters().disk_bytes, (files as u64) << 16);
}

#[test]
fn a_segment_waits_for_those_who_read_from_it() {
    let mut log = new_log(Mode::Written, late(true));
    let written = four_segments(&mut log);
    let oldest = log.oldest().unwrap();
    // Three reads, of which two can be under way: the third waits for its turn.
    for (token, (position, body)) in written.iter().enumerate().take(3) {
        assert!(*position < oldest.end);
        log.read_cold(*position, body.len(), token as u64);
    }
    log.drop_oldest();
    let mut read = 0;
    while read < 3 {
        assert!(finish_one(&mut log), "waits for nothing");
        log.flush(5000).unwrap();
        while let Some(done) = log.take_read() {
            assert_eq!(done.body, Ok(&written[done.token as usize].1[..]));
            read += 1;
        }
    }
    settle(&mut log, 6000);
    assert_eq!(log.counters().dropped, 1);
}

#[test]
fn what_was_forgotten_cannot_be_read() {
    let mut log = new_log(Mode::Written, Faults::default());
    let written = four_segments(&mut log);
    log.drop_oldest();
    settle(&mut log, 2000);
    let (position, body) = &written[0];
    log.read_cold(*position, body.len(), 1);
    let done = log.take_read().unwrap();
    assert!(matches!(done.body, Err(ReadError::Io { .. } | ReadError::Damaged(_))), "{done:?}");
}

#[test]
fn a_damaged_segment_is_told_of_and_stays() {
    let mut log = new_log(Mode::Written, Faults::default());
    let written = four_segments(&mut log);
    let oldest = log.oldest().unwrap();
    let (position, _) = written[5];
    assert_eq!(oldest.start, Position(0));
    log.disk_mut().tamper(0, |bytes| bytes[(position.0 & 0xffff) as usize + 20] ^= 4);
    let mut found = 0;
    let error = loop {
        match log.scan() {
            Scan::Record(..) => found += 1,
            Scan::Failed(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(found, 5, "what lies before is intact");
    assert_eq!(error.file, "0000000000000000.seg");
    let offset = position.0 - 64;
    assert!((error.offset, error.reason.contains("checksum")) == (offset, true), "{error}");
    for _ in 0..3 {
        let Scan::Failed(again) = log.scan() else { panic!("it goes on behind it") };
        assert_eq!(again, error, "the same place is tried again");
    }
    append(&mut log, 10, 1);
    log.flush(5000).unwrap();
    assert_eq!(log.released(), log.head(), "all else goes on");
}

#[test]
fn a_bound_counts_as_a_full_disk_until_something_goes() {
    let config = LogConfig { bytes_max: 5 << 16, reserve_bytes: 1 << 16, ..config(Mode::Written) };
    let (mut log, ..) = open(&config, FaultyDisk::new(7, Faults::default()));
    let mut turn = 0;
    while log.make_room(1 << 16) {
        append(&mut log, 3000, 1);
        turn += 20;
        settle(&mut log, turn);
        assert!(log.counters().disk_bytes <= 5 << 16);
    }
    assert!(log.lack().is_some());
    // Room that has been made ready is there for appends that do not ask.
    for _ in 0..15 {
        append(&mut log, 3000, 1);
        settle(&mut log, turn);
        assert_eq!(log.released(), log.head());
    }
    log.drop_oldest();
    settle(&mut log, turn + 2000);
    assert!(log.make_room(1 << 16) && log.lack().is_none());
}

#[test]
fn what_was_set_aside_is_there_for_a_start_on_a_full_disk() {
    let config = LogConfig { reserve_bytes: 1 << 17, ..config(Mode::Written) };
    let (mut log, ..) = open(&config, FaultyDisk::new(7, Faults::default()));
    let written = vec![append(&mut log, 3000, 1)];
    settle(&mut log, 0);
    let before = log.segments();
    assert!(before.1 > 0);
    let mut disk = log.into_disk();
    disk.faults = Faults { fail_create: true, errno: libc::ENOSPC, ..Faults::default() };
    let (log, _, found) = open(&config, disk);
    assert!(found == written);
    assert_eq!(log.segments(), before, "and none of it is used up by that");
}

/// A log that has been round its files more than once: the oldest segments are gone, the others lie in
/// files that were others before, and the last of them is not full.
fn well_used(mode: Mode) -> (LogConfig, FaultyDisk, Records) {
    let segment_bytes = if mode == Mode::Written { 1 << 13 } else { 1 << 15 };
    let config = LogConfig {
        segment_bytes,
        record_bytes_max: 1000,
        reserve_bytes: segment_bytes,
        ..config(mode)
    };
    let (mut log, ..) = open(&config, FaultyDisk::new(7, Faults::default()));
    let mut turn = 0;
    while log.counters().recycled < 4 || turn % 7 != 0 {
        append(&mut log, 150, 1);
        log.flush(turn * 30).unwrap();
        if log.segments().0 > 3 {
            log.drop_oldest();
        }
        turn += 1;
    }
    settle(&mut log, turn * 30);
    settle(&mut log, turn * 30 + 2000);
    for byte in 0..4 {
        append(&mut log, 20, byte);
        log.flush(turn * 30 + 2001).unwrap();
    }
    let disk = log.into_disk();
    let (_, recovery, records) = open(&config, disk.copy());
    assert!(recovery.dropped.is_none() && disk.segments().len() >= 3);
    (config, disk, records)
}

#[test]
fn every_changed_byte_of_recycled_files_is_found_or_harmless() {
    for mode in [Mode::Written, Mode::Synced] {
        let (config, disk, records) = well_used(mode);
        let synced = records.len() - 4;
        let mut refused = 0;
        for segment in disk.segments() {
            let bytes = disk.content(segment).len();
            let step = if mode == Mode::Written { 1 } else { 17 };
            for at in (0..80).chain((4096..bytes).step_by(step)) {
                let mut disk = disk.copy();
                disk.tamper(segment, |bytes| bytes[at] ^= 0x10);
                match try_open(&config, disk) {
                    Ok((_, _, found)) => {
                        assert!(records.starts_with(&found), "{segment}, byte {at}: wrong data");
                        assert!(
                            found.len() >= synced,
                            "{segment}, byte {at}: what was synced is gone"
                        );
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains(".seg"), "{segment}, byte {at}: {text}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 100, "only {refused} were refused");
    }
}

#[test]
fn missing_doubled_and_swapped_segments_are_refused_by_name() {
    let (config, disk, _) = well_used(Mode::Written);
    let all = disk.segments();
    let content = |segment: u64| disk.content(segment).to_vec();
    for (place, &segment) in all.iter().enumerate() {
        let mut without = disk.copy();
        corq_io::log::Disk::remove(&mut without, segment).unwrap();
        match try_open(&config, without) {
            // Nothing tells of the last one but itself.
            Ok(_) => assert_eq!(place + 1, all.len()),
            Err(error) => assert!(error.to_string().contains(".seg"), "{error}"),
        }
        let other = all[(place + 1) % all.len()];
        let mut doubled = disk.copy();
        doubled.tamper(segment, |bytes| *bytes = content(other));
        let outcome = try_open(&config, doubled).map(|(_, _, found)| found.len());
        assert!(outcome.is_err() || place + 1 == all.len(), "{segment} twice: {outcome:?}");
    }
    // A segment from before the oldest: it changes nothing, or is missed between.
    let mut extra = disk.copy();
    extra.tamper(all[0] - 1, |bytes| *bytes = content(all[0]));
    if let Err(error) = try_open(&config, extra) {
        assert!(error.to_string().contains(".seg"), "{error}");
    }
}

#[test]
fn a_read_that_fails_is_reported_and_changes_nothing_else() {
    let mut log = new_log(Mode::Written, Faults::default());
    let written = four_segments(&mut log);
    let (position, body) = &written[0];
    log.disk_mut().faults = Faults { fail_read: 1, errno: libc::EIO, ..Faults::default() };
    log.read_cold(*position, body.len(), 1);
    let failed = ReadError::Io { position: *position, errno: libc::EIO };
    assert_eq!(log.take_read().unwrap().body, Err(failed));
    log.read_cold(*position, body.len(), 2);
    assert_eq!(log.take_read().unwrap().body, Ok(&body[..]), "the next one is another matter");

    log.disk_mut().faults.fail_read = 1;
    let Scan::Failed(error) = log.scan() else { panic!("the segment was read") };
    assert_eq!((error.file.as_str(), error.offset), ("0000000000000000.seg", 4096));
    append(&mut log, 10, 1);
    log.flush(5000).unwrap();
    assert_eq!(log.released(), log.head());
}

/// Each write, sync and step of giving up a segment fails once: the log stops and says why, or goes on.
#[test]
fn any_failure_while_a_segment_goes_loses_nothing() {
    for mode in [Mode::Written, Mode::Synced] {
        for sync in [false, true] {
            let mut stopped = 0;
            for after in 1..25 {
                let config = LogConfig { reserve_bytes: 1 << 16, ..config(mode) };
                let (mut log, ..) = open(&config, FaultyDisk::new(7, Faults::default()));
                let written = four_segments(&mut log);
                let counter = if sync { (0, after) } else { (after, 0) };
                let (fail_write, fail_sync) = counter;
                log.disk_mut().faults =
                    Faults { fail_write, fail_sync, errno: libc::EIO, ..Faults::default() };
                let mut failed = None;
                for turn in 0..200 {
                    while step(&mut log) {}
                    if let Err(error) = log.flush(2000 + turn * 20) {
                        failed = Some(error);
                        break;
                    }
                }
                if let Some(error) = &failed {
                    stopped += 1;
                    assert_eq!((error.errno, log.failure().as_ref()), (libc::EIO, Some(error)));
                    assert!(log.flush(9000).is_err(), "it stays stopped");
                }
                let mut disk = log.into_disk();
                disk.faults = Faults::default();
                disk.power_loss();
                let (_, _, found) = open(&config, disk);
                let bodies: Vec<&Vec<u8>> = found.iter().map(|(_, body)| body).collect();
                let needed = written.iter().map(|(_, body)| body).filter(|body| is_needed(body));
                assert!(needed.into_iter().all(|body| bodies.contains(&body)), "{mode:?} {after}");
            }
            assert!(stopped > 0 || mode == Mode::Synced && sync, "{mode:?}, {sync}");
        }
    }
}

/// A disk that answers again is made use of: nothing is handed over twice, and nothing is left out.
#[test]
fn a_read_that_fails_for_a_while_ends_no_reclaim() {
    for mode in [Mode::Written, Mode::Synced] {
        for fail_in in 1..6 {
            let mut log = new_log(mode, Faults::default());
            let mut written = Records::new();
            for turn in 0..120_u8 {
                written.push(append(&mut log, 1500, turn));
                settle(&mut log, u64::from(turn) * 20);
            }
            let oldest = log.oldest().unwrap();
            log.disk_mut().faults =
                Faults { fail_read: fail_in, errno: libc::EIO, ..Faults::default() };
            let (mut found, mut failures) = (Records::new(), 0);
            loop {
                match log.scan() {
                    Scan::Record(position, body) => found.push((position, body.to_vec())),
                    Scan::Failed(_) => {
                        failures += 1;
                        // The read fails once more, and then no more.
                        let fail_read = u32::from(failures < 2);
                        log.disk_mut().faults.fail_read = fail_read;
                    }
                    Scan::Reading => panic!("everything is done at once"),
                    Scan::End => break,
                }
            }
            written.retain(|(at, _)| *at < oldest.end);
            assert!(found == written, "{} of {}", found.len(), written.len());
            assert!(failures == 2 || fail_in > 1, "{failures}");
        }
    }
}
