//! Parents and children. The fear: a value that is lost with its child, a parent that nobody wakes, one
//! that runs although a child's failure should have stopped it; and all of that across a crash.

use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::{Client, Http, Server, Start, until};

const SHARDS: [u32; 2] = [1, 2];

fn on_shards(test: impl Fn(&mut Server)) {
    for shards in SHARDS {
        let mut server = Start::new().env("SHARDS", shards).start();
        test(&mut server);
    }
}

/// Queues that are on all shards there are.
fn part(n: usize) -> String {
    format!("part-{n}")
}

/// A child in a queue of its own for the parent that is to come.
fn child(client: &mut Client, n: usize, options: &Value) -> String {
    let mut all = json!({"parentId": "pending", "jobId": format!("child-{n}"), "maxAttempts": 1});
    all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    client.push_with(&part(n), json!({"__parentId": "pending", "n": n}), all)
}

/// The parent of these, and the children linked to it, as the clients for version 2 do it.
fn parent(client: &mut Client, children: &[String]) -> String {
    let options = json!({"dependsOn": children, "childrenIds": children, "jobId": "parent"});
    let parent = client.push_with("whole", json!({"of": "all"}), options);
    for child in children {
        client.ok("UpdateParent", json!({"childId": child, "parentId": parent}));
    }
    parent
}

fn complete(client: &mut Client, queue: &str, result: impl Into<Value>) {
    let result: Value = result.into();
    let id = client.pull(queue)["id"].clone();
    client.ok("ACK", json!({"id": id, "result": result}));
}

fn fail(client: &mut Client, queue: &str, error: &str) {
    let id = client.pull(queue)["id"].clone();
    client.ok("FAIL", json!({"id": id, "error": error}));
}

fn values(client: &mut Client, parent: &str) -> Value {
    client.ok("GetChildrenValues", json!({"id": parent}))["data"]["values"].clone()
}

fn state_becomes(client: &mut Client, id: &str, state: &str) {
    until(&format!("{id} to be {state}"), || (client.state(id) == state).then_some(()));
}

#[test]
fn a_parent_runs_after_its_children_and_has_their_values_whatever_became_of_them() {
    on_shards(|server| {
        let mut client = server.client();
        let children: Vec<String> = (0..6)
            .map(|n| child(&mut client, n, &json!({"removeOnComplete": n % 2 == 0})))
            .collect();
        let parent = parent(&mut client, &children);
        for n in 0..6 {
            assert_eq!(client.state(&parent), "waiting-children", "{n} done");
            complete(&mut client, &part(n), json!({"n": n}));
        }
        let job = client.ok("PULL", json!({"queue": "whole", "timeout": 60_000}))["job"].clone();
        assert_eq!((&job["id"], &job["childrenIds"]), (&json!(parent), &json!(children)));
        client.ok("Clean", json!({"queue": part(1), "grace": 0, "state": "completed"}));
        assert_eq!(client.state("child-1"), "unknown");
        let expected: serde_json::Map<String, Value> =
            (0..6).map(|n| (format!("part-{n}:child-{n}"), json!({"n": n}))).collect();
        assert_eq!(values(&mut client, &parent), Value::Object(expected.clone()));
        server.kill();
        server.start();
        let mut client = server.client();
        assert_eq!(values(&mut client, &parent), Value::Object(expected));
        let about = client.ok("GetJob", json!({"id": parent}))["job"].clone();
        assert_eq!(about["childrenCompleted"], 6);
        assert_eq!(about["childrenIds"], json!(children));
    });
}

#[test]
fn values_of_children_keep_their_kind_of_number_on_every_face() {
    let server = Start::new().start();
    let mut client = server.client();
    let id = client.push_with("part", 1, json!({"jobId": "child"}));
    client.push_with("whole", 1, json!({"jobId": "p", "dependsOn": [id], "childrenIds": [id]}));
    let mut websocket = WebSocket::open(server.http, "/ws/queues/none");
    client.pull("part");
    let result = json!({"whole": 2, "float": 2.0, "list": [3.0, 3], "time": 1.7e12});
    websocket.ok("ACK", json!({"id": id, "result": result}));
    let reply = websocket.ok("GetChildrenValues", json!({"id": "p"}));
    // Equal only if whole numbers are whole and floats are floats.
    assert_eq!(reply["data"]["values"]["part:child"].to_string(), result.to_string());
}

