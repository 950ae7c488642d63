//! Uses of a data directory besides serving from it: looking at its log, copying it while a server goes on
//! writing, making one of a copy, and one of what is whole of a damaged one.
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
//! | `restore` | a copy made a data directory |
//! | `repair` | what is whole of a damaged one made a data directory |
//! | `target` | where a copy goes |

pub mod backup;
pub mod describe;
mod marker;
mod pen;
pub mod place;
pub mod repair;
pub mod replay;
pub mod restore;
pub mod target;
