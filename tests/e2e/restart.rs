//! Stopping, being killed, starting again. The fear: anything that a client was told and that is
//! not so afterwards.

use serde_json::{Value, json};

use crate::support::{Client, Server, Start, until};

fn everything(client: &mut Client) -> Value {
    let mut all = Vec::new();
    for queue in ["one", "two", "three", "four"] {
        let jobs = client.ok("GetJobs", json!({"queue": queue, "limit": 1000}))["jobs"].clone();
        let counts = client.ok("GetJobCounts", json!({"queue": queue}))["counts"].clone();
        let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"].clone();
        let paused = client.ok("IsPaused", json!({"queue": queue}))["paused"].clone();
        all.push(json!([jobs, counts, dead, paused]));
    }
    json!(all)
}

/// Jobs in every state that a restart keeps as it is.
fn fill(client: &mut Client) {
    for (n, queue) in ["one", "two", "three", "four"].into_iter().enumerate() {
        let options = json!({"maxAttempts": 1, "jobId": format!("dead-{n}")});
        let dead = client.push_with(queue, "dead", options);
        client.pull(queue);
        client.ok("FAIL", json!({"id": dead, "error": "why"}));
        let done = client.push(queue, "done");
        client.pull(queue);
        client.ok("ACK", json!({"id": done, "result": {"n": n}}));
        let jobs: Vec<Value> = (0..20)
            .map(|n| json!({"data": {"n": n}, "priority": n % 3, "tags": ["t"], "lifo": n == 7}))
            .collect();
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        client.push_with(queue, "later", json!({"delay": 3_600_000, "uniqueKey": "key"}));
        client.push_with(queue, "large", json!({"durable": true, "groupId": "g"}));
    }
    client.ok("Pause", json!({"queue": "four"}));
}

fn check_after_restart(server: &mut Server, before: &Value) {
    let mut client = server.client();
    let after = everything(&mut client);
    assert_eq!(after, *before);
    assert_eq!(client.state("dead-2"), "failed");
    // Ids and keys still hold, and the order is what it was.
    assert_eq!(client.push_with("one", 1, json!({"jobId": "dead-0"})), "dead-0");
    let later = client.push_with("one", 1, json!({"uniqueKey": "key"}));
    assert_eq!(client.state(&later), "delayed");
    let first = client.pull("one");
    assert_eq!((&first["priority"], &first["data"]), (&json!(2), &json!({"n": 2})));
}

#[test]
fn a_kill_loses_nothing_that_was_answered() {
    for durability in ["written", "synced"] {
        for shards in [1, 2] {
            let start = Start::new().env("DURABILITY", durability).env("SHARDS", shards);
            let mut server = start.start();
            let mut client = server.client();
            fill(&mut client);
            let before = everything(&mut client);
            server.kill();
            server.start();
            check_after_restart(&mut server, &before);
        }
    }
}

#[test]
fn a_stop_by_sigterm_ends_with_0_and_loses_nothing() {
    let mut server = Server::start_default();
    let mut client = server.client();
    fill(&mut client);
    let before = everything(&mut client);
    let status = server.terminate();
    assert_eq!(status.code(), Some(0), "{}", server.output());
    server.start();
    check_after_restart(&mut server, &before);
}

#[test]
fn a_stop_by_sigint_ends_with_0_even_with_workers_waiting() {
    let mut server = Server::start_default();
    let mut worker = server.client();
    worker.send("PULL", json!({"queue": "q", "timeout": 60_000})).unwrap();
    server.client().ok("Ping", json!({}));
    server.signal(rustix::process::Signal::INT);
    let status = server.wait_for_end();
    assert_eq!(status.code(), Some(0), "{}", server.output());
}

#[test]
fn many_restarts_change_nothing() {
    let mut server = Server::start_default();
    fill(&mut server.client());
    let before = everything(&mut server.client());
    for round in 0..4 {
        if round % 2 == 0 {
            server.kill();
        } else {
            assert_eq!(server.terminate().code(), Some(0));
        }
        server.start();
        assert_eq!(everything(&mut server.client()), before, "round {round}");
    }
}

