//! A database that fails over, lags, has no room, is dumped or out of reach, and clocks that differ: fault by fault, under load,
//! with the ledger. What was answered is there, and a node that another one has replaced says nothing.
//!
//! `CORQ_FLEET_ROUNDS` says how often each fault is played (`make fleet`: 20 times). Without it that is once, and without
//! the cuts that are much like another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corq_io::log::{segment_file, shard_path};
use serde_json::{Value, json};

use super::fleet::{fleet, founded, node};
use super::ledger::Ledger;
use super::load::{QUEUES, Style};
use super::soak::fill_up;
use super::{compare, drain, load_and_kill, prove_the_count, setting, under_load};
use crate::support::database::{Database, Part};
use crate::support::proxy::{Proxy, Way};
use crate::support::tool::Tool;
use crate::support::{Client, Dice, Server, Start, until};

/// Runs out where a test cuts a node off, and nowhere else: a busy machine stands still for less.
const LEASE_MS: u64 = 5000;

/// Runs out in no test.
const LONG_LEASE_MS: u64 = 60_000;

/// For how long an answer that must not come is waited for.
const SILENCE: Duration = Duration::from_millis(300);

/// Bytes of a disk that a test fills.
const DISK_BYTES: u64 = 128 << 20;

const HOUR_MS: u64 = 3_600_000;

/// How often each fault is played.
fn rounds() -> u64 {
    setting("CORQ_FLEET_ROUNDS", 1)
}

fn is_long() -> bool {
    std::env::var_os("CORQ_FLEET_ROUNDS").is_some()
}

/// A database with a fleet, and its standby.
fn pair(is_synchronous: bool) -> Option<(Database, Database)> {
    let primary = fleet()?;
    let standby = primary.standby(is_synchronous);
    Some((primary, standby))
}

/// A text of which a compressor saves hardly anything.
fn noise(dice: &mut Dice, length: usize) -> String {
    (0..length).map(|_| char::from(b'!' + dice.roll(90) as u8)).collect()
}

/// The node has all that was answered, and all that is left can be done.
fn prove(server: &Server, ledger: &Mutex<Ledger>, dice: &mut Dice) {
    compare(server, ledger, "after the fault");
    drain(server, ledger, dice, Style::KEPT);
    prove_the_count(server, ledger);
}

/// The database has all that was answered: a node that was killed has no files any more.
fn prove_on_another_disk(server: &mut Server, ledger: &Mutex<Ledger>, dice: &mut Dice) {
    fs::remove_dir_all(&server.data).unwrap();
    server.start();
    prove(server, ledger, dice);
}

/// A commit of each shard that has a queue.
fn push_to_each_queue(server: &Server, ledger: &Mutex<Ledger>) {
    let mut client = server.client();
    for queue in QUEUES {
        let number = ledger.lock().unwrap().pushing();
        let id = client.push(queue, json!({"number": number}));
        ledger.lock().unwrap().pushed(number, &id);
    }
}

fn await_standing_by(server: &Server) {
    until("the other node stands by", || server.says("standing by, node").then_some(()));
}

fn await_service(server: &Server) {
    until("the other node serves", || server.serves().then_some(()));
}

/// Sends a push; its answer is still to come.
fn push_late(server: &Server) -> Client {
    let mut client = server.client();
    client.send("PUSH", json!({"queue": "late", "data": 1})).unwrap();
    client
}

#[test]
fn a_synchronous_standby_that_is_promoted_has_all_that_was_answered() {
    let mut dice = Dice::new(21);
    for _ in 0..rounds() {
        let Some((mut primary, standby)) = pair(true) else { return };
        let ledger = Mutex::new(Ledger::default());
        let start = node(&primary, "a").env("FLEET_DATABASE", primary.url_with(&standby));
        let mut server = start.start();
        let answers = 200 + dice.roll(800);
        under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
            load.wait_for_answers(answers);
            primary.kill();
            standby.promote();
            load.wait_for_answers(300);
            server.kill();
        });
        assert!(!server.output().contains("were put back"), "{}", server.output());
        prove_on_another_disk(&mut server, &ledger, &mut dice);
    }
}

