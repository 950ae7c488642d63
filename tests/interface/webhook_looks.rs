//! Views of a webhook's deliveries: a sample that is posted at once, and the last attempts.

use ring::hmac;
use serde_json::{Value, json};

use crate::support::tool::Tool;
use crate::support::{Client, Habit, Receiver, Server, Start, encode, frame, until};

/// A server that may post to loopback and tries again soon.
fn open() -> Start {
    Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").env("WEBHOOK_RETRY_DELAY_MS", 10)
}

fn start() -> Server {
    open().start()
}

fn add(client: &mut Client, fields: Value) -> String {
    let data = client.ok("AddWebhook", fields)["data"].clone();
    data["webhookId"].as_str().unwrap().to_owned()
}

fn deliveries(client: &mut Client, id: &str) -> Vec<Value> {
    let data = client.ok("WebhookDeliveries", json!({"id": id}))["data"].clone();
    data["deliveries"].as_array().unwrap().clone()
}

fn listed(client: &mut Client, id: &str) -> Value {
    let webhooks = client.ok("ListWebhooks", json!({}))["data"]["webhooks"].clone();
    webhooks.as_array().unwrap().iter().find(|row| row["id"] == id).unwrap().clone()
}

fn metric(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = format!("corq_{name} ");
    let value = text.as_str().unwrap().lines().find_map(|it| it.strip_prefix(&line));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn a_test_posts_a_signed_sample_at_once_and_answers_what_came_of_it() {
    let receiver = Receiver::always(Habit::Status(204));
    let server = start();
    // Of either shard.
    for mut client in [server.client(), server.client(), server.client()] {
        let before = receiver.posts().len();
        let fields = json!({"url": receiver.url(), "events": ["job.failed"], "queue": "mails", "secret": "hush"});
        let id = add(&mut client, fields);
        client.ok("SetWebhookEnabled", json!({"id": id, "enabled": false}));
        let told = client.ok("TestWebhook", json!({"id": id}))["data"].clone();
        assert_eq!((&told["delivered"], &told["status"]), (&json!(true), &json!(204)));
        assert_eq!((&told["error"], &told["test"]), (&Value::Null, &json!(true)));
        assert_eq!((&told["event"], &told["attempt"]), (&json!("webhook.test"), &json!(1)));
        assert!(told["duration"].is_number() && told["timestamp"].is_number());
        let posts = receiver.posts();
        assert_eq!(posts.len(), before + 1, "also while it is disabled");
        let post = &posts[before];
        let body: Value = serde_json::from_str(post.text()).unwrap();
        assert_eq!(body["event"], "webhook.test");
        assert_eq!((&body["queue"], &body["data"]), (&json!("mails"), &json!({"test": true})));
        assert_eq!(
            (post.header("X-Webhook-Event"), &body["jobId"]),
            (Some("webhook.test"), &json!("test"))
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"hush");
        let tag = hmac::sign(&key, &post.body);
        let signed = u128::from_be_bytes(*tag.as_ref().first_chunk().unwrap());
        let signature = post.header("X-Webhook-Signature").unwrap();
        assert_eq!(signature.len(), 64);
        assert!(signature.starts_with(&format!("{signed:032x}")), "{signature}");
        assert_eq!(deliveries(&mut client, &id), [told]);
        let row = listed(&mut client, &id);
        assert_eq!((&row["successCount"], &row["lastTriggered"]), (&json!(0), &Value::Null));
    }
}

#[test]
fn a_test_that_fails_says_why_and_is_not_tried_again() {
    let receiver = Receiver::always(Habit::Status(500));
    let server = start();
    let mut client = server.client();
    let id = add(&mut client, json!({"url": receiver.url(), "events": []}));
    let told = client.ok("TestWebhook", json!({"id": id}))["data"].clone();
    assert_eq!((&told["delivered"], &told["status"]), (&json!(false), &json!(500)));
    assert_eq!(told["error"], "it answered 500 Internal Server Error");
    assert_eq!(receiver.posts().len(), 1);
    assert_eq!(listed(&mut client, &id)["failureCount"], 0);
    let nowhere =
        add(&mut client, json!({"url": "http://127.0.0.1:1/", "events": [], "queue": "q"}));
    let told = client.ok("TestWebhook", json!({"id": nowhere}))["data"].clone();
    assert_eq!((&told["delivered"], &told["status"]), (&json!(false), &Value::Null));
    assert!(told["error"].is_string());
    for command in ["TestWebhook", "WebhookDeliveries"] {
        for id in ["no id", "ffffffff-ffff-4fff-bfff-ffffffffffff"] {
            assert_eq!(client.refused(command, json!({"id": id})), "Webhook not found");
        }
    }
}

#[test]
fn a_test_of_a_receiver_that_hangs_is_over_in_time_and_holds_up_no_delivery() {
    let (hangs, takes) = (Receiver::always(Habit::Drip), Receiver::always(Habit::Status(200)));
    let start = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true");
    let server = start.env("WEBHOOK_TIMEOUT_MS", 5000).start();
    let mut client = server.client();
    let id = add(&mut client, json!({"url": hangs.url(), "events": [], "queue": "other"}));
    add(&mut client, json!({"url": takes.url(), "events": ["job.waiting"]}));
    let mut tester = server.client();
    let request = tester.send("TestWebhook", json!({"id": id})).unwrap();
    until("the sample", || hangs.posts().into_iter().next());
    client.push("q", 1);
    until("a delivery meanwhile", || takes.posts().into_iter().next());
    let told = tester.recv().unwrap();
    assert_eq!((&told["reqId"], &told["data"]["delivered"]), (&json!(request), &json!(false)));
    assert!(told["data"]["error"].is_string(), "{told}");
}

#[test]
fn so_many_tests_are_under_way_and_the_next_is_refused() {
    let receiver = Receiver::always(Habit::Hang);
    let start = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true");
    let mut server = start.start();
    let mut client = server.client();
    let id = add(&mut client, json!({"url": receiver.url(), "events": []}));
    let mut tester = server.client();
    let command = |n: usize| json!({"cmd": "TestWebhook", "id": id, "reqId": format!("r{n}")});
    let all: Vec<u8> = (0..17).flat_map(|n| frame(&encode(&command(n)))).collect();
    // In one piece, and taken up in their order.
    tester.send_bytes(&all).unwrap();
    let refused = tester.recv().unwrap();
    assert_eq!(refused["error"], "Too many tests of webhooks are under way already");
    assert_eq!(refused["code"], "busy");
    // The end of the server waits for none of them.
    server.terminate();
    let answers: Vec<Value> = (0..16).map(|_| tester.recv().unwrap()).collect();
    assert!(
        answers.iter().all(|it| it["code"] == "shutting_down" || it["ok"] == true),
        "{answers:?}"
    );
}

#[test]
fn the_last_attempts_are_listed_newest_first_with_status_error_and_duration() {
    // The second event is taken at its third attempt.
    let receiver = Receiver::start(|before, _| {
        Habit::Status(if (1..3).contains(&before) { 503 } else { 200 })
    });
    let server = start();
    let mut client = server.client();
    let id = add(&mut client, json!({"url": receiver.url(), "events": ["job.waiting"]}));
    let data = client.ok("WebhookDeliveries", json!({"id": id}))["data"].clone();
    assert_eq!((&data["deliveries"], data["since"].is_number()), (&json!([]), true));
    let (first, second) = (client.push("q", 1), client.push("q", 2));
    let all = until("four attempts", || {
        let all = deliveries(&mut client, &id);
        (all.len() == 4).then_some(all)
    });
    let rows: Vec<(&str, u64, u64)> = all
        .iter()
        .map(|row| {
            let number = |name: &str| row[name].as_u64().unwrap();
            assert_eq!((&row["event"], &row["test"]), (&json!("job.waiting"), &json!(false)));
            assert_eq!(row["delivered"], row["error"].is_null());
            assert!(number("timestamp") <= client.time() && row["duration"].is_number());
            (row["jobId"].as_str().unwrap(), number("attempt"), number("status"))
        })
        .collect();
    assert_eq!(rows, [(&*second, 3, 200), (&second, 2, 503), (&second, 1, 503), (&first, 1, 200)]);
    assert_eq!(all[1]["error"], "it answered 503 Service Unavailable");
    let newest = client.ok("WebhookDeliveries", json!({"id": id, "limit": 1}))["data"].clone();
    assert_eq!(newest["deliveries"], json!([all[0]]));
}

#[test]
fn as_many_attempts_are_remembered_as_the_bound_says() {
    let receiver = Receiver::always(Habit::Status(200));
    // Posts go one at a time, so that attempts end in the order of the pushes.
    let server = open().env("WEBHOOK_CONCURRENCY", 1).start();
    let mut client = server.client();
    let id = add(&mut client, json!({"url": receiver.url(), "events": ["job.waiting"]}));
    let jobs: Vec<Value> = (0..80).map(|n| json!({"data": n})).collect();
    let ids = client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}))["ids"].clone();
    until("all posts", || (listed(&mut client, &id)["successCount"] == 80).then_some(()));
    let all = deliveries(&mut client, &id);
    let of: Vec<&Value> = all.iter().map(|row| &row["jobId"]).collect();
    let expected: Vec<&Value> = ids.as_array().unwrap().iter().rev().take(50).collect();
    assert_eq!(of, expected);
    assert_eq!(metric(&mut client, "webhook_deliveries"), 50);
    assert!((1..=16 << 10).contains(&metric(&mut client, "webhook_deliveries_bytes")));
    client.ok("RemoveWebhook", json!({"webhookId": id}));
    assert_eq!(metric(&mut client, "webhook_deliveries"), 0);
}

