//! Entries whose commands are under way. An answer finds its entry by the ticket that travels with the request; an entry whose
//! answer does not come is written without it in the end.
//!
//! A ground type: of the server it imports the envelope only.

use crate::audit::entry::Entry;
use crate::server::shard_mail::envelope::Ticket;
use corq_io::net::ConnId;

/// Entries that may wait at a time. The next is written at once, its outcome unknown.
pub const TICKETS_MAX: usize = 4096;

/// How long an answer is waited for: longer than any command takes.
const WAIT_MS: u64 = 60 * 60 * 1000;

/// How often it is looked which have waited so long.
const LOOK_MS: u64 = 60 * 1000;

/// An entry whose command is under way.
#[derive(Debug)]
struct Waiting {
    conn: ConnId,
    began_ms: u64,
    entry: Box<Entry>,
}

/// Entries of a shard whose commands are under way.
#[derive(Debug, Default)]
pub struct Tickets {
    places: Vec<Option<Waiting>>,
    free: Vec<u16>,
    /// When to look next, if any wait.
    look_ms: u64,
}

impl Tickets {
    /// Has an entry wait for an answer to a connection. Gives it back if too many wait.
    pub fn begin(
        &mut self,
        conn: ConnId,
        entry: Box<Entry>,
        now_ms: u64,
    ) -> Result<Ticket, Box<Entry>> {
        if self.len() == 0 {
            self.look_ms = now_ms + LOOK_MS;
        }
        let waiting = Waiting { conn, began_ms: now_ms, entry };
        if let Some(place) = self.free.pop() {
            self.places[usize::from(place)] = Some(waiting);
            return Ok(Ticket(place + 1));
        }
        if self.places.len() >= TICKETS_MAX {
            return Err(waiting.entry);
        }
        self.places.push(Some(waiting));
        Ok(Ticket(self.places.len() as u16))
    }

    /// The entry of an answer, unless that comes late and the place is another's.
    pub fn end(&mut self, ticket: Ticket, conn: ConnId) -> Option<Entry> {
        let place = ticket.0.checked_sub(1)?;
        let waiting = self.places.get_mut(usize::from(place))?;
        let waiting = waiting.take_if(|waiting| waiting.conn == conn)?;
        self.free.push(place);
        Some(*waiting.entry)
    }

    /// Takes the entries that have waited too long.
    pub fn take_late(&mut self, now_ms: u64) -> Vec<Entry> {
        if self.len() == 0 || now_ms < self.look_ms {
            return Vec::new();
        }
        self.look_ms = now_ms + LOOK_MS;
        self.take_begun_before(now_ms.saturating_sub(WAIT_MS))
    }

    /// All of them.
    pub fn take_all(&mut self) -> Vec<Entry> {
        self.take_begun_before(u64::MAX)
    }

    fn take_begun_before(&mut self, until_ms: u64) -> Vec<Entry> {
        let mut taken = Vec::new();
        for (place, waiting) in self.places.iter_mut().enumerate() {
            if let Some(late) = waiting.take_if(|waiting| waiting.began_ms < until_ms) {
                self.free.push(place as u16);
                taken.push(*late.entry);
            }
        }
        taken
    }

    /// When to look next.
    pub fn next_ms(&self) -> u64 {
        if self.len() == 0 { u64::MAX } else { self.look_ms }
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::audit::entry::Who;

    fn conn(generation: u32) -> ConnId {
        ConnId { index: 1, generation }
    }

    fn entry(at_ms: u64) -> Box<Entry> {
        Box::new(Entry::new(at_ms, Who::SERVER, "Pause"))
    }

    #[test]
    fn an_answer_finds_its_own_entry_and_one_that_comes_late_finds_none() {
        let mut tickets = Tickets::default();
        let first = tickets.begin(conn(1), entry(1), 0).unwrap();
        let second = tickets.begin(conn(1), entry(2), 0).unwrap();
        assert!(first != Ticket::NONE && first != second);
        assert_eq!(tickets.end(second, conn(1)).unwrap().at_ms, 2);
        let third = tickets.begin(conn(2), entry(3), 0).unwrap();
        assert_eq!(third, second, "places are used again");
        assert_eq!(tickets.end(second, conn(1)), None);
        assert_eq!(tickets.end(Ticket::NONE, conn(1)), None);
        assert_eq!(tickets.end(third, conn(2)).unwrap().at_ms, 3);
        assert_eq!((tickets.len(), tickets.take_all().len(), tickets.next_ms()), (1, 1, u64::MAX));
    }

    #[test]
    fn no_more_wait_than_may_and_none_for_ever() {
        let mut tickets = Tickets::default();
        for number in 0..TICKETS_MAX as u64 {
            assert!(tickets.begin(conn(1), entry(number), number).is_ok());
        }
        assert_eq!(tickets.begin(conn(1), entry(9), 0), Err(entry(9)));
        assert!(tickets.take_late(WAIT_MS / 2).is_empty());
        let late = tickets.take_late(WAIT_MS + 10);
        assert_eq!((late.len(), tickets.len()), (10, TICKETS_MAX - 10));
        assert!(tickets.begin(conn(1), entry(9), WAIT_MS).is_ok());
    }
}
