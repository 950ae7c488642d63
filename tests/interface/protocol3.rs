//! Replies that differ between the versions of the protocol, and which version a connection speaks.

use serde_json::{Value, json};

use crate::interface::versions::{speaking, speaking_to};
use crate::support::{Client, Start, until};
use crate::{client, queue, shared};

/// Pulls a job of `queue` with a lock that no test outlives: its id and its token.
fn leased(client: &mut Client, queue: &str) -> (String, String) {
    let pull = json!({ "queue": queue, "owner": "w", "lockTtl": 3_600_000, "timeout": 30_000 });
    let reply = client.ok("PULL", pull);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&reply["job"]["id"]), text(&reply["token"]))
}

const MOVES: [(&str, &str); 4] = [
    ("MoveToDelayed", r#"{"delay": 3600000}"#),
    ("ChangeDelay", r#"{"delay": 3600000}"#),
    ("MoveToWait", "{}"),
    ("Discard", "{}"),
];

fn with(fields: &str, more: &Value) -> Value {
    let mut fields: Value = serde_json::from_str(fields).unwrap();
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fields
}

#[test]
fn version_3_moves_a_leased_job_only_with_its_token() {
    let queue = queue("strict-moves");
    let (mut two, mut three) = (client(), speaking(3));
    for (cmd, fields) in MOVES {
        two.ok("PUSH", json!({ "queue": queue, "data": cmd }));
        let (id, token) = leased(&mut three, &queue);
        let error = three.refused(cmd, with(fields, &json!({ "id": id })));
        assert_eq!(error, format!("Lock token required for job {id}"), "{cmd}");
        let other = "4e9bcd5c-8d3f-4b6a-9b3a-2f0e5f7b9c11";
        for client in [&mut two, &mut three] {
            let error = client.refused(cmd, with(fields, &json!({ "id": id, "token": other })));
            assert_eq!(error, format!("Invalid or expired lock token for job {id}"), "{cmd}");
            assert_eq!(client.state(&id), "active");
        }
        three.ok(cmd, with(fields, &json!({ "id": id, "token": token })));
        assert_ne!(three.state(&id), "active", "{cmd}");
        // Jobs left over would be in the way of the next round.
        three.ok("Obliterate", json!({ "queue": queue }));
    }
}

#[test]
fn a_move_of_a_job_without_a_lock_needs_no_token_in_either_version() {
    let queue = queue("free-moves");
    for version in [2, 3] {
        let mut client = speaking(version);
        for (cmd, fields) in MOVES {
            client.ok("PUSH", json!({ "queue": queue, "data": cmd }));
            let id = client.ok("PULL", json!({ "queue": queue }))["job"]["id"].clone();
            client.ok(cmd, with(fields, &json!({ "id": id })));
            client.ok("Obliterate", json!({ "queue": queue }));
        }
    }
    // In version 2 a locked job needs none, either.
    let mut client = client();
    for (cmd, fields) in MOVES {
        client.ok("PUSH", json!({ "queue": queue, "data": cmd }));
        let (id, _) = leased(&mut client, &queue);
        client.ok(cmd, with(fields, &json!({ "id": id })));
        client.ok("Obliterate", json!({ "queue": queue }));
    }
}

#[test]
fn a_running_job_that_has_no_children_to_wait_for_is_not_told_that_it_was_moved() {
    let queue = queue("no-children");
    let mut client = client();
    client.ok("PUSH", json!({ "queue": queue, "data": 1 }));
    let (id, token) = leased(&mut client, &queue);
    let fields = json!({ "id": id, "token": token });
    let error = client.refused("MoveToWaitingChildren", fields.clone());
    assert_eq!(error, "Job is not active or has no children to wait for");
    // The job goes on, and its worker still has it.
    assert_eq!(client.state(&id), "active");
    let reply = speaking(2).ok("MoveToWaitingChildren", fields.clone());
    assert_eq!(reply["data"], json!({ "moved": false }));
    let child = client.ok("PUSH", json!({ "queue": queue, "data": 2 }))["id"].clone();
    client.ok("UpdateParent", json!({ "childId": child, "parentId": id }));
    let reply = client.ok("MoveToWaitingChildren", fields);
    assert_eq!(reply["data"], json!({ "moved": true }));
    assert_eq!(client.state(&id), "waiting-children");
}

#[test]
fn an_absent_payload_is_null_in_version_3_and_null_is_one_in_both() {
    let queue = queue("null-data");
    let (mut two, mut three) = (client(), speaking(3));
    let absent = json!({ "queue": queue });
    let null = json!({ "queue": queue, "data": null });
    assert_eq!(two.refused("PUSH", absent.clone()), "data is required");
    let batch = json!({ "queue": queue, "jobs": [{ "data": 1 }, {}] });
    assert_eq!(two.refused("PUSHB", batch.clone()), "jobs[1]: data is required");
    let ids = [
        two.ok("PUSH", null.clone())["id"].clone(),
        three.ok("PUSH", null)["id"].clone(),
        three.ok("PUSH", absent)["id"].clone(),
        three.ok("PUSHB", batch)["ids"][1].clone(),
    ];
    for id in ids {
        assert_eq!(two.ok("GetJob", json!({ "id": id }))["job"]["data"], Value::Null);
    }
    let id = two.ok("PUSH", json!({ "queue": queue, "data": 7 }))["id"].clone();
    assert_eq!(two.refused("Update", json!({ "id": id })), "data is required");
    three.ok("Update", json!({ "id": id }));
    assert_eq!(two.ok("GetJob", json!({ "id": id }))["job"]["data"], Value::Null);
    two.ok("Update", json!({ "id": id, "data": 7 }));
    two.ok("Update", json!({ "id": id, "data": null }));
    assert_eq!(two.ok("GetJob", json!({ "id": id }))["job"]["data"], Value::Null);
    let flow = |n: u32, input: Value| json!({ "jobs": [{ "id": format!("{queue}-flow-{n}"), "queue": queue, "input": input }] });
    // A flow is of version 3 unless the connection has said otherwise.
    let mut told = speaking(2);
    let error = told.refused("PUSHF", flow(1, json!({})));
    assert!(error.ends_with("data is required"), "{error}");
    told.ok("PUSHF", flow(2, json!({ "data": null })));
    three.ok("PUSHF", flow(3, json!({})));
    let mut cron = json!({ "name": queue, "queue": queue, "repeatEvery": 3_600_000 });
    assert_eq!(two.refused("Cron", cron.clone()), "data is required");
    three.ok("Cron", cron.clone());
    cron["data"] = Value::Null;
    two.ok("Cron", cron);
    two.ok("CronDelete", json!({ "name": queue }));
    let path = format!("/queues/{queue}/jobs");
    shared().web().post(&path, json!({ "data": null })).expect(200);
    assert_eq!(shared().web().post(&path, json!({})).refused(400), "data is required");
}

#[test]
fn stats_have_the_names_of_both_versions() {
    let server = Start::new().env("SHARDS", 2).start();
    for mut client in [server.client(), server.client()] {
        client.ok("PUSH", json!({ "queue": "a", "data": 1, "maxAttempts": 1 }));
        let id = client.ok("PULL", json!({ "queue": "a" }))["job"]["id"].clone();
        client.ok("FAIL", json!({ "id": id }));
        client.ok("PUSH", json!({ "queue": "b", "data": 1 }));
        let stats = client.ok("Stats", json!({}))["stats"].clone();
        for (one, other) in [("queued", "waiting"), ("processing", "active"), ("dlq", "failed")] {
            assert!(stats[one].is_number(), "{one}: {stats}");
            assert_eq!(stats[one], stats[other], "{one} and {other}: {stats}");
        }
        // Figures that the command line of the npm client shows beside them.
        for name in ["delayed", "completed", "uptime", "pushPerSec", "pullPerSec"] {
            assert!(stats[name].is_number(), "{name}: {stats}");
        }
        for name in ["totalPushed", "totalPulled", "totalCompleted", "totalFailed"] {
            assert!(stats[name].is_number(), "{name}: {stats}");
        }
    }
}

#[test]
fn version_3_lists_queues_by_their_names_and_version_2_as_objects() {
    let server = Start::new().env("SHARDS", 2).start();
    let [mut two, mut three] = [2, 3].map(|version| speaking_to(&server, version));
    let names: Vec<String> = (0..8).map(|n| format!("queue-{n}")).collect();
    for name in &names {
        two.ok("PUSH", json!({ "queue": name, "data": 1 }));
    }
    let mut listed = three.ok("ListQueues", json!({}))["queues"].clone();
    let listed = listed.as_array_mut().unwrap();
    listed.sort_by_key(ToString::to_string);
    assert_eq!(*listed, names);
    let objects = two.ok("ListQueues", json!({}))["queues"].clone();
    let objects = objects.as_array().unwrap();
    assert_eq!(objects.len(), names.len());
    assert!(objects.iter().all(|it| it["name"].is_string() && it["waiting"] == 1), "{objects:?}");
    // A page is of neither version: it has the columns that it is asked for.
    let page = three.ok("ListQueues", json!({ "limit": 1, "fields": ["waiting"] }));
    assert_eq!(page["queues"], json!([{ "name": "queue-0", "waiting": 1 }]));
}

#[test]
fn version_3_counts_what_waits_and_is_delayed_and_version_2_all() {
    let queue = queue("counted");
    let (mut two, mut three) = (client(), speaking(3));
    for (priority, delay) in [(0, 0), (5, 0), (5, 0), (5, 3_600_000), (-3, 3_600_000)] {
        let job = json!({ "queue": queue, "data": 1, "priority": priority, "delay": delay });
        two.ok("PUSH", job);
    }
    // A job of a group, and one that waits for nothing any more.
    two.ok("PUSH", json!({ "queue": queue, "data": 1, "groupId": "g", "priority": 5 }));
    two.ok("PUSH", json!({ "queue": queue, "data": 1, "priority": 9 }));
    let id = two.ok("PULL", json!({ "queue": queue }))["job"]["id"].clone();
    two.ok("ACK", json!({ "id": id }));
    let count =
        |client: &mut Client| client.ok("Count", json!({ "queue": queue }))["count"].clone();
    assert_eq!((count(&mut two), count(&mut three)), (json!(7), json!(6)));
    let counts = |client: &mut Client| {
        client.ok("GetCountsPerPriority", json!({ "queue": queue }))["counts"].clone()
    };
    assert_eq!(counts(&mut two), json!({ "5": 3, "0": 1 }));
    assert_eq!(counts(&mut three), json!({ "5": 4, "0": 1, "-3": 1 }));
    let nothing = json!({ "queue": format!("{queue}-unknown") });
    assert_eq!(three.ok("GetCountsPerPriority", nothing)["counts"], json!({}));
}

/// More priorities than one slice writes, and more jobs than one slice looks at.
#[test]
fn counts_by_priority_are_whole_however_many_there_are() {
    let queue = queue("many-priorities");
    let mut client = client();
    for delay in [0, 3_600_000] {
        for part in 0..5 {
            let priority = |n: i64| part * 1000 + n - 2500;
            let job = |n| json!({ "data": 1, "priority": priority(n), "delay": delay });
            let jobs: Vec<Value> = (0..1000).map(job).collect();
            client.ok("PUSHB", json!({ "queue": queue, "jobs": jobs }));
        }
    }
    let counts =
        speaking(3).ok("GetCountsPerPriority", json!({ "queue": queue }))["counts"].clone();
    let counts = counts.as_object().unwrap();
    assert_eq!(counts.len(), 5000);
    assert!(counts.values().all(|count| *count == 2));
    client.ok("Obliterate", json!({ "queue": queue }));
}

#[test]
fn draining_takes_delayed_jobs_where_the_command_or_the_version_says_so() {
    let queue = queue("drained");
    for (version, delayed, left) in [
        (2, Value::Null, 2),
        (2, json!(false), 2),
        (2, json!(true), 0),
        (3, Value::Null, 0),
        (3, json!(true), 0),
        (3, json!(false), 2),
    ] {
        let mut client = speaking(version);
        for delay in [0, 3_600_000, 0, 3_600_000, 0] {
            client.ok("PUSH", json!({ "queue": queue, "data": 1, "delay": delay }));
        }
        let drained = client.ok("Drain", json!({ "queue": queue, "delayed": delayed }));
        assert_eq!(drained["count"], 5 - left, "version {version}, delayed: {delayed}");
        let counts = client.ok("GetJobCounts", json!({ "queue": queue }))["counts"].clone();
        assert_eq!((&counts["waiting"], &counts["delayed"]), (&json!(0), &json!(left)));
        client.ok("Obliterate", json!({ "queue": queue }));
    }
    let error = client().refused("Drain", json!({ "queue": queue, "delayed": 1 }));
    assert_eq!(error, "delayed must be a boolean");
}

#[test]
fn clean_takes_the_words_that_lists_take() {
    let queue = queue("cleaned");
    let mut client = client();
    let mut cleaned = |paused: bool, state: Value| {
        for priority in [0, 4, 0, -4] {
            client.ok("PUSH", json!({ "queue": queue, "data": 1, "priority": priority }));
        }
        client.ok("PUSH", json!({ "queue": queue, "data": 1, "delay": 3_600_000 }));
        client.ok(if paused { "Pause" } else { "Resume" }, json!({ "queue": queue }));
        let page = json!({ "queue": queue, "state": state });
        let listed = client.ok("GetJobs", page)["jobs"].as_array().unwrap().len();
        let clean = json!({ "queue": queue, "grace": 0, "state": state });
        let reply = client.ok("Clean", clean);
        assert_eq!(reply["count"], listed, "{state} means one thing in both");
        client.ok("Obliterate", json!({ "queue": queue }));
        reply["count"].clone()
    };
    for (paused, state, count) in [
        (false, json!("wait"), 4),
        (false, json!("waiting"), 4),
        (false, json!(["wait", "delayed"]), 5),
        (false, json!("prioritized"), 1),
        (false, json!(["prioritized", "delayed"]), 2),
        (false, json!("paused"), 0),
        (true, json!("paused"), 4),
        (true, json!(["paused", "prioritized"]), 4),
    ] {
        assert_eq!(cleaned(paused, state.clone()), count, "paused: {paused}, {state}");
    }
    let wrong = json!({ "queue": queue, "grace": 0, "state": "sleeping" });
    assert!(client.refused("Clean", wrong).starts_with("state must be one of "));
}

#[test]
fn what_is_not_known_of_an_id_is_absent_in_version_3() {
    let queue = queue("absent");
    let (mut two, mut three) = (client(), speaking(3));
    for id in [format!("{queue}-never"), "0197d0d5-29c5-7000-8000-000000000000".to_owned()] {
        let fields = json!({ "id": id });
        assert_eq!(two.refused("GetResult", fields.clone()), "Job not found");
        let reply = three.ok("GetResult", fields.clone());
        assert_eq!((&reply["id"], reply.get("result")), (&json!(id), None), "{reply}");
        for (cmd, at) in [
            ("GetChildrenValues", "/data/values"),
            ("GetFailedChildrenValues", "/values"),
            ("GetIgnoredChildrenFailures", "/values"),
        ] {
            assert_eq!(two.refused(cmd, fields.clone()), "Job not found", "{cmd}");
            assert_eq!(three.ok(cmd, fields.clone()).pointer(at), Some(&json!({})), "{cmd}");
        }
    }
    // A result that there is not is no null; one of null is.
    let mut ended = |result: Value| {
        two.ok("PUSH", json!({ "queue": queue, "data": 1 }));
        let id = two.ok("PULL", json!({ "queue": queue }))["job"]["id"].clone();
        two.ok("ACK", json!({ "id": id, "result": result }));
        (two.ok("GetResult", json!({ "id": id })), three.ok("GetResult", json!({ "id": id })))
    };
    let (in_two, in_three) = ended(json!({ "n": 1 }));
    assert_eq!((&in_two["result"], &in_three["result"]), (&json!({ "n": 1 }), &json!({ "n": 1 })));
    let (in_two, in_three) = ended(Value::Null);
    assert_eq!((in_two.get("result"), in_three.get("result")), (Some(&Value::Null), None));
}

#[test]
fn a_rate_limit_for_no_time_is_one_for_the_usual_time_in_version_3() {
    let queue = queue("rates");
    let (mut two, mut three) = (client(), speaking(3));
    let limits = |client: &mut Client| {
        client.ok("GetQueueLimits", json!({ "queue": queue }))["data"]["limits"].clone()
    };
    for low in [json!(0), json!(-1), json!(-0.5)] {
        let fields = json!({ "queue": queue, "limit": 7, "duration": low, "ttl": low });
        let error =
            two.refused("RateLimit", json!({ "queue": queue, "limit": 7, "duration": low }));
        assert!(error.starts_with("duration must be "), "{error}");
        let error = two.refused("RateLimit", json!({ "queue": queue, "limit": 7, "ttl": low }));
        assert!(error.starts_with("ttl must be "), "{error}");
        three.ok("RateLimit", fields);
        let set = limits(&mut three);
        assert_eq!(set["rateLimit"], json!({ "max": 7, "duration": 1000 }), "{low}");
        three.ok("RateLimitClear", json!({ "queue": queue }));
    }
    let error =
        three.refused("RateLimit", json!({ "queue": queue, "limit": 7, "duration": "soon" }));
    assert_eq!(error, "duration must be an integer");
    let error = three.refused("RateLimit", json!({ "queue": queue, "limit": 0 }));
    assert_eq!(error, "limit must be between 1 and 4294967295");
    let error =
        three.refused("RateLimit", json!({ "queue": queue, "limit": 1, "duration": 86_400_001 }));
    assert_eq!(error, "duration must be between 1 and 86400000");
}

#[test]
fn a_parent_that_names_completed_children_has_their_values() {
    let server = Start::new().env("SHARDS", 3).start();
    let mut client = server.client();
    let names: Vec<String> = (0..6).map(|n| format!("child-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        let queue = format!("part-{n}");
        client.ok("PUSH", json!({ "queue": queue, "data": n, "jobId": name }));
        if n < 4 {
            client.ok("PULL", json!({ "queue": queue }));
            client.ok("ACK", json!({ "id": name, "result": { "n": n } }));
        }
    }
    // Two are done and waited for, two are done, one is not, and one is not known.
    let parent = json!({
        "queue": "whole", "data": 1, "name": "parent",
        "dependsOn": names[..2], "childrenIds": [names[0], names[1], names[2], names[3], names[4], "no-such-job"],
    });
    let id = client.ok("PUSH", parent)["id"].clone();
    let pulled = client.ok("PULL", json!({ "queue": "whole", "timeout": 30_000 }))["job"].clone();
    assert_eq!(pulled["id"], id);
    let values = client.ok("GetChildrenValues", json!({ "id": id }))["data"]["values"].clone();
    let expected = json!({
        "part-0:child-0": { "n": 0 }, "part-1:child-1": { "n": 1 },
        "part-2:child-2": { "n": 2 }, "part-3:child-3": { "n": 3 },
    });
    assert_eq!(values, expected);
}

#[test]
fn a_repeat_by_a_pattern_runs_at_its_times_in_its_zone_as_often_as_its_limit_says() {
    let queue = queue("pattern");
    let mut client = client();
    let pull = json!({ "queue": queue, "timeout": 30_000 });
    let repeat = json!({ "pattern": "*/2 * * * * *", "tz": "Asia/Kathmandu", "limit": 3 });
    let job = json!({ "queue": queue, "name": "tick", "data": [7], "repeat": repeat });
    let first = client.ok("PUSH", job)["id"].clone();
    let mut ids = Vec::new();
    for count in 0..3 {
        let job = client.ok("PULL", pull.clone())["job"].clone();
        assert_eq!((&job["name"], &job["data"]), (&json!("tick"), &json!([7])));
        let job = client.ok("GetJob", json!({ "id": job["id"] }))["job"].clone();
        assert_eq!(job["runAt"].as_u64().unwrap() % 2000, 0, "{job}");
        let shown = json!({ "count": count, "limit": 3, "pattern": "*/2 * * * * *", "tz": "Asia/Kathmandu" });
        assert_eq!(job["repeat"], shown);
        client.ok("ACK", json!({ "id": job["id"] }));
        ids.push(job["id"].clone());
    }
    assert_eq!(ids[0], first);
    let counts = client.ok("GetJobCounts", json!({ "queue": queue }))["counts"].clone();
    assert_eq!((&counts["delayed"], &counts["waiting"]), (&json!(0), &json!(0)), "it is over");
}

#[test]
fn a_repeat_by_a_pattern_begins_when_its_push_says_so() {
    let queue = queue("pattern-begins");
    let mut client = client();
    let mut state = |repeat: Value, delay: u64| {
        let job = json!({ "queue": queue, "data": 1, "delay": delay, "repeat": repeat });
        let id = client.ok("PUSH", job)["id"].clone();
        client.state(id.as_str().unwrap())
    };
    let yearly = |more: Value| with(r#"{ "pattern": "@yearly" }"#, &more);
    assert_eq!(state(yearly(json!({ "immediately": true })), 0), "waiting");
    assert_eq!(state(yearly(json!({ "immediately": false })), 0), "delayed");
    assert_eq!(state(json!({ "every": 60_000 }), 0), "waiting");
    assert_eq!(state(json!({ "every": 60_000, "startDate": 4_000_000_000_000_u64 }), 0), "delayed");
    for (repeat, error) in [
        (json!({}), "repeat.every is required"),
        (json!({ "limit": 2 }), "repeat.every is required"),
        (
            json!({ "every": 50, "pattern": "@daily" }),
            "repeat.every and repeat.pattern must not both be given",
        ),
        (json!({ "pattern": "* * *" }), "repeat.pattern must have 5 or 6 fields"),
        (yearly(json!({ "tz": "Nowhere" })), "repeat.tz must be the name of an IANA time zone"),
        (
            json!({ "pattern": "0 0 31 6 *" }),
            "repeat.pattern has no run between startDate and endDate",
        ),
        (
            yearly(json!({ "endDate": 5 })),
            "repeat.pattern has no run between startDate and endDate",
        ),
        (yearly(json!({ "tz": 7 })), "repeat.tz must be a string"),
        (json!({ "pattern": "" }), "repeat.pattern must be between 1 and 4096 characters"),
    ] {
        let job = json!({ "queue": queue, "data": 1, "repeat": repeat });
        assert_eq!(client.refused("PUSH", job), error);
    }
}

#[test]
fn a_repeat_by_a_pattern_outlives_a_kill() {
    let mut server = Start::new().start();
    let job =
        json!({ "queue": "q", "data": 1, "repeat": { "pattern": "* * * * * *", "limit": 4 } });
    server.client().ok("PUSH", job);
    for count in 0..4 {
        let mut client = server.client();
        let pulled = client.ok("PULL", json!({ "queue": "q", "timeout": 30_000 }))["job"].clone();
        let job = client.ok("GetJob", json!({ "id": pulled["id"] }))["job"].clone();
        assert_eq!(job["repeat"], json!({ "count": count, "limit": 4, "pattern": "* * * * * *" }));
        client.ok("ACK", json!({ "id": job["id"] }));
        server.kill();
        server.start();
    }
    let counts = server.client().ok("GetJobCounts", json!({ "queue": "q" }))["counts"].clone();
    assert_eq!((&counts["completed"], &counts["delayed"]), (&json!(4), &json!(0)));
}

/// A job as the npm client adds it with the option `parent`.
fn child_of(parent: &str, parent_queue: &str, queue: &str) -> Value {
    let data = json!({ "n": 1, "__parentId": parent, "__parentQueue": parent_queue });
    json!({ "queue": queue, "name": "child", "data": data, "parentId": parent })
}

#[test]
fn a_job_added_for_a_parent_that_waits_is_waited_for() {
    let server = Start::new().env("SHARDS", 3).start();
    let mut client = server.client();
    for (number, options) in [
        json!({}),
        json!({ "jobId": "mine" }),
        json!({ "delay": 3_600_000 }),
        json!({ "jobId": "0197d0d5-29c5-7000-8000-000000000000" }),
    ]
    .into_iter()
    .enumerate()
    {
        let (queue, part) = (format!("whole-{number}"), format!("part-{number}"));
        let job = with(&options.to_string(), &json!({ "queue": queue, "data": 1 }));
        let parent = client.ok("PUSH", job)["id"].as_str().unwrap().to_owned();
        let first = client.ok("PUSH", child_of(&parent, &queue, &part))["id"].clone();
        assert_eq!(client.state(&parent), "waiting-children", "as soon as the child is there");
        let more = child_of(&parent, &queue, &part);
        let batch = json!({ "queue": part, "jobs": [more, { "data": 2, "name": "other" }, more] });
        let ids = client.ok("PUSHB", batch)["ids"].clone();
        assert_eq!(client.ok("PULL", json!({ "queue": queue }))["job"], Value::Null);
        for id in [&first, &ids[0], &ids[1], &ids[2]] {
            assert_eq!(client.state(&parent), "waiting-children");
            let pulled = client.ok("PULL", json!({ "queue": part }))["job"]["id"].clone();
            assert_eq!(pulled, *id);
            client.ok("ACK", json!({ "id": id, "result": { "of": id } }));
        }
        until("the parent to go on", || {
            let expected = if options.get("delay").is_some() { "delayed" } else { "waiting" };
            (client.state(&parent) == expected).then_some(())
        });
        let values =
            client.ok("GetChildrenValues", json!({ "id": parent }))["data"]["values"].clone();
        let values = values.as_object().unwrap();
        assert_eq!(values.len(), 3, "{values:?}");
        for id in [&first, &ids[0], &ids[2]] {
            assert_eq!(values[&format!("{part}:{}", id.as_str().unwrap())], json!({ "of": id }));
        }
    }
}

#[test]
fn a_job_for_a_parent_that_cannot_wait_for_it_is_refused() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let mut refused = |parent: &str, queue: &str, error: &str| {
        let child = child_of(parent, queue, "part");
        assert_eq!(client.refused("PUSH", child.clone()), error);
        let batch = json!({ "queue": "part", "jobs": [{ "data": 1 }, child] });
        assert_eq!(client.refused("PUSHB", batch), format!("jobs[1]: {error}"));
        assert_eq!(client.ok("Count", json!({ "queue": "part" }))["count"], 0);
    };
    refused("nowhere", "whole", "Parent job not found: nowhere");
    let mut other = server.client();
    for state in ["active", "completed"] {
        other.ok("PUSH", json!({ "queue": "whole", "data": 1, "jobId": state }));
        other.ok("PULL", json!({ "queue": "whole" }));
    }
    other.ok("ACK", json!({ "id": "completed" }));
    refused("active", "whole", "Parent job active is not linkable");
    refused("completed", "whole", "Parent job completed is not linkable");
    other.ok("PUSH", json!({ "queue": "whole", "data": 1, "jobId": "elsewhere" }));
    refused("elsewhere", "part", "Parent job elsewhere belongs to queue whole, not part");
    // A bare parentId is that of a parent which comes later, and version 2 links nothing by itself.
    let bare = json!({ "queue": "part", "data": 1, "name": "n", "parentId": "later" });
    client.ok("PUSH", bare);
    speaking_to(&server, 2).ok("PUSH", child_of("elsewhere", "whole", "part"));
    assert_eq!(client.state("elsewhere"), "waiting");
}
