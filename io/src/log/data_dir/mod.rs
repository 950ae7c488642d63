//! The data directory: who may use it, and what it was made for.
//!
//! Knows two small files, `LOCK` and `MANIFEST`; nothing of the segments beside them.
//!
//! | file | responsibility |
//! |---|---|
//! | `inventory` | what its files say of that |
//! | `check` | what a start and the tools demand before they touch anything |
//! | `claim` | who owns the directory |
//! | `identity` | files and directories by device and inode |
//! | `layout` | names in it |
//! | `manifest` | how many shards it has |
//! | `next_shards` | other shards, made inside, that take the place of these |
//! | `owner` | owner and group of what is replaced |
//! | `refusal` | why it cannot be used, in words |
//! | `watch` | whether the files are still where the next start looks |

pub(super) mod check;
pub(super) mod claim;
pub(super) mod identity;
pub(super) mod inventory;
pub(super) mod layout;
pub(super) mod manifest;
pub(super) mod next_shards;
pub(super) mod owner;
pub(super) mod refusal;
pub(super) mod watch;

use super::offline::draft;
use super::offline::draft::{Left, Standing};
use super::offline::replace_shards;
use super::offline::replace_shards::Moving;
use claim::Claim;
use identity::{Identity, new_id};
use manifest::{About, Manifest};
use refusal::{LockError, io_error};
use std::fs::{self, File};
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

