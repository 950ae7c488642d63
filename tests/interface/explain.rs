//! Details of a job, and why it does not run.

use serde_json::{Value as Json, json};

use super::{client, queue, shared};
use crate::support::tool::{Tool, pair};
use crate::support::{Client, Start, until};

/// The answer of `Explain` about a job.
fn explain(client: &mut Client, id: &str) -> Json {
    client.ok("Explain", json!({"id": id}))["data"].clone()
}

/// The codes of its reasons.
fn codes(client: &mut Client, id: &str) -> Vec<String> {
    let told = explain(client, id);
    let reasons = told["reasons"].as_array().unwrap();
    reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// The reason of this code.
fn reason(client: &mut Client, id: &str, code: &str) -> Json {
    let told = explain(client, id);
    let found = told["reasons"].as_array().unwrap().iter().find(|reason| reason["code"] == code);
    let found = found.unwrap_or_else(|| panic!("no {code} in {told}")).clone();
    assert!(found["text"].as_str().is_some_and(|text| text.len() > 5), "{found}");
    found
}

#[test]
fn explain_says_that_nobody_pulls_and_that_the_next_pull_gets_one() {
    let (mut c, q) = (client(), queue("explain-next"));
    let id = c.push(&q, 1);
    let told = explain(&mut c, &id);
    assert_eq!(
        (&told["id"], &told["queue"], &told["state"]),
        (&json!(id), &json!(q), &json!("waiting"))
    );
    assert_eq!(told["estimatedStart"], Json::Null);
    assert_eq!(codes(&mut c, &id), ["no_worker"]);
    c.ok("Pause", json!({"queue": q}));
    assert_eq!(c.ok("PULL", json!({"queue": q}))["job"], Json::Null);
    c.ok("Resume", json!({"queue": q}));
    assert_eq!(codes(&mut c, &id), ["next"]);
    assert!(explain(&mut c, &id)["estimatedStart"].is_u64());
    assert_eq!(c.refused("Explain", json!({"id": "no-such-job"})), "Job not found");
}

#[test]
fn explain_says_that_the_queue_or_the_group_is_paused_or_held() {
    let (mut c, q) = (client(), queue("explain-paused"));
    let id = c.push_with(&q, 1, json!({"groupId": "g", "jobId": format!("{q}-job")}));
    assert_eq!(id, format!("{q}-job"));
    c.ok("Pause", json!({"queue": q}));
    assert!(codes(&mut c, &id).contains(&"queue_paused".to_owned()));
    c.ok("Resume", json!({"queue": q}));
    c.ok("PauseGroup", json!({"queue": q, "groupId": "g"}));
    assert_eq!(reason(&mut c, &id, "group_paused")["groupId"], "g");
    c.ok("ResumeGroup", json!({"queue": q, "groupId": "g"}));
    c.ok("RateLimitGroup", json!({"queue": q, "groupId": "g", "duration": 3_600_000}));
    let held = reason(&mut c, &id, "group_held");
    assert!(held["until"].as_u64() > Some(0) && held["wait"].as_u64() <= Some(3_600_000), "{held}");
    assert!(!codes(&mut c, &id).iter().any(|code| code.contains("paused")));
}

#[test]
fn explain_says_which_limit_is_used_up_and_by_which_jobs() {
    let (mut c, q) = (client(), queue("explain-limits"));
    c.ok("RateLimit", json!({"queue": q, "limit": 1, "duration": 86_400_000}));
    c.ok("SetConcurrency", json!({"queue": q, "limit": 1}));
    let first = c.push(&q, 1);
    let second = c.push(&q, 2);
    c.pull_owned(&q, 3_600_000);
    let rate = reason(&mut c, &second, "queue_rate");
    assert_eq!((&rate["max"], &rate["duration"]), (&json!(1), &json!(86_400_000)));
    assert!(rate["wait"].as_u64() > Some(1000), "{rate}");
    let full = reason(&mut c, &second, "queue_concurrency");
    assert_eq!(
        (&full["limit"], &full["active"], &full["jobs"]),
        (&json!(1), &json!(1), &json!([first]))
    );
    let q = queue("explain-group-limits");
    let of_group = json!({"queue": q, "groupId": "g", "concurrency": 1});
    c.ok("SetGroupConcurrency", of_group);
    c.ok(
        "SetGroupRateLimit",
        json!({"queue": q, "groupId": "g", "max": 1, "duration": 86_400_000}),
    );
    c.push_with(&q, 1, json!({"groupId": "g"}));
    let second = c.push_with(&q, 2, json!({"groupId": "g"}));
    let (taken, token) = c.pull_owned(&q, 3_600_000);
    let full = reason(&mut c, &second, "group_concurrency");
    assert_eq!(
        (&full["limit"], &full["active"], &full["groupId"]),
        (&json!(1), &json!(1), &json!("g"))
    );
    c.ok("ACK", json!({"id": taken["id"], "token": token}));
    let rate = reason(&mut c, &second, "group_rate");
    assert_eq!((&rate["max"], &rate["duration"]), (&json!(1), &json!(86_400_000)));
    assert!(rate["wait"].as_u64() > Some(1000), "{rate}");
}

#[test]
fn explain_says_who_has_a_job_and_until_when() {
    let (mut c, q) = (client(), queue("explain-leased"));
    let id = c.push_with(&q, 1, json!({"timeout": 7_200_000}));
    let pull = json!({"queue": q, "owner": "worker-17", "lockTtl": 3_600_000});
    assert_eq!(c.ok("PULL", pull)["job"]["id"], json!(id));
    let leased = reason(&mut c, &id, "leased");
    assert_eq!((&leased["worker"], &leased["locked"]), (&json!("worker-17"), &json!(true)));
    let at = |name: &str| leased[name].as_u64().unwrap_or_default();
    assert_eq!(at("until"), at("since") + 3_600_000);
    assert_eq!(at("timeoutAt"), at("since") + 7_200_000);
    assert_eq!(explain(&mut c, &id)["state"], "active");
}

#[test]
fn explain_says_why_a_job_is_delayed_and_when_its_life_ends() {
    let (mut c, q) = (client(), queue("explain-delayed"));
    let id = c.push_with(&q, 1, json!({"delay": 3_600_000, "ttl": 7_200_000}));
    let delayed = reason(&mut c, &id, "delayed");
    assert_eq!(delayed["cause"], "delay");
    let expires = reason(&mut c, &id, "ttl");
    let until = |reason: &Json| reason["until"].as_u64().unwrap();
    assert_eq!(until(&expires), until(&delayed) + 3_600_000);
    let failing = c.push_with(&q, 1, json!({"backoff": 3_600_000}));
    let (job, token) = c.pull_owned(&q, 3_600_000);
    assert_eq!(job["id"], json!(failing));
    c.ok("FAIL", json!({"id": failing, "token": token, "error": "no"}));
    let delayed = reason(&mut c, &failing, "delayed");
    assert_eq!((&delayed["cause"], &delayed["attempt"]), (&json!("backoff"), &json!(1)));
}

#[test]
fn explain_says_that_a_run_of_a_series_waits_for_its_time() {
    let (mut c, q) = (client(), queue("explain-series"));
    let push = |c: &mut Client, repeat: Json| c.push_with(&q, 1, json!({"repeat": repeat}));
    // The first run of an expression waits for its time, that of an interval does not.
    let yearly = push(&mut c, json!({"pattern": "@yearly", "tz": "Asia/Kathmandu"}));
    let first = reason(&mut c, &yearly, "delayed");
    assert_eq!(
        (&first["cause"], &first["pattern"], &first["tz"], first.get("every")),
        (&json!("schedule"), &json!("@yearly"), &json!("Asia/Kathmandu"), None)
    );
    assert!(first["text"].as_str().unwrap().contains("@yearly in Asia/Kathmandu"), "{first}");
    let hourly = push(&mut c, json!({"every": 3_600_000}));
    let unnamed = push(&mut c, json!({"pattern": "@daily", "immediately": true}));
    for id in [&hourly, &unnamed] {
        assert_eq!(c.pull(&q)["id"], json!(id));
        c.ok("ACK", json!({"id": id}));
    }
    let delayed = c.ok("GetJobs", json!({"queue": q, "state": "delayed"}))["jobs"].clone();
    let ids: Vec<&str> =
        delayed.as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    let told: Vec<Json> = ids.iter().map(|id| reason(&mut c, id, "delayed")).collect();
    assert!(told.iter().all(|it| it["cause"] == "schedule"), "{told:?}");
    let having = |name: &str, value: Json| told.iter().filter(|it| it[name] == value).count();
    assert_eq!((having("every", json!(3_600_000)), having("pattern", json!("@daily"))), (1, 1));
    assert_eq!(told.iter().find(|it| it["pattern"] == "@daily").unwrap()["tz"], Json::Null);
    // A job that was put off since waits for that.
    c.ok("ChangeDelay", json!({"id": yearly, "delay": 7_200_000}));
    assert_eq!(reason(&mut c, &yearly, "delayed")["cause"], "delay");
}

#[test]
fn explain_says_that_the_disk_is_full() {
    let small = Start::new().env("SHARDS", 1).env("SEGMENT_MB", 16).env("DATA_MAX_MB", 96);
    let server = small.start();
    let mut c = server.client();
    let id = c.push("full", 1);
    assert!(!codes(&mut c, &id).contains(&"disk_full".to_owned()));
    let large = "f".repeat(300_000);
    until("the disk is full", || {
        let reply = c.call("PUSH", json!({"queue": "full", "data": large}));
        (reply["code"] == "disk_full").then_some(())
    });
    assert!(codes(&mut c, &id).contains(&"disk_full".to_owned()));
}

#[test]
fn explain_names_the_jobs_that_a_job_waits_for_with_their_states_on_any_shard() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    // Queues of both shards are among so many.
    let parts: Vec<String> = (0..8).map(|n| c.push(&format!("part-{n}"), 1)).collect();
    c.pull("part-3");
    let whole = c.push_with("whole", 1, json!({"dependsOn": parts}));
    let waits = reason(&mut c, &whole, "dependencies");
    assert_eq!(waits["count"], 8);
    let jobs = waits["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 8);
    for (n, part) in parts.iter().enumerate() {
        let job = jobs.iter().find(|job| job["id"] == json!(part)).unwrap();
        let state = if n == 3 { "active" } else { "waiting" };
        assert_eq!((&job["state"], &job["queue"]), (&json!(state), &json!(format!("part-{n}"))));
    }
    assert_eq!(explain(&mut c, &whole)["state"], "waiting-children");
}

#[test]
fn explain_says_which_dependencies_are_in_the_dead_letter_queue() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    let parts: Vec<String> =
        (0..4).map(|n| c.push_with(&format!("part-{n}"), 1, json!({"maxAttempts": 1}))).collect();
    let whole = c.push_with("whole", 1, json!({"dependsOn": parts}));
    assert_eq!(reason(&mut c, &whole, "dependencies")["text"], "it waits for 4 other jobs");
    for n in [1, 2] {
        c.pull(&format!("part-{n}"));
        c.ok("FAIL", json!({"id": parts[n], "error": "no"}));
        let text = reason(&mut c, &whole, "dependencies")["text"].as_str().unwrap().to_owned();
        let more = if n == 1 { "" } else { ", and 1 more there" };
        let dead = parts[1..=n].iter().map(|id| format!("job {id}"));
        let expected = dead.map(|job| {
            format!("it waits for 4 other jobs, and depends on {job}, which is in the dead-letter queue{more}")
        });
        assert!(expected.clone().any(|expected| expected == text), "{text}");
    }
}

