//! Who holds which active job, until when, and under which token.
//!
//! | file | responsibility |
//! |---|---|
//! | `ack` | acknowledge, fail, renew |
//! | `backoff` | when the next attempt begins |
//! | `expired_tokens` | tokens of attempts that have ended |
//! | `group_scans` | queues where pulls wait until all groups have been looked at |
//! | `pull` | delivery |
//! | `token_stream` | lock tokens that cannot be guessed |
//! | `waiting_pulls` | pulls that wait for a job |

pub(crate) mod ack;
pub(crate) mod backoff;
pub(crate) mod expired_tokens;
pub(crate) mod group_scans;
pub(crate) mod pull;
pub mod token_stream;
pub(crate) mod waiting_pulls;

use crate::collections::deadline_heap::Timed;
use crate::collections::slab::{Linked, Links, NONE, Slab};
use crate::command::{ClientId, Token};

/// An unlocked job counts as stalled after this long without a sign of life.
pub const UNLOCKED_TTL_MS: u32 = 30_000;

/// The hold of one worker on one job.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Index of the job.
    pub job: u32,
    /// The connection that pulled it, if it is still there and the job goes back when it leaves.
    pub client: Option<ClientId>,
    /// The connection that pulled it, for as long as the lease lasts. None after a restart, and for
    /// a job that stays when its connection goes.
    pub puller: Option<ClientId>,
    /// What the holder must show; `None` for a job pulled without an owner.
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
            links: Links::default(),
            timer: NONE,
            marked: false,
        }
    }
}

/// The list of what one client holds or waits for.
pub struct OfClient;

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
