//! Every command that README.md and docs/*.md show, run as it stands there against a real server. The fear: a reader types
//! what a page says and gets an error, or reads output that no program prints.
//!
//! A page gets a scratch directory and a server of its own. Its commands run there in their order, in a shell that has the
//! program on its `PATH`, with the places of [`SCRATCH`] put below the directory. What is not run has a reason in
//! [`EXCUSED`]; what another program stands in for is in `documents/bin`: `curl` (Python, which the tests need anyway) and
//! `make`, which only looks whether the target is there, since the targets build and measure for minutes to hours.

mod page;
mod shown;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use self::page::{Page, pages};
use crate::ROOT;
use crate::support::terminal::Terminal;
use crate::support::tool::Tool;
use crate::support::{Server, Start, program};

/// Commands that are not run: how they begin, and why.
const EXCUSED: &[(&str, &str)] = &[
    ("pip install bunqueue-client", "needs the network"),
    ("cargo install --locked --path .", "builds the program with all optimisations"),
    (
        "sudo apt install ./corq_",
        "installs a package; scripts/package-test.sh does so in a root of its own",
    ),
    ("sudo dnf install ./corq-", "as above, on another distribution"),
    ("sudo systemctl enable --now corq", "starts a service of this machine"),
    ("sudo install -d ", "needs the user of a service"),
    ("sudo -u corq ", "as above"),
    (
        "openssl req ",
        "says on standard error what it does; tests/clients/tls.rs serves with what it makes",
    ),
    ("export FLEET_DATABASE=", "needs a database; the tests of fleets make one"),
    ("corq fleet ", "as above"),
    ("DURABILITY=replicated ", "as above"),
    ("docker run ", "needs a container runtime; scripts/image-test.sh runs the image so"),
    ("docker compose ", "needs a container runtime and the network"),
    ("helm install ", "needs a cluster; scripts/manifests.sh checks the chart"),
    ("kubectl ", "needs a cluster; scripts/manifests.sh checks the file"),
    (
        "corq import bullmq ",
        "needs a Redis with jobs of BullMQ; tests/clients/moving.rs imports from one",
    ),
    (
        "corq import ndjson jobs.ndjson --port",
        "needs a second server; tests/e2e/cli/moving.rs has one",
    ),
    (
        "corq export --output",
        "says on standard error what it wrote; tests/e2e/cli/moving.rs exports",
    ),
    ("corq backup s3://", "needs a bucket; tests/clients/storage.rs has a stand-in for one"),
    ("corq backup list s3://", "as above"),
    ("corq restore s3://", "as above"),
    ("corq-bench quick", "loads a server for half a minute; bench/tests/canary.rs runs it"),
    (
        "corq log repair /var/lib/corq --to",
        "has nothing to copy where nothing is damaged; tests/e2e/cli/repair.rs copies",
    ),
];

/// Paths on pages that stand for a temporary directory here.
const SCRATCH: &[&str] = &["/var/lib/", "/backup/", "/run/corq/", "/etc/bash_completion.d/"];

/// Files that commands of the pages read.
const FILES: &[(&str, &str)] = &[("payloads.jsonl", "{\"a\":1}\n{\"a\":2}\n")];

/// Programs that stand in for others, or that a page takes for granted.
const PROGRAMS: &[(&str, &str)] = &[
    ("curl", include_str!("documents/bin/curl.py")),
    ("make", "#!/bin/sh\nPATH=\"$CORQ_OUTER_PATH\" exec make -n -C \"$CORQ_REPOSITORY\" \"$@\"\n"),
    ("generate", "#!/bin/sh\necho '{\"data\": 1, \"priority\": 5, \"customId\": \"a\"}'\n"),
];

