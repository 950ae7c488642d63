//! Flows: jobs of several queues that come together. The fear: a part of a flow that is there without the
//! others, a flow that was told as pushed and is not there, or one that was refused and left something.

use serde_json::{Value, json};

use crate::support::{Client, Start, encode, frame, until};

/// Queues that are on all shards there are.
const QUEUES: usize = 6;

fn one(id: &str, queue: usize, input: impl Into<Value>) -> Value {
    let input: Value = input.into();
    json!({"id": id, "queue": format!("flow-{queue}"), "input": input})
}

/// A parent with children in all queues, one of which has a child of its own.
fn tree(name: &str) -> Value {
    let id = |part: &str| format!("{name}-{part}");
    let mut jobs = Vec::new();
    let children: Vec<String> = (0..QUEUES).map(|n| id(&n.to_string())).collect();
    let parent = json!({
        "name": "whole", "data": {"__childrenIds": children}, "dependsOn": children,
        "childrenIds": children,
    });
    jobs.push(one(&id("whole"), 0, parent));
    for (n, child) in children.iter().enumerate() {
        let mut input = json!({"data": {"n": n}, "parentId": id("whole"), "priority": 5});
        if n == 1 {
            input["dependsOn"] = json!([id("leaf")]);
            input["childrenIds"] = json!([id("leaf")]);
        }
        jobs.push(one(child, n, input));
    }
    let leaf = json!({"data": {"leaf": true}, "parentId": id("1"), "priority": 9});
    jobs.push(one(&id("leaf"), 2, leaf));
    json!(jobs)
}

