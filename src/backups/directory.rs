//! Backups in a directory, each in one of its own by its name. What is not complete there says so, and goes with the
//! next backup.

use super::Found;
use super::name::Name;
use crate::tools::place::{Fault, Place, at};
use corq_io::log::{BACKUP_MARKER, discard};
use std::fs;
use std::io;
use std::path::Path;

/// Behind the name of one that is being removed: by such a name it is none any more.
const GOING: &str = ".removed";

/// The backups in a directory, oldest first; none, if it is not there.
pub fn list(directory: &Path) -> Result<Vec<Found>, Fault> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(at(directory))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(at(directory))?.path();
        let name = path.file_name().and_then(|name| Name::parse(name.to_str()?));
        let Some(name) = name.filter(|_| path.is_dir()) else { continue };
        let bytes = path.join(BACKUP_MARKER).is_file().then(|| Place::of(&path).ok()).flatten();
        let bytes = bytes.map(|place| place.bytes());
        found.push(Found { name, bytes, is_complete: bytes.is_some() });
    }
    found.sort_unstable_by_key(|it| it.name);
    Ok(found)
}

/// Removes a backup, and what an earlier removal has left that was broken off.
pub fn remove(directory: &Path, name: Name) -> Result<(), Fault> {
    let path = directory.join(name.to_string());
    let going = directory.join(format!("{name}{GOING}"));
    // Half of it must not pass for a backup.
    fs::rename(&path, &going).map_err(at(&path))?;
    sweep(directory, name.id)
}

/// Removes what backups of data directory `id`, and removals of them, have left that were broken off.
pub fn sweep(directory: &Path, id: u64) -> Result<(), Fault> {
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let path = entry.map_err(at(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let going = name.strip_suffix(GOING);
        if Name::parse(going.unwrap_or(name)).is_none_or(|name| name.id != id) {
            continue;
        }
        if going.is_some() {
            fs::remove_dir_all(&path).map_err(at(&path))?;
        } else {
            discard(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}
