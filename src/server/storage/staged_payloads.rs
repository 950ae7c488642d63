//! Payloads of megabytes that are copied into the log's memory a slice at a time, before the records that will hold them are
//! appended. One whose record never comes goes in the turn after its frame, so nothing has to give it back.
//!
//! A ground type: it imports nothing of the server, and of the protocol what a frame is.

use crate::protocol::large::{FrameRef, LargeFrame};
use corq_io::log::Staged;
use corq_shards::log_record::codec::Place;
use std::sync::{Arc, Weak};

/// Bytes that may be staged at a time. What is beyond is copied with its record.
const STAGED_BYTES_MAX: usize = 32 << 20;

/// A payload with no more bytes is copied with its record.
const STAGED_BYTES_MIN: usize = 256 << 10;

/// Bytes that are copied at a time.
pub const SLICE_BYTES: usize = 128 << 10;

#[derive(Debug)]
struct One {
    /// While the frame is there, nothing else can have its address.
    frame: Weak<LargeFrame>,
    payload: Place,
    staged: Staged,
}

/// Bytes that are copied, into memory that is new, in about the time of one step.
pub const COPIED_PER_STEP: usize = 512;

/// Bytes per step for a record copied at once with its payload: more than `COPIED_PER_STEP`, since slices have
/// a fixed cost each.
const UNSTAGED_PER_STEP: usize = 1024;

/// The staged payloads of a shard.
#[derive(Debug, Default)]
pub struct StagedPayloads {
    all: Vec<One>,
    /// Steps spent on payloads that were copied with their records, since the start.
    copied_steps: u64,
    /// Whether a command has begun in this turn whose payload is not staged.
    has_unstaged: bool,
}

impl StagedPayloads {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there is one of so many bytes.
    pub fn has_of(&mut self, payload_bytes: usize) -> bool {
        self.forget_gone();
        self.all.iter().any(|one| one.payload.bytes == payload_bytes)
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.has_unstaged = false;
        if !self.is_empty() {
            self.forget_gone();
        }
    }

    /// Whether a command with this frame may begin in this turn: of those whose payloads are copied with their records, a turn
    /// has one.
    pub fn admits(&mut self, large: &Arc<LargeFrame>) -> bool {
        let frame = FrameRef::from(large);
        let place = Place::of(frame.payload());
        // Of a batch nothing is staged.
        let bytes = if place.bytes == 0 { frame.len() } else { place.bytes };
        if bytes <= STAGED_BYTES_MIN || self.all.iter().any(|one| one.payload == place) {
            return true;
        }
        !std::mem::replace(&mut self.has_unstaged, true)
    }

    /// A record of so many bytes was appended without its payload being staged.
    #[inline]
    pub fn note_copied(&mut self, record_bytes: usize) {
        if record_bytes > STAGED_BYTES_MIN {
            self.copied_steps += (record_bytes / UNSTAGED_PER_STEP) as u64;
        }
    }

    /// Steps spent on payloads that were copied with their records, since the start.
    pub fn copied_steps(&self) -> u64 {
        self.copied_steps
    }

    /// Copies the next slice of a frame's payload. True once all of it is there, or it is not to be staged.
    pub fn stage_some(&mut self, large: &Arc<LargeFrame>) -> bool {
        let payload = FrameRef::from(large).payload();
        let place = Place::of(payload);
        self.forget_gone();
        let known = self.all.iter().position(|one| one.payload == place);
        let Some(known) = known.or_else(|| self.begin(large, place)) else { return true };
        let staged = &mut self.all[known].staged;
        let from = staged.filled();
        staged.extend(&payload[from..payload.len().min(from + SLICE_BYTES)]);
        staged.filled() == payload.len()
    }

    /// Lets go of those whose frame is gone.
    pub fn forget_gone(&mut self) {
        self.all.retain(|one| one.frame.strong_count() > 0);
    }

    fn begin(&mut self, large: &Arc<LargeFrame>, payload: Place) -> Option<usize> {
        let staged: usize = self.all.iter().map(|one| one.payload.bytes).sum();
        if payload.bytes <= STAGED_BYTES_MIN || staged + payload.bytes > STAGED_BYTES_MAX {
            return None;
        }
        let staged = Staged::new(payload.bytes);
        self.all.push(One { frame: Arc::downgrade(large), payload, staged });
        Some(self.all.len() - 1)
    }

