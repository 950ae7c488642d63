//! Queues as wholes: counting, pausing, emptying. The fear: numbers that drift from the truth,
//! and an emptied queue that still delivers.

use serde_json::{Value, json};

use crate::support::{Start, until};
use crate::{client, queue};

/// Makes a job in each of the five states.
fn one_of_each(client: &mut crate::Client, queue: &str) {
    client.push_with(queue, "failed", json!({"maxAttempts": 1}));
    let id = client.pull(queue)["id"].clone();
    client.ok("FAIL", json!({"id": id}));
    client.push(queue, "completed");
    let id = client.pull(queue)["id"].clone();
    client.ok("ACK", json!({"id": id}));
    client.push(queue, "active");
    client.pull(queue);
    client.push(queue, "waiting");
    client.push_with(queue, "delayed", json!({"delay": 3_600_000}));
}

#[test]
fn counts_tell_every_state() {
    let (mut client, queue) = (client(), queue("counts"));
    one_of_each(&mut client, &queue);
    for state in ["waiting", "delayed", "active", "completed", "failed"] {
        assert_eq!(client.counted(&queue, state), 1, "{state}");
    }
    assert_eq!(client.counted(&queue, "waiting-children"), 0);
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 5);
}

#[test]
fn an_unknown_queue_counts_nothing() {
    let (mut client, queue) = (client(), queue("unknown"));
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 0);
    assert_eq!(client.counted(&queue, "waiting"), 0);
    assert_eq!(client.ok("Drain", json!({"queue": queue}))["count"], 0);
    assert_eq!(client.ok("IsPaused", json!({"queue": queue}))["paused"], false);
    client.ok("Obliterate", json!({"queue": queue}));
}

#[test]
fn counts_per_priority() {
    let (mut client, queue) = (client(), queue("per-priority"));
    for priority in [5, 5, -2, 0] {
        client.push_with(&queue, 1, json!({"priority": priority}));
    }
    let reply = client.ok("GetCountsPerPriority", json!({"queue": queue}));
    assert_eq!(reply["counts"], json!({"5": 2, "-2": 1, "0": 1}));
}

#[test]
fn the_listing_shows_every_queue_that_has_a_job_or_a_setting() {
    let server = Start::new().start();
    let mut client = server.client();
    assert_eq!(client.ok("ListQueues", json!({}))["queues"], json!([]));
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        client.push(name, 1);
    }
    client.ok("Pause", json!({"queue": "only-paused"}));
    client.pull("b");
    client.push_with("c", 1, json!({"delay": 60_000}));
    let listing = |client: &mut crate::Client| {
        let mut queues = client.ok("ListQueues", json!({}))["queues"].as_array().unwrap().clone();
        queues.sort_by_key(|entry| entry["name"].to_string());
        queues
    };
    let queues = listing(&mut client);
    let names: Vec<&Value> = queues.iter().map(|entry| &entry["name"]).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g", "h", "only-paused"]);
    let numbers = |n: usize| [&queues[n]["waiting"], &queues[n]["delayed"], &queues[n]["active"]];
    assert_eq!(numbers(0), [1, 0, 0]);
    assert_eq!(numbers(1), [0, 0, 1]);
    assert_eq!(numbers(2), [1, 1, 0]);
    assert_eq!((&queues[0]["paused"], &queues[8]["paused"]), (&json!(false), &json!(true)));
    client.ok("Obliterate", json!({"queue": "a"}));
    client.ok("Resume", json!({"queue": "only-paused"}));
    assert_eq!(listing(&mut client).len(), 7);
}

