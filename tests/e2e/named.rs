//! Names of jobs beside their data, as version 3 of the protocol has them. The fear: a name that is lost on
//! one of the ways a job is shown, or that shows up where nobody gave one.

use serde_json::{Value, json};

use crate::support::stream::{Sse, WebSocket};
use crate::support::{Client, Start, until};
use crate::{client, queue, shared};

#[test]
fn hello_answers_the_version_that_was_asked_for() {
    let mut client = client();
    for (asked, version, capabilities) in [
        (1, 2, json!(["pipelining"])),
        (2, 2, json!(["pipelining"])),
        (3, 3, json!(["pipelining", "separate-job-name"])),
        (9, 3, json!(["pipelining", "separate-job-name"])),
    ] {
        let reply = client.ok("Hello", json!({"protocolVersion": asked}));
        assert_eq!(reply["protocolVersion"], version);
        assert_eq!(reply["capabilities"], capabilities);
    }
}

/// That a job bears a name, or none, and its data as they went.
#[track_caller]
fn is_named(job: &Value, name: Option<&str>, data: &Value) {
    assert_eq!(job.get("name").and_then(Value::as_str), name, "{job}");
    assert_eq!(job["data"], *data, "{job}");
}

#[test]
fn a_name_comes_back_beside_the_data_where_it_was_given_and_nowhere_else() {
    let (mut client, queue) = (client(), queue("named"));
    let mut events = Sse::open(shared().http, &format!("/events/queues/{queue}"));
    // Clients of version 2 have the name in the data: it stays there.
    let old = json!({"name": "inside", "n": 1});
    let jobs = json!([
        {"data": 7, "name": "send"}, {"data": old}, {"data": old, "name": "beside"}, {"data": "x", "name": null}
    ]);
    let expected =
        [(Some("send"), json!(7)), (None, old.clone()), (Some("beside"), old), (None, json!("x"))];
    let ids = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}))["ids"].clone();
    for (place, (name, data)) in expected.iter().enumerate() {
        is_named(&client.ok("GetJob", json!({"id": ids[place]}))["job"], *name, data);
        is_named(&events.next(), *name, data);
    }
    let listed = client.ok("GetJobs", json!({"queue": queue}))["jobs"].clone();
    for (place, (name, data)) in expected.iter().enumerate() {
        is_named(&listed[place], *name, data);
    }
    is_named(&client.pull(&queue), expected[0].0, &expected[0].1);
    let mut socket = WebSocket::open(shared().http, "/ws/queues/nothing-here");
    let pulled = socket.ok("PULL", json!({"queue": queue}))["job"].clone();
    is_named(&pulled, expected[1].0, &expected[1].1);
    let pulled = shared().web().get(&format!("/queues/{queue}/jobs")).json();
    is_named(&pulled["job"], expected[2].0, &expected[2].1);
    is_named(
        &client.ok("PULLB", json!({"queue": queue, "count": 9}))["jobs"][0],
        None,
        &json!("x"),
    );
    client.ok("FAIL", json!({"id": ids[0], "error": "no", "unrecoverable": true}));
    let dead = client.ok("Dlq", json!({"queue": queue}))["jobs"][0].clone();
    is_named(&dead, expected[0].0, &expected[0].1);
    client.ok("RetryDlq", json!({"queue": queue}));
    is_named(&client.pull(&queue), expected[0].0, &expected[0].1);
}

#[test]
fn a_name_stays_when_the_data_change_and_goes_on_from_run_to_run() {
    let (mut client, queue) = (client(), queue("renamed"));
    let options = json!({"name": "tick", "repeat": {"every": 1, "limit": 3}});
    let id = client.push_with(&queue, 1, options);
    client.ok("Update", json!({"id": id, "data": {"n": 2}}));
    for _ in 0..3 {
        let (job, token) = client.pull_owned(&queue, 30_000);
        is_named(&job, Some("tick"), &json!({"n": 2}));
        client.ok("ACK", json!({"id": job["id"], "token": token}));
    }
}

fn named_jobs(client: &mut Client) -> Value {
    client.ok("GetJobs", json!({"queue": "q", "limit": 1000}))["jobs"].clone()
}

#[test]
fn names_outlive_a_kill_whatever_became_of_their_jobs() {
    let mut server = Start::new().start();
    let mut client = server.client();
    // More than a queue holds in one place.
    let jobs: Vec<Value> = (0..600)
        .map(|n| json!({"data": n, "name": format!("name {}", n % 300), "maxAttempts": 1}))
        .collect();
    client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    for n in 0..20 {
        let job = client.pull("q");
        match n % 2 {
            0 => client.ok("ACK", json!({"id": job["id"]})),
            _ => client.ok("FAIL", json!({"id": job["id"], "error": "no"})),
        };
    }
    let before = named_jobs(&mut client);
    for (n, job) in before.as_array().unwrap().iter().enumerate() {
        assert_eq!(job["name"], format!("name {}", n % 300));
    }
    for _ in 0..2 {
        server.kill();
        server.start();
        assert_eq!(named_jobs(&mut server.client()), before);
    }
}

#[test]
fn the_jobs_of_a_schedule_bear_the_name_it_gives_them_also_after_a_kill() {
    let mut server = Start::new().start();
    let cron =
        json!({"name": "c", "queue": "q", "data": [1], "repeatEvery": 20, "jobName": "tick"});
    server.client().ok("Cron", cron);
    let plain = json!({"name": "plain", "queue": "p", "data": 1, "repeatEvery": 20});
    server.client().ok("Cron", plain);
    for _ in 0..2 {
        let mut client = server.client();
        let crons = client.ok("CronList", json!({}))["crons"].clone();
        let of = |name| crons.as_array().unwrap().iter().find(|cron| cron["name"] == name).unwrap();
        assert_eq!((&of("c")["jobName"], of("plain").get("jobName")), (&json!("tick"), None));
        client.ok("Drain", json!({"queue": "q"}));
        let job = until("a run", || Some(client.pull("q")).filter(Value::is_object));
        is_named(&job, Some("tick"), &json!([1]));
        let job = until("a run", || Some(client.pull("p")).filter(Value::is_object));
        is_named(&job, None, &json!(1));
        server.kill();
        server.start();
    }
}
