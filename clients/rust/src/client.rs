//! The client: its settings, and what concerns the server as a whole.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::error::Error;
use crate::event_choice::EventChoice;
use crate::events::Events;
use crate::fields::Fields;
use crate::handle::JobHandle;
use crate::net::address::Address;
use crate::net::dial::{ServerInfo, Settings};
use crate::net::pool::Pool;
#[cfg(feature = "tls")]
use crate::net::tls::{Connector, Tls};
use crate::queue::Queue;
use crate::raw::Payload;
use crate::records::{
    Cron, CronRun, Job, Metrics, QueueInfo, Stats, Webhook, WebhookDelivery, WorkerInfo,
};
use crate::wire::reply::Reply;
use crate::wire::request::{Request, millis};

/// How a client is made: from [`Client::builder`].
///
/// ```no_run
/// use std::time::Duration;
/// use corq_client::Client;
///
/// # async fn example() -> Result<(), corq_client::Error> {
/// let client = Client::builder("tcp://jobs.internal:6789")
///     .token("s3cret")
///     .timeout(Duration::from_secs(5))
///     .connections(2)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    address: String,
    token: Option<String>,
    timeout: Duration,
    connect_timeout: Duration,
    connections: usize,
    backoff: (Duration, Duration),
    #[cfg(feature = "tls")]
    tls: Tls,
}

impl fmt::Debug for ClientBuilder {
    /// Without the token: what is printed ends in logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClientBuilder")
            .field("address", &Address::shown(&self.address))
            .field("token", &self.token.as_ref().map(|_| "..."))
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            token: None,
            timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            connections: 4,
            backoff: (Duration::from_millis(50), Duration::from_secs(5)),
            #[cfg(feature = "tls")]
            tls: Tls::default(),
        }
    }

    /// A token that the server accepts, sent on every new connection.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// How long a command may take in all, waiting for a connection included; a command that waits for
    /// something at the server has that time besides. 10 seconds unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long the opening of a connection may take. 5 seconds unless set.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How many connections there may be at most, 1 to 1024; each is opened when it is needed. 4 unless set.
    ///
    /// Commands on one queue prefer one connection: the server moves it to the core that has the queue. Each takes
    /// fifty commands at a time; more go to the others, or wait for room.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// The waits between attempts to connect: the first one, which doubles, and the longest. 50 milliseconds and
    /// 5 seconds unless set. Each is shortened by chance, by up to a half.
    pub fn reconnect_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = (first, longest);
        self
    }

    /// Trusted certificates, and the client's own, for a `tls://` address.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Makes a client that connects when it is first used.
    pub fn build(self) -> Result<Client, Error> {
        let invalid = |text: &str| Err(Error::Invalid(text.into()));
        if !(1..=1024).contains(&self.connections) {
            return invalid("connections must be between 1 and 1024");
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return invalid("a timeout must be longer than no time at all");
        }
        let address = Address::parse(&self.address)?;
        #[cfg(feature = "tls")]
        let tls = match address {
            Address::Tls { .. } => self.tls.into_connector()?,
            _ => Connector::default(),
        };
        let settings = Settings {
            address,
            token: self.token,
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            connections: self.connections,
            backoff_min: self.backoff.0,
            backoff_max: self.backoff.1.max(self.backoff.0),
            #[cfg(feature = "tls")]
            tls,
        };
        Ok(Client { pool: Arc::new_cyclic(|own| Pool::new(settings, own)) })
    }

    /// Makes a client and opens its first connection, once: a wrong address or token shows here.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        client.pool.open().await?;
        Ok(client)
    }
}

/// A client of one server. Cheap to clone; all clones share its connections.
///
/// It connects again by itself when a connection breaks. A command that only reads, or that changes nothing
/// more when it comes twice, is then sent again within its time; any other whose fate is unknown
/// answers [`Error::Lost`].
///
/// ```no_run
/// use corq_client::Client;
///
/// # async fn example() -> Result<(), corq_client::Error> {
/// let client = Client::connect("tcp://127.0.0.1:6789").await?;
/// let id = client.queue("emails").push(&serde_json::json!({"to": "ada@example.org"})).await?;
/// println!("{id} is {}", client.job(&id).state().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) pool: Arc<Pool>,
}

impl Client {
    /// Connects to `tcp://host:port`, `tls://host:port` (with the feature `tls`) or `unix:///path`. The port is
    /// 6789 unless given.
    pub async fn connect(address: &str) -> Result<Self, Error> {
        Self::builder(address).connect().await
    }

    /// A client with settings of its own.
    pub fn builder(address: &str) -> ClientBuilder {
        ClientBuilder::new(address)
    }

    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, Error> {
        self.pool.ask(&request.seal()?).await
    }

    pub(crate) async fn done(&self, request: Request) -> Result<(), Error> {
        self.ask(request).await.map(drop)
    }

    /// A queue, by its name. Nothing is sent.
    pub fn queue(&self, name: impl Into<String>) -> Queue {
        Queue::new(self.clone(), name.into())
    }

