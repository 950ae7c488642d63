//! The data directory: who may use it, and what it was made for.
//!
//! Knows two small files, `LOCK` and `MANIFEST`; nothing of the segments beside them.
//!
//! | file | responsibility |
//! |---|---|
//! | `inventory` | what its files say of that |
//! | `check` | what a start and the tools demand before they touch anything |
//! | `claim` | who owns the directory |
//! | `durable` | directories that the power does not take |
//! | `identity` | files and directories by device and inode |
//! | `layout` | names in it |
//! | `manifest` | how many shards it has |
//! | `next_shards` | other shards, made inside, that take the place of these |
//! | `refusal` | why it cannot be used, in words |
//! | `watch` | whether the files are still where the next start looks |

pub(super) mod check;
pub(super) mod claim;
pub(super) mod durable;
pub(super) mod identity;
pub(super) mod inventory;
pub(super) mod layout;
pub(super) mod manifest;
pub(super) mod next_shards;
pub(super) mod refusal;
pub(super) mod watch;

use super::offline::filling;
use super::offline::replace_shards;
use super::offline::replace_shards::Moving;
use crate::privileges::User;
use claim::{Claim, KeptOut};
use durable::{make_directory, sync_name};
use identity::{Identity, new_id};
use layout::{NEXT, shard_path};
use manifest::{About, Manifest};
use refusal::{LockError, io_error};
use std::io;
use std::path::{Path, PathBuf};

/// A data directory that belongs to this process as long as the value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    manifest: Manifest,
    leftover: Option<Leftover>,
    claim: Claim,
}

/// The work of a start that broke off while it changed the number of shards, and how it was put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// New shards that were not complete were removed.
    Discarded,
    /// New shards that were complete were moved to their places.
    Moved,
}

impl DataDir {
    /// Takes the directory, making it for `shards` shards if it does not exist. One that was made for
    /// another number keeps that number: see [`DataDir::shards`] and [`DataDir::begin_next`].
    pub fn open(path: &Path, shards: u16) -> Result<Self, LockError> {
        make_directory(path).map_err(|source| io_error(path, source))?;
        check::is_no_copy(path)?;
        let claim = Claim::take(path)?;
        filling::discard_pins(path);
        let (manifest, leftover) = match check::found(path)? {
            None => {
                sync_name(path).map_err(|source| io_error(path, source))?;
                let id = new_id().map_err(|source| io_error(path, source))?;
                let manifest = Manifest::of(shards, id, false);
                manifest.write(path)?;
                (manifest, None)
            }
            Some(manifest) if manifest.moving => {
                let mut moving = Moving::resume(path, manifest)?;
                while moving.step()? {}
                let manifest = Manifest { moving: false, before: None, ..manifest };
                check::check_shards(path, manifest)?;
                (manifest, Some(Leftover::Moved))
            }
            Some(manifest) => {
                (manifest, replace_shards::discard(path)?.then_some(Leftover::Discarded))
            }
        };
        Ok(Self { path: path.into(), manifest, leftover, claim })
    }

    /// Keeps servers out of a directory that is there as long as the value lives. Changes nothing in it.
    pub fn keep_out(path: &Path) -> Result<KeptOut, LockError> {
        claim::keep_out(path)
    }

    /// Reads the manifest of a directory. Takes nothing.
    pub fn about(path: &Path) -> Result<About, LockError> {
        let Manifest { shards, id, begun: is_begun, .. } = check::settled(path)?;
        Ok(About { shards, id, is_begun })
    }

    /// Why a start would refuse a directory that nobody uses, before it reads the logs. Takes and changes nothing.
    pub fn check(path: &Path) -> Result<(), LockError> {
        if !path.exists() {
            return Ok(());
        }
        check::is_no_copy(path)?;
        claim::can_be_taken(path)?;
        match check::found(path)? {
            Some(manifest) if !manifest.moving => check::can_be_written(path, manifest),
            _ => Ok(()),
        }
    }

    /// Gives `path` the manifest of a copy. A shard of it may be empty, unless all are said to have begun their logs.
    pub fn describe_copy(path: &Path, about: About) -> Result<(), LockError> {
        let About { shards, id, is_begun } = about;
        Manifest::of(shards, id, is_begun).write(path)
    }

