//! Lists over all shards as they are put together, and what shards say to each other about them: data only. Who sends and
//! who reads it is in `row_pages`.

use crate::api::access::Scope;
use crate::api::commands::Op;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply;
use crate::server::commands::worker_list::{HeldJob, Worker, WorkerList};
use crate::server::dashboard::overview::Overview;
use crate::server::event_loop::turn_meter::Work;
use crate::server::metrics::queue_choice::{Longest, QueueChoice};
use crate::server::metrics::{MetricsText, QueueLines};
use crate::server::shard_mail::envelope::{Origin, Span, Step};
use corq_shards::command::ClientId;
use corq_shards::query::Activity;
use std::sync::Arc;

/// A list over all shards that is being put together.
#[derive(Debug)]
pub(super) enum List {
    Queues,
    QueueNames,
    Crons,
    Workers(Box<WorkerList>),
    /// Queues with all that dashboards count of them, and when they were asked for.
    Dashboard(u64),
    /// The server on one page.
    Overview(Box<Overview>),
    /// The text of all metrics, with the queues in it.
    Metrics(Box<MetricsText>),
}

/// Kind of rows on a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Queues, as MessagePack.
    Queues,
    /// Their names alone, which is what version 3 of the protocol lists.
    QueueNames,
    /// Schedules, as MessagePack.
    Crons,
    /// First the connections that have registered workers, then these.
    Workers,
    /// Queues as rows of a dashboard, as MessagePack.
    Dashboard,
    /// Queues, as lines of metrics.
    Lines,
}

/// A list that is being put together.
#[derive(Debug)]
pub struct RowsTask {
    pub(super) origin: Origin,
    pub(super) req_id: Option<Box<[u8]>>,
    pub(super) list: List,
    /// Answers that are still to come.
    pub(super) left: usize,
    /// Rows so far, and what they are written in.
    pub(super) count: usize,
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) bytes: usize,
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
    /// The queues of this page with the most jobs, with their lines.
    Longest(Box<Longest>),
}

/// Messages between shards about pages of rows.
#[derive(Debug)]
pub enum RowsMessage {
    /// Asks for a page.
    Ask {
        /// Who waits.
        step: Step,
        /// Of what.
        kind: Kind,
        /// Of which queues.
        scope: Scope,
        from: Place,
    },
    /// Asks for a page of lines of metrics.
    AskLines {
        /// Who waits.
        step: Step,
        /// Of which queues.
        choice: Arc<QueueChoice>,
        /// Whether they say how long jobs have waited.
        has_waits: bool,
        from: Place,
        /// Most rows of the page.
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
        /// Whether their jobs are to be named, and those of which queues.
        jobs: bool,
        scope: Scope,
    },
    /// The answer, in their order.
    Activity {
        /// Who waits.
        step: Step,
        /// Activity of each connection that was asked for.
        done: Vec<Activity>,
        /// Jobs that they have, if these are to be named.
        jobs: Vec<Vec<HeldJob>>,
    },
}

impl RowsMessage {
    /// The command that the turn meter counts a message as.
    pub fn work(&self) -> Work {
        match self {
            Self::Ask { kind: Kind::Queues | Kind::QueueNames, .. } => Work::of(Op::ListQueues),
            Self::Ask { kind: Kind::Crons, .. } => Work::of(Op::CronList),
            Self::Ask { kind: Kind::Dashboard, .. } => Work::of(Op::DashboardQueues),
            Self::Ask { kind: Kind::Workers, .. }
            | Self::AskActivity { .. }
            | Self::Activity { .. } => Work::of(Op::ListWorkers),
            Self::Ask { kind: Kind::Lines, .. } | Self::AskLines { .. } => Work::of(Op::Prometheus),
            Self::Page { .. } => Work::OTHER,
        }
    }
}

impl List {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Queues => Kind::Queues,
            Self::QueueNames => Kind::QueueNames,
            Self::Workers(_) => Kind::Workers,
            Self::Overview(overview) if overview.lists_workers() => Kind::Workers,
            Self::Crons | Self::Overview(_) => Kind::Crons,
            Self::Dashboard(_) => Kind::Dashboard,
            Self::Metrics(_) => Kind::Lines,
        }
    }

    /// The workers that are being put together.
    pub(super) fn crew(&mut self) -> Option<&mut WorkerList> {
        match self {
            Self::Workers(crew) => Some(crew),
            Self::Overview(overview) if overview.lists_workers() => Some(&mut overview.crew),
            _ => None,
        }
    }

    pub(super) fn of(kind: Kind, now_ms: u64) -> Self {
        match kind {
            Kind::Dashboard => Self::Dashboard(now_ms),
            Kind::Crons => Self::Crons,
            Kind::Workers => Self::Workers(Box::default()),
            Kind::QueueNames => Self::QueueNames,
            Kind::Queues | Kind::Lines => Self::Queues,
        }
    }
}

impl RowsTask {
    pub(super) fn keep(&mut self, piece: Vec<u8>) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push(piece);
        }
    }
}

impl List {
    /// The payload of the answer.
    pub(super) fn framed(
        &mut self,
        req_id: Option<&[u8]>,
        count: usize,
        mut pieces: Vec<Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let mut head = Vec::new();
        let mut reply = reply::begin(&mut head, true, req_id);
        match self {
            Self::Queues | Self::QueueNames | Self::Crons => {
                let is_crons = matches!(self, Self::Crons);
                reply.key(if is_crons { "crons" } else { "queues" }).array(count);
            }
            Self::Workers(crew) => {
                let mut data = reply.map("data");
                data.key("workers").array(count);
                // The statistics behind the workers are a piece of their own.
                data.count_later(crew.tail_entries());
                let mut tail = Vec::new();
                crew.write_stats(&mut Writer::new(&mut tail), count);
                pieces.push(tail);
            }
            Self::Dashboard(at_ms) => {
                let mut data = reply.map("data");
                data.key("timestamp").uint(*at_ms);
                data.key("queues").array(count);
            }
            Self::Overview(overview) => {
                overview.frame(&mut reply.key("data"), count, &mut pieces);
            }
            Self::Metrics(text) => {
                pieces = text.take_pieces();
                let length = pieces.iter().map(Vec::len).sum();
                reply.map("data").key("metrics").str_head(length);
            }
        }
        drop(reply);
        pieces.insert(0, head);
        pieces
    }
}
