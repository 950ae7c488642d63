//! Jobs that wait for jobs. The fear: a dependent that runs too early, or that nobody ever wakes.

use serde_json::{Value, json};

use crate::support::until;
use crate::{client, queue};

fn finish(client: &mut crate::Client, queue: &str) {
    let id = client.pull(queue)["id"].clone();
    client.ok("ACK", json!({"id": id}));
}

#[test]
#[ignore = "its commands are not built yet"]
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
    let job = client.ok("PULL", json!({"queue": whole, "timeout": 20_000}))["job"].clone();
    assert_eq!(job["id"], json!(id));
}

#[test]
#[ignore = "its commands are not built yet"]
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
#[ignore = "its commands are not built yet"]
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
#[ignore = "its commands are not built yet"]
fn a_dependency_that_is_removed_sends_its_dependent_to_the_dead_letter_queue() {
    let (mut client, queue, other) = (client(), queue("removed-part"), queue("orphan"));
    let part = client.push(&queue, 1);
    let id = client.push_with(&other, 2, json!({"dependsOn": [part]}));
    client.ok("Cancel", json!({"id": part}));
    until("the dependent to fail", || (client.state(&id) == "failed").then_some(()));
    let dead = client.ok("Dlq", json!({"queue": other}))["jobs"].clone();
    assert_eq!(dead[0]["failedReason"], format!("Dependency removed: {part}"));
}
