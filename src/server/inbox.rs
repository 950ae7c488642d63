//! Mail from other shards, and from this one to itself.

use super::core::Core;
use super::dispatch::Asked;
use super::message::{Batch, Message, Question, Span};
use super::needs::UnmetOf;
use corq_io::net::Connections;
use corq_shards::Caller;
use corq_shards::command::Command;

impl Core {
    /// Reads one batch. True if there was one.
    pub fn read_mail(&mut self, conns: &mut Connections) -> bool {
        let Some(batch) = self.post.receive() else { return false };
        let others_wait = !self.put_off.is_empty();
        if let Some(rest) = self.read_batch(conns, batch, others_wait) {
            self.put_off.push_back(rest);
        }
        true
    }

    /// Reads a batch; what of it has to wait is returned.
    pub(super) fn read_batch(
        &mut self,
        conns: &mut Connections,
        mut batch: Batch,
        others_wait: bool,
    ) -> Option<Batch> {
        let mut rest = Vec::new();
        for message in std::mem::take(&mut batch.messages) {
            match message {
                Message::Adopt(moved) => self.adopt(conns, *moved),
                message if self.puts_off(&message, others_wait || !rest.is_empty()) => {
                    rest.push(message);
                }
                message => self.read_message(conns, &batch, &message),
            }
        }
        batch.messages = rest;
        (!batch.messages.is_empty()).then_some(batch)
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
            Message::List { origin, frame } => {
                self.answered(*origin);
                self.send_frame(conns, *origin, frame);
            }
            Message::Owed { origin, head, value } => {
                self.owe(conns, *origin, &batch.bytes[head.clone()], value.clone());
            }
            // Taken out before, since a socket has one owner.
            Message::Adopt(_) => {}
            Message::Leave { client, gone } => self.leave(conns, *client, *gone),
            Message::Carried { from, bytes } => {
                let bytes = *bytes;
                self.post.ask(usize::from(*from)).messages.push(Message::Taken { bytes });
            }
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
            Message::Part { step, origin, kind, items } => {
                self.part(conns, batch, *step, *origin, *kind, items);
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
