//! The fields of one map, read against their specification in one pass.
//!
//! [`Fields::read`] checks each entry as it comes and keeps it in a fixed array; afterwards the
//! fields are taken in the order of the specification. Which command they make is not known here.

use corq_shards::command::{GroupPull, NewJob, Repeat, Stack, Token};
use corq_shards::extras::{Dedup, Growth};
use corq_shards::group::GroupRate;

use crate::api::flow::FlowJob;
use crate::api::limits::{BATCH_MAX, NAME_CHARS_MAX, PAYLOAD_BYTES_MAX, QUEUE_CHARS_MAX};
use crate::api::request::{JobRef, token_of};
use crate::api::spec::{FIELDS_MAX, FieldSpec, Kind, Preset, required_of};

use super::choices::read_choices;
use super::msgpack::{Malformed, Number, Reader};
use super::objects::{
    read_backoff, read_dedup, read_flow, read_flow_job, read_group_pull, read_group_rate,
    read_jobs, read_repeat,
};
use super::settings::{Rare, read_cron_job, read_dlq_config, read_dlq_filter, read_stall_config};

/// The text for a client. Only made when something is wrong.
pub(super) type Complaint = Box<str>;

impl From<Malformed> for Complaint {
    #[cold]
    fn from(what: Malformed) -> Self {
        format!("Invalid frame: {what}").into()
    }
}

/// A field's value after its checks. What would make the array of them larger goes to [`Aside`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Nothing,
    Integer(i64),
    Float(f64),
    Flag(bool),
    Text(&'a str),
    Raw(&'a [u8]),
    Mask(u32),
    Aside,
}

/// Values that do not fit the array: batches, made while they are read, since a second walk would
/// cost as much as the first, and what is large and rare.
#[derive(Default)]
pub(super) struct Aside<'a> {
    pub(super) jobs: Vec<NewJob<'a>>,
    pub(super) flow: Vec<FlowJob<'a>>,
    pub(super) flow_job: Option<NewJob<'a>>,
    pub(super) ids: Vec<JobRef<'a>>,
    pub(super) tokens: Vec<Option<Token>>,
    pub(super) results: Vec<&'a [u8]>,
    pub(super) repeat: Option<Repeat>,
    /// The object form of `backoff`: growth and longest wait.
    pub(super) backoff: Option<(Growth, Option<u32>)>,
    pub(super) dedup: Option<Dedup>,
    pub(super) group: Option<GroupPull<'a>>,
    pub(super) rate: Option<GroupRate>,
    pub(super) flags: Vec<bool>,
    pub(super) integers: Vec<i64>,
    pub(super) stack: Stack<'a>,
    /// What few commands bring.
    pub(super) rare: Option<Box<Rare<'a>>>,
}

/// Fields of a table for which there is always room. Those behind are rare, and get theirs with the first.
const USUAL: usize = 20;

/// The fields of one map.
pub(super) struct Fields<'a> {
    specs: &'static [FieldSpec],
    /// One bit per field that must be there.
    required: u64,
    values: [Value<'a>; USUAL],
    /// The values of fields beyond [`USUAL`]; empty if there was none yet.
    rare: Vec<Value<'a>>,
    /// One bit per field that was there. Values without their bit are left from an earlier map.
    present: u64,
    /// The next field to be taken.
    next: usize,
    /// Where the next key is looked for first: clients send fields in one order.
    hint: usize,
}

impl<'a> Fields<'a> {
    #[inline]
    pub(super) fn new(specs: &'static [FieldSpec], required: u64) -> Self {
        debug_assert_eq!(required, required_of(specs));
        let (values, rare) = ([Value::Nothing; USUAL], Vec::new());
        Self { specs, required, values, rare, present: 0, next: 0, hint: 0 }
    }

    #[inline]
    fn set(&mut self, index: usize, value: Value<'a>) {
        match self.values.get_mut(index) {
            Some(place) => *place = value,
            None => self.set_rare(index - USUAL, value),
        }
        self.present |= 1 << index;
    }

