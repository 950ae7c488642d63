//! A disk whose power can go, as a file system of the test's own (FUSE): what was not synced when it went
//! is there, or not, or in part, sector by sector; a name that was made, changed or removed since its directory was
//! synced is as it was before, or as it is now. Syncs can be made to fail, as on a disk that dies.
//!
//! Knows files as rows of bytes, and nothing of what a server puts into them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use crate::support::Dice;

/// What a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;
const BLOCKS: u64 = (4 << 30) / 4096;
const FOREVER: Duration = Duration::from_hours(1);

/// The disk, mounted as long as it is in scope.
pub(crate) struct Volatile {
    path: PathBuf,
    disk: Arc<Mutex<Disk>>,
    session: Option<BackgroundSession>,
}

impl Volatile {
    /// An empty one, mounted at `path`; `None` where that is not allowed.
    pub(crate) fn new(path: &Path) -> Option<Self> {
        fs::create_dir_all(path).ok()?;
        let disk = Arc::new(Mutex::new(Disk::new()));
        let mut made = Self { path: path.to_owned(), disk, session: None };
        made.mount().ok()?;
        Some(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// The power goes, and comes back. Nobody may use the disk, but for what the kernel has under way.
    pub(crate) fn cut(&mut self, dice: &mut Dice) {
        {
            let mut disk = self.disk();
            disk.life += 1;
            disk.cut(dice);
        }
        self.unmount();
        self.mount().expect("it could be mounted before");
    }

    /// From now on every sync fails, and keeps nothing; or no more. What a sync that failed was for counts as clean, as
    /// with Linux: it can be read until the power goes, and no later sync keeps it unless it is written again.
    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.disk().syncs_fail = fail;
    }

    /// From now on no sync gets an answer; or those that wait get one, that they failed, and later ones their own.
    pub(crate) fn hold_syncs(&self, hold: bool) {
        let held = std::mem::replace(&mut self.disk().held, hold.then(Vec::new));
        for reply in held.into_iter().flatten() {
            reply.error(Errno::EIO);
        }
    }

    /// From now on nothing can be written for want of room; or it can again.
    pub(crate) fn fill(&self, full: bool) {
        self.disk().full = full;
    }

    /// Syncs of files and directories so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.disk().syncs
    }

    /// The sync with this number, counted from 0, is said to be done, and keeps nothing.
    pub(crate) fn skip_sync(&self, number: Option<u64>) {
        self.disk().skipped = number;
    }

    /// All that is there now outlives the power.
    pub(crate) fn settle(&self) {
        for node in self.disk().nodes.values_mut() {
            match node {
                Node::File(file) => file.keep(|| true),
                Node::Directory(names) => names.kept.clone_from(&names.now),
                Node::Link(_) => {}
            }
        }
    }

    /// The power goes, and nothing is left but what was synced.
    pub(crate) fn cut_to_what_was_synced(&mut self) {
        {
            let mut disk = self.disk();
            disk.life += 1;
            disk.cut_by(|| false);
        }
        self.unmount();
        self.mount().expect("it could be mounted before");
    }

    /// Bytes written that no sync has kept.
    pub(crate) fn unsynced_bytes(&self) -> usize {
        let nodes = &self.disk().nodes;
        let files = nodes.values().map(|node| match node {
            Node::File(file) => file.dirty.len() * SECTOR_BYTES,
            Node::Directory(_) | Node::Link(_) => 0,
        });
        files.sum()
    }

    fn mount(&mut self) -> io::Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("volatile".to_owned())];
        let life = self.disk().life;
        let view = View { disk: Arc::clone(&self.disk), life };
        self.session = Some(fuser::spawn_mount(view, &self.path, &config)?);
        Ok(())
    }

    fn unmount(&mut self) {
        // Lazily: what the kernel still has under way for a process that was killed is not waited for.
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
        self.session = None;
    }
}

impl Drop for Volatile {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Something as it is now, and as it would be after a loss of power.
#[derive(Default)]
struct Twice<T> {
    now: T,
    kept: T,
}

#[derive(Default)]
struct FileNode {
    bytes: Twice<Vec<u8>>,
    /// Numbers of the sectors that differ, perhaps.
    dirty: BTreeSet<usize>,
}

enum Node {
    File(FileNode),
    Directory(Twice<BTreeMap<OsString, u64>>),
    /// A symbolic link, and where it leads.
    Link(OsString),
}

struct Disk {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    syncs_fail: bool,
    /// Syncs that get no answer, while they get none.
    held: Option<Vec<ReplyEmpty>>,
    /// There is no room for what is written, wherever it goes, as on a disk that sets none aside.
    full: bool,
    /// Syncs so far; and the one that is said to be done, and is not.
    syncs: u64,
    skipped: Option<u64>,
    /// How many times the power has come back.
    life: u64,
}

impl FileNode {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if self.bytes.now.len() < end {
            self.bytes.now.resize(end, 0);
        }
        self.bytes.now[offset..end].copy_from_slice(data);
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    fn resize(&mut self, bytes: usize) {
        let known = self.bytes.now.len().min(bytes);
        self.bytes.now.resize(bytes, 0);
        // What is cut off now must be zeros if the file grows again, also after a loss of power.
        let kept = self.bytes.kept.len().max(bytes);
        if bytes < kept {
            self.dirty.extend(known / SECTOR_BYTES..kept.div_ceil(SECTOR_BYTES));
        }
    }

