//! Messages between shards, by kind.

use super::envelope::{self, Origin, SentFrame, SentPayload, Span, Step};
use super::request_context::Lookup;
use crate::api::access::Scope;
use crate::api::error::ErrorKind;
use crate::server::bulk_tasks::messages::BulkMessage;
use crate::server::connection::migration::MigratingConnection;
use crate::server::events::message::EventMessage;
use crate::server::figures::messages::FiguresMessage;
use crate::server::http::health::Figures;
use crate::server::http::rate_limit::TooMany;
use crate::server::metrics::Metrics;
use crate::server::multi_shard::looks::LookMessage;
use crate::server::multi_shard::messages::{
    CronMessage, FlowMessage, LargeMessage, ParentLinkMessage, UnmetOf,
};
use crate::server::multi_shard::queue_rows::QueueMessage;
use crate::server::multi_shard::row_lists::RowsMessage;
use crate::server::webhooks::messages::WebhookMessage;
use corq_io::net::ConnId;
use corq_shards::command::{ClientId, Token};
use corq_shards::dependency::{Notice, Standing};
use corq_shards::effect::Reply;
use corq_shards::family::Report;
use corq_shards::job::id::JobId;
use corq_shards::stats::Census;
use std::sync::Arc;

pub use super::scatter_query::ScatterQuery;

/// The action on all jobs of a part of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartKind {
    /// Say whether all could be completed.
    Check,
    /// Complete all.
    Ack,
    /// Renew what can be renewed.
    Beat,
}

/// A job of a part of a command.
#[derive(Clone, Debug)]
pub struct PartItem {
    /// Place of the job in the whole command.
    pub place: usize,
    pub job: JobId,
    /// The token shown for it.
    pub token: Option<Token>,
    pub result: SentPayload,
    /// Whether it is to be forgotten.
    pub remove: bool,
    /// For how long it is to be held, if that was said.
    pub ttl_ms: Option<u32>,
}

/// The messages of a turn for one shard.
pub type Batch = envelope::Batch<Message>;

/// A job as it answers whether it can have one more child.
#[derive(Clone, Debug)]
pub struct AsParent {
    pub queue: Box<str>,
    /// Whether it can.
    pub is_linkable: bool,
    /// The error for the client if the log of the job's shard has no room for the link.
    pub lacks: Option<ErrorKind>,
}

