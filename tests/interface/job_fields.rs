//! Fields that clients of version 3 of the protocol read of jobs, events, workers and the server beside the first
//! contract. The fear: an option that a processor does not see, an event that says too little, a figure that is not
//! there.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::stream::{Sse, WebSocket};
use crate::support::{Client, Habit, Receiver, Start, until};
use crate::{client, queue, shared};

/// The names of the fields of an object.
pub(crate) fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Fields of a pulled job that was pushed with nothing but its data.
const PLAIN: [&str; 11] = [
    "id",
    "queue",
    "data",
    "priority",
    "createdAt",
    "runAt",
    "startedAt",
    "attempts",
    "maxAttempts",
    "stallCount",
    "progress",
];

/// The options of a pulled job that a plain one does not have.
fn options_of(job: &Value) -> Value {
    let mut options = job.clone();
    for name in PLAIN {
        let field = options.as_object_mut().unwrap().remove(name);
        assert!(field.is_some(), "no {name} in {job}");
    }
    options
}

#[test]
fn pulled_jobs_carry_the_options_that_they_were_pushed_with() {
    let (mut client, queue) = (client(), queue("given"));
    let own = format!("own-{queue}");
    for (given, shown) in [
        (json!({}), json!({})),
        (json!({"backoff": 1000, "lifo": false, "tags": [], "timeout": 0}), json!({})),
        (json!({"backoff": 0}), json!({"backoff": 0})),
        (json!({"backoff": 5000}), json!({"backoff": 5000})),
        (
            json!({"backoff": {"type": "fixed", "delay": 70, "maxDelay": 90}}),
            json!({
                "backoff": 70, "backoffConfig": {"type": "fixed", "delay": 70, "maxDelay": 90}
            }),
        ),
        (json!({"timeout": 60_000}), json!({"timeout": 60_000})),
        (json!({"uniqueKey": "k"}), json!({"uniqueKey": "k"})),
        (
            json!({"uniqueKey": "l", "dedup": {"ttl": 9000}}),
            json!({"uniqueKey": "l", "deduplicationTtl": 9000}),
        ),
        (json!({"jobId": own}), json!({"customId": own})),
        (json!({"tags": ["a", "ä"]}), json!({"tags": ["a", "ä"]})),
        (json!({"lifo": true}), json!({"lifo": true})),
        (json!({"stackTraceLimit": 0}), json!({"stackTraceLimit": 0})),
        (
            json!({"removeOnComplete": true, "removeOnFail": true}),
            json!({"removeOnComplete": true, "removeOnFail": true}),
        ),
        (json!({"name": "n", "groupId": "g"}), json!({"name": "n", "groupId": "g"})),
    ] {
        client.push_with(&queue, 1, given.clone());
        let job = client.pull(&queue);
        assert_eq!(options_of(&job), shown, "pushed with {given}");
        client.ok("ACK", json!({"id": job["id"]}));
    }
    // In one batch, and over HTTP.
    let jobs = json!([{"data": 1, "tags": ["x"], "backoff": 7}, {"data": 2}]);
    for _ in 0..2 {
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    }
    let pulled = client.ok("PULLB", json!({"queue": queue, "count": 2}))["jobs"].clone();
    assert_eq!(options_of(&pulled[0]), json!({"tags": ["x"], "backoff": 7}));
    assert_eq!(options_of(&pulled[1]), json!({}));
    let (job, _) = shared().web().pull(&queue);
    assert_eq!(options_of(&job), json!({"tags": ["x"], "backoff": 7}));
}

