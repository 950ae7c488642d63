//! Facts that the files of a data directory give by themselves: which shards lie there, and for which directory their
//! segments were made. The manifest must agree with that before anything is removed on its word, and can be written
//! anew from it when it is lost.
//!
//! Knows names and headers of segments, and whether there is a record; not what is in it.

use super::layout::{shard_of, shard_path};
use super::manifest::About;
use super::refusal::{LockError, io_error};
use crate::log::disk::regular;
use crate::log::format::address::SEGMENT_HEADER_BYTES;
use crate::log::format::segment::{EXTENSION, SegmentHeader};
use crate::log::offline::inspection::{InspectError, Seen, Subject};
use crate::log::offline::verify::inspect;
use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The files of segments in the directory of a shard, oldest first; none if there is no such directory.
pub(crate) fn segments(directory: &Path) -> Result<Vec<PathBuf>, LockError> {
    let here = |source| io_error(directory, source);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(here(source)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(here)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(EXTENSION) {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The shards that lie in a directory with a segment each, in order.
pub(crate) fn shards(directory: &Path) -> Result<Vec<u16>, LockError> {
    let here = |source| io_error(directory, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(here)? {
        let path = entry.map_err(here)?.path();
        if let Some(shard) = shard_of(&path).filter(|_| path.is_dir())
            && !segments(&path)?.is_empty()
        {
            found.push(shard);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The id that the first intact header in the directory of a shard bears, and the file it is in.
pub(crate) fn recorded_id(directory: &Path) -> Result<Option<(u64, PathBuf)>, LockError> {
    for path in segments(directory)? {
        let mut page = Vec::new();
        let file = regular::open(&path).map_err(|source| io_error(&path, source))?;
        let read = file.take(SEGMENT_HEADER_BYTES).read_to_end(&mut page);
        read.map_err(|source| io_error(&path, source))?;
        if let Ok(header) = SegmentHeader::decode(&page) {
            return Ok(Some((header.log_id, path)));
        }
    }
    Ok(None)
}

/// Whether the log of a shard holds a record, or may have held one: where something is wrong with it, nothing says that it
/// did not.
pub(crate) fn holds_records(directory: &Path, shard: u16, log_id: u64) -> Result<bool, LockError> {
    let path = shard_path(directory, shard);
    let mut found = false;
    let subject = Subject { directory: &path, shard, log_id, is_begun: false, until: None };
    let looked = inspect(subject, |seen| {
        found |= matches!(seen, Seen::Record { .. });
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match looked {
        Ok(inspection) => Ok(found || !inspection.damages.is_empty()),
        // A server that writes to it has begun it.
        Err(InspectError::Moved) => Ok(true),
        Err(InspectError::Failed(error)) => Err(io_error(&path, io::Error::other(error))),
    }
}

/// Whether no segment in the directory of a shard was made for another directory than that with this id.
pub(crate) fn must_have_id(directory: &Path, id: u64) -> Result<(), LockError> {
    match recorded_id(directory)? {
        Some((found, path)) if found != id => Err(LockError::Stranger { path }),
        _ => Ok(()),
    }
}

/// Derives shards and id of a directory from all segments; none if they contradict each other, or there are none.
pub(crate) fn about(directory: &Path) -> Result<Option<About>, LockError> {
    let shards = shards(directory)?;
    let mut id = None;
    for &shard in &shards {
        let Some((found, _)) = recorded_id(&shard_path(directory, shard))? else {
            continue;
        };
        if *id.get_or_insert(found) != found {
            return Ok(None);
        }
    }
    let last = shards.last().and_then(|last| last.checked_add(1));
    // Mark the logs as begun: a log that is not there counts as missing.
    Ok(last.zip(id).map(|(shards, id)| About { shards, id, is_begun: true }))
}
