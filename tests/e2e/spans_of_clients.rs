//! The spans that the Rust client makes, and those of the server below them. The fear: a producer, the server and a worker that
//! tell of three traces where there is one.

use std::sync::OnceLock;
use std::time::Duration;

use corq_client::{
    ActiveJob, BatcherOptions, Client, Failure, FlowJob, JobBatch, JobOptions, PullOptions, Worker,
    blocking,
};
use opentelemetry::trace::{FutureExt, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

use crate::e2e::spans::{Collector, one};
use crate::support::until;

/// Where all spans of this process end.
fn exporter() -> &'static InMemorySpanExporter {
    static EXPORTER: OnceLock<InMemorySpanExporter> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
        global::set_tracer_provider(provider.build());
        exporter
    })
}

fn spans(name: &str, count: usize) -> Vec<SpanData> {
    until(name, || {
        let mut spans = exporter().get_finished_spans().unwrap();
        spans.retain(|span| span.name == name);
        (spans.len() >= count).then_some(spans)
    })
}

fn span(name: &str) -> SpanData {
    let mut found = spans(name, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn id(span: &SpanData) -> String {
    span.span_context.span_id().to_string()
}

fn trace(span: &SpanData) -> String {
    span.span_context.trace_id().to_string()
}

fn has(span: &SpanData, key: &'static str, value: &str) -> bool {
    span.attributes.contains(&KeyValue::new(key, value.to_owned()))
}

/// The work of an application, within which it pushes.
fn application() -> Context {
    exporter();
    Context::new().with_span(global::tracer("application").start("request"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

async fn handle(job: ActiveJob) -> Result<(), Failure> {
    // A span of the handler's own.
    global::tracer("application").start(format!("work {}", job.queue));
    if job.name.as_deref() == Some("bad") { Err(Failure::new("no such user")) } else { Ok(()) }
}

#[test]
fn a_producer_the_server_and_a_worker_tell_of_one_trace() {
    let collector = Collector::new();
    let server = collector.start().env("OTLP_SAMPLE", 0).start();
    let address = format!("tcp://127.0.0.1:{}", server.tcp);
    let request = application();
    let job = runtime().block_on(async {
        let client = Client::connect(&address).await.unwrap();
        let queue = client.queue("mails");
        let job = queue.push("hello").with_context(request.clone()).await.unwrap();
        let worker = Worker::builder(&client, "mails").start(handle).unwrap();
        spans("process mails", 1);
        worker.drain().await;
        job
    });
    let (send, process, work) = (span("send mails"), span("process mails"), span("work mails"));
    let around = request.span().span_context().clone();
    assert_eq!(send.parent_span_id, around.span_id());
    assert_eq!(
        (send.span_kind.clone(), process.span_kind.clone()),
        (SpanKind::Producer, SpanKind::Consumer)
    );
    assert_eq!(process.parent_span_id, send.span_context.span_id());
    assert!(process.parent_span_is_remote);
    assert_eq!(work.parent_span_id, process.span_context.span_id(), "handlers run within it");
    for span in [&send, &process] {
        assert!(has(span, "messaging.system", "corq") && has(span, "messaging.message.id", &job));
        assert!(has(span, "messaging.destination.name", "mails"));
        assert_eq!(
            (span.status.clone(), trace(span)),
            (Status::Unset, around.trace_id().to_string())
        );
    }
    let of_server = collector.of_job(&job, 4);
    assert!(of_server.iter().all(|seen| seen.trace == trace(&send)));
    assert_eq!(one(&of_server, "enqueue").parent, id(&send));
}

#[test]
fn a_handler_that_fails_and_a_push_that_is_refused_end_their_spans_as_errors() {
    let collector = Collector::new();
    let server = collector.start().start();
    let address = format!("tcp://127.0.0.1:{}", server.tcp);
    exporter();
    runtime().block_on(async {
        let client = Client::connect(&address).await.unwrap();
        let queue = client.queue("bad-mails");
        let options = JobOptions::new().name("bad").max_attempts(1);
        queue.push_with("hello", &options).await.unwrap();
        let worker = Worker::builder(&client, "bad-mails").start(handle).unwrap();
        spans("process bad-mails", 1);
        worker.drain().await;
        let refused = JobOptions::new().priority(1 << 40);
        client.queue("refusals").push_with("hello", &refused).await.unwrap_err();
    });
    let process = span("process bad-mails");
    assert_eq!(process.status, Status::error("no such user"));
    assert!(has(&process, "error.type", "failed"));
    let send = span("send refusals");
    assert!(matches!(send.status, Status::Error { .. }));
    assert!(has(&send, "error.type", "invalid_field"), "{send:?}");
}

#[test]
fn jobs_that_are_pushed_together_are_below_one_span_and_those_of_a_batcher_below_their_own() {
    let collector = Collector::new();
    let server = collector.start().env("OTLP_SAMPLE", 0).start();
    let address = format!("tcp://127.0.0.1:{}", server.tcp);
    exporter();
    let own = format!("00-{}-{}-01", "ab".repeat(16), "cd".repeat(8));
    let (many, flow, batched) = runtime().block_on(async {
        let client = Client::connect(&address).await.unwrap();
        let mut batch = JobBatch::new();
        batch.add("one").unwrap();
        batch.add_with("two", &JobOptions::new().trace(&own, None)).unwrap();
        let many = client.queue("many").push_many(&batch).await.unwrap();
        let child = FlowJob::new("flow", "child", "x").unwrap();
        let root = FlowJob::new("flow", "root", "x").unwrap().child(child);
        client.add_flow(&[root]).await.unwrap();
        let batcher = client.queue("batched").batcher(BatcherOptions::new());
        let mut batched = Vec::new();
        for number in 0..2 {
            batched.push(batcher.push(&number).await.unwrap());
        }
        let mut ids = Vec::new();
        for receipt in batched {
            ids.push(receipt.await.unwrap());
        }
        (many, ["root", "child"], ids)
    });
    let send = span("send many");
    assert!(send.attributes.contains(&KeyValue::new("messaging.batch.message_count", 2)));
    assert_eq!(one(&collector.of_job(&many[0], 1), "enqueue").parent, id(&send));
    let own = &collector.of_job(&many[1], 1)[0];
    assert_eq!((own.trace.clone(), own.parent.clone()), ("ab".repeat(16), "cd".repeat(8)));
    let send = id(&span("send flow"));
    assert!(flow.iter().all(|job| one(&collector.of_job(job, 1), "enqueue").parent == send));
    let created: Vec<String> = spans("create batched", 2).iter().map(id).collect();
    let parents: Vec<String> = batched
        .iter()
        .map(|job| one(&collector.of_job(job, 1), "enqueue").parent.clone())
        .collect();
    assert_eq!(parents, created);
}

#[test]
fn blocking_producers_and_workers_have_the_same_spans() {
    let collector = Collector::new();
    let server = collector.start().start();
    let client = blocking::Client::connect(&format!("tcp://127.0.0.1:{}", server.tcp)).unwrap();
    let request = application();
    let around = request.span().span_context().clone();
    let attached = request.attach();
    let job = client.queue("letters").push("hello").unwrap();
    drop(attached);
    let handle = |job: blocking::ActiveJob| {
        global::tracer("application").start(format!("work {}", job.queue));
        Ok::<_, Failure>(())
    };
    let worker = blocking::Worker::builder(&client, "letters").build(handle).unwrap();
    let stopper = worker.stopper();
    let running = std::thread::spawn(move || worker.run());
    let (send, process) = (span("send letters"), span("process letters"));
    stopper.stop();
    running.join().unwrap();
    let work = span("work letters");
    assert_eq!(send.parent_span_id, around.span_id());
    assert_eq!(process.parent_span_id, send.span_context.span_id());
    assert_eq!(work.parent_span_id, process.span_context.span_id());
    assert_eq!(one(&collector.of_job(&job, 4), "enqueue").parent, id(&send));
    // By hand.
    client.queue("letters").push("again").unwrap();
    let wait = PullOptions::new().wait(Duration::from_secs(30));
    let pulled = client.queue("letters").pull(1, &wait).unwrap().remove(0);
    let context = pulled.trace_context();
    let pushed = id(&spans("send letters", 2)[1]);
    assert_eq!(context.span().span_context().span_id().to_string(), pushed);
}
