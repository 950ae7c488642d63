//! Room on the disk. The fear: a log that grows for ever, a job that is lost when its part of the log
//! goes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Client, Start, until};

pub(crate) const SEGMENT: u64 = 16 << 20;

/// A shard with the smallest files there are, and hardly any memory for payloads.
pub(crate) fn small() -> Start {
    Start::new().env("SHARDS", 1).env("SEGMENT_MB", 16).env("PAYLOAD_CACHE_MB", 4)
}

pub(crate) fn text(byte: char, length: usize) -> String {
    std::iter::repeat_n(byte, length).collect()
}

/// Bytes of all files of the log.
pub(crate) fn disk_bytes(data: &Path) -> u64 {
    let entries = fs::read_dir(data.join("shard-0000")).unwrap();
    entries.map(|entry| entry.unwrap().metadata().map_or(0, |about| about.len())).sum()
}

pub(crate) fn metrics(client: &mut Client) -> BTreeMap<String, u64> {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let lines = text.as_str().unwrap().lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.rsplit_once(' '));
    // Some are fractions, of which nobody asks here.
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Bytes of the disk that the files of each shard take.
fn taken(data: &Path, shards: usize) -> Vec<u64> {
    let of = |shard: usize| {
        let files = fs::read_dir(data.join(format!("shard-{shard:04}"))).unwrap();
        files.map(|file| file.unwrap().metadata().map_or(0, |about| about.blocks() * 512)).sum()
    };
    (0..shards).map(of).collect()
}

#[test]
fn a_shard_takes_little_of_the_disk_before_its_first_job() {
    let mut server = Start::new().env("SHARDS", 4).env("SEGMENT_MB", 16).start();
    let is_little = |&&bytes: &&u64| bytes < 2 << 20;
    let little = |data: &Path| taken(data, 4).iter().filter(is_little).count();
    assert_eq!(little(&server.data), 4, "{:?}", taken(&server.data, 4));
    // Commands without a job take no more.
    server.client().ok("ListQueues", json!({}));
    assert_eq!(server.client().pull("nothing"), Value::Null);
    assert_eq!(little(&server.data), 4);
    server.client().push("one", 1);
    assert_eq!(little(&server.data), 3, "{:?}", taken(&server.data, 4));
    let most = taken(&server.data, 4).into_iter().max().unwrap();
    assert!(most >= 3 * SEGMENT, "the job can be ended on a full disk: {most}");
    server.kill();
    server.start();
    assert_eq!(little(&server.data), 3, "{:?}", taken(&server.data, 4));
    assert_eq!(server.client().counted("one", "waiting"), 1);
    assert!(server.terminate().success());
    Tool::at(1).ok(&["log", "verify", server.data.to_str().unwrap()]);
}

/// Brings in and completes so many jobs of 100 KB, of which nothing is kept.
fn churn(client: &mut Client, jobs: usize) {
    let data = text('c', 100_000);
    for _ in 0..jobs / 20 {
        let batch: Vec<Value> =
            (0..20).map(|_| json!({"data": data, "removeOnComplete": true})).collect();
        client.ok("PUSHB", json!({"queue": "churn", "jobs": batch}));
        let pulled = client.ok("PULLB", json!({"queue": "churn", "count": 20}))["jobs"].clone();
        let ids: Vec<&Value> = pulled.as_array().unwrap().iter().map(|job| &job["id"]).collect();
        client.ok("ACKB", json!({"ids": ids}));
    }
}

/// Jobs in every state, which are to be found unchanged whatever happens to the log.
fn witnesses(client: &mut Client) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..5 {
        let data = text('w', 200_000 + n);
        let id = client.push_with("dead", data.as_str(), json!({"maxAttempts": 1, "tags": ["t"]}));
        client.pull("dead");
        client.ok("FAIL", json!({"id": id, "error": format!("why {n}")}));
        ids.push(id);
        let id = client.push_with("done", data.as_str(), json!({"jobId": format!("done-{n}")}));
        client.pull("done");
        client.ok("AddLog", json!({"id": id, "message": format!("line {n}")}));
        client.ok("Progress", json!({"id": id, "progress": 50, "message": "half"}));
        client.ok("ACK", json!({"id": id, "result": {"n": n}}));
        ids.push(id);
        ids.push(client.push_with(
            "later",
            data.as_str(),
            json!({"delay": 3_600_000, "groupId": "g"}),
        ));
        ids.push(client.push_with(
            "wait",
            data.as_str(),
            json!({"lifo": n % 2 == 0, "priority": n / 2}),
        ));
    }
    let repeat = json!({"repeat": {"every": 1, "limit": 4}});
    client.push_with("again", text('r', 300_000), repeat);
    for _ in 0..3 {
        let id = until("a run is due", || {
            let job = client.ok("PULL", json!({"queue": "again"}))["job"].clone();
            job["id"].as_str().map(ToOwned::to_owned)
        });
        client.ok("ACK", json!({"id": id}));
        ids.push(id);
    }
    client.ok("Pause", json!({"queue": "dead"}));
    client.ok("RateLimit", json!({"queue": "dead", "limit": 7}));
    let hook = json!({"url": "https://example.com/hook", "events": ["job.failed"], "queue": "no"});
    client.ok("AddWebhook", hook);
    client.ok("Cron", json!({"name": "yearly", "queue": "c", "data": 1, "schedule": "@yearly"}));
    ids
}

