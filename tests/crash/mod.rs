//! The server is killed at a random moment of a random load, started again, and everything that
//! it had answered is compared, job by job, with what it has: round after round on the same data.
//! The fear is the only one that counts for a queue: a job lost, or one done twice.
//!
//! `CORQ_CRASH_ROUNDS` sets the number of kills per test (default 2), `CORQ_CRASH_SEED` the dice.
//! The moments are chosen by the number of answers, never by the clock.

mod fleet;
mod fleet_faults;
mod ledger;
mod load;
mod power;
mod soak;
mod tools;
mod volatile;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use crate::support::{Client, Dice, Server, Start, until};
use ledger::{Done, Ledger, Shown};
use load::{LOCK_TTL_MS, QUEUES, Style, Worker};

const CLIENTS: u64 = 4;
const ANSWERS_MIN: u64 = 100;
const ANSWERS_MAX: u64 = 3000;

#[test]
fn written_on_one_shard() {
    crash_loop("written", 1);
}

#[test]
fn written_on_two_shards() {
    crash_loop("written", 2);
}

#[test]
fn written_on_four_shards() {
    crash_loop("written", 4);
}

#[test]
fn synced_on_one_shard() {
    crash_loop("synced", 1);
}

#[test]
fn synced_on_two_shards() {
    crash_loop("synced", 2);
}

#[test]
fn synced_on_four_shards() {
    crash_loop("synced", 4);
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

fn crash_loop(durability: &str, shards: u64) {
    let seed = setting("CORQ_CRASH_SEED", 1);
    let rounds = setting("CORQ_CRASH_ROUNDS", 2);
    eprintln!("CORQ_CRASH_SEED={seed} CORQ_CRASH_ROUNDS={rounds} {durability} {shards} shards");
    let mut dice = Dice::new(seed * 1000 + shards * 10 + durability.len() as u64);
    let mut server = Start::new()
        .env("DURABILITY", durability)
        .env("SHARDS", shards)
        // Every completed job must still be there to be counted at the end.
        .env("COMPLETED_MAX", 1_000_000)
        .start();
    let ledger = Mutex::new(Ledger::default());
    for round in 0..rounds {
        let answers = ANSWERS_MIN + dice.roll(ANSWERS_MAX - ANSWERS_MIN);
        load_and_kill(&mut server, &ledger, &mut dice, answers);
        server.start();
        compare(&server, &ledger, &format!("round {round}, killed after {answers} answers"));
    }
    drain(&server, &ledger, &mut dice, Style::KEPT);
    compare(&server, &ledger, "drained");
    server.kill();
    server.start();
    compare(&server, &ledger, "drained and killed once more");
    prove_the_count(&server, &ledger);
}

/// Runs all clients until `answers` more have come, then kills the server under them.
fn load_and_kill(server: &mut Server, ledger: &Mutex<Ledger>, dice: &mut Dice, answers: u64) {
    under_load(server, ledger, dice, Style::KEPT, |server, load| {
        load.wait_for_answers(answers);
        server.kill();
    });
}

/// The load around a fault, as far as the fault may ask of it.
struct Load<'a> {
    ledger: &'a Mutex<Ledger>,
    early_end: &'a dyn Fn() -> bool,
}

impl Load<'_> {
    /// Waits until so many answers more have come.
    fn wait_for_answers(&self, answers: u64) {
        let goal = self.ledger.lock().unwrap().answers + answers;
        self.wait_until("answers to come", |ledger| ledger.answers >= goal);
    }

    fn wait_until(&self, what: &str, done: impl Fn(&Ledger) -> bool) {
        until(what, || {
            assert!(!(self.early_end)(), "a client has ended before the fault");
            done(&self.ledger.lock().unwrap()).then_some(())
        });
    }
}

