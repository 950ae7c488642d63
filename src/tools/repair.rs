//! A damaged log put right: prepared whole beside its place, then put there at once, and put back on demand.
//!
//! What is mended are copies of the shards' directories, in a draft inside the data directory; files are shared by a
//! second name until something is written to them. So all that a repair does, and what it leads to, is known before
//! anything is changed. Then each directory is exchanged for its copy: what was there is in `repair-N` as it was, byte
//! for byte, and an undo exchanges the two again.
//!
//! ```text
//! data/shard-0000 <--exchanged--> data/repair-N/mended/shard-0000, then renamed to data/repair-N/shard-0000
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corq_io::log::{DataDir, Draft, Inspection, Label, Mended, exchange, mend, segment_file};

use super::backup::write_file;
use super::leftovers;
use super::place::{Fault, Place, at, sync};

/// What a repair says of itself.
const RECORD: &str = "REPAIR";
/// In the directory of a shard that a repair has put there: which one.
const MENDED: &str = "MENDED";
const VERSION: u32 = 1;
/// How the directories of repairs are named, before a number.
pub const PREFIX: &str = "repair-";

/// A shard whose directory is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    shard: u16,
    /// It had no directory.
    absent: bool,
}

/// A repair that is being prepared. Nothing of the log is changed by it.
#[derive(Debug)]
pub struct Repair {
    data: PathBuf,
    name: String,
    draft: Draft,
    /// The mended copies, as a data directory.
    place: Place,
    taken: Vec<Taken>,
}

impl Repair {
    /// Begins one of a directory that nobody uses, with a name that was not used before.
    pub fn begin(place: &Place, now_ms: u64) -> Result<Self, Fault> {
        leftovers::clear(&place.path);
        let name_of = |number: u64| format!("{PREFIX}{number}");
        let mut number = now_ms;
        while place.path.join(name_of(number)).exists() {
            number += 1;
        }
        let name = name_of(number);
        let label = Label { purpose: "repair".into(), target: name.clone().into(), linked: true };
        let draft = Draft::begin(&place.path, &label).map_err(at(&place.path))?;
        let mended = draft.path().join("mended");
        fs::create_dir(&mended).map_err(at(&mended))?;
        let copies = Place { path: mended, ..place.clone() };
        Ok(Self { data: place.path.clone(), name, draft, place: copies, taken: Vec::new() })
    }

    /// Where the mended copies are to be looked at.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The shards that have one.
    pub fn shards(&self) -> Vec<u16> {
        self.taken.iter().map(|taken| taken.shard).collect()
    }

    /// Mends what was found in a shard, in its copy; what is then still wrong shows in the next look at that.
    pub fn mend(&mut self, shard: u16, found: &Inspection) -> Result<Vec<Mended>, Fault> {
        let directory = self.place.shard_path(shard);
        if !self.shards().contains(&shard) {
            let from = DataDir::shard_path(&self.data, shard);
            let absent = !from.is_dir();
            if !absent {
                share(&from, &directory)?;
            }
            self.taken.push(Taken { shard, absent });
        }
        // What has lost all of its log may begin one.
        self.place.is_begun &= !found.damages.iter().any(corq_io::log::Damage::is_all_lost);
        let subject = self.place.subject(shard, &directory);
        mend(subject, found).map_err(|error| Fault(format!("shard-{shard:04}/{error}")))
    }

    /// Makes all of it durable, and separates what a start will write to from what is kept. `ends` has what was found
    /// in each copy at last.
    pub fn settle(&self, ends: &[(u16, &Inspection)], was_begun: bool) -> Result<(), Fault> {
        for &(shard, end) in ends {
            let directory = self.place.shard_path(shard);
            let last = end.segments.iter().rev().find(|segment| segment.records > 0);
            let from = last.map_or(0, |segment| segment.number);
            for segment in segments(&directory)?.iter().filter(|name| **name >= segment_file(from))
            {
                unshare(&directory.join(segment))?;
            }
            write_file(&directory.join(MENDED), format!("{}\n", self.name).as_bytes())?;
            sync(&directory)?;
        }
        sync(&self.place.path)?;
        // What is kept is to be as safe as what takes its place.
        for taken in self.taken.iter().filter(|taken| !taken.absent) {
            let from = DataDir::shard_path(&self.data, taken.shard);
            for segment in segments(&from)? {
                sync(&from.join(segment))?;
            }
            sync(&from)?;
        }
        let id = self.place.id;
        let mut text = format!("version = {VERSION}\nid = {id:016x}\nbegun = {was_begun}\n");
        for Taken { shard, absent } in &self.taken {
            let was = if *absent { "missing" } else { "there" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "shard-{shard:04} = {was}");
        }
        write_file(&self.draft.path().join(RECORD), text.as_bytes())?;
        sync(self.draft.path())
    }

