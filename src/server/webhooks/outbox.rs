//! From the events of a shard to the webhooks that watch its queues: what is posted about an event, and
//! when it may be. Nothing leaves before the log has the change, and everything leaves in order.
//!
//! The shard does no more than copy the payload; the text is written by the thread that posts it.

use super::registry::Webhooks;
use crate::protocol::json;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::uuid_text;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use crate::server::storage::cold_reads::Continuation;
use crate::server::storage::engine::{Fetched, Records};
use corq_io::log::Position;
use corq_io::net::ConnId;
use corq_io::webhook::{Header, Hooks, Notice};
use corq_shards::effect::KnownAs;
use corq_shards::event::{Event, Step};
use corq_shards::job::trace::Trace;
use corq_shards::webhook::Trigger;
use std::collections::VecDeque;
use std::sync::Arc;

/// Events of a shard that may wait for its log. Beyond that they are lost, which is counted.
const WAITING_MAX: usize = 65_536;
/// And their payloads together. One event is always taken.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Memory of an event beside its payload, about.
const EVENT_BYTES: usize = 512;

/// A connection that never exists: for reads that have no client.
const NOBODY: ConnId = ConnId { index: u32::MAX, generation: u32::MAX };

/// `MessagePack` for nothing.
const NIL: &[u8] = &[0xc0];

/// Content of a post.
struct Post {
    trigger: Trigger,
    at_ms: u64,
    job: Box<str>,
    queue: Arc<str>,
    /// The payload as a `MessagePack` value.
    data: Box<[u8]>,
    more: More,
    /// The trace that the job belongs to.
    trace: Option<Box<Trace>>,
}

/// Further content, which only posts about some events have.
enum More {
    Nothing,
    Error(Box<str>),
    Progress(f64),
}

/// An event that waits for the log.
struct Waiting {
    /// Until this is as durable as it has to be.
    until: Position,
    hooks: Hooks,
    post: Post,
    /// Whether the payload has yet to be read from the disk.
    cold: bool,
    /// Memory of the event.
    bytes: usize,
}

/// Events for webhooks, held until the log has their records.
#[derive(Default)]
pub struct WebhookOutbox {
    waiting: VecDeque<Waiting>,
    /// How many have left the front of `waiting`.
    left: u64,
    bytes: usize,
}

impl WebhookOutbox {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether there is room for an event that takes `bytes`.
    fn has_room(&self, bytes: usize) -> bool {
        let fits = self.bytes == 0 || self.bytes + bytes <= WAITING_BYTES_MAX;
        fits && self.waiting.len() < WAITING_MAX
    }

    fn push(&mut self, waiting: Waiting) {
        self.bytes += waiting.bytes;
        self.waiting.push_back(waiting);
    }

    /// The place of the next event, by which it is found as long as it waits.
    fn next_place(&self) -> u64 {
        self.left + self.waiting.len() as u64
    }

    /// The payload of the event at `place` has come, or cannot be had.
    fn arrived(&mut self, place: u64, payload: Option<&[u8]>) {
        let index = place.checked_sub(self.left).map(|index| index as usize);
        let Some(waiting) = index.and_then(|index| self.waiting.get_mut(index)) else { return };
        waiting.cold = false;
        if let Some(payload) = payload {
            waiting.post.data = payload.into();
        }
    }

    /// Gives away, in order, what the log has up to `released`.
    fn release(&mut self, released: Position, mut give: impl FnMut(Hooks, Notice)) {
        let may_go = |first: &mut Waiting| first.until <= released && !first.cold;
        while let Some(Waiting { hooks, post, bytes, .. }) = self.waiting.pop_front_if(may_go) {
            self.left += 1;
            self.bytes -= bytes;
            give(hooks, notice(bytes, post));
        }
    }
}

impl ShardServer {
    /// Takes up what the last command or the time has brought about.
    #[inline]
    pub(crate) fn trigger_webhooks(&mut self) {
        if !self.effects.events.is_empty() {
            self.trigger_all();
        }
    }

    #[cold]
    fn trigger_all(&mut self) {
        let events = std::mem::take(&mut self.effects.events);
        for event in &events {
            for trigger in Trigger::of(event.step) {
                self.trigger(trigger, event);
            }
        }
        self.effects.events = events;
    }

