//! How earlier attempts of a job failed, for those who look at it between two attempts and after them.

use serde_json::{Value, json};

use crate::support::{Client, Habit, Receiver, Start, until};
use crate::{client, queue};

fn about(client: &mut Client, id: &str) -> Value {
    client.ok("GetJob", json!({"id": id}))["job"].clone()
}

fn detail(client: &mut Client, id: &str) -> Value {
    client.ok("GetJobDetail", json!({"id": id}))["data"].clone()
}

/// Fails the job that waits in a queue, as a worker of this name.
fn fail(client: &mut Client, queue: &str, worker: &str, fields: &Value) {
    let pulled = client.ok("PULL", json!({"queue": queue, "owner": worker, "timeout": 30_000}));
    let mut fail = json!({"id": pulled["job"]["id"], "token": pulled["token"]});
    fail.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    client.ok("FAIL", fail);
}

/// Number, worker and error of each attempt.
fn attempts(data: &Value) -> Vec<(u64, Value, Value)> {
    let row =
        |it: &Value| (it["attempt"].as_u64().unwrap(), it["worker"].clone(), it["error"].clone());
    data["attempts"].as_array().unwrap().iter().map(row).collect()
}

fn errors(timeline: &Value) -> Vec<(u64, String)> {
    let failed = timeline.as_array().unwrap().iter().filter(|step| step["state"] == "failed");
    failed
        .map(|step| (step["attempt"].as_u64().unwrap(), step["error"].as_str().unwrap().to_owned()))
        .collect()
}

#[test]
fn between_attempts_a_job_shows_how_the_last_one_failed() {
    let (mut client, queue) = (client(), queue("between"));
    let id = client.push_with(
        &queue,
        1,
        json!({"maxAttempts": 4, "backoff": 600_000, "stackTraceLimit": 2}),
    );
    assert_eq!(about(&mut client, &id).get("failedReason"), None);
    fail(&mut client, &queue, "w1", &json!({"error": "no disk", "stack": ["a", "b", "c"]}));
    let job = about(&mut client, &id);
    assert_eq!((&job["state"], &job["failedReason"]), (&json!("delayed"), &json!("no disk")));
    assert_eq!(job["stacktrace"], json!(["a", "b"]));
    assert!(job["failedAt"].as_u64().unwrap() <= client.time());
    assert_eq!(errors(&job["timeline"]), [(1, "no disk".to_owned())]);
    client.ok("Promote", json!({"id": id}));
    fail(&mut client, &queue, "w2", &json!({"error": "no net"}));
    let job = about(&mut client, &id);
    assert_eq!((&job["failedReason"], &job["stacktrace"]), (&json!("no net"), &json!(["no net"])));
    client.ok("Promote", json!({"id": id}));
    client.pull(&queue);
    let states: Vec<Value> = about(&mut client, &id)["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .skip(1)
        .map(|step| step["state"].clone())
        .collect();
    assert_eq!(states, ["active", "failed", "active", "failed", "active"]);
    client.ok("ACK", json!({"id": id}));
    let job = about(&mut client, &id);
    assert_eq!((&job["state"], job.get("failedReason")), (&json!("completed"), None));
    assert_eq!(errors(&job["timeline"]).len(), 2);
    let listed = client.ok("GetJobs", json!({"queue": queue}))["jobs"].clone();
    assert_eq!(listed[0], job, "in a list as well");
}

#[test]
fn every_attempt_is_told_with_its_worker_and_in_the_dead_letter_queue_also_after_a_kill() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let id = client.push_with("q", 1, json!({"maxAttempts": 3, "backoff": 0}));
    for (worker, error) in [("w1", "one"), ("w2", "two"), ("w3", "three")] {
        fail(&mut client, "q", worker, &json!({"error": error}));
    }
    let waiting = client.push_with("r", 1, json!({"maxAttempts": 3, "backoff": 600_000}));
    fail(&mut client, "r", "w", &json!({"error": "once"}));
    for round in 0..2 {
        let data = detail(&mut client, &id);
        let told = [
            (1, json!("w1"), json!("one")),
            (2, json!("w2"), json!("two")),
            (3, Value::Null, json!("three")),
        ];
        assert_eq!(attempts(&data), told, "{round}");
        for it in data["attempts"].as_array().unwrap() {
            assert!(it["startedAt"].as_u64().unwrap() <= it["endedAt"].as_u64().unwrap());
        }
        let entries = client.ok("Dlq", json!({"queue": "q", "filter": {}}))["entries"].clone();
        let letters = entries[0]["attempts"].as_array().unwrap().clone();
        let rows: Vec<(&Value, &Value)> =
            letters.iter().map(|it| (&it["error"], &it["reason"])).collect();
        assert_eq!(
            rows,
            [
                (&json!("one"), &json!("explicit_fail")),
                (&json!("two"), &json!("explicit_fail")),
                (&json!("three"), &json!("max_attempts_exceeded")),
            ]
        );
        assert_eq!(about(&mut client, &waiting)["failedReason"], "once");
        server.kill();
        server.start();
        client = server.client();
    }
    // A retry begins anew, and so does the history of attempts.
    client.ok("RetryDlq", json!({"queue": "q", "jobId": id}));
    assert_eq!(attempts(&detail(&mut client, &id)), []);
    assert_eq!(about(&mut client, &id).get("failedReason"), None);
}