#[test]
fn a_locked_job_keeps_its_lock_over_a_kill_and_can_be_acknowledged() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let id = client.push("q", 1);
    let (_, token) = client.pull_owned("q", 60_000);
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(client.state(&id), "active");
    client.refused("ACK", json!({"id": id}));
    client.ok("ACK", json!({"id": id, "token": token, "result": 5}));
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], 5);
}

#[test]
fn a_locked_job_whose_worker_is_gone_comes_back_when_the_lock_ends() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let id = client.push("q", 1);
    client.pull_owned("q", 500);
    server.kill();
    server.start();
    let mut client = server.client();
    let (job, _) = client.pull_owned("q", 60_000);
    assert_eq!(job["id"], json!(id));
}

#[test]
fn an_unlocked_active_job_waits_again_after_a_restart() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let id = client.push("q", 1);
    client.pull("q");
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(client.state(&id), "waiting");
    assert_eq!(client.pull("q")["attempts"], 0);
}

#[test]
fn what_falls_due_while_the_server_is_down_is_done_at_its_start() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let delayed = client.push_with("q", "delayed", json!({"delay": 100}));
    let mortal = client.push_with("r", "mortal", json!({"ttl": 100}));
    let retry = client.push_with("s", "retry", json!({"maxAttempts": 2, "backoff": 100}));
    client.pull("s");
    client.ok("FAIL", json!({"id": retry}));
    let due = client.ok("GetJob", json!({"id": retry}))["job"]["runAt"].as_u64().unwrap();
    server.kill();
    until("the times to pass", || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
        (now.as_millis() > u128::from(due)).then_some(())
    });
    server.start();
    let mut client = server.client();
    for (queue, id) in [("q", &delayed), ("s", &retry)] {
        let reply = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
        assert_eq!(reply["job"]["id"], json!(id));
    }
    until("the mortal to go", || (client.state(&mortal) == "unknown").then_some(()));
}

#[test]
fn a_dependent_is_woken_though_the_server_was_killed_between() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let parts: Vec<String> = (0..4).map(|n| client.push(&format!("part-{n}"), n)).collect();
    let id = client.push_with("whole", 1, json!({"dependsOn": parts}));
    for (n, part) in parts.iter().enumerate() {
        let mut client = server.client();
        client.pull(&format!("part-{n}"));
        client.ok("ACK", json!({"id": part}));
        server.kill();
        server.start();
    }
    let mut client = server.client();
    let reply = client.ok("PULL", json!({"queue": "whole", "timeout": 60_000}));
    assert_eq!(reply["job"]["id"], json!(id));
}

