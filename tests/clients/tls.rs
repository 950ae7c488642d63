//! The clients of others over TLS: those of this protocol by their own options, and those whose trade it is:
//! openssl, curl, testssl.sh. The fear: a handshake that only our own library can make.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bunqueue_client::{
    Connection, ConnectionOptions, JobOptions, Queue, TlsOptions, Value, Worker,
};

use crate::secure::{Authority, Paper};
use crate::streams::{TOKEN, judges, judges_by};
use crate::support::tool::Tool;
use crate::support::{Server, Start, until};
use crate::{Running, number, python, read, worker_options};

struct House {
    authority: Authority,
    server: Server,
}

fn house(start: Start) -> House {
    let authority = Authority::new();
    let paper = authority.issue("server", None);
    House { server: start.tls(&paper).start(), authority }
}

#[test]
fn the_rust_client_works_over_tls() {
    // The client asks for the cryptography that the process has chosen, and this process has two to choose from.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let House { authority, server } = house(Start::new());
    let tls = Some(TlsOptions { ca_file: Some(authority.path()) });
    let options = || ConnectionOptions { tls: tls.clone(), ..crate::options(&server) };
    let connection = Connection::new(options());
    assert!(connection.ping().unwrap());
    let queue = Queue::new("rust-tls", options());
    let ids: Vec<String> =
        (0..50).map(|n| queue.add("job", number(n), JobOptions::default()).unwrap().id()).collect();
    let sum = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&sum);
    let mut worker = worker_options(&server);
    worker.connection = options();
    let running = Running::start(Worker::new(
        "rust-tls",
        move |job| {
            seen.fetch_add(read(&job.data(), "n").unwrap_or(0), Ordering::Relaxed);
            Ok(Value::Nil)
        },
        worker,
    ));
    let done = |id: &String| queue.get_state(id).is_ok_and(|state| state == "completed");
    until("all jobs", || ids.iter().all(done).then_some(()));
    drop(running);
    assert_eq!(sum.load(Ordering::Relaxed), (0..50).sum::<u64>());
    // A server whose authority it does not know is none.
    let stranger = Authority::new();
    let tls = Some(TlsOptions { ca_file: Some(stranger.path()) });
    let options = ConnectionOptions { tls, ..crate::options(&server) };
    assert!(Connection::new(options).ping().is_err());
}

