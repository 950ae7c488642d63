//! A disk that fails on purpose: late completions, short writes, errors, and the end of the process
//! or of the power at any moment. For tests and for the simulator.
//!
//! Knows bytes, and which of them a real disk would have kept. Copies everything at once, so it
//! holds no pointer into the log.

mod content;
mod faults;

pub use self::faults::Faults;

use self::content::{Content, SECTOR_BYTES, Sectors};
use super::{Disk, Started, SyncTarget};
use crate::log::format::segment::file_name;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Files set aside that are open ahead of the need.
const SPARES_OPEN: usize = 2;

#[derive(Debug)]
struct Pending {
    tag: u64,
    result: i32,
    /// The segment that it is a sync of.
    syncs: Option<u64>,
    began: u64,
    /// Sectors that are on the disk once this is done.
    keeps: Sectors,
    names: Vec<u64>,
}

/// A disk in memory that fails as [`Faults`] says and forgets what was not synced.
#[derive(Debug, Default)]
pub struct FaultyDisk {
    segments: BTreeMap<u64, Content>,
    /// Set aside, oldest first.
    spares: VecDeque<Content>,
    /// To be set aside once its retirement is on the disk.
    retiring: Option<Content>,
    /// A file that is being made.
    making: Option<Content>,
    /// How many of those set aside are open.
    opened: usize,
    /// Set aside or removed, but the directory on the disk still names the segment.
    leaving: Vec<(u64, Content)>,
    pending: Vec<Pending>,
    /// May be changed at any time.
    pub faults: Faults,
    state: u64,
    /// Operations begun.
    begun: u64,
}

