//! Webhooks, with receivers on loopback. The fears: an event that is not told, told twice or without
//! its signature; a receiver that holds up the server or other receivers; a secret that shows; a way into the
//! network behind the server.

use ring::hmac;
use serde_json::{Value, json};

use crate::support::stream::Sse;
use crate::support::{Client, Habit, Post, Receiver, Server, Start, until};

const EVENTS: [&str; 7] = [
    "job.completed",
    "job.failed",
    "job.progress",
    "job.active",
    "job.waiting",
    "job.delayed",
    "job.stalled",
];

/// A server that may post to loopback and tries again soon.
pub(super) fn start() -> Start {
    Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").env("WEBHOOK_RETRY_DELAY_MS", 20)
}

pub(super) fn add(client: &mut Client, url: &str, events: &[&str]) -> String {
    let data = client.ok("AddWebhook", json!({"url": url, "events": events}))["data"].clone();
    data["webhookId"].as_str().unwrap().to_owned()
}

pub(super) fn listed(client: &mut Client) -> Vec<Value> {
    let data = client.ok("ListWebhooks", json!({}))["data"].clone();
    let webhooks = data["webhooks"].as_array().unwrap().clone();
    let total = webhooks.len();
    assert_eq!(data["stats"], json!({"total": total, "enabled": total}));
    webhooks
}

pub(super) fn one_listed(client: &mut Client, id: &str) -> Value {
    listed(client).into_iter().find(|webhook| webhook["id"] == id).unwrap()
}

/// The body of a post, once its headers have been found to say the same.
pub(super) fn told(post: &Post) -> Value {
    let body: Value = serde_json::from_str(post.text()).unwrap();
    assert_eq!(post.header("Content-Type"), Some("application/json"));
    assert_eq!(post.header("X-Webhook-Event"), body["event"].as_str());
    let at = body["timestamp"].as_u64().unwrap();
    assert_eq!(post.header("X-Webhook-Timestamp"), Some(&*at.to_string()));
    body
}

/// All events there have been of a job, in their order.
pub(super) fn events_of(receiver: &Receiver, job: &str) -> Vec<String> {
    let bodies = receiver.posts().iter().map(told).collect::<Vec<_>>();
    let of_job = bodies.iter().filter(|body| body["jobId"] == job);
    of_job.map(|body| body["event"].as_str().unwrap().to_owned()).collect()
}

pub(super) fn sample(client: &mut Client, family: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(family));
    line.unwrap_or_else(|| panic!("no {family}")).trim().parse().unwrap()
}

#[test]
fn a_webhook_is_added_listed_and_removed() {
    let server = start().start();
    let mut client = server.client();
    assert_eq!(listed(&mut client), [Value::Null; 0]);
    let url = "https://Example.com:8443/hook?a=b";
    let fields = json!({
        "url": url, "events": ["job.failed", "job.completed"], "queue": "q", "secret": "hush"
    });
    let added = client.ok("AddWebhook", fields)["data"].clone();
    let created = added["createdAt"].as_u64().unwrap();
    let id = added["webhookId"].as_str().unwrap();
    let events = ["job.completed", "job.failed"];
    let expected = json!({
        "webhookId": id, "url": url, "events": events, "queue": "q", "createdAt": created
    });
    assert_eq!(added, expected);
    let expected = json!({
        "id": id, "url": url, "events": events, "queue": "q", "createdAt": created,
        "lastTriggered": null, "successCount": 0, "failureCount": 0, "enabled": true
    });
    assert_eq!(listed(&mut client), [expected]);
    // Without events it gets all, of all queues.
    let all = client.ok("AddWebhook", json!({"url": url, "events": []}))["data"].clone();
    assert_eq!((&all["events"], all.get("queue")), (&json!([]), None));
    assert_eq!(listed(&mut client).len(), 2);
    let removed = client.ok("RemoveWebhook", json!({"webhookId": id}))["data"].clone();
    assert_eq!(removed, json!({"removed": true}));
    assert_eq!(listed(&mut client)[0]["id"], all["webhookId"]);
    for unknown in [id, "no id", "ffffffff-ffff-4fff-bfff-ffffffffffff"] {
        let text = client.refused("RemoveWebhook", json!({"webhookId": unknown}));
        assert_eq!(text, "Webhook not found", "{unknown}");
    }
}

