//! A connection as its callers see it: requests go in, and each gets its own reply, in whatever order the replies come.
//! The driver moves the bytes; this module is the state that both sides share.
//!
//! Callers write into one buffer under a short lock, so that what many of them ask at the same time leaves
//! in one send, and no request needs a channel or an allocation of its own.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc};

use super::strays::Returner;
use crate::error::Error;
use crate::wire::reply::{Incoming, Reply};
use crate::wire::request::{Output, Request};

/// Requests of callers that may be under way at a time. The server works on fifty of one connection; the last is kept
/// for asking for a sign of life when all others are slow.
pub(crate) const IN_FLIGHT_MAX: usize = 49;

/// Of them, so many may be such as the server keeps waiting; the others stay free for quick ones.
const WAITING_MAX: usize = 40;

/// Bytes that have been asked to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    ready: VecDeque<Bytes>,
    tail: BytesMut,
}

impl Output for Outbox {
    fn bytes(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    fn shared(&mut self, bytes: &Bytes) {
        if !self.tail.is_empty() {
            self.ready.push_back(self.tail.split().freeze());
        }
        self.ready.push_back(bytes.clone());
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.tail.is_empty()
    }

    /// Moves everything behind what `sending` has.
    fn drain_into(&mut self, sending: &mut VecDeque<Bytes>) {
        sending.append(&mut self.ready);
        if !self.tail.is_empty() {
            sending.push_back(self.tail.split().freeze());
        }
    }
}

/// A request that was sent, or the place of one.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    phase: Phase,
    waits: bool,
    /// Whether it took of the room, which the sign of life does not.
    roomed: bool,
    /// Whether the answer brings jobs, and how long their locks last.
    brings: Option<Duration>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Free,
    Waiting(Option<Waker>),
    Arrived(Reply),
    /// Nobody waits any more, but the server still works on it.
    Abandoned,
}

#[derive(Debug, Default)]
struct State {
    out: Outbox,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Requests whose answer a caller waits for.
    waiting: usize,
    /// Requests that nobody waits for any more, and whose answer may bring jobs.
    owed: usize,
    /// The task that moves the bytes, if it sleeps.
    driver: Option<Waker>,
    /// Nothing more is to be sent.
    closing: bool,
    /// Nothing new is to be sent: it closes once nobody waits for an answer any more.
    retired: bool,
    /// Why there is no connection any more.
    end: Option<Arc<str>>,
    heard_at: Option<Instant>,
    /// Where events go, if they were asked for, until there is no connection any more.
    events: Option<mpsc::Sender<Reply>>,
    events_lost: u64,
}

/// State of a connection that callers and its driver share.
#[derive(Debug)]
pub(crate) struct Pipe {
    state: Mutex<State>,
    /// Room among those in flight.
    room: Semaphore,
    /// Room among those that the server keeps waiting.
    waits: Semaphore,
    /// Takes the jobs that came to a call that is gone.
    returner: Option<Returner>,
    pub(crate) opened_at: Instant,
}

/// Snapshot of what the driver has to do next.
pub(crate) struct Orders {
    /// Whether the end of the stream is to be told.
    pub(crate) closing: bool,
    /// Whether anybody still waits for an answer.
    pub(crate) awaited: bool,
    /// Whether jobs may still come that have to go back.
    pub(crate) owed: bool,
    pub(crate) ended: bool,
}

