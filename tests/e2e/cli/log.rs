//! The log of a data directory, looked at and mended with the program. The fear: damage that is not
//! found, a tool that changes what it looks at, a repair that loses what was whole.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::support::tool::{Ran, Tool, line_of};
use crate::support::{Client, Server, Start, until};

fn tool() -> Tool {
    Tool::at(1)
}

fn words<'a>(words: &[&'a str], data: &'a Path) -> Vec<&'a str> {
    words.iter().copied().chain([data.to_str().unwrap()]).collect()
}

/// A server with jobs in every state but active on both of its shards.
fn filled(start: Start) -> Server {
    let server = start.start();
    fill(&mut server.client());
    // Whose client is gone goes back, in its time.
    let mut client = server.client();
    for queue in ["log-a", "log-b", "log-c"] {
        until("nothing is active", || (client.counted(queue, "active") == 0).then_some(()));
    }
    server
}

/// Fills the queues with jobs in many states; those that are active are the client's.
fn fill(client: &mut Client) {
    for queue in ["log-a", "log-b", "log-c"] {
        for n in 0..30 {
            client.push(queue, json!({"n": n, "filler": "f".repeat(2000)}));
        }
        for n in 0..10 {
            let (job, token) = client.pull_owned(queue, 60_000);
            match n {
                0..4 => {
                    let ack = json!({"id": job["id"], "token": token, "result": n});
                    client.ok("ACK", ack);
                }
                4..7 => drop(client.ok(
                    "FAIL",
                    json!({"id": job["id"], "token": token, "error": "no", "unrecoverable": true}),
                )),
                _ => {}
            }
        }
        client.push_with(queue, "later", json!({"delay": 3_600_000}));
    }
    client.ok("Pause", json!({"queue": "log-a"}));
}

