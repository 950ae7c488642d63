//! `push`: one job, or with `--bulk` one for each line of JSON.

use std::path::PathBuf;

use clap::Args;

use super::bulk;
use super::context::Context;
use super::failure::Failure;
use super::input;
use super::request::{Fields, Request};
use super::words::milliseconds;
use crate::api::commands::Op;

/// What `push` takes.
#[derive(Args, Debug)]
pub struct Push {
    /// Queue to push to
    pub queue: String,
    /// Payload: JSON, @file, or - for standard input (also when it is left out)
    #[arg(allow_negative_numbers = true, conflicts_with = "bulk")]
    data: Option<String>,
    /// Push one job per line of a file of JSON lines, - for standard input: the line is the payload
    #[arg(long, value_name = "FILE")]
    pub bulk: Option<PathBuf>,
    /// Each line of --bulk is a whole job with `data` and its other fields, named as in the protocol
    #[arg(long, requires = "bulk", conflicts_with_all = ["Options", "data"])]
    pub jobs: bool,
    #[command(flatten)]
    pub options: Options,
}

/// The options of a job.
#[derive(Args, Debug)]
#[group(id = "Options", multiple = true)]
pub struct Options {
    /// Name of the job, besides its payload
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Higher is delivered first
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    priority: Option<i64>,
    /// Delay before delivery (milliseconds, or 30s, 5m, 1h30m ...)
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    delay: Option<i64>,
    /// Attempts before the job goes to the dead-letter queue
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    max_attempts: Option<i64>,
    /// Base of the exponential wait between attempts
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    backoff: Option<i64>,
    /// Time to live from creation while the job is not active
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    ttl: Option<i64>,
    /// Timeout of one attempt
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    timeout: Option<i64>,
    /// Deduplication key within the queue
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Custom id; pushing it again returns the first job
    #[arg(long, value_name = "ID", conflicts_with = "bulk")]
    job_id: Option<String>,
    /// A label; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Group of the job
    #[arg(long, value_name = "GROUP")]
    group_id: Option<String>,
    /// Refuse the job if its group has this many waiting jobs
    #[arg(long, requires = "group_id", allow_negative_numbers = true, value_name = "N")]
    group_max_size: Option<i64>,
    /// Newest first within its priority
    #[arg(long)]
    lifo: bool,
    /// Remove job and result on completion
    #[arg(long)]
    remove_on_complete: bool,
    /// Remove the job instead of moving it to the dead-letter queue
    #[arg(long)]
    remove_on_fail: bool,
    /// Reply after an fsync
    #[arg(long)]
    durable: bool,
    /// Id of a job that must complete first; may be given several times
    #[arg(long, value_name = "ID")]
    depends_on: Vec<String>,
    /// Push the next run this long after the due time of each run
    #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
    repeat_every: Option<i64>,
    /// Total number of runs
    #[arg(long, requires = "repeat_every", allow_negative_numbers = true, value_name = "N")]
    repeat_limit: Option<i64>,
}

impl Options {
    /// Writes those that were given into a job.
    pub fn write(&self, fields: &mut Fields) {
        fields.text_if("name", self.name.as_deref());
        fields.integer_if("priority", self.priority);
        fields.integer_if("delay", self.delay);
        fields.integer_if("maxAttempts", self.max_attempts);
        fields.integer_if("backoff", self.backoff);
        fields.integer_if("ttl", self.ttl);
        fields.integer_if("timeout", self.timeout);
        fields.text_if("uniqueKey", self.unique_key.as_deref());
        fields.text_if("jobId", self.job_id.as_deref());
        fields.texts_if("tags", &self.tags);
        fields.text_if("groupId", self.group_id.as_deref());
        fields.integer_if("groupMaxSize", self.group_max_size);
        fields.flag_if("lifo", self.lifo);
        fields.flag_if("removeOnComplete", self.remove_on_complete);
        fields.flag_if("removeOnFail", self.remove_on_fail);
        fields.flag_if("durable", self.durable);
        fields.texts_if("dependsOn", &self.depends_on);
        if let Some(every) = self.repeat_every {
            let mut repeat = Fields::of_repeat();
            repeat.integer("every", every);
            repeat.integer_if("limit", self.repeat_limit);
            fields.raw("repeat", &repeat.finish());
        }
    }
}

/// Pushes; people get the id alone, so that it can be used in a script.
pub fn run(context: &mut Context, push: &Push) -> Result<(), Failure> {
    if let Some(file) = &push.bulk {
        return bulk::run(context, push, file);
    }
    let data = input::payload_or_stdin("data", push.data.as_deref())?;
    let request = Request::on_queue(Op::Push, &push.queue).with(|fields| {
        fields.raw("data", &data);
        push.options.write(fields);
    });
    context.ask(request, |out, reply| out.line(reply.get("id").text().unwrap_or_default()))
}
