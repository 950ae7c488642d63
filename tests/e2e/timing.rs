//! Events by the clock: delays, times to live, timeouts, repetition. The fear: too early, never, or twice. (Leases have
//! a file of their own.)

use serde_json::{Value, json};

use crate::support::until;
use crate::{client, queue};

#[test]
fn a_delayed_job_is_not_delivered_before_its_time_and_blocks_nobody() {
    let (mut client, queue) = (client(), queue("delay"));
    client.push_with(&queue, "later", json!({"delay": 3_600_000, "priority": 100}));
    client.push(&queue, "now");
    assert_eq!(client.counted(&queue, "delayed"), 1);
    assert_eq!(client.pull(&queue)["data"], "now");
    assert_eq!(client.pull(&queue), Value::Null);
    let late = client.push_with(&queue, "late", json!({"delay": 500, "priority": 100}));
    let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
    assert_eq!(job["id"], json!(late));
    assert!(job["startedAt"].as_u64().unwrap() >= job["runAt"].as_u64().unwrap());
    assert_eq!(job["runAt"].as_u64().unwrap() - job["createdAt"].as_u64().unwrap(), 500);
}

#[test]
fn delayed_jobs_come_in_the_order_of_their_times() {
    let (mut client, queue) = (client(), queue("due-order"));
    let jobs = [1100, 100, 600].map(|delay| json!({"data": delay, "delay": delay}));
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    for delay in [100, 600, 1100] {
        let reply = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
        assert_eq!(reply["job"]["data"], delay);
    }
}

#[test]
fn a_job_is_removed_when_its_time_to_live_ends_waiting_or_delayed() {
    let (mut client, queue) = (client(), queue("ttl"));
    let waiting = client.push_with(&queue, 1, json!({"ttl": 50}));
    let delayed = client.push_with(&queue, 2, json!({"ttl": 50, "delay": 60_000}));
    for id in [waiting, delayed] {
        until("the job to go", || (client.state(&id) == "unknown").then_some(()));
    }
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn the_time_to_live_of_an_active_job_does_not_count() {
    let (mut client, queue) = (client(), queue("ttl-active"));
    let mut worker = crate::client();
    worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    // The reply shows that the pull waits, so that the job is active at once.
    worker.ok("IsPaused", json!({"queue": queue}));
    let id = client.push_with(&queue, 1, json!({"ttl": 200}));
    assert_eq!(worker.recv().unwrap()["job"]["id"], json!(id));
    // A job of the same life that stays behind shows when the time has passed.
    let other = client.push_with(&queue, 2, json!({"ttl": 200}));
    until("the other to go", || (client.state(&other) == "unknown").then_some(()));
    assert_eq!(client.state(&id), "active");
    client.ok("ACK", json!({"id": id}));
}

#[test]
fn a_job_that_takes_longer_than_its_timeout_fails() {
    let (mut client, queue) = (client(), queue("timeout"));
    let id = client.push_with(&queue, 1, json!({"timeout": 80, "maxAttempts": 1}));
    client.pull_owned(&queue, 3_600_000);
    until("the job to fail", || (client.state(&id) == "failed").then_some(()));
    let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"].clone();
    assert_eq!(dead[0]["failedReason"], "Job timeout exceeded");
}

#[test]
fn a_repeated_job_runs_as_often_as_its_limit_says() {
    let (mut client, queue) = (client(), queue("repeat"));
    let first = client.push_with(&queue, "r", json!({"repeat": {"every": 40, "limit": 3}}));
    let mut ids = Vec::new();
    for run in 0..3 {
        let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
        assert_eq!(job["data"], "r", "run {run}");
        ids.push(job["id"].clone());
        client.ok("ACK", json!({"id": job["id"]}));
    }
    assert_eq!(ids[0], json!(first));
    assert_ne!(ids[0], ids[1]);
    let reply = client.ok("PULL", json!({"queue": queue, "timeout": 200}));
    assert_eq!(reply["job"], Value::Null);
}

#[test]
fn an_update_of_a_run_is_the_payload_of_those_that_follow() {
    let (mut client, queue) = (client(), queue("repeat-update"));
    let options = json!({"repeat": {"every": 30, "limit": 3}, "delay": 30, "tags": ["t"]});
    let first = client.push_with(&queue, "old", options);
    client.ok("Update", json!({"id": first, "data": "new"}));
    for run in 0..3 {
        let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
        assert_eq!(job["data"], "new", "run {run}");
        client.ok("ACK", json!({"id": job["id"], "result": run}));
        let whole = client.ok("GetJob", json!({"id": job["id"]}))["job"].clone();
        assert_eq!((&whole["tags"], &whole["repeat"]["count"]), (&json!(["t"]), &json!(run)));
        let waited = client.ok("WaitJob", json!({"id": job["id"]}));
        assert_eq!((&waited["completed"], &waited["result"]), (&json!(true), &json!(run)));
        assert_eq!(client.ok("GetResult", json!({"id": job["id"]}))["result"], run);
    }
}
