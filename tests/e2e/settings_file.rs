//! The settings file, and variables of other programs. The fear: a server that starts with another setting than its operator
//! has written, or that a mistake in the file takes down.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::tool::Tool;
use crate::support::{Client, Http, Server, Start, until};

struct File {
    _dir: TempDir,
    path: PathBuf,
}

impl File {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corq.toml");
        fs::write(&path, text).unwrap();
        Self { _dir: dir, path }
    }

    fn write(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }

    fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn start(&self) -> Start {
        Start::new().argument("--config").argument(&self.shown())
    }
}

fn setting(all: &[Value], name: &str) -> Value {
    all.iter().find(|it| it["name"] == name).unwrap().clone()
}

fn says(server: &Server, line: &str) {
    until(line, || server.output().contains(line).then_some(()));
}

#[test]
fn flags_come_before_variables_before_the_file_before_defaults_and_show_says_so() {
    let file =
        File::new("completed_max = 2\nsegment_mb = 32\nshards = 1\nauth_tokens = \"s3cret\"\n");
    let path = file.shown();
    let tool = Tool::at(1).env("CORQ_SHARDS", 2).env("SHARDS", 3);
    let ran = tool.run(&["config", "show", "--config", &path, "--json"]);
    assert!(
        ran.err.contains("warning: CORQ_SHARDS and SHARDS are both set and differ"),
        "{}",
        ran.err
    );
    let all: Value = serde_json::from_str(&ran.out).unwrap();
    let all = all["settings"].as_array().unwrap().clone();
    let shards = setting(&all, "SHARDS");
    assert_eq!((&shards["value"], &shards["source"]), (&json!("2"), &json!("environment")));
    assert_eq!((&shards["place"], &shards["live"]), (&json!("CORQ_SHARDS"), &json!(false)));
    let kept = setting(&all, "COMPLETED_MAX");
    assert_eq!((&kept["value"], &kept["source"]), (&json!("2"), &json!("file")));
    assert_eq!((&kept["place"], &kept["default"]), (&json!(format!("{path}:1")), &json!("50000")));
    let tokens = setting(&all, "AUTH_TOKENS");
    assert_eq!((&tokens["value"], &tokens["live"]), (&json!("(hidden)"), &json!(true)));
    let window = setting(&all, "RATE_LIMIT_WINDOW_MS");
    assert_eq!((&window["source"], &window["unit"]), (&json!("default"), &json!("ms")));
    let table = Tool::at(1).ok(&["config", "show", "--config", &path]);
    assert!(table.contains(&format!("{path}:1")) && !table.contains("s3cret"), "{table}");
    // A server does as it shows.
    file.write("completed_max = 2\nhttp_port = 1\n");
    let server = file.start().argument("--completed-max").argument("1").start();
    let mut client = server.client();
    for n in 0..2 {
        client.push("q", n);
        let id = client.pull("q")["id"].clone();
        client.ok("ACK", json!({"id": id}));
    }
    until("the retention of the flag", || (client.counted("q", "completed") == 1).then_some(()));
}

#[test]
fn a_file_with_mistakes_stops_the_start_with_a_line_for_each_and_check_finds_the_same() {
    let file = File::new("tcp_prot = 1\nshards = 0\nlog_level = \"loud\"\ndurability = true\n");
    let dir = tempfile::tempdir().unwrap();
    let (status, output) = file.start().run_to_its_end(&dir.path().join("d"));
    assert_eq!(status.code(), Some(2), "{output}");
    let path = file.shown();
    let lines = [
        format!("{path}:1: tcp_prot is no setting; tcp_port is one"),
        format!("{path}:2: shards = 0: it must be between 1 and 1024"),
        format!("{path}:3: log_level = loud: it must be one of error, warn, info, debug"),
        format!("{path}:4: durability must be a text in quotes, and is true or false"),
    ];
    let said: Vec<String> = lines.iter().map(|line| format!("corq: {line}")).collect();
    assert_eq!(output.lines().collect::<Vec<_>>(), said);
    let ran = Tool::at(1).run(&["config", "check", &path]);
    assert_eq!(
        (ran.code, ran.out.lines().collect::<Vec<_>>()),
        (Some(1), lines.iter().map(|it| &**it).collect())
    );
    assert!(ran.err.contains("4 things are wrong"), "{}", ran.err);
    let ran = Tool::at(1).run(&["config", "check", &path, "--json"]);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &found["findings"]), (Some(1), &json!(lines)));
    file.write("shards = 2\ndata_max_mb = 639\n");
    let ran = Tool::at(1).run(&["config", "check", &path]);
    let least = "DATA_MAX_MB: 639 is too little for 2 shards with files of 64 MB: it must be at least 640\n";
    assert_eq!(ran.out, least);
    file.write("shards = 4\nclient_memory_mb = 255\n");
    let ran = Tool::at(1).run(&["config", "check", &path]);
    let least = "CLIENT_MEMORY_MB: 255 is too little for 4 shards: it must be at least 256\n";
    assert_eq!(ran.out, least);
    file.write("auth_tokens = \"one,read(s3cret\"\n");
    let ran = Tool::at(1).run(&["config", "check", &path]);
    assert!(
        ran.out.starts_with("AUTH_TOKENS: entry 2: ") && !ran.out.contains("cret"),
        "{}",
        ran.out
    );
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/corq.toml");
    assert!(Tool::at(1).ok(&["config", "check", shipped]).contains("nothing is wrong"));
}

