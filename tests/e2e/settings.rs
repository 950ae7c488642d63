//! Starting. The fear: a server that starts with a setting it did not understand, or on data
//! that another one has open.

use serde_json::json;

use crate::support::{Server, Start, get, until};

#[test]
fn a_second_server_on_the_same_data_refuses_to_start() {
    let server = Server::start_default();
    let (status, output) = Start::new().run_to_its_end(&server.data);
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains(server.data.to_str().unwrap()), "{output}");
    server.client().ok("Ping", json!({}));
}

#[test]
fn a_wrong_setting_stops_the_start_with_one_line_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    for (name, value) in [
        ("SHARDS", "0"),
        ("SHARDS", "many"),
        ("TCP_PORT", "70000"),
        ("DURABILITY", "hopeful"),
        ("FSYNC_INTERVAL_MS", "-1"),
        ("CLIENT_MEMORY_MB", "127"),
        ("SHUTDOWN_TIMEOUT_MS", "soon"),
        ("STREAM_KEEP_ALIVE_MS", "99"),
        ("LOG_FORMAT", "poem"),
        ("HOST", "not a host"),
        ("RATE_LIMIT_MAX_REQUESTS", "0"),
        ("RATE_LIMIT_MAX_REQUESTS", "few"),
        ("RATE_LIMIT_WINDOW_MS", "0"),
        ("RATE_LIMIT_CLEANUP_MS", "never"),
        ("TCP_RATE_LIMIT_MAX_REQUESTS", "-5"),
        ("CORS_ALLOW_ORIGIN", "a.example"),
        ("CORS_ALLOW_ORIGIN", "https://a.example/path"),
        ("CORS_ALLOW_ORIGIN", "null"),
        ("ALLOWED_HOSTS", "queue.example:6790"),
        ("ALLOWED_HOSTS", "http://queue.example"),
        ("REQUIRE_AUTH_FOR_METRICS", "perhaps"),
        ("HTTP_REQUEST_TIMEOUT_MS", "99"),
        ("HTTP_IDLE_TIMEOUT_MS", "forever"),
        ("AUTH_TOKENS", ","),
        ("AUTH_TOKENS", ", ,"),
    ] {
        let (status, output) = Start::new().env(name, value).run_to_its_end(&dir.path().join("d"));
        assert!(!status.success(), "{name}={value}: {output}");
        assert_eq!(output.trim().lines().count(), 1, "{name}={value}:\n{output}");
        assert!(output.contains(name) && output.contains(value), "{name}={value}: {output}");
    }
}

#[test]
fn a_port_that_is_taken_stops_the_start() {
    let server = Server::start_default();
    let dir = tempfile::tempdir().unwrap();
    let start = Start::new().env("TCP_PORT", server.tcp);
    let (status, output) = start.run_to_its_end(&dir.path().join("d"));
    assert!(!status.success(), "{output}");
    assert!(output.contains(&server.tcp.to_string()), "{output}");
}

#[test]
fn one_two_and_four_shards_all_do_the_work() {
    for shards in [1, 2, 4] {
        let server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client();
        let mut other = server.client();
        for n in 0..32 {
            let queue = format!("q-{n}");
            let id = client.push(&queue, n);
            let (job, token) = other.pull_owned(&queue, 30_000);
            assert_eq!(job["id"], json!(id));
            client.ok("ACK", json!({"id": id, "token": token, "result": n}));
            assert_eq!(other.ok("GetResult", json!({"id": id}))["result"], n);
        }
        assert_eq!(client.ok("Stats", json!({}))["stats"]["completed"], 32, "{shards} shards");
        assert_eq!(
            client.ok("ListQueues", json!({}))["queues"].as_array().unwrap().len(),
            32,
            "{shards} shards"
        );
    }
}

#[test]
fn a_server_in_memory_works_and_forgets() {
    let mut server = Start::new().memory().start();
    let mut client = server.client();
    let id = client.push("q", json!({"n": 1}));
    assert_eq!(client.pull("q")["data"], json!({"n": 1}));
    client.ok("ACK", json!({"id": id, "result": 1}));
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], 1);
    assert!(!server.data.exists());
    assert_eq!(server.terminate().code(), Some(0));
    server.start();
    assert_eq!(server.client().state(&id), "unknown");
}

#[test]
fn one_line_per_listener_tells_that_the_server_is_ready() {
    let server = Server::start_default();
    for port in [server.tcp, server.http] {
        let output = until("the line of a listener", || {
            Some(server.output()).filter(|output| output.contains(&format!(":{port}")))
        });
        // The address of the page is a line of its own.
        let of_port = |line: &&str| line.contains(&format!(":{port}")) && !line.contains("/ui/");
        let lines = output.lines().filter(of_port).count();
        assert_eq!(lines, 1, "{output}");
    }
    assert!(get(server.http, "/healthz").unwrap().ends_with("OK"));
}

#[test]
fn completed_jobs_are_kept_up_to_their_number() {
    let server = Start::new().env("COMPLETED_MAX", 5).start();
    let mut client = server.client();
    let ids: Vec<String> = (0..8).map(|n| client.push("q", n)).collect();
    for _ in 0..8 {
        let id = client.pull("q")["id"].clone();
        client.ok("ACK", json!({"id": id}));
    }
    until("the retention", || (client.counted("q", "completed") == 5).then_some(()));
    assert_eq!(client.state(&ids[2]), "unknown");
    assert_eq!(client.state(&ids[3]), "completed");
}
