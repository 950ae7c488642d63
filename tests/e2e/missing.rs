//! The fear: a part of the data directory is gone, and the server starts as if it had never been.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::tool::Tool;
use crate::support::{Server, Start, until};

/// The segments of a shard, oldest first.
fn segments(data: &Path, shard: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join(shard)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension() == Some("seg".as_ref())).collect();
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &copied);
        } else {
            fs::copy(&path, &copied).unwrap();
        }
    }
}

/// A start and a look at it both name what is missing, with each of `words`.
fn is_refused(start: &Start, data: &Path, words: &[&str]) {
    let (status, said) = start.clone().run_to_its_end(data);
    assert_eq!(status.code(), Some(1), "{said}");
    let ran = Tool::at(1).run(&["log", "verify", data.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for word in words {
        assert!(said.contains(word), "{word} in what the start says: {said}");
        assert!(ran.out.contains(word), "{word} in what the look says: {}", ran.out);
    }
}

/// Lets a repair go on without what is missing, which keeps what it changes; answers how many jobs a server
/// finds then.
fn repaired(start: &Start, data: &Path, queues: &[String]) -> u64 {
    let path = data.to_str().unwrap();
    let out = Tool::at(1).ok(&["log", "repair", "--yes", path]);
    assert!(out.contains("can be started from again"), "{out}");
    Tool::at(1).ok(&["log", "verify", path]);
    let mut server = start.clone().start_at(data);
    let mut client = server.client();
    let found = queues.iter().map(|queue| client.counted(queue, "waiting")).sum();
    client.push(&queues[0], 1);
    drop(client);
    server.kill();
    server.start();
    found
}

/// Jobs on both shards; the server was killed when all of it had been synced.
fn two_shards() -> (Server, Vec<String>) {
    let mut server = Server::start_default();
    let mut client = server.client();
    let queues: Vec<String> = (0..8).map(|number| format!("missing-{number}")).collect();
    for queue in &queues {
        for number in 0..5 {
            client.push_with(queue, number, json!({"durable": true}));
        }
    }
    server.kill();
    (server, queues)
}

#[test]
fn shards_that_are_gone_or_empty_are_refused_by_name() {
    let (server, queues) = two_shards();
    let home = tempfile::tempdir().unwrap();
    for (case, shards) in [
        ("directory", &["shard-0001"][..]),
        ("segments", &["shard-0001"]),
        ("directory", &["shard-0000", "shard-0001"]),
        ("segments", &["shard-0000"]),
    ] {
        let data = home.path().join(format!("{case}-{}-{}", shards[0], shards.len()));
        copy(&server.data, &data);
        for shard in shards {
            match case {
                "directory" => fs::remove_dir_all(data.join(shard)).unwrap(),
                _ => segments(&data, shard).iter().for_each(|it| fs::remove_file(it).unwrap()),
            }
        }
        let start = Start::new();
        is_refused(&start, &data, &[shards[0], "missing"]);
        // Nor does a change of the number of shards go over it.
        let (status, said) = Start::new().env("SHARDS", 3).run_to_its_end(&data);
        assert!(status.code() == Some(1) && said.contains(shards[0]), "{said}");
        let line = Tool::at(1)
            .env("DATA_PATH", data.display())
            .fails(1, &["backup", home.path().join("backup").to_str().unwrap()]);
        assert!(line.contains("missing"), "{line}");
        let found = repaired(&start, &data, &queues);
        assert!(if shards.len() == 2 { found == 0 } else { (1..40).contains(&found) }, "{found}");
    }
}

/// 200 jobs of 100 KB in one shard, all of them synced, and the server killed.
fn one_shard(durability: &str) -> (Server, Start, Vec<String>) {
    let start = Start::new().env("SHARDS", 1).env("DURABILITY", durability);
    let mut server = start.clone().start();
    let mut client = server.client();
    let data = "x".repeat(100_000);
    for _ in 0..200 {
        client.push("missing", data.as_str());
    }
    // Everything has been written; the mark of the first file follows when the second one is synced.
    until("no second segment", || (segments(&server.data, "shard-0000").len() > 1).then_some(()));
    client.push_with("missing", data.as_str(), json!({"durable": true}));
    drop(client);
    server.kill();
    (server, start, vec!["missing".to_owned()])
}

#[test]
fn a_newest_segment_that_is_deleted_or_cut_after_a_kill_is_refused() {
    for durability in ["written", "synced"] {
        let (server, start, queues) = one_shard(durability);
        let home = tempfile::tempdir().unwrap();
        for cut in [None, Some(1_000_000), Some(0)] {
            let data = home.path().join(format!("{cut:?}"));
            copy(&server.data, &data);
            let newest = segments(&data, "shard-0000").pop().unwrap();
            match cut {
                None => fs::remove_file(&newest).unwrap(),
                Some(bytes) => {
                    let file = File::options().write(true).open(&newest).unwrap();
                    file.set_len(bytes).unwrap();
                }
            }
            let name = newest.file_name().unwrap().to_str().unwrap();
            let byte = cut.map_or("missing".to_owned(), |bytes| format!("byte {bytes}"));
            is_refused(&start, &data, &[name, &byte]);
            let found = repaired(&start, &data, &queues);
            assert!((100..201).contains(&found), "{found}");
        }
        // As it was, all of it is there.
        let data = home.path().join("whole");
        copy(&server.data, &data);
        let server = start.start_at(&data);
        assert_eq!(server.client().counted("missing", "waiting"), 201);
    }
}

#[test]
fn a_first_start_that_was_killed_in_the_middle_is_no_loss() {
    let mut server = Server::start_default();
    server.kill();
    // What such a start has left: it has not said yet that all shards were begun.
    let manifest = server.data.join("MANIFEST");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("begun = true\n"), "{text}");
    fs::write(&manifest, text.replace("begun = true\n", "")).unwrap();
    fs::remove_dir_all(server.data.join("shard-0001")).unwrap();
    for segment in segments(&server.data, "shard-0000") {
        fs::write(segment, b"").unwrap();
    }
    server.start();
    server.client().push("missing", 1);
    assert!(fs::read_to_string(&manifest).unwrap().contains("begun = true\n"));
}
