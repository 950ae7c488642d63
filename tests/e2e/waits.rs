//! Waiting for jobs. The fear: a caller that never gets a reply, or gets that of another's job.

use serde_json::{Value, json};

use crate::support::Start;
use crate::{client, queue};

#[test]
fn waits_work_over_all_shards_and_by_custom_ids() {
    let mut client = client();
    for n in 0..8 {
        let (queue, mut waiter) = (queue("wait-spread"), crate::client());
        let own = format!("order-{queue}");
        let options = if n % 2 == 0 { json!({"jobId": own}) } else { json!({}) };
        let id = client.push_with(&queue, n, options);
        waiter.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
        client.pull(&queue);
        client.ok("ACK", json!({"id": id, "result": n}));
        let reply = waiter.recv().unwrap();
        assert_eq!((&reply["completed"], &reply["result"]), (&json!(true), &json!(n)), "{reply}");
    }
}

#[test]
fn all_who_wait_for_a_job_are_told_and_nobody_else() {
    let (mut client, queue) = (client(), queue("wait-many"));
    let [first, second] = [client.push(&queue, 1), client.push(&queue, 2)];
    let mut waiters: Vec<_> = (0..4).map(|_| crate::client()).collect();
    for waiter in &mut waiters {
        for id in [&second, &first] {
            waiter.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
        }
    }
    for (id, result) in [(&first, "one"), (&second, "two")] {
        client.pull(&queue);
        client.ok("ACK", json!({"id": id, "result": result}));
        for waiter in &mut waiters {
            assert_eq!(waiter.recv().unwrap()["result"], result);
        }
    }
}

#[test]
fn a_job_that_leaves_nothing_behind_still_tells_how_it_ended() {
    let (mut client, mut waiter, queue) = (client(), crate::client(), queue("wait-gone"));
    let options = json!({"maxAttempts": 1, "removeOnFail": true});
    let id = client.push_with(&queue, 1, options);
    waiter.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
    // The reply to a later question shows that the wait has begun.
    waiter.ok("GetState", json!({"id": id}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "broken"}));
    let reply = waiter.recv().unwrap();
    assert_eq!((&reply["completed"], &reply["error"]), (&json!(false), &json!("broken")));
    assert_eq!(client.state(&id), "unknown");

    let id = client.push_with(&queue, 1, json!({"ttl": 30}));
    let reply = waiter.call("WaitJob", json!({"id": id, "timeout": 600_000}));
    if reply["ok"] == json!(true) {
        assert_eq!((&reply["completed"], &reply["state"]), (&json!(false), &json!("removed")));
        assert_eq!(reply["error"], "Job removed");
    } else {
        assert_eq!(reply["error"], "Job not found", "it had ended before");
    }
}

#[test]
fn a_wait_for_a_job_that_went_on_completion_says_that_it_was_completed() {
    let (mut client, queue) = (client(), queue("wait-late"));
    let own = format!("own-{queue}");
    for options in
        [json!({"removeOnComplete": true}), json!({"removeOnComplete": true, "jobId": own})]
    {
        let id = client.push_with(&queue, 1, options);
        client.pull(&queue);
        client.ok("ACK", json!({"id": id, "result": 7}));
        let reply = client.ok("WaitJob", json!({"id": id, "timeout": 600_000}));
        assert_eq!(
            (&reply["completed"], &reply["result"]),
            (&json!(true), &json!(null)),
            "{reply}"
        );
    }
    let never = json!({"id": format!("never-{queue}"), "timeout": 0});
    assert_eq!(client.refused("WaitJob", never), "Job not found");
}

#[test]
fn a_wait_for_a_job_that_went_on_failure_says_that_it_failed() {
    let (mut client, queue) = (client(), queue("wait-late-failed"));
    let own = format!("own-{queue}");
    for options in [
        json!({"removeOnFail": true, "maxAttempts": 1}),
        json!({"removeOnFail": true, "maxAttempts": 1, "jobId": own}),
    ] {
        let id = client.push_with(&queue, 1, options);
        client.pull(&queue);
        client.ok("FAIL", json!({"id": id, "error": "broken"}));
        assert_eq!(client.state(&id), "unknown");
        let reply = client.ok("WaitJob", json!({"id": id, "timeout": 600_000}));
        let expected = (&json!(false), &json!("failed"), &json!("Job failed and was removed"));
        assert_eq!((&reply["completed"], &reply["state"], &reply["error"]), expected, "{reply}");
    }
    let cancelled = client.push_with(&queue, 1, json!({"removeOnFail": true}));
    client.ok("Cancel", json!({"id": cancelled}));
    let wait = json!({"id": cancelled, "timeout": 0});
    assert_eq!(client.refused("WaitJob", wait), "Job not found");
}

