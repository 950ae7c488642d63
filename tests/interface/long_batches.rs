//! Long batches, at the places where a piece of them ends or an attempt is over. The fear: a batch that is answered otherwise
//! because it is long, or whose answer or whose reading is one long turn.

use serde_json::{Value, json};

use crate::support::{Client, Server, Start, until};

/// More than a short batch may have.
const MANY: usize = 6000;

/// Steps of one command in one turn.
const STEPS_MAX: u64 = 5000;

fn server() -> Server {
    Start::new().env("SHARDS", 1).start()
}

fn is_sliced(client: &mut Client, command: &str) {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let label = format!("corq_turn_steps_max{{shard=\"0\",command=\"{command}\"}} ");
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(&label));
    let steps: u64 = line.unwrap_or_else(|| panic!("no steps of {command}")).parse().unwrap();
    assert!(steps <= STEPS_MAX, "{command} took {steps} steps in a turn");
}

/// Jobs whose attempts are over, with the tokens of these.
fn late(client: &mut Client, queue: &str, count: usize) -> (Vec<Value>, Vec<Value>) {
    let jobs = vec![json!({"data": 1, "timeout": 1, "maxAttempts": 1}); count];
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let (mut ids, mut tokens) = (Vec::new(), Vec::new());
    while ids.len() < count {
        let pull = json!({"queue": queue, "count": 1000, "owner": "w", "lockTtl": 3_600_000});
        let got = client.ok("PULLB", pull);
        ids.extend(got["jobs"].as_array().unwrap().iter().map(|job| job["id"].clone()));
        tokens.extend(got["tokens"].as_array().unwrap().iter().cloned());
    }
    until("the attempts to be over", || {
        (client.counted(queue, "failed") == count as u64).then_some(())
    });
    (ids, tokens)
}

#[test]
fn a_long_ack_names_all_that_are_late_in_slices_and_ignores_one_that_is_there_twice() {
    let server = server();
    let mut client = server.client();
    for (queue, count) in [("short", 100), ("long", MANY)] {
        let (mut ids, mut tokens) = late(&mut client, queue, count);
        ids.push(ids[1].clone());
        tokens.push(tokens[1].clone());
        let reply = client.ok("ACKB", json!({"ids": ids, "tokens": tokens}));
        let places: Vec<usize> = (0..=count).collect();
        assert_eq!(reply["data"]["ignoredIndices"], json!(places), "{queue}");
        assert_eq!(reply["data"]["ignoredIds"], json!(ids), "{queue}");
    }
    is_sliced(&mut client, "ACKB");
}

#[test]
fn durations_that_end_where_a_piece_does_are_refused_for_their_number() {
    let server = server();
    let mut client = server.client();
    client.ok("PUSHB", json!({"queue": "q", "jobs": vec![json!({"data": 1}); 2500]}));
    let (mut ids, mut tokens) = (Vec::new(), Vec::new());
    while ids.len() < 2500 {
        let got = client.ok("PULLB", json!({"queue": "q", "count": 1000, "owner": "w"}));
        ids.extend(got["jobs"].as_array().unwrap().iter().map(|job| job["id"].clone()));
        tokens.extend(got["tokens"].as_array().unwrap().iter().cloned());
    }
    let extend = |ids: &[Value], durations: usize| {
        let (tokens, durations) = (&tokens[..ids.len()], vec![60_000; durations]);
        json!({"ids": ids, "tokens": tokens, "durations": durations})
    };
    let expected = client.refused("ExtendLocks", extend(&ids[..2], 1));
    for durations in [0, 499, 500, 501, 1000, 2499, 2501] {
        let refused = client.refused("ExtendLocks", extend(&ids, durations));
        assert_eq!(refused, expected, "{durations} durations");
    }
    assert_eq!(client.ok("ExtendLocks", extend(&ids, 2500))["count"], json!(2500));
}

/// Jobs of which each has an expression of its own.
fn repeated(count: usize, pattern: impl Fn(usize) -> String) -> Vec<Value> {
    let job = |n: usize| json!({"data": 1, "repeat": {"pattern": pattern(n)}});
    (0..count).map(job).collect()
}

#[test]
fn cron_expressions_of_a_batch_are_read_in_slices() {
    let server = server();
    let mut client = server.client();
    let long = "1,".repeat(1000);
    let batches = [
        repeated(1900, |n| format!("{} {} 29 2 *", n % 60, n / 60 % 24)),
        repeated(40, |n| format!("{long}{} * * * *", n % 60)),
    ];
    for jobs in batches {
        let count = jobs.len();
        let pushed = client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
        assert_eq!(pushed["ids"].as_array().unwrap().len(), count);
        let last = pushed["ids"][count - 1].clone();
        let pattern = client.ok("GetJob", json!({"id": last}))["job"]["repeat"]["pattern"].clone();
        assert_eq!(pattern, jobs[count - 1]["repeat"]["pattern"]);
    }
    assert_eq!(client.counted("q", "delayed"), 1940);
    let mut wrong = repeated(1900, |_| "0 0 * * *".to_owned());
    wrong[1800]["repeat"]["pattern"] = json!("0 0 31 2 *");
    let text = client.refused("PUSHB", json!({"queue": "q", "jobs": wrong}));
    let jobs = &wrong[1800..1801];
    let alone = client.refused("PUSHB", json!({"queue": "q", "jobs": jobs}));
    assert_eq!(text, alone.replace("jobs[0]", "jobs[1800]"));
    assert_eq!(client.counted("q", "delayed"), 1940, "nothing of it came");
    is_sliced(&mut client, "PUSHB");
}
