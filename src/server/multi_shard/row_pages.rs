//! Lists over all shards: queues, schedules, workers, and the queues among the metrics. There may be very many rows, so
//! each shard is asked for a page of them at a time, and what it answers is sent as it came, piece by piece.
//!
//! A row that is there all the time stands in the list once. One that comes, goes or changes meanwhile may stand in it or
//! not, as it was at some moment of that time.

use super::cron_view::write_cron;
use super::messages::{PAGE_BYTES, PAGE_ROWS};
use super::task::Task;
use crate::api::commands::Op;
use crate::api::error::ErrorKind;
use crate::protocol::frame::FRAME_BYTES_MAX;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::commands::worker_list::{Worker, WorkerList};
use crate::server::connection::protocol::Protocol;
use crate::server::connection::session::UNSENT_BYTES_MAX;
use crate::server::event_loop::turn_meter::Work;
use crate::server::metrics::{MetricsText, QUEUES_SHOWN_MAX, QueueLines};
use crate::server::overload::large_replies::LARGE_BYTES;
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use crate::server::shard_mail::message::{Batch, Message};
use crate::server::shard_mail::request_context::RequestContext;
use crate::server::shard_server::ShardServer;
use corq_io::net::Connections;
use corq_shards::command::ClientId;
use corq_shards::job::State;
use corq_shards::query::Activity;
use std::sync::Arc;

/// Places looked at for one page, whatever is there.
const PAGE_LOOKS: usize = 4000;

/// What is listed.
#[derive(Debug)]
enum List {
    Queues,
    Crons,
    Workers(Box<WorkerList>),
    /// The text of all metrics, with the queues in it.
    Metrics(Box<MetricsText>),
}

/// What a page is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Queues, as MessagePack.
    Queues,
    /// Schedules, as MessagePack.
    Crons,
    /// First the connections that have registered workers, then these.
    Workers,
    /// Queues, as lines of metrics.
    Lines,
}

/// A list that is being put together.
#[derive(Debug)]
pub struct RowsTask {
    origin: Origin,
    req_id: Option<Box<[u8]>>,
    list: List,
    /// Answers that are still to come.
    left: usize,
    /// Rows so far, and what they are written in.
    count: usize,
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

/// Where a page begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// At this index.
    At(u32),
    /// Behind this name.
    Behind(Box<str>),
}

/// The rows of a page.
#[derive(Debug)]
pub enum Page {
    /// Some, as they are sent.
    Written {
        /// Where they stand in the batch.
        entries: Span,
        /// How many they are.
        count: usize,
    },
    /// When connections with workers last said something.
    Seen(Vec<(ClientId, u64)>),
    /// Workers by their ids.
    Workers(Vec<(Box<str>, Worker)>),
    /// Lines of metrics.
    Lines(Box<QueueLines>),
}

/// What shards tell each other about it.
#[derive(Debug)]
pub enum RowsMessage {
    /// Asks for a page.
    Ask {
        /// Who waits.
        step: Step,
        /// Of what.
        kind: Kind,
        from: Place,
        /// It has at most so many rows.
        most: usize,
    },
    Page {
        /// Who waits.
        step: Step,
        from: usize,
        page: Page,
        /// Where the next one begins, if there are more.
        next: Option<Place>,
    },
    /// Asks what connections have done at the receiver.
    AskActivity {
        /// Who waits.
        step: Step,
        clients: Arc<[ClientId]>,
    },
    /// The answer, in their order.
    Activity {
        /// Who waits.
        step: Step,
        /// What they have done.
        done: Vec<Activity>,
    },
}

impl RowsMessage {
    /// What it counts as.
    pub fn work(&self) -> Work {
        match self {
            Self::Ask { kind: Kind::Queues, .. } => Work::of(Op::ListQueues),
            Self::Ask { kind: Kind::Crons, .. } => Work::of(Op::CronList),
            Self::Ask { kind: Kind::Workers, .. }
            | Self::AskActivity { .. }
            | Self::Activity { .. } => Work::of(Op::ListWorkers),
            Self::Ask { kind: Kind::Lines, .. } => Work::of(Op::Prometheus),
            Self::Page { .. } => Work::OTHER,
        }
    }
}

