//! A directory in which one process puts something together, beside the place that it gets by a rename at the end.
//!
//! Its name is its own and says what it is. The marker in it says for what it is, and is locked as long as its
//! process lives. What has no such marker, one of another name, or one that is locked is never emptied: it is
//! a user's own directory, or a draft that has got its place, or one that is still being made.
//!
//! What root does in the directory of another user is done with that user's rights.
//!
//! Knows names, one small file and directories; not what is put together.

use crate::log::data_dir::claim;
use crate::log::data_dir::identity::new_id;
use crate::log::data_dir::owner::user_of;
use crate::log::data_dir::refusal::LockError;
use crate::privileges::Acting;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

/// The file that makes a directory a draft.
pub const DRAFT_MARKER: &str = "CORQ-DRAFT";
/// Where pins lead to the draft that they are for.
const LINK: &str = "draft";
/// Behind what is to be made, and before a number that no other draft has.
const INFIX: &str = ".corq-draft-";
const DIGITS: usize = 16;
/// Longer names leave no room for the rest.
const STEM_BYTES_MAX: usize = 200;
/// No marker is longer.
const MARKER_BYTES_MAX: u64 = 8192;

/// What a draft is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// What becomes of it: `backup`, `restore`, `pins`, `repair`.
    pub purpose: String,
    /// The name it is to get.
    pub target: OsString,
    /// It shares files with the data directory, on whose file system it is.
    pub linked: bool,
}

/// What a marker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// See [`Label::purpose`].
    pub purpose: String,
    /// See [`Label::target`], as far as it can be read.
    pub target: String,
    /// See [`Label::linked`].
    pub linked: bool,
    /// The process that made it.
    pub pid: Option<u32>,
}

impl Said {
    /// Whether it is to get this name.
    pub fn is_for(&self, target: &OsStr) -> bool {
        self.target == shown(target)
    }
}

/// How a directory stands that is named like a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its process has gone: it is of no use any more.
    Dead(Said),
    /// It is being put together.
    InUse(Said),
    /// It has no marker of its own: nobody can say whose it is.
    Unmarked,
}

/// A directory that is named like a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Where it is.
    pub path: PathBuf,
    /// How it stands.
    pub standing: Standing,
}

/// A draft of this process. What has not been placed is removed with the value.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    placed: bool,
    _marker: File,
}

impl Draft {
    /// Begins one in `above`, which must be there.
    pub fn begin(above: &Path, label: &Label) -> io::Result<Self> {
        let _acting = user_of(above)?.act()?;
        let mut name = match &label.target {
            long if long.len() > STEM_BYTES_MAX => OsString::from("long"),
            target => target.clone(),
        };
        name.push(format!("{INFIX}{:0DIGITS$x}", new_id()?));
        let path = above.join(&name);
        fs::create_dir(&path)?;
        // It gets its name when it is locked and says all: until then it makes nothing a draft.
        let made = write_marker(&path, &name, label);
        let marker = made.inspect_err(|_| drop(fs::remove_dir_all(&path)))?;
        Ok(Self { path, placed: false, _marker: marker })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says of pins which draft they are for.
    pub fn belongs_to(&self, other: &Self) -> io::Result<()> {
        std::os::unix::fs::symlink(std::path::absolute(&other.path)?, self.path.join(LINK))
    }

    /// Gives it its place, whole or not at all, and durably. What is there must be an empty directory, or
    /// nothing. It stays locked until it has it.
    pub fn place(mut self, to: &Path) -> io::Result<()> {
        let _acting = act_in(&self.path)?;
        sync(&self.path)?;
        fs::rename(&self.path, to)?;
        self.placed = true;
        if let Some(above) = to.parent() {
            sync(above)?;
        }
        // By another name it makes nothing a draft, should the power go before this.
        fs::remove_file(to.join(DRAFT_MARKER))?;
        sync(to)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            // What cannot be removed now is removed by the next tool that runs: our process will have ended.
            let _ = act_in(&self.path).and_then(|_acting| remove(&self.path));
        }
    }
}

