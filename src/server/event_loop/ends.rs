//! Connections whose peers have ended. A shard hears of thousands of them at once, when a machine of workers is gone or a
//! proxy starts again, and what each of them holds and waits for is given up: a turn does some of it, the next one goes on.

use super::turn_meter::Work;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections, EndReason};
use std::collections::VecDeque;

/// Steps after which a turn handles no further end.
const STEPS_MAX: u64 = 1000;

/// Ends that have been heard of and not handled, in order: at most one per connection.
#[derive(Debug, Default)]
pub struct Ends {
    waiting: VecDeque<(ConnId, EndReason)>,
}

impl Ends {
    /// A peer has ended.
    pub fn push(&mut self, conn: ConnId, reason: EndReason) {
        self.waiting.push_back((conn, reason));
    }

    /// Whether there are some for the next turn.
    pub fn has_left(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Handles as many as a turn may.
    pub fn handle(&mut self, server: &mut ShardServer, conns: &mut Connections) {
        if self.waiting.is_empty() {
            return;
        }
        let before = server.meter_work(Work::DISCONNECT);
        let until = server.steps() + STEPS_MAX;
        while server.steps() < until
            && let Some((conn, reason)) = self.waiting.pop_front()
        {
            // The end of a connection without a client has its price, too.
            server.meter.note(1);
            match reason {
                // All that came is from the peer itself, so its commands are carried out; a truncated one is left out.
                EndReason::HalfClosed | EndReason::Truncated => {
                    server.stays(conn);
                    server.half_closed(conns, conn);
                }
                _ => server.ended(conns, conn),
            }
        }
        server.meter_work(before);
    }
}
