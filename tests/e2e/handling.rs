//! Commands on a job besides its course: holding it longer, giving it back, putting it off. The fear: a job that is
//! taken from a worker who has it, or that is nowhere afterwards.

use serde_json::{Value, json};

use crate::support::{Habit, Receiver, Start, until};
use crate::{client, queue};

#[test]
fn a_lock_is_extended_once_for_as_long_as_asked() {
    const USUAL_MS: u64 = 10_000;
    let (mut client, queue) = (client(), queue("extend"));
    let ids = [client.push(&queue, 1), client.push(&queue, 2)];
    let pull = json!({"queue": queue, "count": 2, "owner": "me", "lockTtl": USUAL_MS});
    let token = client.ok("PULLB", pull)["tokens"][0].clone();
    let id = &ids[0];
    let extend = |ms: u64| json!({"id": id, "token": token, "duration": ms});
    client.ok("ExtendLock", extend(3_600_000));
    until("the usual time to end", || (client.state(&ids[1]) == "waiting").then_some(()));
    assert_eq!(client.state(id), "active");
    let wrong = json!({"id": id, "token": "no", "duration": 5});
    assert!(client.refused("ExtendLock", wrong).starts_with("Invalid or expired lock token"));
    // A heartbeat holds it for its usual time again.
    client.ok("JobHeartbeat", json!({"id": id, "token": token}));
    until("the lock to end", || (client.state(id) == "waiting").then_some(()));
    assert_eq!(client.refused("ExtendLock", extend(5)), "Job not found or not active");
}

#[test]
fn locks_of_several_queues_are_extended_and_counted() {
    let mut client = client();
    let (mut ids, mut tokens) = (Vec::new(), Vec::new());
    for n in 0..6 {
        let queue = queue("extends");
        client.push(&queue, n);
        let (job, token) = client.pull_owned(&queue, 60_000);
        ids.push(job["id"].clone());
        tokens.push(token);
    }
    tokens[2] = "wrong".into();
    let fields = json!({"ids": ids, "tokens": tokens, "durations": [5, 6, 7, 8, 9, 10]});
    assert_eq!(client.ok("ExtendLocks", fields)["count"], 5);
    let fields = json!({"ids": ids, "tokens": tokens, "durations": [5]});
    let text = client.refused("ExtendLocks", fields);
    assert_eq!(text, "durations must have the same length as ids");
    until("five locks to end", || {
        let states = ids.iter().map(|id| client.state(id.as_str().unwrap()));
        (states.filter(|state| state == "waiting").count() == 5).then_some(())
    });
}

#[test]
fn a_job_is_given_back_promoted_or_retried_by_move_to_wait() {
    let (mut client, queue) = (client(), queue("to-wait"));
    let id = client.push_with(&queue, 1, json!({"delay": 60_000, "maxAttempts": 1}));
    client.ok("MoveToWait", json!({"id": id}));
    assert_eq!(client.state(&id), "waiting");
    client.ok("MoveToWait", json!({"id": id}));
    let (job, token) = client.pull_owned(&queue, 60_000);
    let wrong = json!({"id": id, "token": "4d3c2b1a-0000-4000-8000-000000000000"});
    let text = client.refused("MoveToWait", wrong);
    assert_eq!(text, format!("Invalid or expired lock token for job {id}"));
    client.ok("MoveToWait", json!({"id": id, "token": token}));
    assert_eq!((client.state(&id), &job["attempts"]), ("waiting".into(), &json!(0)));
    let again = client.pull(&queue);
    assert_eq!((&again["id"], &again["attempts"]), (&json!(id), &json!(0)));
    client.ok("FAIL", json!({"id": id, "error": "no"}));
    assert_eq!(client.state(&id), "failed");
    client.ok("MoveToWait", json!({"id": id}));
    assert_eq!(client.pull(&queue)["id"], id.as_str());
    client.ok("ACK", json!({"id": id}));
    let text = "Job not found or cannot be moved to waiting";
    assert_eq!(client.refused("MoveToWait", json!({"id": id})), text);
    assert_eq!(client.refused("MoveToWait", json!({"id": "nobody"})), text);
}

#[test]
fn a_job_that_is_given_back_wakes_a_worker_that_waits_and_is_so_after_a_kill() {
    let mut server = Start::new().start();
    let mut client = server.client();
    let id = client.push("q", 1);
    let (_, token) = client.pull_owned("q", 3_600_000);
    let mut other = server.client();
    other.send("PULL", json!({"queue": "q", "timeout": 60_000, "owner": "other"})).unwrap();
    client.ok("MoveToWait", json!({"id": id, "token": token}));
    let taken = other.recv().unwrap();
    assert_eq!(taken["job"]["id"], id.as_str());
    client.ok("MoveToWait", json!({"id": id, "token": taken["token"]}));
    server.kill();
    server.start();
    assert_eq!(server.client().state(&id), "waiting");
}

