//! Where a copy goes: a directory that does not exist, or is empty, and that is no part of what is copied.
//!
//! What is made in the directory of another user than root is made with that user's rights.
//!
//! Whatever would be in the way at the end is found before anything is copied. Directories are compared by what
//! they are, not by what they are called.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use corq_io::log::{
    Draft, Identity, Label, Left, Standing, discard, drafts_in, give_as_original, give_copy,
    is_draft_name, make_directory, user_of,
};
use corq_io::privileges::{Acting, Linking, is_root, linking};

use super::place::{Fault, act_in, at};

/// Name under which a copy that is sent elsewhere is drafted.
const UPLOAD: &str = "upload";

/// A place that is made whole or not at all.
#[derive(Debug)]
pub(super) struct Target {
    /// As it was named.
    shown: PathBuf,
    /// Absolute, and through no link.
    path: PathBuf,
}

impl Target {
    /// Checks that a copy can be put at `to`: nothing is there, or an empty directory.
    pub(super) fn of(to: &Path) -> Result<Self, Fault> {
        let absolute = std::path::absolute(to).map_err(at(to))?;
        let target = Self { shown: to.into(), path: real(&absolute)? };
        let name = target.path.file_name().unwrap_or_default();
        if is_draft_name(name) {
            return Err(target.fault("is named like the draft of a copy: choose another name"));
        }
        match fs::read_dir(&target.path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return Err(target.taken()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target),
            Err(error) => return Err(at(to)(error)),
        }
        let device = |path: &Path| Identity::of(path).map(|it| it.device).map_err(at(path));
        if device(&target.path)? != device(target.above())? {
            return Err(target.is_mounted());
        }
        Ok(target)
    }

    /// A draft in a data directory, which never gets a place.
    pub(super) fn within(data: &Path) -> Result<Self, Fault> {
        let path = fs::canonicalize(data).map_err(at(data))?;
        Ok(Self { shown: data.join(UPLOAD), path: path.join(UPLOAD) })
    }

    fn fault(&self, what: &str) -> Fault {
        Fault(format!("{} {what}", self.shown.display()))
    }

    fn taken(&self) -> Fault {
        self.fault("is not empty: a copy needs a directory of its own")
    }

    fn is_mounted(&self) -> Fault {
        self.fault(
            "is a mount point, which cannot be put in place as a whole: name a directory in it",
        )
    }

    /// The directory that it is put in.
    pub(super) fn above(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Checks that the target lies neither in `source` nor in any other data directory or backup, of which it would
    /// become a part.
    pub(super) fn is_apart_from(&self, source: &Path, why: &str) -> Result<(), Fault> {
        let source_is = Identity::of(source).map_err(at(source))?;
        for above in self.path.ancestors() {
            let lies_in = |why: &str| {
                let above = above.display();
                Err(Fault(format!("{} lies in {above}: {why}", self.shown.display())))
            };
            match Identity::of(above) {
                Ok(found) if found == source_is => return lies_in(why),
                Ok(_) if above.join("MANIFEST").is_file() && above.join("shard-0000").is_dir() => {
                    return lies_in("it would become a part of that data directory or backup");
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(above)(error)),
            }
        }
        Ok(())
    }

    /// Begins a draft of it. What killed processes have left of others beside it is removed.
    pub(super) fn begin(&self, purpose: &str, shares: Option<&Path>) -> Result<Draft, Fault> {
        {
            let _acting = self.act()?;
            make_directory(self.above()).map_err(at(self.above()))?;
        }
        for Left { path, standing } in drafts_in(self.above()).map_err(at(self.above()))? {
            match standing {
                Standing::InUse(said) if said.is_for(self.name()) => {
                    let by =
                        said.pid.map_or("another process".into(), |pid| format!("process {pid}"));
                    return Err(self.fault(&format!("is being made by {by}")));
                }
                Standing::Dead(_) => {
                    // A draft of another user cannot be removed here; `doctor` shows it.
                    let _ = discard(&path);
                }
                Standing::InUse(_) | Standing::Unmarked => {}
            }
        }
        let linked = match shares {
            Some(source) => self.linking(source)? != Linking::Not,
            None => false,
        };
        let label = Label { purpose: purpose.into(), target: self.name().into(), linked };
        Draft::begin(self.above(), &label).map_err(at(self.above()))
    }

    /// The rights with which all is done in the directory above: those of its user.
    pub(super) fn act(&self) -> Result<Acting, Fault> {
        act_in(self.above())
    }

    /// How files of `source` can be shared with what is made here.
    pub(super) fn linking(&self, source: &Path) -> Result<Linking, Fault> {
        let device = |path: &Path| Identity::of(path).map(|it| it.device).map_err(at(path));
        if device(source)? != device(self.above())? {
            return Ok(Linking::Not);
        }
        let user = |path: &Path| user_of(path).map_err(at(path));
        Ok(linking(user(source)?, user(self.above())?))
    }

    /// Puts it in place. Of an empty directory that is there it keeps owner, group and mode. What is new belongs to the
    /// user of the directory above. If root is that, it says nothing of who is to use what lies there: then the copy belongs
    /// to the owner of `original`, if there is one.
    pub(super) fn place(&self, draft: Draft, original: Option<&Path>) -> Result<(), Fault> {
        let above_is_roots = user_of(self.above()).map_err(at(self.above()))?.is_root();
        let _acting = self.act()?;
        if self.path.exists() {
            give_copy(draft.path(), &self.path).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => self.fault(
                    "is another user's, and this one cannot make a copy theirs: do this as that user, or as root",
                ),
                _ => at(&self.path)(error),
            })?;
        } else if let Some(original) = original
            && is_root()
            && above_is_roots
        {
            give_as_original(draft.path(), original).map_err(at(&self.path))?;
        }
        draft.place(&self.path).map_err(|error| match error.kind() {
            // Another process was quicker, and what is there is whole.
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists => self.taken(),
            io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices => self.is_mounted(),
            _ => at(&self.path)(error),
        })
    }
}

