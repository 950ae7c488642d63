//! Outcomes in any form. The fear: a job that was done runs again because what its worker says of it is no text, or one
//! such result has a whole batch refused.

use rmpv::Value;
use serde_json::{Value as Json, json};

use crate::e2e::bad_values::{Bytes, object, pack};
use crate::e2e::turns::is_sliced;
use crate::support::stream::WebSocket;
use crate::support::{Client, Http, Start};
use crate::{client, queue, shared};

/// A string that is not UTF-8, and how it is kept.
const GARBLED: &[u8] = &[0xa3, b'a', 0xff, b'b'];
const REPAIRED: &str = "a\u{fffd}b";

fn text(text: &str) -> Bytes {
    pack(&text.into())
}

/// Gives a command whose fields are bytes already.
fn give(client: &mut Client, cmd: &str, fields: &[(&str, Bytes)]) -> Json {
    let mut entries = vec![("cmd", text(cmd))];
    entries.extend(fields.iter().cloned());
    let body = object(&entries);
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend(body);
    client.send_bytes(&frame).unwrap();
    let reply = client.recv().unwrap();
    assert_eq!(reply["ok"], true, "{cmd}: {reply}");
    reply
}

/// A job that is being worked on, with one attempt.
fn active(client: &mut Client, queue: &str) -> (String, String) {
    client.push_with(queue, 1, json!({"maxAttempts": 1}));
    let (job, token) = client.pull_owned(queue, 60_000);
    (job["id"].as_str().unwrap().to_owned(), token)
}

fn result(client: &mut Client, id: &str) -> Json {
    client.ok("GetResult", json!({"id": id}))["result"].clone()
}

fn error(client: &mut Client, id: &str) -> Json {
    client.ok("WaitJob", json!({"id": id, "timeout": 0}))["error"].clone()
}

fn post(web: &mut Http, path: &str, body: &[u8]) -> Json {
    web.call("POST", path, &[], body).expect(200)
}

