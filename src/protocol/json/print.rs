//! `MessagePack` to JSON text: a machine that stops after any value and goes on later, so that a long text costs a slice
//! of a turn at a time. What it writes does not depend on where it stopped.

use std::fmt;
use std::io::Write;

use data_encoding::BASE64;

use super::JSON_DEPTH_MAX;
use super::scalar::{
    ESCAPE_BYTES_MAX, encode, escaped, escaped_length, float, integer, string, time,
};
use crate::api::limits::PAYLOAD_BYTES_MAX;
use crate::protocol::msgpack::step::Step;
use crate::protocol::msgpack::{Malformed, Reader};
use rmp::Marker;

/// The extension type that `MessagePack` keeps for points in time.
const TIMESTAMP: i8 = -1;

/// Most bytes of JSON for a byte of `MessagePack`: `false` as a key, with its quotes and its colon. No value
/// takes more, however it is nested, since nothing is escaped twice.
pub const EXPANSION_MAX: usize = 8;

/// Most bytes of one text. A payload, whatever is in it, has room, with all that is said beside it; a list of such
/// payloads has not.
pub const TEXT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX as usize * EXPANSION_MAX + (16 << 20);

/// Why a value is not shown as JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unshown {
    /// The bytes are no value.
    Malformed(Malformed),
    /// The text would be longer than it may be.
    TooLong,
}

impl From<Malformed> for Unshown {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for Unshown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(out),
            Self::TooLong => out.write_str("its text is too long"),
        }
    }
}

