//! The bytes of the log.
//!
//! | file | responsibility |
//! |---|---|
//! | `address` | addresses, and how they fall into segments |
//! | `block` | headers, records, checksums |
//! | `chain` | what the next block must continue |
//! | `salt` | tells the blocks of a segment from all else that its file held |
//! | `segment` | segment headers and file names |
//! | `successor_mark` | what a file says about those behind it |
//! | `synced_slots` | the synced watermark in a second place |

pub(super) mod address;
pub(super) mod block;
pub(super) mod chain;
pub(super) mod salt;
pub(super) mod segment;
pub(super) mod successor_mark;
pub(super) mod synced_slots;