#[test]
fn a_result_over_http_that_is_no_text_or_no_number_is_kept_repaired() {
    let (queue, mut tcp, mut web) = (queue("any-result"), client(), shared().web());
    let long = "x".repeat(200_000);
    for (given, kept) in [
        (br#""half \ud83d""#.to_vec(), json!("half \u{fffd}")),
        (b"\"a\xffb\"".to_vec(), json!(REPAIRED)),
        (b"\"a\nb\"".to_vec(), json!("a\nb")),
        (b"[NaN,-Infinity,1e999,1]".to_vec(), json!([null, null, null, 1])),
        (format!(r#""{long}\ud83d""#).into_bytes(), json!(format!("{long}\u{fffd}"))),
    ] {
        let (id, token) = active(&mut tcp, &queue);
        let head = format!(r#"{{"token":"{token}","result":"#);
        let body = [head.as_bytes(), &given[..], &b"}"[..]].concat();
        post(&mut web, &format!("/jobs/{id}/ack"), &body);
        assert_eq!(result(&mut tcp, &id), kept);
    }
    let (id, token) = active(&mut tcp, &queue);
    let body = format!("\u{feff}{{\"token\":\"{token}\",\"result\":1}}");
    post(&mut web, &format!("/jobs/{id}/ack"), body.as_bytes());
    assert_eq!(result(&mut tcp, &id), 1);
    let (id, token) = active(&mut tcp, &queue);
    let body = format!(r#"{{"token":"{token}","error":5,"stack":"one\ntwo"}}"#);
    post(&mut web, &format!("/jobs/{id}/fail"), body.as_bytes());
    assert_eq!(error(&mut tcp, &id), "5");
}

#[test]
fn an_outcome_over_tcp_that_is_no_text_is_kept_repaired() {
    let (queue, mut tcp) = (queue("any-tcp"), client());
    for (field, value, kept) in [
        ("error", GARBLED.to_vec(), REPAIRED),
        ("error", pack(&5.into()), "5"),
        ("error", pack(&Value::Array(vec![1.into(), "x".into()])), r#"[1,"x"]"#),
    ] {
        let (id, token) = active(&mut tcp, &queue);
        let fields = [("id", text(&id)), ("token", text(&token)), (field, value)];
        give(&mut tcp, "FAIL", &fields);
        assert_eq!(error(&mut tcp, &id), kept);
    }
    let (id, token) = active(&mut tcp, &queue);
    give(&mut tcp, "AddLog", &[("id", text(&id)), ("message", GARBLED.to_vec())]);
    assert_eq!(tcp.ok("GetLogs", json!({"id": id}))["data"]["logs"][0]["message"], REPAIRED);
    let progress = [("id", text(&id)), ("progress", pack(&5.into())), ("message", vec![7])];
    give(&mut tcp, "Progress", &progress);
    assert_eq!(tcp.ok("GetProgress", json!({"id": id}))["message"], "7");
    give(
        &mut tcp,
        "ACK",
        &[("id", text(&id)), ("token", text(&token)), ("result", GARBLED.to_vec())],
    );
    assert_eq!(result(&mut tcp, &id), REPAIRED);
}

/// In a short batch, and in one whose frame is checked in slices.
#[test]
fn one_result_of_a_batch_that_is_no_text_is_repaired_and_all_are_completed() {
    let (queue, mut tcp) = (queue("any-batch"), client());
    for count in [100_usize, 2500] {
        let jobs: Vec<Json> = (0..count).map(|data| json!({ "data": data })).collect();
        tcp.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        let mut ids = Vec::new();
        while ids.len() < count {
            let jobs = tcp.ok("PULLB", json!({"queue": queue, "count": 1000}))["jobs"].clone();
            ids.extend(jobs.as_array().unwrap().iter().map(|job| job["id"].clone()));
        }
        let names = ids.iter().map(|id| id.as_str().unwrap().into()).collect();
        let mut results = vec![0xdc, (count >> 8) as u8, count as u8];
        for place in 0..count {
            results.extend_from_slice(if place == 60 { GARBLED } else { &[1] });
        }
        give(&mut tcp, "ACKB", &[("ids", pack(&Value::Array(names))), ("results", results)]);
        assert_eq!(tcp.counted(&queue, "active"), 0);
        assert_eq!(result(&mut tcp, ids[60].as_str().unwrap()), REPAIRED);
    }
}

#[test]
fn a_result_over_websocket_with_half_a_character_is_kept_repaired() {
    let (queue, mut tcp) = (queue("any-ws"), client());
    let mut websocket = WebSocket::open(shared().http, "/ws/queues/nothing-happens-here");
    let (id, token) = active(&mut tcp, &queue);
    let command = format!(r#"{{"cmd":"ACK","id":"{id}","token":"{token}","result":"\ud83d"}}"#);
    websocket.send_text(&command);
    assert_eq!(websocket.recv()["ok"], true);
    assert_eq!(result(&mut tcp, &id), "\u{fffd}");
}

/// Values of a list that is many slices long.
const MANY: usize = 600_000;

/// A list of so many numbers, and a text that is none.
fn garbled_list() -> Bytes {
    let mut list = vec![0xdd];
    list.extend(((MANY + 1) as u32).to_be_bytes());
    list.resize(list.len() + MANY, 7);
    list.extend_from_slice(GARBLED);
    list
}

fn is_garbled_list(value: &Json) {
    let items = value.as_array().unwrap();
    assert_eq!((items.len(), &items[0], &items[MANY]), (MANY + 1, &json!(7), &json!(REPAIRED)));
}

/// The fear: a worker with megabytes of nonsense holds everybody else on its shard.
#[test]
fn a_long_outcome_is_repaired_in_slices() {
    let server = Start::new().env("SHARDS", 1).start();
    let (mut tcp, mut web) = (server.client(), server.web());
    let mut websocket = WebSocket::open(server.http, "/ws/queues/nothing-happens-here");
    let (id, token) = active(&mut tcp, "ack");
    let fields = |id: &str, token: &str| {
        vec![("id", text(id)), ("token", text(token)), ("other", text("x"))]
    };
    let with = |mut fields: Vec<(&'static str, Bytes)>, field, value| {
        fields.push((field, value));
        fields
    };
    give(&mut tcp, "ACK", &with(fields(&id, &token), "result", garbled_list()));
    is_garbled_list(&result(&mut tcp, &id));

    // The bad text is in a field that nobody reads, beside a payload that is good.
    let (id, token) = active(&mut tcp, "ack");
    let payload = pack(&"y".repeat(MANY).into());
    let unread = with(fields(&id, &token), "unread", GARBLED.to_vec());
    give(&mut tcp, "ACK", &with(unread, "result", payload));
    assert_eq!(result(&mut tcp, &id), "y".repeat(MANY));

    let (id, token) = active(&mut tcp, "ack");
    let ids = pack(&Value::Array(vec![id.as_str().into()]));
    let tokens = pack(&Value::Array(vec![token.as_str().into()]));
    let results = [&[0x91][..], &garbled_list()].concat();
    give(&mut tcp, "ACKB", &[("ids", ids), ("tokens", tokens), ("results", results)]);
    is_garbled_list(&result(&mut tcp, &id));

    let (id, token) = active(&mut tcp, "fail");
    give(&mut tcp, "FAIL", &with(fields(&id, &token), "error", garbled_list()));
    assert!(error(&mut tcp, &id).as_str().unwrap().starts_with("[7,7,7,"));

    let (id, token) = active(&mut tcp, "http");
    let many = "NaN,".repeat(MANY / 4);
    let body = format!(r#"{{"token":"{token}","result":[{many}"\ud83d"]}}"#);
    post(&mut web, &format!("/jobs/{id}/ack"), body.as_bytes());
    let kept = result(&mut tcp, &id);
    let kept = kept.as_array().unwrap();
    assert_eq!((&kept[0], kept.last()), (&json!(null), Some(&json!("\u{fffd}"))));

    let (id, token) = active(&mut tcp, "websocket");
    let ack = |rest: &str| {
        format!(r#"{{"cmd":"ACK","id":"{id}","token":"{token}","result":[{many}{rest}}}"#)
    };
    websocket.send_text(&ack("1"));
    assert_eq!(websocket.recv()["ok"], false, "nothing helps");
    websocket.send_text(&ack("1]").replace("ACK", "PUSH"));
    let push = websocket.recv();
    assert!(push["error"].as_str().unwrap().contains("unexpected character"), "{push}");
    websocket.send_text(&ack("1]"));
    assert_eq!(websocket.recv()["ok"], true);
    assert_eq!(result(&mut tcp, &id).as_array().unwrap().len(), MANY / 4 + 1);

    for command in ["ACK", "ACKB", "FAIL"] {
        is_sliced(&mut tcp, command);
    }
}

/// The client sends no more, as one does that has done its work.
#[test]
fn a_long_failure_of_a_client_that_sends_no_more_is_done() {
    let queue = queue("any-half");
    let (mut worker, mut other) = (client(), client());
    let (id, token) = active(&mut worker, &queue);
    let long = "e".repeat(400_000);
    worker.send("FAIL", json!({"id": id, "token": token, "error": long})).unwrap();
    worker.shutdown_write();
    assert_eq!(worker.recv().unwrap()["ok"], true);
    assert_eq!(other.state(&id), "failed");
}

#[test]
fn what_is_pushed_stays_strict() {
    let (queue, mut tcp, mut web) = (queue("any-push"), client(), shared().web());
    for body in [&br#"{"data":"\ud83d"}"#[..], b"{\"data\":NaN}", b"\xef\xbb\xbf{\"data\":1}"] {
        web.call("POST", &format!("/queues/{queue}/jobs"), &[], body).refused(400);
    }
    let fields = [("cmd", text("PUSH")), ("queue", text(&queue)), ("data", GARBLED.to_vec())];
    let body = object(&fields);
    tcp.send_bytes(&[&(body.len() as u32).to_be_bytes()[..], &body].concat()).unwrap();
    assert_eq!(tcp.recv().unwrap()["error"], "data must be valid UTF-8");
    assert_eq!(tcp.counted(&queue, "waiting"), 0);
}
