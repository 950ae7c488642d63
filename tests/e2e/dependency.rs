//! Jobs that wait for jobs. The fear: a dependent that runs too early, or that nobody ever wakes.

use serde_json::{Value, json};

use crate::support::until;
use crate::{client, queue};

fn finish(client: &mut crate::Client, queue: &str) {
    let id = client.pull(queue)["id"].clone();
    client.ok("ACK", json!({"id": id}));
}

#[test]
fn a_dependent_runs_when_all_that_it_depends_on_is_done() {
    let mut client = client();
    // Eight queues: on all shards.
    let parts: Vec<String> = (0..8).map(|_| queue("part")).collect();
    let whole = queue("whole");
    let ids: Vec<String> = parts.iter().map(|queue| client.push(queue, 1)).collect();
    let id = client.push_with(&whole, 1, json!({"dependsOn": ids}));
    for (n, queue) in parts.iter().enumerate() {
        assert_eq!(client.state(&id), "waiting-children", "{n} done");
        assert_eq!(client.pull(&whole), Value::Null);
        finish(&mut client, queue);
    }
    let job = client.ok("PULL", json!({"queue": whole, "timeout": 60_000}))["job"].clone();
    assert_eq!(job["id"], json!(id));
}

#[test]
fn an_unknown_dependency_is_refused_and_a_completed_one_counts_as_met() {
    let (mut client, queue) = (client(), queue("met"));
    let fields = json!({"queue": queue, "data": 1, "dependsOn": ["nobody"]});
    assert_eq!(client.refused("PUSH", fields), "Dependency job not found: nobody");
    let done = client.push(&queue, 1);
    finish(&mut client, &queue);
    let id = client.push_with(&queue, 2, json!({"dependsOn": [done]}));
    assert_eq!(client.pull(&queue)["id"], json!(id));
}

#[test]
fn a_dependency_that_fails_keeps_its_dependent_waiting_until_it_is_retried() {
    let (mut client, queue, other) = (client(), queue("dead-part"), queue("waits"));
    let part = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
    let id = client.push_with(&other, 2, json!({"dependsOn": [part]}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": part}));
    assert_eq!(client.state(&id), "waiting-children");
    client.ok("RetryDlq", json!({"queue": queue}));
    finish(&mut client, &queue);
    until("the dependent to wait", || (client.state(&id) == "waiting").then_some(()));
}

#[test]
fn a_dependency_that_is_cancelled_sends_its_dependent_to_the_dead_letter_queue() {
    let (mut client, queue, other) = (client(), queue("removed-part"), queue("orphan"));
    let part = client.push(&queue, 1);
    let id = client.push_with(&other, 2, json!({"dependsOn": [part]}));
    client.ok("Cancel", json!({"id": part}));
    until("the dependent to fail", || (client.state(&id) == "failed").then_some(()));
    let dead = client.ok("Dlq", json!({"queue": other}))["jobs"].clone();
    assert_eq!(dead[0]["failedReason"], format!("Dependency removed: {part}"));
}

#[test]
fn a_dependency_that_is_removed_sends_its_dependent_to_the_dead_letter_queue() {
    let (mut client, queue) = (client(), queue("gone-part"));
    let fails = json!({"maxAttempts": 1, "removeOnFail": true, "priority": 9});
    let failing = client.push_with(&queue, 1, fails);
    let mortal = format!("m-{queue}");
    let queues = [crate::queue("orphan"), crate::queue("orphan")];
    // Both in one, or the first might be gone before the other comes.
    let flow = json!([
        {"id": mortal, "queue": queue, "input": {"data": 1, "ttl": 150}},
        {"id": format!("o-{queue}"), "queue": queues[0], "input": {"data": 2, "dependsOn": [mortal]}}
    ]);
    client.ok("PUSHF", json!({"jobs": flow}));
    client.push_with(&queues[1], 2, json!({"dependsOn": [failing]}));
    let parts = [mortal, failing.clone()];
    assert_eq!(client.pull(&queue)["id"], json!(failing));
    client.ok("FAIL", json!({"id": failing}));
    for (part, queue) in parts.iter().zip(&queues) {
        let dead = until("the dependent to fail", || {
            let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"].clone();
            dead.get(0).cloned()
        });
        assert_eq!(dead["failedReason"], format!("Dependency removed: {part}"));
    }
}

#[test]
fn custom_ids_are_dependencies_even_when_their_jobs_are_removed_on_completion() {
    let (mut client, queue) = (client(), queue("named-part"));
    let names: Vec<String> = (0..6).map(|n| format!("{queue}-part-{n}")).collect();
    for name in &names {
        client.push_with(&queue, 1, json!({"jobId": name, "removeOnComplete": true}));
    }
    for _ in 0..3 {
        finish(&mut client, &queue);
    }
    let whole = client.push_with(&crate::queue("whole"), 1, json!({"dependsOn": names}));
    assert_eq!(client.state(&whole), "waiting-children");
    for _ in 0..3 {
        finish(&mut client, &queue);
    }
    until("the dependent to wait", || (client.state(&whole) == "waiting").then_some(()));
    let after = client.push_with(&crate::queue("whole"), 1, json!({"dependsOn": names}));
    assert_eq!(client.state(&after), "waiting");
}

#[test]
fn every_job_of_a_batch_has_dependencies_of_its_own() {
    let (mut client, queue, whole) = (client(), queue("batch-part"), queue("batch-whole"));
    let part = client.push(&queue, 1);
    let own = format!("{whole}-own");
    let jobs = json!([
        {"data": 0},
        {"data": 1, "dependsOn": [part], "customId": own},
        {"data": 2, "dependsOn": []},
        {"data": 3, "dependsOn": [part]},
    ]);
    let ids = client.ok("PUSHB", json!({"queue": whole, "jobs": jobs}))["ids"].clone();
    let states = ["waiting", "waiting-children", "waiting", "waiting-children"];
    for (id, state) in ids.as_array().unwrap().iter().zip(states) {
        assert_eq!(client.state(id.as_str().unwrap()), state);
    }
    assert_eq!(ids[1], json!(own));
    let again = client.ok("PUSHB", json!({"queue": whole, "jobs": [jobs[1]]}))["ids"].clone();
    assert_eq!(again, json!([own]), "a custom id is idempotent with dependencies, too");
    finish(&mut client, &queue);
    for _ in 0..4 {
        let job = client.ok("PULL", json!({"queue": whole, "timeout": 60_000}))["job"].clone();
        assert_ne!(job, Value::Null);
    }
}

#[test]
fn one_unknown_dependency_refuses_a_whole_batch_and_names_its_job() {
    let (mut client, queue) = (client(), queue("batch-unknown"));
    let part = client.push(&queue, 1);
    let nobody = "01900000-0000-7000-8000-000000000000";
    for unknown in ["nobody", nobody] {
        let jobs = json!([
            {"data": 0, "customId": format!("{queue}-x")},
            {"data": 1, "dependsOn": [part, unknown]},
        ]);
        let text = client.refused("PUSHB", json!({"queue": queue, "jobs": jobs}));
        assert_eq!(text, format!("jobs[1]: Dependency job not found: {unknown}"));
    }
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 1);
    // The custom id of a refused push is free.
    client.push_with(&queue, 1, json!({"jobId": format!("{queue}-x")}));
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 2);
}

