//! The doing half of corq: rings, sockets, TLS, executors, the log, posts to webhooks. The only crate that names glommio,
//! io-uring and libc; knows bytes and order, no protocol and no command.
#![warn(missing_docs)]

pub mod client_connect;
pub mod clock;
pub mod host;
pub mod log;
pub mod log_ring;
pub mod machine_facts;
pub mod memory;
pub mod mesh;
pub mod net;
pub mod privileges;
mod ring;
pub mod runtime;
pub mod signal;
pub mod tls;
pub mod umask;
pub mod webhook;