impl Pipe {
    pub(crate) fn new(events: Option<mpsc::Sender<Reply>>, returner: Option<Returner>) -> Self {
        Self {
            state: Mutex::new(State { events, ..State::default() }),
            room: Semaphore::new(IN_FLIGHT_MAX),
            waits: Semaphore::new(WAITING_MAX),
            returner,
            opened_at: Instant::now(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can leave it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests can still be sent.
    pub(crate) fn is_usable(&self) -> bool {
        let state = self.state();
        state.end.is_none() && !state.closing && !state.retired
    }

    /// How many more requests it would take at once.
    pub(crate) fn room(&self) -> usize {
        self.room.available_permits()
    }

    /// Waits for room and sends; the answer comes from what is returned. `None` if there is no connection any
    /// more, and nothing was sent.
    pub(crate) async fn send(self: &Arc<Self>, request: &Request) -> Option<PendingReply> {
        let waits = !request.waits.is_zero();
        let waiting = if waits { Some(self.waits.acquire().await.ok()?) } else { None };
        let room = self.room.acquire().await.ok()?;
        let state = self.state();
        if state.end.is_some() || state.closing || state.retired {
            return None;
        }
        // They come back when the reply does, which may be after the caller has left.
        room.forget();
        if let Some(waiting) = waiting {
            waiting.forget();
        }
        Some(self.put(state, request, true))
    }

    /// Puts a request on its way.
    fn put(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        request: &Request,
        roomed: bool,
    ) -> PendingReply {
        let index = state.free.pop().unwrap_or_else(|| {
            state.slots.push(Slot::default());
            state.slots.len() as u32 - 1
        });
        let slot = &mut state.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.phase = Phase::Waiting(None);
        slot.waits = roomed && !request.waits.is_zero();
        slot.roomed = roomed;
        slot.brings = request.brings;
        let number = u64::from(slot.generation) << 32 | u64::from(index);
        state.waiting += 1;
        request.send_as(number, &mut state.out);
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        PendingReply { pipe: self.clone(), index, done: false }
    }

    /// Sends nothing more; what was asked is still answered.
    pub(crate) fn close(&self) {
        let driver = {
            let mut state = self.state();
            state.closing = true;
            state.driver.take()
        };
        self.room.close();
        self.waits.close();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// There is no connection any more.
    pub(crate) fn end(&self, why: Arc<str>) {
        let mut wakers = Vec::new();
        {
            let mut state = self.state();
            if state.end.is_some() {
                return;
            }
            state.end = Some(why);
            state.events = None;
            wakers.extend(state.driver.take());
            for slot in &mut state.slots {
                if let Phase::Waiting(waker) = &mut slot.phase {
                    wakers.extend(waker.take());
                }
            }
        }
        self.room.close();
        self.waits.close();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Why there is no connection any more.
    pub(crate) fn why_ended(&self) -> Option<Arc<str>> {
        self.state().end.clone()
    }

    /// Events that nobody took in time.
    pub(crate) fn events_lost(&self) -> u64 {
        self.state().events_lost
    }

    /// An answer did not come in time. A connection that has not said a word since the question may be dead, and
    /// waiting for the system to notice would take a quarter of an hour. It takes nothing new from now on, and what
    /// else is under way on it stays so if the server gives a sign of life within `patience`.
    pub(crate) fn suspect(self: &Arc<Self>, asked_at: Instant, patience: Duration) {
        let state = self.state();
        if state.heard_since(asked_at) || state.retired || state.closing || state.end.is_some() {
            return;
        }
        drop(state);
        self.retire();
        let state = self.state();
        if state.end.is_some() || state.closing {
            return;
        }
        let Ok(ping) = Request::new("Ping").seal() else { return };
        let alive = self.put(state, &ping, false);
        let (pipe, suspected_at) = (self.clone(), Instant::now());
        tokio::spawn(async move {
            let answered = tokio::time::timeout(patience, alive).await;
            if answered.is_err() && !pipe.state().heard_since(suspected_at) {
                pipe.end("the server has gone silent".into());
            }
        });
    }

    /// Takes nothing new, and closes once nobody waits for an answer any more.
    fn retire(&self) {
        let idle = {
            let mut state = self.state();
            state.retired = true;
            state.waiting == 0
        };
        if idle {
            self.close();
        } else {
            self.room.close();
            self.waits.close();
        }
    }

    fn close_if_idle(&self) {
        let state = self.state();
        let idle = state.retired && !state.closing && state.waiting == 0;
        drop(state);
        if idle {
            self.close();
        }
    }

    /// The jobs of an answer that cannot be read go back.
    pub(crate) fn give_back(&self, reply: &Reply, locks_last: Duration) {
        if let Some(returner) = &self.returner {
            returner.take(reply, locks_last);
        }
    }

    /// The driver's side: takes what is to be sent, and notes whom to wake when there is more.
    pub(crate) fn take(&self, sending: &mut VecDeque<Bytes>, driver: &Waker) -> Orders {
        let mut state = self.state();
        state.out.drain_into(sending);
        state.driver = Some(driver.clone());
        Orders {
            closing: state.closing,
            awaited: state.waiting > 0,
            owed: state.owed > 0,
            ended: state.end.is_some(),
        }
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_output(&self) -> bool {
        !self.state().out.is_empty()
    }

    /// The driver's side: frames have arrived. An answer that fits no question is passed over: nothing can
    /// be concluded from it.
    pub(crate) fn deliver(&self, incoming: &mut Vec<Incoming>) {
        let (mut room, mut waits) = (0, 0);
        let mut wakers = Vec::new();
        let mut complaint = None;
        let mut strays = Vec::new();
        {
            let mut state = self.state();
            state.heard_at = Some(Instant::now());
            for incoming in incoming.drain(..) {
                match incoming {
                    Incoming::Reply(number, reply) => {
                        let Some(arrived) = state.arrived(number, reply) else { continue };
                        room += usize::from(arrived.roomed);
                        waits += usize::from(arrived.waits);
                        wakers.extend(arrived.waker);
                        strays.extend(arrived.stray);
                    }
                    Incoming::Event(event) => {
                        // A reader that does not keep up loses the newest events; `events_lost` lets it see how many.
                        let told =
                            state.events.as_ref().map(|events| events.try_send(event).is_ok());
                        state.events_lost += u64::from(told == Some(false));
                    }
                    Incoming::Complaint(words) => complaint = Some(words),
                }
            }
        }
        self.room.add_permits(room);
        self.waits.add_permits(waits);
        wakers.into_iter().for_each(Waker::wake);
        for (reply, lasts) in strays {
            self.give_back(&reply, lasts);
        }
        if let Some(words) = complaint {
            self.end(words.into());
        }
    }
}

/// Permits and wakers that an answer sets free.
struct Arrived {
    roomed: bool,
    waits: bool,
    waker: Option<Waker>,
    /// The answer itself if nobody waits for it and it may bring jobs.
    stray: Option<(Reply, Duration)>,
}

impl State {
    fn heard_since(&self, asked_at: Instant) -> bool {
        self.heard_at.is_some_and(|heard_at| heard_at >= asked_at)
    }

    /// Puts an answer where its question was.
    fn arrived(&mut self, number: u64, reply: Reply) -> Option<Arrived> {
        let (generation, index) = ((number >> 32) as u32, number as u32);
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != generation {
            return None;
        }
        let (roomed, waits) = (slot.roomed, slot.waits);
        match &mut slot.phase {
            Phase::Waiting(waker) => {
                let waker = waker.take();
                slot.phase = Phase::Arrived(reply);
                Some(Arrived { roomed, waits, waker, stray: None })
            }
            Phase::Abandoned => {
                slot.phase = Phase::Free;
                let stray = slot.brings.map(|lasts| (reply, lasts));
                self.owed -= usize::from(stray.is_some());
                self.free.push(index);
                Some(Arrived { roomed, waits, waker: None, stray })
            }
            Phase::Free | Phase::Arrived(_) => None,
        }
    }

    fn release(&mut self, index: u32) {
        self.slots[index as usize].phase = Phase::Free;
        self.free.push(index);
        self.waiting -= 1;
    }
}

/// The answer to a request that was sent.
#[derive(Debug)]
pub(crate) struct PendingReply {
    pipe: Arc<Pipe>,
    index: u32,
    done: bool,
}

impl Future for PendingReply {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index;
        let answer = {
            let mut state = self.pipe.state();
            let ended = state.end.clone();
            let phase = &mut state.slots[index as usize].phase;
            match (std::mem::take(phase), ended) {
                (Phase::Arrived(reply), _) => {
                    state.release(index);
                    Ok(reply)
                }
                (_, Some(why)) => {
                    state.release(index);
                    Err(Error::Lost(why))
                }
                (_, None) => {
                    *phase = Phase::Waiting(Some(context.waker().clone()));
                    return Poll::Pending;
                }
            }
        };
        self.done = true;
        self.pipe.close_if_idle();
        Poll::Ready(answer)
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut state = self.pipe.state();
        let slot = &mut state.slots[self.index as usize];
        let brings = slot.brings;
        let mut stray = None;
        if let Phase::Arrived(reply) = std::mem::take(&mut slot.phase) {
            stray = brings.map(|lasts| (reply, lasts));
            state.release(self.index);
        } else {
            slot.phase = Phase::Abandoned;
            state.waiting -= 1;
            state.owed += usize::from(brings.is_some());
        }
        // A closing connection may have waited for this answer only: let its driver look again.
        let driver = if state.closing { state.driver.take() } else { None };
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        if let Some((reply, lasts)) = stray {
            self.pipe.give_back(&reply, lasts);
        }
        self.pipe.close_if_idle();
    }
}

impl Reply {
    /// The reply if the server said ok, else why not.
    pub(crate) fn accepted(self) -> Result<Self, Error> {
        if self.ok() { Ok(self) } else { Err(Error::Refused(self.refusal())) }
    }
}
