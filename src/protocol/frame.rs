//! A frame is four bytes of big-endian length and that many bytes of one `MessagePack` value.

/// Largest payload of a frame (`docs/protocol.md`, "Frames"). A larger one ends the connection.
pub const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of the length in front of a frame.
pub const PREFIX_BYTES: usize = 4;

/// The front of a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split<'a> {
    /// A whole frame.
    Complete {
        /// The payload, without the length.
        frame: &'a [u8],
        /// The bytes behind the frame.
        rest: &'a [u8],
    },
    /// The beginning of a frame.
    Incomplete {
        /// Bytes the buffer must hold in all before it is worth looking again: the prefix, or the
        /// prefix and its payload.
        need: usize,
    },
    /// A length beyond [`FRAME_BYTES_MAX`]; nothing after it can be read.
    TooLarge(u32),
}

/// Looks for a frame at the front of `buffer`.
#[inline]
pub fn split(buffer: &[u8]) -> Split<'_> {
    let Some((prefix, behind)) = buffer.split_first_chunk::<PREFIX_BYTES>() else {
        return Split::Incomplete { need: PREFIX_BYTES };
    };
    let announced = u32::from_be_bytes(*prefix);
    let length = announced as usize;
    if length > FRAME_BYTES_MAX {
        return Split::TooLarge(announced);
    }
    match behind.split_at_checked(length) {
        Some((frame, rest)) => Split::Complete { frame, rest },
        None => Split::Incomplete { need: PREFIX_BYTES + length },
    }
}
