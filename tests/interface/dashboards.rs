//! The figures that pages of operators read: counts, storage, dashboards. The fear: a figure that is not there, or says what is
//! not so.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::json;

use crate::interface::job_fields::names;
use crate::support::{Client, Start, until};
use crate::{client, queue, shared};

#[test]
fn counts_name_the_prioritized_and_the_paused_jobs() {
    let (mut client, queue) = (client(), queue("counts"));
    for priority in [0, 5, -3, 2] {
        client.push_with(&queue, 1, json!({"priority": priority}));
    }
    client.push_with(&queue, 1, json!({"priority": 9, "delay": 3_600_000}));
    let counts = |client: &mut Client| {
        let counts = client.ok("GetJobCounts", json!({"queue": queue}))["counts"].clone();
        ["waiting", "prioritized", "paused"].map(|name| counts[name].as_u64().unwrap())
    };
    assert_eq!(counts(&mut client), [4, 2, 0]);
    let first = client.pull(&queue);
    client.ok("Pause", json!({"queue": queue}));
    assert_eq!(counts(&mut client), [3, 1, 3], "of those that wait, as on version 2");
    client.ok("Resume", json!({"queue": queue}));
    client.ok("MoveToWait", json!({"id": first["id"]}));
    client.ok("ChangePriority", json!({"id": first["id"], "priority": 0}));
    assert_eq!(counts(&mut client), [4, 1, 0]);
    // Version 3 counts each of them once.
    let mut three = shared().client();
    three.ok("Hello", json!({"protocolVersion": 3}));
    assert_eq!(counts(&mut three), [3, 1, 0]);
    client.ok("Pause", json!({"queue": queue}));
    assert_eq!((counts(&mut three), counts(&mut client)), ([0, 0, 4], [4, 1, 4]));
    client.ok("Drain", json!({"queue": queue}));
    assert_eq!(counts(&mut client), [0, 0, 0]);
}

#[test]
fn storage_status_says_that_the_disk_takes_jobs() {
    let status = client().ok("StorageStatus", json!({}))["data"].clone();
    assert_eq!(status, json!({"diskFull": false, "error": null, "since": null}));
}

#[test]
fn storage_status_says_since_when_the_data_directory_is_gone() {
    let data = tempfile::tempdir().unwrap();
    let server = Start::new().start_at(&data.path().join("data"));
    let mut client = server.client();
    let before = client.time();
    std::fs::rename(data.path().join("data"), data.path().join("away")).unwrap();
    let status = until("it is noticed", || {
        let status = client.ok("StorageStatus", json!({}))["data"].clone();
        status["error"].is_string().then_some(status)
    });
    assert_eq!(
        (&status["diskFull"], status["since"].as_u64() >= Some(before)),
        (&json!(false), true)
    );
}

