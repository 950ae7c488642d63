//! The exposition: what it holds, in which units, and how much of it is asked for.
#![allow(clippy::float_cmp)] // Counts are whole.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{Http, Server, Start, until};
use crate::{queue, shared};

/// The samples of a text: name with labels to value.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.rsplit_once(' ').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

fn scraped(web: &mut Http, query: &str) -> BTreeMap<String, f64> {
    let answer = web.get(&format!("/prometheus{query}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    samples(answer.text())
}

fn of(family: &str, queue: &str) -> String {
    format!("corq_{family}{{queue=\"{queue}\"}}")
}

/// The queues of a scrape, in the order of their names.
fn listed(samples: &BTreeMap<String, f64>) -> Vec<String> {
    let names =
        samples.keys().filter_map(|name| name.strip_prefix("corq_queue_jobs_waiting{queue=\""));
    names.map(|name| name.trim_end_matches("\"}").to_owned()).collect()
}

#[test]
fn a_queue_tells_that_it_is_paused_and_how_long_its_jobs_have_waited() {
    let (mut web, mut client, queue) = (shared().web(), crate::client(), queue("told"));
    client.push(&queue, 1);
    client.push(&queue, 2);
    let pulled = client.pull(&queue);
    let before = scraped(&mut web, "");
    assert_eq!(before[&of("queue_paused", &queue)], 0.0);
    client.ok("Pause", json!({ "queue": queue }));
    let text = scraped(&mut web, "");
    assert_eq!(text[&of("queue_paused", &queue)], 1.0);
    assert_eq!(text[&of("queue_wait_seconds_count", &queue)], 1.0);
    let bucket = |family: &str, edge: &str| {
        let bucket = format!("corq_queue_{family}_bucket{{queue=\"{queue}\",le=\"{edge}\"}}");
        text.get(&bucket).copied()
    };
    let [most, all] = ["86400", "+Inf"].map(|edge| bucket("wait_seconds", edge));
    assert_eq!((most, all, bucket("run_seconds", "+Inf")), (Some(1.0), Some(1.0), None));
    client.ok("ACK", json!({ "id": pulled["id"] }));
    let text = scraped(&mut web, "");
    assert_eq!(text[&of("queue_run_seconds_count", &queue)], 1.0);
}

#[test]
fn a_queue_tells_for_how_long_its_oldest_job_has_waited() {
    // With one shard there is one clock.
    let server = Start::new().env("SHARDS", 1).start();
    let (mut web, mut client) = (server.web(), server.client());
    client.push("plain", 1);
    client.push_with("grouped", 1, json!({"groupId": "g"}));
    client.push_with("later", 1, json!({"delay": 3_600_000}));
    let list = json!({"fields": ["oldestWaiting"]});
    let queues = client.ok("ListQueues", list)["queues"].clone();
    let due_ms = |queue: &str| {
        let row = queues.as_array().unwrap().iter().find(|row| row["name"] == queue).unwrap();
        row["oldestWaiting"].as_u64().unwrap()
    };
    let waited_s = |web: &mut Http, query: &str, queue: &str| {
        scraped(web, query)[&of("queue_oldest_waiting_seconds", queue)]
    };
    until("they have waited", || (client.time() > due_ms("grouped")).then_some(()));
    for queue in ["plain", "grouped"] {
        for query in ["", "?queues=top:3", &format!("?queues=prefix:{queue}")] {
            let least_ms = client.time() - due_ms(queue);
            let waited_ms = (waited_s(&mut web, query, queue) * 1000.0).round() as u64;
            let most_ms = client.time() - due_ms(queue);
            assert!(waited_ms >= least_ms && waited_ms <= most_ms, "{queue}{query}: {waited_ms}");
            assert!(waited_ms > 0);
        }
    }
    assert_eq!(waited_s(&mut web, "", "later"), 0.0, "its time has not come");
    client.pull("plain");
    assert_eq!(waited_s(&mut web, "", "plain"), 0.0, "none waits any more");
}

#[test]
fn logins_and_tokens_that_are_refused_are_counted() {
    let server = Start::new().env("AUTH_TOKENS", "right").start();
    let mut web = server.web();
    server.client().refused("Auth", json!({"token": "wrong"}));
    server.web().with_token("wrong").get("/queues").refused(401);
    server.web().post("/ui/login", json!({"token": "wrong"})).refused(401);
    until("all three are counted", || {
        (scraped(&mut web, "?queues=none")["corq_auth_failures_total"] > 2.5).then_some(())
    });
}

/// Guards the families that alarms and pages need, each by the name under which it is documented: of a queue, of a
/// shard, of the server.
#[test]
fn the_exposition_has_all_that_alarms_need() {
    let server = Server::start_default();
    let (mut web, mut client) = (server.web(), server.client());
    client.push("q", 1);
    client.pull("q");
    let all = scraped(&mut web, "");
    for family in ["queue_oldest_waiting_seconds", "queue_paused", "queue_wait_seconds_count"] {
        assert!(all.contains_key(&of(family, "q")), "{family}");
    }
    let buckets =
        all.keys().filter(|name| name.starts_with("corq_queue_wait_seconds_bucket{queue=\"q\""));
    assert!(buckets.count() > 3);
    for family in [
        "jobs_stalled_total",
        "jobs_retried_total",
        "leases_expired_total",
        "crons_missed_total",
        "auth_failures_total",
    ] {
        assert!(all.contains_key(&format!("corq_{family}")), "{family}");
    }
    assert_eq!(all.keys().filter(|name| name.starts_with("corq_build_info{")).count(), 1);
    for family in ["shard_jobs", "shard_connections", "shard_log_disk_bytes"] {
        assert!(all.contains_key(&format!("corq_{family}{{shard=\"0\"}}")), "{family}");
    }
    // Whatever is in another unit is there in seconds as well.
    let families = all.keys().map(|name| name.split('{').next().unwrap());
    for family in families.filter(|name| name.contains("_ms")) {
        let in_seconds = family.replace("_ms", "_seconds");
        assert!(all.keys().any(|name| name.starts_with(&in_seconds)), "{family}");
    }
}

#[test]
fn a_scrape_lists_the_queues_that_it_asks_for() {
    let server = Server::start_default();
    let (mut web, mut client) = (server.web(), server.client());
    for (queue, jobs) in [("mail-a", 3), ("mail-b", 1), ("sms", 5), ("push", 2)] {
        (0..jobs).for_each(|n| _ = client.push(queue, n));
    }
    let all = ["mail-a", "mail-b", "push", "sms"];
    for (query, expected) in [
        ("", &all[..]),
        ("?queues=all", &all),
        ("?queues=none", &[]),
        ("?queues=prefix:mail-", &["mail-a", "mail-b"]),
        ("?queues=prefix%3Anothing", &[]),
        ("?queues=top:2", &["mail-a", "sms"]),
        ("?queues=top:1000", &all),
    ] {
        let samples = scraped(&mut web, query);
        assert_eq!(listed(&samples), expected, "{query}");
        assert_eq!(samples["corq_jobs_pushed_total"], 11.0, "the sums are of all queues");
    }
    let refused = web.get("/prometheus?queues=top:0").refused(400);
    assert_eq!(refused, "queues must be all, none, top:N (1 to 1000) or prefix:name");
    let refused = web.get("/prometheus?queue=none").refused(400);
    assert_eq!(refused, "Unknown query parameter: queue; did you mean queues?");
    let text = client.ok("Prometheus", json!({"queues": "none"}))["data"]["metrics"].clone();
    assert!(listed(&samples(text.as_str().unwrap())).is_empty());
}

#[test]
fn times_are_in_seconds_beside_those_of_the_first_names() {
    let (mut web, mut client, queue) = (shared().web(), crate::client(), queue("units"));
    client.push(&queue, 1);
    let text = scraped(&mut web, "?queues=none");
    for family in ["push_duration", "pull_duration", "ack_duration", "job_waiting", "turn_duration"]
    {
        let count = |unit: &str| text[&format!("corq_{family}_{unit}_count")];
        let sum = |unit: &str| text[&format!("corq_{family}_{unit}_sum")];
        assert_eq!(count("seconds"), count("ms"), "{family}");
        assert!((sum("seconds") * 1000.0 - sum("ms")).abs() < 0.01, "{family}");
    }
    let bucket = |name: &str| text[&format!("corq_push_duration_{name}")];
    assert_eq!(bucket("seconds_bucket{le=\"0.0025\"}"), bucket("ms_bucket{le=\"2.5\"}"));
}

#[test]
fn the_text_says_which_build_it_is_and_tells_shards_apart() {
    let server = Server::start_default();
    let (mut web, mut client) = (server.web(), server.client());
    for n in 0..20 {
        client.push(&format!("q{n}"), n);
    }
    let text = scraped(&mut web, "?queues=none");
    let build = text.iter().find(|(name, _)| name.starts_with("corq_build_info{")).unwrap();
    assert!(build.0.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))), "{build:?}");
    assert_eq!(*build.1, 1.0);
    let jobs = |shard: u32| text[&format!("corq_shard_jobs{{shard=\"{shard}\"}}")];
    assert_eq!(jobs(0) + jobs(1), text["corq_jobs"]);
    assert_eq!(text["corq_jobs"], 20.0);
}

