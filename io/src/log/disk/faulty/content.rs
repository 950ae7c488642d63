//! The bytes of a file: as a reader sees them, and as the disk has them.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes that a disk writes as a whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// Sectors of segments.
pub(super) type Sectors = BTreeMap<(u64, usize), Vec<u8>>;

/// Bytes of a file, and which of them a loss of power leaves.
#[derive(Debug, Default, Clone)]
pub(super) struct Content {
    /// Bytes that a reader sees.
    pub(super) now: Vec<u8>,
    /// Bytes that the disk has.
    pub(super) kept: Vec<u8>,
    /// Sectors in which the two may differ.
    pub(super) dirty: BTreeSet<usize>,
    /// When what the disk has of a sector had been written: no sync that began before brings older bytes back.
    pub(super) kept_at: BTreeMap<usize, u64>,
    /// Whether the directory on the disk names it.
    pub(super) named: bool,
    /// The segment that a file was before it was set aside.
    pub(super) was: Option<u64>,
    /// Not all of its room has been taken.
    pub(super) lacks_room: bool,
}

impl Content {
    /// A file that was never written.
    pub(super) fn zeroed(bytes: u64) -> Self {
        let now = vec![0; bytes as usize];
        Self { kept: now.clone(), now, ..Self::default() }
    }

    /// Brings what a sync would bring to the disk. What a failed one has given up is not among it.
    pub(super) fn settle(&mut self) {
        for sector in std::mem::take(&mut self.dirty) {
            let end = ((sector + 1) * SECTOR_BYTES).min(self.now.len());
            if let Some(kept) = self.kept.get_mut(sector * SECTOR_BYTES..end) {
                kept.copy_from_slice(&self.now[sector * SECTOR_BYTES..end]);
            }
        }
    }
}
