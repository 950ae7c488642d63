//! A backup made a data directory again: copied, checked there to the last record, and whole only then. It is a directory of
//! its own, with another number than that of the backup's server.

use std::fs::{self, File};
use std::path::Path;

use corq_io::log::{self, About, DataDir, Position, Seen, give_id, repair_of};

use super::backup::{Segment, Summary, copy_file, lengthen, segments_in};
use super::marker::Marker;
use super::place::{Fault, Place, at, must_not_lead_root, sync};
use super::replay::Replay;
use super::target::Target;

/// A backup, wherever it is.
pub trait Source {
    /// Shards, id and state of the data directory, by the backup's manifest.
    fn about(&self) -> About;
    /// Where the log of a shard ends.
    fn end(&self, shard: u16) -> Position;
    /// The files of a shard.
    fn segments(&self, shard: u16) -> Result<Vec<Segment>, Fault>;
    /// Copies what is used of a file to a file of its own, durably.
    fn copy(&self, segment: &Segment, to: &Path) -> Result<(), Fault>;
    /// The directory that it is in, on this machine.
    fn directory(&self) -> Option<&Path>;
}

/// A backup in a directory.
#[derive(Debug)]
pub struct InDirectory {
    place: Place,
    marker: Marker,
}

impl InDirectory {
    /// Reads what the directory says of itself.
    pub fn open(from: &Path) -> Result<Self, Fault> {
        must_not_lead_root(from)?;
        let place = Place::of(from)?;
        let marker = Marker::read(from, place.shards)?;
        Ok(Self { place, marker })
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.place.bytes()
    }
}

impl Source for InDirectory {
    fn about(&self) -> About {
        let Place { shards, id, is_begun, .. } = self.place;
        About { shards, id, is_begun }
    }

    fn end(&self, shard: u16) -> Position {
        Position(self.marker.ends[usize::from(shard)])
    }

    fn segments(&self, shard: u16) -> Result<Vec<Segment>, Fault> {
        segments_in(&self.place.shard_path(shard), shard, self.end(shard).0)
    }

    fn copy(&self, segment: &Segment, to: &Path) -> Result<(), Fault> {
        let path = self.place.shard_path(segment.shard).join(&segment.file);
        let file = File::open(&path).map_err(at(&path))?;
        copy_file(&file, &path, to, segment.used)
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.place.path)
    }
}

/// Makes a backup the data directory `to`, which must not exist, or be empty. `progress` counts
/// bytes, each twice: when it is copied and when it is checked.
pub fn restore(source: &dyn Source, to: &Path, progress: &dyn Fn(u64)) -> Result<Summary, Fault> {
    let target = Target::of(to)?;
    if let Some(from) = source.directory() {
        target.is_apart_from(from, "it would become a part of the backup")?;
    }
    let filling = target.begin()?;
    let id = DataDir::fresh_id().map_err(at(to))?;
    let summary = fill(source, filling.path(), id, progress)?;
    filling.finish().map_err(at(to))?;
    Ok(summary)
}

fn fill(
    source: &dyn Source,
    path: &Path,
    id: u64,
    progress: &dyn Fn(u64),
) -> Result<Summary, Fault> {
    let mut summary = Summary::default();
    let About { shards, id: source_id, is_begun } = source.about();
    let copy = Place { path: path.into(), shards, id, is_begun };
    for shard in 0..shards {
        let to = copy.shard_path(shard);
        fs::create_dir(&to).map_err(at(&to))?;
        for segment in source.segments(shard)? {
            let copy = to.join(&segment.file);
            source.copy(&segment, &copy)?;
            if segment.used < segment.bytes {
                lengthen(&copy, segment.bytes)?;
            }
            give_id(&copy, source_id, id).map_err(at(&copy))?;
            progress(segment.bytes);
            summary.segments += 1;
            summary.bytes += segment.used;
        }
        sync(&to)?;
        check(source, &copy, shard, progress)?;
    }
    let is_begun = (0..shards).all(|shard| source.end(shard).0 != 0);
    let about = About { shards, id, is_begun };
    DataDir::describe_copy(path, about).map_err(Fault::from)?;
    Ok(summary)
}

/// Whether a start would take a shard's log, and find in it what the backup had.
fn check(
    source: &dyn Source,
    copy: &Place,
    shard: u16,
    progress: &dyn Fn(u64),
) -> Result<(), Fault> {
    let end = source.end(shard);
    let fresh = || Replay::new(u32::MAX);
    let (inspection, replay) = copy.look(shard, fresh, |replay, seen| match seen {
        Seen::Block(bytes) => progress(bytes),
        Seen::Record { position, segment, offset, body } => {
            replay.take(position, segment, offset, body);
        }
    })?;
    let cure = source
        .directory()
        .map_or_else(String::new, |from| format!("; '{}' copies what is whole", repair_of(from)));
    let damaged =
        |what: String| Err(Fault(format!("the backup is damaged: shard-{shard:04}/{what}{cure}")));
    let broken = |file: &str, offset: u64, reason: &str| {
        damaged(format!("{file} at byte {offset}: {reason}"))
    };
    if let Some(damage) = inspection.damages.first() {
        return damaged(damage.to_string());
    }
    if let Some(tail) = &inspection.tail {
        return broken(&tail.file, tail.offset, &tail.reason);
    }
    let blocks = inspection.blocks();
    if (blocks > 0 && inspection.end != end) || (blocks == 0 && end != Position(0)) {
        let last = inspection.segments.last().map_or_else(String::new, log::Segment::file);
        return broken(&last, 0, &format!("the log ends at {}, not at {end}", inspection.end));
    }
    if let Some(refused) = replay.refused.first() {
        let file = corq_io::log::segment_file(refused.segment);
        return broken(&file, refused.offset, &refused.reason);
    }
    replay.shard.audit().map_err(|error| Fault(format!("shard {shard} does not add up: {error}")))
}
