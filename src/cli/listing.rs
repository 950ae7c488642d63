//! Which jobs of a queue are listed, and the request for them.

use super::request::{Fields, Request};
use crate::api::commands::Op;
use clap::Args;

/// The queue that a command is about.
#[derive(Args, Debug)]
pub struct Name {
    /// Name of the queue
    pub queue: String,
}

/// `queue jobs`.
#[derive(Args, Debug)]
pub struct Jobs {
    #[command(flatten)]
    pub name: Name,
    /// Only jobs in these states, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "STATES")]
    pub state: Vec<String>,
    /// Maximum number of jobs [default: 100]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub limit: Option<i64>,
    /// Number of jobs to skip
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub offset: Option<i64>,
    /// Follow: add a row for every change of a job
    #[arg(long, short)]
    pub follow: bool,
}

/// The request for the jobs of a queue.
pub fn listing(jobs: &Jobs) -> Request {
    Request::on_queue(Op::GetJobs, &jobs.name.queue).with(|fields| {
        states(fields, &jobs.state);
        fields.integer_if("limit", jobs.limit);
        fields.integer_if("offset", jobs.offset);
    })
}

/// Writes the states to ask for. A single state goes in a field of its own, so that a refusal names it as it was given.
pub fn states(fields: &mut Fields, states: &[String]) {
    match states {
        [one] => fields.text("state", one),
        several => fields.texts_if("state", several),
    }
}
