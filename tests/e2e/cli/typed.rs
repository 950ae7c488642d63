//! Options and variables of commands. The fear: a command that empties another server than the one that was named, a service
//! of Kubernetes or an empty variable that keeps everything from running, a text that is taken for an option.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use super::{names, push, tool};
use crate::support::tool::Tool;
use crate::support::{Server, Start, free_port};
use crate::{client, queue, shared};

/// By which Kubernetes announces a service called corq.
const LINK: &str = "tcp://10.0.0.1:6789";

/// The options and variables of commands.
const VARIABLES: [&str; 10] = [
    "CORQ_HOST",
    "CORQ_PORT",
    "CORQ_SOCKET",
    "CORQ_HTTP_PORT",
    "CORQ_HTTP_SOCKET",
    "CORQ_TLS",
    "CORQ_TLS_CA",
    "CORQ_TLS_CERT",
    "CORQ_TLS_KEY",
    "CORQ_TOKEN",
];

fn bare() -> Tool {
    Tool::at(1).env("CORQ_PORT", "")
}

#[test]
fn a_server_that_is_named_by_hand_is_meant_whatever_variables_say() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("a.sock");
    let other = Start::new().env("TCP_SOCKET_PATH", socket.display()).start();
    let mut kept = other.client();
    kept.push("q", 1);
    let (tool, queue) = (bare().env("CORQ_SOCKET", socket.display()), queue("cli-by-hand"));
    client().push(&queue, 1);
    let port = shared().tcp.to_string();
    let drain = ["queue", "drain", &queue, "--yes", "--host", "127.0.0.1", "--port", &port];
    assert_eq!(tool.ok(&drain), "removed 1 job\n");
    assert_eq!(client().counted(&queue, "waiting"), 0);
    assert_eq!(kept.counted("q", "waiting"), 1);
    // Without either of them the variable counts.
    assert_eq!(tool.ok(&["queue", "drain", "q", "--yes"]), "removed 1 job\n");
    // Likewise over HTTP.
    let tool = Tool::of(shared()).env("CORQ_HTTP_SOCKET", "/nowhere");
    tool.ok(&["health", "--http-port", &shared().http.to_string()]);
    tool.ok(&["health", "--host", "127.0.0.1"]);
    assert!(tool.fails(1, &["health"]).contains("/nowhere"));
    // And for settings of a server: where its data lies is said twice here.
    let shown = |tool: Tool, words: &[&str]| {
        tool.json(&[&["config", "show"], words].concat())["settings"].clone()
    };
    let value = |settings: &Value, name: &str| {
        let found = settings.as_array().unwrap().iter().find(|it| it["name"] == name).cloned();
        found.unwrap()["value"].clone()
    };
    let both = shown(Tool::at(1).env("DATA_PATH", "/d"), &[]);
    assert_eq!((value(&both, "MEMORY"), value(&both, "DATA_PATH")), (json!("false"), json!("/d")));
    let server = Start::new().memory().env("CORQ_DATA_PATH", "/proc/none").start();
    Tool::of(&server).ok(&["ping"]);
}

#[test]
fn two_places_that_are_given_at_once_are_refused() {
    let queue = queue("cli-two-places");
    client().push(&queue, 1);
    let (tcp, http) = (shared().tcp.to_string(), shared().http.to_string());
    for words in [
        &["--socket", "/a", "queue", "drain", &queue, "--yes", "--port", &tcp][..],
        &["queue", "drain", &queue, "--yes", "--host", "127.0.0.1", "--socket", "/a"],
        &["health", "--http-socket", "/a", "--http-port", &http],
        &["health", "--http-socket", "/a", "--host", "127.0.0.1"],
    ] {
        let line = tool().fails(2, words);
        assert!(line.contains("socket and --") && line.contains("give one of them"), "{line}");
    }
    assert_eq!(client().counted(&queue, "waiting"), 1);
}

