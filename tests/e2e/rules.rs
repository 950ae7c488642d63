//! Rules that a job brings along, for its retries, stalls, logs, keys. The fear: a rule that is taken and
//! not kept, or that is gone after a restart.

use serde_json::{Value, json};

use crate::support::{Client, Start, until};
use crate::{client, queue};

fn job(client: &mut Client, id: &Value) -> Value {
    client.ok("GetJob", json!({"id": id}))["job"].clone()
}

/// Fails the next attempt and looks how long it waits then: so many milliseconds, and the last of its queue may wait longer.
fn waits(client: &mut Client, queue: &str, least: u64, most: u64) {
    let pulled = until("an attempt", || Some(client.pull(queue)).filter(Value::is_object));
    let before = client.time();
    client.ok("FAIL", json!({"id": pulled["id"], "error": "no"}));
    // The attempt failed at some time between the two.
    let after = client.time();
    let run_at = job(client, &pulled["id"])["runAt"].as_u64().unwrap();
    let range = before + least..=after + most;
    assert!(range.contains(&run_at), "{run_at} is not within {range:?}");
    client.ok("Promote", json!({"id": pulled["id"]}));
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}

#[test]
fn a_fixed_backoff_stays_and_an_exponential_one_has_its_ceiling() {
    let server = Start::new().env("SHARDS", 1).start();
    let (mut client, queue) = (server.client(), queue("growth"));
    let fixed = json!({"maxAttempts": 9, "backoff": {"type": "fixed", "delay": 60_000}});
    let id = client.push_with(&queue, 1, fixed);
    let config = job(&mut client, &json!(id))["backoffConfig"].clone();
    assert_eq!(config, json!({"type": "fixed", "delay": 60_000}));
    for _ in 0..3 {
        waits(&mut client, &queue, 60_000, 60_000);
    }
    client.ok("Obliterate", json!({"queue": queue}));
    let capped = json!({"type": "exponential", "delay": 60_000, "maxDelay": 100_000});
    client.push_with(&queue, 1, json!({"maxAttempts": 9, "backoff": capped}));
    // Chance adds a fifth at most.
    waits(&mut client, &queue, 60_000, 72_000);
    waits(&mut client, &queue, 100_000, 100_000);
    waits(&mut client, &queue, 100_000, 100_000);
}

#[test]
fn a_job_stalls_after_its_own_time_with_or_without_a_lock() {
    let (mut client, queue) = (client(), queue("stall"));
    for owner in [Value::Null, json!("me")] {
        client.push_with(&queue, 1, json!({"stallTimeout": 150}));
        let pull = json!({"queue": queue, "owner": owner, "lockTtl": 3_600_000});
        let id = client.ok("PULL", pull)["job"]["id"].clone();
        until("the stall", || (job(&mut client, &id)["stallCount"] == 1).then_some(()));
        assert_eq!(job(&mut client, &id)["state"], "waiting");
        client.ok("Cancel", json!({"id": id}));
    }
}

fn lines(client: &mut Client, id: &str, range: Value) -> Vec<String> {
    let mut fields = range;
    fields["id"] = id.into();
    let logs = client.ok("GetLogs", fields)["data"]["logs"].clone();
    let logs = logs.as_array().unwrap().clone();
    logs.iter().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_job_keeps_as_many_lines_as_it_says_and_they_are_read_by_range_and_cleared() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let kept = client.push_with("q", 1, json!({"keepLogs": 3}));
    let none = client.push_with("q", 1, json!({"keepLogs": 0}));
    let all = client.push_with("q", 1, json!({"keepLogs": 1_000_000}));
    for id in [&kept, &none, &all] {
        for n in 0..5 {
            client.ok("AddLog", json!({"id": id, "message": n.to_string()}));
        }
    }
    client.ok("ClearLogs", json!({"id": all, "keepLogs": 4}));
    for _ in 0..2 {
        assert_eq!(lines(&mut client, &kept, json!({})), ["2", "3", "4"]);
        assert_eq!(lines(&mut client, &none, json!({})), [""; 0]);
        assert_eq!(lines(&mut client, &all, json!({})), ["1", "2", "3", "4"]);
        assert_eq!(lines(&mut client, &all, json!({"start": 1, "end": 2})), ["2", "3"]);
        assert_eq!(lines(&mut client, &all, json!({"start": 3, "end": -1})), ["4"]);
        assert_eq!(lines(&mut client, &all, json!({"start": 9})), [""; 0]);
        assert_eq!(lines(&mut client, &all, json!({"start": 2, "end": 1})), [""; 0]);
        server.kill();
        server.start();
        client = server.client();
    }
    client.ok("ClearLogs", json!({"id": all}));
    assert_eq!(lines(&mut client, &all, json!({})), [""; 0]);
    assert_eq!(client.refused("ClearLogs", json!({"id": "nobody"})), "Job not found");
}

