//! Rows and jobs that are left out. The fear: a part that looks like all of it.

use serde_json::{Value, json};

use super::tool;
use crate::support::tool::Tool;
use crate::support::{Client, Start};
use crate::{client, queue};

fn fill(client: &mut Client, queue: &str, count: usize, job: &Value) {
    let jobs = vec![job.clone(); count];
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
}

/// Failed jobs, so many.
pub(super) fn bury(client: &mut Client, queue: &str, count: usize) {
    fill(client, queue, count, &json!({"data": 1, "maxAttempts": 1}));
    for _ in 0..count {
        let id = client.pull(queue)["id"].clone();
        client.ok("FAIL", json!({"id": id, "error": "x"}));
    }
}

/// The last line of an output.
fn last(out: &str) -> &str {
    out.lines().next_back().unwrap_or_default()
}

#[test]
fn a_clean_that_stops_at_the_default_limit_says_how_many_are_left() {
    let (mut client, tool, queue) = (client(), tool(), queue("cli-left"));
    fill(&mut client, &queue, 3000, &json!({"data": 1}));
    let clean = |words: &[&str]| tool.ok(&[&["queue", "clean", &queue, "--yes"], words].concat());
    let left = |left| {
        format!(
            "removed 1000 jobs\n{left} more are left: without --limit at most 1000 are removed; run it again, or give \
             --limit\n"
        )
    };
    assert_eq!(clean(&["--grace", "0"]), left(2000));
    assert_eq!(clean(&["--grace", "0", "--state", "waiting,delayed"]), left(1000));
    assert_eq!(clean(&["--grace", "0", "--limit", "400"]), "removed 400 jobs\n");
    assert_eq!(clean(&["--grace", "0", "--state", "waiting"]), "removed 600 jobs\n");
    // A thousand that are all there were leave nothing to say.
    fill(&mut client, &queue, 1000, &json!({"data": 1}));
    assert_eq!(clean(&["--grace", "0"]), "removed 1000 jobs\n");
    // Urgent jobs are among those that wait, and where age decides no more is said than is known.
    fill(&mut client, &queue, 1001, &json!({"data": 1, "priority": 1}));
    assert!(clean(&["--grace", "0", "--state", "prioritized"]).contains("\n1 more is left: "));
    fill(&mut client, &queue, 1001, &json!({"data": 1, "timestamp": 1}));
    let out = clean(&["--grace", "1h"]);
    assert!(out.contains("\n2 more are left in these states, of any age: "), "{out}");
    // The reply is the server's, as ever.
    fill(&mut client, &queue, 1001, &json!({"data": 1}));
    let raw = tool.json(&["queue", "clean", &queue, "--yes", "--grace", "0"]);
    assert_eq!(raw["count"], 1000);
}

#[test]
fn a_listing_that_stops_at_the_default_limit_says_how_many_are_not_shown() {
    let (mut client, tool, queue) = (client(), tool(), queue("cli-not-shown"));
    bury(&mut client, &queue, 150);
    let list = |words: &[&str]| tool.ok(&[&["dlq", "list", &queue], words].concat());
    assert_eq!(list(&[]).lines().count(), 102);
    assert_eq!(last(&list(&[])), "100 of 150 are shown: give --count for more");
    let reason = ["--reason", "max_attempts_exceeded"];
    assert_eq!(last(&list(&reason)), "100 of 150 are shown: give --count for more");
    assert_eq!(list(&["--count", "150"]).lines().count(), 151);
    assert_eq!(list(&["--count", "100"]).lines().count(), 101);
    assert_eq!(tool.json(&["dlq", "list", &queue])["jobs"].as_array().unwrap().len(), 100);
    fill(&mut client, &queue, 120, &json!({"data": "needle", "groupId": "g"}));
    let jobs = |words: &[&str]| tool.ok(&[&["queue", "jobs", &queue], words].concat());
    assert_eq!(last(&jobs(&[])), "100 of 270 are shown: give --limit for more");
    assert_eq!(last(&jobs(&["--state", "waiting"])), "100 of 120 are shown: give --limit for more");
    assert_eq!(last(&jobs(&["--offset", "10"])), "100 of 260 are shown: give --limit for more");
    assert_eq!(jobs(&["--state", "waiting", "--offset", "20"]).lines().count(), 101);
    assert_eq!(jobs(&["--limit", "100"]).lines().count(), 101);
    let found = tool.ok(&["search", "needle", "--queue", &queue]);
    assert_eq!(last(&found), "only 100 are shown: give --limit for more");
    assert_eq!(
        tool.ok(&["search", "needle", "--queue", &queue, "--limit", "5"]).lines().count(),
        6
    );
    for group in 0..100 {
        client.push_with(&queue, 1, json!({"groupId": format!("g-{group}")}));
    }
    let groups = tool.ok(&["group", "list", &queue]);
    assert_eq!(last(&groups), "only 100 are shown: give --limit or --after for more");
    assert_eq!(tool.ok(&["group", "list", &queue, "--after", "g"]).lines().count(), 101);
}

#[test]
fn an_audit_log_that_is_longer_than_what_is_shown_says_so() {
    let server = Start::new().start();
    let (mut client, tool) = (server.client(), Tool::of(&server));
    for n in 0..101 {
        client.ok("Pause", json!({"queue": format!("q-{n}")}));
    }
    let out = tool.ok(&["audit"]);
    assert_eq!(
        (out.lines().count(), last(&out)),
        (102, "only 100 are shown: give --limit for more")
    );
    assert!(out.contains("q-100 ") && !out.contains("q-0 "), "{out}");
    assert_eq!(tool.ok(&["audit", "--limit", "101"]).lines().count(), 102);
    assert_eq!(tool.ok(&["audit", "--json"]).lines().count(), 100);
}
