//! Automatic work of queues and schedules: rules of dead-letter queues and for silent workers, options of schedules.
//! The fear: a setting that is taken and does nothing, or is gone after a restart.

use serde_json::{Value, json};

use crate::support::{Client, Start, until};
use crate::{client, queue};

/// Buries so many jobs, each with its number as payload; their ids.
fn bury(client: &mut Client, queue: &str, count: u64) -> Vec<String> {
    let buried = (0..count).map(|n| {
        let id = client.push_with(queue, n, json!({"maxAttempts": 1}));
        client.pull(queue);
        client.ok("FAIL", json!({"id": id, "error": format!("why {n}")}));
        id
    });
    buried.collect()
}

fn entries(client: &mut Client, queue: &str, filter: &Value) -> Vec<Value> {
    let reply = client.ok("Dlq", json!({"queue": queue, "filter": filter}));
    let entries = reply["entries"].as_array().unwrap().clone();
    let jobs: Vec<&Value> = entries.iter().map(|entry| &entry["job"]).collect();
    assert_eq!(json!(jobs), reply["jobs"], "the same jobs in both");
    entries
}

fn cron(client: &mut Client, name: &str) -> Value {
    client.ok("CronGet", json!({"name": name}))["cron"].clone()
}

#[test]
fn settings_are_merged_shown_and_kept_over_a_kill() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let dlq = json!({
        "autoRetry": false, "autoRetryInterval": 3_600_000, "maxAutoRetries": 3, "maxAge": null,
        "maxEntries": null
    });
    let stall =
        json!({"enabled": true, "stallInterval": 30_000, "maxStalls": 3, "gracePeriod": 5_000});
    let shown = |client: &mut Client, queue: &str| {
        let dlq = client.ok("GetDlqConfig", json!({"queue": queue}))["config"].clone();
        (dlq, client.ok("GetStallConfig", json!({"queue": queue}))["config"].clone())
    };
    assert_eq!(shown(&mut client, "a"), (dlq.clone(), stall.clone()));
    let set = |client: &mut Client, command: &str, config: Value| {
        client.ok(command, json!({"queue": "a", "config": config}));
    };
    set(&mut client, "SetDlqConfig", json!({"maxAge": 7_200_000, "autoRetry": true}));
    set(&mut client, "SetDlqConfig", json!({"maxEntries": 5, "notASetting": 1}));
    set(&mut client, "SetStallConfig", json!({"maxStalls": 5}));
    set(&mut client, "SetStallConfig", json!({"stallInterval": 9_000}));
    let mut expected = (dlq.clone(), stall.clone());
    expected.0["autoRetry"] = true.into();
    expected.0["maxAge"] = 7_200_000.into();
    expected.0["maxEntries"] = 5.into();
    expected.1["maxStalls"] = 5.into();
    expected.1["stallInterval"] = 9_000.into();
    assert_eq!(shown(&mut client, "a"), expected);
    assert_eq!(shown(&mut client, "b"), (dlq.clone(), stall.clone()), "other queues are others");
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(shown(&mut client, "a"), expected);
    let listed = client.ok("ListQueues", json!({}))["queues"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "a setting makes a queue: {listed}");
    set(&mut client, "SetDlqConfig", json!({"maxAge": null, "maxEntries": null}));
    expected.0["maxAge"] = Value::Null;
    expected.0["maxEntries"] = Value::Null;
    assert_eq!(shown(&mut client, "a"), expected);
    client.ok("Obliterate", json!({"queue": "a"}));
    assert_eq!(shown(&mut client, "a"), (dlq, stall));
}

