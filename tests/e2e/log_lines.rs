//! The lines of the server's log. The fear: a client writes lines of its own into them, by what it names, or a reader
//! of the log ends the server by going away.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Client, Habit, Receiver, Server, Start, free_port, get, until};

/// All that moves a cursor, begins a line, or shows what follows in another order.
const NASTY: &str = "1\n2030-01-01T00:00:00.000000Z ERROR shard 0: forged\r\u{1b}[31m\u{7}\u{7f}\u{85}\u{9b}31m\
                     \u{2028}\u{202e}\u{2066}\u{61c}\u{200f}";

fn is_raw(it: char) -> bool {
    it.is_control()
        || matches!(it, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn start() -> Start {
    Start::new()
        .env("WEBHOOK_ALLOW_PRIVATE", "true")
        .env("WEBHOOK_RETRY_DELAY_MS", 1)
        .env("WEBHOOK_MAX_RETRIES", 1)
}

/// Has the server say something about a job of this name.
fn have_it_named(client: &mut Client, receiver: &Receiver, job: &str) {
    client.ok("AddWebhook", json!({"url": receiver.url(), "events": ["job.waiting"]}));
    client.ok("PUSH", json!({"queue": "q", "data": 1, "jobId": job}));
}

fn said(server: &Server) -> String {
    until("the server to give up a webhook", || {
        Some(server.output()).filter(|output| output.contains("was given up after"))
    })
}

#[test]
fn what_a_client_names_makes_no_line_of_the_log() {
    let (server, receiver) = (start().start(), Receiver::always(Habit::Status(500)));
    have_it_named(&mut server.client(), &receiver, NASTY);
    let output = said(&server);
    for line in output.lines() {
        assert!(!line.chars().any(is_raw), "{line:?}");
        let (time, rest) = line.split_once('Z').unwrap_or_else(|| panic!("{line:?}"));
        assert!(time.len() == 26 && !time.starts_with("2030"), "{line:?}");
        let level = rest.split_whitespace().next();
        assert!(["INFO", "WARN", "ERROR"].map(Some).contains(&level), "{line:?}");
    }
    // Names that clients gave are still there to be read.
    assert!(output.contains(r"of job 1\n2030-01-01T00:00:00.000000Z ERROR"), "{output}");
}

#[test]
fn lines_for_collectors_hold_what_clients_name_and_show_none_of_it_raw() {
    let server = start().env("LOG_FORMAT", "json").start();
    let receiver = Receiver::always(Habit::Status(500));
    have_it_named(&mut server.client(), &receiver, NASTY);
    let output = said(&server);
    assert!(!output.contains(|it| it != '\n' && is_raw(it)), "{output:?}");
    let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages = lines.map(|line| line["msg"].as_str().unwrap().to_owned());
    let messages: Vec<String> = messages.filter(|it| it.contains("was given up")).collect();
    assert!(messages.len() == 1 && messages[0].contains(NASTY), "{messages:?}");
}

#[test]
fn what_programs_look_for_stands_in_fields_of_its_own() {
    let server =
        start().env("LOG_FORMAT", "json").env("LOG_LEVEL", "debug").env("SHARDS", 1).start();
    server.client().refused("CronDelete", json!({"name": "none"}));
    let refused = until("the refusal to be logged", || {
        let output = server.output();
        let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut refused = lines.filter(|line| line["code"] == "not_found");
        refused.next()
    });
    assert_eq!((&refused["level"], &refused["shard"]), (&json!("DEBUG"), &json!(0)));
    assert_eq!(
        (&refused["command"], &refused["msg"]),
        (&json!("CronDelete"), &json!("refused: Cron not found"))
    );
    assert!(refused["conn"].as_str().unwrap().starts_with("0/"), "{refused}");
    assert!(refused["ts"].as_str().unwrap().ends_with('Z'), "{refused}");
}

#[test]
fn a_start_that_recovers_says_in_a_field_how_long_it_took() {
    let mut server = start().env("LOG_FORMAT", "json").env("SHARDS", 1).start();
    server.client().push("q", 1);
    server.terminate();
    server.start();
    let output = server.output();
    let mut lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let recovered =
        lines.rfind(|line| line["msg"].as_str().unwrap().contains(" recovered ")).unwrap();
    assert!(recovered["duration_ms"].is_u64() && recovered["shard"] == 0, "{recovered}");
}

#[test]
fn a_start_that_fails_says_why_in_the_format_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for (name, value, said) in [
        ("TCP_SOCKET_PATH", "/nowhere/tcp.sock", "/nowhere/tcp.sock"),
        ("SHARDS", "none", "SHARDS"),
        ("DURABILITY", "perhaps", "perhaps"),
    ] {
        let start = Start::new().env("LOG_FORMAT", "json").env(name, value);
        let (status, output) = start.run_to_its_end(&data);
        assert!(!status.success());
        let line: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
        assert_eq!(line["level"], "ERROR", "{line}");
        let text = line["msg"].as_str().unwrap().to_lowercase();
        assert!(text.contains(&said.to_lowercase()), "{line}");
    }
    let (_, output) = Start::new().env("SHARDS", "none").run_to_its_end(&data);
    assert!(output.starts_with("corq: "), "{output}");
}

#[test]
fn a_reader_of_the_log_that_goes_away_does_not_end_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (tcp, http) = (free_port(), free_port());
    let tool = Tool::at(tcp)
        .env("TCP_PORT", tcp)
        .env("HTTP_PORT", http)
        .env("SHARDS", 1)
        .env("SEGMENT_MB", 16)
        .env("DATA_PATH", dir.path().join("data").display())
        .env("WEBHOOK_ALLOW_PRIVATE", "true")
        .env("WEBHOOK_MAX_RETRIES", 1);
    let mut command = tool.command(&["serve", "--host", "127.0.0.1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    until("the server to serve", || get(http, "/ready").filter(|it| it.contains(" 200 ")));
    drop(log);
    let receiver = Receiver::always(Habit::Status(500));
    let mut client = Client::connect(tcp);
    have_it_named(&mut client, &receiver, "a");
    until("the event to be given up", || {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}");
        let text = get(http, "/prometheus")?;
        text.contains("corq_webhook_abandoned_total 1\n").then_some(())
    });
    client.ok("Ping", json!({}));
    child.kill().unwrap();
    child.wait().unwrap();
}
