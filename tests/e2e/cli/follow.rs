//! `events` and `queue jobs --follow`, against a stream of events as `docs/protocol.md`
//! has it ("Events"), in pieces and chunks as networks make them.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use super::{fake, push, tool};
use crate::queue;
use crate::support::tool::{Tool, line_of, rows};
use crate::{client, shared};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
const CONNECTED: &str = "data: {\"connected\":true,\"clientId\":\"c\"}\n\n";

fn event(kind: &str, queue: &str, id: &str, more: &str) -> String {
    format!(
        "data: {{\"eventType\":\"{kind}\",\"queue\":\"{queue}\",\"jobId\":\"{id}\",\
         \"timestamp\":1700000000000{more}}}\n\n"
    )
}

/// A stream that answers each connection with the next of these texts and closes; the heads that it was
/// asked with.
fn streams(texts: Vec<String>) -> (Tool, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let texts = Mutex::new(texts.into_iter());
    let port = fake::listen(move |mut socket: TcpStream| {
        let head = fake::head(&mut socket);
        seen.lock().unwrap().push(head);
        if let Some(text) = texts.lock().unwrap().next() {
            // In pieces that fall anywhere.
            text.as_bytes().chunks(7).for_each(|piece| socket.write_all(piece).unwrap());
        }
    });
    (Tool::at(shared().tcp).env("CORQ_HTTP_PORT", port), asked)
}

/// A stream that goes on for as long as the test has something to send.
fn live() -> (u16, Sender<String>, Receiver<()>) {
    let (sender, texts): (Sender<String>, Receiver<String>) = channel();
    let (ready, is_ready) = channel();
    let port = fake::listen(move |mut socket| {
        fake::head(&mut socket);
        socket.write_all(HEAD.as_bytes()).unwrap();
        socket.write_all(CONNECTED.as_bytes()).unwrap();
        let _ = ready.send(());
        for text in &texts {
            socket.write_all(text.as_bytes()).unwrap();
        }
    });
    (port, sender, is_ready)
}

#[test]
fn events_are_one_line_each() {
    let text = [
        HEAD,
        CONNECTED,
        ": still here\n\n",
        &event("pushed", "q", "j1", ",\"data\":{\"a\":1}"),
        &event("failed", "q", "j1", ",\"error\":\"no \\u001b[31mink\""),
        &event("delayed", "q", "j2", ",\"delay\":90000"),
        &event("drained", "q", "", ""),
    ]
    .concat();
    let (tool, asked) = streams(vec![text.clone(), text.clone(), text]);
    let out = tool.ok(&["events", "--count", "4"]);
    let expected = "2023-11-14T22:13:20Z q pushed j1 data={\"a\":1}\n\
                    2023-11-14T22:13:20Z q failed j1 error=\"no \\u001b[31mink\"\n\
                    2023-11-14T22:13:20Z q delayed j2 delay=1m 30s\n\
                    2023-11-14T22:13:20Z q drained\n";
    assert_eq!(out, expected);
    assert!(asked.lock().unwrap()[0].starts_with("GET /events HTTP/1.1\r\n"));
    let out = tool.ok(&["events", "--json", "--count", "2"]);
    let events: Vec<Json> = out.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!((&events[0]["eventType"], &events[0]["data"]), (&json!("pushed"), &json!({"a": 1})));
    let out = tool.ok(&["events", "--type", "failed,stalled", "--count", "1"]);
    assert!(out.contains(" failed j1 "), "{out}");
}

#[test]
fn a_stream_in_chunks_is_the_same_stream() {
    let mut text = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let body = [CONNECTED, &event("pushed", "q", "j1", ""), &event("completed", "q", "j1", "")];
    for piece in body.concat().as_bytes().chunks(23) {
        let shown = std::str::from_utf8(piece).unwrap();
        write!(text, "{:x}\r\n{shown}\r\n", piece.len()).unwrap();
    }
    text += "0\r\n\r\n";
    let (tool, _) = streams(vec![text]);
    let ran = tool.run(&["events"]);
    assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
    assert_eq!((ran.code, line_of(&ran.err).as_str()), (Some(1), "the server ended the stream"));
}

