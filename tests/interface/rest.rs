//! REST aliases: a route per command, unknown parameters refused.

use serde_json::{Value, json};

use crate::support::Http;
use crate::{client, queue, shared};

/// A connection over HTTP to the shared server.
fn web() -> Http {
    shared().web()
}

fn put(web: &mut Http, path: &str, body: &Value) -> Value {
    web.call("PUT", path, &[], body.to_string().as_bytes()).expect(200)
}

/// A POST without a body.
fn bare(web: &mut Http, path: &str) -> Value {
    web.call("POST", path, &[], b"").expect(200)
}

fn push(web: &mut Http, queue: &str, job: Value) -> String {
    let answer = web.post(&format!("/queues/{queue}/jobs"), job).expect(200);
    answer["id"].as_str().unwrap().to_owned()
}

fn state(web: &mut Http, id: &str) -> String {
    web.get(&format!("/jobs/{id}/state")).expect(200)["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_misspelt_query_parameter_is_refused_with_the_known_name_and_takes_no_job() {
    let (mut web, queue) = (web(), queue("misspelt"));
    let id = push(&mut web, &queue, json!({"data": 1}));
    for (query, known) in
        [("tmeout=5", "timeout"), ("Timeout=5", "timeout"), ("lock_ttl=9&timeout=0", "lockTtl")]
    {
        let path = format!("/queues/{queue}/jobs?{query}");
        let refused = web.get(&path).refused(400);
        let name = query.split('=').next().unwrap();
        assert_eq!(refused, format!("Unknown query parameter: {name}; did you mean {known}?"));
    }
    assert_eq!(state(&mut web, &id), "waiting");
    // An unknown name that resembles no other is passed over, as everywhere.
    let pulled = web.get(&format!("/queues/{queue}/jobs?cachebuster=7&timeout=0")).expect(200);
    assert_eq!(pulled["job"]["id"], id);
}

/// Without the condition the command would be done to all jobs.
#[test]
fn a_condition_that_is_no_field_of_a_command_on_many_jobs_is_refused_and_changes_nothing() {
    let (mut web, queue) = (web(), queue("conditions"));
    let waiting = push(&mut web, &queue, json!({"data": 1}));
    let failed = push(&mut web, &queue, json!({"data": 1, "priority": 9, "maxAttempts": 1}));
    let pulled = web.get(&format!("/queues/{queue}/jobs")).expect(200);
    let fail = json!({"token": pulled["token"], "error": "no"});
    web.post(&format!("/jobs/{failed}/fail"), fail).expect(200);
    for (path, body) in [
        ("clean?state=failed", json!({"grace": 0})),
        ("clean?limit=1", json!({})),
        ("drain?delayed=true", json!({})),
        ("retry?count=0", json!({})),
        ("dlq/purge?reason=timeout", json!({})),
    ] {
        let refused = web.post(&format!("/queues/{queue}/{path}"), body).refused(400);
        let name = path.split(['?', '=']).nth(1).unwrap();
        let text = "what this command takes stands in the body";
        assert_eq!(refused, format!("Unknown query parameter: {name}; {text}"));
    }
    let mut tcp = client();
    for (command, path, field, value) in [
        ("Clean", "clean", "type", json!("completed")),
        ("Drain", "drain", "state", json!("failed")),
        ("Obliterate", "obliterate", "only", json!("failed")),
        ("PurgeDlq", "dlq/purge", "filter", json!({"reason": "timeout"})),
        ("RetryDlq", "dlq/retry", "id", json!("no-such-job")),
        ("RetryCompleted", "retry-completed", "jobId", json!(waiting)),
        ("PromoteJobs", "promote-jobs", "name", json!("a")),
    ] {
        let text = format!("{field} is no field of this command");
        let mut fields = json!({field: value});
        if command == "Clean" {
            fields["grace"] = json!(0);
        }
        let refused = web.post(&format!("/queues/{queue}/{path}"), fields.clone()).refused(400);
        assert_eq!(refused, text, "{path}");
        fields["queue"] = json!(queue);
        let reply = tcp.call(command, fields);
        assert_eq!((&reply["ok"], &reply["error"]), (&json!(false), &json!(text)), "{command}");
    }
    let within = json!({"filter": {"cause": "timeout"}});
    let refused = web.post(&format!("/queues/{queue}/dlq/retry"), within).refused(400);
    assert_eq!(refused, "filter.cause is no field of this command");
    assert_eq!(state(&mut web, &waiting), "waiting");
    assert_eq!(state(&mut web, &failed), "failed");
}

#[test]
fn a_misspelt_job_field_is_refused_with_the_known_name_and_pushes_no_job() {
    let (mut web, queue) = (web(), queue("fields"));
    let path = format!("/queues/{queue}/jobs");
    for (field, known) in
        [("prioritty", "priority"), ("DELAY", "delay"), ("maxAttempt", "maxAttempts")]
    {
        let refused = web.post(&path, json!({"data": 1, field: 5})).refused(400);
        assert_eq!(refused, format!("Unknown field: {field}; did you mean {known}?"));
    }
    let job = json!({"jobs": [{"data": 1}, {"data": 2, "dealy": 5}]});
    let refused = web.post(&format!("{path}/bulk"), job).refused(400);
    assert_eq!(refused, "Unknown field: dealy; did you mean delay?");
    // The payload is the client's own.
    push(&mut web, &queue, json!({"data": {"prioritty": 1}, "note": "mine"}));
    let count = web.get(&format!("/queues/{queue}/count")).expect(200);
    assert_eq!(count["count"], 1);
}

/// In options of jobs, of parts of flows and of schedules, in rules and in filters, by path and by the name of the command.
#[test]
fn a_misspelt_name_within_an_object_of_the_table_is_refused_and_changes_nothing() {
    let (mut web, queue) = (web(), queue("within"));
    let jobs = format!("/queues/{queue}/jobs");
    let flow = |input: Value| json!({"jobs": [{"id": "a", "queue": queue, "input": input}]});
    let cron = |options: Value| json!({"name": queue, "queue": queue, "data": 1, "repeatEvery": 60_000, "jobOptions": options});
    for (path, body, wrong, known) in [
        (&*jobs, json!({"data": 1, "repeat": {"every": 100_000, "limt": 3}}), "limt", "limit"),
        (&*jobs, json!({"data": 1, "backoff": {"typ": "fixed", "delay": 5}}), "typ", "type"),
        (&*jobs, json!({"data": 1, "backoff": {"type": "fixed", "dealy": 5}}), "dealy", "delay"),
        (&*jobs, json!({"data": 1, "dedup": {"ttl": 5, "extnd": true}}), "extnd", "extend"),
        ("/flows", flow(json!({"data": 1, "dealy": 4})), "dealy", "delay"),
        ("/flows", flow(json!({"data": 1, "dependson": ["b"]})), "dependson", "dependsOn"),
        ("/flows", flow(json!({"data": 1, "backoff": {"Delay": 4}})), "Delay", "delay"),
        (
            "/flows",
            json!({"jobs": [{"id": "a", "Queue": queue, "input": {"data": 1}}]}),
            "Queue",
            "queue",
        ),
        ("/crons", cron(json!({"dealy": 4})), "dealy", "delay"),
        ("/crons", cron(json!({"backoff": {"typ": "fixed"}})), "typ", "type"),
        (
            "/v1/SetDlqConfig",
            json!({"queue": queue, "config": {"maxEntrie": 5}}),
            "maxEntrie",
            "maxEntries",
        ),
        (
            "/v1/RetryDlq",
            json!({"queue": queue, "filter": {"reasn": "timeout"}}),
            "reasn",
            "reason",
        ),
        (
            "/v1/PULL",
            json!({"queue": queue, "group": {"concurency": 1}}),
            "concurency",
            "concurrency",
        ),
        (
            &*format!("/queues/{queue}/dlq/retry"),
            json!({"filter": {"reasn": "x"}}),
            "reasn",
            "reason",
        ),
    ] {
        let refused = web.post(path, body.clone()).refused(400);
        assert_eq!(
            refused,
            format!("Unknown field: {wrong}; did you mean {known}?"),
            "{path} {body}"
        );
    }
    // Fields of a payload may be called anything, in lists and however deep.
    let own = json!({"limt": 1, "backoff": {"typ": 1}, "jobs": [{"dealy": [{"dealy": 1}]}]});
    let parts =
        json!({"jobs": [{"id": format!("{queue}-1"), "queue": queue, "input": {"data": own}}]});
    web.post("/flows", parts).expect(200);
    push(&mut web, &queue, json!({"data": [own], "backoff": {"type": "fixed", "delay": 5}}));
    assert_eq!(web.get(&format!("/queues/{queue}/count")).expect(200)["count"], 2);
}

#[test]
fn a_long_body_is_looked_at_for_misspelt_fields_as_well() {
    let (mut web, queue) = (web(), queue("long"));
    let jobs: Vec<Value> =
        (0..200).map(|_| json!({"data": "x".repeat(2000), "priority": 1})).collect();
    let path = format!("/queues/{queue}/jobs/bulk");
    let mut wrong = jobs.clone();
    wrong[199] = json!({"data": 1, "prioritey": 1});
    let refused = web.post(&path, json!({ "jobs": wrong })).refused(400);
    assert_eq!(refused, "Unknown field: prioritey; did you mean priority?");
    let ids = web.post(&path, json!({ "jobs": jobs })).expect(200);
    assert_eq!(ids["ids"].as_array().unwrap().len(), 200);
    let count = web.get(&format!("/queues/{queue}/count")).expect(200);
    assert_eq!(count["count"], 200);
}

#[test]
fn a_name_that_needs_escapes_is_repeated_without_them() {
    let (mut web, queue) = (web(), queue("escapes"));
    let refused = web.get(&format!("/queues/{queue}/jobs?time%22ut=5")).refused(400);
    assert_eq!(refused, "Unknown query parameter: time?ut; did you mean timeout?");
    let body = r#"{"data":1,"d\"lay":3}"#;
    let answer = web.call("POST", &format!("/queues/{queue}/jobs"), &[], body.as_bytes());
    assert_eq!(answer.refused(400), "Unknown field: d?lay; did you mean delay?");
}

#[test]
fn a_path_with_another_method_is_404_and_names_its_methods() {
    let mut web = web();
    for (method, path, allow) in [
        ("DELETE", "/queues/q/jobs", "GET, HEAD, POST, OPTIONS"),
        ("POST", "/queues/q/counts", "GET, HEAD, OPTIONS"),
        ("GET", "/queues/q/rate-limit", "PUT, DELETE, OPTIONS"),
        ("PATCH", "/crons", "GET, HEAD, POST, OPTIONS"),
    ] {
        let answer = web.call(method, path, &[], b"");
        assert_eq!(answer.headers["allow"], allow, "{method} {path}");
        assert_eq!(answer.refused(404), "Not found");
    }
    let answer = web.get("/queues/q/nothing");
    assert!(!answer.headers.contains_key("allow"), "{answer:?}");
    assert_eq!(answer.refused(404), "Not found");
}

#[test]
fn head_is_taken_by_aliases_where_get_is() {
    let mut web = web();
    let answer = web.call("HEAD", "/queues/head/counts", &[], b"");
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[test]
fn jobs_are_pushed_pulled_and_finished_in_batches() {
    let (mut web, queue) = (web(), queue("batches"));
    let jobs = json!({"jobs": [{"data": 1}, {"data": 2, "priority": 9}, {"data": 3}]});
    let pushed = web.post(&format!("/queues/{queue}/jobs/bulk"), jobs).expect(200);
    assert_eq!(pushed["ids"].as_array().unwrap().len(), 3);
    let pull = json!({"count": 2, "timeout": 0, "owner": "me", "detach": false});
    let pulled = web.post(&format!("/queues/{queue}/jobs/pull-batch"), pull).expect(200);
    let ids: Vec<Value> =
        pulled["jobs"].as_array().unwrap().iter().map(|job| job["id"].clone()).collect();
    assert_eq!(ids, [pushed["ids"][1].clone(), pushed["ids"][0].clone()]);
    // They stay with their tokens when the connection goes.
    drop(web);
    let mut web = shared().web();
    let (ids, tokens) = (json!(ids), pulled["tokens"].clone());
    assert_eq!(tokens.as_array().unwrap().len(), 2);
    let both = json!({"ids": ids, "tokens": tokens});
    let renewed = web.post("/jobs/heartbeat-batch", both.clone()).expect(200);
    assert_eq!(renewed["data"]["count"], 2);
    let durations = json!({"ids": ids, "tokens": tokens, "durations": [60_000, 60_000]});
    assert_eq!(web.post("/jobs/extend-locks", durations).expect(200)["count"], 2);
    let ended = json!({"ids": ids, "tokens": tokens, "results": ["a", "b"]});
    web.post("/jobs/ack-batch", ended).expect(200);
    let result = web.get(&format!("/jobs/{}/result", ids[1].as_str().unwrap())).expect(200);
    assert_eq!(result["result"], "b");
}

#[test]
fn a_flow_is_pushed_over_http() {
    let (mut web, queue) = (web(), queue("flow"));
    let (parent, child) = (format!("{queue}-p"), format!("{queue}-c"));
    let jobs = json!({"jobs": [
        {"id": child, "queue": queue, "input": {"data": 1, "parentId": parent}},
        {"id": parent, "queue": queue, "input": {"data": 2, "childrenIds": [child], "dependsOn": [child]}},
    ]});
    web.post("/flows", jobs).expect(200);
    assert_eq!(state(&mut web, &parent), "waiting-children");
    assert_eq!(web.get(&format!("/jobs/custom/{child}")).expect(200)["job"]["id"], child);
    web.get(&format!("/queues/{queue}/jobs")).expect(200);
    web.post(&format!("/jobs/{child}/ack"), json!({"result": 7})).expect(200);
    let values = web.get(&format!("/jobs/{parent}/children")).expect(200);
    assert_eq!(values["data"]["values"], json!({format!("{queue}:{child}"): 7}));
    web.delete(&format!("/jobs/{parent}/children")).expect(200);
    for which in ["failed", "ignored"] {
        let values = web.get(&format!("/jobs/{parent}/children/{which}")).expect(200);
        assert_eq!(values["values"], json!({}));
    }
}

#[test]
fn one_job_is_read_and_changed_by_its_routes() {
    let (mut web, queue) = (web(), queue("job"));
    let job = json!({"data": {"a": 1}, "delay": 3_600_000, "uniqueKey": "k"});
    let id = push(&mut web, &queue, job);
    let of = |what: &str| format!("/jobs/{id}/{what}");
    assert_eq!(state(&mut web, &id), "delayed");
    put(&mut web, &of("data"), &json!({"data": {"a": 2}}));
    put(&mut web, &of("priority"), &json!({"priority": 4}));
    put(&mut web, &of("delay"), &json!({"delay": 7_200_000}));
    let record = web.get(&format!("/jobs/{id}")).expect(200)["job"].clone();
    assert_eq!((&record["data"], &record["priority"]), (&json!({"a": 2}), &json!(4)));
    let key = format!("/queues/{queue}/dedup/k");
    assert_eq!(web.get(&key).expect(200)["data"]["jobId"], id);
    assert_eq!(web.delete(&of("dedup")).expect(200)["data"]["removed"], true);
    assert_eq!(web.delete(&key).expect(200)["data"]["count"], 0);
    bare(&mut web, &of("promote"));
    assert_eq!(state(&mut web, &id), "waiting");

    let pulled = web.get(&format!("/queues/{queue}/jobs")).expect(200);
    let token = pulled["token"].clone();
    web.post(&of("progress"), json!({"progress": 50, "message": "half"})).expect(200);
    let progress = web.get(&of("progress")).expect(200);
    assert_eq!((&progress["progress"], &progress["message"]), (&json!(50), &json!("half")));
    for line in ["one", "two", "three"] {
        web.post(&of("logs"), json!({"message": line, "level": "warn"})).expect(200);
    }
    let logs = web.get(&of("logs?start=1&end=1")).expect(200)["data"]["logs"].clone();
    assert_eq!((&logs[0]["message"], logs.as_array().unwrap().len()), (&json!("two"), 1));
    web.delete(&of("logs?keepLogs=1")).expect(200);
    let logs = web.get(&of("logs")).expect(200)["data"]["logs"].clone();
    assert_eq!((&logs[0]["message"], logs.as_array().unwrap().len()), (&json!("three"), 1));
    web.post(&of("heartbeat"), json!({ "token": token })).expect(200);
    web.post(&of("extend-lock"), json!({"token": token, "duration": 90_000})).expect(200);
    let wrong = json!({"delay": 5, "token": "00000000-0000-4000-8000-000000000000"});
    web.post(&of("move-to-delayed"), wrong).refused(400);
    web.post(&of("move-to-delayed"), json!({"delay": 3_600_000, "token": token})).expect(200);
    assert_eq!(state(&mut web, &id), "delayed");
    bare(&mut web, &of("move-to-wait"));
    assert_eq!(state(&mut web, &id), "waiting");
    bare(&mut web, &of("discard"));
    assert_eq!(state(&mut web, &id), "failed");
    let ended = web.post(&of("wait"), json!({"timeout": 0})).expect(200);
    assert_eq!((&ended["completed"], &ended["state"]), (&json!(false), &json!("failed")));
    web.call("POST", &of("move-to-waiting-children"), &[], b"").refused(400);
}

#[test]
fn an_unknown_job_is_refused_by_its_routes() {
    let mut web = web();
    for what in ["progress", "result", "logs", "children"] {
        web.get(&format!("/jobs/none-such/{what}")).refused(404);
    }
    web.call("POST", "/jobs/none-such/promote", &[], b"").refused(400);
    assert_eq!(state(&mut web, "none-such"), "unknown");
}

#[test]
fn a_queue_is_read_and_steered_by_its_routes() {
    let (mut web, queue) = (web(), queue("steered"));
    let of = |what: &str| format!("/queues/{queue}/{what}");
    for n in 0..3 {
        push(&mut web, &queue, json!({"data": n, "priority": n}));
    }
    push(&mut web, &queue, json!({"data": 3, "delay": 3_600_000}));
    let counts = web.get(&of("counts")).expect(200)["counts"].clone();
    assert_eq!((&counts["waiting"], &counts["delayed"]), (&json!(3), &json!(1)));
    let counts = web.get(&of("priority-counts")).expect(200)["counts"].clone();
    assert_eq!(counts, json!({"0": 1, "1": 1, "2": 1}));
    let listed = |web: &mut Http, query: &str| {
        let jobs = web.get(&of(&format!("jobs/list?{query}"))).expect(200)["jobs"].clone();
        jobs.as_array().unwrap().iter().map(|job| job["data"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&mut web, "state=delayed"), [3]);
    assert_eq!(listed(&mut web, "state=waiting,delayed&limit=2&offset=2"), [2, 3]);
    assert_eq!(listed(&mut web, "status=waiting&states=delayed&asc=false&limit=2"), [3, 2]);
    let wrong = web.get(&of("jobs/list?state=asleep")).refused(400);
    assert!(wrong.starts_with("state"), "{wrong}");
    let queues = web.get("/queues").expect(200)["queues"].clone();
    assert!(queues.as_array().unwrap().iter().any(|one| one["name"] == queue.as_str()));

    bare(&mut web, &of("pause"));
    assert_eq!(web.get(&of("paused")).expect(200)["paused"], true);
    bare(&mut web, &of("resume"));
    assert_eq!(web.get(&of("paused")).expect(200)["paused"], false);
    assert_eq!(web.post(&of("promote-jobs"), json!({"count": 0})).expect(200)["count"], 1);
    assert_eq!(bare(&mut web, &of("promote-all"))["count"], 0);
    assert_eq!(bare(&mut web, &of("drain"))["count"], 4);
    let id = push(&mut web, &queue, json!({"data": 4}));
    // Without a grace any age will do.
    let cleaned = web.post(&of("clean"), json!({"state": "waiting"})).expect(200);
    assert_eq!(cleaned["ids"], json!([id]));
    push(&mut web, &queue, json!({"data": 5}));
    assert_eq!(bare(&mut web, &of("clean"))["count"], 1);
    let id = push(&mut web, &queue, json!({"data": 6}));
    web.get(&of("jobs")).expect(200);
    web.post(&format!("/jobs/{id}/ack"), json!({})).expect(200);
    assert_eq!(web.get(&of("metrics?type=completed")).expect(200)["data"]["meta"]["count"], 1);
    assert_eq!(web.post(&of("retry-completed"), json!({ "id": id })).expect(200)["count"], 1);
    bare(&mut web, &of("obliterate"));
    assert_eq!(web.get(&of("count")).expect(200)["count"], 0);
}

#[test]
fn the_limits_and_rules_of_a_queue_are_set_by_its_routes() {
    let (mut web, queue) = (web(), queue("limits"));
    let of = |what: &str| format!("/queues/{queue}/{what}");
    put(&mut web, &of("rate-limit"), &json!({"limit": 7, "duration": 2000}));
    // Clients call it either way.
    put(&mut web, &of("concurrency"), &json!({"concurrency": 3}));
    let limits = web.get(&of("limits")).expect(200)["data"]["limits"].clone();
    assert_eq!(limits["rateLimit"], json!({"max": 7, "duration": 2000}));
    assert_eq!(limits["concurrencyLimit"], 3);
    put(&mut web, &of("concurrency"), &json!({"limit": 4}));
    let limits = web.get(&of("limits")).expect(200)["data"]["limits"].clone();
    assert_eq!(limits["concurrencyLimit"], 4);
    web.delete(&of("rate-limit")).expect(200);
    web.delete(&of("concurrency")).expect(200);
    let limits = web.get(&of("limits")).expect(200)["data"]["limits"].clone();
    assert_eq!((&limits["rateLimit"], &limits["concurrencyLimit"]), (&Value::Null, &Value::Null));

    // The body is the settings, or has them under their name.
    put(&mut web, &of("dlq-config"), &json!({"maxEntries": 5}));
    put(&mut web, &of("dlq-config"), &json!({"config": {"autoRetry": true}}));
    let config = web.get(&of("dlq-config")).expect(200)["config"].clone();
    assert_eq!((&config["maxEntries"], &config["autoRetry"]), (&json!(5), &json!(true)));
    put(&mut web, &of("stall-config"), &json!({"maxStalls": 9}));
    assert_eq!(web.get(&of("stall-config")).expect(200)["config"]["maxStalls"], 9);
    let wrong = web.call("PUT", &of("stall-config"), &[], br#"{"maxStall": 9}"#).refused(400);
    assert_eq!(wrong, "Unknown field: maxStall; did you mean maxStalls?");
    let wrong = web.call("PUT", &of("stall-config"), &[], b"[1]").refused(400);
    assert_eq!(wrong, "body must be an object");
}

#[test]
fn a_dead_letter_queue_is_read_and_emptied_by_its_routes() {
    let (mut web, queue) = (web(), queue("dead"));
    let of = |what: &str| format!("/queues/{queue}/{what}");
    let ids: Vec<String> = (0..4).map(|n| push(&mut web, &queue, json!({ "data": n }))).collect();
    for id in &ids {
        web.get(&of("jobs")).expect(200);
        let fail = json!({"error": "broken", "unrecoverable": true});
        web.post(&format!("/jobs/{id}/fail"), fail).expect(200);
    }
    let page = web.get(&of("dlq?offset=1&limit=2&reason=explicit_fail")).expect(200);
    let entries = page["entries"].as_array().unwrap();
    let listed: Vec<&str> =
        entries.iter().map(|entry| entry["job"]["id"].as_str().unwrap()).collect();
    assert_eq!(listed, [&ids[1], &ids[2]]);
    let wrong = web.get(&of("dlq?ofset=1")).refused(400);
    assert_eq!(wrong, "Unknown query parameter: ofset; did you mean offset?");
    assert_eq!(web.get(&of("dlq/stats")).expect(200)["data"]["stats"]["total"], 4);
    assert_eq!(bare(&mut web, &of(&format!("dlq/{}/retry", ids[0])))["count"], 1);
    assert_eq!(state(&mut web, &ids[0]), "waiting");
    let removed = web.delete(&of(&format!("dlq/{}", ids[1]))).expect(200);
    assert_eq!(removed["data"]["removed"], true);
    let retried = web.post(&of("dlq/retry"), json!({"jobId": ids[2]})).expect(200);
    assert_eq!(retried["count"], 1);
    assert_eq!(bare(&mut web, &of("dlq/purge"))["count"], 1);
}

#[test]
fn groups_are_steered_by_their_routes() {
    let (mut web, queue) = (web(), queue("groups"));
    let of = |what: &str| format!("/queues/{queue}/groups{what}");
    push(&mut web, &queue, json!({"data": 1, "groupId": "a/b"}));
    assert_eq!(web.get(&of("/a%2Fb/count")).expect(200)["data"]["count"], 1);
    assert_eq!(bare(&mut web, &of("/a%2Fb/pause"))["data"]["changed"], true);
    assert_eq!(web.get(&of("?limit=10")).expect(200)["groups"][0]["paused"], true);
    assert_eq!(bare(&mut web, &of("/a%2Fb/resume"))["data"]["changed"], true);
    put(&mut web, &of("/a%2Fb/rate-limit"), &json!({"max": 5, "duration": 1000}));
    put(&mut web, &of("/a%2Fb/concurrency"), &json!({"concurrency": 2}));
    put(&mut web, &of("/a%2Fb/weight"), &json!({"weight": 3}));
    let group = web.get(&of("")).expect(200)["groups"][0].clone();
    assert_eq!((&group["concurrency"], &group["weight"]), (&json!(2), &json!(3)));
    assert_eq!(web.delete(&of("/a%2Fb/rate-limit")).expect(200)["data"]["removed"], 1);
    assert_eq!(web.delete(&of("/a%2Fb/concurrency")).expect(200)["data"]["removed"], 1);
}

#[test]
fn schedules_webhooks_and_workers_are_kept_by_their_routes() {
    let (mut web, queue) = (web(), queue("kept"));
    let name = format!("{queue}/nightly");
    let at = format!("/crons/{}", name.replace('/', "%2F"));
    let cron = json!({"name": name, "queue": queue, "data": 1, "schedule": "0 3 * * *"});
    web.post("/crons", cron).expect(200);
    assert_eq!(web.get(&at).expect(200)["cron"]["schedule"], "0 3 * * *");
    let crons = web.get("/crons").expect(200)["crons"].clone();
    assert!(crons.as_array().unwrap().iter().any(|cron| cron["name"] == name.as_str()));
    web.delete(&at).expect(200);
    assert_eq!(web.get(&at).refused(404), "Cron not found");

    let hook = json!({"url": "https://example.org/jobs", "events": ["job.failed"], "queue": queue});
    let hook = web.post("/webhooks", hook).expect(200)["data"]["webhookId"].clone();
    let hook = hook.as_str().unwrap();
    put(&mut web, &format!("/webhooks/{hook}/enabled"), &json!({"enabled": false}));
    let hooks = web.get("/webhooks").expect(200)["data"]["webhooks"].clone();
    let listed = hooks.as_array().unwrap().iter().find(|one| one["id"] == hook).unwrap();
    assert_eq!(listed["enabled"], false);
    web.delete(&format!("/webhooks/{hook}")).expect(200);
    assert_eq!(web.delete(&format!("/webhooks/{hook}")).refused(404), "Webhook not found");
}

#[test]
fn a_worker_that_registers_over_http_outlives_its_connection() {
    let (mut web, queue) = (web(), queue("worker"));
    let worker = json!({"name": "cron box", "queues": [queue]});
    let id = web.post("/workers", worker).expect(200)["data"]["workerId"].clone();
    let id = id.as_str().unwrap();
    let known = |web: &mut Http| {
        let workers = web.get("/workers").expect(200)["data"]["workers"].clone();
        workers.as_array().unwrap().iter().any(|worker| worker["id"] == id)
    };
    drop(web);
    let mut web = shared().web();
    assert!(known(&mut web));
    bare(&mut web, &format!("/workers/{id}/heartbeat"));
    web.delete(&format!("/workers/{id}")).expect(200);
    assert!(!known(&mut web));
    web.call("POST", &format!("/workers/{id}/heartbeat"), &[], b"").refused(404);
}

#[test]
fn an_alias_answers_what_its_command_does() {
    let (mut web, mut tcp, queue) = (web(), client(), queue("same"));
    push(&mut web, &queue, json!({"data": 1}));
    for (path, command) in [("counts", "GetJobCounts"), ("count", "Count"), ("paused", "IsPaused")]
    {
        let mut over_tcp = tcp.ok(command, json!({ "queue": queue }));
        over_tcp.as_object_mut().unwrap().remove("reqId");
        assert_eq!(web.get(&format!("/queues/{queue}/{path}")).expect(200), over_tcp);
    }
    assert_eq!(web.get("/ping").expect(200)["data"]["pong"], true);
    let wrong = tcp.refused("GetJobCounts", json!({"queue": "a b"}));
    assert_eq!(web.get("/queues/a%20b/counts").refused(400), wrong);
}

#[test]
fn an_empty_parameter_counts_as_absent_unless_it_is_a_text() {
    let (mut web, queue) = (web(), queue("empty"));
    let id = push(&mut web, &queue, json!({"data": 1}));
    let refused = web.get(&format!("/queues/{queue}/groups?after=")).refused(400);
    assert_eq!(refused, "after must be between 1 and 256 characters");
    let listed = web.get(&format!("/queues/{queue}/jobs/list?limit=&state=&asc=")).expect(200);
    assert_eq!(listed["jobs"][0]["id"], id);
    let pulled = web.get(&format!("/queues/{queue}/jobs?timeout=")).expect(200);
    assert_eq!(pulled["job"]["id"], id);
}

#[test]
fn a_queue_has_short_routes_of_its_own() {
    let (mut web, queue) = (web(), queue("short"));
    let id = push(&mut web, &queue, json!({"data": 1, "maxAttempts": 1}));
    let shown = web.get(&format!("/queues/{queue}")).expect(200);
    assert_eq!(
        (&shown["data"]["name"], &shown["data"]["counts"]["waiting"]),
        (&json!(queue), &json!(1))
    );
    web.get(&format!("/queues/{queue}/jobs")).expect(200);
    web.post(&format!("/jobs/{id}/fail"), json!({"error": "no"})).expect(200);
    assert_eq!(state(&mut web, &id), "failed");
    assert_eq!(bare(&mut web, &format!("/queues/{queue}/retry"))["count"], 1);
    assert_eq!(state(&mut web, &id), "waiting");
}

#[test]
fn a_job_lives_through_commands_by_their_names() {
    let (mut web, queue) = (web(), queue("by-name"));
    let mut call = |command: &str, fields: Value| web.post(&format!("/v1/{command}"), fields);
    let id = call("PUSH", json!({"queue": queue, "data": {"n": 1}})).expect(200)["id"].clone();
    let pulled = call("PULL", json!({"queue": queue, "timeout": 0})).expect(200);
    // As from any pull over HTTP: the job does not go back when the connection closes.
    assert_eq!((&pulled["job"]["id"], pulled["token"].is_string()), (&id, true));
    call("ACK", json!({"id": id, "token": pulled["token"], "result": 7})).expect(200);
    assert_eq!(call("GetResult", json!({"id": id})).expect(200)["result"], 7);
    assert_eq!(call("GetJob", json!({"id": "none"})).refused(404), "Job not found");
    let error = call("PUSH", json!({"queue": queue, "data": 1, "dealy": 5})).refused(400);
    assert_eq!(error, "Unknown field: dealy; did you mean delay?");
    assert_eq!(call("Pushh", json!({})).refused(400), "Unknown command: Pushh");
    let error = call("Subscribe", json!({})).refused(400);
    assert_eq!(error, "This command is about a connection over TCP or WebSocket");
    // A body is needed only where a field is.
    assert_eq!(bare(&mut web, "/v1/Ping")["data"]["pong"], true);
    web.call("POST", "/v1/Drain", &[], b"").refused(400);
    web.get("/v1/Ping").refused(404);
}
