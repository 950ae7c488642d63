//! Which spans a step of a job makes, with their ids, their times and their attributes.
//!
//! ```text
//! span of the client (traceparent)
//!  '- enqueue           from the push until the log has it
//!      |- wait          from when it was due until a worker has it, for each delivery
//!      '- run           from then until the attempt has ended
//!          '- settle    from then until the log has it
//! ```
//!
//! All ids follow from the job and the step, so nothing has to be remembered between the steps, nor over a restart.

use super::wire::Message;
use crate::protocol::uuid_text;
use corq_io::batch_post::Item;
use corq_shards::dead_letter::reason::Cause;
use corq_shards::job::id::JobId;
use corq_shards::job::trace::TraceParent;
use corq_shards::traced::{Settled, Traced, What};

/// A step of a sampled job that the log has.
#[derive(Debug)]
pub struct Step {
    pub traced: Traced,
    /// Since when the log has it, in microseconds since the epoch.
    pub done_us: u64,
}

impl Item for Step {
    fn units(&self) -> u64 {
        spans_of(&self.traced)
    }

    fn bytes(&self) -> usize {
        bytes_of(&self.traced)
    }
}

/// How many spans a step makes.
pub fn spans_of(traced: &Traced) -> u64 {
    match traced.what {
        What::Settled { started_at_ms: Some(_), .. } => 2,
        _ => 1,
    }
}

/// Bytes of a step in memory, about.
pub fn bytes_of(traced: &Traced) -> usize {
    let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
    let trace = traced.trace.as_ref().map_or(0, |trace| size_of_val(&**trace) + trace.state.len());
    let error = match &traced.what {
        What::Settled { how: Settled::Failed { error, .. }, .. } => error.len(),
        _ => 0,
    };
    let texts = text(&traced.custom_id) + text(&traced.name) + text(&traced.worker);
    size_of::<Step>() + texts + trace + error
}

/// Kinds of spans, as OTLP numbers them.
#[derive(Clone, Copy)]
enum Kind {
    Internal = 1,
    Server = 2,
}

/// That a span is sampled; that it is known whether its parent is of another process; that it is.
const SAMPLED: u32 = 1;
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// A status that says that something failed.
const STATUS_ERROR: u64 = 2;

/// A span without the fields that all spans of a step share.
struct Span<'a> {
    operation: &'static str,
    /// As semantic conventions for messaging call it, if they know it.
    operation_type: Option<&'static str>,
    kind: Kind,
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    is_parent_remote: bool,
    from_ns: u64,
    until_ns: u64,
    failure: Option<Failure<'a>>,
}

/// Why an attempt failed.
struct Failure<'a> {
    kind: &'static str,
    error: &'a str,
}

const NS_OF_MS: u64 = 1_000_000;

impl Step {
    /// The trace: that of its client, or one that is called like the job.
    fn trace_id(&self) -> [u8; 16] {
        let given = self.traced.trace.as_ref().map(|trace| trace.parent.trace_id);
        given.unwrap_or(self.traced.id.0.to_be_bytes())
    }

    fn parent(&self) -> Option<&TraceParent> {
        self.traced.trace.as_ref().map(|trace| &trace.parent)
    }

    /// Writes its spans as fields of a `ScopeSpans`.
    pub(super) fn write(&self, out: &mut Message) {
        let Traced { id, at_ms, again, .. } = self.traced;
        let (at_ns, done_ns) = (at_ms * NS_OF_MS, self.done_us * 1000);
        let enqueued = span_id(id, Lap::Enqueue, 0);
        // Deliveries of the same millisecond are apart in bits that no time reaches.
        let apart = |ms: u64| ms ^ u64::from(again) << 48;
        match &self.traced.what {
            What::Enqueued { payload_bytes } => {
                let span = Span {
                    operation: "enqueue",
                    operation_type: Some("send"),
                    kind: Kind::Server,
                    id: enqueued,
                    parent: self.parent().map(|parent| parent.span_id),
                    is_parent_remote: self.parent().is_some(),
                    from_ns: at_ns,
                    until_ns: done_ns,
                    failure: None,
                };
                self.write_span(out, &span, |span| {
                    span.number(9, "messaging.message.body.size", u64::from(*payload_bytes));
                });
            }
            What::Pulled { since_ms } => {
                let span = Span {
                    operation: "wait",
                    operation_type: None,
                    kind: Kind::Internal,
                    id: span_id(id, Lap::Wait, apart(at_ms)),
                    parent: Some(enqueued),
                    is_parent_remote: false,
                    from_ns: since_ms * NS_OF_MS,
                    until_ns: at_ns,
                    failure: None,
                };
                self.write_span(out, &span, |span| self.write_attempt(span));
            }
            What::Settled { started_at_ms, how } => {
                let run = started_at_ms.map(|started_ms| span_id(id, Lap::Run, apart(started_ms)));
                if let (Some(run), Some(started_ms)) = (run, started_at_ms) {
                    let span = Span {
                        operation: "run",
                        operation_type: Some("process"),
                        kind: Kind::Internal,
                        id: run,
                        parent: Some(enqueued),
                        is_parent_remote: false,
                        from_ns: started_ms * NS_OF_MS,
                        until_ns: at_ns,
                        failure: failure(how),
                    };
                    self.write_span(out, &span, |span| {
                        self.write_attempt(span);
                        write_outcome(span, how);
                    });
                }
                let span = Span {
                    operation: "settle",
                    operation_type: Some("settle"),
                    kind: Kind::Server,
                    id: span_id(id, Lap::Settle, apart(started_at_ms.unwrap_or(at_ms))),
                    parent: run.or(Some(enqueued)),
                    is_parent_remote: false,
                    from_ns: at_ns,
                    until_ns: done_ns,
                    failure: None,
                };
                self.write_span(out, &span, |span| {
                    if run.is_some() {
                        self.write_attempt(span);
                    }
                    write_outcome(span, how);
                });
            }
        }
    }

