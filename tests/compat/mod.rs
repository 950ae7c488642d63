//! Logs that earlier builds have written, opened for ever. The fear: an upgrade that refuses the data of the
//! release before, or reads something else in it.
//!
//! `0001/`, `0002/`, ... each hold a data directory (`data/`) and what it leads to (`state.json`). They are
//! written once and never again: whatever becomes of the code, it must read the same from them. If one of
//! these tests fails, the code is wrong, not the files.
//!
//! A new kind of record, or a new version of the format, makes
//! `the_files_hold_every_kind_of_record_there_is` fail until there are files that have it:
//!
//! 1. let it happen in `life.rs`, next to what is like it, and show what it does in `state.rs` (a new name
//!    there leaves old states as they are: only add it where the fact is there);
//! 2. `cargo test -p corq-tests --test system write_the_next_files -- --ignored` writes the next number;
//! 3. look at the difference between the last two `state.json`; commit the new directory with the change.
//!
//! Before a release, if anything about the log has changed since the last one, do 2 and 3 as well.

mod life;
mod state;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use corq_io::log::FORMAT_VERSION;
use corq_shards::log_record::KINDS;
use serde_json::{Value as Json, json};

use tempfile::TempDir;

use crate::ROOT;
use crate::support::tool::Tool;
use crate::support::{Server, Start, until};
use life::COMPLETED_MAX;

/// Where the directories lie.
fn home() -> PathBuf {
    Path::new(ROOT).join("tests/compat")
}

/// Where the directories are or will be, oldest first.
fn numbered() -> impl Iterator<Item = PathBuf> {
    (1..10_000).map(|number| home().join(format!("{number:04}")))
}

/// All directories, oldest first.
fn all() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = numbered().take_while(|path| path.is_dir()).collect();
    assert!(!found.is_empty(), "there is nothing in {}", home().display());
    found
}

fn expected(directory: &Path) -> Json {
    serde_json::from_str(&fs::read_to_string(directory.join("state.json")).unwrap()).unwrap()
}

/// A copy that a server may write to.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            fs::copy(&path, &copied).unwrap();
            give_length_back(&copied);
        }
    }
}

/// The files lie here without the zeros at their end, which count in those that say that they keep their length.
fn give_length_back(path: &Path) {
    let bytes = fs::read(path).unwrap();
    if bytes.starts_with(b"CQSG") && bytes[48] & 2 != 0 {
        let segment_bytes = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
        fs::File::options().write(true).open(path).unwrap().set_len(segment_bytes).unwrap();
    }
}

/// A copy of the data directory in `directory`.
fn copied(directory: &Path) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    copy(&directory.join("data"), &data);
    (home, data)
}

#[test]
#[ignore = "writes files that stay for ever, see the top of this file"]
fn write_the_next_files() {
    let directory = numbered().find(|path| !path.exists()).unwrap();
    fs::create_dir(&directory).unwrap();
    let data = directory.join("data");
    life::write(&data);
    let (_home, data) = copied(&directory);
    let state = serde_json::to_string_pretty(&state::state(&data)).unwrap();
    fs::write(directory.join("state.json"), state + "\n").unwrap();
}

#[test]
fn every_log_ever_written_leads_to_the_state_it_led_to() {
    for directory in all() {
        let (_home, data) = copied(&directory);
        let (found, expected) = (state::state(&data), expected(&directory));
        for (shard, (found, expected)) in parts(&found).zip(parts(&expected)).enumerate() {
            for part in ["jobs", "queues", "crons", "webhooks", "past"] {
                let (found, expected) = (parts(&found[part]), parts(&expected[part]));
                for (found, expected) in found.zip(expected) {
                    assert_eq!(found, expected, "{}, shard {shard}", directory.display());
                }
            }
        }
        assert!(found == expected, "{}: there is more, or less", directory.display());
    }
}

fn parts(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().unwrap().iter()
}

#[test]
fn the_files_hold_every_kind_of_record_there_is() {
    let known: BTreeSet<String> = KINDS.iter().map(|(_, name)| (*name).to_owned()).collect();
    let found: BTreeSet<String> = all()
        .iter()
        .flat_map(|directory| {
            let (_home, data) = copied(directory);
            state::kinds(&data)
        })
        .collect();
    let missing: Vec<&String> = known.difference(&found).collect();
    assert!(missing.is_empty(), "no file has {missing:?}: see the top of this one");
    let strange: Vec<&String> = found.difference(&known).collect();
    assert!(strange.is_empty(), "no longer known: {strange:?}");
}

