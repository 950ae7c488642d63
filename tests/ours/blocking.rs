//! Our own client against the real server, as threads use it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use corq_client::blocking::{ActiveJob, Client, Worker};
use corq_client::{
    BatcherOptions, Ending, Error, Failure, JobFilter, JobOptions, JobState, LogLevel, PullOptions,
    QueueListing, Search, Span, Watching,
};

use super::ledger::Ledger;
use super::{address, server};
use crate::support::{DEADLINE, Server, Start, WAIT, until};

fn client(server: &Server) -> Client {
    Client::builder(&address(server)).timeout(DEADLINE).connect().unwrap()
}

#[test]
fn calls_block_until_they_are_answered() {
    let server = server(2);
    let client = client(&server);
    let queue = client.queue("calls");
    let id = queue.push_with(&(1, 2), &JobOptions::new().name("sum")).unwrap();
    assert_eq!(queue.counts().unwrap().waiting, 1);
    let job = queue.pull(1, &PullOptions::new().wait(WAIT)).unwrap().remove(0);
    let (a, b): (i64, i64) = job.data().unwrap();
    job.log(LogLevel::Info, "adding").unwrap();
    assert!(job.complete(&(a + b)).is_ok());
    let Some(Ending::Completed(sum)) = client.job(&id).wait(WAIT).unwrap() else { panic!() };
    assert_eq!(sum.decode::<i64>().unwrap(), 3);
    assert_eq!(client.job(&id).logs().unwrap().len(), 1);
    assert_eq!(client.server_info().unwrap().server, "corq");
    let wrong = Client::builder("tcp://127.0.0.1:1").connect().unwrap_err();
    assert!(matches!(wrong, Error::Unreachable(_)), "{wrong}");
}

#[test]
fn pages_searches_figures_and_samples_are_read_by_threads() {
    let server = server(2);
    let client = client(&server);
    let queue = client.queue("looked-at");
    let id = queue.push("needle in a text").unwrap();
    assert_eq!(client.queue_page(&QueueListing::new()).unwrap().queues[0].waiting, 1);
    assert_eq!(queue.page(&JobFilter::new()).unwrap().jobs[0].id, id);
    let found = queue.search(&Search::text("needle").budget(WAIT)).unwrap();
    assert_eq!(found.jobs[0].id, id);
    assert_eq!(client.job(&id).explain().unwrap().reasons[0].code, "no_worker");
    assert_eq!(client.job(&id).detail().unwrap().job.id, id);
    assert_eq!(client.job(&id).flow(1, 1).unwrap().jobs.len(), 1);
    assert!(queue.history(Span::new()).unwrap().tracked);
    assert_eq!(client.dashboard().unwrap().stats.waiting, 1);
    let mut samples = client.watch(&Watching::new()).unwrap();
    assert_eq!(samples.next_sample().unwrap().stats.unwrap().waiting, 1);
    queue.push(&2).unwrap();
    until("a sample with both", || {
        (samples.next_sample().unwrap().stats.unwrap().waiting == 2).then_some(())
    });
}

#[test]
fn threads_share_a_client_and_wait_for_nobody_but_their_own_answers() {
    let server = server(2);
    let client = client(&server);
    // A thread waits for what another thread does.
    let id = client.queue("shared").push(&0).unwrap();
    let waiting = client.job(&id);
    let waiter = thread::spawn(move || waiting.wait(WAIT).unwrap());
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let queue = client.queue(format!("thread-{number}"));
            thread::spawn(move || {
                for job in 0..100 {
                    queue.push(&job).unwrap();
                }
                queue.count().unwrap()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 100);
    }
    client.queue("shared").drain().unwrap();
    assert_eq!(waiter.join().unwrap(), Some(Ending::Removed));
}

#[test]
fn a_batcher_sends_when_its_time_is_up_although_nobody_calls() {
    let server = server(2);
    let client = client(&server);
    let queue = client.queue("batched");
    let batcher = queue.batcher(BatcherOptions::new().linger(Duration::from_millis(10)));
    batcher.send(&1).unwrap();
    // Another client looks, so that this one does nothing.
    let mut other = server.client();
    until("the job to come", || (other.counted("batched", "waiting") == 1).then_some(()));
    for number in 0..2000 {
        batcher.send(&number).unwrap();
    }
    assert_eq!(batcher.flush().unwrap().all().unwrap(), 2001);
    assert_eq!(batcher.push(&1).unwrap().wait().unwrap().len(), 36);
}

#[test]
fn a_worker_of_threads_runs_every_job_once_and_drains() {
    const JOBS: usize = 2000;
    for shards in [1, 2] {
        let server = server(shards);
        let client = client(&server);
        let ledger = Arc::new(Ledger::of(JOBS));
        let noted = ledger.clone();
        let work = move |job: ActiveJob| {
            let number: usize = job.data()?;
            noted.note(number);
            if number.is_multiple_of(100) {
                job.set_progress(50.0, None)?;
                job.client().queue("next").push(&number)?;
            }
            assert_ne!(number, 77, "this one panics");
            Ok::<_, Failure>(number)
        };
        let worker = Worker::builder(&client, "threads").concurrency(8).build(work).unwrap();
        let stopper = worker.stopper();
        let running = thread::spawn(move || worker.run());
        let batcher = client.queue("threads").batcher(BatcherOptions::new());
        for number in 0..JOBS {
            batcher.send_with(&number, &JobOptions::new().max_attempts(1)).unwrap();
        }
        assert_eq!(batcher.flush().unwrap().all().unwrap(), JOBS as u64);
        let queue = client.queue("threads");
        until("all to end", || {
            let counts = queue.counts().unwrap();
            (counts.completed + counts.failed == JOBS as u64).then_some(())
        });
        stopper.stop();
        let summary = running.join().unwrap();
        assert_eq!((summary.completed, summary.failed), (JOBS as u64 - 1, 1));
        assert_eq!(ledger.wrong(), []);
        assert_eq!(client.queue("next").count().unwrap(), JOBS as u64 / 100);
    }
}

#[test]
fn a_blocking_client_survives_a_kill_of_the_server() {
    let mut server = server(2);
    let client = client(&server);
    let id = client.queue("kept").push(&1).unwrap();
    server.kill();
    server.start();
    assert_eq!(client.job(&id).state().unwrap(), JobState::Waiting);
}

#[test]
fn a_wrong_token_is_told_to_threads_as_well() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let with = |token: &str| Client::builder(&address(&server)).token(token).connect();
    assert!(with("wrong").unwrap_err().is_refused());
    assert!(with("secret").unwrap().ping().is_ok());
}

#[test]
fn a_client_may_be_dropped_anywhere() {
    let server = server(1);
    let client = client(&server);
    super::run(async move { drop(client) });
}
