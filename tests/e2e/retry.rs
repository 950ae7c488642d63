//! Failures. The fear: a job that is retried for ever, never, too early, or lost on its way to
//! the dead-letter queue and back.

use serde_json::{Value, json};

use crate::support::{Start, until};
use crate::{client, queue};

#[test]
fn a_failed_job_with_attempts_left_waits_its_backoff_and_comes_again() {
    let (mut client, queue) = (client(), queue("retry"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 2, "backoff": 3_600_000}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "first"}));
    assert_eq!(client.state(&id), "delayed");
    assert_eq!(client.pull(&queue), Value::Null);
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 2, "backoff": 300}));
    let first = client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "first"}));
    let again = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
    assert_eq!((&again["id"], &again["attempts"]), (&json!(id), &json!(1)));
    let at = |job: &Value, field: &str| job[field].as_u64().unwrap();
    assert!(at(&again, "startedAt") >= at(&again, "runAt"), "{again}");
    assert!(at(&again, "runAt") >= at(&first, "startedAt") + 300, "{again} after {first}");
}

#[test]
fn backoff_zero_retries_at_once() {
    let (mut client, queue) = (client(), queue("backoff-0"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 3, "backoff": 0}));
    for attempt in 0..2 {
        let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
        assert_eq!(job["attempts"], attempt);
        client.ok("FAIL", json!({"id": id, "error": "again"}));
    }
}

#[test]
fn backoff_doubles_with_every_attempt() {
    let server = Start::new().env("SHARDS", 1).start();
    let (mut client, queue) = (server.client(), queue("doubles"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 3, "backoff": 100}));
    for at_least in [100, 200] {
        client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
        let before = client.time();
        client.ok("FAIL", json!({"id": id}));
        let after = client.time();
        let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
        let run_at = job["runAt"].as_u64().unwrap();
        // The attempt failed at some time between the two, and chance adds a fifth at most.
        let most = after + at_least + at_least / 5;
        let range = before + at_least..=most;
        assert!(range.contains(&run_at), "{run_at} is not within {range:?} for {at_least}");
    }
}

#[test]
fn a_job_out_of_attempts_is_failed_and_lies_in_the_dead_letter_queue() {
    let (mut client, queue) = (client(), queue("dlq"));
    let id = client.push_with(&queue, json!({"n": 1}), json!({"maxAttempts": 1}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "no luck"}));
    assert_eq!(client.state(&id), "failed");
    assert_eq!(client.counted(&queue, "failed"), 1);
    let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"].clone();
    assert_eq!(dead.as_array().unwrap().len(), 1);
    assert_eq!((&dead[0]["id"], &dead[0]["data"]), (&json!(id), &json!({"n": 1})));
    assert_eq!(dead[0]["failedReason"], "no luck");
    assert_eq!(dead[0]["attempts"], 1);
    assert_eq!(client.pull(&queue), Value::Null);
}

#[test]
fn the_dead_letter_queue_lists_the_oldest_first_and_keeps_to_its_count() {
    let (mut client, queue) = (client(), queue("dlq-list"));
    for n in 0..5 {
        let id = client.push_with(&queue, n, json!({"maxAttempts": 1}));
        client.pull(&queue);
        client.ok("FAIL", json!({"id": id, "error": n.to_string()}));
    }
    let dead = client.ok("Dlq", json!({"queue": queue, "count": 3}))["jobs"].clone();
    let numbers: Vec<&Value> = dead.as_array().unwrap().iter().map(|job| &job["data"]).collect();
    assert_eq!(numbers, [&json!(0), &json!(1), &json!(2)]);
}

#[test]
fn a_dead_job_can_be_retried_by_its_id_and_starts_afresh() {
    let (mut client, queue) = (client(), queue("dlq-retry"));
    let mut ids = Vec::new();
    for n in 0..3 {
        let id = client.push_with(&queue, n, json!({"maxAttempts": 1}));
        client.pull(&queue);
        client.ok("FAIL", json!({"id": id}));
        ids.push(id);
    }
    let reply = client.ok("RetryDlq", json!({"queue": queue, "jobId": ids[1]}));
    assert_eq!(reply["count"], 1);
    let job = client.pull(&queue);
    assert_eq!((&job["id"], &job["attempts"]), (&json!(ids[1]), &json!(0)));
    client.ok("ACK", json!({"id": ids[1]}));
    let unknown = client.ok("RetryDlq", json!({"queue": queue, "jobId": "nobody"}));
    assert_eq!(unknown["count"], 0);
    assert_eq!(client.ok("RetryDlq", json!({"queue": queue}))["count"], 2);
    assert_eq!(client.counted(&queue, "waiting"), 2);
    assert_eq!(client.counted(&queue, "failed"), 0);
}

#[test]
fn retrying_all_wakes_a_worker_that_waits() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("dlq-wake"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id}));
    worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    client.ok("RetryDlq", json!({"queue": queue}));
    assert_eq!(worker.recv().unwrap()["job"]["id"], json!(id));
}

#[test]
fn purging_removes_the_dead_and_says_how_many() {
    let (mut client, queue) = (client(), queue("purge"));
    for n in 0..3 {
        let id = client.push_with(&queue, n, json!({"maxAttempts": 1}));
        client.pull(&queue);
        client.ok("FAIL", json!({"id": id}));
    }
    let kept = client.push(&queue, 9);
    assert_eq!(client.ok("PurgeDlq", json!({"queue": queue}))["count"], 3);
    assert_eq!(client.ok("Dlq", json!({"queue": queue}))["jobs"], json!([]));
    assert_eq!(client.state(&kept), "waiting");
}

#[test]
fn remove_on_fail_leaves_nothing() {
    let (mut client, queue) = (client(), queue("remove-fail"));
    let options = json!({"maxAttempts": 1, "removeOnFail": true});
    let id = client.push_with(&queue, 1, options);
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id}));
    assert_eq!(client.state(&id), "unknown");
    assert_eq!(client.counted(&queue, "failed"), 0);
}

#[test]
fn discarding_a_job_sends_it_to_the_dead_letter_queue() {
    let (mut client, queue) = (client(), queue("discard"));
    let id = client.push(&queue, 1);
    client.ok("Discard", json!({"id": id}));
    assert_eq!(client.state(&id), "failed");
    let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"].clone();
    assert_eq!(dead[0]["failedReason"], "Job discarded");
    client.ok("Discard", json!({"id": id}));
    client.refused("Discard", json!({"id": "nobody"}));
}

#[test]
fn a_completed_job_can_be_run_again() {
    let (mut client, queue) = (client(), queue("again"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    client.ok("ACK", json!({"id": id, "result": "old"}));
    assert_eq!(client.ok("RetryCompleted", json!({"queue": queue, "id": id}))["count"], 1);
    assert_eq!(client.state(&id), "waiting");
    let result = client.ok("GetResult", json!({"id": id}));
    assert_eq!(result.get("result").unwrap_or(&Value::Null), &Value::Null);
    client.pull(&queue);
    client.ok("ACK", json!({"id": id, "result": "new"}));
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], "new");
}

#[test]
fn a_retry_falls_due_for_a_worker_that_waits() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("retry-wake"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 2, "backoff": 50}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id}));
    worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    assert_eq!(worker.recv().unwrap()["job"]["id"], json!(id));
    until("the job to be active", || (client.state(&id) == "active").then_some(()));
}
