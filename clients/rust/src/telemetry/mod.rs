//! Spans of producers and consumers, by the API of OpenTelemetry: with the feature `opentelemetry`. Without it the same calls do
//! nothing.
//!
//! Names and attributes are those of the semantic conventions for messaging. A push is a span of the kind producer below the
//! current one, and its context goes along with the job; a handler runs in a span of the kind consumer below that.
//! Without a provider (`opentelemetry::global::set_tracer_provider`) there are no spans, and the context that is current goes
//! along all the same.

#[cfg(not(feature = "opentelemetry"))]
mod off;
#[cfg(feature = "opentelemetry")]
mod on;

#[cfg(all(not(feature = "opentelemetry"), feature = "blocking"))]
pub(crate) use off::carried;
#[cfg(not(feature = "opentelemetry"))]
pub(crate) use off::{Consuming, Producing};
#[cfg(all(feature = "opentelemetry", feature = "blocking"))]
pub(crate) use on::carried;
#[cfg(feature = "opentelemetry")]
pub(crate) use on::{Consuming, Producing};

/// A `traceparent` and a `tracestate`.
pub(crate) type TraceContext = (String, Option<String>);

/// How an attempt went.
#[cfg_attr(not(feature = "opentelemetry"), allow(dead_code))] // Only spans say why it failed.
pub(crate) enum Worked<'a> {
    Completed,
    Failed(&'a str),
    Panicked(&'a str),
}
