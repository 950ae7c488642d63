//! `rate-limit` and `concurrency`.

use serde_json::json;

use super::{push, tool};
use crate::queue;

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
fn a_limit_of_none_is_refused_by_the_server() {
    let (tool, queue) = (tool(), queue("cli-limit-zero"));
    for limit in ["rate-limit", "concurrency"] {
        for value in ["0", "-1"] {
            let line = tool.fails(1, &[limit, "set", &queue, value]);
            assert_eq!(line, "limit must be between 1 and 4294967295");
        }
    }
}
