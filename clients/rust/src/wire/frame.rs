//! Cuts what has arrived into frames: four bytes of length, big-endian, then so many bytes.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the length in front of a frame.
pub(crate) const PREFIX_BYTES: usize = 4;

/// No frame is longer, in either direction.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;

/// A frame announces more bytes than any may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge(pub(crate) usize);

/// Takes the next whole frame from what has arrived, without its length and without a copy.
pub(crate) fn next(input: &mut BytesMut) -> Result<Option<Bytes>, TooLarge> {
    let Some(length) = announced(input)? else { return Ok(None) };
    if input.len() < PREFIX_BYTES + length {
        return Ok(None);
    }
    input.advance(PREFIX_BYTES);
    Ok(Some(input.split_to(length).freeze()))
}

/// How many bytes are still to come of the frame that has begun; none if that is not known yet.
pub(crate) fn missing(input: &[u8]) -> usize {
    let whole = announced(input).ok().flatten().map_or(0, |length| PREFIX_BYTES + length);
    whole.saturating_sub(input.len())
}

fn announced(input: &[u8]) -> Result<Option<usize>, TooLarge> {
    let Some(prefix) = input.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*prefix) as usize;
    if length > FRAME_BYTES_MAX { Err(TooLarge(length)) } else { Ok(Some(length)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_wherever_the_network_cut_them() {
        let wire = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d";
        for step in 1..wire.len() {
            let mut input = BytesMut::new();
            let mut frames = Vec::new();
            for part in wire.chunks(step) {
                input.extend_from_slice(part);
                while let Some(frame) = next(&mut input).unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, [&b"abc"[..], b"", b"d"], "{step} bytes at a time");
            assert!(input.is_empty());
        }
    }

    #[test]
    fn a_frame_that_would_be_too_long_is_refused_before_it_is_waited_for() {
        let mut input = BytesMut::from(&b"\x04\0\0\x01"[..]);
        assert_eq!(next(&mut input), Err(TooLarge(FRAME_BYTES_MAX + 1)));
    }

    #[test]
    fn what_is_missing_of_a_frame_is_known_once_its_length_is() {
        assert_eq!(missing(b"\0\0\0"), 0);
        assert_eq!(missing(b"\0\0\0\x05ab"), 3);
    }
}
