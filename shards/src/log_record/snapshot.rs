//! The records that stand for older ones, so that the beginning of the log can be given up: how they
//! are written and read. What they do stands in [`crate::compaction::rewrite`].

use crate::caller::Token;
use crate::dead_letter::reason::Cause;
use crate::family::Ends;
use crate::job::id::JobId;
use crate::job::progress::{LogEntry, Notes};
use crate::job::{Outcome, Redelivered, State};
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::job_change::Level;
pub use crate::log_record::kind::Kept;
use crate::log_record::location::LogRef;
use crate::log_record::row::Body;
use crate::log_record::show::Show;
use crate::log_record::{Pushed, Record, kind, kind_name};

/// Everything about one job. Applied to a job that is known already, it changes nothing.
#[derive(Clone, Debug)]
pub struct KeptJob<'a> {
    /// The job as if it were pushed now: priority, due time and unmet dependencies are those of today.
    pub pushed: Pushed<'a>,
    /// Attempts that have failed.
    pub attempts: u16,
    /// Times its worker went silent.
    pub stalls: u8,
    /// Where it stands.
    pub place: Place,
    /// Parts that few jobs have, if this one has any.
    pub rare: Option<Rare<'a>>,
    /// Where its data lies, if other jobs have it, too.
    pub shared: Option<LogRef>,
    /// Where the log tells how earlier attempts failed.
    pub failures: FailedAttempts<'a>,
}

/// Where the log tells how attempts of a job failed, oldest first, as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailedAttempts<'a>(&'a [u8]);

impl<'a> FailedAttempts<'a> {
    /// Views places written by [`FailedAttempts::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Adds a place to a buffer of them.
    pub fn push(bytes: &mut Vec<u8>, stored: &LogRef) {
        let start = bytes.len();
        bytes.resize(start + STORED, 0);
        let mut out = Writer::new(&mut bytes[start..]);
        put(&mut out, stored);
        out.finish();
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (_, rest) = bytes.as_chunks::<STORED>();
        match (bytes, rest) {
            ([_, ..], []) => Ok(Self(bytes)),
            _ => Err(Malformed("the failed attempts of a job are cut short")),
        }
    }

    /// The places.
    pub fn iter(self) -> impl Iterator<Item = LogRef> {
        let mut rest = Reader::new(self.0);
        std::iter::from_fn(move || stored(&mut rest).ok())
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Before an attempt: waiting, delayed, or waiting for others.
    Pending(State),
    /// With a worker that has a lock.
    Active {
        /// The token of the lock.
        token: Token,
        /// Life of the lease from each sign of life.
        ttl_ms: u32,
        /// When the job was pulled.
        at_ms: u64,
    },
    /// At its end.
    Ended(State, Outcome),
}

/// Parts that few jobs have besides those that they were pushed with.
#[derive(Clone, Debug)]
pub struct Rare<'a> {
    /// End of its life while not active; 0 for none.
    pub expires_at_ms: u64,
    /// Progress and log of the job.
    pub notes: Option<KeptNotes<'a>>,
    /// When its run was due, and whether the next one has come, for a repeated job.
    pub run: Option<(u64, bool)>,
    /// How its children ended.
    pub family: Option<Ends<'a>>,
    /// How often it left the dead-letter queue by itself.
    pub redelivered: Option<Redelivered>,
}

/// Progress and log of a job. The texts lie in records of their own.
#[derive(Clone, Debug)]
pub struct KeptNotes<'a> {
    /// 0 to 100.
    pub progress: f64,
    /// The worker's message.
    pub message: Option<LogRef>,
    /// The lines of its log.
    pub logs: Lines<'a>,
}

/// Lines of a job's log, as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines<'a>(&'a [u8]);

const LINE: usize = 8 + 1 + 16;

impl<'a> Lines<'a> {
    /// Views lines written by [`Lines::push`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Adds a line to a buffer of them.
    pub fn push(bytes: &mut Vec<u8>, entry: &LogEntry) {
        let start = bytes.len();
        bytes.resize(start + LINE, 0);
        let mut out = Writer::new(&mut bytes[start..]);
        out.u64(entry.at_ms);
        out.u8(entry.level as u8);
        put(&mut out, &entry.stored);
        out.finish();
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let lines = Self(bytes);
        if !bytes.len().is_multiple_of(LINE) || lines.iter().count() * LINE != bytes.len() {
            return Err(Malformed("the log of a job is cut short"));
        }
        Ok(lines)
    }

    /// The lines. Bytes that are none end them early.
    pub fn iter(self) -> impl Iterator<Item = LogEntry> {
        let mut rest = Reader::new(self.0);
        std::iter::from_fn(move || {
            let at_ms = rest.u64().ok()?;
            let level = Level::of(rest.u8().ok()?)?;
            Some(LogEntry { at_ms, level, stored: stored(&mut rest).ok()? })
        })
    }
}

