//! `webhook add|list|remove`, against a server that answers as the protocol says,
//! so that what is sent can be looked at and what is shown is known.

use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use super::fake;
use crate::support::tool::{Tool, rows};

/// A server of webhooks, and the requests that it was sent.
fn server(webhooks: Json) -> (Tool, Arc<Mutex<Vec<Json>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let port = fake::frames(move |request| {
        seen.lock().unwrap().push(request.clone());
        match request["cmd"].as_str() {
            Some("AddWebhook") => json!({"ok": true, "data": {"webhookId": "w-1"}}),
            Some("ListWebhooks") => {
                json!({"ok": true, "data": {"webhooks": webhooks, "stats": {}}})
            }
            Some("RemoveWebhook") if request["webhookId"] == "w-1" => {
                json!({"ok": true, "data": {"removed": true}})
            }
            _ => json!({"ok": false, "error": "Webhook not found"}),
        }
    });
    (Tool::at(port), asked)
}

#[test]
fn add_sends_url_events_queue_and_secret() {
    let (tool, asked) = server(json!([]));
    let words = [
        "webhook",
        "add",
        "https://example.org/hook",
        "--events",
        "job.completed,job.failed",
        "--queue",
        "emails",
        "--secret",
        "s3",
    ];
    assert_eq!(tool.ok(&words), "w-1\n");
    assert_eq!(tool.json(&words)["data"]["webhookId"], "w-1");
    tool.ok(&["webhook", "add", "https://example.org/all", "--events", "all"]);
    let asked = asked.lock().unwrap();
    let expected = json!({
        "cmd": "AddWebhook", "url": "https://example.org/hook",
        "events": ["job.completed", "job.failed"], "queue": "emails", "secret": "s3",
    });
    assert_eq!(asked[0], expected);
    let all = json!({"cmd": "AddWebhook", "url": "https://example.org/all", "events": []});
    assert_eq!(asked[2], all);
}

#[test]
fn events_must_be_named() {
    let (tool, _) = server(json!([]));
    assert!(tool.fails(2, &["webhook", "add", "https://example.org"]).contains("--events"));
}

#[test]
fn list_prints_url_queue_and_events() {
    let (tool, _) = server(json!([
        {"id": "w-1", "url": "https://example.org/a", "events": ["job.completed", "job.failed"],
         "queue": "emails", "successCount": 4, "failureCount": 1, "lastTriggered": null},
        {"id": "w-2", "url": "https://example.org/b", "events": [], "queue": null,
         "successCount": 0, "failureCount": 0, "lastTriggered": null},
    ]));
    let out = tool.ok(&["webhook", "list"]);
    let heads: Vec<&str> = out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heads[..4], ["URL", "QUEUE", "EVENTS", "ID"]);
    let found = rows(&out);
    assert_eq!(
        found[0][..4],
        ["https://example.org/a", "emails", "job.completed,job.failed", "w-1"]
    );
    assert_eq!(found[1][..4], ["https://example.org/b", "*", "all", "w-2"]);
    assert_eq!(tool.json(&["webhook", "list"])["data"]["webhooks"][1]["id"], "w-2");
    assert_eq!(server(json!([])).0.ok(&["webhook", "list"]), "there are no webhooks\n");
}

#[test]
fn remove_takes_the_id() {
    let (tool, asked) = server(json!([]));
    assert_eq!(tool.ok(&["webhook", "remove", "w-1"]), "removed w-1\n");
    assert_eq!(asked.lock().unwrap()[0], json!({"cmd": "RemoveWebhook", "webhookId": "w-1"}));
    assert_eq!(tool.fails(1, &["webhook", "remove", "w-9"]), "Webhook not found");
}
