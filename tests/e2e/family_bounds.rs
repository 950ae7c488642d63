//! How large a family may become. The fear: a job that no longer fits a record of the log with all that is to be
//! written of its children, so that the server cannot write it again, or cannot start.

use serde_json::{Value, json};

use crate::support::{Client, Start, until};

const PARENT_BYTES: usize = 10_485_000;

/// As long as an id may be: 256 characters, a kilobyte.
fn long_id(n: usize) -> String {
    format!("{n:04}{}", "\u{1f9ec}".repeat(252))
}

/// Makes jobs children of `root` until no more is taken. Says how many were.
fn adopt_all(client: &mut Client, children: usize) -> usize {
    let jobs: Vec<Value> = (0..children).map(|n| json!({"data": 1, "jobId": long_id(n)})).collect();
    for some in jobs.chunks(500) {
        client.ok("PUSHB", json!({"queue": "parts", "jobs": some}));
    }
    let link = |n: usize| json!({"childId": long_id(n), "parentId": "root"});
    (0..children)
        .find(|&n| {
            let reply = client.call("UpdateParent", link(n));
            if reply["ok"] == json!(false) {
                assert_eq!(reply["error"], json!("Parent job root is not linkable"));
            }
            reply["ok"] == json!(false)
        })
        .unwrap_or(children)
}

#[test]
fn a_family_never_outgrows_a_record_whatever_is_linked_updated_and_written_again() {
    let start = Start::new().env("SHARDS", 1).env("DATA_MAX_MB", 160);
    let mut server = start.start();
    let mut client = server.client();
    let data = "x".repeat(PARENT_BYTES - 2_000_000);
    client.ok("PUSH", json!({"queue": "whole", "jobId": "root", "data": data}));
    let linked = adopt_all(&mut client, 2600);
    assert!((500..2600).contains(&linked), "{linked}");
    // Beside so many children there is no room for the longest payload.
    let longer = json!({"id": "root", "data": "x".repeat(PARENT_BYTES)});
    let refused = client.refused("Update", longer);
    assert!(refused.starts_with("data must be at most "), "{refused}");
    assert!(refused.ends_with(" bytes beside so many childrenIds"), "{refused}");
    client.ok("Update", json!({"id": "root", "data": "y".repeat(PARENT_BYTES - 2_000_000)}));
    // The log goes round until the segment of the parent is written again.
    let filler = "z".repeat(3_000_000);
    until("reclaim has come to it", || {
        if client.call("PUSH", json!({"queue": "fill", "data": filler}))["ok"] == json!(false) {
            return None;
        }
        let pulled = client.ok("PULL", json!({"queue": "fill"}))["job"]["id"].clone();
        client.ok("ACK", json!({"id": pulled}));
        let text = server.web().get("/prometheus").text().to_owned();
        let line = text.lines().find(|line| line.starts_with("corq_log_rewritten_bytes_total "));
        let bytes: f64 = line?.rsplit(' ').next()?.parse().ok()?;
        (bytes > 9_000_000.0).then_some(())
    });
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(client.state("root"), "waiting-children");
    let linked_again = json!({"childId": long_id(0), "parentId": "root"});
    client.ok("UpdateParent", linked_again);
}

#[test]
fn a_long_line_of_parents_says_no_more_than_one_does() {
    const DEPTH: usize = 200;
    let server = Start::new().start();
    let mut client = server.client();
    let id = |n: usize| format!("line-{n}-{}", "i".repeat(200));
    let jobs: Vec<Value> = (0..DEPTH)
        .map(|n| {
            let mut input = json!({"data": n, "maxAttempts": 1});
            if n > 0 {
                input["failParentOnFailure"] = json!(true);
                input["parentId"] = json!(id(n - 1));
            }
            if n + 1 < DEPTH {
                input["childrenIds"] = json!([id(n + 1)]);
                input["dependsOn"] = json!([id(n + 1)]);
            }
            json!({"id": id(n), "queue": "line", "input": input})
        })
        .collect();
    client.ok("PUSHF", json!({"jobs": jobs}));
    let leaf = client.pull("line");
    let error = "e".repeat(60_000);
    client.ok("FAIL", json!({"id": leaf["id"], "error": error}));
    until("the root fails", || (client.state(&id(0)) == "failed").then_some(()));
    let root = client.ok("GetJob", json!({"id": id(0)}))["job"].clone();
    let reason = root["failedReason"].as_str().unwrap();
    assert!(reason.starts_with(&format!("Child job {} failed: Child job", id(1))), "{reason}");
    assert!(reason.len() <= 2048, "{}", reason.len());
    let leaf = client.ok("GetJob", json!({"id": id(DEPTH - 1)}))["job"].clone();
    assert_eq!(leaf["failedReason"], json!(error));
}

#[test]
fn a_parent_does_not_become_the_child_of_its_child() {
    let server = Start::new().start();
    let mut client = server.client();
    let (above, below) = (client.push("q", 1), client.push("q", 2));
    client.ok("UpdateParent", json!({"childId": below, "parentId": above}));
    let turned = json!({"childId": above, "parentId": below});
    let text = client.refused("UpdateParent", turned);
    assert_eq!(text, format!("Parent job {below} is a child of the job itself"));
    assert_eq!(client.state(&below), "waiting");
}
