//! Keeps the log no larger than what is needed of it deserves: the oldest segment is read again, what
//! is still needed of it is written at the end, and its file goes. A slice per turn, at a pace that
//! follows what is written, and at leisure when nobody asks for anything.

use super::core::Core;
use super::engine::Engine;
use corq_io::log::Scan;

/// Segments that may be in use whatever is needed: the one being written and one more.
const SLACK_SEGMENTS: u64 = 2;
/// Read by one slice.
const SLICE_BYTES: u64 = 128 << 10;
/// Read for each byte that others append. With one half of the log needed, every byte read gives back
/// half of one, so two would do; the rest is for stretches of the log in which all is needed.
const PACE: u64 = 6;
/// The same once the log is larger than it ought to be.
const PACE_URGENT: u64 = 32;
/// Until the next slice while others keep the shard busy.
const PAUSE_MS: u64 = 2;
/// What ending the scan of a segment may append besides records that are needed.
const MARGIN_BYTES: u64 = 4 << 20;
/// What the end of one active job takes, roughly, without its result.
const END_BYTES: u64 = 128;

/// See the module.
#[derive(Debug, Default)]
pub struct Reclaim {
    /// The head of the log when the last slice had been done.
    head: u64,
    /// Bytes that may be read.
    credit: u64,
    /// All records of the oldest segment have been handed over.
    ending: bool,
    /// A segment could not be read: nothing goes any more.
    stopped: bool,
    /// A record on its way from the beginning of the log to its end.
    record: Vec<u8>,
    /// Bytes of records that were written again.
    pub rewritten_bytes: u64,
    /// Jobs that were refused for want of room.
    pub refused_pushes: u64,
}

impl Reclaim {
    /// Nothing goes any more, until the next start.
    fn stop(&mut self, shard: usize, why: &str) {
        tracing::error!("shard {shard}: the log is not reclaimed any more: {why}");
        self.stopped = true;
    }
}

/// Room kept ready: a segment for what ends jobs, and one for what is written again of the oldest.
pub fn reserve_bytes(segment_bytes: u64, active: u64) -> u64 {
    2 * segment_bytes + active * END_BYTES
}

/// How large the log is beside what is needed of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Size {
    /// There is nothing to be gained.
    Fair,
    /// It is worth while to give something up.
    Large,
    /// It is time to.
    TooLarge,
}

fn size_of(used: u64, needed: u64, segment_bytes: u64, full: bool) -> Size {
    let slack = SLACK_SEGMENTS * segment_bytes;
    if used > 2 * needed + slack + segment_bytes {
        Size::TooLarge
    } else if used > needed + needed / 2 + slack {
        Size::Large
    } else if full && used > needed + needed / 8 + segment_bytes {
        // Every byte counts.
        Size::TooLarge
    } else {
        Size::Fair
    }
}

impl Core {
    /// One slice. Returns when to come again, in milliseconds since the epoch.
    pub fn reclaim(&mut self) -> u64 {
        let Engine { shard, book } = &mut self.engine;
        let log = &mut book.0;
        let segment_bytes = log.segment_bytes();
        log.reserve(reserve_bytes(segment_bytes, shard.active_jobs()));
        let Some(oldest) = log.oldest().filter(|_| !self.reclaim.stopped && !self.stopping) else {
            return u64::MAX;
        };
        let needed_there = shard.needed_in_span_of(oldest.start.0);
        let size =
            size_of(log.used_bytes(), shard.needed_bytes(), segment_bytes, log.lacks_space());
        if size == Size::Fair && needed_there > 0 {
            self.reclaim.head = log.head().0;
            return u64::MAX;
        }
        let appended = log.head().0.saturating_sub(self.reclaim.head);
        let pace = if size == Size::TooLarge { PACE_URGENT } else { PACE };
        self.reclaim.credit += if appended == 0 { SLICE_BYTES } else { appended * pace };
        // Twice what is needed: what is written again is a little longer than it was.
        if needed_there > 0 && !log.make_room(2 * needed_there + MARGIN_BYTES) {
            return u64::MAX;
        }
        let budget = self.reclaim.credit.min(SLICE_BYTES);
        self.reclaim.credit -= budget;
        // What has been saved up is not kept for ever.
        self.reclaim.credit = self.reclaim.credit.min(16 * SLICE_BYTES);
        let waits = self.scan(budget, needed_there == 0);
        self.reclaim.head = self.engine.book.0.head().0;
        match (waits, appended) {
            // Its end wakes the shard.
            (true, _) => u64::MAX,
            (false, 0) => self.now_ms,
            (false, _) if self.reclaim.credit >= SLICE_BYTES => self.now_ms,
            (false, _) => self.now_ms + PAUSE_MS,
        }
    }

    /// Hands over records of the oldest segment, and lets it go after the last. True if the disk has to
    /// be waited for.
    fn scan(&mut self, mut budget: u64, nothing_needed: bool) -> bool {
        let Engine { shard, book } = &mut self.engine;
        let reclaim = &mut self.reclaim;
        reclaim.ending |= nothing_needed;
        while !reclaim.ending {
            let failed = match book.0.scan() {
                Scan::Record(position, body) => {
                    let bytes = body.len() as u64;
                    let outcome = match shard.needs(position.0, body) {
                        Ok(true) => {
                            reclaim.record.clear();
                            reclaim.record.extend_from_slice(body);
                            reclaim.rewritten_bytes += bytes;
                            shard.keep(position.0, &reclaim.record, book)
                        }
                        other => other.map(|_| ()),
                    };
                    budget = budget.saturating_sub(bytes + 8);
                    if outcome.is_ok() {
                        if budget == 0 {
                            return false;
                        }
                        continue;
                    }
                    outcome.err().map(|malformed| format!("the record at {position}: {malformed}"))
                }
                Scan::Reading => return true,
                Scan::End => {
                    reclaim.ending = true;
                    break;
                }
                Scan::Failed(error) => Some(error.to_string()),
            };
            reclaim.stop(self.me, &failed.unwrap_or_default());
            return true;
        }
        let Some(oldest) = book.0.oldest() else { return false };
        if shard.needed_in_span_of(oldest.start.0) > 0 {
            // This cannot be, and if it were, what is needed would be lost.
            let why = "something is still needed of a segment that was read to its end";
            reclaim.stop(self.me, why);
            return true;
        }
        if shard.end_keeping(oldest.end.0, book) {
            reclaim.ending = false;
            reclaim.record.shrink_to(SLICE_BYTES as usize);
            book.0.forget_oldest();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_too_large_beyond_twice_what_is_needed_and_a_reserve() {
        let segment = 64 << 20;
        let size =
            |used: u64, needed: u64| size_of(used * segment, needed * segment, segment, false);
        assert_eq!(size(1, 0), Size::Fair, "the one that is being written");
        assert_eq!(size(2, 0), Size::Fair);
        assert_eq!(size(3, 0), Size::Large);
        assert_eq!(size(4, 0), Size::TooLarge);
        assert_eq!(size(17, 10), Size::Fair);
        assert_eq!(size(18, 10), Size::Large);
        assert_eq!(size(24, 10), Size::TooLarge);
        assert_eq!(size_of(13 * segment, 10 * segment, segment, true), Size::TooLarge);
        assert_eq!(size_of(11 * segment, 10 * segment, segment, true), Size::Fair);
    }
}
