//! Connections that follow their queue to its shard. The fear: a command, a reply or a job that is
//! lost or doubled on the way, or a connection that waits for its own move.

use serde_json::json;

use crate::support::{Client, Server, Start, until};

fn two_shards() -> Server {
    Start::new().env("SHARDS", 2).start()
}

/// Connections that have moved so far.
fn moved(server: &Server) -> u64 {
    let reply = server.client().ok("Prometheus", json!({}));
    let text = reply["data"]["metrics"].as_str().unwrap().to_owned();
    let line = text.lines().find(|line| line.starts_with("corq_connections_moved_total "));
    line.unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// Speaks to one queue after the other until the connection has followed one of them.
fn travel(server: &Server, client: &mut Client) {
    let before = moved(server);
    let travelled = (0..64).any(|n| {
        let queue = format!("abroad-{n}");
        (0..200).for_each(|_| assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], 0));
        moved(server) > before
    });
    assert!(travelled, "64 queues on two shards, and none of them on the other");
}

#[test]
fn jobs_stay_with_a_connection_that_moves_and_go_back_when_it_ends() {
    let server = two_shards();
    let mut client = server.client();
    let (first, second) = (client.push("work", 1), client.push("work", 2));
    assert_eq!(client.pull("work")["id"], json!(first));
    assert_eq!(client.pull("work")["id"], json!(second));
    travel(&server, &mut client);
    assert_eq!((client.state(&first), client.state(&second)), ("active".into(), "active".into()));
    client.ok("ACK", json!({"id": first}));
    drop(client);
    let mut other = server.client();
    until("the job to come back", || (other.state(&second) == "waiting").then_some(()));
    assert_eq!(other.state(&first), "completed");
}

#[test]
fn a_worker_stays_registered_while_its_connection_moves() {
    let server = two_shards();
    let mut client = server.client();
    client.ok("RegisterWorker", json!({"name": "w", "queues": ["work"]}));
    travel(&server, &mut client);
    let mut other = server.client();
    assert_eq!(other.ok("ListWorkers", json!({}))["data"]["stats"]["total"], 1);
    drop(client);
    until("the worker to go", || {
        (other.ok("ListWorkers", json!({}))["data"]["stats"]["total"] == 0).then_some(())
    });
}

#[test]
fn pipelined_commands_are_answered_once_each_while_their_connection_moves() {
    const WINDOW: usize = 50;
    const JOBS: usize = 2000;
    let server = two_shards();
    for n in 0..64 {
        let queue = format!("pipelined-{n}");
        let mut client = server.client();
        let mut unanswered = std::collections::HashSet::new();
        for job in 0..JOBS {
            if job >= WINDOW {
                let reply = client.recv().unwrap();
                assert_eq!(reply["ok"], true, "{reply}");
                assert!(unanswered.remove(reply["reqId"].as_str().unwrap()), "{reply}");
            }
            let sent = client.send("PUSH", json!({"queue": queue, "data": job})).unwrap();
            assert!(unanswered.insert(sent));
        }
        while !unanswered.is_empty() {
            let reply = client.recv().unwrap();
            assert!(unanswered.remove(reply["reqId"].as_str().unwrap()), "{reply}");
        }
        assert_eq!(client.ok("Count", json!({"queue": queue}))["count"], JOBS);
        for job in 0..JOBS {
            assert_eq!(client.pull(&queue)["data"], job, "in the order they were sent");
        }
        if n > 0 && moved(&server) > 0 {
            return;
        }
    }
    panic!("no connection has moved");
}

#[test]
fn a_connection_that_waits_for_a_job_is_not_held_up_by_its_move() {
    let server = two_shards();
    for n in 0..8 {
        let queue = format!("waiting-{n}");
        let mut client = server.client();
        let pull = client.send("PULL", json!({"queue": queue, "timeout": 60_000})).unwrap();
        for _ in 0..500 {
            assert_eq!(client.ok("IsPaused", json!({"queue": queue}))["paused"], false);
        }
        server.client().push(&queue, "at last");
        let reply = client.recv().unwrap();
        assert_eq!((&reply["reqId"], &reply["job"]["data"]), (&json!(pull), &json!("at last")));
    }
}

#[test]
fn a_half_closed_connection_is_answered_although_it_was_about_to_move() {
    let server = two_shards();
    for n in 0..16 {
        let queue = format!("closing-{n}");
        let mut client = server.client();
        for job in 0..200 {
            client.send("PUSH", json!({"queue": queue, "data": job})).unwrap();
        }
        client.shutdown_write();
        for _ in 0..200 {
            assert_eq!(client.recv().unwrap()["ok"], true);
        }
        assert!(client.is_closed_by_server());
        assert_eq!(server.client().ok("Count", json!({"queue": queue}))["count"], 200);
    }
}
