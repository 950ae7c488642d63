//! The directory of a shard, held open, and the files in it by their names.
//!
//! A path is looked up anew each time: once the data directory has been renamed, it leads nowhere, or to files of
//! another program. What a log makes, opens, renames and removes while it runs is therefore meant relative to the
//! directory that it was opened in, wherever that is by now.
#![allow(unsafe_code)] // The calls that are relative to a directory have no wrapper in std.

use super::regular;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

/// An open directory; names are looked up relative to it.
#[derive(Debug)]
pub(crate) struct Directory(File);

impl Directory {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    /// Opens the file of that name as `flags` say.
    pub(crate) fn open_file(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        let file = self.open_any(name, flags | libc::O_NONBLOCK)?;
        regular::is_file(&file, name)?;
        Ok(file)
    }

    fn open_any(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        /// Permissions that files are made with, less what the process masks.
        const PERMISSIONS: libc::c_uint = 0o666;
        let name = CString::new(name)?;
        let flags = flags | libc::O_CLOEXEC;
        loop {
            // SAFETY: an open descriptor and a text that ends with a zero, which the kernel reads.
            let fd = unsafe { libc::openat(self.0.as_raw_fd(), name.as_ptr(), flags, PERMISSIONS) };
            if fd >= 0 {
                // SAFETY: it was just opened, and nothing else knows of it.
                return Ok(unsafe { File::from_raw_fd(fd) });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (CString::new(from)?, CString::new(to)?);
        let fd = self.0.as_raw_fd();
        // SAFETY: an open descriptor and two texts that end with a zero, which the kernel reads.
        done(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) })
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let name = CString::new(name)?;
        // SAFETY: an open descriptor and a text that ends with a zero, which the kernel reads.
        done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) })
    }

    /// Whether the file goes by another name as well, as in a backup: then its bytes must stay.
    pub(crate) fn is_linked(&self, name: &str) -> io::Result<bool> {
        let name = CString::new(name)?;
        // SAFETY: all fields are numbers, for which zero is a value.
        let mut about: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: an open descriptor, a text that ends with a zero, and room for the answer.
        done(unsafe { libc::fstatat(self.0.as_raw_fd(), name.as_ptr(), &raw mut about, 0) })?;
        Ok(about.st_nlink > 1)
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether an operation failed because what it names is not there.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOENT)
}
