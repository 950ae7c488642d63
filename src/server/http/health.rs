//! What only HTTP asks for: how the server is, whether it can take jobs, what it holds in memory. Each
//! shard adds its figures, the one that was asked writes the sum.

use super::{Limiter, megabytes};
use crate::api::error::ErrorKind;
use crate::protocol::msgpack::writer::Writer;
use crate::protocol::reply::{self, ERROR_FIELDS, put_error};
use crate::server::commands::refusal::lack_error;
use crate::server::connection::protocol::Protocol;
use crate::server::lifecycle::certificate;
use crate::server::multi_shard::scatter_gather::write_stats;
use crate::server::shard_mail::message::{GatheredPart, ScatterQuery};
use crate::server::shard_server::ShardServer;
use corq_io::clock;
use corq_io::log::Lack;
use corq_io::memory::{self, Memory};
use corq_io::tls::CertificateStatus;
use corq_shards::stats::Census;

/// The most types of objects that are listed.
const TYPES_SHOWN_MAX: usize = 20;

/// Why the server is not ready.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trouble {
    /// Pushes are refused for want of this.
    NoRoom(Lack),
    /// More waits for the disk than may.
    DiskBehind,
    /// The files of the log are not where the next start looks for them.
    Gone,
    /// It ends.
    Stopping,
}

impl Trouble {
    fn error(self) -> ErrorKind {
        match self {
            Self::NoRoom(lack) => lack_error(Some(lack)),
            Self::Gone => ErrorKind::DataGone,
            Self::DiskBehind => ErrorKind::DiskBehind,
            Self::Stopping => ErrorKind::Stopping,
        }
    }

    fn status(self) -> &'static str {
        if self == Self::Stopping { "stopping" } else { "degraded" }
    }
}

/// The types of objects that are counted.
const TYPES: [&str; 19] = [
    "Job",
    "Queue",
    "Lease",
    "Timer",
    "WaitingPull",
    "UniqueKey",
    "Cron",
    "DependencyWatch",
    "ForgottenJob",
    "CustomId",
    "Worker",
    "TcpConnection",
    "HttpConnection",
    "WebSocketConnection",
    "EventStream",
    "ParkedCommand",
    "CommandInSteps",
    "RateLimitedClient",
    "LogCacheMegabyte",
];

/// Those that something outside of the server holds on to: workers and clients.
const HELD: [&str; 7] = [
    "Lease",
    "WaitingPull",
    "Worker",
    "TcpConnection",
    "HttpConnection",
    "WebSocketConnection",
    "EventStream",
];

/// The figures of one shard, or of all together.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    shards: usize,
    objects: [u64; TYPES.len()],
    log_memory_bytes: u64,
    trouble: Option<Trouble>,
}

/// What is known of the whole server beside them.
pub struct OfServer<'a> {
    /// Jobs by state, totals and rates.
    pub census: &'a Census,
    /// Time since the start.
    pub uptime_ms: u64,
    /// Shards there are.
    pub shards: usize,
    /// How TLS stands, where it is spoken.
    pub tls: Option<CertificateStatus>,
}

impl ShardServer {
    /// This shard's figures.
    pub(crate) fn share_of_figures(&self) -> GatheredPart {
        let held = self.engine.shard.holdings();
        let log = &self.engine.journal.log;
        let log_memory_bytes = log.memory_bytes() as u64;
        let objects = [
            held.jobs,
            held.queues,
            held.leases,
            held.timers,
            held.waiters,
            held.unique_keys,
            held.crons,
            held.watches,
            held.completed_ids,
            self.directory.len(),
            self.workers.len(),
            self.sessions.count(Protocol::Frames),
            self.sessions.count(Protocol::Http),
            self.sessions.count(Protocol::WebSocket),
            self.sessions.count(Protocol::Events),
            self.parked.len(),
            self.tasks.len(),
            self.http.limiter.as_ref().map_or(0, Limiter::len),
            log.memory_bytes() >> 20,
        ];
        let no_room = Trouble::NoRoom(log.lack().unwrap_or(Lack::Space));
        let troubles = [
            (self.stopping, Trouble::Stopping),
            (self.data_presence.is_gone(), Trouble::Gone),
            (self.saturated && self.is_disk_behind(), Trouble::DiskBehind),
            (self.engine.journal.is_full(&self.engine.shard.space_forecast()), no_room),
        ];
        let trouble = troubles.into_iter().find_map(|(is, trouble)| is.then_some(trouble));
        let objects = objects.map(|count| count as u64);
        GatheredPart::Figures(Box::new(Figures { shards: 1, objects, log_memory_bytes, trouble }))
    }
}

