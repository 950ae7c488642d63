//! The file that says what a data directory is: how many shards share it, and what tells it from others.
//!
//! Lines of `name = value`, so that people can read it. Its version is the least that a build must
//! know to use the directory: 1, or 2 for as long as its shards are on their way to their places.

use super::layout::{DIRECTORY_VERSION, MANIFEST};
use super::refusal::{LockError, io_error};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The layout of a directory in which all is in its place.
const SETTLED: u32 = 1;

/// Shards and id of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// How many shards share it.
    pub shards: u16,
    /// Id of the directory, which tells it from all others: every segment bears it.
    pub id: u64,
    /// All its shards have begun their logs: what is not there is missing.
    pub is_begun: bool,
}

/// The contents of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// How many shards share the directory.
    pub(crate) shards: u16,
    /// Id of the directory, which tells it from all others: every segment bears it.
    pub(crate) id: u64,
    /// The shards replace others and are not all in their places yet.
    pub(crate) moving: bool,
    /// How many those others are, while shards move. Earlier builds did not say.
    pub(crate) before: Option<u16>,
    /// All its shards have begun their logs: what is not there is missing. Earlier builds did not say.
    pub(crate) begun: bool,
    /// The manifest has a checksum, so its number is the one that was written. Earlier builds gave it none.
    pub(crate) sealed: bool,
}

impl Manifest {
    /// That of a directory in which all is in its place.
    pub(crate) const fn of(shards: u16, id: u64, begun: bool) -> Self {
        Self { shards, id, moving: false, before: None, begun, sealed: true }
    }

    /// Reads that of a directory, if it has one.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, LockError> {
        let path = directory.join(MANIFEST);
        match fs::read(&path) {
            Ok(bytes) => Self::parse(path, &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(io_error(&path, source)),
        }
    }

    /// Decodes the manifest found at `path`. Refuses what was not written so, and newer versions.
    fn parse(path: PathBuf, bytes: &[u8]) -> Result<Self, LockError> {
        let text = String::from_utf8_lossy(bytes);
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        let wrong = |reason: String| LockError::Manifest { path: path.clone(), reason };
        let bad = |key: &str| wrong(format!("it has no usable `{key}`"));
        let sealed = check(&text).map_err(wrong)?;
        let version = value("version").and_then(|text| text.parse().ok());
        let moving = match version.ok_or_else(|| bad("version"))? {
            SETTLED => false,
            DIRECTORY_VERSION if value("moving") == Some("true") => true,
            DIRECTORY_VERSION => return Err(bad("moving")),
            found => return Err(LockError::Version { path, found }),
        };
        let shards = value("shards").and_then(|text| text.parse().ok()).filter(|&it| it > 0);
        let id = value("id").and_then(|text| u64::from_str_radix(text, 16).ok());
        let (shards, id) = (shards.ok_or_else(|| bad("shards"))?, id.ok_or_else(|| bad("id"))?);
        let begun = match value("begun") {
            None => false,
            Some("true") => true,
            Some(_) => return Err(bad("begun")),
        };
        let before = match value("before") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| bad("before"))?),
        };
        Ok(Self { shards, id, moving, before, begun, sealed })
    }

    /// Puts it in place of what there was: whole or not at all, whenever the power goes.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), LockError> {
        let path = directory.join(MANIFEST);
        let draft = directory.join("MANIFEST.new");
        let text = self.text();
        let write = || {
            // A draft that is there is a leftover, or a link that another user has put there: never write to it.
            match fs::remove_file(&draft) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = File::create_new(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|source| io_error(&path, source))
    }

    fn text(&self) -> String {
        let Self { shards, id, moving, before, begun, sealed: _ } = self;
        let (version, moving) =
            if *moving { (DIRECTORY_VERSION, "moving = true\n") } else { (SETTLED, "") };
        let before = before.map_or(String::new(), |before| format!("before = {before}\n"));
        let begun = if *begun { "begun = true\n" } else { "" };
        let first = format!("version = {version}\n");
        let rest = format!("shards = {shards}\nid = {id:016x}\n{moving}{before}{begun}");
        let sum = sum(&format!("{first}{rest}"));
        // Near the beginning: a file that was cut anywhere behind it is noticed.
        format!("{first}{CHECKSUM} = {sum:08x}\n{rest}")
    }
}

const CHECKSUM: &str = "checksum";
/// Keys that earlier builds wrote, without a checksum.
const KNOWN: [&str; 5] = ["version", "shards", "id", "moving", "begun"];

fn sum(text: &str) -> u32 {
    crc32c::crc32c(text.as_bytes())
}

