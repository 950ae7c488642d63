//! Metrics: what each shard counts, the sum of it, and how clients see it. Families are named once,
//! in [`FAMILIES`].
//!
//! A turn reads the clock once, so what happens within a turn takes no time that could be told. The
//! duration of a push, pull or ack is the time from the turn that took it in to the turn that let its
//! answer go: what an answer waits for the log. How long turns themselves are is a family of its own.

use super::core::Core;
use super::http::Limiter;
use super::message::Share;
use super::meter::{Longest, Work};
use super::session::Speech;
use crate::protocol::write::Writer;
use corq_io::clock;
use corq_io::net::Connections;
use corq_io::tls::Standing;
use corq_shards::job::State;
use corq_shards::latency::{Buckets, EDGES_US, Timing};
use corq_shards::stats::{Census, Totals};
use std::fmt::Write;

/// Queues that are listed one by one. The others count in all sums.
pub const QUEUES_SHOWN_MAX: usize = 10_000;

/// When the certificate ends.
const CERTIFICATE_EXPIRES: &str = "tls_certificate_expires_timestamp_seconds";

/// How a number behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Counter,
    Gauge,
}

/// The families that are one number: name, kind, help. The numbers come in the same order.
const FAMILIES: &[(&str, Kind, &str)] = &[
    ("jobs_pushed_total", Kind::Counter, "Jobs pushed since the start"),
    ("jobs_pulled_total", Kind::Counter, "Jobs delivered since the start"),
    ("jobs_completed_total", Kind::Counter, "Jobs completed since the start"),
    ("jobs_failed_total", Kind::Counter, "Attempts failed since the start"),
    (
        "dlq_retried_total",
        Kind::Counter,
        "Jobs that the rules of their queues took out of the dead-letter queue to try them anew",
    ),
    (
        "dlq_dropped_total",
        Kind::Counter,
        "Jobs that the rules of their queues removed from the dead-letter queue",
    ),
    ("jobs", Kind::Gauge, "Jobs in any state"),
    ("queues", Kind::Gauge, "Queues, idle ones included"),
    ("leases", Kind::Gauge, "Active jobs"),
    ("waiting_pulls", Kind::Gauge, "Pulls that wait for a job"),
    ("deadlines", Kind::Gauge, "Delays, locks, lives, waits and schedules that will fall due"),
    ("unique_keys", Kind::Gauge, "Deduplication keys held"),
    (
        "groups",
        Kind::Gauge,
        "Groups of jobs that have a job, a setting or a pull that waits for one",
    ),
    ("group_settings", Kind::Gauge, "Groups of jobs for which something is set"),
    (
        "groups_lingering",
        Kind::Gauge,
        "Groups without jobs that are remembered for a rate that pulls brought",
    ),
    (
        "groups_forgotten_total",
        Kind::Counter,
        "Groups forgotten before the span of such a rate was over, since too many were remembered",
    ),
    (
        "throughput_buckets",
        Kind::Gauge,
        "Counts by the minute that Metrics remembers, of all queues",
    ),
    (
        "children_unheard",
        Kind::Gauge,
        "Children that are forgotten while their parents have yet to hear of their end",
    ),
    (
        "children_dropped_total",
        Kind::Counter,
        "Children of which too many were unheard, so that the oldest were given up",
    ),
    ("flows_open", Kind::Gauge, "Flows that are committed and have yet to come on other shards"),
    ("crons", Kind::Gauge, "Schedules"),
    (
        "scheduled_put_off_total",
        Kind::Counter,
        "Pushes of schedules and repeats that came later since too many were due",
    ),
    ("attended_queues", Kind::Gauge, "Queues that registered workers work on"),
    ("workers", Kind::Gauge, "Registered workers"),
    ("workers_bytes", Kind::Gauge, "Bytes of their registrations"),
    ("workers_crowded_out_total", Kind::Counter, "Registrations let go of to make room for others"),
    ("webhooks", Kind::Gauge, "Webhooks"),
    ("webhook_delivered_total", Kind::Counter, "Events taken by their webhooks"),
    ("webhook_failed_attempts_total", Kind::Counter, "Failed attempts to deliver an event"),
    ("webhook_abandoned_total", Kind::Counter, "Events given up after the last attempt"),
    ("webhook_dropped_total", Kind::Counter, "Events lost because a backlog was full"),
    ("webhook_backlog", Kind::Gauge, "Events that wait for webhooks"),
    ("webhook_backlog_bytes", Kind::Gauge, "Memory of the events that wait for webhooks"),
    ("webhook_threads", Kind::Gauge, "Threads that deliver to webhooks"),
    ("connections", Kind::Gauge, "Connections, those being closed included"),
    ("connections_max", Kind::Gauge, "Connections that all shards together may have"),
    ("connections_accepted_total", Kind::Counter, "Connections taken"),
    ("connections_rejected_total", Kind::Counter, "Connections refused at the limit of them"),
    ("connections_moved_total", Kind::Counter, "Connections handed to the shard of their queue"),
    (
        "tls_connections",
        Kind::Gauge,
        "Connections over TLS, those whose keys are being agreed on included",
    ),
    ("tls_handshakes_total", Kind::Counter, "Handshakes of TLS that were done"),
    ("tls_resumptions_total", Kind::Counter, "Of those, by showing keys of an earlier connection"),
    ("tls_handshake_failures_total", Kind::Counter, "Handshakes of TLS that failed or were left"),
    ("tls_handshake_timeouts_total", Kind::Counter, "Handshakes of TLS that took too long"),
    ("tls_plain_clients_total", Kind::Counter, "Clients that spoke no TLS at a port for it"),
    ("tls_misplaced_clients_total", Kind::Counter, "Clients that spoke TLS at a port without"),
    ("tls_truncated_total", Kind::Counter, "Connections over TLS that ended without saying so"),
    ("tls_corrupt_total", Kind::Counter, "Connections over TLS that broke its rules"),
    ("accept_pauses_total", Kind::Counter, "Times the system lacked something for a connection"),
    ("connections_cut_total", Kind::Counter, "Closed connections cut because they did not read"),
    ("http_connections", Kind::Gauge, "Connections that speak HTTP"),
    ("http_requests_total", Kind::Counter, "Requests over HTTP whose head was understood"),
    ("http_timeouts_total", Kind::Counter, "Connections over HTTP cut off for being too slow"),
    (
        "http_cross_origin_refused_total",
        Kind::Counter,
        "Requests refused because a web page that may not ask seems to have made them",
    ),
    ("rate_limited_total", Kind::Counter, "Requests and commands refused as too many"),
    ("rate_limited_clients", Kind::Gauge, "Clients whose requests are counted"),
    ("http_bodies_bytes", Kind::Gauge, "Memory of request bodies that are not there yet"),
    (
        "http_bodies_crowded_out_total",
        Kind::Counter,
        "Request bodies refused because all together were too large",
    ),
    (
        "frames_bytes",
        Kind::Gauge,
        "Memory of frames, WebSocket messages and heads of requests that are not there yet",
    ),
    (
        "strangers_bytes",
        Kind::Gauge,
        "The same of clients that have shown no token where there are tokens",
    ),
    (
        "frames_crowded_out_total",
        Kind::Counter,
        "Frames, messages and heads given up because all together were too large",
    ),
    (
        "auth_timeouts_total",
        Kind::Counter,
        "Connections closed because they showed no token in time",
    ),
    (
        "frames_timeouts_total",
        Kind::Counter,
        "Connections closed in the middle of a frame or message that did not come in time",
    ),
    (
        "long_requests_refused_total",
        Kind::Counter,
        "Frames and messages refused by their length, which their command cannot need",
    ),
    (
        "output_bytes",
        Kind::Gauge,
        "Memory of all output that clients have not taken, what many are sent counted once",
    ),
    (
        "output_crowded_out_total",
        Kind::Counter,
        "Connections ended because they had left output unread for long when there was too much",
    ),
    ("received_bytes_total", Kind::Counter, "Bytes received"),
    ("sent_bytes_total", Kind::Counter, "Bytes sent"),
    ("receive_buffers_exhausted_total", Kind::Counter, "Receives that found no buffer"),
    ("sse_streams", Kind::Gauge, "Open streams of events over SSE"),
    ("websocket_connections", Kind::Gauge, "Open WebSocket connections"),
    ("events_total", Kind::Counter, "Events taken to a shard whose clients listen"),
    ("events_lost_total", Kind::Counter, "Events that a client was too slow for"),
    (
        "events_waiting_bytes",
        Kind::Gauge,
        "Memory of events that clients have not taken yet, and of all else that waits for those",
    ),
    ("late_wakes_total", Kind::Counter, "Waits that ended more than 10 ms late"),
    ("commands_in_steps", Kind::Gauge, "Commands that wait for several shards"),
    (
        "replies_abroad_bytes",
        Kind::Gauge,
        "Bytes of large replies on their way from one shard to another",
    ),
    ("replies_begun_bytes", Kind::Gauge, "Bytes of lists that are being written"),
    ("replies_read_bytes", Kind::Gauge, "Bytes of replies that wait for records from the disk"),
    ("requests_set_aside", Kind::Gauge, "Requests that wait because large replies are under way"),
    ("mesh_stuck_batches", Kind::Gauge, "Batches for shards whose inbox is full"),
    ("log_records_total", Kind::Counter, "Records written"),
    ("log_blocks_total", Kind::Counter, "Blocks written"),
    ("log_written_bytes_total", Kind::Counter, "Bytes of blocks written"),
    ("log_syncs_total", Kind::Counter, "Syncs of segments started"),
    ("log_cold_reads_total", Kind::Counter, "Records read back from the disk"),
    ("log_segment_failures_total", Kind::Counter, "Failed attempts to get room for a segment"),
    ("log_segments", Kind::Gauge, "Segments of the log in use"),
    ("log_spare_files", Kind::Gauge, "Files set aside for further segments"),
    ("log_live_bytes", Kind::Gauge, "Bytes of the log that are still needed"),
    ("log_dead_bytes", Kind::Gauge, "Bytes of segments in use that are not needed any more"),
    ("log_reclaimed_segments_total", Kind::Counter, "Segments given up"),
    ("log_reclaimed_bytes_total", Kind::Counter, "Bytes of segments given up"),
    ("log_rewritten_bytes_total", Kind::Counter, "Bytes written again, so that segments could go"),
    (
        "unknown_job_records",
        Kind::Gauge,
        "Records that the start found about jobs that the log does not have",
    ),
    ("log_full", Kind::Gauge, "Shards whose log got no more room when it asked last"),
    ("log_lacks_files", Kind::Gauge, "Of those, shards that lacked descriptors, not space"),
    ("data_gone", Kind::Gauge, "1 while the data directory or a part of it is not where it was"),
    ("data_looks_total", Kind::Counter, "Times it was looked whether the data directory is there"),
    ("pushes_refused_total", Kind::Counter, "Jobs refused because the log has no room"),
    (
        "history_yielded_total",
        Kind::Counter,
        "Completed jobs forgotten early because the disk is full",
    ),
    (
        "log_strained",
        Kind::Gauge,
        "Shards where commands wait for room that reclaiming brings back",
    ),
    ("mail_put_off_batches", Kind::Gauge, "Batches from other shards that wait for it as well"),
    ("log_disk_bytes", Kind::Gauge, "Size of the log on disk"),
    ("log_unwritten_bytes", Kind::Gauge, "Bytes that wait to be written"),
    ("log_memory_bytes", Kind::Gauge, "Memory of the newest blocks"),
    (
        "connections_sharing",
        Kind::Gauge,
        "Connections that have sent more than their share of a turn",
    ),
];

