//! The fields of one map, read against their specification in one pass.
//!
//! [`Fields::read`] checks each entry as it comes and keeps it in a fixed array; afterwards the
//! fields are taken in the order of the specification. Which command they make is not known here.

use corq_shards::command::{GroupPull, Stack, Token};
use corq_shards::group::GroupRate;
use corq_shards::job::new_job::{NewJob, Repeat};
use corq_shards::job::overrides::{Dedup, Growth};
use corq_shards::job::recurrence::Recurrence;

use crate::api::commands::{FIELDS_MAX, FieldSpec, Kind, Preset, required_of};
use crate::api::error::Error;
use crate::api::flow::FlowJob;
use crate::api::request::{JobRef, StateFilter};
use crate::api::size::IGNORED_BYTES_MAX;
use crate::api::spelling;
use crate::api::version::Version;

use super::settings::Rare;
use super::value::{FromValue, Value, cut, read_value};
use crate::protocol::msgpack::known::Known;
use crate::protocol::msgpack::{Malformed, Reader};

impl From<Malformed> for Error {
    #[cold]
    fn from(what: Malformed) -> Self {
        Self::invalid_frame(what)
    }
}

/// Values that do not fit the array: batches, made while they are read, since a second walk would
/// cost as much as the first, and what is large and rare.
#[derive(Default)]
pub(crate) struct Aside<'a> {
    pub(crate) jobs: Vec<NewJob<'a>>,
    pub(crate) flow: Vec<FlowJob<'a>>,
    pub(crate) ids: Vec<JobRef<'a>>,
    pub(crate) tokens: Vec<Option<Token>>,
    pub(crate) results: Vec<&'a [u8]>,
    pub(crate) repeat: Option<Repeat>,
    pub(crate) recurrence: Option<Box<Recurrence<'a>>>,
    /// The object form of `backoff`: growth and longest wait.
    pub(crate) backoff: Option<(Growth, Option<u32>)>,
    pub(crate) dedup: Option<Dedup>,
    pub(crate) group: Option<GroupPull<'a>>,
    pub(crate) rate: Option<GroupRate>,
    pub(crate) flags: Vec<bool>,
    pub(crate) integers: Vec<i64>,
    pub(crate) stack: Stack<'a>,
    /// Cron expressions that there were; a long one counts as several.
    pub(crate) patterns: usize,
    /// Bytes of fields that are not known.
    pub(crate) ignored_bytes: usize,
    /// Values of fields that few commands have, boxed to keep the others small.
    pub(crate) rare: Option<Box<Rare<'a>>>,
    /// The payloads of a long request, which have been checked before.
    pub(crate) known: Known<'a>,
    /// The version of the protocol that the request is read as.
    pub(crate) version: Version,
    /// Whether it has a field that only version 3 has.
    pub(crate) has_of_three: bool,
}

impl Aside<'_> {
    /// Steps over the value of a field that is not known, once it has been checked for form.
    #[cold]
    fn ignore(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let room = IGNORED_BYTES_MAX - self.ignored_bytes;
        let Some(value) = reader.skip_within(room)? else {
            return Err(Error::unknown_fields_too_large(IGNORED_BYTES_MAX));
        };
        self.ignored_bytes += value.len();
        Ok(())
    }
}

/// The payload null.
const NULL: &[u8] = &[0xc0];

/// Fields of a table for which there is always room. Those behind are rare, and get theirs with the first.
const USUAL: usize = 20;

/// The fields of one map.
pub(crate) struct Fields<'a> {
    specs: &'static [FieldSpec],
    /// Required fields, one bit for each.
    required: u64,
    values: [Value<'a>; USUAL],
    /// The values of fields beyond [`USUAL`]; empty if there was none yet.
    rare: Vec<Value<'a>>,
    /// Fields that were there, one bit for each. Values without their bit are left from an earlier map.
    present: u64,
    /// The next field to be taken.
    next: usize,
    /// Where the next key is looked for first: clients send fields in one order.
    hint: usize,
    /// Whether a name that is not known is refused, instead of saying nothing.
    is_closed: bool,
    /// Whether a null and an empty list are refused as well.
    is_strict: bool,
}

