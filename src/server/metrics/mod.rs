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
//! | `queue_choice` | which queues are listed one by one |
//! | `queue_lines` | what is said of a queue |
//! | `second_prefix` | the same lines under another prefix |
//! | `share` | the part of one shard: where each number comes from |

pub(super) mod families;
pub(super) mod queue_choice;
mod queue_lines;
mod second_prefix;
mod share;

use super::event_loop::turn_meter::{Longest, Work};
use super::metrics::families::{
    ACCOUNT_FAMILIES, AccountRow, CERTIFICATE_EXPIRES, CLOCK_AHEAD, CLOCK_SET_BACK, FAMILIES,
    HISTOGRAMS, Kind, QUANTILES, SHARD_FAMILIES, TURN_FAMILIES,
};
use super::metrics::queue_choice::{Longest as LongestQueues, QueueChoice};
pub use super::metrics::queue_lines::QueueLines;
use super::metrics::queue_lines::{QUEUE_FAMILIES, decimal, sample};
use super::metrics::second_prefix::renamed;
use super::overload::client_memory::ACCOUNTS;
use crate::protocol::msgpack::writer::{MapWriter, Writer};
use corq_io::clock;
use corq_io::tls::CertificateStatus;
use corq_shards::cron::zones::zone_rules;
use corq_shards::stats::Totals;
use corq_shards::stats::latency::{EDGES_US, Timing};
use std::fmt::Write;
use std::sync::Arc;

/// Queues that are listed one by one. The others count in all sums.
pub const QUEUES_SHOWN_MAX: usize = 10_000;

/// With more queues than this, only queues that are chosen say how long their jobs have waited.
const WAITS_QUEUES_MAX: u64 = 1000;

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

/// The text of all metrics, to which the lines of single queues come page by page.
#[derive(Debug)]
pub struct MetricsText {
    head: String,
    queues: QueuePieces,
    tail: String,
    /// Which queues are listed.
    pub choice: Arc<QueueChoice>,
    /// Queues with the most jobs, if only such are listed.
    longest: LongestQueues,
    /// Whether there are so few queues that each says how long its jobs have waited.
    few_queues: bool,
    /// Under which prefix all of it comes again, with the lines of queues under that.
    second: Option<(Arc<str>, QueuePieces)>,
}

/// Lines of queues, by family.
type QueuePieces = [Vec<Vec<u8>>; QUEUE_FAMILIES.len()];

impl MetricsText {
    /// Whether it says of each of its queues how long its jobs have waited.
    pub fn has_waits(&self) -> bool {
        self.few_queues || *self.choice != QueueChoice::All
    }

    /// Chooses the queues that the text lists.
    #[must_use]
    pub fn of_queues(mut self, choice: Arc<QueueChoice>) -> Self {
        self.choice = choice;
        self
    }

    /// Adds queues of which only those with the most jobs are listed. Returns how many bytes more are held.
    pub fn add_longest(&mut self, some: &LongestQueues) -> usize {
        let QueueChoice::Top(most) = *self.choice else { return 0 };
        let before = self.longest.bytes();
        self.longest.merge(some, most);
        self.longest.bytes().saturating_sub(before)
    }

    /// Has all of the text come again under this prefix, if there is one.
    #[must_use]
    pub fn with(mut self, prefix: Option<Arc<str>>) -> Self {
        self.second = prefix.map(|prefix| (prefix, QueuePieces::default()));
        self
    }

    /// Adds lines of queues. Returns their bytes.
    pub fn add_queues(&mut self, some: &QueueLines) -> usize {
        let mut bytes = some.bytes();
        for (place, lines) in some.lines.iter().enumerate() {
            self.queues[place].push(lines.clone().into_bytes());
            if let Some((prefix, queues)) = &mut self.second {
                let lines = renamed(lines, prefix).into_bytes();
                bytes += lines.len();
                queues[place].push(lines);
            }
        }
        bytes
    }

    /// All of it, in order.
    pub fn take_pieces(&mut self) -> Vec<Vec<u8>> {
        for lines in std::mem::take(&mut self.longest).lines() {
            self.add_queues(lines);
        }
        let (begun, tail) = (std::mem::take(&mut self.head), std::mem::take(&mut self.tail));
        let second = self.second.take().map(|(prefix, queues)| {
            pieces_of(renamed(&begun, &prefix), queues, renamed(&tail, &prefix), |text| {
                renamed(&text, &prefix)
            })
        });
        let queues = std::mem::take(&mut self.queues);
        let mut pieces = pieces_of(begun, queues, tail, |text| text);
        pieces.extend(second.into_iter().flatten());
        pieces
    }
}