/// How far the clock is ahead.
const CLOCK_AHEAD: &str = "clock_ahead_seconds";

/// The families that are histograms: name and help.
const HISTOGRAMS: &[(&str, &str)] = &[
    ("push_duration_ms", "Time that the answer to a pushed job waited for the log"),
    ("pull_duration_ms", "Time that the delivery of a job waited for the log"),
    ("ack_duration_ms", "Time that the answer to a completed job waited for the log"),
    ("job_waiting_ms", "Time from when a job was due to its delivery"),
    ("job_processing_ms", "Time from the delivery of a job to its completion"),
    ("turn_duration_ms", "Length of turns that were followed by another at once"),
];

/// The labelled families of each queue: name, help, state.
const QUEUE_FAMILIES: &[(&str, &str, State)] = &[
    ("queue_jobs_waiting", "Jobs of the queue that can be pulled", State::Waiting),
    ("queue_jobs_active", "Jobs of the queue that a worker has", State::Active),
    ("queue_jobs_delayed", "Jobs of the queue whose time has not come", State::Delayed),
    (
        "queue_jobs_waiting_children",
        "Jobs of the queue whose dependencies are unmet",
        State::WaitingChildren,
    ),
    ("queue_jobs_completed", "Completed jobs of the queue that are kept", State::Completed),
    ("queue_jobs_dlq", "Jobs in the dead-letter queue of the queue", State::Failed),
];