#[test]
fn the_server_tells_its_admins_what_doctor_finds_and_no_others() {
    let tokens = "boss,read:reader,admin(q):clerk";
    let server = Start::new().env("AUTH_TOKENS", tokens).start();
    let mut boss = crate::interface::access::client(&server, "boss");
    // Whether the data directory is there is known once it was looked at.
    let checks = until("all is known", || {
        let checks = boss.ok("Doctor", json!({}))["data"]["checks"].clone();
        checks.as_array().unwrap().iter().any(|check| check["check"] == "data").then_some(checks)
    });
    let checks = checks.as_array().unwrap();
    for what in ["kernel", "open files", "CPUs", "file system", "free space", "data", "counters"] {
        let found = checks.iter().find(|check| check["check"] == what);
        let found = found.unwrap_or_else(|| panic!("no {what} in {checks:?}"));
        assert!(
            ["ok", "warning", "wrong"].contains(&found["verdict"].as_str().unwrap()),
            "{found}"
        );
        assert!(!found["found"].as_str().unwrap().is_empty() && found["advice"].is_string());
    }
    let of = |what: &str| checks.iter().find(|check| check["check"] == what).unwrap().clone();
    assert_eq!((&of("data")["verdict"], &of("data")["advice"]), (&json!("ok"), &json!("")));
    let place = of("file system")["found"].to_string();
    assert!(place.contains(&*server.data.to_string_lossy()), "{place}");
    for token in ["reader", "clerk"] {
        let reply = crate::interface::access::client(&server, token).call("Doctor", json!({}));
        assert_eq!(reply["code"], "forbidden", "{token}: {reply}");
    }
    // In memory there is no disk to look at.
    let server = Start::new().memory().start();
    let checks = server.client().ok("Doctor", json!({}))["data"]["checks"].clone();
    assert!(checks.as_array().unwrap().iter().all(|check| check["check"] != "free space"));
    // Trouble while the server runs is a finding with advice.
    let server = Start::new().env("SHARDS", 1).env("SEGMENT_MB", 16).env("DATA_MAX_MB", 96).start();
    let mut client = server.client();
    let large = "f".repeat(300_000);
    until("the disk is full", || {
        let reply = client.call("PUSH", json!({"queue": "full", "data": large}));
        (reply["code"] == "disk_full").then_some(())
    });
    let checks = client.ok("Doctor", json!({}))["data"]["checks"].clone();
    let full = checks.as_array().unwrap().iter().find(|check| {
        check["check"] == "counters" && check["advice"].as_str().unwrap().contains("make room")
    });
    assert_eq!(full.unwrap_or_else(|| panic!("{checks}"))["verdict"], "warning");
}

#[test]
fn the_server_shows_its_admins_its_settings_and_no_secret() {
    let start = Start::new().env("AUTH_TOKENS", "hunter2,read:reader,admin(q):clerk");
    let server = start.env("EVENTS_KEPT", 7).start();
    let mut boss = crate::interface::access::client(&server, "hunter2");
    let reply = boss.ok("GetSettings", json!({}))["data"]["settings"].clone();
    let of = |name: &str| {
        let found = reply.as_array().unwrap().iter().find(|setting| setting["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {reply}")).clone()
    };
    let kept = of("EVENTS_KEPT");
    assert_eq!((&kept["value"], &kept["source"]), (&json!("7"), &json!("environment")));
    assert_eq!((&kept["default"], &kept["unit"]), (&json!("2000"), &json!("events")));
    let usual = of("FSYNC_INTERVAL_MS");
    assert_eq!((&usual["source"], &usual["unit"]), (&json!("default"), &json!("ms")));
    assert_eq!(of("AUTH_TOKENS")["value"], "(hidden)");
    for secret in ["hunter2", "reader", "clerk"] {
        assert!(!reply.to_string().contains(secret), "{secret} is shown");
    }
    for token in ["reader", "clerk"] {
        let reply = crate::interface::access::client(&server, token).call("GetSettings", json!({}));
        assert_eq!(reply["code"], "forbidden", "{token}: {reply}");
    }
}

/// A few bytes ask for an answer that is short, and is made of the metrics of every shard.
#[test]
fn figures_that_many_ask_for_at_once_are_gathered_a_few_at_a_time() {
    const RESERVE_BYTES: u64 = 2 << 20;
    for command in ["Metrics", "Doctor"] {
        let server = Start::new().env("SHARDS", 1).env("CLIENT_MEMORY_MB", 1024).start();
        let mut clients: Vec<Client> = (0..60).map(|_| server.client()).collect();
        // All of them come in one turn.
        server.freeze();
        for client in &mut clients {
            (0..10).for_each(|_| _ = client.send(command, json!({})).unwrap());
        }
        server.signal(Signal::CONT);
        for client in &mut clients {
            (0..10).for_each(|_| assert_eq!(client.recv().unwrap()["ok"], true));
        }
        let text = server.client().ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let mut lines = text.as_str().unwrap().lines();
        let peak = lines.find_map(|line| line.strip_prefix("corq_replies_begun_peak_bytes "));
        let peak: u64 = peak.unwrap().parse().unwrap();
        // Four at a time, and perhaps the list of metrics that says so.
        assert!((3 * RESERVE_BYTES..=5 * RESERVE_BYTES).contains(&peak), "{command}: {peak}");
    }
}

