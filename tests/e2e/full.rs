//! A full disk, under the whole server. The fear: one that takes jobs and gives none back, that forgets what it took, or
//! that nothing but a hand can bring back. Long lives of jobs on a full log are in
//! `src/server/storage/disk_full_tests.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::e2e::space::{SEGMENT, disk_bytes, metrics, small, text};
use crate::support::{Client, Mount, Server, until};

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

/// Another program takes all of a file system but so many bytes; the file that has them.
fn take_all_but(place: &Path, left: u64) -> PathBuf {
    let stat = rustix::fs::statvfs(place).unwrap();
    let path = place.join("other");
    let file = fs::File::create(&path).unwrap();
    let bytes = stat.f_bavail * stat.f_frsize - left;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
    path
}

fn is_ready(server: &Server) -> bool {
    server.web().get("/ready").status == 200
}

/// The disk takes jobs again, by itself.
fn resumes(server: &Server, client: &mut Client) {
    until("the server is ready", || is_ready(server).then_some(()));
    until("jobs are taken", || push(client, "again").ok());
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
fn a_full_file_system_refuses_jobs_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("small");
    let Some(_mount) = Mount::new(&place, 180 << 20) else {
        eprintln!("only the log is bounded: this machine lets no test mount a file system");
        return live_on_a_full_disk(&mut small().env("DATA_MAX_MB", 96).start());
    };
    let mut server = small().argument("--data-path").argument(place.to_str().unwrap()).start();
    live_on_a_full_disk(&mut server);

    // Another program takes what is left, and gives it back.
    let mut client = server.client();
    client.ok("Drain", json!({"queue": "q"}));
    until("service resumes by itself", || push(&mut client, "small").ok());
    until("the log has shrunk", || {
        let stat = rustix::fs::statvfs(&place).unwrap();
        (stat.f_bavail * stat.f_frsize > 2 * SEGMENT).then_some(())
    });
    let other = take_all_but(&place, 0);
    let ids = fill(&mut client);
    assert_eq!(client.state(&ids[0]), "waiting");
    fs::remove_file(&other).unwrap();
    until("service resumes by itself", || push(&mut client, &text('f', 300_000)).ok());
}

/// Starts follow each other on a full disk, each of which leaves the end of a file unused; the first of them before any
/// job has come.
#[test]
fn starts_on_a_full_file_system_find_room() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("small");
    let Some(_mount) = Mount::new(&place, 120 << 20) else {
        eprintln!("not run: this machine lets no test mount a file system");
        return;
    };
    let mut server = small().argument("--data-path").argument(place.to_str().unwrap()).start();
    // Other programs leave less than the first file would take.
    let other = take_all_but(&place, 10 << 20);
    for _ in 0..2 {
        let mut client = server.client();
        for _ in 0..3 {
            assert_eq!(push(&mut client, "first"), Err("Disk full".to_owned()));
            assert_eq!(client.counted("q", "waiting"), 0);
        }
        server.kill();
        server.start();
    }
    fs::remove_file(&other).unwrap();
    let mut client = server.client();
    resumes(&server, &mut client);

    let jobs = vec![json!({"data": text('f', 1000)}); 1000];
    while client.call("PUSHB", json!({"queue": "q", "jobs": jobs}))["ok"] == true {}
    let count = client.counted("q", "waiting");
    for round in 0..12 {
        let pull = json!({"queue": "q", "count": 10, "owner": "w", "lockTtl": 600_000});
        let pulled = client.ok("PULLB", pull);
        let jobs = pulled["jobs"].as_array().unwrap().iter();
        let ids: Vec<_> = jobs.map(|job| job["id"].clone()).collect();
        client.ok("ACKB", json!({"ids": ids, "tokens": pulled["tokens"]}));
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
    let other = take_all_but(&place, 1 << 20);
    server.start();
    let mut client = server.client();
    until("pushes to be refused", || {
        push(&mut client, &text('n', 10_000)).err().filter(|error| error.starts_with("Disk full"))
    });
    assert!(!is_ready(&server));
    fs::remove_file(&other).unwrap();
    resumes(&server, &mut client);
}

/// A setting that finds no room says so, in the words of everything else that does not.
#[test]
fn a_rule_that_finds_no_room_says_that_the_disk_is_full() {
    let server = small().env("DATA_MAX_MB", 96).start();
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
    assert!(disk_bytes(&server.data) <= 96 << 20);
}
