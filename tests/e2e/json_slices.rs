//! Requests and replies that are megabytes of JSON. The fear: one of them is read or written in one go, and everybody else
//! on its shard waits for as long. What is looked at is the server's own count of slices and of steps, never time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::stream::{CLOSE, CONTINUED, PING, PONG, WebSocket, client_frame};
use crate::support::{Client, Server, Start, until};

/// As much of a text as a turn reads.
const SLICE: usize = 128 << 10;

/// Steps in which a slice of a request and one of a reply are counted.
const STEPS_MAX: u64 = 100;

fn server() -> Server {
    Start::new().env("SHARDS", 1).start()
}

fn metric(client: &mut Client, name: &str) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
}

/// Memory of clients in an account.
fn held(client: &mut Client, account: &str) -> u64 {
    metric(client, &format!("corq_client_memory_bytes{{account=\"{account}\"}} "))
}

/// The slices so far, of which none was too large.
fn slices(client: &mut Client) -> u64 {
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let turn = "corq_turn_steps_max{shard=\"0\",command=\"json\"} ";
    if let Some(most) = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(turn)) {
        assert!(most.parse::<u64>().unwrap() <= STEPS_MAX, "{most} steps in a turn");
    }
    assert_eq!(metric(client, "corq_json_under_way "), 0);
    metric(client, "corq_json_slices_total ")
}

fn numbers(bytes: usize) -> Value {
    (0..bytes / 8).map(|number| number % 1000 * 7001).collect()
}

