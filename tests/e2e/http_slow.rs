//! Clients that are slow, or mean. The fear: a connection, a thread of work or memory that a client can
//! hold for nothing, and a server that serves nobody else meanwhile.

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::e2e::hostile::open_sockets;
use crate::support::{Http, Server, Start, until};

/// How long a connection may be idle where one is cut off for it: longer than a test that is not to be stands still.
const IDLE_MS: u64 = 8000;

fn impatient() -> Server {
    let start = Start::new().env("HTTP_REQUEST_TIMEOUT_MS", IDLE_MS);
    start.env("HTTP_IDLE_TIMEOUT_MS", IDLE_MS).start()
}

/// A server that does not wait long for the rest of a request.
fn hasty() -> Server {
    Start::new().env("SHARDS", 1).env("HTTP_REQUEST_TIMEOUT_MS", 600).start()
}

/// A server that does not wait long for readers, with a job that is long to read.
fn impatient_with_a_large_job() -> (Server, String) {
    let server = impatient();
    let id = server.client().push("q", "x".repeat(LARGE_BYTES));
    (server, id)
}

const LARGE_BYTES: usize = 8 << 20;

fn resident_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// That the server serves others well.
fn serves(server: &Server) {
    let mut web = server.web();
    let id = web.push("served", json!({"data": 1}));
    let (job, _) = web.pull("served");
    assert_eq!(job["id"], json!(id));
    web.post(&format!("/jobs/{id}/ack"), json!({})).expect(200);
}

#[test]
fn a_request_that_does_not_come_in_time_is_cut_off() {
    let server = hasty();
    let mut client = server.client();
    for part in [
        "GET /hea",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        "POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"data\"",
        "POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let mut web = server.web();
        assert_eq!(web.get("/healthz").status, 200);
        let before = client.time();
        web.raw(part.as_bytes()).unwrap();
        let answer = web.recv(false).unwrap();
        assert_eq!(answer.refused(408), "The request did not come in time");
        assert_eq!(answer.headers["connection"], "close");
        let after = client.time();
        assert!(after - before >= 600, "after {} ms", after - before);
        assert!(web.is_closed_by_server());
    }
    assert!(server.web().get("/prometheus").text().contains("corq_http_timeouts_total 4\n"));
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_gets_no_more_time() {
    let server = hasty();
    let mut web = server.web();
    web.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n").unwrap();
    until("the server to have had enough, whatever comes", || {
        std::thread::sleep(Duration::from_millis(45));
        web.raw(b"a: b\r\n").err()
    });
    serves(&server);
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() {
    let server = impatient();
    let (mut busy, mut waiting, mut idle, silent) =
        (server.web(), server.web(), server.web(), server.web());
    assert_eq!(busy.get("/healthz").status, 200);
    waiting.send("GET", "/queues/late/jobs?timeout=60000", &[], b"").unwrap();
    // The idle connections came after the busy one, which would have been closed before them.
    assert_eq!(idle.get("/healthz").status, 200);
    let is_closed = |web: &Http| {
        web.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        matches!(web.socket.peek(&mut [0]), Ok(0))
    };
    until("the others to be closed", || {
        assert_eq!(busy.get("/healthz").status, 200);
        (is_closed(&idle) && is_closed(&silent)).then_some(())
    });
    let id = busy.push("late", json!({"data": 1}));
    assert_eq!(waiting.recv(false).unwrap().expect(200)["job"]["id"], json!(id));
    assert_eq!(waiting.get("/healthz").status, 200);
}

#[test]
fn a_client_that_does_not_read_is_closed_at_last() {
    let (server, id) = impatient_with_a_large_job();
    let before = open_sockets(&server);
    let mut deaf = server.web();
    for _ in 0..50 {
        deaf.send("GET", &format!("/jobs/{id}"), &[], b"").unwrap();
    }
    until("it is closed", || {
        serves(&server);
        (open_sockets(&server) <= before).then_some(())
    });
    assert!(resident_kb(&server) < 200 << 10, "{} kB", resident_kb(&server));
}

#[test]
fn a_slow_reader_is_not_cut_off_while_it_reads() {
    let (server, id) = impatient_with_a_large_job();
    let mut web = server.web();
    // The kernel must not take it all at once for the client.
    socket2::SockRef::from(&web.socket).set_recv_buffer_size(64 << 10).unwrap();
    web.send("GET", &format!("/jobs/{id}"), &[], b"").unwrap();
    let start = Instant::now();
    let mut got = 0;
    let mut buffer = vec![0; 64 << 10];
    while got < LARGE_BYTES {
        let bytes = web.socket.read(&mut buffer).unwrap();
        assert!(bytes > 0, "cut off after {got} bytes");
        got += bytes;
        // The pace at which this takes longer than an idle connection may.
        let whole = Duration::from_millis(IDLE_MS * 3 / 2);
        let due = whole.mul_f64(got as f64 / LARGE_BYTES as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

#[test]
fn many_connections_push_and_pull_at_once() {
    let server = Server::start_default();
    let port = server.http;
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut web = Http::connect(port);
                for job in 0..100 {
                    web.push(&format!("busy-{}", (thread + job) % 5), json!({"data": job}));
                }
                (0..100)
                    .map(|job| {
                        let (pulled, token) = web.pull(&format!("busy-{}", (thread + job) % 5));
                        let id = pulled["id"].as_str().unwrap().to_owned();
                        web.post(&format!("/jobs/{id}/ack"), json!({"token": token})).expect(200);
                        id
                    })
                    .collect::<Vec<String>>()
            })
        })
        .collect();
    let mut ids: Vec<String> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 800, "each job went to one worker");
    let stats = server.web().get("/stats").expect(200);
    assert_eq!(stats["stats"]["completed"], 800);
}