/// Runs all clients around `fault`, and ends them after it.
fn under_load(
    server: &mut Server,
    ledger: &Mutex<Ledger>,
    dice: &mut Dice,
    style: Style,
    fault: impl FnOnce(&mut Server, &Load<'_>),
) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| Worker {
                client: server.client(),
                ledger,
                dice: Dice::new(dice.roll(u64::MAX)),
                stop: &stop,
                style,
            })
            .map(|worker| scope.spawn(move || worker.run()))
            .collect();
        let early_end = || clients.iter().any(thread::ScopedJoinHandle::is_finished);
        fault(server, &Load { ledger, early_end: &early_end });
        drop(stopping);
    });
}

/// Stops the clients also when the waiting for the kill panics: the scope waits for their ends.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn compare(server: &Server, ledger: &Mutex<Ledger>, when: &str) {
    let shown = show_all(&mut server.client());
    let mut ledger = ledger.lock().unwrap();
    let faults = ledger.reconcile(&shown);
    assert!(
        faults.is_empty(),
        "{when}: {} faults among {} jobs: {:?}",
        faults.len(),
        ledger.jobs.len(),
        &faults[..faults.len().min(20)]
    );
}

/// Every job of every queue. Pages are by creation, so a job that changes its state meanwhile
/// (a lock that runs out, a delay that ends) is neither missed nor seen twice.
fn show_all(client: &mut Client) -> Vec<Shown> {
    const PAGE: usize = 1000;
    let mut all = Vec::new();
    for queue in QUEUES {
        for page in 0..10_000 {
            let fields = json!({"queue": queue, "offset": page * PAGE, "limit": PAGE});
            let reply = client.ok("GetJobs", fields);
            let jobs = reply["jobs"].as_array().unwrap();
            all.extend(jobs.iter().map(|job| Shown {
                number: job["data"]["number"].as_u64().unwrap() as usize,
                id: job["id"].as_str().unwrap().to_owned(),
                state: job["state"].as_str().unwrap().to_owned(),
            }));
            if jobs.len() < PAGE {
                break;
            }
        }
    }
    all
}

/// Does all that is left to do: also what failed, what is put off, and what a client that is
/// gone still holds until its lock ends.
fn drain(server: &Server, ledger: &Mutex<Ledger>, dice: &mut Dice, style: Style) {
    let stop = AtomicBool::new(false);
    let dice = Dice::new(dice.roll(u64::MAX));
    let mut worker = Worker { client: server.client(), ledger, dice, stop: &stop, style };
    until("every job to be done", || {
        for queue in QUEUES {
            worker.client.ok("RetryDlq", json!({"queue": queue}));
            let fields = json!({
                "queue": queue, "count": 1000, "owner": "drain", "lockTtl": 20 * LOCK_TTL_MS,
            });
            let sent_at = ledger.lock().unwrap().answers;
            let reply = worker.client.ok("PULLB", fields);
            worker.finish_batch(&reply, sent_at).unwrap();
        }
        (ledger.lock().unwrap().count_open() == 0).then_some(())
    });
}

/// The sums, and the results of a sample, at the very end.
fn prove_the_count(server: &Server, ledger: &Mutex<Ledger>) {
    let mut client = server.client();
    let ledger = ledger.lock().unwrap();
    let (mut all, mut completed) = (0, 0);
    for queue in QUEUES {
        all += client.ok("Count", json!({"queue": queue}))["count"].as_u64().unwrap();
        completed += client.counted(queue, "completed");
        assert!(client.pull(queue).is_null(), "{queue} still delivers");
    }
    let existing = ledger.existing().count() as u64;
    assert_eq!((all, completed), (existing, existing));
    for (number, job) in ledger.jobs.iter().enumerate().step_by(7) {
        let Some(id) = job.id.as_ref().filter(|_| matches!(job.done, Done::Answered(_))) else {
            continue;
        };
        let reply = client.ok("GetResult", json!({"id": id}));
        assert_eq!(reply["result"], json!({"number": number}), "the result of {id}");
    }
}
