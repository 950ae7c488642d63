//! Requests of a few bytes that are answered with megabytes, by another shard than the one that has the
//! connection. The fear: memory that nobody bounds on the way between them, or an answer or a job that is lost
//! where requests are set aside.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value as Json, json};

use crate::e2e::space::metrics;
use crate::support::stream::WebSocket;
use crate::support::{Client, Server, Start, encode, frame, until};

/// Enough connections for some to be on the other shard.
const CONNECTIONS: usize = 6;

fn two_shards() -> Server {
    Start::new().env("SHARDS", 2).env("CLIENT_MEMORY_MB", 2048).start()
}

fn peak_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse().unwrap()
}

fn push_large(server: &Server, queue: &str, jobs: usize, bytes: usize) {
    let mut client = server.client();
    for _ in 0..jobs {
        client.push(queue, "x".repeat(bytes));
    }
}

/// Figures of replies on their way and of requests that wait for them; all must come to nothing.
fn under_way(numbers: &BTreeMap<String, u64>) -> [u64; 4] {
    let held =
        |account: &str| numbers[&format!("corq_client_memory_bytes{{account=\"{account}\"}}")];
    [held("in_transit"), held("lists"), held("disk_reads"), numbers["corq_requests_set_aside"]]
}

fn await_quiet(server: &Server) {
    let mut client = server.client();
    until("nothing to be under way", || (under_way(&metrics(&mut client)) == [0; 4]).then_some(()));
}

#[test]
fn lists_that_nobody_reads_are_bounded_over_all_shards_and_none_is_lost() {
    const LISTS: usize = 30;
    let server = two_shards();
    push_large(&server, "large", 10, 900_000);
    let before = peak_kb(&server);
    let ask = frame(&encode(&json!({"cmd": "GetJobs", "queue": "large", "reqId": 7})));
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    for client in &mut clients {
        client.take_little();
        client.send_bytes(&ask.repeat(LISTS)).unwrap();
    }
    // A small request is answered, whatever the others have asked for.
    let mut other = server.client();
    assert_eq!(other.ok("GetJobCounts", json!({"queue": "large"}))["counts"]["waiting"], 10);
    for client in &mut clients {
        for number in 0..LISTS {
            let reply = client.recv_value().unwrap_or_else(|error| panic!("{number}: {error}"));
            let jobs = reply["jobs"].as_array().unwrap_or_else(|| panic!("{number}: {reply}"));
            assert_eq!(jobs.len(), 10, "{number}");
        }
    }
    let grown = peak_kb(&server).saturating_sub(before);
    assert!(grown < 400 << 10, "{grown} kB more");
    await_quiet(&server);
}

/// Few bytes of a result may be many as JSON, and all who ask for it are heard in one turn.
#[test]
fn results_that_many_ask_for_at_once_are_written_as_they_go_out() {
    const SOCKETS: usize = 16;
    const BYTES: usize = 2 << 20;
    let start = Start::new().env("SHARDS", 1).env("STREAM_KEEP_ALIVE_MS", 3_600_000);
    let server = start.env("CLIENT_MEMORY_MB", 256).start();
    let mut client = server.client();
    let id = client.push("q", 1);
    client.pull("q");
    client.ok("ACK", json!({"id": id, "result": "\u{1}".repeat(BYTES)}));
    let mut sockets: Vec<_> = (0..SOCKETS)
        .map(|_| {
            let socket = WebSocket::open(server.http, "/ws/queues/none");
            socket2::SockRef::from(socket.socket.get_ref())
                .set_recv_buffer_size(128 << 10)
                .unwrap();
            socket
        })
        .collect();
    let before = peak_kb(&server);
    server.freeze();
    for socket in &mut sockets {
        socket.send("GetResult", json!({"id": id}));
    }
    server.signal(rustix::process::Signal::CONT);
    until("nobody is left to be answered", || {
        let numbers = metrics(&mut client);
        let crowded_out = numbers["corq_output_crowded_out_total"] > 0;
        (crowded_out && numbers["corq_requests_set_aside"] == 0).then_some(())
    });
    // All that there may be of output, and an answer or two more while they are made.
    let grown = peak_kb(&server).saturating_sub(before) >> 10;
    assert!(grown <= 64 + 4 * ((6 * BYTES as u64) >> 20), "{grown} MB more");
    drop(sockets);
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"].as_str().unwrap().len(), BYTES);
}

