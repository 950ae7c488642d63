//! The connections of a client: opened when they are needed, opened again when they broke.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as TurnMutex;
use tokio::time::{sleep_until, timeout_at};

use super::dial::{Backoff, ServerInfo, Settings, dial};
use super::pipe::{IN_FLIGHT_MAX, Pipe};
use super::strays::Returner;
use crate::error::Error;
use crate::wire::reply::Reply;
use crate::wire::request::Request;

/// A connection that lived this long was a good one: after it, the first attempt is made at once.
const GOOD_LIFE: Duration = Duration::from_secs(1);

/// The connections of one client.
pub(crate) struct Pool {
    pub(crate) settings: Settings,
    places: Vec<Place>,
    closed: AtomicBool,
    /// Itself, for giving back jobs that come to a call that is gone.
    own: Weak<Self>,
}

/// Room for one connection.
#[derive(Default)]
struct Place {
    live: Mutex<Option<Arc<Pipe>>>,
    /// The holder of the lock opens the connection; the others wait for the outcome.
    dialer: TurnMutex<Dialer>,
    /// Why the last attempt failed.
    trouble: Mutex<Option<Error>>,
}

#[derive(Default)]
struct Dialer {
    backoff: Backoff,
    not_before: Option<Instant>,
    info: ServerInfo,
}

/// Which way a request went, and when.
struct Way {
    pipe: Arc<Pipe>,
    asked_at: Instant,
}

fn of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Place {
    fn usable(&self) -> Option<Arc<Pipe>> {
        of(&self.live).as_ref().filter(|pipe| pipe.is_usable()).cloned()
    }

    /// A connection, sooner or later. Refusals are answered at once: the same token will not be taken
    /// the next time.
    async fn connect(&self, pool: &Pool, patient: bool) -> Result<Arc<Pipe>, Error> {
        if let Some(pipe) = self.usable() {
            return Ok(pipe);
        }
        let settings = &pool.settings;
        let mut dialer = self.dialer.lock().await;
        if let Some(pipe) = self.usable() {
            return Ok(pipe);
        }
        if let Some(former) = of(&self.live).take() {
            if former.opened_at.elapsed() >= GOOD_LIFE {
                dialer.backoff.reset();
                dialer.not_before = None;
            } else {
                dialer.not_before = Some(Instant::now() + dialer.backoff.next(settings));
            }
        }
        loop {
            if let Some(not_before) = dialer.not_before {
                sleep_until(not_before.into()).await;
            }
            match dial(settings, None, Some(pool.returner())).await {
                Ok((pipe, info)) => {
                    dialer.info = info;
                    dialer.not_before = None;
                    *of(&self.live) = Some(pipe.clone());
                    *of(&self.trouble) = None;
                    return Ok(pipe);
                }
                Err(error) => {
                    dialer.not_before = Some(Instant::now() + dialer.backoff.next(settings));
                    *of(&self.trouble) = Some(error.clone());
                    if !patient || !matches!(error, Error::Unreachable(_)) {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl Pool {
    pub(crate) fn new(settings: Settings, own: &Weak<Self>) -> Self {
        let places = (0..settings.connections).map(|_| Place::default()).collect();
        Self { settings, places, closed: false.into(), own: own.clone() }
    }

    /// Gives back the jobs of answers that no caller takes. Only within a runtime.
    pub(crate) fn returner(&self) -> Returner {
        Returner::new(&self.settings, &self.own)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Opens the first connection, or says at once why not.
    pub(crate) async fn open(&self) -> Result<(), Error> {
        self.places[0].connect(self, false).await.map(drop)
    }

    /// The greeting of the server on the first connection, opened here if there is none.
    pub(crate) async fn info(&self) -> Result<ServerInfo, Error> {
        let place = &self.places[0];
        place.connect(self, false).await?;
        Ok(place.dialer.lock().await.info.clone())
    }

    fn preferred(&self, lane: u64) -> &Place {
        &self.places[(lane % self.places.len() as u64) as usize]
    }

    /// The connection for a request: the one it prefers, or, if that one is busy, one with room.
    async fn connection(&self, lane: u64) -> Result<Arc<Pipe>, Error> {
        // A connection that is not open yet has all its room.
        let room = |place: &Place| place.usable().map_or(IN_FLIGHT_MAX, |pipe| pipe.room());
        let mut place = self.preferred(lane);
        let mut pipe = place.connect(self, true).await?;
        // Many may have waited for the same connection to be opened; not all of them fit.
        for _ in 1..self.places.len() {
            if pipe.room() > 0 {
                break;
            }
            let roomy = self.places.iter().max_by_key(|place| room(place));
            place = roomy.filter(|place| room(place) > 0).unwrap_or(place);
            pipe = place.connect(self, true).await?;
        }
        Ok(pipe)
    }

    /// Makes a single attempt: connects, sends the request, waits for the answer. Sets `way` once the request was sent,
    /// so that a timeout knows the connection to suspect.
    async fn attempt(&self, request: &Request, way: &mut Option<Way>) -> Result<Reply, Error> {
        loop {
            let pipe = self.connection(request.lane).await?;
            if self.is_closed() {
                return Err(Error::Closed);
            }
            // Nothing was sent if the connection ended meanwhile: the next one will do.
            if let Some(reply) = pipe.send(request).await {
                *way = Some(Way { pipe, asked_at: Instant::now() });
                return reply.await;
            }
        }
    }

    /// A request and its answer, whatever it takes within the time that it has.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Reply, Error> {
        self.ask_within(request, self.settings.timeout.saturating_add(request.waits)).await
    }

    /// A request and its answer, within a time of its own.
    pub(crate) async fn ask_within(
        &self,
        request: &Request,
        after: Duration,
    ) -> Result<Reply, Error> {
        let deadline = tokio::time::Instant::now() + after;
        let mut backoff = Backoff::default();
        loop {
            if self.is_closed() {
                return Err(Error::Closed);
            }
            let mut way = None;
            match timeout_at(deadline, self.attempt(request, &mut way)).await {
                Ok(Ok(reply)) => return reply.accepted(),
                Ok(Err(Error::Lost(why))) if request.repeats => {
                    let wait = tokio::time::Instant::now() + backoff.next(&self.settings);
                    if wait >= deadline {
                        return Err(Error::Lost(why));
                    }
                    sleep_until(wait).await;
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    if let Some(Way { pipe, asked_at }) = way {
                        pipe.suspect(asked_at, self.settings.timeout);
                        return Err(Error::Timeout { after, sent: true });
                    }
                    let trouble = of(&self.preferred(request.lane).trouble).clone();
                    return Err(trouble.unwrap_or(Error::Timeout { after, sent: false }));
                }
            }
        }
    }

    /// Sends nothing more. What was sent is still answered.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for place in &self.places {
            if let Some(pipe) = of(&place.live).as_ref() {
                pipe.close();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}
