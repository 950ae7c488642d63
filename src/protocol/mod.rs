//! Bytes to commands and answers to bytes. No sockets, no clock, no state beyond one call.
//!
//! [`frame`] finds a frame's edges, [`msgpack`] walks and writes values, [`decode`] turns a frame
//! into a [`crate::api::request::Request`], [`reply`] writes what goes back, [`json`] is the other
//! face of both; [`http1`], [`sse`] and [`websocket`] carry it.

pub mod begun;
mod choices;
pub mod decode;
pub mod event_frame;
pub(crate) mod fields;
pub mod frame;
pub mod http1;
pub(crate) mod job_fields;
pub mod json;
pub mod msgpack;
mod objects;
pub mod pieces;
pub mod reply;
mod settings;
pub mod sse;
mod stack;
pub mod uuid_text;
pub(crate) mod value;
pub mod websocket;
