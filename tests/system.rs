//! The promises of the server, tried against the real program. All suites are one program: they are linked once, and a
//! test that waits leaves the machine to the others.
#![allow(clippy::unwrap_used)]

mod compat;
mod crash;
mod e2e;
mod interface;
mod ours;
#[path = "support/tls.rs"]
mod secure;
mod support;
mod torture;
mod turns;

/// The directory of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

use support::Client;
use support::common::{client, queue, shared};
