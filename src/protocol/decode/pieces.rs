//! Long requests about many jobs, read a slice at a time and cut into frames of their own.
//!
//! A [`Walk`] finds where the items of the lists of a request begin, and goes on where it stopped. What is around the
//! lists is put together without them and decoded as any other frame; of the lists, pieces are put into frames and
//! decoded one after the other. So whatever is checked of a short request is checked of a long one, by the same code and
//! with the same words. What the request does is not known here.

use crate::api::commands::{Class, CommandSpec, FieldSpec, Kind, Op};
use crate::api::error::{Error, ErrorKind};
use crate::api::limits::BATCH_MAX;
use crate::api::size::IGNORED_BYTES_MAX;
use crate::protocol::decode::REQ_ID_BYTES_MAX;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::msgpack::{Malformed, Reader};
use std::ops::Range;

/// Most items of a piece.
pub const PIECE_ITEMS: usize = 500;

/// Bytes of items after which a piece takes no other.
pub const PIECE_BYTES: usize = 128 << 10;

/// Bytes of a key that are looked at in about the time in which a value is stepped over.
const KEY_BYTES_PER_STEP: usize = 64;

/// Most lists of a command.
const LISTS_MAX: usize = 4;

/// Whether a command is about as many jobs as its lists have items, and can be cut.
#[inline]
pub fn is_cut(op: Op) -> bool {
    matches!(op.spec().class, Class::Batch(_))
}

fn is_list(field: &FieldSpec) -> bool {
    matches!(
        field.kind,
        Kind::Jobs
            | Kind::Flow
            | Kind::JobIds
            | Kind::Tokens
            | Kind::Results
            | Kind::Flags
            | Kind::Integers { .. }
    )
}

/// Where the items of one list lie.
#[derive(Debug)]
struct List {
    field: &'static FieldSpec,
    start: usize,
    /// Where each ends; a frame is shorter than 4 GB.
    ends: Vec<u32>,
}

impl List {
    fn edge(&self, item: usize) -> usize {
        if item == 0 { self.start } else { self.ends[item - 1] as usize }
    }
}

/// Part of the frame that is being read.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The key of an entry.
    Key,
    /// A value that is no list, with what stands before it.
    Value { key: usize, value: usize, left: usize },
    /// An item of the last list, of which so many more follow.
    Item { left: usize, follow: usize },
    /// Nothing: it has been read.
    End,
}

/// An item with more bytes is checked and copied a slice at a time.
const LARGE_ITEM_BYTES: usize = 256 << 10;

/// An item that is large.
#[derive(Clone, Debug)]
pub struct LargeItem {
    /// The list that has it.
    pub list: &'static FieldSpec,
    /// Where it lies in the request.
    pub place: Range<usize>,
}

/// A request on its way through the cut.
#[derive(Debug)]
pub struct Walk {
    spec: &'static CommandSpec,
    at: usize,
    state: At,
    entries: usize,
    /// The entries that are no list, and empty lists.
    around: Vec<u8>,
    kept: usize,
    /// Fields that have been kept, a bit each, and behind those `cmd` and `reqId`.
    seen: u64,
    /// Bytes of values of fields that are not known.
    ignored_bytes: usize,
    /// Fields that say something of every item, with where their values lie: each piece has them.
    shared: Vec<(&'static str, Range<usize>)>,
    lists: Vec<List>,
}

/// Bytes of the head of a map that may have any number of entries.
const MAP_HEAD_BYTES: usize = 5;

impl Walk {
    /// At the front of a request for this command.
    pub fn new(spec: &'static CommandSpec) -> Self {
        let around = vec![0; MAP_HEAD_BYTES];
        let lists = Vec::with_capacity(LISTS_MAX);
        let (kept, seen, ignored_bytes, shared) = (0, 0, 0, Vec::new());
        let (at, state, entries) = (0, At::Key, 0);
        Self { spec, at, state, entries, around, kept, seen, ignored_bytes, shared, lists }
    }

    pub fn spec(&self) -> &'static CommandSpec {
        self.spec
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.around.capacity()
            + self.lists.iter().map(|list| list.ends.capacity() * 4).sum::<usize>()
    }

