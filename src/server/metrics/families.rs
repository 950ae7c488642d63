//! The families of metrics: names, kinds and help texts, each once. What is counted stands in
//! [`super`].

use crate::server::event_loop::turn_meter::Longest;

/// When the certificate ends.
pub(crate) const CERTIFICATE_EXPIRES: &str = "tls_certificate_expires_timestamp_seconds";

/// How a number behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// The families that are one number: name, kind, help. The numbers come in the same order.
pub(crate) const FAMILIES: &[(&str, Kind, &str)] = &[
    ("jobs_pushed_total", Kind::Counter, "Jobs pushed since the start"),
    ("jobs_pulled_total", Kind::Counter, "Jobs delivered since the start"),
    ("jobs_completed_total", Kind::Counter, "Jobs completed since the start"),
    ("jobs_failed_total", Kind::Counter, "Attempts failed since the start"),
    ("jobs_retried_total", Kind::Counter, "Attempts failed since the start, and tried again"),
    ("jobs_stalled_total", Kind::Counter, "Times the worker of a job went silent"),
    (
        "leases_expired_total",
        Kind::Counter,
        "Leases that ended by time: of stalled jobs, and of attempts that took too long",
    ),
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
    ("queue_settings", Kind::Gauge, "Queues that are paused, limited or have rules"),
    ("group_settings", Kind::Gauge, "Groups of jobs for which something is set"),
    (
        "groups_lingering",
        Kind::Gauge,
        "Groups without jobs that are remembered for a rate that pulls brought",
    ),
    (
        "groups_forgotten_total",
        Kind::Counter,
        "Groups without jobs forgotten before the span of a rate that pulls brought was over, since too many were remembered",
    ),
    (
        "throughput_buckets",
        Kind::Gauge,
        "Counts by the minute that Metrics remembers, of all queues",
    ),
    ("children_unheard", Kind::Gauge, "Finished children whose parents are not notified yet"),
    (
        "children_dropped_total",
        Kind::Counter,
        "Children of which too many were unheard, so that the oldest were given up",
    ),
    (
        "child_patches_waiting",
        Kind::Gauge,
        "Children that wait to have a parent written into their data",
    ),
    ("flows_open", Kind::Gauge, "Committed flows whose jobs are not visible on all shards yet"),
    ("crons", Kind::Gauge, "Schedules"),
    ("crons_ended", Kind::Gauge, "Schedules that their maxLimit has ended and that are remembered"),
    (
        "crons_missed_total",
        Kind::Counter,
        "Runs of schedules that were due and passed over: too late, overlapping, or while nobody pulled",
    ),
    (
        "crons_without_room_total",
        Kind::Counter,
        "Runs of schedules that were due when there was no room for their jobs, and waited for it",
    ),
    (
        "crons_waiting",
        Kind::Gauge,
        "Commands on schedules that wait for another on the same schedule",
    ),
    (
        "notices_waiting",
        Kind::Gauge,
        "Notices to the jobs that jobs here depend on, in line; beyond 4,000 of a shard no other command is begun",
    ),
    (
        "scheduled_put_off_total",
        Kind::Counter,
        "Pushes of schedules and repeats that came later since too many were due",
    ),
    ("workers", Kind::Gauge, "Registered workers"),
    ("workers_bytes", Kind::Gauge, "Bytes of the registrations of workers"),
    ("workers_crowded_out_total", Kind::Counter, "Registrations dropped to make room for others"),
    ("webhooks", Kind::Gauge, "Webhooks"),
    ("webhook_delivered_total", Kind::Counter, "Events taken by their webhooks"),
    ("webhook_failed_attempts_total", Kind::Counter, "Failed attempts to deliver an event"),
    ("webhook_abandoned_total", Kind::Counter, "Events given up after the last attempt"),
    ("webhook_dropped_total", Kind::Counter, "Events lost because a backlog was full"),
    ("webhook_backlog", Kind::Gauge, "Events that wait for webhooks"),
    ("webhook_backlog_bytes", Kind::Gauge, "Memory of the events that wait for webhooks"),
    ("webhook_threads", Kind::Gauge, "Threads that deliver to webhooks"),
    (
        "webhook_deliveries",
        Kind::Gauge,
        "Attempts to deliver that are remembered, at most 50 of a webhook",
    ),
    (
        "webhook_deliveries_bytes",
        Kind::Gauge,
        "Memory of remembered deliveries, at most 16 KiB each",
    ),
    ("otlp_spans_exported_total", Kind::Counter, "Spans taken by the collector of traces"),
    ("otlp_spans_dropped_total", Kind::Counter, "Spans lost because there was no room for them"),
    (
        "otlp_spans_abandoned_total",
        Kind::Counter,
        "Spans given up: the collector did not answer, or refused their post",
    ),
    (
        "otlp_spans_rejected_total",
        Kind::Counter,
        "Spans that the collector refused of posts that it took",
    ),
    ("otlp_failed_posts_total", Kind::Counter, "Failed attempts to post spans"),
    ("otlp_spans_waiting", Kind::Gauge, "Spans that wait for the collector or are on their way"),
    ("otlp_spans_waiting_bytes", Kind::Gauge, "Memory of spans that wait, at most 32 MiB"),
    (
        "otlp_jobs_remembered",
        Kind::Gauge,
        "Sampled jobs that went back to wait and of which it is remembered since when, at most 10,000 of a shard",
    ),
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
    ("tls_resumptions_total", Kind::Counter, "TLS handshakes with keys of an earlier one"),
    ("tls_handshake_failures_total", Kind::Counter, "Handshakes of TLS that failed or were left"),
    ("tls_handshake_timeouts_total", Kind::Counter, "Handshakes of TLS that took too long"),
    (
        "tls_handshakes_crowded_out_total",
        Kind::Counter,
        "Handshakes of TLS given up because all together were too large",
    ),
    ("tls_plain_clients_total", Kind::Counter, "Clients without TLS at a port for TLS"),
    ("tls_misplaced_clients_total", Kind::Counter, "Clients with TLS at a port without TLS"),
    ("tls_truncated_total", Kind::Counter, "TLS connections that ended without close_notify"),
    ("tls_corrupt_total", Kind::Counter, "TLS connections closed for a protocol error"),
    (
        "accept_pauses_total",
        Kind::Counter,
        "Times accepting paused for lack of descriptors or memory",
    ),
    ("connections_cut_total", Kind::Counter, "Closed connections cut because they did not read"),
    ("http_connections", Kind::Gauge, "HTTP connections"),
    ("http_requests_total", Kind::Counter, "Requests over HTTP whose head was understood"),
    ("http_timeouts_total", Kind::Counter, "Connections over HTTP cut off for being too slow"),
    (
        "http_cross_origin_refused_total",
        Kind::Counter,
        "Requests refused because a web page that may not ask seems to have made them",
    ),
    ("rate_limited_total", Kind::Counter, "Requests and commands refused as too many"),
    ("rate_limited_clients", Kind::Gauge, "Clients whose requests are counted"),
    (
        "frames_crowded_out_total",
        Kind::Counter,
        "Frames, messages, heads and bodies of requests given up because all together were too large",
    ),
    (
        "auth_timeouts_total",
        Kind::Counter,
        "Connections closed because they showed no token in time",
    ),
    (
        "auth_failures_total",
        Kind::Counter,
        "Tokens that were shown and do not count: by Auth, by a request or by a login",
    ),
    ("browser_sessions", Kind::Gauge, "Sessions of browsers, with some whose time is over"),
    ("audit_entries_total", Kind::Counter, "Entries written to the audit log"),
    (
        "audit_lost_total",
        Kind::Counter,
        "Entries of the audit log that are lost: it could not be written, or too many came at once",
    ),
    (
        "audit_left_out_total",
        Kind::Counter,
        "Logins and refusals that another entry of the audit log counts",
    ),
    (
        "audit_waiting",
        Kind::Gauge,
        "Entries of the audit log that wait for the end of their command",
    ),
    ("audit_bytes", Kind::Gauge, "Size of the audit log"),
    ("backups_total", Kind::Counter, "Backups by the schedule that are complete"),
    ("backup_failures_total", Kind::Counter, "Attempts at a backup by the schedule that failed"),
    (
        "backup_failures_in_a_row",
        Kind::Gauge,
        "Failed attempts at a backup by the schedule since the last that is complete",
    ),
    (
        "backup_removal_failures_total",
        Kind::Counter,
        "Backups after which old ones could not all be removed",
    ),
    (
        "backup_last_success_timestamp_seconds",
        Kind::Gauge,
        "When the last backup by the schedule was begun that is complete; 0 if none is known",
    ),
    (
        "backup_due_timestamp_seconds",
        Kind::Gauge,
        "When the next backup is due, in the past while it is late; 0 without a schedule",
    ),
    ("backup_last_duration_seconds", Kind::Gauge, "How long the last backup took"),
    ("backup_last_bytes", Kind::Gauge, "Bytes of the files of the last backup"),
    ("fleet_logs", Kind::Gauge, "Logs of a fleet that this node owns; 0 without a fleet"),
    (
        "fleet_logs_waiting",
        Kind::Gauge,
        "Logs whose commits wait for the database of the fleet, which is not to be reached",
    ),
    (
        "fleet_asynchronous",
        Kind::Gauge,
        "1 if the database of the fleet has no synchronous standby: a failover may lose what was acknowledged",
    ),
    (
        "fleet_rows_total",
        Kind::Counter,
        "Rows of logs that the database of the fleet has committed",
    ),
    ("fleet_row_bytes_total", Kind::Counter, "Bytes of logs in committed rows, before compression"),
    (
        "fleet_put_back_bytes_total",
        Kind::Counter,
        "Bytes of logs that the database of the fleet had lost by a failover and has again",
    ),
    (
        "frames_timeouts_total",
        Kind::Counter,
        "Connections closed in the middle of a frame or message that did not come in time",
    ),
    (
        "long_requests_refused_total",
        Kind::Counter,
        "Frames, messages and bodies refused by their length, which their command cannot need",
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
    ("events_total", Kind::Counter, "Events that reached a shard with subscribers"),
    ("events_lost_total", Kind::Counter, "Events dropped because a client read too slowly"),
    (
        "events_framed_total",
        Kind::Counter,
        "Events encoded for subscribers, once for all that share a choice",
    ),
    ("event_choices", Kind::Gauge, "Choices of events that differ"),
    ("event_choice_patterns", Kind::Gauge, "Patterns of queues in the choices of events"),
    ("event_choice_bytes", Kind::Gauge, "Memory of the texts in choices of events"),
    (
        "events_written_total",
        Kind::Counter,
        "Events written as text because a subscriber wants them",
    ),
    ("events_kept", Kind::Gauge, "Events kept for clients that come back"),
    ("events_kept_bytes", Kind::Gauge, "Memory of events kept for clients that come back"),
    ("event_resumes_total", Kind::Counter, "Event streams that went on from a Last-Event-ID"),
    ("event_resume_gaps_total", Kind::Counter, "Resumed streams that may lack events"),
    (
        "event_resumes_waiting",
        Kind::Gauge,
        "Event streams that wait until it is their turn to go on",
    ),
    (
        "events_waiting_bytes",
        Kind::Gauge,
        "Memory of events that clients have not taken yet, and of all else that waits for those",
    ),
    ("late_wakes_total", Kind::Counter, "Waits that ended more than 10 ms late"),
    ("commands_in_steps", Kind::Gauge, "Multi-shard commands under way"),
    (
        "replies_begun_peak_bytes",
        Kind::Gauge,
        "The most bytes of lists that are being written, and of what lists reserve, at a time",
    ),
    ("owed_reads_total", Kind::Counter, "Values for many that were read from the disk"),
    ("json_under_way", Kind::Gauge, "Requests and replies that are turned from JSON or into it"),
    ("json_slices_total", Kind::Counter, "Slices that turned JSON into frames or back"),
    ("requests_set_aside", Kind::Gauge, "Requests deferred because large replies are under way"),
    ("mesh_stuck_batches", Kind::Gauge, "Batches for shards whose inbox is full"),
    ("log_records_total", Kind::Counter, "Records written"),
    ("log_blocks_total", Kind::Counter, "Blocks written"),
    ("log_written_bytes_total", Kind::Counter, "Bytes of blocks written"),
    ("log_syncs_total", Kind::Counter, "Syncs of segments started"),
    ("log_cold_reads_total", Kind::Counter, "Records read back from the disk"),
    ("log_segment_failures_total", Kind::Counter, "Failed attempts to make a segment"),
    (
        "log_held_writes_total",
        Kind::Counter,
        "Writes that found no room where their blocks belong, and wait for it",
    ),
    (
        "log_removal_failures_total",
        Kind::Counter,
        "Attempts to remove a file of the log that failed and are made again",
    ),
    (
        "log_scan_failures_total",
        Kind::Counter,
        "Reads of the oldest segment that failed and are tried again",
    ),
    ("log_segments", Kind::Gauge, "Segments of the log in use"),
    ("log_spare_files", Kind::Gauge, "Preallocated files for further segments"),
    ("log_live_bytes", Kind::Gauge, "Live bytes of the log"),
    ("log_dead_bytes", Kind::Gauge, "Dead bytes of segments in use"),
    ("attempts_remembered", Kind::Gauge, "Failed attempts that are remembered"),
    ("attempts_remembered_bytes", Kind::Gauge, "Log bytes of remembered failed attempts"),
    ("log_reclaimed_segments_total", Kind::Counter, "Segments removed by compaction"),
    ("log_reclaimed_bytes_total", Kind::Counter, "Bytes of segments removed by compaction"),
    ("log_rewritten_bytes_total", Kind::Counter, "Bytes rewritten by compaction"),
    (
        "unknown_job_records",
        Kind::Gauge,
        "Records that the start found about jobs that the log does not have",
    ),
    ("log_full", Kind::Gauge, "Shards whose log got no space at its last attempt"),
    ("log_lacks_files", Kind::Gauge, "Shards whose log lacked descriptors, not space"),
    ("data_gone", Kind::Gauge, "1 while the data directory or a part of it is not where it was"),
    ("data_looks_total", Kind::Counter, "Times it was looked whether the data directory is there"),
    ("pushes_refused_total", Kind::Counter, "Jobs refused because the log has no space"),
    (
        "history_yielded_total",
        Kind::Counter,
        "Completed jobs forgotten early because the disk is full",
    ),
    ("log_strained", Kind::Gauge, "Shards in a write stall: commands wait for compaction"),
    ("mail_put_off_batches", Kind::Gauge, "Message batches that wait in a write stall"),
    ("log_disk_bytes", Kind::Gauge, "Size of the log on disk"),
    ("log_unwritten_bytes", Kind::Gauge, "Bytes that wait to be written"),
    ("log_memory_bytes", Kind::Gauge, "Memory of the newest blocks"),
    (
        "connections_sharing",
        Kind::Gauge,
        "Connections that have sent more than their share of a turn",
    ),
    ("history_queues", Kind::Gauge, "Queues whose last day is remembered step by step"),
    ("history_bytes", Kind::Gauge, "Memory of what is remembered of the last day"),
    (
        "history_dropped_total",
        Kind::Counter,
        "Hours of queues forgotten early since all together took too much memory",
    ),
    ("watchers", Kind::Gauge, "Connections that get samples of figures"),
    ("watch_samples_total", Kind::Counter, "Samples of figures sent to connections"),
    (
        "watch_skipped_total",
        Kind::Counter,
        "Samples left out for connections that had not read the one before",
    ),
    ("watch_looks_total", Kind::Counter, "Times a shard was asked for its part of a sample"),
    ("bulk_tasks_running", Kind::Gauge, "Actions on many jobs that are under way"),
    ("bulk_tasks_refused_total", Kind::Counter, "Actions refused because too many are under way"),
    ("bulk_jobs_changed_total", Kind::Counter, "Jobs changed by actions on many"),
];

/// How far the clock is ahead.
pub(crate) const CLOCK_AHEAD: &str = "clock_ahead_seconds";

/// By how much it was set back at the start.
pub(crate) const CLOCK_SET_BACK: &str = "clock_set_back_seconds";

/// A kind of duration: a histogram and a summary of quantiles for Prometheus, and a field of `Metrics`.
pub(crate) struct Timed {
    pub(crate) family: &'static str,
    /// The name of the entry in `durations`.
    pub(crate) field: &'static str,
    pub(crate) help: &'static str,
}

impl Timed {
    /// The family of its quantiles.
    pub(crate) fn summary(&self) -> String {
        self.family.replace("_ms", "_quantiles_ms")
    }

    /// The names of both families in seconds.
    pub(crate) fn in_seconds(&self) -> [String; 2] {
        ["_seconds", "_quantiles_seconds"].map(|unit| self.family.replace("_ms", unit))
    }
}

const fn timed(family: &'static str, field: &'static str, help: &'static str) -> Timed {
    Timed { family, field, help }
}

/// All that is timed.
pub(crate) const HISTOGRAMS: &[Timed] = &[
    timed("push_duration_ms", "push", "Time that the answer to a pushed job waited for the log"),
    timed("pull_duration_ms", "pull", "Time that the delivery of a job waited for the log"),
    timed("ack_duration_ms", "ack", "Time that the answer to a completed job waited for the log"),
    timed("job_waiting_ms", "jobWaiting", "Time from when a job was due to its delivery"),
    timed(
        "job_processing_ms",
        "jobProcessing",
        "Time from the delivery of a job to its completion",
    ),
    timed("turn_duration_ms", "turn", "Length of turns that were followed by another at once"),
];

/// The quantiles that are shown: label, share, field of `Metrics`.
pub(crate) const QUANTILES: [(&str, f64, &str); 3] =
    [("0.5", 0.5, "p50Ms"), ("0.99", 0.99, "p99Ms"), ("0.999", 0.999, "p999Ms")];

/// Families that are shown of each shard as well, under names that begin with `shard_`.
pub(crate) const SHARD_FAMILIES: &[&str] = &[
    "jobs",
    "queues",
    "leases",
    "waiting_pulls",
    "connections",
    "log_live_bytes",
    "log_disk_bytes",
    "log_unwritten_bytes",
    "log_memory_bytes",
];

/// An account of the memory of clients: what is held, its bound, and the largest share of its bound that a shard holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccountRow {
    pub(super) bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) fullest: f64,
}

