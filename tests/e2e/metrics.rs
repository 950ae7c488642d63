//! Stats, metrics and the text for Prometheus. The fear: numbers that are not those of the server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::support::{Client, Server, Start, until};

/// Work on both shards: eight jobs pushed, five pulled, three completed, one failed for good.
fn work(client: &mut Client) {
    for n in 0..8 {
        client.push_with(&format!("q{n}"), n, json!({"maxAttempts": 1}));
    }
    let ids: Vec<Value> = (0..5).map(|n| client.pull(&format!("q{n}"))["id"].clone()).collect();
    for id in &ids[..3] {
        client.ok("ACK", json!({"id": id}));
    }
    client.ok("FAIL", json!({"id": ids[3]}));
    client.push_with("later", 1, json!({"delay": 60_000}));
    client.ok("Cron", json!({"name": "c", "queue": "c", "data": 1, "schedule": "@yearly"}));
    client.ok("RegisterWorker", json!({"name": "w", "queues": ["q0"]}));
}

/// The samples of a text: name with labels to value.
pub(crate) fn samples(client: &mut Client) -> BTreeMap<String, f64> {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let text = text.as_str().unwrap();
    let mut described = BTreeSet::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
            assert!(described.insert(family.to_owned()), "{family} is described twice");
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let family = name.split('{').next().unwrap();
        let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end));
        let known = described.contains(family) || bare.is_some_and(|it| described.contains(it));
        assert!(known, "{line} is not described before it");
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} twice");
    }
    samples
}

#[test]
fn metrics_have_all_fields_and_count_over_all_shards() {
    let server = Server::start_default();
    let mut client = server.client();
    work(&mut client);
    let metrics = client.ok("Metrics", json!({}))["metrics"].clone();
    let fields: BTreeSet<&str> = metrics.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "activeConnections",
        "avgLatencyMs",
        "avgProcessingMs",
        "durations",
        "longestTurnCommand",
        "longestTurnMs",
        "memoryUsageMb",
        "sqliteSizeMb",
        "totalCompleted",
        "totalFailed",
        "totalPulled",
        "totalPushed",
    ];
    assert_eq!(fields, BTreeSet::from(expected));
    let totals = ["totalPushed", "totalPulled", "totalCompleted", "totalFailed"];
    assert_eq!(totals.map(|name| &metrics[name]), [9, 5, 3, 1], "{metrics}");
    assert!(metrics["memoryUsageMb"].as_f64().unwrap() > 1.0, "{metrics}");
    assert!(metrics["sqliteSizeMb"].as_f64().unwrap() > 0.0, "{metrics}");
    let connections = |client: &mut Client| {
        client.ok("Metrics", json!({}))["metrics"]["activeConnections"].as_u64().unwrap()
    };
    let others: Vec<Client> = (0..5).map(|_| server.client()).collect();
    until("five more", || (connections(&mut client) == 6).then_some(()));
    drop(others);
    until("one", || (connections(&mut client) == 1).then_some(()));
}

