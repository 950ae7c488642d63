//! The client and its settings.

use std::time::Duration;

use serde::Serialize;

use super::runtime::Runtime;
use super::{JobHandle, Queue, waits_for};
use crate::error::Error;
#[cfg(feature = "tls")]
use crate::net::tls::Tls;
use crate::records::{
    Cron, CronRun, ErrorGroups, Event, Job, Metrics, QueueInfo, Stats, Task, Webhook,
    WebhookDelivery, WorkerInfo,
};
use crate::views::{
    AuditPage, Finding, Found, Heatmap, History, Overview, QueuePage, QueueTile, Sample, Setting,
    ShardInfo, StorageStatus, Whoami, WorkerPage,
};
use crate::wire::reply::Reply;
use crate::{Bulk, CronOptions, Every, FlowJob, QueueListing, Search, ServerInfo, Span, Watching};

/// How a client is made: from [`Client::builder`].
///
/// ```no_run
/// use corq_client::blocking::Client;
///
/// let client = Client::builder("tcp://jobs.internal:6789").token("s3cret").connect()?;
/// # Ok::<(), corq_client::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder(crate::ClientBuilder);

impl ClientBuilder {
    /// As [`crate::ClientBuilder::token`].
    pub fn token(self, token: impl Into<String>) -> Self {
        Self(self.0.token(token))
    }

    /// As [`crate::ClientBuilder::timeout`].
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// As [`crate::ClientBuilder::connect_timeout`].
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self(self.0.connect_timeout(timeout))
    }

    /// As [`crate::ClientBuilder::connections`].
    pub fn connections(self, connections: usize) -> Self {
        Self(self.0.connections(connections))
    }

    /// As [`crate::ClientBuilder::reconnect_backoff`].
    pub fn reconnect_backoff(self, first: Duration, longest: Duration) -> Self {
        Self(self.0.reconnect_backoff(first, longest))
    }

    /// As [`crate::ClientBuilder::tls`].
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: Tls) -> Self {
        Self(self.0.tls(tls))
    }

    /// Makes a client that connects when it is first used.
    pub fn build(self) -> Result<Client, Error> {
        Ok(Client { inner: self.0.build()?, runtime: Runtime::new()? })
    }

    /// Makes a client and opens its first connection, once: a wrong address or token shows here.
    pub fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        client.runtime.wait(client.inner.pool.open())?;
        Ok(client)
    }
}

/// A client of one server whose calls block. Cheap to clone, and to be used from many threads at a time.
///
/// ```no_run
/// use corq_client::blocking::Client;
///
/// let client = Client::connect("tcp://127.0.0.1:6789")?;
/// for queue in client.queues()? {
///     println!("{} has {} waiting", queue.name, queue.waiting);
/// }
/// # Ok::<(), corq_client::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) inner: crate::Client,
    pub(super) runtime: Runtime,
}

impl Client {
    /// Connects to `tcp://host:port`, `tls://host:port` (with the feature `tls`) or `unix:///path`.
    pub fn connect(address: &str) -> Result<Self, Error> {
        Self::builder(address).connect()
    }

    /// A client with settings of its own.
    pub fn builder(address: &str) -> ClientBuilder {
        ClientBuilder(crate::Client::builder(address))
    }

    /// A queue, by its name. Nothing is sent.
    pub fn queue(&self, name: impl Into<String>) -> Queue {
        Queue { inner: self.inner.queue(name), runtime: self.runtime.clone() }
    }

    /// A job, by its id. Nothing is sent.
    pub fn job(&self, id: impl Into<String>) -> JobHandle {
        JobHandle { inner: self.inner.job(id), runtime: self.runtime.clone() }
    }

    /// Any command of the protocol, as [`crate::Client::call`].
    pub fn call<T: Serialize + ?Sized>(&self, cmd: &str, fields: &T) -> Result<Reply, Error> {
        self.runtime.wait(self.inner.call(cmd, fields))
    }

    /// Listens to what happens in a queue, as [`crate::Client::events`].
    pub fn events(&self, queue: &str) -> Result<Events, Error> {
        let inner = self.runtime.wait(self.inner.events(queue))?;
        Ok(Events { inner, runtime: self.runtime.clone() })
    }

    /// Listens to the events of a choice, as [`crate::Client::events_of`].
    pub fn events_of(&self, choice: crate::EventChoice) -> Result<Events, Error> {
        let inner = self.runtime.wait(self.inner.events_of(choice))?;
        Ok(Events { inner, runtime: self.runtime.clone() })
    }

