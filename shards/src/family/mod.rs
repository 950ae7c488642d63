//! Parents and children: what a job learns of the jobs that were made for it, and what becomes of it
//! when one of those fails for good.
//!
//! A parent waits for its children as for any other job ([`crate::dependency`]); besides, it keeps how
//! each of them ended, so that their values outlive them. A child says with its end, not before, what
//! that means for its parent. Which shard has which job is not known here.
//!
//! | file | responsibility |
//! |---|---|
//! | `child_ends` | how each child ended, and what is left of that when the parent is gone |
//! | `child_results` | how children ended, kept for their parent |
//! | `links` | children that come, go, or are let go of |
//! | `unreported` | ends of children that their parent has yet to learn |

mod child_ends;
pub(crate) mod child_results;
pub(crate) mod links;
pub mod unreported;

pub(crate) use child_ends::Orphaned;
pub use child_ends::{ChildEnd, ChildEnds};

use crate::dependency::Unmet;
use crate::dependency::unmet::{Dependency, UnmetDependencies};
use crate::effect::KnownAs;
use crate::job::id::JobId;
use crate::job::stack::text_len;
use crate::log_record::codec::{Malformed, Reader, Writer};
use crate::log_record::location::LogRef;
use crate::log_record::row::{Body, parts};
use crate::log_record::show::Show;

/// Most children of one job: what is kept of them fits one record.
pub const CHILDREN_MAX: usize = 100_000;

/// Bytes of a child in the record of its parent beside its id, at most, if the parent has it from the start.
pub const CHILD_BYTES: usize = 80;

/// Payload and children of one job together: what always fits a record.
pub const FAMILY_BYTES_MAX: usize = 11 << 20;

/// Children of one job whose names are kept while they are waited for, for what may be told of them.
pub const NAMED_CHILDREN_MAX: usize = 1000;

/// Effect on a parent when a child fails for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// The parent fails, too.
    Fail = 1,
    /// The parent goes on at once, whatever else it waits for.
    Continue = 2,
    /// The parent waits for that child no longer, and can ask how it failed.
    Ignore = 3,
    /// The parent waits for that child no longer.
    Remove = 4,
}

impl Policy {
    pub(crate) fn of(number: u8) -> Result<Self, Malformed> {
        [Self::Fail, Self::Continue, Self::Ignore, Self::Remove]
            .into_iter()
            .find(|&policy| policy as u8 == number)
            .ok_or(Malformed("no known policy"))
    }

    /// The name that clients see.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fail => "failParent",
            Self::Continue => "continueParent",
            Self::Ignore => "ignoreDependency",
            Self::Remove => "removeDependency",
        }
    }
}

/// Parent and children of a job that is pushed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewFamily<'a> {
    /// The parent, as its client calls it.
    pub parent: Option<&'a str>,
    /// Effect of the job's failure on its parent.
    pub policy: Option<Policy>,
    /// A MessagePack array of the ids of its children, or empty for none.
    pub children: &'a [u8],
    /// Which of those it waits for, and what has to be known of each, as the pushing shard has found out.
    pub open: Unmet<'a>,
}

/// Bits that say which parts follow.
mod part {
    pub(super) const PARENT: u8 = 1;
    pub(super) const POLICY: u8 = 1 << 1;
    pub(super) const CHILDREN: u8 = 1 << 2;
    pub(super) const OPEN: u8 = 1 << 3;
    /// The job depends on its children, and on nothing else.
    pub(super) const SAME: u8 = 1 << 4;
    pub(super) const ALL: u8 = (1 << 5) - 1;
}

impl<'a> NewFamily<'a> {
    /// Whether `depends_on` says the same as the list of children, and need not be written.
    pub(crate) fn is_same(&self, depends_on: &[u8]) -> bool {
        !self.children.is_empty() && self.children == depends_on
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let list = |bytes: &[u8]| if bytes.is_empty() { 0 } else { 4 + bytes.len() };
        1 + self.parent.map_or(0, |parent| 2 + parent.len())
            + usize::from(self.policy.is_some())
            + list(self.children)
            + list(self.open.bytes())
    }

    pub(crate) fn encode(&self, same: bool, out: &mut Writer<'_>) {
        let bit = |given: bool, bit: u8| if given { bit } else { 0 };
        out.u8(bit(self.parent.is_some(), part::PARENT)
            | bit(self.policy.is_some(), part::POLICY)
            | bit(!self.children.is_empty(), part::CHILDREN)
            | bit(!self.open.is_empty(), part::OPEN)
            | bit(same, part::SAME));
        if let Some(parent) = self.parent {
            out.short(parent.as_bytes());
        }
        if let Some(policy) = self.policy {
            out.u8(policy as u8);
        }
        for list in [self.children, self.open.bytes()] {
            if !list.is_empty() {
                out.u32(list.len() as u32);
                out.bytes(list);
            }
        }
    }

