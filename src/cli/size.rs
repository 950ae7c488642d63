//! `size`: which machine so many jobs need. Speaks to no server; its figures were measured, and `docs/tuning.md` says where
//! and how far they can be trusted.

use std::iter::successors;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::context::Context;
use super::failure::Failure;
use super::output::Cell;
use super::words;
use crate::api::limits::SHARDS_MAX;
use crate::config::client_memory_default_mb;
use crate::protocol::msgpack::writer::MapWriter;

/// Memory of a waiting job whose payload is on the disk, and more if it is delayed or has a priority of its own.
const JOB_BYTES: f64 = 92.0;
const DELAYED_JOB_BYTES: f64 = 108.0;
const PRIORITY_JOB_BYTES: f64 = 116.0;
/// Memory of a connection with a queue and jobs, and of a server that has none of all that, with a shard and for each.
const CONNECTION_BYTES: f64 = 3935.0;
const SERVER_BYTES: f64 = 22e6;
const SHARD_BYTES: f64 = 0.5e6;
/// Log bytes of a job besides its payload: until it is pushed, and from there until it is acknowledged.
const PUSH_LOG_BYTES: f64 = 63.0;
const END_LOG_BYTES: f64 = 76.0;
/// Log bytes that are kept for the end of each job.
const KEPT_LOG_BYTES: f64 = 149.0;
/// Files of the log, and how many of them a shard may have beside what it needs.
const SEGMENT_BYTES: f64 = 67_108_864.0;
const SEGMENTS_BESIDE_TWICE: f64 = 8.0;
const SEGMENTS_BESIDE_ENDS: f64 = 6.0;
/// Bytes that compaction writes again for each byte that is written first, at its busiest.
const WRITTEN_AGAIN: f64 = 1.6;
/// Seconds that a start takes for a GB of log on the disk: in the median, and at most.
const START_SECONDS_PER_GB: (f64, f64) = (0.62, 1.03);
/// CPU time of one job, pushed, pulled and acknowledged alone, by jobs per second: the fewer there are, the more of them
/// wake a core.
const WRITTEN_US: [(f64, f64); 3] = [(2_000.0, 133.0), (10_000.0, 69.0), (400_000.0, 4.2)];
/// CPU time of a job, as above, with `synced`: each sleep costs a sync, which fewer and fewer jobs share.
const SYNCED_US: [(f64, f64); 3] = [(2_000.0, 380.0), (10_000.0, 197.0), (400_000.0, 6.6)];
/// CPU time of a byte beyond the thousand that the figures above have.
const BYTE_US: f64 = 0.0048;
const PLAIN_PAYLOAD_BYTES: f64 = 1000.0;
/// How busy a core may be in the long run, so that bursts and compaction find time.
const BUSY_MAX: f64 = 0.5;
/// Files that a shard may have open beside those of clients, and that the process has anyway.
const FILES_OF_SHARD: f64 = 100.0;
const FILES_OF_PROCESS: f64 = 200.0;

/// Arguments of `size`.
#[derive(Args, Debug)]
pub struct Size {
    /// Jobs that wait at most: 1e7, 10M, 250k
    #[arg(long, value_name = "N", value_parser = number)]
    jobs: f64,
    /// Bytes of a payload: 256, 4KB
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    payload: f64,
    /// Jobs per second
    #[arg(long, value_name = "N", value_parser = number)]
    rate: f64,
    /// Guarantee of a reply: the server's DURABILITY
    #[arg(long, value_name = "CLASS", default_value = "written", value_parser = PossibleValuesParser::new(["written", "synced"]))]
    durability: String,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value = "100", value_parser = number)]
    connections: f64,
    /// Queues, each of which keeps completed jobs
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    queues: f64,
    /// Completed jobs kept per queue: the server's `COMPLETED_MAX`
    #[arg(long, value_name = "N", default_value = "50000", value_parser = number)]
    completed_max: f64,
    /// Memory for the newest payloads: the server's `PAYLOAD_CACHE_MB`
    #[arg(long, value_name = "MB", default_value = "256", value_parser = number)]
    payload_cache_mb: f64,
    /// Memory for what clients send and have yet to read: the server's `CLIENT_MEMORY_MB` [default: what the server takes
    /// unasked, an eighth of the memory within bounds]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    client_memory_mb: Option<u64>,
    /// All jobs are delayed, each until a time of its own
    #[arg(long)]
    delays: bool,
    /// Each job has a priority that no other has
    #[arg(long)]
    priorities: bool,
}

