//! Streams of events as connections: their beginning, their end, and clients that do not read. The
//! fear: one browser tab that hangs makes the server slow or large.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::e2e::space::metrics;
use crate::support::stream::{PING, PONG, Sse, UPGRADE, WebSocket};
use crate::support::{Client, Server, Start, until};
use crate::{client, queue, shared};

#[test]
fn an_sse_stream_begins_with_its_head_and_the_id_of_the_client() {
    let sse = Sse::open(shared().http, "/events");
    let id = sse.connected["clientId"].as_str().unwrap();
    assert_eq!((id.len(), id.matches('-').count()), (36, 4), "{id}");
    assert_eq!(sse.connected.as_object().unwrap().len(), 2);
    let head = sse.head.to_ascii_lowercase();
    for line in ["content-type: text/event-stream\r\n", "cache-control: no-store\r\n"] {
        assert!(head.contains(line), "{head}");
    }
    assert!(!head.contains("content-length"), "{head}");
    let other = Sse::open(shared().http, "/events");
    assert_ne!(other.connected["clientId"], id);
}

#[test]
fn a_stream_of_a_queue_whose_name_is_none_is_refused() {
    for path in
        ["/events/queues/", "/events/queues/a b", "/events/queues/a/b", "/events/x", "/eventsx"]
    {
        let path = path.replace(' ', "%20");
        let answer = Sse::open_with(shared().http, &path, "").err().unwrap();
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
}

#[test]
fn a_guarded_server_opens_no_stream_without_a_token() {
    let server = Start::new().env("AUTH_TOKENS", "secret,other").start();
    for headers in ["", "Authorization: Bearer wrong\r\n", "Authorization: secret\r\n"] {
        for path in ["/events", "/events/queues/q"] {
            let answer = Sse::open_with(server.http, path, headers).err().unwrap();
            assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
            assert!(
                answer.ends_with(r#"{"ok":false,"error":"Unauthorized","code":"unauthorized"}"#),
                "{answer}"
            );
        }
        for path in ["/ws", "/ws/queues/q"] {
            let answer = WebSocket::open_with(server.http, path, &format!("{UPGRADE}{headers}"));
            assert!(answer.err().unwrap().starts_with("HTTP/1.1 401 "));
        }
    }
    let token = "Authorization: Bearer other\r\n";
    let mut sse = Sse::open_with(server.http, "/events", token).unwrap();
    let mut websocket =
        WebSocket::open_with(server.http, "/ws/queues/q", &format!("{UPGRADE}{token}")).unwrap();
    websocket.ok("PUSH", json!({"queue": "q", "data": 1}));
    assert_eq!(sse.next()["eventType"], "pushed");
    assert_eq!(websocket.next()["eventType"], "pushed");
}

/// A shard that is busy learns late who listens, and takes what its own connections bring before that.
#[test]
fn whatever_happens_after_a_client_is_connected_reaches_it() {
    let mut clients: Vec<Client> = (0..4).map(|_| client()).collect();
    let mut busy = client();
    let ballast: Vec<Json> = (0..5000).map(|_| json!({"data": 0})).collect();
    for _ in 0..10 {
        let queue = queue("from-the-start");
        busy.send("PUSHB", json!({"queue": queue, "jobs": ballast})).unwrap();
        let mut sse = Sse::open(shared().http, &format!("/events/queues/{queue}"));
        for (number, client) in (1..).zip(&mut clients) {
            client.send("PUSH", json!({"queue": queue, "data": number})).unwrap();
        }
        let mut seen = Vec::new();
        while seen.len() < clients.len() {
            let event = sse.next();
            if event["data"] != 0 {
                seen.push(event["data"].as_u64().unwrap());
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 4]);
        for client in clients.iter_mut().chain([&mut busy]) {
            assert_eq!(client.recv().unwrap()["ok"], true);
        }
    }
}

/// Events that a slow client missed, and the bytes that wait for it.
fn lost_and_waiting(server: &Server) -> (u64, u64) {
    let reply = server.client().ok("Prometheus", json!({}));
    let metrics = reply["data"]["metrics"].as_str().unwrap().to_owned();
    let number = |name: &str| {
        metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap()
    };
    (number("corq_events_lost_total "), number("corq_events_waiting_bytes "))
}

fn rss_mb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    rss.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn a_client_that_does_not_read_loses_the_oldest_events_and_slows_nobody() {
    const EVENTS: usize = 80;
    let server = Start::new().env("PAYLOAD_CACHE_MB", 4).start();
    let mut slow_sse = Sse::open(server.http, "/events/queues/q");
    let mut slow_websocket = WebSocket::open(server.http, "/ws");
    let mut quick = Sse::open(server.http, "/events/queues/q");
    let reader = std::thread::spawn(move || {
        for number in 0..EVENTS {
            assert_eq!(quick.next()["data"][0], number, "a client that reads gets all");
        }
    });
    let mut client = server.client();
    let ballast = "x".repeat(1_000_000);
    for number in 0..EVENTS {
        client.push("q", json!([number, ballast]));
    }
    reader.join().unwrap();
    client.ok("Ping", json!({}));
    // In line, and what each is being sent: an event of which at most 64 KB are left, and the next one. The last event of
    // the client that reads is held until the kernel has taken it.
    until("what waits to be within its bounds", || {
        (lost_and_waiting(&server).1 <= 2 * ((16 << 20) + 2_200_000)).then_some(())
    });
    assert!(rss_mb(&server) < 400, "{} MB", rss_mb(&server));

    // Clients that come back find the newest events, in order and whole.
    let numbers = |next: &mut dyn FnMut() -> Json| {
        let mut numbers = Vec::new();
        while numbers.last() != Some(&(EVENTS - 1)) {
            let event = next();
            assert_eq!(event["data"][1].as_str().unwrap().len(), ballast.len());
            numbers.push(event["data"][0].as_u64().unwrap() as usize);
        }
        numbers
    };
    // A quarter of the output of each shard is for events, which are longer than their ballast; one may be on its way.
    let output =
        metrics(&mut client)["corq_client_memory_limit_bytes{account=\"output\"}"] as usize;
    let kept = ((output / 8 - 1) / ballast.len() - 1).clamp(1, 10);
    let mut missed = 0;
    for numbers in [numbers(&mut || slow_sse.next()), numbers(&mut || slow_websocket.next())] {
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert!(numbers.len() < EVENTS, "some are lost");
        let newest: Vec<usize> = (EVENTS - kept..EVENTS).collect();
        assert!(numbers.ends_with(&newest), "{numbers:?}");
        missed += (EVENTS - numbers.len()) as u64;
    }
    until("all is told and counted", || (lost_and_waiting(&server) == (missed, 0)).then_some(()));
    let id = client.push("q", 1);
    assert_eq!(slow_sse.next()["jobId"], *id);
    assert_eq!(slow_websocket.next()["jobId"], *id);
}

#[test]
fn silent_streams_show_signs_of_life() {
    let server = Start::new().env("STREAM_KEEP_ALIVE_MS", 150).start();
    let mut sse = Sse::open(server.http, "/events");
    (0..3).for_each(|_| sse.await_comment());
    server.client().push("q", 1);
    assert_eq!(sse.next()["eventType"], "pushed");
    // A client that answers is not taken for gone, if there is time to.
    let server = Start::new().env("STREAM_KEEP_ALIVE_MS", 4000).start();
    let mut websocket = WebSocket::open(server.http, "/ws");
    for _ in 0..3 {
        let ping = websocket.recv_frame().unwrap();
        assert_eq!(ping.opcode, PING);
        websocket.send_frame(true, PONG, &ping.payload);
    }
    server.client().push("q", 1);
    assert_eq!(websocket.next()["eventType"], "pushed");
}

#[test]
fn a_websocket_that_answers_no_ping_is_closed_and_its_jobs_go_back() {
    let server = Start::new().env("STREAM_KEEP_ALIVE_MS", 4000).start();
    let mut client = server.client();
    let id = client.push("q", 1);
    let mut silent = WebSocket::open(server.http, "/ws/queues/other");
    silent.polite = false;
    assert_eq!(silent.ok("PULL", json!({"queue": "q"}))["job"]["id"], *id);
    assert_eq!(silent.closed_with(), Some(1001));
    until("the job waits again", || (client.state(&id) == "waiting").then_some(()));
}

#[test]
fn a_server_that_stops_ends_its_streams_and_says_so() {
    let mut server = Start::new().start();
    let mut sse = Sse::open(server.http, "/events");
    let mut idle = WebSocket::open(server.http, "/ws/queues/q");
    let mut waiting = WebSocket::open(server.http, "/ws/queues/q");
    let request = waiting.send("PULL", json!({"queue": "q", "timeout": 60_000}));
    // Once a second command is answered, the first is under way.
    waiting.ok("Ping", json!({}));
    let deaf = Sse::open(server.http, "/events");
    let readers = [
        std::thread::spawn(move || while sse.try_next().unwrap().is_some() {}),
        std::thread::spawn(move || assert_eq!(idle.closed_with(), Some(1001))),
        std::thread::spawn(move || {
            let message = waiting.recv();
            assert_eq!((&message["reqId"], &message["job"]), (&json!(request), &json!(null)));
            assert_eq!(waiting.closed_with(), Some(1001));
        }),
    ];
    for _ in 0..30 {
        server.client().push("big", "x".repeat(1_000_000));
    }
    until("the deaf one is far behind", || (lost_and_waiting(&server).1 > 0).then_some(()));
    assert!(server.terminate().success());
    for reader in readers {
        reader.join().unwrap();
    }
    drop(deaf);
}

#[test]
fn a_client_that_leaves_at_any_moment_disturbs_nobody() {
    let mut staying = Sse::open(shared().http, "/events/queues/leaving");
    let mut client = client();
    for round in 0..40 {
        let path = if round % 2 == 0 { "/events" } else { "/events/queues/leaving" };
        let leaving = Sse::open(shared().http, path);
        let also = WebSocket::open(shared().http, &path.replace("events", "ws"));
        let id = client.push("leaving", round);
        drop((leaving, also));
        assert_eq!(staying.next()["jobId"], *id);
    }
}

/// Memory of idle streams, in MB.
fn cost_of(streams: usize) -> u64 {
    let server = Start::new().start();
    let before = rss_mb(&server);
    let mut sse = Vec::new();
    let mut websockets = Vec::new();
    for number in 0..streams {
        match number % 4 {
            0 => sse.push(Sse::open(server.http, "/events")),
            1 => sse.push(Sse::open(server.http, &format!("/events/queues/q{number}"))),
            2 => websockets.push(WebSocket::open(server.http, "/ws")),
            _ => websockets.push(WebSocket::open(server.http, &format!("/ws/queues/q{number}"))),
        }
    }
    server.client().push("q1", 1);
    for stream in sse.iter_mut().step_by(2) {
        assert_eq!(stream.next()["queue"], "q1");
    }
    let cost = rss_mb(&server).saturating_sub(before);
    println!("{streams} streams cost {cost} MB");
    cost
}

#[test]
fn a_thousand_idle_streams_cost_less_than_15_mb() {
    assert!(cost_of(1000) < 15);
}

/// `cargo test --test e2e ten_thousand -- --ignored --nocapture`, with room for 20,000 open files.
#[test]
#[ignore = "opens ten thousand connections"]
fn ten_thousand_idle_streams_cost_less_than_150_mb() {
    assert!(cost_of(10_000) < 150);
}

/// Whatever a stream says until its server is gone: the kind of event and the job. Counts it.
fn hear(count: &AtomicUsize, mut next: impl FnMut() -> Option<Json>) -> Vec<(String, String)> {
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let mut heard = Vec::new();
    while let Some(event) = next() {
        if event.get("eventType").is_some() {
            count.fetch_add(1, Ordering::Relaxed);
            heard.push((text(&event["eventType"]), text(&event["jobId"])));
        }
    }
    heard
}

/// Kills the server under load, when so many events and a few more have been heard.
fn hear_until_a_kill(server: &mut Server, events: usize) {
    let (tcp, http) = (server.tcp, server.http);
    let mut sse = Sse::open(http, "/events");
    let mut websocket = WebSocket::open(http, "/ws");
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let over_sse = std::thread::spawn(move || hear(&count, || sse.try_next().ok().flatten()));
    let count = Arc::clone(&heard);
    let over_websocket = std::thread::spawn(move || {
        hear(&count, || {
            let frame = websocket.recv_frame().ok()?;
            Some(serde_json::from_slice(&frame.payload).unwrap_or(Json::Null))
        })
    });
    let load: Vec<_> = (0..4)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(tcp);
                // Half of the threads push, the others work; all until the server is gone.
                for n in 0.. {
                    let queue = format!("told-{}", (number + n) % 4);
                    let sent = if number % 2 == 0 {
                        client.send("PUSH", json!({"queue": queue, "data": n}))
                    } else {
                        client.send("PULL", json!({"queue": queue}))
                    };
                    if sent.is_err() {
                        return;
                    }
                    if n >= 20 {
                        let Ok(reply) = client.recv() else { return };
                        let id = &reply["job"]["id"];
                        if id.is_string() && client.send("ACK", json!({"id": id})).is_err() {
                            return;
                        }
                        if id.is_string() && client.recv().is_err() {
                            return;
                        }
                    }
                }
            })
        })
        .collect();
    until("enough to be heard", || (heard.load(Ordering::Relaxed) >= events).then_some(()));
    server.kill();
    for thread in load {
        thread.join().unwrap();
    }
    let heard = [over_sse.join().unwrap(), over_websocket.join().unwrap()].concat();
    server.start();
    let mut client = server.client();
    for (kind, job) in &heard {
        let state = client.state(job);
        let is_so = match kind.as_str() {
            "pushed" => state != "unknown",
            "completed" => state == "completed",
            _ => true,
        };
        assert!(is_so, "a stream has told {kind} of {job}, which is {state} after the kill");
    }
}

#[test]
fn nothing_is_told_on_a_stream_before_a_kill_can_no_longer_undo_it() {
    for durability in ["written", "synced"] {
        let mut server = Start::new().env("DURABILITY", durability).start();
        (1..7).for_each(|round| hear_until_a_kill(&mut server, 60 * round));
    }
}
