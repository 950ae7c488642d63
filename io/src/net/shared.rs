//! Bytes that many outputs send: held once, and counted once for as long as any of them has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of all that is shared and still held by somebody.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<AtomicUsize>);

impl Tally {
    /// Their number.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Bytes to be shared, counted here.
    pub fn share(&self, bytes: impl Into<Arc<[u8]>>) -> Shared {
        let bytes = bytes.into();
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Shared(Arc::new(Held { bytes, tally: self.clone() }))
    }
}

#[derive(Debug)]
struct Held {
    bytes: Arc<[u8]>,
    tally: Tally,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tally.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

/// Bytes of which every clone is the same memory.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Held>);

impl Shared {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }
}
