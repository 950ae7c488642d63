//! Who asks: a connection, one of its requests, and the token that it holds a job by. They tell a shard nothing more.

/// Who asked, for as long as it stays connected. Opaque to a shard; used only to group the leases
/// and waiters of one connection, so that a disconnect can release them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct ClientId(pub u64);

/// Names the request a reply belongs to. Opaque to a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RequestId(pub u64);

/// A lock token as a client showed it. Tokens are random UUIDs and never zero, so a text that is no
/// UUID is carried as zero and fits nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token(pub u128);

impl Token {
    /// Stands for a text that cannot be a token.
    pub const UNREADABLE: Self = Self(0);

    /// Fits every job that is held: for callers that need no token.
    pub const ANY: Self = Self(u128::MAX);

    /// Stands for no token where a job that is locked needs one, in commands that are for others as well.
    pub const LACKING: Self = Self(1);
}

/// Jobs of this shard that a connection holds, and counts of others that it pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Jobs it has now.
    pub active: u64,
    /// Jobs completed.
    pub processed: u64,
    /// Attempts failed.
    pub failed: u64,
}

impl std::ops::AddAssign for Activity {
    fn add_assign(&mut self, other: Self) {
        self.active += other.active;
        self.processed += other.processed;
        self.failed += other.failed;
    }
}
