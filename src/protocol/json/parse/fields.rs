//! Which fields the object of a text may have, and what becomes of each by its name.

use super::container::{Kind, Open};
use crate::api::commands::FieldSpec;
use crate::api::spelling;
use crate::protocol::msgpack::Reader;
use crate::protocol::msgpack::writer::Writer;
use std::fmt;

/// Unknown names of one text that are compared with those that are known: a client may send any number of them.
const COMPARISONS_MAX: u16 = 256;

/// Containers that are open, at most, where fields of the table are read: those of an option of a job of a flow.
const WITHIN_MAX: usize = 6;

/// Treatment of a field, by its name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FieldFate {
    /// The field stays.
    Keep,
    /// The field stays. Names within the object that it holds, or within those of its list, are looked for in this table.
    KeepWith(&'static [FieldSpec]),
    /// The field is left out.
    LeaveOut,
    /// The field stays under this name.
    Rename(&'static str),
    /// The field stays, and its presence is remembered.
    Noted,
    /// The field stays, and a known name that it seems to mean is looked for.
    Unknown,
}

/// Which fields an object may have.
pub trait FieldNames: fmt::Debug + Sync {
    /// The treatment of a field of the object.
    fn fate(&self, name: &[u8]) -> FieldFate;

    /// The name that an unknown one seems to mean.
    fn meant(&self, name: &[u8]) -> Option<&'static str>;
}

/// Leaves out the fields of these names.
impl<const N: usize> FieldNames for [&'static str; N] {
    fn fate(&self, name: &[u8]) -> FieldFate {
        let is_named = self.iter().any(|one| one.as_bytes() == name);
        if is_named { FieldFate::LeaveOut } else { FieldFate::Keep }
    }

    fn meant(&self, _: &[u8]) -> Option<&'static str> {
        None
    }
}

/// A map into which the fields of the object go that the text is, as their names say.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) map: Open,
    pub(super) names: &'static dyn FieldNames,
    /// Where the field begins that is to be left out.
    pub(super) dropped: Option<usize>,
    /// The fields within the one that has come last, for each container that is open; none if any may be there.
    within: [&'static [FieldSpec]; WITHIN_MAX],
    /// How many unknown names may still be compared with those that are known.
    comparisons_left: u16,
    /// The first name that seems to mean another.
    pub(super) misnamed: Option<(Box<str>, &'static str)>,
    /// Whether the text has turned out to be an object.
    pub(super) found: bool,
    /// Whether it has one of the fields that are noted.
    pub(super) noted: bool,
}

impl Fields {
    /// Fields that join those of a map, as their names say.
    pub(super) fn new(map: Open, names: &'static dyn FieldNames) -> Self {
        Self {
            map,
            names,
            dropped: None,
            within: [&[]; WITHIN_MAX],
            comparisons_left: COMPARISONS_MAX,
            misnamed: None,
            found: false,
            noted: false,
        }
    }

    /// Minds the name of the field whose key has just been written, within these containers.
    pub(super) fn note(&mut self, open: &[Open], out: &mut Vec<u8>, key_at: usize) {
        if !self.found || open.len() > WITHIN_MAX {
            return;
        }
        let outer = self.fields_of(open);
        if outer.is_some_and(<[_]>::is_empty) {
            self.within[open.len() - 1] = &[];
            return;
        }
        // A longer key bears none of the names.
        let Some(key) = Reader::new(&out[key_at..]).text_bytes().ok().flatten() else {
            return;
        };
        let (is_unknown, within) = if let Some(fields) = outer {
            let known = fields.iter().find(|field| field.name.as_bytes() == key);
            (known.is_none(), known.map_or(&[][..], |field| field.kind.fields()))
        } else {
            let fate = self.names.fate(key);
            self.dropped = (fate == FieldFate::LeaveOut).then_some(key_at);
            self.noted |= fate == FieldFate::Noted;
            if let FieldFate::Rename(name) = fate {
                out.truncate(key_at);
                Writer::new(out).str(name);
                self.within[0] = &[];
                return;
            }
            let within = if let FieldFate::KeepWith(fields) = fate { fields } else { &[] };
            (fate == FieldFate::Unknown, within)
        };
        self.within[open.len() - 1] = within;
        if is_unknown && self.misnamed.is_none() && self.comparisons_left > 0 {
            self.comparisons_left -= 1;
            let meant = match outer {
                None => self.names.meant(key),
                Some(fields) => std::str::from_utf8(key)
                    .ok()
                    .and_then(|key| spelling::meant(key, fields.iter().map(|field| field.name))),
            };
            self.misnamed = meant.map(|meant| (String::from_utf8_lossy(key).into(), meant));
        }
    }

    /// The fields of the object that is read, none if any may be there; `None` of the outermost.
    fn fields_of(&self, open: &[Open]) -> Option<&'static [FieldSpec]> {
        let above = open.len().checked_sub(2)?;
        let holder = match open[above].kind {
            Kind::Map => Some(above),
            // The list is the value of a field, or in another list.
            Kind::Array => above.checked_sub(1).filter(|&at| open[at].kind == Kind::Map),
        };
        Some(holder.map_or(&[], |at| self.within[at]))
    }
}
