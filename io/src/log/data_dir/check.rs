//! Checks that a start, and the tools, make of a data directory before they touch anything in it.
//!
//! Knows the manifest and which shards lie there; what is in their logs is judged when those are read.

use super::inventory;
use super::layout::{BACKUP_MARKER, MANIFEST, shard_path};
use super::manifest::Manifest;
use super::refusal::{LockError, io_error};
use crate::log::disk::regular;
use crate::log::offline::filling;
use crate::log::offline::replace_shards;
use crate::log::offline::replace_shards::Moving;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Whether it is whole, and no copy that was broken off.
pub(crate) fn must_be_finished(path: &Path) -> Result<(), LockError> {
    if filling::is_unfinished(path) {
        return Err(LockError::Incomplete { path: path.into() });
    }
    Ok(())
}

/// Whether it is meant to be served at all.
pub(crate) fn is_no_copy(path: &Path) -> Result<(), LockError> {
    must_be_finished(path)?;
    if path.join(BACKUP_MARKER).exists() {
        return Err(LockError::Backup { path: path.into() });
    }
    Ok(())
}

/// The manifest that a start finds, with which all that lies there agrees; none in a directory without shards. A move
/// of shards can be gone on with.
pub(crate) fn found(path: &Path) -> Result<Option<Manifest>, LockError> {
    match replace_shards::manifest(path)? {
        None if !inventory::shards(path)?.is_empty() => {
            Err(LockError::NoManifest { path: path.into() })
        }
        None => Ok(None),
        Some(manifest) if manifest.moving => {
            Moving::resume(path, manifest)?;
            Ok(Some(manifest))
        }
        Some(manifest) => {
            // Before anything goes: a manifest of another time may know nothing of what is under way.
            replace_shards::check_discard(path, manifest)?;
            check_shards(path, manifest)?;
            Ok(Some(manifest))
        }
    }
}

/// Whether this user may write to the files that a start writes to, and make others beside them.
pub(crate) fn can_be_written(directory: &Path, manifest: Manifest) -> Result<(), LockError> {
    takes_files(directory)?;
    for shard in 0..manifest.shards {
        let directory = shard_path(directory, shard);
        if !directory.exists() {
            continue;
        }
        takes_files(&directory)?;
        for path in inventory::segments(&directory)? {
            regular::open_to_change(&path).map_err(|source| io_error(&path, source))?;
        }
    }
    Ok(())
}

/// Whether this user may make files in a directory, tried with one that gets no name.
fn takes_files(directory: &Path) -> Result<(), LockError> {
    let mut nameless = OpenOptions::new();
    match nameless.write(true).custom_flags(libc::O_TMPFILE).open(directory) {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            // Not every file system has such files.
            Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT | libc::EINVAL) => Ok(()),
            _ => Err(io_error(directory, error)),
        },
    }
}

/// The manifest of a directory whose shards are in their places.
pub(crate) fn settled(path: &Path) -> Result<Manifest, LockError> {
    must_be_finished(path)?;
    match replace_shards::manifest(path)? {
        None if path.is_dir() && !inventory::shards(path)?.is_empty() => {
            Err(LockError::NoManifest { path: path.into() })
        }
        None => Err(LockError::Missing { path: path.into() }),
        Some(Manifest { moving: true, .. }) => Err(LockError::Unfinished { path: path.into() }),
        Some(manifest) => {
            replace_shards::check_discard(path, manifest)?;
            no_surplus(path, manifest.shards)?;
            no_deficit(path, manifest)?;
            Ok(manifest)
        }
    }
}

/// Whether all shards that have been begun are there, with a segment at least, and no others; and whether they are
/// those that the manifest is of.
pub(crate) fn check_shards(directory: &Path, manifest: Manifest) -> Result<(), LockError> {
    no_surplus(directory, manifest.shards)?;
    no_deficit(directory, manifest)?;
    for shard in 0..manifest.shards {
        let path = shard_path(directory, shard);
        if manifest.begun && inventory::segments(&path)?.is_empty() {
            let gone = !path.exists();
            let what = if gone { "the directory is missing" } else { "all segments are missing" };
            return Err(LockError::Lost { path, what });
        }
        inventory::must_have_id(&path, manifest.id)?;
    }
    Ok(())
}

/// Whether no shard lies there beyond those that there are by the manifest.
fn no_surplus(directory: &Path, shards: u16) -> Result<(), LockError> {
    match inventory::shards(directory)?.into_iter().find(|&shard| shard >= shards) {
        None => Ok(()),
        Some(shard) => Err(LockError::Surplus { path: shard_path(directory, shard), shards }),
    }
}

/// Whether all shards are there, of a manifest whose number nothing vouches for. Shards that a first start has not
/// come to are none to miss: it was broken off before any of them had a record.
fn no_deficit(directory: &Path, manifest: Manifest) -> Result<(), LockError> {
    if manifest.sealed || manifest.begun {
        return Ok(());
    }
    let there = inventory::shards(directory)?;
    if there.len() == usize::from(manifest.shards) {
        return Ok(());
    }
    for &shard in &there {
        if inventory::holds_records(directory, shard, manifest.id)? {
            let (path, shards) = (directory.join(MANIFEST), manifest.shards);
            return Err(LockError::Fewer { path, shards, there: there.len() });
        }
    }
    Ok(())
}