#[test]
fn a_variable_of_nothing_or_of_blanks_is_as_unset_for_every_command() {
    let server = Start::new().start();
    for nothing in ["", " ", "\t"] {
        for variable in VARIABLES {
            let tool = Tool::of(&server).env(variable, nothing);
            let (tcp, http) = (server.tcp.to_string(), server.http.to_string());
            // The ports of the test are variables, too.
            tool.ok(&["--port", &tcp, "ping"]);
            tool.ok(&["--http-port", &http, "health"]);
            tool.ok(&["completions", "bash"]);
        }
        for variable in ["COMPLETED_MAX", "CORQ_COMPLETED_MAX"] {
            let tool = Tool::at(1).env(variable, nothing);
            tool.ok(&["log", "stat", server.data.to_str().unwrap()]);
        }
    }
    // Blanks around a value do not count either, as files of variables leave them there.
    let tool = Tool::at(1).env("CORQ_PORT", format!(" {}\r", server.tcp));
    tool.env("CORQ_HOST", "127.0.0.1 ").ok(&["ping"]);
    let tool = Tool::at(1).env("COMPLETED_MAX", "many");
    let line = tool.fails(2, &["log", "stat", server.data.to_str().unwrap()]);
    assert!(line.starts_with("COMPLETED_MAX=many: "), "{line}");
}

#[test]
fn the_variable_of_a_port_is_read_only_where_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("tcp.sock");
    let server = Start::new().env("TCP_SOCKET_PATH", socket.display()).start();
    let (tcp, http) = (server.tcp.to_string(), server.http.to_string());
    let (socket, data) = (socket.to_str().unwrap(), server.data.to_str().unwrap());
    for value in [LINK, "many", "65536"] {
        let tool = bare().env("CORQ_PORT", value).env("CORQ_HTTP_PORT", value);
        tool.ok(&["ping", "--port", &tcp]);
        tool.ok(&["--socket", socket, "ping"]);
        tool.ok(&["health", "--http-port", &http]);
        tool.ok(&["log", "verify", data]);
        tool.ok(&["size", "--jobs", "1000", "--payload", "100", "--rate", "10"]);
        tool.ok(&["completions", "bash"]);
        tool.ok(&["queue", "--help"]);
        assert_eq!(tool.ok(&["complete", "2", "--", "corq", "push", ""]), "");
        let tool = bare().env("CORQ_PORT", value).env("CORQ_HTTP_PORT", &http);
        tool.ok(&["health"]);
    }
    // Where it counts, the cause is named.
    for variable in ["CORQ_PORT", "CORQ_HTTP_PORT"] {
        let words = if variable == "CORQ_PORT" { ["ping"] } else { ["health"] };
        let ran = bare().env(variable, LINK).env("CORQ_HOST", "no.such.host.invalid").run(&words);
        let told = format!("warning: {variable}={LINK} is how Kubernetes announces a service");
        assert!(ran.code == Some(1) && ran.err.contains(&told), "{ran:?}");
        let line = bare().env(variable, "many").fails(2, &words);
        assert!(line.starts_with(&format!("{variable}=many: it must be between")), "{line}");
    }
}

/// All settings as a server would start with them.
fn settings(tool: &Tool) -> Vec<Value> {
    tool.json(&["config", "show"])["settings"].as_array().unwrap().clone()
}

#[test]
fn every_setting_of_nothing_or_of_blanks_is_as_unset_and_a_blank_behind_a_value_does_not_count() {
    let defaults = settings(&bare());
    let names: Vec<&str> = defaults.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.len() > 50);
    for nothing in ["", "  ", "\t"] {
        let blank = names.iter().fold(bare(), |tool, name| {
            let tool = tool.env(&format!("CORQ_{name}"), nothing);
            // The plain name would be taken for the size of a memory.
            if *name == "MEMORY" { tool } else { tool.env(name, nothing) }
        });
        let blank = blank.env("BUNQUEUE_DATA_PATH", nothing).env("CORQ_CONFIG", nothing);
        assert_eq!(settings(&blank), defaults);
    }
    for setting in &defaults {
        let (name, Some(value)) = (setting["name"].as_str().unwrap(), setting["value"].as_str())
        else {
            continue;
        };
        let given = settings(&bare().env(&format!("CORQ_{name}"), format!(" {value} \r")));
        let given = given.iter().find(|it| it["name"] == name).unwrap();
        assert_eq!((&given["value"], &given["source"]), (&json!(value), &json!("environment")));
    }
}

