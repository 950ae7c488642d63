//! The command line where people look: searches, flows, details, lists, figures, and `top` on its stream.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::terminal::Terminal;
use crate::support::tool::{Tool, pair, rows};
use crate::support::{Client, Server, Start, program, until};
use crate::{client, queue, shared};

fn tool() -> Tool {
    Tool::of(shared())
}

/// A flow: `<name>` over `<name>-a` and `<name>-b`, and `<name>-c` below the first of them.
fn flow(client: &mut Client, name: &str) {
    let job = |id: &str, parent: Value, children: &[&str]| {
        let children: Vec<String> = children.iter().map(|it| format!("{name}{it}")).collect();
        let input =
            json!({"data": 1, "parentId": parent, "childrenIds": children, "dependsOn": children});
        json!({"id": format!("{name}{id}"), "queue": name, "input": input})
    };
    let (top, first) = (json!(name), json!(format!("{name}-a")));
    client.ok(
        "PUSHF",
        json!({"jobs": [
            job("-c", first, &[]), job("-a", top.clone(), &["-c"]), job("-b", top, &[]),
            job("", Value::Null, &["-a", "-b"]),
        ]}),
    );
}

#[test]
fn search_shows_the_jobs_that_it_finds_in_one_queue_or_in_all() {
    // Of its own: a search in all queues finds the large payloads of other tests, and says that it left out some.
    let server = Start::new().start();
    let (mut client, queue, tool) = (server.client(), queue("cli-search"), Tool::at(server.tcp));
    let of = |n: usize| json!({"n": n, "text": format!("{queue} number {n}")});
    let ids: Vec<String> = (0..5).map(|n| client.push(&queue, of(n))).collect();
    client.push_with(&queue, "other", json!({"delay": 3_600_000, "tags": ["t"], "name": "late"}));
    let found = |words: &[&str]| -> Vec<String> {
        let words = [&["search"], words].concat();
        rows(&tool.ok(&words)).into_iter().map(|row| row[0].clone()).collect()
    };
    assert_eq!(found(&[&format!("{queue} number 3")]), [ids[3].clone()]);
    assert_eq!(found(&["--queue", &queue, "--path", "n", "--value", "4"]), [ids[4].clone()]);
    assert_eq!(
        found(&["number", "--queue", &queue, "--newest", "--limit", "2"]),
        [&*ids[4], &*ids[3]]
    );
    assert_eq!(found(&["other", "--queue", &queue, "--tag", "t", "--name", "late"]).len(), 1);
    let table = tool.ok(&["search", "other", "--queue", &queue, "--state", "delayed"]);
    let row = &rows(&table)[0];
    assert_eq!((&*row[1], &*row[2], &*row[4]), (&*queue, "delayed", "\"other\""));
    let none = tool.ok(&["search", "number", "--queue", &queue, "--state", "failed"]);
    assert!(none.starts_with("no such jobs among "), "{none}");
    // A page a line, until there is no other.
    let pages = tool.ok(&["search", &format!("{queue} number"), "--json"]);
    let pages: Vec<Value> = pages.lines().map(|page| serde_json::from_str(page).unwrap()).collect();
    let jobs = pages.iter().map(|page| page["jobs"].as_array().unwrap().len()).sum::<usize>();
    assert_eq!((jobs, &pages.last().unwrap()["next"]), (5, &Value::Null));
    assert!(tool.fails(2, &["search"]).contains("TEXT"));
    assert_eq!(
        tool.fails(1, &["search", "x", "--state", "odd", "--queue", &queue]).split(' ').next(),
        Some("--state")
    );
}

