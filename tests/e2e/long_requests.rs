//! Requests that announce more than their command can need. The fear: a few connections have the server gather and look
//! through what nobody will ever read.

use corq::api::limits::BATCH_BYTES_MAX;
use serde_json::json;

use crate::support::stream::WebSocket;
use crate::support::{Client, Server, Start, encode, frame};

const ANNOUNCED: usize = 40 << 20;

fn metric(server: &Server, name: &str) -> u64 {
    let reply = server.client().ok("Prometheus", json!({}));
    let text = reply["data"]["metrics"].as_str().unwrap().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// The beginning of a frame of this command, and what it announces besides: one field more, of bytes.
fn beginning(command: &str, announced: usize) -> Vec<u8> {
    let mut bytes = u32::try_from(announced).unwrap().to_be_bytes().to_vec();
    let head = frame(&encode(&json!({"cmd": command, "reqId": "r"})));
    // The map of two gets a third.
    assert_eq!(head[4], 0x82);
    bytes.push(0x83);
    bytes.extend_from_slice(&head[5..]);
    bytes.extend_from_slice(b"\xa1x\xc6\x02\x70\x00\x00");
    bytes
}

#[test]
fn a_frame_beyond_what_its_command_can_need_is_refused_before_it_has_come_and_the_connection_lives()
{
    let server = Start::new().env("SHARDS", 1).start();
    let mut client: Client = server.client();
    let head = beginning("Ping", ANNOUNCED);
    client.send_bytes(&head).unwrap();
    let refused = json!({"ok": false, "reqId": "r", "error": "Ping must have at most 65536 bytes", "code": "too_large"});
    assert_eq!(client.recv().unwrap(), refused, "before the rest has come");
    assert_eq!(metric(&server, "corq_long_requests_refused_total"), 1);
    let piece = vec![0; 1 << 20];
    let mut left = ANNOUNCED + 4 - head.len();
    while left > 0 {
        let bytes = left.min(piece.len());
        client.send_bytes(&piece[..bytes]).unwrap();
        left -= bytes;
        if left == ANNOUNCED / 2 {
            assert_eq!(
                metric(&server, "corq_client_memory_bytes{account=\"input\"}"),
                0,
                "nothing of it is kept"
            );
        }
    }
    client.ok("Ping", json!({}));
    // The first frame names its command late, and the second is no command.
    for begun in [vec![0xc0; 1 << 17], [&[0xdf, 1, 0, 0, 0][..], &vec![0xc0; 1 << 17]].concat()] {
        let mut client = server.client();
        client.send_bytes(&[&[2, 0, 0, 0][..], &begun].concat()).unwrap();
        let text = client.recv().unwrap()["error"].clone();
        assert_eq!(text, "cmd must stand in the first 65536 bytes");
    }
    // A command that may be long is waited for.
    let mut client = server.client();
    client.send_bytes(&beginning("PUSHB", BATCH_BYTES_MAX)).unwrap();
    client.send_bytes(&piece).unwrap();
    server.client().ok("Ping", json!({}));
    assert_eq!(metric(&server, "corq_long_requests_refused_total"), 3);
}

#[test]
fn a_message_beyond_what_its_command_can_need_closes_the_connection_before_it_has_come() {
    let server = Start::new().env("SHARDS", 1).start();
    let text = br#"{"cmd": "Ping", "reqId": "r", "x": [""#;
    let mut whole = WebSocket::open(server.http, "/ws");
    let mut bytes = vec![0x81, 0xff];
    bytes.extend_from_slice(&(ANNOUNCED as u64).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(text);
    whole.send_bytes(&bytes).unwrap();
    assert_eq!(whole.closed_with(), Some(1009));
    let mut pieces = WebSocket::open(server.http, "/ws");
    pieces.send_frame(false, 1, text);
    bytes[0] = 0x80;
    pieces.send_bytes(&bytes).unwrap();
    assert_eq!(pieces.closed_with(), Some(1009));
    assert_eq!(metric(&server, "corq_long_requests_refused_total"), 2);
    let mut small = WebSocket::open(server.http, "/ws");
    small.send("Ping", json!({"x": "x".repeat(500_000)}));
    assert_eq!(small.closed_with(), Some(1009));
    let mut small = WebSocket::open(server.http, "/ws");
    small.ok("Ping", json!({"x": "x".repeat(50_000)}));
}

#[test]
fn a_body_beyond_what_its_route_can_need_is_413_before_it_has_come() {
    let server = Start::new().env("SHARDS", 1).start();
    let refused = |line: &str, length: &str, begun: &[u8]| {
        let mut web = server.web();
        // A server that would take it says so.
        let expect = "Expect: 100-continue";
        let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\n{expect}\r\n{length}\r\n\r\n");
        web.raw(&[head.as_bytes(), begun].concat()).unwrap();
        let text = web.recv(false).unwrap().refused(413);
        assert!(web.is_closed_by_server(), "{line}");
        text
    };
    let lines = ["GET /stats", "DELETE /jobs/a", "GET /queues/q/jobs", "POST /gc", "GET /health"];
    for line in lines {
        let text = refused(line, "Content-Length: 65537", b"");
        assert_eq!(text, "The body must be at most 64 KB", "{line}");
    }
    let chunked = "Transfer-Encoding: chunked";
    let text = refused("GET /stats", chunked, b"10001\r\n");
    assert_eq!(text, "The body must be at most 64 KB");
    for line in ["POST /queues/q/jobs", "POST /jobs/a/ack", "POST /jobs/a/fail"] {
        let text = refused(line, "Content-Length: 12582913", b"");
        assert_eq!(text, "The body must be at most 12 MB", "{line}");
    }
    assert_eq!(metric(&server, "corq_long_requests_refused_total"), 9);
    let mut web = server.web();
    let body = "x".repeat(64 << 10);
    web.call("GET", "/stats", &[], body.as_bytes()).expect(200);
    web.call("GET", "/stats", &[], body.as_bytes()).expect(200);
}

#[test]
fn fields_that_nobody_knows_are_looked_through_for_so_many_bytes_and_no_more() {
    let mut client = crate::client();
    let queue = crate::queue("unknown-fields");
    let jobs = json!([{"data": 1}]);
    let command = |bytes: usize| json!({"queue": queue, "jobs": jobs, "zzz": "x".repeat(bytes)});
    client.ok("PUSHB", command(60_000));
    let most = "unknown fields must have at most 65536 bytes";
    assert_eq!(client.refused("PUSHB", command(70_000)), most);
    // Within jobs, all of them together.
    let job = json!({"data": 1, "zzz": "x".repeat(1000)});
    let jobs = |count: usize| json!({"queue": queue, "jobs": vec![job.clone(); count]});
    client.ok("PUSHB", jobs(60));
    assert!(client.refused("PUSHB", jobs(70)).ends_with(most));
}

#[test]
fn an_answer_over_websocket_counts_as_it_is_written_and_a_list_has_64_mb_of_that() {
    const OUTPUT: &str = "corq_client_memory_bytes{account=\"output\"}";
    let start = Start::new().env("SHARDS", 1).env("PAYLOAD_CACHE_MB", 4);
    let server = start.env("CLIENT_MEMORY_MB", 1024).start();
    let mut client = server.client();
    // As JSON each takes 36 MB, as MessagePack 6.
    for _ in 0..2 {
        client.push("q", "\u{1}".repeat(6_000_000));
    }
    let mut socket = WebSocket::open(server.http, "/ws/queues/none");
    let text = socket.refused("GetJobs", json!({"queue": "q"}));
    assert_eq!(text, "The reply does not fit a frame");
    let little = socket2::SockRef::from(socket.socket.get_ref());
    little.set_recv_buffer_size(16 << 10).unwrap();
    socket.send("GetJobs", json!({"queue": "q", "limit": 1}));
    socket.send("GetJobs", json!({"queue": "q", "limit": 1}));
    crate::support::until("the first answer to be written", || {
        (metric(&server, OUTPUT) > 25 << 20).then_some(())
    });
    // The second waits until the first has been read, since it counts with all its bytes.
    client.ok("Ping", json!({}));
    let held = metric(&server, OUTPUT);
    assert!(held < 40 << 20, "{held}");
}
