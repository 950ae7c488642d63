//! A message over WebSocket that comes in pieces. A ground type: it imports nothing of the server.

use crate::protocol::websocket::Begun;

/// A message of which pieces have come.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(super) text: bool,
    /// When the first of them came.
    pub(crate) since_ms: u64,
    pub(crate) bytes: Vec<u8>,
    /// A long frame of it whose end has not come.
    pub(super) begun: Option<Begun>,
}
