//! Figures of the server over HTTP, and counts of its answers. The fear: figures that are made up, and a supervisor
//! that gets a wrong answer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::stream::{Sse, WebSocket};
use crate::support::{Client, Http, Server, Start, until};
use crate::{client, queue, shared};

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap_or_else(|| panic!("{object}")).keys().map(String::as_str).collect()
}

/// Jobs in every state, on both shards; the active one is held by the connection.
fn work(server: &Server) -> Client {
    let mut tcp = server.client();
    for n in 0..8 {
        tcp.push_with(&format!("q{n}"), n, json!({"maxAttempts": 1}));
    }
    let ids: Vec<Value> = (0..5).map(|n| tcp.pull(&format!("q{n}"))["id"].clone()).collect();
    for id in &ids[..3] {
        tcp.ok("ACK", json!({"id": id}));
    }
    tcp.ok("FAIL", json!({"id": ids[3]}));
    tcp.push_with("later", 1, json!({"delay": 60_000}));
    tcp
}

#[test]
fn get_health_tells_the_figures_of_all_shards() {
    let server = Server::start_default();
    let _worker = work(&server);
    let clients: Vec<_> = (0..7).map(|_| server.client()).collect();
    let mut web = server.web();
    let health = until("the connections", || {
        let health = web.get("/health").expect(200);
        (health["connections"]["tcp"] == 8).then_some(health)
    });
    let expected = ["ok", "status", "uptime", "version", "queues", "connections", "timeZoneRules"];
    assert_eq!(keys(&health), expected.into_iter().chain(["memory"]).collect());
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        health["queues"],
        json!({"waiting": 3, "active": 1, "delayed": 1, "completed": 3, "dlq": 1})
    );
    assert_eq!(health["connections"], json!({"tcp": 8, "ws": 0, "sse": 0}));
    assert_eq!(keys(&health["memory"]), BTreeSet::from(["heapUsed", "heapTotal", "rss"]));
    let rss_kb = resident_kb(&server);
    let shown = health["memory"]["rss"].as_f64().unwrap();
    assert!((shown - rss_kb / 1024.0).abs() < 8.0, "{shown} MB, the kernel says {rss_kb} kB");
    let uptime_ms = server.client().ok("Stats", json!({}))["stats"]["uptime"].as_u64().unwrap();
    assert!(health["uptime"].as_u64().unwrap() <= uptime_ms / 1000, "in seconds: {health}");
    drop(clients);
    until("they are gone", || {
        (web.get("/health").expect(200)["connections"]["tcp"] == 1).then_some(())
    });
}

#[test]
fn health_and_heapstats_count_streams_over_all_shards() {
    let server = Server::start_default();
    let listening: Vec<Sse> = (0..5).map(|_| Sse::open(server.http, "/events")).collect();
    let sockets: Vec<WebSocket> =
        (0..3).map(|n| WebSocket::open(server.http, &format!("/ws/queues/q{n}"))).collect();
    let mut web = server.web();
    let connections = web.get("/health").expect(200)["connections"].clone();
    assert_eq!(connections, json!({"tcp": 0, "ws": 3, "sse": 5}));
    let heap = alone(&mut web);
    assert_eq!((count(&heap, "WebSocketConnection"), count(&heap, "EventStream")), (3, 5));
    drop((listening, sockets));
    until("they are gone", || {
        let connections = web.get("/health").expect(200)["connections"].clone();
        (connections == json!({"tcp": 0, "ws": 0, "sse": 0})).then_some(())
    });
}

/// The answer of `/heapstats` once the connections that waited for the start have gone, and one is left.
fn alone(web: &mut Http) -> Value {
    until("one connection", || {
        Some(web.get("/heapstats").expect(200)).filter(|heap| count(heap, "HttpConnection") == 1)
    })
}

fn resident_kb(server: &Server) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn get_healthz_and_live_say_ok_as_text() {
    let mut web = shared().web();
    for path in ["/healthz", "/live"] {
        let answer = web.get(path);
        assert_eq!((answer.status, answer.text()), (200, "OK"));
        assert_eq!(answer.headers["content-type"], "text/plain");
    }
}

#[test]
fn get_ready_says_so() {
    let answer = shared().web().get("/ready");
    assert_eq!(answer.expect(200), json!({"ok": true, "ready": true}));
}

/// Until the server is ready; a refusal must say this.
fn await_ready(web: &mut Http, (why, code): (&str, &str)) {
    until(why, || {
        let answer = web.get("/ready");
        if answer.status == 503 {
            assert_eq!(
                answer.json(),
                json!({"ok": false, "ready": false, "error": why, "code": code})
            );
            assert_eq!(web.get("/health").expect(200)["status"], "degraded");
        }
        (answer.status == 200).then_some(())
    });
}