    #[cold]
    fn set_rare(&mut self, place: usize, value: Value<'a>) {
        self.rare.resize(FIELDS_MAX - USUAL, Value::Nothing);
        self.rare[place] = value;
    }

    #[inline]
    fn get(&self, index: usize) -> Value<'a> {
        if self.present & (1 << index) == 0 {
            return Value::Nothing;
        }
        self.values.get(index).copied().unwrap_or_else(|| self.rare[index - USUAL])
    }

    /// Makes ready for another map of the same fields.
    pub(super) fn reset(&mut self) {
        self.present = 0;
        self.next = 0;
        self.hint = 0;
    }

    /// Reads the value of `key`, whichever field that is. Fields without a specification are
    /// checked for form and left out.
    #[inline]
    pub(super) fn read(
        &mut self,
        key: &[u8],
        reader: &mut Reader<'a>,
        aside: &mut Aside<'a>,
    ) -> Result<(), Complaint> {
        let Some(index) = self.find(key) else {
            if std::str::from_utf8(key).is_err() {
                return Err(Malformed::NotUtf8.into());
            }
            reader.skip()?;
            return Ok(());
        };
        let spec = &self.specs[index];
        if reader.absent()? {
            if matches!(spec.kind, Kind::DlqFilter) {
                aside.rare.get_or_insert_default().filter_is_named = true;
            }
            return Ok(());
        }
        if self.present & (1 << index) != 0 {
            return Err(spec.repeated());
        }
        match read_value(spec, reader, aside)? {
            Value::Nothing => {}
            value => self.set(index, value),
        }
        Ok(())
    }

    #[inline]
    fn find(&mut self, key: &[u8]) -> Option<usize> {
        let specs = self.specs;
        let mut index = self.hint;
        for _ in 0..specs.len() {
            if index >= specs.len() {
                index = 0;
            }
            if specs[index].name.as_bytes() == key {
                self.hint = index + 1;
                return Some(index);
            }
            index += 1;
        }
        None
    }

    /// Refuses what lacks a required field.
    #[inline]
    pub(super) fn complete(&self) -> Result<(), Complaint> {
        let missing = self.required & !self.present;
        if missing == 0 {
            Ok(())
        } else {
            Err(self.specs[missing.trailing_zeros() as usize].missing())
        }
    }

    /// Whether no field is there beyond those that were taken.
    #[inline]
    pub(super) fn rest_is_absent(&self) -> bool {
        self.present >> self.next == 0
    }

    /// The next field of the specification, which must be `name`.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "eighteen times per job; a call costs more than it does"
    )]
    fn take(&mut self, name: &str) -> (Value<'a>, Preset) {
        let index = self.next;
        self.next += 1;
        debug_assert_eq!(self.specs[index].name, name, "fields are taken in the table's order");
        (self.get(index), self.specs[index].default)
    }

    /// A whole number with a default, or one that is required.
    #[inline]
    pub(super) fn integer(&mut self, name: &str) -> i64 {
        match self.take(name) {
            (Value::Integer(value), _) | (_, Preset::Integer(value)) => value,
            _ => 0,
        }
    }

    /// A whole number without a default.
    #[inline]
    pub(super) fn integer_or_none(&mut self, name: &str) -> Option<u64> {
        match self.take(name).0 {
            Value::Integer(value) => Some(value as u64),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn float(&mut self, name: &str) -> f64 {
        match self.take(name).0 {
            Value::Float(value) => value,
            _ => 0.0,
        }
    }

    #[inline]
    pub(super) fn flag(&mut self, name: &str) -> bool {
        matches!(self.take(name).0, Value::Flag(true))
    }

    #[inline]
    pub(super) fn flag_or_none(&mut self, name: &str) -> Option<bool> {
        match self.take(name).0 {
            Value::Flag(value) => Some(value),
            _ => None,
        }
    }

    /// A text that is required, or counts as empty.
    #[inline]
    pub(super) fn text(&mut self, name: &str) -> &'a str {
        self.text_or_none(name).unwrap_or_default()
    }

    #[inline]
    pub(super) fn text_or_none(&mut self, name: &str) -> Option<&'a str> {
        match self.take(name).0 {
            Value::Text(value) => Some(value),
            _ => None,
        }
    }

    /// A value as it came, empty for none.
    #[inline]
    pub(super) fn raw(&mut self, name: &str) -> &'a [u8] {
        match self.take(name).0 {
            Value::Raw(value) => value,
            _ => &[],
        }
    }

    /// The place of the chosen text among its choices, the default's if none was chosen.
    #[inline]
    pub(super) fn choice(&mut self, name: &str) -> usize {
        let kind = self.specs[self.next].kind;
        match (self.take(name), kind) {
            ((Value::Mask(mask), _), _) => mask.trailing_zeros() as usize,
            ((_, Preset::Text(default)), Kind::Choice(choices)) => {
                choices.iter().position(|choice| *choice == default).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The chosen texts, one bit each.
    #[inline]
    pub(super) fn mask(&mut self, name: &str) -> Option<u32> {
        match self.take(name).0 {
            Value::Mask(mask) => Some(mask),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn job(&mut self, name: &str) -> JobRef<'a> {
        JobRef::of(self.text(name))
    }

    #[inline]
    pub(super) fn job_or_none(&mut self, name: &str) -> Option<JobRef<'a>> {
        self.text_or_none(name).map(JobRef::of)
    }

    #[inline]
    pub(super) fn token(&mut self, name: &str) -> Option<Token> {
        self.text_or_none(name).and_then(token_of)
    }

    /// Steps over a field whose value is in [`Aside`], and says whether it was there.
    #[inline]
    pub(super) fn aside(&mut self, name: &str) -> bool {
        !matches!(self.take(name).0, Value::Nothing)
    }
}

/// Reads one value of the kind that `spec` asks for. [`Value::Nothing`] means that it counts as
/// absent after all.
#[inline]
fn read_value<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
) -> Result<Value<'a>, Complaint> {
    match spec.kind {
        Kind::Payload { bytes_max } => payload(spec, reader, bytes_max).map(Value::Raw),
        Kind::Queue => {
            let name = text(spec, reader)?;
            if is_queue_name(name) { Ok(Value::Text(name)) } else { Err(spec.out_of_bounds()) }
        }
        Kind::JobId => named(spec, reader, 1, NAME_CHARS_MAX),
        Kind::Text { chars_min, chars_max } => named(spec, reader, chars_min, chars_max),
        Kind::Token => text(spec, reader).map(Value::Text),
        Kind::Integer { min, max } => integer(spec, reader, min, max).map(Value::Integer),
        Kind::Flag => match reader.flag()? {
            Some(value) => Ok(Value::Flag(value)),
            None => Err(spec.wrong_type()),
        },
        Kind::LongText { bytes_max, cut } => {
            let text = text(spec, reader)?;
            if text.len() <= bytes_max as usize {
                Ok(Value::Text(text))
            } else if cut {
                Ok(Value::Text(self::cut(text, bytes_max as usize)))
            } else {
                Err(spec.out_of_bounds())
            }
        }
        Kind::Number { min, max } => number(spec, reader, f64::from(min), f64::from(max)),
        Kind::Texts { items_max, chars_max } => {
            texts(spec, reader, items_max, |item| within(item, 1, chars_max))
        }
        Kind::Stack { bytes_max } => {
            aside.stack = super::stack::read(spec, reader, bytes_max as usize)?;
            Ok(Value::Aside)
        }
        Kind::TextsOf(choices) => {
            texts(spec, reader, choices.len() as u32, |item| choices.contains(&item))
        }
        Kind::Queues { items_max } => texts(spec, reader, items_max, is_queue_name),
        Kind::Choice(choices) => {
            let chosen = text(spec, reader)?;
            match choices.iter().position(|choice| *choice == chosen) {
                Some(index) => Ok(Value::Mask(1 << index)),
                None => Err(spec.out_of_bounds()),
            }
        }
        Kind::Choices(choices) => read_choices(spec, reader, choices),
        Kind::Backoff => read_backoff(spec, reader, aside),
        Kind::Repeat => read_repeat(spec, reader, aside),
        Kind::Dedup => read_dedup(spec, reader, aside),
        Kind::CronJob => read_cron_job(spec, reader, aside),
        Kind::DlqConfig => read_dlq_config(spec, reader, aside),
        Kind::StallConfig => read_stall_config(spec, reader, aside),
        Kind::DlqFilter => read_dlq_filter(spec, reader, aside),
        Kind::Flags => {
            let count = batch(spec, reader)?;
            aside.flags = Vec::with_capacity(count);
            for index in 0..count {
                let flag = if reader.absent()? { Some(false) } else { reader.flag()? };
                aside.flags.push(flag.ok_or_else(|| spec.wrong_item(index))?);
            }
            Ok(Value::Aside)
        }
        Kind::Integers { min, max } => {
            let count = batch(spec, reader)?;
            aside.integers = Vec::with_capacity(count);
            for index in 0..count {
                let value = integer(spec, reader, min, max).map_err(|_| spec.wrong_item(index))?;
                aside.integers.push(value);
            }
            Ok(Value::Aside)
        }
        // Which of two bounds counts is known when all of the job is read.
        Kind::Priority => {
            integer(spec, reader, i32::MIN.into(), i32::MAX.into()).map(Value::Integer)
        }
        Kind::GroupPull => read_group_pull(spec, reader, aside),
        Kind::GroupRate => read_group_rate(spec, reader, aside),
        Kind::Jobs => read_jobs(spec, reader, aside),
        Kind::Flow => read_flow(spec, reader, aside),
        Kind::FlowJob => read_flow_job(spec, reader, aside),
        Kind::JobIds => {
            let count = batch(spec, reader)?;
            aside.ids = Vec::with_capacity(count);
            for index in 0..count {
                let id = item(spec, reader, index)?;
                if !within(id, 1, NAME_CHARS_MAX) {
                    return Err(spec.wrong_item(index));
                }
                aside.ids.push(JobRef::of(id));
            }
            Ok(Value::Aside)
        }
        Kind::Tokens => {
            let count = batch(spec, reader)?;
            aside.tokens = Vec::with_capacity(count);
            for index in 0..count {
                aside.tokens.push(if reader.absent()? {
                    None
                } else {
                    token_of(item(spec, reader, index)?)
                });
            }
            Ok(Value::Aside)
        }
        Kind::Results => {
            let count = batch(spec, reader)?;
            aside.results = Vec::with_capacity(count);
            for index in 0..count {
                aside.results.push(if reader.absent()? {
                    &[]
                } else {
                    result(spec, reader, index)?
                });
            }
            Ok(Value::Aside)
        }
    }
}

