//! The thread: gathers items until there are enough or the first has waited long enough, posts them, and tries again what may
//! pass. Meanwhile others wait at the way in, as far as there is room.

use super::config::{Config, Item, Report};
use super::feed::{Counters, Feed};
use super::post::{Client, Outcome};
use crate::webhook::client::{Settings, system_roots};
use crossbeam_channel::{Receiver, Sender, bounded, select};
use std::convert::Infallible;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Longest pause between two attempts, unless the receiver asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often, at most, people learn the same.
const REPORT_PAUSE: Duration = Duration::from_mins(1);

/// The thread.
pub struct BatchPoster<T> {
    feed: Feed<T>,
    /// Closed to end it.
    stop: Sender<Infallible>,
    ended: Receiver<()>,
}

impl<T: Item> BatchPoster<T> {
    /// Starts it.
    pub fn start(config: Config<T>) -> io::Result<Self> {
        let (items, taken) = bounded(config.waiting_max);
        let (stop, stopped) = bounded(0);
        let (end, ended) = bounded(1);
        let feed = Feed {
            items,
            counters: Arc::new(Counters::default()),
            waiting_bytes_max: config.waiting_bytes_max,
            headers: Arc::new(RwLock::new(config.headers.clone().into())),
        };
        let its_feed = feed.clone();
        std::thread::Builder::new().name("batch-post".into()).spawn(move || {
            Thread::new(config, its_feed, taken, stopped).run();
            // The stopping thread may have given up.
            let _ = end.send(());
        })?;
        Ok(Self { feed, stop, ended })
    }

    /// The way in.
    pub fn feed(&self) -> Feed<T> {
        self.feed.clone()
    }

    /// Lets what waits be posted, once, until `deadline`. Returns how many units are lost with it.
    pub fn stop(self, deadline: Instant) -> u64 {
        let counters = &self.feed.counters;
        let lost = || counters.abandoned.load(Relaxed);
        let before = lost();
        drop(self.stop);
        // A thread that does not end in time is held up by the receiver.
        let _ = self.ended.recv_deadline(deadline);
        lost() - before + counters.waiting.load(Relaxed)
    }
}

struct Thread<T> {
    config: Config<T>,
    feed: Feed<T>,
    items: Receiver<T>,
    stopped: Receiver<Infallible>,
    client: Client,
    /// Units lost that no report has told of, and when the last one did.
    untold: u64,
    told: Option<Instant>,
    told_rejected: Option<Instant>,
}

impl<T: Item> Thread<T> {
    fn new(
        config: Config<T>,
        feed: Feed<T>,
        items: Receiver<T>,
        stopped: Receiver<Infallible>,
    ) -> Self {
        let mut roots = Vec::new();
        if config.target.is_secure() {
            let errors;
            (roots, errors) = system_roots();
            if roots.is_empty() {
                (config.report)(&Report::NoCertificates { errors: &errors });
            }
        }
        let settings = Settings {
            timeout: config.timeout,
            allow_private: true,
            lookup: None,
            roots: Arc::new(roots),
        };
        let client = Client::new(&settings, config.target.url(), config.content_type);
        let (told, told_rejected) = (None, None);
        Self { config, feed, items, stopped, client, untold: 0, told, told_rejected }
    }

    /// Runs until a stop is wanted and nothing waits.
    fn run(mut self) {
        let mut batch = Vec::new();
        while self.gather(&mut batch) {
            let bytes = batch.iter().map(Item::bytes).sum();
            let units = batch.iter().map(Item::units).sum();
            let body = (self.config.render)(&batch);
            batch.clear();
            self.deliver(&body, units);
            self.feed.counters.leave(units, bytes);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopped.try_recv().is_err_and(|error| error.is_disconnected())
    }

    /// Waits for items to be posted together. False if none will come.
    fn gather(&self, batch: &mut Vec<T>) -> bool {
        let first = select! {
            recv(self.items) -> item => item.ok(),
            recv(self.stopped) -> _ => self.items.try_recv().ok(),
        };
        let Some(first) = first else { return false };
        let mut bytes = first.bytes();
        batch.push(first);
        let until = Instant::now() + self.config.linger;
        while batch.len() < self.config.items_max && bytes < self.config.items_bytes_max {
            let left = until.saturating_duration_since(Instant::now());
            let next = select! {
                recv(self.items) -> item => item.ok(),
                recv(self.stopped) -> _ => self.items.try_recv().ok(),
                default(left) => None,
            };
            let Some(next) = next else { break };
            bytes += next.bytes();
            batch.push(next);
        }
        true
    }

    fn deliver(&mut self, body: &[u8], units: u64) {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let headers = self.feed.headers.read().unwrap_or_else(PoisonError::into_inner).clone();
            let (reason, again, after) = match self.client.post(&headers, body) {
                Outcome::Taken(answer) => return self.note_taken(units, &answer),
                Outcome::Failed { reason, again, after } => (reason, again, after),
            };
            self.feed.counters.failed_posts.fetch_add(1, Relaxed);
            let pause = after.unwrap_or_else(|| self.pause(attempts));
            if !again || attempts >= self.config.attempts_max || !self.wait(pause) {
                self.feed.counters.abandoned.fetch_add(units, Relaxed);
                return self.note_lost(units, &reason);
            }
        }
    }

