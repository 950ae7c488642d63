//! The worker: what it runs, what it tells, and how it ends.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corq_client::{
    ActiveJob, Backoff, BatcherOptions, Client, Error, Failure, Hold, JobBatch, JobOptions,
    JobState, Summary, Worker, WorkerBuilder, WorkerEvent,
};

use super::ledger::Ledger;
use super::{address, client, run, server, until};
use crate::support::{DEADLINE, Server, Start};

async fn push_numbers(client: &Client, queue: &str, jobs: usize) {
    let batcher = client.queue(queue).batcher(BatcherOptions::new());
    for number in 0..jobs {
        batcher.send(&number).await.unwrap();
    }
    assert_eq!(batcher.flush().await.unwrap().all().unwrap(), jobs as u64);
}

/// Starts a worker that notes what it runs.
fn start(builder: WorkerBuilder, ledger: &Arc<Ledger>) -> Worker {
    let ledger = ledger.clone();
    let work = move |job: ActiveJob| {
        let ledger = ledger.clone();
        async move {
            let number: usize = job.data()?;
            ledger.note(number);
            Ok::<_, Failure>(number * 2)
        }
    };
    builder.start(work).unwrap()
}

async fn completed(client: &Client, queue: &str, jobs: u64) {
    until("all jobs to complete", async || {
        let counts = client.queue(queue).counts().await.ok()?;
        (counts.completed == jobs).then_some(())
    })
    .await;
}

fn every_job_once(server: &Server, jobs: usize) {
    run(async {
        let client = client(server).await;
        let ledger = Arc::new(Ledger::of(jobs));
        let workers: Vec<Worker> = [1, 7, 100]
            .map(|concurrency| {
                start(Worker::builder(&client, "once").concurrency(concurrency), &ledger)
            })
            .into();
        push_numbers(&client, "once", jobs).await;
        completed(&client, "once", jobs as u64).await;
        let mut done = Summary::default();
        for worker in workers {
            let summary = worker.drain().await;
            done.completed += summary.completed;
            done.lost += summary.lost + summary.untold + summary.failed;
        }
        assert_eq!((done.completed, done.lost), (jobs as u64, 0));
        assert_eq!(ledger.wrong(), []);
        let jobs = client.queue("once").jobs(&corq_client::Listing::new()).await.unwrap();
        for job in jobs {
            let number: usize = job.data().unwrap();
            assert_eq!(job.result.unwrap().decode::<usize>().unwrap(), number * 2);
        }
    });
}

#[test]
fn ten_thousand_jobs_run_exactly_once_on_one_shard() {
    every_job_once(&server(1), 10_000);
}

#[test]
fn ten_thousand_jobs_run_exactly_once_on_two_shards() {
    every_job_once(&server(2), 10_000);
}

#[test]
fn canary_a_job_that_runs_twice_or_never_is_seen_by_the_ledger() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let ledger = Arc::new(Ledger::of(4));
        let mut batch = JobBatch::new();
        for number in [0, 1, 1, 3] {
            batch.add(&number).unwrap();
        }
        client.queue("canary").push_many(&batch).await.unwrap();
        let worker = start(Worker::builder(&client, "canary"), &ledger);
        completed(&client, "canary", 4).await;
        worker.drain().await;
        assert_eq!(ledger.wrong(), [(1, 2), (2, 0)]);
    });
}

#[test]
fn a_handler_that_fails_or_panics_is_a_failed_attempt_and_is_told() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("fails");
        let once = JobOptions::new().max_attempts(2).backoff(Backoff::fixed(Duration::ZERO));
        for what in ["retry", "never", "panic", "io", "good"] {
            queue.push_with(&what, &once.clone().job_id(what)).await.unwrap();
        }
        let told = Arc::new(Mutex::new(HashSet::new()));
        let telling = told.clone();
        let worker = Worker::builder(&client, "fails")
            .on_event(move |event| {
                telling.lock().unwrap().insert(event.to_string());
            })
            .start(async |job: ActiveJob| match job.data::<String>()?.as_str() {
                "retry" if job.attempts == 0 => Err(Failure::new("not yet")),
                "never" => Err(Failure::new("never again").unrecoverable()),
                "panic" => panic!("out of {}", "order"),
                "io" => Ok(std::fs::read_to_string("/no/such/file")?),
                _ => Ok("done".to_owned()),
            })
            .unwrap();
        until("all to end", async || {
            let counts = queue.counts().await.unwrap();
            (counts.completed == 2 && counts.failed == 3).then_some(())
        })
        .await;
        let summary = worker.drain().await;
        assert_eq!((summary.completed, summary.failed, summary.pulled), (2, 6, 8));
        let dead = queue.dead_letters(10).await.unwrap();
        let reason = |id: &str| {
            let job = dead.iter().find(|job| job.id == id).unwrap();
            (job.failed_reason.clone().unwrap(), job.attempts)
        };
        assert_eq!(reason("never"), ("never again".into(), 1));
        assert_eq!(reason("panic"), ("the handler panicked: out of order".into(), 2));
        assert!(reason("io").0.contains("No such file"));
        let told = told.lock().unwrap();
        assert!(told.contains("the handler of job panic panicked: out of order"), "{told:?}");
        assert!(told.contains("job retry failed: not yet"), "{told:?}");
    });
}

