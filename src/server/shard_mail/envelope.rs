//! What messages between shards have in common, whatever they say: where an answer goes, which step of a task waits for
//! it, and one batch per destination and turn, whose texts and frames lie in one buffer behind the messages.
//!
//! A ground type: it imports nothing of the server.

use corq_io::net::ConnId;
use corq_shards::command::{ClientId, Token};
use std::ops::Range;

/// Where an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The shard that has the connection.
    pub shard: u16,
    pub conn: ConnId,
    /// The same as the engine knows it, wherever it goes.
    pub client: ClientId,
    /// Whether it may finish locked jobs without their tokens, as over HTTP.
    pub tokenless: bool,
    /// Whether a list is asked for, of which a connection gets one at a time.
    pub lists: bool,
}

impl Origin {
    /// The token that counts where this one was shown.
    pub fn token(self, shown: Option<Token>) -> Option<Token> {
        if self.tokenless { shown.or(Some(Token::ANY)) } else { shown }
    }
}

/// A piece of [`Batch::bytes`].
pub type Span = Range<usize>;

/// One of several steps that a command takes over several shards: who waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The shard that coordinates.
    pub shard: u16,
    /// Its number for the command.
    pub task: u32,
    /// Tells the command from an earlier one of the same number, whose last answers may come late.
    pub round: u32,
}

/// All that one shard sends to another in one turn.
#[derive(Debug)]
pub struct Batch<M> {
    /// The messages, in order.
    pub messages: Vec<M>,
    /// What their spans point into.
    pub bytes: Vec<u8>,
}

impl<M> Default for Batch<M> {
    fn default() -> Self {
        Self { messages: Vec::new(), bytes: Vec::new() }
    }
}

impl<M> Batch<M> {
    /// Copies `bytes` in.
    pub fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// A text that was copied in.
    pub fn text(&self, span: &Span) -> &str {
        // Only texts are kept where a text is read; anything else is a mistake in this program.
        std::str::from_utf8(&self.bytes[span.clone()]).unwrap_or_default()
    }
}
