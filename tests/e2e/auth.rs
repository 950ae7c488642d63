//! Tokens. The fear: a guarded server that answers anything to a stranger.

use rustix::process::Signal;
use serde_json::json;

use crate::support::stream::WebSocket;
use crate::support::{Client, Http, Server, Start, get};

#[test]
fn a_guarded_server_answers_nothing_before_auth_and_everything_after_it() {
    let server = Start::new().env("AUTH_TOKENS", "first,second").start();
    for token in ["first", "second"] {
        let mut client = server.client();
        for cmd in ["Hello", "Ping", "PUSH", "Stats", "NoSuchCommand"] {
            assert_eq!(client.refused(cmd, json!({"queue": "q"})), "Not authenticated", "{cmd}");
        }
        for wrong in [json!("wrong"), json!(""), json!("first,second"), json!("firs"), json!(7)] {
            assert_eq!(client.refused("Auth", json!({"token": wrong})), "Invalid token");
        }
        assert_eq!(client.refused("Ping", json!({})), "Not authenticated");
        client.ok("Auth", json!({"token": token}));
        client.ok("Hello", json!({"protocolVersion": 2}));
        client.push("q", 1);
    }
    assert_eq!(server.client().refused("Ping", json!({})), "Not authenticated");
    assert!(get(server.http, "/healthz").unwrap().ends_with("OK"));
}

#[test]
fn commands_sent_along_with_auth_are_served_in_their_order() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let mut client = server.client();
    client.send("Ping", json!({})).unwrap();
    client.send("Auth", json!({"token": "secret"})).unwrap();
    client.send("Ping", json!({})).unwrap();
    let mut answers = Vec::new();
    for _ in 0..3 {
        let reply = client.recv().unwrap();
        answers.push((reply["reqId"].as_str().unwrap().to_owned(), reply["ok"] == true));
    }
    answers.sort();
    let expected = [("r1", false), ("r2", true), ("r3", true)];
    assert_eq!(answers, expected.map(|(id, ok)| (id.to_owned(), ok)));
}

/// A client who shows a wrong token over each protocol, none of which has been answered yet.
fn guess(server: &Server) -> (Client, WebSocket, [Http; 2]) {
    let mut client = server.client();
    client.send("Auth", json!({"token": "guess"})).unwrap();
    let bearer = "Authorization: Bearer secret\r\n";
    let headers = format!("{}{bearer}", crate::support::stream::UPGRADE);
    let mut socket = WebSocket::open_with(server.http, "/ws", &headers).unwrap();
    socket.send("Auth", json!({"token": "guess"}));
    let mut requests = [server.web(), server.web()];
    requests[0].send("GET", "/stats", &[("Authorization", "Bearer guess")], b"").unwrap();
    let json = [("Content-Type", "application/json")];
    requests[1].send("POST", "/ui/login", &json, br#"{"token": "guess"}"#).unwrap();
    (client, socket, requests)
}

/// The fear: a client that guesses tokens has each answer in no time, or keeps others out that come from its address.
#[test]
fn an_address_that_guesses_waits_for_its_answers_and_a_right_token_does_not() {
    let server = Start::new()
        .env("SHARDS", 1)
        .env("AUTH_TOKENS", "secret")
        .env("AUTH_FAILURES_MAX", 3)
        .start();
    let mut first = server.client();
    let start = std::time::Instant::now();
    (0..3).for_each(|_| assert_eq!(first.refused("Auth", json!({"token": "x"})), "Invalid token"));
    let (mut client, mut socket, [mut request, mut login]) = guess(&server);
    // Requests with a good token that come after the guesses are answered before them.
    let mut web = server.web().with_token("secret");
    web.get("/stats").expect(200);
    server.client().ok("Auth", json!({"token": "secret"}));
    assert!(server.web().post("/ui/login", json!({"token": "secret"})).status == 200);
    assert_eq!(client.recv_within(std::time::Duration::from_millis(50)), None);
    assert_eq!(client.recv().unwrap()["error"], "Invalid token");
    assert!(start.elapsed() >= std::time::Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(socket.recv()["error"], "Invalid token");
    assert_eq!(request.recv(false).unwrap().refused(401), "Unauthorized");
    assert_eq!(login.recv(false).unwrap().refused(401), "Invalid token");
    // Each connection goes on, and each refusal has been counted once.
    client.ok("Auth", json!({"token": "secret"}));
    request.call("GET", "/stats", &[("Authorization", "Bearer secret")], b"").expect(200);
    let metrics = web.get("/prometheus").text().to_owned();
    assert!(metrics.contains("\ncorq_auth_failures_total 7\n"), "{metrics}");
}

#[test]
fn a_stop_does_not_wait_for_refusals() {
    let server = Start::new()
        .env("SHARDS", 1)
        .env("AUTH_TOKENS", "secret")
        .env("AUTH_FAILURES_MAX", 1)
        .start();
    server.client().refused("Auth", json!({"token": "x"}));
    let (mut client, ..) = guess(&server);
    server.client().ok("Auth", json!({"token": "secret"}));
    server.signal(Signal::TERM);
    assert_eq!(client.recv().unwrap()["error"], "Invalid token");
}