    /// A sync has failed: nobody tries again to bring what was written to the disk.
    fn give_up(&mut self) {
        self.dirty.clear();
    }

    /// Keeps the sectors that `choose` wants, and the length if it does.
    fn keep(&mut self, mut choose: impl FnMut() -> bool) {
        let Twice { now, kept } = &mut self.bytes;
        if kept.len() != now.len() && choose() {
            kept.resize(now.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            let range = sector * SECTOR_BYTES..((sector + 1) * SECTOR_BYTES).min(kept.len());
            if range.start < range.end && choose() {
                let from = now.get(range.start..range.end.min(now.len())).unwrap_or(&[]);
                kept[range.start..range.start + from.len()].copy_from_slice(from);
            }
        }
    }
}

impl Disk {
    fn new() -> Self {
        let root = Node::Directory(Twice::default());
        Self {
            nodes: BTreeMap::from([(INodeNo::ROOT.0, root)]),
            next: 2,
            syncs_fail: false,
            held: None,
            full: false,
            syncs: 0,
            skipped: None,
            life: 0,
        }
    }

    fn cut(&mut self, dice: &mut Dice) {
        // Of some losses nothing is left that was not synced, of others all is.
        let odds = [0, 10, 50, 90, 100][dice.roll(5) as usize];
        self.cut_by(|| dice.roll(100) < odds);
    }

    fn cut_by(&mut self, mut choose: impl FnMut() -> bool) {
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => {
                    file.keep(&mut choose);
                    file.bytes.now.clone_from(&file.bytes.kept);
                }
                Node::Directory(Twice { now, kept }) => {
                    if now != kept && choose() {
                        kept.clone_from(now);
                    }
                    now.clone_from(kept);
                }
                Node::Link(_) => {}
            }
        }
        let mut reached = BTreeSet::from([INodeNo::ROOT.0]);
        for node in self.nodes.values() {
            if let Node::Directory(names) = node {
                reached.extend(names.now.values());
            }
        }
        self.nodes.retain(|number, _| reached.contains(number));
    }

    fn names(&mut self, directory: u64) -> Result<&mut Twice<BTreeMap<OsString, u64>>, Errno> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory(names)) => Ok(names),
            Some(Node::File(_) | Node::Link(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn file(&mut self, number: u64) -> Result<&mut FileNode, Errno> {
        match self.nodes.get_mut(&number) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_) | Node::Link(_)) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn find(&mut self, directory: u64, name: &OsStr) -> Result<u64, Errno> {
        self.names(directory)?.now.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn make(&mut self, directory: u64, name: &OsStr, node: Node) -> Result<u64, Errno> {
        let number = self.next;
        let names = &mut self.names(directory)?.now;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), number);
        self.nodes.insert(number, node);
        self.next += 1;
        Ok(number)
    }

    fn remove(&mut self, directory: u64, name: &OsStr) -> Result<(), Errno> {
        // What it named stays until the power goes: a name that was not synced may come back.
        self.names(directory)?.now.remove(name).map(|_| ()).ok_or(Errno::ENOENT)
    }

    fn about(&self, number: u64) -> Result<FileAttr, Errno> {
        let node = self.nodes.get(&number).ok_or(Errno::ENOENT)?;
        let (kind, size) = match node {
            Node::File(file) => (FileType::RegularFile, file.bytes.now.len() as u64),
            Node::Directory(_) => (FileType::Directory, 0),
            Node::Link(to) => (FileType::Symlink, to.len() as u64),
        };
        let named = self.nodes.values().map(|node| match node {
            Node::Directory(names) => names.now.values().filter(|&&n| n == number).count(),
            Node::File(_) | Node::Link(_) => 0,
        });
        Ok(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(SECTOR_BYTES as u64),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: if kind == FileType::Directory { 0o755 } else { 0o644 },
            nlink: named.sum::<usize>() as u32,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Whether a sync that has come is to be carried out.
    fn sync(&mut self) -> Result<bool, Errno> {
        let number = self.syncs;
        self.syncs += 1;
        if self.syncs_fail { Err(Errno::EIO) } else { Ok(self.skipped != Some(number)) }
    }
}

/// The disk as one mount sees it: one from before a loss of power sees nothing any more.
struct View {
    disk: Arc<Mutex<Disk>>,
    life: u64,
}

impl View {
    fn disk(&self) -> Result<MutexGuard<'_, Disk>, Errno> {
        let disk = self.disk.lock().map_err(|_| Errno::EIO)?;
        if disk.life == self.life { Ok(disk) } else { Err(Errno::EIO) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Disk) -> Result<T, Errno>) -> Result<T, Errno> {
        act(&mut *self.disk()?)
    }
}

