//! Limits of a queue. The fear: a limit that lets one through too many, or that never lets go.

use serde_json::{Value, json};

use crate::support::Start;
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
    worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
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
    let mut times = Vec::new();
    while times.len() < 15 {
        let reply = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
        assert!(reply["job"].is_object(), "a token arrives within the wait");
        times.push(reply["job"]["startedAt"].as_u64().unwrap());
    }
    // Ten at once, and the other five at ten a second.
    assert!(times[14] - times[0] >= 450, "{times:?}");
    client.ok("RateLimitClear", json!({"queue": queue}));
    for n in 0..30 {
        client.push(&queue, n);
    }
    let reply = client.ok("PULLB", json!({"queue": queue, "count": 30}));
    assert_eq!(reply["jobs"].as_array().unwrap().len(), 30);
}

#[test]
fn a_token_wakes_the_worker_that_has_waited_longest() {
    let (mut client, queue) = (client(), queue("rate-wake"));
    client.ok("RateLimit", json!({"queue": queue, "limit": 1, "duration": 3_600_000}));
    for n in 0..4 {
        client.push(&queue, n);
    }
    assert_eq!(client.pull(&queue)["data"], 0);
    let mut workers = [crate::client(), crate::client(), crate::client()];
    for worker in &mut workers {
        worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
        // The reply to a later question shows that the pull has begun to wait.
        assert_eq!(worker.ok("IsPaused", json!({"queue": queue}))["paused"], false);
    }
    // The first job comes at once, and the others one after the other.
    client.ok("RateLimit", json!({"queue": queue, "limit": 1, "duration": 300}));
    for (n, worker) in workers.iter_mut().enumerate() {
        assert_eq!(worker.recv().unwrap()["job"]["data"], 1 + n);
    }
}

#[test]
fn a_limit_makes_a_queue_exist_and_an_obliterate_takes_it() {
    let server = Start::new().start();
    let mut client = server.client();
    for (cmd, clear) in [("RateLimit", "RateLimitClear"), ("SetConcurrency", "ClearConcurrency")] {
        let names = |client: &mut crate::Client| {
            client.ok("ListQueues", json!({}))["queues"].as_array().unwrap().len()
        };
        client.ok(cmd, json!({"queue": "q", "limit": 1}));
        assert_eq!(names(&mut client), 1, "{cmd}");
        client.ok(clear, json!({"queue": "q"}));
        assert_eq!(names(&mut client), 0, "{clear}");
        client.ok(cmd, json!({"queue": "q", "limit": 1}));
        client.ok("Obliterate", json!({"queue": "q"}));
        assert_eq!(names(&mut client), 0, "Obliterate after {cmd}");
    }
}
