//! Gathers jobs that come one by one into pushes of many.

use std::thread;

use super::Queue;
use super::runtime::Runtime;
use super::waits_for;
use crate::error::Error;
use crate::{BatcherOptions, Flushed, JobOptions, Payload};

/// Gathers jobs for one queue, as [`crate::Batcher`]: from [`Queue::batcher`]. Its thread ends when the last clone was
/// dropped and what was left is pushed.
///
/// ```no_run
/// # fn example(client: corq_client::blocking::Client) -> Result<(), corq_client::Error> {
/// use corq_client::BatcherOptions;
///
/// let batcher = client.queue("numbers").batcher(BatcherOptions::new());
/// for number in 0..1_000_000 {
///     batcher.send(&number)?;
/// }
/// println!("{} pushed", batcher.flush()?.all()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Batcher {
    inner: crate::Batcher,
    runtime: Runtime,
}

impl Batcher {
    pub(super) fn new(queue: &Queue, options: BatcherOptions) -> Self {
        let (inner, work) = crate::Batcher::new(queue.inner.clone(), options);
        let runtime = queue.runtime.clone();
        let own = runtime.clone();
        thread::spawn(move || own.wait(work));
        Self { inner, runtime }
    }

    /// Takes a job with options, once there is room for it, as [`crate::Batcher::push_with`].
    pub fn push_with<P: Payload + ?Sized>(
        &self,
        data: &P,
        options: &JobOptions,
    ) -> Result<Receipt, Error> {
        let inner = self.runtime.wait(self.inner.push_with(data, options))?;
        Ok(Receipt { inner, runtime: self.runtime.clone() })
    }

    /// Takes a job, once there is room for it, as [`crate::Batcher::push`].
    pub fn push<P: Payload + ?Sized>(&self, data: &P) -> Result<Receipt, Error> {
        self.push_with(data, &JobOptions::new())
    }

    waits_for! { crate::Batcher;
        fn send[P](&self, data: &P) -> ();
        fn send_with[P](&self, data: &P, options: &JobOptions) -> ();
        fn flush(&self) -> Flushed;
    }
}

/// Outcome of one job that was given to a [`Batcher`].
#[derive(Debug)]
#[must_use]
pub struct Receipt {
    inner: crate::Receipt,
    runtime: Runtime,
}

impl Receipt {
    /// Waits for the job to be pushed; answers its id.
    pub fn wait(self) -> Result<String, Error> {
        self.runtime.wait(self.inner)
    }
}
