//! Opens what bears the name of a segment only if it is a file: a pipe in its place would be waited for without end, and a
//! device be read. The error says which name it was.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file to be read.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true))
}

/// Opens a file to be read and changed.
pub(crate) fn open_to_change(path: &Path) -> io::Result<File> {
    open_with(path, OpenOptions::new().read(true).write(true))
}

/// Opens a file as `options` say.
pub(crate) fn open_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Of no meaning for a file.
    let file = options.custom_flags(libc::O_NONBLOCK).open(path)?;
    is_file(&file, &path.file_name().unwrap_or_default().to_string_lossy())?;
    Ok(file)
}

/// Refuses what was opened under a name and is no file.
pub(crate) fn is_file(file: &File, name: &str) -> io::Result<()> {
    if file.metadata()?.is_file() {
        return Ok(());
    }
    Err(io::Error::other(format!("{name} is a pipe or a device, not a file")))
}