#[test]
fn a_start_with_settings_of_nothing_is_a_start_without_them_and_leaves_nothing_where_it_runs() {
    let start = ["SHARDS", "CORQ_SHARDS", "LOG_LEVEL", "AUTH_TOKENS", "TLS_CERT_FILE", "UI_PATH"];
    let start = start.iter().fold(Start::new(), |start, name| start.env(name, " "));
    let server = start.env("BUNQUEUE_DATA_PATH", "").start();
    Tool::of(&server).ok(&["ping"]);
    // No directory is named, so the default one is looked for; nothing is locked or made where the command runs.
    let dir = tempfile::tempdir().unwrap();
    for variable in ["BUNQUEUE_DATA_PATH", "DATA_PATH", "CORQ_DATA_PATH"] {
        let tool = Tool::at(free_port()).env(variable, " ");
        for words in [&["backup", "to"][..], &["doctor", "--no-server"]] {
            let mut command = tool.command(words);
            command.current_dir(dir.path()).output().unwrap();
            assert_eq!(names(dir.path()), [""; 0], "{variable} {words:?}");
        }
    }
    let ran = Tool::at(1).env("CORQ_LOG_FORMAT", "").env("LOG_FORMAT", "json");
    let ran = ran.run(&["serve", "--shards", "0"]);
    assert!(ran.code == Some(2) && ran.err.starts_with('{'), "{ran:?}");
}

/// Texts that look like something else.
const ODD: [&str; 10] = [
    "-1: no such file",
    "- step",
    "-abc",
    "-y",
    "--json",
    "--- a/file",
    "a:b:c",
    "100%s",
    "\u{1f980} \u{10ffff}",
    "-",
];

/// The words of a line, of which `TEXT` stands for a text of any form.
fn line<'a>(line: &'a str, text: &'a str) -> Vec<&'a str> {
    line.split(' ').map(|word| if word == "TEXT" { text } else { word }).collect()
}

#[test]
fn every_text_of_a_push_is_taken_as_it_is() {
    let (tool, prefix) = (tool(), queue("cli-odd-push"));
    for (n, text) in ODD.into_iter().enumerate() {
        let queue = format!("{prefix}-{n}");
        let options = "--name TEXT --tag TEXT --unique-key TEXT --group-id TEXT";
        let words = [&["push", &queue, "\"needle\""][..], &line(options, text)].concat();
        let id = tool.ok(&words).trim().to_owned();
        let job = client().ok("GetJob", json!({"id": id}))["job"].clone();
        let told = ["name", "uniqueKey", "groupId"].map(|field| job[field].clone());
        assert_eq!(told, [json!(text), json!(text), json!(text)], "{job}");
        assert_eq!(job["tags"], json!([text]));
        let found =
            tool.ok(&["search", "needle", "--queue", &queue, "--tag", text, "--name", text]);
        assert!(found.contains(&id), "{text}: {found}");
        let found = tool.ok(&["group", "list", &queue, "--after", text]);
        assert_eq!(found, "no groups\n");
    }
}

#[test]
fn an_id_of_any_form_is_pushed_and_found_again() {
    let tool = tool();
    // With two dashes it is an option, unless two alone stand before it.
    for text in ["-abc", "- step", "-1: x", "a:b", "100%s"] {
        let id = format!("{text} {}", queue("cli-odd-id"));
        assert_eq!(
            tool.ok(&["push", "cli-odd-id", "1", "--job-id", &id]),
            tool.ok(&["push", "cli-odd-id", "1", "--job-id", &id])
        );
        assert_eq!(tool.ok(&["job", "state", &id]), "waiting\n");
        assert!(tool.ok(&["job", "get", &id]).contains("cli-odd-id"));
        assert_eq!(tool.ok(&["job", "state", "--", &format!("--{id}")]), "unknown\n");
        tool.ok(&["job", "cancel", &id, "--yes"]);
    }
    // A misspelt option is still refused with the one that is meant.
    let line = tool.fails(2, &["job", "get", "--jsn", "x"]);
    assert!(line.contains("--json"), "{line}");
    let line = tool.fails(2, &["push", "q", "1", "-p", "5"]);
    assert!(line.contains("-p"), "{line}");
}

#[test]
fn every_text_of_a_worker_is_taken_as_it_is() {
    let (tool, queue) = (tool(), queue("cli-odd-work"));
    for text in ODD {
        let id = push(&tool, &queue, "1");
        let pulled = tool.json(&["pull", &queue, "--owner", text]);
        let token = pulled["token"].as_str().unwrap();
        tool.ok(&["job", "progress", &id, "50", "--message", text]);
        // Behind two dashes alone nothing is an option; some of these texts are options otherwise.
        match text {
            "-y" | "--json" => tool.ok(&["job", "log", &id, "--", text]),
            text => tool.ok(&["job", "log", &id, text]),
        };
        let error = ["fail", &id, "--error", text, "--unrecoverable", "--lock-token", token];
        tool.ok(&error);
        let mut client = client();
        let logs = client.ok("GetLogs", json!({"id": id}))["data"]["logs"].clone();
        let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
        assert_eq!((&logs[0]["message"], &job["failedReason"]), (&json!(text), &json!(text)));
        tool.ok(&["dlq", "purge", &queue, "--yes"]);
    }
}

