//! A queue by its name: blocking calls.

use std::time::Duration;

use super::runtime::Runtime;
use super::{Batcher, Group, Pulled, waits_for};
use crate::error::Error;
use crate::records::{
    CountsPerPriority, DlqRules, DlqStats, ErrorGroups, GroupInfo, Job, JobCounts, JobState,
    QueueLimits, StallRules,
};
use crate::views::{Found, Heatmap, History, JobPage, QueueBoard};
use crate::{
    BatcherOptions, DlqConfig, JobBatch, JobFilter, JobOptions, Listing, PullOptions, Search, Span,
    StallConfig,
};

/// A queue of a server: from [`Client::queue`](super::Client::queue).
///
/// ```no_run
/// # fn example(client: corq_client::blocking::Client) -> Result<(), corq_client::Error> {
/// let emails = client.queue("emails");
/// emails.push("hello")?;
/// println!("{} wait", emails.counts()?.waiting);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    pub(super) inner: crate::Queue,
    pub(super) runtime: Runtime,
}

impl Queue {
    /// The name of the queue.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Gathers jobs that come one by one, as [`crate::Queue::batcher`]; in a thread of its own.
    pub fn batcher(&self, options: BatcherOptions) -> Batcher {
        Batcher::new(self, options)
    }

    /// Pulls jobs to be worked on by hand, as [`crate::Queue::pull`].
    pub fn pull(&self, count: u32, options: &PullOptions) -> Result<Vec<Pulled>, Error> {
        let pulled = self.runtime.wait(self.inner.pull(count, options))?.into_iter();
        Ok(pulled.map(|inner| Pulled { inner, runtime: self.runtime.clone() }).collect())
    }

    /// A group of this queue, by the group's id. Nothing is sent.
    pub fn group(&self, id: impl Into<String>) -> Group {
        Group { inner: self.inner.group(id), runtime: self.runtime.clone() }
    }

    waits_for! { crate::Queue;
        fn push[P](&self, data: &P) -> String;
        fn push_with[P](&self, data: &P, options: &JobOptions) -> String;
        fn push_many(&self, jobs: &JobBatch) -> Vec<String>;
        fn jobs(&self, which: &Listing) -> Vec<Job>;
        fn page(&self, which: &JobFilter) -> JobPage;
        fn search(&self, what: &Search) -> Found;
        fn history(&self, span: Span) -> History;
        fn heatmap(&self, span: Span) -> Heatmap;
        fn dashboard(&self, jobs: Option<u32>) -> QueueBoard;
        fn counts(&self) -> JobCounts;
        fn counts_per_priority(&self) -> CountsPerPriority;
        fn count(&self) -> u64;
        fn pause(&self) -> ();
        fn resume(&self) -> ();
        fn is_paused(&self) -> bool;
        fn drain(&self) -> u64;
        fn obliterate(&self) -> ();
        fn clean(&self, grace: Duration, state: Option<JobState>, limit: u32) -> Vec<String>;
        fn promote(&self, count: Option<u64>) -> u64;
        fn dead_letters(&self, count: u32) -> Vec<Job>;
        fn dead_letter_groups(&self, limit: u32) -> ErrorGroups;
        fn retry_dead_letter(&self, id: &str) -> bool;
        fn retry_dead_letters(&self, count: Option<u64>) -> u64;
        fn remove_dead_letter(&self, id: &str) -> bool;
        fn purge_dead_letters(&self) -> u64;
        fn retry_completed(&self, count: Option<u64>) -> u64;
        fn set_rate_limit(&self, jobs: u32, per: Duration, ttl: Option<Duration>) -> ();
        fn clear_rate_limit(&self) -> ();
        fn set_concurrency(&self, jobs: u32) -> ();
        fn clear_concurrency(&self) -> ();
        fn limits(&self) -> QueueLimits;
        fn groups(&self, limit: u32, after: Option<&str>) -> Vec<GroupInfo>;
        fn count_in_groups(&self) -> u64;
        fn set_dlq_config(&self, config: &DlqConfig) -> ();
        fn dlq_config(&self) -> DlqRules;
        fn dlq_stats(&self) -> DlqStats;
        fn set_stall_config(&self, config: &StallConfig) -> ();
        fn stall_config(&self) -> StallRules;
        fn deduplication_job_id(&self, key: &str) -> Option<String>;
        fn remove_deduplication_key(&self, key: &str) -> bool;
    }
}