#[test]
fn retries_stalls_and_leases_that_end_by_time_are_counted() {
    let server = Server::start_default();
    let (mut web, mut client) = (server.web(), server.client());
    client.push_with("retried", 1, json!({"backoff": 0}));
    let job = client.pull("retried");
    client.ok("FAIL", json!({"id": job["id"]}));
    client.push("stalled", 1);
    client.ok("PULL", json!({"queue": "stalled", "owner": "w", "lockTtl": 1, "detach": true}));
    client.push_with("slow", 1, json!({"timeout": 1, "maxAttempts": 1}));
    client.ok("PULL", json!({"queue": "slow", "owner": "w", "detach": true}));
    let text = until("both leases have ended", || {
        Some(scraped(&mut web, "?queues=none"))
            .filter(|text| text["corq_leases_expired_total"] > 1.5)
    });
    assert_eq!(text["corq_jobs_retried_total"], 1.0);
    assert_eq!(text["corq_jobs_stalled_total"], 1.0);
    assert_eq!(text["corq_leases_expired_total"], 2.0);
    assert_eq!(text["corq_jobs_failed_total"], 2.0);
}

#[test]
fn a_run_of_a_schedule_that_is_passed_over_is_counted() {
    let server = Server::start_default();
    let (mut web, mut client) = (server.web(), server.client());
    // The first job of the schedule is never taken, so all further runs overlap with it.
    let cron = json!({
        "name": "overlaps", "queue": "q", "data": 1, "repeatEvery": 10, "preventOverlap": true
    });
    client.ok("Cron", cron);
    until("a run is passed over", || {
        (scraped(&mut web, "?queues=none")["corq_crons_missed_total"] > 0.5).then_some(())
    });
}

#[test]
fn a_scrape_is_answered_however_many_requests_there_were() {
    let server = Start::new()
        .env("RATE_LIMIT_MAX_REQUESTS", "2")
        .env("RATE_LIMIT_WINDOW_MS", "3600000")
        .start();
    let mut web = server.web();
    let statuses: Vec<u16> = (0..4).map(|_| web.get("/stats").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    for _ in 0..10 {
        assert!(scraped(&mut web, "").contains_key("corq_rate_limited_total"));
    }
}