#[inline]
pub(super) fn text<'a>(spec: &FieldSpec, reader: &mut Reader<'a>) -> Result<&'a str, Complaint> {
    match reader.text() {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(spec.wrong_type()),
        Err(Malformed::NotUtf8) => Err(spec.not_utf8()),
        Err(what) => Err(what.into()),
    }
}

/// The text of one item of a list.
#[inline]
pub(super) fn item<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    index: usize,
) -> Result<&'a str, Complaint> {
    match reader.text() {
        Ok(Some(text)) => Ok(text),
        Ok(None) | Err(Malformed::NotUtf8) => Err(spec.wrong_item(index)),
        Err(what) => Err(what.into()),
    }
}

/// One of a list of payloads.
#[inline]
fn result<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    index: usize,
) -> Result<&'a [u8], Complaint> {
    match reader.skip() {
        Ok(value) if value.len() <= PAYLOAD_BYTES_MAX as usize => Ok(value),
        Ok(_) | Err(Malformed::NotUtf8 | Malformed::Depth) => Err(spec.wrong_item(index)),
        Err(what) => Err(what.into()),
    }
}

#[inline]
fn named<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    chars_min: u32,
    chars_max: u32,
) -> Result<Value<'a>, Complaint> {
    let text = text(spec, reader)?;
    if within(text, chars_min, chars_max) {
        Ok(Value::Text(text))
    } else {
        Err(spec.out_of_bounds())
    }
}

