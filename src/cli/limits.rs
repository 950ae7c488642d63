//! `rate-limit` and `concurrency`: how fast a queue gives out its jobs, and how many at a time.

use clap::Subcommand;

use super::context::Context;
use super::failure::Failure;
use super::request::Request;
use super::value::Value;
use super::words::{self, milliseconds};
use crate::api::commands::Op;

/// Commands on how many jobs of a queue start in a time.
#[derive(Subcommand, Debug)]
pub enum RateLimit {
    /// Set the limit of a queue
    Set {
        /// Name of the queue
        queue: String,
        /// Jobs per second, or per the time of --per
        #[arg(allow_negative_numbers = true)]
        limit: i64,
        /// Per this time (milliseconds, or 30s, 5m ...)
        #[arg(long, value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME", default_value = "1s")]
        per: i64,
        /// Remove the limit after this time
        #[arg(long = "for", value_parser = milliseconds, allow_negative_numbers = true, value_name = "TIME")]
        ttl: Option<i64>,
    },
    /// Show the limit of a queue
    Show {
        /// Name of the queue
        queue: String,
    },
    /// Remove the limit of a queue
    Clear {
        /// Name of the queue
        queue: String,
    },
}

/// Commands on how many jobs of a queue are active at a time.
#[derive(Subcommand, Debug)]
pub enum Concurrency {
    /// Set the limit of a queue
    Set {
        /// Name of the queue
        queue: String,
        /// Active jobs at a time
        #[arg(allow_negative_numbers = true)]
        limit: i64,
    },
    /// Show the limit of a queue
    Show {
        /// Name of the queue
        queue: String,
    },
    /// Remove the limit of a queue
    Clear {
        /// Name of the queue
        queue: String,
    },
}

/// A limit on the jobs that start in a time.
pub fn rate(context: &mut Context, limit: &RateLimit) -> Result<(), Failure> {
    match limit {
        RateLimit::Set { queue, limit, per, ttl } => {
            let request = Request::on_queue(Op::RateLimit, queue).with(|fields| {
                fields.integer("limit", *limit);
                fields.integer("duration", *per);
                fields.integer_if("ttl", *ttl);
            });
            let end = ttl.map(|ttl| format!(", for {}", words::duration(ttl))).unwrap_or_default();
            context.tell(request, &format!("{queue}: at most {limit} jobs {}{end}", per_time(*per)))
        }
        RateLimit::Show { queue } => show(context, queue, |limits| {
            let rate = limits.get("rateLimit");
            let (Some(most), Some(span_ms)) =
                (rate.get("max").integer(), rate.get("duration").integer())
            else {
                return "no limit on jobs per second".to_owned();
            };
            format!("at most {most} jobs {}", per_time(span_ms))
        }),
        RateLimit::Clear { queue } => {
            let done = format!("{queue}: no limit on jobs per second");
            context.tell(Request::on_queue(Op::RateLimitClear, queue), &done)
        }
    }
}

/// A limit on active jobs.
pub fn concurrency(context: &mut Context, limit: &Concurrency) -> Result<(), Failure> {
    match limit {
        Concurrency::Set { queue, limit } => {
            let request = Request::on_queue(Op::SetConcurrency, queue)
                .with(|fields| fields.integer("limit", *limit));
            context.tell(request, &format!("{queue}: at most {limit} active jobs at a time"))
        }
        Concurrency::Show { queue } => show(context, queue, |limits| {
            match (limits.get("concurrencyLimit").integer(), limits.get("maxed").is_true()) {
                (None, _) => "no limit on active jobs at a time".to_owned(),
                (Some(most), true) => {
                    format!("at most {most} active jobs at a time, all of them active now")
                }
                (Some(most), false) => format!("at most {most} active jobs at a time"),
            }
        }),
        Concurrency::Clear { queue } => {
            let done = format!("{queue}: no limit on active jobs at a time");
            context.tell(Request::on_queue(Op::ClearConcurrency, queue), &done)
        }
    }
}

/// Shows what holds for a queue, in a sentence about its limits.
fn show(
    context: &mut Context,
    queue: &str,
    told: impl FnOnce(Value<'_>) -> String,
) -> Result<(), Failure> {
    context.ask(Request::on_queue(Op::GetQueueLimits, queue), |out, reply| {
        out.line(&format!("{queue}: {}", told(reply.get("data").get("limits"))))
    })
}

fn per_time(span_ms: i64) -> String {
    match span_ms {
        1000 => "per second".to_owned(),
        _ => format!("per {}", words::duration(span_ms)),
    }
}
