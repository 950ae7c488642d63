//! Every event, as it reaches a client: over SSE and WebSocket, of one queue and of all, whichever
//! shard it happens on. The fear: a dashboard that misses what happened, or shows what did not.

use serde_json::{Value as Json, json};

use crate::support::stream::{Sse, WebSocket};
use crate::support::{Client, Start, encode, frame, until};
use crate::{client, queue, shared};

/// A listener of each kind.
struct Ears {
    queue: String,
    sse: Sse,
    sse_of_all: Sse,
    websocket: WebSocket,
    websocket_of_all: WebSocket,
}

impl Ears {
    fn open(queue: &str) -> Self {
        let http = shared().http;
        Self {
            queue: queue.to_owned(),
            sse: Sse::open(http, &format!("/events/queues/{queue}")),
            sse_of_all: Sse::open(http, "/events"),
            websocket: WebSocket::open(http, &format!("/ws/queues/{queue}")),
            websocket_of_all: WebSocket::open(http, "/ws"),
        }
    }

    /// The next events of the queue are these on every stream, apart from their times.
    fn hear(&mut self, expected: &[Json]) {
        let Self { queue, sse, sse_of_all, websocket, websocket_of_all } = self;
        for expected in expected {
            check(sse.next(), queue, expected, "SSE of the queue");
            check(websocket.next(), queue, expected, "WebSocket of the queue");
            check(of_queue(queue, || sse_of_all.next()), queue, expected, "SSE of all");
            check(of_queue(queue, || websocket_of_all.next()), queue, expected, "WebSocket of all");
        }
    }
}

fn of_queue(queue: &str, mut next: impl FnMut() -> Json) -> Json {
    loop {
        let event = next();
        if event["queue"] == queue {
            return event;
        }
    }
}

fn check(mut event: Json, queue: &str, expected: &Json, stream: &str) {
    let fields = event.as_object_mut().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let time = fields.remove("timestamp").unwrap().as_u64().expect("an integer");
    assert!(now.as_millis().abs_diff(u128::from(time)) < 3_600_000, "{time}");
    assert_eq!(fields.remove("queue").unwrap(), queue);
    assert_eq!(event, *expected, "{stream}");
}

fn told(kind: &str, id: &str) -> Json {
    json!({"eventType": kind, "jobId": id})
}

fn with(mut event: Json, name: &str, value: impl Into<Json>) -> Json {
    event[name] = value.into();
    event
}

fn pushed(id: &str, data: impl Into<Json>) -> Json {
    with(told("pushed", id), "data", data)
}

/// A queue on each of the two shards that the shared server has: the tests of an event run on both.
fn queues(topic: &str) -> [String; 4] {
    std::array::from_fn(|_| queue(topic))
}

fn on_every_shard(topic: &str, test: impl Fn(&mut Client, &str, &mut Ears)) {
    for queue in queues(topic) {
        let mut ears = Ears::open(&queue);
        test(&mut client(), &queue, &mut ears);
    }
}