    /// Goes on by about `steps` values, which it counts down. True once it is at the end.
    pub fn go_on(&mut self, frame: &[u8], steps: &mut usize) -> Result<bool, Error> {
        if self.at == 0 {
            let mut reader = Reader::new(frame);
            let Some(entries) = reader.map()? else {
                return Err(ErrorKind::FrameNotMap.into());
            };
            self.entries = entries;
            self.at = frame.len() - reader.rest().len();
        }
        while *steps > 0 && !matches!(self.state, At::End) {
            let mut reader = Reader::new(&frame[self.at..]);
            match self.state {
                At::Key if self.entries == 0 => {
                    if !reader.rest().is_empty() {
                        return Err(ErrorKind::FrameGoesOn.into());
                    }
                    self.state = At::End;
                }
                At::Key => {
                    let before = self.at;
                    self.enter(frame, &mut reader)?;
                    // Count long keys as more steps: each is compared with the names of fields.
                    *steps = steps.saturating_sub(1 + (self.at - before) / KEY_BYTES_PER_STEP);
                }
                At::Value { key, value, mut left } => {
                    reader.pass_some(&mut left, steps)?;
                    self.at = frame.len() - reader.rest().len();
                    self.state = At::Value { key, value, left };
                    let over = self.at - value > IGNORED_BYTES_MAX;
                    if left == 0 || over {
                        if let Some(name) = self.shared_name(&frame[key..value])
                            && !over
                        {
                            self.shared.push((name, value..self.at));
                        }
                        let wrong = self.keep(&frame[key..value], &frame[value..self.at], over);
                        if wrong || over {
                            // Stop here: the entry's stand-in is refused in the same words.
                            self.state = At::End;
                        }
                    }
                }
                At::Item { mut left, follow } => {
                    reader.pass_some(&mut left, steps)?;
                    self.at = frame.len() - reader.rest().len();
                    self.state = At::Item { left, follow };
                    if left == 0
                        && let Some(list) = self.lists.last_mut()
                    {
                        list.ends.push(self.at as u32);
                        self.begin_item(follow);
                    }
                }
                At::End => {}
            }
        }
        Ok(matches!(self.state, At::End))
    }

    fn enter(&mut self, frame: &[u8], reader: &mut Reader<'_>) -> Result<(), Error> {
        let start = self.at;
        let Some(key) = reader.text_bytes()? else {
            // No name. It may be any value, and is refused for what it is not.
            self.keep(&[0xc0], &[0xc0], false);
            self.state = At::End;
            return Ok(());
        };
        let value = frame.len() - reader.rest().len();
        self.entries -= 1;
        self.at = value;
        if reader.absent()? {
            self.at = frame.len() - reader.rest().len();
            return Ok(());
        }
        let field = self.spec.fields.iter().find(|field| field.name.as_bytes() == key);
        if let Some(field) = field.filter(|field| is_list(field)) {
            if self.lists.iter().any(|list| list.field.name == field.name) {
                return Err(field.repeated());
            }
            if let Some(count) = reader.array()? {
                if count > BATCH_MAX as usize {
                    return Err(field.out_of_bounds());
                }
                self.at = frame.len() - reader.rest().len();
                if self.keep(&frame[start..value], &[0x90], false) {
                    self.state = At::End;
                    return Ok(());
                }
                let ends = Vec::with_capacity(count);
                self.lists.push(List { field, start: self.at, ends });
                self.begin_item(count);
                return Ok(());
            }
        }
        self.state = At::Value { key: start, value, left: 1 };
        Ok(())
    }

    fn begin_item(&mut self, follow: usize) {
        self.state = match follow.checked_sub(1) {
            Some(follow) => At::Item { left: 1, follow },
            None => At::Key,
        };
    }

