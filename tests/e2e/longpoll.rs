//! Pulls that wait. The fear: a worker that sleeps beside a job, or two that are woken for one.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, Start};
use crate::{client, queue};

/// A connection whose pull is known to be waiting at the server.
fn waiting(queue: &str) -> Client {
    let mut worker = client();
    worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    // Commands of one connection about one queue begin in their order, so the pull waits when this is answered.
    worker.ok("Count", json!({"queue": queue}));
    worker
}

#[test]
fn a_push_wakes_a_worker_that_waits() {
    let (mut client, queue) = (client(), queue("wake"));
    let mut worker = waiting(&queue);
    let id = client.push(&queue, 1);
    assert_eq!(worker.recv().unwrap()["job"]["id"], json!(id));
}

#[test]
fn a_wait_ends_with_nothing_at_its_timeout_and_not_before() {
    // With one shard, one clock is that of the ping and of the pull.
    let server = Start::new().env("SHARDS", 1).start();
    let (mut client, queue) = (server.client(), queue("timeout"));
    let before = client.time();
    let reply = client.ok("PULL", json!({"queue": queue, "timeout": 150}));
    assert_eq!(reply["job"], Value::Null);
    let after = client.time();
    assert!(after - before >= 150, "{before} to {after}");
    let reply = client.ok("PULLB", json!({"queue": queue, "count": 5, "timeout": 20}));
    assert_eq!(reply["jobs"], json!([]));
    // The wait is over: what comes now is not handed to it.
    client.push(&queue, 1);
    assert_eq!(client.counted(&queue, "waiting"), 1);
}

#[test]
fn workers_that_wait_are_served_first_come_first_served_one_job_each() {
    let (mut client, queue) = (client(), queue("turns"));
    let mut workers: Vec<Client> = (0..5).map(|_| waiting(&queue)).collect();
    let jobs: Vec<Value> = (0..3).map(|n| json!({"data": n})).collect();
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    for (n, worker) in workers.iter_mut().take(3).enumerate() {
        assert_eq!(worker.recv().unwrap()["job"]["data"], n);
    }
    assert_eq!(client.counted(&queue, "active"), 3);
    client.push(&queue, 3);
    client.push(&queue, 4);
    for (n, worker) in workers.iter_mut().enumerate().skip(3) {
        assert_eq!(worker.recv().unwrap()["job"]["data"], n);
    }
}

#[test]
fn a_batch_pull_that_waits_comes_back_with_the_first_jobs() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("batch-wait"));
    worker.send("PULLB", json!({"queue": queue, "count": 10, "timeout": 60_000})).unwrap();
    client.ok("PUSHB", json!({"queue": queue, "jobs": [{"data": 1}, {"data": 2}]}));
    let jobs = worker.recv().unwrap()["jobs"].as_array().unwrap().len();
    assert!((1..=2).contains(&jobs), "{jobs}");
}

#[test]
fn a_delayed_job_wakes_a_worker_when_it_falls_due() {
    let (mut client, queue) = (client(), queue("due"));
    let mut worker = waiting(&queue);
    let id = client.push_with(&queue, 1, json!({"delay": 200}));
    let job = worker.recv().unwrap()["job"].clone();
    assert_eq!(job["id"], json!(id));
    let at = |field: &str| job[field].as_u64().unwrap();
    assert_eq!(at("runAt"), at("createdAt") + 200);
    assert!(at("startedAt") >= at("runAt"), "{job}");
}

#[test]
fn resuming_a_queue_wakes_the_workers_that_wait() {
    let (mut client, queue) = (client(), queue("resume"));
    client.ok("Pause", json!({"queue": queue}));
    let mut worker = waiting(&queue);
    let id = client.push(&queue, 1);
    assert!(worker.recv_within(Duration::from_millis(100)).is_none(), "a paused queue delivers");
    client.ok("Resume", json!({"queue": queue}));
    assert_eq!(worker.recv().unwrap()["job"]["id"], json!(id));
}

#[test]
fn a_worker_that_has_gone_gets_nothing() {
    let (mut client, queue) = (client(), queue("gone"));
    drop(waiting(&queue));
    // Whichever the server notices first, the job must end up with a client that is there.
    let id = client.push(&queue, 1);
    let reply = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
    assert_eq!(reply["job"]["id"], json!(id));
}

#[test]
fn a_wait_on_one_queue_is_not_woken_by_another() {
    let (mut client, mine, other) = (client(), queue("mine"), queue("other"));
    let mut worker = waiting(&mine);
    client.push(&other, 1);
    assert!(worker.recv_within(Duration::from_millis(50)).is_none());
    client.push(&mine, 2);
    assert_eq!(worker.recv().unwrap()["job"]["data"], 2);
}

#[test]
fn many_waits_on_one_connection_are_all_served() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("many-waits"));
    for _ in 0..40 {
        worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    }
    let jobs: Vec<Value> = (0..40).map(|n| json!({"data": n})).collect();
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let mut got: Vec<i64> =
        (0..40).map(|_| worker.recv().unwrap()["job"]["data"].as_i64().unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, (0..40).collect::<Vec<i64>>());
}

#[test]
fn more_waits_than_a_connection_may_have_are_served_in_turn() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("over-50"));
    for _ in 0..80 {
        worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    }
    let jobs: Vec<Value> = (0..80).map(|n| json!({"data": n})).collect();
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let mut got: Vec<i64> =
        (0..80).map(|_| worker.recv().unwrap()["job"]["data"].as_i64().unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, (0..80).collect::<Vec<i64>>());
}

#[test]
fn a_wait_at_a_foreign_shard_is_served_as_well() {
    // Eight queues lie on both shards, and every connection waits on all of them.
    let queues: Vec<String> = (0..8).map(|_| queue("foreign")).collect();
    let (mut client, mut worker) = (client(), crate::client());
    for queue in &queues {
        worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    }
    for queue in queues.iter().rev() {
        client.push(queue, queue.as_str());
        let job = worker.recv().unwrap()["job"].clone();
        assert_eq!((&job["queue"], &job["data"]), (&json!(queue), &json!(queue)));
    }
}
