//! The fear: a look that misses damage, stops at the first, or takes a healthy log for a broken one; and
//! a repair that loses what was whole, or leaves a log that a start does not take.

use super::*;
use corq_io::log::{Damage, Disk, FileDisk, Inspection, Seen, Subject, inspect, repair};
use std::fs;
use std::ops::ControlFlow::Continue;
use std::path::PathBuf;
use tempfile::TempDir;

const LOG_ID: u64 = 77;

fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 1 << 13,
        record_bytes_max: 1000,
        log_id: LOG_ID,
        ..config(Mode::Written)
    }
}

/// A directory with a log of several small segments, all of it synced but the last two turns.
struct Bed {
    dir: TempDir,
    records: Records,
}

impl Bed {
    fn new() -> Self {
        let (mut log, ..) = open(&small(), FaultyDisk::new(1, Faults::default()));
        let mut records = Records::new();
        for turn in 0..62_u8 {
            records.push(append(&mut log, 150 + usize::from(turn), turn));
            records.push(append(&mut log, usize::from(turn % 3) * 20, turn + 100));
            if turn < 60 {
                settle(&mut log, u64::from(turn) * 100);
            }
            if turn == 59 {
                settle(&mut log, 20_000);
            }
        }
        log.flush(20_000).unwrap();
        let bed = Self { dir: tempfile::tempdir().unwrap(), records };
        fs::create_dir(bed.shard()).unwrap();
        let mut disk = log.into_disk();
        for name in disk.list().unwrap() {
            let number = u64::from_str_radix(name.trim_end_matches(".seg"), 16).unwrap();
            let mut bytes = vec![0; disk.len(number).unwrap() as usize];
            disk.read_at(number, 0, &mut bytes).unwrap();
            fs::write(bed.shard().join(name), bytes).unwrap();
        }
        assert!(bed.files().len() > 4);
        bed
    }

    fn copy(&self) -> Self {
        let bed = Self { dir: tempfile::tempdir().unwrap(), records: self.records.clone() };
        fs::create_dir(bed.shard()).unwrap();
        for file in self.files() {
            fs::copy(self.shard().join(&file), bed.shard().join(&file)).unwrap();
        }
        bed
    }