/// Long lists are written over several turns, and may have to read each slice from the disk.
#[test]
fn a_list_of_many_slices_is_whole_and_in_order() {
    const JOBS: usize = 14;
    const BYTES: usize = 1_500_000;
    let server = Start::new().env("SHARDS", 2).env("PAYLOAD_CACHE_MB", 4).start();
    for name in ["list-a", "list-b", "list-c"] {
        let mut client = server.client();
        let push = |n: usize| {
            let data = format!("{n}-{}", "x".repeat(BYTES));
            json!({"queue": name, "data": data, "maxAttempts": 1})
        };
        let ids: Vec<Json> = (0..JOBS).map(|n| client.ok("PUSH", push(n))["id"].clone()).collect();
        let list = client.ok("GetJobs", json!({"queue": name, "limit": 100}));
        let of = |list: &Json| -> Vec<Json> {
            list.as_array().unwrap().iter().map(|job| job["id"].clone()).collect()
        };
        assert_eq!(of(&list["jobs"]), ids);
        for (n, job) in list["jobs"].as_array().unwrap().iter().enumerate() {
            assert!(job["data"].as_str().unwrap().starts_with(&format!("{n}-x")));
        }
        for _ in 0..JOBS {
            let id = client.pull(name)["id"].clone();
            client.ok("FAIL", json!({"id": id, "error": "for good"}));
        }
        let letters = client.ok("Dlq", json!({"queue": name, "count": 100}));
        assert_eq!(of(&letters["jobs"]), ids);
        // A filter shows what there is to say of each beside it.
        let letters = client.ok("Dlq", json!({"queue": name, "count": 100, "filter": {}}));
        assert_eq!(of(&letters["jobs"]), ids);
        let entries = letters["entries"].as_array().unwrap();
        let shown: Vec<Json> = entries.iter().map(|entry| entry["job"]["id"].clone()).collect();
        assert_eq!(shown, ids);
    }
    await_quiet(&server);
}

#[test]
fn commands_that_ask_for_little_overtake_a_list_and_lists_wait_for_each_other() {
    let server = two_shards();
    push_large(&server, "large", 10, 900_000);
    for _ in 0..CONNECTIONS {
        let mut client = server.client();
        let mut sent = HashSet::new();
        for _ in 0..5 {
            sent.insert(client.send("GetJobs", json!({"queue": "large"})).unwrap());
            sent.insert(client.send("Count", json!({"queue": "large"})).unwrap());
            sent.insert(client.send("Dlq", json!({"queue": "large"})).unwrap());
            sent.insert(client.send("ListQueues", json!({})).unwrap());
            sent.insert(client.send("PUSH", json!({"queue": "small", "data": 1})).unwrap());
        }
        while !sent.is_empty() {
            let reply = client.recv().unwrap();
            assert_eq!(reply["ok"], true);
            assert!(sent.remove(reply["reqId"].as_str().unwrap()));
        }
    }
    await_quiet(&server);
}

/// Pulls without locks, so that what a connection got goes back when it ends.
#[test]
fn jobs_of_pulls_that_are_set_aside_are_delivered_once_or_go_back() {
    const JOBS: usize = 60;
    let server = two_shards();
    push_large(&server, "large", JOBS, 900_000);
    let pulls = frame(&encode(&json!({"cmd": "PULLB", "queue": "large", "count": 5}))).repeat(10);
    let mut observer = server.client();
    let mut came = metrics(&mut observer)["corq_connections_accepted_total"];
    // All that those have asked for who have gone is done with, also what had not been read when they went.
    let mut all_are_back = |observer: &mut Client| {
        came += CONNECTIONS as u64;
        until("all jobs to be back", || {
            let now = metrics(observer);
            let gone =
                now["corq_connections_accepted_total"] >= came && now["corq_connections"] == 1;
            (gone && observer.counted("large", "waiting") == JOBS as u64).then_some(())
        });
    };
    for _ in 0..3 {
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
        for client in &mut clients {
            client.send_bytes(&pulls).unwrap();
        }
        drop(clients);
        all_are_back(&mut observer);
    }
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send_bytes(&pulls).unwrap();
    }
    let mut ids = HashSet::new();
    for client in &mut clients {
        for _ in 0..10 {
            for job in client.recv().unwrap()["jobs"].as_array().unwrap() {
                assert!(ids.insert(job["id"].as_str().unwrap().to_owned()), "delivered twice");
            }
        }
    }
    assert_eq!(ids.len(), JOBS);
    drop(clients);
    all_are_back(&mut observer);
    await_quiet(&server);
}

#[test]
fn lists_over_websocket_are_all_answered_from_every_shard() {
    const LISTS: u64 = 8;
    let server = two_shards();
    push_large(&server, "large", 3, 900_000);
    let open = |_| WebSocket::open(server.http, "/ws/queues/nothing-happens-here");
    let mut sockets: Vec<WebSocket> = (0..CONNECTIONS).map(open).collect();
    for socket in &mut sockets {
        for number in 0..LISTS {
            socket.send_text(&format!(r#"{{"cmd":"GetJobs","queue":"large","reqId":{number}}}"#));
        }
    }
    for socket in &mut sockets {
        let mut answered: Vec<u64> = Vec::new();
        for _ in 0..LISTS {
            let reply: Json = socket.recv();
            assert_eq!(reply["jobs"].as_array().unwrap().len(), 3);
            answered.push(reply["reqId"].as_u64().unwrap());
        }
        assert_eq!(answered, (0..LISTS).collect::<Vec<_>>(), "one after the other");
    }
    await_quiet(&server);
}
