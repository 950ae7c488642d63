//! Everything that happens to a server in years, one after the other, for as long as is asked for: kills,
//! stops and continuations, a disk that others fill and empty, orderly restarts, all under a load that makes
//! the log go round. Jobs are forgotten when they are completed, so that nothing may grow: what is held is
//! compared job by job after every start, and memory and disk at the end.
//!
//! `CORQ_SOAK_FAULT` narrows it to one kind (`Kill`, `Stop`, `Full`, `FullAndKill`, `Restart`). `CORQ_SOAK_SECONDS` says for how long (default: four rounds, one of each fault); `CORQ_SOAK_DIR` where (default: a file
//! system in memory that the test mounts; without that right, or with a directory given, nobody fills the disk).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::process::Signal;
use serde_json::json;

use crate::crash::ledger::Ledger;
use crate::crash::load::{QUEUES, Style};
use crate::crash::{compare, drain, setting, under_load};
use crate::support::{Dice, Mount, Server, Start, until};

/// Payloads of 10 KB on average make the log go round every few seconds.
const STYLE: Style = Style { filler_max: 12_000, forget: true, open_max: 3000, may_be_full: true };
const DISK_BYTES: u64 = 512 << 20;
const ANSWERS_MAX: u64 = 6000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The server ends by SIGKILL.
    Kill,
    /// SIGSTOP, longer than some locks live, and SIGCONT.
    Stop,
    /// Another program takes what is left of the disk, and gives it back.
    Full,
    /// As before, with a kill while nothing is left.
    FullAndKill,
    /// The server ends by SIGTERM.
    Restart,
}

#[test]
fn faults_of_every_kind_lose_nothing_double_nothing_and_leave_nothing_behind() {
    let seconds = Duration::from_secs(setting("CORQ_SOAK_SECONDS", 0));
    let seed = setting("CORQ_SOAK_SEED", 1);
    let mut dice = Dice::new(seed);
    let only = std::env::var("CORQ_SOAK_FAULT").ok().map(|name| {
        let all = [Fault::Kill, Fault::Stop, Fault::Full, Fault::FullAndKill, Fault::Restart];
        all.into_iter().find(|fault| format!("{fault:?}") == name).expect("CORQ_SOAK_FAULT")
    });
    let dir = tempfile::tempdir().unwrap();
    let given = std::env::var_os("CORQ_SOAK_DIR").map(PathBuf::from);
    let mount = given.is_none().then(|| Mount::new(&dir.path().join("disk"), DISK_BYTES)).flatten();
    let place = given.unwrap_or_else(|| dir.path().join("disk")).join("corq");
    eprintln!("CORQ_SOAK_SEED={seed} seconds={seconds:?} own disk: {}", mount.is_some());
    let mut server = Start::new()
        .env("PAYLOAD_CACHE_MB", 4)
        .argument("--data-path")
        .argument(place.to_str().unwrap())
        .start();
    let ledger = Mutex::new(Ledger { forgets: true, ..Ledger::default() });
    let mut figures = Vec::new();
    let (start, mut round) = (Instant::now(), 0);
    while round < 5 || start.elapsed() < seconds {
        let fault = match if round < 5 { round } else { dice.roll(10) } {
            _ if only.is_some() => only.unwrap(),
            1 => Fault::Full,
            2 => Fault::FullAndKill,
            3 | 5 => Fault::Stop,
            4 => Fault::Restart,
            _ => Fault::Kill,
        };
        let fills = matches!(fault, Fault::Full | Fault::FullAndKill);
        if !fills || mount.is_some() {
            suffer(&mut server, &ledger, &mut dice, fault, &place);
        }
        compare(&server, &ledger, &format!("round {round}, {fault:?}"));
        for queue in QUEUES {
            server.client().ok("RetryDlq", json!({"queue": queue}));
        }
        round += 1;
        if round % 20 == 0 {
            figures.push(Figures::read(&server, &ledger, &place));
            eprintln!(
                "{:>6.0} s round {round}: {:?}",
                start.elapsed().as_secs_f64(),
                figures.last()
            );
        }
    }
    drain(&server, &ledger, &mut dice, STYLE);
    compare(&server, &ledger, "drained");
    server.kill();
    server.start();
    compare(&server, &ledger, "drained and killed once more");
    // Of each of two shards the segment in use and three files set aside, beside small ones.
    until("the disk is given back", || (bytes_below(&place) < 9 * (16 << 20)).then_some(()));
    let last = Figures::read(&server, &ledger, &place);
    eprintln!("{:>6.0} s, {round} rounds: {last:?}", start.elapsed().as_secs_f64());
    assert_flat(&figures);
}

