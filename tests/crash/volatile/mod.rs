//! A disk whose power can go, as a file system of the test's own (FUSE): what was not synced when it went
//! is there, or not, or in part, sector by sector; a name that was made, changed or removed since its directory was
//! synced is as it was before, or as it is now. Syncs can be made to fail, as on a disk that dies.
//!
//! Knows files as rows of bytes, and nothing of what a server puts into them.

//!
//! | file | responsibility |
//! |---|---|
//! | `disk` | files and names, now and as they were synced |
//! | `view` | the file system that the kernel sees |

mod disk;
mod view;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

use fuser::{BackgroundSession, Config, Errno, MountOption};

use crate::support::Dice;

use disk::{Disk, Node, SECTOR_BYTES};
use view::View;

/// The disk, mounted as long as it is in scope.
pub(crate) struct Volatile {
    path: PathBuf,
    disk: Arc<Mutex<Disk>>,
    session: Option<BackgroundSession>,
}

impl Volatile {
    /// An empty one, mounted at `path`; `None` where that is not allowed.
    pub(crate) fn new(path: &Path) -> Option<Self> {
        fs::create_dir_all(path).ok()?;
        let disk = Arc::new(Mutex::new(Disk::new()));
        let mut made = Self { path: path.to_owned(), disk, session: None };
        made.mount().ok()?;
        Some(made)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// The power goes, and comes back. Nobody may use the disk, but for what the kernel has under way.
    pub(crate) fn cut(&mut self, dice: &mut Dice) {
        {
            let mut disk = self.disk();
            disk.life += 1;
            disk.cut(dice);
        }
        self.unmount();
        self.mount().expect("it could be mounted before");
    }

    /// From now on every sync fails, and keeps nothing; or no more. What a sync that failed was for counts as clean, as
    /// with Linux: it can be read until the power goes, and no later sync keeps it unless it is written again.
    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.disk().syncs_fail = fail;
    }

    /// From now on no sync gets an answer; or those that wait get one, that they failed, and later ones their own.
    pub(crate) fn hold_syncs(&self, hold: bool) {
        let held = std::mem::replace(&mut self.disk().held, hold.then(Vec::new));
        for reply in held.into_iter().flatten() {
            reply.error(Errno::EIO);
        }
    }

    /// From now on nothing can be written for want of room; or it can again.
    pub(crate) fn fill(&self, full: bool) {
        self.disk().full = full;
    }

    /// Syncs of files and directories so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.disk().syncs
    }

    /// The sync with this number, counted from 0, is said to be done, and keeps nothing.
    pub(crate) fn skip_sync(&self, number: Option<u64>) {
        self.disk().skipped = number;
    }

    /// All that is there now outlives the power.
    pub(crate) fn settle(&self) {
        for node in self.disk().nodes.values_mut() {
            match node {
                Node::File(file) => file.keep(|| true),
                Node::Directory(names) => names.kept.clone_from(&names.now),
                Node::Link(_) => {}
            }
        }
    }

    /// The power goes, and nothing is left but what was synced.
    pub(crate) fn cut_to_what_was_synced(&mut self) {
        {
            let mut disk = self.disk();
            disk.life += 1;
            disk.cut_by(|| false);
        }
        self.unmount();
        self.mount().expect("it could be mounted before");
    }

    /// Bytes written that no sync has kept.
    pub(crate) fn unsynced_bytes(&self) -> usize {
        let nodes = &self.disk().nodes;
        let files = nodes.values().map(|node| match node {
            Node::File(file) => file.dirty.len() * SECTOR_BYTES,
            Node::Directory(_) | Node::Link(_) => 0,
        });
        files.sum()
    }

    fn mount(&mut self) -> io::Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("volatile".to_owned())];
        let life = self.disk().life;
        let view = View { disk: Arc::clone(&self.disk), life };
        self.session = Some(fuser::spawn_mount(view, &self.path, &config)?);
        Ok(())
    }

    fn unmount(&mut self) {
        // Lazily: what the kernel still has under way for a process that was killed is not waited for.
        let _ = Command::new("umount").arg("-l").arg(&self.path).output();
        self.session = None;
    }
}

impl Drop for Volatile {
    fn drop(&mut self) {
        self.unmount();
    }
}