#[test]
fn flow_shows_each_job_below_its_parent() {
    let (mut client, name, tool) = (client(), queue("cli-flow"), tool());
    flow(&mut client, &name);
    let out = tool.ok(&["flow", &name]);
    let jobs: Vec<&str> =
        out.lines().skip(1).map(|line| line.split("  waiting").next().unwrap()).collect();
    let names: Vec<&str> = jobs.iter().map(|job| job.trim_end()).collect();
    let expected =
        [name.clone(), format!("  {name}-a"), format!("    {name}-c"), format!("  {name}-b")];
    assert_eq!(names, expected, "{out}");
    assert!(out.lines().nth(1).unwrap().contains("0/2"), "{out}");
    let cut = tool.ok(&["flow", &name, "--depth", "1"]);
    assert!(!cut.contains(&format!("{name}-c")) && cut.contains("there are more"), "{cut}");
    assert_eq!(tool.json(&["flow", &name])["data"]["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(tool.fails(1, &["flow", "none-such"]), "Job not found");
}

#[test]
fn job_detail_shows_the_job_its_attempts_its_log_and_its_children() {
    let (mut client, name, tool) = (client(), queue("cli-detail"), tool());
    flow(&mut client, &name);
    client.ok("AddLog", json!({"id": name, "message": "a first line", "level": "warn"}));
    let out = tool.ok(&["job", "detail", &name]);
    assert_eq!((pair(&out, "id"), pair(&out, "state")), (&*name, "waiting-children"));
    assert!(out.contains("a first line") && out.contains("children, 0 of 2 done:"), "{out}");
    assert!(out.contains(&format!("{name}-b")), "{out}");
    let (job, token) = client.pull_owned(&name, 3_600_000);
    let id = job["id"].as_str().unwrap().to_owned();
    let out = tool.ok(&["job", "detail", &id]);
    assert!(out.contains("ATTEMPT") && out.contains("test"), "{out}");
    client
        .ok("FAIL", json!({"id": id, "token": token, "error": "it broke", "unrecoverable": true}));
    assert!(tool.ok(&["job", "detail", &id]).contains("it broke"));
    assert_eq!(tool.json(&["job", "detail", &id])["data"]["job"]["id"], json!(id));
}

#[test]
fn queue_list_selects_sorts_and_shows_ends_and_limits() {
    let (mut client, prefix, tool) = (client(), queue("cli-list"), tool());
    let names = ["a", "b", "c"].map(|name| format!("{prefix}-{name}"));
    for (n, name) in names.iter().enumerate() {
        (0..=n).for_each(|n| _ = client.push(name, n));
    }
    let id = client.pull(&names[2])["id"].clone();
    client.ok("ACK", json!({"id": id}));
    client.ok("RateLimit", json!({"queue": names[2], "limit": 5, "duration": 1000}));
    client.ok("SetConcurrency", json!({"queue": names[2], "limit": 3}));
    let list = |words: &[&str]| {
        let words = [&["queue", "list", "--prefix", &prefix], words].concat();
        rows(&tool.ok(&words))
    };
    let names_of = |rows: &[Vec<String>]| rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    assert_eq!(names_of(&list(&[])), names);
    let longest = list(&["--sort", "waiting", "--limit", "2"]);
    assert_eq!(names_of(&longest)[..2].iter().filter(|name| **name != names[0]).count(), 2);
    assert_eq!(names_of(&list(&["--sort", "total", "--reverse"])), names);
    assert_eq!(names_of(&list(&["--reverse", "--limit", "1"])), [names[2].clone()]);
    let last = list(&["--sort", "completed", "--limit", "1"]);
    assert_eq!(last[0], [&*names[2], "2", "0", "0", "1", "0", "5 per 1s, 3 active", "running"]);
    // In every page what was asked for, with the cursor of the next.
    let page = tool.json(&["queue", "list", "--prefix", &prefix, "--limit", "2"]);
    assert_eq!((page["queues"].as_array().unwrap().len(), page["next"].is_string()), (2, true));
    assert!(tool.json(&["queue", "list"]).get("next").is_none());
    assert!(tool.fails(1, &["queue", "list", "--sort", "odd"]).starts_with("--sort must be"));
}

#[test]
fn queue_list_shows_a_limited_token_its_own_queues() {
    let server = Start::new().env("AUTH_TOKENS", "boss,read(mail*):reader").start();
    let boss = Tool::of(&server).env("CORQ_TOKEN", "boss");
    for queue in ["mail-a", "other"] {
        boss.ok(&["push", queue, "1"]);
    }
    let found = rows(&Tool::of(&server).env("CORQ_TOKEN", "reader").ok(&["queue", "list"]));
    assert_eq!(found, [["mail-a", "1", "0", "0", "-", "-", "-", "running"]]);
    assert_eq!(rows(&boss.ok(&["queue", "list"])).len(), 2);
}

#[test]
fn figures_of_the_last_day_and_of_the_cores_are_shown() {
    let server = Start::new().env("SHARDS", 2).start();
    let (mut client, tool) = (server.client(), Tool::of(&server));
    assert!(tool.ok(&["history", "q"]).starts_with("there is no history"));
    for n in 0..3 {
        client.push("q", n);
    }
    let id = client.pull("q")["id"].clone();
    client.ok("ACK", json!({"id": id}));
    for words in [&["history", "q"][..], &["history"]] {
        let found = rows(&tool.ok(&[words, &["--points", "1440"]].concat()));
        let sum = |column: usize| -> u64 {
            found.iter().filter_map(|row| row[column].parse::<u64>().ok()).sum()
        };
        assert_eq!((sum(1), sum(2)), (3, 1), "{found:?}");
        assert_eq!(found.last().unwrap()[4], "2", "what waits: {found:?}");
    }
    let day = ["history", "--ago", "1d"];
    assert_eq!(tool.ok(&day), "nothing is known of that time\n");
    assert_eq!(tool.json(&["history", "q", "--points", "1"])["data"]["points"], 1);

    let map = tool.ok(&["heatmap", "q", "--points", "1440"]);
    assert!(map.contains('█') && map.contains("up to 1 jobs"), "{map}");
    assert!(tool.ok(&["heatmap", "--points", "1440"]).contains('█'));
    assert_eq!(tool.ok(&["heatmap", "--ago", "1d"]), "no job was delivered in that time\n");
    let cells: usize = [0, 1]
        .map(|shard: u32| tool.ok(&["heatmap", "--points", "1440", "--shard", &shard.to_string()]))
        .iter()
        .filter(|map| map.contains('█'))
        .count();
    assert_eq!(cells, 1, "the job was on one of the shards");

    let cores = rows(&tool.ok(&["shards"]));
    assert_eq!(cores.iter().map(|row| &*row[0]).collect::<Vec<_>>(), ["0", "1"]);
    assert!(cores.iter().all(|row| row[1].ends_with(" %")), "{cores:?}");
    assert_eq!(tool.json(&["shards"])["data"]["shards"].as_array().unwrap().len(), 2);
}

#[test]
fn workers_are_shown_with_where_they_run_and_what_they_have() {
    let server = Server::start_default();
    let (mut client, tool) = (server.client(), Tool::of(&server));
    assert_eq!(tool.ok(&["workers"]), "no worker is registered\n");
    client.ok("RegisterWorker", json!({
        "name": "press", "queues": ["q"], "workerId": "w1", "concurrency": 4, "hostname": "box", "pid": 42
    }));
    client.ok("RegisterWorker", json!({"name": "other", "queues": ["p"], "workerId": "w2"}));
    let id = client.push("q", 1);
    client.ok("PULL", json!({"queue": "q", "owner": "press", "lockTtl": 3_600_000}));
    let of_queue = rows(&tool.ok(&["workers", "--queue", "q"]));
    assert_eq!(of_queue.len(), 1);
    let row = &of_queue[0];
    assert_eq!(row[..6], ["w1", "press", "box", "42", "active", "1/4"]);
    assert_eq!((&*row[9], &*row[10]), ("q", &*id));
    assert_eq!(rows(&tool.ok(&["workers"])).len(), 2);
    assert_eq!(rows(&tool.ok(&["workers", "--limit", "1"])).len(), 1);
    assert!(tool.json(&["workers"])["data"]["workers"].is_array());
}

#[test]
fn top_watches_one_stream_of_samples() {
    let server = Start::new().memory().start();
    let mut client = server.client();
    // This queue stays above those that come later, whose names are so drawn in one piece.
    (0..3).for_each(|n| _ = client.push("emails", n));
    client.ok("Pause", json!({"queue": "emails"}));
    client.ok("RegisterWorker", json!({"name": "press", "queues": ["emails"]}));
    let metric = |client: &mut Client, name: &str| -> f64 {
        let text = client.ok("Prometheus", json!({"queues": "none"}))["data"]["metrics"].clone();
        let line = format!("corq_{name} ");
        let value = text.as_str().unwrap().lines().find_map(|it| it.strip_prefix(&line));
        value.unwrap().parse().unwrap()
    };
    let mut terminal = Terminal::start(Tool::of(&server).command(&["top"]));
    for word in ["emails", "paused", "p99", "cores", "press"] {
        terminal.wait_for(word);
    }
    assert!((metric(&mut client, "watchers") - 1.0).abs() < 0.1);
    let before = metric(&mut client, "watch_samples_total");
    until("another sample", || (metric(&mut client, "watch_samples_total") > before).then_some(()));
    client.push("afterwards", 1);
    terminal.wait_for("afterwards");
    terminal.press("q");
    assert_eq!(terminal.end().0, Some(0));
    until("no one watches", || (metric(&mut client, "watchers") < 0.5).then_some(()));
}

#[test]
fn every_new_command_has_examples_in_its_help() {
    let tool = tool();
    for words in [
        &["search"][..],
        &["flow"],
        &["job", "detail"],
        &["queue", "list"],
        &["history"],
        &["heatmap"],
        &["shards"],
        &["workers"],
    ] {
        let help = tool.ok(&[words, &["--help"]].concat());
        let example = format!("corq {}", words.join(" "));
        let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("{help}"));
        assert!(examples.contains(&example), "{help}");
    }
}

/// The tool, told to show events of the shared server.
fn show_events(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("events").args(arguments);
    command.args(["--host", "127.0.0.1", "--http-port", &shared().http.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_tool_asks_for_the_events_that_it_is_told_and_refuses_a_type_that_is_none() {
    let refused = show_events(&["--type", "failed,exploded"]).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("exploded"), "{text}");
    assert!(text.contains("pushed, pulled, completed, failed"), "{text}");

    let (mut client, base) = (client(), queue("tool"));
    let queues = format!("{base}-a,{base}.*");
    let arguments =
        ["--queue", &queues, "--type", "pushed", "--no-data", "--count", "2", "--json", "--follow"];
    let shown = show_events(&arguments).spawn().unwrap();
    // The stream is open once it shows events, which it does until it has shown enough.
    let shown = std::thread::spawn(move || shown.wait_with_output().unwrap());
    let mut pushed = Vec::new();
    let output = loop {
        if shown.is_finished() {
            break shown.join().unwrap();
        }
        client.push(&format!("{base}-other"), 0);
        for queue in ["-a", ".b"] {
            pushed.push(client.push(&format!("{base}{queue}"), json!({"n": 1})));
        }
        std::thread::yield_now();
    };
    let lines = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(events.len(), 2, "{lines}");
    for event in events {
        assert!(pushed.iter().any(|id| event["jobId"] == id.as_str()), "{event}");
        assert!(event.get("data").is_none() && event["eventType"] == "pushed");
    }
}
