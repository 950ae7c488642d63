//! The sessions of browsers: whose cookie stands for which token, and until when.
//!
//! Kept are hashes of the cookies, so that what is in memory opens nothing. A token has a bounded number of sessions:
//! another login with it ends the oldest of its own, and none of another token. A session lasts as long from its login,
//! whatever is done with it.

use super::tag::{Tag, hash_of};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::{BTreeMap, VecDeque};

/// How long a session lasts.
pub const SESSION_MS: u64 = 12 * 60 * 60 * 1000;

/// Sessions of one token.
pub const SESSIONS_OF_TOKEN_MAX: usize = 256;

/// Random bytes of a cookie.
const ID_BYTES: usize = 32;

/// The hash of a cookie.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// That of what a request brings. Its own randomness makes it hard to guess: how long a hash takes to be found shows
    /// nothing of it.
    pub fn of(cookie: &[u8]) -> Self {
        Self(hash_of(cookie))
    }
}

/// A session of the dashboard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrowserSession {
    /// The token that began it.
    pub tag: Tag,
    pub until_ms: u64,
}

/// All sessions of a server.
#[derive(Debug, Default)]
pub struct BrowserSessions {
    by_key: BTreeMap<SessionKey, BrowserSession>,
    /// Sessions of each token, oldest first.
    of_token: BTreeMap<Tag, VecDeque<SessionKey>>,
}

impl BrowserSessions {
    /// Begins one. Returns the cookie, unless the system gives no randomness.
    pub fn begin(&mut self, tag: Tag, now_ms: u64) -> Option<String> {
        let mut id = [0; ID_BYTES];
        SystemRandom::new().fill(&mut id).ok()?;
        let cookie = data_encoding::BASE64URL_NOPAD.encode(&id);
        self.end_old(tag, now_ms);
        let key = SessionKey::of(cookie.as_bytes());
        let own = self.of_token.entry(tag).or_default();
        if own.len() >= SESSIONS_OF_TOKEN_MAX
            && let Some(oldest) = own.pop_front()
        {
            self.by_key.remove(&oldest);
        }
        own.push_back(key);
        self.by_key.insert(key, BrowserSession { tag, until_ms: now_ms + SESSION_MS });
        Some(cookie)
    }

    /// A session that lasts.
    pub fn find(&self, key: SessionKey, now_ms: u64) -> Option<BrowserSession> {
        self.by_key.get(&key).copied().filter(|session| session.until_ms > now_ms)
    }

    /// Ends one. False if there is none.
    pub fn end(&mut self, key: SessionKey) -> bool {
        let Some(session) = self.by_key.remove(&key) else { return false };
        if let Some(own) = self.of_token.get_mut(&session.tag) {
            own.retain(|other| *other != key);
            if own.is_empty() {
                self.of_token.remove(&session.tag);
            }
        }
        true
    }

    /// Ends those of tokens that are no longer there.
    pub fn keep(&mut self, is_there: impl Fn(Tag) -> bool) {
        self.by_key.retain(|_, session| is_there(session.tag));
        self.of_token.retain(|tag, _| is_there(*tag));
    }

    /// Forgets those of a token whose time is over, which are its oldest.
    fn end_old(&mut self, tag: Tag, now_ms: u64) {
        let Self { by_key, of_token } = self;
        let Some(own) = of_token.get_mut(&tag) else { return };
        while let Some(key) = own.front()
            && by_key.get(key).is_none_or(|session| session.until_ms <= now_ms)
        {
            by_key.remove(key);
            own.pop_front();
        }
    }

    /// How many there are, with some whose time is over.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn key(cookie: &str) -> SessionKey {
        SessionKey::of(cookie.as_bytes())
    }

    #[test]
    fn a_session_lasts_its_time_from_its_login_and_ends_when_it_is_ended() {
        let mut sessions = BrowserSessions::default();
        let tag = Tag::of_test(1);
        let cookie = sessions.begin(tag, 1000).unwrap();
        let until_ms = 1000 + SESSION_MS;
        let session = Some(BrowserSession { tag, until_ms });
        assert_eq!(sessions.find(key(&cookie), until_ms - 1), session);
        assert_eq!(sessions.find(key(&cookie), until_ms), None);
        assert_eq!(sessions.find(key("guess"), 1000), None);
        assert!(sessions.end(key(&cookie)) && !sessions.end(key(&cookie)));
        assert_eq!((sessions.find(key(&cookie), 1000), sessions.len()), (None, 0));
        assert!(sessions.of_token.is_empty());
    }

    #[test]
    fn logins_with_one_token_end_the_oldest_of_its_own_and_of_no_other() {
        let mut sessions = BrowserSessions::default();
        let other = sessions.begin(Tag::of_test(2), 0).unwrap();
        let first = sessions.begin(Tag::of_test(1), 0).unwrap();
        let cookies: Vec<String> = (0..SESSIONS_OF_TOKEN_MAX)
            .map(|_| sessions.begin(Tag::of_test(1), 0).unwrap())
            .collect();
        assert!(sessions.find(key(&first), 0).is_none());
        assert!(sessions.find(key(&other), 0).is_some());
        assert!(cookies.iter().all(|cookie| sessions.find(key(cookie), 0).is_some()));
        assert_eq!(sessions.len(), SESSIONS_OF_TOKEN_MAX + 1);
        // Sessions whose time is over make room before any that lasts.
        sessions.begin(Tag::of_test(1), SESSION_MS).unwrap();
        assert_eq!(sessions.len(), 2);
        sessions.keep(|tag| tag == Tag::of_test(2));
        assert_eq!((sessions.len(), sessions.of_token.len()), (1, 1));
    }
}