/// Writes the one value that `value` is as JSON behind what `out` holds, on one line. On an error
/// `out` is as it was.
///
/// Integers are exact. A float shows that it is one (`1.0`), so that it comes back as one; no number
/// and the infinities are `null`. Bytes become base64 text, points in time RFC 3339 text, an extension
/// of type 0 (`undefined`) `null`, other extensions the base64 text of their bytes. A key that is no
/// string becomes the text that it would be as a value; a list or map as a key the base64 text of its
/// `MessagePack`: as JSON it would be escaped again at each level, and double each time.
///
/// The text has at most [`TEXT_BYTES_MAX`], which is looked at while it is written.
pub fn from_msgpack(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unshown> {
    print(value, Origin::Client, out, TEXT_BYTES_MAX)
}

/// As [`from_msgpack`], with at most `bytes_max` of text.
pub fn from_msgpack_within(
    value: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), Unshown> {
    print(value, Origin::Client, out, bytes_max)
}

/// Writes a record of the server, such as a job. Its integers beyond 32 bits come as floats, which is
/// how they travel to JavaScript clients, and are shown as integers, except within what a client gave:
/// `data`, `result`, `returnvalue` and `values`. All else is as with [`from_msgpack`].
pub fn from_record(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unshown> {
    print(value, Origin::Record, out, TEXT_BYTES_MAX)
}

/// As [`from_record`], with at most `bytes_max` of text.
pub fn from_record_within(
    value: &[u8],
    out: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<(), Unshown> {
    print(value, Origin::Record, out, bytes_max)
}

/// Writes a reply, the payload of a frame. As [`from_record`], but its own `data` is an envelope, and
/// `reqId` comes from the client.
pub fn from_reply(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unshown> {
    print(value, Origin::Reply, out, TEXT_BYTES_MAX)
}

/// As [`from_reply`], with at most `bytes_max` of text.
pub fn from_reply_within(value: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Unshown> {
    print(value, Origin::Reply, out, bytes_max)
}

/// Who made a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Client,
    Record,
    Reply,
}

impl Origin {
    /// Who made the value of a key.
    fn of(self, key: &str) -> Self {
        match (self, key) {
            (Self::Record, "data")
            | (Self::Record | Self::Reply, "result" | "returnvalue" | "values")
            | (Self::Reply, "reqId")
            | (Self::Client, _) => Self::Client,
            (Self::Record | Self::Reply, _) => Self::Record,
        }
    }
}

fn print(value: &[u8], origin: Origin, out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Unshown> {
    Print::new(origin, out.len(), bytes_max).go_on(value, out, usize::MAX).map(|_| ())
}

/// A string or bytes beyond this are written a piece at a time, of as many bytes. A piece of base64 has whole groups.
const PIECE_BYTES: usize = 48 << 10;

/// Bytes of a marker and a length of 32 bits.
const WIDEST_HEAD_BYTES: usize = 5;

/// A value that is being shown.
#[derive(Debug)]
pub struct Print {
    /// The next byte of the value.
    at: usize,
    state: State,
    /// The lists and maps that are open, from the outermost.
    open: Vec<Open>,
    /// Where the text begins in the output, and where it has to end.
    start: usize,
    end: usize,
}

/// Part of the value that comes next.
#[derive(Clone, Copy, Debug)]
enum State {
    Value(Origin),
    /// The end of a value, or the beginning of a list or map.
    Behind,
    /// More of a long text that ends there.
    Text {
        end: usize,
        is_key: bool,
    },
    /// More of bytes that begin and end there.
    Base64 {
        at: usize,
        end: usize,
        is_key: bool,
    },
    /// A key that is a list or map, which begins at `from`: `left` of its values are still to be measured.
    Measure {
        from: usize,
        left: usize,
    },
}

/// A list or map that is being shown.
#[derive(Clone, Copy, Debug)]
struct Open {
    is_map: bool,
    /// Items or entries that are left.
    left: usize,
    begun: bool,
    origin: Origin,
}

impl Print {
    /// Shows a reply in at most `bytes_max` of text, behind so many bytes that the output has. See [`from_reply`].
    pub fn reply(out_bytes: usize, bytes_max: usize) -> Self {
        Self::new(Origin::Reply, out_bytes, bytes_max)
    }

    /// Shows a value of a client in at most `bytes_max` of text, behind so many bytes that the output has. See
    /// [`from_msgpack`].
    pub fn value(out_bytes: usize, bytes_max: usize) -> Self {
        Self::new(Origin::Client, out_bytes, bytes_max)
    }

    fn new(origin: Origin, out_bytes: usize, bytes_max: usize) -> Self {
        Self {
            at: 0,
            state: State::Value(origin),
            open: Vec::new(),
            start: out_bytes,
            end: out_bytes.saturating_add(bytes_max),
        }
    }

    /// Most bytes that its text may have.
    pub fn bytes_max(&self) -> usize {
        self.end - self.start
    }

    /// Writes about `bytes` bytes more of text, or reads as many of `value`, which is the same each time, as `out` is but
    /// for what this writes. True once all of it is shown. On an error `out` is as it was before the first time.
    pub fn go_on(
        &mut self,
        value: &[u8],
        out: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<bool, Unshown> {
        let until = (self.at.saturating_add(bytes), out.len().saturating_add(bytes));
        let mut printing = Printing { value, out, print: self };
        let printed = printing.run(until);
        printed.inspect_err(|_| out.truncate(self.start))
    }
}

/// A slice of it.
struct Printing<'v, 'o> {
    value: &'v [u8],
    out: &'o mut Vec<u8>,
    print: &'o mut Print,
}

impl<'v> Printing<'v, '_> {
    fn run(&mut self, (value_until, out_until): (usize, usize)) -> Result<bool, Unshown> {
        loop {
            match self.print.state {
                State::Value(origin) => self.any(origin)?,
                State::Behind => {
                    if self.behind()? {
                        return Ok(true);
                    }
                }
                State::Text { end, is_key } => self.text_piece(end, is_key)?,
                State::Base64 { at, end, is_key } => self.base64_piece(at, end, is_key),
                State::Measure { from, left } => self.measure(from, left)?,
            }
            if self.print.at >= value_until || self.out.len() >= out_until {
                return Ok(false);
            }
        }
    }

    #[inline]
    fn reader(&self) -> Reader<'v> {
        Reader::new(&self.value[self.print.at..])
    }

    #[inline]
    fn advance(&mut self, reader: Reader<'v>) {
        self.print.at = self.value.len() - reader.rest().len();
    }

    /// A value, or the beginning of a list or map.
    #[inline]
    fn any(&mut self, origin: Origin) -> Result<(), Unshown> {
        self.print.state = State::Behind;
        if self.long(false)? {
            return Ok(());
        }
        let mut reader = self.reader();
        let step = reader.step()?;
        self.advance(reader);
        match step {
            Step::Array(left) => {
                self.open(b'[', Open { is_map: false, left, begun: false, origin })
            }
            Step::Map(left) => self.open(b'{', Open { is_map: true, left, begun: false, origin }),
            _ => self.scalar(step, origin),
        }
    }

    fn open(&mut self, bracket: u8, open: Open) -> Result<(), Unshown> {
        if self.print.open.len() >= JSON_DEPTH_MAX as usize {
            return Err(Malformed::Depth.into());
        }
        self.out.push(bracket);
        self.print.open.push(open);
        Ok(())
    }

    /// Goes on behind a value. True at the end of the whole.
    #[inline]
    fn behind(&mut self) -> Result<bool, Unshown> {
        let Some(open) = self.print.open.last_mut() else {
            let trails = self.print.at < self.value.len();
            return if trails { Err(Malformed::Trailing.into()) } else { Ok(true) };
        };
        let Open { is_map, left, origin, .. } = *open;
        if left == 0 {
            self.out.push(if is_map { b'}' } else { b']' });
            self.print.open.pop();
            return self.within().map(|()| false);
        }
        open.left -= 1;
        if std::mem::replace(&mut open.begun, true) {
            self.out.push(b',');
        }
        self.print.state = State::Value(origin);
        if is_map { self.key(origin).map(|()| false) } else { Ok(false) }
    }

    fn key(&mut self, origin: Origin) -> Result<(), Unshown> {
        if self.long(true)? {
            return Ok(());
        }
        let mut reader = self.reader();
        let mut inner = origin.of("");
        match reader.step()? {
            Step::Text(key) => {
                self.advance(reader);
                self.text(key)?;
                inner = origin.of(key);
            }
            // A text must not hold the text of another key: its escapes would be escaped.
            Step::Array(_) | Step::Map(_) => {
                self.print.state = State::Measure { from: self.print.at, left: 1 };
                return Ok(());
            }
            step => {
                self.advance(reader);
                let start = self.out.len();
                self.scalar(step, Origin::Client)?;
                if self.out[start] != b'"' {
                    // A number or a word, in which nothing needs an escape.
                    self.out.insert(start, b'"');
                    self.out.push(b'"');
                }
            }
        }
        self.out.push(b':');
        self.print.state = State::Value(inner);
        Ok(())
    }

    /// A string is over.
    fn close(&mut self, is_key: bool) {
        self.out.push(b'"');
        self.print.state = State::Behind;
        if is_key {
            self.out.push(b':');
            // A key as long as this names no field of the server's own.
            let origin = self.print.open.last().map_or(Origin::Client, |open| open.origin);
            self.print.state = State::Value(origin.of(""));
        }
    }

    /// Begins a text or bytes that are too long for one piece, if that is what stands here.
    #[inline]
    fn long(&mut self, is_key: bool) -> Result<bool, Unshown> {
        let head = self.value.get(self.print.at).copied().map(Marker::from_u8);
        if !matches!(head, Some(Marker::Str32 | Marker::Bin32 | Marker::Ext32)) {
            return Ok(false);
        }
        self.long_of(head == Some(Marker::Str32), head == Some(Marker::Ext32), is_key)
    }

    #[cold]
    fn long_of(&mut self, is_text: bool, has_type: bool, is_key: bool) -> Result<bool, Unshown> {
        let Some(head) = self.value[self.print.at..].first_chunk::<WIDEST_HEAD_BYTES>() else {
            return Err(Malformed::Truncated.into());
        };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length <= PIECE_BYTES {
            return Ok(false);
        }
        let at = self.print.at + WIDEST_HEAD_BYTES + usize::from(has_type);
        let end = at.saturating_add(length);
        if end > self.value.len() {
            return Err(Malformed::Truncated.into());
        }
        if has_type && self.value[at - 1] == 0 {
            // An absent value is shown as null, however many bytes it has.
            return Ok(false);
        }
        if is_text {
            self.has_room(length + 2)?;
            self.print.at = at;
            self.print.state = State::Text { end, is_key };
        } else {
            self.has_room(BASE64.encode_len(length) + 2)?;
            self.print.state = State::Base64 { at, end, is_key };
        }
        self.out.push(b'"');
        Ok(true)
    }

    fn text_piece(&mut self, end: usize, is_key: bool) -> Result<(), Unshown> {
        let at = self.print.at;
        let piece = &self.value[at..end.min(at + PIECE_BYTES)];
        let text = match std::str::from_utf8(piece) {
            Ok(_) => piece,
            // A character that is cut comes with what follows.
            Err(error) if error.error_len().is_none() && at + piece.len() < end => {
                &piece[..error.valid_up_to()]
            }
            Err(_) => return Err(Malformed::NotUtf8.into()),
        };
        // With the quote behind it.
        self.has_room_for(text, 1)?;
        escaped(self.out, text);
        self.print.at += text.len();
        if self.print.at == end {
            self.close(is_key);
        }
        Ok(())
    }

    fn base64_piece(&mut self, at: usize, end: usize, is_key: bool) {
        let piece = &self.value[at..end.min(at + PIECE_BYTES)];
        encode(self.out, piece);
        let at = at + piece.len();
        self.print.state = State::Base64 { at, end, is_key };
        if at == end {
            self.print.at = end;
            self.close(is_key);
        }
    }

    /// Looks for the end of a key that is a list or map, a value at a time.
    fn measure(&mut self, from: usize, left: usize) -> Result<(), Unshown> {
        if left > 0 {
            let mut reader = self.reader();
            let inside = match reader.map_begun()? {
                Some(entries) => 2 * entries,
                None => match reader.array()? {
                    Some(items) => items,
                    None => reader.pass().map(|()| 0)?,
                },
            };
            self.advance(reader);
            self.print.state = State::Measure { from, left: left - 1 + inside };
            return Ok(());
        }
        let end = self.print.at;
        self.has_room(BASE64.encode_len(end - from) + 2)?;
        self.out.push(b'"');
        self.print.state = State::Base64 { at: from, end, is_key: true };
        Ok(())
    }

    /// Whether what has been written is no more than may be.
    #[inline]
    fn within(&self) -> Result<(), Unshown> {
        if self.out.len() <= self.print.end { Ok(()) } else { Err(Unshown::TooLong) }
    }

    /// Whether so many bytes more may be written.
    #[inline]
    fn has_room(&self, bytes: usize) -> Result<(), Unshown> {
        let room = self.print.end.saturating_sub(self.out.len());
        if bytes <= room { Ok(()) } else { Err(Unshown::TooLong) }
    }

    /// Whether a text may be written, and so many bytes beside it.
    #[inline]
    fn has_room_for(&self, text: &[u8], beside: usize) -> Result<(), Unshown> {
        // Few texts come near the limit: only those are measured before they are written.
        if self.has_room(text.len().saturating_mul(ESCAPE_BYTES_MAX) + beside).is_err() {
            self.has_room(escaped_length(text) + beside)?;
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Unshown> {
        self.has_room_for(text.as_bytes(), 2)?;
        string(self.out, text);
        Ok(())
    }

    fn base64(&mut self, bytes: &[u8]) -> Result<(), Unshown> {
        self.has_room(BASE64.encode_len(bytes.len()) + 2)?;
        self.out.push(b'"');
        encode(self.out, bytes);
        self.out.push(b'"');
        Ok(())
    }

    fn scalar(&mut self, step: Step<'_>, origin: Origin) -> Result<(), Unshown> {
        let out = &mut *self.out;
        match step {
            Step::Bool(true) => out.extend_from_slice(b"true"),
            Step::Bool(false) => out.extend_from_slice(b"false"),
            Step::Uint(value) => integer(out, value),
            Step::Int(value) => integer(out, value),
            Step::Float(value) => float(out, value, origin != Origin::Client),
            Step::Text(text) => return self.text(text),
            Step::Binary(bytes) => return self.base64(bytes),
            Step::Extension(TIMESTAMP, bytes) => match time(bytes) {
                // Nothing in such a text needs an escape, and a vector takes all that it is given.
                Some(time) => drop(write!(out, "\"{time:?}\"")),
                None => return self.base64(bytes),
            },
            Step::Extension(kind, bytes) if kind != 0 => return self.base64(bytes),
            // Containers are not scalars and do not come here.
            Step::Nil | Step::Extension(..) | Step::Array(_) | Step::Map(_) => {
                out.extend_from_slice(b"null");
            }
        }
        self.within()
    }
}