impl<'a> Fields<'a> {
    #[inline]
    pub(crate) fn new(specs: &'static [FieldSpec], required: u64) -> Self {
        debug_assert_eq!(required, required_of(specs));
        let (values, rare) = ([Value::Nothing; USUAL], Vec::new());
        let (is_closed, is_strict) = (false, false);
        Self { specs, required, values, rare, present: 0, next: 0, hint: 0, is_closed, is_strict }
    }

    /// Refuses unknown names if `is_closed`, for the reason that stands at `CommandSpec::is_closed`.
    #[inline]
    pub(crate) fn closed(self, is_closed: bool) -> Self {
        Self { is_closed, ..self }
    }

    /// Refuses nulls and empty lists if `is_strict`, beside unknown names: no client of another server sends them to such a
    /// command.
    #[inline]
    pub(crate) fn strict(self, is_strict: bool) -> Self {
        Self { is_closed: self.is_closed || is_strict, is_strict, ..self }
    }

    /// Where the value of a field lies.
    #[inline]
    fn slot(&mut self, index: usize) -> &mut Value<'a> {
        if index < USUAL { &mut self.values[index] } else { self.rare_slot(index - USUAL) }
    }

    #[cold]
    fn rare_slot(&mut self, place: usize) -> &mut Value<'a> {
        self.rare.resize(FIELDS_MAX - USUAL, Value::Nothing);
        &mut self.rare[place]
    }

    #[cold]
    fn set(&mut self, index: usize, value: Value<'a>) {
        *self.slot(index) = value;
        self.present |= 1 << index;
    }

    #[inline]
    fn get(&self, index: usize) -> Value<'a> {
        if self.present & (1 << index) == 0 {
            return Value::Nothing;
        }
        self.values.get(index).copied().unwrap_or_else(|| self.rare[index - USUAL])
    }

    /// Makes ready for another map of the same fields.
    pub(crate) fn reset(&mut self) {
        self.present = 0;
        self.next = 0;
        self.hint = 0;
    }

    /// Reads the value of `key`, whichever field that is. Fields without a specification are
    /// checked for form and left out.
    #[inline]
    pub(crate) fn read(
        &mut self,
        key: &[u8],
        reader: &mut Reader<'a>,
        aside: &mut Aside<'a>,
    ) -> Result<(), Error> {
        let Some(index) = self.find(key) else {
            if std::str::from_utf8(key).is_err() {
                return Err(Malformed::NotUtf8.into());
            }
            if self.is_closed {
                return Err(self.unknown(key));
            }
            return aside.ignore(reader);
        };
        let specs = self.specs;
        let spec = &specs[index];
        let rest = reader.rest();
        if reader.absent()? {
            return self.note_absent(index, rest.first(), aside);
        }
        aside.has_of_three |= spec.is_of_three;
        if self.present & (1 << index) != 0 {
            return Err(spec.repeated());
        }
        let slot = self.slot(index);
        read_value(spec, reader, aside, slot)?;
        if !matches!(slot, Value::Nothing) {
            self.present |= 1 << index;
        } else if self.is_strict {
            return Err(Error::empty(spec.name));
        }
        Ok(())
    }

    /// The refusal of a name that is not known, with the one that it seems to mean.
    #[cold]
    fn unknown(&self, key: &[u8]) -> Error {
        /// A name is shown, not a payload: enough to recognise it.
        const SHOWN_BYTES_MAX: usize = 64;
        let name = std::str::from_utf8(key).unwrap_or_default();
        let shown = spelling::shown(cut(name, SHOWN_BYTES_MAX));
        match spelling::meant(name, self.specs.iter().map(|spec| spec.name)) {
            Some(known) => Error::no_field_but(&shown, known),
            None => Error::no_field(&shown),
        }
    }

    /// A field is there without a value. Null is one where a payload has to be: its client says what the job holds.
    #[cold]
    fn note_absent(
        &mut self,
        index: usize,
        first: Option<&u8>,
        aside: &mut Aside<'a>,
    ) -> Result<(), Error> {
        let spec = &self.specs[index];
        match spec.kind {
            Kind::DlqFilter => {
                aside.rare.get_or_insert_default().filter_is_named = true;
                aside.has_of_three = true;
            }
            Kind::Payload { .. }
                if (spec.required || self.is_strict)
                    && first == NULL.first()
                    && self.present & (1 << index) == 0 =>
            {
                self.set(index, Value::Raw(NULL));
            }
            // Of a required one it is said that it lacks.
            _ if self.is_strict && !spec.required => return Err(Error::null(spec.name)),
            _ => {}
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
    pub(crate) fn complete(&mut self, version: Version) -> Result<(), Error> {
        let missing = self.required & !self.present;
        if missing == 0 { Ok(()) } else { self.complete_slow(missing, version) }
    }

    /// In version 3 a payload that is not there is null: clients leave out what they were given as undefined.
    #[cold]
    fn complete_slow(&mut self, mut missing: u64, version: Version) -> Result<(), Error> {
        while missing != 0 {
            let index = missing.trailing_zeros() as usize;
            let spec = &self.specs[index];
            if !version.is_three() || !matches!(spec.kind, Kind::Payload { .. }) {
                return Err(spec.missing());
            }
            self.set(index, Value::Raw(NULL));
            missing &= missing - 1;
        }
        Ok(())
    }

    /// Whether no field is there beyond those that were taken.
    #[inline]
    pub(crate) fn rest_is_absent(&self) -> bool {
        self.present >> self.next == 0
    }

    /// The next field of the specification: its value, and what it counts as without one.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "eighteen times per job; a call costs more than it does"
    )]
    pub(crate) fn next(&mut self) -> (Value<'a>, Preset) {
        let index = self.next;
        self.next += 1;
        (self.get(index), self.specs[index].default)
    }

    /// The next field, which must be `name`.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "eighteen times per job; a call costs more than it does"
    )]
    fn take<T: FromValue<'a>>(&mut self, name: &str) -> T {
        let place = self.next;
        debug_assert_eq!(self.specs[place].name, name, "fields are taken in the table's order");
        let (value, preset) = self.next();
        T::from_value(value, preset)
    }

    /// A whole number with a default, or one that is required.
    #[inline]
    pub(crate) fn integer(&mut self, name: &str) -> i64 {
        self.take(name)
    }

    /// A whole number without a default.
    #[inline]
    pub(crate) fn integer_or_none(&mut self, name: &str) -> Option<u64> {
        self.take(name)
    }

    /// A whole number without a default, negative ones included.
    pub(crate) fn whole_or_none(&mut self, name: &str) -> Option<i64> {
        debug_assert_eq!(self.specs[self.next].name, name, "fields are taken in the table's order");
        match self.next().0 {
            Value::Integer(value) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        self.take(name)
    }

    #[inline]
    pub(crate) fn flag_or_none(&mut self, name: &str) -> Option<bool> {
        self.take(name)
    }

    /// A text that is required, or counts as empty.
    #[inline]
    pub(crate) fn text(&mut self, name: &str) -> &'a str {
        self.take(name)
    }

    #[inline]
    pub(crate) fn text_or_none(&mut self, name: &str) -> Option<&'a str> {
        self.take(name)
    }

    /// A value as it came, empty for none.
    #[inline]
    pub(crate) fn raw(&mut self, name: &str) -> &'a [u8] {
        self.take(name)
    }

    /// The place of the chosen text among its choices, the default's if none was chosen.
    #[inline]
    pub(crate) fn choice(&mut self, name: &str) -> usize {
        debug_assert_eq!(self.specs[self.next].name, name, "fields are taken in the table's order");
        self.next_choice()
    }

    /// As [`Self::choice`], for the next field, whatever its name is.
    #[inline]
    pub(crate) fn next_choice(&mut self) -> usize {
        let kind = self.specs[self.next].kind;
        match (self.next(), kind) {
            ((Value::Mask(mask), _), _) => mask.trailing_zeros() as usize,
            ((_, Preset::Text(default)), Kind::Choice(choices)) => {
                choices.iter().position(|choice| *choice == default).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The chosen text, as a bit.
    #[inline]
    pub(crate) fn mask(&mut self, name: &str) -> Option<u32> {
        self.take::<Option<StateFilter>>(name).map(|chosen| chosen.0)
    }

    #[inline]
    pub(crate) fn job_or_none(&mut self, name: &str) -> Option<JobRef<'a>> {
        self.take(name)
    }

    /// Steps over a field whose value is in [`Aside`], and says whether it was there.
    #[inline]
    pub(crate) fn aside(&mut self, name: &str) -> bool {
        debug_assert_eq!(self.specs[self.next].name, name, "fields are taken in the table's order");
        !matches!(self.next().0, Value::Nothing)
    }
}
