//! Tokens for some queues: what they may do there, and what they see of the others. The fear: a list, a figure or a job of
//! another queue that shows.

use serde_json::{Value, json};

use crate::interface::access::{client, forbidden, guarded};
use crate::support::stream::{UPGRADE, WebSocket};
use crate::support::{Client, until};

#[test]
fn a_token_for_some_queues_pushes_and_works_there_and_nowhere_else() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    let [mut pusher, mut worker] = ["mailpusher", "mailworker"].map(|token| client(&server, token));
    let own = pusher.push_with("emails.a", 1, json!({"jobId": "own"}));
    pusher.push("sms", 1);
    pusher.ok("PUSHB", json!({"queue": "emails.b", "jobs": [{"data": 1, "dependsOn": ["own"]}]}));
    let text = forbidden(&mut pusher, "PUSH", json!({"queue": "other", "data": 1}));
    assert_eq!(text, "queue other is not one of those that this token is for: emails.*,sms");
    forbidden(&mut pusher, "PUSHB", json!({"queue": "other", "jobs": [{"data": 1}]}));
    let flow = |queue: &str| {
        json!({"jobs": [
            {"id": "p", "queue": "emails.a",
                "input": {"data": 1, "childrenIds": ["c"], "dependsOn": ["c"]}},
            {"id": "c", "queue": queue, "input": {"data": 1, "parentId": "p"}},
        ]})
    };
    forbidden(&mut pusher, "PUSHF", flow("other"));
    pusher.ok("PUSHF", flow("emails.a"));
    let jobs: Vec<Value> = (0..3000).map(|_| json!({"data": 1})).collect();
    forbidden(&mut pusher, "PUSHB", json!({"queue": "other", "jobs": jobs}));

    // Jobs of other queues do not exist for it: not to depend on, nor to ask after, nor to finish.
    let foreign = boss.push_with("other", "secret", json!({"jobId": "foreign"}));
    let named = boss.push("other", "secret");
    for id in [&foreign, &named] {
        for cmd in ["PUSH", "PUSHB"] {
            let job = json!({"data": 1, "dependsOn": [id], "queue": "emails.a"});
            let fields = match cmd {
                "PUSH" => job,
                _ => json!({"queue": "emails.a", "jobs": [{"data": 1, "dependsOn": [id]}]}),
            };
            let text = pusher.refused(cmd, fields);
            assert!(text.ends_with(&format!("Dependency job not found: {id}")), "{text}");
        }
        assert_eq!(pusher.state(id), "unknown");
        let fields = json!({"queue": "emails.a", "data": 1, "parentId": id});
        assert!(forbidden(&mut pusher, "PUSH", fields).contains("parentId"));
        let waited = pusher.call("WaitJob", json!({"id": id, "timeout": 0}));
        assert_ne!(waited["completed"], true, "{waited}");
    }
    let mut other = client(&server, "worker");
    let (held, token) = other.pull_owned("other", 3_600_000);
    let (held, token) = (held["id"].clone(), json!(token));
    for (cmd, fields) in [
        ("ACK", json!({"id": held, "token": token})),
        ("FAIL", json!({"id": held, "token": token})),
        ("Progress", json!({"id": held, "progress": 1})),
        ("AddLog", json!({"id": held, "message": "x"})),
        ("Update", json!({"id": held, "data": 2})),
        ("ExtendLock", json!({"id": held, "token": token, "duration": 1000})),
        ("JobHeartbeat", json!({"id": held, "token": token})),
        ("Discard", json!({"id": held, "token": token})),
        ("MoveToWait", json!({"id": held, "token": token})),
        ("GetJob", json!({"id": held})),
        ("GetJob", json!({"id": named})),
        ("ACKB", json!({"ids": [held], "tokens": [token]})),
    ] {
        worker.refused(cmd, fields);
    }
    // Of a batch on several shards nothing is done.
    let (mine, lock) = worker.pull_owned("emails.a", 3_600_000);
    assert_eq!(mine["id"], json!(own));
    worker.refused("ACKB", json!({"ids": [mine["id"], held], "tokens": [lock, token]}));
    let ids: Vec<&Value> = std::iter::repeat_n(&held, 2500).collect();
    let tokens: Vec<&Value> = std::iter::repeat_n(&token, 2500).collect();
    worker.refused("ACKB", json!({"ids": ids, "tokens": tokens}));
    let beat =
        worker.ok("JobHeartbeatB", json!({"ids": [mine["id"], held], "tokens": [lock, token]}));
    assert_eq!((&beat["data"]["count"], &beat["data"]["goneIndices"]), (&json!(1), &json!([1])));
    let extended = worker.ok(
        "ExtendLocks",
        json!({"ids": [mine["id"], held], "tokens": [lock, token], "durations": [9000, 9000]}),
    );
    assert_eq!(extended["count"], 1);
    assert_eq!(boss.state(held.as_str().unwrap()), "active");
    worker.ok("ACK", json!({"id": mine["id"], "token": lock}));
    forbidden(&mut worker, "PULL", json!({"queue": "other"}));
    forbidden(&mut worker, "RegisterWorker", json!({"name": "w", "queues": ["emails.a", "other"]}));
    boss.ok(
        "RegisterWorker",
        json!({"name": "w", "queues": ["other"], "workerId": "foreign-worker"}),
    );
    worker.refused("UnregisterWorker", json!({"workerId": "foreign-worker"}));
    worker.refused("Heartbeat", json!({"id": "foreign-worker"}));
    other.ok("ACK", json!({"id": held, "token": token}));
}