/// What a start has left that was broken off while it changed the number of shards.
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
        discard_drafts(path);
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

    /// Takes a directory that is there, of however many shards.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        draft::must_not_be(path)?;
        check::settled(path)?;
        let claim = Claim::take(path)?;
        let manifest = check::settled(path)?;
        Ok(Self { path: path.into(), manifest, leftover: None, claim })
    }

    /// What the manifest of a directory says. Takes nothing.
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

    /// What the segments say about a directory whose manifest is lost, or is not what was written; none if they do not
    /// agree, or the manifest is good. Takes nothing.
    pub fn found(path: &Path) -> Result<Option<About>, LockError> {
        match Manifest::read(path) {
            // What waits to take its place is of the directory as well, and nobody can tell how much of it.
            Ok(None) | Err(LockError::Manifest { .. }) if replace_shards::is_begun(path)? => {
                Ok(None)
            }
            Ok(None) | Err(LockError::Manifest { .. }) if path.is_dir() => inventory::about(path),
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a directory that nobody uses the manifest that [`DataDir::found`] has told of.
    pub fn describe(path: &Path, about: About) -> Result<(), LockError> {
        draft::must_not_be(path)?;
        let _claim = Claim::take(path)?;
        if replace_shards::is_begun(path)? {
            return Err(LockError::BrokenOff { path: path.into() });
        }
        let About { shards, id, is_begun } = about;
        Manifest::of(shards, id, is_begun).write(path)
    }

    /// Whether a process has locked the directory at the moment. The question itself locks nothing.
    pub fn is_held(path: &Path) -> Result<bool, LockError> {
        claim::is_taken(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells it from all others: every segment bears it. A copy of the directory has it as well.
    pub fn id(&self) -> u64 {
        self.manifest.id
    }

    /// What tells it from its copies, too, and stays when it is renamed.
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

    /// What an earlier start had left, and was put right when it was opened.
    pub fn leftover(&self) -> Option<Leftover> {
        self.leftover
    }

    /// It is another manifest's from now on.
    pub(super) fn adopt(&mut self, manifest: Manifest) {
        self.manifest = manifest;
    }

    /// A number for a directory, that no other one has.
    pub fn fresh_id() -> io::Result<u64> {
        new_id()
    }
}

/// Makes a directory, with those above it, so that none of them goes with the power.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    fs::create_dir_all(path)?;
    // Of a relative path the last of them is empty: where the process is.
    missing.into_iter().filter(|made| !made.as_os_str().is_empty()).try_for_each(sync_name)
}

/// Makes the name of a directory durable, as far as that is ours to do.
fn sync_name(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        None => return Ok(()),
        Some(here) if here.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    match File::open(above) {
        Ok(directory) => directory.sync_all(),
        // Where we may not look, another user has made the directory for us.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what backups, restores and repairs of a directory have left that were killed. What cannot be removed, or lies on
/// another file system, which may not answer, stays until the next one: nobody has to start without the server for it.
fn discard_drafts(directory: &Path) {
    for Left { path, standing } in draft::drafts_in(directory).unwrap_or_default() {
        let Standing::Dead(said) = standing else { continue };
        let of_pins = draft::draft_of_pins(&path);
        if of_pins.is_some() && !said.linked {
            let _ = draft::let_go(&path);
            continue;
        }
        let gone = of_pins.is_none_or(|of| draft::discard(&of).is_ok());
        if gone {
            let _ = draft::discard(&path);
        }
    }
    let real = fs::canonicalize(directory).unwrap_or_else(|_| directory.into());
    let (Some(above), Some(name)) = (real.parent(), real.file_name()) else { return };
    for Left { path, standing } in draft::drafts_in(above).unwrap_or_default() {
        if matches!(standing, Standing::Dead(said) if said.is_for(name)) {
            let _ = draft::discard(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::layout::{BACKUP_MARKER, PINS, shard_path};
    use super::*;
    use crate::log::offline::draft::{DRAFT_MARKER, Draft, Label};
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
        DataDir::take(dir.path()).unwrap();
    }

    /// A draft whose process has gone: one that is put beside it, with its name and a marker that nobody holds.
    fn dead(draft: Draft) -> PathBuf {
        let path = draft.path().to_path_buf();
        let marker = fs::read(path.join(DRAFT_MARKER)).unwrap();
        let link = draft::draft_of_pins(&path);
        drop(draft);
        fs::create_dir_all(path.join("shard-0000")).unwrap();
        fs::write(path.join("shard-0000/0.seg"), "x").unwrap();
        fs::write(path.join(DRAFT_MARKER), marker).unwrap();
        if let Some(link) = link {
            std::os::unix::fs::symlink(link, path.join("draft")).unwrap();
        }
        path
    }

    fn label(purpose: &str, target: &str, linked: bool) -> Label {
        Label { purpose: purpose.into(), target: target.into(), linked }
    }

    #[test]
    fn what_a_killed_backup_has_pinned_goes_at_the_next_start() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("data");
        drop(DataDir::open(&data, 1).unwrap());
        for linked in [true, false] {
            let draft = Draft::begin(home.path(), &label("backup", "monday", linked)).unwrap();
            let pins = Draft::begin(&data, &label("pins", PINS, linked)).unwrap();
            pins.belongs_to(&draft).unwrap();
            // One that is being made keeps what it has pinned.
            drop(DataDir::open(&data, 1).unwrap());
            assert!(pins.path().exists() && draft.path().exists());
            let (pins, draft) = (dead(pins), dead(draft));
            drop(DataDir::open(&data, 1).unwrap());
            // A draft that holds nothing of the server's stays, and what says where it is.
            assert_eq!((pins.exists(), draft.exists()), (!linked, !linked));
            assert!(!pins.join("shard-0000").exists());
        }
        // What has no marker may be anybody's; it is not the name that counts.
        let own = data.join(PINS);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("photo"), "x").unwrap();
        drop(DataDir::open(&data, 1).unwrap());
        assert!(own.join("photo").exists());
    }

    #[test]
    fn what_a_killed_restore_has_begun_goes_at_the_start_on_its_place() {
        let home = tempfile::tempdir().unwrap();
        let drafts = ["data", "other"].map(|target| {
            dead(Draft::begin(home.path(), &label("restore", target, false)).unwrap())
        });
        drop(DataDir::open(&home.path().join("data"), 1).unwrap());
        assert_eq!(drafts.map(|draft| draft.exists()), [false, true]);
    }

    #[test]
    fn directories_are_made_with_those_above_them() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("one/two/three");
        make_directory(&path).unwrap();
        make_directory(&path).unwrap();
        assert!(path.is_dir());
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
        DataDir::take(path).unwrap().set_begun(false).unwrap();
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
