//! Whether the files that the logs are written to are still those that the next start will find. Files that were
//! removed, or whose directory was, take everything as if nothing had happened.
//!
//! One thread looks, now and then, by names: each must lead to what it led to before. Of each shard it looks at the
//! directory and at the newest segment, which the shard names ([`Presence`]). An older one that is removed is noticed
//! when it is read.

use super::DataDir;
use super::identity::Identity;
use super::layout::{MANIFEST, shard_path};
use crate::log::Log;
use crate::log::format::segment::file_name;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State that the shards share with the watch.
#[derive(Debug)]
pub struct Presence {
    gone: AtomicBool,
    looks: AtomicU64,
    /// The newest segment of each shard.
    newest: Box<[AtomicU64]>,
}

impl Presence {
    /// Of so many shards, all of whose files are there.
    pub fn new(shards: u16) -> Self {
        let newest = (0..shards).map(|_| AtomicU64::new(u64::MAX)).collect();
        Self { gone: AtomicBool::new(false), looks: AtomicU64::new(0), newest }
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

    /// A shard writes to this segment from now on. Told in each turn, so a store without news would take the line from the
    /// shards that read it.
    #[inline]
    pub fn publish(&self, shard: usize, newest: u64) {
        if self.newest[shard].load(Ordering::Relaxed) != newest {
            self.newest[shard].store(newest, Ordering::Relaxed);
        }
    }

    /// The newest segment of a shard, if it has named one.
    fn newest(&self, shard: usize) -> Option<u64> {
        let newest = self.newest[shard].load(Ordering::Relaxed);
        (newest < u64::MAX).then_some(newest)
    }
}

/// Device and inode that a path leads to; none if to nothing.
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

    /// Whether the path leads where it did. A file or directory that cannot be looked at may be there.
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

    /// Whether the text is as it was. A file that cannot be read may be there.
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
    /// The segment that was the newest at the last look, and what its name led to when it was seen first.
    segment: Option<(u64, Identity)>,
}

/// A change between two looks.
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
                Ok(OfShard { place, segment: None })
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
    fn missing(&mut self, shard: usize, presence: &Presence) -> Option<PathBuf> {
        if !self.place.is_there() {
            return Some(self.place.path.clone());
        }
        let newest = presence.newest(shard)?;
        let path = self.place.path.join(file_name(newest));
        let known = self.segment.filter(|(number, _)| *number == newest);
        // A segment that cannot be looked at may be there.
        let found = identity(&path).ok()?;
        match (known, found) {
            (None, Some(found)) => self.segment = Some((newest, found)),
            (Some((_, known)), Some(found)) if known == found => {}
            // A segment that was let go meanwhile is no longer the newest.
            _ if presence.newest(shard) != Some(newest) => {}
            _ => return Some(path),
        }
        None
    }
}

impl<D> Log<D> {
    /// The number of the newest segment; none before there is one.
    pub fn newest_segment(&self) -> Option<u64> {
        self.writer.pool.segments.back().map(|segment| segment.number)
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
    fn the_newest_file_must_be_there_and_one_that_was_let_go_need_not() {
        let dir = tempfile::tempdir().unwrap();
        let (data, mut watch) = watched(dir.path());
        (0..3).for_each(|number| fs::write(segment(&data, number), "x").unwrap());
        watch.presence.publish(1, 1);
        assert_eq!(watch.look(), None);
        watch.presence.publish(1, 2);
        fs::remove_file(segment(&data, 1)).unwrap();
        assert_eq!(watch.look(), None);
        let path = segment(&data, 2);
        let other = dir.path().join("other");
        fs::hard_link(&path, &other).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(watch.look(), Some(Change::Gone(path.clone())));
        // A copy is not what is written to.
        fs::copy(&other, &path).unwrap();
        assert_eq!((watch.look(), watch.presence.is_gone()), (None, true));
        fs::remove_file(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(watch.look(), Some(Change::Back));
        // A segment that is not there when it is looked at for the first time.
        watch.presence.publish(1, 7);
        assert_eq!(watch.look(), Some(Change::Gone(segment(&data, 7))));
    }
}
