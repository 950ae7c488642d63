//! Outcomes in any form. A worker that has done a job, or has failed, tells so in texts that others wrote: output of a
//! program, half of a character, an exception that is no string. A refusal would have the job run again, so a [`Repair`]
//! writes a refused frame with texts in place of what is none, to be decoded as any other. A long frame is repaired a slice
//! at a time. Of an error and a stack that are longer than they are kept, the front is written.

use super::find_command;
use crate::api::commands::{CommandSpec, FieldSpec, Kind, Op};
use crate::api::limits::PAYLOAD_BYTES_MAX;
use crate::api::size::ENTRIES_MAX;
use crate::protocol::json::{Print, TEXT_BYTES_MAX};
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::msgpack::{Malformed, Reader};
use rmp::Marker;
use std::borrow::Cow;

/// A longer text is repaired in pieces, and a longer value copied in such.
const TEXT_PIECE_BYTES: usize = 16 << 10;

/// Bytes that are gone through or written in about the time in which a small value is passed on.
const BYTES_PER_STEP: usize = 8;

/// The mark in place of bytes that are no text, and the one for fields that the first would make longer than they may be.
const REPLACEMENT: &str = "\u{fffd}";
const SHORT_REPLACEMENT: &str = "?";

/// Bytes of a marker and a length of 32 bits.
const WIDEST_HEAD_BYTES: usize = 5;

/// Whether a command tells what has come of a job: its texts are taken in any form.
pub fn takes_any_form(op: Op) -> bool {
    matches!(op, Op::Ack | Op::AckBatch | Op::Fail | Op::Discard | Op::Progress | Op::AddLog)
}

/// The command of a frame, if it is such a one.
#[cold]
pub fn outcome_in(frame: &[u8]) -> Option<&'static CommandSpec> {
    let mut reader = Reader::new(frame);
    let entries = reader.map().ok()??;
    let spec = (entries <= ENTRIES_MAX).then(|| find_command(reader, entries).ok())??;
    takes_any_form(spec.op).then_some(spec)
}

/// The frame of an outcome with U+FFFD in place of what is no text, and JSON text in place of what is no string. Names,
/// such as ids and tokens, stay as they are. `None` if that changes nothing, or the frame is not well-formed.
#[cold]
pub fn repaired(frame: &[u8]) -> Option<Vec<u8>> {
    let mut repair = Repair::new(outcome_in(frame)?.fields);
    let mut steps = usize::MAX;
    repair.go_on(frame, &mut steps).ok()?;
    repair.into_changed()
}

/// A frame on its way to another form: see [`repaired`]. Containers keep their sizes, so no stack is needed for their depth.
#[derive(Debug)]
pub struct Repair {
    fields: &'static [FieldSpec],
    /// The next byte of the frame.
    at: usize,
    /// Entries to come; `None` before the first look.
    entries: Option<usize>,
    /// Bytes to come of what stays as it is and is longer than a piece.
    copies: usize,
    /// Values to come of one that stays as it is.
    passes: usize,
    /// Values to come of one whose texts are repaired.
    values: usize,
    /// Values to come that are left out.
    skips: usize,
    /// Lines to come of a list of them, how many have been written, and where its head is in `out`.
    lines: usize,
    kept_lines: u32,
    lines_head: usize,
    /// Most bytes of the text that is being written, of which the front is kept.
    kept_bytes: usize,
    /// Where the value of the field is in `out`, and most bytes that it may have.
    field_at: usize,
    field_max: usize,
    /// Stands for bytes that are no text.
    mark: &'static str,
    /// The bytes to come of a long text, and where its head is in `out`.
    text: Option<(usize, usize)>,
    /// Where a value begins in `out` that a text is wanted for.
    shown_from: Option<usize>,
    /// That value, the machine that shows it as a text, and where the head of that text is.
    shows: Option<(Vec<u8>, Print, usize)>,
    out: Vec<u8>,
    is_changed: bool,
}

