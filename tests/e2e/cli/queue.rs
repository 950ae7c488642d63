//! Every subcommand of `queue` and `dlq`, for people and raw. The fear: a slip of the hand that empties
//! a queue.

use serde_json::json;

use super::{push, tool};
use crate::support::terminal::Terminal;
use crate::support::tool::{Tool, is_recent, rows};
use crate::{client, queue};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&it| it.to_owned()).collect()
}

/// A job in the dead-letter queue.
fn failed(tool: &Tool, queue: &str, error: &str) -> String {
    let id = push(tool, queue, "\"dead\"");
    let token = tool.json(&["pull", queue])["token"].as_str().unwrap().to_owned();
    tool.ok(&["fail", &id, "--lock-token", &token, "--unrecoverable", "--error", error]);
    id
}

#[test]
fn list_has_a_row_for_every_queue() {
    let (tool, queue) = (tool(), queue("cli-list"));
    push(&tool, &queue, "1");
    tool.ok(&["push", &queue, "1", "--delay", "1h"]);
    tool.ok(&["queue", "pause", &queue]);
    let out = tool.ok(&["queue", "list"]);
    assert!(out.starts_with("QUEUE"), "{out}");
    let names: Vec<String> = rows(&out).into_iter().map(|row| row[0].clone()).collect();
    assert!(names.is_sorted());
    let row = rows(&out).into_iter().find(|row| row[0] == queue).unwrap();
    assert_eq!(row, [queue.as_str(), "1", "1", "0", "0", "0", "-", "paused"]);
    let raw = tool.json(&["queue", "list"])["queues"].clone();
    assert!(raw.as_array().unwrap().iter().any(|it| it["name"] == json!(queue)));
}

#[test]
fn jobs_are_listed_by_state_and_page() {
    let (tool, queue) = (tool(), queue("cli-jobs"));
    assert_eq!(tool.ok(&["queue", "jobs", &queue]), "no such jobs\n");
    let first = push(&tool, &queue, "{\"n\":1}");
    let second = tool.ok(&["push", &queue, "2", "--delay", "1h"]).trim().to_owned();
    let out = tool.ok(&["queue", "jobs", &queue]);
    let found = rows(&out);
    assert_eq!(found[0][..4], [&first, "waiting", "0", "0/3"]);
    assert_eq!(found[0][5], "{\"n\":1}");
    assert_eq!(found[1][..2], [&second, "delayed"]);
    // The columns stand below their heads.
    let (head, line) = (out.lines().next().unwrap(), out.lines().nth(1).unwrap());
    assert_eq!(head.find("STATE"), line.find("waiting"));
    let of = |words: &[&str]| {
        let words = [&["queue", "jobs", &queue][..], words].concat();
        tool.json(&words)["jobs"].as_array().unwrap().len()
    };
    assert_eq!(of(&["--state", "delayed"]), 1);
    assert_eq!(of(&["--state", "delayed,waiting"]), 2);
    assert_eq!((of(&["--limit", "1"]), of(&["--offset", "2"])), (1, 0));
    let line = tool.fails(1, &["queue", "jobs", &queue, "--state", "odd"]);
    assert!(line.starts_with("--state must be one of waiting"), "{line}");
    let line = tool.fails(1, &["queue", "jobs", &queue, "--limit", "1001"]);
    assert_eq!(line, "--limit must be between 0 and 1000");
}

#[test]
fn counts_are_by_state_or_by_priority() {
    let (tool, queue) = (tool(), queue("cli-counts"));
    for priority in ["5", "5", "-2"] {
        tool.ok(&["push", &queue, "1", "--priority", priority]);
    }
    let found = rows(&tool.ok(&["queue", "counts", &queue]));
    assert!(found.contains(&vec!["waiting".to_owned(), "3".to_owned()]), "{found:?}");
    assert_eq!(tool.json(&["queue", "counts", &queue])["counts"]["waiting"], 3);
    let found = rows(&tool.ok(&["queue", "counts", &queue, "--by-priority"]));
    assert_eq!(found, [["5", "2"], ["-2", "1"]]);
}

#[test]
fn pause_and_resume_hold_and_release() {
    let (tool, queue) = (tool(), queue("cli-pause"));
    push(&tool, &queue, "1");
    assert_eq!(tool.ok(&["queue", "pause", &queue]), format!("paused {queue}\n"));
    let paused = format!("no job can be taken from {queue}: the queue is paused\n");
    assert_eq!(tool.ok(&["pull", &queue]), paused);
    assert_eq!(tool.ok(&["queue", "resume", &queue]), format!("resumed {queue}\n"));
    assert_eq!(tool.json(&["queue", "resume", &queue]), json!({"ok": true}));
    assert!(tool.ok(&["pull", &queue]).contains("token"));
}

#[test]
fn a_queue_that_is_not_there_is_paused_only_with_a_yes() {
    let (tool, queue) = (tool(), queue("cli-pause-typo"));
    push(&tool, &format!("{queue}-longer"), "1");
    let line = tool.fails(2, &["queue", "pause", &queue]);
    assert!(
        line.contains(&queue) && line.contains("not there yet") && line.contains("--yes"),
        "{line}"
    );
    let names = |tool: &Tool| tool.ok(&["queue", "list", "--prefix", &queue]);
    assert!(!names(&tool).contains("paused"));
    let mut terminal = Terminal::start(tool.command(&["queue", "pause", &queue]));
    terminal.wait_for(&format!("pause queue {queue}, which is not there yet. Go on? [y/N]"));
    terminal.press("n\n");
    assert_eq!(terminal.end().0, Some(1));
    assert!(!names(&tool).contains("paused"));
    assert_eq!(tool.ok(&["queue", "pause", &queue, "--yes"]), format!("paused {queue}\n"));
    // Now it is there.
    assert_eq!(tool.ok(&["queue", "pause", &queue]), format!("paused {queue}\n"));
}

