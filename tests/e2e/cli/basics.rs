//! Where the server is, what its answers look like, and how the program ends.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{fake, push, tool};
use crate::queue;
use crate::support::tool::{Tool, line_of};
use crate::support::{Start, free_port};

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let tool = Tool::at(free_port());
    for words in [&["ping"][..], &["push", "q", "1"], &["queue", "list"]] {
        let line = tool.fails(1, words);
        assert!(line.contains("cannot reach a server at 127.0.0.1:"), "{line}");
        assert!(line.contains("corq serve") && line.contains("CORQ_PORT"), "{line}");
    }
}

#[test]
fn a_name_that_is_no_host_is_told() {
    let line = Tool::at(1).env("CORQ_HOST", "no.such.host.invalid").fails(1, &["ping"]);
    assert!(line.contains("no.such.host.invalid:1"), "{line}");
}

#[test]
fn the_port_of_http_is_recognised() {
    let line = Tool::at(crate::shared().http).fails(1, &["ping"]);
    assert!(line.contains("TCP_PORT"), "{line}");
}

#[test]
fn a_connection_that_breaks_is_told() {
    let port = fake::listen(drop);
    let line = Tool::at(port).fails(1, &["stats"]);
    assert!(line.contains("lost the server") && line.contains("may or may not be done"), "{line}");
}

#[test]
fn a_silent_server_is_given_up() {
    // The kernel takes the connection; nobody ever reads.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let line = Tool::at(listener.local_addr().unwrap().port()).fails(1, &["stats"]);
    assert!(line.contains("does not answer"), "{line}");
}

#[test]
fn a_long_wait_is_no_silence() {
    let line = tool().fails(1, &["pull", &queue("cli-patient"), "--timeout", "6s"]);
    assert!(line.starts_with("no job came"), "{line}");
}

#[test]
fn a_refusal_names_the_option_and_its_bounds_as_people_type_them() {
    let tool = tool();
    for (words, told) in [
        (
            &["push", "q", "1", "--priority", "1000001"][..],
            "--priority must be between -1000000 and 1000000",
        ),
        (&["push", "q", "1", "--delay", "-5"], "--delay is -5; the shortest is 0"),
        (&["push", "q", "1", "--max-attempts", "0"], "--max-attempts must be between 1 and 1000"),
        (&["push", "q", "1", "--backoff", "2d"], "--backoff is 2d; the longest is 1d"),
        (
            &["push", "q", "1", "--backoff", "2d", "--backoff-type", "fixed"],
            "--backoff is 2d; the longest is 1d",
        ),
        (&["push", "q", "1", "--size-limit", "-1"], "--size-limit must be 0 or more"),
        (&["pull", "q", "--timeout", "2m"], "--timeout is 2m; the longest is 1m"),
        (&["pull", "q", "--lock-ttl", "5d"], "--lock-ttl is 5d; the longest is 1d"),
        (&["pull", "q", "--count", "0"], "--count must be between 1 and 1000"),
        (&["job", "wait", "x", "--timeout", "1h"], "--timeout is 1h; the longest is 10m"),
        (&["job", "progress", "x", "101"], "<PROGRESS> must be between 0 and 100"),
        (&["rate-limit", "set", "q", "0"], "<LIMIT> must be between 1 and 4294967295"),
        (&["rate-limit", "set", "q", "1", "--per", "2d"], "--per is 2d; the longest is 1d"),
        (&["queue", "stalls", "q", "--interval", "2d"], "--interval is 2d; the longest is 1d"),
        (&["cron", "add", "n", "q", "1"], "give --schedule or --every"),
        (
            &["cron", "add", "n", "q", "--schedule", "@daily", "--timezone", "Berlin"],
            "unknown time zone 'Berlin': did you mean Europe/Berlin?",
        ),
    ] {
        assert_eq!(tool.fails(1, words), told, "{words:?}");
    }
    let line = tool.fails(1, &["push", "bad name", "1"]);
    assert!(line.starts_with("<QUEUE> must be 1 to 256 characters"), "{line}");
    assert_eq!(tool.fails(1, &["job", "get", "nobody"]), "Job not found");
    // The raw answer keeps the words of the protocol.
    let ran = tool.run(&["push", "q", "1", "--delay", "-5", "--json"]);
    assert!(ran.out.contains("delay must be between 0 and 31536000000"), "{ran:?}");
}

#[test]
fn a_refusal_under_json_is_the_raw_answer_and_the_line() {
    let ran = tool().run(&["job", "get", "nobody", "--json"]);
    assert_eq!(ran.code, Some(1));
    let answer: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer, json!({"ok": false, "error": "Job not found", "code": "not_found"}));
    assert_eq!(line_of(&ran.err), "Job not found");
}

