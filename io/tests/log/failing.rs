//! The fear: one operation of the disk fails, whichever it is, and the log goes on as if it had not, tries a sync
//! again that may have lost what it was for, or cannot be opened afterwards.

use super::*;
use corq_io::log::{Disk, Scan, Started, SyncTarget};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// The test's handle of a disk that the log owns.
#[derive(Clone)]
struct Handle {
    disk: Rc<RefCell<FaultyDisk>>,
    /// Operations until one fails; 0 for none.
    left: Rc<Cell<u32>>,
    /// The one that failed.
    failed: Rc<Cell<Option<&'static str>>>,
    /// Syncs since.
    syncs_after: Rc<Cell<u32>>,
    /// No file can be set aside or removed, for this reason; 0 for none.
    stuck: Rc<Cell<i32>>,
}

/// A disk of which one operation fails with EIO, and does nothing; all others are done.
struct Failing(Handle);

impl Handle {
    fn new(disk: FaultyDisk, left: u32) -> Self {
        Self {
            disk: Rc::new(RefCell::new(disk)),
            left: Rc::new(Cell::new(left)),
            failed: Rc::default(),
            syncs_after: Rc::default(),
            stuck: Rc::default(),
        }
    }

    fn fails(&self, what: &'static str) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        if left == 1 {
            self.failed.set(Some(what));
        }
        left == 1
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl Failing {
    fn now<T>(
        &self,
        what: &'static str,
        run: impl FnOnce(&mut FaultyDisk) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.0.fails(what) { Err(eio()) } else { run(&mut self.0.disk.borrow_mut()) }
    }

    fn started(&self, what: &'static str, run: impl FnOnce(&mut FaultyDisk) -> Started) -> Started {
        if self.0.fails(what) {
            Started::Done(-libc::EIO)
        } else {
            run(&mut self.0.disk.borrow_mut())
        }
    }
}

impl Disk for Failing {
    fn list(&mut self) -> io::Result<Vec<String>> {
        self.now("list", Disk::list)
    }
    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        self.now("create", |disk| disk.create(segment, bytes, header, spare))
    }
    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()> {
        self.now("begin", |disk| disk.begin(segment, bytes, taken, header))
    }
    fn take_room(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.now("take room", |disk| disk.take_room(segment, bytes))
    }
    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        self.now("spares", |disk| disk.spares(bytes))
    }
    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.now("set aside", |disk| disk.set_aside(bytes))
    }
    fn begin_aside(&mut self, bytes: u64, tag: u64) -> Started {
        self.started("begin aside", |disk| disk.begin_aside(bytes, tag))
    }
    fn end_aside(&mut self, result: i32) -> io::Result<bool> {
        self.now("end aside", |disk| disk.end_aside(result))
    }
    fn drop_spare(&mut self) -> io::Result<()> {
        self.now("drop spare", Disk::drop_spare)
    }
    fn ready(&mut self) -> u64 {
        self.0.disk.borrow_mut().ready()
    }
    fn free_bytes(&mut self) -> u64 {
        self.0.disk.borrow_mut().free_bytes()
    }
    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        // A file that cannot be renamed is removed, if that can be.
        match self.0.stuck.get() {
            0 => self.now("retire", |disk| disk.retire(segment, keep)),
            errno if keep => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(false),
        }
    }
    fn unlink(&mut self, segment: u64, tag: u64) -> Started {
        if self.0.stuck.get() != 0 {
            return Started::Done(-self.0.stuck.get());
        }
        // While the file was stuck, `retire` did not reach the disk, which removes a file only when it is retired.
        let _ = self.0.disk.borrow_mut().retire(segment, false);
        self.started("unlink", |disk| disk.unlink(segment, tag))
    }
    fn retired(&mut self) {
        self.0.disk.borrow_mut().retired();
    }
    fn ended(&mut self, tag: u64) {
        self.0.disk.borrow_mut().ended(tag);
    }
    fn len(&mut self, segment: u64) -> io::Result<u64> {
        self.now("len", |disk| Disk::len(disk, segment))
    }
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.now("read at", |disk| Disk::read_at(disk, segment, offset, into))
    }
    fn settle(&mut self, segment: u64) -> io::Result<()> {
        self.now("settle", |disk| disk.settle(segment))
    }
    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.now("truncate", |disk| disk.truncate(segment, bytes))
    }
    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()> {
        self.now("rewrite", |disk| disk.rewrite(segment, from, to))
    }
    fn secret(&mut self) -> io::Result<[u64; 2]> {
        self.now("secret", Disk::secret)
    }
    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        self.now("erase", |disk| disk.erase(segment, offset, bytes))
    }
    fn reopen(&mut self, segment: u64) -> io::Result<()> {
        self.now("reopen", |disk| Disk::reopen(disk, segment))
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.now("remove", |disk| Disk::remove(disk, segment))
    }
    fn write(&mut self, at: u64, offset: u64, bytes: &[u8], durable: bool, tag: u64) -> Started {
        self.started("write", |disk| disk.write(at, offset, bytes, durable, tag))
    }
    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        if self.0.failed.get().is_some() {
            self.0.syncs_after.set(self.0.syncs_after.get() + 1);
        }
        let what = match target {
            SyncTarget::Directory => "sync of the directory",
            SyncTarget::Segment(_) => "sync",
        };
        self.started(what, |disk| disk.sync(target, tag))
    }
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started {
        self.started("read", |disk| disk.read(segment, offset, into, tag))
    }
    fn seal(&mut self, segment: u64) {
        self.0.disk.borrow_mut().seal(segment);
    }
}

