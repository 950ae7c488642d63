//! The open files of a disk: a bounded number of them, however many segments there are.
//!
//! A segment that takes blocks stays open until it is sealed. All others are opened when something of them is
//! wanted, and those that were not for longest give way. A file that an operation of the ring names is
//! never closed before that operation is over: its descriptor may be another file's by then.

use super::directory::Directory;
use crate::log::Mode;
use crate::log::format::segment::file_name;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// A file of segment length.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) buffered: File,
    /// For writes in `synced` mode, as long as the segment takes any.
    pub(crate) direct: Option<File>,
}

impl Handle {
    /// Opens a file that will take blocks.
    pub(crate) fn open(directory: &Directory, name: &str, mode: Mode) -> io::Result<Self> {
        let buffered = directory.open_file(name, libc::O_RDWR)?;
        Ok(Self { buffered, direct: open_direct(directory, name, mode)? })
    }
}

/// Opens a file for the writes of `synced` mode.
pub(crate) fn open_direct(
    directory: &Directory,
    name: &str,
    mode: Mode,
) -> io::Result<Option<File>> {
    if !mode.is_durable_when_written() {
        return Ok(None);
    }
    match directory.open_file(name, libc::O_WRONLY | libc::O_DIRECT) {
        // A file system without O_DIRECT: RWF_DSYNC alone keeps the promise.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            directory.open_file(name, libc::O_WRONLY).map(Some)
        }
        other => other.map(Some),
    }
}

/// Whether an error means that there is no descriptor for another file.
pub(crate) fn lacks_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[derive(Debug)]
struct Open {
    handle: Handle,
    /// Whether the segment takes blocks.
    active: bool,
    /// When it was asked for last.
    last: u64,
}

/// The open files of segments, within a limit on descriptors.
#[derive(Debug)]
pub(crate) struct Handles {
    directory: Arc<Directory>,
    most: usize,
    open: BTreeMap<u64, Open>,
    /// Operations under way by their tags, and the segments whose files they name; none: the directory.
    uses: Vec<(u64, Option<u64>)>,
    asked: u64,
}

impl Handles {
    /// Handles of the segments in `directory`, of which `most` stay open that take no blocks.
    pub(crate) fn new(directory: Arc<Directory>, most: usize) -> Self {
        Self { directory, most: most.max(1), open: BTreeMap::new(), uses: Vec::new(), asked: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The file of a segment.
    pub(crate) fn get(&mut self, segment: u64) -> io::Result<&mut Handle> {
        self.asked += 1;
        if !self.open.contains_key(&segment) {
            self.trim(1);
            let (directory, name) = (Arc::clone(&self.directory), file_name(segment));
            let open = || directory.open_file(&name, libc::O_RDWR);
            let buffered = self.with_descriptor(open)?;
            let handle = Handle { buffered, direct: None };
            self.open.insert(segment, Open { handle, active: false, last: 0 });
        }
        let Some(open) = self.open.get_mut(&segment) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        open.last = self.asked;
        Ok(&mut open.handle)
    }

    /// Tries `open`, and again after each file that can be closed for it, as long as it is a descriptor that
    /// is lacking.
    pub(crate) fn with_descriptor<T>(
        &mut self,
        mut open: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match open() {
                Err(error) if lacks_descriptor(&error) && self.close_one() => {}
                outcome => return outcome,
            }
        }
    }

    /// Takes in the file of a segment that is about to take blocks.
    pub(crate) fn insert(&mut self, segment: u64, handle: Handle) {
        self.asked += 1;
        let last = self.asked;
        self.open.insert(segment, Open { handle, active: true, last });
    }

    /// The file of a segment that is needed no more, if it is open.
    pub(crate) fn remove(&mut self, segment: u64) -> Option<Handle> {
        let handle = self.open.remove(&segment)?.handle;
        if self.is_used(segment) {
            leak(handle);
            return None;
        }
        Some(handle)
    }

    /// The segment takes no more blocks.
    pub(crate) fn seal(&mut self, segment: u64) {
        let used = self.is_used(segment);
        if let Some(open) = self.open.get_mut(&segment) {
            open.active = false;
            let direct = open.handle.direct.take();
            if used {
                std::mem::forget(direct);
            }
        }
        self.trim(0);
    }

    /// An operation that names the file of a segment, or the directory, is on its way.
    pub(crate) fn begin(&mut self, tag: u64, segment: Option<u64>) {
        self.uses.push((tag, segment));
    }

    /// An operation that `begin` named is over.
    pub(crate) fn end(&mut self, tag: u64) {
        if let Some(place) = self.uses.iter().position(|(of, _)| *of == tag) {
            self.uses.swap_remove(place);
        }
    }

    /// Whether an operation that names the directory is under way.
    pub(crate) fn uses_directory(&self) -> bool {
        self.uses.iter().any(|(_, of)| of.is_none())
    }

    fn is_used(&self, segment: u64) -> bool {
        self.uses.iter().any(|(_, of)| *of == Some(segment))
    }

    /// Closes files until there is room for so many more.
    fn trim(&mut self, more: usize) {
        let idle = self.open.values().filter(|it| !it.active).count();
        for _ in self.most..idle + more {
            self.close_one();
        }
    }

    /// Closes the file that was not asked for for longest and takes no blocks; false if there is none.
    fn close_one(&mut self) -> bool {
        let idle = self.open.iter().filter(|(segment, it)| !it.active && !self.is_used(**segment));
        let Some((&segment, _)) = idle.min_by_key(|(_, it)| it.last) else { return false };
        self.open.remove(&segment);
        true
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // The ring may still hold an operation that names them.
        for (_, segment) in std::mem::take(&mut self.uses) {
            if let Some(open) = segment.and_then(|segment| self.open.remove(&segment)) {
                leak(open.handle);
            }
        }
    }
}

/// Never closes them: something may still name their descriptors.
fn leak(handle: Handle) {
    std::mem::forget(handle.buffered);
    std::mem::forget(handle.direct);
}
