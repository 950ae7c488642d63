//! Changes and notes of single jobs. The fear: a change that loses another part of the job, or one that a kill takes
//! back.

use serde_json::{Value, json};

use crate::support::{Client, Server};
use crate::{client, queue};

fn job(client: &mut Client, id: &str) -> Value {
    client.ok("GetJob", json!({"id": id}))["job"].clone()
}

#[test]
fn an_update_leaves_all_but_the_data_and_survives_a_kill() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let options = json!({
        "jobId": "own", "priority": 3, "tags": ["a", "b"], "groupId": "g", "uniqueKey": "u",
        "ttl": 3_600_000, "timeout": 5000, "delay": 1_800_000, "maxAttempts": 7, "backoff": 50,
    });
    let id = client.push_with("q", "old", options);
    let mut before = job(&mut client, &id);
    client.ok("ChangePriority", json!({"id": id, "priority": 4}));
    client.ok("Update", json!({"id": id, "data": {"new": [1, 2]}}));
    let after = job(&mut client, &id);
    before["data"] = json!({"new": [1, 2]});
    before["priority"] = json!(4);
    assert_eq!(after, before);
    server.kill();
    server.start();
    assert_eq!(job(&mut server.client(), &id), before);
}

#[test]
fn every_change_survives_a_kill() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let promoted = client.push_with("q", "promoted", json!({"delay": 3_600_000}));
    client.ok("Promote", json!({"id": promoted}));
    let off = client.push_with("q", "off", json!({"priority": 9}));
    assert_eq!(client.pull("q")["id"], json!(off));
    client.ok("MoveToDelayed", json!({"id": off, "delay": 3_600_000}));
    let discarded = client.push("q", "discarded");
    client.ok("Discard", json!({"id": discarded}));
    let cancelled = client.push("q", "cancelled");
    client.ok("Cancel", json!({"id": cancelled}));
    let before = client.ok("GetJobs", json!({"queue": "q"}))["jobs"].clone();
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(client.ok("GetJobs", json!({"queue": "q"}))["jobs"], before);
    let states = [&promoted, &off, &discarded, &cancelled].map(|id| client.state(id));
    assert_eq!(states, ["waiting", "delayed", "failed", "unknown"]);
}

#[test]
fn progress_and_logs_survive_a_kill_and_a_retry() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let id = client.push_with("q", 1, json!({"maxAttempts": 2, "backoff": 0}));
    client.pull_owned("q", 60_000);
    client.ok("Progress", json!({"id": id, "progress": 12.5, "message": "on"}));
    for line in 0..103 {
        client.ok("AddLog", json!({"id": id, "message": format!("line {line}")}));
    }
    let told = |client: &mut Client| {
        let reply = client.ok("GetProgress", json!({"id": id}));
        let logs = client.ok("GetLogs", json!({"id": id}))["data"]["logs"].clone();
        let job = job(client, &id);
        assert_eq!((&job["progress"], &job["progressMessage"]), (&json!(12.5), &json!("on")));
        assert!(logs[0]["timestamp"].as_u64().unwrap() >= job["createdAt"].as_u64().unwrap());
        (reply["progress"].clone(), reply["message"].clone(), logs)
    };
    let before = told(&mut client);
    assert_eq!((&before.0, &before.1), (&json!(12.5), &json!("on")));
    assert_eq!(
        (before.2.as_array().unwrap().len(), &before.2[0]["message"]),
        (100, &json!("line 3"))
    );
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(told(&mut client), before);
    let fields = json!({"id": id, "token": "guess"});
    client.refused("FAIL", fields);
    client.ok("Progress", json!({"id": id, "progress": 100}));
    let reply = client.ok("GetProgress", json!({"id": id}));
    assert_eq!((&reply["progress"], &reply["message"]), (&json!(100), &Value::Null));
}

#[test]
fn a_delivered_job_shows_its_progress() {
    let (mut client, queue) = (client(), queue("progress-again"));
    let id = client.push_with(&queue, 1, json!({"backoff": 0}));
    assert_eq!(client.pull(&queue)["progress"], 0);
    client.ok("Progress", json!({"id": id, "progress": 62.5}));
    client.ok("FAIL", json!({"id": id}));
    assert_eq!(client.pull(&queue)["progress"], 62.5);
}

#[test]
fn an_unrecoverable_failure_goes_straight_to_the_dead_letter_queue() {
    let (mut client, queue) = (client(), queue("unrecoverable"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 10}));
    client.pull(&queue);
    let fields = json!({
        "id": id, "error": "bad", "unrecoverable": true, "stack": ["bad", "at x", "at y"]
    });
    client.ok("FAIL", fields);
    let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"][0].clone();
    assert_eq!((&dead["id"], &dead["failedReason"]), (&json!(id), &json!("bad")));
    assert_eq!(dead["stacktrace"], json!(["bad", "at x", "at y"]));
    assert_eq!(dead["attempts"], 1);
}

#[test]
fn a_failure_without_a_stack_or_an_error_is_shown_all_the_same() {
    let (mut client, queue) = (client(), queue("no-stack"));
    for fields in [json!({}), json!({"stack": ["only this"]}), json!({"stack": []})] {
        let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
        client.pull(&queue);
        let mut all = json!({"id": id});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        client.ok("FAIL", all);
        let expected = if fields["stack"][0].is_string() { "only this" } else { "" };
        assert_eq!(job(&mut client, &id)["stacktrace"], json!([expected]));
    }
}

