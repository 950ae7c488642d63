//! JSON text to `MessagePack`, strictly by RFC 8259: a machine that stops after any token and goes on later, so that a
//! long text costs a slice of a turn at a time. What it writes does not depend on where it stopped, but for the widths
//! of the counts of lists and objects that were open then.

mod container;
mod fields;
mod token;

pub use self::fields::{FieldFate, FieldNames};

use self::container::{Kind, Open};
use self::fields::Fields;
use super::{Fault, JSON_DEPTH_MAX, JsonError, plain_length};
use crate::protocol::msgpack::writer::Writer;
use rmp::Marker;

/// Containers deeper than this begin with room for any count. A shallower one begins with room for
/// fifteen and is moved when it has more, so that a text is moved this often at most.
const TIGHT_DEPTH_MAX: usize = 8;

/// Entries that the one byte of a small container can count.
const TIGHT_COUNT_MAX: usize = 15;

/// Bytes of the head of a container with room for any count, and of a string of any length.
const WIDEST_HEAD_BYTES: usize = 5;

/// How much of a string is looked through at a time. A longer one may be left in its middle.
const STRING_STEP_BYTES: usize = 64 << 10;

/// Looking whether a text is UTF-8 takes a fraction of reading it.
const CHECKED_PER_READ: usize = 4;

/// Writes the one JSON value that `text` is behind what `out` holds. On an error `out` is as it was.
///
/// Integers of up to 64 bits become integers; every other number, `-0` too, the nearest float. A
/// number beyond all floats is refused, one that is too small to tell from zero is zero.
pub fn to_msgpack(text: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
    to_msgpack_within(text, out, usize::MAX)
}

/// As [`to_msgpack`], of a value that may take about so many bytes: what takes more is read no further.
pub fn to_msgpack_within(
    text: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), JsonError> {
    Parse::new(out.len(), bytes_max).go_on(text, out, usize::MAX).map(|_| ())
}

/// A text that is being read.
#[derive(Debug)]
pub struct Parse {
    /// The next byte of the text; on an error, the one that is wrong.
    at: usize,
    /// How much of the text is known to be UTF-8.
    checked: usize,
    state: State,
    /// The containers that are open, from the outermost.
    open: Vec<Open>,
    /// Where the value begins in the output, and where it has to end.
    start: usize,
    end: usize,
    fields: Option<Fields>,
}

/// Part of the text that comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The look whether the text is UTF-8.
    Check,
    Value,
    /// A value, or the end of an empty list.
    FirstItem,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    /// The end of a value: a comma or a bracket.
    Behind,
    /// More of a string whose head is here in the output.
    Long {
        head: usize,
        is_key: bool,
    },
}

impl Parse {
    /// Reads a text into a value of at most about `bytes_max` bytes, behind so many that the output has.
    pub fn new(out_bytes: usize, bytes_max: usize) -> Self {
        Self {
            at: 0,
            checked: 0,
            state: State::Check,
            open: Vec::new(),
            start: out_bytes,
            end: out_bytes.saturating_add(bytes_max),
            fields: None,
        }
    }

    /// Reads an object whose fields, as `names` says, join the `entries` of the map at `map_at` in the output, whose
    /// head has the width of [`Marker::Map32`].
    pub fn fields(
        (map_at, entries): (usize, usize),
        out_bytes: usize,
        bytes_max: usize,
        names: &'static dyn FieldNames,
    ) -> Self {
        let map = Open { at: map_at, wide: true, kind: Kind::Map, count: entries };
        Self { fields: Some(Fields::new(map, names)), ..Self::new(out_bytes, bytes_max) }
    }

    /// Reads another text in place of one that cannot be read.
    #[must_use]
    pub fn again(&self) -> Self {
        let fields = self.fields.as_ref().map(|fields| Fields::new(fields.map, fields.names));
        Self { fields, ..Self::new(self.start, self.end - self.start) }
    }

