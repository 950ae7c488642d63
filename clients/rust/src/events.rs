//! What happens in a queue, as it happens.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::Error;
use crate::net::dial::{Settings, dial};
use crate::net::pipe::Pipe;
use crate::records::Event;
use crate::wire::reply::Reply;
use crate::wire::request::Request;

/// Events that may wait to be taken; those beyond are lost.
const WAITING_MAX: usize = 10_000;

/// After so long a silence the server is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(15);

/// The events of one queue, on a connection of its own: from [`Client::events`](crate::Client::events).
///
/// ```no_run
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let mut events = client.events("emails").await?;
/// loop {
///     match events.next().await {
///         Ok(event) => println!("{} {}", event.event_type, event.job_id),
///         // The next call listens again; what happens in between is not told.
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// # }
/// ```
pub struct Events {
    settings: Settings,
    queue: String,
    listening: Option<(Arc<Pipe>, mpsc::Receiver<Reply>)>,
    lost: u64,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Events").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) async fn listen(settings: Settings, queue: &str) -> Result<Self, Error> {
        let mut events = Self { settings, queue: queue.to_owned(), listening: None, lost: 0 };
        events.subscribe().await?;
        Ok(events)
    }

    async fn subscribe(&mut self) -> Result<(), Error> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let (pipe, _) = dial(&self.settings, Some(sender), None).await?;
        self.listening = Some((pipe.clone(), receiver));
        let asked = ask(&pipe, &self.settings, Request::new("SubscribeEvents").queue(&self.queue));
        let subscribed = asked.await;
        if subscribed.is_err() {
            self.hang_up();
        }
        subscribed.map(drop)
    }

    fn hang_up(&mut self) {
        if let Some((pipe, _)) = self.listening.take() {
            self.lost += pipe.events_lost();
            pipe.close();
        }
    }

    /// The next event, as soon as there is one. An error says that the connection broke; the call after it listens
    /// again, and what happened in between is not told.
    pub async fn next(&mut self) -> Result<Event, Error> {
        if self.listening.is_none() {
            self.subscribe().await?;
        }
        loop {
            let Some((pipe, receiver)) = &mut self.listening else { return Err(Error::Closed) };
            match timeout(SILENCE, receiver.recv()).await {
                Ok(Some(event)) => return event.read("event"),
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

    /// How many events were not told because 10,000 of them waited to be taken already.
    pub fn lost(&self) -> u64 {
        let now = self.listening.as_ref().map_or(0, |(pipe, _)| pipe.events_lost());
        self.lost + now
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.hang_up();
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
