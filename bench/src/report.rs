//! The account of a run, for people (`text`) and for scripts (`json`).

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::options::Workload;
use crate::peer;
use crate::phase::{Plan, Waiting, missed_rate};
use crate::process::Spent;
use crate::seen::Seen;
use crate::tally::Tally;

/// An open loop may end later than its last push was due by this part of its time, and by this many seconds.
const LATE_PART_MAX: f64 = 0.05;
const LATE_S_MIN: f64 = 0.5;
/// Part of the time that the generator's thread may work before it is what limits the rate.
const BUSY_MAX: f64 = 0.9;

/// Settings and figures of a run.
pub(crate) struct Report {
    pub(crate) server: String,
    pub(crate) own_cpu_us: f64,
    /// The server's process and what it used, where it was found.
    pub(crate) process: Option<(u32, Spent)>,
    /// Why the figures must not be believed; empty for a sound run.
    pub(crate) problems: Vec<String>,
    workload: &'static str,
    settings: Vec<(&'static str, Value)>,
    prefill: u64,
    tally: Tally,
    verified: Option<String>,
    /// How an open loop missed its rate.
    rate_missed: Option<String>,
    /// Sums of the listeners, if there were any.
    heard: Option<Value>,
}

impl Report {
    pub(crate) fn new(workload: &Workload, window: u32, prefill: u64, tally: Tally) -> Self {
        let options = workload.options();
        let mut settings = vec![
            ("connections", json!(options.connections)),
            ("queues", json!(options.queues)),
            ("window", json!(window)),
            ("batch", json!(workload.batch())),
            ("payload_bytes", json!(options.payload_bytes)),
            ("noise_bytes", json!(options.noise_bytes)),
            ("durable", json!(options.durable)),
            ("owner", json!(options.owner)),
            ("spread", json!(options.spread)),
            ("prefill", json!(prefill)),
        ];
        if matches!(workload, Workload::Open(_)) {
            settings.push(("rate", json!(options.rate)));
        }
        Self {
            server: String::new(),
            own_cpu_us: 0.0,
            process: None,
            problems: Vec::new(),
            workload: workload.name(),
            settings,
            prefill,
            tally,
            verified: None,
            rate_missed: None,
            heard: None,
        }
    }

    /// Compares what was pushed with what came back.
    pub(crate) fn check(&mut self, seen: &Seen, plan: &Plan) {
        if let Some(text) = self.tally.cut_short.clone() {
            // Jobs that were on their way then are not lost.
            self.rate_missed = self.tally.rate_missed.then(|| text.clone());
            self.problems.push(text);
            return;
        }
        if self.tally.errors > 0 {
            let first = self.tally.first_error.as_deref().unwrap_or("without a text");
            self.problems.push(format!("{} errors, the first: {first}", self.tally.errors));
        }
        if seen.twice > 0 {
            self.problems.push(format!("{} jobs were received twice", seen.twice));
        }
        if seen.strange > 0 {
            self.problems.push(format!("{} jobs were received that nobody pushed", seen.strange));
        }
        if self.tally.received == 0 && plan.producers > 0 && plan.waiting == Waiting::Stocked {
            return;
        }
        let by_time = plan.stop_after_ns.is_some();
        let expected = match plan.waiting {
            Waiting::LongPoll { .. } => self.tally.pushed + self.prefill,
            Waiting::Stocked if by_time => self.tally.received,
            Waiting::Stocked => plan.jobs_to_take.min(self.prefill),
        };
        if plan.waiting == Waiting::Stocked && seen.received < expected {
            let missing = expected - seen.received;
            self.problems.push(format!("{missing} of {expected} jobs never came"));
        }
        // Workers beside producers stop at the count of their own; a backlog is theirs to leave.
        let waits = plan.waiting != Waiting::Stocked;
        if waits && self.prefill == 0 && seen.received != expected {
            let text = format!("{} of {expected} jobs were received", seen.received);
            self.problems.push(text);
        }
        if self.tally.acked != self.tally.received {
            let (acked, received) = (self.tally.acked, self.tally.received);
            self.problems.push(format!("{acked} of {received} received jobs were acknowledged"));
        }
        if self.problems.is_empty() {
            self.verified = Some(format!("{} jobs, each received exactly once", seen.received));
        }
        // Jobs that came late came nevertheless.
        self.check_rate(plan);
    }