/// The fear: a delay of a second that lasts as long as the clock of the process before was ahead.
#[test]
fn a_start_counts_from_its_own_clock_what_one_that_was_ahead_has_put_off() {
    let home = tempfile::tempdir().unwrap();
    let (written, data) = (home.path().join("written"), home.path().join("data"));
    let ahead_ms: u64 = 65 * 365 * 86_400_000;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    life::write_ahead(&written, now_ms + ahead_ms);
    copy(&written, &data);
    let mut server = Start::new().env("SHARDS", 1).start_at(&data);
    let told = |server: &Server| server.web().get("/health").expect(200)["clockSetBackMs"].as_u64();
    let by_ms = told(&server).unwrap();
    assert!(by_ms <= ahead_ms && by_ms > ahead_ms / 2, "{by_ms}");
    until("the job is due", || (server.client().counted("ahead", "waiting") == 1).then_some(()));
    server.kill();
    server.start();
    assert_eq!(told(&server), None, "once is enough");
    assert_eq!(server.client().counted("ahead", "waiting"), 1);
}

/// The format versions of the segments in a data directory.
fn versions(data: &Path) -> BTreeSet<u16> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut versions(&path));
        } else if path.extension() == Some("seg".as_ref()) {
            let bytes = fs::read(&path).unwrap();
            found.insert(u16::from_le_bytes([bytes[4], bytes[5]]));
        }
    }
    found
}

#[test]
fn the_files_hold_every_format_version_there_is() {
    let found: BTreeSet<u16> = all().iter().flat_map(|it| versions(&it.join("data"))).collect();
    assert_eq!(found, (1..=FORMAT_VERSION).collect(), "see the top of this file");
}

