//! The thread that posts spans, as this server uses it: from settings to the thread, and what is logged about it.

use crate::config::Config;
use crate::otlp::answer::rejected;
use crate::otlp::endpoint;
use crate::otlp::message::Resource;
use crate::otlp::span::Step;
use corq_io::batch_post::{self, BatchPoster, Report};
use std::io;
use std::time::{Duration, Instant};

/// Steps of one post, and their memory.
const ITEMS_MAX: usize = 512;
const ITEMS_BYTES_MAX: usize = 1 << 20;

/// Steps that may wait for the thread, and the memory of those that wait or are on their way.
const WAITING_MAX: usize = 32_768;
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Attempts for the same spans, and when the second follows the first.
const ATTEMPTS_MAX: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Starts the thread, if there is somewhere to send spans.
pub fn start(config: &Config) -> io::Result<Option<BatchPoster<Step>>> {
    let Some(endpoint) = config.otlp_endpoint() else { return Ok(None) };
    let target = endpoint::target(endpoint).map_err(io::Error::other)?;
    let origin = target.origin().to_owned();
    let resource = Resource {
        service_name: config.otlp_service_name.clone(),
        instance_id: uuid::Uuid::new_v4().to_string(),
    };
    tracing::info!("spans of sampled jobs go to {origin}");
    let poster = BatchPoster::start(batch_post::Config {
        target,
        headers: config.otlp_headers(),
        content_type: "application/x-protobuf",
        timeout: Duration::from_millis(config.otlp_timeout_ms),
        linger: Duration::from_millis(config.otlp_interval_ms),
        items_max: ITEMS_MAX,
        items_bytes_max: ITEMS_BYTES_MAX,
        waiting_max: WAITING_MAX,
        waiting_bytes_max: WAITING_BYTES_MAX,
        attempts_max: ATTEMPTS_MAX,
        retry_delay: RETRY_DELAY,
        render: Box::new(move |steps| resource.request(steps)),
        rejected,
        report: Box::new(move |report| say(&origin, report)),
    })?;
    Ok(Some(poster))
}

/// Ends it. What waits is posted once, until `deadline`.
pub fn stop(poster: Option<BatchPoster<Step>>, deadline: Instant) {
    match poster.map_or(0, |poster| poster.stop(deadline)) {
        0 => {}
        lost => tracing::warn!("{lost} spans were not exported before the stop"),
    }
}

fn say(origin: &str, report: &Report<'_>) {
    match report {
        Report::Failing { units, reason } => {
            tracing::warn!("{units} spans for {origin} were given up: {reason}");
        }
        Report::Working => tracing::info!("{origin} takes spans again"),
        Report::Rejected { units, reason } => {
            tracing::warn!("{origin} has refused {units} spans of a post: {reason}");
        }
        Report::NoCertificates { errors } => tracing::error!(
            "the system has no certificates, so no span can be exported by HTTPS: {}",
            errors.join(", "),
        ),
    }
}
