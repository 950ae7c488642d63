//! Gathers jobs that come one by one into pushes of many.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::error::Error;
use crate::options::JobOptions;
use crate::queue::{JobBatch, Queue};
use crate::raw::Payload;
use crate::telemetry::Producing;

/// After so many jobs of one batch were refused, the others of it are tried one by one.
const REFUSALS_MAX: usize = 16;

/// When a batch leaves, and how much may wait.
#[derive(Clone, Debug)]
#[must_use]
pub struct BatcherOptions {
    jobs_max: usize,
    bytes_max: usize,
    linger: Duration,
    waiting_max: usize,
    waiting_bytes_max: u32,
    in_flight: usize,
}

impl Default for BatcherOptions {
    fn default() -> Self {
        Self {
            jobs_max: 500,
            bytes_max: 1 << 20,
            linger: Duration::from_millis(2),
            waiting_max: 10_000,
            waiting_bytes_max: 64 << 20,
            in_flight: 4,
        }
    }
}

impl BatcherOptions {
    /// Batches of up to 500 jobs or a megabyte, two milliseconds after their first job at the latest, four under way
    /// at a time; 10,000 jobs or 64 MB may wait.
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch with so many jobs leaves at once.
    pub fn jobs_max(mut self, jobs: usize) -> Self {
        self.jobs_max = jobs.max(1);
        self
    }

    /// A batch of so many bytes leaves at once.
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }

    /// How long a batch waits for more jobs after its first.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// How many jobs may wait; a push beyond that waits for room itself.
    pub fn waiting_max(mut self, jobs: usize) -> Self {
        self.waiting_max = jobs.max(1);
        self
    }

    /// How many bytes of jobs may wait or be under way; a push beyond that waits for room itself.
    pub fn waiting_bytes_max(mut self, bytes: u32) -> Self {
        self.waiting_bytes_max = bytes.max(1);
        self
    }

    /// How many batches may be under way at a time; with one, jobs keep their order.
    pub fn in_flight(mut self, batches: usize) -> Self {
        self.in_flight = batches.max(1);
        self
    }
}

/// Outcomes of the jobs since the last [`Batcher::flush`].
#[derive(Clone, Debug, Default)]
#[must_use]
#[non_exhaustive]
pub struct Flushed {
    /// Jobs that were pushed.
    pub pushed: u64,
    /// Jobs that were refused, or whose push has an unknown outcome because its answer was lost.
    pub failed: u64,
    /// Error of the first failed job.
    pub error: Option<Error>,
}

impl Flushed {
    /// How many were pushed if all were, else why the first was not.
    pub fn all(self) -> Result<u64, Error> {
        self.error.map_or(Ok(self.pushed), Err)
    }

    fn note(&mut self, outcome: Result<(), &Error>) {
        match outcome {
            Ok(()) => self.pushed += 1,
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert_with(|| error.clone());
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.pushed += other.pushed;
        self.failed += other.failed;
        self.error = self.error.take().or(other.error);
    }
}

/// Gathers jobs for one queue: from [`Queue::batcher`]. Cheap to clone; all clones fill the same batches.
///
/// Jobs leave in the order they came, but batches that are under way at the same time may overtake each other; with
/// [one at a time](BatcherOptions::in_flight) the order is kept. When too many wait, a push waits for room: that is how a producer is held
/// to what the server takes. What is left when the last clone is dropped is still pushed; to know that it was,
/// [flush](Batcher::flush).
///
/// ```no_run
/// use corq_client::BatcherOptions;
///
/// # async fn example(client: corq_client::Client) -> Result<(), corq_client::Error> {
/// let batcher = client.queue("numbers").batcher(BatcherOptions::new());
/// for number in 0..1_000_000 {
///     batcher.send(&number).await?;
/// }
/// println!("{} pushed", batcher.flush().await?.all()?);
///
/// let receipt = batcher.push(&"with its id").await?;
/// println!("it is job {}", receipt.await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Batcher {
    queue: Arc<str>,
    entries: mpsc::Sender<Entry>,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
    /// Outcomes that a flush collected but could not return because its caller dropped it; the next flush returns them.
    unheard: Arc<Mutex<Flushed>>,
}

/// Outcome of one job that was given to a [`Batcher`]: a future of the job's id, ready when its batch was pushed.
#[derive(Debug)]
#[must_use]
pub struct Receipt(oneshot::Receiver<Result<String, Error>>);

