//! Jobs over HTTP, row by row of the table of endpoints. The fear: a job that is another one over
//! HTTP than over TCP, a status or text that is not the contract's, a job lost with its connection.

use std::net::Shutdown;
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use crate::support::{Http, Server, Start, until};
use crate::{client, queue, shared};

fn web() -> Http {
    shared().web()
}

fn has_all(record: &Value, fields: &[&str]) {
    for field in fields {
        assert!(record.get(field).is_some(), "no {field} in {record}");
    }
}

#[test]
fn post_queues_jobs_pushes_with_every_field() {
    let queue = queue("push");
    let (mut web, mut tcp) = (web(), client());
    let first = web.push(&queue, json!({"data": 1, "delay": 60_000}));
    let id = web.push(
        &queue,
        json!({
            "data": {"to": "ada"}, "priority": -7, "delay": 50_000, "maxAttempts": 9, "backoff": 77,
            "ttl": 70_000, "timeout": 5_000, "uniqueKey": "u", "jobId": format!("own/{queue}"),
            "tags": ["a", "b"], "groupId": "g", "lifo": true, "removeOnComplete": true,
            "removeOnFail": true, "durable": true, "dependsOn": [first],
            "repeat": {"every": 1000, "limit": 5, "count": 2}, "unknown": {"x": 1}
        }),
    );
    assert_eq!(id, format!("own/{queue}"));
    let job = tcp.ok("GetJob", json!({"id": id}))["job"].clone();
    for (field, value) in [
        ("data", json!({"to": "ada"})),
        ("priority", json!(-7)),
        ("maxAttempts", json!(9)),
        ("backoff", json!(77)),
        ("ttl", json!(70_000)),
        ("timeout", json!(5_000)),
        ("uniqueKey", json!("u")),
        ("tags", json!(["a", "b"])),
        ("groupId", json!("g")),
        ("lifo", json!(true)),
        ("removeOnComplete", json!(true)),
        ("removeOnFail", json!(true)),
        ("durable", json!(true)),
        ("dependsOn", json!([first])),
        ("repeat", json!({"every": 1000, "limit": 5, "count": 2})),
        ("state", json!("waiting-children")),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    let again = web.push(&queue, json!({"data": 2, "jobId": id}));
    assert_eq!(again, id);
}

#[test]
fn a_push_that_is_wrong_is_refused_in_the_words_of_every_surface() {
    let mut web = web();
    let queue = queue("wrong");
    let path = format!("/queues/{queue}/jobs");
    for (body, text) in [
        ("", "Invalid JSON body"),
        ("{", "Invalid JSON body"),
        ("nonsense", "Invalid JSON body"),
        ("{\"data\":1}x", "Invalid JSON body"),
        ("{\"data\":01}", "Invalid JSON body"),
        ("{'data':1}", "Invalid JSON body"),
        ("{\"data\":\"\\ud800\"}", "Invalid JSON body"),
        ("{\"data\":NaN}", "Invalid JSON body"),
        ("[1]", "body must be an object"),
        ("7", "body must be an object"),
        ("null", "body must be an object"),
        ("{}", "data is required"),
        ("{\"data\":1,\"data\":2}", "data must be given only once"),
        ("{\"data\":1,\"priority\":\"high\"}", "priority must be an integer"),
        ("{\"data\":1,\"priority\":1000001}", "priority must be between -1000000 and 1000000"),
        ("{\"data\":1,\"maxAttempts\":0}", "maxAttempts must be between 1 and 1000"),
        ("{\"data\":1,\"tags\":\"a\"}", "tags must be a list of strings"),
        ("{\"data\":1,\"dependsOn\":[\"none\"]}", "Dependency job not found: none"),
    ] {
        let answer = web.call("POST", &path, &[], body.as_bytes());
        assert_eq!(answer.refused(400), text, "{body}");
    }
    let invalid = web.call("POST", &path, &[], b"{\"data\":\"\xff\"}");
    assert_eq!(invalid.refused(400), "Invalid JSON body");
    let deep = format!("{{\"data\":{}{}}}", "[".repeat(300), "]".repeat(300));
    let answer = web.call("POST", &path, &[], deep.as_bytes()).refused(400);
    assert!(answer.contains("at most 128 levels deep"), "{answer}");
    for bad in ["a%20b", "a%2Fb", "%C3%A9", &"q".repeat(257), ""] {
        let answer = web.post(&format!("/queues/{bad}/jobs"), json!({"data": 1}));
        let rule = "queue must be 1 to 256 characters: letters, digits, _ - . :";
        assert_eq!(answer.refused(400), rule, "{bad}");
    }
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn a_body_cannot_say_what_its_path_says() {
    let queue = queue("own");
    let body = json!({
        "cmd": "Obliterate", "queue": "elsewhere", "reqId": 5, "data": {"cmd": 1}, "priority": 3
    });
    let mut web = web();
    let answer = web.post(&format!("/queues/{queue}/jobs"), body).expect(200);
    assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
    let (job, token) = web.pull(&queue);
    assert_eq!(job["data"], json!({"cmd": 1}));
    assert_eq!((&job["queue"], &job["priority"]), (&json!(queue), &json!(3)));
    let id = job["id"].as_str().unwrap();
    let body = json!({"id": "another", "cmd": "PUSH", "token": token, "result": 5});
    web.post(&format!("/jobs/{id}/ack"), body).expect(200);
    assert_eq!(client().ok("GetResult", json!({"id": id}))["result"], 5);
}

#[test]
fn get_queues_jobs_pulls_with_a_token() {
    let queue = queue("pull");
    let mut web = web();
    let path = format!("/queues/{queue}/jobs");
    let none = json!({"ok": true, "job": null, "token": null});
    assert_eq!(web.get(&path).expect(200), none);
    let id = web.push(&queue, json!({"data": [1, 2.5, "x"], "priority": 4}));
    let answer = web.get(&path).expect(200);
    let job = &answer["job"];
    has_all(
        job,
        &["id", "queue", "data", "priority", "createdAt", "attempts", "maxAttempts", "progress"],
    );
    assert_eq!(job["id"], json!(id));
    assert_eq!(job["data"], json!([1, 2.5, "x"]));
    assert!(job["createdAt"].is_u64(), "times are integers: {job}");
    assert_eq!(answer["token"].as_str().unwrap().len(), 36);
    assert_eq!(answer.as_object().unwrap().len(), 3);
    assert_eq!(web.get(&path).expect(200), none);
    assert_eq!(web.get("/queues/a%20b/jobs").status, 400);
}

#[test]
fn a_pull_with_a_timeout_waits_for_its_job() {
    // With one shard, one clock is that of the pings and of the pull.
    let server = Start::new().env("SHARDS", 1).start();
    let mut tcp = server.client();
    let before = tcp.time();
    let none = server.web().get("/queues/poll/jobs?timeout=150").expect(200);
    assert_eq!(none["job"], Value::Null);
    let after = tcp.time();
    assert!(after - before >= 150, "after {} ms", after - before);
    let server = Server::start_default();
    let mut web = server.web();
    for number in 0..4 {
        let queue = format!("poll-{number}");
        web.send("GET", &format!("/queues/{queue}/jobs?timeout=60000"), &[], b"").unwrap();
        let mut tcp = server.client();
        until("the pull waits", || waiting_pulls(&server).eq(&1).then_some(()));
        let id = tcp.push(&queue, number);
        let answer = web.recv(false).unwrap().expect(200);
        assert_eq!(answer["job"]["id"], json!(id));
    }
}

fn waiting_pulls(server: &Server) -> u64 {
    let heap = server.web().get("/heapstats").expect(200);
    let types = heap["topObjectTypes"].as_array().unwrap();
    let pulls = types.iter().find(|one| one["type"] == "WaitingPull").unwrap();
    pulls["count"].as_u64().unwrap()
}

#[test]
fn the_query_of_a_pull_is_checked_like_its_fields() {
    let mut web = web();
    let queue = queue("query");
    for (query, text) in [
        ("timeout=soon", "timeout must be an integer"),
        ("timeout=1.5", "timeout must be an integer"),
        ("timeout=-1", "timeout must be between 0 and 60000"),
        ("timeout=60001", "timeout must be between 0 and 60000"),
        ("timeout=1e999", "timeout must be an integer"),
        ("lockTtl=0", "lockTtl must be between 1 and 86400000"),
        ("timeout=%zz", "The query must be percent-encoded UTF-8"),
    ] {
        let answer = web.get(&format!("/queues/{queue}/jobs?{query}"));
        assert_eq!(answer.refused(400), text, "{query}");
    }
    for query in ["timeout=0", "timeout=", "other=%zz", "timeout=0&timeout=x", ""] {
        assert_eq!(web.get(&format!("/queues/{queue}/jobs?{query}")).status, 200, "{query}");
    }
}

#[test]
fn a_lock_lives_as_long_as_the_pull_said() {
    let queue = queue("lock");
    let mut web = web();
    let id = web.push(&queue, json!({"data": 1}));
    let answer = web.get(&format!("/queues/{queue}/jobs?lockTtl=100")).expect(200);
    let token = answer["token"].clone();
    until("the lock to expire", || (client().state(&id) == "waiting").then_some(()));
    let late = web.post(&format!("/jobs/{id}/ack"), json!({"token": token}));
    assert_eq!(late.refused(400), "Job not found or not active");
}

#[test]
fn get_jobs_id_shows_the_whole_record_in_every_state() {
    let queue = queue("get");
    let (mut web, mut tcp) = (web(), client());
    let id = web.push(&queue, json!({"data": {"a": [true, null]}, "tags": ["t"], "delay": 60_000}));
    let fields = [
        "id",
        "queue",
        "data",
        "priority",
        "createdAt",
        "runAt",
        "startedAt",
        "completedAt",
        "attempts",
        "maxAttempts",
        "backoff",
        "progress",
        "tags",
        "lifo",
        "removeOnComplete",
        "removeOnFail",
    ];
    let path = format!("/jobs/{id}");
    let job = web.get(&path).expect(200)["job"].clone();
    has_all(&job, &fields);
    assert_eq!((&job["startedAt"], &job["completedAt"]), (&Value::Null, &Value::Null));
    assert_eq!(job["data"], json!({"a": [true, null]}));
    assert!(job["runAt"].as_u64() >= job["createdAt"].as_u64().map(|at| at + 60_000), "{job}");
    tcp.ok("Promote", json!({"id": id}));
    let (_, token) = web.pull(&queue);
    tcp.ok("Progress", json!({"id": id, "progress": 12.5}));
    let job = web.get(&path).expect(200)["job"].clone();
    assert_eq!((&job["progress"], &job["state"]), (&json!(12.5), &json!("active")));
    assert!(job["startedAt"].is_u64());
    web.post(&format!("/jobs/{id}/ack"), json!({"result": {"n": 1}, "token": token})).expect(200);
    let job = web.get(&path).expect(200)["job"].clone();
    assert!(job["completedAt"].is_u64(), "{job}");
    assert_eq!(job["returnvalue"], json!({"n": 1}));
    let over_tcp = tcp.ok("GetJob", json!({"id": id}))["job"].clone();
    assert_eq!(job, over_tcp, "both surfaces show one record");
}

#[test]
fn get_jobs_id_of_an_unknown_id_is_404() {
    let mut web = web();
    for id in ["none", "01a1fc11-5065-7000-8000-075ff3dcc2b3", "a%2Fb", "%20"] {
        assert_eq!(web.get(&format!("/jobs/{id}")).refused(404), "Job not found", "{id}");
    }
    assert_eq!(web.get("/jobs/").refused(400), "id must be a string of 1 to 256 characters");
    assert_eq!(web.get(&format!("/jobs/{}", "x".repeat(257))).status, 400);
    assert_eq!(web.get("/jobs/%zz").refused(400), "The path must be percent-encoded UTF-8");
}

#[test]
fn delete_jobs_id_cancels_or_says_why_not() {
    let queue = queue("cancel");
    let (mut web, mut tcp) = (web(), client());
    let id = web.push(&queue, json!({"data": 1}));
    assert_eq!(web.delete(&format!("/jobs/{id}")).expect(200), json!({"ok": true}));
    assert_eq!(tcp.state(&id), "unknown");
    assert_eq!(web.delete(&format!("/jobs/{id}")).refused(404), "Job not found");
    assert_eq!(web.delete("/jobs/no%2Fsuch").refused(404), "Job not found");
    let own = format!("own {queue}");
    web.push(&queue, json!({"data": 1, "jobId": own}));
    web.pull(&queue);
    let path = format!("/jobs/own%20{queue}");
    assert_eq!(web.delete(&path).refused(400), "Job not found or cannot be cancelled");
    assert_eq!(tcp.state(&own), "active");
}

#[test]
fn post_jobs_ack_completes_with_or_without_result_and_token() {
    let queue = queue("ack");
    let (mut web, mut tcp) = (web(), client());
    let result = json!({"big": 18_446_744_073_709_551_615_u64, "float": 1.0, "text": "é\u{0}"});
    for (body, expected) in [
        (String::new(), Value::Null),
        ("{}".to_owned(), Value::Null),
        (json!({"result": result}).to_string(), result.clone()),
        ("{\"result\":null}".to_owned(), Value::Null),
    ] {
        let id = web.push(&queue, json!({"data": 1}));
        web.pull(&queue);
        let answer = web.call("POST", &format!("/jobs/{id}/ack"), &[], body.as_bytes());
        assert_eq!(answer.expect(200), json!({"ok": true}));
        let job = web.get(&format!("/jobs/{id}")).expect(200)["job"].clone();
        assert_eq!((&job["returnvalue"], &job["state"]), (&expected, &json!("completed")));
    }
    let id = web.push(&queue, json!({"data": 1}));
    let path = format!("/jobs/{id}/ack");
    assert_eq!(web.post(&path, json!({})).refused(400), "Job not found or not active");
    let (_, token) = web.pull(&queue);
    let wrong = "3c0ba8a5-6d3c-4dd4-9b0e-0a1f6c9e2d11";
    let text = format!("Invalid or expired lock token for job {id}");
    assert_eq!(web.post(&path, json!({"token": wrong})).refused(400), text);
    assert_eq!(web.call("POST", &path, &[], b"{").refused(400), "Invalid JSON body");
    assert_eq!(web.call("POST", &path, &[], b"[]").refused(400), "body must be an object");
    assert_eq!(tcp.state(&id), "active");
    web.post(&path, json!({"token": token})).expect(200);
    assert_eq!(
        web.post(&path, json!({"token": token})).refused(400),
        "Job not found or not active"
    );
    assert_eq!(web.post("/jobs/none/ack", json!({})).refused(400), "Job not found or not active");
}

#[test]
fn post_jobs_fail_retries_and_then_buries() {
    let queue = queue("fail");
    let (mut web, mut tcp) = (web(), client());
    let id = web.push(&queue, json!({"data": 1, "maxAttempts": 2, "backoff": 0}));
    let path = format!("/jobs/{id}/fail");
    assert_eq!(web.post(&path, json!({})).refused(400), "Job not found or not active");
    web.pull(&queue);
    assert_eq!(web.post(&path, json!({"error": "first"})).expect(200), json!({"ok": true}));
    let (job, token) = web.pull(&queue);
    assert_eq!(job["attempts"], 1);
    let wrong = web.post(&path, json!({"unrecoverable": 5})).refused(400);
    assert_eq!(wrong, "unrecoverable must be a boolean");
    web.post(&path, json!({"error": "second", "token": token})).expect(200);
    assert_eq!(tcp.state(&id), "failed");
    let job = web.get(&format!("/jobs/{id}")).expect(200)["job"].clone();
    assert_eq!(job["failedReason"], "second");
    let bare = web.push(&queue, json!({"data": 1, "maxAttempts": 1}));
    web.pull(&queue);
    web.call("POST", &format!("/jobs/{bare}/fail"), &[], b"").expect(200);
    assert_eq!(tcp.state(&bare), "failed");
}

#[test]
fn a_job_is_the_same_over_both_surfaces() {
    let queue = queue("faces");
    let (mut web, mut tcp) = (web(), client());
    for text in [
        "0",
        "-1",
        "18446744073709551615",
        "-9223372036854775808",
        "9007199254740993",
        "1.0",
        "0.1",
        "-0.0",
        "1e+300",
        "\"\"",
        "\"é\\u0000\\n\\\"\\\\/\"",
        "[]",
        "{}",
        "true",
        "{\"b\":1,\"a\":{\"c\":[1,2.5,\"x\",null,false]}}",
        "\"\u{1f600}\"",
    ] {
        let body = format!("{{\"data\":{text}}}");
        let answer = web.call("POST", &format!("/queues/{queue}/jobs"), &[], body.as_bytes());
        let id = answer.expect(200)["id"].as_str().unwrap().to_owned();
        // There over TCP, and back as a new job.
        tcp.send("PULL", json!({"queue": queue})).unwrap();
        let reply = tcp.recv_value().unwrap();
        let field = |value: &rmpv::Value, name: &str| {
            let map = value.as_map().unwrap();
            map.iter().find(|(key, _)| key.as_str() == Some(name)).unwrap().1.clone()
        };
        let data = field(&field(&reply, "job"), "data");
        let push = rmpv::Value::Map(vec![
            ("cmd".into(), "PUSH".into()),
            ("queue".into(), queue.as_str().into()),
            ("data".into(), data),
        ]);
        tcp.send_value(&push).unwrap();
        assert_eq!(tcp.recv().unwrap()["ok"], true);
        let answer = web.get(&format!("/queues/{queue}/jobs"));
        let shown = answer.text();
        assert!(shown.contains(&format!("\"data\":{text},\"priority\"")), "{text} in {shown}");
        client().ok("ACK", json!({"id": id}));
    }
}

#[test]
fn jobs_pulled_over_http_stay_when_the_connection_closes() {
    let queue = queue("stay");
    let mut first = web();
    let id = first.push(&queue, json!({"data": 1}));
    let (_, token) = first.pull(&queue);
    first.socket.shutdown(Shutdown::Both).unwrap();
    drop(first);
    let mut second = web();
    for _ in 0..20 {
        assert_eq!(client().state(&id), "active");
    }
    second.post(&format!("/jobs/{id}/ack"), json!({"token": token})).expect(200);
}

#[test]
fn a_long_poll_whose_client_goes_away_takes_no_job() {
    let server = Server::start_default();
    for half in [false, true] {
        for number in 0..6 {
            let queue = format!("gone-{half}-{number}");
            let mut web = server.web();
            web.send("GET", &format!("/queues/{queue}/jobs?timeout=60000"), &[], b"").unwrap();
            until("the pull waits", || waiting_pulls(&server).eq(&1).then_some(()));
            if half {
                // Who says no more may still listen: it gets the empty answer.
                web.socket.shutdown(Shutdown::Write).unwrap();
                let answer = web.recv(false).unwrap().expect(200);
                assert_eq!(answer, json!({"ok": true, "job": null, "token": null}));
                assert!(web.is_closed_by_server());
            } else {
                drop(web);
            }
            until("the pull is gone", || waiting_pulls(&server).eq(&0).then_some(()));
            let mut tcp = server.client();
            let id = tcp.push(&queue, number);
            assert_eq!(tcp.state(&id), "waiting");
        }
    }
}

#[test]
fn long_polls_are_answered_when_the_server_stops() {
    let mut server = Server::start_default();
    let mut polls: Vec<Http> = (0..8).map(|_| server.web()).collect();
    for (number, web) in polls.iter_mut().enumerate() {
        let path = format!("/queues/stop-{number}/jobs?timeout=60000");
        web.send("GET", &path, &[], b"").unwrap();
    }
    until("the pulls wait", || waiting_pulls(&server).eq(&8).then_some(()));
    server.signal(rustix::process::Signal::TERM);
    for web in &mut polls {
        let answer = web.recv(false).unwrap();
        assert_eq!(answer.expect(200)["job"], Value::Null);
    }
    assert!(server.wait_for_end().success());
}

#[test]
fn a_job_on_the_disk_is_read_back_for_http() {
    let server = crate::support::Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4).start();
    let mut web = server.web();
    let data = "x".repeat(1 << 20);
    let id = web.push("cold", json!({"data": data}));
    for _ in 0..24 {
        web.push("other", json!({"data": "y".repeat(1 << 20)}));
    }
    assert_eq!(web.get(&format!("/jobs/{id}")).expect(200)["job"]["data"], data);
    let (job, _) = web.pull("cold");
    assert_eq!(job["data"], data);
}

#[test]
fn a_job_that_is_damaged_on_the_disk_is_500_and_others_are_served() {
    let server = crate::support::Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4).start();
    let mut web = server.web();
    let mark = "this payload will not stay as it is";
    let id = web.push("cold", json!({"data": mark}));
    for _ in 0..24 {
        web.push("other", json!({"data": "y".repeat(1 << 20)}));
    }
    let directory = server.data.join("shard-0000");
    let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let segment = entries.filter(|path| path.extension().is_some_and(|it| it == "seg")).min();
    let segment = std::fs::File::options().read(true).write(true).open(segment.unwrap()).unwrap();
    let mut begin = vec![0; 64 << 10];
    segment.read_exact_at(&mut begin, 0).unwrap();
    let at = begin.windows(mark.len()).position(|bytes| bytes == mark.as_bytes()).unwrap();
    segment.write_all_at(b"THAT", at as u64).unwrap();
    let path = format!("/jobs/{id}");
    assert_eq!(web.get(&path).refused(500), "The stored job is damaged");
    assert!(server.output().contains("ERROR"), "the operator is told: {}", server.output());
    // Neither the connection nor anybody else suffers.
    let other = web.push("other", json!({"data": 1}));
    assert_eq!(web.get(&format!("/jobs/{other}")).expect(200)["job"]["data"], 1);
    web.delete(&path).expect(200);
    assert_eq!(web.get(&path).refused(404), "Job not found");
}

#[test]
fn a_connection_that_keeps_to_one_queue_works_on_either_shard() {
    let server = Server::start_default();
    for number in 0..20 {
        let queue = format!("follow-{number}");
        let mut web = server.web();
        for job in 0..60 {
            web.push(&queue, json!({"data": job}));
        }
        for job in 0..60 {
            let (pulled, _) = web.pull(&queue);
            assert_eq!(pulled["data"], job);
        }
    }
    let text = server.web().get("/prometheus");
    let moved = text.text().lines().find(|line| line.starts_with("corq_connections_moved_total "));
    assert_ne!(moved, Some("corq_connections_moved_total 0"));
}