impl Repair {
    /// Of the frame of a command with these fields.
    pub fn new(fields: &'static [FieldSpec]) -> Self {
        Self {
            fields,
            at: 0,
            entries: None,
            copies: 0,
            passes: 0,
            values: 0,
            skips: 0,
            lines: 0,
            kept_lines: 0,
            lines_head: 0,
            kept_bytes: usize::MAX,
            field_at: 0,
            field_max: usize::MAX,
            mark: REPLACEMENT,
            text: None,
            shown_from: None,
            shows: None,
            out: Vec::new(),
            is_changed: false,
        }
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.out.len() + self.shows.as_ref().map_or(0, |(value, ..)| value.len())
    }

    /// The repaired frame, once all of it has been gone through; `None` if nothing changed.
    pub fn into_changed(mut self) -> Option<Vec<u8>> {
        self.out.shrink_to_fit();
        self.is_changed.then_some(self.out)
    }

    /// Goes on by about `steps` small values, which it counts down. True once it is at the end.
    pub fn go_on(&mut self, frame: &[u8], steps: &mut usize) -> Result<bool, Malformed> {
        while *steps > 0 {
            let (before, written) = (self.at, self.out.len());
            let mut reader = Reader::new(&frame[self.at..]);
            if self.copies > 0 {
                let to = self.at + self.copies.min(TEXT_PIECE_BYTES);
                self.copies -= to - self.at;
                self.out.extend_from_slice(&frame[self.at..to]);
                self.at = to;
            } else if let Some((left, head)) = self.text {
                self.text_piece(reader.rest(), (left, head));
            } else if self.shows.is_some() {
                self.show();
            } else if self.values > 0 {
                self.values -= 1;
                self.value(&mut reader, frame)?;
            } else if let Some(from) = self.shown_from.take() {
                let value = self.out.split_off(from);
                self.out.extend_from_slice(&[Marker::Str32.to_u8(), 0, 0, 0, 0]);
                let print = Print::value(self.out.len(), TEXT_BYTES_MAX);
                self.shows = Some((value, print, from));
            } else if self.lines > 0 {
                self.line(&mut reader, frame)?;
            } else if self.skips > 0 {
                reader.pass_some(&mut self.skips, steps)?;
                self.pass(&reader, frame);
            } else if self.passes > 0 {
                reader.pass_some(&mut self.passes, steps)?;
                self.take(&reader, frame);
            } else if self.entry(&mut reader, frame)? {
                return Ok(true);
            }
            let bytes = (self.at - before).max(self.out.len().abs_diff(written));
            *steps = steps.saturating_sub(1 + bytes / BYTES_PER_STEP);
            if self.is_changed
                && self.mark == REPLACEMENT
                && self.out.len() - self.field_at > self.field_max
            {
                *self = Self { mark: SHORT_REPLACEMENT, ..Self::new(self.fields) };
            }
        }
        Ok(false)
    }

    /// Passes on what is before the reader.
    fn take(&mut self, reader: &Reader<'_>, frame: &[u8]) {
        let length = frame.len() - reader.rest().len() - self.at;
        if length > TEXT_PIECE_BYTES {
            self.copies = length;
            return;
        }
        self.out.extend_from_slice(&frame[self.at..self.at + length]);
        self.at += length;
    }

    /// Steps over what is before the reader.
    fn pass(&mut self, reader: &Reader<'_>, frame: &[u8]) {
        self.at = frame.len() - reader.rest().len();
    }

