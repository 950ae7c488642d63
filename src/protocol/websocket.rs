//! WebSocket (RFC 6455) without a socket: the handshake, the frames of a client, and what goes back.
//!
//! Heads of frames are read and written by `tungstenite`; the rules for sequences of frames are here,
//! since its own state machine wants buffers for each connection, and an idle one shall hold none. What
//! the messages say is not known here.

use std::io::Cursor;

use crate::api::error::ErrorKind;
use data_encoding::BASE64;
use ring::digest;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// Largest message, in one frame or in several, and as much as the other surfaces take.
pub const MESSAGE_BYTES_MAX: usize = super::frame::FRAME_BYTES_MAX;

/// Largest payload of a frame that is no part of a message.
const CONTROL_BYTES_MAX: usize = 125;

/// Constant of RFC 6455 that is appended to a client's key.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Bytes of a client's key, as text and decoded.
const KEY_CHARS: usize = 24;
const KEY_BYTES: usize = 16;

/// Why a connection is closed, as told to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closing {
    /// The code, out of RFC 6455, section 7.4.1.
    pub code: u16,
    /// For people; at most 123 bytes.
    pub reason: &'static str,
}

impl Closing {
    /// The server stops.
    pub const GOING_AWAY: Self = Self { code: 1001, reason: "the server stops" };
    /// A message in binary.
    pub const NOT_TEXT: Self = Self { code: 1003, reason: "messages must be text" };
    /// A text that is not UTF-8.
    pub const NOT_UTF8: Self = Self { code: 1007, reason: "a text is not valid UTF-8" };
    /// A message beyond [`MESSAGE_BYTES_MAX`].
    pub const TOO_LARGE: Self = Self { code: 1009, reason: "a message exceeds 64 MB" };
    /// A message beyond what its command can need.
    pub const TOO_LONG: Self =
        Self { code: 1009, reason: "a message is longer than its command can be" };
    /// All messages on their way take too much together.
    pub const NO_ROOM: Self =
        Self { code: 1013, reason: "the messages of all connections are too large together" };
    /// A client that has lost its right sends more than it may.
    pub const STRANGER: Self = Self { code: 1008, reason: "Not authenticated" };
    /// Half a message, and no more of it.
    pub const TOO_SLOW: Self = Self { code: 1008, reason: "a message did not come in time" };
    /// Two pings in a row without an answer.
    pub const SILENT: Self = Self { code: 1001, reason: "pings were not answered" };

    const fn protocol(reason: &'static str) -> Self {
        Self { code: 1002, reason }
    }
}

/// The headers that say what is spoken to a client that speaks something else.
pub const SPOKEN: &str = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";

/// Returns the value of `Sec-WebSocket-Accept`, which proves that the client's key was read. `headers` gives the values
/// of a header by its name in lower case, `minor` is the minor version of HTTP. A list may stand in several lines,
/// which are one list; any other header stands once.
pub fn accept_key<'a, V: Iterator<Item = &'a [u8]>>(
    minor: u8,
    headers: impl Fn(&'static str) -> V,
) -> Result<String, ErrorKind> {
    if minor == 0 {
        return Err(ErrorKind::UpgradeHttp11);
    }
    if !headers("upgrade").any(|value| has_word(value, b"websocket")) {
        return Err(ErrorKind::UpgradeWebSocket);
    }
    if !headers("connection").any(|value| has_word(value, b"upgrade")) {
        return Err(ErrorKind::ConnectionUpgrade);
    }
    let mut versions = headers("sec-websocket-version");
    match (versions.next(), versions.next()) {
        (_, Some(_)) => return Err(ErrorKind::WebSocketVersionOnce),
        (Some(b"13"), None) => {}
        (Some(_), None) => return Err(ErrorKind::WebSocketVersion),
        (None, None) => return Err(ErrorKind::WebSocketVersionAbsent),
    }
    let mut keys = headers("sec-websocket-key");
    let key = keys.next().unwrap_or_default();
    if keys.next().is_some() {
        return Err(ErrorKind::WebSocketKeyOnce);
    }
    let decoded = BASE64.decode(key);
    if key.len() != KEY_CHARS || !decoded.is_ok_and(|bytes| bytes.len() == KEY_BYTES) {
        return Err(ErrorKind::WebSocketKey);
    }
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(KEY_SUFFIX);
    Ok(BASE64.encode(context.finish().as_ref()))
}

/// Whether a list of words has this one, in any case.
fn has_word(value: &[u8], word: &[u8]) -> bool {
    value.split(|&byte| byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(word))
}

/// The answer that ends HTTP on the connection. No extension is offered, compression least of all: it
/// would cost memory for every connection and let secrets be guessed. `headers` are the header lines
/// that every answer carries, each with its CRLF.
pub fn switch(out: &mut Vec<u8>, accept: &str, headers: &str) {
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
    );
    out.extend_from_slice(format!("Sec-WebSocket-Accept: {accept}\r\n{headers}\r\n").as_bytes());
}