#[test]
fn a_token_for_some_queues_sees_lists_of_those_and_no_figures_of_the_whole() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    for number in 0..20 {
        boss.push(&format!("emails.{number}"), 1);
        boss.push(&format!("other.{number}"), 1);
    }
    for queue in ["emails.0", "other.0"] {
        let fields = json!({"name": queue, "queue": queue, "data": 1, "repeatEvery": 3_600_000});
        boss.ok("Cron", fields);
    }
    let mut reader = client(&server, "mailreader");
    let queues = reader.ok("ListQueues", json!({}))["queues"].clone();
    let names: Vec<&str> =
        queues.as_array().unwrap().iter().map(|queue| queue["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 20);
    assert!(names.iter().all(|name| name.starts_with("emails.")), "{names:?}");
    let crons = reader.ok("CronList", json!({}))["crons"].clone();
    assert_eq!(crons.as_array().map(Vec::len), Some(1), "{crons}");
    assert_eq!(crons[0]["queue"], "emails.0");
    reader.ok("Metrics", json!({"queue": "emails.0"}));
    reader.ok("GetJobs", json!({"queue": "emails.0"}));
    for (cmd, fields) in [
        ("Stats", json!({})),
        ("Metrics", json!({})),
        ("Metrics", json!({"queue": "other.0"})),
        ("Prometheus", json!({})),
        ("ListWorkers", json!({"queue": "other.0"})),
        ("Watch", json!({"what": ["queues", "shards"]})),
        ("Watch", json!({"what": ["stats"]})),
        ("ListWebhooks", json!({})),
        ("CronGet", json!({"name": "other.0"})),
        ("GetJobs", json!({"queue": "other.0"})),
        ("GetJobCounts", json!({"queue": "other.0"})),
        ("Dlq", json!({"queue": "other.0"})),
        ("SubscribeEvents", json!({"queue": "other.0"})),
    ] {
        forbidden(&mut reader, cmd, fields);
    }
    let mut boss_of_mail = client(&server, "mailboss");
    boss_of_mail.ok("Pause", json!({"queue": "emails.0"}));
    boss_of_mail.ok("Obliterate", json!({"queue": "emails.0"}));
    for (cmd, fields) in [
        ("Pause", json!({"queue": "other.0"})),
        ("Obliterate", json!({"queue": "other.0"})),
        ("Cron", json!({"name": "n", "queue": "emails.0", "data": 1, "repeatEvery": 3_600_000})),
        ("CronDelete", json!({"name": "other.0"})),
        ("AddWebhook", json!({"url": "https://example.org", "events": []})),
        ("BackupPoint", json!({})),
    ] {
        forbidden(&mut boss_of_mail, cmd, fields);
    }
    let id = boss.push("other.0", 1);
    boss_of_mail.refused("Cancel", json!({"id": id}));
    boss_of_mail.refused("UpdateParent", json!({"childId": id, "parentId": id}));
    assert_eq!(boss.state(&id), "waiting");
}

#[test]
fn pages_of_queues_for_a_token_of_some_have_these_alone_whatever_they_are_sorted_by() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    for number in 0..30 {
        boss.push(&format!("emails.{number:02}"), 1);
        // Busier, so that these would fill the pages.
        (0..3).for_each(|_| drop(boss.push(&format!("other.{number:02}"), 1)));
    }
    let mut reader = client(&server, "mailreader");
    for sort in ["name", "waiting", "total", "oldest"] {
        let (mut names, mut after) = (Vec::new(), Value::Null);
        loop {
            let mut fields = json!({"limit": 7, "sort": sort});
            if after.is_string() {
                fields["after"] = after;
            }
            let page = reader.ok("ListQueues", fields);
            let rows = page["queues"].as_array().unwrap();
            names.extend(rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()));
            assert!(rows.iter().all(|row| row["waiting"] == 1), "{page}");
            after = page["next"].clone();
            if after.is_null() {
                break;
            }
        }
        names.sort();
        let expected: Vec<String> = (0..30).map(|number| format!("emails.{number:02}")).collect();
        assert_eq!(names, expected, "{sort}");
    }
    assert_eq!(reader.ok("ListQueues", json!({"prefix": "oth", "limit": 5}))["queues"], json!([]));
}

