//! `quick`: the standard workloads on a running server, in rounds, and a table of them like README's.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::control::Control;
use crate::options::{self, Quick};
use crate::report::Report;
use crate::{machine, peer};

/// The rows of the table, and the command lines that they are measured with.
const ROWS: [(&str, &str); 6] = [
    ("PUSH, 1 in flight", "push --window 1"),
    ("PULL + ACK, 1 in flight", "worker --window 1"),
    ("PUSH, 50 in flight", "push --window 50"),
    ("PULL + ACK, 25 in flight", "worker --window 25"),
    ("PUSHB 100", "push-batch --batch 100"),
    ("PULLB + ACKB 100", "drain --batch 100"),
];
/// Runs that are not counted: the first ones find cold caches, no memory taken and a slow clock of the CPU.
const WARM_UP: [&str; 2] = ["push --window 50", "worker --window 25"];
/// Part of the whole time for all of them.
const WARM_UP_PART: f64 = 0.08;
/// Part of a run's time that is measured; pushing beforehand and removing the queues take the rest.
const PUSHING_PART: f64 = 0.75;
const TAKING_PART: f64 = 0.55;

/// Figures of all workloads, and where they were measured.
pub(crate) struct Table {
    server: String,
    machine: String,
    rounds: u32,
    seconds: f64,
    rows: Vec<Row>,
    notes: Vec<String>,
    problems: Vec<String>,
}

/// Figures of a workload in all rounds.
#[derive(Default)]
struct Row {
    cpu_us: Vec<f64>,
    jobs_per_second: Vec<f64>,
    own_us: Vec<f64>,
}

/// Runs all of it. A server that ends meanwhile ends it, with the figures so far.
pub(crate) fn run(quick: &Quick) -> Result<Table, String> {
    let begun = Instant::now();
    let whole = Duration::from_secs(u64::from(quick.seconds));
    let mut table = Table {
        server: server(quick)?,
        machine: machine::describe(),
        rounds: quick.rounds,
        seconds: 0.0,
        rows: ROWS.iter().map(|_| Row::default()).collect(),
        notes: Vec::new(),
        problems: Vec::new(),
    };
    for line in WARM_UP {
        eprintln!("warm-up: {line}");
        let seconds = whole.as_secs_f64() * WARM_UP_PART / WARM_UP.len() as f64;
        let report = measure(quick, line, seconds)?;
        table.take(line, &report, None);
    }
    let mut runs_left = quick.rounds * ROWS.len() as u32;
    for round in 1..=quick.rounds {
        eprintln!("round {round} of {}", quick.rounds);
        for (index, (name, line)) in ROWS.iter().enumerate() {
            if !table.problems.is_empty() {
                return Ok(table);
            }
            let share = whole.saturating_sub(begun.elapsed()).as_secs_f64() / f64::from(runs_left);
            runs_left -= 1;
            let report = measure(quick, line, share)?;
            table.take(name, &report, Some(index));
        }
    }
    table.seconds = begun.elapsed().as_secs_f64();
    let each = table.seconds * PUSHING_PART / f64::from(quick.rounds * ROWS.len() as u32);
    if each < 1.0 {
        table.notes.push(format!("each run took about {each:.1} s: --seconds 120 varies less"));
    }
    Ok(table)
}

/// Runs a workload within so many seconds.
fn measure(quick: &Quick, line: &str, seconds: f64) -> Result<Report, String> {
    let mut workload = options::workload(line, &quick.target)?;
    let part = if workload.takes() { TAKING_PART } else { PUSHING_PART };
    workload.options_mut().seconds = Some((seconds * part).max(0.05));
    crate::run(&workload)
}

/// The server, and its settings as far as they can be seen.
fn server(quick: &Quick) -> Result<String, String> {
    let mut control = Control::new(crate::connect(&quick.target)?);
    let mut parts = vec![control.server()?, format!("at {}", quick.target.address())];
    if let Some(shards) = control.shards() {
        parts.push(format!("shards {shards}"));
    }
    match quick.target.pid.or_else(|| control.process()) {
        None => parts.push("its process and settings unknown (see --pid)".to_owned()),
        Some(pid) => {
            parts.push(format!("process {pid} ({})", peer::name_of(pid)));
            let settings = peer::settings_of(pid);
            let none = "no settings by variables or options".to_owned();
            parts.push(if settings.is_empty() { none } else { settings.join(" ") });
        }
    }
    Ok(parts.join(", "))
}

impl Table {
    /// Whether every run was without a problem.
    pub(crate) fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// Takes what a run came to: figures for its row, if it has one, and what is to be known of it.
    fn take(&mut self, name: &str, report: &Report, row: Option<usize>) {
        self.problems.extend(report.problems.iter().map(|problem| format!("{name}: {problem}")));
        let Some(row) = row else { return };
        let row = &mut self.rows[row];
        row.cpu_us.extend(report.cpu_us_per_job());
        row.jobs_per_second.push(report.jobs_per_second());
        row.own_us.push(report.own_us_per_job());
        if let Some(limit) = report.limit().filter(|_| row.own_us.len() == 1) {
            self.notes.push(format!("{name}: {limit}"));
        }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{text}");
        };
        line(self.machine.clone());
        line(self.server.clone());
        line(format!(
            "{} rounds in {:.1} s after a warm-up; 4 connections, 4 queues, 100-byte payloads; batches 1 in flight.",
            self.rounds, self.seconds
        ));
        line("Median (least–most). us = server CPU microseconds per job.\n".to_owned());
        line("| work | us | jobs/s | generator us |\n|---|---|---|---|".to_owned());
        for ((name, _), row) in ROWS.iter().zip(&self.rows) {
            let (cpu, rate) = (spread(&row.cpu_us, 2), spread(&row.jobs_per_second, 0));
            line(format!("| {name} | {cpu} | {rate} | {} |", spread(&row.own_us, 2)));
        }
        line(String::new());
        self.notes.iter().for_each(|note| line(format!("note: {note}")));
        self.problems.iter().for_each(|problem| line(format!("PROBLEM: {problem}")));
        out
    }

    /// For scripts.
    pub(crate) fn json(&self) -> Value {
        let rows = ROWS.iter().zip(&self.rows).map(|((name, line), row)| {
            json!({
                "work": name,
                "arguments": line,
                "cpu_us_per_job": row.cpu_us,
                "jobs_per_second": row.jobs_per_second,
                "generator_cpu_us_per_job": row.own_us,
            })
        });
        json!({
            "machine": self.machine,
            "server": self.server,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "rows": rows.collect::<Vec<_>>(),
            "notes": self.notes,
            "problems": self.problems,
        })
    }
}

/// Median, least and most of some values.
fn spread(values: &[f64], decimals: usize) -> String {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return "–".to_owned();
    };
    let half = values.len() / 2;
    let median = f64::midpoint(values[half], values[(values.len() - 1) / 2]);
    format!("{median:.decimals$} ({least:.decimals$}–{most:.decimals$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_with_the_least_and_the_most() {
        assert_eq!(spread(&[3.0, 1.0, 2.5], 1), "2.5 (1.0–3.0)");
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0], 1), "2.5 (1.0–4.0)");
        assert_eq!(spread(&[], 1), "–");
    }
}
