//! Metrics: what each shard counts, the sum of it, and how clients see it. Families are named once,
//! in [`super::metrics::families`].
//!
//! A turn reads the clock once, so what happens within a turn takes no time that could be told. The
//! duration of a push, pull or ack is the time from the turn that took it in to the turn that let its
//! answer go: what an answer waits for the log. How long turns themselves are is a family of its own.
//!
//! | file | responsibility |
//! |---|---|
//! | `families` | names, kinds and help texts |

pub(super) mod families;

use super::connection::protocol::Protocol;
use super::event_loop::turn_meter::{Longest, Work};
use super::http::Limiter;
use super::metrics::families::{
    CERTIFICATE_EXPIRES, CLOCK_AHEAD, FAMILIES, HISTOGRAMS, Kind, QUANTILES, QUEUE_FAMILIES,
    TURN_FAMILIES,
};
use super::shard_mail::message::GatheredPart;
use super::shard_server::ShardServer;
use crate::protocol::msgpack::writer::Writer;
use corq_io::clock;
use corq_io::net::Connections;
use corq_io::tls::CertificateStatus;
use corq_shards::job::State;
use corq_shards::stats::latency::{EDGES_US, Timing};
use corq_shards::stats::{Census, Totals};
use std::fmt::Write;

/// Queues that are listed one by one. The others count in all sums.
pub const QUEUES_SHOWN_MAX: usize = 10_000;

/// Histograms of what the event loop of a shard times.
#[derive(Debug, Default)]
pub struct Durations {
    push: Timing,
    pull: Timing,
    ack: Timing,
    turn: Timing,
}

impl Durations {
    /// The answers to what was done in one turn were let go after so long.
    pub fn answered(&mut self, done: Totals, after_us: u64) {
        let kinds = [
            (&mut self.push, done.pushed),
            (&mut self.pull, done.pulled),
            (&mut self.ack, done.completed),
        ];
        for (timing, jobs) in kinds {
            if jobs > 0 {
                timing.record(after_us, jobs);
            }
        }
    }

    /// A turn took so long.
    pub fn turned(&mut self, length_us: u64) {
        self.turn.record(length_us, 1);
    }
}

/// Lines that tell of single queues, by family.
#[derive(Debug, Default)]
pub struct QueueLines {
    rows: usize,
    lines: [String; QUEUE_FAMILIES.len()],
}

impl QueueLines {
    /// Adds those of a queue.
    pub fn write(&mut self, queue: &str, count: impl Fn(State) -> u64) {
        self.rows += 1;
        let label = format!("{{queue=\"{}\"}}", escaped(queue));
        for ((name, _, state), lines) in QUEUE_FAMILIES.iter().zip(&mut self.lines) {
            sample(lines, name, &label, &count(*state).to_string());
        }
    }

    /// How many queues they tell of.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How long they are.
    pub fn bytes(&self) -> usize {
        self.lines.iter().map(String::len).sum()
    }
}

/// The text of all metrics, to which the lines of single queues come page by page.
#[derive(Debug)]
pub struct MetricsText {
    head: String,
    queues: [Vec<Vec<u8>>; QUEUE_FAMILIES.len()],
    tail: String,
}

impl MetricsText {
    /// Adds lines of queues. Returns their bytes.
    pub fn add_queues(&mut self, some: &QueueLines) -> usize {
        for (pieces, lines) in self.queues.iter_mut().zip(&some.lines) {
            pieces.push(lines.clone().into_bytes());
        }
        some.bytes()
    }

    /// All of it, in order.
    pub fn take_pieces(&mut self) -> Vec<Vec<u8>> {
        let mut pieces = vec![std::mem::take(&mut self.head).into_bytes()];
        for ((name, help, _), lines) in QUEUE_FAMILIES.iter().zip(&mut self.queues) {
            let mut text = String::new();
            head(&mut text, name, "gauge", help);
            pieces.push(text.into_bytes());
            pieces.append(lines);
        }
        pieces.push(std::mem::take(&mut self.tail).into_bytes());
        pieces
    }
}