    fn trigger(&mut self, trigger: Trigger, event: &Event) {
        let Some(hooks) = self.webhooks.watching(&event.queue, bit(trigger)) else { return };
        let state_bytes = event.trace.as_ref().map_or(0, |trace| trace.state.len());
        let bytes = event.data.payload_bytes as usize + state_bytes + EVENT_BYTES;
        if !self.webhooks.outbox.has_room(bytes) {
            self.webhooks.feed.refuse(&hooks, bit(trigger));
            return;
        }
        let records = Records::new(&self.engine.journal, &[]);
        let more = match event.step {
            Step::Progress(progress) => More::Progress(progress),
            Step::Failed { error, .. } => {
                // Written in this very turn, so it is in memory.
                let text = crate::server::commands::job_view::text_of(&records, &error);
                More::Error(text.unwrap_or_default().into())
            }
            _ => More::Nothing,
        };
        let payload = records.payload(&event.data);
        let cold = payload.is_err();
        let data = payload.unwrap_or(NIL).into();
        if cold {
            let place = self.webhooks.outbox.next_place();
            let origin = Origin::of_none(self.me as u16, NOBODY);
            self.read_first(origin, Continuation::PostWebhook { place }, &[event.data], Vec::new());
        }
        let (at_ms, queue, job) = (event.at_ms, Arc::clone(&event.queue), job_text(event));
        let trace = event.trace.clone();
        let post = Post { trigger, at_ms, job, queue, data, more, trace };
        let until = self.engine.journal.log.head();
        self.webhooks.outbox.push(Waiting { until, hooks, post, cold, bytes });
    }

    /// The record that an event waited for has come, or cannot be read: then it goes without data.
    pub(crate) fn trigger_record_arrived(&mut self, place: u64, fetched: &[Fetched]) {
        let found = fetched.iter().find_map(|one| Some((one.bytes.as_deref()?, one.stored)));
        let payload = found.and_then(|(record, stored)| Some(stored.parted(record)?.1));
        self.webhooks.outbox.arrived(place, payload);
    }

    /// Hands over, in order, what the log has up to `released`.
    pub(crate) fn release_triggers(&mut self, released: Position) {
        let Webhooks { outbox, feed, .. } = &mut self.webhooks;
        outbox.release(released, |hooks, notice| feed.offer(hooks, notice));
    }
}

fn bit(trigger: Trigger) -> u32 {
    1 << trigger as u8
}

fn job_text(event: &Event) -> Box<str> {
    match &event.job {
        Some(KnownAs::Id(id)) => {
            // The text of a UUID is ASCII.
            std::str::from_utf8(&uuid_text::format(id.0)).unwrap_or_default().into()
        }
        Some(KnownAs::Custom(name)) => name.clone(),
        None => Box::default(),
    }
}

fn notice(bytes: usize, post: Post) -> Notice {
    let (trigger, at_ms, job) = (post.trigger, post.at_ms, post.job.clone());
    let body_bytes_max = post.body_bytes_max();
    let headers = post.trace.as_deref().map_or_else(Box::default, headers_of);
    let render = move || post.body();
    Notice::new(bit(trigger), trigger.name(), at_ms, job, bytes, body_bytes_max, render)
        .with_headers(headers)
}

/// The trace of a job as headers: what they hold was checked when the job came.
fn headers_of(trace: &Trace) -> Box<[Header]> {
    // Hexadecimal digits are ASCII.
    let parent = std::str::from_utf8(&trace.parent.text()).unwrap_or_default().into();
    let state = (!trace.state.is_empty()).then(|| ("tracestate", trace.state.clone()));
    [("traceparent", parent)].into_iter().chain(state).collect()
}

impl Post {
    /// Upper bound of the body's bytes.
    fn body_bytes_max(&self) -> usize {
        let error = if let More::Error(error) = &self.more { error.len() } else { 0 };
        let value = self.data.len() + error + self.job.len() + self.queue.len() + EVENT_BYTES;
        value.saturating_mul(json::EXPANSION_MAX).min(json::TEXT_BYTES_MAX)
    }

    /// The body of the post (`docs/protocol.md`, "Webhooks").
    fn body(&self) -> Vec<u8> {
        let value = self.value(&self.data);
        let mut text = Vec::with_capacity(value.len() + value.len() / 4);
        // The payload was checked when it came: an error means a damaged record, and the post goes without it.
        if json::from_record(&value, &mut text).is_err() {
            text.clear();
            // All else was written right here.
            let _ = json::from_record(&self.value(NIL), &mut text);
        }
        // Give back spare memory: the body counts by its capacity.
        text.shrink_to_fit();
        text
    }

