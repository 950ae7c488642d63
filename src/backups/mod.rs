//! Backups that a server makes by a schedule, and backups in storage that speaks the protocol of S3, also by hand.
//!
//! ```text
//! scheduler --wants a cut--> shard 0 --> all shards      one atomic number and a wake-up; the shards go on
//!     |    <----- cut -------    |
//!     v
//!  tools::backup  pins and checks the files   -->   a directory, or objects: segments first, the manifest last
//! ```
//!
//! A thread of its own does it. The shards do nothing but say where their logs can be cut.
//!
//! | file | responsibility |
//! |---|---|
//! | `access` | what the settings say of the storage, and where credentials come from |
//! | `directory` | backups in a directory |
//! | `manifest` | the object that makes others a backup |
//! | `name` | names of backups: when, and of which data directory |
//! | `objects` | backups in a bucket |
//! | `scheduler` | the thread: when, what next, what went wrong |
//! | `state` | what shards and metrics know of it |
//! | `target` | where backups go |

pub mod access;
pub mod directory;
pub mod manifest;
pub mod name;
pub mod objects;
pub mod scheduler;
pub mod state;
pub mod target;

use self::name::Name;

/// A backup of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub name: Name,
    /// Bytes of its files; unknown of one that is not complete.
    pub bytes: Option<u64>,
    /// Whether all of it is there.
    pub is_complete: bool,
}

/// Of these backups, in any order, those that go once there is `newest` and so many are to be kept: the oldest ones of the same data
/// directory that are complete. What is named later than the newest was made by a clock that was ahead: it neither counts nor goes.
pub fn surplus(found: &[Found], newest: Name, keep: usize) -> Vec<Name> {
    let is_own = |name: Name| name.id == newest.id && name <= newest;
    let own = found.iter().filter(|it| it.is_complete && is_own(it.name));
    let mut names: Vec<Name> = own.map(|it| it.name).collect();
    names.sort_unstable_by(|one, other| other.cmp(one));
    names.split_off(keep.min(names.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_complete_ones_of_the_same_directory_are_surplus() {
        let found = |at_ms: u64, id: u64, is_complete: bool| Found {
            name: Name { at_ms, id },
            bytes: None,
            is_complete,
        };
        let all = [
            found(5, 1, true),
            found(1, 1, true),
            found(3, 2, true),
            found(2, 1, false),
            found(4, 1, true),
            found(6, 1, false),
        ];
        let name = |at_ms: u64, id: u64| Name { at_ms, id };
        assert_eq!(surplus(&all, name(5, 1), 2), [name(1, 1)]);
        assert_eq!(surplus(&all, name(5, 1), 3), []);
        assert_eq!(surplus(&all, name(5, 1), 9), []);
        assert_eq!(surplus(&all, name(3, 2), 1), []);
        // The clock is right again: what it made while it was ahead does not push out the new one.
        assert_eq!(surplus(&all, name(4, 1), 1), [name(1, 1)]);
    }
}
