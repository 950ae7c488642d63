//! Local files of a log made equal to its rows: what they have of the same content stays, all else is copied.
//!
//! Files that have the last row, which is chained to all before it, keep what they have behind it: it was written by this node
//! before it ended, and either the database had not committed it yet, or it has gone back since. No other node has written in
//! its place, and it goes to the database once the log is opened.

use super::database::{Database, DatabaseError};
use super::rows::{segments_of, stored, table};
use super::{HEADER_BYTES, ROW_BYTES_MAX, Row};
use crate::log::{SEGMENT_HEADER_BYTES, segment_file, shard_path};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Contents of the files of a log once they are equal to the rows.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    pub(super) last: Option<Row>,
    /// Where the rows of each segment end, as offsets in its file.
    pub(super) ends: BTreeMap<u64, u64>,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Bytes that were there.
    pub kept_bytes: u64,
}

fn on_disk(path: &Path) -> impl Fn(io::Error) -> DatabaseError {
    move |error| DatabaseError(format!("{}: {error}", path.display()))
}

/// Makes the files of a shard in a data directory equal to its rows. Files of a log of which there is no row stay as they are:
/// their blocks go to the database when the log is opened.
pub fn restore(
    database: &Database,
    data: &Path,
    shard: u16,
    segment_bytes: u64,
) -> Result<Restored, DatabaseError> {
    let mut connection = database.connect()?;
    let directory = shard_path(data, shard);
    fs::create_dir_all(&directory).map_err(on_disk(&directory))?;
    let mut restored = Restored::default();
    let mut has_last = true;
    for segment in segments_of(&mut connection, shard)? {
        let table = table(shard, segment);
        let found = connection
            .client
            .query(&format!("select at, until, sum from {table} order by at"), &[])?;
        let rows: Vec<Row> =
            found.iter().map(|row| stored(row.get(0), row.get(1), row.get(2))).collect();
        let Some(&last) = rows.last() else { continue };
        let path = directory.join(segment_file(segment));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(on_disk(&path))?;
        let start = segment * segment_bytes;
        let kept = kept_of(&file, &rows, start);
        let bytes = |rows: &[Row]| rows.iter().map(|row| row.until - row.at).sum::<u64>();
        restored.kept_bytes += bytes(&rows[..kept]);
        restored.copied_bytes += bytes(&rows[kept..]);
        has_last = kept == rows.len();
        if !has_last {
            file.set_len(segment_bytes).map_err(on_disk(&path))?;
        }
        let mut rest = &rows[kept..];
        while let [first, ..] = rest {
            let fits = |row: &&Row| row.until - first.at <= ROW_BYTES_MAX;
            let (some, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = others;
            let (from, to) = (first.at as i64, some[some.len() - 1].at as i64);
            let query = format!(
                "select at, until, sum, block from {table} where at between $1 and $2 order by at"
            );
            for found in connection.client.query(&query, &[&from, &to])? {
                let row = stored(found.get(0), found.get(1), found.get(2));
                let bytes = unpacked(row, found.get(3))?;
                file.write_all_at(&bytes, row.at - start).map_err(on_disk(&path))?;
            }
        }
        restored.ends.insert(segment, last.until - start);
        restored.last = Some(last);
    }
    if !has_last {
        end_files(&directory, segment_bytes, &restored)?;
    }
    Ok(restored)
}

/// How many of the rows a file has as they are.
fn kept_of(file: &File, rows: &[Row], start: u64) -> usize {
    let mut bytes = Vec::new();
    let is_kept = |row: &&Row| {
        bytes.resize((row.until - row.at) as usize, 0);
        let read = file.read_exact_at(&mut bytes, row.at - start);
        read.is_ok() && crc32c::crc32c(&bytes) == row.sum
    };
    rows.iter().take_while(is_kept).count()
}

fn unpacked(row: Row, block: &[u8]) -> Result<Vec<u8>, DatabaseError> {
    let wrong = || DatabaseError(format!("the row at {:#x} is not what was stored", row.at));
    // The length that the block gives is not believed before it is that of the row.
    let (length, packed) = block.split_first_chunk().ok_or_else(wrong)?;
    if u64::from(u32::from_le_bytes(*length)) != row.until - row.at {
        return Err(wrong());
    }
    let bytes = lz4_flex::decompress(packed, (row.until - row.at) as usize).map_err(|_| wrong())?;
    if crc32c::crc32c(&bytes) == row.sum { Ok(bytes) } else { Err(wrong()) }
}

/// Takes away what the files have besides the rows, once they are known to be of another past than these.
fn end_files(
    directory: &Path,
    segment_bytes: u64,
    restored: &Restored,
) -> Result<(), DatabaseError> {
    for entry in fs::read_dir(directory).map_err(on_disk(directory))? {
        let name = entry.map_err(on_disk(directory))?.file_name();
        let name = name.to_string_lossy();
        let known = restored.ends.keys().any(|&segment| segment_file(segment) == *name);
        if name.ends_with(".seg") && !known {
            let path = directory.join(&*name);
            fs::remove_file(&path).map_err(on_disk(&path))?;
        }
    }
    for (&segment, &end) in &restored.ends {
        let path = directory.join(segment_file(segment));
        let file = OpenOptions::new().write(true).open(&path).map_err(on_disk(&path))?;
        // Marks of the file may speak of what it had, as well.
        let marks = [0; (SEGMENT_HEADER_BYTES - HEADER_BYTES) as usize];
        let cut = file
            .write_all_at(&marks, HEADER_BYTES)
            .and_then(|()| file.set_len(end.max(SEGMENT_HEADER_BYTES)))
            .and_then(|()| file.set_len(segment_bytes));
        cut.and_then(|()| file.sync_all()).map_err(on_disk(&path))?;
    }
    File::open(directory).and_then(|it| it.sync_all()).map_err(on_disk(directory))
}
