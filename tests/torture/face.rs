//! The surfaces by which commands come: frames over TCP, JSON over WebSocket, requests over HTTP.

use std::io::{Error, ErrorKind, Result};

use rmpv::Value;
use serde_json::{Value as Json, json};

use crate::support::stream::{PING, PONG, TEXT, UPGRADE, WebSocket, client_frame};
use crate::support::{Client, Http, encode};
use crate::torture::commands::{Command, WRONG_TOKEN};

/// The kinds of surface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Tcp,
    WebSocket,
    Http,
}

/// Where the server is, and what it wants to be shown.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) tcp: u16,
    pub(crate) http: u16,
    pub(crate) token: Option<String>,
}

impl Door {
    /// A connection over TCP that is let in.
    pub(crate) fn client(&self) -> Result<Client> {
        let mut client = Client::try_connect(self.tcp)?;
        if let Some(token) = &self.token {
            client.try_call("Auth", json!({"token": token}))?;
        }
        Ok(client)
    }

    pub(crate) fn headers(&self) -> String {
        let own = |token: &String| format!("Authorization: Bearer {token}\r\n");
        self.token.as_ref().map_or_else(String::new, own)
    }
}

/// A connection of one of the kinds.
pub(crate) enum Face {
    Tcp { client: Client, sent: u64 },
    WebSocket { socket: Box<WebSocket>, sent: u64 },
    Http(Http),
}

/// A message of the server.
pub(crate) enum Said {
    /// The answer to the command of this number.
    Reply(u64, Json),
    /// Something that has happened.
    Event(Json),
}

/// The commands that HTTP has.
pub(crate) const OVER_HTTP: [&str; 9] =
    ["PUSH", "PULL", "GetJob", "Cancel", "ACK", "FAIL", "Stats", "Metrics", "Prometheus"];

impl Face {
    pub(crate) fn open(kind: Kind, door: &Door, queue: Option<&str>) -> Result<Self> {
        Ok(match kind {
            Kind::Tcp => Self::Tcp { client: door.client()?, sent: 0 },
            Kind::WebSocket => {
                let path = queue.map_or("/ws".to_owned(), |queue| format!("/ws/queues/{queue}"));
                let headers = format!("{UPGRADE}{}", door.headers());
                let socket = Box::new(WebSocket::try_open(door.http, &path, &headers)?);
                Self::WebSocket { socket, sent: 0 }
            }
            Kind::Http => {
                let http = Http::try_connect(door.http)?;
                Self::Http(match &door.token {
                    Some(token) => http.with_token(token),
                    None => http,
                })
            }
        })
    }

    /// Sends a command; answers its number on this connection.
    pub(crate) fn send(&mut self, command: &Command) -> Result<u64> {
        match self {
            Self::Tcp { client, sent } => {
                *sent += 1;
                client.send_value(&frame_of(command, *sent))?;
                Ok(*sent)
            }
            Self::WebSocket { socket, sent } => {
                *sent += 1;
                let mut message = command.fields.clone();
                message.insert("cmd".into(), command.name.into());
                message.insert("reqId".into(), (*sent).into());
                let text = Json::Object(message).to_string();
                socket.send_bytes(&client_frame(true, TEXT, text.as_bytes()))?;
                Ok(*sent)
            }
            Self::Http(http) => request(http, command).map(|()| 0),
        }
    }

    /// The next message.
    pub(crate) fn recv(&mut self) -> Result<Said> {
        match self {
            Self::Tcp { client, .. } => loop {
                let reply = client.recv()?;
                if is_sample(&reply) {
                    continue;
                }
                return Ok(if reply["type"] == "event" {
                    Said::Event(reply["event"].clone())
                } else {
                    let number = reply["reqId"].as_u64();
                    Said::Reply(number.ok_or_else(|| strange(&reply))?, reply)
                });
            },
            Self::WebSocket { socket, .. } => loop {
                let frame = socket.recv_frame()?;
                match frame.opcode {
                    TEXT => {
                        let message: Json = serde_json::from_slice(&frame.payload)
                            .map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
                        if is_sample(&message) {
                            continue;
                        }
                        return Ok(match message["reqId"].as_u64() {
                            Some(number) => Said::Reply(number, message),
                            None if message.get("eventType").is_some() => Said::Event(message),
                            None => return Err(strange(&message)),
                        });
                    }
                    PING => socket.send_bytes(&client_frame(true, PONG, &frame.payload))?,
                    PONG => {}
                    // The server closes.
                    _ => return Err(ErrorKind::UnexpectedEof.into()),
                }
            },
            Self::Http(http) => {
                let answer = http.recv(false)?;
                let is_json = answer.headers["content-type"] == "application/json";
                let body = if is_json { answer.json() } else { json!({"ok": true}) };
                Ok(Said::Reply(0, body))
            }
        }
    }
}

