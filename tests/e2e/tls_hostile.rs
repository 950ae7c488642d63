//! Clients that are slow, broken or many over TLS. The fear: a handshake costs the server a hundred times what it
//! costs the client that begins it, so a few of them hold up everybody, or hold memory for nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustls::version::{TLS12, TLS13};
use serde_json::json;

use crate::e2e::tls::{ping, receive};
use crate::secure::{Authority, Tls, connect, session, socket, tunnel};
use crate::support::{Client, Http, Server, Start, encode, frame, until};

fn guarded(start: Start) -> (Server, Authority) {
    let authority = Authority::new();
    let paper = authority.issue("server", None);
    (start.tls(&paper).start(), authority)
}

fn metric(server: &Server, authority: &Authority, name: &str) -> u64 {
    let http = tunnel(server.http, &authority.believer());
    let text = Http::connect(http).get("/prometheus").text().to_owned();
    let line = text.lines().find(|line| line.starts_with(&format!("corq_{name} "))).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The first words of a client.
fn hello(authority: &Authority) -> Vec<u8> {
    let mut hello = Vec::new();
    session(&authority.believer()).write_tls(&mut hello).unwrap();
    hello
}

fn is_cut(mut socket: TcpStream) -> bool {
    !matches!(socket.read(&mut [0; 1024]), Ok(1..))
}

#[test]
fn a_handshake_that_takes_too_long_is_cut() {
    // Longer than a client of this test that is quick stands still.
    const PATIENCE_MS: u64 = 8000;
    let (server, authority) = guarded(Start::new().env("TLS_HANDSHAKE_TIMEOUT_MS", PATIENCE_MS));
    let hello = hello(&authority);
    let mut stream = connect(server.tcp, &authority.believer()).unwrap();
    let begin = Instant::now();
    let slow = [&hello[..0], &hello[..1], &hello[..5], &hello[..hello.len() - 1]].map(|said| {
        let mut slow = socket(server.tcp);
        slow.write_all(said).unwrap();
        (slow, said.len())
    });
    // A client that has been answered and says nothing more is cut, too.
    let mut silent = socket(server.tcp);
    silent.write_all(&hello).unwrap();
    for (slow, bytes) in slow {
        assert!(is_cut(slow), "it is answered after {bytes} bytes");
    }
    // The server counts in whole milliseconds.
    assert!(begin.elapsed() >= Duration::from_millis(PATIENCE_MS - 1), "{:?}", begin.elapsed());
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    assert!(!rest.is_empty());
    assert_eq!(metric(&server, &authority, "tls_handshake_timeouts_total"), 5);
    assert_eq!(ping(&mut stream).unwrap()["ok"], true, "who has agreed may be silent");
}

/// The beginning of a hello that says it is as long as one can be, in as many records.
fn endless_hello(bytes: usize) -> Vec<u8> {
    let mut message = vec![1, 0, 0xff, 0xf0, 3, 3];
    message.resize(bytes, 0);
    let record =
        |part: &[u8]| [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(16 << 10).flat_map(record).collect()
}

#[test]
fn what_has_come_of_handshakes_is_bounded_for_all_of_them_together_and_counted() {
    const STRANGERS: usize = 150;
    const HELD: &str = "client_memory_bytes{account=\"handshakes\"}";
    let start = Start::new().env("SHARDS", 1).env("TLS_HANDSHAKE_TIMEOUT_MS", 600_000);
    let (server, authority) = guarded(start.env("CLIENT_MEMORY_MB", 256));
    let hello = endless_hello(60_000);
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        let mut stranger = socket(server.tcp);
        // A client that has given way is cut off, and its writing fails.
        let _ = stranger.write_all(&hello);
        strangers.push(stranger);
    }
    until("some to give way", || {
        let held = metric(&server, &authority, HELD);
        assert!(held <= 4 << 20, "{held}");
        let gone = metric(&server, &authority, "tls_handshakes_crowded_out_total");
        (gone > 0 && held > 2 << 20).then_some(())
    });
    let mut stream = connect(server.tcp, &authority.believer()).unwrap();
    assert_eq!(ping(&mut stream).unwrap()["ok"], true, "who means it gets in");
    drop(strangers);
    until("nothing to be held", || (metric(&server, &authority, HELD) == 0).then_some(()));
}

#[test]
fn bytes_may_come_one_at_a_time() {
    let (server, authority) = guarded(Start::new());
    for version in [&TLS12, &TLS13] {
        let mut socket = socket(server.tcp);
        let mut tls = session(&authority.client(None, &[version]));
        let one_by_one = |tls: &mut rustls::ClientConnection, socket: &mut TcpStream| {
            let mut bytes = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut bytes).unwrap();
            }
            for byte in bytes {
                socket.write_all(&[byte]).unwrap();
            }
        };
        while tls.is_handshaking() {
            one_by_one(&mut tls, &mut socket);
            if tls.wants_read() {
                tls.read_tls(&mut socket).unwrap();
                tls.process_new_packets().unwrap();
            }
        }
        let push = json!({"cmd": "PUSH", "queue": "q", "data": "x".repeat(3000)});
        tls.writer().write_all(&frame(&encode(&push))).unwrap();
        one_by_one(&mut tls, &mut socket);
        let mut stream = Tls::new(tls, socket);
        assert_eq!(receive(&mut stream).unwrap()["ok"], true);
    }
}

