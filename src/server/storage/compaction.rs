//! Compaction: rewrites the live records of the oldest segment at the end of the log, then removes the segment, so that the
//! log stays in proportion to what is live. One slice per turn, at a pace that follows what is written, and at leisure when
//! the shard is idle. A pass is the way through the whole log that a full disk asks for.

use super::engine::Engine;
use super::journal::LogJournal;
use super::space::SLICE_BYTES;
use crate::server::overload::write_stall::lacking;
use crate::server::shard_server::ShardServer;
use corq_io::log::Scan;
use corq_io::net::Connections;
use corq_shards::Out;
use corq_shards::compaction::space_forecast::SpaceForecast;

/// Segments that may be in use whatever is needed: the one being written and one more.
const SLACK_SEGMENTS: u64 = 2;
/// Read for each byte that others append. With one half of the log needed, every byte read gives back
/// half of one, so two would do; the rest is for stretches of the log in which all is needed.
const PACE: u64 = 6;
/// Bytes read for each byte appended once the log is larger than it ought to be.
const PACE_URGENT: u64 = 32;
/// Bytes of reading that may be saved up while the log is not pressed for space. More of them stall commands when it
/// is.
const CREDIT_BYTES_MAX: u64 = 16 * SLICE_BYTES;
/// Until the next slice while others keep the shard busy.
const PAUSE_MS: u64 = 2;
/// The pace of compaction of a shard.
#[derive(Debug, Default)]
pub struct Compaction {
    /// The head of the log when the last slice had been done.
    head: u64,
    /// Bytes that may be read.
    credit: u64,
    /// All records of the oldest segment have been handed over.
    ending: bool,
    pass: Pass,
    /// A record on its way from the beginning of the log to its end.
    record: Vec<u8>,
    /// Bytes of records that were written again.
    pub rewritten_bytes: u64,
    /// Completed jobs are making room.
    evicting: bool,
    /// Completed jobs that were forgotten to make room.
    pub evicted_jobs: u64,
    /// Jobs that were refused for want of room.
    pub refused_pushes: u64,
    retry: ReadRetry,
}

impl Compaction {
    /// Reads of the oldest segment that failed.
    pub fn scan_failures(&self) -> u64 {
        self.retry.failures
    }
}

/// Between a read that failed and the next attempt, at first and at most: a disk that answers again is made use of soon,
/// and one that does not is asked, and logged, once a minute.
const RETRY_MS: u64 = 1000;
const RETRY_MS_MAX: u64 = 60_000;

/// How long a segment that cannot be read is left alone.
#[derive(Debug, Default)]
struct ReadRetry {
    failures: u64,
    /// Since the last success.
    pause_ms: u64,
    again_ms: u64,
}

impl ReadRetry {
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

/// A walk of compaction from the beginning of the log to the place where its end was when the walk began.
#[derive(Debug, Default)]
struct Pass {
    until: u64,
    /// Live bytes when the pass began.
    live: u64,
    /// Bytes that compaction itself has appended during the pass.
    appended: u64,
}

/// How large the log is beside what is needed of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Size {
    /// There is nothing to be gained.
    Fair,
    /// Compaction at the usual pace gains space.
    Large,
    /// Compaction must run at the urgent pace.
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

impl ShardServer {
    /// Compacts one slice, and says what space there must be from now on. Returns when to come again, in milliseconds since the epoch.
    pub fn compact(&mut self) -> u64 {
        let next_ms = self.compact_slice();
        // Stalled commands go on after a look at the space, which nothing else may bring about.
        let pause_ms = if self.engine.journal.pressure.stalled { PAUSE_MS } else { u64::MAX };
        next_ms.min(self.now_ms.saturating_add(pause_ms))
    }

