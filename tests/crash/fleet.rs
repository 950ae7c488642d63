//! Nodes that keep their logs in a database. The machine of one is lost with its disk, a node stands still, the database goes
//! away: what was answered is there.

use super::ledger::Ledger;
use super::load::Style;
use super::{compare, drain, load_and_kill, prove_the_count, under_load};
use crate::support::database::Database;
use crate::support::tool::Tool;
use crate::support::{Dice, Start, get, until};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Mutex;

const LEASE_MS: u64 = 2000;

pub(super) fn node(database: &Database, name: &str) -> Start {
    Start::new()
        .env("DURABILITY", "replicated")
        .env("FLEET_DATABASE", database.url())
        .env("FLEET_NODE", name)
        .env("FLEET_LEASE_MS", LEASE_MS)
        .env("COMPLETED_MAX", 1_000_000)
}

/// A database with a fleet of two logs, where there is one.
pub(super) fn fleet() -> Option<Database> {
    Some(founded(Database::start()?))
}

/// A database that has a fleet of two logs from now on.
pub(super) fn founded(database: Database) -> Database {
    // As after an upgrade of the system: the database warns at each connection.
    database.ask("update pg_database set datcollversion = '1'").unwrap();
    let url = database.url();
    let tool = Tool::at(1).env("FLEET_DATABASE", url);
    let said = tool.run(&["fleet", "found", "--segment-mb", "16"]);
    assert_eq!(said.code, Some(0), "{} {}", said.out, said.err);
    database
}

#[test]
fn a_node_that_loses_its_disk_with_each_kill_loses_no_job() {
    let Some(database) = fleet() else { return };
    let mut dice = Dice::new(11);
    let ledger = Mutex::new(Ledger::default());
    let mut server = node(&database, "a").start();
    for round in 0..3 {
        load_and_kill(&mut server, &ledger, &mut dice, 1000);
        // The second time it has its files, and what lies behind the last commit in them.
        if round != 1 {
            fs::remove_dir_all(&server.data).unwrap();
        }
        server.start();
        compare(&server, &ledger, &format!("round {round}"));
    }
    drain(&server, &ledger, &mut dice, Style::KEPT);
    assert!(server.terminate().success(), "{}", server.output());
    fs::remove_dir_all(&server.data).unwrap();
    server.start();
    compare(&server, &ledger, "stopped, and started on another disk");
    prove_the_count(&server, &ledger);
}

#[test]
fn a_database_that_is_killed_under_load_delays_answers_and_takes_none_back() {
    let Some(mut database) = fleet() else { return };
    let mut dice = Dice::new(12);
    let ledger = Mutex::new(Ledger::default());
    let mut server = node(&database, "a").start();
    under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
        for _ in 0..3 {
            load.wait_for_answers(300);
            database.kill_backends();
            load.wait_for_answers(300);
            database.kill();
            database.run();
        }
        load.wait_for_answers(300);
        server.kill();
    });
    fs::remove_dir_all(&server.data).unwrap();
    server.start();
    compare(&server, &ledger, "after all of that, on another disk");
    drain(&server, &ledger, &mut dice, Style::KEPT);
    prove_the_count(&server, &ledger);
}

#[test]
fn a_node_that_stands_by_takes_over_and_the_other_then_stands_by() {
    let Some(database) = fleet() else { return };
    let mut dice = Dice::new(13);
    let ledger = Mutex::new(Ledger::default());
    let mut active = node(&database, "a").start();
    let mut other = node(&database, "b").stand_by();
    until("b stands by", || other.output().contains("standing by, node a").then_some(()));
    for round in 0..2 {
        load_and_kill(&mut active, &ledger, &mut dice, 500);
        until("the other node serves", || other.serves().then_some(()));
        compare(&other, &ledger, &format!("taken over, round {round}"));
        active.launch();
        until("the node that was killed stands by", || {
            let said = active.output();
            (said.matches("standing by, node").count() > round).then_some(())
        });
        std::mem::swap(&mut active, &mut other);
    }
    drain(&active, &ledger, &mut dice, Style::KEPT);
    // Who ends gives the logs back: the other one does not wait for the lease.
    assert!(active.terminate().success(), "{}", active.output());
    until("the other node serves", || other.serves().then_some(()));
    assert!(!other.output().rsplit("standing by").next().unwrap().contains("counts as dead"));
    compare(&other, &ledger, "after a stop");
    prove_the_count(&other, &ledger);
}

