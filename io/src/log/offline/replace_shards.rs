//! Other shards in place of those that a data directory has.
//!
//! The new ones are made in a directory of their own inside, `next-shards`. As long as the manifest does not
//! speak of them they are nobody's, and removed at the next start. Once it does, they are the only
//! ones: each moves to its place in turn, and the old one there is removed before. Whenever that is
//! broken off, what is left of it can be seen from what lies where, and the next start goes on with it.
//!
//! Knows directories and the manifest; not what is in a log.

use crate::log::data_dir::inventory;
use crate::log::data_dir::layout::{NEXT, shard_of, shard_path};
use crate::log::data_dir::manifest::Manifest;
use crate::log::data_dir::refusal::{LockError, io_error};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Whether shards lie there, which may be all there is of what they hold.
pub(crate) fn is_begun(directory: &Path) -> Result<bool, LockError> {
    let next = directory.join(NEXT);
    Ok(next.is_dir() && !inventory::shards(&next)?.is_empty())
}

/// Whether what lies there is an attempt that came to nothing. While a log is copied, all shards are there, with what
/// the manifest is of; where that is not so, the new ones may be on their way.
pub(crate) fn check_discard(directory: &Path, manifest: Manifest) -> Result<(), LockError> {
    if !is_begun(directory)? {
        return Ok(());
    }
    for shard in 0..manifest.shards {
        let recorded_id = inventory::recorded_id(&shard_path(directory, shard))?;
        if recorded_id.is_none_or(|(id, _)| id != manifest.id) {
            return Err(LockError::BrokenOff { path: directory.into() });
        }
    }
    Ok(())
}

/// The manifest of a directory. Without one nobody can tell whether new shards have begun to take their places.
pub(crate) fn manifest(directory: &Path) -> Result<Option<Manifest>, LockError> {
    match Manifest::read(directory) {
        Ok(None) | Err(LockError::Manifest { .. }) if is_begun(directory)? => {
            Err(LockError::BrokenOff { path: directory.into() })
        }
        read => read,
    }
}

/// Removes what an attempt that came to nothing has left. True if there was any.
pub(crate) fn discard(directory: &Path) -> Result<bool, LockError> {
    let path = directory.join(NEXT);
    match fs::remove_dir_all(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(io_error(&path, source)),
    }
    sync(directory)?;
    Ok(true)
}

pub(crate) fn sync(path: &Path) -> Result<(), LockError> {
    File::open(path).and_then(|it| it.sync_all()).map_err(|source| io_error(path, source))
}

