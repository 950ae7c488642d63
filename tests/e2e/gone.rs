//! The data directory goes while a server uses it. The fear: jobs are acknowledged into files that nobody will
//! find again, and everything says that all is well.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::e2e::space::metrics;
use crate::support::tool::Tool;
use crate::support::{Client, Http, Server, Start, segments, until};

const GONE: &str = "The data directory is gone";

fn push(client: &mut Client) -> Result<(), String> {
    let reply = client.call("PUSH", json!({"queue": "q", "data": 1, "durable": true}));
    match reply["ok"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(reply["error"].as_str().unwrap().to_owned()),
    }
}

/// Waits until it is noticed, and looks that everything says so.
fn is_noticed(server: &Server, client: &mut Client, web: &mut Http, named: &str) {
    let refused = until("a job is refused", || push(client).err());
    assert_eq!(refused, GONE);
    let held = json!({"queue": "held", "jobs": [{"data": 1}, {"data": 2}]});
    assert_eq!(client.refused("PUSHB", held), GONE);
    for (command, fields) in [
        ("PULL", json!({"queue": "q"})),
        ("Pause", json!({"queue": "q"})),
        ("Drain", json!({"queue": "q"})),
        ("Cron", json!({"name": "c", "queue": "q", "data": 1, "schedule": "@yearly"})),
    ] {
        assert_eq!(client.refused(command, fields), GONE, "{command}");
    }
    // Questions are answered.
    client.counted("q", "waiting");
    for command in
        ["GetGroupsJobsCount", "GetGroupJobsCount", "GetGroupConcurrency", "IsGroupPaused"]
    {
        client.ok(command, json!({"queue": "q", "groupId": "g"}));
    }
    let ready = web.get("/ready");
    assert_eq!((ready.status, ready.text().contains(GONE)), (503, true), "{}", ready.text());
    let health = web.get("/health");
    assert!(health.text().contains(GONE), "{}", health.text());
    assert_eq!(web.get("/healthz").status, 200);
    assert_eq!(web.post("/queues/q/jobs", json!({"data": 1})).status, 503);
    assert_eq!(metrics(client)["corq_data_gone"], 1);
    let doctor = Tool::of(server).env("DATA_PATH", server.data.display()).run(&["doctor"]);
    assert!(doctor.out.contains("the data directory is gone"), "{doctor:?}");
    // The line follows what it is about.
    until("it to be said", || server.output().contains("nothing is taken").then_some(()));
    let said = server.output();
    assert_eq!(said.matches("nothing is taken").count(), 1, "{said}");
    assert!(said.contains(named), "{named}: {said}");
}

#[test]
fn a_data_directory_that_is_renamed_takes_no_jobs_until_it_is_back() {
    for part in ["", "shard-0000"] {
        let mut server = Server::start_default();
        let (mut client, mut web) = (server.client(), server.web());
        push(&mut client).unwrap();
        let place = server.data.join(part);
        let place = place.components().collect::<PathBuf>();
        let away = server.data.with_file_name("away");
        fs::rename(&place, &away).unwrap();
        is_noticed(&server, &mut client, &mut web, place.to_str().unwrap());
        // Another one in its place is not it.
        fs::create_dir(&place).unwrap();
        assert_eq!(push(&mut client), Err(GONE.to_owned()));
        fs::remove_dir(&place).unwrap();
        let before = client.counted("q", "waiting");
        fs::rename(&away, &place).unwrap();
        until("jobs are taken again", || push(&mut client).ok());
        until("it is ready", || (web.get("/ready").status == 200).then_some(()));
        assert_eq!(metrics(&mut client)["corq_data_gone"], 0);
        until("it to be said", || server.output().contains("is back").then_some(()));
        drop((client, web));
        assert!(server.terminate().success(), "{}", server.output());
        server.start();
        assert_eq!(server.client().counted("q", "waiting"), before + 1);
    }
}

