//! `health`. The fear: a script reads that all is well while every push is refused.

use std::fs;
use std::io::{Read, Write};

use serde_json::json;

use super::fake;
use crate::support::tool::{Ran, Tool, line_of, pair};
use crate::support::{Start, free_port, until};

/// A run that says that the server is not well: its status and its line of trouble.
fn unwell(ran: &Ran) -> (String, String) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    (pair(&ran.out, "status").to_owned(), line_of(&ran.err))
}

#[test]
fn a_full_disk_is_no_health() {
    let server = Start::new().env("SHARDS", 1).env("DATA_MAX_MB", 80).start();
    let (mut client, tool) = (server.client(), Tool::of(&server));
    assert_eq!(pair(&tool.ok(&["health"]), "status"), "healthy");
    let data = "f".repeat(300_000);
    until("the disk to be full", || {
        let reply = client.call("PUSH", json!({"queue": "q", "data": data}));
        (reply["error"] == "Disk full").then_some(())
    });
    let ran = tool.run(&["health"]);
    let (status, line) = unwell(&ran);
    assert_eq!((status.as_str(), pair(&ran.out, "reason")), ("degraded", "Disk full"));
    assert_eq!(line, format!("the server at 127.0.0.1:{} is degraded: Disk full", server.http));
    let ran = tool.run(&["health", "--json"]);
    let raw: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.code, &raw["status"], &raw["reason"]),
        (Some(1), &json!("degraded"), &json!("Disk full"))
    );
    let told = tool.run(&["doctor"]).out;
    assert!(told.contains("shards get no further file for their log and refuse pushes"), "{told}");
    assert!(!told.contains("the server stops"), "{told}");
}

#[test]
fn a_directory_that_is_gone_is_no_health_until_it_is_back() {
    let server = Start::new().env("AUTH_TOKENS", "t").start();
    // No token is needed to ask how it is.
    let tool = Tool::of(&server);
    let aside = server.data.with_file_name("aside");
    fs::rename(&server.data, &aside).unwrap();
    let ran =
        until("it to be noticed", || Some(tool.run(&["health"])).filter(|ran| ran.code != Some(0)));
    let (status, line) = unwell(&ran);
    assert_eq!(
        (status.as_str(), pair(&ran.out, "reason")),
        ("degraded", "The data directory is gone")
    );
    assert!(line.ends_with("is degraded: The data directory is gone"), "{line}");
    fs::rename(&aside, &server.data).unwrap();
    until("it to be back", || (tool.run(&["health"]).code == Some(0)).then_some(()));
}

/// A server that answers each request with the next of these.
fn canned(answers: Vec<(u16, &'static str)>) -> u16 {
    let answers = std::sync::Mutex::new(answers.into_iter());
    fake::listen(move |mut socket| {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|read| read == 1)
        {
            request.push(byte[0]);
        }
        let Some((status, body)) = answers.lock().unwrap().next() else { return };
        let length = body.len();
        let _ = write!(socket, "HTTP/1.1 {status} So\r\nContent-Length: {length}\r\n\r\n{body}");
    })
}

fn ask(answers: Vec<(u16, &'static str)>) -> Ran {
    Tool::at(1).env("CORQ_HTTP_PORT", canned(answers)).run(&["health"])
}

#[test]
fn a_server_that_starts_or_stops_is_told_apart_from_one_that_is_healthy() {
    let starting = r#"{"ok":false,"status":"starting","reason":"recovering","progress":"3 of 4 MB read, 5 jobs","version":"0.1.0"}"#;
    let ran = ask(vec![(503, starting)]);
    let (status, line) = unwell(&ran);
    assert_eq!((status.as_str(), pair(&ran.out, "reason")), ("starting", "recovering"));
    assert_eq!(pair(&ran.out, "progress"), "3 of 4 MB read, 5 jobs");
    assert!(line.ends_with(" is starting: recovering"), "{line}");
    let stopping =
        r#"{"ok":true,"status":"stopping","reason":"The server is stopping","uptime":5}"#;
    let (status, line) = unwell(&ask(vec![(200, stopping)]));
    assert_eq!(status, "stopping");
    assert!(line.ends_with(" is stopping: The server is stopping"), "{line}");
}

/// By a name that the server does not know, its figures are refused, and whether it is ready is not.
#[test]
fn a_name_that_the_server_does_not_know_still_brings_whether_it_is_ready() {
    let refused = (403, r#"{"ok":false,"error":"no","code":"cross-origin"}"#);
    let ran = ask(vec![refused, (200, r#"{"ok":true,"ready":true}"#)]);
    assert_eq!((ran.code, pair(&ran.out, "status")), (Some(0), "healthy"), "{ran:?}");
    let ran = ask(vec![refused, (503, r#"{"ok":false,"ready":false,"error":"Disk full"}"#)]);
    let (status, line) = unwell(&ran);
    assert_eq!((status.as_str(), pair(&ran.out, "reason")), ("not ready", "Disk full"));
    assert!(line.ends_with(" is not ready: Disk full"), "{line}");
}

#[test]
fn what_is_no_server_is_told_with_what_to_do() {
    let line = Tool::at(1).env("CORQ_HTTP_PORT", free_port()).fails(1, &["health"]);
    assert!(line.contains("cannot reach a server at 127.0.0.1:"), "{line}");
    assert!(line.contains("corq serve") && line.contains("CORQ_HTTP_PORT"), "{line}");
    let tcp = crate::shared().tcp;
    let line = Tool::at(1).env("CORQ_HTTP_PORT", tcp).fails(1, &["health"]);
    assert!(line.contains("its TCP_PORT"), "{line}");
    for (status, body) in [(404, "{}"), (200, "hello"), (500, r#"{"ok":false,"error":"x"}"#)] {
        let ran = ask(vec![(status, body)]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran:?}");
        assert!(line_of(&ran.err).contains("does not say how it is"), "{ran:?}");
    }
}
