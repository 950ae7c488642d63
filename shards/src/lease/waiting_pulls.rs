//! Pulls that found nothing and wait: served in the order they came, one job for one waiter.

use crate::caller::{ClientId, RequestId};
use crate::collections::deadline_heap::Timed;
use crate::collections::slab::{Linked, Links, NONE, Slab};
use crate::lease::clients::OfClient;
use crate::lease::owners::OwnerRef;

/// Where a pull stands in a queue that has groups; the default is that of one that takes any job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Whether it wants only jobs without a group.
    pub(crate) plain: bool,
    /// The one group whose jobs it wants, or `NONE`.
    pub(crate) group: u32,
}

impl Default for Place {
    fn default() -> Self {
        Self { plain: false, group: NONE }
    }
}

/// A pull that waits for a job.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// The request to answer.
    pub request: RequestId,
    /// The connection it came by.
    pub client: ClientId,
    /// Index of the queue it waits at.
    pub queue: u32,
    /// At most this many jobs.
    pub count: u32,
    /// Whether the jobs are locked.
    pub locked: bool,
    /// Whether the jobs outlive the connection.
    pub detach: bool,
    /// Life of each lock.
    pub lock_ttl_ms: u32,
    /// The name of its worker.
    pub(crate) owner: OwnerRef,
    /// Where it stands in a queue that has groups.
    pub at: Place,
    /// Pulls that came to wait before it.
    pub since: u64,
    /// Neighbours at the queue.
    pub at_queue: Links,
    /// Neighbours of the same client.
    pub of_client: Links,
    /// Place of its deadline.
    pub timer: u32,
}

impl Default for Waiter {
    fn default() -> Self {
        Self {
            request: RequestId::default(),
            client: ClientId::default(),
            queue: NONE,
            count: 0,
            locked: false,
            detach: false,
            lock_ttl_ms: 0,
            owner: OwnerRef::default(),
            at: Place::default(),
            since: 0,
            at_queue: Links::default(),
            of_client: Links::default(),
            timer: NONE,
        }
    }
}

/// The list of waiters at one queue.
pub struct AtQueue;

impl Linked<AtQueue> for Waiter {
    fn links(&self) -> Links {
        self.at_queue
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.at_queue
    }
}

impl Linked<OfClient> for Waiter {
    fn links(&self) -> Links {
        self.of_client
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.of_client
    }
}

impl Timed for Slab<Waiter> {
    fn place(&mut self, key: u32, place: u32) {
        self[key].timer = place;
    }
}