/// Each key of the shipped file that is a comment is a setting with a value that it may have.
#[test]
fn the_shipped_file_has_no_key_that_is_no_setting() {
    let shipped = include_str!("../../packaging/corq.toml");
    let all: String = shipped
        .lines()
        .map(|line| line.strip_prefix('#').filter(|it| !it.starts_with(' ')).unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    let file = File::new(&all);
    assert!(Tool::at(1).ok(&["config", "check", &file.shown()]).contains("nothing is wrong"));
    assert!(all.matches(" = ").count() > 15, "{all}");
}

#[test]
fn sighup_changes_what_may_change_names_what_waits_for_a_restart_and_a_mistake_changes_nothing() {
    let file = File::new("auth_tokens = \"one\"\nlog_level = \"info\"\n");
    let server = file.start().start();
    let works = |token: &str| {
        let answer = Http::connect(server.http).with_token(token).get("/stats");
        answer.status == 200
    };
    assert!(works("one") && !works("two"));
    let open = format!("WARN every user of this machine can read the tokens in {}", file.shown());
    assert!(server.output().contains(&open), "{}", server.output());
    file.write(
        "auth_tokens = [\"two\"]\nsegment_mb = 32\ncompleted_max = 7\nui_path = \"/dash\"\n\
         rate_limit_max_requests = 1000\n",
    );
    server.signal(Signal::HUP);
    for line in [
        "the settings were read again: AUTH_TOKENS (hidden)",
        "the settings were read again: UI_PATH /ui -> /dash",
        "the settings were read again: RATE_LIMIT_MAX_REQUESTS Infinity -> 1000",
        "the settings were read again: COMPLETED_MAX 50000 -> 7 needs a restart",
    ] {
        says(&server, line);
    }
    // The variable of the test comes before the file.
    assert!(!server.output().contains("SEGMENT_MB"), "{}", server.output());
    until("the new token to count", || works("two").then_some(()));
    until("the old one to count no longer", || (!works("one")).then_some(()));
    until("the page to move", || {
        (Http::connect(server.http).get("/dash/").status == 200).then_some(())
    });
    file.write("auth_tokens = \"three\"\nshards = \"x\"\ntcp_prot = 1\n");
    server.signal(Signal::HUP);
    says(&server, "the settings stay as they were: ");
    says(&server, ":3: tcp_prot is no setting; tcp_port is one");
    assert!(works("two") && !works("three"));
    file.write("auth_tokens = \"read(\"\n");
    server.signal(Signal::HUP);
    says(&server, "the settings stay as they were: AUTH_TOKENS: entry 1: ");
    // Whether there are tokens at all is settled at the start.
    file.write("log_level = \"warn\"\n");
    server.signal(Signal::HUP);
    says(&server, "AUTH_TOKENS (hidden) needs a restart");
    assert!(works("two") && !works("three"));
    let before = server.output().len();
    server.signal(Signal::HUP);
    until("a warning", || server.output()[before..].contains("needs a restart").then_some(()));
    assert!(!server.output()[before..].contains("INFO"), "{}", &server.output()[before..]);
}

#[test]
fn variables_of_kubernetes_and_of_conda_are_passed_over_and_the_log_says_so() {
    let start = Start::new()
        .env("CORQ_TCP_PORT", "tcp://10.0.0.1:6789")
        .env("CORQ_HTTP_PORT", "tcp://10.0.0.1:6790")
        .env("CORQ_PORT", "tcp://10.0.0.1:6789")
        .env("HOST", "x86_64-conda-linux-gnu")
        .env("CORQ_COMPLETED_MAX", 3)
        .env("COMPLETED_MAX", 4);
    let server = start.start();
    for line in [
        "WARN CORQ_TCP_PORT=tcp://10.0.0.1:6789 is how Kubernetes announces a service",
        "WARN CORQ_HTTP_PORT=tcp://10.0.0.1:6790 is how Kubernetes announces a service",
        "WARN HOST=x86_64-conda-linux-gnu is a platform",
        "WARN CORQ_COMPLETED_MAX and COMPLETED_MAX are both set and differ: CORQ_COMPLETED_MAX counts",
    ] {
        assert!(server.output().contains(line), "{line}: {}", server.output());
    }
    let tool = Tool::at(server.tcp).env("CORQ_PORT", "tcp://10.0.0.1:6789");
    let port = server.tcp.to_string();
    tool.ok(&["--port", &port, "ping"]);
    let ran = tool.run(&["ping"]);
    let told = "CORQ_PORT=tcp://10.0.0.1:6789 is how Kubernetes announces a service";
    assert!(ran.err.contains(told), "{}", ran.err);
}

#[test]
fn localhost_is_heard_at_both_families_as_far_as_the_machine_has_them() {
    let server = Start::new().env("HOST", "localhost").start();
    let has_six = std::net::TcpListener::bind("[::1]:0").is_ok();
    for port in [server.tcp, server.http] {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert_eq!(TcpStream::connect(("::1", port)).is_ok(), has_six);
    }
    let shown = format!("[::1]:{}", server.tcp);
    assert_eq!(server.output().contains(&shown), has_six, "{}", server.output());
    assert!(!server.output().contains("WARN listening"), "{}", server.output());
    Client::connect(server.tcp).ok("Ping", json!({}));
}
