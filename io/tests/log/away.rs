//! The fear: the data directory, or a file in it, is renamed or removed under a log that runs. Its next step by name
//! ends the server, or writes into what lies at that place now.

use super::handles::run;
use super::*;
use corq_io::log::{DiskOp, FileDisk, Scan, shard_path};
use std::fs;
use std::path::Path;

/// A log on real files, and what a ring would be given.
struct Running {
    log: Log<FileDisk>,
    ops: Vec<DiskOp>,
    now_ms: u64,
}

impl Running {
    fn new(dir: &Path, mode: Mode, reserve_bytes: u64) -> Self {
        let config = LogConfig { reserve_bytes, ..config(mode) };
        let disk = FileDisk::open(dir, config.shard, mode).unwrap().with_files_open(2);
        let (log, _) = Log::open(&config, disk, |_, _| Ok::<_, Infallible>(())).unwrap();
        Self { log, ops: Vec::new(), now_ms: 0 }
    }

    fn turn(&mut self) {
        self.now_ms += 20;
        self.log.flush(self.now_ms).unwrap();
        self.log.disk_mut().take_ops(&mut self.ops);
        run(&mut self.log, &mut self.ops);
    }

    fn append(&mut self, byte: u8) -> (Position, Vec<u8>) {
        let (position, body) = self.log.append(9000);
        body.fill(byte);
        self.turn();
        (position, vec![byte; 9000])
    }

    /// Appends a record, and waits until it is written.
    fn write(&mut self, byte: u8) -> (Position, Vec<u8>) {
        let written = self.append(byte);
        for _ in 0..100 {
            if self.log.released() == self.log.head() {
                return written;
            }
            self.turn();
        }
        panic!("{byte} is not written: {:?}", self.log.lack());
    }

    /// Gives the oldest segment up, if that can be done now.
    fn give_up(&mut self) {
        while self.log.oldest().is_some() {
            match self.log.scan() {
                Scan::Record(..) => {}
                Scan::Reading => self.turn(),
                Scan::End => return self.log.drop_oldest(),
                Scan::Failed(error) => panic!("{error}"),
            }
        }
    }

    fn close(&mut self) {
        loop {
            self.now_ms += 20;
            let closed = self.log.close(self.now_ms).unwrap();
            self.log.disk_mut().take_ops(&mut self.ops);
            run(&mut self.log, &mut self.ops);
            if closed {
                return;
            }
        }
    }
}

fn found(dir: &Path, mode: Mode) -> Records {
    let config = config(mode);
    let mut found = Records::new();
    let mut disk = FileDisk::open(dir, config.shard, mode).unwrap();
    Log::replay(&config, &mut disk, |position, body| {
        found.push((position, body.to_vec()));
        Ok::<_, Infallible>(())
    })
    .unwrap();
    found
}

/// Segments are made, read, given up and used again in it, wherever it is; what lies in its place stays as it is.
#[test]
fn a_directory_that_is_renamed_goes_on_being_the_logs() {
    for mode in [Mode::Written, Mode::Synced] {
        for reserve_bytes in [0, 1 << 17] {
            let dir = tempfile::tempdir().unwrap();
            let (data, away) = (dir.path().join("data"), dir.path().join("away"));
            fs::create_dir(&data).unwrap();
            let mut running = Running::new(&data, mode, reserve_bytes);
            let mut written: Records = (0..30).map(|byte| running.write(byte)).collect();
            fs::rename(&data, &away).unwrap();
            for in_its_place in [false, true] {
                if in_its_place {
                    fs::create_dir_all(shard_path(&data, 3)).unwrap();
                }
                let before = running.log.counters();
                for byte in 30..90 {
                    written.push(running.write(byte));
                    if byte % 12 == 0 {
                        running.give_up();
                    }
                }
                let after = running.log.counters();
                assert!(after.segments > before.segments + 5 && after.dropped > before.dropped);
                let (position, body) = &written[written.len() - 30];
                running.log.read_cold(*position, body.len(), 1);
                running.turn();
                let read = running.log.take_read().unwrap().body;
                assert!(read == Ok(&body[..]), "{:?}", read.err());
            }
            running.close();
            drop(running);
            let theirs = fs::read_dir(shard_path(&data, 3)).unwrap().count();
            assert_eq!(theirs, 0, "files were made in what is not the log's");
            let found = found(&away, mode);
            let kept = &written[written.len() - found.len()..];
            assert!(found == kept && found.len() > 10, "{} records", found.len());
        }
    }
}

/// There is no more room then, and nothing else ends.
#[test]
fn a_directory_that_is_removed_does_not_end_the_log() {
    for mode in [Mode::Written, Mode::Synced] {
        for reserve_bytes in [0, 1 << 17] {
            let dir = tempfile::tempdir().unwrap();
            let mut running = Running::new(dir.path(), mode, reserve_bytes);
            (0..40).for_each(|byte| drop(running.append(byte)));
            running.give_up();
            fs::remove_dir_all(dir.path()).unwrap();
            (0..40).for_each(|byte| drop(running.append(byte)));
            assert_eq!(running.log.failure(), None);
            assert!(running.log.lack().is_some() && !running.log.has_room(1));
        }
    }
}

/// They take room, and look as if nobody needed them.
#[test]
fn files_that_are_set_aside_can_be_removed_by_hand() {
    for mode in [Mode::Written, Mode::Synced] {
        let dir = tempfile::tempdir().unwrap();
        let mut running = Running::new(dir.path(), mode, 1 << 18);
        let mut written = Records::new();
        for byte in 0..60 {
            written.push(running.write(byte));
            if byte % 10 == 0 {
                for entry in fs::read_dir(shard_path(dir.path(), 3)).unwrap() {
                    let path = entry.unwrap().path();
                    if path.extension().is_some_and(|it| it == "spare") {
                        fs::remove_file(path).unwrap();
                    }
                }
            }
        }
        assert!(running.log.room_bytes() >= 1 << 18, "it is made good");
        running.close();
        drop(running);
        assert!(found(dir.path(), mode) == written);
    }
}
