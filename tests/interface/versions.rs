//! Which version of the protocol a connection speaks, and how it settles. The fear: a client that gets the shapes of a version
//! that it does not know.

use serde_json::{Value, json};

use crate::support::stream::WebSocket;
use crate::support::{Client, Server, Start};
use crate::{client, queue, shared};

/// A connection that has said which version it speaks.
pub(crate) fn speaking(version: u64) -> Client {
    let mut client = client();
    let reply = client.ok("Hello", json!({ "protocolVersion": version }));
    assert_eq!(reply["protocolVersion"], version);
    client
}

/// Which version a connection speaks: 3 lists queues as names, 2 as objects.
#[track_caller]
fn version(client: &mut Client) -> u64 {
    let reply = client.ok("ListQueues", json!({}));
    version_of(&reply)
}

#[track_caller]
fn version_of(reply: &Value) -> u64 {
    let queues = reply["queues"].as_array().unwrap();
    assert!(!queues.is_empty(), "a test has pushed before it asks");
    if queues.iter().all(Value::is_string) {
        return 3;
    }
    assert!(queues.iter().all(|queue| queue["name"].is_string()), "{reply}");
    2
}

/// A queue with a job, so that lists of queues are not empty.
fn filled(topic: &str) -> String {
    let queue = queue(topic);
    client().ok("PUSH", json!({ "queue": queue, "data": 1 }));
    queue
}

#[test]
fn a_connection_speaks_version_2_until_it_tells() {
    let queue = filled("untold");
    let mut client = client();
    assert_eq!(version(&mut client), 2);
    for (cmd, fields) in [
        ("PUSH", json!({ "queue": queue, "data": { "name": "inside" }, "jobId": queue })),
        ("GetJob", json!({ "id": queue })),
        ("GetDlqConfig", json!({ "queue": queue })),
        // A field without a value was not used.
        ("PUSH", json!({ "queue": queue, "data": 1, "name": null })),
        ("PULL", json!({ "queue": queue, "group": null })),
    ] {
        client.ok(cmd, fields);
        assert_eq!(version(&mut client), 2, "{cmd} is of version 2");
    }
}

#[test]
fn hello_settles_the_version_of_its_connection_alone() {
    let queue = filled("hello");
    let mut other = client();
    let mut client = speaking(3);
    assert_eq!((version(&mut client), version(&mut other)), (3, 2));
    client.ok("Hello", json!({ "protocolVersion": 2 }));
    assert_eq!(version(&mut client), 2);
    // The client has said its version, so fields of version 3 change nothing any more.
    client.ok("PUSH", json!({ "queue": queue, "data": 1, "name": "n" }));
    client.ok("GetQueueLimits", json!({ "queue": queue }));
    assert_eq!(version(&mut client), 2);
}

#[test]
fn what_only_version_3_has_settles_the_version_from_that_frame_on() {
    let queue = filled("first-use");
    let calls = [
        ("PUSH", json!({ "queue": queue, "data": 1, "name": "n" })),
        ("PUSHB", json!({ "queue": queue, "jobs": [{ "data": 1 }, { "data": 1, "name": "n" }] })),
        ("PUSH", json!({ "queue": queue, "data": 1, "groupId": "g", "groupMaxSize": 9 })),
        ("PULL", json!({ "queue": queue, "group": { "concurrency": 9 } })),
        ("Dlq", json!({ "queue": queue, "filter": null })),
        ("GetQueueLimits", json!({ "queue": queue })),
        ("GetDeduplicationJobId", json!({ "queue": queue, "deduplicationId": "d" })),
        ("IsGroupPaused", json!({ "queue": queue, "groupId": "g" })),
        ("SubscribeEvents", json!({ "queue": "another" })),
        ("TrimEvents", json!({ "queue": queue, "maxLength": 1 })),
    ];
    for (cmd, fields) in calls {
        let mut client = client();
        assert_eq!(version(&mut client), 2);
        client.ok(cmd, fields.clone());
        assert_eq!(version(&mut client), 3, "{cmd} {fields}");
    }
}

/// The first frame of the npm client may be a push of nothing: it is read as what it is, in whatever order its fields come.
#[test]
fn the_frame_that_settles_the_version_is_itself_read_as_version_3() {
    let queue = queue("settling");
    let mut first = client();
    let id = first.ok("PUSH", json!({ "queue": queue, "name": "tick" }))["id"].clone();
    let job = first.ok("GetJob", json!({ "id": id }))["job"].clone();
    assert_eq!((&job["data"], &job["name"]), (&Value::Null, &json!("tick")));
    assert_eq!(version(&mut first), 3);
    let mut batch = client();
    let jobs = json!([{ "name": "a" }, { "data": 2 }]);
    batch.ok("PUSHB", json!({ "queue": queue, "jobs": jobs }));
}

#[test]
fn a_frame_that_is_wrong_in_both_versions_settles_neither() {
    let queue = filled("wrong");
    let mut client = client();
    let padding = "x".repeat(64 << 10);
    let mut long: Vec<Value> = (0..12).map(|_| json!({ "data": padding, "name": "n" })).collect();
    long[11] = json!({ "name": 1 });
    for (cmd, fields, error) in [
        ("PUSH", json!({ "name": "n", "priority": "x" }), "priority must be an integer"),
        (
            "PUSHB",
            json!({ "jobs": [{ "name": "n", "data": 1 }, { "delay": "x" }] }),
            "jobs[1]: delay must be an integer",
        ),
        ("PUSHB", json!({ "jobs": long }), "jobs[11]: name must be a string"),
        ("GetQueueLimits", json!({ "maxJobs": 0 }), "maxJobs must be between 1 and 4294967295"),
    ] {
        let mut fields = fields;
        fields["queue"] = json!(queue);
        assert_eq!(client.refused(cmd, fields), error);
        assert_eq!(version(&mut client), 2, "{error}");
    }
}

