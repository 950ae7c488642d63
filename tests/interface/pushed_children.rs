//! Jobs that are pushed for a parent which is there: their push is answered when the parent waits for them, as safely as it
//! wants, and refused otherwise.

use serde_json::{Value as Json, json};

use crate::support::{Client, Server, Start, until};

/// A job as the npm client adds it with the option `parent`.
fn child_of(parent: &str, more: &Json) -> Json {
    let data = json!({ "__parentId": parent, "__parentQueue": "whole" });
    let mut job = json!({ "name": "child", "data": data, "parentId": parent });
    job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    job
}

fn speaking(server: &Server, version: u64) -> Client {
    let mut client = server.client();
    client.ok("Hello", json!({ "protocolVersion": version }));
    client
}

fn metric(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let lines = text.as_str().unwrap().lines().filter(|line| !line.starts_with('#'));
    let of_name = lines.filter_map(|line| line.split_once(' '));
    let found = of_name.filter(|(found, _)| found.split('{').next() == Some(name));
    found.map(|(_, value)| value.parse::<f64>().unwrap() as u64).sum()
}

/// A queue on another shard than `whole`, of two.
fn elsewhere(client: &mut Client) -> String {
    let shard_of = |client: &mut Client, queue: &str| {
        let id = client.push_with(queue, 0, json!({ "delay": 3_600_000 }));
        u64::from_str_radix(&id[id.len() - 3..], 16).unwrap() % 2
    };
    let own = shard_of(client, "whole");
    let mut queues = (0..).map(|number| format!("part-{number}"));
    queues.find(|queue| shard_of(client, queue) != own).unwrap()
}

/// A server may end between a push and its link; so may the connection of a client that then tries again.
#[test]
fn a_push_that_is_tried_again_makes_the_link_that_the_first_one_did_not() {
    for shards in [1, 2] {
        let mut server = Start::new().env("SHARDS", shards).start();
        let mut old = speaking(&server, 2);
        let part = if shards == 1 { "part".to_owned() } else { elsewhere(&mut old) };
        let waits = ["named", "keyed", "batch", "done", "gone"];
        for parent in waits.into_iter().chain(["other"]) {
            old.push_with("whole", 1, json!({ "jobId": parent }));
        }
        let with_queue = |mut job: Json, queue: &str| {
            job["queue"] = json!(queue);
            job
        };
        let job = |parent: &str| match parent {
            "keyed" => child_of(parent, &json!({ "uniqueKey": "k" })),
            "gone" => child_of(parent, &json!({ "jobId": "of-gone", "removeOnComplete": true })),
            _ => child_of(parent, &json!({ "jobId": format!("of-{parent}") })),
        };
        // Version 2 makes jobs that say whose they are, and no links.
        let mut ids = Vec::new();
        for parent in waits {
            ids.push(old.ok("PUSH", with_queue(job(parent), &part))["id"].clone());
            assert_eq!(old.state(parent), "waiting");
        }
        server.kill();
        server.start();
        let mut client = speaking(&server, 3);
        let ended = json!({ "queue": part, "owner": "w" });
        loop {
            let pulled = client.ok("PULL", ended.clone());
            let id = &pulled["job"]["id"];
            if id.is_null() {
                break;
            }
            if ["of-done", "of-gone"].contains(&id.as_str().unwrap()) {
                let done = json!({ "id": id, "token": pulled["token"], "result": 7 });
                client.ok("ACK", done);
            }
        }
        // A job in the way that is for another parent stays what it is.
        let other = child_of("other", &json!({ "jobId": "of-named", "queue": part }));
        assert_eq!(client.ok("PUSH", other)["id"], "of-named");
        assert_eq!(client.state("other"), "waiting");
        for round in 0..2 {
            for (parent, id) in waits.into_iter().zip(&ids) {
                let again = if parent == "batch" {
                    let jobs = [job(parent), json!({ "data": 1, "name": "n" }), job(parent)];
                    let batch = json!({ "queue": part, "jobs": jobs });
                    client.ok("PUSHB", batch)["ids"][2].clone()
                } else {
                    client.ok("PUSH", with_queue(job(parent), &part))["id"].clone()
                };
                assert_eq!(again, *id, "{shards} shards, round {round}");
                let state = client.state(parent);
                match parent {
                    "done" => {}
                    _ => assert_eq!(state, "waiting-children", "{shards}, {round}: {parent}"),
                }
                let shown = client.ok("GetFlow", json!({ "id": parent }))["data"].clone();
                assert_eq!(shown["jobs"].as_array().unwrap().len(), 2, "once: {shown}");
            }
        }
        until("the result of a child that had ended", || {
            let values = client.ok("GetChildrenValues", json!({ "id": "done" }))["data"].clone();
            (values["values"] == json!({ (format!("{part}:of-done")): 7 })).then_some(())
        });
    }
}

