//! A server that all tests of a program share, and helpers that most of them begin with.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Client, Server};

/// The server that tests share. It ends with this process, by its watchdog.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start_default)
}

/// A connection to the shared server.
pub(crate) fn client() -> Client {
    shared().client()
}

/// A queue name that no other test uses.
pub(crate) fn queue(topic: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{topic}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