#[test]
fn limits_and_pause_survive_a_kill() {
    let mut server = Server::start_default();
    let mut client = server.client();
    client.ok("SetConcurrency", json!({"queue": "q", "limit": 1}));
    client.ok("Pause", json!({"queue": "p"}));
    for n in 0..3 {
        client.push("q", n);
    }
    server.kill();
    server.start();
    let mut client = server.client();
    let reply = client.ok("PULLB", json!({"queue": "q", "count": 3}));
    assert_eq!(reply["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(client.ok("IsPaused", json!({"queue": "p"}))["paused"], true);
}

#[test]
fn an_obliterated_queue_stays_gone_after_a_kill() {
    let mut server = Server::start_default();
    let mut client = server.client();
    fill(&mut client);
    client.ok("Obliterate", json!({"queue": "one"}));
    client.ok("Drain", json!({"queue": "two"}));
    let before = everything(&mut client);
    server.kill();
    server.start();
    assert_eq!(everything(&mut server.client()), before);
}

#[test]
fn dependencies_hold_over_a_kill_whatever_became_of_them() {
    let mut server = Server::start_default();
    let mut client = server.client();
    let options = json!({"jobId": "done", "removeOnComplete": true});
    client.push_with("parts", 1, options);
    client.pull("parts");
    client.ok("ACK", json!({"id": "done"}));
    // Both in one, or the first might be gone before the other comes.
    let orphan = "orphan".to_owned();
    let flow = json!([
        {"id": "mortal", "queue": "mortal", "input": {"data": 1, "ttl": 1000}},
        {"id": orphan, "queue": "whole", "input": {"data": 1, "dependsOn": ["mortal"]}}
    ]);
    client.ok("PUSHF", json!({"jobs": flow}));
    let open = client.push("parts", 1);
    let waiting = client.push_with("whole", 1, json!({"dependsOn": [open], "jobId": "w"}));
    server.kill();
    server.start();
    let mut client = server.client();
    let met = client.push_with("whole", 1, json!({"dependsOn": ["done"]}));
    assert_eq!(client.state(&met), "waiting", "what was completed is remembered");
    assert_eq!(client.state(&waiting), "waiting-children");
    until("the orphan to fail", || (client.state(&orphan) == "failed").then_some(()));
    let dead = client.ok("Dlq", json!({"queue": "whole"}))["jobs"].clone();
    assert_eq!(dead[0]["failedReason"], "Dependency removed: mortal");
    client.pull("parts");
    client.ok("ACK", json!({"id": open}));
    until("the dependent to wait", || (client.state(&waiting) == "waiting").then_some(()));
}

#[test]
fn a_series_goes_on_after_a_kill_with_payload_and_count() {
    let mut server = Server::start_default();
    let options =
        json!({"repeat": {"every": 50, "limit": 5}, "removeOnComplete": true, "tags": ["t"]});
    server.client().push_with("q", "payload", options);
    for run in 0..5 {
        let mut client = server.client();
        let job = client.ok("PULL", json!({"queue": "q", "timeout": 60_000}))["job"].clone();
        assert_eq!(job["data"], "payload", "run {run}");
        let whole = client.ok("GetJob", json!({"id": job["id"]}))["job"].clone();
        assert_eq!(whole["repeat"], json!({"every": 50, "limit": 5, "count": run}));
        assert_eq!(whole["tags"], json!(["t"]));
        client.ok("ACK", json!({"id": job["id"]}));
        server.kill();
        server.start();
    }
    assert_eq!(server.client().ok("Count", json!({"queue": "q"}))["count"], 0);
}

/// Which completed jobs are kept is a setting; what the log says of other jobs is none.
#[test]
fn settings_of_the_next_start_decide_over_completed_jobs_and_no_others() {
    for shards in [1, 2] {
        let mut server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client();
        let mut ids: Vec<String> = Vec::new();
        for n in 0..6 {
            ids.push(client.push("q", n));
            client.pull("q");
            client.ok("ACK", json!({"id": ids[n]}));
        }
        for id in &ids[..4] {
            client.ok("RetryCompleted", json!({"queue": "q", "id": id}));
        }
        client.pull("q");
        client.ok("FAIL", json!({"id": ids[0], "unrecoverable": true}));
        let held = client.ok("PULL", json!({"queue": "q", "owner": "w", "lockTtl": 60_000}));
        server.kill();
        server.start_with("COMPLETED_MAX", 1);
        let mut client = server.client();
        until("the retention", || (client.counted("q", "completed") == 1).then_some(()));
        let states: Vec<String> = ids.iter().map(|id| client.state(id)).collect();
        let expected = ["failed", "active", "waiting", "waiting", "unknown", "completed"];
        assert_eq!(states, expected);
        client.ok("ACK", json!({"id": ids[1], "token": held["token"]}));
        assert_eq!(client.counted("q", "completed"), 1);
        server.kill();
        // Jobs that were forgotten stay so.
        server.start_with("COMPLETED_MAX", 1000);
        let mut client = server.client();
        let states: Vec<String> = ids.iter().map(|id| client.state(id)).collect();
        let expected = ["failed", "completed", "waiting", "waiting", "unknown", "unknown"];
        assert_eq!(states, expected);
        let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let metric = "corq_unknown_job_records 0";
        assert!(text.as_str().unwrap().lines().any(|line| line == metric), "{text}");
    }
}
