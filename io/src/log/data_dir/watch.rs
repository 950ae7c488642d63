//! Whether the files that the logs are written to are still those that the next start will find. Files that were
//! removed, or whose directory was, take everything as if nothing had happened.
//!
//! One thread looks, now and then, by names: each must lead to what it led to before. The shards say which files
//! they use ([`Presence`]), and each says that it uses one no more before it lets it go.

use super::DataDir;
use super::identity::Identity;
use super::layout::{MANIFEST, shard_path};
use crate::log::Log;
use crate::log::format::segment::file_name;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Files of a shard looked at each time, the newest first; the others in turn.
const FILES_PER_LOOK: usize = 512;

/// What the shards and the one who looks tell each other.
#[derive(Debug)]
pub struct Presence {
    gone: AtomicBool,
    looks: AtomicU64,
    /// The segments that each shard uses, in order.
    used: Box<[Mutex<Vec<u64>>]>,
}

impl Presence {
    /// Of so many shards, all of whose files are there.
    pub fn new(shards: u16) -> Self {
        let used = (0..shards).map(|_| Mutex::default()).collect();
        Self { gone: AtomicBool::new(false), looks: AtomicU64::new(0), used }
    }

    /// Whether something is gone: what is written now may never be found.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// How often has been looked.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// A shard uses these segments from now on. To be said before one that is not among them is let go.
    pub fn publish(&self, shard: usize, segments: impl Iterator<Item = u64>) {
        let mut used = self.used[shard].lock().unwrap_or_else(PoisonError::into_inner);
        used.clear();
        used.extend(segments);
    }

    fn used(&self, shard: usize) -> Vec<u64> {
        self.used[shard].lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn uses(&self, shard: usize, segment: u64) -> bool {
        let used = self.used[shard].lock().unwrap_or_else(PoisonError::into_inner);
        used.binary_search(&segment).is_ok()
    }
}

/// What a name leads to; none if to nothing.
fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match Identity::of(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A directory whose name must go on leading to it.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    is: Identity,
}

impl Place {
    fn new(path: PathBuf) -> io::Result<Self> {
        let is = identity(&path)?.ok_or(ErrorKind::NotFound)?;
        Ok(Self { path, is })
    }

    /// What cannot be looked at may be there.
    fn is_there(&self) -> bool {
        !identity(&self.path).is_ok_and(|found| found != Some(self.is))
    }
}

/// A small file that must go on saying what it says, under whatever inode.
#[derive(Debug)]
struct Text {
    path: PathBuf,
    says: Vec<u8>,
}

impl Text {
    fn new(path: PathBuf) -> io::Result<Self> {
        Ok(Self { says: fs::read(&path)?, path })
    }

    /// What cannot be read may be there.
    fn is_there(&self) -> bool {
        match fs::read(&self.path) {
            Ok(found) => found == self.says,
            Err(error) => error.kind() != ErrorKind::NotFound,
        }
    }
}

#[derive(Debug)]
struct OfShard {
    place: Place,
    /// What the names of segments led to when they were seen first.
    known: BTreeMap<u64, Identity>,
    /// One that was not there: it is looked at each time.
    missed: Option<u64>,
    /// Where the turn of the older ones goes on.
    next: usize,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This is no longer where it was.
    Gone(PathBuf),
    /// All is where it was before.
    Back,
}

/// Notices when the data directory is moved, removed or replaced.
#[derive(Debug)]
pub struct Watch {
    presence: Arc<Presence>,
    root: Place,
    /// Without it the next start refuses the directory.
    manifest: Text,
    shards: Vec<OfShard>,
}

impl Watch {
    /// Of a directory with all its shards.
    pub fn new(data: &DataDir, presence: Arc<Presence>) -> io::Result<Self> {
        let shards = (0..data.shards())
            .map(|shard| {
                let place = Place::new(shard_path(data.path(), shard))?;
                Ok(OfShard { place, known: BTreeMap::new(), missed: None, next: 0 })
            })
            .collect::<io::Result<_>>()?;
        let manifest = Text::new(data.path().join(MANIFEST))?;
        Ok(Self { presence, root: Place::new(data.path().into())?, manifest, shards })
    }

    /// Looks, and says what is otherwise than before.
    pub fn look(&mut self) -> Option<Change> {
        let gone = self.missing();
        self.presence.looks.fetch_add(1, Ordering::Relaxed);
        let was = self.presence.gone.swap(gone.is_some(), Ordering::Relaxed);
        match gone {
            Some(path) if !was => Some(Change::Gone(path)),
            None if was => Some(Change::Back),
            _ => None,
        }
    }