    /// Facts that the segments give about a directory whose manifest is lost, or is not what was written; none if they
    /// do not agree, or the manifest is good. Takes nothing.
    pub fn found(path: &Path) -> Result<Option<About>, LockError> {
        check::must_be_finished(path)?;
        match Manifest::read(path) {
            // Shards that wait to take their places may hold more, and nobody can tell how much.
            Ok(None) | Err(LockError::Manifest { .. }) if replace_shards::is_begun(path)? => {
                Ok(None)
            }
            Ok(None) | Err(LockError::Manifest { .. }) if path.is_dir() => inventory::about(path),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a process has locked the directory at the moment. The question itself locks nothing.
    pub fn is_held(path: &Path) -> Result<bool, LockError> {
        claim::is_taken(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Id of the directory, which tells it from all others: every segment bears it, and a copy has it as well.
    pub fn id(&self) -> u64 {
        self.manifest.id
    }

    /// Device and inode of the directory, which tell it from its copies, too, and stay when it is renamed.
    pub fn identity(&self) -> io::Result<Identity> {
        self.claim.identity()
    }

    /// How many shards share it.
    pub fn shards(&self) -> u16 {
        self.manifest.shards
    }

    /// All its shards have begun their logs: one that has none has lost it.
    pub fn is_begun(&self) -> bool {
        self.manifest.begun
    }

    /// From now on all shards are known to have begun their logs, or any of them may not have.
    pub fn set_begun(&mut self, begun: bool) -> Result<(), LockError> {
        if self.manifest.begun != begun {
            let manifest = Manifest { begun, ..self.manifest };
            manifest.write(&self.path)?;
            self.manifest = manifest;
        }
        Ok(())
    }

    /// How the work that an earlier start had left was put right at the opening; none if there was none.
    pub fn leftover(&self) -> Option<Leftover> {
        self.leftover
    }

    /// Takes another manifest as that of the directory from now on.
    pub(super) fn adopt(&mut self, manifest: Manifest) {
        self.manifest = manifest;
    }

    /// A number for a directory, that no other one has.
    pub fn fresh_id() -> io::Result<u64> {
        new_id()
    }
}

/// Whose shards lie in a directory, or are on their way to their places there. A server of root makes its own, also where
/// another user has made the directory for it.
pub fn user_of_shards(directory: &Path) -> Option<User> {
    let shards = [shard_path(directory, 0), directory.join(NEXT)];
    shards.iter().find_map(|path| User::owning_name(path).ok())
}

/// The user of a directory: the one whose shards lie there; of one without shards, or into which this user may not look, the
/// owner.
pub fn user_of(directory: &Path) -> io::Result<User> {
    user_of_shards(directory).map_or_else(|| User::owning(directory), Ok)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::layout::BACKUP_MARKER;
    use super::*;
    use std::fs;
    use std::process;

    #[test]
    fn a_second_server_is_refused_and_told_who_holds_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let held = DataDir::open(&data, 4).unwrap();
        let error = DataDir::open(&data, 4).unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", process::id())), "{error}");
        drop(held);
        DataDir::open(&data, 4).unwrap();
    }

    #[test]
    fn a_backup_is_not_served() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), 1).unwrap());
        fs::write(dir.path().join(BACKUP_MARKER), "version = 1\n").unwrap();
        let error = DataDir::open(dir.path(), 1).unwrap_err().to_string();
        assert!(error.contains("is a backup") && error.contains("corq restore"), "{error}");
    }

    #[test]
    fn a_directory_keeps_its_number_of_shards() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), 4).unwrap());
        let data = DataDir::open(dir.path(), 8).unwrap();
        assert_eq!((data.shards(), data.leftover()), (4, None));
    }

    #[test]
    fn what_a_shard_has_begun_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let mut data = DataDir::open(path, 2).unwrap();
        assert!(!data.is_begun());
        drop(data);
        // A first start may end anywhere.
        fs::create_dir(shard_path(path, 1)).unwrap();
        data = DataDir::open(path, 2).unwrap();
        fs::create_dir(shard_path(path, 0)).unwrap();
        let segments = [0, 1].map(|shard| shard_path(path, shard).join("0.seg"));
        for segment in &segments {
            fs::write(segment, "x").unwrap();
        }
        data.set_begun(true).unwrap();
        drop(data);
        assert!(DataDir::open(path, 2).unwrap().is_begun());
        for segment in &segments {
            let shard = segment.parent().unwrap();
            fs::remove_file(segment).unwrap();
            fs::write(shard.join("1.spare"), "x").unwrap();
            let error = DataDir::open(path, 2).unwrap_err();
            assert!(matches!(&error, LockError::Lost { path, .. } if path == shard), "{error}");
            fs::remove_dir_all(shard).unwrap();
            // Another number of shards does not hide it.
            let error = DataDir::open(path, 1).unwrap_err();
            assert!(matches!(&error, LockError::Lost { path, .. } if path == shard), "{error}");
            fs::create_dir(shard).unwrap();
            fs::write(segment, "x").unwrap();
        }
        let Manifest { id, .. } = Manifest::read(path).unwrap().unwrap();
        Manifest::of(2, id, false).write(path).unwrap();
        fs::remove_dir_all(shard_path(path, 1)).unwrap();
        assert!(!DataDir::open(path, 2).unwrap().is_begun());
    }

    #[test]
    fn each_directory_has_an_id_of_its_own_that_stays() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = |dir: &tempfile::TempDir| DataDir::open(dir.path(), 2).unwrap().id();
        assert_eq!(id(&one), id(&one));
        assert_ne!(id(&one), id(&other));
    }
}
