//! Events on their way from the shard where they happen to the shards that have subscribers (fan-out).
//!
//! Each shard announces to the others which queues its clients listen to, and gets no other events. The shard of an event
//! writes it once, as the text that every client gets, into its messages of the turn that wait for the commit: no client
//! sees an event before the log has the change. While no client listens anywhere, the engine builds no events.
//!
//! Almost all that an event shows was written in the same turn and is in memory. What is not, such as
//! the data of a job that repeats, is read first; the events behind it wait, so that they stay in order.
//!
//! | file | responsibility |
//! |---|---|
//! | `feeding` | hands events out to subscribers, and keeps their connections alive |
//! | `shared_buffer` | events that the subscribers of one topic share |
//! | `subscribe` | Subscribe and Unsubscribe |
//! | `subscribers` | the table of clients that listen: SSE, WebSocket, TCP |

mod feeding;
pub(super) mod shared_buffer;
pub(super) mod subscribe;
pub(super) mod subscribers;

use super::commands::job_view::text_of;
use super::shard_mail::envelope::{Origin, Span};
use super::shard_mail::message::{Batch, Message};
use super::shard_server::ShardServer;
use super::storage::cold_reads::Continuation;
use super::storage::engine::{Absent, Engine, Fetched, Records};
use crate::protocol::json;
use crate::protocol::uuid_text;
use corq_io::net::{ConnId, Connections};
use corq_shards::command::ClientId;
use corq_shards::effect::KnownAs;
use corq_shards::event::{Event, Step};
use corq_shards::log_record::location::LogRef;
use std::collections::{BTreeMap, VecDeque};

/// The longest text of an event. One that would be longer comes without its data.
pub const EVENT_BYTES_MAX: usize = 1 << 20;

/// Events that may wait for the disk or behind one that does, and the bytes of their texts. Beyond
/// that, nothing waits any more: what has not been read is left out.
const LATE_MAX: usize = 10_000;
const LATE_BYTES_MAX: usize = 16 << 20;

/// A connection that never exists: for work that has no client.
pub(super) const NOBODY: ConnId = ConnId { index: u32::MAX, generation: u32::MAX };

/// What the shards tell each other about events.
#[derive(Debug)]
pub enum EventMessage {
    /// The sender has a client that listens.
    Listen {
        shard: u16,
        /// To which queue; none means all.
        queue: Option<Span>,
        /// The client, who is kept waiting until this is known.
        conn: ConnId,
        /// Which of the times that it has begun to listen.
        time: u64,
    },
    /// The sender knows that this client of the receiver listens.
    Heard {
        conn: ConnId,
        /// Which of the times that it has begun to listen.
        time: u64,
    },
    /// The sender has no more clients that listen.
    Unlisten {
        shard: u16,
        /// To which queue; none means all.
        queue: Option<Span>,
    },
    /// Something has happened.
    News {
        /// In which queue.
        queue: Span,
        /// The event as clients see it.
        text: Span,
    },
}

/// Who wants to know of what: shards, each at most once. Bounded by the clients that listen.
#[derive(Debug, Default)]
struct Interest {
    all: Vec<u16>,
    queues: BTreeMap<Box<str>, Vec<u16>>,
}

impl Interest {
    fn add(&mut self, shard: u16, queue: Option<&str>) {
        let shards = match queue {
            None => &mut self.all,
            Some(queue) => self.queues.entry(queue.into()).or_default(),
        };
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    }