/// The purpose of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The beginning of a message, or all of it: a text, or not.
    First { text: bool },
    /// A further piece of a message.
    Next,
    /// The peer wants to end.
    Close,
    /// The peer wants to see its bytes again.
    Ping,
    /// The peer has seen a ping.
    Pong,
}

/// A frame of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub kind: Kind,
    /// Whether it is the last of its message.
    pub last: bool,
    /// The payload, still masked.
    pub masked: &'a [u8],
    /// How it is masked.
    pub mask: [u8; 4],
}

impl Frame<'_> {
    /// Whether it is one of those that may stand within a message.
    pub fn is_control(&self) -> bool {
        matches!(self.kind, Kind::Close | Kind::Ping | Kind::Pong)
    }

    /// Appends the payload as it was meant.
    pub fn unmask(&self, out: &mut Vec<u8>) {
        unmask(self.masked, self.mask, out);
    }
}

/// Looks for a frame at the front of `bytes` and says how many it takes; `None` if its end has not
/// come. `open` is how many bytes of a message have come in frames before it, if one is open.
pub fn split(bytes: &[u8], open: Option<usize>) -> Result<Option<(Frame<'_>, usize)>, Closing> {
    let mut cursor = Cursor::new(bytes);
    let Ok(parsed) = FrameHeader::parse(&mut cursor) else {
        return Err(Closing::protocol("unknown kind of frame"));
    };
    let Some((head, length)) = parsed else { return Ok(None) };
    if head.rsv1 || head.rsv2 || head.rsv3 {
        return Err(Closing::protocol("reserved bits are set"));
    }
    let Some(mask) = head.mask else {
        return Err(Closing::protocol("frames of a client must be masked"));
    };
    let (kind, room) = match (head.opcode, open) {
        (OpCode::Data(Data::Text), None) => (Kind::First { text: true }, MESSAGE_BYTES_MAX),
        (OpCode::Data(Data::Binary), None) => (Kind::First { text: false }, MESSAGE_BYTES_MAX),
        (OpCode::Data(Data::Continue), Some(before)) => (Kind::Next, MESSAGE_BYTES_MAX - before),
        (OpCode::Data(Data::Continue), None) => {
            return Err(Closing::protocol("a piece of no message"));
        }
        (OpCode::Data(_), _) => return Err(Closing::protocol("a message within a message")),
        (OpCode::Control(_), _) if !head.is_final || length > CONTROL_BYTES_MAX as u64 => {
            return Err(Closing::protocol("a control frame must be small and whole"));
        }
        (OpCode::Control(Control::Ping), _) => (Kind::Ping, CONTROL_BYTES_MAX),
        (OpCode::Control(Control::Pong), _) => (Kind::Pong, CONTROL_BYTES_MAX),
        (OpCode::Control(_), _) => (Kind::Close, CONTROL_BYTES_MAX),
    };
    if length > room as u64 {
        return Err(Closing::TOO_LARGE);
    }
    // The position is within the bytes, and the length within the largest message.
    let (start, end) = (cursor.position() as usize, cursor.position() as usize + length as usize);
    let Some(masked) = bytes.get(start..end) else { return Ok(None) };
    Ok(Some((Frame { kind, last: head.is_final, masked, mask }, end)))
}

/// A frame of a message whose head is there and whose payload is taken as it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Whether a message begins with it, and whether that is a text.
    pub first: Option<bool>,
    /// Whether it is the last of its message.
    pub last: bool,
    /// Bytes of the payload that are still to come.
    pub left: usize,
    mask: [u8; 4],
}

