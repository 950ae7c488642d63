//! Custom ids and unique keys. The fear: one order that becomes two jobs, or a key that is never
//! free again.

use std::collections::HashSet;
use std::thread;

use serde_json::{Value, json};

use super::space::metrics;
use crate::support::{Client, Start};
use crate::{client, queue, shared};

#[test]
fn a_custom_id_is_the_jobs_id() {
    let (mut client, queue) = (client(), queue("custom"));
    let own = format!("order-{queue}");
    assert_eq!(client.push_with(&queue, 1, json!({"jobId": own})), own);
    assert_eq!(client.state(&own), "waiting");
    let job = client.ok("GetJobByCustomId", json!({"customId": own}))["job"].clone();
    assert_eq!((&job["id"], &job["data"]), (&json!(own), &json!(1)));
    assert_eq!(client.pull(&queue)["id"], json!(own));
    client.ok("ACK", json!({"id": own}));
    assert_eq!(client.state(&own), "completed");
}

/// The fear: each step of a claim waits for a turn of its own, with `synced` for the disk as well.
#[test]
fn on_one_shard_a_push_with_a_custom_id_takes_the_turn_in_which_it_comes_and_one_for_the_news() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let turns = |client: &mut Client| metrics(client)["corq_turn_duration_ms_count"];
    let before = turns(&mut client);
    for order in 0..100 {
        client.push_with("ids", order, json!({"jobId": format!("order-{order}")}));
        client.push_with("ids", order, json!({"jobId": format!("order-{order}")}));
    }
    // A turn counts if another follows at once, as that which has told itself of a new name.
    let counted = turns(&mut client) - before;
    assert!(counted < 450, "{counted} for 100 new jobs and 100 known ones");
    assert_eq!(client.ok("Count", json!({"queue": "ids"}))["count"], 100);
}

#[test]
fn the_same_custom_id_never_makes_a_second_job_in_any_state() {
    let (mut client, queue) = (client(), queue("idempotent"));
    let own = format!("order-{queue}");
    let options = json!({"jobId": own, "maxAttempts": 1});
    for step in ["waiting", "active", "failed"] {
        assert_eq!(client.push_with(&queue, step, options.clone()), own);
        assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 1, "{step}");
        match step {
            "waiting" => assert_eq!(client.pull(&queue)["data"], "waiting"),
            "active" => {
                client.ok("FAIL", json!({"id": own}));
            }
            _ => assert_eq!(client.state(&own), "failed"),
        }
    }
    client.ok("RetryDlq", json!({"queue": queue}));
    client.pull(&queue);
    client.ok("ACK", json!({"id": own}));
    assert_eq!(client.push_with(&queue, "completed", options), own);
    assert_eq!(client.state(&own), "completed");
    assert_eq!(client.pull(&queue), Value::Null);
}

#[test]
fn a_custom_id_holds_across_queues() {
    let (mut client, first) = (client(), queue("global"));
    let own = format!("order-{first}");
    client.push_with(&first, "first", json!({"jobId": own}));
    for _ in 0..8 {
        let other = queue("global");
        assert_eq!(client.push_with(&other, "second", json!({"jobId": own})), own);
        assert_eq!(client.ok("Count", json!({"queue": other}))["count"], 0);
    }
    assert_eq!(client.ok("GetJob", json!({"id": own}))["job"]["data"], "first");
}

#[test]
fn the_id_that_the_server_gave_a_job_makes_no_second_job_as_a_custom_id() {
    let mut client = client();
    for _ in 0..8 {
        let (first, second) = (queue("given"), queue("given"));
        let id = client.push(&first, "first");
        for queue in [&first, &second] {
            assert_eq!(client.push_with(queue, "second", json!({"jobId": id})), id);
            let jobs = json!([{"data": "third", "customId": id}]);
            let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
            assert_eq!(reply["ids"], json!([id]));
        }
        assert_eq!(client.ok("Count", json!({"queue": first}))["count"], 1);
        assert_eq!(client.ok("Count", json!({"queue": second}))["count"], 0);
        client.ok("Cancel", json!({"id": id}));
        assert_eq!(client.state(&id), "unknown");
        // Free again, as after every other job.
        assert_eq!(client.push_with(&second, "fourth", json!({"jobId": id})), id);
        assert_eq!(client.pull(&second)["id"], json!(id));
        client.ok("ACK", json!({"id": id}));
        assert_eq!(client.push_with(&first, "fifth", json!({"jobId": id})), id);
        assert_eq!(client.state(&id), "completed");
    }
}

#[test]
fn a_custom_id_is_free_again_when_its_job_is_removed() {
    let (mut client, queue) = (client(), queue("free"));
    let own = format!("order-{queue}");
    let options = json!({"jobId": own});
    client.push_with(&queue, 1, options.clone());
    client.ok("Cancel", json!({"id": own}));
    assert!(client.refused("GetJobByCustomId", json!({"customId": own})).contains("not found"));
    client.push_with(&queue, 2, options.clone());
    assert_eq!(client.pull(&queue)["data"], 2);
    client.ok("ACK", json!({"id": own}));
    client.ok("Obliterate", json!({"queue": queue}));
    client.push_with(&queue, 3, options);
    assert_eq!(client.pull(&queue)["data"], 3);
}

