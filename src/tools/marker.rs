//! The file that makes a directory a backup: what is in it, written last.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use corq_io::log::BACKUP_MARKER;

use super::place::Fault;

pub const MARKER: &str = BACKUP_MARKER;
const VERSION: u32 = 1;

/// The contents of a backup's marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    /// Where the log of each shard ends; 0 if it is empty.
    pub(super) ends: Vec<u64>,
}

impl Marker {
    /// Reads that of a directory, and compares it with the shards that there are by the manifest, which may have been
    /// written anew since.
    pub(super) fn read(from: &Path, shards: u16) -> Result<Self, Fault> {
        let path = from.join(MARKER);
        let text = fs::read_to_string(&path).map_err(|error| {
            Fault(format!("{}: {error}: this is no complete backup", path.display()))
        })?;
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        let wrong = |what: &str| Fault(format!("{}: {what}", path.display()));
        match value("version").and_then(|text| text.parse::<u32>().ok()) {
            Some(VERSION) => {}
            Some(found) => {
                return Err(wrong(&format!("version {found}; this release reads up to {VERSION}")));
            }
            None => return Err(wrong("no usable `version`")),
        }
        match value("shards").and_then(|text| text.parse::<u16>().ok()) {
            Some(said) if said == shards => {}
            Some(said) => {
                return Err(wrong(&format!(
                    "it is of {said} shards, and the MANIFEST of {shards}"
                )));
            }
            None => return Err(wrong("no usable `shards`")),
        }
        let end = |shard: u16| {
            let text = value(&format!("end-{shard}"));
            text.and_then(|text| u64::from_str_radix(text, 16).ok())
                .ok_or_else(|| wrong(&format!("no usable `end-{shard}`")))
        };
        let ends = (0..shards).map(end).collect::<Result<_, _>>()?;
        Ok(Self { ends })
    }

    /// As it is written.
    pub(super) fn text(&self) -> String {
        let release = env!("CARGO_PKG_VERSION");
        let shards = self.ends.len();
        let mut text = format!("version = {VERSION}\ncorq = {release}\nshards = {shards}\n");
        for (shard, end) in self.ends.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "end-{shard} = {end:016x}");
        }
        text
    }
}
