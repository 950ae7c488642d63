//! Runs long answers: the first slice at once, the others in turns, until the answer is written or its client is gone. A client
//! counts as one that waits while its answer is in a line, or waits for the disk.

use super::operation::{Line, Operation, Sliced};
use crate::api::error::ErrorKind;
use crate::protocol::reply::Frame;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::Fetched;
use corq_io::net::Connections;
use corq_shards::command::ClientId;

/// Steps after which a turn begins no other slice.
const STEPS_MAX: u64 = 500;

/// Steps that a slice counts as at least: a turn has a bounded number, however little each of them does.
const SLICE_STEPS_MIN: u64 = 50;

impl ShardServer {
    /// Begins an operation with its first slice, with which most are complete.
    pub(crate) fn begin_operation(&mut self, conns: &mut Connections, operation: Operation) {
        self.large_replies.note_begun(operation.reserved_bytes());
        self.run_slice(conns, operation, Vec::new());
    }

    /// Leaves an operation to its turn.
    pub(crate) fn queue_operation(&mut self, operation: Operation) {
        self.deferred(operation.origin());
        self.operations.put(operation, false);
    }

    /// Runs a slice of an operation. `fetched` holds records that had to be read for it first.
    pub(crate) fn run_slice(
        &mut self,
        conns: &mut Connections,
        operation: Operation,
        fetched: Vec<Fetched>,
    ) {
        let (origin, reserved_bytes) = (operation.origin(), operation.reserved_bytes());
        let sliced = match operation {
            Operation::Listing(listing) => self.list_on(conns, listing),
            Operation::Scan(page) => self.scan_on(conns, page, fetched),
            Operation::Show(show) => self.show(conns, show, fetched),
            Operation::Priorities(counting) => self.count_on(conns, counting),
            Operation::Cleaned(cleaned) => self.name_cleaned(conns, cleaned),
            Operation::ChildValues(valuing) => self.read_child_values_on(conns, valuing, fetched),
            Operation::Groups(scan) => self.group_on(conns, scan, fetched),
        };
        self.large_replies.note_shown(reserved_bytes);
        self.large_replies.note_begun(sliced.reserved_bytes());
        match sliced {
            Sliced::Done => {}
            Sliced::More(operation) => {
                self.deferred(origin);
                // Where pages take all the room there is, they end one after the other: none gives back any before its end.
                let is_page = operation.line() == Line::Pages;
                self.operations.put(operation, is_page && self.large_replies.lists_enough());
            }
            Sliced::Reads(operation, records, fetched) => {
                self.read_first(origin, Continuation::Operation(operation), &records, fetched);
            }
        }
    }

    /// Ends an operation with the frame that it has written, if that is none too long.
    pub(crate) fn end_with_frame(
        &mut self,
        conns: &mut Connections,
        (origin, req_id): (Origin, Option<&[u8]>),
        framing: Frame,
        mut frame: Vec<u8>,
    ) -> Sliced {
        if framing.finish(&mut frame).is_err() {
            self.refuse(conns, origin, req_id, ErrorKind::ReplyTooLarge);
        } else {
            self.send_whole(conns, origin, frame);
        }
        Sliced::Done
    }

    /// Runs operations, a slice of each: one of each line, and more while the turn has steps and bytes left.
    pub(crate) fn run_operations(&mut self, conns: &mut Connections) {
        let mut steps_left = STEPS_MAX;
        let most = Line::ALL.map(|line| self.runnable(line));
        for round in 0..most.into_iter().max().unwrap_or(0) {
            for line in Line::ALL {
                if round > 0 && (steps_left == 0 || self.large_replies.is_turn_spent()) {
                    return;
                }
                if round >= most[line as usize] || self.runnable(line) == 0 {
                    continue;
                }
                let Some(operation) = self.operations.pop(line) else { continue };
                let (origin, before) = (operation.origin(), self.steps());
                self.run_slice(conns, operation, Vec::new());
                let steps = (self.steps() - before).max(SLICE_STEPS_MIN);
                steps_left = steps_left.saturating_sub(steps);
                // If more is to do, the client is counted anew.
                self.answered(origin);
            }
        }
    }

    /// How many operations of a line can go on. What they wait for drains by itself, but for room that lists under way have;
    /// for that only those wait which have none.
    pub(crate) fn runnable(&self, line: Line) -> usize {
        let waits = match line {
            _ if self.operations.len_of(line) == 0 => return 0,
            Line::Listings => self.waits_for_answers_to_go(),
            Line::Pages | Line::Begun => self.waits_for_readers(),
        };
        if waits { 0 } else { self.operations.len_of(line) }
    }

    /// A client is gone: ends what is under way for it.
    pub(crate) fn stop_operations(&mut self, client: ClientId) {
        let mut stopped = self.operations.take_of(client);
        stopped.extend(self.cold.forget(client));
        for operation in stopped {
            self.large_replies.note_shown(operation.reserved_bytes());
            if let Operation::Groups(scan) = operation {
                self.release_groups(scan.begun_at);
            }
        }
    }
}
