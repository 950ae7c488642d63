//! `demo`: sample work that is there to be looked at, and goes again. The fear: it touches queues that are not its own.

use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Client, Server, until};

fn counts(client: &mut Client, queue: &str) -> Value {
    client.ok("GetJobCounts", json!({ "queue": queue }))["counts"].clone()
}

fn demo_queues(client: &mut Client) -> Vec<String> {
    let rows = client.ok("ListQueues", json!({"prefix": "demo.", "limit": 100}))["queues"].clone();
    let name = |row: &Value| row["name"].as_str().unwrap().to_owned();
    rows.as_array().unwrap().iter().map(name).collect()
}

/// Whether there are dead letters of several errors, delayed, waiting and paused jobs, and reports in whatever state.
fn has_every_kind(client: &mut Client) -> bool {
    let groups = client.ok("DlqGroups", json!({"queue": "demo.payments"}))["groups"].clone();
    let known = [
        ("demo.payments", "failed"),
        ("demo.reminders", "delayed"),
        ("demo.imports", "waiting"),
        ("demo.legacy", "waiting"),
    ];
    let reports = counts(client, "demo.reports");
    groups.as_array().unwrap().len() > 1
        && known.iter().all(|(queue, state)| counts(client, queue)[state].as_u64() > Some(0))
        && reports.as_object().unwrap().values().any(|count| count.as_u64() > Some(0))
}

#[test]
fn the_demo_leaves_work_of_every_kind_and_removes_all_of_it_again() {
    let server = Server::start_default();
    let (mut client, tool) = (server.client(), Tool::of(&server));
    client.push("orders", 1);
    assert_eq!(tool.ok(&["demo", "--remove"]), "nothing of 'corq demo' is on this server\n");
    // A busy machine may need several runs for work of every kind.
    until("work of every kind", || {
        let said = tool.json(&["demo", "--seconds", "3", "--rate", "1000"]);
        let any =
            ["pushed", "completed", "failed"].iter().all(|what| said[what].as_u64() > Some(0));
        (any && has_every_kind(&mut client)).then_some(())
    });
    assert_eq!(demo_queues(&mut client).len(), 10);
    assert_eq!(client.ok("IsPaused", json!({"queue": "demo.imports"}))["paused"], true);
    let limits = |client: &mut Client, queue: &str| {
        client.ok("GetQueueLimits", json!({ "queue": queue }))["data"]["limits"].clone()
    };
    assert_eq!(limits(&mut client, "demo.sync")["rateLimit"]["max"], 2);
    assert_eq!(limits(&mut client, "demo.images")["concurrencyLimit"], 4);
    assert_eq!(client.ok("CronList", json!({}))["crons"].as_array().unwrap().len(), 2);
    assert_eq!(counts(&mut client, "demo.emails")["active"], 0, "what was in hand was ended");
    // Once more on the same server.
    tool.ok(&["demo", "--seconds", "1", "--rate", "10"]);

    let removed = tool.json(&["demo", "--remove"])["removed"].clone();
    assert_eq!(removed.as_array().unwrap().len(), 9);
    assert_eq!(demo_queues(&mut client), Vec::<String>::new());
    assert_eq!(client.ok("CronList", json!({}))["crons"], json!([]));
    assert_eq!(counts(&mut client, "orders")["waiting"], 1);
    tool.ok(&["demo", "--seconds", "1", "--rate", "1"]);
    assert_eq!(client.ok("IsPaused", json!({"queue": "demo.imports"}))["paused"], true);
    tool.ok(&["demo", "--remove"]);
}

#[test]
fn the_demo_leaves_alone_what_others_have_made_under_its_names() {
    let server = Server::start_default();
    let (mut client, tool) = (server.client(), Tool::of(&server));
    let id = client.push("demo.emails", "real work");
    client
        .ok("Cron", json!({"name": "demo.poll", "queue": "q", "data": 1, "schedule": "0 0 1 1 *"}));
    for words in [&["demo"][..], &["demo", "--remove"]] {
        let line = tool.fails(1, words);
        let expected = "the server has the queue demo.emails, the schedule demo.poll that 'corq demo' has not made: it changes \
             nothing there";
        assert_eq!(line, expected);
    }
    assert_eq!(client.state(&id), "waiting");
    assert_eq!(client.ok("CronList", json!({}))["crons"].as_array().unwrap().len(), 1);
    // A job of another by the name of the mark is no mark.
    client.ok("Obliterate", json!({"queue": "demo.emails"}));
    client.ok("CronDelete", json!({"name": "demo.poll"}));
    client.push_with("orders", 1, json!({"jobId": "corq-demo-mark"}));
    assert!(tool.fails(1, &["demo", "--remove"]).contains("the job corq-demo-mark"));
    assert!(tool.fails(2, &["demo", "--rate", "0"]).contains("1..=1000"));
    assert!(tool.fails(2, &["demo", "--remove", "--rate", "5"]).contains("--rate"));
}