/// Whether a message is what a `Watch` brings, or an event in the form of dashboards, of which the test knows none.
fn is_sample(message: &Json) -> bool {
    let is_named = message["event"].is_string() && message["ts"].is_number();
    (message["type"] == "watch" || is_named) && message.get("reqId").is_none()
}

fn strange(message: &Json) -> Error {
    Error::new(ErrorKind::InvalidData, format!("neither reply nor event: {message:.400}"))
}

fn frame_of(command: &Command, number: u64) -> Value {
    let mut entries = vec![("cmd".into(), command.name.into()), ("reqId".into(), number.into())];
    for (name, value) in &command.fields {
        entries.push((name.as_str().into(), odd_encode(value)));
    }
    Value::Map(entries)
}

/// As MessagePack; `{"odd": n}` becomes what JSON has no word for.
fn odd_encode(json: &Json) -> Value {
    match json {
        Json::Object(fields) => Value::Map(
            fields
                .iter()
                .map(|(name, value)| match (name.as_str(), value.as_u64()) {
                    ("odd", Some(kind)) => ("odd".into(), odd(kind)),
                    _ => (name.as_str().into(), odd_encode(value)),
                })
                .collect(),
        ),
        Json::Array(items) => Value::Array(items.iter().map(odd_encode).collect()),
        other => encode(other),
    }
}

/// Values that only frames can bring.
fn odd(kind: u64) -> Value {
    match kind {
        0..10 => Value::Binary(vec![kind as u8; 40]),
        10..20 => Value::Ext(kind as i8, vec![0xff; 8]),
        20..30 => Value::F64([f64::NAN, f64::INFINITY, -0.0][kind as usize % 3]),
        30..40 => (0..100).fold(Value::Nil, |inner, _| Value::Array(vec![inner])),
        // A map as the key of a map as the key of a map.
        _ => (0..kind).fold(Value::from("\"\\"), |inner, _| Value::Map(vec![(inner, Value::Nil)])),
    }
}

/// Sends what the command is over HTTP.
fn request(http: &mut Http, command: &Command) -> Result<()> {
    let fields = &command.fields;
    let text = |name: &str| fields.get(name).and_then(Json::as_str).unwrap_or_default();
    let number = |name: &str| fields.get(name).and_then(Json::as_u64).unwrap_or_default();
    let (queue, id) = (text("queue"), text("id"));
    let body = Json::Object(fields.clone()).to_string();
    let body = body.as_bytes();
    match command.name {
        "PUSH" => http.send("POST", &format!("/queues/{queue}/jobs"), &[], body),
        "PULL" => {
            let (timeout, lock) = (number("timeout"), number("lockTtl").max(1));
            let path = format!("/queues/{queue}/jobs?timeout={timeout}&lockTtl={lock}");
            http.send("GET", &path, &[], b"")
        }
        "GetJob" => http.send("GET", &format!("/jobs/{id}"), &[], b""),
        "Cancel" => http.send("DELETE", &format!("/jobs/{id}"), &[], b""),
        "ACK" => http.send("POST", &format!("/jobs/{id}/ack"), &[], body),
        "FAIL" => http.send("POST", &format!("/jobs/{id}/fail"), &[], body),
        "Stats" => http.send("GET", "/stats", &[], b""),
        "Metrics" => http.send("GET", "/metrics", &[], b""),
        _ => http.send("GET", "/prometheus", &[], b""),
    }
}

/// Whether this command showed a token that no job has.
pub(crate) fn shows_wrong_token(command: &Command) -> bool {
    command.fields.get("token").is_some_and(|token| token == WRONG_TOKEN)
}