impl List {
    fn kind(&self) -> Kind {
        match self {
            Self::Queues => Kind::Queues,
            Self::Crons => Kind::Crons,
            Self::Workers(_) => Kind::Workers,
            Self::Metrics(_) => Kind::Lines,
        }
    }

    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Crons => Self::Crons,
            Kind::Workers => Self::Workers(Box::default()),
            Kind::Queues | Kind::Lines => Self::Queues,
        }
    }
}

/// The coordinator's part.
impl ShardServer {
    /// Begins a list of what all shards have.
    pub(crate) fn list_rows(&mut self, _: &mut Connections, ctx: RequestContext<'_>, kind: Kind) {
        let (origin, req_id) = (ctx.origin, ctx.req_id);
        self.deferred(origin);
        let shards = self.slots.shards();
        let step = self.start_rows(origin, req_id.map(Into::into), List::of(kind), shards);
        for dest in 0..shards {
            self.ask_page(step, dest, kind, Place::At(0), PAGE_ROWS);
        }
    }

    /// Goes on with the queues once all numbers are known. As many as are shown are taken from one shard after the other.
    pub(crate) fn list_queues_in_metrics(
        &mut self,
        origin: Origin,
        req_id: Option<Box<[u8]>>,
        text: MetricsText,
    ) {
        let step = self.start_rows(origin, req_id, List::Metrics(Box::new(text)), 1);
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
        self.tasks.start(self.me, Task::Rows(task))
    }

