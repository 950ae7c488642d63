//! How sessions of browsers begin and end, and which endpoints are for whom.

use super::credentials::{COOKIE, SECURE_COOKIE};
use super::route::Endpoint;
use crate::api::access::{Grant, Permission};
use crate::api::commands::Op;
use crate::api::error::ErrorKind;
use crate::api::request::{Body, Request};
use crate::protocol::decode::decode;
use crate::protocol::http1::answer::{Answer, JSON};
use crate::protocol::json;
use crate::protocol::msgpack::Reader;
use crate::protocol::msgpack::writer::Writer;
use crate::server::access::sessions::SESSION_MS;
use crate::server::access::shown::{Access, Shown};
use crate::server::access::slowed::{RefusalTime, RefusedBy};
use crate::server::connection::deadlines::refuse_token;
use crate::server::shard_mail::message::Message;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};

impl Endpoint {
    /// Whether a client may ask for it, as far as that is known before its command is read.
    pub(super) fn judge(self, grant: Grant) -> Result<(), ErrorKind> {
        // A WebSocket gives commands, too.
        let reads = matches!(self, Self::Stats | Self::Stream { upgrade: false, .. });
        if !reads {
            return Ok(());
        }
        if !grant.has(Permission::Read) {
            return Err(ErrorKind::RoleForbids);
        }
        let of_all = self == Self::Stats;
        if of_all && grant.queues.is_some() { Err(ErrorKind::ScopeForbids) } else { Ok(()) }
    }
}

fn cookie_line(is_secure: bool, value: &str, seconds: u64) -> String {
    let (name, secure) = if is_secure { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
    format!(
        "Set-Cookie: {name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}\r\n"
    )
}

/// A login as the frame of the command Auth, with what its body says.
fn read_login(body: &[u8], frame: &mut Vec<u8>) -> Result<(), ErrorKind> {
    let spec = Op::Auth.spec();
    let mut object = Vec::new();
    json::to_msgpack_within(body, &mut object, spec.bytes_max)
        .map_err(|_| ErrorKind::BodyNotJson)?;
    let mut reader = Reader::new(&object);
    let entries = reader.map().ok().flatten().ok_or(ErrorKind::BodyNotObject)?;
    let mut writer = Writer::new(frame);
    writer.map(entries + 1);
    writer.str("cmd");
    writer.str(spec.name);
    writer.raw(reader.rest());
    Ok(())
}

impl ShardServer {
    /// Carries out `POST /ui/login`.
    pub(super) fn login(&mut self, conns: &mut Connections, conn: ConnId, body: &[u8]) {
        if !self.access.is_on() {
            self.conclude_error(conns, conn, ErrorKind::NoTokensToShow);
            return;
        }
        let mut frame = Vec::new();
        if let Err(error) = read_login(body, &mut frame) {
            self.conclude_error(conns, conn, error);
            return;
        }
        match decode(&frame) {
            Ok(Request { body: Body::Auth { token }, .. }) => {
                self.begin_session(conns, conn, token);
            }
            Ok(_) => self.conclude_error(conns, conn, ErrorKind::Internal),
            Err(refused) => self.conclude_error(conns, conn, &refused.error),
        }
    }

    fn begin_session(&mut self, conns: &mut Connections, conn: ConnId, token: &str) {
        let access = self.access.by_token(token);
        let Some(Access { grant, shown: Shown::Token(tag) }) = access else {
            self.access.failures += 1;
            self.audit_login(conns, conn, None);
            let origin = self.origin(conn);
            if refuse_token(self, conns, origin, RefusedBy::Login) == RefusalTime::Now {
                self.conclude_error(conns, conn, ErrorKind::InvalidToken);
            }
            return;
        };
        let now_ms = self.now_ms;
        let Some(cookie) = self.access.guard().begin_session(tag, now_ms) else {
            self.conclude_error(conns, conn, ErrorKind::Internal);
            return;
        };
        self.audit_login(conns, conn, access);
        let extra = cookie_line(self.is_secure(conn), &cookie, SESSION_MS / 1000);
        let body = format!(
            r#"{{"ok":true,"data":{{"role":"{}","expiresAt":{}}}}}"#,
            grant.role.name(),
            now_ms + SESSION_MS
        );
        let answer = Answer { status: 200, kind: JSON, extra: &extra, body: body.as_bytes() };
        self.conclude_with(conns, conn, &answer, None);
    }

    /// Carries out `POST /ui/logout`. Connections that the session has opened end with it, on every shard.
    pub(super) fn logout(&mut self, conns: &mut Connections, conn: ConnId) {
        let shown = self.sessions.get(conn).map(|session| session.access.shown);
        let ended = match shown {
            Some(Shown::Session { key, .. }) => self.access.guard().end_session(key),
            _ => false,
        };
        if ended {
            self.audit_logout(conns, conn);
            for dest in (0..self.slots.shards()).filter(|&dest| dest != self.me) {
                self.outbox.immediate(dest).messages.push(Message::AccessChanged);
            }
        }
        let extra = cookie_line(self.is_secure(conn), "", 0);
        let body = format!(r#"{{"ok":true,"data":{{"ended":{ended}}}}}"#);
        let answer = Answer { status: 200, kind: JSON, extra: &extra, body: body.as_bytes() };
        self.conclude_with(conns, conn, &answer, None);
    }

    /// Whether the browser at a connection speaks TLS, with this server or with what stands in between.
    fn is_secure(&mut self, conn: ConnId) -> bool {
        let own = self.certificates.is_some();
        self.sessions
            .get(conn)
            .is_some_and(|session| session.http.of_https || own && !session.through_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_hidden_from_pages_and_from_other_sites() {
        assert!(cookie_line(true, "v", 5).contains(
            "__Host-corq_session=v; Path=/; Max-Age=5; HttpOnly; SameSite=Strict; Secure\r\n"
        ));
        assert!(!cookie_line(false, "v", 5).contains("Secure"));
    }
}
