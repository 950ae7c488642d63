//! The audit log: who did what that changes more than a job, and who was not let in. The fear: something was done and no one can
//! tell by whom; or a stranger fills the log, forges its lines, or learns a token from it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::interface::access::{client, guarded, number};
use crate::interface::browsers::log_in;
use crate::support::stream::{UPGRADE, WebSocket};
use crate::support::tool::Tool;
use crate::support::{Client, Server, Start, get, until};

/// The newest entries, oldest first.
fn entries(client: &mut Client) -> Vec<Value> {
    let reply = client.ok("AuditLog", json!({"limit": 1000}));
    let mut entries = reply["entries"].as_array().unwrap().clone();
    entries.reverse();
    entries
}

/// Entries of a command.
fn of(client: &mut Client, command: &str) -> Vec<Value> {
    entries(client).into_iter().filter(|entry| entry["command"] == command).collect()
}

/// An entry without what differs from run to run.
fn told(entry: &Value) -> Value {
    let mut entry = entry.clone();
    for field in ["seq", "time", "peer", "token"] {
        entry.as_object_mut().unwrap().remove(field);
    }
    entry
}

fn files(server: &Server) -> Vec<PathBuf> {
    let entries = fs::read_dir(server.data.join("audit")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "jsonl"));
    files.sort();
    files
}

#[test]
fn what_changes_more_than_a_job_is_written_with_who_did_it_and_how_it_ended() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    for n in 0..3 {
        boss.push("orders", n);
    }
    boss.ok("Pause", json!({"queue": "orders"}));
    boss.ok("RateLimit", json!({"queue": "orders", "limit": 5, "duration": 60_000}));
    boss.ok("Drain", json!({"queue": "orders"}));
    for _ in 0..2 {
        boss.push_with("orders", 1, json!({"tags": ["old"]}));
    }
    boss.ok(
        "Cron",
        json!({"name": "nightly", "queue": "orders", "data": 1, "schedule": "0 3 * * *"}),
    );
    boss.refused("CronDelete", json!({"name": "other"}));
    let hook = json!({"url": "https://hooks.example.com/in?key=hidden", "events": ["job.failed"], "secret": "hidden"});
    boss.ok("AddWebhook", hook);
    let task =
        boss.ok("Bulk", json!({"action": "cancel", "queue": "orders", "filter": {"tag": "old"}}));
    let seen: Vec<Value> =
        entries(&mut boss).iter().filter(|entry| entry["face"] == "tcp").map(told).collect();
    let done = |command: &str, more: Value| {
        let mut entry =
            json!({"face": "tcp", "role": "admin", "command": command, "outcome": "ok"});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    let about_task = format!("cancel where tag old; task {}", task["taskId"].as_str().unwrap());
    let expected = [
        done("Auth", json!({})),
        done("Pause", json!({"queue": "orders"})),
        done("RateLimit", json!({"queue": "orders", "about": "5 per 60000 ms"})),
        done("Drain", json!({"queue": "orders", "count": 3})),
        done("Cron", json!({"queue": "orders", "about": "nightly: 0 3 * * *"})),
        done("CronDelete", json!({"about": "other", "outcome": "not_found"})),
        done("AddWebhook", json!({"about": "https://hooks.example.com/in"})),
        done("Bulk", json!({"queue": "orders", "about": about_task})),
    ];
    assert_eq!(seen, expected);
    // The answer comes before the jobs are changed; how many that were, an entry of its own says.
    let about_end = format!("cancel; task {} done", task["taskId"].as_str().unwrap());
    let end = until("the task has ended", || {
        entries(&mut boss).into_iter().find(|entry| entry["about"] == about_end)
    });
    let about_end = json!({
        "face": "server", "role": "admin", "command": "Bulk", "queue": "orders",
        "about": about_end, "count": 2, "outcome": "ok",
    });
    assert_eq!(told(&end), about_end);
    let all = entries(&mut boss);
    assert_eq!(all[0]["command"], "Start");
    let name = boss.ok("Whoami", json!({}))["data"]["tokenName"].clone();
    assert!(name.as_str().is_some_and(|name| name.len() == 8), "{name}");
    for entry in all.iter().filter(|entry| entry["face"] == "tcp") {
        assert!(entry["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{entry}");
        assert_eq!(entry["token"], name, "{entry}");
    }
    let text = fs::read_to_string(&files(&server)[0]).unwrap();
    assert!(!text.contains("boss") && !text.contains("hidden"), "{text}");
}

#[test]
fn every_face_is_told_and_a_page_by_its_login() {
    let server = guarded();
    let mut web = server.web().with_token("boss");
    web.post("/queues/a/pause", json!({})).expect(200);
    let cookie = log_in(&server, "boss");
    let headers =
        format!("{UPGRADE}Cookie: {cookie}\r\nOrigin: http://127.0.0.1:{}\r\n", server.http);
    let mut page = WebSocket::open_with(server.http, "/ws", &headers).unwrap();
    page.ok("Pause", json!({"queue": "b"}));
    let mut socket = WebSocket::open_with(
        server.http,
        "/ws",
        &format!("{UPGRADE}Authorization: Bearer boss\r\n"),
    )
    .unwrap();
    socket.ok("Pause", json!({"queue": "c"}));
    let mut boss = client(&server, "boss");
    boss.ok("Pause", json!({"queue": "d"}));
    let paused = of(&mut boss, "Pause");
    let faces: Vec<&str> = paused.iter().map(|entry| entry["face"].as_str().unwrap()).collect();
    assert_eq!(faces, ["http", "page", "ws", "tcp"]);
    assert!(paused.iter().all(|entry| entry["token"] == paused[0]["token"]));
    assert_eq!(
        of(&mut boss, "Login").iter().map(told).collect::<Vec<_>>(),
        [json!({"face": "page", "role": "admin", "command": "Login", "outcome": "ok"})]
    );
}

#[test]
fn an_answer_that_comes_from_another_shard_or_to_no_client_any_more_is_told() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    let queues: Vec<String> = (0..8).map(|n| format!("gone-{n}")).collect();
    for queue in &queues {
        let mut passing = client(&server, "boss");
        passing.push(queue, 1);
        passing.send("Obliterate", json!({"queue": queue})).unwrap();
    }
    until("all of them to be told", || {
        let mut told = of(&mut boss, "Obliterate");
        told.retain(|entry| entry["outcome"] == "ok");
        let mut named: Vec<String> =
            told.iter().map(|entry| entry["queue"].as_str().unwrap().to_owned()).collect();
        named.sort();
        (named == queues).then_some(())
    });
    assert_eq!(number(&mut boss, "corq_audit_waiting"), 0);
}