#[test]
fn rows_that_a_standby_lacks_when_it_is_promoted_are_put_back_by_the_node_that_wrote_them() {
    let mut dice = Dice::new(22);
    for _ in 0..rounds() {
        let Some((mut primary, standby)) = pair(false) else { return };
        let ledger = Mutex::new(Ledger::default());
        let start = node(&primary, "a").env("FLEET_DATABASE", primary.url_with(&standby));
        let mut server = start.start();
        let answers = 200 + dice.roll(800);
        under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
            let owner = "select owner from corq_part where id = 0";
            until("the standby has the claim", || standby.says(owner, "a").then_some(()));
            load.wait_for_answers(answers);
            standby.stop_receiving();
            load.wait_for_answers(300);
            push_to_each_queue(server, load.ledger);
            primary.kill();
            standby.promote();
            push_to_each_queue(server, load.ledger);
            until("rows are put back", || server.says("were put back").then_some(()));
            load.wait_for_answers(300);
            server.kill();
        });
        prove_on_another_disk(&mut server, &ledger, &mut dice);
    }
}

#[test]
fn commits_wait_for_a_synchronous_standby_that_is_gone_and_no_other_node_takes_over() {
    let mut dice = Dice::new(23);
    for _ in 0..rounds() {
        let Some((primary, mut standby)) = pair(true) else { return };
        let ledger = Mutex::new(Ledger::default());
        let node = |name: &str| node(&primary, name).env("FLEET_LEASE_MS", LEASE_MS);
        let mut server = node("a").start();
        let other = node("b").stand_by();
        await_standing_by(&other);
        under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
            for comes_back in [true, false] {
                load.wait_for_answers(300);
                standby.kill();
                let mut late = push_late(server);
                // A time is what this fault is made of: longer than the lease.
                thread::sleep(Duration::from_millis(LEASE_MS * 3 / 2));
                let early = late.recv_within(SILENCE);
                assert!(early.is_none(), "answered without the standby: {early:?}");
                if comes_back {
                    standby.run();
                } else {
                    primary.set("synchronous_standby_names", "");
                }
                assert_eq!(late.recv().unwrap()["ok"], json!(true));
            }
            load.wait_for_answers(300);
            assert!(!other.says("counts as dead") && !other.serves(), "{}", other.output());
            server.kill();
        });
        await_service(&other);
        prove(&other, &ledger, &mut dice);
    }
}

/// Guards against an answer for a commit that only the primary has: it can be read there, and goes with it.
#[test]
fn a_wait_for_the_standby_that_is_cancelled_answers_nothing() {
    let mut dice = Dice::new(24);
    for _ in 0..rounds() {
        let Some((mut primary, mut standby)) = pair(true) else { return };
        let ledger = Mutex::new(Ledger::default());
        let start = node(&primary, "a").env("FLEET_DATABASE", primary.url_with(&standby));
        // The node does not fall silent for want of beats.
        let mut server = start.env("FLEET_LEASE_MS", LONG_LEASE_MS).start();
        let answers = 200 + dice.roll(800);
        under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
            load.wait_for_answers(answers);
            standby.kill();
            let mut late = push_late(server);
            let mut cancelled = 0;
            until("waits to be cancelled again and again", || {
                cancelled += primary.cancel_waits();
                (cancelled >= 10).then_some(())
            });
            let early = late.recv_within(SILENCE);
            assert!(early.is_none(), "answered without the standby: {early:?}");
            primary.kill();
            standby.run();
            standby.promote();
            assert_eq!(late.recv().unwrap()["ok"], json!(true));
            load.wait_for_answers(300);
            server.kill();
        });
        assert!(!server.output().contains("were put back"), "{}", server.output());
        prove_on_another_disk(&mut server, &ledger, &mut dice);
    }
}

