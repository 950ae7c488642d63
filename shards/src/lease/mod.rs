//! Who holds which active job, until when, and under which token.
//!
//! | file | responsibility |
//! |---|---|
//! | `ack` | acknowledge, fail, renew |
//! | `backoff` | when the next attempt begins |
//! | `clients` | leases and waits of each client |
//! | `expiry` | what happens when a lock expires |
//! | `group_scans` | queues where pulls wait until all groups have been looked at |
//! | `leavers` | what connections that have gone waited for and held |
//! | `owners` | the names of workers that have jobs |
//! | `pull` | delivery |
//! | `token_stream` | lock tokens that cannot be guessed |
//! | `waiting_pulls` | pulls that wait for a job |

pub(crate) mod ack;
pub(crate) mod backoff;
pub(crate) mod clients;
pub(crate) mod expiry;
pub(crate) mod group_scans;
mod leavers;
pub(crate) mod owners;
pub(crate) mod pull;
pub mod token_stream;
pub(crate) mod waiting_pulls;

use self::clients::OfClient;
use crate::caller::{ClientId, Token};
use crate::collections::deadline_heap::Timed;
use crate::collections::hash_key::HashKey;
use crate::collections::slab::{Linked, Links, NONE, Slab};
use crate::collections::table::Map;
use crate::job::id::JobId;
use crate::lease::owners::OwnerRef;
use std::collections::VecDeque;

/// An unlocked job counts as stalled after this long without a sign of life.
pub const UNLOCKED_TTL_MS: u32 = 30_000;

/// The hold of one worker on one job. Its times are those that the clock would show if it had not leapt since the lease began,
/// and nothing had been put off: see [`crate::Shard::put_off`].
#[derive(Clone, Debug)]
pub struct Lease {
    /// Index of the job.
    pub job: u32,
    /// The connection that pulled it, if it is still there and the job goes back when it leaves.
    pub client: Option<ClientId>,
    /// The connection that pulled it, for as long as the lease lasts. None after a restart, and for
    /// a job that stays when its connection goes.
    pub puller: Option<ClientId>,
    /// The token that the holder must show; `None` for a job pulled without an owner.
    pub token: Option<Token>,
    /// Life of the lease from each sign of life.
    pub ttl_ms: u32,
    /// When it ends unless renewed, if its queue has no rule.
    pub expires_at_ms: u64,
    /// The last sign of life.
    pub seen_at_ms: u64,
    /// When the attempt has lasted too long; `u64::MAX` for never.
    pub timeout_at_ms: u64,
    /// When the job was pulled.
    pub started_at_ms: u64,
    /// By how much the deadlines of leases had been put off by then.
    pub(crate) put_off_before_ms: u64,
    /// The name its worker pulled it under.
    pub(crate) owner: OwnerRef,
    /// Neighbours among the leases of its client.
    pub links: Links,
    /// Place of its deadline.
    pub timer: u32,
    /// Set only while one command is being checked.
    pub marked: bool,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            job: NONE,
            client: None,
            puller: None,
            token: None,
            ttl_ms: 0,
            expires_at_ms: 0,
            seen_at_ms: 0,
            timeout_at_ms: u64::MAX,
            started_at_ms: 0,
            put_off_before_ms: 0,
            owner: OwnerRef::default(),
            links: Links::default(),
            timer: NONE,
            marked: false,
        }
    }
}

impl Linked<OfClient> for Lease {
    fn links(&self) -> Links {
        self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Timed for Slab<Lease> {
    fn place(&mut self, key: u32, place: u32) {
        self[key].timer = place;
    }
}

/// Tokens of ended attempts that are remembered.
pub const EXPIRED_TOKENS_MAX: usize = 10_000;

/// Tokens of attempts that the shard itself ended because they took too long. A worker that answers for such a job afterwards
/// learns that it is too late, not that something is wrong: its token was right once. Kept in memory, and only the newest: a
/// worker that is later still gets the answer that any stranger gets.
pub(crate) struct ExpiredTokens {
    oldest_first: VecDeque<JobId>,
    /// The last token of each job. A job that was ended twice stands twice in the row.
    tokens: Map<JobId, (Token, u32)>,
}

impl ExpiredTokens {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { oldest_first: VecDeque::new(), tokens: Map::new(key) }
    }

    /// Remembers the token of an attempt that was ended.
    pub(crate) fn note(&mut self, job: JobId, token: Token) {
        if self.oldest_first.len() == EXPIRED_TOKENS_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
            && let Some((_, times)) = self.tokens.get_mut(oldest)
        {
            *times -= 1;
            if *times == 0 {
                self.tokens.remove(oldest);
            }
        }
        self.oldest_first.push_back(job);
        let known = self.tokens.get_or_insert_with(job, || (token, 0));
        *known = (token, known.1 + 1);
    }

    /// Whether none is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest_first.is_empty()
    }

    /// Whether this was the token of the attempt of `job` that was ended last.
    pub(crate) fn has(&self, job: JobId, token: Option<Token>) -> bool {
        token.is_some() && self.tokens.get(job).map(|(token, _)| *token) == token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_each_with_its_last_token() {
        let mut expired_tokens = ExpiredTokens::new(HashKey::new(1));
        for n in 0..3 * EXPIRED_TOKENS_MAX as u128 {
            // Every other one is a job that was there before.
            let job = JobId(n / 2);
            expired_tokens.note(job, Token(n + 1));
            assert!(expired_tokens.has(job, Some(Token(n + 1))));
            assert!(!expired_tokens.has(job, Some(Token(n))) && !expired_tokens.has(job, None));
        }
        assert!(!expired_tokens.has(JobId(0), Some(Token(2))));
        assert!(expired_tokens.tokens.len() <= EXPIRED_TOKENS_MAX);
    }
}
