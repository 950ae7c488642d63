//! Routes for all that pages show: jobs explained and found, families, figures, groups and dashboards.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::Http;
use crate::{client, queue, shared};

const OPENAPI: &str = include_str!("../../docs/openapi.yaml");

fn web() -> Http {
    shared().web()
}

/// The answer to a GET, which is what the command answers over TCP but for the number of its request.
fn same(web: &mut Http, path: &str, command: &str, fields: &Value) -> Value {
    let mut over_tcp = client().ok(command, fields.clone());
    over_tcp.as_object_mut().unwrap().remove("reqId");
    let answer = web.get(path).expect(200);
    assert_eq!(answer, over_tcp, "{path}");
    answer
}

#[test]
fn a_job_is_explained_and_shown_in_full_by_its_routes() {
    let (mut web, queue) = (web(), queue("explained"));
    let id = web.push(&queue, json!({"data": {"n": 1}, "delay": 3_600_000}));
    let told = web.get(&format!("/jobs/{id}/explain")).expect(200)["data"].clone();
    assert_eq!((&told["id"], &told["state"]), (&json!(id), &json!("delayed")));
    assert_eq!(told["reasons"][0]["cause"], "delay");
    let detail = same(&mut web, &format!("/jobs/{id}/detail"), "GetJobDetail", &json!({"id": id}));
    assert_eq!(detail["data"]["job"]["data"], json!({"n": 1}));
    for what in ["explain", "detail"] {
        assert_eq!(web.get(&format!("/jobs/none-such/{what}")).refused(404), "Job not found");
    }
}

#[test]
fn a_flow_is_read_level_by_level_over_http() {
    let (mut web, queue) = (web(), queue("levels"));
    let names = ["top", "middle", "bottom"].map(|name| format!("{queue}-{name}"));
    let [top, middle, bottom] = &names;
    let job = |id: &str, parent: Option<&str>, child: Option<&str>| {
        let children: Vec<&str> = child.into_iter().collect();
        let input =
            json!({"data": 1, "parentId": parent, "childrenIds": children, "dependsOn": children});
        json!({"id": id, "queue": queue, "input": input})
    };
    let jobs = json!({"jobs": [
        job(bottom, Some(middle), None), job(middle, Some(top), Some(bottom)), job(top, None, Some(middle)),
    ]});
    web.post("/flows", jobs).expect(200);
    let flow = same(&mut web, &format!("/jobs/{top}/flow"), "GetFlow", &json!({"id": top}));
    let ids: Vec<&Value> =
        flow["data"]["jobs"].as_array().unwrap().iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, [top, middle, bottom]);
    let cut = web.get(&format!("/jobs/{top}/flow?depth=1")).expect(200)["data"].clone();
    assert_eq!((cut["jobs"].as_array().unwrap().len(), &cut["truncated"]), (2, &json!(true)));
    let refused = web.get(&format!("/jobs/{top}/flow?depth=101")).refused(400);
    assert_eq!(refused, "depth must be between 0 and 100");
}

#[test]
fn a_job_gets_a_parent_and_loses_it_over_http() {
    let (mut web, queue) = (web(), queue("linked"));
    let parent = web.push(&queue, json!({"data": 1, "delay": 3_600_000}));
    let child = web.push(&queue, json!({"data": 2}));
    let link = format!("/jobs/{child}/parent/{parent}");
    web.call("PUT", &link, &[], b"").expect(200);
    let record = web.get(&format!("/jobs/{child}")).expect(200)["job"].clone();
    assert_eq!(record["parentId"], parent);
    web.delete(&format!("/jobs/{child}/parent")).expect(200);
    let record = web.get(&format!("/jobs/{child}")).expect(200)["job"].clone();
    assert_eq!(record["parentId"], Value::Null);
    let again = web.delete(&format!("/jobs/{child}/parent")).refused(400);
    assert_eq!(again, format!("Job {child} has no parent"));
    let missing = web.call("PUT", &format!("/jobs/{child}/parent/none-such"), &[], b"");
    assert_eq!(missing.refused(404), "Parent job not found: none-such");
}

/// All jobs of a list, page by page.
fn pages(web: &mut Http, path: &str) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = web.get(&format!("{path}{after}")).expect(200);
        found.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].clone()));
        let Some(next) = page["next"].as_str() else { return found };
        after = format!("&after={next}");
    }
}

