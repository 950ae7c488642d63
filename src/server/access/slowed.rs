//! Refusals of tokens, slowed: an address that has shown many wrong ones lately gets the answer to another one later, so
//! that guessing takes as long as it should.
//!
//! A right token is never slowed. A worker with an old token, or a client that guesses, keeps no other client out that
//! comes from its address.
//!
//! A ground type: of the server it imports ground types only.

use crate::server::http::rate_limit::{Limiter, Rule};
use crate::server::shard_mail::envelope::Origin;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Time in which wrong tokens of an address count: shorter than a client has to show a right one (`AUTH_TIMEOUT_MS`), so
/// that it reads why it is refused.
pub const WINDOW_MS: u64 = 5_000;

/// Refusals that wait at most; a connection with one more is ended.
const WAITING_MAX: usize = 10_000;

/// How a token is refused.
#[derive(Debug)]
pub(crate) enum RefusedBy {
    /// As the answer to `Auth`, with its `reqId`.
    Auth(Option<Box<[u8]>>),
    /// As the answer to the login of a page.
    Login,
    /// By a request over HTTP that is looked at once more.
    Request,
}

/// When a token is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefusalTime {
    Now,
    Later,
    /// Never: the connection has ended.
    Never,
}

/// Wrong tokens by address, and the refusals that wait.
#[derive(Debug, Default)]
pub struct SlowedRefusals {
    limiter: Option<Limiter>,
    /// By the time at which they are due, as if the clock had never leapt, and by number.
    waiting: BTreeMap<(u64, u64), (Origin, RefusedBy)>,
    numbered: u64,
}

impl SlowedRefusals {
    /// Slows what an address shows beyond this; nothing without a rule.
    pub fn new(rule: Option<Rule>) -> Self {
        let limiter = |rule| Limiter::new(rule, WINDOW_MS, crate::secret::hash_key());
        Self { limiter: rule.map(limiter), ..Self::default() }
    }

    /// Counts a wrong token of an address, and says when it is refused.
    pub(crate) fn judge(
        &mut self,
        steady_ms: u64,
        peer: Option<SocketAddr>,
        origin: Origin,
        refused: RefusedBy,
    ) -> RefusalTime {
        let Some(limiter) = &mut self.limiter else { return RefusalTime::Now };
        let Err(too_many) = limiter.admit(steady_ms, &counted(peer)) else {
            return RefusalTime::Now;
        };
        if self.waiting.len() >= WAITING_MAX {
            return RefusalTime::Never;
        }
        self.numbered += 1;
        let place = (steady_ms + too_many.wait_ms, self.numbered);
        self.waiting.insert(place, (origin, refused));
        RefusalTime::Later
    }

    /// When the next is due.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(&(at_ms, _), _)| at_ms)
    }

    /// The next, whether it is due or not.
    pub(crate) fn pop(&mut self) -> Option<(Origin, RefusedBy)> {
        self.waiting.pop_first().map(|(_, refusal)| refusal)
    }
}

/// The address of a client as it is counted. Who has one of IPv6 has all of its network; clients of unix sockets are one.
fn counted(peer: Option<SocketAddr>) -> [u8; 16] {
    let mut octets = match peer {
        Some(SocketAddr::V4(peer)) => return peer.ip().to_ipv6_mapped().octets(),
        Some(SocketAddr::V6(peer)) if peer.ip().to_ipv4_mapped().is_some() => {
            return peer.ip().octets();
        }
        Some(SocketAddr::V6(peer)) => peer.ip().octets(),
        None => [0; 16],
    };
    octets[8..].fill(0);
    octets
}

#[cfg(test)]
mod tests {
    use super::*;
    use corq_io::net::ConnId;

    /// Guards against refusals that pile up in memory, and against any that come before their time.
    #[test]
    fn refusals_wait_for_the_window_up_to_a_number() {
        let mut slowed = SlowedRefusals::new(Some(Rule { window_ms: WINDOW_MS, requests_max: 2 }));
        let origin = Origin::of_none(0, ConnId { index: 1, generation: 1 });
        let mut judge = |at_ms: u64, peer: &str| {
            let time = slowed.judge(at_ms, peer.parse().ok(), origin, RefusedBy::Login);
            (time, slowed.next_ms())
        };
        let (one, other) = ("192.0.2.1:1", "192.0.2.2:1");
        for _ in 0..2 {
            assert_eq!(judge(1000, one), (RefusalTime::Now, None));
        }
        for _ in 0..WAITING_MAX {
            let (time, next_ms) = judge(1500, one);
            let next_ms = next_ms.expect("one that waits");
            assert_eq!(time, RefusalTime::Later);
            assert!((1000 + WINDOW_MS..1200 + WINDOW_MS).contains(&next_ms), "{next_ms}");
        }
        assert_eq!(judge(1500, one).0, RefusalTime::Never);
        assert_eq!(judge(1500, other).0, RefusalTime::Now);
        assert_eq!(judge(1200 + WINDOW_MS, one).0, RefusalTime::Now, "the window has passed");
    }

    #[test]
    fn an_address_counts_as_itself_and_a_network_of_ipv6_as_one() {
        let count = |peer: &str| counted(peer.parse().ok());
        assert_eq!(count("192.0.2.1:1"), count("[::ffff:192.0.2.1]:2"));
        assert_ne!(count("192.0.2.1:1"), count("192.0.2.2:1"));
        assert_eq!(count("[2001:db8:1:2:3::4]:1"), count("[2001:db8:1:2::5]:1"));
        assert_ne!(count("[2001:db8:1:2::]:1"), count("[2001:db8:1:3::]:1"));
        assert_eq!(count("a path"), [0; 16]);
    }
}
