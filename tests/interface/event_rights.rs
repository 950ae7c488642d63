//! Events for tokens: of which queues a client hears, and what it hears when its rights change.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::stream::{Sse, WebSocket};
use crate::support::{Start, until};

const TOKENS: &str = "boss,read(mail.*):mail,push:pusher";

fn as_token(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_token_of_some_queues_hears_of_those_alone() {
    let server = Start::new().env("AUTH_TOKENS", TOKENS).start();
    let mut boss = server.client();
    boss.ok("Auth", json!({"token": "boss"}));
    let mut tcp = server.client();
    tcp.ok("Auth", json!({"token": "mail"}));
    let reply = tcp.ok("Subscribe", json!({"types": ["pushed"]}));
    assert_eq!(reply["subscribed"], json!(["pushed"]));
    let upgrade = format!("{}{}", crate::support::stream::UPGRADE, as_token("mail"));
    let mut whole = WebSocket::open_with(server.http, "/ws", &upgrade).unwrap();
    let mut patterned = WebSocket::open_with(server.http, "/ws", &upgrade).unwrap();
    patterned.ok("Subscribe", json!({"queues": ["*"], "types": ["pushed"]}));
    let reply = patterned.ok("Subscribe", json!({"events": ["*", "stats:snapshot"]}));
    assert_eq!(reply["never"], json!(["stats:snapshot"]));
    patterned.ok("Subscribe", json!({"queues": ["*"], "types": ["pushed"]}));
    let mut plain = Sse::open_with(server.http, "/events", &as_token("mail")).unwrap();
    let mut ears = Vec::new();
    for number in 0..8 {
        boss.push(&format!("bank.{number}"), number);
        ears.push(boss.push(&format!("mail.{number}"), number));
    }
    ears.sort();
    let heard = |next: &mut dyn FnMut() -> Value| {
        let mut ids: Vec<String> =
            (0..8).map(|_| next()["jobId"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    assert_eq!(heard(&mut || tcp.recv().unwrap()["event"].clone()), ears);
    assert_eq!(heard(&mut || whole.recv()), ears);
    assert_eq!(heard(&mut || patterned.recv()), ears);
    assert_eq!(heard(&mut || plain.next()), ears);
    // A name that is none of its queues is refused, wherever it stands.
    let reply = tcp.call("Subscribe", json!({"queues": ["mail.1", "bank.1"]}));
    assert_eq!(reply["code"], "forbidden");
    for path in ["/events?queue=bank.1", "/events/queues/bank.1"] {
        let answer = Sse::open_with(server.http, path, &as_token("mail")).err().unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    let answer = Sse::open_with(server.http, "/events", &as_token("pusher")).err().unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

#[test]
fn a_stream_ends_when_its_rights_change_and_a_connection_goes_on_with_what_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    fs::write(&file, "boss\nread(a.*, b.*):changing\n").unwrap();
    let server = Start::new().env("AUTH_TOKENS_FILE", file.display()).start();
    let mut boss = server.client();
    boss.ok("Auth", json!({"token": "boss"}));
    let mut tcp = server.client();
    tcp.ok("Auth", json!({"token": "changing"}));
    tcp.ok("Subscribe", json!({"types": ["pushed"]}));
    let mut stream = Sse::open_with(server.http, "/events", &as_token("changing")).unwrap();
    let kept = Sse::open_with(server.http, "/events", &as_token("boss")).unwrap();
    let id = boss.push("b.1", 1);
    assert_eq!(tcp.recv().unwrap()["event"]["jobId"], id.as_str());
    assert_eq!(stream.next()["jobId"], id.as_str());
    fs::write(&file, "boss\nread(a.*):changing\n").unwrap();
    server.signal(Signal::HUP);
    assert_eq!(stream.try_next().unwrap(), None, "its rights are others");
    // The stream that has come back hears what is left; so does the connection, once it has been looked at.
    let mut stream = Sse::open_with(server.http, "/events", &as_token("changing")).unwrap();
    until("the connection to have its new rights", || {
        let reply = tcp.call("GetJobCounts", json!({"queue": "b.1"}));
        (reply["code"] == "forbidden").then_some(())
    });
    boss.push("b.1", 2);
    let id = boss.push("a.1", 3);
    assert_eq!(stream.next()["jobId"], id.as_str());
    assert_eq!(tcp.recv().unwrap()["event"]["jobId"], id.as_str());
    drop(kept);
}
