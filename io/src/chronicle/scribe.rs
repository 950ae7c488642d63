//! The thread that writes the rows of one log. What is to be written lies in the local files already, from which it is read.

use super::restore::Restored;
use super::{Chronicle, HEADER_BYTES, ROW_BYTES_MAX, Refused, Row};
use crate::log::segment_file;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Where the first block of a segment lies in its file.
const BLOCKS_AT: u64 = crate::log::SEGMENT_HEADER_BYTES;

/// An order of a log.
#[derive(Debug)]
pub(super) enum Order {
    /// Write these bytes of files, by segments in their order, and then say so by the tag.
    Append { parts: Vec<(u64, std::ops::Range<u64>)>, tag: u64 },
    /// Forget a segment.
    Trim { segment: u64 },
}

/// The ends of the wire between a log and its scribe.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) orders: Sender<Order>,
    /// Tags of orders that are done.
    pub(super) done: Receiver<u64>,
}

/// Called on the thread of a scribe.
pub struct Calls {
    /// An order is done: the shard is to be woken.
    pub wake: Box<dyn Fn() + Send>,
    /// A row of so many bytes was committed.
    pub stored: Box<dyn Fn(u64) + Send>,
    /// The database had gone back, and so many bytes were put back.
    pub put_back: Box<dyn Fn(u64) + Send>,
    /// The log belongs to another node, or its file cannot be read: nothing more may be said for it.
    pub end: Box<dyn Fn(String) + Send>,
}

/// The writer of the rows of one log.
pub struct Scribe {
    chronicle: Box<dyn Chronicle>,
    /// The directory of the shard.
    directory: PathBuf,
    segment_bytes: u64,
    last: Option<Row>,
    /// Where the rows of each segment end, as offsets in its file.
    ends: BTreeMap<u64, u64>,
    open: Option<(u64, File)>,
    /// Segments whose rows were in use when they were to be forgotten, and when that was tried last.
    kept: (Vec<u64>, Instant),
}

/// How soon rows that were in use are tried to be forgotten again, with the next append.
const TRIM_AGAIN: Duration = Duration::from_secs(1);

impl Scribe {
    /// A writer that goes on behind what was restored in the directory of a shard.
    pub fn new(
        chronicle: Box<dyn Chronicle>,
        directory: PathBuf,
        segment_bytes: u64,
        restored: &Restored,
    ) -> Self {
        let (last, ends) = (restored.last, restored.ends.clone());
        let kept = (Vec::new(), Instant::now());
        Self { chronicle, directory, segment_bytes, last, ends, open: None, kept }
    }

    /// Writes a log that has no rows yet, up to these ends in its segments: on this thread, until it is done.
    pub fn write_all(
        &mut self,
        ends: impl Iterator<Item = (u64, u64)>,
        calls: &Calls,
    ) -> Result<(), String> {
        for (segment, end) in ends {
            self.append_part(segment, 0..end, calls)?;
        }
        Ok(())
    }

    /// Where the rows of each segment end, as offsets in its file.
    pub(super) fn ends(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ends.iter().map(|(&segment, &end)| (segment, end))
    }

    /// Starts its thread, which ends with the log.
    pub(super) fn start(mut self, calls: Calls) -> io::Result<Wire> {
        let ((orders, to_do), (say, done)) = (unbounded(), unbounded());
        thread::Builder::new().name("corq-scribe".into()).spawn(move || {
            for order in to_do {
                match self.carry_out(order, &calls) {
                    Ok(None) => {}
                    // A log that is gone needs no answer.
                    Ok(Some(tag)) => {
                        if say.send(tag).is_err() {
                            return;
                        }
                        (calls.wake)();
                    }
                    Err(reason) => {
                        (calls.end)(reason);
                        return;
                    }
                }
            }
        })?;
        Ok(Wire { orders, done })
    }

    fn carry_out(&mut self, order: Order, calls: &Calls) -> Result<Option<u64>, String> {
        match order {
            Order::Append { parts, tag } => {
                for (segment, part) in parts {
                    self.append_part(segment, part, calls)?;
                }
                if !self.kept.0.is_empty() && self.kept.1.elapsed() >= TRIM_AGAIN {
                    for segment in std::mem::take(&mut self.kept.0) {
                        self.trim(segment)?;
                    }
                }
                Ok(Some(tag))
            }
            Order::Trim { segment } => {
                self.ends.remove(&segment);
                self.open.take_if(|(number, _)| *number == segment);
                self.trim(segment).map(|()| None)
            }
        }
    }

    fn trim(&mut self, segment: u64) -> Result<(), String> {
        match self.chronicle.trim(segment) {
            Err(Refused::Fenced) => return Err(fenced()),
            Ok(false) => {
                self.kept.0.push(segment);
                self.kept.1 = Instant::now();
            }
            Ok(true) | Err(Refused::WentBack(_)) => {}
        }
        Ok(())
    }