impl Figures {
    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        self.shards += other.shards;
        self.log_memory_bytes += other.log_memory_bytes;
        self.trouble = self.trouble.max(other.trouble);
        for (sum, count) in self.objects.iter_mut().zip(other.objects) {
            *sum += count;
        }
    }

    /// Whether any have been added.
    pub fn are_there(&self) -> bool {
        self.shards > 0
    }

    fn count(&self, kind: &str) -> u64 {
        TYPES.iter().position(|name| *name == kind).map_or(0, |place| self.objects[place])
    }

    /// Writes the reply to a question.
    pub fn write(&self, out: &mut Vec<u8>, question: ScatterQuery, of_server: &OfServer<'_>) {
        match question {
            ScatterQuery::Health => self.write_health(out, of_server),
            ScatterQuery::Ready => self.write_ready(out),
            ScatterQuery::ServerStats => {
                let mut writer = reply::head(out, true, None, 3);
                write_stats(&mut writer, of_server.census, of_server.uptime_ms);
                self.write_memory(&mut writer, true);
                self.write_collections(&mut writer, of_server.census);
            }
            _ => self.write_heap(out, of_server),
        }
    }

    fn write_health(&self, out: &mut Vec<u8>, of_server: &OfServer<'_>) {
        let ahead_ms = clock::ahead_ms();
        let more = usize::from(self.trouble.is_some())
            + usize::from(of_server.tls.is_some())
            + usize::from(ahead_ms > 0);
        let mut writer = reply::head(out, true, None, 6 + more);
        writer.str("status");
        writer.str(self.trouble.map_or("healthy", Trouble::status));
        if let Some(trouble) = self.trouble {
            writer.str("reason");
            writer.str(trouble.error().text());
        }
        writer.str("uptime");
        writer.uint(of_server.uptime_ms / 1000);
        writer.str("version");
        writer.str(env!("CARGO_PKG_VERSION"));
        let census = of_server.census;
        let queues = [
            ("waiting", census.waiting),
            ("active", census.active),
            ("delayed", census.delayed),
            ("completed", census.completed),
            ("dlq", census.failed),
        ];
        write_counts(&mut writer, "queues", &queues);
        let connections = [
            ("tcp", self.count("TcpConnection")),
            ("ws", self.count("WebSocketConnection")),
            ("sse", self.count("EventStream")),
        ];
        write_counts(&mut writer, "connections", &connections);
        if let Some(standing) = of_server.tls {
            certificate::write_health(&mut writer, standing);
        }
        if ahead_ms > 0 {
            writer.str("clockAheadMs");
            writer.uint(ahead_ms);
        }
        self.write_memory(&mut writer, false);
    }

    fn write_ready(&self, out: &mut Vec<u8>) {
        let ready = self.trouble.is_none();
        let more = if ready { 0 } else { ERROR_FIELDS };
        let mut writer = reply::head(out, ready, None, 1 + more);
        writer.str("ready");
        writer.bool(ready);
        if let Some(trouble) = self.trouble {
            put_error(&mut writer, trouble.error().into());
        }
    }

    /// With what lies beside the allocator's heap, if `more`.
    fn write_memory(&self, writer: &mut Writer<'_>, more: bool) {
        let Memory { heap_used, heap_total, resident, shared } = memory::measure();
        writer.str("memory");
        writer.map(if more { 5 } else { 3 });
        let mut field = |name: &str, bytes: u64| {
            writer.str(name);
            writer.number(megabytes(bytes));
        };
        field("heapUsed", heap_used);
        field("heapTotal", heap_total);
        field("rss", resident);
        if more {
            field("external", shared);
            field("arrayBuffers", self.log_memory_bytes);
        }
    }

    fn write_collections(&self, writer: &mut Writer<'_>, census: &Census) {
        let collections = [
            ("jobIndex", self.count("Job")),
            ("completedJobs", census.completed),
            ("processingTotal", census.active),
            ("queuedTotal", census.waiting),
            ("temporalIndexTotal", self.count("Timer")),
        ];
        write_counts(writer, "collections", &collections);
    }

    fn write_heap(&self, out: &mut Vec<u8>, of_server: &OfServer<'_>) {
        let mut writer = reply::head(out, true, None, 4);
        self.write_memory(&mut writer, false);
        let heap = [
            ("objectCount", self.objects.iter().sum()),
            ("protectedCount", HELD.iter().map(|kind| self.count(kind)).sum()),
            ("globalCount", of_server.shards as u64),
        ];
        write_counts(&mut writer, "heap", &heap);
        self.write_collections(&mut writer, of_server.census);
        let mut types: Vec<(&str, u64)> = TYPES.into_iter().zip(self.objects).collect();
        types.sort_by_key(|&(kind, count)| (std::cmp::Reverse(count), kind));
        types.truncate(TYPES_SHOWN_MAX);
        writer.str("topObjectTypes");
        writer.array(types.len());
        for (kind, count) in types {
            writer.map(2);
            writer.str("type");
            writer.str(kind);
            writer.str("count");
            writer.uint(count);
        }
    }
}

fn write_counts(writer: &mut Writer<'_>, name: &str, counts: &[(&str, u64)]) {
    writer.str(name);
    writer.map(counts.len());
    for (name, count) in counts {
        writer.str(name);
        writer.uint(*count);
    }
}
