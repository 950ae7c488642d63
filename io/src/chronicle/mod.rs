//! The log of a shard as rows of a database, for the day on which its machine is lost.
//!
//! What a shard has written since its last sync is one row: the same bytes at the same addresses as in the local file, behind
//! exactly the row before it and under the newest claim of its log, or not at all. A reply waits for the commit. Local files
//! are read, compacted and replayed as ever; they may be lost at any time.
//!
//! | file | responsibility |
//! |---|---|
//! | `condition` | the settings and the standby of a database, for doctors |
//! | `database` | connections |
//! | `lease` | how long this node may speak for its logs |
//! | `mark` | data directories that are of a fleet |
//! | `membership` | the nodes of a fleet, and which one owns the logs |
//! | `mirror` | what of a log is written and not given to its scribe |
//! | `replication` | how far the logs are in other hands |
//! | `restore` | local files made equal to the rows |
//! | `rows` | rows of one log |
//! | `scribe` | the thread that writes the rows of one log |

mod condition;
mod database;
mod lease;
mod mark;
mod membership;
mod mirror;
mod replication;
mod restore;
mod rows;
mod scribe;

pub use condition::Condition;
pub use database::{Database, DatabaseError};
pub use lease::Lease;
pub use mark::{mark, marked};
pub use membership::{Beat, Fleet, Member, Node, Standing};
pub use mirror::Mirror;
pub use replication::Replication;
pub use restore::{Copier, Restored};
pub use rows::Rows;
pub use scribe::{Calls, Scribe};

/// Bytes of a segment's header that are part of the log: behind them the file has marks of its own, which change.
const HEADER_BYTES: u64 = 128;

/// Largest number of bytes of a row. A record that is longer lies in several.
const ROW_BYTES_MAX: u64 = 8 << 20;

/// Addresses of some bytes of a log, and their checksum (CRC-32C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The first byte.
    pub at: u64,
    /// Behind the last one.
    pub until: u64,
    /// Of the bytes as they lie in the file.
    pub sum: u32,
}

/// The right to append to a log: that of the newest claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Rises with each claim.
    pub epoch: i64,
    /// Tells two claims of the same number apart, as after a database has gone back.
    pub nonce: i64,
}

/// Why a row was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another node has claimed the log.
    Fenced,
    /// The row before is not there: the database has gone back, and ends with this one.
    WentBack(Option<Row>),
}

/// A log of rows that takes appends under the newest claim only. Calls end when the outcome is known, however long that takes.
pub trait Chronicle: Send {
    /// Stores the row with these bytes behind the row before it, `after`; without one it is the first.
    fn append(&mut self, row: Row, after: Option<Row>, bytes: &[u8]) -> Result<(), Refused>;

    /// Forgets the rows of a segment. False if another session reads them, as a dump does.
    fn trim(&mut self, segment: u64) -> Result<bool, Refused>;
}
