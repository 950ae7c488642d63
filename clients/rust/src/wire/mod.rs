//! The protocol as bytes: frames, the values in them, requests and replies. Sans-io: no socket, no
//! clock, no task is known here.

pub(crate) mod encode;
pub(crate) mod frame;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod reply;
pub(crate) mod request;