/// Machine that the jobs need.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Need {
    /// CPU time of all jobs of a second, in seconds.
    busy: f64,
    cores: f64,
    memory_bytes: f64,
    /// For clients, of all the memory.
    client_memory_mb: u64,
    disk_bytes: f64,
    /// Written in a second without compaction, and with it at its busiest.
    written_bytes: f64,
    written_most_bytes: f64,
    /// Of a start that reads the log from the disk.
    start_s: (f64, f64),
    open_files: f64,
}

impl Need {
    fn of(size: &Size) -> Self {
        let synced = size.durability == "synced";
        let beyond = (size.payload - PLAIN_PAYLOAD_BYTES).max(0.0);
        let job_us =
            at(if synced { &SYNCED_US } else { &WRITTEN_US }, size.rate) + beyond * BYTE_US;
        let busy = size.rate * job_us / 1e6;
        let cores = (busy / BUSY_MAX).ceil().max(1.0);
        let kept = size.completed_max * size.queues;
        let job_bytes = match (size.priorities, size.delays) {
            (true, _) => PRIORITY_JOB_BYTES,
            (false, true) => DELAYED_JOB_BYTES,
            (false, false) => JOB_BYTES,
        };
        let beside_bytes = SERVER_BYTES
            + SHARD_BYTES * cores
            + size.payload_cache_mb * megabytes(1)
            + size.jobs * job_bytes
            + kept * JOB_BYTES
            + size.connections * CONNECTION_BYTES;
        let client_memory_mb = client_memory_mb(size, shards_of(cores), beside_bytes);
        let pushed_bytes = size.payload + PUSH_LOG_BYTES;
        let live_bytes = size.jobs * pushed_bytes + kept * (pushed_bytes + END_LOG_BYTES);
        let twice = 2.0 * live_bytes + SEGMENTS_BESIDE_TWICE * SEGMENT_BYTES * cores;
        let ends = live_bytes
            + KEPT_LOG_BYTES * (size.jobs + kept)
            + SEGMENTS_BESIDE_ENDS * SEGMENT_BYTES * cores;
        let disk_bytes = twice.max(ends);
        let written_bytes = size.rate * (pushed_bytes + END_LOG_BYTES);
        let start = |per_gb: f64| 2.0 * live_bytes / 1e9 * per_gb;
        Self {
            busy,
            cores,
            memory_bytes: beside_bytes + megabytes(client_memory_mb),
            client_memory_mb,
            disk_bytes,
            written_bytes,
            written_most_bytes: written_bytes * (1.0 + WRITTEN_AGAIN),
            start_s: (start(START_SECONDS_PER_GB.0), start(START_SECONDS_PER_GB.1)),
            open_files: size.connections + FILES_OF_SHARD * cores + FILES_OF_PROCESS,
        }
    }

    fn pairs(&self, size: &Size) -> Vec<(&'static str, Cell)> {
        let (least, most) = self.start_s;
        vec![
            (
                "cores",
                format!(
                    "{:.0}, which are busy for {} of the time",
                    self.cores,
                    percent(self.busy / self.cores)
                )
                .into(),
            ),
            (
                "memory",
                format!(
                    "{}, {} of it for clients",
                    words::bytes(self.memory_bytes),
                    words::bytes(megabytes(self.client_memory_mb))
                )
                .into(),
            ),
            ("disk", words::bytes(self.disk_bytes).into()),
            (
                "written per second",
                format!(
                    "{}, up to {} beside compaction",
                    words::bytes(self.written_bytes),
                    words::bytes(self.written_most_bytes)
                )
                .into(),
            ),
            (
                "a start takes",
                format!("{} to {} s", words::figure(least), words::figure(most)).into(),
            ),
            ("open files", format!("{:.0}", self.open_files).into()),
            (
                "settings",
                format!(
                    "SHARDS={:.0} DURABILITY={} PAYLOAD_CACHE_MB={:.0} CLIENT_MEMORY_MB={}",
                    self.cores, size.durability, size.payload_cache_mb, self.client_memory_mb
                )
                .into(),
            ),
        ]
    }

