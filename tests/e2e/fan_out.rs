//! A command that sets something free for many who do not read. The fear: what it brings is copied for each of them,
//! and a few bytes take gigabytes.

use std::net::TcpStream;

use serde_json::json;

use crate::support::stream::{Sse, TEXT, WebSocket, client_frame};
use crate::support::{Client, Server, Start, encode, frame, until};

/// Clients in each test, of whom none reads.
const CLIENTS: usize = 40;

/// Waits of each client: enough for their replies to fill the kernel's buffers, and more.
const WAITS: usize = 10;

const LARGE: usize = 2 << 20;

/// Memory beyond what is shared, for as many clients as there are here: 64 KB for each, and what the log and the allocator
/// keep.
const SLACK_MB: u64 = 96;

fn peak_mb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

fn metric(server: &Server, name: &str) -> u64 {
    let reply = server.client().ok("Prometheus", json!({}));
    let text = reply["data"]["metrics"].as_str().unwrap().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Memory of output that clients have not taken.
fn output_bytes(server: &Server) -> u64 {
    metric(server, "corq_client_memory_bytes{account=\"output\"}")
}

/// Takes little without reading: room for a few segments, as with less the kernel drops some and is slow to try again.
fn reads_little(socket: &TcpStream) {
    socket2::SockRef::from(socket).set_recv_buffer_size(128 << 10).unwrap();
}

fn server() -> Server {
    // Nobody answers a ping, since nobody reads.
    Start::new().env("PAYLOAD_CACHE_MB", 4).env("STREAM_KEEP_ALIVE_MS", 3_600_000).start()
}

/// Waits of clients of every face for one job, and its id.
fn waits(server: &Server, queue: &str) -> (String, Vec<Client>, Vec<WebSocket>) {
    let id = server.client().push(queue, 1);
    let (mut clients, mut sockets) = (Vec::new(), Vec::new());
    for number in 0..CLIENTS {
        let wait = json!({"id": id, "timeout": 600_000});
        if number % 4 == 3 {
            let mut socket = WebSocket::open(server.http, "/ws/queues/none");
            reads_little(socket.socket.get_ref());
            for _ in 0..WAITS {
                socket.send("WaitJob", wait.clone());
            }
            // The reply to a later question shows that the waits have come.
            socket.ok("GetState", json!({"id": id}));
            sockets.push(socket);
        } else {
            let mut client = server.client();
            reads_little(client.socket());
            for _ in 0..WAITS {
                client.send("WaitJob", wait.clone()).unwrap();
            }
            client.ok("GetState", json!({"id": id}));
            clients.push(client);
        }
    }
    (id, clients, sockets)
}

#[test]
fn a_result_that_many_wait_for_is_in_memory_once_and_each_gets_it_as_it_reads() {
    let server = server();
    let (id, mut clients, mut sockets) = waits(&server, "q");
    let before = peak_mb(&server);
    let mut worker = server.client();
    worker.ok("PULL", json!({"queue": "q"}));
    // Three bytes of JSON for each of MessagePack, or more.
    let result = "\u{1}".repeat(LARGE);
    worker.ok("ACK", json!({"id": id, "result": result, "removeOnComplete": true}));
    // A client that is owed nothing is served, and none is cut off.
    server.client().ok("Ping", json!({}));
    for client in &mut clients {
        for _ in 0..WAITS {
            let reply = client.recv().unwrap();
            assert_eq!((&reply["ok"], &reply["completed"]), (&json!(true), &json!(true)));
            assert_eq!(reply["result"].as_str().map(str::len), Some(LARGE));
        }
    }
    for socket in &mut sockets {
        for _ in 0..WAITS {
            let reply = socket.recv();
            assert_eq!(reply["completed"], true);
            assert_eq!(reply["result"].as_str().map(str::len), Some(LARGE));
        }
    }
    let grown = peak_mb(&server).saturating_sub(before);
    // The result, its JSON on each shard, and what it took on its way in and into the log.
    let shared = (2 * (7 + 2) * LARGE as u64) >> 20;
    assert!(grown <= shared + SLACK_MB, "{grown} MB");
    until("all of it to be taken", || (output_bytes(&server) < 1 << 20).then_some(()));
    assert_eq!(metric(&server, "corq_output_crowded_out_total"), 0);
}

#[test]
fn an_error_that_many_wait_for_comes_whole_on_every_face() {
    let server = server();
    let id = server.client().push_with("q", json!(1), json!({"maxAttempts": 1}));
    let wait = json!({"id": id, "timeout": 600_000});
    let mut tcp = server.client();
    let mut web = WebSocket::open(server.http, "/ws/queues/none");
    tcp.send("WaitJob", wait.clone()).unwrap();
    web.send("WaitJob", wait);
    tcp.ok("GetState", json!({"id": id}));
    web.ok("GetState", json!({"id": id}));
    let mut worker = server.client();
    worker.ok("PULL", json!({"queue": "q"}));
    let error = "\"\n".repeat(20_000);
    worker.ok("FAIL", json!({"id": id, "error": error}));
    for reply in [tcp.recv().unwrap(), web.recv()] {
        assert_eq!(reply["completed"], false);
        assert_eq!((&reply["state"], &reply["error"]), (&json!("failed"), &json!(error)));
    }
    // A client that asks later gets the same reply.
    for reply in [tcp.ok("WaitJob", json!({"id": id})), web.ok("WaitJob", json!({"id": id}))] {
        assert_eq!(reply["error"], error.as_str());
    }
}

#[test]
fn an_event_is_in_memory_once_for_all_who_listen_and_do_not_read() {
    const STREAMS: usize = 300;
    const EVENTS: usize = 8;
    let server = server();
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let path = if number % 2 == 0 { "/events" } else { "/events/queues/q" };
        let sse = Sse::open(server.http, path);
        reads_little(sse.socket());
        streams.push(sse);
    }
    let before = peak_mb(&server);
    let mut client = server.client();
    let ballast = "x".repeat(900_000);
    for number in 0..EVENTS {
        client.push("q", json!([number, ballast]));
    }
    until("the events to come", || {
        (metric(&server, "corq_events_total") >= EVENTS as u64).then_some(())
    });
    let grown = peak_mb(&server).saturating_sub(before);
    assert!(grown <= (EVENTS as u64) * 2 * 2 + SLACK_MB, "{grown} MB");
    let most = (EVENTS as u64 * 2 + 16) << 20;
    until("some of it to wait", || {
        let waiting = metric(&server, "corq_events_waiting_bytes");
        assert!(waiting <= most, "{waiting} bytes wait");
        (waiting >= 900_000).then_some(())
    });
    // A client that begins to read gets what there is, in order and whole.
    for sse in streams.iter_mut().take(20) {
        for number in 0..EVENTS {
            let event = sse.next();
            assert_eq!(event["data"][0], number);
            assert_eq!(event["data"][1].as_str().map(str::len), Some(ballast.len()));
        }
    }
    drop(streams);
    until("all of it to be forgotten", || {
        (metric(&server, "corq_events_waiting_bytes") == 0).then_some(())
    });
}

