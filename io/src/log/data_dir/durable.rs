//! Directories that are still there when the power is back.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes a directory, with those above it, so that none of them goes with the power.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.exists()).collect();
    fs::create_dir_all(path)?;
    // Of a relative path the last of them is empty: where the process is.
    missing.into_iter().filter(|made| !made.as_os_str().is_empty()).try_for_each(sync_name)
}

/// Makes the name of a directory durable, as far as that is ours to do.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        None => return Ok(()),
        Some(here) if here.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    match File::open(above) {
        Ok(directory) => directory.sync_all(),
        // Where we may not look, another user has made the directory for us.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn directories_are_made_with_those_above_them() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("one/two/three");
        make_directory(&path).unwrap();
        make_directory(&path).unwrap();
        assert!(path.is_dir());
    }
}