/// The line that operations.md shows for a certificate, as it stands there.
#[test]
fn the_certificate_that_the_page_shows_is_accepted() {
    let page = include_str!("../../docs/operations.md");
    let at = page.find("\nopenssl req ").expect("the page shows the line");
    let (line, _) = page[at..].split_once("\n```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    passes(Command::new("sh").args(["-c", line]).current_dir(dir.path()));
    let path = |name: &str| dir.path().join(name).display().to_string();
    let start = Start::new().env("TLS_CERT_FILE", path("server.pem"));
    let server = start.env("TLS_KEY_FILE", path("server.key")).start();
    for host in ["localhost", "127.0.0.1"] {
        let tool = Tool::of(&server).env("CORQ_HOST", host);
        let authority = ["--tls-ca", &path("server.pem")];
        assert!(tool.ok(&[&["ping"], &authority[..]].concat()).starts_with("pong"));
        tool.ok(&[&["health"], &authority[..]].concat());
    }
    let url = format!("https://localhost:{}/healthz", server.http);
    passes(Command::new("curl").args(["-sS", "--fail", "--cacert", &path("server.pem"), &url]));
}

fn passes(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_python_client_works_over_tls() {
    let Some(interpreter) = python::interpreter() else { return };
    let House { authority, server } = house(Start::new());
    passes(python::suite(&interpreter, server.tcp).env("CORQ_TEST_CA", authority.path()));
}

#[test]
fn the_client_on_npm_works_over_tls() {
    for version in ["2", "3"] {
        let Some(home) = crate::bun::home(version) else { return };
        let House { authority, server } = house(Start::new());
        passes(crate::bun::suite(&home, server.tcp).env("CORQ_TEST_CA", authority.path()));
    }
}

#[test]
fn python_clients_of_sse_and_websocket_work_over_tls() {
    let Some(python) = judges("python") else { return };
    // A client that is refused closes its socket while a thread of its own reads from it: over TLS that thread may miss it, and
    // waits until the server ends the connection.
    let start = Start::new().env("AUTH_TOKENS", TOKEN).without("HTTP_IDLE_TIMEOUT_MS");
    let House { authority, server } = house(start);
    let script = Path::new(crate::ROOT).join("tests/clients/python/streams.py");
    let mut python = Command::new(python);
    python.arg(script).arg(server.http.to_string()).arg(TOKEN);
    passes(python.env("CORQ_TEST_CA", authority.path()));
}

/// The output of `openssl s_client`, with the answer to this input.
fn s_client(house: &House, port: u16, more: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-verify_return_error"])
        .args(["-ign_eof", "-CAfile"])
        .arg(house.authority.path())
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is there");
    let mut stdin = child.stdin.take().unwrap();
    // A client that was turned away does not read its input.
    let _ = stdin.write_all(input);
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

const LIVE: &[u8] = b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn openssl_agrees_on_both_versions_and_with_a_certificate_of_its_own() {
    let house = house(Start::new());
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let said = s_client(&house, house.server.http, &[version], LIVE);
        assert!(said.contains(name) && said.contains("Verify return code: 0"), "{said}");
        assert!(said.contains("HTTP/1.1 200") && said.contains("\r\n\r\nOK"), "{said}");
        // The end was announced.
        assert!(!said.contains("unexpected eof"), "{said}");
    }
    for version in ["-tls1_1", "-tls1"] {
        let said = s_client(&house, house.server.http, &[version], LIVE);
        assert!(!said.contains("HTTP/1.1"), "{said}");
    }
    let authority = Authority::new();
    let paper = authority.issue("server", None);
    let start = Start::new().tls(&paper).env("TLS_CLIENT_CA_FILE", authority.path().display());
    let Paper { cert, key } = authority.issue("client", None);
    let house = House { server: start.start(), authority };
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    for version in ["-tls1_2", "-tls1_3"] {
        let shown = [version, "-cert", &cert, "-key", &key];
        let said = s_client(&house, house.server.http, &shown, LIVE);
        assert!(said.contains("HTTP/1.1 200"), "{said}");
        let said = s_client(&house, house.server.http, &[version], LIVE);
        assert!(!said.contains("HTTP/1.1"), "{said}");
    }
}

#[test]
fn curl_speaks_https_and_through_a_path() {
    let authority = Authority::new();
    let (paper, path) = (authority.issue("server", None), authority.file("http.sock"));
    let start = Start::new().tls(&paper).env("HTTP_SOCKET_PATH", path.display());
    let server = start.start();
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--max-time", "300"])
            .args(arguments)
            .output()
            .expect("curl is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (ca, base) =
        (authority.path().display().to_string(), format!("https://localhost:{}", server.http));
    let push = ["--json", r#"{"data":{"n":1}}"#];
    let url = format!("{base}/queues/q/jobs");
    let pushed = curl(&["--cacert", &ca, push[0], push[1], &url]);
    assert!(pushed.contains(r#""ok":true"#), "{pushed}");
    let path = path.display().to_string();
    let pulled = curl(&["--unix-socket", &path, "http://localhost/queues/q/jobs"]);
    assert!(pulled.contains(r#""data":{"n":1}"#), "{pulled}");
}

#[test]
fn testssl_finds_no_fault() {
    let Some(testssl) = judges_by("testssl", "TESTSSL") else { return };
    let house = house(Start::new());
    let found = house.authority.file("found.csv");
    let output = Command::new(&testssl)
        .args(["--quiet", "--warnings", "off", "--color", "0", "--nodns", "none"])
        .args(["--protocols", "--std", "--fs", "--vulnerable", "--csvfile"])
        .arg(&found)
        .arg(format!("127.0.0.1:{}", house.server.http))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let rows = std::fs::read_to_string(&found).unwrap_or_else(|error| panic!("{error}: {said}"));
    let column = |row: &str, place: usize| {
        row.trim_matches('"').split("\",\"").nth(place).unwrap_or_default().to_owned()
    };
    let is_bad = |row: &&str| {
        // That openssl of this machine knows no GOST is no fault of ours.
        column(row, 0) != "engine_problem" && !["OK", "INFO"].contains(&column(row, 3).as_str())
    };
    let bad: Vec<&str> = rows.lines().skip(1).filter(is_bad).collect();
    assert!(bad.is_empty(), "{bad:#?}\n{said}");
    for sign in ["TLS1_2", "TLS1_3", "heartbleed", "ROBOT", "LUCKY13"] {
        assert!(rows.contains(sign), "{sign} was not looked at:\n{said}");
    }
}
