//! The tokens and sessions that count. All shards share them: tokens are read again by the thread that hears signals, and
//! a browser comes by any shard. A shard keeps the tokens at hand and looks for newer ones by a number that is raised with
//! every change, so that a request with a token takes no lock; one with a cookie takes that of the sessions.
//!
//! Tokens are kept as tags under a key of this process. What a client shows becomes a tag as well before it is looked
//! for, so that the time that takes tells nothing of any token.

use super::sessions::{BrowserSession, BrowserSessions, SessionKey};
use super::tag::Tag;
use super::tokens::{self, Token};
use crate::api::access::{Grant, Holder, QueuePatterns};
use crate::audit::names::{NameKey, TokenName};
use ring::hmac;
use ring::rand::SystemRandom;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// The rights of each token. An empty list means that no token is asked for.
#[derive(Debug, Default)]
pub struct Grants {
    of_tags: BTreeMap<Tag, (Grant, Option<TokenName>)>,
    of_holders: BTreeMap<NonZeroU32, Grant>,
    /// Tokens that have had a number so far.
    numbered: u32,
}

impl Grants {
    pub fn of(&self, tag: Tag) -> Option<Grant> {
        self.of_tags.get(&tag).map(|(grant, _)| *grant)
    }

    /// The short name of a token, where there is an audit log.
    pub fn name_of(&self, tag: Tag) -> Option<TokenName> {
        self.of_tags.get(&tag).and_then(|(_, name)| *name)
    }

    /// The present rights of a token's holder; `None` if the token counts no longer. A client without a token has all
    /// rights: it came when none was asked for.
    pub fn of_holder(&self, holder: Holder) -> Option<Grant> {
        match holder {
            Some(holder) => self.of_holders.get(&holder).copied(),
            None => Some(Grant::ALL),
        }
    }

    /// Builds the grants of a new list of tokens. A token that was there before keeps its number.
    fn next(&self, grants: impl Iterator<Item = (Tag, Grant, Option<TokenName>)>) -> Self {
        let mut next = Self { numbered: self.numbered, ..Self::default() };
        for (tag, mut grant, name) in grants {
            let known = next.of(tag).or_else(|| self.of(tag)).and_then(|grant| grant.holder);
            let holder = known.unwrap_or_else(|| {
                next.numbered += 1;
                NonZeroU32::MIN.saturating_add(next.numbered - 1)
            });
            grant.holder = Some(holder);
            next.of_tags.insert(tag, (grant, name));
            next.of_holders.insert(holder, grant);
        }
        next
    }
}

/// Where tokens come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The setting.
    pub listed: String,
    /// A file, which may change.
    pub file: Option<PathBuf>,
}

impl Sources {
    fn read(&self) -> Result<Vec<Token>, String> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path)
                .map_err(|error| format!("AUTH_TOKENS_FILE: {}: {error}", path.display()))
        };
        let text = self.file.as_ref().map(read).transpose()?;
        tokens::read_all(&self.listed, text.as_deref())
    }
}

/// The accepted tokens and the browser sessions, shared by all shards.
pub struct Guard {
    key: hmac::Key,
    /// Key from which the short names of tokens in the audit log are derived.
    names: OnceLock<NameKey>,
    sources: Mutex<Sources>,
    /// Whether the sources have a file.
    has_file: bool,
    is_on: bool,
    /// Raised when tokens have been read again or a session has ended.
    changes: AtomicU64,
    grants: RwLock<Arc<Grants>>,
    sessions: RwLock<BrowserSessions>,
    /// The patterns of tokens, each list of them once: they are never given back, see
    /// [`Scope`](crate::api::access::Scope).
    patterns: Mutex<Vec<&'static QueuePatterns>>,
}

