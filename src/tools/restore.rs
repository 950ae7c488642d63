//! A backup made a data directory again: copied beside its place, checked there to the last record, and
//! given its name only then. It is a directory of its own, with another number than that of the backup's server.

use std::fs;
use std::io;
use std::path::Path;

use corq_io::log::{About, DataDir, Position, Seen, Segment, give_id};
use corq_io::privileges::open_file;

use super::backup::{Summary, copy_file, lengthen};
use super::marker::Marker;
use super::place::{Fault, Place, at, sync};
use super::replay::Replay;
use super::target::Target;

/// Makes the backup `from` the data directory `to`, which must not exist, or be empty. `progress` counts
/// bytes, each twice: when it is copied and when it is checked.
pub fn restore(from: &Path, to: &Path, progress: &dyn Fn(u64)) -> Result<Summary, Fault> {
    let target = Target::of(to)?;
    let source = Place::of(from)?;
    let marker = {
        let _acting = source.act()?;
        Marker::read(from, source.shards)?
    };
    target.is_apart_from(from, "it would become a part of the backup")?;
    let draft = target.begin("restore", None)?;
    let id = DataDir::fresh_id().map_err(at(to))?;
    let summary = fill(&source, &marker, &target, draft.path(), id, progress)?;
    target.place(draft, Some(from))?;
    Ok(summary)
}

fn fill(
    source: &Place,
    marker: &Marker,
    target: &Target,
    draft: &Path,
    id: u64,
    progress: &dyn Fn(u64),
) -> Result<Summary, Fault> {
    let mut summary = Summary::default();
    let copy = Place { path: draft.into(), id, ..source.clone() };
    for shard in 0..source.shards {
        let (from, to) = (source.shard_path(shard), copy.shard_path(shard));
        {
            let _acting = target.act()?;
            fs::create_dir(&to).map_err(at(&to))?;
        }
        let end = marker.ends[usize::from(shard)];
        let entries = {
            let _acting = source.act()?;
            let entries = fs::read_dir(&from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            entries.map_err(at(&from))?
        };
        for entry in entries {
            let (path, copy) = (entry.path(), to.join(entry.file_name()));
            if path.extension().is_none_or(|it| it != "seg") {
                continue;
            }
            let (file, bytes) = {
                let _acting = source.act()?;
                let file = open_file(&path).map_err(at(&path))?;
                let bytes = file.metadata().map_err(at(&path))?.len();
                (file, bytes)
            };
            let used = used_bytes(&path, bytes, end);
            let _acting = target.act()?;
            copy_file(&file, &path, &copy, used)?;
            if used < bytes {
                lengthen(&copy, bytes)?;
            }
            give_id(&copy, source.id, id).map_err(at(&copy))?;
            progress(bytes);
            summary.segments += 1;
            summary.bytes += used;
        }
        let _acting = target.act()?;
        sync(&to)?;
        check(&copy, shard, Position(end), progress)?;
    }
    let about =
        About { shards: source.shards, id, is_begun: marker.ends.iter().all(|&end| end != 0) };
    let _acting = target.act()?;
    DataDir::describe_copy(draft, about).map_err(Fault::from)?;
    Ok(summary)
}

/// Bytes of a file up to where the log ends, if it ends in this file, which has its full length then.
fn used_bytes(path: &Path, bytes: u64, end: u64) -> u64 {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match u64::from_str_radix(&stem, 16) {
        Ok(number) if bytes > 0 && end / bytes == number => end % bytes,
        _ => bytes,
    }
}

/// Whether a start would take a shard's log, and find in it what the backup had.
fn check(copy: &Place, shard: u16, end: Position, progress: &dyn Fn(u64)) -> Result<(), Fault> {
    let fresh = || Replay::new(u32::MAX);
    let (inspection, replay) = copy.look(shard, fresh, |replay, seen| match seen {
        Seen::Block(bytes) => progress(bytes),
        Seen::Record { position, segment, offset, body } => {
            replay.take(position, segment, offset, body);
        }
    })?;
    let broken = |file: &str, offset: u64, reason: &str| {
        Err(Fault(format!(
            "the backup is damaged: shard-{shard:04}/{file} at byte {offset}: {reason}"
        )))
    };
    if let Some(damage) = inspection.damages.first() {
        return Err(Fault(format!("the backup is damaged: shard-{shard:04}/{damage}")));
    }
    if let Some(tail) = &inspection.tail {
        return broken(&tail.file, tail.offset, &tail.reason);
    }
    let blocks = inspection.blocks();
    if (blocks > 0 && inspection.end != end) || (blocks == 0 && end != Position(0)) {
        let last = inspection.segments.last().map_or_else(String::new, Segment::file);
        return broken(&last, 0, &format!("the log ends at {}, not at {end}", inspection.end));
    }
    if let Some(refused) = replay.refused.first() {
        let file = corq_io::log::segment_file(refused.segment);
        return broken(&file, refused.offset, &refused.reason);
    }
    replay.shard.audit().map_err(|error| Fault(format!("shard {shard} does not add up: {error}")))
}
