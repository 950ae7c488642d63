//! Server-sent events, read from a wire: a GET whose answer goes on. Knows
//! the framing, not what an event says.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use corq_io::client_connect::Wire;

use super::failure::{Failure, Refusal};
use super::input;
use super::target::Target;
use super::value::Value;
use crate::api::error;

/// A server that has said nothing for so long is gone: it says something every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// Most bytes of an answer's head, and of the body of a refusal.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of an answer.
const HEADERS_MAX: usize = 64;
/// Bytes read at a time.
const READ_BYTES: usize = 16 * 1024;

/// An open stream of events.
#[derive(Debug)]
pub struct Stream {
    socket: Wire,
    address: String,
    /// Bytes as they came.
    raw: Vec<u8>,
    body: Body,
    /// Bytes of the body that are no whole event yet.
    text: Vec<u8>,
    /// The first message.
    pub hello: Vec<u8>,
    /// The id of the last event, if the stream has ids.
    pub last_id: Option<String>,
}

/// How the body travels.
#[derive(Debug)]
enum Body {
    /// As it is, to the end of the connection.
    Plain,
    /// In chunks, of the present one so many bytes are left, the line end behind it included.
    Chunked { left: usize },
    /// The body has ended.
    Ended,
}

impl Stream {
    /// Subscribes to what a path says, from behind an event if there is one, and waits until the subscription stands.
    pub fn open(target: &Target, path: &str, last_id: Option<&str>) -> Result<Self, Failure> {
        let place = target.http_place();
        let address = place.to_string();
        let socket = target.dial(&place, SILENCE, |error| {
            format!(
                "cannot reach the events of a server at {address} ({error}): say which port its \
                 HTTP_PORT is with --http-port (CORQ_HTTP_PORT), or which path with --http-socket"
            )
        })?;
        let (raw, body, text, hello) = (Vec::new(), Body::Plain, Vec::new(), Vec::new());
        let last = last_id.map(str::to_owned);
        let mut stream = Self { socket, address, raw, body, text, hello, last_id: last };
        let last = last_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        stream.request(target, path, &last)?;
        // The first message says that the subscription stands.
        stream.hello = stream.next()?.ok_or_else(|| stream.lost("it ended"))?;
        Ok(stream)
    }

    fn request(&mut self, target: &Target, path: &str, last: &str) -> Result<(), Failure> {
        let host = target.http_host();
        let lost = |error: std::io::Error| Failure::failed("the events were lost", &error);
        let token = target.token.as_ref();
        let token = token.map(|it| format!("Authorization: Bearer {it}\r\n")).unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n{token}{last}\r\n",
        );
        self.socket.write_all(request.as_bytes()).map_err(lost)?;
        loop {
            if self.head()? {
                return Ok(());
            }
            if self.raw.len() > HEAD_BYTES_MAX || !self.read()? {
                return Err(self.stranger());
            }
        }
    }

    /// Takes the head of the answer off the front, if it is there. A refusal is an error.
    fn head(&mut self) -> Result<bool, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut answer = httparse::Response::new(&mut headers);
        let length = match answer.parse(&self.raw) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(false),
            Err(_) => return Err(self.stranger()),
        };
        let status = answer.code.unwrap_or_default();
        let mut named = answer.headers.iter().filter(|it| {
            it.name.eq_ignore_ascii_case("transfer-encoding")
                && it.value.eq_ignore_ascii_case(b"chunked")
        });
        if named.next().is_some() {
            self.body = Body::Chunked { left: 0 };
        }
        self.raw.drain(..length);
        if status == 200 { Ok(true) } else { Err(self.refusal(status)) }
    }

    /// The server's answer if it sent no events.
    fn refusal(&mut self, status: u16) -> Failure {
        // The body may come behind the head; a second without it has to do.
        let patience = self.socket.set_silence(Duration::from_secs(1));
        while patience.is_ok() && !self.text.ends_with(b"}") && self.text.len() < HEAD_BYTES_MAX {
            self.unpack();
            if self.text.ends_with(b"}") || !self.read().unwrap_or(false) {
                break;
            }
        }
        let said = input::encode(&self.text).unwrap_or_default();
        let said = Value::of(&said).ok().filter(|said| said.get("error").text().is_some());
        match (status, said) {
            (401, _) => Failure::refused(error::ErrorKind::NotAuthenticated.into()),
            (_, Some(said)) => Failure::refused(Refusal::of(said)),
            _ => Failure::Failed(format!(
                "the server at {} answered with status {status}: --http-port must be its HTTP_PORT",
                self.address
            )),
        }
    }

    /// The data of the next event; `None` when the stream has ended.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            self.unpack();
            while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                // The server sends one line of data for an event; comments keep the line open.
                if let Some(id) = line.strip_prefix(b"id:") {
                    self.last_id = Some(String::from_utf8_lossy(id.trim_ascii()).into_owned());
                }
                if let Some(data) = line.strip_prefix(b"data:") {
                    return Ok(Some(data.trim_ascii().to_vec()));
                }
            }
            if matches!(self.body, Body::Ended) || !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Moves what came to the text, without the marks of chunks.
    fn unpack(&mut self) {
        loop {
            match &mut self.body {
                Body::Plain => {
                    self.text.append(&mut self.raw);
                    return;
                }
                Body::Ended => return,
                Body::Chunked { left } if *left > 0 => {
                    let here = self.raw.len().min(*left);
                    // The last two bytes of a chunk end its line.
                    let text = here.min(left.saturating_sub(2));
                    self.text.extend(self.raw.drain(..here).take(text));
                    *left -= here;
                    if *left > 0 {
                        return;
                    }
                }
                Body::Chunked { left } => match httparse::parse_chunk_size(&self.raw) {
                    Ok(httparse::Status::Complete((_, 0))) | Err(_) => self.body = Body::Ended,
                    Ok(httparse::Status::Complete((head, bytes))) => {
                        *left =
                            usize::try_from(bytes).map_or(usize::MAX, |it| it.saturating_add(2));
                        self.raw.drain(..head);
                    }
                    Ok(httparse::Status::Partial) => return,
                },
            }
        }
    }

    /// Reads once; false at the end of the connection.
    fn read(&mut self) -> Result<bool, Failure> {
        let mut chunk = [0; READ_BYTES];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(bytes) => {
                    self.raw.extend_from_slice(&chunk[..bytes]);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }

    fn lost(&self, reason: &str) -> Failure {
        Failure::Failed(format!("lost the events of the server at {}: {reason}", self.address))
    }

    fn stranger(&self) -> Failure {
        Failure::Failed(format!(
            "the answer of {} is not HTTP: --http-port must be the server's HTTP_PORT, not its \
             TCP_PORT",
            self.address
        ))
    }
}

/// The path of the events of a queue.
pub fn path_of(queue: &str) -> String {
    format!("/events/queues/{}", escaped(queue))
}

/// A name in a path or a query.
pub fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:~".contains(&byte);
    name.bytes().fold(String::new(), |mut path, byte| {
        if plain(byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_escaped() {
        assert_eq!(escaped("a-b.c:d_1"), "a-b.c:d_1");
        assert_eq!(escaped("a/b ü"), "a%2Fb%20%C3%BC");
    }
}
