//! TLS on both ports. The fear: a connection that costs a plain one something, loses what was said, or says it
//! in the clear; a certificate that cannot be exchanged without a stop, or is lost by trying.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};

use crate::secure::{Authority, Tls, connect, ends_in_order, tunnel};
use crate::support::stream::{Sse, UPGRADE, WebSocket};
use crate::support::tool::Tool;
use crate::support::{Client, Http, Server, Start, decode, encode, frame, until};

/// A server with a certificate, and who has signed it.
struct House {
    authority: Authority,
    server: Server,
}

fn house(start: Start) -> House {
    let authority = Authority::new();
    let paper = authority.issue("server", None);
    House { server: start.tls(&paper).start(), authority }
}

impl House {
    /// A plain port that leads to the port for frames.
    fn tcp(&self) -> u16 {
        tunnel(self.server.tcp, &self.authority.believer())
    }

    /// And to the one for HTTP.
    fn http(&self) -> u16 {
        tunnel(self.server.http, &self.authority.believer())
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let text = Http::connect(self.http()).get("/prometheus").text().to_owned();
        let line = text.lines().find(|line| line.starts_with(&format!("corq_{name} ")))?;
        line.split(' ').nth(1).unwrap().parse().ok()
    }

    fn counts(&self, name: &str, expected: u64) {
        until(name, || (self.metric(name) == Some(expected)).then_some(()));
    }
}

pub(crate) fn ping(stream: &mut Tls) -> std::io::Result<Value> {
    stream.write_all(&frame(&encode(&json!({"cmd": "Ping"}))))?;
    receive(stream)
}

pub(crate) fn receive(stream: &mut Tls) -> std::io::Result<Value> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut body)?;
    Ok(decode(&rmpv::decode::read_value(&mut &body[..]).unwrap()))
}