fn settings(mode: Mode) -> LogConfig {
    LogConfig { is_begun: true, reserve_bytes: 1 << 16, ..config(mode) }
}

/// A new log on a disk that has been started from once, so that none of its files may be missing.
fn begun(mode: Mode) -> FaultyDisk {
    let config = LogConfig { is_begun: false, ..settings(mode) };
    open(&config, FaultyDisk::new(1, Faults::default())).0.into_disk()
}

/// The state of a log after one of its operations failed.
struct Life {
    handle: Handle,
    /// Records that had been released.
    kept: Records,
    stopped: bool,
    reads_failed: u32,
}

/// Records, reads of what has left memory, and segments that are given up; whose records count as needed no more.
fn live(mode: Mode, fail_in: u32) -> Life {
    let handle = Handle::new(begun(mode), 0);
    let nothing = |_: Position, _: &[u8]| Ok::<_, Infallible>(());
    let (mut log, _) = Log::open(&settings(mode), Failing(handle.clone()), nothing).unwrap();
    handle.left.set(fail_in);
    let mut written = Records::new();
    let (mut stopped, mut reads_failed, mut forgotten) = (false, 0, Position(0));
    for turn in 0..160_u8 {
        let (position, body) = log.append(1500);
        body.fill(turn);
        written.push((position, vec![turn; 1500]));
        let now_ms = u64::from(turn) * 20;
        if log.flush(now_ms).is_err() {
            stopped = true;
            break;
        }
        if turn % 16 == 15 {
            let (at, body) = &written[usize::from(turn) - 12];
            // Records that wait for room are in memory.
            if log.read(*at, body.len()).is_none() {
                log.read_cold(*at, body.len(), 0);
                match log.take_read().unwrap().body {
                    Ok(found) => assert!(found == body),
                    Err(_) => reads_failed += 1,
                }
            }
        }
        if turn % 50 == 49
            && let Some(oldest) = log.oldest()
        {
            let end = loop {
                match log.scan() {
                    Scan::Record(..) => {}
                    Scan::Reading => panic!("everything is done at once"),
                    end => break end,
                }
            };
            if matches!(end, Scan::End) {
                forgotten = oldest.end;
                log.drop_oldest();
            } else {
                reads_failed += 1;
            }
        }
    }
    if stopped {
        let reason = log.failure().expect("it says why");
        assert_eq!(reason.errno, libc::EIO);
        let released = log.released();
        for now_ms in 10_000..10_010 {
            log.append(10).1.fill(1);
            assert_eq!(log.flush(now_ms), Err(reason.clone()));
            assert_eq!(log.close(now_ms), Err(reason.clone()));
        }
        assert_eq!((log.released(), log.next_deadline()), (released, None));
    }
    let released = log.released();
    written.retain(|(at, _)| *at >= forgotten && *at < released);
    drop(log);
    Life { handle, kept: written, stopped, reads_failed }
}

/// A later start finds all that was released; `what` failed before.
fn all_is_there(mode: Mode, disk: FaultyDisk, kept: &Records, what: &str) {
    let (_, _, found) = open(&settings(mode), disk);
    let missing = kept.iter().filter(|record| !found.contains(record)).count();
    assert_eq!(missing, 0, "{what}: of {}", kept.len());
}

#[test]
fn whichever_operation_of_a_running_log_fails_it_stops_or_says_so_and_loses_nothing() {
    for mode in [Mode::Written, Mode::Synced] {
        let mut seen = std::collections::BTreeMap::new();
        for fail_in in 1.. {
            let life = live(mode, fail_in);
            let Some(what) = life.handle.failed.get() else {
                assert!(!life.stopped && life.reads_failed == 0);
                break;
            };
            *seen.entry(what).or_insert(0) += 1;
            let told = format!("{mode:?}, operation {fail_in}, {what}");
            match what {
                // Others come by what is read; room that is not to be had now may be later.
                "read" => assert!(!life.stopped && life.reads_failed > 0, "{told}"),
                // A file that is needed no more may go later.
                "set aside" | "begin aside" | "retire" | "unlink" | "drop spare" => {
                    assert!(!life.stopped && life.reads_failed == 0, "{told}");
                }
                _ => assert!(life.stopped, "{told}: it went on"),
            }
            if life.stopped {
                assert_eq!(life.handle.syncs_after.get(), 0, "{told}: a sync after the failure");
            }
            let disk = life.handle.disk.borrow().copy();
            all_is_there(mode, disk, &life.kept, &told);
        }
        let expected: &[&str] =
            &["create", "read", "retire", "begin aside", "sync of the directory"];
        let also = ["sync", "write"];
        for what in expected.iter().chain(&also) {
            assert!(seen.contains_key(what), "{mode:?}: no {what} in {seen:?}");
        }
    }
}

