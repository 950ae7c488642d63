//! A GET of the server's HTTP port, whose answer ends: for facts that are known there whatever the server is doing.

use std::io::{self, Read, Write};
use std::time::Duration;

use corq_io::client_connect::Wire;

use super::failure::Failure;
use super::target::Target;
use crate::api::error::ErrorKind;

/// How long an answer may take that needs no job and no disk.
const SILENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer, its head included.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Most headers of an answer.
const HEADERS_MAX: usize = 64;
/// Bytes read at a time.
const READ_BYTES: usize = 16 * 1024;

/// Status and body of an answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    /// Whether it is what a port with TLS says to those without.
    pub fn speaks_tls(&self) -> bool {
        let text = ErrorKind::TlsSpoken.text().as_bytes();
        self.status == 400 && self.body.windows(text.len()).any(|part| part == text)
    }
}

/// Asks for a path.
pub fn get(target: &Target, path: &str) -> Result<Answer, Failure> {
    let place = target.http_place();
    let address = place.to_string();
    let mut socket = target.dial(&place, SILENCE, |error| {
        format!(
            "cannot reach a server at {address} ({error}): start one with 'corq serve', or say which port its \
             HTTP_PORT is with --http-port (CORQ_HTTP_PORT), or which path with --http-socket"
        )
    })?;
    let host = target.http_host();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let lost = |error: &std::io::Error| {
        Failure::Failed(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!(
                "the server at {address} does not answer: see whether it is overloaded or stopped"
            ),
            _ => format!("lost the server at {address}: {error}"),
        })
    };
    socket.write_all(request.as_bytes()).map_err(|error| lost(&error))?;
    let received = read(&mut socket).map_err(|error| lost(&error))?;
    parse(&received).ok_or_else(|| {
        Failure::Failed(format!(
            "the answer of {address} is not HTTP: --http-port must be the server's HTTP_PORT, not its TCP_PORT"
        ))
    })
}

/// Reads until the answer is whole, or the connection ends.
fn read(socket: &mut Wire) -> std::io::Result<Vec<u8>> {
    let (mut received, mut chunk) = (Vec::new(), [0; READ_BYTES]);
    while parse(&received).is_none() && received.len() < ANSWER_BYTES_MAX {
        match socket.read(&mut chunk) {
            Ok(0) => break,
            Ok(bytes) => received.extend_from_slice(&chunk[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(received)
}

/// The answer, if it is there as a whole.
fn parse(received: &[u8]) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = answer.parse(received) else { return None };
    let length = answer.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"))?;
    let length: usize = str::from_utf8(length.value).ok()?.trim().parse().ok()?;
    let body = received[head..].get(..length)?.to_vec();
    Some(Answer { status: answer.code?, body })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once_it_is_whole() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..answer.len() {
            assert!(parse(&answer[..end]).is_none(), "{end}");
        }
        let answer = parse(answer).unwrap();
        assert_eq!((answer.status, &*answer.body), (503, &b"abc"[..]));
        assert!(parse(b"\x00\x00\x00\x05hello").is_none());
    }
}
