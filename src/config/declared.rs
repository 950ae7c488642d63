//! The settings of `corq serve`, as flags. What else there is of a setting follows from its flag.

use super::host::{self, ListenHost};
use super::origin::Origins;
use super::values::{
    Ratio, RequestsMax, backup_schedule, backup_target, host_name, metrics_prefix, origin,
    otlp_endpoint, otlp_header, page_color, page_label, page_path, page_secret, protocol_version,
    ratio, requests_max, s3_endpoint, s3_region, s3_word, segment_mb, service_name, socket_mode,
};
use crate::api::limits::SHARDS_MAX;
use crate::api::version::Version;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The guarantee that a reply gives for the job that it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Durability {
    /// The kernel has it: no crash of the process loses it; a power loss may take the last
    /// `fsync_interval_ms`.
    Written,
    /// The disk has it.
    Synced,
    /// The database of `FLEET_DATABASE` has committed it.
    Replicated,
}

/// Where the threads of the shards run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PlacementChoice {
    /// Each on a CPU of its own.
    Pinned,
    /// Each on any CPU that the process may use.
    Floating,
    /// As this machine lets expect the better of the two; the start says which, and why.
    Auto,
}

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// A JSON object per line.
    Json,
}

/// Lowest severity that is logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum LogLevel {
    /// Only problems that need attention at once.
    Error,
    /// Also problems that will need attention.
    Warn,
    /// Also normal operation.
    Info,
    /// Also details for debugging.
    Debug,
}

