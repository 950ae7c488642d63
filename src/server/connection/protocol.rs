//! What a connection speaks.
//!
//! A ground type: it imports nothing of the server.

/// What a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// MessagePack frames.
    Frames,
    /// Requests of HTTP/1.1.
    Http,
    /// Nothing: it listens to events, as an HTTP response without an end.
    Events,
    /// WebSocket messages.
    WebSocket,
}

impl Protocol {
    /// How many there are.
    pub const COUNT: usize = 4;
}
