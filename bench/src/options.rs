//! Command line of the generator.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::target::{Target, without_void_variables};

/// Load for a job queue server, and an account of what it did with it.
#[derive(Parser)]
#[command(name = "corq-bench", version, about)]
struct Cli {
    #[command(subcommand)]
    job: Job,
}

/// Work that the command line asks for.
#[derive(Subcommand)]
pub(crate) enum Job {
    /// Measure the standard workloads on a running server in half a minute, and print a table like README's.
    Quick(Quick),
    #[command(flatten)]
    Load(Workload),
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

    pub(crate) fn options_mut(&mut self) -> &mut Options {
        match self {
            Self::Push(options)
            | Self::PushBatch(options)
            | Self::Worker(options)
            | Self::Drain(options)
            | Self::Mixed(options)
            | Self::Open(options) => options,
        }
    }

    /// Whether it only takes jobs, which are pushed beforehand.
    pub(crate) fn takes(&self) -> bool {
        matches!(self, Self::Worker(_) | Self::Drain(_))
    }

    /// Requests in flight per connection; the defaults are in [`DEFAULTS`].
    pub(crate) fn window(&self) -> u32 {
        self.options().window.unwrap_or(1)
    }

    /// Jobs per request; `None` for the commands that carry one.
    pub(crate) fn batch(&self) -> Option<u32> {
        self.options().batch
    }
}

/// Options that some workloads have, by their ids, and which.
const ONLY: &[(&str, &[&str])] = &[
    ("batch", &["push-batch", "drain", "mixed", "open"]),
    ("owner", &["worker", "drain", "mixed", "open"]),
    ("lock_ttl_ms", &["worker", "drain", "mixed", "open"]),
    ("resume", &["worker", "drain"]),
    ("pull_timeout_ms", &["mixed", "open"]),
    ("rate", &["open"]),
    ("settle_ms", &["open"]),
];

/// Defaults that differ by workload.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("push", "window", "50"),
    ("push-batch", "window", "1"),
    ("worker", "window", "25"),
    ("drain", "window", "1"),
    ("mixed", "window", "25"),
    ("open", "window", "25"),
    ("push-batch", "batch", "100"),
    ("drain", "batch", "100"),
];

/// How to run `quick`.
#[derive(Args)]
pub(crate) struct Quick {
    /// Seconds that all of it takes.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=3600))]
    pub(crate) seconds: u32,
    /// Rounds; the table has the median, the least and the most of them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Options of the workloads.
#[derive(Args)]
pub(crate) struct Options {
    /// Seconds to work [default: 5, with at most 5000000 pushes; none with --jobs].
    #[arg(long, conflicts_with = "jobs", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Jobs to do, instead of --seconds.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,
    /// Number of connections.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: u32,
    /// Queues. A connection keeps to its share of them unless --spread is given.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) queues: u32,
    /// Every connection works on every queue.
    #[arg(long)]
    pub(crate) spread: bool,
    /// Names of the queues: this and -0, -1 and so on; a name of this run's own by default. Refused if there are
    /// such queues.
    #[arg(long)]
    pub(crate) queue_prefix: Option<String>,
    /// Go on if queues of --queue-prefix exist: the run takes their jobs, too, and removes them unless --keep is given.
    #[arg(long, requires = "queue_prefix")]
    pub(crate) use_existing: bool,
    /// Requests in flight per connection.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) window: Option<u32>,
    /// Jobs per request; without it `mixed` and `open` have one.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) batch: Option<u32>,
    /// Bytes of a job's encoded payload.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(24..=10_000_000))]
    pub(crate) payload_bytes: u32,
    /// Bytes of the payload that differ from job to job, for a server that compresses.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    pub(crate) noise_bytes: u32,
    /// Jobs pushed per second.
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
    /// How long a pull waits for a job, in milliseconds.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(0..=30_000))]
    pub(crate) pull_timeout_ms: u32,
    /// How long the workers wait at the server before the first push, in milliseconds.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=30_000))]
    pub(crate) settle_ms: u32,
    /// Lock time of owned jobs, in milliseconds.
    #[arg(long, default_value_t = 60_000)]
    pub(crate) lock_ttl_ms: u32,
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
    /// all of it unless --jobs or --seconds is given.
    #[arg(long, conflicts_with = "prefill", requires = "queue_prefix")]
    pub(crate) resume: bool,
    /// Clients that listen to the events of all of this over HTTP.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) listeners: u32,
    /// Each of them listens to one queue instead of to all.
    #[arg(long)]
    pub(crate) listen_to_one: bool,
    /// Leave the queues as they are at the end.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Give up when the server has not answered for so many seconds.
    #[arg(long, default_value_t = 30.0)]
    pub(crate) patience: f64,
    #[command(flatten)]
    pub(crate) target: Target,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value <= 86_400.0);
    value.ok_or_else(|| "must be a number above 0 and at most 86400".to_owned())
}

/// Gives each workload the options and defaults that are its own.
fn fit(workload: Command) -> Command {
    let name = workload.get_name().to_owned();
    let workload = without_void_variables(workload);
    if name == "quick" {
        return workload;
    }
    let defaults = DEFAULTS.iter().filter(|(of, ..)| *of == name);
    let workload = defaults.fold(workload, |workload, (_, id, value)| {
        workload.mut_arg(*id, |arg| arg.default_value(*value))
    });
    let others = ONLY.iter().filter(|(_, have)| !have.contains(&name.as_str()));
    others.fold(workload, |workload, (id, _)| workload.mut_arg(*id, |arg| arg.hide(true)))
}

/// The program with its workloads as [`fit`] makes them.
fn program() -> Command {
    Cli::command().mut_subcommands(fit)
}

/// Reads the command line of this process. A wrong one ends the program, with a text that says why.
pub(crate) fn read() -> Job {
    let mut command = program();
    let matches = command.get_matches_mut();
    let mut job = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli.job,
        Err(error) => error.format(&mut command).exit(),
    };
    let Some((name, said)) = matches.subcommand() else { return job };
    for (id, have) in ONLY.iter().filter(|(_, have)| name != "quick" && !have.contains(&name)) {
        if said.value_source(id) == Some(ValueSource::CommandLine) {
            let option = id.replace('_', "-");
            let text = format!("--{option} is for {}, not for {name}", have.join(", "));
            command.error(ErrorKind::UnknownArgument, text).exit();
        }
    }
    let target = match &mut job {
        Job::Quick(quick) => &mut quick.target,
        Job::Load(workload) => &mut workload.options_mut().target,
    };
    target.settle(&mut command, said);
    job
}

/// The workload of a line such as `push --window 1`, on a given server.
pub(crate) fn workload(line: &str, target: &Target) -> Result<Workload, String> {
    let words = ["corq-bench"].into_iter().chain(line.split(' '));
    let matches = program().try_get_matches_from(words).map_err(|error| error.to_string())?;
    match Cli::from_arg_matches(&matches).map_err(|error| error.to_string())?.job {
        Job::Quick(_) => Err(format!("{line} is no workload")),
        Job::Load(mut workload) => {
            workload.options_mut().target = target.clone();
            Ok(workload)
        }
    }
}
