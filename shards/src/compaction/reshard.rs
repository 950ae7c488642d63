//! Another number of shards: what is needed of the logs of the old shards is written into logs of new ones,
//! each queue's into the log of the shard that will own it.
//!
//! The old shards come one after the other. A log is replayed, and then its records are handed over once
//! more, in order: what is needed of one is written by the code that gives up the beginning of a log
//! ([`crate::compaction::rewrite`]), only into another log. So a job is in the new log as it stands, and what it
//! points to follows it. Two rules make that right:
//!
//! 1. The addresses of the new logs begin above all of the old ones, so an old address means the same
//!    in all logs, and the order of ends goes on.
//! 2. A queue is on one shard, before and after; a record that is needed is about one queue.
//!
//! What is not a queue's is held until the end: schedules, of which a crash may have left two of one
//! name; which jobs were completed and are forgotten; the highest id.

use crate::compaction::space_forecast::SpaceForecast;
use crate::dependency::completed_ids::COMPLETED_IDS_MAX;
use crate::dependency::completed_names::COMPLETED_NAMES_MAX;
use crate::job::State;
use crate::job::id::{JobId, SLOTS, Slot};
use crate::log_record::codec::Malformed;
use crate::log_record::cron::CronSet;
use crate::log_record::location::LogRef;
use crate::log_record::remembered::{CompletedIdBytes, CompletedNameBytes};
use crate::log_record::snapshot::{Kept, Moved};
use crate::log_record::{Journal, Limited, Record, Ruled};
use crate::shard::Shard;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The shard that has what belongs to no queue.
const REGISTRY_SHARD: usize = 0;

/// Ids of forgotten jobs written by one record.
const COMPLETED_ID_BATCH: usize = 256;

/// How much there is of everything that a log keeps. The same before and after, summed over the shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Jobs, in the order of [`State::ALL`].
    pub jobs: [u64; State::ALL.len()],
    /// Queues that are paused.
    pub paused: u64,
    /// Limits of queues.
    pub limits: u64,
    /// Groups for which something is set.
    pub groups: u64,
    /// Rules of queues.
    pub rules: u64,
    /// Schedules that moved.
    pub crons: u64,
    /// Webhooks that moved.
    pub webhooks: u64,
}

impl Contents {
    /// Jobs in all states.
    pub fn jobs_in_all(&self) -> u64 {
        self.jobs.iter().sum()
    }
}

impl AddAssign for Contents {
    fn add_assign(&mut self, other: Self) {
        self.jobs.iter_mut().zip(other.jobs).for_each(|(sum, jobs)| *sum += jobs);
        self.paused += other.paused;
        self.limits += other.limits;
        self.groups += other.groups;
        self.rules += other.rules;
        self.crons += other.crons;
        self.webhooks += other.webhooks;
    }
}

impl Shard {
    /// How much this shard has. A step per queue.
    pub fn contents(&self) -> Contents {
        let mut sum = Contents {
            crons: self.crons.len() as u64,
            webhooks: self.webhooks().count() as u64,
            ..Contents::default()
        };
        for queue in self.queues() {
            let limits = queue.limits.as_deref();
            let rules = queue.rules.as_deref();
            sum += Contents {
                jobs: State::ALL.map(|state| queue.count(state)),
                paused: u64::from(queue.is_paused()),
                limits: limits.map_or(0, |limits| limits.all_set_in().count() as u64),
                groups: queue.groups_with_settings(),
                rules: rules.map_or(0, |rules| rules.all_set_in().count() as u64),
                ..Contents::default()
            };
        }
        sum
    }
}

/// A schedule that waits for the others.
struct HeldCron {
    version: u64,
    record: Vec<u8>,
}

/// Takes the one record that sets a schedule.
struct OneRecord {
    bytes: Vec<u8>,
    position: u64,
}

impl Journal for OneRecord {
    fn append(&mut self, record: &Record<'_>) -> LogRef {
        self.bytes.resize(record.encoded_len(), 0);
        record.encode(&mut self.bytes);
        LogRef {
            position: self.position,
            record_bytes: self.bytes.len() as u32,
            payload_bytes: record.payload_len() as u32,
        }
    }

    fn require_sync(&mut self) {}

