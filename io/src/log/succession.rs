//! Other shards in place of those that a data directory has.
//!
//! The new ones are made in a directory of their own inside, `next-shards`. As long as the manifest does not
//! speak of them they are nobody's, and removed at the next start. Once it does, they are the only
//! ones: each moves to its place in turn, and the old one there is removed before. Whenever that is
//! broken off, what is left of it can be seen from what lies where, and the next start goes on with it.
//!
//! Knows directories and the manifest; not what is in a log.

use super::lock::{DataDir, LockError, io_error, new_id};
use super::manifest::Manifest;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const NEXT: &str = "next-shards";

/// A place for other shards, of which nobody knows yet.
#[derive(Debug)]
pub struct Next {
    path: PathBuf,
    id: u64,
}

impl Next {
    /// Where their directories go, as those of a data directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What their segments must bear. Not what the old ones bear: neither is ever taken for the other.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// Removes what an attempt that came to nothing has left. True if there was any.
pub(super) fn discard(directory: &Path) -> Result<bool, LockError> {
    let path = directory.join(NEXT);
    match fs::remove_dir_all(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(io_error(&path, source)),
    }
    sync(directory)?;
    Ok(true)
}

fn sync(path: &Path) -> Result<(), LockError> {
    File::open(path).and_then(|it| it.sync_all()).map_err(|source| io_error(path, source))
}

/// Makes all files of a directory durable, their names and its own included.
fn sync_all(directory: &Path) -> Result<(), LockError> {
    let entries = fs::read_dir(directory).map_err(|source| io_error(directory, source))?;
    for entry in entries {
        let path = entry.map_err(|source| io_error(directory, source))?.path();
        if path.is_dir() { sync_all(&path)? } else { sync(&path)? }
    }
    sync(directory)
}

impl DataDir {
    /// Makes an empty place for other shards. What an earlier attempt has left there is removed.
    pub fn begin_next(&self) -> Result<Next, LockError> {
        discard(self.path())?;
        let path = self.path().join(NEXT);
        let make = || {
            fs::create_dir(&path)?;
            new_id()
        };
        let id = make().map_err(|source| io_error(&path, source))?;
        sync(self.path())?;
        Ok(Next { path, id })
    }

    /// The attempt has come to nothing.
    pub fn discard_next(&self, next: Next) -> Result<(), LockError> {
        drop(next);
        discard(self.path()).map(|_| ())
    }

    /// The `shards` shards in `next`, whose logs are complete, take the place of those there are. After
    /// that there is no way back; the steps that remain are the caller's to take.
    pub fn succeed(&mut self, next: &Next, shards: u16) -> Result<Moving, LockError> {
        sync_all(&next.path)?;
        let manifest = Manifest { shards, id: next.id, moving: true, begun: true };
        manifest.write(self.path())?;
        self.adopt(manifest);
        Ok(Moving::new(self.path(), manifest))
    }
}

/// Shards on their way to their places.
#[derive(Debug)]
pub struct Moving {
    directory: PathBuf,
    next: PathBuf,
    manifest: Manifest,
    /// Shards before this one are in their places.
    at: u16,
}

impl Moving {
    pub(super) fn new(directory: &Path, manifest: Manifest) -> Self {
        let next = directory.join(NEXT);
        Self { directory: directory.into(), next, manifest, at: 0 }
    }

    /// Removes or moves one directory. False when all is in its place.
    pub fn step(&mut self) -> Result<bool, LockError> {
        while self.at < self.manifest.shards {
            let from = DataDir::shard_path(&self.next, self.at);
            let to = DataDir::shard_path(&self.directory, self.at);
            if from.is_dir() {
                if to.is_dir() {
                    remove(&to)?;
                } else {
                    fs::rename(&from, &to).map_err(|source| io_error(&from, source))?;
                    self.at += 1;
                }
                return Ok(true);
            }
            if !to.is_dir() {
                return Err(io_error(&to, io::ErrorKind::NotFound.into()));
            }
            self.at += 1;
        }
        if let Some(old) = self.surplus()? {
            remove(&old)?;
            return Ok(true);
        }
        if self.next.is_dir() {
            // The moves must be on the disk before nothing tells of them any more.
            sync(&self.next)?;
            sync(&self.directory)?;
            fs::remove_dir(&self.next).map_err(|source| io_error(&self.next, source))?;
            return Ok(true);
        }
        sync(&self.directory)?;
        self.manifest.moving = false;
        self.manifest.write(&self.directory)?;
        Ok(false)
    }

