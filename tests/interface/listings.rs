//! Lists and searches: by a cursor, in pages, over all shards.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::bulk_tasks::{figure, run};
use super::{client, queue};
use crate::support::{Client, Server, Start, until};

/// Fields of a request with more of them.
fn with(fields: &Json, more: &Json) -> Json {
    let mut fields = fields.clone();
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fields
}

/// All rows of a list, page by page, and how many pages there were.
fn all(client: &mut Client, cmd: &str, fields: &Json, rows: &str) -> (Vec<Json>, usize) {
    let (mut found, mut fields, mut pages) = (Vec::new(), fields.clone(), 0);
    loop {
        let reply = client.ok(cmd, fields.clone());
        let reply = if reply[rows].is_array() { reply } else { reply["data"].clone() };
        found.extend(reply[rows].as_array().unwrap().iter().cloned());
        pages += 1;
        if reply["next"].is_null() {
            return (found, pages);
        }
        fields["after"] = reply["next"].clone();
    }
}

fn ids(rows: &[Json]) -> Vec<String> {
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[allow(clippy::needless_pass_by_value, reason = "a literal in the call reads better")]
fn fill(client: &mut Client, queue: &str, jobs: Vec<Json>) -> Vec<String> {
    let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    reply["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

#[test]
fn jobs_are_listed_by_a_cursor_in_both_directions_and_each_is_shown_once() {
    let (mut c, q) = (client(), queue("cursor"));
    let made = fill(&mut c, &q, (0..250).map(|n| json!({"data": n})).collect());
    let page = json!({"queue": q, "limit": 100, "order": "asc"});
    let (rows, pages) = all(&mut c, "GetJobs", &page, "jobs");
    assert_eq!((ids(&rows), pages), (made.clone(), 3));
    let (rows, _) = all(&mut c, "GetJobs", &with(&page, &json!({"order": "desc"})), "jobs");
    assert_eq!(ids(&rows), made.iter().rev().cloned().collect::<Vec<_>>());
    // From the middle on, behind a job that is gone by then.
    c.ok("Cancel", json!({"id": made[100]}));
    let behind = with(&page, &json!({"after": made[100], "limit": 2}));
    assert_eq!(ids(c.ok("GetJobs", behind)["jobs"].as_array().unwrap()), made[101..103]);
    // The old form is as it was.
    let old = c.ok("GetJobs", json!({"queue": q, "limit": 2, "offset": 100}));
    assert!(old.get("next").is_none());
    assert_eq!(ids(old["jobs"].as_array().unwrap()), made[101..103]);
    assert_eq!(old["jobs"][0]["data"], 101);
}

/// People who move from another queue push what they had with the times that it had there.
#[test]
fn jobs_are_listed_by_the_time_that_is_shown_as_created_at_and_those_of_one_time_by_their_ids() {
    let (mut c, q) = (client(), queue("times"));
    let job = |timestamp: u64| json!({"data": timestamp, "timestamp": timestamp});
    let future_ms = 9_007_199_254_740_991;
    let times = [3000, future_ms, 1000, 2000, 1000];
    let mut jobs: Vec<Json> = times.into_iter().map(job).collect();
    jobs.insert(1, json!({"data": "now"}));
    let made = fill(&mut c, &q, jobs);
    let expected: Vec<String> = [3, 5, 4, 0, 1, 2].map(|place: usize| made[place].clone()).into();
    let backwards: Vec<String> = expected.iter().rev().cloned().collect();
    for (asc, order) in [(true, &expected), (false, &backwards)] {
        let listed = c.ok("GetJobs", json!({"queue": q, "asc": asc}));
        assert_eq!(ids(listed["jobs"].as_array().unwrap()), *order);
        let waiting = json!({"queue": q, "asc": asc, "state": "waiting", "offset": 2, "limit": 3});
        assert_eq!(ids(c.ok("GetJobs", waiting)["jobs"].as_array().unwrap()), order[2..5]);
        let page = json!({"queue": q, "limit": 2, "order": if asc { "asc" } else { "desc" }});
        let (rows, pages) = all(&mut c, "GetJobs", &page, "jobs");
        assert_eq!((ids(&rows), pages), (order.clone(), 3));
    }
    let span = json!({"queue": q, "limit": 9, "from": 1000, "to": 2000});
    assert_eq!(ids(c.ok("GetJobs", span)["jobs"].as_array().unwrap()), expected[..3]);
    // An action on all jobs leaves none out for the time that its client has given it.
    let remove = json!({"action": "remove", "queue": q, "filter": {}, "dryRun": true});
    assert_eq!(figure(&run(&mut c, remove), "matched"), 6);
    assert_eq!(c.ok("Drain", json!({"queue": q}))["count"], 6);
}

#[test]
fn a_page_costs_what_it_shows_wherever_it_begins() {
    let server = Start::new().env("SHARDS", 1).memory().start();
    let mut c = server.client();
    let count = 30_000;
    for _ in 0..count / 1000 {
        fill(&mut c, "long", vec![json!({"data": 1}); 1000]);
    }
    let middle = c.ok("GetJobs", json!({"queue": "long", "limit": 1, "offset": count / 2}));
    let middle = middle["jobs"][0]["id"].clone();
    for order in ["asc", "desc"] {
        for after in [Json::Null, middle.clone()] {
            let mut search = json!({"queue": "long", "limit": 100, "order": order});
            if !after.is_null() {
                search["after"] = after;
            }
            let reply = c.ok("Search", search);
            assert_eq!(reply["jobs"].as_array().unwrap().len(), 100);
            assert_eq!(reply["covered"]["jobs"], 100, "{reply}");
            assert_eq!(reply["covered"]["records"], 0);
        }
    }
}

#[test]
fn state_name_tag_group_and_time_select_the_jobs_of_a_page() {
    let (mut c, q) = (client(), queue("select"));
    let job = |n: usize| {
        let (name, tag) = (["mail", "sms"][n % 2], ["red", "blue"][n / 2 % 2]);
        let mut job = json!({"data": n, "name": name, "tags": [tag]});
        if n.is_multiple_of(3) {
            job["groupId"] = json!("g");
        }
        if n.is_multiple_of(5) {
            job["delay"] = json!(3_600_000);
        }
        job
    };
    let made = fill(&mut c, &q, (0..60).map(job).collect());
    let mut select = |more: Json, is: &dyn Fn(usize) -> bool| {
        let page = with(&json!({"queue": q, "limit": 7, "order": "asc"}), &more);
        let (rows, _) = all(&mut c, "GetJobs", &page, "jobs");
        let expected: Vec<String> = (0..60).filter(|&n| is(n)).map(|n| made[n].clone()).collect();
        assert_eq!(ids(&rows), expected, "{more}");
    };
    select(json!({"name": "sms"}), &|n| n % 2 == 1);
    select(json!({"tag": "blue"}), &|n| n / 2 % 2 == 1);
    select(json!({"group": "g"}), &|n| n % 3 == 0);
    select(json!({"state": "delayed"}), &|n| n % 5 == 0);
    select(
        json!({"state": ["delayed", "waiting"], "tag": "red", "name": "mail", "group": "g"}),
        &|n| n % 3 == 0 && n % 2 == 0 && n / 2 % 2 == 0,
    );
    select(json!({"from": 0, "to": 9_007_199_254_740_991_u64}), &|_| true);
    select(json!({"to": 5}), &|_| false);
    select(json!({"name": "no such"}), &|_| false);
    let first = c.ok("GetJob", json!({"id": made[0]}))["job"]["createdAt"].as_u64().unwrap();
    let last = c.ok("GetJob", json!({"id": made[59]}))["job"]["createdAt"].as_u64().unwrap();
    let page = json!({"queue": q, "limit": 100, "from": first, "to": last});
    assert_eq!(c.ok("GetJobs", page)["jobs"].as_array().unwrap().len(), 60);
}

#[test]
fn a_row_shows_the_fields_and_as_much_of_the_payload_as_is_asked_for() {
    let (mut c, q) = (client(), queue("rows"));
    let data = json!({"text": "x".repeat(5000), "n": 1});
    let id = c.push_with(&q, data.clone(), json!({"tags": ["a"], "priority": 7, "name": "n"}));
    let mut row = |more: Json| {
        c.ok("GetJobs", with(&json!({"queue": q, "order": "asc"}), &more))["jobs"][0].clone()
    };
    let plain = row(json!({}));
    assert_eq!(
        (&plain["id"], &plain["state"], &plain["priority"]),
        (&json!(id), &json!("waiting"), &json!(7))
    );
    assert!(plain["dataBytes"].as_u64() > Some(5000) && plain.get("data").is_none(), "{plain}");
    assert!(plain.get("tags").is_none() && plain.get("groupId").is_none());
    let some = row(json!({"fields": ["state", "tags"]}));
    assert_eq!(some, json!({"id": id, "state": "waiting", "tags": ["a"]}));
    let preview = row(json!({"data": "preview"}));
    assert_eq!(preview["dataPreview"].as_str().unwrap().chars().count(), 200);
    assert_eq!((&preview["dataCut"], &preview["tags"]), (&json!(true), &json!(["a"])));
    let full = row(json!({"data": "full"}));
    assert_eq!((&full["data"], &full["timeline"][0]["state"]), (&data, &json!("waiting")));
    let full = row(json!({"data": "full", "fields": ["name"]}));
    assert_eq!(full, json!({"id": id, "name": "n", "data": data}));
}

#[test]
fn failed_jobs_show_their_reason_and_records_are_read_from_the_disk() {
    let mut server = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 8).start();
    let mut c = server.client();
    let id = c.push_with("q", "first", json!({"maxAttempts": 1}));
    c.pull("q");
    c.ok("FAIL", json!({"id": id, "error": "it broke"}));
    // Later pushes displace its records from memory.
    for _ in 0..24 {
        c.push("q", "y".repeat(1 << 20));
    }
    server.kill();
    server.start();
    let mut c = server.client();
    let page = json!({"queue": "q", "state": "failed", "data": "preview"});
    let row = c.ok("GetJobs", page)["jobs"][0].clone();
    assert_eq!(
        (&row["failedReason"], &row["dataPreview"]),
        (&json!("it broke"), &json!("\"first\""))
    );
    let found = c.ok("Search", json!({"queue": "q", "text": "irs", "budgetMs": 60_000}));
    assert_eq!(ids(found["jobs"].as_array().unwrap()), [id]);
    assert_eq!(found["covered"]["records"], 25);
    assert_eq!(found["covered"]["partly"], 24, "payloads of a megabyte are searched in part");
}

#[test]
fn what_is_no_cursor_is_refused_and_offset_is_no_part_of_pages() {
    let (mut c, q) = (client(), queue("refused"));
    let unknown = "after must be a cursor of an earlier reply to the same request";
    for (cmd, fields) in [
        ("GetJobs", json!({"queue": q, "after": "custom-id"})),
        ("GetJobs", json!({"queue": q, "after": "s0"})),
        ("Search", json!({"queue": q, "after": "s0"})),
        ("Search", json!({"after": "0190163d-8694-739b-aea5-966c26f8a787"})),
        ("Search", json!({"after": "s0.1.1"})),
        ("Search", json!({"after": "s9999"})),
        ("ListQueues", json!({"after": "name"})),
    ] {
        assert_eq!(c.refused(cmd, fields.clone()), unknown, "{cmd} {fields}");
    }
    let both = c.refused("GetJobs", json!({"queue": q, "order": "asc", "offset": 1}));
    assert!(both.starts_with("offset must not be given with "), "{both}");
    assert_eq!(c.refused("Search", json!({"value": 1})), "path is required with value");
    let order = c.refused("GetJobs", json!({"queue": q, "order": "up"}));
    assert_eq!(order, "order must be one of asc, desc");
}

#[test]
fn a_search_finds_texts_and_values_of_one_queue_and_goes_on_where_it_ended() {
    let (mut c, q) = (client(), queue("search"));
    let job = |n: usize| json!({"data": {"user": {"id": n % 10, "name": format!("user {n}")}, "list": [n]}});
    let made = fill(&mut c, &q, (0..300).map(job).collect());
    let (rows, _) =
        all(&mut c, "Search", &json!({"queue": q, "text": "user 29", "limit": 4}), "jobs");
    let expected: Vec<String> = [29, 290, 291, 292, 293, 294, 295, 296, 297, 298, 299]
        .map(|n: usize| made[n].clone())
        .into();
    assert_eq!(ids(&rows), expected);
    let by = json!({"queue": q, "path": "user.id", "value": 3, "limit": 7, "order": "desc"});
    let (rows, pages) = all(&mut c, "Search", &by, "jobs");
    let expected: Vec<String> = (0..30).rev().map(|n| made[n * 10 + 3].clone()).collect();
    assert_eq!(ids(&rows), expected);
    assert!(pages >= 5, "{pages}");
    // A page that is full before its slice ends covers each job once all the same.
    let (mut fields, mut covered) = (by.clone(), 0);
    loop {
        let reply = c.ok("Search", fields.clone());
        covered += reply["covered"]["jobs"].as_u64().unwrap();
        if reply["next"].is_null() {
            break;
        }
        fields["after"] = reply["next"].clone();
    }
    assert_eq!(covered, 300);
    let as_text = c.ok("Search", json!({"queue": q, "path": "list.0", "value": "7"}));
    assert_eq!(ids(as_text["jobs"].as_array().unwrap()), [made[7].clone()]);
    let nothing = c.ok("Search", json!({"queue": q, "path": "user.name", "state": "failed"}));
    assert_eq!((&nothing["jobs"], &nothing["covered"]["done"]), (&json!([]), &json!(true)));
    let none = c.ok("Search", json!({"queue": q, "text": "user 29", "limit": 0}));
    assert_eq!(none["jobs"], json!([]));
}

/// Guards against a search that holds its shard until it has looked at everything.
#[test]
fn a_search_ends_with_its_budget_and_says_how_far_it_came() {
    const JOBS: usize = 10_000;
    let server = Start::new().env("SHARDS", 1).start();
    let mut c = server.client();
    let data = |n: usize| json!({"data": format!("{}{n}", "y".repeat(4000))});
    let mut ids = Vec::new();
    for first in (0..JOBS).step_by(1000) {
        ids.extend(fill(&mut c, "q", (first..first + 1000).map(data).collect()));
    }
    let (mut fields, mut found, mut pages) =
        (json!({"queue": "q", "text": "y9999", "budgetMs": 1}), Vec::new(), 0);
    let mut covered = 0;
    loop {
        let reply = c.ok("Search", fields.clone());
        found.extend(self::ids(reply["jobs"].as_array().unwrap()));
        covered += reply["covered"]["jobs"].as_u64().unwrap();
        pages += 1;
        assert_eq!(reply["covered"]["done"], json!(reply["next"].is_null()));
        if reply["next"].is_null() {
            break;
        }
        fields["after"] = reply["next"].clone();
    }
    assert_eq!((found, covered), (vec![ids[9999].clone()], JOBS as u64), "each job once");
    assert!(pages > 1, "40 MB in one millisecond");
}

/// Guards against searches that go on for clients that have left while records were read: those of clients that are there
/// take turns with them.
#[test]
fn a_search_ends_with_its_client_also_while_records_are_read() {
    const JOBS: usize = 20_000;
    let mut server = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 8).start();
    let mut c = server.client();
    for _ in 0..JOBS / 1000 {
        let jobs: Vec<Json> = (0..1000).map(|_| json!({"data": "y".repeat(1000)})).collect();
        c.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    }
    server.kill();
    server.start();
    let mut c = server.client();
    let figure = |c: &mut Client, name: &str| -> usize {
        let text = c.ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let line = text.as_str().unwrap().lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let reads = |c: &mut Client| figure(c, "corq_log_cold_reads_total ");
    let search = json!({"queue": "q", "text": "none has this", "budgetMs": 60_000});
    for _ in 0..20 {
        let (mut leaver, before) = (server.client(), reads(&mut c));
        leaver.send("Search", search.clone()).unwrap();
        until("it reads", || (reads(&mut c) > before).then_some(()));
        // With a reset: one that only sends no more gets its answer.
        socket2::SockRef::from(leaver.socket()).set_linger(Some(Duration::ZERO)).unwrap();
    }
    until("all but one have left", || (figure(&mut c, "corq_connections ") == 1).then_some(()));
    let before = reads(&mut c);
    assert_eq!(c.ok("Search", search)["covered"]["jobs"], JOBS);
    // Records that were being read as the others left come on top.
    let read = reads(&mut c) - before;
    assert!(read < 2 * JOBS, "{read} reads for one search of {JOBS} jobs");
}

#[test]
fn a_search_of_all_queues_covers_every_shard_by_its_cursor() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    let mut expected = BTreeSet::new();
    for n in 0..20 {
        for m in 0..10 {
            let id = c.push(&format!("everywhere-{n}"), json!({"text": format!("{n} and {m}")}));
            if m == 7 {
                expected.insert(id);
            }
        }
    }
    let (mut fields, mut found, mut jobs) = (json!({"text": "and 7", "limit": 3}), Vec::new(), 0);
    let mut shards = BTreeSet::new();
    loop {
        let reply = c.ok("Search", fields.clone());
        found.extend(ids(reply["jobs"].as_array().unwrap()));
        jobs += reply["covered"]["jobs"].as_u64().unwrap();
        shards.insert(reply["covered"]["shard"].as_u64().unwrap());
        assert_eq!(reply["covered"]["done"], json!(reply["next"].is_null()));
        if reply["next"].is_null() {
            break;
        }
        fields["after"] = reply["next"].clone();
    }
    assert_eq!((found.len(), found.iter().cloned().collect()), (20, expected));
    // Jobs that a full page has passed by are looked at again by the next.
    assert!(jobs >= 200 && shards.len() == 2, "{jobs} {shards:?}");
}

#[test]
fn queues_are_listed_in_sorted_pages_over_all_shards() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    for n in 0..25 {
        fill(&mut c, &format!("mail-{n:02}"), vec![json!({"data": 1}); n + 1]);
    }
    c.push("other", 1);
    let names = |rows: &[Json]| -> Vec<String> {
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let by_name = json!({"prefix": "mail-", "limit": 10});
    let (rows, pages) = all(&mut c, "ListQueues", &by_name, "queues");
    let sorted: Vec<String> = (0..25).map(|n| format!("mail-{n:02}")).collect();
    assert_eq!((names(&rows), pages), (sorted.clone(), 3));
    let by_size = json!({"prefix": "mail-", "limit": 7, "sort": "waiting", "fields": ["waiting"]});
    let (rows, _) = all(&mut c, "ListQueues", &by_size, "queues");
    assert_eq!(names(&rows), sorted.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(rows[0], json!({"name": "mail-24", "waiting": 25}));
    let smallest = c.ok("ListQueues", with(&by_size, &json!({"order": "asc", "limit": 1})));
    assert_eq!(names(smallest["queues"].as_array().unwrap()), ["mail-00"]);
    // A figure of one list means nothing in another.
    let page = with(&by_size, &json!({"after": c.ok("ListQueues", by_size.clone())["next"]}));
    c.ok("ListQueues", with(&page, &json!({"limit": 3, "fields": ["total"]})));
    for other in [
        json!({"sort": "name"}),
        json!({"sort": "total"}),
        json!({"order": "asc"}),
        json!({"prefix": "mail"}),
        json!({"prefix": null}),
    ] {
        let error = c.refused("ListQueues", with(&page, &other));
        assert!(error.contains("an earlier reply to the same request"), "{other}: {error}");
    }
    // The old form has all of them, unsorted, and no cursor.
    let old = c.ok("ListQueues", json!({}));
    assert_eq!(old["queues"].as_array().unwrap().len(), 26);
    assert!(old.get("next").is_none());
}

#[test]
fn a_row_of_the_queues_has_counts_rates_limits_and_the_oldest_waiting_job() {
    let (mut c, q) = (client(), queue("figures"));
    let first = c.push(&q, 1);
    let second = c.push(&q, 2);
    c.push_with(&q, 3, json!({"delay": 3_600_000}));
    assert_eq!(c.pull(&q)["id"], json!(first));
    c.ok("ACK", json!({"id": first}));
    c.ok("RateLimit", json!({"queue": q, "limit": 50, "duration": 2000}));
    c.ok("SetConcurrency", json!({"queue": q, "limit": 9}));
    c.ok("Pause", json!({"queue": q}));
    let row = c.ok("ListQueues", json!({"prefix": q, "limit": 1}))["queues"][0].clone();
    let figure = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("no {name} in {row}"));
    assert_eq!(
        (figure("waiting"), figure("delayed"), figure("completed"), figure("total")),
        (1, 1, 1, 3)
    );
    assert_eq!((&row["paused"], &row["concurrencyLimit"]), (&json!(true), &json!(9)));
    assert_eq!(row["rateLimit"], json!({"max": 50, "duration": 2000}));
    assert!(row["completedPerMinute"].as_f64() > Some(0.0), "{row}");
    assert!(row["waitP99"].as_u64() >= Some(100), "{row}");
    let due = c.ok("GetJob", json!({"id": second}))["job"]["runAt"].clone();
    assert_eq!(row["oldestWaiting"], due);
}

#[test]
fn workers_are_listed_by_queue_and_cursor_with_their_jobs() {
    let server = Server::start_default();
    let mut c = server.client();
    let mut others: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for (n, other) in others.iter_mut().enumerate() {
        let queues = if n == 4 { json!(["b"]) } else { json!(["a", "b"]) };
        other.ok(
            "RegisterWorker",
            json!({"name": "w", "queues": queues, "workerId": format!("w{n}")}),
        );
    }
    let id = c.push("a", 1);
    assert_eq!(others[2].pull("a")["id"], json!(id));
    let names = |rows: &[Json]| -> Vec<String> { ids(rows) };
    let (rows, pages) = all(&mut c, "ListWorkers", &json!({"limit": 2}), "workers");
    assert_eq!(
        (names(&rows), pages),
        (vec!["w0".into(), "w1".into(), "w2".into(), "w3".into(), "w4".into()], 3)
    );
    assert_eq!(rows[2]["jobs"], json!([{"id": id, "queue": "a"}]));
    assert_eq!((&rows[1]["jobs"], &rows[2]["activeJobs"]), (&json!([]), &json!(1)));
    let (rows, _) = all(&mut c, "ListWorkers", &json!({"queue": "a"}), "workers");
    assert_eq!(names(&rows), ["w0", "w1", "w2", "w3"]);
    let behind = c.ok("ListWorkers", json!({"queue": "b", "after": "w2"}))["data"].clone();
    assert_eq!(names(behind["workers"].as_array().unwrap()), ["w3", "w4"]);
    assert_eq!(behind["next"], Json::Null);
    let old = c.ok("ListWorkers", json!({}))["data"].clone();
    assert!(old.get("next").is_none() && old["workers"][0].get("jobs").is_none());
    assert_eq!(old["stats"]["total"], 5);
}

#[test]
fn a_flow_is_shown_level_by_level_over_all_shards_up_to_a_depth_and_a_number() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    let part = |id: &str, queue: &str, parent: &str, children: &[&str]| {
        let mut input = json!({"data": 1});
        if !parent.is_empty() {
            input["parentId"] = json!(parent);
        }
        if !children.is_empty() {
            input["childrenIds"] = json!(children);
            input["dependsOn"] = json!(children);
        }
        json!({"id": id, "queue": queue, "input": input})
    };
    let jobs = [
        part("root", "q0", "", &["left", "right"]),
        part("left", "q1", "root", &["leaf-1", "leaf-2"]),
        part("right", "q2", "root", &["leaf-3"]),
        part("leaf-1", "q3", "left", &[]),
        part("leaf-2", "q4", "left", &[]),
        part("leaf-3", "q5", "right", &[]),
    ];
    c.ok("PUSHF", json!({"jobs": jobs}));
    c.pull("q4");
    let flow = c.ok("GetFlow", json!({"id": "root"}))["data"].clone();
    let rows = flow["jobs"].as_array().unwrap().clone();
    assert_eq!(ids(&rows), ["root", "left", "right", "leaf-1", "leaf-2", "leaf-3"]);
    assert_eq!(flow["truncated"], false);
    let of = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap().clone();
    assert_eq!(
        (&of("leaf-2")["state"], &of("leaf-2")["queue"], &of("leaf-2")["depth"]),
        (&json!("active"), &json!("q4"), &json!(2))
    );
    assert_eq!((&of("leaf-3")["parentId"], &of("left")["children"]), (&json!("right"), &json!(2)));
    assert_eq!(
        (&of("root")["state"], &of("root")["parentId"]),
        (&json!("waiting-children"), &Json::Null)
    );
    for (fields, count) in
        [(json!({"depth": 1}), 3), (json!({"limit": 4}), 4), (json!({"depth": 0}), 1)]
    {
        let cut = c.ok("GetFlow", with(&json!({"id": "root"}), &fields))["data"].clone();
        assert_eq!(
            (cut["jobs"].as_array().unwrap().len(), &cut["truncated"]),
            (count, &json!(true)),
            "{fields}"
        );
    }
    // A child that was completed and forgotten is known to have been.
    c.ok("ACK", json!({"id": "leaf-2", "removeOnComplete": true}));
    until("the leaf is forgotten", || {
        let flow = c.ok("GetFlow", json!({"id": "root"}))["data"]["jobs"].clone();
        let leaf = flow.as_array().unwrap().iter().find(|row| row["id"] == "leaf-2")?.clone();
        (leaf["state"] == "completed").then_some(())
    });
    assert_eq!(c.refused("GetFlow", json!({"id": "nothing"})), "Job not found");
}

