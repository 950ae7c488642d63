//! Jobs that belong to a trace. The fear: a trace that ends where a job begins, because its context is lost on the way to
//! the worker, in a retry or in a restart.

use serde_json::{Value, json};

use crate::support::stream::Sse;
use crate::support::{Client, Habit, Receiver, Start, until};
use crate::{client, queue, shared};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";

/// The trace in a job, an event or the like.
fn trace_of(shown: &Value) -> (Option<&str>, Option<&str>) {
    let text = |name: &str| shown.get(name).map(|text| text.as_str().unwrap());
    (text("traceparent"), text("tracestate"))
}

fn job(client: &mut Client, id: &str) -> Value {
    client.ok("GetJob", json!({"id": id}))["job"].clone()
}

const BOTH: (Option<&str>, Option<&str>) = (Some(PARENT), Some(STATE));

#[test]
fn a_trace_comes_back_with_its_job_wherever_it_is_shown() {
    let (mut client, queue) = (client(), queue("traced"));
    let mut events = Sse::open(shared().http, &format!("/events/queues/{queue}"));
    let trace = json!({"traceparent": PARENT, "tracestate": STATE});
    let id = client.push_with(&queue, 1, trace);
    assert_eq!(trace_of(&job(&mut client, &id)), BOTH);
    let pulled = client.pull(&queue);
    assert_eq!(trace_of(&pulled), BOTH);
    client.ok("ACK", json!({"id": id}));
    for kind in ["pushed", "pulled", "completed"] {
        let event = events.next();
        assert_eq!((event["eventType"].as_str(), trace_of(&event)), (Some(kind), BOTH));
    }
    assert_eq!(trace_of(&job(&mut client, &id)), BOTH);
    // In a batch, without a state, and not at all.
    let jobs = json!([{"data": 1, "traceparent": OTHER}, {"data": 2}]);
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let pulled = client.ok("PULLB", json!({"queue": queue, "count": 2}))["jobs"].clone();
    assert_eq!(trace_of(&pulled[0]), (Some(OTHER), None));
    assert_eq!(trace_of(&pulled[1]), (None, None));
    let flow = json!([{"id": queue, "queue": queue, "input": {"data": 3, "traceparent": PARENT}}]);
    client.ok("PUSHF", json!({"jobs": flow}));
    assert_eq!(trace_of(&client.pull(&queue)), (Some(PARENT), None));
}

#[test]
fn a_trace_outlives_failed_attempts_the_dead_letter_queue_and_a_kill() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let trace = json!({
        "traceparent": PARENT, "tracestate": STATE, "maxAttempts": 2, "backoff": 0
    });
    let id = client.push_with("q", 1, trace);
    for _ in 0..2 {
        assert_eq!(trace_of(&client.pull("q")), BOTH);
        client.ok("FAIL", json!({"id": id, "error": "no"}));
    }
    assert_eq!(client.state(&id), "failed");
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(trace_of(&job(&mut client, &id)), BOTH);
    client.ok("RetryDlq", json!({"queue": "q"}));
    assert_eq!(trace_of(&client.pull("q")), BOTH);
}

#[test]
fn jobs_of_a_schedule_belong_to_the_trace_that_it_names() {
    let (mut client, queue) = (client(), queue("traced-cron"));
    let cron = json!({
        "name": queue, "queue": queue, "data": 1, "schedule": "0 0 1 1 *",
        "jobOptions": {"traceparent": PARENT, "tracestate": STATE},
    });
    client.ok("Cron", cron);
    client.ok("CronTrigger", json!({"name": queue}));
    assert_eq!(trace_of(&client.pull(&queue)), BOTH);
    let wrong = json!({
        "name": queue, "queue": queue, "data": 1, "schedule": "0 0 1 1 *",
        "jobOptions": {"traceparent": "junk"},
    });
    let refused = client.refused("Cron", wrong);
    assert!(refused.starts_with("jobOptions.traceparent must be 00-"), "{refused}");
}

