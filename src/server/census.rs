//! The jobs of the server as fields of an answer.
//!
//! A ground type: it imports nothing of the server.

use crate::protocol::msgpack::writer::MapWriter;
use corq_shards::stats::Census;

/// Writes how many jobs are in which state, what was done with them, and how fast. `failed` is what the answer calls so: jobs
/// in dead-letter queues, or attempts.
pub(super) fn write_totals(map: &mut MapWriter<'_>, census: &Census, failed: u64, uptime_ms: u64) {
    for (name, count) in [
        ("waiting", census.waiting),
        ("active", census.active),
        ("delayed", census.delayed),
        ("failed", failed),
        ("completed", census.completed),
        ("waitingChildren", census.waiting_children),
        ("uptime", uptime_ms),
        ("totalPushed", census.totals.pushed),
        ("totalPulled", census.totals.pulled),
        ("totalCompleted", census.totals.completed),
        ("totalFailed", census.totals.failed),
    ] {
        map.key(name).uint(count);
    }
    map.key("pushPerSec").number(census.per_second.pushed.round());
    map.key("pullPerSec").number(census.per_second.pulled.round());
}