    fn value(&self, data: &[u8]) -> Vec<u8> {
        let mut value = Vec::with_capacity(data.len() + EVENT_BYTES);
        let mut map = MapWriter::begin(&mut value);
        map.key("event").str(self.trigger.name());
        map.key("timestamp").uint(self.at_ms);
        map.key("jobId").str(&self.job);
        map.key("queue").str(&self.queue);
        map.key("data").raw(data);
        match &self.more {
            More::Nothing => {}
            More::Error(error) => map.key("error").str(error),
            More::Progress(progress) => map.key("progress").number(*progress),
        }
        drop(map);
        value
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn post(data: &[u8], more: More) -> Post {
        Post {
            trigger: Trigger::Failed,
            at_ms: 1_700_000_000_123,
            job: "say \"hi\"".into(),
            queue: "q".into(),
            data: data.into(),
            more,
            trace: None,
        }
    }

    fn waiting(outbox: &mut WebhookOutbox, at_ms: u64, until: u64, cold: bool) {
        let mut post = post(NIL, More::Nothing);
        post.at_ms = at_ms;
        let hooks = [Arc::default(), Arc::default()];
        outbox.push(Waiting { until: Position(until), hooks, post, cold, bytes: 1000 });
    }

    fn released(outbox: &mut WebhookOutbox, upto: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        outbox.release(Position(upto), |_, notice| gone.push(notice.at_ms()));
        gone
    }

    /// The fear: a webhook gets what a crash then undoes.
    #[test]
    fn events_go_in_order_once_the_log_has_them_and_their_payload_is_there() {
        let mut outbox = WebhookOutbox::default();
        for (at_ms, until, cold) in [(1, 10, false), (2, 10, true), (3, 20, false), (4, 30, false)]
        {
            waiting(&mut outbox, at_ms, until, cold);
        }
        assert_eq!(released(&mut outbox, 9), [0; 0]);
        assert_eq!(released(&mut outbox, 20), [1]);
        let place = outbox.next_place();
        waiting(&mut outbox, 5, 30, true);
        outbox.arrived(1, Some(b"\xa1x"));
        assert_eq!(&*outbox.waiting[0].post.data, b"\xa1x");
        assert_eq!(released(&mut outbox, 20), [2, 3]);
        assert_eq!(released(&mut outbox, 40), [4]);
        outbox.arrived(place, None);
        assert_eq!(
            (released(&mut outbox, 40), outbox.bytes, outbox.is_empty()),
            (vec![5], 0, true)
        );
    }

    #[test]
    fn what_waits_for_the_log_has_a_limit() {
        let mut outbox = WebhookOutbox::default();
        assert!(outbox.has_room(usize::MAX), "one event is always taken");
        for at_ms in 0..WAITING_MAX as u64 {
            assert!(outbox.has_room(1000));
            waiting(&mut outbox, at_ms, 1, false);
        }
        assert!(!outbox.has_room(0));
        released(&mut outbox, 1);
        waiting(&mut outbox, 1, 1, false);
        assert!(!outbox.has_room(WAITING_BYTES_MAX));
    }

    #[test]
    fn a_body_is_what_the_contract_says() {
        let head = r#"{"event":"job.failed","timestamp":1700000000123,"jobId":"say \"hi\"","queue":"q","data":"#;
        // {"n": 1.0, "big": 2^53 + 1}
        let data = b"\x82\xa1n\xcb\x3f\xf0\0\0\0\0\0\0\xa3big\xcf\0\x20\0\0\0\0\0\x01";
        for (data, more, tail) in [
            (&data[..], More::Nothing, r#"{"n":1.0,"big":9007199254740993}}"#),
            (b"\xc0", More::Error("no\n".into()), r#"null,"error":"no\n"}"#),
            (b"\xa1x", More::Progress(50.0), r#""x","progress":50}"#),
            (b"\xa1x", More::Progress(12.5), r#""x","progress":12.5}"#),
            // Not a value: nothing is better than no post.
            (b"\xc1", More::Nothing, "null}"),
        ] {
            let body = String::from_utf8(post(data, more).body()).unwrap();
            assert_eq!(body, format!("{head}{tail}"));
        }
    }
}