#[test]
fn a_server_whose_disk_is_far_behind_is_not_ready_and_says_why() {
    let server =
        Start::new().env("SHARDS", 1).env("DURABILITY", "synced").env("LOG_WAITING_MB", 1).start();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut tcp = server.client();
                let options = json!({"queue": "q", "data": "x".repeat(3 << 20)});
                while !over.load(Ordering::Relaxed) {
                    let pushed = tcp.ok("PUSH", options.clone());
                    tcp.ok("Cancel", json!({"id": pushed["id"]}));
                }
            });
        }
        let mut web = server.web();
        until("the disk is behind", || {
            let answer = web.get("/ready");
            if answer.status == 503 {
                let text = "The disk is too far behind";
                let refused = json!({"ok": false, "ready": false, "error": text, "code": "busy"});
                assert_eq!(answer.json(), refused);
                over.store(true, Ordering::Relaxed);
            }
            (answer.status == 503).then_some(())
        });
        over.store(true, Ordering::Relaxed);
    });
    await_ready(&mut server.web(), ("The disk is too far behind", "busy"));
}

#[test]
fn a_server_that_stops_is_not_ready_and_says_why() {
    let mut server = Start::new().start();
    let mut web = server.web();
    assert_eq!(web.get("/ready").status, 200);
    // A client with much to read holds up the end.
    let mut tcp = server.client();
    let id = tcp.push("q", "x".repeat(9 << 20));
    tcp.take_little();
    (0..4).for_each(|_| drop(tcp.send("GetJob", json!({"id": id})).unwrap()));
    until("its replies are on their way", || {
        let text = web.get("/prometheus").text().to_owned();
        let sent = text.lines().find_map(|line| line.strip_prefix("corq_sent_bytes_total "));
        (sent.unwrap().parse::<u64>().unwrap() > 1 << 20).then_some(())
    });
    server.signal(rustix::process::Signal::TERM);
    // The shards stop one after the other, and each tells of all.
    until("the stop has begun", || {
        let answer = web.get("/ready");
        if answer.status == 503 {
            let (text, code) = ("The server is stopping", "shutting_down");
            let refused = json!({"ok": false, "ready": false, "error": text, "code": code});
            assert_eq!(answer.json(), refused);
        }
        (answer.status == 503 && answer.headers["connection"] == "close").then_some(())
    });
    drop(tcp);
    assert!(server.wait_for_end().success());
}

#[test]
fn get_stats_has_the_figures_that_tcp_has_and_more() {
    let server = Server::start_default();
    let _worker = work(&server);
    let mut web = server.web();
    let answer = web.get("/stats").expect(200);
    assert_eq!(keys(&answer), BTreeSet::from(["ok", "stats", "memory", "collections"]));
    let mut over_http = answer["stats"].clone();
    let mut over_tcp = server.client().ok("Stats", json!({}))["stats"].clone();
    for stats in [&mut over_http, &mut over_tcp] {
        let stats = stats.as_object_mut().unwrap();
        assert!(stats.remove("uptime").unwrap().as_u64().unwrap() < 3_600_000);
        // These are taken over seconds, and the two questions may fall into two.
        assert!(stats.remove("pushPerSec").is_some() && stats.remove("pullPerSec").is_some());
    }
    assert_eq!(over_http, over_tcp);
    for (name, value) in [
        ("queued", 3),
        ("processing", 1),
        ("delayed", 1),
        ("dlq", 1),
        ("completed", 3),
        ("totalPushed", 9),
        ("totalPulled", 5),
        ("totalCompleted", 3),
        ("totalFailed", 1),
    ] {
        assert_eq!(over_http[name], value, "{name}");
    }
    let memory = ["heapUsed", "heapTotal", "rss", "external", "arrayBuffers"];
    assert_eq!(keys(&answer["memory"]), BTreeSet::from(memory));
    let collections = &answer["collections"];
    assert_eq!(collections["jobIndex"], 9);
    assert_eq!(collections["completedJobs"], 3);
    assert_eq!(collections["processingTotal"], 1);
    assert_eq!(collections["queuedTotal"], 3);
    assert!(collections["temporalIndexTotal"].as_u64().unwrap() >= 2, "a delay and a lease");
}

#[test]
fn get_metrics_is_json_and_agrees_with_tcp() {
    let server = Server::start_default();
    let _worker = work(&server);
    let answer = server.web().get("/metrics").expect(200);
    assert_eq!(keys(&answer), BTreeSet::from(["ok", "metrics"]));
    let totals = ["totalPushed", "totalPulled", "totalCompleted", "totalFailed"];
    let over_tcp = server.client().ok("Metrics", json!({}))["metrics"].clone();
    for name in totals {
        assert_eq!(answer["metrics"][name], over_tcp[name], "{name}");
    }
    assert_eq!(totals.map(|name| &answer["metrics"][name]), [9, 5, 3, 1]);
}

