//! Streams of events: an SSE reader and a WebSocket client that share no code with the server.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json};

use super::DEADLINE;
use super::codes::check_code;

/// Sends a GET and reads the head of the answer.
fn request(port: u16, path: &str, headers: &str) -> (BufReader<TcpStream>, String) {
    try_request(port, path, headers).unwrap()
}

/// As above, of a server that may be killed meanwhile.
fn try_request(
    port: u16,
    path: &str,
    headers: &str,
) -> std::io::Result<(BufReader<TcpStream>, String)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(DEADLINE))?;
    socket.set_write_timeout(Some(DEADLINE))?;
    let text = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n");
    socket.write_all(text.as_bytes())?;
    let mut socket = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok((socket, head))
}

/// The rest of an answer that is no stream.
fn body(mut socket: BufReader<TcpStream>, head: String) -> String {
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    socket.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

/// An SSE stream.
pub(crate) struct Sse {
    socket: BufReader<TcpStream>,
    pub(crate) head: String,
    pub(crate) connected: Json,
    /// Comments so far.
    pub(crate) comments: usize,
    /// Whether messages may have other fields than their data.
    has_fields: bool,
    /// The last id, and what the last message was called.
    pub(crate) id: String,
    pub(crate) event: String,
    /// When a browser is to connect again, if that was said.
    pub(crate) retry_ms: Option<u32>,
}

impl Sse {
    pub(crate) fn open(port: u16, path: &str) -> Self {
        Self::open_with(port, path, "").unwrap_or_else(|answer| panic!("{answer}"))
    }

    /// With header lines. An answer that is no stream comes back whole.
    pub(crate) fn open_with(port: u16, path: &str, headers: &str) -> Result<Self, String> {
        let (socket, head) = request(port, path, headers);
        if !head.starts_with("HTTP/1.1 200 ") {
            return Err(body(socket, head));
        }
        Ok(Self::over(socket, head, false))
    }

    /// Opens a stream that asks for ids or names: the fields of its messages are read as a browser reads them.
    pub(crate) fn open_rich(port: u16, path: &str, headers: &str) -> Self {
        let (socket, head) = request(port, path, headers);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Self::over(socket, head, true)
    }

    fn over(socket: BufReader<TcpStream>, head: String, has_fields: bool) -> Self {
        let (connected, id, event) = (Json::Null, String::new(), String::new());
        let (comments, retry_ms) = (0, None);
        let mut stream =
            Self { socket, head, connected, comments, has_fields, id, event, retry_ms };
        stream.connected = stream.next();
        assert_eq!(stream.connected["connected"], true);
        stream
    }

    fn take_field(&mut self, line: &str) -> bool {
        let Some((name, value)) = line.split_once(": ").filter(|_| self.has_fields) else {
            return false;
        };
        match name {
            "id" => self.id = value.to_owned(),
            "event" => self.event = value.to_owned(),
            "retry" => self.retry_ms = Some(value.parse().unwrap_or_else(|_| panic!("{line}"))),
            _ => return false,
        }
        true
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.socket.get_ref()
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Json {
        self.try_next().unwrap().expect("the stream goes on")
    }

    /// The next message, or `None` if the stream has ended.
    pub(crate) fn try_next(&mut self) -> std::io::Result<Option<Json>> {
        let mut data = None;
        self.event.clear();
        loop {
            let mut line = String::new();
            if self.socket.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end_matches('\n') {
                // Without data it is what follows a comment.
                "" if data.is_none() => {}
                "" => return Ok(data),
                line if line.starts_with(':') => self.comments += 1,
                line if self.take_field(line) => {}
                line => {
                    let text = line.strip_prefix("data: ").unwrap_or_else(|| panic!("{line:?}"));
                    assert!(data.is_none(), "a message of one line");
                    data = Some(serde_json::from_str(text).unwrap());
                }
            }
        }
    }

    /// Waits for a comment.
    pub(crate) fn await_comment(&mut self) {
        let before = self.comments;
        let mut line = String::new();
        while self.comments == before {
            line.clear();
            assert!(self.socket.read_line(&mut line).unwrap() > 0, "the stream has ended");
            self.comments += usize::from(line.starts_with(':'));
        }
    }
}

/// A frame of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const CONTINUED: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

pub(crate) const UPGRADE: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A WebSocket connection.
pub(crate) struct WebSocket {
    pub(crate) socket: BufReader<TcpStream>,
    pub(crate) head: String,
    next_request: u64,
    /// Events that came while a reply was waited for.
    events: VecDeque<Json>,
    /// Whether pings are answered.
    pub(crate) polite: bool,
}

impl WebSocket {
    pub(crate) fn open(port: u16, path: &str) -> Self {
        Self::open_with(port, path, UPGRADE).unwrap_or_else(|answer| panic!("{answer}"))
    }

    pub(crate) fn open_with(port: u16, path: &str, headers: &str) -> Result<Self, String> {
        let (socket, head) = request(port, path, headers);
        if !head.starts_with("HTTP/1.1 101 ") {
            return Err(body(socket, head));
        }
        Ok(Self::over(socket, head))
    }

    /// As above, to a server that may be killed meanwhile.
    pub(crate) fn try_open(port: u16, path: &str, headers: &str) -> std::io::Result<Self> {
        let (socket, head) = try_request(port, path, headers)?;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        Ok(Self::over(socket, head))
    }

    fn over(socket: BufReader<TcpStream>, head: String) -> Self {
        Self { socket, head, next_request: 0, events: VecDeque::new(), polite: true }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.get_mut().write_all(bytes)
    }

    pub(crate) fn send_frame(&mut self, last: bool, opcode: u8, payload: &[u8]) {
        self.send_bytes(&client_frame(last, opcode, payload)).unwrap();
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.send_frame(true, TEXT, text.as_bytes());
    }

    /// The next frame, whatever it is.
    pub(crate) fn recv_frame(&mut self) -> std::io::Result<Frame> {
        let mut head = [0; 2];
        self.socket.read_exact(&mut head)?;
        assert_eq!(head[0] & 0xf0, 0x80, "the server sends whole messages, no reserved bits");
        assert_eq!(head[1] & 0x80, 0, "the server does not mask");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.socket.read_exact(&mut length)?;
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.socket.read_exact(&mut length)?;
                u64::from_be_bytes(length)
            }
            length => u64::from(length),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.socket.read_exact(&mut payload)?;
        Ok(Frame { opcode: head[0] & 15, payload })
    }

    /// The next message. Pings before it are answered.
    pub(crate) fn recv(&mut self) -> Json {
        loop {
            let frame = self.recv_frame().unwrap();
            match frame.opcode {
                TEXT => {
                    let message = serde_json::from_slice(&frame.payload).unwrap();
                    check_code(&message);
                    return message;
                }
                PING if self.polite => self.send_frame(true, PONG, &frame.payload),
                PING | PONG => {}
                _ => panic!("no message: {frame:?}"),
            }
        }
    }

    /// The code with which the server closes, once it has closed.
    pub(crate) fn closed_with(&mut self) -> Option<u16> {
        loop {
            let frame = self.recv_frame().unwrap();
            if frame.opcode == CLOSE {
                let mut rest = Vec::new();
                self.socket.read_to_end(&mut rest).unwrap();
                assert!(rest.is_empty(), "nothing follows the close");
                return frame.payload.first_chunk().map(|code| u16::from_be_bytes(*code));
            }
        }
    }

    /// Sends a command without waiting; answers its `reqId`.
    pub(crate) fn send(&mut self, cmd: &str, fields: Json) -> String {
        self.next_request += 1;
        let request = format!("w{}", self.next_request);
        let mut command = match fields {
            Json::Object(fields) => fields,
            _ => Map::new(),
        };
        command.insert("cmd".to_owned(), cmd.into());
        command.insert("reqId".to_owned(), request.clone().into());
        self.send_text(&Json::Object(command).to_string());
        request
    }

    /// Sends a command and returns its reply.
    pub(crate) fn call(&mut self, cmd: &str, fields: Json) -> Json {
        let request = self.send(cmd, fields);
        loop {
            let message = self.recv();
            if message["reqId"] == request.as_str() {
                return message;
            }
            assert!(message.get("eventType").is_some(), "a reply to nothing: {message}");
            self.events.push_back(message);
        }
    }

    pub(crate) fn ok(&mut self, cmd: &str, fields: Json) -> Json {
        let reply = self.call(cmd, fields);
        assert_eq!(reply["ok"], true, "{cmd} answered {reply}");
        reply
    }

    pub(crate) fn refused(&mut self, cmd: &str, fields: Json) -> String {
        let reply = self.call(cmd, fields);
        assert_eq!(reply["ok"], false, "{cmd} answered {reply}");
        reply["error"].as_str().unwrap().to_owned()
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Json {
        match self.events.pop_front() {
            Some(event) => event,
            None => {
                let event = self.recv();
                assert!(event.get("eventType").is_some(), "no event: {event}");
                event
            }
        }
    }

    /// Whether nothing comes for so long.
    pub(crate) fn is_silent_for(&mut self, time: Duration) -> bool {
        assert!(self.events.is_empty() && self.socket.buffer().is_empty());
        let end = Instant::now() + time;
        let socket = self.socket.get_mut();
        socket.set_read_timeout(Some(time)).unwrap();
        let came = loop {
            match socket.peek(&mut [0]) {
                // This process was stopped, and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                came => break came,
            }
        };
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let silent = came.is_err_and(|error| {
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        });
        silent && Instant::now() >= end
    }
}

/// A frame as a client sends it, masked.
pub(crate) fn client_frame(last: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x12, 0xa5, 0x00, 0xff];
    let mut bytes = vec![opcode | if last { 0x80 } else { 0 }];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length @ 126..65_536 => {
            bytes.push(0xfe);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0xff);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}