    /// Reads it back, and whether the list of children is that of all dependencies, too.
    pub(crate) fn decode(from: &mut Reader<'a>) -> Result<(Self, bool), Malformed> {
        let parts = from.u8()?;
        if parts & !part::ALL != 0 {
            return Err(Malformed("a job has family of a sort that is not known to this release"));
        }
        let has = |bit: u8| parts & bit != 0;
        let parent = has(part::PARENT).then(|| from.text()).transpose()?;
        let policy = has(part::POLICY).then(|| Policy::of(from.u8()?)).transpose()?;
        let mut list = |bit: u8| {
            if !has(bit) {
                return Ok(&[][..]);
            }
            let bytes = from.u32()?;
            from.bytes(bytes as usize)
        };
        let (children, open) = (list(part::CHILDREN)?, list(part::OPEN)?);
        let family = Self { parent, policy, children, open: Unmet::decode(open)? };
        Ok((family, has(part::SAME)))
    }
}

/// How a child ended, as its parent keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum How {
    /// The child was completed; the payload is its result.
    Completed = 1,
    /// The child failed, and the parent went on at once; the payload is the error.
    Failed = 2,
    /// The child failed, and the parent does not mind; the payload is the error.
    Ignored = 3,
    /// The child failed or went, and nothing more is kept of it.
    Dropped = 4,
    /// The child was taken from its parent.
    Detached = 5,
}

impl How {
    pub(crate) fn of(number: u8) -> Result<Self, Malformed> {
        [Self::Completed, Self::Failed, Self::Ignored, Self::Dropped, Self::Detached]
            .into_iter()
            .find(|&how| how as u8 == number)
            .ok_or(Malformed("no known end of a child"))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Ignored => "ignored",
            Self::Dropped => "dropped",
            Self::Detached => "detached",
        }
    }
}

/// The ids of children as their client gave them: MessagePack texts one after the other.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Names {
    count: u32,
    bytes: Vec<u8>,
}

impl Names {
    /// Of a MessagePack array that was checked when it came; empty for none.
    fn of(array: &[u8]) -> Self {
        let (count, head) = match array {
            [head @ 0x90..=0x9f, ..] => (u32::from(head & 0xf), 1),
            [0xdc, a, b, ..] => (u32::from(u16::from_be_bytes([*a, *b])), 3),
            [0xdd, a, b, c, d, ..] => (u32::from_be_bytes([*a, *b, *c, *d]), 5),
            _ => (0, array.len()),
        };
        Self { count, bytes: array[head..].to_vec() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The texts.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether this is one. A step for each.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.place(name).is_some()
    }

    fn place(&self, name: &str) -> Option<std::ops::Range<usize>> {
        let mut one = Self::default();
        one.push(name);
        let mut at = 0;
        while let Some(len) = text_len(&self.bytes[at..]) {
            if self.bytes[at..at + len] == *one.bytes {
                return Some(at..at + len);
            }
            at += len;
        }
        None
    }

    /// Adds one.
    pub(crate) fn push(&mut self, name: &str) {
        match name.len() {
            len @ 0..=31 => self.bytes.push(0xa0 | len as u8),
            len @ 32..=255 => self.bytes.extend_from_slice(&[0xd9, len as u8]),
            // A name has at most 256 characters.
            len => {
                self.bytes.push(0xda);
                self.bytes.extend_from_slice(&(len as u16).to_be_bytes());
            }
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.count += 1;
    }

    /// Takes one away. A step for each.
    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(place) = self.place(name) {
            self.bytes.drain(place);
            self.count -= 1;
        }
    }

    /// As an array; nothing for none.
    pub(crate) fn array(&self) -> Vec<u8> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut array = vec![0xdd];
        array.extend_from_slice(&self.count.to_be_bytes());
        array.extend_from_slice(&self.bytes);
        array
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.count, self.bytes.escape_ascii())
    }
}

/// Parent and children of a job.
#[derive(Clone, Debug, Default)]
pub struct Family {
    /// The parent, as its client calls it.
    pub parent: Option<Box<str>>,
    /// The children, as their client calls them.
    pub children: Names,
    /// Effect of the job's failure on its parent.
    pub policy: Option<Policy>,
    /// A child's failure has let it go on: it does not wait for what is still open.
    pub freed: bool,
    /// Since when it runs again and waits for its children anew, or 0: a failure before that does not count.
    pub retried_at_ms: u64,
    /// How children ended.
    pub ends: ChildEnds,
}