#[test]
fn get_prometheus_is_the_text_that_tcp_gives() {
    let server = Server::start_default();
    let _worker = work(&server);
    let mut web = server.web();
    alone(&mut web);
    let answer = web.get("/prometheus");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let families = |text: &str| {
        let types = text.lines().filter(|line| line.starts_with("# TYPE"));
        types.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let over_tcp = server.client().ok("Prometheus", json!({}))["data"]["metrics"].clone();
    assert_eq!(families(answer.text()), families(over_tcp.as_str().unwrap()));
    for line in [
        "corq_jobs_pushed_total 9",
        "corq_jobs_completed_total 3",
        "corq_queue_jobs_waiting{queue=\"q7\"} 1",
        "corq_queue_jobs_active{queue=\"q4\"} 1",
        "corq_queue_jobs_delayed{queue=\"later\"} 1",
        "corq_queue_jobs_dlq{queue=\"q3\"} 1",
        "corq_push_duration_ms_bucket{le=\"+Inf\"} 9",
        "corq_http_connections 1",
    ] {
        assert!(answer.text().lines().any(|it| it == line), "no {line} in\n{}", answer.text());
    }
    // The connections that waited for the start have asked, too.
    assert!(!answer.text().contains("corq_http_requests_total 0\n"), "{}", answer.text());
}

#[test]
fn post_gc_gives_memory_back_and_shows_it() {
    let server = Start::new().env("SHARDS", 1).memory().start();
    let mut tcp = server.client();
    // Many small things that go again leave holes, which an allocator keeps.
    for _ in 0..200 {
        let jobs: Vec<Value> = (0..500)
            .map(|n| json!({"data": n, "uniqueKey": format!("{n}-{}", "x".repeat(200))}))
            .collect();
        tcp.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
        tcp.ok("Drain", json!({"queue": "q"}));
    }
    let mut web = server.web();
    let answer = web.post("/gc", json!({})).expect(200);
    assert_eq!(keys(&answer), BTreeSet::from(["ok", "before", "after"]));
    for when in ["before", "after"] {
        assert_eq!(keys(&answer[when]), BTreeSet::from(["heapUsed", "heapTotal", "rss"]));
        assert!(answer[when]["rss"].as_f64().unwrap() > 1.0);
    }
    let rss = |when: &str| answer[when]["rss"].as_f64().unwrap();
    assert!(rss("after") <= rss("before"), "{answer}");
    assert_eq!(web.get("/gc").refused(404), "Not found");
}

/// Guards against memory that a peak of jobs leaves behind for good.
#[test]
fn what_jobs_took_is_given_back_when_they_are_gone() {
    const BATCHES: usize = 100;
    let server = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4).start();
    let (mut tcp, mut web) = (server.client(), server.web());
    let mut used = || web.post("/gc", json!({})).expect(200)["after"]["heapUsed"].as_f64().unwrap();
    let before = used();
    for batch in 0..BATCHES {
        let jobs: Vec<Value> = (0..1000)
            .map(|n| json!({"data": n, "uniqueKey": format!("{batch}-{n}"), "delay": 3_600_000}))
            .collect();
        tcp.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    }
    let peak = used() - before;
    assert!(peak > 20.0, "{peak} MB is no peak");
    tcp.ok("Obliterate", json!({"queue": "q"}));
    until("all but an eighth to be given back", || (used() - before < peak / 8.0).then_some(()));
}

/// Guards against a server that looks large for days after one busy minute.
#[test]
fn what_a_peak_has_left_is_no_longer_resident_without_being_asked_for() {
    let server = Start::new().env("SHARDS", 1).memory().start();
    let mut tcp = server.client();
    for batch in 0..250 {
        let key = |n| format!("{batch}-{n}-{}", "x".repeat(240));
        let jobs: Vec<Value> = (0..1000)
            .map(|n| json!({"data": n, "uniqueKey": key(n), "delay": 3_600_000}))
            .collect();
        tcp.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    }
    let resident = || resident_kb(&server) / 1024.0;
    let peak = resident();
    assert!(peak > 150.0, "{peak} MB is no peak");
    tcp.ok("Obliterate", json!({"queue": "q"}));
    until("most of it to be given back", || {
        // Clients go on.
        tcp.ok("Ping", json!({}));
        (resident() < peak / 2.0).then_some(())
    });
}