#[test]
fn a_wrong_token_in_a_loop_has_one_entry_a_minute() {
    let server = guarded();
    for _ in 0..200 {
        assert_eq!(server.client().refused("Auth", json!({"token": "guess"})), "Invalid token");
    }
    let mut web = server.web().with_token("guess");
    (0..50).for_each(|_| _ = web.get("/stats").refused(401));
    let mut pusher = client(&server, "pusher");
    (0..50).for_each(|_| _ = pusher.refused("Drain", json!({"queue": "q"})));
    let mut boss = client(&server, "boss");
    let all = entries(&mut boss);
    let count = |command: &str, outcome: &str| {
        let is_it = |it: &&Value| it["command"] == command && it["outcome"] == outcome;
        all.iter().filter(is_it).count()
    };
    // A minute may have ended meanwhile, and each shard has its own.
    let (wrong, forbidden) = (count("Auth", "unauthorized"), count("Drain", "forbidden"));
    assert!(
        (2..40).contains(&wrong) && (1..20).contains(&forbidden),
        "{wrong} {forbidden}: {all:#?}"
    );
    assert!(number(&mut boss, "corq_audit_left_out_total") > 200);
    let refused = all.iter().find(|it| it["outcome"] == "forbidden").unwrap();
    assert_eq!((&refused["role"], &refused["queue"]), (&json!("push"), &json!("q")));
    let wrong = all.iter().find(|it| it["outcome"] == "unauthorized").unwrap();
    assert_eq!((wrong.get("role"), wrong.get("token")), (None, None));
}