fn ids(jobs: &Value) -> Vec<String> {
    jobs.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

/// How many of these are known.
fn known(client: &mut Client, jobs: &Value) -> usize {
    ids(jobs).iter().filter(|id| client.state(id) != "unknown").count()
}

fn run(client: &mut Client, queue: usize, id: &str) {
    let pull = json!({"queue": format!("flow-{queue}"), "timeout": 60_000});
    let job = client.ok("PULL", pull)["job"].clone();
    assert_eq!(job["id"], json!(id));
    client.ok("ACK", json!({"id": id, "result": {"of": id}}));
}

#[test]
fn a_flow_comes_as_a_whole_and_runs_from_its_leaves_to_its_root() {
    for shards in [1, 2] {
        let mut server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client();
        let jobs = tree("t");
        let pushed = client.ok("PUSHF", json!({"jobs": jobs}))["data"]["jobs"].clone();
        assert_eq!(ids(&pushed), ids(&jobs));
        assert_eq!(
            (&pushed[0]["state"], &pushed[0]["name"]),
            (&json!("waiting-children"), &json!("whole"))
        );
        for (shown, asked) in pushed.as_array().unwrap().iter().zip(jobs.as_array().unwrap()) {
            let about = client.ok("GetJob", json!({"id": asked["id"]}))["job"].clone();
            for (name, value) in shown.as_object().unwrap() {
                assert_eq!(about[name], *value, "{name} of {}", asked["id"]);
            }
        }
        server.kill();
        server.start();
        let mut client = server.client();
        assert_eq!(client.state("t-1"), "waiting-children");
        run(&mut client, 2, "t-leaf");
        for n in 0..QUEUES {
            assert_eq!(client.state("t-whole"), "waiting-children");
            run(&mut client, n, &format!("t-{n}"));
        }
        let values = client.ok("GetChildrenValues", json!({"id": "t-1"}))["data"]["values"].clone();
        assert_eq!(values, json!({"flow-2:t-leaf": {"of": "t-leaf"}}));
        run(&mut client, 0, "t-whole");
        let about = client.ok("GetJob", json!({"id": "t-whole"}))["job"].clone();
        assert_eq!(about["childrenCompleted"], QUEUES);
    }
}

#[test]
fn a_chain_over_queues_runs_in_order() {
    for shards in [1, 2] {
        let server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client();
        let link = |n: usize| {
            let before = n.checked_sub(1).map(|before| format!("link-{before}"));
            let input =
                json!({"data": {"n": n}, "dependsOn": before.into_iter().collect::<Vec<_>>()});
            one(&format!("link-{n}"), n % QUEUES, input)
        };
        client.ok("PUSHF", json!({"jobs": (0..12).map(link).collect::<Vec<_>>()}));
        (0..12).for_each(|n| run(&mut client, n % QUEUES, &format!("link-{n}")));
    }
}

#[test]
fn a_flow_that_is_refused_leaves_nothing() {
    for shards in [1, 2] {
        let server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client();
        client.push_with("flow-3", 1, json!({"jobId": "r-3"}));
        let jobs = tree("r");
        let text = client.refused("PUSHF", json!({"jobs": jobs}));
        assert_eq!(text, "Flow job r-3 already exists");
        assert_eq!(known(&mut client, &jobs), 1);
        client.ok("Cancel", json!({"id": "r-3"}));
        let child = |parent: &str| json!({"data": 1, "parentId": parent});
        let a = |input: Value| one("a", 0, input);
        for (jobs, text) in [
            (
                json!([a(json!({"data": 1, "dependsOn": ["b"]}))]),
                "jobs[0]: Dependency job not found: b",
            ),
            (json!([a(json!({"data": 1})), a(json!({"data": 1}))]), "jobs[1]: id a is given twice"),
            (json!([a(child("b"))]), "jobs[0]: Parent job not found: b"),
            (
                json!([a(child("b")), one("b", 1, json!({"data": 1}))]),
                "jobs[0]: parentId names b, whose childrenIds do not name it",
            ),
            (
                json!([
                    a(json!({"data": 1, "dependsOn": ["b"], "childrenIds": ["b"]})),
                    one("b", 1, json!({"data": 1}))
                ]),
                "jobs[1]: b is a child of a, which its parentId must say",
            ),
            (
                json!([a(json!({"data": 1, "childrenIds": ["b"]})), one("b", 1, child("a"))]),
                "jobs[0]: childrenIds names b, which dependsOn does not",
            ),
            (
                json!([
                    a(json!({"data": 1, "dependsOn": ["b"]})),
                    one("b", 1, json!({"data": 1, "dependsOn": ["a"]}))
                ]),
                "jobs must not depend on each other in a circle",
            ),
            (
                json!([a(json!({"data": 1, "uniqueKey": "k"}))]),
                "jobs[0]: uniqueKey and debounceId are not for jobs of a flow",
            ),
            (
                json!([a(json!({"data": 1, "repeat": {"every": 5}}))]),
                "jobs[0]: repeat is not for jobs of a flow",
            ),
            (json!([a(json!({"data": 1, "jobId": "c"}))]), "jobs[0]: customId must be the id"),
            (
                json!([a(json!({"data": 1, "failParentOnFailure": true}))]),
                "jobs[0]: what a failure means for a parent needs a parentId",
            ),
        ] {
            assert_eq!(client.refused("PUSHF", json!({"jobs": jobs})), text);
        }
        assert_eq!(client.ok("PUSHF", json!({"jobs": []}))["data"]["jobs"], json!([]));
        // The ids of refused flows are free.
        client.ok("PUSHF", json!({"jobs": jobs}));
        client
            .ok("PUSHF", json!({"jobs": [a(json!({"data": 1})), one("b", 1, json!({"data": 1}))]}));
    }
}

#[test]
fn of_two_flows_that_want_the_same_ids_one_comes() {
    let server = Start::new().env("SHARDS", 2).start();
    for round in 0..30 {
        let jobs = tree(&format!("race-{round}"));
        let push = || {
            let mut client = server.client();
            client.call("PUSHF", json!({"jobs": jobs}))["ok"] == true
        };
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(push);
            [push(), other.join().unwrap()]
        });
        assert_eq!(both.iter().filter(|&&came| came).count(), 1, "round {round}");
        assert_eq!(known(&mut server.client(), &jobs), ids(&jobs).len());
    }
}