/// Makes all files of a directory durable, their names and its own included.
pub(crate) fn sync_all(directory: &Path) -> Result<(), LockError> {
    let entries = fs::read_dir(directory).map_err(|source| io_error(directory, source))?;
    for entry in entries {
        let path = entry.map_err(|source| io_error(directory, source))?.path();
        if path.is_dir() { sync_all(&path)? } else { sync(&path)? }
    }
    sync(directory)
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
    pub(crate) fn new(directory: &Path, manifest: Manifest) -> Self {
        let next = directory.join(NEXT);
        Self { directory: directory.into(), next, manifest, at: 0 }
    }

    /// Goes on with a move that was broken off. Nothing is touched unless all of the new shards are there: what the
    /// manifest says may not be what lies here.
    pub(crate) fn resume(directory: &Path, manifest: Manifest) -> Result<Self, LockError> {
        let moving = Self::new(directory, manifest);
        for shard in 0..manifest.shards {
            let from = shard_path(&moving.next, shard);
            let to = shard_path(directory, shard);
            let place = if from.is_dir() { from } else { to };
            match inventory::recorded_id(&place)? {
                Some((id, _)) if id == manifest.id => {}
                Some((_, path)) => return Err(LockError::Stranger { path }),
                None if place.is_dir() => {
                    let what = "no segment of it can be recognised";
                    return Err(LockError::Lost { path: place, what });
                }
                None => {
                    let what = "the directory is missing";
                    return Err(LockError::Lost { path: place, what });
                }
            }
        }
        // The word that they may take their places can be read, and may not be on the disk yet.
        sync(directory)?;
        Ok(moving)
    }

    /// Removes or moves one directory. False when all is in its place.
    pub fn step(&mut self) -> Result<bool, LockError> {
        while self.at < self.manifest.shards {
            let from = shard_path(&self.next, self.at);
            let to = shard_path(&self.directory, self.at);
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
        (self.manifest.moving, self.manifest.before) = (false, None);
        self.manifest.write(&self.directory)?;
        Ok(false)
    }

    /// A directory of a shard that there is no more.
    fn surplus(&self) -> Result<Option<PathBuf>, LockError> {
        let here = |source| io_error(&self.directory, source);
        // No others are this move's to remove. Earlier builds did not say how many there were.
        let Manifest { shards, before, .. } = self.manifest;
        let old = shards..before.unwrap_or(u16::MAX);
        for entry in fs::read_dir(&self.directory).map_err(here)? {
            let path = entry.map_err(here)?.path();
            if shard_of(&path).is_some_and(|shard| old.contains(&shard)) {
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
    use super::*;
    use crate::log::data_dir::{DataDir, Leftover};
    use crate::log::format::address::Position;
    use crate::log::format::salt::Salt;
    use crate::log::format::segment::SegmentHeader;

    fn header(shard: u16, log_id: u64) -> Vec<u8> {
        let header = SegmentHeader {
            shard,
            segment: 0,
            segment_bytes: 1 << 16,
            predecessor: None,
            synced: Position(0),
            oldest: Position(0),
            recycled: false,
            keeps_length: true,
            log_id,
            salt: Salt::NONE,
            before: None,
        };
        header.encode().to_vec()
    }

    /// A shard of the data directory with this id, and a word in it.
    fn shard(directory: &Path, shard: u16, id: u64, word: &str) {
        let path = shard_path(directory, shard);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("0000000000000000.seg"), header(shard, id)).unwrap();
        fs::write(path.join("word"), word).unwrap();
    }

    fn words(directory: &Path) -> Vec<String> {
        let paths = (0..9).map(|shard| shard_path(directory, shard).join("word"));
        paths.filter_map(|path| fs::read_to_string(path).ok()).collect()
    }

    /// All files below a directory, with what is in them.
    fn all(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.push((path.clone(), Vec::new()));
                found.extend(all(&path));
            } else if path.file_name().unwrap() != "LOCK" {
                found.push((path.clone(), fs::read(&path).unwrap()));
            }
        }
        found.sort();
        found
    }

    /// A change from `before` shards to `after` ones after so many steps.
    fn broken_off(path: &Path, before: u16, after: u16, steps: usize) -> u64 {
        let mut data = DataDir::open(path, before).unwrap();
        let old = data.id();
        (0..before).for_each(|it| shard(path, it, old, "old"));
        data.set_begun(true).unwrap();
        let next = data.begin_next().unwrap();
        (0..after).for_each(|it| shard(next.path(), it, next.id(), "new"));
        let mut moving = data.succeed(&next, after).unwrap();
        (0..steps).for_each(|_| assert!(moving.step().unwrap()));
        old
    }

    /// Refused with all left as it is.
    fn is_refused(path: &Path, shards: u16) -> LockError {
        let files = all(path);
        let error = DataDir::open(path, shards).unwrap_err();
        assert!(all(path) == files, "{error}");
        error
    }

    /// A manifest of another time, or with another number in it, is no word to remove a shard on.
    #[test]
    fn a_manifest_that_is_not_of_what_lies_there_removes_nothing() {
        for steps in 1..7 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path();
            let file = path.join("MANIFEST");
            let id = broken_off(path, 4, 2, steps);
            let said = fs::read(&file).unwrap();
            // As it was before the change, and that of another directory.
            for (id, begun) in [(id, true), (id, false), (id + 1, true), (id + 1, false)] {
                for shards in [2, 4] {
                    Manifest::of(4, id, begun).write(path).unwrap();
                    is_refused(path, shards);
                }
            }
            fs::remove_file(&file).unwrap();
            is_refused(path, 4);
            fs::write(&file, &said).unwrap();
            let data = DataDir::open(path, 2).unwrap();
            assert_eq!(
                (data.leftover(), words(path)),
                (Some(Leftover::Moved), vec!["new".into(); 2])
            );
        }
    }

    /// Nor is it what a repair may copy: the shards in their places are not all.
    #[test]
    fn what_a_move_has_not_placed_yet_is_kept_from_repairs() {
        for (before, after, steps) in [(1, 2, 2), (2, 1, 1), (4, 2, 3)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path();
            let id = broken_off(path, before, after, steps);
            let file = path.join("MANIFEST");
            let said = fs::read(&file).unwrap();
            let is_kept = |what: &str| {
                let files = all(path);
                for error in [DataDir::open(path, after).err(), DataDir::about(path).err()] {
                    let error = error.map(|it| it.to_string()).unwrap_or_default();
                    assert!(error.contains("change of the number of shards"), "{what}: {error}");
                }
                assert_eq!(DataDir::found(path).unwrap(), None, "{what}");
                assert!(all(path) == files, "{what}");
            };
            fs::remove_file(&file).unwrap();
            is_kept("lost");
            fs::write(&file, "version = 1\nshards").unwrap();
            is_kept("cut");
            Manifest::of(before, id, true).write(path).unwrap();
            is_kept("of before");
            // A shard that was made anew says nothing.
            let place = shard_path(path, 0);
            if !place.is_dir() {
                fs::create_dir(&place).unwrap();
                Manifest::of(before, id, false).write(path).unwrap();
                is_kept("empty");
                fs::remove_dir(&place).unwrap();
            }
            fs::write(&file, &said).unwrap();
            drop(DataDir::open(path, after).unwrap());
            assert_eq!(words(path), vec!["new"; usize::from(after)]);
        }
    }

    #[test]
    fn a_move_whose_new_shards_are_not_all_there_removes_nothing() {
        for steps in 0..6 {
            for (gone, is_all) in [(0, true), (1, false), (1, true)] {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path();
                broken_off(path, 4, 2, steps);
                let next = path.join(NEXT);
                let lost = shard_path(&next, gone);
                if !lost.is_dir() {
                    continue;
                }
                fs::remove_dir_all(if is_all { &next } else { &lost }).unwrap();
                is_refused(path, 2);
            }
        }
    }

    /// A directory that was laid there since is not ours to remove.
    #[test]
    fn a_move_removes_no_shard_that_it_does_not_replace() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        broken_off(path, 4, 2, 1);
        shard(path, 7, 99, "other");
        let error = DataDir::open(path, 2).unwrap_err();
        assert!(matches!(error, LockError::Surplus { .. }), "{error}");
        assert_eq!(words(path), ["new", "new", "other"]);
    }

    #[test]
    fn a_shard_more_or_a_number_less_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let mut data = DataDir::open(path, 4).unwrap();
        let id = data.id();
        (0..4).for_each(|it| shard(path, it, id, "old"));
        for begun in [false, true] {
            data.set_begun(begun).unwrap();
            drop(data);
            Manifest::of(2, id, begun).write(path).unwrap();
            for shards in [2, 4] {
                let error = is_refused(path, shards);
                assert!(matches!(error, LockError::Surplus { shards: 2, .. }), "{error}");
                assert!(DataDir::about(path).is_err());
            }
            Manifest::of(4, id, begun).write(path).unwrap();
            data = DataDir::open(path, 4).unwrap();
        }
    }

    #[test]
    fn what_a_manifest_said_that_is_lost_or_changed_the_segments_say() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        assert_eq!(DataDir::found(path).unwrap(), None);
        let mut data = DataDir::open(path, 3).unwrap();
        let id = data.id();
        (0..3).for_each(|it| shard(path, it, id, "old"));
        data.set_begun(true).unwrap();
        drop(data);
        let about = DataDir::about(path).unwrap();
        assert_eq!(DataDir::found(path).unwrap(), None, "it is good");
        let file = path.join("MANIFEST");
        let text = fs::read_to_string(&file).unwrap();
        for changed in [None, Some(text.replace("shards = 3", "shards = 2"))] {
            match changed {
                None => fs::remove_file(&file).unwrap(),
                Some(text) => fs::write(&file, text).unwrap(),
            }
            assert_eq!(DataDir::found(path).unwrap(), Some(about));
            is_refused(path, 3);
        }
        fs::remove_file(&file).unwrap();
        shard(path, 3, id + 1, "other");
        assert_eq!(DataDir::found(path).unwrap(), None, "they contradict each other");
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
                (0..before).for_each(|it| shard(path, it, old, "old"));
                let next = data.begin_next().unwrap();
                let id = next.id();
                (0..after).for_each(|it| shard(next.path(), it, id, "new"));
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
        shard(dir.path(), 0, data.id(), "old");
        let next = data.begin_next().unwrap();
        (0..2).for_each(|it| shard(next.path(), it, next.id(), "new"));
        drop(data.succeed(&next, 2).unwrap());
        drop(data);
        fs::remove_dir_all(shard_path(next.path(), 1)).unwrap();
        let error = DataDir::open(dir.path(), 2).unwrap_err().to_string();
        assert!(error.contains("shard-0001"), "{error}");
    }
}