#[test]
fn a_delay_is_changed_from_now_for_jobs_that_wait_and_that_a_worker_has() {
    let (mut client, queue) = (client(), queue("put-off"));
    let id = client.push(&queue, 1);
    client.ok("ChangeDelay", json!({"id": id, "delay": 60_000}));
    assert_eq!(client.state(&id), "delayed");
    client.ok("ChangeDelay", json!({"id": id, "delay": 0}));
    assert_eq!(client.state(&id), "waiting");
    let (_, token) = client.pull_owned(&queue, 60_000);
    client.ok("ChangeDelay", json!({"id": id, "delay": 50, "token": token}));
    let pulled = until("the delay to end", || Some(client.pull(&queue)).filter(Value::is_object));
    assert_eq!((&pulled["id"], &pulled["attempts"]), (&json!(id), &json!(0)));
    client.ok("ACK", json!({"id": id}));
    let text = client.refused("ChangeDelay", json!({"id": id, "delay": 5}));
    assert_eq!(text, "Job not found or not waiting, delayed or active");
}

#[test]
fn delayed_jobs_are_promoted_together_the_oldest_first() {
    let (mut client, queue) = (client(), queue("promote-all"));
    for n in 0..1200 {
        client.push_with(&queue, n, json!({"delay": 60_000}));
    }
    client.push(&queue, "ready");
    assert_eq!(client.ok("PromoteJobs", json!({"queue": queue, "count": 3}))["count"], 3);
    assert_eq!((client.counted(&queue, "delayed"), client.counted(&queue, "waiting")), (1197, 4));
    let pulled: Vec<Value> = (0..4).map(|_| client.pull(&queue)["data"].clone()).collect();
    assert!(["ready".into(), json!(0), json!(1), json!(2)].iter().all(|it| pulled.contains(it)));
    assert_eq!(client.ok("PromoteJobs", json!({"queue": queue}))["count"], 1197);
    assert_eq!(client.ok("PromoteJobs", json!({"queue": "nobodys"}))["ok"], true);
    assert_eq!(client.counted(&queue, "delayed"), 0);
}

#[test]
fn an_outcome_can_ask_for_its_job_to_be_forgotten() {
    let (mut client, queue) = (client(), queue("forget"));
    let mut next = |remove: bool| {
        let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
        assert_eq!(client.pull(&queue)["id"], id.as_str());
        client.ok("ACK", json!({"id": id, "removeOnComplete": remove}));
        client.state(&id)
    };
    assert_eq!((next(true), next(false)), ("unknown".into(), "completed".into()));
    let ids: Vec<String> = (0..3).map(|n| client.push(&queue, n)).collect();
    client.ok("PULLB", json!({"queue": queue, "count": 3}));
    client.ok("ACKB", json!({"ids": ids, "removeOnCompletes": [true, null, false]}));
    let states: Vec<String> = ids.iter().map(|id| client.state(id)).collect();
    assert_eq!(states, ["unknown", "completed", "completed"]);
    let text = client.refused("ACKB", json!({"ids": ids, "removeOnCompletes": [true]}));
    assert_eq!(text, "removeOnCompletes must have the same length as ids");
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 1}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "no", "removeOnFail": true}));
    assert_eq!(client.state(&id), "unknown");
    // A retry keeps it, of course.
    let id = client.push_with(&queue, 1, json!({"maxAttempts": 2, "backoff": 0}));
    client.pull(&queue);
    client.ok("FAIL", json!({"id": id, "error": "no", "removeOnFail": true}));
    assert_eq!(client.state(&id), "waiting");
}

