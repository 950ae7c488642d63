//! The record of a job that comes: how it is written and read. Records of other kinds hold one, too.

use crate::dependency::Unmet;
use crate::family::NewFamily;
use crate::job::id::JobId;
use crate::job::new_job::{NewJob, Repeat};
use crate::job::overrides::{Extras, Growth};
use crate::job::recurrence::Recurrence;
use crate::job::trace::{NewTrace, TraceParent};
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::row::{Body, Tail};
use crate::log_record::show::Show;
use std::ops::Deref;

/// A job as it was given: lent by its command where that is recorded as it came. A clone of some 300 bytes and two moves
/// were a twentieth of the user time of a batch of pushes.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a record that is read would be an allocation")]
pub enum Given<'a> {
    /// As the command has it.
    Lent(&'a NewJob<'a>),
    /// Read from the log, or changed.
    Own(NewJob<'a>),
}

impl<'a> Given<'a> {
    /// The job itself.
    pub fn into_own(self) -> NewJob<'a> {
        match self {
            Self::Lent(job) => job.clone(),
            Self::Own(job) => job,
        }
    }
}

impl<'a> Deref for Given<'a> {
    type Target = NewJob<'a>;

    #[inline]
    fn deref(&self) -> &NewJob<'a> {
        match self {
            Self::Lent(job) => job,
            Self::Own(job) => job,
        }
    }
}

impl<'a> From<NewJob<'a>> for Given<'a> {
    fn from(job: NewJob<'a>) -> Self {
        Self::Own(job)
    }
}

/// See [`crate::log_record::Record::Pushed`].
#[derive(Clone, Debug)]
pub struct Pushed<'a> {
    /// The new job.
    pub id: JobId,
    /// Queue of the job.
    pub queue: &'a str,
    /// When it may be delivered.
    pub run_at_ms: u64,
    /// The job as the client gave it.
    pub job: Given<'a>,
}

/// Bits that say which parts a pushed job has.
mod part {
    pub(crate) const LIFO: u16 = 1;
    pub(crate) const REMOVE_ON_COMPLETE: u16 = 1 << 1;
    pub(crate) const REMOVE_ON_FAIL: u16 = 1 << 2;
    pub(crate) const DURABLE: u16 = 1 << 3;
    pub(crate) const TTL: u16 = 1 << 4;
    pub(crate) const TIMEOUT: u16 = 1 << 5;
    pub(crate) const UNIQUE_KEY: u16 = 1 << 6;
    pub(crate) const CUSTOM_ID: u16 = 1 << 7;
    pub(crate) const GROUP_ID: u16 = 1 << 8;
    pub(crate) const TAGS: u16 = 1 << 9;
    pub(crate) const DEPENDS_ON: u16 = 1 << 10;
    pub(crate) const REPEAT: u16 = 1 << 11;
    pub(crate) const REPEAT_LIMIT: u16 = 1 << 12;
    pub(crate) const UNMET: u16 = 1 << 13;
    /// There are parts that no bit was left for: [`super::more`].
    pub(crate) const MORE: u16 = 1 << 14;
    /// All bits that are known.
    pub(crate) const ALL: u16 = (1 << 15) - 1;
}

/// Bits of the word that follows the other parts if there is one.
mod more {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const EXTRAS: u32 = 1 << 1;
    pub(crate) const KIN: u32 = 1 << 2;
    pub(crate) const RECURRENCE: u32 = 1 << 3;
    pub(crate) const TRACE: u32 = 1 << 4;
    pub(crate) const ALL: u32 = (1 << 5) - 1;
}

/// Whether these parts of a pushed job, as they are written, have tags among them.
pub(super) fn has_tags(parts: u16) -> bool {
    parts & part::TAGS != 0
}

