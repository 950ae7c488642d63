//! A copy of a data directory, also of one that a server is writing to.
//!
//! What is to be copied is *pinned* first, by a second name for each file (a hard link): a server that gives a
//! segment up sees that and leaves the file alone, instead of writing the next segment over it. Then the
//! server says where the logs can be cut. All that lies before the cuts is on the pinned files: they
//! were pinned before it, or have been made since and are pinned now. If a segment came and went
//! between the two, the copy begins again.
//!
//! Complete segments are immutable, so on the same file system their second names are the copy. The
//! segment that is being written is copied up to the cut.
//!
//! The copy is made in its place, which says that it is not whole until it is. If it goes to another file system, the pins
//! are in a directory of the same kind in the data directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

use corq_io::log::{
    About, Damage, DataDir, Filling, Inspection, KeptOut, Position, Seen, Subject, clear_claims,
    discard_pins, inspect, segment_file, shard_path,
};

use super::marker::{MARKER, Marker};
use super::place::{Fault, Place, at, sync};
use super::target::Target;

/// How often a backup begins again because the log was given up faster than it could be pinned.
const TRIES_MAX: u32 = 10;

/// Size of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub segments: u64,
    /// Segments that are the server's own files under a second name.
    pub linked: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// Why a copy is not finished.
#[derive(Debug)]
pub enum Unfinished {
    /// Something is wrong.
    Fault(Fault),
    /// A part of the log came and went before it was pinned: begin again.
    Again,
}

impl From<Fault> for Unfinished {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// As of when a backup is.
#[derive(Debug)]
pub enum Moment {
    /// A server goes on, and its logs can be cut there: one position for each shard.
    Cut(Vec<Position>),
    /// No server uses the directory, nor can one be started until this is dropped.
    Held(KeptOut),
}

/// How a backup that has been pinned is finished: as of these positions, or as it lies.
pub type Finish<'f, 'a, T> =
    &'f mut dyn FnMut(Making<'a>, Option<&[Position]>) -> Result<T, Unfinished>;

/// Makes a backup: begins, pins, asks for the moment and finishes, anew if a part of the log came and went meanwhile.
pub fn make<'a, T, E: From<Fault>>(
    begin: impl Fn() -> Result<Making<'a>, Fault>,
    moment: &mut dyn FnMut() -> Result<Moment, E>,
    finish: Finish<'_, 'a, T>,
) -> Result<T, E> {
    for _ in 0..TRIES_MAX {
        let making = begin()?;
        making.pin()?;
        let moment = moment()?;
        making.pin()?;
        let cuts = match &moment {
            Moment::Cut(cuts) => Some(&cuts[..]),
            Moment::Held(_) => None,
        };
        match finish(making, cuts) {
            Ok(made) => return Ok(made),
            Err(Unfinished::Fault(fault)) => return Err(fault.into()),
            Err(Unfinished::Again) => {}
        }
    }
    let fault =
        "the server gives up its log faster than it can be copied: try again when it is quieter";
    Err(Fault(fault.into()).into())
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub shard: u16,
    pub file: String,
    /// Bytes that it has in a data directory. Behind those that are used there are zeros.
    pub bytes: u64,
    /// Bytes up to where the log ends, if it ends in this file.
    pub used: u64,
}

/// A backup that is complete and gets no place: to be sent elsewhere. Its files go with the value.
#[derive(Debug)]
pub struct Ready {
    filling: Filling,
    pub summary: Summary,
    pub about: About,
    /// Where the log of each shard ends.
    pub ends: Vec<u64>,
    /// Files of the draft, by shard and in the order of the log.
    pub segments: Vec<Segment>,
}

impl Ready {
    /// Opens a file of it.
    pub fn open(&self, segment: &Segment) -> Result<File, Fault> {
        let path = shard_path(self.filling.path(), segment.shard).join(&segment.file);
        File::open(&path).map_err(at(&path))
    }
}

/// A backup that is being made.
#[derive(Debug)]
pub struct Making<'a> {
    place: &'a Place,
    /// Directory that becomes the backup.
    filling: Filling,
    /// In the data directory, if the backup cannot share its files.
    pins: Option<Filling>,
    copies: bool,
}

/// Copies the first bytes of `source`, which was found at `from`, durably.
pub(super) fn copy_file(source: &File, from: &Path, to: &Path, bytes: u64) -> Result<(), Fault> {
    let mut source = source.take(bytes);
    let mut copy = File::create(to).map_err(at(to))?;
    let copied = io::copy(&mut source, &mut copy).map_err(at(to))?;
    if copied != bytes {
        return Err(Fault(format!("{} is shorter than it should be", from.display())));
    }
    copy.sync_all().map_err(at(to))
}

/// Makes a file longer by zeros that take no room, durably: the last file of a log has its full length.
pub(super) fn lengthen(path: &Path, bytes: u64) -> Result<(), Fault> {
    let longer = OpenOptions::new().write(true).open(path).and_then(|file| {
        file.set_len(bytes)?;
        file.sync_all()
    });
    longer.map_err(at(path))
}

