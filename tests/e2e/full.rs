//! A full disk. The fear: one that takes jobs and gives none back, that forgets what it took, or that
//! nothing but a hand can bring back.

use std::fs;

use serde_json::{Value, json};

use crate::e2e::space::{SEGMENT, disk_bytes, metrics, small, text};
use crate::support::{Client, Dice, Mount, Server, Start, until};

fn push(client: &mut Client, data: &str) -> Result<String, String> {
    let reply = client.call("PUSH", json!({"queue": "q", "data": data}));
    match reply["ok"].as_bool() {
        Some(true) => Ok(reply["id"].as_str().unwrap().to_owned()),
        _ => Err(reply["error"].as_str().unwrap().to_owned()),
    }
}

/// Fills the disk with jobs; returns their ids.
fn fill(client: &mut Client) -> Vec<String> {
    let data = text('f', 300_000);
    let mut ids = Vec::new();
    loop {
        match push(client, &data) {
            Ok(id) => ids.push(id),
            Err(error) => {
                assert_eq!(error, "Disk full");
                return ids;
            }
        }
        assert!(ids.len() < 2000, "the disk does not fill");
    }
}

/// Everything but what brings something new works on a full disk, and room made is used again.
fn live_on_a_full_disk(server: &mut Server) {
    let mut client = server.client();
    let mut ids = fill(&mut client);
    assert!(ids.len() > 40, "{} jobs fit", ids.len());
    let named =
        client.call("PUSH", json!({"queue": "q", "data": text('n', 300_000), "jobId": "n"}));
    assert_eq!(named["error"], "Disk full");
    // More than a connection may have unanswered: each of them has its answer.
    for _ in 0..60 {
        let again = json!({"queue": "q", "data": text('n', 300_000), "customId": "m"});
        assert_eq!(client.call("PUSH", again)["error"], "Disk full");
    }
    assert_eq!(client.call("GetJobByCustomId", json!({"customId": "n"}))["ok"], false);
    let cron =
        json!({"name": "c", "queue": "q", "data": text('c', 300_000), "schedule": "@yearly"});
    assert_eq!(client.call("Cron", cron)["error"], "Disk full");
    let url = format!("https://example.com/{}", text('h', 2000));
    // Of a queue where nothing happens.
    let hook = json!({"url": url, "events": [], "queue": "no"});
    let hooks = (0..1000).find_map(|_| {
        let reply = client.call("AddWebhook", hook.clone());
        (reply["ok"] == false).then(|| reply["error"].clone())
    });
    assert_eq!(hooks, Some(json!("Disk full")));
    let now = metrics(&mut client);
    assert_eq!(now["corq_log_full"], 1);
    assert!(now["corq_pushes_refused_total"] >= 1);
    let line = "the disk is full, or the log has all of DATA_MAX_MB: pushes are refused";
    until("it says so", || (server.output().matches(line).count() == 1).then_some(()));
    let mut web = server.web();
    let job = json!({"data": text('f', 300_000)});
    let refused = web.post("/queues/q/jobs", job);
    assert_eq!(
        refused.expect(507),
        json!({"ok": false, "error": "Disk full", "code": "disk_full"})
    );
    let ready = json!({"ok": false, "ready": false, "error": "Disk full", "code": "disk_full"});
    assert_eq!(web.get("/ready").expect(503), ready);
    let health = web.get("/health").expect(200);
    assert_eq!((&health["status"], &health["reason"]), (&json!("degraded"), &json!("Disk full")));

    let first = client.pull("q");
    assert_eq!(first["id"], json!(ids.remove(0)));
    client.ok("ACK", json!({"id": first["id"], "result": "done"}));
    let (second, token) = client.pull_owned("q", 3_600_000);
    assert_eq!(second["id"], json!(ids.remove(0)));
    client.ok("FAIL", json!({"id": second["id"], "token": token, "error": "why"}));
    let cancelled = ids.remove(0);
    client.ok("Cancel", json!({"id": cancelled}));

    server.kill();
    server.start();
    let mut client = server.client();
    for id in &ids {
        assert_eq!(client.state(id), "waiting", "{id} was acknowledged");
    }
    // A completed job makes room for jobs to be done.
    assert_ne!(client.state(first["id"].as_str().unwrap()), "waiting");
    // The backoff of the second job may have ended by now.
    let second = client.ok("GetJob", json!({"id": second["id"]}))["job"].clone();
    assert_eq!(second["attempts"], 1, "{second}");
    assert_eq!(client.state(&cancelled), "unknown");
    // A start cuts the last file behind its last block, so there is a little room.
    let more = fill(&mut client).len();
    assert!(more < ids.len(), "{more} jobs more");

    client.ok("Drain", json!({"queue": "q"}));
    until("service resumes by itself", || push(&mut client, &text('f', 300_000)).ok());
    // The first push may have taken what was left; a file more comes when the log asks again.
    until("the log has room", || (metrics(&mut client)["corq_log_full"] == 0).then_some(()));
    let mut web = server.web();
    assert_eq!(web.get("/ready").expect(200), json!({"ok": true, "ready": true}));
    assert_eq!(web.get("/health").expect(200)["status"], "healthy");
    assert!(fill(&mut client).len() > 30, "there is room for as many again");
}

