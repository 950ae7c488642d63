//! Pushes. The fear: a job that is not what was pushed, and one that is answered before it is safe.

use serde_json::{Value, json};

use crate::support::{Client, Start};
use crate::{client, queue};

#[test]
fn a_push_answers_an_id_and_the_job_waits() {
    let (mut client, queue) = (client(), queue("push"));
    let id = client.push(&queue, json!({"n": 1}));
    assert_eq!(client.state(&id), "waiting");
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 1);
}

#[test]
fn ids_are_uuids_of_version_7_and_rise_within_a_queue() {
    let (mut client, queue) = (client(), queue("uuid"));
    let ids: Vec<String> = (0..100).map(|n| client.push(&queue, n)).collect();
    for id in &ids {
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'7'), "{id}");
    }
    assert!(ids.is_sorted(), "{ids:?}");
}

#[test]
fn a_batch_answers_one_id_per_job_in_its_order() {
    let (mut client, queue) = (client(), queue("batch"));
    let jobs: Vec<Value> = (0..1000).map(|n| json!({"data": n})).collect();
    let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let ids = reply["ids"].as_array().unwrap();
    assert_eq!(ids.len(), 1000);
    for n in [0, 1, 499, 999] {
        let job = client.ok("GetJob", json!({"id": ids[n]}))["job"].clone();
        assert_eq!(job["data"], n);
    }
}

#[test]
fn an_empty_batch_is_answered_with_no_ids() {
    let (mut client, queue) = (client(), queue("empty"));
    assert_eq!(client.ok("PUSHB", json!({"queue": queue, "jobs": []}))["ids"], json!([]));
}

#[test]
fn a_payload_may_have_10_mb_and_no_more() {
    let (mut client, queue) = (client(), queue("large"));
    let fits = "x".repeat((10 << 20) - 16);
    let id = client.push(&queue, fits.clone());
    let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
    assert!(job["data"] == fits.as_str(), "the payload changed");
    let over = "x".repeat((10 << 20) + 1);
    client.refused("PUSH", json!({"queue": queue, "data": over}));
    client.refused("PUSHB", json!({"queue": queue, "jobs": [{"data": over}]}));
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 1);
}

#[test]
fn the_record_of_a_job_carries_what_it_was_pushed_with() {
    let (mut client, queue) = (client(), queue("record"));
    let options = json!({
        "priority": 7, "maxAttempts": 9, "backoff": 250, "ttl": 600_000, "timeout": 5000,
        "tags": ["a", "b"], "groupId": "g", "lifo": true, "removeOnComplete": true,
        "removeOnFail": true, "uniqueKey": format!("key-{queue}"), "durable": true,
    });
    let id = client.push_with(&queue, json!({"deep": [1, {"x": null}]}), options.clone());
    let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
    for (field, value) in options.as_object().unwrap() {
        if field != "durable" {
            assert_eq!(job[field], *value, "{field} in {job}");
        }
    }
    assert_eq!(job["data"], json!({"deep": [1, {"x": null}]}));
    assert_eq!((&job["id"], &job["queue"]), (&json!(id), &json!(queue)));
    assert_eq!((&job["attempts"], &job["progress"]), (&json!(0), &json!(0)));
    assert_eq!((&job["startedAt"], &job["completedAt"]), (&Value::Null, &Value::Null));
    assert_eq!(job["state"], "waiting");
    assert!(job["createdAt"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(job["runAt"], job["createdAt"]);
}

/// Guards against a durable push that is answered with a job which a power loss may still take.
#[test]
fn a_durable_push_that_finds_a_job_in_its_place_waits_until_that_one_is_on_the_disk() {
    let start = Start::new().env("DURABILITY", "written").env("FSYNC_INTERVAL_MS", 60_000);
    let server = start.env("SHARDS", 2).start();
    let mut client = server.client();
    let syncs = |client: &mut Client| crate::e2e::space::metrics(client)["corq_log_syncs_total"];
    let first = |n: usize| match n % 2 {
        0 => json!({"uniqueKey": format!("key-{n}")}),
        _ => json!({"jobId": format!("id-{n}")}),
    };
    for n in 0..12 {
        let before = syncs(&mut client);
        let id = client.push_with(&format!("q{}", n / 2 % 3), 1, first(n));
        let mut second = first(n);
        second["durable"] = json!(true);
        // By its custom id it is found in another queue, too.
        let queue = format!("q{}", (n / 2 + n / 6) % 3);
        let queue = if n % 2 == 0 { format!("q{}", n / 2 % 3) } else { queue };
        let again = if n % 4 < 2 {
            client.push_with(&queue, 2, second)
        } else {
            second["data"] = json!(2);
            let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": [second]}));
            reply["ids"][0].as_str().unwrap().to_owned()
        };
        assert_eq!(again, id);
        assert!(syncs(&mut client) > before, "{n}: {}", first(n));
    }
}

#[test]
fn a_durable_push_is_answered_and_waits_like_any_other() {
    let (mut client, queue) = (client(), queue("durable"));
    let id = client.push_with(&queue, 1, json!({"durable": true}));
    assert_eq!(client.state(&id), "waiting");
}
