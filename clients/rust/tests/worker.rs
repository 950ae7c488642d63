//! A worker against a server that loses answers on demand. The fear: an outcome that is lost without a word, or a job
//! that nobody gives back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake::{Asked, DEADLINE, Peer, map, start, until};
use corq_client::{ActiveJob, Client, Failure, Worker, WorkerBuilder, WorkerEvent};
use rmpv::Value;
use tokio::net::TcpStream;

/// Jobs named `a`, `b` and so on, with the tokens `token-a`, `token-b`.
fn jobs(names: &[&str]) -> [(&'static str, Value); 2] {
    let job =
        |name: &&str| map(&[("id", (*name).into()), ("queue", "q".into()), ("data", 1.into())]);
    let token = |name: &&str| Value::from(format!("token-{name}"));
    [
        ("jobs", Value::Array(names.iter().map(job).collect())),
        ("tokens", Value::Array(names.iter().map(token).collect())),
    ]
}

/// A test's reaction to a command.
type Answer = Arc<dyn Fn(&Asked) -> Reaction + Send + Sync>;

enum Reaction {
    Ok(Vec<(&'static str, Value)>),
    Refuse(&'static str),
    HangUp,
}

/// Gives out the jobs once and reacts to all else.
async fn serve(mut peer: Peer<TcpStream>, given: Arc<AtomicBool>, names: &[&str], answer: Answer) {
    while let Some(asked) = peer.next().await {
        if asked.cmd == "PULLB" {
            let first = !given.swap(true, Ordering::SeqCst);
            if !first {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            peer.ok(&asked, &jobs(if first { names } else { &[] })).await;
            continue;
        }
        match answer(&asked) {
            Reaction::Ok(fields) => peer.ok(&asked, &fields).await,
            Reaction::Refuse(words) => peer.refuse(&asked, words).await,
            Reaction::HangUp => return,
        }
    }
}

struct Run {
    worker: Worker,
    events: Arc<Mutex<Vec<WorkerEvent>>>,
}

fn work_with(builder: WorkerBuilder) -> Run {
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = events.clone();
    let worker = builder
        .poll(Duration::from_millis(20))
        .on_event(move |event| told.lock().unwrap().push(event.clone()))
        .start(async |job: ActiveJob| Ok::<_, Failure>(job.id.clone()))
        .unwrap();
    Run { worker, events }
}

/// Runs the jobs; the worker sends all their outcomes in one batch.
async fn run(
    names: &'static [&'static str],
    answer: impl Fn(&Asked) -> Reaction + Send + Sync + 'static,
) -> Run {
    run_with(DEADLINE, names, answer).await
}

/// `patience` is for an answer, and for the drain.
async fn run_with(
    patience: Duration,
    names: &'static [&'static str],
    answer: impl Fn(&Asked) -> Reaction + Send + Sync + 'static,
) -> Run {
    let (given, answer): (_, Answer) = (Arc::new(AtomicBool::new(false)), Arc::new(answer));
    let fake = start(move |peer| {
        let (given, answer) = (given.clone(), answer.clone());
        async move { serve(peer, given, names, answer).await }
    })
    .await;
    let client = Client::builder(&fake.address)
        .timeout(patience)
        .reconnect_backoff(Duration::from_millis(5), Duration::from_millis(20))
        .build()
        .unwrap();
    let builder = Worker::builder(&client, "q").ack_batch(names.len()).ack_linger(DEADLINE);
    work_with(builder.drain_timeout(patience))
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_outcome_whose_answer_was_lost_is_told_again_with_its_token() {
    let times = Arc::new(AtomicUsize::new(0));
    let told = times.clone();
    let run = run(&["a"], move |asked| {
        assert_eq!((asked.cmd.as_str(), &asked.fields["id"]), ("ACK", &"a".into()));
        assert_eq!(asked.fields["token"], "token-a".into());
        assert_eq!(asked.fields["result"], "a".into());
        match told.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Reaction::HangUp,
            _ => Reaction::Ok(vec![]),
        }
    })
    .await;
    until("it to be taken", || run.worker.summary().completed == 1).await;
    let summary = run.worker.drain().await;
    assert_eq!((summary.completed, summary.untold), (1, 0));
    assert_eq!(times.load(Ordering::SeqCst), 3);
    let events = run.events.lock().unwrap();
    let delayed =
        |event: &&WorkerEvent| matches!(event, WorkerEvent::OutcomesDelayed { jobs: 1, .. });
    assert_eq!(events.iter().filter(delayed).count(), 2, "{events:?}");
}

#[tokio::test]
async fn an_outcome_that_was_taken_before_its_answer_was_lost_counts() {
    let times = AtomicUsize::new(0);
    let run = run(&["a", "b"], move |asked| match asked.cmd.as_str() {
        "ACKB" if times.fetch_add(1, Ordering::SeqCst) == 0 => Reaction::HangUp,
        "GetState" => Reaction::Ok(vec![("state", "completed".into())]),
        _ => Reaction::Refuse("Job not found or not active"),
    })
    .await;
    until("both to be taken", || run.worker.summary().completed == 2).await;
    assert_eq!(run.worker.drain().await.untold, 0);
}

#[tokio::test]
async fn one_refused_outcome_does_not_hold_up_the_others() {
    let run = run(&["a", "b", "c", "d"], |asked| match asked.cmd.as_str() {
        "ACKB" => {
            assert_eq!(texts(&asked.fields["tokens"]).len(), 4);
            Reaction::Refuse("Invalid or expired lock token for job b")
        }
        _ if asked.fields["id"] == "b".into() => {
            Reaction::Refuse("Invalid or expired lock token for job b")
        }
        _ => Reaction::Ok(vec![]),
    })
    .await;
    until("all to end", || {
        let summary = run.worker.summary();
        summary.completed + summary.untold == 4
    })
    .await;
    let summary = run.worker.drain().await;
    assert_eq!((summary.completed, summary.untold), (3, 1));
    let events = run.events.lock().unwrap();
    let refused =
        |event: &WorkerEvent| matches!(event, WorkerEvent::OutcomeRefused { id, .. } if id == "b");
    assert!(events.iter().any(refused), "{events:?}");
}

#[tokio::test]
async fn outcomes_that_came_too_late_are_told_apart_from_those_that_count() {
    let run = run(&["a", "b", "c"], |asked| {
        let place = texts(&asked.fields["ids"]).iter().position(|id| *id == "b").unwrap();
        let late = [("ignoredIndices", Value::Array(vec![(place as u64).into()]))];
        Reaction::Ok(vec![("data", map(&late))])
    })
    .await;
    until("all to end", || run.worker.held() == 0 && run.worker.summary().pulled == 3).await;
    let summary = run.worker.drain().await;
    assert_eq!((summary.completed, summary.untold), (2, 1));
    let events = run.events.lock().unwrap();
    let late = |event: &WorkerEvent| matches!(event, WorkerEvent::OutcomeLate { id } if id == "b");
    assert!(events.iter().any(late), "{events:?}");
}

#[tokio::test]
async fn a_server_that_is_short_of_something_is_asked_again() {
    let times = AtomicUsize::new(0);
    let run = run(&["a"], move |_| match times.fetch_add(1, Ordering::SeqCst) {
        0 => Reaction::Refuse("Rate limit exceeded"),
        _ => Reaction::Ok(vec![]),
    })
    .await;
    until("it to be taken", || run.worker.summary().completed == 1).await;
    assert_eq!(run.worker.drain().await.untold, 0);
}

#[tokio::test]
async fn an_outcome_that_cannot_be_told_to_the_end_is_not_passed_over_in_silence() {
    let run = run_with(Duration::from_millis(500), &["a"], |_| Reaction::HangUp).await;
    until("it to be tried", || run.worker.summary().pulled == 1).await;
    let summary = tokio::time::timeout(DEADLINE, run.worker.drain()).await.unwrap();
    assert_eq!((summary.completed, summary.untold), (0, 1));
    let events = run.events.lock().unwrap();
    let unsent =
        |event: &WorkerEvent| matches!(event, WorkerEvent::OutcomeUnsent { id, .. } if id == "a");
    assert!(events.iter().any(unsent), "{events:?}");
}

#[tokio::test]
async fn jobs_that_arrive_behind_the_goodbye_are_given_back() {
    let returned = Arc::new(Mutex::new(Vec::new()));
    let noted = returned.clone();
    let waiting = Arc::new(AtomicBool::new(false));
    let asked_for_jobs = waiting.clone();
    let fake = start(move |mut peer| {
        let (noted, waiting) = (noted.clone(), asked_for_jobs.clone());
        async move {
            while let Some(asked) = peer.next().await {
                match asked.cmd.as_str() {
                    "PULLB" => {
                        waiting.store(true, Ordering::SeqCst);
                        // The end of what the client says comes first, then its jobs.
                        assert!(peer.next().await.is_none());
                        peer.ok(&asked, &jobs(&["a", "b"])).await;
                    }
                    "MoveToWait" => {
                        let field = |key: &str| asked.fields[key].as_str().unwrap().to_owned();
                        noted.lock().unwrap().push((field("id"), field("token")));
                        peer.ok(&asked, &[]).await;
                    }
                    other => panic!("{other}"),
                }
            }
        }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let worker = Worker::builder(&client, "q")
        .poll(Duration::from_mins(1))
        .start(async |_: ActiveJob| Ok::<_, Failure>(()))
        .unwrap();
    until("the question", || waiting.load(Ordering::SeqCst)).await;
    let summary = worker.drain().await;
    assert_eq!((summary.pulled, summary.given_back), (2, 2));
    let mut returned = returned.lock().unwrap().clone();
    returned.sort();
    assert_eq!(returned, [("a".into(), "token-a".into()), ("b".into(), "token-b".into())]);
}

#[tokio::test]
async fn a_handler_is_not_begun_for_a_job_whose_lock_has_ended_meanwhile() {
    let run_count = Arc::new(AtomicUsize::new(0));
    let given = Arc::new(AtomicBool::new(false));
    let fake = start(move |peer| {
        let given = given.clone();
        let answer: Answer = Arc::new(|asked| match asked.cmd.as_str() {
            // No lock is renewed.
            "JobHeartbeatB" => Reaction::Ok(vec![("data", map(&[("count", 0.into())]))]),
            "JobHeartbeat" => Reaction::Refuse("Job not found or not active"),
            _ => Reaction::Ok(vec![]),
        });
        async move { serve(peer, given, &["a", "b"], answer).await }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let counted = run_count.clone();
    let work = move |job: ActiveJob| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            while !job.is_lost() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok::<_, Failure>(())
        }
    };
    let builder = Worker::builder(&client, "q").concurrency(1).poll(Duration::from_millis(20));
    let worker = builder.lock_ttl(Duration::from_secs(5)).start(work).unwrap();
    until("both to go", || worker.summary().lost == 2 && worker.held() == 0).await;
    assert_eq!(run_count.load(Ordering::SeqCst), 1);
    worker.drain().await;
}

#[tokio::test]
async fn one_gone_job_of_five_hundred_costs_no_other_its_renewal() {
    let names: Vec<String> = (0..500).map(|number| format!("job-{number}")).collect();
    let names: &'static [&'static str] =
        Box::leak(names.into_iter().map(|name| &*name.leak()).collect());
    let batches = Arc::new(Mutex::new(Vec::new()));
    let singles = Arc::new(AtomicUsize::new(0));
    let (noted, alone) = (batches.clone(), singles.clone());
    let given = Arc::new(AtomicBool::new(false));
    let answer: Answer = Arc::new(move |asked| match asked.cmd.as_str() {
        "JobHeartbeatB" => {
            let ids = texts(&asked.fields["ids"]);
            let gone = ids.iter().position(|id| *id == "job-7");
            noted.lock().unwrap().push((ids.len(), gone.is_some()));
            let count = ids.len() as u64 - u64::from(gone.is_some());
            let mut data = vec![("count", count.into())];
            let places = |place| Value::Array(vec![(place as u64).into()]);
            data.extend(gone.map(|place| ("goneIndices", places(place))));
            Reaction::Ok(vec![("data", map(&data))])
        }
        "JobHeartbeat" => {
            alone.fetch_add(1, Ordering::SeqCst);
            Reaction::Refuse("Job not found or not active")
        }
        _ => Reaction::Ok(vec![]),
    });
    let fake = start(move |peer| {
        let (given, answer) = (given.clone(), answer.clone());
        async move { serve(peer, given, names, answer).await }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    let lost = Arc::new(Mutex::new(Vec::new()));
    let losing = lost.clone();
    let worker = Worker::builder(&client, "q")
        .concurrency(500)
        .prefetch(0)
        .lock_ttl(Duration::from_secs(30))
        .drain_timeout(Duration::ZERO)
        .on_event(move |event| {
            if let WorkerEvent::LockLost { id } = event {
                telling.lock().unwrap().push(id.clone());
            }
        })
        .start(move |job: ActiveJob| {
            let losing = losing.clone();
            async move {
                job.lost().await;
                losing.lock().unwrap().push(job.id.clone());
                Ok::<_, Failure>(())
            }
        })
        .unwrap();
    // The first renewal names the one that is gone; those after it are of all the others.
    until("two rounds", || {
        batches.lock().unwrap().iter().any(|(jobs, gone)| *jobs == 499 && !gone)
    })
    .await;
    until("the handler to know", || !lost.lock().unwrap().is_empty()).await;
    until("the program to be told", || !told.lock().unwrap().is_empty()).await;
    assert_eq!(batches.lock().unwrap()[0], (500, true));
    assert_eq!(*lost.lock().unwrap(), ["job-7"]);
    assert_eq!(*told.lock().unwrap(), ["job-7"]);
    assert_eq!((worker.summary().lost, singles.load(Ordering::SeqCst)), (1, 0));
    worker.drain().await;
}

#[tokio::test]
async fn a_renewal_that_hangs_has_a_time_of_its_own_and_holds_up_no_other() {
    let renewals = Arc::new(AtomicUsize::new(0));
    let given = Arc::new(AtomicBool::new(false));
    let counted = renewals.clone();
    let fake = start(move |mut peer| {
        let (given, counted) = (given.clone(), counted.clone());
        async move {
            while let Some(asked) = peer.next().await {
                match asked.cmd.as_str() {
                    "PULLB" => {
                        let first = !given.swap(true, Ordering::SeqCst);
                        let none: &[&str] = &[];
                        let names: &[&str] = if first { &["a"] } else { none };
                        if !first {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        peer.ok(&asked, &jobs(names)).await;
                    }
                    "JobHeartbeatB" if counted.fetch_add(1, Ordering::SeqCst) == 0 => {}
                    "JobHeartbeatB" => {
                        let data = map(&[("count", 1.into())]);
                        peer.ok(&asked, &[("data", data)]).await;
                    }
                    _ => peer.ok(&asked, &[]).await,
                }
            }
        }
    })
    .await;
    let client = Client::builder(&fake.address).timeout(Duration::from_mins(10)).build().unwrap();
    let worker = Worker::builder(&client, "q")
        .poll(Duration::from_millis(20))
        .lock_ttl(Duration::from_secs(24))
        .drain_timeout(Duration::ZERO)
        .start(async |job: ActiveJob| {
            job.lost().await;
            Ok::<_, Failure>(())
        })
        .unwrap();
    until("another renewal", || renewals.load(Ordering::SeqCst) >= 2).await;
    assert_eq!(worker.summary().lost, 0);
    drop(worker);
}

#[tokio::test]
async fn a_worker_goes_on_although_the_program_panics_when_it_is_told_something() {
    let given = Arc::new(AtomicBool::new(false));
    let answer: Answer = Arc::new(|_| Reaction::Ok(vec![]));
    let fake = start(move |peer| {
        let (given, answer) = (given.clone(), answer.clone());
        async move { serve(peer, given, &["a", "b"], answer).await }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let worker = Worker::builder(&client, "q")
        .poll(Duration::from_millis(20))
        .on_event(|event| panic!("told of {event}"))
        .start(async |job: ActiveJob| match &*job.id {
            "a" => Err(Failure::new("so that one more event comes")),
            _ => Ok(()),
        })
        .unwrap();
    until("both to end", || {
        let summary = worker.summary();
        summary.completed + summary.failed == 2
    })
    .await;
    let summary = worker.drain().await;
    assert_eq!((summary.completed, summary.failed, summary.untold), (1, 1, 0));
    // The listener panicked twice: at the connection, and at the handler's failure.
    assert_eq!(summary.listener_panics, 2);
}

/// A value that panics when it is dropped, after its handler has answered.
struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        panic!("at the very end");
    }
}

#[tokio::test]
async fn a_panic_while_a_handler_is_tidied_away_is_a_failed_attempt() {
    let failed = Arc::new(AtomicUsize::new(0));
    let counted = failed.clone();
    let given = Arc::new(AtomicBool::new(false));
    let answer: Answer = Arc::new(move |asked| {
        counted.fetch_add(usize::from(asked.cmd == "FAIL"), Ordering::SeqCst);
        Reaction::Ok(vec![])
    });
    let fake = start(move |peer| {
        let (given, answer) = (given.clone(), answer.clone());
        async move { serve(peer, given, &["a"], answer).await }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let handler = |_: ActiveJob| {
        let spiteful = Spiteful;
        let mut kept = Some(spiteful);
        std::future::poll_fn(move |_| {
            assert!(kept.as_mut().is_some());
            std::task::Poll::Ready(Ok::<_, Failure>(()))
        })
    };
    let worker =
        Worker::builder(&client, "q").poll(Duration::from_millis(20)).start(handler).unwrap();
    until("the attempt to fail", || failed.load(Ordering::SeqCst) == 1).await;
    assert_eq!(worker.drain().await.failed, 1);
}

#[tokio::test]
async fn an_outcome_that_a_job_was_forgotten_with_is_unknown_and_not_refused_when_its_answer_is_lost()
 {
    let times = AtomicUsize::new(0);
    let run = run(&["a"], move |asked| match asked.cmd.as_str() {
        "ACK" if times.fetch_add(1, Ordering::SeqCst) == 0 => Reaction::HangUp,
        "GetState" => Reaction::Ok(vec![("state", "unknown".into())]),
        _ => Reaction::Refuse("Job not found or not active"),
    })
    .await;
    until("the answer", || run.worker.summary().unknown == 1).await;
    let summary = run.worker.drain().await;
    assert_eq!((summary.completed, summary.untold, summary.unknown), (0, 0, 1));
    let events = run.events.lock().unwrap();
    let unknown =
        |event: &WorkerEvent| matches!(event, WorkerEvent::OutcomeUnknown { id, .. } if id == "a");
    let refused = |event: &WorkerEvent| matches!(event, WorkerEvent::OutcomeRefused { .. });
    assert!(events.iter().any(unknown) && !events.iter().any(refused), "{events:?}");
}

#[tokio::test]
async fn a_lock_counts_from_the_question_and_not_from_its_answer() {
    let fake = start(move |mut peer| async move {
        let mut given = false;
        while let Some(asked) = peer.next().await {
            match asked.cmd.as_str() {
                "PULLB" if !given => {
                    given = true;
                    // The server has given it out at once; the answer is on its way for longer than the lock lasts.
                    tokio::time::sleep(Duration::from_millis(700)).await;
                    peer.ok(&asked, &jobs(&["a"])).await;
                }
                "PULLB" => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    peer.ok(&asked, &jobs(&[])).await;
                }
                _ => peer.ok(&asked, &[]).await,
            }
        }
    })
    .await;
    let client = Client::connect(&fake.address).await.unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = begun.clone();
    let worker = Worker::builder(&client, "q")
        .lock_ttl(Duration::from_millis(500))
        .start(move |_: ActiveJob| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Failure>(()) }
        })
        .unwrap();
    until("the job to come", || worker.summary().pulled == 1).await;
    until("it to go", || worker.held() == 0).await;
    assert_eq!((worker.summary().lost, begun.load(Ordering::SeqCst)), (1, 0));
    worker.drain().await;
}

#[tokio::test]
async fn what_is_done_when_a_drain_ends_is_told_however_many_wait_to_be_told() {
    const JOBS: usize = 2000;
    let names: Vec<&'static str> = (0..JOBS).map(|number| &*format!("{number}").leak()).collect();
    let names = Arc::new(Mutex::new(names));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let entrance = gate.clone();
    let fake = start(move |mut peer| {
        let (names, entrance) = (names.clone(), entrance.clone());
        async move {
            while let Some(asked) = peer.next().await {
                match asked.cmd.as_str() {
                    "PULLB" => {
                        let count = asked.fields["count"].as_u64().unwrap() as usize;
                        let some: Vec<_> = {
                            let mut names = names.lock().unwrap();
                            let left = names.len().saturating_sub(count);
                            names.split_off(left)
                        };
                        if some.is_empty() {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        peer.ok(&asked, &jobs(&some)).await;
                    }
                    "ACKB" | "ACK" => {
                        entrance.acquire().await.unwrap().forget();
                        peer.ok(&asked, &[]).await;
                    }
                    _ => peer.ok(&asked, &[]).await,
                }
            }
        }
    })
    .await;
    let client = Client::builder(&fake.address).timeout(DEADLINE).connect().await.unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    let worker = Worker::builder(&client, "q")
        .concurrency(JOBS)
        .prefetch(0)
        .poll(Duration::from_millis(20))
        .drain_timeout(Duration::from_millis(1))
        .start(move |_: ActiveJob| {
            let counted = counted.clone();
            async move {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Failure>(())
            }
        })
        .unwrap();
    until("all handlers to end", || done.load(Ordering::SeqCst) == JOBS).await;
    let drained = tokio::spawn(worker.drain());
    // The drain's time is over long before the server takes the first outcome.
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.add_permits(JOBS);
    let summary = drained.await.unwrap();
    assert_eq!((summary.completed, summary.given_back, summary.untold), (JOBS as u64, 0, 0));
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let client = Client::builder("localhost").build().unwrap();
    let builder = || Worker::builder(&client, "q");
    let refused = |builder: WorkerBuilder| {
        builder.start(async |_: ActiveJob| Ok::<_, Failure>(())).unwrap_err().to_string()
    };
    assert!(refused(builder().concurrency(0)).starts_with("concurrency must be between"));
    assert!(refused(builder().ack_batch(1001)).starts_with("ack_batch must be between"));
    assert!(refused(builder().poll(Duration::from_secs(61))).starts_with("poll"));
    assert!(refused(builder().lock_ttl(Duration::ZERO)).starts_with("lock_ttl"));
    assert!(Client::builder("localhost").connections(0).build().is_err());
}
