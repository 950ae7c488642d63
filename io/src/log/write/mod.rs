//! The end of the log: what is appended, written, synced.
//!
//! | file | responsibility |
//! |---|---|
//! | `aligned` | aligned memory |
//! | `next_segment` | going on to the next segment |
//! | `preallocate` | the next segment, made ready |
//! | `segment_pool` | the files there are, and how much room they leave |
//! | `staged` | the end of a record that is copied before the record is |
//! | `write_buffer` | the newest part of the log in memory: open block, write queue, cache |
//! | `writer` | writes, syncs, and what they release |

pub(super) mod aligned;
pub(super) mod next_segment;
pub(super) mod preallocate;
pub(super) mod segment_pool;
pub(super) mod staged;
pub(super) mod write_buffer;
pub(super) mod writer;
