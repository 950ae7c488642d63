//! Answers that bring jobs to a call that is gone. No code will ever see these jobs, so they go back at once: kept
//! until their locks end, they would count as stalled, again and again, up to the dead-letter queue.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::dial::{Backoff, Settings};
use super::pool::Pool;
use crate::error::Error;
use crate::pulled::give_back_request;
use crate::wire::record::record;
use crate::wire::reply::Reply;

record! {
    /// The part of a pulled job that giving it back needs.
    Stray {
        /// The id of the job.
        id: String = "id",
    }
}

/// Gives jobs back that nobody took, from whatever thread it is noticed on.
#[derive(Clone)]
pub(crate) struct Returner {
    runtime: Handle,
    settings: Settings,
    pool: Weak<Pool>,
}

impl std::fmt::Debug for Returner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Returner").finish_non_exhaustive()
    }
}

impl Returner {
    /// Only within a runtime.
    pub(crate) fn new(settings: &Settings, pool: &Weak<Pool>) -> Self {
        Self { runtime: Handle::current(), settings: settings.clone(), pool: pool.clone() }
    }

    /// Gives back the jobs of an answer. Their locks last for so long at most; after that there is nothing to give.
    pub(crate) fn take(&self, reply: &Reply, locks_last: Duration) {
        let ids = reply.read::<Option<Vec<Stray>>>("jobs").ok().flatten().unwrap_or_default();
        let tokens = reply.read::<Option<Vec<String>>>("tokens").ok().flatten().unwrap_or_default();
        let jobs: Vec<_> = ids.into_iter().map(|job| job.id).zip(tokens).collect();
        if !jobs.is_empty() {
            let until = Instant::now() + locks_last;
            self.runtime.spawn(give_back(self.settings.clone(), self.pool.clone(), jobs, until));
        }
    }
}

/// Again until each job was taken back or refused. That may be repeated: a token fits one delivery of one job.
async fn give_back(
    settings: Settings,
    pool: Weak<Pool>,
    mut jobs: Vec<(String, String)>,
    until: Instant,
) {
    let own =
        || Arc::new_cyclic(|own| Pool::new(Settings { connections: 1, ..settings.clone() }, own));
    let mut pool = pool.upgrade().unwrap_or_else(own);
    let mut backoff = Backoff::default();
    loop {
        if pool.is_closed() {
            pool = own();
        }
        let mut tasks = JoinSet::new();
        for (id, token) in jobs.drain(..) {
            let pool = pool.clone();
            tasks.spawn(async move {
                let Ok(request) = give_back_request(&id, &token).seal() else { return None };
                let again = match pool.ask(&request).await {
                    Err(Error::Closed) => true,
                    Err(error) => error.is_transient(),
                    Ok(_) => false,
                };
                again.then_some((id, token))
            });
        }
        while let Some(done) = tasks.join_next().await {
            jobs.extend(done.ok().flatten());
        }
        if jobs.is_empty() || Instant::now() >= until {
            return;
        }
        tokio::time::sleep(backoff.next(&settings)).await;
    }
}