#[test]
fn an_outcome_of_an_attempt_that_took_too_long_is_not_applied_and_no_error() {
    let mut client = client();
    let late = |client: &mut crate::support::Client, attempts: u32| {
        let queue = queue("late");
        client.push_with(
            &queue,
            1,
            json!({"timeout": 60, "maxAttempts": attempts, "backoff": 60_000}),
        );
        let (job, token) = client.pull_owned(&queue, 60_000);
        let id = job["id"].as_str().unwrap().to_owned();
        until("the timeout", || (client.state(&id) != "active").then_some(()));
        (id, token)
    };
    let expected = json!({"applied": false, "reason": "already-finalized"});
    for attempts in [1, 3] {
        let (id, token) = late(&mut client, attempts);
        let state = client.state(&id);
        assert_eq!(client.ok("ACK", json!({"id": id, "token": token}))["data"], expected);
        assert_eq!(client.ok("FAIL", json!({"id": id, "token": token}))["data"], expected);
        assert_eq!(client.state(&id), state);
        assert_eq!(client.refused("ACK", json!({"id": id})), "Job not found or not active");
    }
    // In a batch, on one shard or on several, the others are done.
    for lates in [1, 3] {
        let (mut ids, mut tokens) = (Vec::new(), Vec::new());
        for _ in 0..lates {
            let (id, token) = late(&mut client, 1);
            ids.push(id);
            tokens.push(token);
            let queue = queue("in-time");
            client.push(&queue, 1);
            let (job, token) = client.pull_owned(&queue, 60_000);
            ids.push(job["id"].as_str().unwrap().into());
            tokens.push(token);
        }
        let reply = client.ok("ACKB", json!({"ids": ids, "tokens": tokens}));
        let places: Vec<usize> = (0..lates).map(|n| 2 * n).collect();
        assert_eq!(reply["data"]["ignoredIndices"], json!(places));
        let ignored: Vec<&String> = places.iter().map(|&place| &ids[place]).collect();
        assert_eq!(reply["data"]["ignoredIds"], json!(ignored));
        for n in 0..lates {
            assert_eq!(client.state(&ids[2 * n]), "failed");
            assert_eq!(client.state(&ids[2 * n + 1]), "completed");
        }
    }
}

#[test]
fn a_listing_begins_with_the_newest_job_if_asked_to() {
    let (mut client, queue) = (client(), queue("newest"));
    let jobs: Vec<Value> = (0..700)
        .map(|n| json!({"data": n, "delay": if n % 2 == 0 { 60_000 } else { 0 }}))
        .collect();
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let mut page = |fields: Value| -> Vec<u64> {
        let mut fields = fields;
        fields["queue"] = queue.as_str().into();
        let jobs = client.ok("GetJobs", fields)["jobs"].clone();
        jobs.as_array().unwrap().iter().map(|job| job["data"].as_u64().unwrap()).collect()
    };
    assert_eq!(page(json!({"asc": false, "limit": 3})), [699, 698, 697]);
    assert_eq!(page(json!({"asc": false, "offset": 690, "limit": 3})), [9, 8, 7]);
    assert_eq!(page(json!({"asc": true, "limit": 2})), [0, 1]);
    let delayed = json!({"asc": false, "state": "delayed", "offset": 1, "limit": 2});
    assert_eq!(page(delayed), [696, 694]);
    let all = page(json!({"asc": false, "state": ["waiting", "delayed"], "limit": 1000}));
    assert!(all.into_iter().eq((0..700).rev()));
}

#[test]
fn a_schedule_is_found_by_its_name() {
    let (mut client, name) = (client(), queue("cron-get"));
    assert_eq!(client.refused("CronGet", json!({"name": name})), "Cron not found");
    let cron = json!({"name": name, "queue": name, "data": 1, "schedule": "@daily", "timezone": "Asia/Tokyo"});
    client.ok("Cron", cron);
    let mut found = client.ok("CronGet", json!({"name": name}))["cron"].clone();
    assert_eq!(found.as_object_mut().unwrap().remove("data"), Some(json!(1)));
    let crons = client.ok("CronList", json!({}))["crons"].clone();
    assert!(crons.as_array().unwrap().contains(&found), "{found} is not in {crons}");
    client.ok("CronDelete", json!({"name": name}));
    assert_eq!(client.refused("CronGet", json!({"name": name})), "Cron not found");
}

#[test]
fn a_webhook_that_is_not_enabled_is_told_of_nothing_also_after_a_kill() {
    let receiver = Receiver::always(Habit::Status(200));
    let mut server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let mut client = server.client();
    let webhook = json!({"url": receiver.url(), "events": ["job.waiting"]});
    let id = client.ok("AddWebhook", webhook)["data"]["webhookId"].clone();
    let enable = |enabled: bool| json!({"id": id, "enabled": enabled});
    client.ok("SetWebhookEnabled", enable(false));
    client.push("q", "not told");
    server.kill();
    server.start();
    let mut client = server.client();
    let listed = client.ok("ListWebhooks", json!({}))["data"].clone();
    assert_eq!(listed["webhooks"][0]["enabled"], false);
    assert_eq!(listed["stats"], json!({"total": 1, "enabled": 0}));
    client.push("q", "not told either");
    client.ok("SetWebhookEnabled", enable(true));
    client.push("q", "told");
    let post = until("the post", || receiver.posts().into_iter().next());
    let told: Value = serde_json::from_str(post.text()).unwrap();
    assert_eq!(told["data"], "told");
    let listed = client.ok("ListWebhooks", json!({}))["data"].clone();
    assert_eq!(listed["stats"], json!({"total": 1, "enabled": 1}));
    let nobody = json!({"id": "0190163d-8694-439b-aea5-966c26f8a787", "enabled": true});
    assert_eq!(client.refused("SetWebhookEnabled", nobody), "Webhook not found");
}
