//! Answers that only HTTP gives: how the server is, whether it can take jobs, its objects in memory. Each shard adds
//! its figures, the one that was asked writes the sum.

use crate::api::error::ErrorKind;
use crate::checks::server::REPLICATED;
use crate::protocol::msgpack::writer::MapWriter;
use crate::protocol::reply::{self, put_error};
use crate::server::census::write_totals;
use crate::server::commands::refusal::lack_error;
use crate::server::lifecycle::certificate;
use crate::server::shard_mail::scatter_query::ScatterQuery;
use corq_io::chronicle::Replication;
use corq_io::clock;
use corq_io::log::Lack;
use corq_io::memory::{self, Memory};
use corq_io::tls::CertificateStatus;
use corq_shards::cron::zones::zone_rules;
use corq_shards::stats::Census;
use std::sync::atomic::Ordering::Relaxed;

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
    /// The server stops.
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

    /// Whether it is the disk, or what lies on it, that is lacking.
    pub(super) fn is_of_storage(self) -> bool {
        matches!(self, Self::NoRoom(_) | Self::Gone)
    }

    fn status(self) -> &'static str {
        if self == Self::Stopping { "stopping" } else { "degraded" }
    }
}

/// The types of objects that are counted.
const TYPES: [&str; 20] = [
    "Job",
    "Queue",
    "Lease",
    "Timer",
    "WaitingPull",
    "UniqueKey",
    "Cron",
    "DependencyWatch",
    "ForgottenJob",
    "CompletedName",
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

/// Types of objects that are held from outside of the server: by workers and clients.
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
    pub(super) shards: usize,
    /// How many there are of each type.
    pub(super) objects: [u64; TYPES.len()],
    pub(super) log_memory_bytes: u64,
    pub(super) trouble: Option<Trouble>,
    /// Since when the log has lacked something, if it does.
    pub(super) lacking_since_ms: Option<u64>,
}

/// Facts about the whole server, beside the figures of its shards.
pub struct OfServer<'a> {
    /// Jobs by state, totals and rates.
    pub census: &'a Census,
    /// Time since the start.
    pub uptime_ms: u64,
    /// Shards there are.
    pub shards: usize,
    /// How TLS stands, where it is spoken.
    pub tls: Option<CertificateStatus>,
    /// How far the logs are in other hands, on a node of a fleet.
    pub fleet: Option<&'a Replication>,
    /// The client's name for the request.
    pub req_id: Option<&'a [u8]>,
}

