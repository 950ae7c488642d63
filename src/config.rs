//! The settings of a server: each a flag with an environment variable behind it, each with a name, a
//! unit and a bound. A wrong value stops the start with one line.

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;

/// What a reply guarantees about the job that it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Durability {
    /// The kernel has it: no crash of the process loses it; a power loss may take the last
    /// `fsync_interval_ms`.
    Written,
    /// The disk has it.
    Synced,
}

/// Files without which a shard could not work: one being written, two in reserve, and one that has
/// something in it.
const SEGMENTS_MIN: u64 = 5;

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
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

/// The settings of `corq serve`.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// Address to listen on [default: 0.0.0.0 if tokens are set, else 127.0.0.1]
    #[arg(long, env = "HOST")]
    pub host: Option<IpAddr>,

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

    /// Data directory, with the log of each shard
    #[arg(long, env = "DATA_PATH", conflicts_with = "memory")]
    pub data_path: Option<PathBuf>,

    /// Keep everything in memory: nothing survives the process
    #[arg(long)]
    pub memory: bool,

    /// Number of shards [default: one per allowed CPU]
    #[arg(long, env = "SHARDS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Option<u16>,

    /// What a reply guarantees: the kernel has the job (written), or the disk has it (synced)
    #[arg(long, env = "DURABILITY", default_value = "written")]
    pub durability: Durability,

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

    /// Size of one log file, in MB; a power of two
    #[arg(long, env = "SEGMENT_MB", default_value_t = 64, value_parser = segment_mb)]
    pub segment_mb: u64,

    /// Maximum size of all log files together, in MB [default: the space of the disk]
    #[arg(long, env = "DATA_MAX_MB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub data_max_mb: Option<u64>,

    /// Back-pressure: records per shard that may wait for a slow disk before it takes no more commands, in MB
    #[arg(long, env = "LOG_WAITING_MB", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub log_waiting_mb: u64,

    /// Accepted tokens, separated by commas; without tokens every client is accepted
    #[arg(long, env = "AUTH_TOKENS", value_delimiter = ',', hide_env_values = true)]
    pub auth_tokens: Vec<String>,

    /// Require a token for GET /prometheus as well
    #[arg(long, env = "REQUIRE_AUTH_FOR_METRICS", default_value_t = false, num_args = 0..=1, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub require_auth_for_metrics: bool,

    /// Time in which a TCP connection must send a valid token, if tokens are set, in milliseconds
    #[arg(long, env = "AUTH_TIMEOUT_MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub auth_timeout_ms: u64,

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

    /// Completed jobs kept per queue
    #[arg(long, env = "COMPLETED_MAX", default_value_t = 50_000)]
    pub completed_max: u32,

    /// How long a completed job is kept, in milliseconds
    #[arg(long, env = "COMPLETED_RETENTION_MS", default_value_t = 604_800_000)]
    pub completed_retention_ms: u64,

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

    /// Allow webhooks to loopback and private networks (for tests, or if only you add webhooks)
    #[arg(long, env = "WEBHOOK_ALLOW_PRIVATE", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_value = "false", default_missing_value = "true")]
    pub webhook_allow_private: bool,

    /// Interval of keep-alives on an idle event stream, in milliseconds; a WebSocket is
    /// pinged half as often
    #[arg(long, env = "STREAM_KEEP_ALIVE_MS", default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub stream_keep_alive_ms: u64,

    /// Timeout of a stop, which waits for running commands, in milliseconds
    #[arg(long, env = "SHUTDOWN_TIMEOUT_MS", default_value_t = 30_000)]
    pub shutdown_timeout_ms: u64,

    /// Format of log lines
    #[arg(long, env = "LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,

    /// Lowest severity that is logged
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

/// With [`Durability::Synced`] each wake-up for one client costs a sync; with
/// [`Durability::Written`] waiting costs more than it brings (decision 0025).
const GATHER_SYNCED_US: u32 = 50;

impl Config {
    /// How long a sleep may go on so that several clients are heard together, in microseconds.
    pub fn gather_us(&self) -> u32 {
        let default = if self.durability == Durability::Synced { GATHER_SYNCED_US } else { 0 };
        self.gather_us.unwrap_or(default)
    }

    /// The address to listen on: open to the network only if `HOST` says so or tokens are set.
    pub fn listen_host(&self) -> IpAddr {
        let closed = IpAddr::from([127, 0, 0, 1]);
        let open = IpAddr::from([0, 0, 0, 0]);
        self.host.unwrap_or(if self.tokens().next().is_some() { open } else { closed })
    }

    /// Whether strangers can reach the server and nothing stops them.
    pub fn is_open_to_strangers(&self) -> bool {
        !self.listen_host().is_loopback() && self.tokens().next().is_none()
    }