#[test]
fn pushed_comes_with_the_data() {
    on_every_shard("ev-pushed", |client, queue, ears| {
        let data = json!({"big": u64::MAX, "text": "ä\"\n", "list": [1.5, null, true]});
        // The client of the tests sends large integers as floats.
        let first = client.push(queue, json!([1, "x"]));
        let second = ears.websocket.ok("PUSH", json!({"queue": queue, "data": data}));
        let second = second["id"].as_str().unwrap().to_owned();
        let custom = client.push_with(queue, 1, json!({"jobId": format!("own-{queue}")}));
        let batch = client.ok("PUSHB", json!({"queue": queue, "jobs": [{"data": 1}, {"data": 2}]}));
        let ids: Vec<&str> =
            batch["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
        ears.hear(&[
            pushed(&first, json!([1, "x"])),
            pushed(&second, data.clone()),
            pushed(&custom, 1),
            pushed(ids[0], 1),
            pushed(ids[1], 2),
        ]);
        assert_eq!(custom, format!("own-{queue}"));
    });
}

#[test]
fn pulled_comes_for_each_job_that_is_delivered() {
    on_every_shard("ev-pulled", |client, queue, ears| {
        let ids = [client.push(queue, 1), client.push(queue, 2), client.push(queue, 3)];
        client.pull(queue);
        client.ok("PULLB", json!({"queue": queue, "count": 5}));
        let pulled = ids.iter().map(|id| told("pulled", id));
        let all: Vec<Json> = (1..).zip(&ids).map(|(n, id)| pushed(id, n)).chain(pulled).collect();
        ears.hear(&all);
    });
}

#[test]
fn completed_comes_with_the_result() {
    on_every_shard("ev-completed", |client, queue, ears| {
        for (result, shown) in [(json!({"a": [1]}), json!({"a": [1]})), (Json::Null, Json::Null)] {
            let id = client.push(queue, 1);
            client.pull(queue);
            client.ok("ACK", json!({"id": id, "result": result}));
            let done = with(told("completed", &id), "data", shown);
            ears.hear(&[pushed(&id, 1), told("pulled", &id), done]);
        }
    });
}

#[test]
fn failed_comes_with_the_error_on_every_attempt_and_retried_where_another_follows() {
    on_every_shard("ev-failed", |client, queue, ears| {
        let id = client.push_with(queue, 1, json!({"maxAttempts": 2, "backoff": 0}));
        for error in ["first \"line\"\nsecond", "again"] {
            assert_eq!(
                client.ok("PULL", json!({"queue": queue, "timeout": 60_000}))["job"]["id"],
                *id
            );
            client.ok("FAIL", json!({"id": id, "error": error}));
        }
        client.ok("RetryDlq", json!({"queue": queue}));
        let failed = |error: &str, terminal: bool| {
            let failed = with(told("failed", &id), "error", error);
            with(with(failed, "terminal", terminal), "data", 1)
        };
        let retried = |prev: &str| with(told("retried", &id), "prev", prev);
        ears.hear(&[
            pushed(&id, 1),
            told("pulled", &id),
            failed("first \"line\"\nsecond", false),
            retried("failed"),
            told("pulled", &id),
            failed("again", true),
            retried("failed"),
        ]);
        client.pull(queue);
        client.ok("ACK", json!({"id": id}));
        client.ok("RetryCompleted", json!({"queue": queue, "id": id}));
        let done = with(told("completed", &id), "data", Json::Null);
        ears.hear(&[told("pulled", &id), done, retried("completed")]);
    });
}

#[test]
fn progress_comes_with_the_progress() {
    on_every_shard("ev-progress", |client, queue, ears| {
        let id = client.push(queue, 1);
        client.pull(queue);
        client.ok("Progress", json!({"id": id, "progress": 50}));
        client.ok("Progress", json!({"id": id, "progress": 99.5, "message": "nearly"}));
        ears.hear(&[
            pushed(&id, 1),
            told("pulled", &id),
            with(told("progress", &id), "progress", 50),
            with(told("progress", &id), "progress", 99.5),
        ]);
    });
}

#[test]
fn stalled_comes_when_a_lock_runs_out() {
    on_every_shard("ev-stalled", |client, queue, ears| {
        let id = client.push(queue, 1);
        client.pull_owned(queue, 20);
        ears.hear(&[pushed(&id, 1), told("pulled", &id), told("stalled", &id)]);
    });
}

#[test]
fn removed_comes_with_the_state_the_job_was_in() {
    on_every_shard("ev-removed", |client, queue, ears| {
        let removed = |id: &str, prev: &str| with(told("removed", id), "prev", prev);
        let id = client.push(queue, 1);
        client.ok("Cancel", json!({"id": id}));
        ears.hear(&[pushed(&id, 1), removed(&id, "waiting")]);

        let id = client.push_with(queue, 1, json!({"delay": 60_000}));
        client.ok("Clean", json!({"queue": queue, "grace": 0, "state": "delayed"}));
        let delayed = with(told("delayed", &id), "delay", 60_000);
        ears.hear(&[pushed(&id, 1), delayed, removed(&id, "delayed")]);

        let id = client.push_with(queue, 1, json!({"ttl": 20}));
        ears.hear(&[pushed(&id, 1), removed(&id, "waiting")]);

        let id = client.push_with(queue, 1, json!({"maxAttempts": 1}));
        client.pull(queue);
        client.ok("FAIL", json!({"id": id, "error": "no"}));
        client.ok("PurgeDlq", json!({"queue": queue}));
        let failed = with(with(told("failed", &id), "error", "no"), "terminal", true);
        let failed = with(failed, "data", 1);
        ears.hear(&[pushed(&id, 1), told("pulled", &id), failed, removed(&id, "failed")]);
    });
}

#[test]
fn delayed_comes_with_the_delay() {
    on_every_shard("ev-delayed", |client, queue, ears| {
        let id = client.push_with(queue, 1, json!({"delay": 3_600_000_000_u64}));
        let delayed = |delay: u64| with(told("delayed", &id), "delay", delay);
        client.ok("Promote", json!({"id": id}));
        client.pull(queue);
        client.ok("MoveToDelayed", json!({"id": id, "delay": 5000}));
        ears.hear(&[pushed(&id, 1), delayed(3_600_000_000), told("pulled", &id), delayed(5000)]);
    });
}

#[test]
fn duplicated_comes_with_the_id_of_the_job_that_was_there() {
    on_every_shard("ev-duplicated", |client, queue, ears| {
        let id = client.push_with(queue, 1, json!({"uniqueKey": "k"}));
        assert_eq!(client.push_with(queue, 2, json!({"uniqueKey": "k"})), id);
        ears.hear(&[pushed(&id, 1), told("duplicated", &id)]);

        let own = format!("own-{queue}");
        client.push_with(queue, 1, json!({"jobId": own}));
        client.push_with(queue, 2, json!({"jobId": own}));
        let jobs = json!([{"data": 3, "customId": own}, {"data": 4, "customId": own}]);
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        let duplicated = told("duplicated", &own);
        ears.hear(&[pushed(&own, 1), duplicated.clone(), duplicated.clone(), duplicated]);
    });
}

#[test]
fn waiting_children_comes_for_a_job_whose_dependencies_are_unmet() {
    on_every_shard("ev-children", |client, queue, ears| {
        let child = client.push(queue, 1);
        let parent = client.push_with(queue, 2, json!({"dependsOn": [child]}));
        ears.hear(&[pushed(&child, 1), pushed(&parent, 2), told("waiting-children", &parent)]);
    });
}

#[test]
fn drained_comes_for_the_queue_behind_the_jobs_it_removed() {
    on_every_shard("ev-drained", |client, queue, ears| {
        let id = client.push(queue, 1);
        client.ok("Drain", json!({"queue": queue}));
        let removed = with(told("removed", &id), "prev", "waiting");
        ears.hear(&[pushed(&id, 1), removed, told("drained", "")]);
    });
}

#[test]
fn the_runs_of_a_repeated_job_are_told_with_its_data() {
    on_every_shard("ev-repeat", |client, queue, ears| {
        let repeat = json!({"every": 3_600_000, "limit": 2});
        let id = client.push_with(queue, json!({"n": 1}), json!({"repeat": repeat}));
        client.pull(queue);
        client.ok("ACK", json!({"id": id}));
        let done = with(told("completed", &id), "data", Json::Null);
        ears.hear(&[pushed(&id, json!({"n": 1})), told("pulled", &id), done]);
        let next = ears.sse.next();
        assert_eq!((&next["eventType"], &next["data"]), (&json!("pushed"), &json!({"n": 1})));
        assert_ne!(next["jobId"], *id);
    });
}

#[test]
fn data_that_is_on_the_disk_only_is_fetched_and_what_follows_waits_for_it() {
    // Four megabytes for payloads, which the next five push out.
    let server = Start::new().env("PAYLOAD_CACHE_MB", 4).env("SHARDS", 1).start();
    let mut client = server.client();
    let repeat = json!({"every": 3_600_000});
    let id = client.push_with("q", "cold", json!({"repeat": repeat}));
    client.pull("q");
    for _ in 0..12 {
        client.push("other", "x".repeat(1 << 20));
    }
    let reads = || {
        let metrics = client_metrics(&server);
        metrics
            .lines()
            .find_map(|line| line.strip_prefix("corq_log_cold_reads_total ")?.parse().ok())
    };
    let before: u64 = reads().unwrap();
    let mut sse = Sse::open(server.http, "/events/queues/q");
    client.ok("ACK", json!({"id": id}));
    let later = client.push("q", "later");
    let events: Vec<Json> = (0..4).map(|_| sse.next()).collect();
    let kinds: Vec<&Json> = events.iter().map(|event| &event["eventType"]).collect();
    assert_eq!(kinds, ["completed", "pushed", "delayed", "pushed"]);
    assert_eq!(events[1]["data"], "cold");
    assert_eq!((&events[3]["data"], &events[3]["jobId"]), (&json!("later"), &json!(later)));
    assert!(reads().unwrap() > before, "the test has found the data cold");
}

#[test]
fn too_many_events_behind_one_that_is_read_wait_no_longer() {
    const JOBS: usize = 10_050;
    let server = Start::new().env("PAYLOAD_CACHE_MB", 4).env("SHARDS", 1).start();
    let mut client = server.client();
    let id = client.push_with("q", "cold", json!({"repeat": {"every": 3_600_000}}));
    client.pull("q");
    for _ in 0..12 {
        client.push("other", "x".repeat(1 << 20));
    }
    let mut sse = Sse::open(server.http, "/events/queues/q");
    let jobs: Vec<Json> = (0..JOBS).map(|number| json!({"data": number})).collect();
    let mut frames = vec![frame(&encode(&json!({"cmd": "ACK", "id": id})))];
    frames.extend(
        jobs.chunks(JOBS / 2)
            .map(|jobs| frame(&encode(&json!({"cmd": "PUSHB", "queue": "q", "jobs": jobs})))),
    );
    client.send_bytes(&frames.concat()).unwrap();
    assert_eq!(sse.next()["eventType"], "completed");
    let run = sse.next();
    assert_eq!(run["eventType"], "pushed");
    assert!(run.get("data").is_none_or(|data| data == "cold"), "{run}");
    assert_eq!(sse.next()["eventType"], "delayed");
    for number in 0..JOBS {
        assert_eq!(sse.next()["data"], number);
    }
}

fn client_metrics(server: &crate::support::Server) -> String {
    let reply = server.client().ok("Prometheus", json!({}));
    reply["data"]["metrics"].as_str().unwrap().to_owned()
}

#[test]
fn an_event_that_would_be_longer_than_a_megabyte_comes_without_its_data() {
    on_every_shard("ev-long", |client, queue, ears| {
        let fits = "x".repeat((1 << 20) - 500);
        let first = client.push(queue, fits.clone());
        let second = client.push(queue, "x".repeat(1 << 20));
        // Short as it is stored, long as it is shown.
        let third = client.push(queue, "\u{1}".repeat(1 << 19));
        ears.hear(&[pushed(&first, fits), told("pushed", &second), told("pushed", &third)]);
    });
}

#[test]
fn a_stream_of_one_queue_gets_nothing_of_others() {
    let (one, other) = (queue("ev-one"), queue("ev-other"));
    let http = shared().http;
    let mut sse = Sse::open(http, &format!("/events/queues/{one}"));
    let mut websocket = WebSocket::open(http, &format!("/ws/queues/{one}"));
    let mut client = client();
    client.push(&other, 1);
    let id = client.push(&one, 1);
    assert_eq!(sse.next()["jobId"], *id);
    assert_eq!(websocket.next()["jobId"], *id);
}

#[test]
fn the_events_of_every_job_come_in_order_on_every_stream() {
    const JOBS: usize = 300;
    let names: Vec<String> = (0..6).map(|_| queue("ev-order")).collect();
    let mut ears: Vec<Ears> = names.iter().map(|queue| Ears::open(queue)).collect();
    let workers: Vec<_> = names
        .iter()
        .map(|queue| {
            let queue = queue.clone();
            std::thread::spawn(move || {
                let mut client = client();
                let jobs: Vec<Json> = (0..JOBS).map(|n| json!({"data": n})).collect();
                client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
                for _ in 0..JOBS {
                    let id = client.pull(&queue)["id"].clone();
                    client.ok("Progress", json!({"id": id, "progress": 1}));
                    client.ok("ACK", json!({"id": id}));
                }
            })
        })
        .collect();
    let expected = ["pushed", "pulled", "progress", "completed"];
    for (ears, queue) in ears.iter_mut().zip(&names) {
        let Ears { sse, sse_of_all, websocket, websocket_of_all, .. } = ears;
        let all = [
            collect(JOBS * 4, || sse.next()),
            collect(JOBS * 4, || websocket.next()),
            collect(JOBS * 4, || of_queue(queue, || sse_of_all.next())),
            collect(JOBS * 4, || of_queue(queue, || websocket_of_all.next())),
        ];
        for jobs in &all {
            assert_eq!(jobs.len(), JOBS);
            assert!(jobs.values().all(|steps| *steps == expected), "{jobs:?}");
        }
    }
    for worker in workers {
        worker.join().unwrap();
    }
}

fn collect(
    count: usize,
    mut next: impl FnMut() -> Json,
) -> std::collections::BTreeMap<String, Vec<String>> {
    let mut jobs: std::collections::BTreeMap<String, Vec<String>> =
        std::collections::BTreeMap::default();
    for _ in 0..count {
        let event = next();
        let text = |name: &str| event[name].as_str().unwrap().to_owned();
        jobs.entry(text("jobId")).or_default().push(text("eventType"));
    }
    jobs
}

#[test]
fn nobody_is_told_of_events_after_the_last_listener_has_left() {
    let server = Start::new().start();
    let mut client = server.client();
    let events = || {
        let metrics = client_metrics(&server);
        let line =
            |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        let counts: [Option<u64>; 3] = [
            line("corq_events_total "),
            line("corq_sse_streams "),
            line("corq_websocket_connections "),
        ];
        counts.map(Option::unwrap)
    };
    for number in 0..8 {
        client.push(&format!("q{number}"), 1);
    }
    assert_eq!(events(), [0, 0, 0]);
    let mut sse = Sse::open(server.http, "/events");
    let websocket = WebSocket::open(server.http, "/ws/queues/q1");
    for number in 0..8 {
        client.push(&format!("q{number}"), 1);
        sse.next();
    }
    let heard = events();
    assert!(heard[0] >= 8 && heard[1..] == [1, 1], "{heard:?}");
    drop((sse, websocket));
    until("both are gone", || (events()[1..] == [0, 0]).then_some(()));
    // A shard may hear a push before it hears that the last listener of another shard has gone.
    until("nobody is told of anything", || {
        let before = events()[0];
        for number in 0..8 {
            client.push(&format!("q{number}"), 1);
        }
        (events()[0] == before).then_some(())
    });
}
