//! An entry of the audit log. It is written as a line of JSON in which no text of a client acts on a terminal, and read
//! as it is written. Its size is bounded, whatever clients name.

use super::names::TokenName;
use crate::api::access::Role;
use crate::escape;
use crate::protocol::json;
use crate::protocol::msgpack::writer::MapWriter;
use chrono::{DateTime, SecondsFormat, Utc};
use std::net::SocketAddr;

/// Longest text about a command, in bytes. What is longer is cut.
const ABOUT_BYTES_MAX: usize = 512;

/// An entry whose command went through.
pub const OK: &str = "ok";
/// The outcome of an entry whose answer never came: its connection or the server ended before, or too many waited.
pub const UNKNOWN: &str = "unknown";
/// A signal had no effect.
pub const FAILED: &str = "failed";

/// By which way something came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Face {
    Tcp,
    Http,
    WebSocket,
    /// From a web page, over HTTP or a WebSocket.
    Page,
    /// By the server itself, or a signal to it.
    Server,
}

impl Face {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::WebSocket => "ws",
            Self::Page => "page",
            Self::Server => "server",
        }
    }
}

/// Where a client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Not known, or none.
    None,
    /// On this machine, by a unix socket.
    Unix,
    At(SocketAddr),
}

/// Who did it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    pub face: Face,
    pub peer: Peer,
    /// That of the token; none if no token is asked for, or none was valid.
    pub role: Option<Role>,
    /// The name of the token.
    pub token: Option<TokenName>,
}

impl Who {
    /// The server itself.
    pub const SERVER: Self = Self { face: Face::Server, peer: Peer::None, role: None, token: None };
}

/// An act by a client or by the server itself, and its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub at_ms: u64,
    pub who: Who,
    /// The command, or what else it was.
    pub command: &'static str,
    pub queue: Option<Box<str>>,
    /// Details beside the queue: a name, a limit, which jobs.
    pub about: Option<Box<str>>,
    /// How many jobs or other things it was done to.
    pub count: Option<u64>,
    /// [`OK`], the code of an error, or [`UNKNOWN`].
    pub outcome: &'static str,
    /// How many more times the same act came within the minute; those have no entries of their own.
    pub repeated: u64,
}

impl Entry {
    /// An entry without details, whose act went through.
    pub fn new(at_ms: u64, who: Who, command: &'static str) -> Self {
        let (queue, about, count) = (None, None, None);
        Self { at_ms, who, command, queue, about, count, outcome: OK, repeated: 0 }
    }

    /// With what is worth knowing besides, as far as it fits.
    #[must_use]
    pub fn about(self, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(ABOUT_BYTES_MAX));
        let about = (!text.is_empty()).then(|| text.into_boxed_str());
        Self { about, ..self }
    }

    /// Of a queue.
    #[must_use]
    pub fn of_queue(self, queue: Option<&str>) -> Self {
        Self { queue: queue.map(Into::into), ..self }
    }

    /// That ended so.
    #[must_use]
    pub fn ended(self, outcome: &'static str) -> Self {
        Self { outcome, ..self }
    }

    /// Writes it as a line, with its number in front.
    pub fn write(&self, number: u64, out: &mut Vec<u8>) {
        let mut value = Vec::new();
        self.put(number, MapWriter::begin(&mut value));
        let mut line = Vec::new();
        // The value was just written as one value of MessagePack.
        if json::from_msgpack(&value, &mut line).is_ok() {
            out.extend_from_slice(&escape::json(&line));
            out.push(b'\n');
        }
    }

    fn put(&self, number: u64, mut map: MapWriter<'_>) {
        map.key("seq").uint(number);
        map.key("time").str(&time(self.at_ms));
        map.key("face").str(self.who.face.name());
        match self.who.peer {
            Peer::None => {}
            Peer::Unix => map.key("peer").str("unix"),
            Peer::At(address) => map.key("peer").str(&address.to_string()),
        }
        if let Some(role) = self.who.role {
            map.key("role").str(role.name());
        }
        if let Some(token) = self.who.token {
            map.key("token").str(token.as_str());
        }
        map.key("command").str(self.command);
        if let Some(queue) = &self.queue {
            map.key("queue").str(queue);
        }
        if let Some(about) = &self.about {
            map.key("about").str(about);
        }
        if let Some(count) = self.count {
            map.key("count").uint(count);
        }
        map.key("outcome").str(self.outcome);
        if self.repeated > 0 {
            map.key("repeated").uint(self.repeated);
        }
    }
}

/// A point in time as entries have it: `2026-11-23T10:32:12.123Z`.
pub fn time(at_ms: u64) -> String {
    let date: Option<DateTime<Utc>> = DateTime::from_timestamp_millis(at_ms.cast_signed());
    date.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::audit::names::NameKey;
    use serde_json::{Value, json};

    fn line(entry: &Entry) -> String {
        let mut out = Vec::new();
        entry.write(7, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_entry_is_one_line_in_which_no_text_acts_and_that_begins_with_its_number() {
        let token = NameKey::new(b"key").name_of("secret");
        let peer = Peer::At("127.0.0.1:4000".parse().unwrap());
        let who = Who { face: Face::Tcp, peer, role: Some(Role::Admin), token: Some(token) };
        let mut entry = Entry::new(1_795_343_532_123, who, "Pause").of_queue(Some("q"));
        entry = entry.about("a\nb\u{202e}\u{9b}\"");
        (entry.count, entry.repeated) = (Some(3), 2);
        let text = line(&entry);
        assert!(text.starts_with("{\"seq\":7,\"time\":\"") && text.ends_with("}\n"), "{text}");
        assert!(!text.trim_end().chars().any(escape::acts), "{text:?}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            json!({"seq": 7, "time": "2026-11-22T10:32:12.123Z", "face": "tcp", "peer": "127.0.0.1:4000",
                "role": "admin", "token": token.as_str(), "command": "Pause", "queue": "q",
                "about": "a\nb\u{202e}\u{9b}\"", "count": 3, "outcome": "ok", "repeated": 2})
        );
    }

    #[test]
    fn what_an_entry_does_not_know_it_leaves_out_and_what_is_long_it_cuts() {
        let text = line(&Entry::new(0, Who::SERVER, "Start").ended(FAILED));
        let expected = r#"{"seq":7,"time":"1970-01-01T00:00:00.000Z","face":"server","command":"Start","outcome":"failed"}"#;
        assert_eq!(text.trim_end(), expected);
        let long = Entry::new(0, Who::SERVER, "Start").about("é".repeat(10_000));
        assert!(long.about.unwrap().len() <= ABOUT_BYTES_MAX);
    }
}