#[test]
fn a_wait_is_one_of_the_fifty_and_its_end_makes_room() {
    let (mut client, mut waiter, queue) = (client(), crate::client(), queue("wait-fifty"));
    let id = client.push(&queue, 1);
    for _ in 0..50 {
        waiter.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
    }
    let ping = waiter.send("Ping", json!({})).unwrap();
    let patience = std::time::Duration::from_millis(150);
    assert_eq!(waiter.recv_within(patience), None, "the fifty-first command waits its turn");
    client.pull(&queue);
    client.ok("ACK", json!({"id": id}));
    let replies: Vec<Value> = (0..51).map(|_| waiter.recv().unwrap()).collect();
    assert_eq!(replies.iter().filter(|reply| reply["completed"] == json!(true)).count(), 50);
    assert!(replies.iter().any(|reply| reply["reqId"] == json!(ping)));
}

/// The fear: a job stalls, or runs again, because its worker waits for others on the same connection.
#[test]
fn outcomes_heartbeats_and_progress_pass_the_fifty_and_what_waits_behind_them() {
    let (mut client, mut worker, queue) = (client(), crate::client(), queue("wait-pass"));
    let others = format!("{queue}-others");
    let waited = client.push(&others, 0);
    let held: Vec<_> = (0..3)
        .map(|n| {
            client.push(&queue, n);
            worker.pull_owned(&queue, 600_000)
        })
        .collect();
    for _ in 0..25 {
        worker.send("WaitJob", json!({"id": waited, "timeout": 600_000})).unwrap();
        let pull = json!({"queue": format!("{queue}-empty"), "timeout": 60_000});
        worker.send("PULL", pull).unwrap();
    }
    let behind: Vec<_> = (0..3).map(|_| worker.send("Ping", json!({})).unwrap()).collect();
    for (n, (job, token)) in held.iter().enumerate() {
        let id = &job["id"];
        let sent = [
            ("JobHeartbeat", json!({"id": id, "token": token})),
            ("ExtendLock", json!({"id": id, "token": token, "duration": 600_000})),
            ("Progress", json!({"id": id, "progress": 50})),
            ("JobHeartbeatB", json!({"ids": [id], "tokens": [token]})),
            match n {
                0 => ("ACK", json!({"id": id, "token": token})),
                1 => ("FAIL", json!({"id": id, "token": token, "error": "broken"})),
                _ => ("ACKB", json!({"ids": [id], "tokens": [token]})),
            },
        ];
        let sent = sent.map(|(cmd, fields)| json!(worker.send(cmd, fields).unwrap()));
        for _ in &sent {
            let reply = worker.recv().unwrap();
            assert!(sent.contains(&reply["reqId"]) && reply["ok"] == true, "{reply}");
        }
    }
    let patience = std::time::Duration::from_millis(150);
    assert_eq!(worker.recv_within(patience), None, "what has passed makes no room for others");
    client.pull(&others);
    client.ok("ACK", json!({"id": waited}));
    let replies: Vec<Value> = (0..28).map(|_| worker.recv().unwrap()).collect();
    let answered = |id| replies.iter().any(|reply| reply["reqId"] == json!(id));
    assert!(behind.iter().all(answered), "{replies:?}");
}

#[test]
fn waits_end_with_their_connection_and_with_the_server() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let ids: Vec<String> = (0..4).map(|n| client.push(&format!("q{n}"), n)).collect();
    let mut leaving = server.client();
    let mut staying = server.client();
    for id in &ids {
        leaving.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
        staying.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
    }
    // All of them wait when what follows them is answered.
    for id in &ids {
        leaving.ok("GetState", json!({"id": id}));
        staying.ok("GetState", json!({"id": id}));
    }
    drop(leaving);
    for id in &ids[..2] {
        client.ok("Discard", json!({"id": id}));
        assert_eq!(staying.recv().unwrap()["error"], "Job discarded");
    }
    let status = server.terminate();
    assert_eq!(status.code(), Some(0), "{}", server.output());
    for _ in &ids[2..] {
        assert_eq!(staying.recv().unwrap()["completed"], false);
    }
}
