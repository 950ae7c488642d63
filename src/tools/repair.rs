//! Copies the whole parts of a damaged log into a data directory of its own, and puts them right there. The source is
//! never changed.
//!
//! Files are shared by a second name until something is written to them, where both directories are on one file system. All
//! that is mended is mended in the copy, so what it leads to is known before the copy is whole; one that is given up is
//! removed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use corq_io::log::{
    About, DataDir, Filling, Inspection, Repaired, give_id, repair, segment_file, unshare,
};

use super::marker::{MARKER, Marker};
use super::place::{Fault, Place, at, sync};
use super::target::Target;

/// A copy that is being made.
#[derive(Debug)]
pub struct Repair<'a> {
    from: &'a Place,
    to: Place,
    filling: Filling,
    /// The shards that have been copied.
    copied: BTreeSet<u16>,
}

/// Lines about records that a backup's marker names and its logs lack, or about a marker that cannot be read; none for a
/// data directory.
pub fn missing_ends<'a>(
    place: &Place,
    found: impl Iterator<Item = (u16, &'a Inspection)>,
) -> Vec<String> {
    if !is_backup(place) {
        return Vec::new();
    }
    let ends = match Marker::read(&place.path, place.shards) {
        Ok(marker) => marker.ends,
        Err(fault) => return vec![fault.0],
    };
    let lines = found.filter_map(|(shard, found)| {
        let (end, said) = (found.end.0, ends[usize::from(shard)]);
        let is_short = said > end && found.damages.is_empty();
        is_short
            .then(|| format!("shard-{shard:04} ends {} bytes before the backup's end", said - end))
    });
    lines.collect()
}

fn is_backup(place: &Place) -> bool {
    place.path.join(MARKER).exists()
}

impl<'a> Repair<'a> {
    /// Begins one of a directory that nobody uses.
    pub fn begin(from: &'a Place, target: &Target) -> Result<Self, Fault> {
        let filling = target.begin()?;
        let to = Place { path: filling.path().into(), ..from.clone() };
        Ok(Self { from, to, filling, copied: BTreeSet::new() })
    }

    /// Where the copies are to be looked at.
    pub fn place(&self) -> &Place {
        &self.to
    }

    /// Mends what was found in a shard, in its copy; what is then still wrong shows in the next look at that.
    pub fn repair(&mut self, shard: u16, found: &Inspection) -> Result<Vec<Repaired>, Fault> {
        self.copy(shard)?;
        // A shard that has lost all of its log may begin one.
        self.to.is_begun &= !found.damages.iter().any(corq_io::log::Damage::is_all_lost);
        let directory = self.to.shard_path(shard);
        repair(self.to.subject(shard, &directory), found)
            .map_err(|error| Fault(format!("shard-{shard:04}/{error}")))
    }

    /// Copies a shard, unless it has been.
    fn copy(&mut self, shard: u16) -> Result<(), Fault> {
        if !self.copied.insert(shard) {
            return Ok(());
        }
        let (from, to) = (self.from.shard_path(shard), self.to.shard_path(shard));
        fs::create_dir(&to).map_err(at(&to))?;
        let names = if from.is_dir() { segments(&from)? } else { Vec::new() };
        for name in names {
            let (file, copy) = (from.join(&name), to.join(&name));
            if fs::hard_link(&file, &copy).is_err() {
                fs::copy(&file, &copy).map_err(at(&copy))?;
            }
        }
        Ok(())
    }

    /// Copies the shards that are whole, separates what a start will write to from the source, and makes all durable.
    /// `found` has what each shard holds.
    pub fn complete<'i>(
        &mut self,
        found: impl Iterator<Item = (u16, &'i Inspection)>,
    ) -> Result<(), Fault> {
        let own = self.from.id;
        // The server whose backup it is may be there still.
        if is_backup(self.from) {
            self.to.id = DataDir::fresh_id().map_err(at(&self.to.path))?;
        }
        for (shard, found) in found {
            self.copy(shard)?;
            let last = found.segments.iter().rev().find(|segment| segment.records > 0);
            let last = segment_file(last.map_or(0, |segment| segment.number));
            let directory = self.to.shard_path(shard);
            for name in segments(&directory)? {
                let path = directory.join(&name);
                let is_new = self.to.id != own;
                if is_new || name >= last {
                    unshare(&path).map_err(at(&path))?;
                }
                if is_new {
                    give_id(&path, own, self.to.id).map_err(at(&path))?;
                }
                sync(&path)?;
            }
            sync(&directory)?;
        }
        Ok(())
    }

    /// Makes it a data directory: the manifest comes last.
    pub fn finish(self) -> Result<(), Fault> {
        let Place { path, shards, id, is_begun } = self.to;
        DataDir::describe_copy(&path, About { shards, id, is_begun })?;
        self.filling.finish().map_err(at(&path))
    }
}

/// The segments in a directory, in order.
fn segments(directory: &Path) -> Result<Vec<String>, Fault> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let name = entry.map_err(at(directory))?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|it| it == "seg") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}
