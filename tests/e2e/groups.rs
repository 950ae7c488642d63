//! Groups of jobs, over the wire. The fears: an answer that a client of the protocol does not read, a setting
//! that a kill or another number of shards loses, and a pull that waits although its group may give.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, Server, Start};
use crate::{client, queue};

fn start(shards: u32) -> Server {
    Start::new().memory().env("SHARDS", shards).start()
}

fn fill(client: &mut Client, queue: &str, jobs: &[(&str, i64)]) {
    for &(group, number) in jobs {
        let options = if group.is_empty() { json!({}) } else { json!({"groupId": group}) };
        client.push_with(queue, number, options);
    }
}

/// The payloads that one pull brings.
#[allow(clippy::needless_pass_by_value)] // Written where it is passed.
fn pull(client: &mut Client, queue: &str, count: u32, group: Value) -> Vec<i64> {
    let reply = client.ok("PULLB", json!({"queue": queue, "count": count, "group": group}));
    let jobs = reply["jobs"].as_array().unwrap();
    jobs.iter().map(|job| job["data"].as_i64().unwrap()).collect()
}

#[test]
fn groups_take_turns_on_any_shard() {
    for shards in [1, 2] {
        let server = start(shards);
        // Of each, some are on every shard.
        for number in 0..4 {
            let (mut client, queue) = (server.client(), format!("turns-{number}"));
            fill(&mut client, &queue, &[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("", 6)]);
            assert_eq!(client.pull(&queue)["groupId"], Value::Null);
            assert_eq!(client.pull(&queue)["groupId"], "a", "workers want to know");
            assert_eq!(pull(&mut client, &queue, 9, Value::Null), [4, 5, 2, 3]);
        }
    }
}

