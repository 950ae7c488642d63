//! Lines that are only ever added, in files that are rotated by size: what a server keeps beside its log for people to read.
//!
//! Each line is an object of JSON that begins with its number: `{"seq":17,`. A file is named by the number of its first line, so that
//! no name is used twice and the oldest file is the one to go. Files are opened relative to the directory as it was opened: a
//! user who can put links there leads nothing elsewhere. Knows numbers and lines, not what they say.

mod read;

pub use read::{number_of, page};

use crate::log::{Directory, Identity};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";
/// Digits of the number in a name: as many as the largest has.
const DIGITS: usize = 20;
/// Modes of files and directories that only the owner may read.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// How many files there are, and of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// A file gets no line that would make it longer.
    pub file_bytes_max: u64,
    /// The oldest goes when there are more.
    pub files_max: usize,
}

/// A file, with the number of its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    first: u64,
    bytes: u64,
}

/// The files, open for more lines.
#[derive(Debug)]
pub struct LineFiles {
    path: PathBuf,
    directory: Directory,
    bounds: Bounds,
    /// Oldest first. The last is the one that gets lines.
    parts: Vec<Part>,
    /// That one, once it has got any.
    current: Option<File>,
    /// Whether its last line may be without an end.
    is_torn: bool,
    next: u64,
}

fn name_of(first: u64) -> String {
    format!("{PREFIX}{first:0DIGITS$}{SUFFIX}")
}

fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    if digits.len() == DIGITS { digits.parse().ok() } else { None }
}