#[test]
fn a_push_for_a_parent_whose_log_is_full_is_refused_and_pushes_nothing() {
    let start = Start::new().env("SHARDS", 2).env("SEGMENT_MB", 16).env("DATA_MAX_MB", 192);
    let server = start.start();
    let mut client = speaking(&server, 3);
    let part = elsewhere(&mut client);
    let delayed = |id: &str| json!({ "data": 1, "name": "n", "jobId": id, "delay": 3_600_000 });
    let parents: Vec<String> = (0..1000).map(|number| format!("parent-{number}")).collect();
    let jobs: Vec<Json> = parents.iter().map(|id| delayed(id)).chain([delayed("there")]).collect();
    client.ok("PUSHB", json!({ "queue": "whole", "jobs": jobs }));
    let again = |parent: &str| {
        child_of(parent, &json!({ "queue": part, "jobId": "first", "delay": 3_600_000 }))
    };
    client.ok("PUSH", again("there"));
    let data = "f".repeat(1_000_000);
    let fill = |client: &mut Client, bytes: usize| {
        let filler = json!({ "queue": "whole", "data": &data[..bytes], "delay": 3_600_000 });
        while client.call("PUSH", filler.clone())["ok"] == json!(true) {}
    };
    fill(&mut client, 1_000_000);
    fill(&mut client, 10_000);
    fill(&mut client, 100);
    let child = |parent: &str| child_of(parent, &json!({ "queue": part }));
    // A link may take less than a job.
    let mut linked = 0;
    let full = parents.iter().find(|parent| {
        fill(&mut client, 1);
        let reply = client.call("PUSH", child(parent));
        if reply["ok"] == json!(false) {
            assert_eq!(reply["error"], "Disk full");
            return true;
        }
        assert_eq!(client.state(parent), "waiting-children");
        linked += 1;
        false
    });
    let full = full.expect("a log that is full takes no link");
    let batch = json!({ "queue": part, "jobs": [{ "data": 1, "name": "n" }, child(full)] });
    assert_eq!(client.refused("PUSHB", batch), "jobs[1]: Disk full");
    assert_eq!(client.counted(&part, "waiting"), linked, "nothing came without its link");
    assert_eq!(client.state(full), "delayed");
    let late = client.push_with(&part, 1, json!({}));
    let adopt = json!({ "childId": late, "parentId": full });
    assert_eq!(client.refused("UpdateParent", adopt), "Disk full");
    // A child that is linked already needs no room.
    assert_eq!(client.ok("PUSH", again("there"))["id"], "first");
}

#[test]
fn a_durable_push_for_a_parent_is_answered_when_the_link_is_on_the_disk() {
    // Syncs of their own accord come too late to help.
    let start = Start::new().env("SHARDS", 2).env("FSYNC_INTERVAL_MS", 60_000);
    let server = start.start();
    let mut client = speaking(&server, 3);
    let part = elsewhere(&mut client);
    let syncs = |client: &mut Client, queue: &str, more: Json| {
        let parent = client.push_with("whole", 1, json!({}));
        let mut child = child_of(&parent, &more);
        child["queue"] = json!(queue);
        let before = metric(client, "corq_log_syncs_total");
        client.ok("PUSH", child);
        assert_eq!(client.state(&parent), "waiting-children");
        metric(client, "corq_log_syncs_total") - before
    };
    assert!(syncs(&mut client, &part, json!({ "durable": true })) >= 2, "one for each log");
    assert!(syncs(&mut client, "whole", json!({ "durable": true })) >= 1);
}

#[test]
fn children_whose_queues_and_ids_have_colons_have_keys_of_their_own() {
    let (mut client, queue) = (crate::client(), crate::queue("colons"));
    let (below, name) = (format!("{queue}:b"), format!("c-{queue}"));
    let children = [(&queue, format!("b:{name}"), "first"), (&below, name.clone(), "second")];
    for (queue, id, result) in &children {
        client.push_with(queue, 1, json!({"jobId": id}));
        client.pull(queue);
        client.ok("ACK", json!({"id": id, "result": result}));
    }
    let ids = children.map(|(_, id, _)| id);
    let parent = client.push_with(&queue, 1, json!({"childrenIds": ids}));
    // Until then the shards of its children have yet to say how they ended.
    until("the parent to wait for no child", || (client.state(&parent) == "waiting").then_some(()));
    let values = client.ok("GetChildrenValues", json!({"id": parent}))["data"]["values"].clone();
    let (first, second) = (format!("{queue}:b%3A{name}"), format!("{queue}:b:{name}"));
    assert_eq!(values, json!({ (first): "first", (second): "second" }));
}
