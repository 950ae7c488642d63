//! `group`.

use serde_json::json;

use super::tool;
use crate::queue;

#[test]
fn groups_are_listed_paused_limited_and_weighed() {
    let (tool, queue) = (tool(), queue("cli-group"));
    assert_eq!(tool.ok(&["group", "list", &queue]), "no groups\n");
    for _ in 0..2 {
        tool.ok(&["push", &queue, "1", "--group-id", "a"]);
    }
    let line = tool.fails(1, &["push", &queue, "1", "--group-id", "a", "--group-max-size", "2"]);
    assert_eq!(line, "Group a has reached its maximum size of 2");
    let on = |words: &[&str]| tool.ok(&[&["group", words[0], &queue, "a"], &words[1..]].concat());
    assert_eq!(on(&["pause"]), "paused a\n");
    assert!(tool.ok(&["group", "list", &queue]).contains("paused"));
    assert_eq!(on(&["resume"]), "resumed a\n");
    assert_eq!(on(&["concurrency", "1"]), "a: at most 1 active jobs at a time\n");
    assert_eq!(on(&["rate-limit", "5", "--per", "1m"]), "a: at most 5 jobs in 1m\n");
    assert_eq!(on(&["weight", "3"]), "a: 3 jobs in a turn\n");
    let pulled = tool.json(&["pull", &queue, "--count", "2"])["jobs"].clone();
    assert_eq!(pulled.as_array().unwrap().len(), 1);
    let listed = tool.json(&["group", "list", &queue]);
    let group = json!({"id": "a", "count": 1, "active": 1, "paused": false, "weight": 3,
        "concurrency": 1, "limit": {"max": 5, "duration": 60_000}, "heldFor": null});
    assert_eq!(listed["groups"], json!([group]));
    assert_eq!(on(&["concurrency"]), "a: no limit on active jobs at a time\n");
    assert_eq!(on(&["rate-limit"]), "a: no limit on jobs in a time\n");
    assert_eq!(on(&["hold", "5m"]), "a: no jobs for 5m\n");
    assert!(tool.ok(&["group", "list", &queue]).contains("held for"));
    assert_eq!(tool.json(&["pull", &queue])["job"], json!(null));
}
