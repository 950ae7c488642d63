//! The real disk: a directory of segment files.
//!
//! Knows files and how each durability mode writes them; the ring only as a list of operations.
#![allow(unsafe_code)] // fallocate and fstatvfs have no wrapper in std.

use super::disk::{Disk, DiskOp, DiskOpKind, Started, SyncTarget};
use super::lock::new_id;
use super::segment::file_name;
use super::{DataDir, Mode};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How files that are set aside are named, behind a number.
pub(super) const SPARE: &str = ".spare";
/// Read and written at once where bytes are written again.
const REWRITE_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct SegmentFile {
    buffered: File,
    /// For writes in `synced` mode, as long as the segment takes any.
    direct: Option<File>,
}

/// Segment files in the directory of one shard. In `written` mode blocks go out with an inline
/// `pwrite`; all else is queued for the shard's ring, see [`take_ops`](Self::take_ops).
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    directory: File,
    mode: Mode,
    files: BTreeMap<u64, SegmentFile>,
    /// Names of the files that are set aside, oldest first.
    spares: VecDeque<String>,
    next_spare: u64,
    ops: Vec<DiskOp>,
}

impl FileDisk {
    /// Opens `data_dir/shard-NNNN`, making it durably if it does not exist.
    pub fn open(data_dir: &Path, shard: u16, mode: Mode) -> io::Result<Self> {
        let path = DataDir::shard_path(data_dir, shard);
        if !path.is_dir() {
            fs::create_dir(&path)?;
        }
        File::open(data_dir)?.sync_all()?;
        let directory = File::open(&path)?;
        let (files, spares) = (BTreeMap::new(), VecDeque::new());
        Ok(Self { path, directory, mode, files, spares, next_spare: 0, ops: Vec::new() })
    }

    /// Moves the operations for the ring to `into`. See [`DiskOp`] for what their submitter owes.
    pub fn take_ops(&mut self, into: &mut Vec<DiskOp>) {
        into.append(&mut self.ops);
    }

    /// Makes earlier writes durable before it returns.
    pub(super) fn sync_now(&mut self, target: SyncTarget) -> io::Result<()> {
        match target {
            SyncTarget::Directory => self.directory.sync_all(),
            SyncTarget::Segment(segment) => self.file(segment)?.buffered.sync_data(),
        }
    }

    fn new_spare(&mut self) -> String {
        self.next_spare += 1;
        format!("{:016x}{SPARE}", self.next_spare)
    }

    fn path_of(&self, segment: u64) -> PathBuf {
        self.path.join(file_name(segment))
    }

    fn file(&mut self, segment: u64) -> io::Result<&mut SegmentFile> {
        use std::collections::btree_map::Entry;
        match self.files.entry(segment) {
            Entry::Occupied(file) => Ok(file.into_mut()),
            Entry::Vacant(place) => {
                let path = self.path.join(file_name(segment));
                let buffered = OpenOptions::new().read(true).write(true).open(path)?;
                Ok(place.insert(SegmentFile { buffered, direct: None }))
            }
        }
    }

    fn open_direct(&self, segment: u64) -> io::Result<File> {
        let path = self.path_of(segment);
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path);
        match direct {
            // A file system without O_DIRECT: RWF_DSYNC alone keeps the promise.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                OpenOptions::new().write(true).open(&path)
            }
            other => other,
        }
    }

    fn create_files(&mut self, segment: u64, bytes: u64, header: &[u8]) -> io::Result<SegmentFile> {
        let buffered = new_file(&self.path_of(segment), bytes)?;
        buffered.write_all_at(header, 0)?;
        self.opened(segment, buffered)
    }

    /// Makes a segment of a file that was one before. It gets its name last: until then whatever it
    /// holds is nobody's.
    fn recycle(&mut self, segment: u64, header: &[u8]) -> io::Result<SegmentFile> {
        let spare = self.spares.front().ok_or(io::ErrorKind::NotFound)?;
        let path = self.path.join(spare);
        let buffered = OpenOptions::new().read(true).write(true).open(&path)?;
        buffered.write_all_at(header, 0)?;
        fs::rename(&path, self.path_of(segment))?;
        self.spares.pop_front();
        self.opened(segment, buffered)
    }

    fn opened(&self, segment: u64, buffered: File) -> io::Result<SegmentFile> {
        let direct = match self.mode {
            Mode::Written => None,
            Mode::Synced => Some(self.open_direct(segment)?),
        };
        Ok(SegmentFile { buffered, direct })
    }

    fn queue(&mut self, kind: DiskOpKind, tag: u64) -> Started {
        self.ops.push(DiskOp { kind, tag });
        Started::Pending
    }
}

/// Makes a file of `bytes`, its room taken from the file system.
fn new_file(path: &Path, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    preallocate(&file, bytes)?;
    Ok(file)
}

/// Takes the file's room from the file system now, so that a write into it cannot lack space.
fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    loop {
        // SAFETY: a system call on an open file descriptor with plain numbers.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as libc::off_t) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) => return file.set_len(bytes),
            _ => return Err(error),
        }
    }
}

