//! Streams that the server sends without further requests: events as they happen, and samples of its figures. Each
//! stream has a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::Error;
use crate::event_choice::{EventChoice, Missed};
use crate::net::dial::{Settings, dial};
use crate::net::pipe::Pipe;
use crate::records::Event;
use crate::selection::Watching;
use crate::views::Sample;
use crate::wire::reply::Reply;
use crate::wire::request::Request;

/// Events that may wait to be taken; those beyond are lost.
const EVENTS_MAX: usize = 10_000;

/// Samples that may wait to be taken. Few, because the newest says most.
const SAMPLES_MAX: usize = 16;

/// After so long a silence the server is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(15);

/// A connection on which the server tells something from the answer to a request on.
struct Feed {
    settings: Settings,
    /// The command that opens the stream, sent again on a new connection.
    request: Request,
    /// How much may wait to be taken.
    waiting_max: usize,
    listening: Option<(Arc<Pipe>, mpsc::Receiver<Reply>)>,
    lost: u64,
    /// The answer to `request`, until the owner of the stream has read it.
    answer: Option<Reply>,
}

impl Feed {
    async fn listen(
        settings: Settings,
        request: Request,
        waiting_max: usize,
    ) -> Result<Self, Error> {
        let (listening, lost, answer) = (None, 0, None);
        let mut feed = Self { settings, request, waiting_max, listening, lost, answer };
        feed.subscribe().await?;
        Ok(feed)
    }

    async fn subscribe(&mut self) -> Result<(), Error> {
        let (sender, receiver) = mpsc::channel(self.waiting_max);
        let (pipe, _) = dial(&self.settings, Some(sender), None).await?;
        self.listening = Some((pipe.clone(), receiver));
        match ask(&pipe, &self.settings, self.request.clone()).await {
            Ok(answer) => {
                self.answer = Some(answer);
                Ok(())
            }
            Err(error) => {
                self.hang_up();
                Err(error)
            }
        }
    }

    fn hang_up(&mut self) {
        if let Some((pipe, _)) = self.listening.take() {
            self.lost += pipe.events_lost();
            pipe.close();
        }
    }

    async fn next(&mut self) -> Result<Reply, Error> {
        if self.listening.is_none() {
            self.subscribe().await?;
        }
        loop {
            let Some((pipe, receiver)) = &mut self.listening else { return Err(Error::Closed) };
            match timeout(SILENCE, receiver.recv()).await {
                Ok(Some(told)) => return Ok(told),
                Ok(None) => {
                    let why = pipe.why_ended().unwrap_or_else(|| "it was closed".into());
                    self.hang_up();
                    return Err(Error::Lost(why));
                }
                Err(_) => {
                    if let Err(error) = ask(pipe, &self.settings, Request::new("Ping")).await {
                        self.hang_up();
                        return Err(error);
                    }
                }
            }
        }
    }

    fn lost(&self) -> u64 {
        let now = self.listening.as_ref().map_or(0, |(pipe, _)| pipe.events_lost());
        self.lost + now
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// The events of one queue or of a choice, on a connection of its own: from [`Client::events`](crate::Client::events) and
/// [`Client::events_of`](crate::Client::events_of).
///
/// ```no_run
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let mut events = client.events("emails").await?;
/// loop {
///     match events.next().await {
///         Ok(event) => println!("{} {}", event.event_type, event.job_id),
///         // The next call listens again, and what happens in between comes first if the server still has it.
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// # }
/// ```
pub struct Events {
    feed: Feed,
    choice: EventChoice,
    /// The last id that came.
    last_id: Option<String>,
    missed: Missed,
    /// Events passed over since the last one, as far as the server has said.
    passed_over: u64,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Events").field("choice", &self.choice).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) async fn listen(settings: Settings, choice: EventChoice) -> Result<Self, Error> {
        let feed = Feed::listen(settings, choice.request(None), EVENTS_MAX).await?;
        let (last_id, missed) = (None, Missed::default());
        let mut events = Self { feed, choice, last_id, missed, passed_over: 0 };
        events.read_answer()?;
        Ok(events)
    }

    /// The next event, as soon as there is one. An error says that the connection broke; the call after it listens
    /// again, and what happened in between comes first, if the server still has it: see [`Events::missed`].
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            self.feed.request = self.choice.request(self.last_id.as_deref());
            let told = self.feed.next().await?;
            self.read_answer()?;
            let mut event: Event = told.read("event")?;
            if event.id.is_some() {
                self.last_id.clone_from(&event.id);
            }
            match (&*event.event_type, event.count) {
                ("missed", count) => self.missed.events += count.unwrap_or_default(),
                ("passed-over", count) => self.passed_over += count.unwrap_or_default(),
                _ => {
                    let before = std::mem::take(&mut self.passed_over);
                    if before > 0 {
                        event.passed_over = Some(before + event.passed_over.unwrap_or_default());
                    }
                    return Ok(event);
                }
            }
        }
    }

    /// Reads what the server has said of the place that it begins at.
    fn read_answer(&mut self) -> Result<(), Error> {
        let Some(answer) = self.feed.answer.take() else { return Ok(()) };
        if self.last_id.is_some() {
            // The stream begins again after `last_id`, and the server counts the events passed over anew from there.
            self.passed_over = 0;
            match answer.read::<Option<u64>>("missed")? {
                Some(missed) => self.missed.events += missed,
                None => self.missed.unknown += 1,
            }
        }
        self.last_id = answer.read("id")?;
        Ok(())
    }

    /// Events that the server did not send because this client read too slowly or had no connection.
    pub fn missed(&self) -> Missed {
        self.missed
    }

    /// How many events were not told because 10,000 of them waited to be taken already.
    pub fn lost(&self) -> u64 {
        self.feed.lost()
    }
}

/// Samples of the figures of the server, on a connection of their own: from [`Client::watch`](crate::Client::watch).
///
/// ```no_run
/// use corq_client::Watching;
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let mut samples = client.watch(&Watching::new().queues(10)).await?;
/// loop {
///     let sample = samples.next().await?;
///     for queue in sample.queues {
///         println!("{}: {} wait, {} a second", queue.name, queue.waiting, queue.complete_per_sec);
///     }
/// }
/// # }
/// ```
pub struct Samples {
    feed: Feed,
}

impl std::fmt::Debug for Samples {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Samples").finish_non_exhaustive()
    }
}

impl Samples {
    pub(crate) async fn listen(settings: Settings, what: &Watching) -> Result<Self, Error> {
        Ok(Self { feed: Feed::listen(settings, what.request(), SAMPLES_MAX).await? })
    }

    /// The next sample, the first at once. An error says that the connection broke; the call after it watches again.
    pub async fn next(&mut self) -> Result<Sample, Error> {
        self.feed.next().await?.record::<Sample>()
    }
}

/// A request on a connection of one's own. One that is not answered in time ends the connection; if the answer brings
/// jobs, it may still come for a while, and they go back.
pub(crate) async fn ask(
    pipe: &Arc<Pipe>,
    settings: &Settings,
    request: Request,
) -> Result<Reply, Error> {
    let request = request.seal()?;
    let after = settings.timeout.saturating_add(request.waits);
    let asked = async {
        match pipe.send(&request).await {
            Some(reply) => reply.await?.accepted(),
            None => Err(Error::Lost(pipe.why_ended().unwrap_or_else(|| "it was closed".into()))),
        }
    };
    timeout(after, asked).await.unwrap_or_else(|_| {
        if request.brings.is_some() {
            pipe.close();
        } else {
            pipe.end("the server has gone silent".into());
        }
        Err(Error::Timeout { after, sent: true })
    })
}
