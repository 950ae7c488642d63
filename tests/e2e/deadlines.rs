//! Clients that begin and do not end: a connection without a token, half a frame, half a message, half a head. The fear:
//! strangers keep the seats of others for ever, and what they have sent takes memory that nobody counts.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::stream::{CONTINUED, PING, TEXT, UPGRADE, WebSocket, client_frame};
use crate::support::{Client, Http, Server, Start, encode, frame, until};

/// How long the servers here wait: longer than a client stands still that is not to be late.
const PATIENCE_MS: u64 = 8000;

fn figure(server: &Server, name: &str) -> u64 {
    let text = server.web().get("/prometheus").text().to_owned();
    let name = format!("corq_{name} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().to_owned();
    line.trim().parse().unwrap()
}

/// Memory of clients in an account.
fn held(server: &Server, account: &str) -> u64 {
    figure(server, &format!("client_memory_bytes{{account=\"{account}\"}}"))
}

/// Says something over and over until the server has closed the connection.
fn is_closed_whatever_it_says(
    what: &str,
    mut socket: &TcpStream,
    mut says: impl FnMut() -> Vec<u8>,
) {
    until(what, || {
        std::thread::sleep(Duration::from_millis(30));
        socket.write_all(&says()).err().map(|_| ())
    });
}

#[test]
fn whoever_shows_no_token_in_time_loses_the_seat() {
    let start = Start::new().env("AUTH_TOKENS", "secret");
    let server = start.env("AUTH_TIMEOUT_MS", PATIENCE_MS).start();
    let mut known = server.client();
    known.ok("Auth", json!({"token": "secret"}));
    let connect = || TcpStream::connect(("127.0.0.1", server.tcp)).unwrap();
    let headers = format!("{UPGRADE}Authorization: Bearer secret\r\n");
    let mut websocket = WebSocket::open_with(server.http, "/ws", &headers).unwrap();
    websocket.ok("Ping", json!({}));
    // A right that is given up is a right to be shown again.
    assert_eq!(websocket.refused("Auth", json!({"token": "wrong"})), "Invalid token");
    websocket.ok("Auth", json!({"token": "secret"}));
    assert_eq!(websocket.refused("Auth", json!({"token": "wrong"})), "Invalid token");
    let begin = Instant::now();
    let ping = frame(&encode(&json!({"cmd": "Ping"})));
    let auth = frame(&encode(&json!({"cmd": "Auth", "token": "wrong"})));
    let said = [&b""[..], &b"\0\0\0"[..], &ping[..9], &ping[..], &auth[..]];
    let strangers = said.map(|said| {
        let mut stranger = server.client();
        stranger.send_bytes(said).unwrap();
        (stranger, said)
    });
    thread::scope(|scope| {
        // Asking brings no more time, and one byte after the other none.
        let (tries, slow) = (connect(), connect());
        let auth = &auth;
        scope.spawn(move || {
            is_closed_whatever_it_says("a stranger who tries tokens", &tries, || auth.clone());
        });
        scope.spawn(move || {
            let mut left = auth.iter().cycle();
            let next = || vec![*left.next().unwrap()];
            is_closed_whatever_it_says("a stranger who is slow", &slow, next);
        });
        for (mut stranger, said) in strangers {
            assert!(stranger.is_closed_by_server(), "after {said:?}");
        }
    });
    // The server counts in whole milliseconds.
    assert!(begin.elapsed() >= Duration::from_millis(PATIENCE_MS - 1), "not before its time");
    assert_eq!(websocket.closed_with(), Some(1008));
    assert_eq!(figure(&server, "auth_timeouts_total"), 8);
    known.ok("Ping", json!({}));
}

#[test]
fn the_rest_of_a_frame_or_message_is_waited_for_so_long_and_no_longer() {
    let server = Start::new().env("FRAME_TIMEOUT_MS", PATIENCE_MS).start();
    let mut silent = server.client();
    silent.ok("Ping", json!({}));
    let mut talks = WebSocket::open(server.http, "/ws");
    let connect = |port| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let half = frame(&encode(&json!({"cmd": "PUSH", "queue": "q", "data": "x".repeat(1000)})));
    let mut told = server.client();
    told.send_bytes(&half[..500]).unwrap();
    // Half a frame of a WebSocket, and a message in pieces with pings between them.
    let mut websocket = WebSocket::open(server.http, "/ws");
    websocket.send_bytes(&client_frame(true, TEXT, b"{\"cmd\":\"Ping\"}")[..9]).unwrap();
    let pieces = WebSocket::open(server.http, "/ws");
    thread::scope(|scope| {
        let (half, socket) = (&half, connect(server.tcp));
        scope.spawn(move || {
            let mut rest = half.iter();
            let next = || vec![*rest.next().unwrap()];
            is_closed_whatever_it_says("a frame byte by byte", &socket, next);
        });
        scope.spawn(|| {
            let mut socket = pieces.socket.get_ref();
            socket.write_all(&client_frame(false, TEXT, b"[")).unwrap();
            is_closed_whatever_it_says("a message without an end", socket, || {
                [client_frame(false, CONTINUED, b"1,"), client_frame(true, PING, b"")].concat()
            });
        });
        // A client that ends what it begins is never late, though there is half a frame at any time.
        let mut steady = server.client();
        let ping = frame(&encode(&json!({"cmd": "Ping"})));
        let mut open = false;
        let begin = Instant::now();
        steady.send_bytes(&ping[..5]).unwrap();
        until("the others to be late", || {
            steady.send_bytes(&[&ping[5..], &ping[..5]].concat()).unwrap();
            assert_eq!(steady.recv().unwrap()["ok"], true);
            let first = client_frame(false, TEXT, b"{\"cmd\":");
            let last = client_frame(true, CONTINUED, b"\"Ping\"}");
            let said =
                if std::mem::replace(&mut open, true) { [last, first].concat() } else { first };
            talks.send_bytes(&said).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let long = begin.elapsed() >= Duration::from_millis(PATIENCE_MS * 3 / 2);
            (long && figure(&server, "frames_timeouts_total") == 4).then_some(())
        });
    });
    let late = json!({"ok": false, "error": "The frame did not come in time", "code": "timeout"});
    assert_eq!(told.recv().unwrap(), late);
    assert!(told.is_closed_by_server());
    assert_eq!(websocket.closed_with(), Some(1008));
    assert_eq!(figure(&server, "auth_timeouts_total"), 0);
    talks.send_frame(true, CONTINUED, b"\"Ping\"}");
    assert_eq!(talks.recv()["ok"], true);
    silent.ok("Ping", json!({}));
    assert_eq!(figure(&server, "frames_timeouts_total"), 4);
}

#[test]
fn what_strangers_have_begun_is_counted_bounded_and_in_nobodys_way() {
    let start = Start::new().env("AUTH_TOKENS", "secret").env("SHARDS", 1);
    let server = start.env("CLIENT_MEMORY_MB", 128).env("AUTH_TIMEOUT_MS", 600_000).start();
    let mut known = server.client();
    known.ok("Auth", json!({"token": "secret"}));
    let push = frame(&encode(&json!({"cmd": "PUSH", "queue": "q", "data": "x".repeat(2 << 20)})));
    known.send_bytes(&push[..1 << 20]).unwrap();
    until("it is counted", || (held(&server, "input") >= 1 << 20).then_some(()));
    let mut head = server.web();
    let long =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: {}", "x".repeat(20_000));
    head.raw(long.as_bytes()).unwrap();
    until("so is a head", || (held(&server, "strangers") >= 20_000).then_some(()));
    let half = [&60_000_u32.to_be_bytes()[..], &vec![0x81; 59_000]].concat();
    let strangers: Vec<Client> = (0..60)
        .map(|_| {
            let mut stranger = server.client();
            let _ = stranger.send_bytes(&half);
            stranger
        })
        .collect();
    // At most 35 of the 60 have room.
    until("some have given way", || {
        assert!(held(&server, "strangers") <= 2 << 20);
        (figure(&server, "frames_crowded_out_total") >= 25).then_some(())
    });
    known.send_bytes(&push[1 << 20..]).unwrap();
    assert_eq!(known.recv().unwrap()["ok"], true);
    head.raw(b"\r\n\r\n").unwrap();
    assert_eq!(head.recv(false).unwrap().status, 200);
    drop(strangers);
    until("nothing is left of it", || {
        let left = held(&server, "strangers") + held(&server, "input");
        (left == 0).then_some(())
    });
}

#[test]
fn a_head_in_pieces_is_counted_until_it_is_whole_whatever_it_opens() {
    let server = Server::start_default();
    for (path, opens) in [("/events", ""), ("/ws", UPGRADE)] {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n{opens}\r\n",
            "x".repeat(4000)
        );
        let web: Http = server.web();
        let mut socket = &web.socket;
        socket.write_all(&head.as_bytes()[..3000]).unwrap();
        until("it is counted", || (held(&server, "input") >= 3000).then_some(()));
        socket.write_all(&head.as_bytes()[3000..]).unwrap();
        let mut first = [0; 9];
        socket.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 ");
        assert_eq!(held(&server, "input"), 0, "while {path} is open");
    }
}