    /// A job, by the id it was pushed with or the one the server gave it. Nothing is sent.
    pub fn job(&self, id: impl Into<String>) -> JobHandle {
        JobHandle::new(self.clone(), id.into())
    }

    /// The job that was pushed with this id, or `None`.
    pub async fn job_by_custom_id(&self, id: &str) -> Result<Option<Job>, Error> {
        let request = Request::repeatable("GetJobByCustomId").str("customId", id);
        match self.ask(request).await {
            Ok(reply) => reply.read("job").map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Any command of the protocol, for what has no method here. `fields` is a map, or `()` for none.
    ///
    /// It is sent once: whether it may be repeated, the client cannot know.
    ///
    /// ```no_run
    /// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
    /// let fields = serde_json::json!({"queue": "emails", "type": "failed"});
    /// let reply = client.call("Metrics", &fields).await?;
    /// println!("{:?}", reply.get::<serde_json::Value>("data")?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call<T: Serialize + ?Sized>(&self, cmd: &str, fields: &T) -> Result<Reply, Error> {
        self.ask(Request::new(cmd).splice(fields)?).await
    }

    /// Name, version and protocol version of the server.
    pub async fn server_info(&self) -> Result<ServerInfo, Error> {
        self.pool.info().await
    }

    /// Asks for a sign of life; answers the server's time in milliseconds since the Unix epoch.
    pub async fn ping(&self) -> Result<u64, Error> {
        self.ask(Request::repeatable("Ping")).await?.within("data", "time")
    }

    /// All queues that have jobs or settings.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>, Error> {
        self.ask(Request::repeatable("ListQueues")).await?.read("queues")
    }