#[test]
fn a_wrong_command_line_is_one_line_and_the_code_is_two() {
    for (words, names) in [
        (&["quue"][..], "queue"),
        (&["queue"], "obliterate"),
        (&["queue", "drian", "q"], "drain"),
        (&["push"], "<QUEUE>"),
        (&["stats", "--port", "many"], "many"),
        (&["push", "q", "1", "--delay", "soon"], "soon"),
        (&["job", "priority", "x", "high"], "high"),
        (&["webhook", "add", "http://x"], "--events"),
        (&["push", "q", "1", "--repeat-limit", "3"], "--repeat-every"),
        (&["--json", "serve"], "serve"),
        (&["--host", "127.0.0.1"], "no command"),
        (&["--json"], "no command"),
        (&["events", "--type", "bogus"], "stalled"),
        (&["push", "q", "1", "--on-failure", "cry"], "fail-parent"),
        (&["completions", "cmd.exe"], "bash"),
        (&["audit", "--limit", "1.5"], "--limit <LIMIT>: '1.5' is no whole number"),
        (&["rate-limit", "set", "q", "1.5"], "'1.5' is no whole number"),
    ] {
        let line = Tool::at(1).fails(2, words);
        assert!(line.contains(names), "{words:?}: {line}");
    }
}

#[test]
fn without_a_command_it_is_the_server() {
    for words in [&["--shards", "0"][..], &["serve", "--shards", "0"]] {
        let line = Tool::at(1).fails(2, words);
        assert!(line.contains("--shards") && line.contains('0'), "{line}");
    }
}

#[test]
fn help_and_version_are_answers() {
    let tool = Tool::at(1);
    assert!(tool.ok(&["--version"]).starts_with("corq "));
    let help = tool.ok(&["--help"]);
    for command in ["serve", "push", "pull", "job", "queue", "dlq", "cron", "worker", "webhook"]
        .iter()
        .chain(&["rate-limit", "concurrency", "stats", "metrics", "health", "ping", "doctor"])
        .chain(&["completions", "top", "events", "ack", "fail", "CORQ_HOST", "CORQ_TOKEN"])
    {
        assert!(help.contains(command), "{command}");
    }
    assert!(tool.ok(&["queue", "clean", "--help"]).contains("--yes"));
    assert!(tool.ok(&["serve", "--help"]).contains("--fsync-interval-ms"));
}

#[test]
fn the_server_can_be_named_before_or_behind_the_command() {
    let port = crate::shared().tcp.to_string();
    let tool = Tool::at(1).env("CORQ_HOST", "no.such.host.invalid");
    let at = ["--host", "127.0.0.1", "--port", &port];
    tool.ok(&[&at[..], &["queue", "list"]].concat());
    tool.ok(&[&["queue", "list"], &at[..]].concat());
    tool.ok(&["--host=127.0.0.1", "queue", &format!("--port={port}"), "list"]);
}

#[test]
fn the_port_of_http_can_be_named_before_or_behind_the_command() {
    let port = crate::shared().http.to_string();
    let tool = Tool::at(1).env("CORQ_HTTP_PORT", 1);
    tool.ok(&["--http-port", &port, "health"]);
    tool.ok(&["health", "--http-port", &port]);
    // Whatever asks nothing over HTTP takes it as well.
    let tool = Tool::of(crate::shared());
    tool.ok(&["--http-port", "1", "ping"]);
    tool.ok(&["ping", "--http-socket", "/nowhere"]);
    let line = tool.fails(1, &["--http-socket", "/nowhere", "health"]);
    assert!(line.contains("/nowhere"), "{line}");
}

#[test]
fn a_guarded_server_wants_its_token() {
    let server = Start::new().memory().env("AUTH_TOKENS", "first,second").start();
    let tool = Tool::of(&server);
    let line = tool.fails(1, &["stats"]);
    assert!(line.starts_with("Not authenticated: set CORQ_TOKEN"), "{line}");
    let line = tool.fails(1, &["stats", "--token", "third"]);
    assert!(line.starts_with("Invalid token: set CORQ_TOKEN"), "{line}");
    tool.ok(&["stats", "--token", "second"]);
    tool.ok(&["--token", "first", "stats"]);
    let tool = Tool::of(&server).env("CORQ_TOKEN", "first");
    tool.ok(&["push", "q", "1"]);
    // An empty token is none.
    assert!(tool.fails(1, &["stats", "--token", ""]).starts_with("Not authenticated"));
    let help = tool.ok(&["stats", "--help"]);
    assert!(!help.contains("first"), "the token of the environment is shown: {help}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let (tool, queue) = (tool(), queue("cli-pipe"));
    // More than a pipe holds.
    for n in 0..4 {
        push(&tool, &queue, &format!("\"{}\"", format!("{n}").repeat(100_000)));
    }
    let said = "corq: the answer was cut: nothing reads the output any more\n";
    // Output that programs keep must not look whole.
    for (line, code, error) in
        [(["queue", "jobs", &queue], 0, ""), (["export", "--queue", &queue], 1, said)]
    {
        let mut child = tool.start(&line);
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 2]).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{line:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), error);
    }
}

