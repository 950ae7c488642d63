//! Guards the harness: changes behind its back must be found.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::until;
use crate::torture::life::{Fault, Life, Plan};

fn short() -> Life {
    let plan = Plan { commands: 200, is_guarded: false, is_synced: false, ..Plan::of(1) };
    Life::begin(plan)
}

#[test]
fn canary_a_job_that_is_taken_away_unseen_is_found() {
    let mut life = short();
    life.round(Fault::Rest).unwrap();
    let mut client = life.server.client();
    // Without a number: those are given to the jobs of the round.
    let id = client.push("t-a", json!({"by": "hand"}));
    life.look().unwrap();
    client.ok("Cancel", json!({"id": id}));
    let found = life.look().unwrap_err();
    assert!(found.contains("Lost"), "{found}");
}

#[test]
fn canary_a_server_that_ends_under_its_clients_is_found() {
    let mut life = Life::begin(Plan { commands: u64::MAX, ..Plan::of(1) });
    let pid = Pid::from_raw(life.server.pid() as i32).unwrap();
    let sent = Arc::clone(&life.shared.sent);
    let killer = thread::spawn(move || {
        until("some commands", || (sent.load(Ordering::SeqCst) > 100).then_some(()));
        kill_process(pid, Signal::ABORT).unwrap();
    });
    let found = life.round(Fault::Kill).unwrap_err();
    killer.join().unwrap();
    assert!(found.contains("ended by itself"), "{found}");
}

#[test]
fn canary_a_queue_that_gives_nothing_is_found() {
    let mut life = short();
    life.round(Fault::Rest).unwrap();
    let mut client = life.server.client();
    client.ok("Pause", json!({"queue": "t-a"}));
    client.push("t-a", json!({"number": 0}));
    // In version 3 it is paused, and nothing else.
    let mut newer = life.server.client().speaking(3);
    until("the push to be seen", || (newer.counted("t-a", "paused") > 0).then_some(()));
    until("the push to be counted", || (client.counted("t-a", "waiting") > 0).then_some(()));
    let found = life.finish("Resume", Duration::from_secs(3)).unwrap_err();
    assert!(found.contains("not delivered"), "{found}");
}

#[test]
fn canary_a_figure_that_does_not_agree_is_found() {
    let mut life = short();
    let mut client = life.server.client();
    let id = client.push("t-a", json!({"number": 0}));
    let listed = until("the figures to agree", || crate::torture::audit::agree(&mut client).ok());
    assert!(listed.iter().any(|job| job["id"] == id.as_str()), "{listed:?}");
    // A job that lists in version 3 have and those in version 2 had not.
    let mut newer = life.server.client().speaking(3);
    let found = crate::torture::audit::same_in_version_3(&mut newer, "t-a", &[]).unwrap_err();
    assert!(found.contains("t-a, version 3: waiting"), "{found}");
    // A queue that the lists leave out.
    client.push("elsewhere", json!({"number": 1}));
    let found = crate::torture::audit::agree(&mut client).unwrap_err();
    assert!(found.contains("Stats: queued"), "{found}");
    drop(client);
    life.server.kill();
}
