//! Pushes of one job, with all that can be said of it.

use serde_json::{Value, json};

use super::{push, tool};
use crate::support::terminal::Terminal;
use crate::{client, queue};

#[test]
fn every_option_reaches_the_job() {
    let (tool, queue) = (tool(), queue("cli-options"));
    let parent = push(&tool, &queue, "0");
    let id = format!("own-{queue}");
    let words = [
        "push",
        &queue,
        r#"{"to":"ada","n":[1,2.5,null]}"#,
        "--priority",
        "-3",
        "--delay",
        "90s",
        "--max-attempts",
        "7",
        "--backoff",
        "250ms",
        "--ttl",
        "1h30m",
        "--timeout",
        "5000",
        "--unique-key",
        "k",
        "--job-id",
        &id,
        "--tag",
        "a",
        "--tag",
        "b,c",
        "--group-id",
        "g",
        "--lifo",
        "--remove-on-complete",
        "--remove-on-fail",
        "--durable",
        "--depends-on",
        &parent,
        "--repeat-every",
        "2d",
        "--repeat-limit",
        "4",
    ];
    assert_eq!(tool.ok(&words), format!("{id}\n"));
    let job = &client().ok("GetJob", json!({"id": id}))["job"];
    for (field, expected) in [
        ("data", json!({"to": "ada", "n": [1, 2.5, null]})),
        ("priority", json!(-3)),
        ("maxAttempts", json!(7)),
        ("backoff", json!(250)),
        ("ttl", json!(5_400_000)),
        ("timeout", json!(5000)),
        ("uniqueKey", json!("k")),
        ("customId", json!(id)),
        ("tags", json!(["a", "b,c"])),
        ("groupId", json!("g")),
        ("lifo", json!(true)),
        ("removeOnComplete", json!(true)),
        ("removeOnFail", json!(true)),
        ("durable", json!(true)),
        ("dependsOn", json!([parent])),
        ("repeat", json!({"every": 172_800_000, "limit": 4, "count": 0})),
        ("state", json!("waiting-children")),
    ] {
        assert_eq!(job[field], expected, "{field} of {job}");
    }
    let due = job["runAt"].as_i64().unwrap() - job["createdAt"].as_i64().unwrap();
    assert_eq!(due, 90_000);
}

#[test]
fn the_answer_is_the_id_or_raw() {
    let (tool, queue) = (tool(), queue("cli-answer"));
    let id = push(&tool, &queue, "1");
    assert_eq!(client().state(&id), "waiting");
    let answer = tool.json(&["push", &queue, "1"]);
    assert_eq!(answer["ok"], true);
    assert_eq!(client().state(answer["id"].as_str().unwrap()), "waiting");
    assert_eq!(answer.as_object().unwrap().len(), 2);
}

