//! Where a copy goes: a directory that does not exist, or is empty, and that is no part of what is copied.
//!
//! Whatever would be in the way is found before anything is copied. Directories are compared by what they are, not by
//! what they are called.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use corq_io::log::{Filling, Identity, Standing, standing};

use super::place::{Fault, at, must_not_lead_root};

/// A place that says that it is not whole until it is.
#[derive(Debug)]
pub struct Target {
    /// As it was named.
    shown: PathBuf,
    /// Absolute, and through no link.
    path: PathBuf,
}

impl Target {
    /// A target that can be filled: it does not exist, or is empty.
    pub fn of(to: &Path) -> Result<Self, Fault> {
        let absolute = std::path::absolute(to).map_err(at(to))?;
        let target = Self { shown: to.into(), path: real(&absolute)? };
        match fs::read_dir(&target.path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return Err(target.taken()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at(to)(error)),
        }
        must_not_lead_root(target.there())?;
        Ok(target)
    }

    /// The nearest directory that is there.
    fn there(&self) -> &Path {
        self.path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
    }

    fn taken(&self) -> Fault {
        let what = match standing(&self.path) {
            Some(Standing::InUse(Some(pid))) => format!("is being made by process {pid}"),
            Some(Standing::InUse(None)) => "is being made by another process".into(),
            Some(Standing::Dead) => {
                "holds a copy that was not completed: remove it, or name another directory".into()
            }
            None => "is not empty: a copy needs a directory of its own".into(),
        };
        Fault(format!("{} {what}", self.shown.display()))
    }

    /// Refuses a target in `source` or in any other directory of this kind, of which it would become a part.
    pub fn is_apart_from(&self, source: &Path, why: &str) -> Result<(), Fault> {
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

    /// Whether files of `source` can have second names in it.
    pub fn shares_with(&self, source: &Path) -> Result<bool, Fault> {
        let device = |path: &Path| Identity::of(path).map(|it| it.device).map_err(at(path));
        Ok(device(source)? == device(self.there())?)
    }

    /// Begins to fill it.
    pub fn begin(&self) -> Result<Filling, Fault> {
        Filling::begin(&self.path).map_err(|error| match error.kind() {
            // Another process was quicker.
            io::ErrorKind::DirectoryNotEmpty => self.taken(),
            io::ErrorKind::PermissionDenied => Fault(format!(
                "{}: {error}: make an empty directory there that belongs to this user",
                self.shown.display()
            )),
            _ => at(&self.shown)(error),
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
