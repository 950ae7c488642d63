//! HTTP/1.1 itself. The fear: a client of any other make that cannot talk to the server, and two
//! requests that get into each other's way.

use std::io::Write;
use std::net::Shutdown;

use serde_json::{Value, json};

use crate::support::{Http, until};
use crate::{client, queue, shared};

fn web() -> Http {
    shared().web()
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let mut web = web();
    let queue = queue("alive");
    for n in 0..50 {
        let answer = web.post(&format!("/queues/{queue}/jobs"), json!({"data": n}));
        assert_eq!(answer.headers["connection"], "keep-alive");
        answer.expect(200);
        assert_eq!(web.get("/nope").status, 404);
    }
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], 50);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let mut web = web();
    let queue = queue("pipe");
    for n in 0..200 {
        let path = format!("/queues/{queue}-{}/jobs", n % 7);
        web.send("POST", &path, &[], json!({"data": n}).to_string().as_bytes()).unwrap();
        web.send("GET", "/healthz", &[], b"").unwrap();
        web.send("GET", &format!("/jobs/none-{n}"), &[], b"").unwrap();
    }
    for n in 0..200 {
        let id = web.recv(false).unwrap().expect(200)["id"].as_str().unwrap().to_owned();
        assert_eq!(web.recv(false).unwrap().text(), "OK");
        assert_eq!(web.recv(false).unwrap().refused(404), "Job not found");
        assert_eq!(client().ok("GetJob", json!({"id": id}))["job"]["data"], n);
    }
}

#[test]
fn a_long_poll_holds_up_only_its_own_connection() {
    let queue = queue("hold");
    let mut waiting = web();
    waiting.send("GET", &format!("/queues/{queue}/jobs?timeout=60000"), &[], b"").unwrap();
    waiting.send("GET", "/healthz", &[], b"").unwrap();
    let mut other = web();
    assert_eq!(other.get("/healthz").text(), "OK");
    let id = other.push(&queue, json!({"data": 1}));
    assert_eq!(waiting.recv(false).unwrap().expect(200)["job"]["id"], json!(id));
    assert_eq!(waiting.recv(false).unwrap().text(), "OK");
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let queue = queue("pieces");
    let body = json!({"data": "x".repeat(50)}).to_string();
    let request = format!(
        "POST /queues/{queue}/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut web = web();
    for at in 1..request.len() {
        let (front, back) = request.split_at(at);
        web.raw(front.as_bytes()).unwrap();
        web.raw(back.as_bytes()).unwrap();
        web.recv(false).unwrap().expect(200);
    }
    for byte in request.bytes() {
        web.raw(&[byte]).unwrap();
    }
    web.recv(false).unwrap().expect(200);
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], request.len());
}

#[test]
fn a_chunked_body_is_put_together() {
    let queue = queue("chunks");
    let mut web = web();
    let head = format!(
        "POST /queues/{queue}/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let mut request = head.clone().into_bytes();
    for byte in "{\"data\":\"chunked\"}".bytes() {
        write!(request, "1;ext=1\r\n{}\r\n", char::from(byte)).unwrap();
    }
    request.extend_from_slice(b"0\r\nTrailer: 1\r\n\r\n");
    web.raw(&request).unwrap();
    web.recv(false).unwrap().expect(200);
    // The next request on the connection is understood.
    assert_eq!(web.pull(&queue).0["data"], "chunked");
    web.raw(format!("{head}zz\r\n").as_bytes()).unwrap();
    web.recv(false).unwrap().refused(400);
    assert!(web.is_closed_by_server());
}

#[test]
fn a_client_that_expects_it_is_told_to_continue() {
    let queue = queue("expect");
    let mut web = web();
    let body = "{\"data\":1}";
    let head = |more: &str| {
        format!(
            "POST /queues/{queue}/jobs HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {}\r\n\r\n",
            body.len()
        )
    };
    web.raw(head("Expect: 100-continue\r\n").as_bytes()).unwrap();
    assert_eq!(web.recv(true).unwrap().status, 100);
    web.raw(body.as_bytes()).unwrap();
    web.recv(false).unwrap().expect(200);
    // A client that does not wait for it does not get it.
    web.raw(format!("{}{body}", head("Expect: 100-Continue\r\n")).as_bytes()).unwrap();
    web.recv(false).unwrap().expect(200);
    web.raw(format!("{}{body}", head("Expect: wonders\r\n")).as_bytes()).unwrap();
    assert_eq!(web.recv(false).unwrap().refused(417), "Expect must be 100-continue");
    assert_eq!(web.get("/healthz").status, 200);
}

#[test]
fn connections_end_as_the_client_wants() {
    for (request, stays) in [
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", false),
        ("GET /healthz HTTP/1.0\r\n\r\n", false),
        ("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", false),
        ("GET http://h:1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", true),
    ] {
        let mut web = web();
        web.raw(request.as_bytes()).unwrap();
        let answer = web.recv(false).unwrap();
        assert_eq!(answer.status, 200);
        let expected = if stays { "keep-alive" } else { "close" };
        assert_eq!(answer.headers["connection"], expected, "{request:?}");
        if stays {
            assert_eq!(web.get("/healthz").status, 200);
        } else {
            assert!(web.is_closed_by_server(), "{request:?}");
        }
    }
}

#[test]
fn what_follows_a_last_request_is_not_carried_out() {
    let queue = queue("last");
    let mut web = web();
    web.send("GET", "/stats", &[("Connection", "close")], b"").unwrap();
    web.send("POST", &format!("/queues/{queue}/jobs"), &[], b"{\"data\":1}").unwrap();
    assert_eq!(web.recv(false).unwrap().status, 200);
    assert!(web.is_closed_by_server());
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], 0);
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answers() {
    let queue = queue("half");
    let mut web = web();
    for n in 0..20 {
        let body = json!({"data": n}).to_string();
        web.send("POST", &format!("/queues/{queue}-{n}/jobs"), &[], body.as_bytes()).unwrap();
    }
    web.socket.shutdown(Shutdown::Write).unwrap();
    for _ in 0..20 {
        web.recv(false).unwrap().expect(200);
    }
    assert!(web.is_closed_by_server());
}

