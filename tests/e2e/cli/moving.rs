//! Jobs of other job queues, and exports that are read again. The fear: a job that is lost on the way, or that runs twice because
//! the move was done twice.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::fake::listen;
use super::fake_redis::{Held, Keys, recorded, serve};
use crate::support::tool::Tool;
use crate::support::{Client, Server};

const BULLMQ: &str = include_str!("recorded/bullmq.json");
const SIDEKIQ: &str = include_str!("recorded/sidekiq.json");

fn server() -> (Server, Tool, Client) {
    let server = Server::start_default();
    let tool = Tool::of(&server);
    let client = server.client();
    (server, tool, client)
}

/// A run that must succeed; its report.
fn report(tool: &Tool, words: &[&str]) -> Value {
    let out = tool.ok(&[&["--json", "import"], words].concat());
    serde_json::from_str(&out).unwrap()
}

/// Jobs that were pushed, and those that were known.
fn counts(report: &Value) -> (u64, u64) {
    let states = report["states"].as_object().unwrap();
    let sum = |name: &str| states.values().map(|state| state[name].as_u64().unwrap()).sum();
    (sum("pushed"), sum("known"))
}

fn job(client: &mut Client, id: &str) -> Value {
    client.ok("GetJob", json!({"id": id}))["job"].clone()
}

#[test]
fn jobs_of_bullmq_are_moved_once_with_their_options() {
    let (_server, tool, mut client) = server();
    let url = format!("redis://127.0.0.1:{}", serve(recorded(BULLMQ)));
    let dry = report(&tool, &["bullmq", &url, "--dry-run"]);
    assert_eq!((counts(&dry), dry["dryRun"].clone()), ((11, 0), json!(true)));
    assert_eq!(client.ok("Stats", json!({}))["stats"]["totalPushed"], 0, "nothing is pushed");
    let first = report(&tool, &["bullmq", &url]);
    assert_eq!((counts(&first), first["schedules"]["pushed"].clone()), ((11, 0), json!(2)));
    let second = report(&tool, &["bullmq", &url]);
    assert_eq!((counts(&second), second["schedules"]["known"].clone()), ((0, 11), json!(2)));
    let welcome = job(&mut client, "bullmq:emails:first");
    assert_eq!(
        welcome["data"],
        json!({"to": "ada", "n": 9_007_199_254_740_991_u64, "list": [1, 2.5, null, "ü"]})
    );
    assert_eq!(
        (&welcome["name"], &welcome["maxAttempts"], &welcome["backoff"]),
        (&json!("welcome"), &json!(5), &json!(1500))
    );
    // Lower numbers go first there.
    assert_eq!(job(&mut client, "bullmq:emails:3")["priority"], -7);
    // Two attempts are left, as one of three was made.
    assert_eq!(job(&mut client, "bullmq:fails:2")["maxAttempts"], 2);
    let parent = client.ok("GetJobs", json!({"queue": "parents"}))["jobs"][0].clone();
    assert_eq!(parent["state"], "waiting-children");
    assert_eq!(parent["childrenIds"].as_array().unwrap().len(), 2);
    let schedule = client.ok("CronGet", json!({"name": "bullmq:emails:nightly"}))["cron"].clone();
    assert_eq!(
        (&schedule["schedule"], &schedule["timezone"]),
        (&json!("0 15 3 * * *"), &json!("Europe/Rome"))
    );
    assert_eq!(schedule["data"], json!({"all": true}));
}

