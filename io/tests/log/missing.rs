//! The fear: a part of the log that is not there any more is not missed, and a start goes on without the
//! jobs that were in it; or a start takes for a loss what a crash, or a start that was broken off, has left.

use super::*;
use OpenError::{Damaged, MissingSegment};
use corq_io::log::{Disk, Started, SyncTarget};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

fn begun(mode: Mode) -> LogConfig {
    LogConfig { is_begun: true, ..config(mode) }
}

fn name(segment: u64) -> String {
    format!("{segment:016x}.seg")
}

/// A log that has left several segments, and what was written to it.
fn long(mode: Mode) -> (Log<FaultyDisk>, Records) {
    let mut log = new_log(mode, Faults::default());
    let mut written = Records::new();
    for turn in 0..150_u8 {
        written.push(append(&mut log, 1500 + usize::from(turn), turn));
        settle(&mut log, u64::from(turn));
    }
    settle(&mut log, 1000);
    assert!(log.counters().segments > 3 && log.synced() == log.head());
    (log, written)
}

#[test]
fn after_a_kill_every_file_that_is_deleted_is_refused_by_name() {
    for mode in [Mode::Written, Mode::Synced] {
        // At any moment of its life, also just behind a border.
        let mut log = new_log(mode, Faults::default());
        let (mut written, mut refused) = (Records::new(), 0);
        for turn in 0..150_u8 {
            written.push(append(&mut log, 1500 + usize::from(turn), turn));
            log.flush(u64::from(turn)).unwrap();
            let disk = log.disk_mut().copy();
            let segments = disk.segments();
            if segments.len() == 1 {
                continue;
            }
            for &gone in &segments {
                let mut disk = disk.copy();
                Disk::remove(&mut disk, gone).unwrap();
                match try_open(&begun(mode), disk) {
                    Err(MissingSegment { file }) => assert_eq!(file, name(gone), "turn {turn}"),
                    Err(error) => panic!("turn {turn}, {gone} is gone: {error}"),
                    Ok((_, _, found)) => panic!(
                        "turn {turn}: without {gone}, {} of {} are found",
                        found.len(),
                        written.len()
                    ),
                }
                refused += 1;
            }
            let (_, recovery, found) = open(&begun(mode), disk);
            assert!(found == written && recovery.dropped.is_none(), "turn {turn}: {recovery:?}");
        }
        assert!(refused > 300, "{refused}");
    }
}

#[test]
fn several_files_at_the_end_are_missed_as_one_is() {
    for mode in [Mode::Written, Mode::Synced] {
        let (log, _) = long(mode);
        let disk = log.into_disk();
        let segments = disk.segments();
        for kept in 1..segments.len() {
            let mut disk = disk.copy();
            for &gone in &segments[kept..] {
                Disk::remove(&mut disk, gone).unwrap();
            }
            let error = try_open(&begun(mode), disk).unwrap_err();
            assert!(error.to_string().contains(&name(segments[kept])), "{kept} kept: {error}");
        }
    }
}

#[test]
fn a_log_that_was_begun_and_has_no_segment_is_refused() {
    for mode in [Mode::Written, Mode::Synced] {
        let error = try_open(&begun(mode), FaultyDisk::new(1, Faults::default())).unwrap_err();
        assert!(matches!(error, OpenError::Nothing), "{error}");
        // The only file there is, emptied.
        let mut log = new_log(mode, Faults::default());
        append(&mut log, 100, 1);
        settle(&mut log, 0);
        let mut disk = log.into_disk();
        disk.tamper(0, Vec::clear);
        let error = try_open(&begun(mode), disk).unwrap_err();
        assert!(matches!(&error, Damaged { file, offset: 0, .. } if *file == name(0)), "{error}");
    }
}

