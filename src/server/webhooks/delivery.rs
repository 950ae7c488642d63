//! The threads that deliver to webhooks, as this server uses them: from settings to threads, and what
//! is logged about them.

use crate::config::Config;
use corq_io::webhook::{self, Hook, Pool, Report};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads that post, unless there are too few descriptors for so many. Half of them at most are with receivers that have yet to show that they answer.
pub const THREADS_MAX: usize = 64;

/// Events that may wait for one webhook.
pub const BACKLOG_MAX: usize = 10_000;

/// Memory of all events that wait.
pub const BACKLOG_BYTES_MAX: usize = 256 << 20;

/// Starts what delivers, from up to so many threads.
pub fn start(config: &Config, threads_max: usize) -> io::Result<Pool> {
    Pool::start(webhook::Config {
        attempts_max: config.webhook_max_retries,
        retry_delay: Duration::from_millis(config.webhook_retry_delay_ms),
        timeout: Duration::from_millis(config.webhook_timeout_ms),
        threads_max,
        posts_max: config.webhook_concurrency as usize,
        backlog_max: BACKLOG_MAX,
        backlog_bytes_max: BACKLOG_BYTES_MAX,
        allow_private: config.webhook_allow_private,
        lookup: None,
        report: Arc::new(say),
    })
}

/// Ends it. What is under way and what waits for receivers that answer has until `deadline`.
pub fn stop(pool: Pool, deadline: Instant) {
    match pool.stop(deadline) {
        0 => {}
        lost => tracing::warn!("{lost} events for webhooks were not delivered before the stop"),
    }
}

fn name(hook: &Hook) -> String {
    format!("webhook {} ({})", uuid::Uuid::from_u128(hook.id()), hook.target().origin())
}

fn say(report: &Report<'_>) {
    match report {
        Report::Abandoned { hook, notice, attempts, reason } => tracing::warn!(
            "{}: {} of job {} was given up after {attempts} attempts: {reason}",
            name(hook),
            notice.event(),
            notice.job(),
        ),
        Report::Overflow { hook } => tracing::warn!(
            "{} has {BACKLOG_MAX} events before it, or most of the memory for them: its oldest go",
            name(hook),
        ),
        Report::Refused { events } => {
            tracing::warn!("{events} events for webhooks were lost: they came faster than they go");
        }
        Report::NoCertificates { errors } => tracing::error!(
            "the system has no certificates, so no webhook can be told by HTTPS: {}",
            errors.join(", "),
        ),
        Report::NoThread { error } => {
            tracing::error!("the system gives no thread for webhooks: {error}");
        }
    }
}