    fn can_append_new(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_text(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_spare(&mut self, _bytes: u64, _forecast: impl Fn() -> SpaceForecast) -> bool {
        true
    }

    fn can_append_completion(
        &mut self,
        _bytes: u64,
        _forecast: impl Fn() -> SpaceForecast,
    ) -> bool {
        true
    }
}

/// The outcome of dealing out a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The log that has it.
    pub log: usize,
    /// Whether a job was written as it stands.
    pub job: bool,
}

/// The change from some shards to others.
pub struct Reshard {
    /// New shards by slot.
    owners: Box<[u16]>,
    /// Where the addresses of the new logs begin.
    floor: u64,
    crons: BTreeMap<Box<str>, HeldCron>,
    /// Of each old shard, the newest first.
    completed_ids: Vec<Vec<JobId>>,
    /// Of each old shard, the newest first.
    completed_names: Vec<Vec<(Box<str>, JobId)>>,
    highest: JobId,
    /// The clock by the old logs: the latest time, and the time up to which ids say nothing of it.
    clock: (u64, u64),
    contents: Contents,
}

impl Reshard {
    /// To shards that own slots as `owner` says, with logs whose addresses begin at `floor`: above all
    /// of the old ones, and in another span (see [`crate::Config::span_bits`]).
    pub fn new(floor: u64, owner: impl Fn(Slot) -> usize) -> Self {
        Self {
            owners: (0..SLOTS).map(|slot| owner(Slot::at(slot)) as u16).collect(),
            floor,
            crons: BTreeMap::new(),
            completed_ids: Vec::new(),
            completed_names: Vec::new(),
            highest: JobId::default(),
            clock: (0, 0),
            contents: Contents::default(),
        }
    }

    /// Writes what is needed of an old shard's record at `position` into the log of its new shard. To be
    /// called for all records of the shard, in order, after `shard` has replayed all of them.
    pub fn take<J: Journal>(
        &mut self,
        shard: &mut Shard,
        position: u64,
        bytes: &[u8],
        logs: &mut [J],
    ) -> Result<Option<Taken>, Malformed> {
        let record = Record::decode(bytes)?;
        let needs = shard.needs_of(position, &record);
        if !needs.any() {
            return Ok(None);
        }
        if let Record::CronSet(set) = &record {
            self.hold_cron(shard, position, set, bytes)?;
            return Ok(None);
        }
        let log = self.owner_of(&record)?;
        shard.keep(position, bytes, &mut logs[log])?;
        Ok(Some(Taken { log, job: needs.job.is_some() }))
    }

    /// The new shard of what a record is about.
    fn owner_of(&self, record: &Record<'_>) -> Result<usize, Malformed> {
        let inner;
        let record = match record {
            // A payload that jobs share is moved for no job in particular. What was moved is never moved as such
            // again, so there is one record to look into.
            Record::Kept(Kept::Moved(Moved { record, .. })) => {
                inner = Record::decode(record)?;
                &inner
            }
            record => record,
        };
        let slot = match record {
            Record::Pushed(pushed) => pushed.id.slot(),
            Record::CronRan(ran) => ran.pushed.id.slot(),
            Record::Repeated(repeated) => repeated.next.pushed.id.slot(),
            Record::Completed(ended) => ended.id.slot(),
            Record::Buried(buried) => buried.id.slot(),
            Record::Retried(retried) => retried.id.slot(),
            Record::Changed(changed) => changed.id().slot(),
            Record::ChildEnded(ended) => ended.parent.slot(),
            Record::Staged(staged) => staged.pushed.id.slot(),
            Record::Kept(Kept::Unreported(left)) => left.child.slot(),
            Record::Kept(Kept::Job(kept)) => kept.pushed.id.slot(),
            Record::Paused { queue, .. }
            | Record::Limited(Limited { queue, .. })
            | Record::Ruled(Ruled { queue, .. }) => Slot::of_name(queue),
            Record::Grouped(grouped) => Slot::of_name(grouped.queue),
            Record::WebhookAdded(_) => return Ok(REGISTRY_SHARD),
            _ => return Err(Malformed("nothing can need a record of this kind")),
        };
        Ok(self.owner(slot))
    }

    fn owner(&self, slot: Slot) -> usize {
        usize::from(self.owners[slot.index()])
    }

