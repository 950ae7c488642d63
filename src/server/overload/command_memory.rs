//! Frames that have left their connections for commands which are not done: those on their way to other shards, and those of
//! commands in several steps. A shard that is slow, or a name that another command holds, would have them pile up: each
//! connection may have fifty, of 10 MB and more.
//!
//! A frame for another shard counts on the shard of its connection until the shard that carries the command out has read
//! it. While their account of the client memory is full, the shard begins no other command of its connections. Messages of
//! other shards are read all the same: two shards never wait for each other.
//!
//! A ground type: it imports nothing of the server.

/// Shorter frames are not counted on their way: their number is bounded, and each would be acknowledged.
const COUNTED_BYTES_MIN: usize = 4 << 10;

/// Frames on their way to other shards.
#[derive(Debug, Default)]
pub struct ForwardedFrames {
    bytes: usize,
    /// How many frames of other shards' connections have been sent on.
    passed_on: u64,
}

impl ForwardedFrames {
    /// The bytes of a frame as they are counted: none, if it is short.
    pub fn counted(frame: &[u8]) -> usize {
        if frame.len() < COUNTED_BYTES_MIN { 0 } else { frame.len() }
    }

    /// A frame of a connection here goes to another shard.
    pub fn note_sent(&mut self, frame: &[u8]) {
        self.bytes += Self::counted(frame);
    }

    /// Notes that a frame of another shard's connection is sent on to a third shard. Its bytes stay counted on the
    /// shard of its connection.
    pub fn note_passed_on(&mut self) {
        self.passed_on += 1;
    }

    /// Frames of other shards' connections that were sent on, since the start.
    pub fn passed_on(&self) -> u64 {
        self.passed_on
    }

    /// Notes that the shards which carry commands out have read so many bytes of frames sent there.
    pub fn note_taken(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "what is taken was sent");
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Bytes on their way.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_frames_count_until_they_are_taken_and_short_ones_do_not() {
        let mut forwarded = ForwardedFrames::default();
        let (long, short) = (vec![0; 9 << 20], vec![0; COUNTED_BYTES_MIN - 1]);
        for _ in 0..3 {
            forwarded.note_sent(&long);
            forwarded.note_sent(&short);
        }
        assert_eq!((forwarded.bytes(), ForwardedFrames::counted(&short)), (27 << 20, 0));
        (0..3).for_each(|_| forwarded.note_taken(ForwardedFrames::counted(&long)));
        assert_eq!(forwarded.bytes(), 0);
    }
}
