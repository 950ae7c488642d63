//! A small blocking client. Requests and replies are JSON values in the tests and `MessagePack`
//! on the wire, through a library that the server does not use.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rmpv::Value;
use serde_json::{Map, Value as Json};

use super::DEADLINE;
use super::codes::check_code;

/// A connection of the protocol.
pub(crate) struct Client {
    socket: TcpStream,
    next_request: u64,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap_or_else(|error| panic!("port {port}: {error}"))
    }

    pub(crate) fn try_connect(port: u16) -> std::io::Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(DEADLINE))?;
        socket.set_write_timeout(Some(DEADLINE))?;
        Ok(Self { socket, next_request: 0 })
    }

    /// From now on this connection speaks that version of the protocol, whatever it sends.
    pub(crate) fn speaking(mut self, version: u64) -> Self {
        self.ok("Hello", serde_json::json!({"protocolVersion": version}));
        self
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// From now on the kernel takes little for this client before the client reads it.
    pub(crate) fn take_little(&self) {
        let socket = socket2::SockRef::from(&self.socket);
        socket.set_recv_buffer_size(16 << 10).expect("a size is taken");
    }

    /// Sends a command and returns its reply, whatever it says. The reply must echo the request's number.
    pub(crate) fn call(&mut self, cmd: &str, fields: Json) -> Json {
        self.try_call(cmd, fields).unwrap_or_else(|error| panic!("{cmd}: {error}"))
    }

    /// As `call`, for a server that may be killed under the client.
    pub(crate) fn try_call(&mut self, cmd: &str, fields: Json) -> std::io::Result<Json> {
        let request = self.send(cmd, fields)?;
        let reply = self.recv()?;
        assert_eq!(reply["reqId"], Json::from(request), "{cmd} answered another request: {reply}");
        Ok(reply)
    }

    /// Sends a command that must succeed.
    pub(crate) fn ok(&mut self, cmd: &str, fields: Json) -> Json {
        let shown = fields.to_string();
        let reply = self.call(cmd, fields);
        assert_eq!(reply["ok"], Json::Bool(true), "{cmd} {shown:.300} answered {reply}");
        reply
    }

    /// Sends a command that must be refused; returns the text.
    pub(crate) fn refused(&mut self, cmd: &str, fields: Json) -> String {
        let shown = fields.to_string();
        let reply = self.call(cmd, fields);
        assert_eq!(reply["ok"], Json::Bool(false), "{cmd} {shown:.300} answered {reply}");
        reply["error"].as_str().unwrap_or_else(|| panic!("{cmd}: no text in {reply}")).to_owned()
    }

    /// Sends without waiting; answers the `reqId` that the reply will carry.
    pub(crate) fn send(&mut self, cmd: &str, fields: Json) -> std::io::Result<String> {
        let (request, bytes) = self.request(cmd, fields);
        self.send_bytes(&bytes)?;
        Ok(request)
    }

    /// Commands that the server hears in one piece, so that no time passes between them; answers their replies in the
    /// order of the commands.
    pub(crate) fn at_once<const N: usize>(&mut self, commands: [(&str, Json); N]) -> [Json; N] {
        let requests = commands.map(|(cmd, fields)| self.request(cmd, fields));
        let bytes: Vec<u8> = requests.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        self.send_bytes(&bytes).expect("the server reads");
        let mut replies: Vec<Json> =
            (0..N).map(|_| self.recv().expect("each is answered")).collect();
        requests.map(|(request, _)| {
            let place = replies.iter().position(|reply| reply["reqId"] == *request);
            replies.swap_remove(place.unwrap_or_else(|| panic!("no {request} in {replies:?}")))
        })
    }

    /// The frame of a command, and its `reqId`.
    fn request(&mut self, cmd: &str, fields: Json) -> (String, Vec<u8>) {
        self.next_request += 1;
        let request = format!("r{}", self.next_request);
        let mut command = match fields {
            Json::Object(fields) => fields,
            Json::Null => Map::new(),
            other => panic!("fields must be an object, not {other}"),
        };
        command.insert("cmd".to_owned(), cmd.into());
        command.insert("reqId".to_owned(), request.clone().into());
        (request, frame(&encode(&Json::Object(command))))
    }

    pub(crate) fn send_value(&mut self, value: &Value) -> std::io::Result<()> {
        self.send_bytes(&frame(value))
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// The next reply.
    pub(crate) fn recv(&mut self) -> std::io::Result<Json> {
        self.recv_value().map(|value| decode(&value)).inspect(check_code)
    }

    pub(crate) fn recv_value(&mut self) -> std::io::Result<Value> {
        let mut head = [0; 4];
        self.socket.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes(head) as usize];
        self.socket.read_exact(&mut body)?;
        rmpv::decode::read_value(&mut &body[..])
            .map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))
    }

    /// A reply if one comes within `wait`. A part of a frame is waited for to its end.
    pub(crate) fn recv_within(&mut self, wait: Duration) -> Option<Json> {
        self.socket.set_read_timeout(Some(wait)).expect("a timeout above zero is taken");
        let mut first = [0];
        let there = loop {
            match self.socket.peek(&mut first) {
                // This process was stopped, and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                came => break matches!(came, Ok(1)),
            }
        };
        self.socket.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero is taken");
        there.then(|| self.recv().expect("the reply that has begun ends"))
    }

    /// Sends no more.
    pub(crate) fn shutdown_write(&self) {
        self.socket.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Whether the server has closed this connection, within the deadline.
    pub(crate) fn is_closed_by_server(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// The time of the server, in milliseconds. With one shard it is that of all that is done.
    pub(crate) fn time(&mut self) -> u64 {
        let reply = self.ok("Ping", serde_json::json!({}));
        reply["data"]["time"].as_u64().unwrap_or_else(|| panic!("no time in {reply}"))
    }

    // The commands that most tests begin with.

    pub(crate) fn push(&mut self, queue: &str, data: impl Into<Json>) -> String {
        self.push_with(queue, data, serde_json::json!({}))
    }

    /// A push with options; answers the id.
    pub(crate) fn push_with(
        &mut self,
        queue: &str,
        data: impl Into<Json>,
        options: Json,
    ) -> String {
        let Json::Object(mut fields) = options else { panic!("options must be an object") };
        fields.insert("queue".to_owned(), queue.into());
        fields.insert("data".to_owned(), data.into());
        text(&self.ok("PUSH", Json::Object(fields))["id"])
    }

    /// The next job, or null.
    pub(crate) fn pull(&mut self, queue: &str) -> Json {
        self.ok("PULL", serde_json::json!({"queue": queue}))["job"].clone()
    }

    /// The next job with its token; there must be one.
    pub(crate) fn pull_owned(&mut self, queue: &str, lock_ttl_ms: u64) -> (Json, String) {
        let fields = serde_json::json!({
            "queue": queue, "owner": "test", "lockTtl": lock_ttl_ms, "timeout": 60_000
        });
        let reply = self.ok("PULL", fields);
        assert!(reply["job"].is_object(), "no job in {queue}: {reply}");
        (reply["job"].clone(), text(&reply["token"]))
    }

    pub(crate) fn state(&mut self, id: &str) -> String {
        text(&self.ok("GetState", serde_json::json!({"id": id}))["state"])
    }

    /// The count of a state in `GetJobCounts`.
    pub(crate) fn counted(&mut self, queue: &str, state: &str) -> u64 {
        let reply = self.ok("GetJobCounts", serde_json::json!({"queue": queue}));
        reply["counts"][state].as_u64().unwrap_or_else(|| panic!("no count {state} in {reply}"))
    }
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text was expected, not {value}")).to_owned()
}

/// A value with the length of its frame before it.
pub(crate) fn frame(value: &Value) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    rmpv::encode::write_value(&mut bytes, value).expect("a Vec takes every write");
    let length = u32::try_from(bytes.len() - 4).expect("tests send no frame of 4 GB");
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// JSON to `MessagePack`, integers beyond 32 bits as floats, as browsers' clients send them.
pub(crate) fn encode(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::Boolean(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(integer) if i32::try_from(integer).is_ok() => Value::from(integer),
            _ => Value::F64(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::Array(items.iter().map(encode).collect()),
        Json::Object(fields) => Value::Map(
            fields.iter().map(|(key, value)| (Value::from(key.as_str()), encode(value))).collect(),
        ),
    }
}

/// `MessagePack` to JSON. Floats that are whole numbers become integers, so that a test need not
/// know how wide a number travelled; "undefined" (extension 0) becomes null.
pub(crate) fn decode(value: &Value) -> Json {
    match value {
        Value::Nil | Value::Ext(..) => Json::Null,
        Value::Boolean(flag) => Json::Bool(*flag),
        Value::Integer(integer) => match integer.as_i64() {
            Some(number) => Json::from(number),
            None => Json::from(integer.as_u64()),
        },
        Value::F32(number) => float(f64::from(*number)),
        Value::F64(number) => float(*number),
        Value::String(text) => Json::from(text.as_str().unwrap_or_default()),
        Value::Binary(bytes) => Json::from(bytes.clone()),
        Value::Array(items) => Json::Array(items.iter().map(decode).collect()),
        Value::Map(fields) => Json::Object(
            fields
                .iter()
                .map(|(key, value)| {
                    (key.as_str().map_or_else(|| key.to_string(), str::to_owned), decode(value))
                })
                .collect(),
        ),
    }
}

#[allow(clippy::float_cmp)] // Whether it is whole is an exact question.
fn float(number: f64) -> Json {
    if number.trunc() == number && number.abs() < 9e15 {
        Json::from(number as i64)
    } else {
        Json::from(number)
    }
}
