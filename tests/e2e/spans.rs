//! Spans of sampled jobs, as a collector of traces gets them. The fears: a span that is below none of its client's or tells
//! another time than it was; spans of jobs that nobody samples; a collector that holds up the server or fills its memory.
//!
//! What is posted is read by the library that OpenTelemetry publishes for its protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Client, Habit, Receiver, Server, Start, until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const SERVER: i32 = 2;
const INTERNAL: i32 = 1;

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let read: BTreeMap<_, _> =
        all.iter().map(|one| (one.key.clone(), text(one.value.as_ref()))).collect();
    assert_eq!(read.len(), all.len(), "each key comes once");
    read
}

/// A span as the collector has it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    /// The operation: the first word of the span's name.
    what: String,
    of: BTreeMap<String, String>,
    /// From when until when, in milliseconds.
    from_ms: u64,
    until_ms: u64,
    span: Span,
}

impl Seen {
    fn new(span: Span) -> Self {
        let of = attributes(&span.attributes);
        let what = of["messaging.operation.name"].clone();
        assert_eq!(span.name, format!("{what} {}", of["messaging.destination.name"]));
        assert_eq!(of["messaging.system"], "corq");
        assert!(span.start_time_unix_nano > 0);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
        assert_eq!(span.flags & 1, 1, "it is sampled");
        Self {
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            what,
            of,
            from_ms: span.start_time_unix_nano / 1_000_000,
            until_ms: span.end_time_unix_nano / 1_000_000,
            span,
        }
    }

    fn outcome(&self) -> (&str, Option<&str>) {
        let error = self.of.get("error.type").map(String::as_str);
        (&self.of["corq.job.outcome"], error)
    }
}

/// A collector of traces.
pub(crate) struct Collector(Receiver);

impl Collector {
    pub(crate) fn new() -> Self {
        Self(Receiver::always(Habit::Status(200)))
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    /// A server whose spans it gets soon.
    pub(crate) fn start(&self) -> Start {
        Start::new().env("OTLP_ENDPOINT", self.endpoint()).env("OTLP_INTERVAL_MS", 10)
    }

    /// All spans so far, as they came.
    fn spans(&self) -> Vec<Seen> {
        let mut spans = Vec::new();
        for post in self.0.posts() {
            assert_eq!(post.line, "POST /v1/traces HTTP/1.1");
            assert_eq!(post.header("content-type"), Some("application/x-protobuf"));
            let request = ExportTraceServiceRequest::decode(&post.body[..]).unwrap();
            assert_eq!(request.resource_spans.len(), 1);
            for mut of_resource in request.resource_spans {
                let resource = attributes(&of_resource.resource.take().unwrap().attributes);
                assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
                assert!(resource.contains_key("service.instance.id"));
                for of_scope in of_resource.scope_spans {
                    assert_eq!(of_scope.scope.unwrap().name, "corq");
                    spans.extend(of_scope.spans.into_iter().map(Seen::new));
                }
            }
        }
        let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
        assert_eq!(ids.len(), spans.len(), "no span comes twice, nor two with one id");
        spans
    }

    /// The spans of a job, once there are so many.
    pub(crate) fn of_job(&self, id: &str, count: usize) -> Vec<Seen> {
        until("the spans of a job", || {
            let mut spans = self.spans();
            spans.retain(|span| span.of["messaging.message.id"] == id);
            // A span that was posted again, since its answer did not come, is the same.
            let mut known = Vec::new();
            spans.retain(|span| {
                let is_new = !known.contains(&span.id);
                known.push(span.id.clone());
                is_new
            });
            (spans.len() >= count).then_some(spans)
        })
    }
}

/// Spans of this operation, in their order.
fn did<'s>(spans: &'s [Seen], what: &str) -> Vec<&'s Seen> {
    let mut found: Vec<&Seen> = spans.iter().filter(|span| span.what == what).collect();
    found.sort_by_key(|span| (span.from_ms, span.until_ms));
    found
}