    /// Puts it in place. Answers where what was there is kept.
    pub fn place_it(self, held: &mut DataDir) -> Result<PathBuf, Fault> {
        let kept = self.data.join(&self.name);
        self.draft.place(&kept).map_err(at(&kept))?;
        for Taken { shard, absent } in self.taken {
            let there = DataDir::shard_path(&self.data, shard);
            let mended = DataDir::shard_path(&kept.join("mended"), shard);
            if absent {
                fs::rename(&mended, &there).map_err(at(&mended))?;
            } else {
                move_spares(&there, &mended)?;
                swap(&there, &mended, &DataDir::shard_path(&kept, shard))?;
            }
        }
        sync(&kept.join("mended"))?;
        sync(&kept)?;
        sync(&self.data)?;
        // Only now: what has not been put in place is still missed by a start.
        if !self.place.is_begun {
            held.set_begun(false)?;
        }
        Ok(kept)
    }
}

/// The copy comes to its place, and what was there to where it is kept.
fn swap(there: &Path, copy: &Path, kept: &Path) -> Result<(), Fault> {
    exchange(there, copy).map_err(at(there))?;
    fs::rename(copy, kept).map_err(at(copy))
}

/// The segments in a directory.
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

/// A directory with the files of another one, by second names where the file system has them. What is set aside for later
/// segments holds nothing.
fn share(from: &Path, to: &Path) -> Result<(), Fault> {
    fs::create_dir(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let entry = entry.map_err(at(from))?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        let is_file = entry.file_type().map_err(at(&path))?.is_file();
        let is_spare = path.extension().is_some_and(|it| it == "spare");
        if !is_file || is_spare || path.ends_with(MENDED) {
            continue;
        }
        if fs::hard_link(&path, &copy).is_err() {
            fs::copy(&path, &copy).map_err(at(&copy))?;
            sync(&copy)?;
        }
    }
    Ok(())
}

/// Gives a file bytes of its own.
fn unshare(path: &Path) -> Result<(), Fault> {
    if fs::metadata(path).map_err(at(path))?.nlink() < 2 {
        return Ok(());
    }
    let draft = path.with_extension("tmp");
    fs::copy(path, &draft).map_err(at(&draft))?;
    sync(&draft)?;
    fs::rename(&draft, path).map_err(at(path))
}

/// A server can use what is set aside, whatever it has held.
fn move_spares(from: &Path, to: &Path) -> Result<(), Fault> {
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        if path.extension().is_some_and(|it| it == "spare") {
            let name = path.file_name().unwrap_or_default();
            fs::rename(&path, to.join(name)).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// A repair that can be undone: what it has put in place is there still.
#[derive(Debug)]
pub struct Done {
    data: PathBuf,
    /// Where what was there is kept.
    pub kept: PathBuf,
    begun: bool,
    taken: Vec<Taken>,
}

impl Done {
    /// The one that was put in place last, or the one that is named.
    pub fn find(place: &Place, name: Option<&str>) -> Result<Self, Fault> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&place.path).map_err(at(&place.path))? {
            let found = entry.map_err(at(&place.path))?.file_name().to_string_lossy().into_owned();
            let number = found.strip_prefix(PREFIX).and_then(|it| it.parse::<u64>().ok());
            names.extend(number.map(|number| (number, found)));
        }
        names.retain(|(_, found)| name.is_none_or(|name| name == found));
        names.sort();
        for (_, found) in names.into_iter().rev() {
            if let Some(done) = Self::read(place, &found)? {
                return Ok(done);
            }
        }
        let which = name.map_or_else(|| "no repair".to_owned(), |name| format!("no {name}"));
        Err(Fault(format!(
            "there is {which} to be undone in {}: what it has put in place must be there still",
            place.path.display()
        )))
    }

    fn read(place: &Place, name: &str) -> Result<Option<Self>, Fault> {
        let kept = place.path.join(name);
        let path = kept.join(RECORD);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
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
        let mut taken = Vec::new();
        for (key, was) in lines() {
            let number = key.strip_prefix("shard-").and_then(|number| number.parse().ok());
            let Some(shard) = number.filter(|shard| *shard < place.shards) else { continue };
            let said = fs::read_to_string(place.shard_path(shard).join(MENDED));
            if said.is_ok_and(|said| said.trim_end() == name) {
                taken.push(Taken { shard, absent: was == "missing" });
            }
        }
        if taken.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { data: place.path.clone(), kept, begun, taken }))
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
        for Taken { shard, absent } in self.taken {
            let there = DataDir::shard_path(&self.data, shard);
            let (copy, kept) =
                (DataDir::shard_path(&aside, shard), DataDir::shard_path(&self.kept, shard));
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
        for path in [&aside, &self.kept, &self.data] {
            File::open(path).and_then(|directory| directory.sync_all()).map_err(at(path))?;
        }
        Ok(aside)
    }
}