#[test]
fn memory_is_compacted_on_request() {
    for _ in 0..2 {
        client().ok("CompactMemory", json!({}));
    }
}

#[test]
fn the_dashboard_overview_has_the_server_on_one_page() {
    let server = Start::new().start();
    let mut client = server.client();
    for n in 0..6 {
        // Queues of both shards.
        client.push(&format!("q{n}"), n);
    }
    let done = client.pull("q0");
    client.ok("ACK", json!({"id": done["id"]}));
    client.pull("q1");
    client.push_with("q2", 1, json!({"delay": 3_600_000}));
    let workers = ["a", "b", "c"];
    for id in workers {
        let about =
            json!({"name": "w", "workerId": id, "queues": ["q0"], "concurrency": 2, "pid": 7});
        client.ok("RegisterWorker", about);
    }
    for name in ["x", "y"] {
        let cron = json!({"name": name, "queue": "q", "data": 1, "repeatEvery": 3_600_000});
        client.ok("Cron", cron);
    }
    let before = client.time();
    let overview = client.ok("DashboardOverview", json!({}))["data"].clone();
    let expected = BTreeSet::from([
        "stats",
        "throughput",
        "latency",
        "memory",
        "collections",
        "storage",
        "timestamp",
        "workers",
        "crons",
    ]);
    assert_eq!(names(&overview), expected);
    let stats = &overview["stats"];
    let counts = ["waiting", "active", "delayed", "completed", "dlq", "totalPushed", "totalPulled"];
    assert_eq!(counts.map(|name| stats[name].as_u64().unwrap()), [4, 1, 1, 1, 0, 7, 2]);
    assert_eq!((&stats["totalCompleted"], &stats["totalFailed"]), (&json!(1), &json!(0)));
    assert!(stats["uptime"].is_u64() && overview["timestamp"].as_u64() >= Some(before));
    for rate in ["pushPerSec", "pullPerSec", "completePerSec", "failPerSec"] {
        assert!(overview["throughput"][rate].is_number(), "{overview}");
    }
    for of in ["push", "pull", "ack"] {
        assert!(overview["latency"]["averages"][format!("{of}Ms")].is_number());
        let percentiles = names(&overview["latency"]["percentiles"][of]);
        assert_eq!(percentiles, BTreeSet::from(["p50", "p95", "p99"]));
    }
    assert!(overview["memory"]["rss"].as_f64() > Some(1.0));
    assert_eq!(overview["collections"]["completedJobs"], 1);
    assert_eq!(overview["storage"], json!({"diskFull": false, "error": null, "since": null}));
    let of_workers = &overview["workers"];
    assert_eq!((&of_workers["total"], &of_workers["active"]), (&json!(3), &json!(3)));
    let listed = of_workers["list"].as_array().unwrap();
    let ids: BTreeSet<&str> = listed.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, BTreeSet::from(workers));
    assert!(listed.iter().all(|one| one["pid"] == 7 && one["queues"] == json!(["q0"])));
    let crons = overview["crons"].as_array().unwrap();
    let crons: BTreeSet<&str> = crons.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(crons, BTreeSet::from(["x", "y"]));
}

