//! `history`, `heatmap` and `shards`: what happened, and how busy the cores are.

use clap::Args;

use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Output, Style, Table};
use super::request::{Fields, Request};
use super::value::Value;
use super::words::{self, milliseconds};
use crate::api::commands::Op;

/// A span of the last day.
#[derive(Args, Debug)]
struct Span {
    /// Length of a point: 10s or a multiple of it (milliseconds, or 1m, 1h ...)
    #[arg(long, value_parser = milliseconds, value_name = "TIME")]
    step: Option<i64>,
    /// End this long ago, instead of now
    #[arg(long, value_parser = milliseconds, value_name = "TIME")]
    ago: Option<i64>,
}

impl Span {
    fn write(&self, fields: &mut Fields, points: i64) {
        fields.integer_if("step", self.step);
        fields.integer("points", points);
        fields.integer_if("until", self.ago.map(|ago| (Output::now_ms() - ago).max(0)));
    }
}

/// Arguments of `history`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    corq history                           # of the whole server, the last 5 minutes\n  \
    corq history emails --step 1m --points 60\n  \
    corq history emails --step 10m --ago 12h --json")]
pub struct History {
    /// Name of the queue; else the whole server
    queue: Option<String>,
    #[command(flatten)]
    span: Span,
    /// Number of points
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 30)]
    points: i64,
}

/// Arguments of `heatmap`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    corq heatmap                           # of the whole server, the last 10 minutes\n  \
    corq heatmap emails --step 10m --points 72\n  \
    corq heatmap --shard 0")]
pub struct Heatmap {
    /// Name of the queue; else the whole server
    queue: Option<String>,
    /// Only this shard
    #[arg(long, allow_negative_numbers = true, value_name = "N", conflicts_with = "queue")]
    shard: Option<i64>,
    #[command(flatten)]
    span: Span,
    /// Number of points, each a column
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 60)]
    points: i64,
}

/// Arguments of `shards`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  corq shards\n  corq shards --json")]
pub struct Shards {}

/// Answer for a queue without a history.
const UNTRACKED: &str = "there is no history of this queue: it has none of the busiest 1000 of its shard, or no job yet";

/// The series of a history: field, head, whether it is a length of time.
const SERIES: [(&str, &str, bool); 8] = [
    ("pushed", ">PUSHED", false),
    ("completed", ">COMPLETED", false),
    ("failed", ">FAILED", false),
    ("waiting", ">WAITING", false),
    ("waitP50", ">WAIT P50", true),
    ("waitP99", ">WAIT P99", true),
    ("runP50", ">RUN P50", true),
    ("runP99", ">RUN P99", true),
];

/// A point a row.
pub fn history(context: &mut Context, history: &History) -> Result<(), Failure> {
    let request = Request::new(Op::History).with(|fields| {
        fields.text_if("queue", history.queue.as_deref());
        history.span.write(fields, history.points);
    });
    context.ask(request, |out, reply| {
        let told = reply.get("data");
        if !told.get("tracked").is_true() {
            return out.line(UNTRACKED);
        }
        let heads: Vec<&'static str> =
            ["TIME"].into_iter().chain(SERIES.map(|(_, head, _)| head)).collect();
        let mut table = Table::new(&heads);
        let columns = SERIES.map(|(field, ..)| {
            told.get("series").get(field).items().map(Value::integer).collect::<Vec<_>>()
        });
        let (from_ms, step_ms) = (told.get("from").count(), told.get("step").count());
        for point in 0..told.get("points").count() {
            let values =
                columns.each_ref().map(|column| column.get(point as usize).copied().flatten());
            // Before the start of the server, or of the queue.
            if values.iter().all(Option::is_none) {
                continue;
            }
            let at_ms = from_ms + point * step_ms;
            let mut row = vec![Cell::from(words::date(at_ms.cast_signed()))];
            row.extend(values.iter().zip(SERIES).map(|(value, (.., is_time))| match value {
                None => Cell::styled("-", Style::Dim),
                Some(length_ms) if is_time => words::duration(*length_ms).into(),
                Some(count) => count.to_string().into(),
            }));
            table.row(row);
        }
        if table.is_empty() { out.line("nothing is known of that time") } else { out.table(&table) }
    })
}

/// The least waiting time of each row of a heat map, and its name.
const LENGTHS: [(u64, &str); 9] = [
    (0, "0"),
    (1, "1 ms"),
    (10, "10 ms"),
    (100, "100 ms"),
    (1_000, "1 s"),
    (10_000, "10 s"),
    (60_000, "1 min"),
    (600_000, "10 min"),
    (3_600_000, "1 h"),
];

/// From few jobs to many.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];