/// The certificate that a server shows to a client that comes now.
fn shown(port: u16, config: &Arc<ClientConfig>) -> Vec<u8> {
    let stream = connect(port, config).unwrap();
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn both_versions_are_spoken_on_both_ports() {
    let house = house(Start::new());
    for version in [&TLS12, &TLS13] {
        let config = house.authority.client(None, &[version]);
        let mut stream = connect(house.server.tcp, &config).unwrap();
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
        assert_eq!(ping(&mut stream).unwrap()["ok"], true);
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut stream = connect(house.server.http, &Arc::new(config.clone())).unwrap();
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        stream.write_all(b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("OK"), "{answer}");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let error = connect(house.server.http, &Arc::new(config)).unwrap_err();
        assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    }
    house.counts("tls_handshake_failures_total", 2);
}

/// Resumptions among ten connections, one after the other.
fn resumed(house: &House, port: u16, version: &'static rustls::SupportedProtocolVersion) -> u64 {
    let config = house.authority.client(None, &[version]);
    let before = house.metric("tls_resumptions_total").unwrap();
    for _ in 0..10 {
        let mut stream = connect(port, &config).unwrap();
        if port == house.server.tcp {
            ping(&mut stream).unwrap();
        } else {
            stream
                .write_all(b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
    }
    house.metric("tls_resumptions_total").unwrap() - before
}

#[test]
fn whoever_comes_back_shows_the_keys_of_last_time() {
    // Whichever of the shards it comes to.
    let house = house(Start::new().env("SHARDS", 2));
    assert_eq!(resumed(&house, house.server.http, &TLS12), 9);
    assert_eq!(resumed(&house, house.server.http, &TLS13), 9);
    assert_eq!(resumed(&house, house.server.tcp, &TLS12), 9);
}

/// Guards against clients that write while the thread beside them is given a ticket.
#[test]
fn frames_over_tls_1_3_are_given_no_tickets() {
    let house = house(Start::new());
    assert_eq!(resumed(&house, house.server.tcp, &TLS13), 0);
}

#[test]
fn payloads_of_ten_megabytes_cross_it_whole() {
    let house = house(Start::new());
    let (tcp, http) = (house.tcp(), house.http());
    let data: String = (0..9_900_000_u32).map(|n| char::from(b'a' + (n % 23) as u8)).collect();
    let mut client = Client::connect(tcp);
    let id = client.push("large", data.clone());
    let (job, token) = Http::connect(http).pull("large");
    assert!(job["data"] == json!(data), "it was changed on the way");
    client.ok("ACK", json!({"id": id, "token": token, "result": data}));
    assert!(client.ok("GetResult", json!({"id": id}))["result"] == json!(data));
    let jobs: Vec<Value> =
        (0..1000).map(|n| json!({"data": format!("{n}{}", "y".repeat(15_000))})).collect();
    client.ok("PUSHB", json!({"queue": "many", "jobs": jobs}));
    let pulled = client.ok("PULLB", json!({"queue": "many", "count": 1000}));
    for (n, job) in pulled["jobs"].as_array().unwrap().iter().enumerate() {
        assert!(job["data"].as_str().unwrap().starts_with(&format!("{n}y")), "job {n}");
    }
}

#[test]
fn connections_follow_their_queue_with_their_keys() {
    const JOBS: usize = 2000;
    let house = house(Start::new().env("SHARDS", 2));
    let tcp = house.tcp();
    for n in 0..8 {
        let (queue, mut client) = (format!("abroad-{n}"), Client::connect(tcp));
        for job in 0..JOBS {
            if job >= 50 {
                assert_eq!(client.recv().unwrap()["ok"], true);
            }
            client.send("PUSH", json!({"queue": queue, "data": job})).unwrap();
        }
        for _ in 0..50 {
            assert_eq!(client.recv().unwrap()["ok"], true);
        }
        for job in 0..JOBS {
            assert_eq!(client.pull(&queue)["data"], job, "in the order they were sent");
        }
    }
    assert!(house.metric("connections_moved_total").unwrap() > 0);
}

#[test]
fn streams_of_events_work_over_it() {
    let house = house(Start::new().env("AUTH_TOKENS", "secret"));
    let (tcp, http) = (house.tcp(), house.http());
    let header = "Authorization: Bearer secret\r\n";
    let mut sse = Sse::open_with(http, "/events", header).unwrap();
    let upgrade = format!("{header}{UPGRADE}");
    let mut socket = WebSocket::open_with(http, "/ws", &upgrade).unwrap();
    let mut client = Client::connect(tcp);
    client.ok("Auth", json!({"token": "secret"}));
    for n in 0..200 {
        let id = client.push("q", json!({"n": n, "text": "z".repeat(1000)}));
        assert_eq!(sse.next()["jobId"], json!(id));
        assert_eq!(socket.next()["jobId"], json!(id));
    }
    assert_eq!(socket.ok("Count", json!({"queue": "q"}))["count"], 200);
}

#[test]
fn the_end_is_announced_on_both_sides_and_a_cut_is_told_apart() {
    let house = house(Start::new());
    for version in [&TLS12, &TLS13] {
        let config = house.authority.client(None, &[version]);
        // A client that has said everything gets its answers, and a server that hangs up says so.
        let mut stream = connect(house.server.tcp, &config).unwrap();
        for n in 0..200 {
            let push = json!({"cmd": "PUSH", "queue": "q", "data": n});
            stream.write_all(&frame(&encode(&push))).unwrap();
        }
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        for _ in 0..200 {
            assert_eq!(receive(&mut stream).unwrap()["ok"], true);
        }
        assert!(ends_in_order(&mut stream));
        let mut stream = connect(house.server.tcp, &config).unwrap();
        stream.write_all(&[0x7f; 4]).unwrap();
        assert_eq!(receive(&mut stream).unwrap()["error"], "Frame exceeds 64 MB");
        assert!(ends_in_order(&mut stream));
    }
    assert_eq!(house.metric("tls_truncated_total"), Some(0));
    let mut stream = connect(house.server.tcp, &house.authority.believer()).unwrap();
    let push = json!({"cmd": "PUSH", "queue": "q", "data": "the last"});
    stream.write_all(&frame(&encode(&push))).unwrap();
    stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
    // All that came is from the client itself, so the push is carried out.
    assert_eq!(receive(&mut stream).unwrap()["ok"], true);
    assert!(ends_in_order(&mut stream));
    house.counts("tls_truncated_total", 1);
    let counted = Client::connect(house.tcp()).ok("Count", json!({"queue": "q"}));
    assert_eq!(counted["count"], 401);
}

#[test]
fn a_stop_is_announced() {
    let mut house = house(Start::new());
    let config = house.authority.believer();
    let mut streams: Vec<Tls> =
        (0..8).map(|_| connect(house.server.tcp, &config).unwrap()).collect();
    for stream in &mut streams {
        ping(stream).unwrap();
    }
    assert_eq!(house.server.terminate().code(), Some(0));
    assert!(streams.iter_mut().all(ends_in_order));
}

#[test]
fn a_certificate_is_exchanged_by_sighup_and_lost_by_nothing() {
    let house = house(Start::new());
    let (config, paper) = (house.authority.believer(), house.authority.issue("next", None));
    let (server, port) = (&house.server, house.server.tcp);
    let (cert, key) = (house.authority.file("server.pem"), house.authority.file("server.key"));
    let first = shown(port, &config);
    let mut old = connect(port, &config).unwrap();
    fs::copy(&paper.cert, &cert).unwrap();
    fs::copy(&paper.key, &key).unwrap();
    server.signal(Signal::HUP);
    let second =
        until("the next certificate", || Some(shown(port, &config)).filter(|it| *it != first));
    assert_eq!(ping(&mut old).unwrap()["ok"], true, "who was there stays");
    for (file, bytes, words) in [
        (&key, &b"no key"[..], "holds no private key"),
        (&cert, b"no certificate", "holds no certificate"),
        (
            &cert,
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "cannot be read",
        ),
    ] {
        let good = fs::read(file).unwrap();
        let said = server.output().matches("stays as it was").count();
        fs::write(file, bytes).unwrap();
        server.signal(Signal::HUP);
        until("it says so", || {
            let output = server.output();
            (output.matches("stays as it was").count() > said && output.contains(words))
                .then_some(())
        });
        assert!(server.output().contains(&file.display().to_string()));
        assert_eq!(shown(port, &config), second);
        fs::write(file, good).unwrap();
    }
    // A pipe that nobody writes to would keep its reader for ever.
    let good = fs::read(&cert).unwrap();
    fs::remove_file(&cert).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &cert, rustix::fs::Mode::RUSR).unwrap();
    server.signal(Signal::HUP);
    until("it says so", || server.output().contains("it is no file").then_some(()));
    fs::remove_file(&cert).unwrap();
    fs::write(&cert, good).unwrap();
    house.counts("tls_reload_failures_total", 4);
    let health = Http::connect(house.http()).get("/health").expect(200);
    assert_eq!(health["tls"]["reloadFailed"], true);
    server.signal(Signal::HUP);
    house.counts("tls_reloads_total", 2);
    let health = Http::connect(house.http()).get("/health").expect(200);
    assert_eq!(health["tls"]["reloadFailed"], false);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as f64;
    assert!(health["tls"]["certificateExpiresAt"].as_f64().unwrap() > now_ms);
    assert_eq!(ping(&mut old).unwrap()["ok"], true);
}

#[test]
fn files_that_are_wrong_stop_the_start_with_one_line_that_names_them() {
    let authority = Authority::new();
    let (paper, other) = (authority.issue("server", None), authority.issue("other", None));
    let file = |name: &str, text: &str| {
        fs::write(authority.file(name), text).unwrap();
        authority.file(name)
    };
    let text = file("text", "dear");
    let locked =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let locked = file("locked", locked);
    let missing = authority.file("missing");
    for (name, value, words) in [
        ("TLS_CERT_FILE", &missing, "No such file"),
        ("TLS_CERT_FILE", &text, "holds no certificate"),
        ("TLS_CERT_FILE", &paper.key, "holds no certificate"),
        ("TLS_KEY_FILE", &missing, "No such file"),
        ("TLS_KEY_FILE", &paper.cert, "holds no private key"),
        ("TLS_KEY_FILE", &locked, "is encrypted"),
        ("TLS_KEY_FILE", &other.key, "is not the key of"),
        ("TLS_CLIENT_CA_FILE", &missing, "No such file"),
        ("TLS_CLIENT_CA_FILE", &text, "holds no certificate"),
    ] {
        let start = Start::new().tls(&paper).env(name, value.display());
        let (status, output) = start.run_to_its_end(&authority.file("data"));
        assert!(!status.success(), "{name}={}: {output}", value.display());
        assert_eq!(output.trim().lines().count(), 1, "{output}");
        let file = value.display().to_string();
        assert!([name, words, &file].iter().all(|it| output.contains(it)), "{words}: {output}");
    }
    for (name, missing) in [
        ("TLS_CERT_FILE", "TLS_KEY_FILE"),
        ("TLS_KEY_FILE", "TLS_CERT_FILE"),
        ("TLS_CLIENT_CA_FILE", "TLS_CERT_FILE"),
    ] {
        let start = Start::new().env(name, paper.cert.display());
        let (status, output) = start.run_to_its_end(&authority.file("data"));
        assert!(!status.success() && output.contains(missing) && output.contains(name), "{output}");
    }
}

#[test]
fn an_expired_certificate_is_told_of_and_used() {
    let authority = Authority::new();
    let server = Start::new().tls(&authority.issue("old", Some(2020))).start();
    let output = server.output();
    assert!(output.contains("has expired") && output.contains("until 2020-01-01"), "{output}");
    let error = connect(server.tcp, &authority.believer()).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

#[test]
fn clients_show_a_certificate_of_the_authority_or_are_turned_away() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let paper = authority.issue("server", None);
    let server =
        Start::new().tls(&paper).env("TLS_CLIENT_CA_FILE", authority.path().display()).start();
    let mine = authority.issue("client", None);
    let others = stranger.issue("stranger", None);
    let old = authority.issue("late", Some(2020));
    for versions in [&[&TLS12][..], &[&TLS13][..]] {
        let speaks = |paper: Option<&crate::secure::Paper>| {
            let config = authority.client(paper, versions);
            connect(server.tcp, &config).and_then(|mut stream| ping(&mut stream))
        };
        assert_eq!(speaks(Some(&mine)).unwrap()["ok"], true);
        for (wrong, word) in
            [(None, "CertificateRequired"), (Some(&others), "UnknownCA"), (Some(&old), "xpired")]
        {
            let error = speaks(wrong).unwrap_err().to_string();
            // The older version has no word for a certificate that is missing.
            let known =
                error.contains(word) || wrong.is_none() && error.contains("HandshakeFailure");
            assert!(known, "{versions:?} {word}: {error}");
        }
    }
    let tool = Tool::at(server.tcp).env("CORQ_TLS_CA", authority.path().display());
    let (cert, key) = (mine.cert.display().to_string(), mine.key.display().to_string());
    tool.ok(&["push", "q", "1", "--tls-cert", &cert, "--tls-key", &key]);
    let line = tool.fails(1, &["ping"]);
    assert!(line.contains("--tls-cert"), "{line}");
    let line = tool.fails(2, &["ping", "--tls-cert", &cert]);
    assert!(line.contains("--tls-key"), "{line}");
}

#[test]
fn the_command_line_speaks_it_and_says_what_is_wrong() {
    let house = house(Start::new());
    let (authority, server) = (&house.authority, &house.server);
    let tool = Tool::of(server).env("CORQ_TLS_CA", authority.path().display());
    let id = tool.ok(&["push", "q", "1"]).trim().to_owned();
    assert_eq!(Client::connect(house.tcp()).state(&id), "waiting");
    let mut events = tool.start(&["events", "--count", "1"]);
    until("an event to be printed", || {
        tool.ok(&["push", "q", "2"]);
        events.try_wait().unwrap()
    });
    let output = events.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("pushed"), "{output:?}");
    let doctor = tool.run(&["doctor", "--data-path", "/tmp"]).out;
    assert!(doctor.contains("TLS") && doctor.contains("certificate"), "{doctor}");
    let plain = Tool::of(server);
    let advice = "\"This port speaks TLS\": use --tls or --tls-ca";
    let line = plain.fails(1, &["health"]);
    assert_eq!(line, format!("127.0.0.1:{} answered 400 {advice}", server.http));
    for words in [&["ping"][..], &["events"]] {
        let line = plain.fails(1, words);
        assert_eq!(line, "This port speaks TLS: use --tls or --tls-ca", "{words:?}");
    }
    let line = plain.fails(1, &["ping", "--tls-ca", "/nowhere"]);
    assert!(line.contains("--tls-ca: /nowhere"), "{line}");
    let stranger = Authority::new().path().display().to_string();
    let kept = authority.file("stranger.pem");
    fs::write(&kept, Authority::new().issue("x", None).cert.display().to_string()).unwrap();
    assert!(plain.fails(1, &["ping", "--tls-ca", &stranger]).contains("--tls-ca"));
    let other = Authority::new();
    let line = plain.fails(1, &["ping", "--tls-ca", &other.path().display().to_string()]);
    assert!(line.contains("UnknownIssuer") && line.contains("--tls-ca"), "{line}");
    let open = Server::start_default();
    let line = Tool::of(&open).env("CORQ_TLS_CA", authority.path().display()).fails(1, &["ping"]);
    assert!(line.contains("leave --tls out"), "{line}");
}

#[test]
fn whoever_speaks_in_the_wrong_way_is_told_so() {
    let house = house(Start::new());
    let mut client = house.server.client();
    client.send("Ping", json!({})).unwrap();
    assert_eq!(client.recv().unwrap()["error"], "This port speaks TLS");
    assert!(client.is_closed_by_server());
    let mut web = house.server.web();
    assert_eq!(web.get("/health").refused(400), "This port speaks TLS");
    assert!(web.is_closed_by_server());
    assert!(house.metric("tls_plain_clients_total").unwrap() >= 2);

    let open = Server::start_default();
    for port in [open.tcp, open.http] {
        assert!(connect(port, &house.authority.believer()).is_err());
    }
    let metrics = open.client().ok("Prometheus", json!({}));
    let metrics = metrics["data"]["metrics"].as_str().unwrap();
    assert!(metrics.contains("corq_tls_misplaced_clients_total 2\n"));
    assert!(!metrics.contains("certificate_expires"), "there is none");
    assert!(open.web().get("/health").expect(200)["tls"].is_null());
}

#[test]
fn a_start_answers_over_it_from_the_first_moment_on() {
    let mut house = house(Start::new());
    let http = house.http();
    for _ in 0..5 {
        house.server.kill();
        house.server.launch();
        until("it is ready", || {
            let mut web = Http::try_connect(http).ok()?;
            web.send("GET", "/ready", &[], b"").ok()?;
            let answer = web.recv(false).ok()?;
            assert!([200, 503].contains(&answer.status), "{answer:?}");
            (answer.status == 200).then_some(())
        });
    }
}