#[test]
fn a_bound_on_the_log_refuses_jobs_and_nothing_else() {
    for durability in ["written", "synced"] {
        let start = small().env("DATA_MAX_MB", 96).env("DURABILITY", durability);
        let mut server = start.start();
        live_on_a_full_disk(&mut server);
        assert!(disk_bytes(&server.data) <= 96 << 20);
    }
}

#[test]
fn a_full_file_system_refuses_jobs_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("small");
    let Some(_mount) = Mount::new(&place, 180 << 20) else {
        eprintln!("not run: this machine lets no test mount a file system");
        return;
    };
    let mut server = small().argument("--data-path").argument(place.to_str().unwrap()).start();
    live_on_a_full_disk(&mut server);

    // Another program takes what is left, and gives it back.
    let mut client = server.client();
    client.ok("Drain", json!({"queue": "q"}));
    until("service resumes by itself", || push(&mut client, "small").ok());
    let free = until("the log has shrunk", || {
        let stat = rustix::fs::statvfs(&place).unwrap();
        Some(stat.f_bavail * stat.f_frsize).filter(|&free| free > 2 * SEGMENT)
    });
    let other = place.join("other");
    let file = fs::File::create(&other).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free).unwrap();
    let ids = fill(&mut client);
    assert_eq!(client.state(&ids[0]), "waiting");
    drop(file);
    fs::remove_file(&other).unwrap();
    until("service resumes by itself", || push(&mut client, &text('f', 300_000)).ok());
}

#[test]
fn a_bound_that_leaves_no_room_to_work_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let start = small().env("DATA_MAX_MB", 64);
    let (status, output) = start.run_to_its_end(&dir.path().join("d"));
    assert!(!status.success(), "{output}");
    assert!(output.contains("DATA_MAX_MB: 64") && output.contains("at least 80"), "{output}");
}

/// A shard that may take so many megabytes.
fn bounded(megabytes: u64) -> Start {
    small().env("DATA_MAX_MB", megabytes)
}

/// Fills queues with jobs of so many bytes until no job is taken; returns how many there are.
fn fill_queues(client: &mut Client, queues: &[&str], bytes: usize) -> u64 {
    let data = text('f', bytes);
    let batch = (2_000_000 / (bytes + 1000)).clamp(1, 1000);
    let jobs: Vec<Value> =
        (0..batch).map(|_| json!({"data": data, "maxAttempts": 2, "backoff": 0})).collect();
    let mut count = 0;
    let mut full = vec![false; queues.len()];
    while full.contains(&false) {
        for (queue, full) in queues.iter().zip(&mut full) {
            let reply = client.call("PUSHB", json!({"queue": queue, "jobs": jobs}));
            match reply["ok"].as_bool() {
                Some(true) => count += batch as u64,
                _ => {
                    assert_eq!(reply["error"], "Disk full");
                    *full = true;
                }
            }
        }
    }
    count
}

