//! Long requests about many jobs, read a slice at a time and cut into frames of their own.
//!
//! A [`Walk`] finds where the items of the lists of a request begin, and goes on where it stopped. What is around the
//! lists is put together without them and decoded as any other frame; of the lists, pieces are put into frames and
//! decoded one after the other. So whatever is checked of a short request is checked of a long one, by the same code and
//! with the same words. What the request does is not known here.

use crate::api::commands::{Class, CommandSpec, FieldSpec, Kind, Op};
use crate::api::error::{Error, ErrorKind};
use crate::api::limits::BATCH_MAX;
use crate::api::size::IGNORED_BYTES_MAX;
use crate::protocol::msgpack::Reader;
use crate::protocol::msgpack::writer::Writer;

/// Most items of a piece.
pub const PIECE_ITEMS: usize = 500;

/// Bytes of items after which a piece takes no other.
pub const PIECE_BYTES: usize = 128 << 10;

/// Most lists of a command.
const LISTS_MAX: usize = 4;

/// Whether a command is about as many jobs as its lists have items, and can be cut.
#[inline]
pub fn is_cut(op: Op) -> bool {
    matches!(op.spec().class, Class::Batch(_))
}

fn is_list(field: &FieldSpec) -> bool {
    matches!(
        field.kind,
        Kind::Jobs
            | Kind::Flow
            | Kind::JobIds
            | Kind::Tokens
            | Kind::Results
            | Kind::Flags
            | Kind::Integers { .. }
    )
}

/// Where the items of one list lie.
#[derive(Debug)]
struct List {
    field: &'static FieldSpec,
    start: usize,
    /// Where each ends; a frame is shorter than 4 GB.
    ends: Vec<u32>,
}

impl List {
    fn edge(&self, item: usize) -> usize {
        if item == 0 { self.start } else { self.ends[item - 1] as usize }
    }
}

/// What is being read.
#[derive(Clone, Copy, Debug)]
enum At {
    /// The key of an entry.
    Key,
    /// A value that is no list, with what stands before it.
    Value { key: usize, value: usize, left: usize },
    /// An item of the last list, of which so many more follow.
    Item { left: usize, follow: usize },
    /// Nothing: it has been read.
    End,
}

/// A request on its way through the cut.
#[derive(Debug)]
pub struct Walk {
    spec: &'static CommandSpec,
    at: usize,
    state: At,
    entries: usize,
    /// The entries that are no list, and empty lists.
    around: Vec<u8>,
    kept: usize,
    lists: Vec<List>,
}

/// Bytes of the head of a map that may have any number of entries.
const MAP_HEAD_BYTES: usize = 5;

impl Walk {
    /// At the front of a request for this command.
    pub fn new(spec: &'static CommandSpec) -> Self {
        let around = vec![0; MAP_HEAD_BYTES];
        let lists = Vec::with_capacity(LISTS_MAX);
        Self { spec, at: 0, state: At::Key, entries: 0, around, kept: 0, lists }
    }

