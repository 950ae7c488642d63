//! Client memory: what clients can make a shard hold, as one ledger. `CLIENT_MEMORY_MB` is for the process, each shard has an
//! equal part of it, and each account a fixed share of that: requests that come have room however many replies are unread,
//! and no counter is shared between shards. A shard with the least that may be set holds a batch of the greatest length.
//!
//! A ground type: it imports nothing of the server.

/// Parts of a shard's memory, of which each account has some.
const PARTS: usize = 128;

/// The memory of clients that one shard may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientMemory {
    shard_bytes: usize,
}

/// Makes for each account a method that tells its bound in bytes, and the table of all.
macro_rules! accounts {
    ($($(#[$about:meta])* $name:ident: $parts:literal,)+) => {
        /// The accounts by their names in metrics, with their shares of [`PARTS`].
        pub const ACCOUNTS: [(&str, usize); [$($parts),+].len()] = [$((stringify!($name), $parts)),+];

        impl ClientMemory {
            $($(#[$about])* pub const fn $name(self) -> usize { self.shard_bytes / PARTS * $parts })+

            /// The bounds of all accounts, in the order of [`ACCOUNTS`].
            pub fn bounds(self) -> [usize; ACCOUNTS.len()] {
                [$(self.$name()),+]
            }
        }
    };
}

accounts! {
    /// Requests that have not come whole, or wait to be begun: frames, messages, heads and bodies.
    input: 48,
    /// Requests that have not come whole of clients that have shown no token, where there are tokens.
    strangers: 2,
    /// Handshakes of TLS that are not over.
    handshakes: 2,
    /// Frames of commands that go to other shards or take several steps; beyond them no command begins.
    commands: 16,
    /// Frames of requests that are deferred.
    deferred: 2,
    /// Frames of commands on schedules that wait for others.
    schedules: 2,
    /// Replies and events that clients have not taken.
    output: 32,
    /// Replies that wait to become JSON, beyond the output; beyond them no command begins.
    texts: 16,
    /// Texts that replies become, each as long as it can be; beyond them no other is begun.
    json: 2,
    /// Lists that are being written; beyond them no other is begun.
    lists: 1,
    /// Large replies on their way to other shards; beyond them no other is begun.
    in_transit: 1,
    /// Replies that wait for the disk; beyond them no other is begun.
    disk_reads: 1,
    /// Values kept from one turn to the next.
    shared_values: 2,
}

impl ClientMemory {
    /// The part of each of so many shards in what all have together.
    pub const fn new(process_mb: u64, shards: usize) -> Self {
        Self { shard_bytes: (process_mb << 20) as usize / shards }
    }

    /// Bytes of all accounts of the shard.
    pub const fn shard_bytes(self) -> usize {
        self.shard_bytes
    }

    /// Output beyond which a connection is given no more before it has taken what it has. As much may be on its way to other
    /// shards before no command begins.
    pub const fn tight_output(self) -> usize {
        self.output() / 2
    }

    /// Events that wait for subscribers, a part of the output; beyond them the oldest go.
    pub const fn events(self) -> usize {
        self.output() / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::limits::BATCH_BYTES_MAX;

    #[test]
    fn the_shares_of_all_accounts_are_no_more_than_there_is() {
        let parts: usize = ACCOUNTS.iter().map(|(_, parts)| parts).sum();
        assert!(parts <= PARTS, "{parts} of {PARTS}");
    }

    #[test]
    fn shards_have_equal_parts_and_the_smallest_has_room_for_a_batch() {
        let memory = ClientMemory::new(2048, 2);
        assert_eq!((memory.shard_bytes(), memory.output()), (1 << 30, 256 << 20));
        assert_eq!(
            (memory.input(), memory.strangers(), memory.lists()),
            (384 << 20, 16 << 20, 8 << 20)
        );
        assert_eq!((memory.tight_output(), memory.events()), (128 << 20, 64 << 20));
        assert!(ClientMemory::new(128, 2).input() > BATCH_BYTES_MAX);
    }
}