#[test]
fn changes_find_their_job_by_its_custom_id_from_every_connection() {
    let queue = queue("by-name");
    let own = format!("order-{queue}");
    client().push_with(&queue, 1, json!({"jobId": own, "delay": 3_600_000}));
    for round in 0..6 {
        let mut client = client();
        client.ok("Update", json!({"id": own, "data": round}));
        client.ok("ChangePriority", json!({"id": own, "priority": round}));
        client.ok("AddLog", json!({"id": own, "message": "x"}));
        let job = client.ok("GetJobByCustomId", json!({"customId": own}))["job"].clone();
        assert_eq!((&job["data"], &job["priority"]), (&json!(round), &json!(round)));
    }
    client().ok("Promote", json!({"id": own}));
    let mut worker = client();
    worker.pull(&queue);
    let states = ["active", "completed"];
    for state in states {
        let job = client().ok("GetJobByCustomId", json!({"customId": own}))["job"].clone();
        assert_eq!((&job["state"], &job["id"]), (&json!(state), &json!(own)));
        if state == "active" {
            client().ok("Progress", json!({"id": own, "progress": 1}));
            client().ok("ACK", json!({"id": own}));
        }
    }
}

#[test]
fn what_is_refused_says_why() {
    let (mut client, queue) = (client(), queue("refusals"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    client.ok("ACK", json!({"id": id}));
    let gone = "01890000-0000-7000-8000-000000000000";
    let cases = [
        ("Cancel", json!({}), "Job not found or cannot be cancelled"),
        ("Update", json!({"data": 1}), "Job not found or already completed or failed"),
        ("ChangePriority", json!({"priority": 1}), "Job not found or not waiting or delayed"),
        ("Promote", json!({}), "Job not found or not delayed"),
        ("MoveToDelayed", json!({"delay": 1}), "Job not found or not active"),
        ("Progress", json!({"progress": 1}), "Job not found or not active"),
    ];
    for (cmd, fields, text) in cases {
        for id in [id.as_str(), gone, "nobody"] {
            let mut all = json!({"id": id});
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            assert_eq!(client.refused(cmd, all), text, "{cmd} {id}");
        }
    }
    for cmd in ["Discard", "GetProgress", "GetLogs", "WaitJob"] {
        for id in [gone, "nobody"] {
            assert_eq!(client.refused(cmd, json!({"id": id})), "Job not found", "{cmd}");
        }
    }
    assert_eq!(client.refused("AddLog", json!({"id": gone, "message": "x"})), "Job not found");
}

#[test]
fn a_long_queue_is_listed_page_by_page_while_others_are_served() {
    const JOBS: usize = 30_000;
    let (mut client, mut other, queue, beside) =
        (client(), crate::client(), queue("long"), queue("beside"));
    let jobs = vec![json!({"data": 1}); 5000];
    let mut ids = Vec::new();
    for _ in 0..JOBS / 5000 {
        let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        ids.extend(reply["ids"].as_array().unwrap().clone());
    }
    let last = client.push_with(&queue, "last", json!({"delay": 3_600_000}));
    // All of the queue has to be looked through for each of these.
    for _ in 0..20 {
        client.send("GetJobs", json!({"queue": queue, "state": ["delayed", "failed"]})).unwrap();
    }
    let id = other.push(&beside, 1);
    assert_eq!(other.state(&id), "waiting");
    for _ in 0..20 {
        let jobs = client.recv().unwrap()["jobs"].clone();
        assert_eq!((jobs.as_array().unwrap().len(), &jobs[0]["id"]), (1, &json!(last)));
    }
    for offset in [0, 12_345, JOBS - 3] {
        let page = json!({"queue": queue, "state": "waiting", "offset": offset, "limit": 3});
        let jobs = client.ok("GetJobs", page)["jobs"].clone();
        let found: Vec<&Value> = jobs.as_array().unwrap().iter().map(|job| &job["id"]).collect();
        assert_eq!(found, ids[offset..offset + 3].iter().collect::<Vec<_>>());
    }
}

#[test]
fn urgent_and_held_up_jobs_are_listed_by_words_of_their_own() {
    let (mut client, queue) = (client(), queue("words"));
    let plain = client.push(&queue, 1);
    let urgent = client.push_with(&queue, 2, json!({"priority": 5}));
    client.push_with(&queue, 3, json!({"priority": -5}));
    client.push_with(&queue, 4, json!({"priority": 5, "delay": 3_600_000}));
    let mut listed = |state: Value| -> Vec<Value> {
        let jobs = client.ok("GetJobs", json!({"queue": queue, "state": state}))["jobs"].clone();
        jobs.as_array().unwrap().iter().map(|job| job["data"].clone()).collect()
    };
    assert_eq!(listed(json!("prioritized")), [json!(2)]);
    assert_eq!(listed(json!(["prioritized", "waiting"])), [json!(1), json!(2), json!(3)]);
    assert_eq!(listed(json!(["prioritized", "delayed"])), [json!(2), json!(4)]);
    assert!(listed(json!("paused")).is_empty());
    crate::client().ok("Pause", json!({"queue": queue}));
    assert_eq!(listed(json!("paused")), [json!(1), json!(2), json!(3)]);
    assert_eq!(listed(json!(["paused", "prioritized"])), [json!(1), json!(2), json!(3)]);
    for id in [plain, urgent] {
        assert_eq!(client.state(&id), "waiting");
    }
}
