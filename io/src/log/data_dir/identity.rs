//! Identity of a file or directory, whatever it is called: on this machine its device and its inode, and everywhere
//! the random id that the segments of a data directory bear.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and inode. As text `device:inode`, both in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device of its file system.
    pub device: u64,
    /// The inode of the file on its device.
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

/// A number that no other directory has.
pub(crate) fn new_id() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
