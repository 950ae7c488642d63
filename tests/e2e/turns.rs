//! How much a command is of a turn, whatever it is about. The fear: one client whose commands of a few bytes hold
//! everybody else on its shard. What is looked at is the server's own count of steps, never time.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Client, Server, Start, until};

/// As many jobs as each of these commands is about: many slices of any of them.
const MANY: usize = 20_000;

/// Steps of one command in one turn.
const STEPS_MAX: u64 = 5000;

fn server() -> Server {
    Start::new().env("SHARDS", 1).env("COMPLETED_MAX", 100_000).start()
}

/// The most steps that a command has taken in one turn.
fn steps_of(client: &mut Client, command: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let label = format!("command=\"{command}\"}}");
    let lines = text.as_str().unwrap().lines();
    let of_command =
        |line: &&str| line.starts_with("corq_turn_steps_max{") && line.contains(&label);
    let steps = lines.filter(of_command).map(|line| line.rsplit_once(' ').unwrap().1);
    steps.map(|steps| steps.parse().unwrap()).max().unwrap_or(0)
}

/// Whether all that the server has done so far was done in slices.
pub(crate) fn is_sliced(client: &mut Client, command: &str) {
    for work in [command, "due", "news", "disconnect", "other"] {
        let steps = steps_of(client, work);
        assert!(steps <= STEPS_MAX, "{work} took {steps} steps in a turn, after {command}");
    }
    assert!(steps_of(client, command) > 0, "{command} is counted");
}

fn push_many(client: &mut Client, queue: &str, count: usize, job: &Value) -> Vec<Value> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let jobs = vec![job.clone(); 1000.min(count - ids.len())];
        let pushed = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        ids.extend(pushed["ids"].as_array().unwrap().iter().cloned());
    }
    ids
}

#[test]
fn no_command_is_begun_while_much_is_to_be_told_of_those_before() {
    let server = server();
    let mut client = server.client();
    let parts = push_many(&mut client, "part", 1000, &json!({"data": 1}));
    // As many dependencies as a batch may have, ten times.
    for _ in 0..10 {
        push_many(&mut client, "whole", 10, &json!({"data": 1, "dependsOn": parts}));
    }
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let mut lines = text.as_str().unwrap().lines();
    let waiting = lines.find_map(|line| line.strip_prefix("corq_notices_waiting "));
    let waiting: u64 = waiting.unwrap().parse().unwrap();
    assert!(waiting <= 4000, "{waiting} of 100000");
    assert_eq!(client.counted("whole", "waiting-children"), 100);
    for _ in 0..1000 / 100 {
        let ids = client.ok("PULLB", json!({"queue": "part", "count": 100}))["jobs"].clone();
        let ids: Vec<&Value> = ids.as_array().unwrap().iter().map(|job| &job["id"]).collect();
        client.ok("ACKB", json!({"ids": ids}));
    }
    let counted = |client: &mut Client| client.counted("whole", "waiting") == 100;
    until("all dependents to go on", || counted(&mut client).then_some(()));
}

/// The fear: each of many connections has only its share of a turn, and all of them have it in the same.
#[test]
fn listings_that_many_connections_ask_for_at_once_begin_a_few_in_a_turn() {
    let server = server();
    let mut client = server.client();
    push_many(&mut client, "q", MANY, &json!({"data": 1}));
    let mut askers: Vec<Client> = (0..300).map(|_| server.client()).collect();
    // Short rows, many of them; and looks at jobs that are passed over.
    for page in [json!({"limit": 1000}), json!({"limit": 10, "offset": MANY - 10, "asc": false})] {
        let mut fields = json!({"queue": "q"});
        fields.as_object_mut().unwrap().extend(page.as_object().unwrap().clone());
        // All of them come in one turn.
        server.freeze();
        for asker in &mut askers {
            asker.send("GetJobs", fields.clone()).unwrap();
        }
        server.signal(Signal::CONT);
        for asker in &mut askers {
            let jobs = asker.recv().unwrap()["jobs"].as_array().unwrap().len();
            assert_eq!(jobs as u64, fields["limit"].as_u64().unwrap());
        }
        is_sliced(&mut client, "GetJobs");
    }
}

/// The data of a child is written anew with its parent in it.
#[test]
fn a_turn_writes_a_parent_into_one_large_child_only() {
    const CHILDREN: usize = 4;
    const BYTES: usize = 3_000_000;
    let server = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4).start();
    let mut client = server.client();
    client.push_with("whole", 1, json!({"jobId": "root"}));
    for n in 0..CHILDREN {
        let data = json!({"text": "x".repeat(BYTES)});
        client.push_with("parts", data, json!({"jobId": format!("c{n}")}));
    }
    let of = |n: usize| json!({"childId": format!("c{n}"), "parentId": "root"});
    let linked: [Value; CHILDREN] =
        client.at_once(std::array::from_fn(|n| ("UpdateParent", of(n))));
    assert!(linked.iter().all(|reply| reply["ok"] == true), "{linked:?}");
    // The payload of the child is read, and copied into the log.
    let one = (BYTES / 4096 + BYTES / 1024) as u64;
    let steps = steps_of(&mut client, "UpdateParent");
    assert!((one..2 * one).contains(&steps), "{steps}");
    // Their records are on the disk only, by now.
    for _ in 0..12 {
        client.push("other", "x".repeat(1 << 20));
    }
    let removed: [Value; CHILDREN] = client.at_once(std::array::from_fn(|n| {
        ("RemoveChildDependency", json!({"id": format!("c{n}")}))
    }));
    assert!(removed.iter().all(|reply| reply["removed"] == true), "{removed:?}");
    let steps = steps_of(&mut client, "UpdateParent");
    assert!((one..2 * one).contains(&steps), "{steps}");
    for n in 0..CHILDREN {
        let job = client.ok("GetJob", json!({"id": format!("c{n}")}))["job"].clone();
        assert_eq!(job["data"]["text"].as_str().map(str::len), Some(BYTES));
        assert_eq!(job["data"]["__parentId"], Value::Null);
    }
    let waiting = crate::e2e::space::metrics(&mut client)["corq_child_patches_waiting"];
    assert_eq!(waiting, 0);
}

