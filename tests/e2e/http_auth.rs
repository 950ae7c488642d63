//! Tokens over HTTP. The fear: a path that answers a stranger, or an answer that tells one what
//! there is.

use serde_json::json;

use crate::support::{Http, Start, until};

const GUARDED: &[(&str, &str)] = &[
    ("POST", "/queues/q/jobs"),
    ("GET", "/queues/q/jobs"),
    ("GET", "/jobs/x"),
    ("DELETE", "/jobs/x"),
    ("POST", "/jobs/x/ack"),
    ("POST", "/jobs/x/fail"),
    ("GET", "/stats"),
    ("GET", "/metrics"),
    ("GET", "/events"),
    ("GET", "/events/queues/q"),
    ("GET", "/ws"),
    ("GET", "/ws/queues/q"),
    ("GET", "/nope"),
    ("POST", "/health"),
    ("GET", "/gc"),
    ("PUT", "/jobs/x"),
    ("GET", "/jobs/%zz"),
    ("HEAD", "/stats"),
];

#[test]
fn guarded_endpoints_are_401_without_a_valid_token_before_anything_else() {
    let server = Start::new().env("AUTH_TOKENS", "first,second").start();
    let headers: &[&[(&str, &str)]] = &[
        &[],
        &[("Authorization", "")],
        &[("Authorization", "Bearer")],
        &[("Authorization", "Bearer ")],
        &[("Authorization", "Bearer firs")],
        &[("Authorization", "Bearer first2")],
        &[("Authorization", "Bearer FIRST")],
        &[("Authorization", "Bearer first,second")],
        &[("Authorization", "Basic first")],
        &[("Authorization", "first")],
        &[("Authorization", "Bearer first"), ("Authorization", "Bearer first")],
        &[("Cookie", "token=first")],
    ];
    let mut web = server.web();
    for (method, path) in GUARDED {
        for headers in headers {
            let answer = web.call(method, path, headers, b"");
            assert_eq!(answer.status, 401, "{method} {path} {headers:?}");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            if *method != "HEAD" {
                assert_eq!(answer.refused(401), "Unauthorized");
            }
        }
    }
    let binary = web.call("GET", "/stats", &[], b"");
    assert_eq!(binary.status, 401);
    assert!(!server.output().contains("first"), "tokens are never logged");
}

#[test]
fn every_accepted_token_opens_the_guarded_endpoints() {
    let server = Start::new().env("AUTH_TOKENS", "first, second").start();
    for token in ["first", "second"] {
        let mut web = server.web().with_token(token);
        let id = web.push("q", json!({"data": 1}));
        assert_eq!(web.pull("q").0["id"], json!(id));
        web.post(&format!("/jobs/{id}/ack"), json!({})).expect(200);
        web.get("/stats").expect(200);
        assert_eq!(web.get("/nope").refused(404), "Not found");
    }
    let mut web = server.web();
    for scheme in ["bearer first", "BEARER  second"] {
        assert_eq!(web.call("GET", "/stats", &[("Authorization", scheme)], b"").status, 200);
    }
    // A token is shown with each request; one does not speak for the next.
    assert_eq!(web.get("/stats").status, 401);
}

#[test]
fn open_endpoints_need_no_token() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let mut web = server.web();
    for (method, path, status) in [
        ("GET", "/health", 200),
        ("GET", "/healthz", 200),
        ("GET", "/live", 200),
        ("GET", "/ready", 200),
        ("POST", "/gc", 200),
        ("GET", "/heapstats", 200),
        ("GET", "/prometheus", 200),
        ("HEAD", "/health", 200),
        ("OPTIONS", "/queues/q/jobs", 204),
    ] {
        assert_eq!(web.call(method, path, &[], b"").status, status, "{method} {path}");
        let wrong = [("Authorization", "Bearer wrong")];
        assert_eq!(web.call(method, path, &wrong, b"").status, status, "{method} {path}");
    }
}

#[test]
fn the_text_for_prometheus_is_guarded_if_the_setting_says_so() {
    for value in ["true", "1", "yes"] {
        let start = Start::new().env("AUTH_TOKENS", "secret");
        let server = start.env("REQUIRE_AUTH_FOR_METRICS", value).start();
        assert_eq!(server.web().get("/prometheus").refused(401), "Unauthorized");
        assert_eq!(server.web().with_token("secret").get("/prometheus").status, 200);
    }
    let server = Start::new().env("REQUIRE_AUTH_FOR_METRICS", "true").start();
    assert_eq!(server.web().get("/prometheus").status, 200, "there is no token to show");
}

#[test]
fn a_stranger_cannot_upload_a_body() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let mut web = server.web();
    let head =
        "POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12000000\r\n\r\n";
    web.raw(head.as_bytes()).unwrap();
    assert_eq!(web.recv(false).unwrap().refused(401), "Unauthorized");
    assert!(web.is_closed_by_server());
    let mut web = server.web();
    let expects = "POST /queues/q/jobs HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n";
    web.raw(format!("{expects}Content-Length: 5\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(web.recv(false).unwrap().status, 401, "and is not told to go on");
}

/// Some paths need no token, and none of those has a body that says anything.
#[test]
fn a_stranger_s_body_takes_no_memory_where_no_token_is_asked_for() {
    let server = Start::new().env("AUTH_TOKENS", "secret").env("SHARDS", 1).start();
    let figure = |name: &str| -> u64 {
        let text = server.web().get("/prometheus").text().to_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        line.trim().parse().unwrap()
    };
    let part = vec![b'x'; 40_000];
    let paths = ["GET /healthz", "GET /health", "GET /ready", "POST /gc", "GET /heapstats"];
    let mut strangers = Vec::new();
    for path in paths.into_iter().chain(["GET /prometheus", "OPTIONS /queues/q/jobs"]) {
        let mut web = server.web();
        let head = format!("{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n");
        web.raw(&[head.as_bytes(), &part].concat()).unwrap();
        strangers.push(web);
    }
    let sent = (strangers.len() * part.len()) as u64;
    until("it has come", || (figure("corq_received_bytes_total ") >= sent).then_some(()));
    for account in ["input", "strangers"] {
        assert_eq!(figure(&format!("corq_client_memory_bytes{{account=\"{account}\"}} ")), 0);
    }
    // The next bytes are the rest of the body, and then the next request.
    let rest = vec![b'x'; 60_000 - part.len()];
    for mut web in strangers {
        web.raw(&rest).unwrap();
        assert!(web.recv(false).unwrap().status < 300);
        assert_eq!(web.get("/healthz").status, 200);
    }
}

#[test]
fn a_request_without_its_body_leaves_the_connection_open_when_refused() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let mut web = server.web();
    assert_eq!(web.post("/queues/q/jobs", json!({"data": 1})).status, 401);
    let mut web: Http = web.with_token("secret");
    web.push("q", json!({"data": 1}));
}
