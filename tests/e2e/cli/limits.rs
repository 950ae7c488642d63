//! `rate-limit`, `concurrency`, `dlq config`, `dlq stats` and `queue stalls`.

use serde_json::json;

use super::rest::bury;
use super::{push, tool};
use crate::support::terminal::Terminal;
use crate::{client, queue};

#[test]
fn limits_are_set_felt_and_cleared() {
    let tool = tool();
    for (limit, words) in
        [("rate-limit", "jobs per second"), ("concurrency", "active jobs at a time")]
    {
        let queue = queue(&format!("cli-{limit}"));
        push(&tool, &queue, "1");
        push(&tool, &queue, "2");
        let out = tool.ok(&[limit, "set", &queue, "1"]);
        assert_eq!(out, format!("{queue}: at most 1 {words}\n"));
        let pulled = tool.json(&["pull", &queue, "--count", "2"])["jobs"].clone();
        assert_eq!(pulled.as_array().unwrap().len(), 1, "{limit}");
        let out = tool.ok(&[limit, "clear", &queue]);
        assert_eq!(out, format!("{queue}: no limit on {words}\n"));
        let pulled = tool.json(&["pull", &queue, "--count", "2"])["jobs"].clone();
        assert_eq!(pulled.as_array().unwrap().len(), 1, "{limit}");
        assert_eq!(tool.json(&[limit, "clear", &queue]), json!({"ok": true}));
    }
}

#[test]
fn limits_are_shown() {
    let (tool, queue) = (tool(), queue("cli-limit-show"));
    let show = |limit: &str| tool.ok(&[limit, "show", &queue]).trim().to_owned();
    assert_eq!(show("rate-limit"), format!("{queue}: no limit on jobs per second"));
    assert_eq!(show("concurrency"), format!("{queue}: no limit on active jobs at a time"));
    tool.ok(&["rate-limit", "set", &queue, "50"]);
    assert_eq!(show("rate-limit"), format!("{queue}: at most 50 jobs per second"));
    let out = tool.ok(&["rate-limit", "set", &queue, "90", "--per", "1m", "--for", "2h"]);
    assert_eq!(out, format!("{queue}: at most 90 jobs per 1m, for 2h\n"));
    assert_eq!(show("rate-limit"), format!("{queue}: at most 90 jobs per 1m"));
    tool.ok(&["concurrency", "set", &queue, "1"]);
    assert_eq!(show("concurrency"), format!("{queue}: at most 1 active jobs at a time"));
    push(&tool, &queue, "1");
    tool.ok(&["pull", &queue]);
    assert!(show("concurrency").ends_with("all of them active now"));
    let raw = tool.json(&["rate-limit", "show", &queue])["data"]["limits"].clone();
    assert_eq!(raw["rateLimit"], json!({"max": 90, "duration": 60_000}));
    tool.ok(&["rate-limit", "clear", &queue]);
    assert_eq!(show("rate-limit"), format!("{queue}: no limit on jobs per second"));
}

#[test]
fn a_limit_of_none_is_refused_by_the_server() {
    let (tool, queue) = (tool(), queue("cli-limit-zero"));
    for limit in ["rate-limit", "concurrency"] {
        for value in ["0", "-1"] {
            let line = tool.fails(1, &[limit, "set", &queue, value]);
            assert_eq!(line, "<LIMIT> must be between 1 and 4294967295");
        }
    }
    let line = tool.fails(1, &["rate-limit", "set", &queue, "5", "--for", "999d"]);
    assert_eq!(line, "--for is 999d; the longest is 365d");
}

