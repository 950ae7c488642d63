//! Other people's clients of this protocol, unmodified, against the real server: the crate
//! `bunqueue-client` here, the package of the same name for Python in `python/`, the one of npm at its last
//! releases for version 2 and 3 of the protocol in `bun/`, WebSocket and SSE clients in `streams`, a browser, a stand-in for S3 that takes backups, an API tester that goes by the `OpenAPI` document, Prometheus' own tool for
//! the metrics. The fear: a server that only our own
//! tests can talk to.
#![allow(clippy::unwrap_used)]

mod browser;
mod bun;
mod dashboard;
mod dashboard_further;
mod dashboard_live;
mod moving;
mod openapi;
mod promtool;
mod python;
#[path = "../support/tls.rs"]
mod secure;
mod spans;
mod storage;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod webhooks;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bunqueue_client::{
    Backoff, BulkEntry, ChainStep, Connection, ConnectionOptions, Deduplication, Error, FlowJob,
    FlowProducer, JobOptions, ProcessError, Queue, SchedulerRepeat, SchedulerTemplate, Value,
    Worker, WorkerOptions,
};

use support::{Server, Start, until};

/// The directory of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn options(server: &Server) -> ConnectionOptions {
    ConnectionOptions { host: "127.0.0.1".into(), port: server.tcp, ..Default::default() }
}

fn worker_options(server: &Server) -> WorkerOptions {
    WorkerOptions {
        connection: options(server),
        poll_timeout_ms: 200,
        heartbeat_interval: Some(Duration::from_millis(500)),
        ..Default::default()
    }
}

fn number(n: u64) -> Value {
    Value::Map(vec![("n".into(), n.into())])
}

fn read(value: &Value, key: &str) -> Option<u64> {
    value.as_map()?.iter().find(|(name, _)| name.as_str() == Some(key))?.1.as_u64()
}

#[allow(clippy::needless_pass_by_value)] // The shape that `map_err` asks for.
fn retryable(error: Error) -> ProcessError {
    ProcessError::retryable(error.to_string())
}

/// A worker that runs in a thread until it is stopped.
struct Running {
    worker: Worker,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let own = worker.clone();
        // A worker whose server is killed reports errors and goes on; its end is not a failure.
        let thread = thread::spawn(move || drop(own.run()));
        Self { worker, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.worker.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.worker.close();
    }
}

#[test]
fn the_protocol_is_spoken() {
    let server = Server::start_default();
    let connection = Connection::new(options(&server));
    assert!(connection.ping().unwrap());
    assert_eq!(connection.protocol_version().unwrap(), 2);
}

#[test]
fn a_token_opens_a_guarded_server_and_a_wrong_one_does_not() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let with = |token: Option<&str>| {
        let options = ConnectionOptions { token: token.map(Into::into), ..options(&server) };
        Connection::new(options).ping()
    };
    assert!(with(Some("secret")).unwrap());
    assert!(matches!(with(Some("wrong")), Err(Error::Auth(_))));
    assert!(matches!(with(None), Err(Error::Command(_))));
}

#[test]
fn jobs_are_added_worked_on_and_their_results_read() {
    let server = Server::start_default();
    let queue = Queue::new("invoices", options(&server));
    let one = queue.add("single", number(1), JobOptions::default()).unwrap().id();
    let entries = (2..=40)
        .map(|n| BulkEntry { name: "bulk".into(), data: number(n), options: JobOptions::default() })
        .collect();
    let mut ids = queue.add_bulk(entries).unwrap();
    ids.insert(0, one);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 40);

    let names = Arc::new(Mutex::new(HashSet::new()));
    let seen = names.clone();
    let worker = Worker::new(
        "invoices",
        move |job| {
            seen.lock().unwrap().insert(job.name());
            job.update_progress(50.0, Some("half")).map_err(retryable)?;
            job.log("working", None).map_err(retryable)?;
            Ok(number(read(&job.data(), "n").unwrap_or_default() * 2))
        },
        worker_options(&server),
    );
    let running = Running::start(worker);
    until("all jobs to complete", || {
        (queue.get_job_counts().ok()?.get("completed") == Some(&40)).then_some(())
    });
    drop(running);
    for (n, id) in ids.iter().enumerate() {
        let result = queue.get_result(id).unwrap();
        assert_eq!(read(&result, "n"), Some((n as u64 + 1) * 2));
        assert_eq!(queue.get_state(id).unwrap(), "completed");
    }
    assert_eq!(*names.lock().unwrap(), ["single".into(), "bulk".into()].into());
    assert_eq!(queue.wait_for_job(&ids[0], 1000).unwrap(), number(2));
    assert_eq!(queue.count().unwrap(), 40);
}