#[test]
fn events_of_many_queues_that_nobody_reads_are_bounded_together_and_the_oldest_go() {
    const QUEUES: usize = 60;
    const EVENTS: usize = 10;
    let start = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4);
    let server = start.env("CLIENT_MEMORY_MB", 1024).start();
    let streams: Vec<Sse> = (0..QUEUES)
        .map(|number| {
            let sse = Sse::open(server.http, &format!("/events/queues/q{number}"));
            reads_little(sse.socket());
            sse
        })
        .collect();
    let mut client = server.client();
    let ballast = "x".repeat(900_000);
    for number in 0..EVENTS * QUEUES {
        client.push(&format!("q{}", number % QUEUES), json!([number, ballast]));
    }
    // Events wait in the lanes, and each connection is being sent one.
    let waiting = metric(&server, "corq_events_waiting_bytes");
    let bound = (64 << 20) + QUEUES as u64 * 1_000_000;
    assert!(waiting <= bound, "{waiting} bytes wait, of {bound}");
    assert!(output_bytes(&server) <= 256 << 20);
    assert_eq!(metric(&server, "corq_output_crowded_out_total"), 0);
    drop(streams);
}

#[test]
fn those_who_do_not_read_are_ended_when_there_is_too_much_of_all_and_who_reads_is_not() {
    let start = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4);
    let server = start.env("CLIENT_MEMORY_MB", 256).start();
    let mut client = server.client();
    let ballast = "x".repeat(1 << 20);
    for _ in 0..6 {
        client.push("q", json!(ballast));
    }
    // Each of these is within its own bound of 8 MB, with one answer.
    let ask = frame(&encode(&json!({"cmd": "GetJobs", "queue": "q", "limit": 100})));
    let mut greedy = Vec::new();
    for _ in 0..24 {
        let mut one = server.client();
        one.take_little();
        one.send_bytes(&ask).unwrap();
        greedy.push(one);
    }
    until("the first of them to be ended", || {
        (metric(&server, "corq_output_crowded_out_total") > 0).then_some(())
    });
    let held = output_bytes(&server);
    assert!(held <= (64 + 64) << 20, "{held} bytes");
    let ended = metric(&server, "corq_output_crowded_out_total");
    assert!(ended < 24, "only as many as need be: {ended}");
    for _ in 0..3 {
        let reply = client.ok("GetJobs", json!({"queue": "q"}));
        assert_eq!(reply["jobs"].as_array().unwrap().len(), 6);
    }
}

