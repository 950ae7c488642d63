//! State that the parts of a worker share: its jobs, its room, and the signal to end.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};

use super::Options;
use super::events::{Summary, Tally, WorkerEvent, count};
use crate::client::Client;
use crate::net::dial::Settings;
use crate::net::pipe::Pipe;
use crate::records::Job;

/// A word that is given once and heard by all.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    given: AtomicBool,
    heard: Notify,
}

impl Stop {
    pub(crate) fn set(&self) {
        self.given.store(true, Ordering::Release);
        self.heard.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    pub(crate) async fn wait(&self) {
        let mut heard = pin!(self.heard.notified());
        // Listening begins before looking, or the word could be given in between.
        heard.as_mut().enable();
        if !self.is_set() {
            heard.await;
        }
    }

    /// Waits for `work`, or for the word: `None` then.
    pub(crate) async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut stopped = pin!(self.wait());
        std::future::poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            stopped.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// Sleeps, but not beyond the word.
    pub(crate) async fn sleep(&self, duration: Duration) {
        let _ = tokio::time::timeout(duration, self.wait()).await;
    }
}

/// A job that is here.
#[derive(Debug)]
pub(crate) struct Held {
    key: u64,
    pub(crate) job: Job,
    pub(crate) token: String,
    lost: AtomicBool,
    /// The handler has ended; the outcome is still to be sent.
    worked: AtomicBool,
    /// A renewal of its lock is under way.
    pub(crate) renewing: AtomicBool,
    /// Is woken when it is lost.
    told: Notify,
    /// Until when its lock lasts, as far as is known here.
    until: Mutex<Instant>,
}

impl Held {
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether the lock should still last.
    pub(crate) fn is_safe(&self) -> bool {
        !self.is_lost() && Instant::now() < *lock(&self.until)
    }

    pub(crate) fn until(&self) -> Instant {
        *lock(&self.until)
    }

    /// Notes that the handler has ended.
    pub(crate) fn worked(&self) {
        self.worked.store(true, Ordering::Release);
    }

    /// Waits until the job is not held here any more.
    pub(crate) async fn lost(&self) {
        loop {
            let mut told = pin!(self.told.notified());
            // Listening begins before looking, or the loss could come in between.
            told.as_mut().enable();
            if !self.is_safe() {
                return;
            }
            // Meanwhile the lock may have been renewed.
            let _ = tokio::time::timeout_at(self.until().into(), told).await;
        }
    }

    pub(crate) fn renewed(&self, until: Instant) {
        let mut known = lock(&self.until);
        *known = until.max(*known);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) queue: String,
    pub(crate) options: Options,
    pub(crate) stop: Stop,
    /// The word that handlers are broken off.
    pub(crate) break_off: Stop,
    /// Room for jobs that are worked on or wait for a handler.
    pub(crate) room: Semaphore,
    /// Room for jobs that are worked on.
    pub(crate) running: Semaphore,
    pub(crate) tally: Tally,
    held: Mutex<HashMap<u64, Arc<Held>>>,
    next_key: AtomicU64,
    pulling: Mutex<Option<Arc<Pipe>>>,
    /// By when handlers must be done, once the worker is to end.
    deadline: Mutex<Option<Instant>>,
}

impl Shared {
    pub(crate) fn new(client: Client, queue: String, options: Options) -> Self {
        Self {
            client,
            queue,
            stop: Stop::default(),
            break_off: Stop::default(),
            room: Semaphore::new(options.concurrency + options.prefetch),
            running: Semaphore::new(options.concurrency),
            tally: Tally::default(),
            held: Mutex::default(),
            next_key: AtomicU64::new(0),
            pulling: Mutex::default(),
            deadline: Mutex::default(),
            options,
        }
    }

    /// Gives the word that it is to end.
    pub(crate) fn stop(&self) {
        self.stop.set();
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.client.pool.settings
    }

    /// Jobs that may be worked on or wait for a handler.
    pub(crate) fn capacity(&self) -> usize {
        self.options.concurrency + self.options.prefetch
    }

    pub(crate) fn tell(&self, event: &WorkerEvent) {
        let Some(told) = &self.options.on_event else { return };
        // A panic of the program's own must not take the worker with it. The panic hook has printed it.
        if catch_unwind(AssertUnwindSafe(|| told(event))).is_err() {
            count(&self.tally.listener_panics);
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        self.tally.summary()
    }

    /// Takes in a job that was pulled.
    pub(crate) fn hold(&self, job: Job, token: String, until: Instant) -> Arc<Held> {
        count(&self.tally.pulled);
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let held = Arc::new(Held {
            key,
            job,
            token,
            lost: AtomicBool::new(false),
            worked: AtomicBool::new(false),
            renewing: AtomicBool::new(false),
            told: Notify::new(),
            until: Mutex::new(until),
        });
        lock(&self.held).insert(key, held.clone());
        held
    }

    /// A job is not here any more. Its lock is not renewed from now on.
    pub(crate) fn release(&self, held: &Held) {
        lock(&self.held).remove(&held.key);
    }

    /// The lock of a job is gone, and its handler, if it has one, can know.
    pub(crate) fn lose(&self, held: &Held) {
        if !held.lost.swap(true, Ordering::AcqRel) {
            held.told.notify_waiters();
            // With its outcome on the way it may be gone because that was taken; the answer will tell.
            if !held.worked.load(Ordering::Acquire) {
                count(&self.tally.lost);
                self.tell(&WorkerEvent::LockLost { id: held.job.id.clone() });
            }
        }
    }

    pub(crate) fn held_count(&self) -> usize {
        lock(&self.held).len()
    }

    pub(crate) fn all_held(&self) -> Vec<Arc<Held>> {
        lock(&self.held).values().cloned().collect()
    }

    /// Notes the connection that jobs come on, so that its waiting question can be called off.
    pub(crate) fn pulls_on(&self, pipe: Option<Arc<Pipe>>) {
        *lock(&self.pulling) = pipe;
    }

    /// Says goodbye on the connection that jobs come on. Jobs in transit still arrive: the server
    /// answers an announced end after everything else.
    pub(crate) fn stop_pulling(&self) {
        if let Some(pipe) = lock(&self.pulling).as_ref() {
            pipe.close();
        }
    }

    /// Nothing new begins from now on.
    pub(crate) fn begin_to_drain(&self) {
        *lock(&self.deadline) = Some(Instant::now() + self.options.drain_timeout);
        self.room.close();
        self.running.close();
    }

    /// By when handlers must be done; not known before the worker is to end.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        *lock(&self.deadline)
    }

    /// Whether outcomes that cannot be told are to be given up.
    pub(crate) fn gives_up(&self) -> bool {
        let patience = self.settings().timeout;
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline + patience)
    }
}
