//! The file that says what a data directory is: how many shards share it, and what tells it from others.
//!
//! Lines of `name = value`, so that people can read it. Its version is the least that a build must
//! know to use the directory: 1, or 2 for as long as its shards are on their way to their places.

use super::lock::{LockError, io_error};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// The newest layout of a data directory that this build reads.
pub(super) const DIRECTORY_VERSION: u32 = 2;
/// The layout of a directory in which all is in its place.
const SETTLED: u32 = 1;
pub(super) const MANIFEST: &str = "MANIFEST";

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    /// How many shards share the directory.
    pub(super) shards: u16,
    /// What tells it from all others: every segment bears it.
    pub(super) id: u64,
    /// Its shards replace others and are not all in their places yet.
    pub(super) moving: bool,
    /// All its shards have begun their logs: what is not there is missing. Earlier builds did not say.
    pub(super) begun: bool,
}

impl Manifest {
    /// Reads that of a directory, if it has one.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, LockError> {
        let path = directory.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error(&path, source)),
        };
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        let bad = |key: &str| LockError::Manifest {
            path: path.clone(),
            reason: format!("no usable `{key}` in the manifest"),
        };
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
        Ok(Some(Self { shards, id, moving, begun }))
    }

    /// Puts it in place of what there was: whole or not at all, whenever the power goes.
    pub(super) fn write(&self, directory: &Path) -> Result<(), LockError> {
        let path = directory.join(MANIFEST);
        let draft = directory.join("MANIFEST.new");
        let Self { shards, id, moving, begun } = self;
        let (version, moving) =
            if *moving { (DIRECTORY_VERSION, "moving = true\n") } else { (SETTLED, "") };
        let begun = if *begun { "begun = true\n" } else { "" };
        let text =
            format!("version = {version}\nshards = {shards}\nid = {id:016x}\n{moving}{begun}");
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|source| io_error(&path, source))
    }
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
            let manifest = Manifest { shards: 7, id: 0xabc, moving, begun };
            manifest.write(dir.path()).unwrap();
            assert_eq!(Manifest::read(dir.path()).unwrap(), Some(manifest));
        }
        let text = fs::read_to_string(dir.path().join(MANIFEST)).unwrap();
        assert_eq!(text, "version = 1\nshards = 7\nid = 0000000000000abc\n");
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