#[test]
fn a_url_that_leads_inside_is_refused_naming_the_rule() {
    let server = Server::start_default();
    let mut client = server.client();
    for (url, rule) in [
        ("http://127.0.0.1/", "a loopback address: 127.0.0.1"),
        ("http://2130706433/", "a loopback address: 127.0.0.1"),
        ("http://0x7f.1/", "a loopback address: 127.0.0.1"),
        ("http://0177.0.0.1./", "a loopback address: 127.0.0.1"),
        ("http://[::ffff:10.0.0.1]/", "a private address: ::ffff:10.0.0.1"),
        ("http://[::1]:80/", "a loopback address: ::1"),
        ("https://192.168.0.1/", "a private address: 192.168.0.1"),
        ("https://169.254.169.254/latest", "a cloud metadata host: 169.254.169.254"),
        ("https://localhost./", "this machine (localhost): localhost."),
        ("https://db.internal/", "an internal host (*.internal): db.internal"),
    ] {
        let text = client.refused("AddWebhook", json!({"url": url, "events": []}));
        assert_eq!(text, format!("url must not point to {rule}"), "{url}");
    }
    for (url, why) in [
        ("https://user@example.com/", "contain no user name or password"),
        ("no url", "be an absolute URL"),
        ("http:///hook", "name a host"),
        ("https:example.com", "name a host"),
        ("https://./hook", "name a host"),
    ] {
        let text = client.refused("AddWebhook", json!({"url": url, "events": []}));
        assert_eq!(text, format!("url must {why}"), "{url}");
    }
    assert!(listed(&mut client).is_empty());
}

/// A webhook that was let in under other rules: those of now hold at each connection.
#[test]
fn an_address_is_checked_again_when_it_is_connected_to() {
    let mut server = start().start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    let by_address = add(&mut client, &receiver.url(), &[]);
    let by_name = add(&mut client, &format!("http://localhost:{}/", receiver.port()), &[]);
    server.terminate();
    server.start_with("WEBHOOK_ALLOW_PRIVATE", "false");
    let mut client = server.client();
    client.push("q", 1);
    for id in [by_address, by_name] {
        until("the end", || (one_listed(&mut client, &id)["failureCount"] == 1).then_some(()));
    }
    assert!(server.output().contains("127.0.0.1 has a loopback address: 127.0.0.1"));
    assert!(server.output().contains("localhost is this machine (localhost)"));
    assert_eq!(receiver.posts().len(), 0);
}

#[test]
fn every_event_is_told_with_its_body() {
    let server = start().start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    add(&mut client, &receiver.url(), &EVENTS);
    let data = json!({"deep": [1, "\u{e4}\n", null]});
    let fields = json!({"jobId": "mine", "maxAttempts": 2, "backoff": 0});
    client.push_with("q", data.clone(), fields);
    let (_, token) = client.pull_owned("q", 30_000);
    client.ok("Progress", json!({"id": "mine", "progress": 12.5}));
    client.ok("FAIL", json!({"id": "mine", "token": token, "error": "no \"luck\""}));
    let (_, token) = client.pull_owned("q", 30_000);
    client.ok("ACK", json!({"id": "mine", "token": token, "result": "another value"}));
    let later = client.push_with("q2", 7, json!({"delay": 60_000}));
    client.push_with("q3", 8, json!({"jobId": "silent"}));
    client.pull_owned("q3", 100);
    until("all events", || (receiver.posts().len() >= 11).then_some(()));
    let expected =
        ["job.waiting", "job.active", "job.progress", "job.failed", "job.active", "job.completed"];
    assert_eq!(events_of(&receiver, "mine"), expected);
    assert_eq!(events_of(&receiver, &later), ["job.waiting", "job.delayed"]);
    let silent = ["job.waiting", "job.active", "job.stalled"];
    assert_eq!(events_of(&receiver, "silent"), silent);
    for body in receiver.posts().iter().map(told).filter(|body| body["jobId"] == "mine") {
        let mut expected = json!({
            "event": body["event"], "timestamp": body["timestamp"], "jobId": "mine", "queue": "q",
            "data": data
        });
        match body["event"].as_str().unwrap() {
            "job.failed" => expected["error"] = "no \"luck\"".into(),
            "job.progress" => expected["progress"] = 12.5.into(),
            _ => {}
        }
        assert_eq!(body, expected);
    }
}

