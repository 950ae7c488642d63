//! Questions about figures to all shards: each answers its part, the one that was asked puts them together.

use super::messages::{FiguresMessage, FiguresTask, Part, Question, Shows};
use crate::api::commands::Op;
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::event_loop::turn_meter::Work;
use crate::server::multi_shard::task::Task;
use crate::server::shard_mail::envelope::Step;
use crate::server::shard_mail::message::Message;
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::stats::history::share::Share;
use std::ops::Range;

/// Looks that take about as long as a step.
const LOOKS_PER_STEP: usize = corq_shards::query::LOOKS_PER_STEP as usize;

/// About what a shard says of a point at most.
const POINT_BYTES: usize = 256;

impl Shows {
    /// Bytes that count for the answers of so many shards before these have come: many clients may ask at once, in a
    /// few bytes each.
    fn reserve_bytes(self, shards: usize) -> usize {
        match self {
            Self::History(span, _) | Self::Heatmap(span, _) => {
                span.points as usize * POINT_BYTES * shards
            }
            Self::Shards => 0,
        }
    }

    fn question(self) -> Question {
        match self {
            Self::History(span, _) | Self::Heatmap(span, _) => Question::History(span),
            Self::Shards => Question::Row,
        }
    }
}

impl FiguresMessage {
    /// Kind of work that the message counts as.
    pub(crate) fn work(&self) -> Work {
        match self {
            Self::Ask { question: Question::History(_), .. }
            | Self::Answer { part: Part::History(_), .. } => Work::of(Op::History),
            Self::Ask { question: Question::Row, .. } | Self::Answer { part: Part::Row(_), .. } => {
                Work::of(Op::Shards)
            }
            Self::Interest { .. } | Self::Look { .. } | Self::Seen { .. } | Self::Sample(_) => {
                Work::of(Op::Watch)
            }
        }
    }
}

impl ShardServer {
    /// Asks some shards, and answers once all have.
    pub(super) fn ask_for_figures(
        &mut self,
        ctx: RequestContext<'_>,
        shows: Shows,
        dests: Range<usize>,
    ) {
        self.deferred(ctx.origin);
        let reserved_bytes = shows.reserve_bytes(dests.len());
        self.large_replies.reserve(reserved_bytes);
        let task = FiguresTask {
            origin: ctx.origin,
            req_id: ctx.req_id.map(Into::into),
            shows,
            left: dests.len(),
            parts: Vec::with_capacity(dests.len()),
            bytes: 0,
            reserved_bytes,
        };
        let step = self.tasks.start(self.me, Task::Figures(task));
        for dest in dests {
            let message = FiguresMessage::Ask { step, question: shows.question() };
            self.outbox.immediate(dest).messages.push(Message::Figures(message));
        }
    }

    /// Messages about figures.
    pub(crate) fn read_figures_message(
        &mut self,
        conns: &mut Connections,
        message: FiguresMessage,
    ) {
        match message {
            FiguresMessage::Ask { step, question } => {
                let part = match question {
                    Question::History(span) => {
                        let shard = &self.engine.shard;
                        let (share, looks) = shard.history_of_shard(self.now_ms, span);
                        self.meter.note(looks / LOOKS_PER_STEP);
                        Part::History(share)
                    }
                    Question::Row => Part::Row(self.row_of_shard(conns)),
                };
                let from = self.me as u16;
                let answer = FiguresMessage::Answer { step, from, part };
                let batch = self.outbox.after_commit(usize::from(step.shard));
                batch.messages.push(Message::Figures(answer));
            }
            FiguresMessage::Answer { step, from, part } => {
                self.figures_came(conns, step, from, part);
            }
            FiguresMessage::Interest { shard, wanted, is_new } => {
                self.figures.sampler.note(shard, wanted, is_new);
            }
            FiguresMessage::Look { round, wanted } => self.look_for_sample(conns, round, &wanted),
            FiguresMessage::Seen { shard, round, seen } => {
                self.take_part_of_sample(shard, round, seen);
            }
            FiguresMessage::Sample(sample) => self.figures.viewers.begin(sample),
        }
    }

    fn figures_came(&mut self, conns: &mut Connections, step: Step, from: u16, part: Part) {
        let Some(Task::Figures(task)) = self.tasks.get(step) else { return };
        let bytes = match &part {
            Part::History(share) => share.bytes.len(),
            Part::Row(row) => row.len(),
        };
        task.parts.push((from, part));
        task.bytes += bytes;
        task.left -= 1;
        let is_last = task.left == 0;
        self.large_replies.note_begun(bytes);
        if !is_last {
            return;
        }
        let Some(Task::Figures(mut task)) = self.tasks.end(step) else { return };
        self.large_replies.note_shown(task.bytes);
        self.large_replies.release(task.reserved_bytes);
        task.parts.sort_by_key(|(shard, _)| *shard);
        match task.shows {
            Shows::History(span, series) => {
                let shares: Vec<_> = task.parts.iter().filter_map(share_of).collect();
                let asked = (task.origin, task.req_id.as_deref());
                self.write_history(conns, asked, None, (span, series), &shares);
            }
            Shows::Heatmap(span, shard) => {
                let shares: Vec<_> = task.parts.iter().filter_map(share_of).collect();
                let asked = (task.origin, task.req_id.as_deref());
                self.write_heatmap(conns, asked, (None, shard), span, &shares);
            }
            Shows::Shards => {
                let req_id = task.req_id.as_deref();
                self.respond(conns, task.origin, |_, sink| {
                    framed(sink, req_id, |sink| {
                        let mut reply = reply::begin(sink.out, true, req_id);
                        let mut data = reply.map("data");
                        let mut rows = data.key("shards");
                        rows.array(task.parts.len());
                        for (_, part) in &task.parts {
                            if let Part::Row(row) = part {
                                rows.raw(row);
                            }
                        }
                    });
                });
            }
        }
        self.answered(task.origin);
    }

    /// Answers `Shards`.
    pub(crate) fn shards(&mut self, _: &mut Connections, ctx: RequestContext<'_>) {
        self.ask_for_figures(ctx, Shows::Shards, 0..self.slots.shards());
    }
}

fn share_of((_, part): &(u16, Part)) -> Option<&Share> {
    match part {
        Part::History(share) => Some(share),
        Part::Row(_) => None,
    }
}