#[test]
fn completions_are_generated_for_every_shell() {
    let tool = Tool::at(1);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = tool.ok(&["completions", shell]);
        for word in ["obliterate", "rate-limit", "--lock-token", "--host"] {
            let word = if shell == "fish" { word.trim_start_matches('-') } else { word };
            assert!(script.contains(word), "{word} in {shell}");
        }
    }
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let tool = Tool::at(1);
    assert!(tool.ok(&["man"]).contains(".TH corq 1"));
    assert_eq!(tool.ok(&["man", dir.path().to_str().unwrap()]), "");
    for page in ["corq.1", "corq-serve.1", "corq-queue-drain.1", "corq-webhook-add.1"] {
        let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
        let (_, examples) =
            text.split_once(".SH EXAMPLES\n.nf\n").unwrap_or_else(|| panic!("{page}"));
        assert!(examples.starts_with("  corq "), "{examples}");
    }
    assert!(!dir.path().join("corq-man.1").exists());
}

#[test]
fn bash_completes_the_names_of_queues() {
    let prefix = queue("cli-complete");
    let (tool, first, second) = (tool(), format!("{prefix}:a"), format!("{prefix}:b"));
    push(&tool, &first, "1");
    push(&tool, &second, "1");
    let script = tool.ok(&["completions", "bash"]);
    let completed = |line: &str| {
        let ask = format!(
            "{script}\ncorq() {{ \"$CORQ\" \"$@\"; }}\nCOMP_LINE='{line}' COMP_POINT={} \
             COMP_WORDS=(corq) COMP_CWORD=0\n_corq_or_queues corq '' ''\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            line.len()
        );
        let program = tool.command::<&str>(&[]);
        let mut bash = Command::new("bash");
        bash.env_clear().env("CORQ", program.get_program());
        bash.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        bash.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bash = bash.spawn().expect("this machine has bash");
        bash.stdin.take().unwrap().write_all(ask.as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(completed(&format!("corq push {prefix}")), format!("{first}\n{second}\n"));
    // Bash takes what stands behind a colon for the word.
    assert_eq!(completed(&format!("corq queue pause {prefix}:")), "a\nb\n");
    assert_eq!(completed(&format!("corq search x --queue {first}")), "a\n");
    let listed = tool.ok(&["complete", "2", "--", "corq", "push", &first]);
    assert_eq!(listed, format!("{first}\n"));
    // Where no queue is wanted, and where no server is, nothing is said.
    assert_eq!(tool.ok(&["complete", "3", "--", "corq", "job", "get", &prefix]), "");
    assert_eq!(Tool::at(free_port()).ok(&["complete", "2", "--", "corq", "push", ""]), "");
    let named =
        ["complete", "4", "--", "corq", "--port", &crate::shared().tcp.to_string(), "push", &first];
    assert_eq!(Tool::at(1).ok(&named), format!("{first}\n"));
}

#[test]
fn a_number_that_is_none_is_told_by_the_option_and_the_text() {
    for (words, told) in [
        (&["push", "q", "1", "--priority", "1.5"][..], "--priority <N>: '1.5' is no whole number"),
        (&["search", "x", "--limit", "-5"], "--limit <N>: '-5' is no whole number"),
        (&["concurrency", "set", "q", "2x"], "<LIMIT>: '2x' is no whole number"),
    ] {
        assert_eq!(Tool::at(1).fails(2, words), told);
    }
}

#[test]
fn half_an_answer_is_an_error_to_a_program() {
    let (tool, queue) = (tool(), queue("cli-cut"));
    for n in 0..4 {
        push(&tool, &queue, &format!("\"{}\"", format!("{n}").repeat(100_000)));
    }
    let mut child = tool.start(&["queue", "jobs", &queue, "--json"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let line = line_of(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.starts_with("the answer was cut"), "{line}");
}
