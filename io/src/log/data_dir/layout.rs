//! Names in a data directory: where its shards lie, and what its small files are called.

use std::path::{Path, PathBuf};

/// The newest layout of a data directory that this build reads.
pub(crate) const DIRECTORY_VERSION: u32 = 2;
pub(crate) const MANIFEST: &str = "MANIFEST";
/// The file that makes a directory a backup.
pub const BACKUP_MARKER: &str = "BACKUP";
/// How the directories begin that backups have in the data directory while they are made: where segments are pinned if the
/// copy goes to another file system.
pub(crate) const PINS: &str = "backup-pins";

/// Where the shards lie that are to take the place of others.
pub(crate) const NEXT: &str = "next-shards";

/// The directory of a shard.
pub fn shard_path(path: &Path, shard: u16) -> PathBuf {
    path.join(format!("shard-{shard:04}"))
}

/// The shard that a directory of this path is of, if it is named like one.
pub(crate) fn shard_of(path: &Path) -> Option<u16> {
    let shard = path.file_name()?.to_str()?.strip_prefix("shard-")?.parse().ok()?;
    (path == shard_path(path.parent()?, shard)).then_some(shard)
}