impl Figures {
    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        self.shards += other.shards;
        self.log_memory_bytes += other.log_memory_bytes;
        self.trouble = self.trouble.max(other.trouble);
        let since_ms = self.lacking_since_ms.into_iter().chain(other.lacking_since_ms);
        self.lacking_since_ms = since_ms.min();
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
            ScatterQuery::Storage => {
                let mut reply = reply::begin(out, true, of_server.req_id);
                self.write_storage(reply.map("data"));
            }
            ScatterQuery::ServerStats => {
                let mut reply = reply::begin(out, true, None);
                write_stats(&mut reply, of_server.census, of_server.uptime_ms);
                self.write_memory(&mut reply, true);
                self.write_collections(&mut reply, of_server.census);
            }
            _ => self.write_heap(out, of_server),
        }
    }

    /// Memory, collections and storage, as an overview has them.
    pub fn write_overview(&self, data: &mut MapWriter<'_>, census: &Census) {
        self.write_memory(data, false);
        self.write_collections(data, census);
        self.write_storage(data.map("storage"));
    }

    /// Whether the disk takes what comes, and since when not.
    fn write_storage(&self, mut storage: MapWriter<'_>) {
        let lack = self.trouble.filter(|trouble| trouble.is_of_storage());
        storage.key("diskFull").bool(lack == Some(Trouble::NoRoom(Lack::Space)));
        storage.key("error").str_or_nil(lack.map(|trouble| trouble.error().text()));
        storage.key("since").uint_or_nil(self.lacking_since_ms.filter(|_| lack.is_some()));
    }

    fn write_health(&self, out: &mut Vec<u8>, of_server: &OfServer<'_>) {
        let (ahead_ms, set_back_ms) = (clock::ahead_ms(), clock::set_back_ms());
        let mut reply = reply::begin(out, true, None);
        reply.key("status").str(self.trouble.map_or("healthy", Trouble::status));
        if let Some(trouble) = self.trouble {
            reply.key("reason").str(trouble.error().text());
        }
        reply.key("uptime").uint(of_server.uptime_ms / 1000);
        reply.key("version").str(env!("CARGO_PKG_VERSION"));
        let census = of_server.census;
        let queues = [
            ("waiting", census.waiting),
            ("active", census.active),
            ("delayed", census.delayed),
            ("completed", census.completed),
            ("dlq", census.failed),
        ];
        write_counts(&mut reply, "queues", &queues);
        let connections = [
            ("tcp", self.count("TcpConnection")),
            ("ws", self.count("WebSocketConnection")),
            ("sse", self.count("EventStream")),
        ];
        write_counts(&mut reply, "connections", &connections);
        if let Some(standing) = of_server.tls {
            certificate::write_health(&mut reply, standing);
        }
        if let Some(fleet) = of_server.fleet {
            let is_synchronous = fleet.is_synchronous.load(Relaxed);
            let mut map = reply.map("fleet");
            map.key("state").str(REPLICATED[usize::from(!is_synchronous)]);
            map.key("logsWaiting").uint(fleet.logs_waiting.load(Relaxed));
        }
        let zones = zone_rules();
        let mut rules = reply.map("timeZoneRules");
        rules.key("version").str(zones.version());
        rules.key("source").str(zones.source());
        drop(rules);
        if ahead_ms > 0 {
            reply.key("clockAheadMs").uint(ahead_ms);
        }
        if set_back_ms > 0 {
            reply.key("clockSetBackMs").uint(set_back_ms);
        }
        self.write_memory(&mut reply, false);
    }

    fn write_ready(&self, out: &mut Vec<u8>) {
        let ready = self.trouble.is_none();
        let mut reply = reply::begin(out, ready, None);
        reply.key("ready").bool(ready);
        if let Some(trouble) = self.trouble {
            put_error(&mut reply, trouble.error().into());
        }
    }

    /// With what lies beside the allocator's heap, if `more`.
    fn write_memory(&self, reply: &mut MapWriter<'_>, more: bool) {
        let Memory { heap_used, heap_total, resident, shared } = memory::measure();
        let mut map = reply.map("memory");
        let mut field = |name: &str, bytes: u64| map.key(name).number(megabytes(bytes));
        field("heapUsed", heap_used);
        field("heapTotal", heap_total);
        field("rss", resident);
        if more {
            field("external", shared);
            field("arrayBuffers", self.log_memory_bytes);
        }
    }

    fn write_collections(&self, reply: &mut MapWriter<'_>, census: &Census) {
        let collections = [
            ("jobIndex", self.count("Job")),
            ("completedJobs", census.completed),
            ("processingTotal", census.active),
            ("queuedTotal", census.waiting),
            ("temporalIndexTotal", self.count("Timer")),
        ];
        write_counts(reply, "collections", &collections);
    }

    fn write_heap(&self, out: &mut Vec<u8>, of_server: &OfServer<'_>) {
        let mut reply = reply::begin(out, true, None);
        self.write_memory(&mut reply, false);
        let heap = [
            ("objectCount", self.objects.iter().sum()),
            ("protectedCount", HELD.iter().map(|kind| self.count(kind)).sum()),
            ("globalCount", of_server.shards as u64),
        ];
        write_counts(&mut reply, "heap", &heap);
        self.write_collections(&mut reply, of_server.census);
        let mut types: Vec<(&str, u64)> = TYPES.into_iter().zip(self.objects).collect();
        types.sort_by_key(|&(kind, count)| (std::cmp::Reverse(count), kind));
        types.truncate(TYPES_SHOWN_MAX);
        let mut list = reply.key("topObjectTypes");
        list.array(types.len());
        for (kind, count) in types {
            let mut row = list.begin_map();
            row.key("type").str(kind);
            row.key("count").uint(count);
        }
    }
}

/// People read two decimals.
pub fn megabytes(bytes: u64) -> f64 {
    (bytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0
}

/// `stats` of the command and of `/stats`.
pub(crate) fn write_stats(reply: &mut MapWriter<'_>, census: &Census, uptime_ms: u64) {
    let mut stats = reply.map("stats");
    // Version 3 of the protocol has other names for these.
    for (name, count) in
        [("queued", census.waiting), ("processing", census.active), ("dlq", census.failed)]
    {
        stats.key(name).uint(count);
    }
    write_totals(&mut stats, census, census.totals.failed, uptime_ms);
}

fn write_counts(reply: &mut MapWriter<'_>, name: &str, counts: &[(&str, u64)]) {
    let mut map = reply.map(name);
    for (name, count) in counts {
        map.key(name).uint(*count);
    }
}
