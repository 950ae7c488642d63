//! A job by its id: blocking calls.

use std::collections::BTreeMap;
use std::time::Duration;

use super::runtime::Runtime;
use super::waits_for;
use crate::records::{Job, JobState, LogLine, Progress};
use crate::views::{Explanation, FlowView, JobDetail};
use crate::{Ending, LogLevel, Raw};

/// A job that the server knows, or may know: from [`Client::job`](super::Client::job).
///
/// ```no_run
/// # fn example(client: corq_client::blocking::Client) -> Result<(), corq_client::Error> {
/// use std::time::Duration;
///
/// let id = client.queue("sums").push(&(1, 2))?;
/// println!("{:?}", client.job(id).wait(Duration::from_secs(30))?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct JobHandle {
    pub(super) inner: crate::JobHandle,
    pub(super) runtime: Runtime,
}

impl JobHandle {
    /// The id of the job.
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    waits_for! { crate::JobHandle;
        fn get(&self) -> Option<Job>;
        fn explain(&self) -> Explanation;
        fn detail(&self) -> JobDetail;
        fn flow(&self, depth: u32, limit: u32) -> FlowView;
        fn state(&self) -> JobState;
        fn result(&self) -> Option<Raw>;
        fn wait(&self, patience: Duration) -> Option<Ending>;
        fn progress(&self) -> Progress;
        fn set_progress(&self, progress: f64, message: Option<&str>) -> ();
        fn logs(&self) -> Vec<LogLine>;
        fn log(&self, level: LogLevel, message: &str) -> ();
        fn clear_logs(&self, keep: u32) -> ();
        fn cancel(&self) -> ();
        fn update[P](&self, data: &P) -> ();
        fn change_priority(&self, priority: i64) -> ();
        fn promote(&self) -> ();
        fn change_delay(&self, delay: Duration) -> ();
        fn move_to_delayed(&self, delay: Duration) -> ();
        fn move_to_wait(&self) -> ();
        fn discard(&self) -> ();
        fn remove_deduplication_key(&self) -> bool;
        fn children_values(&self) -> BTreeMap<String, Raw>;
        fn failed_children(&self) -> BTreeMap<String, String>;
        fn ignored_children(&self) -> BTreeMap<String, String>;
        fn set_parent(&self, parent: &str) -> ();
        fn leave_parent(&self) -> bool;
        fn remove_unprocessed_children(&self) -> ();
    }
}
