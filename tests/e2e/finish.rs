//! Acknowledging and failing. The fear: a job that counts as done though nobody did it, or a
//! result that is lost; and a token that opens another job's lock.

use serde_json::{Value, json};

use crate::{client, queue};

const GONE: &str = "Job not found or not active";

#[test]
fn an_acknowledged_job_is_completed_and_keeps_its_result() {
    let (mut client, queue) = (client(), queue("ack"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    let reply = client.ok("ACK", json!({"id": id, "result": {"sum": [1, 2]}}));
    assert!(reply.get("data").is_none(), "official clients read a `data` as a refusal: {reply}");
    assert_eq!(client.state(&id), "completed");
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], json!({"sum": [1, 2]}));
    let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
    assert!(job["completedAt"].as_u64().unwrap() >= job["startedAt"].as_u64().unwrap());
    assert_eq!(client.counted(&queue, "completed"), 1);
}

#[test]
fn a_job_without_result_has_null() {
    let (mut client, queue) = (client(), queue("no-result"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    client.ok("ACK", json!({"id": id}));
    let reply = client.ok("GetResult", json!({"id": id}));
    assert_eq!(reply.get("result").unwrap_or(&Value::Null), &Value::Null);
}

#[test]
fn only_an_active_job_can_be_acknowledged_or_failed() {
    let (mut client, queue) = (client(), queue("not-active"));
    let id = client.push(&queue, 1);
    for cmd in ["ACK", "FAIL"] {
        assert_eq!(client.refused(cmd, json!({"id": id})), GONE);
        assert_eq!(client.refused(cmd, json!({"id": "no-such-job"})), GONE);
    }
    client.pull(&queue);
    client.ok("ACK", json!({"id": id, "result": 1}));
    assert_eq!(client.refused("ACK", json!({"id": id, "result": 2})), GONE);
    assert_eq!(client.refused("FAIL", json!({"id": id})), GONE);
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], 1);
}

#[test]
fn an_owned_job_needs_its_token() {
    let (mut client, queue) = (client(), queue("token"));
    let id = client.push(&queue, 1);
    let (job, token) = client.pull_owned(&queue, 3_600_000);
    assert_eq!(job["id"], json!(id));
    let missing = format!("Lock token required for job {id}");
    let wrong = format!("Invalid or expired lock token for job {id}");
    for cmd in ["ACK", "FAIL"] {
        assert_eq!(client.refused(cmd, json!({"id": id})), missing);
        assert_eq!(client.refused(cmd, json!({"id": id, "token": "guess"})), wrong);
    }
    assert_eq!(client.state(&id), "active");
    // The token is the key, not the connection.
    crate::client().ok("ACK", json!({"id": id, "token": token}));
    assert_eq!(client.state(&id), "completed");
}

#[test]
fn the_token_of_one_job_does_not_open_another() {
    let (mut client, queue) = (client(), queue("keys"));
    let ids = [client.push(&queue, 1), client.push(&queue, 2)];
    let (_, first) = client.pull_owned(&queue, 3_600_000);
    let (_, second) = client.pull_owned(&queue, 3_600_000);
    assert_ne!(first, second);
    let text = client.refused("ACK", json!({"id": ids[0], "token": second}));
    assert_eq!(text, format!("Invalid or expired lock token for job {}", ids[0]));
    client.ok("ACK", json!({"id": ids[0], "token": first}));
    client.ok("ACK", json!({"id": ids[1], "token": second}));
}

#[test]
fn a_batch_is_acknowledged_with_its_tokens_and_results() {
    let (mut client, queue) = (client(), queue("ackb"));
    let jobs: Vec<Value> = (0..100).map(|n| json!({"data": n})).collect();
    let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
    let pulled = client.ok("PULLB", json!({"queue": queue, "count": 100, "owner": "me"}));
    assert_eq!(pulled["tokens"].as_array().unwrap().len(), 100);
    let results: Vec<Value> = (0..100).map(|n| json!(n * 2)).collect();
    let fields = json!({"ids": ids, "tokens": pulled["tokens"], "results": results});
    let reply = client.ok("ACKB", fields);
    assert!(reply.get("data").is_none(), "{reply}");
    assert_eq!(client.counted(&queue, "completed"), 100);
    for n in [0, 50, 99] {
        assert_eq!(client.ok("GetResult", json!({"id": ids[n]}))["result"], n * 2);
    }
}

#[test]
fn a_batch_over_several_queues_is_acknowledged_whole() {
    let mut client = client();
    let mut ids = Vec::new();
    for n in 0..20 {
        let queue = queue("spread");
        ids.push(client.push(&queue, n));
        client.pull(&queue);
    }
    client.ok("ACKB", json!({"ids": ids, "results": (0..20).collect::<Vec<i32>>()}));
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(client.state(id), "completed");
        assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], n);
    }
}

#[test]
fn a_batch_with_one_wrong_token_changes_nothing() {
    let (mut client, queue) = (client(), queue("ackb-wrong"));
    let jobs = vec![json!({"data": 1}); 5];
    let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
    let pulled = client.ok("PULLB", json!({"queue": queue, "count": 5, "owner": "me"}));
    let mut tokens = pulled["tokens"].clone();
    tokens[2] = json!("guess");
    let text = client.refused("ACKB", json!({"ids": ids, "tokens": tokens}));
    assert!(text.contains(ids[2].as_str().unwrap()), "{text}");
    assert_eq!(client.counted(&queue, "active"), 5);
    client.ok("ACKB", json!({"ids": ids, "tokens": pulled["tokens"]}));
    assert_eq!(client.counted(&queue, "completed"), 5);
}