#[test]
fn a_dead_letter_keeps_its_error_and_stays_where_a_client_has_sent_it_since() {
    let (_server, tool, mut client) = server();
    let url = format!("redis://127.0.0.1:{}", serve(recorded(BULLMQ)));
    report(&tool, &["bullmq", &url, "--states", "dead"]);
    let dead = client.ok("Dlq", json!({"queue": "fails", "filter": {}}))["entries"][0].clone();
    assert_eq!(
        (&dead["error"], &dead["reason"]),
        (&json!("no ink in dies"), &json!("max_attempts_exceeded"))
    );
    assert_eq!(dead["job"]["attempts"], 1);
    client.ok("RetryDlq", json!({"queue": "fails"}));
    report(&tool, &["bullmq", &url, "--states", "dead"]);
    assert_eq!(job(&mut client, "bullmq:fails:1")["state"], "waiting");
}

#[test]
fn a_move_that_was_broken_off_before_a_dead_letter_was_one_is_finished_by_the_next() {
    let (_server, tool, mut client) = server();
    // The job that a run leaves if it ends between its two steps.
    let year_ms = 365 * 86_400_000_u64;
    client.push_with(
        "fails",
        json!({"n": 5}),
        json!({"jobId": "bullmq:fails:1", "delay": year_ms}),
    );
    let url = format!("redis://127.0.0.1:{}", serve(recorded(BULLMQ)));
    let again = report(&tool, &["bullmq", &url, "--states", "dead"]);
    assert_eq!(counts(&again), (0, 1));
    assert_eq!(job(&mut client, "bullmq:fails:1")["failedReason"], "no ink in dies");
}

#[test]
fn jobs_of_sidekiq_are_moved_and_removed_once_they_are_here() {
    let (_server, tool, mut client) = server();
    let keys = recorded(SIDEKIQ);
    let url = format!("redis://127.0.0.1:{}/2", serve(Arc::clone(&keys)));
    let moved = report(&tool, &["sidekiq", &url, "--remove"]);
    assert_eq!((counts(&moved), &moved["removed"]), ((5, 0), &json!(5)));
    for (key, held) in keys.lock().unwrap().iter() {
        let is_empty = match held {
            Held::List(items) => items.is_empty(),
            Held::Sorted(items) => items.is_empty(),
            Held::Set(_) | Held::Hash(_) => true,
        };
        assert!(is_empty, "{key:?} {held:?}");
    }
    let first = job(&mut client, "sidekiq:j1");
    assert_eq!((&first["name"], &first["data"]), (&json!("Mailer"), &json!(["ada", {"n": 1}])));
    // Two of six attempts were made.
    assert_eq!(job(&mut client, "sidekiq:j4")["maxAttempts"], 4);
    assert_eq!(job(&mut client, "sidekiq:j5")["failedReason"], "RuntimeError: dead ink");
}

/// A field of a message of Protocol Buffers.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, value.len() as u8], value].concat()
}

/// A task as asynq 0.26 writes it (`internal/proto/asynq.proto` of it).
fn task(id: &str, payload: &[u8], rest: &[u8]) -> Held {
    let parts = [
        field(1, b"mail:send"),
        field(2, payload),
        field(3, id.as_bytes()),
        vec![5 << 3, 5],
        rest.to_vec(),
    ];
    Held::Hash(vec![(b"msg".to_vec(), parts.concat())])
}

fn asynq() -> Keys {
    let key = |rest: &str| format!("asynq:{{mail}}:{rest}").into_bytes();
    let list = |ids: &[&str]| Held::List(ids.iter().map(|id| id.as_bytes().to_vec()).collect());
    let later = 4_000_000_000.0 / 2.0;
    let entry = [
        field(1, b"e"),
        field(2, b"@every 1m30s"),
        field(3, b"tick"),
        field(4, b"{}"),
        field(5, b"Queue(\"mail\")"),
    ];
    Arc::new(Mutex::new(BTreeMap::from([
        (b"asynq:queues".to_vec(), Held::Set(vec![b"mail".to_vec()])),
        (key("pending"), list(&["b", "a"])),
        (key("retry"), Held::Sorted(vec![(b"c".to_vec(), 1_800_000_000.0)])),
        (key("archived"), Held::Sorted(vec![(b"d".to_vec(), 1_700_000_000.0)])),
        (key("scheduled"), Held::Sorted(vec![(b"e".to_vec(), later)])),
        (key("t:a"), task("a", b"{\"to\":\"ada\"}", &[])),
        (key("t:b"), task("b", b"\xff\x00", &[8 << 3, 30])),
        (key("t:c"), task("c", b"3", &[6 << 3, 2])),
        (key("t:d"), task("d", b"4", &[vec![6 << 3, 5], field(7, b"no ink")].concat())),
        (key("t:e"), task("e", b"5", &[])),
        (b"asynq:schedulers".to_vec(), Held::Sorted(vec![(b"asynq:schedulers:{x}".to_vec(), 1.0)])),
        (b"asynq:schedulers:{x}".to_vec(), Held::List(vec![entry.concat()])),
    ])))
}

