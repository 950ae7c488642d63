//! Root's privileges, given up where a process is to act in a directory of another user: for good, or for a while.
//!
//! That user can put a link in place of any file there, at any time. What follows one then reaches no more than the
//! user does.
#![allow(unsafe_code)] // User and groups of a process are set by system calls.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// If this process is root's and the directory is not, it becomes one of the directory's owner and group, and has no
/// other groups. Does nothing if it is not root's, or the directory is not there.
pub fn become_owner_of(directory: &Path) -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let about = match fs::metadata(directory) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let (uid, gid) = (about.uid(), about.gid());
    if uid == 0 {
        return Ok(());
    }
    // The user last: only root may change the groups.
    // SAFETY: the kernel reads one group, which lives until the call is over.
    done(unsafe { libc::setgroups(1, &raw const gid) })?;
    // SAFETY: no memory is involved.
    done(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(uid, uid, uid) })?;
    Ok(())
}

/// Whether this process has the rights of root at the moment.
pub fn is_root() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() == 0 }
}

/// A user and its group, as they own files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The owner of what a path leads to, or of the nearest directory above it if there is nothing yet.
    pub fn owning(path: &Path) -> io::Result<Self> {
        let mut missing = io::ErrorKind::NotFound.into();
        for above in path.ancestors() {
            // The end of a relative path is where the process is.
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match fs::metadata(above) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
                found => return found.map(|about| Self::of(&about)),
            }
        }
        Err(missing)
    }

    /// The owner of what has this name, be it a link; none if nothing has it.
    pub fn owning_name(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(about) => Ok(Some(Self::of(&about))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn of(about: &Metadata) -> Self {
        Self { uid: about.uid(), gid: about.gid() }
    }

    /// Whether it is root.
    pub fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Has its rights and no other groups until the value is dropped. Does nothing if this process is not root's, acts as
    /// another user already, or the user is root.
    pub fn act(self) -> io::Result<Acting> {
        if !is_root() || self.is_root() {
            return Ok(Acting(None));
        }
        let Self { uid, gid } = self;
        // SAFETY: no memory is involved.
        let count = done(unsafe { libc::getgroups(0, std::ptr::null_mut()) })?;
        let mut groups = vec![0; count as usize];
        // SAFETY: there is room for so many.
        let count = done(unsafe { libc::getgroups(count, groups.as_mut_ptr()) })?;
        groups.truncate(count as usize);
        // SAFETY: no memory is involved.
        let acting = Acting(Some(Before { gid: unsafe { libc::getegid() }, groups }));
        // The user last: only root may change the groups. On an error the drop of `acting` puts back what there was.
        // SAFETY: the kernel reads one group, which lives until the call is over.
        done(unsafe { libc::setgroups(1, &raw const gid) })?;
        // SAFETY: no memory is involved.
        done(unsafe { libc::setresgid(KEPT, gid, KEPT) })?;
        // SAFETY: as above.
        done(unsafe { libc::setresuid(KEPT, uid, KEPT) })?;
        Ok(acting)
    }
}

/// The rights of another user, as long as this lives: all threads of the process have them.
///
/// It ends with the rights of before. A process that cannot get them back must not go on with those of a stranger, and is
/// aborted.
#[derive(Debug)]
#[must_use = "the rights are given back at once"]
pub struct Acting(Option<Before>);

/// Rights of root, to be put back.
#[derive(Debug)]
struct Before {
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

/// An id that stays as it is.
const KEPT: u32 = u32::MAX;

impl Drop for Acting {
    fn drop(&mut self) {
        let Some(Before { gid, groups }) = &self.0 else { return };
        // SAFETY: the kernel reads the groups, which live until the calls are over.
        let ended = unsafe {
            libc::setresuid(KEPT, 0, KEPT) == 0
                && libc::setresgid(KEPT, *gid, KEPT) == 0
                && libc::setgroups(groups.len(), groups.as_ptr()) == 0
        };
        if !ended {
            eprintln!("the rights of root cannot be had again: {}", io::Error::last_os_error());
            std::process::abort();
        }
    }
}

/// How a file of one directory can get a second name in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// By its path, with the rights that both directories have in common.
    ByPath,
    /// Opened with the rights of the one directory, and linked with those of root.
    Opened,
    /// Nobody but root may write to both, and root would follow the links of two users.
    Not,
}

/// How this process can share files of the user `from` with those of the user `to`.
pub fn linking(from: User, to: User) -> Linking {
    match to {
        _ if !is_root() || from.uid == to.uid => Linking::ByPath,
        to if to.is_root() => Linking::Opened,
        _ => Linking::Not,
    }
}

/// Opens a file to be read that another user may have replaced: a link is not followed, and a pipe not waited for.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is a pipe or a device, not a file"))
    }
}

/// Gives an open file a second name, whatever has its first one by now.
pub fn link_open(file: &File, to: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both texts end with zero and live until the call is over.
    done(unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) })?;
    Ok(())
}

fn done(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
