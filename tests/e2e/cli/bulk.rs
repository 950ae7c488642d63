//! Many jobs from lines of JSON. The fear: an account of what was pushed that is not true.

use std::fmt::Write;

use serde_json::{Value, json};

use super::tool;
use crate::support::terminal::Terminal;
use crate::{client, queue};

/// A file of these lines, and what keeps it.
fn file(lines: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.jsonl");
    std::fs::write(&path, lines).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

fn numbers(count: u32) -> String {
    (0..count).fold(String::new(), |mut lines, n| {
        writeln!(lines, "{{\"n\":{n}}}").unwrap();
        lines
    })
}

fn waiting(queue: &str) -> u64 {
    client().counted(queue, "waiting")
}

#[test]
fn every_line_becomes_a_job_in_order() {
    let (tool, queue) = (tool(), queue("cli-bulk"));
    let (_dir, path) = file(&numbers(12_345));
    let out = tool.ok(&["push", &queue, "--bulk", &path, "--priority", "4"]);
    assert_eq!(out, format!("pushed 12345 jobs to {queue}\n"));
    assert_eq!(waiting(&queue), 12_345);
    let jobs = client().ok("PULLB", json!({"queue": queue, "count": 1000}))["jobs"].clone();
    for (n, job) in jobs.as_array().unwrap().iter().enumerate() {
        assert_eq!((&job["data"]["n"], &job["priority"]), (&json!(n), &json!(4)));
    }
}

#[test]
fn lines_come_from_standard_input_and_empty_ones_are_none() {
    let (tool, queue) = (tool(), queue("cli-bulk-stdin"));
    let ran = tool.run_with(&["push", &queue, "--bulk", "-"], "1\n\n  \n\"two\"\r\n[3]");
    assert_eq!((ran.code, ran.out), (Some(0), format!("pushed 3 jobs to {queue}\n")));
    let ran = tool.run_with(&["push", &queue, "--bulk", "-"], "");
    assert_eq!((ran.code, ran.out), (Some(0), format!("pushed 0 jobs to {queue}\n")));
    let mut client = client();
    let data: Vec<Value> = (0..3).map(|_| client.pull(&queue)["data"].clone()).collect();
    assert_eq!(data, [json!(1), json!("two"), json!([3])]);
}

#[test]
fn lines_may_be_whole_jobs() {
    let (tool, queue) = (tool(), queue("cli-bulk-jobs"));
    let lines = format!(
        "{{\"data\":1,\"priority\":-1}}\n{{\"data\":{{\"a\":2}},\"customId\":\"{queue}-x\"}}\n"
    );
    let ran = tool.run_with(&["push", &queue, "--bulk", "-", "--jobs"], &lines);
    assert_eq!((ran.code, ran.out), (Some(0), format!("pushed 2 jobs to {queue}\n")));
    let job = client().ok("GetJob", json!({"id": format!("{queue}-x")}))["job"].clone();
    assert_eq!(job["data"], json!({"a": 2}));
    // Options for all would not say which of both counts.
    tool.fails(2, &["push", &queue, "--bulk", "-", "--jobs", "--priority", "1"]);
    tool.fails(2, &["push", &queue, "1", "--jobs"]);
}

#[test]
fn jobs_that_were_there_already_are_told_from_new_ones() {
    let (tool, queue) = (tool(), queue("cli-bulk-known"));
    let job = |n: u32| format!("{{\"data\":{n},\"customId\":\"{queue}-{n}\"}}\n");
    let push = |lines: &str| tool.run_with(&["push", &queue, "--bulk", "-", "--jobs"], lines).out;
    let three: String = (0..3).map(job).collect();
    assert_eq!(push(&three), format!("pushed 3 jobs to {queue}\n"));
    let five: String = (0..5).map(job).collect();
    assert_eq!(push(&five), format!("pushed 2 jobs to {queue}; 3 were there already\n"));
    assert_eq!(push(&job(0)), format!("pushed 0 jobs to {queue}; 1 was there already\n"));
    assert_eq!(waiting(&queue), 5);
    // By a key.
    let keyed = |keys: u32| {
        (0..3000).fold(String::new(), |mut lines, n| {
            writeln!(lines, "{{\"data\":{n},\"uniqueKey\":\"{}\"}}", n % keys).unwrap();
            lines
        })
    };
    let told = |new, known| format!("pushed {new} jobs to {queue}; {known} were there already\n");
    assert_eq!(push(&keyed(2000)), told(2000, 1000));
    assert_eq!(push(&keyed(3000)), told(1000, 2000));
}

#[test]
fn a_batch_tells_how_many_of_its_jobs_were_known_however_long_it_is() {
    let (mut client, queue) = (client(), queue("known"));
    let mut known = |jobs: Vec<Value>| {
        let reply = client.ok("PUSHB", json!({"queue": queue, "jobs": jobs}));
        reply.get("known").cloned()
    };
    let keyed = |keys: u32| {
        (0..4000).map(|n| json!({"data": n, "uniqueKey": format!("{}", n % keys)})).collect()
    };
    assert_eq!(known(keyed(3500)), Some(json!(500)));
    assert_eq!(known(keyed(3500)), Some(json!(4000)));
    let named = |ids: u32| {
        (0..4000).map(|n| json!({"data": n, "customId": format!("{queue}-{}", n % ids)})).collect()
    };
    assert_eq!(known(named(3900)), Some(json!(100)));
    assert_eq!(known(named(4000)), Some(json!(3900)));
    assert_eq!(known(vec![json!({"data": 1}), json!({"data": 2})]), None);
}

#[test]
fn a_reader_that_goes_away_stops_it_and_is_told_what_was_pushed() {
    let (tool, queue) = (tool(), queue("cli-bulk-head"));
    let (_dir, path) = file(&numbers(60_000));
    let mut child = tool.start(&["push", &queue, "--bulk", &path, "--json"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    let told = "corq: stopped, since nothing reads the output any more; pushed ";
    let account = line.trim().strip_prefix(told).unwrap_or_else(|| panic!("{line}"));
    let (pushed, rest) = account.split_once(" jobs, not lines ").unwrap();
    let pushed: u64 = pushed.parse().unwrap();
    assert_eq!(rest, format!("{} and on", pushed + 1));
    assert_eq!(waiting(&queue), pushed);
    assert!(pushed < 60_000, "{line}");
}

#[test]
fn the_raw_answers_are_one_line_for_each_batch() {
    let (tool, queue) = (tool(), queue("cli-bulk-json"));
    let (_dir, path) = file(&numbers(2500));
    let out = tool.ok(&["push", &queue, "--bulk", &path, "--json"]);
    let ids = out.lines().map(|line| {
        let answer: Value = serde_json::from_str(line).unwrap();
        answer["ids"].as_array().unwrap().len()
    });
    assert_eq!(ids.sum::<usize>(), 2500);
}

#[test]
fn a_line_that_is_no_json_is_told_by_its_number() {
    let (tool, queue) = (tool(), queue("cli-bulk-bad"));
    let (_dir, path) = file(&format!("{}{{oops\n{}", numbers(3001), numbers(10)));
    let line = tool.fails(2, &["push", &queue, "--bulk", &path]);
    assert!(line.starts_with("line 3002 is not JSON"), "{line}");
    assert!(line.ends_with("pushed 3001 jobs, not lines 3002 and on"), "{line}");
    assert_eq!(waiting(&queue), 3001);
}

#[test]
fn a_line_that_the_server_refuses_is_told_by_its_number_and_the_rest_by_theirs() {
    let (tool, queue) = (tool(), queue("cli-bulk-refused"));
    let mut lines = String::new();
    for n in 1..=30_000 {
        let priority = if n == 1502 { 1_000_001 } else { 0 };
        writeln!(lines, "{{\"data\":{n},\"priority\":{priority}}}").unwrap();
    }
    let (_dir, path) = file(&lines);
    let line = tool.fails(1, &["push", &queue, "--bulk", &path, "--jobs"]);
    assert!(line.starts_with("line 1502: priority must be between"), "{line}");
    // An option that is wrong for all lines is refused as such.
    let words = ["push", &queue, "--bulk", &path, "--priority", "1000001"];
    let told = tool.fails(1, &words);
    assert!(told.starts_with("line 1: --priority must be between"), "{told}");
    // "...; pushed 9000 jobs, not lines 1001 to 2000, 10001 and on"
    let (_, account) = line.split_once("; pushed ").unwrap();
    let (pushed, rest) = account.split_once(" jobs, not lines 1001 to 2000, ").unwrap();
    let pushed: u64 = pushed.parse().unwrap();
    let unsent: u64 = rest.strip_suffix(" and on").unwrap().parse().unwrap();
    assert_eq!(waiting(&queue), pushed, "{line}");
    assert_eq!(pushed, unsent - 1 - 1000, "{line}");
    assert!(pushed < 29_000, "it went on for long: {line}");
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let line = tool().fails(2, &["push", "q", "--bulk", "/no/such/file"]);
    assert!(line.contains("/no/such/file"), "{line}");
}

#[test]
fn a_person_sees_a_bar_and_a_script_does_not() {
    let (tool, queue) = (tool(), queue("cli-bulk-bar"));
    let (_dir, path) = file(&numbers(20_000));
    let (code, shown) = Terminal::start(tool.command(&["push", &queue, "--bulk", &path])).end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains('%') && shown.contains("pushed 20000 jobs"), "{shown}");
    let ran = tool.run(&["push", &queue, "--bulk", &path, "--json"]);
    assert_eq!(ran.err, "");
}