#[test]
fn the_log_is_read_page_by_page_and_by_admins_of_all_queues_alone() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    for n in 0..25 {
        boss.ok("Pause", json!({"queue": format!("q{n}")}));
    }
    let (mut numbers, mut before) = (Vec::new(), None);
    loop {
        let fields =
            before.map_or(json!({"limit": 10}), |before| json!({"limit": 10, "before": before}));
        let page = boss.ok("AuditLog", fields);
        let seq = page["entries"].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap());
        numbers.extend(seq);
        match page["next"].as_u64() {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    let expected: Vec<u64> = (1..=numbers[0]).rev().collect();
    assert!(numbers[0] >= 27 && numbers == expected, "{numbers:?}");
    for token in ["reader", "pusher", "worker", "mailboss"] {
        let reply = client(&server, token).call("AuditLog", json!({}));
        assert_eq!(reply["code"], "forbidden", "{token}: {reply}");
    }
    assert_eq!(
        boss.refused("AuditLog", json!({"limit": 1001})),
        "limit must be between 1 and 1000"
    );
    assert_eq!(
        boss.refused("AuditLog", json!({"before": 0})),
        "before must be between 1 and 9007199254740991"
    );
    let page = server.web().with_token("boss").get("/audit?limit=2").expect(200);
    assert_eq!(page["entries"].as_array().unwrap().len(), 2);
}

#[test]
fn the_log_goes_on_after_a_kill_and_a_stop_and_only_its_owner_may_read_it() {
    let mut server = guarded();
    let name = client(&server, "boss").ok("Whoami", json!({}))["data"]["tokenName"].clone();
    let mut boss = client(&server, "boss");
    boss.ok("Pause", json!({"queue": "q"}));
    assert_eq!(of(&mut boss, "Pause").len(), 1);
    server.kill();
    server.start();
    let mut boss = client(&server, "boss");
    assert_eq!(boss.ok("Whoami", json!({}))["data"]["tokenName"], name);
    boss.ok("Resume", json!({"queue": "q"}));
    assert!(server.terminate().success());
    server.start();
    let mut boss = client(&server, "boss");
    let all = entries(&mut boss);
    let commands: Vec<&str> =
        all.iter().map(|it| it["command"].as_str().unwrap()).filter(|it| *it != "Auth").collect();
    assert_eq!(commands, ["Start", "Pause", "Start", "Resume", "Stop", "Start"]);
    assert!(all.windows(2).all(|pair| pair[0]["seq"].as_u64() < pair[1]["seq"].as_u64()));
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(server.data.join("audit")), 0o700);
    let inside = fs::read_dir(server.data.join("audit")).unwrap();
    assert!(inside.map(|entry| mode(entry.unwrap().path())).all(|mode| mode == 0o600));
}

