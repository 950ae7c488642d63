//! Long answers about one queue that are written a slice a turn, each in its turn.

use super::sliced_reply::SlicedReply;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::ClientId;

impl ShardServer {
    /// Writes a slice of the answer whose turn it is. True if there is more to do.
    pub(crate) fn write_sliced_in_turn(&mut self, conns: &mut Connections) -> bool {
        let Some(sliced) = self.sliced_replies.pop_front() else { return false };
        let origin = sliced.origin();
        let rest = match sliced {
            SlicedReply::Priorities(counting) => {
                self.count_on(conns, *counting).map(|rest| SlicedReply::Priorities(Box::new(rest)))
            }
            SlicedReply::Cleaned(cleaned) => {
                let rest = self.name_cleaned(conns, *cleaned);
                rest.map(|rest| SlicedReply::Cleaned(Box::new(rest)))
            }
        };
        match rest {
            Some(rest) => self.sliced_replies.push_back(origin.client, rest),
            None => self.answered(origin),
        }
        !self.sliced_replies.is_empty()
    }

    /// Ends the answers to a client that is gone.
    pub(crate) fn stop_sliced(&mut self, client: ClientId) {
        for sliced in self.sliced_replies.take_of(client, |_| true) {
            self.large_replies.note_shown(sliced.expected_bytes());
        }
    }
}
