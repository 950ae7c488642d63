//! Entries in the audit log for the work of a shard: commands once they are answered, logins, and clients that are not
//! let in. Writing is done elsewhere: [`crate::audit`].
//!
//! | file | responsibility |
//! |---|---|
//! | `follow` | from a command to its answer; logins and refusals |
//! | `repeats` | what comes again and again has one entry a minute |
//! | `reading` | the command that reads the log |
//! | `state` | what a shard keeps for that |
//! | `tickets` | entries that wait for the answers of their commands |

mod follow;
mod reading;
mod repeats;
pub(super) mod state;
mod tickets;