#[test]
fn dashboard_queues_counts_each_queue() {
    let server = Start::new().start();
    let mut client = server.client();
    for n in 0..5 {
        let queue = format!("q{n}");
        client.push_with(&queue, 1, json!({"priority": 4}));
        client.push(&queue, 1);
        client.push_with(&queue, 1, json!({"delay": 3_600_000}));
    }
    client.pull("q0");
    client.ok("Pause", json!({"queue": "q1"}));
    let dead = client.pull("q2");
    client.ok("FAIL", json!({"id": dead["id"], "unrecoverable": true}));
    let data = client.ok("DashboardQueues", json!({}))["data"].clone();
    assert!(data["timestamp"].is_u64());
    let rows = data["queues"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap().clone();
    let of = |name: &str, prioritized: u64, active: u64, dlq: u64, paused: bool| {
        json!({
            "name": name, "waiting": 1, "prioritized": prioritized, "delayed": 1, "active": active,
            "dlq": dlq, "paused": paused
        })
    };
    assert_eq!(row("q0"), of("q0", 0, 1, 0, false));
    assert_eq!(row("q1"), of("q1", 1, 0, 0, true));
    assert_eq!(row("q2"), of("q2", 0, 0, 1, false));
}

#[test]
fn dashboard_queue_shows_one_queue() {
    let (mut client, queue) = (client(), queue("page"));
    let of_queue = json!({"queue": queue});
    let empty = client.ok("DashboardQueue", of_queue.clone())["data"].clone();
    assert_eq!((&empty["name"], &empty["dlqPreview"]), (&json!(queue), &json!([])));
    assert_eq!((empty["counts"]["waiting"].as_u64(), empty.get("jobs")), (Some(0), None));
    for n in 0..12 {
        let id = client.push_with(&queue, json!({"n": n}), json!({"maxAttempts": 1}));
        client.pull(&queue);
        client.ok("FAIL", json!({"id": id, "error": "no"}));
    }
    let ids: Vec<String> =
        (0..4).map(|n| client.push_with(&queue, n, json!({"priority": n / 2}))).collect();
    let active = client.pull(&queue);
    let delayed = client.push_with(&queue, 9, json!({"delay": 3_600_000}));
    let page = client.ok("DashboardQueue", of_queue.clone())["data"].clone();
    let counts = json!({
        "waiting": 2, "prioritized": 1, "delayed": 1, "active": 1, "completed": 0, "failed": 12,
        "waiting-children": 0, "paused": 0
    });
    assert_eq!((&page["counts"], &page["paused"]), (&counts, &json!(false)));
    assert_eq!(page["priorityCounts"], json!({"0": 2, "1": 1}));
    let letters = page["dlqPreview"].as_array().unwrap();
    assert_eq!(letters.len(), 10, "the oldest of them");
    assert_eq!((&letters[0]["data"], &letters[0]["attempts"]), (&json!({"n": 0}), &json!(1)));
    assert_eq!(names(&letters[0]), BTreeSet::from(["id", "data", "attempts", "createdAt"]));
    let listed = |client: &mut Client, limit: u64| {
        let with = json!({"queue": queue, "includeJobs": true, "jobsLimit": limit});
        let page = client.ok("DashboardQueue", with)["data"].clone();
        ["waiting", "active", "delayed", "paused"].map(|state| {
            let jobs = page["jobs"][state].as_array().unwrap().clone();
            let fields =
                BTreeSet::from(["id", "priority", "createdAt", "runAt", "attempts", "progress"]);
            assert!(jobs.iter().all(|job| names(job) == fields), "{jobs:?}");
            jobs.into_iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        })
    };
    let active = active["id"].as_str().unwrap().to_owned();
    let waiting: Vec<String> = ids.iter().filter(|id| **id != active).cloned().collect();
    let (held, later, none) = (vec![active], vec![delayed], Vec::new());
    assert_eq!(
        listed(&mut client, 10),
        [waiting.clone(), held.clone(), later.clone(), none.clone()]
    );
    assert_eq!(listed(&mut client, 2)[0], waiting[..2]);
    client.ok("Pause", of_queue.clone());
    assert_eq!(listed(&mut client, 10), [none, held, later, waiting]);
    let page = client.ok("DashboardQueue", of_queue)["data"].clone();
    assert_eq!((&page["counts"]["waiting"], &page["counts"]["paused"]), (&json!(0), &json!(3)));
    let refused = client.refused("DashboardQueue", json!({"queue": queue, "jobsLimit": -1}));
    assert!(refused.starts_with("jobsLimit must be"), "{refused}");
}
