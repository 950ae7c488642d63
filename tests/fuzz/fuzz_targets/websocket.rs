//! The frames of a WebSocket client, any bytes, cut anywhere.
//!
//! Promises: nothing panics; a frame takes what it says and no more; what is seen of a stream of frames
//! does not depend on how it was cut; a close is always answered with a code that may be sent.
#![no_main]

use corq::protocol::websocket::{Closing, Kind, answer_to_close, announced, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, cut) = input;
    let whole = walk(bytes, bytes.len());
    assert_eq!(walk(bytes, usize::from(cut).max(1)), whole);
});

/// Splits `bytes` into frames as they come, `step` bytes at a time.
fn walk(bytes: &[u8], step: usize) -> (Vec<(Kind, Vec<u8>)>, Option<Closing>) {
    let (mut frames, mut open, mut used, mut there) = (Vec::new(), None, 0, 0);
    while there < bytes.len() {
        there = (there + step).min(bytes.len());
        loop {
            let pending = &bytes[used..there];
            match split(pending, open) {
                Ok(None) => break,
                Err(closing) => return (frames, Some(closing)),
                Ok(Some((frame, length))) => {
                    assert!(length > frame.masked.len() && length <= pending.len());
                    assert_eq!(announced(pending), frame.masked.len() as u64);
                    let mut payload = Vec::new();
                    frame.unmask(&mut payload);
                    if frame.kind == Kind::Close
                        && let Some(closing) = answer_to_close(&payload)
                    {
                        assert!(matches!(closing.code, 1000..=1003 | 1007..=1015 | 3000..=4999));
                    }
                    if !frame.is_control() {
                        let before = open.unwrap_or(0);
                        open = (!frame.last).then_some(before + payload.len());
                    }
                    frames.push((frame.kind, payload));
                    used += length;
                }
            }
        }
    }
    (frames, None)
}
