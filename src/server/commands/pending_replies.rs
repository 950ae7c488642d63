//! Commands that the engine answers later: who asked, and how the answer is written.

use crate::server::event_loop::turn_meter::Work;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::req_id::ReqId;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::RequestId;
use corq_shards::effect::Reply;

/// The request whose answer the caller of the engine writes itself, at once.
pub const CURRENT: RequestId = RequestId(0);

/// A command the engine will answer later.
#[derive(Debug)]
pub struct Parked {
    /// Who asked.
    pub origin: Origin,
    /// The client's name for it.
    pub req_id: ReqId,
    /// How the answer is written.
    pub shape: Shape,
    /// The command that the slices of the answer count as.
    pub work: Work,
}

/// How the answer to a parked command is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// As to PULL.
    Single {
        /// With a token.
        locked: bool,
    },
    /// As to PULLB.
    Batch {
        /// With tokens.
        locked: bool,
    },
    /// As to `WaitJob`.
    Ending,
    /// As to a long command on the jobs of a queue.
    Bulk,
    /// `RemoveDeduplicationKey`, a long command if many jobs hold the key.
    FreedKey,
}

impl ShardServer {
    /// Answers those whose answer has come about.
    pub(crate) fn answer_parked(&mut self, conns: &mut Connections) {
        if self.effects.replies.iter().all(|(request, _)| *request == CURRENT) {
            return;
        }
        // The list is put back, so that its memory serves the next command.
        let mut replies = std::mem::take(&mut self.effects.replies);
        replies.retain(|(request, reply)| {
            if *request == CURRENT {
                return true;
            }
            let place = request.0.wrapping_sub(1) as u32;
            let Some(parked) = self.parked.remove(place) else { return false };
            let req_id = parked.req_id.as_deref();
            if let Reply::Ended(ending) = reply
                && self.send_shared_ending(conns, (parked.origin, req_id), *ending)
            {
                return false;
            }
            self.answered(parked.origin);
            if *reply != Reply::Dropped {
                self.write_parked(conns, &parked, reply);
            } else if usize::from(parked.origin.shard) != self.me {
                // The shard of the connection still counts the command as unanswered.
                let (origin, frame) = (parked.origin, 0..0);
                let tell = self.outbox.after_commit(usize::from(origin.shard));
                tell.messages.push(Message::Reply { origin, frame });
            }
            false
        });
        self.effects.replies = replies;
    }

    /// Parks a command that the engine may answer later, or at once.
    pub(crate) fn park(
        &mut self,
        origin: Origin,
        req_id: Option<&[u8]>,
        shape: Shape,
    ) -> RequestId {
        let (req_id, work) = (ReqId::from(req_id), self.meter.current());
        let parked = Parked { origin, req_id, shape, work };
        self.deferred(origin);
        RequestId(u64::from(self.parked.insert(parked)) + 1)
    }
}
