//! A start that takes its time. The fear: a server that is taken for dead while it reads its log, that
//! promises what it cannot do yet, or that cannot be stopped.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Client, DEADLINE, Server, Start, get, until};

/// Enough jobs for a log that takes a moment to read.
const JOBS: u64 = 400_000;

fn filled() -> Server {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    for batch in 0..JOBS / 1000 {
        let jobs: Vec<Value> = (0..1000).map(|n| json!({"data": n})).collect();
        client.ok("PUSHB", json!({"queue": format!("q-{}", batch % 8), "jobs": jobs}));
    }
    server
}

fn counted(client: &mut Client) -> u64 {
    let count = |n: u64| json!({"queue": format!("q-{n}")});
    (0..8).map(|n| client.ok("Count", count(n))["count"].as_u64().unwrap()).sum()
}

/// Waits until it says that it reads its log. False if that was over before anybody looked, as on a machine on which this
/// test stood still meanwhile.
fn recovers(server: &Server) -> bool {
    let answer = until("somebody is at the door", || get(server.http, "/ready"));
    answer.contains(r#""reason":"recovering""#)
}

/// Kills it and starts it again until it is seen while it reads its log.
fn start_until_it_recovers(server: &mut Server) {
    until("a start that takes as long as a look", || {
        server.kill();
        server.launch();
        recovers(server).then_some(())
    });
}

#[test]
fn while_it_reads_its_log_it_lives_and_is_not_ready() {
    let mut server = filled();
    let (mut puts_off, mut progress) = (0, 0);
    until("a request to be put off, and progress to be told", || {
        start_until_it_recovers(&mut server);
        let seen = is_put_off_until_it_serves(&server);
        (puts_off, progress) = (puts_off + seen.0, progress + seen.1);
        (puts_off > 0 && progress > 0).then_some(())
    });
}

/// Asks until the start has come to its end; how often a request was put off, and progress told.
fn is_put_off_until_it_serves(server: &Server) -> (u32, u32) {
    // A client of the other port waits, and is answered once the server is there.
    let mut client = until("the port is there", || Client::try_connect(server.tcp).ok());
    client.send("Ping", json!({})).unwrap();
    let (start, mut puts_off, mut progress) = (Instant::now(), 0, 0);
    loop {
        let alive = get(server.http, "/healthz").unwrap();
        assert!(alive.starts_with("HTTP/1.1 200") && alive.ends_with("OK"), "{alive}");
        let stats = get(server.http, "/stats").unwrap();
        let ready = get(server.http, "/ready").unwrap();
        if stats.starts_with("HTTP/1.1 503") {
            assert!(stats.contains("Retry-After: 1") && stats.contains("Server is starting"));
            assert!(stats.contains(r#""code":"starting""#), "{stats}");
            puts_off += 1;
        }
        if ready.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(ready.contains(r#""ready":false"#), "{ready}");
        progress += u32::from(ready.contains(" MB read, "));
        assert!(start.elapsed() < DEADLINE);
    }
    // From here on no request is put off.
    for _ in 0..20 {
        assert!(get(server.http, "/stats").unwrap().starts_with("HTTP/1.1 200"));
    }
    assert_eq!(client.recv().unwrap()["ok"], true);
    assert_eq!(counted(&mut client), JOBS);
    (puts_off, progress)
}

#[test]
fn a_stop_while_it_reads_its_log_ends_it_at_once() {
    let mut server = filled();
    let words = "stopping on Terminate, before all shards had read their logs";
    until("a stop that comes before it has read all", || {
        start_until_it_recovers(&mut server);
        server.signal(Signal::TERM);
        assert_eq!(server.wait_for_end().code(), Some(0), "{}", server.output());
        server.output().contains(words).then_some(())
    });
    assert!(!server.output().contains("ERROR"), "{}", server.output());
    server.start();
    assert_eq!(counted(&mut server.client()), JOBS);
}