    /// The older of two schedules of one name is what a crash in the middle of its move has left.
    fn hold_cron(
        &mut self,
        shard: &mut Shard,
        position: u64,
        set: &CronSet<'_>,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        let mut record = OneRecord { bytes: Vec::new(), position: self.floor };
        shard.keep(position, bytes, &mut record)?;
        let version = set.version;
        if self.crons.get(set.name).is_none_or(|known| known.version < version) {
            let held = HeldCron { version, record: record.bytes };
            self.crons.insert(set.name.into(), held);
        }
        Ok(())
    }

    /// All records of an old shard have been taken. Says what is still in its old log that should not be.
    pub fn end_shard(&mut self, shard: &Shard) -> Result<(), String> {
        let floor = shard.live.span_of(self.floor);
        if let Some((span, bytes)) = shard.live.spans().find(|(span, _)| *span < floor) {
            return Err(format!("{bytes} bytes are still needed of part {span} of its old log"));
        }
        self.completed_ids.push(shard.completed_ids.newest_first().collect());
        let names = shard.completed_names().map(|(name, id)| (name.into(), id));
        let mut names: Vec<_> = names.collect();
        names.reverse();
        self.completed_names.push(names);
        self.highest = self.highest.max(shard.ids.highest());
        let (at_ms, stuck_ms) = shard.log_clock.told();
        self.clock = (self.clock.0.max(at_ms), self.clock.1.max(stuck_ms));
        self.contents += shard.contents();
        Ok(())
    }

    /// Writes what was held. Returns how much the new shards have together, once they have replayed
    /// their logs.
    pub fn end<J: Journal>(mut self, logs: &mut [J]) -> Result<Contents, Malformed> {
        // Schedules that are held count: of some names there may have been two.
        self.contents.crons = 0;
        for held in self.crons.values() {
            let record = Record::decode(&held.record)?;
            let Record::CronSet(set) = &record else { continue };
            self.contents.crons += u64::from(!set.has_ended());
            logs[self.owner(Slot::of_name(set.queue))].append(&record);
        }
        for (shard, log) in logs.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            for ids in self.completed_of(shard).chunks(COMPLETED_ID_BATCH) {
                log.append(&Record::Kept(Kept::CompletedIds(CompletedIdBytes::new(
                    ids, &mut bytes,
                ))));
            }
            for names in self.names_of(shard).chunks(COMPLETED_ID_BATCH) {
                let names = CompletedNameBytes::new(names, &mut bytes);
                log.append(&Record::Kept(Kept::CompletedNames(names)));
            }
            log.append(&Record::Kept(Kept::Ids { highest: self.highest }));
            // All new shards go on with the ids of all old ones, so what is known of those holds for each.
            let (at_ms, stuck_ms) = self.clock;
            log.append(&Record::Kept(Kept::Clock { at_ms, stuck_ms }));
            // Nothing of what is in the old logs is missing in this one.
            log.append(&Record::Kept(Kept::GivenUp { until: self.floor }));
        }
        Ok(self.contents)
    }

    /// Completed and forgotten jobs that a new shard remembers, the newest last.
    fn completed_of(&self, shard: usize) -> Vec<JobId> {
        let own = |id: &&JobId| self.owner(id.slot()) == shard;
        let rows = self.completed_ids.iter().map(|row| row.iter().filter(own).copied());
        newest_of_each(rows.collect(), COMPLETED_IDS_MAX)
    }

    /// Custom ids of completed and forgotten jobs that a new shard remembers, the newest last.
    fn names_of(&self, shard: usize) -> Vec<(&str, JobId)> {
        let own = |(_, id): &&(Box<str>, JobId)| self.owner(id.slot()) == shard;
        let rows = self
            .completed_names
            .iter()
            .map(|row| row.iter().filter(own).map(|(name, id)| (&**name, *id)));
        newest_of_each(rows.collect(), COMPLETED_NAMES_MAX)
    }
}

/// Of rows that each have the newest first, the newest of each in turn, as many as are remembered: when something was
/// completed is known only in relation to others of its row. The newest last.
fn newest_of_each<T>(mut rows: Vec<impl Iterator<Item = T>>, most: usize) -> Vec<T> {
    let mut found = Vec::new();
    loop {
        let before = found.len();
        found.extend(rows.iter_mut().filter_map(Iterator::next));
        if found.len() == before || found.len() >= most {
            break;
        }
    }
    found.truncate(most);
    found.reverse();
    found
}
