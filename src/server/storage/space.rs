//! Log space accounting: how many bytes must stay reserved before a record of each class may be appended, so that a full
//! disk never blocks completing a job.
//!
//! Room is what can be appended although the file system gives nothing more. Of it, and in this order:
//!
//! 1. *The pass*: what it takes to write the oldest segment again, and all that follow it, if every
//!    record gets longer by it and nothing is gained before the last. Reserved for the pass.
//! 2. *Restarts*: each ends a segment early. What is cut off goes back to the file system, but in
//!    pieces that make no segment: up to one of them, less what has been cut off already.
//! 3. *Ends*: half a segment for what ends jobs and for what time brings. All of that is dead as soon as
//!    it is written, or pays for itself; when half of it is used, commands stall until the pass has
//!    brought it back.
//! 4. *Asides*: an eighth of a segment for what stays and is no job, such as the reasons of failures.
//! 5. What comes.
//!
//! Besides, all files together must hold what the jobs there are may come to take ([`SpaceForecast`]): what is
//! dead by now counts for that as if it were room, since the pass makes it that.
//!
//! Knows numbers only.

use corq_shards::compaction::live_bytes::LARGE_BYTES;
use corq_shards::compaction::space_forecast::SpaceForecast;

/// Bytes beside needed records that the end of a segment's pass may append: ids of completed jobs that are remembered,
/// and notes.
const MARGIN_BYTES: u64 = 3 << 20;

/// Bytes of the log that one slice of compaction reads: the block that it then writes ends with it.
pub const SLICE_BYTES: u64 = 128 << 10;

/// A log in numbers; bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Of one segment.
    pub segment: u64,
    /// That can be appended although the file system gives nothing more.
    pub free: u64,
    /// Of all files that are no room.
    pub filled: u64,
    /// Of these, in files that are set aside and cannot be opened.
    pub unopened: u64,
    /// That went back to the file system and make no segment.
    pub loose: u64,
    /// That a block takes besides its records.
    pub block: u64,
    /// Read by one step of the pass, which ends a block.
    pub slice: u64,
}

impl Room {
    /// Bytes of block overhead for `bytes` of records that compaction writes again.
    pub fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.slice) * self.block
    }

    /// Bytes that rewriting `needed` bytes of the oldest segment may take, at most.
    pub fn of_segment(&self, needed: u64, space_forecast: &SpaceForecast) -> u64 {
        let longer = space_forecast.rewriting.min(2 * needed);
        needed + longer + self.blocks(self.segment) + 2 * space_forecast.largest + MARGIN_BYTES
    }

    /// Class 1, for one segment, whatever it holds.
    fn of_any_segment(&self, space_forecast: &SpaceForecast) -> u64 {
        self.segment + self.blocks(self.segment) + 2 * space_forecast.largest + MARGIN_BYTES
    }

    /// Class 1, for all of them.
    pub fn of_pass(&self, space_forecast: &SpaceForecast) -> u64 {
        self.of_any_segment(space_forecast)
            + space_forecast.rewriting
            + self.blocks(space_forecast.live)
    }

    /// Class 2.
    fn of_restarts(&self) -> u64 {
        self.segment - self.loose.min(self.segment)
    }

    /// Class 3.
    fn of_ends(&self) -> u64 {
        self.segment / 2
    }

    /// Class 4.
    fn of_asides(&self) -> u64 {
        self.segment / 8
    }

    /// Room that a record which ends a job must leave: classes 1 and 2.
    pub fn behind_ends(&self, space_forecast: &SpaceForecast) -> u64 {
        self.of_pass(space_forecast) + self.of_restarts()
    }

    /// Whether ends have used so much of theirs that commands stall until the pass has gone on; `already` if they do.
    pub fn is_stalled(&self, space_forecast: &SpaceForecast, already: bool) -> bool {
        let quarters = if already { 3 } else { 2 };
        self.free < self.behind_ends(space_forecast) + self.of_ends() * quarters / 4
    }

    /// Bytes to be read for each that is written, so that a pass of `way` ends before ends have used up
    /// three quarters of theirs.
    pub fn pace(&self, way: u64, space_forecast: &SpaceForecast) -> u64 {
        let least = self.behind_ends(space_forecast) + self.of_ends() / 4;
        way.max(self.segment) / self.free.saturating_sub(least).max(self.segment / 64)
    }

    /// Bytes that all files must hold, without the room for asides and for more jobs.
    fn of_all(&self, space_forecast: &SpaceForecast) -> u64 {
        let lasting =
            space_forecast.live + self.blocks(space_forecast.live) + space_forecast.growth;
        let reserved = self.of_any_segment(space_forecast) + self.of_restarts() + self.of_ends();
        // A record that does not fit the end of a segment wastes it: less than its own length.
        let segments = (lasting + reserved) / self.segment + 1;
        let ends = space_forecast.largest.min(LARGE_BYTES) * segments + space_forecast.large;
        lasting + reserved + ends.min(segments * space_forecast.largest) + segments * 4096
    }

    /// The room that there must be for `bytes` of class 4.
    pub fn for_asides(&self, bytes: u64, space_forecast: &SpaceForecast) -> u64 {
        let now = self.behind_ends(space_forecast) + bytes;
        now.max((self.of_all(space_forecast) + bytes).saturating_sub(self.filled))
    }

    /// The room that there must be for `bytes` of class 5.
    pub fn for_more(&self, bytes: u64, space_forecast: &SpaceForecast) -> u64 {
        let now = self.behind_ends(space_forecast) + self.of_ends() + self.of_asides() + bytes;
        now.max(
            (self.of_all(space_forecast) + self.of_asides() + bytes).saturating_sub(self.filled),
        )
    }

    /// How much there would be for what comes once all that is dead is room; negative if less than none.
    pub fn left_to_come(&self, space_forecast: &SpaceForecast) -> i64 {
        (self.filled + self.free) as i64 - (self.of_all(space_forecast) + self.of_asides()) as i64
    }

    /// Bytes that the pass may bring back, at most.
    pub fn dead(&self, space_forecast: &SpaceForecast) -> u64 {
        let needed = space_forecast.live + self.blocks(space_forecast.live);
        self.filled.saturating_sub(needed + self.unopened)
    }
}