pub(crate) fn one<'s>(spans: &'s [Seen], what: &str) -> &'s Seen {
    let found = did(spans, what);
    assert_eq!(found.len(), 1, "{what}: {spans:?}");
    found[0]
}

/// A metric of the server, without its prefix.
fn metric(server: &Server, name: &str) -> u64 {
    let text = server.web().get("/prometheus").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("corq_otlp_{name} ")));
    line.unwrap_or_else(|| panic!("no corq_otlp_{name}")).parse().unwrap()
}

/// Whether the server has the thread that posts spans.
fn posts_spans(server: &Server) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
    tasks.flatten().any(|task| name(task).is_ok_and(|name| name.trim() == "batch-post"))
}

/// Pushes a job, and has it done.
fn done(client: &mut Client, queue: &str, fields: Value) -> String {
    let id = client.push_with(queue, 1, fields);
    assert_eq!(client.pull(queue)["id"], json!(id));
    client.ok("ACK", json!({"id": id}));
    id
}

#[test]
fn a_sampled_job_is_four_spans_below_the_one_it_was_pushed_in() {
    let collector = Collector::new();
    let server = collector
        .start()
        .env("OTLP_SERVICE_NAME", "jobs of a")
        .env("OTLP_HEADERS", "authorization=Bearer%20abc,x-tenant=a")
        .start();
    assert!(posts_spans(&server));
    let mut client = server.client();
    let before_ms = client.time();
    let trace = json!({
        "traceparent": traceparent("01"), "tracestate": "rojo=1", "jobId": "own", "name": "mail"
    });
    let id = client.push_with("q", "data", trace);
    let (pulled, token) = client.pull_owned("q", 30_000);
    assert_eq!(pulled["id"], json!(id));
    client.ok("ACK", json!({"id": id, "token": token}));
    let after_ms = client.time();
    let spans = collector.of_job("own", 4);
    assert_eq!(spans.len(), 4);
    let [enqueue, wait, run, settle] =
        ["enqueue", "wait", "run", "settle"].map(|what| one(&spans, what));
    assert_eq!(enqueue.parent, PARENT);
    assert_eq!([&wait.parent, &run.parent], [&enqueue.id; 2]);
    assert_eq!(settle.parent, run.id);
    assert!(spans.iter().all(|span| span.trace == TRACE && span.span.trace_state == "rojo=1"));
    let kinds = [enqueue, wait, run, settle].map(|span| span.span.kind);
    assert_eq!(kinds, [SERVER, INTERNAL, INTERNAL, SERVER]);
    let remote = [enqueue, wait, run, settle].map(|span| span.span.flags);
    assert_eq!(remote, [0x301, 0x101, 0x101, 0x101]);
    // Each span begins where the one before has ended, all within the time in which they happened.
    assert!(before_ms <= enqueue.from_ms && settle.from_ms <= after_ms);
    assert_eq!((wait.from_ms, run.from_ms), (enqueue.from_ms, wait.until_ms));
    assert_eq!(run.until_ms, settle.from_ms);
    let kind = |span: &Seen| span.of.get("messaging.operation.type").cloned();
    let kinds = [enqueue, wait, run, settle].map(|span| kind(span).unwrap_or_default());
    assert_eq!(kinds, ["send", "", "process", "settle"]);
    for span in &spans {
        assert_eq!((&*span.of["corq.job.name"], span.of["corq.job.id"].len()), ("mail", 36));
        assert_eq!(span.span.status, None);
    }
    assert_eq!(enqueue.of["messaging.message.body.size"], "5");
    assert_eq!(run.of["corq.job.attempt"], "1");
    assert!(run.of.contains_key("messaging.client.id"), "{run:?}");
    assert_eq!([run, settle].map(Seen::outcome), [("completed", None); 2]);
    let post = &collector.0.posts()[0];
    assert_eq!(post.header("authorization"), Some("Bearer abc"));
    assert_eq!(post.header("x-tenant"), Some("a"));
    let request = ExportTraceServiceRequest::decode(&post.body[..]).unwrap();
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    assert_eq!(attributes(&resource.attributes)["service.name"], "jobs of a");
    until("all are counted", || (metric(&server, "spans_exported_total") == 4).then_some(()));
    until("none waits", || (metric(&server, "spans_waiting_bytes") == 0).then_some(()));
}

