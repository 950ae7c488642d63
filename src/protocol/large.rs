//! Frames of one command with a payload of megabytes: checked a slice at a time, then kept as they are for as long as
//! their command needs them, wherever that is, and read again without going through the payload.

use crate::api::commands::{CommandSpec, FieldSpec, Kind};
use crate::api::error::{Error, ErrorKind};
use crate::api::limits::LARGE_BYTES_MIN;
use crate::api::size::{ENTRIES_MAX, IGNORED_BYTES_MAX};
use crate::protocol::msgpack::scan::Scan;
use crate::protocol::msgpack::{Malformed, Reader};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A frame whose payload has been checked.
#[derive(Debug)]
pub struct LargeFrame {
    bytes: Vec<u8>,
    /// Where the frame begins: what stands before it is not its own.
    start: usize,
    /// Where its payload lies.
    payload: Place,
}

/// Where the payload of a frame lies in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The value.
    value: Range<usize>,
    /// Bytes that a record keeps of the value: all, but of a text its content only.
    kept: Range<usize>,
}

impl Place {
    fn of(frame: &[u8], value: Range<usize>, is_text: bool) -> Self {
        let mut reader = Reader::new(&frame[value.clone()]);
        let text = if is_text { reader.text_bytes().ok().flatten() } else { None };
        let kept = text.map_or(value.clone(), |text| value.end - text.len()..value.end);
        Self { value, kept }
    }
}

impl Place {
    /// A value of which all is kept.
    pub fn of_value(value: Range<usize>) -> Self {
        Self { kept: value.clone(), value }
    }

    /// Moves the place `bytes` further on; an empty place stays.
    #[must_use]
    pub fn behind(self, bytes: usize) -> Self {
        if self.value.is_empty() {
            return self;
        }
        let further = |range: Range<usize>| range.start + bytes..range.end + bytes;
        Self { value: further(self.value), kept: further(self.kept) }
    }
}

impl LargeFrame {
    /// The frame at the end of `bytes`, which a [`LargeScan`] has checked.
    pub fn new(bytes: Vec<u8>, start: usize, payload: Place) -> Self {
        Self { bytes, start, payload }
    }

    /// Memory held.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// A frame, and its payload if that has been checked before.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    bytes: &'a [u8],
    large: Option<&'a Arc<LargeFrame>>,
}

impl<'a> FrameRef<'a> {
    /// The frame.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The payload as it stands in the frame; empty if it has not been checked.
    pub fn known(self) -> &'a [u8] {
        self.large.map_or(&[], |large| &self.bytes[large.payload.value.clone()])
    }

    /// The payload as a record keeps it; empty if it has not been checked.
    pub fn payload(self) -> &'a [u8] {
        self.large.map_or(&[], |large| &self.bytes[large.payload.kept.clone()])
    }

    /// The frame with something small in place of its payload; `None` if it has none that is known, or the rest has more
    /// than so many bytes.
    pub fn without_payload(self, bytes_max: usize) -> Option<Vec<u8>> {
        let Place { value, kept } = &self.large?.payload;
        if value.is_empty() || self.bytes.len() - value.len() > bytes_max {
            return None;
        }
        let stand_in: &[u8] = if value == kept { &[0x00] } else { &[0xa0] };
        Some([&self.bytes[..value.start], stand_in, &self.bytes[value.end..]].concat())
    }

    /// The frame to be kept, if that takes no copy.
    pub fn shared(self) -> Option<Arc<LargeFrame>> {
        self.large.cloned()
    }
}

impl<'a> From<&'a [u8]> for FrameRef<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, large: None }
    }
}

impl<'a> From<&'a Arc<LargeFrame>> for FrameRef<'a> {
    fn from(large: &'a Arc<LargeFrame>) -> Self {
        Self { bytes: &large.bytes[large.start..], large: Some(large) }
    }
}

impl From<FrameRef<'_>> for Box<[u8]> {
    fn from(frame: FrameRef<'_>) -> Self {
        frame.bytes.into()
    }
}

impl Deref for FrameRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A frame that its command keeps while it waits.
#[derive(Clone, Debug)]
pub enum KeptFrame {
    /// A copy.
    Copied(Box<[u8]>),
    /// The frame itself.
    Shared(Arc<LargeFrame>),
}

impl KeptFrame {
    /// As it was.
    pub fn view(&self) -> FrameRef<'_> {
        match self {
            Self::Copied(bytes) => (&**bytes).into(),
            Self::Shared(large) => large.into(),
        }
    }
}