/// Whether the file goes by another name as well, as in a backup: then its bytes must stay.
fn is_linked(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.nlink() > 1)
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Disk for FileDisk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()> {
        if spare {
            let file = self.recycle(segment, header)?;
            self.files.insert(segment, file);
            return Ok(());
        }
        match self.create_files(segment, bytes, header) {
            Ok(file) => {
                self.files.insert(segment, file);
                Ok(())
            }
            Err(error) => {
                // A half-made file would be in the way of the next attempt; what it could not take
                // is told by the error above.
                if error.kind() != io::ErrorKind::AlreadyExists {
                    let _ = fs::remove_file(self.path_of(segment));
                }
                Err(error)
            }
        }
    }

    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        self.spares.clear();
        for name in self.list()? {
            let Some(stem) = name.strip_suffix(SPARE) else { continue };
            let path = self.path.join(&name);
            if fs::metadata(&path)?.len() != bytes || is_linked(&path)? {
                fs::remove_file(path)?;
                continue;
            }
            // Names of this start must be new.
            let number = u64::from_str_radix(stem, 16).unwrap_or_default();
            self.next_spare = self.next_spare.max(number.saturating_add(1));
            self.spares.push_back(name);
        }
        Ok(self.spares.len() as u64)
    }

    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        let name = self.new_spare();
        let path = self.path.join(&name);
        if let Err(error) = new_file(&path, bytes) {
            // What is left of it takes room that others need; the error above tells the rest.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        self.spares.push_back(name);
        Ok(())
    }

    fn drop_spare(&mut self) -> io::Result<()> {
        let Some(name) = self.spares.pop_back() else { return Ok(()) };
        fs::remove_file(self.path.join(name))
    }

    fn free_bytes(&mut self) -> u64 {
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: an open descriptor, and room for the answer.
        if unsafe { libc::fstatvfs(self.directory.as_raw_fd(), &raw mut about) } != 0 {
            return 0;
        }
        about.f_bavail.saturating_mul(about.f_frsize)
    }

    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        self.files.remove(&segment);
        let path = self.path_of(segment);
        if !keep {
            fs::remove_file(path)?;
            return Ok(false);
        }
        let name = self.new_spare();
        let spare = self.path.join(&name);
        fs::rename(path, &spare)?;
        // Looked at only now: nobody can link to the segment any more.
        if is_linked(&spare)? {
            fs::remove_file(spare)?;
            return Ok(false);
        }
        self.spares.push_back(name);
        Ok(true)
    }

    fn len(&mut self, segment: u64) -> io::Result<u64> {
        Ok(self.file(segment)?.buffered.metadata()?.len())
    }

    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.file(segment)?;
        let mut done = 0;
        while done < into.len() {
            match file.buffered.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn settle(&mut self, segment: u64) -> io::Result<()> {
        self.file(segment)?.buffered.sync_all()?;
        self.directory.sync_all()
    }

    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        let file = self.file(segment)?;
        file.buffered.set_len(bytes)?;
        file.buffered.sync_all()
    }

    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()> {
        let mut buffer = vec![0; REWRITE_BYTES.min((to - from) as usize)];
        let mut at = from;
        while at < to {
            let wanted = buffer.len().min((to - at) as usize);
            let read = self.read_at(segment, at, &mut buffer[..wanted])?;
            if read == 0 {
                return Ok(());
            }
            self.file(segment)?.buffered.write_all_at(&buffer[..read], at)?;
            at += read as u64;
        }
        Ok(())
    }

    fn secret(&mut self) -> io::Result<[u64; 2]> {
        Ok([new_id()?, new_id()?])
    }

    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        let file = self.file(segment)?;
        file.buffered.write_all_at(&vec![0; bytes], offset)?;
        file.buffered.sync_all()
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.files.remove(&segment);
        fs::remove_file(self.path_of(segment))?;
        self.directory.sync_all()
    }

    fn write(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: &[u8],
        durable: bool,
        tag: u64,
    ) -> Started {
        let file = match self.file(segment) {
            Ok(file) => file,
            Err(error) => return Started::Done(-errno(&error)),
        };
        if let Some(direct) = &file.direct {
            let kind = DiskOpKind::Write {
                fd: direct.as_raw_fd(),
                offset,
                ptr: bytes.as_ptr(),
                len: bytes.len() as u32,
                dsync: durable,
            };
            return self.queue(kind, tag);
        }
        match file.buffered.write_at(bytes, offset) {
            Ok(bytes) => Started::Done(bytes as i32),
            Err(error) => Started::Done(-errno(&error)),
        }
    }

    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        let fd = match target {
            SyncTarget::Directory => self.directory.as_raw_fd(),
            SyncTarget::Segment(segment) => match self.file(segment) {
                Ok(file) => file.buffered.as_raw_fd(),
                Err(error) => return Started::Done(-errno(&error)),
            },
        };
        let data_only = target != SyncTarget::Directory;
        self.queue(DiskOpKind::Sync { fd, data_only }, tag)
    }

    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started {
        let fd = match self.file(segment) {
            Ok(file) => file.buffered.as_raw_fd(),
            Err(error) => return Started::Done(-errno(&error)),
        };
        let (ptr, len) = (into.as_mut_ptr(), into.len() as u32);
        self.queue(DiskOpKind::Read { fd, offset, ptr, len }, tag)
    }

    fn seal(&mut self, segment: u64) {
        if let Some(file) = self.files.get_mut(&segment) {
            file.direct = None;
        }
    }
}
