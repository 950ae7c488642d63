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
//! | `choice` | what a client wants to hear |
//! | `dashboard_names` | the names that dashboards have for events |
//! | `feeding` | hands events out to subscribers, and keeps their connections alive |
//! | `greeting` | what a client waits for when its stream begins |
//! | `interest` | which shards want to hear of what happens here, and what is kept for clients that come back |
//! | `kept` | the newest events, for those |
//! | `kinds` | types of events as a set |
//! | `message` | what the shards tell each other |
//! | `opening` | begins a stream once all shards know of it, changes what it is of, and ends it |
//! | `position` | the id of an event: where a client is in the events of all shards |
//! | `replaying` | what those get that come back |
//! | `returns` | the line of those that come back |
//! | `shared_buffer` | events that the subscribers of one topic share, and the forms in which they go out |
//! | `state` | the events of a shard on their way |
//! | `subscribe` | Subscribe and Unsubscribe |
//! | `subscribers` | the table of clients that listen: SSE, WebSocket, TCP |
//! | `targets` | what choices concern, and who is found by an event |
//! | `text` | an event as text, and the forms of it |
//! | `topics` | clients that have made the same choice, and the buffer that they share |
//! | `wish` | what a client asks for |
//! | `writing` | writes an event as text |

pub(super) mod choice;
mod dashboard_names;
mod feeding;
mod greeting;
mod interest;
mod kept;
mod kinds;
pub(super) mod message;
mod opening;
mod position;
mod replaying;
mod returns;
pub(super) mod shared_buffer;
pub(super) mod state;
pub(super) mod subscribe;
pub(super) mod subscribers;
mod targets;
mod text;
mod topics;
pub(super) mod wish;
mod writing;

use self::interest::Replay;
use self::message::{Asker, EventMessage, Heard, NOBODY, Wants};
use self::state::{Events, LOOKS_PER_STEP, Late};
use self::targets::{Target, Wanted};
use self::text::EventText;
use self::writing::{EVENT_BYTES_MAX, Part, write_event};
use super::shard_mail::envelope::Origin;
use super::shard_mail::message::{Batch, Message};
use super::shard_server::ShardServer;
use super::storage::cold_reads::Continuation;
use super::storage::engine::{Absent, Fetched, Records};
use corq_io::net::Connections;
use corq_shards::effect::KnownAs;
use corq_shards::event::{Event, Step};
use corq_shards::log_record::location::LogRef;

/// Events that may wait for the disk or behind one that does, and the bytes of their texts. Beyond
/// that, nothing waits any more: what has not been read is left out.
const LATE_MAX: usize = 10_000;
const LATE_BYTES_MAX: usize = 16 << 20;

impl ShardServer {
    /// A shard wants this of some targets from now on.
    fn take_wants(&mut self, shard: u16, wants: &[(Target, Wanted)]) {
        self.meter.note(wants.len() / LOOKS_PER_STEP);
        for (target, wanted) in wants {
            self.events.interest.set(self.now_ms, shard, target, *wanted);
        }
        self.listen_as_needed();
    }

    pub(super) fn listen_as_needed(&mut self) {
        let needed = !self.events.interest.is_empty() || self.webhooks.are_watching();
        if self.events.listening != needed {
            self.events.listening = needed;
            self.engine.shard.listen(needed);
        }
        self.engine.shard.listen_to_extras(self.events.interest.has_extras());
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
        self.events.interest.forget_due(self.now_ms);
        self.listen_as_needed();
    }

