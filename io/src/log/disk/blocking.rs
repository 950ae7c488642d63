//! Segment files without a ring: every operation is over when its call returns. For work on whole logs
//! before the shards run.
//!
//! Knows nothing of its own: the files are those of [`FileDisk`].

use super::directory::is_absent;
use super::file::FileDisk;
use super::{Disk, Started, SyncTarget};
use crate::log::Mode;
use std::io;
use std::path::Path;

/// There may be a thousand such disks at a time, each of which is read from its beginning to its end.
const FILES_OPEN: usize = 2;

/// The files of a log, written and read at once instead of through a ring.
#[derive(Debug)]
pub struct BlockingDisk(FileDisk);

impl BlockingDisk {
    /// Opens the directory of a shard, as [`FileDisk::open`] does.
    pub fn open(data_dir: &Path, shard: u16) -> io::Result<Self> {
        let files = FileDisk::open(data_dir, shard, Mode::Written)?;
        Ok(Self(files.with_files_open(FILES_OPEN)))
    }
}

fn done(result: io::Result<usize>) -> Started {
    Started::Done(match result {
        Ok(bytes) => bytes as i32,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    })
}

impl Disk for BlockingDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        self.0.create(segment, bytes, header, spare)
    }
    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()> {
        self.0.begin(segment, bytes, taken, header)
    }
    fn take_room(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.0.take_room(segment, bytes)
    }
    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        self.0.spares(bytes)
    }
    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.0.set_aside(bytes)
    }
    fn begin_aside(&mut self, bytes: u64, _tag: u64) -> Started {
        done(self.0.set_aside(bytes).map(|()| 0))
    }
    fn end_aside(&mut self, _result: i32) -> io::Result<bool> {
        // The file was set aside, or failed, when that began.
        Ok(false)
    }
    fn drop_spare(&mut self) -> io::Result<()> {
        self.0.drop_spare()
    }
    fn ready(&mut self) -> u64 {
        self.0.ready()
    }
    fn free_bytes(&mut self) -> u64 {
        self.0.free_bytes()
    }
    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        self.0.retire(segment, keep)
    }
    fn unlink(&mut self, segment: u64, _tag: u64) -> Started {
        done(
            self.0
                .remove(segment)
                .or_else(|error| if is_absent(&error) { Ok(()) } else { Err(error) })
                .map(|()| 0),
        )
    }
    fn retired(&mut self) {
        self.0.retired();
    }
    fn ended(&mut self, tag: u64) {
        self.0.ended(tag);
    }
    fn len(&mut self, segment: u64) -> io::Result<u64> {
        self.0.len(segment)
    }
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        Disk::read_at(&mut self.0, segment, offset, into)
    }
    fn settle(&mut self, segment: u64) -> io::Result<()> {
        self.0.settle(segment)
    }
    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.0.truncate(segment, bytes)
    }
    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()> {
        self.0.rewrite(segment, from, to)
    }
    fn secret(&mut self) -> io::Result<[u64; 2]> {
        self.0.secret()
    }
    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        self.0.erase(segment, offset, bytes)
    }
    fn reopen(&mut self, segment: u64) -> io::Result<()> {
        self.0.reopen(segment)
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.0.remove(segment)
    }
    fn write(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: &[u8],
        _durable: bool,
        _tag: u64,
    ) -> Started {
        self.0.write_now(segment, offset, bytes)
    }
    fn sync(&mut self, target: SyncTarget, _tag: u64) -> Started {
        done(self.0.sync_now(target).map(|()| 0))
    }
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], _tag: u64) -> Started {
        done(Disk::read_at(&mut self.0, segment, offset, into))
    }
    fn seal(&mut self, segment: u64) {
        self.0.seal(segment);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::log::{Log, LogConfig, Position};

    #[test]
    fn a_log_is_written_and_closed_without_a_ring_and_begins_where_it_shall() {
        let dir = tempfile::tempdir().unwrap();
        let config = LogConfig {
            segment_bytes: 1 << 16,
            record_bytes_max: 1 << 13,
            block_bytes: 1 << 12,
            cache_bytes: 0,
            first_segment: 7,
            ..LogConfig::new(3, Mode::Written)
        };
        let open = || BlockingDisk::open(dir.path(), 3).unwrap();
        let nothing = |_: Position, _: &[u8]| Ok::<(), String>(());
        let (mut log, _) = Log::open(&config, open(), nothing).unwrap();
        let mut written = Vec::new();
        for step in 0..100_u8 {
            let body = vec![step; 3000];
            let (position, bytes) = log.append(body.len());
            bytes.copy_from_slice(&body);
            written.push((position, body));
            log.flush(u64::from(step) * 20).unwrap();
            assert_eq!((log.unwritten_bytes(), log.released()), (0, log.head()));
        }
        assert!(log.close(3000).unwrap(), "nothing is left to be waited for");
        drop(log);
        assert!(written[0].0 >= Position(7 << 16));
        assert_eq!(Log::next_segment(&mut open(), config.segment_bytes).unwrap(), 13);
        for first_segment in [7, 0] {
            let mut found = Vec::new();
            let replay = |position: Position, body: &[u8]| {
                found.push((position, body.to_vec()));
                Ok::<(), String>(())
            };
            let config = LogConfig { first_segment, ..config.clone() };
            let before = open().list().unwrap();
            let recovery = Log::replay(&config, &mut open(), replay).unwrap();
            assert!(recovery.clean, "{recovery:?}");
            assert_eq!((recovery.records, recovery.segments), (100, 6));
            assert_eq!((found, open().list().unwrap().len()), (written.clone(), before.len()));
        }
    }
}
