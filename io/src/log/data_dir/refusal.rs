//! Why a data directory cannot be used, in words.

use super::layout::DIRECTORY_VERSION;
use crate::privileges::User;
use std::path::{Path, PathBuf};
use std::{error, fmt, io};

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
        /// The fault that was found.
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
    /// A log that a shard has begun is not there.
    Lost {
        /// The shard's directory.
        path: PathBuf,
        /// The missing part: the directory, or all segments.
        what: &'static str,
    },
    /// The directory is a copy that is being made, or was broken off.
    Incomplete {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is a backup.
    Backup {
        /// The directory.
        path: PathBuf,
    },
    /// Shards lie there without a manifest.
    NoManifest {
        /// The data directory.
        path: PathBuf,
    },
    /// A shard lies there that the manifest does not know of.
    Surplus {
        /// The shard's directory.
        path: PathBuf,
        /// How many shards there are by the manifest.
        shards: u16,
    },
    /// Shards are not there that there are by a manifest without a checksum, and others hold records.
    Fewer {
        /// The manifest.
        path: PathBuf,
        /// How many shards there are by the manifest.
        shards: u16,
        /// How many are there with a log.
        there: usize,
    },
    /// A segment was made for another data directory than the manifest is of.
    Stranger {
        /// The segment's file.
        path: PathBuf,
    },
    /// Shards wait to take the place of others, and the manifest is not that of their change.
    BrokenOff {
        /// The data directory.
        path: PathBuf,
    },
    /// A change of its number of shards was broken off, and only a start of the server ends that.
    Unfinished {
        /// The data directory.
        path: PathBuf,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Bare(self), self.cure())
    }
}

impl LockError {
    /// Text without the advice to use `corq log repair`, which never advises itself.
    pub fn bare(&self) -> String {
        Bare(self).to_string()
    }

    /// Advice on how `corq log repair` can help; empty if it cannot.
    fn cure(&self) -> String {
        match self {
            Self::Manifest { path, .. } => format!(
                ". Put it back as it was, or use '{}', which writes it there as the segments say",
                repair_of(above(path))
            ),
            Self::NoManifest { path } => format!(
                ". Put it back as it was, or use '{}', which writes it there as the segments say",
                repair_of(path)
            ),
            Self::Fewer { path, .. } => {
                format!(": '{}' lets them begin anew there then", repair_of(above(path)))
            }
            Self::Lost { path, .. } => format!(
                "; restore a backup, or use '{}', which copies what is whole",
                repair_of(above(path))
            ),
            _ => String::new(),
        }
    }
}

fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// The command that copies what is whole in a data directory.
pub fn repair_of(directory: &Path) -> String {
    format!("corq log repair {} --to NEW_DIRECTORY", directory.display())
}

/// Text of the fault alone, without advice.
struct Bare<'a>(&'a LockError);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LockError as E;
        match self.0 {
            E::Io { path, source } => {
                write!(f, "{}: {source}", path.display())?;
                match User::owning_name(path).or_else(|_| User::owning(above(path))) {
                    Ok(owner) if source.kind() == io::ErrorKind::PermissionDenied => {
                        write!(f, ": it belongs to {owner}, and this is {}", User::own())
                    }
                    _ => Ok(()),
                }
            }
            E::Held { path, pid: Some(pid) } => {
                write!(f, "data directory {} is in use by process {pid}", path.display())
            }
            E::Held { path, pid: None } => {
                write!(f, "data directory {} is in use by another process", path.display())
            }
            E::Manifest { path, reason } => write!(f, "{}: {reason}", path.display()),
            E::Version { path, found } => write!(
                f,
                "{}: data directory version {found}; this build reads up to version \
                 {DIRECTORY_VERSION}",
                path.display()
            ),
            E::Missing { path } => {
                write!(f, "{} is no data directory: it has no MANIFEST", path.display())
            }
            E::Lost { path, what } => write!(
                f,
                "{}: {what}, and the MANIFEST says that this shard has been begun: its jobs are lost",
                path.display()
            ),
            E::NoManifest { path } => {
                write!(f, "{} has shards, but no MANIFEST: it was lost", path.display())
            }
            E::Surplus { path, shards } => write!(
                f,
                "{} lies here, but the MANIFEST says that there are {shards} shards: it is not that of this \
                 directory, or was changed. Put the right one back, or move the shard away if it belongs elsewhere",
                path.display()
            ),
            E::Fewer { path, shards, there } => write!(
                f,
                "{}: there are {shards} shards by it, of which {there} lie here with a log, and no checksum says that \
                 the number is the one that was written. If it was changed, put the right one back; if shards are \
                 lost, restore a backup, or add the line `begun = true`, by which they count as lost",
                path.display()
            ),
            E::Stranger { path } => write!(
                f,
                "{} was made for another data directory: it was copied here, or the MANIFEST is not that of this log",
                path.display()
            ),
            E::Incomplete { path } => write!(
                f,
                "{} is a copy that is being made, or was not completed, as the file UNFINISHED in it says: if nothing makes \
                 it any more, remove it and copy again",
                path.display()
            ),
            E::Backup { path } => write!(
                f,
                "{} is a backup, which a server would change: make a data directory of it with 'corq restore', and \
                 start on that",
                path.display()
            ),
            E::BrokenOff { path } => write!(
                f,
                "{}: a change of the number of shards was broken off here, and the MANIFEST is not the one of that \
                 change: put that back, or restore a backup. What lies in next-shards may be all there is of these jobs",
                path.display()
            ),
            E::Unfinished { path } => write!(
                f,
                "data directory {} is in the middle of a change of its number of shards: start the server \
                 on it once, which ends that",
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

pub(crate) fn io_error(path: &Path, source: io::Error) -> LockError {
    LockError::Io { path: path.into(), source }
}