    /// Tells of jobs that a push did not bring because their custom ids are taken.
    pub(super) fn publish_duplicates<'n>(
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
            let (name, trace) = (None, None);
            self.publish_event(&Event { at_ms, queue, job, name, trace, data, step });
        }
    }

    fn publish_event(&mut self, event: &Event) {
        let steps = self.events.find(event);
        self.meter.note(steps / LOOKS_PER_STEP);
        if self.events.hearers.is_empty() {
            return;
        }
        let cold = !self.write_text(event, &[]);
        if !cold && self.events.late.is_empty() {
            self.send_text(&event.queue);
            return;
        }
        if self.events.late.len() >= LATE_MAX || self.events.late_bytes >= LATE_BYTES_MAX {
            self.give_up_waiting();
            self.events.find(event);
            self.write_text(event, &missing(event));
            self.send_text(&event.queue);
            return;
        }
        if cold {
            let (needed, at_hand) = self.records_of(event);
            let kept: usize = at_hand.iter().map(|one| one.stored.record_bytes as usize).sum();
            self.events.late_bytes += kept;
            let place = self.events.left + self.events.late.len() as u64;
            let origin = Origin::of_none(self.me as u16, NOBODY);
            self.read_first(origin, Continuation::PublishEvent { place }, &needed, at_hand);
            self.events.late.push_back(Late::Cold(event.clone(), kept));
        } else {
            let late = self.events.late_text(&event.queue);
            self.events.late.push_back(late);
        }
    }

    /// Writes the text of an event, with as much as its hearers want. False if a part of it has to be read first.
    fn write_text(&mut self, event: &Event, fetched: &[Fetched]) -> bool {
        let Events { text, layout, hearers, written, .. } = &mut self.events;
        let records = Records::new(&self.engine.journal, fetched);
        for part in Part::upto(hearers.full) {
            text.clear();
            let longest = part.shown(event).map(|stored| stored.payload_bytes).max();
            if longest.is_some_and(|bytes| bytes as usize > EVENT_BYTES_MAX) {
                continue;
            }
            match write_event(text, &records, event, part) {
                Ok(places) => {
                    *layout = places;
                    if text.len() <= EVENT_BYTES_MAX {
                        break;
                    }
                }
                Err(Absent::Cold) => return false,
                Err(Absent::Damaged) => {}
            }
        }
        *written += 1;
        true
    }

    /// The records that an event shows: those that have to be read, and copies of those that are in memory.
    fn records_of(&self, event: &Event) -> (Vec<LogRef>, Vec<Fetched>) {
        let records = Records::new(&self.engine.journal, &[]);
        let (mut needed, mut at_hand) = (Vec::new(), Vec::new());
        for stored in Part::All.shown(event) {
            match records.record(&stored) {
                Ok(bytes) => at_hand.push(Fetched { stored, bytes: Some(bytes.into()) }),
                Err(_) => needed.push(stored),
            }
        }
        (needed, at_hand)
    }

    /// Sends the text that was just written to those who were just found.
    fn send_text(&mut self, queue: &str) {
        let Self { events, outbox, me, .. } = self;
        let Events { interest, hearers, text, layout, .. } = events;
        let event = EventText { text, layout: *layout };
        if hearers.kept {
            interest.kept.push(queue, &event, interest.kept_max);
        }
        let (me, number) = (*me as u16, interest.kept.last());
        for shard in &hearers.shards {
            send(outbox.after_commit(usize::from(*shard)), (me, number), queue, &event);
        }
    }

    /// The record that the event at a place waited for has come.
    pub(super) fn event_record_arrived(&mut self, place: u64, fetched: &[Fetched]) {
        let Some(index) = place.checked_sub(self.events.left) else { return };
        let Some(Late::Cold(event, kept)) = self.events.late.get(index as usize) else { return };
        let event = event.clone();
        self.events.late_bytes -= kept;
        self.events.find(&event);
        self.write_text(&event, fetched);
        self.events.late[index as usize] = self.events.late_text(&event.queue);
        self.send_late();
    }

    /// Sends what waits, as far as it has all its parts.
    fn send_late(&mut self) {
        while let Some(Late::Ready { .. }) = self.events.late.front() {
            let front = self.events.late.pop_front();
            let Some(Late::Ready { queue, text, layout }) = front else { return };
            self.events.late_bytes -= text.len();
            self.events.left += 1;
            let Events { interest, hearers, .. } = &mut self.events;
            interest.find(&EventText { text: &text, layout }.about(&queue), hearers);
            (self.events.text, self.events.layout) = (text.into(), layout);
            self.send_text(&queue);
        }
    }

    /// Sends what waits, without what is not there yet.
    fn give_up_waiting(&mut self) {
        while let Some(Late::Cold(event, kept)) = self.events.late.front().cloned() {
            self.events.find(&event);
            self.write_text(&event, &missing(&event));
            self.send_text(&event.queue);
            self.events.late_bytes -= kept;
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
        message: EventMessage,
    ) {
        match message {
            EventMessage::Wants(wants) => {
                let Wants { shard, of_targets, asker } = *wants;
                let resume = asker.as_ref().and_then(|asker| asker.resume.as_ref());
                let replay = resume.map(|resume| self.events.interest.replay(resume));
                self.take_wants(shard, &of_targets);
                if let Some(asker) = asker {
                    self.answer_asker(usize::from(shard), &asker, replay);
                }
            }
            EventMessage::Heard(heard) => self.heard(conns, *heard),
            EventMessage::News { shard, number, queue, text, layout } => {
                let event = EventText { text: &batch.bytes[text], layout };
                let queue = batch.text(&queue);
                let taken = self.subscribers.take_news(conns, (shard, number), queue, &event);
                self.meter.note(taken.looks / LOOKS_PER_STEP);
                if taken.bytes > 0 {
                    self.meter.note_bytes(taken.bytes);
                }
            }
        }
    }

    /// Tells a shard that this one knows what a client of it wants. If the client counts, the answer stays behind the
    /// events that have happened: it tells which were the last of them.
    fn answer_asker(&mut self, dest: usize, asker: &Asker, replay: Option<Replay>) {
        let looks = replay.as_ref().map_or(0, |replay| replay.events.len());
        self.meter.note(looks / LOOKS_PER_STEP);
        let Asker { conn, time, counts, .. } = *asker;
        let (shard, number) = (self.me as u16, self.events.interest.kept.last());
        let heard = Box::new(Heard { conn, time, shard, number, replay });
        let batch =
            if counts { self.outbox.after_commit(dest) } else { self.outbox.immediate(dest) };
        batch.messages.push(Message::Events(EventMessage::Heard(heard)));
    }
}

fn send(batch: &mut Batch, (shard, number): (u16, u64), queue: &str, event: &EventText<'_>) {
    let queue = batch.keep(queue.as_bytes());
    let (text, layout) = (batch.keep(event.text), event.layout);
    batch.messages.push(Message::Events(EventMessage::News { shard, number, queue, text, layout }));
}

/// Absent values in the place of records that shall not be read.
fn missing(event: &Event) -> Vec<Fetched> {
    let shown = Part::All.shown(event);
    let mut all: Vec<Fetched> = shown.map(|stored| Fetched { stored, bytes: None }).collect();
    all.sort_unstable_by_key(|one| one.stored.position);
    all
}