#[test]
fn failing_jobs_are_retried_and_then_lie_in_the_dead_letter_queue() {
    let server = Server::start_default();
    let queue = Queue::new("fragile", options(&server));
    let options = |attempts| JobOptions {
        attempts: Some(attempts),
        backoff: Some(Backoff::Milliseconds(1)),
        ..Default::default()
    };
    let hopeless = queue.add("hopeless", number(0), options(3)).unwrap().id();
    let second = queue.add("second", number(1), options(3)).unwrap().id();
    let runs = Arc::new([const { AtomicU64::new(0) }; 2]);
    let counted = runs.clone();
    let worker = Worker::new(
        "fragile",
        move |job| {
            let n = read(&job.data(), "n").unwrap_or_default();
            let run = counted[n as usize].fetch_add(1, Ordering::SeqCst);
            if n == 0 || run == 0 {
                return Err(ProcessError::retryable(format!("run {run} failed")));
            }
            Ok(Value::from("at last"))
        },
        worker_options(&server),
    );
    let running = Running::start(worker);
    until("the second to complete", || {
        (queue.get_state(&second).ok()? == "completed").then_some(())
    });
    until("the hopeless to fail", || (queue.get_state(&hopeless).ok()? == "failed").then_some(()));
    drop(running);
    assert_eq!(runs[0].load(Ordering::SeqCst), 3);
    assert_eq!(runs[1].load(Ordering::SeqCst), 2);
    assert_eq!(queue.get_dlq(None).unwrap().len(), 1);

    assert_eq!(queue.retry_dlq(Some(&hopeless), None).unwrap(), 1);
    assert_eq!(queue.get_state(&hopeless).unwrap(), "waiting");
    let healed = Worker::new("fragile", |_| Ok(Value::Nil), worker_options(&server));
    assert_eq!(healed.run_once().unwrap(), 1);
    assert_eq!(queue.get_state(&hopeless).unwrap(), "completed");
    assert_eq!(queue.get_dlq(None).unwrap().len(), 0);
    healed.close();
}

#[test]
fn delayed_jobs_come_late_and_urgent_ones_early() {
    let server = Server::start_default();
    let queue = Queue::new("ordered", options(&server));
    let add = |n, priority, delay| {
        let options = JobOptions { priority, delay, ..Default::default() };
        queue.add("job", number(n), options).unwrap()
    };
    let start = Instant::now();
    add(3, Some(100), Some(5000));
    add(2, None, None);
    add(1, Some(5), None);
    assert_eq!(queue.get_job_counts().unwrap()["delayed"], 1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let done = order.clone();
    let single = WorkerOptions { concurrency: 1, batch_size: 1, ..worker_options(&server) };
    let worker = Worker::new(
        "ordered",
        move |job| {
            done.lock()
                .unwrap()
                .push((read(&job.data(), "n").unwrap_or_default(), start.elapsed()));
            Ok(Value::Nil)
        },
        single,
    );
    let running = Running::start(worker);
    until("three jobs", || (order.lock().unwrap().len() == 3).then_some(()));
    drop(running);
    let order = order.lock().unwrap();
    assert_eq!(order.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(order[2].1 >= Duration::from_millis(4999), "{:?}", order[2].1);
}

#[test]
fn a_queue_is_controlled_and_queried() {
    let server = Server::start_default();
    let queue = Queue::new("control", options(&server));
    let custom = JobOptions { job_id: Some("order-7".into()), ..Default::default() };
    let job = queue.add("one", number(1), custom.clone()).unwrap();
    assert_eq!(job.id(), "order-7");
    assert_eq!(queue.add("one", number(2), custom).unwrap().id(), "order-7");
    assert_eq!(queue.count().unwrap(), 1);
    let found = queue.get_job_by_custom_id("order-7").unwrap().unwrap();
    assert_eq!(read(&found.data(), "n"), Some(1));
    assert!(queue.get_job("nobody").unwrap().is_none());
    queue.pause().unwrap();
    assert!(queue.is_paused().unwrap());
    queue.resume().unwrap();
    assert!(!queue.is_paused().unwrap());
    let later = JobOptions { delay: Some(3_600_000), ..Default::default() };
    let delayed = queue.add("later", number(3), later).unwrap().id();
    queue.promote(&delayed).unwrap();
    queue.change_priority(&delayed, 9).unwrap();
    queue.update_job_data(&delayed, number(4)).unwrap();
    assert_eq!(queue.get_jobs(Value::from("waiting"), 0, 10).unwrap().len(), 2);
    queue.remove("order-7").unwrap();
    assert_eq!(queue.drain().unwrap(), 1);
    queue.obliterate().unwrap();
    assert_eq!(queue.count().unwrap(), 0);
    assert!(queue.ping().unwrap());
}

#[test]
fn workers_survive_a_kill_of_the_server_and_no_job_is_missing() {
    const JOBS: u64 = 400;
    let mut server = Server::start_default();
    let queue = Queue::new("reconnect", options(&server));
    let entries = (0..JOBS)
        .map(|n| BulkEntry {
            name: "job".into(),
            data: number(n),
            // A kill may cost an attempt where a lock ran out meanwhile.
            options: JobOptions { attempts: Some(10), ..Default::default() },
        })
        .collect();
    let ids = queue.add_bulk(entries).unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let running: Vec<Running> = (0..3)
        .map(|_| {
            let counted = runs.clone();
            let worker = Worker::new(
                "reconnect",
                move |job| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(2));
                    Ok(job.data())
                },
                WorkerOptions { lock_ttl_ms: 5000, ..worker_options(&server) },
            );
            Running::start(worker)
        })
        .collect();
    for part in 1..=2 {
        until("some jobs to run", || (runs.load(Ordering::SeqCst) > part * JOBS / 4).then_some(()));
        server.kill();
        server.start();
    }
    until("all jobs to complete", || {
        (queue.get_job_counts().ok()?.get("completed") == Some(&(JOBS as i64))).then_some(())
    });
    drop(running);
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(read(&queue.get_result(id).unwrap(), "n"), Some(n as u64));
    }
    assert_eq!(queue.count().unwrap(), JOBS as i64);
}

