//! The disk as a file system of FUSE.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::disk::{Disk, FileNode, Node, Twice};

const BLOCKS: u64 = (4 << 30) / 4096;
const FOREVER: Duration = Duration::from_hours(1);

/// The disk as one mount sees it: one from before a loss of power sees nothing any more.
pub(super) struct View {
    pub(super) disk: Arc<Mutex<Disk>>,
    pub(super) life: u64,
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
