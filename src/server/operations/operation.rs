//! Long answers under way, and the lines in which they wait for their turns: data only, which imports of the server what such
//! answers consist of.

use crate::protocol::reply::Frame;
use crate::server::bulk_tasks::error_groups::GroupScan;
use crate::server::commands::job_record_list::{JobListing, Show};
use crate::server::scan::page::JobScan;
use crate::server::shard_mail::envelope::Origin;
use crate::server::storage::engine::Fetched;
use crate::server::turn_queue::TurnQueue;
use corq_shards::command::ClientId;
use corq_shards::effect::KnownAs;
use corq_shards::family::How;
use corq_shards::job::id::JobId;
use corq_shards::log_record::location::LogRef;
use corq_shards::queue::listing::DelayedCount;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An answer that is written slice by slice. One per command, so the connections bound their number.
#[derive(Debug)]
pub enum Operation {
    /// Jobs are looked for, to be shown.
    Listing(Box<JobListing>),
    /// Jobs are looked for by a cursor, and become rows as they are found.
    Scan(Box<JobScan>),
    /// Jobs that were found are shown in full.
    Show(Show),
    /// To `GetCountsPerPriority`.
    Priorities(Box<PriorityCount>),
    /// To `Clean`.
    Cleaned(Box<CleanedIds>),
    /// To `GetChildrenValues` and the like.
    ChildValues(Box<ChildValueRead>),
    /// To `DlqGroups`.
    Groups(Box<GroupScan>),
}

/// An answer to `GetCountsPerPriority`.
#[derive(Debug)]
pub struct PriorityCount {
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    pub queue: Box<str>,
    /// In version 3 of the protocol delayed jobs count as well. They are counted first.
    pub delayed: Option<DelayedCount>,
    pub are_delayed_counted: bool,
    /// The last priority that was written; they come from the highest on.
    pub after: Option<i32>,
    pub framing: Frame,
    pub reply: Vec<u8>,
    /// How many there are, and where that is to be said.
    pub rows: u32,
    pub rows_at: usize,
    /// Bytes that the whole answer is expected to have.
    pub expected_bytes: usize,
}

/// An answer to `Clean`.
#[derive(Debug)]
pub struct CleanedIds {
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    /// In slices, which go as they are written.
    pub ids: Arc<Vec<Box<[KnownAs]>>>,
    /// How many slices have been written, and how many of these are gone.
    pub written: usize,
    pub gone: usize,
    pub framing: Frame,
    pub reply: Vec<u8>,
    /// Bytes that the whole answer is expected to have.
    pub expected_bytes: usize,
}

/// An answer about what became of the children of a job.
#[derive(Debug)]
pub struct ChildValueRead {
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    pub job: JobId,
    pub how: How,
    /// The place of the last end that was looked at. Ends that are written again meanwhile come once more.
    pub after: Option<u64>,
    pub shown: BTreeSet<JobId>,
    /// Values written so far; `pieces` holds their text.
    pub count: usize,
    pub pieces: Vec<Vec<u8>>,
    pub bytes: usize,
}

/// Where operations wait, by what they need to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// Room for the answer that a slice begins.
    Listings,
    /// Room as they go on. Where they have taken all there is, the first has its slices before the others.
    Pages,
    /// No more room than they have.
    Begun,
}

impl Line {
    pub const ALL: [Self; 3] = [Self::Listings, Self::Pages, Self::Begun];
}

/// The outcome of a slice.
#[derive(Debug)]
pub enum Sliced {
    /// The answer is written, or refused.
    Done,
    /// There is more to do.
    More(Operation),
    /// These records have to be read first; those have been.
    Reads(Operation, Vec<LogRef>, Vec<Fetched>),
}

impl Operation {
    pub fn origin(&self) -> Origin {
        match self {
            Self::Listing(listing) => listing.origin,
            Self::Scan(page) => page.origin,
            Self::Show(show) => show.origin,
            Self::Priorities(counting) => counting.origin,
            Self::Cleaned(cleaned) => cleaned.origin,
            Self::ChildValues(valuing) => valuing.origin,
            Self::Groups(scan) => scan.origin,
        }
    }