#[test]
fn jobs_are_searched_and_listed_by_a_cursor_over_http() {
    let (mut web, queue) = (web(), queue("found"));
    let job = |n: usize| json!({"data": {"n": n % 3, "text": format!("{queue} {n}")}, "name": "mail", "priority": n});
    let jobs: Vec<Value> = (0..9).map(job).collect();
    let path = format!("/queues/{queue}/jobs/bulk");
    let ids = web.post(&path, json!({ "jobs": jobs })).expect(200)["ids"].clone();
    let ids = ids.as_array().unwrap();
    let every_third: Vec<Value> = ids.iter().skip(1).step_by(3).cloned().collect();
    // A value in a query is a text, and means the number as well.
    let of_queue = format!("/queues/{queue}/search?path=n&value=1&limit=2&budgetMs=60000");
    assert_eq!(pages(&mut web, &of_queue), every_third);
    let backwards: Vec<Value> = ids.iter().rev().cloned().collect();
    let listed = format!("/queues/{queue}/jobs/list?order=desc&limit=4&name=mail&state=waiting");
    assert_eq!(pages(&mut web, &listed), backwards);
    let row = web.get(&format!("{listed}&fields=priority,name&data=preview")).expect(200);
    let row = row["jobs"][0].as_object().unwrap();
    assert_eq!((&row["id"], &row["priority"], &row["name"]), (&ids[8], &json!(8), &json!("mail")));
    assert!(row.contains_key("dataPreview") && !row.contains_key("state"), "{row:?}");
    // Over all queues, of whichever shard.
    let everywhere = format!("/search?text={queue}%207&limit=3&budgetMs=60000");
    assert_eq!(pages(&mut web, &everywhere), [ids[7].clone()]);
    let refused = web.get(&format!("/queues/{queue}/search?value=1")).refused(400);
    assert_eq!(refused, "path is required with value");
}

#[test]
fn queues_and_workers_are_listed_in_pages_over_http() {
    let (mut web, queue) = (web(), queue("paged"));
    let names: Vec<String> = (0..5).map(|n| format!("{queue}-{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        (0..=n).for_each(|_| _ = web.push(name, json!({"data": 1})));
    }
    let mut list = |after: &str| {
        let path = format!("/queues?prefix={queue}-&sort=waiting&limit=3&fields=waiting{after}");
        let page = web.get(&path).expect(200);
        let rows = page["queues"].as_array().unwrap();
        let rows: Vec<(String, u64)> = rows
            .iter()
            .map(|row| (row["name"].as_str().unwrap().into(), row["waiting"].as_u64().unwrap()))
            .collect();
        (rows, page["next"].as_str().map(|next| format!("&after={next}")))
    };
    let (mut rows, next) = list("");
    assert_eq!(rows.len(), 3);
    let (rest, end) = list(&next.unwrap());
    rows.extend(rest);
    let expected: Vec<(String, u64)> =
        (0..5).rev().map(|n| (names[n].clone(), n as u64 + 1)).collect();
    assert_eq!((rows, end), (expected, None));

    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        let worker =
            json!({"name": name, "queues": [queue], "workerId": format!("{queue}-{name}")});
        let id = web.post("/workers", worker).expect(200)["data"]["workerId"].clone();
        ids.push(id);
    }
    web.post("/workers", json!({"name": "other", "queues": ["elsewhere"]})).expect(200);
    let page = web.get(&format!("/queues/{queue}/workers?limit=2")).expect(200)["data"].clone();
    let next = page["next"].as_str().unwrap();
    let rest = web.get(&format!("/queues/{queue}/workers?after={next}")).expect(200);
    let mut listed = page["workers"].as_array().unwrap().clone();
    listed.extend(rest["data"]["workers"].as_array().unwrap().iter().cloned());
    assert_eq!(listed.iter().map(|worker| worker["id"].clone()).collect::<Vec<_>>(), ids);
}

#[test]
fn a_group_is_read_and_held_by_its_routes() {
    let (mut web, queue) = (web(), queue("group"));
    web.push(&queue, json!({"data": 1, "groupId": "g"}));
    web.push(&queue, json!({"data": 2, "groupId": "g"}));
    web.pull(&queue);
    let mut of =
        |what: &str| web.get(&format!("/queues/{queue}/groups/{what}")).expect(200)["data"].clone();
    assert_eq!(of("count"), json!({"count": 1}));
    assert_eq!(of("g/active"), json!({"count": 1}));
    assert_eq!(of("g/paused"), json!({"paused": false}));
    assert_eq!(of("g/rate-limit"), json!({"limit": null}));
    assert_eq!(of("g/concurrency"), json!({"concurrency": null}));
    assert_eq!(of("g/weight"), json!({"weight": 1}));
    assert_eq!(of("g/rate-limit-ttl?maxJobs=1"), json!({"ttl": -2}));
    let hold = format!("/queues/{queue}/groups/g/hold");
    web.post(&hold, json!({"duration": 3_600_000})).expect(200);
    let group = web.get(&format!("/queues/{queue}/groups")).expect(200)["groups"][0].clone();
    assert!(group["heldFor"].as_u64() > Some(0), "{group}");
    web.call("POST", &hold, &[], b"").refused(400);
}

