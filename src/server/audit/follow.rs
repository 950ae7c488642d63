//! From a command to its entry. It is begun where the command is let in, on the shard of its connection, and written when the answer
//! passes there; what the command was done to is read out of the answer.

use crate::api::access::Grant;
use crate::api::audit::{queue_of, subject};
use crate::api::commands::Op;
use crate::api::error::{Code, ErrorKind};
use crate::api::request::Body;
use crate::audit::entry::{Entry, Face, OK, Peer, UNKNOWN, Who};
use crate::protocol::frame::PREFIX_BYTES;
use crate::protocol::msgpack::{Malformed, Number, Reader};
use crate::server::access::shown::{Access, Shown};
use crate::server::connection::protocol::Protocol;
use crate::server::connection::reply_writer::ReplyWriter;
use crate::server::shard_mail::envelope::{Origin, Ticket};
use crate::server::shard_server::ShardServer;
use crate::server::storage::engine::Engine;
use corq_io::net::{ConnId, Connections};

/// A login by a page, and its end: they are no commands.
pub const LOGIN: &str = "Login";
pub const LOGOUT: &str = "Logout";

impl ShardServer {
    /// A command was let in: its answer makes an entry, if it has one.
    pub(crate) fn audit_begin(
        &mut self,
        conns: &Connections,
        origin: Origin,
        body: &Body<'_>,
    ) -> Origin {
        if !self.audit.is_on() {
            return origin;
        }
        let Some(subject) = subject(body) else { return origin };
        let who = self.audit_who(conns, origin.conn);
        let entry = Entry::new(self.now_ms, who, body.spec().name);
        let entry = entry.of_queue(subject.queue).about(subject.about);
        Origin { ticket: self.audit.begin(origin.conn, entry, self.now_ms), ..origin }
    }

    /// An answer passes: a frame with its length in front.
    #[cold]
    pub(crate) fn audit_answer(&mut self, origin: Origin, frame: &[u8]) {
        let Some(entry) = self.audit.end(origin.ticket, origin.conn) else { return };
        let told = Told::of(frame.get(PREFIX_BYTES..).unwrap_or_default());
        let about = match (&entry.about, told.task) {
            (Some(about), Some(task)) => Some(format!("{about}; task {task}")),
            _ => None,
        };
        let entry = Entry { count: told.count, ..entry.ended(told.outcome) };
        self.audit.note(if let Some(about) = about { entry.about(about) } else { entry });
    }