    /// A directory of a shard that there is no more.
    fn surplus(&self) -> Result<Option<PathBuf>, LockError> {
        let here = |source| io_error(&self.directory, source);
        for entry in fs::read_dir(&self.directory).map_err(here)? {
            let path = entry.map_err(here)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let shard = name.as_deref().and_then(|name| name.strip_prefix("shard-")?.parse().ok());
            let own =
                shard.is_some_and(|shard| path == DataDir::shard_path(&self.directory, shard));
            if own && shard >= Some(self.manifest.shards) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

fn remove(path: &Path) -> Result<(), LockError> {
    fs::remove_dir_all(path).map_err(|source| io_error(path, source))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::lock::Leftover;
    use super::*;

    fn shard(directory: &Path, shard: u16, word: &str) {
        let path = DataDir::shard_path(directory, shard);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("word.seg"), word).unwrap();
    }

    fn words(directory: &Path) -> Vec<String> {
        let paths = (0..9).map(|shard| DataDir::shard_path(directory, shard).join("word.seg"));
        paths.filter_map(|path| fs::read_to_string(path).ok()).collect()
    }

    /// Broken off after every step, the old shards are there, or the new ones, and never some of both.
    #[test]
    fn whenever_it_ends_the_next_start_finds_the_old_shards_or_the_new_ones() {
        for (before, after) in [(2, 1), (2, 3), (2, 8), (8, 2), (3, 3)] {
            let mut steps = 0;
            loop {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path();
                let mut data = DataDir::open(path, before).unwrap();
                let old = data.id();
                (0..before).for_each(|it| shard(path, it, "old"));
                let next = data.begin_next().unwrap();
                let id = next.id();
                (0..after).for_each(|it| shard(next.path(), it, "new"));
                if steps == 0 {
                    drop(data);
                    let data = DataDir::open(path, after).unwrap();
                    assert_eq!((data.shards(), data.id()), (before, old));
                    assert_eq!(data.leftover(), Some(Leftover::Discarded));
                    assert!(
                        words(path) == vec!["old"; usize::from(before)] && !next.path().exists()
                    );
                    steps += 1;
                    continue;
                }
                let mut moving = data.succeed(&next, after).unwrap();
                let mut ended = false;
                for _ in 1..steps {
                    ended |= !moving.step().unwrap();
                }
                assert_eq!((data.shards(), data.id()), (after, id));
                drop(data);
                assert_eq!(
                    DataDir::about(path).is_ok(),
                    ended,
                    "tools wait until all is in its place"
                );
                let data = DataDir::open(path, before).unwrap();
                assert_eq!((data.shards(), data.id()), (after, id), "{steps} steps");
                assert_eq!(data.leftover(), (!ended).then_some(Leftover::Moved));
                assert_eq!(words(path), vec!["new"; usize::from(after)], "{steps} steps");
                assert!(!next.path().exists());
                let about = DataDir::about(path).unwrap();
                assert_eq!((about.shards, about.id, about.is_begun), (after, id, true));
                if ended {
                    break;
                }
                steps += 1;
            }
            assert!(steps > usize::from(after) + 2);
        }
    }

    #[test]
    fn a_shard_that_is_nowhere_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = DataDir::open(dir.path(), 1).unwrap();
        shard(dir.path(), 0, "old");
        let next = data.begin_next().unwrap();
        (0..2).for_each(|it| shard(next.path(), it, "new"));
        drop(data.succeed(&next, 2).unwrap());
        drop(data);
        fs::remove_dir_all(DataDir::shard_path(next.path(), 1)).unwrap();
        let error = DataDir::open(dir.path(), 2).unwrap_err().to_string();
        assert!(error.contains("shard-0001"), "{error}");
    }
}
