//! Who has run which job how often.

use std::sync::atomic::{AtomicU32, Ordering};

/// The jobs numbered from 0.
pub(super) struct Ledger(Vec<AtomicU32>);

impl Ledger {
    pub(super) fn of(jobs: usize) -> Self {
        Self((0..jobs).map(|_| AtomicU32::new(0)).collect())
    }

    /// A job runs.
    pub(super) fn note(&self, number: usize) {
        self.0[number].fetch_add(1, Ordering::SeqCst);
    }

    /// How many have run at all.
    pub(super) fn ran(&self) -> usize {
        self.0.iter().filter(|runs| runs.load(Ordering::SeqCst) > 0).count()
    }

    /// Which have run twice or never.
    pub(super) fn wrong(&self) -> Vec<(usize, u32)> {
        let runs = self.0.iter().map(|runs| runs.load(Ordering::SeqCst)).enumerate();
        runs.filter(|&(_, runs)| runs != 1).collect()
    }
}
