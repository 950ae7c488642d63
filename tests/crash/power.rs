//! The power goes under a server that is at work: round after round on the same disk, and everything that it had
//! answered is compared, job by job, with what it has when the power is back. And a disk whose syncs fail.
//!
//! On a file system of the test's own; where a test may not mount one, these do nothing and say so.
//! `CORQ_CRASH_ROUNDS` sets the number of losses per test (default 2), `CORQ_CRASH_SEED` the dice.

use std::sync::Mutex;

use serde_json::json;
use tempfile::TempDir;

use crate::crash::ledger::Ledger;
use crate::crash::load::Style;
use crate::crash::volatile::Volatile;
use crate::crash::{ANSWERS_MAX, ANSWERS_MIN, compare, drain, load_and_kill, setting, under_load};
use crate::support::{Dice, Server, Start, until};

/// A disk of its own, where that is allowed. It goes after the server that uses it, and before the directory.
fn disk() -> Option<(Volatile, TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    let disk = Volatile::new(&dir.path().join("disk"));
    if disk.is_none() {
        eprintln!("no file system can be mounted here: not tried");
    }
    Some((disk?, dir))
}

fn start(disk: &Volatile, durability: &str, shards: u64) -> Server {
    Start::new()
        .env("DURABILITY", durability)
        .env("SHARDS", shards)
        .env("COMPLETED_MAX", 1_000_000)
        .start_at(&disk.path().join("corq"))
}

#[test]
fn synced_survives_losses_of_power_on_one_shard() {
    lose_power(1);
}

#[test]
fn synced_survives_losses_of_power_on_two_shards() {
    lose_power(2);
}

fn lose_power(shards: u64) {
    let seed = setting("CORQ_CRASH_SEED", 1);
    let mut dice = Dice::new(seed * 1000 + 500 + shards);
    let Some((mut disk, _dir)) = disk() else { return };
    let mut server = start(&disk, "synced", shards);
    let ledger = Mutex::new(Ledger::default());
    for round in 0..setting("CORQ_CRASH_ROUNDS", 2) {
        let answers = ANSWERS_MIN + dice.roll(ANSWERS_MAX - ANSWERS_MIN);
        load_and_kill(&mut server, &ledger, &mut dice, answers);
        disk.cut(&mut dice);
        server.start();
        compare(&server, &ledger, &format!("round {round}, no power after {answers} answers"));
    }
    drain(&server, &ledger, &mut dice, Style::KEPT);
    server.kill();
    disk.cut(&mut dice);
    server.start();
    compare(&server, &ledger, "drained, and the power lost once more");
}

