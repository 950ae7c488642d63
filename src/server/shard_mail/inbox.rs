//! Messages from other shards, and from this one to itself.

use super::envelope::Span;
use super::message::{Batch, Message, ScatterQuery};
use crate::api::commands::Op;
use crate::server::event_loop::turn_meter::Work;
use crate::server::multi_shard::messages::unmet_at;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use std::vec::IntoIter;

/// Steps of messages in one turn, after which the rest waits for the next: a batch can hold any number of messages, and
/// each of them can be work.
pub(crate) const MESSAGE_STEPS_MAX: u64 = 1000;

/// A batch that a turn has begun to read.
#[derive(Debug)]
pub struct Unread {
    /// The batch without its messages: the bytes that they point into.
    batch: Batch,
    messages: IntoIter<Message>,
}

impl ShardServer {
    /// Reads one batch, or what was left of one, up to so many steps in all. True if there was one.
    pub fn read_messages(&mut self, conns: &mut Connections, until: u64) -> bool {
        let unread = self.unread.take().or_else(|| {
            let mut batch = self.outbox.receive()?;
            let messages = std::mem::take(&mut batch.messages).into_iter();
            Some(Unread { batch, messages })
        });
        let Some(Unread { mut batch, mut messages }) = unread else { return false };
        let others_wait = !self.stalled_messages.is_empty();
        while let Some(message) = messages.next() {
            self.read_or_put_off(conns, &mut batch, message, others_wait);
            // Messages that are put off point into the same bytes: such a batch is read to its end, and costs little.
            if self.steps() >= until && batch.messages.is_empty() {
                self.unread = Some(Unread { batch, messages });
                return true;
            }
        }
        if !batch.messages.is_empty() {
            self.stalled_messages.push_back(batch);
        }
        true
    }

    /// Reads a batch that was put off, up to so many steps in all; what of it has to wait is returned.
    pub(crate) fn read_again(
        &mut self,
        conns: &mut Connections,
        mut batch: Batch,
        until: u64,
    ) -> Option<Batch> {
        let mut messages = std::mem::take(&mut batch.messages).into_iter();
        for message in messages.by_ref() {
            self.read_or_put_off(conns, &mut batch, message, false);
            if self.steps() >= until {
                break;
            }
        }
        batch.messages.extend(messages);
        (!batch.messages.is_empty()).then_some(batch)
    }

    /// Reads a message of a batch, or leaves it there.
    fn read_or_put_off(
        &mut self,
        conns: &mut Connections,
        batch: &mut Batch,
        message: Message,
        others_wait: bool,
    ) {
        match message {
            Message::Adopt(moved) => self.adopt(conns, *moved),
            Message::List { origin, frame } => {
                self.answered(origin);
                self.send_whole(conns, origin, frame);
            }
            Message::Figures(message) => {
                self.meter_work(message.work());
                self.meter.note(1);
                self.read_figures_message(conns, message);
            }
            Message::Look(message) => {
                self.meter_work(Work::of(Op::GetFlow));
                self.meter.note(1);
                self.read_look_message(conns, message);
            }
            message if self.stalls(&message, others_wait || !batch.messages.is_empty()) => {
                batch.messages.push(message);
            }
            Message::Bulk(message) => {
                self.meter_work(message.work());
                self.meter.note(1);
                self.read_bulk_message(conns, message);
            }
            Message::Events(message) => {
                self.meter_work(Work::OTHER);
                self.meter.note(1);
                self.read_event_message(conns, batch, message);
            }
            message => {
                self.meter_work(work_of(&message));
                self.meter.note(1);
                self.read_message(conns, batch, &message);
            }
        }
    }