#[test]
fn a_stack_has_no_more_lines_than_its_job_lets_it() {
    let (mut client, queue) = (client(), queue("stack"));
    let stack = ["one", &"two".repeat(100), "three"];
    for (limit, lines) in [(Some(2), &stack[..2]), (Some(9), &stack[..]), (None, &stack[..])] {
        let id = client.push_with(&queue, 1, json!({"maxAttempts": 1, "stackTraceLimit": limit}));
        let pulled = client.pull(&queue);
        assert_eq!(pulled.get("stackTraceLimit").and_then(Value::as_u64), limit);
        client.ok("FAIL", json!({"id": id, "error": "no", "stack": stack}));
        assert_eq!(job(&mut client, &json!(id))["stacktrace"], json!(lines));
    }
    client.push_with(&queue, 1, json!({"maxAttempts": 1, "stackTraceLimit": 0}));
    let id = client.pull(&queue)["id"].clone();
    client.ok("FAIL", json!({"id": id, "error": "no", "stack": stack}));
    assert_eq!(job(&mut client, &id)["stacktrace"], json!(["no"]));
}

#[test]
fn a_payload_stays_within_its_own_limit_when_it_is_changed() {
    let (mut client, queue) = (client(), queue("size"));
    let id = client.push_with(&queue, "small", json!({"sizeLimit": 10}));
    let text = client.refused("Update", json!({"id": id, "data": "x".repeat(10)}));
    assert_eq!(text, "data must be at most 10 bytes, as sizeLimit says");
    client.ok("Update", json!({"id": id, "data": "x".repeat(9)}));
    assert_eq!(job(&mut client, &json!(id))["data"], "x".repeat(9));
}

#[test]
fn a_job_is_as_old_as_its_client_says() {
    let (mut client, queue) = (client(), queue("made"));
    let made = now_ms() - 50_000;
    let id = client.push_with(&queue, 1, json!({"timestamp": made, "delay": 3_600_000}));
    let record = job(&mut client, &json!(id));
    assert_eq!(
        (record["createdAt"].as_u64(), record["state"].as_str()),
        (Some(made), Some("delayed"))
    );
    assert_eq!(record["runAt"], made + 3_600_000);
    let due = client.push_with(&queue, 1, json!({"timestamp": made, "delay": 20_000}));
    assert_eq!(client.state(&due), "waiting");
    assert_eq!(client.pull(&queue)["createdAt"], made);
    // The job's life counts from its timestamp, too.
    let old = client.push_with(&queue, 1, json!({"timestamp": made, "ttl": 50_100}));
    until("the end of its life", || (client.state(&old) == "unknown").then_some(()));
}

