//! What tells a file or directory from all others on this machine, whatever it is called: its device and its inode.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and inode. As text `device:inode`, both in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl Identity {
    /// Of what a path leads to.
    pub fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|about| Self::from(&about))
    }

    /// Of what is open, whatever has become of its name.
    pub fn of_open(file: &File) -> io::Result<Self> {
        file.metadata().map(|about| Self::from(&about))
    }
}

impl From<&Metadata> for Identity {
    fn from(about: &Metadata) -> Self {
        Self { device: about.dev(), inode: about.ino() }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.device, self.inode)
    }
}