/// The path without links, of which the end may not be there yet.
fn real(path: &Path) -> Result<PathBuf, Fault> {
    for above in path.ancestors() {
        let about = match fs::symlink_metadata(above) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(at(above)(error)),
        };
        let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
        if rest.components().any(|part| part == Component::ParentDir) {
            let shown = path.display();
            return Err(Fault(format!("{shown} leads out of a directory that does not exist")));
        }
        return match fs::canonicalize(above) {
            // Without a part behind it a path has no slash at its end.
            Ok(real) if rest.as_os_str().is_empty() => Ok(real),
            Ok(real) => Ok(real.join(rest)),
            Err(error) if about.is_symlink() && error.kind() == io::ErrorKind::NotFound => {
                let to = fs::read_link(above).unwrap_or_default();
                let (above, to) = (above.display(), to.display());
                Err(Fault(format!(
                    "{above} is a symbolic link to {to}, which does not exist: remove it, or name a directory"
                )))
            }
            Err(error) => Err(at(above)(error)),
        };
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_target_is_where_its_links_lead() {
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        fs::create_dir(home.join("real")).unwrap();
        symlink(home.join("real"), home.join("link")).unwrap();
        symlink("nowhere", home.join("dangling")).unwrap();
        let path = |to: &str| Target::of(&home.join(to)).map(|target| target.path);
        assert_eq!(path("link").unwrap(), home.join("real"));
        assert_eq!(path("link/new/one").unwrap(), home.join("real/new/one"));
        assert_eq!(path("real/../new").unwrap(), home.join("new"));
        for to in ["dangling", "dangling/below"] {
            let fault = path(to).unwrap_err().to_string();
            assert!(fault.contains("is a symbolic link to nowhere"), "{fault}");
        }
        assert!(path("new/../one").unwrap_err().to_string().contains("leads out of"));
        fs::write(home.join("file"), "x").unwrap();
        assert!(path("file").is_err() && path("file/below").is_err());
        fs::write(home.join("real/file"), "x").unwrap();
        assert!(path("link").unwrap_err().to_string().contains("is not empty"));
    }

    #[test]
    fn what_a_target_lies_in_is_told_by_what_it_is() {
        let home = tempfile::tempdir().unwrap();
        let (data, link) = (home.path().join("data"), home.path().join("link"));
        fs::create_dir(&data).unwrap();
        symlink(&data, &link).unwrap();
        let apart = |to: &Path, source: &Path| {
            Target::of(to).unwrap().is_apart_from(source, "it must not").map_err(|fault| fault.0)
        };
        for (inside, source) in [(&data, &link), (&link, &data), (&link, &link)] {
            let error = apart(&inside.join("new/one"), source).unwrap_err();
            assert!(error.contains("lies in") && error.contains("it must not"), "{error}");
        }
        apart(&home.path().join("data.partial"), &link).unwrap();
        fs::create_dir(home.path().join("shard-0000")).unwrap();
        fs::write(home.path().join("MANIFEST"), "").unwrap();
        let error = apart(&home.path().join("one"), &data).unwrap_err();
        assert!(error.contains("a part of that data directory"), "{error}");
    }
}