#[test]
fn get_heapstats_counts_what_there_is() {
    let server = Server::start_default();
    let _worker = work(&server);
    let answer = alone(&mut server.web());
    let expected = ["ok", "memory", "heap", "collections", "topObjectTypes"];
    assert_eq!(keys(&answer), BTreeSet::from(expected));
    assert_eq!(keys(&answer["memory"]), BTreeSet::from(["heapUsed", "heapTotal", "rss"]));
    let heap = ["objectCount", "protectedCount", "globalCount"];
    assert_eq!(keys(&answer["heap"]), BTreeSet::from(heap));
    assert_eq!(answer["collections"]["jobIndex"], 9);
    assert_eq!((count(&answer, "Job"), count(&answer, "Lease")), (9, 1));
    assert_eq!(count(&answer, "Queue"), 9);
    assert_eq!(count(&answer, "TcpConnection"), 1);
    let types = answer["topObjectTypes"].as_array().unwrap();
    assert!(types.len() <= 20);
    let counts: Vec<u64> = types.iter().map(|one| one["count"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted_by(|a, b| a >= b), "{answer}");
}

fn count(heap: &Value, kind: &str) -> u64 {
    let types = heap["topObjectTypes"].as_array().unwrap();
    let one = types.iter().find(|one| one["type"] == kind);
    one.unwrap_or_else(|| panic!("no {kind} in {heap}"))["count"].as_u64().unwrap()
}

#[test]
fn unknown_paths_and_methods_are_404() {
    let mut web = shared().web();
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/nope"),
        ("GET", "/health/"),
        ("GET", "/Health"),
        ("POST", "/health"),
        ("DELETE", "/queues/q/jobs"),
        ("PUT", "/jobs/x"),
        ("PATCH", "/jobs/x"),
        ("GET", "/jobs/x/ack"),
        ("POST", "/jobs/x/ack/y"),
        ("POST", "/jobs/x"),
        ("POST", "/queues/q"),
        ("GET", "//health"),
        ("CONNECT", "h:80"),
        ("TRACE", "/health"),
        ("get", "/health"),
    ] {
        assert_eq!(web.call(method, path, &[], b"").refused(404), "Not found", "{method} {path}");
    }
}

#[test]
fn options_on_any_path_is_a_preflight() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let mut web = server.web();
    for path in ["/queues/q/jobs", "/nope", "/", "*"] {
        let answer = web.call("OPTIONS", path, &[("Origin", "https://a.example")], b"");
        assert_eq!((answer.status, answer.body.len()), (204, 0), "{path}");
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-methods", "GET, POST, PUT, DELETE, OPTIONS"),
            ("access-control-allow-headers", "Content-Type, Authorization"),
            ("access-control-max-age", "86400"),
        ] {
            assert_eq!(answer.headers[name], value, "{path}");
        }
        assert!(!answer.headers.contains_key("content-length"));
    }
}

#[test]
fn every_answer_has_the_cors_and_security_headers() {
    let server = Start::new().env("CORS_ALLOW_ORIGIN", "https://app.example:8443").start();
    let mut web = server.web();
    let answers = [
        web.get("/health"),
        web.get("/healthz"),
        web.get("/prometheus"),
        web.get("/nope"),
        web.post("/queues/q/jobs", json!({})),
        web.call("OPTIONS", "/x", &[], b""),
        web.call("HEAD", "/ready", &[], b""),
    ];
    for answer in answers {
        for (name, value) in [
            ("access-control-allow-origin", "https://app.example:8443"),
            ("vary", "Origin"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.headers[name], value, "{answer:?}");
        }
        assert!(answer.headers["content-security-policy"].contains("default-src 'none'"));
        assert!(answer.headers["date"].ends_with(" GMT"));
        assert!(!answer.headers.contains_key("server"));
    }
}

#[test]
fn head_is_get_without_the_body_and_takes_no_job() {
    let mut web = shared().web();
    for path in ["/health", "/healthz", "/ready", "/stats", "/metrics", "/prometheus", "/nope"] {
        let get = web.get(path);
        let head = web.call("HEAD", path, &[], b"");
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{path}");
        assert_eq!(head.headers["content-type"], get.headers["content-type"], "{path}");
        assert!(head.headers["content-length"].parse::<usize>().unwrap() > 1, "{path}");
    }
    let queue = queue("head");
    let id = client().push(&queue, 1);
    assert_eq!(web.call("HEAD", &format!("/queues/{queue}/jobs"), &[], b"").status, 200);
    assert_eq!(web.call("HEAD", &format!("/jobs/{id}"), &[], b"").status, 200);
    assert_eq!(web.call("HEAD", "/jobs/none", &[], b"").status, 404);
    assert_eq!(web.call("HEAD", "/queues/a%20b/jobs", &[], b"").status, 400);
    assert_eq!(client().state(&id), "waiting");
}
