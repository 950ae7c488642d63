//! Keeps the log no larger than what is needed of it deserves: the oldest segment is read again, what
//! is still needed of it is written at the end, and its file goes. A slice per turn, at a pace that
//! follows what is written, and at leisure when nobody asks for anything.

use super::engine::Engine;
use super::journal::Book;
use crate::server::overload::write_stall::lacking;
use crate::server::shard_server::Core;
use corq_io::log::Scan;
use corq_io::net::Connections;
use corq_shards::Out;
use corq_shards::compaction::space_forecast::Upkeep;

/// Segments that may be in use whatever is needed: the one being written and one more.
const SLACK_SEGMENTS: u64 = 2;
/// Read by one slice.
pub const SLICE_BYTES: u64 = 128 << 10;
/// Read for each byte that others append. With one half of the log needed, every byte read gives back
/// half of one, so two would do; the rest is for stretches of the log in which all is needed.
const PACE: u64 = 6;
/// The same once the log is larger than it ought to be.
const PACE_URGENT: u64 = 32;
/// What may be left to be read of that.
const CREDIT_BYTES_MAX: u64 = 16 * SLICE_BYTES;
/// Until the next slice while others keep the shard busy.
const PAUSE_MS: u64 = 2;
/// The pace of compaction of a shard.
#[derive(Debug, Default)]
pub struct Reclaim {
    /// The head of the log when the last slice had been done.
    head: u64,
    /// Bytes that may be read.
    credit: u64,
    /// All records of the oldest segment have been handed over.
    ending: bool,
    walk: Walk,
    /// A record on its way from the beginning of the log to its end.
    record: Vec<u8>,
    /// Bytes of records that were written again.
    pub rewritten_bytes: u64,
    /// Completed jobs are making room.
    yielding: bool,
    /// Completed jobs that were forgotten to make room.
    pub yielded_jobs: u64,
    /// Jobs that were refused for want of room.
    pub refused_pushes: u64,
    patience: Patience,
}

impl Reclaim {
    /// Reads of the oldest segment that failed.
    pub fn scan_failures(&self) -> u64 {
        self.patience.failures
    }
}

/// Between a read that failed and the next attempt, at first and at most: a disk that answers again is made use of soon,
/// and one that does not is asked, and told of in the log, once a minute.
const RETRY_MS: u64 = 1000;
const RETRY_MS_MAX: u64 = 60_000;

/// How long a segment that cannot be read is left alone.
#[derive(Debug, Default)]
struct Patience {
    failures: u64,
    /// Since the last success.
    pause_ms: u64,
    again_ms: u64,
}

impl Patience {
    /// Whether it is too early.
    fn lasts(&self, now_ms: u64) -> bool {
        now_ms < self.again_ms
    }

    /// A read has failed. Answers how long to wait.
    fn failed(&mut self, now_ms: u64) -> u64 {
        self.failures += 1;
        self.pause_ms = (self.pause_ms * 2).clamp(RETRY_MS, RETRY_MS_MAX);
        self.again_ms = now_ms + self.pause_ms;
        self.pause_ms
    }

    /// A read has succeeded; true if it is the first after one that had not.
    fn succeeded(&mut self) -> bool {
        std::mem::take(&mut self.pause_ms) > 0
    }
}

/// One way from the beginning of the log to where its end was when it was set out on.
#[derive(Debug, Default)]
struct Walk {
    until: u64,
    /// What was needed when it began.
    live: u64,
    /// What has been appended on it.
    appended: u64,
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

fn size_of(used: u64, needed: u64, segment_bytes: u64) -> Size {
    let slack = SLACK_SEGMENTS * segment_bytes;
    if used > 2 * needed + slack + segment_bytes {
        Size::TooLarge
    } else if used > needed + needed / 2 + slack {
        Size::Large
    } else {
        Size::Fair
    }
}

impl Core {
    /// One slice. Returns when to come again, in milliseconds since the epoch.
    pub fn reclaim(&mut self) -> u64 {
        let next_ms = self.reclaim_slice();
        // Whoever waits is let in by a look at the room, which nothing else may bring about.
        let pause_ms = if self.engine.book.1.strained { PAUSE_MS } else { u64::MAX };
        next_ms.min(self.now_ms.saturating_add(pause_ms))
    }

