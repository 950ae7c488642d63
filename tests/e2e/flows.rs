//! Flows: jobs of several queues that come together. The fear: a part of a flow that is there without the
//! others, a flow that was told as pushed and is not there, or one that was refused and left something.

use serde_json::{Value, json};

use crate::support::{Client, Start, until};

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
            // What is there goes on, wherever it was cut off.
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
