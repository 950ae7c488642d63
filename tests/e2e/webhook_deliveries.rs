//! Deliveries of webhooks to receivers that fail, hang, or are disabled. The fears: an event that is not told, or told twice; a
//! receiver that holds up the server or other receivers.

use std::time::Duration;

use serde_json::{Value, json};

use super::webhooks::{add, events_of, listed, one_listed, sample, start, told};
use crate::support::{Client, Habit, Receiver, until};

#[test]
fn a_receiver_that_fails_twice_gets_it_three_times() {
    let server = start().env("WEBHOOK_CONCURRENCY", 1).start();
    let receiver = Receiver::start(|before, _| Habit::Status(if before < 2 { 500 } else { 200 }));
    let mut client = server.client();
    let id = add(&mut client, &receiver.url(), &["job.waiting"]);
    client.push("q", 1);
    client.push("q", 2);
    until("both", || (one_listed(&mut client, &id)["successCount"] == 2).then_some(()));
    let posts = receiver.posts();
    let data: Vec<Value> = posts.iter().map(|post| told(post)["data"].clone()).collect();
    assert_eq!(data, [1, 1, 1, 2].map(Value::from));
    assert!(posts.windows(2).take(2).all(|two| two[0].body == two[1].body));
    assert_eq!(one_listed(&mut client, &id)["failureCount"], 0);
    assert_eq!(sample(&mut client, "corq_webhook_failed_attempts_total"), 2);
    until("all of it to be counted", || {
        (sample(&mut client, "corq_webhook_delivered_total") == 2).then_some(())
    });
}

#[test]
fn bad_receivers_are_given_up_and_hold_up_neither_jobs_nor_good_ones() {
    let server = start().env("WEBHOOK_TIMEOUT_MS", 500).start();
    let elsewhere = Receiver::always(Habit::Status(200));
    let bad = [
        (Habit::Hang, "it did not answer within 500 ms"),
        (Habit::Drip, "it did not answer within 500 ms"),
        (Habit::Close, "webhook "),
        (
            Habit::Redirect(elsewhere.port()),
            "it answered 302 Found, and redirects are not followed",
        ),
        (Habit::Status(404), "it answered 404"),
    ];
    let receivers = bad.map(|(answer, _)| Receiver::always(answer));
    let good = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    for receiver in &receivers {
        add(&mut client, &receiver.url(), &["job.waiting"]);
    }
    let well = add(&mut client, &good.url(), &["job.waiting"]);
    for n in 0..20 {
        client.push("q", n);
        // The event may be posted again, if the receiver did not answer in time.
        let is_told = || good.posts().iter().any(|post| told(post)["data"] == n);
        until("the good one", || is_told().then_some(()));
    }
    let failed = |client: &mut Client| {
        let counts = listed(client).into_iter().filter(|webhook| webhook["id"] != json!(well));
        counts.map(|webhook| webhook["failureCount"].as_u64().unwrap()).min()
    };
    until("an end with all bad ones", || (failed(&mut client)? > 0).then_some(()));
    for (_, reason) in bad {
        until(reason, || server.output().contains(reason).then_some(()));
    }
    assert!(server.output().contains("was given up after 3 attempts"));
    until("all of it to be counted", || {
        (sample(&mut client, "corq_webhook_abandoned_total") >= 5).then_some(())
    });
    assert_eq!(elsewhere.posts().len(), 0);
    assert_eq!(client.counted("q", "waiting"), 20);
}

#[test]
fn a_good_receiver_does_not_wait_for_those_that_hang() {
    let server = start().env("SHUTDOWN_TIMEOUT_MS", 500).start();
    let hanging = [Habit::Hang, Habit::Drip, Habit::Hang, Habit::Drip].map(Receiver::always);
    let good = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    for receiver in &hanging {
        add(&mut client, &receiver.url(), &["job.waiting"]);
    }
    add(&mut client, &good.url(), &["job.waiting"]);
    for n in 0..20 {
        client.push("q", n);
        until("the good one", || (good.posts().len() == n + 1).then_some(()));
    }
    // Each of them is still at its first event.
    let failed = listed(&mut client).into_iter().map(|webhook| webhook["failureCount"].clone());
    assert!(failed.into_iter().all(|count| count == 0), "{:?}", listed(&mut client));
}

#[test]
fn events_of_a_job_come_in_order() {
    // With few attempts some event would be refused at each of them, since others are posted in between.
    let server = start().env("WEBHOOK_MAX_RETRIES", 100).start();
    let fickle =
        Receiver::start(|before, _| Habit::Status(if before % 7 == 3 { 503 } else { 200 }));
    let mut client = server.client();
    let id = add(&mut client, &fickle.url(), &[]);
    let mut jobs = Vec::new();
    for n in 0..30 {
        let queue = format!("q{}", n % 5);
        jobs.push(client.push(&queue, n));
        let (job, token) = client.pull_owned(&queue, 30_000);
        client.ok("Progress", json!({"id": job["id"], "progress": 50}));
        client.ok("ACK", json!({"id": job["id"], "token": token}));
    }
    until("all", || (one_listed(&mut client, &id)["successCount"] == 120).then_some(()));
    for job in jobs {
        let mut events = events_of(&fickle, &job);
        // Tried again, it comes again, right behind itself.
        events.dedup();
        assert_eq!(events, ["job.waiting", "job.active", "job.progress", "job.completed"]);
    }
}