fn suffer(
    server: &mut Server,
    ledger: &Mutex<Ledger>,
    dice: &mut Dice,
    fault: Fault,
    place: &Path,
) {
    let answers = 100 + dice.roll(ANSWERS_MAX);
    // A time is what this fault is made of.
    let pause = Duration::from_millis(50 + dice.roll(2500));
    under_load(server, ledger, dice, STYLE, |server, load| {
        load.wait_for_answers(answers);
        match fault {
            Fault::Kill => server.kill(),
            Fault::Restart => assert!(server.terminate().success()),
            Fault::Stop => {
                server.signal(Signal::STOP);
                std::thread::sleep(pause);
                server.signal(Signal::CONT);
                load.wait_for_answers(answers);
            }
            Fault::Full | Fault::FullAndKill => {
                let other = fill_up(place.parent().unwrap());
                // The room that was there may be enough, as completions make room for pushes.
                let (refusals, goal) = {
                    let ledger = ledger.lock().unwrap();
                    (ledger.refusals + 10, ledger.answers + 10 * ANSWERS_MAX)
                };
                load.wait_until("a push to be refused", |ledger| {
                    ledger.refusals > refusals || ledger.answers > goal
                });
                load.wait_for_answers(answers);
                if fault == Fault::FullAndKill {
                    server.kill();
                }
                fs::remove_file(other).unwrap();
            }
        }
    });
    if matches!(fault, Fault::Kill | Fault::Restart | Fault::FullAndKill) {
        server.start();
    }
    let mut client = server.client();
    until("pushes are taken again", || {
        let probe = json!({"queue": "probe", "data": 1, "removeOnComplete": true});
        client.call("PUSH", probe)["ok"].as_bool().filter(|ok| *ok)
    });
    client.ok("Drain", json!({"queue": "probe"}));
}

/// Takes all that is left of a file system, bit by bit: the server gives some back meanwhile. Answers the file that has it.
pub(super) fn fill_up(disk: &Path) -> PathBuf {
    let other = disk.join("other");
    let file = fs::File::options().create(true).append(true).open(&other).unwrap();
    let mut taken = file.metadata().unwrap().len();
    until("the disk to be full", || {
        let stat = statvfs(disk).unwrap();
        let free = stat.f_bavail * stat.f_frsize;
        if free > 0 && fallocate(&file, FallocateFlags::empty(), taken, free).is_ok() {
            taken += free;
        }
        (free < 1 << 20).then_some(())
    });
    other
}

/// Figures that must not grow.
#[derive(Debug)]
#[allow(dead_code)] // All of it is there to be printed.
struct Figures {
    jobs: usize,
    answers: u64,
    refusals: u64,
    resident_kb: u64,
    disk_kb: u64,
}

impl Figures {
    fn read(server: &Server, ledger: &Mutex<Ledger>, place: &Path) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        let ledger = ledger.lock().unwrap();
        Self {
            jobs: ledger.jobs.len(),
            answers: ledger.answers,
            refusals: ledger.refusals,
            resident_kb: line.split_whitespace().nth(1).unwrap().parse().unwrap(),
            disk_kb: bytes_below(place) >> 10,
        }
    }
}

/// The later half of a long run may not hold more than the earlier one, but for a twentieth and what one round leaves.
fn assert_flat(figures: &[Figures]) {
    let (earlier, later) = figures.split_at(figures.len() / 2);
    let most = |half: &[Figures], of: fn(&Figures) -> u64| half.iter().map(of).max().unwrap_or(0);
    if earlier.len() < 5 {
        return;
    }
    for (what, of) in [
        ("memory", (|f: &Figures| f.resident_kb) as fn(&Figures) -> u64),
        ("disk", |f: &Figures| f.disk_kb),
    ] {
        let (before, after) = (most(earlier, of), most(later, of));
        assert!(
            after <= before + before / 20 + 32_768,
            "{what} grows: {before} KB, then {after} KB"
        );
    }
}

fn bytes_below(place: &Path) -> u64 {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => bytes_below(&entry.path()),
            Ok(about) => about.len(),
            Err(_) => 0,
        })
        .sum()
}
