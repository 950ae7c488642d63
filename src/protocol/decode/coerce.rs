//! Values that version 3 of the protocol takes and version 2 refuses: fractions, numbers as texts and texts as numbers,
//! truth of any kind. [`coerced`] writes a frame as a client that minds the table would have sent it, which is then
//! decoded as any other. Only a frame that was refused costs anything, all shards read the same, and what is still
//! wrong is refused in the same words.
//!
//! Which field is read how stands in [`FieldSpec::on_three`].

use super::find_command;
use crate::api::commands::{Coercion, FieldSpec, Kind};
use crate::api::size::ENTRIES_MAX;
use crate::protocol::large::{Checked, FrameRef, LargeFrame};
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::msgpack::{Malformed, Number, Reader};

/// Beyond it not every whole number is a number of a client.
const EXACT_MAX: f64 = (1_u64 << 53) as f64;

/// No number that a client writes as a text is longer.
const NUMBER_CHARS_MAX: usize = 32;

/// A frame with its values as their fields ask for them; payloads that are known stay so. `None` if that changes nothing, or
/// the frame is not well-formed.
#[cold]
pub fn coerced(frame: FrameRef<'_>) -> Option<LargeFrame> {
    let mut reader = Reader::new(frame.bytes());
    let entries = reader.map().ok()??;
    // A map with so many entries is refused in either version.
    if entries > ENTRIES_MAX {
        return None;
    }
    let spec = find_command(reader, entries).ok()?;
    let mut splice = Splice { frame, out: Vec::new(), copied: 0, checked: Checked::default() };
    splice.entries(&mut reader, entries, spec.fields).ok()?;
    splice.finish()
}

/// A frame of which some values are replaced. Entries and items stay as many as they are.
struct Splice<'a> {
    frame: FrameRef<'a>,
    out: Vec<u8>,
    /// Offset in `frame` up to which `out` is complete; 0 while no value was replaced.
    copied: usize,
    /// Known values, where they are in `out`.
    checked: Checked,
}

impl<'a> Splice<'a> {
    fn at(&self, reader: &Reader<'_>) -> usize {
        self.frame.len() - reader.rest().len()
    }

    /// Where a place of the frame is in `out`.
    fn moved(&self, at: usize) -> usize {
        self.out.len() + at - self.copied
    }

    fn finish(mut self) -> Option<LargeFrame> {
        if self.copied == 0 {
            return None;
        }
        self.out.extend_from_slice(&self.frame[self.copied..]);
        Some(LargeFrame::new(self.out, 0, self.checked))
    }

    fn entries(
        &mut self,
        reader: &mut Reader<'a>,
        entries: usize,
        fields: &[FieldSpec],
    ) -> Result<(), Malformed> {
        for _ in 0..entries {
            let key = reader.pass_key()?;
            match fields.iter().find(|field| field.name.as_bytes() == key) {
                Some(field) => self.value(reader, field)?,
                None => self.frame.pass(reader)?,
            }
        }
        Ok(())
    }

    /// The value of a field. Objects of the table nest in each other, but none in itself.
    fn value(&mut self, reader: &mut Reader<'a>, field: &FieldSpec) -> Result<(), Malformed> {
        let fields = field.kind.fields();
        let is_list = matches!(
            field.kind,
            Kind::Jobs
                | Kind::Flow
                | Kind::JobIds
                | Kind::Results
                | Kind::Texts { .. }
                | Kind::Integers { .. }
        );
        if !is_list {
            return self.item(reader, field, fields);
        }
        let known = self.frame.known().length_at(reader.rest());
        let place = known.map(|_| self.checked.note(self.moved(self.at(reader)), 0));
        match reader.array()? {
            Some(items) => (0..items).try_for_each(|_| self.item(reader, field, fields))?,
            None => reader.pass()?,
        }
        if let Some(place) = place {
            self.checked.end(place, self.moved(self.at(reader)));
        }
        Ok(())
    }

