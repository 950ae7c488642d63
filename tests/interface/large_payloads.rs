//! Payloads of megabytes. The fear: one that holds its shard while it is checked or copied; or one that is done in slices and
//! therefore mixed up with what comes before and behind it, kept by half, or lost with its client.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::{Client, Server, Start, encode, frame, until};

/// Steps of one command in one turn.
const STEPS_MAX: u64 = 5000;

/// Values of a payload, which would take several times as many steps.
const VALUES: usize = 500_000;

fn server(shards: usize) -> Server {
    Start::new().env("SHARDS", shards).start()
}

/// A payload of many small values.
fn many_values() -> Value {
    Value::from(vec![1; VALUES])
}

/// Some megabytes of text in which no two places look alike.
fn long_text(seed: usize) -> String {
    let mut text = String::new();
    for n in 0..300_000 {
        let _ = write!(text, "{:x}é", n * 7 + seed);
    }
    text
}

fn steps_of(client: &mut Client, command: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let label = format!("corq_turn_steps_max{{shard=\"0\",command=\"{command}\"}} ");
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(&label));
    line.map_or(0, |steps| steps.parse().unwrap())
}

/// A job that a worker has, and its token.
fn active(client: &mut Client, queue: &str) -> (Value, Value) {
    client.push(queue, 1);
    let (job, token) = client.pull_owned(queue, 86_400_000);
    (job["id"].clone(), json!(token))
}

#[test]
fn payloads_of_many_values_are_checked_in_slices_by_every_command_that_has_one() {
    let server = server(1);
    let mut client = server.client();
    let data = many_values();
    let pushed =
        client.ok("PUSH", json!({"queue": "a", "data": data, "jobId": "named"}))["id"].clone();
    client.ok("Update", json!({"id": pushed, "data": data}));
    let (id, token) = active(&mut client, "b");
    let message = long_text(7);
    client.ok("Progress", json!({"id": id, "progress": 5, "message": message}));
    assert_eq!(client.ok("GetProgress", json!({"id": id}))["message"], json!(message));
    client.ok("ACK", json!({"id": id, "token": token, "result": data}));
    let cron = json!({"name": "c", "queue": "d", "repeatEvery": 86_400_000, "data": data});
    client.ok("Cron", cron);
    let mut socket = WebSocket::open(server.http, "/ws");
    socket.ok("PUSH", json!({"queue": "e", "data": data}));
    server.web().push("f", json!({"data": data}));
    assert_eq!(client.ok("GetJob", json!({"id": pushed}))["job"]["data"], data);
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], data);
    for command in ["PUSH", "Update", "Progress", "ACK", "Cron", "other", "json"] {
        let steps = steps_of(&mut client, command);
        assert!((1..=STEPS_MAX).contains(&steps), "{command} took {steps} steps in a turn");
    }
}

#[test]
fn large_payloads_are_there_as_they_were_sent_after_a_kill() {
    for (shards, durability) in [(1, "written"), (2, "written"), (1, "synced")] {
        let start = Start::new().env("SHARDS", shards).env("DURABILITY", durability);
        let mut server = start.start();
        let mut client = server.client();
        let mut kept = Vec::new();
        for (place, queue) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let (data, result) = (long_text(place), long_text(place + 100));
            let (id, token) = active(&mut client, queue);
            client.ok("Progress", json!({"id": id, "progress": 5, "message": data}));
            client.ok("ACK", json!({"id": id, "token": token, "result": result}));
            let name = format!("named-{queue}");
            let first = client.push_with(queue, data.as_str(), json!({"jobId": name}));
            let second = client.push_with(queue, 1, json!({"dependsOn": [name]}));
            let third = client.push_with(queue, data.as_str(), json!({"dependsOn": [second]}));
            client.ok("Update", json!({"id": name, "data": result}));
            client.ok("PUSH", json!({"queue": queue, "data": "short"}));
            kept.push((id, result.clone(), first, result, third, data));
        }
        server.kill();
        server.start();
        let mut client = server.client();
        for (id, result, first, updated, third, data) in kept {
            assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], json!(result));
            assert_eq!(client.ok("GetJob", json!({"id": first}))["job"]["data"], json!(updated));
            assert_eq!(client.ok("GetJob", json!({"id": third}))["job"]["data"], json!(data));
        }
    }
}

