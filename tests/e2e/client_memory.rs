//! The memory of clients as a setting. The fear: a small server that a large request never gets through, or a setting that is
//! taken and does not bound.

use serde_json::{Value, json};

use crate::e2e::metrics::samples;
use crate::e2e::space::metrics;
use crate::support::stream::WebSocket;
use crate::support::{Client, Start, until};

const MB: usize = 1 << 20;

/// Nearly as long as a payload may be.
const LONG_BYTES: usize = 9 * MB;

fn of_account(client: &mut Client, family: &str, account: &str) -> u64 {
    metrics(client)[&format!("corq_client_memory_{family}{{account=\"{account}\"}}")]
}

#[test]
fn a_server_with_the_least_memory_for_clients_takes_and_answers_the_largest_requests() {
    let server = Start::new().env("SHARDS", 2).env("CLIENT_MEMORY_MB", 128).start();
    let mut client = server.client();
    client.take_little();
    let long = "x".repeat(LONG_BYTES);
    // Queues of both shards.
    for queue in ["q0", "q1", "q2"] {
        client.push(queue, long.clone());
        let batch = vec![json!({"data": "y".repeat(MB)}); 15];
        client.ok("PUSHB", json!({"queue": queue, "jobs": batch}));
        server.web().push(queue, json!({"data": long}));
        let mut socket = WebSocket::open(server.http, "/ws/queues/none");
        socket.ok("PUSH", json!({"queue": queue, "data": long}));
        let bytes = |list: &Value| -> usize {
            let jobs = list["jobs"].as_array().unwrap().iter();
            jobs.map(|job| job["data"].as_str().unwrap().len()).sum()
        };
        let all = 3 * LONG_BYTES + 15 * MB;
        assert_eq!(bytes(&client.ok("GetJobs", json!({"queue": queue}))), all);
        assert_eq!(bytes(&socket.ok("GetJobs", json!({"queue": queue}))), all);
        let mut pulled = 0;
        while pulled < all {
            let some = bytes(&client.ok("PULLB", json!({"queue": queue, "count": 100})));
            assert!(some > 0, "{pulled} of {all}");
            pulled += some;
        }
    }
    let numbers = metrics(&mut client);
    for family in ["frames_crowded_out_total", "output_crowded_out_total"] {
        assert_eq!(numbers[&format!("corq_{family}")], 0, "{family}");
    }
    for account in ["input", "commands", "texts", "json", "lists", "in_transit", "disk_reads"] {
        until(account, || (of_account(&mut client, "bytes", account) == 0).then_some(()));
    }
}

#[test]
fn the_start_says_how_much_memory_clients_have_and_metrics_how_much_each_account() {
    let start = Start::new().env("SHARDS", 4);
    let server = start.clone().env("CLIENT_MEMORY_MB", 512).start();
    assert!(server.says("client memory: at most 512 MB (CLIENT_MEMORY_MB), 128 MB a shard"));
    let mut client = server.client();
    let limits = ["input", "output", "strangers"]
        .map(|account| of_account(&mut client, "limit_bytes", account) >> 20);
    assert_eq!(limits, [192, 128, 8], "of all shards");
    // Nothing is no setting, whatever other servers of this run have.
    let server = start.env("CLIENT_MEMORY_MB", "").start();
    let line = server.output();
    let line = line.lines().find(|line| line.contains("client memory: at most ")).unwrap();
    assert!(line.contains("an eighth of the ") && line.ends_with(" MB a shard"), "{line}");
}

#[test]
fn the_fullest_shard_is_told_where_all_together_are_far_from_the_bound() {
    let server = Start::new().env("SHARDS", 4).env("CLIENT_MEMORY_MB", 256).start();
    let mut client = server.client();
    // More than half of what one shard has for frames that have not come whole, of a command that may be as long.
    let begun = [&[0, 0xf0, 0, 0, 0x83][..], b"\xa3cmd\xa5PUSHB", &vec![0x81; 13 * MB]].concat();
    let mut sender = server.client();
    sender.send_bytes(&begun).unwrap();
    let mut input = || {
        let samples = samples(&mut client);
        let of =
            |family: &str| samples[&format!("corq_client_memory_{family}{{account=\"input\"}}")];
        (of("fullest_ratio"), of("bytes") / of("limit_bytes"))
    };
    let (fullest, of_all) =
        until("most has come", || Some(input()).filter(|(fullest, _)| *fullest > 0.5));
    assert!((fullest - 4.0 * of_all).abs() < 0.001, "{fullest} and {of_all}");
    drop(sender);
    until("nothing is held", || (input().0 == 0.0).then_some(()));
}

#[test]
fn less_memory_for_clients_than_the_shards_need_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (shards, size, least) in [(1, 127, 128), (3, 191, 192)] {
        let start = Start::new().env("SHARDS", shards).env("CLIENT_MEMORY_MB", size);
        let (status, output) = start.run_to_its_end(&dir.path().join("d"));
        assert!(!status.success(), "{output}");
        let reason = format!(
            "CLIENT_MEMORY_MB: {size} is too little for {shards} shards: it must be at least {least}"
        );
        assert!(output.contains(&reason), "{output}");
    }
}