    /// The pause after so many attempts: half of it is left to chance, so that many senders do not come back together.
    fn pause(&self, attempts: u32) -> Duration {
        let whole = self.config.retry_delay.saturating_mul(1 << (attempts - 1).min(16));
        let whole = whole.min(PAUSE_MAX);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let part = f64::from(now.map_or(0, |now| now.subsec_nanos()) % 1000) / 1000.0;
        whole.mul_f64(0.5 + part / 2.0)
    }

    /// Waits. False if a stop is wanted.
    fn wait(&self, pause: Duration) -> bool {
        select! {
            recv(self.stopped) -> _ => false,
            default(pause) => true,
        }
    }

    fn note_taken(&mut self, units: u64, answer: &[u8]) {
        let (rejected, reason) = (self.config.rejected)(answer);
        let rejected = rejected.min(units);
        self.feed.counters.taken.fetch_add(units - rejected, Relaxed);
        self.feed.counters.rejected.fetch_add(rejected, Relaxed);
        if rejected > 0 && is_due(self.told_rejected) {
            self.told_rejected = Some(Instant::now());
            (self.config.report)(&Report::Rejected { units: rejected, reason: &reason });
        }
        if self.told.take().is_some() {
            self.untold = 0;
            (self.config.report)(&Report::Working);
        }
    }

    fn note_lost(&mut self, units: u64, reason: &str) {
        self.untold += units;
        if is_due(self.told) && !self.is_stopping() {
            let units = std::mem::take(&mut self.untold);
            self.told = Some(Instant::now());
            (self.config.report)(&Report::Failing { units, reason });
        }
    }
}

fn is_due(told: Option<Instant>) -> bool {
    told.is_none_or(|at| at.elapsed() >= REPORT_PAUSE)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::webhook::Target;
    use std::net::TcpListener;

    struct One(usize);

    impl Item for One {
        fn units(&self) -> u64 {
            1
        }
        fn bytes(&self) -> usize {
            self.0
        }
    }

    fn config(port: u16) -> Config<One> {
        Config {
            target: Target::parse(&format!("http://127.0.0.1:{port}/"), true).unwrap(),
            headers: Vec::new(),
            content_type: "text/plain",
            timeout: Duration::from_millis(100),
            linger: Duration::ZERO,
            items_max: 1,
            items_bytes_max: 1,
            waiting_max: 10,
            waiting_bytes_max: 100,
            attempts_max: 1,
            retry_delay: Duration::ZERO,
            render: Box::new(|items| vec![b'x'; items.len()]),
            rejected: |_| (0, String::new()),
            report: Box::new(|_| {}),
        }
    }

    /// The fear: memory without end, or a shard that waits, while the receiver does not answer.
    #[test]
    fn what_finds_no_room_is_lost_and_counted_and_all_is_accounted_for() {
        // Takes connections, and never answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let poster = BatchPoster::start(config(port)).unwrap();
        let feed = poster.feed();
        feed.offer(One(101));
        assert_eq!(feed.counters().dropped.load(Relaxed), 1, "larger than all that may wait");
        (0..100).for_each(|_| feed.offer(One(20)));
        let counters = Arc::clone(&feed.counters);
        let dropped = counters.dropped.load(Relaxed);
        assert!(dropped >= 91, "five have room, and few can have left: {dropped}");
        poster.stop(Instant::now() + Duration::from_mins(1));
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        assert_eq!(of(&counters.abandoned) + of(&counters.dropped), 101);
        assert_eq!((of(&counters.taken), of(&counters.waiting)), (0, 0));
        assert_eq!(counters.waiting_bytes.load(Relaxed), 0);
    }

    #[test]
    fn a_stop_does_not_wait_for_the_next_attempt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut config = config(port);
        (config.attempts_max, config.retry_delay) = (100, Duration::from_hours(1));
        let poster = BatchPoster::start(config).unwrap();
        let feed = poster.feed();
        feed.offer(One(1));
        while feed.counters().failed_posts.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(poster.stop(Instant::now() + Duration::from_mins(5)), 1);
        assert_eq!(feed.counters().waiting.load(Relaxed), 0);
    }
}
