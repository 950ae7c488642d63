//! Ownership. The fear: a job that is lost with its worker, or one that two workers have.

use serde_json::{Value, json};

use crate::support::{Start, until};
use crate::{Client, client, queue};

/// Longer than any test takes.
const HOUR_MS: u64 = 3_600_000;

/// That a sign of life holds a job for the time of its lock, an hour, although it was to end soon, as another one does.
fn renews(client: &mut Client, queue: &str, id: &str, token: &str, sign: (&str, Value)) {
    let other = client.push(queue, "no sign of life");
    let (_, others) = client.pull_owned(queue, HOUR_MS);
    let mut heart = crate::client();
    let soon = |id: &str, token: &str| json!({"id": id, "token": token, "duration": 1000});
    let both = [("ExtendLock", soon(id, token)), sign, ("ExtendLock", soon(&other, &others))];
    let replies = heart.at_once(both);
    assert!(replies.iter().all(|reply| reply["ok"] == true), "{replies:?}");
    until("the other lock to end", || (client.state(&other) == "waiting").then_some(()));
    assert_eq!(client.state(id), "active");
}

#[test]
fn a_job_whose_lock_runs_out_comes_back_with_one_attempt_more() {
    let (mut client, queue) = (client(), queue("stall"));
    let id = client.push(&queue, 1);
    let (_, token) = client.pull_owned(&queue, 100);
    let (job, _) = client.pull_owned(&queue, HOUR_MS);
    assert_eq!((&job["id"], &job["attempts"]), (&json!(id), &json!(1)));
    assert_eq!(job["stallCount"], 1);
    let text = client.refused("ACK", json!({"id": id, "token": token}));
    assert_eq!(text, format!("Invalid or expired lock token for job {id}"));
    assert_eq!(client.state(&id), "active");
}

#[test]
fn a_late_acknowledgement_changes_nothing() {
    let (mut client, queue) = (client(), queue("late"));
    let id = client.push(&queue, 1);
    let (_, token) = client.pull_owned(&queue, 50);
    until("the stall", || (client.state(&id) == "waiting").then_some(()));
    client.refused("ACK", json!({"id": id, "token": token}));
    client.refused("FAIL", json!({"id": id, "token": token}));
    assert_eq!(client.state(&id), "waiting");
}

#[test]
fn the_third_stall_sends_a_job_to_the_dead_letter_queue() {
    let (mut client, queue) = (client(), queue("stall-3"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 10}));
    for _ in 0..3 {
        client.pull_owned(&queue, 40);
    }
    until("the job to be failed", || (client.state(&id) == "failed").then_some(()));
    let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"].clone();
    assert_eq!(dead[0]["failedReason"], "Job stalled 3 times");
}