/// Jobs in `queue`, oldest first, by the numbers that they carry.
fn numbers(server: &Server, queue: &str) -> Vec<u64> {
    let mut client = server.client();
    let jobs = client.ok("GetJobs", json!({"queue": queue, "limit": 1000}))["jobs"].clone();
    let mut numbers: Vec<u64> =
        jobs.as_array().unwrap().iter().map(|job| job["data"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn written_keeps_all_before_a_durable_job_when_the_power_goes() {
    let seed = setting("CORQ_CRASH_SEED", 1);
    let mut dice = Dice::new(seed * 1000 + 700);
    let Some((mut disk, _dir)) = disk() else { return };
    // Syncs of their own accord come too late to help.
    let mut server = start(&disk, "written", 1);
    server.kill();
    server.start_with("FSYNC_INTERVAL_MS", 1000);
    for round in 0..setting("CORQ_CRASH_ROUNDS", 2) {
        let queue = format!("round-{round}");
        let mut client = server.client();
        let (before, after) = (1 + dice.roll(300), dice.roll(300));
        for number in 0..before + after {
            let durable = number + 1 == before;
            client.push_with(&queue, number, json!({"durable": durable}));
        }
        server.kill();
        disk.cut(&mut dice);
        server.start();
        let kept = numbers(&server, &queue);
        let expected: Vec<u64> = (0..kept.len() as u64).collect();
        assert_eq!(kept, expected, "round {round}: a job is there without those before it");
        assert!(kept.len() as u64 >= before, "round {round}: {} of {before} durable", kept.len());
    }
}

#[test]
fn a_flow_with_a_durable_job_is_there_as_a_whole_after_the_power_has_gone() {
    let seed = setting("CORQ_CRASH_SEED", 1);
    let mut dice = Dice::new(seed * 1000 + 800);
    let Some((mut disk, _dir)) = disk() else { return };
    for shards in [1, 2] {
        let path = disk.path().join(format!("corq-{shards}"));
        let start = Start::new().env("DURABILITY", "written").env("SHARDS", shards);
        // Syncs of their own accord come too late to help.
        let mut server = start.env("FSYNC_INTERVAL_MS", 1000).start_at(&path);
        for round in 0..setting("CORQ_CRASH_ROUNDS", 2) {
            let mut client = server.client();
            let name = |number: u64| format!("{round}-{number}");
            let durable = dice.roll(5);
            let job = |number: u64| {
                let children: Vec<String> =
                    if number == 0 { (1..6).map(name).collect() } else { vec![] };
                let parent = (number > 0).then(|| name(0));
                json!({"id": name(number), "queue": format!("q{number}"), "input": {
                    "data": number, "durable": number == durable,
                    "dependsOn": children, "childrenIds": children, "parentId": parent,
                }})
            };
            let jobs: Vec<_> = (0..6).map(job).collect();
            client.ok("PUSHF", json!({"jobs": jobs}));
            server.kill();
            disk.cut(&mut dice);
            server.start();
            let mut client = server.client();
            for number in 0..6 {
                let found = client.ok("GetJobByCustomId", json!({"customId": name(number)}));
                assert_eq!(found["job"]["data"], json!(number), "{shards} shards, round {round}");
            }
        }
    }
}

#[test]
fn a_server_whose_disk_cannot_sync_ends_and_has_promised_nothing() {
    let seed = setting("CORQ_CRASH_SEED", 1);
    for (durability, shards) in [("synced", 1), ("synced", 2), ("written", 2)] {
        let mut dice = Dice::new(seed * 1000 + 900 + shards);
        let Some((mut disk, _dir)) = disk() else { return };
        let mut server = start(&disk, durability, shards);
        let ledger = Mutex::new(Ledger::default());
        let mut status = None;
        under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
            load.wait_for_answers(500);
            disk.fail_syncs(true);
            status = Some(server.wait_for_end());
        });
        assert_eq!(status.unwrap().code(), Some(1), "{durability}: its end says that it failed");
        let said = server.output();
        assert!(said.contains("Input/output error") && said.contains("seg"), "it said:\n{said}");
        disk.fail_syncs(false);
        if durability == "synced" {
            disk.cut(&mut dice);
        }
        server.start();
        compare(&server, &ledger, &format!("{durability}, {shards} shards, after a failed sync"));
        drain(&server, &ledger, &mut dice, Style::KEPT);
    }
}

/// The kernel shows what it could not write until the power goes, so the next server finds all of it.
#[test]
fn what_a_failed_sync_was_for_is_on_the_disk_before_anything_behind_it_counts_as_synced() {
    let seed = setting("CORQ_CRASH_SEED", 1);
    for durability in ["written", "synced"] {
        for round in 0..setting("CORQ_CRASH_ROUNDS", 2) {
            let mut dice = Dice::new(seed * 1000 + 950 + round);
            let Some((mut disk, _dir)) = disk() else { return };
            let mut server = start(&disk, durability, 1);
            server.kill();
            // Syncs of their own accord come too late to help.
            server.start_with("FSYNC_INTERVAL_MS", 1000);
            let mut client = server.client();
            for number in 0..=dice.roll(300) {
                client.push("kept", number);
            }
            disk.fail_syncs(true);
            let last = json!({"queue": "kept", "data": 1000, "durable": true});
            assert!(client.try_call("PUSH", last).is_err(), "{durability}: it was acknowledged");
            assert_eq!(server.wait_for_end().code(), Some(1));
            disk.fail_syncs(false);
            server.start();
            let mut all = numbers(&server, "kept");
            let mut client = server.client();
            for number in 2000..2010 {
                client.push_with("kept", number, json!({"durable": true}));
                all.push(number);
            }
            server.kill();
            disk.cut(&mut dice);
            server.start();
            assert_eq!(numbers(&server, "kept"), all, "{durability}, round {round}");
        }
    }
}

/// Guards a premise of these tests: a sync that fails keeps nothing, and no later one does, although it can be read.
#[test]
fn canary_what_a_failed_sync_was_for_can_be_read_and_goes_with_the_power() {
    use std::fs::{self, File};
    use std::io::Write;
    let Some((mut disk, _dir)) = disk() else { return };
    let path = disk.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&[1; 1000]).unwrap();
    file.sync_all().unwrap();
    File::open(disk.path()).unwrap().sync_all().unwrap();
    file.write_all(&[2; 1000]).unwrap();
    disk.fail_syncs(true);
    assert!(file.sync_all().is_err());
    disk.fail_syncs(false);
    file.sync_all().unwrap();
    assert_eq!(fs::read(&path).unwrap(), [[1; 1000], [2; 1000]].concat());
    drop(file);
    disk.cut(&mut Dice::new(1));
    let found = fs::read(&path).unwrap();
    assert!(found.starts_with(&[1; 1000]) && !found.contains(&2), "{} bytes", found.len());
}