#[test]
fn a_database_without_room_delays_answers_and_takes_none_back() {
    let mut dice = Dice::new(25);
    for round in 0..rounds() {
        let part = if round % 2 == 0 { Part::WriteLog } else { Part::All };
        let Some(database) = Database::start_on_disk(part, DISK_BYTES) else { return };
        let mut database = founded(database);
        let ledger = Mutex::new(Ledger::default());
        let mut server = node(&database, "a").env("FLEET_LEASE_MS", LONG_LEASE_MS).start();
        let disk = database.disk();
        let large = json!({"queue": "late", "data": noise(&mut dice, 200_000)});
        under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
            load.wait_for_answers(300);
            let mut late = server.client();
            late.send("PUSH", large.clone()).unwrap();
            let other = until("the database has no room", || {
                let other = fill_up(&disk);
                if late.recv_within(SILENCE).is_some() {
                    late.send("PUSH", large.clone()).unwrap();
                }
                server.says("commands of shard").then_some(other)
            });
            fs::remove_file(other).unwrap();
            let reply = until("the answer that waited comes", || {
                database.keep_running();
                late.recv_within(SILENCE)
            });
            assert_eq!(reply["ok"], json!(true), "{part:?}: {reply}");
            load.wait_for_answers(300);
            server.kill();
        });
        prove_on_another_disk(&mut server, &ledger, &mut dice);
    }
}

/// Hindrances between a node and the database.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Nothing goes to the database.
    Requests,
    /// Nothing comes from it: statements are carried out, and their outcome is not known.
    Answers,
    Both,
    /// Connections are reset, and new ones refused.
    Resets,
    /// As both, and then the connections end at the node alone.
    HalfOpen,
}

impl Cut {
    const ALL: [Self; 5] =
        [Self::Answers, Self::Resets, Self::Requests, Self::Both, Self::HalfOpen];

    fn make(self, wire: &Proxy) {
        match self {
            Self::Requests => wire.block(Way::ToServer),
            Self::Answers => wire.block(Way::ToClient),
            Self::Both | Self::HalfOpen => {
                wire.block(Way::ToServer);
                wire.block(Way::ToClient);
            }
            Self::Resets => {
                wire.refuse();
                wire.cut();
            }
        }
    }

    fn mend(self, wire: &Proxy) {
        if matches!(self, Self::HalfOpen) {
            wire.abandon();
        }
        wire.mend();
    }
}

/// A node that reaches the database over a wire of its own.
fn wired(database: &Database, name: &str, lease_ms: u64) -> (Start, Proxy) {
    let wire = Proxy::to(database.port());
    let url = format!("host=127.0.0.1 port={} user=corq dbname=postgres", wire.port);
    let start = node(database, name).env("FLEET_DATABASE", url).env("FLEET_LEASE_MS", lease_ms);
    (start, wire)
}

#[test]
fn a_node_that_is_cut_off_for_longer_than_the_lease_is_replaced_and_says_nothing_more() {
    let mut dice = Dice::new(26);
    let kinds = if is_long() { Cut::ALL.len() } else { 2 };
    if !is_long() {
        eprintln!("CORQ_FLEET_ROUNDS is not set: {:?} are not tried", &Cut::ALL[kinds..]);
    }
    let Some(database) = Database::start_on_port() else { return };
    let database = founded(database);
    let ledger = Mutex::new(Ledger::default());
    let (start, wire) = wired(&database, "a", LEASE_MS);
    let mut active = (start.start(), wire);
    let (start, wire) = wired(&database, "b", LEASE_MS);
    let mut other = (start.stand_by(), wire);
    await_standing_by(&other.0);
    for cut in (0..rounds()).flat_map(|_| Cut::ALL.into_iter().take(kinds)) {
        let (server, wire) = &mut active;
        under_load(server, &ledger, &mut dice, Style::KEPT, |server, load| {
            load.wait_for_answers(300);
            cut.make(wire);
            await_service(&other.0);
            let mut late = push_late(server);
            let early = late.recv_within(SILENCE);
            assert!(early.is_none(), "{cut:?}: a node that was replaced has answered {early:?}");
            cut.mend(wire);
            let status = server.wait_for_end();
            assert_eq!(status.code(), Some(1), "{cut:?}: {}", server.output());
            assert!(late.recv().is_err(), "{cut:?}: a node that was replaced has answered");
        });
        compare(&other.0, &ledger, &format!("{cut:?}"));
        server.launch();
        await_standing_by(server);
        std::mem::swap(&mut active, &mut other);
    }
    prove(&active.0, &ledger, &mut dice);
}

