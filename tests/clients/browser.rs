//! A real browser opens a page of another origin that talks to the server: WebSocket, `EventSource`, `fetch` of
//! events, and what a page may not do. The fear: headers that our own clients never ask for, and browsers do.
//!
//! The browser comes from `scripts/judges.sh`. `CORQ_TEST_BROWSER=off` leaves this out, `on` (as in `make judges`)
//! insists on it; otherwise it is left out where no browser can be had.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use serde_json::json;

use crate::support::{DEADLINE, Server, Start};

const PAGE: &str = include_str!("browser/page.html");
const TOKEN: &str = "browsers-token";

/// The path of a browser, or `None` where there is none and need not be.
pub(crate) fn browser() -> Option<String> {
    let switch = std::env::var("CORQ_TEST_BROWSER").unwrap_or_default();
    if switch == "off" {
        eprintln!("CORQ_TEST_BROWSER=off: no browser is tried");
        return None;
    }
    let script = Path::new(crate::ROOT).join("scripts/judges.sh");
    let output = Command::new(script).arg("browser").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert_ne!(switch, "on", "scripts/judges.sh browser failed:\n{said}");
        eprintln!(
            "SKIPPED, as no browser can be had here; scripts/judges.sh browser said:\n{said}"
        );
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Serves the page, and takes what it has to say.
fn serve_page(listener: &TcpListener, verdicts: &Sender<String>) {
    for socket in listener.incoming() {
        let (verdicts, socket) = (verdicts.clone(), socket.unwrap());
        // A browser opens connections in advance, on which nothing may ever come.
        thread::spawn(move || answer_page(socket, &verdicts));
    }
}

fn answer_page(mut socket: TcpStream, verdicts: &Sender<String>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                if head.starts_with("POST /verdict ") {
                    // Nobody listens once the test has failed.
                    let _ = verdicts.send(body.to_owned());
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\n{PAGE}",
                    PAGE.len()
                );
                let _ = socket.write_all(answer.as_bytes());
                return;
            }
        }
        match socket.read(&mut buffer) {
            Ok(bytes) if bytes > 0 => request.extend_from_slice(&buffer[..bytes]),
            _ => return,
        }
    }
}

/// The origin of the page, and what it says.
struct Pages {
    browser: String,
    port: u16,
    verdicts: Receiver<String>,
}

impl Pages {
    fn start() -> Option<Self> {
        let browser = browser()?;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, verdicts) = channel();
        thread::spawn(move || serve_page(&listener, &sender));
        Some(Self { browser, port, verdicts })
    }

    fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Lets the page do its part against a server.
    fn visit(&self, server: &Server, token: &str, part: &str) {
        let server = format!("http://127.0.0.1:{}", server.http);
        self.visit_as(&self.origin(), &server, token, part, || {});
    }

    /// Lets a page of any origin do its part; `then` runs once the browser is on its way.
    fn visit_as(&self, page: &str, server: &str, token: &str, part: &str, then: impl FnOnce()) {
        let home = tempfile::tempdir().unwrap();
        let task = json!({"server": server, "token": token, "part": part, "tell": self.origin()});
        let task = task.to_string().bytes().fold(String::new(), |escaped, byte| {
            let [high, low] =
                [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
            escaped + "%" + &[high, low].map(char::from).iter().collect::<String>()
        });
        let child = Command::new(&self.browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                "--host-resolver-rules=MAP rebound.example 127.0.0.1, MAP localhost 127.0.0.1, \
                 MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                // Keeps it running.
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg(format!("{page}/#{task}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _running = Running(child);
        then();
        match self.verdicts.recv_timeout(DEADLINE) {
            Ok(verdict) => assert_eq!(verdict, format!("{part}: ok")),
            Err(RecvTimeoutError::Timeout) => panic!("{part}: the page has said nothing"),
            Err(error) => panic!("{part}: {error}"),
        }
    }
}

/// A browser, ended when it goes out of scope.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_page_of_a_listed_origin_opens_a_websocket_and_reads_events() {
    let Some(pages) = Pages::start() else { return };
    let server = Start::new().env("CORS_ALLOW_ORIGIN", pages.origin()).start();
    for part in ["websocket", "fetched", "source"] {
        pages.visit(&server, "", part);
    }
}

#[test]
fn a_page_of_another_origin_shows_a_token_and_gets_nothing_without_one() {
    let Some(pages) = Pages::start() else { return };
    let server = Start::new().env("AUTH_TOKENS", TOKEN).start();
    pages.visit(&server, TOKEN, "fetched");
    pages.visit(&server, "", "strangers");
}

#[test]
fn a_page_of_an_origin_that_is_not_named_reads_nothing() {
    let Some(pages) = Pages::start() else { return };
    let named = format!("https://example.com,{}", pages.origin());
    let open = Start::new().env("CORS_ALLOW_ORIGIN", named).start();
    pages.visit(&open, "", "fetched");
    let closed = Start::new().env("CORS_ALLOW_ORIGIN", "https://example.com").start();
    pages.visit(&closed, "", "refused");
}

fn with_a_job(start: Start) -> Server {
    let server = start.start();
    server.client().push_with("q", 1, json!({"jobId": "kept"}));
    server
}

fn assert_untouched(server: &Server, refused_min: u64) {
    let mut client = server.client();
    let counts = client.ok("GetJobCounts", json!({"queue": "q"}))["counts"].clone();
    assert_eq!((&counts["waiting"], &counts["active"]), (&json!(1), &json!(0)), "{counts}");
    assert_eq!(client.state("kept"), "waiting");
    let text = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let refused = text.as_str().unwrap().lines().find_map(|line| {
        line.strip_prefix("corq_http_cross_origin_refused_total ")?.parse::<u64>().ok()
    });
    assert!(refused >= Some(refused_min), "{refused:?}: the page has tried");
}

/// By the address of the page, from which it is another origin of the same site, and by a name, from which it is
/// another site.
#[test]
fn a_page_of_another_origin_gets_nothing_done() {
    let Some(pages) = Pages::start() else { return };
    let server = with_a_job(Start::new());
    for host in ["127.0.0.1", "localhost", "rebound.example"] {
        let address = format!("http://{host}:{}", server.http);
        pages.visit_as(&pages.origin(), &address, "", "attack", || {});
        assert_untouched(&server, 10);
    }
}

/// The page is loaded from where its name leads first, and then its name leads to the server.
#[test]
fn a_page_whose_own_name_is_pointed_to_the_server_gets_nothing_done() {
    let Some(pages) = Pages::start() else { return };
    let mut server = with_a_job(Start::new());
    assert!(server.terminate().success());
    let listener = TcpListener::bind(("127.0.0.1", server.http)).unwrap();
    let page = format!("http://rebound.example:{}", server.http);
    pages.visit_as(&page, &page, "", "rebound", || {
        let (sender, _verdicts) = channel();
        // The page, and then what it asks for to see where it is.
        let mut asked = 0;
        while asked < 2 {
            let (socket, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let bytes = socket.peek(&mut head).unwrap_or(0);
            asked += usize::from(bytes > 0 && !head.starts_with(b"GET /favicon.ico"));
            answer_page(socket, &sender);
        }
        drop(listener);
        server.start();
    });
    assert_untouched(&server, 10);
}