#[test]
fn without_an_endpoint_there_is_neither_a_span_nor_the_thread_that_posts_them() {
    let server = Start::new().env("OTLP_ENDPOINT", "").env("OTLP_SAMPLE", 1).start();
    let mut client = server.client();
    done(&mut client, "q", json!({"traceparent": traceparent("01")}));
    assert!(!posts_spans(&server));
    for name in ["spans_exported_total", "spans_dropped_total", "spans_waiting"] {
        assert_eq!(metric(&server, name), 0);
    }
}

#[test]
fn a_job_without_a_trace_has_one_that_is_called_like_it() {
    let collector = Collector::new();
    let server = collector.start().start();
    let id = done(&mut server.client(), "q", json!({}));
    let spans = collector.of_job(&id, 4);
    assert!(spans.iter().all(|span| span.trace == id.replace('-', "")));
    assert_eq!(one(&spans, "enqueue").parent, "");
}

#[test]
fn only_jobs_that_are_sampled_have_spans_whoever_says_so() {
    let collector = Collector::new();
    let server = collector.start().env("OTLP_SAMPLE", 0).start();
    let mut client = server.client();
    let silent = done(&mut client, "q", json!({}));
    let not = done(&mut client, "q", json!({"traceparent": traceparent("00")}));
    let sampled = done(&mut client, "q", json!({"traceparent": traceparent("01")}));
    assert_eq!(collector.of_job(&sampled, 4).len(), 4);
    drop(server);
    let server = collector.start().env("OTLP_SAMPLE", "1.0").start();
    let mut client = server.client();
    let still_not = done(&mut client, "q", json!({"traceparent": traceparent("02")}));
    let by_ratio = done(&mut client, "q", json!({}));
    assert_eq!(collector.of_job(&by_ratio, 4).len(), 4);
    let of = |id: &String| {
        let spans = collector.spans();
        spans.iter().filter(|span| span.of["messaging.message.id"] == *id).count()
    };
    assert_eq!([&silent, &not, &still_not].map(of), [0; 3]);
}

#[test]
fn a_failed_attempt_is_an_error_and_each_attempt_a_run_until_the_dead_letter_queue() {
    let collector = Collector::new();
    let server = collector.start().start();
    let mut client = server.client();
    let fields = json!({"traceparent": traceparent("01"), "maxAttempts": 2, "backoff": 30});
    let id = client.push_with("q", 1, fields);
    for _ in 0..2 {
        let pulled = client.ok("PULL", json!({"queue": "q", "timeout": 60_000}))["job"].clone();
        assert_eq!(pulled["id"], json!(id));
        client.ok("FAIL", json!({"id": id, "error": "no such user"}));
    }
    let spans = collector.of_job(&id, 7);
    assert_eq!(spans.len(), 7);
    let (waits, runs, settles) = (did(&spans, "wait"), did(&spans, "run"), did(&spans, "settle"));
    for (at, outcome) in ["retry", "dead_letter"].into_iter().enumerate() {
        let (wait, run, settle) = (waits[at], runs[at], settles[at]);
        assert_eq!(run.outcome(), (outcome, Some("failed")));
        let status = run.span.status.as_ref().unwrap();
        assert_eq!((status.code, &*status.message), (2, "no such user"));
        assert_eq!(settle.outcome(), (outcome, None));
        assert_eq!((&settle.parent, settle.span.status.is_none()), (&run.id, true));
        let attempt = (at + 1).to_string();
        assert!([wait, run, settle].iter().all(|span| span.of["corq.job.attempt"] == attempt));
        assert_eq!(run.from_ms, wait.until_ms);
    }
    // The time between the attempts is the backoff, which is no time of waiting for a worker.
    assert!(waits[1].from_ms >= runs[0].until_ms + 30, "{waits:?}");
    assert_eq!(settles[1].of["corq.dlq.reason"], "max_attempts_exceeded");
    // A job that fails without an attempt has no run.
    let id = client.push("q", 1);
    client.ok("Discard", json!({"id": id}));
    let spans = collector.of_job(&id, 2);
    assert_eq!(did(&spans, "run").len(), 0);
    let settle = one(&spans, "settle");
    assert_eq!(
        (settle.outcome(), &settle.parent),
        (("dead_letter", None), &one(&spans, "enqueue").id)
    );
}