impl<'a> Pushed<'a> {
    fn parts(&self) -> u16 {
        let job = &*self.job;
        let bit = |present: bool, bit: u16| if present { bit } else { 0 };
        bit(job.lifo, part::LIFO)
            | bit(job.remove_on_complete, part::REMOVE_ON_COMPLETE)
            | bit(job.remove_on_fail, part::REMOVE_ON_FAIL)
            | bit(job.durable, part::DURABLE)
            | bit(job.ttl_ms.is_some(), part::TTL)
            | bit(job.timeout_ms.is_some(), part::TIMEOUT)
            | bit(job.unique_key.is_some(), part::UNIQUE_KEY)
            | bit(job.custom_id.is_some(), part::CUSTOM_ID)
            | bit(job.group_id.is_some(), part::GROUP_ID)
            | bit(!job.tags.is_empty(), part::TAGS)
            | bit(!job.depends_on.is_empty() && !self.depends_on_children(), part::DEPENDS_ON)
            | bit(job.repeat.is_some(), part::REPEAT)
            | bit(job.repeat.is_some_and(|repeat| repeat.limit.is_some()), part::REPEAT_LIMIT)
            | bit(!job.unmet.is_empty(), part::UNMET)
            | bit(self.more() != 0, part::MORE)
    }

    fn more(&self) -> u32 {
        let job = &*self.job;
        let bit = |given: bool, bit: u32| if given { bit } else { 0 };
        bit(job.name.is_some(), more::NAME)
            | bit(job.extras.is_some(), more::EXTRAS)
            | bit(job.family.is_some(), more::KIN)
            | bit(job.recurrence.is_some(), more::RECURRENCE)
            | bit(job.trace.is_some(), more::TRACE)
    }

    /// Whether the list of all dependencies is that of its children, and is not written twice.
    fn depends_on_children(&self) -> bool {
        self.job.family.as_deref().is_some_and(|family| family.is_same(self.job.depends_on))
    }

    fn more_len(&self) -> usize {
        let extras = self.job.extras.as_deref();
        4 + self.job.name.map_or(0, |name| 2 + name.len())
            + extras.map_or(0, Extras::encoded_len)
            + self.job.family.as_deref().map_or(0, NewFamily::encoded_len)
            + self.job.recurrence.as_deref().map_or(0, Recurrence::encoded_len)
            + self.job.trace.as_deref().map_or(0, NewTrace::encoded_len)
    }

    fn texts(&self) -> [(u16, &[u8]); 5] {
        let text = |text: Option<&'a str>| text.unwrap_or_default().as_bytes();
        [
            (part::UNIQUE_KEY, text(self.job.unique_key)),
            (part::CUSTOM_ID, text(self.job.custom_id)),
            (part::GROUP_ID, text(self.job.group_id)),
            (part::TAGS, self.job.tags),
            (part::DEPENDS_ON, self.job.depends_on),
        ]
    }

    pub(crate) fn measured_len(&self) -> usize {
        let parts = self.parts();
        let mut len = 2 + 16 + 8 + 8 + 4 + 2 + 4 + 2 + self.queue.len() + self.job.data.len();
        if parts & !(part::LIFO | part::REMOVE_ON_COMPLETE | part::REMOVE_ON_FAIL) == 0 {
            return len;
        }
        let sized = |bit: u16, size: usize| if parts & bit != 0 { size } else { 0 };
        len += sized(part::TTL, 8) + sized(part::TIMEOUT, 4);
        len += sized(part::REPEAT, 16) + sized(part::REPEAT_LIMIT, 8);
        len += sized(part::UNMET, 4 + self.job.unmet.bytes().len());
        len += sized(part::MORE, self.more_len());
        len + self.texts().iter().map(|(bit, text)| sized(*bit, 2 + text.len())).sum::<usize>()
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) {
        let parts = self.parts();
        let job = &*self.job;
        out.u16(parts);
        out.id(self.id);
        out.u64(self.run_at_ms);
        out.u64(job.delay_ms);
        out.u32(job.priority as u32);
        out.u16(job.max_attempts);
        out.u32(job.backoff_ms);
        out.short(self.queue.as_bytes());
        if parts & !(part::LIFO | part::REMOVE_ON_COMPLETE | part::REMOVE_ON_FAIL) != 0 {
            self.encode_rare(parts, out);
        }
        out.bytes(job.data);
    }