#[test]
fn figures_and_dashboards_have_routes() {
    let (mut web, queue) = (web(), queue("figures"));
    web.push(&queue, json!({"data": 1}));
    let (job, _) = web.pull(&queue);
    web.post(&format!("/jobs/{}/ack", job["id"].as_str().unwrap()), json!({})).expect(200);
    let sum =
        |series: &Value| series.as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    for path in [format!("/queues/{queue}/history?"), format!("/history?queue={queue}&")] {
        let told = web.get(&format!("{path}series=pushed,completed&points=1440")).expect(200);
        let series = &told["data"]["series"];
        assert_eq!((sum(&series["pushed"]), sum(&series["completed"])), (1, 1), "{told}");
        assert_eq!(series.as_object().unwrap().len(), 2);
    }
    for path in [format!("/queues/{queue}/heatmap?"), format!("/heatmap?queue={queue}&")] {
        let told = web.get(&format!("{path}points=1440")).expect(200)["data"].clone();
        let columns = told["columns"].as_array().unwrap().iter().filter(|column| column.is_array());
        assert_eq!(columns.map(sum).sum::<u64>(), 1);
    }
    let both = web.get(&format!("/queues/{queue}/heatmap?shard=0")).refused(400);
    assert_eq!(both, "queue and shard must not both be given");
    assert_eq!(web.get("/heatmap?shard=0&points=1").expect(200)["data"]["shard"], 0);
    let rows = web.get("/shards").expect(200)["data"]["shards"].clone();
    assert!(rows.as_array().unwrap().iter().all(|row| row["load"].is_number()), "{rows}");
    assert_eq!(web.get("/storage").expect(200)["data"]["diskFull"], false);
    let found = web.get("/doctor").expect(200)["data"]["checks"].clone();
    assert!(found.as_array().unwrap().iter().any(|one| one["check"] == "kernel"), "{found}");
    let settings = web.get("/settings").expect(200)["data"]["settings"].clone();
    let port = settings.as_array().unwrap().iter().find(|one| one["name"] == "TCP_PORT").unwrap();
    assert!(port["source"].is_string() && port["default"] == "6789", "{port}");
    let whole = web.get("/dashboard").expect(200)["data"].clone();
    assert!(whole["stats"]["totalPushed"].as_u64() >= Some(1), "{whole}");
    let queues = web.get("/dashboard/queues").expect(200)["data"]["queues"].clone();
    assert!(queues.as_array().unwrap().iter().any(|one| one["name"] == queue.as_str()));
    let summary = web.get("/queues/summary").expect(200)["data"]["queues"].clone();
    assert!(summary.as_array().unwrap().iter().any(|one| one["name"] == queue.as_str()));
    let path = format!("/dashboard/queues/{queue}");
    let one = web.get(&path).expect(200)["data"].clone();
    assert_eq!((&one["counts"]["completed"], one.get("jobs")), (&json!(1), None));
    let one = web.get(&format!("{path}?includeJobs=true&jobsLimit=1")).expect(200);
    assert!(one["data"]["jobs"].is_object(), "{one}");
    web.call("POST", "/memory/compact", &[], b"").expect(200);
}

/// Every parameter and field of every route that is a command, written with a letter too much.
#[test]
fn every_route_refuses_a_misspelt_name_with_the_nearest_known_one() {
    let document: Value = serde_saphyr::from_str(OPENAPI).unwrap();
    let mut web = web();
    let mut commands = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(command) = operation["x-command"].as_str() else { continue };
            // Values in the path are of no account: what is misspelt is seen before.
            let path: String = path
                .split('/')
                .map(|segment| if segment.starts_with('{') { "misspelt" } else { segment })
                .collect::<Vec<_>>()
                .join("/");
            let method = method.to_uppercase();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = format!("{}x", parameter["name"].as_str().unwrap());
                let answer = web.call(&method, &format!("{path}?{name}=1"), &[], b"");
                assert_eq!(answer.status, 400, "{command} {name}");
                let refused = answer.refused(400);
                let begins = format!("Unknown query parameter: {name}; did you mean ");
                assert!(refused.starts_with(&begins), "{command}: {refused}");
                commands.insert(command);
            }
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            for name in schema["properties"].as_object().into_iter().flat_map(|all| all.keys()) {
                let name = format!("{name}x");
                let body = json!({name.clone(): 1}).to_string();
                let answer = web.call(&method, &path, &[], body.as_bytes());
                assert_eq!(answer.status, 400, "{command} {name}");
                let refused = answer.refused(400);
                let begins = format!("Unknown field: {name}; did you mean ");
                assert!(refused.starts_with(&begins), "{command}: {refused}");
                commands.insert(command);
            }
        }
    }
    assert!(commands.len() > 50, "{commands:?}");
}
