//! The check of a long frame, a slice at a time: its payloads are looked through, whether they are one or those of ten
//! thousand jobs, so that the frame can be decoded in one turn without going through them. All else is only stepped over,
//! and found to be no more than a turn can read: what is wrong with it is found when the frame is decoded.

use super::large::Checked;
use super::msgpack::scan::Scan;
use super::msgpack::{Malformed, Reader};
use crate::api::commands::{CommandSpec, FieldSpec, Kind};
use crate::api::error::{Code, Error, ErrorKind};
use crate::api::limits::{BATCH_MAX, BATCH_VALUES_MAX, LARGE_BYTES_MIN, PAYLOAD_BYTES_MAX};
use crate::api::size::{ENTRIES_MAX, IGNORED_BYTES_MAX};
use std::ops::Range;

/// The field among these that may hold megabytes, or objects that have such a field.
fn large_field(fields: &'static [FieldSpec]) -> Option<&'static FieldSpec> {
    fields.iter().find(|field| match field.kind {
        Kind::Jobs | Kind::Flow | Kind::FlowJob | Kind::Results => true,
        _ => payload_max(field).is_some(),
    })
}

/// How many bytes a payload may have that may be large, and whether these are a text.
fn payload_max(field: &FieldSpec) -> Option<(usize, bool)> {
    match field.kind {
        Kind::Payload { bytes_max } if bytes_max >= LARGE_BYTES_MIN => {
            Some((bytes_max as usize, false))
        }
        Kind::LongText { bytes_max, cut: false } if bytes_max >= LARGE_BYTES_MIN => {
            Some((bytes_max as usize, true))
        }
        _ => None,
    }
}

/// Whether a command may have payloads that are worth a check in slices.
pub fn has_payloads(spec: &CommandSpec) -> bool {
    large_field(spec.fields).is_some()
}

/// A container that the check is in.
#[derive(Clone, Debug)]
enum Level {
    /// The entries of an object that are to come.
    Object { left: usize, large: Option<&'static FieldSpec>, path: &'static str },
    /// The items of a list that are to come, of so many, and the place of the list among the values.
    List { left: usize, count: usize, field: &'static FieldSpec, value: usize },
}

/// Part of the frame that is being checked.
#[derive(Clone, Debug)]
enum At {
    /// In front of an entry or an item.
    Front,
    /// In values of which only the end matters.
    Values { left: usize },
    /// In a payload.
    Payload { from: usize, field: &'static FieldSpec, scan: Scan },
}

/// A frame of a command on its way through the check.
#[derive(Clone, Debug)]
pub struct LargeScan {
    spec: &'static CommandSpec,
    at: usize,
    /// The containers around; empty before the first look and behind the last.
    levels: Vec<Level>,
    state: At,
    /// Keys and values beside payloads, so far.
    values: usize,
    checked: Checked,
}

impl LargeScan {
    /// At the front of a frame of this command.
    pub fn new(spec: &'static CommandSpec) -> Self {
        let (levels, checked) = (Vec::new(), Checked::default());
        Self { spec, at: 0, levels, state: At::Front, values: 0, checked }
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.checked.held_bytes()
    }

    /// The payloads, once all is checked.
    pub fn into_checked(self) -> Checked {
        self.checked
    }

    /// Goes on by about `steps` values, which it counts down. True once it is at the end.
    pub fn go_on(&mut self, frame: &[u8], steps: &mut usize) -> Result<bool, Error> {
        if self.at == 0 {
            self.begin(frame)?;
        }
        while *steps > 0 {
            let mut reader = Reader::new(&frame[self.at..]);
            match &mut self.state {
                At::Front => {
                    *steps -= 1;
                    self.values += 1;
                    if self.next(frame)? {
                        return Ok(true);
                    }
                }
                At::Values { left } => {
                    let before = *steps;
                    reader.pass_some(left, steps)?;
                    self.values += before - *steps;
                    self.at = frame.len() - reader.rest().len();
                    if *left == 0 {
                        self.state = At::Front;
                    }
                }
                At::Payload { from, field, scan } => {
                    let (from, field) = (*from, *field);
                    match scan.go_on(frame, steps) {
                        Ok(true) => {
                            self.at = scan.place();
                            self.state = At::Front;
                            self.note_payload(frame, from..self.at, field)?;
                        }
                        Ok(false) => {}
                        Err(what) => return Err(self.located(wrong(field, what), field)),
                    }
                }
            }
            if self.values > BATCH_VALUES_MAX {
                return Err(Error::too_many_values(self.spec.name, BATCH_VALUES_MAX));
            }
        }
        Ok(false)
    }

    fn begin(&mut self, frame: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(frame);
        let entries = reader.map()?.ok_or(ErrorKind::FrameNotMap)?;
        // Refuse the number of entries now: decoding would refuse it only after the check of the payloads.
        if entries > ENTRIES_MAX {
            return Err(Error::unknown_fields_too_large(IGNORED_BYTES_MAX));
        }
        self.at = frame.len() - reader.rest().len();
        self.enter_object(entries, self.spec.fields, "");
        Ok(())
    }

    fn enter_object(&mut self, left: usize, fields: &'static [FieldSpec], path: &'static str) {
        self.levels.push(Level::Object { left, large: large_field(fields), path });
    }

    /// Enters the next entry or item; true if there is none left.
    fn next(&mut self, frame: &[u8]) -> Result<bool, Error> {
        let mut reader = Reader::new(&frame[self.at..]);
        let place = |reader: &Reader<'_>| frame.len() - reader.rest().len();
        let Some(level) = self.levels.last_mut() else { return Ok(true) };
        match level {
            Level::Object { left: 0, .. } => {
                self.levels.pop();
                Ok(self.levels.is_empty())
            }
            Level::List { left: 0, value, .. } => {
                self.checked.end(*value, self.at);
                self.levels.pop();
                Ok(false)
            }
            Level::Object { left, large, .. } => {
                *left -= 1;
                let large = *large;
                // A key that is no text is passed over with its value.
                let Some(key) = reader.text_bytes()? else {
                    self.state = At::Values { left: 2 };
                    return Ok(false);
                };
                self.at = place(&reader);
                match large.filter(|field| field.name.as_bytes() == key) {
                    Some(field) => self.enter_value(frame, field)?,
                    None => self.state = At::Values { left: 1 },
                }
                Ok(false)
            }
            Level::List { left, field, .. } => {
                *left -= 1;
                let field = *field;
                if matches!(field.kind, Kind::Results) {
                    self.enter_payload(frame, field)?;
                } else if let Some(entries) = reader.map()? {
                    self.at = place(&reader);
                    self.enter_object(entries, field.kind.fields(), "");
                } else {
                    self.state = At::Values { left: 1 };
                }
                Ok(false)
            }
        }
    }

    /// Enters the value of a field that may be large.
    fn enter_value(&mut self, frame: &[u8], field: &'static FieldSpec) -> Result<(), Error> {
        let mut reader = Reader::new(&frame[self.at..]);
        let entered = match field.kind {
            Kind::Jobs | Kind::Flow | Kind::Results => reader.array()?.map(|count| (true, count)),
            Kind::FlowJob => reader.map()?.map(|entries| (false, entries)),
            _ => return self.enter_payload(frame, field),
        };
        let Some((is_list, count)) = entered else {
            self.state = At::Values { left: 1 };
            return Ok(());
        };
        if is_list && count > BATCH_MAX as usize {
            return Err(field.out_of_bounds());
        }
        let from = std::mem::replace(&mut self.at, frame.len() - reader.rest().len());
        if is_list {
            let value = self.checked.note(from, 0);
            self.levels.push(Level::List { left: count, count, field, value });
        } else {
            self.enter_object(count, field.kind.fields(), "input.");
        }
        Ok(())
    }

    fn enter_payload(&mut self, frame: &[u8], field: &'static FieldSpec) -> Result<(), Error> {
        let mut reader = Reader::new(&frame[self.at..]);
        if reader.absent()? {
            self.at = frame.len() - reader.rest().len();
        } else {
            self.state = At::Payload { from: self.at, field, scan: Scan::at(self.at) };
        }
        Ok(())
    }

    /// Keeps the place of a payload that was checked.
    fn note_payload(
        &mut self,
        frame: &[u8],
        value: Range<usize>,
        field: &'static FieldSpec,
    ) -> Result<(), Error> {
        let (bytes_max, is_text) =
            payload_max(field).unwrap_or((PAYLOAD_BYTES_MAX as usize, false));
        let mut reader = Reader::new(&frame[value.clone()]);
        let text = if is_text { reader.text_bytes().ok().flatten() } else { None };
        let kept = text.map_or(value.clone(), |text| value.end - text.len()..value.end);
        if kept.len() > bytes_max {
            return Err(self.located(field.out_of_bounds(), field));
        }
        // In an object of the command itself: the frame is about one job.
        if self.levels.len() == 1 {
            self.checked.keep(kept);
        }
        self.checked.note(value.start, value.len());
        Ok(())
    }

    /// A refusal with the job in which its cause is.
    #[cold]
    fn located(&self, error: Error, field: &FieldSpec) -> Error {
        if error.code() == Code::InvalidRequest {
            return error;
        }
        self.levels.iter().rev().fold(error, |error, level| match level {
            Level::Object { path, .. } => error.inside(path),
            Level::List { left, count, .. } => {
                let place = count - left - 1;
                if matches!(field.kind, Kind::Results) {
                    field.wrong_item(place)
                } else {
                    error.in_job(place)
                }
            }
        })
    }
}

/// The refusal of a payload that is no value.
#[cold]
fn wrong(field: &FieldSpec, what: Malformed) -> Error {
    match what {
        Malformed::NotUtf8 => field.not_utf8(),
        Malformed::Depth => field.too_deep(),
        what => what.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::commands::COMMANDS;
    use crate::api::request::Body;
    use crate::api::version::Version;
    use crate::protocol::decode::{decode, decode_frame};
    use crate::protocol::json::packed;
    use crate::protocol::large::{FrameRef, KeptFrame, LargeFrame};
    use std::sync::Arc;

    fn scanned(frame: &[u8], name: &str, slice: usize) -> Result<Checked, Error> {
        let mut scan = LargeScan::new(CommandSpec::find(name.as_bytes()).unwrap());
        while !scan.go_on(frame, &mut slice.clone())? {}
        Ok(scan.into_checked())
    }

    #[test]
    fn an_object_has_one_field_that_may_be_large_at_most() {
        let is_large = |field: &&FieldSpec| {
            let nested = matches!(field.kind, Kind::Jobs | Kind::Flow | Kind::FlowJob);
            nested || field.kind == Kind::Results || payload_max(field).is_some()
        };
        for spec in COMMANDS {
            assert!(spec.fields.iter().filter(is_large).count() <= 1, "{}", spec.name);
            for field in spec.fields {
                let fields = field.kind.fields();
                assert!(fields.iter().filter(is_large).count() <= 1, "{}", field.name);
            }
        }
    }

    #[test]
    fn a_frame_that_was_checked_in_slices_is_read_as_one_that_was_not() {
        let text = "x".repeat(100);
        for (name, values, fields) in [
            ("PUSH", 1, format!(r#""queue":"q","data":{{"a":[1,2,"{text}"]}},"priority":3"#)),
            ("ACK", 1, format!(r#""result":["{text}",null],"id":"j","token":"t""#)),
            ("Update", 1, r#""id":"j","data":7,"x":[[1],{"data":2}]"#.to_owned()),
            ("Progress", 1, format!(r#""id":"j","progress":5,"message":"{text}""#)),
            ("Progress", 0, r#""id":"j","progress":5,"message":null"#.to_owned()),
            ("Progress", 0, r#""id":"j","progress":5"#.to_owned()),
            (
                "PUSHB",
                3,
                format!(
                    r#""jobs":[{{"data":[1,["{text}"]],"tags":["a","b"]}},{{"priority":2,"data":7,"backoff":{{"delay":5}}}}],"queue":"q""#
                ),
            ),
            ("PUSHB", 1, r#""jobs":[],"queue":"q""#.to_owned()),
            ("ACKB", 3, format!(r#""ids":["a","b","c"],"results":["{text}",null,{{"a":[]}}]"#)),
            (
                "PUSHF",
                3,
                r#""jobs":[{"id":"a","queue":"q","input":{"data":[1,2]}},{"id":"b","queue":"p","input":{"data":{},"dependsOn":["a"]}}]"#
                    .to_owned(),
            ),
        ] {
            let frame = packed(&format!(r#"{{"cmd":"{name}","reqId":"r",{fields}}}"#));
            for slice in [1, 2, 1000] {
                let checked = scanned(&frame, name, slice).unwrap();
                assert_eq!(checked.values.len(), values, "{name}: {fields}");
                let mut bytes = vec![0; 4];
                bytes.extend_from_slice(&frame);
                let large = Arc::new(LargeFrame::new(bytes, 4, checked));
                let kept = KeptFrame::from(FrameRef::from(&large));
                assert!(matches!(kept, KeptFrame::Shared(_)) && *kept == *frame);
                let known = decode_frame(kept.view(), Version::Two).unwrap();
                assert_eq!(format!("{known:?}"), format!("{:?}", decode(&frame).unwrap()));
                if let Body::Progress { message: Some(message), .. } = known.body {
                    assert_eq!(kept.view().payload(), message);
                }
            }
        }
    }

    /// A checked value is not looked at again: a change of it behind the check is not noticed.
    #[test]
    fn the_decoder_does_not_go_through_payloads_that_are_known() {
        let mut frame =
            packed(r#"{"cmd":"PUSHB","queue":"q","jobs":[{"data":[1,2]},{"data":[3]}]}"#);
        let checked = scanned(&frame, "PUSHB", 1000).unwrap();
        let three = frame.iter().rposition(|byte| *byte == 3).unwrap();
        frame[three] = 0xc1;
        assert!(decode(&frame).is_err());
        let large = Arc::new(LargeFrame::new(frame, 0, checked));
        assert!(decode_frame((&large).into(), Version::Two).is_ok());
    }

    #[test]
    fn what_is_wrong_with_a_payload_is_told_as_of_one_that_is_read_at_once() {
        // Deeper than a text in JSON may be.
        let deep = [&[0x91; 130][..], &[1]].concat();
        let packed = |text: &str| {
            let frame = packed(text);
            let at = frame.windows(5).position(|bytes| bytes == b"\xa4deep").unwrap();
            [&frame[..at], &deep, &frame[at + 5..]].concat()
        };
        let deep = r#""deep""#;
        let mut frames = vec![
            ("PUSH", packed(&format!(r#"{{"cmd":"PUSH","queue":"q","data":{deep}}}"#))),
            (
                "PUSHB",
                packed(&format!(
                    r#"{{"cmd":"PUSHB","queue":"q","jobs":[{{"data":1}},{{"data":{deep}}}]}}"#
                )),
            ),
            ("ACKB", packed(&format!(r#"{{"cmd":"ACKB","ids":["a","b"],"results":[1,{deep}]}}"#))),
            (
                "PUSHF",
                packed(&format!(
                    r#"{{"cmd":"PUSHF","jobs":[{{"id":"a","queue":"q","input":{{"data":{deep}}}}}]}}"#
                )),
            ),
        ];
        let front = b"\x83\xa3cmd\xa4PUSH\xa5queue\xa1q\xa4data".to_vec();
        let results = b"\x83\xa3cmd\xa4ACKB\xa3ids\x91\xa1a\xa7results\x91".to_vec();
        for value in [&b"\xa1\xff"[..], b"\xc1", b"\x92\x01", b"\xdd\xff\xff\xff\xff"] {
            frames.push(("PUSH", [&front, value].concat()));
            frames.push(("ACKB", [&results, value].concat()));
        }
        let mut long = [&front, &b"\xdb\x00\xa0\x00\x01"[..]].concat();
        long.resize(long.len() + (10 << 20) + 1, b'x');
        frames.push(("PUSH", long));
        for (name, frame) in frames {
            let expected = decode(&frame).unwrap_err().error;
            for slice in [1000, usize::MAX] {
                assert_eq!(scanned(&frame, name, slice).unwrap_err(), expected, "{name}");
            }
        }
    }

    #[test]
    fn a_second_payload_is_refused_as_ever() {
        let frame = packed(r#"{"cmd":"PUSH","queue":"q","data":1,"data":2}"#);
        let checked = scanned(&frame, "PUSH", 1).unwrap();
        let expected = decode(&frame).unwrap_err().error;
        let large = Arc::new(LargeFrame::new(frame, 0, checked));
        assert_eq!(decode_frame((&large).into(), Version::Two).unwrap_err().error, expected);
    }

    /// The fear: entries that nobody looks at are passed over again and again, each time all of them in one turn.
    #[test]
    fn a_request_with_more_entries_than_one_can_have_is_refused_before_they_are_looked_at() {
        let frame = |entries: u32| {
            let mut frame = vec![0xdf];
            frame.extend((entries + 3).to_be_bytes());
            frame.extend(b"\xa3cmd\xa4PUSH\xa5queue\xa1q\xa4data\x01");
            frame.extend(b"\xa1a\xc0".repeat(entries as usize));
            frame
        };
        let told = "unknown fields must have at most 65536 bytes";
        assert!(scanned(&frame(30_000), "PUSH", 100).is_ok());
        let many = frame(40_000);
        let error = scanned(&many, "PUSH", 1).unwrap_err();
        assert_eq!(error.to_string(), told);
        let mut scan = LargeScan::new(CommandSpec::find(b"PUSH").unwrap());
        assert!(scan.go_on(&many, &mut 1).is_err(), "in its first step");
    }

    #[test]
    fn a_batch_of_more_values_beside_payloads_than_a_turn_can_read_is_refused() {
        let batch = |tags: usize, data: usize| {
            let job = format!(
                r#"{{"data":[{}1],"tags":["a"{}]}}"#,
                "1,".repeat(data),
                r#","a""#.repeat(tags)
            );
            packed(&format!(
                r#"{{"cmd":"PUSHB","queue":"q","jobs":[{}{job}]}}"#,
                format!("{job},").repeat(7000)
            ))
        };
        assert!(scanned(&batch(10, 500), "PUSHB", 1000).is_ok(), "payloads do not count");
        let error = scanned(&batch(99, 0), "PUSHB", 1000).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("PUSHB must have at most {BATCH_VALUES_MAX} keys and values beside payloads")
        );
        let items = vec!["1"; BATCH_MAX as usize + 1].join(",");
        let frame = packed(&format!(r#"{{"cmd":"ACKB","ids":["a"],"results":[{items}]}}"#));
        let error = scanned(&frame, "ACKB", 1000).unwrap_err();
        assert_eq!(error, decode(&frame).unwrap_err().error);
    }
}