#[test]
fn a_file_that_is_full_is_followed_by_another_and_the_oldest_goes() {
    let server = Start::new().env("AUDIT_MAX_MB", 1).env("AUDIT_FILES", 2).start();
    let mut client = server.client();
    let first = until("the start is written", || files(&server).first().cloned());
    let name = "n".repeat(256);
    let mut deleted = 0;
    while files(&server).contains(&first) {
        assert!(deleted < 20_000, "{:?}", files(&server));
        client.at_once([(); 50].map(|()| ("CronDelete", json!({"name": name}))));
        deleted += 50;
        // A page waits for all entries before it: so many more would wait to be written that some are lost.
        if deleted % 1000 == 0 {
            client.ok("AuditLog", json!({"limit": 1}));
        }
    }
    // The page has all entries before it, which are in the files then.
    let newest = entries(&mut client).pop().unwrap();
    let kept = until("one is full and one is being written", || {
        Some(files(&server)).filter(|files| files.len() == 2)
    });
    for file in &kept {
        assert!(fs::metadata(file).unwrap().len() <= 1 << 20, "{}", file.display());
    }
    // Each is called like its first entry, and none is missing between them.
    let lines: Vec<Value> = kept
        .iter()
        .flat_map(|file| {
            fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    assert!(
        kept[0].to_str().unwrap().contains(&format!("{:020}", lines[0]["seq"].as_u64().unwrap()))
    );
    assert!(
        lines.windows(2).all(|pair| {
            pair[0]["seq"].as_u64().unwrap() + 1 == pair[1]["seq"].as_u64().unwrap()
        })
    );
    assert_eq!(newest["seq"], 1 + deleted, "the start and each deletion");
    assert_eq!(newest["seq"], lines.last().unwrap()["seq"]);
    assert_eq!(newest["outcome"], "not_found");
}

#[test]
fn what_cannot_be_written_is_counted_and_told_and_no_client_waits() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    assert!(!entries(&mut boss).is_empty());
    let file = files(&server).pop().unwrap();
    fs::rename(&file, server.data.join("audit/away")).unwrap();
    symlink(server.data.join("elsewhere"), &file).unwrap();
    for _ in 0..5 {
        boss.ok("Pause", json!({"queue": "q"}));
    }
    until("five entries to be lost", || {
        (number(&mut boss, "corq_audit_lost_total") == 5).then_some(())
    });
    assert!(!server.data.join("elsewhere").exists());
    fs::remove_file(&file).unwrap();
    boss.ok("Resume", json!({"queue": "q"}));
    let all = entries(&mut boss);
    let commands: Vec<&str> = all.iter().map(|it| it["command"].as_str().unwrap()).collect();
    assert_eq!(commands, ["EntriesLost", "Resume"]);
    assert_eq!(all[0]["count"], 5);
    until("the log to say so", || {
        server.output().contains("the audit log cannot be written").then_some(())
    });
}

#[test]
fn names_that_clients_choose_act_on_no_terminal_and_begin_no_line() {
    let server = Start::new().start();
    let mut c = server.client();
    let nasty = "g\n{\"seq\":1}\u{1b}[31m\u{202e}\u{9b}";
    c.ok("SetGroupConcurrency", json!({"queue": "q", "groupId": nasty, "concurrency": 2}));
    let about = of(&mut c, "SetGroupConcurrency")[0]["about"].clone();
    assert_eq!(about, format!("group {nasty}: limit 2"));
    let text = fs::read_to_string(&files(&server)[0]).unwrap();
    let is_raw = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
    assert!(!text.contains(is_raw), "{text:?}");
    for line in text.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let shown = Tool::of(&server).ok(&["audit", server.data.to_str().unwrap()]);
    assert!(!shown.contains(is_raw) && shown.contains("SetGroupConcurrency"), "{shown:?}");
}

#[test]
fn settings_that_are_read_again_have_an_entry_whether_it_went_well_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    fs::write(&file, "boss\n").unwrap();
    let server = Start::new().env("AUTH_TOKENS_FILE", file.display()).start();
    let mut boss = client(&server, "boss");
    for (text, outcome) in [("boss\nread:looker\n", "ok"), ("push(q:x\n", "failed")] {
        fs::write(&file, text).unwrap();
        server.signal(Signal::HUP);
        until("it to be told", || {
            let told = of(&mut boss, "Reload");
            told.iter().any(|entry| entry["outcome"] == outcome).then_some(())
        });
    }
    let told: Vec<Value> = of(&mut boss, "Reload").iter().map(told).collect();
    assert_eq!(
        told[0],
        json!({"face": "server", "command": "Reload", "about": "tokens: 2 tokens", "outcome": "ok"})
    );
    assert!(told[1]["about"].as_str().unwrap().contains("line 1"), "{told:?}");
    assert!(!told[1]["about"].as_str().unwrap().contains(":x"), "{told:?}");
}

#[test]
fn without_an_audit_log_nothing_is_written_and_without_a_disk_the_last_entries_are_kept() {
    let server = Start::new().env("AUDIT", "off").start();
    let mut c = server.client();
    c.ok("Pause", json!({"queue": "q"}));
    assert_eq!(c.refused("AuditLog", json!({})), "The server keeps no audit log");
    assert!(!server.data.join("audit").exists());
    let server = Start::new().memory().start();
    let mut c = server.client();
    c.ok("Pause", json!({"queue": "q"}));
    let expected = json!({"face": "tcp", "command": "Pause", "queue": "q", "outcome": "ok"});
    assert_eq!(told(&of(&mut c, "Pause")[0]), expected);
}

