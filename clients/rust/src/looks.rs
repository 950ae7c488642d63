//! Looking at a server: pages of lists, one job explained, figures over time, dashboards.

use crate::client::Client;
use crate::error::Error;
use crate::events::Samples;
use crate::handle::JobHandle;
use crate::queue::Queue;
use crate::selection::{JobFilter, QueueListing, Search, Span, Watching};
use crate::views::{
    AuditPage, Explanation, Finding, FlowView, Found, Heatmap, History, JobDetail, JobPage,
    Overview, QueueBoard, QueuePage, QueueTile, Setting, ShardInfo, StorageStatus, Whoami,
    WorkerPage,
};
use crate::wire::request::Request;

impl Client {
    /// A page of queues, sorted, with their figures.
    ///
    /// ```no_run
    /// use corq_client::{QueueListing, QueueSort};
    ///
    /// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
    /// let longest = QueueListing::new().prefix("mail-").sort(QueueSort::Waiting).limit(10);
    /// for queue in client.queue_page(&longest).await?.queues {
    ///     println!("{} has {} waiting, the oldest since {:?}", queue.name, queue.waiting, queue.oldest_waiting_ms);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn queue_page(&self, which: &QueueListing) -> Result<QueuePage, Error> {
        self.ask(which.request()).await?.record()
    }

    /// A page of jobs of all queues, by their payloads. Follow `next` until there is none.
    pub async fn search(&self, what: &Search) -> Result<Found, Error> {
        self.ask(what.add_to(Request::repeatable("Search"))?).await?.record()
    }

    /// A page of workers in the order of their ids, with jobs that they have: of those that registered for a queue or of all,
    /// up to 1000, behind the one called `after`.
    pub async fn worker_page(
        &self,
        queue: Option<&str>,
        after: Option<&str>,
        limit: u32,
    ) -> Result<WorkerPage, Error> {
        let request = Request::repeatable("ListWorkers")
            .opt_str("queue", queue)
            .opt_str("after", after)
            .uint("limit", limit.into());
        self.ask(request).await?.read("data")
    }

    /// Figures of the whole server over a span of the last day.
    pub async fn history(&self, span: Span) -> Result<History, Error> {
        self.ask(span.add_to(Request::repeatable("History"))).await?.read("data")
    }

    /// How long jobs waited, of all shards or of one.
    pub async fn heatmap(&self, shard: Option<u32>, span: Span) -> Result<Heatmap, Error> {
        let request = Request::repeatable("Heatmap").opt_uint("shard", shard.map(u64::from));
        self.ask(span.add_to(request)).await?.read("data")
    }

    /// The shards: how busy each core is, and with what.
    pub async fn shards(&self) -> Result<Vec<ShardInfo>, Error> {
        self.ask(Request::repeatable("Shards")).await?.within("data", "shards")
    }

    /// Watches the figures of the server, on a connection of its own.
    pub async fn watch(&self, what: &Watching) -> Result<Samples, Error> {
        Samples::listen(self.pool.settings.clone(), what).await
    }

    /// The whole server for a dashboard.
    pub async fn dashboard(&self) -> Result<Overview, Error> {
        self.ask(Request::repeatable("DashboardOverview")).await?.read("data")
    }

    /// All queues for a dashboard.
    pub async fn dashboard_queues(&self) -> Result<Vec<QueueTile>, Error> {
        self.ask(Request::repeatable("DashboardQueues")).await?.within("data", "queues")
    }

    /// Findings of the server about itself and its machine. For admins.
    pub async fn doctor(&self) -> Result<Vec<Finding>, Error> {
        self.ask(Request::repeatable("Doctor")).await?.within("data", "checks")
    }

    /// The settings of the server. For admins.
    pub async fn settings(&self) -> Result<Vec<Setting>, Error> {
        self.ask(Request::repeatable("GetSettings")).await?.within("data", "settings")
    }

    /// Whether the disk takes what comes.
    pub async fn storage_status(&self) -> Result<StorageStatus, Error> {
        self.ask(Request::repeatable("StorageStatus")).await?.read("data")
    }

    /// Rights of this client's token.
    pub async fn whoami(&self) -> Result<Whoami, Error> {
        self.ask(Request::repeatable("Whoami")).await?.read("data")
    }

    /// The newest entries of the audit log, or those before one: at most 1000.
    pub async fn audit_log(&self, limit: u32, before: Option<u64>) -> Result<AuditPage, Error> {
        let request = Request::repeatable("AuditLog").uint("limit", u64::from(limit));
        self.ask(request.opt_uint("before", before)).await?.record()
    }
}

impl Queue {
    /// A page of its jobs. It costs what it shows, wherever it begins.
    ///
    /// ```no_run
    /// use corq_client::{JobFilter, JobState};
    ///
    /// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
    /// let emails = client.queue("emails");
    /// let mut which = JobFilter::new().state(JobState::Failed).newest_first();
    /// loop {
    ///     let page = emails.page(&which).await?;
    ///     page.jobs.iter().for_each(|job| println!("{}", job.id));
    ///     match page.next {
    ///         Some(next) => which = which.after(next),
    ///         None => break,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn page(&self, which: &JobFilter) -> Result<JobPage, Error> {
        self.client().ask(which.add_to(self.reading("GetJobs"))).await?.record()
    }

    /// A page of its jobs, by their payloads. Follow `next` until there is none.
    pub async fn search(&self, what: &Search) -> Result<Found, Error> {
        self.client().ask(what.add_to(self.reading("Search"))?).await?.record()
    }

    /// Figures of this queue over a span of the last day.
    pub async fn history(&self, span: Span) -> Result<History, Error> {
        self.client().ask(span.add_to(self.reading("History"))).await?.read("data")
    }

    /// How long its jobs waited.
    pub async fn heatmap(&self, span: Span) -> Result<Heatmap, Error> {
        self.client().ask(span.add_to(self.reading("Heatmap"))).await?.read("data")
    }

    /// Figures of this queue for a dashboard, with the oldest `jobs` jobs of each state.
    pub async fn dashboard(&self, jobs: Option<u32>) -> Result<QueueBoard, Error> {
        let request = self
            .reading("DashboardQueue")
            .flag("includeJobs", jobs.is_some())
            .opt_uint("jobsLimit", jobs.map(u64::from));
        self.client().ask(request).await?.read("data")
    }
}

impl JobHandle {
    /// Why it does not run, and when it may start.
    pub async fn explain(&self) -> Result<Explanation, Error> {
        self.client().ask(self.reading("Explain")).await?.read("data")
    }

    /// All about it: its record, its attempts, its log, its children.
    pub async fn detail(&self) -> Result<JobDetail, Error> {
        self.client().ask(self.reading("GetJobDetail")).await?.read("data")
    }

    /// The job and its descendants, level by level: at most `depth` levels, up to 100, and `limit` jobs, up to 1000.
    pub async fn flow(&self, depth: u32, limit: u32) -> Result<FlowView, Error> {
        let request =
            self.reading("GetFlow").uint("depth", depth.into()).uint("limit", limit.into());
        self.client().ask(request).await?.read("data")
    }
}