#[test]
fn a_batch_with_one_refusal_over_several_shards_changes_nothing() {
    let mut client = client();
    let mut ids = Vec::new();
    for n in 0..8 {
        let queue = queue("spread-wrong");
        ids.push(client.push(&queue, n));
        if n != 5 {
            client.pull(&queue);
        }
    }
    client.refused("ACKB", json!({"ids": ids}));
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(client.state(id), if n == 5 { "waiting" } else { "active" }, "job {n}");
    }
}

#[test]
fn results_and_tokens_must_be_as_many_as_the_ids() {
    let (mut client, queue) = (client(), queue("ackb-length"));
    let id = client.push(&queue, 1);
    client.pull(&queue);
    let text = client.refused("ACKB", json!({"ids": [id], "results": [1, 2]}));
    assert!(text.contains("results"), "{text}");
    assert_eq!(client.state(&id), "active");
}

#[test]
fn remove_on_complete_leaves_nothing() {
    let (mut client, queue) = (client(), queue("remove"));
    let id = client.push_with(&queue, 1, json!({"removeOnComplete": true}));
    client.pull(&queue);
    client.ok("ACK", json!({"id": id, "result": 1}));
    assert_eq!(client.state(&id), "unknown");
    assert!(client.refused("GetJob", json!({"id": id})).contains("not found"));
    assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn a_waiting_caller_gets_the_result_when_the_job_completes() {
    let (mut client, mut waiter, queue) = (client(), crate::client(), queue("wait"));
    for options in [json!({}), json!({"removeOnComplete": true})] {
        let id = client.push_with(&queue, 1, options);
        waiter.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
        assert_eq!(waiter.ok("Ping", json!({}))["data"]["pong"], true, "a wait blocks nothing");
        assert_eq!(waiter.state(&id), "waiting");
        client.pull(&queue);
        client.ok("ACK", json!({"id": id, "result": "done"}));
        let reply = waiter.recv().unwrap();
        assert_eq!((&reply["completed"], &reply["result"]), (&json!(true), &json!("done")));
    }
}

#[test]
fn waiting_for_a_completed_job_answers_at_once_and_for_an_idle_one_at_its_timeout() {
    let (mut client, queue) = (client(), queue("wait-now"));
    let id = client.push(&queue, 1);
    let reply = client.ok("WaitJob", json!({"id": id, "timeout": 20}));
    assert_eq!(reply["completed"], false);
    client.pull(&queue);
    client.ok("ACK", json!({"id": id, "result": 5}));
    let reply = client.ok("WaitJob", json!({"id": id, "timeout": 0}));
    assert_eq!((&reply["completed"], &reply["result"]), (&json!(true), &json!(5)));
}

#[test]
fn a_waiting_caller_learns_of_any_other_end_at_once() {
    let (mut client, mut waiter, queue) = (client(), crate::client(), queue("wait-fail"));
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
    waiter.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
    waiter.ok("GetState", json!({"id": id}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "broken"}));
    let reply = waiter.recv().unwrap();
    assert_eq!(reply["completed"], false);
    assert_eq!((&reply["state"], &reply["error"]), (&json!("failed"), &json!("broken")));

    let id = client.push(&queue, 2);
    waiter.send("WaitJob", json!({"id": id, "timeout": 600_000})).unwrap();
    // The wait must be there before the job goes; what the waiter asks about it is behind that.
    waiter.ok("GetState", json!({"id": id}));
    client.ok("Cancel", json!({"id": id}));
    assert_eq!(waiter.recv().unwrap()["completed"], false);
}

#[test]
fn a_token_that_is_given_fits_in_every_command_on_a_leased_job() {
    let (mut client, queue) = (client().speaking(2), queue("given"));
    let commands = [
        ("MoveToDelayed", json!({"delay": 60_000})),
        ("Discard", json!({})),
        ("MoveToWait", json!({})),
        ("ChangeDelay", json!({"delay": 60_000})),
        ("MoveToWaitingChildren", json!({})),
    ];
    for (cmd, fields) in commands {
        client.push(&queue, cmd);
        let (job, token) = client.pull_owned(&queue, 3_600_000);
        let id = job["id"].as_str().unwrap();
        let with = |token: &str| {
            let mut fields = fields.clone();
            (fields["id"], fields["token"]) = (json!(id), json!(token));
            fields
        };
        for wrong in ["4e9bcd5c-8d3f-4b6a-9b3a-2f0e5f7b9c11", "no token"] {
            let text = client.refused(cmd, with(wrong));
            assert_eq!(text, format!("Invalid or expired lock token for job {id}"), "{cmd}");
            assert_eq!(client.state(id), "active", "{cmd}");
        }
        client.ok(cmd, with(&token));
        if client.state(id) == "active" {
            client.ok("ACK", json!({"id": id, "token": token}));
        } else if client.state(id) == "waiting" {
            client.ok("Cancel", json!({"id": id}));
        }
    }
}
