//! Rates with a span and an end, what is left of them, and what a queue counts by the minute. The fear: a
//! limit that outlives its time, or whose end nobody notices who waits.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, Start, until};
use crate::{client, queue};

fn limits(client: &mut Client, queue: &str) -> Value {
    client.ok("GetQueueLimits", json!({"queue": queue}))["data"]["limits"].clone()
}

#[test]
fn a_rate_has_a_span_and_may_end_by_itself() {
    let (mut client, queue) = (client(), queue("span"));
    let none =
        json!({"rateLimit": null, "rateLimitTtl": -2, "concurrencyLimit": null, "maxed": false});
    assert_eq!(limits(&mut client, &queue), none);
    client.ok("RateLimit", json!({"queue": queue, "limit": 2, "duration": 1_000_000}));
    for n in 0..5 {
        client.push(&queue, n);
    }
    assert_eq!(limits(&mut client, &queue)["rateLimitTtl"], 0);
    let taken = client.ok("PULLB", json!({"queue": queue, "count": 9}))["jobs"].clone();
    assert_eq!(taken.as_array().unwrap().len(), 2);
    let now = limits(&mut client, &queue);
    assert_eq!(now["rateLimit"], json!({"max": 2, "duration": 1_000_000}));
    let wait = now["rateLimitTtl"].as_u64().unwrap();
    assert!((100_000..=500_000).contains(&wait), "{now}");
    let ends = |ttl: u64| json!({"queue": queue, "limit": 1, "duration": 1_000_000, "ttl": ttl});
    client.ok("RateLimit", ends(450_000));
    let left = limits(&mut client, &queue)["rateLimitTtl"].as_u64().unwrap();
    assert!((100_000..=450_000).contains(&left), "{left}");
    // A waiting pull is served when the rate ends, though no token has come.
    client.ok("RateLimit", ends(400));
    let pulled = client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
    assert!(pulled["job"].is_object());
    until("the end of it", || (limits(&mut client, &queue) == none).then_some(()));
    assert!(client.pull(&queue).is_object());
    client.ok("SetConcurrency", json!({"queue": queue, "limit": 3}));
    let now = limits(&mut client, &queue);
    assert_eq!((&now["concurrencyLimit"], &now["maxed"]), (&json!(3), &json!(true)));
}

#[test]
fn a_rate_with_span_and_end_outlives_a_kill_and_ends_all_the_same() {
    let mut server = Start::new().start();
    server.client().ok("RateLimit", json!({"queue": "q", "limit": 7, "duration": 60_000}));
    server.client().ok("RateLimit", json!({"queue": "p", "limit": 1, "ttl": 1000}));
    server.kill();
    server.start();
    let mut client = server.client();
    client.ok("Hello", json!({"protocolVersion": 2}));
    assert_eq!(limits(&mut client, "q")["rateLimit"], json!({"max": 7, "duration": 60_000}));
    until("the end of the other", || {
        (limits(&mut client, "p")["rateLimit"] == Value::Null).then_some(())
    });
    // A queue that has nothing else is gone with it.
    until("the queue to go", || {
        let queues = client.ok("ListQueues", json!({}))["queues"].clone();
        queues.as_array().unwrap().iter().all(|queue| queue["name"] != "p").then_some(())
    });
}

#[test]
fn a_queue_counts_what_it_completes_and_what_fails_by_the_minute() {
    let (mut client, queue) = (client(), queue("minutes"));
    let metrics = |client: &mut Client, kind: &str| {
        client.ok("Metrics", json!({"queue": queue, "type": kind}))["data"].clone()
    };
    assert_eq!(metrics(&mut client, "completed")["data"], json!([]));
    for n in 0..5 {
        let id = client.push_with(&queue, n, json!({"maxAttempts": 1}));
        client.pull(&queue);
        match n {
            0 | 1 => client.ok("FAIL", json!({"id": id, "error": "no"})),
            _ => client.ok("ACK", json!({"id": id})),
        };
    }
    for (kind, count) in [("completed", 3), ("failed", 2)] {
        let metrics = metrics(&mut client, kind);
        let counts = metrics["data"].as_array().unwrap();
        // The minute may have changed meanwhile.
        assert!(counts.len() <= 2 && metrics["count"] == counts.len(), "{metrics}");
        assert_eq!(counts.iter().filter_map(Value::as_u64).sum::<u64>(), count);
        assert_eq!(metrics["meta"]["count"], count);
        assert!(metrics["meta"]["prevTS"].as_u64() > Some(1_700_000_000_000), "{metrics}");
    }
}

#[test]
fn a_dead_job_is_removed_by_its_id() {
    let (mut client, queue) = (client(), queue("bin"));
    let id =
        client.push_with(&queue, 1, json!({"maxAttempts": 1, "jobId": format!("own-{queue}")}));
    let remove = |client: &mut Client, queue: &str, id: &str| {
        client.ok("RemoveDlqJob", json!({"queue": queue, "jobId": id}))["data"]["removed"].clone()
    };
    assert_eq!(remove(&mut client, &queue, &id), false, "it is not dead");
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "no"}));
    assert_eq!(remove(&mut client, "another", &id), false);
    assert_eq!(client.state(&id), "failed");
    assert_eq!(remove(&mut client, &queue, &id), true);
    assert_eq!(client.state(&id), "unknown");
    assert_eq!(remove(&mut client, &queue, &id), false);
}

#[test]
fn completed_jobs_are_run_again_by_number_and_by_time() {
    let (mut client, queue) = (client(), queue("again"));
    for n in 0..6 {
        client.push(&queue, n);
        let id = client.pull(&queue)["id"].clone();
        client.ok("ACK", json!({"id": id}));
        std::thread::sleep(Duration::from_millis(3));
    }
    let jobs = client.ok("GetJobs", json!({"queue": queue}))["jobs"].clone();
    let third = jobs[2]["completedAt"].clone();
    let again = |client: &mut Client, mut fields: Value| {
        fields["queue"] = queue.as_str().into();
        client.ok("RetryCompleted", fields)["count"].clone()
    };
    assert_eq!(again(&mut client, json!({"count": 1})), 1);
    assert_eq!(again(&mut client, json!({"timestamp": third})), 2);
    assert_eq!(again(&mut client, json!({"timestamp": third})), 0);
    assert_eq!(again(&mut client, json!({})), 3);
    assert_eq!(client.counted(&queue, "waiting"), 6);
}
