//! Servers that are killed, connections that are cut, producers that are faster than the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corq_client::{ActiveJob, BatcherOptions, Client, Failure, JobOptions, Worker, WorkerEvent};
use rustix::process::Signal;

use super::ledger::Ledger;
use super::{address, client, run, server, until};
use crate::support::DEADLINE;
use crate::support::proxy::Proxy;

/// A worker whose handlers take a moment, and note what they run.
fn start(client: &Client, ledger: &Arc<Ledger>) -> Worker {
    let ledger = ledger.clone();
    let work = move |job: ActiveJob| {
        let ledger = ledger.clone();
        async move {
            ledger.note(job.data()?);
            tokio::time::sleep(Duration::from_millis(3)).await;
            Ok::<_, Failure>(())
        }
    };
    let builder = Worker::builder(client, "faults").concurrency(8);
    builder.lock_ttl(Duration::from_secs(15)).start(work).unwrap()
}

fn patient(address: &str) -> Client {
    let builder = Client::builder(address).timeout(DEADLINE);
    builder
        .reconnect_backoff(Duration::from_millis(10), Duration::from_millis(200))
        .build()
        .unwrap()
}

/// Pushes jobs that may safely be pushed again, while `disturb` is called as jobs are run.
fn every_job_once(address: &str, jobs: usize, mut disturb: impl FnMut()) {
    run(async {
        let client = patient(address);
        let ledger = Arc::new(Ledger::of(jobs));
        let workers = [start(&client, &ledger), start(&client, &ledger)];
        let queue = client.queue("faults");
        let producer = tokio::spawn(async move {
            let batcher = queue.batcher(BatcherOptions::new().jobs_max(20));
            for number in 0..jobs {
                let options = JobOptions::new().job_id(format!("job-{number}"));
                batcher.send_with(&number, &options).await.unwrap();
            }
            batcher.flush().await.unwrap()
        });
        for part in 1..=3 {
            until("some jobs to run", async || (ledger.ran() > part * jobs / 5).then_some(()))
                .await;
            disturb();
        }
        let flushed = producer.await.unwrap();
        assert_eq!((flushed.pushed, flushed.failed), (jobs as u64, 0), "{:?}", flushed.error);
        until("all to complete", async || {
            let counts = client.queue("faults").counts().await.ok()?;
            (counts.completed == jobs as u64).then_some(())
        })
        .await;
        let mut untold = 0;
        for worker in workers {
            untold += worker.drain().await.untold;
        }
        assert_eq!((ledger.wrong(), untold), (vec![], 0));
        assert_eq!(client.queue("faults").count().await.unwrap(), jobs as u64);
    });
}

fn killed(shards: u32) {
    let mut server = server(shards);
    every_job_once(&address(&server), 1500, || {
        server.kill();
        server.start();
    });
}

#[test]
fn every_job_runs_once_although_a_server_of_one_shard_is_killed() {
    killed(1);
}

#[test]
fn every_job_runs_once_although_a_server_of_two_shards_is_killed() {
    killed(2);
}

#[test]
fn every_job_runs_once_although_connections_are_cut() {
    let server = server(2);
    let proxy = Proxy::to(server.tcp);
    every_job_once(&format!("tcp://127.0.0.1:{}", proxy.port), 1500, || {
        assert!(proxy.cut() > 0);
    });
}

#[test]
fn a_worker_is_registered_again_after_a_restart_under_the_same_id() {
    let mut server = server(2);
    run(async {
        let client = patient(&address(&server));
        let connected = Arc::new(AtomicUsize::new(0));
        let counted = connected.clone();
        let worker = Worker::builder(&client, "again")
            .name("worker of the test")
            .on_event(move |event| {
                if matches!(event, WorkerEvent::Connected) {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            })
            .start(async |_: ActiveJob| Ok::<_, Failure>(()))
            .unwrap();
        let mut ids = Vec::new();
        for time in 1..=2 {
            until("it to connect", async || {
                (connected.load(Ordering::SeqCst) >= time).then_some(())
            })
            .await;
            let workers = client.workers().await.unwrap();
            assert_eq!((workers.len(), &*workers[0].name), (1, "worker of the test"));
            ids.push(workers[0].id.clone());
            server.kill();
            server.start();
        }
        assert_eq!(ids[0], ids[1]);
        client.queue("again").push(&1).await.unwrap();
        until("it to work again", async || (worker.summary().completed == 1).then_some(())).await;
        worker.drain().await;
    });
}

#[test]
fn a_producer_waits_when_the_server_does_not_take_its_jobs() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("pressed");
        let options = BatcherOptions::new().waiting_max(50).jobs_max(10).in_flight(2);
        let batcher = queue.batcher(options);
        batcher.send(&0).await.unwrap();
        assert_eq!(batcher.flush().await.unwrap().pushed, 1);
        server.freeze();
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = taken.clone();
        let producer = batcher.clone();
        let producing = tokio::spawn(async move {
            for number in 0..1000 {
                producer.send(&number).await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        // 50 wait, two batches are under way, one is gathered.
        until("the producer to be full", async || {
            (taken.load(Ordering::SeqCst) >= 50).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let held_to = taken.load(Ordering::SeqCst);
        assert!(held_to <= 50 + 3 * 10, "{held_to}");
        server.signal(Signal::CONT);
        producing.await.unwrap();
        assert_eq!(batcher.flush().await.unwrap().all().unwrap(), 1000);
        assert_eq!(queue.count().await.unwrap(), 1001);
    });
}

#[test]
fn listeners_to_events_listen_again_after_a_restart() {
    let mut server = server(2);
    run(async {
        let client = patient(&address(&server));
        let mut events = client.events("heard").await.unwrap();
        server.kill();
        let error = events.next().await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{error}");
        server.start();
        let queue = client.queue("heard");
        let pushing = tokio::spawn(async move {
            loop {
                let _ = queue.push(&1).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let heard = until("an event", async || events.next().await.ok()).await;
        assert_eq!(heard.event_type, "pushed");
        pushing.abort();
    });
}