    fn reclaim_slice(&mut self) -> u64 {
        let Engine { shard, book } = &mut self.engine;
        let upkeep = shard.upkeep();
        let stopped = book.1.stopped || self.stopping;
        book.1.behind = false;
        book.note_needs(&upkeep);
        let Some(oldest) = book.0.oldest().filter(|_| !stopped) else { return u64::MAX };
        if self.reclaim.patience.lasts(self.now_ms) {
            return self.reclaim.patience.again_ms;
        }
        let needed_there = shard.needed_in_span_of(oldest.start.0);
        let room = book.room().of_segment(needed_there, &upkeep);
        book.1.stuck &= needed_there > 0 && !book.0.has_room(room);
        let pressed = book.is_pressed(&upkeep);
        let size = match size_of(book.0.used_bytes(), upkeep.live, book.0.segment_bytes()) {
            // Every byte counts.
            _ if pressed => Size::TooLarge,
            size => size,
        };
        let pace = match size {
            _ if pressed => {
                if self.reclaim.walk.until <= oldest.start.0 {
                    book.end_walk(&mut self.reclaim.walk, &upkeep);
                }
                let way = self.reclaim.walk.until.saturating_sub(oldest.start.0);
                book.room().pace(way, &upkeep).max(PACE_URGENT)
            }
            Size::TooLarge => PACE_URGENT,
            _ => PACE,
        };
        let log = &mut book.0;
        if size == Size::Fair && needed_there > 0 {
            self.reclaim.head = log.head().0;
            return u64::MAX;
        }
        let appended = log.head().0.saturating_sub(self.reclaim.head);
        let credit = self.reclaim.credit;
        self.reclaim.credit = match appended {
            0 => credit.max(SLICE_BYTES),
            _ => credit + appended * pace,
        };
        if needed_there > 0 && !log.make_room(room) {
            if !book.1.stuck {
                tracing::error!(
                    "shard {}: {}, and there is no room to write the oldest part of the log again: {} MB of it \
                     are needed",
                    self.me,
                    lacking(log.lack()),
                    needed_there.div_ceil(1 << 20)
                );
            }
            book.1.stuck = true;
            return u64::MAX;
        }
        let budget = self.reclaim.credit.min(SLICE_BYTES);
        self.reclaim.credit -= budget;
        if pressed {
            // What is owed is worked off before anything else is taken: whoever writes pays for the room
            // with a little time, and nobody with a lot.
            self.engine.book.1.behind = self.reclaim.credit > CREDIT_BYTES_MAX;
        } else {
            // What has been saved up is not kept for ever.
            self.reclaim.credit = self.reclaim.credit.min(CREDIT_BYTES_MAX);
        }
        let before = self.engine.book.0.head().0;
        let (waits, left) = self.scan(budget, needed_there == 0);
        self.reclaim.credit += left;
        self.reclaim.head = self.engine.book.0.head().0;
        self.reclaim.walk.appended += self.reclaim.head - before;
        if self.reclaim.patience.lasts(self.now_ms) {
            return self.reclaim.patience.again_ms;
        }
        match (waits, appended) {
            // Its end wakes the shard.
            (true, _) => u64::MAX,
            (false, 0) => self.now_ms,
            (false, _) if self.reclaim.credit >= SLICE_BYTES => self.now_ms,
            (false, _) => self.now_ms + PAUSE_MS,
        }
    }

