//! The disk of a server without a data path: segments in memory, everything done at once.
//!
//! Knows bytes only. The log above it is the same code as with files.

use super::{Disk, Started, SyncTarget};
use crate::log::data_dir::identity::new_id;
use crate::log::format::segment::file_name;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Segments in memory. What a segment does not use of its room is never touched, so it costs none.
#[derive(Debug, Default)]
pub struct MemoryDisk {
    segments: BTreeMap<u64, Vec<u8>>,
    spares: VecDeque<Vec<u8>>,
}

impl MemoryDisk {
    /// A disk without segments.
    pub fn new() -> Self {
        Self::default()
    }

    fn segment(&mut self, segment: u64) -> io::Result<&mut Vec<u8>> {
        self.segments.get_mut(&segment).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.segments.keys().map(|&segment| file_name(segment)).collect())
    }

    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        let spare = if spare { self.spares.pop_front() } else { None };
        let mut content = spare.unwrap_or_else(|| vec![0; bytes as usize]);
        content[..header.len()].copy_from_slice(header);
        self.segments.insert(segment, content);
        Ok(())
    }

    fn begin(&mut self, segment: u64, bytes: u64, _taken: u64, header: &[u8]) -> io::Result<()> {
        self.create(segment, bytes, header, false)
    }

    fn take_room(&mut self, _segment: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn spares(&mut self, _bytes: u64) -> io::Result<u64> {
        Ok(self.spares.len() as u64)
    }

    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.spares.push_back(vec![0; bytes as usize]);
        Ok(())
    }

    fn begin_aside(&mut self, bytes: u64, _tag: u64) -> Started {
        self.spares.push_back(vec![0; bytes as usize]);
        Started::Done(0)
    }

    fn end_aside(&mut self, _result: i32) -> io::Result<bool> {
        // The file was set aside when that began.
        Ok(false)
    }

    fn drop_spare(&mut self) -> io::Result<()> {
        self.spares.pop_back();
        Ok(())
    }

    fn ready(&mut self) -> u64 {
        u64::MAX
    }

    fn free_bytes(&mut self) -> u64 {
        u64::MAX
    }

    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        let content = self.segments.remove(&segment);
        self.spares.extend(content.filter(|_| keep));
        Ok(keep)
    }

    fn unlink(&mut self, _segment: u64, _tag: u64) -> Started {
        // The segment went when it was retired.
        Started::Done(0)
    }

    fn retired(&mut self) {}

    fn ended(&mut self, _tag: u64) {}

    fn len(&mut self, segment: u64) -> io::Result<u64> {
        Ok(self.segment(segment)?.len() as u64)
    }

    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let content = self.segment(segment)?;
        let from = content.get(offset as usize..).unwrap_or_default();
        let bytes = from.len().min(into.len());
        into[..bytes].copy_from_slice(&from[..bytes]);
        Ok(bytes)
    }

    fn settle(&mut self, _segment: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        self.segment(segment)?.resize(bytes as usize, 0);
        Ok(())
    }

    fn rewrite(&mut self, _segment: u64, _from: u64, _to: u64) -> io::Result<()> {
        Ok(())
    }

    fn secret(&mut self) -> io::Result<[u64; 2]> {
        Ok([new_id()?, new_id()?])
    }

    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        let room = self.segment(segment)?.get_mut(offset as usize..).unwrap_or_default();
        room.get_mut(..bytes).ok_or(io::ErrorKind::UnexpectedEof)?.fill(0);
        Ok(())
    }

    fn reopen(&mut self, _segment: u64) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.segments.remove(&segment);
        Ok(())
    }

    fn write(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: &[u8],
        _durable: bool,
        _tag: u64,
    ) -> Started {
        let at = offset as usize;
        let room = self.segments.get_mut(&segment).and_then(|all| all.get_mut(at..));
        match room.and_then(|room| room.get_mut(..bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Started::Done(bytes.len() as i32)
            }
            None => Started::Done(-libc::EIO),
        }
    }

    fn sync(&mut self, _target: SyncTarget, _tag: u64) -> Started {
        Started::Done(0)
    }

    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], _tag: u64) -> Started {
        match self.read_at(segment, offset, into) {
            Ok(bytes) => Started::Done(bytes as i32),
            Err(_) => Started::Done(-libc::EIO),
        }
    }

    fn seal(&mut self, _segment: u64) {}
}