/// A message from one shard to another, or to itself.
#[derive(Debug)]
pub enum Message {
    /// A command for the receiver, as it came.
    Request {
        /// Who asked.
        origin: Origin,
        frame: SentFrame,
        /// How far the job it names has been looked up.
        lookup: Lookup,
    },
    /// A push whose custom ids are claimed; those that are taken are not pushed again.
    Push {
        /// Who asked.
        origin: Origin,
        frame: SentFrame,
        /// For each job, whether its custom id is taken.
        taken: Box<[bool]>,
        /// Dependencies that have not ended, by place in the push.
        unmet: UnmetOf<Span>,
        /// Children that have not ended, by place in the push.
        open: UnmetOf<Span>,
        /// The parents that are to wait for jobs of it, by place.
        parents: Box<[(usize, JobId)]>,
    },
    /// An answer for one of the receiver's connections, ready to be sent.
    Reply {
        /// Who asked.
        origin: Origin,
        frame: Span,
    },
    /// An answer as [`Message::Reply`], too long to be copied.
    List {
        /// Who asked.
        origin: Origin,
        frame: Vec<u8>,
    },
    /// An answer whose value others get as well.
    SharedReply {
        /// Who asked.
        origin: Origin,
        /// The reply up to the value.
        head: Span,
        value: Arc<Vec<u8>>,
    },
    /// The answer before this one is large: the sender waits until it is taken in.
    Carried {
        from: u16,
        /// How large.
        bytes: usize,
    },
    /// Large answers of the receiver have been taken in.
    Taken {
        /// How much of them.
        bytes: usize,
    },
    /// Frames of the receiver's connections have been read where their commands are carried out.
    FrameTaken {
        /// Their bytes.
        bytes: usize,
    },
    /// A connection for the receiver, all of whose commands are answered.
    Adopt(Box<MigratingConnection>),
    /// A connection is gone, or sends no more.
    Leave {
        /// Which client.
        client: ClientId,
        /// Whether it reads nothing more, either.
        gone: bool,
    },
    /// Asks the directory for custom ids on behalf of a push: all of them or, for now, none.
    Claim {
        /// Who waits.
        step: Step,
        names: Vec<Span>,
        /// Whether jobs that bear them have to be on the disk before the answer.
        durable: bool,
    },
    /// The directory's answer.
    Claimed {
        /// Who waits.
        step: Step,
        /// For each id, whether a job bears it already; those that no job bears are held.
        taken: Vec<bool>,
    },
    /// A custom id stands for a job that was staged before the start, and is claimed for it.
    Reserve { name: Span },
    /// A claimed custom id was not used.
    Unclaim { name: Span },
    /// A job bears a custom id from now on, or no longer.
    Named {
        name: Span,
        id: JobId,
        /// From now on, or no longer.
        known: bool,
    },
    /// Asks for an answer that comes behind all that the receiver has told so far, and behind the news of those of
    /// some jobs that only wait to be removed.
    Probe {
        /// Who asks.
        from: u16,
        /// Number that the answer repeats, by which the asker finds what waits for it.
        number: u64,
        jobs: Vec<JobId>,
        /// Whether the answer waits until all that the receiver has done is on the disk.
        durable: bool,
    },
    Probed {
        /// Number of the probe.
        number: u64,
    },
    /// A connection with workers has said something.
    Seen {
        /// Which client.
        client: ClientId,
    },
    /// Asks the directory which jobs bear custom ids.
    Resolve {
        /// Who waits.
        step: Step,
        /// The ids with their places in the command.
        names: Vec<(usize, Span)>,
    },
    /// The directory's answer, by place.
    Resolved {
        /// Who waits.
        step: Step,
        jobs: Vec<(usize, Option<JobId>)>,
    },
    /// Asks how jobs of the receiver stand, to those that want to depend on them.
    Stand {
        /// Who waits.
        step: Step,
        /// The jobs with their places in the command.
        /// The queues that there are for those who ask.
        scope: Scope,
        jobs: Vec<(usize, JobId)>,
    },
    /// The answer, by place.
    Stood {
        /// Who waits.
        step: Step,
        /// How they stand.
        jobs: Vec<(usize, Standing)>,
    },
    /// Asks whether jobs of the receiver can have one more child.
    AskParents {
        /// Who waits.
        step: Step,
        /// The jobs with their places in the command.
        jobs: Vec<(usize, JobId)>,
    },
    /// The answer, by place.
    Parents {
        /// Who waits.
        step: Step,
        /// Each job by its place in the command; none if there is no such job.
        jobs: Vec<(usize, Option<AsParent>)>,
    },
    /// News of a job of the receiver and one that depends on it, or that it depends on.
    Notice(Notice),
    /// How a child of a job of the receiver ended.
    Report {
        /// The report without the value.
        report: Box<Report>,
        value: Span,
    },
    /// About parents and children.
    ParentLink(ParentLinkMessage),
    /// About flows.
    Flow(FlowMessage),
    /// About payloads of megabytes.
    Large(LargeMessage),
    /// A part of a command on many jobs.
    BatchPart {
        /// Who waits.
        step: Step,
        /// Who asked.
        origin: Origin,
        kind: PartKind,
        /// With which jobs.
        items: Vec<PartItem>,
    },
    /// The outcome of a part. Places in it are those of the whole command.
    BatchPartDone {
        /// Who waits.
        step: Step,
        outcome: Reply,
    },
    /// Asks for the receiver's share of a question to all shards.
    Scatter {
        /// Who waits.
        step: Step,
        question: ScatterQuery,
    },
    Gather {
        /// Who waits.
        step: Step,
        census: Census,
        /// List entries of the sender.
        entries: Span,
        /// How many entries.
        count: usize,
        /// Parts of the answer that are neither numbers nor list entries.
        shares: Vec<GatheredPart>,
    },
    /// About lists of what all shards have.
    Rows(RowsMessage),
    /// About figures, and those who watch them.
    Figures(FiguresMessage),
    /// About pages of queues.
    Queues(QueueMessage),
    /// About jobs of other shards.
    Look(LookMessage),
    /// About actions on many jobs.
    Bulk(BulkMessage),
    /// The sender has cut its log for a backup.
    Cut {
        /// Who waits.
        step: Step,
    },
    /// Counts a request of a client whose rate-limit window the receiver has.
    CountRequest {
        /// The connection that it came by.
        origin: Origin,
        client: Span,
    },
    RequestCounted {
        conn: ConnId,
        /// Whether it may come in.
        verdict: Result<(), TooMany>,
    },
    /// About events.
    Events(EventMessage),
    /// A session has ended by which clients of the receiver may be known.
    AccessChanged,
    /// About schedules.
    Cron(CronMessage),
    /// About webhooks.
    Webhook(WebhookMessage),
    /// The sender has recovered and has told its custom ids.
    Open,
}

/// A shard's part of an answer that the coordinator merges.
#[derive(Debug)]
pub enum GatheredPart {
    /// Of the metrics.
    Metrics(Box<Metrics>),
    /// Of what only HTTP asks for.
    Figures(Box<Figures>),
}