    /// Keeps an entry. Of one that is too long whatever field it is, its kind; of the name of a field that is not known, only
    /// that it is one. True if what is kept by then is refused, so that nothing behind it matters.
    fn keep(&mut self, key: &[u8], value: &[u8], over: bool) -> bool {
        /// Strings, in the format: short ones, and those of three widths.
        fn is_text(first: u8) -> bool {
            matches!(first, 0xa0..=0xbf | 0xd9..=0xdb)
        }
        self.kept += 1;
        self.state = At::Key;
        let name = Reader::new(key).text_bytes().ok().flatten();
        let bit = name.and_then(|name| self.bit_of(name));
        let mut wrong = false;
        match (bit, name) {
            (Some(bit), _) => {
                wrong = self.seen & bit != 0;
                self.seen |= bit;
                self.around.extend_from_slice(key);
            }
            // A name that is too long for any field is not checked for UTF-8.
            (None, Some(name))
                if name.len() > IGNORED_BYTES_MAX || std::str::from_utf8(name).is_ok() =>
            {
                self.ignored_bytes += value.len();
                wrong = self.ignored_bytes > IGNORED_BYTES_MAX;
                self.around.push(0xa0);
            }
            (None, Some(_)) => {
                wrong = true;
                // As little of it as is no text.
                self.around.extend_from_slice(b"\xa1\xff");
            }
            (None, None) => self.around.extend_from_slice(key),
        }
        if !over {
            self.around.extend_from_slice(value);
            return wrong;
        }
        let text = value.first().is_some_and(|&first| is_text(first));
        let length = IGNORED_BYTES_MAX as u32 + 1;
        self.around.push(if text { 0xdb } else { 0xc6 });
        self.around.extend_from_slice(&length.to_be_bytes());
        self.around.resize(self.around.len() + length as usize, b'x');
        true
    }

