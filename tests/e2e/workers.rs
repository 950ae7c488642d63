//! Workers. The fear: a list that shows who is gone, or numbers that nobody counted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::e2e::space::metrics;
use crate::support::{Client, Server, Start, until};
use crate::{client, queue};

fn find(client: &mut Client, id: &str) -> Option<Value> {
    let reply = client.ok("ListWorkers", json!({}));
    let workers = reply["data"]["workers"].as_array().unwrap();
    workers.iter().find(|worker| worker["id"] == json!(id)).cloned()
}

#[test]
fn a_worker_is_listed_with_its_fields_until_it_goes() {
    let mut client = client();
    let queue = queue("workers");
    let data =
        client.ok("RegisterWorker", json!({"name": "w", "queues": [queue, "other"]}))["data"]
            .clone();
    let id = data["workerId"].as_str().unwrap().to_owned();
    assert_eq!((&data["name"], &data["queues"]), (&json!("w"), &json!([queue, "other"])));
    let listed = find(&mut client, &id).unwrap();
    let fields: BTreeSet<&str> = listed.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "activeJobs",
        "concurrency",
        "failedJobs",
        "hostname",
        "id",
        "lastSeen",
        "name",
        "pid",
        "processedJobs",
        "queues",
        "registeredAt",
        "status",
        "uptime",
    ];
    assert_eq!(fields, BTreeSet::from(expected));
    assert_eq!(listed["registeredAt"], data["registeredAt"]);
    assert_eq!(listed["queues"], json!([queue, "other"]));
    let removed = client.ok("UnregisterWorker", json!({"workerId": id}))["data"]["removed"].clone();
    assert_eq!(removed, true);
    assert_eq!(find(&mut client, &id), None);
    assert_eq!(client.refused("Heartbeat", json!({"id": id})), "Worker not found");
    assert_eq!(client.refused("UnregisterWorker", json!({"workerId": id})), "Worker not found");
}

/// Clients with several connections beat on any of them, and connections live on any shard.
#[test]
fn any_connection_can_speak_for_a_worker() {
    let mut workers: Vec<Client> = (0..4).map(|_| client()).collect();
    let name = queue("spoken-for");
    for (n, worker) in workers.iter_mut().enumerate() {
        let id = format!("{name}-{n}");
        let fields = json!({"name": "w", "queues": [], "workerId": id});
        assert_eq!(worker.ok("RegisterWorker", fields)["data"]["workerId"], json!(id));
    }
    for n in 0..4 {
        let id = format!("{name}-{n}");
        let mut other = client();
        assert_eq!(other.ok("Heartbeat", json!({"id": id}))["data"]["ok"], true);
        other.ok("UnregisterWorker", json!({"workerId": id}));
    }
}

#[test]
fn a_worker_goes_with_its_connection() {
    let mut watcher = client();
    let ids: Vec<String> = (0..4)
        .map(|_| {
            let mut worker = client();
            let reply = worker.ok("RegisterWorker", json!({"name": "w", "queues": []}));
            let id = reply["data"]["workerId"].as_str().unwrap().to_owned();
            assert!(find(&mut watcher, &id).is_some());
            id
        })
        .collect();
    for id in ids {
        until("its end", || find(&mut watcher, &id).is_none().then_some(()));
    }
}

/// On its own server, since it looks at the sums over all workers.
#[test]
fn what_workers_hold_and_finish_is_counted_by_the_server() {
    let server = Server::start_default();
    let (mut worker, mut other) = (server.client(), server.client());
    for (client, id) in [(&mut worker, "one"), (&mut other, "two")] {
        client.ok("RegisterWorker", json!({"name": id, "queues": ["a"], "workerId": id}));
    }
    // Queues on both shards.
    let queues = ["a", "b", "c", "d", "e", "f"];
    let mut held = Vec::new();
    for queue in queues {
        for n in 0..3 {
            worker.push_with(queue, n, json!({"maxAttempts": 1}));
        }
        for _ in 0..3 {
            held.push(worker.pull_owned(queue, 60_000));
        }
    }
    let numbers = |client: &mut Client, id: &str| {
        let one = find(client, id).unwrap();
        ["activeJobs", "processedJobs", "failedJobs"].map(|name| one[name].as_u64().unwrap())
    };
    assert_eq!(numbers(&mut other, "one"), [18, 0, 0]);
    for (n, (job, token)) in held.into_iter().enumerate() {
        let fields = json!({"id": job["id"], "token": token});
        match n % 3 {
            0 => drop(worker.ok("ACK", fields)),
            // Renewed and completed elsewhere, it is still the job of the one that pulled it.
            1 => {
                other.ok("JobHeartbeat", fields.clone());
                other.ok("ACK", fields);
            }
            _ => drop(worker.ok("FAIL", fields)),
        }
    }
    assert_eq!(numbers(&mut other, "one"), [0, 12, 6]);
    assert_eq!(numbers(&mut other, "two"), [0, 0, 0]);
    other.push("a", 1);
    other.pull("a");
    let stats = other.ok("ListWorkers", json!({}))["data"]["stats"].clone();
    let expected = json!({
        "total": 2, "active": 1, "activeJobs": 1, "totalProcessed": 12, "totalFailed": 6,
        "concurrencySlots": 2
    });
    assert_eq!(stats, expected);
    drop(worker);
    until("the first to go", || find(&mut other, "one").is_none().then_some(()));
}

/// Texts of workers have a bound, so that the list fits a reply.
#[test]
fn registrations_with_many_queues_are_bounded_in_bytes_and_the_list_still_fits_a_frame() {
    const WORKERS: usize = 200;
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let queues: Vec<String> = (0..1000).map(|n| format!("{n:0>256}")).collect();
    for n in 0..WORKERS {
        client.ok(
            "RegisterWorker",
            json!({"name": "w", "queues": queues, "workerId": format!("many-{n}")}),
        );
    }
    let numbers = metrics(&mut client);
    let (workers, bytes) = (numbers["corq_workers"], numbers["corq_workers_bytes"]);
    assert!(workers * 258_000 <= bytes && bytes <= 2 * (16 << 20), "{workers}: {bytes}");
    assert_eq!(workers + numbers["corq_workers_crowded_out_total"], WORKERS as u64);
    let listed = client.ok("ListWorkers", json!({}));
    assert_eq!(listed["data"]["workers"].as_array().unwrap().len() as u64, workers);
    assert!(find(&mut client, &format!("many-{}", WORKERS - 1)).is_some(), "the last is there");
    assert_eq!(client.refused("Heartbeat", json!({"id": "many-0"})), "Worker not found");
}

#[test]
fn a_queue_that_a_registration_names_twice_counts_once() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let mut queues = vec!["a"; 999];
    queues.push("b");
    let fields = json!({"name": "w", "queues": queues, "workerId": "w"});
    assert_eq!(client.ok("RegisterWorker", fields)["data"]["queues"], json!(["a", "b"]));
    assert_eq!(find(&mut client, "w").unwrap()["queues"], json!(["a", "b"]));
}
