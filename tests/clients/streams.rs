//! Runs the WebSocket and SSE clients of others. They come from `scripts/judges.sh`, which needs
//! the network once; `CORQ_TEST_PYTHON=off` and `CORQ_TEST_NODE=off` leave them out where there is none.

use std::path::Path;
use std::process::Command;

use crate::support::{Server, Start};

pub(crate) const TOKEN: &str = "judges-token";

/// The output of the script for a language, or `None` where the language is switched off.
pub(crate) fn judges(language: &str) -> Option<String> {
    judges_by(language, &language.to_uppercase())
}

/// The output of the script for `kind`, or `None` where `CORQ_TEST_` and `switch` is off.
pub(crate) fn judges_by(kind: &str, switch: &str) -> Option<String> {
    let switch = format!("CORQ_TEST_{switch}");
    if std::env::var(&switch).is_ok_and(|value| value == "off") {
        eprintln!("{switch}=off: {kind} is not tried");
        return None;
    }
    let script = Path::new(crate::ROOT).join("scripts/judges.sh");
    let output = Command::new(script).arg(kind).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/judges.sh {kind} failed:\n{said}");
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn run(command: &mut Command, script: &str, server: &Server) {
    let script = Path::new(crate::ROOT).join(script);
    let output = command.arg(script).arg(server.http.to_string()).arg(TOKEN).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn python_clients_of_sse_and_websocket_work() {
    let Some(python) = judges("python") else { return };
    let server = Start::new().env("AUTH_TOKENS", TOKEN).start();
    run(&mut Command::new(python), "tests/clients/python/streams.py", &server);
}

#[test]
fn node_clients_of_sse_and_websocket_work() {
    let Some(home) = judges("node") else { return };
    let server = Start::new().env("AUTH_TOKENS", TOKEN).start();
    let mut node = Command::new("node");
    node.env("NODE_PATH", format!("{home}/node_modules"));
    run(&mut node, "tests/clients/node/streams.cjs", &server);
}
