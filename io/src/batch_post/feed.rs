//! The way in, bounded by number and by bytes, and the counters that say what has become of items.

use super::config::{Header, Item};
use crossbeam_channel::Sender;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, PoisonError, RwLock};

/// Counts of items, in their units: outcomes since the start, and items under way.
#[derive(Debug, Default)]
pub struct Counters {
    /// Taken by the receiver.
    pub taken: AtomicU64,
    /// Lost for want of room.
    pub dropped: AtomicU64,
    /// Given up: the receiver did not answer, or refused their post.
    pub abandoned: AtomicU64,
    /// Refused by the receiver within a post that it took.
    pub rejected: AtomicU64,
    /// Posts that failed.
    pub failed_posts: AtomicU64,
    /// Items that wait or are on their way.
    pub waiting: AtomicU64,
    /// Memory of the items that wait or are on their way, in bytes.
    pub waiting_bytes: AtomicUsize,
}

impl Counters {
    /// They wait no longer, whatever has become of them.
    pub(super) fn leave(&self, units: u64, bytes: usize) {
        self.waiting.fetch_sub(units, Relaxed);
        self.waiting_bytes.fetch_sub(bytes, Relaxed);
    }
}

/// The way in. Never waits.
pub struct Feed<T> {
    pub(super) items: Sender<T>,
    pub(super) counters: Arc<Counters>,
    pub(super) waiting_bytes_max: usize,
    pub(super) headers: Arc<RwLock<Arc<[Header]>>>,
}

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
            counters: Arc::clone(&self.counters),
            waiting_bytes_max: self.waiting_bytes_max,
            headers: Arc::clone(&self.headers),
        }
    }
}

impl<T: Item> Feed<T> {
    /// Gives an item. If there is no room it is lost, which is counted.
    pub fn offer(&self, item: T) {
        let (units, bytes) = (item.units(), item.bytes());
        let before = self.counters.waiting_bytes.fetch_add(bytes, Relaxed);
        self.counters.waiting.fetch_add(units, Relaxed);
        let fits = before + bytes <= self.waiting_bytes_max;
        if !fits || self.items.try_send(item).is_err() {
            self.counters.leave(units, bytes);
            self.drop_units(units);
        }
    }

    /// Counts units that were lost before.
    pub fn drop_units(&self, units: u64) {
        self.counters.dropped.fetch_add(units, Relaxed);
    }

    /// The next posts have these headers.
    pub fn set_headers(&self, headers: Vec<Header>) {
        *self.headers.write().unwrap_or_else(PoisonError::into_inner) = headers.into();
    }

    /// Counts of items so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