impl<'a> Making<'a> {
    /// Begins a backup of `place` to `to`, which must not exist, or be empty. With `copies` no file
    /// is shared with the server.
    pub fn begin(place: &'a Place, to: &Path, copies: bool) -> Result<Self, Fault> {
        let target = Target::of(to)?;
        target.is_apart_from(&place.path, "a backup in the data directory would be no backup")?;
        let shares = target.shares_with(&place.path)?;
        Self::begin_at(place, shares, copies, || target.begin())
    }

    /// Begins one that is to be sent elsewhere: in the data directory, whose files it shares until then.
    pub fn begin_within(place: &'a Place) -> Result<Self, Fault> {
        Self::begin_at(place, true, false, || begin_pins(place))
    }

    fn begin_at(
        place: &'a Place,
        shares: bool,
        copies: bool,
        begin: impl FnOnce() -> Result<Filling, Fault>,
    ) -> Result<Self, Fault> {
        if place.path.join(MARKER).exists() {
            Marker::read(&place.path, place.shards)?;
        }
        discard_pins(&place.path);
        let filling = begin()?;
        let pins = if shares { None } else { Some(begin_pins(place)?) };
        let making = Self { place, filling, pins, copies: copies || !shares };
        for shard in 0..place.shards {
            for directory in [making.filling.path(), making.pin_path()] {
                let path = shard_path(directory, shard);
                fs::create_dir_all(&path).map_err(at(&path))?;
            }
        }
        Ok(making)
    }

    /// Where the segments are pinned; what is filled itself, if that is on the same file system.
    fn pin_path(&self) -> &Path {
        self.pins.as_ref().unwrap_or(&self.filling).path()
    }