#[test]
fn tasks_of_asynq_are_moved_with_what_their_messages_say() {
    let (_server, tool, mut client) = server();
    let keys = asynq();
    let url = format!("redis://127.0.0.1:{}", serve(Arc::clone(&keys)));
    let moved = report(&tool, &["asynq", &url]);
    assert_eq!((counts(&moved), &moved["schedules"]["pushed"]), ((5, 0), &json!(1)), "{moved}");
    let oldest = client.pull("mail");
    assert_eq!((&oldest["id"], &oldest["data"]), (&json!("asynq:mail:a"), &json!({"to": "ada"})));
    let second = job(&mut client, "asynq:mail:b");
    assert_eq!((&second["timeout"], &second["maxAttempts"]), (&json!(30_000), &json!(6)));
    assert_eq!(job(&mut client, "asynq:mail:c")["maxAttempts"], 4, "two of six were made");
    assert_eq!(job(&mut client, "asynq:mail:d")["failedReason"], "no ink");
    assert_eq!(counts(&report(&tool, &["asynq", &url, "--remove"])), (0, 5));
    let left =
        keys.lock().unwrap().keys().filter(|key| key.windows(4).any(|it| it == b"}:t:")).count();
    assert_eq!(left, 0);
}

/// A Faktory server as far as an import needs it: greeting, queues, jobs one by one, acknowledgements.
fn faktory(jobs: &[&str]) -> (u16, Arc<Mutex<Vec<String>>>) {
    let acked = Arc::new(Mutex::new(Vec::new()));
    let (left, heard) = (
        Mutex::new(jobs.iter().rev().map(|job| (*job).to_owned()).collect::<Vec<_>>()),
        Arc::clone(&acked),
    );
    let port = listen(move |mut socket| {
        socket.write_all(b"+HI {\"v\":2,\"i\":2,\"s\":\"salt\"}\r\n").unwrap();
        let lines = BufReader::new(socket.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            let counted = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            let answer = match line.split_once(' ').unwrap_or((&line, "")) {
                ("HELLO", words) if words.contains("\"pwdhash\":\"") => "+OK\r\n".to_owned(),
                ("INFO", _) => {
                    let count = left.lock().unwrap().len();
                    counted(&format!("{{\"faktory\":{{\"queues\":{{\"mail\":{count}}}}}}}"))
                }
                ("FETCH", "mail") => {
                    left.lock().unwrap().pop().map_or("$-1\r\n".to_owned(), |job| counted(&job))
                }
                ("ACK", words) => {
                    heard.lock().unwrap().push(words.to_owned());
                    "+OK\r\n".to_owned()
                }
                _ => "-ERR not known\r\n".to_owned(),
            };
            socket.write_all(answer.as_bytes()).unwrap();
        }
    });
    (port, acked)
}

