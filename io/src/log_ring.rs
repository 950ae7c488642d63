//! Where a shard's log lies, and how its disk operations get onto the shard's ring.
#![allow(unsafe_code)] // Submitting an operation promises that its memory stays.

use crate::chronicle::Mirror;
use crate::log::{Disk, DiskOp, FileDisk, Log, LogError, MemoryDisk, Started, SyncTarget};
use crate::net::Reactor;
use std::io;

/// The disk of a shard: files, or memory for a server without a data path.
#[derive(Debug)]
pub enum Store {
    /// A directory of segments; of a node of a fleet with the rows of them, whose commits are its syncs.
    Files(FileDisk, Option<Box<Mirror>>),
    /// Nothing survives the process.
    Memory(MemoryDisk),
}

impl Store {
    /// The rows of the log, if it has any.
    pub fn mirror(&mut self) -> Option<&mut Mirror> {
        match self {
            Self::Files(_, mirror) => mirror.as_deref_mut(),
            Self::Memory(_) => None,
        }
    }
}

/// Carries a log's disk operations to the ring of its shard.
#[derive(Debug, Default)]
pub struct Pump {
    ops: Vec<DiskOp>,
}

impl Pump {
    /// Submits what `log` has queued. To be called after each of its methods that may start
    /// something, before the reactor sleeps.
    pub fn submit(&mut self, log: &mut Log<Store>, reactor: &mut Reactor) {
        let Store::Files(files, _) = log.disk_mut() else { return };
        files.take_ops(&mut self.ops);
        for DiskOp { kind, tag } in self.ops.drain(..) {
            // SAFETY: the log keeps memory and descriptor as `DiskOp` promises, until the completion
            // that comes back through `complete`.
            unsafe { reactor.submit_disk(kind, tag) };
        }
    }

    /// Hands a completion back to the log.
    pub fn complete(
        log: &mut Log<Store>,
        tag: u64,
        result: &io::Result<u32>,
    ) -> Result<(), LogError> {
        let result = match result {
            Ok(bytes) => *bytes as i32,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        log.complete(tag, result)
    }
}

impl Pump {
    /// Hands commits of a database back to the log. True if there was one.
    pub fn complete_commits(log: &mut Log<Store>) -> Result<bool, LogError> {
        let mut any = false;
        while let Some(tag) = log.disk_mut().mirror().and_then(Mirror::take_done) {
            log.complete(tag, 0)?;
            any = true;
        }
        Ok(any)
    }
}

macro_rules! both {
    ($self:ident, $disk:ident => $call:expr) => {
        match $self {
            Self::Files($disk, _) => $call,
            Self::Memory($disk) => $call,
        }
    };
}

impl Disk for Store {
    fn list(&mut self) -> io::Result<Vec<String>> {
        both!(self, disk => disk.list())
    }
    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        both!(self, disk => disk.create(segment, bytes, header, spare))
    }
    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()> {
        both!(self, disk => disk.begin(segment, bytes, taken, header))
    }
    fn take_room(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        both!(self, disk => disk.take_room(segment, bytes))
    }
    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        both!(self, disk => disk.spares(bytes))
    }
    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        both!(self, disk => disk.set_aside(bytes))
    }
    fn begin_aside(&mut self, bytes: u64, tag: u64) -> Started {
        both!(self, disk => disk.begin_aside(bytes, tag))
    }
    fn end_aside(&mut self, result: i32) -> io::Result<bool> {
        both!(self, disk => disk.end_aside(result))
    }
    fn drop_spare(&mut self) -> io::Result<()> {
        both!(self, disk => disk.drop_spare())
    }
    fn ready(&mut self) -> u64 {
        both!(self, disk => disk.ready())
    }
    fn free_bytes(&mut self) -> u64 {
        both!(self, disk => disk.free_bytes())
    }
    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        let retired = both!(self, disk => disk.retire(segment, keep))?;
        self.mirror().into_iter().for_each(|mirror| mirror.forget(segment));
        Ok(retired)
    }
    fn unlink(&mut self, segment: u64, tag: u64) -> Started {
        both!(self, disk => disk.unlink(segment, tag))
    }
    fn retired(&mut self) {
        both!(self, disk => disk.retired());
    }
    fn ended(&mut self, tag: u64) {
        both!(self, disk => disk.ended(tag));
        self.mirror().into_iter().for_each(|mirror| mirror.ended(tag));
    }
    fn len(&mut self, segment: u64) -> io::Result<u64> {
        both!(self, disk => disk.len(segment))
    }
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        both!(self, disk => disk.read_at(segment, offset, into))
    }
    fn settle(&mut self, segment: u64) -> io::Result<()> {
        both!(self, disk => disk.settle(segment))
    }
    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        both!(self, disk => disk.truncate(segment, bytes))
    }
    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()> {
        both!(self, disk => disk.rewrite(segment, from, to))
    }
    fn secret(&mut self) -> io::Result<[u64; 2]> {
        both!(self, disk => disk.secret())
    }
    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        both!(self, disk => disk.erase(segment, offset, bytes))
    }
    fn reopen(&mut self, segment: u64) -> io::Result<()> {
        both!(self, disk => disk.reopen(segment))
    }
    fn remove(&mut self, segment: u64) -> io::Result<()> {
        both!(self, disk => disk.remove(segment))?;
        self.mirror().into_iter().for_each(|mirror| mirror.forget(segment));
        Ok(())
    }
    fn write(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: &[u8],
        durable: bool,
        tag: u64,
    ) -> Started {
        let started = both!(self, disk => disk.write(segment, offset, bytes, durable, tag));
        if let Some(mirror) = self.mirror() {
            mirror.wrote(segment, offset, bytes.len(), tag, started);
        }
        started
    }
    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        if let Some(mirror) = self.mirror() {
            return mirror.sync(target, tag);
        }
        both!(self, disk => disk.sync(target, tag))
    }
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started {
        both!(self, disk => disk.read(segment, offset, into, tag))
    }
    fn seal(&mut self, segment: u64) {
        both!(self, disk => disk.seal(segment));
    }
}
