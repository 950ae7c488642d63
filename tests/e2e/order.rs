//! The order of delivery. The fear: a job that is overtaken for ever, or two orders that mix.

use serde_json::{Value, json};

use crate::{client, queue};

/// Pulls all that waits, in batches of `count`, and answers the payloads in their order.
fn drain(client: &mut crate::Client, queue: &str, count: u32) -> Vec<Value> {
    let mut payloads = Vec::new();
    for _ in 0..10_000 {
        let reply = client.ok("PULLB", json!({"queue": queue, "count": count}));
        let jobs = reply["jobs"].as_array().unwrap();
        if jobs.is_empty() {
            return payloads;
        }
        payloads.extend(jobs.iter().map(|job| job["data"].clone()));
    }
    panic!("the queue never ends");
}

#[test]
fn jobs_leave_in_the_order_in_which_they_came() {
    let (mut client, queue) = (client(), queue("fifo"));
    for n in 0..50 {
        client.push(&queue, n);
    }
    let jobs: Vec<Value> = (50..100).map(|n| json!({"data": n})).collect();
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let expected: Vec<Value> = (0..100).map(Value::from).collect();
    assert_eq!(drain(&mut client, &queue, 7), expected);
}

#[test]
fn higher_priorities_go_first_and_equal_ones_keep_their_order() {
    let (mut client, queue) = (client(), queue("priority"));
    let pushed = [(0, 5), (1, -3), (2, 5), (3, 0), (4, 1_000_000), (5, -1_000_000), (6, 0)];
    for (n, priority) in pushed {
        client.push_with(&queue, n, json!({"priority": priority}));
    }
    assert_eq!(drain(&mut client, &queue, 1), [4, 0, 2, 3, 6, 1, 5].map(Value::from));
}

#[test]
fn lifo_jobs_go_before_fifo_ones_of_their_priority_newest_first() {
    let (mut client, queue) = (client(), queue("lifo"));
    for n in 0..6 {
        client.push_with(&queue, n, json!({"lifo": n % 2 == 1}));
    }
    client.push_with(&queue, 9, json!({"priority": 1}));
    assert_eq!(drain(&mut client, &queue, 3), [9, 5, 3, 1, 0, 2, 4].map(Value::from));
}

#[test]
fn random_priorities_come_out_sorted() {
    let (mut client, queue) = (client(), queue("sorted"));
    let mut dice = crate::support::Dice::new(7);
    let jobs: Vec<Value> = (0..500)
        .map(|n| {
            let priority = dice.roll(20) as i64 - 10;
            json!({"data": [priority, n], "priority": priority})
        })
        .collect();
    client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
    let mut expected: Vec<(i64, i64)> = jobs
        .iter()
        .map(|job| (job["data"][0].as_i64().unwrap(), job["data"][1].as_i64().unwrap()))
        .collect();
    expected.sort_by_key(|(priority, n)| (-priority, *n));
    let got: Vec<(i64, i64)> = drain(&mut client, &queue, 64)
        .iter()
        .map(|data| (data[0].as_i64().unwrap(), data[1].as_i64().unwrap()))
        .collect();
    assert_eq!(got, expected);
}

#[test]
fn a_batch_pull_takes_what_there_is_and_no_more_than_asked() {
    let (mut client, queue) = (client(), queue("pullb"));
    for n in 0..5 {
        client.push(&queue, n);
    }
    let two = client.ok("PULLB", json!({"queue": queue, "count": 2}));
    assert_eq!(two["jobs"].as_array().unwrap().len(), 2);
    let rest = client.ok("PULLB", json!({"queue": queue, "count": 1000}));
    assert_eq!(rest["jobs"].as_array().unwrap().len(), 3);
    assert_eq!(client.counted(&queue, "active"), 5);
    let none = client.ok("PULLB", json!({"queue": queue, "count": 1}));
    assert_eq!(none["jobs"], json!([]));
}

#[test]
fn a_pull_of_an_empty_queue_answers_null_at_once() {
    let (mut client, queue) = (client(), queue("nothing"));
    let plain = client.ok("PULL", json!({"queue": queue}));
    assert_eq!(plain["job"], Value::Null);
    let owned = client.ok("PULL", json!({"queue": queue, "owner": "me"}));
    assert_eq!((&owned["job"], &owned["token"]), (&Value::Null, &Value::Null));
    let many = client.ok("PULLB", json!({"queue": queue, "count": 3, "owner": "me"}));
    assert_eq!((&many["jobs"], &many["tokens"]), (&json!([]), &json!([])));
}

#[test]
fn a_pulled_job_is_active_and_nobody_else_gets_it() {
    let (mut client, queue) = (client(), queue("once"));
    let id = client.push(&queue, 1);
    let job = client.pull(&queue);
    assert_eq!(job["id"], json!(id));
    assert!(job["startedAt"].as_u64().unwrap() >= job["createdAt"].as_u64().unwrap());
    assert_eq!(client.state(&id), "active");
    assert_eq!(crate::client().pull(&queue), Value::Null);
}
