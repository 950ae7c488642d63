//! A value of a field, read and checked against the field's specification. Which field of which map it is, and what the
//! value means, is not known here.

use crate::api::commands::{FieldSpec, Kind, Preset};
use crate::api::error::Error;
use crate::api::limits::{BATCH_MAX, NAME_CHARS_MAX, PAYLOAD_BYTES_MAX, QUEUE_CHARS_MAX};
use crate::api::request::{JobRef, StateFilter, token_of};
use crate::api::version::Version;

use super::choices::read_choices;
use super::fields::Aside;
use super::objects::{
    read_backoff, read_dedup, read_flow, read_flow_job, read_group_pull, read_group_rate,
    read_jobs, read_repeat,
};
use super::settings::{
    read_bulk_filter, read_cron_job, read_dlq_config, read_dlq_filter, read_stall_config,
};
use crate::protocol::msgpack::known::Known;
use crate::protocol::msgpack::{Malformed, Number, Reader, Texts};
use corq_shards::command::Token;
use corq_shards::job::trace::{TraceParent, is_trace_state};

/// A field's value after its checks. What would make the array of them larger goes to [`Aside`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Nothing,
    Integer(i64),
    Float(f64),
    Flag(bool),
    Text(&'a str),
    Raw(&'a [u8]),
    Mask(u32),
    Aside,
}

/// Types that the value of a field becomes.
pub(crate) trait FromValue<'a> {
    /// Converts a value that was checked, or the preset of an absent one.
    fn from_value(value: Value<'a>, preset: Preset) -> Self;
}

macro_rules! from_value {
    ($($type:ty: ($value:pat, $preset:pat) => $some:expr, else $none:expr;)*) => {
        $(impl<'a> FromValue<'a> for $type {
            #[inline]
            fn from_value(value: Value<'a>, preset: Preset) -> Self {
                match (value, preset) {
                    ($value, $preset) => $some,
                    _ => $none,
                }
            }
        })*
    };
}

from_value! {
    &'a str: (Value::Text(text), _) => text, else "";
    Option<&'a str>: (Value::Text(text), _) => Some(text), else None;
    &'a [u8]: (Value::Raw(value), _) => value, else &[];
    f64: (Value::Float(value), _) => value, else 0.0;
    Option<bool>: (Value::Flag(value), _) => Some(value), else None;
    Option<StateFilter>: (Value::Mask(mask), _) => Some(StateFilter(mask)), else None;
}

/// The bytes of a text.
impl<'a> FromValue<'a> for Option<&'a [u8]> {
    #[inline]
    fn from_value(value: Value<'a>, _: Preset) -> Self {
        match value {
            Value::Text(text) => Some(text.as_bytes()),
            Value::Raw(text) => Some(text),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for i64 {
    #[inline]
    fn from_value(value: Value<'a>, preset: Preset) -> Self {
        match (value, preset) {
            (Value::Integer(value), _) | (_, Preset::Integer(value)) => value,
            _ => 0,
        }
    }
}

/// Types that are made of another one's value.
macro_rules! from_other {
    ($($type:ty: $other:ty, $value:ident => $made:expr;)*) => {
        $(impl<'a> FromValue<'a> for $type {
            #[inline]
            fn from_value(value: Value<'a>, preset: Preset) -> Self {
                let $value = <$other>::from_value(value, preset);
                $made
            }
        })*
    };
}

// Bounds of fields are within those of their types.
from_other! {
    u64: i64, value => value as u64;
    u32: i64, value => value as u32;
    i32: i64, value => value as i32;
    bool: Option<bool>, value => value == Some(true);
    JobRef<'a>: &'a str, text => JobRef::of(text);
    Option<JobRef<'a>>: Option<&'a str>, text => text.map(JobRef::of);
    Option<Token>: Option<&'a str>, text => text.and_then(token_of);
    Texts<'a>: &'a [u8], list => Texts::new(list);
}

impl<'a> FromValue<'a> for Option<u64> {
    #[inline]
    fn from_value(value: Value<'a>, preset: Preset) -> Self {
        match (value, preset) {
            (Value::Integer(value), _) | (_, Preset::Integer(value)) => u64::try_from(value).ok(),
            _ => None,
        }
    }
}

/// Reads one value of the kind that `spec` asks for into its place. [`Value::Nothing`] means that it counts as
/// absent after all.
#[inline]
pub(crate) fn read_value<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    aside: &mut Aside<'a>,
    slot: &mut Value<'a>,
) -> Result<(), Error> {
    *slot = match spec.kind {
        Kind::Payload { bytes_max } => Value::Raw(payload(spec, reader, aside.known, bytes_max)?),
        Kind::Queue => {
            let name = text(spec, reader)?;
            if !is_queue_name(name) {
                return Err(spec.out_of_bounds());
            }
            Value::Text(name)
        }
        Kind::JobId => Value::Text(named(spec, reader, 1, NAME_CHARS_MAX)?),
        Kind::Text { chars_min, chars_max } => {
            Value::Text(named(spec, reader, chars_min, chars_max)?)
        }
        Kind::Token => Value::Text(text(spec, reader)?),
        Kind::Traceparent => formed(spec, reader, |text| TraceParent::parse(text).is_some())?,
        Kind::Tracestate => formed(spec, reader, is_trace_state)?,
        Kind::Integer { min, max } => {
            let before = *reader;
            match integer(spec, reader, min, max) {
                Ok(value) => Value::Integer(value),
                Err(error) => lenient_integer(spec, before, aside.version).ok_or(error)?,
            }
        }
        Kind::Flag => match reader.flag()? {
            Some(value) => Value::Flag(value),
            None => return Err(spec.wrong_type()),
        },
        Kind::LongText { bytes_max, cut } => {
            if let Some(value) = reader.skip_known(aside.known) {
                Reader::new(value).text_bytes()?.map_or(Value::Nothing, Value::Raw)
            } else {
                let text = text(spec, reader)?;
                Value::Text(match text.len() <= bytes_max as usize {
                    true => text,
                    false if cut => self::cut(text, bytes_max as usize),
                    false => return Err(spec.out_of_bounds()),
                })
            }
        }
        Kind::Number { min, max } => number(spec, reader, f64::from(min), f64::from(max))?,
        Kind::Texts { items_max, chars_max } => {
            texts(spec, reader, items_max, |item| within(item, 1, chars_max))?
        }
        Kind::Stack { bytes_max } => {
            aside.stack = super::stack_trace::read(spec, reader, bytes_max as usize)?;
            Value::Aside
        }
        Kind::TextsOf(choices) => {
            let items_max = choices.len() as u32;
            texts(spec, reader, items_max, |item| choices.contains(&item))?
        }
        Kind::Queues { items_max } => texts(spec, reader, items_max, is_queue_name)?,
        Kind::Choice(choices) => {
            let chosen = text(spec, reader)?;
            match choices.iter().position(|choice| *choice == chosen) {
                Some(index) => Value::Mask(1 << index),
                None => return Err(spec.out_of_bounds()),
            }
        }
        Kind::Choices(choices) => read_choices(spec, reader, choices)?,
        Kind::Backoff => read_backoff(spec, reader, aside)?,
        Kind::Repeat => read_repeat(spec, reader, aside)?,
        Kind::Dedup => read_dedup(spec, reader, aside)?,
        Kind::CronJob => read_cron_job(spec, reader, aside)?,
        Kind::DlqConfig => read_dlq_config(spec, reader, aside)?,
        Kind::StallConfig => read_stall_config(spec, reader, aside)?,
        Kind::DlqFilter => read_dlq_filter(spec, reader, aside)?,
        Kind::BulkFilter => read_bulk_filter(spec, reader, aside)?,
        Kind::Flags => {
            let count = batch(spec, reader)?;
            aside.flags = Vec::with_capacity(count);
            for index in 0..count {
                let flag = if reader.absent()? { Some(false) } else { reader.flag()? };
                aside.flags.push(flag.ok_or_else(|| spec.wrong_item(index))?);
            }
            Value::Aside
        }
        Kind::Integers { min, max } => {
            let count = batch(spec, reader)?;
            aside.integers = Vec::with_capacity(count);
            for index in 0..count {
                let value = integer(spec, reader, min, max);
                let value = value.map_err(|_| spec.wrong_item(index))?;
                aside.integers.push(value);
            }
            Value::Aside
        }
        // Which of two bounds counts is known when all of the job is read.
        Kind::Priority => Value::Integer(integer(spec, reader, i32::MIN.into(), i32::MAX.into())?),
        Kind::GroupPull => read_group_pull(spec, reader, aside)?,
        Kind::GroupRate => read_group_rate(spec, reader, aside)?,
        Kind::Jobs => read_jobs(spec, reader, aside)?,
        Kind::Flow => read_flow(spec, reader, aside)?,
        Kind::FlowJob => read_flow_job(spec, reader, aside)?,
        Kind::JobIds => {
            let count = batch(spec, reader)?;
            aside.ids = Vec::with_capacity(count);
            for index in 0..count {
                let place = index;
                let id = item(spec, reader, place)?;
                if !within(id, 1, NAME_CHARS_MAX) {
                    return Err(spec.wrong_item(place));
                }
                aside.ids.push(JobRef::of(id));
            }
            Value::Aside
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
            Value::Aside
        }
        Kind::Results => {
            let count = batch(spec, reader)?;
            aside.results = Vec::with_capacity(count);
            for index in 0..count {
                aside.results.push(if reader.absent()? {
                    &[]
                } else {
                    result(spec, reader, aside.known, index)?
                });
            }
            Value::Aside
        }
    };
    Ok(())
}

/// Value that version 3 takes a number for which version 2 refuses: a number below the bound counts as absent. `before`
/// stands in front of the number.
#[cold]
fn lenient_integer<'a>(
    spec: &FieldSpec,
    mut before: Reader<'a>,
    version: Version,
) -> Option<Value<'a>> {
    let Kind::Integer { min, .. } = spec.kind else { return None };
    let is_lenient = version.is_three() && spec.is_absent_below;
    let is_below = |number: Number| match number {
        Number::Whole(value) => value < min,
        Number::Float(value) => value < min as f64,
    };
    let number = before.number().ok().flatten().filter(|_| is_lenient);
    number.filter(|&number| is_below(number)).map(|_| Value::Nothing)
}