#[test]
fn explain_counts_the_jobs_before_one_and_estimates_its_start_from_what_the_queue_did() {
    let (mut c, q) = (client(), queue("explain-before"));
    let ids: Vec<String> = (0..30).map(|n| c.push(&q, n)).collect();
    assert_eq!(reason(&mut c, &ids[29], "jobs_before")["count"], 29);
    for id in &ids[..10] {
        let job = c.pull(&q);
        assert_eq!(job["id"], json!(id));
        c.ok("ACK", json!({"id": id}));
    }
    let before = reason(&mut c, &ids[29], "jobs_before");
    assert_eq!(
        (&before["count"], &before["atLeast"], &before["about"]),
        (&json!(19), &json!(false), &json!(19))
    );
    let told = explain(&mut c, &ids[29]);
    assert!(told["jobsPerSecond"].as_f64() > Some(0.0), "{told}");
    assert!(told["estimatedStart"].is_u64(), "{told}");
}

#[test]
fn explain_says_how_a_job_ended() {
    let (mut c, q) = (client(), queue("explain-ends"));
    let done = c.push(&q, 1);
    c.pull(&q);
    c.ok("ACK", json!({"id": done}));
    assert_eq!(codes(&mut c, &done), ["completed"]);
    let dead = c.push_with(&q, 1, json!({"maxAttempts": 1}));
    c.pull(&q);
    c.ok("FAIL", json!({"id": dead, "error": "no"}));
    assert_eq!(reason(&mut c, &dead, "failed")["reason"], "max_attempts_exceeded");
    c.ok(
        "SetDlqConfig",
        json!({"queue": q, "config": {"autoRetry": true, "autoRetryInterval": 3_600_000}}),
    );
    assert!(reason(&mut c, &dead, "failed")["nextRetryAt"].is_u64());
}

