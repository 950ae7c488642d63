//! Opening of a stream: the shards that have to know of its client, and the message that the client gets then.

use super::position::Position;
use super::replaying::Owed;

/// Message to a client once all shards know of it.
#[derive(Debug)]
pub(super) enum Hello {
    /// The head of a response whose body are its events.
    Response(Vec<u8>),
    /// The answer to a WebSocket handshake.
    Switch(Vec<u8>),
    /// The reply to a command.
    Reply {
        req_id: Option<Box<[u8]>>,
        /// Lists for the reply, if it has any.
        told: Option<Box<Told>>,
    },
    /// The events that the client may hear have changed without its doing.
    Changed,
}

/// Lists in the reply to `Subscribe`.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) subscribed: Vec<Box<str>>,
    pub(super) never: Vec<Box<str>>,
}

/// State of a client that comes back: where it was, and the events that it is owed.
#[derive(Debug)]
pub(super) struct Return {
    /// Where it was, if that can be known.
    pub(super) from: Option<Position>,
    /// Once it is its turn: what happens behind this it hears from its topic, all before from what is kept.
    pub(super) hears_from: Option<Position>,
    pub(super) complete: bool,
    pub(super) owed: Owed,
}

impl Return {
    pub(super) fn new(from: Option<Position>) -> Self {
        let complete = from.is_some();
        Self { from, hears_from: None, complete, owed: Owed::default() }
    }

    /// Whether it has to wait for its turn.
    fn waits(&self) -> bool {
        self.from.is_some() && self.hears_from.is_none()
    }
}

/// Condition that an opening waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// Shards that do not know of the client, or have not said what they have kept.
    Shards,
    /// Until it is the turn of a client that came back.
    Turn,
    /// Until it is known what such a client has missed.
    Looks,
    Nothing,
}

/// A stream that is about to begin.
#[derive(Debug)]
pub(super) struct Opening {
    /// Shards that do not know of it.
    pub(super) unheard: usize,
    /// The number of this subscription on this shard.
    pub(super) time: u64,
    pub(super) hello: Hello,
    pub(super) back: Option<Box<Return>>,
}

impl Opening {
    pub(super) fn new(time: u64, hello: Hello) -> Self {
        Self { unheard: 0, time, hello, back: None }
    }

    pub(super) fn awaits(&self) -> Awaited {
        let back = self.back.as_ref();
        if self.unheard > 0 {
            Awaited::Shards
        } else if back.is_some_and(|back| back.waits()) {
            Awaited::Turn
        } else if back.is_some_and(|back| !back.owed.is_done()) {
            Awaited::Looks
        } else {
            Awaited::Nothing
        }
    }

    /// Whether its client has a place in the events of its topic that stays as it is.
    pub(super) fn holds_place(&self) -> bool {
        self.back.as_ref().is_some_and(|back| back.hears_from.is_some())
    }
}
