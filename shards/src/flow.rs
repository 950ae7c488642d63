//! Flows: jobs of several queues and shards that come together, or not at all.
//!
//! Each shard stages its part first: written down, and seen by nobody. The word of one shard, the
//! coordinator, makes all of it come: once that record is durable every part is released, if need be
//! after a crash. What is staged and has no such word is dropped by the next start. So a job is written
//! once, and no shard has to know the parts of others.
//!
//! A part that hears of itself from another part knows that the word was given, and is released by that.
//!
//! A part of more jobs than a slice comes, or goes, in slices, each of which has a record of its own. Until the last of
//! them the word stays: after a crash it is passed on again, so that the rest follows.

use crate::caller::RequestId;
use crate::collections::hash_key::HashKey;
use crate::collections::table::Map;
use crate::effect::{Refusal, Reply};
use crate::job::id::{JobId, Slot};
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::location::LogRef;
use crate::log_record::row::{self, parts};
use crate::log_record::show::Show;
use crate::log_record::{Journal, Pushed, Record};
use crate::shard::{Caller, JOB_BYTES, Out, Shard};
use std::collections::{BTreeMap, VecDeque};

parts! {
    /// See [`Record::Staged`].
    #[derive(Clone, Debug)]
    pub struct Staged<'a> {
        /// The flow.
        flow: JobId = "flow",
        ..payload
        /// The job, as it will have been pushed.
        pushed: Pushed<'a> = "job",
    }
}

/// Jobs of a slice have no more bytes together beside their payloads, unless it is one: most of that is what one waits for,
/// which is gone through when it comes.
const SLICE_BYTES_MAX: usize = 1 << 20;

/// Some jobs of a flow that are staged here: those with ids from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The flow.
    pub flow: JobId,
    /// The first.
    pub first: JobId,
    /// The last.
    pub last: JobId,
    /// Whether they come, or go.
    pub come: bool,
}

impl Slice {
    fn record(self) -> Record<'static> {
        let Self { flow, first, last, come } = self;
        Record::FlowSlice { flow, first, last, come }
    }
}

/// Log bytes that a staged job may come to take.
fn staged_bytes(record: &[u8]) -> u64 {
    record.len() as u64 + JOB_BYTES
}

/// The decision on a flow, or a step in carrying it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The flow comes; other shards have parts of it that are still to be released.
    Committed,
    /// The flow comes, and all of it is here.
    CommittedHere,
    /// The part of the flow on this shard comes.
    Released,
    /// The flow does not come.
    Dropped,
    /// All its parts have come.
    Done,
    /// The flow comes, and the part of it that is here in slices: see [`Slice`].
    CommittedInSlices,
}

impl Fate {
    pub(crate) const ALL: [Self; 6] = [
        Self::Committed,
        Self::CommittedHere,
        Self::Released,
        Self::Dropped,
        Self::Done,
        Self::CommittedInSlices,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::CommittedHere => "committed-here",
            Self::Released => "released",
            Self::Dropped => "dropped",
            Self::Done => "done",
            Self::CommittedInSlices => "committed-in-slices",
        }
    }
}

impl row::Part<'_> for Fate {
    fn encoded_len(&self) -> usize {
        1
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(*self as u8);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let fate = from.u8()?;
        let found = Self::ALL.into_iter().find(|&known| known as u8 == fate);
        found.ok_or(Malformed("no known fate of a flow"))
    }

    fn show(&self, name: &'static str, to: &mut impl Show) {
        to.text(name, self.name());
    }
}

/// A staged job: its record without the payload.
struct Part {
    head: Box<[u8]>,
    stored: LogRef,
}

/// The direction in which a part goes, as far as it is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Way {
    #[default]
    Undecided,
    /// The part comes in slices.
    Comes,
    /// The part goes in slices.
    Goes,
}

/// Jobs of a flow that are staged here.
#[derive(Default)]
struct Parts {
    jobs: BTreeMap<JobId, Part>,
    /// Each step of it waits for the disk.
    durable: bool,
    way: Way,
}

