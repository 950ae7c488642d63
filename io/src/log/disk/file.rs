//! The real disk: a directory of segment files.
//!
//! Knows files and how each durability mode writes them; the ring only as a list of operations.
#![allow(unsafe_code)] // fallocate and fstatvfs have no wrapper in std.

use super::directory::{Directory, is_absent};
use super::handles::{Handle, Handles, open_direct};
use super::{Disk, DiskOp, DiskOpKind, Started, SyncTarget};
use crate::log::Mode;
use crate::log::data_dir::identity::new_id;
use crate::log::data_dir::layout::shard_path;
use crate::log::format::segment::file_name;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How files that are set aside are named, behind a number.
pub(crate) const SPARE: &str = ".spare";
/// Read and written at once where bytes are written again.
const REWRITE_BYTES: usize = 1 << 20;

/// Files that may be open at a time besides those of segments that take blocks, unless another number is asked for.
const FILES_OPEN: usize = 64;
/// Files set aside that are open before they are needed: the next segment wants no descriptor then.
const SPARES_OPEN: usize = 2;

/// A file that is set aside.
#[derive(Debug)]
struct Spare {
    name: String,
    /// Open, once it is one of the next.
    handle: Option<Handle>,
}

/// A file that the ring makes room for.
#[derive(Debug)]
struct Making {
    /// None once it has been set aside or given up before the ring was done.
    name: Option<String>,
    /// The ring names it until the end.
    file: File,
    bytes: u64,
}

/// The name in an operation of the ring, which reads it until the operation is over.
#[derive(Debug, Default)]
struct NameInUse(Option<CString>);

impl Drop for NameInUse {
    fn drop(&mut self) {
        // The ring may still read it.
        std::mem::forget(self.0.take());
    }
}

/// In `written` mode, writes up to this long are done at once: the kernel has copied them before a thread of its own
/// would have been woken. Longer ones would hold the shard for milliseconds.
const WRITE_AT_ONCE_BYTES: usize = 1 << 20;

/// Segment files in the directory of one shard. In `written` mode blocks go out with an inline
/// `pwrite`, unless they are long; all else is queued for the shard's ring, see [`take_ops`](Self::take_ops).
#[derive(Debug)]
pub struct FileDisk {
    /// Where it was when it was opened, for the start. Later only `directory` leads to it.
    path: PathBuf,
    /// Closed with the last that holds it, unless an operation of the ring still names it.
    directory: Arc<Directory>,
    mode: Mode,
    handles: Handles,
    /// The files that are set aside, oldest first.
    spares: VecDeque<Spare>,
    /// A file that is set aside once the directory has been synced.
    retiring: Option<Spare>,
    /// The file that is to be set aside next.
    making: Option<Box<Making>>,
    /// The file that is being removed.
    unlinking: NameInUse,
    next_spare: u64,
    ops: Vec<DiskOp>,
}

impl FileDisk {
    /// Opens `data_dir/shard-NNNN`, making it durably if it does not exist.
    pub fn open(data_dir: &Path, shard: u16, mode: Mode) -> io::Result<Self> {
        let path = shard_path(data_dir, shard);
        if !path.is_dir() {
            fs::create_dir(&path)?;
        }
        File::open(data_dir)?.sync_all()?;
        let directory = Arc::new(Directory::open(&path)?);
        let handles = Handles::new(Arc::clone(&directory), FILES_OPEN);
        let (spares, ops) = (VecDeque::new(), Vec::new());
        let (retiring, making, unlinking) = (None, None, NameInUse::default());
        let next_spare = 0;
        Ok(Self {
            path,
            directory,
            mode,
            handles,
            spares,
            retiring,
            making,
            unlinking,
            next_spare,
            ops,
        })
    }

    /// From now on as many files are open at a time, besides those of segments that take blocks and the next
    /// ones.
    #[must_use]
    pub fn with_files_open(mut self, most: usize) -> Self {
        self.handles = Handles::new(Arc::clone(&self.directory), most);
        self
    }

    /// How many descriptors such a disk takes at most, with so many files open.
    pub const fn descriptors_max(files_open: usize) -> usize {
        // Two for each that takes blocks or is next, for blocks go around the cache in `synced` mode. One takes
        // blocks, one is made ready for them and one may wait for its last sync. Another one is being made.
        const ACTIVE: usize = 3;
        2 + files_open + 2 * (ACTIVE + SPARES_OPEN)
    }

    /// Segment files that are open.
    pub fn files_open(&self) -> usize {
        self.handles.len()
    }

