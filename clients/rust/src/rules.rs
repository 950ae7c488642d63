//! Rules of a queue: what becomes of its dead letters by themselves, and when its workers count as silent.

use std::time::Duration;

use crate::error::Error;
use crate::queue::Queue;
use crate::records::{DlqRules, DlqStats, StallRules};
use crate::wire::encode::Encoder;
use crate::wire::request::{Request, millis};

/// Changes of the rules for the dead letters of a queue, for [`Queue::set_dlq_config`]. Rules that are not named stay
/// as they are. The new rules hold for dead letters that are there already, too.
///
/// ```no_run
/// use std::time::Duration;
/// use corq_client::DlqConfig;
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let week = Duration::from_secs(7 * 24 * 3600);
/// client.queue("emails").set_dlq_config(&DlqConfig::new().auto_retry(true).max_age(Some(week))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct DlqConfig {
    auto_retry: Option<bool>,
    auto_retry_interval: Option<Duration>,
    max_auto_retries: Option<u32>,
    max_age_ms: Bound,
    max_entries: Bound,
}

/// Change of a bound that may be lifted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Bound {
    /// The bound stays as it is.
    #[default]
    AsItWas,
    /// The bound is lifted.
    No,
    /// The bound is set.
    At(u64),
}

impl DlqConfig {
    /// Nothing is to change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether its jobs are tried anew by themselves.
    pub fn auto_retry(mut self, retry: bool) -> Self {
        self.auto_retry = Some(retry);
        self
    }

    /// How long after their failure, at most a year; from the third time on twice as long each time.
    pub fn auto_retry_interval(mut self, interval: Duration) -> Self {
        self.auto_retry_interval = Some(interval);
        self
    }

    /// How often each, until a client retries it.
    pub fn max_auto_retries(mut self, times: u32) -> Self {
        self.max_auto_retries = Some(times);
        self
    }

    /// How long after their failure they are removed; `None` for never.
    pub fn max_age(mut self, age: Option<Duration>) -> Self {
        self.max_age_ms = age.map_or(Bound::No, |age| Bound::At(millis(age)));
        self
    }

    /// How many there may be, at least 1: beyond that the oldest are removed; `None` for any number.
    pub fn max_entries(mut self, jobs: Option<u32>) -> Self {
        self.max_entries = jobs.map_or(Bound::No, |jobs| Bound::At(jobs.into()));
        self
    }

    fn encode(&self, encoder: &mut Encoder) {
        let mut fields = encoder.count_fields();
        if let Some(retry) = self.auto_retry {
            fields.key("autoRetry").bool(retry);
        }
        fields.uint("autoRetryInterval", self.auto_retry_interval.map(millis));
        fields.uint("maxAutoRetries", self.max_auto_retries.map(u64::from));
        fields.bound("maxAge", self.max_age_ms);
        fields.bound("maxEntries", self.max_entries);
        fields.close();
    }
}

/// Changes of when the workers of a queue count as silent, for [`Queue::set_stall_config`]. Settings that are not named
/// stay as they are.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StallConfig {
    enabled: Option<bool>,
    stall_interval: Option<Duration>,
    max_stalls: Option<u32>,
    grace_period: Option<Duration>,
}

impl StallConfig {
    /// Nothing is to change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether silence counts; the end of a lock always does.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// The time without a sign of life after which a job stalls, at most a day.
    pub fn stall_interval(mut self, interval: Duration) -> Self {
        self.stall_interval = Some(interval);
        self
    }

    /// How many stalls send a job to the dead-letter queue, at most 254; 0 for any number.
    pub fn max_stalls(mut self, stalls: u32) -> Self {
        self.max_stalls = Some(stalls);
        self
    }

    /// The time after a pull in which silence does not count, at most a day.
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.grace_period = Some(period);
        self
    }

    fn encode(&self, encoder: &mut Encoder) {
        let mut fields = encoder.count_fields();
        if let Some(enabled) = self.enabled {
            fields.key("enabled").bool(enabled);
        }
        fields.uint("stallInterval", self.stall_interval.map(millis));
        fields.uint("maxStalls", self.max_stalls.map(u64::from));
        fields.uint("gracePeriod", self.grace_period.map(millis));
        fields.close();
    }
}

impl Queue {
    fn setting(&self, cmd: &str, write: impl FnOnce(&mut Encoder)) -> Request {
        let mut request = self.reading(cmd);
        write(request.field("config"));
        request
    }

    /// Changes what it does with its dead letters by itself.
    pub async fn set_dlq_config(&self, config: &DlqConfig) -> Result<(), Error> {
        let request = self.setting("SetDlqConfig", |encoder| config.encode(encoder));
        self.client().done(request).await
    }

    /// Automatic retries and removals of the dead letters of this queue.
    pub async fn dlq_config(&self) -> Result<DlqRules, Error> {
        self.client().ask(self.reading("GetDlqConfig")).await?.read("config")
    }

    /// How many dead letters it has, and why.
    pub async fn dlq_stats(&self) -> Result<DlqStats, Error> {
        self.client().ask(self.reading("GetDlqStats")).await?.within("data", "stats")
    }

    /// Changes when its workers count as silent.
    pub async fn set_stall_config(&self, config: &StallConfig) -> Result<(), Error> {
        let request = self.setting("SetStallConfig", |encoder| config.encode(encoder));
        self.client().done(request).await
    }

    /// When its workers count as silent.
    pub async fn stall_config(&self) -> Result<StallRules, Error> {
        self.client().ask(self.reading("GetStallConfig")).await?.read("config")
    }
}
