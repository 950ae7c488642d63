//! Mail from other shards, and from this one to itself.

use super::dispatch::Asked;
use super::message::{Batch, Message, Question, Span};
use crate::api::spec::Op;
use crate::server::event_loop::turn_meter::Work;
use crate::server::multi_shard::dependencies::UnmetOf;
use crate::server::shard_server::Core;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;
use std::vec::IntoIter;

/// Steps of mail in one turn, after which the rest waits for the next: a batch can hold any number of messages, and
/// each of them can be work.
pub(crate) const MAIL_STEPS_MAX: u64 = 2000;

/// A batch that a turn has begun to read.
#[derive(Debug)]
pub struct Unread {
    /// What its messages point into, without those.
    batch: Batch,
    messages: IntoIter<Message>,
}

impl Core {
    /// Reads one batch, or what was left of one, up to so many steps in all. True if there was one.
    pub fn read_mail(&mut self, conns: &mut Connections, until: u64) -> bool {
        let unread = self.unread.take().or_else(|| {
            let mut batch = self.post.receive()?;
            let messages = std::mem::take(&mut batch.messages).into_iter();
            Some(Unread { batch, messages })
        });
        let Some(Unread { mut batch, mut messages }) = unread else { return false };
        let others_wait = !self.put_off.is_empty();
        while let Some(message) = messages.next() {
            self.read_or_put_off(conns, &mut batch, message, others_wait);
            // What is put off points into the same bytes: such a batch is read to its end, and costs little.
            if self.steps() >= until && batch.messages.is_empty() {
                self.unread = Some(Unread { batch, messages });
                return true;
            }
        }
        if !batch.messages.is_empty() {
            self.put_off.push_back(batch);
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
            message if self.puts_off(&message, others_wait || !batch.messages.is_empty()) => {
                batch.messages.push(message);
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
                let frame = &batch.bytes[frame.clone()];
                let asked = Asked { origin: *origin, req_id: None, frame, lookup: *lookup };
                self.requested(conns, asked);
            }
            Message::Push { origin, frame, taken, unmet, open } => {
                let frame = &batch.bytes[frame.clone()];
                let of = |list: &UnmetOf<Span>, place: usize| {
                    let found = list.binary_search_by_key(&place, |(job, _)| *job).ok()?;
                    Some(&batch.bytes[list[found].1.clone()])
                };
                self.push_prepared(conns, *origin, frame, taken, |place| {
                    (of(unmet, place).unwrap_or_default(), of(open, place).unwrap_or_default())
                });
            }
            Message::Reply { origin, frame } => {
                self.answered(*origin);
                if !frame.is_empty() {
                    self.send_frame(conns, *origin, &batch.bytes[frame.clone()]);
                }
            }
            Message::Owed { origin, head, value } => {
                self.owe_here(conns, *origin, &batch.bytes[head.clone()], value);
            }
            // Taken out before, since a socket has one owner, and a long answer is not copied.
            Message::Adopt(_) | Message::List { .. } => {}
            Message::Leave { client, gone } => self.leave(conns, *client, *gone),
            Message::Carried { from, bytes } => self.carried(*from, *bytes),
            Message::Taken { bytes } => self.aside.note_taken(*bytes),
            Message::Claim { step, names } => self.claim(batch, *step, names),
            Message::Claimed { step, taken } => self.claimed(conns, *step, taken),
            Message::Reserve { name } => self.reserve(batch.text(name)),
            Message::Unclaim { name } => self.unclaimed(batch.text(name)),
            Message::Named { name, id, known } => {
                self.named(batch.text(name), *id, *known);
            }
            Message::Sound { from, number } => self.answer_sounding(*from, *number),
            Message::Sounded { number } => self.sounded(*number),
            Message::Seen { client } => self.saw_client(*client),
            Message::Attend { queue, came } => {
                let command = Command::Attend { queue: batch.text(queue), came: *came };
                self.apply(conns, Caller::default(), &command);
            }
            Message::Resolve { step, names } => self.resolve(batch, *step, names),
            Message::Resolved { step, jobs } => self.resolved(conns, *step, jobs),
            Message::Stand { step, jobs } => self.stand(*step, jobs),
            Message::Stood { step, jobs } => self.stood(conns, *step, jobs),
            Message::Notice(notice) => {
                self.apply(conns, Caller::default(), &Command::Notice(*notice));
            }
            Message::Report { report, value } => {
                let value = &batch.bytes[value.clone()];
                self.take_report(conns, report, value);
            }
            Message::Flow(mail) => self.read_flow_mail(conns, batch, mail),
            Message::Kin(mail) => self.read_kin_mail(conns, batch, mail),
            Message::Long(mail) => self.read_long_mail(conns, batch, mail),
            Message::Part { step, origin, kind, items, of } => {
                self.part(conns, batch, (*step, *of), *origin, *kind, items);
            }
            Message::Parted { step, outcome } => self.parted(conns, *step, outcome),
            Message::Ask { step, question: Question::BackupPoint } | Message::Cut { step } => {
                self.cut(*step);
            }
            Message::Ask { step, question } => self.answer_share(conns, *step, *question),
            Message::Answer { step, census, entries, count, share } => {
                let entries = &batch.bytes[entries.clone()];
                self.answer_came(conns, *step, *census, entries, *count, share.as_ref());
            }
            Message::Rows(mail) => self.read_rows_mail(conns, batch, mail),
            Message::Toll { origin, client } => self.toll(batch, *origin, client),
            Message::Tolled { conn, verdict } => self.tolled(*conn, *verdict),
            Message::Events(mail) => self.read_event_mail(conns, batch, mail),
            Message::Cron(mail) => self.read_cron_mail(conns, batch, mail),
            Message::Webhook(mail) => self.read_webhook_mail(conns, mail),
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

/// What a message counts as. One that brings a command is known when that is decoded.
fn work_of(message: &Message) -> Work {
    match message {
        Message::Notice(_) | Message::Report { .. } => Work::NEWS,
        Message::Push { .. }
        | Message::Long(_)
        | Message::Claim { .. }
        | Message::Claimed { .. } => Work::of(Op::PushBatch),
        Message::Part { .. } | Message::Parted { .. } => Work::of(Op::AckBatch),
        Message::Flow(_) => Work::of(Op::PushFlow),
        Message::Ask { question: Question::Prometheus, .. } => Work::of(Op::Prometheus),
        Message::Rows(mail) => mail.work(),
        Message::Cron(_) => Work::of(Op::Cron),
        Message::Webhook(_) => Work::of(Op::AddWebhook),
        _ => Work::OTHER,
    }
}