#[test]
fn a_flow_runs_from_its_leaves_to_its_root() {
    let server = Server::start_default();
    let flows = FlowProducer::new(options(&server));
    let job = |n: u64, queue: &str, children: Vec<FlowJob>| FlowJob {
        name: "part".into(),
        queue_name: queue.into(),
        data: number(n),
        options: JobOptions::default(),
        children,
    };
    let leaves = (1..4).map(|n| job(n, &format!("leaf-{n}"), Vec::new())).collect();
    let node = flows.add(job(0, "root", leaves)).unwrap();
    let (root, children) = (node.job.id(), node.children.len());
    assert_eq!(children, 3);
    let roots = Queue::new("root", options(&server));
    assert_eq!(roots.get_state(&root).unwrap(), "waiting-children");
    let chain = (0..3).map(|n| ChainStep {
        name: "step".into(),
        queue_name: format!("leaf-{}", 1 + n % 3),
        data: number(10 + n),
        options: JobOptions::default(),
    });
    let chain = flows.add_chain(chain.collect()).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let running: Vec<Running> = (1..4)
        .map(|n| {
            let seen = seen.clone();
            let work = move |job: bunqueue_client::Job| {
                let n = read(&job.data(), "n").unwrap();
                seen.lock().unwrap().push(n);
                Ok(number(n))
            };
            Running::start(Worker::new(format!("leaf-{n}"), work, worker_options(&server)))
        })
        .collect();
    until("the root to wait", || (roots.get_state(&root).ok()? == "waiting").then_some(()));
    until("the chain", || (roots.get_state(&chain[2]).ok()? == "completed").then_some(()));
    drop(running);
    let steps: Vec<u64> = seen.lock().unwrap().iter().copied().filter(|n| *n >= 10).collect();
    assert_eq!(steps, [10, 11, 12]);
    let mut plain = server.client();
    let values = plain.ok("GetChildrenValues", serde_json::json!({"id": root}));
    assert_eq!(values["data"]["values"].as_object().unwrap().len(), 3);
    flows.close();
}

