//! A process that does not run for a while: stopped by a signal, or frozen with its container. The fear: all locks expire
//! when it goes on, before it has read the signs of life that were sent meanwhile.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Start, until};

const LOCK_TTL_MS: u64 = 5000;

/// Longer than a lock lives. The gap is the input here: nothing is waited for.
const GAP_S: u64 = 8;

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

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

/// The next run after the one that the gap hides is a day later.
#[test]
fn a_run_that_was_due_while_the_process_did_not_run_is_late_and_not_lost() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    // Room to register and to stop before it is due.
    let due_s = client.time() / 1000 + 6;
    let (hour, minute, second) = (due_s / 3600 % 24, due_s / 60 % 60, due_s % 60);
    let daily = json!({"name": "late", "queue": "late", "data": 1, "skipMissedOnRestart": false,
        "schedule": format!("{second} {minute} {hour} * * *")});
    assert_eq!(client.ok("Cron", daily)["cron"]["nextRun"], due_s * 1000);
    server.freeze();
    // More than 10 s late, beyond which a run is skipped unless it is to be made up for.
    until("the run to be late", || (now_s() > due_s + 11).then_some(()));
    server.signal(Signal::CONT);
    let pull = json!({"queue": "late", "owner": "w", "timeout": 60_000});
    let job = client.ok("PULL", pull)["job"].clone();
    assert_eq!(job["runAt"], due_s * 1000, "{job}");
    let cron = client.ok("CronGet", json!({"name": "late"}))["cron"].clone();
    assert_eq!(
        (&cron["executions"], &cron["nextRun"]),
        (&json!(1), &json!((due_s + 86_400) * 1000))
    );
    assert_eq!(client.counted("late", "waiting"), 0, "one run stands for what was missed");
}