fn entry(reply: ReplyEntry, about: Result<FileAttr, Errno>) {
    match about {
        Ok(about) => reply.entry(&FOREVER, &about, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn done(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for View {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.with(|disk| disk.find(parent.0, name).and_then(|n| disk.about(n))));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.with(|disk| disk.about(ino.0)) {
            Ok(about) => reply.attr(&FOREVER, &about),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let about = self.with(|disk| {
            if let Some(size) = size {
                disk.file(ino.0)?.resize(size as usize);
            }
            disk.about(ino.0)
        });
        match about {
            Ok(about) => reply.attr(&FOREVER, &about),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let made = self.with(|disk| {
            let number = disk.make(parent.0, name, Node::Directory(Twice::default()))?;
            disk.about(number)
        });
        entry(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.with(|disk| disk.remove(parent.0, name)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.with(|disk| {
            let number = disk.find(parent.0, name)?;
            if !disk.names(number)?.now.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
            disk.remove(parent.0, name)
        });
        done(reply, removed);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.with(|disk| {
            let number = disk.find(parent.0, name)?;
            if flags.contains(RenameFlags::RENAME_EXCHANGE) {
                let other = disk.find(new_parent.0, new_name)?;
                disk.names(new_parent.0)?.now.insert(new_name.to_owned(), number);
                disk.names(parent.0)?.now.insert(name.to_owned(), other);
                return Ok(());
            }
            disk.names(new_parent.0)?.now.insert(new_name.to_owned(), number);
            disk.remove(parent.0, name)
        });
        done(reply, renamed);
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, to: &Path, reply: ReplyEntry) {
        let made = self.with(|disk| {
            let number = disk.make(parent.0, name, Node::Link(to.as_os_str().to_owned()))?;
            disk.about(number)
        });
        entry(reply, made);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let to = self.with(|disk| match disk.nodes.get(&ino.0) {
            Some(Node::Link(to)) => Ok(to.clone()),
            _ => Err(Errno::EINVAL),
        });
        match to {
            Ok(to) => reply.data(to.as_encoded_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.with(|disk| {
            disk.names(parent.0)?.now.insert(name.to_owned(), ino.0);
            disk.about(ino.0)
        });
        entry(reply, linked);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.with(|disk| {
            let number = disk.make(parent.0, name, Node::File(FileNode::default()))?;
            disk.about(number)
        });
        match made {
            Ok(about) => {
                let (handle, flags) = (FileHandle(0), FopenFlags::empty());
                reply.created(&FOREVER, &about, Generation(0), handle, flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.with(|disk| {
            let bytes = &disk.file(ino.0)?.bytes.now;
            let start = bytes.len().min(offset as usize);
            let end = bytes.len().min(start + size as usize);
            Ok(bytes[start..end].to_vec())
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.with(|disk| {
            if disk.full {
                return Err(Errno::ENOSPC);
            }
            disk.file(ino.0)?.write(offset as usize, data);
            Ok(data.len() as u32)
        });
        match written {
            Ok(bytes) => reply.written(bytes),
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let taken = self.with(|disk| {
            if mode != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            let file = disk.file(ino.0)?;
            let bytes = file.bytes.now.len().max((offset + length) as usize);
            file.resize(bytes);
            Ok(())
        });
        done(reply, taken);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if let Some(held) = &mut self.disk.lock().unwrap().held {
            held.push(reply);
            return;
        }
        let synced = self.with(|disk| {
            match disk.sync() {
                Ok(true) => disk.file(ino.0)?.keep(|| true),
                Ok(false) => {}
                Err(error) => {
                    disk.file(ino.0)?.give_up();
                    return Err(error);
                }
            }
            Ok(())
        });
        done(reply, synced);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.with(|disk| {
            if disk.sync()? {
                let names = disk.names(ino.0)?;
                names.kept.clone_from(&names.now);
            }
            Ok(())
        });
        done(reply, synced);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = self.with(|disk| {
            let names = disk.names(ino.0)?.now.clone();
            let kinds = names
                .into_iter()
                .map(|(name, number)| disk.about(number).map(|about| (name, number, about.kind)));
            kinds.collect::<Result<Vec<_>, _>>()
        });
        match names {
            Ok(names) => {
                for (index, (name, number, kind)) in names.iter().enumerate().skip(offset as usize)
                {
                    if reply.add(INodeNo(*number), index as u64 + 1, *kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(BLOCKS, BLOCKS / 2, BLOCKS / 2, 0, 0, 4096, 255, 4096);
    }
}