/// All that clients can see of them.
fn seen(client: &mut Client, ids: &[String]) -> Value {
    let mut all = Vec::new();
    for id in ids {
        let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
        assert!(job["data"].as_str().is_some_and(|data| data.len() >= 200_000), "{id}");
        let result = client.ok("GetResult", json!({"id": id}))["result"].clone();
        let logs = client.ok("GetLogs", json!({"id": id}))["data"].clone();
        let progress = client.ok("GetProgress", json!({"id": id}))["message"].clone();
        all.push(json!([job, result, logs, progress]));
    }
    for queue in ["dead", "done", "later", "wait", "again"] {
        all.push(client.ok("GetJobCounts", json!({"queue": queue}))["counts"].clone());
        all.push(client.ok("IsPaused", json!({"queue": queue}))["paused"].clone());
        all.push(client.ok("Dlq", json!({"queue": queue}))["jobs"].clone());
    }
    all.push(client.ok("CronList", json!({}))["crons"].clone());
    all.push(client.ok("ListWebhooks", json!({}))["data"]["webhooks"].clone());
    json!(all)
}

#[test]
fn the_log_stays_small_and_what_lives_moves_on_with_it() {
    for durability in ["written", "synced"] {
        let mut server = small().env("DURABILITY", durability).start();
        let mut client = server.client();
        let ids = witnesses(&mut client);
        let before = seen(&mut client, &ids);
        for round in 0..3 {
            churn(&mut client, 800);
            let now = metrics(&mut client);
            let live = now["corq_log_live_bytes"];
            assert!((4 << 20..32 << 20).contains(&live), "{live}");
            // Twice the live bytes, three segments in use beyond that, and the reserve.
            let most = 2 * live + 3 * SEGMENT + 4 * SEGMENT;
            let found = disk_bytes(&server.data);
            assert!(found <= most, "round {round}: {} MB with {live} live", found >> 20);
            assert!(now["corq_log_disk_bytes"] >= found);
            assert!(seen(&mut client, &ids) == before, "round {round}");
            // A kill leaves what is being reclaimed as it was.
            if round < 2 {
                server.kill();
                server.start();
                client = server.client();
                assert!(seen(&mut client, &ids) == before, "after a restart");
            }
        }
        let now = metrics(&mut client);
        assert!(now["corq_log_reclaimed_segments_total"] > 3);
        assert!(now["corq_log_rewritten_bytes_total"] > 1_000_000);
        assert_eq!(now["corq_log_full"], 0);
        until("files that have gone are not held open", || {
            let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
            let mut links = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
            let is_held = links.any(|link| link.to_string_lossy().ends_with(" (deleted)"));
            (!is_held).then_some(())
        });
    }
}

/// Guards against jobs that hardly ever change between others that come and go: all of them have to be moved again and
/// again, and the log must not outgrow its bound meanwhile. A log of which nothing is needed goes by itself.
#[test]
fn a_large_cold_backlog_does_not_let_the_log_grow() {
    let server = small().start();
    let mut client = server.client();
    let data = text('b', 500_000);
    for _ in 0..10 {
        let batch: Vec<Value> =
            (0..20).map(|_| json!({"data": data, "delay": 3_600_000})).collect();
        client.ok("PUSHB", json!({"queue": "cold", "jobs": batch}));
    }
    let live = metrics(&mut client)["corq_log_live_bytes"];
    assert!((100_000_000..110_000_000).contains(&live), "{live}");
    for _ in 0..30 {
        churn(&mut client, 120);
        let found = disk_bytes(&server.data);
        assert!(found <= 2 * live + 7 * SEGMENT, "{} MB with {live} live", found >> 20);
    }
    assert!(metrics(&mut client)["corq_log_rewritten_bytes_total"] > live);
    assert_eq!(client.counted("cold", "delayed"), 200);
    let job = client.ok("GetJobs", json!({"queue": "cold", "limit": 1}))["jobs"][0].clone();
    assert_eq!(job["data"], json!(data));
    client.ok("Obliterate", json!({"queue": "cold"}));
    until("the disk is given back", || (disk_bytes(&server.data) <= 6 * SEGMENT).then_some(()));
}

/// Damage in an old part of the log is reported with its place, is served to no client, and stops nothing
/// else. A start refuses it by name.
#[test]
fn damage_is_reported_with_its_place_and_never_served() {
    let mut server = small().env("FSYNC_INTERVAL_MS", 1).start();
    let mut client = server.client();
    let bad = client.push_with("w", text('x', 300_000), json!({"delay": 3_600_000}));
    let good = client.push_with("w", text('y', 300_000), json!({"delay": 3_600_000}));
    churn(&mut client, 100);
    let first = server.data.join("shard-0000/0000000000000000.seg");
    let bytes = fs::read(&first).unwrap();
    let at = bytes.windows(64).position(|window| window == &[b'x'; 64][..]).unwrap();
    let file = fs::File::options().write(true).open(&first).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"z", at as u64 + 1000).unwrap();
    assert_eq!(client.call("GetJob", json!({"id": bad}))["error"], "The stored job is damaged");
    assert_eq!(client.ok("GetJob", json!({"id": good}))["job"]["id"], json!(good));
    churn(&mut client, 1000);
    until("the damage is reported", || {
        let output = server.output();
        let words = "compaction paused: 0000000000000000.seg cannot be read at byte ";
        output.contains(words).then_some(())
    });
    churn(&mut client, 20);
    server.kill();
    let (status, output) = small().run_to_its_end(&server.data);
    assert!(!status.success(), "{output}");
    assert!(output.contains("0000000000000000.seg is damaged at byte"), "{output}");
}
