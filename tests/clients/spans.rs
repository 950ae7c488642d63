//! Spans, judged by the official OpenTelemetry packages of Python: `tests/clients/python/spans.py`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::python::interpreter;
use crate::support::Start;

#[test]
fn the_packages_of_opentelemetry_read_the_spans_and_their_clients_are_part_of_the_trace() {
    let Some(python) = interpreter() else { return };
    let script = Path::new(crate::ROOT).join("tests/clients/python/spans.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let server = Start::new()
        .env("OTLP_ENDPOINT", format!("http://127.0.0.1:{}", port.trim()))
        .env("OTLP_INTERVAL_MS", 10)
        .start();
    writeln!(stdin, "{}", server.http).unwrap();
    assert!(child.wait().unwrap().success());
}
