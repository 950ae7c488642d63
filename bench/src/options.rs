//! What may be asked of the generator.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Load for a job queue server, and an account of what it did with it.
#[derive(Parser)]
#[command(name = "corq-bench", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) workload: Workload,
}

/// The workloads.
#[derive(Subcommand)]
pub(crate) enum Workload {
    /// Single pushes (PUSH).
    Push(Options),
    /// Pushes in batches (PUSHB).
    PushBatch(Options),
    /// Jobs pulled and acknowledged one by one (PULL, ACK); pushed beforehand.
    Worker(Options),
    /// Jobs pulled and acknowledged in batches (PULLB, ACKB); pushed beforehand.
    Drain(Options),
    /// Producers and workers at once, on half of the connections each.
    Mixed(Options),
    /// Single pushes at a fixed rate, with workers waiting: how long from push to receipt.
    Open(Options),
}

impl Workload {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Push(_) => "push",
            Self::PushBatch(_) => "push-batch",
            Self::Worker(_) => "worker",
            Self::Drain(_) => "drain",
            Self::Mixed(_) => "mixed",
            Self::Open(_) => "open",
        }
    }

    pub(crate) fn options(&self) -> &Options {
        match self {
            Self::Push(options)
            | Self::PushBatch(options)
            | Self::Worker(options)
            | Self::Drain(options)
            | Self::Mixed(options)
            | Self::Open(options) => options,
        }
    }

    /// Requests in flight per connection where none were asked for.
    pub(crate) fn window(&self) -> u32 {
        self.options().window.unwrap_or(match self {
            Self::Push(_) => 50,
            Self::Worker(_) | Self::Mixed(_) | Self::Open(_) => 25,
            Self::PushBatch(_) | Self::Drain(_) => 1,
        })
    }

    /// Jobs per request; `None` for the commands that carry one.
    pub(crate) fn batch(&self) -> Option<u32> {
        match self {
            Self::PushBatch(options) | Self::Drain(options) => Some(options.batch.unwrap_or(100)),
            Self::Mixed(options) => options.batch,
            Self::Push(_) | Self::Worker(_) | Self::Open(_) => None,
        }
    }
}

/// How to speak to a port in private.
#[derive(Args)]
pub(crate) struct Privacy {
    /// Speak TLS; the file options below say so, too.
    #[arg(long)]
    pub(crate) tls: bool,
    /// Authorities to believe, as PEM, instead of those of the system.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate to show, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Options of every workload.
#[derive(Args)]
pub(crate) struct Options {
    /// Host of the server.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Its TCP port.
    #[arg(long, default_value_t = 6789)]
    pub(crate) port: u16,
    /// Its unix socket for frames, instead of both.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) privacy: Privacy,
    /// Token, where the server asks for one.
    #[arg(long, env = "CORQ_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Number of connections.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: u32,
    /// Queues. A connection keeps to its share of them unless --spread is given.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) queues: u32,
    /// Every connection works on every queue.
    #[arg(long)]
    pub(crate) spread: bool,
    /// Names of the queues begin with this; a name of this run's own by default.
    #[arg(long)]
    pub(crate) queue_prefix: Option<String>,
    /// Requests in flight per connection [default: push 50, worker and mixed 25, batches 1].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) window: Option<u32>,
    /// Jobs per request [default: 100; mixed works singly unless this is given].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) batch: Option<u32>,
    /// Bytes of a job's encoded payload.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(24..=10_000_000))]
    pub(crate) payload_bytes: u32,
    /// Jobs to do [default: 200000, or as many as --seconds allows].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    /// Seconds to work.
    #[arg(long, conflicts_with = "jobs")]
    pub(crate) seconds: Option<f64>,
    /// Pushes per second of `open`.
    #[arg(long, default_value_t = 10_000.0)]
    pub(crate) rate: f64,
    /// Push with `durable: true`.
    #[arg(long)]
    pub(crate) durable: bool,
    /// Push with priorities from 0 to this less one, at random.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) priorities: Option<u32>,
    /// Push with delays between this and twice this, at random, in milliseconds.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub(crate) delay_ms: Option<u32>,
    /// Pull with an owner, so that every job has a lock and a token.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) owner: bool,
    /// How long a pull of `mixed` and `open` waits for a job, in milliseconds.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(0..=30_000))]
    pub(crate) pull_timeout_ms: u32,
    /// How long the workers of `open` wait at the server before the first push, in milliseconds.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=30_000))]
    pub(crate) settle_ms: u32,
    /// Lock time of owned jobs, in milliseconds.
    #[arg(long, default_value_t = 60_000)]
    pub(crate) lock_ttl_ms: u32,
    /// Process of the server, for its CPU time and memory.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show progress on stderr even if that is no terminal.
    #[arg(long)]
    pub(crate) progress: bool,
    /// Jobs pushed before the measured span [default: what `worker` and `drain` will take].
    #[arg(long)]
    pub(crate) prefill: Option<u32>,
    /// Take what an earlier run with the same --queue-prefix, --queues and --payload-bytes left there with --keep,
    /// all of it unless --jobs is given (`worker` and `drain`).
    #[arg(long, conflicts_with = "prefill", requires = "queue_prefix")]
    pub(crate) resume: bool,
    /// Clients that listen to the events of all of this over HTTP.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) listeners: u32,
    /// The server's HTTP port, for them.
    #[arg(long, default_value_t = 6790)]
    pub(crate) http_port: u16,
    /// Its unix socket for HTTP, instead of that.
    #[arg(long, value_name = "PATH")]
    pub(crate) http_socket: Option<PathBuf>,
    /// Each of them listens to one queue instead of to all.
    #[arg(long)]
    pub(crate) listen_to_one: bool,
    /// Leave the queues as they are at the end.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Give up when the server has not answered for so many seconds.
    #[arg(long, default_value_t = 30.0)]
    pub(crate) patience: f64,
}