#[test]
fn an_attempt_that_stalls_takes_too_long_or_is_given_back_ends_its_run() {
    let collector = Collector::new();
    let server = collector.start().start();
    let mut client = server.client();
    // Silent for longer than its lock lasts.
    let stalled = client.push("stalls", 1);
    client.pull_owned("stalls", 1);
    let again = client.ok("PULL", json!({"queue": "stalls", "timeout": 60_000}))["job"].clone();
    assert_eq!(again["id"], json!(stalled));
    client.ok("ACK", json!({"id": stalled}));
    let spans = collector.of_job(&stalled, 7);
    let (waits, runs) = (did(&spans, "wait"), did(&spans, "run"));
    assert_eq!(
        [runs[0], runs[1]].map(Seen::outcome),
        [("retry", Some("stalled")), ("completed", None)]
    );
    assert!(waits[1].from_ms >= runs[0].until_ms, "it did not wait while it ran: {spans:?}");
    // Longer at it than an attempt may be.
    let late = client.push_with("late", 1, json!({"timeout": 1, "maxAttempts": 1}));
    client.pull_owned("late", 60_000);
    let spans = collector.of_job(&late, 4);
    assert_eq!(one(&spans, "run").outcome(), ("dead_letter", Some("timeout")));
    // The worker of this job goes.
    let left = client.push("left", 1);
    let mut worker = server.client();
    worker.pull("left");
    drop(worker);
    let again = client.ok("PULL", json!({"queue": "left", "timeout": 60_000}))["job"].clone();
    assert_eq!(again["id"], json!(left));
    client.ok("ACK", json!({"id": left}));
    let spans = collector.of_job(&left, 7);
    let (waits, runs) = (did(&spans, "wait"), did(&spans, "run"));
    assert_eq!(runs[0].outcome(), ("given_back", None));
    assert_eq!([runs[0], runs[1]].map(|run| &*run.of["corq.job.attempt"]), ["1"; 2]);
    assert!(waits[1].from_ms >= runs[0].until_ms, "{spans:?}");
}

#[test]
fn spans_of_a_job_fit_together_over_a_kill() {
    let collector = Collector::new();
    let mut server = collector.start().start();
    let mut client = server.client();
    let id = client.push_with("q", 1, json!({"traceparent": traceparent("01")}));
    let enqueue = collector.of_job(&id, 1)[0].clone();
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(client.pull("q")["id"], json!(id));
    client.ok("ACK", json!({"id": id}));
    let spans = collector.of_job(&id, 4);
    assert_eq!(spans.len(), 4, "the push is exported once");
    let (wait, run) = (one(&spans, "wait"), one(&spans, "run"));
    assert_eq!([&wait.parent, &run.parent], [&enqueue.id; 2]);
    assert_eq!(wait.from_ms, enqueue.from_ms, "it waited while the server was away");
}

/// Counts of spans by fate: each is in one of these.
fn accounted(server: &Server) -> u64 {
    ["exported_total", "dropped_total", "abandoned_total", "rejected_total", "waiting"]
        .into_iter()
        .map(|name| metric(server, &format!("spans_{name}")))
        .sum()
}

