//! `doctor`: looks at the machine and at the server, and says what to change. Everything is looked at,
//! whatever was found before; only what is wrong makes the exit code 1.

mod data_place;
mod data_state;
mod fleet_database;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use corq_io::host;
use corq_io::log::left_in;
use corq_io::machine_facts;

use super::backup::Told;
use super::client::{Client, Reply};
use super::context::{Context, fetch, hello};
use super::failure::Failure;
use super::output::{Cell, Output, Style, Table};
use super::prometheus;
use super::request::Request;
use super::target::Target;
use super::words;
use crate::api::commands::Op;
use crate::checks::{self, Finding, Verdict, machine};
use crate::config::Environment;
use crate::protocol::msgpack::writer::MapWriter;

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

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Directory of the log, whose disk is tried [default: that of the environment, else that of the server, if it is on this machine, else
    /// ./corq-data]
    #[arg(long, value_name = "DIR")]
    data_path: Option<PathBuf>,
    /// Look at this machine only, as before a first start
    #[arg(long)]
    no_server: bool,
    /// Database of a fleet, as a URL: whether its commits last, and how long they take
    #[arg(long, env = "FLEET_DATABASE", value_name = "URL", hide_env_values = true)]
    fleet_database: Option<String>,
}

impl Doctor {
    /// The directory that was asked for.
    fn named(&self) -> Option<PathBuf> {
        self.data_path.clone().or_else(|| Environment::of_process().data_path())
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
    findings.extend(machine::clock());
    findings.extend(server.findings);
    let database = doctor.fleet_database.clone().filter(|url| !url.is_empty());
    let database = database.or_else(|| Environment::of_process().fleet_database());
    findings.extend(database.iter().flat_map(|url| fleet_database::findings(url)));
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
    let mut map = MapWriter::begin(&mut value);
    map.key("ok").bool(findings.iter().all(|it| it.verdict != Verdict::Wrong));
    checks::write(&mut map.key("checks"), findings.len(), findings.iter());
    drop(map);
    value
}

fn host_findings() -> Vec<Finding> {
    match host::probe() {
        Ok(host) => machine::of_host(&host),
        Err(errors) => {
            let wrong = errors.iter().map(|error| {
                // Such a line says what is wrong and, behind the colon, what to do.
                let line = error.to_string();
                let (found, advice) = line.split_once(": ").unwrap_or((&line, ""));
                Finding::wrong("machine", found, advice)
            });
            wrong.chain(machine::huge_pages()).collect()
        }
    }
}

fn disk_findings(path: &Path) -> Vec<Finding> {
    // The server makes the directory itself; until then its disk is that of the nearest one.
    let there = path.ancestors().find(|it| it.is_dir());
    let there = there.unwrap_or_else(|| Path::new("."));
    let mut findings = Vec::new();
    let shown = path.display();
    match machine_facts::file_system(there) {
        Err(error) => findings.push(Finding::wrong("disk", format!("{shown}: {error}"), "")),
        Ok(found) => findings.extend(machine::disk(path, &found)),
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

/// Remains of killed copies, in a data directory and beside it.
fn leftover_findings(data: &Path) -> Vec<Finding> {
    let real = std::fs::canonicalize(data).unwrap_or_else(|_| data.into());
    // Where we may not look, there is nothing of ours.
    let left = |directory: &Path| left_in(directory).unwrap_or_default();
    let pinned = left(&real).into_iter().map(|path| {
        let shown = path.display();
        let advice = format!("the next backup or start removes {shown}; so can you");
        Finding::warning("leftovers", format!("{shown}, of a backup that was killed"), advice)
    });
    let beside = real.parent().map(left).unwrap_or_default().into_iter().map(|path| {
        let shown = path.display();
        let found = format!("{shown}, a copy that was not completed");
        Finding::warning("leftovers", found, format!("remove {shown}, and copy again"))
    });
    let found: Vec<Finding> = pinned.chain(beside).collect();
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

/// Findings of a server, and which data directory it has.
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
            if let Failure::Failed(line) | Failure::Refused(line) | Failure::Usage(line) = failure {
                side.findings.push(Finding::wrong("server", address, line));
            }
            return side;
        }
    };
    side.findings.push(privacy(&context.target));
    if let Err(Failure::Failed(line) | Failure::Refused(line)) =
        ask(&mut client, &address, &mut side)
    {
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
    let number = |family: &str| prometheus::number(text, &format!("corq_{family}"));
    let of_zones = |label: &str| prometheus::label(text, "corq_time_zone_rules_info", label);
    if let (Some(version), Some(source)) = (of_zones("version"), of_zones("source")) {
        findings.push(checks::server::time_zones(version, source));
    }
    findings.extend(checks::server::data(number));
    let now_s = Output::now_ms() as f64 / 1000.0;
    findings.extend(checks::server::backups(number, now_s));
    findings.extend(checks::server::fleet(number));
    findings.extend(checks::server::client_memory(|account| {
        number(&format!("client_memory_fullest_ratio{{account=\"{account}\"}}"))
    }));
    findings.extend(checks::server::complaints(number));
    findings.extend(certificate(number));
    *data = Told::of(&client.call(Request::new(Op::BackupPoint))?);
    Ok(())
}

/// How long the server's certificate lasts, if it has one.
fn certificate(number: impl Fn(&str) -> Option<f64>) -> Option<Finding> {
    let expires_s = number("tls_certificate_expires_timestamp_seconds")?;
    let failures = number("tls_reload_failures_total").unwrap_or(0.0);
    Some(checks::server::certificate(expires_s, failures, Output::now_ms() as f64 / 1000.0))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_disks_are_told_with_what_to_do() {
        let slow = sync_finding(&[Duration::from_millis(30); 3]);
        assert!(slow.verdict == Verdict::Warning && slow.advice.contains("DURABILITY"));
        let quick = sync_finding(&[Duration::from_micros(120), Duration::from_millis(90)]);
        assert_eq!(quick.verdict, Verdict::Warning, "the middle of two is the second");
        assert_eq!(sync_finding(&[Duration::from_micros(120); 9]).verdict, Verdict::Good);
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_wrong() {
        let findings = disk_findings(Path::new("/proc/self"));
        assert!(findings.iter().any(|it| it.verdict == Verdict::Wrong && it.what == "disk sync"));
    }
}