#[test]
fn a_payload_that_lies_on_the_disk_is_told_as_well() {
    let server = start().env("PAYLOAD_CACHE_MB", 4).start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    let first = client.push("q", "x".repeat(100_000));
    for _ in 0..20 {
        client.push("filler", "y".repeat(1_000_000));
        client.push("q", "y".repeat(1_000_000));
    }
    add(&mut client, &receiver.url(), &["job.active", "job.completed"]);
    let (job, token) = client.pull_owned("q", 30_000);
    assert_eq!(job["id"], json!(first));
    client.ok("ACK", json!({"id": first, "token": token}));
    until("both", || (receiver.posts().len() == 2).then_some(()));
    for post in receiver.posts() {
        assert_eq!(told(&post)["data"].as_str().map(str::len), Some(100_000));
    }
    assert_eq!(events_of(&receiver, &first), ["job.active", "job.completed"]);
    assert!(sample(&mut client, "corq_log_cold_reads_total") > 0, "nothing lay on the disk");
}

#[test]
fn nothing_is_told_before_it_is_synced_and_all_of_it_after() {
    let server = start().env("DURABILITY", "synced").start();
    let receiver = Receiver::always(Habit::Status(200));
    let mut client = server.client();
    add(&mut client, &receiver.url(), &["job.waiting"]);
    for n in 0..20 {
        client.push(&format!("q{n}"), n);
    }
    until("all", || (receiver.posts().len() == 20).then_some(()));
}

#[test]
fn a_stop_lets_running_deliveries_end() {
    let mut server = start().start();
    let slow = Receiver::start(|_, _| {
        std::thread::sleep(Duration::from_millis(300));
        Habit::Status(200)
    });
    let mut client = server.client();
    add(&mut client, &slow.url(), &["job.waiting"]);
    for n in 0..5 {
        client.push("q", n);
    }
    assert!(server.terminate().success());
    assert_eq!(slow.posts().len(), 5);
}

#[test]
fn a_stop_does_not_wait_for_a_receiver_that_hangs_beyond_its_timeout() {
    let mut server = start().env("SHUTDOWN_TIMEOUT_MS", 500).start();
    let hanging = Receiver::always(Habit::Hang);
    let mut client = server.client();
    add(&mut client, &hanging.url(), &["job.waiting"]);
    client.push("q", 1);
    client.push("q", 2);
    until("a post", || (!hanging.posts().is_empty()).then_some(()));
    assert!(server.terminate().success());
    let lost = "2 events for webhooks were not delivered before the stop";
    assert!(server.output().contains(lost), "{}", server.output());
    assert!(!server.output().contains("did not answer"), "it has waited for the receiver");
}

#[test]
fn a_disabled_webhook_is_told_nothing_of_what_waited_also_after_a_restart() {
    let start = start().env("WEBHOOK_CONCURRENCY", 1);
    let mut server = start.env("WEBHOOK_MAX_RETRIES", 100).start();
    let receiver = Receiver::always(Habit::Status(500));
    let mut client = server.client();
    let id = add(&mut client, &receiver.url(), &["job.waiting"]);
    (0..5).for_each(|n| drop(client.push("q", n)));
    until("a post", || (!receiver.posts().is_empty()).then_some(()));
    client.ok("SetWebhookEnabled", json!({"id": id, "enabled": false}));
    client.push("q", "while it is disabled");
    until("an empty backlog", || (sample(&mut client, "corq_webhook_backlog ") == 0).then_some(()));
    let posts = receiver.posts().len();
    client.ok("SetWebhookEnabled", json!({"id": id, "enabled": true}));
    let good = Receiver::always(Habit::Status(200));
    let other = add(&mut client, &good.url(), &["job.waiting"]);
    client.push("q", "later");
    until("the other", || (one_listed(&mut client, &other)["successCount"] == 1).then_some(()));
    until("the new event", || (receiver.posts().len() > posts).then_some(()));
    let all = receiver.posts();
    let data: Vec<Value> = all[posts..].iter().map(|post| told(post)["data"].clone()).collect();
    assert!(data.iter().all(|data| data == "later"), "{data:?}");
    let queued = all.iter().filter(|post| told(post)["data"].as_i64() > Some(0)).count();
    assert_eq!(queued, 0, "the first was on its way, the others waited");
    client.ok("SetWebhookEnabled", json!({"id": id, "enabled": false}));
    server.kill();
    server.start();
    let mut client = server.client();
    client.push("q", "after the restart");
    until("the other", || (one_enabled(&mut client, &other)["successCount"] == 1).then_some(()));
    assert!(receiver.posts().iter().all(|post| told(post)["data"] != "after the restart"));
}

/// A webhook of several, of which some may be disabled.
fn one_enabled(client: &mut Client, id: &str) -> Value {
    let data = client.ok("ListWebhooks", json!({}))["data"].clone();
    let webhooks = data["webhooks"].as_array().unwrap().clone();
    webhooks.into_iter().find(|webhook| webhook["id"] == id).unwrap()
}
