//! The world of one seed: how many shards, which mode, which faults, and which wrongness is planted.

use super::check::Checks;
use super::dice::Dice;
use corq_io::log::{Faults, LogConfig, Mode};
use corq_shards::collections::hash_key::HashKey;
use corq_shards::lease::token_stream::SecretKey;

/// Values that settings are drawn from.
const COMPLETED_MAX: &[u32] = &[0, 2, 10, 1000];
const RETENTION_MS: &[u64] = &[20_000, 100_000, 600_000_000];
const BULK_SLICE: &[u64] = &[1, 3, 500];

/// Wrongness planted in the harness's own seams, to see that a check sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flaw {
    #[default]
    None,
    /// The journal writes some failed attempts down as something else.
    ForgetfulJournal,
    /// Answers leave before the log has what they tell of.
    ReleaseEarly,
    /// The disk says it has synced, and has not.
    LyingDisk,
    /// `durable` is not passed on to the log.
    NoBarrier,
    /// Completions are written down as something else.
    LostCompletions,
    /// A worker's jobs are handed back without anybody saying so.
    SecretRelease,
    /// The clock that timers see runs ahead.
    ClockAhead,
    /// Priorities are turned round.
    PriorityTurned,
    /// LIFO and FIFO are mixed up.
    LifoTurned,
    /// The jobs of one pull come backwards.
    PullBackwards,
    /// A job is allowed one attempt too many.
    OneMoreAttempt,
    /// A job is pushed that nobody asked for.
    ExtraJob,
    /// Deduplication keys are dropped.
    NoUniqueKeys,
    /// The directory is not told of names that are free again.
    NamesKept,
    /// A queue is paused and nobody says so.
    SecretPause,
    /// Timers see a clock that is late.
    SleepyTimers,
    /// Pulls of many are passed on as pulls of one.
    SmallPulls,
    /// The harness remembers some records wrongly.
    BentRecord,
    /// Heartbeats for many jobs are not passed on.
    DeafHeartbeat,
    /// Some of what is still needed of old records is not written again.
    SloppyReclaim,
    /// Custom ids of completed jobs are not written again.
    NamelessReclaim,
    /// Jobs are brought to the live state as recovery does it, and nobody who waits is served.
    SecretPush,
    /// Shards are not told that a job of theirs may run now.
    LostNotices,
    /// Parents are not told of the ends of their children.
    LostReports,
    /// A part of a flow goes although it was to come.
    HalfFlows,
    /// After a start, words given on flows are not passed on.
    ForgottenWords,
    /// Repeated jobs are pushed as such that run once.
    NoRepeats,
    /// Schedules run more often than they should.
    HastySchedules,
    /// Clean-ups are passed on with a lower limit.
    ShyClean,
    /// Groups are told that one more of their jobs may be active than was said.
    GenerousGroups,
    /// The time of a key is not passed on.
    EndlessKeys,
    /// A second push makes no time of a key begin anew.
    ShortKeys,
    /// A push takes nobody's place.
    NoReplacing,
    /// A debounce comes without its delay.
    NoDelays,
    /// Waits that stay are passed on as such that grow.
    GrowingWaits,
    /// Jobs wait for signs of life as long as any other.
    PatientStalls,
    /// Jobs keep as many lines of their logs as any other.
    LongLogs,
    /// Jobs are as old as their push.
    NoTimestamps,
    /// Groups may have any number of jobs.
    RoomyGroups,
    /// Of the jobs of a batch, the second goes without its key.
    OneOfOneKey,
    /// Another key is freed than was asked for.
    StubbornKeys,
    /// All delays but one are to end.
    ShyPromotions,
    /// A look through a dead-letter queue passes over what was asked for.
    WideSieves,
    /// Tokens are not passed on where none is needed.
    BlindTokens,
    /// Another delay is longer than was said.
    LongDelays,
    /// A job that is to leave the dead-letter queue is looked for in another one.
    DeafBins,
    /// A cut of a job's log leaves one line more than asked for.
    LongCuts,
    /// Children are told of no parent.
    NoLinks,
    /// Groups give one job more in a span of time than was said.
    HastyGroups,
    /// Rates that pulls bring are not passed on.
    DeafRates,
    /// Webhooks are told of all queues.
    NosyHooks,
    /// Listeners miss that a job is tried again.
    LostEvents,
    /// Listeners are told of the last step first.
    EventsBackwards,
    /// The next process is started with the settings of the one before.
    OldSettings,
    /// Completed jobs run anew that were completed too late for it.
    LateRetries,
    /// Starts take the times in the log for right.
    BlindStarts,
    /// Starts set the clock back to another time than they show.
    ShyStarts,
    /// The dice are not the same in a second run.
    LoadedDice,
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    pub shards: usize,
    pub mode: Mode,
    pub faults: Faults,
    pub clients: u64,
    pub steps: u64,
    pub segment_bytes: u64,
    pub cache_bytes: usize,
    pub completed_max: u32,
    pub completed_retention_ms: u64,
    pub expired_kept_ms: u64,
    pub bulk_slice: u64,
    /// Longest pause between two steps, most of the time.
    pub pace_ms: u64,
    /// The machine's clock jumps at one pause in so many, and at one start in a few; 0 for never.
    pub clock_jumps: u64,
    /// Turns per one that gives up some of the log; 0 for none.
    pub reclaim: u64,
    pub flaw: Flaw,
    pub checks: Checks,
}

