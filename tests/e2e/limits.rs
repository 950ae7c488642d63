//! Limits of a queue. The fear: a limit that lets one through too many, or that never lets go.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{client, queue};

#[test]
fn no_more_jobs_are_active_than_the_concurrency_allows() {
    let (mut client, queue) = (client(), queue("concurrency"));
    for n in 0..5 {
        client.push(&queue, n);
    }
    client.ok("SetConcurrency", json!({"queue": queue, "limit": 2}));
    let pulled = client.ok("PULLB", json!({"queue": queue, "count": 5}));
    assert_eq!(pulled["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(client.pull(&queue), Value::Null);
    let mut worker = crate::client();
    worker.send("PULL", json!({"queue": queue, "timeout": 20_000})).unwrap();
    client.ok("ACK", json!({"id": pulled["jobs"][0]["id"]}));
    assert_eq!(worker.recv().unwrap()["job"]["data"], 2, "an end frees a place");
    client.ok("ClearConcurrency", json!({"queue": queue}));
    let rest = client.ok("PULLB", json!({"queue": queue, "count": 5}));
    assert_eq!(rest["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn no_more_jobs_leave_per_second_than_the_rate_allows() {
    let (mut client, queue) = (client(), queue("rate"));
    client.ok("RateLimit", json!({"queue": queue, "limit": 10}));
    for n in 0..15 {
        client.push(&queue, n);
    }
    let start = Instant::now();
    let mut got = 0;
    while got < 15 {
        let reply = client.ok("PULL", json!({"queue": queue, "timeout": 10_000}));
        assert!(reply["job"].is_object(), "a token arrives within the wait");
        got += 1;
    }
    // Ten at once, and the other five at ten a second.
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
    client.ok("RateLimitClear", json!({"queue": queue}));
    for n in 0..30 {
        client.push(&queue, n);
    }
    let reply = client.ok("PULLB", json!({"queue": queue, "count": 30}));
    assert_eq!(reply["jobs"].as_array().unwrap().len(), 30);
}

#[test]
fn limits_are_whole_numbers_from_one() {
    let (mut client, queue) = (client(), queue("limit-bounds"));
    for cmd in ["RateLimit", "SetConcurrency"] {
        for wrong in [json!(0), json!(-1), json!("two"), Value::Null] {
            let text = client.refused(cmd, json!({"queue": queue, "limit": wrong}));
            assert!(text.contains("limit"), "{cmd} {wrong}: {text}");
        }
    }
}