#[test]
fn a_batch_settles_the_version_by_any_of_its_jobs() {
    let queue = filled("long-batch");
    for count in [2500, 12] {
        let padding = "x".repeat(if count > 100 { 1 } else { 64 << 10 });
        let mut jobs: Vec<Value> = (0..count).map(|_| json!({ "data": padding })).collect();
        let mut client = client();
        client.ok("PUSHB", json!({ "queue": queue, "jobs": jobs }));
        assert_eq!(version(&mut client), 2);
        let (half, last) = (count / 2, count - 1);
        jobs[half] = json!({ "data": padding, "name": "n" });
        jobs[last] = json!({ "name": "without data" });
        let ids = client.ok("PUSHB", json!({ "queue": queue, "jobs": jobs }))["ids"].clone();
        let last = client.ok("GetJob", json!({ "id": ids[last] }))["job"].clone();
        assert_eq!((&last["data"], &last["name"]), (&Value::Null, &json!("without data")));
        assert_eq!(version(&mut client), 3);
    }
}

/// The version travels with a command: whichever shard answers it, the reply is that of the connection.
#[test]
fn a_command_that_is_forwarded_keeps_the_version_of_its_connection() {
    let server = Start::new().env("SHARDS", 3).start();
    let mut three = server.client();
    three.ok("Hello", json!({ "protocolVersion": 3 }));
    let mut two = server.client();
    for number in 0..24 {
        let queue = format!("forwarded-{number}");
        // Custom ids and dependencies go by the shards of their names first.
        let id = format!("job-{number}");
        three.ok("PUSH", json!({ "queue": queue, "jobId": id }));
        let depends = json!({ "queue": queue, "dependsOn": [id], "name": "n" });
        three.ok("PUSH", depends);
        three.ok("Update", json!({ "id": id }));
        let error = two.refused("PUSH", json!({ "queue": queue, "jobId": format!("{id}-2") }));
        assert_eq!(error, "data is required");
        assert_eq!(two.refused("Update", json!({ "id": id })), "data is required");
        let cron = json!({ "name": queue, "queue": queue, "repeatEvery": 3_600_000 });
        three.ok("Cron", cron.clone());
        assert_eq!(two.refused("Cron", cron), "data is required");
    }
    assert_eq!((version(&mut three), version(&mut two)), (3, 2));
}

#[test]
fn websocket_and_http_speak_version_2_unless_hello_says_otherwise() {
    let queue = filled("surfaces");
    let mut socket = WebSocket::open(shared().http, "/ws/queues/nothing-here");
    socket.ok("PUSH", json!({ "queue": queue, "data": 1, "name": "n" }));
    socket.ok("GetQueueLimits", json!({ "queue": queue }));
    assert_eq!(version_of(&socket.ok("ListQueues", json!({}))), 2);
    socket.ok("Hello", json!({ "protocolVersion": 3 }));
    assert_eq!(version_of(&socket.ok("ListQueues", json!({}))), 3);
    let path = format!("/queues/{queue}/jobs");
    let answer = shared().web().post(&path, json!({ "name": "n" }));
    assert_eq!(answer.refused(400), "data is required");
}

#[test]
fn protocol_default_says_what_those_speak_that_do_not_tell() {
    let server = Start::new().env("PROTOCOL_DEFAULT", 3).start();
    let mut client = server.client();
    client.ok("PUSH", json!({ "queue": "untold" }));
    assert_eq!(version(&mut client), 3);
    client.ok("Hello", json!({ "protocolVersion": 2 }));
    assert_eq!(version(&mut client), 2);
    assert_eq!(client.refused("PUSH", json!({ "queue": "untold" })), "data is required");
    let mut socket = WebSocket::open(server.http, "/ws/queues/nothing-here");
    assert_eq!(version_of(&socket.ok("ListQueues", json!({}))), 2);
}

#[test]
fn a_wrong_protocol_default_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for value in ["1", "4", "three"] {
        let start = Start::new().env("PROTOCOL_DEFAULT", value);
        let (status, output) = start.run_to_its_end(&dir.path().join("d"));
        assert!(!status.success() && output.contains("PROTOCOL_DEFAULT"), "{value}: {output}");
    }
}

#[test]
fn commands_behind_hello_in_one_piece_are_read_in_its_version() {
    let queue = filled("one-piece");
    let mut client = client();
    let [hello, list, push] = client.at_once([
        ("Hello", json!({ "protocolVersion": 3 })),
        ("ListQueues", json!({})),
        ("PUSH", json!({ "queue": queue })),
    ]);
    assert_eq!((&hello["ok"], version_of(&list), &push["ok"]), (&json!(true), 3, &json!(true)));
}

pub(crate) fn speaking_to(server: &Server, version: u64) -> Client {
    let mut client = server.client();
    client.ok("Hello", json!({ "protocolVersion": version }));
    client
}