/// Guards that a report is not refused for a text that is none.
#[test]
fn a_report_that_is_no_text_is_taken_with_marks_in_place_of_what_is_none() {
    let (tool, queue) = (tool(), queue("cli-odd-bytes"));
    let id = push(&tool, &queue, "1");
    let token = tool.json(&["pull", &queue])["token"].as_str().unwrap().to_owned();
    let odd = OsStr::from_bytes(b"half \xff");
    let run = |words: &[&str], text: &OsStr| {
        let words: Vec<OsString> = words.iter().map(OsString::from).chain([text.into()]).collect();
        tool.ok(&words);
    };
    run(&["job", "progress", &id, "1", "--message"], odd);
    run(&["job", "log", &id], odd);
    run(&["fail", &id, "--lock-token", &token, "--unrecoverable", "--error"], odd);
    let mut client = client();
    let logs = client.ok("GetLogs", json!({"id": id}))["data"]["logs"].clone();
    let job = client.ok("GetJob", json!({"id": id}))["job"].clone();
    let marked = json!("half \u{fffd}");
    assert_eq!((&logs[0]["message"], &job["failedReason"]), (&marked, &marked));
    let id = push(&tool, &queue, "1");
    let token = tool.json(&["pull", &queue])["token"].as_str().unwrap().to_owned();
    run(
        &["ack", &id, "--lock-token", &token, "--result"],
        OsStr::from_bytes(b"[\"half \xff\", NaN]"),
    );
    assert_eq!(client.ok("GetResult", json!({"id": id}))["result"], json!([marked, null]));
}

#[test]
fn every_other_text_of_the_command_line_is_taken_as_it_is() {
    let server: Server = Start::new().memory().env("AUTH_TOKENS", "-abc,--json").start();
    for token in ["-abc", "--json"] {
        let tool = Tool::of(&server);
        tool.ok(&["ping", "--token", token]);
        tool.ok(&["--token", token, "ping"]);
        tool.env("CORQ_TOKEN", token).ok(&["ping"]);
    }
    // A token of the server itself may begin so as well.
    let dir = tempfile::tempdir().unwrap();
    let (status, said) = Start::new()
        .argument("--auth-tokens")
        .argument("-abc")
        .argument("--shards")
        .argument("0")
        .run_to_its_end(&dir.path().join("d"));
    assert!(!status.success() && said.contains("shards") && !said.contains("-abc"), "{said}");
    let tool = Tool::of(&server).env("CORQ_TOKEN", "-abc");
    let mut client = server.client();
    client.ok("Auth", json!({"token": "-abc"}));
    for (n, text) in ODD.into_iter().enumerate() {
        let name = format!("c-{n}");
        let add = ["cron", "add", &name, "q", "1", "--every", "1h", "--job-name", text];
        tool.ok(&add);
        let crons = client.ok("CronList", json!({}))["crons"].clone();
        let crons = crons.as_array().unwrap();
        assert!(crons.iter().any(|it| it["name"] == *name && it["jobName"] == text), "{crons:?}");
        let url = format!("http://hooks.example.com/{n}");
        tool.ok(&["webhook", "add", &url, "--events", "job.failed", "--secret", text]);
        let out = tool.ok(&["job", "bulk", "remove", "--queue", "q", "--text", text, "--dry-run"]);
        assert!(out.starts_with("would remove: 0 jobs"), "{out}");
        let out = tool.ok(&["search", "--", text]);
        assert!(out.starts_with("no such jobs"), "{out}");
    }
    assert!(tool.ok(&["search", "- step"]).starts_with("no such jobs"));
    for name in ["-abc", "- x"] {
        tool.ok(&["cron", "add", name, "q", "1", "--every", "1h"]);
        assert_eq!(tool.ok(&["cron", "remove", name]), format!("removed {name}\n"));
        tool.ok(&["group", "pause", "q", name]);
    }
    tool.ok(&["queue", "counts", "-q"]);
}
