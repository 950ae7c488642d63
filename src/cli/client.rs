//! The command line's connection to a server: blocking, one wire, frames in and out. Knows no command but `Auth`, and `Ping` to see whether a silent server lives.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use corq_io::client_connect::Wire;

use super::failure::{Failure, Refusal};
use super::request::Request;
use super::target::{Target, tls_advice};
use super::value::Value;
use crate::api::commands::{Op, differs};
use crate::api::version::Version;
use crate::protocol::frame::{self, Split};

/// How long it may be silent, with an answer due, before it is asked whether it lives; and then again
/// before it is given up.
const SILENCE: Duration = Duration::from_secs(5);
/// The number of that question, which no other request has.
const ALIVE: u64 = u32::MAX as u64;
/// Bytes read at a time.
const READ_BYTES: usize = 16 * 1024;

/// A connection on which the server knows its client.
#[derive(Debug)]
pub struct Client {
    socket: Wire,
    address: String,
    received: Vec<u8>,
    /// Bytes of `received` that were handed out already.
    used: usize,
    /// Whether the server has been told which version of the protocol is spoken here.
    has_told: bool,
}

/// An answer of the server.
#[derive(Debug)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// All of it.
    pub fn value(&self) -> Value<'_> {
        // The reply was read once when it came, so it is well formed.
        Value::of(&self.0).unwrap_or_else(|error| unreachable!("{error}"))
    }

    /// Why the server did not do it.
    pub fn refusal(&self) -> Option<Refusal<'_>> {
        let value = self.value();
        (!value.get("ok").is_true()).then(|| Refusal::of(value))
    }

    /// The answer, if it is not a refusal.
    pub fn granted(self) -> Result<Self, Failure> {
        match self.refusal() {
            Some(error) => Err(Failure::refused(error)),
            None => Ok(self),
        }
    }

    /// The number of the request that it answers.
    pub fn number(&self) -> Option<i64> {
        self.value().get("reqId").integer()
    }
}

impl Client {
    /// Connects, and shows the token if there is one.
    pub fn connect(target: &Target) -> Result<Self, Failure> {
        let address = target.address();
        let socket =
            target.dial(&target.place(), SILENCE, |error| unreachable_line(&address, error))?;
        let mut client = Self { socket, address, received: Vec::new(), used: 0, has_told: false };
        if let Some(token) = &target.token {
            let auth = Request::new(Op::Auth).with(|fields| fields.text("token", token));
            client.call(auth)?.granted()?;
        }
        Ok(client)
    }

    /// Tells which version of the protocol is spoken here, before the first request that it makes a difference to. A
    /// server that does not know the command says so, and nothing is lost.
    fn tell_version(&mut self, op: Op) -> Result<(), Failure> {
        if !self.has_told && differs(op) {
            self.has_told = true;
            let version = Version::Two.number() as i64;
            let hello =
                Request::new(Op::Hello).with(|fields| fields.integer("protocolVersion", version));
            self.call(hello)?;
        }
        Ok(())
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: Request) -> Result<Reply, Failure> {
        self.tell_version(request.op())?;
        if let Err(failure) = self.send(request) {
            // A server that hangs up has often said why.
            return self.receive().map_err(|_| failure);
        }
        self.receive()
    }

    /// Sends without waiting for the answer.
    pub fn send(&mut self, request: Request) -> Result<(), Failure> {
        let sent = self.socket.write_all(&request.frame());
        sent.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.silent(),
            _ => self.lost(&error.to_string()),
        })
    }

    /// The next answer. It may take as long as it likes while the server shows that it lives.
    pub fn receive(&mut self) -> Result<Reply, Failure> {
        let mut asked = false;
        loop {
            if let Some(reply) = self.buffered()? {
                // The answer to the question below, perhaps of an earlier wait.
                if reply.number() == Some(ALIVE as i64) {
                    asked = false;
                    continue;
                }
                return Ok(reply);
            }
            let mut chunk = [0; READ_BYTES];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(self.lost("it closed the connection")),
                Ok(bytes) => {
                    self.received.extend_from_slice(&chunk[..bytes]);
                    asked = false;
                }
                Err(error) if is_timeout(error.kind()) && !asked => {
                    self.send(Request::new(Op::Ping).numbered(ALIVE))?;
                    asked = true;
                }
                Err(error) if is_timeout(error.kind()) => return Err(self.silent()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(match tls_advice(&error) {
                        Some(advice) => self.lost(&format!("{error}: {advice}")),
                        None => self.lost(&error.to_string()),
                    });
                }
            }
        }
    }

    /// The next answer that has come already.
    fn buffered(&mut self) -> Result<Option<Reply>, Failure> {
        match frame::split(&self.received[self.used..]) {
            Split::Complete { frame, rest } => {
                let reply = frame.to_vec();
                let rest_bytes = rest.len();
                self.used = self.received.len() - rest_bytes;
                if rest_bytes == 0 {
                    self.received.clear();
                    self.used = 0;
                }
                match Value::of(&reply) {
                    Ok(_) => Ok(Some(Reply(reply))),
                    Err(error) => Err(self.stranger(&error.to_string())),
                }
            }
            Split::Incomplete { .. } => {
                // Replies that were handed out make room, once for each read of the socket.
                self.received.drain(..self.used);
                self.used = 0;
                Ok(None)
            }
            Split::TooLarge(_) => Err(self.stranger("it is longer than any frame")),
        }
    }

    fn lost(&self, reason: &str) -> Failure {
        Failure::Failed(format!(
            "lost the server at {}: {reason}; what was under way may or may not be done",
            self.address
        ))
    }

    fn silent(&self) -> Failure {
        Failure::Failed(format!(
            "the server at {} does not answer: see whether it is overloaded or stopped",
            self.address
        ))
    }

    fn stranger(&self, reason: &str) -> Failure {
        Failure::Failed(format!(
            "the answer of {} is not of corq's protocol ({reason}): --port must be the server's \
             TCP_PORT, not its HTTP_PORT",
            self.address
        ))
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn unreachable_line(address: &str, error: &std::io::Error) -> String {
    format!(
        "cannot reach a server at {address} ({error}): start one with 'corq serve', or say where it \
         is with --host and --port, or --socket (CORQ_HOST, CORQ_PORT, CORQ_SOCKET)"
    )
}
