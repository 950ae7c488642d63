//! Another directory's number for the files of a log: what a copy needs to be a directory of its own.
//!
//! Knows the two places of a segment that bear the number, its header and its mark; its blocks do not.

use crate::log::disk::regular;
use crate::log::format::address::SEGMENT_HEADER_BYTES;
use crate::log::format::salt::Salt;
use crate::log::format::segment::{HEADER_BYTES, LONG_HEADER_BYTES, SegmentHeader};
use crate::log::format::successor_mark::{Own, SUCCESSOR_MARK_BYTES, SuccessorMark};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Makes a segment of the directory `from` one of the directory `to`, durably. A file that is none of
/// `from`'s stays as it is: a look at it says so.
pub fn give_id(path: &Path, from: u64, to: u64) -> io::Result<()> {
    let file = regular::open_to_change(path)?;
    let file_bytes = file.metadata()?.len();
    if file_bytes < SEGMENT_HEADER_BYTES {
        return Ok(());
    }
    let mut page = [0; SEGMENT_HEADER_BYTES as usize];
    file.read_exact_at(&mut page, 0)?;
    let Ok(header) = SegmentHeader::decode(&page) else { return Ok(()) };
    if header.log_id != from {
        return Ok(());
    }
    let SegmentHeader { shard, segment, salt, segment_bytes, .. } = header;
    let end = segment_bytes.saturating_sub(SUCCESSOR_MARK_BYTES as u64);
    if file_bytes >= segment_bytes && end >= SEGMENT_HEADER_BYTES {
        let mut mark = [0; SUCCESSOR_MARK_BYTES];
        file.read_exact_at(&mut mark, end)?;
        let own = Own { shard, segment, log_id: from, salt: Some(salt) };
        if let Some(next) = SuccessorMark::next_of(&mark, &own) {
            let mark = SuccessorMark { shard, segment, next, log_id: to, salt };
            file.write_all_at(&mark.encode(), end)?;
        }
    }
    // Bytes behind the header in its page are the slots', which bear no number of a directory.
    let bytes = if salt == Salt::NONE { HEADER_BYTES } else { LONG_HEADER_BYTES };
    let header = SegmentHeader { log_id: to, ..header }.encode();
    file.write_all_at(&header[..bytes], 0)?;
    file.sync_all()
}