/// Of a log with a marked segment, one that was cut, a torn tail, and files that have to go.
fn to_be_started_from(mode: Mode, seed: u64) -> (FaultyDisk, Records) {
    let (log, ..) = open(&settings(mode), begun(mode));
    let mut disk = log.into_disk();
    for life in 0..2 {
        let (mut log, ..) = open(&settings(mode), disk);
        for turn in 0..70 + seed as u8 {
            append(&mut log, 1500, turn + life * 100);
            settle(&mut log, u64::from(turn) * 20);
        }
        disk = log.into_disk();
    }
    disk.faults = late(true);
    let (mut log, ..) = open(&settings(mode), disk);
    for turn in 0..3 + seed as u8 {
        append(&mut log, 9000, turn);
        log.flush(u64::from(turn)).unwrap();
    }
    let mut disk = log.into_disk();
    disk.power_loss();
    disk.faults = Faults::default();
    let (_, _, found) = open(&settings(mode), disk.copy());
    (disk, found)
}

#[test]
fn whichever_operation_of_a_start_fails_it_is_refused_and_the_next_one_finds_everything() {
    for mode in [Mode::Written, Mode::Synced] {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..6 {
            let (disk, expected) = to_be_started_from(mode, seed);
            for fail_in in 1.. {
                let handle = Handle::new(disk.copy(), fail_in);
                let opened = Log::open(&settings(mode), Failing(handle.clone()), |_, _| {
                    Ok::<_, Infallible>(())
                });
                let Some(what) = handle.failed.get() else {
                    assert!(opened.is_ok());
                    break;
                };
                seen.insert(what);
                let told = format!("{mode:?}, seed {seed}, operation {fail_in}, {what}");
                match opened {
                    Err(OpenError::Io { source, .. }) => {
                        assert_eq!(source.raw_os_error(), Some(libc::EIO), "{told}");
                    }
                    Err(error) => panic!("{told}: {error}"),
                    Ok(_) => panic!("{told}: it was opened"),
                }
                for power in [false, true] {
                    let mut disk = handle.disk.borrow().copy();
                    if power {
                        disk.power_loss();
                    }
                    all_is_there(mode, disk, &expected, &told);
                }
            }
        }
        for what in ["list", "len", "read at", "settle", "truncate", "remove", "create", "spares"] {
            assert!(seen.contains(what), "{mode:?}: no {what} in {seen:?}");
        }
    }
}

#[test]
fn a_segment_that_cannot_be_removed_is_tried_again_and_the_log_goes_on() {
    let nothing = |_: Position, _: &[u8]| Ok::<_, Infallible>(());
    for (errno, reserve_bytes) in
        [(libc::EPERM, 0), (libc::EIO, 0), (libc::EROFS, 1 << 16), (libc::EBUSY, 1 << 16)]
    {
        for restarts in [false, true] {
            let mode = Mode::Written;
            let settings = LogConfig { reserve_bytes, ..settings(mode) };
            let handle = Handle::new(begun(mode), 0);
            let (mut log, _) = Log::open(&settings, Failing(handle.clone()), nothing).unwrap();
            let (mut written, mut now_ms) = (Records::new(), 0);
            let mut turn = |log: &mut Log<Failing>, now_ms: &mut u64| {
                let (position, body) = log.append(1500);
                body.fill(7);
                written.push((position, vec![7; 1500]));
                *now_ms += 20;
                log.flush(*now_ms).unwrap();
            };
            while log.oldest().is_none() {
                turn(&mut log, &mut now_ms);
            }
            let end = log.oldest().unwrap().end;
            handle.stuck.set(errno);
            log.drop_oldest();
            for _ in 0..200 {
                turn(&mut log, &mut now_ms);
            }
            let told = format!("{errno}, reserve {reserve_bytes}, restarts {restarts}");
            let stuck = log.stuck_removal().expect("it is known");
            assert_eq!((stuck.errno, log.failure()), (errno, None), "{told}");
            assert!((1..=5).contains(&log.counters().removal_failures), "{told}: each second");
            assert!(log.oldest().is_none() && !log.has_older(), "{told}: no other goes before it");
            let files = handle.disk.borrow().files();
            if restarts {
                while !log.close(now_ms).unwrap() {
                    now_ms += 20;
                }
                drop(log);
                written.retain(|(at, _)| *at >= end);
                all_is_there(mode, handle.disk.borrow().copy(), &written, &told);
                continue;
            }
            handle.stuck.set(0);
            while log.stuck_removal().is_some() {
                turn(&mut log, &mut now_ms);
            }
            assert!(handle.disk.borrow().files() < files || reserve_bytes > 0, "{told}");
            assert!(log.oldest().is_some(), "{told}: the next may go");
            written.retain(|(at, _)| *at >= end);
            drop(log);
            all_is_there(mode, handle.disk.borrow().copy(), &written, &told);
        }
    }
}
