//! Deduplication keys. The fear: jobs that share one in a batch, or by the thousand, end the server, or a
//! client gets another job's id.

use serde_json::{Value, json};

use crate::support::{Client, Start};
use crate::{client, queue};

fn data_of(client: &mut Client, id: &Value) -> Value {
    client.ok("GetJob", json!({"id": id}))["job"]["data"].clone()
}

#[test]
fn each_place_of_a_batch_tells_its_own_id_though_a_later_one_takes_its_place() {
    let mut client = client();
    let replace = json!({"replace": true});
    let key = |data: u64| json!({"data": data, "uniqueKey": "k"});
    let replacing = |data: u64| json!({"data": data, "uniqueKey": "k", "dedup": replace});
    let debounced = |data: u64| json!({"data": data, "debounceId": "k", "debounceTtl": 60_000, "delay": 60_000, "dedup": replace});
    let other = |data: u64| json!({"data": data});
    // A job there is before, the batch, and the places that are gone afterwards.
    let batches = [
        (false, vec![replacing(1), replacing(2)], vec![0]),
        (false, vec![key(1), replacing(2), other(3)], vec![0]),
        (false, vec![debounced(1), debounced(2), debounced(3), other(4)], vec![0, 1]),
        (true, vec![key(1), replacing(2), other(3)], vec![0]),
        (true, vec![replacing(1), other(2), replacing(3), other(4)], vec![0]),
    ];
    for named in [false, true] {
        for (before, jobs, gone) in &batches {
            let queue = queue("batch");
            let own = |place: usize| format!("{queue}-{place}");
            let old = before.then(|| client.push_with(&queue, 0, json!({"uniqueKey": "k"})));
            let mut jobs = jobs.clone();
            if named {
                jobs.iter_mut()
                    .enumerate()
                    .for_each(|(place, job)| job["jobId"] = json!(own(place)));
            }
            let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
            let ids = ids.as_array().unwrap();
            assert_eq!(ids.len(), jobs.len());
            for (place, (id, job)) in ids.iter().zip(&jobs).enumerate() {
                let what = format!("place {place} of {jobs:?}: {id}");
                // A plain job was a duplicate of what was there, which the next one has replaced.
                let duplicate = place == 0 && job["dedup"].is_null() && old.is_some();
                if duplicate {
                    assert_eq!(Some(id), old.as_deref().map(Value::from).as_ref(), "{what}");
                } else if named {
                    assert_eq!(id, &json!(own(place)), "{what}");
                }
                if gone.contains(&place) {
                    assert_eq!(client.state(id.as_str().unwrap()), "unknown", "{what}");
                } else {
                    assert_eq!(data_of(&mut client, id), job["data"], "{what}");
                }
            }
            if named {
                // The names of what is gone are free, also that of a job which was never made.
                let again = json!({"jobId": own(0), "delay": 60_000});
                assert_eq!(client.push_with(&queue, 9, again), own(0));
                assert_eq!(data_of(&mut client, &json!(own(0))), 9);
            }
        }
    }
}

#[test]
fn any_number_of_jobs_may_hold_a_key_also_after_a_start() {
    const CROWD: u64 = 10_000;
    let mut server = Start::new().start();
    let mut client = server.client();
    for _ in 0..CROWD {
        let id = client.push_with("q", 1, json!({"uniqueKey": "k", "dedup": {"ttl": 1}}));
        assert_eq!(client.pull("q")["id"], id.as_str());
        client.ok("ACK", json!({"id": id}));
    }
    assert_eq!(client.ok("RetryCompleted", json!({"queue": "q"}))["count"], CROWD);
    let held = |client: &mut Client| client.push_with("q", 2, json!({"uniqueKey": "k"}));
    let first = held(&mut client);
    assert_eq!(held(&mut client), first);
    assert_eq!(client.counted("q", "waiting"), CROWD + 1, "the times of all others are over");
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(held(&mut client), first);
    let key = json!({"queue": "q", "deduplicationId": "k"});
    assert_eq!(client.ok("RemoveDeduplicationKey", key.clone())["data"]["count"], 1);
    assert_eq!(client.ok("RemoveDeduplicationKey", key)["data"]["count"], 0);
    assert_ne!(held(&mut client), first);
    assert_eq!(client.counted("q", "waiting"), CROWD + 2);
}