    /// An answer that nobody gets any more still says what came of its command.
    #[cold]
    pub(crate) fn audit_unsent(
        &mut self,
        origin: Origin,
        write: impl FnOnce(&Engine, &mut ReplyWriter<'_>),
    ) {
        if origin.ticket == Ticket::NONE {
            return;
        }
        let (mut out, mut placeholders) = (Vec::new(), Vec::new());
        write(&self.engine, &mut ReplyWriter { out: &mut out, placeholders: &mut placeholders });
        self.audit_answer(origin, &out);
    }

    /// A command was not let in.
    #[cold]
    pub(crate) fn audit_refused(
        &mut self,
        conns: &Connections,
        conn: ConnId,
        body: &Body<'_>,
        code: Code,
    ) {
        if self.audit.is_on() {
            let entry = Entry::new(self.now_ms, self.audit_who(conns, conn), body.spec().name);
            let entry = entry.of_queue(queue_of(body)).ended(code.name());
            self.audit.note_repeated(entry, self.now_ms);
        }
    }

    /// A token was shown: by the command Auth, or by a request whose token does not count.
    pub(crate) fn audit_auth(&mut self, conns: &Connections, conn: ConnId, access: Option<Access>) {
        self.audit_shown(conns, conn, Op::Auth.spec().name, access);
    }

    /// A page has logged in, or has tried to.
    pub(crate) fn audit_login(
        &mut self,
        conns: &Connections,
        conn: ConnId,
        access: Option<Access>,
    ) {
        self.audit_shown(conns, conn, LOGIN, access);
    }

    fn audit_shown(
        &mut self,
        conns: &Connections,
        conn: ConnId,
        what: &'static str,
        access: Option<Access>,
    ) {
        if !self.audit.is_on() || !self.access.is_on() {
            return;
        }
        // Take the rights from the token shown now, not from what the connection may do already.
        let (role, token) = access.map_or((None, None), |access| {
            (Some(access.grant.role), self.access.name_of(access.shown, self.now_ms))
        });
        let who = Who { role, token, ..self.audit_who(conns, conn) };
        let who = if what == LOGIN { Who { face: Face::Page, ..who } } else { who };
        let outcome = if access.is_some() { OK } else { ErrorKind::InvalidToken.code().name() };
        let entry = Entry::new(self.now_ms, who, what).ended(outcome);
        self.audit.note_repeated(entry, self.now_ms);
    }

    /// A page has logged out.
    pub(crate) fn audit_logout(&mut self, conns: &Connections, conn: ConnId) {
        if self.audit.is_on() {
            let entry = Entry::new(self.now_ms, self.audit_who(conns, conn), LOGOUT);
            self.audit.note_repeated(entry, self.now_ms);
        }
    }

    /// Who is at a connection.
    fn audit_who(&mut self, conns: &Connections, conn: ConnId) -> Who {
        let is_on = self.access.is_on();
        let Some(session) = self.sessions.get(conn) else { return Who::SERVER };
        let Access { grant, shown } = session.access;
        let peer = match conns.peer(conn) {
            _ if session.through_path => Peer::Unix,
            Ok(address) => Peer::At(address),
            Err(_) => Peer::None,
        };
        let of_page = session.http.of_page || matches!(shown, Shown::Session { .. });
        let face = match session.protocol {
            Protocol::Frames => Face::Tcp,
            _ if of_page => Face::Page,
            Protocol::WebSocket => Face::WebSocket,
            Protocol::Http | Protocol::Events => Face::Http,
        };
        let Grant { role, .. } = grant;
        let token = self.access.name_of(shown, self.now_ms);
        let role = (is_on && shown != Shown::Nothing).then_some(role);
        Who { face, peer, role, token }
    }
}

/// Facts that the answer to a command tells.
struct Told<'a> {
    outcome: &'static str,
    count: Option<u64>,
    task: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn of(reply: &'a [u8]) -> Self {
        let mut told = Self { outcome: UNKNOWN, count: None, task: None };
        // Answers are written by this server: one that cannot be read tells what was read before.
        let _ = told.read(&mut Reader::new(reply), true);
        told
    }

    fn read(&mut self, reader: &mut Reader<'a>, is_outer: bool) -> Result<(), Malformed> {
        for _ in 0..reader.map()?.unwrap_or(0) {
            match reader.key()? {
                b"ok" if is_outer => {
                    self.outcome = if reader.flag()? == Some(true) { OK } else { UNKNOWN };
                }
                b"code" if is_outer => {
                    let code = reader.text()?.and_then(Code::named);
                    self.outcome = code.map_or(UNKNOWN, Code::name);
                }
                b"taskId" if is_outer => self.task = reader.text()?,
                b"data" if is_outer => {
                    let data = reader.skip()?;
                    self.read(&mut Reader::new(data), false)?;
                }
                b"count" => {
                    let mut value = Reader::new(reader.skip()?);
                    self.count = match value.number()? {
                        Some(Number::Whole(count)) => u64::try_from(count).ok(),
                        _ => None,
                    };
                    // A list of ids may follow.
                    return Ok(());
                }
                _ => drop(reader.skip()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply;

    #[test]
    fn an_answer_tells_its_outcome_and_how_many() {
        let mut out = Vec::new();
        reply::begin(&mut out, true, Some(&[7])).key("count").uint(12);
        let told = Told::of(&out);
        assert_eq!((told.outcome, told.count), (OK, Some(12)));
        let mut out = Vec::new();
        {
            let mut reply = reply::begin(&mut out, true, None);
            reply.map("data").key("count").uint(70_000);
            reply.key("taskId").str("b1");
        }
        let told = Told::of(&out);
        assert_eq!((told.outcome, told.count, told.task), (OK, Some(70_000), Some("b1")));
        let mut out = Vec::new();
        reply::error(&mut out, None, ErrorKind::CronNotFound);
        assert_eq!(Told::of(&out[PREFIX_BYTES..]).outcome, "not_found");
        assert_eq!(Told::of(&[]).outcome, UNKNOWN);
    }
}
