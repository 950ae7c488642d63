//! The connection of `top`: the server sends a sample every so often, and is asked for its workers in between.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use super::sample::{self, Sample, Worker};
use crate::api::commands::Op;
use crate::cli::client::Client;
use crate::cli::failure::Failure;
use crate::cli::request::Request;
use crate::cli::target::Target;

/// How often a server sends samples at most, and at least.
const EVERY_MIN: Duration = Duration::from_secs(1);
const EVERY_MAX: Duration = Duration::from_mins(1);
/// Queues of a sample.
const QUEUES: i64 = 100;
/// Samples do not have the workers. They are asked for so seldom, and so many of them.
const WORKERS_EVERY: Duration = Duration::from_secs(5);
pub const WORKERS: usize = 100;
/// Pause before a try to come back.
const PAUSE: Duration = Duration::from_millis(500);
/// The numbers of the two requests.
const WATCH: u64 = 1;
const LIST: u64 = 2;

/// News for the thread that draws, from those that read the stream and wait for signals.
pub enum News {
    Sample(Box<Sample>),
    /// Workers, and whether there are more.
    Workers(Vec<Worker>, bool),
    Trouble(String),
    Signal,
}

/// A stream of samples.
pub struct Stream {
    client: Client,
    asked: Option<Instant>,
}

impl Stream {
    /// Begins to watch.
    pub fn open(target: &Target, every: Duration) -> Result<Self, Failure> {
        let mut client = Client::connect(target)?;
        let every = every.clamp(EVERY_MIN, EVERY_MAX);
        let what = ["stats", "queues", "shards"].map(str::to_owned);
        let request = Request::new(Op::Watch).with(|fields| {
            fields.texts("what", &what);
            fields.integer("every", every.as_millis() as i64);
            fields.integer("top", QUEUES);
        });
        client.send(request.numbered(WATCH))?;
        loop {
            let reply = client.receive()?;
            if reply.number() == Some(WATCH as i64) {
                reply.granted()?;
                return Ok(Self { client, asked: None });
            }
        }
    }

    /// Waits for the next sample or list of workers.
    pub fn next(&mut self) -> Result<News, Failure> {
        loop {
            if self.asked.is_none_or(|asked| asked.elapsed() >= WORKERS_EVERY) {
                let list = Request::new(Op::ListWorkers)
                    .with(|fields| fields.integer("limit", WORKERS as i64));
                self.client.send(list.numbered(LIST))?;
                self.asked = Some(Instant::now());
            }
            let told = self.client.receive()?;
            // A role that may not list workers sees none.
            if told.number() == Some(LIST as i64) {
                let listed = told.value().get("data");
                let more = !listed.get("next").is_nil();
                return Ok(News::Workers(sample::workers(listed.get("workers")), more));
            }
            if told.value().get("type").text() == Some("watch") {
                return Ok(News::Sample(Box::new(Sample::of(told.value()))));
            }
            // The server ends connections with a reason, which is no answer to anything.
            told.granted()?;
        }
    }

    /// Hands on all that comes, and comes back when the server went away, until no one listens.
    pub fn report(self, target: &Target, every: Duration, news: &Sender<News>) {
        let mut stream = Some(self);
        loop {
            let told = match &mut stream {
                Some(stream) => stream.next(),
                None => {
                    thread::sleep(PAUSE);
                    Self::open(target, every).and_then(|fresh| stream.insert(fresh).next())
                }
            };
            let told = told.unwrap_or_else(|failure| {
                stream = None;
                News::Trouble(match failure {
                    Failure::Failed(text) | Failure::Refused(text) | Failure::Usage(text) => text,
                    Failure::Gone => "the server went away".to_owned(),
                })
            });
            if news.send(told).is_err() {
                return;
            }
        }
    }
}