#[test]
fn a_stop_within_the_copy_of_a_takeover_ends_at_once_and_gives_the_logs_back() {
    let Some(database) = fleet() else { return };
    let mut active = node(&database, "a").start();
    let id = active.client().push("q", 1);
    until("the log has a table", || database.ask("select count(*) from corq_log_0_0").ok());
    let mut other = node(&database, "b").stand_by();
    until("b stands by", || other.output().contains("standing by, node a").then_some(()));
    let mut held = database.stays_in("begin; lock table corq_log_0_0");
    active.kill();
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("the copy waits for a table", || database.says(waits, "1").then_some(()));
    assert!(other.terminate().success(), "{}", other.output());
    drop(held.stdin.take());
    held.wait().unwrap();
    let third = node(&database, "c").start();
    assert!(!third.output().contains("standing by, node"), "{}", third.output());
    assert_eq!(third.client().ok("GetJob", json!({"id": id}))["job"]["data"], json!(1));
}

#[test]
fn a_node_that_stood_still_for_longer_than_the_lease_says_nothing_more() {
    let Some(database) = fleet() else { return };
    let mut active = node(&database, "a").start();
    let other = node(&database, "b").stand_by();
    let mut client = active.client();
    let id = client.ok("PUSH", json!({"queue": "q", "data": 1}))["id"].clone();
    until("b stands by", || other.output().contains("standing by, node a").then_some(()));
    active.freeze();
    until("the other node serves", || other.serves().then_some(()));
    let mut late = active.client();
    late.send("GetJob", json!({"id": id})).unwrap();
    active.signal(Signal::CONT);
    let status = active.wait_for_end();
    assert_eq!(status.code(), Some(1), "{}", active.output());
    assert!(
        active.output().contains("this process ends without another word"),
        "{}",
        active.output()
    );
    assert!(late.recv().is_err(), "a node that is fenced has answered");
    assert_eq!(other.client().ok("GetJob", json!({"id": id}))["job"]["data"], json!(1));
}

#[test]
fn a_single_server_becomes_a_fleet_and_one_again() {
    let Some(database) = Database::start() else { return };
    let single = || Start::new().env("SHARDS", 2);
    let mut before = single().start();
    let mut client = before.client();
    for number in 0..500 {
        client.ok("PUSH", json!({"queue": format!("q{}", number % 7), "data": "x".repeat(number)}));
    }
    assert!(before.terminate().success());
    let (url, data) = (database.url(), before.data.to_str().unwrap().to_owned());
    let tool = |words: &[&str]| {
        let said = Tool::at(1).run(words);
        assert_eq!(said.code, Some(0), "{words:?}: {} {}", said.out, said.err);
        said.out
    };
    tool(&["fleet", "found", "--database", &url, "--data-path", &data, "--segment-mb", "16"]);
    let mut server = node(&database, "a").start_at(&before.data);
    assert_eq!(server.client().ok("PUSH", json!({"queue": "q0", "data": 1}))["ok"], json!(true));
    // Longer than a row.
    let large: String = (0..9 << 20)
        .map(|at: u32| char::from(b'a' + (at.wrapping_mul(at) >> 9) as u8 % 26))
        .collect();
    server.client().push("large", large.as_str());
    assert!(tool(&["fleet", "status", "--database", &url]).contains("active"));
    server.kill();
    // Started as before by mistake, it would go on beside the fleet.
    let (status, output) = single().run_to_its_end(&server.data);
    assert!(!status.success() && output.contains("is of a node of the fleet in"), "{output}");
    tool(&["fleet", "bury", "a", "--database", &url]);
    let to = server.data.parent().unwrap().join("single");
    tool(&["fleet", "export", to.to_str().unwrap(), "--database", &url]);
    let after = single().start_at(&to);
    let mut client = after.client();
    let waiting: u64 = (0..7).map(|queue| client.counted(&format!("q{queue}"), "waiting")).sum();
    assert_eq!(waiting, 501);
    assert!(client.pull("large")["data"] == json!(large), "the large job is what it was");
}

