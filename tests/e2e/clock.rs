//! A clock that was ahead, and is right again at the next start. The fear: what it set lasts for as long as it was
//! ahead, an operator is left to guess why, and a start with a right clock does not end it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use corq_io::log::{BlockingDisk, DataDir, Log, LogConfig, Mode, Position};
use corq_shards::log_record::Record;
use corq_shards::log_record::snapshot::Kept;
use serde_json::{Value, json};

use crate::e2e::space::SEGMENT;
use crate::support::tool::Tool;
use crate::support::{Server, Start, until};

const HOUR_MS: u64 = 3_600_000;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Adds to the log of a shard what a process leaves whose clock shows `at_ms`.
fn write_with_clock(path: &Path, at_ms: u64) {
    let data = DataDir::open(path, 1).unwrap();
    let base = LogConfig::new(0, Mode::Written);
    let config = LogConfig { log_id: data.id(), segment_bytes: SEGMENT, cache_bytes: 0, ..base };
    let disk = BlockingDisk::open(path, 0).unwrap();
    let nothing = |_: Position, _: &[u8]| Ok::<(), String>(());
    let (mut log, _) = Log::open(&config, disk, nothing).unwrap();
    let clock = Record::Kept(Kept::Clock { at_ms, stuck_ms: 0 });
    let (_, body) = log.append(clock.encoded_len());
    clock.encode(body);
    until("the log closes", || log.close(1).unwrap().then_some(()));
}

fn health(server: &Server) -> Value {
    let answer = server.web().get("/health");
    assert_eq!(answer.status, 200);
    answer.json()
}

#[test]
fn a_start_with_a_right_clock_says_how_far_the_last_one_was_ahead_and_the_next_start_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let start = Start::new().env("SHARDS", 1);
    let mut server = start.start_at(&data);
    let mut client = server.client();
    client.push_with("q", 1, json!({"jobId": "later", "delay": HOUR_MS}));
    drop(client);
    assert!(server.terminate().success(), "{}", server.output());
    write_with_clock(&data, now_ms() + 25 * HOUR_MS);

    server.start();
    let told = health(&server)["clockSetBackMs"].as_u64().unwrap();
    assert!((24 * HOUR_MS..26 * HOUR_MS).contains(&told), "{told}");
    let mut client = server.client();
    let said = server.output();
    assert!(said.contains("ahead when its log was written"), "{said}");
    let doctor = Tool::of(&server).run(&["doctor"]);
    assert!(doctor.out.contains("clock"), "{}", doctor.out);
    // The server counts from the right clock: a short delay is short.
    client.push_with("q", 1, json!({"jobId": "soon", "delay": 1}));
    let pulled = client.ok("PULL", json!({"queue": "q", "timeout": 30_000, "owner": "w"}));
    assert_eq!(pulled["job"]["id"], "soon");

    // Times that were set back stay so, and the next start has nothing to say.
    server.kill();
    server.start();
    let next = health(&server);
    assert!(next.get("clockSetBackMs").is_none() && next.get("clockAheadMs").is_none(), "{next}");
    assert_eq!(server.client().counted("q", "delayed"), 1);
}