#[test]
fn a_receiver_is_found_by_its_name() {
    let server = start().start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    let named = add(&mut client, &format!("http://localhost:{}/", receiver.port()), &[]);
    client.push("q", 1);
    until("a post", || (one_listed(&mut client, &named)["successCount"] == 1).then_some(()));
}

#[test]
fn only_events_and_queues_that_were_asked_for_are_told() {
    let server = start().start();
    let receivers = [(); 3].map(|()| Receiver::always(Habit::Status(200)));
    let mut client = server.client();
    add(&mut client, &receivers[0].url(), &["job.completed"]);
    for (receiver, queue) in receivers[1..].iter().zip(["a", "b"]) {
        let fields = json!({"url": receiver.url(), "events": ["job.waiting"], "queue": queue});
        client.ok("AddWebhook", fields);
    }
    for queue in ["a", "b", "c"] {
        for n in 0..5 {
            client.push(queue, n);
        }
        let id = client.pull(queue)["id"].clone();
        client.ok("ACK", json!({"id": id}));
    }
    for (receiver, posts) in receivers.iter().zip([3, 5, 5]) {
        until("its posts", || (receiver.posts().len() == posts).then_some(()));
    }
    for (receiver, queue) in receivers[1..].iter().zip(["a", "b"]) {
        assert!(receiver.posts().iter().all(|post| told(post)["queue"] == queue));
    }
    let events: Vec<Value> = receivers[0].posts().iter().map(told).collect();
    assert!(events.iter().all(|body| body["event"] == "job.completed"));
}

/// The fear: one that is removed turns off what others still listen to.
#[test]
fn webhooks_and_streams_come_and_go_without_each_other() {
    let server = start().start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    let id = add(&mut client, &receiver.url(), &["job.waiting"]);
    let told = |client: &mut Client, posts: usize| {
        client.push("q", 1);
        until("a post", || (receiver.posts().len() == posts).then_some(()));
    };
    told(&mut client, 1);
    let mut sse = Sse::open(server.http, "/events");
    told(&mut client, 2);
    assert_eq!(sse.next()["eventType"], "pushed");
    drop(sse);
    until("its end", || (sample(&mut client, "corq_sse_streams ") == 0).then_some(()));
    told(&mut client, 3);
    let mut sse = Sse::open(server.http, "/events/queues/q");
    client.ok("RemoveWebhook", json!({"webhookId": id}));
    client.push("q", 1);
    assert_eq!(sse.next()["eventType"], "pushed");
    assert_eq!(receiver.posts().len(), 3);
}

/// After the answer to `AddWebhook` every shard knows it; after that to `RemoveWebhook` none does.
#[test]
fn nothing_is_missed_after_it_was_added_and_nothing_comes_after_it_was_removed() {
    let server = Start::new().env("SHARDS", 4).env("WEBHOOK_ALLOW_PRIVATE", 1).start();
    let mut adder = server.client();
    let mut pushers: Vec<Client> = (0..8).map(|_| server.client()).collect();
    for round in 0..20 {
        let receiver = Receiver::always(Habit::Status(200));
        let id = add(&mut adder, &receiver.url(), &["job.waiting"]);
        for (n, pusher) in pushers.iter_mut().enumerate() {
            pusher.push(&format!("q{n}"), round);
        }
        until("all pushes", || (receiver.posts().len() == 8).then_some(()));
        adder.ok("RemoveWebhook", json!({"webhookId": id}));
        for (n, pusher) in pushers.iter_mut().enumerate() {
            pusher.push(&format!("q{n}"), "after");
        }
        assert_eq!(receiver.posts().len(), 8);
    }
}