    /// Bytes that the answer has, or is expected to have: they count as taken until it is written. Groups have theirs
    /// reserved where they begin.
    pub fn reserved_bytes(&self) -> usize {
        match self {
            Self::Listing(_) | Self::Groups(_) => 0,
            Self::Scan(page) => page.bytes,
            Self::Show(show) => show.begun.as_ref().map_or(0, |begun| begun.expected_bytes),
            Self::Priorities(counting) => counting.expected_bytes,
            Self::Cleaned(cleaned) => cleaned.expected_bytes,
            Self::ChildValues(valuing) => valuing.bytes,
        }
    }

    pub fn line(&self) -> Line {
        match self {
            Self::Listing(_) => Line::Listings,
            Self::Scan(_) => Line::Pages,
            _ => Line::Begun,
        }
    }
}

impl Sliced {
    /// Bytes that the answer takes from now on.
    pub fn reserved_bytes(&self) -> usize {
        match self {
            Self::Done => 0,
            Self::More(operation) | Self::Reads(operation, ..) => operation.reserved_bytes(),
        }
    }
}

/// The operations of a shard that wait for their turns.
#[derive(Debug, Default)]
pub struct Operations {
    lines: [TurnQueue<Operation>; Line::ALL.len()],
}

impl Operations {
    /// Puts an operation behind the others of its line, or before them.
    pub fn put(&mut self, operation: Operation, goes_first: bool) {
        let (client, line) = (operation.origin().client, operation.line());
        let line = &mut self.lines[line as usize];
        if goes_first {
            line.push_front(client, operation);
        } else {
            line.push_back(client, operation);
        }
    }

    /// The next of a line.
    pub fn pop(&mut self, line: Line) -> Option<Operation> {
        self.lines[line as usize].pop_front()
    }

    /// Takes out those of a client.
    pub fn take_of(&mut self, client: ClientId) -> Vec<Operation> {
        self.lines.iter_mut().flat_map(|line| line.take_of(client, |_| true)).collect()
    }

    /// How many wait in a line.
    pub fn len_of(&self, line: Line) -> usize {
        self.lines[line as usize].len()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lines.iter().map(TurnQueue::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::commands::job_record_list::{Begun, Then, Wanted};
    use corq_io::net::ConnId;
    use corq_shards::queue::listing::{Listing, States};

    fn origin(client: u64) -> Origin {
        let conn = ConnId { index: client as u32, generation: 0 };
        Origin { client: ClientId(client), ..Origin::of_none(1, conn) }
    }

    fn listing(client: u64) -> Operation {
        let listing = Listing::new("q", States::all(), 0, 10);
        let (origin, req_id) = (origin(client), None);
        Operation::Listing(Box::new(JobListing { origin, req_id, listing, then: Then::Show }))
    }

    fn show(client: u64, expected_bytes: usize) -> Operation {
        let (origin, jobs, wanted) = (origin(client), Vec::new(), Wanted::Jobs);
        let mut show = Show { origin, req_id: None, jobs, wanted, begun: None };
        show.begun = Some(Box::new(Begun::new(&show, expected_bytes)));
        Operation::Show(show)
    }

    fn clients(operations: &mut Operations, line: Line) -> Vec<u64> {
        let next = || operations.pop(line).map(|operation| operation.origin().client.0);
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn an_answer_that_waits_for_room_holds_up_none_that_has_it() {
        let mut operations = Operations::default();
        for (operation, goes_first) in
            [(listing(1), false), (show(2, 10), false), (show(3, 10), true), (listing(4), false)]
        {
            operations.put(operation, goes_first);
        }
        assert_eq!(operations.len(), 4);
        assert_eq!(clients(&mut operations, Line::Begun), [3, 2]);
        assert_eq!(clients(&mut operations, Line::Listings), [1, 4]);
        assert_eq!(clients(&mut operations, Line::Pages), [0; 0]);
    }

    #[test]
    fn all_that_a_client_waits_for_is_taken_out_with_what_it_has_reserved() {
        let mut operations = Operations::default();
        for operation in [show(1, 10), listing(1), show(2, 20), show(1, 40), listing(2)] {
            operations.put(operation, false);
        }
        let taken = operations.take_of(ClientId(1));
        assert_eq!(taken.len(), 3);
        assert_eq!(taken.iter().map(Operation::reserved_bytes).sum::<usize>(), 50);
        assert_eq!(clients(&mut operations, Line::Begun), [2]);
        assert_eq!(clients(&mut operations, Line::Listings), [2]);
    }
}
