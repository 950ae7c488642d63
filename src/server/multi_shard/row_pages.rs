//! Lists over all shards: queues, schedules, workers, and the queues among the metrics. There may be very many rows, so
//! each shard is asked for a page of them at a time, and what it answers is sent as it came, piece by piece.
//!
//! A row that is there all the time stands in the list once. One that comes, goes or changes meanwhile may stand in it or
//! not, as it was at some moment of that time.

use super::messages::{LIST_RESERVE_BYTES, PAGE_ROWS};
use super::row_lists::{Kind, List, Page, Place, RowsMessage, RowsTask};
use super::task::Task;
use crate::api::error::ErrorKind;
use crate::api::limits::LISTING_DEFAULT;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::server::commands::worker_list::{WorkerList, WorkerPage, held_jobs};
use crate::server::dashboard::overview::Overview;
use crate::server::metrics::queue_choice::QueueChoice;
use crate::server::metrics::{MetricsText, QUEUES_SHOWN_MAX};
use crate::server::shard_mail::envelope::{Origin, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use std::sync::Arc;

impl ShardServer {
    /// Begins a list of what all shards have.
    pub(crate) fn list_rows(&mut self, _: &mut Connections, ctx: RequestContext<'_>, kind: Kind) {
        let (origin, req_id) = (ctx.origin, ctx.req_id);
        let kind = match kind {
            Kind::Queues if origin.version.is_three() => Kind::QueueNames,
            other => other,
        };
        self.deferred(origin);
        let list = List::of(kind, self.now_ms);
        self.list_from_all(origin, req_id.map(Into::into), list);
    }

    /// Goes on with workers and schedules once the figures of all shards are known.
    pub(crate) fn list_overview(
        &mut self,
        origin: Origin,
        req_id: Option<Box<[u8]>>,
        overview: Overview,
    ) {
        self.list_from_all(origin, req_id, List::Overview(Box::new(overview)));
    }

    fn list_from_all(&mut self, origin: Origin, req_id: Option<Box<[u8]>>, list: List) {
        let kind = list.kind();
        let shards = self.slots.shards();
        let step = self.start_rows(origin, req_id, list, shards);
        self.ask_all_for_pages(step, kind);
    }

    fn ask_all_for_pages(&mut self, step: Step, kind: Kind) {
        for dest in 0..self.slots.shards() {
            self.ask_page(step, dest, kind, Place::At(0), PAGE_ROWS);
        }
    }

    /// Begins a list of workers: of all of them, or of a page, with their jobs.
    pub(crate) fn list_workers(
        &mut self,
        conns: &mut Connections,
        ctx: RequestContext<'_>,
        queue: Option<&str>,
        after: Option<&str>,
        limit: Option<u64>,
    ) {
        if queue.is_none() && after.is_none() && limit.is_none() {
            self.list_rows(conns, ctx, Kind::Workers);
            return;
        }
        let limit = limit.map_or(LISTING_DEFAULT as usize, |limit| limit as usize);
        let page = WorkerPage { queue: queue.map(Into::into), after: after.map(Into::into), limit };
        self.deferred(ctx.origin);
        let shards = self.slots.shards();
        let list = List::Workers(Box::new(WorkerList::of(page)));
        let step = self.start_rows(ctx.origin, ctx.req_id.map(Into::into), list, shards);
        for dest in 0..shards {
            self.ask_page(step, dest, Kind::Workers, Place::At(0), PAGE_ROWS);
        }
    }

    /// Goes on with the queues once all numbers are known. As many as are shown are taken from one shard after the other.
    pub(crate) fn list_queues_in_metrics(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<Box<[u8]>>,
        text: MetricsText,
    ) {
        let has_none = *text.choice == QueueChoice::Nothing;
        let step = self.start_rows(origin, req_id, List::Metrics(Box::new(text)), 1);
        if has_none {
            self.end_rows(conns, step, None);
            return;
        }
        self.ask_page(step, 0, Kind::Lines, Place::At(0), PAGE_ROWS);
    }

    fn start_rows(
        &mut self,
        origin: Origin,
        req_id: Option<Box<[u8]>>,
        list: List,
        left: usize,
    ) -> Step {
        let (count, pieces, bytes) = (0, Vec::new(), 0);
        let task = RowsTask { origin, req_id, list, left, count, pieces, bytes };
        self.large_replies.reserve(LIST_RESERVE_BYTES);
        self.tasks.start(self.me, Task::Rows(task))
    }

    fn ask_page(&mut self, step: Step, dest: usize, kind: Kind, from: Place, most: usize) {
        let scope = self.rows_task(step).and_then(|task| task.origin.scope);
        let of_metrics = self.rows_task(step).and_then(|task| match &task.list {
            List::Metrics(text) => Some((Arc::clone(&text.choice), text.has_waits())),
            _ => None,
        });
        let message = match of_metrics {
            Some((choice, has_waits)) => {
                RowsMessage::AskLines { step, choice, has_waits, from, most }
            }
            None => RowsMessage::Ask { step, kind, scope, from },
        };
        self.outbox.immediate(dest).messages.push(Message::Rows(message));
    }

    /// Messages about lists.
    pub(crate) fn read_rows_message(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        message: &RowsMessage,
    ) {
        match message {
            RowsMessage::Ask { step, kind, scope, from } => {
                self.give_page(*step, (*kind, *scope), from);
            }
            RowsMessage::AskLines { step, choice, has_waits, from, most } => {
                let at = if let Place::At(at) = from { *at } else { 0 };
                let (page, next) = match **choice {
                    QueueChoice::Top(top) => self.page_of_longest(at, top),
                    _ => self.page_of_lines(at, *most, choice, *has_waits),
                };
                self.send_page(*step, page, next);
            }
            RowsMessage::Page { step, from, page, next } => {
                self.page_came(conns, batch, *step, *from, page, next.as_ref());
            }
            RowsMessage::AskActivity { step, clients, jobs, scope } => {
                self.meter.note(clients.len());
                let shard = &self.engine.shard;
                let done = clients.iter().map(|&client| shard.activity_of(client)).collect();
                let named = clients.iter().take(if *jobs { usize::MAX } else { 0 });
                let jobs = named.map(|&client| held_jobs(shard, client, *scope)).collect();
                let message = Message::Rows(RowsMessage::Activity { step: *step, done, jobs });
                self.outbox.after_commit(usize::from(step.shard)).messages.push(message);
            }
            RowsMessage::Activity { step, done, jobs } => {
                let Some(task) = self.rows_task(*step) else { return };
                if let Some(crew) = task.list.crew() {
                    crew.add_activity(done, jobs);
                }
                task.left -= 1;
                if task.left == 0 {
                    self.go_on_with_rows(conns, *step);
                }
            }
        }
    }

    fn rows_task(&mut self, step: Step) -> Option<&mut RowsTask> {
        match self.tasks.get(step) {
            Some(Task::Rows(task)) => Some(task),
            _ => None,
        }
    }

    fn page_came(
        &mut self,
        conns: &mut Connections,
        batch: &Batch,
        step: Step,
        from: usize,
        page: &Page,
        next: Option<&Place>,
    ) {
        let shards = self.slots.shards();
        let Some(Task::Rows(task)) = self.tasks.get(step) else { return };
        let before = task.bytes;
        match page {
            Page::Written { entries, count } => {
                task.count += count;
                task.keep(batch.bytes[entries.clone()].to_vec());
            }
            Page::Seen(seen) => task.list.crew().into_iter().for_each(|crew| crew.add_seen(seen)),
            Page::Workers(some) => {
                task.list.crew().into_iter().for_each(|crew| crew.add_workers(some));
            }
            Page::Lines(lines) => {
                if let List::Metrics(text) = &mut task.list {
                    task.count += lines.rows();
                    task.bytes += text.add_queues(lines);
                }
            }
            Page::Longest(some) => {
                if let List::Metrics(text) = &mut task.list {
                    task.bytes += text.add_longest(some);
                }
            }
        }
        let (bytes, origin, kind) = (task.bytes, task.origin, task.list.kind());
        let room = QUEUES_SHOWN_MAX.saturating_sub(task.count).min(PAGE_ROWS);
        // The next page of this shard, or for metrics the first one of the next.
        let next = match (next, kind) {
            (Some(_), Kind::Lines) if room == 0 => None,
            (Some(next), Kind::Lines) => Some((from, next.clone(), room)),
            (Some(next), _) => Some((from, next.clone(), PAGE_ROWS)),
            (None, Kind::Lines) if from + 1 < shards && room > 0 => {
                Some((from + 1, Place::At(0), room))
            }
            (None, _) => None,
        };
        self.large_replies.note_begun(bytes - before);
        if self.sessions.protocol(origin.conn).is_none() || bytes > FRAME_BYTES_MAX {
            self.end_rows(conns, step, Some(ErrorKind::ReplyTooLarge));
            return;
        }
        if let Some((dest, place, most)) = next {
            self.ask_page(step, dest, kind, place, most);
            return;
        }
        if let Some(task) = self.rows_task(step) {
            task.left -= 1;
            if task.left == 0 {
                self.go_on_with_rows(conns, step);
            }
        }
    }

    /// All that was asked for is there: of workers, what some of them have done follows.
    fn go_on_with_rows(&mut self, conns: &mut Connections, step: Step) {
        let now_ms = self.now_ms;
        let shards = self.slots.shards();
        let Some(Task::Rows(task)) = self.tasks.get(step) else { return };
        if self.sessions.protocol(task.origin.conn).is_none() || task.bytes > FRAME_BYTES_MAX {
            return self.end_rows(conns, step, Some(ErrorKind::ReplyTooLarge));
        }
        let scope = task.origin.scope;
        let (mut clients, mut jobs) = (None, false);
        let mut bytes = 0;
        if let Some(crew) = task.list.crew() {
            let mut piece = Vec::new();
            task.count += crew.write(&mut Writer::new(&mut piece), now_ms);
            bytes = piece.len();
            clients = crew.next(now_ms, scope);
            jobs = crew.shows_jobs();
            task.keep(piece);
            task.left = shards;
        }
        self.large_replies.note_begun(bytes);
        let Some(clients) = clients else {
            if !self.go_on_with_overview(step) {
                self.end_rows(conns, step, None);
            }
            return;
        };
        self.meter.note(clients.len());
        for dest in 0..shards {
            let message =
                RowsMessage::AskActivity { step, clients: Arc::clone(&clients), jobs, scope };
            self.outbox.immediate(dest).messages.push(Message::Rows(message));
        }
    }

    /// All workers of an overview are there: its schedules follow. False if this is none, or if they are there as well.
    fn go_on_with_overview(&mut self, step: Step) -> bool {
        let shards = self.slots.shards();
        let Some(task) = self.rows_task(step) else { return false };
        let List::Overview(overview) = &mut task.list else { return false };
        if !overview.lists_workers() {
            return false;
        }
        overview.end_workers(std::mem::take(&mut task.count), task.pieces.len());
        task.left = shards;
        self.ask_all_for_pages(step, Kind::Crons);
        true
    }

    fn end_rows(&mut self, conns: &mut Connections, step: Step, refused: Option<ErrorKind>) {
        let Some(Task::Rows(mut task)) = self.tasks.end(step) else { return };
        self.large_replies.note_shown(task.bytes);
        self.large_replies.release(LIST_RESERVE_BYTES);
        let (origin, req_id) = (task.origin, task.req_id.as_deref());
        match refused {
            Some(error) => self.refuse(conns, origin, req_id, error),
            None => {
                let pieces = task.list.framed(req_id, task.count, std::mem::take(&mut task.pieces));
                self.send_pieces(conns, origin, req_id, pieces);
            }
        }
        self.answered(origin);
    }
}
