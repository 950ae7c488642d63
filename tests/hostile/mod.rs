//! Clients that are slow or mean, by the thousand at a time: half-open connections, requests that come a byte at a
//! time, bodies that never end, heads of a megabyte, garbage. The fear: a server that serves nobody else
//! meanwhile, and one that is larger when they have gone.
//!
//! `CORQ_HOSTILE_CONNECTIONS` sets how many (default 2000). `make hostile` takes 10,000, prints the figures, and with
//! `CORQ_HOSTILE_SPEED` asks that good clients are served at the speed they had before; that takes a quiet machine.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{DEADLINE, Dice, Http, Server, Start, encode, frame, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

/// How long the server waits for a request here.
const PATIENCE_MS: u64 = 20_000;

/// Memory that the server may take for clients, unless `CORQ_TEST_CLIENT_MEMORY_MB` says it: less than the uploads have together.
const CLIENT_MEMORY_MB: u64 = 256;

/// Requests of a measurement.
const REQUESTS: u32 = 3000;

/// Connections that send most of a body of 12 MB and then stop.
const UPLOADS: usize = 60;

fn connections() -> usize {
    let wanted = std::env::var("CORQ_HOSTILE_CONNECTIONS").ok();
    let wanted: usize = wanted.map_or(2000, |text| text.parse().unwrap());
    // This process and the server need a descriptor each.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let most = limit.maximum.unwrap_or(u64::MAX).saturating_sub(500) as usize;
    if wanted > most {
        println!("{most} connections instead of {wanted}, as `ulimit -Hn` allows no more");
    }
    wanted.min(most)
}

fn resident_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Sockets that the server has open. Its log makes files when it likes.
fn open_sockets(server: &Server) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let named = open.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    named.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
}

/// CPU time of the server's threads so far, in microseconds.
fn cpu_us(server: &Server) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let of_thread = |path: std::path::PathBuf| -> Option<f64> {
        // A thread that ends meanwhile is none of those that serve.
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    threads.filter_map(|thread| of_thread(thread.unwrap().path())).sum::<f64>() / 1e3
}

/// How the server serves a good client.
#[derive(Debug)]
struct Service {
    /// CPU time of the server per request, in microseconds.
    cpu_us: f64,
    median: Duration,
    p99: Duration,
    longest: Duration,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu_us, median, p99, longest } = self;
        write!(
            f,
            "{cpu_us:.0} us of server CPU per request, {median:?} median, {p99:?} p99, {longest:?} longest"
        )
    }
}

/// Pushes, pulls and completes jobs one after the other.
fn serve(server: &Server, requests: u32) -> Service {
    let mut web = server.web();
    let (before, mut took) = (cpu_us(server), Vec::new());
    let mut timed = |call: &mut dyn FnMut() -> crate::support::Answer| {
        let start = Instant::now();
        let answer = call().expect(200);
        took.push(start.elapsed());
        answer
    };
    for n in 0..requests / 3 {
        let body = json!({"data": n, "removeOnComplete": true});
        let pushed = timed(&mut || web.post("/queues/good/jobs", body.clone()));
        let pulled = timed(&mut || web.get("/queues/good/jobs?timeout=5000"));
        assert_eq!(pulled["job"]["id"], pushed["id"]);
        let path = format!("/jobs/{}/ack", pushed["id"].as_str().unwrap());
        timed(&mut || web.post(&path, json!({"token": pulled["token"]})));
    }
    let cpu_us = (cpu_us(server) - before) / f64::from(requests);
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    Service { cpu_us, median: at(0.5), p99: at(0.99), longest: at(1.0) }
}

/// Connections that were opened once and are held, in four ways of being slow.
fn hold_open(server: &Server, count: usize) -> Vec<TcpStream> {
    let mut sockets = Vec::with_capacity(count);
    for number in 0..count {
        let mut socket = TcpStream::connect(("127.0.0.1", server.http)).unwrap();
        let part: &[u8] = match number % 4 {
            0 => b"",
            1 => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
            2 => b"POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n{",
            _ => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
        };
        socket.write_all(part).unwrap();
        sockets.push(socket);
    }
    sockets
}