    /// The accepted tokens. An empty setting is no token.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.auth_tokens.iter().map(|token| token.trim()).filter(|token| !token.is_empty())
    }

    /// The names in `ALLOWED_HOSTS`. An empty setting is none.
    pub fn allowed_hosts(&self) -> impl Iterator<Item = &str> {
        self.allowed_hosts.iter().map(|name| &**name).filter(|name| !name.is_empty())
    }

    /// Where the log lies; `None` in memory. `BUNQUEUE_DATA_PATH` is read as well, for those who
    /// come from there.
    pub fn data_path(&self) -> Option<PathBuf> {
        if self.memory {
            return None;
        }
        let other = || std::env::var_os("BUNQUEUE_DATA_PATH").map(PathBuf::from);
        Some(self.data_path.clone().or_else(other).unwrap_or_else(|| "./corq-data".into()))
    }

    /// Most that the log of one shard may take.
    pub fn data_bytes_max(&self, shards: usize) -> u64 {
        self.data_max_mb.map_or(u64::MAX, |size| (size << 20) / shards as u64)
    }

    /// Whether the settings of the sockets fit each other.
    fn check_sockets(&self) -> Result<(), String> {
        let said = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        match (said(&self.tls_cert_file), said(&self.tls_key_file), said(&self.tls_client_ca_file))
        {
            (Some(path), None, _) => {
                return Err(format!("TLS_KEY_FILE: it is missing, and TLS_CERT_FILE is {path}"));
            }
            (None, Some(path), _) => {
                return Err(format!("TLS_CERT_FILE: it is missing, and TLS_KEY_FILE is {path}"));
            }
            (None, None, Some(path)) => {
                return Err(format!(
                    "TLS_CERT_FILE: it is missing, and TLS_CLIENT_CA_FILE is {path}"
                ));
            }
            _ => {}
        }
        match said(&self.tcp_socket_path) {
            Some(path) if self.tcp_socket_path == self.http_socket_path => Err(format!(
                "HTTP_SOCKET_PATH: {path} is the TCP_SOCKET_PATH: each needs a path of its own"
            )),
            _ => Ok(()),
        }
    }

    /// Whether the settings fit each other.
    pub fn check(&self, shards: usize) -> Result<(), String> {
        self.check_sockets()?;
        if self.cors_allow_origin.len() > ORIGINS_MAX {
            return Err(format!(
                "CORS_ALLOW_ORIGIN: it must have at most {ORIGINS_MAX} origins, and has {}",
                self.cors_allow_origin.len()
            ));
        }
        let least = SEGMENTS_MIN * self.segment_mb * shards as u64;
        match self.data_max_mb {
            Some(size) if size < least => Err(format!(
                "DATA_MAX_MB: {size} is too little for {shards} shards with files of {} MB: it must be \
                 at least {least}",
                self.segment_mb
            )),
            // Nothing at all is how a setting is left out in many places; a comma is a token forgotten.
            _ if !self.auth_tokens.concat().is_empty() || self.auth_tokens.len() > 1 => {
                let none =
                    || format!("AUTH_TOKENS: {:?} holds no token", self.auth_tokens.join(","));
                self.tokens().next().map(|_| ()).ok_or_else(none)
            }
            _ => Ok(()),
        }
    }

    /// Commands of one WebSocket connection within the span: it is a connection that gives commands, and a client of HTTP.
    pub fn message_requests_max(&self) -> RequestsMax {
        let both = [self.tcp_rate_limit_max_requests.0, self.rate_limit_max_requests.0];
        RequestsMax(both.into_iter().flatten().min())
    }

    /// Payload memory of one shard.
    pub fn cache_bytes(&self, shards: usize) -> usize {
        (self.payload_cache_mb as usize) * 1024 * 1024 / shards
    }
}

/// A limit on requests, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestsMax(pub Option<u32>);

fn requests_max(text: &str) -> Result<RequestsMax, String> {
    if text.eq_ignore_ascii_case("infinity") {
        return Ok(RequestsMax(None));
    }
    match text.parse() {
        Ok(requests) if requests > 0 => Ok(RequestsMax(Some(requests))),
        _ => Err(format!("it must be between 1 and {}, or Infinity", u32::MAX)),
    }
}

/// Most origins that may be listed.
const ORIGINS_MAX: usize = 64;

/// As browsers write it, in lower case and without the port that its scheme means, since it is compared as it is and goes
/// into a header.
fn origin(text: &str) -> Result<String, String> {
    let text = text.trim().to_ascii_lowercase();
    let is_one = text.split_once("://").is_some_and(|(scheme, host)| {
        let graphic = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        !scheme.is_empty() && !host.is_empty() && graphic(&text) && !host.contains(['/', '?', '#'])
    });
    if text == "*" || is_one && text.len() <= 256 {
        let port = if text.starts_with("https://") { ":443" } else { ":80" };
        let usual = text.starts_with("http://") || text.starts_with("https://");
        Ok(text.strip_suffix(port).filter(|_| usual).unwrap_or(&text).to_string())
    } else {
        Err("it must be * or origins without a path, such as https://example.com".into())
    }
}

/// In lower case and without the dot that may end it.
fn host_name(text: &str) -> Result<String, String> {
    let name = text.trim().trim_end_matches('.').to_ascii_lowercase();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name == "*" || name.len() <= 253 && name.bytes().all(fits) {
        Ok(name)
    } else {
        Err("it must be * or names of hosts without ports, such as queue.example.com".into())
    }
}

fn socket_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("it must be between 0000 and 0777, in octal".into()),
    }
}

fn segment_mb(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(size @ (16 | 32 | 64 | 128 | 256 | 512 | 1024)) => Ok(size),
        _ => Err("it must be a power of two between 16 and 1024".into()),
    }
}