#[test]
fn dead_letters_are_shown_with_all_there_is_to_say_of_them() {
    let (mut client, queue) = (client(), queue("letters"));
    let ids = bury(&mut client, &queue, 3);
    let plain = client.ok("Dlq", json!({"queue": queue}));
    assert!(plain.get("entries").is_none(), "only for those who name a filter");
    for nothing in [Value::Null, json!({})] {
        let entries = entries(&mut client, &queue, &nothing);
        let shown: Vec<&str> =
            entries.iter().map(|entry| entry["job"]["id"].as_str().unwrap()).collect();
        assert_eq!(shown, ids);
        let first = &entries[0];
        let at = &first["job"]["failedAt"];
        assert_eq!((&first["enteredAt"], &first["error"]), (at, &json!("why 0")));
        assert_eq!(first["reason"], "max_attempts_exceeded");
        assert_eq!((&first["retryCount"], &first["lastRetryAt"]), (&json!(0), &Value::Null));
        assert_eq!((&first["nextRetryAt"], &first["expiresAt"]), (&Value::Null, &Value::Null));
        let attempt = &first["attempts"][0];
        assert_eq!((&attempt["attempt"], &attempt["failedAt"]), (&json!(1), at));
        assert_eq!((&attempt["error"], &attempt["reason"]), (&json!("why 0"), &first["reason"]));
    }
    let page = entries(&mut client, &queue, &json!({"offset": 1, "limit": 1}));
    assert_eq!((page.len(), &page[0]["job"]["id"]), (1, &json!(ids[1])));
    let counted = client.ok("Dlq", json!({"queue": queue, "count": 2, "filter": {}}));
    assert_eq!(counted["entries"].as_array().unwrap().len(), 2);
    assert_eq!(entries(&mut client, &queue, &json!({"reason": "stalled"})).len(), 0);
    let config = json!({"autoRetry": true, "autoRetryInterval": 86_400_000, "maxAge": 172_800_000});
    client.ok("SetDlqConfig", json!({"queue": queue, "config": config}));
    let ruled = entries(&mut client, &queue, &json!({"retriable": true}));
    let at = ruled[0]["enteredAt"].as_u64().unwrap();
    assert_eq!(ruled[0]["nextRetryAt"].as_u64(), Some(at + 86_400_000));
    assert_eq!(ruled[0]["expiresAt"].as_u64(), Some(at + 172_800_000));
    let stats = client.ok("GetDlqStats", json!({"queue": queue}))["data"]["stats"].clone();
    assert_eq!(
        (&stats["total"], &stats["pendingRetry"], &stats["expired"]),
        (&json!(3), &json!(3), &json!(0))
    );
    assert_eq!(stats["byReason"]["max_attempts_exceeded"], 3);
    assert_eq!(
        (&stats["byReason"]["worker_lost"], &stats["byQueue"][&queue]),
        (&json!(0), &json!(3))
    );
    assert_eq!(stats["oldestEntry"].as_u64(), Some(at));
    let none = client.ok("GetDlqStats", json!({"queue": "nobody-s"}))["data"]["stats"].clone();
    assert_eq!((&none["total"], &none["oldestEntry"]), (&json!(0), &Value::Null));
}

#[test]
fn dead_letters_of_one_kind_are_tried_anew() {
    let (mut client, queue) = (client(), queue("letters"));
    bury(&mut client, &queue, 2);
    let id = client.push(&queue, "no");
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "never", "unrecoverable": true}));
    let filter = json!({"reason": "explicit_fail"});
    let reply = client.ok("RetryDlq", json!({"queue": queue, "filter": filter}));
    assert_eq!((&reply["count"], client.state(&id)), (&json!(1), "waiting".to_owned()));
    let reply = client.ok("RetryDlq", json!({"queue": queue, "filter": {}, "count": 1}));
    assert_eq!((&reply["count"], client.counted(&queue, "failed")), (&json!(1), 1));
}

#[test]
fn a_dead_letter_queue_empties_itself_as_it_is_told_to() {
    let (mut client, queue) = (client(), queue("letters"));
    let ids = bury(&mut client, &queue, 6);
    client.ok("SetDlqConfig", json!({"queue": queue, "config": {"maxEntries": 2}}));
    let left: Vec<Value> = entries(&mut client, &queue, &json!({}));
    let left: Vec<&Value> = left.iter().map(|entry| &entry["job"]["id"]).collect();
    assert_eq!(json!(left), json!(ids[4..]), "the newest stay");
    client.ok("SetDlqConfig", json!({"queue": queue, "config": {"maxAge": 100}}));
    until("they are gone", || (client.counted(&queue, "failed") == 0).then_some(()));
    assert_eq!(client.state(&ids[5]), "unknown");
}

#[test]
fn dead_letters_are_tried_anew_by_themselves_as_often_as_the_rule_says() {
    let (mut client, queue) = (client(), queue("letters"));
    let config = json!({"autoRetry": true, "autoRetryInterval": 50, "maxAutoRetries": 2});
    client.ok("SetDlqConfig", json!({"queue": queue, "config": config}));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
    for _ in 0..3 {
        let pulled = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
        assert_eq!((&pulled["id"], &pulled["attempts"]), (&json!(id), &json!(0)));
        client.ok("FAIL", json!({"id": id, "error": "again"}));
    }
    let entry = entries(&mut client, &queue, &json!({}))[0].clone();
    assert_eq!((&entry["retryCount"], &entry["nextRetryAt"]), (&json!(2), &Value::Null));
    assert!(
        entry["lastRetryAt"].is_u64()
            && entry["lastRetryAt"].as_u64() <= entry["enteredAt"].as_u64()
    );
    let metrics = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line =
        metrics.as_str().unwrap().lines().find(|it| it.starts_with("corq_dlq_retried_total"));
    assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{line:?}");
}

