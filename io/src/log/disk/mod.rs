//! Calls that the log makes on a disk: one directory of segments, some blocking calls for start-up, and three calls
//! that may complete later.
//!
//! Knows numbered segments and bytes; nothing of blocks, and never the ring itself.
//!
//! | file | responsibility |
//! |---|---|
//! | `blocking` | files without a ring |
//! | `directory` | the directory of a shard |
//! | `faulty` | a disk that fails, for tests |
//! | `file` | files by the ring of the shard |
//! | `handles` | open descriptors |
//! | `memory` | a disk in memory, for tests |
//! | `regular` | opens files only: no pipes, no devices |

pub(super) mod blocking;
pub(super) mod directory;
pub(super) mod faulty;
pub(super) mod file;
pub(super) mod handles;
pub(super) mod memory;
pub(super) mod regular;

use std::ffi::c_char;
use std::io;
use std::os::fd::RawFd;

/// How a call that may complete later went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The call is over: bytes done, or a negative errno.
    Done(i32),
    /// The tag will come back through [`Log::complete`](super::Log::complete).
    Pending,
}

/// Bytes or names that a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncTarget {
    /// The bytes of one segment that had been written when the sync started.
    Segment(u64),
    /// The names of all segments created or retired before the sync started.
    Directory,
}

/// The directory of segments of one shard.
///
/// The bytes given to `write`, `sync` and `read` stay where they are, unchanged by anybody else,
/// until the call is done: a disk may keep a pointer to them that long.
pub trait Disk {
    /// The names of all files in the directory, in any order.
    fn list(&mut self) -> io::Result<Vec<String>>;

    /// Makes a segment of `bytes`, its room taken from the file system, that starts with `header`: of
    /// the file that has been set aside for longest if `spare`, else of a new one. Durable only after a
    /// sync of the segment and one of the directory, or `settle`. A file that was set aside and is gone since
    /// (`ENOENT`) counts no longer.
    fn create(&mut self, segment: u64, bytes: u64, header: &[u8], spare: bool) -> io::Result<()>;

    /// Makes a segment of a new file as [`Disk::create`] does, and takes the room of no more than its first `taken` bytes:
    /// that of the rest comes by [`Disk::take_room`].
    fn begin(&mut self, segment: u64, bytes: u64, taken: u64, header: &[u8]) -> io::Result<()>;

    /// Takes the room of the first `bytes` of a segment from the file system, as far as it has not.
    fn take_room(&mut self, segment: u64, bytes: u64) -> io::Result<()>;

    /// How many files of `bytes` are set aside, and makes their names durable: each may have been a segment
    /// that would come back. Removes those of another length. For the start.
    fn spares(&mut self, bytes: u64) -> io::Result<u64>;

    /// Sets one more file aside, its room taken from the file system: the one that is being made, if there is one. Blocking.
    fn set_aside(&mut self, bytes: u64) -> io::Result<()>;

    /// Begins to make one more file, which takes a file system milliseconds that a turn does not have. One at a time. If it is
    /// not pending it is set aside, or failed.
    fn begin_aside(&mut self, bytes: u64, tag: u64) -> Started;

    /// The file that was being made is set aside, if `result` says that it has its room. False if it has been set aside or
    /// given up since by [`Disk::set_aside`].
    fn end_aside(&mut self, result: i32) -> io::Result<bool>;

    /// Removes the file that was set aside last, if there is one.
    fn drop_spare(&mut self) -> io::Result<()>;

    /// How many of the files that are set aside can be used although the system opens no more; all of them if it
    /// still does. Opens the next ones as far as they are not.
    fn ready(&mut self) -> u64;

    /// Bytes that the file system still has; 0 if nobody can tell.
    fn free_bytes(&mut self) -> u64;

    /// The segment is needed no more: its file is closed, and set aside if `keep`. What
    /// was set aside is not used before [`Disk::retired`]: until then the segment may come back.
    /// Answers whether it was set aside: a file that a backup still uses is not. What was not is to be unlinked.
    fn retire(&mut self, segment: u64, keep: bool) -> io::Result<bool>;

    /// Removes the file of a segment that was retired and not set aside, if it is there. A file system frees the blocks
    /// of a file for milliseconds, which a turn does not have.
    fn unlink(&mut self, segment: u64, tag: u64) -> Started;

