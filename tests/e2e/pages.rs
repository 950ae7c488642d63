//! Lists that take several pages of every shard. The fear: a row that is missing, or stands there twice.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Client, Start, until};

/// Several pages, of each of two shards.
const MANY: usize = 2400;

fn name(n: usize) -> String {
    format!("name-{n:05}")
}

/// Sends commands some at a time, and waits for their answers.
fn all(client: &mut Client, command: &str, fields: impl Fn(usize) -> Value) {
    for first in (0..MANY).step_by(40) {
        for n in first..first + 40 {
            client.send(command, fields(n)).unwrap();
        }
        for _ in 0..40 {
            let reply = client.recv().unwrap();
            assert_eq!(reply["ok"], json!(true), "{reply}");
        }
    }
}

fn names(rows: &Value, key: &str) -> Vec<String> {
    let rows = rows.as_array().unwrap();
    rows.iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
}

fn assert_all(rows: &Value, key: &str) {
    let found = names(rows, key);
    assert_eq!(found.len(), MANY);
    let found: BTreeSet<String> = found.into_iter().collect();
    assert!(found.iter().eq((0..MANY).map(name).collect::<BTreeSet<_>>().iter()));
}

#[test]
fn lists_of_many_pages_have_every_row_once() {
    let server = Start::new().start();
    let mut client = server.client();
    all(&mut client, "PUSH", |n| json!({"queue": name(n), "data": 1}));
    all(
        &mut client,
        "Cron",
        |n| json!({"name": name(n), "queue": "crons", "data": 1, "schedule": "@yearly"}),
    );
    all(
        &mut client,
        "RegisterWorker",
        |n| json!({"name": "w", "queues": ["worked"], "workerId": name(n)}),
    );
    let pull = json!({"queue": name(0), "owner": "w"});
    assert!(client.ok("PULL", pull)["job"].is_object());
    let listed = client.ok("ListQueues", json!({}))["queues"].clone();
    assert_all(&listed, "name");
    let worked = listed.as_array().unwrap().iter().find(|row| row["name"] == name(0)).unwrap();
    assert_eq!((&worked["active"], &worked["waiting"]), (&json!(1), &json!(0)));
    assert_all(&client.ok("CronList", json!({}))["crons"], "name");
    let data = client.ok("ListWorkers", json!({}))["data"].clone();
    assert_all(&data["workers"], "id");
    assert!(names(&data["workers"], "id").is_sorted());
    let stats = json!({
        "total": MANY, "active": MANY, "activeJobs": 1, "totalProcessed": 0, "totalFailed": 0,
        "concurrencySlots": MANY
    });
    assert_eq!(data["stats"], stats, "all of them share one connection, which counts once");
    let text = server.web().get("/prometheus").text().to_owned();
    for family in ["corq_queue_jobs_waiting{", "corq_queue_jobs_dlq{"] {
        let lines: BTreeSet<&str> = text.lines().filter(|it| it.starts_with(family)).collect();
        assert_eq!(lines.len(), MANY);
    }
    let last = text.rfind("corq_queue_jobs_waiting{").unwrap();
    assert!(last < text.find("# TYPE corq_queue_jobs_delayed ").unwrap(), "by family");
}

#[test]
fn no_more_than_ten_thousand_queues_are_listed_in_the_metrics() {
    const MOST: usize = 10_000;
    let server = Start::new().start();
    let mut client = server.client();
    for first in (0..MOST + 50).step_by(50) {
        for n in first..first + 50 {
            client.send("PUSH", json!({"queue": name(n), "data": 1})).unwrap();
        }
        (0..50).for_each(|_| assert_eq!(client.recv().unwrap()["ok"], json!(true)));
    }
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let lines = text.as_str().unwrap().lines();
    assert_eq!(lines.filter(|it| it.starts_with("corq_queue_jobs_active{")).count(), MOST);
}

#[test]
fn values_of_many_children_are_all_there_wherever_their_records_are() {
    const CHILDREN: usize = 1500;
    // With this little memory, most of the records have to be read from the disk.
    let server = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4).start();
    let mut client = server.client();
    let ids: Vec<String> = (0..CHILDREN).map(name).collect();
    let whole = json!({"data": 1, "dependsOn": ids, "childrenIds": ids});
    let mut jobs = vec![json!({"id": "whole", "queue": "whole", "input": whole})];
    let part = json!({"data": 1, "parentId": "whole"});
    jobs.extend(ids.iter().map(|id| json!({"id": id, "queue": "part", "input": part})));
    client.ok("PUSHF", json!({"jobs": jobs}));
    let value = |id: &str| json!(format!("{id} {}", "v".repeat(8000)));
    for _ in 0..CHILDREN / 500 {
        let pulled = client.ok("PULLB", json!({"queue": "part", "count": 500}))["jobs"].clone();
        let ids = names(&pulled, "id");
        let results: Vec<Value> = ids.iter().map(|id| value(id)).collect();
        client.ok("ACKB", json!({"ids": ids, "results": results}));
    }
    until("the parent to go on", || (client.state("whole") == "waiting").then_some(()));
    for _ in 0..2 {
        let reply = client.ok("GetChildrenValues", json!({"id": "whole"}));
        let values = reply["data"]["values"].as_object().unwrap();
        assert_eq!(values.len(), CHILDREN);
        assert!(ids.iter().all(|id| values[&format!("part:{id}")] == value(id)));
    }
}
