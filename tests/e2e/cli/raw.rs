//! Names that clients give reach a terminal escaped. The fear: a job whose id moves the cursor, forges a line or turns
//! the text behind it round.

use serde_json::{Value, json};

use crate::support::Start;
use crate::support::tool::Tool;

/// C0, DEL, C1, separators of lines, overrides and isolates of the bidirectional algorithm.
const NASTY: &str =
    "a\n\r\u{1b}[31m\u{7}\u{7f}\u{85}\u{9b}31m\u{2028}\u{202e}b\u{2066}\u{61c}\u{200f}\u{feff}";

fn is_raw(it: char) -> bool {
    let bidi = matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}');
    it != '\n' && it.is_control() || bidi || matches!(it, '\u{2028}'..='\u{202e}' | '\u{feff}')
}

#[test]
fn nothing_that_clients_named_is_printed_raw() {
    let server = Start::new().env("SHARDS", 1).start();
    let (mut client, tool) = (server.client(), Tool::of(&server));
    let nasty = |kind: &str| format!("{kind} {NASTY}");
    let push = |client: &mut crate::support::Client, id: &str| {
        let fields = json!({
            "queue": "q", "data": {nasty("key"): nasty("value")}, "jobId": nasty(id), "name": nasty("name"),
            "tags": [nasty("tag")], "groupId": nasty("group"), "uniqueKey": nasty(id),
        });
        client.ok("PUSH", fields);
    };
    for id in ["waits", "done", "failed", "held"] {
        push(&mut client, id);
    }
    client.ok("AddLog", json!({"id": nasty("waits"), "message": nasty("line")}));
    for (command, more) in [
        ("ACK", json!({"result": nasty("result")})),
        (
            "FAIL",
            json!({"error": nasty("error"), "unrecoverable": true, "stack": [nasty("stack")]}),
        ),
        ("Progress", json!({"progress": 5, "message": nasty("message")})),
    ] {
        let id = client.pull("q")["id"].clone();
        let mut fields = more.as_object().unwrap().clone();
        fields.insert("id".to_owned(), id);
        client.ok(command, Value::Object(fields));
    }
    let cron = json!({
        "name": nasty("cron"), "queue": "q", "data": 1, "schedule": "@yearly", "jobName": nasty("name"),
    });
    client.ok("Cron", cron);
    let worker = json!({"name": nasty("worker"), "queues": ["q"], "workerId": nasty("id")});
    client.ok("RegisterWorker", worker);
    let group = json!({"queue": "q", "groupId": nasty("group"), "concurrency": 50});
    client.ok("SetGroupConcurrency", group);

    let ids: Vec<String> = ["waits", "done", "failed", "held"].map(nasty).to_vec();
    let mut runs: Vec<Vec<&str>> = vec![
        vec!["queue", "list"],
        vec!["queue", "jobs", "q"],
        vec!["queue", "counts", "q"],
        vec!["group", "list", "q"],
        vec!["dlq", "list", "q"],
        vec!["dlq", "stats", "q"],
        vec!["cron", "list"],
        vec!["worker", "list"],
        vec!["job", "get", "unknown"],
        vec!["metrics", "--prometheus"],
        vec!["log", "stat", server.data.to_str().unwrap()],
        vec!["log", "dump", server.data.to_str().unwrap()],
        vec!["pull", "q"],
    ];
    for id in &ids {
        for what in ["get", "state", "result", "progress", "logs"] {
            runs.push(vec!["job", what, id]);
        }
        runs.push(vec!["job", "wait", id, "--timeout", "1ms"]);
        runs.push(vec!["job", "cancel", id, "--yes"]);
    }
    let mut seen = String::new();
    for run in runs {
        for json in [false, true] {
            if json && run[0] == "metrics" {
                continue;
            }
            let words: Vec<&str> = run.iter().copied().chain(json.then_some("--json")).collect();
            let ran = tool.run(&words);
            assert!(!ran.out.contains(is_raw), "{words:?} printed {:?}", ran.out);
            assert!(!ran.err.contains(is_raw), "{words:?} printed {:?}", ran.err);
            assert!(ran.err.lines().count() <= 1, "{words:?} printed {:?}", ran.err);
            seen.push_str(&ran.out);
        }
    }
    // All of it was there to be shown.
    for kind in
        ["value", "name", "tag", "group", "result", "error", "message", "line", "cron", "worker"]
    {
        assert!(seen.contains(&format!("{kind} a\\n")), "{kind} in\n{seen}");
    }
}

#[test]
fn events_print_nothing_raw() {
    let server = Start::new().memory().start();
    let tool = Tool::of(&server);
    for more in [&[][..], &["--json"]] {
        let words: Vec<&str> = ["events", "--count", "1"].iter().chain(more).copied().collect();
        let mut child = tool.start(&words);
        let mut client = server.client();
        crate::support::until("an event to be printed", || {
            client.ok("PUSH", json!({"queue": "q", "data": NASTY, "name": NASTY}));
            child.try_wait().unwrap()
        });
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(out.contains("pushed") && !out.contains(is_raw), "{out:?}");
    }
}
