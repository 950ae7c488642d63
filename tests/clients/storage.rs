//! Backups in a bucket, against a stand-in for S3 that compares signatures (`moto`, by `scripts/storage-stand-in.sh`, which needs the
//! network once; `CORQ_TEST_STORAGE=off` leaves these out). The fear: a backup that counts and is none, or one that is
//! lost before its successor is there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value as Json, json};

use crate::support::tool::Tool;
use crate::support::{Client, Server, Start, until};

const BUCKET: &str = "s3://corq-backups/prod";

/// The stand-in.
struct Storage {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    port: u16,
    key_id: String,
    secret: String,
}

impl Storage {
    /// Nothing, where it is switched off.
    fn start() -> Option<Self> {
        if std::env::var("CORQ_TEST_STORAGE").is_ok_and(|value| value == "off") {
            eprintln!("CORQ_TEST_STORAGE=off: backups in buckets are not tried");
            return None;
        }
        let root = Path::new(crate::ROOT);
        let installed = Command::new(root.join("scripts/storage-stand-in.sh")).output().unwrap();
        let said = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "scripts/storage-stand-in.sh failed:\n{said}");
        let mut child = Command::new(String::from_utf8_lossy(&installed.stdout).trim())
            .arg(root.join("tests/clients/python/storage.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [port, key_id, secret] = words[..] else { panic!("the stand-in said {line:?}") };
        let (port, key_id, secret) = (port.parse().unwrap(), key_id.into(), secret.into());
        Some(Self { child, input, output, port, key_id, secret })
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    fn keys(&mut self) -> Vec<String> {
        serde_json::from_str(&self.ask("keys")).unwrap()
    }

    fn settings(&self, port: u16) -> [(&'static str, String); 3] {
        [
            ("BACKUP_S3_ENDPOINT", format!("http://127.0.0.1:{port}")),
            ("AWS_ACCESS_KEY_ID", self.key_id.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret.clone()),
        ]
    }

    fn tool(&self, server: &Server) -> Tool {
        let tool = Tool::of(server).env("DATA_PATH", server.data.display());
        self.settings(self.port).into_iter().fold(tool, |tool, (name, value)| tool.env(name, value))
    }

    /// A server that makes a backup every second, which it reaches at this port.
    fn every_second(&self, port: u16) -> Start {
        let start = Start::new().env("BACKUP_SCHEDULE", "* * * * * *").env("BACKUP_TO", BUCKET);
        self.settings(port).into_iter().fold(start, |start, (name, value)| start.env(name, value))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn push(server: &Server, count: u64) {
    let mut client = server.client();
    for n in 0..count {
        client.ok("PUSH", json!({"queue": format!("q-{}", n % 6), "data": {"n": n}}));
    }
}

fn metric(client: &mut Client, name: &str) -> u64 {
    let metrics = client.ok("Prometheus", json!({}))["data"]["metrics"].clone();
    let name = format!("corq_{name} ");
    let mut lines = metrics.as_str().unwrap().lines();
    lines
        .find_map(|line| line.strip_prefix(&name)?.parse().ok())
        .unwrap_or_else(|| panic!("{name}"))
}

/// The complete ones, oldest first.
fn complete(tool: &Tool) -> Vec<String> {
    let listed = tool.json(&["backup", "list", BUCKET]);
    let all = listed["backups"].as_array().unwrap().clone();
    let complete = all.iter().filter(|it| it["complete"] == true);
    complete.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// A server on what a backup was restored to.
fn restored(tool: &Tool, name: &str, home: &Path) -> Server {
    let data = home.join("restored");
    let from = format!("{BUCKET}/{name}");
    tool.ok(&["restore", &from, data.to_str().unwrap()]);
    Tool::at(1).ok(&["log", "verify", data.to_str().unwrap()]);
    Start::new().start_at(&data)
}

fn waiting(server: &Server) -> Json {
    server.client().ok("Stats", json!({}))["stats"]["waiting"].clone()
}

#[test]
fn a_backup_in_a_bucket_is_listed_restored_and_started_and_a_changed_one_is_refused() {
    let Some(mut storage) = Storage::start() else { return };
    let server = Server::start_default();
    push(&server, 50);
    let tool = storage.tool(&server);
    let made = tool.json(&["backup", BUCKET]);
    assert_eq!((&made["ok"], &made["shards"]), (&json!(true), &json!(2)), "{made}");
    push(&server, 5);
    let names = complete(&tool);
    assert_eq!(names.len(), 1);
    assert!(made["path"].as_str().unwrap().ends_with(&names[0]), "{made}");
    let home = tempfile::tempdir().unwrap();
    assert_eq!(waiting(&restored(&tool, &names[0], home.path())), 50);

    let objects = storage.keys();
    let segment = objects.iter().find(|key| key.rsplit('.').next() == Some("seg")).unwrap();
    storage.ask(&format!("flip {segment}"));
    let to = home.path().join("changed");
    let from = format!("{BUCKET}/{}", names[0]);
    let said = tool.fails(1, &["restore", &from, to.to_str().unwrap()]);
    assert!(said.contains("is not what was put there: its SHA-256 differs"), "{said}");
    assert!(!to.exists());
    let said = tool.fails(2, &["restore", BUCKET, to.to_str().unwrap()]);
    assert!(said.contains("NAME of 'corq backup list'"), "{said}");
}

#[test]
fn a_wrong_key_and_a_bucket_that_is_not_there_are_named_and_the_key_is_not() {
    let Some(mut storage) = Storage::start() else { return };
    let server = Server::start_default();
    push(&server, 5);
    let wrong = storage.tool(&server).env("BACKUP_S3_SECRET_ACCESS_KEY", "s3cret-and-wrong");
    let said = wrong.fails(1, &["backup", BUCKET]);
    assert!(said.contains("SignatureDoesNotMatch"), "{said}");
    assert!(said.contains("the secret key is not the one of this key id"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    let said = storage.tool(&server).fails(1, &["backup", "s3://elsewhere/prod"]);
    assert!(said.contains("NoSuchBucket") && said.contains("make the bucket first"), "{said}");
    let said =
        Tool::of(&server).env("DATA_PATH", server.data.display()).fails(1, &["backup", BUCKET]);
    assert!(said.contains("BACKUP_S3_ACCESS_KEY_ID"), "{said}");
    assert_eq!(storage.keys(), [""; 0]);
    // Nothing is left of them beside the log.
    let left = std::fs::read_dir(&server.data).unwrap();
    let mut left = left.map(|it| it.unwrap().file_name().into_string().unwrap());
    assert!(!left.any(|name| name.starts_with("backup-pins")));
}

#[test]
fn backups_by_the_schedule_in_a_bucket_replace_the_oldest_and_what_was_never_completed() {
    let Some(mut storage) = Storage::start() else { return };
    let server = storage.every_second(storage.port).env("BACKUP_KEEP", 2).start();
    push(&server, 20);
    let tool = storage.tool(&server);
    let first = until("a backup", || complete(&tool).first().cloned());
    let id = first.rsplit_once('-').unwrap().1.to_owned();
    let given_up = format!("prod/20200101T000000.000Z-{id}/0000/0.seg");
    let others = ["prod/20200101T000000.000Z-00000000000000ff/0000/0.seg", "prod/mine.txt"];
    for key in [&*given_up, others[0], others[1]] {
        storage.ask(&format!("put {key} text"));
    }
    let mut client = server.client();
    let made = metric(&mut client, "backups_total");
    until("more backups", || (metric(&mut client, "backups_total") > made + 3).then_some(()));
    until("the oldest have gone", || (!complete(&tool).contains(&first)).then_some(()));
    let keys = storage.keys();
    assert!(!keys.contains(&given_up), "{keys:?}");
    assert!(others.iter().all(|key| keys.iter().any(|it| it == key)), "{keys:?}");
    assert_eq!(metric(&mut client, "backup_failures_total"), 0);
    let settings = client.ok("GetSettings", json!({})).to_string();
    let shown = tool.ok(&["config", "show"]);
    let told = settings + &shown + &server.output();
    assert!(!told.contains(&storage.secret) && told.contains("BACKUP_S3_SECRET_ACCESS_KEY"));
    // No more are made, so that the one that is restored stays.
    drop(client);
    let mut server = server;
    server.kill();
    let names = complete(&tool);
    assert!((2..=3).contains(&names.len()), "{names:?}");
    let home = tempfile::tempdir().unwrap();
    assert_eq!(waiting(&restored(&tool, names.last().unwrap(), home.path())), 20);
}

#[test]
fn a_key_that_may_not_delete_keeps_no_backup_from_being_made() {
    let Some(mut storage) = Storage::start() else { return };
    storage.ask("keep");
    let server = storage.every_second(storage.port).env("BACKUP_KEEP", 1).start();
    push(&server, 5);
    let mut client = server.client();
    until("backups that stay", || {
        let (made, kept) = (metric(&mut client, "backups_total"), "backup_removal_failures_total");
        (made > 2 && metric(&mut client, kept) > 1).then_some(())
    });
    assert_eq!(metric(&mut client, "backup_failures_total"), 0);
    assert!(complete(&storage.tool(&server)).len() > 2);
    let line = "old backups at s3://corq-backups/prod are not all removed";
    until("the line of the log", || server.output().contains(line).then_some(()));
}

/// Hands everything on to the storage, up to a number of bytes until it is opened.
struct Gate {
    port: u16,
    open: Arc<(Mutex<Flow>, Condvar)>,
}

struct Flow {
    left: usize,
    is_open: bool,
    is_held: bool,
}

impl Gate {
    fn to(port: u16, left: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let flow = Flow { left, is_open: false, is_held: false };
        let open = Arc::new((Mutex::new(flow), Condvar::new()));
        let gate = Arc::clone(&open);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(storage) = TcpStream::connect(("127.0.0.1", port)) else { return };
                let (from, to) = (client.try_clone().unwrap(), storage.try_clone().unwrap());
                let gate = Arc::clone(&gate);
                thread::spawn(move || pass(from, to, |bytes| wait(&gate, bytes)));
                thread::spawn(move || pass(storage, client, |_| ()));
            }
        });
        Self { port: own, open }
    }

    fn is_held(&self) -> bool {
        self.open.0.lock().unwrap().is_held
    }

    fn open(&self) {
        self.open.0.lock().unwrap().is_open = true;
        self.open.1.notify_all();
    }
}

fn wait((flow, opened): &(Mutex<Flow>, Condvar), bytes: usize) {
    let mut flow = flow.lock().unwrap();
    if flow.left < bytes {
        flow.is_held = true;
        drop(opened.wait_while(flow, |flow| !flow.is_open).unwrap());
    } else {
        flow.left -= bytes;
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, wait: impl Fn(usize)) {
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        wait(read);
        if to.write_all(&chunk[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_server_that_is_killed_while_it_sends_leaves_no_backup_and_the_next_start_makes_one() {
    let Some(mut storage) = Storage::start() else { return };
    let gate = Gate::to(storage.port, 300_000);
    let mut server = storage.every_second(gate.port).start();
    let mut client = server.client();
    // More than the gate lets through, before the first backup is complete.
    for n in 0..20 {
        client.ok("PUSH", json!({"queue": format!("q-{n}"), "data": "x".repeat(60_000)}));
    }
    until("an upload is held up", || gate.is_held().then_some(()));
    // The server goes on meanwhile.
    client.ok("PUSH", json!({"queue": "q-0", "data": "last"}));
    drop(client);
    let before = complete(&storage.tool(&server));
    server.kill();
    let pins = |server: &Server| {
        let entries = std::fs::read_dir(&server.data).unwrap().map(|it| it.unwrap().file_name());
        entries.filter(|name| name.to_string_lossy().starts_with("backup-pins")).count()
    };
    assert!(pins(&server) > 0, "it was not in the middle of an upload");
    assert!(!storage.keys().is_empty() || before.is_empty());
    gate.open();
    server.start();
    let tool = storage.tool(&server);
    let name = until("a backup of the next start", || {
        let now = complete(&tool);
        now.iter().find(|name| !before.contains(name)).cloned()
    });
    let home = tempfile::tempdir().unwrap();
    assert_eq!(waiting(&restored(&tool, &name, home.path())), 21);
}
