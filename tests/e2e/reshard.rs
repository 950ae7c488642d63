//! A start with another number of shards. The fear: something that is not there any more, or twice, or
//! in another order; and a change that is broken off in the middle.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Client, DEADLINE, Dice, Mount, Server, Start, until};

/// Enough of them to be on every shard there is.
const QUEUES: u64 = 12;

fn queue(number: u64) -> String {
    format!("queue-{number}")
}

/// A job that a worker holds through all of it.
struct Held {
    id: String,
    token: String,
}

/// Everything there can be, in every queue.
fn fill(client: &mut Client) -> Vec<Held> {
    let mut held = Vec::new();
    for number in 0..QUEUES {
        let (queue, next) = (queue(number), queue((number + 1) % QUEUES));
        let options = json!({"maxAttempts": 1, "jobId": format!("dead-{number}")});
        let dead = client.push_with(&queue, "dead", options);
        client.pull(&queue);
        client.ok("FAIL", json!({"id": dead, "error": "why", "stack": ["at once", "and there"]}));
        for n in 0..3 {
            let done = client.push_with(&queue, json!({"n": n}), json!({"tags": ["t"]}));
            client.pull(&queue);
            client.ok("AddLog", json!({"id": done, "message": format!("line {n}")}));
            client.ok("Progress", json!({"id": done, "progress": 40, "message": "nearly"}));
            client.ok("ACK", json!({"id": done, "result": {"n": n, "of": queue}}));
        }
        let again = client.push_with(&queue, 1, json!({"maxAttempts": 3, "backoff": 3_600_000}));
        client.pull(&queue);
        client.ok("FAIL", json!({"id": again, "error": "not yet"}));
        client.push_with(&queue, "mine", json!({"jobId": format!("mine-{number}")}));
        // Of a worker that will come back, on whichever connection.
        let pull = json!({"queue": queue, "owner": "w", "lockTtl": 3_600_000, "detach": true});
        let pulled = client.ok("PULL", pull);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        held.push(Held { id: text(&pulled["job"]["id"]), token: text(&pulled["token"]) });
        client.push_with(&queue, "series", json!({"repeat": {"every": 3_600_000, "limit": 5}}));
        let run = client.pull(&queue)["id"].clone();
        client.ok("ACK", json!({"id": run}));
        let jobs: Vec<Value> = (0..20)
            .map(|n| json!({"data": {"n": n}, "priority": n % 3, "lifo": n % 7 == 0}))
            .collect();
        client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        let options = json!({"delay": 3_600_000, "uniqueKey": "key", "ttl": 86_400_000});
        client.push_with(&queue, "later", options);
        let needs =
            json!({"dependsOn": [held[number as usize].id], "jobId": format!("needs-{number}")});
        client.push_with(&next, "needs", needs);
        client.ok("SetConcurrency", json!({"queue": queue, "limit": 100 + number}));
        client.ok("RateLimit", json!({"queue": queue, "limit": 5000}));
        let cron = json!({"name": format!("c-{number}"), "queue": queue, "data": {"c": number},
            "schedule": "0 0 1 1 *", "timezone": "Asia/Kolkata", "priority": 2});
        client.ok("Cron", cron);
    }
    client.ok("Pause", json!({"queue": queue(3)}));
    let hook = json!({"url": "https://example.com/hook", "events": ["job.failed"], "secret": "s"});
    client.ok("AddWebhook", hook);
    held
}