#[test]
fn tags_come_with_a_payload_that_is_read_from_the_disk() {
    let server = Start::new().env("PAYLOAD_CACHE_MB", 4).env("SHARDS", 1).start();
    let mut client = server.client();
    let tagged = json!({"tags": ["a", "b"], "priority": 3});
    let jobs = json!([
        {"data": "x".repeat(1000), "tags": ["a", "b"], "name": "n"},
        {"data": 2},
        {"data": "z".repeat(70_000), "name": "no tags"},
        {"data": 4, "tags": ["c"]},
    ]);
    client.ok("PUSHB", json!({"queue": "cold", "jobs": jobs}));
    client.push_with("cold-web", 5, tagged);
    for _ in 0..24 {
        client.push("other", "y".repeat(1 << 20));
    }
    let reads = |client: &mut Client| {
        let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let line = text.as_str().unwrap().lines().find_map(|line| {
            line.strip_prefix("corq_log_cold_reads_total ").map(ToOwned::to_owned)
        });
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = reads(&mut client);
    let pulled = client.ok("PULLB", json!({"queue": "cold", "count": 4}))["jobs"].clone();
    assert!(reads(&mut client) >= before + 4, "the test has found the payloads cold");
    let options: Vec<Value> = pulled.as_array().unwrap().iter().map(options_of).collect();
    assert_eq!(
        options,
        [
            json!({"name": "n", "tags": ["a", "b"]}),
            json!({}),
            json!({"name": "no tags"}),
            json!({"tags": ["c"]}),
        ]
    );
    assert_eq!(pulled[0]["data"], "x".repeat(1000));
    assert_eq!((&pulled[1]["data"], &pulled[3]["data"]), (&json!(2), &json!(4)));
    let (job, _) = server.web().pull("cold-web");
    assert_eq!((options_of(&job), &job["data"]), (json!({"tags": ["a", "b"]}), &json!(5)));
}

/// The next frame, which must be an event.
fn event(client: &mut Client) -> Value {
    let frame = client.recv().unwrap();
    assert_eq!(frame["type"], "event", "{frame}");
    frame["event"].clone()
}

#[test]
fn queues_tell_that_they_are_paused_and_resumed() {
    // Queues of either shard.
    for _ in 0..4 {
        let (mut client, queue) = (client(), queue("paused"));
        let mut listener = shared().client();
        listener.ok("SubscribeEvents", json!({"queue": queue}));
        let mut sse = Sse::open(shared().http, &format!("/events/queues/{queue}"));
        let mut websocket = WebSocket::open(shared().http, &format!("/ws/queues/{queue}"));
        client.ok("Resume", json!({"queue": queue}));
        for cmd in ["Pause", "Pause", "Resume"] {
            client.ok(cmd, json!({"queue": queue}));
        }
        for expected in ["paused", "resumed"] {
            for event in [event(&mut listener), sse.next(), websocket.next()] {
                assert_eq!(event["eventType"], expected, "{event}");
                assert_eq!((&event["queue"], &event["jobId"]), (&json!(queue), &json!("")));
                assert!(event["timestamp"].as_u64().unwrap() > 1_700_000_000_000);
            }
        }
    }
}

#[test]
fn failed_says_whether_another_attempt_follows_and_what_the_job_was() {
    let (mut client, queue) = (client(), queue("failed"));
    let mut listener = shared().client();
    listener.ok("SubscribeEvents", json!({"queue": queue}));
    let mut sse = Sse::open(shared().http, &format!("/events/queues/{queue}"));
    let id = client.push_with(&queue, json!({"n": 7}), json!({"maxAttempts": 2, "backoff": 0}));
    for _ in 0..2 {
        client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
        client.ok("FAIL", json!({"id": id, "error": "no"}));
    }
    let failed = |next: &mut dyn FnMut() -> Value| -> Vec<Value> {
        // Pushed, twice pulled and failed, and once retried.
        let events: Vec<Value> = (0..6).map(|_| next()).collect();
        events.into_iter().filter(|event| event["eventType"] == "failed").collect()
    };
    for events in [failed(&mut || event(&mut listener)), failed(&mut || sse.next())] {
        let terminal: Vec<&Value> = events.iter().map(|event| &event["terminal"]).collect();
        assert_eq!(terminal, [false, true], "another attempt follows, and none");
        for event in &events {
            assert_eq!((&event["error"], &event["data"]), (&json!("no"), &json!({"n": 7})));
        }
    }
}

#[test]
fn a_failed_event_loses_the_data_that_does_not_fit_and_keeps_the_error() {
    let (mut client, queue) = (client(), queue("failed"));
    let mut listener = shared().client();
    listener.ok("SubscribeEvents", json!({"queue": queue}));
    let id = client.push_with(&queue, "x".repeat(2 << 20), json!({"maxAttempts": 1}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "no"}));
    let events: Vec<Value> = (0..3).map(|_| event(&mut listener)).collect();
    let failed = &events[2];
    assert_eq!((&failed["eventType"], &failed["error"]), (&json!("failed"), &json!("no")));
    assert_eq!((&failed["terminal"], failed.get("data")), (&json!(true), None));
}

