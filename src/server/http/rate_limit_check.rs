//! The limit on a client's requests, for the whole server: each client's window is kept by the shard
//! that the hash of its name picks. Where that is another one, the request waits in front of the
//! connection until the shard that counts has answered.

use super::rate_limit::TooMany;
use crate::protocol::http1::head::Head;
use crate::server::shard_mail::envelope::{Origin, Span};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_server::ShardServer;
use corq_io::net::ConnId;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// Most bytes of a client's name that count.
const NAME_BYTES_MAX: usize = 64;

/// Whether the next request of a connection may pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RateLimitCheck {
    /// The request has not been counted.
    #[default]
    Due,
    /// The shard that counts has been asked.
    Asked,
    /// The shard that counts has answered.
    Answered(Result<(), TooMany>),
}

/// Who a client says it is, or its proxies: the first address in `X-Forwarded-For`, or `X-Real-IP`,
/// or the word for neither. An address is one client in whatever spelling, and with whatever port, it comes.
fn client_of<'a>(head: &Head<'a>) -> Cow<'a, [u8]> {
    let first = |value: &'a [u8]| value.split(|byte| *byte == b',').next().unwrap_or_default();
    let named = head.forwarded_for.map(first).into_iter().chain(head.real_ip);
    let name = named.map(<[u8]>::trim_ascii).find(|name| !name.is_empty()).unwrap_or(b"unknown");
    match address_in(name) {
        Some(address) => Cow::Owned(address.to_string().into_bytes()),
        None => Cow::Borrowed(&name[..name.len().min(NAME_BYTES_MAX)]),
    }
}

/// The address that a name is, without its port and brackets.
fn address_in(name: &[u8]) -> Option<IpAddr> {
    let name = std::str::from_utf8(name).ok()?;
    let alone = || name.parse::<IpAddr>().ok();
    let with_port = || name.parse().ok().map(|address: SocketAddr| address.ip());
    let in_brackets = || name.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    let address = alone().or_else(with_port).or_else(in_brackets)?;
    Some(address.to_canonical())
}

impl ShardServer {
    /// Counts a request. `Ok(false)` if the answer to that has to be waited for.
    pub(super) fn check_rate_limit(
        &mut self,
        conn: ConnId,
        head: &Head<'_>,
    ) -> Result<bool, TooMany> {
        let Some(limiter) = &mut self.http.limiter else { return Ok(true) };
        let Some(session) = self.sessions.get(conn) else { return Ok(true) };
        if let RateLimitCheck::Answered(verdict) = session.http.rate_limit_check {
            session.http.rate_limit_check = RateLimitCheck::Due;
            self.http.counters.limited += u64::from(verdict.is_err());
            return verdict.map(|()| true);
        }
        let client = client_of(head);
        let owner = self.slots.of_bytes(&client);
        if owner == self.me {
            let verdict = limiter.admit(self.now_ms, &client);
            self.http.counters.limited += u64::from(verdict.is_err());
            return verdict.map(|()| true);
        }
        session.http.rate_limit_check = RateLimitCheck::Asked;
        session.blocked = true;
        let origin = self.origin(conn);
        let batch = self.outbox.immediate(owner);
        let client = batch.keep(&client);
        batch.messages.push(Message::CountRequest { origin, client });
        Ok(false)
    }

    /// The part of the shard that counts the client. The answer depends on no record, so it does not wait for the log.
    pub(crate) fn count_request(&mut self, batch: &Batch, origin: Origin, client: &Span) {
        let now_ms = self.now_ms;
        let limiter = self.http.limiter.as_mut();
        let verdict =
            limiter.map_or(Ok(()), |limiter| limiter.admit(now_ms, &batch.bytes[client.clone()]));
        let batch = self.outbox.immediate(usize::from(origin.shard));
        batch.messages.push(Message::RequestCounted { conn: origin.conn, verdict });
    }

    /// The shard that counts has answered.
    pub(crate) fn request_counted(&mut self, conn: ConnId, verdict: Result<(), TooMany>) {
        let Some(session) = self.sessions.get(conn) else { return };
        session.http.rate_limit_check = RateLimitCheck::Answered(verdict);
        self.unblocked.push(conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_client_with_any_port_and_in_any_spelling() {
        for (names, address) in [
            (&["203.0.113.9", "203.0.113.9:1001", "203.0.113.9:1002"][..], "203.0.113.9"),
            (&["::ffff:203.0.113.9", "[::ffff:203.0.113.9]:7"], "203.0.113.9"),
            (
                &["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:1", "2001:DB8:0:0::1"],
                "2001:db8::1",
            ),
        ] {
            for name in names {
                let found = address_in(name.as_bytes()).map(|found| found.to_string());
                assert_eq!(found.as_deref(), Some(address), "{name}");
            }
        }
        for name in ["unknown", "_hidden:80", "proxy", "[::1", "1.2.3.4:x", ""] {
            assert_eq!(address_in(name.as_bytes()), None, "{name}");
        }
    }
}