/// All that is named like a draft in a directory, in order.
pub fn drafts_in(directory: &Path) -> io::Result<Vec<Left>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_draft_name(&entry.file_name()) && entry.file_type()?.is_dir() {
            let path = entry.path();
            let standing = standing(&path);
            found.push(Left { path, standing });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Whether a directory of this name could be taken for a draft.
pub fn is_draft_name(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let Some(at) = name.len().checked_sub(INFIX.len() + DIGITS) else { return false };
    let (infix, digits) = name[at..].split_at(INFIX.len());
    infix == INFIX.as_bytes() && digits.iter().all(u8::is_ascii_hexdigit)
}

/// How one stands.
pub fn standing(path: &Path) -> Standing {
    let Some((marker, said)) = marker(path) else { return Standing::Unmarked };
    match marker.try_lock_shared() {
        Ok(()) => Standing::Dead(said),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Standing::InUse(said),
    }
}

/// Nothing but what made it may use a draft, under whatever path: it is removed once that has gone.
pub(crate) fn must_not_be(path: &Path) -> Result<(), LockError> {
    match fs::canonicalize(path).map(|real| marker(&real)) {
        Ok(Some(_)) => Err(LockError::Draft { path: path.into() }),
        // What is not there is none; what else is wrong with it is said by those who use it.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Removes a draft whose process has gone, and which no server has; false if there is none.
pub fn discard(path: &Path) -> io::Result<bool> {
    let _acting = act_in(path)?;
    let Some((marker, _)) = marker(path) else { return Ok(false) };
    if marker.try_lock().is_err() || !matches!(claim::is_taken(path), Ok(false)) {
        return Ok(false);
    }
    remove(path)?;
    Ok(true)
}

/// Where the draft is that these pins are for.
pub fn draft_of_pins(pins: &Path) -> Option<PathBuf> {
    fs::read_link(pins.join(LINK)).ok()
}

/// Removes what dead pins hold, and keeps what they say.
pub(crate) fn let_go(pins: &Path) -> io::Result<()> {
    let _acting = act_in(pins)?;
    match marker(pins) {
        Some((marker, _)) if marker.try_lock().is_ok() => clear(pins, &[DRAFT_MARKER, LINK]),
        _ => Ok(()),
    }
}

/// Acts as the user of the directory that a draft is in.
fn act_in(draft: &Path) -> io::Result<Acting> {
    user_of(draft.parent().unwrap_or(Path::new("/")))?.act()
}

/// The marker last: whenever this is broken off, what is left can be told.
fn remove(path: &Path) -> io::Result<()> {
    clear(path, &[DRAFT_MARKER])?;
    fs::remove_file(path.join(DRAFT_MARKER))?;
    fs::remove_dir(path)
}

fn clear(path: &Path, kept: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if kept.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

fn write_marker(path: &Path, name: &OsStr, label: &Label) -> io::Result<File> {
    let new = path.join("CORQ-DRAFT.new");
    let mut marker = OpenOptions::new().read(true).write(true).create_new(true).open(&new)?;
    marker.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(error) => error,
    })?;
    let Label { purpose, target, linked } = label;
    write!(
        marker,
        "corq puts something together here; if process {} has gone, this can go\nname = {}\npurpose = {purpose}\n\
         target = {}\nlinked = {linked}\npid = {}\n",
        process::id(),
        shown(name),
        shown(target),
        process::id(),
    )?;
    marker.sync_all()?;
    fs::rename(new, path.join(DRAFT_MARKER))?;
    sync(path)?;
    Ok(marker)
}

/// The marker of a directory, if it is one of that directory.
fn marker(path: &Path) -> Option<(File, Said)> {
    // Whatever has that name is not waited for, nor followed.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let place = path.join(DRAFT_MARKER);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(place).ok()?;
    let mut text = String::new();
    (&file).take(MARKER_BYTES_MAX).read_to_string(&mut text).ok()?;
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(" = "));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    let name = path.file_name()?;
    (is_draft_name(name) && value("name") == Some(&*shown(name))).then_some(())?;
    let said = Said {
        purpose: value("purpose")?.to_owned(),
        target: value("target")?.to_owned(),
        linked: value("linked")? == "true",
        pid: value("pid").and_then(|pid| pid.parse().ok()),
    };
    Some((file, said))
}

/// A name in one line.
fn shown(name: &OsStr) -> String {
    name.to_string_lossy().escape_debug().to_string()
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::log::data_dir::DataDir;
    use crate::log::data_dir::manifest::About;
    use crate::log::data_dir::refusal::LockError;
    use std::os::unix::ffi::OsStrExt;

    fn label(target: &str) -> Label {
        Label { purpose: "backup".into(), target: target.into(), linked: false }
    }

    fn names(path: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    /// A draft whose process has gone: its marker is a copy that nobody has locked.
    fn dead(draft: &Draft, above: &Path) -> PathBuf {
        let kept = above.join("kept");
        fs::create_dir(&kept).unwrap();
        fs::copy(draft.path().join(DRAFT_MARKER), kept.join(DRAFT_MARKER)).unwrap();
        fs::create_dir(kept.join("shard-0000")).unwrap();
        fs::write(kept.join("shard-0000/0.seg"), "x").unwrap();
        kept
    }

    #[test]
    fn a_draft_gets_its_place_whole_and_is_none_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let draft = Draft::begin(dir.path(), &label("monday")).unwrap();
        fs::write(draft.path().join("file"), "x").unwrap();
        let to = dir.path().join("monday");
        draft.place(&to).unwrap();
        assert_eq!((names(dir.path()), names(&to)), (vec!["monday".into()], vec!["file".into()]));
        // The next one finds the place taken, and leaves nothing.
        let draft = Draft::begin(dir.path(), &label("monday")).unwrap();
        let error = draft.place(&to).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        assert_eq!((names(dir.path()), names(&to)), (vec!["monday".into()], vec!["file".into()]));
    }

    #[test]
    fn only_a_marked_draft_whose_process_has_gone_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let draft = Draft::begin(dir.path(), &label("monday")).unwrap();
        assert!(
            matches!(standing(draft.path()), Standing::InUse(said) if said.is_for("monday".as_ref()))
        );
        assert!(!discard(draft.path()).unwrap() && draft.path().exists());
        let kept = dead(&draft, dir.path());
        // Its marker names another directory.
        assert_eq!((standing(&kept), discard(&kept).unwrap()), (Standing::Unmarked, false));
        let path = draft.path().to_path_buf();
        drop(draft);
        assert!(!path.exists());
        fs::rename(&kept, &path).unwrap();
        assert!(matches!(standing(&path), Standing::Dead(said) if said.pid == Some(process::id())));
        assert_eq!(drafts_in(dir.path()).unwrap().len(), 1);
        // A directory of a user, with a name like a draft's.
        let own = dir.path().join("photos.corq-draft-0123456789abcdef");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cat"), "x").unwrap();
        assert_eq!((standing(&own), discard(&own).unwrap()), (Standing::Unmarked, false));
        assert!(discard(&path).unwrap());
        assert_eq!((path.exists(), names(&own)), (false, vec!["cat".into()]));
    }

    /// It would be removed below its server.
    #[test]
    fn a_draft_is_not_served_nor_made_a_data_directory() {
        let home = tempfile::tempdir().unwrap();
        let draft = Draft::begin(home.path(), &label("monday")).unwrap();
        let kept = dead(&draft, home.path());
        let path = draft.path().to_path_buf();
        drop(draft);
        fs::rename(kept, &path).unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let about = About { shards: 1, id: 1, is_begun: true };
        for at in [&path, &link] {
            DataDir::describe_copy(&path, about).unwrap();
            for error in [
                DataDir::open(at, 1).err(),
                DataDir::take(at).err(),
                DataDir::describe(at, about).err(),
            ] {
                assert!(matches!(error, Some(LockError::Draft { .. })), "{error:?}");
            }
        }
        // A server of another build may have it all the same.
        let lock = File::create(path.join("LOCK")).unwrap();
        lock.lock().unwrap();
        assert!(!discard(&path).unwrap() && path.join("shard-0000").exists());
        drop(lock);
        assert!(discard(&path).unwrap());
        // What has got its place is no draft, although the power went before its marker did.
        let draft = Draft::begin(home.path(), &label("monday")).unwrap();
        let to = home.path().join("monday");
        fs::rename(draft.path(), &to).unwrap();
        DataDir::open(&to, 1).unwrap();
    }

    #[test]
    fn any_name_can_be_that_of_a_target() {
        let dir = tempfile::tempdir().unwrap();
        let odd = OsStr::from_bytes(b"a\nname = b\xff = c");
        let long = "x".repeat(255);
        for target in [odd, long.as_ref()] {
            let of = Label { target: target.into(), ..label("") };
            let draft = Draft::begin(dir.path(), &of).unwrap();
            let Standing::InUse(said) = standing(draft.path()) else { panic!("{target:?}") };
            assert!(said.is_for(target) && !said.is_for("b".as_ref()));
            draft.place(&dir.path().join(target)).unwrap();
        }
        assert_eq!(drafts_in(dir.path()).unwrap(), []);
    }
}