#[inline]
pub(crate) fn text<'a>(spec: &FieldSpec, reader: &mut Reader<'a>) -> Result<&'a str, Error> {
    match reader.text() {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(spec.wrong_type()),
        Err(Malformed::NotUtf8) => Err(spec.not_utf8()),
        Err(what) => Err(what.into()),
    }
}

/// A text of a form.
#[cold]
fn formed<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    is_formed: impl Fn(&str) -> bool,
) -> Result<Value<'a>, Error> {
    let text = text(spec, reader)?;
    if is_formed(text) { Ok(Value::Text(text)) } else { Err(spec.out_of_bounds()) }
}

/// The text of one item of a list.
#[inline]
pub(crate) fn item<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    index: usize,
) -> Result<&'a str, Error> {
    match reader.text() {
        Ok(Some(text)) => Ok(text),
        Ok(None) | Err(Malformed::NotUtf8) => Err(spec.wrong_item(index)),
        Err(what) => Err(what.into()),
    }
}

/// Reads an item of a list of payloads.
#[inline]
fn result<'a>(
    spec: &FieldSpec,
    reader: &mut Reader<'a>,
    known: Known<'_>,
    index: usize,
) -> Result<&'a [u8], Error> {
    match reader.skip_known(known).map_or_else(|| reader.skip(), Ok) {
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
) -> Result<&'a str, Error> {
    let text = text(spec, reader)?;
    if within(text, chars_min, chars_max) { Ok(text) } else { Err(spec.out_of_bounds()) }
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
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
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

/// The rule for queue names (`docs/protocol.md`, "Types").
#[inline]
pub(crate) fn is_queue_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= QUEUE_CHARS_MAX as usize
        && name.bytes().fold(true, |all, byte| all & QUEUE_BYTES[usize::from(byte)])
}

#[inline]
pub(crate) fn integer(
    spec: &FieldSpec,
    reader: &mut Reader<'_>,
    min: i64,
    max: i64,
) -> Result<i64, Error> {
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
) -> Result<Value<'a>, Error> {
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
    known: Known<'_>,
    bytes_max: u32,
) -> Result<&'a [u8], Error> {
    match reader.skip_known(known).map_or_else(|| reader.skip(), Ok) {
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
) -> Result<Value<'a>, Error> {
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
pub(crate) fn batch(spec: &FieldSpec, reader: &mut Reader<'_>) -> Result<usize, Error> {
    match reader.array()? {
        None => Err(spec.wrong_type()),
        Some(count) if count > BATCH_MAX as usize => Err(spec.out_of_bounds()),
        Some(count) => Ok(count),
    }
}