/// Until told otherwise: garbage, heads of a megabyte, bodies of 13 MB, each on a connection of its own.
fn harass(port: u16, over: &AtomicBool, seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let mut attacks = 0;
    while !over.load(Ordering::Relaxed) {
        let Ok(mut web) = Http::try_connect(port) else { continue };
        let bytes: Vec<u8> = match dice.roll(5) {
            0 => (0..20_000).map(|_| dice.roll(256) as u8).collect(),
            1 => [b"GET /healthz HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 1 << 20]].concat(),
            2 => b"POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13000000\r\n\r\n{"
                .into(),
            3 => {
                let head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n".as_slice();
                [head, &b"a: b\r\n".repeat(200_000)].concat()
            }
            _ => {
                let head = b"POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
                [head.as_slice(), b"d00000\r\n", &vec![b'x'; 13 << 20]].concat()
            }
        };
        // The server may close long before all of it is sent.
        let _ = web.raw(&bytes);
        if let Ok(answer) = web.recv(false) {
            assert!([400, 413, 431].contains(&answer.status), "{answer:?}");
        }
        attacks += 1;
    }
    attacks
}

#[test]
fn hostile_clients_by_the_thousand_leave_service_and_memory_as_they_were() {
    let _alone = crate::alone();
    let count = connections();
    let named = std::env::var("CORQ_TEST_CLIENT_MEMORY_MB").ok();
    let client_memory_mb = named.map_or(CLIENT_MEMORY_MB, |text| text.parse().unwrap());
    let server = Start::new()
        .env("CLIENT_MEMORY_MB", client_memory_mb)
        .env("HTTP_REQUEST_TIMEOUT_MS", PATIENCE_MS)
        .env("HTTP_IDLE_TIMEOUT_MS", PATIENCE_MS)
        .start();
    serve(&server, REQUESTS);
    // Large requests, as a server has had that is not just born: its receive buffers are touched.
    for _ in 0..8 {
        let answer = server.web().call("POST", "/queues/q/jobs", &[], &vec![b' '; 11 << 20]);
        assert_eq!(answer.refused(400), "Invalid JSON body");
    }
    server.web().call("POST", "/gc", &[], b"").expect(200);
    let (files, memory) = (open_sockets(&server), resident_kb(&server));
    let before = serve(&server, REQUESTS);

    // Before the others come, which would slow this down until the first are cut off.
    let held = hold_open(&server, count);
    // Clients connect faster than a server accepts, and some may be cut off while others come.
    let most = until("most of them are open", || {
        Some(open_sockets(&server).saturating_sub(files)).filter(|most| *most > count / 2)
    });
    let held_kb = resident_kb(&server).saturating_sub(memory);
    assert!(held_kb < 55 * count as u64, "{held_kb} kB for {count} connections that say little");
    let over = Arc::new(AtomicBool::new(false));
    let peak_kb = Arc::new(AtomicU64::new(0));
    let port = server.http;
    let harassing: Vec<_> = (1..=3)
        .map(|seed| {
            let over = Arc::clone(&over);
            thread::spawn(move || harass(port, &over, seed))
        })
        .collect();
    let uploads: Vec<TcpStream> = (0..UPLOADS)
        .map(|_| {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            socket.set_write_timeout(Some(DEADLINE)).unwrap();
            let head =
                "POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12000000\r\n\r\n";
            // Uploads for which there is no room are closed.
            let _ = socket.write_all(head.as_bytes());
            let _ = socket.write_all(&vec![b' '; 11 << 20]);
            peak_kb.fetch_max(resident_kb(&server), Ordering::Relaxed);
            socket
        })
        .collect();
    let during = serve(&server, 600);
    peak_kb.fetch_max(resident_kb(&server), Ordering::Relaxed);
    over.store(true, Ordering::Relaxed);
    let attacks: u64 = harassing.into_iter().map(|thread| thread.join().unwrap()).sum();
    until("they are all cut off", || (open_sockets(&server) <= files + 2).then_some(()));
    drop((held, uploads));

    // Buffers of large bodies are kept for a while, for the next ones.
    let kept_kb = resident_kb(&server);
    let after_kb = until("the memory is given back", || {
        let resident_kb = resident_kb(&server);
        (resident_kb < memory + (24 << 10)).then_some(resident_kb)
    });
    let after = serve(&server, REQUESTS);
    let peak_kb = peak_kb.load(Ordering::Relaxed);
    println!(
        "{count} held connections ({most} open at once), {UPLOADS} uploads, {attacks} other attacks\n\
         memory: {memory} kB before, {peak_kb} kB at the peak, {kept_kb} kB after, {after_kb} kB soon after\n\
         before: {before}\nduring: {during}\nafter:  {after}"
    );
    // The setting, and what connections cost.
    let most_kb = memory + (client_memory_mb << 10) + 16 * count as u64;
    assert!(peak_kb < most_kb, "{peak_kb} kB at the peak");
    if std::env::var_os("CORQ_HOSTILE_SPEED").is_some() {
        assert!(during.p99 < Duration::from_secs(1), "{during:?}");
        assert!(after.cpu_us < before.cpu_us * 1.5 + 20.0, "{before:?} {after:?}");
        let median = before.median * 2 + Duration::from_millis(1);
        assert!(after.median < median, "{before:?} {after:?}");
    }
}

/// Makes a short visit of some kind, and leaves without a word.
fn visit(server: &Server, kind: u64) {
    let web = ["/events", "/queues/q/jobs?timeout=20000", "/health", "/ws/queues/q"];
    let port = if kind < 4 { server.http } else { server.tcp };
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // Most are reset, lest the ports of this machine run out; some leave in order.
    if kind != 7 {
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    }
    let bytes = match kind {
        0..4 => {
            format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", web[kind as usize]).into_bytes()
        }
        4 => frame(&encode(&json!({"cmd": "PULL", "queue": "q", "timeout": 30_000, "owner": "w"}))),
        5 => frame(&encode(&json!({"cmd": "RegisterWorker", "name": "w", "queues": ["q"]}))),
        6 => vec![0, 0, 16, 0, 1, 2, 3],
        _ => frame(&encode(&json!({"cmd": "Ping"}))),
    };
    socket.write_all(&bytes).unwrap();
    if [2, 7].contains(&kind) {
        assert!(socket.read(&mut [0; 64]).unwrap() > 0);
    }
}

/// A leak of a kilobyte per connection would be seen with a few thousand of them; `make soak` has a million.
#[test]
fn connections_that_come_and_go_leave_nothing() {
    const THREADS: u64 = 4;
    let _alone = crate::alone();
    let wanted = std::env::var("CORQ_CONNECTIONS").ok();
    let total: u64 = wanted.map_or(5_000, |text| text.parse().unwrap());
    let server = Start::new().start();
    let come_and_go = |count: u64| {
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let server = &server;
                scope.spawn(move || {
                    let mut dice = Dice::new(seed);
                    for _ in 0..count / THREADS {
                        visit(server, dice.roll(7));
                    }
                    visit(server, 7);
                });
            }
        });
        until("they are all gone", || (open_sockets(&server) < 200).then_some(()));
    };
    come_and_go(total / 10);
    let (files, before_kb) = (open_sockets(&server), resident_kb(&server));
    let start = Instant::now();
    come_and_go(total);
    until("no descriptor is left", || (open_sockets(&server) <= files + 2).then_some(()));
    let after_kb = resident_kb(&server);
    println!(
        "{total} connections in {:?}: {before_kb} kB before, {after_kb} kB after",
        start.elapsed()
    );
    assert!(
        after_kb < before_kb + 4096 + total / 100,
        "{before_kb} kB before, {after_kb} kB after"
    );
    let health = server.web().get("/health").expect(200);
    let mut client = server.client();
    assert_eq!(client.ok("ListWorkers", json!({}))["data"]["workers"], json!([]), "{health}");
    assert!(client.pull("q").is_null());
}