    /// Watches the figures of the server, as [`crate::Client::watch`].
    pub fn watch(&self, what: &Watching) -> Result<Samples, Error> {
        let inner = self.runtime.wait(self.inner.watch(what))?;
        Ok(Samples { inner, runtime: self.runtime.clone() })
    }

    /// Sends nothing more, as [`crate::Client::close`].
    pub fn close(&self) {
        self.inner.close();
    }

    waits_for! { crate::Client;
        fn server_info(&self) -> ServerInfo;
        fn ping(&self) -> u64;
        fn add_flow(&self, roots: &[FlowJob]) -> Vec<Job>;
        fn queues(&self) -> Vec<QueueInfo>;
        fn queue_page(&self, which: &QueueListing) -> QueuePage;
        fn search(&self, what: &Search) -> Found;
        fn worker_page(&self, queue: Option<&str>, after: Option<&str>, limit: u32) -> WorkerPage;
        fn history(&self, span: Span) -> History;
        fn heatmap(&self, shard: Option<u32>, span: Span) -> Heatmap;
        fn shards(&self) -> Vec<ShardInfo>;
        fn dashboard(&self) -> Overview;
        fn dashboard_queues(&self) -> Vec<QueueTile>;
        fn doctor(&self) -> Vec<Finding>;
        fn settings(&self) -> Vec<Setting>;
        fn storage_status(&self) -> StorageStatus;
        fn whoami(&self) -> Whoami;
        fn audit_log(&self, limit: u32, before: Option<u64>) -> AuditPage;
        fn stats(&self) -> Stats;
        fn metrics(&self) -> Metrics;
        fn prometheus(&self) -> String;
        fn workers(&self) -> Vec<WorkerInfo>;
        fn job_by_custom_id(&self, id: &str) -> Option<Job>;
        fn set_cron[P](&self, name: &str, queue: &str, every: Every, data: &P, options: &CronOptions) -> Cron;
        fn cron(&self, name: &str) -> Option<Cron>;
        fn crons(&self) -> Vec<Cron>;
        fn delete_cron(&self, name: &str) -> bool;
        fn trigger_cron(&self, name: &str) -> String;
        fn set_cron_enabled(&self, name: &str, enabled: bool) -> Cron;
        fn next_runs(&self, name: &str, count: u64) -> Vec<CronRun>;
        fn preview_cron(&self, every: Every, timezone: Option<&str>, count: u64) -> Vec<CronRun>;
        fn add_webhook(&self, url: &str, events: &[&str], queue: Option<&str>, secret: Option<&str>) -> String;
        fn webhooks(&self) -> Vec<Webhook>;
        fn remove_webhook(&self, id: &str) -> bool;
        fn set_webhook_enabled(&self, id: &str, enabled: bool) -> ();
        fn bulk(&self, bulk: &Bulk) -> String;
        fn task(&self, id: &str) -> Option<Task>;
        fn tasks(&self) -> Vec<Task>;
        fn cancel_task(&self, id: &str) -> Option<Task>;
        fn dead_letter_groups(&self, limit: u32) -> ErrorGroups;
        fn test_webhook(&self, id: &str) -> WebhookDelivery;
        fn webhook_deliveries(&self, id: &str, limit: u64) -> Vec<WebhookDelivery>;
    }
}

/// The events of one queue: from [`Client::events`].
///
/// They are taken from the connection while [`Events::next_event`] waits, or while any other call of the client does.
#[derive(Debug)]
pub struct Events {
    inner: crate::Events,
    runtime: Runtime,
}

impl Events {
    /// The next event, as soon as there is one; as [`crate::Events::next`].
    pub fn next_event(&mut self) -> Result<Event, Error> {
        self.runtime.wait(self.inner.next())
    }

    /// Events that the server skipped for this client, as [`crate::Events::missed`].
    pub fn missed(&self) -> crate::Missed {
        self.inner.missed()
    }

    /// How many events were lost, as [`crate::Events::lost`].
    pub fn lost(&self) -> u64 {
        self.inner.lost()
    }
}

/// Samples of the figures of the server: from [`Client::watch`].
#[derive(Debug)]
pub struct Samples {
    inner: crate::Samples,
    runtime: Runtime,
}

impl Samples {
    /// The next sample, the first at once; as [`crate::Samples::next`].
    pub fn next_sample(&mut self) -> Result<Sample, Error> {
        self.runtime.wait(self.inner.next())
    }
}
