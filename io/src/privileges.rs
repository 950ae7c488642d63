//! Giving up root's privileges, for good, where a process is to act in a directory of another user.
//!
//! That user can put a link in place of any file there, at any time. What follows one then reaches no more than the
//! user does.
#![allow(unsafe_code)] // User and groups of a process are set by system calls.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// If this process is root's and the directory is not, it becomes one of the directory's owner and group, and has no
/// other groups. Does nothing if it is not root's, or the directory is not there.
pub fn become_owner_of(directory: &Path) -> io::Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
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
    done(unsafe { libc::setresuid(uid, uid, uid) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
