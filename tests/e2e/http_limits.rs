//! Limits on how often a client may come. The fear: a limit per shard instead of per server, a client
//! that pays for another, and a supervisor that is shut out.

use serde_json::json;

use crate::support::{Http, Server, Start, encode, until};

fn limited(requests: u32, window_ms: u32) -> Server {
    let start = Start::new().env("SHARDS", 3).env("RATE_LIMIT_MAX_REQUESTS", requests);
    start.env("RATE_LIMIT_WINDOW_MS", window_ms).start()
}

fn come(web: &mut Http, headers: &[(&str, &str)]) -> u16 {
    web.call("GET", "/stats", headers, b"").status
}

#[test]
fn a_client_that_comes_too_often_is_429_on_whatever_shard() {
    let server = limited(10, 600_000);
    // Connections spread over the shards; the client is one.
    let mut connections: Vec<Http> = (0..12).map(|_| server.web()).collect();
    let headers = [("X-Forwarded-For", "192.0.2.1, 10.0.0.1")];
    let mut statuses: Vec<u16> = connections.iter_mut().map(|web| come(web, &headers)).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
    let answer = connections[0].call("POST", "/queues/q/jobs", &headers, b"{\"data\":1}");
    assert_eq!(answer.refused(429), "Rate limit exceeded");
    let wait_s: u64 = answer.headers["retry-after"].parse().unwrap();
    assert!((500..=610).contains(&wait_s), "{wait_s}");
    assert_eq!(server.client().ok("Count", json!({"queue": "q"}))["count"], 0);
    let text = server.web().call("GET", "/prometheus", &[("X-Real-IP", "192.0.2.9")], b"");
    assert!(text.text().contains("corq_rate_limited_total 3\n"), "{}", text.text());
    assert!(text.text().contains("corq_rate_limited_clients 1\n"), "{}", text.text());
}

#[test]
fn clients_are_told_apart_by_their_address_headers() {
    let server = limited(2, 600_000);
    let mut web = server.web();
    let clients: &[&[(&str, &str)]] = &[
        &[("X-Forwarded-For", "192.0.2.1")],
        &[("X-Forwarded-For", " 192.0.2.2 , 192.0.2.1")],
        &[("X-Real-IP", "192.0.2.3")],
        &[("X-Forwarded-For", "2001:db8::1"), ("X-Real-IP", "192.0.2.3")],
        &[],
    ];
    for _ in 0..2 {
        for client in clients {
            assert_eq!(come(&mut web, client), 200, "{client:?}");
        }
    }
    for client in clients {
        assert_eq!(come(&mut web, client), 429, "{client:?}");
    }
    // An address is one client with any port.
    for spelling in ["192.0.2.1:1001", "::ffff:192.0.2.1", "[2001:db8::1]:1", "2001:DB8:0::1"] {
        assert_eq!(come(&mut web, &[("X-Forwarded-For", spelling)]), 429, "{spelling}");
    }
    // A request that names no address is of the client "unknown".
    let unknown: &[&[(&str, &str)]] = &[
        &[("X-Forwarded-For", "")],
        &[("X-Forwarded-For", "unknown")],
        &[("X-Real-IP", "unknown")],
    ];
    for client in unknown {
        assert_eq!(come(&mut web, client), 429, "{client:?}");
    }
    assert_eq!(come(&mut web, &[("X-Forwarded-For", "192.0.2.77")]), 200);
}

#[test]
fn the_window_slides_on() {
    let server = limited(3, 1000);
    let mut web = server.web();
    let four = b"GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4);
    for _ in 0..3 {
        // Four that come in one piece are too many, whatever the machine does between them and others.
        until("the last of four to be refused", || {
            web.raw(&four).unwrap();
            let statuses = [(); 4].map(|()| web.recv(false).unwrap().status);
            (statuses[3] == 429).then_some(())
        });
        until("the window to slide", || (come(&mut web, &[]) == 200).then_some(()));
    }
}

