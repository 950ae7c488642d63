//! A data directory: which shards it has, whether a process uses it, and looking at their logs.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use corq_io::log::{
    About, BACKUP_MARKER, DataDir, Identity, InspectError, Inspection, LockError, Position, Seen,
    Subject, inspect, shard_path, user_of,
};
use corq_io::privileges::User;

/// How often a look begins again because the server gave up what was being looked at.
const TRIES_MAX: u32 = 5;

/// Why something could not be done, in one line.
#[derive(Debug)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<LockError> for Fault {
    fn from(error: LockError) -> Self {
        Self(error.to_string())
    }
}

impl From<InspectError> for Fault {
    fn from(error: InspectError) -> Self {
        Self(error.to_string())
    }
}

/// A file operation that failed, with its file.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Fault + '_ {
    move |error| Fault(format!("{}: {error}", path.display()))
}

/// Refuses the data directory of another user: what a tool makes there could not be used by that user's server. In a backup
/// tools make nothing.
pub fn must_own(path: &Path) -> Result<(), Fault> {
    if path.join(BACKUP_MARKER).exists() && !User::own().is_root() {
        return Ok(());
    }
    // Leave it to the caller to say that the directory is not there.
    user_of(path).map_or(Ok(()), |owner| must_be(owner, path))
}

/// Refuses the directory of another user to root, whom links in it would lead anywhere. Others can do no more there than
/// their rights allow.
pub(super) fn must_not_lead_root(path: &Path) -> Result<(), Fault> {
    if User::own().is_root() { must_own(path) } else { Ok(()) }
}

fn must_be(owner: User, path: &Path) -> Result<(), Fault> {
    let own = User::own();
    if owner == own {
        return Ok(());
    }
    Err(Fault(format!(
        "{} belongs to {owner}, and this is {own}: run it as the owner, with 'sudo -u {} corq ...'",
        path.display(),
        owner.for_sudo()
    )))
}

/// Makes the names in a directory durable.
pub(crate) fn sync(path: &Path) -> Result<(), Fault> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(at(path))
}

/// The data directory of a running server, in the server's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Id of the data directory, in hex. A copy of the directory has it as well.
    pub id: String,
    /// Where it is, from the root on.
    pub path: Option<PathBuf>,
    /// [`Identity`] of the directory.
    pub directory: Option<String>,
}

/// A data directory, of which nothing is changed.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where it is.
    pub path: PathBuf,
    /// How many shards share it.
    pub shards: u16,
    /// Id in the manifest, which tells the directory from all but its copies.
    pub id: u64,
    /// All its shards have begun their logs.
    pub is_begun: bool,
}

impl Place {
    /// Reads what its manifest says.
    pub fn of(path: &Path) -> Result<Self, Fault> {
        Ok(Self::described(path, DataDir::about(path)?))
    }

    /// That of which this is known.
    pub fn described(path: &Path, about: About) -> Self {
        let About { shards, id, is_begun } = about;
        Self { path: path.into(), shards, id, is_begun }
    }

    /// Reads the manifest as `of` does; where it is lost or was changed, returns what the segments say instead, and
    /// what is wrong.
    pub fn found(path: &Path) -> Result<(Self, Option<Fault>), Fault> {
        match (Self::of(path), DataDir::found(path)?) {
            (Err(fault), Some(about)) => Ok((Self::described(path, about), Some(fault))),
            (place, _) => place.map(|place| (place, None)),
        }
    }

    /// Whether this is what a server says that it uses: its own directory, not a copy of that with the same id. Servers
    /// of earlier builds say no more than where it is, as they see it.
    pub fn is_used_by(&self, server: &Whereabouts) -> bool {
        let Ok(own) = Identity::of(&self.path) else { return false };
        let is_it = match &server.directory {
            Some(directory) => *directory == own.to_string(),
            None => server
                .path
                .as_ref()
                .is_some_and(|path| Identity::of(path).is_ok_and(|it| it == own)),
        };
        is_it && server.id == format!("{:016x}", self.id)
    }

    /// Whether a server uses it at the moment.
    pub fn is_live(&self) -> Result<bool, Fault> {
        Ok(DataDir::is_held(&self.path)?)
    }

    /// The directory of a shard.
    pub fn shard_path(&self, shard: u16) -> PathBuf {
        shard_path(&self.path, shard)
    }

    /// Looks at the log of a shard, up to `until` if that is given. Fails with `Moved` if the server gave up a part of it meanwhile.
    pub fn look_once(
        &self,
        shard: u16,
        until: Option<Position>,
        visit: impl FnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> Result<Inspection, InspectError> {
        let directory = self.shard_path(shard);
        inspect(Subject { until, ..self.subject(shard, &directory) }, visit)
    }

    /// All of the log of a shard, which lies in `directory`.
    pub fn subject<'a>(&self, shard: u16, directory: &'a Path) -> Subject<'a> {
        let Self { id: log_id, is_begun, .. } = *self;
        Subject { directory, shard, log_id, is_begun, until: None }
    }

    /// Looks at all of the log of a shard, beginning again with a fresh state when a server gave up a part of the log
    /// meanwhile.
    pub fn look<S>(
        &self,
        shard: u16,
        fresh: impl Fn() -> S,
        mut visit: impl FnMut(&mut S, Seen<'_>),
    ) -> Result<(Inspection, S), Fault> {
        for _ in 0..TRIES_MAX {
            let mut state = fresh();
            let looked = self.look_once(shard, None, |seen| {
                visit(&mut state, seen);
                ControlFlow::Continue(())
            });
            match looked {
                Ok(inspection) => return Ok((inspection, state)),
                Err(InspectError::Moved) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fault(format!(
            "the server gives up parts of shard {shard}'s log faster than they can be read: look at a \
             backup instead"
        )))
    }

    /// Bytes of all files of the shards, so that people can be told how far a look is.
    pub fn bytes(&self) -> u64 {
        let shards = (0..self.shards).map(|shard| self.shard_path(shard));
        let files = shards.filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
        let segments = files.filter(|file| file.file_name().to_string_lossy().ends_with(".seg"));
        segments.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum()
    }
}
