//! Dead letters by the text of their errors: groups of them, and actions on such a group.

use serde_json::{Value as Json, json};

use crate::interface::bulk_tasks::{bury, figure, fill_by, metric, run};
use crate::support::{Client, Start};
use crate::{client, queue};

#[test]
fn dead_letters_are_removed_by_the_text_of_their_error() {
    let (mut c, q) = (client(), queue("bulk-error"));
    bury(&mut c, &q, 40, |n| format!("{} 127.0.0.{n}", ["refused by", "no route to"][n % 2]));
    let fields = json!({"action": "remove", "queue": q, "filter": {"error": "route to 127"}});
    let task = run(&mut c, fields);
    assert_eq!((figure(&task, "matched"), figure(&task, "changed")), (20, 20), "{task}");
    let left = c.ok("DlqGroups", json!({"queue": q}));
    assert_eq!(left["groups"][0]["error"], "refused by #.#.#.#");
    assert_eq!((&left["groups"][0]["count"], &left["total"]), (&json!(20), &json!(20)));
}

#[test]
fn dead_letters_are_grouped_by_errors_that_differ_in_numbers_and_ids_only() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    let mut of_first = Vec::new();
    for n in 0..6 {
        let q = format!("dead-{n}");
        let ids = bury(&mut c, &q, 10, |m| match m {
            0 => format!("only in {}", ["one", "two", "three", "four", "five", "six"][n]),
            1..4 => format!("user user_{m}{n} not found\n  at stack:{m}"),
            _ => format!("job 0190163d-8694-739b-aea5-966c26f8a78{m} is gone after {n} ms"),
        });
        if n == 0 {
            of_first = ids;
        }
    }
    let one = c.ok("DlqGroups", json!({"queue": "dead-0", "by": "error"}));
    let groups = one["groups"].as_array().unwrap();
    let text = |group: &Json| group["error"].as_str().unwrap().to_owned();
    let texts: Vec<String> = groups.iter().map(text).collect();
    assert_eq!(texts, ["job # is gone after # ms", "user # not found", "only in one"]);
    let counts: Vec<&Json> = groups.iter().map(|group| &group["count"]).collect();
    assert_eq!(counts, [6, 3, 1]);
    assert_eq!((&one["total"], &one["others"]), (&json!(10), &json!(0)));
    let sample = groups[2]["sample"].as_str().unwrap();
    assert_eq!((sample, &groups[2]["queue"]), (&*of_first[0], &json!("dead-0")));
    let job = c.ok("GetJob", json!({"id": sample}))["job"].clone();
    assert_eq!((&groups[2]["oldest"], &groups[2]["newest"]), (&job["failedAt"], &job["failedAt"]));
    assert!(groups[0]["oldest"].as_u64() <= groups[0]["newest"].as_u64());
    // Over all queues of both shards, and no more groups than are asked for.
    let all = c.ok("DlqGroups", json!({"limit": 2}));
    let counts: Vec<&Json> =
        all["groups"].as_array().unwrap().iter().map(|group| &group["count"]).collect();
    assert_eq!(counts, [36, 18]);
    assert_eq!(
        (&all["total"], &all["others"], &all["damaged"]),
        (&json!(60), &json!(6), &json!(0))
    );
    // On whichever shard a client is, it gets one answer after the other.
    for _ in 0..8 {
        let mut other = server.client();
        for _ in 0..3 {
            assert_eq!(other.ok("DlqGroups", json!({}))["total"], 60);
        }
    }
    let none = c.ok("DlqGroups", json!({"queue": "empty"}));
    assert_eq!((&none["groups"], &none["total"]), (&json!([]), &json!(0)));
}

#[test]
fn a_group_of_one_error_is_what_a_filter_by_that_group_acts_on() {
    let (mut c, q) = (client(), queue("bulk-group"));
    bury(&mut c, &q, 50, |n| format!("E{} at {n}: {}", n % 2, "x".repeat(n % 5 * 100)));
    let groups = c.ok("DlqGroups", json!({"queue": q}))["groups"].clone();
    let mut sum = 0;
    for group in groups.as_array().unwrap() {
        let filter = json!({"errorGroup": group["error"]});
        let task = run(&mut c, json!({"action": "retry", "queue": q, "filter": filter}));
        assert_eq!(task["changed"], group["count"], "{group}");
        sum += figure(&task, "changed");
    }
    assert_eq!((sum, c.counted(&q, "failed")), (50, 0));
}

#[test]
fn many_who_ask_for_groups_at_once_are_answered_a_few_at_a_time_on_both_shards() {
    /// Reserve for groups that are counted, four at a time, and for the list of metrics that says so.
    const RESERVED: u64 = (4 + 1) * (2 << 20);
    let server = Start::new().env("SHARDS", 2).start();
    let mut c = server.client();
    bury(&mut c, "a", 300, |n| format!("no {n}"));
    bury(&mut c, "b", 300, |n| format!("not {n}"));
    let mut clients: Vec<Client> = (0..60).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send("DlqGroups", json!({})).unwrap();
    }
    // Some leave before they have their answers: what was reserved for them must be free again.
    let stay = clients.split_off(20);
    drop(clients);
    for mut client in stay {
        let reply = client.recv().unwrap();
        assert_eq!((&reply["ok"], &reply["total"]), (&json!(true), &json!(600)), "{reply}");
    }
    let peak = metric(&mut c, "corq_replies_begun_peak_bytes");
    assert!((1..=RESERVED).contains(&peak), "{peak}");
    assert_eq!(c.ok("DlqGroups", json!({}))["total"], 600, "there is room again");
}

#[test]
fn pages_that_take_all_the_room_of_lists_end_one_after_the_other() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut c = server.client();
    let filler = "x".repeat(7000);
    fill_by(&mut c, "wide", 1000, 100, |_| json!({"data": filler}));
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut clients {
        let asked = json!({"queue": "wide", "text": "xxx", "limit": 1000, "budgetMs": 60000, "data": "full"});
        client.send("Search", asked).unwrap();
    }
    for client in &mut clients {
        let reply = client.recv().unwrap();
        assert!(
            reply["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty()),
            "{}",
            reply["error"]
        );
    }
}
