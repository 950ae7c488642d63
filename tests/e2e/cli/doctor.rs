//! `doctor`: what it finds on this machine depends on it; what it makes of it does not.

use serde_json::Value as Json;

use super::fake;
use crate::support::tool::{Tool, line_of, rows};
use crate::support::{Server, Start, free_port};

fn verdict<'a>(report: &'a Json, check: &str) -> &'a str {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|it| it["check"] == check);
    found.unwrap_or_else(|| panic!("no {check} in {report}"))["verdict"].as_str().unwrap()
}

#[test]
fn a_machine_that_runs_the_server_is_fit() {
    let server = Server::start_default();
    let data = server.data.to_str().unwrap();
    let tool = Tool::of(&server);
    let out = tool.ok(&["doctor", "--data-path", data]);
    let checks: Vec<String> = rows(&out).into_iter().filter_map(|it| it.get(1).cloned()).collect();
    for check in ["kernel", "io_uring", "open files", "locked memory", "CPUs", "file system"]
        .iter()
        .chain(&["free space", "disk sync", "server", "latency", "server's clock", "counters"])
    {
        assert!(checks.iter().any(|it| it == check), "{check} in\n{out}");
    }
    let report = tool.json(&["doctor", "--data-path", data]);
    assert_eq!(report["ok"], true);
    for check in ["kernel", "server", "counters"] {
        assert_eq!(verdict(&report, check), "ok", "{report}");
    }
    let left = std::fs::read_dir(&server.data).unwrap().flatten();
    assert!(!left.into_iter().any(|it| it.file_name().to_string_lossy().contains("doctor")));
}

#[test]
fn a_server_that_is_not_there_is_wrong() {
    let tool = Tool::at(free_port());
    let ran = tool.run(&["doctor"]);
    assert_eq!((ran.code, line_of(&ran.err).as_str()), (Some(1), "one thing is wrong, see above"));
    assert!(ran.out.contains("WRONG  server") && ran.out.contains("cannot reach"), "{}", ran.out);
    // Before the first start no server is looked for.
    let report = tool.json(&["doctor", "--no-server"]);
    assert!(report["checks"].as_array().unwrap().iter().all(|it| it["check"] != "server"));
}

#[test]
fn a_data_path_that_cannot_be_written_is_wrong() {
    let tool = Tool::at(1);
    let ran = tool.run(&["doctor", "--no-server", "--data-path", "/proc/self/data"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("disk sync: let the server's user write there"), "{}", ran.out);
}

#[test]
fn a_strange_server_and_a_wrong_clock_are_worth_a_word() {
    let port = fake::frames(|request| match request["cmd"].as_str() {
        Some("Hello") => serde_json::json!({"ok": true, "server": "other", "version": "9"}),
        Some("Ping") => serde_json::json!({"ok": true, "data": {"pong": true, "time": 1_000_000}}),
        _ => serde_json::json!({"ok": true, "data": {
            "metrics": "corq_connections_rejected_total 3\ncorq_log_segment_failures_total 1\n"
        }}),
    });
    let tool = Tool::at(port);
    let report = tool.json(&["doctor"]);
    assert_eq!(report["ok"], true, "{report}");
    for check in ["server", "server's clock", "counters"] {
        assert_eq!(verdict(&report, check), "warning", "{report}");
    }
    let out = tool.ok(&["doctor"]);
    assert!(out.contains("counters: raise CONNECTIONS_MAX"), "{out}");
}

fn found(report: &Json, check: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|it| it["check"] == check).unwrap();
    check["found"].as_str().unwrap().to_owned()
}

#[test]
fn it_judges_the_directory_that_the_server_uses_and_says_which() {
    let server = Server::start_default();
    let data = server.data.canonicalize().unwrap().display().to_string();
    let address = format!("127.0.0.1:{}", server.tcp);
    let tool = Tool::of(&server);
    let report = tool.json(&["doctor"]);
    let (place, disk) = (found(&report, "data path"), found(&report, "file system"));
    assert_eq!(place, format!("{data}, of the server at {address}"));
    assert!(disk.starts_with(&format!("{data} is on ")), "{disk}");
    // Another one is judged if it is asked for, and is no secret.
    let other = tempfile::tempdir().unwrap();
    let other = other.path().display().to_string();
    let report = tool.json(&["doctor", "--data-path", &other]);
    assert_eq!(verdict(&report, "data path"), "warning");
    let place = found(&report, "data path");
    assert_eq!(place, format!("{other}, which is not what the server at {address} uses: {data}"));
    assert!(found(&report, "file system").starts_with(&other), "{report}");
    // By another of its names it is the same.
    let link = server.data.with_file_name("link");
    std::os::unix::fs::symlink(&server.data, &link).unwrap();
    let report = tool.json(&["doctor", "--data-path", link.to_str().unwrap()]);
    assert_eq!(verdict(&report, "data path"), "ok", "{report}");
}

#[test]
fn without_a_server_or_a_disk_it_says_what_it_looked_at_instead() {
    let report = Tool::at(1).json(&["doctor", "--no-server"]);
    assert!(found(&report, "data path").starts_with("./corq-data, as a start"), "{report}");
    let server = Start::new().memory().start();
    let report = Tool::of(&server).json(&["doctor"]);
    assert!(found(&report, "data path").starts_with("none: the server at "), "{report}");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.iter().all(|it| it["check"] != "disk sync"), "{report}");
}

/// The tests of what a start refuses ask `doctor` as well; these are directories that no start is meant for.
#[test]
fn a_directory_that_a_start_would_refuse_is_wrong() {
    let mut server = Server::start_default();
    server.client().push("q", 1);
    let judged = |path: &std::path::Path| {
        let words = ["doctor", "--no-server", "--json", "--data-path", path.to_str().unwrap()];
        let report: Json = serde_json::from_str(&Tool::at(1).run(&words).out).unwrap();
        let found = found(&report, "data directory");
        (verdict(&report, "data directory").to_owned(), found)
    };
    assert_eq!(judged(&server.data), ("ok".to_owned(), "in use".to_owned()));
    assert!(server.terminate().success());
    let (good, found) = judged(&server.data);
    assert!(good == "ok" && found.starts_with("2 shards, "), "{found}");
    let home = tempfile::tempdir().unwrap();
    assert_eq!(judged(&home.path().join("new")).0, "ok");
    let to = home.path().join("backup");
    Tool::at(1).env("DATA_PATH", server.data.display()).ok(&["backup", to.to_str().unwrap()]);
    let (wrong, found) = judged(&to);
    assert!(wrong == "wrong" && found.contains("is a backup"), "{found}");
    let (status, said) = Start::new().run_to_its_end(&to);
    assert!(status.code() == Some(1) && said.contains(&found), "{found} in {said}");
}