    /// Begins the next entry. True if there is none.
    fn entry(&mut self, reader: &mut Reader<'_>, frame: &[u8]) -> Result<bool, Malformed> {
        let Some(entries) = self.entries else {
            // The other form is seldom three times as long. Memory that is not written to costs nothing, and moving it would.
            self.out.reserve(3 * frame.len());
            self.entries = Some(reader.map()?.unwrap_or(0));
            self.take(reader, frame);
            return Ok(false);
        };
        let Some(left) = entries.checked_sub(1) else {
            return if reader.rest().is_empty() { Ok(true) } else { Err(Malformed::Count) };
        };
        (self.entries, self.kept_bytes) = (Some(left), usize::MAX);
        let Some(key) = reader.text_bytes()? else {
            // Such a key names no field.
            self.values = 2;
            return Ok(false);
        };
        let field = self.fields.iter().find(|field| field.name.as_bytes() == key);
        self.begin_text(key, reader, frame);
        (self.field_at, self.field_max) = (self.out.len(), field.map_or(usize::MAX, room_of));
        let mut ahead = *reader;
        match field.map(|field| field.kind) {
            Some(Kind::LongText { .. } | Kind::Stack { .. }) if ahead.absent()? => self.passes = 1,
            Some(Kind::LongText { bytes_max, cut }) => {
                self.kept_bytes = if cut { bytes_max as usize } else { usize::MAX };
                self.text_of(reader, frame)?;
            }
            Some(Kind::Stack { bytes_max }) => {
                self.kept_bytes = bytes_max as usize;
                self.stack(reader, frame)?;
            }
            Some(Kind::Payload { .. } | Kind::Results) | None => self.values = 1,
            Some(_) => self.passes = 1,
        }
        Ok(false)
    }

    /// Passes on a value with its texts repaired, or what stands before those in it.
    fn value(&mut self, reader: &mut Reader<'_>, frame: &[u8]) -> Result<(), Malformed> {
        if let Some(text) = reader.text_bytes()? {
            self.begin_text(text, reader, frame);
            return Ok(());
        }
        let (mut left, mut steps) = (1, 1);
        reader.pass_some(&mut left, &mut steps)?;
        self.values += left;
        self.take(reader, frame);
        Ok(())
    }

    /// Begins a value that is to be a text: itself, or the JSON that shows it.
    fn text_of(&mut self, reader: &mut Reader<'_>, frame: &[u8]) -> Result<(), Malformed> {
        if let Some(text) = reader.text_bytes()? {
            self.begin_text(text, reader, frame);
        } else {
            (self.shown_from, self.values, self.is_changed) = (Some(self.out.len()), 1, true);
        }
        Ok(())
    }

    /// Begins a list of lines. A text is the list of its lines, as many as are kept, and any other value a list of one.
    fn stack(&mut self, reader: &mut Reader<'_>, frame: &[u8]) -> Result<(), Malformed> {
        if let Some(lines) = reader.array()? {
            self.pass(reader, frame);
            self.begin_lines(lines);
        } else if let Some(text) = reader.text_bytes()? {
            let kept = &text[..text.len().min(self.kept_bytes)];
            let text = self.marked(kept);
            let text = &text[..text.floor_char_boundary(self.kept_bytes)];
            let mut writer = Writer::new(&mut self.out);
            writer.array(text.lines().count());
            text.lines().for_each(|line| writer.str(line));
            self.is_changed = true;
            self.pass(reader, frame);
        } else {
            self.begin_lines(1);
        }
        Ok(())
    }

    fn begin_lines(&mut self, lines: usize) {
        (self.lines, self.kept_lines, self.lines_head) = (lines, 0, self.out.len());
        self.out.extend_from_slice(&[Marker::Array32.to_u8(), 0, 0, 0, 0]);
    }

    /// Begins the next line, unless those before it have as many bytes as are kept.
    fn line(&mut self, reader: &mut Reader<'_>, frame: &[u8]) -> Result<(), Malformed> {
        let lines = self.lines_head + WIDEST_HEAD_BYTES;
        if self.out.len() - lines > self.kept_bytes {
            (self.skips, self.lines, self.is_changed) = (self.lines, 0, true);
            return Ok(());
        }
        self.lines -= 1;
        self.kept_lines += 1;
        self.out[self.lines_head + 1..lines].copy_from_slice(&self.kept_lines.to_be_bytes());
        self.text_of(reader, frame)
    }

    /// A text that the reader has just passed: a short one is written, a long one is begun.
    fn begin_text(&mut self, text: &[u8], reader: &Reader<'_>, frame: &[u8]) {
        self.pass(reader, frame);
        if text.len() > TEXT_PIECE_BYTES {
            self.at -= text.len();
            self.text = Some((text.len(), self.out.len()));
            self.out.extend_from_slice(&[Marker::Str32.to_u8(), 0, 0, 0, 0]);
        } else {
            self.write_text(text);
        }
    }