    /// Moves the operations for the ring to `into`. See [`DiskOp`] for what their submitter owes.
    pub fn take_ops(&mut self, into: &mut Vec<DiskOp>) {
        into.append(&mut self.ops);
    }

    /// Makes earlier writes durable before it returns.
    pub(crate) fn sync_now(&mut self, target: SyncTarget) -> io::Result<()> {
        match target {
            SyncTarget::Directory => self.directory.file().sync_all(),
            SyncTarget::Segment(segment) => self.handles.get(segment)?.buffered.sync_data(),
        }
    }

    /// Writes before it returns: bytes done, or a negative errno.
    pub(crate) fn write_now(&mut self, segment: u64, offset: u64, bytes: &[u8]) -> Started {
        let written = self.handles.get(segment);
        let written = written.and_then(|file| file.buffered.write_at(bytes, offset));
        Started::Done(written.map_or_else(|error| -errno(&error), |bytes| bytes as i32))
    }

    fn new_spare(&mut self) -> String {
        self.next_spare += 1;
        format!("{:016x}{SPARE}", self.next_spare)
    }

    fn new_empty(&mut self, name: &str) -> io::Result<File> {
        let Self { directory, handles, .. } = self;
        handles.with_descriptor(|| {
            directory.open_file(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)
        })
    }

    /// A file is set aside if it has its room, and removed if it has not.
    fn took_room(&mut self, name: String, made: io::Result<()>) -> io::Result<()> {
        if let Err(error) = made {
            // A file without its room takes what others need, so remove it; the error above tells the rest.
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = self.directory.remove(&name);
            }
            return Err(error);
        }
        self.spares.push_back(Spare { name, handle: None });
        self.open_ahead();
        Ok(())
    }

    /// A new file of `bytes`, of which the room of the first `taken` is taken.
    fn create_file(
        &mut self,
        segment: u64,
        (bytes, taken): (u64, u64),
        header: &[u8],
    ) -> io::Result<()> {
        let made = self.make_file(segment, (bytes, taken), header);
        let made = made.map(|handle| self.handles.insert(segment, handle));
        // A half-made file would be in the way of the next attempt; the error says what it could not take.
        if made.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
            let _ = self.directory.remove(&file_name(segment));
        }
        made.map(drop)
    }

    fn make_file(
        &mut self,
        segment: u64,
        (bytes, taken): (u64, u64),
        header: &[u8],
    ) -> io::Result<Handle> {
        let (name, mode) = (file_name(segment), self.mode);
        let directory = Arc::clone(&self.directory);
        let buffered = self.handles.with_descriptor(|| new_file(&directory, &name, taken))?;
        if taken < bytes {
            buffered.set_len(bytes)?;
        }
        buffered.write_all_at(header, 0)?;
        let direct = self.handles.with_descriptor(|| open_direct(&directory, &name, mode))?;
        Ok(Handle { buffered, direct })
    }

    /// Makes a segment of a file that was one before. It gets its name last: until then whatever it
    /// holds is nobody's.
    fn recycle(&mut self, segment: u64, header: &[u8]) -> io::Result<Handle> {
        self.open_next(1)?;
        let spare = self.spares.front_mut().ok_or(io::ErrorKind::NotFound)?;
        let handle = spare.handle.as_ref().ok_or(io::ErrorKind::NotFound)?;
        handle.buffered.write_all_at(header, 0)?;
        self.directory.rename(&spare.name, &file_name(segment))?;
        let handle = spare.handle.take();
        self.spares.pop_front();
        handle.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens the next files that are set aside, as far as they are not.
    fn open_next(&mut self, count: usize) -> io::Result<()> {
        let Self { directory, mode, handles, spares, .. } = self;
        for spare in spares.iter_mut().take(count).filter(|spare| spare.handle.is_none()) {
            let open = || Handle::open(directory, &spare.name, *mode);
            spare.handle = Some(handles.with_descriptor(open)?);
        }
        Ok(())
    }

    /// Opens files that are set aside ahead of the need.
    fn open_ahead(&mut self) {
        // If it cannot be done now, it is tried again when the next file is set aside or wanted.
        let _ = self.open_next(SPARES_OPEN);
    }

    fn queue(&mut self, kind: DiskOpKind, tag: u64, segment: Option<u64>) -> Started {
        self.handles.begin(tag, segment);
        self.ops.push(DiskOp { kind, tag });
        Started::Pending
    }
}