#[test]
fn rules_of_a_queue_are_shown_and_set() {
    let (tool, queue) = (tool(), queue("cli-rules"));
    let out = tool.ok(&["dlq", "config", &queue]);
    for words in ["auto retry", "off", "never", "any"] {
        assert!(out.contains(words), "{words} in {out}");
    }
    let set =
        ["dlq", "config", &queue, "--auto-retry", "on", "--max-age", "7d", "--max-entries", "9"];
    assert!(tool.ok(&set).contains("7d"));
    let config = tool.json(&["dlq", "config", &queue, "--max-age", "never", "--max-retries", "1"]);
    let expected = json!({
        "autoRetry": true, "autoRetryInterval": 3_600_000, "maxAutoRetries": 1, "maxAge": null,
        "maxEntries": 9
    });
    assert_eq!(config["config"], expected);
    let line = tool.fails(1, &["dlq", "config", &queue, "--max-entries", "0"]);
    assert_eq!(line, "--max-entries must be between 1 and 4294967295");
    let set =
        ["queue", "stalls", &queue, "--interval", "5s", "--max-stalls", "0", "--detect", "off"];
    let out = tool.ok(&set);
    assert!(out.contains("5s") && out.contains("any") && out.contains("off"), "{out}");
    let config = tool.json(&["queue", "stalls", &queue])["config"].clone();
    let expected =
        json!({"enabled": false, "stallInterval": 5000, "maxStalls": 0, "gracePeriod": 5000});
    assert_eq!(config, expected);
}

#[test]
fn failed_jobs_are_counted_listed_and_retried_by_reason() {
    let (tool, queue) = (tool(), queue("cli-reasons"));
    assert_eq!(tool.ok(&["dlq", "stats", &queue]), "no job has failed for good\n");
    let id = tool.json(&["push", &queue, "1", "--max-attempts", "1"])["id"].clone();
    let pulled = tool.json(&["pull", &queue]);
    let token = pulled["token"].as_str().or(pulled["tokens"][0].as_str()).unwrap();
    tool.ok(&["fail", id.as_str().unwrap(), "--lock-token", token]);
    let out = tool.ok(&["dlq", "stats", &queue]);
    assert!(out.contains("max_attempts_exceeded"), "{out}");
    let listed = |reason| tool.json(&["dlq", "list", &queue, "--reason", reason])["jobs"].clone();
    assert_eq!(listed("stalled"), json!([]));
    assert_eq!(listed("max_attempts_exceeded")[0]["id"], id);
    let out = tool.ok(&["dlq", "retry", &queue, "--reason", "max_attempts_exceeded"]);
    assert_eq!(out, "retried 1 job\n");
}

#[test]
fn rules_that_would_remove_failed_jobs_at_once_say_which_and_ask() {
    let (mut client, tool, queue) = (client(), tool(), queue("cli-doomed"));
    bury(&mut client, &queue, 5);
    let config = |words: &str| -> Vec<String> {
        let words = words.split(' ').map(str::to_owned);
        ["dlq", "config", &queue].map(str::to_owned).into_iter().chain(words).collect()
    };
    let nobody = ", and there is nobody to ask: say --yes";
    let line = tool.fails(2, &config("--max-entries 2"));
    assert_eq!(
        line,
        format!("this would remove the 3 oldest of 5 failed jobs of queue {queue}{nobody}")
    );
    let line = tool.fails(2, &config("--max-age 0"));
    assert_eq!(line, format!("this would remove all 5 failed jobs of queue {queue}{nobody}"));
    assert_eq!(client.counted(&queue, "failed"), 5);
    // Rules that remove nothing at once ask nothing.
    tool.ok(&config("--max-entries 5 --max-age 7d --max-retries 1"));
    tool.ok(&config("--max-entries any --max-age never"));
    let mut terminal = Terminal::start(tool.command(&config("--max-entries 4")));
    terminal
        .wait_for(&format!("remove the 1 oldest of 5 failed jobs of queue {queue}. Go on? [y/N]"));
    terminal.press("no\n");
    assert_eq!(terminal.end().0, Some(1));
    assert_eq!(client.counted(&queue, "failed"), 5);
    tool.ok(&config("--max-entries 2 --yes"));
    assert_eq!(client.counted(&queue, "failed"), 2);
}
