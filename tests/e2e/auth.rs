//! Tokens. The fear: a guarded server that answers anything to a stranger.

use serde_json::json;

use crate::support::{Start, get};

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