/// The longest turns of one kind of work on one shard.
#[derive(Clone, Copy, Debug)]
struct TurnRow {
    shard: usize,
    work: Work,
    longest: Longest,
}

/// The metrics of one shard, or of all together.
#[derive(Clone, Debug)]
pub struct Metrics {
    turns: Vec<TurnRow>,
    numbers: [u64; FAMILIES.len()],
    timings: [Timing; HISTOGRAMS.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        let (numbers, timings) = ([0; FAMILIES.len()], Default::default());
        Self { turns: Vec::new(), numbers, timings }
    }
}

impl Metrics {
    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        for (sum, number) in self.numbers.iter_mut().zip(other.numbers) {
            *sum += number;
        }
        for (sum, timing) in self.timings.iter_mut().zip(&other.timings) {
            *sum += timing;
        }
        self.turns.extend_from_slice(&other.turns);
    }

    fn number(&self, name: &str) -> u64 {
        let place = FAMILIES.iter().position(|(family, ..)| *family == name);
        place.map_or(0, |place| self.numbers[place])
    }

    fn mean_ms(&self, name: &str) -> f64 {
        let place = HISTOGRAMS.iter().position(|row| row.family == name);
        place.map_or(0.0, |place| self.timings[place].mean_ms())
    }

    /// Writes `metrics` of `Metrics`.
    pub fn write(&self, writer: &mut Writer<'_>, memory_bytes: u64) {
        let counts = [
            ("totalPushed", self.number("jobs_pushed_total")),
            ("totalPulled", self.number("jobs_pulled_total")),
            ("totalCompleted", self.number("jobs_completed_total")),
            ("totalFailed", self.number("jobs_failed_total")),
            ("activeConnections", self.number("connections")),
        ];
        let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let measures = [
            ("avgLatencyMs", self.mean_ms("job_waiting_ms")),
            ("avgProcessingMs", self.mean_ms("job_processing_ms")),
            ("memoryUsageMb", megabytes(memory_bytes)),
            ("sqliteSizeMb", megabytes(self.number("log_disk_bytes"))),
        ];
        let longest = self.turns.iter().max_by_key(|row| row.longest.length_us);
        let longest_ms = longest.map_or(0.0, |row| row.longest.length_us as f64 / 1000.0);
        writer.map(counts.len() + measures.len() + 3);
        writer.str("longestTurnMs");
        writer.number(longest_ms);
        writer.str("longestTurnCommand");
        writer.str(longest.map_or("", |row| row.work.name()));
        for (name, count) in counts {
            writer.str(name);
            writer.uint(count);
        }
        for (name, measure) in measures {
            writer.str(name);
            // People read two decimals.
            writer.number((measure * 100.0).round() / 100.0);
        }
        writer.str("durations");
        self.write_durations(writer);
    }

    /// Quantiles of all that is timed, by what it is; of what has not happened yet there are none.
    fn write_durations(&self, writer: &mut Writer<'_>) {
        writer.map(HISTOGRAMS.len());
        for (row, timing) in HISTOGRAMS.iter().zip(&self.timings) {
            writer.str(row.field);
            let quantiles =
                QUANTILES.map(|(_, share, field)| Some((field, timing.quantile_us(share)?)));
            writer.map(quantiles.iter().flatten().count());
            for (field, us) in quantiles.into_iter().flatten() {
                writer.str(field);
                writer.number(us as f64 / 1000.0);
            }
        }
    }

    /// The text exposition of Prometheus, version 0.0.4, but for the lines of single queues.
    pub fn text(
        &self,
        shards: usize,
        memory_bytes: u64,
        uptime_ms: u64,
        tls: Option<CertificateStatus>,
    ) -> MetricsText {
        let mut text = String::new();
        let of_process: [(&str, &str, String); 4] = [
            ("shards", "Shards of the process", shards.to_string()),
            ("memory_bytes", "Resident memory of the process", memory_bytes.to_string()),
            ("uptime_seconds", "Time since the start", decimal(uptime_ms)),
            (
                CLOCK_AHEAD,
                "How far the server's time is ahead of the system's, which was set back",
                decimal(clock::ahead_ms()),
            ),
        ];
        for (name, help, value) in of_process {
            head(&mut text, name, "gauge", help);
            sample(&mut text, name, "", &value);
        }
        if let Some(standing) = tls {
            let (reloads, failed) = (standing.reloads, standing.failed_reloads);
            for (name, kind, help, value) in [
                (
                    CERTIFICATE_EXPIRES,
                    "gauge",
                    "End of the certificate, since 1970",
                    standing.expires_s,
                ),
                (
                    "tls_reloads_total",
                    "counter",
                    "Times the certificate was read again",
                    reloads.cast_signed(),
                ),
                (
                    "tls_reload_failures_total",
                    "counter",
                    "Times the certificate could not be read again, and the old one stayed",
                    failed.cast_signed(),
                ),
            ] {
                head(&mut text, name, kind, help);
                sample(&mut text, name, "", &value.to_string());
            }
        }
        for ((name, kind, help), number) in FAMILIES.iter().zip(self.numbers) {
            let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
            head(&mut text, name, kind, help);
            sample(&mut text, name, "", &number.to_string());
        }
        let begun = std::mem::take(&mut text);
        for (name, help, value) in TURN_FAMILIES {
            head(&mut text, name, "gauge", help);
            for row in &self.turns {
                let label = format!("{{shard=\"{}\",command=\"{}\"}}", row.shard, row.work.name());
                sample(&mut text, name, &label, &value(&row.longest));
            }
        }
        for (row, timing) in HISTOGRAMS.iter().zip(&self.timings) {
            head(&mut text, row.family, "histogram", row.help);
            write_histogram(&mut text, row.family, timing);
            let summary = row.summary();
            head(&mut text, &summary, "summary", &format!("{}; since the start", row.help));
            write_summary(&mut text, &summary, timing);
        }
        MetricsText { head: begun, queues: Default::default(), tail: text }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail; so it is below.
    let _ = writeln!(text, "# HELP corq_{name} {help}.\n# TYPE corq_{name} {kind}");
}

