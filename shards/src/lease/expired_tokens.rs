//! Tokens of attempts that the shard itself ended because they took too long. A worker that answers for
//! such a job afterwards is told that it is too late, not that something is wrong: its token was right once.
//!
//! Kept in memory, and only the newest: whoever is later still is told what any stranger is told.

use crate::collections::hash_key::HashKey;
use crate::collections::table::Map;
use crate::command::Token;
use crate::job::id::JobId;
use std::collections::VecDeque;

/// Tokens remembered.
pub const RETIRED_MAX: usize = 10_000;

/// See the module.
pub(crate) struct Retired {
    oldest_first: VecDeque<JobId>,
    /// The last token of each job. A job that was ended twice stands twice in the row.
    tokens: Map<JobId, (Token, u32)>,
}

impl Retired {
    pub(crate) fn new(key: HashKey) -> Self {
        Self { oldest_first: VecDeque::new(), tokens: Map::new(key) }
    }

    /// Remembers the token of an attempt that was ended.
    pub(crate) fn note(&mut self, job: JobId, token: Token) {
        if self.oldest_first.len() == RETIRED_MAX
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
        let mut retired = Retired::new(HashKey::new(1));
        for n in 0..3 * RETIRED_MAX as u128 {
            // Every other one is a job that was there before.
            let job = JobId(n / 2);
            retired.note(job, Token(n + 1));
            assert!(retired.has(job, Some(Token(n + 1))));
            assert!(!retired.has(job, Some(Token(n))) && !retired.has(job, None));
        }
        assert!(!retired.has(JobId(0), Some(Token(2))));
        assert!(retired.tokens.len() <= RETIRED_MAX);
    }
}
