//! Web pages of other origins, and names that were pointed to the server, while no token guards it. The fear: a page that
//! an operator opens reads, takes or deletes jobs; or a program that uses no browser is refused with it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::e2e::space::metrics;
use crate::support::stream::UPGRADE;
use crate::support::{Answer, Http, Server, Start, until};

/// Everything that can be asked for.
const REQUESTS: [(&str, &str, &str); 20] = [
    ("POST", "/queues/q/jobs", r#"{"data":"forged"}"#),
    ("GET", "/queues/q/jobs", ""),
    ("HEAD", "/queues/q/jobs", ""),
    ("GET", "/jobs/kept", ""),
    ("DELETE", "/jobs/kept", ""),
    ("POST", "/jobs/kept/ack", ""),
    ("POST", "/jobs/kept/fail", ""),
    ("GET", "/health", ""),
    ("GET", "/healthz", ""),
    ("GET", "/live", ""),
    ("GET", "/ready", ""),
    ("GET", "/stats", ""),
    ("GET", "/metrics", ""),
    ("GET", "/prometheus", ""),
    ("POST", "/gc", ""),
    ("GET", "/heapstats", ""),
    ("GET", "/events", ""),
    ("GET", "/ws", UPGRADE),
    ("GET", "/ws/queues/q", UPGRADE),
    ("GET", "/nowhere", ""),
];

/// A request with these header lines and no others.
fn ask(port: u16, (method, path, more): (&str, &str, &str), lines: &[&str]) -> Answer {
    let upgrade = if more == UPGRADE { UPGRADE } else { "" };
    let body = if more == UPGRADE { "" } else { more };
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let lines: String = lines.iter().flat_map(|line| [line, "\r\n"]).collect();
    let mut web = Http::connect(port);
    web.raw(format!("{method} {path} HTTP/1.1\r\n{lines}{upgrade}{length}\r\n{body}").as_bytes())
        .unwrap();
    web.recv(method == "HEAD").unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

fn with_a_job(start: Start) -> Server {
    let server = start.start();
    server.client().push_with("q", 1, json!({"jobId": "kept"}));
    server
}

fn assert_untouched(server: &Server) {
    let mut client = server.client();
    let counts = client.ok("GetJobCounts", json!({"queue": "q"}))["counts"].clone();
    assert_eq!((&counts["waiting"], &counts["active"]), (&json!(1), &json!(0)), "{counts}");
    assert_eq!(client.state("kept"), "waiting");
}

fn assert_refused(answer: &Answer, about: &str) {
    assert_eq!(answer.status, 403, "{about}: {answer:?}");
    if answer.body.is_empty() {
        // HEAD.
        return;
    }
    let body: Value = answer.json();
    assert_eq!((&body["ok"], &body["code"]), (&json!(false), &json!("cross-origin")), "{about}");
    let text = body["error"].as_str().unwrap();
    assert!(text.contains("CORS_ALLOW_ORIGIN") || text.contains("ALLOWED_HOSTS"), "{text}");
}

#[test]
fn a_page_of_another_origin_gets_nothing_done_whatever_it_asks_for() {
    let server = with_a_job(Start::new());
    let local = format!("Host: 127.0.0.1:{}", server.http);
    let mut refused = 0;
    for lines in [
        &["Origin: https://evil.example"][..],
        &["Origin: null"],
        &["Origin: http://localhost:1"],
        &["Sec-Fetch-Site: cross-site"],
        &["Sec-Fetch-Site: same-site"],
        &["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"],
    ] {
        for request in REQUESTS {
            let answer = ask(server.http, request, &[&[&*local], lines].concat());
            assert_refused(&answer, &format!("{request:?} {lines:?}"));
            refused += 1;
        }
    }
    assert_untouched(&server);
    let counted = metrics(&mut server.client())["corq_http_cross_origin_refused_total"];
    assert_eq!(counted, refused);
    // A preflight is answered, and the request then refused.
    let answer = ask(
        server.http,
        ("OPTIONS", "/queues/q/jobs", ""),
        &[&local, "Origin: https://evil.example"],
    );
    assert_eq!(answer.status, 204);
}

#[test]
fn a_name_that_was_pointed_here_gets_nothing_but_whether_the_server_lives() {
    let server = with_a_job(Start::new());
    let host = format!("Host: evil.example:{}", server.http);
    let origin = format!("Origin: http://evil.example:{}", server.http);
    for request in REQUESTS {
        let answer = ask(server.http, request, &[&host, &origin, "Sec-Fetch-Site: same-origin"]);
        if ["/healthz", "/live", "/ready"].contains(&request.1) {
            assert_eq!(answer.status, 200, "{request:?}");
        } else {
            assert_refused(&answer, &format!("{request:?}"));
        }
    }
    assert_untouched(&server);
}

#[test]
fn programs_notice_nothing() {
    let server = with_a_job(Start::new().env("ALLOWED_HOSTS", "queue.example, Corq."));
    let port = server.http;
    for host in [
        format!("Host: 127.0.0.1:{port}"),
        format!("Host: [::1]:{port}"),
        "Host: 10.0.0.7".into(),
        format!("Host: LocalHost:{port}"),
        "Host: queue.example".into(),
        format!("Host: corq:{port}"),
        "Host:".into(),
    ] {
        for agent in ["User-Agent: curl/8.5.0", "Accept: */*"] {
            for path in ["/jobs/kept", "/stats", "/prometheus", "/health"] {
                let answer = ask(port, ("GET", path, ""), &[&host, agent]);
                assert_eq!(answer.status, 200, "{host} {path}");
                assert_eq!(answer.headers["access-control-allow-origin"], "*");
            }
        }
        assert_eq!(ask(port, ("GET", "/queues/none/jobs", ""), &[&host]).status, 200, "{host}");
    }
    // A page of the server itself, and what its user opens.
    let own = format!("Host: localhost:{port}");
    for lines in [
        vec![own.clone(), format!("Origin: http://localhost:{port}")],
        vec![own.clone(), "Sec-Fetch-Site: same-origin".into()],
        vec![own, "Sec-Fetch-Site: none".into()],
    ] {
        let lines: Vec<&str> = lines.iter().map(|line| &**line).collect();
        assert_eq!(ask(port, ("GET", "/queues/none/jobs", ""), &lines).status, 200, "{lines:?}");
    }
    let mut old = Http::connect(port);
    old.raw(b"GET /jobs/kept HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.recv(false).unwrap().status, 200, "HTTP/1.0 need not say a host");
    assert_untouched(&server);
}

/// Browsers say nothing of the page with an image that lies on a server without TLS, and the page can tell them not to
/// say where it is.
#[test]
fn a_browser_that_does_not_say_for_which_page_takes_no_job() {
    let server = with_a_job(Start::new());
    let lines =
        ["Host: 192.168.1.5:6790", "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Chrome/140"];
    let answer = ask(server.http, ("GET", "/queues/q/jobs", ""), &lines);
    assert_eq!((answer.status, &answer.json()["code"]), (403, &json!("cross-origin")));
    assert_eq!(ask(server.http, ("GET", "/stats", ""), &lines).status, 200, "what it cannot read");
    assert_untouched(&server);
}

#[test]
fn listed_origins_are_let_in_and_named_in_their_answers() {
    let origins = "https://a.example, HTTP://B.example:80,https://c.example:8443";
    let server = with_a_job(Start::new().env("CORS_ALLOW_ORIGIN", origins));
    let allowed = |answer: &Answer| {
        let headers = &answer.headers;
        assert_eq!(headers["vary"], "Origin");
        headers["access-control-allow-origin"].clone()
    };
    for origin in ["https://a.example", "http://b.example", "https://c.example:8443"] {
        let lines = ["Host: localhost", &format!("Origin: {origin}"), "Sec-Fetch-Site: cross-site"];
        let answer = ask(server.http, ("GET", "/jobs/kept", ""), &lines);
        assert_eq!((answer.status, allowed(&answer).as_str()), (200, origin));
        let upgraded = ask(server.http, ("GET", "/ws", UPGRADE), &lines);
        assert_eq!((upgraded.status, allowed(&upgraded).as_str()), (101, origin));
        let preflight = ask(server.http, ("OPTIONS", "/x", ""), &lines);
        assert_eq!((preflight.status, allowed(&preflight).as_str()), (204, origin));
    }
    for origin in ["https://a.example.evil", "https://c.example", "null", "http://a.example"] {
        let lines = ["Host: localhost", &format!("Origin: {origin}")];
        let answer = ask(server.http, ("GET", "/jobs/kept", ""), &lines);
        assert_refused(&answer, origin);
        assert_eq!(allowed(&answer), "https://a.example");
    }
    // Nobody says which page an image is for, so it is in no list.
    let image = ["Host: localhost", "Sec-Fetch-Site: cross-site"];
    assert_refused(&ask(server.http, ("GET", "/queues/q/jobs", ""), &image), "an image");
    assert_untouched(&server);
}

#[test]
fn only_a_star_that_was_set_lets_all_pages_in_and_the_start_says_so() {
    let page = ["Host: localhost", "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"];
    let words = "CORS_ALLOW_ORIGIN is *";
    let unset = with_a_job(Start::new());
    assert!(!unset.output().contains(words));
    let server = with_a_job(Start::new().env("CORS_ALLOW_ORIGIN", "*").env("ALLOWED_HOSTS", "*"));
    until("a warning", || server.output().contains(words).then_some(()));
    until("another", || server.output().contains("ALLOWED_HOSTS is *").then_some(()));
    let answer = ask(server.http, ("GET", "/jobs/kept", ""), &page);
    assert_eq!((answer.status, &*answer.headers["access-control-allow-origin"]), (200, "*"));
    assert_eq!(ask(server.http, ("GET", "/ws", UPGRADE), &page).status, 101);
    let rebound = ["Host: evil.example", "Origin: http://evil.example"];
    assert_eq!(ask(server.http, ("GET", "/stats", ""), &rebound).status, 200);
}

#[test]
fn with_tokens_a_page_is_judged_by_its_token() {
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let page = ["Host: queue.example", "Origin: https://any.example", "Sec-Fetch-Site: cross-site"];
    assert_eq!(ask(server.http, ("GET", "/stats", ""), &page).status, 401);
    let shown = [&page[..], &["Authorization: Bearer secret"]].concat();
    assert_eq!(ask(server.http, ("GET", "/stats", ""), &shown).status, 200);
    assert_eq!(ask(server.http, ("GET", "/ws", UPGRADE), &page).status, 401);
}

#[test]
fn through_a_unix_socket_any_host_is_taken_and_no_foreign_origin() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("http.sock");
    let _server = Start::new().env("HTTP_SOCKET_PATH", path.display()).env("SHARDS", 2).start();
    let ask = |lines: &str| {
        let mut socket = UnixStream::connect(&path).unwrap();
        let request = format!("GET /stats HTTP/1.1\r\n{lines}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    // As many as there are shards, and more: each of them is seated with the next.
    for _ in 0..4 {
        assert!(ask("Host: whatever").starts_with("HTTP/1.1 200 "));
        let page = ask("Host: whatever\r\nOrigin: http://evil.example");
        assert!(page.starts_with("HTTP/1.1 403 ") && page.contains("cross-origin"), "{page}");
    }
}

/// Sends what a browser would post to the port for frames: its first bytes announce a frame longer than may be.
#[test]
fn http_at_the_port_for_frames_is_refused_at_its_first_bytes() {
    let server = with_a_job(Start::new());
    for method in ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "CONNECT"] {
        let mut client = server.client();
        let push = "\0\0\0\x20\u{3}cmd\u{4}PUSH";
        let request = format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n{push}");
        client.send_bytes(request.as_bytes()).unwrap();
        let reply = client.recv().unwrap();
        assert_eq!(
            reply,
            json!({"ok": false, "error": "Frame exceeds 64 MB", "code": "too_large"}),
            "{method}"
        );
        assert!(client.is_closed_by_server(), "{method}");
    }
    assert_untouched(&server);
}