/// Pulls a batch under locks: ids and tokens.
fn pull_some(client: &mut Client, queue: &str, count: u64) -> (Vec<Value>, Vec<Value>) {
    let asked = json!({"queue": queue, "count": count, "owner": "w", "lockTtl": 600_000});
    let pulled = client.ok("PULLB", asked);
    let jobs = pulled["jobs"].as_array().unwrap().iter();
    let ids = jobs.map(|job| job["id"].clone()).collect();
    (ids, pulled["tokens"].as_array().unwrap().clone())
}

fn is_ready(server: &Server) -> bool {
    server.web().get("/ready").status == 200
}

/// The disk takes jobs again, by itself.
fn resumes(server: &Server, client: &mut Client) {
    until("the server is ready", || is_ready(server).then_some(()));
    until("jobs are taken", || push(client, "again").ok());
}

/// Guards that commands which end many jobs at once have room, whatever comes first; the fear of a tester, who saw the
/// third command never answered, and nothing after it.
#[test]
fn a_disk_full_of_tiny_jobs_is_drained_and_obliterated_queue_by_queue() {
    for durability in ["written", "synced"] {
        let mut server = bounded(96).env("DURABILITY", durability).start();
        let mut client = server.client();
        let queues = ["a", "b", "c", "d", "e"];
        let count = fill_queues(&mut client, &queues, 1);
        assert!(count > 100_000, "{count} jobs fit");
        assert!(!is_ready(&server));
        for (queue, command) in queues.iter().zip(["Drain", "Obliterate", "Drain", "Clean"]) {
            let fields = match command {
                "Clean" => json!({"queue": queue, "grace": 0, "limit": 1_000_000}),
                _ => json!({"queue": queue}),
            };
            client.ok(command, fields);
            assert_eq!(client.counted(queue, "waiting"), 0);
            assert_eq!(server.web().get("/healthz").status, 200);
            server.kill();
            server.start();
            client = server.client();
            assert_eq!(client.counted(queue, "waiting"), 0, "{queue} came back");
        }
        assert!(client.counted("e", "waiting") > 0);
        resumes(&server, &mut client);
        assert!(disk_bytes(&server.data) <= 96 << 20);
    }
}

/// Completed jobs are kept, but not at the price of those that come: workers alone bring a full disk back.
#[test]
fn workers_alone_bring_a_full_disk_back() {
    for (bytes, result) in [(1, json!(null)), (1000, json!(text('r', 2000))), (400_000, json!(1))] {
        let server = bounded(96).start();
        let mut client = server.client();
        let count = fill_queues(&mut client, &["q", "p"], bytes);
        let mut done = 0;
        loop {
            let mut any = false;
            for queue in ["q", "p"] {
                let (ids, tokens) = pull_some(&mut client, queue, 500);
                any |= !ids.is_empty();
                done += ids.len() as u64;
                let results = vec![&result; ids.len()];
                client.ok("ACKB", json!({"ids": ids, "tokens": tokens, "results": results}));
            }
            if !any {
                break;
            }
        }
        assert_eq!(done, count, "all that was taken is there, once");
        resumes(&server, &mut client);
        let now = metrics(&mut client);
        assert_eq!(now["corq_log_full"], 0);
        if bytes == 400_000 {
            assert!(now["corq_history_yielded_total"] > 0, "{now:?}");
            assert!(client.counted("q", "completed") < count / 2);
        }
        assert!(disk_bytes(&server.data) <= 96 << 20);
    }
}