#[test]
fn commands_behind_a_large_one_wait_for_it() {
    let server = server(1);
    let mut client = server.client();
    let data = long_text(1);
    let mut bytes = Vec::new();
    for command in [
        json!({"cmd": "PUSH", "reqId": "1", "queue": "q", "data": data}),
        json!({"cmd": "PULL", "reqId": "2", "queue": "q"}),
        json!({"cmd": "PUSH", "reqId": "3", "queue": "q", "data": data, "priority": "wrong"}),
        json!({"cmd": "Ping", "reqId": "4"}),
    ] {
        bytes.extend(frame(&encode(&command)));
    }
    client.send_bytes(&bytes).unwrap();
    let replies: Vec<Value> = (0..4).map(|_| client.recv().unwrap()).collect();
    let ids: Vec<&Value> = replies.iter().map(|reply| &reply["reqId"]).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);
    assert_eq!(replies[1]["job"]["id"], replies[0]["id"]);
    assert_eq!(replies[1]["job"]["data"], json!(data));
    assert_eq!(replies[2]["ok"], json!(false));
}

#[test]
fn a_client_that_sends_no_more_has_its_large_command_done() {
    let server = server(1);
    let mut client = server.client();
    client.send("PUSH", json!({"queue": "q", "data": many_values()})).unwrap();
    client.shutdown_write();
    assert_eq!(client.recv().unwrap()["ok"], json!(true));
    assert!(client.is_closed_by_server());
    assert_eq!(server.client().counted("q", "waiting"), 1);
    // Jobs of the connection go back behind its last command, not before.
    let mut client = server.client();
    client.ok("PULL", json!({"queue": "q"}));
    client.push("held", 1);
    let id = client.pull("held")["id"].clone();
    client.send("ACK", json!({"id": id, "result": many_values()})).unwrap();
    client.shutdown_write();
    assert_eq!(client.recv().unwrap()["ok"], json!(true));
    assert_eq!(server.client().state(id.as_str().unwrap()), "completed");
}

#[test]
fn large_commands_of_clients_that_leave_hold_up_nobody() {
    let server = server(1);
    for _ in 0..5 {
        let mut client = server.client();
        client.send("PUSH", json!({"queue": "q", "data": many_values()})).unwrap();
    }
    let mut client = server.client();
    client.push("q", long_text(2));
    let left = client.counted("q", "waiting");
    assert!((1..=6).contains(&left), "{left}");
    // Frames that the other connections held are free again.
    until("no frame to be held", || {
        let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let held = text
            .as_str()
            .unwrap()
            .lines()
            .find_map(|line| line.strip_prefix("corq_client_memory_bytes{account=\"input\"} "))
            .and_then(|value| value.parse::<f64>().ok());
        (held? == 0.0).then_some(())
    });
}

#[test]
fn a_large_request_that_is_wrong_is_refused_in_the_words_of_a_short_one() {
    let server = server(2);
    let data = many_values();
    for version in [2, 3] {
        let mut client = server.client().speaking(version);
        for (command, wrong) in [
            ("PUSH", json!({"queue": "q", "priority": "x"})),
            ("PUSH", json!({"queue": "q q"})),
            ("PUSH", json!({})),
            ("PUSH", json!({"queue": "q", "uniqueKey": 5})),
            ("PUSH", json!({"queue": "q", "dependsOn": ["none"]})),
            ("Update", json!({"id": "unknown"})),
            ("Update", json!({"id": 7})),
        ] {
            let with = |data: &Value| {
                let mut fields = wrong.clone();
                fields["data"] = data.clone();
                fields
            };
            let expected = client.refused(command, with(&json!(1)));
            assert_eq!(client.refused(command, with(&data)), expected, "{wrong}");
        }
        // A value that version 3 coerces is coerced beside a large payload, too.
        let lenient = json!({"queue": "q", "data": data, "priority": "5"});
        let taken = client.call("PUSH", lenient)["ok"] == json!(true);
        let short = client.call("PUSH", json!({"queue": "q", "data": 1, "priority": "5"}));
        assert_eq!(json!(taken), short["ok"], "version {version}");
    }
}
