//! Asking about jobs and changing them. The fear: an answer about another job, or a change that
//! is applied in a state where it has no meaning.

use serde_json::{Value, json};

use crate::support::{Client, Start, until};
use crate::{client, queue};

#[test]
fn an_unknown_job_is_an_error_for_get_and_a_state_for_get_state() {
    let mut client = client();
    for id in ["nobody", "01890000-0000-7000-8000-000000000000"] {
        let text = client.refused("GetJob", json!({"id": id}));
        assert!(text.to_lowercase().contains("not found"), "{text}");
        let text = client.refused("GetJobByCustomId", json!({"customId": id}));
        assert!(text.to_lowercase().contains("not found"), "{text}");
        assert_eq!(client.state(id), "unknown");
    }
}

#[test]
fn a_listing_of_jobs_keeps_to_state_offset_and_limit() {
    let (mut client, queue) = (client(), queue("list"));
    for n in 0..10 {
        client.push(&queue, n);
    }
    client.push_with(&queue, "later", json!({"delay": 3_600_000}));
    let list = |client: &mut crate::Client, fields: Value| -> Vec<Value> {
        let mut all = json!({"queue": queue});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let jobs = client.ok("GetJobs", all)["jobs"].clone();
        jobs.as_array().unwrap().iter().map(|job| job["data"].clone()).collect()
    };
    assert_eq!(list(&mut client, json!({})).len(), 11);
    assert_eq!(list(&mut client, json!({"state": "delayed"})), [json!("later")]);
    let part = json!({"state": "waiting", "offset": 3, "limit": 4});
    assert_eq!(list(&mut client, part), [3, 4, 5, 6].map(Value::from));
    let both = json!({"state": ["waiting", "delayed"], "limit": 1000});
    assert_eq!(list(&mut client, both).len(), 11);
    assert_eq!(list(&mut client, json!({"limit": 0})).len(), 0);
    assert_eq!(list(&mut client, json!({"offset": 50})).len(), 0);
    let reply = client.ok("GetJobs", json!({"queue": queue, "limit": 1}));
    assert_eq!(reply["jobs"][0]["state"], "waiting");
}

#[test]
fn waiting_and_delayed_jobs_can_be_cancelled_and_no_others() {
    let (mut client, queue) = (client(), queue("cancel"));
    let active = client.push(&queue, 0);
    client.pull(&queue);
    for options in
        [json!({}), json!({"delay": 60_000}), json!({"priority": 5}), json!({"lifo": true})]
    {
        let id = client.push_with(&queue, 1, options);
        client.ok("Cancel", json!({"id": id}));
        assert_eq!(client.state(&id), "unknown");
    }
    for id in [active.as_str(), "nobody"] {
        let text = client.refused("Cancel", json!({"id": id}));
        assert_eq!(text, "Job not found or cannot be cancelled");
    }
    assert_eq!(client.pull(&queue), Value::Null);
}

#[test]
fn cancelling_in_the_middle_leaves_the_order_of_the_others() {
    let (mut client, queue) = (client(), queue("cancel-middle"));
    let ids: Vec<String> = (0..10).map(|n| client.push(&queue, n)).collect();
    for n in [0, 4, 5, 9] {
        client.ok("Cancel", json!({"id": ids[n]}));
    }
    for n in [1, 2, 3, 6, 7, 8] {
        assert_eq!(client.pull(&queue)["data"], n);
    }
    assert_eq!(client.pull(&queue), Value::Null);
}

#[test]
fn a_delayed_job_can_be_promoted_and_only_a_delayed_one() {
    let (mut client, queue) = (client(), queue("promote"));
    let id = client.push_with(&queue, 1, json!({"delay": 3_600_000}));
    assert_eq!(client.pull(&queue), Value::Null);
    client.ok("Promote", json!({"id": id}));
    client.refused("Promote", json!({"id": id}));
    assert_eq!(client.pull(&queue)["id"], json!(id));
}

#[test]
fn changing_a_priority_changes_the_order() {
    let (mut client, queue) = (client(), queue("change-priority"));
    let ids: Vec<String> = (0..3).map(|n| client.push(&queue, n)).collect();
    client.ok("ChangePriority", json!({"id": ids[2], "priority": 10}));
    client.ok("ChangePriority", json!({"id": ids[0], "priority": -1}));
    client.refused("ChangePriority", json!({"id": ids[0], "priority": 2_000_000}));
    for n in [2, 1, 0] {
        assert_eq!(client.pull(&queue)["data"], n);
    }
    client.refused("ChangePriority", json!({"id": ids[0], "priority": 1}));
}

