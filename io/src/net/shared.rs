//! Bytes that many outputs send: held once, and counted once for as long as any of them has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of all shared pieces that a connection still holds.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    bytes: AtomicUsize,
    /// Where they count as well.
    whole: Option<Tally>,
}

impl Tally {
    /// A tally of its own whose bytes count in this one, too.
    #[must_use]
    pub fn part(&self) -> Self {
        Self(Arc::new(Sum { bytes: AtomicUsize::new(0), whole: Some(self.clone()) }))
    }

    /// Their number.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Bytes to be shared, counted here.
    pub fn share(&self, bytes: impl Into<Bytes>) -> Shared {
        let bytes = bytes.into();
        let count = bytes.held_bytes();
        self.each(|sum| sum.fetch_add(count, Ordering::Relaxed));
        Shared(Arc::new(Held { bytes, tally: self.clone() }))
    }

    /// Counts memory here that grows until its bytes can be shared.
    pub fn count(&self) -> Counted {
        Counted { bytes: 0, tally: self.clone() }
    }

    fn each(&self, count: impl Fn(&AtomicUsize) -> usize) {
        let mut next = Some(self);
        while let Some(tally) = next {
            count(&tally.0.bytes);
            next = tally.0.whole.as_ref();
        }
    }
}

/// Memory that counts in a tally, until this is dropped.
#[derive(Debug)]
pub struct Counted {
    bytes: usize,
    tally: Tally,
}

impl Counted {
    /// Counts `bytes` from now on, instead of what was counted before.
    pub fn set(&mut self, bytes: usize) {
        let was = std::mem::replace(&mut self.bytes, bytes);
        self.tally.each(|sum| sum.fetch_add(bytes, Ordering::Relaxed));
        self.tally.each(|sum| sum.fetch_sub(was, Ordering::Relaxed));
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes wherever they were before.
#[derive(Debug)]
pub enum Bytes {
    /// Nobody else has them.
    Own(Vec<u8>),
    /// Others may.
    Common(Arc<Vec<u8>>),
    /// They are part of the program, and take no memory that a client could ask for.
    Static(&'static [u8]),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Common(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }

    /// Memory that is held for them.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Static(_) => 0,
            Self::Own(_) | Self::Common(_) => self.get().len(),
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(mut bytes: Vec<u8>) -> Self {
        bytes.shrink_to_fit();
        Self::Own(bytes)
    }
}

impl From<Arc<Vec<u8>>> for Bytes {
    fn from(bytes: Arc<Vec<u8>>) -> Self {
        Self::Common(bytes)
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

#[derive(Debug)]
struct Held {
    bytes: Bytes,
    tally: Tally,
}

impl Drop for Held {
    fn drop(&mut self) {
        let count = self.bytes.held_bytes();
        self.tally.each(|sum| sum.fetch_sub(count, Ordering::Relaxed));
    }
}

/// Bytes of which every clone is the same memory.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Held>);

impl Shared {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_part_of_the_program_counts_as_nothing() {
        let tally = Tally::default();
        let shared = tally.share(&b"page"[..]);
        assert_eq!((shared.bytes(), tally.bytes()), (&b"page"[..], 0));
        drop(shared);
        assert_eq!(tally.bytes(), 0);
    }

    #[test]
    fn what_grows_counts_in_the_whole_until_it_is_dropped() {
        let whole = Tally::default();
        let mut counted = whole.part().count();
        counted.set(10);
        counted.set(7);
        assert_eq!(whole.bytes(), 7);
        drop(counted);
        assert_eq!(whole.bytes(), 0);
    }

    #[test]
    fn bytes_count_once_where_they_are_shared_and_in_the_whole_until_nobody_has_them() {
        let whole = Tally::default();
        let (part, other) = (whole.part(), whole.part());
        let first = part.share(vec![1; 10]);
        let second = other.share(vec![2; 5]);
        let again = first.clone();
        assert_eq!((part.bytes(), other.bytes(), whole.bytes()), (10, 5, 15));
        drop(first);
        assert_eq!(again.bytes(), [1; 10]);
        drop(again);
        drop(second);
        assert_eq!((part.bytes(), other.bytes(), whole.bytes()), (0, 0, 0));
    }
}
