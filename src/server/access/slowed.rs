//! Refusals of tokens, slowed: an address that has shown many wrong ones lately is told later that another one is wrong,
//! so that guessing takes as long as it should.
//!
//! A right token is never slowed. A worker with an old token, or somebody who guesses, keeps nobody out who comes from
//! the same address.

use crate::api::error::ErrorKind;
use crate::server::http::rate_limit::{Limiter, Rule};
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use corq_io::net::{ConnId, Connections};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Time in which wrong tokens of an address count.
pub const WINDOW_MS: u64 = 10_000;

/// Refusals that wait at most; a connection with one more is ended.
const WAITING_MAX: usize = 10_000;

/// Refusals that are told in a turn.
const SLICE: usize = 500;

/// How a refusal is told.
#[derive(Debug)]
pub(crate) enum Refused {
    /// As the answer to `Auth`, with its `reqId`.
    Auth(Option<Box<[u8]>>),
    /// As the answer to the login of a page.
    Login,
    /// By a request over HTTP that is looked at once more.
    Request,
}

/// What becomes of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Now,
    Later,
    /// Never: the connection has ended.
    Never,
}

/// Wrong tokens by address, and the refusals that wait.
#[derive(Debug, Default)]
pub struct SlowedRefusals {
    limiter: Option<Limiter>,
    /// By the time at which they are told, as if the clock had never leapt, and by number.
    waiting: BTreeMap<(u64, u64), (Origin, Refused)>,
    numbered: u64,
}

impl SlowedRefusals {
    /// Slows what an address shows beyond this; nothing without a rule.
    pub fn new(rule: Option<Rule>) -> Self {
        let limiter = |rule| Limiter::new(rule, WINDOW_MS, crate::secret::hash_key());
        Self { limiter: rule.map(limiter), ..Self::default() }
    }
}

/// The address of a client as it is counted. Who has one of IPv6 has all of its network; clients of unix sockets are one.
fn address_of(conns: &Connections, conn: ConnId) -> [u8; 16] {
    let mut octets = match conns.peer(conn) {
        Ok(SocketAddr::V4(peer)) => return peer.ip().to_ipv6_mapped().octets(),
        Ok(SocketAddr::V6(peer)) if peer.ip().to_ipv4_mapped().is_some() => {
            return peer.ip().octets();
        }
        Ok(SocketAddr::V6(peer)) => peer.ip().octets(),
        Err(_) => [0; 16],
    };
    octets[8..].fill(0);
    octets
}

/// A client has shown a wrong token: says when it is told.
pub(crate) fn refuse_token(
    server: &mut ShardServer,
    conns: &mut Connections,
    origin: Origin,
    refused: impl FnOnce() -> Refused,
) -> Told {
    let slowed = &mut server.access.slowed;
    let Some(limiter) = &mut slowed.limiter else { return Told::Now };
    let steady_ms = server.http.alarms.steady_ms(server.now_ms);
    let Err(too_many) = limiter.admit(steady_ms, &address_of(conns, origin.conn)) else {
        return Told::Now;
    };
    if slowed.waiting.len() >= WAITING_MAX {
        server.finish_connection(conns, origin.conn);
        return Told::Never;
    }
    slowed.numbered += 1;
    let place = (steady_ms + too_many.wait_ms, slowed.numbered);
    slowed.waiting.insert(place, (origin, refused()));
    server.deferred(origin);
    Told::Later
}

/// Tells what is due, a slice of it; at the end of the server all is. Returns when to come again.
pub(crate) fn tell_due(server: &mut ShardServer, conns: &mut Connections) -> u64 {
    let steady_ms = server.http.alarms.steady_ms(server.now_ms);
    for _ in 0..SLICE {
        let Some(first) = server.access.slowed.waiting.first_entry() else { return u64::MAX };
        let left_ms = first.key().0.saturating_sub(steady_ms);
        if left_ms > 0 && !server.stopping {
            return server.now_ms + left_ms;
        }
        let (origin, refused) = first.remove();
        server.meter.note(1);
        server.answered(origin);
        match refused {
            Refused::Auth(req_id) => {
                server.refuse(conns, origin, req_id.as_deref(), ErrorKind::InvalidToken);
            }
            Refused::Login => {
                server.conclude_error(conns, origin.conn, ErrorKind::InvalidToken);
            }
            Refused::Request => server.refuse_request(origin.conn),
        }
    }
    server.now_ms
}