#[test]
fn a_child_that_ended_before_its_parent_came_tells_it_still() {
    on_shards(|server| {
        let mut client = server.client();
        let mut children = Vec::new();
        for n in 0..4 {
            children.push(child(&mut client, n, &json!({"removeOnComplete": n % 2 == 0})));
            complete(&mut client, &part(n), json!(n));
        }
        // The remembered ends of the forgotten children are still there after a kill.
        server.kill();
        server.start();
        let mut client = server.client();
        let parent = parent(&mut client, &children);
        state_becomes(&mut client, &parent, "waiting");
        let expected = json!({
            "part-0:child-0": 0, "part-1:child-1": 1, "part-2:child-2": 2, "part-3:child-3": 3
        });
        assert_eq!(values(&mut client, &parent), expected);
    });
}

#[test]
fn a_link_to_the_parent_stands_in_the_job_and_in_its_data() {
    on_shards(|server| {
        let mut client = server.client();
        let first = child(&mut client, 1, &json!({}));
        let parent = parent(&mut client, std::slice::from_ref(&first));
        let about = |client: &mut Client| client.ok("GetJob", json!({"id": first}))["job"].clone();
        let linked = json!({"__parentId": parent, "__parentQueue": "whole", "n": 1});
        assert_eq!(about(&mut client)["parentId"], json!(parent));
        assert_eq!(about(&mut client)["data"], linked);
        let other = client.push("other", 1);
        let text = client.refused("UpdateParent", json!({"childId": first, "parentId": other}));
        assert_eq!(text, format!("Child job {first} already belongs to parent {parent}"));
        let fields = json!({"childId": "nobody", "parentId": parent});
        assert_eq!(client.refused("UpdateParent", fields), "Child job not found: nobody");
        let fields = json!({"childId": first, "parentId": "nobody"});
        assert_eq!(client.refused("UpdateParent", fields), "Parent job not found: nobody");
        let fields = json!({"childId": first, "parentId": first});
        assert_eq!(client.refused("UpdateParent", fields), "A job cannot be its own parent");
        server.kill();
        server.start();
        let mut client = server.client();
        assert_eq!(about(&mut client)["data"], linked);
        assert_eq!(client.pull(&part(1))["parentId"], json!(parent));
    });
}

#[test]
fn a_job_that_waits_gets_one_more_child() {
    on_shards(|server| {
        let mut client = server.client();
        let parent = client.push_with("whole", 1, json!({"jobId": "parent"}));
        let late = client.push_with(&part(1), json!({"n": 1}), json!({"jobId": "late"}));
        client.ok("UpdateParent", json!({"childId": late, "parentId": parent}));
        assert_eq!(client.state(&parent), "waiting-children");
        server.kill();
        server.start();
        let mut client = server.client();
        assert_eq!(client.state(&parent), "waiting-children");
        complete(&mut client, &part(1), json!("late"));
        state_becomes(&mut client, &parent, "waiting");
        assert_eq!(values(&mut client, &parent), json!({"part-1:late": "late"}));
        let about = client.ok("GetJob", json!({"id": parent}))["job"].clone();
        assert_eq!(about["childrenIds"], json!(["late"]));
        complete(&mut client, "whole", json!(null));
        let other = client.push(&part(1), 1);
        let text = client.refused("UpdateParent", json!({"childId": other, "parentId": parent}));
        assert_eq!(text, format!("Parent job {parent} is not linkable"));
    });
}

/// A parent of two, the first of which fails with a policy, before or after the parent comes, and is
/// kept or not.
fn with_failed_child(policy: &str, check: impl Fn(&mut Server, &str)) {
    for (before, removed) in [(false, false), (false, true), (true, false), (true, true)] {
        on_shards(|server| {
            let mut client = server.client();
            let options = json!({policy: true, "removeOnFail": removed});
            let children = [child(&mut client, 1, &options), child(&mut client, 2, &json!({}))];
            let parent = if before {
                fail(&mut client, &part(1), "broken");
                server.kill();
                server.start();
                client = server.client();
                parent(&mut client, &children)
            } else {
                let parent = parent(&mut client, &children);
                fail(&mut client, &part(1), "broken");
                parent
            };
            check(server, &parent);
        });
    }
}

#[test]
fn a_child_fails_its_parent() {
    with_failed_child("failParentOnFailure", |server, parent| {
        let mut client = server.client();
        state_becomes(&mut client, parent, "failed");
        let about = client.ok("GetJob", json!({"id": parent}))["job"].clone();
        assert_eq!(about["failedReason"], "Child job child-1 failed: broken");
        server.kill();
        server.start();
        assert_eq!(server.client().state(parent), "failed");
    });
}

