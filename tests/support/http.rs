//! A small blocking HTTP client that takes the bytes of every answer apart by itself, so that a
//! wrong one is seen.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use serde_json::Value as Json;

use super::DEADLINE;
use super::codes::{check_code, check_status};

/// A connection of HTTP.
pub(crate) struct Http {
    pub(crate) socket: TcpStream,
    received: Vec<u8>,
    token: Option<String>,
}

/// An answer of HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// By names in lower case; none stands twice.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("answers are text")
    }

    pub(crate) fn json(&self) -> Json {
        assert_eq!(self.headers["content-type"], "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of an answer that must have this status.
    pub(crate) fn expect(&self, status: u16) -> Json {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        let json = self.json();
        assert_eq!(json["ok"], status < 300, "{json}");
        check_code(&json);
        check_status(status, &json);
        json
    }

    /// The text of a refusal that must have this status and says nothing but its code more.
    pub(crate) fn refused(&self, status: u16) -> String {
        let json = self.expect(status);
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(3), "{json}");
        json["error"].as_str().expect("refusals say why").to_owned()
    }
}

impl Http {
    pub(crate) fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap_or_else(|error| panic!("port {port}: {error}"))
    }

    pub(crate) fn try_connect(port: u16) -> std::io::Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(DEADLINE))?;
        socket.set_write_timeout(Some(DEADLINE))?;
        Ok(Self { socket, received: Vec::new(), token: None })
    }

    /// From now on every request shows this token.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.call("GET", path, &[], b"")
    }

    pub(crate) fn delete(&mut self, path: &str) -> Answer {
        self.call("DELETE", path, &[], b"")
    }

    #[allow(clippy::needless_pass_by_value)] // Made where it is passed.
    pub(crate) fn post(&mut self, path: &str, body: Json) -> Answer {
        self.call("POST", path, &[], body.to_string().as_bytes())
    }

    /// A request and its answer.
    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.send(method, path, headers, body).expect("the server takes a request");
        self.recv(method == "HEAD").unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends without waiting.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<()> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        let token = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let own = token.as_ref().map(|token| ("Authorization", token.as_str()));
        for (name, value) in headers.iter().copied().chain(own) {
            request.extend([name, ": ", value, "\r\n"]);
        }
        if !body.is_empty() {
            request.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
        }
        request.push_str("\r\n");
        self.raw(&[request.as_bytes(), body].concat())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// The next answer, by its own length.
    pub(crate) fn recv(&mut self, bodiless: bool) -> std::io::Result<Answer> {
        let head = loop {
            let end = self.received.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => break self.received.drain(..end + 4).collect::<Vec<u8>>(),
                None => self.more()?,
            }
        };
        let head = String::from_utf8(head).expect("a head is text");
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap_or_default();
        let mut words = status.splitn(3, ' ');
        assert_eq!(words.next(), Some("HTTP/1.1"), "{head}");
        let status = words.next().and_then(|word| word.parse().ok()).expect("a status");
        assert!(words.next().is_some_and(|reason| !reason.is_empty()), "{head}");
        let mut headers = BTreeMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line} in {head}"));
            let former = headers.insert(name.to_lowercase(), value.to_owned());
            assert_eq!(former, None, "{name} stands twice in {head}");
        }
        let length =
            headers.get("content-length").map_or(0, |text| text.parse().expect("a length"));
        let length = if bodiless { 0 } else { length };
        while self.received.len() < length {
            self.more()?;
        }
        let body = self.received.drain(..length).collect();
        Ok(Answer { status, headers, body })
    }

    fn more(&mut self) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        match self.socket.read(&mut buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.received.extend_from_slice(&buffer[..bytes]);
                Ok(())
            }
            // This process was stopped, and goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the server has closed this connection after all its answers, within the deadline.
    pub(crate) fn is_closed_by_server(&mut self) -> bool {
        assert!(self.received.is_empty(), "{:?}", String::from_utf8_lossy(&self.received));
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    // Helpers that most tests begin with.

    pub(crate) fn push(&mut self, queue: &str, body: Json) -> String {
        let answer = self.post(&format!("/queues/{queue}/jobs"), body).expect(200);
        answer["id"].as_str().expect("an id").to_owned()
    }

    /// The next job and its token; there must be one.
    pub(crate) fn pull(&mut self, queue: &str) -> (Json, String) {
        let answer = self.get(&format!("/queues/{queue}/jobs?timeout=60000")).expect(200);
        assert!(answer["job"].is_object(), "no job in {queue}: {answer}");
        (answer["job"].clone(), answer["token"].as_str().expect("a token").to_owned())
    }
}