    fn write_text(&mut self, text: &[u8]) {
        let text = self.marked(text);
        Writer::new(&mut self.out).str(&text);
    }

    /// A text with the mark in place of what is none.
    fn marked<'t>(&mut self, text: &'t [u8]) -> Cow<'t, str> {
        let marked = String::from_utf8_lossy(text);
        let is_changed = matches!(marked, Cow::Owned(_));
        self.is_changed |= is_changed;
        if !is_changed || self.mark == REPLACEMENT {
            return marked;
        }
        let mark = |invalid: &[u8]| if invalid.is_empty() { "" } else { self.mark };
        let chunks = text.utf8_chunks();
        Cow::Owned(chunks.flat_map(|chunk| [chunk.valid(), mark(chunk.invalid())]).collect())
    }

    /// Writes the next piece of a long text.
    fn text_piece(&mut self, rest: &[u8], (left, head): (usize, usize)) {
        let mut length = left.min(TEXT_PIECE_BYTES);
        // A character that goes on behind the piece belongs to the next.
        let goes_on = |at: &usize| rest[..left].get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
        let begins = (length.saturating_sub(3)..=length).rev().find(|at| !goes_on(at));
        length = begins.unwrap_or(length);
        let piece = self.marked(&rest[..length]);
        self.out.extend_from_slice(piece.as_bytes());
        self.at += length;
        self.text = Some((left - length, head)).filter(|(left, _)| *left > 0);
        if self.text.is_none() {
            self.end_text(head);
        }
    }

    /// Shows more of a value as a text.
    fn show(&mut self) {
        let Some((value, print, head)) = &mut self.shows else { return };
        let (shown, head) = (print.go_on(value, &mut self.out, TEXT_PIECE_BYTES), *head);
        if shown == Ok(false) {
            return;
        }
        if shown.is_err() {
            // Lists and maps of an error may nest deeper than JSON shows them.
            self.out.extend_from_slice(REPLACEMENT.as_bytes());
        }
        self.shows = None;
        self.end_text(head);
    }

    /// Writes the length of the text that ends there, or of its front that is kept.
    fn end_text(&mut self, head: usize) {
        let text = head + WIDEST_HEAD_BYTES;
        let mut length = self.out.len() - text;
        if length > self.kept_bytes {
            let begins = |at: &usize| self.out[text + at] & 0xc0 != 0x80;
            length = (0..=self.kept_bytes).rev().find(begins).unwrap_or(0);
            self.out.truncate(text + length);
            self.is_changed = true;
        }
        self.out[head + 1..text].copy_from_slice(&(length as u32).to_be_bytes());
    }
}

