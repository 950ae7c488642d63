//! Clients that behave badly, and the moments at which a good one looks like a bad one. The fear: a
//! connection, a command or memory that is never let go, or a reply that nobody remembers to send.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, Server, Start, encode, frame, until};

/// Replies to what was sent before should be there within this; a forgotten one never comes.
const SOON: Duration = Duration::from_mins(2);

const UUID_7: &str = "0190b5a0-1234-7abc-8def-0123456789";

fn memory_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse().unwrap()
}

/// Sockets that the server has open. Its log makes files when it likes.
pub(crate) fn open_sockets(server: &Server) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let named = open.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    named.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
}

fn commands(count: usize, command: &Value) -> Vec<u8> {
    frame(&encode(command)).repeat(count)
}

/// A server whose payload memory is as small as it may be, with a job that has long left it.
fn server_with_a_cold_job() -> (Server, String) {
    let server = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4).start();
    let mut client = server.client();
    let id = client.push("cold", "x".repeat(1 << 20));
    for _ in 0..24 {
        client.push("other", "y".repeat(1 << 20));
    }
    (server, id)
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_request_leaves_no_connection_behind() {
    let server = Server::start_default();
    let before = open_sockets(&server);
    let mut sockets = Vec::new();
    for (port, part) in [(server.tcp, &b"\0\0\0\x64\x82"[..]), (server.http, b"GET /hea")] {
        for _ in 0..40 {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            socket.write_all(part).unwrap();
            sockets.push(socket);
        }
    }
    until("they are accepted", || (open_sockets(&server) > before + 60).then_some(()));
    server.client().ok("Ping", json!({}));
    drop(sockets);
    until("the connections are closed", || (open_sockets(&server) < before + 20).then_some(()));
}

#[test]
fn a_long_poll_that_waited_for_its_turn_still_ends_in_time() {
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let pull = |timeout| json!({"queue": "empty", "timeout": timeout});
    for _ in 0..50 {
        client.send("PULL", pull(300)).unwrap();
    }
    client.send("PULL", pull(200)).unwrap();
    for number in 0..51 {
        let reply = client.recv_within(SOON);
        assert!(reply.is_some(), "reply {number} never came");
    }
}

#[test]
fn commands_behind_fifty_cold_reads_get_their_turn() {
    let (server, id) = server_with_a_cold_job();
    let mut client = server.client();
    client.send_bytes(&commands(120, &json!({"cmd": "GetJob", "id": id}))).unwrap();
    for number in 0..120 {
        let reply = client.recv_within(SOON).unwrap_or_else(|| panic!("reply {number} never came"));
        assert_eq!(reply["ok"], true, "{reply}");
    }
}

#[test]
fn a_half_closed_connection_ends_once_its_cold_read_is_answered() {
    let (server, id) = server_with_a_cold_job();
    let mut socket = TcpStream::connect(("127.0.0.1", server.tcp)).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket.write_all(&commands(1, &json!({"cmd": "GetJob", "id": id}))).unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("the server closes the connection");
    assert!(answer.len() > 1 << 20);
}

/// Checks requests of a few bytes for large replies: memory must not follow the asking, and a client that reads after
/// all must get all of it.
fn unread_replies_are_bounded_and_none_is_lost(server: &Server, id: &str, most_mb: u64) {
    let before = memory_kb(server);
    let mut client = server.client();
    client.send_bytes(&commands(600, &json!({"cmd": "GetJob", "id": id}))).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    for number in 0..600 {
        let reply = client.recv().unwrap_or_else(|error| panic!("reply {number}: {error}"));
        assert_eq!(reply["ok"], true, "{number}: {reply}");
    }
    let grown = memory_kb(server).saturating_sub(before);
    assert!(grown < most_mb << 10, "{grown} kB more");
}

#[test]
fn replies_that_a_client_is_slow_to_read_are_bounded_and_none_is_lost() {
    // With the least memory as well, of which output has less than fifty replies take.
    let start = Start::new().env("SHARDS", 1);
    for (start, most_mb) in [(start.clone(), 250), (start.env("CLIENT_MEMORY_MB", 128), 200)] {
        let server = start.start();
        let id = server.client().push("warm", "x".repeat(1 << 20));
        unread_replies_are_bounded_and_none_is_lost(&server, &id, most_mb);
    }
}

#[test]
fn cold_replies_that_a_client_is_slow_to_read_are_bounded_and_none_is_lost() {
    let (server, id) = server_with_a_cold_job();
    unread_replies_are_bounded_and_none_is_lost(&server, &id, 250);
}

#[test]
fn a_stranger_gets_no_memory_for_a_large_frame() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let mut stranger = server.client();
    stranger.send_bytes(&(1_u32 << 20).to_be_bytes()).unwrap();
    assert_eq!(stranger.recv().unwrap()["error"], "Not authenticated");
    assert!(stranger.is_closed_by_server());
    let mut known = server.client();
    known.ok("Auth", json!({"token": "secret"}));
    known.push("large", "x".repeat(1 << 20));
}

