//! Bytes to commands and answers to bytes. No sockets, no clock, no state beyond one call.
//!
//! [`frame`] finds a frame's edges, [`msgpack`] walks and writes values, [`decode`] turns a frame
//! into a [`crate::api::request::Request`], [`reply`] writes what goes back, [`json`] is the other
//! face of both; [`http1`], [`sse`] and [`websocket`] carry it.

pub mod decode;
pub mod event_frame;
pub mod frame;
pub mod http1;
pub mod json;
pub mod msgpack;
pub mod reply;
pub mod sse;
pub mod uuid_text;
pub mod websocket;