/// A few bytes ask for a list that is long in memory before any of it is sent.
#[test]
fn lists_that_many_ask_for_at_once_are_whole_and_begun_a_few_at_a_time() {
    const CONNECTIONS: usize = 60;
    const BEGUN_BYTES_MAX: u64 = 8 << 20;
    const RESERVE_BYTES: u64 = BEGUN_BYTES_MAX / 4;
    let server = Start::new().env("SHARDS", 2).env("CLIENT_MEMORY_MB", 2048).start();
    let mut client = server.client();
    let children: Vec<String> =
        (0..300).map(|n| format!("child-{n}-{}", "c".repeat(200))).collect();
    let child = |id: &String| {
        let input = json!({"data": 1, "parentId": "root"});
        json!({"id": id, "queue": format!("kids-{}", id.len() % 7), "input": input})
    };
    let input = json!({"data": 1, "dependsOn": children, "childrenIds": children});
    let root = json!({"id": "root", "queue": "whole", "input": input});
    let jobs: Vec<Json> = children.iter().map(child).chain([root]).collect();
    client.ok("PUSHF", json!({"jobs": jobs}));
    for number in 0..100 {
        let name = format!("{number}-{}", "n".repeat(200));
        client.push(&format!("queue-{number}"), number);
        client.ok("RegisterWorker", json!({"name": name, "queues": ["whole"]}));
        let cron = json!({"name": name, "queue": "timed", "data": 1, "schedule": "@yearly"});
        client.ok("Cron", cron);
    }
    let asks = [
        ("ListWorkers", json!({}), "workers"),
        ("ListQueues", json!({}), "queues"),
        ("DashboardQueues", json!({"limit": 200}), "queues"),
        ("GetFlow", json!({"id": "root", "limit": 1000}), "jobs"),
        ("CronList", json!({}), "crons"),
    ];
    let rows = |reply: &Json, name: &str| {
        assert_eq!(reply["ok"], true, "{reply}");
        let list = if reply[name].is_array() { &reply[name] } else { &reply["data"][name] };
        list.as_array().unwrap_or_else(|| panic!("{name} in {reply}")).len()
    };
    let expected = asks.clone().map(|(cmd, fields, name)| rows(&client.ok(cmd, fields), name));
    assert_eq!((expected[0], expected[3], expected[4]), (100, 301, 100));
    assert!(expected[1] > 100 && expected[2] > 100, "{expected:?}");

    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    let sent: Vec<Vec<String>> = clients
        .iter_mut()
        .map(|client| asks.iter().map(|(cmd, fields, _)| client.send(cmd, fields.clone()).unwrap()))
        .map(Iterator::collect)
        .collect();
    for (client, sent) in clients.iter_mut().zip(&sent) {
        for _ in &asks {
            let reply = client.recv().unwrap();
            let place = sent.iter().position(|id| reply["reqId"] == **id).unwrap();
            assert_eq!(rows(&reply, asks[place].2), expected[place], "{}", asks[place].0);
        }
    }
    let metric = |client: &mut Client, name: &str| -> u64 {
        let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
        let line = text.as_str().unwrap().lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    // A list takes little beyond its reserve here.
    let most = 2 * (BEGUN_BYTES_MAX + RESERVE_BYTES);
    let peak = metric(&mut client, "corq_replies_begun_peak_bytes ");
    assert!((RESERVE_BYTES..most).contains(&peak), "{peak}");
    until("none is being written", || {
        (metric(&mut client, "corq_client_memory_bytes{account=\"lists\"} ") == 0).then_some(())
    });
}
