//! A data directory that was made for another number of shards: before the shards start, all that is needed
//! of its logs is written into new ones, which then take their place.
//!
//! One old shard at a time is replayed into memory; then its log is read once more, and each record of
//! which something is needed is written again for the shard that will own its queue. Payloads pass
//! through one by one. The new logs are read back and counted before the old ones go.

#[cfg(test)]
pub(super) mod tests;

use super::clock;
use super::recovery::{explain, segment_bytes, shard_config, warn_of_dropped};
use crate::config::Config;
use crate::server::shard_mail::slots::Slots;
use crate::server::storage::journal::LogJournal;
use corq_io::log::{BlockingDisk, DataDir, Log, LogConfig, Mode, Next, Position};
use corq_io::machine_facts;
use corq_shards::Shard;
use corq_shards::compaction::reshard::{Contents, Reshard};
use std::fmt;
use std::path::Path;
use std::time::Instant;

/// Unwritten bytes of a new log at which they are written.
const WAITING_BYTES: u64 = 1 << 20;
/// A block of a new log. There may be a thousand of those at a time.
const BLOCK_BYTES: usize = 128 << 10;
/// How long what is written may wait for its sync. It is synced before anything depends on it.
const SYNC_INTERVAL_MS: u64 = 1000;
/// Bytes by which the record of a job grows, roughly, when it is written again with its current state.
const MORE_PER_JOB_BYTES: u64 = 80;
/// Segments per new log: the one that is written, and the next, which is made ahead.
const SEGMENTS_AHEAD: u64 = 2;
/// A log without a ring closes in a few steps.
const CLOSING_STEPS_MAX: usize = 100;

/// The part of the change that is going on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// An old log is replayed.
    Reading,
    /// Records of the old log that are needed are written to the new ones.
    Moving,
    /// A new log is read back.
    Checking,
    /// The new logs take the place of the old ones.
    Settling,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub stage: Stage,
    /// The shard it is done to, and how many there are of its kind.
    pub shard: usize,
    pub shards: usize,
    /// Jobs moved, and jobs found so far.
    pub jobs: (u64, u64),
    /// Bytes of records written so far.
    pub bytes: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, shard, shards, jobs: (jobs, jobs_all), bytes } = self;
        let megabytes = bytes >> 20;
        match stage {
            Stage::Reading => write!(f, "reading shard {shard} of {shards}")?,
            Stage::Moving => write!(f, "dealing out shard {shard} of {shards}")?,
            Stage::Checking => write!(f, "reading back new shard {shard} of {shards}")?,
            Stage::Settling => write!(f, "putting new shards in place")?,
        }
        write!(f, ", {jobs} of {jobs_all} jobs written ({megabytes} MB)")
    }
}

/// Why it was not done, or not to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Halt {
    /// A signal asked for the end. The next start removes what has been made, or goes on from there.
    Stopped,
    /// In words.
    Failed(String),
}

fn failed(what: impl fmt::Display, error: impl fmt::Display) -> Halt {
    Halt::Failed(format!("{what}: {error}"))
}

