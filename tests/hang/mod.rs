//! A shard that sleeps although it has work answers never again. The executor under the shards is
//! known to do that with tasks of its own (docs/decisions/0002-waiting.md), so this is the load it
//! was seen under: two shards, many connections with 50 requests in flight each, half of them for
//! the other shard. The fear: a server that is up, idle and silent.
//!
//! `CORQ_HANG_SECONDS` sets how long (default 5); `make hang` runs five minutes.

use crate::support::{Client, Start};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 8;
const WINDOW: usize = 50;

fn span() -> Duration {
    let seconds = std::env::var("CORQ_HANG_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// Keeps a connection full of requests until `end`; every one must be answered (the client gives up
/// on a silent socket by itself).
fn keep_busy(mut client: Client, number: usize, end: Instant) -> u64 {
    let mut open = HashSet::new();
    let mut answered = 0;
    while Instant::now() < end || !open.is_empty() {
        while open.len() < WINDOW && Instant::now() < end {
            let queue = format!("hang-{}", (number + open.len()) % 4);
            let sent = match open.len() % 3 {
                0 => client.send("Ping", json!({})),
                1 => client
                    .send("PUSH", json!({"queue": queue, "data": 1, "removeOnComplete": true})),
                _ => client.send("PULL", json!({"queue": queue, "timeout": 20})),
            };
            open.insert(sent.unwrap());
        }
        let reply =
            client.recv().unwrap_or_else(|error| panic!("{answered} answers, then {error}"));
        assert_eq!(reply["ok"], true, "{reply}");
        assert!(open.remove(reply["reqId"].as_str().unwrap()), "an answer to nothing: {reply}");
        if let Some(id) = reply["job"]["id"].as_str() {
            open.insert(client.send("ACK", json!({"id": id})).unwrap());
        }
        answered += 1;
    }
    answered
}

#[test]
fn two_shards_under_full_windows_never_fall_silent() {
    let _alone = crate::alone();
    let server = Start::new().env("SHARDS", 2).start();
    let end = Instant::now() + span();
    let busy: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let client = server.client();
            thread::spawn(move || keep_busy(client, number, end))
        })
        .collect();
    let answered: u64 = busy.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!("{answered} answers");
    assert!(answered > 0);
    let counts = server.client().ok("Stats", json!({}));
    assert_ne!(counts["stats"], Value::Null);
}