/// Makes a file of `bytes`, its room taken from the file system.
fn new_file(directory: &Directory, name: &str, bytes: u64) -> io::Result<File> {
    let file = directory.open_file(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
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

/// The number in the name of a file that is set aside, if it is one that is given to such files.
fn number_of_spare(name: &str) -> Option<u64> {
    let stem = name.strip_suffix(SPARE)?;
    let number = u64::from_str_radix(stem, 16).ok()?;
    (number < u64::MAX && format!("{number:016x}") == stem).then_some(number)
}

/// Counts a removal as done if the file was gone already.
fn unless_absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if is_absent(&error) => Ok(()),
        removed => removed,
    }
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
            let recycled = self.recycle(segment, header);
            if recycled.as_ref().is_err_and(is_absent) {
                self.spares.pop_front();
            }
            self.handles.insert(segment, recycled?);
            self.open_ahead();
            return Ok(());
        }
        self.create_file(segment, (bytes, bytes), header)
    }

    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()> {
        self.create_file(segment, (bytes, taken), header)
    }

    fn take_room(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        preallocate(&self.handles.get(segment)?.buffered, bytes)
    }

    fn spares(&mut self, bytes: u64) -> io::Result<u64> {
        self.directory.file().sync_all()?;
        self.spares.clear();
        for name in self.list()? {
            // A file with another name was not set aside by a log, and is nobody's to use or to remove.
            let Some(number) = number_of_spare(&name) else { continue };
            // Names of this start must be new.
            self.next_spare = self.next_spare.max(number);
            let path = self.path.join(&name);
            if fs::metadata(&path)?.len() != bytes || self.directory.is_linked(&name)? {
                fs::remove_file(path)?;
                continue;
            }
            self.spares.push_back(Spare { name, handle: None });
        }
        self.open_ahead();
        Ok(self.spares.len() as u64)
    }

    fn set_aside(&mut self, bytes: u64) -> io::Result<()> {
        let begun = self.making.as_mut().and_then(|making| Some((making.name.take()?, making)));
        let (name, made) = match begun {
            // Two may take the same room for one file: the second finds it taken.
            Some((name, making)) => (name, preallocate(&making.file, bytes)),
            None => {
                let name = self.new_spare();
                let made = self.new_empty(&name).and_then(|file| preallocate(&file, bytes));
                (name, made)
            }
        };
        self.took_room(name, made)
    }

    fn begin_aside(&mut self, bytes: u64, tag: u64) -> Started {
        let name = self.new_spare();
        match self.new_empty(&name) {
            Ok(file) => {
                let kind = DiskOpKind::Allocate { fd: file.as_raw_fd(), bytes };
                self.making = Some(Box::new(Making { name: Some(name), file, bytes }));
                self.ops.push(DiskOp { kind, tag });
                Started::Pending
            }
            Err(error) => Started::Done(-errno(&error)),
        }
    }

    fn end_aside(&mut self, result: i32) -> io::Result<bool> {
        let Some(making) = self.making.take() else { return Ok(false) };
        let Making { name, file, bytes } = *making;
        let Some(name) = name else { return Ok(false) };
        let made = match -result {
            libc::EINTR | libc::EAGAIN | libc::EOPNOTSUPP => preallocate(&file, bytes),
            errno if errno > 0 => Err(io::Error::from_raw_os_error(errno)),
            _ => Ok(()),
        };
        self.took_room(name, made).map(|()| true)
    }

    fn drop_spare(&mut self) -> io::Result<()> {
        let Some(spare) = self.spares.back() else { return Ok(()) };
        unless_absent(self.directory.remove(&spare.name))?;
        self.spares.pop_back();
        Ok(())
    }

    fn ready(&mut self) -> u64 {
        self.open_ahead();
        let open = self.spares.iter().take_while(|spare| spare.handle.is_some()).count();
        let all = self.spares.len();
        (if open >= SPARES_OPEN.min(all) { all } else { open }) as u64
    }

    fn free_bytes(&mut self) -> u64 {
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: an open descriptor, and room for the answer.
        if unsafe { libc::fstatvfs(self.directory.file().as_raw_fd(), &raw mut about) } != 0 {
            return 0;
        }
        about.f_bavail.saturating_mul(about.f_frsize)
    }

    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool> {
        self.handles.remove(segment);
        let place = file_name(segment);
        if !keep {
            return Ok(false);
        }
        let name = self.new_spare();
        match self.directory.rename(&place, &name) {
            // The segment was to go, and has gone.
            Err(error) if is_absent(&error) => return Ok(false),
            renamed => renamed?,
        }
        // Looked at only now: nobody can link to the segment any more.
        if self.directory.is_linked(&name)? {
            unless_absent(self.directory.remove(&name))?;
            return Ok(false);
        }
        self.retiring = Some(Spare { name, handle: None });
        Ok(true)
    }

    fn unlink(&mut self, segment: u64, tag: u64) -> Started {
        let name = match CString::new(file_name(segment)) {
            Ok(name) => name,
            Err(error) => return Started::Done(-errno(&error.into())),
        };
        let fd = self.directory.file().as_raw_fd();
        let name = self.unlinking.0.insert(name).as_ptr();
        self.queue(DiskOpKind::Unlink { fd, name }, tag, None)
    }

    fn retired(&mut self) {
        self.unlinking.0 = None;
        self.spares.extend(self.retiring.take());
        self.open_ahead();
    }

    fn ended(&mut self, tag: u64) {
        self.handles.end(tag);
    }

    fn len(&mut self, segment: u64) -> io::Result<u64> {
        Ok(self.handles.get(segment)?.buffered.metadata()?.len())
    }

    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.handles.get(segment)?;
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
        self.handles.get(segment)?.buffered.sync_all()?;
        self.directory.file().sync_all()
    }

    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        let file = self.handles.get(segment)?;
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
            self.handles.get(segment)?.buffered.write_all_at(&buffer[..read], at)?;
            at += read as u64;
        }
        Ok(())
    }

    fn secret(&mut self) -> io::Result<[u64; 2]> {
        Ok([new_id()?, new_id()?])
    }

    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()> {
        let zeros = vec![0; bytes.min(REWRITE_BYTES)];
        let mut there = zeros.clone();
        for at in (0..bytes).step_by(REWRITE_BYTES) {
            let wanted = zeros.len().min(bytes - at);
            let (zeros, there) = (&zeros[..wanted], &mut there[..wanted]);
            // Ranges that were never written read as zeros without room, and are to need none.
            let read = self.read_at(segment, offset + at as u64, there)?;
            if read < wanted || there != zeros {
                self.handles.get(segment)?.buffered.write_all_at(zeros, offset + at as u64)?;
            }
        }
        self.handles.get(segment)?.buffered.sync_all()
    }

    fn reopen(&mut self, segment: u64) -> io::Result<()> {
        let Self { directory, mode, handles, .. } = self;
        let open = || Handle::open(directory, &file_name(segment), *mode);
        let handle = handles.with_descriptor(open)?;
        handles.insert(segment, handle);
        Ok(())
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.handles.remove(segment);
        self.directory.remove(&file_name(segment))?;
        self.directory.file().sync_all()
    }

    fn write(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: &[u8],
        durable: bool,
        tag: u64,
    ) -> Started {
        let file = match self.handles.get(segment) {
            Ok(file) => file,
            Err(error) => return Started::Done(-errno(&error)),
        };
        let (fd, apart) = match &file.direct {
            Some(direct) => (direct.as_raw_fd(), false),
            None if bytes.len() <= WRITE_AT_ONCE_BYTES => {
                return self.write_now(segment, offset, bytes);
            }
            None => (file.buffered.as_raw_fd(), true),
        };
        let (ptr, len) = (bytes.as_ptr(), bytes.len() as u32);
        let kind = DiskOpKind::Write { fd, offset, ptr, len, dsync: durable, apart };
        self.queue(kind, tag, Some(segment))
    }

    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started {
        let fd = match target {
            SyncTarget::Directory => self.directory.file().as_raw_fd(),
            SyncTarget::Segment(segment) => match self.handles.get(segment) {
                Ok(file) => file.buffered.as_raw_fd(),
                Err(error) => return Started::Done(-errno(&error)),
            },
        };
        let (segment, data_only) = match target {
            SyncTarget::Directory => (None, false),
            SyncTarget::Segment(segment) => (Some(segment), true),
        };
        self.queue(DiskOpKind::Sync { fd, data_only }, tag, segment)
    }

    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started {
        let fd = match self.handles.get(segment) {
            Ok(file) => file.buffered.as_raw_fd(),
            Err(error) => return Started::Done(-errno(&error)),
        };
        let (ptr, len) = (into.as_mut_ptr(), into.len() as u32);
        self.queue(DiskOpKind::Read { fd, offset, ptr, len }, tag, Some(segment))
    }

    fn seal(&mut self, segment: u64) {
        self.handles.seal(segment);
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        if self.handles.uses_directory() {
            // Held for ever, so never closed.
            std::mem::forget(Arc::clone(&self.directory));
        }
        // The ring may still name it.
        std::mem::forget(self.making.take());
    }
}