#[test]
fn retried_tells_what_the_job_was_before() {
    let (mut client, queue) = (client(), queue("retried"));
    let mut listener = shared().client();
    listener.ok("SubscribeEvents", json!({"queue": queue}));
    let mut prev = || loop {
        let event = event(&mut listener);
        if event["eventType"] == "retried" {
            return event["prev"].clone();
        }
    };
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 2, "backoff": 0}));
    let fail = |client: &mut Client| {
        client.ok("PULL", json!({"queue": queue, "timeout": 60_000}));
        client.ok("FAIL", json!({"id": id, "error": "no"}));
    };
    fail(&mut client);
    assert_eq!(prev(), "failed", "the attempt has failed");
    fail(&mut client);
    client.ok("RetryDlq", json!({"queue": queue}));
    assert_eq!(prev(), "failed");
    client.pull(&queue);
    client.ok("MoveToWait", json!({"id": id}));
    assert_eq!(prev(), "active");
    client.pull(&queue);
    client.ok("ACK", json!({"id": id}));
    client.ok("RetryCompleted", json!({"queue": queue, "id": id}));
    assert_eq!(prev(), "completed");
}

#[test]
fn webhooks_take_job_pushed_and_job_started() {
    let server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let mut client = server.client();
    let [named, all] = [(); 2].map(|()| Receiver::always(Habit::Status(200)));
    let events = ["job.pushed", "job.started"];
    let added = client.ok("AddWebhook", json!({"url": named.url(), "events": events}));
    assert_eq!(added["data"]["events"], json!(events));
    client.ok("AddWebhook", json!({"url": all.url(), "events": []}));
    let id = client.push("q", json!({"n": 1}));
    client.pull("q");
    client.ok("ACK", json!({"id": id}));
    let told = |receiver: &Receiver| -> Vec<String> {
        let posts = receiver.posts();
        let bodies = posts.iter().map(|post| serde_json::from_str::<Value>(post.text()).unwrap());
        bodies.map(|body| body["event"].as_str().unwrap().to_owned()).collect()
    };
    until("all events are posted", || (told(&all).len() == 3).then_some(()));
    assert_eq!(told(&all), ["job.waiting", "job.active", "job.completed"], "each step once");
    until("those that were asked for are posted", || (told(&named).len() == 2).then_some(()));
    assert_eq!(told(&named), events);
    let body: Value = serde_json::from_str(named.posts()[0].text()).unwrap();
    assert_eq!((&body["jobId"], &body["data"]), (&json!(id), &json!({"n": 1})));
    let listed = client.ok("ListWebhooks", json!({}))["data"]["webhooks"].clone();
    assert!(listed.as_array().unwrap().iter().any(|one| one["events"] == json!(events)));
}

#[test]
fn a_job_without_a_key_shows_no_deduplication() {
    let (mut client, queue) = (client(), queue("dedup"));
    let id = client.push(&queue, 1);
    let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
    assert_eq!(job["deduplicationTtl"], Value::Null);
    assert!(names(&job).contains("deduplicationTtl"), "absent is taken for a key");
    assert_eq!((&job["uniqueKey"], job.get("deduplicationExtend")), (&Value::Null, None));
    let keyed = json!({"uniqueKey": "k", "dedup": {"ttl": 5000, "extend": true}});
    let id = client.push_with(&queue, 1, keyed);
    let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
    assert_eq!((&job["deduplicationTtl"], &job["uniqueKey"]), (&json!(5000), &json!("k")));
    assert_eq!(job["deduplicationExtend"], true);
}

