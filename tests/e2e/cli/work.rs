//! A worker's commands, each a connection of its own.

use serde_json::{Value, json};

use super::{push, tool};
use crate::support::tool::{is_recent, pair};
use crate::{client, queue};

#[test]
fn a_pulled_job_outlives_the_command_and_is_completed_with_its_token() {
    let (tool, queue) = (tool(), queue("cli-pull"));
    let id = push(&tool, &queue, r#"{"n":1}"#);
    let out = tool.ok(&["pull", &queue]);
    assert_eq!(pair(&out, "id"), id);
    assert_eq!(pair(&out, "data"), r#"{"n":1}"#);
    let (created, date) = pair(&out, "created").split_once(" (").unwrap();
    assert!(is_recent(created) && date.ends_with("Z)"), "{out}");
    assert_eq!(client().state(&id), "active");
    let line = tool.fails(1, &["ack", &id]);
    assert!(line.contains("Lock token required") && line.contains("--lock-token"), "{line}");
    let line = tool.fails(1, &["ack", &id, "--lock-token", "wrong"]);
    assert!(line.starts_with("Invalid or expired lock token"), "{line}");
    let token = pair(&out, "token");
    let out = tool.ok(&["ack", &id, "--lock-token", token, "--result", r#"{"sent":true}"#]);
    assert_eq!(out, format!("completed {id}\n"));
    assert_eq!(tool.ok(&["job", "result", &id]), "{\"sent\":true}\n");
    assert_eq!(tool.fails(1, &["ack", &id]), format!("job {id} is already completed"));
}

#[test]
fn the_raw_answer_has_job_and_token() {
    let (tool, queue) = (tool(), queue("cli-pull-json"));
    let id = push(&tool, &queue, "7");
    let answer = tool.json(&["pull", &queue, "--lock-ttl", "2h"]);
    assert_eq!((&answer["job"]["id"], &answer["job"]["data"]), (&json!(id), &json!(7)));
    let token = answer["token"].as_str().unwrap();
    let answer = tool.json(&["ack", &id, "--lock-token", token, "--result", "-1"]);
    assert_eq!(answer, json!({"ok": true}));
    assert_eq!(tool.json(&["pull", &queue]), json!({"ok": true, "job": null, "token": null}));
    assert_eq!(tool.ok(&["pull", &queue]), format!("no job waits in {queue}\n"));
}

#[test]
fn several_jobs_are_pulled_at_a_time() {
    let (tool, queue) = (tool(), queue("cli-pull-many"));
    for n in 0..3 {
        push(&tool, &queue, &n.to_string());
    }
    let out = tool.ok(&["pull", &queue, "--count", "2"]);
    assert_eq!(out.matches("token  ").count(), 2, "{out}");
    let answer = tool.json(&["pull", &queue, "--count", "2"]);
    assert_eq!(answer["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(answer["tokens"].as_array().unwrap().len(), 1);
    assert!(
        tool.fails(1, &["pull", &queue, "--count", "0"]).starts_with("--count must be between")
    );
}

#[test]
fn a_pull_that_waited_in_vain_ends_with_one() {
    let (tool, queue) = (tool(), queue("cli-pull-vain"));
    for count in [&[][..], &["--count", "3"]] {
        let words = [&["pull", &queue, "--timeout", "50ms"], count].concat();
        assert_eq!(tool.fails(1, &words), format!("no job came to {queue} within 50ms"));
        let ran = tool.run(&[&words[..], &["--json"]].concat());
        assert_eq!((ran.code, ran.out.lines().count()), (Some(1), 1), "{ran:?}");
    }
    // Who does not wait asks what there is.
    assert_eq!(tool.ok(&["pull", &queue]), format!("no job waits in {queue}\n"));
    push(&tool, &queue, "1");
    assert!(tool.ok(&["pull", &queue, "--timeout", "30s"]).contains("token"));
}

#[test]
fn a_pull_without_a_job_says_that_the_queue_is_paused_or_limited() {
    let (mut client, tool, queue) = (client(), tool(), queue("cli-pull-held"));
    let told = |why: &str| {
        let pulled = tool.ok(&["pull", &queue]);
        assert_eq!(pulled, format!("no job can be taken from {queue}: {why}\n"));
        let vain = tool.fails(1, &["pull", &queue, "--count", "2", "--timeout", "1ms"]);
        assert_eq!(vain, format!("no job came to {queue} within 1ms: {why}"));
        // Programs get the answer as it is.
        assert_eq!(tool.json(&["pull", &queue]), json!({"ok": true, "job": null, "token": null}));
    };
    client.ok("Pause", json!({"queue": queue}));
    told("the queue is paused");
    push(&tool, &queue, "1");
    push(&tool, &queue, "2");
    told("the queue is paused");
    client.ok("Resume", json!({"queue": queue}));
    client.ok("SetConcurrency", json!({"queue": queue, "limit": 1}));
    tool.ok(&["pull", &queue]);
    told("its queue has 1 active job, and the limit is 1");
    client.ok("ClearConcurrency", json!({"queue": queue}));
    client.ok("RateLimit", json!({"queue": queue, "limit": 1, "duration": 3_600_000}));
    push(&tool, &queue, "3");
    tool.run(&["pull", &queue]);
    let text = tool.ok(&["pull", &queue]);
    let begins = format!("no job can be taken from {queue}: the rate limit of its queue, 1 in ");
    assert!(text.starts_with(&begins), "{text}");
    client.ok("Obliterate", json!({"queue": queue}));
    client.ok("RateLimitClear", json!({"queue": queue}));
    assert_eq!(tool.ok(&["pull", &queue]), format!("no job waits in {queue}\n"));
}

#[test]
fn a_pull_waits_for_a_job() {
    let (tool, queue) = (tool(), queue("cli-pull-wait"));
    let child = tool.start(&["pull", &queue, "--timeout", "30s"]);
    crate::support::until("the pull to wait", || {
        let text = client().ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let waits = |line: &str| line.starts_with("corq_waiting_pulls ") && !line.ends_with(" 0");
        text.as_str().unwrap().lines().any(waits).then_some(())
    });
    let id = push(&tool, &queue, "1");
    let output = child.wait_with_output().unwrap();
    assert_eq!(pair(&String::from_utf8(output.stdout).unwrap(), "id"), id);
}

#[test]
fn a_failed_attempt_is_retried_and_an_unrecoverable_one_is_not() {
    let (tool, queue) = (tool(), queue("cli-fail"));
    let id = push(&tool, &queue, "1");
    let fail = |more: &[&str]| {
        let token = tool.json(&["pull", &queue])["token"].as_str().unwrap().to_owned();
        let words = ["fail", &id, "--lock-token", &token, "--error", "no \x1b[31mink"];
        tool.ok(&[&words[..], more].concat())
    };
    assert_eq!(fail(&[]), format!("failed {id}\n"));
    assert_eq!(client().state(&id), "delayed");
    tool.ok(&["job", "promote", &id]);
    fail(&["--unrecoverable"]);
    assert_eq!(client().state(&id), "failed");
    // An error of a worker cannot colour the operator's terminal.
    let out = tool.ok(&["job", "get", &id]);
    assert_eq!(pair(&out, "error"), "no \\u{1b}[31mink");
}

#[test]
fn a_job_that_is_not_active_is_told_by_its_case() {
    let (mut client, tool, queue) = (client(), tool(), queue("cli-cases"));
    let unknown = "0190a1fc-0000-7000-8000-000000000000";
    assert_eq!(tool.fails(1, &["ack", unknown]), format!("there is no job {unknown}"));
    let id = push(&tool, &queue, "1");
    let waits = format!("job {id} is waiting: its lock has expired, or another worker has it");
    assert_eq!(tool.fails(1, &["fail", &id]), waits);
    assert_eq!(tool.fails(1, &["job", "progress", &id, "5"]), waits);
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "unrecoverable": true}));
    assert_eq!(tool.fails(1, &["ack", &id]), format!("job {id} has already failed for good"));
    client.ok("RetryDlq", json!({"queue": queue, "jobId": id}));
    client.pull(&queue);
    client.ok("ACK", json!({"id": id}));
    assert_eq!(tool.fails(1, &["ack", &id]), format!("job {id} is already completed"));
    // The text on the wire is the protocol's.
    let ran = tool.run(&["ack", &id, "--json"]);
    let raw: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &raw["error"]), (Some(1), &json!("Job not found or not active")));
}