#[test]
fn settings_that_do_not_fit_the_fleet_are_refused_by_name() {
    let Some(database) = fleet() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, value, said) in [
        ("SHARDS", "3", "SHARDS: it is 3, and the fleet was founded with 2"),
        ("SEGMENT_MB", "32", "SEGMENT_MB: it is 32, and the fleet was founded with 16"),
        (
            "FLEET_REQUIRE_SYNC",
            "true",
            "FLEET_REQUIRE_SYNC: the database has no synchronous standby",
        ),
        ("DURABILITY", "synced", "DURABILITY: it must be replicated, as FLEET_DATABASE is set"),
        ("FLEET_DATABASE", "", "FLEET_DATABASE: it is missing, and DURABILITY is replicated"),
    ] {
        let (status, output) =
            node(&database, "a").env(name, value).run_to_its_end(&dir.path().join(name));
        assert!(!status.success() && output.contains(said), "{name}: {output}");
    }
    let url = database.url();
    let again = Tool::at(1).run(&["fleet", "found", "--database", &url]);
    assert!(again.code == Some(1) && again.err.contains("has a fleet already"), "{}", again.err);
}

#[test]
fn clients_of_a_node_that_stands_by_are_served_by_the_active_one() {
    let Some(database) = fleet() else { return };
    let mut active = node(&database, "a").start();
    let other = node(&database, "b").env("FLEET_FOLLOW", "true").stand_by();
    until("b stands by", || other.output().contains("standing by, node a").then_some(()));
    let mut client = other.client();
    let id = client.ok("PUSH", json!({"queue": "q", "data": "needle"}))["id"].clone();
    assert_eq!(active.client().ok("GetJob", json!({"id": id}))["job"]["data"], json!("needle"));
    let health = get(other.http, "/health").unwrap();
    assert!(health.contains("asynchronous: a failover may lose what was acknowledged"), "{health}");
    // Before it takes over, its files have what the log of the other one has.
    let files = ["shard-0000", "shard-0001"]
        .map(|shard| other.data.join(shard).join("0000000000000000.seg"));
    until("the row is copied ahead", || {
        let has = |path: &PathBuf| {
            fs::read(path).is_ok_and(|bytes| bytes.windows(6).any(|it| it == b"needle"))
        };
        files.iter().any(has).then_some(())
    });
    client.ok("PULL", json!({"queue": "q"}));
    active.kill();
    assert!(client.recv().is_err(), "the connection ends with the node that served it");
    until("the other node serves", || other.serves().then_some(()));
    assert_eq!(other.client().ok("GetJob", json!({"id": id}))["job"]["data"], json!("needle"));
}

#[test]
fn a_node_that_stands_by_counts_as_ready_and_alive_for_its_service_manager() {
    let Some(database) = fleet() else { return };
    let _active = node(&database, "a").start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let other = node(&database, "b")
        .env("NOTIFY_SOCKET", path.display())
        .env("WATCHDOG_USEC", 60_000_000)
        .stand_by();
    until("b stands by", || other.output().contains("standing by, node a").then_some(()));
    let mut bytes = [0; 512];
    let mut heard = |what: &str| loop {
        let length = socket.recv(&mut bytes).unwrap();
        if String::from_utf8_lossy(&bytes[..length]).contains(what) {
            return;
        }
    };
    heard("READY=1\nSTATUS=stands by, node a at ");
    heard("WATCHDOG=1");
    heard("WATCHDOG=1");
}
