//! A repair taken back: what it has put in place is exchanged for what was there before.
//!
//! Each repair keeps what it replaced, which may be what an earlier one had put there. So only the newest can be taken
//! back, and only as a whole; the one before it is the newest then.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use corq_io::log::{DataDir, exchange, shard_path};

use super::marker::{MARKER, Marker};
use super::place::{Fault, Place, at};
use super::repair::{MARKER_MENDED, MENDED, PREFIX, RECORD, Taken, VERSION, move_spares};

/// A repair that can be undone: what it has put in place is there still.
#[derive(Debug)]
pub struct Done {
    data: PathBuf,
    name: String,
    /// Where what was there is kept.
    pub kept: PathBuf,
    begun: bool,
    taken: Vec<Taken>,
    /// An undo that was broken off has put these back, and left what it took away where that was kept.
    put_back: Vec<u16>,
}

/// The number of a repair of this name.
fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// The repair that has put the directory of a shard in place, if one has.
fn placed_by(place: &Place, shard: u16) -> Option<String> {
    mended_by(&place.shard_path(shard))
}

/// The repair whose copy a directory is, if it is one.
fn mended_by(directory: &Path) -> Option<String> {
    let said = fs::read_to_string(directory.join(MENDED)).ok()?;
    let name = said.trim_end();
    number_of(name).is_some().then(|| name.to_owned())
}

impl Done {
    /// The one that was put in place last. If one is named, it must be that.
    pub fn find(place: &Place, name: Option<&str>) -> Result<Self, Fault> {
        let placed = (0..place.shards).filter_map(|shard| placed_by(place, shard));
        let newest = placed.max_by_key(|name| number_of(name));
        let Some(newest) = newest else { return Err(nothing(place, name)) };
        match name {
            Some(name) if name != newest => {
                let is_older = number_of(name) < number_of(&newest);
                if !is_older || !place.path.join(name).join(RECORD).exists() {
                    return Err(nothing(place, Some(name)));
                }
                Err(Fault(format!(
                    "{newest} came after {name}: undo that first, with 'corq log undo {}'",
                    place.path.display()
                )))
            }
            _ => Self::read(place, &newest),
        }
    }

    fn read(place: &Place, name: &str) -> Result<Self, Fault> {
        let kept = place.path.join(name);
        let path = kept.join(RECORD);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Fault(format!(
                    "{name} cannot be undone: what it replaced is no longer in {}",
                    place.path.display()
                )));
            }
            Err(error) => return Err(at(&path)(error)),
        };
        let lines = || text.lines().filter_map(|line| line.split_once(" = "));
        let value = |key: &str| lines().find(|(name, _)| *name == key).map(|(_, value)| value);
        let wrong = |what: &str| Fault(format!("{}: no usable `{what}`", path.display()));
        match value("version").and_then(|text| text.parse::<u32>().ok()) {
            Some(VERSION) => {}
            _ => return Err(wrong("version")),
        }
        if value("id") != Some(&format!("{:016x}", place.id)) {
            return Err(Fault(format!("{} is of another data directory", kept.display())));
        }
        let begun = value("begun").ok_or_else(|| wrong("begun"))? == "true";
        let (mut taken, mut put_back) = (Vec::new(), Vec::new());
        for (key, was) in lines() {
            let number = key.strip_prefix("shard-").and_then(|number| number.parse().ok());
            let Some(shard) = number.filter(|shard| *shard < place.shards) else { continue };
            if placed_by(place, shard).is_some_and(|by| by == name) {
                taken.push(Taken { shard, absent: was == "missing" });
            } else if mended_by(&shard_path(&kept, shard)).is_some_and(|by| by == name) {
                put_back.push(shard);
            } else if !shard_path(&kept.join("mended"), shard).is_dir() {
                // Where it was broken off, or an undo of it, the mended copy lies there.
                return Err(Fault(format!(
                    "{name} cannot be undone: {} is not what it has put there",
                    place.shard_path(shard).display()
                )));
            }
        }
        let (data, name) = (place.path.clone(), name.to_owned());
        Ok(Self { data, name, kept, begun, taken, put_back })
    }

    /// The shards that it has put in place.
    pub fn shards(&self) -> Vec<u16> {
        self.taken.iter().map(|taken| taken.shard).collect()
    }

    /// The logs as they were, to be looked at.
    pub fn before(&self, place: &Place) -> Place {
        Place { path: self.kept.clone(), is_begun: self.begun, ..place.clone() }
    }

    /// Puts back what was there. Answers where what is there now is kept.
    pub fn undo(self, held: &mut DataDir) -> Result<PathBuf, Fault> {
        // First: what is missing then must be missed.
        held.set_begun(held.is_begun() || self.begun)?;
        let aside = self.kept.join("mended");
        for shard in self.put_back {
            let copy = shard_path(&self.kept, shard);
            fs::rename(&copy, shard_path(&aside, shard)).map_err(at(&copy))?;
        }
        for Taken { shard, absent } in self.taken {
            let there = shard_path(&self.data, shard);
            let (copy, kept) = (shard_path(&aside, shard), shard_path(&self.kept, shard));
            if absent {
                fs::rename(&there, &copy).map_err(at(&there))?;
                continue;
            }
            // A repair that was broken off may have left it there.
            let original = if kept.is_dir() { kept } else { copy.clone() };
            move_spares(&there, &original)?;
            exchange(&there, &original).map_err(at(&there))?;
            if original != copy {
                fs::rename(&original, &copy).map_err(at(&original))?;
            }
        }
        let marker = Marker::read(&self.data, held.shards());
        if marker.is_ok_and(|marker| marker.repair.as_deref() == Some(&*self.name)) {
            // As above.
            let (there, copy) = (self.data.join(MARKER), self.kept.join(MARKER_MENDED));
            let kept = self.kept.join(MARKER);
            let original = if kept.exists() { kept } else { copy.clone() };
            exchange(&there, &original).map_err(at(&there))?;
            if original != copy {
                fs::rename(&original, &copy).map_err(at(&original))?;
            }
        }
        for path in [&aside, &self.kept, &self.data] {
            File::open(path).and_then(|directory| directory.sync_all()).map_err(at(path))?;
        }
        Ok(aside)
    }
}

/// Why there is nothing to undo.
fn nothing(place: &Place, name: Option<&str>) -> Fault {
    let data = place.path.display();
    let which = name.map_or_else(|| "no repair".to_owned(), |name| format!("no {name}"));
    // A repair from before a change of the number of shards has another id.
    let is_of_before = |kept: &Path| {
        let id = format!("id = {:016x}", place.id);
        fs::read_to_string(kept.join(RECORD)).is_ok_and(|text| !text.lines().any(|line| line == id))
    };
    let names = fs::read_dir(&place.path).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut kept: Vec<_> = names
        .filter(|found| number_of(found).is_some() && name.is_none_or(|name| name == found))
        .filter(|found| is_of_before(&place.path.join(found)))
        .collect();
    kept.sort_by_key(|name| number_of(name));
    match kept.last() {
        None => Fault(format!(
            "there is {which} to be undone in {data}: what it has put in place must be there still"
        )),
        Some(kept) => Fault(format!(
            "there is {which} to be undone in {data}: {kept} is of before a change of the number of shards, which has \
             put others in the place of those that it mended"
        )),
    }
}
