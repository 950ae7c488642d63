//! `import`: jobs and schedules of other job queues become jobs and schedules here. Reading changes nothing in the source;
//! `--remove` takes each job away there once it is here. A file per source, each of which gives `model::ForeignJob`s to the
//! `sink`, which pushes them and reports.
//!
//! | file | responsibility |
//! |---|---|
//! | `asynq` | the Redis of asynq |
//! | `beanstalkd` | beanstalkd |
//! | `bullmq` | the Redis of BullMQ |
//! | `faktory` | Faktory |
//! | `model` | jobs and schedules as all sources give them |
//! | `ndjson` | lines of JSON, as `export` writes them |
//! | `options` | the options of all sources |
//! | `place` | the address of a source |
//! | `protobuf` | protobuf, as far as it is needed |
//! | `redis` | a client of Redis |
//! | `report` | what became of each field and job |
//! | `served` | a running bunqueue server, or another corq |
//! | `sidekiq` | the Redis of Sidekiq and of Faktory |
//! | `sink` | pushes to corq |

mod asynq;
mod beanstalkd;
mod bullmq;
mod faktory;
pub mod model;
pub mod ndjson;
mod options;
mod place;
mod protobuf;
mod redis;
mod report;
pub mod served;
mod sidekiq;
mod sink;

use std::path::PathBuf;

use clap::Subcommand;

use self::asynq::Asynq;
use self::beanstalkd::Beanstalkd;
use self::bullmq::BullMq;
use self::faktory::Faktory;
use self::options::Options;
use self::served::Served;
use self::sidekiq::{Dialect, JsonJobs};
use self::sink::Sink;
use super::context::Context;
use super::failure::Failure;

/// Where jobs come from.
#[allow(clippy::doc_markdown, reason = "help texts are plain text")]
#[derive(Subcommand, Debug)]
pub enum Import {
    /// From the Redis of `BullMQ`
    Bullmq {
        #[arg(
            help = "redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss:// over TLS, redis+unix:///PATH[?db=N]"
        )]
        url: String,
        /// Prefix of its keys
        #[arg(long, default_value = "bull", value_name = "PREFIX")]
        key_prefix: String,
        #[command(flatten)]
        options: Options,
    },
    /// From the Redis of Sidekiq, with the schedules of sidekiq-cron
    Sidekiq {
        /// As of bullmq
        url: String,
        /// Namespace of its keys
        #[arg(long, value_name = "NAME")]
        namespace: Option<String>,
        #[command(flatten)]
        options: Options,
    },
    /// From the Redis of asynq
    Asynq {
        /// As of bullmq
        url: String,
        #[command(flatten)]
        options: Options,
    },
    /// From a running bunqueue server, or another corq
    Bunqueue {
        #[arg(help = "tcp://[:TOKEN@]HOST[:PORT], tcp+tls:// over TLS, tcp+unix:///PATH")]
        url: String,
        #[command(flatten)]
        options: Options,
    },
    /// From beanstalkd, which gives its jobs only to those who take them: --remove
    Beanstalkd {
        #[arg(help = "tcp://HOST[:PORT], tcp+unix:///PATH")]
        url: String,
        #[command(flatten)]
        options: Options,
    },
    /// From the Redis below Faktory, or from Faktory itself, which gives jobs only to those who take them: --remove
    Faktory {
        #[arg(
            help = "redis+unix:///var/lib/faktory/db/redis.sock, or tcp://[:PASSWORD@]HOST[:PORT], tcp+tls://"
        )]
        url: String,
        #[command(flatten)]
        options: Options,
    },
    /// From lines of JSON, as 'corq export' writes them
    Ndjson {
        /// File, - for standard input
        file: PathBuf,
        #[command(flatten)]
        options: Options,
    },
}

impl Import {
    fn options(&self) -> (&Options, &'static str) {
        match self {
            Self::Bullmq { options, .. } => (options, "bullmq:"),
            Self::Sidekiq { options, .. } => (options, "sidekiq:"),
            Self::Asynq { options, .. } => (options, "asynq:"),
            Self::Bunqueue { options, .. } | Self::Ndjson { options, .. } => (options, ""),
            Self::Beanstalkd { options, .. } => (options, "beanstalkd:"),
            Self::Faktory { options, .. } => (options, "faktory:"),
        }
    }
}

/// Carries one out. What was done before an error is reported as well.
pub fn run(context: &mut Context, import: &Import) -> Result<(), Failure> {
    let (options, prefix) = import.options();
    let client = if options.dry_run { None } else { Some(context.client()?) };
    let takes_active = matches!(import, Import::Ndjson { .. });
    let mut sink = Sink::new(options, prefix, takes_active, client);
    let read = read(context, import, &mut sink);
    let finished = sink.finish();
    let report = sink.report;
    let read = read.and(finished.map(drop));
    if read.is_err() && report.jobs() == 0 {
        return read;
    }
    if context.target.json {
        context.out.json(&report.encoded())?;
    } else {
        report.show(&mut context.out)?;
    }
    read?;
    match report.refusals() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!(
            "{count} jobs or schedules were refused; the rest is moved"
        ))),
    }
}

fn read(context: &Context, import: &Import, sink: &mut Sink<'_>) -> Result<(), Failure> {
    let authority = sink.options.source_ca.as_ref();
    match import {
        Import::Bullmq { url, key_prefix, .. } => {
            BullMq::open(url, key_prefix, authority)?.read(sink)
        }
        Import::Sidekiq { url, namespace, .. } => {
            JsonJobs::open(url, Dialect::Sidekiq, namespace.as_deref(), authority)?.read(sink)
        }
        Import::Asynq { url, .. } => Asynq::open(url, authority)?.read(sink),
        Import::Bunqueue { url, .. } => Served::open(url, &context.target)?.read(sink),
        Import::Beanstalkd { url, .. } => Beanstalkd::open(url)?.read(sink),
        Import::Faktory { url, .. } if url.starts_with("redis") => {
            JsonJobs::open(url, Dialect::Faktory, None, authority)?.read(sink)
        }
        Import::Faktory { url, .. } => Faktory::open(url, authority)?.read(sink),
        Import::Ndjson { file, .. } => {
            if sink.options.remove {
                return Err(Failure::Usage("--remove is not for a file".to_owned()));
            }
            ndjson::read(file, sink)
        }
    }
}
