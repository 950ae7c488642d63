//! Shards that are to take the place of those of a data directory: made in a directory of their own inside, then put
//! in place by [`Moving`].
//!
//! Knows directories and ids; what a move is, and what one that was broken off has left, is
//! `offline::replace_shards`.

use super::DataDir;
use super::identity::new_id;
use super::layout::NEXT;
use super::manifest::Manifest;
use super::refusal::{LockError, io_error};
use crate::log::offline::replace_shards::{Moving, discard, sync, sync_all};
use std::fs;
use std::path::{Path, PathBuf};

/// A place for other shards, of which nobody knows yet.
#[derive(Debug)]
pub struct Next {
    path: PathBuf,
    id: u64,
}

impl Next {
    /// Where their directories go, as those of a data directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Id that the new segments must bear. Not that of the old ones: neither is ever taken for the other.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl DataDir {
    /// Makes an empty place for other shards. What an earlier attempt has left there is removed.
    pub fn begin_next(&self) -> Result<Next, LockError> {
        discard(self.path())?;
        let path = self.path().join(NEXT);
        let make = || {
            fs::create_dir(&path)?;
            new_id()
        };
        let id = make().map_err(|source| io_error(&path, source))?;
        sync(self.path())?;
        Ok(Next { path, id })
    }

    /// The attempt has come to nothing.
    pub fn discard_next(&self, next: Next) -> Result<(), LockError> {
        drop(next);
        discard(self.path()).map(|_| ())
    }

    /// The `shards` shards in `next`, whose logs are complete, take the place of those there are. After
    /// that there is no way back; the steps that remain are the caller's to take.
    pub fn succeed(&mut self, next: &Next, shards: u16) -> Result<Moving, LockError> {
        sync_all(&next.path)?;
        let before = Some(self.shards());
        let (id, moving, begun, sealed) = (next.id, true, true, true);
        let manifest = Manifest { shards, id, moving, before, begun, sealed };
        manifest.write(self.path())?;
        self.adopt(manifest);
        Ok(Moving::new(self.path(), manifest))
    }
}