/// Whether a text has so many characters. Bytes bound characters from above, so few texts are
/// counted.
#[inline]
fn within(text: &str, chars_min: u32, chars_max: u32) -> bool {
    let (min, max) = (chars_min as usize, chars_max as usize);
    text.len() >= min && (text.len() <= max || text.chars().count() <= max)
}

/// The front of a text, cut at a character's edge.
#[cold]
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    // At most three steps: a character has four bytes, and 0 is an edge.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

const QUEUE_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0_usize;
    while byte < 256 {
        allowed[byte] = matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':');
        byte += 1;
    }
    allowed
};

/// The rule for queue names (`interface.md` 2.3).
#[inline]
pub(crate) fn is_queue_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= QUEUE_CHARS_MAX as usize
        && name.bytes().fold(true, |all, byte| all & QUEUE_BYTES[usize::from(byte)])
}

#[inline]
pub(super) fn integer(
    spec: &FieldSpec,
    reader: &mut Reader<'_>,
    min: i64,
    max: i64,
) -> Result<i64, Complaint> {
    let value = match reader.number()? {
        Some(Number::Whole(value)) => value,
        // The cast holds values beyond the range at its end, which no bound reaches.
        Some(Number::Float(value)) if value.is_finite() && value.fract() == 0.0 => value as i64,
        _ => return Err(spec.wrong_type()),
    };
    if (min..=max).contains(&value) { Ok(value) } else { Err(spec.out_of_bounds()) }
}

