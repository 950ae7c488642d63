//! Context of every command: the server to ask and the output to answer on.

use std::io;

use super::client::{Client, Reply};
use super::failure::Failure;
use super::output::Output;
use super::request::Request;
use super::target::Target;
use super::value::Value;
use super::wording::Wording;
use crate::api::commands::Op;
use crate::api::version::Version;

/// The surroundings of one command.
#[derive(Debug)]
pub struct Context {
    /// Which server, and in which form its answers are wanted.
    pub target: Target,
    /// Standard output.
    pub out: Output,
    /// The options of the command, which refusals name.
    pub wording: Wording,
}

impl Context {
    /// A connection to the server.
    pub fn client(&self) -> Result<Client, Failure> {
        Client::connect(&self.target)
    }

    /// Sends one request and shows its answer: raw under `--json`, else as `people` write it.
    pub fn ask(
        &mut self,
        request: Request,
        people: impl FnOnce(&mut Output, Value<'_>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let reply = self.client()?.call(request)?;
        self.show(&reply, people)
    }

    /// Sends one request whose success needs one line only.
    pub fn tell(&mut self, request: Request, done: &str) -> Result<(), Failure> {
        self.ask(request, |out, _| out.line(done))
    }

    /// Shows an answer that has come.
    pub fn show(
        &mut self,
        reply: &Reply,
        people: impl FnOnce(&mut Output, Value<'_>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if self.target.json {
            self.out.json(reply.value().bytes())?;
        }
        match reply.refusal() {
            Some(error) => Err(Failure::refused(error)),
            None if self.target.json => Ok(()),
            None => Ok(people(&mut self.out, reply.value())?),
        }
    }

    /// Sends a command on a queue that answers how many jobs it was done to.
    pub fn count(&mut self, request: Request, done: &str) -> Result<(), Failure> {
        self.ask(request, |out, reply| counted(out, done, reply))
    }
}

/// A reply that says how many jobs something was done to.
pub fn counted(out: &mut Output, done: &str, reply: Value<'_>) -> io::Result<()> {
    let count = reply.get("count").count();
    out.line(&format!("{done} {count} {}", if count == 1 { "job" } else { "jobs" }))
}

/// The answer to a command that takes nothing, without showing it.
pub fn fetch(client: &mut Client, op: Op) -> Result<Reply, Failure> {
    client.call(Request::new(op))?.granted()
}

/// Who the server is.
pub fn hello(client: &mut Client) -> Result<Reply, Failure> {
    let version = Version::Two.number() as i64;
    let hello = Request::new(Op::Hello).with(|fields| fields.integer("protocolVersion", version));
    client.call(hello)?.granted()
}