    fn encode_rare(&self, parts: u16, out: &mut Writer<'_>) {
        if let Some(ttl_ms) = self.job.ttl_ms {
            out.u64(ttl_ms);
        }
        if let Some(timeout_ms) = self.job.timeout_ms {
            out.u32(timeout_ms);
        }
        if let Some(repeat) = self.job.repeat {
            out.u64(repeat.every_ms);
            out.u64(repeat.count);
            if let Some(limit) = repeat.limit {
                out.u64(limit);
            }
        }
        for (bit, text) in self.texts() {
            if parts & bit != 0 {
                out.short(text);
            }
        }
        if parts & part::UNMET != 0 {
            let unmet = self.job.unmet.bytes();
            out.u32(unmet.len() as u32);
            out.bytes(unmet);
        }
        if parts & part::MORE != 0 {
            out.u32(self.more());
            if let Some(name) = self.job.name {
                out.short(name.as_bytes());
            }
            if let Some(extras) = &self.job.extras {
                extras.encode(out);
            }
            if let Some(family) = &self.job.family {
                family.encode(self.depends_on_children(), out);
            }
            if let Some(recurrence) = &self.job.recurrence {
                recurrence.encode(out);
            }
            if let Some(trace) = &self.job.trace {
                trace.encode(out);
            }
        }
    }

    pub(crate) fn read(mut from: Reader<'a>) -> Result<Self, Malformed> {
        let parts = from.u16()?;
        if parts & !part::ALL != 0 {
            return Err(Malformed("it has a part that is not known to this release"));
        }
        let has = |bit: u16| parts & bit != 0;
        let (id, run_at_ms) = (from.id()?, from.u64()?);
        let mut job = NewJob {
            delay_ms: from.u64()?,
            priority: from.u32()? as i32,
            max_attempts: from.u16()?,
            backoff_ms: from.u32()?,
            lifo: has(part::LIFO),
            remove_on_complete: has(part::REMOVE_ON_COMPLETE),
            remove_on_fail: has(part::REMOVE_ON_FAIL),
            durable: has(part::DURABLE),
            ..NewJob::default()
        };
        let queue = from.text()?;
        if has(part::TTL) {
            job.ttl_ms = Some(from.u64()?);
        }
        if has(part::TIMEOUT) {
            job.timeout_ms = Some(from.u32()?);
        }
        if has(part::REPEAT) {
            let (every_ms, count) = (from.u64()?, from.u64()?);
            let limit = has(part::REPEAT_LIMIT).then(|| from.u64()).transpose()?;
            job.repeat = Some(Repeat { every_ms, limit, count });
        }
        job.unique_key = has(part::UNIQUE_KEY).then(|| from.text()).transpose()?;
        job.custom_id = has(part::CUSTOM_ID).then(|| from.text()).transpose()?;
        job.group_id = has(part::GROUP_ID).then(|| from.text()).transpose()?;
        job.tags = if has(part::TAGS) { from.short()? } else { &[] };
        job.depends_on = if has(part::DEPENDS_ON) { from.short()? } else { &[] };
        if has(part::UNMET) {
            let bytes = from.u32()?;
            job.unmet = Unmet::decode(from.bytes(bytes as usize)?)?;
        }
        if has(part::MORE) {
            let parts = from.u32()?;
            if parts & !more::ALL != 0 {
                return Err(Malformed("it has a part that is not known to this release"));
            }
            job.name = (parts & more::NAME != 0).then(|| from.text()).transpose()?;
            if parts & more::EXTRAS != 0 {
                job.extras = Some(Box::new(Extras::decode(&mut from)?));
            }
            if parts & more::KIN != 0 {
                let (family, same) = NewFamily::decode(&mut from)?;
                if same {
                    job.depends_on = family.children;
                }
                job.family = Some(Box::new(family));
            }
            if parts & more::RECURRENCE != 0 {
                job.recurrence = Some(Box::new(Recurrence::decode(&mut from)?));
            }
            if parts & more::TRACE != 0 {
                job.trace = Some(Box::new(NewTrace::decode(&mut from)?));
            }
        }
        job.data = from.rest();
        Ok(Self { id, queue, run_at_ms, job: job.into() })
    }
}

/// The trace that a job belongs to, as a part of its record.
impl<'a> NewTrace<'a> {
    pub(crate) fn encoded_len(&self) -> usize {
        16 + 8 + 1 + 2 + self.state.len()
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(&self.parent.trace_id);
        out.bytes(&self.parent.span_id);
        out.u8(self.parent.flags);
        out.short(self.state.as_bytes());
    }

    pub(crate) fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let cut = Malformed("the trace of a job is cut short");
        let trace_id = from.bytes(16)?.try_into().map_err(|_| cut)?;
        let span_id = from.bytes(8)?.try_into().map_err(|_| cut)?;
        let flags = from.u8()?;
        Ok(Self { parent: TraceParent { trace_id, span_id, flags }, state: from.text()? })
    }
}