#[test]
fn payloads_come_from_arguments_files_and_standard_input() {
    let (tool, queue) = (tool(), queue("cli-payload"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.json");
    std::fs::write(&file, "{\n  \"from\": \"file\"\n}\n").unwrap();
    let file = format!("@{}", file.display());
    tool.ok(&["push", &queue, "-12.5"]);
    tool.ok(&["push", &queue, "\"text\""]);
    tool.ok(&["push", &queue, &file]);
    for words in [&["push", &queue, "-"][..], &["push", &queue]] {
        let ran = tool.run_with(words, r#"["from","stdin"]"#);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let mut client = client();
    let data: Vec<_> = (0..5).map(|_| client.pull(&queue)["data"].clone()).collect();
    let stdin = json!(["from", "stdin"]);
    let expected = [json!(-12.5), json!("text"), json!({"from": "file"}), stdin.clone(), stdin];
    assert_eq!(data, expected);
}

#[test]
fn exact_integers_and_floats_arrive_as_they_are_written() {
    let (tool, queue) = (tool(), queue("cli-exact"));
    let data = r#"{"big":18446744073709551615,"small":-9223372036854775808,"float":1.0}"#;
    let id = push(&tool, &queue, data);
    assert!(tool.ok(&["job", "get", &id, "--json"]).contains(data));
    assert!(tool.ok(&["job", "get", &id]).contains(data));
}

#[test]
fn what_is_no_json_is_not_pushed() {
    let (tool, queue) = (tool(), queue("cli-no-json"));
    let line = tool.fails(2, &["push", &queue, "hello"]);
    assert!(line.starts_with("data is not JSON") && line.contains("'\"hello\"'"), "{line}");
    assert!(tool.fails(2, &["push", &queue, "{\"a\":1"]).contains("data is not JSON"));
    assert!(tool.fails(2, &["push", &queue, "@/no/such/file"]).contains("/no/such/file"));
    let ran = tool.run_with(&["push", &queue], "");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn a_person_who_gives_no_payload_is_told_instead_of_waited_for() {
    let command = tool().command(&["push", &queue("cli-tty-payload")]);
    let (code, shown) = Terminal::start(command).end();
    assert_eq!(code, Some(2));
    assert!(shown.contains("data is required"), "{shown}");
}

#[test]
fn a_repeated_push_gives_the_first_id() {
    let (tool, queue) = (tool(), queue("cli-unique"));
    let words = ["push", &queue, "1", "--unique-key", "only"];
    assert_eq!(tool.ok(&words), tool.ok(&words));
}

#[test]
fn a_schedule_needs_no_payload_and_a_push_says_that_there_is_none() {
    let (tool, queue) = (tool(), queue("cli-no-payload"));
    assert_eq!(tool.fails(2, &["push", &queue]), "no payload: give JSON, @file, or null");
    assert_eq!(tool.fails(2, &["push", &queue, ""]), "no payload: give JSON, @file, or null");
    let ran = tool.run_with(&["push", &queue, "-"], " \n");
    assert!(ran.code == Some(2) && ran.err.contains("no payload: "), "{ran:?}");
    let id = push(&tool, &queue, "null");
    assert!(tool.fails(2, &["job", "update", &id]).starts_with("no payload: "));
    let payload = |words: &[&str], input: &str| {
        let words = [&["cron", "add", &queue, &queue, "--every", "1d", "--json"], words].concat();
        let ran = tool.run_with(&words, input);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let id = tool.ok(&["cron", "trigger", &queue]).trim().to_owned();
        client().ok("GetJob", json!({"id": id}))["job"]["data"].clone()
    };
    assert_eq!(payload(&["[1]"], ""), json!([1]));
    assert_eq!(payload(&[], ""), Value::Null);
    assert_eq!(payload(&[], "{\"a\":1}"), json!({"a": 1}));
    assert_eq!(payload(&["-"], "2"), json!(2));
    let words = ["cron", "add", &queue, &queue, "--every", "1d"];
    let (code, shown) = Terminal::start(tool.command(&words)).end();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(payload(&["null"], ""), Value::Null);
}

#[test]
fn a_push_says_that_it_depends_on_a_job_in_the_dead_letter_queue() {
    let (mut client, tool, queue) = (client(), tool(), queue("cli-push-dead"));
    let dead = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": dead, "error": "no"}));
    let lives = client.push(&queue, 2);
    let ran = tool.run(&["push", &queue, "3", "--depends-on", &dead, "--child", &lives]);
    let id = ran.out.trim();
    assert_eq!((ran.code, client.state(id)), (Some(0), "waiting-children".to_owned()));
    let told = format!("{id} depends on {dead}, in the dead-letter queue, and waits until that is");
    assert!(ran.err.contains(&told), "{ran:?}");
    let why = tool.ok(&["job", "explain", id]);
    let told = format!(
        "it waits for 2 other jobs, and depends on job {dead}, which is in the dead-letter queue"
    );
    assert!(why.contains(&told), "{why}");
    client.ok("RetryDlq", json!({"queue": queue}));
    let ran = tool.run(&["push", &queue, "4", "--depends-on", &dead]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(!tool.ok(&["job", "explain", id]).contains("dead-letter"));
}