#[test]
fn bodies_that_are_too_large_together_give_way_the_largest_first() {
    const INPUT: &str = "corq_client_memory_bytes{account=\"input\"} ";
    let server = Start::new().env("SHARDS", 1).env("CLIENT_MEMORY_MB", 128).start();
    serves(&server);
    let part = vec![b'x'; 9 << 20];
    let head =
        "POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12000000\r\n\r\n";
    let mut large: Vec<Http> = Vec::new();
    let mut small = server.web();
    small
        .raw(b"POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n")
        .unwrap();
    small.raw(&[b" ".repeat(40_000), b"{\"data\"".to_vec()].concat()).unwrap();
    for _ in 0..12 {
        let mut web = server.web();
        // Connections that give way are closed while the rest of their request is on its way.
        let _ = web.raw(&[head.as_bytes(), &part].concat());
        large.push(web);
    }
    // Of those that are there in full the bound holds no more than five, fewer if their memory has grown beyond them.
    until("six or more have given way", || {
        let text = server.web().get("/prometheus").text().to_owned();
        let count = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        assert!(count(INPUT) <= 48 << 20, "{text}");
        (count("corq_frames_crowded_out_total ") >= 6).then_some(())
    });
    assert!(resident_kb(&server) < 140 << 10, "{} kB", resident_kb(&server));
    until("a client that is still there to be told", || {
        let mut told = None;
        for web in &mut large {
            web.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            if let Ok(answer) = web.recv(false) {
                assert_eq!(answer.headers["retry-after"], "1");
                let why = "The bodies of all requests are too large together";
                assert_eq!(answer.refused(503), why);
                told = Some(());
            }
        }
        told
    });
    // A small one is not in anybody's way.
    let rest = format!(": 1}}{}", " ".repeat(70_000 - 40_000 - 7 - 4));
    small.raw(rest.as_bytes()).unwrap();
    small.recv(false).unwrap().expect(200);
    drop(large);
    until("their memory is free", || {
        let text = server.web().get("/prometheus").text().to_owned();
        text.contains(&format!("{INPUT}0\n")).then_some(())
    });
    serves(&server);
}