#[test]
fn a_jobs_detail_has_its_record_its_attempts_its_log_and_its_children() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    let flow = json!({"jobs": [
        {"id": "child-a", "queue": "parts", "input": {"data": 1, "parentId": "whole"}},
        {"id": "child-b", "queue": "pieces", "input": {"data": 2, "parentId": "whole"}},
        {"id": "whole", "queue": "wholes", "input": {"data": {"n": 3}, "childrenIds": ["child-a", "child-b"],
            "dependsOn": ["child-a", "child-b"]}},
    ]});
    c.ok("PUSHF", flow);
    c.pull("parts");
    c.ok("AddLog", json!({"id": "whole", "message": "first", "level": "warn"}));
    let detail = c.ok("GetJobDetail", json!({"id": "whole"}))["data"].clone();
    assert_eq!((&detail["job"]["id"], &detail["job"]["data"]), (&json!("whole"), &json!({"n": 3})));
    assert_eq!(
        (&detail["logs"][0]["message"], &detail["logs"][0]["level"]),
        (&json!("first"), &json!("warn"))
    );
    assert_eq!(detail["attempts"], json!([]));
    let children = &detail["children"];
    assert_eq!(
        (&children["count"], &children["completed"], &children["truncated"]),
        (&json!(2), &json!(0), &json!(false))
    );
    let of =
        |id: &str| children["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id).unwrap();
    assert_eq!(
        (&of("child-a")["state"], &of("child-a")["queue"]),
        (&json!("active"), &json!("parts"))
    );
    assert_eq!(
        (&of("child-b")["state"], &of("child-b")["parentId"]),
        (&json!("waiting"), &json!("whole"))
    );
    let (_, _) = c.pull_owned("pieces", 3_600_000);
    let detail = c.ok("GetJobDetail", json!({"id": "child-b"}))["data"].clone();
    let attempt = &detail["attempts"][0];
    assert_eq!(
        (&attempt["attempt"], &attempt["worker"], &attempt["endedAt"]),
        (&json!(1), &json!("test"), &Json::Null)
    );
    assert_eq!(detail["job"]["parentId"], "whole");
    assert_eq!(c.refused("GetJobDetail", json!({"id": "nothing"})), "Job not found");
}

