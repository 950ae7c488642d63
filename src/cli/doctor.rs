//! `doctor`: looks at the machine and at the server, and says what to change. Everything is looked at,
//! whatever was found before; only what is wrong makes the exit code 1.

mod data_place;
mod data_state;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use corq_io::host;
use corq_io::log::{Left, Standing};
use corq_io::machine_facts;

use self::data_place::Told;
use super::client::{Client, Reply};
use super::context::{Context, fetch, hello};
use super::failure::Failure;
use super::output::{Cell, Output, Style, Table};
use super::prometheus;
use super::request::Request;
use super::target::Target;
use super::words;
use crate::api::commands::Op;
use crate::protocol::msgpack::writer::Writer;
use crate::tools::leftovers;

/// Blocks whose sync is timed.
const SYNCS: usize = 40;
/// A sync that takes longer than this on the middle is slow.
const SYNC_SLOW: Duration = Duration::from_millis(10);
/// Pings that are timed.
const PINGS: usize = 40;
/// A Ping that takes longer than this on the middle is slow.
const PING_SLOW: Duration = Duration::from_millis(20);
/// Clocks further apart than this confuse delays and schedules.
const SKEW_MAX_MS: f64 = 1000.0;
/// Fewer open files than this leave room for few connections.
const FILES_FEW: u64 = 16_384;
/// A certificate that lasts no longer should be renewed.
const CERTIFICATE_DAYS_FEW: f64 = 14.0;
const DAY_S: f64 = 86_400.0;
/// Less room than this is soon filled.
const FREE_FEW_BYTES: u64 = 2 << 30;

/// What `doctor` takes.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Directory of the log, whose disk is tried [default: that of the server, if it is on this machine, else
    /// ./corq-data]
    #[arg(long, env = "DATA_PATH", value_name = "DIR")]
    data_path: Option<PathBuf>,
    /// Look at this machine only, as before a first start
    #[arg(long)]
    no_server: bool,
}

impl Doctor {
    /// The directory that was asked for.
    fn named(&self) -> Option<PathBuf> {
        let other = || std::env::var_os("BUNQUEUE_DATA_PATH").map(PathBuf::from);
        self.data_path.clone().or_else(other)
    }
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Good,
    /// It works, and would work better otherwise.
    Warning,
    /// It does not work.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug)]
struct Finding {
    verdict: Verdict,
    what: &'static str,
    found: String,
    /// What to change; empty if nothing.
    advice: String,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, what, found: found.into(), advice: String::new() }
    }

    fn warning(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, what, found: found.into(), advice: advice.into() }
    }

    fn wrong(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Wrong, what, found: found.into(), advice: advice.into() }
    }
}

/// Looks at everything and shows it.
pub fn run(context: &mut Context, doctor: &Doctor) -> Result<(), Failure> {
    let mut findings = host_findings();
    let server = if doctor.no_server { ServerSide::default() } else { server_side(context) };
    let address = context.target.address();
    let (found, path) = data_place::find(doctor.named(), &server.data, &address);
    findings.push(found);
    findings.extend(path.iter().flat_map(|path| disk_findings(path)));
    findings.extend(path.iter().flat_map(|path| data_state::findings(path)));
    findings.extend(path.iter().flat_map(|path| leftover_findings(path)));
    findings.extend(clock_finding());
    findings.extend(server.findings);
    if context.target.json {
        context.out.json(&as_value(&findings))?;
    } else {
        show(&mut context.out, &findings)?;
    }
    let wrong = findings.iter().filter(|it| it.verdict == Verdict::Wrong).count();
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::Failed("one thing is wrong, see above".to_owned())),
        _ => Err(Failure::Failed(format!("{wrong} things are wrong, see above"))),
    }
}

fn show(out: &mut Output, findings: &[Finding]) -> std::io::Result<()> {
    let mut table = Table::new(&["", "CHECK", "FOUND"]);
    for finding in findings {
        let (mark, style) = match finding.verdict {
            Verdict::Good => ("ok", Style::Good),
            Verdict::Warning => ("warn", Style::Warn),
            Verdict::Wrong => ("WRONG", Style::Bad),
        };
        let found = Cell::from(finding.found.as_str());
        table.row(vec![Cell::styled(mark, style), finding.what.into(), found]);
    }
    out.table(&table)?;
    let mut advised = findings.iter().filter(|it| !it.advice.is_empty()).peekable();
    if advised.peek().is_some() {
        out.line("")?;
    }
    for finding in advised {
        out.line(&format!("{}: {}", finding.what, finding.advice))?;
    }
    Ok(())
}