    fn compact_slice(&mut self) -> u64 {
        let Engine { shard, journal } = &mut self.engine;
        let space_forecast = shard.space_forecast();
        let stopped = journal.pressure.stopped || self.stopping;
        journal.pressure.behind = false;
        journal.note_needs(&space_forecast);
        let Some(oldest) = journal.log.oldest().filter(|_| !stopped) else { return u64::MAX };
        if self.compaction.retry.lasts(self.now_ms) {
            return self.compaction.retry.again_ms;
        }
        let needed_there = shard.needed_in_span_of(oldest.start.0);
        let room = journal.room().of_segment(needed_there, &space_forecast);
        journal.pressure.stuck &= needed_there > 0 && !journal.log.has_room(room);
        let pressed = journal.is_pressed(&space_forecast);
        let size = match size_of(
            journal.log.used_bytes(),
            space_forecast.live,
            journal.log.segment_bytes(),
        ) {
            // Every byte counts.
            _ if pressed => Size::TooLarge,
            size => size,
        };
        let pace = match size {
            _ if pressed => {
                if self.compaction.pass.until <= oldest.start.0 {
                    journal.end_pass(&mut self.compaction.pass, &space_forecast);
                }
                let way = self.compaction.pass.until.saturating_sub(oldest.start.0);
                journal.room().pace(way, &space_forecast).max(PACE_URGENT)
            }
            Size::TooLarge => PACE_URGENT,
            _ => PACE,
        };
        let log = &mut journal.log;
        if size == Size::Fair && needed_there > 0 {
            self.compaction.head = log.head().0;
            return u64::MAX;
        }
        let appended = log.head().0.saturating_sub(self.compaction.head);
        let credit = self.compaction.credit;
        self.compaction.credit = match appended {
            0 => credit.max(SLICE_BYTES),
            _ => credit + appended * pace,
        };
        if needed_there > 0 && !log.make_room(room) {
            if !journal.pressure.stuck {
                tracing::error!(
                    shard = self.me,
                    "shard {}: {}, and there is no room to write the oldest part of the log again: {} MB of it \
                     are needed",
                    self.me,
                    lacking(log.lack()),
                    needed_there.div_ceil(1 << 20)
                );
            }
            journal.pressure.stuck = true;
            return u64::MAX;
        }
        let budget = self.compaction.credit.min(SLICE_BYTES);
        self.compaction.credit -= budget;
        if pressed {
            // Debt is worked off before anything else is taken: each writer pays for its space with a little time, and none
            // with a lot.
            self.engine.journal.pressure.behind = self.compaction.credit > CREDIT_BYTES_MAX;
        } else {
            // Credit is capped, so that a long pause in compaction is not followed by a long run of it.
            self.compaction.credit = self.compaction.credit.min(CREDIT_BYTES_MAX);
        }
        let before = self.engine.journal.log.head().0;
        let (waits, left) = self.scan(budget, needed_there == 0);
        self.compaction.credit += left;
        self.compaction.head = self.engine.journal.log.head().0;
        self.compaction.pass.appended += self.compaction.head - before;
        if self.compaction.retry.lasts(self.now_ms) {
            return self.compaction.retry.again_ms;
        }
        match (waits, appended) {
            // The end of the read wakes the shard.
            (true, _) => u64::MAX,
            (false, 0) => self.now_ms,
            (false, _) if self.compaction.credit >= SLICE_BYTES => self.now_ms,
            (false, _) => self.now_ms + PAUSE_MS,
        }
    }