    /// A value that is no list: an object with these fields, if there are any, or a scalar.
    fn item(
        &mut self,
        reader: &mut Reader<'a>,
        field: &FieldSpec,
        fields: &[FieldSpec],
    ) -> Result<(), Malformed> {
        if !fields.is_empty()
            && let Some(entries) = reader.map()?
        {
            return self.entries(reader, entries, fields);
        }
        let (start, value) = (self.at(reader), *reader);
        if reader.absent()? {
            return Ok(());
        }
        if let Some(known) = reader.skip_known(self.frame.known()) {
            let to = self.moved(start);
            self.checked.note(to, known.len());
            if let Some(offset) = self.frame.payload_within(start..start + known.len()) {
                self.checked.keep(to + offset..to + known.len());
            }
            return Ok(());
        }
        reader.pass()?;
        let end = self.at(reader);
        match field.on_three {
            Coercion::None => {}
            Coercion::Truth => {
                if let Some(truth) = truth_of(value)? {
                    self.put((start, end), |writer| writer.bool(truth));
                }
            }
            Coercion::Digits => {
                if let Some(whole) = whole_of(value)? {
                    self.put((start, end), |writer| writer.str(&whole.to_string()));
                }
            }
            Coercion::Number { is_whole, from_least } => {
                let least = if from_least { field.kind.least() } else { None };
                if let Some(number) = number_of(value, is_whole, least)? {
                    self.put((start, end), |writer| writer.number(number));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, (start, end): (usize, usize), write: impl FnOnce(&mut Writer<'_>)) {
        self.out.extend_from_slice(&self.frame[self.copied..start]);
        write(&mut Writer::new(&mut self.out));
        self.copied = end;
    }
}

/// Whether a value that is no boolean counts as true: all do except zero, what is no number, and the empty text.
fn truth_of(mut value: Reader<'_>) -> Result<Option<bool>, Malformed> {
    if value.flag()?.is_some() {
        return Ok(None);
    }
    if let Some(number) = value.number()? {
        let is_nothing = match number {
            Number::Whole(number) => number == 0,
            Number::Float(number) => number == 0.0 || number.is_nan(),
        };
        return Ok(Some(!is_nothing));
    }
    Ok(Some(value.text_bytes()?.is_none_or(|text| !text.is_empty())))
}

/// The whole number that stands where a text has to.
fn whole_of(mut value: Reader<'_>) -> Result<Option<i64>, Malformed> {
    let number = value.number()?.map(|number| match number {
        Number::Whole(number) => number as f64,
        Number::Float(number) => number,
    });
    let is_exact = |number: &f64| number.abs() < EXACT_MAX && number.fract() == 0.0;
    Ok(number.filter(is_exact).map(|number| number as i64))
}

/// The number that a field is given for another one, or for a text.
fn number_of(
    mut value: Reader<'_>,
    is_whole: bool,
    least: Option<i64>,
) -> Result<Option<f64>, Malformed> {
    let given = match value.number()? {
        Some(Number::Whole(number)) => Some(number as f64),
        Some(Number::Float(number)) => Some(number),
        None => None,
    };
    let text = if given.is_none() { value.text().ok().flatten() } else { None };
    let Some(number) = given.or_else(|| text.and_then(written)) else { return Ok(None) };
    // Leave a value that stays wrong as it is, so that the refusal is about what the client sent.
    let is_number = number.is_finite() && !(is_whole && number.fract() != 0.0);
    let mut read = if is_number && number.abs() <= EXACT_MAX { number.floor() } else { number };
    if let Some(least) = least.filter(|_| is_number) {
        read = read.max(least as f64);
    }
    let changes = given.is_none_or(|given| given.to_bits() != read.to_bits());
    Ok((is_number && changes).then_some(read))
}

/// The number that a text spells, in decimals.
fn written(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let is_plain = text.len() <= NUMBER_CHARS_MAX && text.bytes().all(is_part);
    text.parse().ok().filter(|number: &f64| is_plain && number.is_finite())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::commands::CommandSpec;
    use crate::api::version::Version;
    use crate::protocol::decode::decode_as;
    use crate::protocol::json::packed as frame;
    use crate::protocol::large_scan::LargeScan;
    use std::sync::Arc;

    /// A push with one field more, as it is read, or why it is not.
    fn read(field: &str, value: &str) -> Result<String, String> {
        read_frame(&frame(&format!(r#"{{"cmd":"PUSH","queue":"q","data":1,"{field}":{value}}}"#)))
    }

    fn read_frame(frame: &[u8]) -> Result<String, String> {
        let coerced = coerced(frame.into());
        let frame = coerced.as_deref().unwrap_or(frame);
        assert!(super::coerced(frame.into()).is_none(), "once is enough");
        let request = decode_as(frame, Version::Three);
        request.map(|request| format!("{:?}", request.body)).map_err(|it| it.error.to_string())
    }

    #[test]
    fn values_of_version_3_read_as_what_they_are_taken_for() {
        for (field, given, taken) in [
            ("delay", "1.9", "1"),
            ("delay", "-0.5", "0"),
            ("delay", "-1e300", "0"),
            ("delay", r#"" 5.0 ""#, "5"),
            ("delay", r#""1e3""#, "1000"),
            ("ttl", "7.5", "7"),
            ("timestamp", r#""1700000000000""#, "1700000000000"),
            ("timestamp", "9007199254740990.5", "9007199254740990"),
            ("maxAttempts", "0", "1"),
            ("maxAttempts", "-7", "1"),
            ("maxAttempts", r#""2""#, "2"),
            ("priority", r#""-3""#, "-3"),
            ("backoff", "1.5", "1"),
            ("backoff", r#"{"delay":"1.5"}"#, r#"{"delay":1}"#),
            ("repeat", r#"{"every":1000.5}"#, r#"{"every":1000}"#),
            ("jobId", "42", r#""42""#),
            ("customId", "-1.0", r#""-1""#),
            ("dependsOn", r#"["a",7,9007199254740991]"#, r#"["a","7","9007199254740991"]"#),
            ("lifo", "1", "true"),
            ("lifo", r#""no""#, "true"),
            ("lifo", "[]", "true"),
            ("lifo", "0.0", "false"),
            ("durable", r#""""#, "false"),
        ] {
            let what = format!("{field}: {given}");
            assert_eq!(
                read(field, given).as_ref().unwrap(),
                &read(field, taken).unwrap(),
                "{what}"
            );
            let taken = frame(&format!(r#"{{"cmd":"PUSH","{field}":{taken}}}"#));
            assert!(coerced((&*taken).into()).is_none());
        }
    }

    #[test]
    fn what_is_still_wrong_is_refused_as_in_version_2() {
        for (field, given, error) in [
            ("delay", r#""x""#, "delay must be an integer"),
            ("delay", r#""""#, "delay must be an integer"),
            ("delay", r#""inf""#, "delay must be an integer"),
            ("delay", r#""1e999""#, "delay must be an integer"),
            ("delay", "true", "delay must be an integer"),
            ("delay", "1e300", "delay must be between 0 and 31536000000"),
            ("timestamp", "9007199254740993", "timestamp must be between 0 and 9007199254740991"),
            ("timestamp", r#""1e17""#, "timestamp must be between 0 and 9007199254740991"),
            ("ttl", "-1", "ttl must be between 0 and 31536000000"),
            ("maxAttempts", "2.5", "maxAttempts must be an integer"),
            ("maxAttempts", "1001", "maxAttempts must be between 1 and 1000"),
            ("priority", "1.5", "priority must be an integer"),
            ("groupMaxSize", "1.5", "groupMaxSize must be an integer"),
            ("jobId", "1.5", "jobId must be a string"),
            ("jobId", "9007199254740992", "jobId must be a string"),
            ("groupId", "1", "groupId must be a string"),
        ] {
            assert_eq!(read(field, given), Err(error.to_owned()), "{field}: {given}");
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut bytes = frame(r#"{"cmd":"PUSH","queue":"q","data":1,"delay":null}"#);
            bytes.pop();
            Writer::new(&mut bytes).f64(value);
            assert_eq!(read_frame(&bytes), Err("delay must be an integer".to_owned()), "{value}");
        }
    }

    #[test]
    fn a_flow_rounds_down_and_is_strict_otherwise() {
        let flow = |field: &str| {
            let input = format!(r#"{{"data":1,"name":"n",{field}}}"#);
            let jobs = format!(r#"[{{"id":"a","queue":"q","input":{input}}}]"#);
            read_frame(&frame(&format!(r#"{{"cmd":"PUSHF","jobs":{jobs}}}"#)))
        };
        assert_eq!(flow(r#""delay":1.5"#).unwrap(), flow(r#""delay":1"#).unwrap());
        for (field, error) in [
            (r#""delay":-1"#, "jobs[0]: input.delay must be between 0 and 31536000000"),
            (r#""maxAttempts":0"#, "jobs[0]: input.maxAttempts must be between 1 and 1000"),
            (r#""lifo":1"#, "jobs[0]: input.lifo must be a boolean"),
        ] {
            assert_eq!(flow(field), Err(error.to_owned()));
        }
    }

    /// The fear: payloads whose places are not where the values before them have moved them, so that bytes beside them are
    /// taken for them, or all of them are gone through again.
    #[test]
    fn payloads_that_are_known_stay_known_where_values_before_them_become_longer_and_shorter() {
        let text = "x".repeat(50);
        for (name, fields) in [
            (
                "PUSHB",
                format!(
                    r#""queue":"q","jobs":[{{"delay":1.5,"data":[1,"{text}"],"jobId":7}},{{"data":2,"lifo":"no"}},{{"lifo":1}}]"#
                ),
            ),
            ("ACKB", format!(r#""ids":[7,9007199254740991,"a"],"results":["{text}",null,[3]]"#)),
            ("PUSH", format!(r#""delay":"2.0","queue":"q","data":["{text}"],"lifo":1"#)),
            ("Progress", format!(r#""id":7,"progress":"5","message":"{text}""#)),
        ] {
            let bytes = frame(&format!(r#"{{"cmd":"{name}","reqId":"r",{fields}}}"#));
            let mut scan = LargeScan::new(CommandSpec::find(name.as_bytes()).unwrap());
            assert!(scan.go_on(&bytes, &mut usize::MAX.clone()).unwrap());
            let large = Arc::new(LargeFrame::new(bytes.clone(), 0, scan.into_checked()));
            let (known, plain) = (coerced((&large).into()), coerced((&*bytes).into()));
            let (known, plain) = (Arc::new(known.unwrap()), plain.unwrap());
            assert_eq!(**known, *plain, "{name}");
            let mut scan = LargeScan::new(CommandSpec::find(name.as_bytes()).unwrap());
            assert!(scan.go_on(&plain, &mut usize::MAX.clone()).unwrap());
            let expected = Arc::new(LargeFrame::new(plain.to_vec(), 0, scan.into_checked()));
            let (known, expected) = (FrameRef::from(&known), FrameRef::from(&expected));
            assert_eq!(format!("{:?}", known.known()), format!("{:?}", expected.known()), "{name}");
            assert_eq!(known.payload(), expected.payload(), "{name}");
        }
    }

    #[test]
    fn a_frame_that_ends_anywhere_is_left_as_it_is() {
        let whole = frame(
            r#"{"cmd":"PUSHB","queue":"q","jobs":[{"data":[1],"delay":"1.5","dependsOn":[7],
            "backoff":{"delay":2.5},"lifo":1}]}"#,
        );
        assert!(coerced((&*whole).into()).is_some());
        for end in 0..whole.len() {
            assert!(coerced(whole[..end].into()).is_none(), "{end}");
        }
    }
}