/// Moves everything in `data` to the shards of `slots`. `watch` is shown every step, and ends
/// all of it by saying false.
pub fn reshard(
    config: &Config,
    data: &mut DataDir,
    slots: &Slots,
    watch: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Contents, Halt> {
    let directory = |error| failed("data path", error);
    let next = data.begin_next().map_err(directory)?;
    let progress = Progress { stage: Stage::Reading, shard: 0, shards: 0, jobs: (0, 0), bytes: 0 };
    let (next_of, unreadable) = (&next, false);
    let mut change = Change { config, slots, data, next: next_of, watch, progress, unreadable };
    let contents = match change.copy() {
        Ok(contents) => contents,
        Err(Halt::Stopped) => return Err(Halt::Stopped),
        Err(Halt::Failed(reason)) => {
            let shards = data.shards();
            let then = if change.unreadable {
                format!("a start with SHARDS={shards} does not take it either")
            } else {
                format!("SHARDS={shards} starts as before")
            };
            data.discard_next(next).map_err(directory)?;
            return Err(Halt::Failed(format!(
                "the data path was made for {shards} shards, and cannot be changed to {}: {reason}. Nothing \
                 was changed; {then}",
                slots.shards(),
            )));
        }
    };
    let mut progress = Progress { stage: Stage::Settling, ..change.progress };
    if !watch(&progress) {
        return Err(Halt::Stopped);
    }
    let mut moving = data.succeed(&next, slots.shards() as u16).map_err(directory)?;
    while moving.step().map_err(directory)? {
        progress.shard += 1;
        if !watch(&progress) {
            return Err(Halt::Stopped);
        }
    }
    Ok(contents)
}

/// Why a record was not taken.
enum Trouble {
    Stopped,
    Other(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

struct Change<'a> {
    config: &'a Config,
    slots: &'a Slots,
    data: &'a DataDir,
    next: &'a Next,
    watch: &'a mut dyn FnMut(&Progress) -> bool,
    progress: Progress,
    /// A log that there is cannot be read, however many shards are wanted.
    unreadable: bool,
}

impl Change<'_> {
    /// Writes the new logs, whole and durable.
    fn copy(&mut self) -> Result<Contents, Halt> {
        let first_segment = self.first_segment()?;
        let mut logs = self.open_logs(first_segment)?;
        let slots = self.slots;
        let floor = first_segment * segment_bytes(self.config);
        let mut change = Reshard::new(floor, |slot| slots.of_slot(slot));
        let began = Instant::now();
        for index in 0..self.data.shards() {
            let mut shard = self.read(index)?;
            self.settle_flows(index, &mut shard)?;
            self.check_space(index, &shard)?;
            self.deal_out(index, &mut shard, &mut change, &mut logs, began)?;
            change.end_shard(&shard).map_err(|why| failed(format!("shard {index}"), why))?;
        }
        let expected = change.end(&mut logs).map_err(|error| failed("a schedule", error))?;
        for (index, mut journal) in logs.into_iter().enumerate() {
            close(&mut journal.log, began)
                .map_err(|why| failed(format!("new shard {index}"), why))?;
        }
        let found = self.read_back()?;
        if found != expected {
            return Err(Halt::Failed(format!(
                "the new logs do not hold what the old ones do, which is a bug: {found:?} instead of \
                 {expected:?}"
            )));
        }
        Ok(expected)
    }

    /// Ends the flows that a crash has left under way: those that a shard has given its word on come, the
    /// others do not. Few logs have any, so the others are read once more for that.
    fn settle_flows(&mut self, index: u16, shard: &mut Shard) -> Result<(), Halt> {
        let staged = shard.staged_flows();
        let mut committed = shard.open_flows();
        if !staged.is_empty() {
            for other in (0..self.data.shards()).filter(|&other| other != index) {
                committed.extend(self.read(other)?.open_flows());
            }
        }
        for flow in staged.iter().chain(&shard.open_flows()) {
            shard.settle_flow(*flow, committed.contains(flow));
        }
        Ok(())
    }

    fn log_config(&self, log_id: u64, shard: u16, first_segment: u64) -> LogConfig {
        LogConfig {
            log_id,
            segment_bytes: segment_bytes(self.config),
            block_bytes: BLOCK_BYTES,
            cache_bytes: 0,
            fsync_interval_ms: SYNC_INTERVAL_MS,
            first_segment,
            ..LogConfig::new(shard, Mode::Written)
        }
    }

    fn disk(directory: &Path, shard: u16) -> Result<BlockingDisk, Halt> {
        BlockingDisk::open(directory, shard)
            .map_err(|error| failed(format!("shard {shard}"), error))
    }

    /// The addresses of the new logs begin above all of the old ones.
    fn first_segment(&mut self) -> Result<u64, Halt> {
        let mut first = 0;
        for shard in 0..self.data.shards() {
            let mut disk = Self::disk(self.data.path(), shard)?;
            let next = Log::next_segment(&mut disk, segment_bytes(self.config));
            self.unreadable = next.is_err();
            first = first.max(next.map_err(|error| failed(format!("shard {shard}"), error))?);
        }
        Ok(first)
    }

    fn open_logs(&self, first_segment: u64) -> Result<Vec<LogJournal<BlockingDisk>>, Halt> {
        let shards = self.slots.shards() as u16;
        let bytes = u64::from(shards) * SEGMENTS_AHEAD * segment_bytes(self.config);
        self.demand(bytes, &format!("{shards} logs"))?;
        (0..shards)
            .map(|shard| {
                let config = self.log_config(self.next.id(), shard, first_segment);
                let disk = Self::disk(self.next.path(), shard)?;
                let nothing = |_: Position, _: &[u8]| Ok::<(), String>(());
                let (log, _) = Log::open(&config, disk, nothing)
                    .map_err(|error| failed(format!("new shard {shard}"), error))?;
                Ok(LogJournal::new(log))
            })
            .collect()
    }

    /// Shows how far it is.
    fn goes_on(&mut self) -> Result<(), Trouble> {
        if (self.watch)(&self.progress) { Ok(()) } else { Err(Trouble::Stopped) }
    }

    /// Reads a log from its beginning to its end.
    fn read_log(
        &mut self,
        directory: &Path,
        (log_id, is_begun): (u64, bool),
        index: u16,
        mut take: impl FnMut(&mut Self, u64, &[u8]) -> Result<(), Trouble>,
    ) -> Result<(), Halt> {
        let config = LogConfig { is_begun, ..self.log_config(log_id, index, 0) };
        let mut disk = Self::disk(directory, index)?;
        let mut stopped = false;
        let each = |position: Position, record: &[u8]| {
            let outcome = self.goes_on().and_then(|()| take(self, position.0, record));
            stopped |= matches!(outcome, Err(Trouble::Stopped));
            outcome
        };
        let outcome = Log::replay(&config, &mut disk, each);
        match outcome {
            Ok(recovery) => {
                if self.progress.stage == Stage::Reading {
                    warn_of_dropped(usize::from(index), &recovery);
                }
                Ok(())
            }
            Err(_) if stopped => Err(Halt::Stopped),
            Err(error) => {
                Err(failed(format!("shard {index}"), explain(&error, Some(self.data.path()))))
            }
        }
    }

    /// Replays an old log.
    fn read(&mut self, index: u16) -> Result<Shard, Halt> {
        self.enter(Stage::Reading, index, self.data.shards());
        let shards = usize::from(self.data.shards());
        let mut shard = Shard::new(shard_config(self.config, shards, 0));
        let data = self.data;
        let kept = (data.id(), data.is_begun());
        let read = self.read_log(data.path(), kept, index, |_, position, record| {
            shard.replay(position, record).map_err(|error| Trouble::Other(error.to_string()))
        });
        self.unreadable = matches!(read, Err(Halt::Failed(_)));
        read?;
        clock::check_old(usize::from(index), &mut shard);
        self.progress.jobs.1 += shard.contents().jobs_in_all();
        Ok(shard)
    }

    fn enter(&mut self, stage: Stage, shard: u16, shards: u16) {
        let (shard, shards) = (usize::from(shard) + 1, usize::from(shards));
        self.progress = Progress { stage, shard, shards, ..self.progress };
    }

    /// Refuses to begin with what cannot end.
    fn check_space(&self, index: u16, shard: &Shard) -> Result<(), Halt> {
        let more = shard.contents().jobs_in_all() * MORE_PER_JOB_BYTES;
        let ahead = self.slots.shards() as u64 * segment_bytes(self.config);
        self.demand(shard.needed_bytes() + more + ahead, &format!("a copy of shard {index}"))
    }

    fn demand(&self, bytes: u64, what: &str) -> Result<(), Halt> {
        let path = self.data.path();
        let found =
            machine_facts::file_system(path).map_err(|error| failed(path.display(), error))?;
        if found.free_bytes >= bytes {
            return Ok(());
        }
        Err(Halt::Failed(format!(
            "{what} needs up to {} MB of disk space, and {} has {} MB free",
            bytes.div_ceil(1 << 20),
            path.display(),
            found.free_bytes >> 20,
        )))
    }

    /// Writes what is needed of an old log into the new ones.
    fn deal_out(
        &mut self,
        index: u16,
        shard: &mut Shard,
        change: &mut Reshard,
        logs: &mut [LogJournal<BlockingDisk>],
        began: Instant,
    ) -> Result<(), Halt> {
        self.enter(Stage::Moving, index, self.data.shards());
        let data = self.data;
        let kept = (data.id(), data.is_begun());
        self.read_log(data.path(), kept, index, |this, position, record| {
            let taken = change.take(shard, position, record, logs);
            let taken = taken.map_err(|error| Trouble::Other(error.to_string()))?;
            let Some(taken) = taken else { return Ok(()) };
            this.progress.jobs.0 += u64::from(taken.job);
            this.progress.bytes += record.len() as u64;
            write(&mut logs[taken.log].log, began).map_err(Trouble::Other)
        })
    }

    /// How much is in the new logs.
    fn read_back(&mut self) -> Result<Contents, Halt> {
        let mut found = Contents::default();
        let shards = self.slots.shards() as u16;
        let next = self.next;
        for index in 0..shards {
            self.enter(Stage::Checking, index, shards);
            let mut shard = Shard::new(shard_config(self.config, usize::from(shards), 0));
            self.read_log(next.path(), (next.id(), true), index, |_, position, record| {
                shard.replay(position, record).map_err(|error| Trouble::Other(error.to_string()))
            })?;
            found += shard.contents();
        }
        Ok(found)
    }
}

/// Writes what waits, once it is worth while.
fn write(log: &mut Log<BlockingDisk>, began: Instant) -> Result<(), String> {
    if log.unwritten_bytes() < WAITING_BYTES {
        return Ok(());
    }
    log.flush(began.elapsed().as_millis() as u64).map_err(|error| error.to_string())?;
    if log.unwritten_bytes() >= WAITING_BYTES {
        return Err("the disk is full".into());
    }
    Ok(())
}

fn close(log: &mut Log<BlockingDisk>, began: Instant) -> Result<(), String> {
    for _ in 0..CLOSING_STEPS_MAX {
        let closed = log.close(began.elapsed().as_millis() as u64);
        if closed.map_err(|error| error.to_string())? {
            return Ok(());
        }
    }
    Err("its log does not close".into())
}