/// All flows that are under way, as far as a shard knows.
pub(crate) struct Flows {
    /// The parts staged here, by job. A flow has a bounded number of them.
    staged: Map<JobId, Parts>,
    /// The flow of each staged job.
    of_job: Map<JobId, JobId>,
    /// Flows that this shard has committed as coordinator, with the record, until all parts have come.
    open: Map<JobId, LogRef>,
    /// Flows whose parts here come or go in slices.
    sliced: VecDeque<JobId>,
}

impl Flows {
    pub(crate) fn new(key: HashKey) -> Self {
        let sliced = VecDeque::new();
        Self { staged: Map::new(key), of_job: Map::new(key), open: Map::new(key), sliced }
    }

    /// Whether some come or go in slices.
    pub(crate) fn has_slices(&self) -> bool {
        !self.sliced.is_empty()
    }

    /// Where the record of a staged job lies.
    pub(crate) fn staged_at(&self, flow: JobId, job: JobId) -> Option<LogRef> {
        Some(self.staged.get(flow)?.jobs.get(&job)?.stored)
    }

    /// Where this shard's word on a flow lies.
    pub(crate) fn open_at(&self, flow: JobId) -> Option<LogRef> {
        self.open.get(flow).copied()
    }

    /// Every record that is needed.
    pub(crate) fn records(&self) -> impl Iterator<Item = LogRef> {
        let parts = self.staged.values().flat_map(|parts| parts.jobs.values());
        let parts = parts.map(|part| part.stored);
        parts.chain(self.open.values().copied())
    }

    /// In no order that may decide anything.
    pub(crate) fn facts(&self) -> impl Iterator<Item = String> {
        let staged = self.staged.iter().flat_map(|(flow, parts)| {
            parts.jobs.iter().map(move |(job, part)| {
                format!("staged {:x} of {:x} at {}", job.0, flow.0, part.stored.position)
            })
        });
        staged.chain(self.open.keys().map(|flow| format!("open flow {:x}", flow.0)))
    }
}

impl Shard {
    /// An id for a job of a queue that may be another shard's.
    pub fn reserve_id(&mut self, now_ms: u64, queue: &str) -> JobId {
        self.ids.make(now_ms, Slot::of_name(queue))
    }

