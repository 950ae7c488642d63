//! Which fields the object of a text may have, and what becomes of each by its name.

use super::container::{Kind, Open};
use crate::protocol::msgpack::Reader;
use crate::protocol::msgpack::writer::Writer;
use std::fmt;

/// Unknown names of one text that are compared with those that are known: a client may send any number of them.
const COMPARISONS_MAX: u16 = 256;

/// What becomes of a field, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldFate {
    /// It stays.
    Keep,
    /// It stays; if it is a list of objects, the names of their fields are asked for as well.
    KeepList,
    /// It is left out.
    LeaveOut,
    /// It stays under this name.
    Rename(&'static str),
    /// It stays, and it is remembered that it was there.
    Noted,
    /// It stays, though it is not known.
    Unknown,
}

/// Which fields an object may have.
pub trait FieldNames: fmt::Debug + Sync {
    /// What becomes of a field of the object.
    fn fate(&self, name: &[u8]) -> FieldFate;

    /// Whether an object in a list has a field of this name.
    fn lists_have(&self, name: &[u8]) -> bool;

    /// The name that an unknown one seems to mean, of the object or of an object in a list.
    fn meant(&self, name: &[u8], in_list: bool) -> Option<&'static str>;
}

/// Leaves out the fields of these names.
impl<const N: usize> FieldNames for [&'static str; N] {
    fn fate(&self, name: &[u8]) -> FieldFate {
        let is_named = self.iter().any(|one| one.as_bytes() == name);
        if is_named { FieldFate::LeaveOut } else { FieldFate::Keep }
    }

    fn lists_have(&self, _: &[u8]) -> bool {
        true
    }

    fn meant(&self, _: &[u8], _: bool) -> Option<&'static str> {
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
    /// Whether the field is a list of objects whose names count.
    is_list: bool,
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
            is_list: false,
            comparisons_left: COMPARISONS_MAX,
            misnamed: None,
            found: false,
            noted: false,
        }
    }

    /// Minds the name of the field whose key has just been written, within these containers.
    pub(super) fn note(&mut self, open: &[Open], out: &mut Vec<u8>, key_at: usize) {
        if !self.found {
            return;
        }
        // A longer key bears none of the names.
        let Some(key) = Reader::new(&out[key_at..]).text_bytes().ok().flatten() else {
            return;
        };
        let in_list = open.len() > 1;
        let is_unknown = if in_list {
            self.is_list && open[1].kind == Kind::Array && !self.names.lists_have(key)
        } else {
            let fate = self.names.fate(key);
            self.dropped = (fate == FieldFate::LeaveOut).then_some(key_at);
            self.is_list = fate == FieldFate::KeepList;
            self.noted |= fate == FieldFate::Noted;
            if let FieldFate::Rename(name) = fate {
                out.truncate(key_at);
                Writer::new(out).str(name);
                return;
            }
            fate == FieldFate::Unknown
        };
        if is_unknown && self.misnamed.is_none() && self.comparisons_left > 0 {
            self.comparisons_left -= 1;
            let meant = self.names.meant(key, in_list);
            self.misnamed = meant.map(|meant| (String::from_utf8_lossy(key).into(), meant));
        }
    }
}