#[test]
fn a_cut_that_is_shorter_than_the_lease_delays_answers_and_changes_no_owner() {
    let mut dice = Dice::new(27);
    let Some(database) = Database::start_on_port() else { return };
    let database = founded(database);
    let ledger = Mutex::new(Ledger::default());
    let (start, wire) = wired(&database, "a", LONG_LEASE_MS);
    let mut server = start.start();
    let other = node(&database, "b").env("FLEET_LEASE_MS", LONG_LEASE_MS).stand_by();
    await_standing_by(&other);
    under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
        for cut in (0..rounds()).flat_map(|_| Cut::ALL) {
            load.wait_for_answers(200);
            cut.make(&wire);
            // A time is what this fault is made of.
            thread::sleep(Duration::from_secs(1));
            cut.mend(&wire);
        }
        load.wait_for_answers(200);
        assert!(!other.says("counts as dead") && !other.serves(), "{}", other.output());
        server.kill();
    });
    let url = database.url();
    let buried = Tool::at(1).run(&["fleet", "bury", "a", "--database", &url]);
    assert_eq!(buried.code, Some(0), "{}", buried.err);
    await_service(&other);
    prove(&other, &ledger, &mut dice);
}

#[test]
fn a_machine_that_is_lost_in_the_middle_of_a_claim_bars_no_other_node() {
    let Some(database) = Database::start_on_port() else { return };
    let database = founded(database);
    let (start, wire) = wired(&database, "a", LEASE_MS);
    wire.block_before("select count(*) from corq_part");
    let mut lost = start.stand_by();
    until("the claim is under way", || wire.is_blocked(Way::ToServer).then_some(()));
    wire.abandon();
    lost.kill();
    let other = node(&database, "b").start();
    other.client().push("q", 1);
}

/// The tables of logs that a dump keeps from being dropped.
const HELD: &str = "select distinct c.relname from pg_locks l join pg_class c on c.oid = l.relation \
    join pg_stat_activity a on a.pid = l.pid \
    where a.application_name = 'pg_dump' and c.relkind = 'r' and starts_with(c.relname, 'corq_log_')";

/// Tables of which the node has no file any more.
fn given_up<'a>(tables: &'a str, data: &Path) -> Vec<&'a str> {
    let is_gone = |table: &&str| {
        let mut numbers = table.rsplit('_').map(|part| part.parse::<u64>().unwrap());
        let (segment, shard) = (numbers.next().unwrap(), numbers.next().unwrap());
        !shard_path(data, shard as u16).join(segment_file(segment)).exists()
    };
    tables.lines().filter(is_gone).collect()
}

/// Brings in and completes 2 MB of jobs, of which nothing is kept.
fn churn(client: &mut Client) {
    let job = json!({"data": "c".repeat(100_000), "removeOnComplete": true});
    client.ok("PUSHB", json!({"queue": "churn", "jobs": vec![job; 20]}));
    let pulled = client.ok("PULLB", json!({"queue": "churn", "count": 20}))["jobs"].clone();
    let ids: Vec<&Value> = pulled.as_array().unwrap().iter().map(|job| &job["id"]).collect();
    client.ok("ACKB", json!({"ids": ids}));
}

