//! Send memory: the budget of what connections have yet to take, for all of a shard together. Each has bounds of its own; a
//! thousand that are each within theirs must not add up to gigabytes. Beyond half of what there may be, a connection
//! that has something to read is served no further; beyond all of it, those are ended from which the kernel has taken
//! nothing for the longest, and it is asked first: clients that read come last. What waits for the log is no client's fault: while that
//! alone is too much, no more commands are taken. What becomes text is no connection's fault either and has a bound of its
//! own (`connection/transcode.rs`): none is ended for it. When there was much and is no more, the allocator
//! gives back what it keeps, at a time when that holds up no client.

use super::client_memory::ClientMemory;
use crate::server::connection::session::UNSENT_BYTES_MAX;
use crate::server::shard_server::ShardServer;
use corq_io::memory;
use corq_io::net::{ConnId, Connections};

/// More than this leaves enough behind to be given back.
const LARGE_BYTES: usize = 32 << 20;

/// Time after that until it is.
const KEPT_MS: u64 = 10_000;

/// Unread output of all connections of a shard.
#[derive(Debug, Default)]
pub struct SendMemory {
    /// Connections that were ended for the sake of the others.
    crowded_out: u64,
    /// Whether what waits for the log alone is too much.
    waits_for_log: bool,
    /// When there was much last, if its memory has not been given back.
    large_at_ms: Option<u64>,
}

impl SendMemory {
    /// Connections that were ended for the sake of the others.
    pub fn crowded_out(&self) -> u64 {
        self.crowded_out
    }

    /// Whether what waits for the log alone is too much: no command may make more.
    pub fn waits_for_log(&self) -> bool {
        self.waits_for_log
    }
}

/// Whether there is so much that a connection gets no more before it has taken what it has.
pub fn is_tight(conns: &Connections, memory: ClientMemory) -> bool {
    conns.output_bytes() > memory.tight_output()
}

impl ShardServer {
    /// The connections that have to go if there is too much output, each of which may have a reply if no other has any. More
    /// may be there for what is on its way to becoming text: ending a connection would not lower that.
    fn overdue(&self, conns: &Connections) -> Option<Vec<ConnId>> {
        let most = self.client_memory.output() + self.transcodings.writing_bytes();
        conns.overdue(most, UNSENT_BYTES_MAX)
    }

    /// Has those ended that do not read if there is too much of all. The kernel has been offered what there is: this
    /// is asked at the beginning of a turn.
    pub fn make_room_for_output(&mut self, conns: &Connections) {
        let overdue = self.overdue(conns).unwrap_or_default();
        self.send_memory.crowded_out += overdue.len() as u64;
        self.slow_readers.extend(overdue);
    }

    /// Looks, at the end of a turn, whether there is too much. True if some of it can be sent, or has to go: the next
    /// turn says which. If the log is waited for instead, it is the log that begins the next turn.
    pub fn note_output(&mut self, conns: &Connections, gated: bool) -> bool {
        let overdue = self.overdue(conns);
        let goes_on = overdue.as_ref().is_some_and(|conns| !conns.is_empty());
        self.send_memory.waits_for_log = overdue.is_some() && gated && !goes_on;
        goes_on
    }

    /// Gives back what much output has left, once it has been gone for a while. Returns when to come again.
    pub(crate) fn give_back_output(&mut self, conns: &Connections) -> u64 {
        let now_ms = self.now_ms;
        if conns.output_bytes() > LARGE_BYTES {
            self.send_memory.large_at_ms = Some(now_ms);
        }
        let Some(at_ms) = self.send_memory.large_at_ms else { return u64::MAX };
        if now_ms < at_ms + KEPT_MS {
            return at_ms + KEPT_MS;
        }
        let again_ms = memory::give_back_if_idle(now_ms);
        if again_ms == u64::MAX {
            self.send_memory.large_at_ms = None;
        }
        again_ms
    }
}