#[test]
fn a_body_that_nobody_asked_for_is_passed_over() {
    let mut web = web();
    for path in ["/healthz", "/stats", "/nope", "/jobs/none"] {
        let answer = web.call("GET", path, &[], b"GET /evil HTTP/1.1\r\n\r\n");
        assert!([200, 404].contains(&answer.status), "{path}");
    }
    assert_eq!(web.get("/healthz").text(), "OK");
}

#[test]
fn garbled_requests_are_answered_once_and_their_connection_closed() {
    for (request, status) in [
        ("GET /healthz HTTP/1.1\r\n\r\n", 400),
        ("GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        ("\u{16}\u{3}\u{1}", 400),
        (
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: h\n\n", 400),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    ] {
        let mut web = web();
        web.raw(request.as_bytes()).unwrap();
        web.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap_or_default();
        web.recv(false).unwrap().refused(status);
        assert!(web.is_closed_by_server(), "{request:?}");
    }
}

#[test]
fn a_body_of_12_mb_is_taken_and_a_larger_one_is_413() {
    let queue = queue("large");
    let mut web = web();
    let path = format!("/queues/{queue}/jobs");
    let data = "x".repeat((10 << 20) - 10);
    let id = web.push(&queue, json!({"data": data}));
    assert_eq!(web.get(&format!("/jobs/{id}")).expect(200)["job"]["data"], data);
    // The payload has its own limit.
    let body = json!({"data": "x".repeat(11 << 20)}).to_string();
    let answer = web.call("POST", &path, &[], body.as_bytes());
    assert_eq!(answer.refused(400), "data must be at most 10 MB");
    let pad = " ".repeat((12 << 20) - 10);
    let whole = format!("{{\"data\":1}}{pad}");
    assert_eq!(whole.len(), 12 << 20);
    web.call("POST", &path, &[], whole.as_bytes()).expect(200);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        (12 << 20) + 1
    );
    web.raw(head.as_bytes()).unwrap();
    assert_eq!(web.recv(false).unwrap().refused(413), "The body must be at most 12 MB");
    assert!(web.is_closed_by_server());
    assert_eq!(client().ok("Count", json!({"queue": queue}))["count"], 2);
}

#[test]
fn a_head_that_is_too_large_is_431() {
    for head in [
        format!(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nPad: {}\r\n\r\n",
            "x".repeat(33 << 10)
        ),
        format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(33 << 10)),
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(101)),
    ] {
        let mut web = web();
        // The server may have answered and closed before all of it is sent.
        let _ = web.raw(head.as_bytes());
        web.recv(false).unwrap().refused(431);
    }
}

#[test]
fn answers_larger_than_the_sockets_buffers_arrive_whole() {
    let queue = queue("much");
    let data: Value = (0..200_000).collect();
    let mut web = web();
    let id = web.push(&queue, json!({"data": data}));
    for _ in 0..10 {
        web.send("GET", &format!("/jobs/{id}"), &[], b"").unwrap();
    }
    until("the server is at work", || (web.socket.peek(&mut [0]).unwrap() > 0).then_some(()));
    for _ in 0..10 {
        assert_eq!(web.recv(false).unwrap().expect(200)["job"]["data"], data);
    }
}
