//! The data directory: who may use it, and what it was made for.
//!
//! Knows two small files, `LOCK` and `MANIFEST`; nothing of the segments beside them.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::{error, fmt, process};

/// The layout of the data directory that this build writes, and the newest it reads.
const DIRECTORY_VERSION: u32 = 1;
const MANIFEST: &str = "MANIFEST";
const LOCK: &str = "LOCK";

/// A data directory that belongs to this process as long as the value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    shards: u16,
    id: u64,
    /// The kernel lets go of the lock with the file, however the process ends.
    _lock: File,
}

/// Why a data directory cannot be used.
#[derive(Debug)]
pub enum LockError {
    /// A file operation failed.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// Another server uses it.
    Held {
        /// The data directory.
        path: PathBuf,
        /// The other server's process id, if it could be read.
        pid: Option<u32>,
    },
    /// The manifest cannot be read.
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Made by a newer build.
    Version {
        /// The manifest.
        path: PathBuf,
        /// The version found.
        found: u32,
    },
    /// There is none.
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Made for another number of shards.
    ShardCount {
        /// The data directory.
        path: PathBuf,
        /// The number it was made for.
        found: u16,
        /// The number asked for.
        configured: u16,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Held { path, pid: Some(pid) } => {
                write!(f, "data directory {} is in use by process {pid}", path.display())
            }
            Self::Held { path, pid: None } => {
                write!(f, "data directory {} is in use by another process", path.display())
            }
            Self::Manifest { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Version { path, found } => write!(
                f,
                "{}: data directory version {found}; this build reads up to version \
                 {DIRECTORY_VERSION}",
                path.display()
            ),
            Self::Missing { path } => {
                write!(f, "{} is no data directory: it has no MANIFEST", path.display())
            }
            Self::ShardCount { path, found, configured } => write!(
                f,
                "data directory {} was made for {found} shards and cannot be opened with \
                 {configured}; start with {found} shards",
                path.display()
            ),
        }
    }
}

impl error::Error for LockError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl DataDir {
    /// Takes the directory for a server of `shards` shards, making it if it does not exist.
    pub fn open(path: &Path, shards: u16) -> Result<Self, LockError> {
        fs::create_dir_all(path).map_err(|source| io_error(path, source))?;
        let lock = take_lock(path)?;
        let mut directory = Self { path: path.into(), shards, id: 0, _lock: lock };
        match read_manifest(path)? {
            None => {
                directory.id = new_id().map_err(|source| io_error(path, source))?;
                write_manifest(path, shards, directory.id)?;
            }
            Some((found, id)) if found == shards => directory.id = id,
            Some((found, _)) => {
                let path = path.into();
                return Err(LockError::ShardCount { path, found, configured: shards });
            }
        }
        Ok(directory)
    }

    /// Takes a directory that is there, of however many shards.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let (shards, id) = Self::about(path)?;
        let lock = take_lock(path)?;
        Ok(Self { path: path.into(), shards, id, _lock: lock })
    }

    /// What the manifest of a directory says: how many shards share it, and its id. Takes nothing.
    pub fn about(path: &Path) -> Result<(u16, u64), LockError> {
        let missing = || LockError::Missing { path: path.into() };
        read_manifest(path)?.ok_or_else(missing)
    }

    /// Whether somebody has the directory at the moment.
    pub fn is_held(path: &Path) -> Result<bool, LockError> {
        let path = path.join(LOCK);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(io_error(&path, source)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(io_error(&path, source)),
        }
    }

    /// The directory of a shard.
    pub fn shard_path(path: &Path, shard: u16) -> PathBuf {
        path.join(format!("shard-{shard:04}"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What tells it from all others: every segment bears it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How many shards share it.
    pub fn shards(&self) -> u16 {
        self.shards
    }
}

/// The number of shards, and the id.
fn read_manifest(directory: &Path) -> Result<Option<(u16, u64)>, LockError> {
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
    match version.ok_or_else(|| bad("version"))? {
        DIRECTORY_VERSION => {}
        found => return Err(LockError::Version { path, found }),
    }
    let shards = value("shards").and_then(|text| text.parse().ok());
    let id = value("id").and_then(|text| u64::from_str_radix(text, 16).ok());
    Ok(Some((shards.ok_or_else(|| bad("shards"))?, id.ok_or_else(|| bad("id"))?)))
}

/// Whole or not at all, whenever the power goes.
fn write_manifest(directory: &Path, shards: u16, id: u64) -> Result<(), LockError> {
    let path = directory.join(MANIFEST);
    let draft = directory.join("MANIFEST.new");
    let text = format!("version = {DIRECTORY_VERSION}\nshards = {shards}\nid = {id:016x}\n");
    let write = || {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|source| io_error(&path, source))
}

/// A number that no other directory has.
fn new_id() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn io_error(path: &Path, source: io::Error) -> LockError {
    LockError::Io { path: path.into(), source }
}

/// Locks `LOCK` and leaves the process id in it, for the message that the next one gets.
fn take_lock(directory: &Path) -> Result<File, LockError> {
    let path = directory.join(LOCK);
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|source| io_error(&path, source))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(source)) => return Err(io_error(&path, source)),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(LockError::Held { path: directory.into(), pid });
        }
    }
    let mut write = || {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", process::id())
    };
    write().map_err(|source| io_error(&path, source))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_second_server_is_refused_and_told_who_holds_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let held = DataDir::open(&data, 4).unwrap();
        let error = DataDir::open(&data, 4).unwrap_err();
        assert!(error.to_string().contains(&format!("process {}", process::id())), "{error}");
        drop(held);
        DataDir::open(&data, 4).unwrap();
    }

    #[test]
    fn another_shard_count_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(DataDir::open(dir.path(), 4).unwrap());
        let error = DataDir::open(dir.path(), 8).unwrap_err();
        assert!(matches!(error, LockError::ShardCount { found: 4, configured: 8, .. }), "{error}");
        assert_eq!(DataDir::open(dir.path(), 4).unwrap().shards(), 4);
    }

    #[test]
    fn each_directory_has_an_id_of_its_own_that_stays() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = |dir: &tempfile::TempDir| DataDir::open(dir.path(), 2).unwrap().id();
        assert_eq!(id(&one), id(&one));
        assert_ne!(id(&one), id(&other));
    }

    #[test]
    fn a_newer_or_unreadable_manifest_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = dir.path().join(MANIFEST);
        fs::write(&manifest, "version = 2\nshards = 4\n").unwrap();
        let error = DataDir::open(dir.path(), 4).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
        for text in [
            "",
            "version = 1\n",
            "version = x\nshards = 1\nid = 1\n",
            "version = 1\nshards = -1\nid = 1\n",
            "version = 1\nshards = 1\n",
            "version = 1\nshards = 1\nid = none\n",
        ] {
            fs::write(&manifest, text).unwrap();
            let error = DataDir::open(dir.path(), 4).unwrap_err();
            assert!(matches!(error, LockError::Manifest { .. }), "{text:?}: {error}");
        }
    }
}