/// A place where the commands of one page run.
struct Scene {
    dir: TempDir,
    server: Server,
    stopped: bool,
    /// Output of the last command, where later ones take ids from.
    last: String,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for place in SCRATCH {
            fs::create_dir_all(dir.path().join(place.trim_matches('/'))).unwrap();
        }
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, text) in PROGRAMS {
            fs::write(bin.join(name), text).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(program(), bin.join("corq")).unwrap();
        for (name, text) in FILES {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let socket = |name: &str| dir.path().join("run/corq").join(name).display().to_string();
        let start = Start::new()
            .env("TCP_SOCKET_PATH", socket("tcp.sock"))
            .env("HTTP_SOCKET_PATH", socket("http.sock"));
        let server = start.start_at(&dir.path().join("var/lib/corq"));
        Self { dir, server, stopped: false, last: String::new() }
    }

    /// The command with this scene's places, ports and ids.
    fn placed(&self, command: &str) -> Result<String, String> {
        let root = self.dir.path().display();
        let mut placed = command.to_owned();
        for place in SCRATCH {
            placed = placed.replace(place, &format!("{root}{place}"));
        }
        placed = placed.replace("localhost:6790", &format!("127.0.0.1:{}", self.server.http));
        let mut ids = uuids(&self.last).into_iter();
        for shown in ["<id>".to_owned()].into_iter().chain(uuids(command)) {
            if placed.contains(&shown) {
                let id = ids.next().ok_or_else(|| format!("there is no id in {}", self.last))?;
                placed = placed.replace(&shown, &id);
            }
        }
        Ok(placed)
    }

    fn shell(&self, command: &str) -> Command {
        let outer = std::env::var("PATH").unwrap();
        let tool = Tool::of(&self.server)
            .env("CORQ_OUTER_PATH", &outer)
            .env("CORQ_REPOSITORY", ROOT)
            .env("HOME", self.dir.path().display());
        // The program is not what runs, but what surrounds it is the same.
        let like = tool.command::<&str>(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env_clear().current_dir(self.dir.path());
        shell.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.env("PATH", format!("{}:{outer}", self.dir.path().join("bin").display()));
        shell
    }

    fn output(&self, command: &str) -> Output {
        let mut shell = self.shell(command);
        // A command that waits for a person or for more input would wait for ever.
        shell.stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command of a page, which must succeed. A message says what went wrong.
    fn run(&mut self, command: &str) -> Result<(), String> {
        if command.starts_with("corq top") {
            return self.look_at(command);
        }
        // The repair writes to a log that nothing else may use, so the server stops.
        if command.starts_with("corq log repair") && !self.stopped {
            self.stopped = true;
            assert_eq!(self.server.terminate().code(), Some(0));
        }
        let output = self.output(&self.placed(command)?);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() || !err.is_empty() {
            return Err(format!("{:?}\n{out}{err}", output.status));
        }
        if command.starts_with("corq pull") && uuids(&out).len() < 2 {
            return Err(format!("it shows no job with its token: {out}"));
        }
        if !uuids(&out).is_empty() {
            self.last = out;
        }
        Ok(())
    }

    /// A command that draws on a terminal until a key ends it.
    fn look_at(&self, command: &str) -> Result<(), String> {
        let mut terminal = Terminal::start(self.shell(&format!("exec {}", self.placed(command)?)));
        terminal.wait_for("p99");
        terminal.press("q");
        match terminal.end() {
            (Some(0), _) => Ok(()),
            (code, shown) => Err(format!("{code:?}\n{shown}")),
        }
    }
}

/// Texts that look like ids, each once, in their order.
fn uuids(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in text.split(|it: char| !(it.is_ascii_hexdigit() || it == '-')) {
        let dashes = word.bytes().enumerate().filter(|(_, it)| *it == b'-').map(|(at, _)| at);
        if word.len() == 36 && dashes.eq([8, 13, 18, 23]) && !found.iter().any(|it| it == word) {
            found.push(word.to_owned());
        }
    }
    found
}

fn repository() -> PathBuf {
    PathBuf::from(ROOT)
}

#[test]
fn every_command_of_a_page_does_what_the_page_says() {
    let (mut failed, mut excused, mut run) = (Vec::new(), BTreeSet::new(), 0);
    for page in pages(&repository()) {
        let mut scene = None;
        for (line, command) in page.commands() {
            let excuse = EXCUSED.iter().find(|(start, _)| command.starts_with(start));
            if let Some((start, _)) = excuse {
                excused.insert(*start);
                continue;
            }
            run += 1;
            let outcome = scene.get_or_insert_with(Scene::new).run(&command);
            failed
                .extend(outcome.err().map(|why| format!("{}:{line}: {command}\n{why}", page.name)));
        }
    }
    assert!(failed.is_empty(), "{} of {run} commands:\n\n{}", failed.len(), failed.join("\n\n"));
    assert!(run >= 30, "{run} commands were found");
    assert_eq!(excused.len(), EXCUSED.len(), "of the excuses only {excused:?} are needed");
}

/// Guards commands in the middle of a sentence or in a table, which are named rather than called: they must exist, with
/// the options that are said of them.
#[test]
fn every_command_that_a_page_names_exists_with_its_options() {
    let (tool, mut failed, mut seen) = (Tool::at(1), Vec::new(), 0);
    let mut known = std::collections::BTreeMap::new();
    for page in pages(&repository()) {
        for (line, words, options) in page.named() {
            let help = known.entry(words.clone()).or_insert_with(|| {
                let mut asked: Vec<&str> = words.iter().map(String::as_str).collect();
                // Which is the help itself.
                asked.extend((asked != ["help"]).then_some("--help"));
                let ran = tool.run(&asked);
                (ran.code == Some(0)).then_some(ran.out)
            });
            seen += 1;
            let place = format!("{}:{line}: corq {}", page.name, words.join(" "));
            let Some(help) = help else {
                failed.push(format!("{place}: there is no such command"));
                continue;
            };
            let missing = options.iter().filter(|option| {
                let mut words = help.split(|it: char| !(it.is_ascii_alphanumeric() || it == '-'));
                !words.any(|word| word == option.as_str())
            });
            failed.extend(missing.map(|option| format!("{place}: it has no {option}")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(seen > 80, "{seen} were found");
}

#[test]
fn every_target_and_script_that_a_page_names_exists() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let mut failed = Vec::new();
    for page in pages(&repository()) {
        for (line, span) in page.spans() {
            let words: Vec<&str> = span.split_whitespace().collect();
            let exists = match &words[..] {
                ["make", target, ..] => makefile.contains(&format!("\n{target}: ")),
                [script, ..] if script.starts_with("scripts/") && !script.contains('*') => {
                    repository().join(script).exists()
                }
                _ => true,
            };
            if !exists {
                failed.push(format!("{}:{line}: {span}", page.name));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A blank line ends a table: what follows is shown as text.
#[test]
fn no_table_of_a_page_is_cut() {
    let mut failed = Vec::new();
    for page in pages(&repository()) {
        for (line, row) in page.headless_rows() {
            failed.push(format!("{}:{line}: {row}", page.name));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let cut = "| a |\n|---|\n| 1 |\n\n| 2 |\n";
    assert_eq!(Page::new("README.md", cut).headless_rows(), [(5, "| 2 |")]);
}

/// The version of Rust that the page asks for is the one that Cargo asks for.
#[test]
fn the_page_asks_for_the_rust_that_cargo_asks_for() {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("\nrust-version = \"").unwrap();
    let version = rest.split('"').next().unwrap();
    let page = fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(page.contains(&format!("Rust {version} or later")), "{version}");
}

/// A harness that sees nothing would be content with any page.
#[test]
fn canary_a_command_that_fails_and_a_name_that_is_none_are_seen() {
    let text = "# A page\n\n```sh\ncorq queue lst    # wrong\n```\n\n`corq quue list`, `corq queue list --jsn`\n";
    let page = Page::new("README.md", text);
    let commands: Vec<String> = page.commands().into_iter().map(|(_, command)| command).collect();
    assert_eq!(commands, ["corq queue lst    # wrong"]);
    let mut scene = Scene::new();
    assert!(scene.run(&commands[0]).unwrap_err().contains("lst"));
    assert!(scene.run("curl localhost:6790/nowhere").unwrap_err().contains("404"));
    assert!(scene.run("make no-such-target").unwrap_err().contains("no-such-target"));
    let named = page.named();
    assert_eq!(named[0].1, ["quue", "list"]);
    assert_eq!(
        (&named[1].1[..], &named[1].2[..]),
        (&["queue".to_owned(), "list".to_owned()][..], &["--jsn".to_owned()][..])
    );
    assert_eq!(uuids("a 01a1fc16-b9dd-7000-8000-0ae340900787, 01a1fc16-b9dd").len(), 1);
    assert!(program().exists());
}