    fn remove(&mut self, shard: u16, queue: Option<&str>) {
        let Some(queue) = queue else {
            self.all.retain(|&other| other != shard);
            return;
        };
        if let Some(shards) = self.queues.get_mut(queue) {
            shards.retain(|&other| other != shard);
            if shards.is_empty() {
                self.queues.remove(queue);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.queues.is_empty()
    }

    /// The shards that want to know of a queue.
    fn of(&self, queue: &str) -> impl Iterator<Item = u16> {
        let only = self.queues.get(queue).map(Vec::as_slice).unwrap_or_default();
        let only = only.iter().filter(|shard| !self.all.contains(shard));
        self.all.iter().chain(only).copied()
    }
}

/// An event that waits for the disk, or behind one that does.
#[derive(Clone)]
enum Late {
    Ready { queue: Box<str>, text: Box<[u8]> },
    Cold(Event),
}

/// The events of a shard on their way, and which shards listen to what.
#[derive(Default)]
pub struct Events {
    interest: Interest,
    /// Whether the engine puts events together.
    listening: bool,
    late: VecDeque<Late>,
    /// Bytes of the texts in it.
    late_bytes: usize,
    /// How many have left the front of `late`.
    left: u64,
    /// Where texts are written.
    text: Vec<u8>,
}

impl Events {
    /// The text that was just written, to wait.
    fn late_text(&mut self, queue: &str) -> Late {
        self.late_bytes += self.text.len();
        Late::Ready { queue: queue.into(), text: self.text.as_slice().into() }
    }
}

impl ShardServer {
    /// A client of `shard` listens to a queue, or to all.
    pub(super) fn listen(&mut self, shard: u16, queue: Option<&str>) {
        self.events.interest.add(shard, queue);
        self.listen_as_needed();
    }

    /// No client of `shard` does so any more.
    pub(super) fn unlisten(&mut self, shard: u16, queue: Option<&str>) {
        self.events.interest.remove(shard, queue);
        self.listen_as_needed();
    }

    pub(super) fn listen_as_needed(&mut self) {
        let needed = !self.events.interest.is_empty() || self.webhooks.are_watching();
        if self.events.listening != needed {
            self.events.listening = needed;
            self.engine.shard.listen(needed);
        }
    }

    /// Tells of what the last command or the time has brought about.
    #[inline]
    pub(super) fn publish_events(&mut self) {
        if !self.effects.events.is_empty() {
            self.send_all_events();
        }
    }

    #[cold]
    fn send_all_events(&mut self) {
        let events = std::mem::take(&mut self.effects.events);
        for event in &events {
            self.publish_event(event);
        }
        self.effects.events = events;
    }

    /// Tells of jobs that a push did not bring because their custom ids are taken.
    pub(super) fn tell_duplicates<'n>(
        &mut self,
        queue: &str,
        names: impl Iterator<Item = &'n str>,
    ) {
        if !self.events.listening {
            return;
        }
        let at_ms = self.now_ms;
        let queue: std::sync::Arc<str> = queue.into();
        for name in names {
            let job = Some(KnownAs::Custom(name.into()));
            let (queue, data) = (queue.clone(), LogRef::default());
            let step = Step::Duplicated;
            self.publish_event(&Event { at_ms, queue, job, name: None, data, step });
        }
    }

    fn publish_event(&mut self, event: &Event) {
        if self.events.interest.of(&event.queue).next().is_none() {
            return;
        }
        let cold = !self.write_text(event, &[]);
        if !cold && self.events.late.is_empty() {
            self.send_text(&event.queue);
            return;
        }
        if self.events.late.len() >= LATE_MAX || self.events.late_bytes >= LATE_BYTES_MAX {
            self.give_up_waiting();
            self.write_text(event, &[missing(event)]);
            self.send_text(&event.queue);
            return;
        }
        if cold {
            let place = self.events.left + self.events.late.len() as u64;
            let client = ClientId::default();
            let origin = Origin {
                shard: self.me as u16,
                conn: NOBODY,
                client,
                tokenless: false,
                lists: false,
            };
            self.read_first(
                origin,
                Continuation::PublishEvent { place },
                &[shown(event)],
                Vec::new(),
            );
            self.events.late.push_back(Late::Cold(event.clone()));
        } else {
            let late = self.events.late_text(&event.queue);
            self.events.late.push_back(late);
        }
    }

    /// Writes the text of an event. False if a part of it has to be read first.
    fn write_text(&mut self, event: &Event, fetched: &[Fetched]) -> bool {
        let text = &mut self.events.text;
        text.clear();
        let too_long = shown(event).payload_bytes as usize > EVENT_BYTES_MAX;
        let shows = !too_long
            && match write_event(text, &self.engine, event, Some(fetched)) {
                Ok(()) => text.len() <= EVENT_BYTES_MAX,
                Err(Absent::Cold) => return false,
                Err(Absent::Damaged) => false,
            };
        if !shows {
            text.clear();
            // Without what is shown of records there is none to be absent.
            let _ = write_event(text, &self.engine, event, None);
        }
        true
    }

    /// Sends the text that was just written.
    fn send_text(&mut self, queue: &str) {
        let Self { events, outbox, .. } = self;
        for shard in events.interest.of(queue) {
            send(outbox.after_commit(usize::from(shard)), queue, &events.text);
        }
    }

    /// The record that the event at a place waited for has come.
    pub(super) fn told_record_arrived(&mut self, place: u64, fetched: &[Fetched]) {
        let Some(index) = place.checked_sub(self.events.left) else { return };
        let Some(Late::Cold(event)) = self.events.late.get(index as usize) else { return };
        let event = event.clone();
        self.write_text(&event, fetched);
        self.events.late[index as usize] = self.events.late_text(&event.queue);
        self.send_late();
    }

    /// Sends what waits, as far as it has all its parts.
    fn send_late(&mut self) {
        let Self { events, outbox, .. } = self;
        while let Some(Late::Ready { queue, text }) = events.late.front() {
            for shard in events.interest.of(queue) {
                send(outbox.after_commit(usize::from(shard)), queue, text);
            }
            events.late_bytes -= text.len();
            events.late.pop_front();
            events.left += 1;
        }
    }

    /// Sends what waits, without what is not there yet.
    fn give_up_waiting(&mut self) {
        while let Some(Late::Cold(event)) = self.events.late.front().cloned() {
            self.write_text(&event, &[missing(&event)]);
            self.send_text(&event.queue);
            self.events.late.pop_front();
            self.events.left += 1;
            self.send_late();
        }
    }

    /// Messages about events.
    pub(super) fn read_event_message(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        message: &EventMessage,
    ) {
        let name = |queue: &Option<Span>| queue.as_ref().map(|queue| batch.text(queue));
        match message {
            EventMessage::Listen { shard, queue, conn, time } => {
                self.listen(*shard, name(queue));
                let answer = Message::Events(EventMessage::Heard { conn: *conn, time: *time });
                self.outbox.immediate(usize::from(*shard)).messages.push(answer);
            }
            EventMessage::Heard { conn, time } => self.heard(conns, *conn, *time),
            EventMessage::Unlisten { shard, queue } => self.unlisten(*shard, name(queue)),
            EventMessage::News { queue, text } => {
                self.subscribers.take_news(conns, batch.text(queue), &batch.bytes[text.clone()]);
            }
        }
    }
}

fn send(batch: &mut Batch, queue: &str, text: &[u8]) {
    let queue = batch.keep(queue.as_bytes());
    let text = batch.keep(text);
    batch.messages.push(Message::Events(EventMessage::News { queue, text }));
}

/// The record whose payload an event shows; an empty one if it shows none.
fn shown(event: &Event) -> LogRef {
    match event.step {
        Step::Pushed => event.data,
        Step::Completed { result } => result,
        Step::Failed { error } => error,
        _ => LogRef::default(),
    }
}

/// What stands for a record that shall not be read.
fn missing(event: &Event) -> Fetched {
    Fetched { stored: shown(event), bytes: None }
}

/// Writes an event as clients see it; what it shows of records only if there are `fetched` ones to be
/// looked at, beside those in memory.
fn write_event(
    out: &mut Vec<u8>,
    engine: &Engine,
    event: &Event,
    fetched: Option<&[Fetched]>,
) -> Result<(), Absent> {
    out.extend_from_slice(b"{\"eventType\":");
    json::string(out, event.step.name());
    out.extend_from_slice(b",\"queue\":");
    json::string(out, &event.queue);
    out.extend_from_slice(b",\"jobId\":");
    match &event.job {
        Some(KnownAs::Id(id)) => {
            out.push(b'"');
            out.extend_from_slice(&uuid_text::format(id.0));
            out.push(b'"');
        }
        Some(KnownAs::Custom(name)) => json::string(out, name),
        None => json::string(out, ""),
    }
    if let Some(name) = &event.name {
        out.extend_from_slice(b",\"name\":");
        json::string(out, name);
    }
    out.extend_from_slice(b",\"timestamp\":");
    json::integer(out, event.at_ms);
    if let Some(fetched) = fetched {
        write_shown(out, &Records::new(&engine.journal, fetched), event)?;
    }
    match event.step {
        Step::Retried { prev } | Step::Removed { prev } => {
            out.extend_from_slice(b",\"prev\":");
            json::string(out, prev.name());
        }
        Step::Progress(progress) => {
            out.extend_from_slice(b",\"progress\":");
            json::number(out, progress);
        }
        Step::Delayed { delay_ms } => {
            out.extend_from_slice(b",\"delay\":");
            json::integer(out, delay_ms);
        }
        _ => {}
    }
    out.push(b'}');
    Ok(())
}

fn write_shown(out: &mut Vec<u8>, records: &Records<'_>, event: &Event) -> Result<(), Absent> {
    match event.step {
        Step::Failed { error } => {
            let error = text_of(records, &error)?;
            out.extend_from_slice(b",\"error\":");
            json::string(out, error);
        }
        Step::Completed { result } if result.payload_bytes == 0 => {
            out.extend_from_slice(b",\"data\":null");
        }
        Step::Pushed | Step::Completed { .. } => {
            let value = records.payload(&shown(event))?;
            out.extend_from_slice(b",\"data\":");
            let room = EVENT_BYTES_MAX.saturating_sub(out.len());
            // It was checked when it came: only a damaged record is no value, but one may be too long.
            json::from_msgpack_within(value, out, room).map_err(|_| Absent::Damaged)?;
        }
        _ => {}
    }
    Ok(())
}