#[test]
fn a_child_lets_its_parent_go_on_at_once() {
    with_failed_child("continueParentOnFailure", |server, parent| {
        let mut client = server.client();
        state_becomes(&mut client, parent, "waiting");
        let failed = json!({"part-1:child-1": "broken"});
        let of = |client: &mut Client, command: &str| {
            client.ok(command, json!({"id": parent}))["values"].clone()
        };
        assert_eq!(of(&mut client, "GetFailedChildrenValues"), failed);
        assert_eq!(of(&mut client, "GetIgnoredChildrenFailures"), json!({}));
        server.kill();
        server.start();
        let mut client = server.client();
        assert_eq!(client.state(parent), "waiting");
        assert_eq!(of(&mut client, "GetFailedChildrenValues"), failed);
        // The other one is still its child.
        complete(&mut client, &part(2), json!(2));
        until("the value of the other one", || {
            (values(&mut client, parent) == json!({"part-2:child-2": 2})).then_some(())
        });
    });
}

#[test]
fn a_parent_does_not_mind_a_child_and_waits_for_the_others() {
    for (policy, ignored) in [
        ("ignoreDependencyOnFailure", json!({"part-1:child-1": "broken"})),
        ("removeDependencyOnFailure", json!({})),
    ] {
        with_failed_child(policy, |server, parent| {
            let mut client = server.client();
            assert_eq!(client.state(parent), "waiting-children");
            complete(&mut client, &part(2), json!(2));
            state_becomes(&mut client, parent, "waiting");
            server.kill();
            server.start();
            let mut client = server.client();
            assert_eq!(client.state(parent), "waiting");
            assert_eq!(values(&mut client, parent), json!({"part-2:child-2": 2}));
            let fields = json!({"id": parent});
            let found = client.ok("GetIgnoredChildrenFailures", fields)["values"].clone();
            assert_eq!(found, ignored);
        });
    }
}

#[test]
fn a_child_without_a_policy_keeps_its_parent_waiting_until_it_is_retried() {
    on_shards(|server| {
        let mut client = server.client();
        let children = [child(&mut client, 1, &json!({}))];
        let parent = parent(&mut client, &children);
        fail(&mut client, &part(1), "broken");
        assert_eq!(client.state(&parent), "waiting-children");
        client.ok("RetryDlq", json!({"queue": part(1)}));
        complete(&mut client, &part(1), json!("at last"));
        state_becomes(&mut client, &parent, "waiting");
        assert_eq!(values(&mut client, &parent), json!({"part-1:child-1": "at last"}));
    });
}

#[test]
fn a_child_that_is_cancelled_sends_its_parent_to_the_dead_letter_queue() {
    on_shards(|server| {
        let mut client = server.client();
        let children = [child(&mut client, 1, &json!({}))];
        let parent = parent(&mut client, &children);
        client.ok("Cancel", json!({"id": "child-1"}));
        state_becomes(&mut client, &parent, "failed");
        let about = client.ok("GetJob", json!({"id": parent}))["job"].clone();
        assert_eq!(about["failedReason"], "Dependency removed: child-1");
    });
}

#[test]
fn a_child_is_let_go_of_and_its_parent_goes_on() {
    on_shards(|server| {
        let mut client = server.client();
        let children = [child(&mut client, 1, &json!({})), child(&mut client, 2, &json!({}))];
        let parent = parent(&mut client, &children);
        let removed = |client: &mut Client, id: &str| {
            client.ok("RemoveChildDependency", json!({"id": id}))["removed"].clone()
        };
        assert_eq!(removed(&mut client, "child-1"), true);
        let about = client.ok("GetJob", json!({"id": "child-1"}))["job"].clone();
        assert_eq!((&about["parentId"], &about["data"]), (&Value::Null, &json!({"n": 1})));
        complete(&mut client, &part(2), json!(2));
        state_becomes(&mut client, &parent, "waiting");
        assert_eq!(removed(&mut client, "child-2"), false);
        let text = client.refused("RemoveChildDependency", json!({"id": "child-1"}));
        assert_eq!(text, "Job child-1 has no parent");
        server.kill();
        server.start();
        let mut client = server.client();
        let about = client.ok("GetJob", json!({"id": parent}))["job"].clone();
        assert_eq!(about["childrenIds"], json!(["child-2"]));
        assert_eq!(about["state"], "waiting");
    });
}

