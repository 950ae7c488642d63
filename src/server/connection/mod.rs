//! Connections: bytes in, frames, replies out.
//!
//! | file | responsibility |
//! |---|---|
//! | `deadlines` | how long a client is waited for: its token, the rest of its frame |
//! | `incoming` | a WebSocket message of which pieces have come: data only |
//! | `input` | bytes to frames to commands, and what the end of a connection gives back |
//! | `long_requests` | refuses a request by its beginning if it is too long for its command |
//! | `migration` | hands a connection to the shard that owns its queue |
//! | `past_waits` | commands that pass those which wait for their turn |
//! | `protocol` | what a connection speaks |
//! | `reply` | writes replies into the output of a connection |
//! | `reply_pieces` | writes long replies, in pieces that are not copied |
//! | `reply_writer` | where a reply is written, with placeholders for what is on the disk |
//! | `session` | the state of one connection, and the table of them |
//! | `transcode` | JSON that is too long for one turn, in slices |
//! | `websocket` | WebSocket messages to frames and back |

pub(super) mod deadlines;
pub(super) mod incoming;
pub(super) mod input;
pub(super) mod long_requests;
pub(super) mod migration;
mod past_waits;
pub(super) mod protocol;
pub(super) mod reply;
mod reply_pieces;
pub(super) mod reply_writer;
pub(super) mod session;
pub(super) mod transcode;
pub(super) mod websocket;