#[test]
fn webhooks_survive_a_kill_with_their_secrets() {
    let mut server = start().start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    let fields = json!({
        "url": receiver.url(), "events": ["job.waiting"], "queue": "q", "secret": "k\u{e4}se"
    });
    client.ok("AddWebhook", fields);
    let gone = add(&mut client, &receiver.url(), &[]);
    client.ok("RemoveWebhook", json!({"webhookId": gone}));
    let before = listed(&mut client);
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(listed(&mut client), before);
    client.push("other", 1);
    client.push("q", 2);
    until("a post", || (!receiver.posts().is_empty()).then_some(()));
    let post = &receiver.posts()[0];
    assert_eq!(told(post)["data"], 2);
    let key = hmac::Key::new(hmac::HMAC_SHA256, "k\u{e4}se".as_bytes());
    let tag = hmac::sign(&key, &post.body);
    let hex = tag.as_ref().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    assert_eq!(post.header("X-Webhook-Signature"), Some(&*hex));
    let listed = until("the count", || {
        listed(&mut client).into_iter().find(|webhook| webhook["successCount"] == 1)
    });
    let triggered = listed["lastTriggered"].as_u64().unwrap();
    assert!(triggered >= told(post)["timestamp"].as_u64().unwrap());
    // Counts are those since the start.
    server.kill();
    server.start();
    assert_eq!(self::listed(&mut server.client()), before);
}

#[test]
fn a_secret_is_neither_listed_nor_logged() {
    let server = start().env("LOG_LEVEL", "debug").env("WEBHOOK_MAX_RETRIES", 1).start();
    let receiver = Receiver::always(Habit::Status(500));
    let mut client = server.client();
    let url = format!("{}/path-that-is-a-token", receiver.url());
    let fields = json!({"url": url, "events": ["job.waiting"], "secret": "never-to-be-seen"});
    let added = client.ok("AddWebhook", fields).to_string();
    client.push("q", 1);
    let id = listed(&mut client)[0]["id"].as_str().unwrap().to_owned();
    until("the end", || (one_listed(&mut client, &id)["failureCount"] == 1).then_some(()));
    let said = until("a line in the log", || {
        let output = server.output();
        output.contains("job.waiting").then_some(output)
    });
    assert!(said.contains(&id), "{said}");
    for text in [added, listed(&mut client)[0].to_string(), said.clone()] {
        assert!(!text.contains("never-to-be-seen"), "{text}");
    }
    assert!(!said.contains("path-that-is-a-token"), "{said}");
}

#[test]
fn webhooks_have_a_limit() {
    let server = start().memory().start();
    let mut client = server.client();
    let fields = json!({"url": "https://example.com/", "events": ["job.failed"]});
    for _ in 0..1000 {
        client.ok("AddWebhook", fields.clone());
    }
    let text = client.refused("AddWebhook", fields.clone());
    assert_eq!(text, "Too many webhooks: at most 1000");
    let webhooks = listed(&mut client);
    client.ok("RemoveWebhook", json!({"webhookId": webhooks[500]["id"]}));
    client.ok("AddWebhook", fields);
    assert_eq!(sample(&mut client, "corq_webhooks "), 1000);
}

#[test]
fn a_url_with_control_characters_is_refused() {
    let server = Server::start_default();
    let mut client = server.client();
    for url in ["https://example.com/a\tb", "https://exam\nple.com/", "https://example.com/\r\n"] {
        let fields = json!({"url": url, "events": ["job.completed"]});
        assert_eq!(client.refused("AddWebhook", fields), "url must contain no control characters");
    }
}