#[test]
fn a_collector_that_is_away_refuses_or_hangs_costs_no_job_and_every_span_is_accounted_for() {
    for habit in [None, Some(Habit::Status(400)), Some(Habit::Hang), Some(Habit::Close)] {
        let receiver = habit.map(Receiver::always);
        let port = receiver.as_ref().map_or_else(crate::support::free_port, Receiver::port);
        let mut server = Start::new()
            .env("OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"))
            .env("OTLP_INTERVAL_MS", 10)
            .env("OTLP_TIMEOUT_MS", 100)
            .start();
        let mut client = server.client();
        for _ in 0..50 {
            done(&mut client, "q", json!({}));
        }
        assert_eq!(client.counted("q", "completed"), 50, "{habit:?}");
        until("a post fails", || (metric(&server, "failed_posts_total") > 0).then_some(()));
        until("all are accounted for", || (accounted(&server) == 200).then_some(()));
        assert_eq!(metric(&server, "spans_exported_total"), 0);
        if habit == Some(Habit::Status(400)) {
            // Such a post is not tried again.
            until("all are given up", || {
                (metric(&server, "spans_abandoned_total") == 200).then_some(())
            });
            let posts = receiver.as_ref().map_or(0, |receiver| receiver.posts().len());
            assert_eq!(metric(&server, "failed_posts_total"), posts as u64);
            assert!(server.output().contains("were given up: it answered 400"));
        }
        assert!(server.terminate().success());
    }
}

#[test]
fn spans_that_find_no_room_before_a_collector_that_hangs_are_dropped_and_counted() {
    const BATCH: usize = 10_000;
    const BATCHES: usize = 6;
    let receiver = Receiver::always(Habit::Hang);
    let server = Start::new()
        .env("OTLP_ENDPOINT", format!("http://127.0.0.1:{}", receiver.port()))
        .env("OTLP_TIMEOUT_MS", 60_000)
        .start();
    let mut client = server.client();
    let jobs: Vec<Value> = vec![json!({"data": 1}); BATCH];
    for _ in 0..BATCHES {
        client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    }
    let pushed = (BATCH * BATCHES) as u64;
    assert_eq!(client.counted("q", "waiting"), pushed);
    until("all are accounted for", || (accounted(&server) == pushed).then_some(()));
    assert!(metric(&server, "spans_dropped_total") >= pushed - 32_768 - 512);
    assert!(metric(&server, "spans_waiting") <= 32_768 + 512);
    assert!(metric(&server, "spans_waiting_bytes") <= 32 << 20);
}

#[test]
fn a_collector_that_asks_for_a_pause_gets_the_same_spans_after_it() {
    let receiver = Receiver::start(|before, _| match before {
        0 => Habit::Later(429, 1),
        1 => Habit::Later(503, 1),
        _ => Habit::Status(200),
    });
    let collector = Collector(receiver);
    let server = collector.start().start();
    client_push(&server);
    until("they are taken", || (metric(&server, "spans_exported_total") == 1).then_some(()));
    let posts = collector.0.posts();
    assert_eq!(metric(&server, "failed_posts_total"), 2);
    assert!(posts.iter().all(|post| post.body == posts[0].body));
    let pause = |at: usize| posts[at + 1].at.duration_since(posts[at].at);
    assert!(pause(0) >= Duration::from_secs(1) && pause(1) >= Duration::from_secs(1));
}

fn client_push(server: &Server) -> String {
    server.client().push("q", 1)
}

#[test]
fn spans_that_a_collector_does_not_take_of_a_post_are_counted() {
    let collector = Collector(Receiver::always(Habit::TakenButOne));
    let server = collector.start().env("OTLP_INTERVAL_MS", 1000).start();
    client_push(&server);
    until("one is refused", || (metric(&server, "spans_rejected_total") == 1).then_some(()));
    assert_eq!(metric(&server, "spans_exported_total"), 0);
    assert!(server.output().contains("has refused 1 spans of a post: old"), "{}", server.output());
}