impl KeptNotes<'_> {
    /// In the form that jobs hold them.
    pub(crate) fn notes(&self) -> Notes {
        let (progress, message) = (self.progress, self.message);
        Notes { progress, message, logs: self.logs.iter().collect() }
    }
}

/// See [`Kept::Moved`].
#[derive(Clone, Copy, Debug)]
pub struct Moved<'a> {
    /// The job that points to the record; none if that is a payload that jobs share.
    pub id: JobId,
    /// Where it lay.
    pub from: u64,
    /// The record, byte for byte as it was written first.
    pub record: &'a [u8],
    /// Length of its payload.
    pub payload_bytes: u32,
}

/// Bits that say which parts a kept job has.
mod part {
    pub(crate) const ACTIVE: u16 = 1;
    pub(crate) const ENDED: u16 = 1 << 1;
    pub(crate) const RARE: u16 = 1 << 2;
    pub(crate) const NOTES: u16 = 1 << 3;
    pub(crate) const MESSAGE: u16 = 1 << 4;
    pub(crate) const RUN: u16 = 1 << 5;
    pub(crate) const CONTINUED: u16 = 1 << 6;
    pub(crate) const SHARED: u16 = 1 << 7;
    pub(crate) const KIN: u16 = 1 << 8;
    /// Why it is in the dead-letter queue.
    pub(crate) const CAUSE: u16 = 1 << 12;
    pub(crate) const REDELIVERED: u16 = 1 << 13;
    pub(crate) const FAILURES: u16 = 1 << 14;
    /// All bits that are known.
    pub(crate) const ALL: u16 = ((1 << 9) - 1) | CAUSE | REDELIVERED | FAILURES;
}

const STORED: usize = 16;

fn put(out: &mut Writer<'_>, stored: &LogRef) {
    out.u64(stored.position);
    out.u32(stored.record_bytes);
    out.u32(stored.payload_bytes);
}

fn stored(from: &mut Reader<'_>) -> Result<LogRef, Malformed> {
    let (position, record_bytes, payload_bytes) = (from.u64()?, from.u32()?, from.u32()?);
    Ok(LogRef { position, record_bytes, payload_bytes })
}

impl<'a> Body<'a> for Moved<'a> {
    fn encoded_len(&self) -> usize {
        16 + 8 + self.record.len()
    }

    fn payload_len(&self) -> usize {
        self.payload_bytes as usize
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.id);
        out.u64(self.from);
        out.bytes(self.record);
    }

    fn decode(_: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let (id, place, record) = (from.id()?, from.u64()?, from.rest());
        if record.first() == Some(&kind::MOVED) {
            return Err(Malformed("a moved record holds another one"));
        }
        let payload_bytes = Record::decode(record)?.payload_len() as u32;
        Ok(Self { id, from: place, record, payload_bytes })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.id);
        to.uint("from", self.from);
        to.map("record", |to| {
            to.text("kind", kind_name(self.record).unwrap_or("unknown"));
            match Record::decode(self.record) {
                Ok(record) => record.show(to),
                Err(Malformed(reason)) => to.text("error", reason),
            }
        });
    }
}

impl KeptJob<'_> {
    /// Whether all that it points to lies before `position`, where it stands itself.
    pub(crate) fn points_before(&self, position: u64) -> Result<(), Malformed> {
        let outcome = match &self.place {
            Place::Ended(_, outcome) => Some(outcome.stored),
            Place::Pending(_) | Place::Active { .. } => None,
        };
        let notes = self.rare.as_ref().and_then(|rare| rare.notes.as_ref());
        let message = notes.and_then(|notes| notes.message);
        let lines = notes.into_iter().flat_map(|notes| notes.logs.iter()).map(|line| line.stored);
        let family = self.rare.as_ref().and_then(|rare| rare.family);
        let ends = family.into_iter().flat_map(Ends::iter).map(|end| end.stored);
        let all = outcome.into_iter().chain(message).chain(self.shared).chain(lines);
        let mut all = all.chain(ends).chain(self.failures.iter());
        if all.any(|stored| stored.position >= position) {
            return Err(Malformed("a job points to a record that is not there yet"));
        }
        Ok(())
    }

    fn cause(&self) -> Cause {
        match &self.place {
            Place::Ended(State::Failed, outcome) => outcome.cause,
            _ => Cause::Unknown,
        }
    }

    fn redelivered(&self) -> Option<Redelivered> {
        self.rare.as_ref().and_then(|rare| rare.redelivered)
    }

    fn parts(&self) -> u16 {
        let bit = |present: bool, bit: u16| if present { bit } else { 0 };
        let notes = self.rare.as_ref().and_then(|rare| rare.notes.as_ref());
        let run = self.rare.as_ref().and_then(|rare| rare.run);
        bit(matches!(self.place, Place::Active { .. }), part::ACTIVE)
            | bit(matches!(self.place, Place::Ended(..)), part::ENDED)
            | bit(self.rare.is_some(), part::RARE)
            | bit(notes.is_some(), part::NOTES)
            | bit(notes.is_some_and(|notes| notes.message.is_some()), part::MESSAGE)
            | bit(run.is_some(), part::RUN)
            | bit(run.is_some_and(|(_, continued)| continued), part::CONTINUED)
            | bit(self.shared.is_some(), part::SHARED)
            | bit(self.rare.as_ref().is_some_and(|rare| rare.family.is_some()), part::KIN)
            | bit(self.cause() != Cause::Unknown, part::CAUSE)
            | bit(self.redelivered().is_some(), part::REDELIVERED)
            | bit(!self.failures.0.is_empty(), part::FAILURES)
    }
}