#[test]
fn attempts_that_took_too_long_or_went_silent_are_told_as_well() {
    let (mut client, queue) = (client(), queue("silent"));
    let job = json!({"maxAttempts": 5, "backoff": 600_000, "timeout": 1});
    let late = client.push_with(&queue, 1, job);
    client.ok("PULL", json!({"queue": queue, "owner": "slow"}));
    let told = until("the timeout", || {
        let all = attempts(&detail(&mut client, &late));
        (all.first()?.2 != Value::Null).then_some(all)
    });
    assert_eq!(told, [(1, json!("slow"), json!("Job timeout exceeded"))]);
    let stalls = client.push_with(&queue, 1, json!({"maxAttempts": 5}));
    client.ok("PULL", json!({"queue": queue, "owner": "gone", "lockTtl": 1, "detach": true}));
    let told = until("the stall", || {
        let all = attempts(&detail(&mut client, &stalls));
        (all.first()?.2 != Value::Null).then_some(all)
    });
    assert_eq!(told, [(1, json!("gone"), json!("Worker went silent"))]);
}

#[test]
fn the_newest_attempts_are_remembered_within_their_bound() {
    let (mut client, queue) = (client(), queue("bounded"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 100, "backoff": 0}));
    for n in 0..25 {
        fail(&mut client, &queue, "w", &json!({"error": format!("error {n}")}));
    }
    let told = attempts(&detail(&mut client, &id));
    assert_eq!((told.len(), &told[0].2, told[19].0), (20, &json!("error 5"), 25));
    let long = "x".repeat(60_000);
    fail(&mut client, &queue, "w", &json!({"error": long}));
    let job = about(&mut client, &id);
    assert_eq!(job["failedReason"].as_str().unwrap().len(), 8 << 10);
    assert_eq!(job["attempts"], 26);
}