    /// Hands over records of the oldest segment, and lets it go after the last. True if the disk has to
    /// be waited for; and what of the budget is left.
    fn scan(&mut self, mut budget: u64, nothing_needed: bool) -> (bool, u64) {
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
                        if reclaim.patience.succeeded() {
                            tracing::info!("shard {}: the log is reclaimed again", self.me);
                        }
                        if budget == 0 {
                            return (false, 0);
                        }
                        continue;
                    }
                    outcome.err().map(|malformed| format!("the record at {position}: {malformed}"))
                }
                Scan::Reading => return (true, budget),
                Scan::End => {
                    reclaim.ending = true;
                    break;
                }
                Scan::Failed(error) => {
                    let pause_ms = reclaim.patience.failed(self.now_ms);
                    tracing::error!(
                        "shard {}: the log is not reclaimed: {error}; tried again in {} s",
                        self.me,
                        pause_ms / 1000
                    );
                    return (true, budget);
                }
            };
            book.stop(self.me, &failed.unwrap_or_default());
            return (true, 0);
        }
        let Some(oldest) = book.0.oldest() else { return (false, 0) };
        if shard.needed_in_span_of(oldest.start.0) > 0 {
            // This cannot be, and if it were, what is needed would be lost.
            let why = "something is still needed of a segment that was read to its end";
            book.stop(self.me, why);
            return (true, 0);
        }
        if shard.end_keeping(oldest.end.0, book) {
            reclaim.ending = false;
            reclaim.record.shrink_to(SLICE_BYTES as usize);
            book.0.forget_oldest();
            if oldest.end.0 >= reclaim.walk.until {
                book.end_walk(&mut reclaim.walk, &shard.upkeep());
            }
        }
        (false, 0)
    }

    /// Has completed jobs make room if nothing else can. Returns when to come again.
    pub fn yield_history(&mut self, conns: &mut Connections) -> u64 {
        let Engine { shard, book } = &mut self.engine;
        let upkeep = shard.upkeep();
        self.reclaim.yielding =
            shard.has_history() && book.is_crowded(&upkeep, self.reclaim.yielding);
        if !self.reclaim.yielding {
            return u64::MAX;
        }
        self.effects.clear();
        let mut out = Out { journal: book, effects: &mut self.effects };
        self.reclaim.yielded_jobs += shard.forget_history(&mut out);
        self.follow_up(conns);
        self.now_ms
    }
}

impl Book {
    /// Nothing goes any more, until the next start.
    fn stop(&mut self, shard: usize, why: &str) {
        tracing::error!("shard {shard}: the log is not reclaimed any more: {why}");
        self.1.stopped = true;
    }

    /// Whether the log has to be walked through for room, however small it is.
    fn is_pressed(&mut self, upkeep: &Upkeep) -> bool {
        let lacks = self.1.strained || self.is_full(upkeep) && !self.is_crowded(upkeep, false);
        lacks && self.has_to_gain(upkeep)
    }

    /// The log has been walked through. What is dead now, and did not die meanwhile, stays so.
    fn end_walk(&mut self, walk: &mut Walk, upkeep: &Upkeep) {
        let head = self.0.head().0;
        let room = self.room();
        let others = (head - walk.until).saturating_sub(walk.appended + room.blocks(walk.appended));
        let died = others + walk.live.saturating_sub(upkeep.live);
        self.1.residue_bytes = room.dead(upkeep).saturating_sub(died);
        *walk = Walk { until: head, live: upkeep.live, appended: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_too_large_beyond_twice_what_is_needed_and_a_reserve() {
        let segment = 64 << 20;
        let size = |used: u64, needed: u64| size_of(used * segment, needed * segment, segment);
        assert_eq!(size(1, 0), Size::Fair, "the one that is being written");
        assert_eq!(size(2, 0), Size::Fair);
        assert_eq!(size(3, 0), Size::Large);
        assert_eq!(size(4, 0), Size::TooLarge);
        assert_eq!(size(17, 10), Size::Fair);
        assert_eq!(size(18, 10), Size::Large);
        assert_eq!(size(24, 10), Size::TooLarge);
    }

    #[test]
    fn a_segment_that_cannot_be_read_is_tried_again_ever_later() {
        let mut patience = Patience::default();
        assert!(!patience.lasts(5) && !patience.succeeded());
        let mut now_ms = 5;
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(patience.failed(now_ms), expected * 1000);
            assert!(patience.lasts(now_ms) && patience.lasts(now_ms + expected * 1000 - 1));
            now_ms += expected * 1000;
            assert!(!patience.lasts(now_ms));
        }
        assert!(patience.succeeded() && !patience.succeeded());
        assert_eq!((patience.failed(now_ms), patience.failures), (1000, 9));
    }
}