impl Future for Receipt {
    type Output = Result<String, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or(Err(Error::Closed)))
    }
}

#[derive(Debug)]
enum Entry {
    Job(Waiting),
    Flush(oneshot::Sender<Flushed>),
}

#[derive(Debug)]
struct Waiting {
    /// A batch of one, ready to become part of a larger one.
    job: JobBatch,
    receipt: Option<oneshot::Sender<Result<String, Error>>>,
    _room: OwnedSemaphorePermit,
}

impl Waiting {
    fn settle(self, outcome: Result<String, Error>, flushed: &mut Flushed) {
        flushed.note(outcome.as_ref().map(drop));
        if let Some(receipt) = self.receipt {
            // If the receipt was dropped, the next flush reports the outcome.
            let _ = receipt.send(outcome);
        }
    }
}

impl Batcher {
    /// A batcher, and what has to run for it.
    pub(crate) fn new(queue: Queue, options: BatcherOptions) -> (Self, impl Future<Output = ()>) {
        let (entries, receiver) = mpsc::channel(options.waiting_max);
        let bytes = Arc::new(Semaphore::new(options.waiting_bytes_max as usize));
        let unheard = Arc::default();
        let bytes_max = options.waiting_bytes_max;
        let batcher = Self { queue: queue.name().into(), entries, bytes, bytes_max, unheard };
        (batcher, run(queue, options, receiver))
    }

    /// Takes a job, once there is room for it. What becomes of it, the next [flush](Self::flush) tells.
    pub async fn send<P: Payload + ?Sized>(&self, data: &P) -> Result<(), Error> {
        self.send_with(data, &JobOptions::new()).await
    }

    /// Takes a job with options, once there is room for it.
    pub async fn send_with<P: Payload + ?Sized>(
        &self,
        data: &P,
        options: &JobOptions,
    ) -> Result<(), Error> {
        self.enter(data, options, None).await
    }

    /// Takes a job, once there is room for it; the receipt tells its id when it was pushed.
    pub async fn push<P: Payload + ?Sized>(&self, data: &P) -> Result<Receipt, Error> {
        self.push_with(data, &JobOptions::new()).await
    }

    /// Takes a job with options, once there is room for it; the receipt tells its id when it was pushed.
    pub async fn push_with<P: Payload + ?Sized>(
        &self,
        data: &P,
        options: &JobOptions,
    ) -> Result<Receipt, Error> {
        let (sender, receiver) = oneshot::channel();
        self.enter(data, options, Some(sender)).await?;
        Ok(Receipt(receiver))
    }

    async fn enter<P: Payload + ?Sized>(
        &self,
        data: &P,
        options: &JobOptions,
        receipt: Option<oneshot::Sender<Result<String, Error>>>,
    ) -> Result<(), Error> {
        let mut job = JobBatch::new();
        // The span of one job: that of the batch would be below none of them.
        let span = Producing::begin("create", &self.queue, None);
        let added = job.add_with(data, &options.in_trace(span.context()));
        span.end(added.as_ref().map(|()| None));
        added?;
        // Let a job that is larger than the whole budget take all of it: it would wait for ever otherwise.
        let bytes = u32::try_from(job.bytes()).unwrap_or(u32::MAX).min(self.bytes_max);
        let room = self.bytes.clone().acquire_many_owned(bytes).await;
        let waiting = Waiting { job, receipt, _room: room.map_err(|_| Error::Closed)? };
        self.entries.send(Entry::Job(waiting)).await.map_err(|_| Error::Closed)
    }

    /// Sends what waits, and waits until everything that came before was answered. Tells what became of all jobs
    /// since the last flush, those with a receipt included. What one that was broken off would have told, the next one
    /// tells.
    pub async fn flush(&self) -> Result<Flushed, Error> {
        let (sender, receiver) = oneshot::channel();
        let mut answer = Answer { receiver, unheard: self.unheard.clone() };
        self.entries.send(Entry::Flush(sender)).await.map_err(|_| Error::Closed)?;
        let flushed = (&mut answer.receiver).await.map_err(|_| Error::Closed)?;
        let mut all = std::mem::take(&mut *of(&self.unheard));
        all.add(flushed);
        Ok(all)
    }
}

fn of(unheard: &Mutex<Flushed>) -> std::sync::MutexGuard<'_, Flushed> {
    unheard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a flush. If nobody waits for it any more it is kept for the next one.