#[test]
fn a_job_tells_what_webhooks_were_told_of_it() {
    let receiver = Receiver::always(Habit::Status(200));
    let server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let mut client = server.client();
    let add = json!({"url": receiver.url(), "events": ["job.waiting", "job.active"]});
    let hook = client.ok("AddWebhook", add)["data"]["webhookId"].clone();
    let other = json!({"url": receiver.url(), "events": [], "queue": "elsewhere"});
    client.ok("AddWebhook", other);
    let (first, custom) = (client.push("q", 1), "mine");
    client.push_with("q", 2, json!({"jobId": custom}));
    client.pull("q");
    for (id, events) in [(&*first, 2), (custom, 1)] {
        let webhooks = until("the posts", || {
            let webhooks = detail(&mut client, id)["webhooks"].clone();
            (webhooks["deliveries"].as_array()?.len() == events).then_some(webhooks)
        });
        assert_eq!((&webhooks["truncated"], webhooks["since"].is_number()), (&json!(false), true));
        for row in webhooks["deliveries"].as_array().unwrap() {
            assert_eq!((&row["webhookId"], &row["jobId"]), (&hook, &json!(id)));
            assert_eq!((&row["delivered"], &row["status"]), (&json!(true), &json!(200)));
        }
    }
}

/// A metric of the server.
fn figure(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
}

/// Fails every job that waits in a queue, as often as it is there.
fn fail_all(client: &mut Client, queue: &str, error: &str) {
    loop {
        let pulled = client.ok("PULLB", json!({"queue": queue, "count": 100}))["jobs"].clone();
        let jobs = pulled.as_array().unwrap();
        if jobs.is_empty() {
            return;
        }
        for job in jobs {
            client.ok("FAIL", json!({"id": job["id"], "error": error}));
        }
    }
}

#[test]
fn a_list_of_jobs_with_many_attempts_is_written_in_slices_of_their_records() {
    let mut server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let count = 60;
    let jobs = vec![json!({"data": 1, "maxAttempts": 21, "backoff": 0}); count];
    client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    fail_all(&mut client, "q", "why");
    let before = client.ok("Dlq", json!({"queue": "q", "filter": {"limit": 1000}}));
    client.ok("GetJobs", json!({"queue": "q", "limit": 1000}));
    // 22 records of each: a slice is measured by them, not by the jobs.
    let steps = figure(&mut client, "corq_turn_steps_max{shard=\"0\",command=\"GetJobs\"} ");
    assert!((500..700).contains(&steps), "{steps} steps");
    server.kill();
    server.start();
    client = server.client();
    let listed = client.ok("GetJobs", json!({"queue": "q", "limit": 1000}))["jobs"].clone();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), count);
    for job in listed {
        let numbers: Vec<u64> =
            errors(&job["timeline"]).iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=21).collect::<Vec<u64>>());
    }
    let after = client.ok("Dlq", json!({"queue": "q", "filter": {"limit": 1000}}));
    assert_eq!(before["entries"], after["entries"]);
}

#[test]
fn remembered_attempts_leave_the_log_to_the_jobs() {
    let start = Start::new().env("SHARDS", 1).env("SEGMENT_MB", 16).env("PAYLOAD_CACHE_MB", 4);
    let mut server = start.env("DATA_MAX_MB", 96).start();
    let mut client = server.client();
    let reason = "r".repeat(8000);
    for _ in 0..7 {
        let jobs = vec![json!({"data": 1, "maxAttempts": 3, "backoff": 86_400_000}); 1000];
        client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
        fail_all(&mut client, "q", &reason);
    }
    for _ in 0..2 {
        let bytes = figure(&mut client, "corq_attempts_remembered_bytes ");
        let entries = figure(&mut client, "corq_attempts_remembered ");
        assert!((11 << 20..13 << 20).contains(&bytes), "{bytes} bytes");
        assert!((1000..1600).contains(&entries), "{entries} attempts");
        assert_eq!(figure(&mut client, "corq_history_yielded_total "), 0);
        until("a push to be taken", || {
            let push = json!({"queue": "r", "data": "x".repeat(1 << 20)});
            (client.call("PUSH", push)["ok"] == true).then_some(())
        });
        server.kill();
        server.start();
        client = server.client();
    }
    client.ok("Obliterate", json!({"queue": "q"}));
    until("their attempts to be forgotten", || {
        (figure(&mut client, "corq_attempts_remembered_bytes ") == 0).then_some(())
    });
}
