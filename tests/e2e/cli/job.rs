//! Every subcommand of `job`, for people and raw.

use serde_json::json;

use super::{push, tool};
use crate::support::terminal::Terminal;
use crate::support::tool::{Tool, pair, rows};
use crate::{client, queue};

/// An active job; answers its id and its token.
fn active(tool: &Tool, queue: &str) -> (String, String) {
    let id = push(tool, queue, "1");
    let answer = tool.json(&["pull", queue]);
    assert_eq!(answer["job"]["id"], json!(id));
    (id, answer["token"].as_str().unwrap().to_owned())
}

#[test]
fn get_shows_all_that_is_known() {
    let (tool, queue) = (tool(), queue("cli-get"));
    let words = ["push", &queue, "{\"a\":1}", "--delay", "1h", "--tag", "x", "--ttl", "2d"];
    let id = tool.ok(&words).trim().to_owned();
    let out = tool.ok(&["job", "get", &id]);
    for (name, value) in [
        ("id", id.as_str()),
        ("queue", &queue),
        ("state", "delayed"),
        ("data", "{\"a\":1}"),
        ("attempts", "0/3"),
        ("tags", "x"),
        ("ttl", "2d"),
        ("backoff", "1s"),
    ] {
        assert_eq!(pair(&out, name), value);
    }
    assert!(pair(&out, "due").starts_with("in 1h (") || pair(&out, "due").starts_with("in 59m"));
    assert_eq!(tool.json(&["job", "get", &id])["job"]["tags"], json!(["x"]));
}

#[test]
fn state_is_one_word_also_for_an_unknown_job() {
    let (tool, queue) = (tool(), queue("cli-state"));
    let id = push(&tool, &queue, "1");
    assert_eq!(tool.ok(&["job", "state", &id]), "waiting\n");
    assert_eq!(tool.ok(&["job", "state", "nobody"]), "unknown\n");
    assert_eq!(tool.json(&["job", "state", &id])["state"], "waiting");
}

#[test]
fn wait_tells_how_it_ended() {
    let (tool, queue) = (tool(), queue("cli-wait"));
    let (id, token) = active(&tool, &queue);
    let waiting = tool.start(&["job", "wait", &id]);
    tool.ok(&["ack", &id, "--lock-token", &token, "--result", "[1,2]"]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"[1,2]\n"[..]));

    let (id, token) = active(&tool, &queue);
    let line = tool.fails(1, &["job", "wait", &id, "--timeout", "20ms"]);
    assert!(line.contains("has not ended in time"), "{line}");
    tool.ok(&["fail", &id, "--lock-token", &token, "--unrecoverable", "--error", "no ink"]);
    assert_eq!(tool.fails(1, &["job", "wait", &id]), format!("job {id} is failed: no ink"));
    let ran = tool.run(&["job", "wait", &id, "--json"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.starts_with("{\"ok\":true,\"completed\":false"), "{}", ran.out);
}

#[test]
fn result_is_json_and_null_where_there_is_none() {
    let (tool, queue) = (tool(), queue("cli-result"));
    let id = push(&tool, &queue, "1");
    assert_eq!(tool.ok(&["job", "result", &id]), "null\n");
    assert_eq!(tool.json(&["job", "result", &id])["result"], json!(null));
}

#[test]
fn cancel_needs_a_yes() {
    let (tool, queue) = (tool(), queue("cli-cancel"));
    let id = push(&tool, &queue, "1");
    let line = tool.fails(2, &["job", "cancel", &id]);
    assert!(line.contains(&id) && line.contains("--yes"), "{line}");
    assert_eq!(client().state(&id), "waiting");
    assert_eq!(tool.ok(&["job", "cancel", &id, "--yes"]), format!("cancelled {id}\n"));
    assert_eq!(client().state(&id), "unknown");
    let line = tool.fails(1, &["job", "cancel", &id, "-y"]);
    assert_eq!(line, "Job not found or cannot be cancelled");
}

