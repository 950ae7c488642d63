//! Where another job queue is: its URL, a connection to it, and lines and bytes from it. Knows nothing of what is said.

use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use corq_io::client_connect::{Place, Wire};
use corq_io::tls::{ClientFiles, client_config};

use crate::cli::failure::Failure;

/// How long it may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer may take.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;
/// Longest line of an answer.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Longest value of an answer. A payload may have a sixth of it, written as JSON.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// The parts of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    pub scheme: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: Option<u16>,
    /// With its slash, or empty.
    pub path: String,
    /// `name=value` behind the question mark.
    pub query: Vec<(String, String)>,
}

impl Url {
    /// Reads one; `schemes` are those that there are for it.
    pub fn parse(text: &str, schemes: &[&str]) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::Usage(format!("{text}: {what}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            wrong(&format!("a URL is needed, as {}://127.0.0.1", schemes.first().unwrap_or(&"tcp")))
        })?;
        if !schemes.contains(&scheme) {
            return Err(wrong(&format!(
                "the URL must begin with one of {}://",
                schemes.join("://, ")
            )));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let plain = |text: &str| {
            unescaped(text).ok_or_else(|| wrong("a % must be followed by two hexadecimal digits"))
        };
        let (mut user, mut password) = (None, None);
        if let Some(login) = login {
            let (name, secret) = login.split_once(':').unwrap_or((login, ""));
            user = Some(plain(name)?).filter(|name| !name.is_empty());
            password = Some(plain(secret)?).filter(|secret| !secret.is_empty());
        }
        let bracket = place.rfind(']').unwrap_or(0);
        let (host, port) = match place[bracket..].rfind(':') {
            Some(colon) => (&place[..bracket + colon], Some(&place[bracket + colon + 1..])),
            None => (place, None),
        };
        let port = port
            .map(|port| port.parse().map_err(|_| wrong("the port must be a number up to 65535")));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Ok(Self {
            scheme: scheme.to_owned(),
            user,
            password,
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: port.transpose()?,
            path: plain(path)?,
            query: pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| Ok((name.to_owned(), plain(value)?)))
                .collect::<Result<_, Failure>>()?,
        })
    }

    /// The value of a name in the query.
    pub fn of_query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Where it leads: over TCP, or to the socket that its path names if the scheme says so.
    fn place(&self, port: u16) -> Place {
        if self.scheme.ends_with("unix") {
            return Place::Path(PathBuf::from(&self.path));
        }
        let host = if self.host.is_empty() { "127.0.0.1" } else { &self.host };
        Place::Port(host.to_owned(), self.port.unwrap_or(port))
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(rest.next())? * 16 + digit(rest.next())?) as u8,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A connection on which lines and counted bytes come.
pub struct Stream {
    wire: Wire,
    address: String,
    received: Vec<u8>,
    used: usize,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", self.address)
    }
}

impl Stream {
    /// Connects; `port` is the usual one, `authority` the file with whom to believe over TLS, instead of the system's.
    pub fn open(
        url: &Url,
        port: u16,
        secure: bool,
        authority: Option<&PathBuf>,
    ) -> Result<Self, Failure> {
        let place = url.place(port);
        let address = place.to_string();
        let files = ClientFiles { authorities: authority.cloned(), identity: None };
        let config = secure.then(|| client_config(&files)).transpose().map_err(Failure::Failed)?;
        let wire =
            Wire::open(&place, config.as_ref(), CONNECT_PATIENCE, SILENCE).map_err(|error| {
                Failure::failed(format_args!("cannot reach the source at {address}"), &error)
            })?;
        Ok(Self { wire, address, received: Vec::new(), used: 0 })
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.wire.write_all(bytes).map_err(|error| self.lost(&error.to_string()))
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let mut looked = self.used;
        loop {
            if let Some(end) = self.received[looked..].iter().position(|byte| *byte == b'\n') {
                let line = &self.received[self.used..looked + end];
                let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
                self.used = looked + end + 1;
                return Ok(line);
            }
            if self.received.len() - self.used > LINE_BYTES_MAX {
                return Err(self.lost("a line of its answer has more than 64 KB"));
            }
            let held = self.received.len() - self.used;
            self.read()?;
            looked = self.used + held;
        }
    }

    /// Reads `bytes` bytes, and the line end behind them, which does not belong to them.
    pub fn value(&mut self, bytes: usize) -> Result<Vec<u8>, Failure> {
        if bytes > VALUE_BYTES_MAX {
            return Err(self.lost("a value of its answer has more than 64 MB"));
        }
        while self.received.len() - self.used < bytes + 2 {
            self.read()?;
        }
        let value = self.received[self.used..self.used + bytes].to_vec();
        self.used += bytes + 2;
        Ok(value)
    }

    fn read(&mut self) -> Result<(), Failure> {
        self.received.drain(..self.used);
        self.used = 0;
        let held = self.received.len();
        self.received.resize(held + READ_BYTES, 0);
        loop {
            match self.wire.read(&mut self.received[held..]) {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(bytes) => {
                    self.received.truncate(held + bytes);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }

    /// The source said what cannot be understood, or nothing more.
    pub fn lost(&self, reason: &str) -> Failure {
        Failure::Failed(format!("lost the source at {}: {reason}", self.address))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse("rediss://ada:p%40ss@[::1]:7000/3?a=b", &["redis", "rediss"]).unwrap();
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("ada"), Some("p@ss")));
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("::1", Some(7000), "/3"));
        assert_eq!(url.of_query("a"), Some("b"));
        let url = Url::parse("redis://host", &["redis"]).unwrap();
        assert_eq!(url.place(6379), Place::Port("host".into(), 6379));
        let url = Url::parse("redis+unix:///run/redis.sock?db=2", &["redis+unix"]).unwrap();
        assert_eq!(url.place(1), Place::Path("/run/redis.sock".into()));
        assert_eq!(
            Url::parse("tcp://:secret@host", &["tcp"]).unwrap().password.as_deref(),
            Some("secret")
        );
    }

    #[test]
    fn what_is_no_url_is_said() {
        for wrong in ["127.0.0.1", "http://x", "redis://h:99999", "redis://a%zz@h"] {
            assert!(matches!(Url::parse(wrong, &["redis"]), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
