//! Spans by the API of OpenTelemetry.

use super::{TraceContext, Worked};
use crate::error::Error;
use crate::records::Job;
use opentelemetry::global::{self, BoxedSpan, BoxedTracer};
use opentelemetry::trace::{
    FutureExt, Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt,
    TraceFlags, TraceId, TraceState, WithContext,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use std::future::Future;
use std::str::FromStr;

fn tracer() -> BoxedTracer {
    let scope = InstrumentationScope::builder("corq-client");
    global::tracer_with_scope(scope.with_version(env!("CARGO_PKG_VERSION")).build())
}

fn span(operation: &'static str, kind: SpanKind, queue: &str) -> SpanBuilder {
    SpanBuilder::from_name(format!("{operation} {queue}")).with_kind(kind)
}

fn say(span: &mut BoxedSpan, operation: &'static str, queue: &str) {
    span.set_attribute(KeyValue::new("messaging.system", "corq"));
    span.set_attribute(KeyValue::new("messaging.operation.name", operation));
    span.set_attribute(KeyValue::new("messaging.operation.type", operation));
    span.set_attribute(KeyValue::new("messaging.destination.name", queue.to_owned()));
}

/// A push under way.
pub(crate) struct Producing(BoxedSpan);

impl Producing {
    /// A span below the current one. `operation` is `send`, or `create` for a job that is sent with others later.
    pub(crate) fn begin(operation: &'static str, queue: &str, jobs: Option<usize>) -> Self {
        let tracer = tracer();
        let mut span = span(operation, SpanKind::Producer, queue).start(&tracer);
        if span.is_recording() {
            say(&mut span, operation, queue);
            if let Some(jobs) = jobs {
                let jobs = i64::try_from(jobs).unwrap_or(i64::MAX);
                span.set_attribute(KeyValue::new("messaging.batch.message_count", jobs));
            }
        }
        Self(span)
    }

    /// The trace context to send along with the job.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        let context = self.0.span_context();
        context.is_valid().then(|| text_of(context))
    }

    /// Ends the span with the id of the job, or with its error. A span that is dropped without `end` was broken off.
    pub(crate) fn end(mut self, outcome: Result<Option<&str>, &Error>) {
        match outcome {
            Ok(None) => {}
            Ok(Some(id)) => {
                self.0.set_attribute(KeyValue::new("messaging.message.id", id.to_owned()));
            }
            Err(error) => {
                self.0.set_attribute(KeyValue::new("error.type", error_type(error)));
                self.0.set_status(Status::error(error.to_string()));
            }
        }
        self.0.end();
    }
}

fn text_of(context: &SpanContext) -> TraceContext {
    let (trace, span) = (context.trace_id(), context.span_id());
    let parent = format!("00-{trace}-{span}-{:02x}", context.trace_flags().to_u8());
    let state = context.trace_state().header();
    // The server refuses a longer one, and the push with it.
    let fits = !state.is_empty() && state.len() <= 512 && state.split(',').count() <= 32;
    (parent, fits.then_some(state))
}

fn error_type(error: &Error) -> &'static str {
    match error {
        Error::Refused(refusal) => refusal.code().map_or("refused", |code| code.name()),
        Error::Lost(_) => "lost",
        Error::Timeout { .. } => "timeout",
        Error::Unreachable(_) => "unreachable",
        Error::Payload(_) => "payload",
        Error::Protocol(_) => "protocol",
        Error::Invalid(_) => "invalid",
        Error::Closed => "closed",
    }
}

/// A handler at work.
pub(crate) struct Consuming(Context);

impl Consuming {
    /// A span below the one in which the job was pushed.
    pub(crate) fn begin(queue: &str, job: &Job) -> Self {
        let (tracer, pushed) = (tracer(), job.trace_context());
        let span = span("process", SpanKind::Consumer, queue);
        let mut span = span.start_with_context(&tracer, &pushed);
        if span.is_recording() {
            say(&mut span, "process", queue);
            span.set_attribute(KeyValue::new("messaging.message.id", job.id.clone()));
            let attempt = i64::try_from(job.attempts).unwrap_or(i64::MAX).saturating_add(1);
            span.set_attribute(KeyValue::new("corq.job.attempt", attempt));
            if let Some(name) = &job.name {
                span.set_attribute(KeyValue::new("corq.job.name", name.clone()));
            }
        }
        Self(pushed.with_span(span))
    }

    /// Runs a future within the span.
    pub(crate) fn of<F: Future>(&self, work: F) -> WithContext<F> {
        work.with_context(self.0.clone())
    }

    pub(crate) fn end(self, worked: &Worked<'_>) {
        let span = self.0.span();
        let (kind, error) = match *worked {
            Worked::Completed => return span.end(),
            Worked::Failed(error) => ("failed", error),
            Worked::Panicked(error) => ("panic", error),
        };
        span.set_attribute(KeyValue::new("error.type", kind));
        span.set_status(Status::error(error.to_owned()));
        span.end();
    }
}

/// Carries the context that is current here to the thread that runs the closure.
#[cfg(feature = "blocking")]
pub(crate) fn carried<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let context = Context::current();
    move || {
        let _attached = context.attach();
        work()
    }
}

impl Job {
    /// The context in which it was pushed, for spans of one's own below it; an empty one if it belongs to no trace. Handlers of a
    /// [`Worker`](crate::Worker) need no such thing: they run within a span below it. With the feature `opentelemetry`.
    pub fn trace_context(&self) -> Context {
        let state = self.tracestate.as_deref();
        let parent = self.traceparent.as_deref().and_then(|parent| read(parent, state));
        parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent))
    }
}

fn read(parent: &str, state: Option<&str>) -> Option<SpanContext> {
    let mut parts = parent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    let state = state.and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    let context = SpanContext::new(trace, span, flags, true, state);
    context.is_valid().then_some(context)
}