/// What the loop of a shard times: see the module.
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

/// The jobs of one queue.
#[derive(Clone, Debug)]
struct QueueRow {
    name: Box<str>,
    counts: [u64; QUEUE_FAMILIES.len()],
}

/// The longest turns of one kind of work on one shard.
#[derive(Clone, Copy, Debug)]
struct TurnRow {
    shard: usize,
    work: Work,
    longest: Longest,
}

/// The families of each of these: name, help, value.
type TurnFamily = (&'static str, &'static str, fn(&Longest) -> String);
const TURN_FAMILIES: &[TurnFamily] = &[
    (
        "longest_turn_seconds",
        "Longest turn since the start of those that this work took most of",
        |longest| format!("{}.{:06}", longest.length_us / 1_000_000, longest.length_us % 1_000_000),
    ),
    ("turn_steps_max", "Most steps of this work in one turn since the start", |longest| {
        longest.steps.to_string()
    }),
];

/// The metrics of one shard, or of all together.
#[derive(Clone, Debug)]
pub struct Metrics {
    turns: Vec<TurnRow>,
    numbers: [u64; FAMILIES.len()],
    histograms: [Buckets; HISTOGRAMS.len()],
    queues: Vec<QueueRow>,
}

impl Default for Metrics {
    fn default() -> Self {
        let (numbers, histograms) = ([0; FAMILIES.len()], Default::default());
        Self { turns: Vec::new(), numbers, histograms, queues: Vec::new() }
    }
}

