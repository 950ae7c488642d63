//! Values that version 3 of the protocol coerces and version 2 refuses.

use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::{Client, Start};
use crate::{client, queue, shared};

fn three() -> Client {
    let mut client = client();
    client.ok("Hello", json!({ "protocolVersion": 3 }));
    client
}

fn job(client: &mut Client, id: &Value) -> Value {
    client.ok("GetJob", json!({ "id": id }))["job"].clone()
}

/// When a job was due from its creation.
fn delay(job: &Value) -> u64 {
    job["runAt"].as_u64().unwrap() - job["createdAt"].as_u64().unwrap()
}

#[test]
fn a_fraction_is_rounded_down_and_a_text_may_spell_a_number() {
    let queue = queue("fractions");
    let mut client = three();
    for (given, taken) in [
        (json!(3_600_000.9), 3_600_000),
        (json!("3600001"), 3_600_001),
        (json!("3600002.0"), 3_600_002),
    ] {
        let push = json!({ "queue": queue, "delay": given, "timeout": 1000.5, "ttl": "9e9" });
        let id = client.ok("PUSH", push)["id"].clone();
        assert_eq!(delay(&job(&mut client, &id)), taken, "{given}");
    }
    client.ok("RateLimit", json!({ "queue": queue, "limit": "10", "duration": 1000.5 }));
    client.ok("SetStallConfig", json!({ "queue": queue, "config": { "stallInterval": "5000.5" } }));
    let config = client.ok("GetStallConfig", json!({ "queue": queue }))["config"].clone();
    assert_eq!(config["stallInterval"], 5000);
    let config = json!({ "autoRetryInterval": -1, "maxEntries": "0" });
    client.ok("SetDlqConfig", json!({ "queue": queue, "config": config }));
    let config = client.ok("GetDlqConfig", json!({ "queue": queue }))["config"].clone();
    assert_eq!((&config["autoRetryInterval"], &config["maxEntries"]), (&json!(0), &json!(1)));
}

#[test]
fn numeric_ids_are_the_texts_that_spell_them() {
    let server = Start::new().env("SHARDS", 3).start();
    let mut client = server.client();
    client.ok("Hello", json!({ "protocolVersion": 3 }));
    for number in 0..24 {
        let queue = format!("numeric-{number}");
        let text = number.to_string();
        let id = client.ok("PUSH", json!({ "queue": queue, "jobId": number }))["id"].clone();
        let same = client.ok("PUSH", json!({ "queue": queue, "jobId": text }))["id"].clone();
        assert_eq!(id, same, "{number}");
        let depends = json!({ "queue": queue, "jobId": 100 + number, "dependsOn": [number] });
        client.ok("PUSH", depends);
        assert_eq!(client.ok("GetJob", json!({ "id": number }))["job"]["id"], id);
        let found = client.ok("GetJobByCustomId", json!({ "customId": number }));
        assert_eq!(found["job"]["id"], id);
        let pull = json!({ "queue": queue, "timeout": 30_000 });
        assert_eq!(client.ok("PULL", pull.clone())["job"]["id"], id);
        client.ok("ACK", json!({ "id": number }));
        client.ok("PULL", pull);
        client.ok("ACKB", json!({ "ids": [100 + number] }));
        assert_eq!(client.state(&(100 + number).to_string()), "completed");
    }
}

#[test]
fn attempts_at_or_below_0_run_once() {
    let queue = queue("attempts");
    let mut client = three();
    for attempts in [json!(0), json!(-3), json!("0")] {
        let push = json!({ "queue": queue, "maxAttempts": attempts, "backoff": 0 });
        let id = client.ok("PUSH", push)["id"].clone();
        client.ok("PULL", json!({ "queue": queue, "timeout": 30_000 }));
        client.ok("FAIL", json!({ "id": id, "error": "once" }));
        assert_eq!(client.state(id.as_str().unwrap()), "failed", "{attempts}");
    }
    let cron = json!({
        "name": queue, "queue": queue, "repeatEvery": 3_600_000,
        "jobOptions": { "maxAttempts": 0, "delay": -1, "removeOnComplete": 1 },
    });
    client.ok("Cron", cron);
    client.ok("CronDelete", json!({ "name": queue }));
}

#[test]
fn a_negative_delay_is_ready_at_once() {
    let queue = queue("negative");
    let mut client = three();
    let id = client.ok("PUSH", json!({ "queue": queue, "delay": -5000 }))["id"].clone();
    assert_eq!(
        (delay(&job(&mut client, &id)), client.state(id.as_str().unwrap())),
        (0, "waiting".into())
    );
    let id = client.ok("PUSH", json!({ "queue": queue, "delay": 3_600_000 }))["id"].clone();
    client.ok("ChangeDelay", json!({ "id": id, "delay": -0.5 }));
    assert_eq!(client.state(id.as_str().unwrap()), "waiting");
}

