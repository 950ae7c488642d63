//! What waits while the disk is full and what ends jobs has used up its room: until the log has been
//! walked through as far as needed, no command is begun, and mail that writes lies unread. So nothing is
//! refused that only needs a little patience, and the walk never runs out of room.

use super::core::Core;
use super::engine::Engine;
use super::message::{Batch, Message};
use corq_io::net::Connections;
use std::collections::VecDeque;

/// Mail that waits, in order. No more than all connections may have unanswered.
pub type PutOff = VecDeque<Batch>;

impl Core {
    /// Whether the next command has to wait: a look at a flag, unless the disk is full.
    #[inline]
    pub(super) fn is_busy(&mut self) -> bool {
        if !self.saturated && self.is_strained() {
            self.saturated = true;
        }
        self.stopping || self.saturated
    }

    #[inline]
    pub(super) fn is_strained(&mut self) -> bool {
        let Engine { shard, book } = &mut self.engine;
        // At the end no more commands come, and those under way have their room.
        !self.stopping && book.is_strained(shard)
    }

    /// Whether a message has to wait behind others or for room.
    pub(super) fn puts_off(&mut self, message: &Message, others_wait: bool) -> bool {
        let writes = matches!(
            message,
            Message::Request { .. }
                | Message::Push { .. }
                | Message::Part { .. }
                | Message::Leave { .. }
                | Message::Notice(_)
        );
        writes && (others_wait || self.is_strained())
    }

    /// Reads the mail that has waited, as far as there is room.
    pub fn read_put_off(&mut self, conns: &mut Connections) {
        while !self.put_off.is_empty() && !self.is_strained() {
            let Some(batch) = self.put_off.pop_front() else { return };
            if let Some(rest) = self.read_batch(conns, batch, false) {
                self.put_off.push_front(rest);
            }
        }
    }
}
