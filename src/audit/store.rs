//! Where entries lie: in files that are rotated by size, or the last of them in memory.

use corq_io::line_files::{Bounds, LineFiles, page};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

/// Entries that are kept where there is no data directory.
pub const IN_MEMORY_MAX: usize = 1000;

/// The file of the key of the names of tokens.
const KEY_FILE: &str = "key";

/// Where entries lie.
#[derive(Debug)]
pub enum Store {
    Files { files: LineFiles, path: PathBuf },
    Memory { lines: VecDeque<(u64, Vec<u8>)>, next: u64 },
}

impl Store {
    /// In a folder, which is made if it is not there.
    pub fn in_folder(path: &Path, bounds: Bounds) -> io::Result<Self> {
        Ok(Self::Files { files: LineFiles::open(path, bounds)?, path: path.into() })
    }

    /// In memory, the last [`IN_MEMORY_MAX`].
    pub fn in_memory() -> Self {
        Self::Memory { lines: VecDeque::new(), next: 1 }
    }

    /// The key of the names of tokens: `fresh` from now on, if there is none yet.
    pub fn key(&self, fresh: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Files { files, .. } => files.secret(KEY_FILE, fresh),
            Self::Memory { .. } => Ok(fresh.to_vec()),
        }
    }

    /// The number of the next entry.
    pub fn next(&self) -> u64 {
        match self {
            Self::Files { files, .. } => files.next(),
            Self::Memory { next, .. } => *next,
        }
    }

    /// Adds entries, of which the first has the number [`Self::next`].
    pub fn append(&mut self, text: &[u8], count: u64) -> io::Result<()> {
        match self {
            Self::Files { files, .. } => files.append(text, count),
            Self::Memory { lines, next } => {
                for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    lines.push_back((*next, line.to_vec()));
                    *next += 1;
                }
                lines.drain(..lines.len().saturating_sub(IN_MEMORY_MAX));
                Ok(())
            }
        }
    }

    pub fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::Files { files, .. } => files.sync(),
            Self::Memory { .. } => Ok(()),
        }
    }

    /// Bytes of all entries.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Files { files, .. } => files.bytes(),
            Self::Memory { lines, .. } => lines.iter().map(|(_, line)| line.len() as u64).sum(),
        }
    }

    /// At most `limit` entries with numbers below `before`, newest first.
    pub fn page(&self, before: u64, limit: usize) -> io::Result<Vec<Vec<u8>>> {
        match self {
            Self::Files { path, .. } => page(path, before, limit),
            Self::Memory { lines, .. } => {
                let older = lines.iter().rev().filter(|(number, _)| *number < before);
                Ok(older.take(limit).map(|(_, line)| line.clone()).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn in_memory_the_last_entries_are_kept_and_read_by_their_numbers() {
        let mut store = Store::in_memory();
        for number in 1..=IN_MEMORY_MAX + 2 {
            assert_eq!(store.next(), number as u64);
            store.append(format!("{number}\n").as_bytes(), 1).unwrap();
        }
        assert_eq!(store.page(u64::MAX, 2).unwrap(), [b"1002", b"1001"]);
        assert_eq!(store.page(5, 10).unwrap(), [b"4", b"3"]);
        assert_eq!(store.page(3, 10).unwrap(), Vec::<Vec<u8>>::new());
        assert!(store.bytes() > 2000);
    }
}
