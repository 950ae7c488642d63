//! Events as frames: `{type: "event", event}`, without a `reqId`, between the replies of a connection.
//!
//! An event is written once, as the JSON text that other clients get, and put into this form for those who
//! listen over TCP. What it tells is not known here.

use super::frame::PREFIX_BYTES;
use super::json;
use super::msgpack::writer::{MapWriter, Writer};
use super::msgpack::{Number, Reader};

/// Times and durations of the server's own: beyond 32 bits they travel as floats, as in replies.
const OWN_NUMBERS: [&[u8]; 2] = [b"timestamp", b"delay"];

/// Appends the frame of an event.
pub fn write(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    let mut frame = MapWriter::begin(out);
    frame.key("type").str("event");
    let mut event = Vec::with_capacity(text.len());
    // The text was written here: it is an object.
    let written = json::to_msgpack(text, &mut event).is_ok()
        && copy(&event, &mut frame.key("event")).is_some();
    drop(frame);
    debug_assert!(written, "an event is an object");
    if written {
        let length = (out.len() - start - PREFIX_BYTES) as u32;
        out[start..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    } else {
        out.truncate(start);
    }
}

/// Copies an event, its own numbers in the form of replies.
fn copy(event: &[u8], writer: &mut Writer<'_>) -> Option<()> {
    let mut reader = Reader::new(event);
    let entries = reader.map().ok()??;
    writer.map(entries);
    for _ in 0..entries {
        let start = reader.rest();
        let key = reader.key().ok()?;
        writer.raw(&start[..start.len() - reader.rest().len()]);
        match OWN_NUMBERS.contains(&key).then(|| reader.number()) {
            Some(Ok(Some(Number::Whole(number)))) => writer.int(number),
            _ => writer.raw(reader.skip().ok()?),
        }
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rmpv::Value;

    #[test]
    fn an_event_is_framed_with_its_own_numbers_as_in_replies_and_all_else_as_it_is() {
        let text = br#"{"eventType":"pushed","jobId":"a","timestamp":1700000000000,"data":{"n":1700000000000,"timestamp":5}}"#;
        let mut bytes = Vec::new();
        write(&mut bytes, text);
        assert_eq!(u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len() - 4);
        let value = rmpv::decode::read_value(&mut &bytes[4..]).unwrap();
        assert_eq!(value["type"], Value::from("event"));
        assert_eq!(value["event"]["timestamp"], Value::F64(1_700_000_000_000.0));
        assert_eq!(value["event"]["data"]["n"], Value::from(1_700_000_000_000_u64));
        assert_eq!(value["event"]["data"]["timestamp"], Value::from(5));
        assert_eq!(value["event"]["jobId"], Value::from("a"));
    }
}
