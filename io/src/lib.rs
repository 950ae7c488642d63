//! The doing half of corq: rings, sockets, TLS, executors, the log, posts to webhooks. The only crate that names glommio,
//! io-uring and libc; knows bytes and order, no protocol and no command.

mod bell;
pub mod clock;
pub mod dial;
pub mod host;
pub mod log;
pub mod memory;
pub mod mesh;
pub mod net;
pub mod privileges;
mod ring;
pub mod runtime;
pub mod signal;
pub mod store;
pub mod survey;
pub mod tls;
pub mod umask;
pub mod webhook;