impl Default for KeptFrame {
    fn default() -> Self {
        Self::Copied(Box::default())
    }
}

impl From<FrameRef<'_>> for KeptFrame {
    fn from(frame: FrameRef<'_>) -> Self {
        frame.shared().map_or_else(|| Self::Copied(frame.into()), Self::Shared)
    }
}

impl From<Vec<u8>> for KeptFrame {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Copied(bytes.into())
    }
}

impl Deref for KeptFrame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.view().bytes
    }
}

/// The field of a command that may hold megabytes.
pub fn payload_field(spec: &CommandSpec) -> Option<&'static FieldSpec> {
    payload_field_of(spec.fields)
}

/// The field among these that may hold megabytes.
pub fn payload_field_of(fields: &'static [FieldSpec]) -> Option<&'static FieldSpec> {
    fields.iter().find(|field| large_max(field).is_some())
}

/// How many bytes a field may hold that may hold megabytes, and whether these are a text.
fn large_max(field: &FieldSpec) -> Option<(usize, bool)> {
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

/// Part of the frame that is being checked.
#[derive(Clone, Debug)]
enum At {
    /// The key of an entry.
    Key,
    /// A value that is no payload: of it, only the end matters. What is wrong with it is found when the frame is read.
    Value { left: usize },
    /// The payload.
    Payload { from: usize, scan: Scan },
}

/// A frame of one command on its way through the check.
#[derive(Clone, Debug)]
pub struct LargeScan {
    field: &'static FieldSpec,
    bytes_max: usize,
    is_text: bool,
    at: usize,
    /// Entries to come; `None` before the first look.
    entries: Option<usize>,
    state: At,
    payload: Place,
}

impl LargeScan {
    /// At the front of a frame of a command whose payload this is: see [`payload_field`].
    pub fn new(field: &'static FieldSpec) -> Self {
        let (bytes_max, is_text) = large_max(field).unwrap_or_default();
        let (state, payload) = (At::Key, Place::default());
        Self { field, bytes_max, is_text, at: 0, entries: None, state, payload }
    }

    /// Where the payload lies; nowhere if there is none.
    pub fn payload(&self) -> Place {
        self.payload.clone()
    }

    /// Goes on by about `steps` values, which it counts down. True once it is at the end.
    pub fn go_on(&mut self, frame: &[u8], steps: &mut usize) -> Result<bool, Error> {
        while *steps > 0 {
            let mut reader = Reader::new(&frame[self.at..]);
            match &mut self.state {
                At::Key => {
                    *steps -= 1;
                    if self.next_entry(frame)? {
                        return Ok(true);
                    }
                }
                At::Value { left } => {
                    reader.pass_some(left, steps)?;
                    self.at = frame.len() - reader.rest().len();
                    if *left == 0 {
                        self.state = At::Key;
                    }
                }
                At::Payload { from, scan } => {
                    let checked = scan.go_on(frame, steps).map_err(|what| wrong(self.field, what));
                    if checked? {
                        let value = *from..scan.place();
                        self.at = value.end;
                        self.payload = Place::of(frame, value, self.is_text);
                        self.state = At::Key;
                        if self.payload.kept.len() > self.bytes_max {
                            return Err(self.field.out_of_bounds());
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    /// Enters the next entry; true if there is none.
    fn next_entry(&mut self, frame: &[u8]) -> Result<bool, Error> {
        let mut reader = Reader::new(&frame[self.at..]);
        let left = match self.entries {
            Some(left) => left,
            None => reader.map()?.ok_or(ErrorKind::FrameNotMap)?,
        };
        // Refuse the number of entries now: decoding would refuse it only after the check of the payload.
        if left > ENTRIES_MAX {
            return Err(Error::unknown_fields_too_large(IGNORED_BYTES_MAX));
        }
        let Some(fewer) = left.checked_sub(1) else { return Ok(true) };
        self.entries = Some(fewer);
        // A key that is no text is passed over with its value.
        let (is_text, is_payload) = match reader.text_bytes()? {
            Some(key) => (true, key == self.field.name.as_bytes()),
            None => (false, false),
        };
        let is_absent = is_payload && reader.absent()?;
        self.at = frame.len() - reader.rest().len();
        self.state = match (is_payload && self.payload.value.is_empty(), is_absent) {
            (_, true) => At::Key,
            (true, false) => At::Payload { from: self.at, scan: Scan::at(self.at) },
            (false, false) => At::Value { left: if is_text { 1 } else { 2 } },
        };
        Ok(false)
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
    use crate::protocol::json;

    fn packed(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        json::to_msgpack(text.as_bytes(), &mut bytes).unwrap();
        bytes
    }

    fn scanned(frame: &[u8], name: &str, slice: usize) -> Result<Place, Error> {
        let spec = CommandSpec::find(name.as_bytes()).unwrap();
        let mut scan = LargeScan::new(payload_field(spec).unwrap());
        while !scan.go_on(frame, &mut slice.clone())? {}
        Ok(scan.payload())
    }

    #[test]
    fn a_command_has_one_payload_at_most() {
        for spec in COMMANDS {
            let large = spec.fields.iter().filter(|field| large_max(field).is_some());
            assert!(large.count() <= 1, "{}", spec.name);
        }
    }

    #[test]
    fn a_frame_that_was_checked_in_slices_is_read_as_one_that_was_not() {
        let text = "x".repeat(100);
        for (name, fields) in [
            ("PUSH", format!(r#""queue":"q","data":{{"a":[1,2,"{text}"]}},"priority":3"#)),
            ("ACK", format!(r#""result":["{text}",null],"id":"j","token":"t""#)),
            ("Update", r#""id":"j","data":7,"x":[[1],{"data":2}]"#.to_owned()),
            ("Progress", format!(r#""id":"j","progress":5,"message":"{text}""#)),
            ("Progress", r#""id":"j","progress":5,"message":null"#.to_owned()),
            ("Progress", r#""id":"j","progress":5"#.to_owned()),
        ] {
            let frame = packed(&format!(r#"{{"cmd":"{name}","reqId":"r",{fields}}}"#));
            for slice in [1, 2, 1000] {
                let payload = scanned(&frame, name, slice).unwrap();
                let mut bytes = vec![0; 4];
                bytes.extend_from_slice(&frame);
                let large = Arc::new(LargeFrame::new(bytes, 4, payload));
                let kept = KeptFrame::from(FrameRef::from(&large));
                assert!(matches!(kept, KeptFrame::Shared(_)) && *kept == *frame);
                let known = decode_frame(kept.view(), Version::Two).unwrap();
                assert_eq!(format!("{known:?}"), format!("{:?}", decode(&frame).unwrap()));
                if let Body::Progress { message: Some(message), .. } = known.body {
                    assert_eq!(kept.view().payload(), message);
                }
                if let Some(rest) = kept.view().without_payload(usize::MAX) {
                    assert!(decode(&rest).is_ok(), "{name} without its payload");
                }
                assert_eq!(kept.view().without_payload(3), None);
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_payload_is_told_as_of_one_that_is_read_at_once() {
        let deep = format!("{}1{}", "[".repeat(120), "]".repeat(120));
        let mut frames = vec![packed(&format!(
            r#"{{"cmd":"PUSH","queue":"q","data":[[[[[[[[[[{deep}]]]]]]]]]]}}"#
        ))];
        for value in [&b"\xa1\xff"[..], b"\xc1", b"\x92\x01", b"\xdd\xff\xff\xff\xff"] {
            let mut frame = b"\x83\xa3cmd\xa4PUSH\xa5queue\xa1q\xa4data".to_vec();
            frame.extend_from_slice(value);
            frames.push(frame);
        }
        let mut long = b"\x83\xa3cmd\xa4PUSH\xa5queue\xa1q\xa4data\xdb\x00\xa0\x00\x01".to_vec();
        long.resize(long.len() + (10 << 20) + 1, b'x');
        frames.push(long);
        for frame in frames {
            let expected = decode(&frame).unwrap_err().error;
            for slice in [1000, usize::MAX] {
                assert_eq!(scanned(&frame, "PUSH", slice).unwrap_err(), expected);
            }
        }
    }

    #[test]
    fn a_second_payload_is_refused_as_ever() {
        let frame = packed(r#"{"cmd":"PUSH","queue":"q","data":1,"data":2}"#);
        let payload = scanned(&frame, "PUSH", 1).unwrap();
        let expected = decode(&frame).unwrap_err().error;
        let large = Arc::new(LargeFrame::new(frame, 0, payload));
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
        let spec = COMMANDS.iter().find(|spec| spec.name == "PUSH").unwrap();
        let mut scan = LargeScan::new(payload_field(spec).unwrap());
        assert!(scan.go_on(&many, &mut 1).is_err(), "in its first step");
    }
}