#[test]
fn the_text_for_prometheus_has_the_families_of_the_interface() {
    let server = Server::start_default();
    let mut client = server.client();
    work(&mut client);
    // Who waited for the start has gone when its connection is gone.
    let samples = until("one connection", || {
        Some(samples(&mut client)).filter(|samples| samples["corq_connections"] < 1.5)
    });
    for (name, value) in [
        ("corq_jobs_pushed_total", 9.0),
        ("corq_jobs_completed_total", 3.0),
        ("corq_jobs_failed_total", 1.0),
        ("corq_queue_jobs_waiting{queue=\"q7\"}", 1.0),
        ("corq_queue_jobs_active{queue=\"q4\"}", 1.0),
        ("corq_queue_jobs_delayed{queue=\"later\"}", 1.0),
        ("corq_queue_jobs_dlq{queue=\"q3\"}", 1.0),
        ("corq_queue_jobs_dlq{queue=\"q4\"}", 0.0),
        ("corq_push_duration_ms_bucket{le=\"+Inf\"}", 9.0),
        ("corq_push_duration_ms_count", 9.0),
        ("corq_pull_duration_ms_count", 5.0),
        ("corq_ack_duration_ms_count", 3.0),
        ("corq_job_waiting_ms_count", 5.0),
        ("corq_job_processing_ms_count", 3.0),
        ("corq_shards", 2.0),
        ("corq_crons", 1.0),
        ("corq_workers", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    assert!(
        samples["corq_received_bytes_total"] > 100.0 && samples["corq_sent_bytes_total"] > 100.0
    );
    assert!(samples["corq_log_records_total"] > 9.0 && samples["corq_log_disk_bytes"] > 0.0);
    assert!(samples.contains_key("corq_push_duration_ms_sum"));
}

/// The three quantiles of one kind of duration, in milliseconds.
fn quantiles(metrics: &Value, kind: &str) -> [f64; 3] {
    let of = &metrics["durations"][kind];
    ["p50Ms", "p99Ms", "p999Ms"].map(|name| of[name].as_f64().unwrap_or(-1.0))
}

#[test]
fn quantiles_are_those_of_the_jobs_of_all_shards() {
    let server = Server::start_default();
    let mut client = server.client();
    let metrics = client.ok("Metrics", json!({}))["metrics"].clone();
    assert_eq!(metrics["durations"]["push"], json!({}), "no sample, no quantile");
    let now_ms =
        |client: &mut Client| client.ok("Ping", json!({}))["data"]["time"].as_u64().unwrap();
    // Queues of both shards, and a span between each job and the next: no two wait equally long.
    for n in 0..100 {
        client.push(&format!("q{}", n % 8), n);
        let pushed_ms = now_ms(&mut client);
        until("a span", || (now_ms(&mut client) > pushed_ms).then_some(()));
    }
    let mut waited_ms: Vec<f64> = (0..100)
        .map(|n| {
            let job = client.pull(&format!("q{}", n % 8));
            job["startedAt"].as_f64().unwrap() - job["runAt"].as_f64().unwrap()
        })
        .collect();
    waited_ms.sort_by(f64::total_cmp);
    let metrics = client.ok("Metrics", json!({}))["metrics"].clone();
    let found = quantiles(&metrics, "jobWaiting");
    for (found, exact) in found.into_iter().zip([waited_ms[49], waited_ms[98], waited_ms[99]]) {
        // Two digits are kept.
        let is_near = found >= exact * 0.99 && found <= exact * 1.01;
        assert!(is_near, "{found} instead of {exact}: {metrics} {waited_ms:?}");
    }
    let push = quantiles(&metrics, "push");
    assert!(push[0] >= 0.0 && push[0] <= push[1] && push[1] <= push[2], "{metrics}");
    assert_eq!(metrics["durations"]["ack"], json!({}), "nothing was acknowledged");
    let samples = samples(&mut client);
    let of = |quantile: &str| {
        samples[&format!("corq_job_waiting_quantiles_ms{{quantile=\"{quantile}\"}}")]
    };
    let shown = [of("0.5"), of("0.99"), of("0.999")];
    assert_eq!(shown.map(f64::to_bits), found.map(f64::to_bits), "{shown:?} {metrics}");
    assert_eq!(samples["corq_job_waiting_quantiles_ms_count"] as u64, 100);
}

#[test]
fn waiting_and_processing_times_are_those_of_the_jobs() {
    // With one shard, one clock is that of the pings and of the jobs.
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let pass = |client: &mut Client, ms: u64| {
        let end = client.time() + ms;
        until("some time", || (client.time() >= end).then_some(()));
    };
    let id = client.push("q", 1);
    pass(&mut client, 60);
    client.pull("q");
    pass(&mut client, 30);
    client.ok("ACK", json!({"id": id}));
    let metrics = client.ok("Metrics", json!({}))["metrics"].clone();
    assert!(metrics["avgLatencyMs"].as_f64().unwrap() >= 60.0, "{metrics}");
    assert!(metrics["avgProcessingMs"].as_f64().unwrap() >= 30.0, "{metrics}");
    let samples = samples(&mut client);
    let count = |name: &str| samples[name] as u64;
    assert_eq!(count("corq_job_waiting_ms_bucket{le=\"50\"}"), 0);
    assert_eq!(count("corq_job_processing_ms_bucket{le=\"25\"}"), 0);
}

#[test]
fn answers_that_wait_for_the_disk_show_how_long() {
    let server = Start::new().env("DURABILITY", "synced").start();
    let mut client = server.client();
    for n in 0..50 {
        client.push("q", n);
    }
    let samples = samples(&mut client);
    assert_eq!(samples["corq_push_duration_ms_count"] as u64, 50);
    assert!(samples["corq_push_duration_ms_sum"] > 0.0, "a disk takes its time");
}