    /// An open loop that ended late has missed its rate.
    fn check_rate(&mut self, plan: &Plan) {
        let Some(rate) = plan.rate.filter(|_| !plan.delayed) else { return };
        let due_s = self.tally.pushed as f64 / rate;
        let late_s = self.tally.span_ns as f64 / 1e9 - due_s;
        if late_s > (due_s * LATE_PART_MAX).max(LATE_S_MIN) {
            let text = missed_rate(self.jobs_per_second(), rate, late_s);
            self.rate_missed = Some(text.clone());
            self.problems.push(text);
        }
    }

    /// Whether the run ended before its time.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.tally.cut_short.is_some()
    }

    /// Compares what was pushed beforehand with what was received and what still waits, where time ended the taking.
    pub(crate) fn check_left(&mut self, seen: &Seen, waiting: u64) {
        let there = seen.received + waiting;
        if there < self.prefill {
            let (missing, prefill) = (self.prefill - there, self.prefill);
            self.verified = None;
            self.problems.push(format!("{missing} of {prefill} jobs neither came nor wait"));
        }
    }

    /// Compares what was pushed with what the queues hold.
    pub(crate) fn check_count(&mut self, waiting: u64) {
        let expected = self.tally.pushed + self.prefill;
        if waiting != expected {
            self.problems.push(format!("{expected} jobs were pushed, {waiting} are counted"));
        } else if self.problems.is_empty() {
            self.verified = Some(format!("the queues hold all {waiting} jobs"));
        }
    }

    /// Takes what listeners have heard.
    pub(crate) fn check_listeners(&mut self, heard: Option<Value>) {
        if let Some(early @ 1..) = heard.as_ref().and_then(|heard| heard["ended_early"].as_u64()) {
            self.problems.push(format!("{early} streams of events ended early"));
        }
        self.heard = heard;
    }

    pub(crate) fn jobs_per_second(&self) -> f64 {
        self.tally.done() as f64 / (self.tally.span_ns as f64 / 1e9)
    }

    /// Server CPU time per job, in microseconds.
    pub(crate) fn cpu_us_per_job(&self) -> Option<f64> {
        self.process.as_ref().map(|(_, spent)| self.per_job(spent.cpu_us))
    }

    pub(crate) fn own_us_per_job(&self) -> f64 {
        self.per_job(self.own_cpu_us)
    }

