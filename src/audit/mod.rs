//! The audit log: who did what that changes more than a job, and who was not let in. Written by a thread of its own, which no
//! shard waits for, into files of its own beside the log; without a data directory the last entries are kept in memory.
//!
//! What is an entry is decided where commands begin: `server/audit`.
//!
//! | file | responsibility |
//! |---|---|
//! | `entry` | one entry, and how it is written |
//! | `names` | short names of tokens |
//! | `store` | where entries lie |
//! | `writer` | the thread that writes and reads them |

pub mod entry;
pub mod names;
pub mod store;
pub mod writer;

/// The folder in the data directory.
pub const FOLDER: &str = "audit";