#[test]
fn a_stranger_is_not_late_while_the_server_does_not_read() {
    let start = Start::new().env("SHARDS", 1).env("AUTH_TOKENS", "secret");
    let mut server = start.env("AUTH_TIMEOUT_MS", 2 * PATIENCE_MS).start();
    let mut known = server.client();
    known.ok("Auth", json!({"token": "secret"}));
    // A client with much to read holds up the end, and at the end no command is taken.
    let id = known.push("q", "x".repeat(9 << 20));
    known.take_little();
    (0..4).for_each(|_| drop(known.send("GetJob", json!({"id": id})).unwrap()));
    until("its reply is on its way", || {
        (figure(&server, "sent_bytes_total") > 1 << 20).then_some(())
    });
    let (mut speaks, mut silent) = (server.client(), server.client());
    let mut waits = server.client();
    waits.ok("Auth", json!({"token": "secret"}));
    waits.send("PULL", json!({"queue": "none", "timeout": 60_000})).unwrap();
    waits.ok("Ping", json!({}));
    server.signal(rustix::process::Signal::TERM);
    // The waiting pull is answered at the beginning of the shutdown.
    assert_eq!(waits.recv().unwrap()["job"], json!(null));
    speaks.send("Auth", json!({"token": "secret"})).unwrap();
    assert!(silent.is_closed_by_server(), "it has had its time");
    speaks.socket().set_nonblocking(true).unwrap();
    let said = speaks.socket().peek(&mut [0]).map_err(|error| error.kind());
    assert_eq!(said, Err(ErrorKind::WouldBlock), "it has neither an answer nor an end");
    drop(known);
    assert!(server.wait_for_end().success());
}