    pub fn spec(&self) -> &'static CommandSpec {
        self.spec
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.around.capacity()
            + self.lists.iter().map(|list| list.ends.capacity() * 4).sum::<usize>()
    }

    /// Goes on by about `steps` values, which it counts down. True once it is at the end.
    pub fn go_on(&mut self, frame: &[u8], steps: &mut usize) -> Result<bool, Error> {
        if self.at == 0 {
            let mut reader = Reader::new(frame);
            let Some(entries) = reader.map()? else {
                return Err(ErrorKind::FrameNotMap.into());
            };
            self.entries = entries;
            self.at = frame.len() - reader.rest().len();
        }
        while *steps > 0 && !matches!(self.state, At::End) {
            let mut reader = Reader::new(&frame[self.at..]);
            match self.state {
                At::Key if self.entries == 0 => {
                    if !reader.rest().is_empty() {
                        return Err(ErrorKind::FrameGoesOn.into());
                    }
                    self.state = At::End;
                }
                At::Key => {
                    *steps -= 1;
                    self.enter(frame, &mut reader)?;
                }
                At::Value { key, value, mut left } => {
                    reader.pass_some(&mut left, steps)?;
                    self.at = frame.len() - reader.rest().len();
                    self.state = At::Value { key, value, left };
                    let over = self.at - value > IGNORED_BYTES_MAX;
                    if left == 0 || over {
                        self.keep(&frame[key..value], &frame[value..self.at], over);
                    }
                    if over {
                        // What stands in its place is refused in its words.
                        self.state = At::End;
                    }
                }
                At::Item { mut left, follow } => {
                    reader.pass_some(&mut left, steps)?;
                    self.at = frame.len() - reader.rest().len();
                    self.state = At::Item { left, follow };
                    if left == 0
                        && let Some(list) = self.lists.last_mut()
                    {
                        list.ends.push(self.at as u32);
                        self.begin_item(follow);
                    }
                }
                At::End => {}
            }
        }
        Ok(matches!(self.state, At::End))
    }

    fn enter(&mut self, frame: &[u8], reader: &mut Reader<'_>) -> Result<(), Error> {
        let start = self.at;
        let key = reader.pass_key()?;
        let value = frame.len() - reader.rest().len();
        self.entries -= 1;
        self.at = value;
        if reader.absent()? {
            self.at = frame.len() - reader.rest().len();
            return Ok(());
        }
        let field = self.spec.fields.iter().find(|field| field.name.as_bytes() == key);
        if let Some(field) = field.filter(|field| is_list(field)) {
            if self.lists.iter().any(|list| list.field.name == field.name) {
                return Err(field.repeated());
            }
            if let Some(count) = reader.array()? {
                if count > BATCH_MAX as usize {
                    return Err(field.out_of_bounds());
                }
                self.at = frame.len() - reader.rest().len();
                self.keep(&frame[start..value], &[0x90], false);
                let ends = Vec::with_capacity(count);
                self.lists.push(List { field, start: self.at, ends });
                self.begin_item(count);
                return Ok(());
            }
        }
        self.state = At::Value { key: start, value, left: 1 };
        Ok(())
    }

    fn begin_item(&mut self, follow: usize) {
        self.state = match follow.checked_sub(1) {
            Some(follow) => At::Item { left: 1, follow },
            None => At::Key,
        };
    }

    /// Keeps an entry. Of one that is too long whatever field it is, its kind.
    fn keep(&mut self, key: &[u8], value: &[u8], over: bool) {
        /// Strings, in the format: short ones, and those of three widths.
        fn is_text(first: u8) -> bool {
            matches!(first, 0xa0..=0xbf | 0xd9..=0xdb)
        }
        self.kept += 1;
        self.state = At::Key;
        // A key that is too long names no field, and is as little looked at.
        let key = if key.len() > IGNORED_BYTES_MAX { &[0xa0][..] } else { key };
        self.around.extend_from_slice(key);
        if !over {
            self.around.extend_from_slice(value);
            return;
        }
        let text = value.first().is_some_and(|&first| is_text(first));
        let length = IGNORED_BYTES_MAX as u32 + 1;
        self.around.push(if text { 0xdb } else { 0xc6 });
        self.around.extend_from_slice(&length.to_be_bytes());
        self.around.resize(self.around.len() + length as usize, b'x');
    }

    /// What is around the lists: a frame of the same command, with empty lists.
    pub fn around(&mut self) -> &[u8] {
        self.around[0] = 0xdf;
        self.around[1..MAP_HEAD_BYTES].copy_from_slice(&(self.kept as u32).to_be_bytes());
        &self.around
    }

    /// Whether the lists fit each other, which is of interest once what is in them has been read.
    pub fn fits(&self) -> Result<(), Error> {
        let ids = self.count("ids");
        for list in &self.lists {
            let count = list.ends.len();
            match list.field.kind {
                Kind::Results if count != ids => return Err(ErrorKind::ResultsLength.into()),
                Kind::Flags if count != ids => return Err(ErrorKind::RemovesLength.into()),
                Kind::Tokens if count > ids => return Err(ErrorKind::TokensLength.into()),
                Kind::Integers { .. } if count != ids => {
                    return Err(ErrorKind::DurationsLength.into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&self, name: &str) -> usize {
        self.lists.iter().find(|list| list.field.name == name).map_or(0, |list| list.ends.len())
    }

    /// Over how many jobs it goes.
    pub fn items(&self) -> usize {
        self.lists.iter().map(|list| list.ends.len()).max().unwrap_or(0)
    }

    /// Where the piece ends that begins with an item.
    pub fn piece_end(&self, from: usize) -> usize {
        let bytes = |to: usize| -> usize {
            let of = |list: &List| {
                let edge = |item: usize| list.edge(item.min(list.ends.len()));
                edge(to) - edge(from)
            };
            self.lists.iter().map(of).sum()
        };
        let most = self.items().min(from + PIECE_ITEMS);
        // The first that makes it too long is the last: a piece has one item at least.
        let (mut low, mut high) = ((from + 1).min(most), most);
        while low < high {
            let middle = usize::midpoint(low, high);
            if bytes(middle) >= PIECE_BYTES { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Writes a piece as a frame of the same command.
    pub fn write_piece(
        &self,
        frame: &[u8],
        queue: Option<&str>,
        (from, to): (usize, usize),
        out: &mut Vec<u8>,
    ) {
        let there = |list: &&List| list.field.name == "ids" || list.ends.len() > from;
        let lists = || self.lists.iter().filter(there);
        let mut writer = Writer::new(out);
        writer.map(1 + usize::from(queue.is_some()) + lists().count());
        writer.str("cmd");
        writer.str(self.spec.name);
        if let Some(queue) = queue {
            writer.str("queue");
            writer.str(queue);
        }
        for list in lists() {
            let (from, to) = (from.min(list.ends.len()), to.min(list.ends.len()));
            writer.str(list.field.name);
            writer.array(to - from);
            writer.raw(&frame[list.edge(from)..list.edge(to)]);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::api::request::{Body, Request};
    use crate::protocol::decode::{Progress, decode, decode_piece};
    use crate::protocol::json;

    fn packed(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        json::to_msgpack(text.as_bytes(), &mut bytes).unwrap();
        bytes
    }

    /// What becomes of a request in slices of so many values: its pieces, or what is wrong.
    fn cut(frame: &[u8], op: &str, steps: usize) -> Result<Vec<Vec<u8>>, Error> {
        let mut walk = Walk::new(CommandSpec::find(op.as_bytes()).unwrap());
        while !walk.go_on(frame, &mut steps.clone())? {}
        let around = walk.around().to_vec();
        let Request { body, .. } = decode(&around).map_err(|refused| refused.error)?;
        let queue = match &body {
            Body::PushBatch { queue, .. } => Some(*queue),
            _ => None,
        };
        let mut pieces = Vec::new();
        let mut progress = Progress::default();
        while progress.place < walk.items() {
            let to = walk.piece_end(progress.place);
            let mut piece = Vec::new();
            walk.write_piece(frame, queue, (progress.place, to), &mut piece);
            decode_piece(&piece, &mut progress)?;
            progress.place = to;
            pieces.push(piece);
        }
        walk.fits()?;
        Ok(pieces)
    }

    fn ids(count: usize) -> String {
        (0..count).map(|n| format!("\"id-{n}\"")).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn pieces_of_a_request_are_together_what_it_is() {
        let jobs = |count: usize| {
            let job = |n| format!(r#"{{"data":{{"n":[{n},{{}}]}},"priority":{}}}"#, n % 7);
            (0..count).map(job).collect::<Vec<_>>().join(",")
        };
        for count in [0, 1, PIECE_ITEMS, PIECE_ITEMS + 1, 3 * PIECE_ITEMS] {
            let text = format!(
                r#"{{"reqId":7,"jobs":[{}],"cmd":"PUSHB","x":[1],"queue":"q"}}"#,
                jobs(count)
            );
            let frame = packed(&text);
            let Ok(Request { body: Body::PushBatch { jobs: all, .. }, .. }) = decode(&frame) else {
                panic!("it is a push")
            };
            for steps in [1, 7, 100_000] {
                let pieces = cut(&frame, "PUSHB", steps).unwrap();
                assert_eq!(pieces.len(), count.div_ceil(PIECE_ITEMS));
                let mut data = Vec::new();
                for piece in &pieces {
                    let Ok(Request { body: Body::PushBatch { queue, jobs }, .. }) = decode(piece)
                    else {
                        panic!("it is one, too")
                    };
                    assert_eq!(queue, "q");
                    data.extend(jobs.iter().map(|job| (job.data.to_vec(), job.priority)));
                }
                let expected: Vec<_> =
                    all.iter().map(|job| (job.data.to_vec(), job.priority)).collect();
                assert_eq!(data, expected);
            }
        }
        let count = 2 * PIECE_ITEMS + 3;
        let results = (0..count).map(|n| format!("[{n}]")).collect::<Vec<_>>().join(",");
        let text = format!(
            r#"{{"cmd":"ACKB","ids":[{}],"results":[{results}],"tokens":["","x"]}}"#,
            ids(count)
        );
        let frame = packed(&text);
        let Ok(Request { body: Body::AckBatch { batch: all }, .. }) = decode(&frame) else {
            panic!()
        };
        let mut place = 0;
        for piece in cut(&frame, "ACKB", 50).unwrap() {
            let Ok(Request { body: Body::AckBatch { batch }, .. }) = decode(&piece) else {
                panic!()
            };
            for ack in batch.acks() {
                let whole = all.acks().nth(place).unwrap();
                assert_eq!((ack.job, ack.token), (whole.job, whole.token));
                assert_eq!(ack.result, whole.result);
                place += 1;
            }
        }
        assert_eq!(place, count);
    }

    #[test]
    fn a_piece_is_no_longer_than_one_item_more_than_it_may_be() {
        let data = "x".repeat(PIECE_BYTES / 4);
        let jobs = vec![format!(r#"{{"data":"{data}"}}"#); 10].join(",");
        let frame = packed(&format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{jobs}]}}"#));
        let pieces = cut(&frame, "PUSHB", 1000).unwrap();
        assert_eq!(pieces.len(), 3);
        assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES * 3 / 2));
    }

    #[test]
    fn what_is_wrong_with_a_request_is_told_as_of_one_that_is_read_at_once() {
        let good = vec![r#"{"data":1}"#; PIECE_ITEMS + 1].join(",");
        let many = vec!["1"; BATCH_MAX as usize + 1].join(",");
        let long = "x".repeat(IGNORED_BYTES_MAX + 1);
        for text in [
            format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good},{{"data":1,"priority":"x"}}]}}"#),
            format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good},7]}}"#),
            format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{many}]}}"#),
            format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":"{long}"}}"#),
            format!(r#"{{"cmd":"PUSHB","queue":"{long}","jobs":[{good}]}}"#),
            format!(r#"{{"cmd":"PUSHB","queue":[{many}],"jobs":[{good}]}}"#),
            format!(r#"{{"cmd":"PUSHB","queue":"q q","jobs":[{good}]}}"#),
            format!(r#"{{"cmd":"PUSHB","jobs":[{good}]}}"#),
            r#"{"cmd":"PUSHB","queue":"q"}"#.to_owned(),
            format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good}],"jobs":[]}}"#),
            format!(r#"{{"cmd":"PUSHB","queue":"q","jobs":[{good}],"y":"{long}"}}"#),
            format!(r#"{{"cmd":"PUSHB","reqId":"{long}","queue":"q","jobs":[{good}]}}"#),
        ] {
            let frame = packed(&text);
            let expected = decode(&frame).unwrap_err().error;
            for steps in [1, 1_000_000] {
                assert_eq!(cut(&frame, "PUSHB", steps).unwrap_err(), expected);
            }
        }
        let ids = ids(PIECE_ITEMS + 2);
        for (op, rest) in [
            ("ACKB", r#""results":[1]"#.to_owned()),
            ("ACKB", r#""removeOnCompletes":[true]"#.to_owned()),
            ("ACKB", format!(r#""results":[{ids},1,{ids},1]"#)),
            ("ACKB", r#""results":[1],"tokens":[1]"#.to_owned()),
            ("ACKB", format!(r#""tokens":[{ids},""]"#)),
            ("ACKB", format!(r#""removeOnCompletes":[{many}]"#)),
            ("ExtendLocks", r#""durations":[1]"#.to_owned()),
            ("JobHeartbeatB", r#""tokens":["",1]"#.to_owned()),
        ] {
            let frame = packed(&format!(r#"{{"cmd":"{op}","ids":[{ids}],{rest}}}"#));
            assert_eq!(cut(&frame, op, 64).unwrap_err(), decode(&frame).unwrap_err().error);
        }
        for (bytes, op) in [
            (&b"\x83\xa3cmd\xa5PUSHB\xa4jobs\xdc\x00\x03\xc0"[..], "PUSHB"),
            (b"\x82\xa3cmd\xa5PUSHB\xa4jobs\x92\x81\xa4data", "PUSHB"),
            (b"\x82\xa3cmd\xa4ACKB\xa3ids\x91\xa1a\xc0", "ACKB"),
            (b"\x82\xa3cmd\xa4ACKB\xa3ids\x91\xa1\xff", "ACKB"),
        ] {
            let told = cut(bytes, op, 1).unwrap_err();
            assert_eq!(told, decode(bytes).unwrap_err().error);
        }
    }
}