#[test]
fn a_kill_at_any_moment_leaves_all_of_a_flow_or_nothing() {
    for shards in [1, 2] {
        let mut server = Start::new().env("SHARDS", shards).start();
        for round in 0..12_u64 {
            let name = move |n: usize| format!("kill-{round}-{n}");
            let pushing = server.client();
            let pusher = std::thread::spawn(move || {
                let mut client = pushing;
                let mut told = 0;
                while let Ok(reply) = client.try_call("PUSHF", json!({"jobs": tree(&name(told))})) {
                    assert_eq!(reply["ok"], true, "{reply}");
                    told += 1;
                }
                told
            });
            std::thread::sleep(std::time::Duration::from_millis(15 + round * 7 % 40));
            server.kill();
            let told = pusher.join().unwrap();
            server.start();
            let mut client = server.client();
            for n in 0..=told {
                let jobs = tree(&name(n));
                let all = ids(&jobs).len();
                let found = known(&mut client, &jobs);
                assert!(
                    found == all || found == 0 && n == told,
                    "{found} of {all} of flow {n}, {told} told"
                );
            }
            // A flow that has come goes on, wherever it was cut off.
            if told > 0 {
                let whole = format!("{}-whole", name(told - 1));
                assert_eq!(client.state(&whole), "waiting-children");
            }
        }
        finish_everything(&mut server.client());
    }
}

/// Runs all there is to the end: nobody may be left waiting.
fn finish_everything(client: &mut Client) {
    until("every job to be done", || {
        let mut done = 0;
        for n in 0..QUEUES {
            let pull = json!({"queue": format!("flow-{n}"), "count": 1000});
            for job in client.ok("PULLB", pull)["jobs"].as_array().unwrap() {
                client.ok("ACK", json!({"id": job["id"], "result": 1}));
                done += 1;
            }
        }
        let stats = client.ok("Stats", json!({}))["stats"].clone();
        (done == 0 && stats["waitingChildren"] == 0 && stats["queued"] == 0).then_some(())
    });
}

#[test]
fn a_parent_of_thousands_runs_after_the_last_of_them() {
    const CHILDREN: usize = 5000;
    let mut server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let children: Vec<String> = (0..CHILDREN).map(|n| format!("many-{n}")).collect();
    let parent = json!({"data": 1, "dependsOn": children, "childrenIds": children});
    let mut jobs = vec![one("many", 0, parent)];
    let input = json!({"data": 1, "parentId": "many", "removeOnComplete": true});
    jobs.extend(children.iter().enumerate().map(|(n, id)| one(id, 1 + n % 5, input.clone())));
    client.ok("PUSHF", json!({"jobs": jobs}));
    let mut left = CHILDREN;
    while left > 0 {
        for n in 1..6 {
            let pull = json!({"queue": format!("flow-{n}"), "count": 500});
            let pulled = client.ok("PULLB", pull)["jobs"].clone();
            let ids: Vec<Value> =
                pulled.as_array().unwrap().iter().map(|job| job["id"].clone()).collect();
            left -= ids.len();
            if !ids.is_empty() {
                client.ok("ACKB", json!({"ids": ids}));
            }
        }
        if left < CHILDREN / 2 && left + 2500 > CHILDREN / 2 {
            server.kill();
            server.start();
            client = server.client();
        }
    }
    until("the parent to wait", || (client.state("many") == "waiting").then_some(()));
    let values = client.ok("GetChildrenValues", json!({"id": "many"}))["data"]["values"].clone();
    assert_eq!(values.as_object().unwrap().len(), CHILDREN);
    let about = client.ok("GetJob", json!({"id": "many"}))["job"].clone();
    assert_eq!(about["childrenCompleted"], CHILDREN);
}