/// A waiting time a row, the longest first, and a point a column.
pub fn heatmap(context: &mut Context, heatmap: &Heatmap) -> Result<(), Failure> {
    let request = Request::new(Op::Heatmap).with(|fields| {
        fields.text_if("queue", heatmap.queue.as_deref());
        fields.integer_if("shard", heatmap.shard);
        heatmap.span.write(fields, heatmap.points);
    });
    context.ask(request, |out, reply| {
        let told = reply.get("data");
        if !told.get("tracked").is_true() {
            return out.line(UNTRACKED);
        }
        let columns = by_length(told);
        let all = columns.iter().flatten().flatten();
        let Some(most) = all.copied().max().filter(|most| *most > 0) else {
            return out.line("no job was delivered in that time");
        };
        let used = |row: &usize| columns.iter().flatten().any(|counts| counts[*row] > 0);
        let last = (0..LENGTHS.len()).rev().find(used).unwrap_or(0);
        for row in (0..=last).rev() {
            let cells: String = columns
                .iter()
                .map(|counts| counts.map_or(' ', |it| shade(it[row], most)))
                .collect();
            out.line(&format!("{:>7}  {cells}", LENGTHS[row].1))?;
        }
        let from_ms = told.get("from").count();
        let length_ms = told.get("step").count() * told.get("points").count();
        out.line(&format!(
            "{:>7}  from {} to {}; a column is {}, █ up to {most} jobs",
            "",
            words::date(from_ms.cast_signed()),
            words::date((from_ms + length_ms).cast_signed()),
            words::duration(told.get("step").count().cast_signed()),
        ))
    })
}

/// The columns of a heat map, each with its jobs by the rows of [`LENGTHS`]; none where nothing is known.
fn by_length(told: Value<'_>) -> Vec<Option<[u64; LENGTHS.len()]>> {
    let buckets: Vec<usize> = told
        .get("buckets")
        .items()
        .map(|least| LENGTHS.partition_point(|(least_ms, _)| *least_ms <= least.count()) - 1)
        .collect();
    let column = |counts: Value<'_>| {
        if counts.is_nil() {
            return None;
        }
        let mut rows = [0; LENGTHS.len()];
        for (row, count) in buckets.iter().zip(counts.items()) {
            rows[*row] += count.count();
        }
        Some(rows)
    };
    told.get("columns").items().map(column).collect()
}

/// How many jobs there were, by the number of digits rather than by the number: few are to be seen beside many.
fn shade(count: u64, most: u64) -> char {
    if count == 0 {
        return '·';
    }
    let share = (count as f64).ln_1p() / (most.max(1) as f64).ln_1p();
    SHADES[((share * 4.0).ceil() as usize).clamp(1, 4) - 1]
}

/// A shard a row.
pub fn shards(context: &mut Context) -> Result<(), Failure> {
    context.ask(Request::new(Op::Shards), |out, reply| {
        let mut table = Table::new(&[
            ">SHARD",
            ">LOAD",
            ">CONNECTIONS",
            ">QUEUES",
            ">WAITING",
            ">ACTIVE",
            ">DELAYED",
            ">PUSHED/S",
            ">PULLED/S",
            ">LOG",
            "LONGEST TURN",
        ]);
        for shard in reply.get("data").get("shards").items() {
            let count = |field: &str| Cell::from(shard.get(field).count().to_string());
            let load = shard.get("load").number().unwrap_or(0.0) * 100.0;
            let style = if load > 90.0 { Style::Warn } else { Style::Plain };
            let turn = shard.get("longestTurn");
            let turn_ms = words::figure(turn.get("ms").number().unwrap_or(0.0));
            let command = turn.get("command").text().filter(|command| !command.is_empty());
            table.row(vec![
                count("shard"),
                Cell::styled(format!("{load:.0} %"), style),
                count("connections"),
                count("queues"),
                count("waiting"),
                count("active"),
                count("delayed"),
                words::figure(shard.get("pushPerSec").number().unwrap_or(0.0)).into(),
                words::figure(shard.get("pullPerSec").number().unwrap_or(0.0)).into(),
                words::bytes(shard.get("log").get("diskBytes").count() as f64).into(),
                command.map_or_else(|| "-".into(), |name| format!("{turn_ms} ms, {name}").into()),
            ]);
        }
        out.table(&table)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_jobs_the_darker_and_few_are_seen_beside_many() {
        assert_eq!(shade(0, 1000), '·');
        assert_eq!(shade(1, 1_000_000), '░');
        assert_eq!((shade(1000, 1000), shade(1, 1)), ('█', '█'));
        let shades: Vec<char> = [1, 10, 100, 1000].map(|count| shade(count, 1000)).into();
        assert_eq!(shades, ['░', '▒', '▓', '█']);
    }
}