    /// Pins all segments there are now and were not pinned before.
    pub fn pin(&self) -> Result<(), Fault> {
        for shard in 0..self.place.shards {
            let from = self.place.shard_path(shard);
            let pins = shard_path(self.pin_path(), shard);
            let listed = fs::read_dir(&from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let entries = match listed {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(at(&from)(error)),
            };
            for entry in entries {
                let name = entry.file_name();
                if !name.to_string_lossy().ends_with(".seg") {
                    continue;
                }
                let path = from.join(&name);
                match fs::hard_link(&path, pins.join(&name)) {
                    Ok(()) => {}
                    // The file was given up since it was listed, or is pinned already.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                        ) => {}
                    Err(error) => return Err(at(&path)(error)),
                }
            }
        }
        Ok(())
    }

    /// Bytes of what is pinned, so that people can be told how far it is.
    pub fn bytes(&self) -> u64 {
        Place { path: self.pin_path().into(), ..self.place.clone() }.bytes()
    }

    /// Checks and copies what lies before the cuts, one for each shard; or all there is, of a directory
    /// that is not in use. `progress` counts bytes.
    pub fn finish(
        self,
        cuts: Option<&[Position]>,
        progress: &dyn Fn(u64),
    ) -> Result<Summary, Unfinished> {
        let (summary, _) = self.fill(cuts, progress)?;
        let path = self.filling.path().to_owned();
        self.filling.finish().map_err(at(&path))?;
        Ok(summary)
    }

    /// Does as `finish`, but leaves the copy in its draft, from which it is sent elsewhere.
    pub fn ready(
        self,
        cuts: Option<&[Position]>,
        progress: &dyn Fn(u64),
    ) -> Result<Ready, Unfinished> {
        let (summary, ends) = self.fill(cuts, progress)?;
        let Place { shards, id, .. } = *self.place;
        let about = About { shards, id, is_begun: ends.iter().all(|&end| end != 0) };
        let mut segments = Vec::new();
        for shard in 0..shards {
            let directory = shard_path(self.filling.path(), shard);
            segments.extend(segments_in(&directory, shard, ends[usize::from(shard)])?);
        }
        Ok(Ready { filling: self.filling, summary, about, ends, segments })
    }

    /// Returns what it holds, and where the log of each shard ends.
    fn fill(
        &self,
        cuts: Option<&[Position]>,
        progress: &dyn Fn(u64),
    ) -> Result<(Summary, Vec<u64>), Unfinished> {
        let mut summary = Summary::default();
        let mut marker = Marker { ends: Vec::new() };
        let mut is_begun = true;
        for shard in 0..self.place.shards {
            let cut = cuts.map(|cuts| cuts[usize::from(shard)]);
            let (inspection, needed) = self.look(shard, cut, progress)?;
            self.take(shard, &inspection, &needed, &mut summary)?;
            let end = if needed.is_empty() { Position(0) } else { inspection.end };
            // A start from the copy demands the logs of all shards only if each has records.
            is_begun &= end != Position(0);
            marker.ends.push(end.0);
        }
        let Place { shards, id, .. } = *self.place;
        let path = self.filling.path();
        write_file(&path.join(MARKER), marker.text().as_bytes())?;
        DataDir::describe_copy(path, About { shards, id, is_begun }).map_err(Fault::from)?;
        Ok((summary, marker.ends))
    }

    /// Inspects the pinned files of a shard: whether all of its log before the cut is there and sound, and which
    /// segments are needed, by number.
    fn look(
        &self,
        shard: u16,
        until: Option<Position>,
        progress: &dyn Fn(u64),
    ) -> Result<(Inspection, Vec<u64>), Unfinished> {
        let directory = shard_path(self.pin_path(), shard);
        let subject = Subject { until, ..self.place.subject(shard, &directory) };
        let looked = inspect(subject, |seen| {
            if let Seen::Block(bytes) = seen {
                progress(bytes);
            }
            ControlFlow::Continue(())
        });
        let inspection = looked.map_err(Fault::from)?;
        let first = inspection.first_segment();
        let numbers = inspection.segments.iter().map(|segment| segment.number);
        let needed: Vec<u64> = numbers.filter(|&number| number >= first).collect();
        // A log without a block has no end to be cut at.
        let is_whole = needed.is_empty() || until.is_none_or(|until| inspection.end == until);
        if inspection.damages.is_empty() && is_whole {
            return Ok((inspection, needed));
        }
        let damage = inspection.damages.first();
        let live = until.is_some();
        if live && damage.is_none_or(Damage::is_missing) {
            return Err(Unfinished::Again);
        }
        let place = damage.map_or(String::new(), |damage| format!(": {damage}"));
        Err(Unfinished::Fault(Fault(format!(
            "the log of shard {shard} is damaged{place}; see 'corq log verify'"
        ))))
    }

    /// Makes the needed ones of the pinned segments a part of the backup.
    fn take(
        &self,
        shard: u16,
        inspection: &Inspection,
        needed: &[u64],
        summary: &mut Summary,
    ) -> Result<(), Fault> {
        let pins = shard_path(self.pin_path(), shard);
        let copies = shard_path(self.filling.path(), shard);
        for entry in fs::read_dir(&pins).map_err(at(&pins))? {
            let path = entry.map_err(at(&pins))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !needed.iter().any(|&number| segment_file(number) == name) {
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        let used = inspection.segments.iter().filter(|it| needed.contains(&it.number));
        for segment in used {
            let name = segment.file();
            let (pin, place) = (pins.join(&name), copies.join(&name));
            let start = segment.number * inspection.segment_bytes;
            let is_last = Some(&segment.number) == needed.last();
            let bytes = if is_last { inspection.end.0 - start } else { segment.file_bytes };
            if is_last || self.copies {
                let source = File::open(&pin).map_err(at(&pin))?;
                let copy = copies.join("copy.tmp");
                copy_file(&source, &pin, &copy, bytes)?;
                if is_last {
                    lengthen(&copy, inspection.segment_bytes)?;
                    // The server has gone on, and said so there.
                    clear_claims(&copy).map_err(at(&copy))?;
                }
                fs::rename(&copy, &place).map_err(at(&place))?;
                if pin != place {
                    fs::remove_file(&pin).map_err(at(&pin))?;
                }
            } else {
                // The server may not have synced it yet.
                File::open(&place).and_then(|file| file.sync_all()).map_err(at(&place))?;
                summary.linked += 1;
            }
            summary.segments += 1;
            summary.bytes += bytes;
        }
        sync(&copies)
    }
}

fn begin_pins(place: &Place) -> Result<Filling, Fault> {
    Filling::begin_pins(&place.path).map_err(at(&place.path))
}

/// Writes a file, durably.
pub(super) fn write_file(path: &Path, text: &[u8]) -> Result<(), Fault> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(text)?;
        file.sync_all()
    };
    write().map_err(at(path))
}

/// The segments of a shard's directory in a backup, in order, whose log ends there.
pub(super) fn segments_in(directory: &Path, shard: u16, end: u64) -> Result<Vec<Segment>, Fault> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut segments = Vec::new();
    for entry in entries.map_err(at(directory))? {
        let path = entry.path();
        if path.extension().is_none_or(|it| it != "seg") {
            continue;
        }
        let bytes = entry.metadata().map_err(at(&path))?.len();
        let file = entry.file_name().to_string_lossy().into_owned();
        segments.push(Segment { shard, used: used_bytes(&path, bytes, end), file, bytes });
    }
    segments.sort_by(|one, other| one.file.cmp(&other.file));
    Ok(segments)
}

/// Bytes of a file up to where the log ends, if it ends in this file, which has its full length then.
fn used_bytes(path: &Path, bytes: u64, end: u64) -> u64 {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match u64::from_str_radix(&stem, 16) {
        Ok(number) if bytes > 0 && end / bytes == number => end % bytes,
        _ => bytes,
    }
}
