//! Unix sockets. The fear: a server that takes away another one's socket, or leaves one behind that keeps the next
//! from starting; clients that all sit on one shard.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::secure::tunnel_to_path;
use crate::support::tool::Tool;
use crate::support::{Client, Http, Server, Start, until};

struct Paths {
    dir: TempDir,
}

impl Paths {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn tcp(&self) -> PathBuf {
        self.dir.path().join("tcp.sock")
    }

    fn http(&self) -> PathBuf {
        self.dir.path().join("http.sock")
    }

    fn start(&self) -> Start {
        Start::new()
            .env("TCP_SOCKET_PATH", self.tcp().display())
            .env("HTTP_SOCKET_PATH", self.http().display())
    }
}

fn connects(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

fn metric(server: &Server, name: &str) -> u64 {
    // At the limit of connections it may be turned away.
    let reply = until("an answer", || {
        let reply = server.client().try_call("Prometheus", json!({})).ok()?;
        (reply["ok"] == true).then_some(reply)
    });
    let text = reply["data"]["metrics"].as_str().unwrap().to_owned();
    let line = text.lines().find(|line| line.starts_with(&format!("corq_{name} "))).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn both_protocols_are_spoken_over_paths_as_over_ports() {
    let paths = Paths::new();
    for shards in [1, 2] {
        let server = paths.start().env("SHARDS", shards).start();
        let tcp = tunnel_to_path(&paths.tcp());
        let http = tunnel_to_path(&paths.http());
        for n in 0..8 {
            let (queue, mut client, mut web) =
                (format!("q{n}"), Client::connect(tcp), Http::connect(http));
            let id = client.push(&queue, "x".repeat(1 << 20));
            let (job, token) = web.pull(&queue);
            assert_eq!(
                (job["id"].as_str(), job["data"].as_str().unwrap().len()),
                (Some(&*id), 1 << 20)
            );
            web.post(&format!("/jobs/{id}/ack"), json!({"token": token})).expect(200);
            assert_eq!(server.client().state(&id), "completed");
        }
    }
}

#[test]
fn those_who_come_through_a_path_are_shared_out_among_the_shards() {
    let paths = Paths::new();
    let server = paths.start().env("SHARDS", 2).env("CONNECTIONS_MAX", 8).start();
    // Each shard has room for eight.
    let tcp = tunnel_to_path(&paths.tcp());
    // Clients come one after the other: until it is seated, each takes room where it came in.
    let seated = |_| {
        let mut client = Client::connect(tcp);
        client.ok("Ping", json!({}));
        client
    };
    let mut clients: Vec<Client> = (0..12).map(seated).collect();
    assert_eq!(metric(&server, "connections_moved_total"), 0, "none has followed a queue");
    let many: Vec<Client> = (0..12).map(|_| Client::connect(tcp)).collect();
    until("those beyond the limit are turned away", || {
        drop(many.iter());
        let mut one = Client::try_connect(tcp).ok()?;
        one.try_call("Ping", json!({})).is_err().then_some(())
    });
    for client in &mut clients {
        client.ok("Ping", json!({}));
    }
    drop((many, clients));
    until("there is room again", || {
        Client::try_connect(tcp).ok()?.try_call("Ping", json!({})).ok()
    });
    assert!(metric(&server, "connections_rejected_total") > 0);
}

#[test]
fn a_connection_through_a_path_follows_its_queue_and_gives_its_jobs_back() {
    let paths = Paths::new();
    let server = paths.start().env("SHARDS", 2).start();
    let tcp = tunnel_to_path(&paths.tcp());
    for n in 0..32 {
        let (queue, mut client) = (format!("q{n}"), Client::connect(tcp));
        let id = client.push(&queue, n);
        assert_eq!(client.pull(&queue)["id"], json!(id));
        for _ in 0..100 {
            client.ok("Count", json!({"queue": queue}));
        }
        drop(client);
        until("the job is back", || (server.client().state(&id) == "waiting").then_some(()));
    }
    assert!(metric(&server, "connections_moved_total") > 0);
}

#[test]
fn a_socket_is_open_to_its_group_and_tokens_are_asked_for() {
    let paths = Paths::new();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let server = paths.start().env("AUTH_TOKENS", "secret").start();
    assert_eq!((mode(&paths.tcp()), mode(&paths.http())), (0o660, 0o660));
    let mut client = Client::connect(tunnel_to_path(&paths.tcp()));
    assert_eq!(client.refused("Ping", json!({})), "Not authenticated");
    let mut web = Http::connect(tunnel_to_path(&paths.http()));
    assert_eq!(web.get("/stats").status, 401);
    drop(server);
    let server = paths.start().env("UNIX_SOCKET_MODE", "0600").start();
    assert_eq!(mode(&paths.tcp()), 0o600);
    drop(server);
    let words = paths.start().env("UNIX_SOCKET_MODE", "0999");
    let (status, output) = words.run_to_its_end(&paths.dir.path().join("data"));
    assert!(!status.success() && output.contains("UNIX_SOCKET_MODE"), "{output}");
}

#[test]
fn a_socket_goes_with_its_server_and_a_dead_ones_is_replaced() {
    let paths = Paths::new();
    let mut server = paths.start().start();
    assert!(connects(&paths.tcp()) && connects(&paths.http()));
    server.kill();
    assert!(paths.tcp().exists(), "a kill leaves it");
    server.start();
    assert!(connects(&paths.tcp()));
    server.client().ok("Ping", json!({}));
    assert_eq!(server.terminate().code(), Some(0));
    assert!(!paths.tcp().exists() && !paths.http().exists());
}

#[test]
fn the_socket_of_a_living_server_stops_the_start_and_so_does_a_file() {
    let paths = Paths::new();
    let server = paths.start().start();
    let data = paths.dir.path().join("data");
    let (status, output) = paths.start().run_to_its_end(&data);
    assert!(!status.success(), "{output}");
    assert!(output.contains("TCP_SOCKET_PATH") && output.contains("a server listens"), "{output}");
    assert!(connects(&paths.tcp()), "it has been left alone");
    drop(server);
    fs::remove_file(paths.tcp()).unwrap();
    fs::write(paths.tcp(), "dear").unwrap();
    let (status, output) = paths.start().run_to_its_end(&data);
    assert!(!status.success() && output.contains("a file of another kind"), "{output}");
    assert_eq!(fs::read(paths.tcp()).unwrap(), b"dear");
    let same = paths.start().env("TCP_SOCKET_PATH", paths.http().display());
    let (status, output) = same.run_to_its_end(&data);
    assert!(!status.success() && output.contains("HTTP_SOCKET_PATH"), "{output}");
}

#[test]
fn the_command_line_speaks_through_paths() {
    let paths = Paths::new();
    let server = paths.start().start();
    // No port that anybody listens on.
    let tool = Tool::at(1).env("CORQ_SOCKET", paths.tcp().display());
    let id = tool.ok(&["push", "q", "1"]).trim().to_owned();
    assert_eq!(server.client().state(&id), "waiting");
    let path = paths.tcp().display().to_string();
    assert!(Tool::at(1).ok(&["--socket", &path, "ping"]).starts_with("pong"));
    let http = paths.http().display().to_string();
    assert!(Tool::at(1).ok(&["health", "--http-socket", &http]).contains(&http));
    let mut events = tool.start(&["events", "--http-socket", &http, "--count", "1"]);
    until("an event to be printed", || {
        server.client().push("q", 2);
        events.try_wait().unwrap()
    });
    let output = events.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("pushed"), "{output:?}");
    assert!(tool.run(&["doctor", "--data-path", "/tmp"]).out.contains("a unix socket"));
    drop(server);
    let line = tool.fails(1, &["ping"]);
    assert!(line.contains(&path), "{line}");
}
