//! Backups that a server makes by itself, in directories. The fear: none for weeks, unnoticed; or the last good one removed before
//! there is a better one. Those in buckets are tried in `tests/clients/storage.rs`.

use std::net::TcpListener;
use std::path::Path;

use corq_io::log::UNFINISHED;
use serde_json::{Value as Json, json};

use crate::support::tool::Tool;
use crate::support::{Client, Server, Start, until};

const EVERY_SECOND: &str = "* * * * * *";

fn metric(client: &mut Client, name: &str) -> u64 {
    let metrics = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let name = format!("corq_{name} ");
    let mut lines = metrics.as_str().unwrap().lines();
    lines
        .find_map(|line| line.strip_prefix(&name)?.parse().ok())
        .unwrap_or_else(|| panic!("{name}"))
}

fn names(directory: &Path) -> Vec<String> {
    let listed = Tool::at(1).json(&["backup", "list", directory.to_str().unwrap()]);
    let all = listed["backups"].as_array().unwrap().clone();
    all.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// The finding of the server about its backups.
fn finding(client: &mut Client) -> Option<Json> {
    let checks = client.ok("Doctor", json!({}))["data"]["checks"].clone();
    checks.as_array().unwrap().iter().find(|it| it["check"] == "backups").cloned()
}

#[test]
fn backups_by_the_schedule_are_restored_and_the_oldest_go_once_there_are_new_ones() {
    let home = tempfile::tempdir().unwrap();
    let to = home.path().join("backups");
    std::fs::create_dir(&to).unwrap();
    std::fs::create_dir(to.join("20200101T000000.000Z-00000000000000ff")).unwrap();
    let mut server = Start::new()
        .env("BACKUP_SCHEDULE", EVERY_SECOND)
        .env("BACKUP_TO", to.display())
        .env("BACKUP_KEEP", 2)
        .start();
    let mut client = server.client();
    for n in 0..30 {
        client.ok("PUSH", json!({"queue": format!("q-{}", n % 6), "data": n}));
    }
    let made = metric(&mut client, "backups_total");
    until("more backups", || (metric(&mut client, "backups_total") > made + 3).then_some(()));
    assert_eq!(metric(&mut client, "backup_failures_total"), 0);
    assert!(metric(&mut client, "backup_last_success_timestamp_seconds") > 1_700_000_000);
    assert!(metric(&mut client, "backup_last_bytes") > 0);
    assert_eq!(finding(&mut client).unwrap()["verdict"], "ok");
    drop(client);
    server.kill();
    // The kill may come within a backup, of which there is no use.
    let is_whole = |it: &String| !it.starts_with("2020") && !to.join(it).join(UNFINISHED).exists();
    let own: Vec<String> = names(&to).into_iter().filter(is_whole).collect();
    assert!((2..=3).contains(&own.len()), "{own:?}");
    assert!(to.join("20200101T000000.000Z-00000000000000ff").is_dir(), "it is of another server");
    let data = home.path().join("restored");
    let from = to.join(own.last().unwrap());
    Tool::at(1).ok(&["restore", from.to_str().unwrap(), data.to_str().unwrap()]);
    Tool::at(1).ok(&["log", "verify", data.to_str().unwrap()]);
    let restored = Start::new().start_at(&data);
    assert_eq!(restored.client().ok("Stats", json!({}))["stats"]["waiting"], 30);
}

#[test]
fn a_storage_that_refuses_or_is_silent_fails_the_backup_and_delays_no_client() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().port();
    // No server listens on the first one.
    for (port, timeout_ms, why) in [(1, 60_000, "refused"), (silent, 200, "took too long")] {
        let server = Start::new()
            .env("BACKUP_SCHEDULE", EVERY_SECOND)
            .env("BACKUP_TO", "s3://corq-backups/prod")
            .env("BACKUP_S3_ENDPOINT", format!("http://127.0.0.1:{port}"))
            .env("BACKUP_S3_TIMEOUT_MS", timeout_ms)
            .env("BACKUP_S3_ACCESS_KEY_ID", "key-id")
            .env("BACKUP_S3_SECRET_ACCESS_KEY", "s3cret-key")
            .start();
        let mut client = server.client();
        until("a failure", || {
            client.ok("PUSH", json!({"queue": "q", "data": 1}));
            (metric(&mut client, "backup_failures_in_a_row") > 0).then_some(())
        });
        let found = finding(&mut client).unwrap();
        assert_eq!(found["verdict"], "wrong", "{found}");
        assert_eq!(metric(&mut client, "backups_total"), 0);
        let line = until("the line of the log", || {
            let said = server.output();
            let failed = |line: &&str| line.contains("a backup to s3://corq-backups/prod failed");
            said.lines().find(failed).map(str::to_owned)
        });
        let said = server.output();
        assert!(line.to_lowercase().contains(why) && line.contains("next attempt in"), "{line}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[test]
fn settings_of_backups_that_do_not_fit_stop_the_start_and_keys_are_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let ends = |start: Start| {
        let (status, said) = start.run_to_its_end(&dir.path().join("data"));
        assert!(!status.success(), "{said}");
        said
    };
    let daily = || Start::new().env("BACKUP_SCHEDULE", "0 3 * * *");
    assert!(ends(daily()).contains("BACKUP_TO: it is missing, and BACKUP_SCHEDULE is 0 3 * * *"));
    let said = ends(daily().env("BACKUP_TO", "/b").memory());
    assert!(said.contains("a server in memory has nothing to back up"), "{said}");
    let said = ends(Start::new().env("BACKUP_SCHEDULE", "0 25 * * *").env("BACKUP_TO", "/b"));
    assert!(said.contains("BACKUP_SCHEDULE=0 25 * * *: ") && said.contains("hour"), "{said}");
    let said = ends(daily().env("BACKUP_TO", "ftp://b"));
    assert!(said.contains("BACKUP_TO=ftp://b: it must be a path or s3://BUCKET/PREFIX"), "{said}");
    let keyed = Tool::at(1).env("AWS_SECRET_ACCESS_KEY", "s3cret").env("AWS_REGION", "eu-west-1");
    let shown = keyed.ok(&["config", "show"]);
    assert!(!shown.contains("s3cret") && shown.contains("AWS_SECRET_ACCESS_KEY"), "{shown}");
    assert!(shown.contains("eu-west-1"), "{shown}");
}

#[test]
fn a_schedule_in_the_settings_file_counts_once_that_was_read_again() {
    let home = tempfile::tempdir().unwrap();
    let (file, to) = (home.path().join("corq.toml"), home.path().join("backups"));
    std::fs::write(&file, "").unwrap();
    let server = Start::new().env("CORQ_CONFIG", file.display()).start();
    let mut client = server.client();
    client.ok("PUSH", json!({"queue": "q", "data": 1}));
    assert_eq!(finding(&mut client), None);
    let text =
        format!("backup_schedule = {EVERY_SECOND:?}\nbackup_to = {:?}\n", to.display().to_string());
    std::fs::write(&file, text).unwrap();
    hang_up(&server);
    until("a backup", || (metric(&mut client, "backups_total") > 0).then_some(()));
    assert!(!names(&to).is_empty());
    std::fs::write(&file, "").unwrap();
    hang_up(&server);
    until("no schedule", || {
        (metric(&mut client, "backup_due_timestamp_seconds") == 0).then_some(())
    });
}

fn hang_up(server: &Server) {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = Pid::from_raw(server.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}