#[test]
fn a_person_is_asked_before_a_job_is_cancelled() {
    let (tool, queue) = (tool(), queue("cli-cancel-tty"));
    let id = push(&tool, &queue, "1");
    for (answer, state, code) in
        [("n\n", "waiting", 1), ("\n", "waiting", 1), ("y\n", "unknown", 0)]
    {
        let mut terminal = Terminal::start(tool.command(&["job", "cancel", &id]));
        terminal.wait_for("[y/N]");
        assert_eq!(client().state(&id), "waiting", "before the answer");
        terminal.press(answer);
        let (ended, shown) = terminal.end();
        assert_eq!((ended, client().state(&id).as_str()), (Some(code), state), "{shown}");
    }
}

#[test]
fn progress_is_reported_and_shown() {
    let (tool, queue) = (tool(), queue("cli-progress"));
    let (id, _) = active(&tool, &queue);
    assert_eq!(tool.ok(&["job", "progress", &id]), "0 %\n");
    let out = tool.ok(&["job", "progress", &id, "42.5", "--message", "half way"]);
    assert_eq!(out, format!("progress of {id} is 42.5 %\n"));
    assert_eq!(tool.ok(&["job", "progress", &id]), "42.5 % half way\n");
    assert_eq!(tool.json(&["job", "progress", &id])["progress"], json!(42.5));
    let line = tool.fails(1, &["job", "progress", &id, "101"]);
    assert_eq!(line, "<PROGRESS> must be between 0 and 100");
}

#[test]
fn jobs_are_changed() {
    let (tool, queue) = (tool(), queue("cli-change"));
    let id = push(&tool, &queue, "1");
    assert_eq!(tool.ok(&["job", "update", &id, "{\"b\":2}"]), format!("updated {id}\n"));
    assert_eq!(tool.run_with(&["job", "update", &id], "{\"b\":3}").code, Some(0));
    assert_eq!(tool.ok(&["job", "priority", &id, "-9"]), format!("priority of {id} is -9\n"));
    let job = client().ok("GetJob", json!({"id": id}))["job"].clone();
    assert_eq!((&job["data"], &job["priority"]), (&json!({"b": 3}), &json!(-9)));
    assert_eq!(tool.fails(1, &["job", "promote", &id]), "Job not found or not delayed");
    assert_eq!(tool.ok(&["job", "delay", &id, "1h"]), format!("delayed {id} for 1h\n"));
    assert_eq!(client().state(&id), "delayed");
    assert_eq!(tool.ok(&["job", "promote", &id]), format!("promoted {id}\n"));
    assert_eq!(tool.json(&["job", "discard", &id]), json!({"ok": true}));
    assert_eq!(client().state(&id), "failed");
    assert_eq!(tool.fails(1, &["job", "discard", "nobody"]), "Job not found");
}

#[test]
fn logs_are_written_and_shown() {
    let (tool, queue) = (tool(), queue("cli-logs"));
    let id = push(&tool, &queue, "1");
    assert_eq!(tool.ok(&["job", "logs", &id]), "its log is empty\n");
    assert_eq!(tool.ok(&["job", "log", &id, "began"]), format!("logged to {id}\n"));
    tool.ok(&["job", "log", &id, "ink is low", "--level", "warn"]);
    let line = tool.fails(1, &["job", "log", &id, "x", "--level", "loud"]);
    assert_eq!(line, "--level must be one of info, warn, error");
    let rows = rows(&tool.ok(&["job", "logs", &id]));
    assert_eq!(rows[0][1..], ["info", "began"]);
    assert_eq!(rows[1][1..], ["warn", "ink is low"]);
    let logs = tool.json(&["job", "logs", &id])["data"]["logs"].clone();
    assert_eq!(logs[1]["message"], "ink is low");
    assert!(logs[0]["timestamp"].is_i64(), "a time is a whole number: {logs}");
}
