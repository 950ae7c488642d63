//! Tools for a data directory besides serving from it: looking at its log, mending it,
//! copying it while a server goes on writing, and putting a copy in place.
//!
//! Works on files and reports in values; knows no terminal and no socket. `src/cli` shows what comes
//! of it, and asks a server where one has to be asked.
//!
//! | file | noun |
//! |---|---|
//! | `place` | a data directory, and looking at its shards |
//! | `replay` | the state that a log leads to |
//! | `describe` | a record as a value that people can read |
//! | `pen` | the entries of one map |
//! | `backup`, `marker` | a copy of a directory that may be in use, and the file that says what is in it |
//! | `restore` | a copy put in place |
//! | `repair`, `undo` | a log put right, prepared beside its place, and put back |
//! | `target` | where a copy goes |
//! | `leftovers` | what killed copies and repairs have left |

pub mod backup;
pub mod describe;
pub mod leftovers;
mod marker;
mod pen;
pub mod place;
pub mod repair;
pub mod replay;
pub mod restore;
mod target;
pub mod undo;
