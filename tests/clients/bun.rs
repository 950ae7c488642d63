//! Runs the suite of the client on npm, at the last release that speaks version 2 of the protocol and at one
//! that speaks version 3. Both come from `scripts/judges.sh`, which needs the network once; `CORQ_TEST_BUN=off`
//! leaves these tests out where there is none.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::streams::judges_by;
use crate::support::{Server, Start};

/// A directory with the client of this version of the protocol, or `None` where bun is switched off.
pub(crate) fn home(version: &str) -> Option<PathBuf> {
    judges_by(&format!("bun{version}"), "BUN").map(PathBuf::from)
}

pub(crate) fn suite(home: &Path, port: u16) -> Command {
    let mut command = Command::new(home.join("node_modules/.bin/bun"));
    let script = Path::new(crate::ROOT).join("tests/clients/bun/suite.mjs");
    command.current_dir(home).arg(script).arg(port.to_string());
    command
}

/// `default` is the version that a connection speaks which does not tell.
fn promises(version: &str, default: &str) {
    let Some(home) = home(version) else { return };
    let server = Start::new().env("PROTOCOL_DEFAULT", default).start();
    let output = suite(&home, server.tcp).env("CORQ_SPEAKS", default).output().unwrap();
    let (told, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{said}");
}

fn restart(version: &str) {
    let Some(home) = home(version) else { return };
    let mut server = Server::start_default();
    let mut child = suite(&home, server.tcp)
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

fn wrong_token(version: &str) {
    let Some(home) = home(version) else { return };
    let server = Start::new().env("AUTH_TOKENS", "secret").start();
    let output = suite(&home, server.tcp).arg("wrong").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_npm_client_of_version_2_works() {
    promises("2", "2");
}

#[test]
fn the_npm_client_of_version_3_works() {
    promises("3", "2");
}

/// Connections of its pool that have not told yet are of its version, and so is its command line.
#[test]
fn the_npm_client_of_version_3_works_where_that_is_the_default() {
    promises("3", "3");
}

#[test]
fn npm_workers_of_version_2_survive_a_kill_of_the_server_and_no_job_is_missing() {
    restart("2");
}

#[test]
fn npm_workers_of_version_3_survive_a_kill_of_the_server_and_no_job_is_missing() {
    restart("3");
}

#[test]
fn a_token_opens_a_guarded_server_to_the_npm_clients_and_a_wrong_one_does_not() {
    wrong_token("2");
    wrong_token("3");
}