#[test]
fn a_stall_with_no_attempts_left_sends_a_job_to_the_dead_letter_queue() {
    let (mut client, queue) = (client(), queue("stall-last"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
    client.pull_owned(&queue, 40);
    until("the job to be failed", || (client.state(&id) == "failed").then_some(()));
}

#[test]
fn a_heartbeat_renews_the_lock_for_its_full_time() {
    let (mut client, queue) = (client(), queue("heartbeat"));
    let id = client.push(&queue, 1);
    let (_, token) = client.pull_owned(&queue, HOUR_MS);
    // From another connection, as official workers do it.
    renews(&mut client, &queue, &id, &token, ("JobHeartbeat", json!({"id": id, "token": token})));
    client.ok("ACK", json!({"id": id, "token": token}));
}

#[test]
fn a_heartbeat_with_a_wrong_token_is_refused() {
    let (mut client, queue) = (client(), queue("heartbeat-wrong"));
    let id = client.push(&queue, 1);
    client.pull_owned(&queue, HOUR_MS);
    client.refused("JobHeartbeat", json!({"id": id, "token": "guess"}));
    client.refused("JobHeartbeat", json!({"id": "nobody", "token": "guess"}));
}

#[test]
fn a_batch_of_heartbeats_says_how_many_it_renewed() {
    let (mut client, queue) = (client(), queue("heartbeats"));
    for n in 0..3 {
        client.push(&queue, n);
    }
    let pulled =
        client.ok("PULLB", json!({"queue": queue, "count": 3, "owner": "me", "lockTtl": HOUR_MS}));
    let ids: Vec<&Value> =
        pulled["jobs"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
    let mut tokens = pulled["tokens"].clone();
    let reply = client.ok("JobHeartbeatB", json!({"ids": ids, "tokens": tokens}));
    assert_eq!(reply["data"]["count"], 3);
    tokens[1] = json!("guess");
    let reply = client.ok("JobHeartbeatB", json!({"ids": ids, "tokens": tokens}));
    assert_eq!(reply["data"]["count"], 2);
}

#[test]
fn a_batch_of_heartbeats_names_the_places_of_the_jobs_that_are_gone_and_renews_the_rest() {
    for shards in [1, 2] {
        let server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client();
        let (mut ids, mut tokens) = (Vec::new(), Vec::new());
        // Several queues, so that with two shards each has some; every third job goes by its own name.
        for (place, queue) in ["a", "b", "c", "d"].into_iter().cycle().take(12).enumerate() {
            let mut push = json!({"queue": queue, "data": place});
            if place % 3 == 0 {
                push["jobId"] = json!(format!("name-{place}"));
            }
            ids.push(client.ok("PUSH", push)["id"].clone());
            tokens.push(json!(client.pull_owned(queue, HOUR_MS).1));
        }
        let beat = |client: &mut Client, ids: &[Value], tokens: &[Value]| {
            client.ok("JobHeartbeatB", json!({"ids": ids, "tokens": tokens}))["data"].clone()
        };
        assert_eq!(beat(&mut client, &ids, &tokens), json!({"ok": true, "count": 12}));
        // The gone ones: never was, has ended, has ended and is named by its custom id, has another's token.
        client.ok("ACK", json!({"id": ids[5], "token": tokens[5]}));
        client.ok("ACK", json!({"id": ids[6], "token": tokens[6]}));
        tokens[8] = json!("guess");
        ids.push(json!("nobody"));
        tokens.push(json!("guess"));
        let rest = json!({"ok": true, "count": 9, "goneIndices": [5, 6, 8, 12]});
        assert_eq!(beat(&mut client, &ids, &tokens), rest);
        // Jobs of one shard only, one of them gone: those that are there are counted.
        let own: Vec<usize> = [1, 5, 9].into();
        let of = |all: &[Value]| own.iter().map(|&place| all[place].clone()).collect::<Vec<_>>();
        let one_gone = json!({"ok": true, "count": 2, "goneIndices": [1]});
        assert_eq!(beat(&mut client, &of(&ids), &of(&tokens)), one_gone);
    }
}

#[test]
fn progress_counts_as_a_sign_of_life() {
    let (mut client, queue) = (client(), queue("progress-life"));
    let id = client.push(&queue, 1);
    let (_, token) = client.pull_owned(&queue, HOUR_MS);
    renews(&mut client, &queue, &id, &token, ("Progress", json!({"id": id, "progress": 50})));
    client.ok("ACK", json!({"id": id, "token": token}));
}

#[test]
fn disconnecting_releases_jobs_at_once_with_their_attempts_unchanged() {
    let (mut client, queue) = (client(), queue("disconnect"));
    for n in 0..4 {
        client.push(&queue, n);
    }
    let mut leaving = crate::client();
    leaving.pull_owned(&queue, HOUR_MS);
    leaving.ok("PULLB", json!({"queue": queue, "count": 2}));
    assert_eq!(client.counted(&queue, "active"), 3);
    drop(leaving);
    until("the release", || (client.counted(&queue, "waiting") == 4).then_some(()));
    for _ in 0..4 {
        assert_eq!(client.pull(&queue)["attempts"], 0);
    }
}

#[test]
fn a_job_released_by_a_disconnect_wakes_a_worker_that_waits() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("release-wake"));
    let id = client.push(&queue, 1);
    let mut leaving = crate::client();
    leaving.pull_owned(&queue, HOUR_MS);
    worker.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
    drop(leaving);
    assert_eq!(worker.recv().unwrap()["job"]["id"], json!(id));
}

#[test]
fn a_detached_job_survives_its_connection() {
    let (mut client, queue) = (client(), queue("detach"));
    let (first, second) = (client.push(&queue, 1), client.push(&queue, 2));
    let mut leaving = crate::client();
    let fields = json!({"queue": queue, "owner": "me", "lockTtl": HOUR_MS, "detach": true});
    let reply = leaving.ok("PULL", fields);
    leaving.pull_owned(&queue, HOUR_MS);
    drop(leaving);
    // Once the other job is back, the disconnect has been dealt with.
    until("the release", || (client.state(&second) == "waiting").then_some(()));
    assert_eq!(client.state(&first), "active");
    client.ok("ACK", json!({"id": first, "token": reply["token"]}));
}

#[test]
fn a_job_renewed_from_another_connection_survives_the_one_that_pulled_it() {
    let (mut client, queue) = (client(), queue("renewed"));
    let (first, second) = (client.push(&queue, 1), client.push(&queue, 2));
    let mut leaving = crate::client();
    let (_, token) = leaving.pull_owned(&queue, HOUR_MS);
    leaving.pull_owned(&queue, HOUR_MS);
    client.ok("JobHeartbeat", json!({"id": first, "token": token}));
    drop(leaving);
    until("the release", || (client.state(&second) == "waiting").then_some(()));
    assert_eq!(client.state(&first), "active");
    client.ok("ACK", json!({"id": first, "token": token}));
}

#[test]
fn a_job_done_before_the_disconnect_stays_done() {
    let (mut client, queue) = (client(), queue("done"));
    let (done, open) = (client.push(&queue, 1), client.push(&queue, 2));
    let mut leaving = crate::client();
    let (_, token) = leaving.pull_owned(&queue, HOUR_MS);
    leaving.pull_owned(&queue, HOUR_MS);
    leaving.ok("ACK", json!({"id": done, "token": token}));
    drop(leaving);
    until("the release", || (client.state(&open) == "waiting").then_some(()));
    assert_eq!(client.state(&done), "completed");
}

#[test]
fn a_job_passed_on_is_not_released_by_the_worker_that_lost_it() {
    let (mut client, queue) = (client(), queue("passed-on"));
    let id = client.push(&queue, 1);
    let mut lost = crate::client();
    lost.pull_owned(&queue, 60);
    let (job, token) = client.pull_owned(&queue, HOUR_MS);
    assert_eq!(job["id"], json!(id));
    drop(lost);
    // A second connection that leaves behind it shows that the first has been dealt with.
    let other = client.push(&queue, 2);
    let mut leaving = crate::client();
    leaving.pull_owned(&queue, HOUR_MS);
    drop(leaving);
    until("the release", || (client.state(&other) == "waiting").then_some(()));
    assert_eq!(client.state(&id), "active");
    client.ok("ACK", json!({"id": id, "token": token}));
}
