//! A request: one frame with room for its number, and what the connection has to know of it.

use std::time::Duration;

use rmp::Marker;
use serde::Serialize;

use super::encode::Encoder;
use super::frame::{FRAME_BYTES_MAX, PREFIX_BYTES};
use crate::error::Error;
use crate::raw::Payload;

/// Milliseconds as the protocol counts them; what is left of one counts as a whole one.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A command with its fields, ready to be sent any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    encoder: Encoder,
    number_at: usize,
    count_at: usize,
    fields: u16,
    /// Whether it may be sent again when the connection broke and nobody knows what became of it.
    pub(crate) repeats: bool,
    /// For how long the server may keep the answer back.
    pub(crate) waits: Duration,
    /// Whether the answer brings jobs, and how long their locks last: they go back if the call is gone.
    pub(crate) brings: Option<Duration>,
    /// Which of several connections it prefers.
    pub(crate) lane: u64,
}

impl Request {
    pub(crate) fn new(cmd: &str) -> Self {
        let mut encoder = Encoder::default();
        encoder.splice(&[0; PREFIX_BYTES]);
        let count_at = encoder.open_map();
        encoder.str("cmd");
        encoder.str(cmd);
        encoder.str("reqId");
        encoder.splice(&[Marker::U64.to_u8(), 0, 0, 0, 0, 0, 0, 0, 0]);
        let number_at = encoder.bytes().len() - 8;
        Self {
            encoder,
            number_at,
            count_at,
            fields: 2,
            repeats: false,
            waits: Duration::ZERO,
            brings: None,
            lane: 0,
        }
    }

    /// A command that changes nothing, or nothing more when it comes twice.
    pub(crate) fn repeatable(cmd: &str) -> Self {
        Self::new(cmd).repeats(true)
    }

    pub(crate) fn repeats(mut self, repeats: bool) -> Self {
        self.repeats = repeats;
        self
    }

    /// The server may keep the answer back for so long.
    pub(crate) fn waits(mut self, waits: Duration) -> Self {
        self.waits = waits;
        self
    }

    /// The answer brings jobs with locks of so long.
    pub(crate) fn brings(mut self, lock_ttl: Duration) -> Self {
        self.brings = Some(lock_ttl);
        self
    }

    pub(crate) fn field(&mut self, key: &str) -> &mut Encoder {
        self.fields += 1;
        self.encoder.str(key);
        &mut self.encoder
    }

    /// Fields that are written elsewhere, `count` of them.
    pub(crate) fn fields(
        mut self,
        write: impl FnOnce(&mut Encoder) -> Result<u16, Error>,
    ) -> Result<Self, Error> {
        self.fields += write(&mut self.encoder)?;
        Ok(self)
    }

    /// The queue that it is about. Commands on one queue prefer one connection, so that the server can move
    /// that connection to where the queue is.
    pub(crate) fn queue(mut self, queue: &str) -> Self {
        let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.lane = queue.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix);
        self.str("queue", queue)
    }

    pub(crate) fn str(mut self, key: &str, value: &str) -> Self {
        self.field(key).str(value);
        self
    }

    pub(crate) fn opt_str(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.str(key, value),
            None => self,
        }
    }

    /// The trace of its jobs, for those that name none.
    pub(crate) fn trace(self, context: Option<(String, Option<String>)>) -> Self {
        let Some((parent, state)) = context else { return self };
        self.str("traceparent", &parent).opt_str("tracestate", state.as_deref())
    }

    pub(crate) fn uint(mut self, key: &str, value: u64) -> Self {
        self.field(key).uint(value);
        self
    }

    pub(crate) fn opt_uint(self, key: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.uint(key, value),
            None => self,
        }
    }

    pub(crate) fn int(mut self, key: &str, value: i64) -> Self {
        self.field(key).int(value);
        self
    }

    pub(crate) fn float(mut self, key: &str, value: f64) -> Self {
        self.field(key).float(value);
        self
    }

    pub(crate) fn bool(mut self, key: &str, value: bool) -> Self {
        self.field(key).bool(value);
        self
    }

    /// A flag whose absence means false.
    pub(crate) fn flag(self, key: &str, value: bool) -> Self {
        if value { self.bool(key, true) } else { self }
    }

    pub(crate) fn millis(self, key: &str, value: Duration) -> Self {
        self.uint(key, millis(value))
    }

    pub(crate) fn opt_millis(self, key: &str, value: Option<Duration>) -> Self {
        self.opt_uint(key, value.map(millis))
    }

    pub(crate) fn strs<'s>(
        mut self,
        key: &str,
        values: impl ExactSizeIterator<Item = &'s str>,
    ) -> Self {
        let encoder = self.field(key);
        encoder.array(values.len());
        values.for_each(|value| encoder.str(value));
        self
    }

    pub(crate) fn payload<P: Payload + ?Sized>(
        mut self,
        key: &str,
        value: &P,
    ) -> Result<Self, Error> {
        value.encode(self.field(key))?;
        Ok(self)
    }

    /// The entries of a map as fields.
    pub(crate) fn splice<T: Serialize + ?Sized>(mut self, fields: &T) -> Result<Self, Error> {
        let mut given = Encoder::default();
        given.serialize(fields)?;
        let given = given.into_bytes();
        let mut reader = super::read::Reader::new(&given);
        if reader.nil() {
            return Ok(self);
        }
        let not_fields = |_| Error::Payload("the fields of a command must be a map".into());
        let entries = reader.map().map_err(not_fields)?;
        self.fields = u16::try_from(entries)
            .ok()
            .and_then(|entries| self.fields.checked_add(entries))
            .ok_or_else(|| Error::Payload("a command has too many fields".into()))?;
        self.encoder.splice(&given[reader.at()..]);
        Ok(self)
    }

    /// Bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        self.encoder.len()
    }

    /// Puts length and number of fields where they belong.
    pub(crate) fn seal(mut self) -> Result<Self, Error> {
        let length = self.len() - PREFIX_BYTES;
        if length > FRAME_BYTES_MAX {
            let text =
                format!("a frame would have {length} bytes, and has {FRAME_BYTES_MAX} at most");
            return Err(Error::Payload(text.into()));
        }
        self.encoder.bytes_mut()[..PREFIX_BYTES].copy_from_slice(&(length as u32).to_be_bytes());
        self.encoder.close_map(self.count_at, self.fields);
        Ok(self)
    }

    /// Hands out the frame with a number in it: its own bytes, and what is kept aside as it is.
    pub(crate) fn send_as(&self, number: u64, out: &mut impl Output) {
        let bytes = self.encoder.bytes();
        let behind = self.number_at + 8;
        out.bytes(&bytes[..self.number_at]);
        out.bytes(&number.to_be_bytes());
        let mut from = behind;
        for (at, piece) in self.encoder.aside() {
            out.bytes(&bytes[from..*at]);
            out.shared(piece);
            from = *at;
        }
        out.bytes(&bytes[from..]);
    }
}