    /// Hands over records of the oldest segment, and lets it go after the last. True if the disk has to
    /// be waited for; and what of the budget is left.
    fn scan(&mut self, mut budget: u64, nothing_needed: bool) -> (bool, u64) {
        let Engine { shard, journal } = &mut self.engine;
        let compaction = &mut self.compaction;
        compaction.ending |= nothing_needed;
        while !compaction.ending {
            let failed = match journal.log.scan() {
                Scan::Record(position, body) => {
                    let bytes = body.len() as u64;
                    let outcome = match shard.needs(position.0, body) {
                        Ok(true) => {
                            compaction.record.clear();
                            compaction.record.extend_from_slice(body);
                            compaction.rewritten_bytes += bytes;
                            shard.keep(position.0, &compaction.record, journal)
                        }
                        other => other.map(|_| ()),
                    };
                    budget = budget.saturating_sub(bytes + 8);
                    if outcome.is_ok() {
                        if compaction.retry.succeeded() {
                            tracing::info!(
                                shard = self.me,
                                "shard {}: compaction goes on",
                                self.me
                            );
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
                    compaction.ending = true;
                    break;
                }
                Scan::Failed(error) => {
                    let pause_ms = compaction.retry.failed(self.now_ms);
                    tracing::error!(
                        shard = self.me,
                        "shard {}: compaction paused: {error}; next attempt in {} s",
                        self.me,
                        pause_ms / 1000
                    );
                    return (true, budget);
                }
            };
            journal.stop(self.me, &failed.unwrap_or_default());
            return (true, 0);
        }
        let Some(oldest) = journal.log.oldest() else { return (false, 0) };
        if !shard.clear_detached_groups() {
            return (false, 0);
        }
        if shard.needed_in_span_of(oldest.start.0) > 0 {
            // This cannot be, and if it were, what is needed would be lost.
            let why = "something is still needed of a segment that was read to its end";
            journal.stop(self.me, why);
            return (true, 0);
        }
        if shard.end_keeping(oldest.end.0, journal) {
            compaction.ending = false;
            compaction.record.shrink_to(SLICE_BYTES as usize);
            journal.log.drop_oldest();
            if oldest.end.0 >= compaction.pass.until {
                journal.end_pass(&mut compaction.pass, &shard.space_forecast());
            }
        }
        (false, 0)
    }

    /// Has completed jobs make room if nothing else can. Returns when to come again.
    pub fn evict_history(&mut self, conns: &mut Connections) -> u64 {
        let Engine { shard, journal } = &mut self.engine;
        let space_forecast = shard.space_forecast();
        self.compaction.evicting =
            shard.has_history() && journal.is_crowded(&space_forecast, self.compaction.evicting);
        if !self.compaction.evicting {
            return u64::MAX;
        }
        self.effects.clear();
        let mut out = Out { journal, effects: &mut self.effects };
        self.compaction.evicted_jobs += shard.forget_history(&mut out);
        self.follow_up(conns);
        self.now_ms
    }
}

impl LogJournal {
    /// Nothing goes any more, until the next start.
    fn stop(&mut self, shard: usize, why: &str) {
        tracing::error!(shard, "shard {shard}: compaction has stopped until the next start: {why}");
        self.pressure.stopped = true;
    }

    /// Whether the log has to be walked through for room, however small it is.
    fn is_pressed(&mut self, space_forecast: &SpaceForecast) -> bool {
        let lacks = self.pressure.stalled
            || self.is_full(space_forecast) && !self.is_crowded(space_forecast, false);
        lacks && self.has_to_gain(space_forecast)
    }

    /// The log has been walked through. What is dead now, and did not die meanwhile, stays so.
    fn end_pass(&mut self, pass: &mut Pass, space_forecast: &SpaceForecast) {
        let head = self.log.head().0;
        let room = self.room();
        let others = (head - pass.until).saturating_sub(pass.appended + room.blocks(pass.appended));
        let died = others + pass.live.saturating_sub(space_forecast.live);
        self.pressure.residue_bytes = room.dead(space_forecast).saturating_sub(died);
        *pass = Pass { until: head, live: space_forecast.live, appended: 0 };
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
        let mut retry = ReadRetry::default();
        assert!(!retry.lasts(5) && !retry.succeeded());
        let mut now_ms = 5;
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(retry.failed(now_ms), expected * 1000);
            assert!(retry.lasts(now_ms) && retry.lasts(now_ms + expected * 1000 - 1));
            now_ms += expected * 1000;
            assert!(!retry.lasts(now_ms));
        }
        assert!(retry.succeeded() && !retry.succeeded());
        assert_eq!((retry.failed(now_ms), retry.failures), (1000, 9));
    }
}