/// Bytes of the segments and the manifest of a data directory.
fn contents(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let is_segment = path.extension() == Some("seg".as_ref());
        if path.is_dir() {
            found.append(&mut contents(&path));
        } else if is_segment || path.file_name() == Some("MANIFEST".as_ref()) {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// The checksum of headers, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

#[test]
fn a_log_of_a_later_format_is_refused_by_name_and_left_as_it_is() {
    let newest = all().pop().unwrap();
    let (_home, data) = copied(&newest);
    let later = FORMAT_VERSION + 1;
    for (segment, mut bytes) in contents(&data) {
        if segment.extension() == Some("seg".as_ref()) {
            bytes[4..6].copy_from_slice(&later.to_le_bytes());
            let checksum = crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
            fs::write(segment, bytes).unwrap();
        }
    }
    let before = contents(&data);
    let (status, said) = Start::new().run_to_its_end(&data);
    assert!(!status.success());
    assert!(said.contains(&format!("has log format version {later}")), "{said}");
    assert!(contents(&data) == before, "a refused log was changed");
}

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_page_on_upgrades_names_the_formats_of_all_files() {
    let page = fs::read_to_string(home().join("../../docs/upgrading.md")).unwrap();
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| `0")).map(cells).collect();
    let mut before = BTreeSet::new();
    let mut expected = Vec::new();
    for directory in all() {
        let (_home, data) = copied(&directory);
        let formats: Vec<String> = versions(&data).iter().map(ToString::to_string).collect();
        let kinds = state::kinds(&data);
        let new: Vec<String> = kinds.difference(&before).map(|kind| format!("`{kind}`")).collect();
        before.extend(kinds);
        let name = directory.file_name().unwrap().to_str().unwrap();
        expected.push(vec![format!("`{name}`"), formats.join(", "), new.join(", ")]);
    }
    assert_eq!(rows, expected, "add a row to docs/upgrading.md for each new directory");
}

#[test]
fn a_log_that_an_earlier_build_began_goes_on_in_the_version_of_this_one() {
    for directory in all() {
        let (_home, data) = copied(&directory);
        let before = versions(&data);
        let mut server = Start::new().env("COMPLETED_MAX", COMPLETED_MAX).start_at(&data);
        for number in 0..3 {
            server.client().push_with("goes-on", number, json!({"durable": true}));
            server.kill();
            Tool::at(1).ok(&["log", "verify", data.to_str().unwrap()]);
            server.start();
            assert_eq!(server.client().counted("goes-on", "waiting"), number + 1);
        }
        assert!(server.terminate().success());
        Tool::at(1).ok(&["log", "verify", data.to_str().unwrap()]);
        let after = versions(&data);
        assert!(after.contains(&FORMAT_VERSION) && after.is_superset(&before), "{after:?}");
    }
}

#[test]
fn a_server_starts_from_every_log_ever_written_and_serves_what_is_in_it() {
    for directory in all() {
        let (_home, data) = copied(&directory);
        let server = Start::new()
            .env("COMPLETED_MAX", COMPLETED_MAX)
            .env("COMPLETED_RETENTION_MS", 1_u64 << 50)
            .start_at(&data);
        let mut client = server.client();
        let expected = expected(&directory);
        // Compare only what time has no say in.
        let jobs: Vec<&Json> = parts(&expected).flat_map(|shard| parts(&shard["jobs"])).collect();
        assert!(jobs.len() > 20);
        for job in jobs {
            if job["expiresAt"].as_u64().is_some_and(|at_ms| at_ms > 0) {
                continue;
            }
            let id = job["customId"].as_str().or(job["id"].as_str()).unwrap();
            let shown = client.ok("GetJob", json!({"id": id}))["job"].clone();
            for field in ["queue", "data", "priority", "maxAttempts", "backoff", "tags"] {
                let absent = if field == "tags" { json!([]) } else { Json::Null };
                let kept = if job[field].is_null() { &absent } else { &job[field] };
                assert_eq!(&shown[field], kept, "{field} of {job}");
            }
            assert_eq!(shown["name"], job["name"], "{job}");
            assert_eq!(shown["createdAt"].as_f64(), job["createdAt"].as_f64(), "{job}");
            let state = client.state(id);
            match job["state"].as_str().unwrap() {
                // Time tells which.
                "pending" => assert!(["delayed", "waiting"].contains(&&*state), "{job}"),
                // Whose children have ended unheard hears of it now.
                "waiting-children" if job.get("childrenEnded").is_some() => {
                    assert!(["waiting", "waiting-children"].contains(&&*state), "{job}");
                }
                expected => assert_eq!(state, expected, "{job}"),
            }
            if state == "completed" {
                let result = client.ok("GetResult", json!({"id": id}))["result"].clone();
                assert_eq!(result, job["ended"]["with"], "{job}");
            }
            if let Some(lines) = job["logs"].as_array() {
                let logs = client.ok("GetLogs", json!({"id": id}))["data"]["logs"].clone();
                let shown: Vec<&Json> = parts(&logs).map(|line| &line["message"]).collect();
                let kept: Vec<&Json> = lines.iter().map(|line| &line["text"]).collect();
                assert_eq!(shown, kept, "{job}");
            }
        }
        let names = |list: &Json, key: &str| -> BTreeSet<String> {
            parts(list).map(|one| one[key].as_str().unwrap().to_owned()).collect()
        };
        let crons: BTreeSet<String> =
            parts(&expected).flat_map(|shard| names(&shard["crons"], "name")).collect();
        // The other shards send the names to the registry shard.
        until("all schedules are listed", || {
            let listed = client.ok("CronList", json!({}))["crons"].clone();
            (names(&listed, "name") == crons).then_some(())
        });
        let hooks: BTreeSet<String> =
            parts(&expected).flat_map(|shard| names(&shard["webhooks"], "id")).collect();
        let listed = client.ok("ListWebhooks", json!({}))["data"]["webhooks"].clone();
        assert_eq!(names(&listed, "id"), hooks);
        for queue in parts(&expected).flat_map(|shard| parts(&shard["queues"])) {
            let paused = client.ok("IsPaused", json!({"queue": queue["name"]}))["paused"].clone();
            assert_eq!(paused, queue["paused"], "{queue}");
        }
        // Ids of new jobs rise above all that were given out.
        let newest = parts(&expected).flat_map(|shard| names(&shard["jobs"], "id")).max().unwrap();
        assert!(client.push("new", 1) > newest);
    }
}