impl<'a> Body<'a> for Pushed<'a> {
    #[inline]
    fn encoded_len(&self) -> usize {
        self.measured_len()
    }

    #[inline]
    fn payload_len(&self) -> usize {
        self.job.data.len()
    }

    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        self.write(out);
    }

    #[inline]
    fn decode(_: u8, from: Reader<'a>) -> Result<Self, Malformed> {
        Self::read(from)
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.id);
        to.text("queue", self.queue);
        to.uint("runAt", self.run_at_ms);
        self.job.show(to);
    }
}

/// A record that ends with a job that comes.
impl<'a> Tail<'a> for Pushed<'a> {
    fn encoded_len(&self) -> usize {
        self.measured_len()
    }

    fn payload_len(&self) -> usize {
        self.job.data.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        self.write(out);
    }

    fn decode(from: Reader<'a>) -> Result<Self, Malformed> {
        Self::read(from)
    }

    /// The entries of the pushed job are shown beside those of the record.
    fn show(&self, _: &'static str, to: &mut impl Show) {
        Body::show(self, to);
    }
}

impl NewJob<'_> {
    /// Shows what a job is pushed with.
    pub(crate) fn show(&self, to: &mut impl Show) {
        to.some_text("name", self.name);
        to.uint("delay", self.delay_ms);
        to.int("priority", i64::from(self.priority));
        to.uint("maxAttempts", u64::from(self.max_attempts));
        to.uint("backoff", u64::from(self.backoff_ms));
        to.some_uint("ttl", self.ttl_ms);
        to.some_uint("timeout", self.timeout_ms.map(u64::from));
        to.some_text("uniqueKey", self.unique_key);
        to.some_text("customId", self.custom_id);
        to.some_text("groupId", self.group_id);
        to.value("tags", self.tags);
        to.value("dependsOn", self.depends_on);
        if !self.unmet.is_empty() {
            to.ids("unmet", self.unmet.iter().map(|(id, _)| id));
        }
        if let Some(family) = &self.family {
            family.show(to);
        }
        if let Some(repeat) = self.repeat {
            to.map("repeat", |to| {
                to.uint("every", repeat.every_ms);
                to.uint_or_nil("limit", repeat.limit);
                to.uint("count", repeat.count);
                if let Some(recurrence) = &self.recurrence {
                    recurrence.show(to);
                }
            });
        }
        to.flag("lifo", self.lifo);
        to.flag("removeOnComplete", self.remove_on_complete);
        to.flag("removeOnFail", self.remove_on_fail);
        to.flag("durable", self.durable);
        if let Some(extras) = &self.extras {
            extras.show(to);
        }
        if let Some(trace) = &self.trace {
            trace.show(to);
        }
        to.value("data", self.data);
    }
}

impl NewFamily<'_> {
    fn show(&self, to: &mut impl Show) {
        to.some_text("parentId", self.parent);
        to.value("childrenIds", self.children);
        if let Some(policy) = self.policy {
            to.text("onFailure", policy.name());
        }
        if !self.open.is_empty() {
            to.ids("open", self.open.iter().map(|(id, _)| id));
        }
    }
}

impl NewTrace<'_> {
    fn show(&self, to: &mut impl Show) {
        let text = self.parent.text();
        // Hexadecimal digits are ASCII.
        to.text("traceparent", std::str::from_utf8(&text).unwrap_or_default());
        if !self.state.is_empty() {
            to.text("tracestate", self.state);
        }
    }
}

impl Extras {
    fn show(&self, to: &mut impl Show) {
        to.flag("fixedBackoff", self.backoff == Some(Growth::Fixed));
        to.some_uint("maxBackoff", self.backoff_max_ms.map(u64::from));
        to.some_uint("stallTimeout", self.stall_timeout_ms.map(u64::from));
        to.some_uint("keepLogs", self.keep_logs.map(u64::from));
        to.some_uint("sizeLimit", self.size_limit.map(u64::from));
        to.some_uint("stackTraceLimit", self.stack_lines_max.map(u64::from));
        to.some_uint("timestamp", self.made_at_ms);
        if let Some(dedup) = self.dedup {
            to.map("dedup", |to| {
                to.uint("ttl", dedup.ttl_ms);
                to.flag("extend", dedup.extend);
                to.flag("replace", dedup.replace);
                to.uint("until", dedup.until_ms);
            });
        }
    }
}
