//! Types that all messages between shards share: where an answer goes, which step of a task waits for
//! it, and one batch per destination and turn, whose texts and frames lie in one buffer behind the messages.
//!
//! A ground type: it imports nothing of the server, of the interface only which version of it is spoken, and of the
//! protocol what a frame is.

use crate::api::access::{Grant, Holder, Role, Scope};
use crate::api::version::Version;
use crate::protocol::large::{FrameRef, LargeFrame};
use corq_io::net::ConnId;
use corq_shards::command::{ClientId, Token};
use std::ops::Range;
use std::sync::Arc;

/// Where an answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The shard that has the connection.
    pub shard: u16,
    pub conn: ConnId,
    /// The connection as the engine knows it: stays the same when the connection moves to another shard.
    pub client: ClientId,
    /// Whether it may finish locked jobs without their tokens, as over HTTP.
    pub tokenless: bool,
    /// Whether a list is asked for, of which a connection gets one at a time.
    pub lists: bool,
    /// The version of the protocol that the request is read and answered in, wherever that is.
    pub version: Version,
    /// The queues that there are for it.
    pub scope: Scope,
    /// Role of the client's token.
    pub role: Role,
    /// The client's token, if it has shown one.
    pub holder: Holder,
    /// Which entry of the audit log waits for the answer.
    pub ticket: Ticket,
}

/// The place of an entry of the audit log among those of a shard that wait for their answers; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ticket(pub u16);

impl Ticket {
    pub const NONE: Self = Self(0);
}

impl Origin {
    /// That of what a shard does for no client. `conn` is a connection that never exists.
    pub fn of_none(shard: u16, conn: ConnId) -> Self {
        let Grant { role, queues: scope, holder, .. } = Grant::ALL;
        let (client, version, ticket) = (ClientId::default(), Version::Two, Ticket::NONE);
        Self {
            shard,
            conn,
            client,
            tokenless: false,
            lists: false,
            version,
            scope,
            role,
            holder,
            ticket,
        }
    }

    /// The token that counts where this one was shown.
    pub fn token(self, shown: Option<Token>) -> Option<Token> {
        if self.tokenless { shown.or(Some(Token::ANY)) } else { shown }
    }
}

/// A piece of [`Batch::bytes`].
pub type Span = Range<usize>;

/// A frame on its way to another shard.
#[derive(Clone, Debug)]
pub enum SentFrame {
    /// A copy, in the batch.
    Copied(Span),
    /// The frame itself: it is too large to be copied.
    Shared(Arc<LargeFrame>),
}

/// A payload on its way to another shard.
#[derive(Clone, Debug)]
pub enum SentPayload {
    /// A copy, in the batch.
    Copied(Span),
    /// A part of its frame: the payload is too large to be copied.
    Shared(Arc<LargeFrame>, Span),
}

/// A shorter payload is copied.
const SHARED_BYTES_MIN: usize = 64 << 10;

/// Identifies a step of a command over several shards, for the command's coordinator, which waits for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Step {
    /// The shard that coordinates.
    pub shard: u16,
    /// Number of the command on the coordinator.
    pub task: u32,
    /// Tells the command from an earlier one of the same number, whose last answers may come late.
    pub round: u32,
}

/// All that one shard sends to another in one turn.
#[derive(Debug)]
pub struct Batch<M> {
    /// The messages, in order.
    pub messages: Vec<M>,
    /// Texts and frames of the messages, which hold spans of this buffer.
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

    /// Takes a frame along.
    pub fn keep_frame(&mut self, frame: FrameRef<'_>) -> SentFrame {
        match frame.shared() {
            Some(large) => SentFrame::Shared(large),
            None => SentFrame::Copied(self.keep(&frame)),
        }
    }

    /// A frame that was taken along.
    pub fn frame<'a>(&'a self, sent: &'a SentFrame) -> FrameRef<'a> {
        match sent {
            SentFrame::Copied(span) => (&self.bytes[span.clone()]).into(),
            SentFrame::Shared(large) => large.into(),
        }
    }

    /// Takes a payload of a frame along.
    pub fn keep_payload(&mut self, payload: &[u8], frame: FrameRef<'_>) -> SentPayload {
        let start = (payload.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        match frame.shared().filter(|_| payload.len() >= SHARED_BYTES_MIN) {
            Some(large) => SentPayload::Shared(large, start..start + payload.len()),
            None => SentPayload::Copied(self.keep(payload)),
        }
    }

    /// A payload that was taken along.
    pub fn payload<'a>(&'a self, sent: &'a SentPayload) -> &'a [u8] {
        match sent {
            SentPayload::Copied(span) => &self.bytes[span.clone()],
            SentPayload::Shared(large, span) => &large[span.clone()],
        }
    }

    /// A text that was copied in.
    pub fn text(&self, span: &Span) -> &str {
        // Only texts are kept where a text is read; anything else is a mistake in this program.
        std::str::from_utf8(&self.bytes[span.clone()]).unwrap_or_default()
    }
}
