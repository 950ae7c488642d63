//! The audit log.

use crate::wire::record::record;

record! {
    /// An entry of the audit log: who did what that changes more than a job, or was not let in.
    AuditEntry {
        /// The number of the entry.
        seq: u64 = "seq",
        /// When, as RFC 3339.
        time: String = "time",
        /// By which way: `tcp`, `http`, `ws`, `page` or `server`.
        face: String = "face",
        /// The address of the client, or `unix`.
        peer: Option<String> = "peer",
        /// The role of its token.
        role: Option<String> = "role",
        /// The short name of its token.
        token: Option<String> = "token",
        /// The command, or what else it was.
        command: String = "command",
        /// The queue.
        queue: Option<String> = "queue",
        /// Further details.
        about: Option<String> = "about",
        /// How many jobs it was done to.
        count: Option<u64> = "count",
        /// `ok`, the code of an error, or `unknown`.
        outcome: String = "outcome",
        /// How often the same came within the minute without an entry of its own.
        repeated: u64 = "repeated",
    }
}

record! {
    /// A page of the audit log, newest first.
    AuditPage {
        /// The entries.
        entries: Vec<AuditEntry> = "entries",
        /// Where older ones begin, if there may be any.
        next: Option<u64> = "next",
    }
}
