//! A webhook as its deliveries see it, and an event on its way.

use super::deliveries::{Deliveries, Delivery};
use super::target::Target;
use ring::hmac;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Whether a receiver answers, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Health {
    /// Nothing yet.
    Unknown,
    /// The receiver took the last post.
    Well,
    /// The receiver did not take the last post.
    Failing,
}

/// A webhook. Shared by the shards, which feed it, and the threads that deliver; only its counts change.
pub struct Hook {
    id: u128,
    target: Target,
    secret: Option<hmac::Key>,
    wants: u32,
    removed: AtomicBool,
    enabled: AtomicBool,
    /// How often it was disabled.
    pauses: AtomicU64,
    health: AtomicU8,
    triggered_at_ms: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    deliveries: Deliveries,
}

/// Counts of a webhook's events since this process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// When an event was last on its way to it, in milliseconds since the epoch.
    pub triggered_at_ms: Option<u64>,
    /// Events it has taken.
    pub delivered: u64,
    /// Events that were given up, or that found no room.
    pub failed: u64,
}

impl Hook {
    /// A webhook. `wants` has a bit for each kind of event it asks for.
    pub fn new(id: u128, target: Target, secret: Option<&str>, wants: u32) -> Self {
        let key = |secret: &str| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self {
            id,
            target,
            secret: secret.map(key),
            wants,
            removed: AtomicBool::new(false),
            enabled: AtomicBool::new(true),
            pauses: AtomicU64::new(0),
            health: AtomicU8::new(Health::Unknown as u8),
            triggered_at_ms: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            deliveries: Deliveries::default(),
        }
    }

    /// The id of the webhook.
    pub fn id(&self) -> u128 {
        self.id
    }

    /// Where it posts.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The kinds of events it asks for.
    pub fn wants(&self) -> u32 {
        self.wants
    }

    /// Ends it: nothing more is begun.
    pub fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// Stops it, or lets it go on. What waits for it when it is stopped is not posted any more, even if it goes on at
    /// once. To be called by one thread.
    pub fn set_enabled(&self, enabled: bool) {
        if self.enabled.swap(enabled, Ordering::AcqRel) && !enabled {
            self.pauses.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts of the webhook's events since this process began.
    pub fn counts(&self) -> Counts {
        let at_ms = self.triggered_at_ms.load(Ordering::Relaxed);
        Counts {
            triggered_at_ms: (at_ms > 0).then_some(at_ms),
            delivered: self.delivered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// The last posts to it, newest first.
    pub fn deliveries(&self, limit: usize) -> Vec<Delivery> {
        self.deliveries.newest(limit, |_| true)
    }

    /// The last posts about a job, newest first.
    pub fn deliveries_about(&self, job: &str) -> Vec<Delivery> {
        self.deliveries.newest(usize::MAX, |one| !one.is_test && *one.job == *job)
    }

    /// How many posts are remembered, and what they take in memory.
    pub fn remembered(&self) -> (usize, usize) {
        self.deliveries.size()
    }

    pub(super) fn note_delivery(&self, delivery: Delivery) {
        self.deliveries.note(delivery);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    pub(super) fn pauses(&self) -> u64 {
        self.pauses.load(Ordering::Acquire)
    }

    pub(super) fn health(&self) -> Health {
        let known = [Health::Well, Health::Failing];
        let health = self.health.load(Ordering::Relaxed);
        known.into_iter().find(|&it| it as u8 == health).unwrap_or(Health::Unknown)
    }

    pub(super) fn note_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    pub(super) fn note_triggered(&self, at_ms: u64) {
        self.triggered_at_ms.store(at_ms, Ordering::Relaxed);
    }

    pub(super) fn note_delivered(&self) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_failed(&self, events: u64) {
        self.failed.fetch_add(events, Ordering::Relaxed);
    }

    /// The signature of a body: HMAC-SHA256 in lower case hex.
    pub(super) fn signature(&self, body: &[u8]) -> Option<String> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let tag = hmac::sign(self.secret.as_ref()?, body);
        let digits = tag.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
        Some(digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect())
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret, and without what may be one in the URL.
        write!(f, "Hook({:032x} to {})", self.id, self.target.origin())
    }
}

type Render = Box<dyn Fn() -> Vec<u8> + Send + Sync>;

/// An event on its way to webhooks.
pub struct Notice {
    kind: u32,
    event: &'static str,
    at_ms: u64,
    job: Box<str>,
    bytes: usize,
    body_bytes_max: usize,
    headers: Box<[Header]>,
    render: Render,
}

/// A header of a post: its name and its value.
pub type Header = (&'static str, Box<str>);

impl Notice {
    /// An event of the kind whose bit is `kind` (see [`Hook::wants`]), called `event`, of `job`, at
    /// `at_ms`, that takes `bytes` in memory. Its body is rendered by `render` on each thread that posts it, for as long
    /// as that takes, and has at most `body_bytes_max`: rendered, it may be several times as large.
    pub fn new(
        kind: u32,
        event: &'static str,
        at_ms: u64,
        job: Box<str>,
        bytes: usize,
        body_bytes_max: usize,
        render: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let (headers, render) = (Box::default(), Box::new(render));
        Self { kind, event, at_ms, job, bytes, body_bytes_max, headers, render }
    }

    /// Adds headers to the event's posts. Each must be valid.
    #[must_use]
    pub fn with_headers(self, headers: Box<[Header]>) -> Self {
        Self { headers, ..self }
    }

    /// Additional headers of the event's posts.
    pub(super) fn headers(&self) -> &[Header] {
        &self.headers
    }

    /// The name of the event.
    pub fn event(&self) -> &'static str {
        self.event
    }

    /// The job it is about.
    pub fn job(&self) -> &str {
        &self.job
    }

    pub(super) fn kind(&self) -> u32 {
        self.kind
    }

    /// When it happened, in milliseconds since the epoch.
    pub fn at_ms(&self) -> u64 {
        self.at_ms
    }

    /// Memory it takes while it waits.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that its body takes at most.
    pub(super) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// Renders the body, the same each time.
    pub(super) fn body(&self) -> Vec<u8> {
        (self.render)()
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notice({} of {})", self.event, self.job)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_published_examples() {
        // The second case of RFC 4231, and a key longer than a block, judged by Python's hmac.
        for (key, data, expected) in [
            (
                "Jefe".to_string(),
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                "a".repeat(131),
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "d021303c2f34bf3ae541b4ec9c672691694c6f71c5c0c55781545a66115b14a7",
            ),
        ] {
            let target = Target::parse("https://example.com", false).unwrap();
            let hook = Hook::new(1, target, Some(&key), 0);
            assert_eq!(hook.signature(data.as_bytes()).unwrap(), expected);
        }
    }

    #[test]
    fn a_hook_shows_neither_its_secret_nor_the_path_of_its_url() {
        let target = Target::parse("https://example.com/token?key=1", false).unwrap();
        let shown = format!("{:?}", Hook::new(1, target, Some("hush"), 0));
        assert_eq!(shown, "Hook(00000000000000000000000000000001 to https://example.com)");
    }
}
