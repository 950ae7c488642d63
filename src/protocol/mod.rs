//! Bytes to commands and answers to bytes. No sockets, no clock, no state beyond one call.
//!
//! [`frame`] finds a frame's edges, [`msgpack`] walks and writes values, [`decode`] turns a frame
//! into a [`crate::api::request::Request`], [`reply`] writes what goes back, [`json`] is the other
//! face of both; [`large`] holds frames with payloads of megabytes, which [`large_scan`] has checked; [`http1`], [`sse`] and [`websocket`] carry it.
//!
//! | file | responsibility |
//! |---|---|
//! | `decode` | a frame becomes a request |
//! | `event_frame` | events between the replies of a connection |
//! | `frame` | finds the edges of frames |
//! | `http1` | HTTP/1.1 |
//! | `json` | JSON to MessagePack and back |
//! | `large` | frames whose payloads have been checked |
//! | `large_scan` | the check of a long frame, a slice at a time |
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
pub mod large_scan;
pub mod msgpack;
pub mod reply;
pub mod sse;
pub mod uuid_text;
pub mod websocket;