/// All that can be asked.
fn everything(client: &mut Client) -> Vec<Value> {
    let mut all = vec![
        client.ok("ListQueues", json!({}))["queues"].clone(),
        client.ok("CronList", json!({}))["crons"].clone(),
        client.ok("ListWebhooks", json!({}))["data"]["webhooks"].clone(),
    ];
    // Lists of the whole server come shard by shard.
    for list in all.iter_mut().filter_map(Value::as_array_mut) {
        list.sort_by_key(ToString::to_string);
    }
    for number in 0..QUEUES {
        let queue = queue(number);
        let listed = client.ok("GetJobs", json!({"queue": queue, "limit": 1000}))["jobs"].clone();
        for job in listed.as_array().unwrap() {
            let id = json!({"id": job["id"]});
            for asked in ["GetJob", "GetResult", "GetLogs", "GetState"] {
                let mut reply = client.ok(asked, id.clone());
                reply.as_object_mut().unwrap().remove("reqId");
                all.push(reply);
            }
        }
        for asked in ["GetJobCounts", "Dlq", "IsPaused", "GetCountsPerPriority", "Count"] {
            let mut reply = client.ok(asked, json!({"queue": queue}));
            reply.as_object_mut().unwrap().remove("reqId");
            all.push(reply);
        }
        all.push(listed);
    }
    for (number, name) in (0..QUEUES).flat_map(|n| ["dead", "mine", "needs"].map(|it| (n, it))) {
        let mut reply =
            client.ok("GetJobByCustomId", json!({"customId": format!("{name}-{number}")}));
        reply.as_object_mut().unwrap().remove("reqId");
        all.push(reply);
    }
    all
}

fn assert_same(found: &[Value], expected: &[Value], when: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{when}");
    }
    assert_eq!(found.len(), expected.len(), "{when}");
}

#[test]
fn any_number_of_shards_finds_everything() {
    let mut server = Start::new().env("SHARDS", 2).start();
    let held = fill(&mut server.client());
    let before = everything(&mut server.client());
    for (round, shards) in [1, 3, 8, 2, 5, 2].into_iter().enumerate() {
        if round % 2 == 0 {
            server.kill();
        } else {
            assert_eq!(server.terminate().code(), Some(0));
        }
        server.start_with("SHARDS", shards);
        assert_same(&everything(&mut server.client()), &before, &format!("{shards} shards"));
    }
    assert!(server.output().contains("changed"), "{}", server.output());

    // And all of it still works.
    let mut client = server.client();
    for number in 0..QUEUES {
        let name = queue(number);
        client.ok("Resume", json!({"queue": name}));
        let pushed = client.push_with(&name, 1, json!({"uniqueKey": "key"}));
        assert_eq!(client.state(&pushed), "delayed", "the key is held");
        let again = client.push_with(&name, 1, json!({"jobId": format!("dead-{number}")}));
        assert_eq!(again, format!("dead-{number}"));
        let newest = client.push_with(&name, "newest", json!({"priority": -1}));
        let order: Vec<Value> = (0..20).map(|_| client.pull(&name)["data"]["n"].clone()).collect();
        // By priority; of one priority the newest LIFO job first, then the others as they came.
        let mut expected: Vec<u64> = (0..20).collect();
        expected.sort_by_key(|&n| (2 - n % 3, n % 7 > 0, if n % 7 == 0 { 20 - n } else { n }));
        assert_eq!(json!(order), json!(expected), "{name}");
        let last = until("the dependents have their turn", || {
            let job = client.pull(&name);
            (job["data"] != "needs").then_some(job)
        });
        assert_eq!(last["id"], json!(newest), "what came after the change is newer");
    }
    for (number, Held { id, token }) in held.iter().enumerate() {
        let needs = format!("needs-{number}");
        assert_eq!(client.state(&needs), "waiting-children");
        client.ok("ACK", json!({"id": id, "token": token, "result": 5}));
        until("the dependent to wait", || {
            (client.state(&needs) != "waiting-children").then_some(())
        });
    }
    client.ok("RetryDlq", json!({"queue": queue(0)}));
    assert_eq!(client.state("dead-0"), "waiting");
}

/// Pushes numbered jobs; returns how many there are in each queue.
fn push_many(client: &mut Client, batches: u64) -> u64 {
    for number in 0..QUEUES {
        for batch in 0..batches {
            let jobs: Vec<Value> = (0..500)
                .map(|n| json!({"data": {"n": batch * 500 + n, "fill": "x".repeat(200)}}))
                .collect();
            client.ok("PUSHB", json!({"queue": queue(number), "jobs": jobs}));
        }
    }
    batches * 500
}

