//! A damaged log put right: prepared whole beside its place, then put there at once, and put back on demand.
//!
//! What is mended are copies of the shards' directories, in a draft inside the data directory; files are shared by a
//! second name until something is written to them. So all that a repair does, and what it leads to, is known before
//! anything is changed. Then each directory is exchanged for its copy: what was there is in `repair-N` as it was, byte
//! for byte, and an undo ([`super::undo`]) exchanges the two again.
//!
//! ```text
//! data/shard-0000 <--exchanged--> data/repair-N/mended/shard-0000, then renamed to data/repair-N/shard-0000
//! ```

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use corq_io::log::{
    DataDir, Draft, Inspection, Label, Owner, Repaired, exchange, repair, segment_file, shard_path,
};

use super::backup::write_file;
use super::leftovers;
use super::marker::{MARKER, Marker};
use super::place::{Fault, Place, at, sync};

/// File in which a repair describes itself.
pub(super) const RECORD: &str = "REPAIR";
/// In the directory of a shard that a repair has put there: which one.
pub(super) const MENDED: &str = "MENDED";
/// File with the mended marker of a backup, until the repair puts it in the marker's place.
pub(super) const MARKER_MENDED: &str = "BACKUP-MENDED";
pub(super) const VERSION: u32 = 1;
/// How the directories of repairs are named, before a number.
pub const PREFIX: &str = "repair-";

/// A shard whose directory is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) shard: u16,
    /// The shard had no directory.
    pub(super) absent: bool,
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
        // The directories go to the server's user, who can remove them if the repair is killed.
        for path in [draft.path(), &mended] {
            give(&Owner::within(&place.path).map_err(at(path))?, path)?;
        }
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
    pub fn repair(&mut self, shard: u16, found: &Inspection) -> Result<Vec<Repaired>, Fault> {
        let directory = self.place.shard_path(shard);
        if !self.shards().contains(&shard) {
            let from = shard_path(&self.data, shard);
            let absent = !from.is_dir();
            if !absent {
                share(&from, &directory)?;
            }
            self.taken.push(Taken { shard, absent });
        }
        // A shard that has lost all of its log may begin a new one.
        self.place.is_begun &= !found.damages.iter().any(corq_io::log::Damage::is_all_lost);
        let subject = self.place.subject(shard, &directory);
        repair(subject, found).map_err(|error| Fault(format!("shard-{shard:04}/{error}")))
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
            self.give_back(shard)?;
            sync(&directory)?;
        }
        sync(&self.place.path)?;
        self.mend_marker(ends)?;
        // The original files are kept, so they are made as durable as those that take their place.
        for taken in self.taken.iter().filter(|taken| !taken.absent) {
            let from = shard_path(&self.data, taken.shard);
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
        let record = self.draft.path().join(RECORD);
        write_file(&record, text.as_bytes())?;
        give(&Owner::within(&self.data).map_err(at(&self.data))?, &record)?;
        sync(&record)?;
        sync(self.draft.path())
    }

    /// Makes what was made anew in the copy of a shard belong to those that what it replaces belongs to.
    fn give_back(&self, shard: u16) -> Result<(), Fault> {
        let copy = self.place.shard_path(shard);
        let original = shard_path(&self.data, shard);
        let beside = Owner::within(&self.data).map_err(at(&self.data))?;
        give(&Owner::of(&original).unwrap_or(beside), &copy)?;
        // A file that was not there gets the owner of those beside it.
        let others = segments(&original).unwrap_or_default();
        let like = others.first().and_then(|name| Owner::of(&original.join(name)).ok());
        for entry in fs::read_dir(&copy).map_err(at(&copy))? {
            let entry = entry.map_err(at(&copy))?;
            let path = entry.path();
            if entry.metadata().map_err(at(&path))?.nlink() > 1 {
                continue;
            }
            let own = Owner::of(&original.join(entry.file_name())).ok();
            if give(&own.or(like).unwrap_or(beside), &path)? {
                sync(&path)?;
            }
        }
        Ok(())
    }

    /// A backup says where its logs end: that is somewhere else now, if an end was lost.
    fn mend_marker(&self, ends: &[(u16, &Inspection)]) -> Result<(), Fault> {
        let there = self.data.join(MARKER);
        if !there.exists() {
            return Ok(());
        }
        let mut marker = Marker::read(&self.data, self.place.shards)?;
        for &(shard, found) in ends {
            marker.ends[usize::from(shard)] = if found.blocks() == 0 { 0 } else { found.end.0 };
        }
        marker.repair = Some(self.name.clone());
        let copy = self.draft.path().join(MARKER_MENDED);
        write_file(&copy, marker.text().as_bytes())?;
        give(&Owner::of(&there).map_err(at(&there))?, &copy)?;
        sync(&copy)
    }

    /// Puts it in place. Answers where what was there is kept.
    pub fn place_it(self, held: &mut DataDir) -> Result<PathBuf, Fault> {
        let kept = self.data.join(&self.name);
        self.draft.place(&kept).map_err(at(&kept))?;
        for Taken { shard, absent } in self.taken {
            let there = shard_path(&self.data, shard);
            let mended = shard_path(&kept.join("mended"), shard);
            if absent {
                fs::rename(&mended, &there).map_err(at(&mended))?;
            } else {
                move_spares(&there, &mended)?;
                swap(&there, &mended, &shard_path(&kept, shard))?;
            }
        }
        let marker = kept.join(MARKER_MENDED);
        if marker.exists() {
            swap(&self.data.join(MARKER), &marker, &kept.join(MARKER))?;
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

/// Gives something made here to those that it is to belong to. True if it was another's.
fn give(owner: &Owner, path: &Path) -> Result<bool, Fault> {
    owner.give(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Fault(format!(
            "{}: another user's or group's files are replaced here, and this user cannot make others theirs: give all in \
             the data directory to one user, and do this as that user or as root",
            path.display()
        )),
        _ => at(path)(error),
    })
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
    give(&Owner::of(from).map_err(at(from))?, to)?;
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
pub(super) fn move_spares(from: &Path, to: &Path) -> Result<(), Fault> {
    let mut moved = false;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        if path.extension().is_some_and(|it| it == "spare") {
            let name = path.file_name().unwrap_or_default();
            fs::rename(&path, to.join(name)).map_err(at(&path))?;
            moved = true;
        }
    }
    if moved { sync(to).and_then(|()| sync(from)) } else { Ok(()) }
}
