//! `push`: one job, or with `--bulk` one for each line of JSON.

use std::path::PathBuf;

use clap::Args;

use super::client::Client;
use super::context::Context;
use super::failure::{Failure, complain};
use super::input;
use super::job_options::{Options, Repeat};
use super::request::{Fields, Request};
use crate::api::commands::Op;

/// Arguments of `push`.
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
    let mut client = context.client()?;
    let reply = client.call(request)?;
    context.show(&reply, |out, reply| out.line(reply.get("id").text().unwrap_or_default()))?;
    match reply.value().get("id").text().filter(|_| push.options.has_dependencies()) {
        Some(id) => tell_of_dead(&mut client, id),
        None => Ok(()),
    }
}

/// A dependency in the dead-letter queue is accepted, since it may be retried, and keeps its job waiting until then.
fn tell_of_dead(client: &mut Client, id: &str) -> Result<(), Failure> {
    let told = client.call(Request::on_job(Op::Explain, id))?;
    let reasons = told.value().get("data").get("reasons");
    let waits = reasons.items().find(|why| why.get("code").text() == Some("dependencies"));
    let jobs = waits.into_iter().flat_map(|waits| waits.get("jobs").items());
    let dead = jobs.filter(|job| job.get("state").text() == Some("failed"));
    let dead: Vec<&str> = dead.filter_map(|job| job.get("id").text()).collect();
    if !dead.is_empty() {
        complain(&format!(
            "{id} depends on {}, in the dead-letter queue, and waits until that is retried and completed",
            dead.join(", ")
        ));
    }
    Ok(())
}