    fn read_message(&mut self, conns: &mut Connections, batch: &Batch, message: &Message) {
        match message {
            Message::Request { origin, frame, lookup } => {
                let frame = batch.frame(frame);
                self.requested(conns, *origin, frame, *lookup);
            }
            Message::Push { origin, frame, taken, unmet, open, parents } => {
                let frame = batch.frame(frame);
                let of = |list, place| {
                    let span: &Span = unmet_at(list, place)?;
                    Some(&batch.bytes[span.clone()])
                };
                self.note_taken(*origin, &frame);
                self.push_prepared(conns, *origin, frame, (taken, parents), |place| {
                    (of(unmet, place).unwrap_or_default(), of(open, place).unwrap_or_default())
                });
            }
            Message::Reply { origin, frame } => {
                self.answered(*origin);
                if !frame.is_empty() {
                    self.send_frame(conns, *origin, &batch.bytes[frame.clone()]);
                }
            }
            Message::SharedReply { origin, head, value } => {
                self.queue_shared_reply(conns, *origin, &batch.bytes[head.clone()], value);
            }
            // Taken out before, since a socket has one owner, and long answers, figures and events are not copied; or followed
            // by the turn itself.
            Message::Adopt(_)
            | Message::Look(_)
            | Message::Bulk(_)
            | Message::List { .. }
            | Message::Events(_)
            | Message::Figures(_)
            | Message::AccessChanged => {}
            Message::Leave { client, gone } => self.leave(conns, *client, *gone),
            Message::Carried { from, bytes } => self.carried(*from, *bytes),
            Message::Taken { bytes } => self.large_replies.note_taken(*bytes),
            Message::FrameTaken { bytes } => self.forwarded_frames.note_taken(*bytes),
            Message::Claim { step, names, durable } => self.claim(batch, *step, names, *durable),
            Message::Claimed { step, taken } => self.claimed(conns, *step, taken),
            Message::Reserve { name } => self.reserve(batch.text(name)),
            Message::Unclaim { name } => self.unclaimed(batch.text(name)),
            Message::Named { name, id, known } => {
                self.named(batch.text(name), *id, *known);
            }
            Message::Probe { from, number, jobs, durable } => {
                self.answer_probe(conns, (*from, *number), jobs, *durable);
            }
            Message::Probed { number } => self.probed(*number),
            Message::Seen { client } => self.saw_client(*client),
            Message::Resolve { step, names } => self.resolve(batch, *step, names),
            Message::Resolved { step, jobs } => self.resolved(conns, *step, jobs),
            Message::Stand { step, scope, jobs } => self.stand(*step, *scope, jobs),
            Message::Stood { step, jobs } => self.stood(conns, *step, jobs),
            Message::AskParents { step, jobs } => self.tell_of_parents(*step, jobs),
            Message::Parents { step, jobs } => self.parents_known(conns, *step, jobs),
            Message::Notice(notice) => {
                self.apply(conns, Caller::default(), &Command::Notice(*notice));
            }
            Message::Report { report, value } => {
                let value = &batch.bytes[value.clone()];
                self.take_report(conns, report, value);
            }
            Message::Flow(message) => self.read_flow_message(conns, batch, message),
            Message::ParentLink(message) => self.read_parent_link_message(conns, batch, message),
            Message::Large(message) => self.read_large_message(message),
            Message::BatchPart { step, origin, kind, items } => {
                self.part(conns, batch, *step, *origin, *kind, items);
            }
            Message::BatchPartDone { step, outcome } => self.parted(conns, *step, outcome),
            Message::Scatter { step, question: ScatterQuery::BackupPoint }
            | Message::Cut { step } => {
                self.cut(*step);
            }
            Message::Scatter { step, question } => {
                self.answer_scatter_query(conns, *step, *question);
            }
            Message::Gather { step, census, entries, count, shares } => {
                let entries = &batch.bytes[entries.clone()];
                self.answer_came(conns, *step, *census, entries, *count, shares);
            }
            Message::Rows(message) => self.read_rows_message(conns, batch, message),
            Message::Queues(message) => self.read_queue_message(conns, message),
            Message::CountRequest { origin, client } => self.count_request(batch, *origin, client),
            Message::RequestCounted { conn, verdict } => self.request_counted(*conn, *verdict),
            Message::Cron(message) => self.read_cron_message(conns, batch, message),
            Message::Webhook(message) => self.read_webhook_message(conns, message),
            Message::Open => {
                self.closed_shards -= 1;
                if self.closed_shards == 0 {
                    self.drop_uncommitted_flows(conns);
                    self.all_crons_are_known();
                }
            }
        }
    }
}

/// The command that the turn meter counts a message as. A message that brings a command counts as that once it is
/// decoded.
fn work_of(message: &Message) -> Work {
    match message {
        Message::Notice(_) | Message::Report { .. } => Work::NEWS,
        Message::Push { .. }
        | Message::Large(_)
        | Message::Claim { .. }
        | Message::Claimed { .. } => Work::of(Op::PushBatch),
        Message::BatchPart { .. } | Message::BatchPartDone { .. } => Work::of(Op::AckBatch),
        Message::Flow(_) => Work::of(Op::PushFlow),
        Message::Scatter { question: ScatterQuery::Prometheus, .. } => Work::of(Op::Prometheus),
        Message::Rows(message) => message.work(),
        Message::Figures(message) => message.work(),
        Message::Bulk(message) => message.work(),
        Message::Queues(_) => Work::of(Op::ListQueues),
        Message::Look(_) => Work::of(Op::GetFlow),
        Message::Cron(_) => Work::of(Op::Cron),
        Message::Webhook(_) => Work::of(Op::AddWebhook),
        Message::Request { .. }
        | Message::Reply { .. }
        | Message::List { .. }
        | Message::SharedReply { .. }
        | Message::Carried { .. }
        | Message::Taken { .. }
        | Message::FrameTaken { .. }
        | Message::Adopt(_)
        | Message::Leave { .. }
        | Message::Reserve { .. }
        | Message::Unclaim { .. }
        | Message::Named { .. }
        | Message::Probe { .. }
        | Message::Probed { .. }
        | Message::Seen { .. }
        | Message::Resolve { .. }
        | Message::Resolved { .. }
        | Message::Stand { .. }
        | Message::Stood { .. }
        | Message::AskParents { .. }
        | Message::Parents { .. }
        | Message::ParentLink(_)
        | Message::Scatter { .. }
        | Message::Gather { .. }
        | Message::Cut { .. }
        | Message::CountRequest { .. }
        | Message::RequestCounted { .. }
        | Message::Events(_)
        | Message::AccessChanged
        | Message::Open => Work::OTHER,
    }
}
