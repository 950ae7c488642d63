//! The headers `traceparent` and `tracestate` of a push as fields of its frame, for clients that add them to every request
//! and do not write them into bodies: of one job, of many or of a flow. Headers that are wrong say nothing, as W3C Trace Context has it; fields of a body are
//! refused.

use super::route::{Asks, Route};
use crate::api::commands::Op;
use crate::protocol::http1::head::Head;
use crate::protocol::msgpack::writer::Writer;
use corq_shards::job::trace::{TraceParent, is_trace_state};

/// Trace of a push, as its headers give it.
#[derive(Clone, Debug)]
pub struct TraceHeaders {
    parent: TraceParent,
    state: Box<str>,
}

impl TraceHeaders {
    /// Reads the headers of a request, if it is a push and has them. One `traceparent` counts; several are none.
    pub fn of(route: &Route, head: &Head<'_>) -> Option<Box<Self>> {
        let is_push = |asks: &Asks| matches!(asks.op, Op::Push | Op::PushBatch | Op::PushFlow);
        if !route.asks.as_ref().is_some_and(is_push) {
            return None;
        }
        let mut parents = head.headers("traceparent");
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let parent = TraceParent::parse(std::str::from_utf8(parent.trim_ascii()).ok()?)?;
        // Several headers are one list.
        let states: Vec<&[u8]> = head.headers("tracestate").map(<[u8]>::trim_ascii).collect();
        let state = String::from_utf8(states.join(&b',')).unwrap_or_default();
        let state = if is_trace_state(&state) { state.into() } else { Box::default() };
        Some(Box::new(Self { parent, state }))
    }

    /// Adds them to a frame, which names no trace. Returns how many fields they are.
    pub(super) fn join(&self, frame: &mut Vec<u8>) -> u32 {
        let mut writer = Writer::new(frame);
        writer.str("traceparent");
        // Hexadecimal digits are ASCII.
        writer.str(std::str::from_utf8(&self.parent.text()).unwrap_or_default());
        if !self.state.is_empty() {
            writer.str("tracestate");
            writer.str(&self.state);
        }
        1 + u32::from(!self.state.is_empty())
    }
}