/// Jobs of a flow whose parts come in slices, on each shard.
const LONG: usize = 3000;

/// A parent of thousands over all queues of a round.
fn long_tree(round: &str) -> Value {
    let children: Vec<String> = (1..LONG).map(|n| format!("{round}-{n}")).collect();
    let queue = |n: usize| format!("long-{round}-{}", n % QUEUES);
    let whole = json!({"data": 1, "dependsOn": children, "childrenIds": children});
    let mut jobs = vec![json!({"id": format!("{round}-0"), "queue": queue(0), "input": whole})];
    let input = json!({"data": "some", "parentId": format!("{round}-0"), "priority": 3});
    jobs.extend(children.iter().zip(1..).map(|(id, n)| {
        let queue = queue(n);
        json!({"id": id, "queue": queue, "input": input})
    }));
    json!(jobs)
}

/// How many jobs of it there are.
fn come(client: &mut Client, round: &str) -> usize {
    let queues = (0..QUEUES).map(|n| format!("long-{round}-{n}"));
    let states = |queue: String| {
        let counts = client.ok("GetJobCounts", json!({"queue": queue}))["counts"].clone();
        ["waiting", "waiting-children"]
            .iter()
            .map(|state| counts[state].as_u64().unwrap())
            .sum::<u64>()
    };
    queues.map(states).sum::<u64>() as usize
}

#[test]
fn a_long_flow_is_answered_with_all_of_its_jobs_and_runs_to_its_end() {
    for shards in [1, 2] {
        let server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client().speaking(2);
        let jobs = long_tree("r");
        let pushed = client.ok("PUSHF", json!({"reqId": 7, "jobs": jobs}))["data"]["jobs"].clone();
        assert_eq!(ids(&pushed), ids(&jobs));
        assert_eq!(pushed[0]["state"], json!("waiting-children"));
        assert_eq!(pushed[0]["dependsOn"].as_array().unwrap().len(), LONG - 1);
        assert_eq!(come(&mut client, "r"), LONG);
        for n in [0, 1, LONG - 1] {
            let about = client.ok("GetJob", json!({"id": format!("r-{n}")}))["job"].clone();
            for (name, value) in pushed[n].as_object().unwrap() {
                assert_eq!(about[name], *value, "{name} of {n}");
            }
        }
        let mut left = LONG - 1;
        while left > 0 {
            for n in 0..QUEUES {
                let pull = json!({"queue": format!("long-r-{n}"), "count": 1000});
                let pulled = client.ok("PULLB", pull)["jobs"].clone();
                let ids = ids(&pulled);
                left -= ids.len();
                if !ids.is_empty() {
                    client.ok("ACKB", json!({"ids": ids}));
                }
            }
        }
        until("the parent to wait", || (client.state("r-0") == "waiting").then_some(()));
    }
}