    fn write_attempt(&self, span: &mut Message) {
        span.number(9, "corq.job.attempt", u64::from(self.traced.attempt));
        if let Some(worker) = &self.traced.worker {
            span.attribute(9, "messaging.client.id", worker);
        }
    }

    fn write_span(&self, out: &mut Message, one: &Span<'_>, more: impl FnOnce(&mut Message)) {
        let Traced { queue, custom_id, name, trace, .. } = &self.traced;
        out.message(2, |span| {
            span.bytes(1, &self.trace_id());
            span.bytes(2, &one.id);
            span.text(3, trace.as_ref().map_or("", |trace| &trace.state));
            span.bytes(4, one.parent.as_ref().map_or(&[], |parent| &parent[..]));
            span.text(5, &format!("{} {queue}", one.operation));
            span.uint(6, one.kind as u64);
            span.fixed64(7, one.from_ns);
            // A clock that was set back must not end a span before it began.
            span.fixed64(8, one.until_ns.max(one.from_ns));
            span.attribute(9, "messaging.system", "corq");
            span.attribute(9, "messaging.operation.name", one.operation);
            if let Some(kind) = one.operation_type {
                span.attribute(9, "messaging.operation.type", kind);
            }
            span.attribute(9, "messaging.destination.name", queue);
            let own_id = uuid_text::format(self.traced.id.0);
            // The text of a UUID is ASCII.
            let own_id = std::str::from_utf8(&own_id).unwrap_or_default();
            span.attribute(9, "messaging.message.id", custom_id.as_deref().unwrap_or(own_id));
            if custom_id.is_some() {
                span.attribute(9, "corq.job.id", own_id);
            }
            if let Some(name) = name {
                span.attribute(9, "corq.job.name", name);
            }
            more(span);
            if let Some(Failure { kind, error }) = &one.failure {
                span.attribute(9, "error.type", kind);
                span.message(15, |status| {
                    status.text(2, error);
                    status.uint(3, STATUS_ERROR);
                });
            }
            let remote = if one.is_parent_remote { IS_REMOTE } else { 0 };
            span.fixed32(16, SAMPLED | KNOWS_REMOTE | remote);
        });
    }
}

fn failure(how: &Settled) -> Option<Failure<'_>> {
    let Settled::Failed { cause, error, .. } = how else { return None };
    let kind = match cause {
        Cause::Stalled => "stalled",
        Cause::Timeout => "timeout",
        _ => "failed",
    };
    Some(Failure { kind, error })
}

fn write_outcome(span: &mut Message, how: &Settled) {
    let outcome = match how {
        Settled::Completed => "completed",
        Settled::Failed { terminal: true, .. } => "dead_letter",
        Settled::Failed { .. } => "retry",
        Settled::GivenBack => "given_back",
        Settled::Removed => "removed",
    };
    span.attribute(9, "corq.job.outcome", outcome);
    if let Settled::Failed { terminal: true, cause, .. } = how {
        span.attribute(9, "corq.dlq.reason", cause.name());
    }
}

/// The part of a job's way that a span is about. With the time at which a worker got the job, it tells the job's spans
/// apart.
#[derive(Clone, Copy)]
enum Lap {
    Enqueue = 1,
    Wait = 2,
    Run = 3,
    Settle = 4,
}

/// The id of a span: not 0, and another one for each span of a trace, as far as chance allows (`SplitMix64` of its parts).
fn span_id(job: JobId, lap: Lap, at_ms: u64) -> [u8; 8] {
    let parts = [(job.0 >> 64) as u64, job.0 as u64, at_ms, lap as u64];
    let id = parts.into_iter().fold(0_u64, |before, part| {
        let mut bits = (before ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    });
    id.max(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_span_of_a_job_has_an_id_of_its_own_and_the_same_after_a_restart() {
        let mut seen = BTreeSet::new();
        for job in 0..100 {
            let job = JobId(0x0190_0000_0000_7000_8000_0000_0000_0000 | job << 42);
            assert!(seen.insert(span_id(job, Lap::Enqueue, 0)));
            for at_ms in 1_700_000_000_000..1_700_000_000_100 {
                for lap in [Lap::Wait, Lap::Run, Lap::Settle] {
                    assert!(seen.insert(span_id(job, lap, at_ms)));
                }
            }
        }
        // Over releases, too: a job may be pulled by another one than it was pushed to.
        assert_eq!(u64::from_be_bytes(span_id(JobId(1), Lap::Run, 2)), 0x1467_336e_db96_2514);
    }
}