    /// Whether the text that was to be an object is one.
    pub fn is_object(&self) -> bool {
        self.fields.as_ref().is_some_and(|fields| fields.found)
    }

    /// Whether the object has one of the fields that are noted.
    pub fn has_noted(&self) -> bool {
        self.fields.as_ref().is_some_and(|fields| fields.noted)
    }

    /// The first name in the object that seems to mean another, and that.
    pub fn misnamed(&self) -> Option<(&str, &'static str)> {
        let (name, meant) = self.fields.as_ref()?.misnamed.as_ref()?;
        Some((name, meant))
    }

    /// How much of the text has been read.
    pub fn read_bytes(&self) -> usize {
        self.at
    }

    /// Reads about `bytes` bytes more of `text`, which is the same each time, as `out` is but for what this writes. True
    /// once all of it is read. On an error `out` is as it was before the first time.
    pub fn go_on(
        &mut self,
        text: &[u8],
        out: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<bool, JsonError> {
        let done = if self.state == State::Check {
            let goes_on = self.check(text, bytes.saturating_mul(CHECKED_PER_READ));
            match goes_on {
                Err(at) => Err(JsonError { at, fault: Fault::NotUtf8 }),
                // Read a short text in the same call as its check.
                Ok(true) if bytes >= text.len() => self.read(text, out, usize::MAX),
                Ok(_) => Ok(false),
            }
        } else {
            let until = self.at.saturating_add(bytes);
            self.read(text, out, if until < text.len() { until } else { usize::MAX })
        };
        match done {
            Ok(false) => self.widen(out),
            Ok(true) => {}
            Err(_) => out.truncate(self.start),
        }
        done
    }

    /// Looks at so many bytes more. True once all are found to be UTF-8; otherwise where they are not.
    fn check(&mut self, text: &[u8], bytes: usize) -> Result<bool, usize> {
        let end = self.checked.saturating_add(bytes).min(text.len());
        match std::str::from_utf8(&text[self.checked..end]) {
            Ok(_) => self.checked = end,
            Err(error) => {
                self.checked += error.valid_up_to();
                // A character that is cut is looked at again, with what follows.
                if error.error_len().is_some() || end == text.len() {
                    return Err(self.checked);
                }
            }
        }
        if end == text.len() {
            self.state = State::Value;
        }
        Ok(end == text.len())
    }

    fn read(&mut self, text: &[u8], out: &mut Vec<u8>, until: usize) -> Result<bool, JsonError> {
        let mut reading = Reading { text, out, until, parse: self };
        reading.run().map_err(|fault| JsonError { at: self.at, fault })
    }

    /// Gives the containers that are open room for any count: what follows would have to be moved later, however much
    /// it is.
    fn widen(&mut self, out: &mut Vec<u8>) {
        const MORE: usize = WIDEST_HEAD_BYTES - 1;
        for place in 0..self.open.len() {
            let Open { at, wide, kind, .. } = self.open[place];
            if wide {
                continue;
            }
            out.splice(at..=at, [kind.widest(), 0, 0, 0, 0]);
            self.open[place].wide = true;
            for inner in &mut self.open[place + 1..] {
                inner.at += MORE;
            }
            if let State::Long { head, .. } = &mut self.state {
                *head += MORE;
            }
        }
    }
}

/// A slice of it.
struct Reading<'t, 'o> {
    /// UTF-8, as has been checked.
    text: &'t [u8],
    out: &'o mut Vec<u8>,
    /// The byte of the text from which on it stops.
    until: usize,
    parse: &'o mut Parse,
}

impl Reading<'_, '_> {
    /// Reads up to the end of the slice. True if that is the end of the text.
    fn run(&mut self) -> Result<bool, Fault> {
        loop {
            if let State::Long { head, is_key } = self.parse.state {
                self.long_string(head, is_key)?;
                if self.parse.at >= self.until {
                    return Ok(false);
                }
                continue;
            }
            let next = self.skip_space();
            if self.parse.at >= self.until {
                return Ok(false);
            }
            match (self.parse.state, next) {
                (State::FirstItem, Some(b']')) | (State::FirstKey, Some(b'}')) => {
                    self.parse.at += 1;
                    self.close();
                }
                (State::FirstItem | State::Value, Some(first)) => self.value(first)?,
                (State::FirstKey | State::Key, Some(b'"')) => {
                    self.parse.state = State::Colon;
                    self.string(true)?;
                }
                (State::Colon, Some(b':')) => {
                    self.parse.at += 1;
                    self.parse.state = State::Value;
                }
                (State::Behind, next) => {
                    if self.behind(next)? {
                        return Ok(true);
                    }
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.parse.at).copied()
    }

    /// Steps over white space, as far as the slice goes, and says which byte follows.
    #[inline]
    fn skip_space(&mut self) -> Option<u8> {
        let mut at = self.parse.at;
        let next = loop {
            match self.text.get(at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') if at < self.until => at += 1,
                other => break other.copied(),
            }
        };
        self.parse.at = at;
        next
    }

    /// Fault of a text where another byte was expected.
    #[cold]
    fn unexpected(&self) -> Fault {
        if self.parse.at < self.text.len() { Fault::Unexpected } else { Fault::Truncated }
    }

    /// A value, or the beginning of a container.
    #[inline]
    fn value(&mut self, first: u8) -> Result<(), Fault> {
        self.parse.state = State::Behind;
        match first {
            b'"' => self.string(false),
            b'{' => self.open(Kind::Map),
            b'[' => self.open(Kind::Array),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true", Marker::True),
            b'f' => self.word(b"false", Marker::False),
            b'n' => self.word(b"null", Marker::Null),
            _ => Err(self.unexpected()),
        }
    }

    fn word(&mut self, word: &[u8], meaning: Marker) -> Result<(), Fault> {
        for &byte in word {
            if self.peek() != Some(byte) {
                return Err(self.unexpected());
            }
            self.parse.at += 1;
        }
        self.out.push(meaning.to_u8());
        Ok(())
    }

    /// Reads what stands behind a value. True at the end of the text.
    #[inline]
    fn behind(&mut self, next: Option<u8>) -> Result<bool, Fault> {
        let Some(open) = self.parse.open.last_mut() else {
            return if next.is_none() { Ok(true) } else { Err(Fault::Trailing) };
        };
        let (end, more) = match open.kind {
            Kind::Array => (b']', State::Value),
            Kind::Map => (b'}', State::Key),
        };
        open.count += 1;
        if next != Some(b',') && next != Some(end) {
            return Err(self.unexpected());
        }
        if self.parse.open.len() == 1 {
            self.leave_out();
        }
        if self.out.len() > self.parse.end {
            return Err(Fault::TooLong);
        }
        self.parse.at += 1;
        if next == Some(b',') {
            self.parse.state = more;
        } else {
            self.close();
        }
        Ok(false)
    }

    /// Takes a field of the outermost object back that is to be left out.
    fn leave_out(&mut self) {
        let Parse { fields: Some(fields), open, .. } = &mut *self.parse else { return };
        let Some(dropped) = fields.dropped.take() else { return };
        self.out.truncate(dropped);
        open[0].count -= 1;
    }

    /// Begins a container, whose count is known at its end.
    fn open(&mut self, kind: Kind) -> Result<(), Fault> {
        let Parse { at, state, open, fields, .. } = &mut *self.parse;
        if open.len() >= JSON_DEPTH_MAX as usize {
            return Err(Fault::Depth);
        }
        *at += 1;
        *state = if kind == Kind::Map { State::FirstKey } else { State::FirstItem };
        if let Some(fields) = fields
            && kind == Kind::Map
            && open.is_empty()
        {
            fields.found = true;
            open.push(fields.map);
            return Ok(());
        }
        let wide = open.len() >= TIGHT_DEPTH_MAX;
        open.push(Open { at: self.out.len(), wide, kind, count: 0 });
        let room = if wide { &[kind.widest(), 0, 0, 0, 0][..] } else { &[kind.tight(0)] };
        self.out.extend_from_slice(room);
        Ok(())
    }

    /// Ends the innermost container.
    fn close(&mut self) {
        self.parse.state = State::Behind;
        let Some(Open { at, wide, kind, count }) = self.parse.open.pop() else { return };
        // No text of as much as four gigabytes comes here.
        let [a, b, c, d] = (count as u32).to_be_bytes();
        if wide {
            self.out[at + 1..at + WIDEST_HEAD_BYTES].copy_from_slice(&[a, b, c, d]);
        } else if count <= TIGHT_COUNT_MAX {
            self.out[at] = kind.tight(d);
        } else if u16::try_from(count).is_ok() {
            self.out.splice(at..=at, [kind.wide(), c, d]);
        } else {
            self.out.splice(at..=at, [kind.widest(), a, b, c, d]);
        }
    }

    fn string(&mut self, is_key: bool) -> Result<(), Fault> {
        self.parse.at += 1;
        let start = self.parse.at;
        let window = &self.text[start..self.text.len().min(start + STRING_STEP_BYTES)];
        self.parse.at += plain_length(window);
        let out_start = self.out.len();
        if self.peek() == Some(b'"') {
            let text = &self.text[start..self.parse.at];
            self.parse.at += 1;
            Writer::new(self.out).str_head(text.len());
            self.out.extend_from_slice(text);
        } else {
            self.parse.at = start;
            self.string_with_escapes(out_start, is_key)?;
        }
        if is_key {
            let Parse { fields, open, .. } = &mut *self.parse;
            if let Some(fields) = fields {
                fields.note(open, self.out, out_start);
            }
        }
        Ok(())
    }

    /// The length is known at the end only, and its width with it: the head is put in front then, or as soon as it is
    /// known to be the widest.
    fn string_with_escapes(&mut self, out_start: usize, is_key: bool) -> Result<(), Fault> {
        while !self.string_step()? {
            if self.out.len() - out_start > usize::from(u16::MAX) {
                let head = [Marker::Str32.to_u8(), 0, 0, 0, 0];
                self.out.extend_from_slice(&head);
                self.out[out_start..].rotate_right(WIDEST_HEAD_BYTES);
                self.parse.state = State::Long { head: out_start, is_key };
                return Ok(());
            }
        }
        let length = self.out.len() - out_start;
        Writer::new(self.out).str_head(length);
        let head = self.out.len() - out_start - length;
        self.out[out_start..].rotate_right(head);
        Ok(())
    }

    /// Goes on with a long string.
    fn long_string(&mut self, head: usize, is_key: bool) -> Result<(), Fault> {
        while !self.string_step()? {
            if self.parse.at >= self.until {
                return Ok(());
            }
        }
        let length = (self.out.len() - head - WIDEST_HEAD_BYTES) as u32;
        self.out[head + 1..head + WIDEST_HEAD_BYTES].copy_from_slice(&length.to_be_bytes());
        self.parse.state = if is_key { State::Colon } else { State::Behind };
        Ok(())
    }

    /// Copies what stands for itself in a string, and one escape behind it. True at the end of the string.
    #[inline]
    fn string_step(&mut self) -> Result<bool, Fault> {
        let at = self.parse.at;
        let window = &self.text[at..self.text.len().min(at + STRING_STEP_BYTES)];
        let plain = plain_length(window);
        self.out.extend_from_slice(&window[..plain]);
        self.parse.at += plain;
        match self.peek() {
            Some(b'"') => {
                self.parse.at += 1;
                return Ok(true);
            }
            Some(b'\\') => self.escape()?,
            Some(byte) if byte < b' ' => return Err(Fault::Control),
            // The window ends here.
            Some(_) => {}
            None => return Err(Fault::Truncated),
        }
        Ok(false)
    }
}