/// Guards that a job which fills the smallest log there may be leaves room for the next one: completed jobs give way,
/// and a job that was large costs nothing once it is gone.
#[test]
fn the_smallest_log_takes_one_of_the_largest_jobs_after_another() {
    let mut server = bounded(80).start();
    let mut client = server.client();
    let data = text('l', 10_000_000);
    for round in 0..8 {
        let id = until("the job is taken", || push(&mut client, &data).ok());
        if round == 4 {
            server.kill();
            server.start();
            client = server.client();
        }
        let (ids, tokens) = pull_some(&mut client, "q", 1);
        assert_eq!(ids, [json!(id)]);
        if round % 2 == 0 {
            client.ok("ACK", json!({"id": id, "token": tokens[0], "result": text('r', 4000)}));
        } else {
            let fail = json!({"id": id, "token": tokens[0], "error": text('e', 4000)});
            client.ok("FAIL", fail);
            client.ok("Cancel", json!({"id": id}));
        }
    }
    resumes(&server, &mut client);
    assert!(disk_bytes(&server.data) <= 80 << 20);
}

/// Every failure is taken, whatever its text; short reasons are kept, long ones where there is room.
#[test]
fn every_job_of_a_full_disk_can_fail_with_a_long_reason() {
    let mut server = bounded(96).start();
    let mut client = server.client();
    let count = fill_queues(&mut client, &["q"], 300);
    let reason = text('e', 3000);
    let mut failed = 0;
    let mut long = 0;
    let mut kills = 0;
    while failed < count.min(12_000) {
        let (ids, tokens) = pull_some(&mut client, "q", 500);
        for (id, token) in ids.iter().zip(&tokens) {
            let fail = json!({"id": id, "token": token, "error": reason, "unrecoverable": true});
            client.ok("FAIL", fail);
            failed += 1;
        }
        if failed > 3000 * (kills + 1) {
            kills += 1;
            server.kill();
            server.start();
            client = server.client();
        }
    }
    assert_eq!(client.counted("q", "failed"), failed);
    let dead = client.ok("Dlq", json!({"queue": "q", "count": 1000}))["jobs"].clone();
    for job in dead.as_array().unwrap() {
        let told = job["failedReason"].as_str().unwrap();
        assert!(told == reason || told == text('e', 24), "{told}");
        long += u64::from(told == reason);
    }
    assert!(long > 0);
    let (ids, tokens) = pull_some(&mut client, "q", 1);
    let fail = json!({"id": ids[0], "token": tokens[0], "error": reason, "unrecoverable": true});
    client.ok("FAIL", fail);
    let cut = client.ok("GetJob", json!({"id": ids[0]}))["job"]["failedReason"].clone();
    assert_eq!(cut, json!(text('e', 24)), "no room is left for long ones");
    assert!(!is_ready(&server));
    assert_eq!(client.ok("PurgeDlq", json!({"queue": "q"}))["count"], json!(failed + 1));
    resumes(&server, &mut client);
}

/// Retries for ever end nothing and write all the time: the log is reclaimed as fast as they do.
#[test]
fn attempts_without_end_find_room_without_end() {
    let server = bounded(96).start();
    let mut client = server.client();
    let data = text('f', 20_000);
    let job = json!({"data": data, "maxAttempts": 1000, "backoff": 0});
    while client.call("PUSHB", json!({"queue": "q", "jobs": vec![&job; 20]}))["ok"] == true {}
    let count = client.counted("q", "waiting");
    let error = text('e', 10_000);
    for _ in 0..12 {
        for _ in 0..5 {
            let (ids, tokens) = pull_some(&mut client, "q", 200);
            for (id, token) in ids.iter().zip(&tokens) {
                client.ok("FAIL", json!({"id": id, "token": token, "error": error}));
            }
        }
        assert_eq!(server.web().get("/healthz").status, 200);
    }
    assert_eq!(client.counted("q", "waiting") + client.counted("q", "delayed"), count);
    assert!(metrics(&mut client)["corq_log_reclaimed_segments_total"] > 6);
    client.ok("Drain", json!({"queue": "q"}));
    resumes(&server, &mut client);
}

