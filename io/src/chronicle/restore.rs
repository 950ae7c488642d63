//! Local files of a log made equal to its rows: what they have of the same content stays, all else is copied.
//!
//! Files that have the last row, which is chained to all before it, keep what they have behind it: it was written by this node
//! before it ended, and either the database had not committed it yet, or it has gone back since. No other node has written in
//! its place, and it goes to the database once the log is opened.

use super::database::{Connection, Database, DatabaseError};
use super::rows::{segments_of, stored, table};
use super::{HEADER_BYTES, ROW_BYTES_MAX, Row};
use crate::log::{SEGMENT_HEADER_BYTES, segment_file, shard_path};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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

/// Makes the files of one log equal to its rows, once or again and again: what was equal before is not read again.
pub struct Copier {
    database: Database,
    connection: Option<Connection>,
    shard: u16,
    segment_bytes: u64,
    /// The directory of the shard.
    directory: PathBuf,
    /// The last row of each segment, up to which its file is equal to the rows.
    equal: BTreeMap<u64, Row>,
    /// The last segment of which rows were lacking, until it is known that it is the last of all.
    lacked: Option<u64>,
    /// Whether the files have nothing behind the rows that they were given.
    is_copy: bool,
}

fn on_disk(path: &Path) -> impl Fn(io::Error) -> DatabaseError {
    move |error| DatabaseError(format!("{}: {error}", path.display()))
}

impl Copier {
    /// For the files of a shard in a data directory.
    pub fn new(database: Database, data: &Path, shard: u16, segment_bytes: u64) -> Self {
        Self {
            database,
            connection: None,
            shard,
            segment_bytes,
            directory: shard_path(data, shard),
            equal: BTreeMap::new(),
            lacked: None,
            is_copy: false,
        }
    }

    /// Makes the files equal to all rows. Files of a log of which there is no row stay as they are: their blocks go to the
    /// database when the log is opened.
    pub fn restore(&mut self) -> Result<Restored, DatabaseError> {
        self.copy(0)
    }

    /// Makes the files equal to the rows that have come since the last time. Another node owns the log.
    pub fn follow(&mut self) -> Result<(), DatabaseError> {
        let from = self.equal.last_key_value().map_or(0, |(&segment, _)| segment);
        self.copy(from)?;
        // The owner has given these up.
        if let Some((&first, _)) = self.equal.first_key_value() {
            self.remove_files(|segment| segment < first)?;
        }
        Ok(())
    }

    fn copy(&mut self, from: u64) -> Result<Restored, DatabaseError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.database.connect()?,
        };
        fs::create_dir_all(&self.directory).map_err(on_disk(&self.directory))?;
        let segments = segments_of(&mut connection, self.shard)?;
        self.equal.retain(|segment, _| segments.contains(segment));
        let mut restored = Restored::default();
        for &segment in segments.iter().filter(|&&segment| segment >= from) {
            if let Some(last) = self.copy_segment(&mut connection, segment, &mut restored)? {
                restored.ends.insert(segment, last.until - segment * self.segment_bytes);
                restored.last = Some(last);
            }
        }
        let last = self.equal.last_key_value().map(|(&segment, _)| segment);
        if self.lacked.is_some() && self.lacked == last && !self.is_copy {
            self.end_files()?;
            self.is_copy = true;
        }
        self.lacked = None;
        self.connection = Some(connection);
        Ok(restored)
    }

    /// Copies what the file of a segment lacks. Returns its last row, if it has any.
    fn copy_segment(
        &mut self,
        connection: &mut Connection,
        segment: u64,
        restored: &mut Restored,
    ) -> Result<Option<Row>, DatabaseError> {
        let table = table(self.shard, segment);
        let mut rows_from = |at: u64| -> Result<Vec<Row>, DatabaseError> {
            let query = format!("select at, until, sum from {table} where at >= $1 order by at");
            let found = connection.client.query(&query, &[&(at as i64)])?;
            Ok(found.iter().map(|row| stored(row.get(0), row.get(1), row.get(2))).collect())
        };
        let path = self.directory.join(segment_file(segment));
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(on_disk(&path))?;
        let start = segment * self.segment_bytes;
        let mut rows = Vec::new();
        let mut kept = 0;
        if let Some(equal) = self.equal.remove(&segment) {
            rows = rows_from(equal.at)?;
            kept = usize::from(rows.first() == Some(&equal));
            // Otherwise the database has gone back, and what the file has behind its rows may be of worth.
            self.is_copy &= kept == 1;
            restored.kept_bytes += if kept == 1 { equal.at - start } else { 0 };
        }
        if kept == 0 {
            rows = rows_from(0)?;
            kept = kept_of(&file, &rows, start);
        }
        let Some(&last) = rows.last() else { return Ok(None) };
        let bytes = |rows: &[Row]| rows.iter().map(|row| row.until - row.at).sum::<u64>();
        restored.kept_bytes += bytes(&rows[..kept]);
        restored.copied_bytes += bytes(&rows[kept..]);
        if kept < rows.len() {
            self.lacked = Some(segment);
            file.set_len(self.segment_bytes).map_err(on_disk(&path))?;
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
        self.equal.insert(segment, last);
        Ok(Some(last))
    }

    /// Takes away what the files have besides the rows, once they are known to be of another past than these.
    fn end_files(&self) -> Result<(), DatabaseError> {
        let directory = &self.directory;
        self.remove_files(|segment| !self.equal.contains_key(&segment))?;
        for (&segment, last) in &self.equal {
            let end = last.until - segment * self.segment_bytes;
            let path = directory.join(segment_file(segment));
            let file = OpenOptions::new().write(true).open(&path).map_err(on_disk(&path))?;
            // Marks of the file may speak of what it had, as well.
            let marks = [0; (SEGMENT_HEADER_BYTES - HEADER_BYTES) as usize];
            let cut = file
                .write_all_at(&marks, HEADER_BYTES)
                .and_then(|()| file.set_len(end.max(SEGMENT_HEADER_BYTES)))
                .and_then(|()| file.set_len(self.segment_bytes));
            cut.and_then(|()| file.sync_all()).map_err(on_disk(&path))?;
        }
        File::open(directory).and_then(|it| it.sync_all()).map_err(on_disk(directory))
    }

    fn remove_files(&self, goes: impl Fn(u64) -> bool) -> Result<(), DatabaseError> {
        for entry in fs::read_dir(&self.directory).map_err(on_disk(&self.directory))? {
            let path = entry.map_err(on_disk(&self.directory))?.path();
            let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".seg"));
            let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
            if number.is_some_and(&goes) {
                fs::remove_file(&path).map_err(on_disk(&path))?;
            }
        }
        Ok(())
    }
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
