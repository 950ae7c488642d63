//! Payloads of megabytes on their way to the shard whose log will hold them: items of long batches are put together and checked
//! as pieces of their own, and all of them are staged where their records will be written, a slice at a time.

use super::long_batch::{BYTES_PER_STEP, ITEMS_PER_STEP, LongCommand, NextPiece};
use super::long_commands::Staging;
use super::long_read::VALUES_PER_STEP;
use super::messages::LongBatchMessage;
use crate::protocol::large::{KeptFrame, LargeFrame};
use crate::protocol::large_piece::LargePiece;
use crate::server::shard_mail::envelope::Step;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use crate::server::storage::staged_payloads::{COPIED_PER_STEP, SLICE_BYTES};
use std::sync::Arc;

/// Bytes of names and other small values, which have been checked, that are stepped over in about the time of a step.
const READ_PER_STEP: usize = 2048;

/// Slices of other shards' payloads that are staged in one turn.
const SLICES_PER_TURN: usize = 2;

impl LongCommand {
    /// Whether the next piece is one item that is put together a slice at a time.
    fn begins_large(&mut self, queue: Option<&str>) -> bool {
        let from = self.place;
        if self.large.as_ref().is_some_and(|large| large.from() == from) {
            return true;
        }
        let is_one = self.next_cut(from) == from + 1;
        // A frame whose values are coerced is rewritten as a whole, so no part of it can be passed on as it is.
        let large = if is_one && !self.coerces {
            LargePiece::begin(&self.walk, self.frame(), queue, from)
        } else {
            None
        };
        let begins = large.is_some();
        if begins {
            (self.large, self.staging) = (large, Staging::No);
        }
        begins
    }
}

impl ShardServer {
    /// The next piece of a long batch, and steps over it. An item of megabytes takes several steps; it is staged if `owner`
    /// says whose log will hold it.
    pub(super) fn next_piece(
        &mut self,
        step: Step,
        command: &mut LongCommand,
        queue: Option<&str>,
        owner: Option<usize>,
    ) -> NextPiece {
        if !command.begins_large(queue) {
            let (from, piece) = command.take_piece(queue);
            self.meter.note((command.place - from) / ITEMS_PER_STEP + piece.len() / BYTES_PER_STEP);
            return NextPiece::Taken(from, piece.into());
        }
        let LongCommand { large: Some(large), bytes, start, .. } = command else {
            return NextPiece::More;
        };
        let from = large.from();
        match large.go_on(bytes.get(*start..).unwrap_or_default()) {
            Ok((copied, values)) => {
                self.meter.note(copied / COPIED_PER_STEP + values / VALUES_PER_STEP);
            }
            Err(error) => {
                command.large = None;
                command.refuse_frame(from, error);
                return NextPiece::More;
            }
        }
        let Some(frame) = large.done().cloned() else { return NextPiece::More };
        if let Some(owner) = owner {
            match self.stage_at(step, owner, &frame, &mut command.staging) {
                Staging::Done => {}
                Staging::No => return NextPiece::More,
                Staging::Asked => return NextPiece::Waits,
            }
            // The frame is kept by the piece that is taken now; the next large item begins anew.
            (command.large, command.staging) = (None, Staging::No);
        }
        command.place = from + 1;
        let frame = KeptFrame::Shared(frame);
        // The frame around the payload is decoded again with each piece.
        let read = frame.len() - frame.view().known().len();
        self.meter.note(read / READ_PER_STEP);
        NextPiece::Taken(from, frame)
    }

    /// Copies the next slice of a payload to where the log of this shard will need it, or has another shard do so.
    pub(super) fn stage_at(
        &mut self,
        step: Step,
        owner: usize,
        frame: &Arc<LargeFrame>,
        staging: &mut Staging,
    ) -> Staging {
        if *staging == Staging::No && owner == self.me {
            self.meter.note(SLICE_BYTES / COPIED_PER_STEP);
            if self.engine.journal.staged.stage_some(frame) {
                *staging = Staging::Done;
            }
        } else if *staging == Staging::No {
            let message = LongBatchMessage::StagePayload { step, frame: Arc::clone(frame) };
            self.outbox.immediate(owner).messages.push(Message::Long(message));
            *staging = Staging::Asked;
        }
        *staging
    }

    /// Another shard wants a payload to be staged.
    pub(super) fn stage_for(&mut self, step: Step, frame: &Arc<LargeFrame>) {
        self.long_commands.staged_for_others.0.push_back((step, Arc::clone(frame)));
    }

    /// Copies the next slices of payloads for other shards, in turn.
    pub(super) fn stage_for_others(&mut self) {
        for _ in 0..SLICES_PER_TURN {
            let waiting = &mut self.long_commands.staged_for_others.0;
            let Some((step, frame)) = waiting.pop_front() else { return };
            self.meter.note(SLICE_BYTES / COPIED_PER_STEP);
            if self.engine.journal.staged.stage_some(&frame) {
                let message = Message::Long(LongBatchMessage::PayloadStaged { step });
                self.outbox.immediate(usize::from(step.shard)).messages.push(message);
            } else {
                self.long_commands.staged_for_others.0.push_back((step, frame));
            }
        }
    }

    /// Another shard has staged the payload of a long command.
    pub(super) fn payload_staged(&mut self, step: Step) {
        if let Some(command) = self.long_task(step) {
            command.staging = Staging::Done;
            self.wake_long(step);
        }
    }
}
