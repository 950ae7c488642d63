//! The fear: a part of the data directory is gone, and the server starts as if it had never been.

use std::fs::{self, File};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Server, Start, copy, segments, until};

/// A start and a look at it both name what is missing, with each of `words`.
fn is_refused(start: &Start, data: &Path, words: &[&str]) {
    let (status, said) = start.clone().run_to_its_end(data);
    assert_eq!(status.code(), Some(1), "{said}");
    let ran = Tool::at(1).run(&["log", "verify", data.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = Tool::at(1).run(&[
        "doctor",
        "--no-server",
        "--json",
        "--data-path",
        data.to_str().unwrap(),
    ]);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let mut checks = report["checks"].as_array().unwrap().iter();
    let judged = checks.find(|it| it["check"] == "data directory").unwrap();
    assert_eq!(judged["verdict"], "wrong", "{said}, but {judged}");
    for word in words {
        assert!(said.contains(word), "{word} in what the start says: {said}");
        assert!(ran.out.contains(word), "{word} in what the look says: {}", ran.out);
    }
}

/// Lets a repair copy what is not missing; answers how many jobs a server finds then.
fn repaired(start: &Start, data: &Path, queues: &[String]) -> u64 {
    let to = data.with_file_name(format!("{}-new", data.file_name().unwrap().to_str().unwrap()));
    let (path, to_text) = (data.to_str().unwrap(), to.to_str().unwrap());
    let out = Tool::at(1).ok(&["log", "repair", path, "--to", to_text]);
    assert!(out.contains("can be started from"), "{out}");
    Tool::at(1).ok(&["log", "verify", to_text]);
    let mut server = start.clone().start_at(&to);
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
    // The manifest that such a start leaves does not say yet that all shards were begun.
    let manifest = server.data.join("MANIFEST");
    let text = fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("begun = true\n"), "{text}");
    // Without its checksum it is as earlier builds wrote it.
    let lines = text.split_inclusive('\n').filter(|it| !it.starts_with("checksum"));
    fs::write(&manifest, lines.collect::<String>().replace("begun = true\n", "")).unwrap();
    fs::remove_dir_all(server.data.join("shard-0001")).unwrap();
    for segment in segments(&server.data, "shard-0000") {
        fs::write(segment, b"").unwrap();
    }
    server.start();
    server.client().push("missing", 1);
    assert!(fs::read_to_string(&manifest).unwrap().contains("begun = true\n"));
}

/// A manifest that is lost, or says another number or another id: what a checksum tells, and what the shards tell of
/// one that has none.
#[test]
fn a_manifest_that_is_lost_or_not_of_these_shards_removes_nothing_and_a_copy_gets_another() {
    let (server, queues) = two_shards();
    let home = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(server.data.join("MANIFEST")).unwrap();
    let id = text.lines().find_map(|line| line.strip_prefix("id = ")).unwrap();
    let old = format!("version = 1\nshards = 2\nid = {id}\nbegun = true\n");
    let cases = [
        ("lost", None),
        ("changed", Some(text.replace("shards = 2", "shards = 1"))),
        ("empty", Some(String::new())),
        ("garbled", Some(text.replace("shards", "shxrds"))),
        ("fewer", Some(old.replace("shards = 2", "shards = 1"))),
        (
            "fewer-unbegun",
            Some(old.replace("shards = 2", "shards = 1").replace("begun = true\n", "")),
        ),
        ("more", Some(old.replace("shards = 2", "shards = 4"))),
        (
            "more-unbegun",
            Some(old.replace("shards = 2", "shards = 4").replace("begun = true\n", "")),
        ),
        ("foreign", Some(old.replace(id, "00000000000000ff"))),
    ];
    for (case, manifest) in cases {
        let data = home.path().join(case);
        copy(&server.data, &data);
        let path = data.join("MANIFEST");
        match &manifest {
            None => fs::remove_file(&path).unwrap(),
            Some(text) => fs::write(&path, text).unwrap(),
        }
        let before = [segments(&data, "shard-0000"), segments(&data, "shard-0001")];
        for shards in [1, 2, 4] {
            let (status, said) = Start::new().env("SHARDS", shards).run_to_its_end(&data);
            assert_eq!(status.code(), Some(1), "{case} {shards}: {said}");
            assert!(said.contains("MANIFEST") && said.starts_with("corq: "), "{case}: {said}");
        }
        let after = [segments(&data, "shard-0000"), segments(&data, "shard-0001")];
        assert_eq!(before, after, "{case}");
        assert_eq!(fs::read_to_string(&path).ok(), manifest, "{case}");
        is_refused(&Start::new(), &data, &[]);
        let data_arg = data.to_str().unwrap();
        let ran = Tool::at(1).run(&["log", "verify", data_arg]);
        assert_eq!(ran.code, Some(1), "{case}: {ran:?}");
        if ["fewer", "fewer-unbegun", "more", "more-unbegun", "foreign"].contains(&case) {
            // Nobody can tell which of the two is right.
            continue;
        }
        assert!(
            ran.out.contains("2 shards") && ran.out.contains("all is whole"),
            "{case}: {ran:?}"
        );
        assert!(
            ran.err.contains("MANIFEST") && ran.err.contains("corq log repair"),
            "{case}: {ran:?}"
        );
        for command in ["stat", "dump"] {
            let ran = Tool::at(1).run(&["log", command, data_arg]);
            assert!(ran.code == Some(0) && ran.err.contains("MANIFEST"), "{case}: {ran:?}");
        }
        let to = home.path().join(format!("{case}-new"));
        let out = Tool::at(1).ok(&["log", "repair", data_arg, "--to", to.to_str().unwrap()]);
        assert!(out.contains("MANIFEST") && out.contains("no job is lost"), "{case}: {out}");
        assert_eq!(fs::read_to_string(&path).ok(), manifest, "the source is as it was");
        assert_eq!(fs::read_to_string(to.join("MANIFEST")).unwrap(), text, "{case}");
        let server = Start::new().start_at(&to);
        let mut client = server.client();
        let found: u64 = queues.iter().map(|queue| client.counted(queue, "waiting")).sum();
        assert_eq!(found, 40, "{case}");
    }
}

/// The directory is the lock, whatever becomes of the file in it.
#[test]
fn a_lock_file_that_is_removed_lets_nobody_in() {
    let (mut server, _) = two_shards();
    server.start();
    let path = server.data.to_str().unwrap().to_owned();
    let path = path.as_str();
    let lock = server.data.join("LOCK");
    let home = tempfile::tempdir().unwrap();
    for again in [false, true] {
        fs::remove_file(&lock).unwrap();
        if again {
            fs::write(&lock, "").unwrap();
        }
        let (status, said) = Start::new().run_to_its_end(&server.data);
        assert!(status.code() == Some(1) && said.contains("is in use by"), "{said}");
        let to = home.path().join("new");
        let ran = Tool::at(1).run(&["log", "repair", path, "--to", to.to_str().unwrap()]);
        assert!(ran.code == Some(1) && ran.err.contains("is in use by"), "{ran:?}");
        let out = Tool::at(1).ok(&["log", "verify", path]);
        assert!(out.contains("a server is using it"), "{out}");
        let to = home.path().join("backup");
        let line = Tool::at(1).env("DATA_PATH", path).fails(1, &["backup", to.to_str().unwrap()]);
        assert!(line.contains("cannot reach a server"), "{line}");
        let line = Tool::at(1).fails(1, &["restore", path, to.to_str().unwrap()]);
        assert!(!to.exists(), "{line}");
        fs::write(&lock, "").unwrap();
    }
    // The server goes on as if nothing had been.
    server.client().push("missing-0", 1);
    assert!(server.terminate().success());
    Tool::at(1).ok(&["log", "verify", path]);
}
