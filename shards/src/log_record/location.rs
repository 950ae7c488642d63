//! Where a record lies: what jobs keep of theirs.

/// Where a record lies in the log, and how much of its end is payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogRef {
    /// The address the log gave it.
    pub position: u64,
    /// Length of the record.
    pub record_bytes: u32,
    /// Length of the payload, the last bytes of the record. Zero: no payload.
    pub payload_bytes: u32,
}

impl LogRef {
    /// A record, cut where its payload begins, which is its end. `None` if it is shorter than its payload is said
    /// to be: a record that was read back is judged, not believed.
    #[inline]
    pub fn parted<'a>(&self, record: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let at = record.len().checked_sub(self.payload_bytes as usize)?;
        Some(record.split_at(at))
    }
}