    fn ask_page(&mut self, step: Step, dest: usize, kind: Kind, from: Place, most: usize) {
        let message = RowsMessage::Ask { step, kind, from, most };
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
            RowsMessage::Ask { step, kind, from, most } => {
                self.give_page(*step, *kind, from, *most);
            }
            RowsMessage::Page { step, from, page, next } => {
                self.page_came(conns, batch, *step, *from, page, next.as_ref());
            }
            RowsMessage::AskActivity { step, clients } => {
                self.meter.note(clients.len());
                let shard = &self.engine.shard;
                let done = clients.iter().map(|&client| shard.activity_of(client)).collect();
                let message = Message::Rows(RowsMessage::Activity { step: *step, done });
                self.outbox.after_commit(usize::from(step.shard)).messages.push(message);
            }
            RowsMessage::Activity { step, done } => {
                let Some(task) = self.rows_task(*step) else { return };
                if let List::Workers(crew) = &mut task.list {
                    crew.add_activity(done);
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
        match (page, &mut task.list) {
            (Page::Written { entries, count }, _) => {
                task.count += count;
                task.keep(batch.bytes[entries.clone()].to_vec());
            }
            (Page::Seen(seen), List::Workers(crew)) => crew.add_seen(seen),
            (Page::Workers(workers), List::Workers(crew)) => crew.add_workers(workers),
            (Page::Lines(lines), List::Metrics(text)) => {
                task.count += lines.rows();
                task.bytes += text.add_queues(lines);
            }
            _ => {}
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
        let mut clients = None;
        let mut bytes = 0;
        if let List::Workers(crew) = &mut task.list {
            let mut piece = Vec::new();
            task.count += crew.write(&mut Writer::new(&mut piece));
            bytes = piece.len();
            clients = crew.next(now_ms);
            task.keep(piece);
            task.left = shards;
        }
        self.large_replies.note_begun(bytes);
        let Some(clients) = clients else {
            self.end_rows(conns, step, None);
            return;
        };
        self.meter.note(clients.len());
        for dest in 0..shards {
            let message = RowsMessage::AskActivity { step, clients: Arc::clone(&clients) };
            self.outbox.immediate(dest).messages.push(Message::Rows(message));
        }
    }

    fn end_rows(&mut self, conns: &mut Connections, step: Step, refused: Option<ErrorKind>) {
        let Some(Task::Rows(mut task)) = self.tasks.end(step) else { return };
        self.large_replies.note_shown(task.bytes);
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

/// Long answers.
impl ShardServer {
    /// Sends an answer in pieces, which are not copied where that is possible.
    pub(crate) fn send_pieces(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        mut pieces: Vec<Vec<u8>>,
    ) {
        let length: usize = pieces.iter().map(Vec::len).sum();
        if length > FRAME_BYTES_MAX {
            self.refuse(conns, origin, req_id, ErrorKind::ReplyTooLarge);
            return;
        }
        pieces.insert(0, (length as u32).to_be_bytes().to_vec());
        if length < LARGE_BYTES || !self.is_sent_as_it_is(origin) {
            self.send_whole(conns, origin, pieces.concat());
        } else {
            self.append_pieces(conns, origin, pieces);
        }
    }

    /// Sends a finished frame, which is not copied if it is long.
    pub(crate) fn send_whole(&mut self, conns: &mut Connections, origin: Origin, frame: Vec<u8>) {
        let dest = usize::from(origin.shard);
        if frame.len() < LARGE_BYTES {
            self.send_frame(conns, origin, &frame);
        } else if dest != self.me {
            let bytes = frame.len();
            self.outbox.after_commit(dest).messages.push(Message::List { origin, frame });
            self.note_large_answer(dest, bytes);
        } else if self.is_sent_as_it_is(origin) {
            self.append_pieces(conns, origin, vec![frame]);
        } else {
            self.send_as_text(conns, origin, frame);
        }
    }

    /// Whether a frame for this connection, which is one of this shard, becomes nothing else.
    fn is_sent_as_it_is(&self, origin: Origin) -> bool {
        usize::from(origin.shard) == self.me
            && self.sessions.protocol(origin.conn) == Some(Protocol::Frames)
    }

    fn append_pieces(&mut self, conns: &mut Connections, origin: Origin, pieces: Vec<Vec<u8>>) {
        let conn = origin.conn;
        if conns.unsent(conn) > UNSENT_BYTES_MAX {
            self.slow_readers.push(conn);
            return;
        }
        let tally = conns.tally().clone();
        let mut bytes = 0;
        for piece in pieces {
            bytes += piece.len();
            conns.append_shared(conn, &tally.share(piece));
        }
        self.touch(conn);
        self.note_large_answer(self.me, bytes);
    }
}

impl RowsTask {
    fn keep(&mut self, piece: Vec<u8>) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push(piece);
        }
    }
}

impl List {
    /// The payload of the answer.
    fn framed(
        &mut self,
        req_id: Option<&[u8]>,
        count: usize,
        mut pieces: Vec<Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let mut head = Vec::new();
        let mut writer = reply::head(&mut head, true, req_id, 1);
        match self {
            Self::Queues | Self::Crons => {
                writer.str(if matches!(self, Self::Queues) { "queues" } else { "crons" });
                writer.array(count);
            }
            Self::Workers(crew) => {
                writer.str("data");
                writer.map(2);
                writer.str("workers");
                writer.array(count);
                let mut tail = Vec::new();
                crew.write_stats(&mut Writer::new(&mut tail), count);
                pieces.push(tail);
            }
            Self::Metrics(text) => {
                pieces = text.take_pieces();
                writer.str("data");
                writer.map(1);
                writer.str("metrics");
                writer.str_head(pieces.iter().map(Vec::len).sum());
            }
        }
        pieces.insert(0, head);
        pieces
    }
}

/// Every shard's part.
impl ShardServer {
    fn give_page(&mut self, step: Step, kind: Kind, from: &Place, most: usize) {
        let dest = usize::from(step.shard);
        let (page, next) = match (kind, from) {
            (Kind::Lines, Place::At(at)) => self.page_of_lines(*at, most),
            (Kind::Workers, Place::At(at)) => self.page_of_seen(*at),
            (Kind::Workers, Place::Behind(id)) => self.page_of_workers(id),
            (_, Place::At(at)) => self.page_of_rows(dest, kind, *at),
            // Only workers go by names.
            (_, Place::Behind(_)) => (Page::Seen(Vec::new()), None),
        };
        let from = self.me;
        let message = RowsMessage::Page { step, from, page, next };
        self.outbox.after_commit(dest).messages.push(Message::Rows(message));
    }

    /// Queues or schedules from an index on.
    fn page_of_rows(&mut self, dest: usize, kind: Kind, at: u32) -> (Page, Option<Place>) {
        let shard = &self.engine.shard;
        let bytes = &mut self.outbox.after_commit(dest).bytes;
        let start = bytes.len();
        let (mut looks, mut count, mut next) = (0, 0, None);
        let is_full = |looks: usize, count: usize, bytes: &Vec<u8>| {
            looks >= PAGE_LOOKS || count >= PAGE_ROWS || bytes.len() - start >= PAGE_BYTES
        };
        if kind == Kind::Crons {
            for (index, cron) in shard.crons_from(at) {
                if is_full(looks, count, bytes) {
                    next = Some(Place::At(index));
                    break;
                }
                looks += 1;
                if let Some(cron) = cron {
                    count += 1;
                    write_cron(&mut Writer::new(bytes), cron, true);
                }
            }
        } else {
            for (index, queue) in shard.queues_from(at) {
                if is_full(looks, count, bytes) {
                    next = Some(Place::At(index));
                    break;
                }
                looks += 1;
                let Some(queue) = queue else { continue };
                count += 1;
                let mut writer = Writer::new(bytes);
                writer.map(5);
                writer.str("name");
                writer.str(&queue.name);
                for state in [State::Waiting, State::Delayed, State::Active] {
                    writer.str(state.name());
                    writer.uint(queue.count(state));
                }
                writer.str("paused");
                writer.bool(queue.is_paused());
            }
        }
        let entries = start..bytes.len();
        self.meter.note(count + looks / LOOKS_PER_STEP);
        (Page::Written { entries, count }, next)
    }

    fn page_of_lines(&mut self, at: u32, most: usize) -> (Page, Option<Place>) {
        let mut lines = QueueLines::default();
        let (mut looks, mut next) = (0, None);
        for (index, queue) in self.engine.shard.queues_from(at) {
            let is_full = lines.rows() >= most || lines.bytes() >= PAGE_BYTES;
            if looks >= PAGE_LOOKS || is_full {
                next = Some(Place::At(index));
                break;
            }
            looks += 1;
            if let Some(queue) = queue {
                lines.write(&queue.name, |state| queue.count(state));
            }
        }
        self.meter.note(lines.rows() + looks / LOOKS_PER_STEP);
        (Page::Lines(Box::new(lines)), next)
    }

    /// When connections of this shard that made registrations last said something.
    fn page_of_seen(&mut self, at: u32) -> (Page, Option<Place>) {
        let from = at as usize;
        let some = self.sessions.places(from..from + PAGE_LOOKS);
        self.meter.note(1 + some.len() / LOOKS_PER_STEP);
        let with_workers = some.iter().flatten().filter(|session| session.has_worker);
        let seen = with_workers.map(|session| (session.client, session.last_seen_ms)).collect();
        let next = if some.len() < PAGE_LOOKS {
            Place::Behind(Box::default())
        } else {
            Place::At((from + PAGE_LOOKS) as u32)
        };
        (Page::Seen(seen), Some(next))
    }

    fn page_of_workers(&mut self, after: &str) -> (Page, Option<Place>) {
        let (some, more) = self.workers.behind(after, PAGE_ROWS, PAGE_BYTES);
        self.meter.note(1 + some.len());
        let next = some.last().filter(|_| more).map(|(id, _)| Place::Behind(id.clone()));
        (Page::Workers(some), next)
    }
}

/// Looks that find nothing, for each step.
const LOOKS_PER_STEP: usize = corq_shards::query::LOOKS_PER_STEP as usize;