fn number<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    min: f64,
    max: f64,
) -> Result<Value<'a>, Complaint> {
    let value = match reader.number()? {
        Some(Number::Whole(value)) => value as f64,
        Some(Number::Float(value)) if !value.is_nan() => value,
        _ => return Err(spec.wrong_type()),
    };
    if (min..=max).contains(&value) { Ok(Value::Float(value)) } else { Err(spec.out_of_bounds()) }
}

#[inline]
fn payload<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    bytes_max: u32,
) -> Result<&'a [u8], Complaint> {
    match reader.skip() {
        Ok(value) if value.len() <= bytes_max as usize => Ok(value),
        Ok(_) => Err(spec.out_of_bounds()),
        Err(Malformed::NotUtf8) => Err(spec.not_utf8()),
        Err(Malformed::Depth) => Err(spec.too_deep()),
        Err(what) => Err(what.into()),
    }
}

/// A list of texts, kept as it came; an empty one counts as absent.
fn texts<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    items_max: u32,
    fits: impl Fn(&str) -> bool,
) -> Result<Value<'a>, Complaint> {
    let whole = reader.rest();
    let Some(count) = reader.array()? else { return Err(spec.wrong_type()) };
    if count > items_max as usize {
        return Err(spec.out_of_bounds());
    }
    for index in 0..count {
        if !fits(item(spec, reader, index)?) {
            return Err(spec.wrong_item(index));
        }
    }
    if count == 0 && !spec.required {
        return Ok(Value::Nothing);
    }
    Ok(Value::Raw(&whole[..whole.len() - reader.rest().len()]))
}

/// Enters a batch and says how many items it has.
#[inline]
pub(super) fn batch(spec: &FieldSpec, reader: &mut Reader<'_>) -> Result<usize, Complaint> {
    match reader.array()? {
        None => Err(spec.wrong_type()),
        Some(count) if count > BATCH_MAX as usize => Err(spec.out_of_bounds()),
        Some(count) => Ok(count),
    }
}
