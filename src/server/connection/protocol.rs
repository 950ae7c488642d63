//! Protocols of connections.
//!
//! A ground type: it imports nothing of the server.

/// Protocol of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// MessagePack frames.
    Frames,
    /// Requests of HTTP/1.1.
    Http,
    /// None: the client listens to events, as an HTTP response without an end.
    Events,
    /// WebSocket messages.
    WebSocket,
}

impl Protocol {
    /// How many there are.
    pub const COUNT: usize = 4;
}
