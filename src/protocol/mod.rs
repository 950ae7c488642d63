//! Bytes to commands and answers to bytes. No sockets, no clock, no state beyond one call.
//!
//! [`frame`] finds a frame's edges, [`msgpack`] walks and writes values, [`decode`] turns a frame
//! into a [`crate::api::request::Request`], [`reply`] writes what goes back.

pub mod decode;
mod fields;
pub mod frame;
pub mod msgpack;
mod objects;
pub mod reply;
mod stack;
pub mod uuid_text;
pub mod write;