#[test]
fn a_token_for_some_queues_sees_its_jobs_in_flows_and_explanations_and_the_others_hidden() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    let child = |id: &str, queue: &str| json!({"id": id, "queue": queue, "input": {"data": 1, "parentId": "top", "name": "send"}});
    let children = ["own", "secret", "secret-too"];
    boss.ok("PUSHF", json!({"jobs": [
        {"id": "top", "queue": "emails.a", "input": {"data": 1, "childrenIds": children, "dependsOn": children}},
        child("own", "emails.b"),
        child("secret", "other"),
        child("secret-too", "other"),
    ]}));
    let named = boss.push("other", 1);
    boss.push_with("emails.a", 1, json!({"jobId": "waits", "dependsOn": [named, "own"]}));
    boss.push_with("other", 1, json!({"jobId": "foreign-top"}));
    for token in ["mailreader", "mailworker"] {
        let mut reader = client(&server, token);
        let flow = reader.ok("GetFlow", json!({"id": "top"}))["data"].clone();
        let jobs = flow["jobs"].as_array().unwrap();
        assert_eq!((jobs.len(), &jobs[0]["id"]), (4, &json!("top")), "{flow}");
        assert_eq!((&jobs[1]["id"], &jobs[1]["queue"]), (&json!("own"), &json!("emails.b")));
        for hidden in &jobs[2..] {
            assert_eq!(hidden, &json!({"depth": 1, "parentId": "top", "state": "hidden"}));
        }
        let detail = reader.ok("GetJobDetail", json!({"id": "top"}))["data"].clone();
        assert_eq!(detail["children"]["jobs"].as_array().unwrap()[1..], jobs[2..], "{detail}");
        let told = reader.ok("Explain", json!({"id": "waits"}))["data"]["reasons"].clone();
        let reason = told.as_array().unwrap().iter().find(|one| one["code"] == "dependencies");
        let mut waits_for = reason.unwrap()["jobs"].as_array().unwrap().clone();
        waits_for.sort_by_key(|job| job["state"] == "hidden");
        assert_eq!(
            (&waits_for[0]["id"], &waits_for[0]["queue"]),
            (&json!("own"), &json!("emails.b"))
        );
        assert_eq!(waits_for[1], json!({"state": "hidden", "child": false}));
        for text in [flow.to_string(), told.to_string()] {
            assert!(!text.contains("secret") && !text.contains(&named), "{text}");
        }
        for cmd in ["GetFlow", "GetJobDetail", "Explain"] {
            for id in ["foreign-top", &named, "none"] {
                assert_eq!(reader.refused(cmd, json!({ "id": id })), "Job not found", "{cmd} {id}");
            }
        }
    }
    // A job that is gone looks no different from one that may not be seen.
    boss.ok("Obliterate", json!({"queue": "other"}));
    let mut reader = client(&server, "mailreader");
    let flow = reader.ok("GetFlow", json!({"id": "top"}))["data"].clone();
    assert_eq!(flow["jobs"][2], json!({"depth": 1, "parentId": "top", "state": "hidden"}));
    let flow = boss.ok("GetFlow", json!({"id": "top"}))["data"].clone();
    assert_eq!(flow["jobs"].as_array().unwrap().len(), 4, "an admin sees all");
}

#[test]
fn a_token_for_some_queues_sees_the_workers_of_these_and_what_they_do_there() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    for (id, queues) in [
        ("own", json!(["emails.a"])),
        ("both", json!(["emails.a", "other"])),
        ("far", json!(["other"])),
    ] {
        boss.ok("RegisterWorker", json!({"workerId": id, "name": id, "queues": queues}));
    }
    // The new registration takes no place of a worker of other queues.
    let mut worker = client(&server, "mailworker");
    for (id, is_free) in [("far", false), ("both", false), ("new", true)] {
        let about = json!({"workerId": id, "name": id, "queues": ["emails.a"]});
        let reply = worker.call("RegisterWorker", about);
        assert_eq!(reply["ok"], is_free, "{reply}");
        assert!(is_free || reply["code"] == "forbidden", "{reply}");
    }
    worker.ok("UnregisterWorker", json!({"workerId": "new"}));
    boss.ok("Heartbeat", json!({"id": "own", "activeJobs": 1, "processed": 20, "failed": 3}));
    boss.ok("Heartbeat", json!({"id": "both", "activeJobs": 2, "processed": 500, "failed": 70}));
    let own = boss.push("emails.a", 1);
    let foreign = boss.push("other", 1);
    for queue in ["emails.a", "other"] {
        boss.pull_owned(queue, 3_600_000);
    }
    let mut reader = client(&server, "mailreader");
    for fields in [json!({}), json!({"limit": 1000}), json!({"queue": "emails.a"})] {
        let data = reader.ok("ListWorkers", fields.clone())["data"].clone();
        let text = data.to_string();
        assert!(
            !text.contains("far") && !text.contains("other") && !text.contains(&foreign),
            "{text}"
        );
        let workers = data["workers"].as_array().unwrap();
        let names: Vec<&str> = workers.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["both", "own"]);
        assert_eq!(
            (&workers[0]["partial"], &workers[0]["queues"]),
            (&json!(true), &json!(["emails.a"]))
        );
        assert!(
            workers[0].get("activeJobs").is_none() && workers[0].get("processedJobs").is_none()
        );
        assert_eq!((&workers[1]["processedJobs"], workers[1].get("partial")), (&json!(20), None));
        if fields != json!({}) {
            for worker in workers {
                assert_eq!(worker["jobs"], json!([{"id": own, "queue": "emails.a"}]));
            }
        }
        let stats = &data["stats"];
        assert_eq!((&stats["total"], &stats["totalProcessed"]), (&json!(2), &json!(20)), "{stats}");
    }
    let all = boss.ok("ListWorkers", json!({}))["data"].clone();
    assert_eq!(all["stats"]["totalProcessed"], 520);
}

