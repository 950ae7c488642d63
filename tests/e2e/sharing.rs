//! A client that sends far more than its share of a turn. The fear: what has to wait for the next turn is forgotten,
//! answered twice or out of order, or lost when its sender says that it is done.

use serde_json::json;

use crate::support::{Server, Start, encode, frame, until};

const COMMANDS: usize = 5000;

fn sharing(server: &Server) -> u64 {
    let numbers = server.web().get("/prometheus").text().to_owned();
    let line = numbers.lines().find_map(|line| line.strip_prefix("corq_connections_sharing "));
    line.unwrap().parse().unwrap()
}

/// Pushes of one client, of a length that divides nothing.
fn flood(queue: &str) -> Vec<u8> {
    let push = |n: usize| {
        let data = format!("{n}:{}", "x".repeat(n % 301));
        frame(&encode(
            &json!({"cmd": "PUSH", "reqId": n.to_string(), "queue": queue, "data": data}),
        ))
    };
    (0..COMMANDS).flat_map(push).collect()
}

#[test]
fn whoever_floods_and_leaves_is_answered_whole_and_in_order_beside_others_who_do() {
    for shards in [1, 2] {
        let server = Start::new().env("SHARDS", shards).start();
        let floods = ["a", "b", "c"].map(|queue| {
            let mut client = server.client();
            std::thread::spawn(move || {
                // Less than a socket takes in, so nothing has to be read in between.
                client.send_bytes(&flood(queue)).unwrap();
                client.shutdown_write();
                for n in 0..COMMANDS {
                    let reply =
                        client.recv().unwrap_or_else(|error| panic!("{queue} {n}: {error}"));
                    assert_eq!(
                        (&reply["ok"], &reply["reqId"]),
                        (&json!(true), &json!(n.to_string()))
                    );
                }
                assert!(client.is_closed_by_server());
            })
        });
        let mut other = server.client();
        for n in 0..100 {
            assert_eq!(other.ok("PUSH", json!({"queue": "quiet", "data": n}))["ok"], true);
        }
        for flood in floods {
            flood.join().unwrap();
        }
        for queue in ["a", "b", "c"] {
            assert_eq!(other.ok("Count", json!({"queue": queue}))["count"], COMMANDS);
            for n in [0, 1, 2] {
                let data = other.pull(queue)["data"].as_str().unwrap().to_owned();
                assert!(data.starts_with(&format!("{n}:")), "{data}");
            }
        }
        until("nobody waits for a share", || (sharing(&server) == 0).then_some(()));
    }
}

#[test]
fn what_waits_for_a_share_goes_with_its_connection() {
    let server = Start::new().env("SHARDS", 1).start();
    for _ in 0..20 {
        let mut client = server.client();
        client.send_bytes(&flood("gone")).unwrap();
        drop(client);
    }
    until("nobody waits for a share", || (sharing(&server) == 0).then_some(()));
    server.client().ok("Ping", json!({}));
}

/// Every way that a long frame takes over shards: to the owner of a queue, by the directory of a custom id, as a push that
/// claims one, as a flow. One that is counted for ever would stop the shard in the end.
#[test]
fn long_frames_that_go_to_other_shards_are_counted_until_they_are_taken() {
    const BYTES: usize = 100_000;
    let server = Start::new().env("SHARDS", 3).start();
    let mut watcher = server.client();
    for round in 0..5 {
        let mut client = server.client();
        for n in 0..10 {
            let (queue, id) = (format!("q{n}"), format!("id-{round}-{n}"));
            let data = "x".repeat(BYTES);
            client.ok("PUSH", json!({"queue": queue, "data": data}));
            client.ok("PUSH", json!({"queue": queue, "data": data, "jobId": id}));
            client.ok("Update", json!({"id": id, "data": data}));
            let flow = json!([
                {"id": format!("{id}-a"), "queue": queue, "input": {"data": data}},
                {"id": format!("{id}-b"), "queue": format!("p{n}"), "input": {"data": data}},
            ]);
            client.ok("PUSHF", json!({"jobs": flow}));
            let cron = json!({"name": "c", "queue": queue, "data": data, "schedule": "@yearly"});
            client.ok("Cron", cron);
            // The last of them are not waited for.
            for _ in 0..3 {
                let fields = json!({"queue": queue, "data": data, "jobId": format!("{id}-late")});
                client.send("PUSH", fields).unwrap();
            }
            for _ in 0..if n < 9 { 3 } else { 0 } {
                client.recv().unwrap();
            }
        }
    }
    until("all to be taken", || {
        let numbers = crate::e2e::space::metrics(&mut watcher);
        (numbers[r#"corq_client_memory_bytes{account="commands"}"#] == 0).then_some(())
    });
}