#[test]
fn supervisors_and_preflights_are_not_limited() {
    let server = limited(1, 600_000);
    let mut web = server.web();
    assert_eq!([come(&mut web, &[]), come(&mut web, &[])], [200, 429]);
    for _ in 0..10 {
        for path in ["/healthz", "/live", "/ready"] {
            assert_eq!(web.get(path).status, 200, "{path}");
        }
        assert_eq!(web.call("OPTIONS", "/stats", &[], b"").status, 204);
    }
    assert_eq!(web.get("/health").status, 429);
    assert_eq!(web.get("/nope").status, 429);
}

#[test]
fn attempts_with_wrong_tokens_count() {
    let start = Start::new().env("AUTH_TOKENS", "secret").env("RATE_LIMIT_MAX_REQUESTS", 5);
    let server = start.start();
    let mut web = server.web().with_token("wrong");
    let statuses: Vec<u16> = (0..7).map(|_| come(&mut web, &[])).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429]);
}

#[test]
fn pipelined_requests_wait_for_the_verdict_in_their_order() {
    let server = limited(4, 600_000);
    for number in 0..6 {
        let mut web = server.web();
        let client = format!("192.0.2.{number}");
        let headers = [("X-Forwarded-For", client.as_str())];
        for _ in 0..6 {
            web.send("POST", "/queues/q/jobs", &headers, b"{\"data\":1}").unwrap();
        }
        let statuses: Vec<u16> = (0..6).map(|_| web.recv(false).unwrap().status).collect();
        assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    }
}

#[test]
fn a_tcp_connection_over_its_limit_is_refused_with_its_request_id() {
    let start = Start::new().env("TCP_RATE_LIMIT_MAX_REQUESTS", 5);
    let server = start.clone().env("RATE_LIMIT_WINDOW_MS", 600_000).start();
    let mut client = server.client();
    for _ in 0..5 {
        client.ok("Ping", json!({}));
    }
    // `refused` checks that the reqId is the request's.
    assert_eq!(client.refused("PUSH", json!({"queue": "q", "data": 1})), "Rate limit exceeded");
    server.client().ok("Ping", json!({}));
    assert_eq!(server.web().get("/stats").status, 200, "HTTP has a limit of its own");
    assert_eq!(server.client().ok("Count", json!({"queue": "q"}))["count"], 0);
}

#[test]
fn the_window_of_a_tcp_connection_slides_on() {
    let start = Start::new().env("TCP_RATE_LIMIT_MAX_REQUESTS", 5);
    let server = start.env("RATE_LIMIT_WINDOW_MS", 1000).start();
    let mut client = server.client();
    let ping = || ("Ping", json!({}));
    until("the last of six to be refused", || {
        let replies = client.at_once([ping(), ping(), ping(), ping(), ping(), ping()]);
        (replies[5]["error"] == "Rate limit exceeded").then_some(())
    });
    until("the window to slide", || (client.call("Ping", json!({}))["ok"] == true).then_some(()));
}

#[test]
fn a_refusal_repeats_no_request_id_that_is_longer_than_one_may_be() {
    let server = Start::new().env("TCP_RATE_LIMIT_MAX_REQUESTS", 1).start();
    let mut client = server.client();
    client.ok("Ping", json!({}));
    let ping = json!({"cmd": "Ping", "reqId": "x".repeat(1 << 20)});
    client.send_value(&encode(&ping)).unwrap();
    let reply = client.recv().unwrap();
    assert_eq!(reply, json!({"ok": false, "error": "Rate limit exceeded", "code": "rate_limited"}));
}

#[test]
fn without_a_setting_nothing_is_limited() {
    let server = Start::new()
        .env("RATE_LIMIT_MAX_REQUESTS", "Infinity")
        .env("TCP_RATE_LIMIT_MAX_REQUESTS", "infinity")
        .start();
    let mut web = server.web();
    (0..300).for_each(|_| assert_eq!(come(&mut web, &[]), 200));
}