    /// Appends some bytes of a segment, of which those of the header are the first.
    fn append_part(
        &mut self,
        segment: u64,
        part: std::ops::Range<u64>,
        calls: &Calls,
    ) -> Result<(), String> {
        let start = segment * self.segment_bytes;
        let mut at = part.start;
        if at < HEADER_BYTES {
            self.append_bytes(start..start + HEADER_BYTES, calls)?;
            at = BLOCKS_AT;
        }
        while at < part.end {
            let until = part.end.min(at + ROW_BYTES_MAX);
            self.append_bytes(start + at..start + until, calls)?;
            at = until;
        }
        Ok(())
    }

    fn append_bytes(&mut self, range: std::ops::Range<u64>, calls: &Calls) -> Result<(), String> {
        let segment = range.start / self.segment_bytes;
        let end = range.end - segment * self.segment_bytes;
        // Bytes that the database has lost while others were put back were put back with those.
        while self.ends.get(&segment).is_none_or(|&stored| stored < end)
            || self.last.is_none_or(|last| last.until < range.end)
        {
            let bytes = self.read(&range)?;
            let row = Row { at: range.start, until: range.end, sum: crc32c::crc32c(&bytes) };
            match self.chronicle.append(row, self.last, &bytes) {
                Ok(()) => {
                    (calls.stored)(row.until - row.at);
                    self.last = Some(row);
                    // A row that is put back is not the end of what may have to be put back again.
                    let stored = self.ends.entry(segment).or_default();
                    *stored = end.max(*stored);
                }
                Err(Refused::Fenced) => return Err(fenced()),
                Err(Refused::WentBack(last)) => self.put_back(last, calls)?,
            }
        }
        Ok(())
    }

    /// Puts the rows back that the database has lost: this node has them all in its files.
    fn put_back(&mut self, last: Option<Row>, calls: &Calls) -> Result<(), String> {
        let from = last.map_or(0, |last| last.until);
        let lost = self.ends.clone().into_iter().filter_map(|(segment, end)| {
            let start = segment * self.segment_bytes;
            let begin = if from <= start { 0 } else { (from - start).max(BLOCKS_AT) };
            (start + end > from).then_some((segment, begin..end))
        });
        let lost: Vec<_> = lost.collect();
        self.last = last;
        let bytes = lost.iter().map(|(_, part)| part.end - part.start).sum();
        for (segment, part) in lost {
            self.append_part(segment, part, calls)?;
        }
        (calls.put_back)(bytes);
        Ok(())
    }

    fn read(&mut self, range: &std::ops::Range<u64>) -> Result<Vec<u8>, String> {
        let segment = range.start / self.segment_bytes;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut read = || {
            if self.open.as_ref().is_none_or(|(number, _)| *number != segment) {
                let file = File::open(self.directory.join(segment_file(segment)))?;
                self.open = Some((segment, file));
            }
            let Some((_, file)) = &self.open else { return Ok(()) };
            file.read_exact_at(&mut bytes, range.start % self.segment_bytes)
        };
        let done: io::Result<()> = read();
        done.map(|()| bytes).map_err(|error| {
            format!("{}: {error}", self.directory.join(segment_file(segment)).display())
        })
    }
}

