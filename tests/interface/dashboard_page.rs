//! The files of the dashboard: how they are served, what their headers let a page do, and the settings. What the page does
//! in a browser is in `tests/clients/dashboard.rs`.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::shared;
use crate::support::stream::WebSocket;
use crate::support::{Answer, Server, Start};

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> Answer {
    server.web().call("GET", path, headers, b"")
}

/// The page itself.
fn page(server: &Server, path: &str) -> String {
    let answer = get(server, path, &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    answer.text().to_owned()
}

/// The files that the page names.
fn named(page: &str) -> Vec<&str> {
    page.split("=\"f/").skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

/// Settings that the server writes into the page.
fn told(page: &str) -> Value {
    let (_, content) = page.split_once("name=\"corq\" content=\"").unwrap();
    let content = content.split('"').next().unwrap();
    serde_json::from_str(&content.replace("&quot;", "\"").replace("&amp;", "&")).unwrap()
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = gzip.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &bytes).unwrap());
    let mut plain = Vec::new();
    gzip.stdout.take().unwrap().read_to_end(&mut plain).unwrap();
    writer.join().unwrap();
    assert!(gzip.wait().unwrap().success());
    plain
}

#[test]
fn the_page_and_its_files_are_served_with_types_and_kept_by_browsers() {
    let server = shared();
    let html = page(server, "/ui/");
    assert!(html.contains("<base href=\"/ui/\">"), "{html}");
    let files = named(&html);
    assert!(files.len() >= 3, "{files:?}");
    for name in files {
        let path = format!("/ui/f/{name}");
        let plain = get(server, &path, &[]);
        let kind = match name.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!((plain.status, &*plain.headers["content-type"]), (200, kind), "{name}");
        assert!(!plain.headers.contains_key("content-encoding"));
        let packed = get(server, &path, &[("Accept-Encoding", "gzip, br")]);
        assert_eq!(packed.headers["content-encoding"], "gzip");
        assert_eq!(unpacked(&packed.body), plain.body, "{name}");
        for answer in [&plain, &packed] {
            assert_eq!(answer.headers["cache-control"], "public, max-age=31536000, immutable");
            assert_eq!(answer.headers["vary"], "Accept-Encoding");
            let had = [("Accept-Encoding", "gzip"), ("If-None-Match", &*packed.headers["etag"])];
            let again = get(server, &path, &had);
            assert_eq!((again.status, again.body.len()), (304, 0));
        }
        let head = server.web().call("HEAD", &path, &[], b"");
        assert_eq!(head.headers["content-length"], plain.body.len().to_string());
    }
    let first = get(server, "/ui/", &[]);
    assert_eq!(first.headers["cache-control"], "no-cache");
    let again = get(server, "/ui/", &[("If-None-Match", &first.headers["etag"])]);
    assert_eq!((again.status, again.body.len()), (304, 0));
}

#[test]
fn every_address_below_the_page_is_the_page_and_a_file_that_is_not_there_is_none() {
    let server = shared();
    let html = page(server, "/ui/");
    for path in [
        "/ui/queues",
        "/ui/queues/emails.eu?state=failed",
        "/ui/jobs/a%2Fb",
        "/ui/login",
        "/ui/a/b/c/d/e/f",
    ] {
        assert_eq!(page(server, path), html, "{path}");
    }
    let moved = get(server, "/ui", &[]);
    assert_eq!((moved.status, &*moved.headers["location"]), (302, "/ui/"));
    for path in ["/ui/f/absent.js", "/ui/f/", "/ui/f/../index.html", "/uix", "/ui.html"] {
        assert_eq!(get(server, path, &[]).status, 404, "{path}");
    }
    let put = server.web().call("PUT", "/ui/queues", &[], b"");
    assert_eq!((put.status, &*put.headers["allow"]), (404, "GET, HEAD, OPTIONS"));
    let delete = server.web().call("DELETE", "/ui/login", &[], b"");
    assert_eq!(delete.headers["allow"], "GET, HEAD, POST, OPTIONS");
}

#[test]
fn the_page_may_run_its_own_scripts_ask_its_own_server_and_nothing_else() {
    let html = page(shared(), "/ui/");
    let script = named(&html).into_iter().find(|name| name.starts_with("app-")).unwrap().to_owned();
    for path in ["/ui/", &format!("/ui/f/{script}")] {
        let headers = get(shared(), path, &[]).headers;
        let policy: Vec<&str> = headers["content-security-policy"].split("; ").collect();
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "base-uri 'self'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(&rule), "{rule}: {policy:?}");
        }
        assert_eq!(policy.len(), 10, "{policy:?}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
        assert!(!headers.contains_key("access-control-allow-origin"), "{headers:?}");
        assert!(!headers.contains_key("set-cookie"), "{headers:?}");
    }
    // Nothing that such a policy would refuse.
    assert!(
        !html.contains("style=") && !html.contains(" on") && !html.contains("<style"),
        "{html}"
    );
    assert!(
        html.matches("<script").count() == html.matches("<script type=\"module\" src=\"f/").count()
    );
}

/// A link on another page leads to the dashboard. What the page then asks for is judged by itself.
#[test]
fn a_link_of_another_page_leads_to_the_dashboard_and_to_nothing_else() {
    for server in [Start::new().start(), Start::new().env("AUTH_TOKENS", "boss").start()] {
        for site in ["cross-site", "same-site", "none"] {
            let link = [("Sec-Fetch-Site", site), ("User-Agent", "Mozilla/5.0")];
            assert_eq!(get(&server, "/ui/queues/q", &link).status, 200, "{site}");
        }
        let page = [("Sec-Fetch-Site", "cross-site")];
        assert!([401, 403].contains(&get(&server, "/stats", &page).status));
        let lines = format!("{UPGRADE}Origin: https://evil.example\r\n");
        let refused = WebSocket::open_with(server.http, "/ui/ws", &lines).err().unwrap();
        assert!(refused.starts_with("HTTP/1.1 40"), "{refused}");
    }
    // A name that leads here by another's will is none of this server's.
    let rebound = "GET /ui/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let mut web = shared().web();
    web.raw(rebound.as_bytes()).unwrap();
    assert_eq!(web.recv(false).unwrap().status, 403);
}