fn as_value(findings: &[Finding]) -> Vec<u8> {
    let mut value = Vec::new();
    let mut writer = Writer::new(&mut value);
    writer.map(2);
    writer.str("ok");
    writer.bool(findings.iter().all(|it| it.verdict != Verdict::Wrong));
    writer.str("checks");
    writer.array(findings.len());
    for finding in findings {
        writer.map(4);
        writer.str("check");
        writer.str(finding.what);
        writer.str("verdict");
        writer.str(match finding.verdict {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Wrong => "wrong",
        });
        writer.str("found");
        writer.str(&finding.found);
        writer.str("advice");
        writer.str(&finding.advice);
    }
    value
}

fn host_findings() -> Vec<Finding> {
    let mut findings = Vec::new();
    match host::probe() {
        Err(errors) => findings.extend(errors.iter().map(|error| {
            // Such a line says what is wrong and, behind the colon, what to do.
            let line = error.to_string();
            let (found, advice) = line.split_once(": ").unwrap_or((&line, ""));
            Finding::wrong("machine", found, advice)
        })),
        Ok(host) => {
            findings.push(Finding::good("kernel", host.kernel));
            findings.push(Finding::good("io_uring", "all that is needed"));
            findings.push(files(host.nofile));
            let memlock = match host.memlock_bytes {
                u64::MAX => "no limit".to_owned(),
                bytes => words::bytes(bytes as f64),
            };
            findings.push(Finding::good("locked memory", memlock));
            findings.push(cpus(
                host.cpus.len(),
                machine_facts::cpus_online(),
                machine_facts::cpu_quota(),
            ));
        }
    }
    findings.extend(huge_pages());
    findings
}

fn files(nofile: u64) -> Finding {
    let found = format!("{nofile} at a time");
    if nofile < FILES_FEW {
        let advice = "one per connection and one per file of the log: raise the limit (ulimit -n; \
                      systemd: LimitNOFILE=)";
        return Finding::warning("open files", found, advice);
    }
    Finding::good("open files", found)
}

fn cpus(allowed: usize, online: Option<usize>, quota: Option<f64>) -> Finding {
    let of = online.map(|online| format!(" of {online}")).unwrap_or_default();
    let found = format!("{allowed}{of}");
    match quota {
        Some(quota) if quota < allowed as f64 => {
            let least = quota.floor().max(1.0);
            Finding::warning(
                "CPUs",
                format!("{found}, with time for {}", words::figure(quota)),
                format!(
                    "shards would be stopped in the middle of their work: start with SHARDS={least}, \
                     or give the process CPUs of its own (cpuset) instead of a share (cpu.max)"
                ),
            )
        }
        _ => Finding::good("CPUs", found),
    }
}

fn huge_pages() -> Option<Finding> {
    let mode = machine_facts::huge_pages()?;
    Some(if mode == "always" {
        Finding::warning(
            "huge pages",
            "always",
            "memory may grow beyond what is used: echo madvise > \
             /sys/kernel/mm/transparent_hugepage/enabled",
        )
    } else {
        Finding::good("huge pages", mode)
    })
}

fn clock_finding() -> Option<Finding> {
    Some(if machine_facts::clock_is_synchronised()? {
        Finding::good("clock", "kept in step")
    } else {
        let advice = "delays and schedules follow it: run chrony or systemd-timesyncd";
        Finding::warning("clock", "nothing keeps it in step", advice)
    })
}

