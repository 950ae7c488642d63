//! The disk: files and names, each as it is now and as it would be after a loss of power.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::UNIX_EPOCH;

use fuser::{Errno, FileAttr, FileType, INodeNo, ReplyEmpty};

use crate::support::Dice;

/// Bytes that a disk writes as a whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// Something as it is now, and as it would be after a loss of power.
#[derive(Default)]
pub(super) struct Twice<T> {
    pub(super) now: T,
    pub(super) kept: T,
}

#[derive(Default)]
pub(super) struct FileNode {
    pub(super) bytes: Twice<Vec<u8>>,
    /// Numbers of the sectors that differ, perhaps.
    pub(super) dirty: BTreeSet<usize>,
}

pub(super) enum Node {
    File(FileNode),
    Directory(Twice<BTreeMap<OsString, u64>>),
    /// A symbolic link, and where it leads.
    Link(OsString),
}

pub(super) struct Disk {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) next: u64,
    pub(super) syncs_fail: bool,
    /// Syncs that get no answer, while they get none.
    pub(super) held: Option<Vec<ReplyEmpty>>,
    /// There is no room for what is written, wherever it goes, as on a disk that sets none aside.
    pub(super) full: bool,
    /// Syncs so far; and the one that is said to be done, and is not.
    pub(super) syncs: u64,
    pub(super) skipped: Option<u64>,
    /// How many times the power has come back.
    pub(super) life: u64,
}

impl FileNode {
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if self.bytes.now.len() < end {
            self.bytes.now.resize(end, 0);
        }
        self.bytes.now[offset..end].copy_from_slice(data);
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    pub(super) fn resize(&mut self, bytes: usize) {
        let known = self.bytes.now.len().min(bytes);
        self.bytes.now.resize(bytes, 0);
        // Bytes cut off now must be zeros if the file grows again, also after a loss of power.
        let kept = self.bytes.kept.len().max(bytes);
        if bytes < kept {
            self.dirty.extend(known / SECTOR_BYTES..kept.div_ceil(SECTOR_BYTES));
        }
    }

    /// A sync has failed: nobody tries again to bring what was written to the disk.
    pub(super) fn give_up(&mut self) {
        self.dirty.clear();
    }

    /// Keeps the sectors that `choose` wants, and the length if it does.
    pub(super) fn keep(&mut self, mut choose: impl FnMut() -> bool) {
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
    pub(super) fn new() -> Self {
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

    pub(super) fn cut(&mut self, dice: &mut Dice) {
        // Of some losses nothing is left that was not synced, of others all is.
        let odds = [0, 10, 50, 90, 100][dice.roll(5) as usize];
        self.cut_by(|| dice.roll(100) < odds);
    }

    pub(super) fn cut_by(&mut self, mut choose: impl FnMut() -> bool) {
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

    pub(super) fn names(
        &mut self,
        directory: u64,
    ) -> Result<&mut Twice<BTreeMap<OsString, u64>>, Errno> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory(names)) => Ok(names),
            Some(Node::File(_) | Node::Link(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ENOENT),
        }
    }

    pub(super) fn file(&mut self, number: u64) -> Result<&mut FileNode, Errno> {
        match self.nodes.get_mut(&number) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_) | Node::Link(_)) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    pub(super) fn find(&mut self, directory: u64, name: &OsStr) -> Result<u64, Errno> {
        self.names(directory)?.now.get(name).copied().ok_or(Errno::ENOENT)
    }

    pub(super) fn make(&mut self, directory: u64, name: &OsStr, node: Node) -> Result<u64, Errno> {
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

    pub(super) fn remove(&mut self, directory: u64, name: &OsStr) -> Result<(), Errno> {
        // The file stays until the power goes: a name whose removal was not synced may come back.
        self.names(directory)?.now.remove(name).map(|_| ()).ok_or(Errno::ENOENT)
    }

    pub(super) fn about(&self, number: u64) -> Result<FileAttr, Errno> {
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
    pub(super) fn sync(&mut self) -> Result<bool, Errno> {
        let number = self.syncs;
        self.syncs += 1;
        if self.syncs_fail { Err(Errno::EIO) } else { Ok(self.skipped != Some(number)) }
    }
}