    /// Remarks that a reader of the figures should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let seconds = self.tally.span_ns as f64 / 1e9;
        if seconds < 1.0 {
            notes.push(format!("a run of {seconds:.2} s: figures vary below 1 s, see --seconds"));
        }
        notes.extend(self.limit());
        notes
    }

    /// Says so if the generator could do no more.
    pub(crate) fn limit(&self) -> Option<String> {
        let busy = self.own_cpu_us / (self.tally.span_ns as f64 / 1e3);
        let percent = (busy * 100.0).min(100.0);
        (busy > BUSY_MAX).then(|| {
            format!(
                "the generator was busy for {percent:.0} % of the time: it is the limit of jobs/s, \
                 not the server"
            )
        })
    }

    fn per_job(&self, amount: f64) -> f64 {
        amount / (self.tally.done().max(1) as f64)
    }

    fn histograms(&self) -> Vec<(&'static str, &Histogram<u64>)> {
        let tally = &self.tally;
        // A pull that waited at the server for a job says nothing about the server.
        let pulls = matches!(self.workload, "worker" | "drain");
        let all = [
            ("push", &tally.push_trip, true),
            ("pull", &tally.pull_trip, pulls),
            ("ack", &tally.ack_trip, true),
            ("push_to_receipt", &tally.push_to_receipt, true),
            ("send_lag", &tally.send_lag, true),
        ];
        let said = all.into_iter().filter(|(_, histogram, say)| *say && !histogram.is_empty());
        said.map(|(key, histogram, _)| (key, histogram)).collect()
    }

    fn label(&self, key: &str) -> String {
        let open = self.workload == "open";
        match key {
            "push_to_receipt" => "push to receipt, from the intended send time".to_owned(),
            "send_lag" => "  of which the generator sent late".to_owned(),
            key if open => format!("round trip {key}"),
            key => format!("round trip {key}, closed loop"),
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let mut line = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name:<46} {value}");
        };
        line(self.workload, self.server.clone());
        line("settings", settings.join(", "));
        let seconds = self.tally.span_ns as f64 / 1e9;
        let rate = self.jobs_per_second();
        line("jobs", format!("{} in {seconds:.3} s, {rate:.0} jobs/s", self.tally.done()));
        for (key, histogram) in self.histograms() {
            line(&self.label(key), quantiles_text(histogram));
        }
        if let Some((pid, spent)) = &self.process {
            line("server process", format!("{pid} ({})", peer::name_of(*pid)));
            let (cpu, user) = (self.per_job(spent.cpu_us), self.per_job(spent.user_us));
            line("server CPU", format!("{cpu:.3} us per job, of which {user:.3} in user space"));
            line("server memory", memory_text(spent, self.rss_per_job(spent)));
        } else {
            line("server CPU", "unknown: its process was not found here, see --pid".to_owned());
        }
        line("generator CPU", format!("{:.3} us per job", self.per_job(self.own_cpu_us)));
        if let Some(heard) = &self.heard {
            line("listeners", heard.to_string());
        }
        if self.tally.empty_pulls > 0 {
            line("pulls that found nothing", self.tally.empty_pulls.to_string());
        }
        if let Some(verified) = &self.verified {
            line("verified", verified.clone());
        }
        for note in self.notes() {
            line("note", note);
        }
        for problem in &self.problems {
            line("PROBLEM", problem.clone());
        }
        out
    }

    fn rss_per_job(&self, spent: &Spent) -> f64 {
        self.per_job(spent.rss_bytes_after as f64 - spent.rss_bytes_before as f64)
    }

    /// For scripts.
    pub(crate) fn json(&self) -> Value {
        let settings: serde_json::Map<String, Value> =
            self.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let times: serde_json::Map<String, Value> = self
            .histograms()
            .into_iter()
            .map(|(key, histogram)| (format!("{key}_us"), quantiles_json(histogram)))
            .collect();
        let server = self.process.as_ref().map(|(pid, spent)| {
            json!({
                "pid": pid,
                "cpu_us_per_job": self.per_job(spent.cpu_us),
                "user_us_per_job": self.per_job(spent.user_us),
                "rss_bytes_before": spent.rss_bytes_before,
                "rss_bytes_after": spent.rss_bytes_after,
                "rss_bytes_per_job": self.rss_per_job(spent),
            })
        });
        json!({
            "workload": self.workload,
            "server": self.server,
            "settings": settings,
            "jobs": self.tally.done(),
            "seconds": self.tally.span_ns as f64 / 1e9,
            "jobs_per_second": self.jobs_per_second(),
            "times": times,
            "closed_loop": self.workload != "open",
            "server_process": server,
            "generator_cpu_us_per_job": self.per_job(self.own_cpu_us),
            "heard": self.heard,
            "empty_pulls": self.tally.empty_pulls,
            "errors": self.tally.errors,
            "first_error": self.tally.first_error,
            "verified": self.verified,
            "rate_missed": self.rate_missed,
            "notes": self.notes(),
            "problems": self.problems,
        })
    }
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

fn quantiles_text(histogram: &Histogram<u64>) -> String {
    let mut text = String::new();
    for (name, quantile) in QUANTILES {
        let value = histogram.value_at_quantile(quantile) as f64 / 1e3;
        let _ = write!(text, "{name} {value:.1}  ");
    }
    let _ = write!(text, "max {:.1} us", histogram.max() as f64 / 1e3);
    text
}

fn quantiles_json(histogram: &Histogram<u64>) -> Value {
    let mut times: serde_json::Map<String, Value> = QUANTILES
        .iter()
        .map(|(name, quantile)| {
            ((*name).to_owned(), json!(histogram.value_at_quantile(*quantile) as f64 / 1e3))
        })
        .collect();
    times.insert("max".to_owned(), json!(histogram.max() as f64 / 1e3));
    times.insert("count".to_owned(), json!(histogram.len()));
    Value::Object(times)
}

fn memory_text(spent: &Spent, per_job: f64) -> String {
    let megabytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "{:.1} MB before, {:.1} MB after, {per_job:.0} B per job",
        megabytes(spent.rss_bytes_before),
        megabytes(spent.rss_bytes_after)
    )
}
