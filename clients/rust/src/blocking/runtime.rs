//! The Tokio runtime behind the blocking client: driven by the threads that wait for an answer.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime as Tokio};

use crate::error::Error;

/// Most threads of handlers.
const THREADS_MAX: usize = 10_000;

/// Runs what a call waits for on the thread that waits.
#[derive(Clone, Debug)]
pub(super) struct Runtime(Arc<Owned>);

#[derive(Debug)]
struct Owned(Option<Tokio>);

impl Runtime {
    pub(super) fn new() -> Result<Self, Error> {
        let tokio = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS_MAX)
            .build()
            .map_err(|error| Error::Invalid(format!("no runtime: {error}").into()))?;
        Ok(Self(Arc::new(Owned(Some(tokio)))))
    }

    pub(super) fn wait<F: Future>(&self, work: F) -> F::Output {
        // The runtime is taken out only in `drop` of the last clone, when no `&self` can exist any more.
        let tokio = self.0.0.as_ref().expect("a runtime that is in use is there");
        tokio.block_on(work)
    }
}

impl Drop for Owned {
    /// Waits for nothing, so that the last clone may go anywhere, also within async code.
    fn drop(&mut self) {
        if let Some(tokio) = self.0.take() {
            tokio.shutdown_background();
        }
    }
}