#[test]
fn every_command_on_a_group_answers_as_clients_read_it() {
    let (mut client, queue) = (client().speaking(2), queue("groups"));
    let mut on = |cmd: &str, more: Value| {
        let mut fields = json!({"queue": queue, "groupId": "a"});
        more.as_object().unwrap().iter().for_each(|(name, it)| fields[name] = it.clone());
        let mut reply = client.ok(cmd, fields);
        let reply = reply.as_object_mut().unwrap();
        reply.retain(|name, _| name != "ok" && name != "reqId");
        Value::Object(reply.clone())
    };
    let data = |name: &str, value: Value| json!({"data": {name: value}});
    for _ in 0..3 {
        on("PUSH", json!({"data": 1, "priority": 7}));
    }
    on("PUSH", json!({"data": 1, "delay": 60_000}));
    assert_eq!(on("GetGroupJobsCount", json!({})), data("count", json!(4)));
    assert_eq!(on("GetGroupsJobsCount", json!({"maxCount": 100})), data("count", json!(4)));
    assert_eq!(on("GetGroupActiveCount", json!({})), data("count", json!(0)));
    assert_eq!(on("GetGroupRateLimit", json!({})), data("limit", Value::Null));
    assert_eq!(on("GetGroupRateLimitTtl", json!({})), data("ttl", json!(-2)));
    assert_eq!(on("GetGroupConcurrency", json!({})), data("concurrency", Value::Null));
    assert_eq!(on("GetGroupWeight", json!({})), data("weight", json!(1)));
    assert_eq!(on("IsGroupPaused", json!({})), data("paused", json!(false)));

    assert_eq!(on("SetGroupRateLimit", json!({"max": 2, "duration": 600_000})), json!({}));
    let limit = json!({"max": 2, "duration": 600_000});
    assert_eq!(on("GetGroupRateLimit", json!({})), data("limit", limit.clone()));
    assert_eq!(on("SetGroupConcurrency", json!({"concurrency": 1})), json!({}));
    assert_eq!(on("GetGroupConcurrency", json!({})), data("concurrency", json!(1)));
    assert_eq!(on("SetGroupWeight", json!({"weight": 4})), json!({}));
    assert_eq!(on("GetGroupWeight", json!({})), data("weight", json!(4)));
    assert_eq!(on("PULLB", json!({"count": 9}))["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(on("GetGroupActiveCount", json!({})), data("count", json!(1)));
    let ttl = on("GetGroupRateLimitTtl", json!({}))["data"]["ttl"].as_i64().unwrap();
    assert!((500_000..=600_000).contains(&ttl), "{ttl}");
    assert_eq!(on("GetGroupRateLimitTtl", json!({"maxJobs": 2})), data("ttl", json!(0)));
    assert_eq!(on("RemoveGroupConcurrency", json!({})), data("removed", json!(1)));
    assert_eq!(on("RemoveGroupConcurrency", json!({})), data("removed", json!(0)));
    assert_eq!(on("PULLB", json!({"count": 9}))["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(on("RemoveGroupRateLimit", json!({})), data("removed", json!(1)));
    assert_eq!(on("RemoveGroupRateLimit", json!({})), data("removed", json!(0)));

    assert_eq!(on("PauseGroup", json!({})), data("changed", json!(true)));
    assert_eq!(on("PauseGroup", json!({})), data("changed", json!(false)));
    assert_eq!(on("IsGroupPaused", json!({})), data("paused", json!(true)));
    assert_eq!(on("PULL", json!({}))["job"], Value::Null);
    assert_eq!(on("ResumeGroup", json!({})), data("changed", json!(true)));
    assert_eq!(on("RateLimitGroup", json!({"duration": 600_000})), json!({}));
    assert_eq!(on("PULL", json!({}))["job"], Value::Null);
    let ttl = on("GetGroupRateLimitTtl", json!({}))["data"]["ttl"].as_i64().unwrap();
    assert!((500_000..=600_000).contains(&ttl), "{ttl}");

    let mut listed = on("GetGroups", json!({}));
    let held = listed["groups"][0]["heldFor"].take().as_i64().unwrap();
    assert!((500_000..=600_000).contains(&held), "{held}");
    let group = json!({"id": "a", "count": 2, "active": 2, "paused": false, "weight": 4,
        "concurrency": null, "limit": null, "heldFor": null});
    assert_eq!(listed, json!({"groups": [group]}));
    assert_eq!(on("GetGroups", json!({"after": "a"})), json!({"groups": []}));
    assert_eq!(
        client.refused("GetGroups", json!({"queue": queue, "after": "b"})),
        "Group not found"
    );
    let prices = client.ok("GetCountsPerPriority", json!({"queue": queue}))["counts"].clone();
    assert_eq!(prices, json!({"7": 1}));
}

#[test]
fn a_pull_that_waits_gets_the_job_when_its_group_may_give_it() {
    for shards in [1, 2] {
        let server = start(shards);
        for number in 0..2 {
            let (mut client, queue) = (server.client(), format!("waits-{number}"));
            let mut worker = server.client();
            let mut waits = |client: &mut Client, group: Value, what: &dyn Fn(&mut Client)| {
                let pull = json!({"queue": queue, "timeout": 60_000, "group": group});
                worker.send("PULL", pull).unwrap();
                assert!(worker.recv_within(Duration::from_millis(40)).is_none());
                what(client);
                let reply = worker.recv().unwrap();
                client.ok("ACK", json!({"id": reply["job"]["id"]}));
                reply["job"]["data"].as_i64().unwrap()
            };
            // Sends the limit, a job of its group and the pull with no time between them.
            let mut timer = server.client();
            let mut until_it_is_time = |limit: (&str, Value), number: u64, group: Value| {
                let job = json!({"queue": queue, "data": number, "groupId": "b"});
                let wait = json!({"queue": queue, "timeout": 60_000, "group": group});
                let told =
                    timer.at_once([("Ping", json!({})), limit, ("PUSH", job), ("PULL", wait)]);
                let [ping, limited, _, pulled] = &told;
                let since = pulled["job"]["startedAt"].as_u64().unwrap()
                    - ping["data"]["time"].as_u64().unwrap();
                timer.ok("ACK", json!({"id": pulled["job"]["id"]}));
                (limited.clone(), pulled["job"]["data"].clone(), since)
            };
            let of = |group: &str| json!({"queue": queue, "groupId": group});
            client.ok("PauseGroup", of("a"));
            fill(&mut client, &queue, &[("a", 1)]);
            let resume = |client: &mut Client| drop(client.ok("ResumeGroup", of("a")));
            assert_eq!(waits(&mut client, Value::Null, &resume), 1);
            let push = |client: &mut Client| fill(client, &queue, &[("b", 2), ("a", 3)]);
            assert_eq!(waits(&mut client, json!({"affinity": "a"}), &push), 3);
            let push = |client: &mut Client| fill(client, &queue, &[("a", 4), ("", 5)]);
            assert_eq!(waits(&mut client, json!({"affinity": null}), &push), 5);
            // A pull with a limit of its own waits until time ends that.
            let group = json!({"limit": {"max": 1, "duration": 300}});
            let both = json!({"queue": queue, "count": 9, "group": group});
            let (taken, next, since) = until_it_is_time(("PULLB", both), 6, group);
            let taken: Vec<&Value> =
                taken["jobs"].as_array().unwrap().iter().map(|job| &job["data"]).collect();
            assert_eq!((taken, next), (vec![&json!(2), &json!(4)], json!(6)));
            assert!(since >= 300, "after {since} ms");
            let mut hold = of("b");
            hold["duration"] = 200.into();
            let (_, next, since) = until_it_is_time(("RateLimitGroup", hold), 7, Value::Null);
            assert_eq!(next, 7);
            assert!(since >= 200, "after {since} ms");
        }
    }
}

#[test]
fn a_full_group_takes_no_more_and_frees_the_names_of_what_it_refuses() {
    for shards in [1, 2] {
        let server = start(shards);
        let mut client = server.client();
        for number in 0..3 {
            let queue = format!("full-{number}");
            let job = |id: &str| json!({"data": 1, "groupId": "tenant", "groupMaxSize": 2, "customId": format!("{queue}-{id}")});
            client.ok("PUSHB", json!({"queue": queue, "jobs": [job("a"), job("b")]}));
            let push = json!({"queue": queue, "data": 1, "groupId": "tenant", "groupMaxSize": 2});
            let full = "Group tenant has reached its maximum size of 2";
            assert_eq!(client.refused("PUSH", push.clone()), full);
            let mut named = push.clone();
            named["jobId"] = "c".into();
            assert_eq!(client.refused("PUSH", named.clone()), full);
            // The known one counts as pushed already, and keeps its place in the batch.
            let jobs = json!([job("a"), {"data": 1}, job("d"), job("e")]);
            let batch = json!({"queue": queue, "jobs": jobs});
            assert_eq!(client.refused("PUSHB", batch), format!("jobs[2]: {full}"));
            assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 2);
            client.pull(&queue);
            assert_eq!(client.ok("PUSH", named)["id"], "c");
            client.ok("Obliterate", json!({"queue": queue}));
        }
    }
}

#[test]
fn what_is_set_for_groups_survives_a_kill_and_another_number_of_shards() {
    let mut server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let queues: Vec<String> = (0..4).map(|number| format!("durable-{number}")).collect();
    let mut locks = Vec::new();
    for queue in &queues {
        let of = |group: &str, more: Value| {
            let mut fields = json!({"queue": queue, "groupId": group});
            more.as_object().unwrap().iter().for_each(|(name, it)| fields[name] = it.clone());
            fields
        };
        client.ok("SetGroupConcurrency", of("a", json!({"concurrency": 1})));
        client.ok("SetGroupRateLimit", of("b", json!({"max": 5, "duration": 60_000})));
        client.ok("SetGroupWeight", of("b", json!({"weight": 3})));
        client.ok("PauseGroup", of("c", json!({})));
        client.ok("RateLimitGroup", of("d", json!({"duration": 3_600_000})));
        client.ok("PauseGroup", of("e", json!({})));
        client.ok("ResumeGroup", of("e", json!({})));
        fill(&mut client, queue, &[("a", 1), ("a", 2), ("b", 3), ("c", 4), ("d", 5), ("b", 6)]);
        let pull = json!({"queue": queue, "owner": "w", "lockTtl": 3_600_000, "detach": true});
        let pulled = client.ok("PULL", pull);
        assert_eq!(pulled["job"]["data"], 1);
        locks.push((pulled["job"]["id"].clone(), pulled["token"].clone()));
    }
    let seen = |client: &mut Client| -> Vec<Value> {
        let mut all = Vec::new();
        for queue in &queues {
            let mut groups = client.ok("GetGroups", json!({"queue": queue}))["groups"].clone();
            let groups = groups.as_array_mut().unwrap();
            for it in groups.iter_mut() {
                it["heldFor"] = it["heldFor"].is_number().into();
            }
            groups.sort_by_key(|it| it["id"].to_string());
            all.push(json!(groups));
        }
        all
    };
    let before = seen(&mut client);
    assert_eq!(before[0].as_array().unwrap().len(), 4);
    server.kill();
    for shards in [1, 2, 3] {
        server.set("SHARDS", shards);
        server.start();
        client = server.client();
        assert_eq!(seen(&mut client), before, "with {shards} shards");
        server.kill();
    }
    server.start();
    client = server.client();
    for (queue, (id, token)) in queues.iter().zip(&locks) {
        assert_eq!(pull(&mut client, queue, 9, Value::Null), [3, 6], "a has one active job");
        client.ok("ACK", json!({"id": id, "token": token}));
        assert_eq!(pull(&mut client, queue, 9, Value::Null), [2]);
        client.ok("ResumeGroup", json!({"queue": queue, "groupId": "c"}));
        assert_eq!(pull(&mut client, queue, 9, Value::Null), [4]);
    }
}

#[test]
fn what_is_wrong_with_a_group_is_said_and_changes_nothing() {
    let (mut client, queue) = (client(), queue("wrong-groups"));
    fill(&mut client, &queue, &[("a", 1)]);
    assert_eq!(client.refused("PauseGroup", json!({"queue": queue})), "groupId is required");
    let long = client.refused("PauseGroup", json!({"queue": queue, "groupId": "x".repeat(257)}));
    assert_eq!(long, "groupId must be between 1 and 256 characters");
    let zero = json!({"queue": queue, "groupId": "a", "concurrency": 0});
    let text = client.refused("SetGroupConcurrency", zero);
    assert_eq!(text, "concurrency must be between 1 and 9007199254740991");
}

#[test]
fn limits_that_pulls_say_last_count_for_all_pulls_of_a_queue() {
    for shards in [1, 2] {
        let server = start(shards);
        for number in 0..2 {
            let (mut client, queue) = (server.client(), format!("last-word-{number}"));
            fill(&mut client, &queue, &[("a", 1), ("a", 2), ("a", 3), ("a", 4)]);
            assert_eq!(pull(&mut client, &queue, 9, json!({"concurrency": 1})), [1]);
            assert!(pull(&mut client, &queue, 9, Value::Null).is_empty());
            let plain = json!({"affinity": null, "concurrency": 9});
            assert!(pull(&mut client, &queue, 9, plain).is_empty());
            assert!(pull(&mut client, &queue, 9, Value::Null).is_empty());
            // However many different ones there are.
            for max in (10..30).rev() {
                let none = json!({"affinity": "b", "concurrency": max});
                assert!(pull(&mut client, &queue, 9, none).is_empty());
            }
            assert_eq!(pull(&mut client, &queue, 1, Value::Null), [2]);
            let rate = json!({"limit": {"max": 1, "duration": 3_600_000}});
            assert_eq!(pull(&mut client, &queue, 9, rate), [3]);
            let job = client.ok("GetJobs", json!({"queue": queue, "state": ["waiting"]}));
            let job = client.ok("Explain", json!({"id": job["jobs"][0]["id"]}));
            let reason = &job["data"]["reasons"][0];
            assert_eq!((&reason["code"], &reason["ofPulls"]), (&json!("group_rate"), &json!(true)));
        }
    }
}