fn disk_findings(path: &Path) -> Vec<Finding> {
    // The server makes the directory itself; until then its disk is that of the nearest one.
    let there = path.ancestors().find(|it| it.is_dir());
    let there = there.unwrap_or_else(|| Path::new("."));
    let mut findings = Vec::new();
    let shown = path.display();
    match machine_facts::file_system(there) {
        Err(error) => findings.push(Finding::wrong("disk", format!("{shown}: {error}"), "")),
        Ok(found) => {
            findings.push(match found.kind.as_str() {
                "tmpfs" => Finding::warning(
                    "file system",
                    format!("{shown} is on tmpfs"),
                    "nothing on it survives a restart of the machine: set DATA_PATH to a disk",
                ),
                "nfs" | "smb" | "fuse" => Finding::warning(
                    "file system",
                    format!("{shown} is on {}", found.kind),
                    "the log wants a local file system; ext4 and XFS are known to work",
                ),
                kind => Finding::good("file system", format!("{shown} is on {kind}")),
            });
            let free = words::bytes(found.free_bytes as f64);
            findings.push(if found.free_bytes < FREE_FEW_BYTES {
                let advice = "a server without room refuses pushes and all else that is new, while pulls and \
                              acknowledgements go on: make room";
                Finding::warning("free space", free, advice)
            } else {
                Finding::good("free space", free)
            });
        }
    }
    findings.push(match machine_facts::sync_times(there, SYNCS) {
        Err(error) => Finding::wrong(
            "disk sync",
            format!("{shown} cannot be written: {error}"),
            "let the server's user write there, or set DATA_PATH",
        ),
        Ok(times) => sync_finding(&times),
    });
    findings
}

/// What backups, restores and repairs have left that were killed; and what only looks so.
fn leftover_findings(data: &Path) -> Vec<Finding> {
    let Ok(left) = leftovers::of(data) else { return Vec::new() };
    let finding = |left: &Left| {
        let path = left.path.display();
        match &left.standing {
            Standing::InUse(_) => None,
            Standing::Dead(said) => Some(Finding::warning(
                "leftovers",
                format!("{path}, of a {} that was killed", said.purpose),
                format!("the next backup or start removes {path}; so can you"),
            )),
            Standing::Unmarked => Some(Finding::warning(
                "leftovers",
                format!("{path} is named like a draft of corq, and has no marker"),
                format!("nothing removes {path} by itself: see what is in it"),
            )),
        }
    };
    let found: Vec<Finding> = left.iter().filter_map(finding).collect();
    if found.is_empty() { vec![Finding::good("leftovers", "none")] } else { found }
}

fn sync_finding(times: &[Duration]) -> Finding {
    let (middle, worst) = spread(times);
    let found = format!("4 KB in {}, {} at worst", millis(middle), millis(worst));
    if middle > SYNC_SLOW {
        return Finding::warning(
            "disk sync",
            found,
            "replies wait for it with DURABILITY=synced and durable jobs: use a disk with a \
             protected write cache, or DURABILITY=written",
        );
    }
    Finding::good("disk sync", found)
}

/// The middle and the last of times that are in order.
fn spread(times: &[Duration]) -> (Duration, Duration) {
    let at = |place: usize| times.get(place).copied().unwrap_or_default();
    (at(times.len() / 2), at(times.len().saturating_sub(1)))
}

fn millis(time: Duration) -> String {
    format!("{} ms", words::figure(time.as_secs_f64() * 1000.0))
}

/// What a server told.
#[derive(Default)]
struct ServerSide {
    findings: Vec<Finding>,
    data: Told,
}

fn server_side(context: &Context) -> ServerSide {
    let address = context.target.address();
    let mut side = ServerSide::default();
    let mut client = match context.client() {
        Ok(client) => client,
        Err(failure) => {
            if let Failure::Failed(line) | Failure::Usage(line) = failure {
                side.findings.push(Finding::wrong("server", address, line));
            }
            return side;
        }
    };
    side.findings.push(privacy(&context.target));
    if let Err(Failure::Failed(line)) = ask(&mut client, &address, &mut side) {
        side.findings.push(Finding::wrong("server", address, line));
    }
    side
}

/// Whether others on the way can read what is said.
fn privacy(target: &Target) -> Finding {
    let is_near = target.host == "localhost"
        || target.host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    match &target.socket {
        Some(_) => Finding::good("wire", "a unix socket"),
        None if target.tls => Finding::good("wire", "TLS"),
        None if is_near => Finding::good("wire", "this machine's own"),
        None => Finding::warning(
            "wire",
            "everybody on the way can read it",
            "give the server a certificate (TLS_CERT_FILE, TLS_KEY_FILE) and use --tls",
        ),
    }
}

fn ask(client: &mut Client, address: &str, side: &mut ServerSide) -> Result<(), Failure> {
    let hello = hello(client)?;
    let ServerSide { findings, data } = side;
    findings.push(server(&hello, address));
    findings.extend(ping(client)?);
    let metrics = fetch(client, Op::Prometheus)?;
    let text = metrics.value().get("data").get("metrics").text().unwrap_or_default();
    findings.extend(data_finding(text));
    findings.extend(complaints(text));
    findings.extend(certificate(text));
    *data = Told::of(&client.call(Request::new(Op::BackupPoint))?);
    Ok(())
}

