//! The meaning of requests, the same on all surfaces: which commands exist, which fields they take, within which
//! bounds, and in which words a wrong one is refused.
//!
//! The errors that clients get, with their codes and statuses, are the tables in [`error`].
//!
//! Nothing here knows how a command travels (`MessagePack`, JSON, a command line) nor what the server
//! does with it. The table in [`commands`] is the only place where a bound or a default is written;
//! the decoder, the documentation's test and every later surface read it there.
//!
//! | file | responsibility |
//! |---|---|
//! | `access` | roles, what each command needs, and the queues of a token |
//! | `audit` | which commands have an entry in the audit log |
//! | `bulk` | actions on many jobs: what is done, and with which |
//! | `class` | two columns of the table: what a command does to what is kept, and the size of its reply |
//! | `commands` | the table of commands |
//! | `error` | errors: code, text, HTTP status |
//! | `field` | one field of a command: kind, bounds, default |
//! | `field_type` | which Rust types can hold which specification |
//! | `flow` | the shape of a flow, checked as a whole |
//! | `limits` | every bound, by its name |
//! | `listing` | what lists and searches are asked for |
//! | `objects` | objects within commands, and sets of words |
//! | `parent_link` | jobs that are pushed for a parent that is there |
//! | `request` | a request with its meaning, as the decoder gives it |
//! | `size` | how many bytes a command can need |
//! | `specs` | specifications that several rows share |
//! | `spelling` | unknown names that seem to mean known ones |
//! | `version` | the versions of the protocol |
//! | `words` | the words in which a wrong request is refused |

pub mod access;
pub mod audit;
pub mod bulk;
mod class;
pub mod commands;
pub mod error;
mod field;
mod field_type;
pub mod flow;
pub mod limits;
pub mod listing;
pub mod objects;
pub mod parent_link;
pub mod request;
pub mod size;
mod specs;
pub mod spelling;
pub mod version;
mod words;
