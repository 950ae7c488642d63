//! Webhooks as seen by a receiver that shares nothing with the server: Python's own HTTP, HMAC and TLS.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use serde_json::json;

use crate::support::{Client, Start, until};

const SECRET: &str = "a secret of two \u{e4}rs";

/// The receiver in Python, and what it has said.
struct Judge {
    child: Child,
    port: u16,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Judge {
    /// None where Python is switched off.
    fn start(tls: Option<&(PathBuf, PathBuf)>) -> Option<Self> {
        if std::env::var("CORQ_TEST_PYTHON").is_ok_and(|value| value == "off") {
            eprintln!("CORQ_TEST_PYTHON=off: the receiver in Python is not tried");
            return None;
        }
        let script = Path::new(crate::ROOT).join("tests/clients/python/receiver.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(SECRET).stdout(Stdio::piped());
        if let Some((certificate, key)) = tls {
            command.arg(certificate).arg(key);
        }
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = stdout.next().unwrap().unwrap();
        let port = first.strip_prefix("port ").unwrap().parse().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        thread::spawn(move || stdout.for_each(|line| kept.lock().unwrap().extend(line)));
        Some(Self { child, port, lines })
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn add(client: &mut Client, url: &str) -> String {
    let fields = json!({"url": url, "events": [], "secret": SECRET});
    client.ok("AddWebhook", fields)["data"]["webhookId"].as_str().unwrap().to_owned()
}

#[test]
fn a_receiver_in_python_finds_every_signature_and_timestamp_right() {
    let Some(judge) = Judge::start(None) else { return };
    let server = Start::new().env("WEBHOOK_ALLOW_PRIVATE", "true").start();
    let mut client = server.client();
    add(&mut client, &format!("http://127.0.0.1:{}/", judge.port));
    let data = json!({"\u{1f980}": ["\u{e4}", "\"\\\u{7}\u{2028}", 1.5e300, null, true]});
    let mut expected = Vec::new();
    for n in 0..20 {
        let queue = format!("q{n}");
        let id = client.push_with(&queue, data.clone(), json!({"backoff": 60_000}));
        let (_, token) = client.pull_owned(&queue, 30_000);
        client.ok("Progress", json!({"id": id, "progress": 33.3}));
        let job = json!({"id": id, "token": token, "error": "no \u{e4}\n"});
        let end = if n % 2 == 0 { "ACK" } else { "FAIL" };
        client.ok(end, job);
        let end = if n % 2 == 0 { "completed" } else { "failed" };
        let events = ["waiting", "active", "progress", end];
        expected.extend(events.map(|event| format!("ok job.{event} {id}")));
    }
    until("all events", || (judge.lines().len() >= expected.len()).then_some(()));
    let mut lines = judge.lines();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected);
}

/// Files of a certificate and its key.
fn write(dir: &Path, name: &str, certificate: &str, key: &KeyPair) -> (PathBuf, PathBuf) {
    let paths = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    std::fs::write(&paths.0, certificate).unwrap();
    std::fs::write(&paths.1, key.serialize_pem()).unwrap();
    paths
}

#[test]
fn only_a_receiver_that_the_systems_certificates_vouch_for_is_told_by_https() {
    let dir = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the system's authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let roots = dir.path().join("roots.pem");
    std::fs::write(&roots, authority.pem()).unwrap();

    let key = KeyPair::generate().unwrap();
    let names = |name: &str| CertificateParams::new(vec![name.to_owned()]).unwrap();
    let mut expired = names("127.0.0.1");
    expired.not_after = date_time_ymd(2020, 1, 1);
    let signed = |params: &CertificateParams| params.signed_by(&key, &authority).unwrap().pem();
    let own = names("127.0.0.1").self_signed(&key).unwrap().pem();
    let bad = [
        ("unknown", own, "UnknownIssuer"),
        ("elsewhere", signed(&names("other.example")), "not valid for name"),
        ("expired", signed(&expired), "expired"),
    ];
    let good = write(dir.path(), "good", &signed(&names("127.0.0.1")), &key);

    let server = Start::new()
        .env("WEBHOOK_ALLOW_PRIVATE", "true")
        .env("WEBHOOK_RETRY_DELAY_MS", 10)
        .env("SSL_CERT_FILE", roots.display())
        .start();
    let mut client = server.client();
    let Some(judge) = Judge::start(Some(&good)) else { return };
    add(&mut client, &format!("https://127.0.0.1:{}/", judge.port));
    let mut judges = Vec::new();
    for (name, certificate, reason) in &bad {
        let judge = Judge::start(Some(&write(dir.path(), name, certificate, &key))).unwrap();
        let id = add(&mut client, &format!("https://127.0.0.1:{}/", judge.port));
        judges.push((judge, id, *reason));
    }
    client.push("q", 1);
    until("the good one", || (judge.lines().len() == 1).then_some(()));
    for (judge, id, reason) in judges {
        let said = until("a line in the log", || {
            let output = server.output();
            output.lines().find(|line| line.contains(&id)).map(str::to_owned)
        });
        assert!(said.contains(reason), "{reason}: {said}");
        assert!(judge.lines().is_empty());
    }
}