impl Family {
    /// The family of a job that was pushed with `given`.
    pub(crate) fn of(given: &NewFamily<'_>) -> Self {
        let NewFamily { parent, policy, children, .. } = *given;
        let (parent, children) = (parent.map(Into::into), Names::of(children));
        Self { parent, children, policy, ..Self::default() }
    }

    /// Bytes that the children take in the job's record, at most, however they end. `unmet` has the job's dependencies.
    pub fn bytes_max(&self, unmet: &UnmetDependencies) -> usize {
        let name_of = |one: &Dependency| one.name.as_ref().map_or(0, |name| name.len());
        let open = unmet.iter().filter(|one| one.child).map(|one| Unmet::HEAD + name_of(one));
        self.children.bytes().len() + self.children.len() * END + open.sum::<usize>()
    }

    /// Children that were completed.
    pub fn completed(&self) -> usize {
        self.ends.completed()
    }
}

/// Reports the end of a child to the shard of its parent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The parent.
    pub parent: JobId,
    /// The child.
    pub child: JobId,
    /// The child as its clients know it.
    pub known_as: KnownAs,
    /// The child's queue.
    pub queue: Box<str>,
    /// How it ended.
    pub end: End,
    /// The record whose payload is the result or the error.
    pub stored: LogRef,
    /// Nothing is left of the child but what is said here: its shard waits for word that it was heard.
    pub is_last: bool,
}

/// How a child ended, as its own shard knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The child was completed.
    Completed,
    /// The child failed for good, with this effect on its parent.
    Failed(Policy),
}

/// A [`Report`] as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Reported<'a> {
    /// The parent.
    pub parent: JobId,
    /// The child.
    pub child: JobId,
    /// The child as its clients know it.
    pub known_as: &'a str,
    /// The child's queue.
    pub queue: &'a str,
    /// How it ended.
    pub end: End,
    /// The result, or the text of the error.
    pub value: &'a [u8],
    /// See [`Report::is_last`].
    pub is_last: bool,
}

/// See [`crate::log_record::Record::ChildEnded`].
#[derive(Clone, Copy, Debug)]
pub struct ChildEnded<'a> {
    /// The parent.
    pub parent: JobId,
    /// The child.
    pub child: JobId,
    /// When the parent's shard learnt of it.
    pub at_ms: u64,
    /// The child's end as its parent keeps it.
    pub how: How,
    /// The child's queue.
    pub queue: &'a str,
    /// The child as its clients know it.
    pub known_as: &'a str,
    /// A result, or the text of an error.
    pub value: &'a [u8],
}

impl<'a> Body<'a> for ChildEnded<'a> {
    fn encoded_len(&self) -> usize {
        16 + 16 + 8 + 1 + 2 + self.queue.len() + 2 + self.known_as.len() + self.value.len()
    }

    fn payload_len(&self) -> usize {
        self.value.len()
    }

    fn encode(&self, out: &mut Writer<'_>) {
        out.id(self.parent);
        out.id(self.child);
        out.u64(self.at_ms);
        out.u8(self.how as u8);
        out.short(self.queue.as_bytes());
        out.short(self.known_as.as_bytes());
        out.bytes(self.value);
    }

    fn decode(_: u8, mut from: Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            parent: from.id()?,
            child: from.id()?,
            at_ms: from.u64()?,
            how: How::of(from.u8()?)?,
            queue: from.text()?,
            known_as: from.text()?,
            value: from.rest(),
        })
    }

    fn show(&self, to: &mut impl Show) {
        to.id("id", self.parent);
        to.id("child", self.child);
        to.uint("at", self.at_ms);
        to.text("how", self.how.name());
        if self.how != How::Dropped {
            to.text("queue", self.queue);
            to.text("childId", self.known_as);
        }
        match self.how {
            How::Completed => to.value("result", self.value),
            How::Failed | How::Ignored => to.text_of_bytes("error", self.value),
            How::Dropped | How::Detached => {}
        }
    }
}

parts! {
    /// See [`crate::log_record::Record::Adopted`].
    #[derive(Clone, Copy, Debug)]
    pub struct Adopted<'a> {
        /// The parent.
        parent: JobId = "id",
        /// The child.
        child: JobId = "child",
        /// Whether the parent waits for it; one that a worker has goes on.
        waits: bool = "waits",
        ..rest
        /// As its client calls it.
        name: &'a str = "name",
    }
}