#[test]
fn clients_that_go_away_in_a_handshake_leave_nothing_behind() {
    let (server, authority) = guarded(Start::new());
    let hello = hello(&authority);
    let began = metric(&server, &authority, "tls_handshakes_total");
    for bytes in 0..hello.len() {
        socket(server.tcp).write_all(&hello[..bytes]).unwrap();
    }
    for _ in 0..50 {
        let mut gone = socket(server.tcp);
        gone.write_all(&hello).unwrap();
        // A reset, as of a process that is killed.
        gone.read_exact(&mut [0]).unwrap();
        drop(gone);
    }
    until("all are gone", || {
        // The one that asks is there.
        (metric(&server, &authority, "tls_connections") == 1).then_some(())
    });
    assert!(metric(&server, &authority, "tls_handshakes_total") > began);
    let failed = || metric(&server, &authority, "tls_handshake_failures_total");
    until("half of them to have failed", || (failed() >= hello.len() as u64 / 2).then_some(()));
}

#[test]
fn a_record_that_was_changed_ends_its_connection_and_no_other() {
    let (server, authority) = guarded(Start::new());
    for version in [&TLS12, &TLS13] {
        let config = authority.client(None, &[version]);
        let mut other = connect(server.tcp, &config).unwrap();
        let mut stream = connect(server.tcp, &config).unwrap();
        ping(&mut stream).unwrap();
        let push = json!({"cmd": "PUSH", "queue": "q", "data": 1});
        stream.conn.writer().write_all(&frame(&encode(&push))).unwrap();
        let mut bytes = Vec::new();
        stream.conn.write_tls(&mut bytes).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        stream.sock.write_all(&bytes).unwrap();
        let error = receive(&mut stream).unwrap_err().to_string();
        assert!(error.contains("BadRecordMac"), "{error}");
        assert_eq!(ping(&mut other).unwrap()["ok"], true);
    }
    let corrupt = || metric(&server, &authority, "tls_corrupt_total");
    until("both to be counted", || (corrupt() == 2).then_some(()));
    let mut client = Client::connect(tunnel(server.tcp, &authority.believer()));
    assert_eq!(client.ok("Count", json!({"queue": "q"}))["count"], 0);
}

#[test]
fn what_only_looks_like_a_handshake_is_refused() {
    let (server, authority) = guarded(Start::new());
    let mut endless = vec![0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    endless.resize(5 + 0x4000, 0);
    for said in
        [&[0x16; 5000][..], &[0x16, 3, 1, 0, 2, 0, 0], &[0x16, 3, 3, 0xff, 0xff, 1], &endless]
    {
        let mut socket = socket(server.tcp);
        // The connection may be cut before everything is said.
        let _ = (0..64).try_for_each(|_| socket.write_all(said));
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest[0] == 0x15, "an alert or nothing: {rest:?}");
    }
    let mut stream = connect(server.tcp, &authority.believer()).unwrap();
    assert_eq!(ping(&mut stream).unwrap()["ok"], true);
}

#[test]
fn a_flood_of_handshakes_does_not_hold_up_those_who_are_there() {
    const FLOOD: usize = 400;
    let (server, authority) = guarded(Start::new().env("SHARDS", 1));
    let mut stream = connect(server.tcp, &authority.believer()).unwrap();
    let hello = hello(&authority);
    until("an answer before those to all of the flood", || {
        let mut flood: Vec<TcpStream> = (0..FLOOD).map(|_| socket(server.tcp)).collect();
        ping(&mut stream).unwrap();
        // All of it is there when the server wakes, and the ping comes last.
        server.freeze();
        for socket in &mut flood {
            socket.write_all(&hello).unwrap();
        }
        stream.write_all(&frame(&encode(&json!({"cmd": "Ping"})))).unwrap();
        stream.flush().unwrap();
        server.signal(rustix::process::Signal::CONT);
        receive(&mut stream).unwrap();
        let is_unanswered = |socket: &&TcpStream| {
            socket.set_nonblocking(true).unwrap();
            let answer = socket.peek(&mut [0]);
            socket.set_nonblocking(false).unwrap();
            answer.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        // None, if this test stood still before it looked.
        let unanswered = flood.iter().filter(is_unanswered).count();
        println!("{unanswered} of {FLOOD} handshakes go on when the ping is back");
        for socket in &mut flood {
            socket.read_exact(&mut [0]).unwrap();
        }
        (unanswered > 0).then_some(())
    });
}

#[test]
fn an_idle_connection_holds_its_keys_and_little_else() {
    const CONNECTIONS: u64 = 400;
    let (server, authority) = guarded(Start::new().memory().env("SHARDS", 1));
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    };
    let config = authority.believer();
    let open = |count: u64| -> Vec<Tls> {
        (0..count)
            .map(|_| {
                let mut stream = connect(server.tcp, &config).unwrap();
                let push = json!({"cmd": "GetState", "id": "x".repeat(20_000)});
                stream.write_all(&frame(&encode(&push))).unwrap();
                receive(&mut stream).unwrap();
                stream
            })
            .collect()
    };
    let first = open(100);
    let before = resident();
    let more = open(CONNECTIONS);
    let each = resident().saturating_sub(before) / CONNECTIONS;
    println!("{each} bytes for each idle connection");
    assert!(each < 12 << 10, "{each} bytes");
    drop((first, more));
}
