//! A process that does not run for a while: stopped by a signal, or frozen with its container. The fear: all locks expire
//! when it goes on, before it has read the signs of life that were sent meanwhile.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::Start;

const LOCK_TTL_MS: u64 = 5000;

/// Longer than a lock lives. The gap is the input here: nothing is waited for.
const GAP_S: u64 = 8;

#[test]
fn time_in_which_the_process_did_not_run_ends_no_lock_and_no_wait() {
    let server = Start::new().env("SHARDS", 1).start();
    let [mut alive, mut silent, mut waiting] = [(); 3].map(|()| server.client());
    let heard = alive.push("heard", 1);
    let (_, heard_token) = alive.pull_owned("heard", LOCK_TTL_MS);
    let unheard = silent.push("unheard", 1);
    let (_, unheard_token) = silent.pull_owned("unheard", LOCK_TTL_MS);
    let timed = silent.push_with("timed", 1, json!({"timeout": LOCK_TTL_MS}));
    let (_, timed_token) = silent.pull_owned("timed", 10 * LOCK_TTL_MS);
    let pull = waiting.send("PULL", json!({"queue": "late", "timeout": LOCK_TTL_MS})).unwrap();

    server.freeze();
    for _ in 0..GAP_S {
        alive.send("JobHeartbeat", json!({"id": heard, "token": heard_token})).unwrap();
        thread::sleep(Duration::from_secs(1));
    }
    server.signal(Signal::CONT);

    for _ in 0..GAP_S {
        let reply = alive.recv().unwrap();
        assert_eq!(reply["ok"], true, "{reply}");
    }
    silent.ok("ACK", json!({"id": unheard, "token": unheard_token}));
    silent.ok("ACK", json!({"id": timed, "token": timed_token}));
    alive.ok("ACK", json!({"id": heard, "token": heard_token}));
    let late = alive.push("late", 1);
    let reply = waiting.recv().unwrap();
    assert_eq!((&reply["reqId"], &reply["job"]["id"]), (&json!(pull), &json!(late)), "{reply}");
}