/// The ends of children, as bytes of a record that is written again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends<'a> {
    /// See [`Family::freed`].
    pub freed: bool,
    /// See [`Family::retried_at_ms`].
    pub retried_at_ms: u64,
    bytes: &'a [u8],
}

const END: usize = 16 + 1 + 16;

/// Bits of the first byte.
const FREED: u8 = 1;
const RETRIED: u8 = 1 << 1;

impl<'a> Ends<'a> {
    /// Writes what a job knows of its children into `bytes`, and views it.
    pub(crate) fn of(family: &Family, bytes: &'a mut Vec<u8>) -> Self {
        bytes.resize(family.ends.len() * END, 0);
        let mut out = Writer::new(bytes);
        for end in family.ends.values() {
            out.id(end.child);
            out.u8(end.how as u8);
            out.u64(end.stored.position);
            out.u32(end.stored.record_bytes);
            out.u32(end.stored.payload_bytes);
        }
        out.finish();
        Self { freed: family.freed, retried_at_ms: family.retried_at_ms, bytes }
    }

    fn is_retried(self) -> bool {
        self.retried_at_ms > 0
    }

    pub(crate) fn encoded_len(self) -> usize {
        1 + if self.is_retried() { 8 } else { 0 } + 4 + self.bytes.len()
    }

    pub(crate) fn encode(self, out: &mut Writer<'_>) {
        let bit = |given: bool, bit: u8| if given { bit } else { 0 };
        out.u8(bit(self.freed, FREED) | bit(self.is_retried(), RETRIED));
        if self.is_retried() {
            out.u64(self.retried_at_ms);
        }
        out.u32(self.bytes.len() as u32);
        out.bytes(self.bytes);
    }

    pub(crate) fn decode(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let bits = from.u8()?;
        if bits & !(FREED | RETRIED) != 0 {
            return Err(Malformed("a job has family of a sort that is not known to this release"));
        }
        let retried_at_ms = if bits & RETRIED != 0 { from.u64()? } else { 0 };
        let len = from.u32()?;
        let bytes = from.bytes(len as usize)?;
        let ends = Self { freed: bits & FREED != 0, retried_at_ms, bytes };
        if !ends.bytes.len().is_multiple_of(END) || ends.iter().count() * END != ends.bytes.len() {
            return Err(Malformed("the ends of children are cut short"));
        }
        Ok(ends)
    }

    /// The ends. Bytes that are none end them early.
    pub fn iter(self) -> impl Iterator<Item = ChildEnd> {
        let mut rest = Reader::new(self.bytes);
        std::iter::from_fn(move || {
            let (child, how) = (rest.id().ok()?, How::of(rest.u8().ok()?).ok()?);
            let (position, record_bytes) = (rest.u64().ok()?, rest.u32().ok()?);
            let payload_bytes = rest.u32().ok()?;
            Some(ChildEnd { child, how, stored: LogRef { position, record_bytes, payload_bytes } })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go() {
        let mut names = Names::of(b"\x92\xa1a\xa2bc");
        names.push(&"x".repeat(40));
        names.remove("bc");
        names.remove("nobody");
        assert_eq!((names.len(), Names::of(&names.array())), (2, names.clone()));
        assert!(names.has("a") && !names.has("bc") && !names.has("x"));
        names.remove("a");
        names.remove(&"x".repeat(40));
        assert!(names.is_empty() && names.array().is_empty() && names == Names::default());
    }

    #[test]
    fn a_family_is_read_as_it_was_written_alone_and_together() {
        let mut open = Vec::new();
        Unmet::push(&mut open, JobId(7), "");
        let none = NewFamily::default();
        let children = b"\x91\xa1a";
        for family in [
            none,
            NewFamily { parent: Some("p"), ..none },
            NewFamily { parent: Some("p"), policy: Some(Policy::Ignore), ..none },
            NewFamily { children, ..none },
            NewFamily { children, open: Unmet::new(&open), parent: Some("p"), policy: None },
        ] {
            for same in [false, true] {
                let mut bytes = vec![0; family.encoded_len()];
                let mut out = Writer::new(&mut bytes);
                family.encode(same, &mut out);
                out.finish();
                let mut from = Reader::new(&bytes);
                let (again, same_again) = NewFamily::decode(&mut from).unwrap_or_default();
                assert!(from.is_empty() && same == same_again);
                assert_eq!((again.parent, again.policy), (family.parent, family.policy));
                assert_eq!(again.children, family.children);
                assert_eq!(again.open.bytes(), family.open.bytes());
            }
        }
        assert!(NewFamily::decode(&mut Reader::new(&[1 << 5])).is_err(), "an unknown part");
    }
}