#[test]
fn a_timestamp_long_ago_is_no_delay_of_years() {
    let (mut client, queue) = (client(), queue("old"));
    let long_ago = 946_684_800_000_u64;
    let now = client.time();
    // Clients tell the delay of a job by the time between these two.
    for (given, delay) in [
        (json!({"timestamp": long_ago}), 0),
        (json!({"timestamp": long_ago, "delay": 5000}), 0),
        (json!({"timestamp": now - 1000, "delay": 3_600_000}), 3_600_000),
    ] {
        let id = client.push_with(&queue, 1, given.clone());
        let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
        let [made, due] = ["createdAt", "runAt"].map(|name| job[name].as_u64().unwrap());
        assert_eq!((made, due - made), (given["timestamp"].as_u64().unwrap(), delay), "{given}");
        let first = if delay > 0 { "delayed" } else { "waiting" };
        assert_eq!(job["timeline"][0]["state"], first, "{job}");
    }
    let job = client.pull(&queue);
    assert_eq!(job["createdAt"], job["runAt"]);
}

#[test]
fn workers_show_where_they_run_and_what_they_say_of_their_work() {
    let (mut client, queue) = (client(), queue("work"));
    let id = format!("worker-{queue}");
    let about = json!({
        "name": "w", "queues": [queue], "workerId": id, "concurrency": 8, "hostname": "host-1",
        "pid": 4711, "startedAt": 1.5
    });
    let registered = client.ok("RegisterWorker", about)["data"].clone();
    let of_host = |worker: &Value| {
        ["concurrency", "hostname", "pid", "status"].map(|name| worker[name].clone())
    };
    let expected = [json!(8), json!("host-1"), json!(4711), json!("active")];
    assert_eq!((of_host(&registered), &registered["workerId"]), (expected.clone(), &json!(id)));
    assert_eq!((&registered["activeJobs"], &registered["processedJobs"]), (&json!(0), &json!(0)));
    let listed = |client: &mut Client| {
        let data = client.ok("ListWorkers", json!({}))["data"].clone();
        let workers = data["workers"].as_array().unwrap().clone();
        let own = workers.into_iter().find(|worker| worker["id"] == *id).unwrap();
        (own, data["stats"].clone())
    };
    let (worker, stats) = listed(&mut client);
    assert_eq!(of_host(&worker), expected);
    assert!(worker["lastSeen"].as_u64() >= worker["registeredAt"].as_u64());
    assert!(worker["uptime"].is_u64() && stats["concurrencySlots"].as_u64() >= Some(8));
    // Jobs that the worker pulls by other connections are known only by its own report.
    let counts = json!({"id": id, "activeJobs": 3, "processed": 20, "failed": 4});
    shared().client().ok("Heartbeat", counts);
    client.ok("Heartbeat", json!({"id": id}));
    let (worker, _) = listed(&mut client);
    let counted =
        ["activeJobs", "processedJobs", "failedJobs"].map(|name| worker[name].as_u64().unwrap());
    assert_eq!(counted, [3, 20, 4]);
    for (field, wrong) in [("concurrency", json!(-1)), ("pid", json!("1")), ("hostname", json!(1))]
    {
        let mut about = json!({"name": "w", "queues": []});
        about[field] = wrong;
        assert!(client.refused("RegisterWorker", about).starts_with(field), "{field}");
    }
}