#[test]
fn a_jobs_detail_tells_its_last_attempt_after_a_restart() {
    let mut server = Start::new().start();
    let mut c = server.client();
    let id = c.push_with("q", json!("x".repeat(1000)), json!({"maxAttempts": 1}));
    c.pull("q");
    c.ok("AddLog", json!({"id": id, "message": "line"}));
    c.ok("FAIL", json!({"id": id, "error": "it broke"}));
    server.kill();
    server.start();
    let mut c = server.client();
    let detail = c.ok("GetJobDetail", json!({"id": id}))["data"].clone();
    assert_eq!(detail["job"]["failedReason"], "it broke");
    assert_eq!(
        (&detail["attempts"][0]["error"], &detail["attempts"][0]["attempt"]),
        (&json!("it broke"), &json!(1))
    );
    assert_eq!(detail["logs"][0]["message"], "line");
    assert_eq!(detail["job"]["data"], json!("x".repeat(1000)));
}

#[test]
fn the_command_line_says_why_a_job_does_not_run() {
    let (mut c, q, tool) = (client(), queue("explain-cli"), Tool::of(shared()));
    let part = c.push(&q, 1);
    let id = c.push_with(&q, 2, json!({"dependsOn": [part]}));
    c.ok("Pause", json!({"queue": q}));
    let told = tool.ok(&["job", "explain", &id]);
    assert_eq!(pair(&told, "state"), "waiting-children");
    assert_eq!(pair(&told, "because"), format!("it waits for 1 other job: {part} (waiting)"));
    assert!(told.contains("its queue is paused"), "{told}");
    assert_eq!(tool.json(&["job", "explain", &id])["data"]["id"], json!(id));
    assert_eq!(tool.fails(1, &["job", "explain", "nothing"]), "Job not found");
}