#[test]
fn headers_of_a_push_name_its_trace_unless_its_body_does() {
    let queue = queue("traced-web");
    let path = format!("/queues/{queue}/jobs");
    let mut web = shared().web();
    let both = [("traceparent", PARENT), ("tracestate", STATE)];
    for (headers, body, expected) in [
        (&both[..], json!({"data": 1}), BOTH),
        (&both, json!({"data": 1, "traceparent": OTHER}), (Some(OTHER), None)),
        (&both[..1], json!({"data": 1}), (Some(PARENT), None)),
        (&both[1..], json!({"data": 1}), (None, None)),
        (&[("Traceparent", "00-junk")], json!({"data": 1}), (None, None)),
        (&[both[0], both[0]], json!({"data": 1}), (None, None)),
        (&[both[0], ("tracestate", "no state")], json!({"data": 1}), (Some(PARENT), None)),
        (
            &[both[0], ("tracestate", "a=1"), ("tracestate", "b=2")],
            json!({"data": 1}),
            (Some(PARENT), Some("a=1,b=2")),
        ),
    ] {
        let answer = web.call("POST", &path, headers, body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let (job, token) = web.pull(&queue);
        assert_eq!(trace_of(&job), expected, "{headers:?} {body}");
        let id = job["id"].as_str().unwrap();
        web.post(&format!("/jobs/{id}/ack"), json!({"token": token})).expect(200);
    }
    let refused = web.post(&path, json!({"data": 1, "traceparent": "00-junk"})).refused(400);
    assert!(refused.starts_with("traceparent must be"), "{refused}");
}

/// The traces of all jobs of a queue, in their order.
fn traces_of_all(client: &mut Client, queue: &str, count: usize) -> Vec<(Option<String>, bool)> {
    let mut traces = Vec::new();
    while traces.len() < count {
        let pulled = client.ok("PULLB", json!({"queue": queue, "count": 1000}));
        for job in pulled["jobs"].as_array().unwrap() {
            let (parent, state) = trace_of(job);
            assert!(state.is_none_or(|state| state == STATE));
            traces.push((parent.map(ToOwned::to_owned), state.is_some()));
        }
    }
    traces
}

#[test]
fn the_trace_of_a_batch_or_a_flow_is_that_of_its_jobs_that_name_none() {
    let mut client = client();
    let web = &mut shared().web();
    let (outer, own) = ((Some(PARENT.to_owned()), true), (Some(OTHER.to_owned()), false));
    // Short ones, and ones that are read in slices.
    for count in [3, 5000] {
        let payload = "x".repeat(100);
        let job = |n: usize| match n % 3 {
            1 => json!({"data": payload, "traceparent": OTHER}),
            _ => json!({"data": payload}),
        };
        let jobs: Vec<Value> = (0..count).map(job).collect();
        let expected: Vec<_> =
            (0..count).map(|n| if n % 3 == 1 { own.clone() } else { outer.clone() }).collect();
        let of_frame = queue("traced-batch");
        client.ok(
            "PUSHB",
            json!({"queue": of_frame, "jobs": jobs, "traceparent": PARENT, "tracestate": STATE}),
        );
        assert_eq!(traces_of_all(&mut client, &of_frame, count), expected);
        let headers = [("traceparent", PARENT), ("tracestate", STATE)];
        let of_headers = queue("traced-batch-web");
        let body = json!({"jobs": jobs}).to_string();
        let path = format!("/queues/{of_headers}/jobs/bulk");
        let answer = web.call("POST", &path, &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(traces_of_all(&mut client, &of_headers, count), expected);
        // A trace in the body beside the jobs goes before headers.
        let body = json!({"jobs": jobs, "traceparent": OTHER}).to_string();
        web.call("POST", &path, &headers, body.as_bytes());
        assert_eq!(traces_of_all(&mut client, &of_headers, count), vec![own.clone(); count]);
        let of_flow = queue("traced-flow");
        let one = |(n, input): (usize, &Value)| json!({"id": format!("{of_flow}-{n}"), "queue": of_flow, "input": input});
        let flow = json!({"jobs": jobs.iter().enumerate().map(one).collect::<Vec<_>>()});
        let answer = web.call("POST", "/flows", &headers, flow.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(traces_of_all(&mut client, &of_flow, count), expected);
    }
}

#[test]
fn webhooks_of_a_job_are_in_its_trace() {
    let start = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true");
    // Posts go one after the other, whichever job they are about.
    let server = start.env("WEBHOOK_CONCURRENCY", 1).start();
    let mut client = server.client();
    let receiver = Receiver::always(Habit::Status(200));
    let webhook = json!({"url": receiver.url(), "events": ["job.pushed", "job.completed"]});
    client.ok("AddWebhook", webhook);
    let trace = json!({"traceparent": PARENT, "tracestate": STATE});
    let traced = client.push_with("q", 1, trace);
    client.pull("q");
    client.ok("ACK", json!({"id": traced}));
    client.push("q", 2);
    let posts = until("all posts", || Some(receiver.posts()).filter(|posts| posts.len() == 3));
    let header = |at: usize, name: &str| posts[at].header(name).map(ToOwned::to_owned);
    for at in 0..2 {
        assert_eq!(header(at, "traceparent").as_deref(), Some(PARENT));
        assert_eq!(header(at, "tracestate").as_deref(), Some(STATE));
    }
    assert_eq!((header(2, "traceparent"), header(2, "tracestate")), (None, None));
}
