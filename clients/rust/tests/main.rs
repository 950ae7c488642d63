//! The client against servers that do on demand what a real one does not.
#![allow(clippy::unwrap_used)]

mod batcher;
mod broken_off;
mod codec;
mod connection;
mod fake;
mod tls;
mod worker;
