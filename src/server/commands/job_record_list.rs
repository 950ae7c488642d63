//! Jobs that are looked for or to be shown in full, and lists of them on their way: data only.

use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::reply::{self, Frame};
use crate::server::dashboard::queue_page::QueuePage;
use crate::server::shard_mail::envelope::Origin;
use corq_shards::Shard;
use corq_shards::job::State;
use corq_shards::job::id::JobId;
use corq_shards::queue::listing::Listing;
use rmp::Marker;

/// Jobs that are looked for.
#[derive(Debug)]
pub struct JobListing {
    /// Who asked.
    pub origin: Origin,
    pub req_id: Option<Box<[u8]>>,
    pub listing: Listing,
    pub then: Then,
}

/// Use of the jobs that are found.
#[derive(Debug)]
pub enum Then {
    /// They are shown in full.
    Show,
    /// They are a part of the page of their queue.
    QueuePage(Box<QueuePage>),
}

/// Jobs to be shown.
#[derive(Debug)]
pub struct Show {
    /// Who asked.
    pub origin: Origin,
    /// The client's name for the request.
    pub req_id: Option<Box<[u8]>>,
    /// Which; those that are gone by now are left out.
    pub jobs: Vec<JobId>,
    /// In which form.
    pub wanted: Wanted,
    /// How far that is, if it takes several turns.
    pub begun: Option<Box<Begun>>,
}

/// A list that is being written.
#[derive(Debug)]
pub struct Begun {
    /// The first of the jobs that have not been looked at.
    pub(super) next: usize,
    /// How many have been written, and where in the reply that is to be said.
    pub(super) count: u32,
    pub(super) count_at: usize,
    pub(super) framing: Frame,
    pub(super) reply: Vec<u8>,
    /// Entries beside the reply, of a list of dead letters: one for each job.
    pub(super) entries: Vec<u8>,
    /// How many bytes of these are behind the jobs in the reply already.
    pub(super) joined: usize,
    /// Bytes that the whole answer is expected to have.
    pub(crate) expected_bytes: usize,
}

impl Begun {
    pub(crate) fn new(show: &Show, expected_bytes: usize) -> Self {
        let mut reply = Vec::with_capacity(expected_bytes.min(FRAME_BYTES_MAX));
        let framing = Frame::begin(&mut reply);
        let letters = show.wanted == Wanted::DeadLetters;
        let mut map = reply::begin(&mut reply, true, show.req_id.as_deref());
        // Jobs may be gone by the time they are looked at, so their number comes at the end.
        map.key("jobs").raw(&[Marker::Array32.to_u8(), 0, 0, 0, 0]);
        // The entries of dead letters follow all of the jobs.
        map.count_later(u16::from(letters));
        drop(map);
        let count_at = reply.len() - 4;
        // Memory that is not written to costs nothing, and moving what is written would.
        let entries = Vec::with_capacity(if letters { expected_bytes } else { 0 });
        let (next, count, joined) = (0, 0, 0);
        Self { next, count, count_at, framing, reply, entries, joined, expected_bytes }
    }
}

/// The form in which jobs are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// A single job.
    Job,
    Jobs,
    /// A list, and what there is to say of each as one of a dead-letter queue beside it.
    DeadLetters,
}

impl Wanted {
    /// The index of a job, if it can be shown so. Between the search for it and its answer it may have gone,
    /// or have left the dead-letter queue.
    pub(super) fn find(self, shard: &Shard, id: JobId) -> Option<u32> {
        let is_there =
            |job: &u32| self != Self::DeadLetters || shard.view(*job).job.state == State::Failed;
        shard.find(id).filter(is_there)
    }
}