#[test]
fn webhooks_are_tested_and_looked_at_over_http_and_by_the_command_line() {
    let receiver = Receiver::always(Habit::Status(200));
    let server = start();
    let (mut client, mut web, tool) = (server.client(), server.web(), Tool::of(&server));
    let id = add(&mut client, json!({"url": receiver.url(), "events": ["job.waiting"]}));
    let answer = web.call("POST", &format!("/webhooks/{id}/test"), &[], b"").expect(200);
    assert_eq!(answer["data"]["delivered"], true);
    let path = format!("/webhooks/{id}/deliveries");
    let listed = web.get(&format!("{path}?limit=1")).expect(200)["data"].clone();
    assert_eq!(listed["deliveries"][0], answer["data"]);
    assert_eq!(web.get(&format!("{path}?limit=51")).refused(400), "limit must be between 1 and 50");
    let missing = web.call("POST", "/webhooks/none/test", &[], b"");
    assert_eq!(missing.refused(404), "Webhook not found");
    let said = tool.ok(&["webhook", "test", &id]);
    assert!(said.starts_with("delivered in ") && said.ends_with(" ms: status 200\n"), "{said}");
    let table = tool.ok(&["webhook", "deliveries", &id]);
    assert_eq!(table.matches("webhook.test").count(), 2, "{table}");
    let nobody = "ffffffff-ffff-4fff-bfff-ffffffffffff";
    assert_eq!(tool.fails(1, &["webhook", "test", nobody]), "Webhook not found");
}
