//! Prometheus' own tool reads the metrics, and tries the alerts. It comes from `scripts/promtool.sh`, which needs the network
//! once; `CORQ_TEST_PROMTOOL=off` leaves this out where there is none.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::Server;

/// Without the tool nothing is judged here; names and labels are in `tests/interface/watching.rs` anyway.
#[test]
fn every_alert_fires_for_what_it_is_meant_for_and_stays_quiet_otherwise() {
    let root = Path::new(crate::ROOT);
    let output = Command::new(root.join("scripts/promtool.sh")).output().unwrap();
    if std::env::var("CORQ_TEST_PROMTOOL").is_ok_and(|value| value == "off")
        || !output.status.success()
    {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        eprintln!("SKIPPED: promtool cannot be had, so THE ALERTS WERE NOT TRIED: {said}");
        return;
    }
    let promtool = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let tried = Command::new(&promtool)
            .args(words)
            .current_dir(root.join("packaging/prometheus"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&tried.stdout) + String::from_utf8_lossy(&tried.stderr);
        assert!(tried.status.success(), "promtool {}: {said}", words.join(" "));
    }
}

#[test]
fn promtool_has_no_complaint_about_the_metrics() {
    if std::env::var("CORQ_TEST_PROMTOOL").is_ok_and(|value| value == "off") {
        eprintln!("CORQ_TEST_PROMTOOL=off: the metrics are not judged");
        return;
    }
    let script = Path::new(crate::ROOT).join("scripts/promtool.sh");
    let output = Command::new(script).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "scripts/promtool.sh failed:\n{said}");
    let promtool = String::from_utf8_lossy(&output.stdout).trim().to_owned();

    let server = Server::start_default();
    let mut web = server.web();
    for n in 0..20 {
        web.push(&format!("q:{}", n % 5), json!({"data": n}));
    }
    web.pull("q:0");
    let text = web.get("/prometheus");
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&text.body).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = said + &String::from_utf8_lossy(&output.stdout);
    // The style of promtool asks for seconds; the interface names `push_duration_ms`, and its relatives follow it.
    let is_style = |line: &&str| {
        line.contains("_ms ") && line.ends_with("metric names should not contain abbreviated units")
    };
    let complaints: Vec<&str> = said.lines().filter(|line| !is_style(line)).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    // 3 stands for style alone; a text that it cannot read is 1.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {said}", output.status);
}