#[test]
fn a_flag_that_is_no_boolean_is_true_unless_it_is_empty_or_zero() {
    let queue = queue("truth");
    let mut client = three();
    let mut ids = Vec::new();
    for lifo in [json!(0), json!(""), json!(1), json!("no"), json!({})] {
        let push = json!({ "queue": queue, "lifo": lifo, "removeOnComplete": { "count": 9 } });
        ids.push(client.ok("PUSH", push)["id"].clone());
    }
    // The newest of those that are true come first, then the others in their order.
    for place in [4, 3, 2, 0, 1] {
        let pulled = client.ok("PULL", json!({ "queue": queue, "timeout": 30_000 }));
        assert_eq!(pulled["job"]["id"], ids[place]);
        client.ok("ACK", json!({ "id": ids[place] }));
        assert_eq!(client.refused("GetJob", json!({ "id": ids[place] })), "Job not found");
    }
}

#[test]
fn batches_are_read_as_leniently_as_single_jobs() {
    const JOBS: u64 = 2500;
    let queue = queue("long");
    let base = 7_000_000_000_u64;
    let mut jobs: Vec<Value> = (0..JOBS).map(|_| json!({ "data": 1 })).collect();
    for (at, job) in jobs.iter_mut().enumerate().skip(1200) {
        *job = json!({ "customId": base + at as u64, "delay": -1, "maxAttempts": "2", "lifo": 0 });
    }
    let mut client = three();
    let ids = client.ok("PUSHB", json!({ "queue": queue, "jobs": jobs }))["ids"].clone();
    let last = job(&mut client, &json!(base + JOBS - 1));
    assert_eq!((&last["id"], &last["maxAttempts"]), (&ids[JOBS as usize - 1], &json!(2)));
    let mut pulled = 0;
    while pulled < JOBS {
        let pull = json!({ "queue": queue, "count": "1000", "timeout": 30_000 });
        pulled += client.ok("PULLB", pull)["jobs"].as_array().unwrap().len() as u64;
    }
    let named = |at: u64| if at < 1200 { ids[at as usize].clone() } else { json!(base + at) };
    let all: Vec<Value> = (0..JOBS).map(named).collect();
    client.ok("ACKB", json!({ "ids": all }));
    let counts = client.ok("GetJobCounts", json!({ "queue": queue }))["counts"].clone();
    assert_eq!((&counts["active"], &counts["completed"]), (&json!(0), &json!(JOBS)));
    // A value that is wrong for version 3, too, is refused by its place, and nothing is pushed.
    jobs[2000] = json!({ "delay": "soon" });
    let error = client.refused("PUSHB", json!({ "queue": queue, "jobs": jobs }));
    assert_eq!(error, "jobs[2000]: delay must be an integer");
    assert_eq!(client.ok("GetJobCounts", json!({ "queue": queue }))["counts"], counts);
}

/// The npm client tells by its frames: one of them may be the first to be read so.
#[test]
fn a_frame_that_settles_the_version_is_read_leniently_itself() {
    let queue = queue("settles");
    let mut client = client();
    let push = json!({ "queue": queue, "data": 1, "delay": 3_600_000.5, "name": "n" });
    let id = client.ok("PUSH", push)["id"].clone();
    assert_eq!(delay(&job(&mut client, &id)), 3_600_000);
    client.ok("PUSH", json!({ "queue": queue, "delay": -1 }));
}

#[test]
fn version_2_and_http_take_none_of_it() {
    let queue = queue("strict");
    let mut client = client();
    let calls = [
        ("PUSH", json!({ "delay": 1.5 }), "delay must be an integer"),
        ("PUSH", json!({ "delay": "5" }), "delay must be an integer"),
        ("PUSH", json!({ "delay": -1 }), "delay must be between 0 and 31536000000"),
        ("PUSH", json!({ "maxAttempts": 0 }), "maxAttempts must be between 1 and 1000"),
        ("PUSH", json!({ "lifo": 1 }), "lifo must be a boolean"),
        ("PUSH", json!({ "jobId": 42 }), "jobId must be a string"),
        ("GetJob", json!({ "id": 42 }), "id must be a string"),
    ];
    let mut socket = WebSocket::open(shared().http, "/ws/queues/nothing-here");
    for (cmd, mut fields, error) in calls {
        if cmd == "PUSH" {
            fields["data"] = json!(1);
            let answer = shared().web().post(&format!("/queues/{queue}/jobs"), fields.clone());
            assert_eq!(answer.refused(400), error);
            fields["queue"] = json!(queue);
        }
        assert_eq!(client.refused(cmd, fields.clone()), error);
        socket.ok("Hello", json!({ "protocolVersion": 2 }));
        assert_eq!(socket.refused(cmd, fields.clone()), error);
        socket.ok("Hello", json!({ "protocolVersion": 3 }));
        if cmd == "PUSH" {
            socket.ok(cmd, fields);
        }
    }
}
