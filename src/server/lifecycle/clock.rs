//! The clock at a start beside the times in the log: what a process whose clock was ahead has set would come true only once the
//! clock has come as far again, so it counts from the first start with a clock that is right (`shards/src/apply/set_back.rs`).

use corq_io::clock::{Clock, note_set_back_ms};
use corq_shards::log_record::Journal;
use corq_shards::{SetBack, Shard};

/// A clock that shows less is not right, whatever the log says: this release was not made before. The first of January 2026.
const EARLIEST_MS: u64 = 1_767_225_600_000;

const HOUR_MS: u64 = 3_600_000;

/// Sets the times of a shard back whose log is replayed and that is not started yet, if they need it. Says so.
pub fn check<J: Journal>(index: usize, now_ms: u64, shard: &mut Shard, journal: &mut J) {
    if now_ms < EARLIEST_MS {
        if let Some(back) = shard.judge_clock(now_ms) {
            tracing::error!(
                shard = index,
                "shard {index}: the system clock is {} behind the log and shows a time before this release: nothing is due \
                 before it is set. Set it and start again",
                shown(back.by_ms())
            );
        }
        return;
    }
    if let Some(back) = shard.set_clock_back(now_ms, journal) {
        say(index, back);
    }
    shard.note_clock_of_start(now_ms, journal);
}

/// Sets back the times of an old shard while the number of shards changes, unless the clock itself is wrong. Writes no
/// record of that: the jobs go to the logs of new shards.
pub fn check_old(index: usize, shard: &mut Shard) {
    let now_ms = Clock::new().now_ms();
    if now_ms < EARLIEST_MS {
        return;
    }
    if let Some(back) = shard.judge_clock(now_ms) {
        shard.follow_clock_back(back);
        say(index, back);
    }
}

fn say(index: usize, back: SetBack) {
    note_set_back_ms(back.by_ms());
    tracing::warn!(
        shard = index,
        "shard {index}: the clock was {} ahead when its log was written. Delays, retries, keys, holds and rules that were set \
         then count from now on. If the system clock is wrong now, set it and start again",
        shown(back.by_ms())
    );
}

/// A span of time for people.
fn shown(ms: u64) -> String {
    match ms / HOUR_MS {
        0 => format!("{} s", ms / 1000),
        hours @ 1..48 => format!("{hours} h"),
        hours => format!("{} days", hours / 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_time_is_told_in_the_largest_unit_that_says_it() {
        for (ms, told) in
            [(10_001, "10 s"), (3_600_000, "1 h"), (47 * HOUR_MS, "47 h"), (96 * HOUR_MS, "4 days")]
        {
            assert_eq!(shown(ms), told);
        }
    }
}
