//! Renews the locks of all jobs that are here, many with one command.

use std::sync::Arc;
use std::time::Instant;

use super::events::WorkerEvent;
use super::shared::{Held, Shared};
use crate::error::Error;
use crate::wire::request::Request;

/// Most locks that are renewed with one command.
const BATCH_MAX: usize = 500;

pub(crate) async fn run(shared: Arc<Shared>) {
    let third = shared.options.lock_ttl / 3;
    loop {
        tokio::time::sleep(third).await;
        let mut due = shared.all_held();
        // Those that have come just now can wait for the next time.
        let recent = Instant::now() + shared.options.lock_ttl;
        due.retain(|held| !held.is_lost() && held.until() + third / 2 < recent);
        renew(&shared, &due).await;
    }
}

/// Renews all of them now.
pub(crate) async fn renew_all(shared: &Shared) {
    renew(shared, &shared.all_held()).await;
}

async fn renew(shared: &Shared, due: &[Arc<Held>]) {
    for jobs in due.chunks(BATCH_MAX) {
        let asked_at = Instant::now();
        let request = Request::repeatable("JobHeartbeatB")
            .strs("ids", jobs.iter().map(|held| held.job.id.as_str()))
            .strs("tokens", jobs.iter().map(|held| held.token.as_str()));
        let renewed = shared.client.ask(request).await;
        match renewed.and_then(|reply| reply.within::<u64>("data", "count")) {
            Ok(count) if count == jobs.len() as u64 => {
                for held in jobs {
                    held.renewed(asked_at + shared.options.lock_ttl);
                }
            }
            Ok(_) => renew_one_by_one(shared, jobs).await,
            Err(error) => {
                shared.tell(&WorkerEvent::RenewalFailed { jobs: jobs.len(), error });
            }
        }
    }
}

/// Finds out which of them are not held here any more.
async fn renew_one_by_one(shared: &Shared, jobs: &[Arc<Held>]) {
    for held in jobs {
        let asked_at = Instant::now();
        let request = Request::repeatable("JobHeartbeat").str("id", &held.job.id);
        match shared.client.done(request.str("token", &held.token)).await {
            Ok(()) => held.renewed(asked_at + shared.options.lock_ttl),
            Err(error) if error.is_transient() => {
                shared.tell(&WorkerEvent::RenewalFailed { jobs: 1, error });
            }
            // Its outcome may have been told meanwhile; then it is no loss.
            Err(Error::Refused(_)) if !shared.is_held(held) => {}
            Err(_) => shared.lose(held),
        }
    }
}