#[test]
fn a_long_flow_that_is_refused_leaves_nothing() {
    for shards in [1, 2] {
        let server = Start::new().env("SHARDS", shards).start();
        let mut client = server.client().speaking(2);
        client.push_with("elsewhere", 1, json!({"jobId": "r-2500"}));
        let good = long_tree("r");
        let text = client.refused("PUSHF", json!({"jobs": good}));
        assert_eq!(text, "Flow job r-2500 already exists");
        client.ok("Cancel", json!({"id": "r-2500"}));
        let last = LONG - 1;
        for (place, change, text) in [
            (
                last,
                json!({"uniqueKey": "k"}),
                "uniqueKey and debounceId are not for jobs of a flow",
            ),
            (last, json!({"dependsOn": ["x"]}), "Dependency job not found: x"),
            (last, json!({"parentId": "x"}), "Parent job not found: x"),
            (
                last,
                json!({"parentId": null}),
                "r-2999 is a child of r-0, which its parentId must say",
            ),
            (0, json!({"childrenIds": []}), "parentId names r-0, whose childrenIds do not name it"),
            (last, json!({"priority": "x"}), "input.priority must be an integer"),
            (
                last,
                json!({"groupId": "g", "groupMaxSize": 1}),
                "Group g has reached its maximum size of 1",
            ),
        ] {
            let mut jobs = good.clone();
            // Of one queue, where one job of the group waits.
            client.push_with(&format!("long-r-{}", last % QUEUES), 1, json!({"groupId": "g"}));
            jobs[place]["input"]
                .as_object_mut()
                .unwrap()
                .extend(change.as_object().unwrap().clone());
            let told = client.refused("PUSHF", json!({"jobs": jobs}));
            assert!(told.ends_with(text), "{told}");
            let queue = format!("long-r-{}", last % QUEUES);
            client.ok("Drain", json!({"queue": queue}));
            assert_eq!(come(&mut client, "r"), 0, "{text}");
        }
        let mut circle = good.clone();
        circle[7]["input"]["dependsOn"] = json!(["r-0"]);
        let text = client.refused("PUSHF", json!({"jobs": circle}));
        assert_eq!(text, "jobs must not depend on each other in a circle");
        // The ids of refused flows are free, and so is the room for them.
        client.ok("PUSHF", json!({"jobs": good}));
        assert_eq!(come(&mut client, "r"), LONG);
    }
}

#[test]
fn a_kill_at_any_moment_leaves_all_of_a_long_flow_or_nothing() {
    for shards in [1, 2] {
        let mut server = Start::new().env("SHARDS", shards).start();
        for round in 0..5_u64 {
            let name = format!("{shards}-{round}");
            let jobs = long_tree(&name);
            let mut pushing = server.client();
            let pusher = std::thread::spawn(move || {
                pushing.try_call("PUSHF", json!({"jobs": jobs})).is_ok_and(|it| it["ok"] == true)
            });
            // The promise holds at any moment, and moments differ from round to round.
            std::thread::sleep(std::time::Duration::from_millis(20 + round * 30));
            server.kill();
            let told = pusher.join().unwrap();
            server.start();
            let mut client = server.client();
            // A flow that was committed comes in slices, also after a start.
            until("all of the flow, or nothing", || {
                let come = come(&mut client, &name);
                (come == LONG || come == 0 && !told).then_some(())
            });
            let state = client.state(&format!("{name}-0"));
            assert!(state == "waiting-children" || state == "unknown" && !told, "{state}");
        }
    }
}

#[test]
fn a_client_that_leaves_during_its_long_flow_leaves_all_of_it_or_nothing() {
    for shards in [1, 2] {
        let server = Start::new().env("SHARDS", shards).start();
        for round in 0..6 {
            let name = format!("{shards}-{round}");
            let jobs = long_tree(&name);
            let command = json!({"cmd": "PUSHF", "jobs": jobs});
            let mut leaving = server.client();
            leaving.send_bytes(&frame(&encode(&command))).unwrap();
            drop(leaving);
            // A push of the same id waits until it is known what becomes of the flow.
            let mut client = server.client();
            let last = format!("{name}-{}", LONG - 1);
            let id = client.push_with("beside", 1, json!({"jobId": last}));
            assert_eq!(id, last);
            let has_come = client.ok("GetJob", json!({"id": last}))["job"]["queue"] != "beside";
            if has_come {
                until("all of the flow", || (come(&mut client, &name) == LONG).then_some(()));
            } else {
                // Another job has one of the flow's ids: the flow cannot come any more, and holds no other id.
                let first = format!("{name}-0");
                client.push_with("beside", 1, json!({"jobId": first}));
                let about = client.ok("GetJob", json!({"id": first}))["job"].clone();
                assert_eq!(about["queue"], json!("beside"));
                assert_eq!(come(&mut client, &name), 0);
            }
        }
    }
}