#[test]
fn a_completed_job_has_the_progress_100() {
    let (mut client, queue) = (client(), queue("progress"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    client.ok("Progress", json!({"id": id, "progress": 40}));
    let progress = |client: &mut Client| {
        let job = client.ok("GetJob", json!({"id": id}))["job"]["progress"].clone();
        assert_eq!(client.ok("GetProgress", json!({"id": id}))["progress"], job);
        job
    };
    assert_eq!(progress(&mut client), 40);
    client.ok("ACK", json!({"id": id}));
    assert_eq!(progress(&mut client), 100);
    client.ok("RetryCompleted", json!({"queue": queue, "id": id}));
    assert_eq!(progress(&mut client), 0);
}

#[test]
fn dead_letters_that_have_expired_stay_marked_until_they_are_purged() {
    let server = Start::new().env("DLQ_EXPIRED_KEPT_MS", 3_600_000).start();
    let mut client = server.client();
    let config = json!({"maxAge": 1, "autoRetry": true, "autoRetryInterval": 1_800_000});
    client.ok("SetDlqConfig", json!({"queue": "q", "config": config}));
    let id = client.push_with("q", 1, json!({"maxAttempts": 1}));
    client.pull("q");
    client.ok("FAIL", json!({"id": id, "error": "no"}));
    let expired = json!({"queue": "q", "filter": {"expired": true}});
    let entry = until("it has expired", || {
        let entries = client.ok("Dlq", expired.clone())["entries"].clone();
        entries.get(0).cloned()
    });
    assert!(entry["expiresAt"].as_u64() > entry["enteredAt"].as_u64(), "{entry}");
    assert_eq!(entry["nextRetryAt"], Value::Null, "it is tried anew no more");
    let stats = client.ok("GetDlqStats", json!({"queue": "q"}))["data"]["stats"].clone();
    assert_eq!((&stats["total"], &stats["expired"]), (&json!(1), &json!(1)));
    assert_eq!(stats["pendingRetry"], 0);
    assert_eq!(client.state(&id), "failed");
    assert_eq!(client.ok("PurgeDlq", json!({"queue": "q"}))["count"], 1);
    assert_eq!(client.state(&id), "unknown");
}

#[test]
fn dead_letters_that_have_expired_are_removed_after_a_while() {
    let server = Start::new().env("DLQ_EXPIRED_KEPT_MS", 50).start();
    let mut client = server.client();
    client.ok("SetDlqConfig", json!({"queue": "q", "config": {"maxAge": 1}}));
    let id = client.push_with("q", 1, json!({"maxAttempts": 1}));
    client.pull("q");
    client.ok("FAIL", json!({"id": id, "error": "no"}));
    until("it is gone", || (client.state(&id) == "unknown").then_some(()));
}

#[test]
fn a_waiting_job_can_be_moved_to_delayed() {
    let (mut client, queue) = (client(), queue("put-off"));
    let id = client.push(&queue, 1);
    client.ok("MoveToDelayed", json!({"id": id, "delay": 3_600_000}));
    assert_eq!(client.state(&id), "delayed");
    client.ok("MoveToDelayed", json!({"id": id, "delay": 7_200_000}));
    let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
    assert!(job["runAt"].as_u64().unwrap() >= job["createdAt"].as_u64().unwrap() + 7_200_000);
    assert_eq!(client.pull(&queue), Value::Null);
    client.ok("Promote", json!({"id": id}));
    assert_eq!(client.pull(&queue)["id"], *id);
    client.ok("ACK", json!({"id": id}));
    let refused = client.refused("MoveToDelayed", json!({"id": id, "delay": 1}));
    assert_eq!(refused, "Job not found or not active");
}

#[test]
fn metrics_come_under_a_second_prefix_if_it_is_set() {
    let server = Start::new().env("METRICS_PREFIX", "bunqueue").start();
    let mut client = server.client();
    client.push("q", 1);
    for text in [
        client.ok("Prometheus", json!({}))["data"]["metrics"].as_str().unwrap().to_owned(),
        server.web().get("/prometheus").text().to_owned(),
    ] {
        for line in ["jobs_pushed_total 1", "queue_jobs_waiting{queue=\"q\"} 1"] {
            for prefix in ["corq", "bunqueue"] {
                let line = format!("{prefix}_{line}");
                assert_eq!(text.lines().filter(|it| *it == line).count(), 1, "{line}");
            }
        }
    }
    let text = shared().web().get("/prometheus").text().to_owned();
    assert!(text.lines().all(|line| line.contains("corq_")), "one prefix is the default");
}

#[test]
fn a_metrics_prefix_that_is_none_stops_the_start_with_its_bound() {
    let data = tempfile::tempdir().unwrap();
    for wrong in ["7up", "a-b", "corq"] {
        let start = Start::new().env("METRICS_PREFIX", wrong);
        let (status, output) = start.run_to_its_end(data.path());
        assert!(!status.success() && output.contains("METRICS_PREFIX"), "{wrong}: {output}");
    }
}
