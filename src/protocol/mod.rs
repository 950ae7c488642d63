//! Bytes to commands and answers to bytes. No sockets, no clock, no state beyond one call.
//!
//! [`frame`] finds a frame's edges, [`msgpack`] walks and writes values, [`decode`] turns a frame
//! into a [`crate::api::request::Request`], [`reply`] writes what goes back, [`json`] is the other
//! face of both.

pub mod decode;
mod fields;
pub mod frame;
pub mod json;
pub mod msgpack;
pub mod reply;
mod stack;
pub mod step;
pub mod uuid_text;
pub mod write;