impl<'a> Body<'a> for KeptJob<'a> {
    fn encoded_len(&self) -> usize {
        let parts = self.parts();
        let sized = |bit: u16, size: usize| if parts & bit != 0 { size } else { 0 };
        let notes = self.rare.as_ref().and_then(|rare| rare.notes.as_ref());
        let lines = notes.map_or(0, |notes| notes.logs.0.len());
        2 + 1
            + 2
            + 1
            + sized(part::ACTIVE, 16 + 4 + 8)
            + sized(part::ENDED, 3 * 8 + STORED)
            + sized(part::RARE, 8)
            + sized(part::NOTES, 8 + 2 + lines)
            + sized(part::MESSAGE, STORED)
            + sized(part::RUN, 8)
            + self.rare.as_ref().and_then(|rare| rare.family).map_or(0, Ends::encoded_len)
            + sized(part::SHARED, STORED)
            + sized(part::CAUSE, 1)
            + sized(part::REDELIVERED, 4 + 8)
            + sized(part::FAILURES, 2 + self.failures.0.len())
            + self.pushed.measured_len()
    }

    fn payload_len(&self) -> usize {
        self.pushed.job.data.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        let state = match self.place {
            Place::Pending(state) | Place::Ended(state, _) => state,
            Place::Active { .. } => State::Active,
        };
        out.u16(self.parts());
        out.u8(state as u8);
        out.u16(self.attempts);
        out.u8(self.stalls);
        match &self.place {
            Place::Pending(_) => {}
            Place::Active { token, ttl_ms, at_ms } => {
                out.id(JobId(token.0));
                out.u32(*ttl_ms);
                out.u64(*at_ms);
            }
            Place::Ended(_, outcome) => {
                out.u64(outcome.finished_at_ms);
                out.u64(outcome.started_at_ms);
                out.u64(outcome.order);
                put(out, &outcome.stored);
            }
        }
        if let Some(rare) = &self.rare {
            out.u64(rare.expires_at_ms);
            if let Some(notes) = &rare.notes {
                out.u64(notes.progress.to_bits());
                out.short(notes.logs.0);
                if let Some(message) = &notes.message {
                    put(out, message);
                }
            }
            if let Some((due_ms, _)) = rare.run {
                out.u64(due_ms);
            }
            if let Some(family) = rare.family {
                family.encode(out);
            }
        }
        if let Some(shared) = &self.shared {
            put(out, shared);
        }
        if self.cause() != Cause::Unknown {
            out.u8(self.cause() as u8);
        }
        if let Some(Redelivered { times, last_at_ms }) = self.redelivered() {
            out.u32(times);
            out.u64(last_at_ms);
        }
        if !self.failures.0.is_empty() {
            out.short(self.failures.0);
        }
        self.pushed.write(out);
    }

    fn decode(_: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        let parts = from.u16()?;
        if parts & !part::ALL != 0 {
            return Err(Malformed("it has a part that is not known to this release"));
        }
        let has = |bit: u16| parts & bit != 0;
        let state = from.u8()?;
        let state = State::ALL.into_iter().find(|&known| known as u8 == state);
        let state = state.ok_or(Malformed("a job in no known state"))?;
        let (attempts, stalls) = (from.u16()?, from.u8()?);
        let mut place = match (has(part::ACTIVE), has(part::ENDED)) {
            (true, false) if state == State::Active => {
                let token = Token(from.id()?.0);
                Place::Active { token, ttl_ms: from.u32()?, at_ms: from.u64()? }
            }
            (false, true) if state.is_end() => {
                let (finished_at_ms, started_at_ms) = (from.u64()?, from.u64()?);
                let (order, stored) = (from.u64()?, stored(&mut from)?);
                let cause = Cause::Unknown;
                let outcome = Outcome { finished_at_ms, started_at_ms, order, stored, cause };
                Place::Ended(state, outcome)
            }
            (false, false) if state != State::Active && !state.is_end() => Place::Pending(state),
            _ => return Err(Malformed("a job whose state and place differ")),
        };
        let mut rare = has(part::RARE).then(|| Rare::decode(&mut from, parts)).transpose()?;
        let shared = has(part::SHARED).then(|| stored(&mut from)).transpose()?;
        if has(part::CAUSE) {
            let Place::Ended(State::Failed, outcome) = &mut place else {
                return Err(Malformed("a job that did not fail has a cause"));
            };
            outcome.cause = Cause::of(from.u8()?).ok_or(Malformed("no known cause"))?;
        }
        if has(part::REDELIVERED) {
            let Some(rare) = &mut rare else {
                return Err(Malformed("a job without the options that it needs"));
            };
            let (times, last_at_ms) = (from.u32()?, from.u64()?);
            rare.redelivered = Some(Redelivered { times, last_at_ms });
        }
        let failures = if has(part::FAILURES) {
            FailedAttempts::decode(from.short()?)?
        } else {
            FailedAttempts::default()
        };
        let pushed = Pushed::read(from)?;
        let freed = rare.as_ref().and_then(|rare| rare.family).is_some_and(|family| family.freed);
        let waits = pushed.job.waits() && !freed && !state.is_end();
        if waits != (state == State::WaitingChildren) {
            return Err(Malformed("a job that waits for others must name them"));
        }
        if shared.is_some() && pushed.job.repeat.is_none() || waits && rare.is_none() {
            return Err(Malformed("a job without the options that it needs"));
        }
        if attempts == 0 && !failures.0.is_empty() {
            return Err(Malformed("a job without attempts has failed ones"));
        }
        Ok(Self { pushed, attempts, stalls, place, rare, shared, failures })
    }

    fn show(&self, to: &mut impl Show) {
        self.place.show(to);
        to.uint("attempts", u64::from(self.attempts));
        to.uint("stalls", u64::from(self.stalls));
        if let Some(rare) = &self.rare {
            rare.show(to);
        }
        if let Some(shared) = &self.shared {
            to.stored("shared", shared);
        }
        to.some_uint(
            "failedAttempts",
            Some(self.failures.iter().count() as u64).filter(|&n| n > 0),
        );
        self.pushed.show(to);
    }
}