#[test]
fn an_unknown_job_is_told_from_one_without_a_result_and_from_none_to_retry() {
    let (tool, queue) = (tool(), queue("cli-unknown"));
    assert_eq!(tool.fails(1, &["job", "result", "none-such"]), "Job not found");
    let id = push(&tool, &queue, "1");
    assert_eq!(tool.ok(&["job", "result", &id]), "null\n");
    for unknown in ["none-such", &id] {
        let line = tool.fails(1, &["dlq", "retry", &queue, unknown]);
        assert_eq!(line, format!("job {unknown} is not in the dead-letter queue of {queue}"));
        let ran = tool.run(&["dlq", "retry", &queue, unknown, "--json"]);
        assert_eq!((ran.code, ran.out.trim()), (Some(1), r#"{"ok":true,"count":0}"#), "{ran:?}");
    }
    assert_eq!(tool.ok(&["dlq", "retry", &queue]), "retried 0 jobs\n");
}

#[test]
fn what_removes_many_jobs_needs_a_yes() {
    let (tool, queue) = (tool(), queue("cli-yes"));
    let dead = failed(&tool, &queue, "x");
    push(&tool, &queue, "1");
    push(&tool, &queue, "1");
    for words in [
        &["queue", "drain", &queue][..],
        &["queue", "clean", &queue, "--grace", "0"],
        &["queue", "obliterate", &queue],
        &["dlq", "purge", &queue],
    ] {
        let line = tool.fails(2, words);
        assert!(line.contains(&queue) && line.contains("--yes"), "{line}");
        // An answer on a pipe is nobody's.
        assert_eq!(tool.run_with(words, "y\n").code, Some(2));
    }
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], 3);
    assert_eq!(tool.ok(&["dlq", "purge", &queue, "--yes"]), "removed 1 job\n");
    assert_eq!(client().state(&dead), "unknown");
    assert_eq!(tool.ok(&["queue", "drain", &queue, "--yes"]), "removed 2 jobs\n");
    assert_eq!(tool.json(&["queue", "drain", &queue, "-y"])["count"], 0);
    assert_eq!(tool.ok(&["queue", "obliterate", &queue, "--yes"]), format!("removed {queue}\n"));
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn a_person_is_asked_before_a_queue_is_emptied() {
    let (tool, queue) = (tool(), queue("cli-yes-tty"));
    for (answer, code, left) in [("no\n", 1, 2), ("Yes\n", 0, 0)] {
        if left > 0 {
            push(&tool, &queue, "1");
            push(&tool, &queue, "2");
        }
        let mut terminal = Terminal::start(tool.command(&["queue", "drain", &queue]));
        terminal.wait_for(&format!("remove all waiting jobs of queue {queue}. Go on? [y/N]"));
        terminal.press(answer);
        let (ended, shown) = terminal.end();
        assert_eq!((ended, client().counted(&queue, "waiting")), (Some(code), left), "{shown}");
    }
}

#[test]
fn clean_goes_by_age_state_and_number() {
    let (tool, queue) = (tool(), queue("cli-clean"));
    for _ in 0..3 {
        push(&tool, &queue, "1");
    }
    let clean = |words: &[&str]| {
        tool.json(&[&["queue", "clean", &queue, "--yes"], words].concat())["count"].clone()
    };
    assert_eq!(clean(&["--grace", "1h"]), 0);
    assert_eq!(clean(&["--grace", "0", "--state", "completed,failed"]), 0);
    assert_eq!(clean(&["--grace", "0", "--limit", "1"]), 1);
    let out = tool.ok(&["queue", "clean", &queue, "--grace", "0", "--state", "waiting", "-y"]);
    assert_eq!(out, "removed 2 jobs\n");
    let line = tool.fails(2, &["queue", "clean", &queue, "--yes"]);
    assert!(line.contains("--grace"), "{line}");
}

#[test]
fn failed_jobs_are_listed_and_retried() {
    let (tool, queue) = (tool(), queue("cli-dlq"));
    assert_eq!(tool.ok(&["dlq", "list", &queue]), "no job has failed for good\n");
    let first = failed(&tool, &queue, "no ink");
    let second = failed(&tool, &queue, "no paper");
    let found = rows(&tool.ok(&["dlq", "list", &queue]));
    assert_eq!((&found[0][0], &found[0][2..]), (&first, &words(&["1", "no ink", "\"dead\""])[..]));
    assert!(is_recent(&found[0][1]), "{found:?}");
    assert_eq!(found[1][3], "no paper");
    let raw = tool.json(&["dlq", "list", &queue, "--count", "1"])["jobs"].clone();
    assert_eq!((raw.as_array().unwrap().len(), &raw[0]["failedReason"]), (1, &json!("no ink")));
    assert_eq!(tool.ok(&["dlq", "retry", &queue, &second]), "retried 1 job\n");
    assert_eq!(client().state(&second), "waiting");
    assert_eq!(tool.ok(&["dlq", "retry", &queue, "--count", "5"]), "retried 1 job\n");
    assert_eq!(tool.json(&["dlq", "retry", &queue])["count"], 0);
    let counts = tool.json(&["queue", "counts", &queue])["counts"].clone();
    assert_eq!((&counts["waiting"], &counts["failed"]), (&json!(2), &json!(0)));
}
