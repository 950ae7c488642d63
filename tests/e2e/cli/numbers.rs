//! Figures of the server about itself: `stats`, `metrics`, `health`, `ping` and `worker list`.

use serde_json::json;

use super::{push, tool};
use crate::support::Start;
use crate::support::tool::{Tool, pair, rows};
use crate::{client, queue};

#[test]
fn stats_and_metrics_are_told_in_words_and_raw() {
    let server = Start::new().memory().start();
    let tool = Tool::of(&server);
    push(&tool, "q", "1");
    push(&tool, "q", "2");
    tool.ok(&["pull", "q"]);
    let out = tool.ok(&["stats"]);
    assert_eq!((pair(&out, "queued"), pair(&out, "processing")), ("1", "1"));
    assert_eq!(pair(&out, "totalPushed"), "2");
    assert!(pair(&out, "uptime").ends_with('s'), "{out}");
    let stats = tool.json(&["stats"])["stats"].clone();
    assert_eq!((&stats["totalPulled"], &stats["delayed"]), (&json!(1), &json!(0)));
    let out = tool.ok(&["metrics"]);
    assert_eq!(pair(&out, "totalPushed"), "2");
    assert!(pair(&out, "memoryUsageMb").ends_with("MB"), "{out}");
    assert!(tool.json(&["metrics"])["metrics"]["memoryUsageMb"].as_f64().unwrap() > 1.0);
    let text = tool.ok(&["metrics", "--prometheus"]);
    assert!(text.contains("# TYPE corq_jobs_pushed_total counter\ncorq_jobs_pushed_total 2\n"));
    let raw = tool.json(&["metrics", "--prometheus"]);
    assert!(raw["data"]["metrics"].as_str().unwrap().starts_with("# HELP"));
}

#[test]
fn health_tells_version_and_jobs() {
    let server = Start::new().memory().start();
    let tool = Tool::of(&server);
    push(&tool, "q", "1");
    let out = tool.ok(&["health"]);
    assert_eq!((pair(&out, "status"), pair(&out, "waiting")), ("healthy", "1"));
    assert!(pair(&out, "server").starts_with("corq "), "{out}");
    let health = tool.json(&["health"]);
    assert_eq!((&health["ok"], &health["status"]), (&json!(true), &json!("healthy")));
    let queues = json!({"waiting": 1, "active": 0, "delayed": 0, "completed": 0, "dlq": 0});
    assert_eq!(health["queues"], queues);
    for field in ["uptime", "version", "connections", "memory"] {
        assert!(!health[field].is_null(), "{field} of {health}");
    }
}

#[test]
fn ping_answers() {
    let out = tool().ok(&["ping"]);
    assert!(out.starts_with("pong after ") && out.ends_with(" ms\n"), "{out}");
    assert_eq!(tool().json(&["ping"])["data"]["pong"], true);
}

#[test]
fn the_page_on_tuning_shows_what_size_says() {
    let page = include_str!("../../../docs/tuning.md");
    let (_, behind) = page.split_once("\n$ corq ").unwrap();
    let (line, behind) = behind.split_once('\n').unwrap();
    let (shown, _) = behind.split_once("```").unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    // Without any server.
    let tool = Tool::at(1);
    assert_eq!(tool.ok(&words), shown);
    let need = tool.json(&words);
    assert!(need["ok"] == true && need["memoryBytes"].as_f64() > Some(1e9), "{need}");
    for (words, told) in [
        (&["size", "--jobs", "many", "--payload", "1", "--rate", "1"][..], "1e7"),
        (&["size", "--jobs", "1", "--payload", "1TB", "--rate", "1"], "4KB"),
        (&["size", "--jobs", "1", "--payload", "1"], "--rate"),
        (&["size", "--jobs", "1", "--payload", "1", "--rate", "1", "--durability", "x"], "synced"),
        (
            &["size", "--jobs", "1", "--payload", "1", "--rate", "1", "--client-memory-mb", "127"],
            "127 is too little for 1 shards: it must be at least 128",
        ),
    ] {
        assert!(tool.fails(2, words).contains(told), "{words:?}");
    }
}

#[test]
fn workers_are_listed() {
    let server = Start::new().memory().start();
    let tool = Tool::of(&server);
    assert_eq!(tool.ok(&["worker", "list"]), "no worker is registered\n");
    let mut worker = server.client();
    worker.ok("RegisterWorker", json!({"name": "press", "queues": ["a", "b"], "workerId": "w1"}));
    worker.push("a", 1);
    worker.pull("a");
    let found = &rows(&tool.ok(&["worker", "list"]))[0];
    assert_eq!(found[..2], ["w1", "press"]);
    let found = found.join(" ");
    assert!(found.contains("a,b") && found.contains("1/"), "{found}");
    let data = tool.json(&["worker", "list", "--queue", "a"])["data"].clone();
    assert_eq!(data["workers"][0]["name"], json!("press"));
}

#[test]
fn the_same_is_told_to_people_and_to_programs() {
    let (tool, queue) = (tool(), queue("cli-same"));
    push(&tool, &queue, "1");
    let raw = tool.json(&["queue", "counts", &queue]);
    let mut asked = client().ok("GetJobCounts", json!({"queue": queue}));
    // The program asks one thing at a time and needs no number.
    asked.as_object_mut().unwrap().remove("reqId");
    assert_eq!(raw, asked);
}
