//! A group of jobs of a queue: blocking calls.

use std::time::Duration;

use super::runtime::Runtime;
use super::waits_for;
use crate::records::Rate;

/// A group of jobs of a queue: from [`Queue::group`](super::Queue::group).
///
/// ```no_run
/// # fn example(client: corq_client::blocking::Client) -> Result<(), corq_client::Error> {
/// let tenant = client.queue("emails").group("tenant-7");
/// tenant.set_concurrency(2)?;
/// println!("{} wait, {} run", tenant.count()?, tenant.active_count()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) inner: crate::Group,
    pub(super) runtime: Runtime,
}

impl Group {
    /// The id of the group within its queue.
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    /// The queue that the group belongs to.
    pub fn queue(&self) -> &str {
        self.inner.queue()
    }

    waits_for! { crate::Group;
        fn count(&self) -> u64;
        fn active_count(&self) -> u64;
        fn pause(&self) -> bool;
        fn resume(&self) -> bool;
        fn is_paused(&self) -> bool;
        fn hold(&self, duration: Duration) -> ();
        fn set_concurrency(&self, jobs: u64) -> ();
        fn concurrency(&self) -> Option<u64>;
        fn clear_concurrency(&self) -> bool;
        fn set_rate_limit(&self, jobs: u64, per: Duration) -> ();
        fn rate_limit(&self) -> Option<Rate>;
        fn clear_rate_limit(&self) -> bool;
        fn rate_limit_ttl(&self, jobs: Option<u64>) -> Option<Duration>;
        fn set_weight(&self, jobs: u32) -> ();
        fn weight(&self) -> u64;
    }
}