#[test]
fn a_job_that_takes_longer_than_its_lock_is_not_given_to_anybody_else() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let workers: Vec<Worker> = (0..2)
            .map(|_| {
                let runs = runs.clone();
                let work = move |_: ActiveJob| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    async {
                        tokio::time::sleep(Duration::from_secs(15)).await;
                        Ok::<_, Failure>(())
                    }
                };
                let builder = Worker::builder(&client, "long").lock_ttl(Duration::from_secs(10));
                builder.concurrency(2).start(work).unwrap()
            })
            .collect();
        for _ in 0..4 {
            client.queue("long").push(&1).await.unwrap();
        }
        completed(&client, "long", 4).await;
        for worker in workers {
            assert_eq!(worker.drain().await.lost, 0);
        }
        assert_eq!(runs.load(Ordering::SeqCst), 4);
    });
}

#[test]
fn a_handler_can_know_that_its_job_was_taken_away() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let id = client.queue("taken").push(&1).await.unwrap();
        let lost = Arc::new(Mutex::new(Vec::new()));
        let noted = lost.clone();
        let begun = Arc::new(AtomicBool::new(false));
        let beginning = begun.clone();
        let work = move |job: ActiveJob| {
            beginning.store(true, Ordering::SeqCst);
            async move {
                while !job.is_lost() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok::<_, Failure>(())
            }
        };
        let worker = Worker::builder(&client, "taken")
            .lock_ttl(Duration::from_secs(10))
            .on_event(move |event| noted.lock().unwrap().push(event.clone()))
            .start(work)
            .unwrap();
        until("the handler to begin", async || begun.load(Ordering::SeqCst).then_some(())).await;
        client.queue("taken").pause().await.unwrap();
        client.job(&id).move_to_wait().await.unwrap();
        until("its end", async || (worker.held() == 0).then_some(())).await;
        let summary = worker.drain().await;
        assert_eq!((summary.lost, summary.untold, summary.completed), (1, 1, 0));
        let events = lost.lock().unwrap().clone();
        let refused = |event: &WorkerEvent| matches!(event, WorkerEvent::OutcomeRefused { id: refused, .. } if *refused == id);
        assert!(events.iter().any(refused), "{events:?}");
        assert_eq!(client.job(&id).state().await.unwrap(), JobState::Waiting);
    });
}

#[test]
fn an_outcome_after_the_timeout_of_its_job_is_late() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let options = JobOptions::new().timeout(Duration::from_millis(100)).max_attempts(1);
        client.queue("late").push_with(&1, &options).await.unwrap();
        let late = Arc::new(AtomicUsize::new(0));
        let counted = late.clone();
        let worker = Worker::builder(&client, "late")
            .on_event(move |event| {
                if matches!(event, WorkerEvent::OutcomeLate { .. }) {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            })
            .start(async |job: ActiveJob| {
                // Until the server has ended the attempt.
                while job.client().job(&job.id).state().await? == JobState::Active {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok::<_, Failure>(())
            })
            .unwrap();
        until("the late outcome", async || (late.load(Ordering::SeqCst) == 1).then_some(())).await;
        assert_eq!(worker.drain().await.untold, 1);
    });
}

#[test]
fn a_result_that_is_too_large_is_a_failure_of_its_own_job_only() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let queue = client.queue("large");
        let mut batch = JobBatch::new();
        for number in 0..20 {
            batch.add_with(&number, &JobOptions::new().max_attempts(1)).unwrap();
        }
        queue.push_many(&batch).await.unwrap();
        let worker = Worker::builder(&client, "large")
            .ack_linger(Duration::from_millis(200))
            .concurrency(20)
            .start(async |job: ActiveJob| {
                let number: usize = job.data()?;
                Ok::<_, Failure>("x".repeat(if number == 5 { 11 << 20 } else { 10 }))
            })
            .unwrap();
        until("all to end", async || {
            let counts = queue.counts().await.unwrap();
            (counts.completed == 19 && counts.failed == 1).then_some(())
        })
        .await;
        let summary = worker.drain().await;
        assert_eq!((summary.completed, summary.failed, summary.untold), (19, 1, 0));
        let dead = queue.dead_letters(10).await.unwrap();
        assert!(dead[0].failed_reason.as_deref().unwrap().contains("10 MB"), "{dead:?}");
    });
}

