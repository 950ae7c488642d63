//! Two directories in each other's place, at once: whenever the power goes, both are somewhere, whole.
#![allow(unsafe_code)] // renameat2 has no wrapper in std.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Gives each of two paths of one file system what the other one has.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    match exchange_at_once(one, other) {
        Err(error) if is_unknown(&error) => exchange_in_steps(one, other),
        done => done,
    }
}

fn exchange_at_once(one: &Path, other: &Path) -> io::Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (one, other) = (text(one)?, text(other)?);
    let flags = libc::RENAME_EXCHANGE;
    // SAFETY: a system call that reads two texts, which live until it is over.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            flags,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the file system cannot do that.
fn is_unknown(error: &io::Error) -> bool {
    let errors = [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|error| errors.contains(&error))
}

/// The same where it cannot be done at once: `one` is missing for a moment.
fn exchange_in_steps(one: &Path, other: &Path) -> io::Result<()> {
    let mut name = other.file_name().map(OsString::from).unwrap_or_default();
    name.push(".aside");
    let aside = other.with_file_name(name);
    fs::rename(other, &aside)?;
    fs::rename(one, other)?;
    fs::rename(aside, one)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_gets_what_the_other_one_has() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        for path in [&one, &other] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("name"), path.file_name().unwrap().as_bytes()).unwrap();
        }
        let names = || [&one, &other].map(|path| fs::read_to_string(path.join("name")).unwrap());
        exchange(&one, &other).unwrap();
        assert_eq!(names(), ["other", "one"]);
        exchange_in_steps(&one, &other).unwrap();
        assert_eq!(names(), ["one", "other"]);
        exchange(&one, &dir.path().join("none")).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
