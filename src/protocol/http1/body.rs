//! The body of a request, gathered as it comes: by its length, or in chunks.

use super::head::Length;
use super::{BODY_BYTES_MAX, SHORT_BODY_BYTES_MAX, UNREAD_BODY_BYTES_MAX};
use crate::api::error::ErrorKind;

/// Longest line of a chunk's size with its extensions, and longest trailer, in bytes.
const LINE_BYTES_MAX: usize = 1024;

/// Most trailers; they are skipped.
const TRAILERS_MAX: u32 = 100;

/// How long a body may be, and what is said of a longer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    bytes: usize,
    error: ErrorKind,
}

impl Limit {
    /// Limit of the fields of a command with a payload.
    pub const COMMAND: Self = Self { bytes: BODY_BYTES_MAX, error: ErrorKind::CommandBodyTooLarge };

    /// Limit of the fields of a command without a payload.
    pub const SHORT: Self =
        Self { bytes: SHORT_BODY_BYTES_MAX, error: ErrorKind::ShortBodyTooLarge };

    /// Limit of a body that is ignored, as clients send one along with any request.
    pub const UNREAD: Self =
        Self { bytes: UNREAD_BODY_BYTES_MAX, error: ErrorKind::UnreadBodyTooLarge };

    /// Most bytes.
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Refuses a body that is known to be too long before any of it has come.
    pub fn check(self, length: Length) -> Result<(), ErrorKind> {
        match length {
            Length::Bytes(bytes) if bytes > self.bytes as u64 => Err(self.error),
            _ => Ok(()),
        }
    }
}

/// A body on its way.
#[derive(Debug)]
pub struct Body {
    bytes: Vec<u8>,
    /// How many have come.
    length: usize,
    /// Whether they are kept, or only read past.
    keeps: bool,
    limit: Limit,
    part: Part,
}

/// Part of the body that comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// The rest of the body, in bytes.
    Rest(usize),
    /// The line with the size of a chunk.
    Size,
    /// The rest of a chunk, in bytes.
    Chunk(usize),
    /// The end of the line behind a chunk.
    ChunkEnd,
    /// Trailers, so many by now, up to an empty line.
    Trailers(u32),
    /// The body is complete.
    Over,
}

impl Body {
    /// A body of which nothing has come. Its memory grows with what comes, not with what is announced, and stays empty
    /// where it is only read past, to find what follows it.
    pub fn new(length: Length, keeps: bool, limit: Limit) -> Self {
        let part = match length {
            Length::Bytes(0) => Part::Over,
            Length::Bytes(bytes) => Part::Rest(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Length::Chunked => Part::Size,
        };
        Self { bytes: Vec::new(), length: 0, keeps, limit, part }
    }

    /// Whether all of it has come.
    pub fn is_whole(&self) -> bool {
        self.part == Part::Over
    }

    /// Memory that it takes by now.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes of the body so far.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Takes what of `input` belongs to the body, and says how many bytes that was. Half a line is
    /// left for the next time.
    pub fn take(&mut self, input: &[u8]) -> Result<usize, ErrorKind> {
        let mut at = 0;
        loop {
            let left = &input[at..];
            match self.part {
                Part::Over => return Ok(at),
                Part::Rest(bytes) | Part::Chunk(bytes) => {
                    let taken = bytes.min(left.len());
                    if self.keeps {
                        self.bytes.extend_from_slice(&left[..taken]);
                    }
                    self.length += taken;
                    at += taken;
                    let rest = bytes - taken;
                    self.part = match (self.part, rest) {
                        (Part::Rest(_), 0) => Part::Over,
                        (Part::Rest(_), _) => Part::Rest(rest),
                        (_, 0) => Part::ChunkEnd,
                        _ => Part::Chunk(rest),
                    };
                    if rest > 0 {
                        return Ok(at);
                    }
                }
                Part::Size | Part::ChunkEnd | Part::Trailers(_) => {
                    let Some(line) = line(left)? else { return Ok(at) };
                    at += line.len() + 2;
                    self.part = self.after_line(line)?;
                }
            }
        }
    }

    fn after_line(&self, line: &[u8]) -> Result<Part, ErrorKind> {
        match self.part {
            Part::Size => match size(line)? {
                0 => Ok(Part::Trailers(0)),
                bytes if self.length + bytes > self.limit.bytes => Err(self.limit.error),
                bytes => Ok(Part::Chunk(bytes)),
            },
            Part::ChunkEnd if line.is_empty() => Ok(Part::Size),
            Part::Trailers(_) if line.is_empty() => Ok(Part::Over),
            Part::Trailers(count) if count < TRAILERS_MAX && is_field(line) => {
                Ok(Part::Trailers(count + 1))
            }
            _ => Err(ErrorKind::Chunks),
        }
    }
}

/// The line at the front, without its end; `None` if that has not come.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, ErrorKind> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    match memchr::memchr(b'\n', window) {
        Some(at) if at > 0 && bytes[at - 1] == b'\r' && !bytes[..at - 1].contains(&b'\r') => {
            Ok(Some(&bytes[..at - 1]))
        }
        None if bytes.len() < LINE_BYTES_MAX => Ok(None),
        _ => Err(ErrorKind::Chunks),
    }
}

/// The size of a chunk: hexadecimal digits, then extensions, which are ignored.
fn size(line: &[u8]) -> Result<usize, ErrorKind> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let behind = line[digits..].trim_ascii_start();
    let ends =
        behind.first().is_none_or(|byte| *byte == b';') && line[digits..].first() != Some(&b'\t');
    // Sixteen digits would overflow; a size that needs eight is refused for itself.
    if !(1..=15).contains(&digits) || !ends || behind.iter().any(u8::is_ascii_control) {
        return Err(ErrorKind::Chunks);
    }
    let value = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as usize;
    Ok(line[..digits].iter().fold(0, |sum, &byte| sum << 4 | value(byte)))
}

/// A name, a colon and a value.
fn is_field(line: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_graphic() && *byte != b':';
    let name = line.iter().take_while(|byte| is_name(byte)).count();
    name > 0
        && line.get(name) == Some(&b':')
        && line[name..].iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control())
}