/// Removes a directory in which the server may just make a file.
fn remove(data: &Path) {
    until("the directory is removed", || fs::remove_dir_all(data).is_ok().then_some(()));
}

#[test]
fn a_server_whose_data_directory_was_removed_ends_with_an_error() {
    let mut server = Server::start_default();
    let (mut client, mut web) = (server.client(), server.web());
    push(&mut client).unwrap();
    remove(&server.data);
    is_noticed(&server, &mut client, &mut web, server.data.to_str().unwrap());
    let status = server.terminate();
    assert_eq!(status.code(), Some(1), "{}", server.output());
}

/// Also if nobody has looked since: a stop looks once more.
#[test]
fn a_stop_right_after_the_removal_ends_with_an_error() {
    let mut server = Server::start_default();
    remove(&server.data);
    assert_eq!(server.terminate().code(), Some(1), "{}", server.output());
    let said = server.output();
    assert!(said.contains(server.data.to_str().unwrap()), "{said}");
}

/// Guards against a server that takes jobs into a directory which the next start refuses.
#[test]
fn a_server_whose_manifest_was_removed_takes_no_jobs_until_it_is_back() {
    let mut server = Server::start_default();
    let (mut client, mut web) = (server.client(), server.web());
    push(&mut client).unwrap();
    let manifest = server.data.join("MANIFEST");
    let text = fs::read(&manifest).unwrap();
    fs::remove_file(&manifest).unwrap();
    is_noticed(&server, &mut client, &mut web, manifest.to_str().unwrap());
    fs::write(&manifest, text).unwrap();
    until("jobs are taken again", || push(&mut client).ok());
    fs::remove_file(&manifest).unwrap();
    until("a job is refused", || push(&mut client).err());
    assert_eq!(server.terminate().code(), Some(1), "{}", server.output());
}

/// The file of the log that is written, removed or replaced by a copy of itself.
#[test]
fn a_server_that_has_lost_the_file_it_writes_to_takes_no_jobs() {
    for replaced in [false, true] {
        let mut server = Start::new().env("SHARDS", 1).start();
        push(&mut server.client()).unwrap();
        server.kill();
        server.start();
        let (mut client, mut web) = (server.client(), server.web());
        push(&mut client).unwrap();
        let files = segments(&server.data, "shard-0000");
        assert!(files.len() > 1, "{files:?}");
        let file = &files[files.len() - 1];
        // The server knows all files when it has looked once more.
        let looked = metrics(&mut client)["corq_data_looks_total"];
        until("the server has looked", || {
            (metrics(&mut client)["corq_data_looks_total"] > looked + 1).then_some(())
        });
        if replaced {
            let copy = server.data.join("copy");
            fs::copy(file, &copy).unwrap();
            fs::rename(&copy, file).unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
        is_noticed(&server, &mut client, &mut web, file.to_str().unwrap());
        assert_eq!(server.terminate().code(), Some(1), "{}", server.output());
    }
}

/// Files that come and go by the server's own hand are none that are missing.
#[test]
fn a_log_that_is_reclaimed_misses_nothing() {
    let server = crate::e2e::space::small().start();
    let mut client = server.client();
    let data = "c".repeat(100_000);
    until("the log was reclaimed while it was looked at", || {
        let jobs: Vec<_> =
            (0..20).map(|_| json!({"data": data, "removeOnComplete": true})).collect();
        client.ok("PUSHB", json!({"queue": "churn", "jobs": jobs}));
        let pulled = client.ok("PULLB", json!({"queue": "churn", "count": 20}))["jobs"].clone();
        let ids: Vec<_> = pulled.as_array().unwrap().iter().map(|job| &job["id"]).collect();
        client.ok("ACKB", json!({"ids": ids}));
        let now = metrics(&mut client);
        assert_eq!(now["corq_data_gone"], 0);
        let looked = now["corq_data_looks_total"] > 2;
        (now["corq_log_reclaimed_segments_total"] > 8 && looked).then_some(())
    });
    assert!(!server.output().contains("gone"), "{}", server.output());
}
