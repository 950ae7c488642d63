//! Who may come in, and what for: tokens with their roles, the sessions of browsers, and what becomes of connections when
//! either changes.
//!
//! | file | responsibility |
//! |---|---|
//! | `follow` | connections whose token or session has changed or gone |
//! | `guard` | the tokens and sessions that count, for all shards |
//! | `sessions` | the sessions of browsers |
//! | `shown` | what a client has shown, and what that lets it do |
//! | `slowed` | refusals of tokens that are sent later |
//! | `tag` | tokens and cookies as they are kept |
//! | `tokens` | tokens as settings and files write them |

mod follow;
pub(super) mod guard;
pub(super) mod sessions;
pub(super) mod shown;
pub(super) mod slowed;
pub(super) mod tag;
mod tokens;

/// Whether a setting of tokens is one, before a server is there.
pub fn check_tokens(listed: &str) -> Result<(), String> {
    tokens::read_all(listed, None).map(|_| ())
}