impl Begun {
    /// The frame at the front of `bytes`, of which [`split`] has found that its end has not come, and the length of its
    /// head. None if it is no piece of a message.
    pub fn of(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut cursor = Cursor::new(bytes);
        let (head, left) = FrameHeader::parse(&mut cursor).ok()??;
        let (OpCode::Data(kind), Some(mask)) = (head.opcode, head.mask) else { return None };
        let first = (kind != Data::Continue).then_some(kind == Data::Text);
        let begun = Self { first, last: head.is_final, left: left as usize, mask };
        Some((begun, cursor.position() as usize))
    }

    /// Appends what of `bytes` belongs to it, as it was meant, and says how many bytes that was.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let taken = bytes.len().min(self.left);
        unmask(&bytes[..taken], self.mask, out);
        self.left -= taken;
        self.mask.rotate_left(taken % 4);
        taken
    }
}

fn unmask(masked: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(masked);
    let (whole, rest) = out[start..].as_chunks_mut::<4>();
    for chunk in whole {
        *chunk = (u32::from_ne_bytes(*chunk) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
    }
    rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

/// How many bytes the frame at the front of `bytes` announces, once its head is there.
pub fn announced(bytes: &[u8]) -> u64 {
    let head = FrameHeader::parse(&mut Cursor::new(bytes));
    head.ok().flatten().map_or(0, |(_, length)| length)
}

/// Appends what has come of the payload of the frame at the front of `bytes`, as it was meant, and no more than so many
/// bytes of it. A frame that is no data has none.
pub fn unmask_begun(bytes: &[u8], bytes_max: usize, out: &mut Vec<u8>) {
    let mut cursor = Cursor::new(bytes);
    let Ok(Some((head, _))) = FrameHeader::parse(&mut cursor) else { return };
    let (OpCode::Data(_), Some(mask)) = (head.opcode, head.mask) else { return };
    let masked = bytes.get(cursor.position() as usize..).unwrap_or_default();
    let masked = &masked[..masked.len().min(bytes_max)];
    let frame = Frame { kind: Kind::Next, last: head.is_final, masked, mask };
    frame.unmask(out);
}

/// The answer to a peer's wish to end: its own code, or what is wrong with its wish. `None` if it gave
/// no code.
pub fn answer_to_close(payload: &[u8]) -> Option<Closing> {
    let (code, reason) = match payload.split_first_chunk() {
        Some((code, reason)) => (u16::from_be_bytes(*code), reason),
        None if payload.is_empty() => return None,
        None => return Some(Closing::protocol("half a close code")),
    };
    if !CloseCode::from(code).is_allowed() {
        return Some(Closing::protocol("no such close code"));
    }
    if std::str::from_utf8(reason).is_err() {
        return Some(Closing::NOT_UTF8);
    }
    Some(Closing { code, reason: "" })
}

/// The head of a frame for a client.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; 10],
    length: usize,
}

impl Head {
    /// Of a frame that is a whole message, or a control frame.
    fn of(opcode: OpCode, payload_bytes: usize) -> Self {
        let mut head = Self { bytes: [0; 10], length: 0 };
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        head.length = header.len(payload_bytes as u64);
        // Ten bytes are room for the longest head without a mask.
        let _ = header.format(payload_bytes as u64, &mut &mut head.bytes[..]);
        head
    }

    /// Of a text of so many bytes.
    pub fn of_text(text_bytes: usize) -> Self {
        Self::of(OpCode::Data(Data::Text), text_bytes)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Appends a message.
pub fn message(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(Head::of_text(text.len()).bytes());
    out.extend_from_slice(text);
}

/// Appends a ping without a payload.
pub fn ping(out: &mut Vec<u8>) {
    out.extend_from_slice(Head::of(OpCode::Control(Control::Ping), 0).bytes());
}

/// Appends the answer to a ping.
pub fn pong(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(Head::of(OpCode::Control(Control::Pong), payload.len()).bytes());
    out.extend_from_slice(payload);
}

/// Appends the last frame; `None` gives no reason.
pub fn close(out: &mut Vec<u8>, closing: Option<Closing>) {
    let bytes = closing.map_or(0, |closing| 2 + closing.reason.len());
    out.extend_from_slice(Head::of(OpCode::Control(Control::Close), bytes).bytes());
    if let Some(Closing { code, reason }) = closing {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(reason.as_bytes());
    }
}