    /// The name of a field that says something of every item.
    fn shared_name(&self, key: &[u8]) -> Option<&'static str> {
        let name = Reader::new(key).text_bytes().ok().flatten()?;
        let is_shared = |field: &&FieldSpec| {
            let is_trace = matches!(field.kind, Kind::Traceparent | Kind::Tracestate);
            is_trace && field.name.as_bytes() == name
        };
        self.spec.fields.iter().find(is_shared).map(|field| field.name)
    }

    /// The bit of a field that is known.
    fn bit_of(&self, name: &[u8]) -> Option<u64> {
        let fields = self.spec.fields;
        let place = match name {
            b"cmd" => Some(fields.len()),
            b"reqId" => Some(fields.len() + 1),
            _ => fields.iter().position(|field| field.name.as_bytes() == name),
        };
        place.map(|place| 1 << place)
    }

    /// The part around the lists: a frame of the same command, with empty lists.
    pub fn around(&mut self) -> &[u8] {
        self.around[0] = 0xdf;
        self.around[1..MAP_HEAD_BYTES].copy_from_slice(&(self.kept as u32).to_be_bytes());
        &self.around
    }

    /// Whether the lists fit each other, which is of interest once what is in them has been read.
    pub fn fits(&self) -> Result<(), Error> {
        let ids = self.count("ids");
        for list in &self.lists {
            let count = list.ends.len();
            match list.field.kind {
                Kind::Results if count != ids => return Err(ErrorKind::ResultsLength.into()),
                Kind::Flags if count != ids => return Err(ErrorKind::RemovesLength.into()),
                Kind::Tokens if count > ids => return Err(ErrorKind::TokensLength.into()),
                Kind::Integers { .. } if count != ids => {
                    return Err(ErrorKind::DurationsLength.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&self, name: &str) -> usize {
        self.lists.iter().find(|list| list.field.name == name).map_or(0, |list| list.ends.len())
    }

    /// Over how many jobs it goes.
    pub fn items(&self) -> usize {
        self.lists.iter().map(|list| list.ends.len()).max().unwrap_or(0)
    }

    /// Where the piece ends that begins with an item.
    pub fn piece_end(&self, from: usize) -> usize {
        let bytes = |to: usize| -> usize {
            let of = |list: &List| {
                let edge = |item: usize| list.edge(item.min(list.ends.len()));
                edge(to) - edge(from)
            };
            self.lists.iter().map(of).sum()
        };
        let most = self.items().min(from + PIECE_ITEMS);
        // The first that makes it too long is the last: a piece has one item at least.
        let (mut low, mut high) = ((from + 1).min(most), most);
        while low < high {
            let middle = usize::midpoint(low, high);
            if bytes(middle) >= PIECE_BYTES { high = middle } else { low = middle + 1 }
        }
        // A large item is a piece of its own: end the piece before it.
        let is_alone = low <= from + 1;
        if is_alone || self.large_item(low - 1).is_none() { low } else { low - 1 }
    }

    /// The item at a place, if it is large.
    pub fn large_item(&self, item: usize) -> Option<LargeItem> {
        let holds =
            |list: &&List| matches!(list.field.kind, Kind::Jobs | Kind::Results | Kind::Flow);
        let list = self.lists.iter().find(holds)?;
        let end = *list.ends.get(item)? as usize;
        let place = list.edge(item)..end;
        (place.len() > LARGE_ITEM_BYTES).then_some(LargeItem { list: list.field, place })
    }

    /// Writes the piece of one item that is large, up to where that begins.
    pub fn write_head(&self, frame: &[u8], queue: Option<&str>, item: usize, out: &mut Vec<u8>) {
        self.write_lists(frame, queue, (item, item + 1), true, out);
    }

    /// Writes a piece as a frame of the same command.
    pub fn write_piece(
        &self,
        frame: &[u8],
        queue: Option<&str>,
        piece: (usize, usize),
        out: &mut Vec<u8>,
    ) {
        self.write_lists(frame, queue, piece, false, out);
    }

    /// `is_head`: the items of the list with the payload come last, and are left out.
    fn write_lists(
        &self,
        frame: &[u8],
        queue: Option<&str>,
        (from, to): (usize, usize),
        is_head: bool,
        out: &mut Vec<u8>,
    ) {
        // Write a list whose length is compared with that of the ids even if no item is left.
        let there = |list: &&List| {
            let compared = matches!(list.field.kind, Kind::JobIds | Kind::Integers { .. });
            compared || list.ends.len() > from
        };
        let mut map = MapWriter::begin(out);
        map.key("cmd").str(self.spec.name);
        if let Some(queue) = queue {
            map.key("queue").str(queue);
        }
        for (name, value) in &self.shared {
            map.key(name).raw(&frame[value.clone()]);
        }
        let large = self.large_item(from).filter(|_| is_head).map(|item| item.list.name);
        let is_large = |list: &&List| large == Some(list.field.name);
        let lists = || self.lists.iter().filter(there);
        for list in lists().filter(|list| !is_large(list)).chain(lists().filter(is_large)) {
            let (from, to) = (from.min(list.ends.len()), to.min(list.ends.len()));
            let mut items = map.key(list.field.name);
            items.array(to - from);
            if !is_large(&list) {
                items.raw(&frame[list.edge(from)..list.edge(to)]);
            }
        }
    }
}

/// A search for the `reqId` of a long frame that is refused, a slice at a time: what [`find_req_id`] finds at once.
///
/// [`find_req_id`]: crate::protocol::decode::find_req_id
#[derive(Clone, Debug, Default)]
pub struct ReqIdSearch {
    at: usize,
    /// Entries to come; `None` before the first look.
    entries: Option<usize>,
    /// Values to be stepped over.
    left: usize,
    found: Range<usize>,
}

impl ReqIdSearch {
    /// Goes on by about `steps` values, which it counts down. True once it is at its end; an error is one.
    pub fn go_on(&mut self, frame: &[u8], steps: &mut usize) -> bool {
        self.look(frame, steps).unwrap_or(true)
    }

    /// The `reqId` that was found, in the same frame.
    pub fn req_id<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.found.clone()).filter(|value| !value.is_empty())
    }

    fn look(&mut self, frame: &[u8], steps: &mut usize) -> Result<bool, Malformed> {
        let mut reader = Reader::new(frame.get(self.at..).unwrap_or_default());
        let mut entries = match self.entries {
            Some(entries) => entries,
            None => reader.map_begun()?.unwrap_or(0),
        };
        while *steps > 0 {
            reader.pass_some(&mut self.left, steps)?;
            if self.left > 0 {
                break;
            }
            let Some(fewer) = entries.checked_sub(1) else { return Ok(true) };
            entries = fewer;
            *steps = steps.saturating_sub(1);
            // A key that is no text is passed over with its value.
            self.left = match reader.text_bytes()? {
                Some(b"reqId") if reader.absent()? => 0,
                Some(b"reqId") => {
                    let start = frame.len() - reader.rest().len();
                    let value = reader.skip_within(REQ_ID_BYTES_MAX)?.unwrap_or_default();
                    self.found = start..start + value.len();
                    return Ok(true);
                }
                Some(_) => 1,
                None => 2,
            };
        }
        self.entries = Some(entries);
        self.at = frame.len() - reader.rest().len();
        Ok(false)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
