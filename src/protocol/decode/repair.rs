//! Outcomes in any form. A worker that has done a job, or has failed, tells so in texts that others wrote: output of a
//! program, half of a character, an exception that is no string. A refusal would have the job run again, so
//! [`repaired`] writes a refused frame with texts in place of what is none, to be decoded as any other.

use std::borrow::Cow;

use super::find_command;
use crate::api::commands::{Kind, Op};
use crate::api::size::ENTRIES_MAX;
use crate::protocol::json;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::msgpack::{Malformed, Reader};

/// Whether a command tells what has come of a job: its texts are taken in any form.
pub fn takes_any_form(op: Op) -> bool {
    matches!(op, Op::Ack | Op::AckBatch | Op::Fail | Op::Discard | Op::Progress | Op::AddLog)
}

/// Whether a frame is such a command.
#[cold]
pub fn is_outcome(frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    let Ok(Some(entries)) = reader.map() else { return false };
    entries <= ENTRIES_MAX
        && find_command(reader, entries).is_ok_and(|spec| takes_any_form(spec.op))
}

/// The frame of an outcome with U+FFFD in place of what is no text, and JSON text in place of what is no string. Names,
/// such as ids and tokens, stay as they are. `None` if that changes nothing, or the frame is not well-formed.
#[cold]
pub fn repaired(frame: &[u8]) -> Option<Vec<u8>> {
    if !is_outcome(frame) {
        return None;
    }
    let mut out = Vec::with_capacity(frame.len());
    write(frame, &mut out).ok()?;
    (out != frame).then_some(out)
}

fn write(frame: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut reader = Reader::new(frame);
    let entries = reader.map()?.unwrap_or(0);
    let fields = find_command(reader, entries).map_or(&[][..], |spec| spec.fields);
    Writer::new(out).map(entries);
    for _ in 0..entries {
        let key = reader.pass_key()?;
        Writer::new(out).str(&String::from_utf8_lossy(key));
        match fields.iter().find(|field| field.name.as_bytes() == key).map(|field| field.kind) {
            Some(Kind::LongText { .. }) => write_text(&mut reader, out)?,
            Some(Kind::Stack { .. }) => write_lines(&mut reader, out)?,
            Some(Kind::Payload { .. } | Kind::Results) | None => write_value(&mut reader, out)?,
            Some(_) => out.extend_from_slice(pass(&mut reader)?),
        }
    }
    out.extend_from_slice(reader.rest());
    Ok(())
}

/// Steps over one value.
fn pass<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let rest = reader.rest();
    reader.pass()?;
    Ok(&rest[..rest.len() - reader.rest().len()])
}

/// Writes a value with its texts repaired. Containers keep their sizes, so no stack is needed for their depth.
fn write_value(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut left = 1_usize;
    while left > 0 {
        left -= 1;
        if let Some(entries) = reader.map()? {
            Writer::new(out).map(entries);
            left += 2 * entries;
        } else if let Some(items) = reader.array()? {
            Writer::new(out).array(items);
            left += items;
        } else if let Some(text) = reader.text_bytes()? {
            Writer::new(out).str(&String::from_utf8_lossy(text));
        } else {
            out.extend_from_slice(pass(reader)?);
        }
    }
    Ok(())
}

/// Writes a text, or what counts as absent.
fn write_text(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut ahead = *reader;
    if ahead.absent()? {
        out.extend_from_slice(pass(reader)?);
        return Ok(());
    }
    let text = text_of(reader)?;
    Writer::new(out).str(&text);
    Ok(())
}

/// Writes a list of lines. A text is the list of its lines, and any other value a list of one.
fn write_lines(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let mut ahead = *reader;
    if ahead.absent()? {
        out.extend_from_slice(pass(reader)?);
    } else if let Some(lines) = reader.array()? {
        Writer::new(out).array(lines);
        for _ in 0..lines {
            let line = text_of(reader)?;
            Writer::new(out).str(&line);
        }
    } else {
        let text = text_of(reader)?;
        Writer::new(out).array(text.lines().count());
        for line in text.lines() {
            Writer::new(out).str(line);
        }
    }
    Ok(())
}

/// A value as a text: itself, or the JSON that shows it.
fn text_of<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, str>, Malformed> {
    if let Some(text) = reader.text_bytes()? {
        return Ok(String::from_utf8_lossy(text));
    }
    let (mut value, mut shown) = (Vec::new(), Vec::new());
    write_value(reader, &mut value)?;
    json::from_msgpack(&value, &mut shown).map_err(|_| Malformed::Depth)?;
    Ok(Cow::Owned(String::from_utf8_lossy(&shown).into_owned()))
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
}