#[test]
fn a_parent_lets_go_of_the_children_that_have_not_begun() {
    on_shards(|server| {
        let mut client = server.client();
        let children: Vec<String> = (1..4).map(|n| child(&mut client, n, &json!({}))).collect();
        let parent = parent(&mut client, &children);
        client.pull(&part(1));
        client.ok("RemoveUnprocessedChildren", json!({"id": parent}));
        assert_eq!(client.state("child-1"), "active");
        assert_eq!(client.state("child-2"), "unknown");
        assert_eq!(client.state(&parent), "waiting-children");
        client.ok("ACK", json!({"id": "child-1", "result": 1}));
        state_becomes(&mut client, &parent, "waiting");
        assert_eq!(values(&mut client, &parent), json!({"part-1:child-1": 1}));
    });
}

#[test]
fn a_running_parent_waits_for_children_it_made() {
    on_shards(|server| {
        let mut client = server.client();
        client.push_with("whole", 1, json!({"jobId": "parent"}));
        let pull = json!({"queue": "whole", "owner": "w", "lockTtl": 60_000});
        let token = client.ok("PULL", pull)["token"].clone();
        let fields = json!({"id": "parent", "token": token});
        client.ok("Hello", json!({"protocolVersion": 2}));
        let moved = client.ok("MoveToWaitingChildren", fields.clone())["data"]["moved"].clone();
        assert_eq!((moved, client.state("parent")), (json!(false), "active".to_owned()));
        client.push_with(&part(1), json!({}), json!({"jobId": "made"}));
        client.ok("UpdateParent", json!({"childId": "made", "parentId": "parent"}));
        assert_eq!(client.state("parent"), "active");
        let moved = client.ok("MoveToWaitingChildren", fields)["data"]["moved"].clone();
        assert_eq!((moved, client.state("parent")), (json!(true), "waiting-children".to_owned()));
        server.kill();
        server.start();
        let mut client = server.client();
        complete(&mut client, &part(1), json!("made"));
        state_becomes(&mut client, "parent", "waiting");
        assert_eq!(values(&mut client, "parent"), json!({"part-1:made": "made"}));
        let text = client.refused("MoveToWaitingChildren", json!({"id": "parent"}));
        assert_eq!(text, "Job not found or not active");
    });
}

/// The ways to try all that failed in a queue again.
fn retry(server: &Server, client: &mut Client, way: usize, queue: &str, id: &str) {
    match way {
        0 => drop(client.ok("RetryDlq", json!({"queue": queue, "jobId": id}))),
        1 => drop(client.ok("RetryDlq", json!({"queue": queue}))),
        2 => drop(client.ok("RetryDlq", json!({"queue": queue, "filter": {"limit": 10}}))),
        3 => drop(client.ok("Bulk", json!({"action": "retry", "ids": [id]}))),
        4 => {
            let path = format!("/queues/{queue}/dlq/{id}/retry");
            Http::connect(server.http).post(&path, json!({})).expect(200);
        }
        _ => drop(client.ok("MoveToWait", json!({"id": id}))),
    }
    // A task on many jobs goes on after its answer.
    until("the retry", || (client.state(id) != "failed").then_some(()));
}

#[test]
fn a_retried_flow_runs_in_order() {
    on_shards(|server| {
        for way in 0..6 {
            // Whether the parent is retried before the child, after it, or when that is done.
            for order in 0..3 {
                let mut client = server.client();
                let options = json!({"failParentOnFailure": true, "removeOnComplete": way == 0});
                let children = [child(&mut client, 1, &options), child(&mut client, 2, &json!({}))];
                let parent = parent(&mut client, &children);
                fail(&mut client, &part(1), "broken");
                state_becomes(&mut client, &parent, "failed");
                complete(&mut client, &part(2), 2);
                if order == 0 {
                    retry(server, &mut client, way, "whole", &parent);
                    assert_eq!(client.state(&parent), "waiting-children", "{way}");
                }
                retry(server, &mut client, way, &part(1), "child-1");
                if order == 1 {
                    retry(server, &mut client, way, "whole", &parent);
                    assert_eq!(client.state(&parent), "waiting-children", "{way}");
                }
                if way == 1 {
                    server.kill();
                    server.start();
                    client = server.client();
                    assert_eq!(client.state(&parent) == "waiting-children", order < 2);
                }
                complete(&mut client, &part(1), 1);
                if order == 2 {
                    retry(server, &mut client, way, "whole", &parent);
                }
                state_becomes(&mut client, &parent, "waiting");
                let all = json!({"part-1:child-1": 1, "part-2:child-2": 2});
                assert_eq!(values(&mut client, &parent), all, "{way}, {order}");
                complete(&mut client, "whole", json!(null));
                for queue in ["whole", "part-1", "part-2"] {
                    client.ok("Obliterate", json!({"queue": queue}));
                }
                for id in ["parent", "child-1", "child-2"] {
                    state_becomes(&mut client, id, "unknown");
                }
            }
        }
    });
}