impl Settings {
    pub fn of_seed(seed: u64, flaw: Flaw, checks: Checks) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(31).wrapping_add(7));
        let faults = Faults {
            late: !dice.one_in(5),
            inline_writes: dice.one_in(2),
            short_writes: dice.pick(&[0, 0, 4]),
            short_reads: dice.pick(&[0, 3]),
            interrupts: dice.pick(&[0, 0, 6]),
            stale_segments: dice.one_in(3),
            lying: flaw == Flaw::LyingDisk,
            ..Faults::default()
        };
        Self {
            seed,
            shards: dice.pick(&[1, 2, 2, 3]),
            mode: dice.pick(&[Mode::Written, Mode::Synced, Mode::Replicated]),
            faults,
            clients: 2 + dice.below(4),
            steps: 350 + dice.below(350),
            segment_bytes: 1 << dice.pick(&[14, 15, 16]),
            cache_bytes: 8192 << dice.below(3),
            completed_max: dice.pick(COMPLETED_MAX),
            completed_retention_ms: dice.pick(RETENTION_MS),
            expired_kept_ms: [0, 700, 30_000][(seed % 3) as usize],
            pace_ms: dice.pick(&[2, 20, 200]),
            reclaim: dice.pick(&[0, 1, 2, 8]),
            bulk_slice: dice.pick(BULK_SLICE),
            clock_jumps: dice.pick(&[0, 6, 30]),
            flaw,
            checks,
        }
    }

    /// The operator starts the next process with other settings.
    pub fn change(&mut self, dice: &mut Dice) {
        self.completed_max = dice.pick(COMPLETED_MAX);
        self.completed_retention_ms = dice.pick(RETENTION_MS);
        self.bulk_slice = dice.pick(BULK_SLICE);
    }

    /// Settings by which as much as can be is kept if little is by these, and the other way round.
    #[must_use]
    pub fn opposite(&self) -> Self {
        let (few, many) = (self.completed_max == 0, self.completed_retention_ms < 1_000_000);
        Self {
            completed_max: if few { 1000 } else { 0 },
            completed_retention_ms: if many { u64::MAX } else { 1 },
            ..self.clone()
        }
    }

    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    pub fn log(&self, shard: usize) -> LogConfig {
        LogConfig {
            segment_bytes: self.segment_bytes,
            record_bytes_max: 8000,
            block_bytes: 4096,
            cache_bytes: self.cache_bytes,
            ..LogConfig::new(shard as u16, self.mode)
        }
    }

    /// The secret of a shard's tables, different at each start.
    pub fn hash_key(&self, shard: usize, start: u64) -> HashKey {
        let place = u128::from(start << 16) | shard as u128;
        HashKey::new((place << 64 | u128::from(self.seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Chance of a shard, different at each start.
    pub fn shard(&self, shard: usize, start: u64) -> corq_shards::Config {
        let seed = self.seed ^ (start << 40) ^ ((shard as u64 + 1) << 56);
        corq_shards::Config {
            completed_max: self.completed_max,
            unsaid_completed_max: self.completed_max,
            completed_retention_ms: self.completed_retention_ms,
            span_bits: self.segment_bytes.trailing_zeros(),
            bulk_slice: self.bulk_slice,
            interval_min_ms: 1,
            scheduled_per_second: u32::MAX,
            expired_kept_ms: self.expired_kept_ms,
            // Every other seed has attempts that are not remembered.
            remembered_bytes_max: [u64::MAX, 4 << 10][(self.seed % 2) as usize],
            hash_key: self.hash_key(shard, start),
            seed,
            token_key: SecretKey::of_seed(seed),
        }
    }
}
