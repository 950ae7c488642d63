//! The rules of the product, the flaws that are planted in them, and the bounds of a search.

use super::state::{FENCE, Fence, LEASE, Life, Node, State, Statement};

/// How the standby of the database receives commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standby {
    /// A commit is answered once the standby has it.
    Synchronous,
    /// The standby lags.
    Asynchronous,
}

/// A rule that is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Every rule is kept.
    None,
    /// An unknown outcome is settled by a look alone.
    SettlesByRead,
    /// An unknown outcome is settled by a write and a look behind it.
    LooksBehindWrite,
    /// A wait for the standby that was cancelled is taken for a commit.
    WarningIsCommit,
    /// A row is sent again with other bytes, and looked for by its place alone.
    OtherBytes,
    /// An append does not ask for the row before.
    NoChain,
    /// An append does not ask for the claim.
    NoFence,
    /// A claim leaves the epoch and the nonce as they are.
    SameFence,
    /// The epoch alone tells a claim from others.
    EpochAlone,
    /// A death changes the epoch and leaves the nonce.
    DeathKeepsNonce,
    /// A reply leaves once the row is in the files.
    EarlyReply,
    /// A reply does not wait for the rows that were in the files before the claim.
    SpeaksOfTail,
    /// A node speaks however long ago its last beat was.
    NoSelfFence,
    /// The lease counts from the answer to a beat.
    LeaseFromAnswer,
    /// A beat does not ask for the incarnation.
    BeatOfTheDead,
    /// A process whose end is wanted speaks without a lease.
    SpeaksAtEnd,
    /// A node is declared dead without having been watched for a whole lease.
    HastyDeath,
    /// A watch goes on over another connection.
    WatchGoesOn,
    /// A watch counts from before the question, not from behind the answer.
    WatchFromQuestion,
    /// Files keep what they have behind the rows, though they lack the last row.
    KeepsAnyTail,
    /// Files keep nothing behind the rows.
    KeepsNoTail,
    /// Rows that the database has lost are not put back.
    PutsNothingBack,
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub rows: usize,
    pub claims: u8,
    /// Both nodes begin as one each.
    pub processes: u8,
}

/// The rules of a search.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub standby: Standby,
    pub flaw: Flaw,
    pub bounds: Bounds,
    /// A claim that the database has lost, after it was answered, excuses what follows from that.
    pub excuses_undone: bool,
}

impl Rules {
    /// Whether a flaw is planted.
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// Whether the standby is synchronous.
    pub fn is_synchronous(&self) -> bool {
        self.standby == Standby::Synchronous
    }

    /// The nonce that a process draws.
    pub fn nonce(&self, process: u8) -> u8 {
        if self.has(Flaw::EpochAlone) { 0 } else { process }
    }

    /// Whether a commit is answered. Once a synchronous standby receives no more, none is.
    pub fn answers(&self, state: &State) -> bool {
        !self.is_synchronous() || state.standby.is_none()
    }

    /// Whether a node may answer from memory. The lease is looked at before a turn: a turn is taken to be shorter than the
    /// time from the fence to the end of the lease.
    pub fn speaks(&self, node: &Node) -> bool {
        let is_good = node.lease_ticks < FENCE || node.ending || self.has(Flaw::NoSelfFence);
        node.life == Life::Owner && is_good
    }

    /// Whether the owner counts as dead that was watched for so long.
    pub fn is_over(&self, watched_ticks: u8) -> bool {
        watched_ticks >= LEASE || self.has(Flaw::HastyDeath)
    }

    /// The right that a claim gives.
    pub fn claimed(&self, before: Fence, nonce: u8) -> Fence {
        if self.has(Flaw::SameFence) {
            return before;
        }
        Fence { epoch: before.epoch + 1, nonce }
    }

    /// The right of no claim, once the owner is dead or has given the log back.
    pub fn freed(&self, before: Fence) -> Fence {
        let nonce = if self.has(Flaw::DeathKeepsNonce) { before.nonce } else { 0 };
        Fence { epoch: before.epoch + 1, nonce }
    }

    /// Whether a statement finds what it asks for.
    pub fn fits(&self, state: &State, statement: Statement) -> bool {
        let at = usize::from(statement.place);
        let rows = state.primary.rows;
        let is_behind = |before: usize| rows[before].content == statement.row.after;
        let is_chained = at.checked_sub(1).is_none_or(is_behind) || self.has(Flaw::NoChain);
        let is_newest = state.primary.part.fence == statement.fence || self.has(Flaw::NoFence);
        rows[at].content == 0 && is_chained && is_newest
    }
}
