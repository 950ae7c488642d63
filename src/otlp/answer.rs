//! Reads the answers of a receiver to posts that it has taken.

use super::wire::{Fields, Value};

/// Of its reason, so much is shown.
const REASON_BYTES_MAX: usize = 512;

/// How many spans the body of a good answer (an `ExportTraceServiceResponse`) says were not taken, and why.
pub fn rejected(body: &[u8]) -> (u64, String) {
    let partial = Fields(body).find_map(|field| match field {
        (1, Value::Bytes(partial)) => Some(partial),
        _ => None,
    });
    let (mut spans, mut reason) = (0, String::new());
    for field in Fields(partial.unwrap_or_default()) {
        match field {
            // The number of rejected spans is signed in the message.
            (1, Value::Varint(number)) => spans = u64::try_from(number as i64).unwrap_or(0),
            (2, Value::Bytes(text)) => reason = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    (spans, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_what_was_not_taken() {
        assert_eq!(rejected(b""), (0, String::new()));
        assert_eq!(rejected(b"\x0a\x07\x08\x03\x12\x03bad"), (3, "bad".into()));
        assert_eq!(rejected(b"{\"partialSuccess\":{}}"), (0, String::new()));
        let negative = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(rejected(negative), (0, String::new()));
    }
}