/// The settings of `corq serve`. The variables here are the plain ones; each has one that begins with `CORQ_` besides.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// File with settings, as TOML: their names in lower case. Flags and environment variables come before it. Read again
    /// on SIGHUP
    #[arg(long = "config", env = "CORQ_CONFIG", value_name = "FILE")]
    pub config_file: Option<PathBuf>,

    /// Address to listen on, or localhost for those of loopback [default: 0.0.0.0 if tokens are set, else 127.0.0.1]
    #[arg(long, env = "HOST", value_parser = host::listen_host)]
    pub host: Option<ListenHost>,

    /// Port of the MessagePack protocol (0 picks a free one)
    #[arg(long, env = "TCP_PORT", default_value_t = 6789)]
    pub tcp_port: u16,

    /// Port of HTTP (0 picks a free one)
    #[arg(long, env = "HTTP_PORT", default_value_t = 6790)]
    pub http_port: u16,

    /// Path of a unix socket for the MessagePack protocol, in addition to the port
    #[arg(long, env = "TCP_SOCKET_PATH", value_name = "PATH")]
    pub tcp_socket_path: Option<PathBuf>,

    /// Path of a unix socket for HTTP, in addition to the port
    #[arg(long, env = "HTTP_SOCKET_PATH", value_name = "PATH")]
    pub http_socket_path: Option<PathBuf>,

    /// File mode of the unix sockets, in octal: which users may connect
    #[arg(long, env = "UNIX_SOCKET_MODE", default_value = "0660", value_parser = socket_mode)]
    pub unix_socket_mode: u32,

    /// Certificate chain of both ports, as PEM; both then speak TLS only. Reloaded on SIGHUP
    #[arg(long, env = "TLS_CERT_FILE", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key of the certificate, as PEM
    #[arg(long, env = "TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,

    /// Certificate authorities, as PEM: only clients with a certificate of one of them may connect
    #[arg(long, env = "TLS_CLIENT_CA_FILE", value_name = "FILE")]
    pub tls_client_ca_file: Option<PathBuf>,

    /// Timeout of a TLS handshake, in milliseconds
    #[arg(long, env = "TLS_HANDSHAKE_TIMEOUT_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub tls_handshake_timeout_ms: u64,

    /// Data directory, with the log of each shard [default: ./corq-data]
    #[arg(long, env = "DATA_PATH")]
    pub data_path: Option<PathBuf>,

    /// Keep everything in memory: nothing survives the process
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub memory: bool,

    /// Number of shards [default: one per allowed CPU, or as many as the CPU quota of the control group has time for]
    #[arg(long, env = "SHARDS", value_parser = clap::value_parser!(u16).range(1..=i64::from(SHARDS_MAX)))]
    pub shards: Option<u16>,

    /// Where shards run: each on a CPU of its own (pinned), on any (floating), or as the machine suggests (auto)
    #[arg(long, env = "PLACEMENT", default_value = "auto")]
    pub placement: PlacementChoice,

    /// Guarantee of a reply: the kernel has the job (written), the disk has it (synced), or the database of the fleet has
    /// committed it (replicated)
    #[arg(long, env = "DURABILITY", default_value = "written")]
    pub durability: Durability,

    /// Database of a fleet, as a URL: nodes with the same one stand by for each other. For replicated durability
    #[arg(long, env = "FLEET_DATABASE", value_name = "URL", hide_env_values = true)]
    pub fleet_database: Option<String>,

    /// Name of this node in the fleet [default: the name of the machine]
    #[arg(long, env = "FLEET_NODE", value_name = "NAME")]
    pub fleet_node: Option<String>,

    /// Host at which other nodes reach this one, to pass clients on [default: as the database sees it]
    #[arg(long, env = "FLEET_ADDRESS", value_name = "HOST")]
    pub fleet_address: Option<String>,

    /// How long a node must not be heard of before another takes its logs over, in milliseconds
    #[arg(long, env = "FLEET_LEASE_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2000..=600_000))]
    pub fleet_lease_ms: u64,

    /// Whether to serve only while the database has a synchronous standby
    #[arg(long, env = "FLEET_REQUIRE_SYNC", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub fleet_require_sync: bool,

    /// Whether a node that stands by copies the logs as they grow, so that it takes them over sooner
    #[arg(long, env = "FLEET_FOLLOW", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub fleet_follow: bool,

    /// Longest time written data may wait for its fsync, in milliseconds
    #[arg(long, env = "FSYNC_INTERVAL_MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub fsync_interval_ms: u64,

    /// How long a waking shard may wait for more clients, so that they share one wake-up and one fsync, in
    /// microseconds; 0 = off [default: 50 with synced, 0 with written]
    #[arg(long, env = "GATHER_US", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub gather_us: Option<u32>,

    /// Memory for the newest payloads, all shards together, in MB
    #[arg(long, env = "PAYLOAD_CACHE_MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(4..=1_048_576))]
    pub payload_cache_mb: u64,

    /// Memory for what clients send and what they have yet to read, all shards together, in MB; at least 128, and 64 for each
    /// shard [default: an eighth of the memory of the machine or its control group, at most 1024 for each shard]
    #[arg(long, env = "CLIENT_MEMORY_MB", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub client_memory_mb: Option<u64>,

    /// Size of one log file, in MB; a power of two
    #[arg(long, env = "SEGMENT_MB", default_value_t = 64, value_parser = segment_mb)]
    pub segment_mb: u64,

    /// Maximum size of all log files together, in MB [default: the space of the disk]
    #[arg(long, env = "DATA_MAX_MB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub data_max_mb: Option<u64>,

    /// Back-pressure: records per shard that may wait for a slow disk before it takes no more commands, in MB
    #[arg(long, env = "LOG_WAITING_MB", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub log_waiting_mb: u64,

    /// Accepted tokens, separated by commas, each with its role before it if it is not an admin's, and the queues it is for:
    /// read:abc,push(emails.*):def; without tokens every client is accepted
    #[arg(long, env = "AUTH_TOKENS", value_delimiter = ',', hide_env_values = true)]
    pub auth_tokens: Vec<String>,

    /// File with more tokens, one a line; read again on SIGHUP
    #[arg(long, env = "AUTH_TOKENS_FILE", value_name = "FILE")]
    pub auth_tokens_file: Option<PathBuf>,

    /// Whether web pages may only look: those that log in, or any if there are no tokens
    #[arg(long, env = "UI_READ_ONLY", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub ui_read_only: bool,

    /// Whether there is a dashboard on the port of HTTP
    #[arg(long, env = "UI", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub ui: bool,

    /// Where the dashboard is: a path
    #[arg(long, env = "UI_PATH", default_value = "/ui", value_parser = page_path)]
    pub ui_path: String,

    /// Name of this environment, shown on every page of the dashboard, of up to 32 characters
    #[arg(long, env = "UI_LABEL", value_parser = page_label)]
    pub ui_label: Option<String>,

    /// Colour of that name, such as #c0392b or red
    #[arg(long, env = "UI_COLOR", value_parser = page_color)]
    pub ui_color: Option<String>,

    /// Paths in payloads and results, separated by commas, whose values the dashboard covers; * stands for any key or
    /// place: password,*.token
    #[arg(long, env = "UI_REDACT", value_delimiter = ',', value_parser = page_secret)]
    pub ui_redact: Vec<String>,

    /// Require a token for GET /prometheus as well
    #[arg(long, env = "REQUIRE_AUTH_FOR_METRICS", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub require_auth_for_metrics: bool,

    /// Second prefix of the names of all metrics for Prometheus, which come under both: a letter, then up to 63 letters,
    /// digits and underscores [default: none; all names begin with corq_]
    #[arg(long, env = "METRICS_PREFIX", value_parser = metrics_prefix)]
    pub metrics_prefix: Option<String>,

    /// Time in which a TCP connection must send a valid token, if tokens are set, in milliseconds
    #[arg(long, env = "AUTH_TIMEOUT_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub auth_timeout_ms: u64,

    /// Wrong tokens of one address within 5 seconds that a shard refuses at once; further ones are refused later; Infinity
    /// for no limit
    #[arg(long, env = "AUTH_FAILURES_MAX", default_value = "10", value_parser = requests_max)]
    pub auth_failures_max: RequestsMax,

    /// Time in which a frame or WebSocket message must be complete after its first byte, in milliseconds
    #[arg(long, env = "FRAME_TIMEOUT_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub frame_timeout_ms: u64,

    /// Origins whose web pages may use this server over HTTP, separated by commas, or * for all [default: all may read
    /// responses, but without tokens requests from pages of other origins are refused]
    #[arg(long, env = "CORS_ALLOW_ORIGIN", value_delimiter = ',', value_parser = origin)]
    pub cors_allow_origin: Vec<String>,

    /// Host names, without ports, separated by commas, that HTTP clients may use for a server without tokens, besides
    /// localhost and all IP addresses; * for any
    #[arg(long, env = "ALLOWED_HOSTS", value_delimiter = ',', value_parser = host_name)]
    pub allowed_hosts: Vec<String>,

    /// Time in which an HTTP request must be complete after its first byte, in milliseconds
    #[arg(long, env = "HTTP_REQUEST_TIMEOUT_MS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub http_request_timeout_ms: u64,

    /// Longest idle time between requests of an HTTP connection, in milliseconds
    #[arg(long, env = "HTTP_IDLE_TIMEOUT_MS", default_value_t = 75_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub http_idle_timeout_ms: u64,

    /// Window of the rate limits, in milliseconds
    #[arg(long, env = "RATE_LIMIT_WINDOW_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub rate_limit_window_ms: u64,

    /// HTTP requests of one client per window; Infinity for no limit
    #[arg(long, env = "RATE_LIMIT_MAX_REQUESTS", default_value = "Infinity", value_parser = requests_max)]
    pub rate_limit_max_requests: RequestsMax,

    /// How often rate limits of silent clients are dropped, in milliseconds
    #[arg(long, env = "RATE_LIMIT_CLEANUP_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub rate_limit_cleanup_ms: u64,

    /// Commands of one TCP or WebSocket connection per window; Infinity for no limit
    #[arg(long, env = "TCP_RATE_LIMIT_MAX_REQUESTS", default_value = "Infinity", value_parser = requests_max)]
    pub tcp_rate_limit_max_requests: RequestsMax,

    /// Version of the protocol, 2 or 3, that a TCP connection speaks until it tells: by Hello, or by a command or field
    /// that only version 3 has
    #[arg(long, env = "PROTOCOL_DEFAULT", default_value = "2", value_parser = protocol_version)]
    pub protocol_default: Version,

    /// Completed jobs kept per queue
    #[arg(long, env = "COMPLETED_MAX", default_value_t = 50_000)]
    pub completed_max: u32,

    /// How long a completed job is kept, in milliseconds
    #[arg(long, env = "COMPLETED_RETENTION_MS", default_value_t = 604_800_000)]
    pub completed_retention_ms: u64,

    /// How long jobs stay in a dead-letter queue, marked as expired, after the maxAge of its rule, in milliseconds
    #[arg(long, env = "DLQ_EXPIRED_KEPT_MS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(0..=31_536_000_000))]
    pub dlq_expired_kept_ms: u64,

    /// Shortest interval between two runs of a schedule or a repeated job, in milliseconds
    #[arg(long, env = "CRON_MIN_INTERVAL_MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    pub cron_min_interval_ms: u64,

    /// Jobs per second that schedules and repeats of a shard push; runs beyond it are delayed
    #[arg(long, env = "SCHEDULED_PUSHES_PER_SECOND", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub scheduled_pushes_per_second: u32,

    /// Maximum number of connections per shard; more are rejected
    #[arg(long, env = "CONNECTIONS_MAX", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_max: u32,

    /// Total attempts to deliver an event to a webhook
    #[arg(long, env = "WEBHOOK_MAX_RETRIES", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub webhook_max_retries: u32,

    /// Attempt n waits n - 1 times this long after the previous one failed, in milliseconds
    #[arg(long, env = "WEBHOOK_RETRY_DELAY_MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    pub webhook_retry_delay_ms: u64,

    /// Timeout of one delivery attempt, in milliseconds
    #[arg(long, env = "WEBHOOK_TIMEOUT_MS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(100..=30_000))]
    pub webhook_timeout_ms: u64,

    /// Deliveries to one webhook at a time; events of one job follow each other
    #[arg(long, env = "WEBHOOK_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub webhook_concurrency: u32,

    /// Allow webhooks to loopback and private networks (for tests, or if only you add webhooks)
    #[arg(long, env = "WEBHOOK_ALLOW_PRIVATE", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub webhook_allow_private: bool,

    /// Where the spans of sampled jobs go, as OTLP over HTTP: the URL of a collector, at port 4318 as a rule; without it
    /// there are none
    #[arg(long, env = "OTLP_ENDPOINT", value_name = "URL", value_parser = otlp_endpoint)]
    pub otlp_endpoint: Option<String>,

    /// Headers of its posts, separated by commas: authorization=Bearer%20abc,x-tenant=a
    #[arg(long, env = "OTLP_HEADERS", value_delimiter = ',', hide_env_values = true, value_parser = otlp_header)]
    pub otlp_headers: Vec<String>,

    /// Which part of the jobs without a traceparent is sampled, from 0 to 1; those with one are if it says so
    #[arg(long, env = "OTLP_SAMPLE", default_value = "1", value_parser = ratio)]
    pub otlp_sample: Ratio,

    /// Timeout of one post of spans, in milliseconds
    #[arg(long, env = "OTLP_TIMEOUT_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub otlp_timeout_ms: u64,

    /// Longest time that a span waits for others of its post, in milliseconds
    #[arg(long, env = "OTLP_INTERVAL_MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub otlp_interval_ms: u64,

    /// Name of this server in its spans (service.name), of up to 128 characters
    #[arg(long, env = "OTLP_SERVICE_NAME", default_value = "corq", value_parser = service_name)]
    pub otlp_service_name: String,

    /// Interval of keep-alives on an idle event stream, in milliseconds; a WebSocket is
    /// pinged half as often
    #[arg(long, env = "STREAM_KEEP_ALIVE_MS", default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub stream_keep_alive_ms: u64,

    /// Events that a shard keeps for clients of event streams with ids that come back; 0 keeps none
    #[arg(long, env = "EVENTS_KEPT", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub events_kept: u32,

    /// Timeout of a stop, which waits for running commands, in milliseconds
    #[arg(long, env = "SHUTDOWN_TIMEOUT_MS", default_value_t = 30_000)]
    pub shutdown_timeout_ms: u64,

    /// Whether there is an audit log: who did what that changes more than a job, and who was not let in
    #[arg(long, env = "AUDIT", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub audit: bool,

    /// Size of one file of the audit log, in MB
    #[arg(long, env = "AUDIT_MAX_MB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub audit_max_mb: u64,

    /// Files of the audit log that are kept; the oldest goes when there are more
    #[arg(long, env = "AUDIT_FILES", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub audit_files: u16,

    /// When the server makes backups: a cron expression in UTC, such as "0 3 * * *" [default: none are made]
    #[arg(long, env = "BACKUP_SCHEDULE", value_parser = backup_schedule)]
    pub backup_schedule: Option<String>,

    #[arg(
        long,
        env = "BACKUP_TO",
        value_parser = backup_target,
        help = "Where backups go: a directory, or s3://BUCKET/PREFIX"
    )]
    pub backup_to: Option<String>,

    /// Backups of this data directory that are kept; the oldest goes once a new one is complete
    #[arg(long, env = "BACKUP_KEEP", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub backup_keep: u32,

    /// Where the storage of buckets is: a URL without a path; {bucket} in its host stands for the bucket, whose name is else
    /// the beginning of the path. Also AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL [default: that of Amazon's S3]
    #[allow(clippy::doc_markdown, reason = "help texts are plain text")]
    #[arg(long, env = "BACKUP_S3_ENDPOINT", value_parser = s3_endpoint)]
    pub backup_s3_endpoint: Option<String>,

    /// Region of the bucket. Also AWS_REGION and AWS_DEFAULT_REGION
    #[allow(clippy::doc_markdown, reason = "help texts are plain text")]
    #[arg(long, env = "BACKUP_S3_REGION", default_value = "us-east-1", value_parser = s3_region)]
    pub backup_s3_region: String,

    /// Id of the key to the bucket. Also AWS_ACCESS_KEY_ID
    #[allow(clippy::doc_markdown, reason = "help texts are plain text")]
    #[arg(long, env = "BACKUP_S3_ACCESS_KEY_ID", value_parser = s3_word)]
    pub backup_s3_access_key_id: Option<String>,

    /// The key itself. Also AWS_SECRET_ACCESS_KEY
    #[allow(clippy::doc_markdown, reason = "help texts are plain text")]
    #[arg(long, env = "BACKUP_S3_SECRET_ACCESS_KEY", hide_env_values = true, value_parser = s3_word)]
    pub backup_s3_secret_access_key: Option<String>,

    /// Session token of a temporary key. Also AWS_SESSION_TOKEN
    #[allow(clippy::doc_markdown, reason = "help texts are plain text")]
    #[arg(long, env = "BACKUP_S3_SESSION_TOKEN", hide_env_values = true, value_parser = s3_word)]
    pub backup_s3_session_token: Option<String>,

    #[arg(
        long,
        env = "BACKUP_S3_CREDENTIALS_FILE",
        value_name = "FILE",
        help = "File with the key to the bucket and its id, in its part [default], as other programs have it in ~/.aws/credentials; read for each backup. Also AWS_SHARED_CREDENTIALS_FILE"
    )]
    pub backup_s3_credentials_file: Option<PathBuf>,

    /// Timeout of an answer of the storage, in milliseconds; an object has besides the time that it takes at 64 KB/s
    #[arg(long, env = "BACKUP_S3_TIMEOUT_MS", default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub backup_s3_timeout_ms: u64,

    /// Format of log lines
    #[arg(long, env = "LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Lowest severity that is logged
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub log_level: LogLevel,

    /// Where each of them comes from.
    #[arg(skip)]
    pub origins: Origins,
}