#[test]
fn empty_lines_bring_an_http_connection_no_more_time() {
    let start = Start::new().env("HTTP_REQUEST_TIMEOUT_MS", PATIENCE_MS);
    let server = start.env("HTTP_IDLE_TIMEOUT_MS", PATIENCE_MS).start();
    let mut idle: Http = server.web();
    assert_eq!(idle.get("/healthz").status, 200);
    let fresh: Http = server.web();
    thread::scope(|scope| {
        let (idle, fresh) = (&idle, &fresh);
        let lines = || b"\r\n".to_vec();
        scope.spawn(move || is_closed_whatever_it_says("empty lines behind", &idle.socket, lines));
        is_closed_whatever_it_says("nothing but empty lines", &fresh.socket, lines);
    });
}

#[test]
fn a_websocket_has_no_more_commands_than_the_limits_of_both_faces() {
    for (setting, most) in [("TCP_RATE_LIMIT_MAX_REQUESTS", 5), ("RATE_LIMIT_MAX_REQUESTS", 4)] {
        let start = Start::new().env("RATE_LIMIT_WINDOW_MS", 600_000).env(setting, most);
        let server = start.start();
        let mut websocket = WebSocket::open(server.http, "/ws");
        for _ in 0..most {
            websocket.ok("Ping", json!({}));
        }
        // `refused` checks that the reqId is the request's.
        let push = json!({"queue": "q", "data": 1});
        assert_eq!(websocket.refused("PUSH", push), "Rate limit exceeded");
        websocket.send_text("no JSON");
        let refused = json!({"ok": false, "error": "Rate limit exceeded", "code": "rate_limited"});
        assert_eq!(websocket.recv(), refused);
        // A long one is not read to find out to whom it is refused: what is wrong with the end of it is not seen.
        let data = "x".repeat(100_000);
        websocket.send_text(&format!(r#"{{"cmd":"PUSH","reqId":"7","queue":"q","data":"{data}"#));
        let refused = json!({"ok": false, "reqId": "7", "error": "Rate limit exceeded", "code": "rate_limited"});
        assert_eq!(websocket.recv(), refused);
        websocket
            .send_text(&format!(r#"{{"cmd":"PUSH","queue":"q","data":"{data}","reqId":"7"}}"#));
        assert_eq!(websocket.recv().get("reqId"), None);
        assert_eq!(server.client().ok("Count", json!({"queue": "q"}))["count"], 0);
    }
}
