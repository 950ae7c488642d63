//! `cron add|list|remove`.

use serde_json::json;

use super::tool;
use crate::queue;
use crate::support::Start;
use crate::support::tool::{Tool, rows};

#[test]
fn schedules_are_added_listed_and_removed() {
    let server = Start::new().memory().start();
    let tool = Tool::of(&server);
    assert_eq!(tool.ok(&["cron", "list"]), "there are no schedules\n");
    let out = tool.ok(&[
        "cron",
        "add",
        "nightly",
        "reports",
        "{\"a\":1}",
        "--schedule",
        "0 3 * * *",
        "--timezone",
        "Europe/Berlin",
        "--priority",
        "2",
        "--max-limit",
        "9",
    ]);
    assert!(out.starts_with("nightly runs next in "), "{out}");
    let answer = tool.json(&["cron", "add", "beat", "q", "{}", "--every", "30s"]);
    assert_eq!(answer["cron"]["repeatEvery"], 30_000);
    let mut found = rows(&tool.ok(&["cron", "list"]));
    found.sort();
    assert_eq!(found[0][..3], ["beat", "q", "every 30s"]);
    assert!(found[0][3].starts_with("in ") && found[0][4] == "0", "{found:?}");
    assert_eq!(found[1][..3], ["nightly", "reports", "0 3 * * * Europe/Berlin"]);
    assert_eq!(found[1][4], "0/9");
    assert_eq!(tool.json(&["cron", "list"])["crons"].as_array().unwrap().len(), 2);
    assert_eq!(tool.ok(&["cron", "remove", "nightly"]), "removed nightly\n");
    assert_eq!(tool.fails(1, &["cron", "remove", "nightly"]), "Cron not found");
    assert_eq!(tool.json(&["cron", "remove", "beat"]), json!({"ok": true}));
}

#[test]
fn the_options_of_a_schedule_are_those_of_the_protocol() {
    let (tool, queue) = (tool(), queue("cli-cron-options"));
    let all = "--every 1d --immediately --no-overlap --skip-if-no-worker --catch-up --unique-key k \
        --max-attempts 7 --backoff 5s --timeout 1m --delay 2s --remove-on-complete --remove-on-fail";
    let all: Vec<&str> = all.split_ascii_whitespace().collect();
    tool.ok(&[&["cron", "add", &queue, &queue, "1"], &all[..]].concat());
    let listed = tool.json(&["cron", "list"])["crons"].clone();
    let mut crons = listed.as_array().unwrap().iter();
    let cron = crons.find(|cron| cron["name"] == queue.as_str()).unwrap();
    assert_eq!(
        cron["jobOptions"],
        json!({
            "delay": 2000, "maxAttempts": 7, "backoff": 5000, "timeout": 60_000,
            "removeOnComplete": true, "removeOnFail": true
        })
    );
    let expected = json!({
        "immediately": true, "skipIfNoWorker": true, "preventOverlap": true,
        "skipMissedOnRestart": false, "uniqueKey": "k"
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&cron[name], value, "{name}");
    }
    tool.ok(&["cron", "remove", &queue]);
}

#[test]
fn the_payload_of_a_schedule_may_come_from_standard_input() {
    let (tool, queue) = (tool(), queue("cli-cron-stdin"));
    let ran = tool.run_with(&["cron", "add", &queue, &queue, "--every", "1d"], "{\"b\":1}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    tool.ok(&["cron", "remove", &queue]);
}

#[test]
fn a_schedule_that_means_nothing_is_refused_by_the_server() {
    let tool = tool();
    let add = |words: &[&str]| tool.fails(1, &[&["cron", "add", "x", "q", "1"], words].concat());
    assert_eq!(add(&[]), "give --schedule or --every");
    assert_eq!(add(&["--schedule", "* *"]), "--schedule must have 5 or 6 fields");
    let line = add(&["--schedule", "99 * * * *"]);
    assert_eq!(line, "--schedule: minute must be between 0 and 59");
    let line = add(&["--schedule", "@daily", "--every", "1h"]);
    assert_eq!(line, "--schedule and --every must not both be given");
    assert_eq!(add(&["--schedule", "@daily", "--timezone", "Mars"]), "unknown time zone 'Mars'");
}
