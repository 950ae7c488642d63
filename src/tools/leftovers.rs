//! Drafts of backups, restores and repairs whose process was killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corq_io::log::{
    Left, PINS, Standing, discard, draft_of_pins, drafts_in, standing as standing_of,
};

/// Drafts of a data directory: in it, those that they lead to, and beside it.
pub fn of(data: &Path) -> io::Result<Vec<Left>> {
    let mut found = drafts_in(data)?;
    let pointed: Vec<PathBuf> = found.iter().filter_map(|left| draft_of_pins(&left.path)).collect();
    let there = pointed.into_iter().filter(|path| path.is_dir());
    found.extend(there.map(|path| Left { standing: standing_of(&path), path }));
    // Earlier builds had one without a marker.
    let unmarked = data.join(PINS);
    if unmarked.is_dir() {
        found.push(Left { path: unmarked, standing: Standing::Unmarked });
    }
    let real = fs::canonicalize(data)?;
    if let Some(above) = real.parent() {
        // Where we may not look, there is nothing of ours.
        found.extend(drafts_in(above).unwrap_or_default());
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found.dedup_by(|one, other| one.path == other.path);
    Ok(found)
}

/// Removes the dead ones in a data directory, and those that they lead to. What cannot be removed stays.
pub(super) fn clear(data: &Path) {
    for Left { path, standing } in drafts_in(data).unwrap_or_default() {
        if !matches!(standing, Standing::Dead(_)) {
            continue;
        }
        // A link is removed only after the draft that it leads to, which could not be found without it.
        if draft_of_pins(&path).is_none_or(|draft| discard(&draft).is_ok() || !draft.exists()) {
            let _ = discard(&path);
        }
    }
}