#[test]
fn a_key_with_a_time_is_free_after_it_and_a_second_push_may_extend_it() {
    let (mut client, queue) = (client(), queue("throttle"));
    let push = |client: &mut Client, dedup: Value| {
        client.push_with(&queue, 1, json!({"uniqueKey": "k", "dedup": dedup}))
    };
    let holder = json!({"queue": queue, "deduplicationId": "k"});
    // Before its time is over it is extended; that of another key is not.
    let soon = |key: &str, dedup: Value| {
        ("PUSH", json!({"queue": queue, "data": 1, "uniqueKey": key, "dedup": dedup}))
    };
    let [first, again, extended, other] = client.at_once([
        soon("k", json!({"ttl": 500})),
        soon("k", Value::Null),
        soon("k", json!({"ttl": 3_600_000, "extend": true})),
        soon("other", json!({"ttl": 500})),
    ]);
    assert_eq!((&again["id"], &extended["id"]), (&first["id"], &first["id"]));
    let first = first["id"].as_str().unwrap().to_owned();
    let free = json!({"queue": queue, "deduplicationId": "other"});
    until("the end of the other", || {
        let holder = client.ok("GetDeduplicationJobId", free.clone())["data"]["jobId"].clone();
        (holder != other["id"]).then_some(())
    });
    assert_eq!(push(&mut client, Value::Null), first);
    assert_eq!(client.ok("GetDeduplicationJobId", holder.clone())["data"]["jobId"], first.as_str());
    assert_eq!(client.state(&first), "waiting");
    client.ok("Cancel", json!({"id": other["id"]}));
    assert_eq!(client.ok("RemoveDeduplicationKey", holder.clone())["data"]["count"], 1);
    assert_eq!(client.ok("RemoveDeduplicationKey", holder.clone())["data"]["count"], 0);
    let second = push(&mut client, json!({"ttl": 50}));
    assert_ne!(second, first);
    let third = until("the end of the time", || {
        Some(push(&mut client, json!({}))).filter(|id| *id != second)
    });
    assert_eq!(client.ok("GetDeduplicationJobId", holder.clone())["data"]["jobId"], third.as_str());
    assert_eq!(client.counted(&queue, "waiting"), 3);
    let removed = client.ok("RemoveJobDeduplicationKey", json!({"id": third}));
    assert_eq!(removed["data"]["removed"], true);
    let removed = client.ok("RemoveJobDeduplicationKey", json!({"id": third}));
    assert_eq!(removed["data"]["removed"], false);
    assert_eq!(client.ok("GetDeduplicationJobId", holder)["data"]["jobId"], Value::Null);
}

#[test]
fn a_push_may_take_the_place_of_the_job_that_holds_its_key() {
    let (mut client, queue) = (client(), queue("replace"));
    let options =
        |delay: u64| json!({"uniqueKey": "k", "delay": delay, "dedup": {"replace": true}});
    let first = client.push_with(&queue, 1, options(60_000));
    let second = client.push_with(&queue, 2, options(0));
    assert_eq!((client.state(&first), client.state(&second)), ("unknown".into(), "waiting".into()));
    // A job that a worker has goes on, and the new one holds the key.
    assert_eq!(client.pull(&queue)["id"], second.as_str());
    let third = client.push_with(&queue, 3, options(60_000));
    assert_eq!((client.state(&second), client.state(&third)), ("active".into(), "delayed".into()));
    assert_eq!(client.push_with(&queue, 4, json!({"uniqueKey": "k"})), third);
    client.ok("ACK", json!({"id": second}));
    assert_eq!(client.push_with(&queue, 4, json!({"uniqueKey": "k"})), third);
    // A job that others wait for stays.
    let other = client.push_with(&queue, 5, json!({"dependsOn": [third]}));
    assert_eq!(client.push_with(&queue, 6, options(0)), third);
    assert_eq!(client.state(&other), "waiting-children");
}

#[test]
fn rules_and_keys_outlive_a_kill() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let rules = json!({
        "backoff": {"type": "fixed", "delay": 5, "maxDelay": 9}, "stallTimeout": 60_000, "keepLogs": 2,
        "stackTraceLimit": 3, "sizeLimit": 1000, "timestamp": 1_700_000_000_000_u64, "uniqueKey": "k",
        "dedup": {"ttl": 3_600_000, "extend": true, "replace": true}, "name": "all of them",
    });
    let id = client.push_with("q", 1, rules);
    client.push_with("q", 2, json!({"uniqueKey": "freed", "debounceTtl": 5}));
    client.ok("RemoveDeduplicationKey", json!({"queue": "q", "deduplicationId": "freed"}));
    let before = job(&mut client, &json!(id));
    for (field, value) in [
        ("backoffConfig", json!({"type": "fixed", "delay": 5, "maxDelay": 9})),
        ("stallTimeout", json!(60_000)),
        ("keepLogs", json!(2)),
        ("stackTraceLimit", json!(3)),
        ("sizeLimit", json!(1000)),
        ("createdAt", json!(1_700_000_000_000_u64)),
        ("deduplicationTtl", json!(3_600_000)),
        ("deduplicationExtend", json!(true)),
        ("deduplicationReplace", json!(true)),
    ] {
        assert_eq!(before[field], value, "{field}");
    }
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(job(&mut client, &json!(id)), before);
    let holder = |client: &mut Client, key: &str| {
        client.ok("GetDeduplicationJobId", json!({"queue": "q", "deduplicationId": key}))["data"]
            ["jobId"]
            .clone()
    };
    assert_eq!(holder(&mut client, "k"), id.as_str());
    assert_eq!(holder(&mut client, "freed"), Value::Null);
}
