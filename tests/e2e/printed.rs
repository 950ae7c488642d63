//! Payloads that are larger as JSON than as they came. The fear: a few bytes that become gigabytes wherever they are
//! shown, to clients of HTTP, to listeners and webhooks, and again at each start, since they lie in the log.

use rmpv::Value;
use serde_json::{Value as Json, json};

use crate::support::stream::{Sse, WebSocket};
use crate::support::tool::Tool;
use crate::support::{Client, Habit, Receiver, Server, Start, until};

/// Maps that are keys of maps, so deep: about two bytes each.
fn keys_within_keys(depth: usize) -> Value {
    (0..depth).fold(Value::from("\""), |key, _| Value::Map(vec![(key, Value::Nil)]))
}

fn push(client: &mut Client, queue: &str, data: Value) -> String {
    let entries = [("cmd", "PUSH".into()), ("queue", queue.into()), ("data", data)];
    let entries = entries.map(|(key, value)| (Value::from(key), value)).to_vec();
    client.send_value(&Value::Map(entries)).unwrap();
    let reply = client.recv().unwrap();
    reply["id"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

fn peak_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse().unwrap()
}

fn start() -> Start {
    Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").env("WEBHOOK_RETRY_DELAY_MS", 20)
}

#[test]
fn keys_within_keys_end_no_server_whoever_is_shown_them() {
    let mut server = start().start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    let fields = json!({"url": receiver.url(), "events": ["job.waiting", "job.active"]});
    client.ok("AddWebhook", fields);
    let mut stream = Sse::open(server.http, "/events");
    let mut websocket = WebSocket::open(server.http, "/ws");
    let mut ids = Vec::new();
    for depth in [1, 34, 127] {
        let id = push(&mut client, "q", keys_within_keys(depth));
        let event = stream.next();
        assert_eq!(event["jobId"], *id);
        assert_eq!(event["data"].as_object().unwrap().len(), 1, "{event}");
        let shown = server.web().get(&format!("/jobs/{id}")).expect(200)["job"]["data"].clone();
        let key = shown.as_object().unwrap().keys().next().unwrap().clone();
        assert!(key.len() <= 2 * (2 * depth + 10), "{key}");
        assert_eq!(event["data"], shown);
        assert_eq!(websocket.ok("GetJob", json!({"id": id}))["job"]["data"], shown);
        ids.push((id, shown));
    }
    until("all to be told", || (receiver.posts().len() == ids.len()).then_some(()));
    // They lie in the log, and are told of again.
    server.kill();
    server.start();
    let mut client = server.client();
    for (id, shown) in &ids {
        let pulled = server.web().get("/queues/q/jobs?timeout=60000").expect(200);
        assert_eq!((&pulled["job"]["id"], &pulled["job"]["data"]), (&json!(id), shown));
    }
    until("all to be told again", || (receiver.posts().len() == 2 * ids.len()).then_some(()));
    let told: Vec<Json> =
        receiver.posts().iter().map(|post| serde_json::from_str(post.text()).unwrap()).collect();
    for (id, shown) in &ids {
        assert_eq!(
            told.iter().filter(|one| one["jobId"] == **id && one["data"] == *shown).count(),
            2
        );
    }
    let tool = Tool::of(&server);
    let ran = tool.run(&["job", "get", &ids[1].0]);
    assert!(ran.code == Some(0) && ran.out.len() < 4000, "{ran:?}");
    client.ok("Ping", json!({}));
    assert!(server.terminate().success());
    let ran = tool.run(&["log", "dump", server.data.to_str().unwrap()]);
    assert!(ran.code == Some(0) && ran.out.len() < 100_000, "{} bytes", ran.out.len());
    assert!(ran.out.contains(&ids[1].0));
}

#[test]
fn deeper_than_may_be_is_refused_also_within_keys() {
    let mut client = crate::client();
    let entries =
        [("cmd", "PUSH".into()), ("queue", "deep".into()), ("data", keys_within_keys(129))];
    let entries = entries.map(|(key, value)| (Value::from(key), value)).to_vec();
    client.send_value(&Value::Map(entries)).unwrap();
    assert_eq!(client.recv().unwrap()["error"], "data must be at most 128 levels deep");
}

/// Ten megabytes that become sixty, and no more: as a value, and as the key of a key of a key.
#[test]
fn the_largest_payload_of_quotes_and_control_characters_is_shown_within_its_bound() {
    let server = start().start();
    let mut client = server.client();
    let mut stream = Sse::open(server.http, "/events");
    let nasty = "\u{1}".repeat(10_400_000);
    let quotes = "\"".repeat(10_400_000);
    let layered = |inner: &str| {
        (0..4).fold(Value::from(inner), |key, _| Value::Map(vec![(key, Value::from(1))]))
    };
    let before = peak_kb(&server);
    for data in [Value::from(&*nasty), layered(&nasty), layered(&quotes)] {
        let id = push(&mut client, "q", data.clone());
        // Longer than an event may be, so it comes without.
        let event = stream.next();
        assert_eq!((&event["jobId"], event.get("data")), (&json!(id), None));
        let answer = server.web().get(&format!("/jobs/{id}"));
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() < 64 << 20, "{}", answer.body.len());
        if data == Value::from(&*nasty) {
            assert_eq!(answer.json()["job"]["data"], *nasty);
        }
        client.ok("Cancel", json!({"id": id}));
        stream.next();
    }
    let grown = peak_kb(&server).saturating_sub(before) >> 10;
    assert!(grown < 500, "{grown} MB");
}

/// Five jobs of which each has room as JSON, and all together have not.
#[test]
fn a_list_whose_text_would_be_too_long_is_refused_as_one_that_fits_no_frame() {
    let server = start().start();
    let mut client = server.client();
    for _ in 0..5 {
        client.push("q", "\u{1}".repeat(9_000_000));
    }
    let mut websocket = WebSocket::open(server.http, "/ws/queues/none");
    let text = websocket.refused("GetJobs", json!({"queue": "q"}));
    assert_eq!(text, "The reply does not fit a frame");
    websocket.ok("Ping", json!({}));
    assert_eq!(client.ok("GetJobs", json!({"queue": "q"}))["jobs"].as_array().unwrap().len(), 5);
}