#[test]
fn racing_pushes_of_one_custom_id_make_one_job() {
    let mut all = client();
    let queues: Vec<String> = (0..8).map(|_| queue("race")).collect();
    for round in 0..10 {
        let own = format!("race-{}-{round}", queues[0]);
        thread::scope(|scope| {
            for queue in &queues {
                let own = &own;
                scope.spawn(move || {
                    let mut client = shared().client();
                    let id = client.push_with(queue, 1, json!({"jobId": own}));
                    assert_eq!(id, *own);
                });
            }
        });
        let mut jobs = 0;
        for queue in &queues {
            jobs += all.ok("Count", json!({"queue": queue}))["count"].as_u64().unwrap();
        }
        assert_eq!(jobs, round + 1);
    }
}

#[test]
fn a_batch_takes_custom_ids_and_doubles_within_it_are_one_job() {
    let (mut client, queue) = (client(), queue("batch-ids"));
    let own = format!("order-{queue}");
    let jobs = json!([
        {"data": 1, "customId": own}, {"data": 2}, {"data": 3, "customId": own}
    ]);
    let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
    assert_eq!((&ids[0], &ids[2]), (&json!(own), &json!(own)));
    assert_eq!(client.counted(&queue, "waiting"), 2);
    assert_eq!(client.ok("GetJob", json!({"id": own}))["job"]["data"], 1);
}

#[test]
fn a_batch_of_custom_ids_on_all_shards_makes_each_once() {
    let (mut client, first, second) = (client(), queue("ids-a"), queue("ids-b"));
    let jobs: Vec<Value> =
        (0..200).map(|n| json!({"data": n, "customId": format!("{first}-{n}")})).collect();
    for queue in [&first, &second, &first] {
        let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        let ids: HashSet<&str> =
            reply["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        assert_eq!(ids.len(), 200);
    }
    assert_eq!(client.counted(&first, "waiting"), 200);
    assert_eq!(client.ok("Count", json!({"queue": second}))["count"], 0);
}

#[test]
fn a_unique_key_is_held_until_its_job_is_done() {
    let (mut client, queue) = (client(), queue("unique"));
    let options = json!({"uniqueKey": "k", "maxAttempts": 2, "backoff": 0});
    let first = client.push_with(&queue, 1, options.clone());
    assert_eq!(client.push_with(&queue, 2, options.clone()), first, "while it waits");
    client.pull(&queue);
    assert_eq!(client.push_with(&queue, 2, options.clone()), first, "while it is active");
    client.ok("FAIL", json!({"id": first}));
    assert_eq!(client.push_with(&queue, 2, options.clone()), first, "while it is retried");
    client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
    client.ok("ACK", json!({"id": first}));
    let second = client.push_with(&queue, 2, options);
    assert_ne!(second, first);
    assert_eq!(client.counted(&queue, "waiting"), 1);
}

#[test]
fn a_unique_key_is_free_after_the_last_failure_and_after_a_cancel() {
    let (mut client, queue) = (client(), queue("unique-free"));
    let options = json!({"uniqueKey": "k", "maxAttempts": 1});
    let first = client.push_with(&queue, 1, options.clone());
    client.pull(&queue);
    client.ok("FAIL", json!({"id": first}));
    let second = client.push_with(&queue, 2, options.clone());
    assert_ne!(second, first);
    client.ok("Cancel", json!({"id": second}));
    assert_ne!(client.push_with(&queue, 3, options), second);
}

#[test]
fn unique_keys_are_per_queue() {
    let (mut client, first, second) = (client(), queue("unique-a"), queue("unique-b"));
    let options = json!({"uniqueKey": "same"});
    let one = client.push_with(&first, 1, options.clone());
    assert_ne!(client.push_with(&second, 1, options.clone()), one);
    let jobs = json!([{"data": 1, "uniqueKey": "same"}, {"data": 2, "uniqueKey": "other"}]);
    let ids = client.ok("PUSHB", json!({"queue": first, "jobs": jobs}))["ids"].clone();
    assert_eq!(ids[0], json!(one));
    assert_eq!(client.counted(&first, "waiting"), 2);
}

#[test]
fn a_connection_goes_on_after_any_number_of_commands_by_custom_id() {
    let server = crate::support::Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    for n in 0..20 {
        let (queue, id) = (format!("queue-{n}"), format!("name-{n}"));
        client.push_with(&queue, n, json!({"jobId": id}));
        for _ in 0..40 {
            assert_eq!(client.state(&id), "waiting");
        }
    }
}

#[test]
fn a_name_twice_in_one_batch_is_answered_with_the_job_there_is() {
    let (mut client, queue) = (client(), queue("twice"));
    let holder = client.push_with(&queue, 0, json!({"uniqueKey": "key"}));
    let name = format!("{queue}-name");
    let jobs = json!([
        {"data": 1, "customId": name, "uniqueKey": "key"},
        {"data": 2, "customId": name},
    ]);
    let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
    assert_eq!(ids, json!([holder, holder]), "no job bears the name, so none is promised");
    assert_eq!(client.state(&name), "unknown");
}

/// A job that is cancelled gives its id back, on whatever shard the next one with it is pushed.
#[test]
fn an_id_that_a_cancelled_job_had_is_free_at_once_for_every_shard() {
    let server = Start::new().env("SHARDS", 4).start();
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for round in 0..1500 {
        // By turns on connections that stay with queues of different shards.
        let (first, second) = (round % 4, (round + 1 + round / 4 % 3) % 4);
        let id = format!("id-{round}");
        let push = |client: &mut Client, queue: usize| {
            client.push_with(&format!("queue-{queue}"), round as u64, json!({"jobId": id}))
        };
        assert_eq!(push(&mut clients[first], first), id);
        clients[first].ok("Cancel", json!({"id": id}));
        assert_eq!(push(&mut clients[second], second), id);
        assert_eq!(clients[second].state(&id), "waiting", "round {round}");
    }
}
