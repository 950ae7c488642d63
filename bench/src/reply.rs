//! Replies, read with as little work as a correct answer allows: keys may come in any order and
//! in any number, so every value is stepped over, but only the few that the generator needs are
//! looked at. Nothing is copied and nothing is allocated: a job is a pair of offsets.
//!
//! Most of a pulled job is fields that the generator does not need, and they look alike from job
//! to job. Stepping over them one by one is what would cost most, so the bytes that decide where
//! a value ends (`Tail`) are compared with those of the job before, all at once.

use std::ops::Range;

/// The fields of a reply. Ranges are offsets into the body of its frame.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) ok: bool,
    pub(crate) request: Option<u32>,
    pub(crate) error: Option<Range<usize>>,
    pub(crate) token: Option<Range<usize>>,
    /// The encoded array of tokens, and how many it holds.
    pub(crate) tokens: Option<(Range<usize>, usize)>,
    /// How many ids a push answered.
    pub(crate) ids: usize,
}

/// A reply with all that belongs to it.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) reply: &'a Reply,
    pub(crate) jobs: &'a [PulledJob],
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    /// The text of an error, for people.
    pub(crate) fn error(&self) -> String {
        let range = self.reply.error.clone().unwrap_or_default();
        String::from_utf8_lossy(&self.body[range]).into_owned()
    }
}

/// A pulled job.
#[derive(Default)]
pub(crate) struct PulledJob {
    pub(crate) id: Range<usize>,
    pub(crate) sequence: Option<u32>,
    pub(crate) sent: f64,
}

/// The reply is not what the protocol says; the text names where it went wrong.
#[derive(Debug, PartialEq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// State that is reused from reply to reply: the jobs, and the end of the last job's record.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) jobs: Vec<PulledJob>,
    tail: Tail,
}

/// The end of a job's record, behind the fields that are needed.
#[derive(Default)]
struct Tail {
    pairs: usize,
    bytes: Vec<u8>,
    /// `0xff` where a byte says what comes next or how long it is, 0 within numbers and texts.
    mask: Vec<u8>,
}

impl Tail {
    /// Whether `bytes` begins with `pairs` fields of exactly this layout. Two encodings that agree
    /// in every byte that decides a length have the same length.
    fn fits(&self, pairs: usize, bytes: &[u8]) -> bool {
        let Some(bytes) = bytes.get(..self.bytes.len()) else { return false };
        let decides = bytes.iter().zip(&self.bytes).zip(&self.mask);
        let differs = decides.fold(0, |sum, ((new, old), mask)| sum | ((new ^ old) & mask));
        self.pairs == pairs && differs == 0
    }
}

/// Reads one reply; its jobs go into `scratch`, which is emptied of the last one's first.
pub(crate) fn parse(body: &[u8], scratch: &mut Scratch) -> Result<Reply, Malformed> {
    let Scratch { jobs, tail } = scratch;
    jobs.clear();
    let mut reply = Reply::default();
    let mut cursor = Cursor { bytes: body, at: 0 };
    for _ in 0..cursor.map()? {
        match cursor.key()? {
            b"ok" => reply.ok = cursor.value()? == [0xc3],
            b"reqId" => reply.request = cursor.number()?.map(|number| number as u32),
            b"error" => reply.error = cursor.text()?,
            b"id" => {
                cursor.skip(1)?;
                reply.ids = 1;
            }
            b"ids" => {
                let (_, count) = cursor.array_raw()?;
                reply.ids = count;
            }
            b"job" => {
                if cursor.peek()? == NIL {
                    cursor.skip(1)?;
                } else {
                    jobs.push(cursor.job(tail)?);
                }
            }
            b"jobs" => {
                for _ in 0..cursor.array()? {
                    jobs.push(cursor.job(tail)?);
                }
            }
            b"token" => reply.token = cursor.raw()?,
            b"tokens" => {
                let (range, count) = cursor.array_raw()?;
                reply.tokens = (count > 0).then_some((range, count));
            }
            _ => cursor.skip(1)?,
        }
    }
    Ok(reply)
}

const NIL: u8 = 0xc0;