#[test]
fn jobs_of_faktory_are_acknowledged_once_they_are_here_and_counted_otherwise() {
    let (_server, tool, mut client) = server();
    let first = r#"{"jid":"j1","queue":"mail","jobtype":"send","args":[1],"retry":4,"reserve_for":60,"created_at":"2026-11-01T10:00:00Z"}"#;
    let (port, acked) =
        faktory(&[first, r#"{"jid":"j2","queue":"mail","jobtype":"send","args":[2]}"#]);
    let url = format!("tcp://:secret@127.0.0.1:{port}");
    assert_eq!(counts(&report(&tool, &["faktory", &url])), (0, 0));
    assert!(acked.lock().unwrap().is_empty());
    let moved = report(&tool, &["faktory", &url, "--remove"]);
    assert_eq!((counts(&moved), &moved["removed"]), ((2, 0), &json!(2)));
    assert_eq!(*acked.lock().unwrap(), [r#"{"jid":"j1"}"#, r#"{"jid":"j2"}"#]);
    let job = job(&mut client, "faktory:j1");
    assert_eq!(
        (&job["data"], &job["maxAttempts"], &job["timeout"]),
        (&json!([1]), &json!(5), &json!(60_000))
    );
}

/// Everything that a server has, as it is exported, in no order and without what holds for the moment only.
fn exported(tool: &Tool) -> Vec<Value> {
    let ran = tool.run(&["export"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let mut lines: Vec<Value> =
        ran.out.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &mut lines {
        if let Some(job) = line.get_mut("job").and_then(Value::as_object_mut) {
            job.remove("failedAt");
            if job["state"] == "failed" {
                job.remove("runAt");
            }
        }
    }
    lines.sort_by_key(ToString::to_string);
    lines
}

#[test]
fn an_export_imports_again_exactly() {
    let (_server, tool, mut client) = server();
    client.push_with(
        "q",
        json!({"a": 1}),
        json!({"name": "plain", "tags": ["x"], "priority": -3, "maxAttempts": 7, "lifo": true}),
    );
    client.push_with("q", json!("later"), json!({"delay": 3_600_000, "uniqueKey": "k", "dedup": {"ttl": 90_000_000}, "ttl": 90_000_000}));
    client.push_with(
        "q",
        json!(1.0),
        json!({"groupId": "g", "timeout": 5000, "backoff": {"type": "fixed", "delay": 7}}),
    );
    client.push_with(
        "q",
        json!(null),
        json!({"jobId": "mine", "removeOnFail": true, "stallTimeout": 9000, "keepLogs": 3}),
    );
    let child = client.push_with("kids", json!(1), json!({}));
    client.push_with("parents", json!(2), json!({"dependsOn": [child], "childrenIds": [child]}));
    let dead = client.push_with("dlq", json!({"x": [1, 2]}), json!({"maxAttempts": 4}));
    client.ok("Discard", json!({"id": dead, "error": "no ink", "attempts": 4}));
    client.ok("Pause", json!({"queue": "q"}));
    client.ok("RateLimit", json!({"queue": "q", "limit": 5, "duration": 2000}));
    client.ok("SetConcurrency", json!({"queue": "kids", "limit": 3}));
    client.ok("SetDlqConfig", json!({"queue": "dlq", "config": {"maxEntries": 50}}));
    client.ok("SetGroupWeight", json!({"queue": "q", "groupId": "g", "weight": 4}));
    client.ok("Cron", json!({"name": "c", "queue": "kids", "schedule": "0 3 * * *", "data": {"r": 1}, "timezone": "Europe/Rome", "jobOptions": {"maxAttempts": 9}}));
    let before = exported(&tool);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tool.run(&["export"]).out).unwrap();
    let (_other, others, mut there) = server();
    let path = file.path().to_str().unwrap();
    assert_eq!(counts(&report(&others, &["ndjson", path])), (7, 0));
    assert_eq!(exported(&others), before);
    assert_eq!(counts(&report(&others, &["ndjson", path])), (0, 7));
    assert_eq!(exported(&others), before);
    // By the ids that the jobs had.
    assert_eq!(job(&mut there, &child)["queue"], "kids");
}

#[test]
fn payloads_that_json_cannot_hold_are_moved_byte_for_byte() {
    let (_server, tool, mut client) = server();
    let payloads = [
        rmpv::Value::Binary(vec![0, 255, 7]),
        rmpv::Value::Ext(5, vec![1, 2, 3]),
        rmpv::Value::from(u64::MAX),
        rmpv::Value::from(i64::MIN),
        rmpv::Value::F64(3.0),
        rmpv::Value::F32(0.1),
        rmpv::Value::Map(vec![(rmpv::Value::from(1), rmpv::Value::Nil)]),
    ];
    for payload in &payloads {
        let push = rmpv::Value::Map(vec![
            ("cmd".into(), "PUSH".into()),
            ("queue".into(), "q".into()),
            ("data".into(), payload.clone()),
        ]);
        client.send_bytes(&crate::support::frame(&push)).unwrap();
        assert_eq!(client.recv().unwrap()["ok"], true);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tool.run(&["export"]).out).unwrap();
    let (_other, others, _) = server();
    assert_eq!(counts(&report(&others, &["ndjson", file.path().to_str().unwrap()])), (7, 0));
    assert_eq!(exported(&others), exported(&tool));
}

#[test]
fn what_cannot_be_moved_is_named_and_the_rest_is_moved() {
    let (_server, tool, mut client) = server();
    let lines = "{\"job\":{\"queue\":\"q\",\"id\":\"a\",\"data\":1}}\n\
                 {\"job\":{\"queue\":\"q\",\"id\":\"b\",\"data\":2,\"priority\":2000000}}\n\
                 {\"job\":{\"queue\":\"q\",\"id\":\"c\",\"data\":3,\"state\":\"waiting-children\",\"dependsOn\":[\"d\"]}}\n\
                 {\"job\":{\"queue\":\"q\",\"id\":\"d\",\"data\":4}}\n\
                 {\"job\":{\"queue\":\"q\",\"id\":\"e\",\"data\":5,\"state\":\"waiting-children\",\"dependsOn\":[\"gone\"]}}\n";
    let ran = tool.run_with(&["import", "ndjson", "-"], lines);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("2 jobs or schedules were refused"), "{}", ran.err);
    assert!(ran.out.contains("priority must be between -1000000 and 1000000"), "{}", ran.out);
    assert!(ran.out.contains("a job that it depends on was not found"), "{}", ran.out);
    assert_eq!(client.counted("q", "waiting"), 2);
    assert_eq!(client.counted("q", "waiting-children"), 1, "its dependency came after it");
    for (line, what) in [
        ("{\"job\":{}}", "the job has no queue"),
        ("nothing", "line 1 is not JSON"),
        ("{\"corqExport\":9}", "later release"),
    ] {
        let ran = tool.run_with(&["import", "ndjson", "-"], line);
        assert!(ran.code == Some(1) && ran.err.contains(what), "{line}: {}", ran.err);
    }
}

#[test]
fn a_source_that_is_not_there_or_another_is_said() {
    let (_server, tool, _) = server();
    let said = |words: &[&str]| tool.fails(1, &[&["import"], words].concat());
    let port = crate::support::free_port();
    assert!(
        said(&["bullmq", &format!("redis://127.0.0.1:{port}")]).contains("cannot reach the source")
    );
    let strange = listen(|mut socket| drop(socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")));
    let (redis, tcp) =
        (format!("redis://127.0.0.1:{strange}"), format!("tcp://127.0.0.1:{strange}"));
    assert!(said(&["sidekiq", &redis]).contains("does not speak the protocol of Redis"));
    assert!(said(&["faktory", &tcp]).contains("does not speak the protocol of Faktory"));
    tool.fails(2, &["import", "bullmq", "127.0.0.1"]);
    tool.fails(2, &["import", "bullmq", "redis://127.0.0.1", "--dry-run", "--remove"]);
}
