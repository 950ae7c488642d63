//! The codes of errors, on every surface. The fear: a program that cannot tell errors apart without reading texts, or
//! that gets another code, text or status over one surface than over another.
//!
//! Beside this, `support` compares the code of every refusal that any test gets with the table, and its status with
//! that of the code.

use corq::api::error::Code;
use serde_json::{Value, json};

use crate::support::stream::{UPGRADE, WebSocket};
use crate::support::{Answer, Client, Http, Server, Start, frame};

/// Codes that are driven in other files, by what a test there expects. Each needs a server in distress.
const ELSEWHERE: &[(Code, &str, &str)] = &[
    (Code::Timeout, include_str!("deadlines.rs"), r#""code": "timeout""#),
    (Code::Timeout, include_str!("http_slow.rs"), "The request did not come in time"),
    (Code::RateLimited, include_str!("http_limits.rs"), r#""code": "rate_limited""#),
    (Code::Damaged, include_str!("http_jobs.rs"), "The stored job is damaged"),
    (Code::Damaged, include_str!("space.rs"), "The stored job is damaged"),
    (Code::ReplyTooLarge, include_str!("printed.rs"), "The reply does not fit a frame"),
    (Code::Busy, include_str!("http_slow.rs"), "The bodies of all requests are too large together"),
    (Code::Busy, include_str!("http_server.rs"), r#""code": "busy""#),
    (Code::Starting, include_str!("starting.rs"), r#""code":"starting""#),
    (Code::ShuttingDown, include_str!("http_server.rs"), r#""shutting_down""#),
    (Code::NoResources, include_str!("descriptors.rs"), "Too many open files"),
    (Code::DataGone, include_str!("gone.rs"), "The data directory is gone"),
    (Code::DiskFull, include_str!("full.rs"), r#""code": "disk_full""#),
];

/// No request is known that makes the server answer with this.
const UNKNOWN_HOW: Code = Code::Internal;

/// Clients of all carriers, and the codes that they got, to be compared with the table.
struct Driven {
    tcp: Client,
    websocket: WebSocket,
    web: Http,
    codes: Vec<Code>,
}

impl Driven {
    fn new(server: &Server) -> Self {
        let websocket = WebSocket::open(server.http, "/ws");
        Self { tcp: server.client().speaking(2), websocket, web: server.web(), codes: Vec::new() }
    }

    fn note(&mut self, reply: &Value, code: Code, text: &str) {
        let mut expected = json!({"ok": false, "error": text, "code": code.name()});
        if let Some(req_id) = reply.get("reqId") {
            expected["reqId"] = req_id.clone();
        }
        assert_eq!(*reply, expected);
        self.codes.push(code);
    }

    /// A command over TCP and over WebSocket, which are refused alike.
    fn refused(&mut self, cmd: &str, fields: &Value, code: Code, text: &str) {
        let over_tcp = self.tcp.call(cmd, fields.clone());
        let over_websocket = self.websocket.call(cmd, fields.clone());
        self.note(&over_tcp, code, text);
        self.note(&over_websocket, code, text);
    }

    fn answered(&mut self, answer: &Answer, code: Code, text: &str) {
        assert_eq!(answer.status, code.status(), "{answer:?}");
        self.note(&answer.json(), code, text);
    }

    /// A request over a connection of its own, as these lines and an empty one.
    fn asked(&mut self, server: &Server, lines: &[&str], code: Code, text: &str) {
        let mut web = server.web();
        web.raw(format!("{}\r\n\r\n", lines.join("\r\n")).as_bytes()).unwrap();
        let answer = web.recv(false).unwrap();
        self.answered(&answer, code, text);
    }
}

/// Refusals of commands.
fn drive_commands(all: &mut Driven) {
    let locked = all.tcp.push("locked", 1);
    let _ = all.tcp.pull_owned("locked", 3_600_000);
    let flow = json!({"jobs": [{"id": "flow", "queue": "q", "input": {"data": 1}}]});
    all.tcp.ok("PUSHF", flow.clone());
    let grouped = json!({"queue": "q", "data": 1, "groupId": "g", "groupMaxSize": 1});
    all.tcp.ok("PUSH", grouped.clone());
    let wrong_token = json!({"id": locked, "token": "0190a000-0000-7000-8000-000000000000"});
    let mismatch = format!("Invalid or expired lock token for job {locked}");
    let required = format!("Lock token required for job {locked}");
    let none = json!({"id": "none"});
    let needy = json!({"queue": "q", "data": 1, "dependsOn": ["none"]});
    for (cmd, fields, code, text) in [
        ("PUSH", json!({"queue": "q"}), Code::InvalidField, "data is required"),
        ("MakeCoffee", json!({}), Code::UnknownCommand, "Unknown command: MakeCoffee"),
        ("BackupPoint", json!({}), Code::Unsupported, "The server keeps nothing on a disk"),
        ("GetJob", none.clone(), Code::NotFound, "Job not found"),
        ("CronGet", json!({"name": "none"}), Code::NotFound, "Cron not found"),
        ("ACK", none.clone(), Code::NotActive, "Job not found or not active"),
        ("Cancel", none, Code::WrongState, "Job not found or cannot be cancelled"),
        ("ACK", json!({"id": locked}), Code::TokenRequired, required.as_str()),
        ("ACK", wrong_token, Code::TokenMismatch, mismatch.as_str()),
        ("PUSHF", flow, Code::DuplicateId, "Flow job flow already exists"),
        ("PUSH", needy, Code::DependencyNotFound, "Dependency job not found: none"),
        ("PUSH", grouped, Code::LimitReached, "Group g has reached its maximum size of 1"),
    ] {
        all.refused(cmd, &fields, code, text);
    }
    // Of many, the one that is wrong has its place in front, and the code stays.
    let jobs = json!({"queue": "q", "jobs": [{"data": 1}, {"data": 1, "priority": "x"}]});
    let text = "jobs[1]: priority must be an integer";
    all.refused("PUSHB", &jobs, Code::InvalidField, text);
    let jobs = json!({"queue": "q", "jobs": [{"data": 1}, {"data": 1, "dependsOn": ["none"]}]});
    let text = "jobs[1]: Dependency job not found: none";
    all.refused("PUSHB", &jobs, Code::DependencyNotFound, text);
    let ids = json!({"ids": ["none"]});
    all.refused("ACKB", &ids, Code::NotActive, "Job not found or not active");
}

/// Bytes that are no command, over each surface.
fn drive_bytes(all: &mut Driven, server: &Server) {
    all.tcp.send_bytes(&frame(&rmpv::Value::from(7))).unwrap();
    let reply = all.tcp.recv().unwrap();
    all.note(&reply, Code::InvalidRequest, "Invalid frame: it is not a map");
    all.websocket.send_text("{\"cmd\":");
    let reply = all.websocket.recv();
    let text = reply["error"].as_str().unwrap().to_owned();
    assert!(text.starts_with("Invalid JSON: "), "{text}");
    all.note(&reply, Code::InvalidRequest, &text);
    let mut tcp = server.client();
    tcp.send_bytes(&[0xff; 4]).unwrap();
    let reply = tcp.recv().unwrap();
    all.note(&reply, Code::TooLarge, "Frame exceeds 64 MB");
}

/// Refusals of requests over HTTP, of commands and of HTTP itself.
fn drive_requests(all: &mut Driven, server: &Server) {
    let locked = all.tcp.push("locked-too", 1);
    let _ = all.tcp.pull_owned("locked-too", 3_600_000);
    let wrong_token = json!({"token": "0190a000-0000-7000-8000-000000000000"});
    let mismatch = format!("Invalid or expired lock token for job {locked}");
    let needy = json!({"data": 1, "dependsOn": ["none"]});
    let grouped = json!({"data": 1, "groupId": "h", "groupMaxSize": 1});
    all.web.post("/queues/q/jobs", grouped.clone()).expect(200);
    let not_active = "Job not found or not active";
    for (method, path, body, code, text) in [
        ("POST", "/queues/q/jobs", Some(json!({})), Code::InvalidField, "data is required"),
        (
            "POST",
            "/queues/q/jobs",
            Some(needy),
            Code::DependencyNotFound,
            "Dependency job not found: none",
        ),
        (
            "POST",
            "/queues/q/jobs",
            Some(grouped),
            Code::LimitReached,
            "Group h has reached its maximum size of 1",
        ),
        ("GET", "/jobs/none", None, Code::NotFound, "Job not found"),
        ("DELETE", "/jobs/none", None, Code::NotFound, "Job not found"),
        ("GET", "/nowhere", None, Code::NotFound, "Not found"),
        ("POST", "/jobs/none/ack", Some(json!({})), Code::NotActive, not_active),
        ("POST", "/jobs/none/fail", Some(json!({})), Code::NotActive, not_active),
    ] {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let answer = all.web.call(method, path, &[], body.as_bytes());
        all.answered(&answer, code, text);
    }
    let answer = all.web.post(&format!("/jobs/{locked}/ack"), wrong_token);
    all.answered(&answer, Code::TokenMismatch, &mismatch);
    let answer = all.web.delete(&format!("/jobs/{locked}"));
    all.answered(&answer, Code::WrongState, "Job not found or cannot be cancelled");
    let push = "POST /queues/q/jobs HTTP/1.1";
    let host = "Host: localhost";
    let long = format!("X: {}", "x".repeat(40_000));
    let upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 12"];
    let upgrade = ["GET /ws HTTP/1.1", host, upgrade[0], upgrade[1], upgrade[2]];
    let head = "The head must be at most 32 KB with at most 100 headers";
    let page = "This request comes from a web page whose origin is neither this server's nor in CORS_ALLOW_ORIGIN";
    for (lines, code, text) in [
        (
            &[push, host, "Content-Length: 1", "", "{"][..],
            Code::InvalidRequest,
            "Invalid JSON body",
        ),
        (&["GET / HTTP/1.1"], Code::InvalidRequest, "Host must be given once"),
        (
            &[push, host, "Content-Length: 13000000"],
            Code::TooLarge,
            "The body must be at most 12 MB",
        ),
        (&["GET /health HTTP/1.1", host, "Origin: http://evil.example"], Code::CrossOrigin, page),
        (
            &[push, host, "Expect: tea", "Content-Length: 2"],
            Code::ExpectationFailed,
            "Expect must be 100-continue",
        ),
        (&upgrade, Code::UpgradeRequired, "Sec-WebSocket-Version must be 13"),
        (&["GET / HTTP/1.1", host, &long], Code::HeadersTooLarge, head),
        (
            &[push, host, "Transfer-Encoding: gzip"],
            Code::NotImplemented,
            "Transfer-Encoding must be chunked",
        ),
        (
            &["GET / HTTP/2.0", host],
            Code::VersionNotSupported,
            "The version must be HTTP/1.1 or HTTP/1.0",
        ),
    ] {
        all.asked(server, lines, code, text);
    }
}

#[test]
fn every_error_has_its_code_on_every_surface() {
    let server = Start::new().memory().start();
    let mut all = Driven::new(&server);
    drive_commands(&mut all);
    drive_bytes(&mut all, &server);
    drive_requests(&mut all, &server);
    let guarded = Start::new().memory().env("AUTH_TOKENS", "secret,read:looker").start();
    let text = "Invalid token";
    let reply = guarded.client().call("Auth", json!({"token": "other"}));
    all.note(&reply, Code::Unauthorized, text);
    let headers = format!("{UPGRADE}Authorization: Bearer secret\r\n");
    let mut websocket = WebSocket::open_with(guarded.http, "/ws", &headers).unwrap();
    let reply = websocket.call("Auth", json!({"token": "other"}));
    all.note(&reply, Code::Unauthorized, text);
    let answer = guarded.web().get("/stats");
    all.answered(&answer, Code::Unauthorized, "Unauthorized");
    let text = "Drain is not for the role read: it needs admin";
    let mut looker = guarded.client();
    looker.ok("Auth", json!({"token": "looker"}));
    all.note(&looker.call("Drain", json!({"queue": "q"})), Code::Forbidden, text);
    let headers = format!("{UPGRADE}Authorization: Bearer looker\r\n");
    let mut websocket = WebSocket::open_with(guarded.http, "/ws", &headers).unwrap();
    all.note(&websocket.call("Drain", json!({"queue": "q"})), Code::Forbidden, text);
    let answer = guarded.web().with_token("looker").call("POST", "/queues/q/drain", &[], b"");
    all.answered(&answer, Code::Forbidden, text);
    for (code, file, expectation) in ELSEWHERE {
        assert!(file.contains(expectation), "no test expects {expectation} any more");
        all.codes.push(*code);
    }
    for code in Code::ALL {
        assert!(all.codes.contains(code) || *code == UNKNOWN_HOW, "{code:?} is never driven");
    }
}