#[test]
fn spans_that_wait_at_a_stop_are_posted_before_its_end() {
    let collector = Collector::new();
    let mut server = collector.start().env("OTLP_INTERVAL_MS", 60_000).start();
    let id = done(&mut server.client(), "q", json!({}));
    assert!(server.terminate().success());
    assert_eq!(collector.of_job(&id, 4).len(), 4);
}

#[test]
fn the_part_that_is_sampled_and_the_headers_change_without_a_restart_and_headers_stay_hidden() {
    let collector = Collector::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("corq.toml");
    let write = |sample: &str, key: &str| {
        let text = format!(
            "otlp_endpoint = \"{}\"\notlp_interval_ms = 10\notlp_sample = {sample}\notlp_headers = [\"x-key={key}\"]\n",
            collector.endpoint()
        );
        fs::write(&path, text).unwrap();
    };
    write("0", "first-secret");
    let shown = path.display().to_string();
    let server = Start::new().argument("--config").argument(&shown).start();
    let mut client = server.client();
    let before = done(&mut client, "q", json!({}));
    let traced = done(&mut client, "q", json!({"traceparent": traceparent("01")}));
    collector.of_job(&traced, 4);
    write("1.0", "second-secret");
    server.signal(Signal::HUP);
    until("it is read again", || {
        server.output().contains("the settings were read again: OTLP_SAMPLE 0 -> 1.0").then_some(())
    });
    until("jobs are sampled", || {
        done(&mut client, "q", json!({}));
        (metric(&server, "spans_exported_total") > 4).then_some(())
    });
    let after = done(&mut client, "q", json!({}));
    assert_eq!(collector.of_job(&after, 4).len(), 4);
    let all = collector.spans();
    assert!(all.iter().all(|span| span.of["messaging.message.id"] != before));
    let posts = collector.0.posts();
    assert_eq!(posts[0].header("x-key"), Some("first-secret"));
    assert_eq!(posts[posts.len() - 1].header("x-key"), Some("second-secret"));
    let ran = Tool::at(1).run(&["config", "show", "--config", &shown]);
    assert!(ran.out.contains("OTLP_HEADERS") && ran.out.contains("(hidden)"), "{}", ran.out);
    assert!(!ran.out.contains("secret") && !server.output().contains("secret"));
}

#[test]
fn settings_of_spans_that_are_wrong_stop_the_start_with_their_bound() {
    let dir = tempfile::tempdir().unwrap();
    for (name, value, said) in [
        ("OTLP_ENDPOINT", "localhost:4318", "it must begin with http:// or https://"),
        ("OTLP_ENDPOINT", "http://u:p@localhost/", "it must contain no user name or password"),
        ("OTLP_HEADERS", "authorization", "it must be headers such as"),
        ("OTLP_HEADERS", "content-type=a", "it must not set content-type"),
        ("OTLP_SAMPLE", "1.5", "it must be between 0 and 1"),
        ("OTLP_SAMPLE", "NaN", "it must be between 0 and 1"),
        ("OTLP_TIMEOUT_MS", "99", "it must be between 100 and 60000"),
        ("OTLP_INTERVAL_MS", "9", "it must be between 10 and 60000"),
        ("OTLP_SERVICE_NAME", "a\u{7}", "it must be a name of at most 128 characters"),
    ] {
        let (status, output) = Start::new().env(name, value).run_to_its_end(dir.path());
        assert_eq!(status.code(), Some(2), "{name}={value}: {output}");
        assert!(output.contains(name) && output.contains(said), "{name}={value}: {output}");
    }
    // A header may hold a secret, also one that is wrong.
    let (_, output) = Start::new().env("OTLP_HEADERS", "x hush=1").run_to_its_end(dir.path());
    let path = dir.path().join("corq.toml");
    fs::write(&path, "otlp_headers = \"x hush=1\"\n").unwrap();
    let ran = Tool::at(1).run(&["config", "check", &path.display().to_string()]);
    for said in [output, ran.err + &ran.out] {
        assert!(said.contains("it must be headers such as") && !said.contains("hush"), "{said}");
    }
}
