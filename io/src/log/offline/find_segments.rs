//! The files of a log as they lie, for those who only look: which of them are segments of it, and what is
//! wrong with the others.
//!
//! Knows names and headers of segments; the blocks in them are for `inspect` to judge.

use super::damage::{Damage, Kind};
use super::inspection::{InspectError, Inspection, Subject};
use crate::log::disk::file::SPARE;
use crate::log::disk::regular;
use crate::log::error::OpenError;
use crate::log::format::address::{Geometry, Position, SEGMENT_HEADER_BYTES};
use crate::log::format::block::{BLOCK_HEADER_BYTES, HeaderFault};
use crate::log::format::chain::BLOCK_ALIGN_BYTES;
use crate::log::format::segment::{FileName, SegmentHeader, file_name, parse_file_name};
use crate::log::format::successor_mark::{
    Found, Own, SUCCESSOR_MARK_BYTES, SuccessorMark, learn_salts,
};
use crate::log::format::synced_slots;
use crate::log::read::block_reader::Source;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The files of a directory, only ever read.
pub(crate) struct Files {
    directory: PathBuf,
    open: Option<(u64, File)>,
}

impl Source for Files {
    fn read_at(&mut self, segment: u64, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = match &self.open {
            Some((number, file)) if *number == segment => file,
            _ => {
                let file = regular::open(&self.directory.join(file_name(segment)))?;
                &self.open.insert((segment, file)).1
            }
        };
        let mut done = 0;
        while done < into.len() {
            match file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl Files {
    pub(crate) fn of(directory: &Path) -> Self {
        Self { directory: directory.into(), open: None }
    }

    /// Whether what has been read of a segment was its own: its name goes before its bytes do, and no
    /// other gets it.
    pub(crate) fn has(&self, segment: u64) -> bool {
        self.directory.join(file_name(segment)).exists()
    }
}

fn failed(what: &Path, source: io::Error) -> InspectError {
    InspectError::from(OpenError::Io { what: what.display().to_string(), source })
}

/// All segments in order. What is not of this log is noted as damage and left out.
pub(crate) fn find(
    subject: Subject<'_>,
    files: &mut Files,
    out: &mut Inspection,
) -> Result<Vec<Found>, InspectError> {
    let mut found = Vec::new();
    let here = |source| failed(subject.directory, source);
    let entries = match fs::read_dir(subject.directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            out.damages.extend(subject.is_begun.then(|| nothing("the directory is missing")));
            return Ok(Vec::new());
        }
        Err(source) => return Err(here(source)),
    };
    for entry in entries {
        let entry = entry.map_err(here)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = match entry.metadata() {
            Ok(about) => about.len(),
            // The file has been renamed since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(here(error)),
        };
        match parse_file_name(&name, u64::MAX >> 1) {
            FileName::Segment(number) => found.push((number, bytes)),
            FileName::Foreign => {
                out.damages.push(foreign(name, OpenError::ForeignFile(String::new()), subject));
            }
            FileName::Other if name.strip_suffix(SPARE).is_some() => {
                out.spares += 1;
                out.spare_bytes += bytes;
            }
            FileName::Other => {}
        }
    }
    found.sort_unstable();
    if found.is_empty() && subject.is_begun {
        out.damages.push(nothing("all segments are missing"));
    }
    let mut segments = Vec::with_capacity(found.len());
    for (number, file_bytes) in found {
        let mut page = [0; SEGMENT_HEADER_BYTES as usize];
        let file = file_name(number);
        let read = match files.read_at(number, 0, &mut page) {
            Ok(read) => read,
            // Given up since the directory was listed, like all before it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                segments.clear();
                continue;
            }
            Err(source) => return Err(failed(Path::new(&file), source)),
        };
        let header = match SegmentHeader::decode(&page[..read]) {
            Err(HeaderFault::Version(found)) => {
                let error = OpenError::Version { file: file.clone(), found };
                out.damages.push(foreign(file, error, subject));
                continue;
            }
            header => header,
        };
        let mut claim = Position(0);
        if let Ok(header) = &header {
            if let Some(error) = stranger(header, &file, subject, out.segment_bytes) {
                out.damages.push(foreign(file, error, subject));
                continue;
            }
            out.segment_bytes = header.segment_bytes;
        }
        let header = match header {
            Ok(header) if header.segment != number => {
                out.misnamed.push((number, header.segment));
                Err(HeaderFault::Segment(header.segment))
            }
            header => header,
        };
        if let Ok(header) = &header {
            let data_start = geometry(out).data_start_of(number);
            claim = synced_slots::claim(&page[..read], header).max(header.synced.min(data_start));
        }
        let salt = header.ok().map(|header| header.salt);
        segments.push(Found { number, file_bytes, header, salt, claim, next: None });
    }
    for segment in segments.iter_mut().filter(|segment| segment.salt.is_none()) {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        // If it cannot be read, reading the blocks will say so.
        let read = files.read_at(segment.number, SEGMENT_HEADER_BYTES, &mut bytes).unwrap_or(0);
        let place = geometry(out).data_start_of(segment.number);
        segment.salt = Found::salt_of_first_block(&bytes[..read], subject.shard, place);
    }
    settle_misnamed(&segments, out);
    learn_salts(&mut segments);
    let at = out.segment_bytes.saturating_sub(SUCCESSOR_MARK_BYTES as u64);
    for segment in &mut segments {
        let mut bytes = [0; SUCCESSOR_MARK_BYTES];
        let read = match files.read_at(segment.number, at, &mut bytes) {
            Ok(read) => read,
            // Reading the blocks will say so.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(failed(Path::new(&file_name(segment.number)), source)),
        };
        let Subject { shard, log_id, .. } = subject;
        let own = Own { shard, segment: segment.number, log_id, salt: segment.salt };
        segment.next = SuccessorMark::next_of(&bytes[..read], &own);
    }
    Ok(segments)
}

/// Leaves those of which it is clear where they belong: no other file has that segment, or bears its number.
fn settle_misnamed(segments: &[Found], out: &mut Inspection) {
    let all = std::mem::take(&mut out.misnamed);
    let is_there = |number| segments.iter().any(|it| it.number == number && it.header.is_ok());
    let bearers = |number| all.iter().filter(|(_, belongs)| *belongs == number).count();
    let clear = all.iter().filter(|(_, belongs)| !is_there(*belongs) && bearers(*belongs) == 1);
    out.misnamed = clear.copied().collect();
}

/// How the segments cut the address space, once one of them has said it.
pub(crate) fn geometry(out: &Inspection) -> Geometry {
    let segment_bytes = out.segment_bytes.max(SEGMENT_HEADER_BYTES);
    Geometry { segment_bytes, align_bytes: BLOCK_ALIGN_BYTES }
}

fn nothing(reason: &str) -> Damage {
    let (file, reason) = (String::new(), reason.to_owned());
    Damage { file, offset: 0, reason, blocks: None, kind: Kind::Nothing }
}

/// Why an intact header is not of this log.
fn stranger(
    header: &SegmentHeader,
    file: &str,
    subject: Subject<'_>,
    segment_bytes: u64,
) -> Option<OpenError> {
    let file = file.to_owned();
    if header.shard != subject.shard {
        let (found, expected) = (header.shard, subject.shard);
        return Some(OpenError::WrongShard { file, found, expected });
    }
    if header.log_id != subject.log_id {
        return Some(OpenError::WrongLog { file });
    }
    let sane = header.segment_bytes.is_power_of_two() && header.segment_bytes >= 1 << 13;
    if !sane || (segment_bytes > 0 && header.segment_bytes != segment_bytes) {
        let (found, configured) = (header.segment_bytes, segment_bytes);
        return Some(OpenError::SegmentBytes { file, found, configured });
    }
    None
}

fn foreign(file: String, error: OpenError, subject: Subject<'_>) -> Damage {
    let reason = match error {
        OpenError::ForeignFile(_) => "it is named like a segment but cannot be one".to_owned(),
        OpenError::WrongShard { found, .. } => {
            format!("it belongs to shard {found} but lies with shard {}", subject.shard)
        }
        OpenError::WrongLog { .. } => "it was made for another data directory".to_owned(),
        other => other.to_string(),
    };
    Damage { file, offset: 0, reason, blocks: None, kind: Kind::Foreign }
}