fn sample(text: &mut String, name: &str, labels: &str, value: &str) {
    let _ = writeln!(text, "corq_{name}{labels} {value}");
}

/// Thousandths as a decimal number, without zeros that say nothing.
fn decimal(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The value of a label, as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn write_histogram(text: &mut String, name: &str, timing: &Timing) {
    let buckets = timing.buckets();
    let bucket = format!("{name}_bucket");
    let mut so_far = 0;
    for (place, count) in buckets.counts.iter().enumerate() {
        so_far += count;
        let edge = EDGES_US.get(place).map_or("+Inf".to_string(), |&edge| decimal(edge));
        sample(text, &bucket, &format!("{{le=\"{edge}\"}}"), &so_far.to_string());
    }
    write_sum(text, name, timing);
}

fn write_summary(text: &mut String, name: &str, timing: &Timing) {
    for (label, share, _) in QUANTILES {
        if let Some(us) = timing.quantile_us(share) {
            sample(text, name, &format!("{{quantile=\"{label}\"}}"), &decimal(us));
        }
    }
    write_sum(text, name, timing);
}

fn write_sum(text: &mut String, name: &str, timing: &Timing) {
    sample(text, &format!("{name}_sum"), "", &decimal(timing.buckets().sum_us));
    sample(text, &format!("{name}_count"), "", &timing.count().to_string());
}

impl ShardServer {
    /// This shard's part of `Metrics` and `Prometheus`.
    pub(super) fn share_of_metrics(&self, conns: &Connections) -> GatheredPart {
        let shard = &self.engine.shard;
        let (totals, held) = (shard.totals(), shard.holdings());
        let (net, log) = (self.net, self.engine.journal.log.counters());
        let (segments, spares) = self.engine.journal.log.segments();
        // One shard speaks for all.
        let of_process = |number: u64| if self.me == 0 { number } else { 0 };
        let live = shard.needed_bytes();
        let of_webhooks = self.load_of_webhooks();
        let subscribers = self.subscribers.counts();
        let numbers = [
            totals.pushed,
            totals.pulled,
            totals.completed,
            totals.failed,
            totals.dlq_retried,
            totals.dlq_dropped,
            held.jobs as u64,
            held.queues as u64,
            held.leases as u64,
            held.waiters as u64,
            held.timers as u64,
            held.unique_keys as u64,
            held.groups as u64,
            held.group_settings,
            held.groups_lingering,
            held.groups_forgotten,
            held.minutes as u64,
            held.unreported as u64,
            held.unreported_dropped,
            self.open_flows.len() as u64,
            self.child_patches.len() as u64,
            held.crons as u64,
            self.crons.backlog.len() as u64,
            self.crons.backlog.bytes() as u64,
            shard.notices_waiting(),
            held.scheduled_put_off,
            held.attended as u64,
            self.workers.len() as u64,
            self.workers.bytes() as u64,
            self.workers.crowded_out(),
            self.workers.presence.waiting() as u64,
            shard.webhooks().len() as u64,
            of_webhooks[0],
            of_webhooks[1],
            of_webhooks[2],
            of_webhooks[3],
            of_webhooks[4],
            of_webhooks[5],
            of_webhooks[6],
            conns.len() as u64,
            of_process(self.permits.most() as u64),
            net.accepted,
            net.rejected + conns.turned_away(),
            net.given_away - self.migrations.seated(),
            conns.tls_connections() as u64,
            net.handshakes,
            net.resumptions,
            net.handshakes_failed,
            net.handshakes_late,
            conns.handshake_bytes() as u64,
            net.handshakes_crowded_out,
            net.not_tls,
            self.http.counters.handshakes,
            net.truncated,
            net.corrupt,
            net.accept_pauses,
            net.drains_cut,
            self.sessions.count(Protocol::Http) as u64,
            self.http.counters.requests,
            self.http.counters.timeouts,
            self.http.counters.cross_origin,
            self.http.counters.limited,
            self.http.limiter.as_ref().map_or(0, Limiter::len) as u64,
            self.http.bodies.bytes() as u64,
            self.http.counters.crowded_out,
            self.receive_memory.bytes() as u64,
            self.unauthenticated_memory.bytes() as u64,
            self.frames_crowded_out,
            self.command_bytes() as u64,
            self.deadlines.tokens,
            self.deadlines.frames,
            self.long_refused,
            conns.output_bytes() as u64,
            self.send_memory.crowded_out(),
            net.received_bytes,
            net.sent_bytes,
            net.buffers_exhausted,
            subscribers.sse,
            subscribers.websocket,
            subscribers.events,
            subscribers.lost,
            self.subscribers.waiting_bytes(conns) as u64,
            net.late,
            self.tasks.len() as u64,
            self.large_replies.in_transit_bytes() as u64,
            self.large_replies.begun_bytes() as u64,
            self.cold.bytes() as u64,
            self.shared_values.bytes() as u64,
            self.shared_values.reads(),
            self.transcodings.len() as u64,
            self.transcodings.slices(),
            self.transcodings.writing_bytes() as u64,
            self.large_replies.len() as u64,
            self.outbox.stuck() as u64,
            log.records,
            log.blocks,
            log.block_bytes,
            log.syncs,
            log.cold_reads,
            log.segment_failures,
            log.held_writes,
            self.compaction.scan_failures(),
            segments,
            spares,
            live,
            self.engine.journal.log.used_bytes().saturating_sub(live),
            log.dropped,
            log.dropped_bytes,
            self.compaction.rewritten_bytes,
            shard.unknown_job_records(),
            u64::from(self.engine.journal.is_full(&shard.space_forecast())),
            u64::from(self.said_lack.is_some()),
            of_process(u64::from(self.data_presence.is_gone())),
            of_process(self.data_presence.looks()),
            self.compaction.refused_pushes,
            self.compaction.evicted_jobs,
            u64::from(self.engine.journal.pressure.stalled),
            self.stalled_messages.len() as u64,
            log.disk_bytes,
            self.engine.journal.log.unwritten_bytes(),
            self.engine.journal.log.memory_bytes() as u64,
            self.fair_shares.waiting() as u64,
        ];
        let Durations { push, pull, ack, turn } = &self.durations;
        let timings = shard.timings();
        let timings =
            [push, pull, ack, &timings.waiting, &timings.processing, turn].map(Timing::clone);
        let shard = self.me;
        let turns = self.meter.longest().map(|(work, longest)| TurnRow { shard, work, longest });
        let turns = turns.collect();
        GatheredPart::Metrics(Box::new(Metrics { turns, numbers, timings }))
    }

    /// Jobs by state, totals and rates of this shard.
    pub(super) fn share_of_stats(&self) -> Census {
        let mut census = self.engine.shard.census();
        let (pushed, pulled) = self.rates.per_second(self.now_ms, census.totals);
        census.pushed_per_second = pushed;
        census.pulled_per_second = pulled;
        census
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        let mut metrics = Metrics::default();
        metrics.numbers[0] = 7;
        let mut timing = Timing::default();
        timing.record(90, 2);
        timing.record(2_400, 1);
        timing.record(90_000_000, 1);
        metrics.timings[0] = timing;
        metrics
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let mut text = metrics().text(2, 4096, 1_500, None);
        let mut lines = QueueLines::default();
        let counts = QUEUE_FAMILIES.iter().map(|(_, _, state)| *state).collect::<Vec<_>>();
        let count = |state| counts.iter().position(|of| *of == state).map_or(0, |at| at as u64 + 1);
        lines.write("we\"ird\\na\nme", count);
        assert_eq!((lines.rows(), text.add_queues(&lines)), (1, lines.bytes()));
        let text = String::from_utf8(text.take_pieces().concat()).unwrap();
        for line in [
            "# HELP corq_jobs_pushed_total Jobs pushed since the start.",
            "# TYPE corq_jobs_pushed_total counter",
            "corq_jobs_pushed_total 7",
            "# TYPE corq_queue_jobs_dlq gauge",
            r#"corq_queue_jobs_waiting{queue="we\"ird\\na\nme"} 1"#,
            r#"corq_queue_jobs_dlq{queue="we\"ird\\na\nme"} 6"#,
            "# TYPE corq_push_duration_ms histogram",
            r#"corq_push_duration_ms_bucket{le="0.1"} 2"#,
            r#"corq_push_duration_ms_bucket{le="1"} 2"#,
            r#"corq_push_duration_ms_bucket{le="2.5"} 3"#,
            r#"corq_push_duration_ms_bucket{le="60000"} 3"#,
            r#"corq_push_duration_ms_bucket{le="+Inf"} 4"#,
            "corq_push_duration_ms_sum 90002.58",
            "corq_push_duration_ms_count 4",
            "# TYPE corq_push_duration_quantiles_ms summary",
            r#"corq_push_duration_quantiles_ms{quantile="0.5"} 0.09"#,
            r#"corq_push_duration_quantiles_ms{quantile="0.99"} 90177.535"#,
            "corq_push_duration_quantiles_ms_sum 90002.58",
            "corq_push_duration_quantiles_ms_count 4",
            "corq_pull_duration_quantiles_ms_count 0",
            "corq_uptime_seconds 1.5",
        ] {
            assert!(text.lines().any(|it| it == line), "no line {line} in\n{text}");
        }
        let types = text.lines().filter(|line| line.starts_with("# TYPE"));
        let names: std::collections::BTreeSet<&str> = types.clone().collect();
        assert_eq!(names.len(), types.count(), "no family stands twice");
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn shares_add_up() {
        let mut sum = metrics();
        sum.add(&metrics());
        assert_eq!(sum.number("jobs_pushed_total"), 14);
    }
}
