//! A small file system that a test can fill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own, where the machine lets a test make one.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// A new one in memory, mounted at `path`; `None` where that is not allowed.
    pub(crate) fn new(path: &Path, bytes: u64) -> Option<Self> {
        fs::create_dir_all(path).ok()?;
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path);
        let done = mount.output().is_ok_and(|output| output.status.success());
        done.then(|| Self(path.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