fn fenced() -> String {
    "another node has taken the logs over".into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::{Arc, Mutex};

    const SEGMENT_BYTES: u64 = 1 << 16;

    /// Rows in memory, with the rule of the statement that appends.
    #[derive(Clone, Default)]
    struct InMemory(Arc<Mutex<Stored>>);

    type Stored = Vec<(Row, Vec<u8>)>;

    impl Chronicle for InMemory {
        fn append(&mut self, row: Row, after: Option<Row>, bytes: &[u8]) -> Result<(), Refused> {
            let mut rows = self.0.lock().unwrap();
            let last = rows.last().map(|(last, _)| *last);
            if last != after {
                return Err(Refused::WentBack(last));
            }
            rows.push((row, bytes.to_vec()));
            Ok(())
        }

        fn trim(&mut self, segment: u64) -> Result<bool, Refused> {
            self.0.lock().unwrap().retain(|(row, _)| row.at / SEGMENT_BYTES != segment);
            Ok(true)
        }
    }

    /// Loses its last rows every now and then, and keeps some that are read when they are to be forgotten.
    struct Forgetful(InMemory, Dice);

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % sides
        }
    }

    impl Chronicle for Forgetful {
        fn append(&mut self, row: Row, after: Option<Row>, bytes: &[u8]) -> Result<(), Refused> {
            if self.1.below(4) == 0 {
                let mut rows = self.0.0.lock().unwrap();
                let kept = rows.len().saturating_sub(self.1.below(6) as usize);
                rows.truncate(kept);
            }
            self.0.append(row, after, bytes)
        }

        fn trim(&mut self, segment: u64) -> Result<bool, Refused> {
            if self.1.below(2) == 0 { Ok(false) } else { self.0.trim(segment) }
        }
    }

    fn calls() -> Calls {
        Calls {
            wake: Box::new(|| ()),
            stored: Box::new(|_| ()),
            put_back: Box::new(|_| ()),
            end: Box::new(|reason| panic!("{reason}")),
        }
    }

    fn order(wire: &Wire, parts: &[(u64, std::ops::Range<u64>)], tag: u64) {
        wire.orders.send(Order::Append { parts: parts.to_vec(), tag }).unwrap();
        assert_eq!(wire.done.recv().unwrap(), tag);
    }

    /// Guards against a hole behind the end of a database that has gone back, however far.
    #[test]
    fn rows_that_were_lost_are_put_back_in_their_order_before_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..SEGMENT_BYTES).map(|at| ((at * at) >> 7) as u8).collect();
        for segment in [3, 4] {
            std::fs::write(dir.path().join(segment_file(segment)), &bytes).unwrap();
        }
        let whole = |rows: &InMemory| {
            let rows = rows.0.lock().unwrap();
            for (row, stored) in rows.iter() {
                let offset = (row.at % SEGMENT_BYTES) as usize;
                assert_eq!(bytes[offset..][..stored.len()], stored[..]);
                assert_eq!(row.until, row.at + stored.len() as u64);
            }
            rows.iter().map(|(row, _)| (row.at, row.until)).collect::<Vec<_>>()
        };
        let parts = [(3, 0..9_000), (3, 9_000..20_000), (4, 0..5_000), (4, 5_000..6_000)];
        let (first, second) = (3 * SEGMENT_BYTES, 4 * SEGMENT_BYTES);
        for kept in 0..=6 {
            let rows = InMemory::default();
            let scribe = Scribe::new(
                Box::new(rows.clone()),
                dir.path().into(),
                SEGMENT_BYTES,
                &Restored::default(),
            );
            let wire = scribe.start(calls()).unwrap();
            for (tag, part) in parts.iter().enumerate() {
                order(&wire, std::slice::from_ref(part), tag as u64);
            }
            let all = whole(&rows);
            assert_eq!(
                all[..2],
                [(first, first + HEADER_BYTES), (first + BLOCKS_AT, first + 9_000)]
            );
            assert_eq!((all.len(), all[5]), (6, (second + 5_000, second + 6_000)));
            rows.0.lock().unwrap().truncate(kept);
            order(&wire, &[(4, 6_000..7_000)], 9);
            let after = whole(&rows);
            assert_eq!(after.last(), Some(&(second + 6_000, second + 7_000)));
            // All blocks are there, each once; where rows are put back they may be longer.
            let blocks: u64 = after.iter().map(|(at, until)| until - at).sum();
            assert_eq!(
                blocks,
                2 * HEADER_BYTES + (20_000 - BLOCKS_AT) + (7_000 - BLOCKS_AT),
                "{kept}"
            );
            assert!(after.windows(2).all(|two| two[0].1 <= two[1].0), "{after:?}");
        }
    }

    /// Guards against a row beside those that were put back: another node would have been taken for its writer.
    #[test]
    fn a_database_that_goes_back_again_and_again_has_all_that_is_said_to_be_done_once() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..SEGMENT_BYTES).map(|at| ((at * at) >> 5) as u8).collect();
        for segment in 0..5 {
            std::fs::write(dir.path().join(segment_file(segment)), &bytes).unwrap();
        }
        for seed in 0..2000 {
            let (rows, mut dice) = (InMemory::default(), Dice(seed));
            let forgetful = Forgetful(rows.clone(), Dice(seed ^ 0xd1ce));
            let scribe = Scribe::new(
                Box::new(forgetful),
                dir.path().into(),
                SEGMENT_BYTES,
                &Restored::default(),
            );
            let wire = scribe.start(calls()).unwrap();
            let (mut first, mut ends) = (0, vec![0_u64]);
            for tag in 0..20 {
                let mut parts = Vec::new();
                for _ in 0..=dice.below(2) {
                    let last = ends.len() as u64 - 1;
                    let end = ends[last as usize].max(BLOCKS_AT) + 1 + dice.below(1500);
                    parts.push((last, ends[last as usize]..end));
                    ends[last as usize] = end;
                    if dice.below(6) == 0 && ends.len() < 5 {
                        ends.push(0);
                        break;
                    }
                }
                order(&wire, &parts, tag);
                let stored = rows.0.lock().unwrap();
                let live = stored.iter().filter(|(row, _)| row.at >= first * SEGMENT_BYTES);
                let live: Vec<_> = live.collect();
                for (row, stored) in &live {
                    assert_eq!(
                        bytes[(row.at % SEGMENT_BYTES) as usize..][..stored.len()],
                        stored[..]
                    );
                }
                assert!(live.windows(2).all(|two| two[0].0.until <= two[1].0.at), "seed {seed}");
                let all: u64 = live.iter().map(|(row, _)| row.until - row.at).sum();
                let given = ends[first as usize..].iter().filter(|end| **end > 0);
                let given: u64 = given.map(|end| HEADER_BYTES + end - BLOCKS_AT).sum();
                assert_eq!(all, given, "seed {seed}, order {tag}");
                drop(stored);
                if first + 1 < ends.len() as u64 && dice.below(3) == 0 {
                    wire.orders.send(Order::Trim { segment: first }).unwrap();
                    first += 1;
                }
            }
        }
    }
}