#[test]
fn a_token_for_some_queues_watches_these_alone() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    for number in 0..5 {
        boss.push(&format!("emails.{number}"), 1);
        (0..20).for_each(|_| drop(boss.push(&format!("other.{number}"), 1)));
    }
    let mut reader = client(&server, "mailreader");
    let watched = reader.ok("Watch", json!({"every": 1000, "top": 3}))["data"]["what"].clone();
    assert_eq!(watched, json!(["queues"]));
    boss.ok("Watch", json!({"every": 1000, "top": 100, "what": ["stats", "queues"]}));
    let first = |viewer: &mut Client| {
        until("a sample", || {
            let sample = viewer.recv().unwrap();
            (sample["type"] == "watch").then_some(sample)
        })
    };
    let sample = first(&mut reader);
    let names: Vec<&str> = sample["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| queue["name"].as_str().unwrap())
        .collect();
    assert!(names.len() == 3 && names.iter().all(|name| name.starts_with("emails.")), "{sample}");
    assert!(sample.get("stats").is_none() && sample.get("shards").is_none(), "{sample}");
    let whole = first(&mut boss);
    assert_eq!(whole["queues"].as_array().unwrap().len(), 10, "{whole}");
    // A WebSocket gets samples of these queues only, too.
    let lines = format!("{UPGRADE}Authorization: Bearer mailreader\r\n");
    let mut socket = WebSocket::open_with(server.http, "/ws", &lines).unwrap();
    assert_eq!(socket.call("Watch", json!({"what": "queues"}))["ok"], true);
    let sample = until("a sample", || {
        let sample = socket.recv();
        (sample["type"] == "watch").then_some(sample)
    });
    assert_eq!(sample["queues"].as_array().unwrap().len(), 5, "{sample}");
    assert_eq!(socket.call("Unwatch", json!({}))["ok"], true);
}

#[test]
fn results_of_removed_children_are_for_tokens_of_their_queue_only() {
    let server = guarded();
    let mut boss = client(&server, "boss");
    let [mut pusher, mut worker] = ["mailpusher", "mailworker"].map(|token| client(&server, token));
    let ended = |boss: &mut Client, queue: &str| {
        let pushed = json!({"parentId": "pending", "removeOnComplete": true});
        let child = boss.push_with(queue, 1, pushed);
        let (job, token) = boss.pull_owned(queue, 3_600_000);
        assert_eq!(job["id"], *child);
        boss.ok("ACK", json!({"id": child, "token": token, "result": {"from": queue}}));
        child
    };
    let foreign = ended(&mut boss, "other");
    let parent = |child: &str| json!({"queue": "emails.p", "data": 1, "childrenIds": [child], "dependsOn": [child]});
    let text = pusher.refused("PUSH", parent(&foreign));
    assert!(text.ends_with(&format!("Dependency job not found: {foreign}")), "{text}");
    let whole = json!({"childrenIds": [foreign], "dependsOn": [foreign]});
    let real = boss.push_with("other", 2, whole);
    until("the result to come", || {
        let values = boss.ok("GetChildrenValues", json!({"id": real}))["data"]["values"].clone();
        (values[format!("other:{foreign}")] == json!({"from": "other"})).then_some(())
    });

    let own = ended(&mut boss, "emails.c");
    let id = pusher.ok("PUSH", parent(&own))["id"].clone();
    until("the value to come", || {
        let values = worker.ok("GetChildrenValues", json!({"id": id}))["data"]["values"].clone();
        (values[format!("emails.c:{own}")] == json!({"from": "emails.c"})).then_some(())
    });
}