/// Completes a job with a result of so many bytes.
fn completed(client: &mut Client, queue: &str, bytes: usize) -> String {
    let id = client.push(queue, 1);
    client.pull(queue);
    client.ok("ACK", json!({"id": id, "result": "r".repeat(bytes)}));
    id
}

/// Frames of as many waits for these jobs in turns.
fn in_turns(ids: &[&str], count: usize) -> Vec<u8> {
    let wait = |place: usize| json!({"cmd": "WaitJob", "id": ids[place % ids.len()], "timeout": 600_000, "reqId": place});
    (0..count).flat_map(|place| frame(&encode(&wait(place)))).collect()
}

#[test]
fn a_result_on_the_disk_is_read_once_for_all_who_wait_for_it() {
    const READERS: usize = 40;
    let server = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4).start();
    let mut client = server.client();
    let id = completed(&mut client, "q", 1 << 20);
    for _ in 0..12 {
        client.push("other", "x".repeat(1 << 20));
    }
    let before = metric(&server, "corq_log_cold_reads_total");
    // They come in one piece, and so in one turn or two.
    client.send_bytes(&in_turns(&[&id], READERS)).unwrap();
    let mut answered: Vec<u64> = Vec::new();
    for _ in 0..READERS {
        let reply = client.recv().unwrap();
        assert_eq!(reply["result"].as_str().map(str::len), Some(1 << 20));
        answered.push(reply["reqId"].as_u64().unwrap());
    }
    // With little memory for reads the first to ask is not the first to be answered: nothing promises that.
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..READERS as u64), "each has one reply");
    let reads = metric(&server, "corq_log_cold_reads_total") - before;
    assert!((1..=4).contains(&reads), "{reads} reads for {READERS}");
    until("nothing to be held", || (output_bytes(&server) < 1 << 18).then_some(()));
}

#[test]
fn results_that_are_asked_for_in_turns_are_written_as_json_once_each() {
    const WAITS: usize = 20;
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let ids = [completed(&mut client, "q", 1 << 20), completed(&mut client, "q", 1 << 20)];
    let mut socket = WebSocket::open(server.http, "/ws/queues/none");
    let slices = || metric(&server, "corq_json_slices_total");
    let before = slices();
    let mut bytes = Vec::new();
    for place in 0..WAITS {
        let wait =
            json!({"cmd": "WaitJob", "id": ids[place % 2], "timeout": 600_000, "reqId": place});
        bytes.extend(client_frame(true, TEXT, wait.to_string().as_bytes()));
    }
    socket.send_bytes(&bytes).unwrap();
    for _ in 0..WAITS {
        assert_eq!(socket.recv()["result"].as_str().map(str::len), Some(1 << 20));
    }
    let taken = slices() - before;
    let once = (1 << 20) / (128 << 10) + 2;
    assert!((1..=once * 4).contains(&taken), "{taken} slices, {once} for one");
}

#[test]
fn what_a_client_is_owed_counts_until_it_has_taken_it_and_holds_up_what_it_asks_for_next() {
    const WAITS: usize = 30;
    let server = Start::new().env("SHARDS", 1).start();
    let mut client = server.client();
    let id = completed(&mut client, "q", LARGE);
    let mut slow = server.client();
    reads_little(slow.socket());
    slow.send_bytes(&in_turns(&[&id], WAITS)).unwrap();
    until("it to be owed", || (output_bytes(&server) >= LARGE as u64).then_some(()));
    let asked = slow.send("Ping", json!({})).unwrap();
    client.ok("Ping", json!({}));
    let held = output_bytes(&server);
    assert!(held < LARGE as u64 + (1 << 18), "one for all: {held}");
    let mut results = 0;
    let mut before_ping = None;
    while results < WAITS || before_ping.is_none() {
        let reply = slow.recv().unwrap();
        if reply["reqId"] == json!(asked) {
            before_ping = Some(results);
            continue;
        }
        assert_eq!(reply["reqId"], results);
        assert_eq!(reply["result"].as_str().map(str::len), Some(LARGE));
        results += 1;
    }
    // No more than 8 MB are left then.
    assert!(before_ping >= Some(WAITS - 5), "{before_ping:?}");
    until("nothing to be owed", || (output_bytes(&server) < 1 << 18).then_some(()));
    slow.send_bytes(&in_turns(&[&id], WAITS)).unwrap();
    until("it to be owed", || (output_bytes(&server) >= LARGE as u64).then_some(()));
    drop(slow);
    until("nothing to be owed", || (output_bytes(&server) < 1 << 18).then_some(()));
}
