//! A directory that is filled in its place. Until it is whole a file in it says so, which is locked as long as the process
//! that fills it lives.
//!
//! Nothing is removed but what has that file and is locked by nobody. Knows one small file and directories; not what is
//! put there.

use crate::log::data_dir::durable::make_directory;
use crate::log::data_dir::identity::new_id;
use crate::log::data_dir::layout::PINS;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

/// The file that makes a directory one that is not whole.
pub const UNFINISHED: &str = "UNFINISHED";
/// Name of that file until it is locked.
const NEW: &str = "UNFINISHED.new";

/// How a directory stands that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// This process fills it, as far as that can be read.
    InUse(Option<u32>),
    /// The process that filled it has gone.
    Dead,
}

/// A directory that this process fills. What has not been finished is emptied with the value, and removed if it was made.
#[derive(Debug)]
pub struct Filling {
    path: PathBuf,
    made: bool,
    finished: bool,
    _marker: File,
}

impl Filling {
    /// Begins to fill a directory, which is made, or is empty and nobody else's to fill.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let made = !path.exists();
        make_directory(path)?;
        let marker = mark(path).inspect_err(|_| {
            if made {
                // Another process may be filling it: then it stays.
                let _ = fs::remove_dir(path);
            }
        })?;
        Ok(Self { path: path.into(), made, finished: false, _marker: marker })
    }

    /// Begins one in a data directory, for what is pinned there.
    pub fn begin_pins(data: &Path) -> io::Result<Self> {
        Self::begin(&data.join(format!("{PINS}-{:016x}", new_id()?)))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it whole, durably. All that lies deeper must be durable already.
    pub fn finish(mut self) -> io::Result<()> {
        sync(&self.path)?;
        fs::remove_file(self.path.join(UNFINISHED))?;
        self.finished = true;
        sync(&self.path)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // Files that cannot be removed stay with the marker, which says that the directory is not whole.
        let emptied = clear(&self.path);
        if self.made && emptied.is_ok() {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// How a directory stands; none if it is whole, or no directory.
pub fn standing(path: &Path) -> Option<Standing> {
    let mut marker = marker(path)?;
    if marker.try_lock_shared().is_ok() {
        return Some(Standing::Dead);
    }
    let mut text = String::new();
    let pid = marker.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
    Some(Standing::InUse(pid))
}

/// Whether what has this path says that it is not whole.
pub(crate) fn is_unfinished(path: &Path) -> bool {
    fs::symlink_metadata(path.join(UNFINISHED)).is_ok()
}

/// All in a directory that their processes have left unfinished, in order.
pub fn left_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && standing(&entry.path()) == Some(Standing::Dead) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Removes a directory whose process has left it unfinished; false if it is no such directory.
pub fn discard(path: &Path) -> io::Result<bool> {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|about| about.is_dir());
    match marker(path).filter(|_| is_directory) {
        Some(marker) if marker.try_lock().is_ok() => {
            clear(path)?;
            fs::remove_dir(path)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Removes what killed backups have pinned in a data directory. What cannot be removed stays until the next time: nobody
/// has to do without a server for it.
pub fn discard_pins(data: &Path) {
    for path in left_in(data).unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PINS) {
            let _ = discard(&path);
        }
    }
}

/// Puts the marker into an empty directory. It gets its name when it is locked: until then nobody takes its process for
/// gone.
fn mark(path: &Path) -> io::Result<File> {
    let new = path.join(NEW);
    if !is_empty(path)? {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    let mut marker = match OpenOptions::new().read(true).write(true).create_new(true).open(&new) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        made => made?,
    };
    let mut settle = || {
        // The directory may have been filled since, and even be whole.
        if !is_empty(path)? {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        marker.try_lock()?;
        writeln!(marker, "{}", process::id())?;
        marker.sync_all()?;
        fs::rename(&new, path.join(UNFINISHED))?;
        sync(path)
    };
    match settle() {
        Ok(()) => Ok(marker),
        Err(error) => {
            let _ = fs::remove_file(&new);
            Err(error)
        }
    }
}

/// Whether a directory holds nothing but a marker that has no name yet.
fn is_empty(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        if entry?.file_name() != NEW {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Empties a directory, the marker last: whenever this is broken off, what is left says that it is not whole.
fn clear(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == UNFINISHED {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    fs::remove_file(path.join(UNFINISHED))
}

fn marker(path: &Path) -> Option<File> {
    // Whatever has that name is not waited for, nor followed.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags).open(path.join(UNFINISHED)).ok()
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::log::data_dir::DataDir;
    use crate::log::data_dir::refusal::LockError;

    /// A directory that a killed process has left: nobody locks its marker.
    fn dead(path: &Path) {
        fs::create_dir_all(path.join("shard-0000")).unwrap();
        fs::write(path.join("shard-0000/0.seg"), "x").unwrap();
        fs::write(path.join(UNFINISHED), "1\n").unwrap();
    }

    #[test]
    fn a_directory_is_filled_whole_or_is_as_before() {
        let home = tempfile::tempdir().unwrap();
        let (made, empty) = (home.path().join("one/made"), home.path().join("empty"));
        fs::create_dir(&empty).unwrap();
        for path in [&made, &empty] {
            let filling = Filling::begin(path).unwrap();
            fs::create_dir(path.join("shard-0000")).unwrap();
            assert_eq!(standing(path), Some(Standing::InUse(Some(process::id()))));
            assert!(!discard(path).unwrap(), "its process lives");
            drop(filling);
        }
        assert!(!made.exists());
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
        for path in [&made, &empty] {
            let filling = Filling::begin(path).unwrap();
            fs::write(path.join("word"), "whole").unwrap();
            filling.finish().unwrap();
            assert_eq!((standing(path), discard(path).unwrap()), (None, false));
            let error = Filling::begin(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
            assert_eq!(fs::read_to_string(path.join("word")).unwrap(), "whole");
            assert_eq!(fs::read_dir(path).unwrap().count(), 1);
        }
    }

    #[test]
    fn of_many_that_would_fill_one_directory_at_once_one_does() {
        for round in 0..50 {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("data");
            if round % 2 == 0 {
                fs::create_dir(&path).unwrap();
            }
            let whole: usize = std::thread::scope(|scope| {
                let fill = || match Filling::begin(&path) {
                    Ok(filling) => {
                        fs::write(path.join("word"), "whole").unwrap();
                        filling.finish().unwrap();
                        1
                    }
                    Err(_) => 0,
                };
                let all: Vec<_> = (0..4).map(|_| scope.spawn(fill)).collect();
                all.into_iter().map(|one| one.join().unwrap()).sum()
            });
            assert_eq!(whole, 1);
            assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        }
    }

    #[test]
    fn what_is_not_whole_is_no_data_directory() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        drop(DataDir::open(&path, 1).unwrap());
        dead(&path);
        assert_eq!(left_in(home.path()).unwrap(), std::slice::from_ref(&path));
        let errors = [
            DataDir::found(&path).err(),
            DataDir::open(&path, 1).err(),
            DataDir::about(&path).err(),
            DataDir::check(&path).err(),
        ];
        for error in errors {
            assert!(matches!(error, Some(LockError::Incomplete { .. })), "{error:?}");
        }
        assert!(discard(&path).unwrap() && !path.exists());
    }

    #[test]
    fn what_a_killed_backup_has_pinned_goes_at_the_next_start() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path();
        drop(DataDir::open(data, 1).unwrap());
        let (left, own) = (data.join("backup-pins-1"), data.join("backup-pins"));
        dead(&left);
        // A directory without a marker may be anybody's; no name counts.
        fs::create_dir(&own).unwrap();
        fs::write(own.join("photo"), "x").unwrap();
        let alive = Filling::begin_pins(data).unwrap();
        drop(DataDir::open(data, 1).unwrap());
        assert_eq!((left.exists(), alive.path().exists()), (false, true));
        assert!(own.join("photo").exists());
    }
}