    /// The numbers of all jobs.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.ask(Request::repeatable("Stats")).await?.read("stats")
    }

    /// The figures of the server.
    pub async fn metrics(&self) -> Result<Metrics, Error> {
        self.ask(Request::repeatable("Metrics")).await?.read("metrics")
    }

    /// The figures of the server as text for Prometheus.
    pub async fn prometheus(&self) -> Result<String, Error> {
        self.ask(Request::repeatable("Prometheus")).await?.within("data", "metrics")
    }

    /// The workers that are registered.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, Error> {
        self.ask(Request::repeatable("ListWorkers")).await?.within("data", "workers")
    }

    /// Sets a schedule, in the place of one of the same name.
    ///
    /// ```no_run
    /// use corq_client::{CronOptions, Every};
    ///
    /// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
    /// let options = CronOptions::new().timezone("Europe/Berlin");
    /// let every = Every::expression("0 7 * * mon-fri");
    /// let cron = client.set_cron("report", "reports", every, &"daily", &options).await?;
    /// println!("runs next at {}", cron.next_run_ms);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_cron<P: Payload + ?Sized>(
        &self,
        name: &str,
        queue: &str,
        every: Every,
        data: &P,
        options: &CronOptions,
    ) -> Result<Cron, Error> {
        // Repeat the command after a lost answer: a schedule replaces the one of the same name, so a second time does
        // no harm.
        let request = Request::repeatable("Cron").str("name", name).str("queue", queue);
        let request = match &every {
            Every::Expression(schedule) => request.str("schedule", schedule),
            Every::Interval(interval) => request.uint("repeatEvery", millis(*interval)),
        };
        let request = request.payload("data", data)?.fields(|encoder| {
            let mut fields = Fields::after(0, encoder);
            if let Some(priority) = options.priority {
                fields.key("priority").int(priority);
            }
            fields.uint("maxLimit", options.max_limit);
            fields.text("timezone", options.timezone.as_deref());
            fields.text("jobName", options.job_name.as_deref());
            Ok(fields.count)
        })?;
        self.ask(request).await?.read("cron")
    }

    /// A schedule, or `None`.
    pub async fn cron(&self, name: &str) -> Result<Option<Cron>, Error> {
        match self.ask(Request::repeatable("CronGet").str("name", name)).await {
            Ok(reply) => reply.read("cron").map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All schedules.
    pub async fn crons(&self) -> Result<Vec<Cron>, Error> {
        self.ask(Request::repeatable("CronList")).await?.read("crons")
    }

    /// Removes a schedule; says whether there was one.
    pub async fn delete_cron(&self, name: &str) -> Result<bool, Error> {
        match self.ask(Request::new("CronDelete").str("name", name)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Pushes a job of a schedule now. Answers its id, or that of the job that holds its key. Neither the next run nor
    /// the number of runs changes.
    pub async fn trigger_cron(&self, name: &str) -> Result<String, Error> {
        self.ask(Request::new("CronTrigger").str("name", name)).await?.read("id")
    }

    /// A disabled schedule does not run, and keeps its place and its cadence.
    pub async fn set_cron_enabled(&self, name: &str, enabled: bool) -> Result<Cron, Error> {
        let request =
            Request::repeatable("SetCronEnabled").str("name", name).bool("enabled", enabled);
        self.ask(request).await?.read("cron")
    }

    /// The next runs of a schedule, at most 100.
    pub async fn next_runs(&self, name: &str, count: u64) -> Result<Vec<CronRun>, Error> {
        let request = Request::repeatable("CronPreview").str("name", name).uint("count", count);
        self.ask(request).await?.within("data", "runs")
    }

    /// The next runs of a schedule that is not set, at most 100, in a zone by its IANA name.
    pub async fn preview_cron(
        &self,
        every: Every,
        timezone: Option<&str>,
        count: u64,
    ) -> Result<Vec<CronRun>, Error> {
        let request = Request::repeatable("CronPreview").uint("count", count);
        let request = match &every {
            Every::Expression(schedule) => request.str("schedule", schedule),
            Every::Interval(interval) => request.uint("repeatEvery", millis(*interval)),
        };
        self.ask(request.opt_str("timezone", timezone)).await?.within("data", "runs")
    }

    /// Has events posted to a URL: those named (`job.completed`, `job.failed`, ...; none means all), of one queue or
    /// of all, signed if there is a secret. Answers its id.
    pub async fn add_webhook(
        &self,
        url: &str,
        events: &[&str],
        queue: Option<&str>,
        secret: Option<&str>,
    ) -> Result<String, Error> {
        let request = Request::new("AddWebhook")
            .str("url", url)
            .strs("events", events.iter().copied())
            .opt_str("queue", queue)
            .opt_str("secret", secret);
        self.ask(request).await?.within("data", "webhookId")
    }

    /// All webhooks.
    pub async fn webhooks(&self) -> Result<Vec<Webhook>, Error> {
        self.ask(Request::repeatable("ListWebhooks")).await?.within("data", "webhooks")
    }

    /// Removes a webhook; says whether there was one.
    pub async fn remove_webhook(&self, id: &str) -> Result<bool, Error> {
        match self.ask(Request::new("RemoveWebhook").str("webhookId", id)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A disabled webhook gets no events.
    pub async fn set_webhook_enabled(&self, id: &str, enabled: bool) -> Result<(), Error> {
        let request =
            Request::repeatable("SetWebhookEnabled").str("id", id).bool("enabled", enabled);
        self.done(request).await
    }

    /// Posts a sample to a webhook at once, and tells what came of it.
    pub async fn test_webhook(&self, id: &str) -> Result<WebhookDelivery, Error> {
        self.ask(Request::new("TestWebhook").str("id", id)).await?.read("data")
    }

    /// The last attempts to deliver to a webhook, newest first: at most 50, and none from before the start of the server.
    pub async fn webhook_deliveries(
        &self,
        id: &str,
        limit: u64,
    ) -> Result<Vec<WebhookDelivery>, Error> {
        let request = Request::repeatable("WebhookDeliveries").str("id", id).uint("limit", limit);
        self.ask(request).await?.within("data", "deliveries")
    }

    /// Listens to what happens in a queue, on a connection of its own.
    pub async fn events(&self, queue: &str) -> Result<Events, Error> {
        Events::listen(self.pool.settings.clone(), EventChoice::new().queues([queue])).await
    }

    /// Listens to the events of a choice, on a connection of its own.
    pub async fn events_of(&self, choice: EventChoice) -> Result<Events, Error> {
        Events::listen(self.pool.settings.clone(), choice).await
    }

    /// Sends nothing more, from this clone and all others: commands answer [`Error::Closed`] from now on. What was
    /// sent already is still answered. Dropping the last clone does the same.
    pub fn close(&self) {
        self.pool.close();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("address", &self.pool.settings.address.to_string())
            .finish_non_exhaustive()
    }
}

/// When a schedule runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Every {
    /// By an expression of five fields, or six with seconds before them, or `@hourly` and its kin.
    Expression(String),
    /// Again and again after this time.
    Interval(Duration),
}

impl Every {
    /// By an expression: `*/5 * * * *`, `0 7 * * mon-fri`, `@daily`.
    pub fn expression(expression: impl Into<String>) -> Self {
        Self::Expression(expression.into())
    }

    /// Again and again after this time.
    pub fn interval(interval: Duration) -> Self {
        Self::Interval(interval)
    }
}

/// Optional settings of a schedule.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct CronOptions {
    priority: Option<i64>,
    max_limit: Option<u64>,
    timezone: Option<String>,
    job_name: Option<String>,
}

impl CronOptions {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The priority of its jobs.
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = Some(priority);
        self
    }

    /// How often it runs in all.
    pub fn max_limit(mut self, runs: u64) -> Self {
        self.max_limit = Some(runs);
        self
    }

    /// The zone of its times, an IANA name. UTC unless set.
    pub fn timezone(mut self, zone: impl Into<String>) -> Self {
        self.timezone = Some(zone.into());
        self
    }

    /// Name of the jobs that the schedule pushes.
    pub fn job_name(mut self, name: impl Into<String>) -> Self {
        self.job_name = Some(name.into());
        self
    }
}