/// Guards a premise of these tests: a loss of power takes what was not synced, and nothing else.
#[test]
fn canary_what_is_not_synced_goes_with_the_power_and_what_is_synced_stays() {
    use std::fs::{self, File};
    use std::io::Write;
    let Some((mut disk, _dir)) = disk() else { return };
    let path = disk.path().to_owned();
    let kept = vec![7; 10_000];
    let mut file = File::create(path.join("kept")).unwrap();
    file.write_all(&kept).unwrap();
    file.sync_all().unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let mut lost = 0;
    let mut dice = Dice::new(1);
    for round in 0..20 {
        let name = path.join(format!("lost-{round}"));
        let bytes = [vec![1; 600], vec![2; 600], vec![3; 600]].concat();
        File::create(&name).unwrap().write_all(&bytes).unwrap();
        assert!(disk.unsynced_bytes() >= bytes.len());
        disk.cut(&mut dice);
        assert_eq!(fs::read(path.join("kept")).unwrap(), kept, "round {round}");
        lost += usize::from(fs::read(&name).ok() != Some(bytes));
    }
    assert!(lost > 5, "only {lost} of 20 files have suffered");
}

/// No sync gets an answer as long as this is there.
struct Held<'a>(&'a Volatile);

impl<'a> Held<'a> {
    fn of(disk: &'a Volatile) -> Self {
        disk.hold_syncs(true);
        Self(disk)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.hold_syncs(false);
    }
}

/// Everything is written, and the disk does not say that it has it: the end comes in its time, and not as a good one.
#[test]
fn a_stop_ends_in_its_time_although_the_disk_answers_no_sync() {
    let Some((disk, _dir)) = disk() else { return };
    let mut server = start(&disk, "written", 1);
    server.kill();
    server.set("SHUTDOWN_TIMEOUT_MS", 300);
    // The sync of the stop is the first behind the second job: in a file system of this kind a write waits for one before.
    server.start_with("FSYNC_INTERVAL_MS", 60_000);
    server.client().push_with("q", 1, json!({"durable": true}));
    server.client().push("q", 2);
    let held = Held::of(&disk);
    server.signal(rustix::process::Signal::TERM);
    until("it gives up", || server.output().contains("was not closed within").then_some(()));
    // The kernel lets go of the process only then.
    drop(held);
    assert_eq!(server.wait_for_end().code(), Some(1), "{}", server.output());
    server.start();
    assert_eq!(numbers(&server, "q"), [1, 2]);
}

/// A file system that sets no room aside, and has none for a block in its own file.
#[test]
fn writes_that_find_no_room_wait_for_it_and_what_was_acknowledged_is_there() {
    let Some((mut disk, _dir)) = disk() else { return };
    for durability in ["written", "synced"] {
        let path = disk.path().join(durability);
        let start = Start::new().env("DURABILITY", durability).env("SHARDS", 1);
        let mut server = start.start_at(&path);
        let mut client = server.client();
        let first = client.push("q", 1);
        disk.fill(true);
        // The reply to this push waits for the disk.
        let other = server.client();
        let waiting = std::thread::spawn(move || {
            let mut other = other;
            other.call("PUSH", json!({"queue": "q", "data": 2, "durable": true}))
        });
        let says = "nothing is answered that needs a record";
        until("it says so", || server.output().contains(says).then_some(()));
        assert_eq!(server.web().get("/ready").status, 503);
        assert!(!waiting.is_finished(), "acknowledged before it is written");
        disk.fill(false);
        let reply = waiting.join().unwrap();
        // A push that comes once a note of the log has found no room is refused.
        let acknowledged = reply["ok"] == true;
        assert!(acknowledged || reply["error"] == "Disk full", "{reply}");
        let last = until("pushes are taken again", || {
            let reply = client.call("PUSH", json!({"queue": "q", "data": 3, "durable": true}));
            (reply["ok"] == true).then(|| reply["id"].as_str().unwrap().to_owned())
        });
        let metrics = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let name = "corq_log_held_writes_total ";
        let held =
            metrics.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_ne!(held, "0", "the disk was full all the time, and nothing had to wait");
        server.kill();
        disk.cut_to_what_was_synced();
        server.start();
        let mut client = server.client();
        assert_eq!(client.state(&last), "waiting");
        if acknowledged {
            assert_eq!(client.state(reply["id"].as_str().unwrap()), "waiting");
        }
        // The first push came before one that was synced.
        assert_eq!(client.state(&first), "waiting");
        server.kill();
    }
}