struct Answer {
    receiver: oneshot::Receiver<Flushed>,
    unheard: Arc<Mutex<Flushed>>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(flushed) = self.receiver.try_recv() {
            of(&self.unheard).add(flushed);
        }
    }
}

async fn run(queue: Queue, options: BatcherOptions, mut entries: mpsc::Receiver<Entry>) {
    let lanes = Arc::new(Semaphore::new(options.in_flight));
    let mut under_way = JoinSet::new();
    let mut flushed = Flushed::default();
    while let Some(entry) = entries.recv().await {
        let (batch, flush) = match entry {
            Entry::Job(first) => gather(first, &mut entries, &options).await,
            Entry::Flush(flush) => (Vec::new(), Some(flush)),
        };
        if !batch.is_empty() {
            let lane = lanes.clone().acquire_owned().await;
            let queue = queue.clone();
            under_way.spawn(async move {
                let _lane = lane;
                push(&queue, batch).await
            });
        }
        while let Some(done) = under_way.try_join_next() {
            flushed.add(done.unwrap_or_default());
        }
        if let Some(flush) = flush {
            while let Some(done) = under_way.join_next().await {
                flushed.add(done.unwrap_or_default());
            }
            // Keep outcomes that the caller of a flush no longer waits for: the next flush returns them.
            flushed = flush.send(std::mem::take(&mut flushed)).err().unwrap_or_default();
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// Waits for more jobs until the batch is full, its time is over, or a flush asks for it.
async fn gather(
    first: Waiting,
    entries: &mut mpsc::Receiver<Entry>,
    options: &BatcherOptions,
) -> (Vec<Waiting>, Option<oneshot::Sender<Flushed>>) {
    let deadline = Instant::now() + options.linger;
    let mut bytes = first.job.bytes();
    let mut batch = vec![first];
    while batch.len() < options.jobs_max && bytes < options.bytes_max {
        match timeout_at(deadline, entries.recv()).await {
            Ok(Some(Entry::Job(job))) => {
                bytes += job.job.bytes();
                batch.push(job);
            }
            Ok(Some(Entry::Flush(flush))) => return (batch, Some(flush)),
            Ok(None) | Err(_) => break,
        }
    }
    (batch, None)
}

/// Pushes a batch. A job that the server will not have is taken out, and the others go without it.
async fn push(queue: &Queue, mut batch: Vec<Waiting>) -> Flushed {
    let mut flushed = Flushed::default();
    let mut refusals = 0;
    while !batch.is_empty() {
        let many = if refusals < REFUSALS_MAX { batch.len() } else { 1 };
        let mut jobs = JobBatch::new();
        batch[..many].iter().for_each(|waiting| jobs.append(&waiting.job));
        match queue.push_many(&jobs).await {
            Ok(ids) if ids.len() == many => {
                for (waiting, id) in batch.drain(..many).zip(ids) {
                    waiting.settle(Ok(id), &mut flushed);
                }
            }
            Ok(ids) => {
                let text = format!("{} ids came for {many} jobs", ids.len());
                settle_all(batch.drain(..many), &Error::Protocol(text.into()), &mut flushed);
            }
            Err(error) => match refused_place(&error).filter(|&place| place < many) {
                Some(place) => {
                    refusals += 1;
                    batch.remove(place).settle(Err(error), &mut flushed);
                }
                None => settle_all(batch.drain(..many), &error, &mut flushed),
            },
        }
    }
    flushed
}

fn settle_all(jobs: impl Iterator<Item = Waiting>, error: &Error, flushed: &mut Flushed) {
    jobs.for_each(|waiting| waiting.settle(Err(error.clone()), flushed));
}

/// Which job of a batch the server has refused: `jobs[3]: priority must be ...`.
fn refused_place(error: &Error) -> Option<usize> {
    let Error::Refused(words) = error else { return None };
    words.strip_prefix("jobs[")?.split_once(']')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_job_it_means() {
        let place = |words: &str| refused_place(&Error::Refused(words.into()));
        assert_eq!(place("jobs[3]: priority must be between 1 and 2"), Some(3));
        assert_eq!(place("jobs[12] must be an object"), Some(12));
        assert_eq!(place("jobs must be at most 100000 items"), None);
        assert_eq!(place("Disk full"), None);
        assert_eq!(refused_place(&Error::Closed), None);
    }
}