/// Two shards, whose commands go through each other's hands, with kills in between.
#[test]
fn two_full_shards_give_back_what_they_took_through_kills() {
    let start = small().env("SHARDS", 2).env("DATA_MAX_MB", 192);
    let mut server = start.start();
    let mut client = server.client();
    let queues = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut left = fill_queues(&mut client, &queues, 1);
    let mut dice = Dice::new(6);
    let mut rounds = 0;
    while left > 0 {
        rounds += 1;
        assert!(rounds < 2000, "{left} jobs are left");
        for queue in queues {
            match dice.roll(12) {
                0 => {
                    let count = client.counted(queue, "waiting");
                    if left > count || rounds > 20 {
                        client.ok("Drain", json!({"queue": queue}));
                        left -= count;
                    }
                }
                1 => {
                    let (ids, _) = pull_some(&mut client, queue, 1);
                    for id in &ids {
                        client.ok("Discard", json!({"id": id}));
                    }
                    left -= ids.len() as u64;
                }
                _ => {
                    let (ids, tokens) = pull_some(&mut client, queue, 1000);
                    client.ok("ACKB", json!({"ids": ids, "tokens": tokens}));
                    left -= ids.len() as u64;
                }
            }
        }
        if rounds % 7 == 3 {
            server.kill();
            server.start();
            client = server.client();
            let waiting: u64 = queues.iter().map(|queue| client.counted(queue, "waiting")).sum();
            assert_eq!(waiting, left, "after a kill");
        }
    }
    resumes(&server, &mut client);
}

/// Starts follow each other on a full disk, each of which leaves the end of a file unused.
#[test]
fn starts_on_a_full_file_system_find_room() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("small");
    let Some(_mount) = Mount::new(&place, 120 << 20) else {
        eprintln!("not run: this machine lets no test mount a file system");
        return;
    };
    let mut server = small().argument("--data-path").argument(place.to_str().unwrap()).start();
    let mut client = server.client();
    let count = fill_queues(&mut client, &["q"], 1000);
    for round in 0..12 {
        let (ids, tokens) = pull_some(&mut client, "q", 10);
        client.ok("ACKB", json!({"ids": ids, "tokens": tokens}));
        server.kill();
        server.start();
        client = server.client();
        assert_eq!(client.counted("q", "waiting"), count - 10 * (round + 1));
    }
    client.ok("Drain", json!({"queue": "q"}));
    resumes(&server, &mut client);

    // Another program takes all there is, the files set aside included: a start goes on in the segment
    // that the log ended in, and takes nothing new.
    server.terminate();
    for entry in fs::read_dir(place.join("shard-0000")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "spare") {
            fs::remove_file(path).unwrap();
        }
    }
    let stat = rustix::fs::statvfs(&place).unwrap();
    let file = fs::File::create(place.join("other")).unwrap();
    let free = stat.f_bavail * stat.f_frsize - (1 << 20);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free).unwrap();
    server.start();
    let mut client = server.client();
    until("pushes to be refused", || {
        push(&mut client, &text('n', 10_000)).err().filter(|error| error.starts_with("Disk full"))
    });
    assert!(!is_ready(&server));
    drop(file);
    fs::remove_file(place.join("other")).unwrap();
    resumes(&server, &mut client);
}

/// A setting that finds no room says so, in the words of everything else that does not.
#[test]
fn a_rule_that_finds_no_room_says_that_the_disk_is_full() {
    let server = bounded(96).start();
    let mut client = server.client();
    fill(&mut client);
    // Reasons of failures use up what is set aside for settings, but for what is too little for another.
    let reason = text('r', 60_000);
    for _ in 0..50 {
        let id = client.pull("q")["id"].clone();
        client.ok("FAIL", json!({"id": id, "error": reason, "unrecoverable": true}));
    }
    let refused = (0..5000).find_map(|n| {
        let config =
            json!({"queue": format!("{n}-{}", text('n', 200)), "config": {"maxEntries": 9}});
        let reply = client.call("SetDlqConfig", config);
        (reply["ok"] == false).then(|| reply["error"].clone())
    });
    assert_eq!(refused, Some(json!("Disk full")));
}