#[test]
fn an_active_job_can_be_put_off_with_its_attempts_unchanged() {
    let (mut client, queue) = (client(), queue("move"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    client.ok("MoveToDelayed", json!({"id": id, "delay": 3_600_000}));
    assert_eq!(client.state(&id), "delayed");
    client.ok("Promote", json!({"id": id}));
    let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
    assert_eq!((&job["id"], &job["attempts"]), (&json!(id), &json!(0)));
    client.ok("ACK", json!({"id": id}));
    client.refused("MoveToDelayed", json!({"id": id, "delay": 10}));
}

#[test]
fn data_can_be_updated_until_the_job_is_done() {
    let (mut client, queue) = (client(), queue("update"));
    let id = client.push(&queue, "old");
    client.ok("Update", json!({"id": id, "data": {"new": true}}));
    assert_eq!(client.pull(&queue)["data"], json!({"new": true}));
    client.ok("ACK", json!({"id": id}));
    client.refused("Update", json!({"id": id, "data": 1}));
    client.refused("Update", json!({"id": "nobody", "data": 1}));
}

#[test]
fn progress_and_logs_are_kept() {
    let (mut client, queue) = (client(), queue("progress"));
    let id = client.push(&queue, 1);
    client.refused("Progress", json!({"id": id, "progress": 1}));
    client.pull(&queue);
    client.ok("Progress", json!({"id": id, "progress": 40, "message": "nearly"}));
    for wrong in [json!(-1), json!(101), json!("half")] {
        let text = client.refused("Progress", json!({"id": id, "progress": wrong}));
        assert!(text.contains("progress"), "{text}");
    }
    let reply = client.ok("GetProgress", json!({"id": id}));
    assert_eq!((&reply["progress"], &reply["message"]), (&json!(40), &json!("nearly")));
    client.ok("AddLog", json!({"id": id, "message": "one"}));
    client.ok("AddLog", json!({"id": id, "message": "two", "level": "warn"}));
    let logs = client.ok("GetLogs", json!({"id": id}))["data"]["logs"].clone();
    assert_eq!((&logs[0]["message"], &logs[0]["level"]), (&json!("one"), &json!("info")));
    assert_eq!((&logs[1]["message"], &logs[1]["level"]), (&json!("two"), &json!("warn")));
    client.refused("AddLog", json!({"id": id, "message": "x", "level": "loud"}));
}

#[test]
fn stats_count_what_happened() {
    let server = Start::new().start();
    let mut client = server.client();
    for n in 0..6 {
        client.push(&format!("q{n}"), n);
    }
    client.push_with("q0", 1, json!({"delay": 60_000}));
    for n in 0..3 {
        let id = client.pull(&format!("q{n}"))["id"].clone();
        if n < 2 {
            client.ok("ACK", json!({"id": id}));
        }
    }
    let stats = client.ok("Stats", json!({}))["stats"].clone();
    let numbers = ["queued", "processing", "delayed", "dlq", "completed"].map(|name| &stats[name]);
    assert_eq!(numbers, [3, 1, 1, 0, 2], "{stats}");
    assert!(stats["uptime"].as_u64().unwrap() < 600_000);
    let metrics = client.ok("Metrics", json!({}))["metrics"].clone();
    let totals = ["totalPushed", "totalPulled", "totalCompleted"].map(|name| &metrics[name]);
    assert_eq!(totals, [7, 3, 2], "{metrics}");
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    assert!(text.as_str().unwrap().contains("# TYPE"), "{text}");
}

#[test]
fn workers_register_and_leave() {
    let mut client = client();
    let fields = json!({"name": "w", "queues": ["a", "b"]});
    let data = client.ok("RegisterWorker", fields)["data"].clone();
    let id = data["workerId"].as_str().unwrap().to_owned();
    assert_eq!((&data["name"], &data["queues"]), (&json!("w"), &json!(["a", "b"])));
    let known = |client: &mut crate::Client| {
        let workers = client.ok("ListWorkers", json!({}))["data"]["workers"].clone();
        workers.as_array().unwrap().iter().any(|worker| worker["id"] == json!(id))
    };
    assert!(known(&mut client));
    assert_eq!(client.ok("Heartbeat", json!({"id": id}))["data"]["ok"], true);
    let reply = client.ok("UnregisterWorker", json!({"workerId": id}));
    assert_eq!(reply["data"]["removed"], true);
    assert!(!known(&mut client));
    let fields = json!({"name": "w", "queues": [], "workerId": "my-own"});
    assert_eq!(client.ok("RegisterWorker", fields)["data"]["workerId"], "my-own");
}

#[test]
fn zero_is_no_limit_of_a_command_that_acts() {
    let (mut client, queue) = (client(), queue("zero"));
    let jobs: Vec<Value> = (0..1500).map(|data| json!({"data": data, "delay": 600_000})).collect();
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    assert_eq!(client.ok("PromoteJobs", json!({"queue": queue, "count": 0}))["count"], 1500);
    let clean = json!({"queue": queue, "grace": 0, "state": "waiting", "limit": 0});
    assert_eq!(client.ok("Clean", clean)["count"], 1500);
    let fail = |client: &mut Client| {
        let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
        client.pull(&queue);
        client.ok("FAIL", json!({"id": id, "error": "no"}));
    };
    for fields in [json!({"count": 0}), json!({"filter": {"limit": 0}})] {
        (0..2).for_each(|_| fail(&mut client));
        let mut retry = fields.clone();
        retry["queue"] = json!(queue);
        assert_eq!(client.ok("RetryDlq", retry)["count"], 2, "{fields}");
        for _ in 0..2 {
            let id = client.pull(&queue)["id"].clone();
            client.ok("ACK", json!({"id": id}));
        }
    }
    assert_eq!(client.ok("RetryCompleted", json!({"queue": queue, "count": 0}))["count"], 4);
    let remove = json!({"action": "remove", "queue": queue, "filter": {}, "limit": 0});
    client.ok("Bulk", remove);
    until("the task to remove all", || (client.counted(&queue, "waiting") == 0).then_some(()));
}
