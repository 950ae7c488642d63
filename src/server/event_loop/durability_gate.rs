//! The durability gate: nothing of what a turn has done is seen outside of its shard before the log has the records that
//! it depends on, as durable as `DURABILITY` promises. This is the only place where output is released.
//!
//! The output of a turn, and its messages that wait for the commit, are noted with the address of the log's end; they go,
//! in order, once the log has released that address. Output that depends on no record goes at once.

use super::micros_since;
use crate::server::shard_mail::message::Batch;
use crate::server::shard_server::ShardServer;
use corq_io::clock::Clock;
use corq_io::log::Position;
use corq_io::net::{ConnId, Connections};
use corq_shards::stats::Totals;
use std::collections::VecDeque;
use std::time::Instant;

/// Output and messages of a turn that wait for the log.
struct GatedOutput {
    /// Where the log ended with the turn.
    until: Position,
    outputs: Vec<(ConnId, u64)>,
    closing: Vec<ConnId>,
    batches: Vec<(usize, Batch)>,
    /// Counts of the turn's work, and when its wait began, for the durations of answers.
    done: Totals,
    begun: Instant,
}

/// Output that waits for the log, the oldest turn first.
#[derive(Default)]
pub struct DurabilityGate {
    waiting: VecDeque<GatedOutput>,
    /// Counts of the engine at the end of the last turn.
    done: Totals,
}

impl DurabilityGate {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many connections get output once the log has released `released`.
    pub fn outputs_up_to(&self, released: Position) -> usize {
        let free = self.waiting.iter().take_while(|gated| gated.until <= released);
        free.map(|gated| gated.outputs.len()).sum()
    }

    /// Keeps this turn's output and news until the log has what they tell of, or lets them go at once
    /// if it has.
    pub fn hold_back(&mut self, server: &mut ShardServer, conns: &mut Connections, clock: &Clock) {
        let done = server.engine.shard.totals();
        let of_turn = done - std::mem::replace(&mut self.done, done);
        let log = &server.engine.journal.log;
        server.unrecorded.drain(..).for_each(|(conn, upto)| conns.allow(conn, upto));
        if self.waiting.is_empty() && log.released() >= log.head() {
            // Nothing to wait for, which is the rule with `written`: no need to keep anything.
            server.touched.drain(..).for_each(|conn| conns.allow(conn, conns.appended(conn)));
            server.finishing.drain(..).for_each(|conn| conns.close(conn));
            server.outbox.send_after_commit();
            server.durations.answered(of_turn, 0);
            return;
        }
        let batches = server.outbox.take_after_commit();
        if server.touched.is_empty() && server.finishing.is_empty() && batches.is_empty() {
            return;
        }
        let outputs = server.touched.drain(..).map(|conn| {
            conns.recount(conn);
            (conn, conns.appended(conn))
        });
        let outputs = outputs.collect();
        let closing = std::mem::take(&mut server.finishing);
        let until = server.engine.journal.log.head();
        let begun = clock.instant();
        let gated = GatedOutput { until, outputs, closing, batches, done: of_turn, begun };
        self.waiting.push_back(gated);
    }

    /// Lets go, in order, what the log has.
    pub fn release(&mut self, server: &mut ShardServer, conns: &mut Connections, clock: &Clock) {
        let released = server.engine.journal.log.released();
        server.release_triggers(released);
        if !server.spans.is_empty() {
            server.spans.release(released, || clock.now_us());
        }
        while let Some(gated) = self.waiting.pop_front_if(|gated| gated.until <= released) {
            for (conn, upto) in gated.outputs {
                conns.allow(conn, upto);
            }
            for conn in gated.closing {
                conns.close(conn);
            }
            for (dest, batch) in gated.batches {
                server.outbox.send(dest, batch);
            }
            let waited_us = micros_since(gated.begun, clock);
            server.durations.answered(gated.done, waited_us);
        }
    }
}