    /// Takes the payload of a record with a head of so many bytes.
    pub fn take(&mut self, payload: Place, head_bytes: usize) -> Option<Staged> {
        self.forget_gone();
        let is_it = |one: &One| one.payload == payload && one.staged.takes(head_bytes);
        let found = self.all.iter().position(is_it)?;
        Some(self.all.swap_remove(found).staged)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::commands::Op;
    use crate::protocol::large_scan::LargeScan;
    use crate::server::storage::journal::LogJournal;
    use corq_io::log::{Log, LogConfig, MemoryDisk, Mode};
    use corq_io::log_ring::Store;
    use corq_shards::compaction::space_forecast::SpaceForecast;

    /// A frame with a payload of so many bytes.
    fn large(bytes: usize) -> Arc<LargeFrame> {
        let mut frame = b"\x83\xa3cmd\xa4PUSH\xa5queue\xa1q\xa4data\xc6".to_vec();
        frame.extend_from_slice(&(bytes as u32 - 5).to_be_bytes());
        frame.resize(frame.len() + bytes - 5, 7);
        let mut scan = LargeScan::new(Op::Push.spec());
        while !scan.go_on(&frame, &mut 1000).unwrap() {}
        Arc::new(LargeFrame::new(frame, 0, scan.into_checked()))
    }

    #[test]
    fn a_payload_is_staged_a_slice_at_a_time_and_taken_once() {
        let (frame, mut staged) = (large(3 * SLICE_BYTES + 1), StagedPayloads::default());
        let payload = Place::of(FrameRef::from(&frame).payload());
        for _ in 0..3 {
            assert!(!staged.stage_some(&frame));
            assert!(staged.take(payload, 10).is_none(), "it is not whole");
        }
        assert!(staged.stage_some(&frame) && staged.has_of(payload.bytes));
        assert!(staged.take(Place { bytes: payload.bytes - 1, ..payload }, 10).is_none());
        assert!(staged.take(payload, 1 << 20).is_none(), "the head has no room");
        assert_eq!(staged.take(payload, 10).unwrap().len(), payload.bytes);
        assert!(staged.is_empty());
    }

    #[test]
    fn what_is_staged_is_bounded_and_goes_with_its_frame() {
        let mut staged = StagedPayloads::default();
        let frames: Vec<_> = (0..5).map(|_| large(10 << 20)).collect();
        let began = frames.iter().filter(|frame| !staged.stage_some(frame)).count();
        assert_eq!(began, 3, "others are copied with their records");
        assert!(staged.stage_some(&large(STAGED_BYTES_MIN)), "as short ones are");
        let payload = Place::of(FrameRef::from(&frames[0]).payload());
        while !staged.stage_some(&frames[0]) {}
        drop(frames);
        assert!(staged.take(payload, 10).is_none());
        let next = large(10 << 20);
        assert!(!staged.stage_some(&next));
        assert_eq!(staged.all.len(), 1);
    }

    #[test]
    fn a_turn_has_one_command_whose_payload_is_not_staged() {
        let mut staged = StagedPayloads::default();
        let (ready, short) = (large(1 << 20), large(1000));
        while !staged.stage_some(&ready) {}
        let others: Vec<_> = (0..3).map(|_| large(1 << 20)).collect();
        for _ in 0..2 {
            staged.begin_turn();
            let admitted: Vec<bool> = others.iter().map(|it| staged.admits(it)).collect();
            assert_eq!(admitted, [true, false, false]);
            assert!(staged.admits(&ready) && staged.admits(&short), "these cost little");
        }
        assert_eq!(staged.copied_steps(), 0);
        staged.note_copied(1000);
        staged.note_copied(1 << 20);
        assert_eq!(staged.copied_steps(), (1 << 20) / UNSTAGED_PER_STEP as u64);
    }

    #[test]
    fn what_was_staged_in_vain_goes_with_the_turn_although_nothing_else_is_appended() {
        let replay = |_, _: &[u8]| Ok::<(), String>(());
        let disk = Store::Memory(MemoryDisk::new());
        let (log, _) = Log::open(&LogConfig::new(0, Mode::Written), disk, replay).unwrap();
        let mut journal = LogJournal::new(log);
        let (gone, stays) = (large(1 << 20), large(1 << 20));
        assert!(!journal.staged.stage_some(&gone) && !journal.staged.stage_some(&stays));
        drop(gone);
        journal.note_needs(&SpaceForecast::default());
        assert_eq!(journal.staged.all.len(), 1);
        drop(stays);
        journal.note_needs(&SpaceForecast::default());
        assert!(journal.staged.is_empty());
    }
}