    /// Stages the part of a flow that is this shard's: all of it or none.
    pub(crate) fn stage<J: Journal>(
        &mut self,
        caller: Caller,
        (records, group_max): (&[&[u8]], &[u32]),
        durable: bool,
        out: &mut Out<'_, J>,
    ) {
        if let Some(place) = self.find_overfull_part(records, group_max) {
            let refused = Reply::Refused { place, refusal: Refusal::GroupFull };
            out.effects.replies.push((caller.request, refused));
            return;
        }
        let bytes: u64 = records.iter().map(|record| staged_bytes(record)).sum();
        let refusal = if out.journal.can_append_new(bytes, || self.space_forecast()) {
            None
        } else {
            Some(Refusal::Full)
        };
        if let Some(refusal) = refusal {
            out.effects.replies.push((caller.request, Reply::Refused { place: 0, refusal }));
            return;
        }
        // Once each: one record may name as many jobs as a flow has.
        let decoded = records.iter().map(|bytes| (*bytes, Record::decode(bytes).ok()));
        let decoded: Vec<(&[u8], Option<Record<'_>>)> = decoded.collect();
        if decoded.iter().any(|(_, record)| self.knows_staged(record.as_ref())) {
            let refused = Reply::Refused { place: 0, refusal: Refusal::Busy };
            out.effects.replies.push((caller.request, refused));
            return;
        }
        self.stage_all(caller, &decoded, durable, out);
    }

    /// Whether chance has made an id twice.
    fn knows_staged(&self, record: Option<&Record<'_>>) -> bool {
        match record {
            Some(Record::Staged(staged)) => self.jobs.find(staged.pushed.id).is_some(),
            _ => true,
        }
    }

    fn stage_all<J: Journal>(
        &mut self,
        caller: Caller,
        records: &[(&[u8], Option<Record<'_>>)],
        durable: bool,
        out: &mut Out<'_, J>,
    ) {
        let made = records.iter().filter_map(|(_, record)| match record {
            Some(Record::Staged(staged)) => Some(staged.pushed.id),
            _ => None,
        });
        if let Some(latest) = made.max() {
            self.tell_foreign_ids(latest, out.journal);
        }
        for (bytes, record) in records {
            let Some(record) = record else { continue };
            let stored = out.journal.append(record);
            if let Record::Staged(staged) = record {
                if durable {
                    out.journal.require_sync();
                }
                self.steps += 1;
                self.note_staged(staged, bytes, stored, durable);
                let (flow, id) = (staged.flow, staged.pushed.id);
                let noted = self.flows.of_job.get(id) == Some(&flow);
                assert!(noted && self.jobs.find(id).is_none(), "a staged job is not seen yet");
            }
        }
        out.effects.replies.push((caller.request, Reply::Done));
    }

    /// Applies [`Record::Staged`].
    pub(crate) fn note_staged(
        &mut self,
        staged: &Staged<'_>,
        bytes: &[u8],
        stored: LogRef,
        durable: bool,
    ) {
        let (flow, id) = (staged.flow, staged.pushed.id);
        self.ids.rise_above(id);
        let head = stored.parted(bytes).map_or(bytes, |(head, _)| head).into();
        let parts = self.flows.staged.get_or_insert_with(flow, Parts::default);
        parts.durable |= durable;
        let before = parts.jobs.insert(id, Part { head, stored });
        self.flows.of_job.insert(id, flow);
        self.live.replace(before.map(|part| part.stored), Some(stored));
    }

    /// Decides what becomes of a flow, as far as it is this shard's.
    pub(crate) fn decide<J: Journal>(
        &mut self,
        now_ms: u64,
        request: RequestId,
        (flow, fate, durable): (JobId, Fate, bool),
        out: &mut Out<'_, J>,
    ) {
        let is_undecided = |parts: &Parts| parts.way == Way::Undecided;
        let known = match fate {
            Fate::Committed | Fate::CommittedHere | Fate::CommittedInSlices => true,
            Fate::Released | Fate::Dropped => self.flows.staged.get(flow).is_some_and(is_undecided),
            Fate::Done => self.flows.open.contains(flow),
        };
        if known {
            self.record_fate(now_ms, (flow, fate, durable), out);
        }
        out.effects.replies.push((request, Reply::Done));
    }

    fn record_fate<J: Journal>(
        &mut self,
        now_ms: u64,
        (flow, fate, durable): (JobId, Fate, bool),
        out: &mut Out<'_, J>,
    ) {
        let parts = self.flows.staged.get(flow);
        let in_slices = parts.is_some_and(|it| it.jobs.len() as u64 > self.config.bulk_slice);
        // A part that outlives a loss of power, while what released it does not, would be dropped.
        let syncs = durable || parts.is_some_and(|parts| parts.durable);
        let fate = match fate {
            Fate::Committed | Fate::CommittedHere if in_slices => Fate::CommittedInSlices,
            // The record of each slice is enough: without the rest it is as if the word had not come yet.
            Fate::Released | Fate::Dropped if in_slices => {
                self.begin_slices(flow, fate == Fate::Released);
                return;
            }
            fate => fate,
        };
        self.tell_silent_clock(now_ms, out.journal);
        let stored = out.journal.append(&Record::Flow { flow, fate });
        if syncs && !matches!(fate, Fate::Dropped | Fate::Done) {
            out.journal.require_sync();
        }
        let staged = self.flows.staged.get(flow).map_or(0, |parts| parts.jobs.len());
        let come = self.meet_fate(flow, fate, stored);
        let open = self.flows.open.contains(flow);
        match fate {
            // The decision is kept until all shards have heard it, then forgotten.
            Fate::Committed => assert!(open, "a flow that is committed elsewhere, too, is open"),
            Fate::CommittedInSlices => assert!(open && come.is_empty(), "slices bring the jobs"),
            Fate::Done => assert!(!open && come.is_empty(), "a flow that is done brings nothing"),
            Fate::Dropped => assert!(come.is_empty(), "a flow that is dropped brings nothing"),
            Fate::CommittedHere | Fate::Released => {}
        }
        if matches!(fate, Fate::Committed | Fate::CommittedHere | Fate::Released) {
            assert!(come.len() == staged, "every job of a flow comes, or none");
        }
        self.emit_pushed(now_ms, come, out);
        if fate == Fate::CommittedInSlices {
            self.begin_slices(flow, true);
        }
    }

    fn emit_pushed<J: Journal>(&mut self, now_ms: u64, come: Vec<u32>, out: &mut Out<'_, J>) {
        for job in come {
            self.totals.pushed += 1;
            self.queues.count_push(self.jobs.slab[job].queue, now_ms);
            self.emit_push(now_ms, job, out.effects);
            self.note_ready(self.jobs.slab[job].queue);
        }
    }

    /// [`Record::Flow`]. Returns the jobs that have come, in the order of their ids.
    pub(crate) fn meet_fate(&mut self, flow: JobId, fate: Fate, stored: LogRef) -> Vec<u32> {
        match fate {
            Fate::Committed | Fate::CommittedInSlices => {
                let before = self.flows.open.insert(flow, stored);
                self.live.replace(before, Some(stored));
            }
            Fate::Done => {
                if let Some(word) = self.flows.open.remove(flow) {
                    self.live.sub(&word);
                }
            }
            Fate::CommittedHere | Fate::Released | Fate::Dropped => {}
        }
        if matches!(fate, Fate::Done | Fate::CommittedInSlices) {
            return Vec::new();
        }
        let (first, last) = (JobId::default(), JobId(u128::MAX));
        self.meet_slice(Slice { flow, first, last, come: fate != Fate::Dropped })
    }

    /// [`Record::FlowSlice`]. Returns the jobs that have come, in the order of their ids.
    pub(crate) fn meet_slice(&mut self, slice: Slice) -> Vec<u32> {
        let mut come = Vec::new();
        while let Some(parts) = self.flows.staged.get_mut(slice.flow) {
            let Some((&id, _)) = parts.jobs.range(slice.first..=slice.last).next() else { break };
            let Some(part) = parts.jobs.remove(&id) else { break };
            if parts.jobs.is_empty() {
                self.flows.staged.remove(slice.flow);
            }
            self.flows.of_job.remove(id);
            // The job points to the same record from now on, and counts it by itself.
            self.live.sub(&part.stored);
            self.steps += u64::from(!slice.come);
            if slice.come
                && let Ok(Record::Staged(staged)) = Record::decode(&part.head)
            {
                let queue = self.queues.find_or_insert(staged.pushed.queue);
                come.push(self.add(queue, &staged.pushed, part.stored));
            }
        }
        come
    }

    fn begin_slices(&mut self, flow: JobId, come: bool) {
        if let Some(parts) = self.flows.staged.get_mut(flow) {
            parts.way = if come { Way::Comes } else { Way::Goes };
            self.flows.sliced.push_back(flow);
        }
    }

    /// After recovery: what was coming in slices goes on.
    pub(crate) fn resume_slices(&mut self) {
        for flow in self.open_flows() {
            self.begin_slices(flow, true);
        }
    }

    /// A slice of the flow whose turn it is.
    pub(crate) fn go_on_with_flows<J: Journal>(&mut self, now_ms: u64, out: &mut Out<'_, J>) {
        let Some(flow) = self.flows.sliced.pop_front() else { return };
        // All of it may have been heard of.
        let Some(parts) = self.flows.staged.get(flow) else { return };
        let most = self.config.bulk_slice as usize;
        let come = parts.way == Way::Comes;
        let mut heads = parts.jobs.iter().map(|(&id, part)| (id, part.head.len()));
        let Some((first, mut bytes)) = heads.next() else { return };
        let mut last = first;
        for (id, head_bytes) in heads.take(most - 1) {
            bytes += head_bytes;
            if bytes > SLICE_BYTES_MAX {
                break;
            }
            last = id;
        }
        self.record_slice(now_ms, Slice { flow, first, last, come }, out);
        if self.flows.staged.contains(flow) {
            self.flows.sliced.push_back(flow);
        }
    }

    fn record_slice<J: Journal>(&mut self, now_ms: u64, slice: Slice, out: &mut Out<'_, J>) {
        self.tell_silent_clock(now_ms, out.journal);
        out.journal.append(&slice.record());
        if slice.come && self.flows.staged.get(slice.flow).is_some_and(|parts| parts.durable) {
            out.journal.require_sync();
        }
        let come = self.meet_slice(slice);
        self.emit_pushed(now_ms, come, out);
    }

    /// A job is heard of that may be staged here: then its flow was committed.
    pub(crate) fn release_heard<J: Journal>(
        &mut self,
        now_ms: u64,
        job: JobId,
        out: &mut Out<'_, J>,
    ) {
        let Some(&flow) = self.flows.of_job.get(job) else { return };
        if self.flows.staged.get(flow).is_some_and(|parts| parts.way == Way::Undecided) {
            self.record_fate(now_ms, (flow, Fate::Released, false), out);
        }
        if self.flows.staged_at(flow, job).is_some() {
            // The part comes in slices, and this job is the first of them.
            self.record_slice(now_ms, Slice { flow, first: job, last: job, come: true }, out);
        }
    }

    /// Whether a part of a flow is still staged here.
    pub fn is_staged(&self, flow: JobId) -> bool {
        self.flows.staged.contains(flow)
    }

    /// Flows that this shard has given its word on, which others may not have heard: to be told again
    /// after recovery.
    pub fn open_flows(&self) -> Vec<JobId> {
        let mut flows: Vec<JobId> = self.flows.open.keys().collect();
        flows.sort_unstable();
        flows
    }

    /// Flows of which a part is staged here.
    pub fn staged_flows(&self) -> Vec<JobId> {
        let mut flows: Vec<JobId> = self.flows.staged.keys().collect();
        flows.sort_unstable();
        flows
    }

    /// The custom ids of all jobs that are staged here: nobody else may be given one of them before it is
    /// known what becomes of those jobs.
    pub fn staged_names(&self) -> Vec<Box<str>> {
        self.names_of_parts(|_| true)
    }

    /// Custom ids of staged jobs whose flows are undecided.
    pub fn undecided_names(&self) -> Vec<Box<str>> {
        self.names_of_parts(|way| way == Way::Undecided)
    }

    fn names_of_parts(&self, wanted: impl Fn(Way) -> bool) -> Vec<Box<str>> {
        let parts = self.flows.staged.values().filter(|parts| wanted(parts.way));
        let parts = parts.flat_map(|parts| parts.jobs.values());
        let name = |part: &Part| match Record::decode(&part.head) {
            Ok(Record::Staged(staged)) => staged.pushed.job.custom_id.map(Into::into),
            _ => None,
        };
        let mut names: Vec<Box<str>> = parts.filter_map(name).collect();
        names.sort_unstable();
        names
    }

    /// Ends a flow while jobs move to other shards: without a record, since what comes of it is
    /// written there.
    pub fn settle_flow(&mut self, flow: JobId, committed: bool) {
        let fate = if committed { Fate::Released } else { Fate::Dropped };
        self.meet_fate(flow, fate, LogRef::default());
        self.meet_fate(flow, Fate::Done, LogRef::default());
    }

    /// A record that is needed of a flow under way is written again.
    pub(crate) fn keep_flow<J: Journal>(&mut self, record: &Record<'_>, journal: &mut J) {
        let stored = journal.append(record);
        match record {
            Record::Staged(staged) => {
                let parts = self.flows.staged.get_mut(staged.flow);
                if let Some(part) = parts.and_then(|parts| parts.jobs.get_mut(&staged.pushed.id)) {
                    let before = std::mem::replace(&mut part.stored, stored);
                    self.live.replace(Some(before), Some(stored));
                }
            }
            Record::Flow { flow, .. } => {
                let before = self.flows.open.insert(*flow, stored);
                self.live.replace(before, Some(stored));
            }
            _ => {}
        }
    }

    pub(crate) fn audit_flows(&self) -> Result<(), String> {
        let staged: usize = self.flows.staged.values().map(|parts| parts.jobs.len()).sum();
        let listed = self.flows.of_job.len();
        let agree = self.flows.of_job.iter().all(|(job, flow)| {
            self.flows.staged.get(*flow).is_some_and(|parts| parts.jobs.contains_key(&job))
        });
        if staged != listed || !agree {
            return Err(format!("{staged} jobs are staged, {listed} known by their ids"));
        }
        Ok(())
    }
}