#[test]
fn jobs_are_handled_one_by_one() {
    let server = Server::start_default();
    let queue = Queue::new("handled", options(&server));
    let later = |n| {
        let options = JobOptions { delay: Some(3_600_000), ..Default::default() };
        queue.add("later", number(n), options).unwrap().id()
    };
    let id = later(1);
    queue.change_delay(&id, 7_200_000).unwrap();
    assert_eq!(queue.get_state(&id).unwrap(), "delayed");
    queue.retry_job(&id).unwrap();
    assert_eq!(queue.get_state(&id).unwrap(), "waiting");
    let (seen, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (looked, locked) = (seen.clone(), told.clone());
    let worker = Worker::new(
        "handled",
        move |job| {
            looked.fetch_add(1, Ordering::SeqCst);
            job.log("begun", Some("warn")).map_err(retryable)?;
            job.extend_lock(60_000).map_err(retryable)?;
            locked.fetch_add(1, Ordering::SeqCst);
            Err(ProcessError::unrecoverable("never again"))
        },
        worker_options(&server),
    );
    assert_eq!(worker.run_once().unwrap(), 1);
    worker.close();
    assert_eq!((seen.load(Ordering::SeqCst), told.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(queue.get_state(&id).unwrap(), "failed");
    // This release takes lines that are strings; the protocol has maps, which the others read.
    assert!(queue.get_job_logs(&id).unwrap().is_empty());
    assert_eq!(queue.clean(0, 10, "failed").unwrap(), [id]);
    let keyed = |key: &str| {
        let key = Deduplication { id: key.into(), ..Default::default() };
        let options = JobOptions { deduplication: Some(key), ..Default::default() };
        queue.add("once", number(1), options).unwrap().id()
    };
    assert_eq!(keyed("k"), keyed("k"));
    assert_ne!(keyed("k"), keyed("other"));
}

#[test]
fn waits_between_attempts_grow_as_a_strategy_says() {
    let server = Server::start_default();
    let queue = Queue::new("strategies", options(&server));
    let add = |kind: &str, delay, max_delay| {
        let backoff = Backoff::Strategy { kind: kind.into(), delay, max_delay };
        let options =
            JobOptions { attempts: Some(3), backoff: Some(backoff), ..Default::default() };
        queue.add("job", number(1), options).unwrap().id()
    };
    let ids = [add("fixed", 1, None), add("exponential", 3_600_000, Some(1))];
    let worker =
        Worker::new("strategies", |_| Err(ProcessError::retryable("no")), worker_options(&server));
    let running = Running::start(worker);
    for id in &ids {
        until("its last attempt", || (queue.get_state(id).ok()? == "failed").then_some(()));
    }
    drop(running);
}

#[test]
fn schedules_bring_jobs_on_their_cadence() {
    let server = Server::start_default();
    let queue = Queue::new("clock", options(&server));
    let repeat = SchedulerRepeat { every_ms: Some(50), ..Default::default() };
    let template = SchedulerTemplate { name: Some("tick".into()), ..Default::default() };
    queue.upsert_job_scheduler("rust-tick", repeat, template).unwrap();
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = names.clone();
    let worker = Worker::new(
        "clock",
        move |job| {
            seen.lock().unwrap().push(job.name());
            Ok(Value::Nil)
        },
        worker_options(&server),
    );
    let running = Running::start(worker);
    until("three ticks", || (names.lock().unwrap().len() >= 3).then_some(()));
    drop(running);
    assert!(names.lock().unwrap().iter().all(|name| name == "tick"));
    assert!(queue.get_job_scheduler("rust-tick").unwrap().is_some());
    queue.remove_job_scheduler("rust-tick").unwrap();
    assert!(queue.get_job_scheduler("rust-tick").unwrap().is_none());
    // At once, and with what its jobs are pushed with.
    let repeat = SchedulerRepeat {
        pattern: Some("0 0 1 1 *".into()),
        immediately: true,
        ..Default::default()
    };
    let options = JobOptions { attempts: Some(7), ..Default::default() };
    let template = SchedulerTemplate { name: Some("once".into()), options, ..Default::default() };
    queue.upsert_job_scheduler("rust-once", repeat, template).unwrap();
    let job = until("the run at once", || {
        queue
            .get_jobs(Value::from("waiting"), 0, 10)
            .ok()?
            .into_iter()
            .find(|job| job.name() == "once")
    });
    let most = job.raw().iter().find(|(key, _)| key.as_str() == Some("maxAttempts"));
    assert_eq!(most.and_then(|(_, most)| most.as_i64()), Some(7));
    queue.remove_job_scheduler("rust-once").unwrap();
}

#[test]
fn the_rate_of_a_queue_is_limited() {
    let server = Server::start_default();
    let queue = Queue::new("limited", options(&server));
    queue.set_rate_limit(2, Some(1000), None).unwrap();
    for n in 0..4 {
        queue.add("job", number(n), JobOptions::default()).unwrap();
    }
    let start = Instant::now();
    let running =
        Running::start(Worker::new("limited", |_| Ok(Value::Nil), worker_options(&server)));
    until("four jobs", || {
        (queue.get_job_counts().ok()?.get("completed") == Some(&4)).then_some(())
    });
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    drop(running);
    queue.clear_rate_limit().unwrap();
    assert_eq!(queue.purge_dlq().unwrap(), 0);
}