/// The files of a directory by the numbers of their first lines, oldest first.
fn parts_of(path: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Some(first) = entry.file_name().to_str().and_then(first_of) else { continue };
        match entry.metadata() {
            Ok(about) if about.is_file() => parts.push(Part { first, bytes: about.len() }),
            Ok(_) => {}
            // The file went meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    parts.sort_unstable_by_key(|part| part.first);
    Ok(parts)
}

impl LineFiles {
    /// Opens those of a directory, which is made if it is not there. Goes on with the number behind the last line.
    pub fn open(path: &Path, bounds: Bounds) -> io::Result<Self> {
        if let Err(error) = DirBuilder::new().mode(DIRECTORY_MODE).create(path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        if !fs::symlink_metadata(path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let directory = Directory::open(path)?;
        let parts = parts_of(path)?;
        let newest = parts.last().map_or(1, |part| part.first);
        let next = read::last_number(path)?.map_or(newest, |number| number + 1);
        let is_torn = parts.last().is_some_and(|part| part.bytes > 0);
        let path = path.to_path_buf();
        Ok(Self { path, directory, bounds, parts, current: None, is_torn, next })
    }

    /// The number of the next line.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Adds `count` lines, the first of which has the number [`Self::next`]. On an error none of them counts as added.
    pub fn append(&mut self, lines: &[u8], count: u64) -> io::Result<()> {
        let more = lines.len() as u64;
        let is_full =
            |part: &Part| part.bytes > 0 && part.bytes + more > self.bounds.file_bytes_max;
        if self.parts.last().is_none_or(is_full) {
            self.begin_part()?;
        }
        self.follow_name();
        let mut file = match self.current.take() {
            Some(file) => file,
            None => self.open_last()?,
        };
        let outcome = if std::mem::take(&mut self.is_torn) && !ends_with_line(&mut file)? {
            file.write_all(b"\n").and_then(|()| file.write_all(lines))
        } else {
            file.write_all(lines)
        };
        self.is_torn = outcome.is_err();
        outcome?;
        self.next += count;
        if let Some(part) = self.parts.last_mut() {
            part.bytes += more;
        }
        self.current = Some(file);
        Ok(())
    }

    /// Makes the lines durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.current.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// The bytes of a small file beside them, which only the owner may read; made of `fresh` if it is not there.
    pub fn secret(&self, name: &str, fresh: &[u8]) -> io::Result<Vec<u8>> {
        let mut file = self.open_file(name)?;
        let mut bytes = Vec::new();
        (&mut file).take(4096).read_to_end(&mut bytes)?;
        if bytes.len() == fresh.len() {
            return Ok(bytes);
        }
        file.set_len(0)?;
        file.write_all(fresh)?;
        file.sync_all()?;
        self.directory.file().sync_all()?;
        Ok(fresh.to_vec())
    }

    fn open_last(&self) -> io::Result<File> {
        // There is one once lines are added.
        self.open_file(&name_of(self.parts.last().map_or(self.next, |part| part.first)))
    }

    /// Opens a file of the directory, made if it is not there: to be read, and to be added to.
    fn open_file(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_APPEND | libc::O_CREAT | libc::O_NOFOLLOW;
        let file = self.directory.open_file(name, flags)?;
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        Ok(file)
    }

    /// Begins another file, and removes the oldest beyond the bound.
    fn begin_part(&mut self) -> io::Result<()> {
        self.sync()?;
        (self.current, self.is_torn) = (None, false);
        let file = self.open_file(&name_of(self.next))?;
        self.directory.file().sync_all()?;
        self.parts.push(Part { first: self.next, bytes: 0 });
        self.current = Some(file);
        while self.parts.len() > self.bounds.files_max.max(1) {
            let name = name_of(self.parts[0].first);
            match self.directory.remove(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.parts.remove(0),
            };
        }
        Ok(())
    }

    /// Lets go of a file that has another name by now, or none: lines are for the one that is found.
    fn follow_name(&mut self) {
        let (Some(file), Some(part)) = (&self.current, self.parts.last_mut()) else { return };
        let there = Identity::of(&self.path.join(name_of(part.first)));
        let is_it =
            matches!((Identity::of_open(file), there), (Ok(own), Ok(there)) if own == there);
        if !is_it {
            (self.current, part.bytes) = (None, 0);
        }
    }
}

/// Whether a file is empty or its last byte ends a line.
fn ends_with_line(file: &mut File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let bytes = file.metadata()?.len();
    let mut last = [b'\n'];
    if bytes > 0 {
        file.read_exact_at(&mut last, bytes - 1)?;
    }
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::OpenOptions;

    const BOUNDS: Bounds = Bounds { file_bytes_max: 100, files_max: 3 };

    fn line(number: u64) -> String {
        format!("{{\"seq\":{number},\"a\":1}}\n")
    }

    fn add(files: &mut LineFiles, count: u64) {
        for _ in 0..count {
            let text = line(files.next());
            files.append(text.as_bytes(), 1).unwrap();
        }
    }

    fn numbers(path: &Path, before: u64, limit: usize) -> Vec<u64> {
        let lines = page(path, before, limit).unwrap();
        lines.iter().map(|line| number_of(line).unwrap()).collect()
    }

    #[test]
    fn lines_go_on_behind_the_last_and_the_oldest_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut files = LineFiles::open(&path, BOUNDS).unwrap();
        assert_eq!(files.next(), 1);
        add(&mut files, 30);
        assert!(files.bytes() <= 300 && parts_of(&path).unwrap().len() == 3);
        drop(files);
        let mut files = LineFiles::open(&path, BOUNDS).unwrap();
        assert_eq!(files.next(), 31);
        add(&mut files, 1);
        assert_eq!(numbers(&path, u64::MAX, 3), [31, 30, 29]);
        assert_eq!(numbers(&path, 29, 2), [28, 27]);
        let all = numbers(&path, u64::MAX, 1000);
        assert!(all.len() < 31 && all.windows(2).all(|pair| pair[0] == pair[1] + 1), "{all:?}");
        assert_eq!(numbers(&path, 1, 10), []);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert!(fs::read_dir(&path).unwrap().all(|it| mode(&it.unwrap().path()) == 0o600));
    }

    #[test]
    fn a_torn_line_costs_itself_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = LineFiles::open(dir.path(), BOUNDS).unwrap();
        add(&mut files, 2);
        drop(files);
        let name = dir.path().join(name_of(1));
        OpenOptions::new().append(true).open(name).unwrap().write_all(b"{\"seq\":3,\"a").unwrap();
        assert_eq!(numbers(dir.path(), u64::MAX, 10), [2, 1]);
        let mut files = LineFiles::open(dir.path(), BOUNDS).unwrap();
        assert_eq!(files.next(), 3);
        add(&mut files, 1);
        let lines = page(dir.path(), u64::MAX, 10).unwrap();
        assert_eq!(lines[0], line(3).trim_end().as_bytes());
    }

    #[test]
    fn lines_are_for_the_file_of_the_name_and_follow_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut files = LineFiles::open(&path, BOUNDS).unwrap();
        add(&mut files, 1);
        fs::rename(path.join(name_of(1)), dir.path().join("away")).unwrap();
        add(&mut files, 1);
        assert_eq!(numbers(&path, u64::MAX, 10), [2]);
        fs::remove_file(path.join(name_of(1))).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), path.join(name_of(1))).unwrap();
        assert!(files.append(line(3).as_bytes(), 1).is_err());
        assert!(!dir.path().join("elsewhere").exists());
        fs::remove_file(path.join(name_of(1))).unwrap();
        add(&mut files, 1);
        assert_eq!(numbers(&path, u64::MAX, 10), [3]);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(LineFiles::open(&link, BOUNDS).is_err());
    }

    #[test]
    fn a_secret_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let files = LineFiles::open(dir.path(), BOUNDS).unwrap();
        assert_eq!(files.secret("key", &[1; 32]).unwrap(), [1; 32]);
        assert_eq!(files.secret("key", &[2; 32]).unwrap(), [1; 32]);
        fs::write(dir.path().join("key"), "short").unwrap();
        assert_eq!(files.secret("key", &[3; 32]).unwrap(), [3; 32]);
        assert_eq!(files.secret("key", &[4; 32]).unwrap(), [3; 32]);
    }
}