#[test]
fn a_known_custom_id_comes_back_whatever_became_of_its_dependencies() {
    let (mut client, queue) = (client(), queue("known"));
    let (part, own) = (format!("{queue}-part"), format!("{queue}-own"));
    let options = json!({"jobId": own, "dependsOn": [part]});
    let flow = json!([
        {"id": part, "queue": queue, "input": {"data": 1, "ttl": 100}},
        {"id": own, "queue": queue, "input": {"data": 1, "dependsOn": [part]}}
    ]);
    client.ok("PUSHF", json!({"jobs": flow}));
    until("the dependency to go", || (client.state(&part) == "unknown").then_some(()));
    assert_eq!(client.push_with(&queue, 1, options), own);
    let jobs = json!([{"data": 1, "customId": own, "dependsOn": [part]}, {"data": 2}]);
    let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
    assert_eq!(ids[0], json!(own));
}

#[test]
fn a_job_cannot_depend_on_itself() {
    let (mut client, queue) = (client(), queue("self"));
    let fields = json!({"queue": queue, "data": 1, "jobId": "me", "dependsOn": ["other", "me"]});
    assert_eq!(client.refused("PUSH", fields), "dependsOn must not name the job itself");
}

#[test]
fn jobs_that_wait_for_others_are_counted_and_listed() {
    let (mut client, queue) = (client(), queue("count-children"));
    let part = client.push(&crate::queue("count-part"), 1);
    let id = client.push_with(&queue, 1, json!({"dependsOn": [part]}));
    assert_eq!(client.counted(&queue, "waiting-children"), 1);
    assert_eq!(client.counted(&queue, "waiting"), 0);
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 1);
    assert!(client.ok("Stats", json!({}))["stats"]["waitingChildren"].as_u64().unwrap() >= 1);
    let fields = json!({"queue": queue, "state": "waiting-children"});
    let jobs = client.ok("GetJobs", fields)["jobs"].clone();
    assert_eq!((&jobs[0]["id"], &jobs[0]["dependsOn"]), (&json!(id), &json!([part])));
    assert_eq!(jobs[0]["state"], "waiting-children");
}

#[test]
fn dependencies_that_complete_during_the_push_are_not_missed() {
    let (parts, whole) = (queue("racing-part"), queue("racing-whole"));
    let mut client = client();
    for round in 0..60 {
        let options = json!({"removeOnComplete": round % 2 == 0});
        let part = client.push_with(&parts, round, options);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = crate::client();
                finish(&mut other, &parts);
            });
            client.push_with(&whole, round, json!({"dependsOn": [part]}));
        });
        let reply = client.ok("PULL", json!({"queue": whole, "timeout": 60_000}));
        assert_eq!(reply["job"]["data"], round, "woken");
        client.ok("ACK", json!({"id": reply["job"]["id"]}));
    }
}