    /// The directory has been synced since the last segment was retired: its file may be used, if it was
    /// set aside.
    fn retired(&mut self);

    /// An operation that was pending is over.
    fn ended(&mut self, tag: u64);

    /// The segment's length in bytes.
    fn len(&mut self, segment: u64) -> io::Result<u64>;

    /// Blocking read; fewer bytes than asked for mean the end of the segment.
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Blocking sync of a segment and of the directory.
    fn settle(&mut self, segment: u64) -> io::Result<()>;

    /// Makes a segment `bytes` long, durably: cuts it, or puts zeros behind it that take no room.
    fn truncate(&mut self, segment: u64, bytes: u64) -> io::Result<()>;

    /// Writes the bytes from `from` to `to` again as they are, so that the next `settle` has to bring them to the disk:
    /// whether an earlier sync did is not known.
    fn rewrite(&mut self, segment: u64, from: u64, to: u64) -> io::Result<()>;

    /// Bytes that nobody can guess and that were never given before. For the start.
    fn secret(&mut self) -> io::Result<[u64; 2]>;

    /// Writes zeros over some bytes of a segment, durably.
    fn erase(&mut self, segment: u64, offset: u64, bytes: usize) -> io::Result<()>;

    /// A segment that is there will take blocks again. For the start.
    fn reopen(&mut self, segment: u64) -> io::Result<()>;

    /// Removes a segment, durably.
    fn remove(&mut self, segment: u64) -> io::Result<()>;

    /// Writes within a created segment. `durable`: done means on the disk.
    fn write(
        &mut self,
        segment: u64,
        offset: u64,
        bytes: &[u8],
        durable: bool,
        tag: u64,
    ) -> Started;

    /// Makes earlier writes durable.
    fn sync(&mut self, target: SyncTarget, tag: u64) -> Started;

    /// Reads from a segment; may read fewer bytes than asked for.
    fn read(&mut self, segment: u64, offset: u64, into: &mut [u8], tag: u64) -> Started;

    /// The segment will not be written any more.
    fn seal(&mut self, segment: u64);
}

/// An operation for the shard's ring.
///
/// # Safety contract of the submitter
/// The memory behind a pointer belongs to the log and stays valid, and is not touched by the
/// program, until [`Log::complete`](super::Log::complete) has been given the tag, exactly once.
/// Dropping the log before that leaks the memory rather than reusing it. `fd` is open when the
/// operation is taken; submit what was taken before the log's next method is called.
#[derive(Clone, Copy, Debug)]
pub struct DiskOp {
    /// The operation that the ring is to do.
    pub kind: DiskOpKind,
    /// Comes back with the completion; below 2^32, so that a ring may keep the upper half for itself.
    pub tag: u64,
}

/// The ring operations a log asks for.
#[derive(Clone, Copy, Debug)]
pub enum DiskOpKind {
    /// `write(fd, ptr, len)` at `offset`, with `RWF_DSYNC` if `dsync`.
    Write {
        /// The segment's file: opened with `O_DIRECT` where the file system has it, if writes are durable.
        fd: RawFd,
        /// Byte offset in the file.
        offset: u64,
        /// Memory of the log; page-aligned for a file that was opened with `O_DIRECT`.
        ptr: *const u8,
        /// Bytes to write.
        len: u32,
        /// Whether completion must mean durable.
        dsync: bool,
        /// Whether the kernel copies so many bytes that a thread of its own is to do it.
        apart: bool,
    },
    /// `fdatasync(fd)`, or `fsync(fd)` if not `data_only`.
    Sync {
        /// A segment's file or the directory.
        fd: RawFd,
        /// Whether the data and what is needed to find it are enough.
        data_only: bool,
    },
    /// `read(fd, ptr, len)` at `offset`.
    Read {
        /// The segment's file, buffered.
        fd: RawFd,
        /// Byte offset in the file.
        offset: u64,
        /// Memory of the log.
        ptr: *mut u8,
        /// Bytes to read.
        len: u32,
    },
    /// `fallocate(fd, bytes)` from the front.
    Allocate {
        /// A file that is to be a segment.
        fd: RawFd,
        /// Length of the file once it is done.
        bytes: u64,
    },
    /// `unlinkat(fd, name)`.
    Unlink {
        /// The directory.
        fd: RawFd,
        /// A name in it that ends with a zero: memory of the log.
        name: *const c_char,
    },
}