/// Whether the files that the server writes to are where its next start looks for them.
fn data_finding(metrics: &str) -> Option<Finding> {
    let gone = prometheus::number(metrics, "corq_data_gone")?;
    let looks = prometheus::number(metrics, "corq_data_looks_total").unwrap_or(0.0);
    if gone > 0.0 {
        let advice = "jobs are refused meanwhile; put it back where it was, or stop the server and restore a backup";
        return Some(Finding::wrong("data", "the data directory is gone, or a part of it", advice));
    }
    // In memory there is nothing to look after.
    (looks > 0.0).then(|| Finding::good("data", "where it was at the start"))
}

/// How long the server's certificate lasts, if it has one.
fn certificate(metrics: &str) -> Option<Finding> {
    let expires_s = prometheus::number(metrics, "corq_tls_certificate_expires_timestamp_seconds")?;
    let days = (expires_s - Output::now_ms() as f64 / 1000.0) / DAY_S;
    let failures = prometheus::number(metrics, "corq_tls_reload_failures_total").unwrap_or(0.0);
    let advice = "renew it, then send the server SIGHUP";
    Some(if days < 0.0 {
        let found = format!("has expired {} days ago", words::figure(-days));
        Finding::wrong("certificate", found, advice)
    } else if days < CERTIFICATE_DAYS_FEW {
        Finding::warning("certificate", format!("expires in {} days", words::figure(days)), advice)
    } else if failures > 0.0 {
        let found = format!("could not be read again {failures:.0} times");
        Finding::warning("certificate", found, "see the server's log, then send it SIGHUP")
    } else {
        Finding::good("certificate", format!("valid for {} days", words::figure(days)))
    })
}

fn server(hello: &Reply, address: &str) -> Finding {
    let hello = hello.value();
    let name = hello.get("server").text().unwrap_or("unnamed");
    let version = hello.get("version").text().unwrap_or("?");
    let found = format!("{name} {version} at {address}");
    let own = env!("CARGO_PKG_VERSION");
    if name != "corq" {
        let advice = "this is not corq; what is more than the protocol may not work";
        Finding::warning("server", found, advice)
    } else if version != own {
        let advice = format!("this program is corq {own}: use the same version on both sides");
        Finding::warning("server", found, advice)
    } else {
        Finding::good("server", found)
    }
}

/// Times Pings, and reads the server's clock on the way.
fn ping(client: &mut Client) -> Result<Vec<Finding>, Failure> {
    let mut times = Vec::with_capacity(PINGS);
    let mut skew_ms: Option<(Duration, f64)> = None;
    for _ in 0..PINGS {
        let began = Instant::now();
        let reply = client.call(Request::new(Op::Ping))?.granted()?;
        let took = began.elapsed();
        times.push(took);
        // The quickest answer tells most exactly when the server read its clock: half way.
        let told = reply.value().get("data").get("time").number();
        let read_at = Output::now_ms() as f64 - took.as_secs_f64() * 500.0;
        if let Some(told) = told.filter(|_| skew_ms.is_none_or(|(best, _)| took < best)) {
            skew_ms = Some((took, told - read_at));
        }
    }
    times.sort_unstable();
    let (middle, worst) = spread(&times);
    let found = format!("answers in {}, {} at worst", millis(middle), millis(worst));
    let latency = if middle > PING_SLOW {
        let advice = "the network is long or the server is busy: see 'corq top'";
        Finding::warning("latency", found, advice)
    } else {
        Finding::good("latency", found)
    };
    let skew = skew_ms.map(|(_, skew_ms)| {
        let found = format!("{} ms from this machine's", words::figure(skew_ms.round()));
        if skew_ms.abs() > SKEW_MAX_MS {
            let advice = "keep both in step: run chrony or systemd-timesyncd";
            Finding::warning("server's clock", found, advice)
        } else {
            Finding::good("server's clock", found)
        }
    });
    Ok([Some(latency), skew].into_iter().flatten().collect())
}

