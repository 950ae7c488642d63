//! `rate-limit` and `concurrency`: how fast a queue gives out its jobs, and how many at a time.

use clap::Subcommand;

use super::context::Context;
use super::failure::Failure;
use super::request::Request;
use crate::api::commands::Op;

/// Commands on a limit.
#[derive(Subcommand, Debug)]
pub enum Limit {
    /// Set the limit of a queue
    Set {
        /// Name of the queue
        queue: String,
        /// Jobs per second for rate-limit, active jobs at a time for concurrency
        #[arg(allow_negative_numbers = true)]
        limit: i64,
    },
    /// Remove the limit of a queue
    Clear {
        /// Name of the queue
        queue: String,
    },
}

/// A limit on jobs per second.
pub fn rate(context: &mut Context, limit: &Limit) -> Result<(), Failure> {
    run(context, limit, (Op::RateLimit, Op::RateLimitClear), "jobs per second")
}

/// A limit on active jobs.
pub fn concurrency(context: &mut Context, limit: &Limit) -> Result<(), Failure> {
    run(context, limit, (Op::SetConcurrency, Op::ClearConcurrency), "active jobs at a time")
}

fn run(
    context: &mut Context,
    limit: &Limit,
    (set, clear): (Op, Op),
    of_what: &str,
) -> Result<(), Failure> {
    match limit {
        Limit::Set { queue, limit } => {
            let request =
                Request::on_queue(set, queue).with(|fields| fields.integer("limit", *limit));
            context.tell(request, &format!("{queue}: at most {limit} {of_what}"))
        }
        Limit::Clear { queue } => context
            .tell(Request::on_queue(clear, queue), &format!("{queue}: no limit on {of_what}")),
    }
}