/// Queues of every shard, and in each an active job whose custom id looks like one of the server's.
fn pulled_under_uuids(client: &mut Client, topic: &str, owned: bool) -> (Vec<String>, Vec<Value>) {
    let (mut ids, mut tokens) = (Vec::new(), Vec::new());
    for number in 10..18 {
        let queue = format!("{topic}-{number}");
        let id = format!("{UUID_7}{number}");
        assert_eq!(client.push_with(&queue, 1, json!({"jobId": id})), id);
        let owner = if owned { json!("me") } else { Value::Null };
        let reply = client.ok("PULL", json!({"queue": queue, "owner": owner}));
        assert_eq!(reply["job"]["id"], id.as_str());
        ids.push(id);
        tokens.push(reply["token"].clone());
    }
    (ids, tokens)
}

#[test]
fn custom_ids_that_look_like_the_servers_own_work_in_commands_on_many_jobs() {
    let server = Server::start_default();
    let mut client = server.client();
    let (ids, tokens) = pulled_under_uuids(&mut client, "many", true);
    let beat = client.ok("JobHeartbeatB", json!({"ids": ids, "tokens": tokens}));
    assert_eq!(beat["data"]["count"], 8);
    let one = client.ok("JobHeartbeatB", json!({"ids": [ids[0]], "tokens": [tokens[0]]}));
    assert_eq!(one["data"]["count"], 1);
    let unknown = format!("{UUID_7}99");
    let text = client.refused(
        "ACKB",
        json!({"ids": [ids[0], ids[1], unknown], "tokens": [tokens[0], tokens[1], null]}),
    );
    assert_eq!(text, "Job not found or not active");
    client.ok("ACKB", json!({"ids": ids, "tokens": tokens}));
    for id in &ids {
        assert_eq!(client.state(id), "completed");
    }
}

#[test]
fn a_custom_id_that_looks_like_the_servers_own_is_found_in_the_dead_letter_queue() {
    let server = Server::start_default();
    let mut client = server.client();
    for number in 10..14 {
        let (queue, id) = (format!("dead-{number}"), format!("{UUID_7}{number}"));
        client.push_with(&queue, 1, json!({"jobId": id, "maxAttempts": 1}));
        client.pull(&queue);
        client.ok("FAIL", json!({"id": id}));
        let reply = client.ok("RetryDlq", json!({"queue": queue, "jobId": id}));
        assert_eq!(reply["count"], 1, "{queue}");
    }
}

#[test]
fn long_polls_that_arrive_during_the_stop_do_not_hold_it_up() {
    let shutdown_ms = 120_000;
    let start = Start::new().env("SHARDS", 4).env("SHUTDOWN_TIMEOUT_MS", shutdown_ms);
    let mut server = start.start();
    let port = server.tcp;
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|thread| {
            let over = over.clone();
            std::thread::spawn(move || {
                let mut sockets = Vec::new();
                for number in 0..400 {
                    let Ok(mut client) = Client::try_connect(port) else { break };
                    let queue = format!("idle-{}", (number + thread) % 16);
                    let pull = json!({"cmd": "PULL", "queue": queue, "timeout": 60_000});
                    if client.send_bytes(&commands(40, &pull)).is_err() {
                        break;
                    }
                    sockets.push(client);
                }
                // They stay until the server has gone.
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(150));
    let start = Instant::now();
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait_for_end().success());
    let took = start.elapsed();
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    assert!(took < Duration::from_secs(55), "it has waited for the polls: {took:?}");
}

/// The beginnings of large frames, sent as far as the server reads them.
#[test]
fn frames_that_are_too_large_together_give_way_the_largest_first() {
    const INPUT: &str = "corq_client_memory_bytes{account=\"input\"} ";
    let server = Start::new().env("SHARDS", 1).env("CLIENT_MEMORY_MB", 128).start();
    let mut small = server.client();
    let half = commands(1, &json!({"cmd": "PUSH", "queue": "q", "data": "s".repeat(100_000)}));
    small.send_bytes(&half[..70_000]).unwrap();
    let mut large: Vec<Client> = Vec::new();
    for _ in 0..10 {
        let mut client = server.client();
        // Connections that give way are closed while the rest of their frame is on its way. A command that may be as
        // long, so that it is not refused for that.
        let begun = [&[0, 0xf0, 0, 0, 0x83][..], b"\xa3cmd\xa5PUSHB"].concat();
        let _ = client.send_bytes(&[&begun[..], &vec![0x81; 14 << 20]].concat());
        large.push(client);
    }
    until("some have given way", || {
        let text = server.web().get("/prometheus").text().to_owned();
        let count = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse().unwrap()
        };
        assert!(count(INPUT) <= 48 << 20, "{text}");
        (count("corq_frames_crowded_out_total ") >= 4).then_some(())
    });
    // A vector that grows holds its old memory beside the new for a moment.
    assert!(memory_kb(&server) < 200 << 10, "{} kB", memory_kb(&server));
    small.send_bytes(&half[70_000..]).unwrap();
    assert_eq!(small.recv().unwrap()["ok"], true);
    drop(large);
    until("their memory is free", || {
        let text = server.web().get("/prometheus").text().to_owned();
        text.contains(&format!("{INPUT}0\n")).then_some(())
    });
}