/// Counters that stand at zero on a server that is well.
const COMPLAINTS: [(&str, &str, &str); 6] = [
    (
        "corq_connections_rejected_total",
        "connections were turned away",
        "raise CONNECTIONS_MAX, or find out who opens so many",
    ),
    (
        "corq_accept_pauses_total",
        "times the system lacked something for a connection",
        "raise the limit of open files (ulimit -n; systemd: LimitNOFILE=)",
    ),
    (
        "corq_log_segment_failures_total",
        "times the next file of the log could not be made",
        "see the server's log; the disk may be full",
    ),
    (
        "corq_log_full",
        "shards get no further file for their log and refuse pushes",
        "make room on the disk, or see 'corq health' for what else is lacking",
    ),
    (
        "corq_clock_ahead_seconds",
        "seconds is the server's time ahead of its system's clock, which was set back",
        "start the server anew: it takes the clock as it is then",
    ),
    (
        "corq_unknown_job_records",
        "records of the log were about jobs that it does not have",
        "something of the log is lost, or this is a bug: see 'corq log verify', and report it",
    ),
];

fn complaints(metrics: &str) -> Vec<Finding> {
    let found = COMPLAINTS.iter().filter_map(|(family, what, advice)| {
        let count = prometheus::number(metrics, family)?;
        let finding = || Finding::warning("counters", format!("{count:.0} {what}"), *advice);
        (count > 0.0).then(finding)
    });
    let found: Vec<Finding> = found.collect();
    if found.is_empty() { vec![Finding::good("counters", "nothing unusual")] } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_cpus_is_worth_a_word() {
        assert_eq!(cpus(4, Some(8), None).verdict, Verdict::Good);
        assert_eq!(cpus(4, Some(8), Some(4.0)).verdict, Verdict::Good);
        let throttled = cpus(4, Some(8), Some(1.5));
        assert_eq!(throttled.verdict, Verdict::Warning);
        assert!(throttled.advice.contains("SHARDS=1"), "{}", throttled.advice);
    }

    #[test]
    fn slow_disks_and_few_files_are_told_with_what_to_do() {
        let slow = sync_finding(&[Duration::from_millis(30); 3]);
        assert!(slow.verdict == Verdict::Warning && slow.advice.contains("DURABILITY"));
        let quick = sync_finding(&[Duration::from_micros(120), Duration::from_millis(90)]);
        assert_eq!(quick.verdict, Verdict::Warning, "the middle of two is the second");
        assert_eq!(sync_finding(&[Duration::from_micros(120); 9]).verdict, Verdict::Good);
        assert_eq!(files(1024).verdict, Verdict::Warning);
        assert_eq!(files(1 << 20).verdict, Verdict::Good);
    }

    #[test]
    fn a_certificate_is_told_of_before_it_expires() {
        let told = |days: f64| {
            let expires_s = (Output::now_ms() as f64 / 1000.0 + days * DAY_S).round();
            let family = "corq_tls_certificate_expires_timestamp_seconds";
            certificate(&format!("{family} {expires_s}\n")).map(|finding| finding.verdict)
        };
        assert_eq!(certificate("corq_shards 1\n").map(|it| it.verdict), None);
        let expected = [(-1.0, Verdict::Wrong), (3.0, Verdict::Warning), (90.0, Verdict::Good)];
        assert!(expected.iter().all(|(days, verdict)| told(*days) == Some(*verdict)));
    }

    #[test]
    fn data_that_is_gone_is_wrong() {
        assert!(data_finding("corq_data_gone 0\ncorq_data_looks_total 0\n").is_none());
        let verdict = |text| data_finding(text).map(|it| it.verdict);
        assert_eq!(verdict("corq_data_gone 0\ncorq_data_looks_total 7\n"), Some(Verdict::Good));
        assert_eq!(verdict("corq_data_gone 1\ncorq_data_looks_total 7\n"), Some(Verdict::Wrong));
    }

    #[test]
    fn counters_that_should_be_zero_are_told() {
        assert_eq!(complaints("corq_connections_rejected_total 0\n")[0].verdict, Verdict::Good);
        let told = complaints("corq_connections_rejected_total 3\n");
        assert!(told[0].found.starts_with("3 connections"), "{told:?}");
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_wrong() {
        let findings = disk_findings(Path::new("/proc/self"));
        assert!(findings.iter().any(|it| it.verdict == Verdict::Wrong && it.what == "disk sync"));
    }
}
