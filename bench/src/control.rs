//! The few commands around a run, one at a time on a connection of their own: who the server is,
//! the token, how many jobs a queue holds, and the cleaning up.

use std::io::{Read, Write};
use std::time::Duration;

use rmp::encode as mp;

use crate::socket::{self, Socket};

/// A blocking connection for one command after the other.
pub(crate) struct Control {
    socket: Socket,
}

/// A field of a command.
pub(crate) enum Field<'a> {
    Text(&'a str, &'a str),
    Number(&'a str, u32),
}

/// Authenticates; the socket may then go to the event loop.
pub(crate) fn connect(socket: Socket, token: Option<&str>) -> Result<Socket, String> {
    // Obliterate of many millions of jobs takes its time; a server that is gone does not.
    let prepared = socket.set_patience(Some(Duration::from_mins(2)));
    prepared.map_err(|error| format!("cannot set up a socket: {error}"))?;
    let mut control = Control { socket };
    if let Some(token) = token {
        control.call("Auth", &[Field::Text("token", token)])?;
    }
    Ok(control.socket)
}

impl Control {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket }
    }

    /// Sends a command and answers its reply, which must be `ok`.
    pub(crate) fn call(&mut self, cmd: &str, fields: &[Field]) -> Result<Vec<u8>, String> {
        let frame = encode(cmd, fields);
        let body = self.exchange(&frame).map_err(|error| match socket::lost(cmd, &error) {
            closed if closed == socket::CLOSED => format!("{closed} at {cmd}"),
            text => text,
        })?;
        let reply = crate::reply::parse(&body, &mut crate::reply::Scratch::default())
            .map_err(|e| format!("{cmd}: {}", e.0))?;
        if reply.ok {
            return Ok(body);
        }
        let text = reply.error.map(|range| String::from_utf8_lossy(&body[range]).into_owned());
        Err(format!("{cmd}: {}", text.unwrap_or_else(|| "refused without a text".to_owned())))
    }

    /// The server's name and version, as its Hello gives them.
    pub(crate) fn server(&mut self) -> Result<String, String> {
        let body = self.call("Hello", &[Field::Number("protocolVersion", 2)])?;
        let text = |key| find(&body, key).and_then(as_text).unwrap_or("?").to_owned();
        Ok(format!("{} {}", text("server"), text("version")))
    }

    pub(crate) fn count(&mut self, queue: &str) -> Result<u64, String> {
        let body = self.call("Count", &[Field::Text("queue", queue)])?;
        find(&body, "count").and_then(as_number).ok_or_else(|| "Count: no count".to_owned())
    }

    /// How many shards the server says that it has, if it knows the command.
    pub(crate) fn shards(&mut self) -> Option<usize> {
        let body = self.call("Shards", &[]).ok()?;
        let count = body.windows(6).filter(|window| window == b"\xa5shard").count();
        (count > 0).then_some(count)
    }

    /// The first of some queues that the server has.
    pub(crate) fn existing<'q>(
        &mut self,
        queues: &'q [String],
    ) -> Result<Option<&'q String>, String> {
        let body = self.call("ListQueues", &[])?;
        Ok(queues.iter().find(|queue| holds_text(&body, queue)))
    }

    /// The process that serves this connection, if it is on this machine.
    pub(crate) fn process(&self) -> Option<u32> {
        crate::peer::process_of(&self.socket)
    }

    fn exchange(&mut self, frame: &[u8]) -> std::io::Result<Vec<u8>> {
        self.socket.write_all(frame)?;
        let mut head = [0; 4];
        self.socket.read_exact(&mut head)?;
        let mut body = vec![0; (u32::from_be_bytes(head) as usize).min(64 << 20)];
        self.socket.read_exact(&mut body)?;
        Ok(body)
    }
}

fn encode(cmd: &str, fields: &[Field]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    let out = &mut frame;
    let text = |out: &mut Vec<u8>, value: &str| {
        mp::write_str(out, value).expect("a Vec takes every write");
    };
    mp::write_map_len(out, fields.len() as u32 + 1).expect("a Vec takes every write");
    text(out, "cmd");
    text(out, cmd);
    for field in fields {
        match field {
            Field::Text(key, value) => {
                text(out, key);
                text(out, value);
            }
            Field::Number(key, value) => {
                text(out, key);
                mp::write_uint(out, u64::from(*value)).expect("a Vec takes every write");
            }
        }
    }
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// The bytes behind a key of the reply. Good enough for the flat replies that are asked here.
fn find<'a>(body: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut needle = vec![0xa0 | key.len() as u8];
    needle.extend_from_slice(key.as_bytes());
    let at = body.windows(needle.len()).position(|window| window == needle)?;
    body.get(at + needle.len()..)
}

/// Whether a text is among those of the reply.
fn holds_text(body: &[u8], text: &str) -> bool {
    let mut needle = Vec::new();
    mp::write_str(&mut needle, text).expect("a Vec takes every write");
    body.windows(needle.len()).any(|window| window == needle)
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    let length = match *bytes.first()? {
        head @ 0xa0..=0xbf => (head & 31) as usize,
        _ => return None,
    };
    std::str::from_utf8(bytes.get(1..=length)?).ok()
}

fn as_number(bytes: &[u8]) -> Option<u64> {
    let width = match *bytes.first()? {
        small @ 0..=0x7f => return Some(u64::from(small)),
        0xcc => 1,
        0xcd => 2,
        0xce | 0xd2 => 4,
        0xcf | 0xd3 => 8,
        0xcb => {
            let float = f64::from_be_bytes(bytes.get(1..9)?.try_into().ok()?);
            return Some(float as u64);
        }
        _ => return None,
    };
    Some(bytes.get(1..=width)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}