#[test]
fn every_file_that_is_cut_anywhere_is_refused_with_file_and_byte() {
    for mode in [Mode::Written, Mode::Synced] {
        let (log, written) = long(mode);
        let disk = log.into_disk();
        for segment in disk.segments() {
            let bytes = disk.content(segment).len();
            for cut in (0..bytes).step_by(1021).chain([1, 63, 64, 4096, bytes - 64, bytes - 1]) {
                let mut disk = disk.copy();
                disk.tamper(segment, |bytes| bytes.truncate(cut));
                match try_open(&begun(mode), disk) {
                    Err(Damaged { file, offset, .. }) => {
                        assert_eq!(file, name(segment), "cut at {cut}");
                        assert!(offset <= cut.max(4096) as u64, "cut at {cut}: {offset}");
                    }
                    Err(error) => panic!("{segment} cut at {cut}: {error}"),
                    // Behind the blocks of a segment that another one follows nothing is needed.
                    Ok((_, recovery, found)) => {
                        assert!(found == written, "{segment} cut at {cut} was not seen");
                        assert!(recovery.dropped.is_none() && cut > bytes / 2);
                    }
                }
            }
        }
    }
}

/// Whatever is still on its way when the process or the power ends: all that counts as synced is there, or is
/// missed. Large records, so that a segment is entered before it is ready.
#[test]
fn what_counts_as_synced_is_there_or_is_missed_whenever_the_process_ends() {
    for (mode, inline) in [(Mode::Written, true), (Mode::Written, false), (Mode::Synced, false)] {
        let mut refused = 0;
        for seed in 0..25 {
            let (mut log, ..) = open(&config(mode), FaultyDisk::new(seed, late(inline)));
            let mut written = Records::new();
            for turn in 0..60_u8 {
                written.push(append(&mut log, 15_000 + usize::from(turn), turn));
                log.require_sync();
                log.flush(u64::from(turn)).unwrap();
                for _ in 0..(u64::from(turn) + seed) % 4 {
                    finish_one(&mut log);
                    log.flush(u64::from(turn)).unwrap();
                }
                let safe = written.iter().filter(|(at, _)| *at < log.synced()).count();
                let disk = log.disk_mut().copy();
                for &gone in disk.segments()[1..].iter().rev().take(2) {
                    for power in [false, true] {
                        let mut disk = disk.copy();
                        if power {
                            disk.power_loss();
                        }
                        let _ = Disk::remove(&mut disk, gone);
                        match try_open(&begun(mode), disk) {
                            Err(_) => refused += 1,
                            Ok((_, _, found)) => {
                                let what = format!("{mode:?}, seed {seed}, turn {turn}");
                                assert!(found.len() >= safe, "{what}: {gone} was not missed");
                            }
                        }
                    }
                }
            }
        }
        assert!(refused > 1000, "{mode:?}: {refused}");
    }
}

/// A disk that remembers what it was after each of its operations.
struct Recording {
    disk: FaultyDisk,
    copies: Rc<RefCell<Vec<FaultyDisk>>>,
}

impl Recording {
    fn after<T>(&mut self, run: impl FnOnce(&mut FaultyDisk) -> T) -> T {
        let outcome = run(&mut self.disk);
        self.copies.borrow_mut().push(self.disk.copy());
        outcome
    }
}