#[test]
fn a_large_request_is_read_in_slices_and_what_follows_it_keeps_its_place() {
    let server = server();
    let mut client = server.client();
    let mut socket = WebSocket::open(server.http, "/ws/queues/none");
    let data = numbers(2 << 20);
    let jobs = vec![json!({"data": data}); 3];
    let batch = json!({"queue": "q", "jobs": jobs});
    let bytes = batch.to_string().len();
    let pushed = socket.send("PUSHB", batch);
    let asked = [socket.send("Count", json!({"queue": "q"})), socket.send("Ping", json!({}))];
    let ids = socket.recv();
    assert_eq!((&ids["ok"], &ids["reqId"]), (&json!(true), &json!(pushed)));
    let [count, ping] = [socket.recv(), socket.recv()];
    assert_eq!((&count["reqId"], &count["count"]), (&json!(asked[0]), &json!(3)));
    assert_eq!(ping["reqId"], json!(asked[1]));
    let after = slices(&mut client);
    assert!(after as usize >= bytes / SLICE, "{after}");
    // Requests in pieces are sliced, too, and over HTTP by their length or in chunks.
    let text = json!({"cmd": "PUSH", "queue": "q", "data": data}).to_string();
    let (first, second) = text.as_bytes().split_at(1 << 20);
    socket.send_frame(false, 1, first);
    socket.send_frame(true, 0, second);
    assert_eq!(socket.recv()["ok"], true);
    let mut web = server.web();
    let body = json!({"data": data, "cmd": "Ping", "queue": ["other"]}).to_string();
    for coding in ["Content-Length", "Transfer-Encoding"] {
        let head = |value: &str| {
            format!("POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\n{coding}: {value}\r\n\r\n")
        };
        let request = if coding == "Content-Length" {
            head(&body.len().to_string()) + &body
        } else {
            let (length, head) = (body.len(), head("chunked"));
            format!("{head}{length:x}\r\n{body}\r\n0\r\n\r\n")
        };
        web.raw(request.as_bytes()).unwrap();
        web.raw(b"GET /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        web.recv(false).unwrap().expect(200);
        assert_eq!(web.recv(false).unwrap().expect(200)["job"]["data"], data);
    }
    assert_eq!(client.ok("Count", json!({"queue": "q"}))["count"], 6);
    let all = slices(&mut client);
    assert!((all - after) as usize >= 3 * (body.len() / SLICE), "{all}");
}

#[test]
fn a_large_request_that_is_none_is_refused_as_a_small_one_and_says_where() {
    let server = server();
    let mut client = server.client();
    let text = json!({"cmd": "PUSH", "queue": "q", "data": numbers(1 << 20)}).to_string();
    let broken = format!("{}!}}", &text[..text.len() - 1]);
    let at = broken.len() - 2;
    let mut socket = WebSocket::open(server.http, "/ws");
    socket.send_text(&broken);
    let error = format!("Invalid JSON: unexpected character at byte {at}");
    assert_eq!(socket.recv(), json!({"ok": false, "error": error, "code": "invalid_request"}));
    socket.ok("Ping", json!({}));
    let mut bytes = text.into_bytes();
    *bytes.last_mut().unwrap() = 0xff;
    socket.send_frame(true, 1, &bytes);
    assert_eq!(socket.closed_with(), Some(1007));
    let mut web = server.web();
    for (body, error) in [
        (broken, "Invalid JSON body"),
        (numbers(1 << 20).to_string(), "body must be an object"),
        (format!("{{\"data\":{}}}", "[".repeat(1 << 20)), "body must be at most 128 levels deep"),
        (
            json!({"data": 1, "priority": "x".repeat(1 << 20)}).to_string(),
            "priority must be a whole number, or low, normal, high or critical",
        ),
    ] {
        let answer = web.call("POST", "/queues/q/jobs", &[], body.as_bytes());
        let text = answer.refused(400);
        assert!(text == error || text.starts_with("priority must"), "{text}");
    }
    assert_eq!(client.ok("Count", json!({"queue": "q"}))["count"], 0);
    slices(&mut client);
}

#[test]
fn a_client_that_goes_while_its_request_is_read_leaves_nothing_and_one_that_only_listens_is_answered()
 {
    let server = server();
    let mut client = server.client();
    let text = json!({"cmd": "PUSH", "queue": "q", "data": numbers(6 << 20)}).to_string();
    for _ in 0..4 {
        WebSocket::open(server.http, "/ws").send_text(&text);
    }
    let body = json!({"data": numbers(6 << 20)}).to_string();
    for _ in 0..4 {
        server.web().send("POST", "/queues/q/jobs", &[], body.as_bytes()).unwrap();
    }
    let mut web = server.web();
    web.send("POST", "/queues/r/jobs", &[], body.as_bytes()).unwrap();
    web.socket.shutdown(std::net::Shutdown::Write).unwrap();
    web.recv(false).unwrap().expect(200);
    until("all to be over", || (metric(&mut client, "corq_json_under_way ") == 0).then_some(()));
    for account in ["input", "texts", "json"] {
        until(account, || (held(&mut client, account) == 0).then_some(()));
    }
    assert_eq!(client.ok("Count", json!({"queue": "r"}))["count"], 1);
}

#[test]
fn a_large_reply_is_written_in_slices() {
    let server = server();
    let mut client = server.client();
    let data = numbers(4 << 20);
    let id = client.push("q", data.clone());
    client.push("q", data.clone());
    let before = slices(&mut client);
    let mut socket = WebSocket::open(server.http, "/ws/queues/none");
    let list = socket.ok("GetJobs", json!({"queue": "q"}));
    let of = |place: usize| &list["jobs"][place]["data"];
    assert!(of(0) == &data && of(1) == &data);
    let after = slices(&mut client);
    assert!((after - before) as usize >= 2 * (2 << 20) / SLICE, "{before} {after}");
    let mut web = server.web();
    assert!(web.get(&format!("/jobs/{id}")).expect(200)["job"]["data"] == data);
    let head = web.call("HEAD", &format!("/jobs/{id}"), &[], b"");
    assert!(head.headers["content-length"].parse::<usize>().unwrap() > 3 << 20);
    assert!(web.get("/queues/q/jobs").expect(200)["job"]["data"] == data);
    assert!((slices(&mut client) - after) as usize >= 3 * (2 << 20) / SLICE);
    assert_eq!([held(&mut client, "texts"), held(&mut client, "json")], [0; 2]);
    // Clients that do not take their reply leave nothing behind.
    for _ in 0..3 {
        WebSocket::open(server.http, "/ws/queues/none").send("GetJobs", json!({"queue": "q"}));
        server.web().send("GET", &format!("/jobs/{id}"), &[], b"").unwrap();
    }
    until("nothing to be under way", || {
        let is_over = metric(&mut client, "corq_json_under_way ") == 0;
        (is_over && held(&mut client, "json") == 0).then_some(())
    });
}

#[test]
fn a_large_result_is_written_once_for_all_who_wait_for_it() {
    let server = server();
    let mut client = server.client();
    let result = numbers(2 << 20);
    let mut once = 0;
    for waits in [1, 30] {
        let id = client.push("q", 1);
        let mut sockets: Vec<_> = (0..waits)
            .map(|_| {
                let mut socket = WebSocket::open(server.http, "/ws/queues/none");
                for _ in 0..2 {
                    socket.send("WaitJob", json!({"id": id, "timeout": 600_000}));
                }
                socket.ok("GetState", json!({"id": id}));
                socket
            })
            .collect();
        let before = slices(&mut client);
        client.pull("q");
        client.ok("ACK", json!({"id": id, "result": result}));
        for socket in &mut sockets {
            for _ in 0..2 {
                let reply = socket.recv();
                assert_eq!(reply["completed"], true);
                assert!(reply["result"] == result);
            }
        }
        let taken = slices(&mut client) - before;
        assert!(taken as usize >= (1 << 20) / SLICE, "{taken}");
        once = once.max(if waits == 1 { taken } else { 0 });
        assert!(taken <= once + 2, "{taken} slices for {waits}, {once} for one");
    }
}

#[test]
fn a_ping_behind_a_long_message_is_answered_and_what_comes_in_between_is_left_alone() {
    let server = server();
    let mut socket = WebSocket::open(server.http, "/ws/queues/none");
    socket.send("PUSH", json!({"queue": "q", "data": numbers(4 << 20)}));
    socket.send_frame(true, PING, b"there?");
    // Whichever is there first.
    let mut frames = [socket.recv_frame().unwrap(), socket.recv_frame().unwrap()];
    frames.sort_by_key(|frame| frame.opcode);
    let [reply, pong] = frames;
    assert_eq!(serde_json::from_slice::<Value>(&reply.payload).unwrap()["ok"], true);
    assert_eq!((pong.opcode, &pong.payload[..]), (PONG, &b"there?"[..]));
    socket.send_frame(true, CLOSE, &[]);
    socket.closed_with();
}

#[test]
fn a_long_message_means_the_same_in_whatever_pieces_its_bytes_come() {
    let server = server();
    let mut client = server.client();
    let mut socket = WebSocket::open(server.http, "/ws/queues/none");
    let data = numbers(1 << 20);
    let text = json!({"cmd": "PUSH", "queue": "q", "data": data}).to_string();
    for (first, piece) in [(0, 7_777), (3, 65_537), (100_000, 13_001)] {
        let mut bytes = Vec::new();
        if first > 0 {
            bytes.extend(client_frame(false, 1, &text.as_bytes()[..first]));
            bytes.extend(client_frame(true, PING, b"still?"));
        }
        let opcode = if first > 0 { CONTINUED } else { 1 };
        bytes.extend(client_frame(true, opcode, &text.as_bytes()[first..]));
        bytes.extend(client_frame(true, 1, br#"{"cmd":"Count","queue":"q","reqId":"after"}"#));
        let (begun, rest) = bytes.split_at(400_000);
        socket.send_bytes(begun).unwrap();
        until("what has come to be held", || (held(&mut client, "input") >= 300_000).then_some(()));
        for piece in rest.chunks(piece) {
            socket.send_bytes(piece).unwrap();
        }
        let id = socket.recv()["id"].as_str().unwrap().to_owned();
        assert_eq!(socket.recv()["reqId"], "after");
        assert!(client.ok("GetJob", json!({"id": id}))["job"]["data"] == data, "{first}");
    }
    until("all of it to be given back", || (held(&mut client, "input") == 0).then_some(()));
}

#[test]
fn replies_to_pulls_that_waited_come_one_after_the_other_and_end_no_client_that_reads() {
    // More of them than a shard may have of unread output.
    const PULLS: usize = 80;
    const GONE: usize = 10;
    const JOB_BYTES: usize = 1 << 20;
    // Bytes that may wait, and one reply more.
    const WAITING_BYTES_MAX: u64 = (32 + 2) << 20;
    // No ping is answered for as long as nothing is read.
    let start = Start::new().env("SHARDS", 1).env("STREAM_KEEP_ALIVE_MS", 3_600_000);
    let server = start.env("CLIENT_MEMORY_MB", 256).start();
    let mut client = server.client();
    let ballast = "x".repeat(JOB_BYTES);
    client.ok("Pause", json!({"queue": "q"}));
    for _ in 0..PULLS / 10 {
        let jobs = vec![json!({"data": ballast}); 10];
        client.ok("PUSHB", json!({"queue": "q", "jobs": jobs}));
    }
    let pull = json!({"queue": "q", "timeout": 60_000});
    let mut waits: Vec<_> = (0..PULLS)
        .map(|_| {
            let mut socket = WebSocket::open(server.http, "/ws/queues/none");
            socket.send("PULL", pull.clone());
            socket
        })
        .collect();
    // A client that has not read all of its reply.
    let listed = 10;
    for _ in 0..listed {
        client.push("other", json!(ballast));
    }
    let mut reader = WebSocket::open(server.http, "/ws/queues/none");
    socket2::SockRef::from(reader.socket.get_ref()).set_recv_buffer_size(128 << 10).unwrap();
    reader.send("GetJobs", json!({"queue": "other"}));
    until("its reply to be written", || {
        let written = metric(&mut client, "corq_json_under_way ") == 0;
        (written && held(&mut client, "output") > 1 << 20).then_some(())
    });
    client.send("Resume", json!({"queue": "q"})).unwrap();
    // Jobs delivered to clients that go are given to others.
    waits.truncate(PULLS - GONE);
    client.send("Prometheus", json!({})).unwrap();
    assert_eq!(client.recv().unwrap()["ok"], true);
    let text = client.recv().unwrap()["data"]["metrics"].clone();
    let line = |name: &str| text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(name));
    let waiting = line("corq_client_memory_bytes{account=\"texts\"} ").unwrap();
    let waiting: u64 = waiting.parse().unwrap();
    assert!(waiting <= WAITING_BYTES_MAX, "a command was taken with {waiting} bytes to be written");
    let mut ids = BTreeSet::new();
    for socket in &mut waits {
        let mut reply = socket.recv();
        // The pull may have waited for too long by the time the queue went on.
        while reply["job"].is_null() {
            socket.send("PULL", pull.clone());
            reply = socket.recv();
        }
        assert_eq!(reply["job"]["data"].as_str().map(str::len), Some(JOB_BYTES));
        ids.insert(reply["job"]["id"].to_string());
    }
    for _ in 0..GONE {
        let job = client.ok("PULL", pull.clone())["job"].clone();
        assert_eq!(job["data"].as_str().map(str::len), Some(JOB_BYTES));
        ids.insert(job["id"].to_string());
    }
    assert_eq!(ids.len(), PULLS);
    assert_eq!(reader.recv()["jobs"].as_array().map(Vec::len), Some(listed));
    assert_eq!(metric(&mut client, "corq_output_crowded_out_total "), 0);
    until("nothing to be held", || {
        let names = ["texts", "json", "output"];
        let is_over = metric(&mut client, "corq_json_under_way ") == 0;
        (is_over && names.iter().all(|name| held(&mut client, name) < 1 << 20)).then_some(())
    });
}