/// Most bytes that the value of a field may have, as far as more has it refused.
fn room_of(field: &FieldSpec) -> usize {
    match field.kind {
        Kind::LongText { bytes_max, cut: false } => bytes_max as usize + WIDEST_HEAD_BYTES,
        Kind::Payload { bytes_max } => bytes_max as usize,
        Kind::Results => PAYLOAD_BYTES_MAX as usize,
        _ => usize::MAX,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::version::Version;
    use crate::protocol::decode::decode_as;

    /// A command with one field more, whose value is written.
    fn frame(cmd: &str, field: &str, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.map(3);
        for text in ["cmd", cmd, "id", "j", field] {
            writer.str(text);
        }
        write(&mut writer);
        bytes
    }

    fn repaired_as(frame: &[u8]) -> String {
        let out = repaired(frame).unwrap();
        assert!(repaired(&out).is_none(), "once is enough");
        format!("{:?}", decode_as(&out, Version::Two).unwrap().body)
    }

    fn taken(frame: &[u8]) -> String {
        format!("{:?}", decode_as(frame, Version::Two).unwrap().body)
    }

    #[test]
    fn an_outcome_reads_as_its_texts_with_what_is_none_replaced() {
        let bad = |writer: &mut Writer<'_>| writer.raw(&[0xa3, b'a', 0xff, b'b']);
        let good = |writer: &mut Writer<'_>| writer.str("a\u{fffd}b");
        for (cmd, field) in [("ACK", "result"), ("FAIL", "error"), ("Discard", "error")] {
            let bad = frame(cmd, field, bad);
            assert!(decode_as(&bad, Version::Two).is_err(), "{cmd}");
            assert_eq!(repaired_as(&bad), taken(&frame(cmd, field, good)), "{cmd}");
        }
        let five = frame("FAIL", "error", |writer| writer.raw(&[5]));
        assert_eq!(repaired_as(&five), taken(&frame("FAIL", "error", |it| it.str("5"))));
        let map = frame("AddLog", "message", |writer| writer.raw(&[0x81, 0xa1, b'k', 0xc3]));
        let text = frame("AddLog", "message", |writer| writer.str(r#"{"k":true}"#));
        assert_eq!(repaired_as(&map), taken(&text));
        let lines = frame("FAIL", "stack", |writer| writer.str("one\ntwo"));
        let list = frame("FAIL", "stack", |writer| {
            writer.array(2);
            writer.str("one");
            writer.str("two");
        });
        assert_eq!(repaired_as(&lines), taken(&list));
    }

    #[test]
    fn a_name_and_what_is_pushed_are_not_repaired() {
        let name = frame("ACK", "token", |writer| writer.raw(&[0xa1, 0xff]));
        assert!(repaired(&name).is_none());
        let mut push = Vec::new();
        let mut writer = Writer::new(&mut push);
        writer.map(3);
        for text in ["cmd", "PUSH", "queue", "q", "data"] {
            writer.str(text);
        }
        writer.raw(&[0xa1, 0xff]);
        assert!(repaired(&push).is_none());
    }

    #[test]
    fn a_frame_that_ends_anywhere_is_left_as_it_is() {
        let whole = frame("FAIL", "error", |writer| writer.raw(&[0x92, 5, 0xa1, 0xff]));
        assert!(repaired(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(repaired(&whole[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_repair_in_slices_is_the_one_at_once() {
        let long = "\u{e9}\u{20ac}\u{1f600}".repeat(9000).into_bytes();
        let rest = b"\x80".repeat(40_000);
        let bad = [&long[..], b"\xff\xe2\x82", &rest, &long[1..], b"\xf0\x9f"].concat();
        let text = |bytes: &[u8]| {
            let length = (bytes.len() as u32).to_be_bytes();
            [&[Marker::Str32.to_u8()][..], &length, bytes].concat()
        };
        let list = [&[0x94, 5, 0xa1, 0xff][..], &text(&bad), &[0x81, 0xa1, b'k', 0xc0]].concat();
        for value in [text(&long), text(&bad), list, vec![0xcb, 0, 0, 0, 0, 0, 0, 0, 0]] {
            for (cmd, field) in [("ACK", "result"), ("FAIL", "error"), ("FAIL", "stack")] {
                let frame = frame(cmd, field, |writer| writer.raw(&value));
                let at_once = repaired(&frame);
                for slice in [1, 2, 7, 5000] {
                    let mut repair = Repair::new(outcome_in(&frame).unwrap().fields);
                    let mut go_on = || repair.go_on(&frame, &mut slice.clone());
                    while !go_on().unwrap() {}
                    assert_eq!(repair.into_changed(), at_once, "{cmd} {field} by {slice}");
                }
                let Some(at_once) = at_once else { continue };
                assert!(repaired(&at_once).is_none(), "once is enough");
                decode_as(&at_once, Version::Two).unwrap();
            }
        }
        let kept = String::from_utf8_lossy(&bad);
        let at_once = repaired(&frame("ACK", "result", |writer| writer.raw(&text(&bad)))).unwrap();
        assert!(at_once.ends_with(kept.as_bytes()));
    }

    #[test]
    fn an_error_and_a_stack_are_cut_to_what_is_kept_of_them() {
        let decoded = |frame: &[u8]| format!("{:?}", decode_as(frame, Version::Two).unwrap().body);
        let long = "\u{20ac}".repeat(50_000);
        let error = frame("FAIL", "error", |writer| writer.str(&long));
        let stack = frame("FAIL", "stack", |writer| {
            writer.array(200_000);
            (0..200_000).for_each(|_| writer.str("at"));
        });
        for whole in [error, stack] {
            let cut = repaired(&whole).unwrap();
            assert!(cut.len() < 70_000, "{}", cut.len());
            assert_eq!(decoded(&cut), decoded(&whole));
        }
    }

    #[test]
    fn what_would_grow_beyond_its_bound_has_a_shorter_mark() {
        let bad = |bytes: usize| [&b"x"[..], &b"\xff".repeat(bytes)].concat();
        for (cmd, field, bytes) in [("ACK", "result", 4_000_000), ("AddLog", "message", 40_000)] {
            let value = [&[Marker::Str32.to_u8()][..], &(bytes as u32 + 1).to_be_bytes()].concat();
            let value = [value, bad(bytes)].concat();
            let frame = frame(cmd, field, |writer| writer.raw(&value));
            let out = repaired(&frame).unwrap();
            assert!(out.ends_with(b"x???????") || out.ends_with(b"????????"), "{cmd}");
            assert!(repaired(&out).is_none());
            decode_as(&out, Version::Two).unwrap();
        }
    }

    #[test]
    fn an_error_that_nests_deeper_than_can_be_shown_is_taken() {
        let deep = [&[0x91; 5000][..], &[0xc0]].concat();
        let out = frame("FAIL", "error", |writer| writer.raw(&deep));
        let text = frame("FAIL", "error", |writer| writer.str("\u{fffd}"));
        assert_eq!(repaired_as(&out), taken(&text));
    }

    /// A step is a bounded part of the work, wherever a client puts its bytes.
    #[test]
    fn no_slice_does_more_than_its_steps() {
        let blob = |marker: &[u8], bytes: usize| {
            [marker, &(bytes as u32).to_be_bytes(), &b"\xff".repeat(bytes)].concat()
        };
        let (text, binary) = (Marker::Str32.to_u8(), Marker::Bin32.to_u8());
        let ones = |count: u32| {
            [&[0xdd][..], &count.to_be_bytes(), &b"\x01".repeat(count as usize)].concat()
        };
        let texts = [&[0xdc, 0, 200][..], &blob(&[text], 16_000).repeat(200)].concat();
        let long_key =
            |writer: &mut Writer<'_>| writer.raw(&[&blob(&[text], 900_000)[..], &[1]].concat());
        let list_key = |writer: &mut Writer<'_>| writer.raw(&[&ones(900_000)[..], &[1]].concat());
        let mut frames = vec![
            frame("FAIL", "stack", |writer| writer.raw(&ones(11_000))),
            frame("ACK", "result", |writer| writer.raw(&texts)),
            frame("ACK", "result", |writer| writer.raw(&blob(&[binary], 900_000))),
            frame("ACK", "token", |writer| writer.raw(&blob(&[binary], 900_000))),
        ];
        for key in [&long_key as &dyn Fn(&mut Writer<'_>), &list_key] {
            let mut bytes = frame("FAIL", "error", |writer| writer.raw(&[5]));
            bytes[0] += 1;
            key(&mut Writer::new(&mut bytes));
            frames.push(bytes);
        }
        for frame in frames {
            let mut repair = Repair::new(outcome_in(&frame).unwrap().fields);
            let mut slices = 0;
            loop {
                let (at, written) = (repair.at, repair.out.len());
                let ended = repair.go_on(&frame, &mut 5000).unwrap();
                let bytes = (repair.at - at).max(repair.out.len().abs_diff(written));
                assert!(bytes <= 5000 * BYTES_PER_STEP + 6 * TEXT_PIECE_BYTES, "{bytes}");
                slices += 1;
                if ended {
                    break;
                }
            }
            assert!(slices >= 3, "{slices}");
        }
    }
}
