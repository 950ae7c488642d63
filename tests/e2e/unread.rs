//! Clients that ask and do not read. The fear: whatever makes output without being a command that is counted, an answer
//! to a ping, a refusal, takes memory until there is none.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::stream::{PING, PONG, TEXT, UPGRADE, WebSocket, client_frame};
use crate::support::{Server, Start, encode, frame};

/// More than the server may hold for one connection, and the kernel's buffers on both sides.
const FLOOD_BYTES: usize = 96 << 20;

/// A connection is held if nothing of it is taken for so long. One that is not held takes the whole flood.
const HELD: Duration = Duration::from_secs(2);

fn peak_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse().unwrap()
}

/// Sends this over and over without reading. Returns how many whole times it went until nothing more was taken, or zero if
/// the server has closed; `None` if it takes all of it.
fn flood(mut socket: &TcpStream, request: &[u8]) -> Option<usize> {
    socket.set_write_timeout(Some(HELD)).unwrap();
    let piece = request.repeat((64 << 10) / request.len() + 1);
    let mut sent = 0;
    while sent < FLOOD_BYTES {
        match socket.write(&piece[sent % request.len()..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // The rest of a request that was cut by this is not sent.
                return Some(sent / request.len());
            }
            Err(_) => return Some(0),
        }
    }
    None
}

/// Floods a server over one connection; what it takes for that is bounded.
fn bounded(server: &Server, socket: &TcpStream, request: &[u8], most_mb: u64) -> Option<usize> {
    let shown = String::from_utf8_lossy(request);
    // Small buffers, so that the kernel takes little of it.
    let little = socket2::SockRef::from(socket);
    little.set_recv_buffer_size(16 << 10).unwrap();
    little.set_send_buffer_size(64 << 10).unwrap();
    let before = peak_kb(server);
    let sent = flood(socket, request).unwrap_or_else(|| panic!("it takes all of {shown:?}"));
    let grown = peak_kb(server).saturating_sub(before) >> 10;
    assert!(grown <= most_mb, "{grown} MB for {shown:?}");
    (sent > 0).then_some(sent)
}

#[test]
fn pings_of_a_client_that_does_not_read_are_held_and_answered_once_it_does() {
    let server = Server::start_default();
    let mut websocket = WebSocket::open(server.http, "/ws");
    let ping = client_frame(true, PING, &[b'x'; 125]);
    let sent = bounded(&server, websocket.socket.get_ref(), &ping, 40).expect("it is held");
    server.client().ok("Ping", json!({}));
    let roomy = socket2::SockRef::from(websocket.socket.get_ref());
    roomy.set_recv_buffer_size(4 << 20).unwrap();
    let mut pongs = 0;
    while pongs < sent {
        let frame = websocket.recv_frame().unwrap();
        match frame.opcode {
            PONG => assert_eq!(frame.payload.len(), 125),
            // The server's own, if this takes long.
            PING => continue,
            _ => panic!("{frame:?}"),
        }
        pongs += 1;
    }
}

#[test]
fn pings_after_a_wrong_token_are_held_at_a_stranger_s_share() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let headers = format!("{UPGRADE}Authorization: Bearer secret\r\n");
    let mut websocket = WebSocket::open_with(server.http, "/ws", &headers).unwrap();
    assert_eq!(websocket.refused("Auth", json!({"token": "wrong"})), "Invalid token");
    let ping = client_frame(true, PING, &[b'x'; 125]);
    bounded(&server, websocket.socket.get_ref(), &ping, 16);
    // Other messages are refused, and refusals are output as well.
    let mut websocket = WebSocket::open_with(server.http, "/ws", &headers).unwrap();
    websocket.call("Auth", json!({"token": "wrong"}));
    let refused = client_frame(true, TEXT, b"no JSON");
    bounded(&server, websocket.socket.get_ref(), &refused, 16);
}

#[test]
fn refusals_that_nobody_reads_are_bounded_on_every_face() {
    let open = Server::start_default();
    let limited = Start::new().env("TCP_RATE_LIMIT_MAX_REQUESTS", 1).start();
    // A client without a token is held here for longer than it usually may stay.
    let guarded =
        Start::new().env("AUTH_TOKENS", "secret").env("AUTH_TIMEOUT_MS", 3_600_000).start();
    // Connected when its turn comes: one that is silent before has a deadline of its own.
    let tcp: &dyn Fn(&Server) -> TcpStream =
        &|server| TcpStream::connect(("127.0.0.1", server.tcp)).unwrap();
    let web: &dyn Fn(&Server) -> TcpStream =
        &|server| TcpStream::connect(("127.0.0.1", server.http)).unwrap();
    let command = |name: &str| frame(&encode(&json!({"cmd": name, "reqId": "x".repeat(50)})));
    let host = "HTTP/1.1\r\nHost: localhost\r\n";
    for (server, connect, request, most_mb) in [
        (&guarded, tcp, command("Ping"), 16),
        (&guarded, tcp, command("Auth"), 16),
        (&open, tcp, command("MakeCoffee"), 40),
        (&limited, tcp, command("Ping"), 40),
        (&guarded, web, format!("GET /stats {host}\r\n").into_bytes(), 8),
        (&guarded, web, format!("GET /healthz {host}\r\n").into_bytes(), 8),
        (&open, web, format!("GET /nowhere {host}\r\n").into_bytes(), 40),
        (&open, web, format!("GET /stats {host}Origin: null\r\n\r\n").into_bytes(), 40),
        (&open, web, format!("OPTIONS /x {host}\r\n").into_bytes(), 40),
        (&open, web, format!("GET /healthz {host}\r\n").into_bytes(), 40),
        (
            &open,
            web,
            format!("POST /queues/a%20b/jobs {host}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{{}}")
                .into_bytes(),
            40,
        ),
    ] {
        bounded(server, &connect(server), &request, most_mb);
    }
    for server in [&open, &guarded] {
        let mut socket = web(server);
        socket
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("OK"), "{answer}");
    }
}