#[test]
fn the_answer_of_a_clean_that_names_many_jobs_is_written_in_slices() {
    // As many ids as would pass for more than a turn, in one go.
    const CLEANED: usize = 60_000;
    let server = server();
    let mut client = server.client();
    let pushed = push_many(&mut client, "q", CLEANED, &json!({"data": 1}));
    let answer = client.ok("Clean", json!({"queue": "q", "grace": 0, "limit": CLEANED}));
    assert_eq!((&answer["count"], &answer["ids"]), (&json!(CLEANED), &json!(pushed)));
    is_sliced(&mut client, "Clean");
    assert_eq!(client.ok("Clean", json!({"queue": "q", "grace": 0}))["ids"], json!([]));
}

/// Bytes of a payload that is copied in more steps than a turn may have.
const LARGE: usize = 6_000_000;

/// A batch whose second item is large, for as many queues as both shards have some of.
#[test]
fn a_large_item_of_a_batch_is_there_as_it_was_sent_wherever_its_queue_is() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let large = "x".repeat(LARGE);
    for queue in ["a", "b", "c", "d"] {
        let first = client.push_with(queue, 0, json!({"jobId": format!("{queue}-0")}));
        let jobs = json!([
            {"data": 1, "jobId": format!("{queue}-1")},
            {"data": {"text": large}, "jobId": format!("{queue}-2"), "dependsOn": [first]},
            {"data": 3, "groupId": "g", "groupMaxSize": 9},
        ]);
        let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
        let job = client.ok("GetJob", json!({"id": ids[1]}))["job"].clone();
        assert_eq!(job["data"]["text"].as_str().map(str::len), Some(LARGE));
        assert_eq!(
            (&job["customId"], &job["dependsOn"]),
            (&json!(format!("{queue}-2")), &json!([first]))
        );
        let (mut done, mut tokens) = (Vec::new(), Vec::new());
        while done.len() < 4 {
            let (job, token) = client.pull_owned(queue, 60_000);
            if job["id"] == json!(first) {
                client.ok("ACK", json!({"id": first, "token": token}));
            }
            done.push(job["id"].clone());
            tokens.push(json!(token));
        }
        let (ids, tokens) = (&done[1..], &tokens[1..]);
        let results = json!([1, {"text": large}, "x"]);
        client.ok("ACKB", json!({"ids": ids, "tokens": tokens, "results": results}));
        let result = client.ok("GetResult", json!({"id": ids[1]}))["result"].clone();
        assert_eq!(result["text"].as_str().map(str::len), Some(LARGE));
        assert_eq!(client.ok("GetResult", json!({"id": ids[2]}))["result"], "x");
    }
}

#[test]
fn a_large_item_of_a_batch_is_refused_in_the_words_of_a_small_one() {
    let server = server();
    let mut client = server.client();
    let (long, large) = ("x".repeat(10 << 20), "x".repeat(LARGE));
    let deep = (0..200).fold(json!(large), |inner, _| json!([inner]));
    let levels = corq::api::limits::DEPTH_MAX;
    for (data, told) in [
        (json!(long), "jobs[1]: data must be at most 10 MB".to_owned()),
        (deep, format!("jobs[1]: data must be at most {levels} levels deep")),
    ] {
        let jobs = json!([{"data": 1}, {"data": data}]);
        assert_eq!(client.refused("PUSHB", json!({"queue": "q", "jobs": jobs})), told);
    }
    let jobs = json!([{"data": 1}, {"data": large, "priority": "x"}]);
    let refused = client.refused("PUSHB", json!({"queue": "q", "jobs": jobs}));
    assert!(refused.starts_with("jobs[1]: priority"), "{refused}");
    let refused = client.refused("PUSHB", json!({"queue": "q", "jobs": [{"data": 1}, large]}));
    assert!(refused.starts_with("jobs[1]"), "{refused}");
    assert_eq!(client.counted("q", "waiting"), 0);
}

#[test]
fn a_large_payload_for_another_shard_is_copied_into_its_log_in_slices() {
    let server = Start::new().env("SHARDS", 2).start();
    let mut client = server.client();
    let data = json!({"text": "x".repeat(LARGE)});
    for queue in ["a", "b", "c", "d"] {
        let id = client.push(queue, data.clone());
        client.ok("Update", json!({"id": id, "data": data}));
        let (job, token) = client.pull_owned(queue, 60_000);
        assert_eq!(job["data"], data);
        let message = json!({"id": id, "progress": 5, "message": "x".repeat(LARGE)});
        client.ok("Progress", message.clone());
        assert_eq!(client.ok("GetProgress", json!({"id": id}))["message"], message["message"]);
        client.ok("ACK", json!({"id": id, "token": token, "result": data}));
        assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], data);
    }
    for command in ["PUSH", "Update", "Progress", "ACK"] {
        is_sliced(&mut client, command);
    }
}