impl Place {
    fn show(&self, to: &mut impl Show) {
        match self {
            Self::Pending(state) => to.text("state", state.name()),
            Self::Active { token, ttl_ms, at_ms } => {
                to.text("state", "active");
                to.id("token", JobId(token.0));
                to.uint("lockTtl", u64::from(*ttl_ms));
                to.uint("at", *at_ms);
            }
            Self::Ended(state, outcome) => {
                to.text("state", state.name());
                to.uint("at", outcome.finished_at_ms);
                to.uint("startedAt", outcome.started_at_ms);
                to.uint("order", outcome.order);
                if *state == State::Failed {
                    to.text("cause", outcome.cause.name());
                }
                to.stored("outcome", &outcome.stored);
            }
        }
    }
}

impl<'a> Rare<'a> {
    fn show(&self, to: &mut impl Show) {
        to.some_uint("expiresAt", Some(self.expires_at_ms).filter(|&at_ms| at_ms > 0));
        if let Some(notes) = &self.notes {
            to.number("progress", notes.progress);
            if let Some(message) = &notes.message {
                to.stored("message", message);
            }
            to.uint("logLines", notes.logs.iter().count() as u64);
        }
        if let Some(before) = self.redelivered {
            to.uint("redelivered", u64::from(before.times));
            to.uint("redeliveredAt", before.last_at_ms);
        }
        if let Some(ends) = self.family {
            to.flag("freed", ends.freed);
            to.uint("childrenEnded", ends.iter().count() as u64);
        }
        if let Some((due_ms, continued)) = self.run {
            to.uint("due", due_ms);
            to.flag("continued", continued);
        }
    }

    fn decode(from: &mut Reader<'a>, parts: u16) -> Result<Self, Malformed> {
        let has = |bit: u16| parts & bit != 0;
        let expires_at_ms = from.u64()?;
        let notes = if has(part::NOTES) {
            let progress = f64::from_bits(from.u64()?);
            let logs = Lines::decode(from.short()?)?;
            let message = has(part::MESSAGE).then(|| stored(from)).transpose()?;
            Some(KeptNotes { progress, message, logs })
        } else {
            None
        };
        let due_ms = has(part::RUN).then(|| from.u64()).transpose()?;
        let run = due_ms.map(|due_ms| (due_ms, has(part::CONTINUED)));
        let family = has(part::KIN).then(|| Ends::decode(from)).transpose()?;
        Ok(Self { expires_at_ms, notes, run, family, redelivered: None })
    }
}