#[test]
fn a_start_that_cannot_open_the_log_says_how_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    drop(Start::new().env("AUDIT", "off").start_at(&data));
    fs::write(data.join("audit"), "a file").unwrap();
    let (status, said) = Start::new().env("LOG_FORMAT", "json").run_to_its_end(&data);
    assert!(!status.success());
    let line: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let text = line["msg"].as_str().unwrap();
    assert!(text.starts_with("AUDIT: ") && text.contains("AUDIT=off starts without"), "{text}");
    assert_eq!(line["level"], "ERROR");
}

#[test]
fn the_command_line_shows_the_log_of_a_server_and_of_a_directory() {
    let mut server = guarded();
    let mut boss = client(&server, "boss");
    for queue in ["a", "b", "a"] {
        boss.ok("Pause", json!({"queue": queue}));
        boss.ok("Resume", json!({"queue": queue}));
    }
    assert_eq!(of(&mut boss, "Resume").len(), 3);
    let tool = Tool::of(&server);
    let data = server.data.to_str().unwrap().to_owned();
    let lines = |words: &[&str]| {
        let text = tool.ok(words);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let by_queue = ["audit", &data, "--json", "--queue", "a", "--command", "pause"];
    let found = lines(&by_queue);
    assert_eq!(found.len(), 2);
    assert_eq!(
        lines(&["audit", "--token", "boss", "--json", "--queue", "a", "--command", "Pause"]),
        found
    );
    assert_eq!(
        lines(&["audit", &data, "--json", "--limit", "1", "--command", "resume"])[0]["queue"],
        "a"
    );
    assert_eq!(
        lines(&["audit", &data, "--json", "--since", "2000-01-01T00:00:00Z", "--queue", "b"]).len(),
        2
    );
    assert_eq!(
        lines(&["audit", &data, "--json", "--since", "2100-01-01T00:00:00Z"]),
        Vec::<Value>::new()
    );
    let table = tool.ok(&["audit", &data, "--command", "Start"]);
    assert!(
        table.starts_with("TIME") && table.contains("server") && table.contains("Start"),
        "{table}"
    );
    assert!(
        tool.fails(1, &["audit", "--token", "reader"])
            .contains("AuditLog is not for the role read: it needs admin")
    );
    server.terminate();
    assert_eq!(lines(&by_queue), found, "no server is needed");
    assert!(tool.fails(1, &["audit", "/nowhere"]).contains("is not there"));
    assert!(tool.fails(2, &["audit", &data, "--since", "noon"]).contains("neither a duration"));
}

#[test]
fn entries_are_followed_as_they_come() {
    let server = Start::new().start();
    let mut c = server.client();
    let data = server.data.to_str().unwrap();
    for words in [vec!["audit", "--follow", "--json", data], vec!["audit", "--follow", "--json"]] {
        let queue = format!("followed-{}", words.len());
        let mut child = Tool::of(&server).start(&words);
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut next = || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
            serde_json::from_str::<Value>(&line).unwrap()
        };
        while next()["command"] != "Start" {}
        c.ok("Pause", json!({"queue": queue}));
        while next()["queue"] != *queue {}
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn backups_doctors_and_other_numbers_of_shards_take_no_harm_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    c.push("q", 1);
    c.ok("Pause", json!({"queue": "q"}));
    assert_eq!(of(&mut c, "Pause").len(), 1);
    let (data, copy) = (server.data.to_str().unwrap().to_owned(), dir.path().join("copy"));
    let tool = Tool::of(&server).env("DATA_PATH", &data);
    let copy = copy.to_str().unwrap();
    tool.ok(&["backup", copy]);
    assert!(!dir.path().join("copy/audit").exists());
    assert_eq!(of(&mut c, "BackupPoint").len(), 1);
    let restored = dir.path().join("restored");
    tool.ok(&["restore", copy, restored.to_str().unwrap()]);
    server.terminate();
    tool.ok(&["log", "verify", &data]);
    server.set("SHARDS", 3);
    server.start();
    let mut c = server.client();
    assert_eq!(of(&mut c, "Pause").len(), 1);
    assert_eq!(c.counted("q", "waiting"), 1);
    assert!(get(server.http, "/ready").unwrap().contains(" 200 "));
    let server = Start::new().env("SHARDS", 2).start_at(&restored);
    assert_eq!(of(&mut server.client(), "Pause"), Vec::<Value>::new(), "a log of its own");
}