impl Metrics {
    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        for (sum, number) in self.numbers.iter_mut().zip(other.numbers) {
            *sum += number;
        }
        for (sum, buckets) in self.histograms.iter_mut().zip(other.histograms) {
            *sum += buckets;
        }
        self.turns.extend_from_slice(&other.turns);
        let room = QUEUES_SHOWN_MAX - self.queues.len().min(QUEUES_SHOWN_MAX);
        self.queues.extend(other.queues.iter().take(room).cloned());
    }

    fn number(&self, name: &str) -> u64 {
        let place = FAMILIES.iter().position(|(family, ..)| *family == name);
        place.map_or(0, |place| self.numbers[place])
    }

    fn mean_ms(&self, name: &str) -> f64 {
        let place = HISTOGRAMS.iter().position(|(family, _)| *family == name);
        place.map_or(0.0, |place| self.histograms[place].mean_ms())
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
        writer.map(counts.len() + measures.len() + 2);
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
            // Two decimals are all that anybody reads.
            writer.number((measure * 100.0).round() / 100.0);
        }
    }

    /// The text exposition of Prometheus, version 0.0.4.
    pub fn text(
        &self,
        shards: usize,
        memory_bytes: u64,
        uptime_ms: u64,
        tls: Option<Standing>,
    ) -> String {
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
        for (place, (name, help, _)) in QUEUE_FAMILIES.iter().enumerate() {
            head(&mut text, name, "gauge", help);
            for row in &self.queues {
                let label = format!("{{queue=\"{}\"}}", escaped(&row.name));
                sample(&mut text, name, &label, &row.counts[place].to_string());
            }
        }
        for (name, help, value) in TURN_FAMILIES {
            head(&mut text, name, "gauge", help);
            for row in &self.turns {
                let label = format!("{{shard=\"{}\",command=\"{}\"}}", row.shard, row.work.name());
                sample(&mut text, name, &label, &value(&row.longest));
            }
        }
        for ((name, help), buckets) in HISTOGRAMS.iter().zip(&self.histograms) {
            head(&mut text, name, "histogram", help);
            write_histogram(&mut text, name, buckets);
        }
        text
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

fn write_histogram(text: &mut String, name: &str, buckets: &Buckets) {
    let bucket = format!("{name}_bucket");
    let mut so_far = 0;
    for (place, count) in buckets.counts.iter().enumerate() {
        so_far += count;
        let edge = EDGES_US.get(place).map_or("+Inf".to_string(), |&edge| decimal(edge));
        sample(text, &bucket, &format!("{{le=\"{edge}\"}}"), &so_far.to_string());
    }
    sample(text, &format!("{name}_sum"), "", &decimal(buckets.sum_us));
    sample(text, &format!("{name}_count"), "", &so_far.to_string());
}

impl Core {
    /// This shard's part of `Metrics` and `Prometheus`; with its queues for the latter.
    pub(super) fn share_of_metrics(&self, conns: &Connections, queues: bool) -> Share {
        let shard = &self.engine.shard;
        let (totals, held) = (shard.totals(), shard.holdings());
        let (net, log) = (self.net, self.engine.book.0.counters());
        let (segments, spares) = self.engine.book.0.segments();
        // One shard speaks for all.
        let of_process = |number: u64| if self.me == 0 { number } else { 0 };
        let live = shard.needed_bytes();
        let of_webhooks = self.load_of_webhooks();
        let streams = self.streams.counts();
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
            held.remains as u64,
            held.remains_dropped,
            self.open_flows.len() as u64,
            held.crons as u64,
            held.scheduled_put_off,
            held.attended as u64,
            self.workers.len() as u64,
            self.workers.bytes() as u64,
            self.workers.crowded_out(),
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
            net.given_away - self.leaving.seated(),
            conns.secure() as u64,
            net.handshakes,
            net.resumptions,
            net.handshakes_failed,
            net.handshakes_late,
            net.not_secure,
            self.http.counters.handshakes,
            net.truncated,
            net.corrupt,
            net.accept_pauses,
            net.drains_cut,
            self.sessions.count(Speech::Http) as u64,
            self.http.counters.requests,
            self.http.counters.timeouts,
            self.http.counters.cross_origin,
            self.http.counters.limited,
            self.http.limiter.as_ref().map_or(0, Limiter::len) as u64,
            self.http.bodies.bytes() as u64,
            self.http.counters.crowded_out,
            self.frames.bytes() as u64,
            self.strangers.bytes() as u64,
            self.frames_crowded_out,
            self.deadlines.tokens,
            self.deadlines.frames,
            self.long_refused,
            conns.output_bytes() as u64,
            self.outputs.crowded_out(),
            net.received_bytes,
            net.sent_bytes,
            net.buffers_exhausted,
            streams.sse,
            streams.websocket,
            streams.events,
            streams.lost,
            self.streams.waiting_bytes(conns) as u64,
            net.late,
            self.tasks.len() as u64,
            self.aside.abroad_bytes() as u64,
            self.aside.begun_bytes() as u64,
            self.cold.bytes() as u64,
            self.aside.len() as u64,
            self.post.stuck() as u64,
            log.records,
            log.blocks,
            log.block_bytes,
            log.syncs,
            log.cold_reads,
            log.segment_failures,
            segments,
            spares,
            live,
            self.engine.book.0.used_bytes().saturating_sub(live),
            log.forgotten,
            log.forgotten_bytes,
            self.reclaim.rewritten_bytes,
            shard.unknown_job_records(),
            u64::from(self.engine.book.is_full(&shard.upkeep())),
            u64::from(self.said_lack.is_some()),
            of_process(u64::from(self.ground.is_gone())),
            of_process(self.ground.looks()),
            self.reclaim.refused_pushes,
            self.reclaim.yielded_jobs,
            u64::from(self.engine.book.1.strained),
            self.put_off.len() as u64,
            log.disk_bytes,
            self.engine.book.0.unwritten_bytes(),
            self.engine.book.0.memory_bytes() as u64,
            self.shares.waiting() as u64,
        ];
        let Durations { push, pull, ack, turn } = &self.durations;
        let timings = shard.timings();
        let histograms =
            [push, pull, ack, &timings.waiting, &timings.processing, turn].map(Timing::buckets);
        let rows = shard.queues().filter(|_| queues).take(QUEUES_SHOWN_MAX);
        let queues = rows.map(|queue| QueueRow {
            name: queue.name.clone(),
            counts: std::array::from_fn(|place| queue.count(QUEUE_FAMILIES[place].2)),
        });
        let shard = self.me;
        let turns = self.meter.longest().map(|(work, longest)| TurnRow { shard, work, longest });
        let turns = turns.collect();
        Share::Metrics(Box::new(Metrics { turns, numbers, histograms, queues: queues.collect() }))
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
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        let mut metrics = Metrics::default();
        metrics.numbers[0] = 7;
        let mut timing = Timing::default();
        timing.record(90, 2);
        timing.record(2_400, 1);
        timing.record(90_000_000, 1);
        metrics.histograms[0] = timing.buckets();
        let name = "we\"ird\\na\nme".into();
        metrics.queues.push(QueueRow { name, counts: [1, 2, 3, 4, 5, 6] });
        metrics
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let text = metrics().text(2, 4096, 1_500, None);
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
    fn shares_add_up_and_listed_queues_have_a_limit() {
        let mut sum = metrics();
        sum.add(&metrics());
        assert_eq!((sum.number("jobs_pushed_total"), sum.queues.len()), (14, 2));
        let mut many = metrics();
        many.queues = vec![many.queues[0].clone(); QUEUES_SHOWN_MAX];
        sum.add(&many);
        assert_eq!(sum.queues.len(), QUEUES_SHOWN_MAX);
    }
}