#[test]
fn a_paused_queue_takes_jobs_and_gives_none() {
    let (mut client, queue) = (client(), queue("pause"));
    client.push(&queue, 1);
    client.ok("Pause", json!({"queue": queue}));
    assert_eq!(client.ok("IsPaused", json!({"queue": queue}))["paused"], true);
    client.push(&queue, 2);
    assert_eq!(client.pull(&queue), Value::Null);
    let many = client.ok("PULLB", json!({"queue": queue, "count": 5}));
    assert_eq!(many["jobs"], json!([]));
    assert_eq!(client.counted(&queue, "waiting"), 2);
    client.ok("Resume", json!({"queue": queue}));
    assert_eq!(client.ok("IsPaused", json!({"queue": queue}))["paused"], false);
    assert_eq!(client.pull(&queue)["data"], 1);
}

#[test]
fn a_job_that_is_active_when_its_queue_pauses_can_be_finished() {
    let (mut client, queue) = (client(), queue("pause-active"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    client.ok("Pause", json!({"queue": queue}));
    client.ok("ACK", json!({"id": id}));
    assert_eq!(client.state(&id), "completed");
}

#[test]
fn draining_removes_what_waits_and_nothing_else() {
    let (mut client, queue) = (client(), queue("drain"));
    one_of_each(&mut client, &queue);
    client.push(&queue, "waiting too");
    assert_eq!(client.ok("Drain", json!({"queue": queue}))["count"], 2);
    assert_eq!(client.counted(&queue, "waiting"), 0);
    for state in ["delayed", "active", "completed", "failed"] {
        assert_eq!(client.counted(&queue, state), 1, "{state}");
    }
    assert_eq!(client.pull(&queue), Value::Null);
}

#[test]
fn obliterating_removes_everything() {
    let (mut client, queue) = (client(), queue("obliterate"));
    one_of_each(&mut client, &queue);
    client.ok("Pause", json!({"queue": queue}));
    client.ok("Obliterate", json!({"queue": queue}));
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 0);
    assert_eq!(client.ok("IsPaused", json!({"queue": queue}))["paused"], false);
    assert_eq!(client.pull(&queue), Value::Null);
    client.push(&queue, "new");
    assert_eq!(client.pull(&queue)["data"], "new");
}

#[test]
fn a_large_queue_is_obliterated_while_others_are_served() {
    let (mut client, mut other, queue, beside) =
        (client(), crate::client(), queue("large"), queue("beside"));
    let jobs = vec![json!({"data": 1}); 1000];
    for _ in 0..20 {
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    }
    client.send("Obliterate", json!({"queue": queue})).unwrap();
    let id = other.push(&beside, 1);
    assert_eq!(other.pull(&beside)["id"], json!(id));
    assert_eq!(client.recv().unwrap()["ok"], true);
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn cleaning_keeps_to_its_state_its_grace_and_its_limit() {
    let (mut client, queue) = (client(), queue("clean"));
    one_of_each(&mut client, &queue);
    let clean = |client: &mut crate::Client, fields: Value| {
        let mut all = json!({"queue": queue});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let reply = client.ok("Clean", all);
        assert_eq!(reply["ids"].as_array().unwrap().len(), reply["count"], "{reply}");
        reply["count"].as_u64().unwrap()
    };
    assert_eq!(clean(&mut client, json!({"grace": 3_600_000})), 0);
    assert_eq!(clean(&mut client, json!({"grace": 0, "state": "completed"})), 1);
    assert_eq!(clean(&mut client, json!({"grace": 0, "state": "failed"})), 1);
    assert_eq!(clean(&mut client, json!({"grace": 0, "limit": 1})), 1);
    assert_eq!(clean(&mut client, json!({"grace": 0})), 1);
    assert_eq!(client.counted(&queue, "active"), 1);
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 1);
}

#[test]
fn cleaning_removes_old_jobs_of_active_workers_only_on_demand() {
    let (mut client, queue) = (client(), queue("clean-active"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    assert_eq!(client.ok("Clean", json!({"queue": queue, "grace": 0}))["count"], 0);
    let reply = client.ok("Clean", json!({"queue": queue, "grace": 0, "state": "active"}));
    assert_eq!(reply["ids"], json!([id]));
    assert_eq!(client.refused("ACK", json!({"id": id})), "Job not found or not active");
}

#[test]
fn custom_ids_are_named_by_a_clean_up_and_free_after_it() {
    let (mut client, queue) = (client(), queue("clean-ids"));
    for round in 0..3 {
        let ids: Vec<String> = (0..20).map(|n| format!("{queue}-{n}")).collect();
        for id in &ids {
            client.push_with(&queue, round, json!({"jobId": id}));
        }
        let removed = match round {
            0 => client.ok("Clean", json!({"queue": queue, "grace": 0}))["ids"].clone(),
            1 => {
                assert_eq!(client.ok("Drain", json!({"queue": queue}))["count"], 20);
                json!(ids)
            }
            _ => {
                client.ok("Obliterate", json!({"queue": queue}));
                json!(ids)
            }
        };
        assert_eq!(removed, json!(ids));
        assert_eq!(client.state(&ids[7]), "unknown", "round {round}");
        assert_eq!(client.push_with(&queue, "new", json!({"jobId": ids[7]})), ids[7]);
        assert_eq!(client.pull(&queue)["data"], "new", "round {round}");
        client.ok("Obliterate", json!({"queue": queue}));
    }
}

/// Guards against a push that is answered with the id of a job which goes a moment later.
#[test]
fn a_push_during_an_obliterate_may_use_the_custom_ids_of_the_jobs_that_go() {
    let (mut client, queue, elsewhere) = (client(), queue("going-ids"), queue("elsewhere"));
    let ids: Vec<String> = (0..4000).map(|n| format!("{queue}-{n}")).collect();
    for ids in ids.chunks(1000) {
        let jobs: Vec<Value> = ids.iter().map(|id| json!({"data": "old", "jobId": id})).collect();
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    }
    let last = |back: usize| &ids[ids.len() - back];
    let push = |queue: &str, back: usize| {
        ("PUSH", json!({"queue": queue, "data": "new", "jobId": last(back)}))
    };
    let batch: Vec<Value> =
        (4..8).map(|back| json!({"data": "new", "jobId": last(back)})).collect();
    let replies = client.at_once([
        ("Obliterate", json!({"queue": queue})),
        push(&queue, 1),
        push(&elsewhere, 2),
        ("PUSH", json!({"queue": elsewhere, "data": "new", "dependsOn": [last(3)]})),
        ("PUSHB", json!({"queue": elsewhere, "jobs": batch})),
    ]);
    for (place, reply) in replies.iter().enumerate() {
        let refused = place == 3;
        assert_eq!(reply["ok"], !refused, "{place}: {reply}");
    }
    let error = replies[3]["error"].as_str().unwrap();
    assert!(error.starts_with("Dependency job not found"), "{error}");
    for back in [1, 2, 4, 5, 6, 7] {
        assert_eq!(client.state(last(back)), "waiting", "{back} from the end");
    }
    assert_eq!(client.pull(&queue)["id"], **last(1));
    assert_eq!(client.counted(&elsewhere, "waiting"), 5);
}

#[test]
fn an_obliterate_goes_on_when_its_client_is_gone() {
    let (mut client, mut other, queue) = (client(), crate::client(), queue("left"));
    let jobs = vec![json!({"data": 1}); 1000];
    let mut last = Value::Null;
    for _ in 0..10 {
        last = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"][999].clone();
    }
    client.send("Obliterate", json!({"queue": queue})).unwrap();
    until("the queue to be new", || {
        (other.ok("Count", json!({"queue": queue}))["count"] == 0).then_some(())
    });
    drop(client);
    let last = last.as_str().unwrap();
    until("the last job to go", || (other.state(last) == "unknown").then_some(()));
    assert_eq!(other.ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn a_worker_that_waits_at_an_obliterated_queue_gets_its_next_job() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("obliterate-wait"));
    client.push_with(&queue, 1, json!({"delay": 3_600_000}));
    worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    client.ok("Obliterate", json!({"queue": queue}));
    let id = client.push(&queue, 2);
    assert_eq!(worker.recv().unwrap()["job"]["id"], json!(id));
}
