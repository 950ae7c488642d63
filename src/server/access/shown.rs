//! Proofs that clients have shown, and the rights that they give. A connection of frames or messages shows its token
//! once, each request over HTTP anew.

use super::guard::{Grants, Guard};
use super::sessions::SessionKey;
use super::slowed::SlowedRefusals;
use super::tag::Tag;
use crate::api::access::{Grant, Holder, Scope};
use crate::audit::names::TokenName;
use std::sync::Arc;

/// By what a client is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shown {
    /// By nothing: it has shown nothing, or nothing is asked for.
    #[default]
    Nothing,
    /// By a token.
    Token(Tag),
    /// By a session, which lasts until then.
    Session { key: SessionKey, until_ms: u64 },
}

/// The rights of a connection, and the proof that they come from.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub grant: Grant,
    pub shown: Shown,
}

impl Default for Access {
    fn default() -> Self {
        Self { grant: Grant::ALL, shown: Shown::Nothing }
    }
}

impl Access {
    /// The queues that there are for it.
    #[inline]
    pub fn scope(&self) -> Scope {
        self.grant.queues
    }
}

/// A look at all connections, some in each turn. Changes that come meanwhile let it be followed by another: if each began it
/// anew, a client whose logins follow each other would keep the later connections from being looked at.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The next place.
    next: Option<usize>,
    /// Another follows.
    again: bool,
}

impl Round {
    fn begin(&mut self) {
        self.again = self.next.is_some();
        self.next = Some(self.next.unwrap_or(0));
    }

    /// The places of this turn, `most` of them; none if there is nothing to be looked at.
    pub(super) fn take(&mut self, most: usize) -> Option<std::ops::Range<usize>> {
        let from = self.next?;
        self.next = Some(from + most);
        Some(from..from + most)
    }

    /// There were no more places than those that were taken last.
    pub(super) fn end(&mut self) {
        self.next = std::mem::take(&mut self.again).then_some(0);
    }
}

/// Access control of one shard: its copy of the grants, and the look at connections after a change.
pub struct ShardAccess {
    guard: Arc<Guard>,
    grants: Arc<Grants>,
    /// Up to which change it has followed.
    followed: u64,
    pub(super) round: Round,
    /// Whether those who come by a page, with the cookie of a session, only look on.
    ui_looks_on: bool,
    /// Logins, and commands Auth, that were refused.
    pub failures: u64,
    pub slowed: SlowedRefusals,
}

impl ShardAccess {
    pub fn new(guard: Arc<Guard>, ui_looks_on: bool, slowed: SlowedRefusals) -> Self {
        let (followed, grants) = (guard.changes(), guard.grants());
        let round = Round::default();
        Self { guard, grants, followed, round, ui_looks_on, failures: 0, slowed }
    }

    /// Whether clients have to show a token.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.guard.is_on()
    }

    /// Whether those who come by a page only look on.
    pub fn ui_looks_on(&self) -> bool {
        self.ui_looks_on
    }

    /// Sets that. Those that have logged in are looked at again.
    pub fn let_pages_look_on(&mut self, looks_on: bool) {
        if std::mem::replace(&mut self.ui_looks_on, looks_on) != looks_on {
            self.round.begin();
        }
    }

    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Whether connections are left that have to be looked at again.
    pub fn has_left(&self) -> bool {
        self.round.next.is_some()
    }

    /// Takes over what has changed. True if something has.
    pub(super) fn follow(&mut self) -> bool {
        let changes = self.guard.changes();
        if changes == self.followed {
            return false;
        }
        (self.followed, self.grants) = (changes, self.guard.grants());
        self.round.begin();
        true
    }

    /// The rights of a token, if it is accepted. Without tokens any text gives all rights.
    pub fn by_token(&self, token: &str) -> Option<Access> {
        if !self.is_on() {
            return Some(Access::default());
        }
        let tag = self.guard.tag(token);
        self.grants.of(tag).map(|grant| Access { grant, shown: Shown::Token(tag) })
    }

    /// The short name of the token that was shown, or that began the session.
    pub fn name_of(&self, shown: Shown, now_ms: u64) -> Option<TokenName> {
        match shown {
            Shown::Nothing => None,
            Shown::Token(tag) => self.grants.name_of(tag),
            Shown::Session { key, .. } => {
                let session = self.guard.session(key, now_ms)?;
                self.grants.name_of(session.tag)
            }
        }
    }

    /// The present rights of a token that was shown on any shard, which may have followed more changes than this shard;
    /// `None` if the token counts no longer.
    pub fn by_holder(&self, holder: Holder) -> Option<Grant> {
        self.guard.grants().of_holder(holder)
    }

    /// The rights of a cookie, if its session lasts.
    pub fn by_cookie(&self, cookie: &[u8], now_ms: u64) -> Option<Access> {
        self.by_session(SessionKey::of(cookie), now_ms)
    }

    fn by_session(&self, key: SessionKey, now_ms: u64) -> Option<Access> {
        let session = self.guard.session(key, now_ms)?;
        let mut grant = self.grants.of(session.tag)?;
        grant.looks_on = self.ui_looks_on;
        let shown = Shown::Session { key, until_ms: session.until_ms };
        Some(Access { grant, shown })
    }

    /// The present rights of a connection by its earlier proof; `None` if that counts no longer.
    pub(super) fn again(&self, access: &Access, now_ms: u64) -> Option<Access> {
        match access.shown {
            Shown::Nothing => Some(*access),
            Shown::Token(tag) => {
                self.grants.of(tag).map(|grant| Access { grant, shown: access.shown })
            }
            Shown::Session { key, .. } => self.by_session(key, now_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_is_looked_at_in_two_rounds_though_something_changes_each_turn() {
        const PLACES: usize = 5000;
        const MOST: usize = 1000;
        let mut round = Round::default();
        let mut looked = vec![false; PLACES];
        for turn in 0..=2 * PLACES / MOST {
            round.begin();
            let places = round.take(MOST).expect("something has changed");
            if places.end > PLACES {
                round.end();
            }
            let after = turn > PLACES / MOST;
            places.filter(|&place| after && place < PLACES).for_each(|place| looked[place] = true);
        }
        // Whatever changed before the sixth turn was seen by all that were looked at behind it.
        assert!(looked.iter().all(|&looked| looked));
    }

    #[test]
    fn what_changes_while_connections_are_looked_at_is_seen_by_those_before_it_as_well() {
        let mut round = Round::default();
        assert!(round.take(10).is_none());
        round.begin();
        assert_eq!(round.take(10), Some(0..10));
        round.begin();
        assert_eq!(round.take(10), Some(10..20));
        round.end();
        assert_eq!(round.take(10), Some(0..10));
        round.end();
        assert!(round.take(10).is_none());
    }
}