impl AccountRow {
    /// Adds that of other shards.
    pub(super) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.limit_bytes += other.limit_bytes;
        self.fullest = self.fullest.max(other.fullest);
    }
}

/// The families with a number for each account of the memory of clients: name, help, value.
pub(crate) type AccountFamily = (&'static str, &'static str, fn(&AccountRow) -> String);
pub(crate) const ACCOUNT_FAMILIES: &[AccountFamily] = &[
    (
        "client_memory_bytes",
        "Memory that clients make the server hold, by account; replies that many get count once",
        |account| account.bytes.to_string(),
    ),
    ("client_memory_limit_bytes", "Bound of the memory of clients, by account", |account| {
        account.limit_bytes.to_string()
    }),
    (
        "client_memory_fullest_ratio",
        "Memory of clients on the shard where an account is fullest, divided by the bound of that shard",
        |account| format!("{:.3}", account.fullest),
    ),
];

/// The families of the longest turns of one kind of work on one shard: name, help, value.
pub(crate) type TurnFamily = (&'static str, &'static str, fn(&Longest) -> String);
pub(crate) const TURN_FAMILIES: &[TurnFamily] = &[
    (
        "longest_turn_seconds",
        "Longest event-loop turn, by the command that took most of it",
        |longest| format!("{}.{:06}", longest.length_us / 1_000_000, longest.length_us % 1_000_000),
    ),
    ("turn_steps_max", "Most steps of this work in one turn since the start", |longest| {
        longest.steps.to_string()
    }),
];
