//! Jobs pulled by hand.

use std::ops::Deref;
use std::time::Duration;

use super::runtime::Runtime;
use super::waits_for;
use crate::error::Error;
use crate::records::Job;
use crate::{Applied, Failure, LogLevel};

/// A job pulled by hand, from [`Queue::pull`](super::Queue::pull). The job itself is what it dereferences to.
///
/// ```no_run
/// # fn example(client: corq_client::blocking::Client) -> Result<(), corq_client::Error> {
/// use corq_client::PullOptions;
///
/// for job in client.queue("sums").pull(10, &PullOptions::new())? {
///     let (a, b): (i64, i64) = job.data()?;
///     job.complete(&(a + b))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pulled {
    pub(super) inner: crate::Pulled,
    pub(super) runtime: Runtime,
}

impl Deref for Pulled {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.inner
    }
}

impl Pulled {
    /// Lock token of the job: the server takes an outcome only together with this token.
    pub fn token(&self) -> &str {
        self.inner.token()
    }

    /// The attempt has failed, as [`crate::Pulled::fail`].
    pub fn fail(&self, failure: impl Into<Failure>) -> Result<Applied, Error> {
        self.runtime.wait(self.inner.fail(failure))
    }

    waits_for! { crate::Pulled;
        fn complete[P](&self, result: &P) -> Applied;
        fn give_back(&self) -> ();
        fn wait_for_children(&self) -> bool;
        fn renew(&self) -> ();
        fn extend_lock(&self, duration: Duration) -> ();
        fn set_progress(&self, progress: f64, message: Option<&str>) -> ();
        fn log(&self, level: LogLevel, message: &str) -> ();
    }
}
