//! Owner and group of a file or directory: what replaces another one, or is made in another user's directory, must stay
//! usable for that user. A tool that root runs leaves nothing that the server cannot write to.

use super::layout::{NEXT, shard_path};
use crate::privileges::User;
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

/// Whose shards lie in a directory, or are on their way to their places there. A server of root makes its own, also where
/// another user has made the directory for it.
pub fn user_of_shards(directory: &Path) -> io::Result<Option<User>> {
    match User::owning_name(&shard_path(directory, 0))? {
        None => User::owning_name(&directory.join(NEXT)),
        found => Ok(found),
    }
}

/// The user of a directory: the one whose shards lie there; of one without shards the owner.
pub fn user_of(directory: &Path) -> io::Result<User> {
    user_of_shards(directory)?.map_or_else(|| User::owning(directory), Ok)
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
/// A directory comes after what is in it: its new owner could put a link there in place of what is still to be given.
fn give_all(path: &Path, directory: Owner, file: Owner) -> io::Result<()> {
    let below = Owner { mode: None, ..directory };
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_all(&entry.path(), below, file)?;
        } else if entry.metadata()?.nlink() == 1 {
            give_durably(file, &entry.path())?;
        }
    }
    give_durably(directory, path)
}

fn give_durably(owner: Owner, path: &Path) -> io::Result<()> {
    if owner.give(path)? { File::open(path)?.sync_all() } else { Ok(()) }
}

/// Gives all of a copy to the owner of the directory that it replaces, with the mode of that.
pub fn give_copy(copy: &Path, replaced: &Path) -> io::Result<()> {
    let directory = Owner::of(replaced)?;
    give_all(copy, directory, Owner { mode: None, ..directory })
}

/// Gives all of a copy to the owner of what it is a copy of.
pub fn give_as_original(copy: &Path, original: &Path) -> io::Result<()> {
    let owner = Owner::within(original)?;
    give_all(copy, owner, owner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::privileges::is_root;
    use std::thread;

    const SERVICE: u32 = 54_321;

    /// Otherwise the new owner could put a link there in place of what root is about to give.
    #[test]
    fn a_directory_is_given_after_all_that_is_in_it() {
        if !is_root() {
            eprintln!("not root: not tried");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let (copy, replaced) = (home.path().join("copy"), home.path().join("replaced"));
        let below = copy.join("below");
        fs::create_dir_all(&below).unwrap();
        fs::create_dir(&replaced).unwrap();
        lchown(&replaced, Some(SERVICE), Some(SERVICE)).unwrap();
        (0..100).for_each(|number| fs::write(below.join(number.to_string()), "x").unwrap());
        let uid = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut too_early = Vec::new();
                for (directory, entries) in [(&below, 100), (&copy, 1)] {
                    while uid(directory) != SERVICE {
                        thread::yield_now();
                    }
                    let names = fs::read_dir(directory).unwrap().map(|it| it.unwrap().path());
                    let given = names.filter(|path| uid(path) == SERVICE).count();
                    too_early.extend((given != entries).then(|| (directory.clone(), given)));
                }
                too_early
            });
            give_copy(&copy, &replaced).unwrap();
            assert_eq!(watcher.join().unwrap(), []);
        });
    }
}