impl Disk for Recording {
    fn list(&mut self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        if !spare {
            // Killed in the middle: the file is there and not yet what it is to be.
            for length in [0, bytes as usize] {
                let mut begun = self.disk.copy();
                begun.tamper(segment, |content| content.resize(length, 0));
                self.copies.borrow_mut().push(begun);
            }
        }
        self.after(|disk| disk.create(segment, bytes, header, spare))
    }
    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()> {
        self.disk.begin(segment, bytes, taken, header)
    }
    fn take_room(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.disk.take_room(segment, bytes)
    }
    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        self.disk.spares(bytes)
    }
    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.after(|disk| disk.set_aside(bytes))
    }
    fn begin_aside(&mut self, bytes: u64, tag: u64) -> Started {
        self.after(|disk| disk.begin_aside(bytes, tag))
    }
    fn end_aside(&mut self, result: i32) -> io::Result<bool> {
        self.after(|disk| disk.end_aside(result))
    }
    fn drop_spare(&mut self) -> io::Result<()> {
        self.after(Disk::drop_spare)
    }
    fn free_bytes(&mut self) -> u64 {
        self.disk.free_bytes()
    }
    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        self.after(|disk| disk.retire(segment, keep))
    }
    fn unlink(&mut self, segment: u64, tag: u64) -> Started {
        self.disk.unlink(segment, tag)
    }
    fn retired(&mut self) {
        self.disk.retired();
    }
    fn ended(&mut self, tag: u64) {
        self.disk.ended(tag);
    }
    fn ready(&mut self) -> u64 {
        self.disk.ready()
    }
    fn len(&mut self, segment: u64) -> io::Result<u64> {
        self.disk.len(segment)
    }
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.read_at(segment, offset, into)
    }
    fn settle(&mut self, segment: u64) -> io::Result<()> {
        self.after(|disk| disk.settle(segment))
    }
    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.after(|disk| disk.truncate(segment, bytes))
    }
    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()> {
        // Changes no byte.
        self.disk.rewrite(segment, from, to)
    }
    fn secret(&mut self) -> io::Result<[u64; 2]> {
        self.disk.secret()
    }
    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        self.after(|disk| disk.erase(segment, offset, bytes))
    }
    fn reopen(&mut self, segment: u64) -> io::Result<()> {
        self.after(|disk| disk.reopen(segment))
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.after(|disk| disk.remove(segment))
    }
    fn write(&mut self, at: u64, offset: u64, bytes: &[u8], durable: bool, tag: u64) -> Started {
        self.after(|disk| disk.write(at, offset, bytes, durable, tag))
    }
    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        self.after(|disk| disk.sync(target, tag))
    }
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started {
        self.disk.read(segment, offset, into, tag)
    }
    fn seal(&mut self, segment: u64) {
        self.disk.seal(segment);
    }
}

/// Starts on a disk; what the disk was after each step of the start.
fn start(config: &LogConfig, disk: FaultyDisk) -> (Vec<FaultyDisk>, FaultyDisk, Records) {
    let mut found = Records::new();
    let copies = Rc::default();
    let recording = Recording { disk, copies: Rc::clone(&copies) };
    let opened = Log::open(config, recording, |position, body| {
        found.push((position, body.to_vec()));
        Ok::<_, Infallible>(())
    });
    let disk = opened.unwrap_or_else(|error| panic!("{error}")).0.into_disk().disk;
    (copies.take(), disk, found)
}

/// The next start finds the same wherever the one before ends, and so does the one after that.
fn starts(config: &LogConfig, disk: &FaultyDisk, expected: &Records, what: &str, depth: usize) {
    let (copies, _, found) = start(config, disk.copy());
    assert!(found == *expected, "{what}: {} of {} are found", found.len(), expected.len());
    if depth == 0 {
        return;
    }
    assert!(copies.len() > 2, "{what}");
    for (step, copy) in copies.iter().enumerate() {
        for power in [false, true] {
            let mut copy = copy.copy();
            if power {
                copy.power_loss();
            }
            let what = format!("{what}, ended behind step {step}, power lost: {power}");
            starts(config, &copy, expected, &what, depth - 1);
        }
    }
}

#[test]
fn a_start_that_is_broken_off_at_any_step_is_no_loss_to_the_next() {
    for mode in [Mode::Written, Mode::Synced] {
        let new = |reserve_bytes| {
            let config = LogConfig { reserve_bytes, ..config(mode) };
            open(&config, FaultyDisk::new(3, Faults::default())).0
        };
        let config = begun(mode);
        let (log, written) = long(mode);
        let disk = log.into_disk();
        starts(&config, &disk, &written, "killed", 2);
        let (_, disk, _) = start(&config, disk);
        starts(&config, &disk, &written, "killed and started", 2);
        let (mut log, ..) = open(&config, disk);
        close(&mut log, 0);
        let disk = log.into_disk();
        starts(&config, &disk, &written, "closed without a record", 2);
        // Without any record.
        let mut log = new(0);
        starts(&config, &log.disk_mut().copy(), &Records::new(), "empty", 2);
        close(&mut log, 0);
        starts(&config, &log.into_disk(), &Records::new(), "empty and closed", 2);
        // With files set aside.
        let mut log = new(1 << 17);
        let mut written = vec![append(&mut log, 30_000, 1)];
        settle(&mut log, 0);
        written.push(append(&mut log, 30_000, 2));
        settle(&mut log, 100);
        starts(&config, &log.into_disk(), &written, "with spares", 2);
    }
}