    fn shard(&self) -> PathBuf {
        self.dir.path().join("shard-0003")
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.shard()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn tamper(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.shard().join(file);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    fn look(&self) -> (Inspection, Records) {
        let mut found = Records::new();
        let directory = self.shard();
        let subject = Subject {
            directory: &directory,
            shard: 3,
            log_id: LOG_ID,
            is_begun: true,
            until: None,
        };
        let inspection = inspect(subject, |seen| {
            if let Seen::Record { position, body, .. } = seen {
                found.push((position, body.to_vec()));
            }
            Continue(())
        });
        let inspection = inspection.unwrap();
        assert_eq!(inspection.records(), found.len() as u64);
        (inspection, found)
    }

    fn open(&self) -> Result<(Recovery, Records), OpenError> {
        let disk = FileDisk::open(self.dir.path(), 3, Mode::Written).unwrap();
        let mut found = Records::new();
        let (_, recovery) = Log::open(&small(), disk, |position, body| {
            found.push((position, body.to_vec()));
            Ok::<_, Infallible>(())
        })?;
        Ok((recovery, found))
    }

    /// Mends until nothing is wrong any more.
    fn repair(&self) {
        for round in 0.. {
            let (inspection, _) = self.look();
            if inspection.damages.is_empty() {
                return;
            }
            assert!(round < 4, "still wrong: {:?}", inspection.damages);
            let directory = self.shard();
            let subject = Subject {
                directory: &directory,
                shard: 3,
                log_id: LOG_ID,
                is_begun: true,
                until: None,
            };
            let done = repair(subject, &inspection).unwrap();
            assert!(!done.is_empty());
        }
    }

    /// Mends, and starts: all that was seen before, and nothing else, is there.
    fn mends_to(&self, expected: &Records, what: &str) {
        self.repair();
        let (_, seen) = self.look();
        assert!(seen == *expected, "{what}: a repair changes nothing that is whole");
        let (_, found) = self.open().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(found == *expected, "{what}: a start finds what the look found");
    }
}

#[test]
fn a_healthy_log_is_found_healthy_and_seen_as_a_start_sees_it() {
    let bed = Bed::new();
    let (inspection, found) = bed.look();
    assert!(found == bed.records);
    assert!(inspection.damages.is_empty() && inspection.tail.is_none(), "{inspection:?}");
    // The last file is a segment that has been made and not been written to.
    assert_eq!(inspection.segments.len() + 1, bed.files().len());
    let (recovery, again) = bed.open().unwrap();
    assert!(again == found);
    let counted = (inspection.records(), inspection.blocks(), inspection.end, inspection.clean);
    assert_eq!(counted, (recovery.records, recovery.blocks, recovery.end, recovery.clean));
}

#[test]
fn every_changed_byte_is_damage_or_a_torn_tail_and_all_other_blocks_are_seen() {
    let bed = Bed::new();
    let (healthy, _) = bed.look();
    let (mut damaged, mut torn) = (0, 0);
    for segment in &healthy.segments {
        let start = segment.number << 13;
        let used = (segment.end.0 - start) as usize;
        for at in (0..64).step_by(7).chain((4096..used).step_by(131)) {
            let bed = bed.copy();
            bed.tamper(&segment.file(), |bytes| bytes[at] ^= 0x10);
            let what = format!("byte {at} of {}", segment.file());
            let (inspection, seen) = bed.look();
            let address = start + at as u64;
            if let Some(damage) = inspection.damages.first() {
                damaged += 1;
                assert_eq!(damage.file, segment.file(), "{what}");
                assert!(damage.offset <= at as u64, "{what}: {damage:?}");
                assert!(matches!(bed.copy().open(), Err(OpenError::Damaged { .. })), "{what}");
                let lost = bed.records.iter().filter(|record| !seen.contains(record));
                let lost: Vec<u64> = lost.map(|(position, _)| position.0).collect();
                assert!(lost.len() <= 2, "{what}: {} records are lost", lost.len());
                assert!(lost.iter().all(|lost| lost.abs_diff(address) < 500), "{what}");
                assert!(lost.iter().all(|&lost| inspection.is_lost(Position(lost))), "{what}");
                bed.mends_to(&seen, &what);
            } else {
                // A start takes it, and sees the same.
                torn += usize::from(inspection.tail.is_some());
                let (recovery, found) =
                    bed.open().unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(found == seen, "{what}");
                assert_eq!(recovery.dropped, inspection.tail, "{what}");
            }
        }
    }
    assert!(damaged > 100 && torn > 0, "{damaged} damaged, {torn} torn");
}

#[test]
fn whole_files_that_are_lost_or_overwritten_are_named_and_bridged() {
    let bed = Bed::new();
    let files = bed.files();
    for (place, file) in files.iter().enumerate() {
        for how in ["missing", "zeros", "short", "noise", "no header"] {
            let bed = bed.copy();
            let what = format!("{file}: {how}");
            match how {
                "missing" => fs::remove_file(bed.shard().join(file)).unwrap(),
                "zeros" => bed.tamper(file, |bytes| bytes.fill(0)),
                "short" => bed.tamper(file, |bytes| bytes.truncate(5000)),
                "noise" => bed.tamper(file, |bytes| bytes.fill(0x5a)),
                _ => bed.tamper(file, |bytes| bytes[..4096].fill(0)),
            }
            let (inspection, seen) = bed.look();
            assert!(!inspection.damages.is_empty(), "{what}: not seen");
            assert!(bed.copy().open().is_err(), "{what}: a start sees it, too");
            let named = inspection.damages.iter().any(|damage| damage.file == *file);
            assert!(named, "{what}: {:?}", inspection.damages);
            let whole = seen.len() == bed.records.len();
            // The last one has been made and not been written to.
            let empty = place + 1 == files.len();
            assert_eq!(whole, empty || how == "no header", "{what}: {} are seen", seen.len());
            bed.mends_to(&seen, &what);
        }
    }
}

#[test]
fn several_files_next_to_each_other_are_bridged_as_well() {
    let bed = Bed::new();
    let files = bed.files();
    for (how, lost) in [("removed", 0..2), ("removed", 1..3), ("removed", 1..4), ("filled", 1..4)] {
        let bed = bed.copy();
        for file in &files[lost.clone()] {
            match how {
                "removed" => fs::remove_file(bed.shard().join(file)).unwrap(),
                _ => bed.tamper(file, |bytes| bytes[4096..].fill(0xee)),
            }
        }
        let what = format!("{lost:?} {how}");
        let (inspection, seen) = bed.look();
        assert!(!inspection.damages.is_empty(), "{what}");
        assert!(!seen.is_empty() && seen.len() < bed.records.len(), "{what}");
        bed.mends_to(&seen, &what);
    }
}

#[test]
fn what_is_not_of_this_log_is_named_and_left_alone() {
    let bed = Bed::new();
    let files = bed.files();
    fs::write(bed.shard().join("notes.seg"), b"mine").unwrap();
    let (inspection, seen) = bed.look();
    assert_eq!(inspection.damages[0].file, "notes.seg");
    assert!(seen == bed.records);
    let directory = bed.shard();
    for (shard, log_id, word) in [(4, LOG_ID, "shard 3"), (3, 5, "another data directory")] {
        let subject = Subject { directory: &directory, shard, log_id, is_begun: true, until: None };
        let inspection = inspect(subject, |_| panic!("nothing of it is ours")).unwrap();
        let told = inspection.damages.iter().filter(|damage| damage.reason.contains(word));
        assert_eq!(told.count(), files.len(), "{:?}", inspection.damages);
        repair(subject, &inspection).unwrap_err();
    }
    assert_eq!(bed.files().len(), files.len() + 1);
}

#[test]
fn a_look_can_end_at_any_block() {
    let bed = Bed::new();
    let directory = bed.shard();
    let subject =
        Subject { directory: &directory, shard: 3, log_id: LOG_ID, is_begun: true, until: None };
    let (whole, _) = bed.look();
    for segment in &whole.segments {
        let until = Some(segment.end);
        let inspection = inspect(Subject { until, ..subject }, |_| Continue(())).unwrap();
        assert_eq!(inspection.end, segment.end);
        assert_eq!(inspection.segments.last().unwrap().number, segment.number);
        assert!(inspection.damages.is_empty() && inspection.tail.is_none());
    }
}

#[test]
fn a_repair_does_not_reach_into_a_file_that_is_linked_from_elsewhere() {
    let bed = Bed::new();
    let file = bed.files()[1].clone();
    bed.tamper(&file, |bytes| bytes[4200] ^= 1);
    let backup = bed.dir.path().join("backup");
    fs::hard_link(bed.shard().join(&file), &backup).unwrap();
    let before = fs::read(&backup).unwrap();
    let (_, seen) = bed.look();
    bed.mends_to(&seen, "linked");
    assert!(fs::read(&backup).unwrap() == before);
}

#[test]
fn files_with_names_of_other_segments_get_their_own_and_nothing_is_lost() {
    let bed = Bed::new();
    let files = bed.files();
    // Two that are swapped, three that went round, one under a name that no other has, and the first one.
    for names in [&[1, 2][..], &[1, 2, 3], &[0, 1], &[2, 9], &[0, 9], &[1, 9]] {
        let bed = bed.copy();
        let name = |place: usize| corq_io::log::segment_file(place as u64);
        let path = |place: usize| bed.shard().join(name(place));
        fs::rename(path(names[0]), bed.shard().join("aside")).unwrap();
        for pair in names.windows(2) {
            if pair[1] != 9 {
                fs::rename(path(pair[1]), path(pair[0])).unwrap();
            }
        }
        fs::rename(bed.shard().join("aside"), path(names[names.len() - 1])).unwrap();
        let what = format!("{names:?}");
        let (inspection, _) = bed.look();
        assert!(inspection.damages.iter().all(Damage::is_misnamed), "{what}: {inspection:?}");
        let first = &inspection.damages[0];
        assert!(first.to_string().contains(" belongs at segment "), "{what}: {first}");
        let error = bed.copy().open().err().map(|error| error.to_string());
        assert!(error.is_some(), "{what}: a start sees it, too");
        bed.repair();
        assert_eq!(bed.files(), files, "{what}");
        bed.mends_to(&bed.records, &what);
    }
}

/// A file that has been given up and got the name of the next segment, but not its header before the power went.
#[test]
fn a_file_that_was_given_up_belongs_nowhere_else() {
    let bed = Bed::new();
    let files = bed.files();
    let (healthy, seen) = bed.look();
    let next = corq_io::log::segment_file(files.len() as u64);
    let first = fs::read(bed.shard().join(&files[0])).unwrap();
    fs::write(bed.shard().join(&next), &first).unwrap();
    let (inspection, again) = bed.look();
    assert!(inspection.damages.is_empty() && again == seen, "{inspection:?}");
    assert_eq!(inspection.end, healthy.end);
    // With damage elsewhere it is not what is wrong: the segment is there under its name.
    bed.tamper(&files[1], |bytes| bytes[4200] ^= 1);
    let (inspection, seen) = bed.look();
    assert!(!inspection.damages.iter().any(Damage::is_misnamed), "{inspection:?}");
    bed.mends_to(&seen, "given up");
}
