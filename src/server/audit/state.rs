//! State of a shard for the audit log.
//!
//! A ground type: of the server it imports the envelope and the ground types beside it only.

use super::repeats::Repeats;
use super::tickets::Tickets;
use crate::audit::entry::{Entry, UNKNOWN};
use crate::audit::writer::{Answer, AuditLog};
use crate::server::shard_mail::envelope::{Origin, Ticket};
use corq_io::net::ConnId;
use std::sync::atomic::Ordering::Relaxed;

/// Reads of the log that may be under way at a time.
pub const READERS_MAX: usize = 16;

/// A client that waits for entries of the log.
pub struct Reader {
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    pub answer: Answer,
}

/// State of a shard for the audit log.
pub struct AuditState {
    /// The way to the log; none if there is none.
    pub log: Option<AuditLog>,
    pub readers: Vec<Reader>,
    tickets: Tickets,
    repeats: Repeats,
}

impl AuditState {
    pub fn new(log: Option<AuditLog>) -> Self {
        let (readers, tickets, repeats) = (Vec::new(), Tickets::default(), Repeats::default());
        Self { log, readers, tickets, repeats }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.log.is_some()
    }

    /// Writes an entry.
    pub fn note(&self, entry: Entry) {
        if let Some(log) = &self.log {
            log.note(entry);
        }
    }

    /// Has an entry wait for the answer to its command.
    pub fn begin(&mut self, conn: ConnId, entry: Entry, now_ms: u64) -> Ticket {
        match self.tickets.begin(conn, Box::new(entry), now_ms) {
            Ok(ticket) => ticket,
            Err(entry) => {
                self.note(entry.ended(UNKNOWN));
                Ticket::NONE
            }
        }
    }

    /// The entry that an answer is waited for with.
    pub fn end(&mut self, ticket: Ticket, conn: ConnId) -> Option<Entry> {
        self.tickets.end(ticket, conn)
    }

    /// Writes an entry of what may come again and again.
    pub fn note_repeated(&mut self, entry: Entry, now_ms: u64) {
        if self.is_on()
            && let Some(entry) = self.repeats.admit(entry, now_ms)
        {
            self.note(entry);
        }
    }

    /// Writes what is due. Returns when to come again, in milliseconds since the epoch.
    pub fn note_due(&mut self, now_ms: u64) -> u64 {
        for entry in self.repeats.take(now_ms) {
            self.note(entry);
        }
        for entry in self.tickets.take_late(now_ms) {
            self.note(entry.ended(UNKNOWN));
        }
        self.repeats.next_ms().min(self.tickets.next_ms())
    }

    /// Entries written and lost, and the size of the log.
    pub fn written(&self) -> [u64; 3] {
        let counters = self.log.as_ref().map(AuditLog::counters);
        counters.map_or([0; 3], |counters| {
            [&counters.written, &counters.lost, &counters.bytes].map(|it| it.load(Relaxed))
        })
    }

    /// Entries that wait for an answer, and those that were left out.
    pub fn counts(&self) -> (u64, u64) {
        (self.tickets.len() as u64, self.repeats.left_out)
    }
}

/// The end of a shard: what still waits is written as it is.
impl Drop for AuditState {
    fn drop(&mut self) {
        for entry in self.tickets.take_all() {
            self.note(entry.ended(UNKNOWN));
        }
        for entry in self.repeats.take(u64::MAX) {
            // Replace `u64::MAX`, which only ended the minute.
            let at_ms = crate::audit::writer::now_ms();
            self.note(Entry { at_ms, ..entry });
        }
    }
}