#[test]
fn a_first_start_that_was_broken_off_is_begun_anew() {
    for mode in [Mode::Written, Mode::Synced] {
        let (copies, ..) = start(&config(mode), FaultyDisk::new(1, Faults::default()));
        assert!(copies.len() > 2);
        for copy in copies {
            for power in [false, true] {
                let mut copy = copy.copy();
                if power {
                    copy.power_loss();
                }
                starts(&config(mode), &copy, &Records::new(), "first", 1);
            }
        }
    }
}

/// A torn tail behind a marked segment, and behind one that is not.
#[test]
fn a_start_that_cuts_a_torn_tail_may_be_broken_off_too() {
    let mut tried = 0;
    for seed in 0..40 {
        let (mut log, ..) = open(&config(Mode::Written), FaultyDisk::new(seed, late(true)));
        for turn in 0..60 + seed as u8 {
            append(&mut log, 1500 + usize::from(turn), turn);
            log.flush(u64::from(turn)).unwrap();
            if turn % 3 == 0 {
                finish_one(&mut log);
            }
        }
        let mut disk = log.into_disk();
        disk.power_loss();
        let (_, recovery, found) = open(&begun(Mode::Written), disk.copy());
        tried += u64::from(recovery.dropped.is_some());
        starts(&begun(Mode::Written), &disk, &found, &format!("seed {seed}"), 1);
    }
    assert!(tried > 10, "{tried}");
}

/// Takes from a log what earlier builds did not write.
fn as_before(disk: &mut FaultyDisk) {
    for segment in disk.segments() {
        disk.tamper(segment, |bytes| {
            bytes[48] &= !2;
            let crc = crc32c::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[..124]);
            bytes[124..128].copy_from_slice(&crc.to_le_bytes());
            bytes[1024..4096].fill(0);
            let end = bytes.len();
            bytes[end - 64..].fill(0);
        });
    }
}

#[test]
fn what_earlier_builds_did_not_say_proves_nothing() {
    for mode in [Mode::Written, Mode::Synced] {
        let (log, written) = long(mode);
        let mut disk = log.into_disk();
        as_before(&mut disk);
        let segments = disk.segments();
        let (_, _, found) = open(&config(mode), disk.copy());
        assert!(found == written);
        // Such a build was killed when it had cut the last segment, and made no other yet.
        let mut cut = disk.copy();
        let last = written.last().unwrap().0.0;
        let (segment, end) = (last >> 16, (last & 0xffff) as usize - 64);
        for &later in segments.iter().filter(|&&number| number > segment) {
            Disk::remove(&mut cut, later).unwrap();
        }
        cut.tamper(segment, |bytes| bytes.truncate(end));
        let (_, _, found) = open(&config(mode), cut);
        assert_eq!(found.len() + 1, written.len());
        // From the next start on it is as with any other.
        let (log, ..) = open(&config(mode), disk);
        let mut disk = log.into_disk();
        let newest = *disk.segments().last().unwrap();
        disk.tamper(newest, |bytes| bytes.truncate(9000));
        assert!(matches!(try_open(&config(mode), disk), Err(Damaged { offset: 9000, .. })));
    }
}

#[test]
fn a_changed_mark_is_no_torn_tail_and_costs_no_record() {
    let (log, written) = long(Mode::Written);
    let disk = log.into_disk();
    for segment in disk.segments() {
        for at in 1..=64 {
            let mut disk = disk.copy();
            disk.tamper(segment, |bytes| {
                let end = bytes.len();
                bytes[end - at] ^= 0x40;
            });
            let (_, recovery, found) = open(&begun(Mode::Written), disk);
            assert!(
                found == written && recovery.dropped.is_none(),
                "{segment}, {at}: {recovery:?}"
            );
        }
    }
}