#[test]
fn an_old_snapshot_and_a_dump_that_stands_still_hold_no_answer_back() {
    let mut dice = Dice::new(28);
    for _ in 0..rounds() {
        let Some(database) = fleet() else { return };
        let ledger = Mutex::new(Ledger::default());
        let mut server = node(&database, "a").env("PAYLOAD_CACHE_MB", 4).start();
        // More than fits between the dump and its reader.
        let large = noise(&mut dice, 1 << 20);
        under_load(&mut server, &ledger, &mut dice, Style::KEPT, |server, load| {
            let mut client = server.client();
            client.push("dumped", large.as_str());
            until("each log has a table", || {
                let logs = ["corq_log_0_0", "corq_log_1_0"];
                let is_there = |log| database.ask(&format!("select count(*) from {log}")).is_ok();
                logs.into_iter().all(is_there).then_some(())
            });
            let reads = "begin isolation level repeatable read; select count(*) from corq_part";
            let mut snapshot = database.stays_in(reads);
            let dump = database.dump();
            let held = until("the dump holds tables", || {
                database.ask(HELD).ok().filter(|held| !held.is_empty())
            });
            until("a table is needed no more", || {
                churn(&mut client);
                (!given_up(&held, &server.data).is_empty()).then_some(())
            });
            load.wait_for_answers(300);
            let dumped = dump.wait_with_output().unwrap();
            assert!(dumped.status.success() && dumped.stdout.len() > large.len());
            until("tables go that are needed no more", || {
                let left = database.ask("select tablename from pg_tables").ok()?;
                let is_dropped = |gone: &&str| left.lines().all(|table| table != *gone);
                given_up(&held, &server.data).iter().all(is_dropped).then_some(())
            });
            drop(snapshot.stdin.take());
            snapshot.wait().unwrap();
            server.kill();
        });
        prove_on_another_disk(&mut server, &ledger, &mut dice);
    }
}

/// The library that shows another time to a process, where there is one.
fn faketime() -> Option<PathBuf> {
    let places = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let library = |place: fs::DirEntry| place.path().join("faketime/libfaketime.so.1");
    places.map(library).find(|path| path.is_file())
}

/// Kills a process under load; what the library has left of it goes with it.
fn load_and_kill_ahead(server: &mut Server, ledger: &Mutex<Ledger>, dice: &mut Dice) {
    let pid = server.pid();
    load_and_kill(server, ledger, dice, 500);
    for left in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        let _ = fs::remove_file(Path::new("/dev/shm").join(left));
    }
}

#[test]
fn clocks_that_differ_by_an_hour_change_no_owner_and_lose_no_job() {
    let Some(library) = faketime() else {
        eprintln!("skipped: there is no libfaketime on this machine");
        return;
    };
    let Some(database) = fleet() else { return };
    let mut dice = Dice::new(29);
    let ledger = Mutex::new(Ledger::default());
    let node = |name: &str| node(&database, name).env("FLEET_LEASE_MS", LEASE_MS);
    let ahead = node("a").env("LD_PRELOAD", library.display()).env("FAKETIME", "+1h");
    let mut ahead = ahead.env("FAKETIME_DONT_FAKE_MONOTONIC", 1).start();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(ahead.client().time() > now_ms + HOUR_MS / 2, "the clock of the node is not ahead");
    let mut right = node("b").stand_by();
    await_standing_by(&right);
    for _ in 0..rounds() {
        load_and_kill_ahead(&mut ahead, &ledger, &mut dice);
        await_service(&right);
        compare(&right, &ledger, "taken over by the node whose clock is right");
        ahead.launch();
        await_standing_by(&ahead);
        load_and_kill(&mut right, &ledger, &mut dice, 500);
        await_service(&ahead);
        compare(&ahead, &ledger, "taken over by the node whose clock is ahead");
        right.launch();
        await_standing_by(&right);
    }
    drain(&ahead, &ledger, &mut dice, Style::KEPT);
    load_and_kill_ahead(&mut ahead, &ledger, &mut dice);
    await_service(&right);
    prove(&right, &ledger, &mut dice);
}