fn pieces_of(
    begun: String,
    queues: QueuePieces,
    tail: String,
    name: impl Fn(String) -> String,
) -> Vec<Vec<u8>> {
    let mut pieces = vec![begun.into_bytes()];
    for ((family, help, what), mut lines) in QUEUE_FAMILIES.iter().zip(queues) {
        let mut text = String::new();
        head(&mut text, family, what.kind(), help);
        pieces.push(name(text).into_bytes());
        pieces.append(&mut lines);
    }
    pieces.push(tail.into_bytes());
    pieces
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
    /// In the order of [`ACCOUNTS`].
    accounts: [AccountRow; ACCOUNTS.len()],
    /// Numbers of single shards.
    shards: Vec<(usize, Box<[u64; FAMILIES.len()]>)>,
    timings: [Timing; HISTOGRAMS.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        let (numbers, timings) = ([0; FAMILIES.len()], Default::default());
        let accounts = Default::default();
        Self { turns: Vec::new(), numbers, accounts, shards: Vec::new(), timings }
    }
}

impl Metrics {
    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        for (sum, number) in self.numbers.iter_mut().zip(other.numbers) {
            *sum += number;
        }
        self.accounts.iter_mut().zip(&other.accounts).for_each(|(sum, row)| sum.add(row));
        for (sum, timing) in self.timings.iter_mut().zip(&other.timings) {
            *sum += timing;
        }
        self.turns.extend_from_slice(&other.turns);
        self.shards.extend_from_slice(&other.shards);
    }

    /// The value of a family without labels, by the family's name without the prefix.
    pub fn figure(&self, family: &str) -> Option<f64> {
        let seconds = |ms: u64| Some(ms as f64 / 1000.0);
        match family {
            CLOCK_AHEAD => seconds(clock::ahead_ms()),
            CLOCK_SET_BACK => seconds(clock::set_back_ms()),
            _ => {
                let place = FAMILIES.iter().position(|(name, ..)| *name == family)?;
                Some(self.numbers[place] as f64)
            }
        }
    }

    /// The largest share of its bound that an account holds on a shard.
    pub fn fullest(&self, account: &str) -> Option<f64> {
        let place = ACCOUNTS.iter().position(|(name, _)| *name == account)?;
        Some(self.accounts[place].fullest)
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
        let mut map = writer.begin_map();
        map.key("longestTurnMs").number(longest_ms);
        map.key("longestTurnCommand").str(longest.map_or("", |row| row.work.name()));
        for (name, count) in counts {
            map.key(name).uint(count);
        }
        for (name, measure) in measures {
            // People read two decimals.
            map.key(name).number((measure * 100.0).round() / 100.0);
        }
        self.write_durations(&mut map.map("durations"));
    }

    /// How long answers to pushes, pulls and acks have waited for the log: means and quantiles, 0 where there were none.
    pub fn write_latency(&self, mut latency: MapWriter<'_>) {
        let timed = ["push", "pull", "ack"].map(|field| {
            let place = HISTOGRAMS.iter().position(|row| row.field == field);
            (field, place.map(|place| &self.timings[place]))
        });
        let mut averages = latency.map("averages");
        for (field, timing) in &timed {
            averages.key(&format!("{field}Ms")).number(timing.map_or(0.0, Timing::mean_ms));
        }
        drop(averages);
        let mut percentiles = latency.map("percentiles");
        for (field, timing) in &timed {
            let mut of_field = percentiles.map(field);
            for (name, share) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
                let us = timing.and_then(|timing| timing.quantile_us(share)).unwrap_or(0);
                of_field.key(name).number(us as f64 / 1000.0);
            }
        }
    }

    /// Quantiles of all that is timed, by what it is; of what has not happened yet there are none.
    fn write_durations(&self, durations: &mut MapWriter<'_>) {
        for (row, timing) in HISTOGRAMS.iter().zip(&self.timings) {
            let mut map = durations.map(row.field);
            for (_, share, field) in QUANTILES {
                if let Some(us) = timing.quantile_us(share) {
                    map.key(field).number(us as f64 / 1000.0);
                }
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
        head(&mut text, "build_info", "gauge", "1; its labels say which build this is");
        let label = format!(
            "{{version=\"{}\",arch=\"{}\"}}",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH
        );
        sample(&mut text, "build_info", &label, "1");
        let help = "1; its labels say which rules of time zones are in use, and whether they are the system's";
        head(&mut text, "time_zone_rules_info", "gauge", help);
        let rules = zone_rules();
        let label = format!("{{version=\"{}\",source=\"{}\"}}", rules.version(), rules.source());
        sample(&mut text, "time_zone_rules_info", &label, "1");
        let of_process: [(&str, &str, String); 5] = [
            ("shards", "Shards of the process", shards.to_string()),
            ("memory_bytes", "Resident memory of the process", memory_bytes.to_string()),
            ("uptime_seconds", "Time since the start", decimal(uptime_ms)),
            (
                CLOCK_AHEAD,
                "How far the server's time is ahead of the system's, which was set back",
                decimal(clock::ahead_ms()),
            ),
            (
                CLOCK_SET_BACK,
                "How far the clock was ahead when the log was written that this process started from",
                decimal(clock::set_back_ms()),
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
        for (name, help, value) in ACCOUNT_FAMILIES {
            head(&mut text, name, "gauge", help);
            for ((account, _), row) in ACCOUNTS.iter().zip(&self.accounts) {
                sample(&mut text, name, &format!("{{account=\"{account}\"}}"), &value(row));
            }
        }
        self.write_shards(&mut text);
        let begun = std::mem::take(&mut text);
        for (name, help, value) in TURN_FAMILIES {
            head(&mut text, name, "gauge", help);
            for row in &self.turns {
                let label = format!("{{shard=\"{}\",command=\"{}\"}}", row.shard, row.work.name());
                sample(&mut text, name, &label, &value(&row.longest));
            }
        }
        for (row, timing) in HISTOGRAMS.iter().zip(&self.timings) {
            let [in_seconds, summary_in_seconds] = row.in_seconds();
            for (family, summary, unit) in [
                (row.family, row.summary(), Unit::Milliseconds),
                (&in_seconds, summary_in_seconds, Unit::Seconds),
            ] {
                head(&mut text, family, "histogram", row.help);
                write_histogram(&mut text, family, timing, unit);
                head(&mut text, &summary, "summary", &format!("{}; since the start", row.help));
                write_summary(&mut text, &summary, timing, unit);
            }
        }
        MetricsText {
            head: begun,
            queues: QueuePieces::default(),
            tail: text,
            choice: Arc::default(),
            longest: LongestQueues::default(),
            few_queues: self.number("queues") <= WAITS_QUEUES_MAX,
            second: None,
        }
    }

    /// Some numbers of each shard.
    fn write_shards(&self, text: &mut String) {
        for family in SHARD_FAMILIES {
            let Some(place) = FAMILIES.iter().position(|(name, ..)| name == family) else {
                continue;
            };
            let name = format!("shard_{family}");
            head(text, &name, "gauge", &format!("{}; of each shard", FAMILIES[place].2));
            for (shard, numbers) in &self.shards {
                sample(text, &name, &format!("{{shard=\"{shard}\"}}"), &numbers[place].to_string());
            }
        }
    }
}

/// In what a family counts time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Milliseconds,
    Seconds,
}

impl Unit {
    /// Writes so many microseconds in this unit.
    fn of_us(self, us: u64) -> String {
        match self {
            Self::Milliseconds => decimal(us),
            Self::Seconds => {
                let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
                text.trim_end_matches('0').trim_end_matches('.').to_string()
            }
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP corq_{name} {help}.\n# TYPE corq_{name} {kind}");
}

fn write_histogram(text: &mut String, name: &str, timing: &Timing, unit: Unit) {
    let buckets = timing.buckets();
    let bucket = format!("{name}_bucket");
    let mut so_far = 0;
    for (place, count) in buckets.counts.iter().enumerate() {
        so_far += count;
        let edge = EDGES_US.get(place).map_or("+Inf".to_string(), |&edge| unit.of_us(edge));
        sample(text, &bucket, &format!("{{le=\"{edge}\"}}"), &so_far.to_string());
    }
    write_sum(text, name, timing, unit);
}

fn write_summary(text: &mut String, name: &str, timing: &Timing, unit: Unit) {
    for (label, share, _) in QUANTILES {
        if let Some(us) = timing.quantile_us(share) {
            sample(text, name, &format!("{{quantile=\"{label}\"}}"), &unit.of_us(us));
        }
    }
    write_sum(text, name, timing, unit);
}

fn write_sum(text: &mut String, name: &str, timing: &Timing, unit: Unit) {
    sample(text, &format!("{name}_sum"), "", &unit.of_us(timing.buckets().sum_us));
    sample(text, &format!("{name}_count"), "", &timing.count().to_string());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use corq_shards::queue::Queue;
    use corq_shards::stats::queue_times::QueueTimes;

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
        let mut waits = QueueTimes::default();
        for waited_ms in [50, 700, 90_000_000] {
            waits.note(waited_ms, 1);
        }
        let name = "we\"ird\\na\nme".into();
        let mut queue = Queue::default();
        (queue.name, queue.waits) = (name, Some(Box::new(waits)));
        lines.write(&queue, 1_500, true);
        assert_eq!((lines.rows(), text.add_queues(&lines)), (1, lines.bytes()));
        let text = String::from_utf8(text.take_pieces().concat()).unwrap();
        for line in [
            "# HELP corq_jobs_pushed_total Jobs pushed since the start.",
            "# TYPE corq_jobs_pushed_total counter",
            "corq_jobs_pushed_total 7",
            "# TYPE corq_queue_jobs_dlq gauge",
            r#"corq_queue_jobs_waiting{queue="we\"ird\\na\nme"} 0"#,
            r#"corq_queue_jobs_dlq{queue="we\"ird\\na\nme"} 0"#,
            r#"corq_queue_paused{queue="we\"ird\\na\nme"} 0"#,
            r#"corq_queue_oldest_waiting_seconds{queue="we\"ird\\na\nme"} 1.5"#,
            "# TYPE corq_queue_wait_seconds histogram",
            r#"corq_queue_wait_seconds_bucket{queue="we\"ird\\na\nme",le="0.1"} 1"#,
            r#"corq_queue_wait_seconds_bucket{queue="we\"ird\\na\nme",le="86400"} 2"#,
            r#"corq_queue_wait_seconds_bucket{queue="we\"ird\\na\nme",le="+Inf"} 3"#,
            r#"corq_queue_wait_seconds_sum{queue="we\"ird\\na\nme"} 90000.75"#,
            r#"corq_queue_wait_seconds_count{queue="we\"ird\\na\nme"} 3"#,
            r#"corq_push_duration_seconds_bucket{le="0.0001"} 2"#,
            r#"corq_push_duration_seconds_bucket{le="60"} 3"#,
            "corq_push_duration_seconds_sum 90.00258",
            r#"corq_push_duration_quantiles_seconds{quantile="0.5"} 0.00009"#,
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
    fn all_metrics_come_under_a_second_prefix_as_well_if_there_is_one() {
        let mut text = metrics().text(2, 4096, 1_500, None).with(Some("other_".into()));
        let mut lines = QueueLines::default();
        for name in ["a", "b"] {
            let mut queue = Queue::default();
            queue.name = name.into();
            lines.write(&queue, 0, true);
        }
        let bytes = text.add_queues(&lines);
        assert!(bytes > 2 * lines.bytes(), "both are counted");
        let text = String::from_utf8(text.take_pieces().concat()).unwrap();
        let (first, second) = text.split_at(text.find("# HELP other_").unwrap());
        let again: Vec<String> =
            first.lines().map(|line| line.replacen("corq_", "other_", 1)).collect();
        assert_eq!(again, second.lines().collect::<Vec<_>>());
        assert!(second.contains("other_queue_jobs_waiting{queue=\"b\"} 0\n"), "{second}");
    }

    #[test]
    fn shares_add_up() {
        let of_shard = |bytes, fullest| {
            let mut metrics = metrics();
            metrics.accounts[0] = AccountRow { bytes, limit_bytes: 100, fullest };
            metrics
        };
        let mut sum = of_shard(90, 0.9);
        sum.add(&of_shard(20, 0.2));
        assert_eq!(sum.number("jobs_pushed_total"), 14);
        let text = String::from_utf8(sum.text(2, 0, 0, None).take_pieces().concat()).unwrap();
        for (family, value) in
            [("bytes", "110"), ("limit_bytes", "200"), ("fullest_ratio", "0.900")]
        {
            let line = format!("corq_client_memory_{family}{{account=\"input\"}} {value}");
            assert!(text.lines().any(|it| it == line), "{line}");
        }
    }
}