#[test]
fn silent_workers_are_found_as_the_queue_says_with_and_without_locks() {
    let (mut client, queue) = (client(), queue("silence"));
    let config = json!({"stallInterval": 200, "gracePeriod": 0, "maxStalls": 2});
    client.ok("SetStallConfig", json!({"queue": queue, "config": config}));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 9}));
    for (owner, expected) in [(json!("me"), "waiting"), (Value::Null, "failed")] {
        client.ok("PULL", json!({"queue": queue, "owner": owner, "lockTtl": 86_400_000}));
        until(expected, || (client.state(&id) == expected).then_some(()));
    }
    let entry = entries(&mut client, &queue, &json!({"reason": "stalled"}))[0].clone();
    assert_eq!(entry["error"], "Job stalled 2 times");
}

#[test]
fn a_job_s_place_among_its_equals_changes_with_its_priority() {
    let (mut client, queue) = (client(), queue("places"));
    let ids: Vec<String> = (0..3).map(|n| client.push(&queue, n)).collect();
    client.ok("ChangePriority", json!({"id": ids[2], "priority": 0, "lifo": true}));
    assert_eq!(client.ok("GetJob", json!({"id": ids[2]}))["job"]["lifo"], true);
    assert_eq!(client.pull(&queue)["id"], json!(ids[2]));
    client.ok("ChangePriority", json!({"id": ids[0], "priority": 0, "lifo": true}));
    client.ok("ChangePriority", json!({"id": ids[0], "priority": 0, "lifo": false}));
    client.ok("ChangePriority", json!({"id": ids[1], "priority": 0, "lifo": true}));
    client.ok("ChangePriority", json!({"id": ids[1], "priority": 0}));
    assert_eq!(client.pull(&queue)["id"], json!(ids[1]), "what is not said stays");
    assert_eq!(client.pull(&queue)["id"], json!(ids[0]));
}

#[test]
fn a_schedule_shows_its_options_and_keeps_them_over_a_kill_and_with_other_shards() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let options = json!({
        "priority": 4, "uniqueKey": "k", "dedup": {"ttl": 5000, "extend": true, "replace": false},
        "immediately": true, "skipIfNoWorker": true, "skipMissedOnRestart": false,
        "preventOverlap": true,
        "jobOptions": {
            "maxAttempts": 7, "backoff": {"type": "fixed", "delay": 50}, "timeout": 900, "delay": 20,
            "stallTimeout": 800, "removeOnComplete": true, "removeOnFail": true
        }
    });
    let mut fields = json!({"name": "c", "queue": "q", "data": {"n": 1}, "schedule": "@yearly"});
    fields.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    client.ok("Cron", fields);
    let config = json!({"maxEntries": 7});
    for number in 0..6 {
        let queue = format!("ruled-{number}");
        client.ok("SetDlqConfig", json!({"queue": queue, "config": config}));
        client.ok("SetStallConfig", json!({"queue": queue, "config": {"maxStalls": 8}}));
        bury(&mut client, &queue, 1);
    }
    for shards in [2, 3, 1] {
        server.kill();
        server.start_with("SHARDS", shards);
        let mut client = server.client();
        let shown = until("the schedule", || {
            let listed = client.ok("CronList", json!({}))["crons"].clone();
            listed.as_array().unwrap().first().cloned()
        });
        for (name, value) in options.as_object().unwrap() {
            assert_eq!(&shown[name], value, "{name} with {shards} shards");
        }
        assert_eq!(cron(&mut client, "c")["jobOptions"], options["jobOptions"]);
        for number in 0..6 {
            let queue = json!({"queue": format!("ruled-{number}")});
            let config = client.ok("GetDlqConfig", queue.clone())["config"].clone();
            assert_eq!(config["maxEntries"], 7, "{shards} shards");
            let config = client.ok("GetStallConfig", queue.clone())["config"].clone();
            assert_eq!(config["maxStalls"], 8, "{shards} shards");
            let stats = client.ok("GetDlqStats", queue)["data"]["stats"].clone();
            assert_eq!(stats["byReason"]["max_attempts_exceeded"], 1, "{shards} shards");
        }
    }
}