impl FaultyDisk {
    /// A disk without segments, whose choices follow from `seed`.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self { faults, state: seed, ..Self::default() }
    }

    /// Ends one operation in flight; what it returns belongs into `Log::complete`.
    pub fn finish_one(&mut self) -> Option<(u64, i32)> {
        if self.pending.is_empty() {
            return None;
        }
        let index = self.below(self.pending.len() as u64) as usize;
        Some(self.finish(index))
    }

    /// Like `finish_one`, for the operation started as number `index` of those in flight.
    ///
    /// # Panics
    /// When fewer are in flight.
    pub fn finish(&mut self, index: usize) -> (u64, i32) {
        let done = self.pending.remove(index);
        self.keep(done.keeps, &done.names, done.began);
        (done.tag, done.result)
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// How many syncs of one segment are in flight, at most.
    pub fn syncs_at_once(&self) -> usize {
        let of = |segment: u64| self.pending.iter().filter(|it| it.syncs == Some(segment)).count();
        self.segments.keys().map(|&segment| of(segment)).max().unwrap_or(0)
    }

    /// The process ends: what has been written stays, what was in flight may or may not.
    pub fn kill(&mut self) {
        self.pending.clear();
    }

    /// The power goes: of what was not synced, each sector is on the disk, or is not, or is garbage
    /// if nothing was there before.
    pub fn power_loss(&mut self) {
        self.pending.clear();
        let mut segments = std::mem::take(&mut self.segments);
        segments.retain(|_, content| content.named || self.one_in(2));
        for (segment, content) in std::mem::take(&mut self.leaving) {
            if self.one_in(2) {
                segments.insert(segment, content);
            }
        }
        // Often all or nothing survives; the mixtures are the interesting ones.
        let odds = self.below(4);
        for content in segments.values_mut() {
            content.named = true;
            for sector in std::mem::take(&mut content.dirty) {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                let is_new = !content.kept_at.contains_key(&sector);
                let kept = &mut content.kept[range.clone()];
                let survives = odds == 3 || odds > 0 && self.one_in(1 + odds);
                if survives {
                    kept.copy_from_slice(&content.now[range]);
                } else if is_new && kept.iter().all(|&byte| byte == 0) && self.one_in(4) {
                    kept.fill_with(|| self.next() as u8);
                }
            }
            content.now.clone_from(&content.kept);
        }
        self.segments = segments;
    }

    /// The numbers of all segments.
    pub fn segments(&self) -> Vec<u64> {
        self.segments.keys().copied().collect()
    }

    /// A segment's bytes.
    pub fn content(&self, segment: u64) -> &[u8] {
        self.segments.get(&segment).map_or(&[], |content| &content.now)
    }

    /// Changes a segment's bytes behind the log's back, on the disk, too.
    pub fn tamper(&mut self, segment: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let content = self.segments.entry(segment).or_default();
        change(&mut content.now);
        content.kept.clone_from(&content.now);
        content.dirty.clear();
        content.named = true;
    }

    /// Copies the disk as it is at this moment, with nothing in flight.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            segments: self.segments.clone(),
            spares: self.spares.clone(),
            retiring: self.retiring.clone(),
            making: None,
            opened: self.opened,
            leaving: self.leaving.clone(),
            pending: Vec::new(),
            faults: self.faults,
            state: self.state,
            begun: self.begun,
        }
    }

    /// Files there are, with those that are set aside.
    pub fn files(&self) -> usize {
        let beside = self.retiring.iter().chain(&self.making).count();
        self.segments.len() + self.spares.len() + beside
    }

    fn opens(&self) -> io::Result<()> {
        if self.faults.fail_open {
            Err(io::Error::from_raw_os_error(self.faults.errno))
        } else {
            Ok(())
        }
    }

    fn next(&mut self) -> u64 {
        // SplitMix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, odds: u64) -> bool {
        odds > 0 && self.below(odds) == 0
    }

    fn keep(&mut self, keeps: Sectors, names: &[u64], began: u64) {
        for ((segment, sector), bytes) in keeps {
            let Some(content) = self.segments.get_mut(&segment) else { continue };
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let kept_at = content.kept_at.entry(sector).or_default();
            if *kept_at > began {
                continue;
            }
            *kept_at = began;
            content.kept[range.clone()].copy_from_slice(&bytes);
            if content.now[range] == bytes {
                content.dirty.remove(&sector);
            }
        }
        for name in names {
            if let Some(content) = self.segments.get_mut(name) {
                content.named = true;
            }
            self.leaving.retain(|(left, _)| left != name);
        }
    }

    /// The sectors of a segment as they are now: what a sync that starts now makes durable.
    fn snapshot(&self, segment: u64, sectors: impl Iterator<Item = usize>) -> Sectors {
        let Some(content) = self.segments.get(&segment) else { return Sectors::new() };
        let bytes = |sector| content.now[sector * SECTOR_BYTES..][..SECTOR_BYTES].to_vec();
        sectors.map(|sector| ((segment, sector), bytes(sector))).collect()
    }

    fn end(&mut self, late: bool, mut pending: Pending) -> Started {
        self.begun += 1;
        pending.began = self.begun;
        if late {
            self.pending.push(pending);
            return Started::Pending;
        }
        self.keep(pending.keeps, &pending.names, pending.began);
        Started::Done(pending.result)
    }

    /// All that a sync of the directory which starts now makes durable.
    fn names(&self) -> Vec<u64> {
        let leaving = self.leaving.iter().map(|(segment, _)| *segment);
        self.segments.keys().copied().chain(leaving).collect()
    }

    /// Fails as the kernel does when it cannot write the pages of a file: it says so once, and counts them as clean.
    /// They can still be read, some of them have reached the disk, and no later sync tries again.
    fn give_up(&mut self, segment: u64) {
        let Some(content) = self.segments.get_mut(&segment) else { return };
        let dirty = std::mem::take(&mut content.dirty);
        for sector in dirty {
            if self.one_in(4)
                && let Some(content) = self.segments.get_mut(&segment)
            {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                content.kept[range.clone()].copy_from_slice(&content.now[range]);
            }
        }
    }

    fn countdown(counter: &mut u32) -> bool {
        let due = *counter == 1;
        *counter = counter.saturating_sub(1);
        due
    }

    fn missing<T>() -> io::Result<T> {
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Disk for FaultyDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.segments.keys().map(|&segment| file_name(segment)).collect())
    }

    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        assert!(!self.segments.contains_key(&segment), "a segment number was used twice");
        if spare {
            if self.opened == 0 {
                self.opens()?;
            }
            let Some(mut content) = self.spares.pop_front() else { return Self::missing() };
            self.opened = self.opened.saturating_sub(1);
            let leaving = |was: u64| self.leaving.iter().any(|(left, _)| *left == was);
            assert!(
                !content.was.is_some_and(leaving),
                "a segment was overwritten that may come back"
            );
            assert!(content.now.len() as u64 == bytes, "a spare file has the length of a segment");
            content.now[..header.len()].copy_from_slice(header);
            content.dirty.extend(0..header.len().div_ceil(SECTOR_BYTES));
            content.named = false;
            self.segments.insert(segment, content);
            return Ok(());
        }
        self.opens()?;
        if self.faults.fail_create {
            return Err(io::Error::from_raw_os_error(self.faults.errno));
        }
        let mut kept = vec![0; bytes as usize];
        if let Some(oldest) = self.segments.values().next().filter(|_| self.faults.stale_segments) {
            let bytes = kept.len().min(oldest.now.len());
            kept[..bytes].copy_from_slice(&oldest.now[..bytes]);
        }
        let mut now = kept.clone();
        now[..header.len()].copy_from_slice(header);
        let dirty = (0..header.len().div_ceil(SECTOR_BYTES)).collect();
        self.segments.insert(segment, Content { now, kept, dirty, ..Content::default() });
        Ok(())
    }

    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        // A file that was being made when the process ended has not its length, and goes.
        self.making = None;
        // Files that an earlier start was about to set aside are there by their names.
        self.spares.extend(self.retiring.take());
        self.keep(Sectors::new(), &self.names(), self.begun);
        self.spares.retain(|content| content.now.len() as u64 == bytes);
        Ok(self.spares.len() as u64)
    }

    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()> {
        self.create(segment, bytes, header, false)?;
        if let Some(content) = self.segments.get_mut(&segment) {
            content.lacks_room = taken < bytes;
        }
        Ok(())
    }

    fn take_room(&mut self, segment: u64, _bytes: u64) -> io::Result<()> {
        let Some(content) = self.segments.get_mut(&segment) else { return Self::missing() };
        if content.lacks_room && self.faults.fail_create {
            return Err(io::Error::from_raw_os_error(self.faults.errno));
        }
        content.lacks_room = false;
        Ok(())
    }

    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        self.opens()?;
        if self.faults.fail_create {
            self.making = None;
            return Err(io::Error::from_raw_os_error(self.faults.errno));
        }
        let made = self.making.take().unwrap_or_else(|| Content::zeroed(bytes));
        self.spares.push_back(made);
        self.ready();
        Ok(())
    }

    fn begin_aside(&mut self, bytes: u64, tag: u64) -> Started {
        assert!(self.making.is_none(), "files are made one at a time");
        if let Err(error) = self.opens() {
            return Started::Done(-error.raw_os_error().unwrap_or(libc::EIO));
        }
        let result = if self.faults.fail_create { -self.faults.errno } else { 0 };
        if !self.faults.late && result == 0 {
            self.spares.push_back(Content::zeroed(bytes));
            self.ready();
        } else if self.faults.late {
            self.making = Some(Content::zeroed(bytes));
        }
        let (syncs, keeps, names) = (None, Sectors::new(), Vec::new());
        self.end(self.faults.late, Pending { tag, result, syncs, began: 0, keeps, names })
    }

    fn end_aside(&mut self, result: i32) -> io::Result<bool> {
        let Some(made) = self.making.take() else { return Ok(false) };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        self.spares.push_back(made);
        self.ready();
        Ok(true)
    }

    fn drop_spare(&mut self) -> io::Result<()> {
        self.spares.pop_back();
        self.opened = self.opened.min(self.spares.len());
        Ok(())
    }

    fn free_bytes(&mut self) -> u64 {
        0
    }

    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        let Some(content) = self.segments.remove(&segment) else { return Self::missing() };
        if content.named {
            self.leaving.push((segment, content.clone()));
        }
        let content = Content { was: Some(segment), ..content };
        self.retiring = Some(content).filter(|_| keep);
        Ok(keep)
    }

    fn unlink(&mut self, _segment: u64, _tag: u64) -> Started {
        // The segment went when it was retired.
        Started::Done(0)
    }

    fn retired(&mut self) {
        self.spares.extend(self.retiring.take());
        self.ready();
    }

    fn ended(&mut self, _tag: u64) {}

    fn ready(&mut self) -> u64 {
        let next = self.spares.len().min(SPARES_OPEN);
        if !self.faults.fail_open {
            self.opened = next;
        }
        (if self.opened >= next { self.spares.len() } else { self.opened }) as u64
    }

    fn len(&mut self, segment: u64) -> io::Result<u64> {
        self.segments.get(&segment).map_or_else(Self::missing, |found| Ok(found.now.len() as u64))
    }

    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let Some(content) = self.segments.get(&segment) else { return Self::missing() };
        let from = content.now.get(offset as usize..).unwrap_or_default();
        let bytes = from.len().min(into.len());
        into[..bytes].copy_from_slice(&from[..bytes]);
        Ok(bytes)
    }

    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()> {
        let Some(content) = self.segments.get_mut(&segment) else { return Self::missing() };
        let to = content.now.len().min(to as usize);
        content.dirty.extend(from as usize / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES));
        Ok(())
    }

    fn secret(&mut self) -> io::Result<[u64; 2]> {
        Ok([self.next(), self.next()])
    }

    fn settle(&mut self, segment: u64) -> io::Result<()> {
        if let Some(content) = self.segments.get_mut(&segment) {
            content.settle();
        }
        self.keep(Sectors::new(), &self.names(), self.begun);
        Ok(())
    }

    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        let Some(content) = self.segments.get_mut(&segment) else { return Self::missing() };
        content.now.resize(bytes as usize, 0);
        content.kept.resize(bytes as usize, 0);
        content.settle();
        Ok(())
    }

    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        let Some(content) = self.segments.get_mut(&segment) else { return Self::missing() };
        let end = offset as usize + bytes;
        content.now[offset as usize..end].fill(0);
        content.dirty.extend(offset as usize / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        content.settle();
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
        durable: bool,
        tag: u64,
    ) -> Started {
        let late = self.faults.late && (durable || !self.faults.inline_writes);
        let is_older = self.segments.range(segment + 1..).next().is_some();
        let is_refused = self.faults.fail_writes || self.faults.fail_older && is_older;
        let mut result = bytes.len() as i32;
        if self.one_in(u64::from(self.faults.interrupts)) {
            result = -libc::EINTR;
        } else if is_refused || Self::countdown(&mut self.faults.fail_write) {
            result = -self.faults.errno;
        } else if self.one_in(u64::from(self.faults.short_writes)) {
            result = self.below(bytes.len() as u64) as i32 / 2 + 1;
        }
        let done = result.max(0) as usize;
        let (first, last) = (offset as usize, offset as usize + done);
        let Some(content) = self.segments.get_mut(&segment) else {
            return Started::Done(-libc::EBADF);
        };
        if last > content.now.len() {
            return Started::Done(-libc::EFBIG);
        }
        content.now[first..last].copy_from_slice(&bytes[..done]);
        let sectors = first / SECTOR_BYTES..last.div_ceil(SECTOR_BYTES);
        content.dirty.extend(sectors.clone());
        let keeps = if durable && !self.faults.lying {
            self.snapshot(segment, sectors)
        } else {
            Sectors::new()
        };
        let (syncs, names) = (None, Vec::new());
        self.end(late, Pending { tag, result, syncs, began: 0, keeps, names })
    }

    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        let failed = Self::countdown(&mut self.faults.fail_sync);
        let result = if failed { -self.faults.errno } else { 0 };
        let (keeps, names) = (Sectors::new(), Vec::new());
        let syncs = match target {
            SyncTarget::Segment(segment) => Some(segment),
            SyncTarget::Directory => None,
        };
        let mut pending = Pending { tag, result, syncs, began: 0, keeps, names };
        match target {
            SyncTarget::Segment(segment) if failed => self.give_up(segment),
            _ if failed || self.faults.lying => {}
            SyncTarget::Directory => pending.names = self.names(),
            SyncTarget::Segment(segment) => {
                let dirty = self.segments.get(&segment).map(|content| content.dirty.clone());
                pending.keeps = self.snapshot(segment, dirty.unwrap_or_default().into_iter());
            }
        }
        self.end(self.faults.late, pending)
    }

    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started {
        let mut bytes = into.len();
        if self.one_in(u64::from(self.faults.short_reads)) {
            bytes = bytes.div_ceil(2);
        }
        if let Err(error) = self.opens() {
            return Started::Done(-error.raw_os_error().unwrap_or(libc::EIO));
        }
        let result = if Self::countdown(&mut self.faults.fail_read) {
            -self.faults.errno
        } else if self.one_in(u64::from(self.faults.interrupts)) {
            -libc::EINTR
        } else {
            let read = self.read_at(segment, offset, &mut into[..bytes]);
            read.map_or(-libc::EIO, |bytes| bytes as i32)
        };
        let (keeps, names) = (Sectors::new(), Vec::new());
        self.end(self.faults.late, Pending { tag, result, syncs: None, began: 0, keeps, names })
    }

    fn seal(&mut self, _segment: u64) {}
}