fn dump(data: &Path, filter: &[&str]) -> Vec<Json> {
    let out = tool().ok(&[&words(&["log", "dump"], data), filter].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All files of a directory with their bytes, but for the lock.
fn files(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("LOCK") {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn total(stat: &Json, figure: &str) -> u64 {
    stat["shards"].as_array().unwrap().iter().map(|shard| shard[figure].as_u64().unwrap()).sum()
}

#[test]
fn a_sound_log_is_told_so_while_a_server_writes_it_and_afterwards() {
    let mut server = filled(Start::new());
    let data = server.data.clone();
    let out = tool().ok(&words(&["log", "verify"], &data));
    assert!(out.contains("all is whole (a server is using it)"), "{out}");
    assert!(server.terminate().success());
    let before = files(&data);
    let out = tool().ok(&words(&["log", "verify"], &data));
    assert!(out.starts_with("2 shards, ") && out.trim_end().ends_with(": all is whole"), "{out}");
    let report = tool().json(&words(&["log", "verify"], &data));
    assert_eq!((&report["ok"], &report["live"]), (&json!(true), &json!(false)));
    assert_eq!((&report["damages"], &report["tornTails"]), (&json!([]), &json!([])));
    assert!(report["records"].as_u64().unwrap() > 90);
    tool().ok(&words(&["log", "stat"], &data));
    dump(&data, &[]);
    assert!(files(&data) == before, "looking changes nothing");
}

#[test]
fn the_figures_of_a_log_are_those_of_its_server() {
    let server = Server::start_default();
    let mut client = server.client();
    fill(&mut client);
    let stat = tool().json(&words(&["log", "stat"], &server.data));
    assert_eq!(
        stat["jobs"],
        json!({"waiting": 60, "delayed": 3, "active": 9, "completed": 12, "failed": 9, "waiting-children": 0})
    );
    let counts = client.ok("GetJobCounts", json!({"queue": "log-a"}))["counts"].clone();
    let queue = stat["queues"].as_array().unwrap().iter().find(|it| it["name"] == "log-a").unwrap();
    assert_eq!(queue["paused"], true);
    for state in ["waiting", "delayed", "active", "completed", "failed"] {
        assert_eq!(queue[state], counts[state], "{state}");
    }
    assert_eq!(stat["records"]["pushed"]["count"], 93);
    assert_eq!(stat["records"]["done"]["count"], 12);
    assert_eq!(stat["records"]["paused"]["count"], 1);
    let metrics = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let live = metrics
        .as_str()
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("corq_log_live_bytes ")?.parse::<u64>().ok());
    assert_eq!(Some(total(&stat, "liveBytes")), live);
    assert_eq!(total(&stat, "bytes"), total(&stat, "liveBytes") + total(&stat, "deadBytes"));
    let out = tool().ok(&words(&["log", "stat"], &server.data));
    for word in ["SEGMENTS", "pushed", "log-b", "waiting", "DEAD"] {
        assert!(out.contains(word), "{word} in {out}");
    }
}

#[test]
fn records_are_dumped_as_lines_of_json_and_filtered() {
    let server = filled(Start::new());
    let all = dump(&server.data, &[]);
    let pushed: Vec<&Json> = all.iter().filter(|it| it["kind"] == "pushed").collect();
    assert_eq!(pushed.len(), 93);
    let first = pushed[0];
    assert_eq!((&first["data"]["n"], &first["maxAttempts"]), (&json!(0), &json!(3)));
    assert!(first["file"].as_str().unwrap().strip_suffix(".seg").is_some(), "{first}");
    assert!(first["offset"].as_u64().unwrap() >= 4096);

    let of_queue = dump(&server.data, &["--queue", "log-b"]);
    assert!(of_queue.iter().all(|it| it["queue"].is_null() || it["queue"] == "log-b"));
    let count = |kind: &str| of_queue.iter().filter(|it| it["kind"] == kind).count();
    assert_eq!((count("pushed"), count("done"), count("paused")), (31, 4, 0));
    assert_eq!(count("buried-for"), 3, "records that name only the job");

    let kinds = dump(&server.data, &["--kind", "done,paused"]);
    assert_eq!(kinds.len(), 13);
    let one: Vec<Json> = dump(&server.data, &["--shard", "1"]);
    let behind = one[one.len() / 2]["position"].as_u64().unwrap();
    let later = dump(&server.data, &["--shard", "1", "--from", &format!("{behind:#x}")]);
    assert_eq!(later, one[one.len() / 2..]);
    assert!(one.iter().all(|it| it["shard"] == 1) && one.len() < all.len());

    let line =
        tool().fails(2, &[&words(&["log", "dump"], &server.data)[..], &["--shard", "2"]].concat());
    assert!(line.contains("no shard 2"), "{line}");
    let line = tool()
        .fails(2, &[&words(&["log", "dump"], &server.data)[..], &["--kind", "push"]].concat());
    assert!(line.contains("pushed, leased"), "{line}");
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().with_extension("new");
    let to = ["--to", to.to_str().unwrap()];
    for (command, more) in [("verify", &[][..]), ("stat", &[]), ("dump", &[]), ("repair", &to)] {
        let line = tool().fails(1, &words(&[&["log", command], more].concat(), dir.path()));
        assert!(line.contains("MANIFEST"), "{command}: {line}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{command} leaves nothing");
    }
}

/// A stopped server's directory in which one block of a job's record is changed; the file, the job's number.
fn damaged(server: &mut Server) -> (PathBuf, u64) {
    server.kill();
    // Once more, so that all of it is said to be synced.
    server.start();
    assert!(server.terminate().success());
    let records = dump(&server.data, &["--kind", "pushed", "--queue", "log-b"]);
    let record = &records[15];
    let shard = record["shard"].as_u64().unwrap();
    let path = server.data.join(format!("shard-{shard:04}")).join(record["file"].as_str().unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[record["offset"].as_u64().unwrap() as usize + 500] ^= 0x20;
    fs::write(&path, bytes).unwrap();
    (path, record["data"]["n"].as_u64().unwrap())
}

fn numbers(client: &mut Client, queue: &str, state: &str) -> Vec<u64> {
    let reply = client.ok("GetJobs", json!({"queue": queue, "state": state, "limit": 1000}));
    let jobs = reply["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["data"]["n"].as_u64().unwrap_or(1000)).collect()
}

#[test]
fn damage_is_named_with_file_and_byte_and_a_repair_saves_the_rest() {
    let mut server = filled(Start::new());
    let mut client = server.client();
    let before: Vec<Vec<u64>> = ["log-a", "log-b", "log-c"]
        .iter()
        .map(|queue| numbers(&mut client, queue, "waiting"))
        .collect();
    let (path, number) = damaged(&mut server);
    let name = path.file_name().unwrap().to_str().unwrap();

    let Ran { code, out, err } = tool().run(&words(&["log", "verify"], &server.data));
    assert_eq!(code, Some(1));
    assert!(out.contains(name) && out.contains("is damaged at byte"), "{out}");
    assert!(line_of(&err).starts_with("the log is damaged in 1 place"), "{err}");
    let ran = tool().run(&words(&["log", "verify", "--json"], &server.data));
    let report: Json = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &report["ok"]), (Some(1), &json!(false)));
    assert_eq!(report["damages"][0]["file"], name);
    assert_eq!(report["damages"][0]["lostBlocks"], 1);
    assert!(report["damages"][0]["offset"].as_u64().unwrap() >= 4096);
    for command in ["stat", "dump"] {
        let ran = tool().run(&words(&["log", command], &server.data));
        assert_eq!(ran.code, Some(1), "{command}");
        assert!(ran.err.contains("corq log verify") && !ran.out.is_empty(), "{ran:?}");
    }
    let (status, said) = Start::new().run_to_its_end(&server.data);
    assert!(!status.success() && said.contains("is damaged at byte"), "{said}");
    // The log spans two starts. Both name the same byte, the start does so once and says what shows more.
    let offset = &report["damages"][0]["offset"];
    let place = format!("{name} is damaged at byte {offset}");
    assert_eq!(said.matches(&place).count(), 1, "{place}: {said}");
    let shown = format!("corq log verify {}", server.data.display());
    assert!(said.contains(&shown), "{said}");

    let untouched = files(&server.data);
    let to = server.data.with_file_name("new");
    let out = tool().ok(&words(&["log", "repair", "--to", to.to_str().unwrap()], &server.data));
    assert!(out.contains("bridged 1 lost block") && out.contains("can be started from"), "{out}");
    assert!(files(&server.data) == untouched, "the source is as it was");
    tool().ok(&words(&["log", "verify"], &to));
    let copied = Start::new().start_at(&to);
    let mut client = copied.client();
    for (queue, mut expected) in ["log-a", "log-b", "log-c"].into_iter().zip(before) {
        if queue == "log-b" {
            expected.retain(|n| *n != number);
        }
        assert_eq!(numbers(&mut client, queue, "waiting"), expected, "{queue}");
        assert_eq!(client.counted(queue, "completed"), 4, "{queue}");
    }
    client.push("log-b", json!({"n": 77}));
}

#[test]
fn a_repair_is_refused_while_a_server_has_the_directory() {
    let server = filled(Start::new());
    let to = server.data.with_file_name("new");
    let line =
        tool().fails(1, &words(&["log", "repair", "--to", to.to_str().unwrap()], &server.data));
    assert!(line.contains(&format!("in use by process {}", server.pid())), "{line}");
    server.client().push("log-a", 1);
}

#[test]
fn a_torn_tail_is_no_damage() {
    let mut server = filled(Start::new().env("SHARDS", 1).env("FSYNC_INTERVAL_MS", 60_000));
    server.kill();
    let records = dump(&server.data, &[]);
    let last = records.last().unwrap();
    let path = server.data.join("shard-0000").join(last["file"].as_str().unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[last["offset"].as_u64().unwrap() as usize + 9] ^= 1;
    fs::write(&path, bytes).unwrap();
    let out = tool().ok(&words(&["log", "verify"], &server.data));
    assert!(out.contains("torn tail") && out.contains("all is whole"), "{out}");
    let report = tool().json(&words(&["log", "verify"], &server.data));
    assert_eq!(report["tornTails"].as_array().unwrap().len(), 1);
    let to = server.data.with_file_name("new");
    let line =
        tool().fails(1, &words(&["log", "repair", "--to", to.to_str().unwrap()], &server.data));
    assert!(line.contains("nothing is damaged"), "{line}");
    server.start();
    assert!(server.output().contains("dropped"));
}
