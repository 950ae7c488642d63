//! Owner and group of a file or directory: what replaces another one, or is made in another user's directory, must stay
//! usable for that user. A tool that root runs leaves nothing that the server cannot write to.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown, lchown};
use std::path::Path;

/// Of a mode, what counts.
const MODE: u32 = 0o7777;

/// Owner and group; of what is replaced also its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    uid: u32,
    gid: u32,
    mode: Option<u32>,
}

impl Owner {
    /// For what takes the place of `path`.
    pub fn of(path: &Path) -> io::Result<Self> {
        let about = fs::symlink_metadata(path)?;
        Ok(Self { mode: Some(about.mode() & MODE), ..Self::from(&about) })
    }

    /// For what is made in a directory: its mode is its own.
    pub fn within(directory: &Path) -> io::Result<Self> {
        fs::metadata(directory).map(|about| Self::from(&about))
    }

    /// Gives it all of this that it does not have. True if there was any.
    pub fn give(&self, path: &Path) -> io::Result<bool> {
        let about = fs::symlink_metadata(path)?;
        let is_theirs = self.is_of(&about);
        if !is_theirs {
            lchown(path, Some(self.uid), Some(self.gid))?;
        }
        match self.mode.filter(|mode| about.mode() & MODE != *mode && !about.is_symlink()) {
            None => Ok(!is_theirs),
            Some(mode) => fs::set_permissions(path, Permissions::from_mode(mode)).map(|()| true),
        }
    }

    /// The same of a file that is open.
    pub(crate) fn give_open(&self, file: &File) -> io::Result<()> {
        let about = file.metadata()?;
        if !self.is_of(&about) {
            fchown(file, Some(self.uid), Some(self.gid))?;
        }
        match self.mode.filter(|mode| about.mode() & MODE != *mode) {
            None => Ok(()),
            Some(mode) => file.set_permissions(Permissions::from_mode(mode)),
        }
    }

    fn is_of(&self, about: &Metadata) -> bool {
        (self.uid, self.gid) == (about.uid(), about.gid())
    }
}

impl From<&Metadata> for Owner {
    fn from(about: &Metadata) -> Self {
        Self { uid: about.uid(), gid: about.gid(), mode: None }
    }
}

/// Where only root, or the owner, could do more, it stays as it is: this user may write there anyway.
pub(crate) fn as_far_as_allowed(given: io::Result<()>) -> io::Result<()> {
    match given {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        given => given,
    }
}

/// Makes all in `new`, which takes the place of shards, belong to those that the shard in `old` belongs to.
pub(crate) fn as_shard(new: &Path, old: &Path) -> io::Result<()> {
    let Ok(directory) = Owner::of(old) else { return Ok(()) };
    let mut names = fs::read_dir(old)?.filter_map(Result::ok).map(|entry| entry.path());
    let file = names.find(|path| path.is_file()).and_then(|path| Owner::of(&path).ok());
    give_all(new, directory, file.unwrap_or(Owner { mode: None, ..directory }))
}

/// Gives all below a directory, and itself, one owner each, durably. Files that others have by another name stay theirs.
fn give_all(path: &Path, directory: Owner, file: Owner) -> io::Result<()> {
    give_durably(directory, path)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_all(&entry.path(), directory, file)?;
        } else if entry.metadata()?.nlink() == 1 {
            give_durably(file, &entry.path())?;
        }
    }
    Ok(())
}

fn give_durably(owner: Owner, path: &Path) -> io::Result<()> {
    if owner.give(path)? { File::open(path)?.sync_all() } else { Ok(()) }
}

/// Gives all of a copy to the owner of the directory that it replaces.
pub fn give_copy(copy: &Path, replaced: &Path) -> io::Result<()> {
    let directory = Owner::of(replaced)?;
    let inner = Owner { mode: None, ..directory };
    give_all(copy, inner, inner)?;
    give_durably(directory, copy)
}
