//! `corq import` from the real products: `BullMQ` on Redis, beanstalkd, a bunqueue server. What their storage looks like is theirs to
//! change; the fear is that the recorded form that `tests/e2e` imports is no longer what they write.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::bun;
use crate::streams::judges_by;
use crate::support::tool::Tool;
use crate::support::{Server, free_port, until};

/// A process that ends with the test, and the directory that it works in.
struct Process(Child, #[allow(dead_code)] tempfile::TempDir);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server and waits until its port answers.
fn start(command: &mut Command, port: u16) -> Process {
    let dir = tempfile::tempdir().unwrap();
    command.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process(command.spawn().unwrap(), dir);
    until("the port answers", || TcpStream::connect(("127.0.0.1", port)).ok());
    process
}

fn report(tool: &Tool, words: &[&str]) -> Value {
    let out = tool.ok(&[&["--json", "import"], words].concat());
    serde_json::from_str(&out).unwrap()
}

fn counts(report: &Value) -> (u64, u64) {
    let states = report["states"].as_object().unwrap();
    let sum = |name: &str| states.values().map(|state| state[name].as_u64().unwrap()).sum();
    (sum("pushed"), sum("known"))
}

#[test]
fn a_real_bullmq_is_imported_once_in_all_its_states_and_emptied_if_asked() {
    let (Some(redis), Some(home)) = (judges_by("redis", "MOVING"), judges_by("bullmq", "MOVING"))
    else {
        return;
    };
    let port = free_port();
    let settings = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
    let _redis = start(Command::new(redis).args(settings), port);
    let script = Path::new(crate::ROOT).join("tests/clients/moving/bullmq.mjs");
    let filled =
        Command::new("node").arg(script).arg(port.to_string()).current_dir(home).output().unwrap();
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    let server = Server::start_default();
    let (tool, mut client) = (Tool::of(&server), server.client());
    let url = format!("redis://127.0.0.1:{port}");
    let first = report(&tool, &["bullmq", &url]);
    assert_eq!((counts(&first), &first["schedules"]["pushed"]), ((7, 0), &json!(1)), "{first}");
    assert_eq!(counts(&report(&tool, &["bullmq", &url])), (0, 7));
    let mut state = |id: &str| client.state(&format!("bullmq:{id}"));
    assert_eq!(state("emails:first"), "waiting");
    assert_eq!((state("fails:dead"), state("fails:retried")), ("failed".into(), "delayed".into()));
    assert_eq!(
        (state("kids:kid"), state("parents:parent")),
        ("waiting".into(), "waiting-children".into())
    );
    let removed = report(&tool, &["bullmq", &url, "--remove"]);
    assert_eq!((&removed["removed"], &removed["taken"]), (&json!(7), &json!(0)));
    assert_eq!(counts(&report(&tool, &["bullmq", &url])), (0, 0));
}

#[test]
fn a_real_beanstalkd_is_counted_and_emptied_if_asked() {
    let Some(program) = judges_by("beanstalkd", "MOVING") else { return };
    let port = free_port();
    let _source =
        start(Command::new(program).args(["-l", "127.0.0.1", "-p", &port.to_string()]), port);
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut answers = BufReader::new(socket.try_clone().unwrap());
    let mut ask = |words: &[u8]| {
        socket.write_all(&[words, b"\r\n"].concat()).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        if line.starts_with("RESERVED") {
            let bytes: usize = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
            answers.read_exact(&mut vec![0; bytes + 2]).unwrap();
        }
        line
    };
    ask(b"use mail");
    ask(b"watch mail");
    ask(b"put 10 0 60 7\r\n{\"n\":1}");
    let held = ask(b"reserve-with-timeout 0");
    let id = held.split(' ').nth(1).unwrap();
    assert_eq!(ask(format!("bury {id} 10").as_bytes()), "BURIED\r\n");
    ask(b"put 1024 0 60 2\r\n\xff\x00");
    ask(b"put 1024 3600 60 1\r\n3");
    let server = Server::start_default();
    let (tool, mut client) = (Tool::of(&server), server.client());
    let url = format!("tcp://127.0.0.1:{port}");
    assert_eq!(counts(&report(&tool, &["beanstalkd", &url])), (0, 0));
    let moved = report(&tool, &["beanstalkd", &url, "--remove"]);
    assert_eq!((counts(&moved), &moved["removed"]), ((3, 0), &json!(3)), "{moved}");
    for state in ["waiting", "delayed", "failed"] {
        assert_eq!(client.counted("mail", state), 1, "{state}");
    }
    assert_eq!(report(&tool, &["beanstalkd", &url])["states"], json!({}));
}

#[test]
fn a_real_bunqueue_server_is_imported_by_the_ids_that_its_jobs_have() {
    let Some(home) = bun::home("3") else { return };
    let (port, http) = (free_port(), free_port());
    let program = home.join("node_modules/bunqueue/dist/cli/index.js");
    let mut command = Command::new(home.join("node_modules/.bin/bun"));
    command.arg(program).arg("start").env("HOST", "127.0.0.1").env("TCP_PORT", port.to_string());
    let _source =
        start(command.env("HTTP_PORT", http.to_string()).env("DATA_PATH", "queue.db"), port);
    let there = Tool::at(port);
    let plain = there.ok(&["push", "mail", "{\"n\":1}", "--name", "welcome"]);
    there.ok(&["push", "mail", "2", "--priority", "5", "--job-id", "mine"]);
    there.ok(&["push", "mail", "3", "--delay", "1h"]);
    let server = Server::start_default();
    let (tool, mut client) = (Tool::of(&server), server.client());
    let url = format!("tcp://127.0.0.1:{port}");
    assert_eq!(counts(&report(&tool, &["bunqueue", &url])), (3, 0));
    assert_eq!(counts(&report(&tool, &["bunqueue", &url])), (0, 3));
    let job = client.ok("GetJob", json!({"id": plain.trim()}))["job"].clone();
    assert_eq!((&job["name"], &job["data"]), (&json!("welcome"), &json!({"n": 1})));
    let first = client.pull("mail");
    assert_eq!((&first["id"], &first["priority"]), (&json!("mine"), &json!(5)));
}