/// Bytes of a value by its first byte, 0 where more must be read to know.
const LENGTHS: [u8; 256] = lengths();

const fn lengths() -> [u8; 256] {
    let mut table = [0_u8; 256];
    let mut head = 0;
    while head < 256 {
        table[head] = match head {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => 1,
            0xa0..=0xbf => 1 + (head as u8 & 31),
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 | 0xd4 => 3,
            0xd5 => 4,
            0xca | 0xce | 0xd2 => 5,
            0xd6 => 6,
            0xcb | 0xcf | 0xd3 => 9,
            0xd7 => 10,
            0xd8 => 18,
            _ => 0,
        };
        head += 1;
    }
    table
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Result<u8, Malformed> {
        self.bytes.get(self.at).copied().ok_or(Malformed("a reply ends too early"))
    }

    /// Steps over `values` whole values, containers included.
    fn skip(&mut self, values: usize) -> Result<(), Malformed> {
        let mut left = values;
        while left > 0 {
            let head = self.peek()?;
            let short = LENGTHS[head as usize];
            left -= 1;
            if short != 0 {
                self.at += short as usize;
                continue;
            }
            left += self.skip_head(head)?;
        }
        if self.at > self.bytes.len() {
            return Err(Malformed("a value reaches past the end of its reply"));
        }
        Ok(())
    }

    /// Steps over the last fields of a job: at once where they are laid out as those of the last
    /// job were, else one by one, noting the layout.
    fn skip_tail(&mut self, pairs: usize, tail: &mut Tail) -> Result<(), Malformed> {
        if tail.fits(pairs, &self.bytes[self.at..]) {
            self.at += tail.bytes.len();
            return Ok(());
        }
        let start = self.at;
        tail.mask.clear();
        let mut left = 2 * pairs;
        while left > 0 {
            let begin = self.at;
            let head = self.peek()?;
            // Bytes behind the head of a value of a fixed length do not decide where it ends.
            let (inside, deciding) = match head {
                0x80..=0x9f => (self.skip_head(head)?, 1),
                0xdc..=0xdf => {
                    let inside = self.skip_head(head)?;
                    (inside, self.at - begin)
                }
                0xc4 | 0xd9 | 0xc7 => (self.skip_head(head)?, 2),
                0xc5 | 0xda | 0xc8 => (self.skip_head(head)?, 3),
                0xc6 | 0xdb | 0xc9 => (self.skip_head(head)?, 5),
                _ => {
                    self.skip(1)?;
                    (0, 1)
                }
            };
            if self.at > self.bytes.len() {
                return Err(Malformed("a value reaches past the end of its reply"));
            }
            left = left - 1 + inside;
            tail.mask.resize(begin - start + deciding, 0xff);
            tail.mask.resize(self.at - start, 0);
        }
        tail.pairs = pairs;
        tail.bytes.clear();
        tail.bytes.extend_from_slice(&self.bytes[start..self.at]);
        Ok(())
    }

    /// Steps over a head with a length of its own; answers how many values are inside.
    fn skip_head(&mut self, head: u8) -> Result<usize, Malformed> {
        self.at += 1;
        Ok(match head {
            0x80..=0x8f => 2 * (head & 15) as usize,
            0x90..=0x9f => (head & 15) as usize,
            0xc4 | 0xd9 => self.step_by(1, 0)?,
            0xc5 | 0xda => self.step_by(2, 0)?,
            0xc6 | 0xdb => self.step_by(4, 0)?,
            0xc7 => self.step_by(1, 1)?,
            0xc8 => self.step_by(2, 1)?,
            0xc9 => self.step_by(4, 1)?,
            0xdc => self.big_endian(2)?,
            0xdd => self.big_endian(4)?,
            0xde => 2 * self.big_endian(2)?,
            0xdf => 2 * self.big_endian(4)?,
            _ => return Err(Malformed("a reply holds a byte that MessagePack never uses")),
        })
    }

    fn step_by(&mut self, width: usize, extra: usize) -> Result<usize, Malformed> {
        let length = self.big_endian(width)?;
        self.at += length + extra;
        Ok(0)
    }

    fn big_endian(&mut self, width: usize) -> Result<usize, Malformed> {
        let end = self.at + width;
        let bytes =
            self.bytes.get(self.at..end).ok_or(Malformed("a reply ends within a length"))?;
        self.at = end;
        Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | *byte as usize))
    }

    fn map(&mut self) -> Result<usize, Malformed> {
        let head = self.peek()?;
        match head {
            0x80..=0x8f | 0xde | 0xdf => Ok(self.skip_head(head)? / 2),
            _ => Err(Malformed("a map was expected")),
        }
    }

    fn array(&mut self) -> Result<usize, Malformed> {
        let head = self.peek()?;
        match head {
            0x90..=0x9f | 0xdc | 0xdd => self.skip_head(head),
            NIL => {
                self.at += 1;
                Ok(0)
            }
            _ => Err(Malformed("an array was expected")),
        }
    }

    fn array_raw(&mut self) -> Result<(Range<usize>, usize), Malformed> {
        let start = self.at;
        let count = self.array()?;
        self.skip(count)?;
        Ok((start..self.at, count))
    }

    /// The text of a string, without its header; `None` for any other value.
    fn text(&mut self) -> Result<Option<Range<usize>>, Malformed> {
        let head = self.peek()?;
        let header = match head {
            0xa0..=0xbf => 1,
            0xd9 => 2,
            0xda => 3,
            0xdb => 5,
            _ => {
                self.skip(1)?;
                return Ok(None);
            }
        };
        let start = self.at + header;
        self.skip(1)?;
        Ok(Some(start..self.at))
    }

    fn key(&mut self) -> Result<&'a [u8], Malformed> {
        let head = self.peek()?;
        if (0xa0..=0xbf).contains(&head) {
            let start = self.at + 1;
            let end = start + (head & 31) as usize;
            self.at = end;
            return self.bytes.get(start..end).ok_or(Malformed("a reply ends within a key"));
        }
        match self.text()? {
            Some(range) => Ok(&self.bytes[range]),
            None => Ok(b""),
        }
    }

    fn value(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.at;
        self.skip(1)?;
        Ok(&self.bytes[start..self.at])
    }

    /// A whole encoded value, or `None` for nil.
    fn raw(&mut self) -> Result<Option<Range<usize>>, Malformed> {
        let start = self.at;
        self.skip(1)?;
        Ok((self.bytes[start] != NIL).then_some(start..self.at))
    }

    /// A number in any of its encodings: a server may write it narrower than it was sent.
    fn number(&mut self) -> Result<Option<f64>, Malformed> {
        let bytes = self.value()?;
        let tail = &bytes[1..];
        let wide = || tail.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        Ok(Some(match bytes[0] {
            small @ 0..=0x7f => f64::from(small),
            // The generator never sends a negative number, so the sign bits are free.
            0xcc..=0xd3 => wide() as f64,
            0xca => f64::from(f32::from_bits(wide() as u32)),
            0xcb => f64::from_bits(wide()),
            _ => return Ok(None),
        }))
    }

    fn job(&mut self, tail: &mut Tail) -> Result<PulledJob, Malformed> {
        let mut job = PulledJob::default();
        let fields = self.map()?;
        let mut missing = 2;
        for index in 0..fields {
            match self.key()? {
                b"id" => {
                    job.id = self.raw()?.ok_or(Malformed("a job has no id"))?;
                    missing -= 1;
                }
                b"data" => {
                    self.payload(&mut job)?;
                    missing -= 1;
                }
                _ => self.skip(1)?,
            }
            if missing == 0 {
                self.skip_tail(fields - index - 1, tail)?;
                return Ok(job);
            }
        }
        Err(Malformed("a job lacks its id or its data"))
    }

    fn payload(&mut self, job: &mut PulledJob) -> Result<(), Malformed> {
        if !matches!(self.peek()?, 0x80..=0x8f | 0xde | 0xdf) {
            return self.skip(1);
        }
        for _ in 0..self.map()? {
            match self.key()? {
                b"s" => job.sequence = self.number()?.map(|number| number as u32),
                b"t" => job.sent = self.number()?.unwrap_or(0.0),
                _ => self.skip(1)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"jobs":[{"z":[1,{"a":-3.5}],"data":{"p":"xx","t":2.5,"s":70000},"id":"ab"}],
    ///   "tokens":["t1"],"reqId":300,"ok":true}`: an order that no server here uses.
    const UNUSUAL: &[u8] = b"\x84\xa4jobs\x91\x83\xa1z\x92\x01\x81\xa1a\xcb\xc0\x0c\0\0\0\0\0\0\
        \xa4data\x83\xa1p\xa2xx\xa1t\xcb\x40\x04\0\0\0\0\0\0\xa1s\xce\0\x01\x11\x70\xa2id\xa2ab\
        \xa6tokens\xdc\0\x01\xa2t1\xa5reqId\xcd\x01\x2c\xa2ok\xc3";

    #[test]
    fn keys_may_come_in_any_order_and_numbers_in_any_width() {
        let mut scratch = Scratch::default();
        let reply = parse(UNUSUAL, &mut scratch).expect("a sound reply");
        let jobs = scratch.jobs;
        assert!(reply.ok);
        assert_eq!(reply.request, Some(300));
        assert_eq!(jobs.len(), 1);
        assert_eq!(jobs[0].sequence, Some(70_000));
        assert!((jobs[0].sent - 2.5).abs() < f64::EPSILON);
        assert_eq!(&UNUSUAL[jobs[0].id.clone()], b"\xa2ab");
        let (tokens, count) = reply.tokens.expect("tokens");
        assert_eq!((&UNUSUAL[tokens], count), (&b"\xdc\0\x01\xa2t1"[..], 1));
    }

    #[test]
    fn a_reply_cut_anywhere_is_refused_and_never_read_past_its_end() {
        let mut scratch = Scratch::default();
        for end in 0..UNUSUAL.len() {
            assert!(parse(&UNUSUAL[..end], &mut scratch).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn an_error_keeps_its_text() {
        let mut scratch = Scratch::default();
        let body = b"\x83\xa2ok\xc2\xa5error\xa6broken\xa5reqId\x05";
        let reply = parse(body, &mut scratch).expect("a sound reply");
        assert!(!reply.ok);
        assert_eq!(&body[reply.error.expect("a text")], b"broken");
        assert_eq!(reply.request, Some(5));
    }

    /// A reply with jobs whose last fields are the given encodings.
    fn with_tails(tails: &[&[u8]]) -> Vec<u8> {
        let mut body = vec![0x81, 0xa4];
        body.extend_from_slice(b"jobs");
        body.push(0x90 | tails.len() as u8);
        for tail in tails {
            body.extend_from_slice(b"\x84\xa2id\xa1a\xa4data\x81\xa1s\x07\xa1x");
            body.extend_from_slice(tail);
        }
        body
    }

    #[test]
    fn a_tail_is_taken_at_once_only_where_it_is_laid_out_alike() {
        let alike: &[&[u8]] = &[b"\xcd\x01\x02\xa1y\xa2ab", b"\xcd\xa2\xff\xa1y\xa2zz"];
        let longer: &[u8] = b"\xcd\x01\x02\xa1y\xa3abc";
        let shorter: &[u8] = b"\x05\xa1y\xa1a";
        let nested: &[u8] = b"\x92\x81\xa1k\xc0\xd9\x03abc\xa1y\xc4\x02\x81\x81";
        let key: &[u8] = b"\xcd\x01\x02\xa2yy\xa1a";
        let all = [alike[0], alike[1], longer, shorter, nested, nested, key, alike[0], alike[1]];
        let body = with_tails(&all);
        let mut scratch = Scratch::default();
        for _ in 0..2 {
            parse(&body, &mut scratch).expect("a sound reply");
            assert_eq!(scratch.jobs.len(), all.len());
            assert!(scratch.jobs.iter().all(|job| job.sequence == Some(7)));
            assert!(scratch.jobs.iter().all(|job| body[job.id.clone()] == *b"\xa1a"));
        }
        for end in 0..body.len() {
            assert!(parse(&body[..end], &mut scratch).is_err(), "cut at {end}");
        }
    }
}
