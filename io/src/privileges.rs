//! Whose a directory is, and whose this process. A tool that acted in the directory of another user would leave there what
//! that user's server cannot use; and root would follow whatever links that user puts there.
#![allow(unsafe_code)] // The user of a process is known by a system call.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A user. As text its name, if it has one, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
}

impl User {
    /// The one whose rights this process has.
    pub fn own() -> Self {
        // SAFETY: no memory is involved.
        Self { uid: unsafe { libc::geteuid() } }
    }

    /// The owner of what a path leads to.
    pub fn owning(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|about| Self { uid: about.uid() })
    }

    /// The owner of what has this name, be it a link.
    pub fn owning_name(path: &Path) -> io::Result<Self> {
        fs::symlink_metadata(path).map(|about| Self { uid: about.uid() })
    }

    /// Whether it is root.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }

    /// How `sudo -u` takes it.
    pub fn for_sudo(self) -> String {
        self.name().unwrap_or_else(|| format!("'#{}'", self.uid))
    }

    /// Name of the user in the file of users.
    fn name(self) -> Option<String> {
        let users = fs::read_to_string("/etc/passwd").ok()?;
        let mut lines = users.lines().map(|line| line.split(':'));
        lines.find_map(|mut fields| {
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(self.uid)).then(|| name.to_owned())
        })
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_called_by_name_where_they_have_one() {
        let root = User { uid: 0 };
        assert_eq!((root.to_string(), root.for_sudo()), ("root (uid 0)".into(), "root".into()));
        let other = User { uid: 54_321 };
        assert_eq!((other.to_string(), other.for_sudo()), ("uid 54321".into(), "'#54321'".into()));
    }
}