/// Refuses what are not the lines that were written. Answers whether a checksum says so.
fn check(text: &str) -> Result<bool, String> {
    let key = |line: &str| line.split_once('=').map(|(name, _)| name.trim().to_owned());
    let (sums, lines): (Vec<_>, Vec<_>) =
        text.split_inclusive('\n').partition(|line| key(line).is_some_and(|name| name == CHECKSUM));
    let is_right = match sums[..] {
        // Without one they are those of an earlier build, unless that line is the one that was changed.
        [] => lines.iter().all(|line| {
            line.trim().is_empty() || key(line).is_some_and(|name| KNOWN.contains(&&*name))
        }),
        [said] => {
            let said = said.split_once('=').map_or("", |(_, value)| value.trim());
            u32::from_str_radix(said, 16).is_ok_and(|said| said == sum(&lines.concat()))
        }
        _ => false,
    };
    if is_right {
        return Ok(!sums.is_empty());
    }
    Err("it is not what was written: its checksum is wrong".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), None);
        for (moving, begun) in [(true, true), (false, true), (true, false), (false, false)] {
            let before = moving.then_some(9);
            let (shards, id, sealed) = (7, 0xabc, true);
            let manifest = Manifest { shards, id, moving, before, begun, sealed };
            manifest.write(dir.path()).unwrap();
            assert_eq!(Manifest::read(dir.path()).unwrap(), Some(manifest));
        }
        let text = fs::read_to_string(dir.path().join(MANIFEST)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            [lines[0], lines[2], lines[3]],
            ["version = 1", "shards = 7", "id = 0000000000000abc"]
        );
        assert!(lines.len() == 4 && lines[1].starts_with("checksum = "), "{text}");
    }

    /// Every other byte in every place, every line without its like, and every shorter file.
    #[test]
    fn one_that_was_changed_or_cut_is_refused() {
        for moving in [false, true] {
            let before = moving.then_some(4);
            let (shards, id, begun, sealed) = (2, 0x1234_5678, true, true);
            let manifest = Manifest { shards, id, moving, before, begun, sealed };
            let text = manifest.text();
            let refused = |bytes: &[u8]| {
                let found = Manifest::parse(PathBuf::new(), bytes);
                // Spaces mean nothing, and a number is the same in capitals.
                let same = found.as_ref().is_ok_and(|found| *found == manifest);
                assert!(found.is_err() || same, "{found:?}: {}", String::from_utf8_lossy(bytes));
            };
            for at in 0..text.len() {
                refused(&text.as_bytes()[..at]);
                for byte in 0..=255 {
                    let mut changed = text.clone().into_bytes();
                    changed[at] = byte;
                    refused(&changed);
                }
            }
            for left_out in 0..text.lines().count() {
                let lines = text.split_inclusive('\n').enumerate();
                let rest: String =
                    lines.filter(|(at, _)| *at != left_out).map(|(_, line)| line).collect();
                // As an earlier build wrote it.
                if left_out != 1 || moving {
                    refused(rest.as_bytes());
                }
            }
        }
    }

    #[test]
    fn those_of_earlier_builds_are_read() {
        let dir = tempfile::tempdir().unwrap();
        for (text, moving, begun) in [
            ("version = 1\nshards = 4\nid = 00000000000000ff\n", false, false),
            ("version = 1\nshards = 4\nid = 00000000000000ff\nbegun = true\n", false, true),
            (
                "version = 2\nshards = 4\nid = 00000000000000ff\nmoving = true\nbegun = true\n",
                true,
                true,
            ),
        ] {
            fs::write(dir.path().join(MANIFEST), text).unwrap();
            let (shards, id, before, sealed) = (4, 255, None, false);
            let found = Manifest { shards, id, moving, before, begun, sealed };
            assert_eq!(Manifest::read(dir.path()).unwrap(), Some(found), "{text}");
        }
    }

    #[test]
    fn a_newer_or_unreadable_one_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(dir.path().join(MANIFEST), text).unwrap();
        write("version = 3\nshards = 4\n");
        let error = Manifest::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains("version 3"), "{error}");
        for text in [
            "",
            "version = 1\n",
            "version = x\nshards = 1\nid = 1\n",
            "version = 1\nshards = -1\nid = 1\n",
            "version = 1\nshards = 0\nid = 1\n",
            "version = 1\nshards = 1\n",
            "version = 1\nshards = 1\nid = none\n",
            "version = 2\nshards = 1\nid = 1\n",
            "version = 1\nshards = 1\nid = 1\nbegun = tru\n",
        ] {
            write(text);
            let error = Manifest::read(dir.path()).unwrap_err();
            assert!(matches!(error, LockError::Manifest { .. }), "{text:?}: {error}");
        }
    }
}