impl Guard {
    /// Accepts the tokens of `sources`; every client, if there are none.
    pub fn new(sources: Sources) -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system gives no randomness".to_owned())?;
        let tokens = sources.read()?;
        let guard = Self {
            key,
            names: OnceLock::new(),
            has_file: sources.file.is_some(),
            sources: Mutex::new(sources),
            is_on: !tokens.is_empty(),
            changes: AtomicU64::new(1),
            grants: RwLock::default(),
            sessions: RwLock::default(),
            patterns: Mutex::default(),
        };
        guard.take(&tokens);
        Ok(guard)
    }

    /// Whether clients have to show a token. That does not change.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether there is something to read again.
    pub fn has_file(&self) -> bool {
        self.has_file
    }

    /// Gives the tokens short names from now on.
    pub fn name_tokens(&self, key: NameKey) -> Result<(), String> {
        // The first key stays.
        let _ = self.names.set(key);
        self.reload(None).map(drop)
    }

    /// Reads the tokens again, those of the file and those of the setting, which may be another by now; says how many
    /// there are. On an error all stays as it was.
    pub fn reload(&self, listed: Option<&str>) -> Result<usize, String> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = listed.unwrap_or(&sources.listed).to_owned();
        let next = Sources { listed, file: sources.file.clone() };
        let tokens = next.read()?;
        *sources = next;
        self.take(&tokens);
        Ok(tokens.len())
    }

    fn take(&self, tokens: &[Token]) {
        let grants = tokens.iter().map(|token| {
            let queues = (!token.patterns.is_empty()).then(|| self.intern(&token.patterns));
            let name = self.names.get().map(|key| key.name_of(&token.secret));
            let grant = Grant { role: token.role, queues, ..Grant::ALL };
            (self.tag(&token.secret), grant, name)
        });
        let grants = Arc::new(self.grants().next(grants));
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions.keep(|tag| grants.of(tag).is_some());
        drop(sessions);
        *self.grants.write().unwrap_or_else(PoisonError::into_inner) = grants;
        self.note_change();
    }

    fn intern(&self, patterns: &[String]) -> &'static QueuePatterns {
        let patterns = QueuePatterns::new(patterns.iter().map(String::as_str));
        let mut known = self.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.iter().find(|same| ***same == patterns) {
            return same;
        }
        let kept: &'static QueuePatterns = Box::leak(Box::new(patterns));
        known.push(kept);
        kept
    }

    /// A number that is another once something has changed that a client may have shown.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The tokens that count by now.
    pub fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.grants.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The hash by which a token is stored and compared.
    pub fn tag(&self, token: &str) -> Tag {
        Tag::of(&self.key, token)
    }

    /// Begins a session of the holder of a token; returns the cookie.
    pub fn begin_session(&self, tag: Tag, now_ms: u64) -> Option<String> {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).begin(tag, now_ms)
    }

    pub fn session(&self, key: SessionKey, now_ms: u64) -> Option<BrowserSession> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).find(key, now_ms)
    }

    /// Ends a session. False if there is none.
    pub fn end_session(&self, key: SessionKey) -> bool {
        let ended = self.sessions.write().unwrap_or_else(PoisonError::into_inner).end(key);
        if ended {
            self.note_change();
        }
        ended
    }

    /// How many sessions are kept.
    pub fn sessions(&self) -> usize {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::api::access::Role;

    fn guard(listed: &str) -> Guard {
        Guard::new(Sources { listed: listed.into(), file: None }).unwrap()
    }

    fn role(guard: &Guard, token: &str) -> Option<Role> {
        guard.grants().of(guard.tag(token)).map(|grant| grant.role)
    }

    #[test]
    fn only_accepted_tokens_open_a_guarded_server() {
        let guard = guard("one,read:two");
        assert!(guard.is_on() && role(&guard, "one") == Some(Role::Admin));
        assert_eq!(role(&guard, "two"), Some(Role::Read));
        for wrong in ["", "on", "one ", "read:two", "one,read:two"] {
            assert_eq!(role(&guard, wrong), None, "{wrong}");
        }
        assert!(!super::tests::guard("").is_on());
    }

    #[test]
    fn tokens_that_are_read_again_end_the_sessions_of_those_that_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        std::fs::write(&file, "read(a,b):one\nwork:two\n").unwrap();
        let sources = Sources { listed: "env".into(), file: Some(file.clone()) };
        let guard = Guard::new(sources).unwrap();
        let cookies = ["one", "two"].map(|token| guard.begin_session(guard.tag(token), 0).unwrap());
        let keys = cookies.map(|cookie| SessionKey::of(cookie.as_bytes()));
        let (before, changes) = (guard.grants(), guard.changes());
        std::fs::write(&file, "read(a,b):one\npush:three\n").unwrap();
        assert_eq!(guard.reload(None), Ok(3));
        assert!(guard.changes() != changes);
        assert_eq!((role(&guard, "two"), role(&guard, "three")), (None, Some(Role::Push)));
        assert!(guard.session(keys[0], 0).is_some() && guard.session(keys[1], 0).is_none());
        // A task knows the token that began it by its number, which no other token gets.
        let holder = |grants: &Grants, token| grants.of(guard.tag(token)).unwrap().holder;
        let (one, two) = (holder(&before, "one"), holder(&before, "two"));
        assert!(guard.grants().of_holder(one).is_some() && guard.grants().of_holder(two).is_none());
        let three = holder(&guard.grants(), "three");
        assert!(three.is_some() && three != one && three != two);
        assert_eq!(guard.grants().of_holder(None), Some(Grant::ALL));
        // Equal patterns are stored once.
        let of = |grants: &Grants| grants.of(guard.tag("one")).unwrap().queues.unwrap();
        assert!(std::ptr::eq(of(&before), of(&guard.grants())));
        // A list that cannot be read changes nothing.
        std::fs::write(&file, "push(x:four").unwrap();
        assert!(guard.reload(Some("other")).unwrap_err().contains("line 1"));
        assert_eq!(role(&guard, "other"), None);
        std::fs::remove_file(&file).unwrap();
        assert!(guard.reload(None).is_err());
        assert_eq!(role(&guard, "three"), Some(Role::Push));
    }
}