#[test]
fn a_drain_finishes_what_runs_and_gives_back_the_rest() {
    for hold in [Hold::Lock, Hold::Connection] {
        let server = server(2);
        run(async {
            let client = client(&server).await;
            let queue = client.queue("drained");
            let gate = Arc::new(tokio::sync::Semaphore::new(0));
            let opening = gate.clone();
            let begun = Arc::new(AtomicUsize::new(0));
            let beginning = begun.clone();
            let work = move |_: ActiveJob| {
                beginning.fetch_add(1, Ordering::SeqCst);
                let gate = gate.clone();
                async move {
                    gate.acquire().await?.forget();
                    Ok::<_, Failure>(())
                }
            };
            push_numbers(&client, "drained", 30).await;
            let worker = Worker::builder(&client, "drained")
                .concurrency(3)
                .prefetch(10)
                .hold(hold)
                .start(work)
                .unwrap();
            until("three to run and ten to wait", async || {
                (worker.held() == 13 && begun.load(Ordering::SeqCst) == 3).then_some(())
            })
            .await;
            let draining = tokio::spawn(worker.drain());
            until("the rest to be given back", async || {
                let counts = queue.counts().await.unwrap();
                (counts.waiting == 27 && counts.active == 3).then_some(())
            })
            .await;
            opening.add_permits(3);
            let summary = draining.await.unwrap();
            assert_eq!((summary.completed, summary.failed, summary.untold), (3, 0, 0));
            if hold == Hold::Lock {
                assert_eq!((summary.pulled, summary.given_back), (13, 10));
            }
            let counts = queue.counts().await.unwrap();
            assert_eq!((counts.waiting, counts.active, counts.completed), (27, 0, 3));
            assert!(client.workers().await.unwrap().is_empty());
        });
    }
}

#[test]
fn an_idle_worker_drains_at_once_whatever_it_waits_for() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let ledger = Arc::new(Ledger::of(1));
        for hold in [Hold::Lock, Hold::Connection] {
            let poll = Duration::from_mins(1);
            let worker = start(Worker::builder(&client, "idle").poll(poll).hold(hold), &ledger);
            until("it to register", async || {
                let workers = client.workers().await.unwrap();
                workers.iter().any(|worker| worker.queues == ["idle"]).then_some(())
            })
            .await;
            let begun = Instant::now();
            worker.drain().await;
            assert!(begun.elapsed() < Duration::from_secs(55), "it has waited for the poll");
            // A job that comes now is not lost on a worker that has gone.
            client.queue("idle").push(&0).await.unwrap();
            assert_eq!(client.queue("idle").drain().await.unwrap(), 1);
        }
    });
}

#[test]
fn a_handler_that_does_not_end_is_broken_off_and_its_job_given_back() {
    let server = server(2);
    run(async {
        let client = client(&server).await;
        let id = client.queue("endless").push(&1).await.unwrap();
        let begun = Arc::new(AtomicBool::new(false));
        let beginning = begun.clone();
        let work = move |_: ActiveJob| {
            beginning.store(true, Ordering::SeqCst);
            async {
                std::future::pending::<()>().await;
                Ok::<_, Failure>(())
            }
        };
        let builder = Worker::builder(&client, "endless");
        let worker = builder.drain_timeout(Duration::from_millis(100)).start(work).unwrap();
        until("it to run", async || begun.load(Ordering::SeqCst).then_some(())).await;
        let summary = worker.drain().await;
        assert_eq!((summary.given_back, summary.completed), (1, 0));
        let job = client.job(&id).get().await.unwrap().unwrap();
        assert_eq!((job.state, job.attempts), (JobState::Waiting, 0));
    });
}

#[test]
fn a_wrong_token_is_refused_and_a_worker_says_why_it_gets_no_jobs() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    run(async {
        let error = Client::connect(&address(&server)).await.unwrap_err();
        assert!(matches!(&error, Error::Refused(words) if &**words == "Not authenticated"));
        let with = |token: &str| Client::builder(&address(&server)).token(token);
        let error = with("wrong").connect().await.unwrap_err();
        assert!(matches!(&error, Error::Refused(words) if &**words == "Invalid token"), "{error}");
        let client = with("wrong").build().unwrap();
        assert!(client.queue("q").push(&1).await.unwrap_err().is_refused());
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = told.clone();
        let worker = Worker::builder(&client, "q")
            .on_event(move |event| telling.lock().unwrap().push(event.to_string()))
            .start(async |_: ActiveJob| Ok::<_, Failure>(()))
            .unwrap();
        until("a word", async || (!told.lock().unwrap().is_empty()).then_some(())).await;
        worker.drain().await;
        assert!(told.lock().unwrap()[0].contains("Invalid token"));
        let client = with("secret").timeout(DEADLINE).connect().await.unwrap();
        client.queue("q").push(&1).await.unwrap();
    });
}

#[test]
fn a_worker_runs_jobs_in_their_order() {
    let server = server(1);
    run(async {
        let client = client(&server).await;
        // Push one after the other: batches that are on their way together may come in any order.
        for number in 0..500 {
            client.queue("order").push(&number).await.unwrap();
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let work = move |job: ActiveJob| {
            let noted = noted.clone();
            async move {
                noted.lock().unwrap().push(job.data::<u32>()?);
                Ok::<_, Failure>(())
            }
        };
        let worker =
            Worker::builder(&client, "order").concurrency(1).prefetch(20).start(work).unwrap();
        completed(&client, "order", 500).await;
        worker.drain().await;
        assert!(seen.lock().unwrap().is_sorted());
    });
}