#[test]
fn a_schedule_runs_at_once_if_it_is_told_to_and_its_jobs_are_as_it_says() {
    let (mut client, queue) = (client(), queue("crons"));
    client.ok(
        "Cron",
        json!({
            "name": queue, "queue": queue, "data": 1, "schedule": "@yearly", "immediately": true,
            "jobOptions": {"maxAttempts": 7, "backoff": 5, "removeOnComplete": true}
        }),
    );
    let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
    let full = client.ok("GetJob", json!({"id": job["id"]}))["job"].clone();
    assert_eq!((&full["maxAttempts"], &full["backoff"]), (&json!(7), &json!(5)));
    assert_eq!(full["removeOnComplete"], true);
    assert_eq!(cron(&mut client, &queue)["executions"], 1);
    client.ok("CronDelete", json!({"name": queue}));
}

#[test]
fn runs_of_a_schedule_that_must_not_overlap_wait_for_each_other() {
    let (mut client, queue) = (client(), queue("crons"));
    let fields = json!({
        "name": queue, "queue": queue, "data": 1, "repeatEvery": 20, "preventOverlap": true
    });
    client.ok("Cron", fields);
    let first = cron(&mut client, &queue)["nextRun"].as_u64().unwrap();
    until("ten times have come", || {
        let next = cron(&mut client, &queue)["nextRun"].as_u64()?;
        (next >= first + 200).then_some(())
    });
    assert_eq!(cron(&mut client, &queue)["executions"], 1);
    assert_eq!(client.counted(&queue, "waiting"), 1);
    for _ in 0..3 {
        let job = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"].clone();
        assert_eq!(
            job["runAt"].as_u64().map(|at| at.abs_diff(first) % 20),
            Some(0),
            "on its cadence"
        );
        assert_eq!(client.counted(&queue, "active"), 1);
        client.ok("ACK", json!({"id": job["id"]}));
    }
    client.ok("CronDelete", json!({"name": queue}));
}

#[test]
fn a_schedule_that_wants_a_worker_runs_once_one_has_pulled_and_registrations_are_none() {
    let mut client = client();
    // Queues lie on either shard.
    for _ in 0..4 {
        let queue = queue("crons");
        let fields = json!({
            "name": queue, "queue": queue, "data": 1, "repeatEvery": 20, "skipIfNoWorker": true
        });
        client.ok("Cron", fields);
        let mut other = crate::client();
        other.ok("RegisterWorker", json!({"name": "w", "queues": [queue]}));
        let first = cron(&mut client, &queue)["nextRun"].as_u64().unwrap();
        until("five times have come", || {
            let next = cron(&mut client, &queue)["nextRun"].as_u64()?;
            (next >= first + 100).then_some(())
        });
        assert_eq!(cron(&mut client, &queue)["executions"], 0);
        other.ok("PULL", json!({"queue": queue}));
        until("a run", || (client.counted(&queue, "waiting") > 0).then_some(()));
        client.ok("CronDelete", json!({"name": queue}));
    }
}

/// Between the search through a dead-letter queue and its answer, jobs may leave it.
#[test]
fn dead_letters_that_leave_while_they_are_searched_are_left_out() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let jobs: Vec<Value> = (0..1000).map(|n| json!({"data": n, "maxAttempts": 1})).collect();
    let ids = client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}))["ids"].clone();
    client.ok("PULLB", json!({"queue": "q", "count": 1000}));
    let ids: Vec<String> =
        ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect();
    // A thousand are two slices of a search; what comes behind it is carried out between them.
    for ids in ids.chunks(40) {
        for id in ids {
            client.send("FAIL", json!({"id": id, "error": "why"})).unwrap();
        }
        for _ in ids {
            assert_eq!(client.recv().unwrap()["ok"], true);
        }
    }
    for (round, id) in ids.iter().enumerate().take(5) {
        let filter = json!({"reason": "max_attempts_exceeded"});
        let search = client.send("Dlq", json!({"queue": "q", "count": 1000, "filter": filter}));
        let retry = client.send("RetryDlq", json!({"queue": "q", "jobId": id}));
        let (search, retry) = (search.unwrap(), retry.unwrap());
        for _ in 0..2 {
            let reply = client.recv().unwrap();
            assert_eq!(reply["ok"], true, "{reply}");
            if reply["reqId"] == json!(search) {
                let entries = reply["entries"].as_array().unwrap();
                assert_eq!(entries.len(), reply["jobs"].as_array().unwrap().len());
                assert!(entries.len() >= 999 - round, "{}", entries.len());
            } else {
                assert_eq!((&reply["reqId"], &reply["count"]), (&json!(retry), &json!(1)));
            }
        }
    }
}