    fn json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut map = MapWriter::begin(&mut out);
        let (least, most) = self.start_s;
        let figures = [
            ("cores", self.cores),
            ("busyCores", self.busy),
            ("memoryBytes", self.memory_bytes.ceil()),
            ("clientMemoryBytes", megabytes(self.client_memory_mb)),
            ("diskBytes", self.disk_bytes.ceil()),
            ("writtenBytesPerSec", self.written_bytes.ceil()),
            ("writtenBytesPerSecMax", self.written_most_bytes.ceil()),
            ("startSeconds", least),
            ("startSecondsMax", most),
            ("openFiles", self.open_files),
        ];
        map.key("ok").bool(true);
        for (name, figure) in figures {
            map.key(name).number(figure);
        }
        drop(map);
        out
    }
}

/// Says what they need.
pub fn run(context: &mut Context, size: &Size) -> Result<(), Failure> {
    let need = Need::of(size);
    let shards = shards_of(need.cores);
    let least = client_memory_default_mb(shards, 0);
    if need.client_memory_mb < least {
        return Err(Failure::Usage(format!(
            "--client-memory-mb {} is too little for {shards} shards: it must be at least {least}",
            need.client_memory_mb
        )));
    }
    if context.target.json {
        return context.out.json(&need.json());
    }
    Ok(context.out.pairs(&need.pairs(size))?)
}

/// Shards of a server with so many cores.
fn shards_of(cores: f64) -> usize {
    (cores as usize).min(SHARDS_MAX.into())
}

/// Memory of the clients in MB: what is asked for, or what a server takes unasked on the smallest machine that has room for
/// that and for what it needs beside it.
fn client_memory_mb(size: &Size, shards: usize, beside_bytes: f64) -> u64 {
    let beside_mb = (beside_bytes / megabytes(1)).ceil() as u64;
    let unasked =
        |size_mb: &u64| client_memory_default_mb(shards, beside_mb.saturating_add(*size_mb));
    // Each step adds an eighth of what the step before added.
    let steps = successors(Some(unasked(&0)), |it| Some(unasked(it)).filter(|more| more > it));
    size.client_memory_mb.unwrap_or_else(|| steps.last().unwrap_or_default())
}

fn megabytes(count: u64) -> f64 {
    count as f64 * f64::from(1 << 20)
}

/// The value at a place between points whose logarithms lie on lines.
fn at(points: &[(f64, f64)], place: f64) -> f64 {
    let (first, last) = (points[0], points[points.len() - 1]);
    let place = place.clamp(first.0, last.0);
    let above = points.iter().position(|(to, _)| place <= *to).unwrap_or(points.len() - 1).max(1);
    let ((from, least), (to, most)) = (points[above - 1], points[above]);
    let part = (place / from).ln() / (to / from).ln();
    least * (most / least).powf(part)
}

fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent < 1.0 { "less than 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// Most that can be asked about: more than any machine holds.
const NUMBER_MAX: f64 = 1e15;

/// A number as people write it: `1e7`, `10M`, `250k`, `2_000`.
fn number(text: &str) -> Result<f64, String> {
    with_unit(text, &[("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)])
        .ok_or_else(|| "it must be a number from 0 to 1e15, such as 1e7, 10M or 250k".to_owned())
}

/// A number of bytes: `256`, `4KB`, `1MB`.
fn bytes(text: &str) -> Result<f64, String> {
    with_unit(text, &[("KB", 1024.0), ("MB", 1_048_576.0), ("B", 1.0), ("", 1.0)]).ok_or_else(
        || "it must be a number of bytes from 0 to 1e15, such as 256, 4KB or 1MB".to_owned(),
    )
}

fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (front, unit) =
        units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size)))?;
    let plain = front.trim().replace('_', "");
    let number =
        plain.parse::<f64>().ok().filter(|_| plain.starts_with(|it: char| it.is_ascii_digit()))?;
    Some(number * unit).filter(|number| (0.0..=NUMBER_MAX).contains(number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        size: Size,
    }

    fn size(line: &str) -> Size {
        Line::try_parse_from(["size"].into_iter().chain(line.split(' '))).unwrap().size
    }

    fn need(line: &str) -> Need {
        Need::of(&size(line))
    }

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, value) in
            [("1e7", 1e7), ("10M", 1e7), ("250k", 25e4), ("2_000", 2e3), ("1.5M", 15e5)]
        {
            assert_eq!(number(text), Ok(value), "{text}");
        }
        for (text, value) in [("256", 256.0), ("4KB", 4096.0), ("1MB", 1_048_576.0), ("10B", 10.0)]
        {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for text in ["", "-1", "many", "1e16", "inf", "nan", "5T"] {
            assert!(number(text).is_err() && bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_measured_comes_out_again() {
        // 10 M jobs of 100 bytes with a cache of 256 MB took 1164 MB beside clients, and 20 M of 1000 bytes 21.6 GB of log.
        let measured = need("--jobs 10M --payload 100 --rate 0 --completed-max 0");
        let beside_mb = measured.memory_bytes / megabytes(1) - measured.client_memory_mb as f64;
        assert!((beside_mb / 1164.0 - 1.0).abs() < 0.05, "{measured:?}");
        let backlog = need("--jobs 20M --payload 1000 --rate 0 --completed-max 0");
        let live = (backlog.disk_bytes - 8.0 * SEGMENT_BYTES) / 2.0;
        assert!((live / 21.6e9 - 1.0).abs() < 0.05, "{live}");
        assert!((at(&WRITTEN_US, 2000.0) - 133.0).abs() < 1e-9);
        assert!((at(&WRITTEN_US, 1e9) - 4.2).abs() < 1e-9);
    }

    #[test]
    fn clients_have_what_a_server_takes_unasked_on_a_machine_of_that_size() {
        // Between the bounds, at the least of a server and of its shards, and at the most of its shards.
        for (line, cores, expected) in [
            ("--jobs 10M --payload 256 --rate 5000", 1, 165),
            ("--jobs 0 --payload 0 --rate 0", 1, 128),
            ("--jobs 0 --payload 0 --rate 2M", 17, 1088),
            ("--jobs 200M --payload 256 --rate 5000", 1, 1024),
            ("--jobs 1e15 --payload 1e15 --rate 1e15", usize::from(SHARDS_MAX), 1_048_576),
        ] {
            let need = need(line);
            let memory_mb = (need.memory_bytes / megabytes(1)).ceil() as u64;
            assert_eq!(shards_of(need.cores), cores, "{line}");
            assert_eq!(need.client_memory_mb, expected, "{line}");
            assert_eq!(client_memory_default_mb(cores, memory_mb), expected, "{line}");
        }
        let line = "--jobs 10M --payload 256 --rate 5000";
        let (unasked, asked) = (need(line), need(&format!("{line} --client-memory-mb 300")));
        assert_eq!(asked.client_memory_mb, 300);
        let more = asked.memory_bytes - unasked.memory_bytes;
        assert!((more - megabytes(300 - 165)).abs() < 1.0, "{more}");
    }

    #[test]
    fn more_of_anything_needs_no_less() {
        let base = "--jobs 1M --payload 1000 --rate 5000";
        let needs = |line: &str| {
            let Need { cores, memory_bytes, disk_bytes, .. } = need(line);
            [cores, memory_bytes, disk_bytes]
        };
        for more in [
            "--jobs 2M --payload 1000 --rate 5000",
            "--jobs 1M --payload 9KB --rate 5000",
            "--jobs 1M --payload 1000 --rate 90k",
            "--jobs 1M --payload 1000 --rate 5000 --durability synced",
            "--jobs 1M --payload 1000 --rate 5000 --connections 10k",
            "--jobs 1M --payload 1000 --rate 5000 --queues 100",
            "--jobs 1M --payload 1000 --rate 5000 --delays",
            "--jobs 1M --payload 1000 --rate 5000 --client-memory-mb 129",
        ] {
            let (least, most) = (needs(base), needs(more));
            assert!(least.iter().zip(&most).all(|(least, most)| least <= most), "{more}");
            assert!(least.iter().zip(&most).any(|(least, most)| least < most), "{more}");
        }
        let none = need("--jobs 0 --payload 0 --rate 0");
        assert!(none.cores >= 1.0 && none.memory_bytes > 0.0 && none.start_s.0 >= 0.0);
    }
}
