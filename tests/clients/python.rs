//! Runs the Python client's suite. Its environment comes from `scripts/python-client.sh`, which
//! needs the network once; `CORQ_TEST_PYTHON=off` leaves these tests out where there is none.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Server, Start};

/// The interpreter that has the client, or `None` where Python is switched off.
pub(crate) fn interpreter() -> Option<String> {
    if std::env::var("CORQ_TEST_PYTHON").is_ok_and(|value| value == "off") {
        eprintln!("CORQ_TEST_PYTHON=off: the Python client is not tried");
        return None;
    }
    let root = Path::new(crate::ROOT);
    let output = Command::new(root.join("scripts/python-client.sh")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/python-client.sh failed:\n{said}");
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(crate) fn suite(interpreter: &str, port: u16) -> Command {
    let mut command = Command::new(interpreter);
    let script = Path::new(crate::ROOT).join("tests/clients/python/suite.py");
    command.arg(script).arg(port.to_string());
    command
}

#[test]
fn the_python_client_works() {
    let Some(python) = interpreter() else { return };
    let server = Server::start_default();
    let output = suite(&python, server.tcp).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn python_workers_survive_a_kill_of_the_server_and_no_job_is_missing() {
    let Some(python) = interpreter() else { return };
    let mut server = Server::start_default();
    let mut child = suite(&python, server.tcp)
        .arg("restart")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut last = String::new();
    for line in stdout.lines() {
        last = line.unwrap();
        if last == "kill" {
            server.kill();
            server.start();
            stdin.write_all(b"up\n").unwrap();
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(last, "done");
}

#[test]
fn a_token_opens_a_guarded_server_to_the_python_client_and_a_wrong_one_does_not() {
    let Some(python) = interpreter() else { return };
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let output = suite(&python, server.tcp).arg("wrong").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
