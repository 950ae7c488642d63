//! Bytes to commands and answers to bytes. No sockets, no clock, no state beyond one call.
//!
//! [`frame`] finds a frame's edges, [`msgpack`] walks and writes values, [`decode`] turns a frame
//! into a [`crate::api::request::Request`], [`reply`] writes what goes back, [`json`] is the other
//! face of both; [`large`] holds frames with payloads of megabytes, [`large_piece`] items of batches that have some; [`http1`], [`sse`] and [`websocket`] carry it.
//!
//! | file | responsibility |
//! |---|---|
//! | `decode` | a frame becomes a request |
//! | `event_frame` | events between the replies of a connection |
//! | `frame` | finds the edges of frames |
//! | `http1` | HTTP/1.1 |
//! | `json` | JSON to MessagePack and back |
//! | `large` | frames with a payload of megabytes, in slices |
//! | `large_piece` | one item of megabytes of a batch |
//! | `msgpack` | reads and writes values |
//! | `reply` | replies |
//! | `sse` | server-sent events |
//! | `uuid_text` | the text of a UUID |
//! | `websocket` | WebSocket |

pub mod decode;
pub mod event_frame;
pub mod frame;
pub mod http1;
pub mod json;
pub mod large;
pub mod large_piece;
pub mod msgpack;
pub mod reply;
pub mod sse;
pub mod uuid_text;
pub mod websocket;