/// A moment of a change, by what can be seen of it from outside. The files come and go while one looks.
fn has_come(server: &Server, moment: u64) -> bool {
    let next = server.data.join("next-shards");
    let manifest = fs::read_to_string(server.data.join("MANIFEST")).unwrap_or_default();
    let bytes = |path: &str| {
        let files = fs::read_dir(next.join(path)).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum::<u64>()
    };
    match moment {
        0 => next.exists(),
        1 => bytes("shard-0000") > 0,
        2 => bytes("shard-0000") > 16 << 20,
        3 => manifest.contains("moving"),
        _ => manifest.contains("moving") && !next.join("shard-0000").exists(),
    }
}

#[test]
fn a_change_that_is_killed_or_stopped_loses_nothing() {
    let mut dice = Dice::new(1);
    let mut server = Start::new().env("SHARDS", 2).start();
    let each = push_many(&mut server.client(), 4);
    assert_eq!(server.terminate().code(), Some(0));
    for (round, shards) in [3, 1, 2, 8, 2, 3, 1, 2].into_iter().enumerate() {
        server.set("SHARDS", shards);
        server.launch();
        let moment = dice.roll(5);
        let start = Instant::now();
        // Files that the life before has left may look like that moment at once.
        let is_there = || server.has_spoken() && has_come(&server, moment);
        while !is_there() && !server.serves() {
            assert!(start.elapsed() < DEADLINE, "moment {moment}: {}", server.output());
        }
        if round % 3 == 2 {
            // The change may have come to its end before.
            assert_eq!(server.terminate().code(), Some(0), "{}", server.output());
        } else {
            server.kill();
        }
    }
    server.start_with("SHARDS", 2);
    let said = |words: &str| server.output().matches(words).count();
    let broken_off = said("removed what a start had left") + said("ended a change");
    assert!(broken_off > 0, "every change came to its end before it was looked at");
    let mut client = server.client();
    for number in 0..QUEUES {
        let mut seen = Vec::new();
        while seen.len() < each as usize {
            let fields = json!({"queue": queue(number), "count": 1000});
            let jobs = client.ok("PULLB", fields)["jobs"].clone();
            let jobs = jobs.as_array().unwrap();
            assert!(!jobs.is_empty(), "{} of {each} in queue {number}", seen.len());
            seen.extend(jobs.iter().map(|job| job["data"]["n"].as_u64().unwrap()));
        }
        assert_eq!(seen, (0..each).collect::<Vec<_>>(), "queue {number}");
        assert_eq!(client.pull(&queue(number)), Value::Null);
    }
}

#[test]
fn without_room_on_the_disk_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("small");
    let Some(_mount) = Mount::new(&place, 200 << 20) else {
        eprintln!("not run: this machine lets no test mount a file system");
        return;
    };
    let path = place.to_str().unwrap();
    let mut server = Start::new().argument("--data-path").argument(path).start();
    let id = server.client().push("q", "here");
    assert_eq!(server.terminate().code(), Some(0));
    let files = || -> BTreeMap<String, u64> {
        let shard = fs::read_dir(place.join("shard-0000")).unwrap();
        let files = fs::read_dir(&place).unwrap().chain(shard).map(Result::unwrap);
        let about = files.map(|it| (it.file_name(), it.metadata().unwrap().len()));
        about.map(|(name, bytes)| (name.to_string_lossy().into_owned(), bytes)).collect()
    };
    let before = files();
    let (status, output) = Start::new().env("SHARDS", 8).run_to_its_end(&place);
    assert_eq!(status.code(), Some(1), "{output}");
    for words in ["made for 2 shards", "changed to 8", "256 MB of disk space", "SHARDS=2 starts"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert_eq!(files().keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    server.start();
    assert_eq!(server.client().state(&id), "waiting");
}