#[test]
fn one_queue_is_asked_for_by_its_path_and_the_token_is_shown() {
    let (tool, asked) = streams(vec![[HEAD, CONNECTED].concat(); 2]);
    tool.run(&["events", "--queue", "a:b", "--token", "t1"]);
    tool.run(&["events", "--queue", "a b"]);
    let asked = asked.lock().unwrap();
    assert!(asked[0].starts_with("GET /events/queues/a:b HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[0].contains("\r\nAuthorization: Bearer t1\r\n"), "{}", asked[0]);
    assert!(asked[1].starts_with("GET /events/queues/a%20b HTTP"), "{}", asked[1]);
    assert!(!asked[1].contains("Authorization"));
}

#[test]
fn a_refused_stream_is_told() {
    let refusal = |status: &str, error: &str| {
        let body = format!("{{\"ok\":false,\"error\":\"{error}\"}}");
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        streams(vec![head + &body]).0.fails(1, &["events", "--follow"])
    };
    assert!(refusal("401 Unauthorized", "Unauthorized").contains("CORQ_TOKEN"));
    assert!(refusal("429 Too Many Requests", "Rate limit exceeded").contains("Rate limit"));
    let line = Tool::at(1).env("CORQ_HTTP_PORT", shared().tcp).fails(1, &["events"]);
    assert!(line.contains("HTTP_PORT"), "{line}");
    let line = Tool::at(1).env("CORQ_HTTP_PORT", 1).fails(1, &["events"]);
    assert!(line.contains("--http-port"), "{line}");
}

#[test]
fn following_comes_back_when_the_server_does() {
    let first = [HEAD, CONNECTED, &event("pushed", "q", "j1", "")].concat();
    let second = [HEAD, CONNECTED, &event("pulled", "q", "j1", "")].concat();
    let (tool, _) = streams(vec![first, String::new(), second]);
    let ran = tool.run(&["events", "--follow", "--count", "2"]);
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 2), "{ran:?}");
    assert!(ran.err.contains("trying again"), "{}", ran.err);
}

#[test]
fn an_event_is_shown_when_it_comes() {
    let (port, sender, _) = live();
    let tool = Tool::at(1).env("CORQ_HTTP_PORT", port);
    let mut child = tool.start(&["events"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for id in ["j1", "j2"] {
        sender.send(event("pushed", "q", id, "")).unwrap();
        assert!(lines.next().unwrap().unwrap().ends_with(&format!("q pushed {id}")));
    }
    drop(sender);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn jobs_are_followed_from_state_to_state() {
    let queue = queue("cli-follow");
    let id = push(&tool(), &queue, "{\"n\":1}");
    let (port, sender, ready) = live();
    let tool = Tool::at(shared().tcp).env("CORQ_HTTP_PORT", port);
    let mut child = tool.start(&["queue", "jobs", &queue, "--follow"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    ready.recv().unwrap();
    let mut next = || lines.next().unwrap().unwrap();
    let state = |line: &str| rows(&format!("\n{line}"))[0][1].clone();
    let head = next();
    let first = next();
    assert_eq!(state(&first), "waiting");
    assert_eq!(head.find("STATE"), first.find("waiting"));
    let mut worker = client();
    worker.pull(&queue);
    sender.send(event("pulled", &queue, &id, "")).unwrap();
    let row = next();
    assert_eq!((state(&row).as_str(), row.find("active")), ("active", head.find("STATE")));
    // Says nothing new of the job.
    sender.send(event("duplicated", &queue, &id, "")).unwrap();
    worker.ok("ACK", json!({"id": id}));
    sender.send(event("completed", &queue, &id, "")).unwrap();
    assert_eq!(state(&next()), "completed");
    sender.send(event("removed", &queue, "nobody", "")).unwrap();
    assert_eq!(state(&next()), "removed");
    drop(sender);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