#[test]
fn the_socket_of_the_page_gives_commands_and_gets_no_events() {
    let server = Start::new().env("AUTH_TOKENS", "boss,read(emails.*):clerk").start();
    let refused = WebSocket::open_with(server.http, "/ui/ws", UPGRADE).err().unwrap();
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    for token in ["boss", "clerk"] {
        let lines = format!("{UPGRADE}Authorization: Bearer {token}\r\n");
        let mut page = WebSocket::open_with(server.http, "/ui/ws", &lines).unwrap();
        let mut all = WebSocket::open_with(
            server.http,
            "/ws",
            &format!("{UPGRADE}Authorization: Bearer boss\r\n"),
        )
        .unwrap();
        server.web().with_token("boss").push("emails.eu", json!({"data": 1}));
        assert_eq!(all.next()["eventType"], "pushed");
        // An event would have come before this answer.
        let asked = page.send("GetJobCounts", json!({"queue": "emails.eu"}));
        let first = page.recv();
        assert_eq!((&first["reqId"], &first["ok"]), (&json!(asked), &json!(true)), "{first}");
    }
}

#[test]
fn the_settings_say_whether_and_where_there_is_a_page_and_what_it_shows() {
    let off = Start::new().env("UI", "off").start();
    for path in ["/ui", "/ui/", "/ui/queues", "/ui/ws"] {
        assert_eq!(get(&off, path, &[]).status, 404, "{path}");
    }
    assert!(!off.output().contains("dashboard"), "{}", off.output());

    let shown = told(&page(shared(), "/ui/"));
    assert_eq!(shown["redact"], json!([]));
    assert!(shown.get("label").is_none() && shown["tls"] == false, "{shown}");
    assert_eq!(shown["tcpPort"], shared().tcp);

    let start = Start::new().env("UI_PATH", "/tools/corq/").env("UI_LABEL", "staging & \"test\"");
    let start = start.env("UI_COLOR", "#C0392B").env("UI_REDACT", "password, *.token");
    let server = start.env("AUTH_TOKENS", "boss").start();
    let html = page(&server, "/tools/corq/");
    assert!(html.contains("<base href=\"/tools/corq/\">"), "{html}");
    let shown = told(&html);
    assert_eq!(shown["label"], "staging & \"test\"");
    assert_eq!(shown["color"], "#c0392b");
    assert_eq!(shown["redact"], json!(["password", "*.token"]));
    assert_eq!(shown["path"], "/tools/corq");
    assert_eq!(get(&server, "/ui/", &[]).status, 401, "as any path that is none");
    let address = format!("the dashboard is at http://127.0.0.1:{}/tools/corq/\n", server.http);
    assert!(server.output().contains(&address), "{}", server.output());
    let login = |path: &str, token: &str| server.web().post(path, json!({"token": token})).status;
    assert_eq!(login("/tools/corq/login", "boss"), 200);
    assert_eq!(login("/tools/corq/login", "guess"), 401);
    assert_eq!(login("/ui/login", "boss"), 200);
    assert_eq!(server.web().post("/tools/corq/logout", json!({})).status, 200);
    let boss = || server.web().with_token("boss");
    assert_eq!(boss().post("/tools/corq/queues", json!({})).status, 404);
    assert_eq!(boss().get("/ui/").status, 404);
}

/// Behind a proxy that has the server below a path of its own, the page says so to its links; a prefix that is no path
/// leads nowhere.
#[test]
fn a_proxy_s_path_is_that_of_the_links() {
    for (prefix, base) in [
        ("/corq", "/corq/ui/"),
        ("/a/b/", "/a/b/ui/"),
        ("/", "/ui/"),
        ("//evil.example", "/ui/"),
        ("https://evil.example", "/ui/"),
        ("/\"><script>", "/ui/"),
    ] {
        let answer = get(shared(), "/ui/queues", &[("X-Forwarded-Prefix", prefix)]);
        assert!(answer.text().contains(&format!("<base href=\"{base}\">")), "{prefix}");
        assert_eq!(answer.headers["vary"], "X-Forwarded-Prefix");
        let moved = get(shared(), "/ui", &[("X-Forwarded-Prefix", prefix)]);
        assert_eq!(moved.headers["location"], base, "{prefix}");
    }
}

#[test]
fn settings_of_the_page_that_are_wrong_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (name, value, words) in [
        ("UI", "maybe", "UI=maybe: it must be true or false"),
        ("UI_PATH", "ui", "it must be a path"),
        ("UI_PATH", "/", "it must be a path"),
        ("UI_PATH", "/a//b", "it must be a path"),
        ("UI_PATH", "/a b", "it must be a path"),
        ("UI_PATH", "/../x", "it must be a path"),
        ("UI_PATH", "/queues", "it must not begin with /queues, which is taken"),
        ("UI_PATH", "/ws/ui", "it must not begin with /ws, which is taken"),
        ("UI_LABEL", "a label that is longer than a label may be", "at most 32 characters"),
        ("UI_COLOR", "url(x)", "it must be a colour"),
        ("UI_COLOR", "#12345", "it must be a colour"),
    ] {
        let (status, output) = Start::new().env(name, value).run_to_its_end(dir.path());
        assert!(!status.success() && output.contains(words), "{name}={value}: {output}");
    }
}