/// Where a request goes.
pub(crate) trait Output {
    /// Bytes to be copied.
    fn bytes(&mut self, bytes: &[u8]);
    /// Bytes that stay where they are.
    fn shared(&mut self, bytes: &bytes::Bytes);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::raw::Raw;
    use bytes::Bytes;
    use rmpv::Value;

    impl Output for Vec<u8> {
        fn bytes(&mut self, bytes: &[u8]) {
            self.extend_from_slice(bytes);
        }
        fn shared(&mut self, bytes: &Bytes) {
            self.extend_from_slice(bytes);
        }
    }

    fn read(request: &Request, number: u64) -> Value {
        let mut out = Vec::new();
        request.send_as(number, &mut out);
        let (length, frame) = out.split_at(4);
        assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, frame.len());
        let mut rest = frame;
        let value = rmpv::decode::read_value(&mut rest).unwrap();
        assert!(rest.is_empty());
        value
    }

    #[test]
    fn a_request_is_a_frame_with_its_command_its_number_and_its_fields() {
        let request = Request::new("PULL").queue("emails").uint("timeout", 70_000).flag("x", false);
        let value = read(&request.bool("detach", true).seal().unwrap(), 1 << 40);
        let expected = [
            ("cmd", "PULL".into()),
            ("reqId", (1_u64 << 40).into()),
            ("queue", "emails".into()),
            ("timeout", 70_000.into()),
            ("detach", true.into()),
        ];
        let expected = expected.map(|(key, value): (_, Value)| (Value::from(key), value)).to_vec();
        assert_eq!(value, Value::Map(expected));
    }

    #[test]
    fn a_large_payload_goes_out_from_where_it_lies() {
        struct Kept(Vec<Bytes>);
        impl Output for Kept {
            fn bytes(&mut self, _: &[u8]) {}
            fn shared(&mut self, bytes: &Bytes) {
                self.0.push(bytes.clone());
            }
        }
        let raw = Raw::encode(&"x".repeat(100_000)).unwrap();
        let request = Request::new("PUSH").payload("data", &raw).unwrap().bool("durable", true);
        let request = request.seal().unwrap();
        let mut kept = Kept(Vec::new());
        request.send_as(1, &mut kept);
        assert_eq!(kept.0[0].as_ptr(), raw.as_bytes().as_ptr());
        let value = read(&request, 1);
        assert_eq!(value["data"].as_str().unwrap().len(), 100_000);
        assert_eq!(value["durable"], Value::from(true));
    }

    #[test]
    fn fields_given_as_a_map_stand_beside_command_and_number() {
        let fields = serde_json::json!({"queue": "q", "limit": 5});
        let value = read(&Request::new("RateLimit").splice(&fields).unwrap().seal().unwrap(), 3);
        assert_eq!((&value["limit"], &value["reqId"]), (&Value::from(5), &Value::from(3)));
        assert!(Request::new("RateLimit").splice(&[1, 2]).is_err());
        assert!(Request::new("Ping").splice(&()).is_ok());
    }

    #[test]
    fn a_part_of_a_millisecond_counts_as_a_whole_one() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(5)), 5);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
