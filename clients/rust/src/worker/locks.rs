//! Renews the locks of all jobs that are here, many with one command.
//!
//! A lock is renewed when a third of its time is over, and there are four attempts before it ends: renewals have a
//! time of their own, and one that hangs holds up no other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::events::WorkerEvent;
use super::shared::{Held, Shared};
use crate::error::Error;
use crate::wire::reply::Reply;
use crate::wire::request::Request;

/// Most locks that are renewed with one command.
const BATCH_MAX: usize = 500;

/// A slow machine is not a dead connection: no renewal is given less time, unless the lock lasts less than twice that.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(shared: Arc<Shared>) {
    let ttl = shared.options.lock_ttl;
    let mut under_way = JoinSet::new();
    loop {
        tokio::time::sleep(ttl / 6).await;
        while under_way.try_join_next().is_some() {}
        let now = Instant::now();
        let mut due = Vec::new();
        for held in shared.all_held() {
            if held.is_lost() {
                continue;
            }
            let left = held.until().saturating_duration_since(now);
            if left.is_zero() {
                shared.lose(&held);
            } else if left <= ttl / 3 * 2 && !held.renewing.swap(true, Ordering::AcqRel) {
                due.push(held);
            }
        }
        renew(&shared, &due, &mut under_way);
    }
}

/// Renews all of them now, and waits for it.
pub(crate) async fn renew_all(shared: &Arc<Shared>) {
    let mut under_way = JoinSet::new();
    renew(shared, &shared.all_held(), &mut under_way);
    while under_way.join_next().await.is_some() {}
}

fn renew(shared: &Arc<Shared>, due: &[Arc<Held>], under_way: &mut JoinSet<()>) {
    for jobs in due.chunks(BATCH_MAX) {
        let (shared, jobs) = (shared.clone(), jobs.to_vec());
        under_way.spawn(async move {
            renew_many(&shared, &jobs).await;
            for held in jobs {
                held.renewing.store(false, Ordering::Release);
            }
        });
    }
}

async fn ask(shared: &Shared, request: Request) -> Result<Reply, Error> {
    let ttl = shared.options.lock_ttl;
    let patience = (ttl / 6).max(PATIENCE_MIN.min(ttl / 2));
    shared.client.pool.ask_within(&request.seal()?, patience).await
}

async fn renew_many(shared: &Arc<Shared>, jobs: &[Arc<Held>]) {
    let asked_at = Instant::now();
    let request = Request::repeatable("JobHeartbeatB")
        .strs("ids", jobs.iter().map(|held| held.job.id.as_str()))
        .strs("tokens", jobs.iter().map(|held| held.token.as_str()));
    let renewed = ask(shared, request).await;
    let read = renewed.and_then(|reply| {
        let gone = reply.within::<Option<Vec<u64>>>("data", "goneIndices")?.unwrap_or_default();
        Ok((reply.within::<u64>("data", "count")?, gone))
    });
    match read {
        Ok((count, gone)) if count + gone.len() as u64 == jobs.len() as u64 => {
            for (place, held) in (0_u64..).zip(jobs) {
                if gone.contains(&place) {
                    shared.lose(held);
                } else {
                    held.renewed(asked_at + shared.options.lock_ttl);
                }
            }
        }
        // A server that does not say which of them are gone.
        Ok(_) => {
            let mut tasks = JoinSet::new();
            for held in jobs {
                tasks.spawn(renew_one(shared.clone(), held.clone()));
            }
            while tasks.join_next().await.is_some() {}
        }
        Err(error) => {
            shared.tell(&WorkerEvent::RenewalFailed { jobs: jobs.len(), error });
        }
    }
}

async fn renew_one(shared: Arc<Shared>, held: Arc<Held>) {
    let asked_at = Instant::now();
    let request = Request::repeatable("JobHeartbeat").str("id", &held.job.id);
    match ask(&shared, request.str("token", &held.token)).await {
        Ok(_) => held.renewed(asked_at + shared.options.lock_ttl),
        Err(error) if error.is_refused() && !error.is_transient() => shared.lose(&held),
        Err(error) => shared.tell(&WorkerEvent::RenewalFailed { jobs: 1, error }),
    }
}
