//! `push`: one job, or with `--bulk` one for each line of JSON.

use std::path::PathBuf;

use clap::Args;

use super::context::Context;
use super::failure::Failure;
use super::input;
use super::job_options::{Options, Repeat};
use super::request::{Fields, Request};
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
    #[arg(long, requires = "bulk", conflicts_with_all = ["Options", "Repeat", "data"])]
    pub jobs: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    repeat: Repeat,
}

impl Push {
    /// Writes the options that were given into a job.
    pub fn write_options(&self, fields: &mut Fields) {
        self.options.write(fields);
        self.repeat.write(fields);
    }
}

/// Pushes one job; people get the id alone, so that it can be used in a script.
pub fn run(context: &mut Context, push: &Push) -> Result<(), Failure> {
    let data = input::payload_or_stdin("data", push.data.as_deref(), None)?;
    let request = Request::on_queue(Op::Push, &push.queue).with(|fields| {
        fields.raw("data", &data);
        push.write_options(fields);
    });
    context.ask(request, |out, reply| out.line(reply.get("id").text().unwrap_or_default()))
}
