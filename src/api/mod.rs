//! One meaning for all surfaces: which commands exist, which fields they take, within which bounds,
//! and in which words a wrong one is refused.
//!
//! The errors that clients get, with their codes and statuses, are the tables in [`error`].
//!
//! Nothing here knows how a command travels (`MessagePack`, JSON, a command line) nor what the server
//! does with it. The table in [`commands`] is the only place where a bound or a default is written;
//! the decoder, the documentation's test and every later surface read it there.

pub mod commands;
pub mod error;
mod field;
mod field_type;
pub mod flow;
pub mod limits;
pub mod objects;
pub mod request;
pub mod size;
mod words;

/// The newest version of the protocol that is spoken here. Its jobs have names of their own.
pub const PROTOCOL_VERSION: u64 = 3;

/// The version that is answered to clients that know no newer one.
pub const PROTOCOL_VERSION_MIN: u64 = 2;
