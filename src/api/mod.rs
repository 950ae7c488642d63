//! One meaning for all surfaces: which commands exist, which fields they take, within which bounds,
//! and in which words a wrong one is refused.
//!
//! Nothing here knows how a command travels (`MessagePack`, JSON, a command line) nor what the server
//! does with it. The table in [`spec`] is the only place where a bound or a default is written;
//! the decoder, the documentation's test and every later surface read it there.

pub mod limits;
pub mod request;
pub mod spec;
mod words;

/// The version of the protocol that is spoken here.
pub const PROTOCOL_VERSION: u64 = 2;

pub use words::{FIELD_REPEATED, UNKNOWN_COMMAND};