    /// Something that is gone.
    fn missing(&mut self) -> Option<PathBuf> {
        if !self.root.is_there() {
            return Some(self.root.path.clone());
        }
        if !self.manifest.is_there() {
            return Some(self.manifest.path.clone());
        }
        let presence = &self.presence;
        self.shards.iter_mut().enumerate().find_map(|(index, shard)| shard.missing(index, presence))
    }
}

impl OfShard {
    fn missing(&mut self, index: usize, presence: &Presence) -> Option<PathBuf> {
        if !self.place.is_there() {
            return Some(self.place.path.clone());
        }
        let used = presence.used(index);
        self.known.retain(|segment, _| used.binary_search(segment).is_ok());
        let (older, newest) = used.split_at(used.len().saturating_sub(FILES_PER_LOOK));
        let turn = older.iter().cycle().skip(self.next).take(older.len().min(FILES_PER_LOOK));
        let mut looked = self.missed.into_iter().chain(newest.iter().chain(turn).copied());
        // One that was let go meanwhile is no longer said to be used.
        self.missed = looked.find(|&segment| {
            is_lost(&self.place.path, segment, &mut self.known) && presence.uses(index, segment)
        });
        self.next = (self.next + FILES_PER_LOOK) % older.len().max(1);
        self.missed.map(|segment| self.place.path.join(file_name(segment)))
    }
}

/// Whether the name of a segment leads to something else than before. What it leads to first is remembered.
fn is_lost(directory: &Path, segment: u64, known: &mut BTreeMap<u64, Identity>) -> bool {
    match identity(&directory.join(file_name(segment))) {
        Ok(Some(found)) => *known.entry(segment).or_insert(found) != found,
        Ok(None) => true,
        Err(_) => false,
    }
}

impl<D> Log<D> {
    /// The numbers of the segments in use, in order.
    pub fn in_use(&self) -> impl Iterator<Item = u64> {
        self.writer.pool.segments.iter().map(|segment| segment.number)
    }

    /// Changes whenever [`Log::in_use`] does.
    pub fn use_mark(&self) -> (usize, u64) {
        let segments = &self.writer.pool.segments;
        (segments.len(), segments.back().map_or(0, |segment| segment.number))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn watched(dir: &Path) -> (DataDir, Watch) {
        let data = DataDir::open(&dir.join("data"), 2).unwrap();
        for shard in 0..2 {
            fs::create_dir(shard_path(data.path(), shard)).unwrap();
        }
        let watch = Watch::new(&data, Arc::new(Presence::new(2))).unwrap();
        (data, watch)
    }

    fn segment(data: &DataDir, number: u64) -> PathBuf {
        shard_path(data.path(), 1).join(file_name(number))
    }

    #[test]
    fn a_directory_that_is_moved_is_gone_until_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let (data, mut watch) = watched(dir.path());
        assert_eq!(watch.look(), None);
        for path in [data.path().to_path_buf(), shard_path(data.path(), 0)] {
            let away = dir.path().join("away");
            fs::rename(&path, &away).unwrap();
            assert_eq!(watch.look(), Some(Change::Gone(path.clone())));
            fs::create_dir(&path).unwrap();
            assert_eq!((watch.look(), watch.presence.is_gone()), (None, true));
            fs::remove_dir(&path).unwrap();
            fs::rename(&away, &path).unwrap();
            assert_eq!(watch.look(), Some(Change::Back));
            assert!(!watch.presence.is_gone());
        }
        assert_eq!(watch.presence.looks(), 7);
    }

    /// The next start refuses a directory without it.
    #[test]
    fn a_manifest_that_is_removed_or_says_something_else_is_gone_until_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let (data, mut watch) = watched(dir.path());
        let path = data.path().join(MANIFEST);
        let text = fs::read(&path).unwrap();
        for other in [None, Some(&b""[..]), Some(b"shards = 3")] {
            match other {
                None => fs::remove_file(&path).unwrap(),
                Some(other) => fs::write(&path, other).unwrap(),
            }
            assert_eq!(watch.look(), Some(Change::Gone(path.clone())));
            // A copy says the same.
            fs::write(&path, &text).unwrap();
            assert_eq!(watch.look(), Some(Change::Back));
        }
        assert!(!watch.presence.is_gone());
    }

    #[test]
    fn a_file_that_is_used_must_be_there_and_one_that_was_let_go_need_not() {
        let dir = tempfile::tempdir().unwrap();
        let (data, mut watch) = watched(dir.path());
        let all = 0..3 * FILES_PER_LOOK as u64;
        all.clone().for_each(|number| fs::write(segment(&data, number), "x").unwrap());
        watch.presence.publish(1, all.clone());
        (0..3).for_each(|_| assert_eq!(watch.look(), None));
        watch.presence.publish(1, all.clone().skip(1));
        fs::remove_file(segment(&data, 0)).unwrap();
        (0..3).for_each(|_| assert_eq!(watch.look(), None));
        for number in [1, 700, all.end - 1] {
            let path = segment(&data, number);
            let other = dir.path().join("other");
            fs::hard_link(&path, &other).unwrap();
            fs::remove_file(&path).unwrap();
            let gone = (0..3).find_map(|_| watch.look());
            assert_eq!(gone, Some(Change::Gone(path.clone())), "{number}");
            (0..4).for_each(|_| assert_eq!(watch.look(), None, "it is still gone"));
            // A copy is not what is written to.
            fs::copy(&other, &path).unwrap();
            fs::remove_file(&path).unwrap();
            fs::rename(&other, &path).unwrap();
            let back = (0..3).find_map(|_| watch.look());
            assert_eq!(back, Some(Change::Back));
        }
    }
}
