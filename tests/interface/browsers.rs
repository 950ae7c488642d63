//! Sessions of browsers and tokens of WebSockets. The fear: a cookie or a page of another site that acts for an operator.

use serde_json::json;

use crate::interface::access::{TOKENS, client, guarded, number};
use crate::secure::{Authority, tunnel};
use crate::support::stream::{Sse, UPGRADE, WebSocket};
use crate::support::{Answer, Http, Server, Start, until};

/// The value of the cookie that an answer sets, and the whole line.
fn cookie(answer: &Answer) -> (String, String) {
    let line = answer.headers["set-cookie"].clone();
    let (pair, _) = line.split_once(';').unwrap();
    (pair.to_owned(), line)
}

pub(crate) fn log_in(server: &Server, token: &str) -> String {
    let answer = server.web().post("/ui/login", json!({"token": token}));
    assert_eq!(answer.status, 200, "{answer:?}");
    cookie(&answer).0
}

#[test]
fn a_browser_logs_in_with_a_token_and_is_known_by_a_cookie_until_it_logs_out() {
    let server = guarded();
    let mut web = server.web();
    let own = format!("http://localhost:{}", server.http);
    let host = format!("localhost:{}", server.http);
    let answer = {
        let body = json!({"token": "reader"}).to_string();
        let request = format!(
            "POST /ui/login HTTP/1.1\r\nHost: {host}\r\nOrigin: {own}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        web.raw(request.as_bytes()).unwrap();
        web.recv(false).unwrap()
    };
    assert_eq!(answer.expect(200)["data"]["role"], "read");
    let (cookie, line) = cookie(&answer);
    let parts: Vec<&str> = line.split("; ").skip(1).collect();
    assert_eq!(parts, ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]);
    assert!(cookie.starts_with("corq_session=") && !line.contains("reader"), "{line}");
    // On any shard, since connections go to any.
    for _ in 0..8 {
        let mut web = server.web();
        let about = web.call("GET", "/whoami", &[("Cookie", &cookie)], b"").expect(200);
        assert_eq!(
            (&about["data"]["role"], &about["data"]["by"]),
            (&json!("read"), &json!("session"))
        );
        assert!(about["data"]["expiresAt"].as_u64().unwrap() > 0);
        assert_eq!(web.call("GET", "/stats", &[("Cookie", &cookie)], b"").status, 200);
        let push = web.call("POST", "/queues/q/jobs", &[("Cookie", &cookie)], br#"{"data":1}"#);
        assert_eq!(push.expect(403)["code"], "forbidden");
    }
    // A token counts before a cookie, also a wrong one.
    let both = [("Cookie", &*cookie), ("Authorization", "Bearer wrong")];
    assert_eq!(web.call("GET", "/stats", &both, b"").status, 401);
    assert_eq!(web.call("GET", "/stats", &[("Cookie", "corq_session=guess")], b"").status, 401);

    let headers = format!("Cookie: {cookie}\r\n");
    let mut stream = Sse::open_with(server.http, "/events", &headers).unwrap();
    let mut socket =
        WebSocket::open_with(server.http, "/ws", &format!("{UPGRADE}{headers}")).unwrap();
    assert_eq!(socket.call("Whoami", json!({}))["data"]["by"], "session");
    let other = log_in(&server, "reader");
    let ended = web.call("POST", "/ui/logout", &[("Cookie", &cookie)], b"");
    assert_eq!(ended.expect(200)["data"]["ended"], true);
    assert!(ended.headers["set-cookie"].starts_with("corq_session=; Path=/; Max-Age=0;"));
    assert_eq!(web.call("GET", "/stats", &[("Cookie", &cookie)], b"").status, 401);
    assert_eq!(
        web.call("GET", "/stats", &[("Cookie", &other)], b"").status,
        200,
        "another goes on"
    );
    assert!(stream.try_next().unwrap().is_none(), "the stream ends with the session");
    until("the socket has lost its right", || {
        (socket.call("Whoami", json!({}))["code"] == "unauthorized").then_some(())
    });
}

#[test]
fn over_tls_a_cookie_is_for_secure_connections_alone() {
    let authority = Authority::new();
    let server =
        Start::new().env("AUTH_TOKENS", TOKENS).tls(&authority.issue("server", None)).start();
    let mut web = Http::connect(tunnel(server.http, &authority.believer()));
    let answer = web.post("/ui/login", json!({"token": "reader"}));
    assert_eq!(answer.status, 200, "{answer:?}");
    let (cookie, line) = cookie(&answer);
    // No page of another server of this host can set one of this name.
    assert!(cookie.starts_with("__Host-corq_session="), "{line}");
    assert!(line.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{line}");
    let about = web.call("GET", "/whoami", &[("Cookie", &cookie)], b"").expect(200);
    assert_eq!(about["data"]["by"], "session");
}

#[test]
fn a_login_with_a_wrong_token_is_refused_counted_and_limited() {
    let server = Start::new()
        .env("AUTH_TOKENS", TOKENS)
        .env("RATE_LIMIT_MAX_REQUESTS", 4)
        .env("RATE_LIMIT_WINDOW_MS", 86_400_000)
        .start();
    let mut boss = client(&server, "boss");
    let before = number(&mut boss, "corq_auth_failures_total");
    let mut web = server.web();
    assert_eq!(web.post("/ui/login", json!({"token": "wrong"})).refused(401), "Invalid token");
    assert_eq!(web.post("/ui/login", json!({})).refused(400), "token is required");
    assert_eq!(web.post("/ui/login", json!([])).refused(400), "body must be an object");
    assert_eq!(web.call("POST", "/ui/login", &[], b"token=boss").refused(400), "Invalid JSON body");
    assert_eq!(web.post("/ui/login", json!({"token": "boss"})).refused(429), "Rate limit exceeded");
    assert_eq!(server.client().refused("Auth", json!({"token": "wrong"})), "Invalid token");
    assert_eq!(number(&mut boss, "corq_auth_failures_total"), before + 2);
    let long = server.web().post("/ui/login", json!({"token": "x".repeat(70_000)}));
    assert!([413, 429].contains(&long.status), "{long:?}");
    let open = Server::start_default();
    let text = open.web().post("/ui/login", json!({"token": "x"})).refused(400);
    assert_eq!(text, "The server has no tokens, so there is nothing to log in with");
}

#[test]
fn a_cookie_counts_for_pages_of_this_server_and_of_listed_origins_only() {
    let listed = "https://app.example";
    let server = Start::new().env("AUTH_TOKENS", "boss").env("CORS_ALLOW_ORIGIN", listed).start();
    let cookie = log_in(&server, "boss");
    let own = "http://localhost";
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let headers = [headers, &[("Cookie", &*cookie)]].concat();
        server.web().call(method, path, &headers, b"")
    };
    for headers in [
        &[("Origin", "https://evil.example")][..],
        &[("Origin", "null")],
        &[("Origin", "http://localhost:1")],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
    ] {
        for (method, path) in [("GET", "/stats"), ("GET", "/queues/q/jobs"), ("POST", "/ui/logout")]
        {
            let answer = ask(method, path, headers);
            assert_eq!(answer.expect(403)["code"], "cross-origin", "{headers:?} {path}");
        }
        let body = json!({"token": "boss"}).to_string();
        let login = server.web().call("POST", "/ui/login", headers, body.as_bytes());
        assert_eq!(login.expect(403)["code"], "cross-origin", "{headers:?}");
        let lines: String =
            headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
        let lines = format!("{UPGRADE}Cookie: {cookie}\r\n{lines}");
        let refused = WebSocket::open_with(server.http, "/ws", &lines).err().unwrap();
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    }
    for headers in [
        &[("Origin", own)][..],
        &[("Sec-Fetch-Site", "same-origin")],
        &[("Sec-Fetch-Site", "none")],
        &[("Origin", listed), ("Sec-Fetch-Site", "cross-site")],
    ] {
        assert_eq!(ask("GET", "/stats", headers).status, 200, "{headers:?}");
    }
    let answer = ask("GET", "/stats", &[("Origin", listed)]);
    assert_eq!(answer.headers["access-control-allow-credentials"], "true");
    // A request that any page can have a browser send takes no job.
    assert_eq!(ask("GET", "/queues/q/jobs", &[]).status, 403);
    assert_eq!(ask("GET", "/queues/q/jobs", &[("Sec-Fetch-Site", "none")]).status, 403);
    // The server's own name by another scheme is another origin.
    let other_scheme = [("Origin", own), ("Sec-Fetch-Site", "same-site")];
    assert_eq!(ask("GET", "/stats", &other_scheme).status, 403);
    // A page that shows a token knows it.
    let shown = [("Origin", "https://evil.example"), ("Authorization", "Bearer boss")];
    assert_eq!(server.web().call("GET", "/stats", &shown, b"").status, 200);
    // That all may ask is no word for any of them.
    let server = Start::new().env("AUTH_TOKENS", "boss").env("CORS_ALLOW_ORIGIN", "*").start();
    let cookie = log_in(&server, "boss");
    let headers = [("Origin", "https://evil.example"), ("Cookie", &*cookie)];
    assert_eq!(server.web().call("GET", "/stats", &headers, b"").status, 403);
}

#[test]
fn a_program_opens_a_websocket_with_a_token_among_its_protocols() {
    let server = Start::new().env("AUTH_TOKENS", TOKENS).env("SHARDS", 1).start();
    let open = |protocols: &str| {
        let lines = format!("{UPGRADE}Sec-WebSocket-Protocol: {protocols}\r\n");
        WebSocket::open_with(server.http, "/ws", &lines)
    };
    let mut socket = open("corq, token.d29ya2Vy").unwrap();
    assert!(socket.head.contains("Sec-WebSocket-Protocol: corq\r\n"), "{}", socket.head);
    assert!(!socket.head.contains("d29ya2Vy"), "{}", socket.head);
    assert_eq!(socket.call("Whoami", json!({}))["data"]["role"], "work");
    let reply = socket.call("PUSH", json!({"queue": "q", "data": 1}));
    assert_eq!(reply["code"], "forbidden", "{reply}");
    for wrong in ["corq, token.d3Jvbmc", "corq, token.***", "corq"] {
        let refused = open(wrong).err().unwrap();
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    }
    // Browsers that may not look get no events, either.
    let mut boss = client(&server, "boss");
    let mut listener = WebSocket::open_with(
        server.http,
        "/ws",
        &format!("{UPGRADE}Authorization: Bearer boss\r\n"),
    )
    .unwrap();
    boss.push("q", "secret");
    assert_eq!(listener.next()["eventType"], "pushed");
    // Both are fed in one turn of the only shard: what the worker got stands before the answer.
    let asked = socket.send("Ping", json!({}));
    assert_eq!(socket.recv()["reqId"], asked);
}
